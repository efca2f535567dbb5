//! `ClaudeCodeModel` with the real CLI and a scripted model.

mod cleanup;
mod conversation;
mod faults;
mod killed;
mod permissions;
mod readme;
mod requests;
mod stream;
mod support;
mod tools;
