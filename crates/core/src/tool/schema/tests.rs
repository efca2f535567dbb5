use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::json;

use super::*;
use crate::Fault;

fn fits(schema: &Value, value: &Value) -> bool {
    Schema::compile(schema).unwrap_or_else(|reason| panic!("{schema}: {reason}")).fault(value).is_none()
}

fn fault(schema: &Value, value: &Value) -> Fault {
    Schema::compile(schema).unwrap().fault(value).unwrap()
}

/// Each keyword, with values that fit and values that do not.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_keyword_is_checked_as_the_standard_says() {
    let rows = [
        (json!(true), vec![json!(1)], vec![]),
        (json!({}), vec![json!(1), json!(null)], vec![]),
        (json!(false), vec![], vec![json!(1), json!(null)]),
        (
            json!({ "type": "integer" }),
            vec![json!(1), json!(1.0), json!(1e300), json!(u64::MAX)],
            vec![json!(1.5), json!("1")],
        ),
        (json!({ "type": "number" }), vec![json!(1), json!(1.5)], vec![json!("1"), json!(null), json!(true)]),
        (
            json!({ "type": ["string", "null"] }),
            vec![json!("a"), json!(null)],
            vec![json!(0), json!({}), json!([])],
        ),
        (json!({ "type": "object" }), vec![json!({})], vec![json!([])]),
        (json!({ "type": "array" }), vec![json!([])], vec![json!({})]),
        (json!({ "type": "boolean" }), vec![json!(true), json!(false)], vec![json!(0), json!("true")]),
        (
            json!({ "enum": [1, "a", [2, { "b": 3 }], null] }),
            vec![json!(1.0), json!("a"), json!([2.0, { "b": 3 }]), json!(null)],
            vec![json!(2), json!("A"), json!([2]), json!(false)],
        ),
        (
            json!({ "const": { "a": 1, "b": [0] } }),
            vec![json!({ "b": [0.0], "a": 1.0 })],
            vec![json!({ "a": 1 }), json!({ "a": 1, "b": [false] })],
        ),
        (
            json!({ "const": 9_007_199_254_740_993_u64 }),
            vec![json!(9_007_199_254_740_993_u64)],
            vec![json!(9_007_199_254_740_992_u64), json!(9_007_199_254_740_992.0)],
        ),
        (json!({ "const": false }), vec![json!(false)], vec![json!(0), json!(true)]),
        (
            json!({ "minimum": 2 }),
            vec![json!(2), json!(2.0), json!(2.5), json!("a")],
            vec![json!(1), json!(1.999), json!(-3)],
        ),
        (json!({ "minimum": 1.5 }), vec![json!(2), json!(1.5), json!(1e300)], vec![json!(1), json!(-1e300)]),
        (
            json!({ "maximum": 9_007_199_254_740_993_u64 }),
            vec![json!(9_007_199_254_740_993_u64)],
            vec![json!(9_007_199_254_740_994_u64), json!(1e300)],
        ),
        (json!({ "exclusiveMinimum": 2 }), vec![json!(3), json!(2.1)], vec![json!(2), json!(2.0)]),
        (json!({ "exclusiveMaximum": 2 }), vec![json!(1), json!(1.9)], vec![json!(2), json!(2.0), json!(3)]),
        (
            json!({ "multipleOf": 3 }),
            vec![json!(9), json!(0), json!(-3), json!(6.0), json!("x")],
            vec![json!(10), json!(1.5)],
        ),
        (
            json!({ "multipleOf": 0.1 }),
            vec![json!(0.3), json!(1), json!(0.7), json!(1.1), json!(1e300)],
            vec![json!(0.35), json!(0.01)],
        ),
        (
            json!({ "multipleOf": 0.01 }),
            vec![json!(19.99), json!(1_070_468.14), json!(4.35)],
            vec![json!(0.001)],
        ),
        (json!({ "multipleOf": 1e-8 }), vec![json!(123.456), json!(u64::MAX), json!(0)], vec![json!(1e-9)]),
        (
            json!({ "multipleOf": 7 }),
            vec![json!(9_007_199_254_740_993_u64 / 7 * 7)],
            vec![json!(9_007_199_254_740_993_u64), json!(1e30)],
        ),
        (
            json!({ "minLength": 2 }),
            vec![json!("ab"), json!("é😀"), json!(1)],
            vec![json!("a"), json!("😀"), json!("")],
        ),
        (json!({ "maxLength": 2.0 }), vec![json!("é😀")], vec![json!("abc")]),
        (json!({ "pattern": "^a.c$" }), vec![json!("abc"), json!(1)], vec![json!("abcd"), json!("a\nc")]),
        (
            json!({ "minItems": 1, "maxItems": 2 }),
            vec![json!([1]), json!([1, 2]), json!({})],
            vec![json!([]), json!([1, 2, 3])],
        ),
        (
            json!({ "uniqueItems": true }),
            vec![json!([1, "1", true, [1], { "a": 1 }, 2, null]), json!([])],
            vec![json!([1, 2, 1.0]), json!([{ "a": 1, "b": 2 }, { "b": 2.0, "a": 1 }]), json!([[1], [1.0]])],
        ),
        (json!({ "uniqueItems": false }), vec![json!([1, 1])], vec![]),
        (
            json!({ "items": { "type": "string" } }),
            vec![json!(["a"]), json!([]), json!(1)],
            vec![json!(["a", 1])],
        ),
        (
            json!({ "prefixItems": [{ "type": "string" }, true], "items": { "type": "null" } }),
            vec![json!(["a", 1, null]), json!(["a"]), json!([])],
            vec![json!([1]), json!(["a", 1, 2])],
        ),
        (
            json!({ "items": [{ "type": "string" }], "additionalItems": false }),
            vec![json!(["a"]), json!([])],
            vec![json!([1]), json!(["a", 1])],
        ),
        (json!({ "items": [{ "type": "string" }] }), vec![json!(["a", 1])], vec![json!([1])]),
        (json!({ "additionalItems": false }), vec![json!([1])], vec![]),
        (
            json!({ "contains": { "type": "null" } }),
            vec![json!([1, null]), json!({})],
            vec![json!([1]), json!([])],
        ),
        (json!({ "contains": { "type": "null" }, "minContains": 0 }), vec![json!([]), json!([1])], vec![]),
        (
            json!({ "contains": { "type": "null" }, "minContains": 2, "maxContains": 3 }),
            vec![json!([null, null, 1])],
            vec![json!([null]), json!([null, null, null, null])],
        ),
        (json!({ "minContains": 2 }), vec![json!([])], vec![]),
        (
            json!({ "properties": { "a": { "type": "string" }, "b": false } }),
            vec![json!({ "a": "x", "c": 1 }), json!({}), json!(1)],
            vec![json!({ "a": 1 }), json!({ "b": 1 })],
        ),
        (
            json!({ "patternProperties": { "^x": { "type": "string" }, "y$": { "maxLength": 1 } } }),
            vec![json!({ "xy": "a", "z": 1 })],
            vec![json!({ "x": 1 }), json!({ "xy": "ab" })],
        ),
        (
            json!({ "properties": { "a": true }, "patternProperties": { "^x": true }, "additionalProperties": false }),
            vec![json!({ "a": 1, "xx": 2 })],
            vec![json!({ "b": 1 })],
        ),
        (
            json!({ "additionalProperties": { "type": "string" } }),
            vec![json!({ "a": "x" })],
            vec![json!({ "a": 1 })],
        ),
        (
            json!({ "propertyNames": { "maxLength": 2 } }),
            vec![json!({ "ab": 1 }), json!([])],
            vec![json!({ "abc": 1 })],
        ),
        (
            json!({ "required": ["a", "b"] }),
            vec![json!({ "a": 1, "b": null }), json!([])],
            vec![json!({ "a": 1 }), json!({})],
        ),
        (
            json!({ "dependentRequired": { "a": ["b"] } }),
            vec![json!({ "a": 1, "b": 1 }), json!({ "b": 1 }), json!(1)],
            vec![json!({ "a": 1 })],
        ),
        (
            json!({ "dependentSchemas": { "a": { "maxProperties": 1 } } }),
            vec![json!({ "a": 1 }), json!({ "b": 1, "c": 1 })],
            vec![json!({ "a": 1, "b": 1 })],
        ),
        (
            json!({ "dependencies": { "a": ["b"], "c": { "maxProperties": 1 } } }),
            vec![json!({ "a": 1, "b": 1 }), json!({ "c": 1 })],
            vec![json!({ "a": 1 }), json!({ "c": 1, "d": 1 })],
        ),
        (
            json!({ "minProperties": 1, "maxProperties": 1 }),
            vec![json!({ "a": 1 }), json!([])],
            vec![json!({}), json!({ "a": 1, "b": 1 })],
        ),
        (
            json!({ "allOf": [{ "minimum": 1 }, { "maximum": 2 }] }),
            vec![json!(1), json!(2)],
            vec![json!(0), json!(3)],
        ),
        (
            json!({ "anyOf": [{ "type": "string" }, { "minimum": 2 }] }),
            vec![json!("a"), json!(2), json!(null)],
            vec![json!(1)],
        ),
        (
            json!({ "oneOf": [{ "type": "integer" }, { "minimum": 2 }] }),
            vec![json!(1), json!(2.5)],
            vec![json!(2), json!(1.5)],
        ),
        (json!({ "not": { "type": "string" } }), vec![json!(1)], vec![json!("a")]),
        (
            json!({ "if": { "minimum": 5 }, "then": { "multipleOf": 5 }, "else": { "type": "integer" } }),
            vec![json!(10), json!(3)],
            vec![json!(7), json!(2.5)],
        ),
        (json!({ "if": { "minimum": 5 }, "else": false }), vec![json!(5)], vec![json!(4)]),
        (json!({ "then": false, "else": false }), vec![json!(4)], vec![]),
        (
            json!({ "$ref": "#/$defs/a", "minimum": 1, "$defs": { "a": { "maximum": 2 } } }),
            vec![json!(1)],
            vec![json!(0), json!(3)],
        ),
        (
            json!({ "$ref": "#/definitions/a~1b~0c%20%25", "definitions": { "a/b~c %": { "maximum": 2 } } }),
            vec![json!(1)],
            vec![json!(3)],
        ),
        (json!({ "items": { "$ref": "#" }, "type": "array" }), vec![json!([[[]]])], vec![json!([[1]])]),
        (
            json!({ "items": { "$ref": "#it" }, "$defs": { "x": { "$anchor": "it", "type": "null" } } }),
            vec![json!([null])],
            vec![json!([1])],
        ),
        (
            json!({ "$id": "https://a/b", "items": { "$ref": "https://a/b#/$defs/x" }, "$defs": { "x": { "type": "null" } } }),
            vec![json!([null])],
            vec![json!([1])],
        ),
        (
            json!({ "$id": "https://a/b#", "items": { "$ref": "https://a/b" }, "type": "array" }),
            vec![json!([[]])],
            vec![json!([1])],
        ),
        (
            json!({ "x-parts": { "a": { "items": { "$ref": "#/x-parts/b" } }, "b": { "type": "null" } }, "$ref": "#/x-parts/a" }),
            vec![json!([null])],
            vec![json!([1])],
        ),
        (
            json!({ "unevaluatedProperties": false, "properties": { "a": true }, "allOf": [{ "properties": { "b": true } }], "anyOf": [{ "required": ["c"], "properties": { "c": true } }, true] }),
            vec![json!({ "a": 1, "b": 1, "c": 1 })],
            vec![json!({ "d": 1 })],
        ),
        (
            json!({ "unevaluatedProperties": { "type": "string" }, "patternProperties": { "^x": true } }),
            vec![json!({ "x": 1, "a": "b" })],
            vec![json!({ "a": 1 })],
        ),
        (
            json!({ "unevaluatedProperties": false, "if": { "required": ["a"], "properties": { "a": true } }, "then": { "properties": { "b": true } }, "else": { "properties": { "c": true } } }),
            vec![json!({ "a": 1, "b": 1 }), json!({ "c": 1 })],
            vec![json!({ "a": 1, "c": 1 }), json!({ "b": 1 })],
        ),
        (
            json!({ "unevaluatedProperties": false, "oneOf": [{ "properties": { "a": { "const": 1 } }, "required": ["a"] }, { "properties": { "b": true }, "required": ["b"] }] }),
            vec![json!({ "a": 1 }), json!({ "b": 1 })],
            vec![json!({ "a": 2, "b": 1 }), json!({ "b": 1, "c": 1 })],
        ),
        (
            json!({ "unevaluatedProperties": false, "not": { "properties": { "a": false }, "required": ["a"] } }),
            vec![json!({})],
            vec![json!({ "a": 1 })],
        ),
        (
            json!({ "unevaluatedProperties": false, "$ref": "#/$defs/a", "$defs": { "a": { "additionalProperties": { "type": "null" } } } }),
            vec![json!({ "x": null })],
            vec![json!({ "x": 1 })],
        ),
        (
            json!({ "unevaluatedProperties": false, "dependentSchemas": { "a": { "properties": { "a": true, "b": true } } } }),
            vec![json!({ "a": 1, "b": 1 })],
            vec![json!({ "b": 1 })],
        ),
        (
            json!({ "allOf": [{ "unevaluatedProperties": true }], "unevaluatedProperties": false }),
            vec![json!({ "a": 1 })],
            vec![],
        ),
        (
            json!({ "unevaluatedItems": false, "prefixItems": [true], "contains": { "type": "null" } }),
            vec![json!([1, null]), json!([null])],
            vec![json!([1, null, 2])],
        ),
        (
            json!({ "unevaluatedItems": { "type": "string" }, "anyOf": [{ "prefixItems": [{ "const": 1 }] }, true] }),
            vec![json!([1, "a"]), json!(["a"])],
            vec![json!([2]), json!([1, 2])],
        ),
        (json!({ "unevaluatedItems": false, "items": true }), vec![json!([1])], vec![]),
        (
            json!({ "type": "string", "format": "email", "contentEncoding": "base64", "x-unknown": { "type": 1 } }),
            vec![json!("no address")],
            vec![json!(1)],
        ),
        // Older drafts.
        (
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "maximum": 0, "definitions": { "a": { "minimum": 1 } } }),
            vec![json!(5)],
            vec![json!(0)],
        ),
        (
            json!({ "$schema": "https://json-schema.org/draft/2019-09/schema", "contains": { "type": "null" }, "unevaluatedItems": false }),
            vec![],
            vec![json!([null])],
        ),
    ];
    for (schema, fitting, others) in &rows {
        for (value, want) in
            fitting.iter().map(|value| (value, true)).chain(others.iter().map(|value| (value, false)))
        {
            assert_eq!(fits(schema, value), want, "{schema} {value}");
            // The reference refuses the old form of `items` in 2020-12, and counts `contains` as evaluated in
            // 2019-09.
            if !schema["items"].is_array()
                && schema.get("x-parts").is_none()
                && !schema["$schema"].to_string().contains("2019")
            {
                let reference = jsonschema::validator_for(schema).unwrap();
                assert_eq!(reference.is_valid(value), want, "the reference: {schema} {value}");
            }
        }
    }
}

