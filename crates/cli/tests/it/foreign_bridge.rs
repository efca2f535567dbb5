//! A bridge written by hand from the protocol's document, byte by byte, against our parent.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Host, PATIENCE, eventually, files, start_host, toolbridge};
use crate::wire::{
    MAX_MESSAGE_SIZE, QUIET, Wire, frame, parse, python, python_as_another_user, request, text_result,
};

/// Ends the host normally, and checks that nothing is left.
#[track_caller]
fn end(mut host: Host) {
    drop(host.stdin.take());
    assert_eq!(host.process.wait_within(PATIENCE).code(), Some(0));
    assert_eq!(host.files(), Vec::<String>::new());
}

/// Removes `isError: false`, which means the same as no `isError`.
fn without_default(mut answer: Value) -> Value {
    if let Some(result) = answer.get_mut("result").and_then(Value::as_object_mut)
        && result.get("isError") == Some(&json!(false))
    {
        result.remove("isError");
    }
    answer
}

#[track_caller]
fn assert_text(answer: Value, text: &str) {
    assert_eq!(without_default(answer), without_default(text_result(text)));
}

/// Checks that the connection still serves calls.
#[track_caller]
fn assert_lives(wire: &mut Wire) {
    assert_text(wire.call("echo", json!({ "text": "alive" })), "alive");
}

/// Checks that the answer is the document's error response, with this type; returns its message.
#[track_caller]
fn assert_error(answer: &Value, type_name: &str) -> String {
    let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("no message in {answer}"));
    assert_eq!(answer, &json!({ "error": { "message": message, "type": type_name } }));
    assert!(!message.is_empty());
    message.to_owned()
}

/// Sends a payload and checks the error response; returns its message.
#[track_caller]
fn check_error(wire: &mut Wire, payload: &Value, type_name: &str) -> String {
    wire.send(payload.to_string());
    assert_error(&wire.receive(), type_name)
}

/// Starts a countdown, so that no other exclusive tool can run.
fn hold_the_exclusive_lane(host: &Host) -> Wire {
    let mut holder = Wire::connect(&host.socket);
    let params =
        json!({ "name": "countdown", "arguments": { "from": 1_000 }, "meta": { "progressToken": 1 } });
    holder.send(json!({ "method": "call_tool", "params": params }).to_string());
    let first = holder.receive();
    assert!(first.get("progress").is_some(), "not progress: {first}");
    holder
}

/// Runs work that has no timeout of its own.
#[track_caller]
fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    result.recv_timeout(limit).expect("done in time")
}

fn open_files(host: &Host) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", host.process.pid())).unwrap().count()
}

/// The CPU time that the host has used; the kernel counts it in hundredths of a second.
fn processor_time(host: &Host) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", host.process.pid())).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let ticks = |index: usize| after_name.split_whitespace().nth(index).unwrap().parse::<u64>().unwrap();
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

fn raise_open_files_limit(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).unwrap();
    }
}

#[test]
fn the_documents_request_gets_the_documents_answer() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    let as_printed = r#"{
    "method": "call_tool",
    "params": {
        "name": "echo",
        "arguments": { "text": "hello" }
    }
}"#;
    wire.send(as_printed);
    assert_text(wire.receive(), "hello");
    drop(wire);
    end(host);
}

