//! Failing system calls: a scenario is run once unchanged, and then once for each system call that it made,
//! with that call failing. By default some calls of each kind fail, and all of them when [`thorough`].
//!
//! The calls are the real ones of real processes, and strace makes them fail. `trace.c`, which is preloaded,
//! has strace attached before `main`, so that only the program's own calls are counted.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::skipped::report_skipped_in;
use crate::thorough::thorough;

const SOURCE: &str = include_str!("trace.c");

/// A shell script instead of the CLI: it calls the tool `add` of the server `tools`, and prints `The sum is
/// 42.` or `The tool has failed.`
pub const STAND_IN: &str = include_str!("stand_in.sh");

const LIBRARY: &str = "trace.so";

/// Set to try every error that a call can have, and not only one of them.
const ALL: &str = "TOOLBRIDGE_INJECT_ALL";

/// How long files and processes may remain after a run.
const AFTERWARDS: Duration = Duration::from_secs(30);

/// Longer than most runs take.
const LONG: Duration = Duration::from_secs(2);

/// By default one call of this many fails.
const SOME: usize = 4;

/// How many runs are made in parallel; they mostly wait.
const AT_ONCE: usize = 8;

/// The traced calls. Calls that need no memory, descriptor, disk or peer are left out, and so are calls that
/// release something (`close`, `unlink`): they cannot be retried, and their failures are not temporary.
const TRACED: &str = "open,openat,socket,socketpair,pipe2,eventfd2,epoll_create1,pidfd_open,dup,dup2,fcntl,bind,listen,\
    accept4,connect,read,readv,pread64,recvfrom,recvmsg,write,writev,pwrite64,sendto,sendmsg,rename,renameat2,link,linkat,\
    mkdir,mkdirat,clone,clone3,fork,vfork,execve,mmap,mprotect,epoll_ctl,epoll_wait,epoll_pwait,poll,ppoll,flock,fchmod,\
    chmod,fchmodat,fstat,statx,stat,newfstatat,getdents64,getrandom,wait4,waitid,ftruncate,fsync";

/// What Rust's standard library, Python's `threading` and tokio print about errors that they cannot report otherwise.
const NOT_OURS: [&str; 3] =
    ["failed to set up alternative stack guard page", "Exception ignored in thread started by", "/tokio-1."];

/// The errors that a call can have, most likely first, depending on its arguments as printed by strace.
fn errors(call: &str, line: &str) -> &'static [&'static str] {
    let on = line.split_once('<').map_or("", |(_, on)| on);
    let is_new = ["O_CREAT", "O_TMPFILE"].iter().any(|flag| line.contains(flag));
    match call {
        // Waking a thread does not fail.
        _ if on.starts_with("anon_inode:[eventfd]") => &[],
        // Threads: tokio panics without its own.
        "clone3" if line.contains("CLONE_THREAD") => &[],
        "mmap" if line.contains("MAP_STACK") => &[],
        "mprotect" if [", 2097152,", ", 8388608,"].iter().any(|size| line.contains(size)) => &[],
        // Nobody can be told.
        "write" | "writev" if line.contains("write(2<") => &[],
        // Python's own modules.
        _ if line.contains("/lib/python3") => &[],
        // asyncio wakes its thread like this.
        "sendto" if line.contains(r#", "\0", 1, 0"#) => &[],
        "open" | "openat" if is_new => &["ENOSPC", "EMFILE", "ENOMEM"],
        "open" | "openat" => &["EMFILE", "ENOMEM"],
        "socket" | "socketpair" | "pipe2" | "eventfd2" | "epoll_create1" | "pidfd_open" => {
            &["EMFILE", "ENOMEM"]
        }
        "fcntl" if !line.contains("F_DUPFD") => &[],
        "dup" | "dup2" | "fcntl" => &["EMFILE"],
        "accept4" => &["EMFILE", "ECONNABORTED", "EINTR"],
        "connect" => &["ENOMEM", "EINTR"],
        "read" | "readv" | "recvmsg" if on.starts_with("socket:") => &["ECONNRESET", "EINTR"],
        "read" | "readv" if on.starts_with("pipe:") => &["EINTR"],
        "read" | "readv" | "pread64" => &["EIO", "EINTR"],
        "sendto" | "sendmsg" => &["EPIPE", "ENOBUFS", "EINTR"],
        "write" | "writev" if on.starts_with("socket:") || on.starts_with("pipe:") => &["EPIPE", "EINTR"],
        "write" | "writev" | "pwrite64" | "ftruncate" | "fsync" => &["ENOSPC", "EINTR", "EIO"],
        "clone" | "clone3" | "fork" | "vfork" => &["EAGAIN", "ENOMEM"],
        "epoll_ctl" if !line.contains("EPOLL_CTL_ADD") => &[],
        "epoll_ctl" | "bind" | "rename" | "renameat2" | "link" | "linkat" | "mkdir" | "mkdirat" => {
            &["ENOSPC", "ENOMEM"]
        }
        // Only the standard library, tokio and asyncio use `recvfrom`, to wake themselves.
        "recvfrom" | "epoll_wait" | "epoll_pwait" | "poll" | "ppoll" | "wait4" | "waitid" | "getrandom" => {
            &["EINTR"]
        }
        "flock" => &["ENOLCK", "EINTR"],
        "chmod" | "fchmod" | "fchmodat" => &["EIO"],
        "fstat" | "statx" | "stat" | "newfstatat" | "getdents64" => &["EIO", "ENOMEM"],
        _ => &["ENOMEM"],
    }
}

/// One run of a scenario.
pub struct Run {
    /// An empty directory: processes with this path in their environment belong to the run, and after it
    /// neither a process nor a file in the directory may be left.
    pub dir: PathBuf,
    shared: PathBuf,
    number: usize,
    injection: Option<Injection>,
    is_short: bool,
}

/// What fails: the `when`th call of its kind in each thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Injection {
    call: &'static str,
    error: &'static str,
    when: usize,
}

