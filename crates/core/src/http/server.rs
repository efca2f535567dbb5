//! Settings of a server.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::mcp::MAX_CALLS_IN_FLIGHT;
use crate::trace::{Process, Tracer, trace_path};
use crate::{ServerInfo, ToolSource};
use hyper::HeaderMap;
use tokio::net::TcpListener;

use crate::http::auth::Authorizer;
use crate::http::error::HttpError;
use crate::http::origin::AllowedOrigins;
use crate::http::service::McpService;
use crate::http::token_file::TokenFile;

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The number of calls that run at a time.
    pub(crate) running: usize,
    pub(crate) sessions: usize,
    pub(crate) session_idle: Duration,
    pub(crate) connections: usize,
    /// The time for a request's head, and for its body.
    pub(crate) read: Duration,
    /// The time in which a client must read something of a response.
    pub(crate) write: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            running: MAX_CALLS_IN_FLIGHT,
            sessions: 1000,
            session_idle: Duration::from_secs(60 * 60),
            connections: 4096,
            read: Duration::from_secs(60),
            write: Duration::from_secs(60),
        }
    }
}

/// An MCP server over HTTP for the tools of a source. All clients share them: exclusive tools run one at a time over
/// all clients.
///
/// ```
/// # use toolbridge_core as toolbridge;
/// use toolbridge::{NoArgs, Toolset, http};
///
/// let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
/// let service = http::Server::builder(tools).allow_host("tools.example.com").service()?;
/// let app: axum::Router = axum::Router::new().route_service("/mcp", service);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Server {
    pub(crate) source: Arc<dyn ToolSource>,
    pub(crate) info: ServerInfo,
    trace: Option<PathBuf>,
    pub(crate) allowed: AllowedOrigins,
    pub(crate) authorizer: Authorizer,
    pub(crate) has_metrics: bool,
    pub(crate) limits: Limits,
}

impl Server {
    /// A server for the tools of `source`.
    pub fn builder(source: impl ToolSource) -> Self {
        Self {
            source: Arc::new(source),
            info: ServerInfo::default(),
            trace: None,
            allowed: AllowedOrigins::default(),
            authorizer: Authorizer::Anyone,
            has_metrics: false,
            limits: Limits::default(),
        }
    }

    /// Sets how the server introduces itself.
    pub fn info(mut self, info: ServerInfo) -> Self {
        self.info = info;
        self
    }

    /// Writes a trace to a file; without it, `TOOLBRIDGE_TRACE` can name one.
    pub fn trace(mut self, file: impl Into<PathBuf>) -> Self {
        self.trace = Some(file.into());
        self
    }

    /// Allows a host name in the header `Host`: `example.com` with any port, or `example.com:8443`. `localhost`,
    /// 127.0.0.1 and `::1` are always allowed.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.allowed.hosts.push(host.into());
        self
    }

    /// Allows web pages of an origin, such as `https://app.example.com`, to call the server from a browser. Pages
    /// on this machine and on the server's own address are always allowed; requests without an `Origin` are not
    /// affected.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        self.allowed.origins.push(origin.into());
        self
    }

    /// Admits only requests with `Authorization: Bearer` and one of the file's tokens. The file has one token on
    /// each line; lines that begin with `#` are comments. It is read again when it has changed. While it cannot be
    /// used, all requests are refused.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is readable by others, does not belong to this user, or has no token.
    pub fn bearer_tokens_from(mut self, file: impl AsRef<Path>) -> Result<Self, HttpError> {
        self.authorizer = Authorizer::Tokens(TokenFile::open(file.as_ref())?);
        Ok(self)
    }

    /// Admits only requests whose headers `check` accepts. It returns the name of the caller: a session can only be
    /// used by the caller that opened it. The text of its error is sent to the client, with status 401.
    ///
    /// ```
    /// # use toolbridge_core as toolbridge;
    /// # use toolbridge::Toolset;
    /// # let tools = Toolset::builder().build()?;
    /// let server = toolbridge::http::Server::builder(tools).authorize(async |headers| {
    ///     let user = headers.get("x-forwarded-user").and_then(|user| user.to_str().ok());
    ///     user.map(str::to_owned).ok_or("the proxy did not say who you are")
    /// });
    /// # Ok::<(), toolbridge_core::tool::RegistrationError>(())
    /// ```
    pub fn authorize<F, E>(mut self, check: impl Fn(HeaderMap) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Display,
    {
        self.authorizer = Authorizer::own(check);
        self
    }

    /// Lets [`serve`](Self::serve) answer `/metrics` in Prometheus format, to authorized callers.
    pub fn metrics(mut self) -> Self {
        self.has_metrics = true;
        self
    }

    /// The number of calls that run at a time; the default is 512. Further ones wait. When eight times as many run
    /// or wait, more are refused with status 503.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.limits.running = calls.clamp(1, 1 << 20);
        self
    }

    /// The number of sessions at a time; the default is 1,000. A new one replaces the session that has been idle
    /// for longest; if all are in use, it is refused with status 503.
    pub fn max_sessions(mut self, sessions: usize) -> Self {
        self.limits.sessions = sessions.max(1);
        self
    }

    /// How long a session may be idle before it ends; the default is an hour. It is not idle while a call runs or
    /// its stream is open.
    pub fn session_idle(mut self, limit: Duration) -> Self {
        self.limits.session_idle = limit;
        self
    }

    /// The number of connections of [`serve`](Self::serve) at a time; the default is 4,096. Further ones wait.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.limits.connections = connections.clamp(1, 1 << 20);
        self
    }

    /// The time within which a request's head must arrive, and then its body; the default is a minute. The head is
    /// checked by [`serve`](Self::serve), or by the server that you mount the service in.
    pub fn read_timeout(mut self, limit: Duration) -> Self {
        self.limits.read = limit;
        self
    }

    /// The time after which [`serve`](Self::serve) closes a connection whose client reads nothing of its response, or
    /// less than about 170 KB in that time; the default is a minute.
    pub fn write_timeout(mut self, limit: Duration) -> Self {
        self.limits.write = limit;
        self
    }

    /// The server as a tower service, to be mounted in a program that has a server.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn service(self) -> Result<McpService, HttpError> {
        let file = trace_path(self.trace.as_deref());
        let tracer = Tracer::open(Process::Server, file.as_deref()).map_err(HttpError::Trace)?;
        Ok(McpService::new(self, tracer))
    }

    /// Serves at `/mcp` until `until`, as [`McpService::serve`] does.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written, or other machines can reach the listener and requests are not authorized.
    pub async fn serve(
        self,
        listener: TcpListener,
        until: impl Future<Output = ()>,
    ) -> Result<(), HttpError> {
        self.service()?.serve(listener, until).await
    }
}
