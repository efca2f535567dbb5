//! The segment format: writing it front to back, and reading parts of it.
//!
//! ```text
//! magic
//! documents    of one file after the other: line, fingerprint, title, where the text is
//! lengths      of each document: how many words each of its parts has
//! files        sorted by path: what each was when it was read, and where its documents are
//! terms        in blocks, sorted: the postings of one term after the other, then what the block has: how many documents
//!              have a term, in all and in each part, and how long its postings are
//! shapes       of each term: its letters and its length, to tell most apart from a mistyped word
//! blocks       the first term of each block, and where the block is
//! footer       where all that is; its size, its checksum, magic
//! ```
//!
//! Lengths, files and blocks are kept in memory; the rest is read on demand. Everything has a checksum that is verified
//! on each read.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use super::code::{Taker, put, put_text};
use super::posting::List;
use super::{BODY, FIELDS};
use crate::print::Print;
use crate::root::Stamp;

/// A document's number in a segment.
pub(crate) type DocId = u32;
/// A file's number in a segment.
pub(crate) type FileId = u32;

/// Increase this whenever the format or the indexing changes: files of other versions are ignored.
const VERSION: u64 = 5;
const MAGIC: &[u8; 8] = b"tbr-docs";
const TRAILER_BYTES: u64 = 16;
/// How many bytes to read ahead.
const AHEAD_BYTES: u64 = 64 * 1024;
/// How many terms are read to find one.
pub(super) const BLOCK_TERMS: usize = 32;
pub(super) const SHAPE_BYTES: usize = 5;
const LENGTHS_BYTES: usize = 10;
const MARK_BYTES: usize = 32;

/// A segment cannot be read, or differs from what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        tracing::debug!(%error, "a part of the index cannot be read");
        Self
    }
}

/// Where a segment's bytes are stored.
#[derive(Debug)]
pub(crate) enum Blob {
    Memory(Vec<u8>),
    File(File),
}

impl Blob {
    fn size(&self) -> Result<u64, Broken> {
        match self {
            Self::Memory(bytes) => Ok(bytes.len() as u64),
            Self::File(file) => Ok(file.metadata()?.len()),
        }
    }

    pub(super) fn read(&self, range: Range<u64>) -> Result<Cow<'_, [u8]>, Broken> {
        match self {
            Self::Memory(bytes) => Ok(Cow::Borrowed(slice(bytes, 0, &range)?)),
            Self::File(file) => {
                let count = range.end.checked_sub(range.start).ok_or(Broken)?;
                let mut bytes = vec![0; usize::try_from(count).map_err(|_| Broken)?];
                file.read_exact_at(&mut bytes, range.start)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

/// A part of a segment.
#[derive(Debug, Clone, Default)]
pub(super) struct Area {
    pub(super) range: Range<u64>,
    pub(super) crc: u32,
}

impl Area {
    pub(super) fn read<'a>(&self, blob: &'a Blob) -> Result<Cow<'a, [u8]>, Broken> {
        let bytes = blob.read(self.range.clone())?;
        check(&bytes, self.crc)?;
        Ok(bytes)
    }
}

pub(super) fn check(bytes: &[u8], crc: u32) -> Result<(), Broken> {
    if crc32fast::hash(bytes) == crc { Ok(()) } else { Err(Broken) }
}

/// A file's state when it was read, limited to what another process can compare: device numbers change when
/// the system restarts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark([u8; MARK_BYTES]);

impl From<&Stamp> for Mark {
    fn from(stamp: &Stamp) -> Self {
        let mut mark = [0; MARK_BYTES];
        for (part, number) in mark.chunks_exact_mut(8).zip(stamp.numbers()) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        Self(mark)
    }
}

/// How many documents there are, and how many words their fields have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) docs: u64,
    pub(crate) words: [u64; FIELDS],
    /// How many documents have a non-empty field.
    pub(crate) fields: [u64; FIELDS],
}

