//! An index gives the same answers whether it is new or was kept up to date through changes.

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
