//! The kept results: in memory, and beyond a limit in unnamed files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use rustix::fs::Mode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::tool::lock::lock;
use crate::{Caller, ToolError};

/// The limit of kept results: each may hold a file open.
const MAX_RESULTS: usize = 200;

/// The limit for texts in memory that replace handles, and that are read from files, of all calls together.
pub(crate) const MAX_EXPANDED_BYTES: usize = 256 << 20;

/// The prefix of every handle.
pub(crate) const PREFIX: &str = "parked:";

/// The owner of a result: the client's session, or its process; `None` if a front has only one client.
pub(crate) type Owner = Option<Arc<str>>;

/// The results of all clients. Over the limits, the oldest are dropped.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) memory_bytes: usize,
    pub(crate) total_bytes: usize,
    /// The directory for files; the system's temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Oldest first.
    kept: Mutex<VecDeque<Arc<Item>>>,
    expanded: Arc<Semaphore>,
}

/// One result.
#[derive(Debug)]
pub(crate) struct Item {
    /// A name that cannot be guessed: 122 random bits.
    pub(crate) handle: String,
    owner: Owner,
    /// Whether it is JSON: an object or a list.
    pub(crate) is_json: bool,
    pub(crate) bytes: usize,
    pub(crate) lines: usize,
    /// The size of the text as a JSON string.
    pub(crate) quoted_bytes: usize,
    text: Text,
}

#[derive(Debug)]
enum Text {
    Memory(Bytes),
    /// An unnamed file: no other process can open it, and the system removes it when this process ends.
    File(File),
}

impl Item {
    /// The whole text.
    pub(crate) fn load(&self) -> Result<Bytes, ToolError> {
        match &self.text {
            Text::Memory(text) => Ok(text.clone()),
            Text::File(file) => {
                let mut text = vec![0; self.bytes];
                let read = file.read_exact_at(&mut text, 0);
                read.map_err(|error| unusable(&format!("a kept result cannot be read: {error}")))?;
                Ok(text.into())
            }
        }
    }

    fn memory(&self) -> usize {
        if matches!(self.text, Text::Memory(_)) { self.bytes } else { 0 }
    }
}

impl Default for Store {
    fn default() -> Self {
        let (expanded, kept) = (Arc::new(Semaphore::new(MAX_EXPANDED_BYTES)), Mutex::default());
        Self { memory_bytes: 16 << 20, total_bytes: 1 << 30, dir: None, kept, expanded }
    }
}

impl Store {
    /// Keeps a text, in a file if it does not fit into memory any more. The error says why it is not kept.
    pub(crate) fn put(&self, owner: Owner, text: Bytes, is_json: bool) -> Result<Arc<Item>, String> {
        let (bytes, limit) = (text.len(), self.total_bytes);
        if bytes > limit {
            return Err(format!("it has {bytes} bytes, the limit is {limit}"));
        }
        let handle = format!("{PREFIX}{}", Uuid::new_v4().simple());
        let (lines, quoted_bytes) = (count_lines(&text), count_quoted(&text));
        let text = Text::Memory(text);
        let mut item = Item { handle, owner, is_json, bytes, lines, quoted_bytes, text };
        let mut kept = self.kept_with_room(bytes);
        if kept.iter().map(|item| item.memory()).sum::<usize>() + bytes > self.memory_bytes {
            // Without the lock: disks are slow.
            drop(kept);
            if let Text::Memory(text) = &item.text {
                let spilled = self.spill(text);
                item.text =
                    Text::File(spilled.map_err(|error| format!("it cannot be written to a file: {error}"))?);
            }
            kept = self.kept_with_room(bytes);
        }
        let item = Arc::new(item);
        kept.push_back(Arc::clone(&item));
        Ok(item)
    }

    /// A result of that owner. It does not reveal whether another owner has such a handle.
    pub(crate) fn get(&self, owner: &Owner, handle: &str) -> Result<Arc<Item>, ToolError> {
        let kept = lock(&self.kept);
        let found = kept.iter().find(|item| item.handle == handle && item.owner == *owner);
        found.cloned().ok_or_else(|| {
            let shown: String = handle.chars().take(60).collect();
            unusable(&format!(
                "there is no result `{shown}` in this session; call the tool that gave it again, and use the new handle"
            ))
        })
    }

    /// What `use_it` makes of a result's text.
    pub(crate) fn with_text<T>(
        &self,
        owner: &Owner,
        handle: &str,
        use_it: impl FnOnce(&str) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        let item = self.get(owner, handle)?;
        let _permit = self.expand(item.bytes - item.memory())?;
        let text = item.load()?;
        use_it(std::str::from_utf8(&text).map_err(|error| unusable(&error.to_string()))?)
    }

