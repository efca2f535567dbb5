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
        Ok(Self {
            compiled,
            can_fail: root.keys().any(|key| checks(key)),
            beyond_types: beyond_types(schema),
        })
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

/// Keywords that describe and do not check.
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
/// Reading is the check then: `type`, `properties`, `required`, `enum` and the ranges of integer types
/// need no second pass over the arguments.
fn beyond_types(schema: &Value) -> bool {
    let Some(object) = schema.as_object() else {
        return schema.as_array().is_some_and(|items| items.iter().any(beyond_types));
    };
    object.iter().any(|(keyword, value)| match keyword.as_str() {
        "minimum" | "maximum" => !is_integer_type(object),
        "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "minLength" | "maxLength" | "pattern"
        | "minItems" | "maxItems" | "uniqueItems" | "minProperties" | "maxProperties" | "contains"
        | "patternProperties" | "propertyNames" | "dependentRequired" | "dependentSchemas" | "if" | "not"
        | "allOf" => true,
        "properties" | "$defs" => value.as_object().is_some_and(|named| named.values().any(beyond_types)),
        "enum" | "const" | "default" | "examples" | "required" => false,
        _ => beyond_types(value),
    })
}

/// schemars writes an integer type's range together with its name.
fn is_integer_type(schema: &Map<String, Value>) -> bool {
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    let range = |minimum: i64, maximum: Option<i64>| {
        schema.get("minimum") == Some(&Value::from(minimum))
            && schema.get("maximum") == maximum.map(Value::from).as_ref()
    };
    match format {
        "uint8" => range(0, Some(255)),
        "uint16" => range(0, Some(65_535)),
        "uint32" | "uint64" | "uint" => range(0, None),
        "int8" => range(-128, Some(127)),
        "int16" => range(-32_768, Some(32_767)),
        _ => false,
    }
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
    fn types_that_serde_checks_need_no_second_pass() {
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only its schema counts")]
        struct Plain {
            text: String,
            small: u8,
            signed: i16,
            big: u64,
            maybe: Option<f64>,
            list: Vec<Inner>,
        }
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only its schema counts")]
        enum Inner {
            A,
            B { n: i32 },
        }
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only its schema counts")]
        struct Bounded {
            #[schemars(range(max = 10))]
            n: u32,
        }
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only its schema counts")]
        struct Nested {
            list: Vec<Bounded>,
        }
        assert!(!beyond_types(schemars::schema_for!(Plain).as_value()));
        assert!(beyond_types(schemars::schema_for!(Bounded).as_value()));
        assert!(beyond_types(schemars::schema_for!(Nested).as_value()));
    }

    #[test]
    fn a_bare_object_schema_cannot_fail() {
        let can_fail = |schema| ObjectSchema::compile("t", "input", &schema).unwrap().can_fail;
        assert!(!can_fail(json!({"type": "object", "title": "x"})));
        assert!(can_fail(json!({"type": "object", "properties": {"a": {"type": "string"}}})));
        assert!(can_fail(json!({"type": "object", "additionalProperties": false})));
    }
}
