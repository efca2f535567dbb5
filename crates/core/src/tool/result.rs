//! Results of tools.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::RawJson;

/// A tool's complete result: blocks of content, optional structured content, and whether it is an error.
///
/// Most handlers return plain text or a value instead, see [`IntoToolResult`](crate::IntoToolResult).
///
/// ```
/// # use toolbridge_core as toolbridge;
/// use toolbridge::ToolResult;
///
/// let result = ToolResult::text("a red dot").and_image(b"\x89PNG...", "image/png");
/// assert!(result.to_json().as_str().starts_with(r#"{"content":[{"type":"text","text":"a red dot"},"#));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ToolResult {
    content: Vec<Content>,
    structured: Option<RawJson>,
    is_error: bool,
    meta: Option<RawJson>,
    /// A handler's value, which is shown unless there are blocks.
    value: Option<RawJson>,
    /// A result that somebody else has written.
    complete: Option<RawJson>,
}

/// A block of content, as MCP defines it.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Its bytes in base64.
        data: String,
        /// Its type, such as `image/png`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A sound.
    Audio {
        /// Its bytes in base64.
        data: String,
        /// Its type, such as `audio/wav`.
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// An embedded resource.
    Resource {
        /// An object with `uri`, and `text` or `blob`.
        resource: RawJson,
    },
    /// A link to a resource.
    ResourceLink {
        /// Where it is.
        uri: String,
        /// What it is called.
        name: String,
    },
    /// Any other block: an object with a `type` of its own.
    #[serde(untagged)]
    Other(RawJson),
}

impl ToolResult {
    /// A complete result that is already the JSON text of an MCP `CallToolResult`, for example from another system.
    /// It is sent unchanged, so nothing can be added to it.
    #[must_use]
    pub fn complete(result: RawJson) -> Self {
        Self { complete: Some(result), ..Self::default() }
    }

    /// A value to be shown as text: a string as it is, everything else as JSON.
    pub(crate) fn of_value(value: RawJson) -> Self {
        Self { value: Some(value), ..Self::default() }
    }

    /// One block of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::default().and_text(text)
    }

    /// One block of text that explains an error; the model sees it as an error.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// A picture of a type such as `image/png`.
    #[must_use]
    pub fn image(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Self::default().and_image(bytes, mime_type)
    }

    /// Adds a block of text.
    #[must_use]
    pub fn and_text(self, text: impl Into<String>) -> Self {
        self.and(Content::Text { text: text.into() })
    }

    /// Adds a picture.
    #[must_use]
    pub fn and_image(self, bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        self.and(Content::Image { data: STANDARD.encode(bytes), mime_type: mime_type.into() })
    }

    /// Adds any block.
    #[must_use]
    pub fn and(mut self, block: Content) -> Self {
        self.content.push(block);
        self
    }

    /// Sets the structured content; the CLI shows it to the model instead of the text.
    #[must_use]
    pub fn structured(mut self, object: RawJson) -> Self {
        self.structured = Some(object);
        self
    }

    /// Sets `_meta`.
    #[must_use]
    pub fn meta(mut self, object: RawJson) -> Self {
        self.meta = Some(object);
        self
    }

    /// Whether this is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// The JSON text of the MCP `CallToolResult`.
    ///
    /// # Panics
    ///
    /// Never: text and raw JSON can always be written.
    #[must_use]
    pub fn to_json(&self) -> RawJson {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Written<'a> {
            content: &'a [Content],
            #[serde(skip_serializing_if = "Option::is_none")]
            structured_content: Option<&'a RawJson>,
            is_error: bool,
            #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
            meta: Option<&'a RawJson>,
        }
        if let Some(complete) = &self.complete {
            return complete.clone();
        }
        // The protocol requires at least one block.
        let shown = self.content.is_empty().then(|| [Content::Text { text: self.shown_value() }]);
        RawJson::of(&Written {
            content: shown.as_ref().map_or(&self.content, |shown| &shown[..]),
            structured_content: self.structured.as_ref(),
            is_error: self.is_error,
            meta: self.meta.as_ref(),
        })
        .expect("text and raw JSON can always be written")
    }

    fn shown_value(&self) -> String {
        let Some(value) = &self.value else { return String::new() };
        value.decode().unwrap_or_else(|_| value.as_str().to_owned())
    }

    /// Whether an output schema promises something of this result.
    pub(crate) fn is_promised(&self) -> bool {
        !self.is_error && self.complete.is_none()
    }

    /// The structured content: a handler's value becomes it, as an output schema promises.
    pub(crate) fn keep_promise(&mut self) -> Option<&RawJson> {
        self.structured = self.structured.take().or_else(|| self.value.clone());
        self.structured.as_ref()
    }
}

