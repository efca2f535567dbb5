use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::Semaphore;
use toolbridge_core::ipc::{Remote, read_schema_file};
use toolbridge_core::source::CallFuture;
use toolbridge_core::tool::{Hint as _, RawJson, ToolCall, ToolList};
use toolbridge_core::{CallContext, NoArgs, Session, Tool, ToolSource, Toolset};

use crate::{files, tools};

const PATIENCE: Duration = Duration::from_secs(120);

async fn start(dir: &TempDir) -> Session {
    Session::builder(tools()).dir(dir.path()).start().await.unwrap()
}

fn remote(session: &Session) -> Remote {
    Remote::new(session.socket_path(), read_schema_file(session.schema_path()).unwrap()).unwrap()
}

async fn call(remote: &Remote, tool: &str) -> Result<String, String> {
    let call = remote.call(ToolCall::new(tool, RawJson::empty_object()), CallContext::default());
    match tokio::time::timeout(PATIENCE, call).await.expect("an answer in time") {
        Ok(result) => Ok(result.as_str().to_owned()),
        Err(error) => Err(format!("{}: {error}", error.type_name())),
    }
}

fn assert_hello(answer: Result<String, String>) {
    assert_eq!(answer.unwrap(), r#"{"content":[{"type":"text","text":"hello"}],"isError":false}"#);
}

#[tokio::test]
async fn a_session_answers_until_it_is_stopped_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let session = start(&dir).await;
    let remote = remote(&session);
    assert_hello(call(&remote, "hello").await);
    let names = files(dir.path());
    assert_eq!(names.len(), 2);
    let id = names[0].strip_prefix("claudecode_ipc_").unwrap().strip_suffix(".sock").unwrap();
    assert_eq!(names[1], format!("claudecode_ipc_schema_{id}.json"));
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");

    session.stop().await;
    assert!(files(dir.path()).is_empty());
    session.stop().await;
    let error = call(&remote, "hello").await.unwrap_err();
    assert!(error.starts_with("IPCConnectionError: cannot reach the parent process at "), "{error}");
}

#[tokio::test]
async fn tools_change_though_a_stranger_has_taken_a_name_and_the_session_is_as_old_as_before() {
    let dir = TempDir::new().unwrap();
    let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build().unwrap();
    let session = Session::builder(tools.clone()).dir(dir.path()).start().await.unwrap();
    let taken = session.schema_path().with_extension("tmp");
    std::fs::write(&taken, "a stranger's").unwrap();
    let since = || toolbridge_core::ipc::sessions(dir.path()).unwrap()[0].since;
    let before = since();

    tools.add(Tool::new("bye", "Says goodbye", async |_: NoArgs| "bye")).unwrap();
    let begun = std::time::Instant::now();
    while read_schema_file(session.schema_path()).unwrap().len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "the schema file stays as it was");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(since(), before);
    assert_eq!(std::fs::read(&taken).unwrap(), b"a stranger's");
    session.stop().await;
    std::fs::remove_file(taken).unwrap();
    assert!(files(dir.path()).is_empty());
}

#[tokio::test]
async fn a_second_end_of_a_session_waits_until_its_files_are_gone() {
    let dir = TempDir::new().unwrap();
    for _ in 0..200 {
        let session = start(&dir).await;
        let both = std::sync::Barrier::new(2);
        let end = || {
            both.wait();
            session.abandon();
            files(dir.path())
        };
        std::thread::scope(|scope| {
            let ended = [scope.spawn(end), scope.spawn(end)].map(|thread| thread.join().unwrap());
            assert_eq!(ended, [const { Vec::<String>::new() }; 2]);
        });
    }
}

#[test]
fn the_constants_have_the_names_and_values_of_the_specification() {
    assert_eq!(toolbridge_core::ipc::MAX_MESSAGE_SIZE, 10_485_760);
    assert_eq!(toolbridge_core::ipc::LENGTH_PREFIX_SIZE, 4);
    assert_eq!(toolbridge_core::ipc::SOCKET_PERMISSIONS, 0o600);
    assert_eq!(toolbridge_core::ipc::SOCKET_FILE_PREFIX, "claudecode_ipc_");
    assert_eq!(toolbridge_core::ipc::SOCKET_FILE_SUFFIX, ".sock");
    assert_eq!(toolbridge_core::ipc::SCHEMA_FILE_PREFIX, "claudecode_ipc_schema_");
}

#[tokio::test]
async fn the_files_are_for_their_owner_alone() {
    let dir = TempDir::new().unwrap();
    let session = start(&dir).await;
    for path in [session.socket_path(), session.schema_path()] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
    }
}

