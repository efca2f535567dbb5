//! The manuals: which files there are, and reading them.

use std::sync::Arc;

use serde_json::json;

use crate::arguments::Limits;
use crate::format::Format;
use crate::limit::{HardLimits, MAX_SOURCE_BYTES};
use crate::path::RelPath;
use crate::reference::{EXAMPLE_REFS, Ref};
use crate::refusal::{Code, Refusal, shown};
use crate::root::{Entry, Root};
use crate::snapshot::{self, Snapshot};

/// The id of the manual of the files at the top, and its folder.
pub(crate) const TOP: &str = ".";

/// All manuals, `<root>/<manual_id>/…`. They are only read.
#[derive(Debug)]
pub(crate) struct Manuals {
    pub(crate) root: Arc<Root>,
    pub(crate) hard: HardLimits,
    pub(crate) allow_file_scope: bool,
    /// Whether files at the top belong to a manual too: in a single folder, or among notes that are searched like
    /// manuals.
    pub(crate) has_top: bool,
}

/// A file of a manual.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Relative to the folder of all manuals.
    pub(crate) path: RelPath,
    pub(crate) format: Format,
    pub(crate) snapshot: Snapshot,
}

impl Manuals {
    /// The folder of a manual; fails if its id is not a name.
    pub(crate) fn manual(&self, manual_id: &str) -> Result<RelPath, Refusal> {
        match manual_id {
            TOP if self.has_top => Ok(RelPath::reserved(TOP)),
            _ => RelPath::parse_name("manual_id", manual_id),
        }
    }

    /// A file by its manual and its path in it, `<manual_id>/<path>`.
    pub(crate) fn file(&self, path: &str) -> Result<RelPath, Refusal> {
        match path.split_once('/') {
            Some((manual_id, path)) => Ok(self.manual(manual_id)?.join(&RelPath::parse(path)?)),
            None => RelPath::parse(path),
        }
    }

