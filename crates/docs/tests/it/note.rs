//! Operations on whole notes: find, outline, move, delete, undo.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, OnDrop, Workspace, copy, copy_file};

fn path(path: &str) -> Value {
    json!({ "path": path })
}

fn moved(from: &str, to: &str) -> Value {
    json!({ "from": from, "to": to })
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
    assert_eq!(
        found["items"],
        json!([
            { "path": "top.md", "line": 1, "title": "Spare keys", "snippet": "Ask at t…" },
            { "path": "deep/er/x.md", "line": 3, "title": "Lock", "in": "Doors", "snippet": "…e key." },
        ])
    );
    // Overwritten or deleted text is not found, although it is in the trash.
    client.ok("vault_delete", &path("top.md"));
    client.ok("vault_write", &json!({ "path": "deep/er/x.md", "content": "# Gate\n", "mode": "overwrite" }));
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
fn a_note_is_moved_with_all_it_has_and_never_onto_another() {
    let workspace = Workspace::new();
    let note = workspace.note("a.md", "text");
    fs::set_permissions(&note, fs::Permissions::from_mode(0o640)).unwrap();
    let number = fs::metadata(&note).unwrap().ino();
    workspace.note("taken.md", "taken");
    let client = workspace.open();
    assert_eq!(
        client.ok("vault_move", &moved("./a.md", "new\\deep/b.md")),
        json!({ "written_path": "new/deep/b.md" })
    );
    let meta = fs::metadata(workspace.path("vault/new/deep/b.md")).unwrap();
    assert_eq!((meta.ino(), meta.mode() & 0o777), (number, 0o640));
    assert_eq!(workspace.vault(), ["new", "new/deep", "new/deep/b.md", "taken.md"]);
    for (from, to, code) in [
        ("none.md", "x.md", "not_found"),
        ("new/deep/b.md", "taken.md", "conflict"),
        ("taken.md", "taken.md", "conflict"),
        ("new/deep/b.md", "new", "conflict"),
        ("new/deep/b.md", "taken.md/x.md", "conflict"),
        ("new/deep", "x", "forbidden"),
        ("new/deep/b.md", ".system/x.md", "forbidden"),
        ("new/deep/b.md", "../x.md", "invalid_path"),
        ("new/deep/b.md", "daily/notes.md", "forbidden"),
    ] {
        assert_eq!(client.code("vault_move", &moved(from, to)), code, "{from} {to}");
    }
    assert_eq!(workspace.vault(), ["new", "new/deep", "new/deep/b.md", "taken.md"]);
    assert_eq!(client.code("vault_undo", &path("a.md")), "not_found");
    assert_eq!(
        client.ok("vault_undo", &path("new/deep/b.md")),
        json!({ "written_path": "a.md", "undone": "move" })
    );
    assert_eq!((workspace.text("a.md"), workspace.trash()), ("text".into(), Vec::<String>::new()));
    // A note that has taken its place is not overwritten.
    client.ok("vault_move", &moved("a.md", "b.md"));
    workspace.note("a.md", "another");
    assert_eq!(client.code("vault_undo", &path("b.md")), "conflict");
    assert_eq!((workspace.text("a.md"), workspace.text("b.md")), ("another".into(), "text".into()));
}

#[test]
fn what_is_deleted_can_be_brought_back() {
    let workspace = Workspace::new();
    let note = workspace.note("sub/a.md", b"not \xff text");
    fs::set_permissions(&note, fs::Permissions::from_mode(0o604)).unwrap();
    let client = workspace.open();
    assert_eq!(client.ok("vault_delete", &path("sub/a.md")), json!({ "deleted_path": "sub/a.md" }));
    assert_eq!(workspace.vault(), ["sub"]);
    assert!(workspace.trash()[0].ends_with("-sub%2Fa.md"), "{:?}", workspace.trash());
    fs::remove_dir(workspace.path("vault/sub")).unwrap();
    let again = workspace.open();
    assert_eq!(
        again.ok("vault_undo", &path("sub/a.md")),
        json!({ "written_path": "sub/a.md", "undone": "delete" })
    );
    assert_eq!(workspace.read("sub/a.md"), b"not \xff text");
    assert_eq!(fs::metadata(&note).unwrap().mode() & 0o777, 0o604);
    assert_eq!(workspace.trash(), Vec::<String>::new());
    for (file, code) in [("none.md", "not_found"), ("sub", "forbidden"), ("sub/a.md/x", "conflict")] {
        assert_eq!(client.code("vault_delete", &path(file)), code, "{file}");
    }
    assert_eq!(client.code("vault_undo", &path("sub/a.md")), "not_found");
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
            assert_eq!(
                client.ok("vault_undo", &path("x.md")),
                json!({ "written_path": "x.md", "undone": "overwrite" })
            );
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

/// Daily notes are append-only for all tools.
#[test]
fn notes_of_a_day_and_what_is_reserved_are_neither_moved_nor_deleted() {
    let workspace = Workspace::new();
    let day = "daily/2025-01-31.md";
    workspace.note(day, "morning");
    workspace.note(".system/a.md", "x");
    workspace.note("a.md", "a");
    let client = workspace.open();
    for file in [day, "Daily/2025-01-31.md", ".system/a.md", ".System/a.md", ".system/trash/x"] {
        for tool in ["vault_delete", "vault_undo"] {
            assert_eq!(client.code(tool, &path(file)), "forbidden", "{tool} {file}");
        }
        assert_eq!(client.code("vault_move", &moved(file, "b.md")), "forbidden", "{file}");
    }
    assert_eq!((workspace.text(day), workspace.text(".system/a.md")), ("morning".into(), "x".into()));
    client.ok("vault_move", &moved("a.md", "daily/2025-02-01.md"));
    assert_eq!(workspace.text("daily/2025-02-01.md"), "a");
}

/// At most 100 entries and 64 MiB in total; the oldest are removed first.
#[test]
fn the_trash_is_bounded() {
    let workspace = Workspace::new();
    let client = workspace.open();
    for number in 0..103 {
        workspace.note(&format!("{number}.md"), "x");
        client.ok("vault_delete", &path(&format!("{number}.md")));
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
    client.ok("vault_delete", &path("half.md"));
    assert_eq!(workspace.trash().len(), 100);
    client.ok("vault_delete", &path("other.md"));
    assert_eq!(workspace.trash().len(), 1);
    client.ok("vault_undo", &path("other.md"));
    size("large.md", (64 << 20) + 1);
    let error = client.refused("vault_delete", &path("large.md"));
    assert_eq!((&error["code"], &error["details"]["limit_bytes"]), (&json!("forbidden"), &json!(64 << 20)));
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
        client.refused("vault_delete", &path("a.md"));
        assert_eq!(workspace.text("a.md"), "old");
        // Writing works without the trash.
        client.ok("vault_write", &json!({ "path": "a.md", "content": "new", "mode": "overwrite" }));
        client.ok("vault_move", &moved("a.md", "b.md"));
        client.refused("vault_undo", &path("b.md"));
        assert_eq!(workspace.text("b.md"), "new");
        assert_eq!(crate::support::names(&workspace.path("outside")), ["trash"]);
    }
}

/// Links that other programs put into the trash are not restored as notes.
#[test]
fn what_others_put_into_the_trash_is_not_followed() {
    let workspace = Workspace::new();
    workspace.note("a.md", "old");
    let client = workspace.open();
    client.ok("vault_delete", &path("a.md"));
    let trash = workspace.path("vault/.system/trash");
    let entry = trash.join(&workspace.trash()[0]);
    fs::write(workspace.path("secret.md"), "swordfish").unwrap();
    fs::remove_file(&entry).unwrap();
    symlink(workspace.path("secret.md"), &entry).unwrap();
    fs::create_dir(trash.join("000009-t0000000000000000-x")).unwrap();
    fs::write(trash.join("notes.txt"), "mine").unwrap();
    assert_eq!(client.code("vault_undo", &path("a.md")), "not_found");
    workspace.note("b.md", "b");
    client.ok("vault_delete", &path("b.md"));
    client.ok("vault_undo", &path("b.md"));
    assert_eq!(workspace.vault(), ["b.md"]);
    assert_eq!(fs::read_to_string(trash.join("notes.txt")).unwrap(), "mine");
}

/// Two servers on one vault: text appended while a note is moved back and forth is in one of the two places.
#[test]
fn nothing_that_is_appended_is_lost_while_a_note_moves() {
    let workspace = Workspace::new();
    workspace.note("a.md", "start\n");
    let done = AtomicBool::new(false);
    let (mut appended, mut moves) = (0, 0);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let client = workspace.open();
            let mut moves = 0;
            while !done.load(Ordering::Relaxed) {
                for (from, to) in [("a.md", "b.md"), ("b.md", "a.md")] {
                    moves += usize::from(client.call("vault_move", &moved(from, to))["isError"] == false);
                }
            }
            moves
        });
        {
            let _done = OnDrop(&done);
            let client = workspace.open();
            let deadline = Instant::now() + Duration::from_secs(60);
            while appended < 200 && Instant::now() < deadline {
                let line =
                    json!({ "path": "a.md", "content": format!("line {appended}\n"), "mode": "append" });
                let answer = client.call("vault_write", &line);
                match answer["structuredContent"]["code"].as_str() {
                    None => appended += 1,
                    Some(code) => assert_eq!(code, "conflict", "{answer}"),
                }
            }
        }
        moves = other.join().unwrap();
    });
    assert!(appended == 200 && moves > 0, "{appended} appended, {moves} moves");
    let text: String = workspace.vault().iter().map(|file| workspace.text(file)).collect();
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("line")).map(str::to_owned).collect();
    let want: Vec<_> = (0..200).map(|line| format!("line {line}")).collect();
    assert_eq!(lines, want);
}

