//! Operations on whole notes of the vault: move, delete, undo, outline.

use std::io;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use serde_json::json;

use crate::answer::{
    Deleted, Found, Hit, HitRef, LinkCounts, Moved, NoteHit, NoteOutline, NoteView, NotesFound, Undoing,
    Undone,
};
use crate::arguments::{ManualFind, Spot, VaultFind, VaultMove, VaultPath, VaultRead};
use crate::backlink::{Relinked, Way};
use crate::excerpt::shown_title;
use crate::find::Search;
use crate::format::Format;
use crate::limit::MAX_PAGE;
use crate::lock::Locked;
use crate::manual::Manuals;
use crate::path::RelPath;
use crate::refusal::{Code, Refusal};
use crate::root::{Stamp, stat_name};
use crate::snapshot;
use crate::trash::{self, MOST_BYTES, What};
use crate::vault::{CHANGE, Use, Vault, admit};
use crate::write::{is_taken, relocate};

impl Vault {
    /// The text of a note, or its headings.
    pub(crate) fn look(&self, request: &VaultRead) -> Result<NoteView, Refusal> {
        if request.outline != Some(true) {
            return self.read(request).map(NoteView::Text);
        }
        if request.range.is_some() || request.full == Some(true) {
            return Err(Refusal::parameter("`outline` is of the whole note; leave `range` and `full` out"));
        }
        self.outline(&request.path).map(NoteView::Outline)
    }

    fn outline(&self, path: &str) -> Result<NoteOutline, Refusal> {
        let path = admit(path, Use::Look)?;
        let text = snapshot::read(path.as_str(), || self.root.read(&path))?;
        let format = Format::of(&path).unwrap_or(Format::Md);
        let outline = format.outline(&format.text(&path, text)?);
        let line = |section: &crate::section::Section| {
            format!("#L{} {} {}", section.line, section.level, shown_title(path.as_str(), section))
        };
        let sections: Vec<_> = outline.iter().map(line).take(MAX_PAGE).collect();
        Ok(NoteOutline { truncated: sections.len() < outline.len(), sections })
    }

    pub(crate) fn move_note(&self, request: &VaultMove) -> Result<Moved, Refusal> {
        let (from, to) = (admit(&request.from, CHANGE)?, admit(&request.to, Use::Create)?);
        self.finish_moves();
        let (links, changes, mut relinked, kept) = self.turns.take_both(&from, &to, || {
            let (links, changes, mut relinked, kept) = self.move_now(&from, &to, || {
                let links = self.backlinks(&from, Some(&to));
                let (changes, relinked) = self.find_links(&links);
                // Before the note is moved, so that a move that is interrupted can be finished.
                let kept = self.trash.begin_move(&self.root, &from, &to, &changes);
                (links, changes, relinked, kept)
            })?;
            let kept = kept.inspect_err(|error| {
                tracing::warn!(path = to.as_str(), %error, "the move cannot be undone by `vault_undo`");
                self.trash.forget(&self.root, &to);
            });
            self.relink_own(&links, &changes, Way::Move, &mut relinked);
            Ok((links, changes, relinked, kept))
        })?;
        self.relink_others(&links, &changes, Way::Move, &mut relinked);
        if let Ok(kept) = kept {
            kept.finish();
        }
        Ok(Moved { written_path: to.as_str().to_owned(), links: relinked.into() })
    }

    /// Finishes the moves that killed processes have begun, or forgets them if the note was not moved yet.
    pub(crate) fn finish_moves(&self) {
        for (kept, trash::Moved { from, changes, to }) in
            self.trash.unfinished(&self.root).unwrap_or_default()
        {
            let (Ok(from), Ok(to)) = (admit(&from, CHANGE), admit(&to, Use::Create)) else { continue };
            let is_there = |path: &RelPath| matches!(self.root.entry(path), Ok(Some(entry)) if !entry.is_dir);
            let links = self.turns.take_both(&from, &to, || {
                let links = (is_there(&to) && !is_there(&from)).then(|| self.backlinks(&from, Some(&to)))?;
                self.relink_own(&links, &changes, Way::Finish, &mut Relinked::default());
                Some(links)
            });
            if let Some(links) = links {
                self.relink_others(&links, &changes, Way::Finish, &mut Relinked::default());
                kept.finish();
                tracing::info!(%from, %to, "a move that was interrupted is finished");
            }
        }
    }

