//! Tools of other machines, with a real NATS server: `serve --nats` on each host, `serve --nats-tools` for
//! the callers.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{McpClient, PATIENCE, Process, eventually, run, text};
use crate::world::World;

/// Starts a NATS server; returns it and its address.
fn server() -> (Process, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(toolbridge_scripted::nats_server());
    command.args(["-a", "127.0.0.1", "-p", &port.to_string()]);
    let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Process(server);
    eventually("NATS listens", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (server, format!("nats://127.0.0.1:{port}"))
}

fn client(world: &World, tools: &str) -> McpClient {
    let mut client = McpClient::start_command(world.toolbridge(&["serve", "--nats-tools", tools]));
    client.initialize();
    client
}

#[test]
fn a_client_calls_the_tools_of_two_hosts_with_two_commands() {
    let world = World::new();
    let (_server, url) = server();
    let start = |host: &str| {
        world.start(&["--demo", "--nats", &url, "--name", "gpu", "--host", host, "--max-calls", "8"])
    };
    let ((mut one, printed), (two, _)) = (start("one"), start("two"));
    assert_eq!(printed, json!({ "nats": url, "name": "gpu", "host": "one" }));

    let mut any = client(&world, &format!("{url}/gpu"));
    let listed = any.request("tools/list", json!({}));
    let names: Vec<_> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert!(names.contains(&&json!("echo")) && names.contains(&&json!("picture")), "{names:?}");
    let echo = |client: &mut McpClient, text: &str| {
        client.request("tools/call", json!({ "name": "echo", "arguments": { "text": text } }))
    };
    assert_eq!(text(&echo(&mut any, "größe")), "größe");
    let failed = any.request("tools/call", json!({ "name": "fail", "arguments": {} }));
    assert_eq!(failed["result"]["isError"], true, "{failed}");

    let mut all = client(&world, &format!("{url}/gpu@*"));
    let joined = echo(&mut all, "hi");
    let results = joined["result"]["structuredContent"]["results"].as_array().unwrap();
    assert_eq!(results.iter().map(|result| &result["host"]).collect::<Vec<_>>(), ["one", "two"]);

    // After one host has ended, the other one gets all calls.
    one.signal(Signal::TERM);
    assert!(one.wait_within(PATIENCE).success());
    for number in 0..20 {
        assert_eq!(text(&echo(&mut any, &number.to_string())), number.to_string());
    }
    drop(two);
    eventually("no host is an error", PATIENCE, || {
        echo(&mut any, "hi")["result"]["content"][0]["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("no host offers `gpu`"))
    });
    drop((any, all));
    world.nothing_is_left();
}

#[test]
fn a_failed_start_says_why() {
    let world = World::new();
    let (_server, url) = server();
    let tools = format!("{url}/gpu");
    let rows: [(&[&str], i32, &str); 7] = [
        (&["--nats-tools", &tools], 1, "no host offers `gpu` at the moment"),
        (
            &["--nats-tools", &tools, "--nats", &url, "--name", "gpu"],
            1,
            "would offer its own tools to itself",
        ),
        (&["--nats-tools", &url], 1, "it has no name at its end"),
        (&["--demo", "--nats", &url], 2, "--name"),
        (&["--demo", "--nats", &url, "--name", "a.b"], 1, "name `a.b` is empty or has characters other than"),
        (
            &["--demo", "--nats", "nats://127.0.0.1:1", "--name", "gpu"],
            1,
            "hint: start `nats-server`, or check host and port",
        ),
        (
            &["--demo", "--nats", &url, "--name", "gpu", "--nats-creds", "/nowhere"],
            1,
            "cannot use `/nowhere`",
        ),
    ];
    for (args, want, says) in rows {
        let (code, stdout, stderr) = run(world.toolbridge(&["serve"]).args(args));
        assert_eq!((code, &*stdout), (want, ""), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
}
