//! The model: the CLI with tools of this process.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use toolbridge_core::ToolSource;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::tool::check_server_name;

use crate::builder::{ClaudeCodeModelBuilder, Options};
use crate::driver::UNLIMITED;
use crate::offer::ServerTools;
use crate::opaque::Opaque;
use crate::process::diagnose::blocked;
use crate::request::Request;
use crate::settings::Settings;
use crate::stream::{ResponseStream, Signals};
use crate::waits::Waits;
use crate::warm::Warm;
use crate::{ClaudeCodeError, ModelResponse, ResponseWithMetadata, Transport};

/// The name under which tools are offered when none is given.
pub const DEFAULT_SERVER_NAME: &str = "tools";

/// A model that runs in the Claude Code CLI. Cloning is cheap; clones share the same model.
///
/// Requests are independent of each other: each has its own CLI process and, for tools, its own session.
/// The model gets your tools and nothing else: no built-in tools, no settings, no files; see
/// [`claude_code`](Self::claude_code).
///
/// ```no_run
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// # mod toolbridge { pub use toolbridge_claude::{ClaudeCodeModel, Request}; pub use toolbridge_core::Toolset; }
/// use toolbridge::{ClaudeCodeModel, Request, Toolset};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     a: f64,
///     b: f64,
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let tools = Toolset::builder().tool("add", "Adds", async |args: Add| args.a + args.b).build()?;
/// let model = ClaudeCodeModel::new();
/// let answer = model.request(Request::new("What is 40 + 2?").tools(tools)).await?;
/// println!("{}", answer.text());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ClaudeCodeModel(pub(crate) Arc<Inner>);

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) tools: RwLock<Option<ServerTools>>,
    pub(crate) running: Running,
    pub(crate) permits: Permits,
    pub(crate) warm: Warm,
}

/// One for each CLI that may run, except those of conversations, which may stay open for any time.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    free: Arc<Semaphore>,
    most: usize,
    held: Arc<Mutex<Vec<Weak<Permit>>>>,
}

/// The permission to run a CLI, until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    /// The time in which the CLI waits for functions of this process.
    pub(crate) waits: Waits,
    _permit: OwnedSemaphorePermit,
}

impl Default for Permits {
    fn default() -> Self {
        Self::new(2 * std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl Permits {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(most)), most, held: Arc::default() }
    }

    fn held(&self) -> MutexGuard<'_, Vec<Weak<Permit>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, permit: OwnedSemaphorePermit) -> Arc<Permit> {
        let permit = Arc::new(Permit { waits: Waits::default(), _permit: permit });
        let mut held = self.held();
        held.retain(|permit| permit.strong_count() > 0);
        held.push(Arc::downgrade(&permit));
        permit
    }

    /// Takes one that is free.
    pub(crate) fn try_take(&self) -> Option<Arc<Permit>> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(self.hold(permit))
    }

    /// Waits for one.
    ///
    /// # Errors
    ///
    /// When all CLIs that have one have waited for functions of this process for `limit`: one of these may wait for
    /// this, and then none would ever be free.
    pub(crate) async fn take(&self, limit: Duration) -> Result<Arc<Permit>, ClaudeCodeError> {
        let began = Instant::now();
        let mut permit = pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            let now = Instant::now();
            let since = self.all_wait_since().map_or(now, |since| since.max(began));
            let due = since + limit.min(UNLIMITED);
            if due <= now {
                return Err(blocked(self.most, limit));
            }
            // The semaphore is never closed.
            if let Ok(Ok(permit)) = timeout_at(due, permit.as_mut()).await {
                return Ok(self.hold(permit));
            }
        }
    }

    /// Since when all CLIs that have one wait for functions of this process, if they do.
    fn all_wait_since(&self) -> Option<Instant> {
        let held: Vec<_> = self.held().iter().filter_map(Weak::upgrade).collect();
        let since: Vec<_> = held.iter().map(|permit| permit.waits.since()).collect::<Option<_>>()?;
        // One that has just been taken may not be among them yet.
        since.into_iter().max().filter(|_| held.len() == self.most)
    }
}

