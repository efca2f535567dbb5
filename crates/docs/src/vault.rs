//! The vault: which operations are allowed, and performing them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use serde_json::json;

use crate::answer::{
    Entries, EntryType, FileType, Replaced, TruncatedReason, VaultEntry, VaultText, Written,
};
use crate::arguments::{Count, Mode, VaultCreate, VaultLs, VaultRead, VaultReplace, VaultWrite};
use crate::format::Format;
use crate::limit::{HARD_MAX_REPLACEMENTS, HardLimits, MAX_SOURCE_BYTES};
use crate::lock::Locked;
use crate::path::RelPath;
use crate::range;
use crate::refusal::{Code, Refusal};
use crate::root::{Root, Stamp};
use crate::section::BOM;
use crate::snapshot;
use crate::temporary::Swept;
use crate::trash::Trash;
use crate::write::{self, ATTEMPTS, NotDurable};

/// The server's own folder. The rule for names that begin with a dot covers it only by that name.
const SYSTEM: &str = ".system";

/// The folder for copies and notes.
#[derive(Debug)]
pub(crate) struct Vault {
    pub(crate) root: Root,
    pub(crate) hard: HardLimits,
    /// Contains only notes named by date, which are append-only.
    pub(crate) daily: Option<RelPath>,
    pub(crate) turns: Turns,
    swept: Swept,
    pub(crate) trash: Trash,
}

/// Serialises changes per file in this process, so that few threads poll its lock. Other files are not
/// blocked.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<RelPath, Arc<Mutex<()>>>>);

impl Turns {
    /// Runs `work` when no other call is changing `path`.
    pub(crate) fn take<T>(&self, path: &RelPath, work: impl FnOnce() -> T) -> T {
        let turn = Arc::clone(self.files().entry(path.clone()).or_default());
        let outcome = {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            work()
        };
        let mut files = self.files();
        // Only the map and this call hold it: no other call waits.
        if Arc::strong_count(&turn) == 2 {
            files.remove(path);
        }
        outcome
    }

    fn files(&self) -> std::sync::MutexGuard<'_, HashMap<RelPath, Arc<Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call is going to do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Look,
    Create,
    Write(Mode),
}

/// Allowed for all notes except daily ones.
pub(crate) const CHANGE: Use = Use::Write(Mode::Overwrite);

impl Vault {
    pub(crate) fn new(root: Root, hard: HardLimits, daily: Option<RelPath>) -> Self {
        Self { root, hard, daily, turns: Turns::default(), swept: Swept::default(), trash: Trash::default() }
    }

    /// Checks that a path is valid and allows this use.
    pub(crate) fn admit(&self, path: &str, purpose: Use) -> Result<RelPath, Refusal> {
        let path = RelPath::parse(path)?;
        if self.root.below(&RelPath::reserved(SYSTEM), &path).is_some() {
            return Err(Refusal::forbidden(format!("`{path}` is in `{SYSTEM}`, which is the server's own")));
        }
        if purpose == Use::Look {
            return Ok(path);
        }
        let Some(daily) = &self.daily else { return Ok(path) };
        let Some(name) = self.root.below(daily, &path) else { return Ok(path) };
        if !name.strip_suffix(".md").is_some_and(is_date) {
            return Err(Refusal::forbidden(format!(
                "`{path}`: `{daily}/` takes only `{daily}/YYYY-MM-DD.md`, with a date that exists"
            )));
        }
        if purpose == Use::Write(Mode::Overwrite) {
            return Err(Refusal::forbidden(format!(
                "`{path}` can only be appended to; use the mode `append`"
            )));
        }
        Ok(path)
    }

    pub(crate) fn ls(&self, request: &VaultLs) -> Result<Entries, Refusal> {
        let folder = match request.path.as_deref() {
            None | Some("" | "." | "./") => None,
            Some(folder) => Some(self.admit(folder, Use::Look)?),
        };
        let place = folder.as_ref().map_or("vault", RelPath::as_str);
        let entries = self.root.list(folder.as_ref()).map_err(|error| Refusal::system(place, &error))?;
        let entry = |entry: crate::root::Entry| VaultEntry {
            path: entry.path.into(),
            entry_type: if entry.is_dir { EntryType::Dir } else { EntryType::File },
            size_bytes: (!entry.is_dir).then_some(entry.stamp.size),
        };
        Ok(Entries { entries: entries.into_iter().map(entry).collect() })
    }

