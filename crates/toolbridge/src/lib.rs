//! Lets a model in the Claude Code CLI call functions inside your running process.
//!
//! Register functions, open a [`Session`], and give its MCP config to the CLI. The CLI starts a small
//! bridge process, your own program again, and each call of the model runs **here**, with your
//! connections, caches and state.
//!
//! ```no_run
//! use toolbridge::{Session, Toolset};
//!
//! /// Adds two numbers.
//! #[toolbridge::tool]
//! fn add(a: f64, b: f64) -> f64 {
//!     a + b
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     toolbridge::run_bridge_if_asked(); // the CLI starts this program again, as the bridge
//!     let tools = Toolset::builder().with(add {}).build()?;
//!     let session = Session::start(tools).await?;
//!     println!("claude --mcp-config '{}' --allowedTools mcp__tools", session.mcp_config("tools")?);
//!     tokio::signal::ctrl_c().await?;
//!     Ok(()) // dropping the session removes its files
//! }
//! ```
//!
//! [`ClaudeCodeModel`] does all of that for each request: it starts the CLI, sends the prompt, and stops
//! both.
//!
//! Functions become tools with [`tool`](macro@tool), methods with [`tools`](macro@tools), closures with
//! [`ToolsetBuilder::tool`].
//!
//! | | |
//! |---|---|
//! | tools | [`Toolset`], [`Tool`]; what a handler takes: [`IntoHandler`], [`CallContext`], [`State`]; what it returns: [`IntoToolResult`], [`ToolResult`] |
//! | other sources of tools | [`ToolSource`], [`Combined`], [`Selection`], [`Prefixed`], `Parked`, `Documents`, `McpServer`, `nats::Tools` |
//! | sessions | [`Session`], [`run_bridge_if_asked`], [`serve_stdio`] |
//! | the CLI as a model | [`ClaudeCodeModel`], [`Request`], [`Settings`], [`ModelResponse`], [`Event`] |
//!
//! # Features
//!
//! The first three are on by default: what a session and a model need.
//!
//! | feature | |
//! |---|---|
//! | `bridge` | the program is its own bridge ([`run_bridge_if_asked`]), or any MCP server on stdio ([`serve_stdio`]) |
//! | `claude` | the program drives the CLI ([`ClaudeCodeModel`]) |
//! | `macros` | functions and methods are tools ([`tool`](macro@tool), [`tools`](macro@tools)) |
//! | `docs` | manuals and a vault as tools (`Documents`) |
//! | `park` | large results stay in the process, and a model passes them on by a handle (`Parked`) |
//! | `http` | any source is an MCP server over HTTP: `toolbridge::http` |
//! | `client` | any MCP server, a child process or a URL, is a source of tools (`McpServer`) |
//! | `nats` | the tools of many machines, over NATS: `toolbridge::nats` |
//! | `testing` | a script in place of the model, for tests with the real CLI: `toolbridge::testing` |
//! | `schema` | JSON Schemas are checked, those of [`Tool::raw`] and of results |
//! | `otel` | spans of calls are parts of the caller's trace in OpenTelemetry; the program provides the exporter |

#[cfg(feature = "bridge")]
mod bridge;
#[cfg(feature = "bridge")]
mod guard;
#[cfg(feature = "bridge")]
mod stdio;

