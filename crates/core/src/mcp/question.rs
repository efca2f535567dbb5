//! Questions of tools to the client's user, in both eras of the protocol.
//!
//! Up to 2025-11-25 the server sends the request `elicitation/create`, and the client answers it. From
//! 2026-07-28 on, the call itself returns a result that lists the required input; the client retries the
//! call with the answers and with a state that identifies it. The handler keeps waiting meanwhile, and does
//! not run twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Answer, Asked, CallEvent, Question, RawJson, RunningCall, ToolError};
use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::mcp::rpc::{IdKey, invalid_params};

/// The maximum number of open questions per client, and of calls that wait for answers.
pub(crate) const MAX_QUESTIONS: usize = 256;

/// How long a call waits for the client to retry it with the answers.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// The parameters of `elicitation/create`.
fn params(question: &Question, mode: Option<&str>) -> RawJson {
    let Question { message, schema } = question;
    let mode = mode.map(|mode| format!(r#""mode":"{mode}","#)).unwrap_or_default();
    // Written by hand to keep the order of the schema's fields.
    let params = format!(r#"{{{mode}"message":{},"requestedSchema":{schema}}}"#, json!(message));
    RawJson::written(params.into_bytes())
}

/// The client's answer, or why it could not ask.
type Reply = Result<Answer, String>;

/// Reads an `ElicitResult`.
fn read_result(result: &str) -> Reply {
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

fn tell(asked: Asked, reply: Reply) {
    match reply {
        Ok(answer) => asked.answer(Ok(answer)),
        Err(reason) => asked.fail(reason),
    }
}

/// Our requests that the client has not answered yet.
#[derive(Debug, Default)]
pub struct OpenQuestions {
    open: Mutex<HashMap<String, oneshot::Sender<Reply>>>,
    last: AtomicU64,
}

impl OpenQuestions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Reply>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a question and passes the answer to the handler. `send` writes a line to the client. The
    /// question is cancelled when `ended` completes, which is the end of the call, or when the handler no
    /// longer waits.
    pub async fn ask<S, E>(
        &self,
        mut asked: Asked,
        ended: impl Future<Output = ()>,
        send: impl Fn(String) -> S,
    ) where
        S: Future<Output = Result<(), E>>,
    {
        let (sender, reply) = oneshot::channel();
        let id = format!("ask-{}", self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let is_full = {
            let mut open = self.lock();
            let is_full = open.len() >= MAX_QUESTIONS;
            if !is_full {
                open.insert(id.clone(), sender);
            }
            is_full
        };
        if is_full {
            return asked.fail(too_many(MAX_QUESTIONS));
        }
        let _open = Open { questions: self, id: &id };
        let params = params(&asked.question, None);
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"elicitation/create","params":{params}}}"#);
        if send(line).await.is_err() {
            return asked.fail("the client is gone");
        }
        let reply = tokio::select! {
            biased;
            reply = reply => Some(reply),
            () = asked.withdrawn() => None,
            () = ended => None,
        };
        match reply {
            Some(Ok(reply)) => tell(asked, reply),
            Some(Err(_)) => asked.fail("the client is gone"),
            None => {
                let line = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{id}"}}}}"#
                );
                // If this fails, the client is gone and needs no notification.
                _ = send(line).await;
            }
        }
    }

    /// Handles a client's response; a response to an unknown request is ignored.
    pub fn take(&self, id: Option<&IdKey>, response: Result<&RawJson, &ErrorData>) {
        let Some(IdKey::Text(id)) = id else { return };
        let Some(sender) = self.lock().remove(id) else { return };
        _ = sender.send(match response {
            Ok(result) => read_result(result.as_str()),
            Err(error) if error.code == ErrorCode::METHOD_NOT_FOUND => Ok(Answer::Nobody),
            Err(error) => Err(format!("the client cannot ask: {}", error.message)),
        });
    }

    /// Fails all open questions, because the client will not answer any more.
    pub fn close(&self) {
        self.lock().clear();
    }
}

/// An entry in the table of open questions; removed when dropped.
struct Open<'a> {
    questions: &'a OpenQuestions,
    id: &'a str,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.questions.lock().remove(self.id);
    }
}

fn too_many(most: usize) -> String {
    format!("{most} questions wait for an answer, which is the limit")
}

/// The questions of one call that the client has to answer before it retries.
#[derive(Debug, Default)]
pub struct Round {
    asked: Vec<(String, Asked)>,
    last: usize,
}

impl Round {
    /// Adds a question.
    pub fn add(&mut self, asked: Asked) {
        self.last += 1;
        self.asked.push((format!("q{}", self.last), asked));
    }