    /// Moves a note; `prepare` is called before.
    fn move_now<T>(&self, from: &RelPath, to: &RelPath, prepare: impl FnOnce() -> T) -> Result<T, Refusal> {
        let failed = |error| self.failed(from, &error);
        let (folder, name) = from.split();
        let folder = self.root.folder(folder.as_ref()).map_err(failed)?;
        if stat_name(folder.as_fd(), name).map_err(failed)?.is_none() {
            return Err(missing(from));
        }
        // Not under the lock, because it may take long.
        let prepared = prepare();
        // Locked, so that a running append finishes first, and later ones notice that the file is gone.
        let Some(_old) = Locked::to_replace(folder.as_fd(), name).map_err(failed)? else {
            return Err(missing(from));
        };
        let (new_folder, new_name) = to.split();
        let new_folder =
            self.root.make_folder(new_folder.as_ref()).map_err(|error| self.failed(to, &error))?;
        relocate(folder.as_fd(), name, new_folder.dir.as_fd(), new_name).map_err(|error| {
            if is_taken(&error) {
                Refusal::conflict(format!("`{to}` exists already; choose another name, or delete it first"))
            } else {
                not_moved(to, &error)
            }
        })?;
        new_folder.keep();
        Ok(prepared)
    }

    pub(crate) fn delete(&self, request: &VaultPath) -> Result<Deleted, Refusal> {
        let path = admit(&request.path, CHANGE)?;
        self.turns.take(&path, || {
            let failed = |error| self.failed(&path, &error);
            let (folder, name) = path.split();
            let folder = self.root.folder(folder.as_ref()).map_err(failed)?;
            let Some(old) = Locked::to_replace(folder.as_fd(), name).map_err(failed)? else {
                return Err(missing(&path));
            };
            let size = Stamp::of_file(&old.file).map_err(failed)?.size;
            if size > MOST_BYTES {
                return Err(Refusal::forbidden(format!(
                    "`{path}` has {size} bytes, and what is deleted is kept only up to {MOST_BYTES}; a person must delete it"
                ))
                .with(json!({ "size_bytes": size, "limit_bytes": MOST_BYTES })));
            }
            let taken = self.trash.take(&self.root, &path, folder.as_fd(), name);
            taken.map_err(|error| not_moved(&path, &error))?;
            Ok(())
        })?;
        let linked_from = self.find_links(&self.backlinks(&path, None)).1.linked_from;
        Ok(Deleted { deleted_path: path.into(), linked_from: some(linked_from) })
    }

    /// Restores the text before the last overwrite or delete, or moves a note back.
    pub(crate) fn undo(&self, request: &VaultPath) -> Result<Undone, Refusal> {
        let path = admit(&request.path, CHANGE)?;
        self.finish_moves();
        // The origin must be known to take both turns; it is checked again under the locks.
        let moved = match self.last_change(&path)? {
            (folder, entry) if entry.what != What::Text => {
                let trash::Moved { from, changes, .. } = trash::moved(folder.as_fd(), &entry)
                    .map_err(|error| Refusal::system(path.as_str(), &error))?;
                Some((admit(&from, Use::Create)?, changes))
            }
            _ => None,
        };
        let (origin, changes) =
            moved.as_ref().map_or((&path, &[][..]), |(origin, changes)| (origin, changes));
        let links = (!changes.is_empty()).then(|| self.backlinks(&path, Some(origin)));
        let mut relinked = Relinked::default();
        let (trash, entry, undone) = self.turns.take_both(&path, origin, || {
            let (trash, entry) = self.last_change(&path)?;
            let undone = match (&moved, entry.what) {
                (Some(_), What::Move | What::Moving) => {
                    self.move_back(&path, origin)?;
                    if let Some(links) = &links {
                        self.relink_own(links, changes, Way::Undo, &mut relinked);
                    }
                    Undoing::Move
                }
                (None, What::Text) => self.bring_back(&path, trash.as_fd(), &entry)?,
                _ => {
                    return Err(Refusal::conflict(format!(
                        "`{path}` was changed meanwhile; look, and try again"
                    )));
                }
            };
            Ok((trash, entry, undone))
        })?;
        if let Some(links) = &links {
            self.relink_others(links, changes, Way::Undo, &mut relinked);
        }
        // Last, so that an undo that was interrupted can be repeated. Restoring by rename has already removed it.
        trash::remove(trash.as_fd(), &entry);
        Ok(Undone { written_path: origin.as_str().to_owned(), undone, links: relinked.into() })
    }

