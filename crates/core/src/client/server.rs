//! An MCP server as a source of tools, restarted when it ends.

use std::ffi::OsStr;
use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::ServerPeerInfo;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::client::connection::{RequestError, ServerConnection, failed};
use crate::client::open::{Link, open};
use crate::client::process::{ServerProcess, exited};
use crate::client::target::{CommandTarget, McpServerBuilder, Target, UrlTarget};
use crate::client::{ServerError, ServerFault};
use crate::tool::lock::lock;
use crate::{CallContext, CallFuture, Changes, ServerInfo, ToolCall, ToolError, ToolList, ToolSource};

/// How long a call waits for the next start of a server that is down.
const CALL_PATIENCE: Duration = Duration::from_secs(2);

/// The pause before a restart: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(30)];

/// After this time without an end, the pauses begin from the first one again.
const STEADY: Duration = Duration::from_secs(10);

/// The limit of a server's instructions, which clients give to their model.
const MAX_INSTRUCTIONS_BYTES: usize = 64 * 1024;

/// Any MCP server as a source of tools: a child process, or a URL.
///
/// ```no_run
/// # use toolbridge_core as toolbridge;
/// use toolbridge::client::McpServer;
/// use toolbridge::source::Combined;
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let time = McpServer::command("uvx").args(["mcp-server-time"]).start().await?;
/// let shop = McpServer::url("https://shop.example/mcp").bearer("secret").start().await?;
/// let tools = Combined::new().with(time)?.with_prefix("shop", shop)?;
/// # Ok(()) }
/// ```
///
/// A server that ends is restarted, at once the first time. Pending calls fail then, with the reason, and are never
/// repeated; a call that is made in the meantime waits for a moment. Changes of the server's list of tools show as
/// [`changes`](ToolSource::changes). Dropping it stops the server: its stdin is closed, and if it does not
/// exit, its process group gets SIGTERM and then SIGKILL.
pub struct McpServer {
    supervisor: Arc<Supervisor>,
    keeper: AbortOnDropHandle<()>,
}

/// Starts a server, and knows its state and its tools.
struct Supervisor {
    name: Arc<str>,
    target: Target,
    timeout: Duration,
    state: watch::Sender<ServerState>,
    list: Mutex<ToolList>,
    changed: watch::Sender<()>,
}

enum ServerState {
    /// Connected; with the server's process, if it has one.
    Up(Arc<ServerConnection>, Option<ServerProcess>),
    /// A start is under way, which has its own timeout. With the reason of the last end.
    Starting(Arc<str>),
    Down(Arc<str>),
    /// For good.
    Stopped,
}

impl McpServer {
    /// A server that is started by a command, which is searched on the PATH. It communicates over stdin and
    /// stdout.
    ///
    /// It inherits the environment of this process; its stderr goes to the log, target `toolbridge::server`.
    #[must_use]
    pub fn command(program: impl AsRef<OsStr>) -> McpServerBuilder<CommandTarget> {
        McpServerBuilder::command(program)
    }

    /// A server behind a URL, over Streamable HTTP.
    #[must_use]
    pub fn url(url: impl Into<String>) -> McpServerBuilder<UrlTarget> {
        McpServerBuilder::url(url.into())
    }

    pub(crate) async fn open(name: Arc<str>, target: Target, timeout: Duration) -> Result<Self, ServerError> {
        let supervisor = Arc::new(Supervisor {
            name,
            target,
            timeout,
            state: watch::Sender::new(ServerState::Starting("it is being started".into())),
            list: Mutex::default(),
            changed: watch::Sender::default(),
        });
        let link = match supervisor.start(true).await {
            // Some servers exit on any method but `initialize`, or answer it wrongly.
            Err(ServerFault::Ended(_) | ServerFault::Protocol(_)) => supervisor.start(false).await,
            started => started,
        };
        let server = || supervisor.name.to_string();
        let link = link.map_err(|fault| ServerError::Start { server: server(), fault })?;
        let keeper = AbortOnDropHandle::new(tokio::spawn(keep(Arc::clone(&supervisor), link)));
        Ok(Self { supervisor, keeper })
    }

    /// The server's name in errors and logs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.supervisor.name
    }

    /// The server info; `None` while the server is down. Instructions over 64 KB are cut.
    #[must_use]
    pub fn info(&self) -> Option<ServerInfo> {
        let peer = self.peer_info()?;
        let own = peer.server_info.as_ref();
        Some(ServerInfo {
            name: own.map_or(self.name(), |own| &own.name).into(),
            version: own.map(|own| own.version.clone()).unwrap_or_default(),
            instructions: peer.instructions.as_ref().map(|text| {
                let limit = text.len().min(MAX_INSTRUCTIONS_BYTES);
                let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
                text[..end].to_owned()
            }),
        })
    }

    /// The negotiated MCP version, such as `2025-11-25`; `None` while the server is down.
    #[must_use]
    pub fn protocol_version(&self) -> Option<String> {
        Some(self.peer_info()?.protocol_version.to_string())
    }

    fn peer_info(&self) -> Option<Arc<ServerPeerInfo>> {
        let ServerState::Up(connection, _) = &*self.supervisor.state.borrow() else { return None };
        connection.peer.peer_info()
    }

    /// The server's process id, if it has a process that runs.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        match &*self.supervisor.state.borrow() {
            ServerState::Up(_, process) => process.as_ref().map(ServerProcess::id),
            _ => None,
        }
    }

    /// Stops the server and waits until it has ended. Later calls fail.
    pub async fn stop(&self) {
        let before = self.supervisor.state.send_replace(ServerState::Stopped);
        self.keeper.abort();
        if let ServerState::Up(_, Some(process)) = before {
            let mut exit = process.exit();
            drop(process);
            exited(&mut exit).await;
        }
    }
}

