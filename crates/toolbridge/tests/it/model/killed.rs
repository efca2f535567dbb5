//! A program that is killed during a request, with the real CLI and real shell commands.
#![allow(clippy::print_stderr, reason = "figures of a run by hand")]

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use toolbridge_scripted::{Block, Turn, claude_cli, clean_environment, one_of, thorough};

use super::support::{PATIENCE, World, bridge, is_cli, pid_of, processes_of, program};
use super::traps::files_below;

/// The program, killed at the end of the test at the latest.
struct Killed {
    world: World,
    child: Child,
    /// Identifies processes by their command line if they have no other mark.
    seconds: String,
}

impl Killed {
    /// Starts a program whose model runs this command repeatedly. `SECONDS` is replaced with a unique sleep
    /// duration.
    fn start(command: &str, guardian: Option<PathBuf>) -> Self {
        let seconds = format!("600.{}", random());
        let command = command.replace("SECONDS", &seconds);
        let world =
            World::answering(move |_| Turn::blocks(vec![Block::call("Bash", json!({ "command": command }))]));
        let mut caller = Command::new(bridge().with_file_name("shell"));
        caller.env_clear().envs(clean_environment(world.home.path(), &world.scripted.url()));
        // Excludes a guardian that may be installed on this machine.
        caller.env("PATH", "/usr/bin:/bin").arg(claude_cli()).args(guardian);
        caller.env("TMPDIR", world.sessions.path());
        caller
            .current_dir(world.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self { child: caller.spawn().unwrap(), world, seconds }
    }

    fn left(&self) -> BTreeSet<String> {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let folder = entry.ok()?.path();
            let line = std::fs::read(folder.join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(&self.seconds).then(|| format!("{}: {line:.200}", folder.display()))
        });
        processes_of(self.world.home.path()).chain(processes).collect()
    }

    #[track_caller]
    fn eventually(&self, limit: Duration, what: &str, look: impl Fn(&BTreeSet<String>) -> bool) {
        let started = Instant::now();
        loop {
            let left = self.left();
            if look(&left) {
                return;
            }
            assert!(started.elapsed() < limit, "not within {limit:?}: {what}: {left:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        // Processes left by a failed test, or by one without a guardian.
        self.left().iter().for_each(|process| _ = kill_process(pid_of(process), Signal::KILL));
    }
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[test]
fn a_program_killed_at_any_moment_leaves_no_process_and_sends_no_more_requests() {
    // Processes in the shell's group, in a new session, without an environment; and one that the shell
    // waits for. The CLI itself refuses a plain `sleep`.
    let command = "env sleep SECONDS & setsid sleep SECONDS & env -i setsid sh -c 'exec sleep SECONDS' & \
                   timeout 0.3 tail -f /dev/null";
    let kills = std::env::var("TOOLBRIDGE_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(if thorough() { 4 } else { 2 });
    let (mut slowest, mut all) = (Duration::ZERO, Vec::new());
    for kill in 0..kills {
        let mut caller = Killed::start(command, Some(bridge()));
        let moment = Duration::from_millis(random() % 2500);
        std::thread::sleep(moment);
        let processes = caller.left().len();
        caller.kill([Signal::KILL, Signal::TERM][kill % 2]);
        let (killed, asked) = (Instant::now(), caller.world.scripted.requests().len());
        caller.eventually(PATIENCE, "nothing is left", BTreeSet::is_empty);
        let took = killed.elapsed();
        eprintln!("killed after {moment:?}: {processes} processes, {asked} requests; gone after {took:?}");
        slowest = slowest.max(took);
        all.push((caller, asked));
    }
    // No process has reappeared.
    let mut later = 0;
    for (caller, asked) in &all {
        assert_eq!(caller.left(), BTreeSet::new());
        let more = caller.world.scripted.requests().len() - asked;
        assert!(more <= 1, "{more} requests after the kill; only one can have been on its way");
        later += more;
    }
    eprintln!("{kills} kills, nothing left; the slowest took {slowest:?}; {later} requests afterwards");
}

#[test]
fn a_program_killed_during_a_command_leaves_no_process_and_sends_no_more_requests() {
    for signal in one_of(&[Signal::KILL, Signal::TERM]) {
        let command = "env -i setsid sh -c 'exec sleep SECONDS' & tail -f /dev/null";
        let mut caller = Killed::start(command, Some(bridge()));
        let is_up = |left: &BTreeSet<String>| ["sleep 600.", "tail -f"].iter().all(|it| has(left, it));
        caller.eventually(PATIENCE, "the commands run", is_up);
        assert!(!files_below(caller.world.sessions.path()).is_empty(), "the request has a directory");
        caller.kill(signal);
        caller.eventually(PATIENCE, "nothing is left", BTreeSet::is_empty);
        assert_eq!(caller.world.scripted.requests().len(), 1);
        // No file of the request is left either.
        caller.world.nothing_is_left_soon();
    }
}

/// Whether the command line of one of the processes starts with this text.
fn has(processes: &BTreeSet<String>, start: &str) -> bool {
    processes.iter().any(|process| process.split_once(": ").is_some_and(|(_, line)| line.starts_with(start)))
}

#[test]
fn without_a_guardian_the_cli_still_dies_with_the_program() {
    for signal in one_of(&[Signal::KILL, Signal::TERM]) {
        let mut caller = Killed::start("timeout 0.1 tail -f /dev/null; echo SECONDS", None);
        let has_cli = |left: &BTreeSet<String>| left.iter().any(|process| is_cli(process));
        let started = Instant::now();
        while caller.world.scripted.requests().len() < 2 {
            assert!(started.elapsed() < PATIENCE, "the model is not asked");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(has_cli(&caller.left()));
        caller.kill(signal);
        let asked = caller.world.scripted.requests().len();
        caller.eventually(PATIENCE, "the CLI is gone", |left| !has_cli(left));
        assert!(caller.world.scripted.requests().len() <= asked + 1);
    }
}

#[tokio::test]
async fn a_killed_guardian_is_an_error_and_nothing_is_left() {
    // The CLI in its own session, and a command in another one.
    let script = "setsid sh -c ': > up; exec sleep 600' & trap '' TERM; while :; do sleep 600 & wait; done";
    let world = World::new("text ok");
    let model = world.builder().cli(program(&world, "claude", script)).build().unwrap();
    let (outcome, ()) = tokio::join!(model.request("go"), async {
        let started = Instant::now();
        while !world.home.path().join("up").exists() {
            assert!(started.elapsed() < PATIENCE, "the command does not start");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let guardian = processes_of(world.home.path()).find(|process| process.contains("toolbridge-guard"));
        kill_process(pid_of(&guardian.unwrap()), Signal::KILL).unwrap();
    });
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("signal: 9"), "{error}");
    world.nothing_is_left_soon();
}

#[tokio::test]
async fn an_invalid_guardian_is_named() {
    let world = World::new("text ok");
    let model = world.builder().guard("/no/guardian").build().unwrap();
    let error = model.request("go").await.unwrap_err();
    let reason = "cannot start `/no/guardian`: No such file or directory (os error 2)";
    let message = format!("the bridge executable, which also starts the CLI, does not work: {reason}");
    assert_eq!(error.to_string(), message);
    assert!(world.scripted.requests().is_empty());
}