#[test]
fn what_cannot_be_checked_is_refused_with_its_place() {
    for (schema, reason) in [
        (json!(1), "it is not an object or a boolean"),
        (
            json!({ "properties": { "a": { "type": "strnig" } } }),
            r#"/properties/a/type: "strnig" is not a type"#,
        ),
        (json!({ "type": [] }), "/type: [] is not a type"),
        (
            json!({ "properties": { "a/b": { "items": 1 } } }),
            "/properties/a~1b/items: it is not an object or a boolean",
        ),
        (json!({ "properties": [] }), "/properties: it is not an object"),
        (json!({ "required": "a" }), "/required: invalid type: string"),
        (json!({ "required": ["a", 1] }), "/required: invalid type: integer `1`, expected a "),
        (json!({ "enum": 1 }), "/enum: invalid type: integer `1`, expected a sequence"),
        (json!({ "minimum": "1" }), "/minimum: invalid type: string"),
        (
            json!({ "minimum": 1, "exclusiveMinimum": true }),
            "/exclusiveMinimum: invalid type: boolean `true`, expected a JSON number",
        ),
        (json!({ "multipleOf": 0 }), "/multipleOf: it is not greater than 0"),
        (json!({ "minLength": 1.5 }), "/minLength: it is not a non-negative integer"),
        (json!({ "maxItems": -1 }), "/maxItems: it is not a non-negative integer"),
        (json!({ "uniqueItems": 1 }), "/uniqueItems: invalid type: integer `1`, expected a boolean"),
        (
            json!({ "pattern": "a(?!b)" }),
            "/pattern: the pattern is not supported: look-around is not supported; ",
        ),
        (
            json!({ "patternProperties": { "\\p{L}": {} } }),
            "/patternProperties/\\p{L}: the pattern is not supported: ",
        ),
        (json!({ "anyOf": [] }), "/anyOf: it is not an array of schemas"),
        (json!({ "allOf": [{}, { "not": 1 }] }), "/allOf/1/not: it is not an object or a boolean"),
        (json!({ "then": 1 }), "/then: it is not an object or a boolean"),
        (json!({ "minContains": -1 }), "/minContains: it is not a non-negative integer"),
        (
            json!({ "dependentRequired": { "a": {} } }),
            "/dependentRequired/a: invalid type: map, expected a sequence",
        ),
        (json!({ "dependentSchemas": { "a": [] } }), "/dependentSchemas/a: it is not an object or a boolean"),
        (json!({ "prefixItems": [{}], "items": [{}] }), "/items: it is not a schema"),
        (json!({ "$defs": { "unused": { "type": "x" } } }), r#"/$defs/unused/type: "x" is not a type"#),
        (
            json!({ "items": { "$ref": "#/$defs/a" } }),
            "/items/$ref: the target does not exist or is not unique",
        ),
        (
            json!({ "$ref": "#a", "$defs": { "a": { "$anchor": "a" }, "b": { "$anchor": "a" } } }),
            "/$ref: the target does not exist or is not unique",
        ),
        (json!({ "items": { "$ref": "#/%zz" } }), "/items/$ref: the target does not exist or is not unique"),
        (json!({ "$ref": "other.json" }), "/$ref: other documents are not read"),
        (json!({ "$id": "https://a/b", "$ref": "https://a/bc#" }), "/$ref: other documents are not read"),
        (json!({ "$ref": "#/x", "x": { "type": 1 } }), "/x/type: 1 is not a type"),
        (json!({ "$dynamicRef": "#a" }), "/$dynamicRef: it is not supported; use `$ref`"),
        (
            json!({ "items": { "$recursiveRef": "#" } }),
            "/items/$recursiveRef: it is not supported; use `$ref`",
        ),
        (
            json!({ "properties": { "a": { "$id": "b" } } }),
            "/properties/a/$id: it is supported for the whole schema only",
        ),
        (
            json!({ "$schema": "http://json-schema.org/draft-04/schema#" }),
            "/$schema: \"http://json-schema.org/draft-04/schema#\" is not supported; drafts 2020-12, 2019-09 and 7 are",
        ),
        (
            json!({ "not": { "$schema": "http://json-schema.org/draft-07/schema#" } }),
            "/not/$schema: the root schema uses another draft",
        ),
        (
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [] }),
            "/prefixItems: the draft has no such keyword",
        ),
        (json!({ "$ref": "#" }), "it refers to itself without end"),
        (
            json!({ "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/b" }] }, "b": { "not": { "$ref": "#/$defs/a" } } } }),
            "it refers to itself without end",
        ),
    ] {
        let error = Schema::compile(&schema).map(drop).unwrap_err();
        assert!(error.starts_with(reason), "{schema}: {error}");
    }
    let properties = json!({ "$id": "x", "properties": { "$id": { "type": "string" }, "$ref": {}, "type": {} }, "enum": [{ "$id": 1 }] });
    Schema::compile(&properties).unwrap();
}

