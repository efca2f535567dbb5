//! A running CLI, for one request or for many.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::Session;
use tracing::Instrument as _;

use crate::ClaudeCodeError;
use crate::driver::{Answer, Command, Driver, Turn};
use crate::error::ExecutionKind;
use crate::model::{Permit, Place};
use crate::process::Group;
use crate::stream::{Events, ResponseStream, Signals};
use crate::waits::Waits;

/// A CLI process and its driver task. Dropping it ends both.
pub(crate) struct Cli {
    commands: mpsc::UnboundedSender<Command>,
    driver: AbortOnDropHandle<()>,
    held: Held,
}

impl fmt::Debug for Cli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cli").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

/// The CLI's resources outside this process. Dropping it releases them; no runtime is needed.
pub(crate) struct Held {
    pub(crate) group: Arc<Group>,
    pub(crate) session: Option<Arc<Session>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.group.end();
        // The driver may be doing the same on another thread; this waits until it has finished.
        if let Some(session) = &self.session {
            session.abandon();
        }
    }
}

impl Cli {
    /// Drives a CLI that has been started.
    pub(crate) fn new(
        held: Held,
        permit: Option<Arc<Permit>>,
        driver: impl FnOnce(Waits, mpsc::UnboundedReceiver<Command>) -> Driver,
    ) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let waits = permit.as_ref().map(|permit| permit.waits.clone()).unwrap_or_default();
        let driver = driver(waits, receiver);
        let driving = async move {
            let _permit = permit;
            driver.drive().await;
        };
        let driver = AbortOnDropHandle::new(tokio::spawn(driving.in_current_span()));
        Self { commands, driver, held }
    }

    /// Whether it accepts no more turns; the driver may not have noticed yet.
    pub(crate) fn is_over(&self) -> bool {
        self.commands.is_closed() || self.held.group.has_ended()
    }

    /// Waits until the CLI accepts a prompt.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), ClaudeCodeError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Ready { limit, reply }, answer).await.map(drop)
    }

    /// Sends a request to the CLI over its control channel.
    pub(crate) fn request(&self, request: Value) -> impl Future<Output = Answer> + Send + use<> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Request { request, reply }, answer)
    }

    fn send(
        &self,
        command: Command,
        answer: oneshot::Receiver<Answer>,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let is_sent = self.commands.send(command).is_ok();
        async move {
            if !is_sent {
                return Err(over());
            }
            answer.await.unwrap_or_else(|_| Err(over()))
        }
    }

    /// Makes the CLI answer one prompt and then end.
    pub(crate) fn only(
        self,
        place: Place,
        turn: impl FnOnce(Place, Signals, Events) -> Turn,
    ) -> ResponseStream {
        let signals = place.signals();
        // A dropped request no longer counts as running, even if its driver has not noticed yet.
        let (events, stream) = ResponseStream::new(signals.clone(), (self.held, place.clone()));
        begin(&self.commands, turn(place, signals, events));
        stream.driven_by(self.driver)
    }

    /// Makes the CLI answer a prompt. Dropping the stream interrupts the turn.
    pub(crate) fn turn(
        &self,
        place: Place,
        turn: impl FnOnce(Place, Signals, Events) -> Turn,
    ) -> ResponseStream {
        let Signals { interrupt, .. } = place.signals();
        // Cancelling a turn at once would end the whole CLI, so both signals only interrupt it.
        let outside = Signals { cancel: interrupt.clone(), interrupt: interrupt.clone() };
        let interrupts = interrupt.clone().drop_guard();
        let (events, stream) = ResponseStream::new(outside, (interrupts, place.clone()));
        begin(&self.commands, turn(place, Signals { interrupt, ..Signals::default() }, events));
        stream
    }

    /// Lets the CLI end, and waits until everything is cleaned up.
    pub(crate) async fn close(self) {
        drop(self.commands);
        _ = self.driver.await;
    }
}

fn begin(commands: &mpsc::UnboundedSender<Command>, turn: Turn) {
    if let Err(mpsc::error::SendError(Command::Turn(turn))) = commands.send(Command::Turn(Box::new(turn))) {
        turn.events.end(Err(over()));
    }
}

fn over() -> ClaudeCodeError {
    ClaudeCodeError::execution(ExecutionKind::Exit, "the conversation is over: the CLI has ended")
}
