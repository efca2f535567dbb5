//! The real guardian, with a shell script instead of the CLI.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::BRIDGE;

/// Longer than anything here takes on a busy machine. A test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes a guardian kill all its processes immediately.
const HURRY: Signal = Signal::USR1;

/// Processes that a CLI may leave behind. Each prints a line when it runs; `SLEEP` is a command line that is unique
/// to the test.
const LEFT_BEHIND: [&str; 6] = [
    // In the CLI's process group.
    "sh -c 'echo up; exec SLEEP' &",
    // In its own session, with an empty environment.
    "env -i setsid sh -c 'echo up; exec SLEEP' &",
    // Two sessions away, with its parents gone.
    "(setsid sh -c '(setsid env -i sh -c \"echo up; exec SLEEP\" &)' &)",
    // Ignores signals, and has a child.
    "env -i setsid sh -c 'trap \"\" TERM INT HUP; echo up; while :; do SLEEP; done' &",
    // Stopped.
    "env -i setsid sh -c 'echo up; kill -STOP $$; SLEEP' &",
    // Three generations of processes.
    "env -i setsid sh -c 'sh -c \"sh -c \\\"echo up; SLEEP; :\\\"; :\"; :' &",
];

/// A process that is killed when the test ends, its stdin, and the lines of its stdout.
struct Started {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The text in every command line of this test.
    word: String,
}

