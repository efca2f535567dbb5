//! Kept results: what the model gets, and what it can do with it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod disk;
mod parked;
mod work;
