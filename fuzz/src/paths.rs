//! No path leaves the vault, and each has one normal form.

use std::path::{Component, Path};

use serde_json::json;
use tempfile::TempDir;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::tool::{CallMeta, RawJson, ToolCall};
use toolbridge_core::{CallContext, ToolSource as _};
use toolbridge_docs::Documents;
use toolbridge_docs::fuzzing::{folded, plain_name, relative_path};

use crate::input::{block_on, is_one_of};

const SECRET: &str = "what lies outside";

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let path = relative_path(&text);
    assert_eq!(path.is_some(), is_plain(&text), "`{}`", text.escape_debug());
    if let Some(path) = &path {
        assert!(Path::new(path).components().all(|part| matches!(part, Component::Normal(_))), "`{path}`");
        assert_eq!(Path::new(path).components().count(), path.split('/').count());
        assert_eq!(relative_path(path).as_ref(), Some(path), "a normal form is its own");
    }
    if let Some(name) = plain_name(&text) {
        assert_eq!(path, Some(name.clone()), "a name is a path");
        assert!(!name.contains(['/', '\\', '\0']));
    }
    let search = folded(&text);
    assert_eq!(folded(&search), search, "folding twice is folding once");

    if is_one_of(16, input) {
        in_a_vault(&text, path.as_deref());
    }
}

/// The rules, one by one.
fn is_plain(text: &str) -> bool {
    let ends_in_dot = text.ends_with("/.") || text.ends_with("\\.");
    let names: Vec<_> = text.split(['/', '\\']).filter(|name| *name != ".").collect();
    let is_deceptive = |char: char| {
        char.is_control()
            || ('\u{2028}'..='\u{202e}').contains(&char)
            || ('\u{2066}'..='\u{2069}').contains(&char)
    };
    let is_drive =
        |name: &&str| name.len() == 2 && name.ends_with(':') && name.as_bytes()[0].is_ascii_alphabetic();
    !text.contains(is_deceptive)
        && !ends_in_dot
        && !text.starts_with(['/', '\\'])
        && !names.first().is_some_and(is_drive)
        && !names.is_empty()
        && names.iter().all(|name| {
            !name.is_empty() && !name.starts_with('.') && !name.ends_with(['.', ' ']) && name.len() <= 255
        })
}

/// Reads and creates the path in a vault with symbolic links and other ways out.
fn in_a_vault(text: &str, path: Option<&str>) {
    let workspace = workspace(&[
        ("vault/a.md", "a"),
        ("vault/folder/inner.md", "b"),
        ("vault/.system/secret.md", SECRET),
        ("outside/secret.md", SECRET),
    ]);
    let at = |path: &str| workspace.path().join(path);
    for (link, to) in [("vault/link", "../outside"), ("vault/secret.md", "../outside/secret.md")] {
        std::os::unix::fs::symlink(to, at(link)).expect("a link");
    }
    let documents = open(workspace.path());

    let read = call(&documents, "vault_read", &json!({ "path": text }));
    assert!(!read.contains(SECRET), "`{}` is a way out", text.escape_debug());
    let created = call(&documents, "vault_create", &json!({ "path": text, "content": "new" }));
    assert_eq!(count(&at("outside")), 1, "`{}` wrote outside", text.escape_debug());
    assert_eq!(count(&at("vault/.system")), 1, "`{}` wrote what is reserved", text.escape_debug());
    assert_eq!(std::fs::read_to_string(at("outside/secret.md")).ok().as_deref(), Some(SECRET));
    assert_eq!(count(workspace.path()), 3, "`{}` wrote beside the vault", text.escape_debug());
    if created.contains("written_bytes") {
        let path = path.expect("what was created has a path that can be used");
        assert_eq!(std::fs::read_to_string(at("vault").join(path)).ok().as_deref(), Some("new"));
    }
}

fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("a folder").count()
}

/// Manuals and a vault with these files, in memory if possible: durability on disk is tested elsewhere.
pub(crate) fn workspace(files: &[(&str, &str)]) -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let workspace = tempfile::tempdir_in(place).expect("a temporary directory");
    let folders = files.iter().filter_map(|(path, _)| path.rsplit_once('/')).map(|(folder, _)| folder);
    for folder in folders.chain(["manuals/m", "vault"]) {
        std::fs::create_dir_all(workspace.path().join(folder)).expect("a folder");
    }
    for (path, text) in files {
        std::fs::write(workspace.path().join(path), text).expect("a file");
    }
    workspace
}

/// The document tools for that workspace, without their log.
pub(crate) fn open(workspace: &Path) -> Documents {
    Documents::builder().workspace(workspace).log_to(std::io::sink()).open().expect("a workspace")
}

/// The answer of a tool, of any kind.
pub(crate) fn call(documents: &Documents, name: &str, arguments: &serde_json::Value) -> String {
    let call = ToolCall { name: name.into(), arguments: RawJson::from(arguments), meta: CallMeta::default() };
    let context = CallContext::new(CancellationToken::new());
    let answer = block_on(documents.call(call, context));
    answer.map_or_else(|error| panic!("{name}: {error}"), |answer| answer.to_string())
}
