//! Finds the executable that the CLI starts as the bridge.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Access, access};
use serde::Serialize;

use crate::ipc::IpcError;

/// The environment variable with a bridge executable; it has priority over searching.
const VARIABLE: &str = "TOOLBRIDGE_BRIDGE";

/// The names of executables that are bridges, the smallest first.
const EXECUTABLES: [&str; 2] = ["toolbridge-bridge", "toolbridge"];

static THIS_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Declares that this program becomes a bridge when it is started as `<program> bridge <socket> <schema>`, and a
/// guardian when it is started as one.
///
/// `toolbridge::run_bridge_if_asked` calls this; programs do not need to.
pub fn this_program_is_a_bridge() {
    THIS_PROGRAM.store(true, Ordering::Relaxed);
}

/// Finds the executable that the CLI is to start: `given`, otherwise the one in `TOOLBRIDGE_BRIDGE`, otherwise this
/// program if it is a bridge itself, otherwise `toolbridge-bridge` or `toolbridge` next to this program or on the
/// PATH.
///
/// # Errors
///
/// [`IpcError::NoBridge`] when there is none, or the given one is not an executable file.
pub fn bridge_executable(given: Option<&Path>) -> Result<PathBuf, IpcError> {
    let named = match (given, env::var_os(VARIABLE)) {
        (Some(path), _) => Some((path.to_owned(), "given by the program")),
        (None, Some(path)) => Some((path.into(), "named by TOOLBRIDGE_BRIDGE")),
        (None, None) => None,
    };
    if let Some((path, by)) = named {
        let path = std::path::absolute(&path).unwrap_or(path);
        let reason = format!("`{}`, {by}, is not an executable file", path.display());
        return is_executable(&path).then_some(path).ok_or(IpcError::NoBridge { reason });
    }
    let [small, whole] = EXECUTABLES;
    let reason = format!("neither `{small}` nor `{whole}` is beside this program or on the PATH");
    own_executable().ok_or(IpcError::NoBridge { reason })
}

/// Finds one of our own executables: this program if it is one, otherwise `toolbridge-bridge` or `toolbridge` next to it or
/// on the PATH. Each is also a guardian; one that is given or named by `TOOLBRIDGE_BRIDGE` may be another implementation,
/// and not be one.
#[must_use]
pub fn own_executable() -> Option<PathBuf> {
    let this = env::current_exe().ok();
    if THIS_PROGRAM.load(Ordering::Relaxed)
        && let Some(this) = this.as_deref().filter(|this| is_executable(this))
    {
        return Some(this.into());
    }
    let beside = this.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).filter(|dir| dir.is_absolute());
    let places = beside.into_iter().chain(on_path).flat_map(|dir| EXECUTABLES.map(|name| dir.join(name)));
    places.into_iter().find(|path| is_executable(path))
}

/// The crate `which` does not fit: it searches the PATH for one name; here two names are tried in each directory,
/// and the first directory is not on the PATH.
fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// An entry of the CLI's `mcpServers`: the command that starts a bridge to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BridgeCommand {
    r#type: &'static str,
    /// The executable.
    pub command: PathBuf,
    /// Its arguments: `bridge`, the socket, the schema file.
    pub args: [PathBuf; 3],
    /// Additional environment variables: where the trace goes, and how the server introduces itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<&'static str, String>,
}

impl BridgeCommand {
    pub(crate) fn new(command: PathBuf, socket: &Path, schema: &Path) -> Self {
        let args = ["bridge".into(), socket.into(), schema.into()];
        Self { r#type: "stdio", command, args, env: BTreeMap::new() }
    }

    /// Adds a variable. Not an argument, since other implementations of the bridge would not know it.
    pub(crate) fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.env.insert(variable, value.into());
        self
    }
}
