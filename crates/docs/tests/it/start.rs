//! Settings, their sources, and why the tools fail to start.

use std::collections::HashMap;
use std::error::Error as _;
use std::ffi::OsString;
use std::fs;

use serde_json::json;
use toolbridge_core::ToolSource as _;
use toolbridge_core::tool::Hint as _;
use toolbridge_docs::{DocsError, Documents, DocumentsBuilder};

use crate::support::{Client, Workspace, copy_file, names};

fn from(vars: &[(&str, &str)]) -> Result<DocumentsBuilder, DocsError> {
    let vars: HashMap<String, OsString> =
        vars.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
    DocumentsBuilder::from_vars(|name| vars.get(name).cloned())
}

#[test]
fn the_environment_sets_everything() {
    let workspace = Workspace::with(format!("# A\n{}", "x".repeat(100)));
    let root = workspace.dir.path().to_str().unwrap();
    let builder = from(&[
        ("WORKSPACE_ROOT", root),
        ("ALLOW_FILE_SCOPE", "true"),
        ("HARD_MAX_SECTIONS", "2"),
        ("HARD_MAX_CHARS", "50"),
        ("LOG_LEVEL", "warn"),
    ])
    .unwrap();
    assert_eq!(builder.manuals_path(), workspace.path("manuals"));
    let client = Client::new(builder);
    let answer = client.ok("bridge_copy_file", &copy_file("a.md", "x.md", "overwrite"));
    assert_eq!((&answer["written_bytes"], &answer["truncated"]), (&json!(50), &json!(true)));
    let read = json!({ "ref": crate::support::reference("a.md", 1) });
    assert_eq!(client.ok("manual_read", &read)["applied"]["max_sections"], 2);
    assert_eq!(client.lines().len(), 0, "the level is `warn`");
    let apart = from(&[("MANUALS_ROOT", "/a/m"), ("VAULT_ROOT", "/b/v"), ("WORKSPACE_ROOT", "/c")]).unwrap();
    assert_eq!((apart.manuals_path(), apart.vault_path()), ("/a/m".into(), "/b/v".into()));
}

#[test]
fn what_is_not_set_has_its_default() {
    for vars in [&[][..], &[("WORKSPACE_ROOT", ""), ("ALLOW_FILE_SCOPE", ""), ("LOG_LEVEL", "")]] {
        let builder = from(vars).unwrap();
        assert_eq!((builder.manuals_path(), builder.vault_path()), ("./manuals".into(), "./vault".into()));
        let shown = format!("{builder:?}");
        for want in ["allow_file_scope: false", "max_sections: 20", "max_chars: 20000", "log_level: Info"] {
            assert!(shown.contains(want), "{shown}");
        }
    }
}

#[test]
fn an_invalid_value_is_named() {
    for (name, value, expected) in [
        ("ALLOW_FILE_SCOPE", "maybe", "`true`, `false`, `1` or `0`"),
        ("HARD_MAX_SECTIONS", "0", "a whole number from 1 upwards"),
        ("HARD_MAX_SECTIONS", "-1", "a whole number from 1 upwards"),
        ("HARD_MAX_CHARS", "many", "a whole number from 1 upwards"),
        ("HARD_MAX_CHARS", "1.5", "a whole number from 1 upwards"),
        ("LOG_LEVEL", "loud", "`error`, `warn` or `info`"),
        ("DOCS_DAILY", "/srv/daily", "`off` or a relative path of plain names, such as `journal`"),
    ] {
        let error = from(&[(name, value)]).unwrap_err();
        assert_eq!(error.to_string(), format!("`{name}` is `{value}`, which is not {expected}"));
        assert_eq!(error.hint(), Some("correct the value, or leave it out for the default"));
    }
    let workspace = Workspace::new();
    let error = workspace.builder().hard_max_chars(0).open().unwrap_err();
    assert_eq!(error.to_string(), "`hard_max_chars` is `0`, which is not a whole number from 1 upwards");
}

#[test]
fn a_missing_root_is_an_error_with_a_hint() {
    let dir = tempfile::TempDir::new().unwrap();
    let manuals = dir.path().join("manuals");
    let open = || Documents::builder().manuals(&manuals).vault(dir.path().join("vault")).open();
    let error = open().unwrap_err();
    assert_eq!(error.to_string(), format!("the manuals folder `{}` does not exist", manuals.display()));
    assert!(error.hint().unwrap().contains("--init"));
    let hint = format!("hint: {}", error.hint().unwrap());
    assert_eq!(format!("{error:?}"), format!("{error}\n{hint}"), "what `main` prints");
    assert_eq!(error.source().unwrap().to_string(), hint, "what `anyhow` and `eyre` print");
    fs::create_dir(&manuals).unwrap();
    open().unwrap();
    fs::write(dir.path().join("vault"), "a file").unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, DocsError::OpenRoot { root: "vault", .. }), "{error}");
}

