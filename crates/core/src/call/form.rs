//! The form of a question: which types can be asked for, and how answers are read.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::call::question::question_error;
use crate::tool::arguments::{fault, with_integers};
use crate::{Answer, RawJson, Schema, ToolError, schema_of};

/// The one field of a form that asks for a plain value.
const FIELD: &str = "answer";

/// The string formats that clients support.
const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

/// A form that a client can show: a flat object of strings, numbers, booleans and choices.
#[derive(Debug)]
pub struct Form {
    /// The schema sent to the client.
    schema: RawJson,
    /// The full schema of the type, which answers are checked against.
    checked: Schema,
    /// Whether the form asks for a plain value, wrapped in an object with one field.
    is_plain: bool,
}

impl Form {
    /// The form that asks for a `T`.
    ///
    /// # Errors
    ///
    /// When `T` is neither a plain value nor a struct of plain values.
    pub(crate) fn of<T: JsonSchema>() -> Result<Self, ToolError> {
        Self::new(&schema_of::<T>()).map_err(|reason| {
            let name = std::any::type_name::<T>();
            question_error(format!("`{name}` cannot be asked for: {reason}"))
        })
    }

    /// The form that asks for a value matching a JSON Schema.
    ///
    /// # Errors
    ///
    /// When the schema is neither that of a plain value nor that of an object of plain values.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let root = schema;
        let schema = resolved(schema, root)?;
        let is_plain = schema.get("properties").is_none() && schema.get("type") != Some(&json!("object"));
        if is_plain {
            let (field, is_optional) = field(schema, root)?;
            let required = if is_optional { vec![] } else { vec![FIELD] };
            let form = json!({ "type": "object", "properties": { FIELD: field }, "required": required });
            // References point into the whole schema.
            let mut checked =
                json!({ "type": "object", "properties": { FIELD: schema }, "required": required });
            for defs in ["$defs", "definitions"] {
                if let Some(found) = root.get(defs) {
                    checked[defs] = found.clone();
                }
            }
            return Ok(Self { schema: RawJson::from(&form), checked: Schema::compile(&checked)?, is_plain });
        }
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        if let Some(other) = ["oneOf", "anyOf", "allOf"].into_iter().find(|key| schema.get(*key).is_some()) {
            return Err(format!("its fields are not always the same (`{other}`); {RIGHT}"));
        }
        let mut required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut fields = Map::new();
        for (name, property) in properties {
            let (field, is_optional) =
                field(property, root).map_err(|reason| format!("its field `{name}`: {reason}"))?;
            if is_optional {
                required.retain(|required| required != name);
            }
            fields.insert(name.clone(), field);
        }
        let form = json!({ "type": "object", "properties": fields, "required": required });
        Ok(Self { schema: RawJson::from(&form), checked: Schema::compile(root)?, is_plain })
    }

    /// The schema sent to the client.
    #[must_use]
    pub fn schema(&self) -> &RawJson {
        &self.schema
    }

    /// The requested value as JSON; it matches the schema.
    ///
    /// # Errors
    ///
    /// When the answer does not match.
    pub fn value(&self, content: &RawJson) -> Result<RawJson, ToolError> {
        if let Some(found) = fault(&self.checked, content, None) {
            let crate::Fault { path, reason } = found;
            return Err(question_error(format!(
                "the answer does not fit the question: at `{path}`: {reason}"
            )));
        }
        // `1.0` is an integer in JSON Schema, but not for serde.
        let whole = with_integers(content.as_str()).and_then(|text| RawJson::parse(text).ok());
        let content = whole.unwrap_or_else(|| content.clone());
        if !self.is_plain {
            return Ok(content);
        }
        let found = crate::tool::json::members(content.as_str(), &[FIELD]).ok().flatten();
        let value = found.and_then(|[value]| value).map_or("null", |value| value.get());
        RawJson::parse(value.to_owned()).map_err(|error| unread(&error))
    }

    /// The answer, decoded.
    pub(crate) fn read<T: DeserializeOwned>(&self, answer: Answer) -> Result<Answer<T>, ToolError> {
        answer.try_map(|content| self.value(&content)?.decode().map_err(|error| unread(&error)))
    }
}

fn unread(error: &serde_json::Error) -> ToolError {
    question_error(format!("the answer cannot be read: {error}"))
}

const RIGHT: &str =
    "ask for a string, a number, a boolean, an enum without data, or a struct with fields of these types";

/// Follows references to the schema that they point to.
fn resolved<'a>(schema: &'a Value, root: &'a Value) -> Result<&'a Value, String> {
    let mut schema = schema;
    // A longer chain of references is treated as a cycle.
    for _ in 0..16 {
        let to = match (schema.get("$ref"), schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice))
        {
            (Some(Value::String(to)), _) => to,
            (None, Some([only])) if schema.get("properties").is_none() => {
                schema = only;
                continue;
            }
            _ => return Ok(schema),
        };
        let place = to.strip_prefix('#').and_then(|place| root.pointer(place));
        schema = place.ok_or_else(|| format!("`{to}` is not in its schema"))?;
    }
    Err("its schema refers to itself".into())
}