impl Totals {
    fn add(&mut self, lengths: [u32; FIELDS]) {
        self.docs += 1;
        for (field, length) in lengths.into_iter().enumerate() {
            self.words[field] += u64::from(length);
            self.fields[field] += u64::from(length > 0);
        }
    }

    fn remove(&mut self, lengths: [u32; FIELDS]) {
        self.docs -= 1;
        for (field, length) in lengths.into_iter().enumerate() {
            self.words[field] -= u64::from(length);
            self.fields[field] -= u64::from(length > 0);
        }
    }

    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.docs += other.docs;
        for field in 0..FIELDS {
            self.words[field] += other.words[field];
            self.fields[field] += other.fields[field];
        }
        self
    }
}

/// A file that contains documents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileEntry<'a> {
    pub(crate) path: &'a str,
    pub(crate) mark: Mark,
    /// Whether a later change would be visible in the mark.
    pub(crate) is_settled: bool,
    /// The title from its front matter; empty if there is none.
    pub(crate) title: &'a str,
}

/// A document's location and metadata.
#[derive(Debug, Clone)]
pub(crate) struct Doc {
    /// Its line and fingerprint; `None` for a file without sections.
    pub(crate) section: Option<(usize, Print)>,
    pub(crate) title: String,
    /// The section that contains it, by position in the file.
    pub(crate) parent: Option<usize>,
    /// The byte range of its text, without its title.
    pub(crate) body: Range<usize>,
}

impl Doc {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        // Lines count from 1, so 0 stands for none.
        let (line, print) = self.section.unwrap_or((0, Print { text: 0, heading: 0 }));
        put(out, line as u64);
        put(out, print.text.into());
        put(out, print.heading.into());
        put(out, self.parent.map_or(0, |place| place as u64 + 1));
        put(out, self.body.start as u64);
        put(out, self.body.len() as u64);
        put_text(out, &self.title);
    }

    fn take(bytes: &mut Taker<'_>) -> Result<Self, Broken> {
        let line: usize = bytes.small()?;
        let print = Print { text: bytes.small()?, heading: bytes.small()? };
        let parent: usize = bytes.small()?;
        let start: usize = bytes.small()?;
        let length: usize = bytes.small()?;
        Ok(Self {
            section: (line > 0).then_some((line, print)),
            parent: parent.checked_sub(1),
            body: start..start.checked_add(length).ok_or(Broken)?,
            title: bytes.text()?.to_owned(),
        })
    }
}

/// Compares name by name, as [`RelPath`](crate::path::RelPath) does.
pub(crate) fn compare_paths(one: &str, other: &str) -> Ordering {
    let key = |byte: u8| if byte == b'/' { 0 } else { byte };
    one.bytes().map(key).cmp(other.bytes().map(key))
}

/// A bit set of the dead ones.
#[derive(Debug, Clone, Default)]
struct Dead(Vec<u64>);

impl Dead {
    fn has(&self, place: u32) -> bool {
        self.0.get(place as usize / 64).is_some_and(|bits| bits >> (place % 64) & 1 == 1)
    }

    fn add(&mut self, place: u32) -> bool {
        let word = place as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = !self.has(place);
        self.0[word] |= 1 << (place % 64);
        is_new
    }
}

/// Which files of a segment are still alive.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    files: Dead,
    docs: Dead,
    /// How many files are alive.
    pub(crate) file_count: u32,
    pub(crate) totals: Totals,
}

impl Live {
    pub(crate) fn all(segment: &Segment) -> Self {
        let (files, docs) = (Dead::default(), Dead::default());
        Self { files, docs, file_count: segment.file_count(), totals: segment.totals }
    }

    /// Marks a file as dead because it was changed or removed.
    pub(crate) fn bury(&mut self, segment: &Segment, file: FileId) {
        if self.files.add(file) {
            self.file_count -= 1;
            for doc in segment.docs_in(file) {
                self.docs.add(doc);
                self.totals.remove(segment.lengths(doc));
            }
        }
    }

    pub(crate) fn has_file(&self, file: FileId) -> bool {
        !self.files.has(file)
    }

