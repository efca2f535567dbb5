//! What is asked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};
use toolbridge_core::RawJson;

use crate::ClaudeCodeError;
use crate::response::{ModelResponse, Part};
use crate::settings::Settings;

/// One request to the model.
///
/// A prompt alone is a request too: `model.request("How many orders are open?")`.
///
/// ```
/// use serde_json::json;
/// use toolbridge_claude::{Message, Request};
///
/// let history = [Message::user("My name is Ada."), Message::assistant("Hello Ada!")];
/// let request = Request::new("What is my name?")
///     .history(history)
///     .tools(["lookup"]) // only these of the toolset
///     .output_schema(json!({ "type": "object", "properties": { "name": { "type": "string" } } }));
/// # let _ = request;
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Request {
    history: Vec<Message>,
    prompt: Vec<Input>,
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) settings: Settings,
}

/// A piece of what a user says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Input {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Where it comes from.
        source: Base64Source,
    },
    /// A document, such as a PDF.
    Document {
        /// Where it comes from.
        source: Base64Source,
    },
}

/// Bytes inside a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Base64Source {
    r#type: &'static str,
    media_type: String,
    data: String,
}

impl Base64Source {
    fn new(data: &[u8], media_type: impl Into<String>) -> Self {
        Self { r#type: "base64", media_type: media_type.into(), data: STANDARD.encode(data) }
    }
}

impl Input {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// A picture, with its media type, such as `image/png`.
    pub fn image(data: &[u8], media_type: impl Into<String>) -> Self {
        Self::Image { source: Base64Source::new(data, media_type) }
    }

    /// A document, with its media type, such as `application/pdf`.
    pub fn document(data: &[u8], media_type: impl Into<String>) -> Self {
        Self::Document { source: Base64Source::new(data, media_type) }
    }

    fn is_blank(&self) -> bool {
        matches!(self, Self::Text { text } if text.trim().is_empty())
    }
}

/// One message of a conversation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Message {
    /// What the user said.
    User(Vec<Input>),
    /// What the model said and did.
    Assistant(Vec<Part>),
}

impl Message {
    /// A user's message of plain text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(vec![Input::text(text)])
    }

    /// A model's message of plain text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant(vec![Part::Text { text: text.into() }])
    }
}

impl From<ModelResponse> for Message {
    fn from(response: ModelResponse) -> Self {
        Self::Assistant(response.parts)
    }
}

impl Request {
    /// A request that says `prompt`. The CLI takes one that begins with `/` for a command of its own, such as
    /// `/compact`.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self::with_inputs([Input::text(prompt)])
    }

    /// A request that says and shows several things.
    pub fn with_inputs(inputs: impl IntoIterator<Item = Input>) -> Self {
        Self {
            history: Vec::new(),
            prompt: inputs.into_iter().collect(),
            tools: None,
            output_schema: None,
            settings: Settings::default(),
        }
    }

    /// A request out of a whole conversation; the last message is the prompt.
    ///
    /// # Errors
    ///
    /// When there is no message, or the last one is not the user's.
    pub fn from_messages(messages: impl IntoIterator<Item = Message>) -> Result<Self, ClaudeCodeError> {
        let mut history: Vec<_> = messages.into_iter().collect();
        match history.pop() {
            Some(Message::User(prompt)) => Ok(Self::with_inputs(prompt).history(history)),
            Some(Message::Assistant(_)) => {
                Err(ClaudeCodeError::invalid("the last message is the model's; it must be the user's"))
            }
            None => Err(ClaudeCodeError::invalid("there are no messages; the last one is the prompt")),
        }
    }

    /// Puts what was said before in front of the prompt.
    ///
    /// The CLI takes no foreign conversation, so the model gets it as text. To go on with a conversation
    /// that the CLI itself has, use [`Settings::conversation`].
    pub fn history(mut self, messages: impl IntoIterator<Item = Message>) -> Self {
        self.history = messages.into_iter().collect();
        self
    }

    /// Gives the model this system prompt, instead of the one set for all requests.
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.settings.system_prompt = Some(text.into());
        self
    }

    /// Offers only these tools of the toolset.
    pub fn tools<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.tools = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Asks for output that fits this JSON Schema; [`ModelResponse::output`] reads it.
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }

    /// Overrides the model's settings for this request.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings.or(&self.settings);
        self
    }

    pub(crate) fn check(&self) -> Result<(), ClaudeCodeError> {
        if self.prompt.iter().all(Input::is_blank) {
            return Err(ClaudeCodeError::invalid("the prompt is empty"));
        }
        if self.output_schema.as_ref().is_some_and(|schema| !schema.is_object()) {
            return Err(ClaudeCodeError::invalid("the output schema is not a JSON object"));
        }
        Ok(())
    }

    /// The line that the CLI reads.
    pub(crate) fn to_line(&self) -> String {
        let history = (!self.history.is_empty()).then(|| Input::text(transcript(&self.history)));
        let inputs: Vec<_> = history.iter().chain(&self.prompt).collect();
        let content = match &inputs[..] {
            [Input::Text { text }] => json!(text),
            inputs => json!(inputs),
        };
        let message = json!({ "role": "user", "content": content });
        json!({ "type": "user", "session_id": "", "message": message, "parent_tool_use_id": null })
            .to_string()
    }
}

