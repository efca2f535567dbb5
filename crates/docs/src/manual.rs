//! The manuals: what there is, what is in it, and reading it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use crate::answer::{Applied, FileItem, FileType, Items, ManualItem, ManualText, Node, NodeKind, RefItem};
use crate::limit::{HardLimits, MAX_SOURCE_BYTES, MaxChars};
use crate::path::RelPath;
use crate::refusal::{Code, Refusal, shown};
use crate::request::{Count, Limits, ManualLs, ManualRead, ManualToc, Ref, Scope};
use crate::root::{Entry, Root, Stamp};
use crate::section::{BOM, Outline, cut};

/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// All manuals, `<root>/<manual_id>/…`. Nothing is ever written here.
#[derive(Debug)]
pub(crate) struct Manuals {
    root: Root,
    pub(crate) hard: HardLimits,
    allow_file_scope: bool,
    /// Of files read before, so that a section of a large file can be read alone.
    outlines: Mutex<HashMap<RelPath, (Stamp, Arc<Outline>)>>,
}

/// A file of a manual that may be read.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    stamp: Stamp,
    /// Relative to all manuals.
    path: RelPath,
    pub(crate) file_type: FileType,
}

/// What was taken out of a source.
#[derive(Debug)]
pub(crate) struct Excerpt {
    pub(crate) text: String,
    pub(crate) truncated: bool,
    /// Whether the file begins with a byte order mark.
    pub(crate) has_bom: bool,
}

/// How much of a source to take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Take {
    Own,
    Section,
    Sections(usize),
    File,
}

impl Manuals {
    pub(crate) fn new(root: Root, hard: HardLimits, allow_file_scope: bool) -> Self {
        Self { root, hard, allow_file_scope, outlines: Mutex::default() }
    }

    pub(crate) fn list(&self) -> Result<Items<ManualItem>, Refusal> {
        let entries = self.root.list(None).map_err(|error| Refusal::system("manuals", &error))?;
        let folders = entries.into_iter().filter(|entry| entry.is_dir);
        Ok(Items {
            items: folders.map(|entry| ManualItem { manual_id: entry.path.as_str().to_owned() }).collect(),
        })
    }

    pub(crate) fn ls(&self, request: &ManualLs) -> Result<Items<FileItem>, Refusal> {
        let files = self.files(request.manual_id.as_deref())?;
        let item = |(entry, file_type): (Entry, FileType)| FileItem {
            manual_id: entry.path.first().to_owned(),
            path: entry.path.below_first().to_owned(),
            file_type,
        };
        Ok(Items { items: files.into_iter().map(item).collect() })
    }

    pub(crate) fn toc(&self, request: &ManualToc) -> Result<Items<Node>, Refusal> {
        let mut items = Vec::new();
        for (entry, file_type) in self.files(Some(&request.manual_id))? {
            let path = entry.path.below_first();
            match file_type {
                FileType::Json => items.push(json_node(&request.manual_id, path)),
                FileType::Md => match self.reopen(&entry.path).and_then(|source| self.outline(&source)) {
                    Ok(outline) => items.extend(heading_nodes(&request.manual_id, path, &outline)),
                    // One file that is gone or no text must not hide the others.
                    Err(refusal) => tracing::debug!(path, reason = refusal.message, "file left out"),
                },
            }
        }
        Ok(Items { items })
    }