impl Run {
    fn new(dir: &TempDir, shared: &TempDir) -> Self {
        let (dir, shared) = (dir.path().into(), shared.path().into());
        Self { dir, shared, number: 0, injection: None, is_short: false }
    }

    /// An environment in which calls fail in the program whose first argument is `command`, but not in its
    /// children.
    #[must_use]
    pub fn variables(&self, command: &str) -> Vec<(&'static str, String)> {
        let short = self.is_short.then(|| ("TOOLBRIDGE_SHORT", "toolbridge".to_owned()));
        let variables = [
            ("RUST_BACKTRACE", "0".into()),
            ("LD_PRELOAD", self.library().display().to_string()),
            ("TOOLBRIDGE_STRACE", self.strace()),
            ("TOOLBRIDGE_STRACED", command.into()),
            ("TOOLBRIDGE_STRACE_DONE", self.done().display().to_string()),
        ];
        variables.into_iter().chain(short).collect()
    }

    /// The compiled `trace.c`, for tests that call its `trace_me` themselves.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.shared.join(LIBRARY)
    }

    /// The command that makes calls fail.
    #[must_use]
    pub fn strace(&self) -> String {
        let log = self.file("log");
        let strace =
            format!("strace -f -q -b execve -y -o {} -e signal=none -e trace={TRACED}", log.display());
        match self.injection {
            Some(Injection { call, error, when }) => {
                format!("{strace} -e inject={call}:error={error}:when={when}")
            }
            None => strace,
        }
    }

    /// A file that exists once strace has ended.
    #[must_use]
    pub fn done(&self) -> PathBuf {
        self.file("done")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.shared.join(format!("{name}-{}", self.number))
    }

    /// strace's log, once strace has ended.
    fn log(&self) -> String {
        let done = self.done();
        soon("strace ends", || done.exists().then_some(()).ok_or_else(|| self.file("log")));
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        assert!(!log.is_empty(), "strace has traced nothing");
        log
    }

    /// Plays the scenario; kills its processes if a call has failed that does not fail, such as the one that
    /// wakes a thread: then the program may wait forever, and the run counts for nothing.
    fn ended_if_void<T>(&self, play: impl FnOnce() -> T) -> T {
        let (over, is_over) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while is_over.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                    let log = fs::read_to_string(self.file("log")).unwrap_or_default();
                    if !failed(&log).iter().all(|line| can_have(line)) {
                        // A program that has set its environment itself is not found by it, but its log begins with its ID.
                        let traced = log.split(' ').next().map(str::to_owned);
                        processes_of(&self.dir).chain(traced).for_each(|process| kill(&process));
                    }
                }
            });
            let played = play();
            drop(over);
            played
        })
    }

    /// Checks that no file and no process of this run is left.
    fn nothing_is_left(&self) {
        soon("nothing is left", || {
            let files = fs::read_dir(&self.dir).into_iter().flatten().flatten();
            let files = files.map(|file| file.path().display().to_string());
            let left: Vec<_> = processes_of(&self.dir).chain(files).collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
    }
}

fn soon<E: std::fmt::Debug>(what: &str, look: impl Fn() -> Result<(), E>) {
    let started = Instant::now();
    let mut pause = Duration::from_millis(2);
    while let Err(left) = look() {
        assert!(started.elapsed() < AFTERWARDS, "not within {AFTERWARDS:?}: {what}: {left:?}");
        thread::sleep(pause);
        // A look goes through all processes of the machine.
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The processes whose environment contains that directory, as `/proc/<pid>: <command>`.
pub fn processes_of(dir: &Path) -> impl Iterator<Item = String> {
    let dir = dir.to_string_lossy().into_owned();
    fs::read_dir("/proc").into_iter().flatten().filter_map(move |entry| {
        let process = entry.ok()?.path();
        let environment = fs::read(process.join("environ")).ok()?;
        // As text, because the standard library, which is optimised in tests too, then does the search.
        String::from_utf8_lossy(&environment).contains(&dir).then_some(())?;
        let command = fs::read(process.join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        Some(format!("{}: {command:.2000}", process.display()))
    })
}

/// Kills a process of [`processes_of`].
fn kill(process: &str) {
    let id = process.trim_start_matches("/proc/").split(':').next().and_then(|id| id.parse().ok());
    if let Some(id) = id.and_then(Pid::from_raw) {
        _ = kill_process(id, Signal::KILL);
    }
}

/// A folder with the compiled `trace.c`; the C compiler is the one that Rust needs too.
fn compiled() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let source = folder.path().join("trace.c");
    fs::write(&source, SOURCE).expect("a source");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(folder.path().join(LIBRARY)).arg(&source);
    assert!(cc.status().is_ok_and(|status| status.success()), "cannot compile: {cc:?}");
    folder
}

/// Whether strace may trace on this machine. Reports it if not.
fn can_trace(krate: &str) -> bool {
    let mut strace = Command::new("strace");
    let traced = strace.args(["-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    let traced = traced.unwrap_or_else(|error| {
        panic!("cannot start strace ({error}): install it, or run `cargo xtask test`, which gets it")
    });
    if !traced.success() {
        report_skipped_in(krate, "strace is not permitted to trace here");
    }
    traced.success()
}

/// Runs a scenario once unchanged, and then once for each call that the program with [`Run::variables`] made,
/// with that call failing; by default, for one call in four of each kind. The scenario panics if the
/// program misbehaves, and returns whether everything succeeded.
///
/// # Panics
///
/// If a run panics, if it leaves something behind, or if the program makes none of the calls that it is
/// `known` to make.
pub fn fail_each_call(krate: &str, known: &[&str], scenario: impl Fn(&Run) -> bool + Sync) {
    fail_every(krate, if thorough() { 1 } else { SOME }, known, scenario);
}

/// The same with only every `nth` call of each kind, and at least one.
///
/// # Panics
///
/// As [`fail_each_call`] does.
pub fn fail_every(krate: &str, nth: usize, known: &[&str], scenario: impl Fn(&Run) -> bool + Sync) {
    if !can_trace(krate) {
        return;
    }
    let shared = compiled();
    let number = AtomicUsize::new(0);
    let run = |injection| {
        let dir = TempDir::new().expect("a folder");
        let number = number.fetch_add(1, Ordering::Relaxed);
        let run = Run { number, injection, ..Run::new(&dir, &shared) };
        let outcome = run.ended_if_void(|| {
            catch_unwind(AssertUnwindSafe(|| {
                let is_well = scenario(&run);
                run.nothing_is_left();
                is_well
            }))
        });
        let log = run.log();
        (outcome.map_err(|panic| panic_text(&*panic).to_owned()), log)
    };
    let (outcome, log) = run(None);
    assert_eq!(outcome, Ok(true), "it must work if nothing fails");
    let mut injections = injections(&log);
    let calls: BTreeSet<_> = injections.iter().map(|injection| injection.call).collect();
    assert!(known.iter().all(|call| calls.contains(call)), "it makes other calls now: {calls:?}");
    injections = every(nth, &injections);

    let (left, wrong, missed) = (Mutex::new(injections.clone()), Mutex::new(Vec::new()), AtomicUsize::new(0));
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let next = || left.lock().expect("no thread panics").pop();
                while let Some(injection) = next() {
                    let (outcome, log) = run(Some(injection));
                    let failed = failed(&log);
                    if failed.is_empty() {
                        missed.fetch_add(1, Ordering::Relaxed);
                    }
                    if let Err(said) = outcome
                        && !NOT_OURS.iter().any(|text| said.contains(text))
                        && failed.iter().all(|line| can_have(line))
                    {
                        let last = log.lines().rev().take(40).collect::<Vec<_>>();
                        let text =
                            format!("{injection:?}: {failed:#?}\n{said}\nthe last calls first: {last:#?}");
                        wrong.lock().expect("no thread panics").push(text);
                    }
                }
            });
        }
    });
    let (wrong, missed) = (wrong.into_inner().expect("no thread panics"), missed.into_inner());
    let count = injections.len();
    #[expect(clippy::print_stderr, reason = "figures of a test")]
    {
        eprintln!("{count} failures in {:?}; {missed} calls did not come again", started.elapsed());
    }
    assert!(wrong.is_empty(), "{} of {count} went wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(missed * 4 < count, "{missed} of {count} calls did not come again");
}

