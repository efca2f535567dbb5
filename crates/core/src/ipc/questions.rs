//! The questions of one call, at both ends of its connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use crate::{Answer, Asked, CallContext, Pending, ToolError};
use tokio::net::unix::OwnedReadHalf;

use crate::ipc::IpcError;
use crate::ipc::frame::FrameReader;
use crate::ipc::message::{Ask, read_answer};

/// Questions of a parent that the bridge has not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    asked: Vec<(u64, Asked)>,
    last: u64,
}

/// Events while a call runs.
pub(crate) enum News {
    /// The bridge has closed the connection.
    Closed,
    /// A question was answered.
    Answered,
    /// The handler no longer waits for the answer to this question.
    TakenBack(u64),
}

impl Questions {
    /// Registers a question and returns the message for the bridge.
    pub(crate) fn put(&mut self, asked: Asked) -> Ask {
        self.last += 1;
        let ask = Ask::new(self.last, &asked.question);
        self.asked.push((self.last, asked));
        ask
    }

    /// Waits for a message of the bridge, or until a question is cancelled. While there are no questions,
    /// data from the bridge is left unread. Cancel-safe.
    pub(crate) async fn next(&mut self, reader: &mut FrameReader<OwnedReadHalf>) -> Result<News, IpcError> {
        if self.asked.is_empty() {
            reader.closed().await;
            return Ok(News::Closed);
        }
        let asked = &mut self.asked;
        let taken_back = poll_fn(|context| {
            let is_back = |(_, asked): &mut (u64, Asked)| asked.poll_withdrawn(context).is_ready();
            asked.iter_mut().position(is_back).map_or(Poll::Pending, Poll::Ready)
        });
        let frame = tokio::select! {
            biased;
            place = taken_back => return Ok(News::TakenBack(self.asked.swap_remove(place).0)),
            frame = reader.read_frame() => frame?,
        };
        let Some(frame) = frame else { return Ok(News::Closed) };
        let (id, answer) = read_answer(&frame)?;
        // An unknown id belongs to a question that was cancelled before its answer arrived.
        if let Some(place) = self.asked.iter().position(|(own, _)| *own == id) {
            let (_, asked) = self.asked.swap_remove(place);
            match answer {
                Ok(answer) => asked.answer(Ok(answer)),
                Err(reason) => asked.fail(reason),
            }
        }
        Ok(News::Answered)
    }
}

/// Questions that a bridge has forwarded to its client.
#[derive(Default)]
pub(crate) struct PassedOn(Vec<(u64, Option<Pending>)>);

impl PassedOn {
    /// Forwards a question of the parent, or cancels it.
    pub(crate) fn take(&mut self, ask: Ask, context: &CallContext) {
        let id = ask.id;
        match ask.question() {
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
