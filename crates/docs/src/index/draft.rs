//! A segment that is built in memory.

use std::collections::HashMap;
use std::io::{self, Write};

use foldhash::fast::RandomState;
use rust_stemmers::{Algorithm, Stemmer};

use super::FIELDS;
use super::posting::{List, Posting};
use super::segment::{Doc, DocId, FileEntry, Mark, Sink};
use crate::term::{Piece, for_each_piece, stem};

/// A file to be indexed.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) path: String,
    pub(crate) mark: Mark,
    pub(crate) is_settled: bool,
    pub(crate) title: String,
    pub(crate) docs: Vec<NewDoc>,
}

/// A section of it, and its metadata.
#[derive(Debug)]
pub(crate) struct NewDoc {
    pub(crate) doc: Doc,
    /// The full title; the document's is shortened as answers show it.
    pub(crate) title: String,
    /// The titles above it.
    pub(crate) context: String,
}

/// A segment that is being built.
pub(crate) struct Draft {
    stemmer: Stemmer,
    /// Term numbers by the word as written: looking it up is much faster than stemming it.
    words: HashMap<Box<str>, u32, RandomState>,
    /// The same for short words, which are nearly all: comparing an inline number needs no pointer.
    short: HashMap<u128, u32, RandomState>,
    terms: HashMap<Box<str>, u32, RandomState>,
    /// Indexed by term.
    postings: Vec<List>,
    lengths: Vec<[u32; FIELDS]>,
    files: Vec<(NewFile, Vec<u8>, std::ops::Range<usize>)>,
    /// Each term of the current document, with its field.
    found: Vec<(u32, u8)>,
    bytes: usize,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            stemmer: Stemmer::create(Algorithm::English),
            words: HashMap::default(),
            short: HashMap::default(),
            terms: HashMap::default(),
            postings: Vec::new(),
            lengths: Vec::new(),
            files: Vec::new(),
            found: Vec::new(),
            bytes: 0,
        }
    }
}

impl Draft {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Its approximate memory use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a file; paths must be added in order.
    pub(crate) fn add(&mut self, mut file: NewFile, text: &str) {
        let start = self.lengths.len();
        let mut docs = Vec::new();
        for NewDoc { doc, title, context } in std::mem::take(&mut file.docs) {
            self.index([&title, &context, &file.title, &text[doc.body.clone()]]);
            doc.put(&mut docs);
        }
        docs.shrink_to_fit();
        self.bytes += docs.len() + file.path.len() + 200;
        self.files.push((file, docs, start..self.lengths.len()));
    }

    fn index(&mut self, texts: [&str; FIELDS]) {
        let doc = DocId::try_from(self.lengths.len()).expect("fewer than four billion sections");
        let mut found = std::mem::take(&mut self.found);
        let mut lengths = [0; FIELDS];
        for (field, text) in (0_u8..).zip(texts) {
            let before = found.len();
            for_each_piece(text, |piece| {
                let term = match piece {
                    Piece::Word(word) => self.word(word),
                    Piece::Term(term) => self.term(term),
                };
                found.push((term, field));
            });
            lengths[usize::from(field)] = u32::try_from(found.len() - before).unwrap_or(u32::MAX);
        }
        found.sort_unstable();
        for same in found.chunk_by(|one, other| one.0 == other.0) {
            let mut counts = [0_u8; FIELDS];
            for (_, field) in same {
                let count = &mut counts[usize::from(*field)];
                *count = count.saturating_add(1);
            }
            let list = &mut self.postings[same[0].0 as usize];
            let before = list.bytes.capacity();
            list.push(Posting { doc, counts });
            self.bytes += list.bytes.capacity() - before;
        }
        self.bytes += size_of_val(&lengths);
        self.lengths.push(lengths);
        found.clear();
        self.found = found;
    }

    fn word(&mut self, word: &str) -> u32 {
        let packed = packed(word);
        let known = match packed {
            Some(packed) => self.short.get(&packed),
            None => self.words.get(word),
        };
        if let Some(term) = known {
            return *term;
        }
        let term = match stem(&self.stemmer, word) {
            std::borrow::Cow::Borrowed(stem) => self.term(stem),
            std::borrow::Cow::Owned(stem) => self.term(&stem),
        };
        self.bytes += word.len() + 40;
        match packed {
            Some(packed) => self.short.insert(packed, term),
            None => self.words.insert(word.into(), term),
        };
        term
    }

    fn term(&mut self, term: &str) -> u32 {
        if let Some(place) = self.terms.get(term) {
            return *place;
        }
        let place = u32::try_from(self.postings.len()).expect("fewer than four billion terms");
        self.postings.push(List::default());
        self.bytes += term.len() + 40 + size_of::<List>();
        self.terms.insert(term.into(), place);
        place
    }

    /// Writes the segment.
    pub(crate) fn write(&self, out: &mut dyn Write, key: &str) -> io::Result<()> {
        let mut sink = Sink::new(out)?;
        for (file, docs, range) in &self.files {
            let entry = FileEntry {
                path: &file.path,
                mark: file.mark,
                is_settled: file.is_settled,
                title: &file.title,
            };
            sink.file(&entry, docs, self.lengths[range.clone()].iter().copied())?;
        }
        let mut terms: Vec<_> = self.terms.iter().collect();
        terms.sort_unstable();
        for (term, place) in terms {
            sink.term(term, &self.postings[*place as usize])?;
        }
        sink.finish(key)
    }
}

/// A word of up to fifteen bytes as a unique number: its bytes and its length.
fn packed(word: &str) -> Option<u128> {
    let mut bytes = [0; 16];
    bytes[..15].get_mut(..word.len())?.copy_from_slice(word.as_bytes());
    bytes[15] = u8::try_from(word.len()).ok()?;
    Some(u128::from_le_bytes(bytes))
}