    pub(super) fn has_doc(&self, doc: DocId) -> bool {
        !self.docs.has(doc)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.docs.0.is_empty()
    }
}

/// A block of terms.
#[derive(Debug)]
struct Block {
    first: Box<str>,
    area: Area,
    /// The position of its first term's postings.
    postings: u64,
}

/// A term of a block.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub(super) text: String,
    /// How many documents contained it when it was written.
    pub(super) documents: u32,
    pub(super) postings: Area,
}

/// A segment that can be searched.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(super) blob: Blob,
    pub(crate) size: u64,
    pub(super) totals: Totals,
    blocks: Vec<Block>,
    pub(super) shapes: Area,
    lengths: Vec<u8>,
    files: Vec<u8>,
    /// By file: its position in `files`, its first document, and the position of its documents.
    places: Vec<(u32, DocId, u64)>,
    docs_end: (DocId, u64),
}

impl Segment {
    /// Opens a segment that was written for `key`; anything else is broken.
    pub(crate) fn open(blob: Blob, key: &str) -> Result<Self, Broken> {
        let size = blob.size()?;
        let trailer = size.checked_sub(TRAILER_BYTES).ok_or(Broken)?;
        let bytes = blob.read(trailer..size)?;
        let mut bytes = Taker(&bytes);
        let footer_bytes = u64::from(u32::from_le_bytes(bytes.array()?));
        let crc = u32::from_le_bytes(bytes.array()?);
        if bytes.array::<8>()? != *MAGIC {
            return Err(Broken);
        }
        let footer = Area { range: trailer.checked_sub(footer_bytes).ok_or(Broken)?..trailer, crc };
        let footer = footer.read(&blob)?;
        let mut footer = Taker(&footer);
        if footer.number()? != VERSION || footer.text()? != key {
            return Err(Broken);
        }
        let mut totals = Totals { docs: footer.number()?, ..Totals::default() };
        for field in 0..FIELDS {
            totals.words[field] = footer.number()?;
            totals.fields[field] = footer.number()?;
        }
        let mut area = || -> Result<Area, Broken> {
            let start = footer.number()?;
            let end = start.checked_add(footer.number()?).ok_or(Broken)?;
            let crc = u32::from_le_bytes(footer.array()?);
            if end > trailer { Err(Broken) } else { Ok(Area { range: start..end, crc }) }
        };
        let [shapes, lengths, files, blocks] = [area()?, area()?, area()?, area()?];
        let lengths = lengths.read(&blob)?.into_owned();
        if lengths.len() as u64 != totals.docs * LENGTHS_BYTES as u64 {
            return Err(Broken);
        }
        let files = files.read(&blob)?.into_owned();
        let blocks = read_blocks(&blocks.read(&blob)?)?;
        let (places, docs_end) = read_places(&files)?;
        if u64::from(docs_end.0) != totals.docs {
            return Err(Broken);
        }
        Ok(Self { blob, size, totals, blocks, shapes, lengths, files, places, docs_end })
    }

    pub(crate) fn file_count(&self) -> FileId {
        FileId::try_from(self.places.len()).unwrap_or(FileId::MAX)
    }

