//! Limits the size of tool results so that the model can read them completely.
//!
//! The CLI writes a long result to a file and shows the model only its start. For a model that cannot read
//! files, the result is shown completely as far as the CLI allows; a longer one is kept in the
//! process, or truncated with a note if the tools already use the names that this needs.

use serde_json::{Map, Value, json};
use toolbridge_core::tool::{RawJson, ToolSpec};

/// The member of a tool's `_meta` with the result size above which the CLI writes it to a file.
const LIMIT_KEY: &str = "anthropic/maxResultSizeChars";

/// Space for the note about the truncation.
const NOTE_CHARS: usize = 200;

fn meta(tool: &ToolSpec) -> Map<String, Value> {
    tool.meta.as_ref().and_then(|meta| meta.decode().ok()).unwrap_or_default()
}

/// Makes the CLI show results of up to `most` characters, unless the tool has a limit of its own.
pub(crate) fn with_limit(mut tool: ToolSpec, most: usize) -> ToolSpec {
    let mut meta = meta(&tool);
    if !meta.contains_key(LIMIT_KEY) {
        meta.insert(LIMIT_KEY.into(), json!(most));
        tool.meta = Some(RawJson::from(&Value::Object(meta)));
    }
    tool
}

/// The size limit of a tool's results: its own limit, but at most `most`.
pub(crate) fn limit_of(tool: Option<&ToolSpec>, most: usize) -> usize {
    let own = tool.and_then(|tool| meta(tool).get(LIMIT_KEY)?.as_u64());
    own.and_then(|limit| limit.try_into().ok()).unwrap_or(most).min(most)
}

/// The result, truncated if the model would see more than `limit` of text.
pub(crate) fn cut(result: RawJson, limit: usize) -> RawJson {
    // A UTF-16 unit takes at least one byte of JSON.
    if result.as_str().len() <= limit {
        return result;
    }
    let Ok(mut whole) = result.decode::<Map<String, Value>>() else { return result };
    // The CLI truncates errors itself, with a note.
    if whole.get("isError") == Some(&Value::Bool(true)) {
        return result;
    }
    // If there is structured content, the model sees that.
    let structured = whole.get("structuredContent").filter(|value| !value.is_null());
    let structured = structured.map(|value| json!([{ "type": "text", "text": value.to_string() }]));
    let Some(mut content) = structured.or_else(|| whole.get("content").cloned()) else { return result };
    let Some(blocks) = content.as_array_mut() else { return result };
    let total: usize = blocks.iter_mut().filter_map(text_of).map(|text| units(text)).sum();
    if total <= limit {
        return result;
    }
    let mut left = limit.saturating_sub(NOTE_CHARS);
    let shown = left;
    for text in blocks.iter_mut().filter_map(text_of) {
        let kept = prefix(text, left).len();
        text.truncate(kept);
        left -= units(text);
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

/// The text of a block, or of the resource in it.
fn text_of(block: &mut Value) -> Option<&mut String> {
    let place = if block.get("resource").is_some() { "/resource/text" } else { "/text" };
    match block.pointer_mut(place)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// The length of a text as the CLI counts it.
fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The longest prefix of a text within the limit.
fn prefix(text: &str, mut left: usize) -> &str {
    let fits = |char: char| left.checked_sub(char.len_utf16()).map(|rest| left = rest).is_some();
    &text[..text.len() - text.trim_start_matches(fits).len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(result: &Value, limit: usize) -> Value {
        cut(RawJson::from(result), limit).decode().unwrap()
    }

    #[test]
    fn results_within_the_limit_are_unchanged() {
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
    fn a_longer_result_is_cut_between_characters_with_a_note() {
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
