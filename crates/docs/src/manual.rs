//! The manuals: listing, outlining and reading them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use crate::answer::{
    Applied, FileItem, FileType, Files, Items, ManualItem, ManualText, Node, NodeKind, Page, RefItem,
    TocFile, TocItem,
};
use crate::arguments::{Count, Limits, ManualLs, ManualRead, ManualToc, Ref, Scope, Spot};
use crate::excerpt::{Excerpt, Take, is_mid_line, pick, shown_title, suffix, valid_prefix};
use crate::format::Format;
use crate::limit::{HardLimits, MAX_SOURCE_BYTES, MaxChars, page};
use crate::path::RelPath;
use crate::refusal::{Code, Refusal};
use crate::root::{Entry, Root, Stamp};
use crate::section::{Outline, shortened};
use crate::snapshot;

/// All manuals, `<root>/<manual_id>/…`. They are read-only.
#[derive(Debug)]
pub(crate) struct Manuals {
    root: Root,
    pub(crate) hard: HardLimits,
    allow_file_scope: bool,
    /// Whether these are the notes of a vault, which are searched like manuals.
    is_vault: bool,
    /// Outlines of files read before, so that one section of a large file can be read alone.
    outlines: Mutex<HashMap<RelPath, (Stamp, Arc<Outline>)>>,
}

/// Files with their formats.
type Readable = Vec<(Entry, Format)>;

/// A file of a manual that may be read.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    stamp: Stamp,
    /// Relative to the folder of all manuals.
    pub(crate) path: RelPath,
    pub(crate) format: Format,
    pub(crate) file_type: FileType,
}

/// A source's whole text, read consistently.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) source: Source,
    pub(crate) text: String,
    /// Whether a later change would be visible in the source's stamp.
    pub(crate) is_settled: bool,
}

impl Manuals {
    pub(crate) fn new(root: Root, hard: HardLimits, allow_file_scope: bool) -> Self {
        Self { root, hard, allow_file_scope, is_vault: false, outlines: Mutex::default() }
    }

    /// The notes of a vault, for searching.
    pub(crate) fn of_vault(root: Root, hard: HardLimits) -> Self {
        Self { is_vault: true, ..Self::new(root, hard, false) }
    }

    pub(crate) fn list(&self) -> Result<Items<ManualItem>, Refusal> {
        let entries = self.root.list(None).map_err(|error| Refusal::system("manuals", &error))?;
        let folders = entries.into_iter().filter(|entry| entry.is_dir);
        Ok(Items { items: folders.map(|entry| ManualItem { manual_id: entry.path.into() }).collect() })
    }

    pub(crate) fn ls(&self, request: &ManualLs) -> Result<Files, Refusal> {
        let manual =
            request.manual_id.as_deref().map(|id| RelPath::parse_name("manual_id", id)).transpose()?;
        let (files, left_out) = self.sorted_out(manual.as_ref())?;
        // `after` includes the manual's id, because a page may list all manuals.
        let after = request.after.as_deref().map(RelPath::parse).transpose()?;
        let mut left =
            files.into_iter().skip_while(|(entry, _)| after.as_ref().is_some_and(|it| entry.path <= *it));
        let item = |(entry, file_type): (Entry, Format)| FileItem {
            manual_id: entry.path.first().to_owned(),
            path: entry.path.below_first().to_owned(),
            file_type,
        };
        let items: Vec<_> = left.by_ref().take(page(request.limit)).map(item).collect();
        let last = items.last().map(|last| format!("{}/{}", last.manual_id, last.path));
        let next = last.filter(|_| left.next().is_some());
        Ok(Files { items, next, left_out: (!left_out.is_empty()).then_some(left_out) })
    }

