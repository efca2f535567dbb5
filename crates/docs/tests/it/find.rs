//! Searching: what is found, in which order, and that it is always up to date.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{Client, Workspace, names, reference};

fn titles(client: &Client, query: &str) -> Vec<String> {
    let found = client.ok("manual_find", &json!({ "query": query }));
    found["items"].as_array().unwrap().iter().map(|item| item["title"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_item_has_a_reference_a_title_a_score_and_a_snippet() {
    let workspace = Workspace::with("# Locks\n\nTurn the key.\n\n## Spare keys\n\nAsk at the desk.\n");
    workspace.manual("data.json", "{\"door\": \"green\"}");
    let client = workspace.open();
    let found = client.ok("manual_find", &json!({ "query": "KEY" }));
    assert_eq!(found["total"], 2);
    assert_eq!(found["items"][0]["ref"], reference("a.md", 5));
    assert_eq!(found["items"][0]["snippet"], "Ask at t…");
    assert_eq!(found["items"][1]["ref"], reference("a.md", 1));
    assert_eq!(found["items"][1]["snippet"], "…e key.");
    assert!(found["items"][0]["score"].as_f64() > found["items"][1]["score"].as_f64());
    let found = client.ok("manual_find", &json!({ "query": "green" }));
    assert_eq!(found["items"][0]["ref"], reference("data.json", Value::Null));
    assert_eq!(found["items"][0]["title"], "data.json");
    assert_eq!(client.ok("manual_find", &json!({ "query": "nothing" })), json!({ "items": [], "total": 0 }));
}

#[test]
fn a_subsection_is_found_by_its_parents_title_too() {
    let workspace = Workspace::with("# Linux\n\n## Install\n\nx\n\n# Windows\n\n## Install\n\ny\n");
    let client = workspace.open();
    let found = client.ok("manual_find", &json!({ "query": "install windows" }));
    assert_eq!(found["items"][0]["ref"]["start_line"], 9);
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
    // Lowered to the hard limit of sections.
    assert_eq!(count(&json!({ "query": "key", "limit": 1000 })), (20, 31));
    assert_eq!(count(&json!({ "query": "key", "manual_id": "other" })), (1, 1));
    for (id, code) in [("none", "not_found"), ("..", "out_of_scope"), ("/etc", "out_of_scope")] {
        assert_eq!(client.code("manual_find", &json!({ "query": "key", "manual_id": id })), code);
    }
    // Equally good ones come in the order of the manual.
    let found = client.ok("manual_find", &json!({ "query": "key", "manual_id": "m", "limit": 3 }));
    let lines: Vec<_> =
        found["items"].as_array().unwrap().iter().map(|item| &item["ref"]["start_line"]).collect();
    assert_eq!(lines, [1, 2, 3]);
}

#[test]
fn the_index_follows_every_change() {
    let workspace = Workspace::with("# apple\n");
    let client = workspace.open();
    assert_eq!(titles(&client, "apple"), ["apple"]);
    workspace.manual("b.md", "# banana\n");
    assert_eq!(titles(&client, "banana"), ["banana"]);
    // Same size, same moment.
    workspace.manual("a.md", "# grape\n");
    assert_eq!((titles(&client, "apple").len(), titles(&client, "grape").len()), (0, 1));
    fs::remove_file(workspace.path("manuals/m/b.md")).unwrap();
    assert_eq!(titles(&client, "banana").len(), 0);
    fs::rename(workspace.path("manuals/m/a.md"), workspace.path("manuals/m/c.md")).unwrap();
    let found = client.ok("manual_find", &json!({ "query": "grape" }));
    assert_eq!((&found["total"], &found["items"][0]["ref"]["path"]), (&json!(1), &json!("c.md")));
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
    let toc = client.ok("manual_toc", &json!({ "manual_id": "m" }));
    for items in [&found, &toc] {
        let title = items["items"][0]["title"].as_str().unwrap();
        assert!(title.chars().count() == 201 && title.ends_with('…'), "{title}");
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
    assert_eq!((&found["total"], &found["items"][0]["ref"]["path"]), (&json!(1), &json!("a.md")));
    assert_eq!(names(workspace.dir.path()), before);
}

/// The benchmark has the figures.
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
    // On a busy machine one may take longer, but not all of them.
    let later = (8..40).map(|needle| time(&format!("needle{needle}"))).min().unwrap();
    assert!(later * 2 < first, "{first:?} for the first, {later:?} for the quickest of the others");
}
