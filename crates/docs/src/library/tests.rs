//! An index gives the same answers whether it is newly built, loaded from disk, or updated after changes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rustix::io::Errno;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::disk::{Step, tests as fault};
use crate::find::Search;
use crate::limit::HardLimits;
use crate::root::Root;
#[cfg(target_os = "linux")]
use crate::watch;

const QUERIES: [&str; 7] =
    ["red", "red door", "dor green", "再起動", "install windows", "zzzz", "blue getById"];

/// A folder with manuals, and one for their index.
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
        Self {
            manuals: Manuals {
                root: Arc::new(root),
                hard: HardLimits::default(),
                allow_file_scope: true,
                has_top: false,
            },
            dir,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn cache(&self) -> Cache {
        Cache::new(self.path("cache"), &self.path("manuals"), true)
    }

    /// A search that stores its index.
    fn keeping(&self) -> Search {
        Search::new(Some(self.cache()))
    }

    fn answers(&self, search: &Search) -> Vec<Value> {
        self.answers_to(search, &QUERIES)
    }

    fn answers_to(&self, search: &Search, queries: &[&str]) -> Vec<Value> {
        let find = |query: &&str| {
            let request = serde_json::from_value(json!({ "query": query, "full": true })).unwrap();
            serde_json::to_value(search.find(&self.manuals, &request, &|| false).unwrap()).unwrap()
        };
        queries.iter().map(find).collect()
    }

    /// What a newly built index finds.
    fn truth(&self) -> Vec<Value> {
        self.answers(&Search::default())
    }

    /// Waits until later changes are visible in the files' stamps: unsettled files are read again at the next
    /// start.
    fn settle(&self) {
        while !self.manuals.root.walk(None).unwrap().iter().all(|entry| entry.stamp.is_settled()) {
            std::thread::yield_now();
        }
    }

    /// Builds and stores an index; returns its path.
    fn keep(&self) -> PathBuf {
        self.settle();
        let search = self.keeping();
        refresh(&search, &self.manuals);
        merge_now(&search);
        self.index_file()
    }

    #[track_caller]
    fn index_file(&self) -> PathBuf {
        let mut files = files(&self.path("cache"));
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A search that watches for changes even with few files.
fn watching(cache: Option<Cache>) -> Search {
    let search = Search::new(cache);
    lock(&search.0).watched_from = 0;
    search
}

fn refresh(search: &Search, manuals: &Manuals) {
    lock(&search.0).refresh(manuals, &|| false).unwrap();
}

/// Merges on this thread, if there is anything to merge.
fn merge_now(search: &Search) {
    let mut library = lock(&search.0);
    if let Some(plan) = library.plan() {
        let merged = plan.run(&|| false);
        library.take(&plan, merged);
    }
}

/// Whether the whole index was loaded from disk.
fn is_loaded(search: &Search) -> bool {
    let library = lock(&search.0);
    library.is_kept && library.parts.len() == 1
}

#[test]
fn a_kept_index_is_used_at_the_next_start_and_says_the_same() {
    let desk = Desk::new();
    let file = desk.keep();
    for path in [file.clone(), desk.path("cache")] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o77, 0);
    }
    let search = desk.keeping();
    assert_eq!(desk.answers(&search), desk.truth());
    assert!(is_loaded(&search), "the files were read again");
    // A deleted index file stays in use, and is written again at the next start.
    fs::remove_dir_all(desk.path("cache")).unwrap();
    assert_eq!(desk.answers(&search), desk.truth());
    assert_eq!(desk.keep(), file);
}

#[test]
fn what_has_changed_since_the_index_was_kept_is_read() {
    let desk = Desk::new();
    desk.keep();
    fs::write(desk.path("manuals/m/a.md"), "# blue door\n").unwrap();
    fs::remove_file(desk.path("manuals/n/c.json")).unwrap();
    fs::write(desk.path("manuals/n/new.md"), "# red\n").unwrap();
    fs::rename(desk.path("manuals/m/sub"), desk.path("manuals/m/other")).unwrap();
    let search = desk.keeping();
    assert_eq!(desk.answers(&search), desk.truth());
    assert!(!is_loaded(&search));
}

