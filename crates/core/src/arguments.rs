//! Schemas compiled once, arguments checked before a handler runs.

use jsonschema::ValidationError;
use serde_json::Value;

use crate::fault::{Fault, is_costly};
use crate::handler::{Handler, Prepared};
use crate::leniency::Leniency;
use crate::shape::Shape;
use crate::{RawJson, RegistrationError, ToolError, scan};

/// A compiled JSON Schema of an object.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    schema: Value,
    compiled: jsonschema::Validator,
    /// The same, where it says so little that a look at the text is enough.
    shape: Option<Shape>,
}

/// A JSON Schema of an object, as its tool's author gave it.
pub(crate) struct ReadSchema<'a> {
    tool: &'a str,
    which: &'static str,
    schema: Value,
}

impl<'a> ReadSchema<'a> {
    pub(crate) fn new(
        tool: &'a str,
        which: &'static str,
        schema: &RawJson,
    ) -> Result<Self, RegistrationError> {
        let read = Self { tool, which, schema: schema.decode().unwrap_or_default() };
        let Some(root) = read.schema.as_object() else { return Err(read.bad("it is not a JSON object")) };
        match root.get("type") {
            Some(Value::String(root_type)) if root_type == "object" => Ok(read),
            Some(other) => Err(read.bad(format!("its root has `\"type\": {other}`, not `\"object\"`"))),
            None => Err(read.bad("its root has no `\"type\": \"object\"`")),
        }
    }

    fn bad(&self, reason: impl Into<String>) -> RegistrationError {
        RegistrationError::BadSchema { tool: self.tool.into(), which: self.which, reason: reason.into() }
    }

    /// As clients get it: many know one draft, and refuse a schema that names another one.
    pub(crate) fn shown(&self) -> RawJson {
        let mut schema = self.schema.clone();
        schema.as_object_mut().map(|root| root.remove("$schema"));
        RawJson::from(&schema)
    }

    pub(crate) fn compile(self) -> Result<ObjectSchema, RegistrationError> {
        let compiled =
            jsonschema::validator_for(&self.schema).map_err(|error| self.bad(error.to_string()))?;
        let shape = Shape::of(&self.schema);
        Ok(ObjectSchema { schema: self.schema, compiled, shape })
    }
}

impl ObjectSchema {
    /// Where `value` does not fit, and why.
    pub(crate) fn fault(&self, value: &RawJson) -> Option<Fault> {
        self.fault_but_for(value, |_, _| false)
    }

    /// The same, but for errors that are none after all.
    fn fault_but_for(
        &self,
        value: &RawJson,
        mut is_none: impl FnMut(&ValidationError<'_>, &Value) -> bool,
    ) -> Option<Fault> {
        if self.shape.as_ref().is_some_and(|shape| shape.surely_fits(value.as_str())) {
            return None;
        }
        let value: Value = match value.decode() {
            Ok(value) => value,
            Err(error) => return Some(Fault::new("/", error.to_string())),
        };
        if self.compiled.is_valid(&value) {
            return None;
        }
        if is_costly(&self.schema, &value) {
            return Some(Fault::unknown());
        }
        let first = self.compiled.validate(&value).err()?;
        if !is_none(&first, &value) {
            return Some(Fault::of(&first, &self.schema));
        }
        let fault = self.compiled.iter_errors(&value).find(|error| !is_none(error, &value))?;
        Some(Fault::of(&fault, &self.schema))
    }
}

/// Reads a call's arguments for its handler and checks them against the tool's schema.
pub(crate) fn prepare(
    tool: &str,
    schema: &ObjectSchema,
    handler: &Handler,
    arguments: &RawJson,
) -> Result<Prepared, ToolError> {
    let refuse = |Fault { path, reason }| ToolError::Arguments { tool: tool.into(), path, reason };
    if !arguments.is_object() {
        return Err(refuse(Fault::new("/", "arguments must be a JSON object")));
    }
    let ready = read(handler, arguments);
    let mut leniency = ready.is_ok().then(|| Leniency::new(&schema.schema, handler));
    let fault = schema.fault_but_for(arguments, |error, value| {
        leniency.as_mut().is_some_and(|leniency| leniency.allows(error, value))
    });
    match (fault, ready) {
        (None, Ok(ready)) => Ok(ready),
        (Some(fault), ready) if ready.is_ok() || fault != Fault::unknown() => Err(refuse(fault)),
        (_, ready) => {
            let error = ready.err().map(|error| Fault::new("/", error.to_string()));
            let explained = (handler.explain)(arguments).map(|(path, reason)| Fault::new(path, reason));
            Err(refuse(explained.or(error).unwrap_or_else(Fault::unknown)))
        }
    }
}

/// Reads arguments into the handler's type. `1.0` is an integer in JSON Schema and to models, and not to serde.
pub(crate) fn read(handler: &Handler, arguments: &RawJson) -> Result<Prepared, serde_json::Error> {
    (handler.prepare)(arguments).or_else(|error| {
        let with_integers = with_integers(arguments.as_str()).and_then(|text| RawJson::parse(text).ok());
        with_integers.and_then(|arguments| (handler.prepare)(&arguments).ok()).ok_or(error)
    })
}

/// The same JSON text, with every number that is an integer written as one; `None` when it is so already.
fn with_integers(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut written, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(byte) = bytes.get(at) {
        let end = match byte {
            b'"' | b'-' | b'0'..=b'9' => scan::value_end(bytes, at)?,
            _ => at + 1,
        };
        if let Some(integer) = as_integer(&text.as_bytes()[at..end]) {
            written.push_str(&text[copied..at]);
            written.push_str(&integer);
            copied = end;
        }
        at = end;
    }
    (copied > 0).then(|| written + &text[copied..])
}

/// The integer that is written as a fraction or with an exponent, if it is one that every number can hold.
fn as_integer(number: &[u8]) -> Option<String> {
    /// Above this not every integer has a number of its own.
    const MAX: f64 = 9_007_199_254_740_992.0;
    if !number.first()?.is_ascii_digit() && number.first() != Some(&b'-') {
        return None;
    }
    number.iter().find(|byte| matches!(byte, b'.' | b'e' | b'E'))?;
    let number: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    // Zero has no sign as an integer.
    (number.fract() == 0.0 && number.abs() <= MAX).then(|| format!("{:.0}", number + 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_found_however_they_are_written() {
        let rows = [
            (r#"{"a":1.0,"b":[-2.00, 3e2 ,1.5E1]}"#, Some(r#"{"a":1,"b":[-2, 300 ,15]}"#)),
            (r#"{"a":"1.0","b\"1.0":-0.0,"c":1.5}"#, Some(r#"{"a":"1.0","b\"1.0":0,"c":1.5}"#)),
            (r#"{"a":1,"b":0.5,"c":"2.0","d":[true,null],"e":12345678901234567890123}"#, None),
            (r#"{"a":1e300,"b":9007199254740993.0e9}"#, None),
            ("1.0", Some("1")),
        ];
        for (text, want) in rows {
            assert_eq!(with_integers(text).as_deref(), want, "{text}");
        }
    }
}
