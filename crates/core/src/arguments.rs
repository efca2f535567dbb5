//! Schemas compiled once, arguments checked before a handler runs.

use serde_json::Value;

use crate::handler::{Handler, Prepared};
use crate::shape::Shape;
use crate::{RawJson, RegistrationError, ToolError};

/// A compiled JSON Schema of an object.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    compiled: jsonschema::Validator,
    /// The same, where it says so little that a look at the text is enough.
    shape: Option<Shape>,
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
        Ok(Self { compiled, shape: Shape::of(schema) })
    }

    /// Where `value` does not fit, and why.
    pub(crate) fn fault(&self, value: &RawJson) -> Option<(String, String)> {
        if self.shape.as_ref().is_some_and(|shape| shape.surely_fits(value.as_str())) {
            return None;
        }
        let value: Value = match value.decode() {
            Ok(value) => value,
            Err(error) => return Some(("/".into(), error.to_string())),
        };
        let error = self.compiled.validate(&value).err()?;
        // Masked: a megabyte of argument must not come back as an error message.
        Some((error.instance_path().to_string(), error.masked_with("the value").to_string()))
    }
}

/// Reads a call's arguments for its handler and checks them against the tool's schema.
pub(crate) fn prepare(
    tool: &str,
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
    if let Some(fault) = schema.fault(arguments) {
        return Err(refuse(fault));
    }
    (handler.prepare)(arguments).map_err(|error| {
        refuse((handler.explain)(arguments).unwrap_or_else(|| ("/".into(), error.to_string())))
    })
}