    /// Reads files one by one until the page is full.
    pub(crate) fn toc(&self, request: &ManualToc) -> Result<Page<TocItem>, Refusal> {
        let manual = RelPath::parse_name("manual_id", &request.manual_id)?;
        let most = page(request.limit);
        let max_level = request.max_level.map_or(usize::MAX, Count::get);
        let full = request.full == Some(true);
        let (after, after_line) = match request.after.as_deref().map(Spot::split) {
            Some((path, spot)) => {
                (Some(manual.join(&RelPath::parse(path)?)), spot.line.unwrap_or(usize::MAX))
            }
            None => (None, 0),
        };
        let mut toc = Page { items: Vec::new(), next: None };
        let mut count = 0;
        let mut last = String::new();
        for (entry, format) in self.files_at(&manual, request.path.as_deref())? {
            if after.as_ref().is_some_and(|after| entry.path < *after) {
                continue;
            }
            let begun = if after.as_ref() == Some(&entry.path) { after_line } else { 0 };
            let path = entry.path.below_first();
            let outline = match format.file_type() {
                FileType::Json => None,
                FileType::Md => match self.reopen(&entry.path).and_then(|source| self.outline(source)) {
                    Ok(outline) => Some(outline),
                    // One file that was removed or is not text must not hide the others.
                    Err(refusal) => {
                        tracing::debug!(path, reason = refusal.message, "file left out");
                        continue;
                    }
                },
            };
            let Some(outline) = outline else {
                if begun > 0 {
                    continue;
                }
                if count == most {
                    toc.next = Some(last);
                    return Ok(toc);
                }
                (count, last) = (count + 1, path.to_owned());
                toc.items.push(if full {
                    TocItem::Node(Box::new(json_node(&request.manual_id, path)))
                } else {
                    TocItem::File(TocFile { file: entry.path.as_str().to_owned(), sections: None })
                });
                continue;
            };
            // Text before the first heading (level 0) is listed only without a level limit, or if there is
            // nothing else.
            let is_shown = |level: u8| {
                usize::from(level) <= max_level
                    && (level > 0 || max_level == usize::MAX || outline.len() == 1)
            };
            let mut shown = (0..outline.len())
                .filter(|place| outline[*place].line > begun && is_shown(outline[*place].level))
                .peekable();
            if shown.peek().is_none() {
                continue;
            }
            let mut sections = Vec::new();
            while let Some(place) = shown.next_if(|_| count < most) {
                let section = &outline[place];
                (count, last) = (count + 1, format!("{path}#L{}", section.line));
                if full {
                    toc.items.push(TocItem::Node(Box::new(heading_node(
                        &request.manual_id,
                        path,
                        &outline,
                        place,
                    ))));
                } else {
                    let (level, title) = (section.level, shown_title(path, section));
                    sections.push(format!("{} {level} {title}", suffix(section.line, section.print)));
                }
            }
            if !sections.is_empty() {
                toc.items.push(TocItem::File(TocFile {
                    file: entry.path.as_str().to_owned(),
                    sections: Some(sections),
                }));
            }
            if shown.peek().is_some() {
                toc.next = Some(last);
                return Ok(toc);
            }
        }
        Ok(toc)
    }

    pub(crate) fn read(&self, request: &ManualRead) -> Result<ManualText, Refusal> {
        let source = self.open_ref(&request.reference)?;
        let max_chars = self.hard.chars(request.limits, source.file_type);
        let max_sections = self.hard.sections(request.limits);
        let (scope, take) = match (source.file_type, request.scope.or(request.reference.spot.scope)) {
            (FileType::Json, None | Some(Scope::Snippet | Scope::File)) => {
                (Scope::File, Take::File(max_sections))
            }
            (FileType::Json, Some(Scope::Section | Scope::Sections)) => {
                return Err(Refusal::new(
                    Code::InvalidScope,
                    "a `.json` file has no sections; leave `scope` out, or set it to `file`",
                ));
            }
            (FileType::Md, None | Some(Scope::Snippet)) => (Scope::Snippet, Take::Own),
            (FileType::Md, Some(Scope::Section)) => (Scope::Section, Take::Section(max_sections)),
            (FileType::Md, Some(Scope::Sections)) => (Scope::Sections, Take::Sections(max_sections)),
            (FileType::Md, Some(Scope::File)) => {
                self.admit_file(request.limits)?;
                (Scope::File, Take::File(max_sections))
            }
        };
        let path = source.path.clone();
        let excerpt = self.take(source, &request.reference.spot, take, max_chars)?;
        // `next` goes on in the same scope; a snippet is what is read without one.
        let through = match scope {
            Scope::Snippet => "",
            Scope::Section => ":section",
            Scope::Sections => ":sections",
            Scope::File => ":file",
        };
        Ok(ManualText {
            text: excerpt.text,
            truncated: excerpt.truncated,
            next: excerpt.next.map(|next| format!("{}{next}{through}", path.as_str())),
            applied: Applied { scope, max_sections, max_chars: max_chars.chars },
        })
    }