#[test]
fn a_start_finishes_a_move_that_was_interrupted_unless_it_is_read_only() {
    let workspace = Workspace::new();
    workspace.note("b.md", "moved");
    workspace.note("top.md", "[a](a.md)");
    let changes = json!([{ "path": "top.md", "after": 0, "edits": [] }]);
    workspace.note(".system/trash/000001-b0123456789abcdef-b.md", format!("a.md\n{changes}\nb.md"));
    for (read_only, want) in [(true, "[a](a.md)"), (false, "[a](b.md)")] {
        Client::new(workspace.builder().read_only(read_only));
        assert_eq!(workspace.text("top.md"), want);
    }
    assert_eq!(workspace.trash(), ["000001-m0123456789abcdef-b.md"]);
}

/// Two servers on one vault, for which only the disk decides.
#[test]
fn of_two_moves_at_once_one_wins_and_the_other_changes_nothing() {
    let workspace = Workspace::new();
    let clients = [workspace.open(), workspace.open()];
    let start = std::sync::Barrier::new(2);
    for (round, (moves, code)) in [
        ([("sub/a.md", "x.md"), ("sub/a.md", "far/y.md")], "not_found"),
        ([("sub/a.md", "x.md"), ("sub/b.md", "x.md")], "conflict"),
    ]
    .iter()
    .cycle()
    .take(20)
    .enumerate()
    {
        workspace.note("sub/a.md", "A [top](../top.md)");
        workspace.note("sub/b.md", "B [top](../top.md)");
        workspace.note("top.md", "[a](sub/a.md) [b](sub/b.md)");
        let answers = std::thread::scope(|scope| {
            let calls = [0, 1].map(|place| {
                let (client, (from, to), start) = (&clients[place], moves[place], &start);
                scope.spawn(move || {
                    start.wait();
                    client.call("vault_move", &moved(from, to))
                })
            });
            calls.map(|call| call.join().unwrap())
        });
        let won = usize::from(answers[0]["isError"] == true);
        assert_eq!(answers[won]["isError"], false, "{round}: {answers:?}");
        assert_eq!(answers[1 - won]["structuredContent"]["code"], *code, "{round}: {answers:?}");
        let (from, to) = moves[won];
        let (stays, letter) = if from == "sub/a.md" { ("sub/b.md", "A") } else { ("sub/a.md", "B") };
        let mut want = vec![stays.to_owned(), "top.md".into(), to.into()];
        want.sort();
        let files: Vec<_> = vault_bytes(&workspace).into_iter().map(|(file, _)| file).collect();
        assert_eq!(files, want, "{round}");
        let up = if to.starts_with("far") { "../" } else { "" };
        assert_eq!(workspace.text(to), format!("{letter} [top]({up}top.md)"), "{round}");
        let top = "[a](sub/a.md) [b](sub/b.md)".replace(from, to);
        assert_eq!(workspace.text("top.md"), top, "{round}");
        // The loser has recorded nothing, so undoing the winner's move restores everything.
        clients[1 - won].ok("vault_undo", &path(to));
        assert_eq!(workspace.text("top.md"), "[a](sub/a.md) [b](sub/b.md)", "{round}");
        assert_eq!(workspace.trash(), Vec::<String>::new(), "{round}");
    }
}

