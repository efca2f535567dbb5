//! Answers questions of tools and MCP servers.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::call::{Answer, Asked};
use toolbridge_core::tool::RawJson;

use crate::callbacks::OnAsk;
use crate::opaque::Opaque;

/// A question of a tool, or of an MCP server in the run, to the user.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AskRequest {
    /// The MCP server whose tool asks; `tools` for those of this process, unless they have another name.
    pub server_name: String,
    /// The text of the question.
    pub message: String,
    /// The JSON Schema of the answer: a flat object. A plain value is requested as an object with one
    /// field.
    pub schema: Value,
    /// The page that the user is sent to, if the server uses a page instead of a form.
    pub url: Option<String>,
}

impl AskRequest {
    /// Wraps a plain value in an object, if the schema has a single field.
    fn content(&self, content: Value) -> Value {
        let fields = self.schema["properties"].as_object();
        match fields.and_then(|fields| fields.keys().next().filter(|_| fields.len() == 1)) {
            Some(field) if !content.is_object() => json!({ field: content }),
            _ => content,
        }
    }
}

/// Calls the user's function and returns the response for the CLI.
pub(crate) async fn ask(on_ask: Option<OnAsk>, request: AskRequest) -> Value {
    let answer = match on_ask {
        Some(on_ask) => answer_of(&on_ask, request).await,
        None => Answer::Nobody,
    };
    match answer {
        Answer::Accepted(content) => json!({ "action": "accept", "content": content }),
        Answer::Declined => json!({ "action": "decline" }),
        Answer::Cancelled | Answer::Nobody => json!({ "action": "cancel" }),
    }
}

/// Answers a question of one of our tools if its caller cannot: the CLI announces that it can ask only to
/// servers that it starts, not to those on its control channel.
pub(crate) fn ask_here(on_ask: &OnAsk, server: &str, mut asked: Asked) {
    let request = AskRequest {
        server_name: server.into(),
        message: asked.question.message.clone(),
        schema: asked.question.schema.decode().unwrap_or_default(),
        url: None,
    };
    let on_ask = on_ask.clone();
    // In a separate task: the tool may continue meanwhile.
    tokio::spawn(async move {
        let answer = tokio::select! {
            answer = answer_of(&on_ask, request) => answer,
            () = asked.withdrawn() => return,
        };
        asked.answer(answer.try_map(|content| Ok(RawJson::from(&content))));
    });
}

/// Calls the user's function; an accepted answer is always an object.
async fn answer_of(Opaque(ask): &OnAsk, request: AskRequest) -> Answer<Value> {
    let (ask, asked) = (Arc::clone(ask), request.clone());
    // In a separate task, so that a panic counts as no answer.
    let asking = tokio::spawn(async move { ask(asked).await });
    let answer = AbortOnDropHandle::new(asking).await.unwrap_or_else(|error| {
        tracing::error!(%error, server = request.server_name, "the function that answers questions failed");
        Answer::Cancelled
    });
    match answer {
        Answer::Accepted(content) => Answer::Accepted(request.content(content)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_plain_value_is_wrapped_for_a_form_with_one_field() {
        let of = |fields: Value| AskRequest {
            server_name: "tools".into(),
            message: "?".into(),
            schema: json!({ "type": "object", "properties": fields }),
            url: None,
        };
        let red = OnAsk::function(|_| async { Answer::Accepted(json!("red")) });
        let one = ask(Some(red), of(json!({ "answer": { "type": "string" } }))).await;
        assert_eq!(one, json!({ "action": "accept", "content": { "answer": "red" } }));
        let whole = OnAsk::function(|_| async { Answer::Accepted(json!({ "a": 1, "b": 2 })) });
        let two = ask(Some(whole), of(json!({ "a": {}, "b": {} }))).await;
        assert_eq!(two, json!({ "action": "accept", "content": { "a": 1, "b": 2 } }));
        let bad = OnAsk::function(|_| async { panic!("no") });
        assert_eq!(ask(Some(bad), of(json!({}))).await, json!({ "action": "cancel" }));
        assert_eq!(ask(None, of(json!({}))).await, json!({ "action": "cancel" }));
    }
}
