//! References: which section or file of the manuals is meant.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arguments::{Line, MAX_LINE, Scope, Target};
use crate::manual::TOP;
use crate::path::RelPath;
use crate::print::Print;
use crate::refusal::shown;

/// A reference as an object: as answers have it, and as a model gives it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefItem {
    target: Target,
    manual_id: String,
    /// The file, relative to the manual.
    pub(crate) path: String,
    /// The line at which the section starts; null for the first section, and for `.json`.
    start_line: Option<Line>,
    /// Always null.
    json_path: Option<Value>,
    /// What the section is known by when it has moved: what stands after `~` in a short reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// Not used; taken because it is specified.
    #[serde(skip_serializing, rename = "title")]
    _title: Option<Value>,
    #[serde(skip_serializing, rename = "signals")]
    _signals: Option<Value>,
}

impl RefItem {
    /// A file, or a section by its line and what it is known by.
    pub(crate) fn new(path: &RelPath, section: Option<(usize, Print)>) -> Self {
        Self {
            target: Target::Manual,
            manual_id: path.first().to_owned(),
            path: path.below_first().to_owned(),
            start_line: section.map(|(line, _)| Line::new(line)),
            json_path: None,
            hash: section.map(|(_, print)| print.to_string()),
            _title: None,
            _signals: None,
        }
    }

    /// The part of a short reference after the file's path, if it is to a section.
    pub(crate) fn place(&self) -> Option<String> {
        Some(format!("#L{}~{}", self.start_line?.get(), self.hash.as_ref()?))
    }
}

/// The part of a reference after the file's path.
pub(crate) fn suffix(line: usize, print: Print) -> String {
    format!("#L{line}~{print}")
}

/// A reference into a manual, from a model: `book/ch16.md#L98~k3f9a2bcd`, or an object with the same parts.
#[derive(Debug, Clone)]
pub(crate) struct Ref {
    pub(crate) manual_id: String,
    pub(crate) path: String,
    pub(crate) spot: Spot,
    pub(crate) json_path: Option<Value>,
}

/// A place in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The line at which a section starts; `None` for the first section.
    pub(crate) line: Option<usize>,
    /// The section's fingerprint.
    pub(crate) print: Option<Print>,
    /// How many bytes of it earlier calls have returned.
    pub(crate) offset: usize,
    /// The scope of the read that goes on here.
    pub(crate) scope: Option<Scope>,
}

impl Spot {
    /// Splits a place off the end of a path: `#L98`, optionally `~k3f9a2bcd`, optionally `+8000` or
    /// `+8000:section`. Any other `#L` is part of the path.
    pub(crate) fn split(text: &str) -> (&str, Self) {
        let parsed = text.rsplit_once("#L").and_then(|(path, place)| Some((path, Self::parse(place)?)));
        parsed.unwrap_or((text, Self::default()))
    }

    fn parse(place: &str) -> Option<Self> {
        let (place, rest) = place.split_once('+').unwrap_or((place, "0"));
        let (offset, scope) = match rest.split_once(':') {
            Some((offset, scope)) => (offset, Some(serde_json::from_value(scope.into()).ok()?)),
            None => (rest, None),
        };
        let offset = digits(offset)?;
        let (line, print) = match place.split_once('~') {
            Some((line, print)) => (line, Some(print.parse().ok()?)),
            None => (place, None),
        };
        let line = Some(digits(line)?).filter(|line| (1..=MAX_LINE).contains(line));
        Some(Self { line: Some(line?), print, offset, scope })
    }
}

