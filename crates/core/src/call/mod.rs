//! A running call, as its handler and its front see it: context, progress, questions, cancellation, trace.

pub(crate) mod clock;
pub(crate) mod context;
pub(crate) mod form;
pub(crate) mod panic;
pub(crate) mod progress;
pub(crate) mod question;
pub mod trace;

pub use context::{CallContext, States};
pub use progress::{Listener, Progress};
pub use question::{Answer, Asked, Pending, Question};
pub use tokio_util::sync::CancellationToken;