#[test]
fn an_answer_is_utf8_even_if_the_request_was_escaped() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    for (written, text) in [
        (r#""日本語 \u65e5\u672c""#, "日本語 日本"),
        (r#""\ud83d\ude00 😀""#, "😀 😀"),
        (r#""\u0000\u001f\u007f""#, "\0\u{1f}\u{7f}"),
        (r#""line\nline\r\n\t\"\\\/""#, "line\nline\r\n\t\"\\/"),
        (r#""\u2028\u2029\ufeff""#, "\u{2028}\u{2029}\u{feff}"),
        (r#""""#, ""),
    ] {
        wire.send(format!(
            r#"{{"method":"call_tool","params":{{"name":"echo","arguments":{{"text":{written}}}}}}}"#
        ));
        assert_text(wire.receive(), text);
    }
    drop(wire);
    end(host);
}

#[test]
fn one_connection_serves_many_requests() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    for n in 0..100 {
        assert_text(wire.call("add", json!({ "a": n, "b": 1 })), &(n + 1).to_string());
    }
    assert_text(wire.call("add", json!({ "a": 1.25, "b": 1.25 })), "2.5");
    assert_text(wire.call("add", json!({ "a": 40, "b": 2 })), "42");
    drop(wire);
    end(host);
}

#[test]
fn connections_do_not_wait_for_each_other() {
    let host = Host::start();
    let mut slow = Wire::connect(&host.socket);
    slow.send(request("wait", json!({ "ms": 1_000 })).to_string());
    let mut quick: Vec<_> = (0..8).map(|_| Wire::connect(&host.socket)).collect();
    for (n, wire) in quick.iter_mut().enumerate() {
        let text = format!("quick {n}");
        assert_text(wire.call("echo", json!({ "text": text })), &text);
    }
    slow.expect_silence();
    assert!(slow.receive().get("result").is_some());
    drop((slow, quick));
    end(host);
}

#[test]
fn two_frames_in_one_write_never_mix_their_answers() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    let mut bytes = frame(request("echo", json!({ "text": "first" })).to_string());
    bytes.extend(frame(request("echo", json!({ "text": "second" })).to_string()));
    wire.send_bytes(&bytes);
    assert_text(wire.receive(), "first");
    // The document forbids the second frame, so a close is allowed too.
    if let Some(payload) = wire.receive_bytes() {
        assert_text(parse(&payload), "second");
    }
    assert_lives(&mut Wire::connect(&host.socket));
    drop(wire);
    end(host);
}

#[test]
fn pictures_come_as_image_blocks() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    let answer = wire.call("picture", json!({}));
    let content = answer["result"]["content"].as_array().unwrap();
    let image = content.iter().find(|block| block["type"] == "image").unwrap();
    assert!(image["mimeType"].as_str().unwrap().starts_with("image/"), "{image}");
    assert!(!image["data"].as_str().unwrap().is_empty());
    drop(wire);
    end(host);
}

#[test]
fn every_error_has_its_type_and_the_connection_goes_on() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);

    let unknown_method = json!({ "method": "list_tools", "params": {} });
    let message = check_error(&mut wire, &unknown_method, "UnknownMethodError");
    assert!(message.contains("list_tools"), "{message}");

    let message = check_error(&mut wire, &request("no_such_tool", json!({})), "ToolNotFoundError");
    assert!(message.contains("no_such_tool"), "{message}");

    for params in
        [json!({ "arguments": {} }), json!({ "name": 7, "arguments": {} }), json!("echo"), json!([])]
    {
        let bad = json!({ "method": "call_tool", "params": params });
        check_error(&mut wire, &bad, "InvalidParamsError");
    }
    check_error(&mut wire, &json!({ "method": "call_tool" }), "InvalidParamsError");

    for (tool, arguments, path) in [
        ("write_note", json!({ "text": "x", "ms": "soon" }), "ms"),
        ("echo", json!({ "text": 7 }), "text"),
        ("echo", json!({}), "text"),
        ("add", json!({ "a": 1, "b": "two" }), "b"),
    ] {
        let message = check_error(&mut wire, &request(tool, arguments), "ToolArgumentsError");
        assert!(message.contains(path), "`{path}` is not in `{message}`");
    }

    let failing = request("fail", json!({ "message": "the disk is on fire" }));
    assert_eq!(check_error(&mut wire, &failing, "DemoError"), "the disk is on fire");

    check_error(&mut wire, &request("panic", json!({})), "ToolPanicError");

    assert_lives(&mut wire);
    drop(wire);
    end(host);
}

