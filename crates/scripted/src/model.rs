//! The Messages API.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::events::{self, Step};
use crate::http::Request;
use crate::server::{Exchange, Server};
use crate::{ModelRequest, Script, Turn};

const JSON: &str = "application/json";
const GARBAGE: &[u8] = b"<!doctype html><title>Welcome</title><p>This is no event stream.";

/// A model on loopback that answers by a script; dropping it closes all its connections.
///
/// The turn is chosen by each request alone, by the number of answers that it holds. So several
/// conversations, also of several CLIs, can share a model.
///
/// ```
/// use serde_json::json;
/// use toolbridge_scripted::{Block, ScriptedModel, Turn};
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
}

impl ScriptedModel {
    /// Starts a model that answers by a script, given as such or as text.
    ///
    /// # Panics
    ///
    /// If the text is no script, or the system gives no port.
    #[must_use]
    #[track_caller]
    pub fn start(script: impl Into<Script>) -> Self {
        let script = script.into();
        Self::serve(Box::new(move |request| script.turn(request)))
    }

    /// Starts a model that answers with what `answer` returns. A panic in it becomes an HTTP error 500.
    ///
    /// # Panics
    ///
    /// If the system gives no port.
    #[must_use]
    #[track_caller]
    pub fn start_with(answer: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Self {
        Self::serve(Box::new(move |request| Some(answer(request))))
    }

    #[track_caller]
    fn serve(answer: Box<Answer>) -> Self {
        let mind = Arc::new(Mind { answer, requests: Mutex::default(), overruns: AtomicUsize::new(0) });
        let shared = Arc::clone(&mind);
        let server = Server::start(move |request, exchange| shared.handle(request, exchange))
            .unwrap_or_else(|error| panic!("cannot start a model on loopback: {error}"));
        Self { server, mind }
    }

    /// The address to give to the CLI as `ANTHROPIC_BASE_URL`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The requests so far, in the order in which they came.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.mind.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests came past the script's end.
    #[must_use]
    pub fn overruns(&self) -> usize {
        self.mind.overruns.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("url", &self.url()).finish_non_exhaustive()
    }
}

/// The answer to a request; `None` past the script's end.
type Answer = dyn Fn(&ModelRequest) -> Option<Turn> + Send + Sync;

struct Mind {
    answer: Box<Answer>,
    requests: Mutex<Vec<ModelRequest>>,
    overruns: AtomicUsize,
}

impl Mind {
    fn handle(&self, request: &Request, exchange: &mut Exchange<'_>) -> io::Result<()> {
        match (&*request.method, &*request.path) {
            ("HEAD" | "GET", _) => answer_json(exchange, 200, &json!({})),
            ("POST", "/v1/messages/count_tokens") => answer_json(exchange, 200, &json!({"input_tokens": 1})),
            ("POST", "/v1/messages") => match serde_json::from_slice(&request.body) {
                Ok(body) => self.answer(&ModelRequest { body }, exchange),
                Err(error) => answer_error(exchange, 400, &format!("the body is not JSON: {error}")),
            },
            (method, path) => answer_error(exchange, 404, &format!("there is no `{method} {path}`")),
        }
    }

    fn answer(&self, request: &ModelRequest, exchange: &mut Exchange<'_>) -> io::Result<()> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let stream = request.body["stream"] == true;
        match self.turn(request) {
            Turn::Blocks(blocks) if stream => answer_events(exchange, events::steps(request, &blocks)),
            Turn::Blocks(blocks) => {
                let (message, duration) = events::message(request, &blocks);
                exchange.sleep(duration)?;
                answer_json(exchange, 200, &message)
            }
            Turn::Error { status, message } => answer_error(exchange, status, &message),
            Turn::Hang => exchange.hang(),
            Turn::Drop => {
                if stream {
                    start_events(exchange)?;
                    send_event(exchange, &events::message_start(request))?;
                }
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            Turn::Garbage => exchange.answer(200, "text/html", GARBAGE),
        }
    }

    fn turn(&self, request: &ModelRequest) -> Turn {
        match catch_unwind(AssertUnwindSafe(|| (self.answer)(request))) {
            Ok(Some(turn)) => turn,
            Ok(None) => {
                self.overruns.fetch_add(1, Ordering::Relaxed);
                Turn::ended()
            }
            Err(panic) => Turn::error(500, format!("the script panicked: {}", panic_text(&*panic))),
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}

fn answer_json(exchange: &mut Exchange<'_>, status: u16, body: &Value) -> io::Result<()> {
    exchange.answer(status, JSON, body.to_string().as_bytes())
}

fn answer_error(exchange: &mut Exchange<'_>, status: u16, message: &str) -> io::Result<()> {
    answer_json(exchange, status, &events::error(status, message))
}

fn answer_events(exchange: &mut Exchange<'_>, steps: Vec<Step>) -> io::Result<()> {
    start_events(exchange)?;
    for step in steps {
        match step {
            Step::Event(event) => send_event(exchange, &event)?,
            Step::Sleep(duration) => exchange.sleep(duration)?,
        }
    }
    exchange.chunk(b"")
}

fn start_events(exchange: &mut Exchange<'_>) -> io::Result<()> {
    exchange.start_chunks("text/event-stream; charset=utf-8")
}

fn send_event(exchange: &mut Exchange<'_>, event: &Value) -> io::Result<()> {
    let kind = event["type"].as_str().unwrap_or_default();
    exchange.chunk(format!("event: {kind}\ndata: {event}\n\n").as_bytes())
}
