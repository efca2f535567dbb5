//! A session's two files: how they come, how they go, and what is left of sessions that were killed.
//!
//! The schema file is the lock. It is locked before it gets its name and stays locked as long as the
//! session lives; the socket comes after it and goes before it. So whoever finds a schema file of ours
//! that is not locked has found the remains of a session, at any instant.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use uuid::Uuid;

use crate::IpcError;
use crate::connection::{MAX_SOCKET_PATH_BYTES, check_socket_path};

const SOCKET_PREFIX: &str = "claudecode_ipc_";
const SOCKET_SUFFIX: &str = ".sock";
const SCHEMA_PREFIX: &str = "claudecode_ipc_schema_";
const SCHEMA_SUFFIX: &str = ".json";
/// A file that has not got its final name yet.
const UNFINISHED_SUFFIX: &str = ".tmp";

/// Where sessions go when the path in the temporary directory would be too long for a socket.
const SHORT_DIR: &str = "/tmp";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Files that do not tell whose they are must be at least this old before they are removed.
const FOREIGN_AGE: Duration = Duration::from_secs(60);

/// What a session's files are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(Uuid);

impl SessionId {
    /// A random id. Its version, 8 ("vendor's own"), tells our files from those of other implementations
    /// of the protocol, whose schema files are not locked.
    pub(crate) fn random() -> Self {
        Self(Uuid::new_v8(Uuid::new_v4().into_bytes()))
    }

    fn is_ours(self) -> bool {
        self.0.get_version_num() == 8
    }

    /// As the files' names have it.
    pub(crate) fn text(self) -> String {
        self.0.simple().to_string()
    }

    pub(crate) fn socket(self, dir: &Path) -> PathBuf {
        dir.join(format!("{SOCKET_PREFIX}{}{SOCKET_SUFFIX}", self.0.simple()))
    }

    pub(crate) fn schema(self, dir: &Path) -> PathBuf {
        dir.join(format!("{SCHEMA_PREFIX}{}{SCHEMA_SUFFIX}", self.0.simple()))
    }

    fn unfinished_socket(self, dir: &Path) -> PathBuf {
        dir.join(format!("{SOCKET_PREFIX}{}{UNFINISHED_SUFFIX}", self.0.simple()))
    }

    fn unfinished_schema(self, dir: &Path) -> PathBuf {
        dir.join(format!("{SCHEMA_PREFIX}{}{UNFINISHED_SUFFIX}", self.0.simple()))
    }

    /// The id in a file's name, if it is a session's file.
    fn of(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        let (id, suffixes) = match name.strip_prefix(SCHEMA_PREFIX) {
            Some(rest) => (rest, [SCHEMA_SUFFIX, UNFINISHED_SUFFIX]),
            None => (name.strip_prefix(SOCKET_PREFIX)?, [SOCKET_SUFFIX, UNFINISHED_SUFFIX]),
        };
        let id = suffixes.iter().find_map(|suffix| id.strip_suffix(suffix))?;
        Uuid::try_parse(id).ok().map(Self)
    }

    /// Every name that a file of this session can have.
    fn paths(self, dir: &Path) -> [PathBuf; 4] {
        [self.unfinished_socket(dir), self.socket(dir), self.unfinished_schema(dir), self.schema(dir)]
    }
}

/// The files of a live session. Dropping it removes them; that needs no runtime.
#[derive(Debug)]
pub(crate) struct SessionFiles {
    // In this order they go: the socket, the schema file, the lock.
    socket: Made,
    schema: Made,
    _lock: File,
}

/// A file we made, and remove when this is dropped.
#[derive(Debug)]
struct Made(PathBuf);

impl SessionFiles {
    /// Makes the files of session `id` in `dir`: first the schema file with `tools` in it, then the socket.
    pub(crate) fn create(
        dir: &Path,
        id: SessionId,
        tools: &[u8],
    ) -> Result<(Self, std::os::unix::net::UnixListener), IpcError> {
        let failed = |what| move |error| IpcError::Start { dir: dir.into(), what, error };
        check_socket_path(&id.socket(dir))?;
        let lock = create_schema_file(dir, id, tools).map_err(failed("cannot make the schema file"))?;
        let schema = Made(id.schema(dir));
        let listener = create_socket(dir, id).map_err(failed("cannot make the socket"))?;
        let socket = Made(id.socket(dir));
        Ok((Self { socket, schema, _lock: lock }, listener))
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket.0
    }

    pub(crate) fn schema(&self) -> &Path {
        &self.schema.0
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "session file left behind");
        }
    }
}

/// Writes the schema file, locks it, and only then gives it its name; refuses if the name is taken.
fn create_schema_file(dir: &Path, id: SessionId, tools: &[u8]) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    #[cfg(target_os = "linux")]
    match rustix::fs::open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => {
            // A file without a name: nobody sees it before it is complete, nothing is left if we are killed.
            let file = fill_and_lock(file.into(), tools)?;
            let fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            match rustix::fs::linkat(CWD, fd, CWD, id.schema(dir), AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => return Ok(file),
                // No /proc here.
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The file system cannot do that.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let unfinished = id.unfinished_schema(dir);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&unfinished, flags, mode)?;
    fill_and_lock(file.into(), tools)
        .and_then(|file| put_in_place(&unfinished, &id.schema(dir)).map(|()| file))
        .inspect_err(|_| _ = fs::remove_file(&unfinished))
}