#[test]
fn arguments_that_are_no_object_never_reach_the_tool() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    for arguments in [json!([]), json!("text"), json!(7), json!(true)] {
        let answer = wire.call("picture", arguments.clone());
        let type_name = answer["error"]["type"].as_str().unwrap_or_else(|| panic!("{arguments}: {answer}"));
        assert!(["InvalidParamsError", "ToolArgumentsError"].contains(&type_name), "{arguments}: {answer}");
    }
    assert_lives(&mut wire);
    drop(wire);
    end(host);
}

#[test]
fn a_result_over_the_limit_is_an_error_and_the_connection_goes_on() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    let sized = |wire: &mut Wire, bytes: usize| {
        wire.send(request("blob", json!({ "bytes": bytes })).to_string());
        wire.receive_bytes().unwrap()
    };
    let around = sized(&mut wire, 1_000).len() - 1_000;
    let largest = MAX_MESSAGE_SIZE - around;

    assert_eq!(sized(&mut wire, largest).len(), MAX_MESSAGE_SIZE);
    for over in [largest + 1, MAX_MESSAGE_SIZE] {
        assert_error(&parse(&sized(&mut wire, over)), "IPCMessageSizeError");
        assert_lives(&mut wire);
    }
    assert_eq!(sized(&mut wire, largest).len(), MAX_MESSAGE_SIZE);
    drop(wire);
    end(host);
}

#[test]
fn unknown_fields_are_ignored() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    let unknown = r#"{"n":18446744073709551616,"x":1e999,"deep":[[[{}]]],"null":null}"#;
    wire.send(format!(
        r#"{{"id":7,"jsonrpc":"2.0","x":{unknown},"method":"call_tool","params":{{"x":{unknown},"name":"echo",
        "arguments":{{"text":"hello"}},"meta":{{"toolUseId":"toolu_1","x":{unknown}}}}}}}"#
    ));
    assert_text(wire.receive(), "hello");
    drop(wire);
    end(host);
}

#[test]
fn no_progress_is_sent_to_a_bridge_that_gave_no_token() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    let id_only = json!({ "toolUseId": "toolu_1" });
    let no_token = json!({ "progressToken": null });
    for meta in [None, Some(json!({})), Some(id_only), Some(no_token)] {
        let mut countdown = request("countdown", json!({ "from": 3 }));
        if let Some(meta) = meta {
            countdown["params"]["meta"] = meta;
        }
        wire.send(countdown.to_string());
        let answer = wire.receive();
        assert!(answer.get("result").is_some(), "not the answer: {answer}");
    }
    assert_lives(&mut wire);
    drop(wire);
    end(host);
}

#[test]
fn a_meta_without_a_token_is_ignored() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    for meta in [json!({ "toolUseId": null }), json!({ "x": [1] }), json!(null)] {
        let mut echo = request("echo", json!({ "text": "hello" }));
        echo["params"]["meta"] = meta;
        wire.send(echo.to_string());
        assert_text(wire.receive(), "hello");
    }
    drop(wire);
    end(host);
}

#[test]
fn progress_comes_in_order_before_the_answer() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    for token in [json!(7), json!("seven"), json!(0)] {
        let mut countdown = request("countdown", json!({ "from": 3 }));
        countdown["params"]["meta"] = json!({ "progressToken": token });
        wire.send(countdown.to_string());
        let mut steps = Vec::new();
        let answer = loop {
            let message = wire.receive();
            let Some(progress) = message.get("progress") else { break message };
            assert_eq!(message.as_object().unwrap().len(), 1, "{message}");
            for (key, value) in progress.as_object().unwrap() {
                match key.as_str() {
                    "progress" | "total" => assert!(value.is_number(), "{message}"),
                    "message" => assert!(value.is_string(), "{message}"),
                    _ => panic!("`{key}` in {message}"),
                }
            }
            steps.push(progress["progress"].as_f64().unwrap());
        };
        assert!(steps.len() >= 3, "three steps, not {steps:?}");
        assert!(steps.is_sorted_by(|before, after| before < after), "{steps:?}");
        assert!(answer.get("result").is_some(), "{answer}");
        // No late progress arrives as the next call's first frame.
        assert_lives(&mut wire);
    }
    drop(wire);
    end(host);
}