    /// Whether a whole `.md` may be read or copied.
    pub(crate) fn admit_file(&self, limits: Option<Limits>) -> Result<(), Refusal> {
        let asked = limits.and_then(|limits| limits.allow_file) == Some(true);
        if self.allow_file_scope && asked {
            return Ok(());
        }
        let missing = match (self.allow_file_scope, asked) {
            (false, _) => "the server does not allow it (`ALLOW_FILE_SCOPE=true` would)",
            (true, _) => "the call must have `\"limits\":{\"allow_file\":true}`",
        };
        Err(Refusal::forbidden(format!(
            "a whole `.md` file is not read or copied: {missing}; take a section instead"
        ))
        .with(json!({ "ALLOW_FILE_SCOPE": self.allow_file_scope, "allow_file": asked })))
    }

    /// Opens the file of a reference.
    pub(crate) fn open_ref(&self, reference: &Ref) -> Result<Source, Refusal> {
        let source = self.open(&reference.manual_id, &reference.path)?;
        match (&reference.json_path, source.file_type) {
            (None, _) => Ok(source),
            (Some(_), FileType::Md) => Err(Refusal::new(
                Code::InvalidScope,
                "a `.md` file has sections and no `json_path`; leave it out, and give `start_line`",
            )),
            (Some(_), FileType::Json) => {
                Err(Refusal::parameter("`json_path` must be null: a `.json` file is taken as a whole"))
            }
        }
    }

    /// Opens a file of a manual: it must be regular, of a known kind and not too large.
    pub(crate) fn open(&self, manual_id: &str, path: &str) -> Result<Source, Refusal> {
        let manual = RelPath::parse_name("manual_id", manual_id)?;
        self.reopen(&manual.join(&RelPath::parse(path)?))
    }

    pub(crate) fn reopen(&self, path: &RelPath) -> Result<Source, Refusal> {
        #[cfg(test)]
        tests::fault(path)?;
        let Some(format) = Format::of(path) else {
            return Err(Format::unknown(path));
        };
        let (file, stamp) = self.root.read(path).map_err(|error| {
            self.forget(path);
            Refusal::system(path.as_str(), &error)
        })?;
        snapshot::check_size(path.as_str(), stamp.size)?;
        Ok(Source { file, stamp, path: path.clone(), format, file_type: format.file_type() })
    }

    /// The folder of all manuals.
    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    /// Whether a file can be read, judging by its name and its size.
    pub(crate) fn is_readable(&self, entry: &Entry) -> bool {
        self.is_listed(&entry.path)
            && Format::of(&entry.path).is_some()
            && entry.stamp.size <= MAX_SOURCE_BYTES
    }

    fn is_listed(&self, path: &RelPath) -> bool {
        // A file outside of all manuals has no reference.
        self.is_vault || !path.below_first().is_empty()
    }

    /// All readable files, of one manual or of all, sorted.
    pub(crate) fn files(&self, manual_id: Option<&str>) -> Result<Readable, Refusal> {
        let manual = manual_id.map(|id| RelPath::parse_name("manual_id", id)).transpose()?;
        Ok(self.sorted_out(manual.as_ref())?.0)
    }

