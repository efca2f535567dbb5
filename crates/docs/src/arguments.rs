//! The arguments of the tools. The types define the input schemas, and all arguments are decoded through
//! them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::limit::MAX_SOURCE_BYTES;
use crate::print::Print;
use crate::refusal::shown;

/// A whole number from 1 to `MAX`. `1000.0` is 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole<const MAX: usize>(usize);

/// A count. A number too large for the type becomes its maximum, and is lowered to a limit later.
pub(crate) type Count = Whole<{ usize::MAX }>;

/// A file has no more lines than bytes.
#[expect(clippy::cast_possible_truncation, reason = "64 MiB fit")]
const MAX_LINE: usize = MAX_SOURCE_BYTES as usize;

/// A line at which a section may start.
pub(crate) type Line = Whole<MAX_LINE>;

impl<const MAX: usize> Whole<MAX> {
    pub(crate) fn get(self) -> usize {
        self.0
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for Whole<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = match MAX {
            usize::MAX => "a whole number from 1 upwards".to_owned(),
            most => format!("a line number, whole and from 1 to {most}"),
        };
        // The raw text, because the number may be larger than any type.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let text = text.get();
        let is = match text.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => {
                return whole(text).filter(|value| *value <= MAX).map(Self).ok_or_else(|| {
                    de::Error::custom(format_args!("invalid value: `{}`, expected {expected}", shown(text)))
                });
            }
            Some(b'"') => "a string",
            Some(b'[') => "a sequence",
            Some(b'{') => "a map",
            Some(b'n') => "null",
            _ => "a boolean",
        };
        Err(de::Error::custom(format_args!("invalid type: {is}, expected {expected}")))
    }
}

/// A JSON number's value, if it is whole and at least 1. One too large for the type becomes its maximum.
fn whole(text: &str) -> Option<usize> {
    if let Ok(value) = text.parse::<usize>() {
        return (value > 0).then_some(value);
    }
    let value: f64 = text.parse().ok()?;
    if value < 1.0 || value.is_finite() && value.fract() != 0.0 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole and positive; what is too large saturates"
    )]
    Some(value as usize)
}

impl<const MAX: usize> JsonSchema for Whole<MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("Whole{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1 })
    }
}

