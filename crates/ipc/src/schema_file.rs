//! The file that tells a bridge which tools there are.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolbridge_core::{RawJson, ToolList, ToolSchema};

use crate::IpcError;

/// One tool as the file has it: the protocol's three fields, and those that may be left out.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "an object")]
struct Entry<'a> {
    name: String,
    description: String,
    #[serde(borrow)]
    input_schema: &'a RawValue,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
}

/// Reads a schema file.
///
/// # Errors
///
/// [`IpcError::SchemaFile`] when it cannot be read, is not a JSON array of tools, or has an empty or a
/// duplicate name.
pub fn read_schema_file(path: &Path) -> Result<ToolList, IpcError> {
    let bad = |reason: String| IpcError::SchemaFile { path: path.into(), reason };
    let text = fs::read(path).map_err(|error| bad(format!("cannot be read: {error}")))?;
    parse_schema_file(&text.into()).map_err(bad)
}

/// Reads the text of a schema file.
///
/// # Errors
///
/// What is wrong with it, to be put behind the file's name.
pub fn parse_schema_file(text: &Bytes) -> Result<ToolList, String> {
    let utf8 = std::str::from_utf8(text).map_err(|error| format!("is not UTF-8: {error}"))?;
    let entries: Vec<Entry<'_>> = serde_json::from_str(utf8).map_err(|error| fault(utf8, &error))?;
    let tools = entries.into_iter().enumerate().map(|(place, entry)| check(place, entry, text));
    ToolList::new(tools.collect::<Result<_, _>>()?).map_err(|error| format!("cannot be used: {error}"))
}

/// Why a text is no list of tools, after `error` has said that it is none.
fn fault(text: &str, error: &serde_json::Error) -> String {
    let items: Vec<&RawValue> = match serde_json::from_str(text) {
        Ok(items) => items,
        Err(error) if error.is_data() => return "is not a JSON array".into(),
        Err(error) => return format!("is not JSON: {error}"),
    };
    let faults = items.iter().zip(1..).find_map(|(item, number)| {
        let error = serde_json::from_str::<Entry<'_>>(item.get()).err()?;
        Some(format!("has a tool that cannot be used, number {number}: {error}"))
    });
    faults.unwrap_or_else(|| format!("cannot be used: {error}"))
}

fn check(place: usize, entry: Entry<'_>, text: &Bytes) -> Result<ToolSchema, String> {
    if entry.name.is_empty() {
        return Err(format!("has a tool with an empty name, number {}", place + 1));
    }
    let object = |member: &str, value: &RawValue| {
        if value.get().starts_with('{') {
            return Ok(RawJson::span(text, value));
        }
        Err(format!("has a tool `{}` whose `{member}` is not a JSON object", entry.name))
    };
    let optional =
        |member: &str, value: Option<&RawValue>| value.map(|value| object(member, value)).transpose();
    let input_schema = object("input_schema", entry.input_schema)?;
    let output_schema = optional("output_schema", entry.output_schema)?;
    let annotations = optional("annotations", entry.annotations)?;
    let meta = optional("meta", entry.meta)?;
    let mut tool = ToolSchema::new(entry.name, entry.description, input_schema);
    (tool.title, tool.output_schema) = (entry.title, output_schema);
    (tool.annotations, tool.meta) = (annotations, meta);
    Ok(tool)
}

/// The text of a schema file for `tools`.
#[must_use]
pub fn write_schema_file(tools: &ToolList) -> Vec<u8> {
    fn raw(json: &RawJson) -> &RawValue {
        serde_json::from_str(json.as_str()).expect("raw JSON is JSON by construction")
    }
    let entries: Vec<_> = tools
        .iter()
        .map(|tool| Entry {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: raw(&tool.input_schema),
            title: tool.title.clone(),
            output_schema: tool.output_schema.as_ref().map(raw),
            annotations: tool.annotations.as_ref().map(raw),
            meta: tool.meta.as_ref().map(raw),
        })
        .collect();
    serde_json::to_vec(&entries).expect("strings and raw JSON can always be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_only_the_three_fields_loads_and_comes_back_the_same() {
        let text = r#"[{"name":"a","description":"A","input_schema":{"type": "object"}}]"#;
        let tools = parse_schema_file(&text.into()).unwrap();
        assert_eq!(write_schema_file(&tools), text.as_bytes());
    }

    #[test]
    fn everything_optional_survives() {
        let text = r#"[{"name":"a","description":"A","input_schema":{},"title":"T","output_schema":{"x":1},"annotations":{"readOnlyHint":true,"new":1},"meta":{"m":[]}}]"#;
        let tools = parse_schema_file(&text.into()).unwrap();
        assert_eq!(write_schema_file(&tools), text.as_bytes());
    }

    #[test]
    fn unknown_fields_and_nulls_are_fine() {
        let text = r#"[{"name":"a","description":"","input_schema":{},"title":null,"meta":null,"new":5}]"#;
        assert!(parse_schema_file(&text.into()).unwrap().get("a").unwrap().meta.is_none());
    }

    #[test]
    fn a_bad_file_says_what_is_wrong() {
        let tool = r#"{"name":"a","description":"","input_schema":{}}"#;
        let rows = [
            ("{", "is not a JSON array"),
            ("[", "is not JSON: EOF while parsing a list at line 1 column 1"),
            ("", "is not JSON: EOF while parsing a value at line 1 column 0"),
            ("{}", "is not a JSON array"),
            (
                "[1]",
                "has a tool that cannot be used, number 1: invalid type: integer `1`, expected an object at line 1 column 1",
            ),
            (&format!("[{tool},{tool}]"), "cannot be used: two tools are called `a`"),
            (
                r#"[{"name":"","description":"","input_schema":{}}]"#,
                "has a tool with an empty name, number 1",
            ),
            (
                r#"[{"description":"","input_schema":{}}]"#,
                "has a tool that cannot be used, number 1: missing field `name` at line 1 column 36",
            ),
            (
                r#"[{"name":"a","description":"","input_schema":[]}]"#,
                "has a tool `a` whose `input_schema` is not a JSON object",
            ),
        ];
        for (text, want) in rows {
            assert_eq!(parse_schema_file(&text.to_owned().into()).unwrap_err(), want, "{text}");
        }
        assert!(
            parse_schema_file(&Bytes::from_static(b"[\"\xff\"]")).unwrap_err().starts_with("is not UTF-8")
        );
    }
}