    pub(super) fn lengths(&self, doc: DocId) -> [u32; FIELDS] {
        let bytes = &self.lengths[doc as usize * LENGTHS_BYTES..][..LENGTHS_BYTES];
        let short = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        [short(4), short(6), short(8), u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])]
    }

    pub(crate) fn file(&self, file: FileId) -> FileEntry<'_> {
        let mut bytes = Taker(&self.files[self.places[file as usize].0 as usize..]);
        take_file(&mut bytes).expect("it was read when the segment was opened").0
    }

    /// The number of the file at a path, or the number it would have.
    pub(crate) fn find_file(&self, path: &str) -> Result<FileId, FileId> {
        let as_id = |place: usize| FileId::try_from(place).unwrap_or(FileId::MAX);
        self.places
            .binary_search_by(|place| {
                let mut bytes = Taker(&self.files[place.0 as usize..]);
                compare_paths(bytes.text().unwrap_or_default(), path)
            })
            .map(as_id)
            .map_err(as_id)
    }

    /// The files below a folder, or all of them.
    pub(crate) fn files_below(&self, folder: Option<&str>) -> Range<FileId> {
        let Some(folder) = folder else { return 0..self.file_count() };
        let bound = |path: String| self.find_file(&path).unwrap_or_else(|place| place);
        // In this order `/` sorts before every character of a name, and no name contains `\u{1}`.
        bound(format!("{folder}/"))..bound(format!("{folder}\u{1}"))
    }

    /// The file that contains a document.
    pub(crate) fn file_of(&self, doc: DocId) -> FileId {
        let after = self.places.partition_point(|(_, first, _)| *first <= doc);
        FileId::try_from(after - 1).unwrap_or(FileId::MAX)
    }

    /// The numbers of a file's documents.
    pub(crate) fn docs_in(&self, file: FileId) -> Range<DocId> {
        let end = self.places.get(file as usize + 1).map_or(self.docs_end.0, |next| next.1);
        self.places[file as usize].1..end
    }

    /// The bytes of a file's documents.
    pub(super) fn doc_bytes(&self, file: FileId) -> Result<Cow<'_, [u8]>, Broken> {
        self.doc_area(file)?.read(&self.blob)
    }

    fn doc_area(&self, file: FileId) -> Result<Area, Broken> {
        let (at, _, start) = self.places[file as usize];
        let end = self.places.get(file as usize + 1).map_or(self.docs_end.1, |next| next.2);
        let (_, _, _, crc) = take_file(&mut Taker(&self.files[at as usize..]))?;
        Ok(Area { range: start..end, crc })
    }

    /// The documents of a file.
    pub(crate) fn docs_of(&self, file: FileId) -> Result<Vec<Doc>, Broken> {
        let bytes = self.doc_bytes(file)?;
        let mut bytes = Taker(&bytes);
        self.docs_in(file).map(|_| Doc::take(&mut bytes)).collect()
    }

    pub(super) fn term(&self, text: &str) -> Result<Option<Term>, Broken> {
        let after = self.blocks.partition_point(|block| *block.first <= *text);
        let Some(block) = after.checked_sub(1) else { return Ok(None) };
        Ok(self.block(block)?.into_iter().find(|term| term.text == text))
    }

    /// The terms of a block.
    pub(super) fn block(&self, block: usize) -> Result<Vec<Term>, Broken> {
        let Some(Block { area, postings, .. }) = self.blocks.get(block) else { return Ok(Vec::new()) };
        let bytes = area.read(&self.blob)?;
        let mut bytes = Taker(&bytes);
        let mut terms: Vec<Term> = Vec::with_capacity(BLOCK_TERMS);
        let mut at = *postings;
        while !bytes.is_empty() {
            let shared: usize = bytes.small()?;
            let before = terms.last().map_or("", |term| term.text.as_str());
            let text = format!("{}{}", before.get(..shared).ok_or(Broken)?, bytes.text()?);
            let documents = bytes.small()?;
            let end = at.checked_add(bytes.number()?).ok_or(Broken)?;
            let postings = Area { range: at..end, crc: u32::from_le_bytes(bytes.array()?) };
            terms.push(Term { text, documents, postings });
            at = end;
        }
        Ok(terms)
    }
}

fn read_blocks(bytes: &[u8]) -> Result<Vec<Block>, Broken> {
    let mut bytes = Taker(bytes);
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let first = bytes.text()?.into();
        let start = bytes.number()?;
        let end = start.checked_add(bytes.number()?).ok_or(Broken)?;
        let postings = bytes.number()?;
        let area = Area { range: start..end, crc: u32::from_le_bytes(bytes.array()?) };
        blocks.push(Block { first, area, postings });
    }
    Ok(blocks)
}

/// The position of each file, and the end of the last document.
type Places = (Vec<(u32, DocId, u64)>, (DocId, u64));

