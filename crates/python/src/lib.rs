//! `toolbridge._native`: what the Python package needs from the Rust crates, and nothing else.
//!
//! It holds no logic: it turns JSON into requests (`config`), errors into exceptions (`error`), calls into calls on an
//! event loop or in a thread (`call`, `tools`, `threads`), futures into objects that asyncio can wait for and cancel
//! (`task`, `runtime`), and events into records of Python's `logging` (`log`).

mod call;
mod chat;
mod config;
mod documents;
mod error;
mod event_loop;
mod hook;
mod host;
mod log;
mod model;
mod nats;
mod process;
mod runtime;
mod server;
mod session;
mod sessions;
mod stream;
mod task;
mod testing;
mod threads;
mod tools;

/// What Python gets as bytes, and reads itself.
pub(crate) fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("text, numbers and JSON can be written")
}

/// The module that Python imports.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::call::Call;
    #[pymodule_export]
    use crate::chat::Chat;
    #[pymodule_export]
    use crate::documents::Documents;
    #[pymodule_export]
    use crate::host::Ending;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::nats::NatsTools;
    #[pymodule_export]
    use crate::runtime::shutdown;
    #[pymodule_export]
    use crate::server::{McpServer, RunningServer};
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::task::Task;
    #[pymodule_export]
    use crate::testing::Scripted;
    #[pymodule_export]
    use crate::threads::Calls;

    /// The version of all of it.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
