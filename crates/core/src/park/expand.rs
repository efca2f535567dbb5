//! Replaces handles by texts.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use crate::park::store::{MAX_EXPANDED_BYTES, Owner, PREFIX, Store, is_handle, unusable};
use crate::{RawJson, ToolError};

/// The limit for the depth of a handle in the arguments, and for following references in a schema.
const MAX_DEPTH: usize = 32;

/// Writes arguments anew. Parts without a handle are copied as they are.
struct Writer<'a> {
    store: &'a Store,
    owner: &'a Owner,
    /// The schema of the arguments.
    root: &'a Value,
    out: Vec<u8>,
    /// The memory for the texts that were put in.
    permit: Option<OwnedSemaphorePermit>,
}

/// The arguments with each handle replaced by its text, and the permit for its memory; `None` if they have no handle.
///
/// # Errors
///
/// When a handle is not known, the argument does not accept the text, or the texts are too long.
pub(crate) fn expand(
    store: &Store,
    owner: &Owner,
    arguments: &RawJson,
    schema: &RawJson,
) -> Result<Option<(RawJson, OwnedSemaphorePermit)>, ToolError> {
    let schema: Value = schema.decode().unwrap_or_default();
    let Ok(raw) = arguments.decode::<&RawValue>() else { return Ok(None) };
    let mut writer = Writer { store, owner, root: &schema, out: Vec::new(), permit: None };
    writer.write(raw, &schema, "", 0)?;
    Ok(writer.permit.map(|permit| (RawJson::written(writer.out), permit)))
}

impl Writer<'_> {
    fn write(&mut self, raw: &RawValue, schema: &Value, path: &str, depth: usize) -> Result<(), ToolError> {
        let text = raw.get();
        let schema = resolved(self.root, schema);
        if depth > MAX_DEPTH || !text.contains(PREFIX) {
            self.out.extend_from_slice(text.as_bytes());
        } else if let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
            let known = schema.get("properties");
            let others = schema.get("additionalProperties").unwrap_or(&Value::Null);
            for (index, (key, value)) in members.into_iter().enumerate() {
                self.out.push(if index == 0 { b'{' } else { b',' });
                let schema = known.and_then(|known| known.get(&key)).unwrap_or(others);
                let path = format!("{path}/{key}");
                self.out.extend_from_slice(Value::from(key).to_string().as_bytes());
                self.out.push(b':');
                self.write(value, schema, &path, depth + 1)?;
            }
            self.out.push(b'}');
        } else if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) {
            let schema = schema.get("items").unwrap_or(&Value::Null);
            for (index, item) in items.into_iter().enumerate() {
                self.out.push(if index == 0 { b'[' } else { b',' });
                self.write(item, schema, &format!("{path}/{index}"), depth + 1)?;
            }
            self.out.push(b']');
        } else {
            match serde_json::from_str::<String>(text) {
                Ok(handle) if is_handle(&handle) => self.put(&handle, schema, path)?,
                _ => self.out.extend_from_slice(text.as_bytes()),
            }
        }
        Ok(())
    }

    fn put(&mut self, handle: &str, schema: &Value, path: &str) -> Result<(), ToolError> {
        let refused =
            |reason: &str| unusable(&format!("argument `{path}` cannot be a handle here: {reason}"));
        let item = self.store.get(self.owner, handle)?;
        let is_quoted = takes_text(self.root, schema);
        if !is_quoted && !item.is_json {
            return Err(refused("it takes JSON, and the result of the handle is plain text"));
        }
        let bytes = if is_quoted { item.quoted_bytes } else { item.bytes };
        if self.out.len() + bytes > MAX_EXPANDED_BYTES {
            return Err(refused(&format!(
                "the arguments would have more than {MAX_EXPANDED_BYTES} bytes with the texts of their handles"
            )));
        }
        let permit = self.store.expand(bytes)?;
        match &mut self.permit {
            Some(all) => all.merge(permit),
            None => self.permit = Some(permit),
        }
        let text = item.load()?;
        if is_quoted {
            let text = std::str::from_utf8(&text).map_err(|error| refused(&error.to_string()))?;
            serde_json::to_writer(&mut self.out, text).map_err(|error| refused(&error.to_string()))?;
        } else {
            self.out.extend_from_slice(&text);
        }
        Ok(())
    }
}

/// Follows references within the same document.
fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..MAX_DEPTH {
        let Some(pointer) = schema.get("$ref").and_then(Value::as_str) else { break };
        let Some(target) = pointer.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) else { break };
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The arguments with `HANDLE` replaced by the handle of a kept text.
    fn put(arguments: &str, schema: &Value, text: &str, is_json: bool) -> Result<Option<String>, String> {
        let store = Store::default();
        let item = store.put(None, text.to_owned().into(), is_json).unwrap();
        let arguments = RawJson::parse(arguments.replace("HANDLE", &item.handle)).unwrap();
        let expanded = expand(&store, &None, &arguments, &RawJson::from(schema));
        Ok(expanded.map_err(|error| error.to_string())?.map(|(arguments, _)| arguments.to_string()))
    }

    #[test]
    fn a_handle_is_replaced_by_what_the_argument_takes() {
        let handle = "HANDLE";
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
        let handle = "HANDLE";
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
            let arguments = json!({ "text": "HANDLE", "other": text });
            let put = put(&arguments.to_string(), &json!({}), &text, false).unwrap().unwrap();
            let got: Value = serde_json::from_str(&put).unwrap();
            prop_assert_eq!(got, json!({ "text": text, "other": text }));
        }
    }
}