impl Started {
    fn new(mut command: Command, word: &str) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).all(|line| tell.send(line).is_ok())
        });
        Self { child, stdin, lines, word: word.to_owned() }
    }

    /// A guardian of that script, with this process as its parent.
    fn guarding(script: &str) -> Self {
        let word = unique();
        Self::new(guardian(&std::process::id().to_string(), &script.replace("SLEEP", &word)), &word)
    }

    /// A shell that is the parent of the guardian of that script.
    fn guarding_for_another(script: &str) -> Self {
        let word = unique();
        let mut parent = Command::new("/bin/sh");
        // `wait` needs a background job, whose stdin would be empty, so stdin is passed as descriptor 3.
        parent.args(["-c", "\"$0\" toolbridge-guard $$ /bin/sh -c \"$1\" <&3 & wait", BRIDGE]);
        parent.arg(script.replace("SLEEP", &word));
        let mut outer = Command::new("/bin/sh");
        outer.args(["-c", "exec 3<&0; exec \"$@\"", "sh"]).arg(parent.get_program()).args(parent.get_args());
        Self::new(outer, &word)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    #[track_caller]
    fn says(&self, line: &str) {
        assert_eq!(self.lines.recv_timeout(PATIENCE).as_deref(), Ok(line));
    }

    #[track_caller]
    fn status(&mut self) -> ExitStatus {
        eventually(PATIENCE, "the process ends", || self.child.try_wait().unwrap())
    }

    /// No process of this test is left, and none holds its stdout.
    #[track_caller]
    fn no_process_is_left(&self) {
        eventually(PATIENCE, "all processes are gone", || left(&self.word).is_empty().then_some(()));
        assert_eq!(self.lines.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        // Processes left by a failed test.
        for pid in left(&self.word) {
            _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn guardian(parent: &str, script: &str) -> Command {
    let mut command = Command::new(BRIDGE);
    command.args(["toolbridge-guard", parent, "/bin/sh", "-c", script]);
    command
}

/// A command that takes ten minutes and is unique to the test.
fn unique() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("sleep 600.{}{:04}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}

/// The processes with that text in their command lines.
fn left(word: &str) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let has_it = |process: &std::fs::DirEntry| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(word)
    };
    let pid = |process: std::fs::DirEntry| Pid::from_raw(process.file_name().to_str()?.parse().ok()?);
    processes.filter(has_it).filter_map(pid).collect()
}

#[track_caller]
fn eventually<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A script that leaves all of them behind, and then runs `then`.
fn leaving(then: &str) -> String {
    format!("{}\n{then}", LEFT_BEHIND.join("\n"))
}

#[track_caller]
fn all_are_up(started: &Started) {
    for _ in LEFT_BEHIND {
        started.says("up");
    }
}

#[test]
fn it_ends_as_the_cli_does() {
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 7", Some(7), None),
        ("kill -TERM $$", None, Some(15)),
        ("kill -KILL $$", None, Some(9)),
        ("kill -PIPE $$", None, Some(13)),
        ("kill -USR1 $$", None, Some(10)),
        ("kill -SEGV $$", None, Some(11)),
    ] {
        let status = Started::guarding(script).status();
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
    }
}

#[test]
fn it_writes_no_core_file_of_its_own() {
    let dir = tempfile::TempDir::new().unwrap();
    let script =
        "ulimit -c unlimited; exec \"$0\" toolbridge-guard $PPID /bin/sh -c 'ulimit -c 0; kill -SEGV $$'";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, BRIDGE]).current_dir(dir.path());
    let status = Started::new(command, &unique()).status();
    assert_eq!((status.signal(), status.core_dumped()), (Some(11), false));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_ends_of_the_clis_pipes_are_seen_though_the_guardian_lives() {
    let mut started = Started::guarding("exec >&-; read line; exit 0");
    assert_eq!(started.lines.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    assert!(started.child.try_wait().unwrap().is_none(), "the CLI lives");

    let mut started = Started::guarding("exec <&-; echo up; SLEEP");
    started.says("up");
    // The guardian may close its copy a moment after the CLI's first line.
    let mut stdin = started.stdin.take().unwrap();
    let error = eventually(PATIENCE, "stdin has no reader", || stdin.write_all(b"x").err());
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);

    // The CLI also sees the end of its stdin.
    let mut started = Started::guarding("read line; echo \"$line\"; read line || exit 5");
    started.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    started.says("hello");
    assert_eq!(started.status().code(), Some(5));
}

#[test]
fn a_cli_that_ends_leaves_no_process_behind() {
    let mut started = Started::guarding(&leaving("read line; exit 7"));
    all_are_up(&started);
    drop(started.stdin.take());
    assert_eq!(started.status().code(), Some(7));
    started.no_process_is_left();
}

#[test]
fn a_killed_cli_leaves_no_process_behind() {
    let mut started = Started::guarding(&leaving("read line; kill -KILL $$"));
    all_are_up(&started);
    drop(started.stdin.take());
    assert_eq!(started.status().signal(), Some(9));
    started.no_process_is_left();
}

#[test]
fn what_is_left_has_a_moment_to_end_in_good_order() {
    let script = "setsid sh -c 'trap \"echo saved; exit\" TERM; SLEEP & echo up; while :; do wait; done' & \
                  read line; exit 0";
    let mut started = Started::guarding(script);
    started.says("up");
    drop(started.stdin.take());
    started.says("saved");
    assert!(started.status().success());
    started.no_process_is_left();
}

#[test]
fn an_immediate_end_leaves_no_process_behind() {
    for cli in ["SLEEP; :", "trap '' TERM; SLEEP; :", "kill -STOP $$"] {
        let mut started = Started::guarding(&leaving(cli));
        all_are_up(&started);
        started.signal(HURRY);
        assert_eq!(started.status().signal(), Some(9), "{cli}");
        started.no_process_is_left();
    }
}

#[test]
fn a_parent_that_is_killed_or_ends_leaves_no_process_behind() {
    for signal in [Signal::KILL, Signal::TERM] {
        for cli in ["SLEEP; :", "trap '' TERM; SLEEP; :", "kill -STOP $$"] {
            let mut started = Started::guarding_for_another(&leaving(cli));
            all_are_up(&started);
            started.signal(signal);
            assert_eq!(started.status().signal(), Some(signal.as_raw()));
            started.no_process_is_left();
        }
    }
}

#[test]
fn a_parent_that_becomes_another_program_leaves_no_process_behind() {
    let word = unique();
    // A thread of Python starts the guardian and waits for it, as our library does.
    let program = "import os, subprocess, sys, threading\n\
        arguments = [sys.argv[1], 'toolbridge-guard', str(os.getpid()), '/bin/sh', '-c', sys.argv[2]]\n\
        threading.Thread(target=subprocess.call, args=[arguments], daemon=True).start()\n\
        input()\n\
        os.execv('/bin/sh', ['sh', '-c', 'exec 1>&-; read line'])\n";
    let mut command = Command::new("python3");
    command.args(["-c", program, BRIDGE]).arg(leaving("SLEEP <&-; :").replace("SLEEP", &word));
    let mut started = Started::new(command, &word);
    all_are_up(&started);
    started.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    started.no_process_is_left();
    assert!(started.child.try_wait().unwrap().is_none(), "the parent lives");
}

#[test]
fn the_directory_of_a_request_goes_with_the_cli_though_the_parent_lives() {
    let dir = tempfile::tempdir().unwrap();
    let room = dir.path().join("toolbridge-0/run-1");
    std::fs::create_dir_all(room.join("tmp")).unwrap();
    std::fs::write(room.join("tmp/picture.png"), "…").unwrap();
    let mut guardian = guardian(&std::process::id().to_string(), "test -d $ROOM && exit 3");
    let status = guardian.env("TOOLBRIDGE_ROOM", &room).env("ROOM", &room).status().unwrap();
    assert_eq!(status.code(), Some(3), "it was there as long as the CLI was");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_signal_for_the_guardian_is_for_the_cli() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
        let script = format!("trap 'echo heard; exit 3' {name}; SLEEP & echo up; while :; do wait; done");
        let mut started = Started::guarding(&script);
        started.says("up");
        started.signal(signal);
        started.says("heard");
        assert_eq!(started.status().code(), Some(3));
        started.no_process_is_left();
    }
}

