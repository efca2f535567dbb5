//! Toolsets from the outside: registration, calls, errors.
#![allow(clippy::unwrap_used, reason = "tests")]

mod call;
mod questions;
mod registration;