/// Runs a scenario in which `toolbridge` does short reads and writes in every process with
/// [`Run::variables`].
///
/// # Panics
///
/// If the scenario panics, or if it leaves something behind.
pub fn by_halves(scenario: impl Fn(&Run)) {
    let (dir, shared) = (TempDir::new().expect("a folder"), compiled());
    let run = Run { is_short: true, ..Run::new(&dir, &shared) };
    scenario(&run);
    run.nothing_is_left();
}

/// The thread and the call of a line in the log; `None` for the second half of an interrupted line.
fn call(line: &str) -> Option<(&str, &'static str)> {
    let (thread, rest) = line.split_once(' ')?;
    let (name, _) = rest.trim_start().split_once('(')?;
    TRACED.split(',').find(|call| *call == name).map(|call| (thread, call))
}

/// The calls that were made to fail. strace splits a call into two lines if others come between.
fn failed(log: &str) -> Vec<String> {
    let mut begun = HashMap::new();
    let mut failed = Vec::new();
    for line in log.lines() {
        let thread = line.split_once(' ').map_or("", |(thread, _)| thread);
        if line.ends_with("<unfinished ...>") {
            begun.insert(thread, line);
        } else if line.contains("(INJECTED)") {
            let first = if line.contains("<... ") { begun.get(thread).copied() } else { None };
            failed.push(first.unwrap_or_default().to_owned() + line);
        }
    }
    failed
}

