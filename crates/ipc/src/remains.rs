//! What sessions there are, and what is left of those that were killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::files::{SCHEMA_PREFIX, SessionId, UNFINISHED_SUFFIX};

/// Files that do not tell whose they are must be at least this old before they are removed.
const FOREIGN_AGE: Duration = Duration::from_secs(60);

/// What is known of a session from its files.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Where its socket is, or would be.
    pub socket: PathBuf,
    /// Where its schema file is, or would be.
    pub schema: PathBuf,
    /// How it is.
    pub state: SessionState,
    /// When its newest file was made.
    pub since: SystemTime,
}

/// How a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// Its process holds it.
    Live,
    /// Its process is gone and its files are left.
    Stale,
    /// Nobody answers, but it may be just starting: another implementation's, and younger than a minute.
    Unclear,
}

/// The sessions of this user in `dir`.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn sessions(dir: &Path) -> io::Result<Vec<SessionInfo>> {
    let found = find(dir)?.into_iter();
    Ok(found.filter_map(|(id, seen)| look(dir, id, seen)).map(|remains| remains.info).collect())
}

/// Removes what is left of this user's dead sessions in `dir`, and returns it.
///
/// Live and starting sessions, other users' files and links are never touched.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn sweep(dir: &Path) -> io::Result<Vec<SessionInfo>> {
    let mut removed = Vec::new();
    for (id, seen) in find(dir)? {
        // One at a time: each holds a descriptor while it is looked at.
        let Some(remains) = look(dir, id, seen).filter(|remains| remains.info.state == SessionState::Stale)
        else {
            continue;
        };
        // Sockets before schema files, as a session itself does it.
        for path in &remains.paths {
            match fs::remove_file(path) {
                Ok(()) => tracing::debug!(path = %path.display(), "removed what a dead session left"),
                // Somebody else sweeps too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot remove a dead session's file");
                }
            }
        }
        removed.push(remains.info);
    }
    Ok(removed)
}

/// A session's files as they were found, sockets first.
struct Remains {
    info: SessionInfo,
    paths: Vec<PathBuf>,
    /// Held while a dead session's files are looked at and removed.
    _lock: Option<File>,
}

/// The files in `dir` that are named like a session's, by session.
fn find(dir: &Path) -> io::Result<BTreeMap<SessionId, Vec<PathBuf>>> {
    let mut found: BTreeMap<SessionId, Vec<PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Some(id) = SessionId::of(&entry.file_name()) {
            found.entry(id).or_default().push(entry.path());
        }
    }
    Ok(found)
}

fn look(dir: &Path, id: SessionId, seen: Vec<PathBuf>) -> Option<Remains> {
    // By name, and not only what the listing showed: a schema file that came while the directory was read
    // may be missing there, its socket not.
    let mut paths = id.paths(dir).to_vec();
    for path in seen {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let own = rustix::process::geteuid().as_raw();
    let mut since = SystemTime::UNIX_EPOCH;
    let (mut sockets, mut schemas) = (Vec::new(), Vec::new());
    for path in paths {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.uid() != own {
            return None;
        }
        since = since.max(meta.modified().unwrap_or_else(|_| SystemTime::now()));
        let is_schema =
            path.file_name().is_some_and(|name| name.as_bytes().starts_with(SCHEMA_PREFIX.as_bytes()));
        match meta.file_type() {
            kind if kind.is_socket() && !is_schema => sockets.push(path),
            kind if kind.is_file() && is_schema => schemas.push(path),
            // A link or a directory of that name is not ours to touch.
            _ => return None,
        }
    }
    if sockets.is_empty() && schemas.is_empty() {
        return None;
    }
    let (state, lock) = state(id, &sockets, &schemas, since);
    // Other implementations may write the id in another way.
    let finished = |paths: &[PathBuf]| paths.iter().find(|path| !is_unfinished(path)).cloned();
    let info = SessionInfo {
        socket: finished(&sockets).unwrap_or_else(|| id.socket(dir)),
        schema: finished(&schemas).unwrap_or_else(|| id.schema(dir)),
        state,
        since,
    };
    Some(Remains { info, paths: sockets.into_iter().chain(schemas).collect(), _lock: lock })
}

fn state(
    id: SessionId,
    sockets: &[PathBuf],
    schemas: &[PathBuf],
    since: SystemTime,
) -> (SessionState, Option<File>) {
    let young = since.elapsed().unwrap_or_default() <= FOREIGN_AGE;
    // It may not have been locked yet; locking it would fail the start.
    if young && schemas.iter().any(|schema| is_unfinished(schema)) {
        return (SessionState::Unclear, None);
    }
    let mut lock = None;
    for schema in schemas {
        match try_lock(schema) {
            Ok(Some(file)) => lock = Some(file),
            Ok(None) => return (SessionState::Live, None),
            // Gone meanwhile, or unreadable: not provably dead.
            Err(_) => return (SessionState::Unclear, None),
        }
    }
    if sockets.iter().any(|socket| !refuses(socket)) {
        return (SessionState::Live, None);
    }
    // Ours without a lock is dead. Another one could be about to start, and its schema file could belong to
    // a socket of another name.
    if id.is_ours() || (!young && !sockets.is_empty()) {
        return (SessionState::Stale, lock);
    }
    (SessionState::Unclear, None)
}

fn is_unfinished(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(UNFINISHED_SUFFIX.as_bytes())
}

/// Takes the lock of a schema file; `None` when a session holds it.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether nobody listens at a socket. In doubt somebody does.
fn refuses(socket: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    let connect = || -> rustix::io::Result<()> {
        let probe = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::ioctl_fionbio(&probe, true)?;
        rustix::net::connect(&probe, &SocketAddrUnix::new(socket)?)
    };
    matches!(connect(), Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT))
}
