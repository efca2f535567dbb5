//! Listing and reading manuals.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::{Workspace, reference};

fn read(path: &str, line: impl Into<Value>, scope: &str) -> Value {
    json!({ "ref": reference(path, line), "scope": scope })
}

#[test]
fn manuals_and_files_are_listed_sorted() {
    let workspace = Workspace::with("# A\n");
    workspace.manual("b/z.json", "{}");
    workspace.manual("b/README.MD", "");
    workspace.manual("picture.png", "");
    workspace.manual("bad name./x.md", "");
    fs::create_dir(workspace.path("manuals/a-first")).unwrap();
    fs::create_dir(workspace.path("manuals/日本語")).unwrap();
    fs::write(workspace.path("manuals/stray.md"), "# in no manual").unwrap();
    symlink(workspace.path("manuals/m"), workspace.path("manuals/link")).unwrap();
    symlink("a.md", workspace.path("manuals/m/link.md")).unwrap();
    let client = workspace.open();
    assert_eq!(
        client.ok("manual_list", &json!({})),
        json!({ "items": [{ "manual_id": "a-first" }, { "manual_id": "m" }, { "manual_id": "日本語" }] })
    );
    let files = json!({ "items": [
        { "manual_id": "m", "path": "a.md", "file_type": "md" },
        { "manual_id": "m", "path": "b/README.MD", "file_type": "md" },
        { "manual_id": "m", "path": "b/z.json", "file_type": "json" },
    ] });
    assert_eq!(client.ok("manual_ls", &json!({})), files);
    assert_eq!(client.ok("manual_ls", &json!({ "manual_id": "m" })), files);
    assert_eq!(client.ok("manual_ls", &json!({ "manual_id": "a-first" })), json!({ "items": [] }));
    // Manual by manual, as in the list of manuals; folder by folder.
    fs::create_dir(workspace.path("manuals/m-ja")).unwrap();
    for path in ["m-ja/a.md", "m/b.md", "m/b-c.md"] {
        fs::write(workspace.path("manuals").join(path), "# key\n").unwrap();
    }
    let items = |answer: &Value| -> Vec<String> {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| format!("{}/{}", item["manual_id"], item["path"]).replace('"', "")).collect()
    };
    let want = ["m/a.md", "m/b/README.MD", "m/b/z.json", "m/b-c.md", "m/b.md", "m-ja/a.md"];
    assert_eq!(items(&client.ok("manual_ls", &json!({}))), want);
    let found = client.ok("manual_find", &json!({ "query": "key" }));
    let found: Vec<_> = found["items"].as_array().unwrap().iter().map(|item| &item["ref"]["path"]).collect();
    assert_eq!(found, ["b-c.md", "b.md", "a.md"]);
    for (id, code) in [
        ("none", "not_found"),
        ("link", "out_of_scope"),
        ("..", "out_of_scope"),
        ("", "invalid_path"),
        ("stray.md", "invalid_path"),
    ] {
        for tool in ["manual_ls", "manual_toc"] {
            assert_eq!(client.code(tool, &json!({ "manual_id": id })), code, "{tool} {id}");
        }
    }
}

#[test]
fn the_table_of_contents_has_every_node_with_a_reference_that_works() {
    let workspace = Workspace::with("hello\n# A\n## B\nb\n# C\n");
    workspace.manual("x/data.json", "{}");
    workspace.manual("empty.md", "");
    workspace.manual("broken.md", b"# A\n\xff");
    let client = workspace.open();
    let toc = client.ok("manual_toc", &json!({ "manual_id": "m" }));
    let node = |path: &str, title: &str, level: u8, parent: Option<&str>, lines: (u64, u64)| {
        json!({
            "kind": "heading", "node_id": format!("{path}#L{}", lines.0), "path": path, "title": title, "level": level,
            "parent_id": parent, "line_start": lines.0, "line_end": lines.1, "ref": reference(path, lines.0),
        })
    };
    let want = json!([
        node("a.md", "a.md", 0, None, (1, 1)),
        node("a.md", "A", 1, None, (2, 4)),
        node("a.md", "B", 2, Some("a.md#L2"), (3, 4)),
        node("a.md", "C", 1, None, (5, 5)),
        node("empty.md", "empty.md", 0, None, (1, 1)),
        json!({
            "kind": "json_file", "node_id": "x/data.json", "path": "x/data.json", "title": "data.json", "level": 0,
            "parent_id": null, "line_start": null, "line_end": null, "ref": reference("x/data.json", Value::Null),
        }),
    ]);
    assert_eq!(toc["items"], want);
    for node in toc["items"].as_array().unwrap() {
        client.ok("manual_read", &json!({ "ref": node["ref"] }));
    }
}

