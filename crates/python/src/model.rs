//! The model, for Python.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::oneshot;
use toolbridge::{ClaudeCodeModel, Request};

use crate::chat::Chat;
use crate::config::{ModelConfig, request};
use crate::error::exception;
use crate::event_loop::EventLoop;
use crate::host::Host;
use crate::process::lock;
use crate::stream::Stream;
use crate::task::Task;
use crate::tools::{Live, Offer};
use crate::{json, log, sessions};

/// A model. Each request brings its tools and callbacks along, which belong to the event loop that it came from.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Model {
    config: ModelConfig,
    /// Only locked by threads that are attached to the interpreter, so no fork can happen meanwhile.
    built: Mutex<Built>,
}

/// The model of one process.
struct Built {
    pid: u32,
    model: ClaudeCodeModel,
    /// Closes when the last request has got in line.
    last: Option<oneshot::Receiver<()>>,
}

/// A request's place in line. Threads take up work in any order; requests begin in that in which Python made them.
struct Place {
    before: Option<oneshot::Receiver<()>>,
    behind: oneshot::Sender<()>,
}

impl Place {
    /// Does the work, once that of those before has begun.
    async fn work<T>(self, work: impl Future<Output = T>) -> T {
        if let Some(before) = self.before {
            _ = before.await; // it never says anything
        }
        let (mut work, mut behind) = (pin!(work), Some(self.behind));
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            drop(behind.take());
            polled
        })
        .await
    }
}

impl Built {
    fn new(config: &ModelConfig) -> PyResult<Self> {
        let model = config.clone().build().map_err(|error| exception(&error))?;
        Ok(Self { pid: std::process::id(), model, last: None })
    }
}

#[pymethods]
impl Model {
    /// A model with the settings of a JSON object, which are checked.
    #[new]
    fn new(config: &[u8]) -> PyResult<Self> {
        let config = ModelConfig::parse(config)?;
        let built = Mutex::new(Built::new(&config)?);
        Ok(Self { config, built })
    }

    /// Starts a request. `done` is called on the host's event loop, with the answer as JSON or an exception.
    fn request(
        &self,
        py: Python<'_>,
        request_json: &[u8],
        host: &Bound<'_, PyAny>,
        done: Py<PyAny>,
    ) -> PyResult<Task> {
        let Begun { model, place, request, event_loop, .. } = self.begin(py, request_json, host)?;
        Task::start(py, event_loop, done, async move {
            let answer = place.work(Box::pin(model.request_with_metadata(request))).await;
            answer.map(|answer| json(&answer)).map_err(|error| exception(&error))
        })
    }

    /// Starts a request whose events are wanted as they come. `done` gets a [`Stream`] or an exception.
    fn stream(
        &self,
        py: Python<'_>,
        request_json: &[u8],
        host: &Bound<'_, PyAny>,
        done: Py<PyAny>,
    ) -> PyResult<Task> {
        let Begun { model, place, request, event_loop, .. } = self.begin(py, request_json, host)?;
        let for_stream = event_loop.clone_ref(py);
        Task::start(py, event_loop, done, async move {
            let stream = place.work(Box::pin(model.request_stream(request))).await;
            let stream = stream.map_err(|error| exception(&error))?;
            Ok(Stream::new(stream, for_stream))
        })
    }

    /// Begins a conversation that stays open, like a request but for its prompt. `done` gets a [`Chat`] or an exception.
    fn open(
        &self,
        py: Python<'_>,
        request_json: &[u8],
        host: &Bound<'_, PyAny>,
        done: Py<PyAny>,
    ) -> PyResult<Task> {
        let Begun { model, place, request, tools, event_loop } = self.begin(py, request_json, host)?;
        let for_chat = event_loop.clone_ref(py);
        Task::start(py, event_loop, done, async move {
            let chat = place.work(Box::pin(model.conversation().like(request).open())).await;
            let chat = chat.map_err(|error| exception(&error))?;
            Ok(Chat::new(chat, tools, for_chat))
        })
    }

    /// Keeps so many CLIs started for requests to come. `done` is called on the host's event loop when they are ready.
    fn keep_warm(
        &self,
        py: Python<'_>,
        count: usize,
        host: &Bound<'_, PyAny>,
        done: Py<PyAny>,
    ) -> PyResult<Task> {
        let event_loop: EventLoop = host.extract()?;
        log::refresh_threshold(py)?;
        let model = self.built()?.model.clone();
        Task::start(py, event_loop, done, async move {
            model.keep_warm(count).await.map_err(|error| exception(&error))
        })
    }

    /// Does something with the conversations that the CLI keeps, as a JSON object says; returns JSON.
    fn sessions<'py>(&self, py: Python<'py>, asked: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let model = self.built()?.model.clone();
        let answer = py.detach(|| sessions::answer(&model, asked))?;
        Ok(PyBytes::new(py, &answer))
    }

    /// Interrupts all requests under way, and returns how many.
    fn interrupt(&self) -> PyResult<usize> {
        Ok(self.built()?.model.interrupt())
    }
}

/// A request that can be started.
struct Begun {
    model: ClaudeCodeModel,
    place: Place,
    request: Request,
    tools: Option<Live>,
    event_loop: EventLoop,
}

impl Model {
    /// The model of this process: in a child of a fork, the requests of the parent's are not its own.
    fn built(&self) -> PyResult<MutexGuard<'_, Built>> {
        let mut built = lock(&self.built);
        if built.pid != std::process::id() {
            let own = Built::new(&self.config)?;
            // Whatever thread of the parent's held a part of it is not here to let go of it.
            std::mem::forget(std::mem::replace(&mut *built, own));
        }
        Ok(built)
    }

    fn begin(&self, py: Python<'_>, request_json: &[u8], host: &Bound<'_, PyAny>) -> PyResult<Begun> {
        let event_loop: EventLoop = host.extract()?;
        let (offer, host): (Offer, Host) = (host.extract()?, host.extract()?);
        log::refresh_threshold(py)?;
        let request = request(request_json).and_then(|request| host.give(py, &event_loop, offer, request));
        let (request, tools) = request.map_err(|error| exception(&error))?;
        let mut built = self.built()?;
        let (behind, next) = oneshot::channel();
        let place = Place { before: built.last.replace(next), behind };
        Ok(Begun { model: built.model.clone(), place, request, tools, event_loop })
    }
}
