//! What the arguments of several tools are made of. The types define the input schemas, and all arguments are
//! decoded through them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limit::MAX_SOURCE_BYTES;
use crate::refusal::shown;

/// A whole number from 1 to `MAX`. `1000.0` is 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Whole<const MAX: usize>(usize);

/// A count. A number too large for the type becomes its maximum, and is lowered to a limit later.
pub(crate) type Count = Whole<{ usize::MAX }>;

/// A file has no more lines than bytes.
#[expect(clippy::cast_possible_truncation, reason = "64 MiB fit")]
pub(crate) const MAX_LINE: usize = MAX_SOURCE_BYTES as usize;

/// A line at which a section may start.
pub(crate) type Line = Whole<MAX_LINE>;

impl<const MAX: usize> Whole<MAX> {
    pub(crate) fn new(number: usize) -> Self {
        Self(number)
    }

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

/// What a reference can point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// A section or file of a manual.
    Manual,
}

// Variants of arguments have no doc comments, so that the schema is a plain `enum`.

/// How much of a manual to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    // Replace the existing content.
    Overwrite,
    // Add at the end, on a new line.
    Append,
}

/// How much at most; lowered to the server's hard limits.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) max_sections: Option<Count>,
    pub(crate) max_chars: Option<Count>,
    pub(crate) allow_file: Option<bool>,
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