#[test]
fn a_kept_index_with_any_wrong_byte_or_of_any_other_length_changes_no_answer() {
    let desk = Desk::new();
    let file = desk.keep();
    let whole = fs::read(&file).unwrap();
    // Together these queries read every part of the index.
    let queries = ["red dor", "zzzz"];
    let truth = desk.answers_to(&Search::default(), &queries);
    let check = |bytes: &[u8], what: &str| {
        fs::write(&file, bytes).unwrap();
        let search = desk.keeping();
        // Prevent storing the index, so that the file stays unchanged.
        lock(&search.0).is_merging = true;
        assert_eq!(desk.answers_to(&search, &queries), truth, "{what}");
        search
    };
    assert!(is_loaded(&check(&whole, "as it is")));
    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x55;
        check(&bytes, &format!("byte {place}"));
    }
    for length in (0..whole.len()).step_by(7) {
        check(&whole[..length], &format!("{length} bytes"));
    }
    check(&[&whole[..], b"more"].concat(), "longer");
}

#[test]
fn a_kept_index_that_is_cut_while_it_is_used_is_made_anew() {
    let desk = Desk::new();
    let file = desk.keep();
    let search = desk.keeping();
    refresh(&search, &desk.manuals);
    assert!(is_loaded(&search));
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(10).unwrap();
    assert_eq!(desk.answers(&search), desk.truth());
}

#[test]
fn an_index_of_other_manuals_another_version_or_that_others_can_write_to_is_not_used() {
    let desk = Desk::new();
    let file = desk.keep();
    let is_used = || {
        let search = desk.keeping();
        lock(&search.0).is_merging = true;
        assert_eq!(desk.answers(&search), desk.truth());
        is_loaded(&search)
    };
    assert!(is_used());
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        toolbridge_scripted::report_skipped("only root can give files away");
    }
    for path in [&file, &desk.path("cache")] {
        let before = fs::metadata(path).unwrap().permissions();
        for mode in [0o777, 0o720] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(!is_used(), "{} {mode:o}", path.display());
        }
        fs::set_permissions(path, before).unwrap();
        if is_root {
            let user = |id| Some(rustix::fs::Uid::from_raw(id));
            rustix::fs::chown(path, user(12345), None).unwrap();
            assert!(!is_used(), "another user's {}", path.display());
            rustix::fs::chown(path, user(0), None).unwrap();
        }
    }
    assert!(is_used());
    // A file of another user under this name: once by a link, once directly.
    let moved = desk.path("moved");
    fs::rename(&file, &moved).unwrap();
    symlink(&moved, &file).unwrap();
    assert!(!is_used(), "a link");
    fs::remove_file(&file).unwrap();
    let key = |key: &str| {
        let mut other = desk.cache();
        other.key = key.to_owned();
        let search = Search::new(Some(other));
        refresh(&search, &desk.manuals);
        merge_now(&search);
    };
    for foreign in [format!("0.0.0 {}", desk.path("manuals").display()), "/other/manuals".to_owned()] {
        key(&foreign);
        assert_eq!(desk.index_file(), file);
        assert!(!is_used(), "{foreign}");
    }
    fs::rename(&moved, &file).unwrap();
    assert!(is_used());
    fs::rename(desk.path("cache"), &moved).unwrap();
    symlink(&moved, desk.path("cache")).unwrap();
    assert!(!is_used(), "a folder that is a link");
}

#[test]
fn where_no_index_can_be_kept_the_answers_are_the_same() {
    let desk = Desk::new();
    fs::write(desk.path("cache"), "no folder").unwrap();
    let search = desk.keeping();
    refresh(&search, &desk.manuals);
    merge_now(&search);
    assert_eq!(desk.answers(&search), desk.truth());
    assert!(lock(&search.0).cache.is_none(), "it is not tried again and again");
}

