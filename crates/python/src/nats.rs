//! Tools of other machines over NATS, for Python.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use toolbridge::nats::{ConnectFiles, Tools};

use crate::error::Result;
use crate::event_loop::EventLoop;
use crate::server::{Running, RunningServer};
use crate::task::Task;

/// Tools that other hosts offer over NATS, for a session or a model in addition to its own.
///
/// Calls go to any host of that name with free capacity, to one host, or to all of them; they bypass Python.
///
/// Args:
///     url: The NATS server and the name: `nats://127.0.0.1:4222/gpu`. `gpu@host-7` is one host, `gpu@*` all of them.
///     `credentials_file`: A credentials file, as `nsc` writes it.
///     `nkey_file`: A file with the seed of an nkey.
///     `root_certificates`: A file with the CA certificates that are trusted for the server.
///     `client_certificate`: The files with this client's certificate and its key.
///     `inbox_prefix`: The prefix of inbox subjects.
///     prefix: A prefix for the tools' names: with `gpu`, `render` becomes `gpu_render`. None by default.
///
/// Raises:
///     `InvalidRequestError`: If the URL has no name.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct NatsTools {
    url: String,
    files: ConnectFiles,
    prefix: Option<String>,
    name: String,
}

#[pymethods]
impl NatsTools {
    #[new]
    #[pyo3(signature = (
        url,
        *,
        credentials_file = None,
        nkey_file = None,
        root_certificates = None,
        client_certificate = None,
        inbox_prefix = None,
        prefix = None,
    ))]
    fn new(
        url: String,
        credentials_file: Option<PathBuf>,
        nkey_file: Option<PathBuf>,
        root_certificates: Option<PathBuf>,
        client_certificate: Option<(PathBuf, PathBuf)>,
        inbox_prefix: Option<String>,
        prefix: Option<String>,
    ) -> Result<Self> {
        // Check the URL now, to report errors early.
        _ = Tools::from_url(&url)?;
        let files = ConnectFiles {
            credentials: credentials_file,
            nkey: nkey_file,
            root_certificates,
            client_certificate,
            inbox_prefix,
        };
        let name = url.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Self { url, files, prefix, name })
    }

    /// The name that the hosts serve.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Connects; `done` is called with a [`RunningServer`].
    fn start(&self, py: Python<'_>, event_loop: EventLoop, done: Py<PyAny>) -> Result<Task> {
        let (tools, files) = (Tools::from_url(&self.url)?, self.files.clone());
        let (prefix, for_stop) = (self.prefix.clone(), event_loop.clone_ref(py));
        Task::start(py, event_loop, done, async move {
            let tools = tools.options(files.options()?).await?;
            Ok(RunningServer::new(Running::Nats(Arc::new(tools)), prefix, for_stop))
        })
    }

    fn __repr__(&self) -> String {
        format!("NatsTools(name='{}')", self.name)
    }
}
