//! Named sessions: a directory of this user with an entry for each.
//!
//! Like the schema file, an entry is locked before it gets its name and stays locked as long as its session lives.
//! It is created last and removed first. So a locked entry belongs to a session that accepts connections, and any
//! other was left by a killed process.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::ServerInfo;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::ipc::IpcError;
use crate::ipc::files::{Made, SessionId, create_locked};
use crate::ipc::fork::Private;
use crate::ipc::user::User;

/// The maximum length of a name; it becomes a part of tools' names.
const MAX_NAME_CHARS: usize = 48;

const SUFFIX: &str = ".json";

/// An unfinished entry older than this was left by a killed process.
const UNFINISHED_AGE: Duration = Duration::from_secs(60);

/// A live named session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NamedSession {
    /// Its name. Several sessions may have the same one.
    pub name: String,
    /// The program that started it.
    pub program: PathBuf,
    /// The process that started it.
    pub pid: u32,
    /// When it started.
    pub started: SystemTime,
    /// The session's socket.
    pub socket: PathBuf,
    /// The session's schema file.
    pub schema: PathBuf,
    /// How it introduces itself.
    pub server: ServerInfo,
}

/// The entry of a session of this process. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct NameEntry {
    // Dropped first: the file is removed before it is unlocked.
    _file: Made,
    _lock: Private<File>,
}

impl NameEntry {
    /// Registers the session with these `socket` and `schema` files as `name` in `dir`.
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
        let lock = create_locked(&path, &unfinished, &text).map_err(failed("cannot create an entry"))?;
        Ok(Self { _file: Made(path), _lock: lock })
    }
}

/// Refuses a name that cannot be a part of a tool's name, or that would make `session__tool` ambiguous.
pub(crate) fn check_name(name: &str) -> Result<(), IpcError> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    let is_plain = !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.chars().all(is_plain);
    if is_plain && !name.contains("__") && !name.ends_with('_') {
        return Ok(());
    }
    Err(IpcError::Name { name: name.into(), limit: MAX_NAME_CHARS })
}

/// The directories with the names of this user's sessions. New entries go into the first.
#[must_use]
pub fn names_dirs() -> Vec<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // The variable is not set for every process of a user, so both directories are searched.
    let runtime = runtime.filter(|dir| dir.is_absolute() && dir.is_dir()).map(|dir| dir.join("toolbridge"));
    let temporary =
        crate::ipc::files::temp_dir().join(format!("toolbridge-{}", User::of_this_process().uid()));
    runtime.into_iter().chain([temporary]).collect()
}

/// The live named sessions in those directories; entries of dead ones are removed. A directory that is missing or
/// does not belong to this user has none.
#[must_use]
pub fn named_sessions(dirs: &[PathBuf]) -> Vec<NamedSession> {
    let mut found: Vec<_> = dirs.iter().flat_map(|dir| sweep_names(dir)).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name).then(other.started.cmp(&one.started)));
    found
}

/// Creates the directory if needed; refuses one that other users could have written to.
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

/// The live sessions with an entry in `dir`; entries of dead ones are removed.
fn sweep_names(dir: &Path) -> Vec<NamedSession> {
    if let Err(error) = check_dir(dir) {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(dir = %dir.display(), %error, "session names in this directory are ignored");
        }
        return Vec::new();
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let user = User::of_this_process();
    entries.map(|entry| entry.path()).filter_map(|path| look(&path, kind_of(&path)?, user)).collect()
}

/// The kind of a file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Entry,
    /// It may not be locked yet; locking it here would make its session's start fail.
    Unfinished,
}

/// Which kind of our files this is, by its name; other files are left alone.
fn kind_of(path: &Path) -> Option<Kind> {
    let (name, id) = path.file_stem()?.to_str()?.rsplit_once('.')?;
    let is_ours = check_name(name).is_ok() && SessionId::parse(id).is_some_and(SessionId::is_ours);
    match path.extension()?.to_str()? {
        "json" if is_ours => Some(Kind::Entry),
        "tmp" if is_ours => Some(Kind::Unfinished),
        _ => None,
    }
}

/// The session of an entry, if it is alive.
fn look(path: &Path, kind: Kind, user: User) -> Option<NamedSession> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok()?;
    let is_young = meta.modified().ok()?.elapsed().unwrap_or_default() <= UNFINISHED_AGE;
    if !meta.is_file() || !user.is(meta.uid()) || (kind == Kind::Unfinished && is_young) {
        return None;
    }
    // A shared lock: several processes may check at the same time, and must not mistake each other for the session.
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
