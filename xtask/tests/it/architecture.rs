//! The files that `ARCHITECTURE.md` and `PROTOCOL.md` name exist.

use std::path::Path;

use xtask::project::Project;

/// The files below a folder, relative to the root, as the pages write them: `mcp/front.rs` is
/// `crates/core/src/mcp/front.rs`.
fn files(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            files(root, &path, found);
        } else {
            let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.push(format!("/{}", path.replace("/src/", "/")));
            found.push(format!("/{path}"));
        }
    }
}

/// Everything in backticks that looks like a file of this project.
fn named(page: &str) -> Vec<&str> {
    let words = page.split('`').skip(1).step_by(2).filter(|word| !word.contains([' ', '\n', '…']));
    words.filter(|word| [".rs", ".py", ".pyi", ".js"].iter().any(|end| word.ends_with(end))).collect()
}

#[test]
fn every_file_named_on_the_pages_exists() {
    let root = Project::find().unwrap().root;
    let mut there = Vec::new();
    for folder in ["bench", "crates", "fuzz", "soak", "tests", "xtask"] {
        files(&root, &root.join(folder), &mut there);
    }
    for (page, least) in [("ARCHITECTURE.md", 80), ("PROTOCOL.md", 2)] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let named = named(&text);
        assert!(named.len() >= least, "only {} files are found on {page}", named.len());
        for file in named {
            let end = format!("/{file}");
            assert!(
                there.iter().any(|path| path.ends_with(&end)),
                "{page} names `{file}`, which does not exist"
            );
        }
    }
}