fn read_places(files: &[u8]) -> Result<Places, Broken> {
    let mut bytes = Taker(files);
    let mut places = Vec::new();
    let (mut doc, mut at) = (0_u32, MAGIC.len() as u64);
    while !bytes.is_empty() {
        let place = u32::try_from(files.len() - bytes.0.len()).map_err(|_| Broken)?;
        let (_, docs, size, _) = take_file(&mut bytes)?;
        places.push((place, doc, at));
        doc = doc.checked_add(docs).ok_or(Broken)?;
        at = at.checked_add(size).ok_or(Broken)?;
    }
    Ok((places, (doc, at)))
}

/// A file, the number and size of its documents, and their checksum.
fn take_file<'a>(bytes: &mut Taker<'a>) -> Result<(FileEntry<'a>, DocId, u64, u32), Broken> {
    let path = bytes.text()?;
    let mark = Mark(bytes.array()?);
    let [is_settled] = bytes.array()?;
    let title = bytes.text()?;
    let docs = bytes.small()?;
    let size = bytes.number()?;
    let crc = u32::from_le_bytes(bytes.array()?);
    Ok((FileEntry { path, mark, is_settled: is_settled == 1, title }, docs, size, crc))
}

/// Writes a segment front to back: files with their documents, then their tables, then terms and theirs.
pub(crate) struct Sink<'a> {
    out: &'a mut dyn Write,
    at: u64,
    totals: Totals,
    lengths: Vec<u8>,
    files: Vec<u8>,
    /// Where `lengths` and `files` were written.
    written: Option<[Area; 2]>,
    shapes: Vec<u8>,
    blocks: Vec<u8>,
    /// The current block: its terms, its first term, and the position of its postings.
    block: Vec<u8>,
    first: String,
    postings: u64,
    terms: usize,
    last: String,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> io::Result<Self> {
        let mut sink = Self {
            out,
            at: 0,
            totals: Totals::default(),
            lengths: Vec::new(),
            files: Vec::new(),
            written: None,
            shapes: Vec::new(),
            blocks: Vec::new(),
            block: Vec::new(),
            first: String::new(),
            postings: 0,
            terms: 0,
            last: String::new(),
        };
        sink.write(MAGIC)?;
        Ok(sink)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Adds a file. Files must be added sorted by path, before all terms.
    pub(super) fn file(
        &mut self,
        file: &FileEntry<'_>,
        docs: &[u8],
        lengths: impl ExactSizeIterator<Item = [u32; FIELDS]>,
    ) -> io::Result<()> {
        put_text(&mut self.files, file.path);
        self.files.extend_from_slice(&file.mark.0);
        self.files.push(file.is_settled.into());
        put_text(&mut self.files, file.title);
        put(&mut self.files, lengths.len() as u64);
        put(&mut self.files, docs.len() as u64);
        self.files.extend_from_slice(&crc32fast::hash(docs).to_le_bytes());
        for lengths in lengths {
            self.totals.add(lengths);
            self.lengths.extend_from_slice(&lengths[BODY].to_le_bytes());
            for length in &lengths[..BODY] {
                let short = u16::try_from(*length).unwrap_or(u16::MAX);
                self.lengths.extend_from_slice(&short.to_le_bytes());
            }
        }
        self.write(docs)
    }

    /// Adds a term. Terms must be added in sorted order.
    pub(super) fn term(&mut self, text: &str, postings: &List) -> io::Result<()> {
        if self.terms.is_multiple_of(BLOCK_TERMS) {
            self.end_block()?;
            self.end_files()?;
            text.clone_into(&mut self.first);
            self.postings = self.at;
            self.last.clear();
        }
        self.terms += 1;
        let same = self.last.bytes().zip(text.bytes()).take_while(|(one, other)| one == other).count();
        let shared = (0..=same).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        put(&mut self.block, shared as u64);
        put_text(&mut self.block, &text[shared..]);
        put(&mut self.block, postings.documents.into());
        put(&mut self.block, postings.bytes.len() as u64);
        self.block.extend_from_slice(&crc32fast::hash(&postings.bytes).to_le_bytes());
        self.shapes.extend_from_slice(&letters(text).to_le_bytes());
        self.shapes.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        text.clone_into(&mut self.last);
        self.write(&postings.bytes)
    }

    fn area(&mut self, bytes: &[u8]) -> io::Result<Area> {
        let start = self.at;
        self.write(bytes)?;
        Ok(Area { range: start..self.at, crc: crc32fast::hash(bytes) })
    }

    /// Writes the tables of the files, unless that is done. They would take memory while terms are added.
    fn end_files(&mut self) -> io::Result<[Area; 2]> {
        if let Some(written) = &self.written {
            return Ok(written.clone());
        }
        let [lengths, files] = [&mut self.lengths, &mut self.files].map(std::mem::take);
        let written = [self.area(&lengths)?, self.area(&files)?];
        self.written = Some(written.clone());
        Ok(written)
    }

    /// Writes the terms of the current block behind their postings.
    fn end_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut block = std::mem::take(&mut self.block);
        let Area { range, crc } = self.area(&block)?;
        put_text(&mut self.blocks, &self.first);
        put(&mut self.blocks, range.start);
        put(&mut self.blocks, block.len() as u64);
        put(&mut self.blocks, self.postings);
        self.blocks.extend_from_slice(&crc.to_le_bytes());
        block.clear();
        self.block = block;
        Ok(())
    }

    pub(crate) fn finish(mut self, key: &str) -> io::Result<()> {
        self.end_block()?;
        let [lengths, files] = self.end_files()?;
        let [shapes, blocks] = [&mut self.shapes, &mut self.blocks].map(std::mem::take);
        let (shapes, blocks) = (self.area(&shapes)?, self.area(&blocks)?);
        let mut footer = Vec::new();
        put(&mut footer, VERSION);
        put_text(&mut footer, key);
        put(&mut footer, self.totals.docs);
        for field in 0..FIELDS {
            put(&mut footer, self.totals.words[field]);
            put(&mut footer, self.totals.fields[field]);
        }
        for Area { range, crc } in [shapes, lengths, files, blocks] {
            put(&mut footer, range.start);
            put(&mut footer, range.end - range.start);
            footer.extend_from_slice(&crc.to_le_bytes());
        }
        self.write(&footer)?;
        let size = u32::try_from(footer.len()).map_err(io::Error::other)?;
        self.write(&size.to_le_bytes())?;
        self.write(&crc32fast::hash(&footer).to_le_bytes())?;
        self.write(MAGIC)?;
        self.out.flush()
    }
}

