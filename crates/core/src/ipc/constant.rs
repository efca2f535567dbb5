//! The constants of the protocol, under the names of its specification.

/// The largest message that either side may send, in bytes, without its length prefix.
pub const MAX_MESSAGE_SIZE: usize = 10_485_760;

/// The size of the big-endian length before each message, in bytes.
pub const LENGTH_PREFIX_SIZE: usize = 4;

/// The mode of a session's socket.
pub const SOCKET_PERMISSIONS: u32 = 0o600;

/// How the name of a session's socket begins; the session's id follows.
pub const SOCKET_FILE_PREFIX: &str = "claudecode_ipc_";

/// How the name of a session's socket ends.
pub const SOCKET_FILE_SUFFIX: &str = ".sock";

/// How the name of a session's schema file begins; the session's id follows.
pub const SCHEMA_FILE_PREFIX: &str = "claudecode_ipc_schema_";
