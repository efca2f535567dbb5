//! A parent written by hand from the protocol's document, byte by byte, against our bridge.

use std::fs::{OpenOptions, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{McpClient, PATIENCE, Process, files, toolbridge};
use crate::wire::{
    MAX_MESSAGE_SIZE, QUIET, Wire, error_frame, frame, parse, python, python_as_another_user, request,
    text_result,
};

/// The name of a socket with an id of version 8.
const CONCURRENT: &str = "claudecode_ipc_00000000000080008000000000000001.sock";

/// An event at the parent.
enum Event {
    Connection,
    /// Bytes or an end of stream on a connection, by its number.
    Bytes(usize),
}

/// A parent with a schema file. Its connections are numbered in the order of their arrival.
struct Parent {
    dir: TempDir,
    socket: &'static str,
    /// `None` until the parent listens.
    listener: Option<UnixListener>,
    /// `None` once one side has closed it.
    connections: Vec<Option<Wire>>,
}

impl Parent {
    /// A parent that listens, with the tool `greet` in a schema file of the document's three fields.
    fn start() -> Self {
        let mut parent = Self::absent();
        parent.listen();
        parent
    }

    /// One whose socket has an id of version 8, which therefore takes calls that overlap.
    fn start_concurrent() -> Self {
        let mut parent = Self { socket: CONCURRENT, ..Self::absent() };
        parent.listen();
        parent
    }

    /// The schema file of a parent that does not listen yet.
    fn absent() -> Self {
        Self::with_schema(&json!([{
            "name": "greet",
            "description": "Greets somebody",
            "input_schema": { "type": "object", "properties": { "who": { "type": "string" } } },
        }]))
    }

    fn with_schema(schema: &Value) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("schema.json");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
        file.write_all(schema.to_string().as_bytes()).unwrap();
        Self { dir, socket: "parent.sock", listener: None, connections: Vec::new() }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join(self.socket)
    }

    fn schema(&self) -> PathBuf {
        self.dir.path().join("schema.json")
    }

    fn listen(&mut self) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.listener = Some(listener);
    }

    /// A bridge to this parent, with a client that has done the handshake.
    fn client(&self) -> McpClient {
        let mut client = McpClient::start(&self.socket(), &self.schema());
        client.initialize();
        client
    }

    /// The next event, or `None` on a timeout.
    fn next_event(&self, within: Duration) -> Option<Event> {
        let listener = self.listener.as_ref().map(|listener| (listener.as_fd(), Event::Connection));
        let open = self.connections.iter().enumerate();
        let open = open.filter_map(|(n, wire)| wire.as_ref().map(|wire| (wire.as_fd(), Event::Bytes(n))));
        let (fds, events): (Vec<_>, Vec<_>) = listener.into_iter().chain(open).unzip();
        let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        poll(&mut fds, Some(&Timespec::try_from(within).unwrap())).unwrap();
        let ready = fds.iter().position(|fd| !fd.revents().is_empty())?;
        events.into_iter().nth(ready)
    }

    fn accept(&mut self) {
        let (stream, _) = self.listener.as_ref().unwrap().accept().unwrap();
        self.connections.push(Some(Wire::new(stream)));
    }

    /// The next request's bytes, and the number of its connection.
    #[track_caller]
    fn next_payload(&mut self) -> (usize, Vec<u8>) {
        loop {
            match self.next_event(PATIENCE).expect("a request in time") {
                Event::Connection => self.accept(),
                Event::Bytes(n) => match self.wire(n).receive_bytes() {
                    Some(payload) => return (n, payload),
                    None => self.close(n),
                },
            }
        }
    }

    #[track_caller]
    fn next_request(&mut self) -> (usize, Value) {
        let (n, payload) = self.next_payload();
        (n, parse(&payload))
    }

    /// Checks that for a while there is no new connection and no request; a bridge may close its connections.
    #[track_caller]
    fn expect_quiet(&mut self) {
        let started = Instant::now();
        while let Some(left) = QUIET.checked_sub(started.elapsed()) {
            match self.next_event(left) {
                None => return,
                Some(Event::Connection) => panic!("an unexpected connection"),
                Some(Event::Bytes(n)) => {
                    self.wire(n).expect_closed();
                    self.close(n);
                }
            }
        }
    }

    /// Checks that no connection has been made so far.
    #[track_caller]
    fn expect_no_connection(&self) {
        assert!(self.connections.is_empty());
        assert!(self.next_event(Duration::ZERO).is_none(), "an unexpected connection");
    }

    fn wire(&mut self, n: usize) -> &mut Wire {
        self.connections[n].as_mut().unwrap()
    }

    fn close(&mut self, n: usize) {
        self.connections[n] = None;
    }

    fn answer(&mut self, n: usize, answer: &Value) {
        self.wire(n).send(answer.to_string());
    }

    /// Serves one call on both sides, client and parent; returns its connection.
    #[track_caller]
    fn serve_one(&mut self, client: &mut McpClient, text: &str) -> usize {
        let id = client.start_call("greet", json!({ "who": text }));
        let (n, asked) = self.next_request();
        assert_eq!(asked, request("greet", json!({ "who": text })));
        self.answer(n, &text_result(text));
        assert_eq!(client.answer(id)["result"], text_result(text)["result"]);
        n
    }

    /// Ends the bridge as its client would, and checks that nothing is left.
    #[track_caller]
    fn end(self, mut client: McpClient) {
        client.end_input();
        assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
        let mut own = vec!["schema.json"];
        if self.socket().exists() {
            own.insert(0, self.socket);
        }
        assert_eq!(files(self.dir.path()), own);
    }
}

