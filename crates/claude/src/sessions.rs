//! Conversations stored by the CLI.
//!
//! Files are opened relative to the directory of all projects, by plain names and never through links.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::ClaudeCodeError;
use crate::model::ClaudeCodeModel;
use crate::prompt::Message;
use crate::transcript::{self, Summary};

/// How much is read from the beginning and from the end of each file for a listing.
const PIECE_BYTES: u64 = 64 * 1024;

/// The longest file that is read completely.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// The length at which the CLI truncates the name of a project's directory and appends a number.
const MAX_PROJECT: usize = 200;

/// The stored conversations of a directory, created by [`ClaudeCodeModel::sessions`]. All methods block on
/// file access.
///
/// ```no_run
/// # use toolbridge_claude as toolbridge;
/// use toolbridge::{ClaudeCodeModel, Conversation};
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let sessions = ClaudeCodeModel::builder().working_directory("/srv/shop").build()?.sessions()?;
/// for session in sessions.list()? {
///     println!("{} {}", session.session_id, session.title.or(session.first_prompt).unwrap_or_default());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Sessions {
    config: PathBuf,
    /// The CLI's working directory; `None` for all.
    directory: Option<PathBuf>,
}

/// A summary of a conversation, available without reading all of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id, for [`Conversation::Resume`](crate::Conversation::Resume).
    pub session_id: String,
    /// Its title, set by the user or by the CLI.
    pub title: Option<String>,
    /// Its tag, if one is set.
    pub tag: Option<String>,
    /// The beginning of the first prompt.
    pub first_prompt: Option<String>,
    /// The CLI's working directory.
    pub directory: Option<PathBuf>,
    /// When it was last written. In JSON, both times are in seconds since 1970.
    #[serde(serialize_with = "as_seconds")]
    pub modified: SystemTime,
    /// When it began.
    #[serde(serialize_with = "maybe_as_seconds")]
    pub created: Option<SystemTime>,
    /// The size of its file.
    pub bytes: u64,
}

fn as_seconds<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(transcript::seconds(*time))
}

#[expect(clippy::ref_option, reason = "serde's signature")]
fn maybe_as_seconds<S: Serializer>(time: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
    time.map(transcript::seconds).serialize(to)
}

/// One message of a conversation.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct SessionMessage {
    /// Its id, for [`Settings::resume_session_at`](crate::Settings::resume_session_at) and
    /// [`Sessions::fork`]. One answer may consist of several messages.
    pub id: String,
    /// Its content.
    pub message: Message,
}

impl From<SessionMessage> for Message {
    fn from(message: SessionMessage) -> Self {
        message.message
    }
}

impl ClaudeCodeModel {
    /// The conversations stored for this model's working directory: those of
    /// [`Conversation::Keep`](crate::Conversation::Keep), and those of a user in a terminal there.
    ///
    /// # Errors
    ///
    /// When the CLI's storage directory cannot be determined.
    pub fn sessions(&self) -> Result<Sessions, ClaudeCodeError> {
        let options = &self.0.options;
        let inherited = |name: &str| if options.clears_env { None } else { env::var_os(name) };
        let variable = |name: &str| {
            let own = options.settings.env.get(name).map(OsString::from);
            own.or_else(|| inherited(name)).filter(|value| !value.is_empty())
        };
        let config = match (variable("CLAUDE_CONFIG_DIR"), variable("HOME")) {
            (Some(config), _) => PathBuf::from(config),
            (None, Some(home)) => PathBuf::from(home).join(".claude"),
            (None, None) => {
                let reason =
                    "neither `HOME` nor `CLAUDE_CONFIG_DIR` is set, so the CLI's directory is unknown";
                return Err(ClaudeCodeError::invalid(reason));
            }
        };
        let directory = options.settings.working_directory.clone().unwrap_or_else(|| ".".into());
        let directory = fs::canonicalize(&directory).map_err(|error| {
            ClaudeCodeError::invalid(format!("cannot find the directory `{}`: {error}", directory.display()))
        })?;
        Ok(Sessions { config, directory: Some(directory) })
    }
}

/// A directory of conversations.
struct Project {
    path: PathBuf,
    dir: OwnedFd,
}

/// A conversation's file.
struct Found {
    project: Project,
    file: File,
    bytes: u64,
}

