//! Schemas that can be checked without decoding anything.

use serde_json::{Map, Value};

use crate::json::Walk;
use crate::scan;

/// What a schema asks of a value, where it says so little that a look at the text is enough: kinds of values,
/// members, items, words to choose from, bounds of integers.
///
/// Most tools have such a schema. A tree of the arguments, which is what a validator looks at, is then not
/// needed; it would be the larger part of what a call with large arguments takes here.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The kinds the value may be of.
    kinds: u8,
    /// A string must be one of these JSON texts, if there are any.
    words: Vec<String>,
    /// The least and the largest integer.
    bounds: Option<(i64, i64)>,
    /// What each item of an array must be.
    items: Option<Box<Shape>>,
    /// The members of an object that something is said of.
    members: Vec<Member>,
    /// What each other member must be.
    others: Option<Box<Shape>>,
}

#[derive(Debug)]
struct Member {
    name: String,
    /// `None` when nothing is said but that it is required: then it is one of the others.
    shape: Option<Shape>,
    required: bool,
}

const STRING: u8 = 1;
const BOOLEAN: u8 = 2;
const NULL: u8 = 4;
const INTEGER: u8 = 8;
const FRACTION: u8 = 16;
const ARRAY: u8 = 32;
const OBJECT: u8 = 64;
const ANY: u8 = 127;

/// Which members have been seen is kept in the bits of a number.
const MAX_MEMBERS: usize = 64;

/// A schema of more than this is left to the validator: one that refers to itself has no end.
const MAX_PARTS: usize = 1000;

impl Shape {
    /// `None` when the schema says more than that.
    pub(crate) fn of(root: &Value) -> Option<Self> {
        let has_name = |part: &Value| ["$id", "id"].iter().any(|key| part[key].is_string());
        // References inside of a part that has a name of its own are meant from there.
        if inner_parts(root).into_iter().any(has_name) {
            return None;
        }
        Reader { root, parts: 0 }.shape(root)
    }

    /// Whether `text`, which is JSON, fits. `false` only says that it has to be looked at more closely.
    pub(crate) fn surely_fits(&self, text: &str) -> bool {
        self.end(text, scan::skip_space(text.as_bytes(), 0)).is_some()
    }

    fn any() -> Self {
        Self::of_kinds(ANY)
    }

    fn of_kinds(kinds: u8) -> Self {
        Self { kinds, words: Vec::new(), bounds: None, items: None, members: Vec::new(), others: None }
    }

    /// Where the value that begins at `at` ends; `None` when it does not surely fit.
    fn end(&self, text: &str, at: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        let first = *bytes.get(at)?;
        match first {
            b'{' if self.kinds & OBJECT != 0 => self.object_end(text, at),
            b'[' if self.kinds & ARRAY != 0 => self.array_end(text, at),
            b'{' | b'[' => None,
            _ => {
                let end = scan::value_end(bytes, at)?;
                self.takes(first, &text[at..end]).then_some(end)
            }
        }
    }

    /// Whether a value that is neither an array nor an object fits.
    fn takes(&self, first: u8, value: &str) -> bool {
        let kind = match first {
            b'"' => STRING,
            b't' | b'f' => BOOLEAN,
            b'n' => NULL,
            _ if value.bytes().all(|byte| matches!(byte, b'-' | b'0'..=b'9')) => INTEGER,
            _ => FRACTION,
        };
        if self.kinds & kind == 0 {
            return false;
        }
        match (kind, self.bounds) {
            (STRING, _) => self.words.is_empty() || self.words.iter().any(|word| word == value),
            (FRACTION, Some(_)) => false,
            (INTEGER, Some((least, largest))) => {
                value.parse().is_ok_and(|number: i64| (least..=largest).contains(&number))
            }
            _ => true,
        }
    }

