//! One folder that is read and written, as people have it.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use toolbridge_docs::{DocsError, Documents};

use crate::support::{Client, Workspace, names, place};

/// A folder of notes as Obsidian keeps it: front matter, tags, wiki links, attachments, settings, daily notes.
fn notes() -> Workspace {
    let workspace = Workspace { dir: tempfile::TempDir::new().unwrap() };
    let write = |path: &str, text: &str| {
        let path = workspace.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("Home.md", "---\ntags: [start]\n---\n# Home\n\nSee [[Garden]] and ![[plan.png]].\n");
    write(
        "Garden/Tomatoes.md",
        "---\naliases: [Tomato]\ntags: [garden/food]\n---\n# Tomatoes\n\nWater them. #garden\n\n## Pests\n\nAphids.\n",
    );
    write("Garden/Tools/Spade.md", "# Spade\n\nFor digging, see [[Tomatoes#Pests|pests]].\n");
    write("Daily/2025-01-31.md", "# Friday\n\n- [ ] buy seeds\n");
    write("attachments/plan.png", "picture of aphids");
    write(".obsidian/app.json", "{\"secret\":\"aphids\"}");
    write(".obsidian/plugins/x/main.md", "# Aphids plugin\n");
    workspace
}

fn text(workspace: &Workspace, path: &str) -> String {
    fs::read_to_string(workspace.path(path)).unwrap()
}

fn items<'a>(answer: &'a Value, member: &str) -> Vec<&'a str> {
    answer["items"].as_array().unwrap().iter().map(|item| item[member].as_str().unwrap()).collect()
}

fn places(found: &Value) -> Vec<String> {
    found["items"].as_array().unwrap().iter().map(|item| place(&item["ref"])).collect()
}

