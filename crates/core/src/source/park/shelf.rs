//! Stores results: in memory, and beyond a limit in unnamed files.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::fs::Mode;

use crate::source::park::handle::Handle;

/// The limit of kept results: each may hold a file open.
const MOST_RESULTS: usize = 200;

/// The owner of a result: the client's session, or its process; `None` if a front has only one client.
pub(crate) type Owner = Option<Arc<str>>;

/// The limits, and the directory for files.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pub(crate) memory_bytes: u64,
    pub(crate) total_bytes: u64,
    /// The directory for files; the system's temporary directory if `None`.
    pub(crate) dir: Option<PathBuf>,
}

impl Default for Room {
    fn default() -> Self {
        Self { memory_bytes: 16 << 20, total_bytes: 1 << 30, dir: None }
    }
}

/// The results of all clients. Over the limits, the oldest are dropped.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) room: Room,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    results: HashMap<Handle, Arc<Item>>,
    /// Oldest first.
    order: VecDeque<Handle>,
    memory: u64,
    total: u64,
}

/// One result.
#[derive(Debug)]
pub(crate) struct Item {
    owner: Owner,
    /// Whether it is JSON: an object or a list.
    pub(crate) is_json: bool,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    /// The size of the text as a JSON string.
    pub(crate) quoted_bytes: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Bytes),
    /// An unnamed file: no other process can open it, and the system removes it when this process ends.
    File(File),
}

impl Item {
    /// The whole text.
    pub(crate) fn load(&self) -> io::Result<Bytes> {
        match &self.place {
            Place::Memory(bytes) => Ok(bytes.clone()),
            Place::File(file) => {
                let mut bytes = vec![0; usize::try_from(self.bytes).map_err(io::Error::other)?];
                file.read_exact_at(&mut bytes, 0)?;
                Ok(bytes.into())
            }
        }
    }
}

/// Why a result is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotKept {
    #[error("it has {bytes} bytes, the limit is {limit}")]
    TooLarge { bytes: u64, limit: u64 },
    #[error("it cannot be written to a file: {0}")]
    Disk(#[from] io::Error),
}

impl Shelf {
    /// Keeps a text, in a file if it does not fit into memory any more.
    pub(crate) fn put(
        &self,
        owner: Owner,
        text: Bytes,
        is_json: bool,
    ) -> Result<(Handle, Arc<Item>), NotKept> {
        let bytes = text.len() as u64;
        let limit = self.room.total_bytes;
        if bytes > limit {
            return Err(NotKept::TooLarge { bytes, limit });
        }
        let (lines, quoted_bytes) = (count_lines(&text), count_quoted(&text));
        let mut kept = self.kept();
        kept.make_room(bytes, limit);
        let fits = kept.memory + bytes <= self.room.memory_bytes;
        if fits {
            kept.memory += bytes;
        }
        kept.total += bytes;
        // Without the lock: disks are slow.
        drop(kept);
        let place = if fits { Ok(Place::Memory(text)) } else { self.spill(&text).map(Place::File) };
        let mut kept = self.kept();
        match place {
            Err(error) => {
                kept.total -= bytes;
                Err(error.into())
            }
            Ok(place) => {
                let (handle, result) =
                    (Handle::new(), Arc::new(Item { owner, is_json, bytes, lines, quoted_bytes, place }));
                kept.results.insert(handle, Arc::clone(&result));
                kept.order.push_back(handle);
                Ok((handle, result))
            }
        }
    }

    /// A result of that owner. It does not reveal whether another owner has such a handle.
    pub(crate) fn get(&self, owner: &Owner, handle: Handle) -> Option<Arc<Item>> {
        self.kept().results.get(&handle).filter(|result| result.owner == *owner).cloned()
    }

