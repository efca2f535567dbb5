//! What the tools take. The types are the input schemas, and the only door for arguments.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::limit::MAX_SOURCE_BYTES;
use crate::refusal::shown;

/// A whole number from 1 to `MAX`. `1000.0` is 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole<const MAX: usize>(usize);

/// How many; what is too large for the type is its largest value, and is lowered to a limit later.
pub(crate) type Count = Whole<{ usize::MAX }>;

/// A line at which a section may start. No file that is read has more lines than bytes.
#[expect(clippy::cast_possible_truncation, reason = "64 MiB fit")]
pub(crate) type Line = Whole<{ MAX_SOURCE_BYTES as usize }>;

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
        // As it is written: it may be larger than any type.
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

/// A JSON number's value, if it is whole and not below 1. What is too large for the type is its largest value.
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

/// Members that a tool takes, and no others. A list is no object: the schemas say so, and serde does not.
///
/// Each type is `remote = "Self"`, so that its derived function is there to be called from here; and so are names.
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

/// One of a few names. An object is none. Variants have no doc comments, so that the schema is a plain `enum`.
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
        // From the section on, through `max_sections` headings.
        Sections,
        // The whole file.
        File,
    }

    /// What to do with a target.
    enum Mode {
        // Replace what is there.
        Overwrite,
        // Add at the end, on a new line.
        Append,
    }
}

objects! {
    /// A place in a manual. Take it as `manual_toc` or `manual_find` gave it.
    #[derive(Clone)]
    struct Ref {
        /// Always `manual`.
        target: Target,
        /// The manual, as in `manual_list`.
        manual_id: String,
        /// The file, relative to the manual.
        path: String,
        /// The line at which the section starts; null or left out for the first section, and for `.json`.
        start_line: Option<Line>,
        /// Always null.
        json_path: Option<Value>,
        /// The section's title; not used.
        title: Option<Value>,
        /// Anything said about the reference; not used.
        signals: Option<Value>,
    }

    /// How much a call may move. Values above the server's hard limits are lowered to them.
    #[derive(Clone, Copy, Default)]
    struct Limits {
        /// At most so many headings with the text below them, counted from the first. What comes after them is left
        /// out, and `truncated` says so. The scope `sections` takes 20 if it is left out, a copy takes all; other
        /// scopes do not ask for it, and a `.json` counts as one.
        max_sections: Option<Count>,
        /// At most so many characters; 8000 if left out, for `.json` the server's hard limit. What is longer is
        /// cut, and `truncated` says so; but a `.json` of a manual is cut only if this is given, and refused
        /// otherwise.
        max_chars: Option<Count>,
        /// Whether a whole `.md` file is meant; the server must allow it too.
        allow_file: Option<bool>,
    }

    /// Takes nothing.
    struct ManualList {}

    struct ManualLs {
        /// Only this manual, as in `manual_list`; all of them if left out.
        manual_id: Option<String>,
    }

    struct ManualToc {
        /// The manual, as in `manual_list`.
        manual_id: String,
    }

    struct ManualFind {
        /// Words to look for, in any language, 1,000 characters at most. Case and character width do not matter.
        #[schemars(length(max = 1000))]
        query: String,
        /// Only in this manual; in all of them if left out.
        manual_id: Option<String>,
        /// At most so many sections; 10 if left out. Lowered to the server's hard limit of sections.
        limit: Option<Count>,
    }

    struct ManualRead {
        /// What to read, as `manual_toc` or `manual_find` gave it.
        #[serde(rename = "ref")]
        reference: Ref,
        /// How much of it; `snippet` if left out, for `.json` `file`.
        scope: Option<Scope>,
        /// How much at most.
        limits: Option<Limits>,
    }

    struct VaultLs {
        /// The folder, relative to the vault; the vault itself if left out.
        relative_dir: Option<String>,
    }

    /// Lines; they count from 1, and both ends are included.
    #[derive(Clone, Copy)]
    struct LineRange {
        /// The first line; 1 if left out.
        start_line: Option<Count>,
        /// The last line; the file's last if left out.
        end_line: Option<Count>,
    }

    struct VaultRead {
        /// The file, relative to the vault.
        path: String,
        /// Which lines; all if left out.
        range: Option<LineRange>,
        /// As much as the server's hard limit allows, from the start. Not together with `range`.
        full: Option<bool>,
        /// How much at most; only `max_chars` matters here.
        limits: Option<Limits>,
    }

    struct VaultCreate {
        /// The new file, relative to the vault. Missing folders are made.
        path: String,
        /// Its text.
        content: String,
    }

    struct VaultWrite {
        /// The file, relative to the vault. It must exist.
        path: String,
        /// The text.
        content: String,
        /// Whether it replaces what is there or is added at the end.
        mode: Mode,
    }

    struct VaultReplace {
        /// The file, relative to the vault.
        path: String,
        /// The text to be replaced, exactly as it stands there.
        find: String,
        /// What to put in its place.
        replace: String,
        /// At most so many places, from the start; 1 if left out. Lowered to 10,000.
        max_replacements: Option<Count>,
    }

    struct CopySection {
        /// What to copy, as `manual_toc` or `manual_find` gave it.
        from_ref: Ref,
        /// The target, relative to the vault. It and its folders are made if they are missing.
        to_path: String,
        /// Whether the copy replaces what is there or is added at the end.
        mode: Mode,
        /// How much at most.
        limits: Option<Limits>,
    }

    struct CopyFile {
        /// The file to copy, relative to the manual.
        from_path: String,
        /// The manual, as in `manual_list`.
        manual_id: String,
        /// The target, relative to the vault. It and its folders are made if they are missing.
        to_path: String,
        /// Whether the copy replaces what is there or is added at the end.
        mode: Mode,
        /// How much at most. For a whole `.md`, `allow_file` must be true.
        limits: Option<Limits>,
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
}
