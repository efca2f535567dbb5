//! Schemas that can be checked without decoding anything.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::json::{Fault, Span, Walk};

/// The schema of an object whose properties are all plain: strings, booleans, numbers and nulls, and
/// nothing more is said of them.
///
/// Most tools have one, and large arguments are mostly text; a tree of them is then not needed.
#[derive(Debug)]
pub(crate) struct Flat {
    properties: HashMap<String, Property>,
    required: usize,
}

#[derive(Debug, Clone, Copy)]
struct Property {
    /// The kinds its value may be of.
    kinds: u8,
    required: bool,
}

const STRING: u8 = 1;
const BOOLEAN: u8 = 2;
const NULL: u8 = 4;
const INTEGER: u8 = 8;
const FRACTION: u8 = 16;

impl Flat {
    /// `None` when the schema says more than that. `describes` tells keywords that check nothing.
    pub(crate) fn of(root: &Map<String, Value>, describes: impl Fn(&str) -> bool) -> Option<Self> {
        let mut flat = Self { properties: HashMap::new(), required: 0 };
        for (keyword, value) in root {
            match keyword.as_str() {
                "properties" => {
                    for (name, schema) in value.as_object()? {
                        let kinds = kinds(schema, &describes)?;
                        flat.properties.insert(name.clone(), Property { kinds, required: false });
                    }
                }
                "required" => {}
                keyword if describes(keyword) => {}
                _ => return None,
            }
        }
        for name in root.get("required").and_then(Value::as_array).into_iter().flatten() {
            let property = flat.properties.get_mut(name.as_str()?)?;
            flat.required += usize::from(!std::mem::replace(&mut property.required, true));
        }
        Some(flat)
    }

    /// Whether the object `text` fits. `false` only says that it has to be looked at more closely.
    pub(crate) fn surely_fits(&self, text: &str) -> bool {
        Walk::new(text).is_some_and(|walk| self.fits(walk).unwrap_or(false))
    }

    fn fits(&self, mut object: Walk<'_>) -> Result<bool, Fault> {
        let mut missing = self.required;
        while let Some(key) = object.next_key()? {
            let value = object.value()?;
            let Some(name) = key.name() else { return Ok(false) };
            let Some(property) = self.properties.get(&*name) else { continue };
            if kind(value).is_none_or(|kind| kind & property.kinds == 0) {
                return Ok(false);
            }
            // A member that stands twice must not count for one that is missing.
            match (property.required, missing) {
                (false, _) => {}
                (true, 0) => return Ok(false),
                (true, _) => missing -= 1,
            }
        }
        Ok(missing == 0)
    }
}

fn kinds(schema: &Value, describes: &impl Fn(&str) -> bool) -> Option<u8> {
    fn of(name: &Value) -> Option<u8> {
        Some(match name.as_str()? {
            "string" => STRING,
            "boolean" => BOOLEAN,
            "null" => NULL,
            "integer" => INTEGER,
            "number" => INTEGER | FRACTION,
            _ => return None,
        })
    }
    let schema = schema.as_object()?;
    let plain = |(keyword, value): (&String, &Value)| match keyword.as_str() {
        // How wide a number is in Rust; JSON Schema knows no such formats.
        "format" => matches!(value.as_str(), Some("double" | "float" | "int32" | "int64")),
        keyword => describes(keyword),
    };
    if !schema.iter().all(plain) {
        return None;
    }
    match schema.get("type")? {
        Value::Array(names) => names.iter().try_fold(0, |kinds, name| Some(kinds | of(name)?)),
        name => of(name),
    }
}

fn kind(value: Span<'_>) -> Option<u8> {
    let text = value.get().as_bytes();
    Some(match text.first()? {
        b'"' => STRING,
        b't' | b'f' => BOOLEAN,
        b'n' => NULL,
        b'-' | b'0'..=b'9' if text.iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9')) => INTEGER,
        b'-' | b'0'..=b'9' => FRACTION,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn flat(schema: &Value) -> Option<Flat> {
        Flat::of(schema.as_object().unwrap(), |keyword| matches!(keyword, "type" | "description"))
    }

    #[test]
    fn only_plain_properties_are_flat() {
        let with =
            |property: Value| flat(&json!({ "type": "object", "properties": { "a": property } })).is_some();
        for plain in [
            json!({ "type": "string", "description": "x" }),
            json!({ "type": ["integer", "null"], "format": "int64" }),
            json!({ "type": "number", "format": "double" }),
        ] {
            assert!(with(plain.clone()), "{plain}");
        }
        for more in [
            json!({ "type": "string", "minLength": 1 }),
            json!({ "type": "string", "enum": ["a"] }),
            json!({ "type": "string", "format": "email" }),
            json!({ "type": "integer", "minimum": 0 }),
            json!({ "type": "array" }),
            json!({ "$ref": "#/x" }),
            json!({}),
            json!(true),
        ] {
            assert!(!with(more.clone()), "{more}");
        }
        assert!(flat(&json!({ "type": "object", "additionalProperties": false })).is_none());
        assert!(flat(&json!({ "type": "object", "required": ["a"] })).is_none());
    }

    #[test]
    fn a_member_that_stands_twice_does_not_count_for_another() {
        let schema = json!({ "properties": { "a": { "type": "null" }, "b": { "type": "null" } }, "required": ["a", "b"] });
        let flat = flat(&schema).unwrap();
        assert!(flat.surely_fits(r#"{"a":null,"b":null}"#));
        assert!(!flat.surely_fits(r#"{"a":null,"a":null,"b":null}"#));
        assert!(!flat.surely_fits(r#"{"a":null}"#));
    }

    proptest! {
        /// Whatever surely fits, the validator accepts; and for plain values the other way round.
        #[test]
        fn it_agrees_with_the_validator(
            types in proptest::collection::vec(
                prop::sample::select(vec!["string", "boolean", "null", "integer", "number"]), 3),
            required in proptest::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..3),
            values in proptest::collection::vec(
                prop::sample::select(vec![
                    json!("x"), json!(true), json!(null), json!(-5), json!(1.5), json!([1]), json!({ "a": 1 }),
                    json!(u64::MAX),
                ]), 0..4),
        ) {
            let properties: Map<String, Value> = ["a", "b", "c"]
                .iter()
                .zip(&types)
                .map(|(name, kind)| ((*name).to_owned(), json!({ "type": kind })))
                .collect();
            let mut required = required;
            required.dedup();
            required.sort_unstable();
            required.dedup();
            let schema = json!({ "type": "object", "properties": properties, "required": required });
            let arguments: Map<String, Value> =
                ["a", "b", "c", "other"].iter().map(|name| (*name).to_owned()).zip(values).collect();
            let arguments = Value::Object(arguments);
            let valid = jsonschema::validator_for(&schema).unwrap().is_valid(&arguments);
            prop_assert_eq!(flat(&schema).unwrap().surely_fits(&arguments.to_string()), valid);
        }
    }
}
