//! Replaces handles by texts.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize as _};
use serde_json::Value;
use serde_json::value::RawValue;
use toolbridge_core::{RawJson, ToolError};

use crate::handle::Handle;

/// The limit for the depth of a handle in the arguments, and for following references in a schema.
const MAX_DEPTH: usize = 32;

/// The limit for arguments after the replacement: more than any front carries.
const MAX_BYTES: usize = 256 << 20;

/// The text of a handle.
pub(crate) struct Text {
    pub(crate) text: bytes::Bytes,
    pub(crate) is_json: bool,
}

/// The arguments with each handle replaced by its text; `None` if they have no handle.
///
/// `load` finds the text of a handle.
///
/// # Errors
///
/// When a handle is not known, or the argument does not accept the text.
pub(crate) fn put_in_place(
    arguments: &RawJson,
    schema: &RawJson,
    load: &mut dyn FnMut(Handle) -> Result<Text, ToolError>,
) -> Result<Option<RawJson>, ToolError> {
    if !Handle::may_be_in(arguments.as_str()) {
        return Ok(None);
    }
    let schema: Value = schema.decode().unwrap_or_default();
    let mut writer = Writer { root: &schema, load, out: Vec::new(), has_put: false };
    let raw: &RawValue = match arguments.decode() {
        Ok(raw) => raw,
        Err(_) => return Ok(None),
    };
    writer.write(raw, &schema, "", 0)?;
    Ok(writer.has_put.then(|| RawJson::written(writer.out)))
}

/// Writes arguments anew. Parts without a handle are copied as they are.
struct Writer<'a> {
    root: &'a Value,
    load: &'a mut dyn FnMut(Handle) -> Result<Text, ToolError>,
    out: Vec<u8>,
    has_put: bool,
}

impl Writer<'_> {
    fn write(&mut self, raw: &RawValue, schema: &Value, path: &str, depth: usize) -> Result<(), ToolError> {
        let text = raw.get();
        let schema = resolved(self.root, schema);
        match text.as_bytes().first() {
            _ if !Handle::may_be_in(text) || depth > MAX_DEPTH => self.out.extend_from_slice(text.as_bytes()),
            Some(b'"') => {
                let handle = serde_json::from_str::<String>(text).ok().and_then(|text| Handle::parse(&text));
                match handle {
                    Some(handle) => self.put(handle, schema, path)?,
                    None => self.out.extend_from_slice(text.as_bytes()),
                }
            }
            Some(b'{') => {
                let Members(members) = serde_json::from_str(text).unwrap_or_default();
                let known = schema.get("properties");
                let others = schema.get("additionalProperties").unwrap_or(&Value::Null);
                self.out.push(b'{');
                for (place, (key, value)) in members.iter().enumerate() {
                    if place > 0 {
                        self.out.push(b',');
                    }
                    self.write_text(key)?;
                    self.out.push(b':');
                    let schema = known.and_then(|known| known.get(key)).unwrap_or(others);
                    self.write(value, schema, &format!("{path}/{key}"), depth + 1)?;
                }
                self.out.push(b'}');
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
                let schema = schema.get("items").unwrap_or(&Value::Null);
                self.out.push(b'[');
                for (place, item) in items.into_iter().enumerate() {
                    if place > 0 {
                        self.out.push(b',');
                    }
                    self.write(item, schema, &format!("{path}/{place}"), depth + 1)?;
                }
                self.out.push(b']');
            }
            _ => self.out.extend_from_slice(text.as_bytes()),
        }
        Ok(())
    }

    fn put(&mut self, handle: Handle, schema: &Value, path: &str) -> Result<(), ToolError> {
        let Text { text, is_json } = (self.load)(handle)?;
        if self.out.len() + text.len() > MAX_BYTES {
            let reason = format!(
                "the arguments would have more than {MAX_BYTES} bytes with the texts of their handles"
            );
            return Err(refused(path, &reason));
        }
        self.has_put = true;
        if takes_text(self.root, schema, 0) {
            let text = std::str::from_utf8(&text).map_err(|error| refused(path, &error.to_string()))?;
            return self.write_text(text);
        }
        if !is_json {
            return Err(refused(path, "it takes JSON, and the result of the handle is plain text"));
        }
        self.out.extend_from_slice(&text);
        Ok(())
    }

    fn write_text(&mut self, text: &str) -> Result<(), ToolError> {
        let mut serializer = serde_json::Serializer::new(&mut self.out);
        text.serialize(&mut serializer).map_err(|error| refused("", &error.to_string()))
    }
}

fn refused(path: &str, reason: &str) -> ToolError {
    ToolError::new("ParkedHandleError", format!("argument `{path}` cannot be a handle here: {reason}"))
}

