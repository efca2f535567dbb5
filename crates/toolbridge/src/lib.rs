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
//! [`ToolsetBuilder::tool`](toolset::ToolsetBuilder::tool).
//!
//! The names at the root are those of most programs. Everything else is in modules:
//!
//! | | |
//! |---|---|
//! | [`toolset`] | what handlers take and return, and how they are registered |
//! | [`tool`](mod@tool) | tools as data: their specs, calls, results and errors |
//! | [`call`] | what a handler knows of its call, progress and questions |
//! | [`source`] | other sources of tools: some of a source's, several sources as one, your own |
//! | [`ipc`] | sessions: their settings and files, and the bridge's end |
//! | `model` | the CLI as a model: settings, messages, events, permissions, conversations |
//! | `stdio`, [`mcp`], `http` | any source as an MCP server: on stdin and stdout, over any stream of lines, over HTTP |
//! | `client` | other MCP servers as sources |
//! | `nats` | the tools of many machines |
//! | `docs` | manuals and a vault as tools |
//! | `park` | large results stay in the process |
//! | `bridge` | for programs that start a bridge themselves |
//! | [`trace`] | what was called, when, and how long each part took |
//! | `testing` | a script in place of the model |
//!
//! # Features
//!
//! The first three are on by default: what a session and a model need.
//!
//! | feature | |
//! |---|---|
//! | `bridge` | the program is its own bridge ([`run_bridge_if_asked`]), or an MCP server on stdin and stdout (`stdio`) |
//! | `claude` | the program drives the CLI ([`ClaudeCodeModel`], `model`) |
//! | `macros` | functions and methods are tools ([`tool`](macro@tool), [`tools`](macro@tools)) |
//! | `docs`, `park`, `http`, `client`, `nats`, `testing` | the modules of these names |
//! | `schema` | JSON Schemas are checked, those of [`Tool::raw`] and of results |
//! | `otel` | spans of calls are parts of the caller's trace in OpenTelemetry; the program provides the exporter |

#[cfg(feature = "bridge")]
pub mod bridge;
#[cfg(feature = "bridge")]
mod guard;
#[cfg(feature = "bridge")]
pub mod stdio;

#[cfg(feature = "bridge")]
#[doc(inline)]
pub use bridge::run_bridge_if_asked;
pub use schemars;
#[cfg(feature = "claude")]
#[doc(inline)]
pub use toolbridge_claude::{self as model, ClaudeCodeModel, Event, Request};
#[cfg(feature = "client")]
#[doc(inline)]
pub use toolbridge_core::client;
#[cfg(feature = "http")]
#[doc(inline)]
pub use toolbridge_core::http;
#[cfg(feature = "park")]
#[doc(inline)]
pub use toolbridge_core::park;
/// For the code that the macros generate, and for our own crates.
#[doc(hidden)]
pub use toolbridge_core::{__private, set};
#[doc(inline)]
pub use toolbridge_core::{
    CallContext, NoArgs, Session, State, Tool, ToolError, ToolResult, ToolSource, Toolset, call, ipc, mcp,
    source, tool, toolset, trace,
};
#[cfg(feature = "docs")]
#[doc(inline)]
pub use toolbridge_docs as docs;
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
/// # Ok::<(), toolbridge::tool::RegistrationError>(())
/// ```
///
/// # Parameters
///
/// An argument can have any type that implements `Deserialize` and `JsonSchema`; an `Option` may be left out.
/// Its doc comment is its description, and it may have attributes of serde and schemars. The program needs
/// neither crate for that, unless it derives their traits for its own types.
///
/// A parameter whose type implements [`FromContext`](toolset::FromContext) is not sent by the model: a [`CallContext`] (or
/// `&CallContext`), a [`State`], or your own type. The type decides, not its name: an alias works, and so
/// does your own type named `State`. A parameter with a pattern instead of a name, or one that is
/// borrowed, cannot be an argument.
///
/// # What it returns
///
/// Any type that implements [`IntoToolResult`](toolset::IntoToolResult) or serde's `Serialize`, or a `Result` of it whose error is an
/// [`IntoToolError`](toolset::IntoToolError).
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
/// changed. The type gets `into_toolset()`, and its values can be passed to [`ToolsetBuilder::with`](toolset::ToolsetBuilder::with) together
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
/// # Ok::<(), toolbridge::tool::RegistrationError>(())
/// ```
#[cfg(feature = "macros")]
pub use toolbridge_macros::tools;
#[cfg(feature = "nats")]
#[doc(inline)]
pub use toolbridge_nats as nats;
#[cfg(feature = "testing")]
#[doc(inline)]
pub use toolbridge_testing as testing;

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
