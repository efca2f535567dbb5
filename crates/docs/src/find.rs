//! Searching all manuals.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::answer::{FileType, Found, Hit, RefItem};
use crate::index::{DocId, Index, Match, Words, query_terms};
use crate::manual::{Manuals, file_name};
use crate::path::{RelPath, fold};
use crate::refusal::Refusal;
use crate::request::ManualFind;
use crate::root::{Entry, Stamp};
use crate::section::{Outline, split_lines};

/// How long a snippet is at most; and never more than half of the section, which is not to be read here.
const SNIPPET_CHARS: usize = 100;
/// The part of a snippet that stands before what was found.
const SNIPPET_LEAD: usize = 4;
/// How far into a section a snippet is looked for.
const SNIPPET_WITHIN_BYTES: usize = 64 * 1024;

/// The manuals' index: made when it is first asked for, and brought up to date at every search.
#[derive(Debug, Default)]
pub(crate) struct Search(Mutex<Library>);

#[derive(Debug, Default)]
struct Library {
    index: Index,
    /// By number in the index.
    places: Vec<Place>,
    /// Sorted by path.
    files: Vec<(RelPath, Shelved)>,
}

/// A file as it was indexed.
#[derive(Debug)]
struct Shelved {
    stamp: Stamp,
    /// Whether a change since then would show in the stamp.
    is_settled: bool,
    docs: Range<DocId>,
}

/// Where a document of the index comes from.
#[derive(Debug, Clone)]
struct Place {
    path: Arc<RelPath>,
    /// `None` for a `.json` file.
    line: Option<usize>,
    title: String,
    /// Where its text is, without its title.
    body: Range<usize>,
}

impl Search {
    pub(crate) fn find(&self, manuals: &Manuals, request: &ManualFind) -> Result<Found, Refusal> {
        let terms = query_terms(&request.query);
        if terms.is_empty() {
            return Err(Refusal::parameter("`query` has no word to look for"));
        }
        let manual = request.manual_id.as_deref();
        if let Some(id) = manual {
            // So that a manual that is not there is told from one in which nothing is found.
            manuals.check_manual(id)?;
        }
        let limit = manuals.hard.found(request.limit);
        let mut library = self.0.lock().unwrap_or_else(|half_done| {
            self.0.clear_poison();
            let mut library = half_done.into_inner();
            *library = Library::default();
            library
        });
        library.refresh(manuals)?;
        let mut matches = library
            .index
            .search(&terms, |doc| manual.is_none_or(|id| library.places[doc as usize].path.first() == id));
        let total = matches.len();
        let best = |one: &Match, other: &Match| library.compare(one, other);
        if matches.len() > limit {
            matches.select_nth_unstable_by(limit, best);
            matches.truncate(limit);
        }
        matches.sort_by(best);
        let found: Vec<_> =
            matches.into_iter().map(|one| (one.score, library.places[one.doc as usize].clone())).collect();
        drop(library);
        let items = found.into_iter().map(|(score, place)| place.hit(manuals, score, &terms)).collect();
        Ok(Found { items, total })
    }
}

impl Library {
    /// Reads what is new or changed, and forgets what is gone.
    fn refresh(&mut self, manuals: &Manuals) -> Result<(), Refusal> {
        if self.index.is_mostly_dead() {
            *self = Self::default();
        }
        let files = manuals.files(None)?;
        let mut before = std::mem::take(&mut self.files).into_iter().peekable();
        for (entry, _) in files {
            while let Some((_, gone)) = before.next_if(|(path, _)| *path < entry.path) {
                self.forget(gone);
            }
            let known = before.next_if(|(path, _)| *path == entry.path).map(|(_, shelved)| shelved);
            let shelved = match known {
                Some(shelved) if shelved.stamp == entry.stamp && shelved.is_settled => shelved,
                outdated => {
                    if let Some(outdated) = outdated {
                        self.forget(outdated);
                    }
                    self.shelve(manuals, &entry)
                }
            };
            self.files.push((entry.path, shelved));
        }
        before.for_each(|(_, gone)| self.forget(gone));
        Ok(())
    }

    fn forget(&mut self, shelved: Shelved) {
        shelved.docs.for_each(|doc| self.index.remove(doc));
    }

    /// What cannot be read has nothing to be found, until it changes.
    fn shelve(&mut self, manuals: &Manuals, entry: &Entry) -> Shelved {
        self.read(manuals, &entry.path).unwrap_or_else(|refusal| {
            tracing::debug!(path = entry.path.as_str(), reason = refusal.message, "file left out");
            let next = self.next();
            Shelved { stamp: entry.stamp, is_settled: entry.stamp.is_settled(), docs: next..next }
        })
    }

