//! A connection to an MCP server over Streamable HTTP, kept alive.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, Result, bail, ensure};

use crate::client::VERSION;
use crate::process::PATIENCE;
use crate::wire::Wire;

const HEAD_END: &[u8] = b"\r\n\r\n";

const FIRST_BUFFER_BYTES: usize = 64 * 1024;

/// One request at a time, each in one write; a minimal HTTP/1.1 client, so that it costs little.
pub(crate) struct HttpConnection {
    name: &'static str,
    stream: TcpStream,
    /// The headers of every request.
    head: String,
    /// Whether the head contains the session.
    has_session: bool,
    request: Vec<u8>,
    buffer: Vec<u8>,
    filled: usize,
}

/// The framing of a body.
enum Body {
    Sized(usize),
    Chunked,
}

impl HttpConnection {
    /// Connects to a server at `http://ADDRESS/PATH`.
    pub(crate) fn open(name: &'static str, url: &str) -> Result<Self> {
        let rest = url.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
        let (address, path) =
            rest.with_context(|| format!("{name}: `{url}` is not an http URL with a path"))?;
        let stream = TcpStream::connect(address).with_context(|| format!("{name}: cannot connect"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = format!(
            "POST /{path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {VERSION}\r\n"
        );
        let (request, buffer) = (Vec::new(), vec![0; FIRST_BUFFER_BYTES]);
        Ok(Self { name, stream, head, has_session: false, request, buffer, filled: 0 })
    }

    fn fill(&mut self) -> Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.filled * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => bail!("{}: it closed the connection", self.name),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("{}: no answer within {} s", self.name, PATIENCE.as_secs())
            }
            Err(error) => return Err(error).with_context(|| format!("{}: cannot read", self.name)),
        }
        Ok(())
    }

    /// Reads the head of an answer; returns where it ends.
    fn read_head(&mut self) -> Result<usize> {
        loop {
            let searched = self.filled;
            self.fill()?;
            let from = searched.saturating_sub(HEAD_END.len());
            let found =
                self.buffer[from..self.filled].windows(HEAD_END.len()).position(|four| four == HEAD_END);
            if let Some(place) = found {
                return Ok(from + place + HEAD_END.len());
            }
        }
    }

    /// Parses the head: the framing of the body, and the first time the session.
    fn understand(&mut self, head: usize) -> Result<Body> {
        let text = std::str::from_utf8(&self.buffer[..head])?;
        let status = text.split(' ').nth(1).unwrap_or_default();
        ensure!(matches!(status, "200" | "202"), "{}: not an answer: {text}", self.name);
        let (mut body, mut session, mut is_stream) = (None, None, false);
        for (name, value) in text.split("\r\n").filter_map(|line| line.split_once(": ")) {
            if name.eq_ignore_ascii_case("content-length") {
                body = Some(Body::Sized(value.parse()?));
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                body = Some(Body::Chunked);
            } else if name.eq_ignore_ascii_case("content-type") {
                is_stream = !value.starts_with("application/json");
            } else if !self.has_session && name.eq_ignore_ascii_case("mcp-session-id") {
                session = Some(format!("Mcp-Session-Id: {value}\r\n"));
            }
        }
        ensure!(!is_stream, "{}: an answer that is not JSON: {text}", self.name);
        if let Some(session) = session {
            self.head.push_str(&session);
            self.has_session = true;
        }
        body.with_context(|| format!("{}: an answer without a length", self.name))
    }

    /// Reads a chunked body, joins it after the head, and returns its length.
    fn read_chunks(&mut self, head: usize) -> Result<usize> {
        let (mut written, mut place) = (head, head);
        loop {
            let Some(line) = self.buffer[place..self.filled].windows(2).position(|two| two == b"\r\n") else {
                self.fill()?;
                continue;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[place..place + line])?, 16)?;
            let start = place + line + 2;
            place = start + size + 2;
            while self.filled < place {
                self.fill()?;
            }
            if size == 0 {
                return Ok(written - head);
            }
            self.buffer.copy_within(start..start + size, written);
            written += size;
        }
    }
}

impl Wire for HttpConnection {
    const ANSWERS_ALL: bool = true;

    fn name(&self) -> &'static str {
        self.name
    }

    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.request.clear();
        self.request.extend_from_slice(self.head.as_bytes());
        write!(self.request, "Content-Length: {}\r\n\r\n", message.len())?;
        self.request.extend_from_slice(message);
        self.stream
            .write_all(&self.request)
            .with_context(|| format!("{}: it accepts no more bytes", self.name))
    }

    /// The body of an answer; empty if it has none.
    fn receive(&mut self) -> Result<&[u8]> {
        self.filled = 0;
        let head = self.read_head()?;
        let length = match self.understand(head)? {
            Body::Sized(length) => {
                while self.filled < head + length {
                    self.fill()?;
                }
                length
            }
            Body::Chunked => self.read_chunks(head)?,
        };
        Ok(&self.buffer[head..head + length])
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Checks the parsed body of answers that arrive in pieces of every size.
    #[track_caller]
    fn check(answer: &str, want: Result<&str, &str>) {
        for size in 1..=answer.len() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/mcp", listener.local_addr().unwrap());
            let mut connection = HttpConnection::open("it", &url).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            server.set_nodelay(true).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    answer.as_bytes().chunks(size).try_for_each(|part| server.write_all(part))
                });
                let found = connection.receive().map(|body| String::from_utf8_lossy(body).into_owned());
                match (&found, want) {
                    (Ok(found), Ok(want)) => assert_eq!(found, want),
                    (Err(found), Err(want)) => assert!(found.to_string().contains(want), "{found}"),
                    _ => panic!("{found:?} in pieces of {size} bytes"),
                }
            });
        }
    }

    #[test]
    fn a_body_is_read_with_every_kind_of_framing() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Ok("{}"));
        check("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", Ok(""));
        check("HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Ok(""));
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\na\r\n123456789}\r\n0\r\n\r\n",
            Ok("{\"a\":123456789}"),
        );
    }

    #[test]
    fn an_invalid_answer_is_an_error() {
        check("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Err("not an answer: HTTP/1.1 404"));
        check("HTTP/1.1 200 OK\r\n\r\n", Err("without a length"));
        check(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n",
            Err("not JSON"),
        );
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", Err("it closed the connection"));
    }

    #[test]
    fn a_session_is_named_in_every_later_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let mut connection = HttpConnection::open("it", &url).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut requests = Vec::new();
        for _ in 0..3 {
            connection.send(b"{}").unwrap();
            let mut request = vec![0; 1000];
            let count = server.read(&mut request).unwrap();
            requests.push(String::from_utf8(request[..count].to_vec()).unwrap());
            server.write_all(b"HTTP/1.1 200 OK\r\nMcp-Session-Id: s-1\r\nContent-Length: 0\r\n\r\n").unwrap();
            connection.receive().unwrap();
        }
        assert!(!requests[0].contains("Session"), "{}", requests[0]);
        assert_eq!(requests[2].matches("Mcp-Session-Id: s-1\r\n").count(), 1, "{}", requests[2]);
        assert!(requests[1].ends_with("Content-Length: 2\r\n\r\n{}"), "{}", requests[1]);
    }
}