    /// The same, with the number of files of other kinds by ending.
    fn sorted_out(&self, manual: Option<&RelPath>) -> Result<(Readable, BTreeMap<String, usize>), Refusal> {
        let place = manual.map_or("manuals", RelPath::as_str);
        let files = self.root.walk(manual).map_err(|error| Refusal::system(place, &error))?;
        let mut left_out = BTreeMap::new();
        let mut usable = Vec::new();
        for entry in files.into_iter().filter(|entry| self.is_listed(&entry.path)) {
            match Format::of(&entry.path) {
                Some(kind) if entry.stamp.size <= MAX_SOURCE_BYTES => usable.push((entry, kind)),
                Some(_) => *left_out.entry("too large".into()).or_default() += 1,
                None => {
                    let ending = entry.path.name().rsplit_once('.').map_or("no ending", |(_, ending)| ending);
                    *left_out.entry(ending.to_lowercase()).or_default() += 1;
                }
            }
        }
        Ok((usable, left_out))
    }

    /// The files of a manual or of a folder in it, or a single file.
    fn files_at(&self, manual: &RelPath, path: Option<&str>) -> Result<Readable, Refusal> {
        let Some(path) = path.filter(|path| !matches!(*path, "" | "." | "./")) else {
            return self.files(Some(manual.as_str()));
        };
        let path = manual.join(&RelPath::parse(path.trim_end_matches(['/', '\\']))?);
        if let Some(format) = Format::of(&path) {
            let stamp = self.reopen(&path)?.stamp;
            return Ok(vec![(Entry { path, is_dir: false, stamp }, format)]);
        }
        let files = self.root.walk(Some(&path)).map_err(|error| Refusal::system(path.as_str(), &error))?;
        let usable = files.into_iter().filter(|entry| entry.stamp.size <= MAX_SOURCE_BYTES);
        Ok(usable.filter_map(|entry| Format::of(&entry.path).map(|format| (entry, format))).collect())
    }

    /// The folder of a manual; fails if there is no such manual.
    pub(crate) fn check_manual(&self, manual_id: &str) -> Result<RelPath, Refusal> {
        let manual = RelPath::parse_name("manual_id", manual_id)?;
        match self.root.folder(Some(&manual)) {
            Ok(_) => Ok(manual),
            Err(error) => Err(Refusal::system(manual_id, &error)),
        }
    }

    /// Reads a source whole; retries if it changes, so that two versions are never mixed.
    pub(crate) fn text(&self, mut source: Source) -> Result<Reading, Refusal> {
        for _ in 0..snapshot::ATTEMPTS {
            let is_settled = source.stamp.is_settled();
            if let Some(text) = snapshot::attempt(&source.file, source.path.as_str(), &source.stamp)? {
                return Ok(Reading { source, text, is_settled });
            }
            source = self.reopen(&source.path)?;
        }
        Err(snapshot::restless(source.path.as_str()))
    }

