//! A small HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than any answer takes; a test fails instead of hanging.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn connect(url: &str) -> Self {
        let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, raw: &str) {
        self.stream.get_mut().write_all(raw.as_bytes()).unwrap();
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) {
        let body = body.to_string();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
    }

    /// Requests the answer of that turn.
    pub(crate) fn ask(&mut self, turn: usize, prompt: &str) {
        self.post("/v1/messages?beta=true", &request(turn, prompt, true));
    }

    /// The next line of the answer; empty at the end of the connection.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line
    }

    /// Reads the status and the headers.
    pub(crate) fn head(&mut self) -> (u16, Vec<String>) {
        let status = self.line().split(' ').nth(1).expect("a status line").parse().unwrap();
        let headers = std::iter::repeat_with(|| self.line().trim().to_owned());
        (status, headers.take_while(|line| !line.is_empty()).collect())
    }

    /// Reads one chunk.
    pub(crate) fn chunk(&mut self) -> String {
        let size = usize::from_str_radix(self.line().trim(), 16).expect("a chunk");
        let mut data = vec![0; size + 2];
        self.stream.read_exact(&mut data).unwrap();
        data.truncate(size);
        String::from_utf8(data).unwrap()
    }

    /// Reads a whole answer.
    pub(crate) fn answer(&mut self) -> Answer {
        let (status, headers) = self.head();
        let body = match headers.iter().find_map(|header| header.strip_prefix("content-length: ")) {
            Some(length) => {
                let mut body = vec![0; length.parse().unwrap()];
                self.stream.read_exact(&mut body).unwrap();
                String::from_utf8(body).unwrap()
            }
            None => std::iter::repeat_with(|| self.chunk()).take_while(|chunk| !chunk.is_empty()).collect(),
        };
        Answer { status, body }
    }

    /// Whether the model has closed the connection, with nothing left to read.
    pub(crate) fn is_closed(&mut self) -> bool {
        // Unlike `read`, it continues after an interrupting signal.
        matches!(self.stream.read_to_end(&mut Vec::new()), Ok(0))
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The data of all events.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// The text that the events add up to.
    pub(crate) fn text(&self) -> String {
        self.events().iter().filter_map(|event| event["delta"]["text"].as_str()).collect()
    }
}

pub(crate) fn request(turn: usize, prompt: &str, stream: bool) -> Value {
    let mut messages = vec![json!({"role": "user", "content": prompt})];
    for _ in 0..turn {
        messages.push(json!({"role": "assistant", "content": "so far"}));
        messages.push(json!({"role": "user", "content": prompt}));
    }
    json!({"model": "claude-test", "stream": stream, "messages": messages})
}
