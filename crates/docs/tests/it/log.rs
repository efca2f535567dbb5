//! One line of JSON for each call, without any body text.

use serde_json::{Value, json};
use toolbridge_docs::LogLevel;

use crate::support::{Client, Workspace, copy, copy_file, reference};

#[test]
fn every_call_has_one_line_with_the_fields_of_the_specification() {
    let workspace = Workspace::with("# A\nsecret\n");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    client.ok("manual_list", &json!({}));
    client.ok("bridge_copy_section", &copy("a.md", 1, "x.md", "append"));
    client.ok("bridge_copy_file", &copy_file("a.md", "x.md", "overwrite"));
    client.refused("bridge_copy_section", &copy("none.md", 1, "x.md", "append"));
    client.refused("bridge_copy_section", &json!({}));
    std::fs::write(workspace.path("manuals/m/bad.md"), b"\xff").unwrap();
    client.refused("manual_read", &json!({ "ref": reference("bad.md", 1) }));
    let lines = client.lines();
    let want = [
        json!({ "level": "info", "tool": "manual_list", "ok": true }),
        json!({
            "level": "info", "tool": "bridge_copy_section", "ok": true, "written_path": "x.md", "mode": "append",
            "written_bytes": 11, "written_sections": 1, "truncated": false,
        }),
        json!({
            "level": "info", "tool": "bridge_copy_file", "ok": true, "written_path": "x.md", "mode": "overwrite",
            "written_bytes": 11, "truncated": false,
        }),
        json!({ "level": "warn", "tool": "bridge_copy_section", "ok": false, "code": "not_found" }),
        json!({ "level": "warn", "tool": "bridge_copy_section", "ok": false, "code": "invalid_parameter" }),
        json!({ "level": "error", "tool": "manual_read", "ok": false, "code": "io_error" }),
    ];
    assert_eq!(lines.len(), want.len());
    for (mut line, want) in lines.into_iter().zip(want) {
        let members = line.as_object_mut().unwrap();
        let ts = members.remove("ts").unwrap();
        assert!(ts.as_str().unwrap().ends_with('Z'), "{ts}");
        assert!(members.remove("elapsed_ms").unwrap().as_f64().unwrap() >= 0.0);
        assert_eq!(line, want);
    }
}

#[test]
fn the_level_says_which_lines_are_written() {
    let workspace = Workspace::with(b"\xff");
    for (level, want) in [
        (LogLevel::Info, vec!["info", "warn", "error"]),
        (LogLevel::Warn, vec!["warn", "error"]),
        (LogLevel::Error, vec!["error"]),
    ] {
        let client = Client::new(workspace.builder().log_level(level));
        client.ok("manual_list", &json!({}));
        client.refused("manual_toc", &json!({ "manual_id": "none" }));
        client.refused("manual_read", &json!({ "ref": reference("a.md", 1) }));
        let levels: Vec<_> = client.lines().iter().map(|line| line["level"].clone()).collect();
        assert_eq!(levels, want);
    }
}

/// In no case does a log line or an answer of a bridge contain body text.
#[test]
fn no_body_text_is_in_a_log_line_or_a_bridges_answer() {
    let secret = "correct-horse-battery";
    // Titles are shown, the text below them is not.
    let workspace = Workspace::with(format!("# Title\n\n{secret}\n\n## Another\n\n{secret}\n"));
    workspace.manual("big.json", format!("[\"{secret}{}\"]", "x".repeat(30_000)));
    workspace.manual("bad.md", [secret.as_bytes(), b"\xff"].concat());
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let mut seen: Vec<Value> = Vec::new();
    for mode in ["overwrite", "append"] {
        for path in ["a.md", "big.json", "bad.md"] {
            seen.push(client.call("bridge_copy_section", &copy(path, 1, "x.md", mode)));
            seen.push(client.call("bridge_copy_section", &copy(path, 3, "x.md", mode)));
            seen.push(client.call("bridge_copy_file", &copy_file(path, "y.md", mode)));
        }
    }
    client.ok("manual_toc", &json!({ "manual_id": "m" }));
    client.ok("manual_find", &json!({ "query": secret }));
    client.ok("manual_read", &json!({ "ref": reference("a.md", 1) }));
    client.ok("vault_read", &json!({ "path": "x.md" }));
    client.ok("vault_replace", &json!({ "path": "x.md", "find": secret, "replace": "horse" }));
    seen.extend(client.lines());
    assert!(seen.len() > 30);
    for one in seen {
        assert!(!one.to_string().contains("horse"), "{one}");
    }
}