/// The text that the client gets for an error.
#[track_caller]
fn error_text(answer: &Value) -> &str {
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    assert_eq!(result["content"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(result["content"][0]["type"], "text", "{answer}");
    result["content"][0]["text"].as_str().unwrap()
}

#[track_caller]
fn assert_error_type(answer: &Value, type_name: &str) {
    let text = error_text(answer);
    let message = text.strip_suffix(&format!(" (type: {type_name})"));
    assert!(message.is_some_and(|message| !message.is_empty()), "not a `{type_name}`: {text}");
}

/// All messages that the client gets before the answer to a ping.
#[track_caller]
fn messages_so_far(client: &mut McpClient) -> Vec<Value> {
    let ping = client.start_request("ping", json!({}));
    let mut messages = Vec::new();
    loop {
        let message = client.receive();
        if message["id"] == ping {
            return messages;
        }
        messages.push(message);
    }
}

fn call_params(arguments: &Value, meta: &Value) -> Value {
    json!({ "name": "greet", "arguments": arguments, "_meta": meta })
}

#[test]
fn tools_are_listed_from_the_three_fields_without_a_connection() {
    let parent = Parent::start();
    let mut client = parent.client();
    let answer = client.request("tools/list", json!({}));
    let schema = json!({ "type": "object", "properties": { "who": { "type": "string" } } });
    let tools = json!([{ "name": "greet", "description": "Greets somebody", "inputSchema": schema }]);
    assert_eq!(answer["result"]["tools"], tools);
    parent.expect_no_connection();
    parent.end(client);
}

#[test]
fn tools_are_listed_with_every_optional_field() {
    let output = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let annotations = json!({ "readOnlyHint": true, "idempotentHint": true, "title": "Greeter" });
    let meta = json!({ "anthropic/maxResultSizeChars": 500_000, "x": { "y": [1, 2] } });
    let plain = json!({ "type": "object" });
    let parent = Parent::with_schema(&json!([
        {
            "name": "rich", "title": "Rich", "description": "日本語\n\"quoted\"", "input_schema": plain,
            "output_schema": output, "annotations": annotations, "meta": meta, "unknown": [1],
        },
        { "name": "plain", "description": "", "input_schema": plain },
    ]));
    let mut client = parent.client();
    let answer = client.request("tools/list", json!({}));
    let tools = json!([
        {
            "name": "rich", "title": "Rich", "description": "日本語\n\"quoted\"", "inputSchema": plain,
            "outputSchema": output, "annotations": annotations, "_meta": meta,
        },
        { "name": "plain", "description": "", "inputSchema": plain },
    ]);
    assert_eq!(answer["result"]["tools"], tools);
    parent.end(client);
}

#[test]
fn the_first_call_connects_and_the_second_reuses_the_connection() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    parent.expect_no_connection();
    for text in ["first", "second", "third"] {
        assert_eq!(parent.serve_one(&mut client, text), 0);
    }
    assert_eq!(parent.connections.len(), 1);
    parent.expect_quiet();
    parent.end(client);
}

#[test]
fn the_request_is_the_documents_and_meta_is_there_only_when_asked_for() {
    const PLACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut parent = Parent::start();
    let mut client = parent.client();
    let arguments = json!({ "who": "you", "list": [1, 2.5, null, true], "deep": { "a": { "b": "c" } } });
    let unknown = json!({ "x": 1, "claudecode/other": 2 });
    for (meta, wanted) in [
        (json!({}), None),
        (unknown, None),
        (json!({ "claudecode/toolUseId": "toolu_1" }), Some(json!({ "toolUseId": "toolu_1" }))),
        (json!({ "progressToken": 7 }), Some(json!({ "progressToken": 7 }))),
        (json!({ "traceparent": PLACE }), Some(json!({ "traceparent": PLACE }))),
        (json!({ "traceparent": "00-0-0-0" }), None),
        (json!({ "progressToken": "seven" }), Some(json!({ "progressToken": "seven" }))),
        (
            json!({ "claudecode/toolUseId": "toolu_2", "progressToken": 0, "x": 1 }),
            Some(json!({ "toolUseId": "toolu_2", "progressToken": 0 })),
        ),
    ] {
        let id = client.start_request("tools/call", call_params(&arguments, &meta));
        let (n, asked) = parent.next_request();
        let mut exact = request("greet", arguments.clone());
        if let Some(wanted) = wanted {
            exact["params"]["meta"] = wanted;
        }
        assert_eq!(asked, exact, "for _meta {meta}");
        parent.answer(n, &text_result("hello"));
        client.answer(id);
    }
    parent.end(client);
}

#[test]
fn a_call_without_arguments_has_an_empty_object_on_the_wire() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let id = client.start_request("tools/call", json!({ "name": "greet" }));
    let (n, asked) = parent.next_request();
    assert_eq!(asked, request("greet", json!({})));
    parent.answer(n, &text_result("hello"));
    assert_eq!(client.answer(id)["result"], text_result("hello")["result"]);
    parent.end(client);
}

