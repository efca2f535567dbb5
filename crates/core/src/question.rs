//! Questions on their way from a handler to a person, and their answers.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::clock::Paused;
use crate::{RawJson, ToolError};

/// A question to the person on whose behalf a tool is called.
#[derive(Debug, Clone)]
pub struct Question {
    /// What the person reads.
    pub message: String,
    /// What an answer looks like: the JSON Schema of a flat object of strings, numbers, booleans and choices.
    pub schema: RawJson,
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<T = RawJson> {
    /// The person has answered.
    Accepted(T),
    /// The person has said no.
    Declined,
    /// The person has gone away without a decision.
    Cancelled,
    /// Nobody can be asked: the client has nobody, or cannot ask.
    Nobody,
}

impl<T> Answer<T> {
    /// What was answered, if anything was.
    pub fn accepted(self) -> Option<T> {
        match self {
            Self::Accepted(content) => Some(content),
            _ => None,
        }
    }

    /// The same with another content.
    ///
    /// # Errors
    ///
    /// As `read` does.
    pub fn try_map<U, E>(self, read: impl FnOnce(T) -> Result<U, E>) -> Result<Answer<U>, E> {
        Ok(match self {
            Self::Accepted(content) => Answer::Accepted(read(content)?),
            Self::Declined => Answer::Declined,
            Self::Cancelled => Answer::Cancelled,
            Self::Nobody => Answer::Nobody,
        })
    }
}

/// A question that could not be asked, or whose answer cannot be used.
pub(crate) fn question_error(message: impl Into<String>) -> ToolError {
    ToolError::new("QuestionError", message)
}

/// A question that a front is to ask. Dropping it is as good as saying that the call has ended.
#[derive(Debug)]
pub struct Asked {
    /// The question.
    pub question: Question,
    reply: oneshot::Sender<Result<Answer, ToolError>>,
}

impl Asked {
    /// Tells the handler what became of it.
    pub fn answer(self, answer: Result<Answer, ToolError>) {
        // A handler that no longer waits does not miss it.
        _ = self.reply.send(answer);
    }

    /// Tells the handler that its question cannot be asked, and why.
    pub fn fail(self, reason: impl Into<String>) {
        self.answer(Err(question_error(reason)));
    }

    /// Whether nobody wants the answer any more.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.reply.is_closed()
    }

    /// The same for who polls: ready when nobody wants the answer any more.
    pub fn poll_withdrawn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.reply.poll_closed(context)
    }

    /// Waits until nobody wants the answer any more.
    pub async fn withdrawn(&mut self) {
        self.reply.closed().await;
    }
}

/// A question that has been put, and waits for its answer. Dropping it takes the question back.
#[derive(Debug)]
pub struct Pending {
    reply: oneshot::Receiver<Result<Answer, ToolError>>,
    /// A person may take longer than a tool.
    _paused: Option<Paused>,
}

impl Pending {
    pub(crate) fn new(question: Question, paused: Option<Paused>) -> (Asked, Self) {
        let (sender, reply) = oneshot::channel();
        (Asked { question, reply: sender }, Self { reply, _paused: paused })
    }
}

impl Future for Pending {
    type Output = Result<Answer, ToolError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply).poll(context).map(|answer| {
            answer.unwrap_or_else(|_| Err(question_error("the call ended before its question was answered")))
        })
    }
}
