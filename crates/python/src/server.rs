//! Other MCP servers, for Python.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::prelude::*;
use toolbridge::ToolSource;
use toolbridge::client::McpServerBuilder;
use toolbridge::source::Combined;
use toolbridge::tool::RegistrationError;

use crate::error::{Result, invalid};
use crate::event_loop::EventLoop;
use crate::process::{Own, lock};
use crate::task::Task;

/// Any MCP server, a child process or a URL, whose tools a session offers in addition to its own.
///
/// It is started with the session, restarted if it exits, and stopped with the session. Its calls do not pass
/// through Python.
///
/// Args:
///     command: The command that starts it, searched on the PATH. It communicates over stdin and stdout.
///     args: Its arguments.
///     env: Environment variables in addition to those of this process.
///     cwd: Its working directory.
///     url: Its URL, if it is not a child process. It must support Streamable HTTP.
///     headers: Headers for each request to the URL.
///     bearer: A token for each request, sent as `Authorization: Bearer …`.
///     name: Its name in errors and logs; its command or host by default.
///     prefix: A prefix for its tools' names: with `time`, `now` becomes `time_now`. None by default.
///     `start_timeout`: How many seconds to wait for its first answer; 30 by default.
///
/// Raises:
///     `InvalidRequestError`: If there is neither a command nor a URL, or both.
#[pyclass(frozen, module = "toolbridge")]
pub(crate) struct McpServer {
    server: McpServerBuilder,
    prefix: Option<String>,
}

#[pymethods]
impl McpServer {
    #[new]
    #[pyo3(signature = (
        *,
        command = None,
        args = None,
        env = None,
        cwd = None,
        url = None,
        headers = None,
        bearer = None,
        name = None,
        prefix = None,
        start_timeout = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        command: Option<PathBuf>,
        args: Option<Vec<PathBuf>>,
        env: Option<BTreeMap<String, String>>,
        cwd: Option<PathBuf>,
        url: Option<String>,
        headers: Option<BTreeMap<String, String>>,
        bearer: Option<&str>,
        name: Option<String>,
        prefix: Option<String>,
        start_timeout: Option<f64>,
    ) -> Result<Self> {
        let for_command = args.is_some() || env.is_some() || cwd.is_some();
        let for_url = headers.is_some() || bearer.is_some();
        let mut server: McpServerBuilder = match (command, url) {
            (Some(command), None) if !for_url => {
                let mut server =
                    toolbridge::client::McpServer::command(command).args(args.unwrap_or_default());
                for (name, value) in env.unwrap_or_default() {
                    server = server.env(name, value);
                }
                if let Some(cwd) = cwd {
                    server = server.current_dir(cwd);
                }
                server.into()
            }
            (None, Some(url)) if !for_command => {
                let mut server = toolbridge::client::McpServer::url(url);
                for (name, value) in headers.unwrap_or_default() {
                    server = server.header(name, value);
                }
                if let Some(bearer) = bearer {
                    server = server.bearer(bearer);
                }
                server.into()
            }
            _ => {
                return Err(invalid(
                    "an `McpServer` has either a `command`, perhaps with `args`, `env` and `cwd`, or a `url`, perhaps with \
                     `headers` and `bearer`",
                ));
            }
        };
        if let Some(name) = name {
            server = server.name(name);
        }
        if let Some(seconds) = start_timeout {
            let limit = Duration::try_from_secs_f64(seconds);
            server =
                server.start_timeout(limit.map_err(|error| invalid(format!("`start_timeout`: {error}")))?);
        }
        Ok(Self { server, prefix })
    }

    /// The servers in a file with the format of the CLI's `.mcp.json`; each uses its name as its prefix.
    ///
    /// `${VARIABLE}` and `${VARIABLE:-default}` are expanded in every string.
    ///
    /// Raises:
    ///     `InvalidRequestError`: If the file cannot be read or is invalid.
    #[staticmethod]
    fn from_config(path: PathBuf) -> Result<Vec<Self>> {
        let servers = toolbridge::client::McpServer::from_config(path)?;
        Ok(servers.into_iter().map(|server| Self { prefix: Some(server.prefix()), server }).collect())
    }

    /// The server's name in errors and logs.
    #[getter]
    fn name(&self) -> String {
        self.server.server_name().to_string()
    }

    /// Starts the server; `done` is called with a [`RunningServer`].
    fn start(&self, py: Python<'_>, event_loop: EventLoop, done: Py<PyAny>) -> Result<Task> {
        let (server, prefix) = (self.server.clone(), self.prefix.clone());
        let for_stop = event_loop.clone_ref(py);
        Task::start(py, event_loop, done, async move {
            let server = server.start().await?;
            Ok(RunningServer::new(Running::Server(Arc::new(server)), prefix, for_stop))
        })
    }

    fn __repr__(&self) -> String {
        format!("McpServer(name='{}')", self.name())
    }
}

/// A connection that was started for a session.
#[derive(Clone)]
pub(crate) enum Running {
    Server(Arc<toolbridge::client::McpServer>),
    Nats(Arc<toolbridge::nats::Tools>),
}

/// A running server, or the tools of other machines.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct RunningServer {
    running: Mutex<Own<Running>>,
    prefix: Option<String>,
    event_loop: EventLoop,
}

#[pymethods]
impl RunningServer {
    /// Its current tools, with their prefix.
    #[getter]
    fn tool_names(&self) -> Vec<String> {
        let tools = self.join(Combined::new()).map(|tools| tools.tools()).unwrap_or_default();
        tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Stops the server; `done` is called when it has stopped.
    fn stop(&self, py: Python<'_>, done: Py<PyAny>) -> Result<Task> {
        let running = lock(&self.running).take();
        Task::start(py, self.event_loop.clone_ref(py), done, async move {
            if let Some(Running::Server(server)) = running {
                server.stop().await;
            }
            Ok(())
        })
    }

    /// Releases the server without waiting for it to stop.
    fn close(&self, py: Python<'_>) {
        let running = lock(&self.running).take();
        py.detach(|| drop(running));
    }
}

impl RunningServer {
    pub(crate) fn new(running: Running, prefix: Option<String>, event_loop: EventLoop) -> Self {
        Self { running: Mutex::new(Own::new(running)), prefix, event_loop }
    }

    /// Adds this server's tools after the given ones.
    pub(crate) fn join(&self, tools: Combined) -> std::result::Result<Combined, RegistrationError> {
        let Some(running) = lock(&self.running).get().cloned() else { return Ok(tools) };
        let source: Arc<dyn ToolSource> = match running {
            Running::Server(server) => server,
            Running::Nats(tools) => tools,
        };
        match &self.prefix {
            Some(prefix) => tools.with_prefix(prefix, source),
            None => tools.with(source),
        }
    }
}