#[tokio::test]
async fn stop_does_not_wait_for_a_handler_that_hangs() {
    let dir = TempDir::new().unwrap();
    let session = start(&dir).await;
    let remote = remote(&session);
    let call = tokio::spawn(async move { call(&remote, "hang").await });
    wait_for_connection(session.socket_path()).await;
    tokio::time::timeout(PATIENCE, session.stop()).await.expect("it stops");
    assert!(files(dir.path()).is_empty());
    let error = call.await.unwrap().unwrap_err();
    assert!(
        error.starts_with("IPCConnectionError: the connection to the parent process was lost"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_does_not_wait_for_a_handler_that_blocks_its_thread() {
    let (free, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let tools = Toolset::builder()
        .tool("block", "Blocks", move |_: NoArgs| {
            _ = released.lock().unwrap().recv();
        })
        .build()
        .unwrap();
    let dir = TempDir::new().unwrap();
    let session = Session::builder(tools).dir(dir.path()).start().await.unwrap();
    let remote = remote(&session);
    let call = tokio::spawn(async move { call(&remote, "block").await });
    wait_for_connection(session.socket_path()).await;
    tokio::time::timeout(PATIENCE, session.stop()).await.expect("it stops");
    assert!(call.await.unwrap().is_err());
    drop(free);
}

/// Waits until the server has accepted earlier connections, by making later ones.
async fn wait_for_connection(socket: &Path) {
    let remote = Remote::new(socket, toolbridge_core::tool::ToolList::default()).unwrap();
    for _ in 0..3 {
        _ = call(&remote, "nothing").await;
    }
}

#[test]
fn dropping_a_session_needs_no_runtime() {
    let dir = TempDir::new().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let session = runtime.block_on(start(&dir));
    drop(runtime);
    assert_eq!(files(dir.path()).len(), 2);
    drop(session);
    assert!(files(dir.path()).is_empty());
}

#[test]
fn a_panic_cleans_up() {
    let dir = TempDir::new().unwrap();
    let panicked = std::panic::catch_unwind(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let _session = start(&dir).await;
            panic!("on purpose");
        })
    });
    assert!(panicked.is_err());
    assert!(files(dir.path()).is_empty());
}

#[tokio::test]
async fn a_cancelled_future_cleans_up() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().to_owned();
    let task = tokio::spawn(async move {
        let _session = Session::builder(tools()).dir(&path).start().await.unwrap();
        std::future::pending::<()>().await;
    });
    while files(dir.path()).len() < 2 {
        tokio::task::yield_now().await;
    }
    task.abort();
    _ = task.await;
    assert!(files(dir.path()).is_empty());
}

#[tokio::test]
async fn sessions_side_by_side_do_not_disturb_each_other() {
    let dir = TempDir::new().unwrap();
    let (first, second) = (start(&dir).await, start(&dir).await);
    let (to_first, to_second) = (remote(&first), remote(&second));
    assert_hello(call(&to_first, "hello").await);
    assert_hello(call(&to_second, "hello").await);
    first.stop().await;
    assert_hello(call(&to_second, "hello").await);
    assert_eq!(files(dir.path()).len(), 2);
}

#[tokio::test]
async fn a_directory_that_cannot_hold_a_session_is_one_clear_error() {
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("missing");
    let error = Session::builder(tools()).dir(&missing).start().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot start a session in `{}`: cannot read the directory: No such file or directory (os error 2)",
            missing.display()
        )
    );
    let hint = "set TMPDIR to a directory that exists, can be written and has space";
    assert_eq!(error.hint(), Some(hint));
    let cause = std::error::Error::source(&error).unwrap();
    assert_eq!(cause.to_string(), format!("hint: {hint}"), "what `anyhow` and `eyre` print");

    let long = dir.path().join("x".repeat(150));
    std::fs::create_dir(&long).unwrap();
    let error = Session::builder(tools()).dir(&long).start().await.unwrap_err().to_string();
    let bytes = long.as_os_str().len() + "/claudecode_ipc_.sock".len() + 32;
    assert!(error.starts_with(&format!("socket path `{}/claudecode_ipc_", long.display())), "{error}");
    assert!(error.ends_with(&format!(".sock` has {bytes} bytes, the limit is 107")), "{error}");
    assert!(files(&long).is_empty());
}

#[tokio::test]
async fn the_config_names_the_bridge_and_the_files() {
    let dir = TempDir::new().unwrap();
    let session = Session::builder(tools()).dir(dir.path()).bridge("/bin/sh").start().await.unwrap();
    let (socket, schema) = (session.socket_path(), session.schema_path());
    assert!(socket.is_absolute() && schema.is_absolute());
    assert_eq!(
        session.mcp_config("mine").unwrap(),
        serde_json::json!({ "mcpServers": { "mine": {
            "type": "stdio", "command": "/bin/sh", "args": ["bridge", socket, schema],
        } } })
    );
    let error = session.mcp_config("not ok").unwrap_err();
    assert_eq!(
        error.to_string(),
        "server name `not ok` is empty or has characters other than `A-Z a-z 0-9 _ -`"
    );
    let error = session.mcp_config(&"x".repeat(120)).unwrap_err().to_string();
    assert!(error.ends_with("has 132 characters, the limit is 128"), "{error}");

    let session = Session::builder(tools()).dir(dir.path()).bridge("/etc/passwd").start().await.unwrap();
    let error = session.mcp_server().unwrap_err();
    assert_eq!(
        error.to_string(),
        "no bridge executable: `/etc/passwd`, given by the program, is not an executable file"
    );
    assert_eq!(error.type_name(), "BridgeStartupError");
    assert!(error.hint().unwrap().starts_with("call `toolbridge::run_bridge_if_asked()` first in `main`"));
}

