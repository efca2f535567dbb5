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

/// What the schemas say and serde does not: a list is no object, and an object no name.
///
/// Each type is `remote = "Self"`, so that its derived function is there to be called from here.
macro_rules! only {
    (object: $($object:ident),* ; name: $($name:ident),* $(;)?) => {
        $(impl<'de> Deserialize<'de> for $object {
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
        })*
        $(impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = Cow::<'de, str>::deserialize(deserializer)?;
                <$name>::deserialize(name.into_deserializer())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$name>::serialize(self, serializer)
            }
        })*
    };
}

only! {
    object: Ref, Limits, LineRange, ManualList, ManualLs, ManualToc, ManualFind, ManualRead, VaultLs, VaultRead,
        VaultCreate, VaultWrite, VaultReplace, CopySection, CopyFile;
    name: Target, Scope, Mode;
}

/// What a reference can point to.
//
// Variants have no doc comments, so that the schema is a plain `enum`: here, and in `Scope` and `Mode`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub(crate) enum Target {
    // A section or file of a manual.
    Manual,
}

/// A place in a manual. Take it as `manual_toc` or `manual_find` gave it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct Ref {
    /// Always `manual`.
    pub(crate) target: Target,
    /// The manual, as in `manual_list`.
    pub(crate) manual_id: String,
    /// The file, relative to the manual.
    pub(crate) path: String,
    /// The line at which the section starts; null or left out for the first section, and for `.json`.
    pub(crate) start_line: Option<Line>,
    /// Always null.
    pub(crate) json_path: Option<Value>,
    /// The section's title; not used.
    pub(crate) title: Option<Value>,
    /// Anything said about the reference; not used.
    pub(crate) signals: Option<Value>,
}

/// How much a call may move. Values above the server's hard limits are lowered to them.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct Limits {
    /// At most so many headings with the text below them, counted from the first. What comes after them is left
    /// out, and `truncated` says so. The scope `sections` takes 20 if it is left out, a copy takes all; other
    /// scopes do not ask for it, and a `.json` counts as one.
    pub(crate) max_sections: Option<Count>,
    /// At most so many characters; 8000 if left out, for `.json` the server's hard limit. What is longer is
    /// cut, and `truncated` says so; but a `.json` of a manual is cut only if this is given, and refused
    /// otherwise.
    pub(crate) max_chars: Option<Count>,
    /// Whether a whole `.md` file is meant; the server must allow it too.
    pub(crate) allow_file: Option<bool>,
}

/// How much of a manual to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub(crate) enum Scope {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub(crate) enum Mode {
    // Replace what is there.
    Overwrite,
    // Add at the end, on a new line.
    Append,
}

