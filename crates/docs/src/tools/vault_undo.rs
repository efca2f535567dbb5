//! `vault_undo`: puts back what a note was before its last overwrite or replacement.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool};
use crate::arguments::Mode;
use crate::path::RelPath;
use crate::refusal::Refusal;
use crate::trash;
use crate::vault::Vault;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// File in the vault.
    path: String,
}

#[derive(Serialize)]
struct Answer {
    /// The file as it was before, relative to the vault.
    written_path: String,
}

pub(super) fn tool() -> Tool {
    let description = "Undoes the last overwrite or replacement in a note. A second call redoes it.";
    super::tool("vault_undo", "Undo a change", description, run)
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let vault = &call.shared.vault;
    let path = vault.admit(&arguments.path, Some(Mode::Overwrite))?;
    undo(vault, &path)?;
    Ok(Answer { written_path: path.into() })
}

/// The present text is kept instead, so undoing twice restores it.
fn undo(vault: &Vault, path: &RelPath) -> Result<(), Refusal> {
    let none = || {
        Refusal::not_found(format!(
            "no earlier text of `{path}` is kept; only an overwrite or a replacement can be undone"
        ))
    };
    let (folder, names) = match trash::entries(&vault.root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
        entries => entries.map_err(|error| Refusal::system(".system/trash", &error))?,
    };
    for name in names.iter().rev() {
        let before = trash::content(folder.as_fd(), name).map_err(|error| vault.failed(path, &error))?;
        // A copy of the present text is of a process that was killed before it replaced it.
        let is_present = has_bytes(vault, path, &before);
        if !is_present {
            vault.put(path, &[&before])?;
        }
        // Last, so that an undo that was interrupted can be repeated.
        trash::remove(folder.as_fd(), name);
        if !is_present {
            return Ok(());
        }
    }
    Err(none())
}

fn has_bytes(vault: &Vault, path: &RelPath, bytes: &[u8]) -> bool {
    let mut found = Vec::new();
    let read =
        vault.root.read(path).and_then(|(file, _)| file.take(bytes.len() as u64 + 1).read_to_end(&mut found));
    read.is_ok() && found == bytes
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use rustix::io::Errno;

    use super::*;
    use crate::disk::{Step, tests as fault};
    use crate::limit::HardLimits;
    use crate::refusal::Code;
    use crate::root::Root;

    type Change = fn(&Vault) -> Result<(), Refusal>;

    fn note(vault: &Vault) -> RelPath {
        vault.admit("sub/a.md", Some(Mode::Overwrite)).unwrap()
    }

    fn overwrite(vault: &Vault) -> Result<(), Refusal> {
        vault.overwrite(&note(vault), &[b"new"]).map(drop)
    }

    fn undo(vault: &Vault) -> Result<(), Refusal> {
        super::undo(vault, &note(vault))
    }

    fn vault() -> (tempfile::TempDir, Vault) {
        let dir = tempfile::TempDir::new().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/a.md"), "old").unwrap();
        let vault = open(dir.path());
        (dir, vault)
    }

    fn open(dir: &Path) -> Vault {
        Vault { root: Arc::new(Root::open(dir).unwrap()), hard: HardLimits::default(), daily: None }
    }

    /// Every file below a folder with its text, sorted.
    fn content(dir: &Path) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                all.extend(content(&path));
            } else {
                let name = path.file_name().unwrap().to_str().unwrap();
                // The numbers in the trash change.
                let name = name.split_once('-').map_or(name, |(_, rest)| rest).to_owned();
                all.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
        all.sort();
        all
    }

    #[test]
    fn the_old_text_is_in_the_trash_before_the_new_one_has_the_name() {
        let (_dir, vault) = vault();
        let kept = [Step::Create, Step::Copy, Step::Sync, Step::Rename];
        let replaced = [Step::Create, Step::SetMode, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder];
        let steps = |change: Change| fault::steps(|| change(&vault).unwrap());
        assert_eq!(steps(overwrite), [&kept[..], &replaced].concat());
        assert_eq!(steps(undo), [&kept[..], &replaced, &[Step::Unlink]].concat());
    }

    #[test]
    fn an_undo_that_fails_leaves_everything_as_it_was_and_can_be_repeated() {
        for step in [Step::Write, Step::Sync, Step::Rename, Step::SyncFolder] {
            for errno in [Errno::NOSPC, Errno::IO] {
                let (dir, vault) = vault();
                overwrite(&vault).unwrap();
                let was = content(dir.path());
                let refusal = fault::with(step, errno, || undo(&vault)).unwrap_err();
                if step == Step::SyncFolder {
                    // The old text is in place, and the new one is in the trash.
                    assert_eq!(refusal.details.unwrap()["is_written"], true);
                    assert_eq!(content(dir.path()).len(), 3);
                } else {
                    assert_eq!(content(dir.path()), was, "{step:?} {errno:?}: {}", refusal.message);
                }
                undo(&vault).unwrap();
            }
        }
    }

    #[test]
    fn an_overwrite_does_not_depend_on_keeping_what_was_there() {
        let (dir, vault) = vault();
        overwrite(&vault).unwrap();
        fault::with(Step::Copy, Errno::IO, || overwrite(&vault)).unwrap();
        // The older entry was dropped: undo would otherwise restore the wrong text.
        assert_eq!(content(dir.path()), [("a.md".to_owned(), "new".to_owned())]);
        assert_eq!(undo(&vault).unwrap_err().code, Code::NotFound);
        // A failed write leaves no copy in the trash.
        fault::with(Step::Write, Errno::NOSPC, || overwrite(&vault)).unwrap_err();
        assert_eq!(content(dir.path()), [("a.md".to_owned(), "new".to_owned())]);
    }
}
