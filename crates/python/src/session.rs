//! A session, for Python.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use toolbridge::ipc;

use crate::error::{exception, invalid, ipc_exception};
use crate::event_loop::EventLoop;
use crate::json::Json;
use crate::log;
use crate::runtime;
use crate::task::Task;
use crate::tools::Offer;

/// Tools of this process on a socket, for an MCP client that somebody else starts.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Session {
    running: Mutex<Option<Arc<ipc::Session>>>,
    event_loop: EventLoop,
    pid: u32,
}

#[pymethods]
impl Session {
    /// Starts a session for what the host offers; its tools are called on its event loop.
    #[new]
    #[pyo3(signature = (host, bridge, directory=None))]
    fn new(
        py: Python<'_>,
        host: &Bound<'_, PyAny>,
        bridge: PathBuf,
        directory: Option<PathBuf>,
    ) -> PyResult<Self> {
        let runtime = runtime::handle(py)?;
        let event_loop: EventLoop = host.extract()?;
        let offer: Offer = host.extract()?;
        log::refresh_threshold(py)?;
        let tools = offer.source(event_loop.clone_ref(py)).map_err(|error| exception(&error))?;
        let tools = tools.ok_or_else(|| invalid("a session needs at least one tool"))?;
        let mut builder = ipc::Session::builder(tools).bridge(bridge);
        if let Some(directory) = directory {
            builder = builder.dir(directory);
        }
        let session =
            py.detach(|| runtime.block_on(builder.start())).map_err(|error| ipc_exception(&error))?;
        let running = Mutex::new(Some(Arc::new(session)));
        Ok(Self { running, event_loop, pid: std::process::id() })
    }

    /// The whole object for `claude --mcp-config`, as JSON.
    fn mcp_config(&self, name: &str) -> PyResult<Json> {
        let session = self.session()?;
        let config = session.mcp_config(name).map_err(|error| ipc_exception(&error))?;
        Ok(Json(config.to_string().into_bytes()))
    }

    /// The socket's path.
    #[getter]
    fn socket_path(&self) -> PyResult<PathBuf> {
        Ok(self.session()?.socket_path().into())
    }

    /// The schema file's path.
    #[getter]
    fn schema_path(&self) -> PyResult<PathBuf> {
        Ok(self.session()?.schema_path().into())
    }

    /// Removes the files and cancels the calls; `done` is told when they have ended.
    fn stop(&self, py: Python<'_>, done: Py<PyAny>) -> PyResult<Task> {
        let session = self.take();
        Task::start(py, self.event_loop.clone_ref(py), done, async move {
            if let Some(session) = session {
                session.stop().await;
            }
            Ok(())
        })
    }

    /// Removes the files and cancels the calls, without waiting for them: for the end of the process.
    fn close(&self, py: Python<'_>) {
        let session = self.take();
        py.detach(|| drop(session));
    }
}

impl Session {
    fn session(&self) -> PyResult<Arc<ipc::Session>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let session = running.as_ref().filter(|_| self.pid == std::process::id());
        session.cloned().ok_or_else(|| {
            invalid("the session has ended, or belongs to the process that this one was forked from")
        })
    }

    fn take(&self) -> Option<Arc<ipc::Session>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.pid != std::process::id() {
            // A child of a fork: the files are the parent's.
            std::mem::forget(running);
            return None;
        }
        running
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.take());
    }
}
