//! Results that a model can read to their end.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolbridge_core::{
    CallContext, CallFuture, Changes, DerivedList, RawJson, ToolCall, ToolList, ToolSource, ToolSpec,
};

use crate::version::Version;

/// Says in a tool's `_meta` how long its results may be before the CLI puts them into a file.
const LIMIT_KEY: &str = "anthropic/maxResultSizeChars";

/// The longest result that the CLI can be made to show, in UTF-16 units.
const MAX_CHARS: usize = 500_000;

/// What a CLI that cannot be made to shows in any case.
const MAX_CHARS_OF_OLD: usize = 40_000;

/// Room for the sentence that says what was cut.
const NOTE_CHARS: usize = 200;

/// Own tools for a model that has none of the CLI's reading tools. The CLI puts a long result into a file and
/// shows the model its start; here it is shown whole as far as the CLI can, and what is longer is cut and says so.
pub(crate) struct ResultLimit {
    source: Arc<dyn ToolSource>,
    list: DerivedList,
    most: usize,
}

impl ResultLimit {
    pub(crate) fn new(source: Arc<dyn ToolSource>, version: Version) -> Self {
        let most = if version.takes_result_limits() { MAX_CHARS } else { MAX_CHARS_OF_OLD };
        Self { source, list: DerivedList::default(), most }
    }
}

fn meta(tool: &ToolSpec) -> Map<String, Value> {
    tool.meta.as_ref().and_then(|meta| meta.decode().ok()).unwrap_or_default()
}

fn with_limit(mut tool: ToolSpec, most: usize) -> ToolSpec {
    let mut meta = meta(&tool);
    if !meta.contains_key(LIMIT_KEY) {
        meta.insert(LIMIT_KEY.into(), json!(most));
        tool.meta = Some(RawJson::from(&Value::Object(meta)));
    }
    tool
}

impl ToolSource for ResultLimit {
    fn tools(&self) -> ToolList {
        self.list.get(vec![self.source.tools()], |lists| {
            let limited: Vec<_> = lists[0].iter().map(|tool| with_limit(tool.clone(), self.most)).collect();
            ToolList::of(limited.iter())
        })
    }

    fn changes(&self) -> Changes {
        self.source.changes()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        let own = self.tools().get(&call.name).and_then(|tool| meta(tool).get(LIMIT_KEY)?.as_u64());
        let limit = own.and_then(|limit| limit.try_into().ok()).unwrap_or(self.most).min(self.most);
        let calling = self.source.call(call, context);
        Box::pin(async move { Ok(cut(calling.await?, limit)) })
    }
}

/// The result, or the start of it when the model would see more than `limit` of text.
fn cut(result: RawJson, limit: usize) -> RawJson {
    // A unit of text is at least a byte of JSON.
    if result.as_str().len() <= limit {
        return result;
    }
    let Ok(mut whole) = result.decode::<Map<String, Value>>() else { return result };
    // The CLI itself cuts errors, and says so.
    if whole.get("isError") == Some(&Value::Bool(true)) {
        return result;
    }
    // Where there is structured content, the model sees that.
    let structured = whole.get("structuredContent").filter(|value| !value.is_null());
    let structured = structured.map(|value| json!([{ "type": "text", "text": value.to_string() }]));
    let Some(mut content) = structured.or_else(|| whole.get("content").cloned()) else { return result };
    let Some(blocks) = content.as_array_mut() else { return result };
    let total: usize = blocks.iter_mut().filter_map(text_of).map(|text| units(text)).sum();
    if total <= limit {
        return result;
    }
    let mut room = limit.saturating_sub(NOTE_CHARS);
    let shown = room;
    for text in blocks.iter_mut().filter_map(text_of) {
        let kept = prefix(text, room).len();
        text.truncate(kept);
        room -= units(text);
    }
    blocks.retain_mut(|block| text_of(block).is_none_or(|text| !text.is_empty()));
    let note = format!(
        "[This result was cut: {shown} of its {total} characters are shown, the limit is {limit}. \
         Ask for a smaller part.]"
    );
    blocks.push(json!({ "type": "text", "text": note }));
    whole.remove("structuredContent");
    whole.insert("content".into(), content);
    RawJson::from(&Value::Object(whole))
}

/// The text of a block: its own, or that of the resource in it.
fn text_of(block: &mut Value) -> Option<&mut String> {
    let place = if block.get("resource").is_some() { "/resource/text" } else { "/text" };
    match block.pointer_mut(place)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// How long the CLI takes a text to be.
fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The longest start of a text that is not over a limit.
fn prefix(text: &str, limit: usize) -> &str {
    let mut left = limit;
    for (at, char) in text.char_indices() {
        match left.checked_sub(char.len_utf16()) {
            Some(rest) => left = rest,
            None => return &text[..at],
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(result: &Value, limit: usize) -> Value {
        cut(RawJson::from(result), limit).decode().unwrap()
    }

    #[test]
    fn what_fits_is_not_touched() {
        let long = "\u{1f600}".repeat(150);
        for result in [
            json!({ "content": [{ "type": "text", "text": "x".repeat(300) }] }),
            json!({ "content": [{ "type": "text", "text": long }] }),
            json!({ "content": [{ "type": "image", "data": "A".repeat(900), "mimeType": "image/png" }] }),
            json!({ "content": [{ "type": "text", "text": "x".repeat(900) }], "isError": true }),
        ] {
            assert_eq!(check(&result, 300), result);
        }
    }

    #[test]
    fn a_longer_result_is_cut_between_characters_and_says_so() {
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        let text = "\u{1f600}".repeat(200);
        let result =
            json!({ "content": [{ "type": "text", "text": "ab" }, { "type": "text", "text": text }, image] });
        let cut = check(&result, 301);
        let note = "[This result was cut: 101 of its 402 characters are shown, the limit is 301. Ask for a smaller part.]";
        assert_eq!(cut["content"][0]["text"], "ab");
        assert_eq!(cut["content"][1]["text"], "\u{1f600}".repeat(49));
        assert_eq!(cut["content"][2], image);
        assert_eq!(cut["content"][3], json!({ "type": "text", "text": note }));
    }

    #[test]
    fn structured_content_and_resources_are_cut_as_the_model_sees_them() {
        let result = json!({ "content": [{ "type": "text", "text": "short" }], "structuredContent": { "v": "y".repeat(600) } });
        let cut = check(&result, 300);
        assert!(cut.get("structuredContent").is_none());
        let text = cut["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(r#"{"v":"yyy"#) && text.len() == 100, "{text}");
        let resource = json!({ "uri": "file:///a", "text": "z".repeat(600) });
        let cut = check(&json!({ "content": [{ "type": "resource", "resource": resource }] }), 300);
        assert_eq!(cut["content"][0]["resource"]["text"], "z".repeat(100));
    }
}
