//! Whatever bytes come in, these properties hold.
//!
//! A [`Target`] is a function of bytes that panics when a property does not hold; most compare what the
//! product does with a slow and obvious way to do the same. [`engine`] runs it on the inputs under
//! `fuzz/corpus/` and on what it makes of them. The same seed makes the same inputs.
//!
//! `cargo xtask fuzz` counts which code each input reaches (`coverage.rs`) and goes on from those that reach
//! new code; without that build, from those whose outcome is new.

pub mod corpus;
pub mod engine;
pub mod target;

mod coverage;
mod input;
mod json;
mod mutate;
mod random;

pub use target::{TARGETS, Target};
