//! Operations on whole notes: find, outline, undo.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::process::Command;

use proptest::prelude::*;
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

/// A client whose searches return everything that they find.
fn unlimited(workspace: &Workspace) -> Client {
    Client::new(workspace.builder().hard_max_sections(100_000))
}

/// The paths of all hits. Each can be read, also from its line on; `total` is their number.
fn found(client: &Client, query: &str) -> BTreeSet<String> {
    let answer = client.ok("vault_find", &json!({ "query": query, "limit": 100_000 }));
    let items = answer["items"].as_array().unwrap();
    assert_eq!(answer["total"], items.len(), "{query}: {answer}");
    for item in items {
        client.ok("vault_read", &path(item["path"].as_str().unwrap()));
        client.ok("vault_read", &json!({ "path": item["path"], "outline": true }));
        client.ok("vault_read", &json!({ "path": item["path"], "range": { "start_line": item["line"] } }));
        let title = item["title"].as_str().unwrap();
        assert!(title.chars().count() <= 80 && !title.contains(char::is_control), "{title:?}");
    }
    items.iter().map(|item| item["path"].as_str().unwrap().to_owned()).collect()
}

/// All notes that `vault_ls` lists.
fn listed(client: &Client, folder: &str) -> BTreeSet<String> {
    let answer = client.ok("vault_ls", &path(folder));
    let mut files = BTreeSet::new();
    for entry in answer["entries"].as_array().unwrap() {
        let path = entry["path"].as_str().unwrap();
        match entry["type"].as_str().unwrap() {
            "dir" => files.extend(listed(client, path)),
            _ => _ = files.insert(path.to_owned()),
        }
    }
    files
}

