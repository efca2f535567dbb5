//! Searching all manuals.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::answer::{FileType, Found, Hit, RefItem};
use crate::arguments::ManualFind;
use crate::index::{DocId, Index, Match, Words, query_terms};
use crate::manual::{Manuals, Reading, file_name};
use crate::path::RelPath;
use crate::refusal::Refusal;
use crate::root::{Entry, Stamp};
use crate::section::{Outline, shortened};
use crate::snippet::snippet;

/// Every word of a query costs time; the schema says so too.
const MAX_QUERY_CHARS: usize = 1000;

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

/// A file that documents of the index come from, as it was then.
#[derive(Debug)]
struct Volume {
    path: RelPath,
    stamp: Stamp,
}

/// Where a document of the index comes from.
#[derive(Debug, Clone)]
struct Place {
    file: Arc<Volume>,
    /// `None` for a `.json` file.
    line: Option<usize>,
    title: String,
    /// Where its text is, without its title.
    body: Range<usize>,
}

impl Search {
    /// Gives up between two files when `is_gone` says that the call was cancelled.
    pub(crate) fn find(
        &self,
        manuals: &Manuals,
        request: &ManualFind,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Found, Refusal> {
        let length = request.query.chars().count();
        if length > MAX_QUERY_CHARS {
            return Err(Refusal::parameter(format!(
                "`query` has {length} characters, the limit is {MAX_QUERY_CHARS}; give only the words that matter"
            ))
            .with(json!({ "size_chars": length, "limit_chars": MAX_QUERY_CHARS })));
        }
        let terms = query_terms(&request.query);
        if terms.is_empty() {
            return Err(Refusal::parameter("`query` has no word to look for; give at least one"));
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
        library.refresh(manuals, is_gone)?;
        let mut matches = library.index.search(&terms, |doc| {
            manual.is_none_or(|id| library.places[doc as usize].file.path.first() == id)
        });
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
    /// Reads what is new or changed, and forgets what is gone. What was read stays when it is given up.
    fn refresh(&mut self, manuals: &Manuals, is_gone: &dyn Fn() -> bool) -> Result<(), Refusal> {
        if self.index.is_mostly_dead() {
            *self = Self::default();
        }
        let files = manuals.files(None)?;
        let mut before = std::mem::take(&mut self.files).into_iter().peekable();
        for (entry, _) in files {
            if is_gone() {
                self.files.extend(before);
                return Err(Refusal::conflict("the call was cancelled; search again"));
            }
            while let Some((path, gone)) = before.next_if(|(path, _)| *path < entry.path) {
                manuals.forget(&path);
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
        for (path, gone) in before {
            manuals.forget(&path);
            self.forget(gone);
        }
        Ok(())
    }

    fn forget(&mut self, shelved: Shelved) {
        shelved.docs.for_each(|doc| self.index.remove(doc));
    }

    /// What is no text or too large has nothing to be found, until it changes. What fails otherwise may work
    /// the next time.
    fn shelve(&mut self, manuals: &Manuals, entry: &Entry) -> Shelved {
        let is_settled = entry.stamp.is_settled();
        self.read(manuals, &entry.path).unwrap_or_else(|refusal| {
            tracing::debug!(path = entry.path.as_str(), reason = refusal.message, "file left out");
            let next = self.next();
            Shelved { stamp: entry.stamp, is_settled: is_settled && refusal.is_lasting, docs: next..next }
        })
    }

    fn read(&mut self, manuals: &Manuals, path: &RelPath) -> Result<Shelved, Refusal> {
        let Reading { source, text, is_settled } = manuals.text(manuals.reopen(path)?)?;
        let stamp = source.stamp();
        let file = Arc::new(Volume { path: path.clone(), stamp });
        let start = self.next();
        match source.file_type {
            FileType::Json => {
                let title = file_name(path.as_str()).to_owned();
                let words = Words { title: &title, context: "", body: &text };
                self.index.add(words);
                self.places.push(Place { file, line: None, title, body: 0..text.len() });
            }
            FileType::Md => self.shelve_sections(&file, &text),
        }
        Ok(Shelved { stamp, is_settled, docs: start..self.next() })
    }

    /// Each section by its own text: a word counts for the section it stands in, not for all those around.
    fn shelve_sections(&mut self, file: &Arc<Volume>, text: &str) {
        let outline = Outline::of(text);
        for section in outline.iter() {
            let title = if section.level == 0 { file_name(file.path.as_str()) } else { &section.title };
            let parents = std::iter::successors(section.parent, |place| outline[*place].parent);
            let context: Vec<_> = parents.map(|place| outline[place].title.as_str()).collect();
            let body = section.text();
            self.index.add(Words { title, context: &context.join(" "), body: &text[body.clone()] });
            let (file, line, title) = (Arc::clone(file), Some(section.line), shortened(title));
            self.places.push(Place { file, line, title, body });
        }
    }

    fn next(&self) -> DocId {
        DocId::try_from(self.places.len()).expect("fewer than four billion sections")
    }

    /// Best first; what is equally good, in the order of the manuals.
    fn compare(&self, one: &Match, other: &Match) -> Ordering {
        let place = |one: &Match| {
            let place = &self.places[one.doc as usize];
            (&place.file.path, place.line)
        };
        other.score.total_cmp(&one.score).then_with(|| place(one).cmp(&place(other)))
    }
}

impl Place {
    fn hit(self, manuals: &Manuals, score: f64, terms: &[String]) -> Hit {
        let end = self.body.end.min(self.body.start + SNIPPET_WITHIN_BYTES);
        let Volume { path, stamp } = &*self.file;
        // Of a file that has changed since, these are not the section's bytes any more.
        let text = manuals.reopen(path).ok().and_then(|source| source.text_at(self.body.start..end, stamp));
        Hit {
            reference: RefItem::new(path.first(), path.below_first(), self.line),
            title: self.title,
            score: (score * 1e4).round() / 1e4,
            snippet: snippet(&text.unwrap_or_default(), terms),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::io::Errno;
    use tempfile::TempDir;

    use super::*;
    use crate::manual::tests::{manual, settle, without_files};

    /// One manual with one file.
    struct Shelf {
        dir: TempDir,
        manuals: Manuals,
        search: Search,
    }

    impl Shelf {
        fn with(bytes: &[u8]) -> Self {
            let (dir, manuals) = manual(bytes);
            Self { dir, manuals, search: Search::default() }
        }

        fn write(&self, bytes: &[u8]) {
            fs::write(self.dir.path().join("m/a.md"), bytes).unwrap();
        }

        fn find(&self, query: &str) -> Found {
            let request = serde_json::from_value(json!({ "query": query })).unwrap();
            self.search.find(&self.manuals, &request, &|| false).unwrap()
        }

        fn shelved(&self) -> bool {
            self.search.0.lock().unwrap().files[0].1.is_settled
        }
    }

    #[test]
    fn a_file_that_could_not_be_opened_once_is_tried_again() {
        for errno in [Errno::MFILE, Errno::IO, Errno::ACCESS, Errno::NOENT] {
            let shelf = Shelf::with(b"# key\n");
            settle(&shelf.manuals);
            assert_eq!(without_files(errno, || shelf.find("key").total), 0);
            assert_eq!(shelf.find("key").total, 1, "{errno:?}");
        }
    }

    #[test]
    fn a_search_that_nobody_waits_for_ends_between_two_files_and_loses_nothing() {
        let shelf = Shelf::with(b"# key\n");
        for name in ["b", "c", "d"] {
            fs::write(shelf.dir.path().join(format!("m/{name}.md")), "# key\n").unwrap();
        }
        settle(&shelf.manuals);
        for (patience, want) in [(2, 2), (0, 2), (3, 3), (4, 4)] {
            let request = serde_json::from_value(json!({ "query": "key" })).unwrap();
            let left = std::cell::Cell::<usize>::new(patience);
            let is_gone = || left.replace(left.get().saturating_sub(1)) == 0;
            let outcome = shelf.search.find(&shelf.manuals, &request, &is_gone);
            assert_eq!(outcome.is_ok(), patience == 4, "{outcome:?}");
            assert_eq!(shelf.search.0.lock().unwrap().files.len(), want);
        }
        assert_eq!(shelf.find("key").total, 4);
    }

    #[test]
    fn what_is_no_text_is_not_read_again_until_it_changes() {
        let shelf = Shelf::with(b"# key\xff\n");
        settle(&shelf.manuals);
        assert_eq!((shelf.find("key").total, shelf.shelved()), (0, true));
        shelf.write(b"# key\n");
        assert_eq!(shelf.find("key").total, 1);
    }

    #[test]
    fn a_snippet_is_never_of_a_file_that_has_changed_since() {
        let shelf = Shelf::with(b"# key\n\nTurn it to the left.\n");
        assert_eq!(shelf.find("key").items[0].snippet, "Turn it to…");
        let place = shelf.search.0.lock().unwrap().places[0].clone();
        shelf.write(b"# a\n\n# b\n\nsomething else that is much longer\n");
        assert_eq!(place.hit(&shelf.manuals, 1.0, &query_terms("key")).snippet, "");
    }

    #[test]
    fn what_is_outdated_does_not_pile_up() {
        let shelf = Shelf::with(b"");
        let mut most = 0;
        for round in 0..1500 {
            shelf.write(format!("# round{round}\n").as_bytes());
            assert_eq!(shelf.find(&format!("round{round}")).total, 1);
            most = most.max(shelf.search.0.lock().unwrap().places.len());
        }
        assert!((500..1100).contains(&most), "{most} sections are kept for one");
    }
}
