//! What the tests of this project share.
//!
//! The model is played by [`ScriptedModel`], of `toolbridge-testing`, which users have, too; all of that is here as well. The CLI is the one
//! that [`claude_cli`] finds. A [`Page`] is
//! documentation whose commands a test repeats, with such a model where they need one: `console` has the commands,
//! `world` runs them, and `gap` compares what they print. `inject` has system calls fail. `servers` says where MCP servers
//! of others are, and a [`ControlChannel`] stands where the CLI does. A test that cannot do its work
//! here calls [`say_unchecked`].

mod cli;
mod console;
mod control;
mod gap;
mod inject;
mod page;
mod servers;
mod unchecked;
mod world;

pub use cli::claude_cli;
pub use control::ControlChannel;
pub use gap::shows;
pub use inject::{Run, STAND_IN, by_halves, fail_each_call, fail_every, processes_of};
pub use page::Page;
pub use servers::{everything_server, nats_server, time_server};
pub use toolbridge_testing::{
    Block, ModelRequest, Script, ScriptError, ScriptedModel, ToolResultBlock, Turn, clean_environment,
};
pub use unchecked::say_unchecked;
