//! Operations on whole notes: find, outline, undo.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::{Client, Workspace, copy, copy_file};

fn path(path: &str) -> Value {
    json!({ "path": path })
}

#[test]
fn the_vault_is_searched_as_manuals_are() {
    let workspace = Workspace::with("# Manual about keys\n");
    workspace.note("top.md", "# Spare keys\n\nAsk at the desk.\n");
    workspace.note("deep/er/x.md", "# Doors\n\n## Lock\n\nTurn the key.\n");
    workspace.note(".system/hidden.md", "# keys\n");
    let client = workspace.open();
    let found = client.ok("vault_find", &json!({ "query": "key" }));
    assert_eq!(found["total"], 2);
    let found_more = client.ok("vault_find", &json!({ "query": "tag:lock key" }));
    assert_eq!((&found_more["total"], found_more["items"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!(
        found["items"],
        json!([
            { "path": "top.md", "line": 1, "title": "Spare keys", "snippet": "Ask at t…" },
            { "path": "deep/er/x.md", "line": 3, "title": "Lock", "in": "Doors", "snippet": "…e key." },
        ])
    );
    // Overwritten text is not found, although it is in the trash.
    for note in ["top.md", "deep/er/x.md"] {
        client.ok("vault_write", &json!({ "path": note, "content": "# Gate\n", "mode": "overwrite" }));
    }
    assert_eq!(client.ok("vault_find", &json!({ "query": "key" }))["total"], 0);
    assert_eq!(client.ok("vault_find", &json!({ "query": "gate", "limit": 1 }))["items"][0]["line"], 1);
    assert_eq!(client.ok("manual_find", &json!({ "query": "gate" }))["total"], 0);
    for query in [json!({}), json!({ "query": "" }), json!({ "query": "x", "limit": 0 })] {
        assert_eq!(client.code("vault_find", &query), "invalid_parameter", "{query}");
    }
}

#[test]
fn a_note_has_an_outline() {
    let workspace = Workspace::new();
    workspace.note("a.md", "before\n\n# A\n\n```\n# no\n```\n\n## B\n");
    workspace.note("many.md", "# x\n".repeat(1001));
    let client = workspace.open();
    let outline = |path: &str| json!({ "path": path, "outline": true });
    assert_eq!(
        client.ok("vault_read", &outline("a.md")),
        json!({ "sections": ["#L1 0 a.md", "#L3 1 A", "#L9 2 B"], "truncated": false })
    );
    let many = client.ok("vault_read", &outline("many.md"));
    assert_eq!((many["sections"].as_array().unwrap().len(), &many["truncated"]), (1000, &json!(true)));
    assert_eq!(client.code("vault_read", &outline("none.md")), "not_found");
    assert_eq!(client.code("vault_read", &outline(".system/a.md")), "forbidden");
    for more in [json!({ "full": true }), json!({ "range": { "start_line": 1 } })] {
        let mut both = outline("a.md");
        both.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(client.code("vault_read", &both), "invalid_parameter", "{more}");
    }
}

#[test]
fn every_overwrite_can_be_undone_and_redone() {
    let workspace = Workspace::with("# A\nmanual\n");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    for (tool, arguments) in [
        ("vault_write", json!({ "path": "x.md", "content": "new", "mode": "overwrite" })),
        ("vault_replace", json!({ "path": "x.md", "find": "old", "replace": "new" })),
        ("bridge_copy_section", copy("a.md", 1, "x.md", "overwrite")),
        ("bridge_copy_file", copy_file("a.md", "x.md", "overwrite")),
    ] {
        let old = "\u{feff}# Old\nold\n";
        workspace.note("x.md", old);
        client.ok(tool, &arguments);
        let new = workspace.text("x.md");
        assert_ne!(new, old, "{tool}");
        for want in [old, &new, old] {
            assert_eq!(client.ok("vault_undo", &path("x.md")), json!({ "written_path": "x.md" }));
            assert_eq!(workspace.text("x.md"), want, "{tool}");
        }
    }
    // A created note has no earlier state; an append is not an overwrite.
    client.ok("vault_create", &json!({ "path": "new.md", "content": "a" }));
    client.ok("vault_write", &json!({ "path": "new.md", "content": "b", "mode": "append" }));
    client.copy("a.md", 1, "other.md", "overwrite");
    for file in ["new.md", "other.md"] {
        assert_eq!(client.code("vault_undo", &path(file)), "not_found", "{file}");
    }
}

/// A person or another program may remove a note.
#[test]
fn what_was_overwritten_is_brought_back_also_if_the_note_is_gone() {
    let workspace = Workspace::new();
    workspace.note("sub/a.md", b"not \xff text");
    workspace.open().ok("vault_write", &json!({ "path": "sub/a.md", "content": "new", "mode": "overwrite" }));
    assert!(workspace.trash()[0].ends_with("-sub%2Fa.md"), "{:?}", workspace.trash());
    fs::remove_dir_all(workspace.path("vault/sub")).unwrap();
    let client = workspace.open();
    assert_eq!(client.ok("vault_undo", &path("sub/a.md")), json!({ "written_path": "sub/a.md" }));
    assert_eq!(workspace.read("sub/a.md"), b"not \xff text");
    assert_eq!(workspace.trash(), Vec::<String>::new());
    assert_eq!(client.code("vault_undo", &path("sub/a.md")), "not_found");
}

#[test]
fn notes_of_a_day_and_what_is_reserved_are_not_undone() {
    let workspace = Workspace::new();
    workspace.note("daily/2025-01-31.md", "morning");
    workspace.note(".system/a.md", "x");
    let client = workspace.open();
    for file in ["daily/2025-01-31.md", ".system/a.md", ".System/a.md", ".system/trash/x"] {
        assert_eq!(client.code("vault_undo", &path(file)), "forbidden", "{file}");
    }
}

/// At most 100 entries and 64 MiB in total; the oldest are removed first.
#[test]
fn the_trash_is_bounded() {
    let workspace = Workspace::new();
    let client = workspace.open();
    let overwrite = |name: &str| {
        client.ok("vault_write", &json!({ "path": name, "content": "new", "mode": "overwrite" }));
    };
    for number in 0..103 {
        workspace.note(&format!("{number}.md"), "x");
        overwrite(&format!("{number}.md"));
    }
    assert_eq!(workspace.trash().len(), 100);
    assert_eq!(client.code("vault_undo", &path("2.md")), "not_found");
    client.ok("vault_undo", &path("3.md"));
    // Frequent overwrites of one note do not push out the others.
    workspace.note("often.md", "x");
    for number in 0..20 {
        client.ok(
            "vault_write",
            &json!({ "path": "often.md", "content": format!("{number}"), "mode": "overwrite" }),
        );
    }
    assert_eq!(workspace.trash().iter().filter(|name| name.ends_with("-often.md")).count(), 10);
    client.ok("vault_undo", &path("20.md"));
    // Sparse files, which use no disk space.
    let size = |name: &str, bytes: u64| {
        fs::File::create(workspace.path("vault").join(name)).unwrap().set_len(bytes).unwrap();
    };
    size("half.md", 33 << 20);
    size("other.md", 33 << 20);
    overwrite("half.md");
    assert_eq!(workspace.trash().len(), 100);
    overwrite("other.md");
    assert_eq!(workspace.trash().len(), 1);
    client.ok("vault_undo", &path("other.md"));
    // A note that is too large for the trash can still be overwritten, and no older text is restored instead.
    workspace.note("a.md", "first");
    client.ok("vault_write", &json!({ "path": "a.md", "content": "second", "mode": "overwrite" }));
    size("a.md", (64 << 20) + 1);
    client.ok("vault_write", &json!({ "path": "a.md", "content": "third", "mode": "overwrite" }));
    assert_eq!(client.code("vault_undo", &path("a.md")), "not_found");
}

#[test]
fn a_trash_that_is_a_link_or_no_folder_is_not_used() {
    for make in [(|at| symlink("../outside", at).unwrap()) as fn(&std::path::Path), |at| {
        fs::write(at, "file").unwrap();
    }] {
        let workspace = Workspace::new();
        fs::create_dir_all(workspace.path("outside/trash")).unwrap();
        make(&workspace.path("vault/.system"));
        workspace.note("a.md", "old");
        let client = workspace.open();
        // Writing works without the trash.
        client.ok("vault_write", &json!({ "path": "a.md", "content": "new", "mode": "overwrite" }));
        client.refused("vault_undo", &path("a.md"));
        assert_eq!(workspace.text("a.md"), "new");
        assert_eq!(crate::support::names(&workspace.path("outside")), ["trash"]);
    }
}

/// Links that other programs put into the trash are not restored as notes.
#[test]
fn what_others_put_into_the_trash_is_not_followed() {
    let workspace = Workspace::new();
    let client = workspace.open();
    let overwrite = |name: &str| {
        workspace.note(name, "old");
        client.ok("vault_write", &json!({ "path": name, "content": "new", "mode": "overwrite" }));
    };
    overwrite("a.md");
    let trash = workspace.path("vault/.system/trash");
    let entry = trash.join(&workspace.trash()[0]);
    fs::write(workspace.path("secret.md"), "swordfish").unwrap();
    fs::remove_file(&entry).unwrap();
    symlink(workspace.path("secret.md"), &entry).unwrap();
    fs::create_dir(trash.join("000009-t0000000000000000-x")).unwrap();
    fs::write(trash.join("notes.txt"), "mine").unwrap();
    assert_eq!(client.code("vault_undo", &path("a.md")), "not_found");
    overwrite("b.md");
    client.ok("vault_undo", &path("b.md"));
    assert_eq!((workspace.text("a.md"), workspace.text("b.md")), ("new".into(), "old".into()));
    assert_eq!(workspace.vault(), ["a.md", "b.md"]);
    assert_eq!(fs::read_to_string(trash.join("notes.txt")).unwrap(), "mine");
}