    /// Drops what is cached for a removed file.
    pub(crate) fn forget(&self, path: &RelPath) {
        self.outlines.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    fn outline(&self, source: Source) -> Result<Arc<Outline>, Refusal> {
        match self.known_outline(&source) {
            Some(outline) => Ok(outline),
            None => Ok(self.parse(source)?.1),
        }
    }

    fn known_outline(&self, source: &Source) -> Option<Arc<Outline>> {
        let outlines = self.outlines.lock().unwrap_or_else(PoisonError::into_inner);
        let (stamp, outline) = outlines.get(&source.path)?;
        (*stamp == source.stamp).then(|| Arc::clone(outline))
    }

    /// Reads the whole file and caches its outline.
    fn parse(&self, source: Source) -> Result<(Reading, Arc<Outline>), Refusal> {
        let reading = self.text(source)?;
        let outline = Arc::new(reading.source.format.outline(&reading.text));
        if reading.is_settled {
            let mut outlines = self.outlines.lock().unwrap_or_else(PoisonError::into_inner);
            let source = &reading.source;
            outlines.insert(source.path.clone(), (source.stamp, Arc::clone(&outline)));
        }
        Ok((reading, outline))
    }

    /// Extracts text from a source, within the limit.
    pub(crate) fn take(
        &self,
        mut source: Source,
        spot: &Spot,
        take: Take,
        max_chars: MaxChars,
    ) -> Result<Excerpt, Refusal> {
        if let Take::File(most) = take {
            let reading = self.text(source)?;
            let mut end = None;
            if reading.source.file_type == FileType::Md {
                let outline = reading.source.format.outline(&reading.text);
                // The section that a reference names must exist even if the whole file is read.
                if spot.offset == 0 {
                    pick(&outline, &reading.source, spot, take)?;
                }
                let at = outline.iter().rposition(|one| one.range.start <= spot.offset).unwrap_or(0);
                let (run, is_part) = outline.run(at, most);
                end = is_part.then_some(run.end);
            }
            return Excerpt::whole(reading, end, spot, max_chars);
        }
        for _ in 0..snapshot::ATTEMPTS {
            let Some(outline) = self.known_outline(&source) else {
                let (reading, outline) = self.parse(source)?;
                let picked = pick(&outline, &reading.source, spot, take)?;
                let bytes = reading.text.as_bytes();
                let text = valid_prefix(&bytes[picked.range.clone()]);
                let excerpt = Excerpt::of(text, &reading.source, &outline, &picked, max_chars)?;
                let is_mid_line = spot.offset > 0 && is_mid_line(bytes[picked.range.start - 1]);
                return Ok(Excerpt { is_mid_line, ..excerpt });
            };
            let picked = pick(&outline, &source, spot, take)?;
            let range = &picked.range;
            // A character has at most four bytes, so this is enough to see whether there is more.
            let end = range
                .end
                .min(range.start.saturating_add(max_chars.chars.saturating_mul(4)).saturating_add(4));
            // With the byte before a rest.
            let before = usize::from(spot.offset > 0);
            let bytes = source.bytes(range.start - before..end);
            if source.is_unchanged() {
                let bytes = bytes.map_err(|error| Refusal::system(source.path.as_str(), &error))?;
                let (before, bytes) = bytes.split_at(before);
                let excerpt = Excerpt::of(valid_prefix(bytes), &source, &outline, &picked, max_chars)?;
                let is_mid_line = before.first().is_some_and(|byte| is_mid_line(*byte));
                return Ok(Excerpt { is_mid_line, ..excerpt });
            }
            source = self.reopen(&source.path)?;
        }
        Err(snapshot::restless(source.path.as_str()))
    }
}

impl Source {
    fn bytes(&self, range: Range<usize>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        self.file.read_exact_at(&mut bytes, range.start as u64)?;
        Ok(bytes)
    }

    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn is_unchanged(&self) -> bool {
        Stamp::of_file(&self.file).is_ok_and(|stamp| stamp == self.stamp)
    }
}

fn json_node(manual_id: &str, path: &str) -> Node {
    Node {
        kind: NodeKind::JsonFile,
        node_id: path.to_owned(),
        path: path.to_owned(),
        title: shortened(file_name(path)),
        level: 0,
        parent_id: None,
        line_start: None,
        line_end: None,
        reference: RefItem::new(manual_id, path, None),
    }
}

fn heading_node(manual_id: &str, path: &str, outline: &Outline, place: usize) -> Node {
    let id = |place: usize| format!("{path}#L{}", outline[place].line);
    let section = &outline[place];
    Node {
        kind: NodeKind::Heading,
        node_id: id(place),
        path: path.to_owned(),
        title: shown_title(path, section),
        level: section.level,
        parent_id: section.parent.map(id),
        line_start: Some(section.line),
        line_end: Some(section.last_line),
        reference: RefItem::new(manual_id, path, Some((section.line, section.print))),
    }
}

pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    thread_local! {
        static FAULT: Cell<Option<rustix::io::Errno>> = const { Cell::new(None) };
    }