    pub(crate) fn read(&self, request: &VaultRead) -> Result<VaultText, Refusal> {
        let path = self.admit(&request.path, Use::Look)?;
        let full = request.full == Some(true);
        if full && request.range.is_some() {
            return Err(Refusal::parameter("`full` and `range` exclude each other; leave one out"));
        }
        let text = snapshot::read(path.as_str(), || self.root.read(&path))?;
        // With `full`, and for a `.json`, the limit is the server's maximum.
        let kind =
            if full || Format::of(&path) == Some(Format::Json) { FileType::Json } else { FileType::Md };
        let max_chars = self.hard.chars(request.limits, kind);
        let reason = if max_chars.is_hard { TruncatedReason::HardLimit } else { TruncatedReason::MaxChars };
        range::lines(&text, request.range, max_chars.chars, reason)
    }

    pub(crate) fn create(&self, request: &VaultCreate) -> Result<Written, Refusal> {
        let path = self.admit(&request.path, Use::Create)?;
        let content = request.content.as_bytes();
        let written_bytes = self.turns.take(&path, || self.put(&path, &[content], write::create))?;
        Ok(Written { written_path: path.into(), written_bytes })
    }

    pub(crate) fn write(&self, request: &VaultWrite) -> Result<Written, Refusal> {
        let path = self.admit(&request.path, Use::Write(request.mode))?;
        let missing = || {
            Refusal::conflict(format!("there is no `{path}` to write to; `vault_create` creates a new file"))
        };
        let failed = |error: io::Error| match self.failed(&path, &error) {
            refusal if refusal.code == Code::NotFound => missing(),
            refusal => refusal,
        };
        let (folder, name) = path.split();
        let written_bytes = self.turns.take(&path, || {
            let folder = self.root.folder(folder.as_ref()).map_err(failed)?;
            let dir = folder.as_fd();
            match request.mode {
                Mode::Append => {
                    let file = Locked::to_append(dir, name).map_err(failed)?.ok_or_else(missing)?;
                    // A byte order mark is only valid at the start of a file.
                    let content = request.content.strip_prefix(BOM).unwrap_or(&request.content);
                    self.append(&path, dir, &file, content.as_bytes(), false)
                }
                Mode::Overwrite => {
                    let old = Locked::to_replace(dir, name).map_err(failed)?.ok_or_else(missing)?;
                    check_new_size(&path, request.content.len() as u64)?;
                    self.replace_old(&path, dir, &old, &[request.content.as_bytes()]).map_err(failed)
                }
            }
        })?;
        Ok(Written { written_path: path.into(), written_bytes })
    }

    pub(crate) fn replace(&self, request: &VaultReplace) -> Result<Replaced, Refusal> {
        let path = self.admit(&request.path, Use::Write(Mode::Overwrite))?;
        if request.find.is_empty() {
            return Err(Refusal::parameter("`find` is empty; give the text to be replaced"));
        }
        let replacements = self.turns.take(&path, || self.replace_now(&path, request))?;
        Ok(Replaced { written_path: path.into(), replacements })
    }

    fn replace_now(&self, path: &RelPath, request: &VaultReplace) -> Result<usize, Refusal> {
        let most = request.max_replacements.map_or(1, Count::get).min(HARD_MAX_REPLACEMENTS);
        let failed = |error| self.failed(path, &error);
        let (folder, name) = path.split();
        let folder = self.root.folder(folder.as_ref()).map_err(failed)?;
        // Locked until the new file has the name, so that concurrent writes are not lost.
        let Some(old) = Locked::to_replace(folder.as_fd(), name).map_err(failed)? else {
            return Err(Refusal::not_found(format!("there is no `{path}`")));
        };
        // Editors do not take the lock, so the file may change while it is read.
        let text = snapshot::read(path.as_str(), || Ok((old.file.try_clone()?, Stamp::of_file(&old.file)?)))?;
        let replacements = text.matches(&request.find).take(most).count();
        if replacements == 0 {
            return Err(Refusal::not_found(format!(
                "`find` does not occur in `{path}`; it must match the text exactly"
            )));
        }
        let kept = text.len() - replacements * request.find.len();
        check_new_size(path, kept as u64 + replacements as u64 * request.replace.len() as u64)?;
        let text = text.replacen(&request.find, &request.replace, replacements);
        self.replace_old(path, folder.as_fd(), &old, &[text.as_bytes()]).map_err(failed)?;
        Ok(replacements)
    }