#[test]
fn every_folder_is_a_manual_and_the_notes_at_the_top_are_one() {
    let workspace = notes();
    let before = names(workspace.dir.path());
    let client = workspace.open();
    let listed = client.ok("manual_list", &json!({}));
    assert_eq!(items(&listed, "manual_id"), [".", "Daily", "Garden", "attachments"]);
    let files = client.ok("manual_ls", &json!({}));
    let paths: Vec<_> = files["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| format!("{}/{}", item["manual_id"].as_str().unwrap(), item["path"].as_str().unwrap()))
        .collect();
    let all = ["./Home.md", "Daily/2025-01-31.md", "Garden/Tomatoes.md", "Garden/Tools/Spade.md"];
    assert_eq!((paths, &files["left_out"]), (all.map(String::from).to_vec(), &json!({ "png": 1 })));
    let mut after = Value::Null;
    for want in all {
        let page = client.ok("manual_ls", &json!({ "limit": 1, "after": after }));
        assert_eq!(items(&page, "path"), [want.split_once('/').unwrap().1]);
        after = page["next"].clone();
    }
    assert_eq!(after, Value::Null);
    let top = client.ok("manual_ls", &json!({ "manual_id": "." }));
    assert_eq!(items(&top, "path"), ["Home.md"]);
    // Every reference works, in each form, and is the note's path in the vault.
    for manual in [".", "Garden", "Daily"] {
        let short = client.ok("manual_toc", &json!({ "manual_id": manual }));
        for file in short["items"].as_array().unwrap() {
            let name = file["file"].as_str().unwrap();
            client.ok("vault_read", &json!({ "path": name }));
            for line in file["sections"].as_array().unwrap() {
                let place = line.as_str().unwrap().split(' ').next().unwrap();
                client.ok("manual_read", &json!({ "ref": format!("{name}{place}") }));
            }
        }
        let full = client.ok("manual_toc", &json!({ "manual_id": manual, "full": true }));
        for node in full["items"].as_array().unwrap() {
            assert_eq!(node["ref"]["manual_id"], manual);
            client.ok("manual_read", &json!({ "ref": node["ref"] }));
        }
    }
    let toc = client.ok("manual_toc", &json!({ "manual_id": ".", "path": "Home.md" }));
    assert_eq!(toc["items"][0]["sections"].as_array().unwrap().len(), 2);
    assert_eq!(names(workspace.dir.path()), before, "nothing is made or moved");
}

#[test]
fn notes_are_found_wherever_they_are_and_nothing_else() {
    let workspace = notes();
    let client = workspace.open();
    for (query, want) in [
        ("aphids", vec!["Garden/Tomatoes.md#L9"]),
        ("home", vec!["./Home.md#L4", "./Home.md#L1"]),
        ("start", vec!["./Home.md#L1"]),
        ("seeds", vec!["Daily/2025-01-31.md#L1"]),
        ("digging", vec!["Garden/Tools/Spade.md#L1"]),
        ("secret", vec![]),
        ("plugin", vec![]),
    ] {
        let found = client.ok("manual_find", &json!({ "query": query }));
        assert_eq!(places(&found), want, "{query}");
        for item in found["items"].as_array().unwrap() {
            client.ok("manual_read", &json!({ "ref": item["ref"] }));
        }
        // The vault is the same folder, and its paths have no `./`.
        let notes = client.ok("vault_find", &json!({ "query": query }));
        let paths: Vec<_> =
            want.iter().map(|place| place.split_once('#').unwrap().0.trim_start_matches("./")).collect();
        assert_eq!(items(&notes, "path"), paths, "{query}");
    }
    let find = |manual: &str| {
        places(&client.ok("manual_find", &json!({ "query": "home aphids seeds", "manual_id": manual })))
    };
    assert_eq!(find("."), ["./Home.md#L1", "./Home.md#L4"]);
    assert_eq!(find("Garden"), ["Garden/Tomatoes.md#L9"]);
    let full = client.ok("manual_find", &json!({ "query": "home", "full": true }));
    let reference = &full["items"][0]["ref"];
    assert_eq!((&reference["manual_id"], &reference["path"]), (&json!("."), &json!("Home.md")));
    client.ok("manual_read", &json!({ "ref": reference }));
    // What is written is found at once.
    client.ok("vault_create", &json!({ "path": "New.md", "content": "# Compost\n" }));
    assert_eq!(places(&client.ok("manual_find", &json!({ "query": "compost" }))), ["./New.md#L1"]);
    client.ok("vault_write", &json!({ "path": "New.md", "content": "# Mulch\n", "mode": "overwrite" }));
    assert_eq!(client.ok("manual_find", &json!({ "query": "compost" }))["total"], 0, "not in the trash");
}

#[test]
fn a_copy_goes_from_the_folder_to_itself() {
    let workspace = notes();
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let copy = |from: &str, to: &str, mode: &str| {
        client.ok("bridge_copy_section", &json!({ "from_ref": from, "to_path": to, "mode": mode }))
    };
    let copied = copy("Garden/Tomatoes.md#L9", "Garden/Pests.md", "overwrite");
    assert_eq!(copied["written_path"], "Garden/Pests.md");
    assert_eq!(text(&workspace, "Garden/Pests.md"), "## Pests\n\nAphids.\n");
    // The path of a reference at the top, as a target: the same note.
    assert_eq!(copy("Garden/Tomatoes.md#L9", "./Home.md", "append")["written_path"], "Home.md");
    assert!(text(&workspace, "Home.md").ends_with("]].\n## Pests\n\nAphids.\n"));
    // A note at the top may be cited as `vault_find` does.
    copy("Home.md#L4", "Start.md", "overwrite");
    assert!(text(&workspace, "Start.md").starts_with("# Home\n"));
    // `Daily` is an ordinary folder.
    copy("./Home.md#L4", "Daily/2025-01-31.md", "overwrite");
    let whole = json!({ "from_path": "Home.md", "manual_id": ".", "to_path": "Copy.md", "mode": "overwrite", "limits": { "allow_file": true } });
    client.ok("bridge_copy_file", &whole);
    assert_eq!(text(&workspace, "Copy.md"), text(&workspace, "Home.md"));
    for path in [".obsidian/app.json", ".system/trash/x.md"] {
        let call = json!({ "from_ref": format!("./{path}"), "to_path": "x.md", "mode": "append" });
        assert_eq!(client.code("bridge_copy_section", &call), "forbidden", "{path}");
        let call = json!({ "from_ref": "./Home.md", "to_path": path, "mode": "append" });
        assert_eq!(client.code("bridge_copy_section", &call), "forbidden", "{path}");
    }
}

#[test]
fn a_note_may_be_source_and_target_at_once() {
    let workspace = notes();
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let note = "# One\n\nfirst\n\n# Two\n\nsecond";
    let write = || fs::write(workspace.path("a.md"), note).unwrap();
    let copy = |from: &Value, mode: &str, max_chars: usize| {
        let limits = json!({ "max_chars": max_chars });
        let call = json!({ "from_ref": from, "to_path": "a.md", "mode": mode, "limits": limits });
        client.ok("bridge_copy_section", &call)
    };
    write();
    copy(&json!("./a.md#L1"), "append", 100);
    assert_eq!(text(&workspace, "a.md"), format!("{note}\n# One\n\nfirst\n\n"));
    write();
    copy(&json!("./a.md#L5"), "append", 100);
    assert_eq!(text(&workspace, "a.md"), format!("{note}\n# Two\n\nsecond"));
    write();
    copy(&json!("./a.md#L5"), "overwrite", 100);
    assert_eq!(text(&workspace, "a.md"), "# Two\n\nsecond");
    client.ok("vault_undo", &json!({ "path": "a.md" }));
    assert_eq!(text(&workspace, "a.md"), note);
    // In parts.
    let found = client.ok("manual_find", &json!({ "query": "first" }));
    let mut from = found["items"][0]["ref"].clone();
    while !from.is_null() {
        from = copy(&from, "append", 5)["next"].clone();
    }
    assert_eq!(text(&workspace, "a.md"), format!("{note}\n# One\n\nfirst\n\n"));
    write();
    let whole = json!({ "from_path": "a.md", "manual_id": ".", "to_path": "a.md", "mode": "append", "limits": { "allow_file": true } });
    client.ok("bridge_copy_file", &whole);
    assert_eq!(text(&workspace, "a.md"), format!("{note}\n{note}"));
}

#[test]
fn a_folder_with_manuals_is_two_folders_and_the_vault_is_made_when_it_is_needed() {
    let workspace = notes();
    fs::create_dir_all(workspace.path("manuals/book")).unwrap();
    fs::write(workspace.path("manuals/book/a.md"), "# A\n").unwrap();
    let client = workspace.open();
    assert_eq!(items(&client.ok("manual_list", &json!({})), "manual_id"), ["book"]);
    for manual in [".", "Garden"] {
        let error = client.refused("manual_ls", &json!({ "manual_id": manual }));
        assert!(error["code"] == "invalid_path" || error["code"] == "not_found", "{error}");
    }
    // Until then it is empty.
    assert_eq!(client.ok("vault_ls", &json!({})), json!({ "entries": [] }));
    assert_eq!(client.ok("vault_find", &json!({ "query": "home" }))["total"], 0);
    for (tool, call) in [
        ("vault_read", json!({ "path": "a.md" })),
        ("vault_ls", json!({ "path": "sub" })),
        ("vault_undo", json!({ "path": "a.md" })),
    ] {
        assert_eq!(client.code(tool, &call), "not_found", "{tool}");
    }
    let write = json!({ "path": "a.md", "content": "x", "mode": "append" });
    assert_eq!(client.code("vault_write", &write), "conflict");
    assert!(!workspace.path("vault").exists());
    client.ok(
        "bridge_copy_section",
        &json!({ "from_ref": "book/a.md", "to_path": "x.md", "mode": "overwrite" }),
    );
    assert_eq!(workspace.text("x.md"), "# A\n");
}

#[test]
fn an_absent_vault_is_made_by_the_first_write() {
    for (tool, call) in [
        ("vault_create", json!({ "path": "sub/x.md", "content": "# A\n" })),
        ("bridge_copy_section", json!({ "from_ref": "m/a.md", "to_path": "sub/x.md", "mode": "overwrite" })),
        ("bridge_copy_section", json!({ "from_ref": "m/a.md", "to_path": "sub/x.md", "mode": "append" })),
    ] {
        let workspace = Workspace::with("# A\n");
        fs::remove_dir(workspace.path("vault")).unwrap();
        let far = workspace.path("far/away");
        for builder in [workspace.builder(), workspace.builder().vault(&far)] {
            let vault = builder.vault_path();
            let client = Client::new(builder);
            client.ok(tool, &call);
            assert_eq!(fs::read_to_string(vault.join("sub/x.md")).unwrap(), "# A\n");
            assert_eq!(client.ok("vault_find", &json!({ "query": "a" }))["total"], 1);
        }
        // It must not be inside the manuals either.
        let inside = workspace.builder().vault(workspace.path("manuals/new/vault"));
        assert!(matches!(inside.open().unwrap_err(), DocsError::OverlappingRoots { .. }));
    }
}

/// A program that is started in the wrong folder must not write to it.
#[test]
fn a_single_folder_must_be_named_and_exist() {
    let workspace = notes();
    let missing = Documents::builder().workspace(workspace.path("none")).open().unwrap_err();
    let path = workspace.path("none");
    assert_eq!(missing.to_string(), format!("the notes folder `{}` does not exist", path.display()));
    let named = Documents::builder().workspace(workspace.dir.path());
    assert_eq!((named.manuals_path(), named.vault_path()), (workspace.path(""), workspace.path("")));
    // The tests are run in a folder without manuals.
    let unnamed = Documents::builder().open().unwrap_err();
    assert!(matches!(unnamed, DocsError::MissingRoot { root: "manuals", .. }), "{unnamed}");
    let other = workspace.builder().vault(workspace.path("Garden")).open().unwrap_err();
    assert!(matches!(other, DocsError::MissingRoot { root: "manuals", .. }), "{other}");
}

#[test]
fn links_are_not_followed_in_a_single_folder() {
    let workspace = notes();
    let outside = tempfile::TempDir::new().unwrap();
    fs::write(outside.path().join("a.md"), "# Swordfish\n").unwrap();
    symlink(outside.path(), workspace.path("linked")).unwrap();
    symlink(outside.path().join("a.md"), workspace.path("a.md")).unwrap();
    let client = workspace.open();
    assert_eq!(client.ok("manual_find", &json!({ "query": "swordfish" }))["total"], 0);
    for reference in ["./a.md", "linked/a.md", "./linked/a.md"] {
        assert_eq!(client.code("manual_read", &json!({ "ref": reference })), "out_of_scope", "{reference}");
        let call = json!({ "from_ref": "./Home.md", "to_path": reference, "mode": "append" });
        assert_eq!(client.code("bridge_copy_section", &call), "out_of_scope", "{reference}");
    }
}
