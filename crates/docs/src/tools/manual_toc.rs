//! `manual_toc`: the headings of a manual.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool};
use crate::arguments::Count;
use crate::excerpt::shown_title;
use crate::format::Format;
use crate::limit::page;
use crate::manual::Manuals;
use crate::path::RelPath;
use crate::reference::{RefItem, Spot};
use crate::refusal::Refusal;
use crate::section::{Outline, Section, shortened};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The manual.
    manual_id: String,
    /// Only this file or folder.
    path: Option<String>,
    /// Only headings down to this level.
    max_level: Option<Count>,
    /// At most; default 200.
    limit: Option<Count>,
    /// `next` of the last answer.
    after: Option<String>,
    /// An object for each heading.
    full: Option<bool>,
}

#[derive(Serialize)]
struct Answer {
    items: Vec<Item>,
    /// If there are more: `after` of the call that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item {
    File {
        /// The file; a reference to a `.json`.
        file: String,
        /// One for each heading: what makes a reference when it is put after `file`, the level, the title.
        #[serde(skip_serializing_if = "Option::is_none")]
        sections: Option<Vec<String>>,
    },
    Node(Box<Node>),
}

/// A heading, or a whole `.json` file.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names on the wire")]
struct Node {
    kind: &'static str,
    /// Unique in the answer.
    node_id: String,
    /// Relative to the manual.
    path: String,
    /// The heading's text, or the file's name.
    title: String,
    /// 1 to 6, as the heading; 0 for text before the first heading and for files.
    level: u8,
    /// The `node_id` of the section it lies in.
    parent_id: Option<String>,
    line_start: Option<usize>,
    /// Its last line, subsections included.
    line_end: Option<usize>,
    /// To be passed to `manual_read` or `bridge_copy_section` as it is.
    #[serde(rename = "ref")]
    reference: RefItem,
}

pub(super) fn tool() -> Tool {
    super::tool(
        "manual_toc",
        "Contents",
        "The headings of a manual by file, as lines such as `#L98~k3f9a2bcd 2 Title`: place, level, title. `file` and place \
         make a `ref`; for a `.json`, `file` alone. Level 0 is text before the first heading.",
        run,
    ).read_only()
}

/// Reads files one by one until the page is full.
fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let manuals = &call.shared.manuals;
    let manual = manuals.manual(&arguments.manual_id)?;
    let max_level = arguments.max_level.map_or(usize::MAX, Count::get);
    let mut left = page(arguments.limit);
    let (after, after_line) = match arguments.after.as_deref().map(Spot::split) {
        Some((path, spot)) => (Some(manual.join(&RelPath::parse(path)?)), spot.line.unwrap_or(usize::MAX)),
        None => (None, 0),
    };
    let mut answer = Answer { items: Vec::new(), next: None };
    let mut last = String::new();
    for (path, format) in files(manuals, &manual, arguments.path.as_deref())? {
        if after.as_ref().is_some_and(|after| path < *after) {
            continue;
        }
        let begun = if after.as_ref() == Some(&path) { after_line } else { 0 };
        let nodes = if format.is_json() {
            if begun == 0 { vec![node(&path, None)] } else { Vec::new() }
        } else {
            let outline = match manuals.read(&path) {
                Ok(reading) => format.outline(&reading.snapshot.text),
                // One file that was removed or is not text must not hide the others.
                Err(refusal) => {
                    tracing::debug!(path = path.as_str(), reason = refusal.message, "file left out");
                    continue;
                }
            };
            // Text before the first heading (level 0) is listed only without a level limit, or if there is
            // nothing else.
            let is_shown = |section: &Section| {
                let level = usize::from(section.level);
                section.line > begun
                    && level <= max_level
                    && (level > 0 || max_level == usize::MAX || outline.len() == 1)
            };
            let shown = (0..outline.len()).filter(|place| is_shown(&outline[*place]));
            // One more than fits, to see whether there is one.
            shown.take(left + 1).map(|place| node(&path, Some((&outline, place)))).collect()
        };
        let is_cut = nodes.len() > left;
        let nodes: Vec<_> = nodes.into_iter().take(left).collect();
        left -= nodes.len();
        if let Some(node) = nodes.last() {
            last.clone_from(&node.node_id);
            if arguments.full == Some(true) {
                answer.items.extend(nodes.into_iter().map(|node| Item::Node(Box::new(node))));
            } else {
                let sections = (!format.is_json()).then(|| nodes.iter().map(line).collect());
                answer.items.push(Item::File { file: path.into(), sections });
            }
        }
        if is_cut {
            answer.next = Some(last);
            break;
        }
    }
    Ok(answer)
}

/// The readable files of a manual or of a folder in it, or a single file.
fn files(manuals: &Manuals, manual: &RelPath, path: Option<&str>) -> Result<Vec<(RelPath, Format)>, Refusal> {
    let folder = match path.filter(|path| !matches!(*path, "" | "." | "./")) {
        Some(path) => manual.join(&RelPath::parse(path.trim_end_matches(['/', '\\']))?),
        None => manual.clone(),
    };
    if folder != *manual && Format::of(&folder).is_some() {
        let reading = manuals.read(&folder)?;
        return Ok(vec![(reading.path, reading.format)]);
    }
    let files = manuals.files(Some(&folder))?;
    Ok(files.into_iter().map(|(entry, format)| (entry.path, format)).collect())
}

/// A node of the short form.
fn line(node: &Node) -> String {
    let place = node.reference.place().unwrap_or_default();
    format!("{place} {} {}", node.level, node.title)
}

/// The node of a heading, or of a whole file.
fn node(path: &RelPath, heading: Option<(&Outline, usize)>) -> Node {
    let (file, name) = (path.below_first(), path.name());
    let section = heading.map(|(outline, place)| &outline[place]);
    let id = |line: usize| format!("{file}#L{line}");
    let parent = heading.and_then(|(outline, place)| Some(outline[outline[place].parent?].line));
    Node {
        kind: if section.is_some() { "heading" } else { "json_file" },
        node_id: section.map_or_else(|| file.to_owned(), |section| id(section.line)),
        path: file.to_owned(),
        title: section.map_or_else(|| shortened(name), |section| shown_title(name, section)),
        level: section.map_or(0, |section| section.level),
        parent_id: parent.map(id),
        line_start: section.map(|section| section.line),
        line_end: section.map(|section| section.last_line),
        reference: RefItem::new(path, section.map(|section| (section.line, section.print))),
    }
}
