//! Child processes: that they end with this one, and how a guardian is started.

pub mod child;
pub mod guard;
