//! Results of tools.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

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
        struct CallToolResult<'a> {
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
        RawJson::of(&CallToolResult {
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
}
