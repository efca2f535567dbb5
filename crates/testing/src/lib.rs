//! Offline tests of programs that use toolbridge: the real CLI, no account, and a script instead of the
//! model.
//!
//! A [`ScriptedModel`] is a Messages API on loopback. It answers as a [`Script`] tells it, turn by turn, and
//! records what the CLI sent. [`ScriptedModel::model`] is a
//! [`ClaudeCodeModel`](toolbridge_claude::ClaudeCodeModel) that talks to it, and has no access to the user's
//! account or settings.
//!
//! ```no_run
//! use toolbridge_claude::Request;
//! use toolbridge_testing::ScriptedModel;
//!
//! # async fn test() -> Result<(), toolbridge_claude::ClaudeCodeError> {
//! let scripted = ScriptedModel::start("text Hello.");
//! let answer = scripted.model()?.request(Request::new("Say hello.")).await?;
//! assert_eq!(answer.text(), "Hello.");
//!
//! let [request] = &scripted.requests()[..] else { panic!("not one request") };
//! assert_eq!(request.prompt(), "Say hello.");
//! assert!(request.tools().is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! From the outside in: `model` is the API, `script` and `turn` are its answers, `request` is what it
//! received, `events` formats answers, `server` is the HTTP server, `environment` is the CLI's environment.

mod environment;
mod events;
mod model;
mod request;
mod script;
mod server;
mod turn;

pub use environment::clean_environment;
pub use model::ScriptedModel;
pub use request::{ModelRequest, ToolResultBlock};
pub use script::{Script, ScriptError};
pub use turn::{Block, Turn};
