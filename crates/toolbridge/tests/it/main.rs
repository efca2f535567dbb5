//! The parts put together: the same call gives the same result through every front, and a program can be
//! its own bridge.
#![allow(clippy::unwrap_used, reason = "tests")]

mod fronts;
mod own_bridge;