/// The running requests, so that they can be interrupted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running(Arc<Mutex<HashMap<u64, CancellationToken>>>);

/// A request's entry among the running ones. Dropping it, or a clone, removes the entry.
#[derive(Clone)]
pub(crate) struct Place {
    running: Running,
    key: u64,
    signals: Signals,
}

impl Running {
    fn with<T>(&self, call: impl FnOnce(&mut HashMap<u64, CancellationToken>) -> T) -> T {
        call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(&self) -> Place {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let key = LAST.fetch_add(1, Ordering::Relaxed);
        let signals = Signals::default();
        self.with(|running| running.insert(key, signals.interrupt.clone()));
        Place { running: self.clone(), key, signals }
    }
}

impl Place {
    pub(crate) fn signals(&self) -> Signals {
        self.signals.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.with(|running| running.remove(&self.key));
    }
}

impl ClaudeCodeModel {
    /// A model with default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A model with all of Claude Code, like `claude` in a terminal: with its built-in tools and system
    /// prompt, the user's and the project's settings, memories, skills, hooks and MCP servers, and
    /// transcripts on disk.
    ///
    /// Prompts are still plain text; [`Settings::expand_prompts`] lets the CLI expand them.
    #[must_use]
    pub fn claude_code() -> Self {
        let settings = Settings::default().claude_code(true);
        Self(Arc::new(Inner { options: Options { settings, ..Options::default() }, ..Inner::default() }))
    }

    /// Starts building a model with options.
    pub fn builder() -> ClaudeCodeModelBuilder {
        ClaudeCodeModelBuilder::default()
    }

    /// Sets the tools for all later requests that have no tools of their own ([`Request::tools`]). They
    /// replace those of an earlier call; running requests keep theirs.
    ///
    /// Clones share these tools. To serve many users with different tools or state, set them on the
    /// requests.
    ///
    /// # Errors
    ///
    /// When the CLI would reject the name of the server or of a tool.
    pub fn set_agent_toolsets(
        &self,
        tools: impl ToolSource,
        server_name: &str,
        transport: Transport,
    ) -> Result<(), ClaudeCodeError> {
        check_server_name(server_name, &tools.tools())?;
        let tools = ServerTools { source: Opaque(Arc::new(tools)), server: server_name.into(), transport };
        *self.0.tools.write().unwrap_or_else(PoisonError::into_inner) = Some(tools);
        Ok(())
    }

    /// Sends a request to the model and waits for the answer.
    ///
    /// Dropping the future ends the request and cleans up everything that belongs to it.
    ///
    /// # Errors
    ///
    /// See [`ClaudeCodeError`].
    pub async fn request(&self, request: impl Into<Request>) -> Result<ModelResponse, ClaudeCodeError> {
        Ok(self.request_with_metadata(request).await?.response)
    }

    /// Sends a request to the model and returns the answer with its cost, turns, session id and durations.
    ///
    /// # Errors
    ///
    /// See [`ClaudeCodeError`].
    pub async fn request_with_metadata(
        &self,
        request: impl Into<Request>,
    ) -> Result<ResponseWithMetadata, ClaudeCodeError> {
        self.start(request.into(), false).await?.finish().await
    }

    /// Sends a request to the model and returns a stream of events. Needs a tokio runtime that keeps
    /// running.
    ///
    /// # Errors
    ///
    /// When the request cannot be started. A later failure is the stream's last item.
    pub async fn request_stream(
        &self,
        request: impl Into<Request>,
    ) -> Result<ResponseStream, ClaudeCodeError> {
        self.start(request.into(), true).await
    }

    /// Interrupts all running requests, as a user would, and returns their number. They end with
    /// [`CliInterrupted`](ClaudeCodeError::CliInterrupted).
    ///
    /// Use [`ResponseStream::interrupt`] for a single request.
    #[must_use]
    pub fn interrupt(&self) -> usize {
        self.0.running.with(|running| {
            running.values().for_each(CancellationToken::cancel);
            running.len()
        })
    }
}
