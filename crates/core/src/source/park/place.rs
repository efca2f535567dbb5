//! Replaces handles by texts.

use std::collections::HashSet;
use std::sync::Arc;
use std::{fmt, io};

use crate::{RawJson, ToolError};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::source::park::handle::Handle;
use crate::source::park::shelf::Item;

/// The limit for the depth of a handle in the arguments, and for following references in a schema.
const MAX_DEPTH: usize = 32;

/// The limit for arguments after the replacement, and for those of all calls together: more than any front carries.
pub(crate) const MAX_BYTES: u32 = 256 << 20;

/// Arguments with handles, and what replaces them.
#[derive(Debug)]
pub(crate) struct Filling {
    parts: Vec<Part>,
    /// The size of the arguments with all texts.
    pub(crate) bytes: u32,
}

#[derive(Debug)]
enum Part {
    Written(Vec<u8>),
    /// The text of a kept result, as a JSON string.
    Quoted(Arc<Item>),
    /// The JSON of a kept result.
    Json(Arc<Item>),
}

impl Filling {
    /// Finds the handles in arguments; `None` if they have none. `find` returns the result of a handle.
    ///
    /// # Errors
    ///
    /// When a handle is not known, the argument does not accept the text, or the texts are too long.
    pub(crate) fn of(
        arguments: &RawJson,
        schema: &RawJson,
        find: &mut dyn FnMut(Handle) -> Result<Arc<Item>, ToolError>,
    ) -> Result<Option<Self>, ToolError> {
        if !Handle::may_be_in(arguments.as_str()) {
            return Ok(None);
        }
        let schema: Value = schema.decode().unwrap_or_default();
        let Ok(raw) = arguments.decode::<&RawValue>() else { return Ok(None) };
        let mut writer = Writer { root: &schema, find, parts: Vec::new(), out: Vec::new(), bytes: 0 };
        writer.write(raw, &schema, "", 0)?;
        if writer.parts.is_empty() {
            return Ok(None);
        }
        writer.end_part();
        let bytes = u32::try_from(writer.bytes).map_err(|error| refused("", &error.to_string()))?;
        Ok(Some(Self { parts: writer.parts, bytes }))
    }

    /// The arguments with each handle replaced by its text; `None` as soon as they are not wanted any more.
    ///
    /// # Errors
    ///
    /// When a text cannot be read.
    pub(crate) fn filled(self, is_wanted: impl Fn() -> bool) -> io::Result<Option<RawJson>> {
        let mut out = Vec::with_capacity(self.bytes as usize);
        for part in self.parts {
            if !is_wanted() {
                return Ok(None);
            }
            match part {
                Part::Written(text) => out.extend_from_slice(&text),
                Part::Quoted(item) => {
                    let text = item.load()?;
                    let text = std::str::from_utf8(&text).map_err(io::Error::other)?;
                    serde_json::to_writer(&mut out, text)?;
                }
                Part::Json(item) => out.extend_from_slice(&item.load()?),
            }
        }
        Ok(Some(RawJson::written(out)))
    }
}

/// Writes arguments anew. Parts without a handle are copied as they are.
struct Writer<'a> {
    root: &'a Value,
    find: &'a mut dyn FnMut(Handle) -> Result<Arc<Item>, ToolError>,
    parts: Vec<Part>,
    /// What follows the last of the parts.
    out: Vec<u8>,
    /// The size of all parts.
    bytes: u64,
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
        let item = (self.find)(handle)?;
        let is_quoted = takes_text(self.root, schema);
        if !is_quoted && !item.is_json {
            return Err(refused(path, "it takes JSON, and the result of the handle is plain text"));
        }
        self.end_part();
        self.bytes += if is_quoted { item.quoted_bytes } else { item.bytes };
        if self.bytes > u64::from(MAX_BYTES) {
            let reason = format!(
                "the arguments would have more than {MAX_BYTES} bytes with the texts of their handles"
            );
            return Err(refused(path, &reason));
        }
        self.parts.push(if is_quoted { Part::Quoted(item) } else { Part::Json(item) });
        Ok(())
    }

    fn end_part(&mut self) {
        self.bytes += self.out.len() as u64;
        self.parts.push(Part::Written(std::mem::take(&mut self.out)));
    }

    fn write_text(&mut self, text: &str) -> Result<(), ToolError> {
        serde_json::to_writer(&mut self.out, text).map_err(|error| refused("", &error.to_string()))
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

/// Whether a schema accepts a string. One without types does. Each schema is looked at once, however often it is
/// referred to.
fn takes_text(root: &Value, schema: &Value) -> bool {
    let is_string = |kind: &Value| kind == "string";
    let (mut seen, mut left) = (HashSet::new(), vec![schema]);
    while let Some(schema) = left.pop() {
        let schema = resolved(root, schema);
        if !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        let choices = ["anyOf", "oneOf"].iter().find_map(|choice| schema.get(choice)?.as_array());
        match (schema.get("type"), choices) {
            (Some(Value::Array(kinds)), _) if !kinds.iter().any(is_string) => {}
            (Some(kind), _) if !kind.is_array() && !is_string(kind) => {}
            (None, Some(choices)) => left.extend(choices),
            _ => return true,
        }
    }
    false
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
    use crate::source::park::shelf::Shelf;

    fn put(arguments: &str, schema: &Value, text: &str, is_json: bool) -> Result<Option<String>, String> {
        let arguments = RawJson::parse(arguments.to_owned()).unwrap();
        let (_, item) = Shelf::default().put(None, text.to_owned().into(), is_json).unwrap();
        let filling = Filling::of(&arguments, &RawJson::from(schema), &mut |_| Ok(Arc::clone(&item)));
        let Some(filling) = filling.map_err(|error| error.to_string())? else { return Ok(None) };
        let bytes = filling.bytes as usize;
        let filled = filling.filled(|| true).unwrap().unwrap();
        assert_eq!(filled.as_bytes().len(), bytes);
        Ok(Some(filled.to_string()))
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
