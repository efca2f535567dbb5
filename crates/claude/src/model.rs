//! The model: the CLI with tools of this process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use toolbridge_core::ToolSource;
use toolbridge_core::tool::check_server_name;

use crate::builder::{ClaudeCodeModelBuilder, Options};
use crate::opaque::Opaque;
use crate::permit::Permits;
use crate::request::Request;
use crate::settings::Settings;
use crate::stream::{ResponseStream, Signals};
use crate::tools::Source;
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
    /// The tools of requests that have none of their own, the name of their server, and the transport.
    pub(crate) tools: RwLock<Option<(Source, String, Transport)>>,
    pub(crate) running: Running,
    pub(crate) permits: Permits,
    pub(crate) warm: Warm,
}

/// The running requests, so that they can be interrupted.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<Vec<Signals>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, Vec<Signals>> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|signals| !signals.over.is_cancelled());
        running
    }

    pub(crate) fn add(&self) -> Signals {
        let signals = Signals::default();
        self.lock().push(signals.clone());
        signals
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
        let tools: (Source, _, _) = (Opaque(Arc::new(tools)), server_name.to_owned(), transport);
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
        let running = self.0.running.lock();
        running.iter().for_each(|signals| signals.interrupt.cancel());
        running.len()
    }
}
