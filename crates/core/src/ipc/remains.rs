//! Finds sessions by their files, and removes files of dead ones.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::ipc::files::{FileKind, SessionId, UNFINISHED_SUFFIX};
use crate::ipc::search::Search;
use crate::ipc::user::User;

/// Files of other implementations must be at least this old before they are removed.
const FOREIGN_AGE: Duration = Duration::from_secs(60);

/// What is known about a session from its files.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The path of its socket, whether or not it exists.
    pub socket: PathBuf,
    /// The path of its schema file, whether or not it exists.
    pub schema: PathBuf,
    /// Its state.
    pub state: SessionState,
    /// When its socket was created; if there is none, when its newest file was.
    pub since: SystemTime,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// Its process is running.
    Live,
    /// Its process is gone and its files are left.
    Stale,
    /// Its socket refuses connections, but it may be starting: it belongs to another implementation and is younger
    /// than a minute.
    Unclear,
}

/// The sessions of this user in `dir`.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn sessions(dir: &Path) -> io::Result<Vec<SessionInfo>> {
    let mut search = Search::begin(dir)?;
    search.read(usize::MAX)?;
    let user = search.user;
    let found = search.found().into_iter();
    Ok(found.filter_map(|(id, seen)| look(dir, user, id, seen)).map(|remains| remains.info).collect())
}

/// Removes the files of this user's dead sessions in `dir`, and returns these sessions.
///
/// Live and starting sessions, other users' files and links are never touched.
///
/// # Errors
///
/// When the directory cannot be read. What was found before that is still removed.
pub fn sweep(dir: &Path) -> io::Result<Vec<SessionInfo>> {
    finish(Search::begin(dir)?)
}

/// Reads the rest of a directory and removes files of dead sessions.
pub(crate) fn finish(mut search: Search) -> io::Result<Vec<SessionInfo>> {
    let read = search.read(usize::MAX);
    let removed = remove_dead(search);
    read.map(|_| removed)
}

/// Removes the dead sessions among those found. What cannot be examined or removed is skipped.
pub(crate) fn remove_dead(search: Search) -> Vec<SessionInfo> {
    let (dir, user) = (search.dir.clone(), search.user);
    // One at a time, because each holds a descriptor while it is examined.
    search.found().into_iter().filter_map(|(id, seen)| remove_if_dead(&dir, user, id, seen)).collect()
}

/// Removes the files of the session with that socket, if it is dead.
pub(crate) fn sweep_session(socket: &Path) {
    if let (Some(dir), Some((id, _))) = (socket.parent(), socket.file_name().and_then(SessionId::of)) {
        remove_if_dead(dir, User::of_this_process(), id, Vec::new());
    }
}

fn remove_if_dead(dir: &Path, user: User, id: SessionId, seen: Vec<PathBuf>) -> Option<SessionInfo> {
    let remains = look(dir, user, id, seen).filter(|remains| remains.info.state == SessionState::Stale)?;
    let mut is_gone = true;
    // Sockets before schema files, in the order in which a session removes them.
    for path in &remains.paths {
        match fs::remove_file(path) {
            Ok(()) => tracing::debug!(path = %path.display(), "removed a file of a dead session"),
            // Another process is sweeping too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                is_gone = false;
                tracing::warn!(path = %path.display(), %error, "cannot remove a dead session's file");
            }
        }
    }
    is_gone.then_some(remains.info)
}

/// A session's files, sockets first.
struct Remains {
    info: SessionInfo,
    paths: Vec<PathBuf>,
    /// Held while a dead session's files are examined and removed.
    _lock: Option<File>,
}