    fn spill(&self, text: &[u8]) -> io::Result<File> {
        let file = match &self.room.dir {
            Some(dir) => tempfile::tempfile_in(dir),
            None => tempfile::tempfile(),
        };
        let mut file = file?;
        // Also through `/proc/<pid>/fd`, no other user may read it.
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        file.write_all(text)?;
        Ok(file)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn make_room(&mut self, bytes: u64, limit: u64) {
        while self.total + bytes > limit || self.results.len() >= MOST_RESULTS {
            let Some(oldest) = self.order.pop_front() else { return };
            let Some(result) = self.results.remove(&oldest) else { continue };
            self.total -= result.bytes;
            if matches!(result.place, Place::Memory(_)) {
                self.memory -= result.bytes;
            }
        }
    }
}

/// The number of lines; an unterminated one counts.
fn count_lines(text: &[u8]) -> u64 {
    let ends = text.split(|byte| *byte == b'\n').count().saturating_sub(1) as u64;
    ends + u64::from(text.last().is_some_and(|byte| *byte != b'\n'))
}

/// The size of a text as a JSON string, as `serde_json` writes it.
fn count_quoted(text: &[u8]) -> u64 {
    let size = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    2 + text.iter().map(size).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn shelf(memory_bytes: u64, total_bytes: u64) -> Shelf {
        Shelf { room: Room { memory_bytes, total_bytes, dir: None }, kept: Mutex::default() }
    }

    fn used(shelf: &Shelf) -> (u64, u64) {
        let kept = shelf.kept();
        (kept.memory, kept.total)
    }

    fn text(byte: u8, length: usize) -> Bytes {
        vec![byte; length].into()
    }

    #[test]
    fn results_beyond_the_memory_limit_are_in_private_files() {
        let shelf = shelf(100, 1000);
        let (_, first) = shelf.put(None, text(b'a', 60), false).unwrap();
        let (handle, second) = shelf.put(None, text(b'b', 60), false).unwrap();
        assert!(matches!(first.place, Place::Memory(_)));
        let Place::File(file) = &second.place else { panic!("it is in memory") };
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&file.metadata().unwrap()), 0, "it has a name");
        assert_eq!(shelf.get(&None, handle).unwrap().load().unwrap(), text(b'b', 60));
        // Later results that fit are in memory again.
        let (_, third) = shelf.put(None, text(b'c', 40), false).unwrap();
        assert!(matches!(third.place, Place::Memory(_)));
        assert_eq!(used(&shelf), (100, 160));
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let shelf = shelf(1000, 100);
        let handles: Vec<_> = (0..3).map(|_| shelf.put(None, text(b'a', 40), false).unwrap().0).collect();
        let there: Vec<_> = handles.iter().map(|handle| shelf.get(&None, *handle).is_some()).collect();
        assert_eq!(there, [false, true, true]);
        assert_eq!(used(&shelf), (80, 80));
        let error = shelf.put(None, text(b'a', 101), false).unwrap_err();
        assert_eq!(error.to_string(), "it has 101 bytes, the limit is 100");
        for _ in 0..2 * MOST_RESULTS {
            shelf.put(None, Bytes::new(), false).unwrap();
        }
        assert_eq!(shelf.kept().results.len(), MOST_RESULTS);
    }

    #[test]
    fn a_result_is_visible_only_to_its_owner() {
        let shelf = shelf(1000, 1000);
        let owner = |name: &str| Some(Arc::from(name));
        let (handle, _) = shelf.put(owner("ada"), text(b'a', 4), false).unwrap();
        assert!(shelf.get(&owner("ada"), handle).is_some());
        assert!(shelf.get(&owner("bob"), handle).is_none() && shelf.get(&None, handle).is_none());
    }

    #[test]
    fn a_failed_write_takes_no_room() {
        let mut shelf = shelf(0, 1000);
        shelf.room.dir = Some("/nowhere/at/all".into());
        assert!(matches!(shelf.put(None, text(b'a', 40), false), Err(NotKept::Disk(_))));
        assert_eq!(used(&shelf), (0, 0));
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
        assert_eq!(count_quoted(text.as_bytes()), serde_json::to_string(&text).unwrap().len() as u64);
    }
}
