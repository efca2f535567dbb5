//! The stream of a request's events.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::call::CancellationToken;

use crate::error::ExecutionKind;
use crate::response::Event;
use crate::{ClaudeCodeError, ResponseWithMetadata};

/// The limit of unread events. Tool calls continue even if the stream is read slowly.
const MAX_UNREAD_BYTES: usize = 256 * 1024 * 1024;

type Item = Result<Event, ClaudeCodeError>;

/// The events of a running request.
///
/// The last one is [`Event::Result`], or an error. The request runs even if the stream is not read;
/// dropping the stream ends the request and cleans up.
#[derive(Debug)]
pub struct ResponseStream {
    events: mpsc::UnboundedReceiver<(Item, usize)>,
    unread: Arc<AtomicUsize>,
    /// `None` once it has ended.
    driver: Option<AbortOnDropHandle<()>>,
    signals: Signals,
    /// The request's resources outside this process. Dropping them releases them at once, even if the
    /// driver's runtime is gone.
    _guards: Box<dyn Any + Send + Sync>,
}

/// Signals that end a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    /// Interrupts it, as a user would.
    pub(crate) interrupt: CancellationToken,
    /// Ends it at once.
    pub(crate) cancel: CancellationToken,
    /// It no longer counts as running.
    pub(crate) over: CancellationToken,
}

/// The part of a request that makes it count as running: the first that is dropped ends that.
pub(crate) type RequestGuard = DropGuard;

impl Signals {
    pub(crate) fn guard(&self) -> RequestGuard {
        self.over.clone().drop_guard()
    }
}

/// The sender of a request's events.
#[derive(Debug)]
pub(crate) struct Events {
    events: mpsc::UnboundedSender<(Item, usize)>,
    unread: Arc<AtomicUsize>,
}

impl Events {
    /// Sends an event that came with a line of `bytes`.
    ///
    /// # Errors
    ///
    /// When too many events are unread.
    pub(crate) fn send(&self, event: Event, bytes: usize) -> Result<(), ClaudeCodeError> {
        let unread = self.unread.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unread > MAX_UNREAD_BYTES {
            let message =
                format!("{unread} bytes of the stream are unread, the limit is {MAX_UNREAD_BYTES} bytes");
            return Err(ClaudeCodeError::execution(ExecutionKind::SlowConsumer, message));
        }
        _ = self.events.send((Ok(event), bytes));
        Ok(())
    }

    /// Sends the answer or the error as the last event, regardless of the limit.
    pub(crate) fn end(&self, answer: Result<ResponseWithMetadata, ClaudeCodeError>) {
        _ = self.events.send((answer.map(|answer| Event::Result(Box::new(answer))), 0));
    }
}

impl ResponseStream {
    /// Creates a stream and the sender of its events. `guards` are dropped with the stream, or earlier.
    pub(crate) fn new(signals: Signals, guards: impl Send + Sync + 'static) -> (Events, Self) {
        let (sender, events) = mpsc::unbounded_channel();
        let unread = Arc::<AtomicUsize>::default();
        let stream =
            Self { events, unread: Arc::clone(&unread), driver: None, signals, _guards: Box::new(guards) };
        (Events { events: sender, unread }, stream)
    }

    /// Ties the stream and its driver together: when one ends, so does the other.
    pub(crate) fn driven_by(self, driver: AbortOnDropHandle<()>) -> Self {
        Self { driver: Some(driver), ..self }
    }

    /// The next event; `None` after the last one, once everything is cleaned up.
    ///
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Event, ClaudeCodeError>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Interrupts the request, as a user would. It ends with
    /// [`CliInterrupted`](ClaudeCodeError::CliInterrupted).
    pub fn interrupt(&self) {
        self.signals.interrupt.cancel();
    }

    /// Ends the request at once, like dropping the stream, and waits until everything is cleaned up; this
    /// takes about 2 s at most.
    pub async fn cancel(mut self) {
        self.signals.cancel.cancel();
        while self.next().await.is_some() {}
    }

    /// Reads to the end and returns the answer.
    ///
    /// # Errors
    ///
    /// The error of the request.
    pub async fn finish(mut self) -> Result<ResponseWithMetadata, ClaudeCodeError> {
        let mut answer = None;
        while let Some(event) = self.next().await {
            match event {
                Ok(Event::Result(result)) => answer = Some(Ok(*result)),
                Ok(_) => {}
                Err(error) => answer = Some(Err(error)),
            }
        }
        answer.unwrap_or_else(|| {
            Err(ClaudeCodeError::execution(
                ExecutionKind::Other,
                "the runtime was shut down before the request ended",
            ))
        })
    }
}

impl Stream for ResponseStream {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if let Some((item, bytes)) = ready!(self.events.poll_recv(cx)) {
            self.unread.fetch_sub(bytes, Ordering::Relaxed);
            return Poll::Ready(Some(item));
        }
        if let Some(driver) = &mut self.driver {
            let ended = ready!(Pin::new(driver).poll(cx));
            self.driver = None;
            // Propagate a panic of a user's callback to the caller.
            if let Err(Ok(panic)) = ended.map_err(tokio::task::JoinError::try_into_panic) {
                std::panic::resume_unwind(panic);
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unread_events_are_limited_until_they_are_read() {
        let (events, stream) = ResponseStream::new(Signals::default(), ());
        let driver = tokio::spawn(async move {
            let event = || Event::TextDelta("x".into());
            assert!(events.send(event(), MAX_UNREAD_BYTES).is_ok());
            let error = events.send(event(), 1).unwrap_err();
            assert!(matches!(
                &error,
                ClaudeCodeError::CliExecution { kind: ExecutionKind::SlowConsumer, .. }
            ));
            events.end(Err(error));
        });
        let mut stream = stream.driven_by(AbortOnDropHandle::new(driver));
        assert!(stream.next().await.unwrap().is_ok());
        assert!(stream.next().await.unwrap().is_err());
        assert!(stream.next().await.is_none());
        assert!(stream.next().await.is_none());
        assert_eq!(stream.unread.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    #[should_panic(expected = "the callback's own")]
    async fn a_panic_reaches_the_reader() {
        let (events, stream) = ResponseStream::new(Signals::default(), ());
        let driver = tokio::spawn(async move {
            let _dropped = events;
            panic!("the callback's own")
        });
        stream.driven_by(AbortOnDropHandle::new(driver)).next().await;
    }
}
