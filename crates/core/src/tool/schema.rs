//! JSON Schemas, compiled once, for values that no type of ours describes.

use std::collections::HashMap;
use std::ptr;

use boon::{CompileError, Compiler, ErrorKind, SchemaIndex, Schemas, SchemeUrlLoader, ValidationError};
use serde_json::{Number, Value};

use crate::Fault;

/// The most steps that the check of one value may take, about a second.
const MAX_STEPS: u64 = 2_000_000;

/// A JSON Schema of any draft since 4; 2020-12 if it does not say.
///
/// References must point into the schema itself.
pub struct Schema {
    /// The schema's text, if it refers to parts of itself: then the steps of a check are counted first.
    recursive: Option<Value>,
    all: Schemas,
    root: SchemaIndex,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Schema")
    }
}

impl Schema {
    /// # Errors
    ///
    /// When it is not a JSON Schema, or has something that cannot be checked, such as a pattern with look-around.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        const URL: &str = "schema:///root";
        let (mut compiler, mut all) = (Compiler::new(), Schemas::new());
        // It loads no other documents: a schema must not read files.
        compiler.use_loader(Box::new(SchemeUrlLoader::new()));
        // The alternate form has the cause, over several lines.
        let told = |error: CompileError| format!("{error:#}").replace(URL, "").replace('\n', ";");
        compiler.add_resource(URL, schema.clone()).map_err(told)?;
        let root = compiler.compile(URL, &mut all).map_err(told)?;
        let text = schema.to_string();
        let refers = ["\"$ref\"", "\"$dynamicRef\""].iter().any(|keyword| text.contains(keyword));
        Ok(Self { recursive: refers.then(|| schema.clone()), all, root })
    }

    /// Where `value` does not fit, and why.
    #[must_use]
    pub fn fault(&self, value: &Value) -> Option<Fault> {
        let steps = |root| Steps { root, known: HashMap::new() }.of(root, value);
        if self.recursive.as_ref().is_some_and(|schema| steps(schema) > MAX_STEPS) {
            let reason = format!(
                "it is nested too deeply: checking the schema's alternatives would take over {MAX_STEPS} steps"
            );
            return Some(Fault::new("", reason));
        }
        let error = self.all.validate(value, self.root).err().filter(is_wrong)?;
        let (_, innermost) = innermost(&error);
        Some(Fault::new(innermost.instance_location.to_string(), reason(&innermost.kind)))
    }
}

/// Counts how often the library compares a part of a value with a part of the schema, at most. It tries each
/// alternative to the end and remembers nothing, so values of a type that contains itself take exponentially many
/// steps.
struct Steps<'s> {
    root: &'s Value,
    known: HashMap<(*const Value, *const Value), u64>,
}

impl<'s> Steps<'s> {
    fn of(&mut self, schema: &'s Value, value: &Value) -> u64 {
        let pair = (ptr::from_ref(schema), ptr::from_ref(value));
        if let Some(known) = self.known.get(&pair) {
            return *known;
        }
        // For a reference to itself.
        self.known.insert(pair, 1);
        let mut steps = 1_u64;
        for (part, value) in self.pairs(schema, value) {
            steps = steps.saturating_add(self.of(part, value));
        }
        self.known.insert(pair, steps);
        steps
    }

