//! Reads arguments and answers into types, and says where they do not fit.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::RawJson;

/// Where a value does not fit, and why. It does not contain the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A JSON pointer; `/` is the whole value.
    pub path: String,
    /// What is wrong there.
    pub reason: String,
}

impl Fault {
    /// A fault at a JSON pointer.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        let path = path.into();
        Self { path: if path.is_empty() { "/".into() } else { path }, reason: reason.into() }
    }
}

/// Reads a value.
pub(crate) fn read<T: DeserializeOwned>(json: &RawJson) -> Result<T, Fault> {
    // The place of an error costs time, so it is only looked for when there is one.
    json.decode().or_else(|_| match with_integers(json).and_then(|json| json.decode().ok()) {
        Some(read) => Ok(read),
        None => read_with_place(json),
    })
}

fn read_with_place<T: DeserializeOwned>(json: &RawJson) -> Result<T, Fault> {
    let mut text = serde_json::Deserializer::from_slice(json.as_bytes());
    serde_path_to_error::deserialize(&mut text).map_err(|error| {
        let step = |step: &Segment| match step {
            Segment::Seq { index } => format!("/{index}"),
            // JSON pointers escape these two characters.
            other => format!("/{}", other.to_string().replace('~', "~0").replace('/', "~1")),
        };
        Fault::new(error.path().iter().map(step).collect::<String>(), without_values(error.inner()))
    })
}

/// The same JSON, with every number that is an integer written as one; `None` when it is so already. JSON Schema and
/// models treat `1.0` as an integer, serde does not.
fn with_integers(json: &RawJson) -> Option<RawJson> {
    fn change(value: &mut Value) -> bool {
        /// Above this limit not every integer has an exact `f64`.
        const MAX: f64 = 9_007_199_254_740_992.0;
        match value {
            Value::Array(items) => items.iter_mut().fold(false, |any, item| any | change(item)),
            Value::Object(members) => members.values_mut().fold(false, |any, member| any | change(member)),
            Value::Number(number) if number.is_f64() => {
                let exact = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= MAX);
                let integer = exact.and_then(|number| format!("{number:.0}").parse::<i64>().ok());
                integer.map(|integer| *value = integer.into()).is_some()
            }
            _ => false,
        }
    }
    let mut value = json.decode().ok()?;
    change(&mut value).then(|| RawJson::from(&value))
}

/// serde's error message without the value it refers to, and without its line and column: the JSON is always one
/// line.
fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let shows_one = ["invalid type: ", "invalid value: ", "unknown variant "];
    if !shows_one.iter().any(|start| text.starts_with(start)) {
        return text.to_owned();
    }
    // The value may contain the words that follow it; those words never contain a value.
    match (text.find(['`', '"']), text.rfind(", expected ").or_else(|| text.rfind(", there are "))) {
        (Some(begin), Some(end)) if begin < end => format!("{}{}", text[..begin].trim_end(), &text[end..]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_found_however_they_are_written() {
        let rows = [
            (r#"{"a":1.0,"b":[-2.00, 3e2 ,1.5E1]}"#, Some(r#"{"a":1,"b":[-2,300,15]}"#)),
            (r#"{"a":"1.0","b\"1.0":-0.0,"c":1.5}"#, Some(r#"{"a":"1.0","b\"1.0":0,"c":1.5}"#)),
            (r#"{"a":1,"b":0.5,"c":"2.0","d":[true,null],"e":12345678901234567890123}"#, None),
            (r#"{"a":1e300,"b":9007199254740993.0e9}"#, None),
            ("1.0", Some("1")),
        ];
        for (text, want) in rows {
            let got = with_integers(&RawJson::parse(text).unwrap());
            assert_eq!(got.as_ref().map(RawJson::as_str), want, "{text}");
        }
    }
}
