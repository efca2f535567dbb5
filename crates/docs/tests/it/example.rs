//! The project's example workspace, from search to copy.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Client, Workspace};

fn manuals() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workspace/manuals")
}

fn open(workspace: &Workspace) -> Client {
    Client::new(workspace.builder().manuals(manuals()))
}

#[test]
fn a_question_in_either_language_finds_its_section() {
    let workspace = Workspace::new();
    let client = open(&workspace);
    for (query, title) in [
        ("descale", "Every three months: descale"),
        ("how do I fill the tank with water", "Fill the water tank"),
        ("HOW OFTEN CLEAN BREW GROUP", "Every week"),
        ("カメラの再起動", "カメラの再起動"),
        ("会議室の予約", "予約"),
        ("パスワード", "ネットワーク"),
        ("ｗｉ-ｆｉ", "ネットワーク"),
        ("service_phone", "settings.json"),
    ] {
        let found = client.ok("manual_find", &json!({ "query": query }));
        assert_eq!(found["items"][0]["title"], title, "{query}: {found}");
        assert!(found["total"].as_u64().unwrap() >= 1);
    }
}

#[test]
fn what_was_found_is_copied_byte_for_byte_and_shown_nowhere() {
    let workspace = Workspace::new();
    let client = open(&workspace);
    let found = client.ok("manual_find", &json!({ "query": "画面とカメラ", "limit": 1 }));
    client.lines();
    let copied = client.call(
        "bridge_copy_section",
        &json!({ "from_ref": found["items"][0]["ref"], "to_path": "会議/画面.md", "mode": "overwrite" }),
    );
    let source = fs::read_to_string(manuals().join("office-ja/設備/会議室.md")).unwrap();
    let start = source.find("## 画面とカメラ").unwrap();
    let section = &source[start..source.find("## 片付け").unwrap()];
    assert_eq!(workspace.text("会議/画面.md"), section);
    assert_eq!(
        copied["structuredContent"],
        json!({ "written_path": "会議/画面.md", "written_bytes": section.len(), "written_sections": 1,
            "truncated": false, "title": "画面とカメラ" })
    );
    let lines = client.lines();
    for word in ["HDMI", "背面", "ケーブル", "再起動"] {
        assert!(section.contains(word));
        assert!(!copied.to_string().contains(word), "{copied}");
        assert!(!json!(lines).to_string().contains(word), "{lines:?}");
    }
}

#[test]
fn the_examples_table_of_contents_is_what_a_reader_sees() {
    let workspace = Workspace::new();
    let toc = open(&workspace).ok("manual_toc", &json!({ "manual_id": "espresso-machine", "full": true }));
    let titles: Vec<_> = toc["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| format!("{} {}", node["level"], node["title"].as_str().unwrap()))
        .collect();
    assert_eq!(
        titles,
        [
            "0 guide.md",
            "1 First use",
            "2 Unpack and place",
            "2 Fill the water tank",
            "2 Rinse",
            "1 Make a coffee",
            "2 Espresso",
            "2 Milk",
            "1 Errors",
            "1 Maintenance",
            "2 Every day",
            "2 Every week",
            "2 Every three months: descale",
            "3 What you need",
            "3 How it works",
            "0 settings.json",
        ]
    );
    assert_eq!(toc["items"][15]["ref"]["start_line"], Value::Null);
}
