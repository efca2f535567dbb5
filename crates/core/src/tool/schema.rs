//! JSON Schemas, compiled once, for values that no type of ours describes.

use boon::{CompileError, Compiler, ErrorKind, SchemaIndex, Schemas, SchemeUrlLoader, ValidationError};
use serde_json::Value;

use crate::Fault;

/// A JSON Schema of any draft since 4; 2020-12 if it does not say.
///
/// References must point into the schema itself.
pub struct Schema {
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
        Ok(Self { all, root })
    }

    /// Where `value` does not fit, and why.
    #[must_use]
    pub fn fault(&self, value: &Value) -> Option<Fault> {
        let error = self.all.validate(value, self.root).err()?;
        let (_, innermost) = innermost(&error);
        Some(Fault::new(innermost.instance_location.to_string(), reason(&innermost.kind)))
    }
}

/// The error that is deepest in the value, with its depth: of several alternatives, that one was most likely meant.
fn innermost<'e, 's, 'v>(error: &'e ValidationError<'s, 'v>) -> (usize, &'e ValidationError<'s, 'v>) {
    let own = (error.instance_location.tokens.len(), error);
    // Of errors at the same place, the first one, and a cause before what it causes.
    error.causes.iter().map(innermost).rev().max_by_key(|(depth, _)| *depth).unwrap_or(own)
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
