//! Makes each system call of a scenario fail that another process runs: `fail-each-call NAME SOCKET EVERY
//! KNOWN…`
//!
//! For each run, a line of JSON with the settings goes to the socket. One line comes back: what was wrong, an
//! empty line if all went well, or `error`. NAME is reported if strace may not trace. One call in EVERY
//! of each kind fails, and KNOWN are calls that the scenario must make.
#![allow(clippy::unwrap_used, reason = "for tests")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use serde_json::json;
use toolbridge_scripted::{Run, fail_every};

/// Longer than the other process waits for a run.
const PATIENCE: Duration = Duration::from_secs(180);

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [name, socket, every, known @ ..] = &args[..] else {
        panic!("usage: fail-each-call NAME SOCKET EVERY KNOWN…")
    };
    let every = every.parse().unwrap();
    let known: Vec<_> = known.iter().map(String::as_str).collect();
    let scenario = |run: &Run| {
        let mut player = UnixStream::connect(socket).unwrap();
        player.set_read_timeout(Some(PATIENCE)).unwrap();
        let wanted =
            json!({ "dir": run.dir, "library": run.library(), "strace": run.strace(), "done": run.done() });
        player.write_all(format!("{wanted}\n").as_bytes()).unwrap();
        let mut wrong = String::new();
        BufReader::new(player).read_line(&mut wrong).unwrap();
        assert!(["\n", "error\n"].contains(&&*wrong), "{wrong}");
        wrong == "\n"
    };
    // In a thread with the name of the test.
    let all = || fail_every("python", every, &known, scenario);
    let ended = thread::scope(|scope| {
        thread::Builder::new().name(name.clone()).spawn_scoped(scope, all).unwrap().join()
    });
    std::process::exit(i32::from(ended.is_err()));
}
