//! Finds sessions by their files, and removes files of dead ones.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::ipc::files::{SessionId, open_itself};
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
    let found = found(dir)?.into_iter().filter_map(|(id, seen)| look(dir, id, seen));
    Ok(found.map(|(info, ..)| info).collect())
}

/// Removes the files of this user's dead sessions in `dir`, and returns these sessions.
///
/// Live and starting sessions, other users' files and links are never touched. What cannot be examined or removed is
/// skipped.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn sweep(dir: &Path) -> io::Result<Vec<SessionInfo>> {
    Ok(found(dir)?.into_iter().filter_map(|(id, seen)| remove_if_dead(dir, id, seen)).collect())
}

/// Removes the files of the session with that socket, if it is dead.
pub(crate) fn sweep_session(socket: &Path) {
    if let (Some(dir), Some((id, _))) = (socket.parent(), socket.file_name().and_then(SessionId::of)) {
        remove_if_dead(dir, id, Vec::new());
    }
}

/// The files in a directory that have names of sessions' files.
fn found(dir: &Path) -> io::Result<BTreeMap<SessionId, Vec<PathBuf>>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Some((id, _)) = SessionId::of(&entry.file_name()) {
            found.entry(id).or_default().push(entry.path());
        }
    }
    Ok(found)
}

fn remove_if_dead(dir: &Path, id: SessionId, seen: Vec<PathBuf>) -> Option<SessionInfo> {
    let (info, files, _locks) = look(dir, id, seen).filter(|(info, ..)| info.state == SessionState::Stale)?;
    let mut is_gone = true;
    for path in &files {
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
    is_gone.then_some(info)
}

/// A session's state, its files in the order in which a session removes them, and the locks of a dead session, which
/// are held while its files are examined and removed.
fn look(
    dir: &Path,
    id: SessionId,
    mut paths: Vec<PathBuf>,
) -> Option<(SessionInfo, Vec<PathBuf>, Vec<File>)> {
    // A file that was created while the directory was read may be missing in the listing, although a later one
    // is there.
    paths.extend([id.unfinished_socket(dir), id.socket(dir), id.schema(dir)]);
    paths.sort();
    paths.dedup();
    let user = User::of_this_process();
    let (mut since, mut listening) = (SystemTime::UNIX_EPOCH, None);
    let (mut sockets, mut schemas) = (Vec::new(), Vec::new());
    for path in paths {
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // This may be the file that shows that the session is alive.
            Err(_) => return None,
        };
        let (_, is_socket) = path.file_name().and_then(SessionId::of)?;
        let kind = meta.file_type();
        // Other users may create files with our names; these must not keep us from judging our own files. Neither does
        // a link, a directory or a FIFO with such a name belong to a session.
        if !user.is(meta.uid()) || !(if is_socket { kind.is_socket() } else { kind.is_file() }) {
            continue;
        }
        let modified = meta.modified().unwrap_or_else(|_| SystemTime::now());
        since = since.max(modified);
        if is_socket {
            listening = listening.max(Some(modified));
            sockets.push(path);
        } else {
            schemas.push(path);
        }
    }
    if sockets.is_empty() && schemas.is_empty() {
        return None;
    }
    let is_young = since.elapsed().unwrap_or_default() <= FOREIGN_AGE;
    let mut locks = Vec::new();
    let state = schemas.iter().find_map(|schema| match try_lock(user, schema) {
        Ok(Some(lock)) => {
            locks.push(lock);
            None
        }
        Ok(None) => Some(SessionState::Live),
        // Removed meanwhile, or unreadable: not provably dead.
        Err(_) => Some(SessionState::Unclear),
    });
    let state = match state {
        Some(state) => state,
        None if !sockets.iter().all(|socket| refuses(socket)) => SessionState::Live,
        // A session of ours without a lock is dead. One of another implementation could be starting, and its
        // schema file could belong to a socket of another name.
        None if id.is_ours() || !(is_young || sockets.is_empty()) => SessionState::Stale,
        None => SessionState::Unclear,
    };
    // Other implementations may write the id in another way.
    let named =
        |paths: &[PathBuf]| paths.iter().find(|path| path.extension() != Some("tmp".as_ref())).cloned();
    let info = SessionInfo {
        socket: named(&sockets).unwrap_or_else(|| id.socket(dir)),
        schema: named(&schemas).unwrap_or_else(|| id.schema(dir)),
        state,
        // Changed tools mean a new schema file, so the socket's time is used.
        since: listening.unwrap_or(since),
    };
    sockets.extend(schemas);
    Some((info, sockets, locks))
}

/// Takes the lock of a schema file; `None` if a session holds it.
fn try_lock(user: User, path: &Path) -> io::Result<Option<File>> {
    let file = open_itself(path)?;
    let meta = file.metadata()?;
    if !user.is(meta.uid()) || !meta.is_file() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // If it was replaced meanwhile, the session is alive.
            let now = fs::symlink_metadata(path)?;
            Ok(((now.dev(), now.ino()) == (meta.dev(), meta.ino())).then_some(file))
        }
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a socket refuses connections. Any other error counts as listening.
fn refuses(socket: &Path) -> bool {
    let connect = || {
        let probe = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&probe, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&probe, true)?;
        rustix::net::connect(&probe, &SocketAddrUnix::new(socket)?)
    };
    matches!(connect(), Err(Errno::CONNREFUSED | Errno::NOENT))
}