#[test]
fn faults_name_the_limit_and_not_the_value() {
    for (schema, value, reason) in [
        (json!(false), json!(1), "False schema does not allow the value"),
        (json!({ "minimum": 2.5 }), json!(1), "the value is less than the minimum of 2.5"),
        (json!({ "exclusiveMinimum": 2 }), json!(2), "the value is less than or equal to the minimum of 2"),
        (
            json!({ "exclusiveMaximum": 2 }),
            json!(2),
            "the value is greater than or equal to the maximum of 2",
        ),
        (json!({ "multipleOf": 2 }), json!(1), "the value is not a multiple of 2"),
        (json!({ "minLength": 1 }), json!(""), "the value is shorter than 1 character"),
        (json!({ "maxItems": 2 }), json!([1, 2, 3]), "the value has more than 2 items"),
        (json!({ "minItems": 1 }), json!([]), "the value has less than 1 item"),
        (json!({ "minProperties": 1 }), json!({}), "the value has less than 1 property"),
        (json!({ "maxProperties": 0 }), json!({ "a": 1 }), "the value has more than 0 properties"),
        (json!({ "pattern": "^a" }), json!("SECRET"), "the value does not match \"^a\""),
        (json!({ "uniqueItems": true }), json!([1, 1]), "the value has non-unique elements"),
        (
            json!({ "contains": { "const": 1 } }),
            json!([2]),
            "the value has less than 1 items that fit `contains`",
        ),
        (
            json!({ "contains": { "const": 1 }, "maxContains": 1 }),
            json!([1, 1]),
            "the value does not have 1 to 1 items that fit `contains`",
        ),
        (json!({ "propertyNames": { "maxLength": 1 } }), json!({ "ab": 1 }), "there is no property `ab`"),
        (json!({ "dependentRequired": { "a": ["b"] } }), json!({ "a": 1 }), "\"b\" is a required property"),
        (json!({ "not": { "const": 1 } }), json!(1), "{\"const\":1} is not allowed for the value"),
        (
            json!({ "oneOf": [true, true] }),
            json!(1),
            "the value is valid under more than one of the schemas listed in the 'oneOf' keyword",
        ),
        (json!({ "unevaluatedItems": false }), json!([1, 2]), "Unevaluated items are not allowed"),
        (
            json!({ "properties": { "left": true }, "unevaluatedProperties": false }),
            json!({ "lfet": 1 }),
            "there is no property `lfet`; did you mean `left`?",
        ),
        (json!({ "type": ["string", "null"] }), json!(1), "the value is not of types \"string\", \"null\""),
    ] {
        assert_eq!(fault(&schema, &value), Fault { path: "/".into(), reason: reason.into() }, "{schema}");
    }
}

