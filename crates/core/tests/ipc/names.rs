//! Named sessions, sources that follow them, and lists that change.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use toolbridge_core::ipc::{Attached, Remote, SessionBuilder, named_sessions};
use toolbridge_core::source::CallFuture;
use toolbridge_core::tool::{RawJson, ServerInfo, ToolCall, ToolList};
use toolbridge_core::{CallContext, NoArgs, Session, Tool, ToolSource, Toolset};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    dir: TempDir,
}

impl World {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("sessions")).unwrap();
        Self { dir }
    }

    fn names(&self) -> PathBuf {
        self.dir.path().join("names")
    }

    fn session(&self, name: &str, tools: &Toolset) -> SessionBuilder {
        let sessions = self.dir.path().join("sessions");
        Session::builder(tools.clone()).dir(sessions).name(name).names_dir(self.names())
    }

    async fn start(&self, name: &str, tools: &Toolset) -> Session {
        self.session(name, tools).start().await.unwrap()
    }

    fn attached(&self, names: &[&str]) -> Attached {
        Attached::in_dirs(names.iter().map(|&name| name.into()).collect(), vec![self.names()]).unwrap()
    }

    fn entries(&self) -> Vec<PathBuf> {
        fs::read_dir(self.names()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

fn tool(name: &str, says: &'static str) -> Tool {
    Tool::new(name, "Says something", async move |_: NoArgs| says)
}

fn tools<const N: usize>(all: [(&str, &'static str); N]) -> Toolset {
    all.into_iter().fold(Toolset::builder(), |set, (name, says)| set.with(tool(name, says))).build().unwrap()
}

fn listed(source: &impl ToolSource) -> Vec<String> {
    source.tools().iter().map(|tool| tool.name.clone()).collect()
}

/// Waits until the source lists exactly those tools.
async fn lists(source: &impl ToolSource, want: &[&str]) {
    let mut changes = source.changes();
    let done = async {
        while listed(source) != want {
            changes.next().await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, done).await;
    assert!(in_time.is_ok(), "it lists {:?}, not {want:?}", listed(source));
}

async fn call(source: &impl ToolSource, name: &str) -> Result<String, String> {
    let call = source.call(ToolCall::new(name, RawJson::empty_object()), CallContext::default());
    match tokio::time::timeout(PATIENCE, call).await.expect("an answer in time") {
        Ok(result) => {
            let result: serde_json::Value = result.decode().unwrap();
            Ok(result["content"][0]["text"].as_str().unwrap().to_owned())
        }
        Err(error) => Err(format!("{}: {error}", error.type_name())),
    }
}

#[tokio::test]
async fn a_name_is_there_as_long_as_its_session() {
    let world = World::new();
    let session =
        world.session("shop", &tools([("a", "a")])).info(ServerInfo::new("Shop")).start().await.unwrap();
    let [found] = &named_sessions(&[world.names()])[..] else { panic!("one session") };
    assert_eq!((found.name.as_str(), found.pid), ("shop", std::process::id()));
    assert_eq!(
        (found.socket.as_path(), found.schema.as_path()),
        (session.socket_path(), session.schema_path())
    );
    assert_eq!(found.program, std::env::current_exe().unwrap());
    assert_eq!(found.server.name, "Shop");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&world.names()), mode(&world.entries()[0])), (0o700, 0o600));
    session.stop().await;
    assert!(world.entries().is_empty() && named_sessions(&[world.names()]).is_empty());
    drop(world.start("shop", &tools([])).await);
    assert!(world.entries().is_empty());
}

#[tokio::test]
async fn names_that_cannot_be_and_directories_of_others_are_refused() {
    let world = World::new();
    let none = tools([]);
    for name in ["", "a b", "a/b", "..", "ä", "a__b", "a_", &"x".repeat(49)] {
        let error = world.session(name, &none).start().await.unwrap_err().to_string();
        assert!(error.contains("cannot be a session's name: it has 1 to 48 characters"), "{error}");
        assert!(Attached::in_dirs(vec![name.into()], vec![]).is_err());
    }
    let refused = async |reason: &str| {
        let error = world.session("a", &none).start().await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(named_sessions(&[world.names()]).is_empty());
    };
    fs::create_dir(world.names()).unwrap();
    fs::set_permissions(world.names(), fs::Permissions::from_mode(0o755)).unwrap();
    refused("other users can enter it, its mode is 0755; `chmod 700` it").await;
    fs::remove_dir(world.names()).unwrap();
    fs::create_dir(world.dir.path().join("elsewhere")).unwrap();
    symlink(world.dir.path().join("elsewhere"), world.names()).unwrap();
    refused("it is not a directory").await;
    // A session that did not start leaves no files.
    assert_eq!(fs::read_dir(world.dir.path().join("sessions")).unwrap().count(), 0);
}

#[tokio::test]
async fn what_a_killed_process_left_is_swept_and_a_link_is_not_followed() {
    let world = World::new();
    let session = world.start("live", &tools([])).await;
    let victim = world.dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let other = |name: &str| world.names().join(format!("{name}.00000000000080008000000000000001.json"));
    let entry = world.entries().remove(0);
    symlink(&victim, other("linked")).unwrap();
    // Its lock is not held. Files with other names are not ours to remove.
    let strange = ["notes.json", "notes.tmp", "a b.00000000000080008000000000000001.json", "dead.0.json"];
    for path in strange.iter().map(|name| world.names().join(name)).chain([other("dead")]) {
        fs::copy(&entry, path).unwrap();
    }
    let found = named_sessions(&[world.names()]);
    assert_eq!(found.iter().map(|session| session.name.as_str()).collect::<Vec<_>>(), ["live"]);
    assert!(!other("dead").exists());
    assert!(strange.iter().all(|name| world.names().join(name).exists()));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    session.stop().await;
}

#[tokio::test]
async fn sessions_that_start_end_and_change_show_at_once() {
    let world = World::new();
    let attached = world.attached(&[]);
    lists(&attached, &["sessions"]).await;
    let advice = call(&attached, "sessions").await.unwrap();
    assert!(advice.contains("no live session") && advice.contains("demo --serve --name demo"), "{advice}");

    let shop = tools([("lookup", "shop")]);
    let first = world.start("shop", &shop).await;
    lists(&attached, &["shop__lookup"]).await;
    assert_eq!(call(&attached, "shop__lookup").await.unwrap(), "shop");
    shop.add(tool("cancel", "cancelled")).unwrap();
    lists(&attached, &["shop__lookup", "shop__cancel"]).await;
    assert_eq!(call(&attached, "shop__cancel").await.unwrap(), "cancelled");
    assert!(shop.remove("lookup"));
    lists(&attached, &["shop__cancel"]).await;
    let error = call(&attached, "shop__lookup").await.unwrap_err();
    assert!(error.starts_with("ToolNotFoundError"), "{error}");
    first.stop().await;
    lists(&attached, &["sessions"]).await;
    let _again = world.start("shop", &shop).await;
    lists(&attached, &["shop__cancel"]).await;
    assert_eq!(call(&attached, "shop__cancel").await.unwrap(), "cancelled");
}

/// Permission rules of clients name tools, so a name may not go to another session.
#[tokio::test]
async fn names_stay_the_same_while_sessions_come_and_go() {
    let world = World::new();
    let all = world.attached(&[]);
    let two = world.attached(&["shop", "aaa"]);
    let only = world.attached(&["shop"]);
    let shop = world.start("shop", &tools([("order", "of shop")])).await;
    lists(&all, &["shop__order"]).await;
    lists(&two, &["shop__order"]).await;
    lists(&only, &["order"]).await;
    // Comes first in the list, and has a tool that is called as another one is with its prefix.
    let other = world.start("aaa", &tools([("shop__order", "of aaa"), ("order", "of aaa")])).await;
    for source in [&all, &two] {
        lists(source, &["aaa__shop__order", "aaa__order", "shop__order"]).await;
        assert_eq!(call(source, "shop__order").await.unwrap(), "of shop");
        assert_eq!(call(source, "aaa__order").await.unwrap(), "of aaa");
    }
    other.stop().await;
    lists(&all, &["shop__order"]).await;
    lists(&only, &["order"]).await;
    assert_eq!(call(&only, "order").await.unwrap(), "of shop");
    // The newest of several sessions with one name has it.
    let newest = world.start("shop", &tools([("order", "of the newest"), ("cancel", "cancelled")])).await;
    lists(&all, &["shop__order", "shop__cancel"]).await;
    lists(&only, &["order", "cancel"]).await;
    assert_eq!(call(&all, "shop__order").await.unwrap(), "of the newest");
    assert_eq!(call(&only, "order").await.unwrap(), "of the newest");
    newest.stop().await;
    lists(&all, &["shop__order"]).await;
    lists(&only, &["order"]).await;
    assert_eq!(call(&only, "order").await.unwrap(), "of shop");
    let none = world.attached(&["three"]);
    let advice = call(&none, "sessions").await.unwrap();
    let three = world.start("three", &tools([("sessions", "of three"), ("order", "of three")])).await;
    lists(&none, &["order"]).await;
    assert_eq!(
        call(&none, "sessions").await.unwrap().split(" called").next(),
        Some("There is no live session")
    );
    three.stop().await;
    assert!(advice.contains("no live session called three") && advice.contains("called shop"), "{advice}");
    shop.stop().await;
}

#[tokio::test]
async fn a_bridge_learns_of_a_change_and_finds_a_whole_file() {
    let world = World::new();
    let set = tools([("a", "a")]);
    let session = world.start("s", &set).await;
    let remote = Remote::open(session.socket_path(), session.schema_path()).unwrap();
    // A change before the first request.
    set.add(tool("b", "b")).unwrap();
    lists(&remote, &["a", "b"]).await;
    for round in 0..50 {
        let name = format!("t{round}");
        set.add(tool(&name, "t")).unwrap();
        lists(&remote, &["a", "b", &name]).await;
        assert_eq!(call(&remote, &name).await.unwrap(), "t");
        assert!(set.remove(&name));
        lists(&remote, &["a", "b"]).await;
    }
    assert_eq!(remote.count_calls().await, Some(50));
    // The file is still locked, so the session is not mistaken for a dead one.
    assert!(toolbridge_core::ipc::sweep(&world.dir.path().join("sessions")).unwrap().is_empty());
    assert_eq!(call(&remote, "a").await.unwrap(), "a");
    session.stop().await;
    assert_eq!(fs::read_dir(world.dir.path().join("sessions")).unwrap().count(), 0);
}

/// A source that never changes.
struct Fixed(Toolset);

impl ToolSource for Fixed {
    fn tools(&self) -> ToolList {
        self.0.tools()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        self.0.call(call, context)
    }
}

#[tokio::test]
async fn a_session_whose_tools_never_change_is_there_until_it_ends() {
    let world = World::new();
    let attached = world.attached(&[]);
    lists(&attached, &["sessions"]).await;
    let sessions = world.dir.path().join("sessions");
    let fixed =
        Session::builder(Fixed(tools([("a", "a")]))).dir(sessions).name("fixed").names_dir(world.names());
    let fixed = fixed.start().await.unwrap();
    lists(&attached, &["fixed__a"]).await;
    // Other sessions that start and end cause repeated lookups.
    for _ in 0..5 {
        let other = world.start("other", &tools([("b", "b")])).await;
        lists(&attached, &["fixed__a", "other__b"]).await;
        other.stop().await;
        lists(&attached, &["fixed__a"]).await;
    }
    assert_eq!(call(&attached, "fixed__a").await.unwrap(), "a");
    fixed.stop().await;
    lists(&attached, &["sessions"]).await;
}

#[tokio::test]
async fn a_name_that_is_too_long_for_the_cli_is_left_out() {
    let world = World::new();
    let all = world.attached(&[]);
    let only = world.attached(&["a"]);
    let long = "x".repeat(118);
    let _session = world.start("a", &tools([(&long, "long"), ("one", "1")])).await;
    // The prefix makes it too long.
    lists(&all, &["a__one"]).await;
    assert!(call(&all, &format!("a__{long}")).await.is_err());
    lists(&only, &[&long, "one"]).await;
    assert_eq!(call(&only, &long).await.unwrap(), "long");
}

#[tokio::test]
async fn handlers_know_the_process_that_calls() {
    let world = World::new();
    let who = Tool::new("who", "Says who calls", async |_: NoArgs, context: CallContext| {
        context.caller().unwrap().pid.unwrap().to_string()
    });
    let set = Toolset::builder().with(who).build().unwrap();
    let session = world.start("s", &set).await;
    let remote = Remote::open(session.socket_path(), session.schema_path()).unwrap();
    assert_eq!(call(&remote, "who").await.unwrap(), std::process::id().to_string());
}

/// A parent of another implementation has ids of another version: it never gets requests that it does not know. A
/// parent with our ids that refuses such a request still gets calls.
#[test]
fn a_foreign_parent_is_not_asked_and_one_that_refuses_does_no_harm() {
    for (id, asked) in [("00000000000040008000000000000001", 0), ("00000000000080008000000000000001", 1)] {
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join(format!("claudecode_ipc_{id}.sock"));
        let schema = dir.path().join(format!("claudecode_ipc_schema_{id}.json"));
        fs::write(&schema, r#"[{"name":"a","description":"","input_schema":{"type":"object"}}]"#).unwrap();
        fs::set_permissions(&schema, fs::Permissions::from_mode(0o600)).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let parent = std::thread::spawn(move || {
            let mut methods = Vec::new();
            while !methods.contains(&"call_tool") {
                let (mut stream, _) = listener.accept().unwrap();
                let mut length = [0; 4];
                stream.read_exact(&mut length).unwrap();
                let mut frame = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut frame).unwrap();
                let is_call = String::from_utf8(frame).unwrap().contains("call_tool");
                methods.push(if is_call { "call_tool" } else { "another" });
                let answer: &[u8] = if is_call {
                    br#"{"result":{"content":[{"type":"text","text":"a"}]}}"#
                } else {
                    br#"{"error":{"message":"unknown method","type":"UnknownMethodError"}}"#
                };
                stream.write_all(&u32::try_from(answer.len()).unwrap().to_be_bytes()).unwrap();
                stream.write_all(answer).unwrap();
            }
            methods.len() - 1
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let remote = Remote::open(&socket, &schema).unwrap();
            let _changes = remote.changes();
            // Lets the follower run before the call.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(call(&remote, "a").await.unwrap(), "a");
        });
        assert_eq!(parent.join().unwrap(), asked);
    }
}

/// A client that only calls never asks for changes.
#[tokio::test]
async fn a_session_that_starts_again_is_found_by_calls_alone() {
    let world = World::new();
    let attached = world.attached(&["shop"]);
    for says in ["first", "second"] {
        let session = world.start("shop", &tools([("order", says)])).await;
        let found = async {
            while call(&attached, "order").await.ok().as_deref() != Some(says) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("the session is found");
        session.stop().await;
    }
    let set = tools([("a", "a")]);
    let session = world.start("other", &set).await;
    let remote = Remote::open(session.socket_path(), session.schema_path()).unwrap();
    set.add(tool("b", "b")).unwrap();
    let found = async {
        while listed(&remote) != ["a", "b"] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the change is found");
}

#[test]
fn a_source_that_was_made_outside_a_runtime_follows_inside_one() {
    let world = World::new();
    let attached = world.attached(&["shop"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = world.start("shop", &tools([("order", "of shop")])).await;
        let found = async {
            while call(&attached, "order").await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("the session is found");
        session.stop().await;
    });
}

/// With a pause of 5 seconds after each but the first hang-ups, this would take minutes.
#[test]
fn a_parent_that_hangs_up_now_and_then_is_followed_again_soon_every_time() {
    const HANG_UPS: usize = 40;

    let id = "00000000000080008000000000000001";
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join(format!("claudecode_ipc_{id}.sock"));
    let schema = dir.path().join(format!("claudecode_ipc_schema_{id}.json"));
    fs::write(&schema, r#"[{"name":"a","description":"","input_schema":{"type":"object"}}]"#).unwrap();
    fs::set_permissions(&schema, fs::Permissions::from_mode(0o600)).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let (done, is_done) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        for _ in 0..HANG_UPS {
            let (mut stream, _) = listener.accept().unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut frame = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut frame).unwrap();
            let answer = br#"{"result":{"revision":1}}"#;
            stream.write_all(&u32::try_from(answer.len()).unwrap().to_be_bytes()).unwrap();
            stream.write_all(answer).unwrap();
        }
        _ = done.send(());
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let remote = Remote::open(&socket, &schema).unwrap();
        let _changes = remote.changes();
        tokio::time::timeout(PATIENCE, is_done).await.expect("it is followed again").unwrap();
    });
}