#[test]
fn a_scope_says_how_much_is_read() {
    let text = "# A\na\n## B\nb\n## C\nc\n# D\nd\n";
    let workspace = Workspace::with(text);
    let client = workspace.open();
    let rows = [
        (json!(null), 1, "# A\na\n", "snippet", false),
        (json!("snippet"), 1, "# A\na\n", "snippet", false),
        (json!("section"), 1, "# A\na\n## B\nb\n## C\nc\n", "section", false),
        (json!("section"), 3, "## B\nb\n", "section", false),
        (json!("sections"), 3, "## B\nb\n## C\nc\n", "sections", true),
        (json!("sections"), 5, "## C\nc\n# D\nd\n", "sections", false),
    ];
    for (scope, line, want, applied, truncated) in rows {
        let arguments =
            json!({ "ref": reference("a.md", line), "scope": scope, "limits": { "max_sections": 2 } });
        let answer = client.ok("manual_read", &arguments);
        assert_eq!(answer["text"], want, "{arguments}");
        assert_eq!(answer["truncated"], truncated, "{arguments}");
        assert_eq!(answer["applied"], json!({ "scope": applied, "max_sections": 2, "max_chars": 8000 }));
    }
}

#[test]
fn a_line_at_which_no_section_starts_is_not_found() {
    let workspace = Workspace::with("# A\na\n# B\n");
    let client = workspace.open();
    let whole = crate::support::Client::new(workspace.builder().allow_file_scope(true));
    for line in [json!(2), json!(4), json!(1_000_000)] {
        let mut arguments = read("a.md", line.clone(), "section");
        assert_eq!(client.code("manual_read", &arguments), "not_found", "{line}");
        // Of the whole file too, the reference must be right.
        arguments["scope"] = json!("file");
        arguments["limits"] = json!({ "allow_file": true });
        assert_eq!(whole.code("manual_read", &arguments), "not_found", "{line}");
        let copy = crate::support::copy("a.md", line.clone(), "x.md", "append");
        assert_eq!(client.code("bridge_copy_section", &copy), "not_found", "{line}");
    }
    assert_eq!(workspace.vault(), Vec::<String>::new());
    // Null or missing is the first one.
    assert_eq!(client.ok("manual_read", &read("a.md", Value::Null, "section"))["text"], "# A\na\n");
    let missing = json!({ "ref": { "target": "manual", "manual_id": "m", "path": "a.md" } });
    assert_eq!(client.ok("manual_read", &missing)["text"], "# A\na\n");
    assert_eq!(client.ok("manual_read", &read("a.md", 3.0, "section"))["text"], "# B\n");
}

/// Whatever the file is: a number that is no line is no question of what the file has.
#[test]
fn a_line_that_is_no_line_is_an_invalid_parameter() {
    let workspace = Workspace::with("# A\na\n# B\n");
    workspace.manual("a.json", "{}");
    let client = workspace.open();
    for line in
        [json!(2.5), json!(0), json!(-1), json!(1e300), json!(0.0), json!("2"), json!(true), json!([2])]
    {
        for path in ["a.md", "a.json", "none.md"] {
            let copy = crate::support::copy(path, line.clone(), "x.md", "append");
            for (tool, arguments) in [
                ("manual_read", json!({ "ref": reference(path, line.clone()) })),
                ("bridge_copy_section", copy),
            ] {
                let error = client.refused(tool, &arguments);
                assert_eq!(error["code"], "invalid_parameter", "{tool} {arguments}");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains("start_line`: ") && message.contains("from 1 to"), "{message}");
            }
        }
    }
    assert_eq!(workspace.vault(), Vec::<String>::new());
    assert_eq!(client.ok("manual_read", &read("a.md", 3.0, "section"))["text"], "# B\n");
}

#[test]
fn a_whole_md_needs_both_permissions() {
    let workspace = Workspace::with("\u{feff}# A\n# B\n");
    for server in [false, true] {
        let client = crate::support::Client::new(workspace.builder().allow_file_scope(server));
        for call in [Value::Null, json!(false), json!(true)] {
            let mut arguments = read("a.md", 1, "file");
            arguments["limits"] = json!({ "allow_file": call });
            if server && call == true {
                let answer = client.ok("manual_read", &arguments);
                assert_eq!(
                    (&answer["text"], &answer["applied"]["scope"]),
                    (&json!("# A\n# B\n"), &json!("file"))
                );
            } else {
                assert_eq!(client.code("manual_read", &arguments), "forbidden", "{server} {call}");
            }
        }
    }
}

#[test]
fn json_is_read_as_a_file_and_has_no_sections() {
    let workspace = Workspace::new();
    workspace.manual("a.json", "{ not even JSON");
    let client = workspace.open();
    for scope in [Value::Null, json!("file"), json!("snippet")] {
        let answer = client.ok("manual_read", &json!({ "ref": reference("a.json", 77), "scope": scope }));
        assert_eq!(answer["text"], "{ not even JSON");
        assert_eq!(answer["applied"]["scope"], "file", "{scope}");
        assert_eq!(answer["applied"]["max_chars"], 20_000);
    }
    for scope in ["section", "sections"] {
        assert_eq!(client.code("manual_read", &read("a.json", Value::Null, scope)), "invalid_scope");
    }
    let mut with_path = read("a.json", Value::Null, "file");
    with_path["ref"]["json_path"] = json!("$");
    assert_eq!(client.code("manual_read", &with_path), "invalid_parameter");
}

