//! Checks values by their text, without decoding them.

use serde_json::Value;

use crate::tool::json::Walk;
use crate::tool::scan;
use crate::tool::schema::{
    ARRAY, BOOLEAN, FRACTION, INTEGER, Id, Keyword, Limit, NULL, Num, OBJECT, Object, STRING, Schema,
};

/// The members seen so far are bits of a `u64`.
const MAX_MEMBERS: usize = 64;

/// How deep values are checked here: the stack is limited.
const MAX_DEPTH: usize = 100;

/// Most tools have a schema so simple that scanning the text is enough: types, members, items, enums of strings,
/// bounds of integers. Decoding large arguments would take most of the time of a call.
impl Schema {
    /// Whether the schema uses only these keywords.
    pub(crate) fn is_plain(&self) -> bool {
        let is_plain = |keyword: &Keyword| match keyword {
            Keyword::Type(..) | Keyword::AllOf(_) => true,
            Keyword::Limit(Limit(_, kind, ..), _) => *kind == INTEGER | FRACTION,
            Keyword::Enum(options) => options.iter().any(Value::is_string),
            Keyword::Object(object) => object.patterns.is_empty() && object.members.len() <= MAX_MEMBERS,
            Keyword::Items { first, .. } => first.is_empty(),
            Keyword::AnyOf(branches) => self.optional(branches).is_some(),
            _ => false,
        };
        self.nodes.iter().flat_map(|node| &node.keywords).all(is_plain)
    }

    /// The schema of `anyOf: [some, null]`, which is how an `Option` of a struct is written.
    fn optional(&self, branches: &[Id]) -> Option<Id> {
        let [some, none] = *branches else { return None };
        matches!(self.nodes[none].keywords[..], [Keyword::Type(NULL, _)]).then_some(some)
    }

    /// Whether `text`, which is JSON, fits. `false` only means that it needs the full check.
    pub(crate) fn surely_fits(&self, text: &str) -> bool {
        self.is_plain && self.end(0, text, scan::skip_space(text.as_bytes(), 0), 0).is_some()
    }

    /// Where the value that begins at `at` ends; `None` when it needs the full check.
    fn end(&self, id: Id, text: &str, at: usize, depth: usize) -> Option<usize> {
        if depth > MAX_DEPTH {
            return None;
        }
        let bytes = text.as_bytes();
        let (kind, mut end) = match bytes.get(at)? {
            b'{' => (OBJECT, None),
            b'[' => (ARRAY, None),
            first => {
                let end = scan::value_end(bytes, at)?;
                let kind = match first {
                    b'"' => STRING,
                    b't' | b'f' => BOOLEAN,
                    b'n' => NULL,
                    _ if bytes[at..end].iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9')) => INTEGER,
                    _ => FRACTION,
                };
                (kind, Some(end))
            }
        };
        for keyword in &self.nodes[id].keywords {
            match (keyword, kind) {
                (Keyword::Object(object), OBJECT) => end = Some(self.object_end(object, text, at, depth)?),
                (Keyword::Items { others: Some(items), .. }, ARRAY) => {
                    end = Some(self.array_end(*items, text, at, depth)?);
                }
                (Keyword::AllOf(all), _) => {
                    for id in all {
                        end = Some(self.end(*id, text, at, depth + 1)?);
                    }
                }
                (Keyword::AnyOf(branches), _) if kind != NULL => {
                    end = Some(self.end(self.optional(branches)?, text, at, depth + 1)?);
                }
                (leaf, _) => surely_holds(leaf, kind, &text[at..end.unwrap_or(at)]).then_some(())?,
            }
        }
        end.or_else(|| scan::value_end(bytes, at))
    }