    /// The right to that much memory. Waiting for other calls' tools would hold the permit of a running call, and the turn
    /// of an exclusive one.
    pub(crate) fn expand(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ToolError> {
        let bytes = u32::try_from(bytes.min(MAX_EXPANDED_BYTES)).unwrap_or(u32::MAX);
        Arc::clone(&self.expanded).try_acquire_many_owned(bytes).map_err(|_| {
            unusable(&format!(
                "the texts of handles in running calls have {MAX_EXPANDED_BYTES} bytes together at most; call again when \
                 others have ended"
            ))
        })
    }

    fn spill(&self, text: &[u8]) -> io::Result<File> {
        let mut file = self.dir.as_ref().map_or_else(tempfile::tempfile, tempfile::tempfile_in)?;
        // Also through `/proc/<pid>/fd`, no other user may read it.
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        file.write_all(text)?;
        Ok(file)
    }

    fn kept_with_room(&self, bytes: usize) -> MutexGuard<'_, VecDeque<Arc<Item>>> {
        let mut kept = lock(&self.kept);
        while kept.len() >= MAX_RESULTS
            || kept.iter().map(|item| item.bytes).sum::<usize>() + bytes > self.total_bytes
        {
            kept.pop_front();
        }
        kept
    }
}

/// Whether a text is a handle, known or not.
pub(crate) fn is_handle(text: &str) -> bool {
    let id = text.strip_prefix(PREFIX).unwrap_or_default();
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The owner of the results of a caller's calls.
pub(crate) fn owner_of(caller: Option<&Caller>) -> Owner {
    let caller = caller?;
    let session = caller.session_id.as_ref().map(|id| format!("session {id}"));
    let connection = || caller.connection.map(|id| format!("connection {id}"));
    let process = || caller.pid.map(|pid| format!("process {pid}"));
    session.or_else(connection).or_else(process).map(Arc::from)
}

pub(crate) fn unusable(reason: &str) -> ToolError {
    ToolError::new("ParkedHandleError", reason)
}

/// The number of lines; an unterminated one counts.
fn count_lines(text: &[u8]) -> usize {
    text.split_inclusive(|byte| *byte == b'\n').count()
}

/// The size of a text as a JSON string, as `serde_json` writes it.
fn count_quoted(text: &[u8]) -> usize {
    let size = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    2 + text.iter().map(size).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn store(memory_bytes: usize, total_bytes: usize) -> Store {
        Store { memory_bytes, total_bytes, ..Store::default() }
    }

    fn text(byte: u8, length: usize) -> Bytes {
        vec![byte; length].into()
    }

    #[test]
    fn results_beyond_the_memory_limit_are_in_private_files() {
        let store = store(100, 1000);
        let first = store.put(None, text(b'a', 60), false).unwrap();
        let second = store.put(None, text(b'b', 60), false).unwrap();
        assert_eq!(first.memory(), 60);
        let Text::File(file) = &second.text else { panic!("it is in memory") };
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(file.metadata().unwrap().nlink(), 0, "it has a name");
        assert_eq!(store.get(&None, &second.handle).unwrap().load().unwrap(), text(b'b', 60));
        // Later results that fit are in memory again.
        assert_eq!(store.put(None, text(b'c', 40), false).unwrap().memory(), 40);
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let store = store(1000, 100);
        let items: Vec<_> = (0..3).map(|_| store.put(None, text(b'a', 40), false).unwrap()).collect();
        let there: Vec<_> = items.iter().map(|item| store.get(&None, &item.handle).is_ok()).collect();
        assert_eq!(there, [false, true, true]);
        let error = store.put(None, text(b'a', 101), false).unwrap_err();
        assert_eq!(error, "it has 101 bytes, the limit is 100");
        for _ in 0..2 * MAX_RESULTS {
            store.put(None, Bytes::new(), false).unwrap();
        }
        assert_eq!(lock(&store.kept).len(), MAX_RESULTS);
    }

    #[test]
    fn a_result_is_visible_only_to_its_owner() {
        let store = store(1000, 1000);
        let owner = |name: &str| Some(Arc::from(name));
        let item = store.put(owner("ada"), text(b'a', 4), false).unwrap();
        assert!(is_handle(&item.handle) && store.get(&owner("ada"), &item.handle).is_ok());
        assert!(store.get(&owner("bob"), &item.handle).is_err() && store.get(&None, &item.handle).is_err());
    }

    #[test]
    fn a_failed_write_takes_no_room() {
        let store = Store { dir: Some("/nowhere/at/all".into()), ..store(0, 1000) };
        let error = store.put(None, text(b'a', 40), false).unwrap_err();
        assert!(error.starts_with("it cannot be written to a file"), "{error}");
        assert!(lock(&store.kept).is_empty());
    }

    #[test]
    fn lines_are_counted_as_people_do() {
        for (text, want) in [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)] {
            assert_eq!(count_lines(text.as_bytes()), want, "{text:?}");
        }
    }

    #[test]
    fn the_size_of_a_quoted_text_is_known() {
        let text: String = (0..0x250).filter_map(char::from_u32).collect();
        assert_eq!(count_quoted(text.as_bytes()), serde_json::to_string(&text).unwrap().len());
    }
}
