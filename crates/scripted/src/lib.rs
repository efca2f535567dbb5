//! A scripted Messages API on loopback: it plays the model for the real CLI in tests.
//!
//! A [`Script`] says what the model answers, turn by turn; a [`ScriptedModel`] serves it and records what the
//! CLI sent. Start the CLI, found by [`claude_cli`], with nothing but [`clean_environment`], so that a run can
//! neither use nor touch anybody's account or settings.
//!
//! ```
//! use toolbridge_scripted::ScriptedModel;
//!
//! let model = ScriptedModel::start(
//!     r#"
//!     text Let me see.
//!     call add {"a": 40, "b": 2}
//!     ---
//!     text The sum is {result}.
//!     "#,
//! );
//! assert!(model.url().starts_with("http://127.0.0.1:"));
//! // Run the CLI against `model.url()`, then look at what the model was sent.
//! assert_eq!(model.requests().len(), 0);
//! assert_eq!(model.overruns(), 0);
//! ```
//!
//! From the outside in: `model` is the API, `script` and `turn` what it says, `request` what it was sent,
//! `events` how an answer is written, `server` what carries it. A [`Page`] is
//! documentation whose commands a test repeats, with such a model where they need one: `console` has the commands,
//! `world` runs them, and `gap` compares what they print. `inject` has system calls fail. `servers` says where MCP servers
//! of others are, and a [`ControlChannel`] stands where the CLI does. A test that cannot do its work
//! here calls [`say_unchecked`].

mod cli;
mod console;
mod control;
mod events;
mod gap;
mod inject;
mod model;
mod page;
mod request;
mod script;
mod server;
mod servers;
mod turn;
mod unchecked;
mod world;

pub use cli::{claude_cli, clean_environment};
pub use control::ControlChannel;
pub use gap::shows;
pub use inject::{Run, STAND_IN, by_halves, fail_each_call, fail_every, processes_of};
pub use model::ScriptedModel;
pub use page::Page;
pub use request::{ModelRequest, ToolResultBlock};
pub use script::{Script, ScriptError};
pub use servers::{everything_server, nats_server, time_server};
pub use turn::{Block, Turn};
pub use unchecked::say_unchecked;