    fn array_end(&self, items: Id, text: &str, at: usize, depth: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        let mut at = scan::skip_space(bytes, at + 1);
        if bytes.get(at) == Some(&b']') {
            return Some(at + 1);
        }
        loop {
            at = scan::skip_space(bytes, self.end(items, text, at, depth + 1)?);
            match bytes.get(at)? {
                b',' => at = scan::skip_space(bytes, at + 1),
                b']' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    fn object_end(&self, object: &Object, text: &str, at: usize, depth: usize) -> Option<usize> {
        let (mut seen, mut next) = (0_u64, 0);
        let mut walk = Walk::at(text, at)?;
        while let Some(key) = walk.next_key().ok()? {
            let place = object.place(&key.name()?, next);
            if let Some(place) = place {
                // A duplicate member: the last one counts, so it needs the full check.
                if seen & 1 << place != 0 {
                    return None;
                }
                (seen, next) = (seen | 1 << place, place + 1);
            }
            match place.and_then(|place| object.members[place].1).or(object.others) {
                Some(id) => walk.value_to(|at| self.end(id, text, at, depth + 1)),
                None => walk.value(),
            }
            .ok()?;
        }
        object.required.iter().all(|place| seen & 1 << place != 0).then(|| walk.place())
    }
}

/// Whether a value with this text certainly fits; the text of arrays and objects is not examined.
fn surely_holds(keyword: &Keyword, kind: u8, value: &str) -> bool {
    let is_word = |word: &Value| {
        let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        quoted.is_some_and(|text| !text.contains('\\') && word == text)
    };
    match keyword {
        Keyword::Type(kinds, _) => kinds & kind != 0,
        Keyword::Enum(words) => words.iter().any(is_word),
        Keyword::Limit(Limit(_, _, is_wrong, ..), limit) => match kind {
            INTEGER => value
                .parse::<i64>()
                .is_ok_and(|number| !is_wrong(Num::Integer(number.into()).compare(Num::of(limit)))),
            kind => kind != FRACTION,
        },
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema(schema: &Value) -> Schema {
        Schema::compile(schema).unwrap()
    }

    fn with(property: &Value) -> Schema {
        schema(&json!({
            "type": "object",
            "properties": { "a": property },
            "$defs": { "item": { "type": "object" }, "endless": { "items": { "$ref": "#/$defs/endless" } } },
        }))
    }

    #[test]
    fn simple_schemas_are_plain() {
        for plain in [
            json!({ "type": "string", "description": "x", "format": "email" }),
            json!({ "type": ["integer", "null"], "format": "int64" }),
            json!({ "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255 }),
            json!({ "type": "integer", "exclusiveMinimum": 0.5 }),
            json!({ "type": "number", "format": "double" }),
            json!({ "type": "string", "enum": ["a", "b"] }),
            json!({ "const": "a" }),
            json!({ "type": "array", "items": { "$ref": "#/$defs/item", "description": "x" } }),
            json!({ "$ref": "#/$defs/endless", "type": "array" }),
            json!({ "anyOf": [{ "$ref": "#/$defs/item" }, { "type": "null" }], "default": null }),
            json!({ "type": "object", "additionalProperties": { "type": "string" }, "required": ["b"] }),
            json!({ "x-unknown": 1 }),
            json!({}),
            json!(true),
        ] {
            assert!(with(&plain).is_plain, "{plain}");
        }
        for more in [
            json!({ "type": "string", "minLength": 1 }),
            json!({ "type": "integer", "multipleOf": 2 }),
            json!({ "enum": [1] }),
            json!({ "type": "array", "items": [{}] }),
            json!({ "type": "array", "minItems": 1 }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "oneOf": [{ "const": "a" }] }),
            json!({ "patternProperties": { "a": {} } }),
        ] {
            assert!(!with(&more).is_plain, "{more}");
        }
    }

    #[test]
    fn a_value_that_is_too_deep_gets_the_full_check() {
        let endless = with(&json!({ "$ref": "#/$defs/endless" }));
        let nested = |levels: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
        assert!(endless.surely_fits(&nested(40)));
        assert!(!endless.surely_fits(&nested(100_000)));
    }

    #[test]
    fn a_duplicate_member_gets_the_full_check() {
        let schema = json!({ "properties": { "a": { "type": "null" }, "b": { "type": "null" } }, "required": ["a", "b"] });
        let shape = self::schema(&schema);
        assert!(shape.surely_fits(r#"{"a":null,"b":null}"#));
        for text in [r#"{"a":null,"a":null,"b":null}"#, r#"{"a":null,"a":null}"#, r#"{"a":null}"#] {
            assert!(!shape.surely_fits(text), "{text}");
        }
    }

    #[test]
    fn a_member_that_is_only_required_is_an_additional_property() {
        let shape = |others: Value| {
            schema(&json!({ "properties": { "a": {} }, "required": ["c"], "additionalProperties": others }))
        };
        assert!(!shape(json!(false)).surely_fits(r#"{"c":"x"}"#));
        assert!(!shape(json!({ "type": "integer" })).surely_fits(r#"{"c":"x"}"#));
        assert!(shape(json!({ "type": "string" })).surely_fits(r#"{"c":"x"}"#));
        assert!(!shape(json!({ "type": "string" })).surely_fits(r#"{"d":"x"}"#));
    }

    fn any_schema() -> impl Strategy<Value = Value> {
        let plain = prop::sample::select(vec![
            json!({ "type": "string" }),
            json!({ "type": ["boolean", "null"] }),
            json!({ "type": "integer", "minimum": 0 }),
            json!({ "type": "integer", "minimum": -3, "maximum": 3 }),
            json!({ "type": "number" }),
            json!({ "maximum": 2 }),
            json!({ "enum": ["a", "x", 5] }),
            json!({ "const": null }),
            json!({}),
            json!(false),
        ]);
        plain.prop_recursive(3, 16, 3, |inner| {
            let required = prop::collection::btree_set(prop::sample::select(vec!["a", "b", "c"]), 0..3);
            prop_oneof![
                inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
                inner.clone().prop_map(|some| json!({ "anyOf": [some, { "type": "null" }] })),
                (prop::collection::vec(inner, 3), required, any::<u8>()).prop_map(
                    |(inner, required, choice)| {
                        let mut schema = json!({
                            "type": "object",
                            "properties": { "a": inner[0], "b": inner[1] },
                            "required": required,
                        });
                        match choice % 3 {
                            0 => schema["additionalProperties"] = false.into(),
                            1 => schema["additionalProperties"] = inner[2].clone(),
                            _ => {}
                        }
                        schema
                    }
                ),
            ]
        })
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let plain = prop::sample::select(vec![
            json!("a"),
            json!("x y"),
            json!(true),
            json!(null),
            json!(-5),
            json!(2),
            json!(1.5),
            json!(u64::MAX),
        ]);
        plain.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::hash_map(prop::sample::select(vec!["a", "b", "c"]), inner, 0..4)
                    .prop_map(|members| json!(members)),
            ]
        })
    }

    proptest! {
        /// Everything that passes here is accepted by the validator; the reverse holds with a few exceptions.
        #[test]
        fn it_agrees_with_the_validator(schema in any_schema(), value in any_value()) {
            let fits = Schema::compile(&schema).unwrap().surely_fits(&value.to_string());
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(Schema::compile(&schema).unwrap().surely_fits(&pretty), fits);
            let valid = jsonschema::validator_for(&schema).unwrap().is_valid(&value);
            prop_assert!(valid || !fits, "{} fits {}", value, schema);
            let may_differ = ["enum", "const", "imum"].iter().any(|word| schema.to_string().contains(word));
            prop_assert!(may_differ || fits || !valid, "{} does not fit {}", value, schema);
        }
    }
}
