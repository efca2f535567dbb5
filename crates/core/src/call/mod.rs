//! One call, as its handler sees it: its context, its progress and questions, and its trace.

pub(crate) mod clock;
pub(crate) mod context;
pub(crate) mod form;
pub(crate) mod panic;
pub(crate) mod progress;
pub(crate) mod question;
pub mod trace;
