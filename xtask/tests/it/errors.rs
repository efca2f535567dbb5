//! Every named error of Rust is an exception of the same name in Python.

use std::collections::BTreeSet;
use std::path::Path;

use xtask::project::Project;

/// The names that the function `type_name` in a file gives to errors.
fn names(root: &Path, file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root.join(file)).unwrap();
    let (_, rest) = text.split_once("pub fn type_name(").unwrap();
    let (body, _) = rest.split_once("\n    }\n").unwrap();
    let names = body.split('"').skip(1).step_by(2).map(str::to_owned);
    names.collect()
}

#[test]
fn every_name_of_an_error_is_an_exception_in_python() {
    let root = Project::find().unwrap().root;
    let mut named = names(&root, "crates/claude/src/error.rs");
    named.extend(names(&root, "crates/core/src/ipc/error.rs"));
    assert!(named.len() > 8 && named.contains("IPCMessageSizeError"), "{named:?}");
    let python = std::fs::read_to_string(root.join("crates/python/python/toolbridge/errors.py")).unwrap();
    let package = std::fs::read_to_string(root.join("crates/python/python/toolbridge/__init__.py")).unwrap();
    for name in named {
        assert!(python.contains(&format!("class {name}(")), "there is no exception `{name}`");
        assert!(package.contains(&format!("\n    \"{name}\",")), "`{name}` is not exported");
    }
}