#[test]
fn a_broken_frame_gets_one_error_and_a_close_and_others_live() {
    let host = Host::start();
    let mut witness = Wire::connect(&host.socket);
    assert_lives(&mut witness);
    let at_rest = open_files(&host);
    witness.send(request("wait", json!({ "ms": 1_000 })).to_string());

    let over_the_limit = u32::try_from(MAX_MESSAGE_SIZE + 1).unwrap().to_be_bytes().to_vec();
    for (name, bytes, type_name) in [
        ("length 0", vec![0; 4], "IPCError"),
        ("length 10,485,761", over_the_limit, "IPCMessageSizeError"),
        ("length 0xFFFFFFFF", vec![0xFF; 4], "IPCMessageSizeError"),
        ("invalid UTF-8", frame(b"{\"method\":\"\xFF\xFE\"}"), "IPCError"),
        ("a UTF-8 surrogate", frame(b"{\"method\":\"\xED\xA0\x80\"}"), "IPCError"),
        ("invalid JSON", frame("{\"method\":"), "IPCError"),
        ("two values", frame("{} {}"), "IPCError"),
        (
            "NaN",
            frame(r#"{"method":"call_tool","params":{"name":"echo","arguments":{"text":NaN}}}"#),
            "IPCError",
        ),
        ("a raw newline in a string", frame("{\"method\":\"a\nb\"}"), "IPCError"),
        ("a NUL", frame("\0"), "IPCError"),
        ("spaces", frame("   "), "IPCError"),
        ("an array", frame("[]"), "IPCError"),
        ("a string", frame("\"call_tool\""), "IPCError"),
        ("a number", frame("7"), "IPCError"),
        ("null", frame("null"), "IPCError"),
    ] {
        let mut wire = Wire::connect(&host.socket);
        wire.send_bytes(&bytes);
        let answer = wire.receive();
        assert_eq!(answer["error"]["type"], type_name, "{name}: {answer}");
        assert_error(&answer, type_name);
        wire.expect_closed();
    }

    assert!(witness.receive().get("result").is_some());
    assert_lives(&mut witness);
    eventually("the closed connections are gone", PATIENCE, || open_files(&host) == at_rest);
    drop(witness);
    end(host);
}

#[test]
fn bytes_behind_a_broken_frame_are_never_served() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    let mut bytes = frame("not JSON");
    bytes.extend(frame(request("write_note", json!({ "text": "smuggled", "ms": 600_000 })).to_string()));
    wire.send_bytes(&bytes);
    assert_error(&wire.receive(), "IPCError");
    wire.expect_closed();
    // If the second one had run, it would block every other exclusive tool.
    let mut witness = Wire::connect(&host.socket);
    let answer = witness.call("write_note", json!({ "text": "honest" }));
    assert!(answer.get("result").is_some(), "{answer}");
    drop((wire, witness));
    end(host);
}

#[test]
fn announced_bytes_are_not_reserved() {
    let host = Host::start();
    let mut witness = Wire::connect(&host.socket);
    assert_lives(&mut witness);
    let at_rest = open_files(&host);
    let before = host.process.memory_kib("VmSize:");

    let mut huge = Wire::connect(&host.socket);
    huge.send_bytes(&[0xFF; 4]);
    assert_error(&huge.receive(), "IPCMessageSizeError");
    drop(huge);

    let announced = u32::try_from(MAX_MESSAGE_SIZE).unwrap().to_be_bytes();
    let patient: Vec<_> = (0..200)
        .map(|_| {
            let mut wire = Wire::connect(&host.socket);
            wire.send_bytes(&announced);
            wire.send_bytes(b"{");
            wire
        })
        .collect();
    eventually("the host has them all", PATIENCE, || open_files(&host) == at_rest + patient.len());
    assert_lives(&mut witness);
    let grown = host.process.memory_kib("VmSize:").saturating_sub(before);
    assert!(grown < 512 * 1024, "{grown} KiB more for 200 frames that never came");

    drop(patient);
    eventually("the closed connections are gone", PATIENCE, || open_files(&host) == at_rest);
    drop(witness);
    end(host);
}

