//! `toolbridge attach`: one command line for all live sessions, with real processes and the real CLI.

use std::path::PathBuf;
use std::process::ChildStdin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use toolbridge::{ClaudeCodeModel, NoArgs, Session, Tool, Toolset};
use toolbridge_scripted::{
    Block, ModelRequest, ScriptedModel, ToolResultBlock, Turn, claude_cli, clean_environment, thorough,
};

use crate::support::{McpClient, PATIENCE, Process, eventually, files, run, start_host_with, text};
use crate::world::{AFTERWARDS, World};

impl World {
    /// Hosts the demo tools in a separate process, as a session with that name.
    fn host(&self, name: &str) -> Host {
        let (process, stdin, hello) = start_host_with(&mut self.toolbridge(&[]), &["--name", name]);
        Host { process, _stdin: stdin, socket: hello["socket"].as_str().unwrap().into() }
    }
}

/// Waits until the list of tools satisfies the condition.
#[track_caller]
fn until(client: &mut McpClient, what: &str, is_so: impl Fn(&[String]) -> bool) {
    eventually(what, PATIENCE, || is_so(&listed(client)));
}

struct Host {
    process: Process,
    _stdin: ChildStdin,
    socket: PathBuf,
}

fn listed(client: &mut McpClient) -> Vec<String> {
    let list = client.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|one| one == name)
}

#[test]
fn one_configured_client_has_the_tools_of_all_live_sessions() {
    let world = World::new();
    let mut client = world.attach(&[]);
    assert_eq!(listed(&mut client), ["sessions"]);
    assert!(client.call_text("sessions", json!({})).contains("toolbridge demo --serve --name demo"));
    let shop = world.host("shop");
    until(&mut client, "the session shows", |names| has(names, "shop__add"));
    assert_eq!(client.call_text("shop__add", json!({ "a": 40, "b": 2 })), "42");
    let mut bar = world.host("bar");
    until(&mut client, "both show", |names| has(names, "shop__add") && has(names, "bar__add"));
    assert_eq!(client.call_text("bar__add", json!({ "a": 1, "b": 2 })), "3");
    // Only the named sessions.
    let mut only = world.attach(&["bar"]);
    assert!(has(&listed(&mut only), "add"));

    let waits = client.start_call("bar__wait", json!({ "ms": 60_000 }));
    eventually("the call has arrived", PATIENCE, || {
        let (_, shown, _) = run(&mut world.toolbridge(&["sessions", "--json"]));
        let shown: Value = serde_json::from_str(&shown).unwrap();
        shown.as_array().unwrap().iter().any(|one| one["name"] == "bar" && one["calls"].as_u64() >= Some(2))
    });
    bar.process.0.kill().unwrap();
    let error = text(&client.answer(waits));
    assert!(
        error.contains("lost in the middle of a call") && error.ends_with("(type: IPCConnectionError)"),
        "{error}"
    );
    until(&mut client, "the dead session is gone", |names| {
        has(names, "shop__add") && !has(names, "bar__add")
    });
    assert_eq!(client.call_text("shop__add", json!({ "a": 2, "b": 2 })), "4");
    // The client attached only to it has no tools left, and no file of the dead session remains.
    until(&mut only, "nothing is there", |names| names == ["sessions"]);
    assert_eq!(files(&world.names()).len(), 1);
    eventually("its files are gone", AFTERWARDS, || !bar.socket.exists());
    drop(shop);
}

#[test]
fn a_host_that_is_killed_and_started_again_is_used_by_the_same_client_every_time() {
    let world = World::new();
    let mut client = world.attach(&[]);
    for round in 0..if thorough() { 100 } else { 25 } {
        let mut host = world.host("shop");
        until(&mut client, "the session shows", |names| has(names, "shop__add"));
        assert_eq!(client.call_text("shop__add", json!({ "a": round, "b": 1 })), (round + 1).to_string());
        host.process.0.kill().unwrap();
        until(&mut client, "the session is gone", |names| names == ["sessions"]);
    }
    client.end_input();
    assert!(client.bridge.wait_within(PATIENCE).success());
    assert_eq!(files(&world.names()), [""; 0]);
    eventually("no file is left", AFTERWARDS, || {
        !files(&world.sessions()).iter().any(|name| name.contains("ipc"))
    });
}

