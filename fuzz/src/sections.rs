//! Sections of Markdown cover their text without gaps, nest, and are copied byte for byte.

use serde_json::{Value, json};
use toolbridge_docs::fuzzing::{Section, outline};

use crate::input::is_one_of;
use crate::paths::{call, open, workspace};

const BOM: &str = "\u{feff}";

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let outline = outline(text);
    tile(text, &outline);
    nest(&outline);
    for (place, part) in outline.iter().enumerate() {
        alone(text, &outline, place, part);
    }
    if is_one_of(64, input) {
        copied(text, &outline);
    }
}

/// Sections without their subsections follow each other without a gap, and each starts on a new line.
fn tile(text: &str, outline: &[Section]) {
    let mut at = outline[0].range.start;
    let before = text[..at].strip_prefix(BOM).unwrap_or(&text[..at]);
    assert!(before.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')), "{before:?} is lost");
    for part in outline {
        assert_eq!(part.range.start, at, "a gap before {part:?}");
        assert!(part.range.start <= part.own_end && part.own_end <= part.range.end, "{part:?}");
        at = part.own_end;
        let lines = lines(text[..part.range.start].strip_prefix(BOM).unwrap_or(&text[..part.range.start]));
        let (whole, is_open) = lines;
        assert!(!is_open, "{part:?} starts in the middle of a line");
        // The text before the first heading begins at line 1, including blank lines.
        assert_eq!(part.line, whole + 1, "{part:?}");
        let (more, is_open) = self::lines(&text[part.range.clone()]);
        let last = whole + more + usize::from(is_open);
        assert_eq!(part.last_line, last.max(part.line), "{part:?}");
    }
    assert_eq!(at, text.len());
}

/// The number of complete lines in a text, and whether an incomplete one follows.
fn lines(text: &str) -> (usize, bool) {
    let bytes = text.as_bytes();
    let ends = bytes
        .iter()
        .enumerate()
        .filter(|(place, byte)| **byte == b'\n' || **byte == b'\r' && bytes.get(place + 1) != Some(&b'\n'));
    (ends.count(), !matches!(bytes.last(), None | Some(b'\n' | b'\r')))
}

/// A section ends where the next one of its level or above begins; its parent is the last one above it.
fn nest(outline: &[Section]) {
    for (place, part) in outline.iter().enumerate() {
        assert!(part.level <= 6 && (part.level > 0 || place == 0), "{part:?}");
        let next = outline[place + 1..].iter().find(|next| next.level <= part.level || part.level == 0);
        let end = next.map_or(outline[outline.len() - 1].range.end, |next| next.range.start);
        assert_eq!(part.range.end, end, "{part:?}");
        let parent = outline[..place].iter().rposition(|one| one.level > 0 && one.level < part.level);
        assert_eq!(part.parent, parent, "{part:?}");
    }
}

/// A copied section has the same sections in it.
fn alone(text: &str, whole: &[Section], place: usize, part: &Section) {
    let own = &text[part.range.clone()];
    // A text without a heading may be anything, and a byte order mark at the start of a file is not text.
    if part.level == 0 || own.starts_with(BOM) {
        return;
    }
    let inside = whole[place..].iter().take_while(|one| one.range.start < part.range.end);
    let want: Vec<_> = inside.map(|one| (one.level, one.range.start - part.range.start)).collect();
    let got: Vec<_> = outline(own).iter().map(|one| (one.level, one.range.start)).collect();
    assert_eq!(got, want, "{own:?} alone");
}

/// The tool copies a section's own bytes.
fn copied(text: &str, outline: &[Section]) {
    let workspace = workspace(&[("manuals/m/a.md", text)]);
    let documents = open(workspace.path());
    for part in outline.iter().take(3) {
        let source = json!({ "target": "manual", "manual_id": "m", "path": "a.md", "start_line": part.line });
        let target = json!({ "from_ref": source, "to_path": "b.md", "mode": "overwrite" });
        let answer = call(&documents, "bridge_copy_section", &target);
        let answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");
        assert!(!answer["isError"].as_bool().unwrap_or(false), "{answer}");
        let written = std::fs::read(workspace.path().join("vault/b.md")).expect("a copy");
        assert_eq!(written, text[part.range.clone()].as_bytes(), "{part:?}");
    }
}
