//! The Messages API.

use std::any::Any;
use std::env;
use std::fmt;
use std::future::pending;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Body, Frame};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::yield_now;
use tokio::time::sleep;
use toolbridge_claude::{
    ClaudeCodeError, ClaudeCodeModel, ClaudeCodeModelBuilder, Transport, end_all_with_home,
};

use crate::events::{self, Step};
use crate::server::{Request, Response, Server};
use crate::{ModelRequest, Script, Turn, clean_environment};

/// Names the CLI to test with, instead of the one found on this machine.
const CLI: &str = "TOOLBRIDGE_TEST_CLAUDE";

const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
const GARBAGE: &[u8] = b"<!doctype html><title>Welcome</title><p>This is no event stream.";

/// A model on loopback that answers from a script; dropping it closes all its connections, ends the CLIs that
/// models with its home have started, and removes the home.
///
/// The turn depends only on the request: it is the number of answers in its conversation. So several
/// conversations, also of several CLIs, can share a model. A request past the script's end is refused with an
/// error that says so.
///
/// ```
/// use serde_json::json;
/// use toolbridge_testing::{Block, ScriptedModel, Turn};
///
/// let model = ScriptedModel::start_with(|request| match request.turn() {
///     0 => Turn::blocks(vec![Block::call("echo", json!({"text": request.prompt()}))]),
///     _ => Turn::text("done"),
/// });
/// assert!(model.requests().is_empty());
/// ```
pub struct ScriptedModel {
    server: Server,
    mind: Arc<Mind>,
    /// The CLI's home, empty at first.
    home: TempDir,
}

impl ScriptedModel {
    /// Starts a model that answers from a script, given as a [`Script`] or as text.
    ///
    /// # Panics
    ///
    /// If the text is not a valid script, or no port is available.
    #[must_use]
    #[track_caller]
    pub fn start(script: impl Into<Script>) -> Self {
        started(Self::try_start(script.into()))
    }

    /// Like [`start`](Self::start), but returns errors instead of panicking.
    ///
    /// # Errors
    ///
    /// If no port, directory or thread is available.
    pub fn try_start(script: Script) -> io::Result<Self> {
        Self::serve(Box::new(move |request| script.turn(request)))
    }

    /// Starts a model that answers with the result of `answer`. A panic in it becomes an HTTP error 500.
    ///
    /// # Panics
    ///
    /// If no port is available.
    #[must_use]
    #[track_caller]
    pub fn start_with(answer: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Self {
        started(Self::serve(Box::new(move |request| Some(answer(request)))))
    }

    fn serve(answer: Box<Answer>) -> io::Result<Self> {
        let home = TempDir::with_prefix("toolbridge-testing-")?;
        let mind = Arc::new(Mind { answer, requests: Mutex::default(), overruns: AtomicUsize::new(0) });
        let shared = Arc::clone(&mind);
        let server = Server::start(move |request| Arc::clone(&shared).handle(request))?;
        Ok(Self { server, mind, home })
    }

    /// A model that runs the real CLI against this API, with the default settings. It works as long as this
    /// one lives.
    ///
    /// # Errors
    ///
    /// Those of [`ClaudeCodeModelBuilder::build`]. A missing CLI is reported by the first request.
    pub fn model(&self) -> Result<ClaudeCodeModel, ClaudeCodeError> {
        self.builder().build()
    }

    /// A builder for such a model with other settings: the CLI sees only [`environment`](Self::environment)
    /// of the machine.
    ///
    /// The CLI is the one that the variable `TOOLBRIDGE_TEST_CLAUDE` names, otherwise the one that every
    /// model finds. By default, tool calls go over the CLI's stdin and stdout: a test executable cannot be a
    /// bridge.
    ///
    /// ```
    /// # use toolbridge_testing::ScriptedModel;
    /// let scripted = ScriptedModel::start("text Hello.");
    /// let model = scripted.builder().system_prompt("You are a clerk.").max_turns(3).build()?;
    /// # Ok::<(), toolbridge_claude::ClaudeCodeError>(())
    /// ```
    pub fn builder(&self) -> ClaudeCodeModelBuilder {
        let mut builder = ClaudeCodeModel::builder().inherit_env(false).transport(Transport::Sdk);
        if let Some(path) = env::var_os(CLI) {
            builder = builder.cli(path);
        }
        self.environment().into_iter().fold(builder, |builder, (name, value)| builder.env(name, value))
    }

    /// The complete environment for a CLI, or for a program that starts one: a home that is empty at first,
    /// this process's PATH, this model's address, and a fake key.
    ///
    /// To test a whole program from outside, start it with no other variable:
    /// `Command::new(…).env_clear().envs(…)`.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        clean_environment(self.home(), &self.url())
    }

