//! An MCP server as a source of tools, restarted when it ends.

use std::ffi::OsStr;
use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::ServerPeerInfo;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::client::connection::{Connection, failed};
use crate::client::open::{Greeting, Link, open};
use crate::client::process::{Process, exited};
use crate::client::target::{CommandTarget, McpServerBuilder, Target, UrlTarget};
use crate::client::{ServerError, ServerFault};
use crate::{CallContext, CallFuture, Changes, ServerInfo, ToolCall, ToolError, ToolList, ToolSource};

/// How long a call waits for the next start of a server that is down.
const CALL_PATIENCE: Duration = Duration::from_secs(2);

/// The pause before a restart: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(30)];

/// After this time without an end, the pauses begin from the first one again.
const STEADY: Duration = Duration::from_secs(10);

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
    shared: Arc<Shared>,
    keeper: AbortOnDropHandle<()>,
}

struct Shared {
    name: Arc<str>,
    target: Target,
    timeout: Duration,
    now: watch::Sender<Now>,
    process: Mutex<Running>,
    list: Mutex<ToolList>,
    changed: watch::Sender<()>,
}

/// The server's state.
#[derive(Clone)]
enum Now {
    Up(Arc<Connection>),
    /// A start is under way, which has its own timeout. With the reason of the last end.
    Starting(Arc<str>),
    Down(Arc<str>),
}

/// The server's process, if it has one.
enum Running {
    Process(Option<Process>),
    /// Stopped for good.
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
        let shared = Arc::new(Shared {
            name,
            target,
            timeout,
            now: watch::Sender::new(Now::Starting("it is being started".into())),
            process: Mutex::new(Running::Process(None)),
            list: Mutex::default(),
            changed: watch::Sender::default(),
        });
        let link = match shared.start(Greeting::Any).await {
            // Some servers exit on any method but `initialize`, or answer it wrongly.
            Err(ServerFault::Ended(_) | ServerFault::Protocol(_)) => shared.start(Greeting::Initialize).await,
            started => started,
        };
        let link = link.map_err(|fault| shared.error(fault))?;
        let keeper = AbortOnDropHandle::new(tokio::spawn(keep(Arc::clone(&shared), link)));
        Ok(Self { shared, keeper })
    }

    /// The server's name in errors and logs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The server info; `None` while the server is down. Instructions over 64 KB are cut.
    #[must_use]
    pub fn info(&self) -> Option<ServerInfo> {
        let said = self.peer_info()?;
        let name = said.server_info.as_ref().map_or(self.name(), |own| &own.name);
        let mut info = ServerInfo::new(name);
        info.version = said.server_info.as_ref().map_or_else(String::new, |own| own.version.clone());
        info.instructions.clone_from(&said.instructions);
        Some(info)
    }

    /// The negotiated MCP version, such as `2025-11-25`; `None` while the server is down.
    #[must_use]
    pub fn protocol_version(&self) -> Option<String> {
        Some(self.peer_info()?.protocol_version.to_string())
    }

    fn peer_info(&self) -> Option<Arc<ServerPeerInfo>> {
        let Now::Up(connection) = &*self.shared.now.borrow() else { return None };
        connection.peer.peer_info()
    }

    /// The server's process id, if it has a process that runs.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        match &*self.shared.process() {
            Running::Process(process) => process.as_ref().map(Process::id),
            Running::Stopped => None,
        }
    }

    /// Stops the server and waits until it has ended. Later calls fail.
    pub async fn stop(&self) {
        let running = mem::replace(&mut *self.shared.process(), Running::Stopped);
        self.keeper.abort();
        self.shared.now.send_replace(Now::Down("it was stopped".into()));
        if let Running::Process(Some(process)) = running {
            let mut exit = process.exit();
            drop(process);
            exited(&mut exit).await;
        }
    }
}

impl Drop for McpServer {
    /// Needs no runtime: the keeper task may never run again.
    fn drop(&mut self) {
        *self.shared.process() = Running::Stopped;
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpServer({:?}, {:?})", self.name(), self.shared.target)
    }
}

impl Shared {
    fn process(&self) -> MutexGuard<'_, Running> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> MutexGuard<'_, ToolList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_tools(&self, list: ToolList) {
        let before = mem::replace(&mut *self.list(), list);
        if *before != **self.list() {
            self.changed.send_replace(());
        }
    }

    fn error(&self, fault: ServerFault) -> ServerError {
        ServerError::Start { server: self.name.to_string(), fault }
    }

    async fn start(&self, greeting: Greeting) -> Result<Link, ServerFault> {
        let (link, list, process) = open(&self.name, &self.target, self.timeout, greeting).await?;
        if let Running::Process(running) = &mut *self.process() {
            *running = process;
        }
        self.set_tools(list);
        self.now.send_replace(Now::Up(Arc::clone(&link.connection)));
        Ok(link)
    }

    /// Lists the tools again whenever they change, until the connection ends; returns the reason.
    async fn follow(&self, link: &mut Link) -> Arc<str> {
        let (connection, changes) = (Arc::clone(&link.connection), Arc::clone(&link.changes));
        let mut ended = pin!(link.ended());
        loop {
            let change = async {
                changes.notified().await;
                connection.list().await
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
    async fn connection(&self) -> Result<Arc<Connection>, ToolError> {
        let mut now = self.now.subscribe();
        let is_up = |now: &Now| matches!(now, Now::Up(connection) if !connection.is_over());
        if timeout(CALL_PATIENCE, now.wait_for(is_up)).await.is_err() {
            // Starts that are under way may take longer.
            _ = now.wait_for(|now| !matches!(now, Now::Starting(_))).await;
        }
        let why = match &*now.borrow() {
            Now::Up(connection) if !connection.is_over() => return Ok(Arc::clone(connection)),
            Now::Up(_) => "it has just ended".into(),
            Now::Starting(why) | Now::Down(why) => Arc::clone(why),
        };
        let (server, seconds) = (&self.name, CALL_PATIENCE.as_secs());
        Err(failed(format!("MCP server `{server}` is down, and did not come back within {seconds} s: {why}")))
    }
}

/// Restarts a server whenever it ends.
async fn keep(shared: Arc<Shared>, mut link: Link) {
    let mut pause = None;
    loop {
        let (since, greeting) = (Instant::now(), link.greeting());
        let mut why = shared.follow(&mut link).await;
        drop(link);
        pause = pause.filter(|_| since.elapsed() < STEADY);
        link = loop {
            let server = &*shared.name;
            tracing::warn!(server, why = &*why, "an MCP server is down, and is started again");
            shared.now.send_replace(Now::Down(Arc::clone(&why)));
            sleep(next(&mut pause)).await;
            shared.now.send_replace(Now::Starting(why));
            match shared.start(greeting).await {
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
        self.shared.list().clone()
    }

    fn changes(&self) -> Changes {
        Changes::of(self.shared.changed.subscribe())
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move {
            let tools = self.tools();
            if tools.get(&call.name).is_none() {
                return Err(tools.not_found(call.name));
            }
            match self.shared.connection().await?.call(call.clone(), context.clone()).await {
                Some(outcome) => outcome,
                // The server had just ended. The call did not run, so the next process gets it.
                None => self.shared.connection().await?.call(call, context).await.unwrap_or_else(|| {
                    let server = &self.shared.name;
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
