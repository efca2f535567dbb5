//! The model, for Python.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use toolbridge::claude::ClaudeCodeModelBuilder;
use toolbridge::{ClaudeCodeModel, Request};

use crate::answer::answer_json;
use crate::config::{ModelConfig, request};
use crate::error::exception;
use crate::event_loop::EventLoop;
use crate::host::Host;
use crate::json::Json;
use crate::log;
use crate::stream::Stream;
use crate::task::Task;
use crate::tools::Offer;

/// The settings of a model, and its requests under way.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Model {
    config: ModelConfig,
    /// Only locked by threads that are attached to the interpreter, so no fork can happen meanwhile.
    running: Mutex<Running>,
}

/// The requests under way. Each has a model of its own, because its tools and callbacks belong to the event
/// loop that it came from.
#[derive(Clone)]
struct Running {
    pid: u32,
    last: Arc<AtomicU64>,
    models: Arc<Mutex<HashMap<u64, ClaudeCodeModel>>>,
}

/// A request's place among those under way.
pub(crate) struct Place {
    running: Running,
    key: u64,
}

impl Running {
    fn new() -> Self {
        Self { pid: std::process::id(), last: Arc::default(), models: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, ClaudeCodeModel>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, model: ClaudeCodeModel) -> Place {
        let key = self.last.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(key, model);
        Place { running: self.clone(), key }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Not while it is locked: what ends with the model takes its time, and `interrupt` must not wait for it.
        let model = self.running.lock().remove(&self.key);
        drop(model);
    }
}

#[pymethods]
impl Model {
    /// A model with the settings of a JSON object, which are checked.
    #[new]
    fn new(config: &[u8]) -> PyResult<Self> {
        let config = ModelConfig::parse(config)?;
        config
            .clone()
            .builder()
            .and_then(ClaudeCodeModelBuilder::build)
            .map_err(|error| exception(&error))?;
        Ok(Self { config, running: Mutex::new(Running::new()) })
    }

    /// Starts a request. `done` is called on the host's event loop, with the answer as JSON or an exception.
    fn request(
        &self,
        py: Python<'_>,
        request_json: &[u8],
        host: &Bound<'_, PyAny>,
        done: Py<PyAny>,
    ) -> PyResult<Task> {
        let Begun { model, request, event_loop, place } = self.begin(py, request_json, host)?;
        Task::start(py, event_loop, done, async move {
            let _place = place;
            let answer = model.request_with_metadata(request).await.map_err(|error| exception(&error))?;
            Ok(Json(answer_json(&answer)))
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
        let Begun { model, request, event_loop, place } = self.begin(py, request_json, host)?;
        let for_stream = event_loop.clone_ref(py);
        Task::start(py, event_loop, done, async move {
            let stream = model.request_stream(request).await.map_err(|error| exception(&error))?;
            Ok(Stream::new(stream, place, for_stream))
        })
    }

    /// Interrupts all requests under way, and returns how many.
    fn interrupt(&self) -> usize {
        self.running().lock().values().map(ClaudeCodeModel::interrupt).sum()
    }
}

/// A request that can be started.
struct Begun {
    model: ClaudeCodeModel,
    request: Request,
    event_loop: EventLoop,
    place: Place,
}

impl Model {
    /// The requests of this process: those of a parent, in a child of a fork, are not its own.
    fn running(&self) -> Running {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.pid != std::process::id() {
            std::mem::forget(std::mem::replace(&mut *running, Running::new()));
        }
        running.clone()
    }

    fn begin(&self, py: Python<'_>, request_json: &[u8], host: &Bound<'_, PyAny>) -> PyResult<Begun> {
        let event_loop: EventLoop = host.extract()?;
        let (offer, host): (Offer, Host) = (host.extract()?, host.extract()?);
        log::refresh_threshold(py)?;
        let builder = self.config.clone().builder();
        let model = builder.and_then(|builder| host.model(py, &event_loop, offer, builder));
        let model = model.map_err(|error| exception(&error))?;
        let request = request(request_json).map_err(|error| exception(&error))?;
        let place = self.running().add(model.clone());
        Ok(Begun { model, request, event_loop, place })
    }
}