#[test]
fn a_frame_may_come_byte_by_byte() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    for byte in frame(request("echo", json!({ "text": "drop by drop" })).to_string()) {
        wire.send_bytes(&[byte]);
    }
    assert_text(wire.receive(), "drop by drop");
    assert_lives(&mut wire);
    drop(wire);
    end(host);
}

#[test]
fn half_a_frame_and_a_close_affect_no_other_connection() {
    let host = Host::start();
    let mut witness = Wire::connect(&host.socket);
    assert_lives(&mut witness);
    let at_rest = open_files(&host);
    let whole = frame(request("echo", json!({ "text": "torn" })).to_string());
    for cut in [1, 3, 4, 5, whole.len() - 1] {
        let mut gone = Wire::connect(&host.socket);
        gone.send_bytes(&whole[..cut]);
        drop(gone);

        // A peer that only stops sending gets an error or a close, never an answer.
        let mut listening = Wire::connect(&host.socket);
        listening.send_bytes(&whole[..cut]);
        listening.end_sending();
        if let Some(payload) = listening.receive_bytes() {
            assert!(parse(&payload).get("error").is_some(), "cut at {cut}");
            listening.expect_closed();
        }
    }
    eventually("the torn connections are gone", PATIENCE, || open_files(&host) == at_rest);
    assert_lives(&mut witness);
    drop(witness);
    end(host);
}

#[test]
fn many_unfinished_big_requests_hold_up_no_other_call() {
    let host = Host::start();
    let whole = frame(request("echo", json!({ "text": "x".repeat(10_000_000) })).to_string());
    let unfinished: Vec<_> = (0..16)
        .map(|_| {
            let mut wire = Wire::connect(&host.socket);
            wire.send_bytes(&whole[..1_000_000]);
            wire
        })
        .collect();
    let mut witness = Wire::connect(&host.socket);
    assert_lives(&mut witness);
    let text = "large".repeat(400_000);
    assert_text(witness.call("echo", json!({ "text": text })), &text);
    drop((unfinished, witness));
    end(host);
}

#[test]
fn a_started_frame_has_thirty_seconds() {
    let host = Host::start();
    let mut idle = Wire::connect(&host.socket);
    let mut slow = Wire::connect(&host.socket);
    let started = Instant::now();
    slow.send_bytes(&[0, 0]);
    // Longer than the timeout of a single read, so wait in steps.
    within(PATIENCE, move || {
        while started.elapsed() < Duration::from_secs(29) {
            slow.expect_silence();
        }
        if let Some(payload) = slow.receive_bytes() {
            assert!(parse(&payload).get("error").is_some());
            slow.expect_closed();
        }
    });
    // A connection without a started frame has no deadline.
    assert_lives(&mut idle);
    drop(idle);
    end(host);
}

/// Closes a connection whose call holds the exclusive lane, and checks that the next call gets it.
#[track_caller]
fn check_close_cancels(host: &Host, holder: Wire) {
    let mut next = Wire::connect(&host.socket);
    next.send(request("write_note", json!({ "text": "next" })).to_string());
    next.expect_silence();
    drop(holder);
    let answer = next.receive();
    assert!(answer.get("result").is_some(), "{answer}");
}

#[test]
fn a_close_during_a_call_cancels_its_handler() {
    let host = Host::start();
    let mut holder = Wire::connect(&host.socket);
    holder.send(request("write_note", json!({ "text": "long", "ms": 600_000 })).to_string());
    holder.expect_silence();
    check_close_cancels(&host, holder);
    end(host);
}