#[test]
fn fifty_clients_share_one_session_and_it_counts_their_calls() {
    let world = World::new();
    let host = world.host("shop");
    let mut clients: Vec<_> = (0..50).map(|_| world.attach(&["shop"])).collect();
    for client in &mut clients {
        assert!(has(&listed(client), "add"));
        assert_eq!(client.call_text("add", json!({ "a": 1, "b": 1 })), "2");
    }
    let (_, shown, _) = run(&mut world.toolbridge(&["sessions", "--json"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let session = shown.as_array().unwrap().iter().find(|session| session["name"] == "shop").unwrap();
    assert_eq!(
        (session["calls"].as_u64(), session["pid"].as_u64()),
        (Some(50), Some(host.process.pid().into()))
    );
    let (_, shown, _) = run(&mut world.toolbridge(&["sessions"]));
    let program = env!("CARGO_BIN_EXE_toolbridge");
    assert!(
        shown.contains(&format!("  shop ({program}, pid {})  50 calls  echo, add", host.process.pid())),
        "{shown}"
    );
    drop(host);
    for client in &mut clients {
        until(client, "the session is gone", |names| names == ["sessions"]);
    }
}

#[test]
fn watching_shows_names_and_calls_per_second_until_a_signal() {
    use std::io::BufRead as _;

    let world = World::new();
    let _host = world.host("shop");
    let mut client = world.attach(&[]);
    listed(&mut client);
    let mut command = world.toolbridge(&["sessions", "--watch", "--json"]);
    let mut watch = Process(command.stdout(std::process::Stdio::piped()).spawn().unwrap());
    let mut lines = std::io::BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let mut shop =
        || next().as_array().unwrap().iter().find(|session| session["name"] == "shop").unwrap().clone();
    shop();
    client.call_text("shop__add", json!({ "a": 1, "b": 1 }));
    let rates = (0..60).map(|_| shop()["calls_per_second"].as_f64().unwrap_or(0.0));
    assert!(rates.take_while(|rate| *rate == 0.0).count() < 60, "a call never showed");
    watch.signal(rustix::process::Signal::INT);
    assert!(watch.wait_within(PATIENCE).success());
}

/// A model in the real CLI whose only server is `toolbridge attach`.
pub(crate) fn model(world: &World, scripted: &ScriptedModel) -> ClaudeCodeModel {
    let attach = json!({ "type": "stdio", "command": env!("CARGO_BIN_EXE_toolbridge"), "args": ["attach"],
        "env": { "XDG_RUNTIME_DIR": world.0.path(), "TMPDIR": world.sessions() } });
    let builder = ClaudeCodeModel::builder()
        .cli(claude_cli())
        .guard(env!("CARGO_BIN_EXE_toolbridge"))
        .session_dir(world.sessions())
        .inherit_env(false)
        .working_directory(world.0.path())
        .timeout(Duration::from_secs(600))
        .mcp_server("live", attach)
        .allowed_tools(["mcp__live"]);
    let environment = clean_environment(world.0.path(), &scripted.url());
    environment.into_iter().fold(builder, |builder, (name, value)| builder.env(name, value)).build().unwrap()
}

pub(crate) fn call(tool: &str, arguments: Value) -> Turn {
    Turn::blocks(vec![Block::call(&format!("mcp__live__{tool}"), arguments)])
}

pub(crate) fn last_result(request: &ModelRequest) -> String {
    request.tool_results().first().map(ToolResultBlock::text).unwrap_or_default()
}

/// A session in this process, beside those of other processes.
pub(crate) async fn session(world: &World, tools: Toolset) -> Session {
    let session = Session::builder(tools).dir(world.sessions()).name("driver").names_dir(world.names());
    session.start().await.unwrap()
}

#[tokio::test]
async fn a_tool_that_is_added_during_a_run_is_called_in_it() {
    let world = World::new();
    let set = Toolset::builder().build().unwrap();
    let learner = set.clone();
    let learn = Tool::new("learn", "Learns", async move |_: NoArgs| {
        let greet = Tool::new("greet", "Greets", async |_: NoArgs| "hello");
        _ = learner.add(greet);
        "learnt"
    });
    set.add(learn).unwrap();
    let session = session(&world, set).await;
    let scripted = ScriptedModel::start_with(|request| match last_result(request).as_str() {
        "hello" => Turn::text("done"),
        _ if request.turn() > 200 => Turn::text("it never came"),
        _ if request.tools().contains(&"mcp__live__driver__greet") => call("driver__greet", json!({})),
        _ => call("driver__learn", json!({})),
    });
    assert_eq!(model(&world, &scripted).request("go").await.unwrap().text(), "done");
    session.stop().await;
    world.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cli_uses_a_host_that_is_killed_and_started_again_many_times() {
    let often = if thorough() { 100 } else { 15 };
    let world = Arc::new(World::new());
    let host = Arc::new(Mutex::new(None));
    let (in_world, hosts) = (Arc::clone(&world), Arc::clone(&host));
    let restart = Tool::new("restart", "Kills the host and starts it again", move |_: NoArgs| {
        let mut host = hosts.lock().unwrap();
        drop(host.take());
        *host = Some(in_world.host("shop"));
        "restarted"
    });
    let session = session(&world, Toolset::builder().with(restart).build().unwrap()).await;
    let rounds = Mutex::new(0);
    let scripted = ScriptedModel::start_with(move |request| {
        let mut rounds = rounds.lock().unwrap();
        match last_result(request).as_str() {
            _ if request.turn() > 20 * often => Turn::text("too many turns"),
            // The call may have gone to the killed host; then it is made again.
            "restarted" => call("shop__add", json!({ "a": *rounds, "b": 1 })),
            printed if printed == (*rounds + 1).to_string() => {
                *rounds += 1;
                if *rounds == often { Turn::text("done") } else { call("driver__restart", json!({})) }
            }
            "" => call("driver__restart", json!({})),
            _ => call("shop__add", json!({ "a": *rounds, "b": 1 })),
        }
    });
    assert_eq!(model(&world, &scripted).request("go").await.unwrap().text(), "done");
    // One CLI, one attached bridge, and a call that succeeded in each round.
    assert!(scripted.requests().len() > 2 * often);
    session.stop().await;
    drop(host.lock().unwrap().take());
    // No client is attached any more; the next start removes the files of the killed host.
    let next = self::session(&world, Toolset::builder().build().unwrap()).await;
    next.stop().await;
    world.nothing_is_left();
}
