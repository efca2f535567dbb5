//! The form of a question: which types can be asked for, and how answers are read.

use std::slice;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::call::question::question_error;
use crate::tool::arguments::read;
use crate::tool::schema::Schema;
use crate::{Answer, Fault, RawJson, ToolError, schema_of};

/// The one field of a form that asks for a plain value.
const FIELD: &str = "answer";

/// The string formats that clients support.
const FORMATS: [&str; 4] = ["email", "uri", "date", "date-time"];

/// A form that a client can show: a flat object of strings, numbers, booleans and choices.
#[derive(Debug)]
pub(crate) struct Form {
    /// The schema sent to the client.
    pub(crate) schema: RawJson,
    /// What answers are checked against, unless their type does it.
    checked: Option<Schema>,
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
        Self::unchecked(&schema_of::<T>()).map_err(|reason| {
            let name = std::any::type_name::<T>();
            question_error(format!("`{name}` cannot be asked for: {reason}"))
        })
    }

    /// The form that asks for a value matching a JSON Schema.
    ///
    /// # Errors
    ///
    /// When the schema is neither that of a plain value nor that of an object of plain values.
    pub(crate) fn new(schema: &Value) -> Result<Self, String> {
        Ok(Self { checked: Some(Schema::compile(schema)?), ..Self::unchecked(schema)? })
    }

    fn unchecked(root: &Value) -> Result<Self, String> {
        let schema = resolved(root, root)?;
        let is_plain = schema.get("properties").is_none() && schema.get("type") != Some(&json!("object"));
        let plain = json!({ "properties": { FIELD: schema }, "required": [FIELD] });
        let schema = if is_plain { &plain } else { schema };
        if let Some(other) = ["oneOf", "anyOf", "allOf"].into_iter().find(|key| schema.get(*key).is_some()) {
            return Err(format!("its fields are not always the same (`{other}`); {RIGHT}"));
        }
        let mut required: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
        let mut fields = Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let (field, is_optional) = field(property, root)
                .map_err(|reason| if is_plain { reason } else { format!("its field `{name}`: {reason}") })?;
            required.retain(|required| !is_optional || *required != name);
            fields.insert(name.clone(), field);
        }
        let form = json!({ "type": "object", "properties": fields, "required": required });
        Ok(Self { schema: RawJson::from(&form), checked: None, is_plain })
    }

    /// The requested value as JSON; it matches the schema.
    ///
    /// # Errors
    ///
    /// When the answer does not match.
    pub(crate) fn value(&self, content: &RawJson) -> Result<RawJson, ToolError> {
        let mut value: Value = read(content).map_err(|fault| self.misfit(&fault))?;
        if self.is_plain {
            value = value[FIELD].take();
        }
        match self.checked.as_ref().and_then(|schema| schema.fault(&value)) {
            Some(fault) => Err(self.misfit(&fault)),
            None => Ok(RawJson::from(&value)),
        }
    }

    /// The answer, decoded.
    pub(crate) fn read<T: DeserializeOwned>(&self, answer: Answer) -> Result<Answer<T>, ToolError> {
        answer.try_map(|content| read(&self.value(&content)?).map_err(|fault| self.misfit(&fault)))
    }

    fn misfit(&self, Fault { path, reason }: &Fault) -> ToolError {
        let place =
            if self.is_plain { format!("/{FIELD}{}", path.trim_end_matches('/')) } else { path.clone() };
        question_error(format!("the answer does not fit the question: at `{place}`: {reason}"))
    }
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
    let given = |key: &str| outer.get(key).or_else(|| schema.get(key));
    let mut out = Map::new();
    for key in ["title", "description", "default"] {
        let value =
            given(key).filter(|value| if key == "default" { !value.is_null() } else { value.is_string() });
        out.extend(value.map(|value| (key.to_owned(), value.clone())));
    }
    // An `Option` is a choice between a type and null.
    let branches = ["anyOf", "oneOf"].into_iter().find_map(|key| schema.get(key)?.as_array());
    let (nulls, others): (Vec<_>, Vec<_>) =
        branches.into_iter().flatten().partition(|branch| branch.get("type") == Some(&json!("null")));
    if let ([_, ..], [only]) = (&nulls[..], &others[..]) {
        let (Value::Object(mut inner), _) = field(only, root)? else { return Err(RIGHT.into()) };
        inner.append(&mut out);
        return Ok((Value::Object(inner), true));
    }
    let is_optional = given("default").is_some();
    if let Some(choices) = choices(schema) {
        let texts: Vec<_> = choices.iter().filter(|(value, _)| !value.is_null()).collect();
        out.insert("type".into(), json!("string"));
        out.insert("enum".into(), texts.iter().map(|(value, _)| (*value).clone()).collect());
        if texts.iter().any(|(_, name)| name.is_some()) {
            // Supported by all versions of the protocol.
            let names = texts.iter().map(|(value, name)| name.unwrap_or(value).clone());
            out.insert("enumNames".into(), names.collect());
        }
        return Ok((Value::Object(out), is_optional || texts.len() < choices.len()));
    }
    let kinds = schema.get("type").map(|kind| kind.as_array().map_or(slice::from_ref(kind), Vec::as_slice));
    let kinds = kinds.ok_or_else(|| format!("it is not one plain value; {RIGHT}"))?;
    let mut types = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
    let (Some(kind), None) = (types.next(), types.next()) else {
        return Err(format!("it may be of several types; {RIGHT}"));
    };
    let kept: &[&str] = match kind {
        "string" => &["minLength", "maxLength", "format"],
        "number" | "integer" => &["minimum", "maximum"],
        "boolean" => &[],
        "array" => return Err(format!("lists cannot be asked for; {RIGHT}")),
        "object" => return Err(format!("objects inside of objects cannot be asked for; {RIGHT}")),
        other => return Err(format!("a value of type `{other}` cannot be asked for; {RIGHT}")),
    };
    out.insert("type".into(), json!(kind));
    for key in kept {
        let is_known = |value: &&Value| *key != "format" || FORMATS.iter().any(|format| *value == format);
        out.extend(schema.get(*key).filter(is_known).map(|value| ((*key).to_owned(), value.clone())));
    }
    Ok((Value::Object(out), is_optional || kinds.len() > 1))
}

/// The values of an enum of texts, which may have null among them, each with its title.
fn choices(schema: &Value) -> Option<Vec<(&Value, Option<&Value>)>> {
    let alone = schema.get("const").map(slice::from_ref);
    if let Some(values) = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(alone) {
        let fits = |value: &Value| value.is_string() || value.is_null();
        return values.iter().map(|value| fits(value).then_some((value, None))).collect();
    }
    let mut all = Vec::new();
    for branch in schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()? {
        let title =
            branch.get("title").or_else(|| branch.get("description")).filter(|title| title.is_string());
        all.extend(choices(branch)?.into_iter().map(|(value, name)| (value, name.or(title))));
    }
    Some(all)
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
        let form: Value = Form::of::<T>().unwrap().schema.decode().unwrap();
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
        let form: Value = Form::new(&schema).unwrap().schema.decode().unwrap();
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
            (read::<Colour>("{}").unwrap_err(), "at `/answer`"),
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
