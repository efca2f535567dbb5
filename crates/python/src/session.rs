//! A session, for Python.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use toolbridge::core::set;
use toolbridge::ipc;

use crate::error::{exception, invalid, ipc_exception};
use crate::event_loop::EventLoop;
use crate::process::{Own, lock};
use crate::task::Task;
use crate::tools::Offer;
use crate::{json, log, runtime};

/// Tools of this process on a socket, for an MCP client that another program starts.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Session {
    running: Mutex<Own<Arc<ipc::Session>>>,
    event_loop: EventLoop,
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
        set!(builder: dir = directory);
        let session =
            py.detach(|| runtime.block_on(builder.start())).map_err(|error| ipc_exception(&error))?;
        Ok(Self { running: Mutex::new(Own::new(Arc::new(session))), event_loop })
    }

    /// The whole object for `claude --mcp-config`, as JSON.
    fn mcp_config(&self, name: &str) -> PyResult<Vec<u8>> {
        let config = self.session()?.mcp_config(name).map_err(|error| ipc_exception(&error))?;
        Ok(json(&config))
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
        let session = lock(&self.running).take();
        Task::start(py, self.event_loop.clone_ref(py), done, async move {
            if let Some(session) = session {
                session.stop().await;
            }
            Ok(())
        })
    }

    /// Removes the files and cancels the calls, without waiting for them: for the end of the process.
    fn close(&self, py: Python<'_>) {
        let session = lock(&self.running).take();
        py.detach(|| drop(session));
    }
}

impl Session {
    fn session(&self) -> PyResult<Arc<ipc::Session>> {
        lock(&self.running).get().cloned().ok_or_else(|| {
            invalid("the session has ended, or belongs to the process that this one was forked from")
        })
    }
}