#[test]
fn roots_that_are_not_apart_are_refused() {
    let workspace = Workspace::new();
    fs::create_dir_all(workspace.path("vault/inner")).unwrap();
    for (manuals, vault) in [("vault/inner", "vault"), ("vault", "vault/inner"), ("vault", "vault")] {
        let builder = Documents::builder().manuals(workspace.path(manuals)).vault(workspace.path(vault));
        assert!(
            matches!(builder.open().unwrap_err(), DocsError::OverlappingRoots { .. }),
            "{manuals} {vault}"
        );
    }
}

#[test]
fn the_roots_themselves_may_be_links_resolved_once() {
    let workspace = Workspace::with("# A\n");
    for root in ["manuals", "vault"] {
        std::os::unix::fs::symlink(workspace.path(root), workspace.path(&format!("{root}-link"))).unwrap();
    }
    let links =
        Documents::builder().manuals(workspace.path("manuals-link")).vault(workspace.path("vault-link"));
    let client = Client::new(links);
    // The links may point elsewhere now.
    for root in ["manuals-link", "vault-link"] {
        fs::remove_file(workspace.path(root)).unwrap();
        std::os::unix::fs::symlink("/etc", workspace.path(root)).unwrap();
    }
    client.copy("a.md", 1, "x.md", "overwrite");
    assert_eq!(workspace.text("x.md"), "# A\n");
}

#[test]
fn init_makes_a_workspace_that_works_and_changes_nothing_that_is_there() {
    let dir = tempfile::TempDir::new().unwrap();
    let root = dir.path().join("new/workspace");
    let builder = || Documents::builder().workspace(&root);
    let guide = root.join("manuals/getting-started/guide.md");
    assert_eq!(builder().init().unwrap(), [root.join("manuals"), root.join("vault"), guide]);
    assert_eq!(
        names(&root),
        ["manuals", "manuals/getting-started", "manuals/getting-started/guide.md", "vault"]
    );
    let client = Client::new(builder());
    let found = client.ok("manual_find", &json!({ "query": "copy a section" }));
    assert_eq!(found["items"][0]["title"], "Copy a section");
    fs::write(root.join("manuals/getting-started/guide.md"), "# Mine\n").unwrap();
    assert!(builder().init().unwrap().is_empty());
    assert_eq!(fs::read_to_string(root.join("manuals/getting-started/guide.md")).unwrap(), "# Mine\n");
    fs::rename(root.join("manuals/getting-started"), root.join("manuals/own")).unwrap();
    builder().init().unwrap();
    assert_eq!(names(&root.join("manuals")), ["own", "own/guide.md"]);
    fs::write(dir.path().join("file"), "").unwrap();
    let error = Documents::builder().workspace(dir.path().join("file")).init().unwrap_err();
    assert!(error.to_string().starts_with("cannot create `") && error.hint().is_some(), "{error}");
}

#[test]
fn documents_can_be_shared_and_shown() {
    let documents = Workspace::new().builder().open().unwrap();
    let clone = documents.clone();
    assert_eq!(documents.tools().len(), clone.tools().len());
    assert!(format!("{documents:?}").starts_with("Documents {"));
}

#[test]
fn the_folder_of_daily_notes_is_a_relative_path_of_plain_names() {
    let workspace = Workspace::new();
    for daily in ["", ".", "..", "a/../b", "/daily", "a//b", "C:", ".system", ".notes/daily", "a\n", "a."] {
        let error = workspace.builder().daily(daily).open().unwrap_err();
        assert_eq!(error.hint(), Some("correct the value, or leave it out for the default"));
        let said = error.to_string();
        assert!(said.starts_with("`daily` is `") && said.contains("such as `journal`"), "{daily:?}: {said}");
        assert!(!said.contains('\n'), "{said:?}");
    }
    let root = workspace.dir.path().to_str().unwrap();
    let write = json!({ "path": "daily/x.md", "content": "x" });
    for (daily, is_ok) in [("", false), ("daily", false), ("off", true), ("./off", true), ("journal", true)] {
        let client = Client::new(from(&[("WORKSPACE_ROOT", root), ("DOCS_DAILY", daily)]).unwrap());
        assert_eq!(client.call("vault_create", &write)["isError"], !is_ok, "{daily}");
        _ = fs::remove_file(workspace.path("vault/daily/x.md"));
    }
}