impl Sessions {
    /// Selects the conversations of all directories.
    #[must_use]
    pub fn everywhere(mut self) -> Self {
        self.directory = None;
        self
    }

    /// Lists the conversations, newest first.
    ///
    /// # Errors
    ///
    /// When the directories cannot be read.
    pub fn list(&self) -> Result<Vec<SessionInfo>, ClaudeCodeError> {
        let mut found = Vec::new();
        for project in self.projects()? {
            for name in names(&project.dir).map_err(|error| read_error(&project.path, &error))? {
                let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".jsonl")) else { continue };
                if Uuid::try_parse(id).is_err() {
                    continue;
                }
                // Skip conversations that were just deleted or are unreadable.
                if let Ok(Some((file, bytes))) = open_file(&project.dir, id, OFlags::RDONLY) {
                    found.extend(info(id, &file, bytes).ok().flatten());
                }
            }
        }
        found.sort_by(|one: &SessionInfo, other| {
            (other.modified, &one.session_id).cmp(&(one.modified, &other.session_id))
        });
        Ok(found)
    }

    /// Returns the summary of one conversation.
    ///
    /// # Errors
    ///
    /// When there is no such conversation, or it cannot be read.
    pub fn get(&self, session_id: &str) -> Result<SessionInfo, ClaudeCodeError> {
        let found = self.find(session_id, OFlags::RDONLY)?;
        let read = info(session_id, &found.file, found.bytes).map_err(|error| failed(session_id, error))?;
        read.ok_or_else(|| failed(session_id, "it has no messages"))
    }

    /// Returns the messages of a conversation, also for [`Request::history`](crate::Request::history). If
    /// the user went back and continued differently, the latest branch is returned.
    ///
    /// # Errors
    ///
    /// When there is no such conversation, or it cannot be read.
    pub fn messages(&self, session_id: &str) -> Result<Vec<SessionMessage>, ClaudeCodeError> {
        let text = self.read(session_id)?.1;
        let messages = transcript::messages(&text).into_iter();
        Ok(messages.map(|(id, message)| SessionMessage { id, message }).collect())
    }

    /// Changes the title.
    ///
    /// # Errors
    ///
    /// When there is no such conversation, it cannot be written, or the title is empty.
    pub fn rename(&self, session_id: &str, title: &str) -> Result<(), ClaudeCodeError> {
        self.append(session_id, &transcript::title_line(session_id, &one_line("title", title)?))
    }

    /// Sets or removes the tag.
    ///
    /// # Errors
    ///
    /// When there is no such conversation, it cannot be written, or the tag is empty.
    pub fn tag(&self, session_id: &str, tag: Option<&str>) -> Result<(), ClaudeCodeError> {
        let tag = tag.map(|tag| one_line("tag", tag)).transpose()?.unwrap_or_default();
        self.append(session_id, &transcript::tag_line(session_id, &tag))
    }

    /// Deletes a conversation with the output of its subagents. One that is open in a CLI is not deleted.
    ///
    /// # Errors
    ///
    /// When there is no such conversation, it is open, or it cannot be removed.
    pub fn delete(&self, session_id: &str) -> Result<(), ClaudeCodeError> {
        let found = self.find(session_id, OFlags::RDONLY)?;
        if let Some(pid) = self.user_of(session_id) {
            return Err(failed(session_id, format!("the CLI with the process id {pid} has it open")));
        }
        let removed = rustix::fs::unlinkat(&found.project.dir, file_name(session_id), AtFlags::empty());
        removed.map_err(|error| failed(session_id, format!("cannot remove it: {error}")))?;
        match fs::remove_dir_all(found.project.path.join(session_id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(session_id, format!("cannot remove the output of its subagents: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Copies a conversation, completely or up to the message with this id, and returns the copy's id.
    ///
    /// # Errors
    ///
    /// When there is no such conversation or message, or the copy cannot be written.
    pub fn fork(
        &self,
        session_id: &str,
        up_to: Option<&str>,
        title: Option<&str>,
    ) -> Result<String, ClaudeCodeError> {
        let title = title.map(|title| one_line("title", title)).transpose()?;
        let (project, text) = self.read(session_id)?;
        let copy_id = Uuid::new_v4().to_string();
        let title = title.or_else(|| Summary::of(&[&text]).title);
        let copy = transcript::copy(&text, &copy_id, up_to, title.as_deref()).ok_or_else(|| {
            failed(session_id, format!("there is no message `{}` in it", up_to.unwrap_or_default()))
        })?;
        if !Summary::of(&[&copy]).has_messages {
            return Err(failed(session_id, "it has no messages"));
        }
        // Written under a temporary name until it is complete.
        let (half, whole) = (format!(".{copy_id}.tmp"), file_name(&copy_id));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let written = rustix::fs::openat(&project.dir, &half, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all(copy.as_bytes()))
            .and_then(|()| Ok(rustix::fs::renameat(&project.dir, &half, &project.dir, &whole)?));
        written.map_err(|error| {
            _ = rustix::fs::unlinkat(&project.dir, &half, AtFlags::empty());
            failed(session_id, format!("cannot write a copy: {error}"))
        })?;
        Ok(copy_id)
    }

    fn projects(&self) -> Result<Vec<Project>, ClaudeCodeError> {
        let path = self.config.join("projects");
        let failed = |error: io::Error| read_error(&path, &error);
        let dir = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let all = match rustix::fs::open(&path, dir, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(|error| failed(error.into()))?,
        };
        let wanted = self.directory.as_deref().map(project_name);
        let is_wanted = |name: &OsString| match (&wanted, name.to_str()) {
            (None, _) => true,
            (Some(wanted), Some(name)) if wanted.len() > MAX_PROJECT => {
                name.strip_prefix(&wanted[..MAX_PROJECT]).is_some_and(|rest| rest.starts_with('-'))
            }
            (Some(wanted), name) => name == Some(wanted),
        };
        let names = names(&all).map_err(failed)?.into_iter().filter(is_wanted);
        let open = |name: OsString| {
            let opened = rustix::fs::openat(&all, &*name, dir | OFlags::NOFOLLOW, Mode::empty()).ok()?;
            Some(Project { path: path.join(&name), dir: opened })
        };
        Ok(names.filter_map(open).collect())
    }

    fn find(&self, session_id: &str, access: OFlags) -> Result<Found, ClaudeCodeError> {
        if session_id.len() != 36 || Uuid::try_parse(session_id).is_err() {
            let reason = format!("`{session_id}` is not the id of a conversation, which is a UUID");
            return Err(ClaudeCodeError::invalid(reason));
        }
        for project in self.projects()? {
            let opened = open_file(&project.dir, session_id, access);
            if let Some((file, bytes)) = opened.map_err(|error| failed(session_id, error))? {
                return Ok(Found { project, file, bytes });
            }
        }
        let place = self.directory.as_ref().map(|dir| format!(" for the directory `{}`", dir.display()));
        Err(failed(
            session_id,
            format!("the CLI has not stored this conversation{}", place.unwrap_or_default()),
        ))
    }

    fn read(&self, session_id: &str) -> Result<(Project, String), ClaudeCodeError> {
        let Found { project, file, bytes } = self.find(session_id, OFlags::RDONLY)?;
        if bytes > MAX_BYTES {
            return Err(failed(session_id, format!("it has {bytes} bytes; at most {MAX_BYTES} are read")));
        }
        let mut text = Vec::new();
        let read = file.take(MAX_BYTES).read_to_end(&mut text);
        read.map_err(|error| failed(session_id, format!("cannot read it: {error}")))?;
        Ok((project, String::from_utf8_lossy(&text).into_owned()))
    }

    /// Appends a line with one write, because a CLI may be appending too.
    fn append(&self, session_id: &str, line: &str) -> Result<(), ClaudeCodeError> {
        let mut found = self.find(session_id, OFlags::RDWR | OFlags::APPEND)?;
        let mut last = [b'\n'];
        let read = found.file.read_at(&mut last, found.bytes.saturating_sub(1));
        // A killed CLI may leave an incomplete line.
        let start = if last == [b'\n'] { "" } else { "\n" };
        let written = read.and_then(|_| found.file.write_all(format!("{start}{line}").as_bytes()));
        written.map_err(|error| failed(session_id, format!("cannot write it: {error}")))
    }

    /// The process that has the conversation open, according to the CLIs' own records.
    fn user_of(&self, session_id: &str) -> Option<u32> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Open {
            pid: u32,
            session_id: String,
            proc_start: Option<String>,
        }
        let entries = fs::read_dir(self.config.join("sessions")).ok()?.filter_map(Result::ok);
        let read = |path: &Path| {
            let mut text = String::new();
            File::open(path).ok()?.take(PIECE_BYTES).read_to_string(&mut text).ok()?;
            serde_json::from_str::<Open>(&text).ok()
        };
        let open = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        open.filter_map(|entry| read(&entry.path()))
            .find(|open| open.session_id == session_id && is_running(open.pid, open.proc_start.as_deref()))
            .map(|open| open.pid)
    }
}

/// Whether that process is running, and its id has not been reused.
fn is_running(pid: u32, began: Option<&str>) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let is_there = |pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH);
        return !Path::new("/proc/self/stat").exists() && pid.is_some_and(is_there);
    };
    // The 22nd field; the second one is in parentheses and may contain anything.
    let its_start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19));
    began.is_none_or(|began| its_start == Some(began))
}