/// A field in the form that clients support, and whether it is optional.
fn field(schema: &Value, root: &Value) -> Result<(Value, bool), String> {
    let outer = schema;
    let schema = resolved(schema, root)?;
    let said = |key: &str| outer.get(key).or_else(|| schema.get(key));
    let mut out = Map::new();
    let mut is_optional = said("default").is_some();
    if let Some(value) = said("default").filter(|value| !value.is_null()) {
        out.insert("default".into(), value.clone());
    }
    for key in ["title", "description"] {
        if let Some(text) = said(key).filter(|text| text.is_string()) {
            out.insert(key.into(), text.clone());
        }
    }
    // An `Option` is a choice between a type and null.
    for key in ["anyOf", "oneOf"] {
        let Some(branches) = schema.get(key).and_then(Value::as_array) else { continue };
        let is_null = |branch: &&Value| branch.get("type") == Some(&json!("null"));
        let others: Vec<_> = branches.iter().filter(|branch| !is_null(branch)).collect();
        if let ([only], true) = (&others[..], others.len() < branches.len()) {
            let (inner, _) = field(only, root)?;
            for (key, value) in inner.as_object().into_iter().flatten() {
                out.entry(key.clone()).or_insert_with(|| value.clone());
            }
            return Ok((Value::Object(out), true));
        }
    }
    if let Some((values, names)) = choices(schema, &mut is_optional) {
        out.insert("type".into(), json!("string"));
        out.insert("enum".into(), json!(values));
        if let Some(names) = names {
            // Supported by all versions of the protocol.
            out.insert("enumNames".into(), json!(names));
        }
        return Ok((Value::Object(out), is_optional));
    }
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(Value::Array(kinds)) => {
            let others: Vec<_> =
                kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect();
            is_optional |= others.len() < kinds.len();
            match others[..] {
                [kind] => kind,
                _ => return Err(format!("it may be of several types; {RIGHT}")),
            }
        }
        _ => return Err(format!("it is not one plain value; {RIGHT}")),
    };
    let kept: &[&str] = match kind {
        "string" => &["minLength", "maxLength"],
        "number" | "integer" => &["minimum", "maximum"],
        "boolean" => &[],
        "array" => return Err(format!("lists cannot be asked for; {RIGHT}")),
        "object" => return Err(format!("objects inside of objects cannot be asked for; {RIGHT}")),
        other => return Err(format!("a value of type `{other}` cannot be asked for; {RIGHT}")),
    };
    out.insert("type".into(), json!(kind));
    for key in kept {
        if let Some(value) = schema.get(*key) {
            out.insert((*key).into(), value.clone());
        }
    }
    if let Some(format) =
        schema.get("format").and_then(Value::as_str).filter(|format| FORMATS.contains(format))
    {
        out.insert("format".into(), json!(format));
    }
    Ok((Value::Object(out), is_optional))
}