/// The letters of a word, one bit each.
pub(super) fn letters(word: &str) -> u32 {
    word.bytes().fold(0, |bits, byte| bits | 1 << (byte & 31))
}

/// Reads consecutive ranges with few system calls.
#[derive(Default)]
pub(super) struct Ahead {
    at: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    pub(super) fn read<'a>(&'a mut self, blob: &'a Blob, range: Range<u64>) -> Result<&'a [u8], Broken> {
        match blob {
            Blob::Memory(bytes) => slice(bytes, 0, &range),
            Blob::File(file) => {
                if slice(&self.bytes, self.at, &range).is_err() {
                    let end = range.end.max(blob.size()?.min(range.start + AHEAD_BYTES));
                    let count = end.checked_sub(range.start).ok_or(Broken)?;
                    // The same memory again: a merge reads many segments at once.
                    self.bytes.resize(usize::try_from(count).map_err(|_| Broken)?, 0);
                    self.at = range.start;
                    file.read_exact_at(&mut self.bytes, range.start)?;
                }
                slice(&self.bytes, self.at, &range)
            }
        }
    }
}

/// A range of bytes of which the first is at `at`.
fn slice<'a>(bytes: &'a [u8], at: u64, range: &Range<u64>) -> Result<&'a [u8], Broken> {
    let place = |point: u64| usize::try_from(point.checked_sub(at)?).ok();
    let places = place(range.start).zip(place(range.end));
    places.and_then(|(start, end)| bytes.get(start..end)).ok_or(Broken)
}
