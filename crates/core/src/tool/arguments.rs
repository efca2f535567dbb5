//! Compiles schemas once, and checks arguments against them before a handler runs.

use std::collections::HashMap;

use serde_json::Value;

use crate::tool::fault::Fault;
use crate::tool::leniency::Leniency;
use crate::tool::scan;
use crate::toolset::handler::{Handler, Prepared};
use crate::{RawJson, RegistrationError, Schema, ToolError};

/// Compiles the schema of an object if it is to be checked, and removes `$schema` from it: many clients know one
/// draft only and refuse a schema that names another.
pub(crate) fn compile(
    tool: &str,
    which: &'static str,
    schema: &mut RawJson,
    is_checked: bool,
) -> Result<Option<Schema>, RegistrationError> {
    let bad = |reason: String| RegistrationError::BadSchema { tool: tool.into(), which, reason };
    let mut read: Value = schema.decode().unwrap_or_default();
    match read.as_object().map(|root| root.get("type")) {
        None => return Err(bad("it is not a JSON object".into())),
        Some(None) => return Err(bad("its root has no `\"type\": \"object\"`".into())),
        Some(Some(kind)) if kind != "object" => {
            return Err(bad(format!("its root has `\"type\": {kind}`, not `\"object\"`")));
        }
        _ => {}
    }
    let compiled = is_checked.then(|| Schema::compile(&read).map_err(bad)).transpose()?;
    read.as_object_mut().map(|root| root.remove("$schema"));
    *schema = RawJson::from(&read);
    Ok(compiled)
}

/// Where a value does not fit its schema, and why. Deviations that the handler's type accepts are not faults, if a
/// handler is given.
pub(crate) fn fault(schema: &Schema, value: &RawJson, handler: Option<&Handler>) -> Option<Fault> {
    if schema.surely_fits(value.as_str()) {
        return None;
    }
    let value: Value = match value.decode() {
        Ok(value) => value,
        Err(error) => return Some(Fault::new("/", error.to_string())),
    };
    let mut leniency = handler.map(|handler| Leniency { handler, arguments: &value, known: HashMap::new() });
    schema.fault_but_for(&value, &mut |error| leniency.as_mut().is_some_and(|types| types.allows(error)))
}

/// Reads a call's arguments for its handler and checks them against the tool's schema.
pub(crate) fn prepare(
    tool: &str,
    schema: &Schema,
    handler: &Handler,
    arguments: &RawJson,
) -> Result<Prepared, ToolError> {
    let refuse = |Fault { path, reason }| ToolError::Arguments { tool: tool.into(), path, reason };
    if !arguments.is_object() {
        return Err(refuse(Fault::new("/", "arguments must be a JSON object")));
    }
    let ready = read(handler, arguments);
    match (fault(schema, arguments, ready.is_ok().then_some(handler)), ready) {
        (None, Ok(ready)) => Ok(ready),
        (Some(fault), ready) if ready.is_ok() || fault != Fault::unknown() => Err(refuse(fault)),
        (_, ready) => {
            let error = ready.err().map(|error| Fault::new("/", error.to_string()));
            let explained = (handler.explain)(arguments).map(|(path, reason)| Fault::new(path, reason));
            Err(refuse(explained.or(error).unwrap_or_else(Fault::unknown)))
        }
    }
}

/// Reads arguments into the handler's type. JSON Schema and models treat `1.0` as an integer, serde does not.
pub(crate) fn read(handler: &Handler, arguments: &RawJson) -> Result<Prepared, serde_json::Error> {
    (handler.prepare)(arguments).or_else(|error| {
        let with_integers = with_integers(arguments.as_str()).and_then(|text| RawJson::parse(text).ok());
        with_integers.and_then(|arguments| (handler.prepare)(&arguments).ok()).ok_or(error)
    })
}

/// The same JSON text, with every number that is an integer written as one; `None` when it is so already.
pub(crate) fn with_integers(text: &str) -> Option<String> {
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

/// The integer that a number with a fraction or an exponent stands for, if an `f64` represents it exactly.
fn as_integer(number: &[u8]) -> Option<String> {
    /// Above this limit not every integer has an exact `f64`.
    const MAX: f64 = 9_007_199_254_740_992.0;
    if !number.first()?.is_ascii_digit() && number.first() != Some(&b'-') {
        return None;
    }
    number.iter().find(|byte| matches!(byte, b'.' | b'e' | b'E'))?;
    let number: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    // `-0.0` becomes `0`.
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
