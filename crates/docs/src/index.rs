//! The index of some folders of files: which sections contain which terms.
//!
//! It is in memory only. Every search first [brings it up to date](refresh) and then [ranks](rank) the sections.

mod posting;
mod rank;
mod refresh;
mod terms;

use std::cmp::Reverse;
use std::ops::Range;

use rust_stemmers::{Algorithm, Stemmer};

use self::posting::{Posting, Postings};
pub(crate) use self::rank::{Match, Matches};
use self::terms::{TermId, Terms};
use crate::manual::Reading;
use crate::path::RelPath;
use crate::section::{page_title, shortened};
use crate::term::{Piece, for_each_piece, stem};

/// The fields of a section: its title, the titles above it, the page's title, the body.
const FIELDS: usize = 4;
/// The title of the whole page.
const PAGE: usize = 2;
/// The field that contains nearly all words.
const BODY: usize = 3;

/// A section's number, in the order in which sections were read.
type DocId = u32;

/// The sections of files, and the terms in them.
///
/// Nothing is ever taken out: a changed or removed file is marked as dead, and the new version is added at the end. When
/// more is dead than alive, the index is built again.
///
/// It has few, large allocations, because a large folder has hundreds of thousands of terms, most of them in one section.
#[derive(Debug, Default)]
pub(crate) struct Index {
    terms: Terms,
    /// By term.
    lists: Vec<List>,
    /// The postings of one term after the other.
    postings: Vec<u8>,
    docs: Vec<Doc>,
    files: Vec<File>,
    /// The positions in `files` of those alive, sorted by path.
    order: Vec<u32>,
    live_docs: usize,
}

/// The postings of a term.
#[derive(Debug, Clone, Copy, Default)]
struct List {
    /// Where its bytes end; they begin where those of the term before end.
    end: u32,
    /// The last section in it.
    last: DocId,
}

/// A section.
#[derive(Debug, Clone, Copy)]
struct Doc {
    /// The position of its file in `files`.
    file: u32,
    /// How many words its body has.
    body: u32,
    /// How many words each other field has.
    titles: [u16; BODY],
    is_live: bool,
}

impl Doc {
    fn words(&self) -> [u32; FIELDS] {
        let [own, above, page] = self.titles.map(u32::from);
        [own, above, page, self.body]
    }
}

/// A file that was read.
#[derive(Debug)]
struct File {
    path: RelPath,
    /// What it was when it was read.
    mark: Mark,
    /// Whether a later change would be visible in the mark.
    is_settled: bool,
    /// The title from its front matter; empty if there is none.
    title: Box<str>,
    docs: Range<DocId>,
    /// Its position in `order`, if it is alive.
    place: u32,
}

/// What tells versions of a file apart; smaller than a [`Stamp`](crate::root::Stamp).
pub(crate) type Mark = [i64; 4];

/// A count as the type of positions, which are kept by the million.
fn number(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than four billion sections, terms, and bytes of postings")
}

impl Index {
    fn range(&self, term: usize) -> Range<usize> {
        let start = if term == 0 { 0 } else { self.lists[term - 1].end };
        start as usize..self.lists[term].end as usize
    }

    fn postings(&self, term: TermId) -> Postings<'_> {
        Postings::of(&self.postings[self.range(term as usize)])
    }

    /// Adds what a thread has read.
    fn add(&mut self, mut draft: Draft) {
        let (docs, files) = (number(self.docs.len()), number(self.files.len()));
        self.docs.extend(draft.docs.into_iter().map(|doc| Doc { file: doc.file + files, ..doc }));
        for file in &mut draft.files {
            file.docs = file.docs.start + docs..file.docs.end + docs;
        }
        self.files.append(&mut draft.files);
        let mut postings = draft.postings;
        postings.sort_unstable_by_key(|(term, posting)| u64::from(*term) << 32 | u64::from(posting.doc));
        let mut end = self.postings.len();
        // The new bytes of all terms, and where those of each are.
        let (mut more, mut changed) = (Vec::new(), Vec::new());
        for same in postings.chunk_by(|one, other| one.0 == other.0) {
            let term = self.terms.intern(draft.terms.get(same[0].0)) as usize;
            self.lists.resize(self.terms.len(), List { end: number(end), last: 0 });
            let start = more.len();
            for (_, posting) in same {
                let posting = Posting { doc: posting.doc + docs, ..*posting };
                posting::put(&mut more, self.lists[term].last, posting);
                self.lists[term].last = posting.doc;
            }
            changed.push((term, start..more.len()));
        }
        // From the last term on, what is behind each moves to make room for the new bytes up to there.
        changed.sort_unstable_by_key(|(term, _)| Reverse(*term));
        let (mut shift, mut after) = (more.len(), self.lists.len());
        self.postings.reserve_exact(shift);
        self.postings.resize(end + shift, 0);
        for (term, new) in changed {
            let start = self.lists[term].end as usize;
            self.postings.copy_within(start..end, start + shift);
            for list in &mut self.lists[term..after] {
                list.end += number(shift);
            }
            shift -= new.len();
            self.postings[start + shift..][..new.len()].copy_from_slice(&more[new]);
            (end, after) = (start, term);
        }
    }

    /// Makes the files from this position on part of the order.
    fn arrange(&mut self, new: usize) {
        self.order.extend(number(new)..number(self.files.len()));
        // A stable sort only merges what is already sorted.
        let path = |file: u32| &self.files[file as usize].path;
        self.order.sort_by(|one, other| path(*one).cmp(path(*other)));
        for (place, file) in (0..).zip(&self.order) {
            self.files[*file as usize].place = place;
        }
        self.live_docs += self.files[new..].iter().map(|file| file.docs.len()).sum::<usize>();
    }

    /// Marks files as dead.
    fn bury(&mut self, mut files: Vec<u32>) {
        files.sort_unstable();
        self.order.retain(|file| files.binary_search(file).is_err());
        for File { docs, .. } in files.into_iter().map(|file| &self.files[file as usize]) {
            let docs = &mut self.docs[docs.start as usize..docs.end as usize];
            self.live_docs -= docs.len();
            for doc in docs {
                doc.is_live = false;
            }
        }
    }

    /// How many files are alive, and how many sections were read, dead or alive.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.order.len(), self.docs.len())
    }

    /// Gives back what was reserved for growth.
    fn shrink(&mut self) {
        self.terms.shrink();
        self.lists.shrink_to_fit();
        self.docs.shrink_to_fit();
        self.files.shrink_to_fit();
    }
}