#[test]
fn an_index_that_cannot_be_written_leaves_the_one_before() {
    for step in [Step::Create, Step::Write, Step::Sync, Step::Rename] {
        let desk = Desk::new();
        let file = desk.keep();
        let before = fs::read(&file).unwrap();
        fs::write(desk.path("manuals/m/a.md"), "# blue door\n").unwrap();
        let search = desk.keeping();
        refresh(&search, &desk.manuals);
        lock(&search.0).is_kept = false;
        fault::with(step, Errno::NOSPC, || merge_now(&search));
        assert_eq!(fs::read(desk.index_file()).unwrap(), before, "{step:?}");
        assert_eq!(desk.answers(&search), desk.truth(), "{step:?}");
    }
}

#[test]
fn a_part_that_cannot_be_read_again_is_made_in_memory() {
    let desk = Desk::new();
    // Large enough to be written to the disk, and in more than one piece.
    let words: String = (0..150_000).map(|number| format!("w{number:06}x ")).collect();
    fs::write(desk.path("manuals/m/large.md"), words).unwrap();
    let search = desk.keeping();
    let (cache, cuts) = (desk.path("cache"), std::rc::Rc::new(std::cell::Cell::new(0)));
    let cut = std::rc::Rc::clone(&cuts);
    let damage = move || {
        for file in files(&cache) {
            fs::OpenOptions::new().write(true).open(file).unwrap().set_len(0).unwrap();
            cut.set(cut.get() + 1);
        }
    };
    fault::meanwhile(Step::Write, damage, || refresh(&search, &desk.manuals));
    assert!(cuts.get() > 1, "nothing was cut");
    assert!(lock(&search.0).cache.is_none());
    assert_eq!(desk.answers(&search), desk.truth());
    assert_eq!(desk.answers_to(&search, &["w012345x"])[0]["total"], 1);
}

#[test]
fn small_indexes_are_kept_only_where_a_folder_was_named() {
    let desk = Desk::new();
    let usual = Cache::new(desk.path("cache"), &desk.path("manuals"), false);
    let search = Search::new(Some(usual));
    refresh(&search, &desk.manuals);
    merge_now(&search);
    assert!(!desk.path("cache").exists());
}