/// Whether the failed call can have that error: in this run it may have been a different call.
fn can_have(line: &str) -> bool {
    call(line).is_none_or(|(_, call)| !errors(call, line).is_empty())
}

/// All failures to inject for a run with that log, each once.
fn injections(log: &str) -> Vec<Injection> {
    let all = std::env::var_os(ALL).is_some();
    let mut counts = HashMap::new();
    let mut found = BTreeSet::new();
    for (line, (thread, call)) in log.lines().filter_map(|line| Some((line, call(line)?))) {
        let when: &mut usize = counts.entry((thread, call)).or_default();
        *when += 1;
        let errors = errors(call, line);
        // One error for each call in turn, unless all are wanted.
        let turn = |place: usize| all || place == (*when - 1) % errors.len();
        let errors = errors.iter().enumerate().filter(|(place, _)| turn(*place));
        found.extend(errors.map(|(_, error)| Injection { call, error, when: *when }));
    }
    found.into_iter().collect()
}

/// Every `nth` failure of each kind, which is a call with an error, and at least one. Not the first of each kind,
/// because all of these would be at the start of the program.
fn every(nth: usize, injections: &[Injection]) -> Vec<Injection> {
    let kinds = injections.chunk_by(|one, next| (one.call, one.error) == (next.call, next.error));
    let some = |(number, kind): (usize, &[Injection])| {
        let first = number % nth.min(kind.len());
        kind.iter().copied().skip(first).step_by(nth).collect::<Vec<_>>()
    };
    kinds.enumerate().flat_map(some).collect()
}

/// The message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nth_failure_has_each_kind() {
        let of = |call, error, count| (1..=count).map(move |when| Injection { call, error, when });
        let all: Vec<_> =
            of("mmap", "ENOMEM", 9).chain(of("open", "EMFILE", 1)).chain(of("open", "ENOMEM", 4)).collect();
        assert_eq!(every(1, &all), all);
        let some: Vec<_> = every(4, &all).iter().map(|one| (one.call, one.error, one.when)).collect();
        let mmaps = [1, 5, 9].map(|when| ("mmap", "ENOMEM", when));
        assert_eq!(some, [&mmaps[..], &[("open", "EMFILE", 1), ("open", "ENOMEM", 3)]].concat());
    }
}