/// Objects with exactly these members. Unlike serde's default, a list is not accepted as an object.
///
/// Each type is `remote = "Self"`, so that the implementation here can call the derived function; so are names.
macro_rules! objects {
    ($(
        $(#[$about:meta])*
        struct $object:ident { $($(#[$about_member:meta])* $member:ident: $type:ty,)* }
    )*) => {$(
        $(#[$about])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(remote = "Self", deny_unknown_fields)]
        pub(crate) struct $object { $($(#[$about_member])* pub(crate) $member: $type,)* }

        impl<'de> Deserialize<'de> for $object {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct ObjectVisitor;
                impl<'de> Visitor<'de> for ObjectVisitor {
                    type Value = $object;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$object, A::Error> {
                        <$object>::deserialize(MapAccessDeserializer::new(map))
                    }
                }
                deserializer.deserialize_map(ObjectVisitor)
            }
        }
    )*};
}

/// Enums of names; objects are not accepted. Variants have no doc comments, so that the schema is a plain `enum`.
macro_rules! names {
    ($($(#[$about:meta])* enum $name:ident { $($variant:ident,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(remote = "Self", rename_all = "snake_case")]
        pub(crate) enum $name { $($variant,)* }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = Cow::<'de, str>::deserialize(deserializer)?;
                <$name>::deserialize(name.into_deserializer())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$name>::serialize(self, serializer)
            }
        }
    )*};
}

names! {
    /// What a reference can point to.
    enum Target {
        // A section or file of a manual.
        Manual,
    }

    /// How much of a manual to read.
    enum Scope {
        // The section's own text, without its subsections.
        Snippet,
        // The section with its subsections.
        Section,
        // From the section on, up to `max_sections` headings.
        Sections,
        // The whole file.
        File,
    }

    /// What to do with a target.
    enum Mode {
        // Replace the existing content.
        Overwrite,
        // Add at the end, on a new line.
        Append,
    }
}

objects! {
    /// A place in a manual in full.
    struct RefObject {
        /// Always `manual`.
        target: Target,
        /// The manual.
        manual_id: String,
        /// The file, relative to the manual.
        path: String,
        /// The line at which the section starts; null or left out for the first section, and for `.json`.
        start_line: Option<Line>,
        /// Always null.
        json_path: Option<Value>,
        /// The section's title; a section with another title is not taken for it.
        title: Option<Value>,
        /// Anything said about the reference; not used.
        signals: Option<Value>,
        /// What stands after `~` in a short reference.
        hash: Option<String>,
    }

    /// How much at most; lowered to the server's hard limits.
    #[derive(Clone, Copy, Default)]
    struct Limits {
        max_sections: Option<Count>,
        max_chars: Option<Count>,
        allow_file: Option<bool>,
    }

    /// Takes nothing.
    struct ManualList {}

    struct ManualLs {
        /// Only this manual.
        manual_id: Option<String>,
        /// At most; default 200.
        limit: Option<Count>,
        /// `next` of the last answer.
        after: Option<String>,
    }

    struct ManualToc {
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

    struct ManualFind {
        /// Words, at most 1000 characters.
        query: String,
        /// Only in this manual.
        manual_id: Option<String>,
        /// At most; default 10.
        limit: Option<Count>,
        /// Scores and long snippets.
        full: Option<bool>,
    }

    struct ManualRead {
        #[serde(rename = "ref")]
        reference: Ref,
        /// How much of it.
        scope: Option<Scope>,
        /// Up to `max_chars` (8000), `max_sections`; `allow_file`: whole `.md`.
        limits: Option<Limits>,
    }

    struct VaultLs {
        /// The folder; default: the vault.
        #[serde(alias = "relative_dir")]
        path: Option<String>,
    }

    /// Lines from 1, both ends included.
    #[derive(Clone, Copy)]
    struct LineRange {
        start_line: Option<Count>,
        end_line: Option<Count>,
    }

    struct VaultRead {
        /// File in the vault.
        path: String,
        /// Lines from 1, both ends included.
        range: Option<LineRange>,
        /// All the server allows.
        full: Option<bool>,
        /// Its headings instead: `#L98 2 Title`.
        outline: Option<bool>,
        /// Up to `max_chars` (8000); `max_sections`, `allow_file` change nothing here.
        limits: Option<Limits>,
    }

    struct VaultCreate {
        /// New file in the vault.
        path: String,
        /// Its text.
        content: String,
    }

    struct VaultWrite {
        /// File in the vault.
        path: String,
        /// The text.
        content: String,
        /// Replace, or add at the end.
        mode: Mode,
    }

    struct VaultReplace {
        /// File in the vault.
        path: String,
        /// Text to be replaced.
        find: String,
        /// The new text.
        replace: String,
        /// At most; default 1.
        max_replacements: Option<Count>,
    }

    struct VaultFind {
        /// Words to find.
        query: String,
        /// At most; default 10.
        limit: Option<Count>,
    }

    /// One file of the vault.
    struct VaultPath {
        /// File in the vault.
        path: String,
    }

    struct CopySection {
        from_ref: Ref,
        /// File in the vault.
        to_path: String,
        /// Replace, or add at the end.
        mode: Mode,
        /// Up to `max_chars` (8000), `max_sections`; `allow_file`: whole `.md`.
        limits: Option<Limits>,
    }

    struct CopyFile {
        /// File in the manual, or `next`.
        from_path: String,
        /// The manual.
        manual_id: String,
        /// File in the vault.
        to_path: String,
        /// Replace, or add at the end.
        mode: Mode,
        /// Up to `max_chars` (8000), `max_sections`; `allow_file`: whole `.md`.
        limits: Option<Limits>,
    }
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
    /// The section's title.
    pub(crate) title: Option<String>,
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
        Some(Self { line: Some(line?), print, title: None, offset, scope })
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
        match path.split_once(['/', '\\']) {
            Some((manual_id, path)) if !manual_id.is_empty() && !path.is_empty() => {
                Ok(Ref { manual_id: manual_id.into(), path: path.into(), spot, json_path: None })
            }
            _ => Err(E::custom(format_args!("`{}` names no file of a manual", shown(text)))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Ref, A::Error> {
        let object = <RefObject as Deserialize>::deserialize(MapAccessDeserializer::new(map))?;
        let RefObject { target: Target::Manual, manual_id, path, start_line, json_path, title, hash, .. } =
            object;
        let print = match hash.as_deref().map(str::parse) {
            Some(Err(())) => {
                return Err(de::Error::custom("`hash` is not one that `manual_toc` gave; leave it out"));
            }
            Some(Ok(print)) => Some(print),
            None => None,
        };
        let title = title.and_then(|title| title.as_str().map(str::to_owned));
        let spot = Spot { line: start_line.map(Line::get), print, title, ..Spot::default() };
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
    fn a_count_is_a_whole_number_from_1() {
        let long = "9".repeat(400);
        for (want, texts) in [
            (Some(1), &["1"][..]),
            (Some(1000), &["1000.0", "1e3"]),
            (Some(usize::MAX), &["18446744073709551615", "99999999999999999999", "1e300", "1e400", &long]),
            (None, &["-1e400", "1e-400", "-0.0", "0", "0.0", "-1", "-1.0", "1.5"]),
            (None, &["null", "\"1\"", "true", "[1]", "{}"]),
        ] {
            for text in texts {
                assert_eq!(serde_json::from_str::<Count>(text).ok().map(Count::get), want, "{text}");
            }
        }
    }

    #[test]
    fn a_line_is_a_whole_number_that_a_file_can_have() {
        for (text, want) in [("1", 1), ("2.0", 2), ("2e0", 2), ("67108864", 67_108_864)] {
            assert_eq!(serde_json::from_str::<Line>(text).unwrap().get(), want, "{text}");
        }
        for text in ["67108865", "1e300", "1e400", "0", "-1", "2.5", "1e-400", "\"2\"", "true", "[2]"] {
            let error = serde_json::from_str::<Line>(text).unwrap_err().to_string();
            assert!(error.contains("whole and from 1 to 67108864"), "{text}: {error}");
        }
    }

    #[test]
    fn a_reference_is_a_string_or_an_object() {
        let spot = |line, print: Option<&str>, offset| Spot {
            line,
            print: print.map(|print| print.parse().unwrap()),
            title: None,
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
        for text in ["", "a.md", "/a.md", "book/"] {
            let error = serde_json::from_value::<Ref>(text.into()).unwrap_err().to_string();
            assert!(error.contains("names no file of a manual"), "{error}");
        }
        let object = serde_json::json!({ "target": "manual", "manual_id": "book", "path": "b.md", "start_line": 2.0,
            "title": "B", "hash": "k3f9a2bcd" });
        let got: Ref = serde_json::from_value(object).unwrap();
        assert_eq!(got.spot, Spot { title: Some("B".into()), ..spot(Some(2), Some("k3f9a2bcd"), 0) });
    }
}