/// How deep a result may be nested; the result itself is the first level. Many clients parse JSON recursively, and
/// fail or overflow their stack a little deeper.
pub(crate) const MAX_RESULT_DEPTH: usize = 128;

/// Checks that an object is an MCP `CallToolResult` that every client can read; says what is wrong with it.
pub(crate) fn check_result(text: &str) -> Result<(), String> {
    type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;
    #[derive(Deserialize)]
    struct CallToolResult<'a> {
        #[serde(borrow)]
        content: Vec<Members<'a>>,
    }

    let wrong = |what: &str| {
        Err(format!(
            "{what}; a result is an object whose `content` is a list of at least one block, an object with a `type`"
        ))
    };
    if !text.starts_with('{') {
        return wrong("it is not an object");
    }
    let blocks = match serde_json::from_str::<CallToolResult<'_>>(text) {
        Ok(result) => result.content,
        Err(error) => {
            let members: Members<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let Some(content) = members.get("content") else { return wrong("it has no `content`") };
            let Ok(blocks) = serde_json::from_str::<Vec<&RawValue>>(content.get()) else {
                return wrong("its `content` is not a list");
            };
            return match blocks.iter().position(|block| !block.get().starts_with('{')) {
                Some(place) => wrong(&format!("`content[{place}]` is not an object")),
                None => Err(error.to_string()),
            };
        }
    };
    if blocks.is_empty() {
        return wrong("its `content` is empty");
    }
    for (place, block) in blocks.iter().enumerate() {
        let string = |key: &str| block.get(key).filter(|value| value.get().starts_with('"'));
        let Some(kind) = string("type") else {
            return wrong(&format!("`content[{place}]` has no `type` that is a string"));
        };
        let is_text = serde_json::from_str(kind.get()).is_ok_and(|kind: Cow<'_, str>| kind == "text");
        if is_text && string("text").is_none() {
            return wrong(&format!("`content[{place}]` is a text block without a `text` that is a string"));
        }
    }
    match depth(text.as_bytes()) {
        0..=MAX_RESULT_DEPTH => Ok(()),
        depth => Err(format!("it is nested {depth} levels deep, the limit is {MAX_RESULT_DEPTH}")),
    }
}

