//! The calls that are made, and the answers they must get.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// Ids have as many digits as this one, so that they always stand at the same place.
pub(crate) const FIRST_ID: u32 = 10_000_000;

/// The placeholder of an id in a text.
const NO_ID: &str = "00000000";

/// How much of an answer's end is looked at each time.
const TAIL_BYTES: usize = 32;

/// The answer to structured arguments.
const SHORT_TEXT_BYTES: usize = 100;

/// A call of the tool `echo`, ready to be sent.
///
/// The text begins with the call's id, so the answer to another call is never taken for the right one.
pub(crate) struct Call {
    line: Vec<u8>,
    line_ids: [usize; 2],
    answer: Vec<u8>,
    answer_ids: [usize; 2],
}

impl Call {
    /// A call whose text has `bytes` bytes, and comes back.
    pub(crate) fn text(bytes: usize) -> Self {
        let text = text(bytes);
        Self::new(&format!(r#"{{"text":"{text}"}}"#), &text)
    }

    /// A call whose arguments are an array of small objects, `bytes` bytes in all, and a short text behind
    /// it. Only the text comes back.
    pub(crate) fn structured(bytes: usize) -> Self {
        let text = text(SHORT_TEXT_BYTES);
        let mut items = String::new();
        for number in 0.. {
            let item = json!({
                "id": number,
                "name": format!("item {number}"),
                "price": f64::from(number) * 0.25,
                "tags": ["new", "in stock"],
                "parent": null,
                "visible": number % 2 == 0,
            });
            if !items.is_empty() {
                items.push(',');
            }
            items.push_str(&item.to_string());
            if items.len() >= bytes {
                break;
            }
        }
        Self::new(&format!(r#"{{"items":[{items}],"text":"{text}"}}"#), &text)
    }

    fn new(arguments: &str, text: &str) -> Self {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{NO_ID},"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}"#
        );
        let answer = format!(
            r#"{{"jsonrpc":"2.0","id":{NO_ID},"result":{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}}}"#
        );
        let places = |message: &str| {
            let first = message.find(NO_ID).expect("it was just put there");
            let last = message.rfind(NO_ID).expect("it was just put there");
            [first, last]
        };
        Self {
            line_ids: places(&line),
            answer_ids: places(&answer),
            line: (line + "\n").into_bytes(),
            answer: (answer + "\n").into_bytes(),
        }
    }

    /// The line to send for the call with this id.
    pub(crate) fn line(&mut self, id: u32) -> &[u8] {
        put(&mut self.line, self.line_ids, id);
        &self.line
    }

    /// How long the answer is, with its newline.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.answer.len()
    }

    /// Checks an answer's length, its id, and where its text begins and ends; all of it if `thorough`.
    pub(crate) fn check(&mut self, id: u32, answer: &[u8], thorough: bool) -> Result<()> {
        put(&mut self.answer, self.answer_ids, id);
        let (want, head) = (&self.answer[..], self.answer_ids[1] + NO_ID.len());
        let right = answer.len() == want.len()
            && answer[..head] == want[..head]
            && answer[answer.len() - TAIL_BYTES..] == want[want.len() - TAIL_BYTES..]
            && (!thorough || answer == want);
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(200)]);
        ensure!(
            right,
            "a wrong answer to call {id}: {} bytes instead of {}: {shown}",
            answer.len(),
            want.len()
        );
        Ok(())
    }
}

fn put(message: &mut [u8], places: [usize; 2], id: u32) {
    let digits = id.to_string();
    debug_assert_eq!(digits.len(), NO_ID.len(), "ids have a fixed width");
    for place in places {
        message[place..place + NO_ID.len()].copy_from_slice(digits.as_bytes());
    }
}

/// The id a line carries, wherever it is an answer of ours.
pub(crate) fn id_of(line: &[u8]) -> Option<u32> {
    let digits = line.strip_prefix(br#"{"jsonrpc":"2.0","id":"#)?.get(..NO_ID.len())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A text that takes `bytes` bytes in JSON, with a line break every so often, as texts have.
fn text(bytes: usize) -> String {
    let sentence = r"The quick brown fox jumps over the lazy dog, and then sleeps.\n";
    let mut text = format!("{NO_ID} ");
    while text.len() < bytes {
        text.push_str(sentence);
    }
    text.truncate(bytes);
    // Half an escape is none.
    if text.ends_with('\\') {
        text.replace_range(bytes - 1.., ".");
    }
    text
}

/// A schema file of many tools.
pub(crate) fn schema_of(tools: usize) -> Vec<u8> {
    let property = |what: &str| json!({ "type": "string", "description": format!("The {what} to look for, as it is written in the register of orders") });
    let tools: Vec<Value> = (0..tools)
        .map(|number| {
            json!({
                "name": format!("find_orders_{number}"),
                "description": "Finds the orders that fit all of what is given, the newest first. Leave out what does not matter. At most a hundred orders are returned; ask again with an offset for more.",
                "input_schema": {
                    "type": "object",
                    "properties": {
                        "customer": property("customer"),
                        "article": property("article"),
                        "status": { "type": "string", "enum": ["open", "paid", "sent", "returned"] },
                        "offset": { "type": "integer", "minimum": 0 },
                    },
                    "required": ["customer"],
                    "additionalProperties": false,
                },
                "annotations": { "readOnlyHint": true },
            })
        })
        .collect();
    Value::from(tools).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_long_as_it_should_be_and_is_json() {
        for bytes in 9..300 {
            let text = text(bytes);
            assert_eq!(text.len(), bytes);
            assert!(serde_json::from_str::<String>(&format!("\"{text}\"")).is_ok(), "{text}");
        }
    }

    #[test]
    fn only_the_right_answer_passes() {
        let mut call = Call::text(100);
        let (one, two) = (FIRST_ID + 1, FIRST_ID + 2);
        let answer = |id: u32| {
            let mut call = Call::text(100);
            put(&mut call.answer, call.answer_ids, id);
            call.answer
        };
        assert!(call.check(one, &answer(one), true).is_ok());
        assert!(call.check(one, &answer(two), false).is_err());
        assert!(call.check(one, b"", false).is_err());
        let mut mixed = answer(one);
        mixed[call.answer_ids[1]..][..8].copy_from_slice(b"10000002");
        assert!(call.check(one, &mixed, false).is_err());
    }

    #[test]
    fn an_id_is_read_from_an_answer() {
        let mut call = Call::structured(1000);
        assert_eq!(id_of(call.line(FIRST_ID + 5)), Some(FIRST_ID + 5));
        assert_eq!(id_of(b"{}"), None);
    }
}
