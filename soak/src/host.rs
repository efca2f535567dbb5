//! A host process with tools, and the signals it gets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::account::Count;
use crate::note::Notes;
use crate::trouble::Troubles;

/// Longer than anything takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// The program of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// `toolbridge demo --serve`.
    Demo,
    /// The benchmark's parent, whose tools have structured results.
    Parent,
}

/// The executables, and the TMPDIR of all processes.
pub(crate) struct Place {
    pub(crate) toolbridge: PathBuf,
    pub(crate) bridge: PathBuf,
    pub(crate) parent: PathBuf,
    pub(crate) dir: PathBuf,
}

impl Place {
    /// A command with logging off, whose process can be found by its environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("TMPDIR", &self.dir).stderr(Stdio::null());
        // Freed memory is returned to the system at once, so that leaks show; and panics do not load the
        // executable's debug information.
        command.env("MALLOC_MMAP_THRESHOLD_", "131072").env("MALLOC_TRIM_THRESHOLD_", "131072");
        command.env("RUST_BACKTRACE", "0");
        for variable in ["TOOLBRIDGE_LOG", "TOOLBRIDGE_BRIDGE", "TOOLBRIDGE_TRACE"] {
            command.env_remove(variable);
        }
        command
    }

    /// The files in the directory.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.dir)?.collect::<std::io::Result<Vec<_>>>()?;
        Ok(entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }

    /// The processes with this TMPDIR.
    pub(crate) fn processes(&self) -> Result<Vec<String>> {
        let mark = format!("TMPDIR={}", self.dir.display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            // The environment of ended processes, and of other users, cannot be read.
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
                found.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(found)
    }
}

/// A process with a session.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) kind: HostKind,
    pub(crate) socket: PathBuf,
    pub(crate) schema: PathBuf,
    process: Mutex<(Child, Option<ChildStdin>)>,
    pub(crate) troubles: Troubles,
    pub(crate) notes: Notes,
}

impl Host {
    pub(crate) fn start(place: &Place, kind: HostKind, name: String) -> Result<Self> {
        let mut command =
            place.command(if kind == HostKind::Demo { &place.toolbridge } else { &place.parent });
        if kind == HostKind::Demo {
            command.args(["demo", "--serve"]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        if kind == HostKind::Parent {
            stdin.write_all(b"start 3\n")?;
        }
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
        let hello: Value = serde_json::from_str(&line).with_context(|| format!("{name} says {line:?}"))?;
        let path = |key: &str| hello[key].as_str().map(PathBuf::from).with_context(|| format!("no {key}"));
        Ok(Self {
            name,
            kind,
            socket: path("socket")?,
            schema: path("schema")?,
            process: Mutex::new((child, Some(stdin))),
            troubles: Troubles::default(),
            notes: Notes::default(),
        })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&lock(&self.process).0), signal)?)
    }

    /// Kills it; the next start removes its files.
    pub(crate) fn kill(&self) -> Result<()> {
        self.troubles.begin(true);
        self.signal(Signal::KILL)?;
        self.wait()?;
        Ok(())
    }

    /// Ends it normally: by a signal, or by closing its stdin.
    pub(crate) fn stop(&self, signal: Option<Signal>) -> Result<()> {
        self.troubles.begin(true);
        match signal {
            Some(signal) => self.signal(signal)?,
            None => drop(lock(&self.process).1.take()),
        }
        let status = self.wait()?;
        ensure!(status.success(), "{} ended with {status}", self.name);
        let left = || Error::msg(format!("{} ended and left a file", self.name)).context(Count::Left);
        if self.has_files() { Err(left()) } else { Ok(()) }
    }

    /// Stops it for a while.
    pub(crate) fn halt(&self, how_long: Duration) -> Result<()> {
        self.troubles.begin(false);
        self.signal(Signal::STOP)?;
        std::thread::sleep(how_long);
        self.signal(Signal::CONT)?;
        self.troubles.end();
        Ok(())
    }

    fn wait(&self) -> Result<ExitStatus> {
        wait_for(&mut lock(&self.process).0, &self.name)
    }

    pub(crate) fn has_files(&self) -> bool {
        self.socket.exists() || self.schema.exists()
    }

    /// The number of its open descriptors.
    pub(crate) fn descriptors(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", lock(&self.process).0.id()))?.count())
    }

    /// Its resident memory.
    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", lock(&self.process).0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        Ok(line.context("no VmRSS")?.parse()?)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let child = &mut lock(&self.process).0;
        _ = child.kill();
        _ = child.wait();
    }
}

/// Waits for the end of a process.
pub(crate) fn wait_for(child: &mut Child, name: &str) -> Result<ExitStatus> {
    eventually(&format!("{name} ends"), || Ok(child.try_wait()?.is_some()))?;
    Ok(child.wait()?)
}

/// Waits until a condition holds.
pub(crate) fn eventually(name: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + LIMIT;
    while !holds()? {
        ensure!(Instant::now() < until, "not within {LIMIT:?}: {name}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