/// Every visible file of the vault with its bytes.
fn vault_bytes(workspace: &Workspace) -> Vec<(String, Vec<u8>)> {
    let files =
        workspace.vault().into_iter().filter(|file| workspace.path(&format!("vault/{file}")).is_file());
    files.map(|file| (file.clone(), workspace.read(&file))).collect()
}

#[test]
fn links_to_a_moved_note_and_its_own_lead_where_they_led() {
    let workspace = Workspace::new();
    let own = "[c](c.md#x) ![p](pictures/p.png) [up](../top.md?q) [self](the%20note.md#s) [d]\r\n[out](../../manuals/m/a.md) \
               [web](https://a.b/c.md) [here](#s) [dir](deep/) `[c](c.md)` [[the note#s]] [[top]]\r\n\r\n[d]: <c.md> 'T'\r\n";
    workspace.note("sub/the note.md", own);
    let links = [
        (
            "inline.md",
            "[a](sub/the%20note.md#x) [b](<sub/the note.md>)",
            "[a](new/far/b.md#x) [b](new/far/b.md)",
        ),
        ("sub/near.md", "![a][r] [r]\n\n[r]: <the note.md>\n", "![a][r] [r]\n\n[r]: ../new/far/b.md\n"),
        (
            "sub/deep/wiki.md",
            "[[the note|alias]] ![[the note]] [[sub/the note#x]]",
            "[[b|alias]] ![[b]] [[new/far/b#x]]",
        ),
        ("html.md", "<a href=\"./sub/the note.md\">x</a>", "<a href=\"new/far/b.md\">x</a>"),
        (
            "new/far/z.md",
            "\u{feff}---\na: sub/the note.md\n---\n[a](../../sub/the%20note.md)",
            "\u{feff}---\na: sub/the note.md\n---\n[a](b.md)",
        ),
    ];
    let others = [
        "[a](the%20note.md) the note.md `[a](sub/the%20note.md)` https://a.b/sub/the%20note.md `[[the note]]` [[the notes]]",
        "[a](/sub/the%20note.md) [b](../sub/the%20note.md)",
    ];
    for (name, before, _) in links {
        workspace.note(name, before);
    }
    for (name, text) in ["other.md", "others.md"].into_iter().zip(others) {
        workspace.note(name, text);
    }
    // These stay as they are: a note of a day may only grow, and the other one is no text.
    workspace.note("daily/2025-01-31.md", "[a](../sub/the%20note.md)");
    workspace.note("bad.md", b"[a](sub/the%20note.md)\xff");
    workspace.note(".system/hidden.md", "[a](../sub/the%20note.md)");
    let client = workspace.open();
    let before = vault_bytes(&workspace);
    let answer = client.ok("vault_move", &moved("sub/the note.md", "new/far/b.md"));
    assert_eq!(answer, json!({ "written_path": "new/far/b.md", "links_changed": 16, "linked_from": 1 }));
    for (name, _, after) in links {
        assert_eq!(workspace.text(name), after, "{name}");
    }
    let want = "[c](../../sub/c.md#x) ![p](../../sub/pictures/p.png) [up](../../top.md?q) [self](b.md#s) [d]\r\n\
                [out](../../../manuals/m/a.md) [web](https://a.b/c.md) [here](#s) [dir](../../sub/deep/) `[c](c.md)` [[b#s]] [[top]]\r\n\r\n\
                [d]: ../../sub/c.md 'T'\r\n";
    assert_eq!(workspace.text("new/far/b.md"), want);
    let undone = client.ok("vault_undo", &path("new/far/b.md"));
    assert_eq!(undone, json!({ "written_path": "sub/the note.md", "undone": "move", "links_changed": 16 }));
    assert_eq!((vault_bytes(&workspace), workspace.trash()), (before, Vec::<String>::new()));
}