#[track_caller]
fn soon<T>(run: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = run();
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    result
}

#[test]
fn choices_of_themselves_do_not_take_for_ever() {
    let branch =
        |max: u64| json!({ "properties": { "of": { "$ref": "#/$defs/node" }, "n": { "maximum": max } } });
    let nested = |innermost: Value| (0..60).fold(innermost, |of, _| json!({ "of": of }));
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let schema =
            json!({ "$ref": "#/$defs/node", "$defs": { "node": { keyword: [branch(1), branch(2)] } } });
        let fault = soon(|| fault(&schema, &nested(json!({ "n": 5 }))));
        assert_eq!(fault.path, format!("{}/n", "/of".repeat(60)), "{keyword}");
        assert_eq!(fault.reason, format!("the value is greater than the maximum of {}", 1), "{keyword}");
        let fits = soon(|| fits(&schema, &nested(json!({ "n": 0 }))));
        assert_eq!(fits, keyword != "oneOf", "{keyword}");
    }
    // The same value at each level, with members to be evaluated.
    let many = |of: &dyn Fn(usize) -> Value| (0..60).map(|i| (format!("d{i}"), of(i))).collect::<Map<_, _>>();
    let next = |i: usize| json!({ "$ref": format!("#/$defs/d{}", i + 1) });
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let mut defs = many(&|i| json!({ keyword: [next(i), next(i)], "unevaluatedProperties": false }));
        defs.insert("d60".into(), json!({ "required": ["a"] }));
        let schema = json!({ "$ref": "#/$defs/d0", "$defs": defs });
        for value in [json!({}), json!({ "a": 1 }), json!({ "b": 1 })] {
            assert!(!soon(|| fits(&schema, &value)), "{keyword}");
        }
    }
    let nested =
        (0..100).fold(json!(true), |inner, _| json!({ "allOf": [inner], "unevaluatedProperties": false }));
    assert!(!soon(|| fits(&nested, &json!({ "a": 1 }))));
}