    fn array_end(&self, text: &str, at: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        let Some(items) = &self.items else { return scan::value_end(bytes, at) };
        let mut at = scan::skip_space(bytes, at + 1);
        if bytes.get(at) == Some(&b']') {
            return Some(at + 1);
        }
        loop {
            at = scan::skip_space(bytes, items.end(text, at)?);
            match bytes.get(at)? {
                b',' => at = scan::skip_space(bytes, at + 1),
                b']' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    fn object_end(&self, text: &str, at: usize) -> Option<usize> {
        if self.members.is_empty() && self.others.is_none() {
            return scan::value_end(text.as_bytes(), at);
        }
        let (mut seen, mut next) = (0_u64, 0);
        let mut object = Walk::at(text, at)?;
        while let Some(key) = object.next_key().ok()? {
            let place = self.place(&key.name()?, next);
            let shape = match place {
                Some(place) => {
                    // The last one would count, if it stands twice; that is for the validator to say.
                    if seen & 1 << place != 0 {
                        return None;
                    }
                    (seen, next) = (seen | 1 << place, place + 1);
                    self.members[place].shape.as_ref()
                }
                None => None,
            };
            match shape.or(self.others.as_deref()) {
                Some(shape) => object.value_to(|at| shape.end(text, at)),
                None => object.value(),
            }
            .ok()?;
        }
        let all_there =
            self.members.iter().enumerate().all(|(place, member)| !member.required || seen & 1 << place != 0);
        all_there.then(|| object.place())
    }

    /// The place of the member of that name, which is most likely `next`.
    fn place(&self, name: &str, next: usize) -> Option<usize> {
        let count = self.members.len();
        (next..count).chain(0..next.min(count)).find(|place| self.members[*place].name == name)
    }
}

/// Reads a schema, and stops at whatever it cannot say in a [`Shape`].
struct Reader<'a> {
    root: &'a Value,
    parts: usize,
}

impl Reader<'_> {
    fn shape(&mut self, schema: &Value) -> Option<Shape> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return None;
        }
        let schema = match schema {
            Value::Bool(anything) => return Some(Shape::of_kinds(if *anything { ANY } else { 0 })),
            Value::Object(schema) => schema,
            _ => return None,
        };
        if let Some(place) = schema.get("$ref") {
            return self.reference(schema, place.as_str()?);
        }
        if let Some(choice) = schema.get("anyOf") {
            return self.optional(schema, choice);
        }
        let mut shape = Shape::any();
        for (keyword, value) in schema {
            match keyword.as_str() {
                "type" => shape.kinds &= kinds(value)?,
                "enum" => shape.choose(value.as_array()?),
                "const" => shape.choose(std::slice::from_ref(value)),
                "minimum" => shape.bounds.get_or_insert((i64::MIN, i64::MAX)).0 = value.as_i64()?,
                "maximum" => shape.bounds.get_or_insert((i64::MIN, i64::MAX)).1 = value.as_i64()?,
                "format" if is_width(value.as_str()?) => {}
                "items" => shape.items = Some(Box::new(self.shape(value)?)),
                "additionalProperties" => shape.others = Some(Box::new(self.shape(value)?)),
                "properties" => {
                    for (name, schema) in value.as_object()? {
                        let shape_of_member = self.shape(schema)?;
                        shape.member(name).shape = Some(shape_of_member);
                    }
                }
                "required" => {
                    for name in value.as_array()? {
                        shape.member(name.as_str()?).required = true;
                    }
                }
                "$schema" | "$id" if std::ptr::eq(schema, self.root.as_object()?) => {}
                "$defs" | "definitions" => {}
                keyword if describes(keyword) => {}
                _ => return None,
            }
        }
        // Both together say what neither says alone.
        if schema.contains_key("enum") && schema.contains_key("const") {
            return None;
        }
        (shape.members.len() <= MAX_MEMBERS).then_some(shape)
    }

    /// A part of the schema that is written elsewhere in it.
    fn reference(&mut self, schema: &Map<String, Value>, place: &str) -> Option<Shape> {
        if schema.keys().any(|keyword| keyword != "$ref" && !describes(keyword)) || place.contains('%') {
            return None;
        }
        let root = self.root;
        self.shape(root.pointer(place.strip_prefix('#')?)?)
    }

    /// Something or null, which is how an `Option` of a struct is written.
    fn optional(&mut self, schema: &Map<String, Value>, choice: &Value) -> Option<Shape> {
        if schema.keys().any(|keyword| keyword != "anyOf" && !describes(keyword)) {
            return None;
        }
        let [some, none] = &choice.as_array()?[..] else { return None };
        if none.as_object()?.len() != 1 || kinds(none.get("type")?)? != NULL {
            return None;
        }
        let mut shape = self.shape(some)?;
        shape.kinds |= NULL;
        Some(shape)
    }
}

impl Shape {
    /// Only the strings among these are taken; everything else is left to the validator.
    fn choose(&mut self, values: &[Value]) {
        self.words = values.iter().filter(|value| value.is_string()).map(Value::to_string).collect();
        self.kinds &= if self.words.is_empty() { 0 } else { STRING };
    }

    fn member(&mut self, name: &str) -> &mut Member {
        let place = self.members.iter().position(|member| member.name == name).unwrap_or_else(|| {
            self.members.push(Member { name: name.into(), shape: None, required: false });
            self.members.len() - 1
        });
        &mut self.members[place]
    }
}

/// Everything inside of a schema.
fn inner_parts(root: &Value) -> Vec<&Value> {
    let (mut parts, mut next) = (vec![root], 0);
    while let Some(part) = parts.get(next).copied() {
        match part {
            Value::Array(items) => parts.extend(items),
            Value::Object(members) => parts.extend(members.values()),
            _ => {}
        }
        next += 1;
    }
    parts.split_off(1)
}

fn kinds(types: &Value) -> Option<u8> {
    fn kind(name: &Value) -> Option<u8> {
        Some(match name.as_str()? {
            "string" => STRING,
            "boolean" => BOOLEAN,
            "null" => NULL,
            "integer" => INTEGER,
            "number" => INTEGER | FRACTION,
            "array" => ARRAY,
            "object" => OBJECT,
            _ => return None,
        })
    }
    match types {
        Value::Array(names) => names.iter().try_fold(0, |kinds, name| Some(kinds | kind(name)?)),
        name => kind(name),
    }
}

