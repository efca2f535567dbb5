//! The socket protocol written by hand from its document alone, as another implementation's bridge or parent.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use toolbridge_scripted::report_skipped;

use crate::support::PATIENCE;

/// The largest payload that the document allows.
pub(crate) const MAX_MESSAGE_SIZE: usize = 10_485_760;

/// Long enough for an unwanted message to arrive.
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// One connection. Every read and write is bounded by [`PATIENCE`].
pub(crate) struct Wire(UnixStream);

impl Wire {
    pub(crate) fn new(stream: UnixStream) -> Self {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub(crate) fn connect(socket: &Path) -> Self {
        Self::new(UnixStream::connect(socket).unwrap())
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("bytes are taken in time");
    }

    /// Sends one frame.
    pub(crate) fn send(&mut self, payload: impl AsRef<[u8]>) {
        self.send_bytes(&frame(payload));
    }

    /// Closes this end's sending side only.
    pub(crate) fn end_sending(&mut self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }

    /// The payload of the next frame; `None` is a close between frames.
    #[track_caller]
    pub(crate) fn receive_bytes(&mut self) -> Option<Vec<u8>> {
        let mut prefix = [0; 4];
        if !self.fill(&mut prefix) {
            return None;
        }
        let size = u32::from_be_bytes(prefix) as usize;
        assert!((1..=MAX_MESSAGE_SIZE).contains(&size), "a frame of {size} bytes");
        let mut payload = vec![0; size];
        assert!(self.fill(&mut payload), "closed in the middle of a frame of {size} bytes");
        Some(payload)
    }

    /// The next frame.
    #[track_caller]
    pub(crate) fn receive(&mut self) -> Value {
        parse(&self.receive_bytes().expect("a frame, not a close"))
    }

    /// Checks that the peer closes without sending anything more.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        let extra = self.receive_bytes().map(|payload| String::from_utf8_lossy(&payload).into_owned());
        assert_eq!(extra, None, "a frame where a close was due");
    }

    /// Checks that for a while nothing arrives, and the connection stays open.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self) {
        self.0.set_read_timeout(Some(QUIET)).unwrap();
        let read = self.0.read(&mut [0]);
        self.0.set_read_timeout(Some(PATIENCE)).unwrap();
        let error = read.expect_err("silence, not bytes or a close");
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    }

    /// One request and its answer.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.send(request(tool, arguments).to_string());
        self.receive()
    }

    /// False when the connection ends before the first byte; an end after it panics.
    ///
    /// A peer that closes with our bytes unread causes a reset, which counts as a close.
    #[track_caller]
    fn fill(&mut self, buffer: &mut [u8]) -> bool {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no bytes in time: {error}"),
            }
        }
        assert!(filled == 0 || filled == buffer.len(), "closed after {filled} of {} bytes", buffer.len());
        filled > 0
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A payload with its length before it.
pub(crate) fn frame(payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(payload);
    frame
}

#[track_caller]
pub(crate) fn parse(payload: &[u8]) -> Value {
    serde_json::from_slice(payload)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(payload)))
}

/// The document's `call_tool` request.
pub(crate) fn request(tool: &str, arguments: Value) -> Value {
    let mut request = json!({ "method": "call_tool", "params": { "name": tool } });
    request["params"]["arguments"] = arguments;
    request
}

/// The document's success response with one text.
pub(crate) fn text_result(text: &str) -> Value {
    json!({ "result": { "content": [{ "type": "text", "text": text }], "isError": false } })
}

/// The document's error response.
pub(crate) fn error_frame(message: &str, type_name: &str) -> Value {
    json!({ "error": { "message": message, "type": type_name } })
}

/// The system's interpreter: other users may have no access to one in a home directory.
const PYTHON: &str = "/usr/bin/python3";

/// A Python script run by this user.
pub(crate) fn python(script: &str) -> Command {
    let mut command = Command::new(PYTHON);
    command.args(["-c", script]);
    command
}

/// A Python script run by user 65534; `None` without root. A user namespace does not help: without root it
/// maps only this user.
pub(crate) fn python_as_another_user(script: &str) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        report_skipped("only root can start a process of another user");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", PYTHON, "-c", script]);
    Some(command)
}
