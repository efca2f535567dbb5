//! Named sessions: a directory of this user with an entry for each.
//!
//! Like the schema file, an entry is locked before it gets its name and stays locked as long as its session lives.
//! It is created last and removed first. So a locked entry belongs to a session that accepts connections, and any
//! other was left by a killed process.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::ServerInfo;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use tempfile::TempPath;

use crate::ipc::IpcError;
use crate::ipc::files::{Lock, SessionId, create_locked, open_itself, temp_dir};
use crate::ipc::user::User;

/// The maximum length of a name; it becomes a part of tools' names.
const MAX_NAME_CHARS: usize = 48;

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

/// Registers a session with these `socket` and `schema` files as `name` in `dir`. Dropping the entry removes its file and
/// then unlocks it.
pub(crate) fn create_entry(
    dir: &Path,
    id: SessionId,
    name: &str,
    (socket, schema): (&Path, &Path),
    server: ServerInfo,
) -> Result<(TempPath, Lock), IpcError> {
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
    let path = dir.join(format!("{name}.{}.json", id.text()));
    let lock = create_locked(&path.with_extension("tmp"), &text, |file| file.persist_noclobber(&path))
        .map_err(failed("cannot create an entry"))?;
    Ok((TempPath::try_from_path(path)?, lock))
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
    let temporary = temp_dir().join(format!("toolbridge-{}", User::of_this_process().uid()));
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
    entries.filter_map(|entry| look(&entry.path())).collect()
}

/// The session of an entry, if it is alive. Other files than entries are left alone.
fn look(path: &Path) -> Option<NamedSession> {
    let (name, id) = path.file_stem()?.to_str()?.rsplit_once('.')?;
    let is_finished = match path.extension()?.to_str()? {
        "json" => true,
        "tmp" => false,
        _ => return None,
    };
    check_name(name).ok()?;
    SessionId::parse(id).filter(|id| id.is_ours())?;
    let file = open_itself(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || !User::of_this_process().is(meta.uid()) {
        return None;
    }
    // A shared lock: several processes may check at the same time, and must not mistake each other for the session.
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        _ = fs::remove_file(path);
        return None;
    }
    let read = is_finished.then(|| serde_json::from_reader(io::BufReader::new(file)))?;
    read.inspect_err(|error| tracing::debug!(%error, "an entry cannot be read")).ok()
}
