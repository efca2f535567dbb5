//! An MCP server as a source of tools, restarted when it ends.

use std::ffi::OsStr;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::{CallContext, CallFuture, Changes, ServerInfo, ToolCall, ToolError, ToolList, ToolSource};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::client::ServerError;
use crate::client::connection::{Connection, failed};
use crate::client::open::{Greeting, Link, open};
use crate::client::process::{Process, exited};
use crate::client::target::{CommandTarget, McpServerBuilder, Target, UrlTarget};

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
/// # mod toolbridge { pub use toolbridge_core::client::*; pub use toolbridge_core::*; }
/// use toolbridge::{Combined, McpServer};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let time = McpServer::command("uvx").args(["mcp-server-time"]).start().await?;
/// let shop = McpServer::url("https://shop.example/mcp").bearer("secret").start().await?;
/// let tools = Combined::new().with(time)?.with_prefix("shop", shop)?;
/// # Ok(()) }
/// ```
///
/// A server that ends is restarted, at once the first time. Pending calls fail then, with the reason; a call
/// that is made in the meantime waits for a moment. Changes of the server's list of tools show as
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
    greeting: Mutex<Greeting>,
    now: watch::Sender<Now>,
    process: Mutex<Running>,
    list: RwLock<ToolList>,
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
        McpServerBuilder::new(CommandTarget::new(program))
    }

    /// A server behind a URL, over Streamable HTTP.
    #[must_use]
    pub fn url(url: impl Into<String>) -> McpServerBuilder<UrlTarget> {
        McpServerBuilder::new(UrlTarget::new(url))
    }

    pub(crate) async fn open(name: Arc<str>, target: Target, timeout: Duration) -> Result<Self, ServerError> {
        let shared = Arc::new(Shared {
            name,
            target,
            timeout,
            greeting: Mutex::new(Greeting::Any),
            now: watch::Sender::new(Now::Starting("it is being started".into())),
            process: Mutex::new(Running::Process(None)),
            list: RwLock::default(),
            changed: watch::Sender::default(),
        });
        let link = match shared.start().await {
            // Some servers exit on any method but `initialize`, or answer it wrongly.
            Err(ServerError::Ended { .. } | ServerError::Protocol { .. })
                if matches!(shared.target, Target::Command(_)) =>
            {
                shared.greet_with(Greeting::Initialize);
                shared.start().await
            }
            started => started,
        }?;
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
        let Now::Up(connection) = &*self.shared.now.borrow() else { return None };
        let said = connection.info()?;
        let name = said.server_info.as_ref().map_or(self.name(), |own| &own.name);
        let mut info = ServerInfo::new(name);
        info.version = said.server_info.as_ref().map_or_else(String::new, |own| own.version.clone());
        info.instructions = said.instructions.as_deref().map(|text| {
            let end =
                (0..=text.len().min(MAX_INSTRUCTIONS_BYTES)).rev().find(|end| text.is_char_boundary(*end));
            text[..end.unwrap_or(0)].to_owned()
        });
        Some(info)
    }

    /// The negotiated MCP version, such as `2025-11-25`; `None` while the server is down.
    #[must_use]
    pub fn protocol_version(&self) -> Option<String> {
        let Now::Up(connection) = &*self.shared.now.borrow() else { return None };
        Some(connection.info()?.protocol_version.to_string())
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
        let running = std::mem::replace(&mut *self.shared.process(), Running::Stopped);
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
        f.debug_struct("McpServer")
            .field("name", &self.name())
            .field("target", &self.shared.target)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn process(&self) -> std::sync::MutexGuard<'_, Running> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn greet_with(&self, greeting: Greeting) {
        *self.greeting.lock().unwrap_or_else(PoisonError::into_inner) = greeting;
    }

    fn tools(&self) -> ToolList {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_tools(&self, list: ToolList) {
        if *self.tools() == *list {
            return;
        }
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
        self.changed.send_replace(());
    }

    async fn start(self: &Arc<Self>) -> Result<Link, ServerError> {
        let greeting = *self.greeting.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut link, list, process) = open(&self.name, &self.target, self.timeout, greeting).await?;
        if let Running::Process(running) = &mut *self.process() {
            *running = process;
        }
        self.greet_with(link.greeting());
        self.set_tools(list);
        let said = link.connection.info();
        let bytes = said.and_then(|said| Some(said.instructions.as_ref()?.len())).unwrap_or(0);
        if bytes > MAX_INSTRUCTIONS_BYTES {
            let (server, limit) = (&*self.name, MAX_INSTRUCTIONS_BYTES);
            tracing::warn!(
                server,
                bytes,
                limit,
                "the server's instructions are longer than the limit, and are cut"
            );
        }
        let (shared, connection) = (Arc::downgrade(self), Arc::clone(&link.connection));
        let changes = Arc::clone(&link.changes);
        link.helpers.spawn(async move {
            loop {
                changes.notified().await;
                let listed = connection.list().await;
                match (shared.upgrade(), listed) {
                    (Some(shared), Ok(list)) => shared.set_tools(list),
                    (_, Err(error)) => {
                        let server = &*connection.server;
                        tracing::warn!(server, %error, "the server's tools have changed and cannot be listed");
                    }
                    (None, _) => return,
                }
            }
        });
        self.now.send_replace(Now::Up(Arc::clone(&link.connection)));
        Ok(link)
    }

    /// Marks the start of a restart.
    fn starting(&self) {
        self.now.send_if_modified(|now| {
            let Now::Down(why) = now else { return false };
            *now = Now::Starting(Arc::clone(why));
            true
        });
    }

    fn down(&self, why: &str) {
        tracing::warn!(server = &*self.name, why, "an MCP server is down, and is started again");
        self.now.send_replace(Now::Down(why.into()));
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
    let mut pauses = Pauses::default();
    loop {
        let since = Instant::now();
        let why = link.ended().await;
        shared.down(&why);
        drop(link);
        let mut up_for = since.elapsed();
        link = loop {
            sleep(pauses.next(up_for)).await;
            up_for = Duration::ZERO;
            shared.starting();
            match shared.start().await {
                Ok(link) => break link,
                Err(error) => shared.down(&error.to_string()),
            }
        };
    }
}

/// The pauses before restarts.
#[derive(Default)]
struct Pauses(Duration);

impl Pauses {
    fn next(&mut self, up_for: Duration) -> Duration {
        if up_for >= STEADY {
            self.0 = Duration::ZERO;
        }
        let pause = self.0;
        self.0 = (2 * pause).clamp(PAUSES[0], PAUSES[1]);
        pause
    }
}

impl ToolSource for McpServer {
    fn tools(&self) -> ToolList {
        self.shared.tools()
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
            loop {
                let connection = self.shared.connection().await?;
                // The server ended before it read the call: retry after the restart.
                if let Some(answer) = connection.call(call.clone(), context.clone()).await {
                    return answer;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_again_and_again_is_started_ever_less_often() {
        let mut pauses = Pauses::default();
        let mut next = |up_for: u64| pauses.next(Duration::from_secs(up_for)).as_millis();
        assert_eq!([next(0), next(1), next(0), next(9)], [0, 50, 100, 200]);
        assert_eq!([next(10), next(0), next(0)], [0, 50, 100]);
        for _ in 0..20 {
            next(0);
        }
        assert_eq!(next(0), 30_000);
    }
}