#[test]
fn a_tool_that_is_not_in_the_schema_file_never_reaches_the_parent() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let answer = client.call("no_such_tool", json!({}));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    parent.expect_quiet();
    parent.expect_no_connection();
    parent.end(client);
}

#[test]
fn a_parent_of_another_kind_gets_one_call_at_a_time() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let who = ["first", "second", "third"];
    let ids = who.map(|who| client.start_call("greet", json!({ "who": who })));
    for (who, id) in who.into_iter().zip(ids) {
        let (n, asked) = parent.next_request();
        assert_eq!(asked, request("greet", json!({ "who": who })));
        parent.expect_quiet();
        parent.answer(n, &text_result(who));
        assert_eq!(client.answer(id)["result"], text_result(who)["result"]);
    }
    // A cancelled call, running or waiting, holds up no other.
    let calls = who.map(|who| client.start_call("greet", json!({ "who": who })));
    parent.next_request();
    client.cancel(calls[1]);
    client.cancel(calls[0]);
    let (n, asked) = parent.next_request();
    assert_eq!(asked, request("greet", json!({ "who": "third" })));
    parent.answer(n, &text_result("third"));
    assert_eq!(client.answer(calls[2])["result"], text_result("third")["result"]);
    parent.end(client);
}

#[test]
fn two_calls_in_flight_use_two_connections() {
    let mut parent = Parent::start_concurrent();
    let mut client = parent.client();
    let first = client.start_call("greet", json!({ "who": "first" }));
    let (one, asked) = parent.next_request();
    assert_eq!(asked, request("greet", json!({ "who": "first" })));
    let second = client.start_call("greet", json!({ "who": "second" }));
    let (two, asked) = parent.next_request();
    assert_eq!(asked, request("greet", json!({ "who": "second" })));
    assert_eq!((one, two), (0, 1));

    parent.answer(two, &text_result("second"));
    assert_eq!(client.answer(second)["result"], text_result("second")["result"]);
    // A free connection is reused before a third one is made.
    assert_eq!(parent.serve_one(&mut client, "third"), two);
    parent.answer(one, &text_result("first"));
    assert_eq!(client.answer(first)["result"], text_result("first")["result"]);
    assert_eq!(parent.connections.len(), 2);
    parent.end(client);
}

#[test]
fn sixty_four_calls_in_flight_get_their_own_answers_in_any_order() {
    let mut parent = Parent::start_concurrent();
    let mut client = parent.client();
    let ids: Vec<_> =
        (0..64).map(|n| client.start_call("greet", json!({ "who": format!("caller {n}") }))).collect();
    let asked: Vec<_> = (0..64).map(|_| parent.next_request()).collect();
    assert_eq!(parent.connections.len(), 64);

    for (n, request) in asked.iter().rev() {
        let who = request["params"]["arguments"]["who"].as_str().unwrap();
        parent.answer(*n, &text_result(who));
    }
    let mut answers: Vec<_> = (0..64).map(|_| client.receive()).collect();
    answers.sort_by_key(|answer| answer["id"].as_i64());
    for (n, (id, answer)) in ids.iter().zip(&answers).enumerate() {
        assert_eq!(&answer["id"], id);
        assert_eq!(answer["result"], text_result(&format!("caller {n}"))["result"]);
    }
    assert_eq!(messages_so_far(&mut client), Vec::<Value>::new());

    // Some connections are kept for the next ones.
    parent.serve_one(&mut client, "one more");
    assert_eq!(parent.connections.len(), 64);
    parent.end(client);
}

#[test]
fn no_more_than_eight_idle_connections_are_kept() {
    let mut parent = Parent::start_concurrent();
    let mut client = parent.client();
    for _ in 0..12 {
        client.start_call("greet", json!({ "who": "you" }));
    }
    let asked: Vec<_> = (0..12).map(|_| parent.next_request()).collect();
    for (n, _) in &asked {
        parent.answer(*n, &text_result("hello"));
    }
    for _ in 0..12 {
        client.receive();
    }
    while parent.connections.iter().flatten().count() > 8 {
        let Some(Event::Bytes(n)) = parent.next_event(PATIENCE) else {
            panic!("too many connections are kept")
        };
        parent.wire(n).expect_closed();
        parent.close(n);
    }
    parent.expect_quiet();
    assert_eq!(parent.connections.iter().flatten().count(), 8);
    parent.end(client);
}

#[test]
fn a_connection_closed_between_two_calls_is_made_again() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    for n in 0..50 {
        assert_eq!(parent.serve_one(&mut client, "hello"), n);
        parent.close(n);
    }
    parent.end(client);
}

