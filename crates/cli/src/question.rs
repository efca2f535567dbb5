//! Questions of tools to the user at the terminal.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};
use toolbridge::call::Answer;

/// Whether a question is open; nothing else is drawn meanwhile.
pub(crate) static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Whether there is a terminal at which a user can be asked.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks at the terminal; `from` names the asking tool or server. Asks one question at a time, and blocks a
/// thread until the user answers.
pub(crate) async fn ask(from: String, message: String, schema: Value) -> Answer<Value> {
    static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _one = ONE.lock().await;
    let asking = tokio::task::spawn_blocking(move || {
        IS_OPEN.store(true, Ordering::SeqCst);
        let answer = form(&from, &message, &schema, &mut io::stdin().lock(), &mut io::stderr());
        IS_OPEN.store(false, Ordering::SeqCst);
        answer
    });
    match asking.await {
        Ok(Ok(answer)) => answer,
        // Reading or writing failed, so the terminal is gone.
        _ => Answer::Cancelled,
    }
}

/// Fills in a form, field by field.
fn form(
    from: &str,
    message: &str,
    schema: &Value,
    input: &mut impl io::BufRead,
    output: &mut impl io::Write,
) -> io::Result<Answer<Value>> {
    let required: Vec<_> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // Overwrites a spinner, if there was one.
    writeln!(output, "\r\x1b[K{} asks: {}", plain(from), plain(message))?;
    let fields = schema["properties"].as_object();
    let mut content = Map::new();
    for (name, field) in fields.into_iter().flatten() {
        let is_required = required.contains(&name.as_str());
        let default = field.get("default");
        loop {
            let label = field["description"].as_str().or_else(|| field["title"].as_str()).unwrap_or(name);
            let hint = hint(field, default, is_required);
            write!(output, "  {} ({hint}): ", plain(label))?;
            output.flush()?;
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                writeln!(output)?;
                return Ok(Answer::Cancelled);
            }
            let given = line.trim();
            if given.is_empty() {
                match default {
                    Some(default) => _ = content.insert(name.clone(), default.clone()),
                    None if is_required => return Ok(Answer::Declined),
                    None => {}
                }
                break;
            }
            match read(field, given) {
                Ok(value) => {
                    content.insert(name.clone(), value);
                    break;
                }
                Err(wanted) => writeln!(output, "  please enter {wanted}")?,
            }
        }
    }
    Ok(Answer::Accepted(Value::Object(content)))
}

/// The text without control characters that a terminal would interpret.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() && char != '\n' { ' ' } else { char }).collect()
}

fn choices(field: &Value) -> Option<Vec<&str>> {
    Some(field["enum"].as_array()?.iter().filter_map(Value::as_str).collect())
}

/// A hint about the expected input.
fn hint(field: &Value, default: Option<&Value>, is_required: bool) -> String {
    let kind = match (choices(field), field["type"].as_str()) {
        (Some(choices), _) => plain(&choices.join(", ")),
        (None, Some("boolean")) => "yes or no".into(),
        (None, Some("integer")) => "a whole number".into(),
        (None, Some("number")) => "a number".into(),
        _ => "text".into(),
    };
    match (default, is_required) {
        (Some(default), _) => format!("{kind}; empty: {}", plain(&default.to_string())),
        (None, true) => format!("{kind}; empty: decline"),
        (None, false) => format!("{kind}; may be empty"),
    }
}

/// The value of a field, or an error that describes what is expected.
fn read(field: &Value, given: &str) -> Result<Value, String> {
    if let Some(choices) = choices(field) {
        let chosen = choices.iter().find(|choice| choice.eq_ignore_ascii_case(given));
        return chosen.map(|choice| (*choice).into()).ok_or_else(|| format!("one of {}", choices.join(", ")));
    }
    match field["type"].as_str() {
        Some("boolean") => match given.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Ok(true.into()),
            "n" | "no" | "false" => Ok(false.into()),
            _ => Err("`yes` or `no`".into()),
        },
        Some("integer") => given.parse::<i64>().map(Value::from).map_err(|_| "a whole number".into()),
        Some("number") => {
            let number = given.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            number.map(Value::from).ok_or_else(|| "a number".into())
        }
        _ => Ok(given.into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn typed(schema: &Value, text: &str) -> (Answer<Value>, String) {
        let mut shown = Vec::new();
        let answer = form("tools", "Which?", schema, &mut text.as_bytes(), &mut shown).unwrap();
        (answer, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn typed_text_is_converted_to_the_fields_types() {
        let schema = json!({ "properties": {
            "colour": { "type": "string", "enum": ["red", "green"] },
            "count": { "type": "integer" },
            "gift": { "type": "boolean", "default": false },
            "note": { "type": "string", "description": "A note\u{1b}[2J" },
            "price": { "type": "number" },
        }, "required": ["colour", "count", "price"] });
        let (answer, shown) = typed(&schema, "Blue\nRED\nmany\n3\n\n\n1.5\n");
        let want = json!({ "colour": "red", "count": 3, "gift": false, "price": 1.5 });
        assert_eq!(answer, Answer::Accepted(want));
        for line in [
            "tools asks: Which?\n",
            "  colour (red, green; empty: decline): ",
            "  please enter one of red, green\n",
            "  please enter a whole number\n",
            "  gift (yes or no; empty: false): ",
            "  A note [2J (text; may be empty): ",
        ] {
            assert!(shown.contains(line), "{line:?} is not in {shown:?}");
        }
    }

    #[test]
    fn an_empty_line_declines_and_the_end_of_input_cancels() {
        let schema = json!({ "properties": { "answer": { "type": "boolean" } }, "required": ["answer"] });
        assert_eq!(typed(&schema, "\n").0, Answer::Declined);
        assert_eq!(typed(&schema, "").0, Answer::Cancelled);
        assert_eq!(typed(&schema, "y").0, Answer::Accepted(json!({ "answer": true })));
    }
}
