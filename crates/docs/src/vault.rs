//! The vault: which operations are allowed, and performing them.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::io::Errno;
use serde_json::json;

use crate::arguments::Mode;
use crate::limit::{HardLimits, MAX_SOURCE_BYTES};
use crate::lock::Locked;
use crate::path::RelPath;
use crate::refusal::{Code, Refusal};
use crate::root::{Root, Stamp};
use crate::snapshot;
use crate::trash;
use crate::write::{self, ATTEMPTS, NotDurable};

/// The server's own folder. The rule for names that begin with a dot covers it only by that name.
const SYSTEM: &str = ".system";

/// The folder for copies and notes.
#[derive(Debug)]
pub(crate) struct Vault {
    pub(crate) root: Arc<Root>,
    pub(crate) hard: HardLimits,
    /// Contains only notes named by date, which are append-only.
    pub(crate) daily: Option<RelPath>,
}

impl Vault {
    /// Checks that a path is valid, and may be read, or written in this mode; a new note is one that takes an append.
    pub(crate) fn admit(&self, path: &str, mode: Option<Mode>) -> Result<RelPath, Refusal> {
        let path = RelPath::parse(path)?;
        if self.root.below(&RelPath::reserved(SYSTEM), &path).is_some() {
            return Err(Refusal::forbidden(format!(
                "`{path}` is in `{SYSTEM}`, which is the server's own; use another folder"
            )));
        }
        let Some(daily) = self.daily.as_ref().filter(|_| mode.is_some()) else { return Ok(path) };
        let Some(name) = self.root.below(daily, &path) else { return Ok(path) };
        if !name.strip_suffix(".md").is_some_and(is_date) {
            return Err(Refusal::forbidden(format!(
                "`{path}`: `{daily}/` takes only `{daily}/YYYY-MM-DD.md`, with a date that exists"
            )));
        }
        if mode == Some(Mode::Overwrite) {
            return Err(Refusal::forbidden(format!(
                "`{path}` can only be appended to; use the mode `append`"
            )));
        }
        Ok(path)
    }

