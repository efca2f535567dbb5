//! What `ARCHITECTURE.md` says of files and layers is true.

use std::collections::HashMap;
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

/// The folders of `crates/core/src`, as on the page.
const LAYERS: [&str; 10] =
    ["tool", "call", "source", "toolset", "park", "ipc", "mcp", "http", "process", "client"];

/// The code of a file, without comments and unit tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The first segments of a `use` tree: those of `{a::B, C as D}` are `a` and `C`.
fn heads(tree: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect()
    };
    let Some(inside) = tree.strip_prefix('{') else { return vec![word(tree)] };
    let (mut found, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, char) in inside.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(word(&inside[begin..at]));
                begin = at + 1;
                if char == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// What each name at the root of `crates/core` stands for: the folder that it is exported from.
fn exports(lib: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for line in lib.split(';').filter_map(|item| item.split(" use ").nth(1)) {
        let Some((path, names)) = line.split_once("::{").or_else(|| line.rsplit_once("::")) else { continue };
        let folder = path.split("::").next().unwrap();
        let names = names.split(|char: char| !char.is_alphanumeric() && char != '_');
        found.extend(names.map(|name| (name.to_owned(), folder.to_owned())));
    }
    found
}

#[test]
fn each_layer_of_core_uses_only_those_above_it() {
    let src = Project::find().unwrap().root.join("crates/core/src");
    let exports = exports(&code(&src.join("lib.rs")));
    assert_eq!(exports["ToolSource"], "source");
    let mut paths = Vec::new();
    files(&src, &src, &mut paths);
    let place = |folder: &str| LAYERS.iter().position(|layer| *layer == folder);
    let mut count = 0;
    for path in paths.iter().filter(|path| {
        path.rsplit_once('.').is_some_and(|(_, kind)| kind == "rs") && path.matches('/').count() > 1
    }) {
        let folder = path[1..].split('/').next().unwrap();
        let own = place(folder).unwrap_or_else(|| panic!("`{folder}` is no layer of `core`"));
        for tree in code(&src.join(&path[1..])).split("crate::").skip(1) {
            for head in heads(tree) {
                let used = exports.get(&head).map_or(head.as_str(), String::as_str);
                count += 1;
                assert!(
                    place(used).is_none_or(|used| used <= own),
                    "{path} is in the layer `{folder}` and uses `{head}` of `{used}`, which is below it"
                );
            }
        }
    }
    assert!(count > 100, "only {count} uses are found");
}
