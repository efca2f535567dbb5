//! Keeps an index up to date with the files on disk.

use std::num::NonZero;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::{Draft, File, Index};
use crate::manual::Manuals;
use crate::refusal::Refusal;
use crate::root::Entry;

/// Up to this many files are read by one thread.
const FILES_FOR_ONE: usize = 64;
const MOST_THREADS: usize = 4;
/// How many files a thread takes at a time.
const CHUNK: usize = 32;
/// How much text a thread reads before it adds that to the index.
const DRAFT_BYTES: usize = 8 * 1024 * 1024;
/// The size of the files from which on somebody may wonder about the time and the memory that they take.
const LARGE_BYTES: u64 = 100 * 1000 * 1000;

impl Index {
    /// Looks at all files, reads those that are new or have changed, and forgets those that are gone. What was read so far
    /// is kept if the call is cancelled.
    pub(crate) fn refresh(&mut self, manuals: &Manuals, is_gone: &dyn Fn() -> bool) -> Result<(), Refusal> {
        let (stale, gone) = self.look(manuals)?;
        if stale.is_empty() && gone.is_empty() {
            return Ok(());
        }
        self.bury(gone);
        // What is dead takes memory and time.
        if self.docs.len() > 2 * self.live_docs || self.files.len() > 2 * self.order.len() {
            *self = Self::default();
            return self.refresh(manuals, is_gone);
        }
        let known = self.files.len();
        let is_whole = self.read(manuals, stale, is_gone);
        self.arrange(known);
        if is_whole { Ok(()) } else { Err(Refusal::conflict("the call was cancelled; search again")) }
    }

    /// The files on disk that must be read, and the indexed ones that have changed or are gone.
    fn look(&self, manuals: &Manuals) -> Result<(Vec<Entry>, Vec<u32>), Refusal> {
        let (mut stale, mut gone) = (Vec::new(), Vec::new());
        // Both are sorted by path.
        let mut known = self.order.iter().copied().peekable();
        let path = |file: u32| &self.files[file as usize].path;
        for (entry, _) in manuals.files(None)? {
            while let Some(file) = known.next_if(|file| path(*file) < &entry.path) {
                gone.push(file);
            }
            if let Some(file) = known.next_if(|file| path(*file) == &entry.path) {
                let File { is_settled, mark, .. } = self.files[file as usize];
                if is_settled && mark == entry.stamp.numbers() {
                    continue;
                }
                gone.push(file);
            }
            stale.push(entry);
        }
        gone.extend(known);
        Ok((stale, gone))
    }

    /// Reads files with several threads; returns whether all of them were read.
    fn read(&mut self, manuals: &Manuals, stale: Vec<Entry>, is_gone: &dyn Fn() -> bool) -> bool {
        // Cached, because determining it reads several system files.
        static THREADS: LazyLock<usize> =
            LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS));

        let bytes: u64 = stale.iter().map(|entry| entry.stamp.size).sum();
        if bytes >= LARGE_BYTES {
            tracing::warn!(
                files = stale.len(),
                megabytes = bytes / 1_000_000,
                "many files are read, and searches wait for that; an index of about 30 % of their size stays in memory"
            );
        }
        let threads = if stale.len() <= FILES_FOR_ONE { 1 } else { *THREADS };
        let is_stopped = AtomicBool::new(false);
        let next = Mutex::new(stale.into_iter());
        let take = || -> Vec<Entry> { locked(&next).by_ref().take(CHUNK).collect() };
        let whole = Mutex::new(&mut *self);
        let add = |draft: Draft| locked(&whole).add(draft);
        let work = |is_gone: &dyn Fn() -> bool| {
            let mut draft = Draft::default();
            let mut chunk = take();
            while !chunk.is_empty() {
                for entry in chunk {
                    if is_stopped.load(Relaxed) || is_gone() {
                        is_stopped.store(true, Relaxed);
                        return add(draft);
                    }
                    draft.read(manuals, entry);
                    if draft.bytes > DRAFT_BYTES {
                        add(std::mem::take(&mut draft));
                    }
                }
                chunk = take();
            }
            add(draft);
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| work(&|| false));
            }
            work(is_gone);
        });
        if threads > 1 {
            self.shrink();
        }
        !is_stopped.into_inner()
    }
}

