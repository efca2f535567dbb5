//! A process with a session forks and is killed while its fork lives on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use toolbridge_core::ipc::{Remote, SessionState, read_schema_file, sessions};
use toolbridge_core::tool::{RawJson, ToolCall};
use toolbridge_core::{CallContext, NoArgs, Session, Tool, ToolSource as _, Toolset};

use crate::files;

/// The environment variable with the directory for the session of the forking process.
const DIR: &str = "TOOLBRIDGE_TEST_FORK_DIR";

const PATIENCE: Duration = Duration::from_secs(120);

/// The lifetime of a fork if the test does not end it.
const LIFE_SECONDS: u32 = 60;

/// One tool that answers immediately and one that never does; they may overlap.
fn tools() -> Toolset {
    let hang = Tool::new("hang", "Never answers", async |_: NoArgs| std::future::pending::<()>().await);
    Toolset::builder()
        .tool("hello", "Greets", async |_: NoArgs| "hello")
        .with(hang.read_only())
        .build()
        .unwrap()
}

/// Forks; the fork runs `work` and then pauses.
fn fork(work: impl FnOnce()) -> i32 {
    #[expect(unsafe_code, reason = "there is no other way to fork")]
    // SAFETY: the fork only does what is safe there: `work` takes no lock that another thread could have held.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(LIFE_SECONDS);
                work();
                loop {
                    libc::pause();
                }
            }
            child => child,
        }
    }
}

/// Not a test: the other tests start this program again with it.
#[test]
fn a_process_with_a_session_forks_if_it_is_asked_to() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let session = runtime.block_on(Session::builder(tools()).dir(PathBuf::from(dir)).start()).unwrap();
    let mut stdin = std::io::stdin().lines();
    let say = |text: String| {
        let mut stdout = std::io::stdout();
        writeln!(stdout, "\nforker: {text}").unwrap();
        stdout.flush().unwrap();
    };
    say(format!("{}\t{}", session.socket_path().display(), session.schema_path().display()));
    // The test may make calls until it writes a line.
    stdin.next().unwrap().unwrap();
    let copy = std::mem::ManuallyDrop::new(session);
    let mut copy = Some(copy);
    let child = fork(|| {
        // Dropping a copy does not end the session.
        if let Some(mut copy) = copy.take() {
            #[expect(unsafe_code, reason = "it is dropped in the fork alone")]
            // SAFETY: it was taken out, and is not used again.
            unsafe {
                std::mem::ManuallyDrop::drop(&mut copy);
            }
        }
    });
    say(child.to_string());
    stdin.next().unwrap().unwrap();
}

/// A process with a session in its own directory.
struct Forker {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    socket: PathBuf,
    schema: PathBuf,
    fork: Option<i32>,
}

impl Forker {
    fn start(dir: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fork::a_process_with_a_session_forks_if_it_is_asked_to", "--nocapture"])
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (socket, schema) = (PathBuf::new(), PathBuf::new());
        let mut forker = Self { process, lines, socket, schema, fork: None };
        let said = forker.next();
        let (socket, schema) = said.split_once('\t').unwrap();
        (forker.socket, forker.schema) = (socket.into(), schema.into());
        forker
    }

    fn next(&mut self) -> String {
        let mut said = self.lines.by_ref().map(Result::unwrap);
        said.find_map(|line| line.strip_prefix("forker: ").map(str::to_owned)).expect("it says something")
    }

    /// Makes it fork. From here on the fork has copies of its descriptors.
    fn fork(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.fork = Some(self.next().parse().unwrap());
    }

    fn fork_lives(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.fork.unwrap())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    }

    fn remote(&self) -> Remote {
        Remote::new(&self.socket, read_schema_file(&self.schema).unwrap()).unwrap()
    }
}

impl Drop for Forker {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        if let Some(fork) = self.fork.and_then(rustix::process::Pid::from_raw) {
            _ = rustix::process::kill_process(fork, rustix::process::Signal::KILL);
        }
    }
}

async fn call(remote: &Remote, tool: &str) -> Result<String, String> {
    let call = remote.call(ToolCall::new(tool, RawJson::empty_object()), CallContext::default());
    match tokio::time::timeout(PATIENCE, call).await.expect("an answer in time") {
        Ok(result) => Ok(result.as_str().to_owned()),
        Err(error) => Err(format!("{}: {error}", error.type_name())),
    }
}

#[tokio::test]
async fn a_fork_does_not_keep_the_session_of_a_dead_parent_alive() {
    let dir = TempDir::new().unwrap();
    let mut forker = Forker::start(dir.path());
    let remote = std::sync::Arc::new(forker.remote());
    call(&remote, "hello").await.unwrap();
    // An idle connection and one with a running call are copied too.
    let hanging = {
        let remote = std::sync::Arc::clone(&remote);
        tokio::spawn(async move { call(&remote, "hang").await })
    };
    call(&remote, "hello").await.unwrap();
    forker.fork();
    // While the parent lives, the fork does not disturb it.
    call(&remote, "hello").await.unwrap();
    assert_eq!(files(dir.path()).len(), 2, "a copy of the session was dropped, not the session");

    forker.process.kill().unwrap();
    forker.process.wait().unwrap();
    let killed = Instant::now();
    assert!(forker.fork_lives());
    let error = hanging.await.unwrap().unwrap_err();
    assert!(error.starts_with("IPCConnectionError: "), "{error}");
    let error = call(&remote, "hello").await.unwrap_err();
    assert!(error.starts_with("IPCConnectionError: cannot reach the parent process at "), "{error}");
    assert!(killed.elapsed() < PATIENCE, "{:?}", killed.elapsed());

    let left = sessions(dir.path()).unwrap();
    assert_eq!(left.iter().map(|session| session.state).collect::<Vec<_>>(), [SessionState::Stale]);
    let next = Session::builder(tools()).dir(dir.path()).start().await.unwrap();
    assert_eq!(files(dir.path()).len(), 2, "what the dead session left is gone: {:?}", files(dir.path()));
    next.stop().await;
    assert!(forker.fork_lives());
    drop(forker);
    assert!(files(dir.path()).is_empty());
}