    /// One manual, `m`, with one file, `a.md`.
    pub(crate) fn manual(bytes: &[u8]) -> (TempDir, Manuals) {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("m")).unwrap();
        fs::write(dir.path().join("m/a.md"), bytes).unwrap();
        let manuals = Manuals::new(Root::open(dir.path()).unwrap(), HardLimits::default(), true);
        (dir, manuals)
    }

    /// Waits until a later change of the file would be visible in its stamp.
    pub(crate) fn settle(manuals: &Manuals) {
        while !manuals.open("m", "a.md").unwrap().stamp.is_settled() {
            std::thread::yield_now();
        }
    }

    /// Runs `work` while no file can be opened.
    pub(crate) fn without_files<T>(errno: rustix::io::Errno, work: impl FnOnce() -> T) -> T {
        FAULT.set(Some(errno));
        let outcome = work();
        FAULT.set(None);
        outcome
    }

    pub(super) fn fault(path: &RelPath) -> Result<(), Refusal> {
        match FAULT.get() {
            Some(errno) => Err(Refusal::system(path.as_str(), &errno.into())),
            None => Ok(()),
        }
    }

    /// Reads `a.md` in every way while `change` runs, `times` times.
    fn read_while(
        times: usize,
        settled: bool,
        change: impl Fn(&std::path::Path) + Copy + 'static,
    ) -> Vec<String> {
        let takes = [Take::Own, Take::Section(20), Take::File(20)];
        let read = |take| {
            let (dir, manuals) = manual(b"# old\n");
            let path = dir.path().join("m/a.md");
            if settled {
                settle(&manuals);
            }
            let source = manuals.open("m", "a.md").unwrap();
            let mut left = times;
            snapshot::tests::set_meanwhile(Some(Box::new(move || {
                if left > 0 {
                    left -= 1;
                    change(&path);
                }
            })));
            let max_chars = manuals.hard.chars(None, FileType::Md);
            let outcome = manuals.take(source, &Spot::default(), take, max_chars);
            snapshot::tests::set_meanwhile(None);
            outcome.map_or_else(|refusal| format!("{:?}: {}", refusal.code, refusal.message), |got| got.text)
        };
        takes.into_iter().map(read).collect()
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again_as_a_whole() {
        let rewrite = |path: &std::path::Path| fs::write(path, "# new\n").unwrap();
        let replace = |path: &std::path::Path| {
            fs::write(path.with_extension("tmp"), "# new\n").unwrap();
            fs::rename(path.with_extension("tmp"), path).unwrap();
        };
        for settled in [true, false] {
            assert_eq!(read_while(1, settled, rewrite), ["# new\n"; 3], "settled: {settled}");
        }
        // A replaced file is no conflict: the one that was opened is still complete.
        for text in read_while(1, true, replace) {
            assert!(text == "# old\n" || text == "# new\n", "{text}");
        }
    }

    #[test]
    fn a_file_that_always_changes_is_refused() {
        let grow = |path: &std::path::Path| {
            let text = fs::read_to_string(path).unwrap();
            fs::write(path, text + "more\n").unwrap();
        };
        for text in read_while(usize::MAX, false, grow) {
            assert_eq!(text, "IoError: `m/a.md` changes while it is read; try again");
        }
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let (dir, manuals) = manual(b"# a\n");
        settle(&manuals);
        manuals.outline(manuals.open("m", "a.md").unwrap()).unwrap();
        assert_eq!(manuals.outlines.lock().unwrap().len(), 1);
        fs::remove_file(dir.path().join("m/a.md")).unwrap();
        manuals.open("m", "a.md").unwrap_err();
        assert_eq!(manuals.outlines.lock().unwrap().len(), 0);
    }
}
