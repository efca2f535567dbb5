//! The trace file.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::{Event, TRACE_VARIABLE};
use crate::{Hint, show_hint};

/// Why a trace file cannot be used.
pub struct TraceError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl Hint for TraceError {
    fn hint(&self) -> Option<&'static str> {
        Some("name a file of your own, new or with an earlier trace, in a directory that can be written")
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write a trace to `{}`: {}", self.path.display(), self.reason)
    }
}

show_hint!(TraceError);

/// The requested trace file: `given`, otherwise the value of `TOOLBRIDGE_TRACE`. Absolute, because a bridge may be
/// started in another directory.
#[must_use]
pub fn trace_path(given: Option<&Path>) -> Option<PathBuf> {
    let named = || std::env::var_os(TRACE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = given.map(Path::to_owned).or_else(named)?;
    Some(std::path::absolute(&path).unwrap_or(path))
}

/// A file that several processes append lines to.
///
/// Each line is one write to a file opened for appending, so lines of different processes do not mix.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    file: File,
    has_warned: AtomicBool,
}

impl TraceFile {
    /// Opens or creates the file, readable only by this user.
    ///
    /// # Errors
    ///
    /// When it cannot be written, is a link or not a regular file, or belongs to another user, who could then read
    /// the trace or choose the file it is appended to.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let failed = |reason: String| TraceError { path: path.into(), reason };
        // Without `NONBLOCK`, opening a pipe without a reader would block forever.
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| match error {
            rustix::io::Errno::LOOP => failed("it is a symbolic link".into()),
            rustix::io::Errno::NXIO => failed("it is not a regular file".into()),
            error => failed(io::Error::from(error).to_string()),
        })?;
        let found = fstat(&file).map_err(|error| failed(io::Error::from(error).to_string()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(failed("it is not a regular file".into()));
        }
        let (owner, own) = (found.st_uid, rustix::process::geteuid().as_raw());
        if owner != own {
            return Err(failed(format!("it belongs to user {owner}, this process runs as user {own}")));
        }
        Ok(Self { path: path.into(), file: file.into(), has_warned: AtomicBool::new(false) })
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one line. If the disk is full, calls continue; a warning is logged once.
    pub(super) fn write(&self, event: &Event) {
        let mut line = Vec::with_capacity(512);
        serde_json::to_writer(&mut line, event).expect("strings and numbers can always be written");
        line.push(b'\n');
        match (&self.file).write(&line) {
            Ok(count) if count == line.len() => {}
            Ok(_) => self.warn(&"only a part of a line was written"),
            Err(error) => self.warn(&error),
        }
    }

    fn warn(&self, reason: &dyn std::fmt::Display) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(path = %self.path.display(), %reason, "the trace has gaps");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::{Process, What};
    use super::*;

    fn event(pid: u32) -> Event {
        Event { what: What::FrontEnd, ts_ns: 1, process: Process::Bridge, pid }
    }

    #[test]
    fn the_file_is_private_and_is_appended_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.jsonl");
        for pid in [1, 2] {
            TraceFile::open(&path).unwrap().write(&event(pid));
        }
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "{\"event\":\"front_end\",\"ts_ns\":1,\"process\":\"bridge\",\"pid\":1}\n\
             {\"event\":\"front_end\",\"ts_ns\":1,\"process\":\"bridge\",\"pid\":2}\n"
        );
    }

    #[test]
    fn files_that_are_not_plain_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let reason = |name: &str| TraceFile::open(&dir.path().join(name)).unwrap_err().reason;
        symlink(dir.path().join("elsewhere"), dir.path().join("link")).unwrap();
        assert_eq!(reason("link"), "it is a symbolic link");
        assert!(!dir.path().join("elsewhere").exists());
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        assert_eq!(reason("pipe"), "it is not a regular file");
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        assert_eq!(reason("dir"), "Is a directory (os error 21)");
        assert_eq!(reason("none/trace"), "No such file or directory (os error 2)");
        assert_eq!(TraceFile::open(Path::new("/dev/null")).unwrap_err().reason, "it is not a regular file");
    }

    #[test]
    fn a_full_disk_is_reported_once_and_fails_no_call() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let full = TraceFile { path: "/dev/full".into(), file, has_warned: AtomicBool::new(false) };
        full.write(&event(1));
        full.write(&event(2));
        assert!(full.has_warned.load(Ordering::Relaxed));
    }
}
