//! The tools for kept results.

use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::park::store::{Store, owner_of};
use crate::{CallContext, RegistrationError, Tool, ToolError, Toolset};

pub(crate) const READ: &str = "result_read";
pub(crate) const FIND: &str = "result_find";
pub(crate) const SAVE: &str = "result_save";

/// Whether the name is that of a tool for kept results.
pub(crate) fn is_own(name: &str) -> bool {
    matches!(name, READ | FIND | SAVE)
}

const DEFAULT_CHARS: usize = 8000;
const DEFAULT_FOUND: usize = 20;
const MAX_FOUND: usize = 200;
/// How much of a text is copied at a time to ignore case.
const PIECE_BYTES: usize = 64 * 1024;
/// How much of a line is shown around a match.
const SHOWN_CHARS: usize = 160;
const SHOWN_BEFORE: usize = 40;

/// The directory that results may be saved to.
#[derive(Debug)]
pub(crate) struct SaveTo {
    pub(crate) dir: OwnedFd,
    /// The path as the user gave it.
    pub(crate) shown: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The `handle` of the result.
    handle: String,
    /// The first line; lines count from 1.
    start_line: Option<NonZeroUsize>,
    /// The last line.
    end_line: Option<NonZeroUsize>,
    /// The first byte, in place of lines.
    offset: Option<usize>,
    /// The maximum number of characters; 8000 if left out.
    max_chars: Option<NonZeroUsize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Find {
    /// The `handle` of the result.
    handle: String,
    /// The text to find, verbatim.
    query: String,
    /// Whether to ignore case.
    ignore_case: Option<bool>,
    /// The maximum number of matches; 20 if left out.
    limit: Option<NonZeroUsize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Save {
    /// The `handle` of the result.
    handle: String,
    /// The file's name, without a folder.
    name: String,
}

/// The tools. They block, so each call has a thread of its own.
pub(crate) fn toolset(
    store: &Arc<Store>,
    most_chars: usize,
    save_to: Option<Arc<SaveTo>>,
) -> Result<Toolset, RegistrationError> {
    // What a tool finds in the text of a result.
    let answer = |store: &Store,
                  context: &CallContext,
                  handle: &str,
                  use_it: &dyn Fn(&str) -> Result<Value, ToolError>| {
        store.with_text(&owner_of(context.caller()), handle, |text| Ok(use_it(text)?.to_string()))
    };
    let kept = Arc::clone(store);
    let reads = move |request: Read, context: CallContext| {
        answer(&kept, &context, &request.handle, &|text| read(&request, text, most_chars))
    };
    let kept = Arc::clone(store);
    let finds = move |request: Find, context: CallContext| {
        answer(&kept, &context, &request.handle, &|text| find(&request, text))
    };
    let read = Tool::new(
        READ,
        "Reads a part of a long result that is kept under a handle: lines, or from a byte on. `next_offset` is where to \
         continue. To pass a result on, do not read it: give its handle as an argument.",
        reads,
    );
    let find = Tool::new(
        FIND,
        "Finds a text in a long result that is kept under a handle: `items` with the line, its position (`offset`) and \
         the surrounding text; `total` is the number of matches.",
        finds,
    );
    let local = |tool: Tool| tool.open_world(false).always_load(false);
    let tools = Toolset::builder().with(local(read.read_only())).with(local(find.read_only()));
    let Some(save_to) = save_to else { return tools.build() };
    let kept = Arc::clone(store);
    let saves = move |request: Save, context: CallContext| {
        answer(&kept, &context, &request.handle, &|text| save(&request, text, &save_to))
    };
    let about = "Writes a long result that is kept under a handle to a new file, whole and byte for byte.";
    tools.with(local(Tool::new(SAVE, about, saves).annotation("readOnlyHint", false))).build()
}

fn wrong(tool: &str, reason: &str) -> ToolError {
    ToolError::Arguments { tool: tool.to_owned(), path: "/".into(), reason: reason.to_owned() }
}

fn read(request: &Read, text: &str, most_chars: usize) -> Result<Value, ToolError> {
    let lines = request.start_line.is_some() || request.end_line.is_some();
    if lines && request.offset.is_some() {
        return Err(wrong(READ, "`offset` and lines exclude each other; leave one out"));
    }
    let (start, end) = if lines {
        let line = |line: Option<NonZeroUsize>| line.map(NonZeroUsize::get);
        let (first, last) =
            (line(request.start_line).unwrap_or(1), line(request.end_line).unwrap_or(usize::MAX));
        if last < first {
            return Err(wrong(READ, "`start_line` must not be above `end_line`"));
        }
        let start: usize = text.split_inclusive('\n').take(first - 1).map(str::len).sum();
        let count = (last - first).saturating_add(1);
        (start, start + text[start..].split_inclusive('\n').take(count).map(str::len).sum::<usize>())
    } else {
        (request.offset.unwrap_or(0), text.len())
    };
    let Some(part) = text.get(start..end) else {
        let reason = format!(
            "`offset` is {start}, the result has {} bytes, or it is in the middle of a character",
            text.len()
        );
        return Err(wrong(READ, &reason));
    };
    let most = request.max_chars.map_or(DEFAULT_CHARS, NonZeroUsize::get).min(most_chars);
    let cut = part.char_indices().nth(most).map_or(part.len(), |(end, _)| end);
    // Cut at the end of a line, unless that leaves less than half.
    let kept = match part[..cut].rfind('\n') {
        Some(end) if cut < part.len() && end * 2 >= cut => end + 1,
        _ => cut,
    };
    let mut answer = json!({ "text": &part[..kept], "offset": start });
    if start + kept < text.len() {
        answer["next_offset"] = json!(start + kept);
    }
    Ok(answer)
}

fn find(request: &Find, text: &str) -> Result<Value, ToolError> {
    if request.query.is_empty() {
        return Err(wrong(FIND, "`query` is empty; give what to find"));
    }
    let limit = request.limit.map_or(DEFAULT_FOUND, NonZeroUsize::get).min(MAX_FOUND);
    let mut items = Vec::new();
    let (mut total, mut line, mut counted) = (0_usize, 1_usize, 0_usize);
    each_match(text, &request.query, request.ignore_case.unwrap_or_default(), |offset| {
        total += 1;
        if items.len() == limit {
            return;
        }
        line += text[counted..offset].matches('\n').count();
        counted = offset;
        items.push(json!({ "line": line, "offset": offset, "text": around(text, offset) }));
    });
    Ok(json!({ "items": items, "total": total }))
}

/// Calls `found` with the offset of each match. Ignores case in ASCII only, so that offsets stay the same; then it
/// searches copies of one piece after another.
fn each_match(text: &str, query: &str, ignores_case: bool, mut found: impl FnMut(usize)) {
    if !ignores_case {
        return text.match_indices(query).for_each(|(offset, _)| found(offset));
    }
    let query = query.to_ascii_lowercase();
    let mut start = 0;
    while start < text.len() {
        let mut end = text.len().min(start + PIECE_BYTES + query.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        let piece = text[start..end].to_ascii_lowercase();
        // A match that begins in the last bytes may end in the next piece.
        let mut next = if end == text.len() { end } else { end - (query.len() - 1) };
        for (offset, _) in piece.match_indices(&query) {
            found(start + offset);
            next = next.max(start + offset + query.len());
        }
        while !text.is_char_boundary(next) {
            next -= 1;
        }
        start = next;
    }
}

/// The text around an offset, on its line.
fn around(text: &str, offset: usize) -> &str {
    let start = text[..offset].rfind('\n').map_or(0, |end| end + 1);
    let end = text[offset..].find('\n').map_or(text.len(), |end| offset + end);
    let begin =
        text[start..offset].char_indices().rev().nth(SHOWN_BEFORE - 1).map_or(start, |(at, _)| start + at);
    let length = text[begin..end].char_indices().nth(SHOWN_CHARS).map_or(end - begin, |(at, _)| at);
    &text[begin..begin + length]
}

fn save(request: &Save, text: &str, to: &SaveTo) -> Result<Value, ToolError> {
    let name = request.name.as_str();
    if name.is_empty()
        || name.starts_with('.')
        || name.contains(['/', '\\', '\0'])
        || name.chars().any(char::is_control)
    {
        return Err(wrong(
            SAVE,
            "`name` must be a plain file name: not empty, no folder, no `.` at its start",
        ));
    }
    let failed = |error: io::Error| {
        let reason = if error.kind() == io::ErrorKind::AlreadyExists {
            format!("`{name}` exists already; choose another name")
        } else {
            format!("`{name}` cannot be written: {error}")
        };
        ToolError::new("ResultSaveError", reason)
    };
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&to.dir, name, flags, Mode::from_raw_mode(0o600)).map_err(Errno::into);
    let mut file = File::from(file.map_err(failed)?);
    if let Err(error) = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()) {
        // Remove the incomplete file.
        _ = rustix::fs::unlinkat(&to.dir, name, AtFlags::empty());
        return Err(failed(error));
    }
    Ok(json!({ "path": format!("{}/{name}", to.shown), "bytes": text.len() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(tool: &str, mut arguments: Value, text: &str) -> Result<Value, String> {
        arguments["handle"] = json!("parked:x");
        let wrong = |error: serde_json::Error| error.to_string();
        let answer = match tool {
            READ => read(&serde_json::from_value(arguments).map_err(wrong)?, text, 10_000),
            _ => find(&serde_json::from_value(arguments).map_err(wrong)?, text),
        };
        answer.map_err(|error| error.to_string())
    }

    #[test]
    fn lines_and_bytes_are_read_and_say_where_to_go_on() {
        let text = "one\ntwo\nthrée\nfour";
        for (arguments, want) in [
            (json!({}), json!({ "text": text, "offset": 0 })),
            (
                json!({ "start_line": 2, "end_line": 3 }),
                json!({ "text": "two\nthrée\n", "offset": 4, "next_offset": 15 }),
            ),
            (json!({ "start_line": 4 }), json!({ "text": "four", "offset": 15 })),
            (json!({ "start_line": 9 }), json!({ "text": "", "offset": 19 })),
            (json!({ "offset": 8 }), json!({ "text": "thrée\nfour", "offset": 8 })),
            (json!({ "max_chars": 6 }), json!({ "text": "one\n", "offset": 0, "next_offset": 4 })),
            (
                json!({ "offset": 8, "max_chars": 4 }),
                json!({ "text": "thré", "offset": 8, "next_offset": 13 }),
            ),
        ] {
            assert_eq!(called(READ, arguments.clone(), text), Ok(want), "{arguments}");
        }
        for (arguments, want) in [
            (json!({ "offset": 12 }), "it is in the middle of a character"),
            (json!({ "offset": 99 }), "the result has 19 bytes"),
            (json!({ "start_line": 0 }), "a nonzero usize"),
            (json!({ "start_line": 3, "end_line": 2 }), "must not be above"),
            (json!({ "start_line": 1, "offset": 2 }), "exclude each other"),
            (json!({ "line": 1 }), "unknown field `line`"),
        ] {
            let error = called(READ, arguments.clone(), text).unwrap_err();
            assert!(error.contains(want), "{arguments}: {error}");
        }
    }

    #[test]
    fn pieces_read_one_by_one_are_the_whole_text() {
        let text = "日本語 and\nsome more words\n\n".repeat(50);
        let (mut got, mut offset) = (String::new(), json!(0));
        while !offset.is_null() {
            let part = called(READ, json!({ "offset": offset, "max_chars": 37 }), &text).unwrap();
            got.push_str(part["text"].as_str().unwrap());
            offset = part["next_offset"].clone();
        }
        assert_eq!(got, text);
    }

    #[test]
    fn matches_have_their_line_and_its_text() {
        let long = "x".repeat(500);
        let text = format!("one key\nnone\n{long}key{long}\nKEY\n");
        let found = called(FIND, json!({ "query": "key" }), &text).unwrap();
        assert_eq!(found["total"], 2);
        assert_eq!(found["items"][0], json!({ "line": 1, "offset": 4, "text": "one key" }));
        assert_eq!(found["items"][1]["line"], 3);
        assert_eq!(found["items"][1]["text"].as_str().unwrap().len(), SHOWN_CHARS);
        let found = called(FIND, json!({ "query": "Key", "ignore_case": true, "limit": 1 }), &text).unwrap();
        assert_eq!((&found["total"], found["items"].as_array().unwrap().len()), (&json!(3), 1));
        assert_eq!(called(FIND, json!({ "query": "none such" }), &text).unwrap()["total"], 0);
        assert!(called(FIND, json!({ "query": "" }), &text).unwrap_err().contains("`query` is empty"));
    }

    #[test]
    fn matches_are_found_across_pieces_and_do_not_overlap() {
        for (piece, query) in [("Größe日本語KEY", "e日本語key"), ("aA", "aaa"), ("日", "日日"), ("xY", "z")]
        {
            let text = piece.repeat(3 * PIECE_BYTES / piece.len() + 5);
            let want: Vec<_> =
                text.to_ascii_lowercase().match_indices(query).map(|(offset, _)| offset).collect();
            let mut got = Vec::new();
            each_match(&text, query, true, |offset| got.push(offset));
            assert_eq!(got, want, "{query}");
        }
    }

    #[test]
    fn a_result_is_saved_once_under_a_plain_name() {
        let dir = tempfile::TempDir::new().unwrap();
        let handle =
            rustix::fs::open(dir.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let to = SaveTo { dir: handle, shown: "out".into() };
        let save = |name: &str| {
            let request = Save { handle: "parked:x".into(), name: name.into() };
            super::save(&request, "text", &to).map_err(|error| error.to_string())
        };
        assert_eq!(save("a.txt").unwrap()["path"], "out/a.txt");
        assert_eq!(std::fs::read_to_string(dir.path().join("a.txt")).unwrap(), "text");
        assert!(save("a.txt").unwrap_err().contains("exists already"));
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("link")).unwrap();
        assert!(save("link").unwrap_err().contains("exists already"));
        for name in ["", ".hidden", "../a", "a/b", "a\\b", "a\nb"] {
            assert!(save(name).unwrap_err().contains("plain file name"), "{name:?}");
        }
    }
}