    /// Checks the target of a copy, before anything is read.
    pub(crate) fn destination(&self, to_path: &str, mode: Mode) -> Result<RelPath, Refusal> {
        self.admit(to_path, Use::Write(mode))
    }

    /// Writes `text`; returns the number of bytes. `bom` is written only when overwriting. Appended text starts a new
    /// line, unless it `continues` one.
    pub(crate) fn receive(
        &self,
        to: &RelPath,
        mode: Mode,
        text: &str,
        bom: &str,
        continues: bool,
    ) -> Result<u64, Refusal> {
        self.turns.take(to, || match mode {
            Mode::Overwrite => self.put(to, &[bom.as_bytes(), text.as_bytes()], |dir, name, parts| {
                write::overwrite(dir, name, parts, |old, parts| self.replace_old(to, dir, old, parts))
            }),
            Mode::Append => self.append_or_create(to, text.as_bytes(), continues),
        })
    }

    fn append_or_create(&self, path: &RelPath, text: &[u8], continues: bool) -> Result<u64, Refusal> {
        let (folder, name) = path.split();
        let failed = |error| self.failed(path, &error);
        for _ in 0..ATTEMPTS {
            match self.root.folder(folder.as_ref()) {
                Ok(folder) => {
                    if let Some(file) = Locked::to_append(folder.as_fd(), name).map_err(failed)? {
                        return self.append(path, folder.as_fd(), &file, text, continues);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
            match self.put(path, &[text], write::create) {
                // Another process created the file in the meantime: append to it.
                Err(refusal) if refusal.code == Code::Conflict => {}
                outcome => return outcome,
            }
        }
        Err(Refusal::conflict(format!("`{path}` keeps being created and removed; try again")))
    }

    /// Appends to a locked file.
    fn append(
        &self,
        path: &RelPath,
        dir: BorrowedFd<'_>,
        file: &Locked<'_>,
        bytes: &[u8],
        continues: bool,
    ) -> Result<u64, Refusal> {
        if file.has_other_names() {
            return Err(Refusal::forbidden(format!(
                "`{path}` has another name (a hard link), under which the addition would be missing; append to another file"
            )));
        }
        let failed = |error| self.failed(path, &error);
        if !bytes.is_empty() {
            check_new_size(path, file.size_with(bytes, continues).map_err(failed)?)?;
        }
        self.swept(dir, || file.append(bytes, continues)).map_err(failed)
    }

    /// Writes a whole file with `write`, and creates its folders.
    pub(crate) fn put(
        &self,
        path: &RelPath,
        parts: &[&[u8]],
        write: impl FnOnce(BorrowedFd<'_>, &str, &[&[u8]]) -> io::Result<u64>,
    ) -> Result<u64, Refusal> {
        check_new_size(path, parts.iter().map(|part| part.len() as u64).sum())?;
        let (folder, name) = path.split();
        let failed = |error| self.failed(path, &error);
        let folder = self.root.make_folder(folder.as_ref()).map_err(failed)?;
        let dir = folder.dir.as_fd();
        match self.swept(dir, || write(dir, name, parts)) {
            Ok(written) => {
                folder.keep();
                Ok(written)
            }
            Err(error) if write::is_taken(&error) => Err(Refusal::conflict(format!(
                "`{path}` exists already; `vault_write` changes a file, anything else needs another name"
            ))),
            Err(error) => Err(failed(error)),
        }
    }

    /// Replaces a file and stores the old text in the trash. If the disk has no space for both, only the new
    /// text is stored.
    pub(crate) fn replace_old(
        &self,
        path: &RelPath,
        dir: BorrowedFd<'_>,
        old: &Locked<'_>,
        parts: &[&[u8]],
    ) -> io::Result<u64> {
        let replace = || self.swept(dir, || old.replace(parts));
        let kept = self.trash.keep(&self.root, path, &old.file);
        if let Err(error) = &kept {
            tracing::warn!(path = path.as_str(), %error, "what is overwritten cannot be kept");
        }
        let outcome = match (replace(), kept) {
            (Err(error), Ok(kept)) if NotDurable::of(&error).is_none() => {
                drop(kept);
                if !matches!(Errno::from_io_error(&error), Some(Errno::NOSPC | Errno::DQUOT)) {
                    return Err(error);
                }
                replace()
            }
            (outcome, Ok(kept)) => {
                kept.settle();
                return outcome;
            }
            (outcome, Err(_)) => outcome,
        };
        if outcome.is_ok() {
            self.trash.forget(&self.root, path);
        }
        outcome
    }

    /// The refusal for a failed write; a file in the place of a folder is reported as a conflict.
    pub(crate) fn failed(&self, path: &RelPath, error: &io::Error) -> Refusal {
        match self.root.file_among_parents(path, error) {
            Some(file) => Refusal::conflict(format!("`{file}` is a file, not a folder; choose another path")),
            None => Refusal::system(path.as_str(), error),
        }
    }

    /// Creates a file, after removing what killed processes left in its folder.
    pub(crate) fn swept<T>(
        &self,
        dir: BorrowedFd<'_>,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.swept.sweep(dir);
        let outcome = work();
        self.swept.note(dir);
        outcome
    }
}

/// Refuses to write a file that would be too large to read.
pub(crate) fn check_new_size(path: &RelPath, size: u64) -> Result<(), Refusal> {
    if size <= MAX_SOURCE_BYTES {
        return Ok(());
    }
    Err(Refusal::forbidden(format!(
        "`{path}` would have {size} bytes, the limit is {MAX_SOURCE_BYTES}, and no more can be read; write less, or to another file"
    ))
    .with(json!({ "size_bytes": size, "limit_bytes": MAX_SOURCE_BYTES })))
}

/// Whether a text is a valid date of the form `YYYY-MM-DD`.
fn is_date(text: &str) -> bool {
    let is_form = text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    // There is no year 0.
    is_form && text.parse::<jiff::civil::Date>().is_ok_and(|date| date.year() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_must_exist() {
        for text in ["2024-02-29", "2025-12-31", "0001-01-01"] {
            assert!(is_date(text), "{text}");
        }
        let none = "2023-02-29 2025-02-30 2025-13-01 2025-00-10 2025-01-00 0000-01-01 2025-1-1 20250101 \
                    2025-01-01x +025-01-01 ２025-01-01";
        for text in none.split(' ') {
            assert!(!is_date(text), "{text}");
        }
    }

    #[test]
    fn a_new_text_that_could_not_be_read_is_not_written() {
        let dir = tempfile::TempDir::new().unwrap();
        let vault = Vault::new(Root::open(dir.path()).unwrap(), HardLimits::default(), None);
        let path = "a.md".to_owned();
        let content = "x".repeat(usize::try_from(MAX_SOURCE_BYTES).unwrap() + 1);
        let create = VaultCreate { path: path.clone(), content: content.clone() };
        let write = VaultWrite { path: path.clone(), content: content.clone(), mode: Mode::Overwrite };
        let to = vault.destination(&path, Mode::Overwrite).unwrap();
        let mut refusals = vec![vault.create(&create).unwrap_err()];
        std::fs::write(dir.path().join(&path), "old").unwrap();
        refusals.push(vault.write(&write).unwrap_err());
        refusals.push(vault.receive(&to, Mode::Overwrite, &content, BOM, false).unwrap_err());
        for refusal in refusals {
            assert_eq!(refusal.code, Code::Forbidden, "{}", refusal.message);
            assert_eq!(refusal.details.unwrap()["limit_bytes"], MAX_SOURCE_BYTES);
        }
        assert_eq!(std::fs::read_to_string(dir.path().join(&path)).unwrap(), "old");
    }
}
