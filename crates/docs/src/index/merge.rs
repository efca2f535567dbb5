//! Merges several segments into one and drops the dead files.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::iter::Peekable;
use std::sync::Arc;

use super::posting::{List, Posting, Postings};
use super::segment::{Ahead, Area, Broken, DocId, FileId, Live, Segment, Sink, Term, check, compare_paths};

/// Why a merge failed.
#[derive(Debug)]
pub(crate) enum Unmerged {
    /// The new segment cannot be written.
    Write(io::Error),
    /// A segment cannot be read.
    Read,
    /// The merge was cancelled.
    Cancelled,
}

impl From<io::Error> for Unmerged {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<Broken> for Unmerged {
    fn from(_: Broken) -> Self {
        Self::Read
    }
}

/// Writes one segment with all live files of `parts`. A file is alive in at most one of them.
pub(crate) fn merge(
    parts: &[(Arc<Segment>, Live)],
    out: &mut dyn Write,
    key: &str,
    is_gone: &dyn Fn() -> bool,
) -> Result<(), Unmerged> {
    let mut sink = Sink::new(out)?;
    let mut parts: Vec<_> = parts.iter().map(|(segment, live)| Part::new(segment, live)).collect();
    let mut next = 0;
    while let Some(first) = first(&parts) {
        let part = &mut parts[first];
        let (segment, file) = (part.segment, part.file);
        let docs = segment.docs_in(file);
        part.starts.push((docs.start, next));
        next += docs.end - docs.start;
        let lengths: Vec<_> = docs.map(|doc| segment.lengths(doc)).collect();
        sink.file(&segment.file(file), &segment.doc_bytes(file)?, lengths.into_iter())?;
        part.file += 1;
        part.skip_dead();
        if part.starts.len().is_multiple_of(1000) && is_gone() {
            return Err(Unmerged::Cancelled);
        }
    }
    for part in &mut parts {
        part.begin_terms()?;
    }
    let entry = |(place, part): (usize, &mut Part<'_>)| Some(Reverse((part.take_text()?, place)));
    let mut next: BinaryHeap<_> = parts.iter_mut().enumerate().filter_map(entry).collect();
    let (mut having, mut list) = (Vec::new(), List::default());
    let mut count = 0_usize;
    while let Some(Reverse((text, first))) = next.pop() {
        having.clear();
        having.push(first);
        while next.peek().is_some_and(|Reverse((other, _))| *other == text) {
            having.extend(next.pop().map(|Reverse((_, place))| place));
        }
        let has = |(place, _): &(usize, &mut Part<'_>)| having.contains(place);
        let lists = parts.iter_mut().enumerate().filter(has).map(|(_, part)| part.postings());
        list.clear();
        interleave(lists.collect::<Result<_, _>>()?, |posting| list.push(posting));
        if list.documents > 0 {
            sink.term(&text, &list)?;
        }
        for place in &having {
            parts[*place].next_term()?;
            next.extend(entry((*place, &mut parts[*place])));
        }
        count += 1;
        if count.is_multiple_of(1000) && is_gone() {
            return Err(Unmerged::Cancelled);
        }
    }
    Ok(sink.finish(key)?)
}

/// Calls `each` with the postings of all lists, sorted by document.
fn interleave(mut lists: Vec<Peekable<impl Iterator<Item = Posting>>>, mut each: impl FnMut(Posting)) {
    loop {
        // A list with the first document, which goes on up to the first document of the others.
        let (mut first, mut start, mut end) = (None, DocId::MAX, DocId::MAX);
        for (place, list) in lists.iter_mut().enumerate() {
            let Some(posting) = list.peek() else { continue };
            if first.is_none() || posting.doc < start {
                (first, start, end) = (Some(place), posting.doc, start);
            } else {
                end = end.min(posting.doc);
            }
        }
        let Some(first) = first else { return };
        while let Some(posting) = lists[first].next_if(|posting| posting.doc <= end) {
            each(posting);
        }
    }
}

/// The part whose next file sorts first.
fn first(parts: &[Part<'_>]) -> Option<usize> {
    let there = parts.iter().enumerate().filter_map(|(place, part)| Some((place, part.path()?)));
    there.min_by(|one, other| compare_paths(one.1, other.1)).map(|(place, _)| place)
}

/// A segment that is being merged.
struct Part<'a> {
    segment: &'a Segment,
    live: &'a Live,
    /// The next file.
    file: FileId,
    /// For each live file: its first document's old and new number.
    starts: Vec<(DocId, DocId)>,
    block: usize,
    terms: std::vec::IntoIter<Term>,
    ahead: Ahead,
}

impl<'a> Part<'a> {
    fn new(segment: &'a Segment, live: &'a Live) -> Self {
        let terms = Vec::new().into_iter();
        let mut part =
            Self { segment, live, file: 0, starts: Vec::new(), block: 0, terms, ahead: Ahead::default() };
        part.skip_dead();
        part
    }

    fn skip_dead(&mut self) {
        while self.file < self.segment.file_count() && !self.live.has_file(self.file) {
            self.file += 1;
        }
    }

    fn path(&self) -> Option<&str> {
        (self.file < self.segment.file_count()).then(|| self.segment.file(self.file).path)
    }

    fn begin_terms(&mut self) -> Result<(), Broken> {
        self.terms = self.segment.block(0)?.into_iter();
        self.block = 1;
        Ok(())
    }

    fn term(&self) -> Option<&Term> {
        self.terms.as_slice().first()
    }

    /// The text of the next term, which is then without it.
    fn take_text(&mut self) -> Option<String> {
        self.terms.as_mut_slice().first_mut().map(|term| std::mem::take(&mut term.text))
    }

    /// The live postings of the next term with their new document numbers.
    fn postings(&mut self) -> Result<Peekable<impl Iterator<Item = Posting>>, Broken> {
        let Area { range, crc } = self.term().map(|term| term.postings.clone()).unwrap_or_default();
        let bytes = self.ahead.read(&self.segment.blob, range)?;
        check(bytes, crc)?;
        let (live, starts) = (self.live, &self.starts);
        let mut file = 0;
        let renumbered = move |Posting { doc, counts }| {
            if starts.get(file + 1).is_some_and(|(start, _)| *start <= doc) {
                file += starts[file + 1..].partition_point(|(start, _)| *start <= doc);
            }
            let (start, new) = starts.get(file)?;
            Some(Posting { doc: new + doc.checked_sub(*start)?, counts })
        };
        let alive = Postings::of(bytes).filter(move |posting| live.has_doc(posting.doc));
        Ok(alive.map_while(renumbered).peekable())
    }

    fn next_term(&mut self) -> Result<(), Broken> {
        self.terms.next();
        if self.term().is_none() {
            self.terms = self.segment.block(self.block)?.into_iter();
            self.block += 1;
        }
        Ok(())
    }
}