    pub(crate) fn read(&self, request: &ManualRead) -> Result<ManualText, Refusal> {
        let source = self.open_ref(&request.reference)?;
        let max_chars = self.hard.chars(request.limits, source.file_type);
        let max_sections = self.hard.sections(request.limits);
        let (scope, take) = match (source.file_type, request.scope) {
            (FileType::Json, None | Some(Scope::Snippet | Scope::File)) => (Scope::File, Take::File),
            (FileType::Json, Some(Scope::Section | Scope::Sections)) => {
                return Err(Refusal::new(
                    Code::InvalidScope,
                    "a `.json` file has no sections; leave `scope` out, or say `file`",
                ));
            }
            (FileType::Md, None | Some(Scope::Snippet)) => (Scope::Snippet, Take::Own),
            (FileType::Md, Some(Scope::Section)) => (Scope::Section, Take::Section),
            (FileType::Md, Some(Scope::Sections)) => (Scope::Sections, Take::Sections(max_sections)),
            (FileType::Md, Some(Scope::File)) => {
                self.admit_file(request.limits)?;
                (Scope::File, Take::File)
            }
        };
        let excerpt = self.take(source, request.reference.start_line, take, max_chars)?;
        Ok(ManualText {
            text: excerpt.text,
            truncated: excerpt.truncated,
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
            (true, _) => "the call must say `\"limits\":{\"allow_file\":true}`",
        };
        Err(Refusal::forbidden(format!(
            "a whole `.md` file is not read or copied: {missing}; take a section instead"
        ))
        .with(json!({ "ALLOW_FILE_SCOPE": self.allow_file_scope, "allow_file": asked })))
    }

    /// Opens what a reference names.
    pub(crate) fn open_ref(&self, reference: &Ref) -> Result<Source, Refusal> {
        if reference.json_path.is_some() {
            return Err(Refusal::parameter("`json_path` must be null: a `.json` file is taken as a whole"));
        }
        self.open(&reference.manual_id, &reference.path)
    }

    /// Opens a file of a manual: a regular one, of a known kind, not too large.
    pub(crate) fn open(&self, manual_id: &str, path: &str) -> Result<Source, Refusal> {
        let manual = RelPath::parse_name("manual_id", manual_id)?;
        self.reopen(&manual.join(&RelPath::parse(path)?))
    }

    pub(crate) fn reopen(&self, path: &RelPath) -> Result<Source, Refusal> {
        let Some(file_type) = file_type(path) else {
            return Err(Refusal::parameter(format!(
                "`{}` is neither `.md` nor `.json`, and manuals have no other files",
                shown(path.below_first())
            )));
        };
        let (file, stamp) = self.root.read(path).map_err(|error| Refusal::system(path.as_str(), &error))?;
        check_size(path.as_str(), stamp.size)?;
        Ok(Source { file, stamp, path: path.clone(), file_type })
    }

    /// All files that can be read, of one manual or of all, sorted.
    pub(crate) fn files(&self, manual_id: Option<&str>) -> Result<Vec<(Entry, FileType)>, Refusal> {
        let manual = manual_id.map(|id| RelPath::parse_name("manual_id", id)).transpose()?;
        let place = manual.as_ref().map_or("manuals", RelPath::as_str);
        let files = self.root.walk(manual.as_ref()).map_err(|error| Refusal::system(place, &error))?;
        let usable = files.into_iter().filter(|entry| {
            // A file that lies in no manual has no reference.
            entry.stamp.size <= MAX_SOURCE_BYTES && !entry.path.below_first().is_empty()
        });
        Ok(usable.filter_map(|entry| file_type(&entry.path).map(|kind| (entry, kind))).collect())
    }

    /// Whether there is such a manual.
    pub(crate) fn check_manual(&self, manual_id: &str) -> Result<(), Refusal> {
        let manual = RelPath::parse_name("manual_id", manual_id)?;
        match self.root.folder(Some(&manual)) {
            Ok(_) => Ok(()),
            Err(error) => Err(Refusal::system(manual_id, &error)),
        }
    }

    fn outline(&self, source: &Source) -> Result<Arc<Outline>, Refusal> {
        match self.known_outline(source) {
            Some(outline) => Ok(outline),
            None => Ok(self.parse(source)?.1),
        }
    }

    fn known_outline(&self, source: &Source) -> Option<Arc<Outline>> {
        let outlines = self.outlines.lock().unwrap_or_else(PoisonError::into_inner);
        let (stamp, outline) = outlines.get(&source.path)?;
        (*stamp == source.stamp).then(|| Arc::clone(outline))
    }

    /// Reads the whole file and remembers where its sections are.
    fn parse(&self, source: &Source) -> Result<(String, Arc<Outline>), Refusal> {
        let settled = source.stamp.is_settled();
        let text = source.text()?;
        let outline = Arc::new(Outline::of(&text));
        if settled && source.is_unchanged() {
            let mut outlines = self.outlines.lock().unwrap_or_else(PoisonError::into_inner);
            outlines.insert(source.path.clone(), (source.stamp, Arc::clone(&outline)));
        }
        Ok((text, outline))
    }

    /// Takes text out of a source, within the limit.
    pub(crate) fn take(
        &self,
        mut source: Source,
        start_line: Option<Count>,
        take: Take,
        max_chars: MaxChars,
    ) -> Result<Excerpt, Refusal> {
        if matches!(take, Take::File) {
            return whole(&source, max_chars);
        }
        for _ in 0..ATTEMPTS {
            let Some(outline) = self.known_outline(&source) else {
                let (text, outline) = self.parse(&source)?;
                let (range, more) = pick(&outline, &source, start_line, take)?;
                return Ok(excerpt(&text[range], more, max_chars));
            };
            let (range, more) = pick(&outline, &source, start_line, take)?;
            // No character has more than four bytes: this is enough to see whether there is more.
            let end = range
                .end
                .min(range.start.saturating_add(max_chars.chars.saturating_mul(4)).saturating_add(4));
            let bytes = source.bytes(range.start..end);
            if source.is_unchanged() {
                let bytes = bytes.map_err(|error| source.failed(&error))?;
                return Ok(excerpt(valid_prefix(&bytes), more, max_chars));
            }
            source = self.reopen(&source.path)?;
        }
        Err(source.restless())
    }
}

/// What a file's name says it is.
pub(crate) fn file_type(path: &RelPath) -> Option<FileType> {
    let (_, extension) = path.name().rsplit_once('.')?;
    [("md", FileType::Md), ("json", FileType::Json)]
        .into_iter()
        .find_map(|(known, file_type)| extension.eq_ignore_ascii_case(known).then_some(file_type))
}

pub(crate) fn check_size(path: &str, size: u64) -> Result<(), Refusal> {
    if size <= MAX_SOURCE_BYTES {
        return Ok(());
    }
    Err(Refusal::forbidden(format!("`{}` has {size} bytes, the limit is {MAX_SOURCE_BYTES}", shown(path)))
        .with(json!({ "size_bytes": size, "limit_bytes": MAX_SOURCE_BYTES })))
}

fn pick(
    outline: &Outline,
    source: &Source,
    start_line: Option<Count>,
    take: Take,
) -> Result<(Range<usize>, bool), Refusal> {
    let line = start_line.map(Count::get);
    let Some(place) = outline.place(line) else {
        return Err(Refusal::not_found(format!(
            "no section of `{}` starts at line {}; `manual_toc` and `manual_find` give references that fit",
            shown(source.path.below_first()),
            line.unwrap_or(1),
        )));
    };
    let section = &outline[place];
    Ok(match take {
        Take::Own => (section.own(), false),
        Take::Sections(count) => outline.run(place, count),
        Take::Section | Take::File => (section.range.clone(), false),
    })
}

fn excerpt(text: &str, more: bool, max_chars: MaxChars) -> Excerpt {
    let (text, is_cut) = cut(text, max_chars.chars);
    Excerpt { text: text.to_owned(), truncated: is_cut || more, has_bom: false }
}

/// The characters that are whole, of text that was cut at some byte.
fn valid_prefix(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

fn whole(source: &Source, max_chars: MaxChars) -> Result<Excerpt, Refusal> {
    let mut text = source.text()?;
    let has_bom = text.starts_with(BOM);
    if has_bom {
        text.drain(..BOM.len());
    }
    let (kept, truncated) = cut(&text, max_chars.chars);
    if truncated && source.file_type == FileType::Json && !max_chars.is_asked_for {
        let size = text.chars().count();
        let limit = max_chars.chars;
        let raise = "set HARD_MAX_CHARS on the server, or accept a part with `limits.max_chars`";
        return Err(Refusal::forbidden(format!(
            "`{}` has {size} characters, the limit is {limit}, and half a `.json` is no JSON; {raise}",
            shown(source.path.below_first())
        ))
        .with(json!({ "size_chars": size, "limit_chars": limit, "raise": raise })));
    }
    text.truncate(kept.len());
    Ok(Excerpt { text, truncated, has_bom })
}

impl Source {
    /// Its whole text.
    pub(crate) fn text(&self) -> Result<String, Refusal> {
        read_text(&self.file, self.path.as_str(), self.stamp.size)
    }

    fn bytes(&self, range: Range<usize>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        self.file.read_exact_at(&mut bytes, range.start as u64)?;
        Ok(bytes)
    }

    /// The text at these bytes, as far as it is still there.
    pub(crate) fn text_at(&self, range: Range<usize>) -> String {
        self.bytes(range).map(|bytes| valid_prefix(&bytes).to_owned()).unwrap_or_default()
    }

    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn is_unchanged(&self) -> bool {
        Stamp::of_file(&self.file).is_ok_and(|stamp| stamp == self.stamp)
    }

    fn failed(&self, error: &io::Error) -> Refusal {
        Refusal::system(self.path.as_str(), error)
    }

    fn restless(&self) -> Refusal {
        let path = shown(self.path.as_str());
        Refusal::new(Code::IoError, format!("`{path}` changes while it is read; try again"))
    }
}

/// Reads a file of which `size` bytes were seen. One that grows meanwhile is not read beyond the limit.
pub(crate) fn read_text(file: &File, path: &str, size: u64) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| Refusal::system(path, &error))?;
    check_size(path, bytes.len() as u64)?;
    String::from_utf8(bytes).map_err(|error| Refusal::not_utf8(path, error.utf8_error().valid_up_to()))
}

fn json_node(manual_id: &str, path: &str) -> Node {
    Node {
        kind: NodeKind::JsonFile,
        node_id: path.to_owned(),
        path: path.to_owned(),
        title: file_name(path).to_owned(),
        level: 0,
        parent_id: None,
        line_start: None,
        line_end: None,
        reference: RefItem::new(manual_id, path, None),
    }
}

fn heading_nodes(manual_id: &str, path: &str, outline: &Outline) -> Vec<Node> {
    let id = |place: usize| format!("{path}#L{}", outline[place].line);
    let node = |place: usize| {
        let section = &outline[place];
        Node {
            kind: NodeKind::Heading,
            node_id: id(place),
            path: path.to_owned(),
            title: if section.level == 0 { file_name(path) } else { &section.title }.to_owned(),
            level: section.level,
            parent_id: section.parent.map(id),
            line_start: Some(section.line),
            line_end: Some(section.last_line),
            reference: RefItem::new(manual_id, path, Some(section.line)),
        }
    };
    (0..outline.len()).map(node).collect()
}

pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