#[cfg(feature = "bridge")]
#[doc(hidden)]
pub use bridge::asked_to_attach;
#[cfg(feature = "bridge")]
pub use bridge::{run_attach, run_bridge, run_bridge_if_asked};
#[cfg(feature = "bridge")]
#[doc(hidden)]
pub use guard::run_guard_if_asked;
pub use schemars;
#[cfg(feature = "bridge")]
pub use stdio::{StdioError, StdioServer, ending_signal, serve_stdio, small_runtime};
#[cfg(feature = "claude")]
#[doc(hidden)]
pub use toolbridge_claude as claude;
#[cfg(feature = "claude")]
#[doc(inline)]
pub use toolbridge_claude::{
    AskRequest, Base64Source, Chat, ChatBuilder, ClaudeCodeError, ClaudeCodeModel, ClaudeCodeModelBuilder,
    Conversation, Effort, Event, ExecutionKind, HookCall, HookEvent, HookOutput, Input, McpServerStatus,
    Message, Metadata, ModelResponse, Part, Permission, PermissionDestination, PermissionMode,
    PermissionRequest, PermissionRule, PermissionUpdate, Prompt, Request, ResponseStream,
    ResponseWithMetadata, RuleBehavior, Sandbox, SandboxNetwork, Settings, Skills, Started, Subagent,
    Thinking, ThinkingDisplay, Transport, Usage,
};
#[doc(hidden)]
pub use toolbridge_core as core;
#[cfg(feature = "client")]
#[doc(inline)]
pub use toolbridge_core::client::{
    CommandTarget, ConnectError, McpServer, McpServerBuilder, ServerError, ServerFault, Target, UrlTarget,
};
/// Any source as an MCP server over Streamable HTTP: a service for any server, or a small built-in server.
#[cfg(feature = "http")]
#[doc(inline)]
pub use toolbridge_core::http;
#[doc(hidden)]
pub use toolbridge_core::ipc;
#[doc(inline)]
pub use toolbridge_core::ipc::{
    Attached, BridgeCommand, IpcError, LENGTH_PREFIX_SIZE, MAX_MESSAGE_SIZE, NamedSession,
    SCHEMA_FILE_PREFIX, SOCKET_FILE_PREFIX, SOCKET_FILE_SUFFIX, SOCKET_PERMISSIONS, Session, SessionBuilder,
};
/// Any source as an MCP server, over any byte stream with lines.
#[cfg(feature = "bridge")]
#[doc(inline)]
pub use toolbridge_core::mcp;
#[cfg(feature = "park")]
#[doc(inline)]
pub use toolbridge_core::park::{ParkError, Parked};
#[doc(inline)]
pub use toolbridge_core::{
    Answer, CallContext, CallFuture, CallMeta, Caller, CancellationToken, Changes, Combined, Content,
    FromArguments, FromContext, Hint, IntoHandler, IntoToolError, IntoToolResult, IntoTools, Json, NoArgs,
    Prefixed, Progress, RawJson, RegistrationError, Selection, ServerInfo, State, States, Tool, ToolCall,
    ToolError, ToolList, ToolResult, ToolSource, ToolSpec, Toolset, ToolsetBuilder, hint_of,
};
#[cfg(feature = "docs")]
#[doc(hidden)]
pub use toolbridge_docs as docs;
#[cfg(feature = "docs")]
#[doc(inline)]
pub use toolbridge_docs::{DocsError, Documents, DocumentsBuilder};
/// Turns a function into a tool.
///
/// The tool has the function's name, its doc comment is the description for the model, and its parameters are
/// the arguments. The function itself stays callable. The tool is a struct of the same name: `lookup {}`.
///
/// ```
/// use std::sync::Arc;
/// use toolbridge::{State, Tool, Toolset, tool};
///
/// struct Pool;
///
/// /// Looks an order up.
/// #[tool(read_only, timeout = "5s")]
/// async fn lookup(
///     State(pool): State<Arc<Pool>>,
///     /// The order's number.
///     order: u64,
///     #[serde(default)] with_lines: bool,
/// ) -> Result<String, std::io::Error> {
///     Ok(format!("order {order}"))
/// }
///
/// let tools = Toolset::builder().state(Arc::new(Pool)).with(lookup {}).build()?;
/// let titled = Tool::from(lookup {}).title("Look up"); // to say more about it
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// assert_eq!(lookup(State(Arc::new(Pool)), 17, false).await.unwrap(), "order 17");
/// # });
/// # Ok::<(), toolbridge::RegistrationError>(())
/// ```
///
/// # Parameters
///
/// An argument can have any type that implements `Deserialize` and `JsonSchema`; an `Option` may be left out.
/// Its doc comment is its description, and it may have attributes of serde and schemars. The program needs
/// neither crate for that, unless it derives their traits for its own types.
///
/// A parameter whose type implements [`FromContext`] is not sent by the model: a [`CallContext`] (or
/// `&CallContext`), a [`State`], or your own type. The type decides, not its name: an alias works, and so
/// does your own type named `State`. A parameter with a pattern instead of a name, or one that is
/// borrowed, cannot be an argument.
///
/// # What it returns
///
/// Any type that implements [`IntoToolResult`] or serde's `Serialize`, or a `Result` of it whose error is an
/// [`IntoToolError`].
///
/// A function that is not `async` runs on a thread for blocking work, so it may block.
///
/// # Settings
///
/// | in `#[tool(…)]` | |
/// |---|---|
/// | `name = "…"` | another name than the function's |
/// | `description = "…"` | another description than the doc comment |
/// | `title = "…"` | [`Tool::title`] |
/// | `read_only`, `parallel` | [`Tool::read_only`], [`Tool::parallel`] |
/// | `destructive`, `idempotent`, `open_world` | [`Tool::destructive`] and so on; also `destructive = false` |
/// | `timeout = "5s"` | [`Tool::timeout`], in `ms`, `s` or `min` |
/// | `output = Order` | [`Tool::output`] |
/// | `always_load = false` | [`Tool::always_load`] |
/// | `max_result_chars = 100_000` | [`Tool::max_result_chars`] |
#[cfg(feature = "macros")]
pub use toolbridge_macros::tool;
/// Turns the methods of an `impl` block into tools, which share the value.
///
/// Every method with `&self` becomes one, unless it has `#[tool(skip)]`; see [`tool`](macro@tool) for
/// parameters, results and the settings in `#[tool(…)]`. Functions without `&self`, such as `new`, are not
/// changed. The type gets `into_toolset()`, and its values can be passed to [`ToolsetBuilder::with`] together
/// with other tools.
///
/// ```
/// use std::sync::Mutex;
/// use toolbridge::{CallContext, tools};
///
/// struct Shop {
///     cancelled: Mutex<Vec<u64>>,
/// }
///
/// #[tools]
/// impl Shop {
///     fn new() -> Self {
///         Self { cancelled: Mutex::default() }
///     }
///
///     /// Cancels an order.
///     #[tool(destructive)]
///     async fn cancel(&self, context: CallContext, order: u64) -> Result<String, std::io::Error> {
///         self.note(order);
///         Ok(format!("order {order} is cancelled"))
///     }
///
///     #[tool(skip)]
///     fn note(&self, order: u64) {
///         self.cancelled.lock().unwrap().push(order);
///     }
/// }
///
/// let tools = Shop::new().into_toolset()?;
/// assert_eq!(tools.names(), ["cancel"]);
/// # Ok::<(), toolbridge::RegistrationError>(())
/// ```
#[cfg(feature = "macros")]
pub use toolbridge_macros::tools;
/// A script in place of the model, for tests with the real CLI and without an account.
#[cfg(feature = "testing")]
#[doc(inline)]
pub use toolbridge_testing as testing;

/// The tools of many machines, over NATS: this process as a host of tools, and the tools of all hosts as a source.
#[cfg(feature = "nats")]
#[doc(inline)]
pub use toolbridge_nats as nats;

#[doc(hidden)]
pub use toolbridge_core::__private;

/// The programs of the README and of the user pages are compiled, and run where possible.
#[cfg(all(doctest, feature = "bridge", feature = "macros"))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../USING.md")]
#[doc = include_str!("../SAFETY.md")]
struct Pages;

#[cfg(all(doctest, feature = "docs", feature = "park"))]
#[doc = include_str!("../PARKED.md")]
struct ParkedPage;

#[cfg(all(doctest, feature = "http", feature = "macros"))]
#[doc = include_str!("../HTTP.md")]
struct HttpPage;

#[cfg(all(doctest, feature = "client", feature = "macros"))]
#[doc = include_str!("../SERVERS.md")]
struct ServersPage;

#[cfg(all(doctest, feature = "nats", feature = "macros"))]
#[doc = include_str!("../NATS.md")]
struct NatsPage;

#[cfg(all(doctest, feature = "testing", feature = "macros"))]
#[doc = include_str!("../TESTING.md")]
struct TestingPage;
