//! Operations on whole notes of the vault: undo, outline, search.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

use crate::answer::{FileType, Found, Hit, HitRef, NoteHit, NoteOutline, NoteView, NotesFound, Undone};
use crate::arguments::{ManualFind, Spot, VaultFind, VaultPath, VaultRead};
use crate::excerpt::shown_title;
use crate::find::Search;
use crate::format::Format;
use crate::limit::MAX_PAGE;
use crate::manual::Manuals;
use crate::path::RelPath;
use crate::refusal::Refusal;
use crate::snapshot;
use crate::trash;
use crate::vault::{CHANGE, Use, Vault};
use crate::write;

impl Vault {
    /// The text of a note, or its headings.
    pub(crate) fn look(&self, request: &VaultRead) -> Result<NoteView, Refusal> {
        if request.outline != Some(true) {
            return self.read(request).map(NoteView::Text);
        }
        if request.range.is_some() || request.full == Some(true) {
            return Err(Refusal::parameter("`outline` covers the whole note; leave `range` and `full` out"));
        }
        self.outline(request).map(NoteView::Outline)
    }

    fn outline(&self, request: &VaultRead) -> Result<NoteOutline, Refusal> {
        let path = self.admit(&request.path, Use::Look)?;
        let text = snapshot::read(path.as_str(), || self.root.read(&path))?;
        let format = Format::of(&path).unwrap_or(Format::Md);
        let outline = format.outline(&text);
        let line = |section: &crate::section::Section| {
            format!("#L{} {} {}", section.line, section.level, shown_title(path.as_str(), section))
        };
        // As many characters as a note is read with `full`; each line ends with one.
        let mut left = self.hard.chars(request.limits, FileType::Json).chars;
        let fits = |line: &String| {
            let size = line.chars().count() + 1;
            let fits = size <= left;
            left -= size.min(left);
            fits
        };
        let sections: Vec<_> = outline.iter().map(line).take(MAX_PAGE).take_while(fits).collect();
        Ok(NoteOutline { truncated: sections.len() < outline.len(), sections })
    }

    /// Puts back the text before the last overwrite. The current text is kept instead, so undoing twice restores it.
    pub(crate) fn undo(&self, request: &VaultPath) -> Result<Undone, Refusal> {
        let path = self.admit(&request.path, CHANGE)?;
        let failed = |error| self.failed(&path, &error);
        let none = || Refusal::not_found(format!("no earlier text of `{path}` is kept"));
        self.turns.take(&path, || {
            let (trash, entries) = match self.trash.kept(&self.root, &path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
                kept => kept.map_err(|error| Refusal::system(".system/trash", &error))?,
            };
            for entry in entries.iter().rev() {
                let before = trash::content(trash.as_fd(), entry).map_err(failed)?;
                // The text of the note itself was kept by a process that was killed before it replaced it.
                if self.has_bytes(&path, &before) {
                    trash::remove(trash.as_fd(), entry);
                    continue;
                }
                self.put(&path, &[&before], |dir, name, parts| {
                    write::overwrite(dir, name, parts, |old, parts| self.replace_old(&path, dir, old, parts))
                })?;
                // Last, so that an undo that was interrupted can be repeated.
                trash::remove(trash.as_fd(), entry);
                return Ok(());
            }
            Err(none())
        })?;
        Ok(Undone { written_path: path.into() })
    }

    fn has_bytes(&self, path: &RelPath, bytes: &[u8]) -> bool {
        let mut found = Vec::new();
        let read = self
            .root
            .read(path)
            .and_then(|(file, _)| file.take(bytes.len() as u64 + 1).read_to_end(&mut found));
        read.is_ok() && found == bytes
    }
}

/// Searches the notes of a vault like manuals.
pub(crate) fn find(
    search: &Search,
    notes: &Manuals,
    request: &VaultFind,
    is_gone: &dyn Fn() -> bool,
) -> Result<NotesFound, Refusal> {
    let VaultFind { query, limit } = request;
    let request = ManualFind { query: query.clone(), manual_id: None, limit: *limit, full: None };
    let Found { items, total } = search.find(notes, &request, is_gone)?;
    let hit = |hit: Hit| {
        let (path, line) = match hit.reference {
            HitRef::Short(reference) => {
                let (path, spot) = Spot::split(&reference);
                (path.to_owned(), spot.line)
            }
            HitRef::Full(reference) => (reference.path, reference.start_line),
        };
        NoteHit { path, line, title: hit.title, within: hit.within, snippet: hit.snippet }
    };
    Ok(NotesFound { items: items.into_iter().map(hit).collect(), total })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::io::Errno;

    use super::*;
    use crate::arguments::{Mode, VaultWrite};
    use crate::disk::{Step, fault};
    use crate::limit::HardLimits;
    use crate::refusal::Code;
    use crate::root::Root;

    type Change = fn(&Vault) -> Result<(), Refusal>;

    fn path(path: &str) -> VaultPath {
        VaultPath { path: path.into() }
    }

    fn overwrite(vault: &Vault) -> Result<(), Refusal> {
        let (path, content) = ("sub/a.md".into(), "new".into());
        vault.write(&VaultWrite { path, content, mode: Mode::Overwrite }).map(drop)
    }

    fn undo(vault: &Vault) -> Result<(), Refusal> {
        vault.undo(&path("sub/a.md")).map(drop)
    }

    fn vault() -> (tempfile::TempDir, Vault) {
        let dir = tempfile::TempDir::new().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/a.md"), "old").unwrap();
        let vault = open(dir.path());
        (dir, vault)
    }

    fn open(dir: &Path) -> Vault {
        Vault::new(Root::open(dir).unwrap(), HardLimits::default(), None)
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
        let kept = [Step::Create, Step::SetMode, Step::Copy, Step::Sync, Step::Rename];
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