#[test]
fn what_is_too_deep_is_refused_and_no_stack_overflow() {
    let deep =
        |levels: usize, wrap: &dyn Fn(Value) -> Value| (0..levels).fold(json!(1), |inner, _| wrap(inner));
    let list = json!({ "$ref": "#/$defs/list", "$defs": {
        "list": { "anyOf": [{ "type": "integer" }, { "allOf": [{ "$ref": "#/$defs/items" }] }] },
        "items": { "type": "array", "items": { "$ref": "#/$defs/list" }, "minItems": 1 },
    } });
    assert!(fits(&list, &deep(126, &|inner| json!([inner]))));
    // If the check gives up, the value does not fit, and neither does it fit the negated schema.
    let chain = |count: usize| {
        let next =
            |i: usize| json!({ "anyOf": [{ "type": "null" }, { "$ref": format!("#/$defs/d{}", i + 1) }] });
        let mut defs: Map<_, _> = (0..count).map(|i| (format!("d{i}"), next(i))).collect();
        defs.insert(format!("d{count}"), json!({ "type": "string" }));
        json!({ "$ref": "#/$defs/d0", "$defs": defs })
    };
    assert!(fits(&chain(300), &json!("a")));
    assert_eq!(fault(&chain(3000), &json!("a")), Fault::unknown());
    let mut contrary = chain(3000);
    contrary["$ref"] = json!("#/$defs/d3000");
    contrary["not"] = json!({ "$ref": "#/$defs/d0" });
    assert_eq!(fault(&contrary, &json!("a")), Fault::unknown());
    let schema =
        deep(120, &|inner| json!({ "properties": { "a": if inner == 1 { json!(true) } else { inner } } }));
    assert!(fits(&schema, &deep(120, &|inner| json!({ "a": inner }))));
}