    /// The CLI's home.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The address to give to the CLI as `ANTHROPIC_BASE_URL`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The requests so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.mind.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests past the script's end were refused.
    #[must_use]
    pub fn overruns(&self) -> usize {
        self.mind.overruns.load(Ordering::Relaxed)
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        // The CLI of a stream that was left early may still be ending, and would make the home again.
        end_all_with_home(self.home());
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("url", &self.url()).finish_non_exhaustive()
    }
}

/// Unwraps a model for a test.
#[track_caller]
fn started(model: io::Result<ScriptedModel>) -> ScriptedModel {
    model.unwrap_or_else(|error| panic!("cannot start a model on loopback: {error}"))
}

/// The answer to a request; `None` past the script's end.
type Answer = dyn Fn(&ModelRequest) -> Option<Turn> + Send + Sync;

struct Mind {
    answer: Box<Answer>,
    requests: Mutex<Vec<ModelRequest>>,
    overruns: AtomicUsize,
}

impl Mind {
    async fn handle(self: Arc<Self>, request: Request) -> io::Result<Response> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(io::Error::other)?.to_bytes();
        match (head.method.as_str(), head.uri.path()) {
            ("HEAD" | "GET", _) => json_answer(200, &json!({})),
            ("POST", "/v1/messages/count_tokens") => json_answer(200, &json!({"input_tokens": 1})),
            ("POST", "/v1/messages") => match serde_json::from_slice(&body) {
                Ok(body) => self.answer(ModelRequest { body }).await,
                Err(error) => error_answer(400, &format!("the body is not JSON: {error}")),
            },
            (method, path) => error_answer(404, &format!("there is no `{method} {path}`")),
        }
    }

    async fn answer(&self, request: ModelRequest) -> io::Result<Response> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let stream = request.body["stream"] == true;
        match self.turn(&request) {
            Turn::Blocks(blocks) if stream => event_answer(events::steps(&request, &blocks)),
            Turn::Blocks(blocks) => {
                let (message, duration) = events::message(&request, &blocks);
                sleep(duration).await;
                json_answer(200, &message)
            }
            Turn::Error { status, message } => error_answer(status, &message),
            Turn::Hang => pending().await,
            Turn::Drop if stream => {
                event_answer(vec![Step::Event(events::message_start(&request)), Step::Drop])
            }
            Turn::Drop => Err(io::ErrorKind::ConnectionAborted.into()),
            Turn::Garbage => whole(200, "text/html", GARBAGE),
        }
    }

    fn turn(&self, request: &ModelRequest) -> Turn {
        match catch_unwind(AssertUnwindSafe(|| (self.answer)(request))) {
            Ok(Some(turn)) => turn,
            Ok(None) => {
                self.overruns.fetch_add(1, Ordering::Relaxed);
                Turn::error(400, format!("the script has ended: it has no turn {}", request.turn() + 1))
            }
            Err(panic) => Turn::error(500, format!("the script panicked: {}", panic_text(&*panic))),
        }
    }
}

/// The message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}

fn answer(
    status: u16,
    content_type: &str,
    body: impl Body<Data = Bytes, Error = io::Error> + Send + 'static,
) -> io::Result<Response> {
    let answer = hyper::Response::builder().status(status).header("content-type", content_type);
    answer.body(body.boxed_unsync()).map_err(io::Error::other)
}

fn whole(status: u16, content_type: &str, body: impl Into<Bytes>) -> io::Result<Response> {
    answer(status, content_type, Full::new(body.into()).map_err(|never| match never {}))
}

fn json_answer(status: u16, body: &Value) -> io::Result<Response> {
    whole(status, "application/json", body.to_string())
}

fn error_answer(status: u16, message: &str) -> io::Result<Response> {
    json_answer(status, &events::error(status, message))
}

/// An answer whose events are sent one by one.
fn event_answer(steps: Vec<Step>) -> io::Result<Response> {
    let frames = stream::iter(steps).filter_map(async |step| match step {
        Step::Event(event) => {
            let kind = event["type"].as_str().unwrap_or_default();
            Some(Ok(Frame::data(format!("event: {kind}\ndata: {event}\n\n").into())))
        }
        Step::Sleep(duration) => {
            sleep(duration).await;
            None
        }
        Step::Drop => {
            // Send what was written before.
            yield_now().await;
            Some(Err(io::ErrorKind::ConnectionAborted.into()))
        }
    });
    answer(200, "text/event-stream; charset=utf-8", StreamBody::new(frames))
}
