//! Decides which results are kept, and what the model gets instead.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::RawJson;
use crate::park::store::Item;

/// How many characters of a text the model sees beside its handle.
const PREVIEW_CHARS: usize = 160;

/// The parts of a tool's result that matter here.
#[derive(Deserialize)]
struct ReadResult<'a> {
    #[serde(borrow)]
    content: Vec<&'a RawValue>,
    #[serde(borrow, rename = "structuredContent")]
    structured: Option<&'a RawValue>,
    #[serde(default, rename = "isError")]
    is_error: bool,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// A result that is too long for the model.
#[derive(Debug)]
pub(crate) struct Long {
    /// What the model would read.
    pub(crate) text: Bytes,
    /// Whether that is JSON: an object or a list.
    pub(crate) is_json: bool,
    /// Pictures and other blocks, which stay in the result.
    others: Vec<Box<RawValue>>,
    meta: Option<Box<RawValue>>,
}

impl Long {
    /// The part of a result to keep; `None` if the model gets the result itself.
    pub(crate) fn of(result: &RawJson, limit_chars: usize) -> Option<Self> {
        // A character is at least one byte of JSON.
        if result.as_bytes().len() <= limit_chars {
            return None;
        }
        let result: ReadResult<'_> = result.decode().ok()?;
        // Errors are meant to be read by the model.
        if result.is_error {
            return None;
        }
        let mut texts = Vec::new();
        let mut others = Vec::new();
        for raw in &result.content {
            let block: Value = serde_json::from_str(raw.get()).unwrap_or_default();
            match block.pointer("/text").or_else(|| block.pointer("/resource/text")) {
                Some(Value::String(text)) => texts.push(text.clone()),
                _ => others.push((*raw).to_owned()),
            }
        }
        let structured = result.structured.filter(|value| value.get() != "null");
        // If there is structured content, that is what the model sees.
        let text = match (structured, &texts[..]) {
            (Some(structured), [only]) if is_wrapped(structured, only) => only.as_bytes().to_vec(),
            (Some(structured), _) => structured.get().as_bytes().to_vec(),
            (None, [only]) => only.as_bytes().to_vec(),
            (None, several) => several.join("\n").into_bytes(),
        };
        let chars = std::str::from_utf8(&text).map_or(0, |text| text.chars().count());
        if chars <= limit_chars {
            return None;
        }
        let text = Bytes::from(text);
        let is_json = matches!(text.first(), Some(b'{' | b'[')) && RawJson::parse(text.clone()).is_ok();
        let meta = result.meta.map(ToOwned::to_owned);
        Some(Self { text, is_json, others, meta })
    }

    /// The result that the model gets instead of a kept one.
    pub(crate) fn note(self, item: &Item) -> RawJson {
        let preview: String = self.as_str().chars().take(PREVIEW_CHARS).collect();
        let note = json!({
            "handle": item.handle,
            "kind": if item.is_json { "json" } else { "text" },
            "bytes": item.bytes,
            "lines": item.lines,
            "preview": preview,
            "note": "The start of a long result. Give the handle as an argument to pass all of it on; result_read and result_find \
                read in it.",
        });
        self.answer(&note.to_string())
    }

    /// The result that the model gets if it could not be kept: its start, and a note that the rest is
    /// missing.
    pub(crate) fn start(self, limit_chars: usize, reason: &str) -> RawJson {
        let start: String = self.as_str().chars().take(limit_chars).collect();
        let bytes = self.text.len();
        let text = format!(
            "{start}\n[This is the start of a result of {bytes} bytes. The rest is lost: {reason}. Ask for a smaller part.]"
        );
        self.answer(&text)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    fn answer(self, text: &str) -> RawJson {
        let mut result = format!(r#"{{"content":[{}"#, json!({ "type": "text", "text": text }));
        for block in self.others {
            result.push(',');
            result.push_str(block.get());
        }
        result.push_str(r#"],"isError":false"#);
        if let Some(meta) = self.meta {
            result.push_str(r#","_meta":"#);
            result.push_str(meta.get());
        }
        result.push('}');
        RawJson::written(result.into_bytes())
    }
}

/// Whether structured content is an object with a single string that equals the text block: some servers wrap
/// what a function returns.
fn is_wrapped(structured: &RawValue, text: &str) -> bool {
    let members = serde_json::from_str::<std::collections::HashMap<String, Cow<'_, str>>>(structured.get());
    members.is_ok_and(|members| members.len() == 1 && members.values().all(|value| value == text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(result: &Value, limit: usize) -> Option<(String, bool)> {
        Long::of(&RawJson::from(result), limit).map(|long| (long.as_str().to_owned(), long.is_json))
    }

    #[test]
    fn the_text_for_the_model_is_kept() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let image = json!({ "type": "image", "data": "A".repeat(99), "mimeType": "image/png" });
        let letter = |text: &str| Some((text.to_owned(), false));
        for (result, want) in [
            (json!({ "content": [text("12345678901")] }), letter("12345678901")),
            (json!({ "content": [text("1234567890")] }), None),
            (json!({ "content": [text("日本語日本語日本語日")] }), None),
            (json!({ "content": [text("123456"), image, text("7890a")] }), letter("123456\n7890a")),
            (json!({ "content": [image] }), None),
            (json!({ "content": [text("12345678901")], "isError": true }), None),
            (
                json!({ "content": [{ "type": "resource", "resource": { "uri": "a:b", "text": "12345678901" } }] }),
                letter("12345678901"),
            ),
            // Wrapped by a server.
            (
                json!({ "content": [text("12345678901")], "structuredContent": { "result": "12345678901" } }),
                letter("12345678901"),
            ),
            (
                json!({ "content": [text("short")], "structuredContent": { "a": [1, 2, 3, 4, 5] } }),
                Some((r#"{"a":[1,2,3,4,5]}"#.into(), true)),
            ),
            (json!({ "content": [text("long, but not seen")], "structuredContent": { "a": 1 } }), None),
            (json!({ "content": [text("[1,2,3,4,5,6]")] }), Some(("[1,2,3,4,5,6]".into(), true))),
            (json!({ "content": [text("[1,2,3,4,5,6")] }), letter("[1,2,3,4,5,6")),
        ] {
            assert_eq!(long(&result, 10), want, "{result}");
        }
    }

    #[test]
    fn pictures_and_meta_stay() {
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        let result =
            json!({ "content": [{ "type": "text", "text": "x".repeat(99) }, image], "_meta": { "a": 1 } });
        let long = Long::of(&RawJson::from(&result), 10).unwrap();
        let told: Value = long.start(10, "it has 99 bytes, the limit is 50").decode().unwrap();
        assert_eq!((&told["content"][1], &told["_meta"]), (&image, &json!({ "a": 1 })));
        let text = told["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("xxxxxxxxxx\n[") && text.contains("the limit is 50"), "{text}");
    }
}