#[test]
fn large_values_are_checked_in_a_moment() {
    let numbers: Vec<_> = (0..200_000).map(Value::from).collect();
    let schema = json!({ "items": { "anyOf": [{ "type": "string", "minLength": 1 }, { "$ref": "#/$defs/n" }] }, "uniqueItems": true, "$defs": { "n": { "type": "integer" } } });
    soon(|| assert!(fits(&schema, &json!(numbers))));
    let mut twice = numbers.clone();
    twice.push(json!(5.0));
    soon(|| assert!(!fits(&schema, &json!(twice))));
    let mut wrong = numbers;
    wrong[100_000] = json!(0.5);
    assert_eq!(soon(|| fault(&schema, &json!(wrong))).path, "/100000");
    // Too many errors to examine them all.
    let choice = json!({ "anyOf": [{ "items": { "type": "string" } }, { "items": { "type": "null" } }] });
    assert_eq!(soon(|| fault(&choice, &json!(wrong))), Fault::unknown());
}

fn any_value() -> impl Strategy<Value = Value> {
    let plain = select(vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(1.0),
        json!(2),
        json!(-3),
        json!(0.3),
        json!(1.5),
        json!(1e20),
        json!(u64::MAX),
        json!(""),
        json!("a"),
        json!("ab"),
        json!("é 😀"),
        json!("a\r"),
        json!("\u{a0}"),
    ]);
    plain.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4).prop_map(|members| json!(members)),
        ]
    })
}

