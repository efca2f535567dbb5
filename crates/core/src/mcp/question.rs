//! Questions of tools to the client's user, in both eras of the protocol.
//!
//! Up to 2025-11-25 the server sends the request `elicitation/create`, and the client answers it. From
//! 2026-07-28 on, the call itself returns a result that lists the required input; the client retries the
//! call with the answers and with a state that identifies it. The handler keeps waiting meanwhile, and does
//! not run twice.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::call::question::question_error;
use crate::mcp::call::Responder;
use crate::mcp::rpc::IdKey;
use crate::tool::lock::lock;
use crate::{Answer, Asked, CancellationToken, Question, RawJson};

/// The maximum number of open questions per client, and of calls that wait for answers.
pub(crate) const MAX_QUESTIONS: usize = 256;

/// The parameters of `elicitation/create`.
fn params(question: &Question, mode: Option<&str>) -> RawJson {
    let Question { message, schema } = question;
    let mode = mode.map(|mode| format!(r#""mode":"{mode}","#)).unwrap_or_default();
    // Written by hand to keep the order of the schema's fields.
    let params = format!(r#"{{{mode}"message":{},"requestedSchema":{schema}}}"#, json!(message));
    RawJson::written(params.into_bytes())
}

/// Reads an `ElicitResult`.
fn read_result(result: &str) -> Result<Answer, String> {
    #[derive(Deserialize)]
    struct ElicitResult<'a> {
        action: String,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }
    let read: ElicitResult<'_> = serde_json::from_str(result)
        .map_err(|error| format!("the client's answer cannot be read: {error}"))?;
    match (read.action.as_str(), read.content) {
        ("accept", Some(content)) if content.get().starts_with('{') => {
            let content = RawJson::parse(content.get().to_owned());
            content.map(Answer::Accepted).map_err(|error| error.to_string())
        }
        ("accept", None) => Ok(Answer::Accepted(RawJson::empty_object())),
        ("accept", Some(_)) => Err("the client's answer has a `content` that is not an object".into()),
        ("decline", _) => Ok(Answer::Declined),
        ("cancel", _) => Ok(Answer::Cancelled),
        (other, _) => Err(format!(
            "the client's answer has the action `{other}`; there are `accept`, `decline` and `cancel`"
        )),
    }
}

/// Our requests that the client has not answered yet.
#[derive(Debug, Default)]
pub(crate) struct OpenQuestions {
    open: Mutex<HashMap<String, oneshot::Sender<Result<Answer, String>>>>,
    last: AtomicU64,
}

impl OpenQuestions {
    /// Asks a question and passes the answer to the handler. The question is cancelled when its call has `ended`, when
    /// the client's stream closes, or when the handler no longer waits.
    pub(crate) async fn ask(&self, mut asked: Asked, client: &impl Responder, ended: &CancellationToken) {
        let (sender, answer) = oneshot::channel();
        let id = format!("ask-{}", self.last.fetch_add(1, Ordering::Relaxed) + 1);
        {
            let mut open = lock(&self.open);
            if open.len() >= MAX_QUESTIONS {
                drop(open);
                return asked.fail(too_many(MAX_QUESTIONS));
            }
            open.insert(id.clone(), sender);
        }
        let params = params(&asked.question, None);
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"elicitation/create","params":{params}}}"#);
        let answering = async {
            client.line(line).await.ok()?;
            answer.await.ok()
        };
        let answer = tokio::select! {
            biased;
            answer = answering => answer,
            () = asked.withdrawn() => None,
            () = ended.cancelled() => None,
            () = client.closed() => None,
        };
        let was_open = lock(&self.open).remove(&id).is_some();
        match answer {
            Some(answer) => asked.answer(answer.map_err(question_error)),
            None if !was_open => asked.fail("the client is gone"),
            None => {
                let line = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{id}"}}}}"#
                );
                // If this fails, the client is gone and needs no notification.
                _ = client.line(line).await;
            }
        }
    }

    /// Handles a client's response; a response to an unknown request is ignored.
    pub(crate) fn take(&self, id: Option<&IdKey>, response: Result<&RawJson, &ErrorData>) {
        let Some(IdKey::Text(id)) = id else { return };
        let Some(sender) = lock(&self.open).remove(id) else { return };
        _ = sender.send(match response {
            Ok(result) => read_result(result.as_str()),
            Err(error) if error.code == ErrorCode::METHOD_NOT_FOUND => Ok(Answer::Nobody),
            Err(error) => Err(format!("the client cannot ask: {}", error.message)),
        });
    }

    /// Fails all open questions, because the client will not answer any more.
    pub(crate) fn close(&self) {
        lock(&self.open).clear();
    }
}

fn too_many(most: usize) -> String {
    format!("{most} questions wait for an answer, which is the limit")
}

/// The questions of one call that the client has to answer before it retries.
#[derive(Debug, Default)]
pub(crate) struct Round {
    asked: Vec<(String, Asked)>,
    last: usize,
}

impl Round {
    /// Adds a question.
    pub(crate) fn add(&mut self, asked: Asked) {
        self.last += 1;
        self.asked.push((format!("q{}", self.last), asked));
    }

    /// Whether no question is left to answer.
    pub(crate) fn is_over(&mut self) -> bool {
        self.asked.retain(|(_, asked)| !asked.is_withdrawn());
        self.asked.is_empty()
    }

    /// The result that requests the input.
    pub(crate) fn result(&self, state: &str) -> RawJson {
        let request = |(key, asked): &(String, Asked)| {
            let params = params(&asked.question, Some("form"));
            (key.clone(), json!({ "method": "elicitation/create", "params": params }))
        };
        let requests: serde_json::Map<_, _> = self.asked.iter().map(request).collect();
        RawJson::from(&json!({
            "resultType": "input_required", "inputRequests": requests, "requestState": state,
        }))
    }

    /// Passes the client's answers to the handler. Missing answers are requested again.
    pub(crate) fn take(&mut self, responses: &RawJson) {
        let mut responses: HashMap<String, Box<RawValue>> = responses.decode().unwrap_or_default();
        for (key, asked) in std::mem::take(&mut self.asked) {
            match responses.remove(&key) {
                Some(response) => asked.answer(read_result(response.get()).map_err(question_error)),
                None => self.asked.push((key, asked)),
            }
        }
    }

    /// Fails all questions, because too many calls are waiting already.
    pub(crate) fn refuse(self, most: usize) {
        for (_, asked) in self.asked {
            asked.fail(too_many(most));
        }
    }
}
