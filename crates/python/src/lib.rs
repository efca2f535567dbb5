//! `toolbridge._native`: the parts of the Rust crates that the Python package needs.
//!
//! It converts what Python gives to requests (`model`, `host`), errors to exceptions (`error`), calls to calls on an
//! event loop or in a thread (`call`, `tools`, `callbacks`), futures to objects that asyncio can await and cancel
//! (`task`, `runtime`), and events to records of Python's `logging` (`log`).

mod call;
mod callbacks;
mod conversation;
mod documents;
mod error;
mod event_loop;
mod host;
mod log;
mod model;
mod nats;
mod process;
mod runtime;
mod server;
mod session;
mod stream;
mod task;
mod testing;
mod tools;

/// Serialises a value to JSON bytes, which Python parses.
pub(crate) fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("text, numbers and JSON can be written")
}

/// The module that Python imports.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::call::Call;
    #[pymodule_export]
    use crate::callbacks::check_hook_event;
    #[pymodule_export]
    use crate::conversation::Conversation;
    #[pymodule_export]
    use crate::documents::Documents;
    #[pymodule_export]
    use crate::host::Ending;
    #[pymodule_export]
    use crate::model::{Model, find_cli};
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

    // The constants of the protocol.
    #[pymodule_export]
    const LENGTH_PREFIX_SIZE: usize = toolbridge::ipc::LENGTH_PREFIX_SIZE;
    #[pymodule_export]
    const MAX_MESSAGE_SIZE: usize = toolbridge::ipc::MAX_MESSAGE_SIZE;
    #[pymodule_export]
    const SCHEMA_FILE_PREFIX: &str = toolbridge::ipc::SCHEMA_FILE_PREFIX;
    #[pymodule_export]
    const SOCKET_FILE_PREFIX: &str = toolbridge::ipc::SOCKET_FILE_PREFIX;
    #[pymodule_export]
    const SOCKET_FILE_SUFFIX: &str = toolbridge::ipc::SOCKET_FILE_SUFFIX;
    #[pymodule_export]
    const SOCKET_PERMISSIONS: u32 = toolbridge::ipc::SOCKET_PERMISSIONS;

    // The settings of the CLI, and the names that some may have; `cli_settings.py` is made from them.
    #[pymodule_export]
    const SETTINGS: &[(&str, &str, &str)] = toolbridge::model::SETTINGS;
    #[pymodule_export]
    const BUILTIN_TOOLS: &[&str] = toolbridge::model::BUILTIN_TOOLS;
    #[pymodule_export]
    const HOOK_EVENTS: &[&str] = toolbridge::model::HookEvent::NAMES;
    #[pymodule_export]
    const PERMISSION_MODES: &[&str] = toolbridge::model::PermissionMode::NAMES;
    #[pymodule_export]
    const EFFORTS: &[&str] = toolbridge::model::Effort::NAMES;

    /// The package version.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
