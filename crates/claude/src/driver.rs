//! Drives one request: a state machine, and the one loop that owns it.
//!
//! The [`State`]s follow each other in the order in which they are listed; what is not needed is skipped. A result, a
//! failure or the caller ends the request in any of them.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use toolbridge_core::RawJson;
use toolbridge_mcp::{Incoming as _, LineReader, Serving, serve_with};
use tracing::Instrument as _;

use crate::ClaudeCodeError;
use crate::control::{Control, question};
use crate::diagnose::{explain, no_result, not_connected};
use crate::error::ExecutionKind;
use crate::event::{Event, McpServerStatus};
use crate::offer::{Offer, Way};
use crate::outcome::{Asked, answer};
use crate::output::Said;
use crate::permission::Decider;
use crate::process::{Pipes, Process};
use crate::request::OnMessage;
use crate::restriction::Restrictions;
use crate::sdk::SdkServer;
use crate::stderr::Tail;
use crate::stream::{Events, Signals};
use crate::tools::Report;

/// The longest line that is read from the CLI; beyond that memory is worth more.
const MAX_LINE_BYTES: usize = 256 * 1024 * 1024;

/// How often the CLI is asked whether it has connected to our server.
const CONNECTING_AGAIN: Duration = Duration::from_millis(20);

/// How long the CLI has to come to a result after an interrupt, and how often it is told.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);
const INTERRUPT_AGAIN: Duration = Duration::from_millis(500);

/// How long output may still come once the CLI has ended: somebody else may hold the pipe.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// A time-out that is as good as none.
const FOR_EVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// What a request is about.
pub(crate) struct Plan {
    /// What the CLI is told first, as an `initialize` request.
    pub(crate) hello: Value,
    pub(crate) prompt: String,
    /// How long the CLI may not even name our server before it gets the prompt all the same.
    pub(crate) patience: Duration,
    pub(crate) limit: Duration,
    pub(crate) wants_output: bool,
    pub(crate) restrictions: Restrictions,
    /// Tools that are restricted, and that only the CLI knows.
    pub(crate) awaited: Vec<String>,
    pub(crate) decider: Option<Decider>,
    pub(crate) on_message: Option<OnMessage>,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// The CLI has our `initialize` request.
    Greeting,
    /// The CLI is asked until it is connected to our server: without, the model would not know of the tools.
    Connecting { since: Instant },
    /// The CLI has the prompt.
    Asked,
    /// The CLI is told to stop; again and again, because it listens only while it asks the model.
    Interrupted,
    /// The CLI has ended, and the rest of its output may still come.
    Exited { status: Option<ExitStatus>, interrupted: bool },
}

/// Our last question to the CLI.
#[derive(Debug, PartialEq)]
enum Question {
    /// It waits for its answer.
    Open { id: String },
    /// It will be asked again.
    Again { at: Instant },
}

/// How the talk with the CLI came to its end.
pub(crate) enum End {
    /// With a result.
    Result { raw: RawJson, interrupted: bool },
    /// The CLI has gone without one.
    Exit(Option<ExitStatus>),
}

/// A request under way. What it reads of the CLI's output is in `output.rs`.
pub(crate) struct Driver {
    state: State,
    question: Option<Question>,
    deadline: Instant,
    pub(crate) plan: Plan,
    signals: Signals,
    process: Process,
    lines: LineReader<pipe::Receiver>,
    stderr: Tail,
    pub(crate) control: Arc<Control>,
    offer: Option<Offer>,
    pub(crate) sdk: Option<SdkServer>,
    /// What goes on beside reading.
    pub(crate) work: JoinSet<()>,
    /// What tools say of their progress, where anybody wants to know.
    reports: Option<mpsc::Receiver<Report>>,
    pub(crate) events: Events,
    pub(crate) said: Said,
}

impl Driver {
    /// Drives a request whose CLI runs, and waits for its first line.
    pub(crate) fn new(
        plan: Plan,
        (process, pipes): (Process, Pipes),
        offer: Option<Offer>,
        reports: Option<mpsc::Receiver<Report>>,
        signals: Signals,
        events: Events,
    ) -> Self {
        let control = Arc::new(Control::new(pipes.stdin));
        let mut work = JoinSet::new();
        let mut sdk = None;
        if let Some(Offer { server, way: Way::Sdk { source, info, tracer } }) = &offer {
            let (into, incoming, outgoing) = SdkServer::new(server, Arc::clone(&control));
            sdk = Some(into);
            let source = Arc::clone(source);
            let serving = Serving { info: info.clone(), tracer: tracer.clone(), session_id: None };
            let serving = async move {
                _ = serve_with(source, serving, incoming, outgoing).await;
            };
            work.spawn(serving.in_current_span());
        }
        Self {
            state: State::Greeting,
            question: None,
            deadline: Instant::now() + plan.limit.min(FOR_EVER),
            plan,
            signals,
            process,
            lines: LineReader::with_limit(pipes.stdout, MAX_LINE_BYTES),
            stderr: Tail::of(pipes.stderr),
            control,
            offer,
            sdk,
            work,
            reports,
            events,
            said: Said::default(),
        }
    }