#[test]
fn a_parent_that_was_started_anew_between_two_calls_is_found_again() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    parent.serve_one(&mut client, "before");
    parent.close(0);
    parent.listener = None;
    std::fs::remove_file(parent.socket()).unwrap();
    assert_error_type(&client.call("greet", json!({})), "IPCConnectionError");
    parent.listen();
    parent.serve_one(&mut client, "after");
    parent.end(client);
}

#[test]
fn a_connection_lost_in_the_middle_is_an_error_and_never_retried() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    // First on a new connection, then on a reused one.
    for warm in [None, Some("warm")] {
        let served = warm.map(|text| parent.serve_one(&mut client, text));
        let id = client.start_call("greet", json!({ "who": "lost" }));
        let (n, _) = parent.next_request();
        assert_eq!(served.unwrap_or(n), n);
        parent.close(n);
        assert_error_type(&client.answer(id), "IPCConnectionError");
        parent.expect_quiet();
    }
    parent.serve_one(&mut client, "later");
    parent.end(client);
}

#[test]
fn every_cut_of_an_answer_is_an_error() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let whole = frame(text_result("torn").to_string());
    for cut in 0..whole.len() {
        let id = client.start_call("greet", json!({}));
        let (n, _) = parent.next_request();
        parent.wire(n).send_bytes(&whole[..cut]);
        parent.close(n);
        assert_error_type(&client.answer(id), "IPCConnectionError");
    }
    parent.serve_one(&mut client, "later");
    parent.end(client);
}

#[test]
fn half_an_answer_and_silence_hold_up_only_their_own_call() {
    let mut parent = Parent::start_concurrent();
    let mut client = parent.client();
    let whole = frame(text_result("half").to_string());
    let id = client.start_call("greet", json!({}));
    let (half, _) = parent.next_request();
    parent.wire(half).send_bytes(&whole[..whole.len() / 2]);
    parent.wire(half).expect_silence();
    assert_ne!(parent.serve_one(&mut client, "beside it"), half);
    assert_eq!(messages_so_far(&mut client), Vec::<Value>::new());
    parent.close(half);
    assert_error_type(&client.answer(id), "IPCConnectionError");
    parent.serve_one(&mut client, "later");
    parent.end(client);
}

#[test]
fn many_unfinished_big_answers_hold_up_no_other_call() {
    let mut parent = Parent::start_concurrent();
    let mut client = parent.client();
    let whole = frame(text_result(&"x".repeat(MAX_MESSAGE_SIZE - 1_000)).to_string());
    let mut unfinished = Vec::new();
    for _ in 0..16 {
        let id = client.start_call("greet", json!({ "who": "unfinished" }));
        let (n, _) = parent.next_request();
        // Small enough for the socket buffer, even when they are not read.
        parent.wire(n).send_bytes(&whole[..64 * 1024]);
        unfinished.push((id, n));
    }
    parent.serve_one(&mut client, "small");
    parent.serve_one(&mut client, &"large".repeat(400_000));
    for (id, n) in unfinished {
        parent.close(n);
        assert_error_type(&client.answer(id), "IPCConnectionError");
    }
    parent.serve_one(&mut client, "later");
    parent.end(client);
}

#[test]
fn an_answer_may_come_byte_by_byte() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let id = client.start_call("greet", json!({}));
    let (n, _) = parent.next_request();
    for byte in frame(text_result("drop by drop").to_string()) {
        parent.wire(n).send_bytes(&[byte]);
    }
    assert_eq!(client.answer(id)["result"], text_result("drop by drop")["result"]);
    assert_eq!(parent.serve_one(&mut client, "later"), n);
    parent.end(client);
}

#[test]
fn without_a_parent_a_call_is_an_error_until_one_appears() {
    let mut parent = Parent::absent();
    let mut client = parent.client();
    for _ in 0..3 {
        assert_error_type(&client.call("greet", json!({})), "IPCConnectionError");
    }
    // A socket file without a listener is no parent either.
    drop(UnixListener::bind(parent.socket()).unwrap());
    assert_error_type(&client.call("greet", json!({})), "IPCConnectionError");
    std::fs::remove_file(parent.socket()).unwrap();

    assert_eq!(client.request("tools/list", json!({}))["result"]["tools"].as_array().unwrap().len(), 1);
    parent.listen();
    parent.serve_one(&mut client, "here I am");
    parent.end(client);
}

