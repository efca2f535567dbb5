//! Searching: the results, their order, and that they are always up to date.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{Client, Workspace, names, place};

fn titles(client: &Client, query: &str) -> Vec<String> {
    let found = client.ok("manual_find", &json!({ "query": query }));
    found["items"].as_array().unwrap().iter().map(|item| item["title"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_item_has_a_reference_a_title_a_score_and_a_snippet() {
    let workspace = Workspace::with("# Locks\n\nTurn the key.\n\n## Spare keys\n\nAsk at the desk.\n");
    workspace.manual("data.json", "{\"door\": \"green\"}");
    let client = workspace.open();
    let full = client.ok("manual_find", &json!({ "query": "KEY", "full": true }));
    assert!(full["items"][0]["score"].as_f64() > full["items"][1]["score"].as_f64());
    let mut reference = full["items"][0]["ref"].clone();
    assert_eq!(reference.as_object_mut().unwrap().remove("hash").unwrap().as_str().unwrap().len(), 9);
    assert_eq!(reference, crate::support::reference("a.md", 5));
    let found = client.ok("manual_find", &json!({ "query": "KEY" }));
    assert_eq!((&found["total"], found["items"][0].get("score")), (&json!(2), None));
    assert_eq!(place(&found["items"][0]["ref"]), "m/a.md#L5");
    assert_eq!(found["items"][0]["in"], "Locks");
    assert_eq!(found["items"][0]["snippet"], "Ask at t…");
    assert_eq!(place(&found["items"][1]["ref"]), "m/a.md#L1");
    assert_eq!(found["items"][1].get("in"), None);
    assert_eq!(found["items"][1]["snippet"], "…e key.");
    let found = client.ok("manual_find", &json!({ "query": "green" }));
    assert_eq!(place(&found["items"][0]["ref"]), "m/data.json");
    assert_eq!(found["items"][0]["title"], "data.json");
    assert_eq!(client.ok("manual_find", &json!({ "query": "nothing" })), json!({ "items": [], "total": 0 }));
}

#[test]
fn a_subsection_is_found_by_its_parents_title_too() {
    let workspace = Workspace::with("# Linux\n\n## Install\n\nx\n\n# Windows\n\n## Install\n\ny\n");
    let client = workspace.open();
    let found = client.ok("manual_find", &json!({ "query": "install windows" }));
    assert_eq!(place(&found["items"][0]["ref"]), "m/a.md#L9");
}

#[test]
fn words_are_found_in_every_form() {
    let workspace = Workspace::with(
        "# class\n\n# Caching\n\n# process\n\n# Pattern matches\n\n# index\n\n# aliases\n\n# getElementById\n",
    );
    let client = workspace.open();
    for (query, want) in [
        ("classes", "class"),
        ("cache", "Caching"),
        ("processes", "process"),
        ("match", "Pattern matches"),
        ("indexes", "index"),
        ("alias", "aliases"),
        ("element", "getElementById"),
        ("proccess", "process"),
    ] {
        assert_eq!(titles(&client, query), [want], "{query}");
    }
    // And in the other direction.
    let workspace =
        Workspace::with("# classes\n\n# cache\n\n# processes\n\n# match\n\n# indexes\n\n# alias\n");
    let client = workspace.open();
    for (query, want) in [
        ("class", "classes"),
        ("caching", "cache"),
        ("process", "processes"),
        ("matches", "match"),
        ("index", "indexes"),
        ("aliases", "alias"),
    ] {
        assert_eq!(titles(&client, query), [want], "{query}");
    }
}

#[test]
fn the_total_is_of_all_that_have_a_word() {
    let workspace =
        Workspace::with("# red door\n\n# red wall\n\n# blue door\n\n# green door\n\n# red doors\n");
    let client = workspace.open();
    for (query, total) in [("red door", 5), ("door", 4), ("red elephant", 3), ("blue green", 2)] {
        for limit in [1, 10] {
            let found = client.ok("manual_find", &json!({ "query": query, "limit": limit }));
            let shown = found["items"].as_array().unwrap().len();
            assert_eq!((&found["total"], shown), (&json!(total), limit.min(total)), "{query}");
        }
    }
}

#[test]
fn a_page_is_found_by_the_title_in_its_front_matter() {
    let workspace = Workspace::with("---\ntitle: Zebra crossing\n---\n\n## Rules\n\nStop.\n");
    workspace.manual("b.md", "+++\ntitle = \"Level crossing\"\n+++\n\n## Rules\n\nWait.\n");
    let client = workspace.open();
    let found = client.ok("manual_find", &json!({ "query": "zebra rules" }));
    assert_eq!(found["items"][0]["title"], "Rules");
    assert_eq!(
        (&*place(&found["items"][0]["ref"]), &found["items"][0]["in"]),
        ("m/a.md#L5", &json!("Zebra crossing"))
    );
}

#[test]
fn a_search_can_be_limited_to_a_manual_and_a_number() {
    let workspace = Workspace::with("# key\n".repeat(30));
    fs::create_dir(workspace.path("manuals/other")).unwrap();
    fs::write(workspace.path("manuals/other/b.md"), "# key\n").unwrap();
    let client = workspace.open();
    let count = |arguments: &Value| {
        let found = client.ok("manual_find", arguments);
        (found["items"].as_array().unwrap().len(), found["total"].as_u64().unwrap())
    };
    assert_eq!(count(&json!({ "query": "key" })), (10, 31));
    assert_eq!(count(&json!({ "query": "key", "limit": 3.0 })), (3, 31));
    // Limited by the hard limit of sections.
    assert_eq!(count(&json!({ "query": "key", "limit": 1000 })), (20, 31));
    assert_eq!(count(&json!({ "query": "key", "manual_id": "other" })), (1, 1));
    for (id, code) in [("none", "not_found"), ("..", "invalid_path"), ("/etc", "invalid_path")] {
        assert_eq!(client.code("manual_find", &json!({ "query": "key", "manual_id": id })), code);
    }
    // Equal scores are in the order of the manual.
    let found = client.ok("manual_find", &json!({ "query": "key", "manual_id": "m", "limit": 3 }));
    let places: Vec<_> = found["items"].as_array().unwrap().iter().map(|item| place(&item["ref"])).collect();
    assert_eq!(places, ["m/a.md#L1", "m/a.md#L2", "m/a.md#L3"]);
}

#[test]
fn the_index_follows_every_change() {
    let workspace = Workspace::with("# apple\n");
    let client = workspace.open();
    assert_eq!(titles(&client, "apple"), ["apple"]);
    workspace.manual("b.md", "# banana\n");
    assert_eq!(titles(&client, "banana"), ["banana"]);
    // The same size at the same time.
    workspace.manual("a.md", "# grape\n");
    assert_eq!((titles(&client, "apple").len(), titles(&client, "grape").len()), (0, 1));
    fs::remove_file(workspace.path("manuals/m/b.md")).unwrap();
    assert_eq!(titles(&client, "banana").len(), 0);
    fs::rename(workspace.path("manuals/m/a.md"), workspace.path("manuals/m/c.md")).unwrap();
    let found = client.ok("manual_find", &json!({ "query": "grape" }));
    assert_eq!((&found["total"], &*place(&found["items"][0]["ref"])), (&json!(1), "m/c.md#L1"));
    fs::rename(workspace.path("manuals/m"), workspace.path("manuals/n")).unwrap();
    assert_eq!(
        place(&client.ok("manual_find", &json!({ "query": "grape" }))["items"][0]["ref"]),
        "n/c.md#L1"
    );
    // What cannot be read, or is hidden, is not found; and then it is found again.
    let file = workspace.path("manuals/n/c.md");
    for hide in [
        &|| fs::write(&file, b"# grape\xff\n").unwrap(),
        &|| fs::rename(&file, workspace.path("manuals/n/.c.md")).unwrap(),
        &|| {
            fs::remove_file(&file).unwrap();
            symlink(workspace.path("manuals/n/.c.md"), &file).unwrap();
        },
        &|| fs::File::create(&file).unwrap().set_len(64 * 1024 * 1024 + 1).unwrap(),
        &|| fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap(),
    ] as [&dyn Fn(); 5]
    {
        hide();
        // Root may read every file.
        let is_open = fs::read_to_string(&file).is_ok_and(|text| !file.is_symlink() && text.len() < 100);
        assert_eq!(titles(&client, "grape").len(), usize::from(is_open));
        _ = fs::remove_file(&file);
        fs::write(&file, "# grape\n").unwrap();
        assert_eq!(titles(&client, "grape"), ["grape"]);
    }
}

#[test]
fn what_a_tool_writes_is_found_at_once() {
    let workspace = Workspace::new();
    let client = workspace.open();
    let total = |query: &str| client.ok("vault_find", &json!({ "query": query }))["total"].clone();
    assert_eq!(total("plum"), 0);
    client.ok("vault_create", &json!({ "path": "a.md", "content": "# plum\n" }));
    assert_eq!(total("plum"), 1);
    client.ok("vault_replace", &json!({ "path": "a.md", "find": "plum", "replace": "pear" }));
    assert_eq!((total("plum"), total("pear")), (json!(0), json!(1)));
}

#[test]
fn a_query_has_a_length() {
    let workspace = Workspace::with("# key\n");
    let client = workspace.open();
    let query = |length: usize| json!({ "query": format!("key{}", " x".repeat(length))[..length] });
    assert_eq!(client.ok("manual_find", &query(1000))["total"], 1);
    let error = client.refused("manual_find", &query(1001));
    assert_eq!(error["code"], "invalid_parameter");
    assert_eq!(error["details"], json!({ "size_chars": 1001, "limit_chars": 1000 }));
}

#[test]
fn a_title_and_a_snippet_are_short_and_of_text() {
    let workspace = Workspace::with(format!("{}\n---\n\nbody\n", "long sentence. ".repeat(4000)));
    workspace.manual("s.md", "Install guide\n=============\n\nRun it, then wait.\n");
    let client = workspace.open();
    let found = client.ok("manual_find", &json!({ "query": "sentence" }));
    let toc = client.ok("manual_toc", &json!({ "manual_id": "m", "full": true }));
    for items in [&found, &toc] {
        let title = items["items"][0]["title"].as_str().unwrap();
        assert!(title.chars().count() == 80 && title.ends_with('…'), "{title}");
    }
    let found = client.ok("manual_find", &json!({ "query": "install" }));
    assert_eq!(found["items"][0]["snippet"], "Run it, t…");
}

#[test]
fn what_cannot_be_read_is_skipped_and_nothing_is_written() {
    let workspace = Workspace::with("# key\n");
    workspace.manual("bad.md", b"# key\xff\n");
    let big = fs::File::create(workspace.path("manuals/m/big.md")).unwrap();
    big.set_len(64 * 1024 * 1024 + 1).unwrap();
    fs::write(workspace.path("outside.md"), "# key\n").unwrap();
    symlink(workspace.path("outside.md"), workspace.path("manuals/m/link.md")).unwrap();
    symlink(workspace.path("manuals/m"), workspace.path("manuals/loop")).unwrap();
    let before = names(workspace.dir.path());
    let client = workspace.open();
    let found = client.ok("manual_find", &json!({ "query": "key" }));
    assert_eq!((&found["total"], &*place(&found["items"][0]["ref"])), (&json!(1), "m/a.md#L1"));
    assert_eq!(names(workspace.dir.path()), before);
}

/// The size of the answers that a model pays for, in our own manual.
#[test]
fn hits_and_lines_of_contents_are_short() {
    let workspace = Workspace::new();
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    for page in fs::read_dir(pages).unwrap() {
        let page = page.unwrap();
        let name = page.file_name().into_string().unwrap();
        if page.path().extension().is_some_and(|extension| extension == "md") {
            fs::copy(page.path(), workspace.path("manuals/m").join(name)).unwrap();
        }
    }
    let client = workspace.open();
    for query in
        ["time out of a call", "how do I keep a model from reading files", "session socket bridge", "tools"]
    {
        let found = client.ok("manual_find", &json!({ "query": query }));
        assert_eq!(found["items"].as_array().unwrap().len(), 10, "{query}");
        let bytes = found.to_string().len();
        assert!(bytes <= 1200, "{bytes} bytes for {query}: {found}");
    }
    let toc = client.ok("manual_toc", &json!({ "manual_id": "m" }));
    let items = toc["items"].as_array().unwrap().iter();
    let lines: usize = items.map(|file| file["sections"].as_array().map_or(1, Vec::len)).sum();
    let bytes = toc.to_string().len() / lines;
    assert!(bytes <= 60, "{bytes} bytes for each of {lines} lines");
}

/// The benchmark has the exact figures.
#[test]
fn ten_thousand_sections_are_read_once_and_searched_often() {
    let workspace = Workspace::new();
    for file in 0..100 {
        let mut text = String::new();
        for section in 0..100 {
            text.push_str(&format!("# 第{section}章 Chapter {section}\n\n"));
            text.push_str(
                &"設定ファイルを開き、サーバを再起動します。 Open the settings and restart.\n".repeat(3),
            );
        }
        workspace.manual(&format!("f{file}.md"), format!("{text}# needle{file}\n"));
    }
    let client = workspace.open();
    let time = |query: &str| {
        let started = Instant::now();
        assert_eq!(client.ok("manual_find", &json!({ "query": query }))["total"], 1, "{query}");
        started.elapsed()
    };
    let first = time("needle7");
    // On a busy machine some searches may take longer, but not all of them.
    let later = (8..40).map(|needle| time(&format!("needle{needle}"))).min().unwrap();
    assert!(later * 2 < first, "{first:?} for the first, {later:?} for the quickest of the others");
}