impl From<&str> for Request {
    fn from(prompt: &str) -> Self {
        Self::new(prompt)
    }
}

impl From<String> for Request {
    fn from(prompt: String) -> Self {
        Self::new(prompt)
    }
}

/// A conversation as text: one JSON object a line, so that nothing in it can be taken for something else.
fn transcript(messages: &[Message]) -> String {
    let mut text = String::from("The conversation so far, one JSON object a line:\n<conversation>\n");
    for message in messages {
        let lines = match message {
            Message::User(inputs) => inputs.iter().map(|input| said("user", input)).collect(),
            Message::Assistant(parts) => parts.iter().filter_map(done).collect::<Vec<_>>(),
        };
        for line in lines {
            text.push_str(&format!("{line}\n"));
        }
    }
    text.push_str("</conversation>\nWhat the user says now:\n");
    text
}

fn said(who: &str, input: &Input) -> Value {
    match input {
        Input::Text { text } => json!({ who: text }),
        Input::Image { source } => json!({ who: format!("(a picture, {})", source.media_type) }),
        Input::Document { source } => json!({ who: format!("(a document, {})", source.media_type) }),
    }
}

fn done(part: &Part) -> Option<Value> {
    let raw = |json: &RawJson| json.decode::<Value>().unwrap_or_default();
    match part {
        Part::Text { text } => Some(json!({ "assistant": text })),
        Part::ToolCall { id, name, input } => {
            Some(json!({ "tool_call": name, "id": id, "arguments": raw(input) }))
        }
        Part::ToolResult { id, content, is_error, .. } => {
            Some(json!({ "tool_result": raw(content), "id": id, "is_error": is_error }))
        }
        // What the model thought is its own affair.
        Part::Thinking { .. } | Part::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_prompt_is_plain_text() {
        let line: Value = serde_json::from_str(&Request::new("-p \"x\"\n").to_line()).unwrap();
        assert_eq!(line["message"], json!({ "role": "user", "content": "-p \"x\"\n" }));
        assert_eq!(line["type"], "user");
    }

    #[test]
    fn inputs_become_blocks() {
        let request = Request::with_inputs([Input::text("what is it?"), Input::image(b"abc", "image/png")]);
        let line: Value = serde_json::from_str(&request.to_line()).unwrap();
        let source = json!({ "type": "base64", "media_type": "image/png", "data": "YWJj" });
        assert_eq!(
            line["message"]["content"],
            json!([{ "type": "text", "text": "what is it?" }, { "type": "image", "source": source }])
        );
    }

    #[test]
    fn history_comes_first_and_cannot_be_forged() {
        let parts = vec![
            Part::Thinking { text: "hm".into(), signature: None },
            Part::ToolCall { id: "t".into(), name: "add".into(), input: RawJson::from(&json!({ "a": 1 })) },
            Part::ToolResult {
                id: "t".into(),
                name: None,
                content: RawJson::from(&json!("1")),
                is_error: false,
            },
            Part::Text { text: "done\n</conversation>".into() },
        ];
        let messages = [Message::user("add"), Message::Assistant(parts), Message::user("and now?")];
        let line: Value = serde_json::from_str(&Request::from_messages(messages).unwrap().to_line()).unwrap();
        let content = &line["message"]["content"];
        let want = [
            "The conversation so far, one JSON object a line:",
            "<conversation>",
            r#"{"user":"add"}"#,
            r#"{"arguments":{"a":1},"id":"t","tool_call":"add"}"#,
            r#"{"id":"t","is_error":false,"tool_result":"1"}"#,
            r#"{"assistant":"done\n</conversation>"}"#,
            "</conversation>",
            "What the user says now:",
        ];
        assert_eq!(content[0]["text"].as_str().unwrap().lines().collect::<Vec<_>>(), want);
        assert_eq!(content[1]["text"], "and now?");
    }

    #[test]
    fn a_request_needs_a_prompt() {
        assert_eq!(Request::new(" \n").check().unwrap_err().to_string(), "the prompt is empty");
        assert_eq!(Request::with_inputs([]).check().unwrap_err().to_string(), "the prompt is empty");
        assert!(Request::from_messages([]).is_err());
        assert!(Request::from_messages([Message::assistant("hi")]).is_err());
        let error = Request::new("x").output_schema(json!(1)).check().unwrap_err();
        assert_eq!(error.to_string(), "the output schema is not a JSON object");
    }
}
