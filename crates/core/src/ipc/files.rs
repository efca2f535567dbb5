//! Creates and removes a session's two files.
//!
//! The schema file is also the lock. It is locked before it gets its name and stays locked as long as the session
//! lives. The socket is created after it and removed before it. So a schema file of ours that is not locked belongs
//! to a dead session, at any instant.

use std::ffi::OsStr;
use std::fs::{self, File, FileType};
use std::io::{self, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use uuid::Uuid;

use crate::ipc::IpcError;
use crate::ipc::connection::{MAX_SOCKET_PATH_BYTES, check_socket_path};
use crate::ipc::constant::{SCHEMA_FILE_PREFIX, SOCKET_FILE_PREFIX, SOCKET_FILE_SUFFIX, SOCKET_PERMISSIONS};
use crate::ipc::fork::Private;

const SCHEMA_SUFFIX: &str = ".json";
/// The suffix of a file that does not have its final name yet.
pub(crate) const UNFINISHED_SUFFIX: &str = ".tmp";

/// The directory for sessions when the path in the temporary directory would be too long for a socket.
const SHORT_DIR: &str = "/tmp";

/// How many connections may wait to be accepted.
#[cfg(target_os = "linux")]
const BACKLOG: i32 = 1024;

/// The id in the names of a session's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(Uuid);

impl SessionId {
    /// A random id. Its version, 8 (vendor-specific), tells our files from those of other implementations of the
    /// protocol, whose schema files are not locked.
    pub(crate) fn random() -> Self {
        Self(Uuid::new_v8(Uuid::new_v4().into_bytes()))
    }

    pub(crate) fn is_ours(self) -> bool {
        self.0.get_version_num() == 8
    }

    /// Parses the id in a file's name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }

    /// The id as written in file names.
    pub(crate) fn text(self) -> String {
        self.0.simple().to_string()
    }

    pub(crate) fn socket(self, dir: &Path) -> PathBuf {
        dir.join(format!("{SOCKET_FILE_PREFIX}{}{SOCKET_FILE_SUFFIX}", self.0.simple()))
    }

    pub(crate) fn schema(self, dir: &Path) -> PathBuf {
        dir.join(format!("{SCHEMA_FILE_PREFIX}{}{SCHEMA_SUFFIX}", self.0.simple()))
    }

    fn unfinished_socket(self, dir: &Path) -> PathBuf {
        dir.join(format!("{SOCKET_FILE_PREFIX}{}{UNFINISHED_SUFFIX}", self.0.simple()))
    }

    fn unfinished_schema(self, dir: &Path) -> PathBuf {
        dir.join(format!("{SCHEMA_FILE_PREFIX}{}{UNFINISHED_SUFFIX}", self.0.simple()))
    }

    /// The path of the next schema file. It is random, so that other users cannot occupy it beforehand in a shared
    /// directory.
    fn next_schema(self, dir: &Path) -> PathBuf {
        let next = Uuid::new_v4();
        dir.join(format!("{SCHEMA_FILE_PREFIX}{}.{}{UNFINISHED_SUFFIX}", self.0.simple(), next.simple()))
    }

    /// The id in a file's name, and which of a session's files it is; `None` for other files.
    pub(crate) fn of(name: &OsStr) -> Option<(Self, FileKind)> {
        let name = name.to_str()?;
        let (id, suffix, kind) = match name.strip_prefix(SCHEMA_FILE_PREFIX) {
            Some(rest) => (rest, SCHEMA_SUFFIX, FileKind::Schema),
            None => (name.strip_prefix(SOCKET_FILE_PREFIX)?, SOCKET_FILE_SUFFIX, FileKind::Socket),
        };
        let id = match id.strip_suffix(UNFINISHED_SUFFIX) {
            Some(id) => id.split_once('.').map_or(id, |(id, _next)| id),
            None => id.strip_suffix(suffix)?,
        };
        Some((Self(Uuid::try_parse(id).ok()?), kind))
    }

    /// All paths that files of this session can have when it starts.
    pub(crate) fn paths(self, dir: &Path) -> [PathBuf; 4] {
        [self.unfinished_socket(dir), self.socket(dir), self.unfinished_schema(dir), self.schema(dir)]
    }
}

/// Which of a session's files a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Socket,
    Schema,
}

