//! Shared helpers for the tests of this project.
//!
//! The model is a [`ScriptedModel`] of `toolbridge-testing`, which users have too; that crate is re-exported
//! here. The CLI is the one that [`claude_cli`] finds. A [`Page`] is documentation whose commands a test runs
//! again, with such a model where they need one: `console` parses the commands, `world` runs them, and `gap`
//! compares their output. `inject` makes system calls fail. `servers` finds MCP servers of others, and a
//! [`ControlChannel`] replaces the CLI. [`thorough`] says how much of the tests runs. A test that cannot do its work on this machine calls
//! [`report_skipped`].

mod cli;
mod console;
mod control;
mod gap;
mod inject;
mod page;
mod servers;
mod skipped;
mod thorough;
mod world;

pub use cli::claude_cli;
pub use control::ControlChannel;
pub use gap::shows;
pub use inject::{Run, STAND_IN, by_halves, fail_each_call, fail_every, processes_of};
pub use page::Page;
pub use servers::{everything_server, nats_server, time_server};
pub use skipped::report_skipped;
pub use thorough::{one_of, thorough};
pub use toolbridge_testing::{
    Block, ModelRequest, Script, ScriptError, ScriptedModel, ToolResultBlock, Turn, clean_environment,
};