    /// The ids of all manuals, sorted.
    pub(crate) fn ids(&self) -> Result<Vec<String>, Refusal> {
        let entries = self.root.list(None).map_err(|error| Refusal::system("manuals", &error))?;
        let has_files = self.has_top && entries.iter().any(|entry| !entry.is_dir);
        let top = has_files.then(|| TOP.to_owned());
        let folders = entries.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.path.into());
        Ok(top.into_iter().chain(folders).collect())
    }

    /// Whether a whole `.md` may be read or copied.
    pub(crate) fn admit_file(&self, limits: Option<Limits>) -> Result<(), Refusal> {
        let asked = limits.and_then(|limits| limits.allow_file) == Some(true);
        if self.allow_file_scope && asked {
            return Ok(());
        }
        let missing = match (self.allow_file_scope, asked) {
            (false, _) => "the server does not allow it (`ALLOW_FILE_SCOPE=true` would)",
            (true, _) => "the call must have `\"limits\":{\"allow_file\":true}`",
        };
        Err(Refusal::forbidden(format!(
            "a whole `.md` file is not read or copied: {missing}; take a section instead"
        ))
        .with(json!({ "ALLOW_FILE_SCOPE": self.allow_file_scope, "allow_file": asked })))
    }

    /// Reads the file of a reference.
    pub(crate) fn read_ref(&self, reference: &Ref) -> Result<Reading, Refusal> {
        if reference.manual_id == TOP && !self.has_top {
            let path = shown(&reference.path);
            return Err(Refusal::parameter(format!(
                "`{path}` names no file of a manual; give a reference such as {EXAMPLE_REFS}"
            )));
        }
        let reading =
            self.read(&self.manual(&reference.manual_id)?.join(&RelPath::parse(&reference.path)?))?;
        match &reference.json_path {
            None => Ok(reading),
            Some(_) if reading.format.is_json() => {
                Err(Refusal::parameter("`json_path` must be null: a `.json` file is taken as a whole"))
            }
            Some(_) => Err(Refusal::new(
                Code::InvalidScope,
                "a `.md` file has sections and no `json_path`; leave it out, and give `start_line`",
            )),
        }
    }

    /// Reads a file of a manual: it must be regular, of a known kind and not too large.
    pub(crate) fn read(&self, path: &RelPath) -> Result<Reading, Refusal> {
        #[cfg(test)]
        tests::fault(path)?;
        let format = Format::of(path).ok_or_else(|| Format::unknown(path))?;
        let snapshot = snapshot::read(path.as_str(), || self.root.read(path))?;
        Ok(Reading { path: path.clone(), format, snapshot })
    }

    /// All files below a folder, or of all manuals, sorted.
    pub(crate) fn walk(&self, folder: Option<&RelPath>) -> Result<Vec<Entry>, Refusal> {
        let failed = |error| Refusal::system(folder.map_or("manuals", RelPath::as_str), &error);
        if folder.is_some_and(|folder| folder.as_str() == TOP) {
            let mut files = self.root.list(folder).map_err(failed)?;
            files.retain(|entry| !entry.is_dir);
            return Ok(files);
        }
        let mut files = self.root.walk(folder).map_err(failed)?;
        if folder.is_none() && self.has_top {
            for entry in files.iter_mut().filter(|entry| entry.path.below_first().is_empty()) {
                entry.path = RelPath::reserved(TOP).join(&entry.path);
            }
            // Files at the top were among the folders.
            files.sort_by(|one, other| one.path.cmp(&other.path));
        }
        // A file outside of all manuals has no reference.
        files.retain(|entry| !entry.path.below_first().is_empty());
        Ok(files)
    }

    /// The files below a folder that can be read, sorted.
    pub(crate) fn files(&self, folder: Option<&RelPath>) -> Result<Vec<(Entry, Format)>, Refusal> {
        let readable = |entry: Entry| Some((Format::of(&entry.path)?, entry));
        let files = self.walk(folder)?.into_iter().filter(|entry| entry.stamp.size <= MAX_SOURCE_BYTES);
        Ok(files.filter_map(readable).map(|(format, entry)| (entry, format)).collect())
    }

    /// The folder of a manual; fails if there is none.
    pub(crate) fn check_manual(&self, manual_id: &str) -> Result<RelPath, Refusal> {
        let manual = self.manual(manual_id)?;
        match self.root.folder(Some(&manual)) {
            Ok(_) => Ok(manual),
            Err(error) => Err(Refusal::system(manual_id, &error)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    thread_local! {
        static FAULT: Cell<Option<rustix::io::Errno>> = const { Cell::new(None) };
    }

    /// One manual, `m`, with one file, `a.md`.
    pub(crate) fn manual(bytes: &[u8]) -> (TempDir, Manuals) {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("m")).unwrap();
        fs::write(dir.path().join("m/a.md"), bytes).unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let manuals = Manuals { root, hard: HardLimits::default(), allow_file_scope: true, has_top: false };
        (dir, manuals)
    }

    /// Waits until a later change of the file would be visible in its stamp.
    pub(crate) fn settle(manuals: &Manuals) {
        let path = RelPath::parse("m/a.md").unwrap();
        while !manuals.root.read(&path).unwrap().1.is_settled() {
            std::thread::yield_now();
        }
    }

    /// Runs `work` while no file can be opened.
    pub(crate) fn without_files<T>(errno: rustix::io::Errno, work: impl FnOnce() -> T) -> T {
        FAULT.set(Some(errno));
        let outcome = work();
        FAULT.set(None);
        outcome
    }

    pub(super) fn fault(path: &RelPath) -> Result<(), Refusal> {
        match FAULT.get() {
            Some(errno) => Err(Refusal::system(path.as_str(), &errno.into())),
            None => Ok(()),
        }
    }

    /// Reads `a.md` while `change` runs, `times` times.
    fn read_while(times: usize, settled: bool, change: impl Fn(&std::path::Path) + 'static) -> String {
        let (dir, manuals) = manual(b"# old\n");
        let path = dir.path().join("m/a.md");
        if settled {
            settle(&manuals);
        }
        let mut left = times;
        snapshot::tests::set_meanwhile(Some(Box::new(move || {
            if left > 0 {
                left -= 1;
                change(&path);
            }
        })));
        let outcome = manuals.read(&RelPath::parse("m/a.md").unwrap());
        snapshot::tests::set_meanwhile(None);
        let refused = |refusal: Refusal| format!("{:?}: {}", refusal.code, refusal.message);
        outcome.map_or_else(refused, |reading| reading.snapshot.text)
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again_as_a_whole() {
        let rewrite = |path: &std::path::Path| fs::write(path, "# new\n").unwrap();
        let replace = |path: &std::path::Path| {
            fs::write(path.with_extension("tmp"), "# new\n").unwrap();
            fs::rename(path.with_extension("tmp"), path).unwrap();
        };
        for settled in [true, false] {
            assert_eq!(read_while(1, settled, rewrite), "# new\n", "settled: {settled}");
        }
        // A replaced file is no conflict: the one that was opened is still complete.
        let text = read_while(1, true, replace);
        assert!(text == "# old\n" || text == "# new\n", "{text}");
    }

    #[test]
    fn a_file_that_always_changes_is_refused() {
        let grow = |path: &std::path::Path| {
            let text = fs::read_to_string(path).unwrap();
            fs::write(path, text + "more\n").unwrap();
        };
        let text = read_while(usize::MAX, false, grow);
        assert_eq!(text, "IoError: `m/a.md` changes while it is read; try again");
    }
}
