//! The socket between a bridge and the process whose tools it offers.
//!
//! In the parent process, a [`Session`] serves a tool source on a Unix socket, and writes its tools to a schema file. In the bridge process, [`read_schema_file`] and a [`Remote`] are the other end, which is
//! a tool source again. `PROTOCOL.md` in the repository is the normative description of the wire.

mod attached;
mod connection;
mod constant;
mod dir_watch;
mod error;
mod files;
mod fork;
pub(crate) mod frame;
mod locate;
pub(crate) mod message;
mod names;
mod remote;
mod schema_file;
mod server;
mod session;
mod sweep;
mod user;

pub use attached::Attached;
pub use constant::{
    LENGTH_PREFIX_SIZE, MAX_MESSAGE_SIZE, SCHEMA_FILE_PREFIX, SOCKET_FILE_PREFIX, SOCKET_FILE_SUFFIX,
    SOCKET_PERMISSIONS,
};
pub(crate) use dir_watch::watched;
pub use error::IpcError;
pub use files::{session_dir, session_dirs};
pub use locate::{BridgeCommand, bridge_executable, own_executable, this_program_is_a_bridge};
pub use names::{NamedSession, named_sessions, names_dirs};
pub use remote::Remote;
pub use schema_file::read_schema_file;
pub use session::{Session, SessionBuilder, own_server_info};
pub use sweep::{SessionInfo, SessionState, sessions, sweep};