    fn read(&mut self, manuals: &Manuals, path: &RelPath) -> Result<Shelved, Refusal> {
        let source = manuals.reopen(path)?;
        let is_settled = source.stamp().is_settled();
        let text = source.text()?;
        let path = Arc::new(path.clone());
        let start = self.next();
        match source.file_type {
            FileType::Json => {
                let title = file_name(path.as_str()).to_owned();
                let words = Words { title: &title, context: "", body: &text };
                self.index.add(words);
                self.places.push(Place { path, line: None, title, body: 0..text.len() });
            }
            FileType::Md => self.shelve_sections(&path, &text),
        }
        Ok(Shelved { stamp: source.stamp(), is_settled, docs: start..self.next() })
    }

    /// Each section by its own text: a word counts for the section it stands in, not for all those around.
    fn shelve_sections(&mut self, path: &Arc<RelPath>, text: &str) {
        let outline = Outline::of(text);
        for section in outline.iter() {
            let title = if section.level == 0 { file_name(path.as_str()) } else { &section.title };
            let parents = std::iter::successors(section.parent, |place| outline[*place].parent);
            let context: Vec<_> = parents.map(|place| outline[place].title.as_str()).collect();
            let own = section.own();
            let heading = if section.level == 0 { 0 } else { first_line_bytes(&text[own.clone()]) };
            let body = own.start + heading..own.end;
            self.index.add(Words { title, context: &context.join(" "), body: &text[body.clone()] });
            let place =
                Place { path: Arc::clone(path), line: Some(section.line), title: title.to_owned(), body };
            self.places.push(place);
        }
    }

    fn next(&self) -> DocId {
        DocId::try_from(self.places.len()).expect("fewer than four billion sections")
    }

    /// Best first; what is equally good, in the order of the manuals.
    fn compare(&self, one: &Match, other: &Match) -> Ordering {
        let place = |one: &Match| {
            let place = &self.places[one.doc as usize];
            (&place.path, place.line)
        };
        other.score.total_cmp(&one.score).then_with(|| place(one).cmp(&place(other)))
    }
}

fn first_line_bytes(text: &str) -> usize {
    split_lines(text).next().map_or(0, str::len)
}

impl Place {
    fn hit(self, manuals: &Manuals, score: f64, terms: &[String]) -> Hit {
        let end = self.body.end.min(self.body.start + SNIPPET_WITHIN_BYTES);
        let text = manuals.reopen(&self.path).map(|source| source.text_at(self.body.start..end));
        Hit {
            reference: RefItem::new(self.path.first(), self.path.below_first(), self.line),
            title: self.title,
            score: (score * 1e4).round() / 1e4,
            snippet: snippet(&text.unwrap_or_default(), terms),
        }
    }
}

/// The line with most of the terms, cut to what is around the first of them.
fn snippet(text: &str, terms: &[String]) -> String {
    let mut best: Option<(usize, &str)> = None;
    for line in split_lines(text).map(str::trim).filter(|line| !line.is_empty()) {
        let folded = fold(line);
        let found = terms.iter().filter(|term| folded.contains(term.as_str())).count();
        if best.is_none_or(|(most, _)| found > most) {
            best = Some((found, line));
        }
    }
    let most = SNIPPET_CHARS.min(text.trim().chars().count() / 2);
    best.map(|(_, line)| window(line, terms, most)).unwrap_or_default()
}

/// What is around the first of the terms, `most` characters at most.
fn window(line: &str, terms: &[String], most: usize) -> String {
    let chars: Vec<char> = line.chars().collect();
    if chars.len() <= most {
        return line.to_owned();
    }
    // Folded one by one, so that a place in the one is a place in the other.
    let mut folded = String::new();
    let mut places = Vec::new();
    for (place, char) in chars.iter().enumerate() {
        let one = fold(char.encode_utf8(&mut [0; 4]));
        places.extend(std::iter::repeat_n(place, one.len()));
        folded.push_str(&one);
    }
    let first = terms.iter().filter_map(|term| folded.find(term.as_str())).min().map_or(0, |at| places[at]);
    let start = first.saturating_sub(most / SNIPPET_LEAD).min(chars.len() - most);
    let end = start + most;
    let mark = |cut: bool| if cut { "…" } else { "" };
    format!("{}{}{}", mark(start > 0), String::from_iter(&chars[start..end]), mark(end < chars.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_is_the_line_that_shows_why() {
        let terms = query_terms("restart server");
        assert_eq!(snippet("First of all:\n\n  Restart the Server.\nrestart", &terms), "Restart the Server.");
        assert_eq!(snippet("nothing here\nand nothing there", &terms), "nothing here");
        // Never the whole of a short section.
        assert_eq!(snippet("Restart the server.", &terms), "Restart t…");
        assert_eq!(snippet("", &terms), "");
        let long = format!("{}再起動{}", "あ".repeat(300), "い".repeat(300));
        let got = snippet(&long, &query_terms("再起動"));
        assert!(got.starts_with("…あ") && got.contains("再起動い") && got.ends_with("い…"), "{got}");
        assert_eq!(got.chars().count(), SNIPPET_CHARS + 2);
    }
}
