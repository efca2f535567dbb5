//! Creates and removes a session's two files.
//!
//! The schema file is also the lock. It is locked before it gets its name and stays locked as long as the session
//! lives. The socket is created after it and removed before it. So a schema file of ours that is not locked belongs
//! to a dead session, at any instant.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use tempfile::{PathPersistError, TempPath};
use uuid::Uuid;

use crate::ipc::IpcError;
use crate::ipc::connection::{MAX_SOCKET_PATH_BYTES, check_socket_path};
use crate::ipc::constant::{SCHEMA_FILE_PREFIX, SOCKET_FILE_PREFIX, SOCKET_FILE_SUFFIX, SOCKET_PERMISSIONS};
use crate::ipc::fork::ForkGuard;

const SCHEMA_SUFFIX: &str = ".json";
/// The suffix of a file that does not have its final name yet.
const UNFINISHED_SUFFIX: &str = ".tmp";

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

    fn file(self, dir: &Path, prefix: &str, suffix: &str) -> PathBuf {
        dir.join(format!("{prefix}{}{suffix}", self.text()))
    }

    pub(crate) fn socket(self, dir: &Path) -> PathBuf {
        self.file(dir, SOCKET_FILE_PREFIX, SOCKET_FILE_SUFFIX)
    }

    pub(crate) fn schema(self, dir: &Path) -> PathBuf {
        self.file(dir, SCHEMA_FILE_PREFIX, SCHEMA_SUFFIX)
    }

    pub(crate) fn unfinished_socket(self, dir: &Path) -> PathBuf {
        self.file(dir, SOCKET_FILE_PREFIX, UNFINISHED_SUFFIX)
    }

    /// It is random, so that other users cannot occupy it beforehand in a shared directory.
    fn unfinished_schema(self, dir: &Path) -> PathBuf {
        self.file(dir, SCHEMA_FILE_PREFIX, &format!(".{}{UNFINISHED_SUFFIX}", Uuid::new_v4().simple()))
    }

    /// The id in a file's name, and whether it is the name of a socket and not of a schema file; `None` for other files.
    pub(crate) fn of(name: &OsStr) -> Option<(Self, bool)> {
        let name = name.to_str()?;
        let (id, suffix, is_socket) = match name.strip_prefix(SCHEMA_FILE_PREFIX) {
            Some(rest) => (rest, SCHEMA_SUFFIX, false),
            None => (name.strip_prefix(SOCKET_FILE_PREFIX)?, SOCKET_FILE_SUFFIX, true),
        };
        let id = match id.strip_suffix(UNFINISHED_SUFFIX) {
            Some(id) => id.split_once('.').map_or(id, |(id, _random)| id),
            None => id.strip_suffix(suffix)?,
        };
        Some((Self::parse(id)?, is_socket))
    }
}

/// The files of a live session. Dropping this removes them and needs no runtime.
#[derive(Debug)]
pub(crate) struct SessionFiles {
    id: SessionId,
    // Dropped in this order: the socket, the schema file, the lock.
    pub(crate) socket: TempPath,
    pub(crate) schema: TempPath,
    lock: Lock,
}

/// A locked file. Dropping it releases the lock.
pub(crate) type Lock = (ForkGuard, File);

impl SessionFiles {
    /// Creates the files of session `id` in `dir`: first the schema file containing `tools`, then the socket.
    pub(crate) fn create(
        dir: &Path,
        id: SessionId,
        tools: &[u8],
    ) -> Result<(Self, UnixListener, ForkGuard), IpcError> {
        let failed = |what| move |error| IpcError::Start { dir: dir.into(), what, error };
        let (socket, schema) = (id.socket(dir), id.schema(dir));
        check_socket_path(&socket)?;
        let lock = create_locked(&id.unfinished_schema(dir), tools, |file| file.persist_noclobber(&schema));
        let lock = lock.map_err(failed("cannot create the schema file"))?;
        let schema = TempPath::try_from_path(schema)?;
        let (listener, guard) = create_socket(dir, id).map_err(failed("cannot create the socket"))?;
        Ok((Self { id, socket: TempPath::try_from_path(socket)?, schema, lock }, listener, guard))
    }