#[test]
fn what_the_parent_blocks_or_ignores_makes_no_guardian_deaf() {
    for how in ["--block-signal=TERM,USR1,CHLD", "--ignore-signal=USR1,CHLD"] {
        let word = unique();
        let script = leaving("trap 'exit 3' TERM; SLEEP & echo up; while :; do wait; done");
        let inner = guardian(&std::process::id().to_string(), &script.replace("SLEEP", &word));
        let mut command = Command::new("env");
        command.arg(how).arg(inner.get_program()).args(inner.get_args());
        let mut started = Started::new(command, &word);
        all_are_up(&started);
        started.says("up");
        started.signal(Signal::TERM);
        assert_eq!(started.status().code(), Some(3), "{how}");
        started.no_process_is_left();
    }
}

#[test]
fn a_killed_guardian_takes_the_cli_along() {
    let mut started = Started::guarding("trap '' TERM; echo up; read line; SLEEP");
    started.says("up");
    started.signal(Signal::KILL);
    assert_eq!(started.status().signal(), Some(9));
    started.no_process_is_left();
}

#[test]
fn a_parent_that_is_gone_already_gets_no_cli() {
    let mut started = Started::new(guardian("1", "echo up"), &unique());
    assert_eq!(started.status().code(), Some(127));
    assert_eq!(started.lines.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn a_cli_that_cannot_be_started_is_named() {
    let parent = std::process::id().to_string();
    let output =
        Command::new(BRIDGE).args(["toolbridge-guard", &parent, "/no/claude", "-x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "cannot start `/no/claude`: No such file or directory (os error 2)\n");
}

#[test]
fn a_guardian_needs_valid_arguments() {
    for args in [
        &["toolbridge-guard"][..],
        &["toolbridge-guard", "1"],
        &["toolbridge-guard", "-1", "/bin/true"],
        &["toolbridge-guard", "me", "/bin/true"],
        &["guard", "1", "/bin/true"],
    ] {
        let status = Command::new(BRIDGE).args(args).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(2), "{args:?}");
    }
}