fn name() -> impl Strategy<Value = &'static str> {
    select(vec!["a", "b", "c", "ab", "x"])
}

fn any_keyword(inner: &BoxedStrategy<Value>) -> BoxedStrategy<(String, Value)> {
    let is = |keyword: &'static str, value: BoxedStrategy<Value>| {
        value.prop_map(move |value| (keyword.to_owned(), value)).boxed()
    };
    let one_of = |keywords: Vec<&'static str>, value: BoxedStrategy<Value>| {
        (select(keywords), value).prop_map(|(keyword, value)| (keyword.to_owned(), value)).boxed()
    };
    let values = |values: Value| select(values.as_array().unwrap().clone()).boxed();
    let list = prop::collection::vec(inner.clone(), 1..3).prop_map(Value::from).boxed();
    let map = prop::collection::btree_map(name(), inner.clone(), 0..3).prop_map(|map| json!(map)).boxed();
    let names = subsequence(vec!["a", "b", "c"], 0..3).prop_map(|names| json!(names)).boxed();
    let patterns = vec!["^a", "b$", ".", "^.$", "\\s", "^\\S+$", "[^a]", "^(a|b)+$", "\\w{2}", "^\\D*$", "é"];
    let types = ["string", "boolean", "null", "integer", "number", "array", "object"];
    let by_pattern = prop::collection::btree_map(select(patterns.clone()), inner.clone(), 0..3);
    prop_oneof![
        is("type", select(types.to_vec()).prop_map(Value::from).boxed()),
        is("type", subsequence(types.to_vec(), 1..4).prop_map(|types| json!(types)).boxed()),
        is("const", any_value().boxed()),
        is("enum", prop::collection::vec(any_value(), 1..4).prop_map(Value::from).boxed()),
        one_of(
            vec!["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
            values(json!([0, 1, 1.0, 1.5, 0.3, -3, 1e20, u64::MAX]))
        ),
        is("multipleOf", values(json!([1, 2, 0.1, 0.5, 3.0]))),
        one_of(
            vec!["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"],
            values(json!([0, 1, 2, 3.0]))
        ),
        one_of(vec!["minContains", "maxContains"], values(json!([0, 1, 2]))),
        is("pattern", select(patterns).prop_map(Value::from).boxed()),
        is("uniqueItems", any::<bool>().prop_map(Value::from).boxed()),
        one_of(
            vec!["items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"],
            inner.clone()
        ),
        one_of(vec!["unevaluatedProperties", "unevaluatedItems"], inner.clone()),
        one_of(vec!["prefixItems", "allOf", "anyOf", "oneOf"], list),
        one_of(vec!["properties", "dependentSchemas"], map),
        is("patternProperties", by_pattern.prop_map(|map| json!(map)).boxed()),
        is("required", names.clone()),
        is(
            "dependentRequired",
            prop::collection::btree_map(name(), names.clone(), 0..3).prop_map(|map| json!(map)).boxed()
        ),
        is(
            "dependencies",
            prop::collection::btree_map(name(), prop_oneof![names, inner.clone()], 0..3)
                .prop_map(|map| json!(map))
                .boxed()
        ),
        is("$ref", values(json!(["#/$defs/a", "#/$defs/b", "#anchor", "#/$defs/tree"]))),
    ]
    .boxed()
}

