//! The questions of one call, at both ends of its connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use crate::{Answer, Asked, CallContext, Pending, Question, ToolError};
use tokio::net::unix::OwnedReadHalf;

use crate::ipc::IpcError;
use crate::ipc::frame::FrameReader;
use crate::ipc::message::{Reply, read_answer};

/// Questions of a parent that the bridge has not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    asked: Vec<(u64, Asked)>,
    last: u64,
}

impl Questions {
    /// Registers a question and returns the message for the bridge.
    pub(crate) fn put(&mut self, asked: Asked) -> Reply {
        self.last += 1;
        let question = asked.question.clone();
        self.asked.push((self.last, asked));
        Reply::Ask(self.last, Some(question))
    }

    /// Passes answers of the bridge on until a question is cancelled, and returns the message for the bridge then;
    /// `None` if it has closed the connection. While there are no questions, data from the bridge is left unread.
    /// Cancel-safe.
    pub(crate) async fn next(
        &mut self,
        reader: &mut FrameReader<OwnedReadHalf>,
    ) -> Result<Option<Reply>, IpcError> {
        while !self.asked.is_empty() {
            let taken_back = poll_fn(|context| {
                let is_back = |(_, asked): &mut (u64, Asked)| asked.poll_withdrawn(context).is_ready();
                self.asked.iter_mut().position(is_back).map_or(Poll::Pending, Poll::Ready)
            });
            let frame = tokio::select! {
                biased;
                place = taken_back => return Ok(Some(Reply::Ask(self.asked.swap_remove(place).0, None))),
                frame = reader.read_frame() => frame?,
            };
            let Some(frame) = frame else { return Ok(None) };
            let (id, answer) = read_answer(&frame)?;
            // An unknown id belongs to a question that was cancelled before its answer arrived.
            if let Some(place) = self.asked.iter().position(|(own, _)| *own == id) {
                let (_, asked) = self.asked.swap_remove(place);
                match answer {
                    Ok(answer) => asked.answer(Ok(answer)),
                    Err(reason) => asked.fail(reason),
                }
            }
        }
        reader.closed().await;
        Ok(None)
    }
}

/// Questions that a bridge has forwarded to its client.
#[derive(Default)]
pub(crate) struct PassedOn(Vec<(u64, Option<Pending>)>);

impl PassedOn {
    /// Forwards a question of the parent, or cancels it.
    pub(crate) fn take(&mut self, id: u64, question: Option<Question>, context: &CallContext) {
        match question {
            Some(question) => self.0.push((id, context.put(question))),
            None => self.0.retain(|(own, _)| *own != id),
        }
    }

    /// Waits for the next answer. Cancel-safe.
    pub(crate) async fn next(&mut self) -> (u64, Result<Answer, ToolError>) {
        let (place, answer) = poll_fn(|context| {
            for (place, (_, pending)) in self.0.iter_mut().enumerate() {
                let answer = match pending {
                    Some(pending) => Pin::new(pending).poll(context),
                    None => Poll::Ready(Ok(Answer::Nobody)),
                };
                if let Poll::Ready(answer) = answer {
                    return Poll::Ready((place, answer));
                }
            }
            Poll::Pending
        })
        .await;
        (self.0.swap_remove(place).0, answer)
    }
}
