//! One request, from start to end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use toolbridge_core::ToolSource;
use toolbridge_core::trace::Tracer;
use toolbridge_ipc::Session;
use toolbridge_mcp::{Incoming as _, LineReader, ServerInfo, serve_traced};
use tracing::Instrument as _;

use crate::bridge;
use crate::control::Control;
use crate::event::Event;
use crate::model::OnMessage;
use crate::opening::{Opening, Stage};
use crate::permission::Decider;
use crate::process::{Group, Pipes, Process};
use crate::response::{Asked, answer};
use crate::restriction::Restrictions;
use crate::sdk::sdk_server;
use crate::stream::{Events, Signals};
use crate::tail::Tail;
use crate::talk::{Ended, MAX_LINE_BYTES, Talk, no_result};

/// How tools are offered in a request.
pub(crate) enum Offer {
    /// By a bridge that the CLI starts.
    Stdio { server: String, session: Arc<Session> },
    /// Over the control channel.
    Sdk { server: String, source: Arc<dyn ToolSource>, tracer: Tracer },
}

impl Offer {
    fn server(&self) -> &str {
        match self {
            Self::Stdio { server, .. } | Self::Sdk { server, .. } => server,
        }
    }
}

/// What a request has outside of this process. It can be given back by anybody at any time, without a
/// runtime.
pub(crate) struct Held {
    group: Arc<Group>,
    /// Weak: it is the run's, and ends with it.
    session: Weak<Session>,
}

impl Held {
    pub(crate) fn new(process: &Process, offer: Option<&Offer>) -> Self {
        let session = match offer {
            Some(Offer::Stdio { session, .. }) => Arc::downgrade(session),
            Some(Offer::Sdk { .. }) | None => Weak::new(),
        };
        Self { group: process.group(), session }
    }

    pub(crate) fn release(&self) {
        self.group.end();
        if let Some(session) = self.session.upgrade() {
            session.abandon();
        }
    }
}

/// A request that has been made ready: the CLI runs, and waits for its first line.
pub(crate) struct Run {
    pub(crate) process: Process,
    pub(crate) pipes: Pipes,
    pub(crate) offer: Option<Offer>,
    pub(crate) hello: Value,
    pub(crate) patience: Duration,
    pub(crate) prompt: String,
    pub(crate) wants_output: bool,
    pub(crate) limit: Duration,
    pub(crate) signals: Signals,
    pub(crate) restrictions: Restrictions,
    pub(crate) awaited: Vec<String>,
    pub(crate) decider: Option<Decider>,
    pub(crate) on_message: Option<OnMessage>,
}

impl Run {
    /// Runs the request to its end, whatever that is, and leaves nothing behind.
    pub(crate) async fn drive(self, events: Events) {
        let Self { mut process, pipes, offer, signals, .. } = self;
        let control = Arc::new(Control::new(pipes.stdin));
        let stderr = Tail::of(pipes.stderr);
        let mut work = JoinSet::new();

        let mut sdk = None;
        if let Some(Offer::Sdk { server, source, tracer }) = &offer {
            let (into, incoming, outgoing) = sdk_server(server, Arc::clone(&control));
            sdk = Some(into);
            let (source, tracer) = (Arc::clone(source), tracer.clone());
            let serving = async move {
                _ = serve_traced(source, ServerInfo::default(), incoming, outgoing, tracer).await;
                Ok(())
            };
            work.spawn(serving.in_current_span());
        }
        let server = offer.as_ref().map(|offer| offer.server().to_owned());
        let stage = Arc::new(Stage::default());
        let opening = Opening {
            control: Arc::clone(&control),
            server: server.clone(),
            hello: self.hello,
            patience: self.patience,
            stage: Arc::clone(&stage),
        };
        work.spawn(opening.open(self.prompt));

        let mut talk = Talk::new(Arc::clone(&control), sdk, server, stage, work, events);
        talk.restrictions = self.restrictions;
        talk.awaited = self.awaited;
        talk.decider = self.decider;
        talk.on_message = self.on_message;
        let mut lines = LineReader::with_limit(pipes.stdout, MAX_LINE_BYTES);
        let ended = talk.until_result(&mut lines, &mut process, self.limit, &signals).await;

        control.close();
        let failure = match ended {
            Ended::Result { raw, interrupted } => {
                let asked = Asked { output: self.wants_output, interrupted };
                match answer(&raw, std::mem::take(&mut talk.parts), talk.model.take(), asked) {
                    Ok(answer) => talk.events.finish(Event::Result(Box::new(answer))),
                    Err(error) => talk.events.fail(error),
                }
                // Its output is read on, so that it can end by itself.
                let reading = async {
                    while let Ok(Some(_)) = lines.next().await {}
                    std::future::pending::<()>().await;
                };
                let is_cancelled = tokio::select! {
                    _ = process.end_orderly() => false,
                    () = reading => false,
                    () = signals.cancel.cancelled() => true,
                };
                if is_cancelled {
                    process.end_now().await;
                }
                None
            }
            Ended::Exit(status) => Some(no_result(status, &stderr.text().await, talk.unreadable.take())),
            Ended::Failed(error) => {
                process.end_now().await;
                Some(error)
            }
            Ended::ServerFailed(error) => {
                process.end_now().await;
                Some(bridge::explain(error, offer.as_ref()).await)
            }
        };
        talk.work.shutdown().await;
        if let Some(Offer::Stdio { session, .. }) = &offer {
            session.stop().await;
        }
        if let Some(error) = failure {
            talk.events.fail(error);
        }
    }
}
