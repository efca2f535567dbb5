//! A CLI that runs, for one request or for many.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_ipc::Session;
use tracing::Instrument as _;

use crate::ClaudeCodeError;
use crate::driver::{Answer, Command, Driver, Turn};
use crate::error::ExecutionKind;
use crate::model::Place;
use crate::process::Group;
use crate::stream::{Events, ResponseStream, Signals};

/// A CLI, and its driver on the runtime. Dropping it ends both.
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

/// What a CLI has outside of this process. Dropping it gives it back, without a runtime.
pub(crate) struct Held {
    pub(crate) group: Arc<Group>,
    pub(crate) session: Option<Arc<Session>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.group.end();
        // The driver may be doing the same on another thread; this waits for it.
        if let Some(session) = &self.session {
            session.abandon();
        }
    }
}

impl Cli {
    /// Has a CLI driven that has been started.
    pub(crate) fn new(
        held: Held,
        permit: Option<OwnedSemaphorePermit>,
        driver: impl FnOnce(mpsc::UnboundedReceiver<Command>) -> Driver,
    ) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let driver = driver(receiver);
        let driving = async move {
            let _permit = permit;
            driver.drive().await;
        };
        let driver = AbortOnDropHandle::new(tokio::spawn(driving.in_current_span()));
        Self { commands, driver, held }
    }

    /// Whether it takes no more turns, though its driver may not know it yet.
    pub(crate) fn is_over(&self) -> bool {
        self.commands.is_closed() || self.held.group.has_ended()
    }

    /// Waits until it takes a prompt.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), ClaudeCodeError> {
        let (tell, answer) = oneshot::channel();
        self.tell(Command::Ready { limit, tell }, answer).await.map(drop)
    }

    /// Asks the CLI something over its control channel.
    pub(crate) fn ask(&self, request: Value) -> impl Future<Output = Answer> + Send + use<> {
        let (tell, answer) = oneshot::channel();
        self.tell(Command::Ask { request, tell }, answer)
    }

    fn tell(
        &self,
        command: Command,
        answer: oneshot::Receiver<Answer>,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let is_told = self.commands.send(command).is_ok();
        async move {
            if !is_told {
                return Err(over());
            }
            answer.await.unwrap_or_else(|_| Err(over()))
        }
    }

    /// Makes it answer one prompt, and end.
    pub(crate) fn only(
        self,
        place: Place,
        turn: impl FnOnce(Place, Signals, Events) -> Turn,
    ) -> ResponseStream {
        let signals = place.signals();
        // A request that was given up is not under way, even where its driver has not heard of it yet.
        let (events, stream) = ResponseStream::new(signals.clone(), (self.held, place.clone()));
        begin(&self.commands, turn(place, signals, events));
        stream.driven_by(self.driver)
    }

    /// Has it answer a prompt. Dropping the stream interrupts the turn.
    pub(crate) fn turn(
        &self,
        place: Place,
        turn: impl FnOnce(Place, Signals, Events) -> Turn,
    ) -> ResponseStream {
        let Signals { interrupt, .. } = place.signals();
        // Ending this turn at once would end all of it.
        let outside = Signals { cancel: interrupt.clone(), interrupt: interrupt.clone() };
        let interrupts = interrupt.clone().drop_guard();
        let (events, stream) = ResponseStream::new(outside, (interrupts, place.clone()));
        begin(&self.commands, turn(place, Signals { interrupt, ..Signals::default() }, events));
        stream
    }

    /// Lets it end, and waits until nothing of it is left.
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
