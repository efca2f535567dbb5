//! Searching all manuals.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolbridge_core::RawJson;

use crate::answer::{FileType, Found, Hit, HitRef, RefItem};
use crate::arguments::ManualFind;
use crate::excerpt::suffix;
use crate::fold::fold;
use crate::index::{DocId, Index, Match, Words, query_terms};
use crate::manual::{Manuals, Reading, file_name};
use crate::path::RelPath;
use crate::print::Print;
use crate::refusal::Refusal;
use crate::root::{Entry, Stamp};
use crate::section::{Outline, page_title, shortened};
use crate::snippet;

/// Every word of a query costs time; the schema says so too.
const MAX_QUERY_CHARS: usize = 1000;

/// How many bytes each hit has in an answer, all together: a model pays for them.
const HIT_BYTES: usize = 115;
/// What a snippet takes besides its text, and how long one is at most and at least.
const SNIPPET_FRAME_BYTES: usize = 13;
const SHORT_SNIPPET_CHARS: usize = 40;
const LEAST_SNIPPET_CHARS: usize = 16;

/// How long the titles above a section are shown at most.
const WITHIN_CHARS: usize = 30;

/// How many titles are suggested, and how much of the query they must have in pairs of characters.
const SUGGESTIONS: usize = 5;
const SUGGESTION_ALIKE: f64 = 0.3;

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
    /// What its front matter calls it; empty if it does not.
    title: String,
}

/// Where a document of the index comes from.
#[derive(Debug, Clone)]
struct Place {
    file: Arc<Volume>,
    /// Its line and what it is known by; `None` for a `.json` file.
    section: Option<(usize, Print)>,
    title: String,
    /// The section that it lies in.
    parent: Option<DocId>,
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
        let sought = library.index.sought(&terms);
        let admits =
            |doc: DocId| manual.is_none_or(|id| library.places[doc as usize].file.path.first() == id);
        let mut matches = library.index.search(&sought, admits);
        if matches.is_empty() {
            let suggestions = library.suggestions(&request.query, admits);
            return Ok(Found {
                items: Vec::new(),
                total: 0,
                suggestions: (!suggestions.is_empty()).then_some(suggestions),
            });
        }
        let most = matches.iter().map(|one| one.found).max().unwrap_or_default();
        let total = matches.iter().filter(|one| one.found == most).count();
        let best = |one: &Match, other: &Match| library.compare(one, other);
        if matches.len() > limit {
            matches.select_nth_unstable_by(limit, best);
            matches.truncate(limit);
        }
        matches.sort_by(best);
        let found =
            |one: Match| (one.score, library.places[one.doc as usize].clone(), library.within(one.doc));
        let found: Vec<_> = matches.into_iter().map(found).collect();
        drop(library);
        let terms: Vec<_> = sought.into_iter().flat_map(|one| one.0).map(|(term, _)| term).collect();
        let full = request.full == Some(true);
        // What is left of the room when each has said where it is; the best ones take of it first.
        let mut room = HIT_BYTES * found.len();
        let mut items = Vec::with_capacity(found.len());
        let told =
            |(score, place, within): (f64, Place, String)| (place.hit(manuals, score, within, full), place);
        let told: Vec<_> = found.into_iter().map(told).collect();
        for (hit, _) in &told {
            room = room.saturating_sub(hit.size());
        }
        for (mut hit, place) in told {
            let most = if full {
                snippet::MAX_CHARS
            } else {
                room.saturating_sub(SNIPPET_FRAME_BYTES).min(SHORT_SNIPPET_CHARS)
            };
            if most >= LEAST_SNIPPET_CHARS {
                let text = place.snippet(manuals, &terms, most);
                room = room.saturating_sub(text.len() + SNIPPET_FRAME_BYTES);
                hit.snippet = Some(text).filter(|text| full || !text.is_empty());
            }
            items.push(hit);
        }
        Ok(Found { items, total, suggestions: None })
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
        let title = match source.file_type {
            FileType::Md => page_title(&text).unwrap_or_default(),
            FileType::Json => "",
        };
        let file = Arc::new(Volume { path: path.clone(), stamp, title: shortened(title) });
        let start = self.next();
        match source.file_type {
            FileType::Json => {
                let title = file_name(path.as_str()).to_owned();
                self.index.add(Words { title: &title, body: &text, ..Words::default() });
                let place = Place { file, section: None, title, parent: None, body: 0..text.len() };
                self.places.push(place);
            }
            FileType::Md => self.shelve_sections(&file, &text, &source.format.outline(&text)),
        }
        Ok(Shelved { stamp, is_settled, docs: start..self.next() })
    }

    /// Each section by its own text: a word counts for the section it stands in, not for all those around.
    fn shelve_sections(&mut self, file: &Arc<Volume>, text: &str, outline: &Outline) {
        let start = self.next();
        let page = file.title.as_str();
        for section in outline.iter() {
            let title = if section.level == 0 { file_name(file.path.as_str()) } else { &section.title };
            let parents = std::iter::successors(section.parent, |place| outline[*place].parent);
            let context: Vec<_> = parents.map(|place| outline[place].title.as_str()).collect();
            let body = section.text();
            let context = context.join(" ");
            self.index.add(Words { title, context: &context, page, body: &text[body.clone()] });
            let (file, title) = (Arc::clone(file), shortened(title));
            let parent = section.parent.and_then(|place| Some(start + DocId::try_from(place).ok()?));
            let section = Some((section.line, section.print));
            self.places.push(Place { file, section, title, parent, body });
        }
    }

    fn next(&self) -> DocId {
        DocId::try_from(self.places.len()).expect("fewer than four billion sections")
    }

    /// The titles above a section, the outermost first.
    fn within(&self, doc: DocId) -> String {
        let place = &self.places[doc as usize];
        let above = std::iter::successors(place.parent, |doc| self.places[*doc as usize].parent);
        let mut titles: Vec<_> = above.map(|doc| self.places[doc as usize].title.as_str()).collect();
        let page = place.file.title.as_str();
        // A page is often called what its first heading says.
        if !page.is_empty() && page != titles.last().copied().unwrap_or(&place.title) {
            titles.push(page);
        }
        titles.reverse();
        let within = titles.join(" › ");
        // The innermost title says most.
        match within.char_indices().rev().nth(WITHIN_CHARS) {
            Some((start, char)) => format!("…{}", &within[start + char.len_utf8()..]),
            None => within,
        }
    }

    /// Titles that look like a query of which no word was found.
    fn suggestions(&self, query: &str, admits: impl Fn(DocId) -> bool) -> Vec<String> {
        let query = fold(query);
        let mut titles = HashMap::new();
        for shelved in self.files.iter().map(|(_, shelved)| shelved) {
            for doc in shelved.docs.clone().filter(|doc| admits(*doc)) {
                let title = self.places[doc as usize].title.as_str();
                titles.entry(title).or_insert_with(|| strsim::sorensen_dice(&query, &fold(title)));
            }
        }
        let mut titles: Vec<_> = titles.into_iter().filter(|(_, alike)| *alike >= SUGGESTION_ALIKE).collect();
        titles.sort_by(|(one, a), (other, b)| b.total_cmp(a).then_with(|| one.cmp(other)));
        titles.into_iter().take(SUGGESTIONS).map(|(title, _)| title.to_owned()).collect()
    }

    /// Best first; what is equally good, in the order of the manuals.
    fn compare(&self, one: &Match, other: &Match) -> Ordering {
        let place = |one: &Match| {
            let place = &self.places[one.doc as usize];
            (&place.file.path, place.section.map(|(line, _)| line))
        };
        other.score.total_cmp(&one.score).then_with(|| place(one).cmp(&place(other)))
    }
}

