//! Real NATS servers, and hosts in separate processes.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod access;
mod calls;
mod faults;
mod hosts;
mod support;