    pub(crate) fn server(&self) -> Option<&str> {
        self.offer.as_ref().map(|offer| offer.server.as_str())
    }

    /// Runs the request to its end, whatever that is, and leaves nothing behind.
    pub(crate) async fn drive(mut self) {
        let end = self.until_end().await;
        self.control.close();
        let failure = match end {
            Ok(End::Result { raw, interrupted }) => {
                let asked = Asked { output: self.plan.wants_output, interrupted };
                let answer = answer(&raw, self.said.parts, self.said.model, asked);
                self.events.end(answer.map(|answer| Event::Result(Box::new(answer))));
                end_orderly(&mut self.process, &mut self.lines, &self.signals).await;
                None
            }
            Ok(End::Exit(status)) => Some(no_result(status, &self.stderr.text().await, self.said.unreadable)),
            Err(error) => {
                self.process.end_now().await;
                Some(explain(error, self.offer.as_ref()).await)
            }
        };
        self.work.shutdown().await;
        if let Some(session) = self.offer.as_ref().and_then(Offer::session) {
            session.stop().await;
        }
        if let Some(error) = failure {
            self.events.end(Err(error));
        }
    }

    async fn until_end(&mut self) -> Result<End, ClaudeCodeError> {
        self.ask(&self.plan.hello.clone());
        loop {
            let again = match self.question {
                Some(Question::Again { at }) => Some(at),
                _ => None,
            };
            let is_running = !matches!(self.state, State::Exited { .. });
            tokio::select! {
                // What ends a request comes first: a CLI that never stops talking must not keep it going.
                biased;
                () = self.signals.cancel.cancelled() => return Err(INTERRUPTED),
                () = sleep_until(self.deadline) => return self.deadline_reached(),
                () = self.signals.interrupt.cancelled(), if is_running && self.state != State::Interrupted => {
                    self.interrupt()?;
                }
                Some(()) = reached(again) => self.ask_again(),
                Some(done) = self.work.join_next() => {
                    if let Err(Ok(panic)) = done.map_err(JoinError::try_into_panic) {
                        std::panic::resume_unwind(panic);
                    }
                }
                line = self.lines.next() => match line {
                    Ok(Some(Ok(line))) => {
                        self.pass_reports()?;
                        if let Some(raw) = self.take(&line)? {
                            return Ok(self.result(raw));
                        }
                    }
                    Ok(Some(Err(_))) => return Err(too_much("a line", MAX_LINE_BYTES)),
                    Err(error) => {
                        let reason = format!("reading it failed: {error}");
                        return Err(ClaudeCodeError::CliResponseParse { reason });
                    }
                    Ok(None) => {
                        let status = match timeout(LAST_OUTPUT, self.process.exited()).await {
                            Ok(status) => status,
                            Err(_) => self.process.end_now().await,
                        };
                        return Ok(End::Exit(status));
                    }
                },
                // Behind the lines: a tool that never stops talking must not keep them waiting.
                Some(report) = next_report(self.reports.as_mut()) => {
                    self.events.send(report.event, report.bytes)?;
                }
                status = self.process.exited(), if is_running => {
                    self.state = State::Exited { status, interrupted: self.state == State::Interrupted };
                    self.question = None;
                    self.deadline = self.deadline.min(Instant::now() + LAST_OUTPUT);
                }
            }
        }
    }

    fn result(&self, raw: RawJson) -> End {
        let interrupted = matches!(self.state, State::Interrupted | State::Exited { interrupted: true, .. });
        End::Result { raw, interrupted }
    }