#[test]
fn a_close_between_two_progress_frames_cancels_the_handler() {
    let host = Host::start();
    let holder = hold_the_exclusive_lane(&host);
    check_close_cancels(&host, holder);
    end(host);
}

#[test]
fn a_close_cancels_a_handler_that_is_still_waiting_for_its_turn() {
    let host = Host::start();
    let at_rest = open_files(&host);
    let holder = hold_the_exclusive_lane(&host);
    let mut waiting = Wire::connect(&host.socket);
    waiting.send(request("write_note", json!({ "text": "waiting", "ms": 600_000 })).to_string());
    waiting.expect_silence();
    let mut next = Wire::connect(&host.socket);
    next.send(request("write_note", json!({ "text": "next" })).to_string());
    next.expect_silence();

    drop(waiting);
    drop(holder);
    let answer = next.receive();
    assert!(answer.get("result").is_some(), "{answer}");
    drop(next);
    eventually("every connection is gone", PATIENCE, || open_files(&host) == at_rest);
    end(host);
}

#[test]
fn tools_that_only_read_run_beside_one_that_writes() {
    let host = Host::start();
    let holder = hold_the_exclusive_lane(&host);
    assert_lives(&mut Wire::connect(&host.socket));
    drop(holder);
    end(host);
}

#[test]
fn sixty_four_waiting_calls_overlap() {
    let host = Host::start();
    let mut wires: Vec<_> = (0..64).map(|_| Wire::connect(&host.socket)).collect();
    for wire in &mut wires {
        assert_lives(wire);
    }
    let started = Instant::now();
    for wire in &mut wires {
        wire.send(request("wait", json!({ "ms": 1000 })).to_string());
    }
    for wire in &mut wires {
        assert!(wire.receive().get("result").is_some());
    }
    let all = started.elapsed();
    assert!(all >= Duration::from_secs(1), "{all:?}");
    // One after the other, they would take longer on any machine.
    assert!(all < Duration::from_secs(64), "{all:?}");
    drop(wires);
    end(host);
}

#[test]
fn writing_tools_run_one_at_a_time() {
    const EACH: Duration = Duration::from_millis(100);
    let host = Host::start();
    let mut wires: Vec<_> = (0..8).map(|_| Wire::connect(&host.socket)).collect();
    let started = Instant::now();
    for (n, wire) in wires.iter_mut().enumerate() {
        wire.send(request("write_note", json!({ "text": n.to_string(), "ms": 100 })).to_string());
    }
    let readers: Vec<_> = wires
        .into_iter()
        .map(|mut wire| {
            thread::spawn(move || {
                assert!(wire.receive().get("result").is_some());
                started.elapsed()
            })
        })
        .collect();
    let mut ended: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    ended.sort();
    for (n, ended) in (1..).zip(ended) {
        assert!(ended >= EACH * n, "the {n}th note was done after {ended:?}");
    }
    end(host);
}

#[test]
fn a_request_of_exactly_the_limit_works() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);

    let mut padded = request("echo", json!({ "text": "small" })).to_string();
    padded.extend(std::iter::repeat_n(' ', MAX_MESSAGE_SIZE - padded.len()));
    wire.send(&padded);
    assert_text(wire.receive(), "small");

    let around = request("echo", json!({ "text": "" })).to_string().len();
    let text = "x".repeat(MAX_MESSAGE_SIZE - around);
    let full = request("echo", json!({ "text": text })).to_string();
    assert_eq!(full.len(), MAX_MESSAGE_SIZE);
    wire.send(full);
    let answer = wire.receive();
    assert!(answer["result"]["content"][0]["text"] == text.as_str(), "not the text that was sent");

    drop(wire);
    end(host);
}