fn digits(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Examples of references, for messages.
pub(crate) const EXAMPLE_REFS: &str =
    r#"`"book/ch16.md#L98"` or `{"target":"manual","manual_id":"book","path":"ch16.md","start_line":98}`"#;

struct RefVisitor;

impl<'de> Visitor<'de> for RefVisitor {
    type Value = Ref;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an object")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Ref, E> {
        let (path, spot) = Spot::split(text);
        // The manual of the files at the top.
        let (manual_id, path) = path.split_once(['/', '\\']).unwrap_or((TOP, path));
        if manual_id.is_empty() || path.is_empty() {
            return Err(E::custom(format_args!("`{}` names no file of a manual", shown(text))));
        }
        Ok(Ref { manual_id: manual_id.into(), path: path.into(), spot, json_path: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Ref, A::Error> {
        let item = RefItem::deserialize(MapAccessDeserializer::new(map))?;
        let RefItem { manual_id, path, start_line, json_path, hash, .. } = item;
        let print = match hash.as_deref().map(str::parse) {
            Some(Err(())) => {
                return Err(de::Error::custom("`hash` is not one that `manual_toc` gave; leave it out"));
            }
            Some(Ok(print)) => Some(print),
            None => None,
        };
        let spot = Spot { line: start_line.map(Line::get), print, ..Spot::default() };
        Ok(Ref { manual_id, path, spot, json_path })
    }
}

impl<'de> Deserialize<'de> for Ref {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RefVisitor)
    }
}

impl JsonSchema for Ref {
    fn schema_name() -> Cow<'static, str> {
        "Ref".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "object"],
            "description": "A `ref` as given, such as `book/ch16.md#L98~k3f9a2bcd`, or `next`; or an object.",
            "properties": {
                "target": { "const": "manual" },
                "manual_id": { "type": "string" },
                "path": { "type": "string" },
                "start_line": { "type": ["integer", "null"] },
                "json_path": { "type": "null" },
                "title": { "type": "string" },
                "signals": {},
                "hash": { "type": "string" },
            },
            "required": ["target", "manual_id", "path"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_string_or_an_object() {
        let spot = |line, print: Option<&str>, offset| Spot {
            line,
            print: print.map(|print| print.parse().unwrap()),
            offset,
            scope: None,
        };
        for (text, manual, path, want) in [
            ("book/ch16.md#L98", "book", "ch16.md", spot(Some(98), None, 0)),
            ("book/a/b.md", "book", "a/b.md", Spot::default()),
            ("book/b.md#L1~k3f9a2bcd", "book", "b.md", spot(Some(1), Some("k3f9a2bcd"), 0)),
            ("book/b.md#L1~k3f9a2bcd+80", "book", "b.md", spot(Some(1), Some("k3f9a2bcd"), 80)),
            ("book/b.md#L1+80", "book", "b.md", spot(Some(1), None, 80)),
            (
                "book/b.md#L1+80:file",
                "book",
                "b.md",
                Spot { scope: Some(Scope::File), ..spot(Some(1), None, 80) },
            ),
            ("book\\b.md#L1", "book", "b.md", spot(Some(1), None, 0)),
            ("./b.md#L1", ".", "b.md", spot(Some(1), None, 0)),
            ("b.md#L1", ".", "b.md", spot(Some(1), None, 0)),
            // A file name may contain these characters too.
            ("book/c#L3.md", "book", "c#L3.md", Spot::default()),
            ("book/c#L3.md#L4", "book", "c#L3.md", spot(Some(4), None, 0)),
            ("book/c.md#L0", "book", "c.md#L0", Spot::default()),
            ("book/c.md#L1+80:all", "book", "c.md#L1+80:all", Spot::default()),
            ("book/c.md#L1~short", "book", "c.md#L1~short", Spot::default()),
        ] {
            let got: Ref = serde_json::from_value(text.into()).unwrap();
            assert_eq!((&*got.manual_id, &*got.path, got.spot), (manual, path, want), "{text}");
        }
        for text in ["", "#L1", "/a.md", "book/"] {
            let error = serde_json::from_value::<Ref>(text.into()).unwrap_err().to_string();
            assert!(error.contains("names no file of a manual"), "{error}");
        }
        let object = serde_json::json!({ "target": "manual", "manual_id": "book", "path": "b.md", "start_line": 2.0,
            "title": "B", "hash": "k3f9a2bcd" });
        let got: Ref = serde_json::from_value(object).unwrap();
        assert_eq!(got.spot, spot(Some(2), Some("k3f9a2bcd"), 0));
    }
}