impl FileKind {
    /// Whether a file has the right type for its name. A link, a directory or a FIFO with such a name does not
    /// belong to a session.
    pub(crate) fn is(self, file: FileType) -> bool {
        match self {
            Self::Socket => file.is_socket(),
            Self::Schema => file.is_file(),
        }
    }
}

/// The files of a live session. Dropping this removes them and needs no runtime.
#[derive(Debug)]
pub(crate) struct SessionFiles {
    id: SessionId,
    // Dropped in this order: the socket, the schema file, the lock.
    socket: Made,
    schema: Made,
    lock: Private<File>,
}

/// A file that we created; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Made(pub(crate) PathBuf);

impl SessionFiles {
    /// Creates the files of session `id` in `dir`: first the schema file containing `tools`, then the socket.
    pub(crate) fn create(
        dir: &Path,
        id: SessionId,
        tools: &[u8],
    ) -> Result<(Self, Private<UnixListener>), IpcError> {
        let failed = |what| move |error| IpcError::Start { dir: dir.into(), what, error };
        check_socket_path(&id.socket(dir))?;
        let lock = create_locked(&id.schema(dir), &id.unfinished_schema(dir), tools)
            .map_err(failed("cannot create the schema file"))?;
        let schema = Made(id.schema(dir));
        let listener = create_socket(dir, id).map_err(failed("cannot create the socket"))?;
        let socket = Made(id.socket(dir));
        Ok((Self { id, socket, schema, lock }, listener))
    }

    /// Replaces the list of tools in the schema file. A reader gets either the old or the new one, and on an error
    /// the old one stays.
    pub(crate) fn replace_schema(&mut self, tools: &[u8]) -> io::Result<()> {
        let schema = &self.schema.0;
        let unfinished = self.id.next_schema(schema.parent().unwrap_or(Path::new("/")));
        // The old lock is released when the new file, which is locked, has the name.
        self.lock = create_unfinished(&unfinished, tools, || fs::rename(&unfinished, schema))?;
        Ok(())
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

/// Writes a file, locks it, and only then gives it its name; fails if the name is taken.
pub(crate) fn create_locked(path: &Path, unfinished: &Path, text: &[u8]) -> io::Result<Private<File>> {
    #[cfg(target_os = "linux")]
    match rustix::fs::open(
        path.parent().unwrap_or(Path::new("/")),
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    ) {
        Ok(file) => {
            // A file without a name: it is not visible before it is complete, and nothing is left if we are killed.
            let file = fill_and_lock(Private::new(file.into()), text)?;
            let fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file.get()));
            match rustix::fs::linkat(CWD, fd, CWD, path, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => return Ok(file),
                // `/proc` is not mounted.
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The file system does not support this.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    create_unfinished(unfinished, text, || rename_without_replacing(unfinished, path))
}

/// The same with a temporary name; `finish` gives it the final one.
fn create_unfinished(
    unfinished: &Path,
    text: &[u8],
    finish: impl FnOnce() -> io::Result<()>,
) -> io::Result<Private<File>> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(unfinished, flags, Mode::RUSR | Mode::WUSR)?;
    fill_and_lock(Private::new(file.into()), text)
        .and_then(|file| finish().map(|()| file))
        .inspect_err(|_| _ = fs::remove_file(unfinished))
}

fn fill_and_lock(private: Private<File>, text: &[u8]) -> io::Result<Private<File>> {
    let mut file = private.get();
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)?;
    // Independent of the umask.
    rustix::fs::fchmod(file, Mode::RUSR | Mode::WUSR)?;
    file.write_all(text)?;
    Ok(private)
}

/// Gives a file its final name; fails if the name is taken, even by a link.
fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match rustix::fs::renameat_with(CWD, from, CWD, to, rustix::fs::RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
        done => return Ok(done?),
    }
    // A hard link also fails if the name is taken.
    rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?;
    fs::remove_file(from)
}