/// What one thread has read, numbered on its own.
struct Draft {
    terms: Terms,
    /// In the order of the sections.
    postings: Vec<(TermId, Posting)>,
    docs: Vec<Doc>,
    files: Vec<File>,
    stemmer: Stemmer,
    /// Words as written, and the term of each: looking one up is much faster than stemming it.
    words: Terms,
    stems: Vec<TermId>,
    /// The terms of the current section, each with its field.
    found: Vec<(TermId, u8)>,
    /// How much text was added.
    bytes: usize,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            terms: Terms::default(),
            postings: Vec::new(),
            docs: Vec::new(),
            files: Vec::new(),
            stemmer: Stemmer::create(Algorithm::English),
            words: Terms::default(),
            stems: Vec::new(),
            found: Vec::new(),
            bytes: 0,
        }
    }
}

impl Draft {
    /// Adds a file. Each section has only its own text: a word counts for its own section, not for the enclosing ones.
    fn add(&mut self, path: RelPath, Reading { source, text, is_settled }: &Reading) {
        let page = shortened(page_title(text).unwrap_or_default());
        let outline = source.format.outline(text);
        for section in outline.iter() {
            let title = if section.level == 0 { path.name() } else { &section.title };
            let above = std::iter::successors(section.parent, |place| outline[*place].parent);
            let above: Vec<_> = above.map(|place| outline[place].title.as_str()).collect();
            self.index([title, &above.join(" "), &page, &text[section.text()]]);
        }
        self.end_file(path, source.stamp().numbers(), *is_settled, &page);
        self.bytes += text.len();
    }

    /// Ends a file with the sections since the last one.
    fn end_file(&mut self, path: RelPath, mark: Mark, is_settled: bool, title: &str) {
        let start = self.files.last().map_or(0, |file| file.docs.end);
        let docs = start..number(self.docs.len());
        self.files.push(File { path, mark, is_settled, title: title.into(), docs, place: 0 });
    }

    fn index(&mut self, texts: [&str; FIELDS]) {
        let mut found = std::mem::take(&mut self.found);
        let mut lengths = [0; FIELDS];
        for (field, text) in (0_u8..).zip(texts) {
            let before = found.len();
            for_each_piece(text, |piece| {
                let term = match piece {
                    Piece::Word(word) => self.word(word),
                    Piece::Term(term) => self.terms.intern(term),
                };
                found.push((term, field));
            });
            lengths[usize::from(field)] = found.len() - before;
        }
        found.sort_unstable_by_key(|(term, field)| u64::from(*term) << 8 | u64::from(*field));
        let doc = number(self.docs.len());
        for same in found.chunk_by(|one, other| one.0 == other.0) {
            let mut counts = [0_u8; FIELDS];
            for (_, field) in same {
                let count = &mut counts[usize::from(*field)];
                *count = count.saturating_add(1);
            }
            self.postings.push((same[0].0, Posting { doc, counts }));
        }
        found.clear();
        self.found = found;
        let [own, above, page, body] = lengths;
        let titles = [own, above, page].map(|length| u16::try_from(length).unwrap_or(u16::MAX));
        let file = number(self.files.len());
        self.docs.push(Doc { file, body: number(body), titles, is_live: true });
    }

    fn word(&mut self, word: &str) -> TermId {
        let word_id = self.words.intern(word) as usize;
        if word_id == self.stems.len() {
            self.stems.push(self.terms.intern(&stem(&self.stemmer, word)));
        }
        self.stems[word_id]
    }
}
