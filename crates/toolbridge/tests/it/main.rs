//! The parts together: the same call gives the same result through every front, a program can be its
//! own bridge, and a model in the real CLI calls tools of this process.
#![allow(clippy::unwrap_used, reason = "tests")]

mod first_steps;
mod fronts;
mod function;
mod model;
mod own_bridge;
mod parked;
mod plugins;
mod questions;
#[cfg(feature = "testing")]
mod testing;
mod trace;