    /// Moves a note back, unless an undo that was interrupted has done so.
    fn move_back(&self, path: &RelPath, origin: &RelPath) -> Result<(), Refusal> {
        match self.move_now(path, origin, || ()) {
            Err(refusal) if refusal.code == Code::NotFound && self.root.read(origin).is_ok() => Ok(()),
            outcome => outcome,
        }
    }

    fn last_change(&self, path: &RelPath) -> Result<(std::os::fd::OwnedFd, trash::Entry), Refusal> {
        let newest =
            self.trash.newest(&self.root, path).map_err(|error| Refusal::system(".system/trash", &error))?;
        newest.ok_or_else(|| {
            Refusal::not_found(format!(
                "nothing is known of `{path}` that could be undone; of a note that was moved, give the path where it is now"
            ))
        })
    }

    fn bring_back(
        &self,
        path: &RelPath,
        trash: std::os::fd::BorrowedFd<'_>,
        entry: &trash::Entry,
    ) -> Result<Undoing, Refusal> {
        let failed = |error| self.failed(path, &error);
        let (folder, name) = path.split();
        let folder = self.root.make_folder(folder.as_ref()).map_err(failed)?;
        let dir = folder.dir.as_fd();
        let undone = if let Some(now) = Locked::to_replace(dir, name).map_err(failed)? {
            // The current text goes into the trash, so undoing twice restores it.
            let before = trash::content(trash, entry).map_err(failed)?;
            self.replace_old(path, dir, &now, &[&before]).map_err(failed)?;
            Undoing::Overwrite
        } else {
            relocate(trash, &entry.name, dir, name).map_err(|error| not_moved(path, &error))?;
            Undoing::Delete
        };
        folder.keep();
        Ok(undone)
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
    let Found { items, total, suggestions } = search.find(notes, &request, is_gone)?;
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
    Ok(NotesFound { items: items.into_iter().map(hit).collect(), total, suggestions })
}

/// Zero is left out of answers.
fn some(count: usize) -> Option<usize> {
    (count > 0).then_some(count)
}

impl From<Relinked> for LinkCounts {
    fn from(Relinked { changed, left, linked_from }: Relinked) -> Self {
        Self { links_changed: some(changed), links_left: some(left), linked_from: some(linked_from) }
    }
}

fn missing(path: &RelPath) -> Refusal {
    Refusal::not_found(format!("there is no `{path}`"))
}

/// The refusal for a failed rename.
fn not_moved(path: &RelPath, error: &io::Error) -> Refusal {
    if Errno::from_io_error(error) == Some(Errno::XDEV) {
        return Refusal::forbidden(format!(
            "`{path}` is on another disk, and notes are not moved between disks"
        ));
    }
    Refusal::system(path.as_str(), error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::arguments::{Mode, VaultWrite};
    use crate::disk::{Step, fault};
    use crate::limit::HardLimits;
    use crate::root::Root;

    type Change = fn(&Vault) -> Result<(), Refusal>;

    fn path(path: &str) -> VaultPath {
        VaultPath { path: path.into() }
    }

    fn delete(vault: &Vault) -> Result<(), Refusal> {
        vault.delete(&path("sub/a.md")).map(drop)
    }

    fn move_away(vault: &Vault) -> Result<(), Refusal> {
        vault.move_note(&VaultMove { from: "sub/a.md".into(), to: "new/b.md".into() }).map(drop)
    }

    fn overwrite(vault: &Vault) -> Result<(), Refusal> {
        let (path, content) = ("sub/a.md".into(), "new".into());
        vault.write(&VaultWrite { path, content, mode: Mode::Overwrite }).map(drop)
    }

    fn undo(vault: &Vault) -> Result<(), Refusal> {
        vault.undo(&path("sub/a.md")).map(drop)
    }

    fn undo_move(vault: &Vault) -> Result<(), Refusal> {
        vault.undo(&path("new/b.md")).map(drop)
    }

    fn vault() -> (tempfile::TempDir, Vault) {
        let dir = tempfile::TempDir::new().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/a.md"), "old").unwrap();
        let vault = open(dir.path());
        (dir, vault)
    }

    fn open(dir: &Path) -> Vault {
        Vault::new(Root::open(dir).unwrap(), HardLimits::default())
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
    fn a_note_has_its_new_name_on_the_disk_before_the_answer() {
        let (_dir, vault) = vault();
        let moved = [Step::Rename, Step::SyncFolder, Step::SyncFolder];
        let begun = [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder];
        let kept = [Step::Create, Step::SetMode, Step::Copy, Step::Sync, Step::Rename];
        let replaced = [Step::Create, Step::SetMode, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder];
        let steps = |change: Change| fault::steps(|| change(&vault).unwrap());
        assert_eq!(steps(move_away), [&begun[..], &moved, &[Step::Rename]].concat());
        assert_eq!(steps(undo_move), [&moved[..], &[Step::Unlink]].concat());
        assert_eq!(steps(delete), moved);
        assert_eq!(steps(undo), [&moved[..], &[Step::Unlink]].concat());
        assert_eq!(steps(overwrite), [&kept[..], &replaced].concat());
        assert_eq!(steps(undo), [&kept[..], &replaced, &[Step::Unlink]].concat());
    }

    #[test]
    fn a_move_or_delete_or_undo_that_fails_leaves_everything_where_it_was() {
        let rows: [(Option<Change>, Change, bool); 5] = [
            (None, delete, false),
            (None, move_away, false),
            (Some(delete), undo, false),
            (Some(move_away), undo_move, false),
            (Some(overwrite), undo, true),
        ];
        for (before, change, is_overwrite) in rows {
            for step in [Step::Rename, Step::SyncFolder] {
                for errno in [Errno::NOSPC, Errno::IO, Errno::XDEV] {
                    let (dir, vault) = vault();
                    before.map_or(Ok(()), |before| before(&vault)).unwrap();
                    let was = content(dir.path());
                    let refusal = fault::with(step, errno, || change(&vault)).unwrap_err();
                    if is_overwrite && step == Step::SyncFolder {
                        // The new text is in place, and the old one is in the trash.
                        assert_eq!(refusal.details.unwrap()["is_written"], true);
                        assert_eq!(content(dir.path()).len(), 3);
                    } else {
                        let want = if errno == Errno::XDEV && !is_overwrite {
                            Code::Forbidden
                        } else {
                            refusal.code
                        };
                        assert_eq!(refusal.code, want, "{step:?} {errno:?}: {}", refusal.message);
                        assert_eq!(content(dir.path()), was, "{step:?} {errno:?}");
                    }
                    change(&vault).unwrap();
                }
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

    /// Notes that link to each other; the first is moved to another folder.
    fn linked_vault() -> (tempfile::TempDir, Vault) {
        let (dir, vault) = vault();
        fs::write(dir.path().join("sub/a.md"), "[c](c.md) [self](a.md)").unwrap();
        fs::write(dir.path().join("sub/c.md"), "[a](a.md)").unwrap();
        fs::write(dir.path().join("top.md"), "[a](sub/a.md)").unwrap();
        (dir, vault)
    }

    /// The texts of the notes, without the trash.
    fn notes(dir: &Path) -> [Option<String>; 4] {
        ["sub/a.md", "new/b.md", "sub/c.md", "top.md"].map(|note| fs::read_to_string(dir.join(note)).ok())
    }

    #[test]
    fn every_note_has_its_old_links_or_its_new_ones_at_any_moment_of_a_move() {
        let (dir, vault) = linked_vault();
        let before = notes(dir.path());
        move_away(&vault).unwrap();
        let after = notes(dir.path());
        assert_eq!(
            after.each_ref().map(|text| text.as_deref().unwrap_or_default()),
            ["", "[c](../sub/c.md) [self](b.md)", "[a](../new/b.md)", "[a](new/b.md)"]
        );
        undo_move(&vault).unwrap();
        assert_eq!(notes(dir.path()), before);
        // What a process sees that looks at each step, as one would after a crash.
        for (change, is_undo) in [(move_away as Change, false), (undo_move, true)] {
            for step in [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder, Step::Unlink]
            {
                let (dir, vault) = linked_vault();
                if is_undo {
                    move_away(&vault).unwrap();
                }
                let at = dir.path().to_owned();
                let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
                let see = std::rc::Rc::clone(&seen);
                fault::meanwhile(step, move || see.borrow_mut().push(notes(&at)), || change(&vault)).unwrap();
                for state in seen.take() {
                    let moved = [&state[0], &state[1]].map(|text| text.as_deref());
                    let texts = [before[0].as_deref(), after[1].as_deref()];
                    assert!(
                        moved.contains(&None)
                            && moved.iter().any(|text| texts.contains(text) && text.is_some())
                    );
                    for place in [2, 3] {
                        assert!(state[place] == before[place] || state[place] == after[place], "{state:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn links_that_cannot_be_written_are_reported_and_stay_as_they_were() {
        for step in [Step::Write, Step::Sync, Step::Create] {
            let (dir, vault) = linked_vault();
            let before = notes(dir.path());
            let request = VaultMove { from: "sub/a.md".into(), to: "new/b.md".into() };
            let moved = fault::with(step, Errno::NOSPC, || vault.move_note(&request)).unwrap();
            let LinkCounts { links_changed, links_left, linked_from } = moved.links;
            assert_eq!((links_changed, links_left, linked_from), (None, Some(2), Some(2)), "{step:?}");
            let stays = [None, before[0].clone(), before[2].clone(), before[3].clone()];
            assert_eq!(notes(dir.path()), stays, "{step:?}");
            // On a full disk the move could not be recorded either.
            assert_eq!(undo_move(&vault).unwrap_err().code, Code::NotFound);
        }
    }

    const KILLED: &str = "TOOLBRIDGE_DOCS_TEST_KILLED";
    const STEPS: [Step; 7] =
        [Step::Create, Step::SetMode, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder, Step::Unlink];

    /// Not a test by itself: the process that the next one starts. It moves a note and kills itself before a step.
    #[test]
    fn child() {
        let Ok(job) = std::env::var(KILLED) else { return };
        let [step, nth, dir] = job.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{job}") };
        let mut left: usize = nth.parse().unwrap();
        let kill = move || {
            left -= 1;
            if left == 0 {
                let itself = rustix::process::getpid();
                rustix::process::kill_process(itself, rustix::process::Signal::KILL).unwrap();
            }
        };
        let vault = open(Path::new(dir));
        fault::meanwhile(STEPS[step.parse::<usize>().unwrap()], kill, || move_away(&vault)).unwrap();
    }

    #[test]
    fn a_move_that_is_killed_before_any_step_is_finished_by_the_next_start_or_was_not_made() {
        let (dir, vault) = linked_vault();
        let before = notes(dir.path());
        move_away(&vault).unwrap();
        let after = notes(dir.path());
        let mut found = [0, 0];
        for (place, step) in STEPS.into_iter().enumerate() {
            for nth in 1.. {
                let (dir, _) = linked_vault();
                let child = std::process::Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "note::tests::child"])
                    .env(KILLED, format!("{place} {nth} {}", dir.path().display()))
                    .output()
                    .unwrap();
                if child.status.success() {
                    break;
                }
                assert_eq!(
                    std::os::unix::process::ExitStatusExt::signal(&child.status),
                    Some(9),
                    "{child:?}"
                );
                let vault = open(dir.path());
                vault.finish_moves();
                let (now, what) = (notes(dir.path()), format!("{step:?} {nth}"));
                assert!(now == before || now == after, "{what}: {now:?}");
                assert!(vault.trash.unfinished(&vault.root).unwrap_or_default().is_empty(), "{what}");
                found[usize::from(now == after)] += 1;
                if now == before {
                    move_away(&vault).unwrap();
                }
                undo_move(&vault).unwrap();
                assert_eq!(notes(dir.path()), before, "{what}");
            }
        }
        assert!(found[0] > 4 && found[1] > 10, "{found:?}");
    }

    #[test]
    fn only_the_move_of_a_dead_process_is_finished_and_no_link_is_changed_twice() {
        let (dir, vault) = linked_vault();
        let [from, to] = ["sub/a.md", "new/b.md"].map(|path| RelPath::parse(path).unwrap());
        let (changes, _) = vault.find_links(&vault.backlinks(&from, Some(&to)));
        let kept = vault.trash.begin_move(&vault.root, &from, &to, &changes).unwrap();
        let trash = dir.path().join(".system/trash");
        let entry = fs::read_dir(&trash).unwrap().next().unwrap().unwrap().path();
        let recorded = fs::read(&entry).unwrap();
        fs::create_dir(dir.path().join("new")).unwrap();
        fs::rename(dir.path().join("sub/a.md"), dir.path().join("new/b.md")).unwrap();
        open(dir.path()).finish_moves();
        assert_eq!(
            fs::read_to_string(dir.path().join("sub/c.md")).unwrap(),
            "[a](a.md)",
            "its process lives"
        );
        drop(kept);
        // As a killed process leaves it; then somebody has changed the note.
        fs::create_dir_all(&trash).unwrap();
        fs::write(&entry, recorded).unwrap();
        let own = "[c](../sub/c.md) [self](b.md) more";
        fs::write(dir.path().join("new/b.md"), own).unwrap();
        open(dir.path()).finish_moves();
        assert_eq!(
            notes(dir.path()).map(Option::unwrap_or_default),
            ["", own, "[a](../new/b.md)", "[a](new/b.md)"]
        );
    }

    #[test]
    fn an_undo_that_was_interrupted_can_be_repeated() {
        let (dir, vault) = linked_vault();
        let before = notes(dir.path());
        move_away(&vault).unwrap();
        // As after a crash: the note is back, its own links and those of others are not.
        fs::rename(dir.path().join("new/b.md"), dir.path().join("sub/a.md")).unwrap();
        undo_move(&vault).unwrap();
        assert_eq!(notes(dir.path()), before);
        assert_eq!(undo_move(&vault).unwrap_err().code, Code::NotFound);
    }

    /// Some network filesystems have no rename that fails if the name is taken; `link` does.
    #[test]
    fn a_disk_that_cannot_rename_without_replacing_moves_all_the_same() {
        for errno in [Errno::INVAL, Errno::NOSYS] {
            let (dir, vault) = vault();
            fault::with(Step::Rename, errno, || move_away(&vault)).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("new/b.md")).unwrap(), "old");
            assert!(!dir.path().join("sub/a.md").exists());
            fs::write(dir.path().join("sub/a.md"), "other").unwrap();
            let refusal = fault::with(Step::Rename, errno, || move_away(&vault)).unwrap_err();
            assert_eq!(refusal.code, Code::Conflict, "{}", refusal.message);
            assert_eq!(fs::read_to_string(dir.path().join("new/b.md")).unwrap(), "old");
        }
    }
}