/// Takes nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct ManualList {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct ManualLs {
    /// Only this manual, as in `manual_list`; all of them if left out.
    pub(crate) manual_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct ManualToc {
    /// The manual, as in `manual_list`.
    pub(crate) manual_id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct ManualFind {
    /// Words to look for, in any language, 1,000 characters at most. Case and character width do not matter.
    #[schemars(length(max = 1000))]
    pub(crate) query: String,
    /// Only in this manual; in all of them if left out.
    pub(crate) manual_id: Option<String>,
    /// At most so many sections; 10 if left out. Lowered to the server's hard limit of sections.
    pub(crate) limit: Option<Count>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct ManualRead {
    /// What to read, as `manual_toc` or `manual_find` gave it.
    #[serde(rename = "ref")]
    pub(crate) reference: Ref,
    /// How much of it; `snippet` if left out, for `.json` `file`.
    pub(crate) scope: Option<Scope>,
    /// How much at most.
    pub(crate) limits: Option<Limits>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct VaultLs {
    /// The folder, relative to the vault; the vault itself if left out.
    pub(crate) relative_dir: Option<String>,
}

/// Lines; they count from 1, and both ends are included.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct LineRange {
    /// The first line; 1 if left out.
    pub(crate) start_line: Option<Count>,
    /// The last line; the file's last if left out.
    pub(crate) end_line: Option<Count>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct VaultRead {
    /// The file, relative to the vault.
    pub(crate) path: String,
    /// Which lines; all if left out.
    pub(crate) range: Option<LineRange>,
    /// As much as the server's hard limit allows, from the start. Not together with `range`.
    pub(crate) full: Option<bool>,
    /// How much at most; only `max_chars` matters here.
    pub(crate) limits: Option<Limits>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct VaultCreate {
    /// The new file, relative to the vault. Missing folders are made.
    pub(crate) path: String,
    /// Its text.
    pub(crate) content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct VaultWrite {
    /// The file, relative to the vault. It must exist.
    pub(crate) path: String,
    /// The text.
    pub(crate) content: String,
    /// Whether it replaces what is there or is added at the end.
    pub(crate) mode: Mode,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct VaultReplace {
    /// The file, relative to the vault.
    pub(crate) path: String,
    /// The text to be replaced, exactly as it stands there.
    pub(crate) find: String,
    /// What to put in its place.
    pub(crate) replace: String,
    /// At most so many places, from the start; 1 if left out. Lowered to 10,000.
    pub(crate) max_replacements: Option<Count>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct CopySection {
    /// What to copy, as `manual_toc` or `manual_find` gave it.
    pub(crate) from_ref: Ref,
    /// The target, relative to the vault. It and its folders are made if they are missing.
    pub(crate) to_path: String,
    /// Whether the copy replaces what is there or is added at the end.
    pub(crate) mode: Mode,
    /// How much at most.
    pub(crate) limits: Option<Limits>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct CopyFile {
    /// The file to copy, relative to the manual.
    pub(crate) from_path: String,
    /// The manual, as in `manual_list`.
    pub(crate) manual_id: String,
    /// The target, relative to the vault. It and its folders are made if they are missing.
    pub(crate) to_path: String,
    /// Whether the copy replaces what is there or is added at the end.
    pub(crate) mode: Mode,
    /// How much at most. For a whole `.md`, `allow_file` must be true.
    pub(crate) limits: Option<Limits>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_a_whole_number_from_1() {
        for (text, want) in [
            ("1", Some(1)),
            ("1000.0", Some(1000)),
            ("1e3", Some(1000)),
            ("18446744073709551615", Some(usize::MAX)),
            ("99999999999999999999", Some(usize::MAX)),
            ("1e300", Some(usize::MAX)),
            ("1e400", Some(usize::MAX)),
            (&"9".repeat(400), Some(usize::MAX)),
            ("-1e400", None),
            ("1e-400", None),
            ("-0.0", None),
            ("null", None),
            ("0", None),
            ("0.0", None),
            ("-1", None),
            ("-1.0", None),
            ("1.5", None),
            ("\"1\"", None),
            ("true", None),
            ("[1]", None),
            ("{}", None),
        ] {
            assert_eq!(serde_json::from_str::<Count>(text).ok().map(Count::get), want, "{text}");
        }
    }

    #[test]
    fn a_line_is_a_whole_number_that_a_file_can_have() {
        for (text, want) in [
            ("1", Some(1)),
            ("2.0", Some(2)),
            ("2e0", Some(2)),
            ("67108864", Some(67_108_864)),
            ("67108865", None),
            ("1e300", None),
            ("1e400", None),
            ("0", None),
            ("-1", None),
            ("2.5", None),
            ("1e-400", None),
            ("\"2\"", None),
            ("true", None),
            ("[2]", None),
        ] {
            let line = serde_json::from_str::<Line>(text);
            assert_eq!(line.as_ref().ok().map(|line| line.get()), want, "{text}");
            if let Err(error) = line {
                assert!(error.to_string().contains("whole and from 1 to 67108864"), "{text}: {error}");
            }
        }
    }
}