    fn deadline_reached(&mut self) -> Result<End, ClaudeCodeError> {
        let waiting = match (self.state, self.server()) {
            (State::Exited { status, .. }, _) => {
                // Somebody else holds the pipe, so the last line may never end.
                let raw = self.lines.take_rest().map(|line| self.take(&line)).transpose()?.flatten();
                return Ok(raw.map_or(End::Exit(status), |raw| self.result(raw)));
            }
            (State::Interrupted, _) => return Err(INTERRUPTED),
            (State::Connecting { .. }, Some(server)) => {
                format!("; the CLI was still connecting to the tools of server `{server}`")
            }
            _ => String::new(),
        };
        let limit = self.plan.limit;
        let message = format!("no result within {} s{waiting}", limit.as_secs_f64());
        Err(ClaudeCodeError::execution(ExecutionKind::Timeout(limit), message))
    }

    fn interrupt(&mut self) -> Result<(), ClaudeCodeError> {
        // Nothing has been asked, so there is nothing that the CLI could stop.
        if self.state != State::Asked {
            return Err(INTERRUPTED);
        }
        self.state = State::Interrupted;
        self.deadline = self.deadline.min(Instant::now() + INTERRUPT_PATIENCE);
        self.ask_again();
        Ok(())
    }

    /// Asks what the state is about.
    fn ask_again(&mut self) {
        match self.state {
            State::Connecting { .. } => self.ask(&json!({ "subtype": "mcp_status" })),
            State::Interrupted => self.ask(&json!({ "subtype": "interrupt" })),
            State::Greeting | State::Asked | State::Exited { .. } => {}
        }
    }

    fn ask(&mut self, request: &Value) {
        let id = self.control.new_id();
        self.send(question(&id, request));
        self.question = Some(Question::Open { id });
    }

    /// Writes a line; never waits, so that the next one can be read.
    pub(crate) fn send(&mut self, line: String) {
        let control = Arc::clone(&self.control);
        self.work.spawn(async move { _ = control.write(line.as_bytes(), b"", b"").await });
    }

    fn send_prompt(&mut self) {
        self.state = State::Asked;
        let prompt = std::mem::take(&mut self.plan.prompt);
        self.send(prompt);
    }

    /// Takes the CLI's answer to a question of ours.
    pub(crate) fn answered(
        &mut self,
        id: String,
        answer: Result<RawJson, String>,
    ) -> Result<(), ClaudeCodeError> {
        if self.question != Some(Question::Open { id }) {
            return Ok(());
        }
        self.question = None;
        let again = |after| Some(Question::Again { at: Instant::now() + after });
        match (self.state, answer) {
            (State::Greeting, answer) => {
                if let Err(reason) = answer {
                    // Nobody would keep the restrictions, and the model would not have its prompt.
                    if says_something(&self.plan.hello) {
                        let message = format!("the CLI does not take its prompts and restrictions: {reason}");
                        return Err(ClaudeCodeError::execution(ExecutionKind::Start, message));
                    }
                    tracing::debug!(%reason, "the CLI does not initialize");
                }
                if self.offer.is_some() {
                    self.state = State::Connecting { since: Instant::now() };
                    self.ask_again();
                } else {
                    self.send_prompt();
                }
            }
            (State::Connecting { since }, Ok(answer)) => {
                let status = self.server().and_then(|server| server_status(&answer, server));
                match status {
                    Some(status) if status.status == "connected" => self.send_prompt(),
                    Some(status) if status.status == "pending" => self.question = again(CONNECTING_AGAIN),
                    Some(status) => return Err(not_connected(&status)),
                    // Some versions name servers only once they have the prompt; what they say then decides.
                    None if since.elapsed() >= self.plan.patience => self.send_prompt(),
                    None => self.question = again(CONNECTING_AGAIN),
                }
            }
            // An older CLI. It reports the servers when it begins with the prompt.
            (State::Connecting { .. }, Err(_)) => self.send_prompt(),
            (State::Interrupted, Ok(_)) => self.question = again(INTERRUPT_AGAIN),
            (State::Interrupted, Err(_)) | (State::Asked | State::Exited { .. }, _) => {}
        }
        Ok(())
    }

    /// Passes on what tools have said until now, so that it comes before their results.
    fn pass_reports(&mut self) -> Result<(), ClaudeCodeError> {
        let Some(reports) = &mut self.reports else { return Ok(()) };
        for _ in 0..reports.len() {
            let Ok(report) = reports.try_recv() else { break };
            self.events.send(report.event, report.bytes)?;
        }
        Ok(())
    }
}

const INTERRUPTED: ClaudeCodeError = ClaudeCodeError::CliInterrupted { result: None };

