//! What this process and the CLI write to each other, one JSON object per line.

pub(crate) mod control;
pub(crate) mod history;
pub(crate) mod message;
pub(crate) mod outcome;
pub(crate) mod sdk;
