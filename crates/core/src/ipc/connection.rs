//! One connection: the check of the peer, and frames in both directions.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::{Budget, Caller};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::ipc::IpcError;
use crate::ipc::fork::ForkGuard;
use crate::ipc::frame::{FrameReader, write_frame};
use crate::ipc::message::Parts;
use crate::ipc::user::User;

/// The longest path a Unix socket can have, without the final NUL.
pub(crate) const MAX_SOCKET_PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

#[derive(Debug)]
pub(crate) struct IpcConnection {
    _private: ForkGuard,
    pub(crate) reader: FrameReader<OwnedReadHalf>,
    pub(crate) writer: OwnedWriteHalf,
    /// The client that was named on this connection.
    pub(crate) introduced: Option<Arc<Caller>>,
}

impl IpcConnection {
    /// Takes over a connection if the peer runs as this user or as root; large frames are counted in `budget`.
    ///
    /// The peer's credentials decide, not the mode of the socket file.
    pub(crate) fn new(stream: UnixStream, budget: Budget) -> Result<Self, IpcError> {
        let user = User::of_this_process();
        let uid = stream.peer_cred()?.uid();
        if !user.trusts(uid) {
            return Err(IpcError::ForeignPeer { uid, own: user.uid() });
        }
        let private = ForkGuard::new(&stream);
        let (reader, writer) = stream.into_split();
        let reader = FrameReader::new(reader, budget);
        Ok(Self { _private: private, reader, writer, introduced: None })
    }

    pub(crate) async fn send(&mut self, parts: &Parts) -> Result<(), IpcError> {
        write_frame(&mut self.writer, &parts.head, parts.payload.as_bytes(), &parts.tail).await
    }

    /// Whether the peer is still connected and has sent nothing unexpected, as far as the runtime knows.
    pub(crate) fn is_fresh(&self) -> bool {
        let read = self.reader.io().try_read(&mut [0]);
        !self.reader.has_leftover() && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Refuses a socket path that is too long, before it is used.
pub(crate) fn check_socket_path(path: &Path) -> Result<(), IpcError> {
    if path.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
        return Err(IpcError::PathTooLong { path: path.into(), limit: MAX_SOCKET_PATH_BYTES });
    }
    Ok(())
}