fn fill_and_lock(mut file: File, tools: &[u8]) -> io::Result<File> {
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // Whatever the umask made of it.
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    file.write_all(tools)?;
    Ok(file)
}

/// Gives a file its final name; refuses if the name is taken, even by a link.
fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match rustix::fs::renameat_with(CWD, from, CWD, to, rustix::fs::RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
        done => return Ok(done?),
    }
    // A hard link refuses a taken name too.
    rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?;
    fs::remove_file(from)
}

/// Binds and listens under an unfinished name, so that whoever sees the socket can connect to it.
#[cfg(target_os = "linux")]
fn create_socket(dir: &Path, id: SessionId) -> io::Result<std::os::unix::net::UnixListener> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

    let unfinished = id.unfinished_socket(dir);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Before `bind`: the file is born with this mode, less the umask, and is never open to others.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&unfinished)?)?;
    let finish = || -> io::Result<()> {
        fs::set_permissions(&unfinished, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        rustix::net::listen(&socket, BACKLOG)?;
        put_in_place(&unfinished, &id.socket(dir))
    };
    match finish() {
        Ok(()) => Ok(socket.into()),
        Err(error) => {
            _ = fs::remove_file(&unfinished);
            Err(error)
        }
    }
}

/// Binds inside a directory that only we can enter, where a socket's first mode does not matter.
#[cfg(not(target_os = "linux"))]
fn create_socket(dir: &Path, id: SessionId) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    use std::os::unix::net::UnixListener;

    // Not a name that a sweep looks for: a directory that is left is empty, and nobody else's business.
    let room = dir.join(format!("{SOCKET_PREFIX}{}.d", id.0.simple()));
    fs::DirBuilder::new().mode(0o700).create(&room)?;
    let unfinished = room.join("s");
    let make = || -> io::Result<UnixListener> {
        let listener = UnixListener::bind(&unfinished)?;
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        put_in_place(&unfinished, &id.socket(dir))?;
        Ok(listener)
    };
    let made = make();
    if made.is_err() {
        _ = fs::remove_file(&unfinished);
    }
    _ = fs::remove_dir(&room);
    made
}

/// The temporary directory; an empty TMPDIR is as good as none.
fn temp_dir() -> PathBuf {
    let dir = std::env::temp_dir();
    if dir.as_os_str().is_empty() { SHORT_DIR.into() } else { dir }
}

/// The directory for a new session: the temporary one, or a shorter one when its path is too long.
#[must_use]
pub fn session_dir() -> PathBuf {
    let dir = std::path::absolute(temp_dir()).unwrap_or_else(|_| temp_dir());
    let path = SessionId(Uuid::nil()).socket(&dir);
    if path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
        return dir;
    }
    tracing::warn!(
        dir = %dir.display(),
        bytes = path.as_os_str().len(),
        limit = MAX_SOCKET_PATH_BYTES,
        "socket path would be too long, using {SHORT_DIR} instead",
    );
    SHORT_DIR.into()
}

/// The directories in which this user's sessions can be.
#[must_use]
pub fn session_dirs() -> Vec<PathBuf> {
    let mut dirs = vec![temp_dir(), SHORT_DIR.into()];
    dirs.dedup_by_key(|dir| dir.canonicalize().unwrap_or_else(|_| dir.clone()));
    dirs
}

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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_planted_file_or_link_is_refused_and_its_victim_untouched() {
        let id = SessionId::random();
        for place in [SessionId::schema, SessionId::socket] {
            for plant_link in [true, false] {
                let dir = tempfile::TempDir::new().unwrap();
                let victim = dir.path().join("victim");
                fs::write(&victim, "precious").unwrap();
                let planted = place(id, dir.path());
                if plant_link {
                    symlink(&victim, &planted).unwrap();
                } else {
                    fs::write(&planted, "planted").unwrap();
                }
                let error = SessionFiles::create(dir.path(), id, b"[]").unwrap_err().to_string();
                assert!(error.contains("File exists"), "{error}");
                assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
                // Only what was there before, and the planted thing, which is not ours to remove.
                assert_eq!(names(dir.path()).len(), 2, "{:?}", names(dir.path()));
            }
        }
    }

    #[test]
    fn a_name_is_given_only_once() {
        let dir = tempfile::TempDir::new().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "new").unwrap();
        put_in_place(&from, &to).unwrap();
        fs::write(&from, "newer").unwrap();
        assert_eq!(put_in_place(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&to).unwrap(), "new");
    }

    #[test]
    fn ids_are_ours_and_are_found_in_names() {
        let id = SessionId::random();
        assert!(id.is_ours());
        let dir = Path::new("/x");
        for path in id.paths(dir) {
            assert_eq!(SessionId::of(path.file_name().unwrap()), Some(id));
        }
        for other in
            ["claudecode_ipc_.sock", "claudecode_ipc_schema_x.json", "x.sock", "claudecode_ipc_schema.json"]
        {
            assert_eq!(SessionId::of(OsStr::new(other)), None, "{other}");
        }
        let foreign = "claudecode_ipc_0123456789ab4def8123456789abcdef.sock";
        assert!(!SessionId::of(OsStr::new(foreign)).unwrap().is_ours());
    }
}