    /// Replaces the list of tools in the schema file. A reader gets either the old or the new one, and on an error
    /// the old one stays.
    pub(crate) fn replace_schema(&mut self, tools: &[u8]) -> io::Result<()> {
        let unfinished = self.id.unfinished_schema(self.schema.parent().unwrap_or(Path::new("/")));
        // The old lock is released when the new file, which is locked, has the name.
        self.lock = create_locked(&unfinished, tools, |file| file.persist(&self.schema))?;
        Ok(())
    }
}

/// Creates a file under a temporary name, locks and fills it, and only then gives it its name with `rename`.
pub(crate) fn create_locked(
    unfinished: &Path,
    text: &[u8],
    rename: impl FnOnce(TempPath) -> Result<(), PathPersistError>,
) -> io::Result<Lock> {
    let mode = Permissions::from_mode(0o600);
    let (unfinished, mut file, guard) = loop {
        let file = File::options().write(true).create_new(true).mode(mode.mode()).open(unfinished)?;
        let path = TempPath::try_from_path(unfinished)?;
        let guard = ForkGuard::new(&file);
        // A sweep may hold the lock for a moment. It has taken the file for that of a dead session and removed it.
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
        if file.metadata()?.nlink() > 0 {
            break (path, file, guard);
        }
    };
    // The mode does not depend on the umask.
    file.set_permissions(mode)?;
    file.write_all(text)?;
    rename(unfinished)?;
    Ok((guard, file))
}

/// Opens a file for reading if it is one that may be trusted by its name: it follows no link and does not block on a
/// FIFO.
pub(crate) fn open_itself(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Binds and listens under a temporary name, so that a visible socket always accepts connections.
#[cfg(target_os = "linux")]
fn create_socket(dir: &Path, id: SessionId) -> io::Result<(UnixListener, ForkGuard)> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

    let unfinished = id.unfinished_socket(dir);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let guard = ForkGuard::new(&socket);
    // Before `bind`: the file is created with this mode, less the umask, and is never accessible to others.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(SOCKET_PERMISSIONS))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&unfinished)?)?;
    let unfinished = TempPath::try_from_path(unfinished)?;
    fs::set_permissions(&unfinished, Permissions::from_mode(SOCKET_PERMISSIONS))?;
    rustix::net::listen(&socket, BACKLOG)?;
    unfinished.persist_noclobber(id.socket(dir))?;
    Ok((socket.into(), guard))
}

/// Binds inside a directory that only we can enter, so that the socket's initial mode does not matter.
#[cfg(not(target_os = "linux"))]
fn create_socket(dir: &Path, id: SessionId) -> io::Result<(UnixListener, ForkGuard)> {
    // Not a name that a sweep looks for: a leftover directory is harmless.
    let private = tempfile::Builder::new().prefix(SOCKET_FILE_PREFIX).tempdir_in(dir)?;
    let unfinished = private.path().join("s");
    let listener = UnixListener::bind(&unfinished)?;
    let guard = ForkGuard::new(&listener);
    fs::set_permissions(&unfinished, Permissions::from_mode(SOCKET_PERMISSIONS))?;
    listener.set_nonblocking(true)?;
    TempPath::try_from_path(unfinished)?.persist_noclobber(id.socket(dir))?;
    Ok((listener, guard))
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
    fn ids_are_ours_and_are_found_in_names() {
        let id = SessionId::random();
        assert!(id.is_ours());
        let dir = Path::new("/x");
        let rows = [
            (id.unfinished_socket(dir), true),
            (id.socket(dir), true),
            (id.unfinished_schema(dir), false),
            (id.schema(dir), false),
        ];
        for (path, is_socket) in rows {
            assert_eq!(SessionId::of(path.file_name().unwrap()), Some((id, is_socket)));
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