#[test]
fn undoing_a_move_keeps_what_was_written_since() {
    let workspace = Workspace::new();
    workspace.note("a.md", "[c](c.md)\n");
    workspace.note("c.md", "[a](./a.md)\n");
    let client = workspace.open();
    client.ok("vault_move", &moved("a.md", "x/b.md"));
    assert_eq!(workspace.text("c.md"), "[a](x/b.md)\n");
    for note in ["c.md", "x/b.md"] {
        client.ok("vault_write", &json!({ "path": note, "content": "more", "mode": "append" }));
    }
    client.ok("vault_undo", &path("x/b.md"));
    assert_eq!(
        (workspace.text("a.md"), workspace.text("c.md")),
        ("[c](c.md)\nmore".into(), "[a](a.md)\nmore".into())
    );
}

#[test]
fn a_link_by_name_is_changed_only_if_one_note_has_the_name() {
    let workspace = Workspace::new();
    for (name, text) in
        [("a.md", ""), ("x/a.md", ""), ("c.md", ""), ("y/d.md", ""), ("links.md", "[[a]] [[c]]")]
    {
        workspace.note(name, text);
    }
    let client = workspace.open();
    assert_eq!(
        client.ok("vault_move", &moved("a.md", "b.md")),
        json!({ "written_path": "b.md", "linked_from": 1 })
    );
    // The new name is another note's too, so the link gets the path.
    assert_eq!(client.ok("vault_move", &moved("c.md", "z/d.md"))["links_changed"], 1);
    assert_eq!(workspace.text("links.md"), "[[a]] [[z/d]]");
    // In another folder it still has its name.
    assert_eq!(client.ok("vault_move", &moved("x/a.md", "y/a.md")), json!({ "written_path": "y/a.md" }));
}

