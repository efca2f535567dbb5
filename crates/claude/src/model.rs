//! The model: the CLI, with tools of this process in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Semaphore;
use toolbridge_core::{CancellationToken, ToolSource, check_server_name};

use crate::builder::{ClaudeCodeModelBuilder, Options};
use crate::offer::ServerTools;
use crate::opaque::Opaque;
use crate::request::Request;
use crate::settings::Settings;
use crate::stream::{ResponseStream, Signals};
use crate::warm::Warm;
use crate::{ClaudeCodeError, ModelResponse, ResponseWithMetadata, Transport};

/// The name under which tools are offered when none is given.
pub const DEFAULT_SERVER_NAME: &str = "tools";

/// A model that runs in the Claude Code CLI. Cloning is cheap; clones are the same model.
///
/// Requests are independent of each other: each has a CLI process and, for tools, a session of its own. The model
/// gets your tools and nothing else: none of the CLI's own, no settings, no files; see
/// [`claude_code`](Self::claude_code).
///
/// ```no_run
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// # mod toolbridge { pub use toolbridge_claude::*; pub use toolbridge_core::*; }
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
    /// Each running CLI has one, where their number is bounded.
    pub(crate) permits: Option<Arc<Semaphore>>,
    pub(crate) warm: Warm,
}

/// The requests under way, so that they can be interrupted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running(Arc<Mutex<HashMap<u64, CancellationToken>>>);

/// A request's place among those under way. Dropping it, or a clone, gives it up.
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
    /// A model with everything as it is by default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A model that is the whole of Claude Code, as `claude` is in a terminal: with its own tools and system prompt,
    /// the user's and the project's settings, memories, skills, hooks and MCP servers, and transcripts on disk.
    ///
    /// Prompts are plain text all the same: [`Settings::expand_prompts`] lets the CLI look into them.
    #[must_use]
    pub fn claude_code() -> Self {
        let settings = Settings::default().claude_code(true);
        Self(Arc::new(Inner { options: Options { settings, ..Options::default() }, ..Inner::default() }))
    }

    /// Starts a model of which more is to be said.
    pub fn builder() -> ClaudeCodeModelBuilder {
        ClaudeCodeModelBuilder::default()
    }

    /// Offers tools to the model, in all requests from now on that bring none of their own
    /// ([`Request::tools`]). They replace those of a former call; requests that are under way keep theirs.
    ///
    /// Clones are the same model: for many users with tools or state of their own, let requests bring them.
    ///
    /// # Errors
    ///
    /// When the CLI would not take a server or tool of that name.
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

    /// Asks the model, and waits for its answer.
    ///
    /// Dropping the future ends the request, with everything that belongs to it.
    ///
    /// # Errors
    ///
    /// Whatever can fail; see [`ClaudeCodeError`].
    pub async fn request(&self, request: impl Into<Request>) -> Result<ModelResponse, ClaudeCodeError> {
        Ok(self.request_with_metadata(request).await?.response)
    }

    /// Asks the model, and returns the answer with its cost, turns, session id and durations.
    ///
    /// # Errors
    ///
    /// Whatever can fail; see [`ClaudeCodeError`].
    pub async fn request_with_metadata(
        &self,
        request: impl Into<Request>,
    ) -> Result<ResponseWithMetadata, ClaudeCodeError> {
        self.start(request.into(), false).await?.finish().await
    }

    /// Asks the model, and returns what happens as it happens. Needs a tokio runtime, and it must go on
    /// running.
    ///
    /// # Errors
    ///
    /// When the request cannot be started. What goes wrong later is the stream's last item.
    pub async fn request_stream(
        &self,
        request: impl Into<Request>,
    ) -> Result<ResponseStream, ClaudeCodeError> {
        self.start(request.into(), true).await
    }

    /// Interrupts all requests that are under way, as a user would, and returns how many. They end with
    /// [`CliInterrupted`](ClaudeCodeError::CliInterrupted).
    ///
    /// [`ResponseStream::interrupt`] is for one of them.
    #[must_use]
    pub fn interrupt(&self) -> usize {
        self.0.running.with(|running| {
            running.values().for_each(CancellationToken::cancel);
            running.len()
        })
    }
}
