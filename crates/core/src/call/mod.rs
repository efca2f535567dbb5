//! One call: its context, its progress and questions, and its trace.

pub(crate) mod caller;
pub(crate) mod clock;
pub(crate) mod context;
pub(crate) mod dispatcher;
pub(crate) mod form;
pub(crate) mod panic;
pub(crate) mod progress;
pub(crate) mod question;
pub(crate) mod running;
pub mod trace;
pub(crate) mod turn;
