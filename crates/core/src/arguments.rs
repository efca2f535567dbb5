//! Schemas compiled once, arguments checked before a handler runs.

use serde_json::{Map, Value};

use crate::handler::{Handler, Prepared};
use crate::{RawJson, RegistrationError, ToolError};

/// A compiled JSON Schema of an object.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    compiled: jsonschema::Validator,
    /// Whether there is anything to check beyond "it is an object".
    can_fail: bool,
    /// Whether it says more than the types of a handler's arguments do.
    beyond_types: bool,
}

impl ObjectSchema {
    pub(crate) fn compile(
        tool: &str,
        which: &'static str,
        schema: &Value,
    ) -> Result<Self, RegistrationError> {
        let bad = |reason: String| RegistrationError::BadSchema { tool: tool.into(), which, reason };
        let root = schema.as_object().ok_or_else(|| bad("it is not a JSON object".into()))?;
        match root.get("type") {
            Some(Value::String(root_type)) if root_type == "object" => {}
            Some(other) => return Err(bad(format!("its root has `\"type\": {other}`, not `\"object\"`"))),
            None => return Err(bad("its root has no `\"type\": \"object\"`".into())),
        }
        let compiled = jsonschema::validator_for(schema).map_err(|error| bad(error.to_string()))?;
        Ok(Self { compiled, can_fail: root.keys().any(|key| checks(key)), beyond_types: beyond_types(root) })
    }

    /// Where `value` does not fit, and why.
    pub(crate) fn fault(&self, value: &RawJson) -> Option<(String, String)> {
        let value: Value = match value.decode() {
            Ok(value) => value,
            Err(error) => return Some(("/".into(), error.to_string())),
        };
        let error = self.compiled.validate(&value).err()?;
        // Masked: a megabyte of argument must not come back as an error message.
        Some((error.instance_path().to_string(), error.masked_with("the value").to_string()))
    }
}

/// Whether a keyword checks something, and does not only describe.
fn checks(keyword: &str) -> bool {
    !matches!(
        keyword,
        "type"
            | "title"
            | "description"
            | "$schema"
            | "$id"
            | "$comment"
            | "$defs"
            | "definitions"
            | "examples"
            | "default"
    )
}

/// Whether a schema made from a Rust type says more than reading into that type checks.
///
/// It does not when all its properties are plain: strings, booleans and numbers without a range. Then
/// reading is the check, and a call needs no second pass over its arguments.
fn beyond_types(root: &Map<String, Value>) -> bool {
    root.iter().any(|(keyword, value)| match keyword.as_str() {
        "properties" => value.as_object().is_none_or(|properties| !properties.values().all(is_plain)),
        "required" => false,
        keyword => checks(keyword),
    })
}

fn is_plain(property: &Value) -> bool {
    let plain_type =
        |name: &Value| matches!(name.as_str(), Some("string" | "boolean" | "number" | "integer" | "null"));
    property.as_object().is_some_and(|property| {
        property.iter().all(|(keyword, value)| match keyword.as_str() {
            "type" => plain_type(value) || value.as_array().is_some_and(|types| types.iter().all(plain_type)),
            "format" => matches!(value.as_str(), Some("double" | "float" | "int32" | "int64")),
            keyword => !checks(keyword),
        })
    })
}

/// Reads a call's arguments for its handler and checks them against the tool's schema.
///
/// `typed` says that the schema was made from the handler's own type.
pub(crate) fn prepare(
    tool: &str,
    typed: bool,
    schema: &ObjectSchema,
    handler: &Handler,
    arguments: &RawJson,
) -> Result<Prepared, ToolError> {
    let refuse = |(path, reason): (String, String)| {
        let path = if path.is_empty() { "/".into() } else { path };
        ToolError::Arguments { tool: tool.into(), path, reason }
    };
    if !arguments.is_object() {
        return Err(refuse(("/".into(), "arguments must be a JSON object".into())));
    }
    let must_check = if typed { schema.beyond_types } else { schema.can_fail };
    if must_check && let Some(fault) = schema.fault(arguments) {
        return Err(refuse(fault));
    }
    (handler.prepare)(arguments).map_err(|error| {
        // The schema names the place better than serde does, where it finds the same fault.
        let fault = schema.fault(arguments).or_else(|| (handler.explain)(arguments));
        refuse(fault.unwrap_or_else(|| ("/".into(), error.to_string())))
    })
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_plain_types_need_no_second_pass() {
        fn beyond<T: JsonSchema>() -> bool {
            beyond_types(schemars::schema_for!(T).as_object().unwrap())
        }
        macro_rules! with_field {
            ($(#[$attribute:meta])* $kind:ty) => {{
                #[derive(JsonSchema)]
                #[expect(dead_code, reason = "only its schema counts")]
                struct Args {
                    /// What it is.
                    $(#[$attribute])*
                    field: $kind,
                }
                beyond::<Args>()
            }};
        }
        assert!(!with_field!(String) && !with_field!(f64) && !with_field!(i64) && !with_field!(bool));
        assert!(
            !with_field!(Option<String>)
                && !with_field!(
                    #[serde(default)]
                    i32
                )
        );
        // serde reads more than these schemas allow, or they come from somewhere else than the type.
        assert!(with_field!(u8) && with_field!(Vec<String>) && with_field!((i64, i64)));
        assert!(with_field!(
            #[schemars(length(min = 2))]
            String
        ));
        assert!(with_field!(
            #[schemars(extend("enum" = ["a", "b"]))]
            String
        ));
        assert!(with_field!(
            #[schemars(with = "u8")]
            i64
        ));
    }

    #[test]
    fn a_bare_object_schema_cannot_fail() {
        let can_fail = |schema| ObjectSchema::compile("t", "input", &schema).unwrap().can_fail;
        assert!(!can_fail(json!({"type": "object", "title": "x"})));
        assert!(can_fail(json!({"type": "object", "properties": {"a": {"type": "string"}}})));
        assert!(can_fail(json!({"type": "object", "additionalProperties": false})));
    }
}