    /// Whether no question is left to answer.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.asked.iter().all(|(_, asked)| asked.is_withdrawn())
    }

    /// The result that requests the input.
    #[must_use]
    pub fn result(&self, state: &str) -> RawJson {
        let request = |(key, asked): &(String, Asked)| {
            let params = params(&asked.question, Some("form"));
            (key.clone(), json!({ "method": "elicitation/create", "params": params }))
        };
        let open = self.asked.iter().filter(|(_, asked)| !asked.is_withdrawn());
        let requests: serde_json::Map<_, _> = open.map(request).collect();
        RawJson::from(&json!({
            "resultType": "input_required", "inputRequests": requests, "requestState": state,
        }))
    }

    /// Passes the client's answers to the handler. Missing answers are requested again.
    pub fn take(&mut self, responses: &RawJson) {
        let mut responses: HashMap<String, Box<RawValue>> = responses.decode().unwrap_or_default();
        for (key, asked) in std::mem::take(&mut self.asked) {
            match responses.remove(&key) {
                Some(response) => tell(asked, read_result(response.get())),
                None => self.asked.push((key, asked)),
            }
        }
    }

    /// Fails all questions, because too many calls are waiting already.
    pub fn refuse(&mut self, most: usize) {
        for (_, asked) in self.asked.drain(..) {
            asked.fail(too_many(most));
        }
    }

    /// Waits until the client retries, while the call continues; `None` if that takes too long or has
    /// become impossible.
    pub async fn wait<R>(
        &mut self,
        call: &mut RunningCall<'_>,
        retry: &mut oneshot::Receiver<R>,
        done: &mut Option<Result<RawJson, ToolError>>,
    ) -> Option<R> {
        let too_long = tokio::time::sleep(MAX_WAIT);
        tokio::pin!(too_long);
        loop {
            tokio::select! {
                biased;
                retry = &mut *retry => return retry.ok(),
                () = &mut too_long => return None,
                event = call.next(), if done.is_none() => match event {
                    CallEvent::Question(asked) => self.add(asked),
                    // There is no open request to report progress to.
                    CallEvent::Progress(_) => {}
                    CallEvent::Done(outcome) => *done = Some(outcome),
                },
            }
        }
    }
}

/// Calls that wait until their clients retry: the data that identifies each, and the channel to resume it.
#[derive(Debug)]
pub struct WaitingRoom<K, R> {
    waiting: Mutex<Waiting<K, R>>,
    most: usize,
}

type Waiting<K, R> = HashMap<String, (K, oneshot::Sender<R>)>;

impl<K, R> WaitingRoom<K, R> {
    /// At most `most` calls can wait.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), most }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<K, R>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call, if there is room; `known` returns the data that identifies it, or `None` if it was
    /// cancelled.
    pub fn enter(&self, known: impl FnOnce() -> Option<K>) -> Entrance<'_, K, R> {
        let mut waiting = self.lock();
        if waiting.len() >= self.most {
            return Entrance::Full(self.most);
        }
        let Some(known) = known() else { return Entrance::Gone };
        let (sender, retry) = oneshot::channel();
        // 122 random bits from the system, which cannot be guessed.
        let state = Uuid::new_v4().simple().to_string();
        waiting.insert(state.clone(), (known, sender));
        Entrance::Waits(Seat { room: self, state, retry })
    }

    /// Removes the call that waits under `state`, if it belongs to this client.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn leave(
        &self,
        state: &str,
        is_its: impl FnOnce(&K) -> bool,
    ) -> Result<(K, oneshot::Sender<R>), ErrorData> {
        let mut waiting = self.lock();
        let found = waiting.get(state).is_some_and(|(known, _)| is_its(known));
        found.then(|| waiting.remove(state)).flatten().ok_or_else(no_such_call)
    }

    /// Drops all waiting calls, because no client will retry.
    pub fn close(&self) {
        self.lock().clear();
    }
}

/// The error for answers that no call waits for.
#[must_use]
pub fn no_such_call() -> ErrorData {
    invalid_params(
        "no call of this tool waits for answers under this `requestState`: it has been answered, has ended, or was never \
         yours; call the tool without `requestState` and `inputResponses`",
    )
}

/// Whether a call may wait.
#[derive(Debug)]
pub enum Entrance<'a, K, R> {
    /// It may.
    Waits(Seat<'a, K, R>),
    /// Too many calls are waiting already.
    Full(usize),
    /// It has been cancelled.
    Gone,
}

/// A waiting call; removed when this is dropped.
#[derive(Debug)]
pub struct Seat<'a, K, R> {
    room: &'a WaitingRoom<K, R>,
    /// Identifies the call when the client retries.
    pub state: String,
    /// Receives the data of the client's retry.
    pub retry: oneshot::Receiver<R>,
}

impl<K, R> Drop for Seat<'_, K, R> {
    fn drop(&mut self) {
        self.room.lock().remove(&self.state);
    }
}
