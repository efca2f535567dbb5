//! The questions of one call, at both ends of its connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use toolbridge_core::{Answer, Asked, CallContext, Pending, ToolError};
use toolbridge_socket::SocketReader;

use crate::IpcError;
use crate::frame::FrameReader;
use crate::message::{Ask, read_answer};

/// What a parent has asked, and the bridge has not answered.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    asked: Vec<(u64, Asked)>,
    last: u64,
}

/// What happens while a call goes on.
pub(crate) enum News {
    /// The bridge has hung up.
    Closed,
    /// A question has its answer.
    Answered,
    /// Nobody wants the answer to this question any more.
    TakenBack(u64),
}

impl Questions {
    /// Notes a question; what the bridge is told.
    pub(crate) fn put(&mut self, asked: Asked) -> Ask {
        self.last += 1;
        let ask = Ask::new(self.last, &asked.question);
        self.asked.push((self.last, asked));
        ask
    }

    /// Waits for the bridge, or for a question to be taken back. As long as nothing is asked, what the bridge sends is left
    /// where it is. Cancel-safe.
    pub(crate) async fn next(&mut self, reader: &mut FrameReader<SocketReader>) -> Result<News, IpcError> {
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
        // One that was taken back has crossed its answer.
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

/// What a bridge passes on to its client.
#[derive(Default)]
pub(crate) struct PassedOn(Vec<(u64, Option<Pending>)>);

impl PassedOn {
    /// Asks what the parent asks, or takes it back.
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
