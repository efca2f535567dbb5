//! `ClaudeCodeModel` with the real CLI and a scripted model.

mod changes;
mod cleanup;
mod config;
mod conversation;
mod defaults;
mod faults;
mod filters;
mod history;
mod hooks;
mod killed;
mod options;
mod parked;
mod permissions;
mod questions;
mod readme;
mod requests;
mod restrictions;
mod stored;
mod stream;
mod support;
mod tools;
mod traps;
mod users;
mod versions;
mod warm;