#[test]
fn nesting_without_end_does_not_crash_the_host() {
    let host = Host::start();
    let mut witness = Wire::connect(&host.socket);
    assert_lives(&mut witness);
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    for value in [nested(100_000), objects(100_000)] {
        for payload in [
            format!(r#"{{"method":"call_tool","params":{{"name":"echo","arguments":{{"text":{value}}}}}}}"#),
            format!(
                r#"{{"method":"call_tool","params":{{"name":"echo","arguments":{{"text":"a"}},"x":{value}}}}}"#
            ),
            format!(
                r#"{{"method":"call_tool","params":{{"name":"echo","arguments":{{"x":{value},"text":"a"}}}}}}"#
            ),
            format!(r#"{{"method":"call_tool","params":{value}}}"#),
            format!(r#"{{"method":{value}}}"#),
            value.clone(),
        ] {
            let mut wire = Wire::connect(&host.socket);
            wire.send(&payload);
            let answer = wire.receive();
            let answered = answer.get("result").is_some() || answer["error"]["type"].is_string();
            assert!(answered, "{answer}");
        }
    }
    let mut wire = Wire::connect(&host.socket);
    wire.send("[".repeat(MAX_MESSAGE_SIZE));
    assert_error(&wire.receive(), "IPCError");
    wire.expect_closed();
    assert_lives(&mut witness);
    drop(witness);
    end(host);
}

#[test]
fn numbers_keep_every_digit() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    let digits = "18446744073709551615 -9223372036854775808 0.1000000000000000055511151231257827021181583404541015625 \
                  1e400 123456789012345678901234567890";
    assert_text(wire.call("echo", json!({ "text": digits })), digits);
    drop(wire);
    end(host);
}

#[test]
fn duplicate_keys_are_one_answer() {
    let host = Host::start();
    let mut wire = Wire::connect(&host.socket);
    wire.send(
        r#"{"method":"call_tool","method":"call_tool","params":{"name":"echo","arguments":{"text":"a","text":"b"}}}"#,
    );
    let answer = wire.receive();
    let answered = answer.get("result").is_some() ^ answer["error"]["type"].is_string();
    assert!(answered, "{answer}");
    assert_lives(&mut Wire::connect(&host.socket));
    drop(wire);
    end(host);
}

#[test]
fn a_bridge_that_never_reads_delays_no_other_bridge() {
    let host = Host::start();
    let mut deaf: Vec<_> = (0..4).map(|_| Wire::connect(&host.socket)).collect();
    for wire in &mut deaf {
        wire.send(request("blob", json!({ "bytes": 5_000_000 })).to_string());
    }
    let mut witness = Wire::connect(&host.socket);
    for _ in 0..20 {
        assert_lives(&mut witness);
    }
    // The host ends in time although four answers were never read.
    end(host);
    drop((deaf, witness));
}

#[test]
fn unread_answers_use_bounded_memory_and_delay_no_other_call() {
    const CALLS: usize = 80;
    const BYTES: usize = 9_000_000;
    let host = Host::start();
    let mut deaf: Vec<_> = (0..CALLS).map(|_| Wire::connect(&host.socket)).collect();
    for wire in &mut deaf {
        wire.send(request("blob", json!({ "bytes": BYTES })).to_string());
    }
    let mut witness = Wire::connect(&host.socket);
    for _ in 0..20 {
        assert_lives(&mut witness);
    }
    for wire in &deaf {
        let mut ends = [PollFd::new(wire, PollFlags::IN)];
        poll(&mut ends, Some(&Timespec::try_from(PATIENCE).unwrap())).unwrap();
        assert!(ends[0].revents().contains(PollFlags::IN), "a call did not end");
    }
    let most = host.process.memory_kib("VmHWM:") * 1024;
    assert!(most < 750_000_000, "{most} bytes at most for {CALLS} answers of {BYTES}");
    // Calls whose answer got no room get an error.
    let (mut results, mut errors) = (0, 0);
    for wire in &mut deaf {
        let answer = wire.receive();
        match answer["error"]["message"].as_str() {
            None => {
                assert_eq!(answer["result"]["content"][0]["text"].as_str().map(str::len), Some(BYTES));
                results += 1;
            }
            Some(message) => {
                assert_eq!(answer["error"]["type"], "IPCError");
                let want = "the answer of tool `blob` cannot be sent: 536870912 bytes of answers wait to be read, which \
                            is the limit; this one has 9";
                assert!(message.starts_with(want), "{message}");
                errors += 1;
            }
        }
    }
    assert!(results >= 50 && errors >= 15, "{results} results and {errors} errors");
    // Peers that read get every later answer.
    for wire in &mut deaf {
        wire.send(request("blob", json!({ "bytes": 1_000_000 })).to_string());
    }
    for wire in &mut deaf {
        assert!(wire.receive().get("result").is_some());
    }
    drop((deaf, witness));
    end(host);
}

#[test]
fn idle_connections_up_to_the_limit_and_beyond_disturb_no_open_call() {
    const LIMIT: usize = 1_024;
    raise_open_files_limit(4_096);
    let host = Host::start();
    let at_rest = open_files(&host);
    let mut caller = Wire::connect(&host.socket);
    assert_lives(&mut caller);
    caller.send(request("wait", json!({ "ms": 1_000 })).to_string());

    let socket = host.socket.clone();
    let mut idle: Vec<_> = within(PATIENCE, move || (0..1_100).map(|_| Wire::connect(&socket)).collect());
    eventually("the host is full", PATIENCE, || open_files(&host) == at_rest + LIMIT);
    assert!(caller.receive().get("result").is_some());

    // A connection over the limit is not served, and uses no CPU while it waits.
    let mut late = idle.pop().unwrap();
    late.send(request("echo", json!({ "text": "late" })).to_string());
    let used = processor_time(&host);
    late.expect_silence();
    let used = processor_time(&host).saturating_sub(used);
    assert!(used < QUIET / 3, "{used:?} of processor time in {QUIET:?} of waiting");
    assert_eq!(open_files(&host), at_rest + LIMIT);
    assert_lives(&mut caller);

    drop(idle);
    assert_text(late.receive(), "late");
    assert_lives(&mut caller);
    drop((caller, late));
    eventually("every connection is gone", PATIENCE, || open_files(&host) == at_rest);
    end(host);
}

/// Connects to the socket, sends the frame, and prints whether a byte came back.
pub(crate) const KNOCK: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(120)
s.connect(sys.argv[1])
try:
    s.sendall(bytes.fromhex(sys.argv[2]))
    served = s.recv(1) != b''
except (ConnectionResetError, BrokenPipeError):
    served = False
print('served' if served else 'refused')
";

#[test]
fn another_users_process_is_refused_even_if_the_socket_is_writable_for_all() {
    let Some(mut stranger) = python_as_another_user(KNOCK) else { return };
    let dir = TempDir::new().unwrap();
    let log = TempDir::new().unwrap();
    let log_file = log.path().join("stderr");
    let mut command = toolbridge();
    command.env("TMPDIR", dir.path()).env("TOOLBRIDGE_LOG", "warn").stderr(File::create(&log_file).unwrap());
    let (mut process, stdin, hello) = start_host(&mut command);
    let socket = hello["socket"].as_str().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();

    let bytes = frame(request("echo", json!({ "text": "let me in" })).to_string());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let knock = |command: &mut std::process::Command| {
        let output = command.args([socket, &hex]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(knock(&mut stranger), "refused\n");
    // The same request from a process of this user is served, so the refusal was for the user.
    assert_eq!(knock(&mut python(KNOCK)), "served\n");

    drop(stdin);
    assert_eq!(process.wait_within(PATIENCE).code(), Some(0));
    assert_eq!(files(dir.path()), Vec::<String>::new());
    let log = std::fs::read_to_string(&log_file).unwrap();
    assert!(log.contains("65534"), "the refusal is not in the log: {log:?}");
}