    /// The parts of a schema that apply to a value, each with the part of the value.
    fn pairs<'v>(&self, schema: &'s Value, value: &'v Value) -> Vec<(&'s Value, &'v Value)> {
        use Value::{Array, Object, String};
        let mut pairs = Vec::new();
        for (keyword, part) in schema.as_object().into_iter().flatten() {
            let (parts, values): (Vec<_>, Vec<_>) = match (keyword.as_str(), part, value) {
                ("$ref" | "$dynamicRef", String(target), _) => {
                    let target = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
                    (target.into_iter().collect(), vec![value])
                }
                ("allOf" | "anyOf" | "oneOf", Array(parts), _) => (parts.iter().collect(), vec![value]),
                ("not" | "if" | "then" | "else", _, _) => (vec![part], vec![value]),
                ("dependentSchemas", Object(parts), _) => (parts.values().collect(), vec![value]),
                ("properties", Object(parts), Object(members)) => {
                    pairs.extend(parts.iter().filter_map(|(name, part)| Some((part, members.get(name)?))));
                    continue;
                }
                ("patternProperties", Object(parts), Object(members)) => {
                    (parts.values().collect(), members.values().collect())
                }
                ("additionalProperties" | "unevaluatedProperties", _, Object(members)) => {
                    (vec![part], members.values().collect())
                }
                ("items" | "prefixItems", Array(parts), Array(items)) => {
                    pairs.extend(parts.iter().zip(items));
                    continue;
                }
                ("items" | "additionalItems" | "unevaluatedItems" | "contains", _, Array(items)) => {
                    (vec![part], items.iter().collect())
                }
                _ => continue,
            };
            pairs.extend(parts.iter().flat_map(|part| values.iter().map(|value| (*part, *value))));
        }
        pairs
    }
}

/// Whether an error is one. The library divides binary fractions, of which 19.99 is no multiple of 0.01.
fn is_wrong(error: &ValidationError<'_, '_>) -> bool {
    match &error.kind {
        ErrorKind::MultipleOf { got, want } => !is_multiple(got, want),
        ErrorKind::AnyOf | ErrorKind::OneOf(None) => error.causes.iter().all(is_wrong),
        _ => error.causes.is_empty() || error.causes.iter().any(is_wrong),
    }
}

fn is_multiple(number: &Number, of: &Number) -> bool {
    let (Some(number), Some(of)) = (number.as_f64(), of.as_f64()) else { return false };
    let times = number / of;
    (times - times.round()).abs() <= times.abs() * 4.0 * f64::EPSILON
}

/// The error that is deepest in the value, with its depth: of several alternatives, that one was most likely meant.
fn innermost<'e, 's, 'v>(error: &'e ValidationError<'s, 'v>) -> (usize, &'e ValidationError<'s, 'v>) {
    let own = (error.instance_location.tokens.len(), error);
    // Of errors at the same place, the first one, and a cause before what it causes.
    error
        .causes
        .iter()
        .filter(|cause| is_wrong(cause))
        .map(innermost)
        .rev()
        .max_by_key(|(depth, _)| *depth)
        .unwrap_or(own)
}

