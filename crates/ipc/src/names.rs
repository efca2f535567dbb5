//! Sessions that can be found by a name: a directory of this user with an entry for each.
//!
//! An entry is locked before it gets its name and for as long as its session lives, as the schema file is; it comes last and
//! goes first. So an entry that is locked is one of a session that answers, and any other is what a killed process left.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use toolbridge_core::ServerInfo;

use crate::IpcError;
use crate::files::{Made, SessionId, create_locked};
use crate::fork::Private;
use crate::user::User;

/// The longest name; it becomes a part of tools' names.
const MAX_NAME_CHARS: usize = 48;

const SUFFIX: &str = ".json";

/// An entry that has not got its final name for so long is one that a killed process left.
const UNFINISHED_AGE: Duration = Duration::from_secs(60);

/// A live session that has a name.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NamedSession {
    /// Its name. Several sessions may have the same one.
    pub name: String,
    /// The program that started it.
    pub program: PathBuf,
    /// And its process.
    pub pid: u32,
    /// When it started.
    pub started: SystemTime,
    /// The session's socket.
    pub socket: PathBuf,
    /// The session's schema file.
    pub schema: PathBuf,
    /// What it says of itself.
    pub server: ServerInfo,
}

/// An entry of a session of this process. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct NameEntry {
    // Gone before it is unlocked.
    _file: Made,
    _lock: Private<File>,
}

impl NameEntry {
    /// Makes the session that `socket` and `schema` are of known as `name` in `dir`.
    pub(crate) fn create(
        dir: &Path,
        id: SessionId,
        name: &str,
        (socket, schema): (&Path, &Path),
        server: ServerInfo,
    ) -> Result<Self, IpcError> {
        let failed = |what| move |error| IpcError::Start { dir: dir.into(), what, error };
        private_dir(dir).map_err(failed("cannot use it for the names of sessions"))?;
        sweep_names(dir);
        let session = NamedSession {
            name: name.into(),
            program: env::current_exe().unwrap_or_default(),
            pid: std::process::id(),
            started: SystemTime::now(),
            socket: socket.into(),
            schema: schema.into(),
            server,
        };
        let text = serde_json::to_vec(&session).map_err(|error| IpcError::Invalid {
            reason: format!("the path cannot be written as JSON: {error}"),
        })?;
        let path = dir.join(format!("{name}.{}{SUFFIX}", id.text()));
        let unfinished = path.with_extension("tmp");
        let lock = create_locked(&path, &unfinished, &text).map_err(failed("cannot make an entry"))?;
        Ok(Self { _file: Made(path), _lock: lock })
    }
}

/// Refuses a name that could not be a part of a tool's name.
pub(crate) fn check_name(name: &str) -> Result<(), IpcError> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    if !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(IpcError::Name { name: name.into(), limit: MAX_NAME_CHARS })
}

/// The directories in which sessions of this user have their names. A new one goes into the first.
#[must_use]
pub fn names_dirs() -> Vec<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // Not set for every process of a user: where it is, both are looked into.
    let runtime = runtime.filter(|dir| dir.is_absolute() && dir.is_dir()).map(|dir| dir.join("toolbridge"));
    let temporary = crate::files::temp_dir().join(format!("toolbridge-{}", User::of_this_process().uid()));
    runtime.into_iter().chain([temporary]).collect()
}

/// The live sessions with a name in those directories; removes what dead ones left. A directory that is missing or not this
/// user's own has none.
#[must_use]
pub fn named_sessions(dirs: &[PathBuf]) -> Vec<NamedSession> {
    let mut found: Vec<_> = dirs.iter().flat_map(|dir| sweep_names(dir)).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name).then(other.started.cmp(&one.started)));
    found
}

/// Makes the directory, if need be, and refuses one that others could have put entries into.
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check_dir(dir)
}

fn check_dir(dir: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(dir)?;
    let refused = |reason: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    if !meta.is_dir() {
        return refused("it is not a directory".into());
    }
    if !User::of_this_process().is(meta.uid()) {
        return refused(format!("it belongs to user {}", meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return refused(format!(
            "other users can enter it, its mode is {:04o}; `chmod 700` it",
            meta.mode() & 0o7777
        ));
    }
    Ok(())
}

/// The live sessions that are named in `dir`; removes the entries of dead ones.
fn sweep_names(dir: &Path) -> Vec<NamedSession> {
    if let Err(error) = check_dir(dir) {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(dir = %dir.display(), %error, "names of sessions are not looked for there");
        }
        return Vec::new();
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let user = User::of_this_process();
    entries.map(|entry| entry.path()).filter_map(|path| look(&path, kind_of(&path)?, user)).collect()
}

/// What a file is by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Entry,
    /// It may not have been locked yet; locking it would fail its session's start.
    Unfinished,
}

/// Which of ours a file is by its name; whatever else is there is left alone.
fn kind_of(path: &Path) -> Option<Kind> {
    let (name, id) = path.file_stem()?.to_str()?.rsplit_once('.')?;
    let is_ours = check_name(name).is_ok() && SessionId::parse(id).is_some_and(SessionId::is_ours);
    match path.extension()?.to_str()? {
        "json" if is_ours => Some(Kind::Entry),
        "tmp" if is_ours => Some(Kind::Unfinished),
        _ => None,
    }
}

/// The session of an entry, if it lives.
fn look(path: &Path, kind: Kind, user: User) -> Option<NamedSession> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok()?;
    let is_young = meta.modified().ok()?.elapsed().unwrap_or_default() <= UNFINISHED_AGE;
    if !meta.is_file() || !user.is(meta.uid()) || (kind == Kind::Unfinished && is_young) {
        return None;
    }
    // Shared: others may look at the same moment, and must not take each other for the session.
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        _ = fs::remove_file(path);
        return None;
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let read = serde_json::from_slice(&text);
    read.inspect_err(|error| tracing::debug!(%error, "an entry cannot be read"))
        .ok()
        .filter(|_| kind == Kind::Entry)
}
