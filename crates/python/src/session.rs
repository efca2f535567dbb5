//! A session, for Python.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use toolbridge::park::Parked;
use toolbridge::tool::ServerInfo;
use toolbridge::{ToolSource, ipc, set};

use crate::error::{Result, invalid};
use crate::event_loop::EventLoop;
use crate::host::Host;
use crate::process::{Own, lock};
use crate::task::Task;
use crate::tools::ServedTools;
use crate::{json, log, runtime};

/// Serves tools of this process on a socket, for an MCP client that another program starts.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Session {
    running: Mutex<Own<Arc<Running>>>,
    event_loop: EventLoop,
}

struct Running {
    session: ipc::Session,
    tools: ServedTools,
}

#[pymethods]
impl Session {
    /// Starts a session with the host's tools, which are called on its event loop.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    #[pyo3(signature = (host, bridge, directory=None, name=None, names_dir=None, server=None, park=None))]
    fn new(
        py: Python<'_>,
        host: &Bound<'_, PyAny>,
        bridge: PathBuf,
        directory: Option<PathBuf>,
        name: Option<String>,
        names_dir: Option<PathBuf>,
        server: Option<&[u8]>,
        park: Option<usize>,
    ) -> Result<Self> {
        let server = server.map(serde_json::from_slice::<ServerInfo>).transpose();
        let server = server.map_err(|error| invalid(format!("`server` is invalid: {error}")))?;
        let runtime = runtime::handle(py)?;
        let host: Host = host.extract()?;
        log::refresh_threshold(py)?;
        let tools = ServedTools::new(py, &host, host.asker(py))?;
        let source = tools.source();
        let source: Arc<dyn ToolSource> = match park {
            Some(limit) => Arc::new(Parked::new(source)?.limit_chars(limit)),
            None => Arc::new(source),
        };
        let mut builder = ipc::Session::builder(source).bridge(bridge);
        set!(builder: dir = directory, name = name, names_dir = names_dir, info = server);
        let session = py.detach(|| runtime.block_on(builder.start()))?;
        let running = Arc::new(Running { session, tools });
        Ok(Self { running: Mutex::new(Own::new(running)), event_loop: host.event_loop })
    }

    /// Adds a tool and notifies the clients.
    fn add(&self, py: Python<'_>, tool: Py<PyAny>) -> Result<()> {
        Ok(self.running()?.tools.add(py, tool)?)
    }

    /// Removes a tool and notifies the clients. Returns whether it existed.
    fn remove(&self, name: &str) -> Result<bool> {
        Ok(self.running()?.tools.remove(name))
    }

    /// The complete object for `claude --mcp-config`, as JSON.
    fn mcp_config(&self, name: &str) -> Result<Vec<u8>> {
        let config = self.running()?.session.mcp_config(name)?;
        Ok(json(&config))
    }

    /// The socket's path.
    #[getter]
    fn socket_path(&self) -> Result<PathBuf> {
        Ok(self.running()?.session.socket_path().into())
    }

    /// The schema file's path.
    #[getter]
    fn schema_path(&self) -> Result<PathBuf> {
        Ok(self.running()?.session.schema_path().into())
    }

    /// Removes the files and cancels the calls; `done` is called when they have ended.
    fn stop(&self, py: Python<'_>, done: Py<PyAny>) -> Result<Task> {
        let running = lock(&self.running).take();
        Task::start(py, self.event_loop.clone_ref(py), done, async move {
            if let Some(running) = running {
                running.session.stop().await;
            }
            Ok(())
        })
    }

    /// Removes the files and cancels the calls without waiting for them; used when the process exits.
    fn close(&self, py: Python<'_>) {
        let running = lock(&self.running).take();
        py.detach(|| drop(running));
    }
}

impl Session {
    fn running(&self) -> Result<Arc<Running>> {
        lock(&self.running).get().cloned().ok_or_else(|| {
            invalid("the session has ended, or belongs to the process that this one was forked from")
        })
    }
}