/// Binds and listens under a temporary name, so that a visible socket always accepts connections.
#[cfg(target_os = "linux")]
fn create_socket(dir: &Path, id: SessionId) -> io::Result<Private<UnixListener>> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

    let unfinished = id.unfinished_socket(dir);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let private =
        Private::new(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?);
    let socket = private.get();
    // Before `bind`: the file is created with this mode, less the umask, and is never accessible to others.
    rustix::fs::fchmod(socket, Mode::from_raw_mode(SOCKET_PERMISSIONS))?;
    rustix::net::bind(socket, &SocketAddrUnix::new(&unfinished)?)?;
    let finish = || -> io::Result<()> {
        fs::set_permissions(&unfinished, std::os::unix::fs::PermissionsExt::from_mode(SOCKET_PERMISSIONS))?;
        rustix::net::listen(socket, BACKLOG)?;
        rename_without_replacing(&unfinished, &id.socket(dir))
    };
    match finish() {
        Ok(()) => private.try_map(|socket| Ok(socket.into())),
        Err(error) => {
            _ = fs::remove_file(&unfinished);
            Err(error)
        }
    }
}

/// Binds inside a directory that only we can enter, so that the socket's initial mode does not matter.
#[cfg(not(target_os = "linux"))]
fn create_socket(dir: &Path, id: SessionId) -> io::Result<Private<UnixListener>> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    // Not a name that a sweep looks for: a leftover directory is empty and harmless.
    let room = dir.join(format!("{SOCKET_FILE_PREFIX}{}.d", id.0.simple()));
    fs::DirBuilder::new().mode(0o700).create(&room)?;
    let unfinished = room.join("s");
    let make = || -> io::Result<Private<UnixListener>> {
        let private = Private::new(UnixListener::bind(&unfinished)?);
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(SOCKET_PERMISSIONS))?;
        private.get().set_nonblocking(true)?;
        rename_without_replacing(&unfinished, &id.socket(dir))?;
        Ok(private)
    };
    let made = make();
    if made.is_err() {
        _ = fs::remove_file(&unfinished);
    }
    _ = fs::remove_dir(&room);
    made
}

/// The temporary directory; an empty TMPDIR counts as unset.
pub(crate) fn temp_dir() -> PathBuf {
    let dir = std::env::temp_dir();
    if dir.as_os_str().is_empty() { SHORT_DIR.into() } else { dir }
}

/// The directory for a new session: the temporary directory, or a shorter one if its path is too long.
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

/// The directories that may contain sessions of this user.
#[must_use]
pub fn session_dirs() -> Vec<PathBuf> {
    let mut dirs = vec![temp_dir(), SHORT_DIR.into()];
    dirs.dedup_by_key(|dir| dir.canonicalize().unwrap_or_else(|_| dir.clone()));
    dirs
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
                // Only the victim and the planted file, which is not ours to remove.
                assert_eq!(names(dir.path()).len(), 2, "{:?}", names(dir.path()));
            }
        }
    }

    #[test]
    fn a_name_is_given_only_once() {
        let dir = tempfile::TempDir::new().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "new").unwrap();
        rename_without_replacing(&from, &to).unwrap();
        fs::write(&from, "newer").unwrap();
        assert_eq!(rename_without_replacing(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&to).unwrap(), "new");
    }

    #[test]
    fn ids_are_ours_and_are_found_in_names() {
        let id = SessionId::random();
        assert!(id.is_ours());
        let dir = Path::new("/x");
        let kinds = [FileKind::Socket, FileKind::Socket, FileKind::Schema, FileKind::Schema];
        for (path, kind) in id.paths(dir).into_iter().zip(kinds) {
            assert_eq!(SessionId::of(path.file_name().unwrap()), Some((id, kind)));
        }
        for other in
            ["claudecode_ipc_.sock", "claudecode_ipc_schema_x.json", "x.sock", "claudecode_ipc_schema.json"]
        {
            assert_eq!(SessionId::of(OsStr::new(other)), None, "{other}");
        }
        let foreign = "claudecode_ipc_0123456789ab4def8123456789abcdef.sock";
        assert!(!SessionId::of(OsStr::new(foreign)).unwrap().0.is_ours());
    }
}