/// Has the CLI end after its result. Its output is read on, so that it can end by itself.
async fn end_orderly(process: &mut Process, lines: &mut LineReader<pipe::Receiver>, signals: &Signals) {
    let reading = async {
        while let Ok(Some(_)) = lines.next().await {}
        std::future::pending().await
    };
    let is_cancelled = tokio::select! {
        _ = process.end_orderly() => false,
        () = signals.cancel.cancelled() => true,
        never = reading => never,
    };
    if is_cancelled {
        process.end_now().await;
    }
}

async fn reached(at: Option<Instant>) -> Option<()> {
    sleep_until(at?).await;
    Some(())
}

async fn next_report(reports: Option<&mut mpsc::Receiver<Report>>) -> Option<Report> {
    reports?.recv().await
}

pub(crate) fn too_much(what: &str, limit: usize) -> ClaudeCodeError {
    ClaudeCodeError::CliResponseParse { reason: format!("{what} is over the limit of {limit} bytes") }
}

/// Whether the request depends on what the CLI is told first.
fn says_something(hello: &Value) -> bool {
    hello.as_object().is_some_and(|said| said.len() > 2)
        || hello.get("hooks").is_some_and(|hooks| !hooks.is_null())
}

fn server_status(status: &RawJson, server: &str) -> Option<McpServerStatus> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(rename = "mcpServers")]
        servers: Vec<Value>,
    }
    let status: Status = status.decode().ok()?;
    let ours = status.servers.into_iter().find(|status| status["name"] == server)?;
    serde_json::from_value(ours).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_server_is_found_whatever_is_said_of_others() {
        let status = RawJson::from(&json!({ "mcpServers": [
            { "name": "other", "status": "failed", "error": { "code": 1 } },
            { "name": "tools", "status": "failed", "error": "Connection closed" },
        ] }));
        let ours = server_status(&status, "tools").unwrap();
        assert_eq!(
            not_connected(&ours).to_string(),
            "the tools of server `tools` are not available: the CLI says `failed`: Connection closed"
        );
        assert!(server_status(&status, "nobody").is_none());
    }

    fn driver(events: Events, hello: Value) -> Driver {
        let plan = Plan {
            hello,
            prompt: "{}".into(),
            patience: Duration::ZERO,
            limit: Duration::from_secs(60),
            wants_output: false,
            restrictions: Restrictions::default(),
            awaited: Vec::new(),
            decider: None,
            on_message: None,
        };
        let cli = Process::start(std::process::Command::new("/bin/cat"), None).unwrap();
        Driver::new(plan, cli, None, None, Signals::default(), events)
    }

    #[tokio::test]
    async fn states_follow_each_other_by_the_answers_to_their_own_questions() {
        let mut stream = crate::ResponseStream::start(Signals::default(), (), async |events| {
            let mut driver = driver(events, json!({ "subtype": "initialize", "hooks": null }));
            driver.ask(&driver.plan.hello.clone());
            driver.answered("nobody asked this".into(), Ok(RawJson::empty_object())).unwrap();
            assert_eq!(driver.state, State::Greeting);
            let Some(Question::Open { id }) = &driver.question else { panic!("{:?}", driver.question) };
            driver.answered(id.clone(), Err("no".into())).unwrap();
            assert_eq!((driver.state, &driver.question), (State::Asked, &None));

            driver.interrupt().unwrap();
            assert_eq!(driver.state, State::Interrupted);
            let Some(Question::Open { id }) = &driver.question else { panic!("{:?}", driver.question) };
            driver.answered(id.clone(), Ok(RawJson::empty_object())).unwrap();
            assert!(matches!(driver.question, Some(Question::Again { .. })), "{:?}", driver.question);
            driver.ask_again();
            let Some(Question::Open { id }) = &driver.question else { panic!("{:?}", driver.question) };
            driver.answered(id.clone(), Err("no".into())).unwrap();
            assert_eq!((driver.state, &driver.question), (State::Interrupted, &None));
        });
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn a_hello_that_matters_must_be_taken_and_nothing_is_asked_before() {
        let mut stream = crate::ResponseStream::start(Signals::default(), (), async |events| {
            let mut driver = driver(events, json!({ "subtype": "initialize", "hooks": {} }));
            driver.ask(&driver.plan.hello.clone());
            let error = driver.interrupt().unwrap_err();
            assert!(matches!(error, ClaudeCodeError::CliInterrupted { result: None }), "{error}");
            let Some(Question::Open { id }) = &driver.question else { panic!("{:?}", driver.question) };
            let error = driver.answered(id.clone(), Err("no".into())).unwrap_err();
            assert_eq!(error.to_string(), "the CLI does not take its prompts and restrictions: no");
        });
        assert!(stream.next().await.is_none());
    }
}
