//! Results that stay in the process: what a model gets, what it can do with it, and what it cannot.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod disk;
mod parked;