#[tokio::test]
async fn the_schema_file_is_written_once_and_complete() {
    let dir = TempDir::new().unwrap();
    let session = start(&dir).await;
    let names: Vec<_> =
        read_schema_file(session.schema_path()).unwrap().iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["hello", "hang"]);
    assert_eq!(session.schema_path().metadata().unwrap().nlink(), 1);
}

/// Reads a frame and answers it with an empty result.
fn answer_one(stream: &mut UnixStream) {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).unwrap();
    let mut request = vec![0; u32::from_be_bytes(prefix) as usize];
    stream.read_exact(&mut request).unwrap();
    let answer = br#"{"result":{"content":[{"type":"text","text":""}]}}"#;
    stream.write_all(&[&u32::try_from(answer.len()).unwrap().to_be_bytes()[..], answer].concat()).unwrap();
}

#[tokio::test]
async fn what_was_not_sent_is_sent_again_on_another_connection() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("parent.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (close, closing) = std::sync::mpsc::channel::<()>();
    let (closed, is_closed) = std::sync::mpsc::channel::<()>();
    let parent = std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        answer_one(&mut first);
        closing.recv_timeout(PATIENCE).unwrap();
        drop(first);
        closed.send(()).unwrap();
        answer_one(&mut listener.accept().unwrap().0);
    });
    let remote = Remote::new(&socket, tools().tools().clone()).unwrap();
    call(&remote, "hello").await.unwrap();
    close.send(()).unwrap();
    // The runtime's only thread is blocked here, so it has not noticed the close: the connection seems usable.
    is_closed.recv_timeout(PATIENCE).unwrap();
    call(&remote, "hello").await.unwrap();
    parent.join().unwrap();
}

/// Keeps the arguments of calls of `hold` until they are released.
struct Holding {
    tools: Toolset,
    held: AtomicUsize,
    release: Semaphore,
}

impl ToolSource for Holding {
    fn tools(&self) -> ToolList {
        self.tools.tools()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        if call.name != "hold" {
            return self.tools.call(call, context);
        }
        Box::pin(async move {
            self.held.fetch_add(1, Ordering::Relaxed);
            let _released = self.release.acquire().await;
            Ok(RawJson::from(
                &serde_json::json!({ "content": [{ "type": "text", "text": "" }], "size": call.arguments.as_bytes().len() }),
            ))
        })
    }
}

#[tokio::test]
async fn large_requests_share_a_budget_and_small_ones_are_free() {
    const LARGE: usize = 10_000_000;
    // The budget is 268,435,456 bytes.
    const ROOM: usize = 26;
    let dir = TempDir::new().unwrap();
    let tools = Toolset::builder()
        .tool("hello", "Greets", async |_: NoArgs| "hello")
        .with(Tool::new("hold", "Keeps its arguments", async |_: NoArgs| ()).read_only())
        .build()
        .unwrap();
    let source = Holding { tools, held: AtomicUsize::new(0), release: Semaphore::new(0) };
    let source = Arc::new(source);
    let session = Session::builder(Arc::clone(&source)).dir(dir.path()).start().await.unwrap();
    let remote = Arc::new(remote(&session));
    let arguments = RawJson::of(&serde_json::json!({ "padding": "x".repeat(LARGE) })).unwrap();
    let held = || source.held.load(Ordering::Relaxed);
    let mut calls = tokio::task::JoinSet::new();
    for before in 0..ROOM + 10 {
        let (remote, call) = (Arc::clone(&remote), ToolCall::new("hold", arguments.clone()));
        calls.spawn(async move { remote.call(call, CallContext::default()).await });
        // One after the other, so that none is half read when the budget is used up.
        let is_held = async {
            while before < ROOM && held() <= before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, is_held).await.expect("what there is room for is taken");
    }
    for _ in 0..100 {
        assert_hello(call(&remote, "hello").await);
    }
    assert!(held() <= ROOM, "{} large requests are held", held());
    // Each call that ends makes room for another.
    source.release.add_permits(1);
    let rest = async {
        while let Some(done) = calls.join_next().await {
            done.unwrap().unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, rest).await.expect("all calls are answered");
    assert_eq!(held(), ROOM + 10);
    session.stop().await;
    assert!(files(dir.path()).is_empty());
}