#[test]
fn limits_have_defaults_and_are_lowered_to_the_hard_ones() {
    let long = format!("# A\n{}", "あ".repeat(30_000));
    let workspace = Workspace::with(&long);
    let client = workspace.open();
    let rows = [
        (json!(null), 8000),
        (json!({}), 8000),
        (json!({ "max_chars": null }), 8000),
        (json!({ "max_chars": 10 }), 10),
        (json!({ "max_chars": 1000.0 }), 1000),
        (json!({ "max_chars": 20_000 }), 20_000),
        (json!({ "max_chars": 1_000_000 }), 20_000),
        (json!({ "max_chars": 1e300 }), 20_000),
    ];
    for (limits, want) in rows {
        for _ in 0..2 {
            let arguments = json!({ "ref": reference("a.md", 1), "scope": "section", "limits": limits });
            let answer = client.ok("manual_read", &arguments);
            assert_eq!(answer["text"].as_str().unwrap().chars().count(), want, "{limits}");
            assert_eq!((&answer["truncated"], &answer["applied"]["max_chars"]), (&json!(true), &json!(want)));
        }
    }
    for (asked, applied) in [(json!(null), 20), (json!(7), 7), (json!(1000), 20), (json!(1e300), 20)] {
        let arguments = json!({ "ref": reference("a.md", 1), "limits": { "max_sections": asked } });
        assert_eq!(client.ok("manual_read", &arguments)["applied"]["max_sections"], applied, "{asked}");
    }
    let low = crate::support::Client::new(workspace.builder().hard_max_chars(100).hard_max_sections(3));
    let answer = low.ok("manual_read", &read("a.md", 1, "section"));
    assert_eq!(answer["applied"], json!({ "scope": "section", "max_sections": 3, "max_chars": 100 }));
    assert_eq!(client.ok("manual_read", &read("a.md", 1, "section"))["applied"]["max_sections"], 20);
}

#[test]
fn json_over_the_limit_is_refused_unless_the_call_asks_for_a_part() {
    let workspace = Workspace::new();
    let text = format!("[{}]", "\"é\",".repeat(10_000));
    workspace.manual("big.json", &text);
    let client = workspace.open();
    let error = client.refused("manual_read", &json!({ "ref": reference("big.json", Value::Null) }));
    assert_eq!(error["code"], "forbidden");
    assert_eq!(
        (&error["details"]["size_chars"], &error["details"]["limit_chars"]),
        (&json!(40_002), &json!(20_000))
    );
    assert!(error["details"]["raise"].as_str().unwrap().contains("HARD_MAX_CHARS"));
    let asked = json!({ "ref": reference("big.json", Value::Null), "limits": { "max_chars": 5 } });
    let answer = client.ok("manual_read", &asked);
    assert_eq!((&answer["text"], &answer["truncated"]), (&json!("[\"é\","), &json!(true)));
    let raised = crate::support::Client::new(workspace.builder().hard_max_chars(50_000));
    assert_eq!(raised.ok("manual_read", &json!({ "ref": reference("big.json", Value::Null) }))["text"], text);
}

#[test]
fn text_that_is_not_utf8_is_an_io_error_with_the_place() {
    let workspace = Workspace::with(b"# A\n\xff\n");
    workspace.manual("a.json", b"{\"a\":\"\xc3(\"}");
    let client = workspace.open();
    for (path, position) in [("a.md", 4), ("a.json", 6)] {
        let error = client.refused("manual_read", &json!({ "ref": reference(path, Value::Null) }));
        assert_eq!(
            (&error["code"], &error["details"]["byte_position"]),
            (&json!("io_error"), &json!(position))
        );
        let copy = crate::support::copy(path, Value::Null, "x.md", "append");
        assert_eq!(client.code("bridge_copy_section", &copy), "io_error");
    }
}

#[test]
fn a_file_that_changed_is_read_anew() {
    let workspace = Workspace::with("# A\nold\n# B\n");
    let path = workspace.path("manuals/m/a.md");
    let client = workspace.open();
    let text = |line: u64| {
        client.call("manual_read", &read("a.md", line, "section"))["structuredContent"]["text"].clone()
    };
    assert_eq!(text(3), "# B\n");
    // Of the same size and at once: the clock of the filesystem may not have moved.
    fs::write(&path, "# A\n# B\nnew\n").unwrap();
    assert_eq!((text(1), text(2), text(3)), (json!("# A\n"), json!("# B\nnew\n"), Value::Null));
    // Long ago, so that its sections are remembered; then changed in place, with the old time put back.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let set_time = || fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    set_time();
    std::thread::sleep(std::time::Duration::from_millis(150));
    assert_eq!((text(2), text(2)), (json!("# B\nnew\n"), json!("# B\nnew\n")));
    fs::write(&path, "# A\nb\n# New").unwrap();
    set_time();
    assert_eq!((text(1), text(2), text(3)), (json!("# A\nb\n"), Value::Null, json!("# New")));
}
