//! The model, for Python.

use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;
use toolbridge::model::{self, Settings, awaited};
use toolbridge::tool::ServerInfo;
use toolbridge::{ClaudeCodeModel, Request, set};

use crate::conversation::Conversation;
use crate::documents::count;
use crate::error::Result;
use crate::event_loop::EventLoop;
use crate::host::{Host, invalid_request};
use crate::process::lock;
use crate::stream::Stream;
use crate::task::Task;
use crate::tools::ServedTools;
use crate::{json, log};

/// A model. Each request has its own tools and callbacks, which belong to the event loop of that request.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Model {
    config: ModelConfig,
    /// Only locked by threads that are attached to the interpreter, so no fork can happen while it is locked.
    built: Mutex<Built>,
}

/// Settings shared by all requests of a model, as JSON from Python.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelConfig {
    settings: Settings,
    /// The executable that is the bridge, and the parent process of a CLI.
    bridge: PathBuf,
    cli: Option<PathBuf>,
    /// The CLI bundled with a Python package; used if no other is found.
    bundled_cli: Option<PathBuf>,
    session_dir: Option<PathBuf>,
    server: Option<ServerInfo>,
    inherit_env: bool,
    max_concurrent_requests: Option<i64>,
    restrictions: Vec<(String, String, Value)>,
}

impl ModelConfig {
    fn build(self) -> Result<ClaudeCodeModel> {
        let most = self.max_concurrent_requests.map(|most| count("max_concurrent_requests", most));
        let mut builder = ClaudeCodeModel::builder()
            .guard(&self.bridge)
            .bridge(self.bridge)
            .inherit_env(self.inherit_env)
            .tool_parameter_restrictions(self.restrictions);
        set! { builder:
            cli = self.cli.or_else(|| bundled_if_needed(self.bundled_cli)),
            max_concurrent_requests = most.transpose()?,
            session_dir = self.session_dir,
            info = self.server,
        }
        Ok(builder.settings(self.settings).build()?)
    }
}

/// The CLI that a model starts if no path is given.
#[pyfunction]
pub(crate) fn find_cli(bundled: Option<PathBuf>) -> Result<PathBuf> {
    Ok(model::find_cli(bundled_if_needed(bundled).as_deref())?)
}

/// The CLI bundled with a Python package, if no other is found.
fn bundled_if_needed(bundled: Option<PathBuf>) -> Option<PathBuf> {
    bundled.filter(|_| model::find_cli(None).is_err())
}

/// The model as built in one process.
struct Built {
    pid: u32,
    model: ClaudeCodeModel,
    /// Closed when the last request has taken its place in the queue.
    last: Option<oneshot::Receiver<()>>,
}

/// A request's place in the queue. Threads may run in any order; requests must start in the order in which
/// Python made them.
struct Place {
    before: Option<oneshot::Receiver<()>>,
    behind: oneshot::Sender<()>,
    /// Whether the request is made by a function that a CLI waits for.
    is_nested: bool,
}

impl Place {
    /// Runs `work` after all earlier requests have started theirs.
    async fn work<T>(self, work: impl Future<Output = T> + Send) -> T {
        if let Some(before) = self.before {
            _ = before.await; // only ever closes, without a value
        }
        let mut work: Pin<Box<dyn Future<Output = T> + Send>> =
            if self.is_nested { Box::pin(awaited(work)) } else { Box::pin(work) };
        let mut behind = Some(self.behind);
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            drop(behind.take());
            polled
        })
        .await
    }
}

impl Built {
    fn new(config: &ModelConfig) -> Result<Self> {
        let model = config.clone().build()?;
        Ok(Self { pid: std::process::id(), model, last: None })
    }
}

#[pymethods]
impl Model {
    /// Creates a model from the settings in a JSON object, which are checked.
    #[new]
    fn new(config: &[u8]) -> Result<Self> {
        let config: ModelConfig =
            serde_json::from_slice(config).map_err(|error| invalid_request("setting", &error))?;
        let built = Mutex::new(Built::new(&config)?);
        Ok(Self { config, built })
    }

    /// Starts a request. `done` is called on the host's event loop with the answer as JSON, or with an
    /// exception.
    fn request(&self, py: Python<'_>, host: &Bound<'_, PyAny>, done: Py<PyAny>) -> Result<Task> {
        let ReadyRequest { model, place, request, event_loop, .. } = self.begin(py, host)?;
        Task::start(py, event_loop, done, async move {
            Ok(json(&place.work(model.request_with_metadata(request)).await?))
        })
    }

    /// Starts a request whose events are streamed. `done` is called with a [`Stream`] or an exception.
    fn stream(&self, py: Python<'_>, host: &Bound<'_, PyAny>, done: Py<PyAny>) -> Result<Task> {
        let ReadyRequest { model, place, request, event_loop, .. } = self.begin(py, host)?;
        let for_stream = event_loop.clone_ref(py);
        Task::start(py, event_loop, done, async move {
            let stream = place.work(model.request_stream(request)).await?;
            Ok(Stream::new(stream, for_stream))
        })
    }

    /// Opens a conversation, from a request without a prompt. `done` is called with a [`Conversation`] or an
    /// exception.
    fn open(&self, py: Python<'_>, host: &Bound<'_, PyAny>, done: Py<PyAny>) -> Result<Task> {
        let ReadyRequest { model, place, request, tools, event_loop } = self.begin(py, host)?;
        let for_conversation = event_loop.clone_ref(py);
        Task::start(py, event_loop, done, async move {
            let conversation = place.work(model.conversation().like(request).open()).await?;
            Ok(Conversation::new(conversation, tools, for_conversation))
        })
    }

    /// Keeps this many CLIs started for later requests. `done` is called on the host's event loop when they
    /// are ready.
    fn keep_warm(
        &self,
        py: Python<'_>,
        count: usize,
        host: &Bound<'_, PyAny>,
        done: Py<PyAny>,
    ) -> Result<Task> {
        let Host { event_loop, .. } = host.extract()?;
        log::refresh_threshold(py)?;
        let model = self.built()?.model.clone();
        Task::start(py, event_loop, done, async move { Ok(model.keep_warm(count).await?) })
    }

    /// Interrupts all running requests, and returns their number.
    fn interrupt(&self) -> Result<usize> {
        Ok(self.built()?.model.interrupt())
    }
}

/// A request that is ready to start.
struct ReadyRequest {
    model: ClaudeCodeModel,
    place: Place,
    request: Request,
    tools: Option<ServedTools>,
    event_loop: EventLoop,
}

impl Model {
    /// The model of this process; after a fork the child builds its own, because the requests are the
    /// parent's.
    fn built(&self) -> Result<MutexGuard<'_, Built>> {
        let mut built = lock(&self.built);
        if built.pid != std::process::id() {
            let own = Built::new(&self.config)?;
            // Leak it: a thread of the parent may have held one of its locks, and does not exist in this
            // process.
            std::mem::forget(std::mem::replace(&mut *built, own));
        }
        Ok(built)
    }

    fn begin(&self, py: Python<'_>, host: &Bound<'_, PyAny>) -> Result<ReadyRequest> {
        let host: Host = host.extract()?;
        log::refresh_threshold(py)?;
        let (request, tools) = host.request(py)?;
        let mut built = self.built()?;
        let (behind, next) = oneshot::channel();
        let place = Place { before: built.last.replace(next), behind, is_nested: host.is_nested };
        let model = built.model.clone();
        Ok(ReadyRequest { model, place, request, tools, event_loop: host.event_loop })
    }
}