    /// Creates a note and its folders; returns the number of bytes.
    pub(crate) fn create(&self, path: &RelPath, parts: &[&[u8]]) -> Result<u64, Refusal> {
        check_new_size(path, parts)?;
        let (folder, name) = path.split();
        let failed = |error| self.failed(path, &error);
        let folder = self.root.make_folder(folder.as_ref()).map_err(failed)?;
        match write::create(folder.dir.as_fd(), name, parts) {
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

    /// Replaces the text of a note; returns the number of bytes, `None` if there is no such note.
    pub(crate) fn overwrite(&self, path: &RelPath, parts: &[&[u8]]) -> Result<Option<u64>, Refusal> {
        check_new_size(path, parts)?;
        self.locked(path, Mode::Overwrite, |old| self.replace(path, old, parts))
    }

    /// Appends to a note; returns the number of bytes, `None` if there is no such note. The text starts a new line,
    /// unless it `continues` one.
    pub(crate) fn append(&self, path: &RelPath, text: &str, continues: bool) -> Result<Option<u64>, Refusal> {
        let bytes = text.as_bytes();
        self.locked(path, Mode::Append, |file| {
            if file.has_other_names() {
                return Err(Refusal::forbidden(format!(
                    "`{path}` has another name (a hard link), under which the addition would be missing; append to another file"
                )));
            }
            let failed = |error| self.failed(path, &error);
            if !bytes.is_empty() {
                // With a line feed, which may be added.
                let size = Stamp::of_file(&file.file).map_err(failed)?.size + 1;
                check_size(path, size + bytes.len() as u64)?;
            }
            file.append(bytes, continues).map_err(failed)
        })
    }

    /// Changes the text of a note; `None` if there is no such note.
    pub(crate) fn edit<T>(
        &self,
        path: &RelPath,
        edit: impl FnOnce(&str) -> Result<(String, T), Refusal>,
    ) -> Result<Option<T>, Refusal> {
        self.locked(path, Mode::Overwrite, |old| {
            // Editors do not take the lock, so the file may change while it is read.
            let open = || Ok((old.file.try_clone()?, Stamp::of_file(&old.file)?));
            let (text, outcome) = edit(&snapshot::read(path.as_str(), open)?.text)?;
            self.replace(path, old, &[text.as_bytes()])?;
            Ok(outcome)
        })
    }

    /// Appends to a note, which is created if there is none.
    pub(crate) fn add(&self, path: &RelPath, text: &str, continues: bool) -> Result<u64, Refusal> {
        self.or_create(path, &[text.as_bytes()], || self.append(path, text, continues))
    }

    /// Sets the content of a note, whether it exists or not.
    pub(crate) fn put(&self, path: &RelPath, parts: &[&[u8]]) -> Result<u64, Refusal> {
        self.or_create(path, parts, || self.overwrite(path, parts))
    }

    fn or_create(
        &self,
        path: &RelPath,
        parts: &[&[u8]],
        change: impl Fn() -> Result<Option<u64>, Refusal>,
    ) -> Result<u64, Refusal> {
        for _ in 0..ATTEMPTS {
            if let Some(written) = change()? {
                return Ok(written);
            }
            match self.create(path, parts) {
                // Another process has created it in the meantime.
                Err(refusal) if refusal.code == Code::Conflict => {}
                outcome => return outcome,
            }
        }
        Err(Refusal::conflict(format!("`{path}` keeps being created and removed; try again")))
    }

    /// Runs `work` on a note that no other writer changes meanwhile; `None` if there is no such note.
    fn locked<T>(
        &self,
        path: &RelPath,
        mode: Mode,
        work: impl FnOnce(&Locked<'_>) -> Result<T, Refusal>,
    ) -> Result<Option<T>, Refusal> {
        let (folder, name) = path.split();
        let folder = match self.root.folder(folder.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            folder => folder.map_err(|error| self.failed(path, &error))?,
        };
        let file = Locked::open(folder.as_fd(), name, mode).map_err(|error| self.failed(path, &error))?;
        file.map(|file| work(&file)).transpose()
    }

    /// Replaces a note and stores the old text in the trash. If the disk has no space for both, only the new
    /// text is stored.
    fn replace(&self, path: &RelPath, old: &Locked<'_>, parts: &[&[u8]]) -> Result<u64, Refusal> {
        let kept = match trash::keep(&self.root, path, &old.file) {
            Ok(kept) => Some(kept),
            Err(error) => {
                tracing::warn!(path = path.as_str(), %error, "what is overwritten cannot be kept");
                None
            }
        };
        let is_full =
            |error: &io::Error| matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT));
        let outcome = match (old.replace(parts), kept) {
            (Err(error), Some(kept)) if NotDurable::of(&error).is_none() => {
                drop(kept);
                if is_full(&error) { old.replace(parts) } else { return Err(self.failed(path, &error)) }
            }
            (outcome, Some(kept)) => {
                kept.settle();
                return outcome.map_err(|error| self.failed(path, &error));
            }
            (outcome, None) => outcome,
        };
        if outcome.is_ok() {
            // Undo would restore a text that is older than the one that is lost.
            trash::forget(&self.root, path);
        }
        outcome.map_err(|error| self.failed(path, &error))
    }

    /// The refusal for a failed write; a file in the place of a folder is reported as a conflict.
    pub(crate) fn failed(&self, path: &RelPath, error: &io::Error) -> Refusal {
        match self.root.file_among_parents(path, error) {
            Some(file) => Refusal::conflict(format!("`{file}` is a file, not a folder; choose another path")),
            None => Refusal::system(path.as_str(), error),
        }
    }
}

fn check_new_size(path: &RelPath, parts: &[&[u8]]) -> Result<(), Refusal> {
    check_size(path, parts.iter().map(|part| part.len() as u64).sum())
}

/// Refuses to write a file that would be too large to read.
pub(crate) fn check_size(path: &RelPath, size: u64) -> Result<(), Refusal> {
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
    let is_digit = |place: usize| text.as_bytes()[place].is_ascii_digit();
    let is_form = text.len() == 10 && (0..10).all(|place| is_digit(place) != matches!(place, 4 | 7));
    // There is no year 0.
    is_form && text.parse::<jiff::civil::Date>().is_ok_and(|date| date.year() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::BOM;

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
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let vault = Vault { root, hard: HardLimits::default(), daily: None };
        let content = "x".repeat(usize::try_from(MAX_SOURCE_BYTES).unwrap() + 1);
        let path = vault.admit("a.md", Some(Mode::Overwrite)).unwrap();
        let mut refusals = vec![vault.create(&path, &[content.as_bytes()]).unwrap_err()];
        std::fs::write(dir.path().join("a.md"), "old").unwrap();
        refusals.push(vault.overwrite(&path, &[content.as_bytes()]).unwrap_err());
        refusals.push(vault.put(&path, &[BOM.as_bytes(), content.as_bytes()]).unwrap_err());
        for refusal in refusals {
            assert_eq!(refusal.code, Code::Forbidden, "{}", refusal.message);
            assert_eq!(refusal.details.unwrap()["limit_bytes"], MAX_SOURCE_BYTES);
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("a.md")).unwrap(), "old");
    }
}