/// The values of an enum, and their titles if all have one.
fn choices(schema: &Value, is_optional: &mut bool) -> Option<(Vec<String>, Option<Vec<String>>)> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let texts: Vec<_> = values.iter().filter(|value| !value.is_null()).collect();
        *is_optional |= texts.len() < values.len();
        return Some((texts.into_iter().map(text).collect::<Option<_>>()?, None));
    }
    if let Some(value) = schema.get("const") {
        return Some((vec![text(value)?], None));
    }
    let (mut values, mut names, mut has_names) = (Vec::new(), Vec::new(), false);
    for branch in schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()? {
        let (own, _) = choices(branch, is_optional)?;
        let name = branch.get("title").or_else(|| branch.get("description")).and_then(Value::as_str);
        has_names |= name.is_some();
        for value in own {
            names.push(name.map_or_else(|| value.clone(), str::to_owned));
            values.push(value);
        }
    }
    Some((values, has_names.then_some(names)))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        Green,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    enum Size {
        /// One litre
        Small,
        /// Two litres
        Large,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Order {
        /// How many
        count: u8,
        colour: Option<Colour>,
        note: Option<String>,
        #[serde(default)]
        gift: bool,
        price: f64,
    }

    #[track_caller]
    fn asks<T: JsonSchema>(properties: &Value, required: &[&str]) {
        let form: Value = Form::of::<T>().unwrap().schema().decode().unwrap();
        assert_eq!(form, json!({ "type": "object", "properties": properties, "required": required }));
    }

    #[test]
    fn plain_values_are_a_form_of_one_field() {
        asks::<String>(&json!({ "answer": { "type": "string" } }), &["answer"]);
        asks::<bool>(&json!({ "answer": { "type": "boolean" } }), &["answer"]);
        asks::<Option<i32>>(&json!({ "answer": { "type": "integer" } }), &[]);
        asks::<Colour>(&json!({ "answer": { "type": "string", "enum": ["red", "green"] } }), &["answer"]);
        asks::<Option<Colour>>(&json!({ "answer": { "type": "string", "enum": ["red", "green"] } }), &[]);
        let size =
            json!({ "type": "string", "enum": ["Small", "Large"], "enumNames": ["One litre", "Two litres"] });
        asks::<Size>(&json!({ "answer": size }), &["answer"]);
    }

    #[test]
    fn a_struct_is_a_form() {
        let fields = json!({
            "count": { "type": "integer", "description": "How many", "minimum": 0, "maximum": 255 },
            "colour": { "type": "string", "enum": ["red", "green"] },
            "note": { "type": "string" },
            "gift": { "type": "boolean", "default": false },
            "price": { "type": "number" },
        });
        asks::<Order>(&fields, &["count", "price"]);
    }

    #[test]
    fn what_does_not_fit_says_what_would() {
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only its schema is of interest")]
        struct Deep {
            order: Order,
        }
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only its schema is of interest")]
        enum Either {
            Number(u8),
            Text(String),
        }
        let wrong = |form: Result<Form, ToolError>| form.unwrap_err().to_string();
        let rows = [
            (wrong(Form::of::<Vec<String>>()), "lists cannot be asked for"),
            (wrong(Form::of::<Deep>()), "its field `order`: objects inside of objects cannot be asked for"),
            (wrong(Form::of::<Either>()), "it is not one plain value"),
            (wrong(Form::of::<Value>()), "it is not one plain value"),
        ];
        for (text, want) in rows {
            assert!(text.contains(want) && text.contains("ask for a string"), "{text}");
        }
    }

    #[test]
    fn schemas_of_pydantic_are_forms_too() {
        let schema = json!({
            "$defs": { "Colour": { "enum": ["red", "green"], "title": "Colour", "type": "string" } },
            "properties": {
                "colour": { "$ref": "#/$defs/Colour" },
                "other": { "anyOf": [{ "$ref": "#/$defs/Colour" }, { "type": "null" }], "default": null },
                "size": { "const": "large", "title": "Size", "type": "string" },
                "mail": { "format": "email", "title": "Mail", "type": "string", "pattern": "@" },
            },
            "required": ["colour", "size", "mail"], "title": "Order", "type": "object",
        });
        let form: Value = Form::new(&schema).unwrap().schema().decode().unwrap();
        assert_eq!(
            form["properties"],
            json!({
                "colour": { "title": "Colour", "type": "string", "enum": ["red", "green"] },
                "other": { "title": "Colour", "type": "string", "enum": ["red", "green"] },
                "size": { "title": "Size", "type": "string", "enum": ["large"] },
                "mail": { "title": "Mail", "type": "string", "format": "email" },
            })
        );
        let plain = json!({ "$defs": schema["$defs"], "$ref": "#/$defs/Colour" });
        let form = Form::new(&plain).unwrap();
        let content = |text: &str| RawJson::parse(text.to_owned()).unwrap();
        assert_eq!(form.value(&content(r#"{"answer":"red"}"#)).unwrap().as_str(), r#""red""#);
        assert!(form.value(&content(r#"{"answer":"blue"}"#)).is_err());
    }

    #[test]
    fn answers_are_read_and_wrong_ones_say_where() {
        fn read<T: JsonSchema + DeserializeOwned>(content: &str) -> Result<T, String> {
            let answer = Answer::Accepted(RawJson::parse(content.to_owned()).unwrap());
            let read = Form::of::<T>().unwrap().read(answer).map_err(|error| error.to_string())?;
            Ok(read.accepted().unwrap())
        }
        assert_eq!(read::<Colour>(r#"{"answer":"green"}"#), Ok(Colour::Green));
        assert_eq!(read::<u8>(r#"{"answer":7.0}"#), Ok(7));
        assert_eq!(read::<Option<u8>>("{}"), Ok(None));
        let order = Order { count: 2, colour: None, note: Some("x".into()), gift: false, price: 1.5 };
        assert_eq!(read::<Order>(r#"{"count":2,"note":"x","price":1.5}"#), Ok(order));
        let rows = [
            (read::<Colour>(r#"{"answer":"blue"}"#).unwrap_err(), "at `/answer`"),
            (read::<Colour>("{}").unwrap_err(), "at `/`"),
            (read::<Colour>(r#"{"answer":5}"#).unwrap_err(), "at `/answer`"),
            (read::<Order>(r#"{"count":300,"price":1}"#).map(drop).unwrap_err(), "at `/count`"),
        ];
        for (text, want) in rows {
            assert!(
                text.starts_with("the answer does not fit the question") && text.contains(want),
                "{text}"
            );
        }
    }
}
