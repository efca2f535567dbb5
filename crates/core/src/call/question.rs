//! Questions from a handler to the user, and their answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::call::clock::Clock;
use crate::{RawJson, ToolError};

/// A question to the user on whose behalf a tool is called.
#[derive(Debug, Clone)]
pub struct Question {
    /// The text of the question.
    pub message: String,
    /// The JSON Schema of the answer: a flat object of strings, numbers, booleans and choices.
    pub schema: RawJson,
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<T = RawJson> {
    /// The user has answered.
    Accepted(T),
    /// The user has refused.
    Declined,
    /// The user has dismissed the question.
    Cancelled,
    /// There is no user to ask, or the client does not support questions.
    Nobody,
}

impl<T> Answer<T> {
    /// The accepted content, if any.
    pub fn accepted(self) -> Option<T> {
        match self {
            Self::Accepted(content) => Some(content),
            _ => None,
        }
    }

    /// Converts the accepted content.
    ///
    /// # Errors
    ///
    /// The error of `read`.
    pub fn try_map<U, E>(self, read: impl FnOnce(T) -> Result<U, E>) -> Result<Answer<U>, E> {
        Ok(match self {
            Self::Accepted(content) => Answer::Accepted(read(content)?),
            Self::Declined => Answer::Declined,
            Self::Cancelled => Answer::Cancelled,
            Self::Nobody => Answer::Nobody,
        })
    }
}

/// The error for a question that could not be asked, or whose answer is unusable.
pub(crate) fn question_error(message: impl Into<String>) -> ToolError {
    ToolError::new("QuestionError", message)
}

/// A question for a front to ask. Dropping it tells the handler that the call has ended.
#[derive(Debug)]
pub struct Asked {
    /// The question.
    pub question: Question,
    reply: oneshot::Sender<Result<Answer, ToolError>>,
}

impl Asked {
    /// Sends the answer to the handler.
    pub fn answer(self, answer: Result<Answer, ToolError>) {
        // Fails if the handler no longer waits; the answer is not needed then.
        _ = self.reply.send(answer);
    }

    /// Tells the handler why its question cannot be asked.
    pub fn fail(self, reason: impl Into<String>) {
        self.answer(Err(question_error(reason)));
    }

    /// Whether the handler no longer waits for the answer.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.reply.is_closed()
    }

    /// Like [`withdrawn`](Self::withdrawn), for polling.
    pub fn poll_withdrawn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.reply.poll_closed(context)
    }

    /// Waits until the handler no longer waits for the answer.
    pub async fn withdrawn(&mut self) {
        self.reply.closed().await;
    }
}

/// A question waiting for its answer. Dropping it cancels the question.
pub type Pending = Pin<Box<dyn Future<Output = Result<Answer, ToolError>> + Send>>;

/// A question for a front, and its answer; `clock` is stopped until then, since a user may take longer than a tool.
pub(crate) fn ask(question: Question, clock: Option<&Arc<Clock>>) -> (Asked, Pending) {
    let (sender, reply) = oneshot::channel();
    let paused = clock.map(Clock::pause);
    let pending = async move {
        let answer = reply.await;
        drop(paused);
        answer.unwrap_or_else(|_| Err(question_error("the call ended before its question was answered")))
    };
    (Asked { question, reply: sender }, Box::pin(pending))
}