/// The number of watched folders.
#[cfg(target_os = "linux")]
fn watched(search: &Search) -> Option<usize> {
    match &lock(&search.0).watching {
        Watching::Yes(watch) => Some(watch.folders()),
        Watching::No | Watching::Never => None,
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_watch_tells_of_every_change() {
    let desk = Desk::new();
    let search = watching(None);
    let at = |path: &str| desk.path("manuals").join(path);
    let check = |what: &str| assert_eq!(desk.answers(&search), desk.truth(), "{what}");
    check("at first");
    assert_eq!(watched(&search), Some(4));
    let steps: [(&str, &dyn Fn()); 13] = [
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
        ("a manual moved out", &|| fs::rename(at("n"), desk.path("away")).unwrap()),
        ("and in again", &|| fs::rename(desk.path("away"), at("n")).unwrap()),
    ];
    for (what, step) in steps {
        step();
        check(what);
        assert!(watched(&search).is_some(), "{what}: it is not watched any more");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_does_not_change_is_not_looked_at_where_it_is_watched() {
    let desk = Desk::new();
    let search = watching(None);
    refresh(&search, &desk.manuals);
    let opened = || crate::root::tests::opened();
    let before = opened();
    refresh(&search, &desk.manuals);
    assert_eq!(opened(), before, "folders were opened");
    fs::write(desk.path("manuals/m/a.md"), "# tan\n").unwrap();
    refresh(&search, &desk.manuals);
    assert!(opened() <= before + 3, "one file has changed, and {} were opened", opened() - before);
}

#[cfg(target_os = "linux")]
#[test]
fn more_changes_than_the_system_remembers_are_all_seen() {
    let desk = Desk::new();
    let search = watching(None);
    refresh(&search, &desk.manuals);
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let files = ["m/a.md", "m/x.tmp"].map(|name| fs::File::create(desk.path("manuals").join(name)).unwrap());
    // Alternate between two files: consecutive identical events are merged into one.
    for _ in 0..most.trim().parse::<usize>().unwrap() {
        for file in &files {
            file.set_len(0).unwrap();
        }
    }
    fs::write(desk.path("manuals/m/a.md"), "# red green door\n").unwrap();
    fs::remove_file(desk.path("manuals/n/c.json")).unwrap();
    assert_eq!(desk.answers(&search), desk.truth());
    assert!(watched(&search).is_some(), "it is watched again");
    fs::write(desk.path("manuals/m/a.md"), "# blue door\n").unwrap();
    assert_eq!(desk.answers(&search), desk.truth());
}

#[cfg(target_os = "linux")]
#[test]
fn without_a_watch_every_search_looks_at_all_files() {
    // Too many watches; a filesystem that other systems change too; too many watches later; no inotify at
    // all.
    for (errno, folder) in [(Errno::NOSPC, 1), (Errno::NOTSUP, 1), (Errno::NOSPC, 3), (Errno::MFILE, 0)] {
        let desk = Desk::new();
        let search = watching(None);
        watch::fault::with(folder, errno, || refresh(&search, &desk.manuals));
        assert!(watched(&search).is_none());
        fs::write(desk.path("manuals/m/a.md"), "# blue door\n").unwrap();
        assert_eq!(desk.answers(&search), desk.truth(), "{errno} at folder {folder}");
        assert!(watched(&search).is_none(), "it is tried again and again");
    }
}

/// A change to a tree of files.
#[derive(Debug, Clone)]
enum Change {
    Write(usize, usize),
    Remove(usize),
    Rename(usize, usize),
    RemoveFolder(usize),
    RenameFolder(usize, usize),
    Merge,
    Restart,
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
        2 => Just(Change::Merge),
        1 => Just(Change::Restart),
    ]
}

impl Change {
    /// Changes that are impossible are skipped.
    fn happen(&self, root: &Path) {
        let file = |place: usize| root.join(FOLDERS[place / NAMES.len()]).join(NAMES[place % NAMES.len()]);
        let folder = |place: usize| root.join(FOLDERS[place]);
        match *self {
            Self::Write(place, text) => {
                fs::create_dir_all(file(place).parent().unwrap()).unwrap();
                // The last text stands for invalid UTF-8.
                let bytes = if TEXTS[text] == "\u{1}" { &b"# red\xff\n"[..] } else { TEXTS[text].as_bytes() };
                fs::write(file(place), bytes).unwrap();
            }
            Self::Remove(place) => _ = fs::remove_file(file(place)),
            Self::Rename(from, to) => _ = fs::rename(file(from), file(to)),
            Self::RemoveFolder(place) => _ = fs::remove_dir_all(folder(place)),
            Self::RenameFolder(from, to) => {
                _ = fs::remove_dir_all(folder(to).join("deep"));
                _ = fs::rename(folder(from), folder(to));
            }
            Self::Merge | Self::Restart => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With and without a watch, with and without a stored index, with and without a restart.
    #[test]
    fn after_any_changes_the_answers_are_those_of_a_new_index(changes in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..8)) {
        let desk = Desk::new();
        let mut searches =
            [Search::default(), desk.keeping(), watching(None), watching(Some(desk.cache()))];
        for changes in changes {
            for change in &changes {
                change.happen(&desk.path("manuals"));
                match change {
                    Change::Merge => searches.iter().for_each(merge_now),
                    Change::Restart => {
                        searches[1] = desk.keeping();
                        searches[3] = watching(Some(desk.cache()));
                    }
                    _ => {}
                }
            }
            let truth = desk.truth();
            for (place, search) in searches.iter().enumerate() {
                prop_assert_eq!(&desk.answers(search), &truth, "search {} after {:?}", place, changes);
            }
        }
    }
}
