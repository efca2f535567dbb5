//! One connection: the check of the peer, and frames in both directions.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use crate::Budget;
use crate::socket::{SocketReader, SocketWriter, split};
use tokio::net::UnixStream;

use crate::ipc::IpcError;
use crate::ipc::fork::Private;
use crate::ipc::frame::{FrameReader, FrameWriter};
use crate::ipc::message::Parts;
use crate::ipc::outbox::Place;
use crate::ipc::user::User;

/// The longest path a Unix socket can have, without the final NUL.
pub(crate) const MAX_SOCKET_PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

#[derive(Debug)]
pub(crate) struct Connection {
    // Dropped before the halves, which close the descriptor.
    private: Private<Arc<OwnedFd>>,
    pub(crate) reader: FrameReader<SocketReader>,
    pub(crate) writer: FrameWriter<SocketWriter>,
}

impl Connection {
    /// Takes over a connection if the peer runs as this user or as root.
    ///
    /// The peer's credentials decide, not the mode of the socket file.
    pub(crate) fn new(stream: UnixStream) -> Result<Self, IpcError> {
        let user = User::of_this_process();
        let uid = stream.peer_cred()?.uid();
        if !user.trusts(uid) {
            return Err(IpcError::ForeignPeer { uid, own: user.uid() });
        }
        let (reader, writer) = split(stream.into_std()?)?;
        let private = Private::new(reader.socket());
        Ok(Self { private, reader: FrameReader::new(reader), writer: FrameWriter::new(writer) })
    }

    /// Limits the memory of large frames to `budget`.
    pub(crate) fn within(self, budget: Budget) -> Self {
        Self { reader: self.reader.within(budget), ..self }
    }

    pub(crate) async fn send(&mut self, parts: &Parts) -> Result<(), IpcError> {
        self.writer.write_frame(&parts.head, parts.payload.as_bytes(), &parts.tail).await
    }

    /// The same, for an answer that may wait long for its reader.
    pub(crate) async fn send_from(&mut self, place: &Place, parts: &Parts) -> Result<(), IpcError> {
        let Parts { head, payload, tail } = parts;
        self.writer.write_frame_noting(head, payload.as_bytes(), tail, || place.was_read()).await
    }

    pub(crate) fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(self.private.get())
    }

    /// Whether the peer is still connected and has sent nothing unexpected.
    pub(crate) fn is_fresh(&self) -> bool {
        // Based on what the runtime knows about the descriptor, so it usually costs no system call.
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