impl Place {
    /// What is said of it, but for the snippet.
    fn hit(&self, manuals: &Manuals, score: f64, within: String, full: bool) -> Hit {
        let path = &self.file.path;
        if let Some((line, print)) = self.section {
            manuals.give(path, line, print);
        }
        let reference = if full {
            HitRef::Full(Box::new(RefItem::new(path.first(), path.below_first(), self.section)))
        } else {
            let place = self.section.map(|(line, print)| suffix(line, print)).unwrap_or_default();
            HitRef::Short(format!("{}{place}", path.as_str()))
        };
        Hit {
            reference,
            title: self.title.clone(),
            within: (!within.is_empty()).then_some(within),
            score: full.then_some((score * 1e4).round() / 1e4),
            snippet: None,
        }
    }

    fn snippet(&self, manuals: &Manuals, terms: &[String], most: usize) -> String {
        let end = self.body.end.min(self.body.start + SNIPPET_WITHIN_BYTES);
        let Volume { path, stamp, .. } = &*self.file;
        // Of a file that has changed since, these are not the section's bytes any more.
        let text = manuals.reopen(path).ok().and_then(|source| source.text_at(self.body.start..end, stamp));
        snippet::snippet(&text.unwrap_or_default(), terms, most)
    }
}

impl Hit {
    /// How many bytes of an answer it takes.
    fn size(&self) -> usize {
        RawJson::of(self).map_or(0, |text| text.as_bytes().len() + 1)
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
        assert_eq!(shelf.find("key").items[0].snippet.as_deref(), Some("Turn it to…"));
        let place = shelf.search.0.lock().unwrap().places[0].clone();
        shelf.write(b"# a\n\n# b\n\nsomething else that is much longer\n");
        assert_eq!(place.snippet(&shelf.manuals, &query_terms("key"), 100), "");
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