impl Drop for McpServer {
    /// Needs no runtime: the keeper task may never run again.
    fn drop(&mut self) {
        self.supervisor.state.send_replace(ServerState::Stopped);
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpServer({:?}, {:?})", self.name(), self.supervisor.target)
    }
}

impl Supervisor {
    fn set_tools(&self, list: ToolList) {
        let before = mem::replace(&mut *lock(&self.list), list);
        if *before != **lock(&self.list) {
            self.changed.send_replace(());
        }
    }

    /// Enters a state, unless the server was stopped. The process of the state before is ended.
    fn enter(&self, next: ServerState) {
        self.state.send_if_modified(|state| {
            let is_stopped = matches!(state, ServerState::Stopped);
            if !is_stopped {
                *state = next;
            }
            !is_stopped
        });
    }

    async fn start(&self, discovers: bool) -> Result<Link, ServerFault> {
        let (link, list, process) = open(&self.name, &self.target, self.timeout, discovers).await?;
        let info = link.connection.peer.peer_info();
        let bytes = info.and_then(|info| Some(info.instructions.as_ref()?.len())).unwrap_or(0);
        if bytes > MAX_INSTRUCTIONS_BYTES {
            let (server, limit) = (&*self.name, MAX_INSTRUCTIONS_BYTES);
            tracing::warn!(
                server,
                bytes,
                limit,
                "the server's instructions are longer than the limit, and are cut"
            );
        }
        self.set_tools(list);
        self.enter(ServerState::Up(Arc::clone(&link.connection), process));
        Ok(link)
    }

    /// Lists the tools again whenever they change, until the connection ends; returns the reason.
    async fn follow(&self, link: &mut Link) -> Arc<str> {
        let connection = Arc::clone(&link.connection);
        let mut ended = pin!(link.ended());
        loop {
            let change = async {
                connection.interceptor.tools_changed.notified().await;
                let silent = |_| RequestError::Failed(format!("it did not answer within {:?}", self.timeout));
                timeout(self.timeout, connection.list()).await.map_err(silent)?
            };
            tokio::select! {
                why = &mut ended => return why,
                listed = change => match listed {
                    Ok(list) => self.set_tools(list),
                    Err(error) => {
                        let server = &*self.name;
                        tracing::warn!(server, %error, "the server's tools have changed and cannot be listed");
                    }
                },
            }
        }
    }

    /// The connection, as soon as there is one.
    async fn connection(&self) -> Result<Arc<ServerConnection>, ToolError> {
        let mut state = self.state.subscribe();
        let is_up =
            |state: &ServerState| matches!(state, ServerState::Up(connection, _) if !connection.is_over());
        if timeout(CALL_PATIENCE, state.wait_for(is_up)).await.is_err() {
            // Starts that are under way may take longer.
            _ = state.wait_for(|state| !matches!(state, ServerState::Starting(_))).await;
        }
        let why = match &*state.borrow() {
            ServerState::Up(connection, _) if !connection.is_over() => return Ok(Arc::clone(connection)),
            ServerState::Up(..) => "it has just ended".into(),
            ServerState::Starting(why) | ServerState::Down(why) => Arc::clone(why),
            ServerState::Stopped => "it was stopped".into(),
        };
        let (server, seconds) = (&self.name, CALL_PATIENCE.as_secs());
        Err(failed(format!("MCP server `{server}` is down, and did not come back within {seconds} s: {why}")))
    }
}

/// Restarts a server whenever it ends.
async fn keep(supervisor: Arc<Supervisor>, mut link: Link) {
    let mut pause = None;
    loop {
        let (since, discovers) = (Instant::now(), link.discovers());
        let mut why = supervisor.follow(&mut link).await;
        drop(link);
        pause = pause.filter(|_| since.elapsed() < STEADY);
        link = loop {
            let server = &*supervisor.name;
            tracing::warn!(server, why = &*why, "an MCP server is down, and is started again");
            supervisor.enter(ServerState::Down(Arc::clone(&why)));
            sleep(next(&mut pause)).await;
            supervisor.enter(ServerState::Starting(why));
            match supervisor.start(discovers).await {
                Ok(link) => break link,
                Err(error) => why = error.to_string().into(),
            }
        };
    }
}

/// The pause before the next restart, after the last one, if there was one lately.
fn next(pause: &mut Option<Duration>) -> Duration {
    *pause.insert(pause.map_or(Duration::ZERO, |last| (2 * last).clamp(PAUSES[0], PAUSES[1])))
}

impl ToolSource for McpServer {
    fn tools(&self) -> ToolList {
        lock(&self.supervisor.list).clone()
    }

    fn changes(&self) -> Changes {
        Changes::of(self.supervisor.changed.subscribe())
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move {
            let tools = self.tools();
            if tools.get(&call.name).is_none() {
                return Err(tools.not_found(call.name));
            }
            match self.supervisor.connection().await?.call(call.clone(), context.clone()).await {
                Some(outcome) => outcome,
                // The server had just ended. The call did not run, so the next process gets it.
                None => self.supervisor.connection().await?.call(call, context).await.unwrap_or_else(|| {
                    let server = &self.supervisor.name;
                    Err(failed(format!(
                        "MCP server `{server}` ends before it can be called; the call did not run"
                    )))
                }),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_again_and_again_is_started_ever_less_often() {
        let mut pause = None;
        assert_eq!([(); 4].map(|()| next(&mut pause).as_millis()), [0, 50, 100, 200]);
        for _ in 0..20 {
            next(&mut pause);
        }
        assert_eq!(next(&mut pause).as_secs(), 30);
    }
}