impl Draft {
    /// A file that is not text has no sections until it changes. One that cannot be read now is tried again at the next
    /// search.
    fn read(&mut self, manuals: &Manuals, entry: Entry) {
        // Before it is read: a change from then on must be noticed.
        let is_settled = entry.stamp.is_settled();
        match manuals.read(&entry.path) {
            Ok(reading) => self.add(entry.path, &reading),
            Err(refusal) => {
                tracing::debug!(path = entry.path.as_str(), reason = refusal.message, "file left out");
                if refusal.is_lasting {
                    self.end_file(entry.path, entry.stamp.numbers(), is_settled, "");
                }
            }
        }
    }
}

/// A panic of another thread is reported when all have ended.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An index gives the same answers whether it is new or was kept up to date through changes.
#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use crate::find::Search;
    use crate::limit::HardLimits;
    use crate::manual::Manuals;
    use crate::root::Root;

    const QUERIES: [&str; 7] =
        ["red", "red door", "dor green", "再起動", "install windows", "zzzz", "blue getById"];

    /// A folder with manuals.
    struct Desk {
        dir: TempDir,
        manuals: Manuals,
    }

    impl Desk {
        fn new() -> Self {
            let dir = TempDir::new().unwrap();
            for (path, text) in [
                ("manuals/m/a.md", "# red door\n\nOpen it.\n\n## Install\n\nOn windows.\n"),
                ("manuals/m/sub/b.md", "---\ntitle: Green\n---\n\n# door\n\nサーバを再起動する。\n"),
                ("manuals/n/c.json", "{\"blue\": \"getById\"}"),
            ] {
                let path = dir.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let root = Root::open(&dir.path().join("manuals")).unwrap();
            let (root, hard) = (Arc::new(root), HardLimits::default());
            Self { manuals: Manuals { root, hard, allow_file_scope: true, has_top: false }, dir }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.dir.path().join(path)
        }

        fn answers(&self, search: &Search) -> Vec<Value> {
            let find = |query: &&str| {
                let request = serde_json::from_value(json!({ "query": query, "full": true })).unwrap();
                serde_json::to_value(search.find(&self.manuals, &request, &|| false).unwrap()).unwrap()
            };
            QUERIES.iter().map(find).collect()
        }

        /// What a newly built index finds.
        fn truth(&self) -> Vec<Value> {
            self.answers(&Search::default())
        }
    }

    #[test]
    fn every_kind_of_change_is_seen() {
        let desk = Desk::new();
        let search = Search::default();
        let at = |path: &str| desk.path("manuals").join(path);
        let check = |what: &str| assert_eq!(desk.answers(&search), desk.truth(), "{what}");
        check("at first");
        let steps: [(&str, &dyn Fn()); 14] = [
            ("a new file", &|| fs::write(at("m/d.md"), "# red\n").unwrap()),
            ("written to in the same moment", &|| fs::write(at("m/d.md"), "# tan\n").unwrap()),
            ("another name", &|| fs::rename(at("m/d.md"), at("m/e.md")).unwrap()),
            ("no text any more", &|| fs::rename(at("m/e.md"), at("m/e.txt.bin")).unwrap()),
            ("gone", &|| fs::remove_file(at("m/a.md")).unwrap()),
            ("a new folder with files", &|| {
                fs::create_dir_all(at("m/x/y/z")).unwrap();
                fs::write(at("m/x/y/z/f.md"), "# red door\n").unwrap();
            }),
            ("a file in it", &|| fs::write(at("m/x/y/g.md"), "# green door\n").unwrap()),
            ("a folder moved", &|| fs::rename(at("m/x"), at("n/x2")).unwrap()),
            ("a file in what was moved", &|| fs::write(at("n/x2/y/z/f.md"), "# blue\n").unwrap()),
            ("a link", &|| symlink(at("n/c.json"), at("n/link.json")).unwrap()),
            ("a file where a folder was", &|| {
                fs::remove_dir_all(at("n/x2")).unwrap();
                fs::write(at("n/x2"), "# red\n").unwrap();
                fs::write(at("n/x2.md"), "# red\n").unwrap();
            }),
            ("a name that sorts beside a folder", &|| fs::write(at("m/sub-1.md"), "# green door\n").unwrap()),
            ("a manual moved out", &|| fs::rename(at("n"), desk.path("away")).unwrap()),
            ("and in again", &|| fs::rename(desk.path("away"), at("n")).unwrap()),
        ];
        for (what, step) in steps {
            step();
            check(what);
        }
    }

    #[test]
    fn an_index_built_by_several_threads_is_that_of_one() {
        let desk = Desk::new();
        let one = Search::default();
        for file in 0..1000 {
            let text = format!("# red {file}\n\ndoor w{}x\n\n## Install\n\nwindows\n", file % 7);
            fs::write(desk.path(&format!("manuals/m/f{file:04}.md")), text).unwrap();
            // A few at a time, which one thread reads.
            if file % 50 == 0 {
                desk.answers(&one);
            }
        }
        assert_eq!(desk.answers(&one), desk.truth());
    }

    /// A change to a tree of files.
    #[derive(Debug, Clone)]
    enum Change {
        Write(usize, usize),
        Remove(usize),
        Rename(usize, usize),
        RemoveFolder(usize),
        RenameFolder(usize, usize),
        Forbid(usize),
    }

    const FOLDERS: [&str; 5] = ["m", "m/sub", "m/sub/deep", "n", "o"];
    const NAMES: [&str; 4] = ["a.md", "b.md", "c.json", "z.markdown"];
    const TEXTS: [&str; 6] = [
        "# red door\n\nOpen it.\n",
        "# tan door\n\nOpen it.\n",
        "red\n\n# blue\n\n## green door\n\nInstall on windows.\n",
        "---\ntitle: Red\n---\n\n# サーバの再起動\n\ngetById\n",
        "",
        "\u{1}",
    ];

    fn change() -> impl Strategy<Value = Change> {
        let file = || 0..FOLDERS.len() * NAMES.len();
        let folder = || 0..FOLDERS.len();
        prop_oneof![
            8 => (file(), 0..TEXTS.len()).prop_map(|(file, text)| Change::Write(file, text)),
            3 => file().prop_map(Change::Remove),
            3 => (file(), file()).prop_map(|(from, to)| Change::Rename(from, to)),
            1 => folder().prop_map(Change::RemoveFolder),
            2 => (folder(), folder()).prop_map(|(from, to)| Change::RenameFolder(from, to)),
            1 => file().prop_map(Change::Forbid),
        ]
    }

    impl Change {
        /// Changes that are impossible are skipped.
        fn happen(&self, root: &Path) {
            let file =
                |place: usize| root.join(FOLDERS[place / NAMES.len()]).join(NAMES[place % NAMES.len()]);
            let folder = |place: usize| root.join(FOLDERS[place]);
            match *self {
                Self::Write(place, text) => {
                    fs::create_dir_all(file(place).parent().unwrap()).unwrap();
                    // The last text stands for invalid UTF-8.
                    let bytes =
                        if TEXTS[text] == "\u{1}" { &b"# red\xff\n"[..] } else { TEXTS[text].as_bytes() };
                    fs::write(file(place), bytes).unwrap();
                }
                Self::Remove(place) => _ = fs::remove_file(file(place)),
                Self::Rename(from, to) => _ = fs::rename(file(from), file(to)),
                Self::RemoveFolder(place) => _ = fs::remove_dir_all(folder(place)),
                Self::RenameFolder(from, to) => {
                    _ = fs::remove_dir_all(folder(to).join("deep"));
                    _ = fs::rename(folder(from), folder(to));
                }
                Self::Forbid(place) => {
                    _ = fs::set_permissions(file(place), fs::Permissions::from_mode(0o0));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn after_any_changes_the_answers_are_those_of_a_new_index(
            changes in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..12),
        ) {
            let desk = Desk::new();
            let search = Search::default();
            for changes in changes {
                for change in &changes {
                    change.happen(&desk.path("manuals"));
                }
                prop_assert_eq!(desk.answers(&search), desk.truth(), "after {:?}", changes);
            }
        }
    }
}
