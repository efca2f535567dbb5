//! The answers of the tools. The types define the output schemas.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::arguments::{Scope, Target};
use crate::format::Format;
use crate::print::Print;

/// A list under one name.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Items<T> {
    pub(crate) items: Vec<T>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ManualItem {
    /// The manual's id.
    pub(crate) manual_id: String,
}

/// Which rules hold for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileType {
    Md,
    Json,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileItem {
    /// The manual's id.
    pub(crate) manual_id: String,
    /// The file, relative to the manual.
    pub(crate) path: String,
    /// What it is.
    pub(crate) file_type: Format,
}

/// A place in a manual, to be passed on as it is.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct RefItem {
    pub(crate) target: Target,
    pub(crate) manual_id: String,
    pub(crate) path: String,
    /// The line at which the section starts; null for `.json`.
    pub(crate) start_line: Option<usize>,
    /// Always null.
    pub(crate) json_path: Option<String>,
    /// What the section is known by when it has moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hash: Option<String>,
}

impl RefItem {
    /// A file, or a section by its line and what it is known by.
    pub(crate) fn new(manual_id: &str, path: &str, section: Option<(usize, Print)>) -> Self {
        Self {
            target: Target::Manual,
            manual_id: manual_id.to_owned(),
            path: path.to_owned(),
            start_line: section.map(|(line, _)| line),
            json_path: None,
            hash: section.map(|(_, print)| print.to_string()),
        }
    }
}

/// A page of a list of files.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Files {
    pub(crate) items: Vec<FileItem>,
    /// If there are more: `after` of the call that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// How many files of other kinds there are, which cannot be read, by their endings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<BTreeMap<String, usize>>,
}

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// If there are more: `after` of the call that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum TocItem {
    File(TocFile),
    Node(Box<Node>),
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TocFile {
    /// The file; a reference to a `.json`.
    pub(crate) file: String,
    /// One for each heading: what makes a reference when it is put after `file`, the level, the title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sections: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeKind {
    Heading,
    JsonFile,
}

#[derive(Debug, Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the names on the wire")]
pub(crate) struct Node {
    /// A heading, or a whole `.json` file.
    pub(crate) kind: NodeKind,
    /// Unique in the answer.
    pub(crate) node_id: String,
    /// The file, relative to the manual.
    pub(crate) path: String,
    /// The heading's text, or the file's name.
    pub(crate) title: String,
    /// 1 to 6, as the heading; 0 for text before the first heading and for files.
    pub(crate) level: u8,
    /// The `node_id` of the section it lies in.
    pub(crate) parent_id: Option<String>,
    /// Its first line.
    pub(crate) line_start: Option<usize>,
    /// Its last line, subsections included.
    pub(crate) line_end: Option<usize>,
    /// To be passed to `manual_read` or `bridge_copy_section` as it is.
    #[serde(rename = "ref")]
    pub(crate) reference: RefItem,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Hit {
    /// To be passed to `manual_read` or `bridge_copy_section` as it is.
    #[serde(rename = "ref")]
    pub(crate) reference: HitRef,
    /// The heading's text, or the file's name.
    pub(crate) title: String,
    /// What it lies in: the titles above it.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<String>,
    /// How well it fits; higher is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<f64>,
    /// A line of it that shows why, if there is room for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snippet: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum HitRef {
    Short(String),
    Full(Box<RefItem>),
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Found {
    /// The best ones, best first.
    pub(crate) items: Vec<Hit>,
    /// How many sections have one of the words.
    pub(crate) total: usize,
}

/// What was really applied.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Applied {
    pub(crate) scope: Scope,
    pub(crate) max_sections: usize,
    pub(crate) max_chars: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ManualText {
    pub(crate) text: String,
    /// Whether a limit cut something off.
    pub(crate) truncated: bool,
    pub(crate) applied: Applied,
    /// If it was cut: the `ref` of the call that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EntryType {
    File,
    Dir,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VaultEntry {
    /// Relative to the vault.
    pub(crate) path: String,
    #[serde(rename = "type")]
    pub(crate) entry_type: EntryType,
    /// A file's size; null for a folder.
    pub(crate) size_bytes: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<VaultEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AppliedRange {
    pub(crate) start_line: usize,
    pub(crate) end_line: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NextOffset {
    /// Where to go on; null when there is nothing left.
    pub(crate) start_line: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TruncatedReason {
    // The call's limit, or its default, cut the text.
    MaxChars,
    // The file continues after the range.
    RangeEnd,
    // The server's limit cut the text.
    HardLimit,
    // The text is complete.
    None,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VaultText {
    pub(crate) text: String,
    /// Whether the file has more than was returned.
    pub(crate) truncated: bool,
    pub(crate) returned_chars: usize,
    /// The lines returned; the last one may be cut.
    pub(crate) applied_range: AppliedRange,
    pub(crate) next_offset: NextOffset,
    pub(crate) truncated_reason: TruncatedReason,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Written {
    /// Relative to the vault.
    pub(crate) written_path: String,
    /// What this call added to the file, or the new file's size.
    pub(crate) written_bytes: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Replaced {
    /// Relative to the vault.
    pub(crate) written_path: String,
    /// In how many places.
    pub(crate) replacements: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Undone {
    /// The file as it was before, relative to the vault.
    pub(crate) written_path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NoteOutline {
    /// One for each heading: its line, its level, its title.
    pub(crate) sections: Vec<String>,
    /// Whether there are more.
    pub(crate) truncated: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum NoteView {
    Text(VaultText),
    Outline(NoteOutline),
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NoteHit {
    /// Relative to the vault.
    pub(crate) path: String,
    /// The line at which the section starts; left out for a `.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    /// The heading's text, or the file's name.
    pub(crate) title: String,
    /// What it lies in: the titles above it.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<String>,
    /// A line of it that shows why, if there is room for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snippet: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NotesFound {
    /// The best ones, best first.
    pub(crate) items: Vec<NoteHit>,
    /// How many sections have one of the words.
    pub(crate) total: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CopiedSection {
    /// Relative to the vault.
    pub(crate) written_path: String,
    /// What this call added to the file, or the new file's size.
    pub(crate) written_bytes: u64,
    pub(crate) written_sections: u64,
    /// Whether a limit cut the copy.
    pub(crate) truncated: bool,
    /// What was copied; left out for a `.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    /// If it was cut: `from_ref` of the call that appends what is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CopiedFile {
    /// Relative to the vault.
    pub(crate) written_path: String,
    /// What this call added to the file, or the new file's size.
    pub(crate) written_bytes: u64,
    /// Whether a limit cut the copy.
    pub(crate) truncated: bool,
    /// If it was cut: `from_path` of the call that appends what is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}
