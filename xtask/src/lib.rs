//! Shared by the development tasks: the project's paths, its executables, and the environments of other
//! languages.
#![allow(clippy::print_stderr, reason = "a command for people")]

pub mod bridge;
#[cfg(test)]
mod compile_errors;
pub mod nats;
pub mod project;
pub mod python;
pub mod wheel;