/// The library's words, without the value.
fn reason(kind: &ErrorKind<'_, '_>) -> String {
    match kind {
        ErrorKind::Pattern { want, .. } => format!("it does not match pattern '{want}'"),
        ErrorKind::Format { want, .. } => format!("it is not a valid {want}"),
        ErrorKind::Minimum { want, .. } => format!("must be >={want}"),
        ErrorKind::Maximum { want, .. } => format!("must be <={want}"),
        ErrorKind::ExclusiveMinimum { want, .. } => format!("must be > {want}"),
        ErrorKind::ExclusiveMaximum { want, .. } => format!("must be < {want}"),
        ErrorKind::MultipleOf { want, .. } => format!("it is not a multiple of {want}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, rows: &[(Value, &str, &str)]) {
        let schema = Schema::compile(schema).unwrap();
        for (value, path, reason) in rows {
            assert_eq!(schema.fault(value), Some(Fault::new(*path, *reason)), "{value}");
        }
    }

    #[test]
    fn an_error_names_the_place_and_not_the_value() {
        check(
            &json!({
                "type": "object",
                "properties": {
                    "a/b": { "type": "array", "items": { "$ref": "#/$defs/number" } },
                    "word": { "pattern": "^a", "maxLength": 9 },
                    "some": { "anyOf": [{ "$ref": "#/$defs/word" }, { "type": "null" }] },
                },
                "required": ["a/b"],
                "additionalProperties": false,
                "$defs": {
                    "number": { "type": "integer", "minimum": 3, "multipleOf": 2 },
                    "word": { "type": "object", "properties": { "is": { "enum": ["x", "y"] } } },
                },
            }),
            &[
                (json!({}), "/", "missing properties 'a/b'"),
                (json!({"a/b": [4, 1]}), "/a~1b/1", "must be >=3"),
                (json!({"a/b": [77]}), "/a~1b/0", "it is not a multiple of 2"),
                (json!({"a/b": ["SECRET"]}), "/a~1b/0", "want integer, but got string"),
                (json!({"a/b": [], "word": "SECRET"}), "/word", "it does not match pattern '^a'"),
                (json!({"a/b": [], "some": {"is": "SECRET"}}), "/some/is", "value must be one of 'x', 'y'"),
                (json!({"a/b": [], "c": 1}), "/", "additionalProperties 'c' not allowed"),
            ],
        );
    }

    #[test]
    fn multiples_of_fractions_are_decimal() {
        let schema = Schema::compile(&json!({
            "properties": {
                "price": { "multipleOf": 0.01 },
                "any": { "anyOf": [{ "type": "null" }, { "multipleOf": 0.1 }] },
            },
        }));
        let schema = schema.unwrap();
        for price in [19.99, 4.35, 0.07, 1_070_468.14, -3.0] {
            assert_eq!(schema.fault(&json!({ "price": price, "any": 0.3 })), None, "{price}");
        }
        for (price, any, path) in [(19.995, 0.3, "/price"), (1.0, 0.35, "/any")] {
            let fault = schema.fault(&json!({ "price": price, "any": any })).unwrap();
            assert_eq!(fault.path, path);
        }
    }

    #[test]
    fn choices_of_themselves_do_not_take_for_ever() {
        let branch = |kind: &str| {
            json!({
                "type": "object",
                "properties": { "kind": { "const": kind }, "of": { "$ref": "#/$defs/expression" } },
            })
        };
        let schema = Schema::compile(&json!({
            "$defs": { "expression": { "oneOf": [branch("negative"), branch("absolute"), { "type": "number" }] } },
            "$ref": "#/$defs/expression",
        }));
        let schema = schema.unwrap();
        let nested =
            |depth: usize| (0..depth).fold(json!(1), |of, _| json!({ "kind": "absolute", "of": of }));
        assert_eq!(schema.fault(&nested(10)), None);
        let fault = schema.fault(&nested(60)).unwrap();
        assert!(fault.reason.starts_with("it is nested too deeply"), "{fault:?}");
        // A long list takes many steps, but not more for each item.
        let schema = Schema::compile(&json!({
            "items": { "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/one" }] },
            "$defs": { "one": { "minimum": 1 } },
        }));
        assert_eq!(schema.unwrap().fault(&json!(vec![1; 100_000])), None);
    }

    #[test]
    fn what_is_no_schema_is_refused_with_its_place() {
        for (schema, want) in [
            (json!({ "properties": { "a": { "type": "strnig" } } }), "/properties/a/type"),
            (json!(1), "object"),
            (json!({ "properties": { "a": { "pattern": "^(?!rm)" } } }), "look-around"),
            (json!({ "$ref": "#/$defs/a" }), "#/$defs/a"),
            (json!({ "$ref": "file:///etc/passwd" }), "unsupported scheme in file:///etc/passwd"),
            (json!({ "$ref": "https://example.com/a" }), "unsupported scheme in https://example.com/a"),
            (json!({ "$schema": "https://example.com/a" }), "unsupported scheme in https://example.com/a"),
        ] {
            let error = Schema::compile(&schema).unwrap_err();
            assert!(error.contains(want) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_schema_may_say_its_draft() {
        for draft in
            ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
        {
            check(
                &json!({ "$schema": draft, "$ref": "#/definitions/a", "definitions": { "a": { "type": "null" } } }),
                &[(json!(1), "/", "want null, but got number")],
            );
        }
    }
}