#[test]
fn a_broken_frame_is_an_error_and_its_connection_is_dead() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let over_the_limit = u32::try_from(MAX_MESSAGE_SIZE + 1).unwrap().to_be_bytes().to_vec();
    for (name, bytes, type_name) in [
        ("length 0", vec![0; 4], "IPCError"),
        ("length 10,485,761", over_the_limit, "IPCMessageSizeError"),
        ("length 0xFFFFFFFF", vec![0xFF; 4], "IPCMessageSizeError"),
        ("invalid JSON", frame(r#"{"result":"#), "IPCError"),
        ("not JSON at all", frame("hello"), "IPCError"),
        ("two values", frame(r#"{"result":{"content":[{"type":"text","text":""}]}} {}"#), "IPCError"),
        ("NaN", frame(r#"{"result":{"content":[{"type":"text","text":NaN}]}}"#), "IPCError"),
        (
            "invalid UTF-8",
            frame(b"{\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"\xFF\"}]}}"),
            "IPCError",
        ),
        ("a NUL", frame("\0"), "IPCError"),
    ] {
        let id = client.start_call("greet", json!({}));
        let (n, _) = parent.next_request();
        parent.wire(n).send_bytes(&bytes);
        let answer = client.answer(id);
        assert!(error_text(&answer).ends_with(&format!(" (type: {type_name})")), "{name}: {answer}");
        parent.wire(n).expect_closed();
        parent.close(n);
        assert_ne!(parent.serve_one(&mut client, name), n);
    }
    parent.end(client);
}

#[test]
fn an_answer_that_is_neither_result_nor_error_is_an_error() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let both = json!({ "result": text_result("a")["result"], "error": error_frame("b", "C")["error"] });
    for answer in [
        json!({}),
        both,
        json!([]),
        json!(null),
        json!("result"),
        json!({ "results": {} }),
        json!({ "result": null }),
        json!({ "result": 7 }),
        json!({ "result": [] }),
        json!({ "error": "text" }),
        json!({ "error": null }),
    ] {
        let id = client.start_call("greet", json!({}));
        let (n, _) = parent.next_request();
        parent.answer(n, &answer);
        let got = client.answer(id);
        assert!(error_text(&got).ends_with(" (type: IPCError)"), "{answer}: {got}");
        parent.serve_one(&mut client, "later");
    }
    parent.end(client);
}

#[test]
fn a_result_without_a_block_that_has_a_type_is_an_error() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    for (result, want) in [
        (json!(null), "it is not an object"),
        (json!("text"), "it is not an object"),
        (json!({}), "it has no `content`"),
        (json!({ "isError": false, "structuredContent": { "a": 1 } }), "it has no `content`"),
        (json!({ "content": null }), "its `content` is not a list"),
        (json!({ "content": "text" }), "its `content` is not a list"),
        (json!({ "content": { "type": "text", "text": "a" } }), "its `content` is not a list"),
        (json!({ "content": [] }), "its `content` is empty"),
        (json!({ "content": [], "isError": true }), "its `content` is empty"),
        (json!({ "content": ["text"] }), "`content[0]` is not an object"),
        (json!({ "content": [{ "type": "text", "text": "a" }, null] }), "`content[1]` is not an object"),
        (json!({ "content": [{ "text": "a" }] }), "`content[0]` has no `type` that is a string"),
        (json!({ "content": [{ "type": 7 }] }), "`content[0]` has no `type` that is a string"),
        (
            json!({ "content": [{ "type": "text" }] }),
            "`content[0]` is a text block without a `text` that is a string",
        ),
        (
            json!({ "content": [{ "type": "text", "text": null }] }),
            "`content[0]` is a text block without a `text` that is a string",
        ),
    ] {
        let id = client.start_call("greet", json!({}));
        let (n, _) = parent.next_request();
        parent.answer(n, &json!({ "result": result }));
        let got = client.answer(id);
        let right =
            "a result is an object whose `content` is a list of at least one block, an object with a `type`";
        let want =
            format!("invalid message: the parent's `result` is unusable: {want}; {right} (type: IPCError)");
        assert_eq!(error_text(&got), want, "{result}");
        parent.serve_one(&mut client, "later");
    }
    parent.end(client);
}

#[test]
fn a_result_may_be_nested_to_a_limit_and_no_deeper() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    for (around, place) in [
        (1, r#"{"content":[{"type":"text","text":"a"}],"structuredContent":DEEP}"#),
        (1, r#"{"content":[{"type":"text","text":"a"}],"_meta":DEEP}"#),
        (3, r#"{"content":[{"type":"new","value":DEEP}]}"#),
    ] {
        for (depth, is_good) in [(100, true), (128, true), (129, false), (100_000, false)] {
            let levels = depth - around;
            let deep = format!("{}{}", r#"{"a":"#.repeat(levels - 1) + "{}", "}".repeat(levels - 1));
            let result = place.replace("DEEP", &deep);
            let (_, line) =
                answer_line(&mut parent, r#"{"name":"greet"}"#, &format!(r#"{{"result":{result}}}"#));
            if is_good {
                assert!(line.contains(&result), "{depth} levels: {line:.200}");
            } else {
                let want = format!("it is nested {depth} levels deep, the limit is 128 (type: IPCError)");
                assert!(line.contains(&want), "{depth} levels: {line:.200}");
            }
        }
    }
    parent.serve_one(&mut client, "later");
    parent.end(client);
}

#[test]
fn an_error_beside_a_result_is_shown_to_the_client() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let id = client.start_call("greet", json!({}));
    let (n, _) = parent.next_request();
    let both = json!({
        "result": text_result("fine")["result"],
        "error": error_frame("the disk is full", "DiskError")["error"],
    });
    parent.answer(n, &both);
    let got = client.answer(id);
    assert_error_type(&got, "IPCError");
    assert!(error_text(&got).contains("the disk is full (DiskError)"), "{got}");
    parent.serve_one(&mut client, "later");
    parent.end(client);
}

#[test]
fn nesting_without_end_does_not_crash_the_bridge() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for payload in [
        nested.clone(),
        "[".repeat(MAX_MESSAGE_SIZE),
        format!(r#"{{"x":{nested}}}"#),
        format!(r#"{{"error":{nested}}}"#),
        format!(r#"{{"error":{{"message":{nested},"type":"X"}}}}"#),
    ] {
        let id = client.start_call("greet", json!({}));
        let (n, _) = parent.next_request();
        parent.wire(n).send(&payload);
        assert_error_type(&client.answer(id), "IPCError");
        parent.serve_one(&mut client, "later");
    }
    parent.end(client);
}

#[test]
fn an_extra_frame_never_becomes_another_calls_answer() {
    let mut parent = Parent::start();
    let mut client = parent.client();

    // After the answer, in the same write.
    let id = client.start_call("greet", json!({}));
    let (n, _) = parent.next_request();
    let mut bytes = frame(text_result("mine").to_string());
    bytes.extend(frame(text_result("stray").to_string()));
    parent.wire(n).send_bytes(&bytes);
    assert_eq!(client.answer(id)["result"], text_result("mine")["result"]);
    parent.serve_one(&mut client, "next");

    // Later, while the connection is idle; in whole and in part.
    let stray = frame(text_result("stray").to_string());
    for cut in [stray.len(), stray.len() / 2, 4, 1] {
        let n = parent.serve_one(&mut client, "before");
        parent.wire(n).send_bytes(&stray[..cut]);
        parent.serve_one(&mut client, "after");
    }
    assert_eq!(messages_so_far(&mut client), Vec::<Value>::new());
    parent.end(client);
}

#[test]
fn a_pretty_printed_result_is_one_line_with_the_same_content() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let result = json!({
        "content": [{ "type": "text", "text": "two\nlines\r\nand \u{2028} a \\ and a \" and a tab\t" }],
        "structuredContent": { "rows": [[1, 2], [3, 4]], "empty": {} },
    });
    let pretty = serde_json::to_string_pretty(&json!({ "result": result })).unwrap();
    for payload in [pretty.clone(), pretty.replace('\n', "\r\n"), format!("\n\t {pretty} \r\n")] {
        let id = client.start_call("greet", json!({}));
        let (n, _) = parent.next_request();
        parent.wire(n).send(payload);
        assert_eq!(client.answer(id)["result"], result);
    }
    assert_eq!(messages_so_far(&mut client), Vec::<Value>::new());
    parent.end(client);
}

#[test]
fn every_kind_of_content_passes_unchanged() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let annotations = json!({ "audience": ["user", "assistant"], "priority": 0.5 });
    let blocks = [
        json!({ "type": "text", "text": "日本語 😀 \0", "annotations": annotations, "_meta": { "a": 1 } }),
        json!({ "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" }),
        json!({ "type": "audio", "data": "UklGRg==", "mimeType": "audio/wav" }),
        json!({ "type": "resource", "resource": { "uri": "file:///a", "mimeType": "text/plain", "text": "a" } }),
        json!({ "type": "resource", "resource": { "uri": "file:///b", "blob": "AAEC" } }),
        json!({ "type": "resource_link", "uri": "file:///c", "name": "c", "title": "C", "size": 3 }),
        json!({ "type": "made_up_later", "anything": [null, { "x": [] }] }),
    ];
    let mut results: Vec<_> = blocks.iter().map(|block| json!({ "content": [block] })).collect();
    results.extend([
        json!({ "content": blocks, "isError": false, "_meta": { "b": { "c": [] } } }),
        json!({ "content": [blocks[1]], "isError": true }),
        json!({ "content": [blocks[0]], "structuredContent": { "n": 1, "list": [{}] }, "_meta": {} }),
        json!({ "content": [blocks[0]], "structuredContent": {}, "isError": true, "unknown": 1 }),
    ]);
    for result in results {
        let id = client.start_call("greet", json!({}));
        let (n, _) = parent.next_request();
        parent.answer(n, &json!({ "result": result, "unknown": { "ignored": true } }));
        assert_eq!(client.answer(id)["result"], result);
    }
    assert_eq!(parent.connections.len(), 1);
    parent.end(client);
}

/// Calls through a bridge and returns the answer as text: parsing would change the numbers.
fn answer_line(parent: &mut Parent, params: &str, answer: &str) -> (Vec<u8>, String) {
    let (mut near, far) = UnixStream::pair().unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = toolbridge();
    command.arg("bridge").arg(parent.socket()).arg(parent.schema());
    command.stdin(OwnedFd::from(far.try_clone().unwrap())).stdout(OwnedFd::from(far));
    let mut bridge = Process(command.spawn().unwrap());
    drop(command);
    let mut lines = BufReader::new(near.try_clone().unwrap()).lines();

    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello });
    writeln!(near, "{hello}").unwrap();
    lines.next().unwrap().unwrap();
    writeln!(near, r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#).unwrap();
    writeln!(near, r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{params}}}"#).unwrap();
    let (n, payload) = parent.next_payload();
    parent.wire(n).send(answer);
    let line = lines.next().unwrap().unwrap();
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(bridge.wait_within(PATIENCE).code(), Some(0));
    (payload, line)
}

#[test]
fn numbers_keep_every_digit_in_both_directions() {
    let mut parent = Parent::start();
    let numbers = "[18446744073709551615,-9223372036854775808,123456789012345678901234567890,\
                   0.1000000000000000055511151231257827021181583404541015625,1e400,-0.0,1.0,1E+2]";
    let params = format!(r#"{{"name":"greet","arguments":{{"n":{numbers}}}}}"#);
    let result = format!(
        r#"{{"content":[{{"type":"text","text":"a"}}],"structuredContent":{{"n":{numbers}}},"_meta":{{"n":{numbers}}}}}"#
    );
    let (payload, line) = answer_line(&mut parent, &params, &format!(r#"{{"result":{result}}}"#));
    let payload = String::from_utf8(payload).unwrap();
    assert!(payload.contains(&format!(r#"{{"n":{numbers}}}"#)), "{payload}");
    assert!(line.contains(&result), "{line}");
    assert_eq!(files(parent.dir.path()), ["parent.sock", "schema.json"]);
}

#[test]
fn an_error_frame_is_its_message_and_type() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    for (message, type_name) in [
        ("no such city", "ValueError"),
        ("日本語 \"quoted\" \\ and\nlines", "KeyError"),
        ("tool `greet` not found", "ToolNotFoundError"),
        ("odd (type: Fake)", "Real"),
    ] {
        let id = client.start_call("greet", json!({}));
        let (n, _) = parent.next_request();
        parent.answer(n, &error_frame(message, type_name));
        assert_eq!(error_text(&client.answer(id)), format!("{message} (type: {type_name})"));
    }
    // Unknown fields are ignored; one connection has served all of these.
    let id = client.start_call("greet", json!({}));
    let (n, _) = parent.next_request();
    let extended = json!({ "error": { "message": "a", "type": "B", "traceback": [1] }, "id": 7 });
    parent.answer(n, &extended);
    assert_eq!(error_text(&client.answer(id)), "a (type: B)");
    let id = client.start_call("greet", json!({}));
    let (n, _) = parent.next_request();
    parent.answer(n, &json!({ "error": { "message": "a" } }));
    assert_eq!(error_text(&client.answer(id)), "a (type: IPCToolExecutionError)");
    assert_eq!(parent.connections.len(), 1);
    parent.end(client);
}

#[test]
fn progress_reaches_the_client_in_order_under_its_own_token() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    for token in [json!(7), json!("seven"), json!(0), json!("")] {
        let meta = json!({ "progressToken": token });
        let id = client.start_request("tools/call", call_params(&json!({}), &meta));
        let (n, _) = parent.next_request();
        let steps = [
            json!({ "progress": 1, "total": 3, "message": "one" }),
            json!({ "progress": 2.5, "total": 3 }),
            json!({ "progress": 3, "message": "日本語\n" }),
        ];
        for step in steps {
            parent.answer(n, &json!({ "progress": step }));
            let message = client.receive();
            assert_eq!(message["method"], "notifications/progress", "{message}");
            assert!(message.get("id").is_none(), "{message}");
            let mut params = step;
            params["progressToken"] = token.clone();
            assert_eq!(message["params"], params);
        }
        parent.answer(n, &text_result("done"));
        let answer = client.receive();
        assert_eq!(answer["id"], id);
        assert_eq!(answer["result"], text_result("done")["result"]);
    }
    assert_eq!(parent.connections.len(), 1);
    parent.end(client);
}

#[test]
fn progress_comes_before_the_answer_is_known() {
    let mut parent = Parent::start_concurrent();
    let mut client = parent.client();
    let mut open = Vec::new();
    for token in ["a", "b"] {
        let meta = json!({ "progressToken": token });
        let id = client.start_request("tools/call", call_params(&json!({ "who": token }), &meta));
        let (n, _) = parent.next_request();
        open.push((id, n, token));
    }
    for (_, n, token) in open.iter().rev() {
        parent.answer(*n, &json!({ "progress": { "progress": 1 } }));
        let message = client.receive();
        assert_eq!(message["params"], json!({ "progressToken": token, "progress": 1 }));
    }
    for (id, n, token) in open {
        parent.answer(n, &text_result(token));
        assert_eq!(client.answer(id)["result"], text_result(token)["result"]);
    }
    parent.end(client);
}

#[test]
fn progress_without_a_token_never_reaches_the_client() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let id = client.start_call("greet", json!({}));
    let (n, _) = parent.next_request();
    let mut bytes = frame(json!({ "progress": { "progress": 1 } }).to_string());
    bytes.extend(frame(text_result("done").to_string()));
    parent.wire(n).send_bytes(&bytes);
    // The parent violates the protocol, so the client may get an error or the answer, but exactly one of
    // them.
    let answer = client.receive();
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!(messages_so_far(&mut client), Vec::<Value>::new());
    parent.serve_one(&mut client, "later");
    parent.end(client);
}

#[test]
fn a_cancelled_call_closes_its_connection_and_is_never_answered() {
    let mut parent = Parent::start_concurrent();
    let mut client = parent.client();
    let cancelled = client.start_call("greet", json!({ "who": "cancelled" }));
    let (one, _) = parent.next_request();
    let other = client.start_call("greet", json!({ "who": "other" }));
    let (two, _) = parent.next_request();

    client.cancel(cancelled);
    parent.wire(one).expect_closed();
    parent.close(one);
    parent.answer(two, &text_result("other"));
    let answer = client.receive();
    assert_eq!(answer["id"], other, "{answer}");
    assert_eq!(answer["result"], text_result("other")["result"]);
    assert_eq!(parent.serve_one(&mut client, "later"), two);
    parent.expect_quiet();
    assert_eq!(messages_so_far(&mut client), Vec::<Value>::new());
    parent.end(client);
}

#[test]
fn an_answer_that_crosses_a_cancellation_never_goes_to_another_call() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    for n in 0..50 {
        let id = client.start_call("greet", json!({ "who": "cancelled" }));
        let (wire, _) = parent.next_request();
        client.cancel(id);
        // The bridge may already have closed the connection.
        _ = rustix::net::send(
            parent.wire(wire),
            &frame(text_result("late").to_string()),
            rustix::net::SendFlags::NOSIGNAL,
        );
        let own = format!("own {n}");
        let next = client.start_call("greet", json!({ "who": own }));
        let (wire, asked) = parent.next_request();
        assert_eq!(asked, request("greet", json!({ "who": own })));
        parent.answer(wire, &text_result(&own));
        loop {
            let message = client.receive();
            if message["id"] == next {
                assert_eq!(message["result"], text_result(&own)["result"]);
                break;
            }
            // The answer may have been sent before the cancellation arrived; then it has the call's own id.
            assert_eq!(message["id"], id, "{message}");
            assert_eq!(message["result"], text_result("late")["result"]);
        }
    }
    parent.end(client);
}

#[test]
fn arguments_of_exactly_the_limit_pass_and_one_byte_more_harms_no_connection() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let id = client.start_call("greet", json!({ "who": "" }));
    let (n, payload) = parent.next_payload();
    parent.answer(n, &text_result("small"));
    client.answer(id);
    let largest = MAX_MESSAGE_SIZE - payload.len();

    for over in [largest + 1, MAX_MESSAGE_SIZE, 2 * MAX_MESSAGE_SIZE] {
        let answer = client.call("greet", json!({ "who": "x".repeat(over) }));
        assert_error_type(&answer, "IPCMessageSizeError");
        assert_eq!(parent.serve_one(&mut client, "unharmed"), n);
    }

    let id = client.start_call("greet", json!({ "who": "x".repeat(largest) }));
    let (used, payload) = parent.next_payload();
    assert_eq!((used, payload.len()), (n, MAX_MESSAGE_SIZE));
    parent.answer(n, &text_result("large"));
    assert_eq!(client.answer(id)["result"], text_result("large")["result"]);
    assert_eq!(parent.connections.len(), 1);
    parent.end(client);
}

#[test]
fn an_answer_of_exactly_the_limit_passes() {
    let mut parent = Parent::start();
    let mut client = parent.client();
    let around = text_result("").to_string().len();
    let answer = text_result(&"x".repeat(MAX_MESSAGE_SIZE - around));
    assert_eq!(answer.to_string().len(), MAX_MESSAGE_SIZE);
    let id = client.start_call("greet", json!({}));
    let (n, _) = parent.next_request();
    parent.answer(n, &answer);
    assert!(client.answer(id)["result"] == answer["result"], "not the answer that was sent");
    assert_eq!(parent.serve_one(&mut client, "later"), n);
    parent.end(client);
}

/// Listens, takes one connection, and prints whether a byte came over it.
const LISTEN: &str = "
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
s.listen()
s.settimeout(120)
print('listening', flush=True)
c, _ = s.accept()
c.settimeout(120)
try:
    asked = c.recv(1) != b''
except ConnectionResetError:
    asked = False
print('asked' if asked else 'refused', flush=True)
";

/// What a listener prints about a bridge's call, and what the bridge's client gets.
fn call_to(command: &mut Command) -> (String, Value) {
    let parent = Parent::absent();
    std::fs::set_permissions(parent.dir.path(), Permissions::from_mode(0o777)).unwrap();
    let mut listener = Process(command.arg(parent.socket()).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(listener.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "listening");
    let mut client = parent.client();
    let answer = client.call("greet", json!({ "who": "a stranger" }));
    let seen = lines.next().unwrap().unwrap();
    assert!(listener.wait_within(PATIENCE).success());
    parent.end(client);
    (seen, answer)
}

#[test]
fn a_parent_of_another_user_is_never_asked() {
    let Some(mut stranger) = python_as_another_user(LISTEN) else { return };
    let (seen, answer) = call_to(&mut stranger);
    assert_eq!(seen, "refused");
    assert_error_type(&answer, "IPCConnectionError");
    // The same listener run by this user gets the call, so the refusal was for the user.
    let (seen, _) = call_to(&mut python(LISTEN));
    assert_eq!(seen, "asked");
}