#[test]
fn whatever_is_found_can_be_read() {
    let workspace = Workspace::new();
    let vault = workspace.path("vault");
    let text = "before\n\n\n\n# The needle\n";
    let good = [
        ("plain.md", text.as_bytes()),
        ("a b/c..d/e.f.md", text.as_bytes()),
        ("caf\u{e9}.md", text.as_bytes()),
        ("cafe\u{301}.md", text.as_bytes()),
        ("na\u{200d}me.md", text.as_bytes()),
        ("c#L3.md", text.as_bytes()),
        ("c#L3~k3f9a2bcd+8.txt", text.as_bytes()),
        ("d#L9/x.mdx", text.as_bytes()),
        ("sub/C:/x.markdown", text.as_bytes()),
        ("bom.md", b"\xef\xbb\xbf\r\r# needle"),
        ("wide.md", "# needle\u{2028}\u{85}\u{b}x\n".as_bytes()),
        ("setext.md", b"one\n\nneedle\ntwo\n===\n"),
        ("data.json", b"{\"needle\": 1}"),
    ];
    for (name, bytes) in good {
        workspace.note(name, bytes);
    }
    for name in [
        ".hidden.md",
        ".obsidian/x.md",
        "sub/.git/x.md",
        "\u{200b}.git/x.md",
        ".system/a.md",
        ".system/trash/000001-t0000000000000000-x.md",
        "back\\slash.md",
        "C:/x.md",
        "a./x.md",
        "b /x.md",
        "line\nbreak.md",
        "bell\u{7}/x.md",
        "turn\u{202e}.md",
        "other.exe",
    ] {
        workspace.note(name, text);
    }
    fs::write(vault.join(OsStr::from_bytes(b"latin\xe9.md")), text).unwrap();
    workspace.note("latin.md", b"# needle \xff\n");
    workspace.note("utf16.md", b"\xff\xfe#\0 \0n\0e\0e\0d\0l\0e\0");
    fs::write(vault.join("big.md"), text).unwrap();
    fs::File::options().write(true).open(vault.join("big.md")).unwrap().set_len((64 << 20) + 1).unwrap();
    fs::create_dir(vault.join("folder.md")).unwrap();
    fs::write(workspace.path("outside.md"), text).unwrap();
    symlink(workspace.path("outside.md"), vault.join("out.md")).unwrap();
    symlink("plain.md", vault.join("near.md")).unwrap();
    symlink("sub", vault.join("round")).unwrap();
    symlink("none.md", vault.join("dangling.md")).unwrap();
    assert!(Command::new("mkfifo").arg(vault.join("pipe.md")).status().unwrap().success());

    let client = unlimited(&workspace);
    let want: BTreeSet<_> = good.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found(&client, "needle"), want);
    // The same after every change.
    for (from, to) in [("plain.md", ".plain.md"), ("a b", ".a b"), ("sub", "sub.")] {
        fs::rename(vault.join(from), vault.join(to)).unwrap();
    }
    fs::remove_file(vault.join("bom.md")).unwrap();
    symlink("wide.md", vault.join("bom.md")).unwrap();
    let gone = ["plain.md", "a b/", "sub/", "bom.md"];
    let want: BTreeSet<_> =
        want.into_iter().filter(|name| !gone.iter().any(|gone| name.starts_with(gone))).collect();
    assert_eq!(found(&client, "needle"), want);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn notes_of_any_name_are_listed_found_and_read_or_none_of_these(
        names in proptest::collection::btree_set(r"([.:#L1~+\\ a\u{200b}\u{301}é\n]{1,5}/)?[.:#L1~+\\ a\u{200b}\u{301}é\n]{0,5}\.(md|txt)", 1..12),
    ) {
        let workspace = Workspace::new();
        let vault = workspace.path("vault");
        for name in &names {
            let file = vault.join(name);
            // A name may be a folder already, or `..`.
            if name.split('/').all(|name| name != "." && name != "..") && fs::create_dir_all(file.parent().unwrap()).is_ok() {
                _ = fs::write(&file, "# needle\n");
            }
        }
        let client = unlimited(&workspace);
        prop_assert_eq!(found(&client, "needle"), listed(&client, "."));
    }

    #[test]
    fn the_total_is_the_number_of_hits_for_every_query(
        notes in proptest::collection::vec("((# |tags: |tag:|#|- )?(home|homes|garden|tag|key|Schlüssel|鍵穴)[ ,\n]){1,12}", 1..8),
        query in "((tag:|#|-|path:|\"|in:)?(home|garden|tag|key|gardne|schlüssel|鍵|none)\"? ?){1,4}",
        limit in 1_usize..5,
    ) {
        let workspace = Workspace::new();
        for (place, text) in notes.iter().enumerate() {
            workspace.note(&format!("{place}.md"), text);
            workspace.manual(&format!("../{}/{place}.md", ["m", "n"][place % 2]), text);
        }
        fs::create_dir_all(workspace.path("manuals/n")).unwrap();
        let client = unlimited(&workspace);
        let total = |tool: &str, manual: Option<&str>, limit: usize| {
            let mut call = json!({ "query": query, "limit": limit });
            if let Some(manual) = manual {
                call["manual_id"] = manual.into();
            }
            let answer = client.ok(tool, &call);
            let total = usize::try_from(answer["total"].as_u64().unwrap()).unwrap();
            assert_eq!(answer["items"].as_array().unwrap().len(), total.min(limit), "{tool} {call}: {answer}");
            total
        };
        found(&client, &query);
        let all = total("vault_find", None, 100_000);
        prop_assert_eq!(total("vault_find", None, limit), all);
        prop_assert_eq!(total("manual_find", None, limit), all);
        let of_manuals = ["m", "n"].map(|manual| {
            let all = total("manual_find", Some(manual), 100_000);
            assert_eq!(total("manual_find", Some(manual), limit), all);
            all
        });
        prop_assert_eq!(of_manuals[0] + of_manuals[1], all);
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
    // The limits of characters hold here too: the call's, and the server's.
    workspace.note("long.md", format!("# {}\n", "x".repeat(74)).repeat(500));
    let low = Client::new(workspace.builder().hard_max_chars(1000));
    for (client, limits, want) in [
        (&client, json!(null), 20_000),
        (&client, json!({ "max_chars": 1000 }), 1000),
        (&low, json!(null), 1000),
        (&low, json!({ "max_chars": 20_000 }), 1000),
        (&low, json!({ "max_chars": 1 }), 1),
    ] {
        let mut call = outline("long.md");
        call["limits"] = limits;
        let answer = client.ok("vault_read", &call);
        let lines: Vec<_> =
            answer["sections"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        let chars = lines.join("\n").chars().count();
        assert!(chars <= want && chars + 90 > want, "{chars} of {want}");
        assert_eq!(answer["truncated"], true, "{call}");
    }
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

/// A process that is killed before an overwrite leaves a copy of the text that the note still has.
#[test]
fn a_copy_of_the_present_text_is_no_earlier_text() {
    let workspace = Workspace::new();
    let client = workspace.open();
    workspace.note("a.md", "old");
    client.ok("vault_write", &json!({ "path": "a.md", "content": "new", "mode": "overwrite" }));
    let trash = workspace.path("vault/.system/trash");
    let kept = &workspace.trash()[0];
    fs::write(trash.join(kept.replace("000001-", "000002-")), "new").unwrap();
    for want in ["old", "new"] {
        client.ok("vault_undo", &path("a.md"));
        assert_eq!(workspace.text("a.md"), want);
    }
    fs::write(trash.join(kept.replace("000001-", "000009-")), "new").unwrap();
    client.ok("vault_undo", &path("a.md"));
    fs::remove_file(trash.join(&workspace.trash()[0])).unwrap();
    fs::write(trash.join(kept), "old").unwrap();
    assert_eq!(client.code("vault_undo", &path("a.md")), "not_found");
    assert_eq!(workspace.text("a.md"), "old");
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

/// At most 100 entries; the oldest are removed first.
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
    // Sparse files, which use no disk space.
    let size = |name: &str, bytes: u64| {
        fs::File::create(workspace.path("vault").join(name)).unwrap().set_len(bytes).unwrap();
    };
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