fn any_schema() -> impl Strategy<Value = Value> {
    let plain = prop_oneof![
        Just(json!(true)),
        Just(json!({})),
        Just(json!(false)),
        Just(json!({ "type": "string" }))
    ];
    let inner = plain.prop_recursive(4, 32, 4, |inner| {
        prop::collection::vec(any_keyword(&inner.boxed()), 1..4)
            .prop_map(|keywords| Value::Object(keywords.into_iter().collect()))
    });
    let defs = [inner.clone(), inner.clone(), inner.clone()];
    (inner, defs).prop_map(|(mut schema, [a, b, c])| {
        if schema.is_object() {
            let anchored = json!({ "$anchor": "anchor", "allOf": [c] });
            let tree = json!({ "anyOf": [{ "type": "array", "items": { "$ref": "#/$defs/tree" } }, { "type": ["null", "integer"] }] });
            schema["$defs"] = json!({ "a": a, "b": b, "c": anchored, "tree": tree });
        }
        schema
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(if std::env::var_os("TOOLBRIDGE_TEST_THOROUGH").is_some() { 4000 } else { 400 }), max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn the_verdict_is_that_of_the_reference(schema in any_schema(), values in prop::collection::vec(any_value(), 1..8)) {
        let compiled = match Schema::compile(&schema) {
            Ok(compiled) => compiled,
            Err(reason) => {
                prop_assert_eq!(reason, "it refers to itself without end");
                return Err(TestCaseError::reject("endless"));
            }
        };
        let reference = jsonschema::validator_for(&schema).unwrap();
        for value in values {
            let want = reference.is_valid(&value);
            let fault = compiled.fault(&value);
            // It recurses without end, but not for every value.
            if fault == Some(Fault::unknown()) {
                continue;
            }
            prop_assert_eq!(fault.is_none(), want, "{} {} {:?}", schema, value, fault);
            prop_assert!(want || !compiled.surely_fits(&value.to_string()), "{} {}", schema, value);
            if let Some(fault) = fault {
                prop_assert!(fault.path == "/" || value.pointer(&fault.path).is_some(), "{} {} {:?}", schema, value, fault);
            }
        }
    }
}