/// The name of the directory in which the CLI stores the conversations of `directory`.
fn project_name(directory: &Path) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    directory.to_string_lossy().chars().map(letter).collect()
}

fn file_name(session_id: &str) -> String {
    format!("{session_id}.jsonl")
}

fn names(dir: &OwnedFd) -> io::Result<Vec<OsString>> {
    use std::os::unix::ffi::OsStringExt as _;

    let entries = rustix::fs::Dir::read_from(dir)?;
    let names = entries.map(|entry| Ok(OsString::from_vec(entry?.file_name().to_bytes().to_vec())));
    let names: io::Result<Vec<_>> = names.collect();
    Ok(names?.into_iter().filter(|name| name != "." && name != "..").collect())
}

/// Opens a conversation's file; `None` if it is missing or empty.
fn open_file(dir: &OwnedFd, session_id: &str, access: OFlags) -> io::Result<Option<(File, u64)>> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, file_name(session_id), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(io::Error::other("its file is a link, which is not followed")),
        opened => File::from(opened?),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("its file is not a regular one"));
    }
    Ok((found.len() > 0).then_some((file, found.len())))
}

/// Reads the beginning and the end of a file; `None` if it contains no messages.
fn info(session_id: &str, file: &File, bytes: u64) -> io::Result<Option<SessionInfo>> {
    let piece = |from: u64| {
        let mut piece = Vec::new();
        let mut buffer = vec![0; usize::try_from(PIECE_BYTES).unwrap_or_default()];
        while piece.len() < buffer.len() {
            match file.read_at(&mut buffer, from + piece.len() as u64)? {
                0 => break,
                count => piece.extend_from_slice(&buffer[..count]),
            }
        }
        Ok::<_, io::Error>(String::from_utf8_lossy(&piece).into_owned())
    };
    let head = piece(0)?;
    let tail = if bytes > PIECE_BYTES {
        piece(bytes.saturating_sub(PIECE_BYTES).max(PIECE_BYTES))?
    } else {
        String::new()
    };
    let read = Summary::of(&[&head, &tail]);
    let info = SessionInfo {
        session_id: session_id.into(),
        title: read.title,
        tag: read.tag,
        first_prompt: read.first_prompt,
        directory: read.directory.map(Into::into),
        modified: file.metadata()?.modified()?,
        created: read.created,
        bytes,
    };
    // The first message may be longer than the piece.
    Ok((read.has_messages || bytes > PIECE_BYTES).then_some(info))
}

/// Checks a title or a tag, which must be one line and not empty.
fn one_line(what: &str, text: &str) -> Result<String, ClaudeCodeError> {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    match plain.trim() {
        "" => Err(ClaudeCodeError::invalid(format!("the {what} is empty"))),
        plain => Ok(plain.to_owned()),
    }
}

fn failed(session_id: &str, reason: impl Display) -> ClaudeCodeError {
    ClaudeCodeError::KeptConversation { session_id: session_id.into(), reason: reason.to_string() }
}

fn read_error(path: &Path, error: &io::Error) -> ClaudeCodeError {
    ClaudeCodeError::invalid(format!("cannot read the conversations in `{}`: {error}", path.display()))
}