/// How wide a number is in Rust; JSON Schema knows no such formats.
fn is_width(format: &str) -> bool {
    matches!(format, "double" | "float")
        || format
            .trim_start_matches('u')
            .strip_prefix("int")
            .is_some_and(|bits| matches!(bits, "" | "8" | "16" | "32" | "64"))
}

/// Whether a keyword only describes, and checks nothing.
fn describes(keyword: &str) -> bool {
    matches!(keyword, "title" | "description" | "$comment" | "examples" | "default" | "deprecated")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn with(property: &Value) -> Option<Shape> {
        Shape::of(&json!({
            "type": "object",
            "properties": { "a": property },
            "$defs": { "item": { "type": "object" }, "endless": { "items": { "$ref": "#/$defs/endless" } } },
        }))
    }

    #[test]
    fn what_says_little_has_a_shape() {
        for plain in [
            json!({ "type": "string", "description": "x" }),
            json!({ "type": ["integer", "null"], "format": "int64" }),
            json!({ "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255 }),
            json!({ "type": "number", "format": "double" }),
            json!({ "type": "string", "enum": ["a", "b"] }),
            json!({ "const": "a" }),
            json!({ "type": "array", "items": { "$ref": "#/$defs/item", "description": "x" } }),
            json!({ "anyOf": [{ "$ref": "#/$defs/item" }, { "type": "null" }], "default": null }),
            json!({ "type": "object", "additionalProperties": { "type": "string" }, "required": ["b"] }),
            json!({}),
            json!(true),
        ] {
            assert!(with(&plain).is_some(), "{plain}");
        }
        for more in [
            json!({ "type": "string", "minLength": 1 }),
            json!({ "type": "string", "format": "email" }),
            json!({ "type": "integer", "minimum": 0.5 }),
            json!({ "type": "integer", "exclusiveMinimum": 0 }),
            json!({ "enum": ["a"], "const": "a" }),
            json!({ "type": "array", "items": [{}] }),
            json!({ "type": "array", "minItems": 1 }),
            json!({ "$ref": "#/$defs/item", "type": "object" }),
            json!({ "$ref": "#/$defs/none" }),
            json!({ "$ref": "other.json" }),
            json!({ "$ref": "#/$defs/endless" }),
            json!({ "$id": "other" }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "oneOf": [{ "const": "a" }] }),
            json!({ "patternProperties": {} }),
            json!({ "x-unknown": 1 }),
        ] {
            assert!(with(&more).is_none(), "{more}");
        }
    }

    #[test]
    fn a_member_that_stands_twice_is_looked_at_more_closely() {
        let schema = json!({ "properties": { "a": { "type": "null" }, "b": { "type": "null" } }, "required": ["a", "b"] });
        let shape = Shape::of(&schema).unwrap();
        assert!(shape.surely_fits(r#"{"a":null,"b":null}"#));
        for text in [r#"{"a":null,"a":null,"b":null}"#, r#"{"a":null,"a":null}"#, r#"{"a":null}"#] {
            assert!(!shape.surely_fits(text), "{text}");
        }
    }

    #[test]
    fn a_part_with_a_name_of_its_own_is_left_to_the_validator() {
        let schema = json!({
            "properties": { "x": { "$ref": "#/$defs/a/properties/p" } },
            "$defs": {
                "a": { "$id": "http://x/a", "$defs": { "t": { "type": "string" } }, "properties": { "p": { "$ref": "#/$defs/t" } } },
                "t": {},
            },
        });
        assert!(Shape::of(&schema).is_none());
        let named = json!({ "$id": "http://x/root", "properties": { "id": { "type": "string" } } });
        assert!(Shape::of(&named).unwrap().surely_fits(r#"{"id":"x"}"#));
    }

    #[test]
    fn a_member_that_is_only_required_is_one_of_the_others() {
        let shape = |others: Value| {
            Shape::of(
                &json!({ "properties": { "a": {} }, "required": ["c"], "additionalProperties": others }),
            )
            .unwrap()
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
        /// Whatever surely fits, the validator accepts; and what it accepts fits, but for a few things.
        #[test]
        fn it_agrees_with_the_validator(schema in any_schema(), value in any_value()) {
            let fits = Shape::of(&schema).unwrap().surely_fits(&value.to_string());
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(Shape::of(&schema).unwrap().surely_fits(&pretty), fits);
            let valid = jsonschema::validator_for(&schema).unwrap().is_valid(&value);
            prop_assert!(valid || !fits, "{} fits {}", value, schema);
            let may_differ = ["enum", "const", "imum"].iter().any(|word| schema.to_string().contains(word));
            prop_assert!(may_differ || fits || !valid, "{} does not fit {}", value, schema);
        }
    }
}