fn look(dir: &Path, user: User, id: SessionId, seen: Vec<PathBuf>) -> Option<Remains> {
    // All possible paths, not only those that were listed: a schema file created while the directory was read may
    // be missing in the listing, although its socket is there.
    let mut paths = id.paths(dir).to_vec();
    for path in seen {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let (mut since, mut listening) = (SystemTime::UNIX_EPOCH, None);
    let (mut sockets, mut schemas) = (Vec::new(), Vec::new());
    for path in paths {
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // This may be the file that shows that the session is alive.
            Err(_) => return None,
        };
        let Some((_, kind)) = path.file_name().and_then(SessionId::of) else { continue };
        // Other users may create files with our names; these must not keep us from judging our own files.
        if !user.is(meta.uid()) || !kind.is(meta.file_type()) {
            continue;
        }
        let modified = meta.modified().unwrap_or_else(|_| SystemTime::now());
        since = since.max(modified);
        match kind {
            FileKind::Socket => {
                listening = listening.max(Some(modified));
                sockets.push(path);
            }
            FileKind::Schema => schemas.push(path),
        }
    }
    if sockets.is_empty() && schemas.is_empty() {
        return None;
    }
    let (state, lock) = state(user, id, &sockets, &schemas, since);
    // Other implementations may write the id in another way.
    let finished = |paths: &[PathBuf]| paths.iter().find(|path| !is_unfinished(path)).cloned();
    let info = SessionInfo {
        socket: finished(&sockets).unwrap_or_else(|| id.socket(dir)),
        schema: finished(&schemas).unwrap_or_else(|| id.schema(dir)),
        state,
        // Changed tools mean a new schema file, so the socket's time is used.
        since: listening.unwrap_or(since),
    };
    Some(Remains { info, paths: sockets.into_iter().chain(schemas).collect(), _lock: lock })
}

fn state(
    user: User,
    id: SessionId,
    sockets: &[PathBuf],
    schemas: &[PathBuf],
    since: SystemTime,
) -> (SessionState, Option<File>) {
    let young = since.elapsed().unwrap_or_default() <= FOREIGN_AGE;
    // It may not be locked yet; locking it here would make the session's start fail.
    if young && schemas.iter().any(|schema| is_unfinished(schema)) {
        return (SessionState::Unclear, None);
    }
    let mut lock = None;
    for schema in schemas {
        match try_lock(user, schema) {
            Ok(Some(file)) => lock = Some(file),
            Ok(None) => return (SessionState::Live, None),
            // Removed meanwhile, or unreadable: not provably dead.
            Err(_) => return (SessionState::Unclear, None),
        }
    }
    if sockets.iter().any(|socket| !refuses(socket)) {
        return (SessionState::Live, None);
    }
    // A session of ours without a lock is dead. One of another implementation could be starting, and its schema
    // file could belong to a socket of another name.
    if id.is_ours() || (!young && !sockets.is_empty()) {
        return (SessionState::Stale, lock);
    }
    (SessionState::Unclear, None)
}

fn is_unfinished(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(UNFINISHED_SUFFIX.as_bytes())
}

/// Takes the lock of a schema file; `None` if a session holds it.
fn try_lock(user: User, path: &Path) -> io::Result<Option<File>> {
    // If the file was replaced meanwhile: do not follow a link, and do not block on a FIFO.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    let meta = file.metadata()?;
    if !user.is(meta.uid()) || !meta.is_file() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // If it was replaced meanwhile, the session is alive.
            let now = fs::symlink_metadata(path)?;
            Ok(((now.dev(), now.ino()) == (meta.dev(), meta.ino())).then_some(file))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a socket refuses connections. Any other error counts as listening.
fn refuses(socket: &Path) -> bool {
    let connect = || rustix::net::connect(probe()?, &SocketAddrUnix::new(socket)?);
    matches!(connect(), Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT))
}

/// A non-blocking socket that is not inherited by a child started meanwhile.
#[cfg(target_os = "linux")]
fn probe() -> rustix::io::Result<OwnedFd> {
    let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

#[cfg(not(target_os = "linux"))]
fn probe() -> rustix::io::Result<OwnedFd> {
    let probe = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&probe, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&probe, true)?;
    Ok(probe)
}