#[test]
fn the_answer_to_a_delete_counts_the_notes_that_link_to_it() {
    let workspace = Workspace::new();
    workspace.note("sub/the note.md", "text [a](the%20note.md)");
    for (name, text) in [
        ("inline.md", "[a](sub/the%20note.md#x) [b](sub/the%20note.md)"),
        ("sub/near.md", "![a][r]\n\n[r]: <the note.md>\n"),
        ("sub/deep/wiki.md", "[[the note|alias]]"),
        ("html.md", "<a href=\"./sub/the note.md\">x</a>"),
        ("daily/2025-01-31.md", "[a](../sub/the%20note.md)"),
        // None of these links to it.
        ("other.md", "[a](the%20note.md) the note.md `[a](sub/the%20note.md)` https://a.b/sub/the%20note.md"),
        (".system/hidden.md", "[a](../sub/the%20note.md)"),
    ] {
        workspace.note(name, text);
    }
    workspace.note("bad.md", b"[a](sub/the%20note.md)\xff");
    let client = workspace.open();
    let answer = client.ok("vault_delete", &path("sub/the note.md"));
    assert_eq!(answer, json!({ "deleted_path": "sub/the note.md", "linked_from": 5 }));
    assert_eq!(client.ok("vault_delete", &path("inline.md")), json!({ "deleted_path": "inline.md" }));
}