/// How many levels of objects and lists a JSON text has.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut at) = (0_usize, 0, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth -= 1,
            // Written so that the compiler makes a tight loop of it: with an iterator it takes eight times as long.
            b'"' => loop {
                match json.get(at) {
                    Some(b'\\') => at += 2,
                    Some(b'"') | None => break at += 1,
                    Some(_) => at += 1,
                }
            },
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_block_is_written_as_mcp_defines_it() {
        let raw = |text: &'static str| RawJson::parse(text).unwrap();
        let rows = [
            (Content::Text { text: "a\n\"b\"".into() }, r#"{"type":"text","text":"a\n\"b\""}"#),
            (
                Content::Image { data: "AA==".into(), mime_type: "image/png".into() },
                r#"{"type":"image","data":"AA==","mimeType":"image/png"}"#,
            ),
            (
                Content::Audio { data: "AA==".into(), mime_type: "audio/wav".into() },
                r#"{"type":"audio","data":"AA==","mimeType":"audio/wav"}"#,
            ),
            (
                Content::Resource { resource: raw(r#"{"uri":"a:b","text":"t"}"#) },
                r#"{"type":"resource","resource":{"uri":"a:b","text":"t"}}"#,
            ),
            (
                Content::ResourceLink { uri: "a:b".into(), name: "n".into() },
                r#"{"type":"resource_link","uri":"a:b","name":"n"}"#,
            ),
            (Content::Other(raw(r#"{"type":"new","x":1}"#)), r#"{"type":"new","x":1}"#),
        ];
        for (block, want) in rows {
            let result = ToolResult::default().and(block);
            assert_eq!(result.to_json().as_str(), format!(r#"{{"content":[{want}],"isError":false}}"#));
        }
    }

    #[test]
    fn a_result_has_at_least_one_block() {
        assert_eq!(
            ToolResult::default().to_json().as_str(),
            r#"{"content":[{"type":"text","text":""}],"isError":false}"#
        );
    }

    #[test]
    fn nothing_is_dropped() {
        let object = RawJson::parse(r#"{"n":12345678901234567890}"#).unwrap();
        let result = ToolResult::error("no").structured(object.clone()).meta(object);
        assert_eq!(
            result.to_json().as_str(),
            r#"{"content":[{"type":"text","text":"no"}],"structuredContent":{"n":12345678901234567890},"isError":true,"_meta":{"n":12345678901234567890}}"#
        );
    }

    const RIGHT: &str =
        "a result is an object whose `content` is a list of at least one block, an object with a `type`";

    #[track_caller]
    fn check(text: &str, want: &str) {
        let got = RawJson::parse(text.to_owned()).unwrap().into_result();
        match got {
            Ok(result) => assert_eq!((result.as_str(), want), (text.trim(), "")),
            Err(flaw) => {
                let (said, right) = flaw.split_once("; ").unwrap_or((&flaw, RIGHT));
                assert_eq!((said, right), (want, RIGHT), "{text}");
            }
        }
    }

    #[test]
    fn a_result_has_blocks_and_each_has_a_type() {
        check(r#"{"content":[{"type":"text","text":"a"}]}"#, "");
        check(
            r#" { "isError" : true , "content" : [ { "text" : [ ] , "type" : "x" } , {"type":""} ] , "x" : 1 } "#,
            "",
        );
        check(r#"{"c\u006fntent":[{"\u0074ype":"text","text":""}]}"#, "");
        for other in ["[]", "null", "7", r#""content""#, r#"[{"content":[{"type":"new"}]}]"#] {
            check(other, "it is not an object");
        }
        for other in ["{}", r#"{"contents":[]}"#, r#"{"x":{"content":[{"type":"new"}]}}"#] {
            check(other, "it has no `content`");
        }
        for other in ["null", "7", r#""text""#, "{}", r#"{"type":"new"}"#] {
            check(&format!(r#"{{"content":{other}}}"#), "its `content` is not a list");
        }
        check(r#"{"content":[]}"#, "its `content` is empty");
        check(r#"{"content":[ ],"isError":true}"#, "its `content` is empty");
        for other in ["null", "7", r#""text""#, "[]", r#"[{"type":"new"}]"#] {
            check(&format!(r#"{{"content":[{other}]}}"#), "`content[0]` is not an object");
            check(&format!(r#"{{"content":[{{"type":"new"}},{other}]}}"#), "`content[1]` is not an object");
        }
        for other in
            ["{}", r#"{"text":"type"}"#, r#"{"type":null}"#, r#"{"type":["text"]}"#, r#"{"x":{"type":"a"}}"#]
        {
            check(&format!(r#"{{"content":[{other}]}}"#), "`content[0]` has no `type` that is a string");
        }
        for other in [
            r#"{"type":"text"}"#,
            r#"{"type":"text","text":null}"#,
            r#"{"text":5,"type":"text"}"#,
            r#"{"type":"t\u0065xt","text":["a"]}"#,
        ] {
            let text = format!(r#"{{"content":[{{"type":"new","text":1}},{other}]}}"#);
            check(&text, "`content[1]` is a text block without a `text` that is a string");
        }
        // Clients differ in which duplicate they take.
        check(
            r#"{"content":[{"type":"new"}],"content":[]}"#,
            "duplicate field `content` at line 1 column 37",
        );
    }

    #[test]
    fn nesting_has_a_limit_wherever_it_is() {
        let rows = [
            // The depth of `DEEP`, and the text around it.
            (1, r#"{"content":[{"type":"new"}],"structuredContent":DEEP}"#),
            (1, r#"{"_meta":DEEP,"content":[{"type":"new"}]}"#),
            (3, r#"{"content":[{"type":"new"},{"type":"new","x":DEEP}]}"#),
            (2, r#"{"content":[{"type":"new"}],"x":{"y":1,"z":DEEP}}"#),
        ];
        for (around, text) in rows {
            for (depth, want) in [
                (MAX_RESULT_DEPTH, String::new()),
                (MAX_RESULT_DEPTH + 1, "it is nested 129 levels deep, the limit is 128".into()),
                (100_000, "it is nested 100000 levels deep, the limit is 128".into()),
            ] {
                let levels = depth - around;
                for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
                    let middle = if open == "[" { "" } else { "1" };
                    let deep = format!("{}{middle}{}", open.repeat(levels), close.repeat(levels));
                    check(&text.replace("DEEP", &deep), &want);
                }
            }
        }
    }
}