/// Follows references within the same document.
fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..MAX_DEPTH {
        let Some(place) = schema.get("$ref").and_then(Value::as_str) else { break };
        let Some(target) = place.strip_prefix('#').and_then(|place| root.pointer(place)) else { break };
        schema = target;
    }
    schema
}

/// Whether a schema accepts a string. One without types does.
fn takes_text(root: &Value, schema: &Value, depth: usize) -> bool {
    let schema = resolved(root, schema);
    let is_string = |kind: &Value| kind == "string";
    if let Some(kind) = schema.get("type") {
        return is_string(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(is_string));
    }
    let choices = ["anyOf", "oneOf"].iter().find_map(|choice| schema.get(choice)?.as_array());
    match choices {
        Some(choices) if depth < MAX_DEPTH => choices.iter().any(|one| takes_text(root, one, depth + 1)),
        _ => true,
    }
}

/// An object's members in order, unparsed.
#[derive(Default)]
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn put(arguments: &str, schema: &Value, text: &str, is_json: bool) -> Result<Option<String>, String> {
        let arguments = RawJson::parse(arguments.to_owned()).unwrap();
        let mut load = |_| Ok(Text { text: text.to_owned().into(), is_json });
        let outcome = put_in_place(&arguments, &RawJson::from(schema), &mut load);
        outcome.map(|put| put.map(|put| put.to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn a_handle_is_replaced_by_what_the_argument_takes() {
        let handle = Handle::new().to_string();
        let schema = json!({
            "$defs": { "Note": { "type": "object", "properties": { "body": { "type": "string" } } } },
            "properties": {
                "text": { "type": "string" },
                "maybe": { "type": ["string", "null"] },
                "either": { "anyOf": [{ "type": "object" }, { "type": "string" }] },
                "data": { "type": "object" },
                "note": { "$ref": "#/$defs/Note" },
                "lines": { "type": "array", "items": { "type": "string" } },
            },
        });
        let text = "{\"a\": \"\u{e9}\\n\"}";
        let quoted = serde_json::to_string(text).unwrap();
        for (arguments, want) in [
            (format!(r#"{{"text":"{handle}"}}"#), format!(r#"{{"text":{quoted}}}"#)),
            (format!(r#"{{"maybe":"{handle}"}}"#), format!(r#"{{"maybe":{quoted}}}"#)),
            (format!(r#"{{"either":"{handle}"}}"#), format!(r#"{{"either":{quoted}}}"#)),
            (format!(r#"{{"unknown":"{handle}"}}"#), format!(r#"{{"unknown":{quoted}}}"#)),
            (format!(r#"{{"data":"{handle}"}}"#), format!(r#"{{"data":{text}}}"#)),
            (format!(r#"{{"note":{{"body":"{handle}"}}}}"#), format!(r#"{{"note":{{"body":{quoted}}}}}"#)),
            (format!(r#"{{"lines":["a","{handle}"]}}"#), format!(r#"{{"lines":["a",{quoted}]}}"#)),
            // The surrounding text stays as it is.
            (
                format!(r#"{{ "n": 1.0e400, "text" : "{handle}", "z": {{ "n" : 12345678901234567890 }} }}"#),
                format!(r#"{{"n":1.0e400,"text":{quoted},"z":{{ "n" : 12345678901234567890 }}}}"#),
            ),
        ] {
            assert_eq!(put(&arguments, &schema, text, true), Ok(Some(want)), "{arguments}");
        }
        let error = put(&format!(r#"{{"data":"{handle}"}}"#), &schema, "plain", false).unwrap_err();
        assert!(error.contains("`/data`") && error.contains("plain text"), "{error}");
    }

    #[test]
    fn text_without_a_handle_is_unchanged() {
        let handle = Handle::new().to_string();
        for arguments in [
            r#"{"a":1}"#.to_owned(),
            r#"{"a":"parked: the car"}"#.to_owned(),
            format!(r#"{{"a":"see {handle}"}}"#),
            format!(r#"{{"a":"{handle} "}}"#),
            format!(r#"{{"a":"\"{handle}\""}}"#),
            format!(r#"{{"{handle}":1}}"#),
        ] {
            assert_eq!(put(&arguments, &json!({}), "text", false), Ok(None), "{arguments}");
        }
    }

    proptest! {
        #[test]
        fn any_text_arrives_byte_for_byte(text in any::<String>()) {
            let arguments = json!({ "text": Handle::new().to_string(), "other": text });
            let put = put(&arguments.to_string(), &json!({}), &text, false).unwrap().unwrap();
            let got: Value = serde_json::from_str(&put).unwrap();
            prop_assert_eq!(got, json!({ "text": text, "other": text }));
        }
    }
}
