//! Spans of calls, as an OpenTelemetry collector gets them from both processes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const SECRET: &str = "hunter2-in-the-payload";

/// The checked parts of a span.
#[derive(Debug, Default)]
struct Exported {
    trace_id: String,
    span_id: String,
    parent_span_id: String,
    name: String,
    status: u64,
    fields: HashMap<String, String>,
}

/// A collector: receives OTLP over HTTP, and passes the spans on.
fn collector() -> (String, Receiver<Exported>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, spans) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            for span in take_request(stream.unwrap()) {
                _ = sender.send(span);
            }
        }
    });
    (url, spans)
}

fn take_request(mut stream: TcpStream) -> Vec<Exported> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_ascii_lowercase());
    }
    assert_eq!(lines[0], "post /v1/traces http/1.1");
    assert!(lines.contains(&"content-type: application/x-protobuf".to_owned()), "{lines:?}");
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert!(!body.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "a payload was exported");
    spans(&body)
}

/// The fields of a protobuf message: field number, and a number or bytes.
fn members(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut members = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, length) = match key & 7 {
            0 => (varint(&mut bytes), 0),
            1 => (0, 8),
            2 => (0, usize::try_from(varint(&mut bytes)).unwrap()),
            5 => (0, 4),
            other => panic!("wire type {other}"),
        };
        let (value, rest) = bytes.split_at(length);
        members.push((key >> 3, number, value));
        bytes = rest;
    }
    members
}

fn of(bytes: &[u8], field: u64) -> impl Iterator<Item = &[u8]> {
    members(bytes).into_iter().filter(move |(found, ..)| *found == field).map(|(_, _, value)| value)
}

/// `ExportTraceServiceRequest`, down to the spans.
fn spans(request: &[u8]) -> Vec<Exported> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut spans = Vec::new();
    for found in of(request, 1).flat_map(|resource| of(resource, 2)).flat_map(|scope| of(scope, 2)) {
        let mut span = Exported::default();
        for (field, _, value) in members(found) {
            match field {
                1 => span.trace_id = hex(value),
                2 => span.span_id = hex(value),
                4 => span.parent_span_id = hex(value),
                5 => span.name = text(value),
                9 => {
                    let (key, any) = (of(value, 1).next().unwrap(), of(value, 2).next().unwrap());
                    let value = match members(any)[0] {
                        (1, _, value) => text(value),
                        (_, number, _) => number.to_string(),
                    };
                    span.fields.insert(text(key), value);
                }
                15 => {
                    span.status =
                        members(value).iter().find(|(field, ..)| *field == 3).map_or(0, |found| found.1);
                }
                _ => {}
            }
        }
        spans.push(span);
    }
    spans
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn toolbridge(url: &str, dir: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
    for variable in ["TOOLBRIDGE_LOG", "TOOLBRIDGE_BRIDGE", "TOOLBRIDGE_TRACE", "OTEL_SDK_DISABLED"] {
        command.env_remove(variable);
    }
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", url).env("TMPDIR", dir.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Calls tools through a bridge, with that `_meta`; both processes have ended when it returns.
fn call(url: &str, calls: &[(&str, Value)], meta: &Value) -> Vec<Value> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("trace.jsonl");
    let mut host =
        Ended(toolbridge(url, &dir).args(["demo", "--serve", "--trace"]).arg(&file).spawn().unwrap());
    let mut hello = String::new();
    BufReader::new(host.0.stdout.take().unwrap()).read_line(&mut hello).unwrap();
    let hello: Value = serde_json::from_str(&hello).unwrap();
    let path = |key: &str| hello[key].as_str().unwrap().to_owned();
    let mut bridge = toolbridge(url, &dir);
    bridge.args(["bridge", &path("socket"), &path("schema")]).env("TOOLBRIDGE_TRACE", &file);
    let mut bridge = Ended(bridge.spawn().unwrap());
    let mut stdin = bridge.0.stdin.take().unwrap();
    let mut answers = BufReader::new(bridge.0.stdout.take().unwrap()).lines();
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let mut ask = |id: usize, method: &str, params: Value| {
        writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .unwrap();
        answers.next().unwrap().unwrap()
    };
    ask(0, "initialize", hello);
    for (place, (tool, arguments)) in calls.iter().enumerate() {
        ask(place + 1, "tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }));
    }
    drop(stdin);
    assert!(bridge.0.wait().unwrap().success());
    drop(host.0.stdin.take());
    assert!(host.0.wait().unwrap().success());
    let lines = std::fs::read_to_string(&file).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn spans_of_both_processes_are_parts_of_the_clients_trace() {
    let (url, spans) = collector();
    let meta = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "claudecode/toolUseId": "toolu_9",
    });
    let arguments = json!({ "text": SECRET });
    let lines = call(&url, &[("echo", arguments.clone())], &meta);
    let got: Vec<_> = (0..2).map(|_| spans.recv_timeout(PATIENCE).unwrap()).collect();
    let of = |process: &str| got.iter().find(|span| span.fields["process"] == process).unwrap();
    let (bridge, parent) = (of("bridge"), of("parent"));
    for span in [bridge, parent] {
        assert_eq!(span.name, "tool_call");
        assert_eq!(span.trace_id, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((span.fields["tool"].as_str(), span.fields["outcome"].as_str()), ("echo", "ok"));
        assert_eq!(span.fields["tool_use_id"], "toolu_9");
        assert_eq!(span.fields["arguments_bytes"], arguments.to_string().len().to_string());
        assert!(span.fields["result_bytes"].parse::<u64>().unwrap() > 0);
        assert!(span.fields.contains_key("began_ns") && span.fields.contains_key("total_ns"), "{span:?}");
        assert_ne!(span.status, 2);
    }
    assert_eq!(bridge.parent_span_id, "b7ad6b7169203331");
    assert_eq!(parent.parent_span_id, bridge.span_id);
    // The trace file has the same ids.
    for (process, span) in [("bridge", bridge), ("parent", parent)] {
        let line =
            lines.iter().find(|line| line["event"] == "call_end" && line["process"] == process).unwrap();
        assert_eq!((&line["trace_id"], &line["span_id"]), (&json!(span.trace_id), &json!(span.span_id)));
    }
}

#[test]
fn a_failed_call_is_a_failed_span_in_a_new_trace() {
    let (url, spans) = collector();
    call(&url, &[("fail", json!({ "message": SECRET }))], &json!({}));
    let got: Vec<_> = (0..2).map(|_| spans.recv_timeout(PATIENCE).unwrap()).collect();
    let of = |process: &str| got.iter().find(|span| span.fields["process"] == process).unwrap();
    let (bridge, parent) = (of("bridge"), of("parent"));
    assert_eq!((bridge.parent_span_id.as_str(), &parent.trace_id), ("", &bridge.trace_id));
    assert_eq!(parent.parent_span_id, bridge.span_id);
    for span in [bridge, parent] {
        assert_eq!((span.status, span.fields["outcome"].as_str()), (2, "tool_error"), "{span:?}");
        assert_eq!(span.fields["error_type"], "DemoError");
    }
}

#[test]
fn an_unreachable_collector_causes_no_failure() {
    for url in ["http://127.0.0.1:1", "https://127.0.0.1:1"] {
        let lines = call(url, &[("echo", json!({ "text": "x" }))], &json!({}));
        assert_eq!(lines.iter().filter(|line| line["event"] == "call_end").count(), 2, "{url}");
    }
}
