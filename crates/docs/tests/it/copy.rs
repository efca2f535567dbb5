//! Copying: the specified rules of the two bridges.

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Client, Workspace, copy, copy_file, reference};

fn with_limits(mut call: Value, limits: Value) -> Value {
    call["limits"] = limits;
    call
}

#[test]
fn a_section_is_copied_with_its_own_bytes_and_its_subsections() {
    let text = "intro\r\n\r\n# A\r\n日本語 \u{2028}\r\n## B\r\n```\r\n# no\r\n```\r\n# C";
    let workspace = Workspace::with(text);
    let client = workspace.open();
    for (line, want) in [
        (1, "intro\r\n\r\n"),
        (3, "# A\r\n日本語 \u{2028}\r\n## B\r\n```\r\n# no\r\n```\r\n"),
        (5, "## B\r\n```\r\n# no\r\n```\r\n"),
        (9, "# C"),
    ] {
        let answer = client.copy("a.md", line, "deep/er/x.md", "overwrite");
        assert_eq!(workspace.text("deep/er/x.md"), want);
        let title = json!(["a.md", "A", "B", "C"][[1, 3, 5, 9].iter().position(|one| *one == line).unwrap()]);
        assert_eq!(
            answer,
            json!({ "written_path": "deep/er/x.md", "written_bytes": want.len(), "written_sections": 1,
                "truncated": false, "title": title })
        );
    }
    assert_eq!(workspace.vault(), ["deep", "deep/er", "deep/er/x.md"]);
}

#[test]
fn one_call_copies_one_section() {
    let workspace = Workspace::with("# A\na\n# B\nb");
    let client = workspace.open();
    for refs in [json!(["m/a.md#L1", "m/a.md#L3"]), json!(["m/a.md#L1"]), json!([])] {
        let call = json!({ "from_ref": refs, "to_path": "x.md", "mode": "overwrite" });
        let error = client.refused("bridge_copy_section", &call);
        assert_eq!(error["code"], "invalid_parameter", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("\"book/ch16.md#L98\"") && message.contains("\"manual_id\":\"book\""),
            "{message}"
        );
    }
    let under = json!({ "from_ref": "m/a.md", "to_path": "x.md", "mode": "append", "under": "A" });
    assert_eq!(client.code("bridge_copy_section", &under), "invalid_parameter");
    assert_eq!(workspace.vault(), Vec::<String>::new());
}

/// Copies as long as there is a `next`, at most so many characters in each call.
fn copy_all(
    workspace: &Workspace,
    client: &Client,
    tool: &str,
    from: &str,
    mut call: Value,
    max_chars: usize,
) {
    let target = call["to_path"].as_str().unwrap().to_owned();
    let mut before = 0;
    for calls in 1.. {
        let copied = client.ok(tool, &call);
        assert_eq!(copied["truncated"], !copied["next"].is_null(), "{copied}");
        let text = workspace.text(&target);
        let chars = text.trim_start_matches('\u{feff}').chars().count();
        assert!(chars - before <= max_chars, "{before} and then {chars} characters: {copied}");
        before = chars;
        if copied["next"].is_null() {
            return;
        }
        assert!(calls < 1000, "there is no end: {copied}");
        call[from] = copied["next"].clone();
        call["mode"] = json!("append");
    }
    unreachable!("there is always another number")
}

#[test]
fn the_limits_hold_also_for_a_call_that_names_none() {
    let text: String =
        (0..41).map(|number| format!("{}# T{number}\n", if number == 0 { "" } else { "#" })).collect();
    let workspace = Workspace::with(&text);
    for (most, taken) in [(None, 20), (Some(2), 2)] {
        let mut builder = workspace.builder().allow_file_scope(true);
        if let Some(most) = most {
            builder = builder.hard_max_sections(most);
        }
        let client = Client::new(builder);
        let want: String = text.split_inclusive('\n').take(taken).collect();
        let mut reading = vec![
            json!({ "ref": "m/a.md", "scope": "section" }),
            json!({ "ref": "m/a.md", "scope": "sections" }),
            json!({ "ref": "m/a.md", "scope": "file", "limits": { "allow_file": true } }),
        ];
        for call in &mut reading {
            let mut read = String::new();
            for calls in 1.. {
                let answer = client.ok("manual_read", call);
                read.push_str(answer["text"].as_str().unwrap());
                if calls == 1 {
                    assert_eq!(
                        (&answer["text"], &answer["truncated"]),
                        (&json!(want), &json!(true)),
                        "{call}"
                    );
                }
                if answer["next"].is_null() {
                    break;
                }
                assert!(calls < 100, "there is no end: {answer}");
                call["ref"] = answer["next"].clone();
            }
            assert_eq!(read, text, "{call}");
        }
        for (tool, from, call) in [
            ("bridge_copy_section", "from_ref", copy("a.md", 1, "x.md", "overwrite")),
            ("bridge_copy_file", "from_path", copy_file("a.md", "x.md", "overwrite")),
        ] {
            assert_eq!(client.ok(tool, &call)["truncated"], true, "{tool}");
            assert_eq!(workspace.text("x.md"), want, "{tool}");
            copy_all(&workspace, &client, tool, from, call, 8000);
            assert_eq!(workspace.text("x.md"), text, "{tool}");
        }
    }
}

/// The lines of a text with their ends.
fn lines(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let is_end = |at: usize| bytes[at] == b'\n' || bytes[at] == b'\r' && bytes.get(at + 1) != Some(&b'\n');
    let ends = (0..bytes.len()).filter(|at| is_end(*at) || at + 1 == bytes.len()).map(|at| at + 1);
    ends.scan(0, |from, end| Some(&text[std::mem::replace(from, end)..end])).collect()
}

/// Pieces of which every text is made: headings of all kinds, long and empty lines, every line end.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "#{1,4} [a-z日]{0,4}",
        "[a-z 日é]{0,40}",
        Just("A\n=".to_owned()),
        Just("```\n# no\n```".to_owned()),
        Just("\u{feff}[a](b.md)".to_owned()),
    ];
    let end = prop_oneof![4 => Just("\n"), 2 => Just("\r\n"), 1 => Just("\r"), 1 => Just("")];
    let line = (piece, end).prop_map(|(piece, end)| piece + end);
    (any::<bool>(), prop::collection::vec(line, 0..12))
        .prop_map(|(bom, lines)| format!("{}{}", if bom { "\u{feff}" } else { "" }, lines.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn following_next_until_the_end_gives_the_source_byte_for_byte(
        text in text(),
        max_chars in 1_usize..50,
        max_sections in 1_usize..4,
        by_server in any::<bool>(),
    ) {
        let workspace = Workspace::with(&text);
        workspace.manual("a.json", &text);
        let builder = || workspace.builder().allow_file_scope(true);
        let whole = Client::new(builder().hard_max_sections(1000));
        let limits = json!({ "max_chars": max_chars, "max_sections": max_sections, "allow_file": true });
        let (client, limits) = if by_server {
            let client = Client::new(builder().hard_max_chars(max_chars).hard_max_sections(max_sections));
            (client, json!({ "allow_file": true }))
        } else {
            (Client::new(builder()), limits)
        };
        let toc = whole.ok("manual_toc", &json!({ "manual_id": "m", "path": "a.md", "full": true }));
        let lines = lines(text.strip_prefix('\u{feff}').unwrap_or(&text));
        for node in toc["items"].as_array().unwrap() {
            let call = json!({ "from_ref": node["ref"], "to_path": "x.md", "mode": "overwrite" });
            let call = with_limits(call, limits.clone());
            copy_all(&workspace, &client, "bridge_copy_section", "from_ref", call, max_chars);
            let [start, end] = ["line_start", "line_end"]
                .map(|name| usize::try_from(node[name].as_u64().unwrap()).unwrap());
            prop_assert_eq!(workspace.text("x.md"), lines[start - 1..end.min(lines.len())].concat(), "{}", node);
        }
        let call = with_limits(copy_file("a.md", "x.md", "overwrite"), limits.clone());
        copy_all(&workspace, &client, "bridge_copy_file", "from_path", call, max_chars);
        prop_assert_eq!(workspace.text("x.md"), text.clone());
        // Half a `.json` is copied only if the call sets the limit.
        let limits = json!({ "max_chars": max_chars });
        let call = with_limits(copy_file("a.json", "x.json", "overwrite"), limits.clone());
        copy_all(&workspace, &client, "bridge_copy_file", "from_path", call, max_chars);
        prop_assert_eq!(workspace.text("x.json"), text.clone());
        let call = with_limits(copy("a.json", Value::Null, "x.json", "overwrite"), limits);
        copy_all(&workspace, &client, "bridge_copy_section", "from_ref", call, max_chars);
        prop_assert_eq!(workspace.text("x.json"), text);
    }
}

/// A part that begins in the middle of a line goes on with that line; all others start on a line of their own.
#[test]
fn a_rest_joins_the_line_that_it_continues_and_no_other() {
    let workspace = Workspace::with("# A\none two three\nfour\n");
    let client = workspace.open();
    for (max_chars, kept, rest) in
        [(14, "# A\none two ", "three\nfour\n"), (18, "# A\none two three\n", "four\n")]
    {
        let mut call = with_limits(copy("a.md", 1, "x.md", "overwrite"), json!({ "max_chars": max_chars }));
        let next = client.ok("bridge_copy_section", &call)["next"].clone();
        assert_eq!(workspace.text("x.md"), kept);
        (call["from_ref"], call["mode"], call["limits"]) = (next, json!("append"), Value::Null);
        let copied = client.ok("bridge_copy_section", &call);
        assert_eq!(
            (workspace.text("x.md"), &copied["written_bytes"]),
            (format!("{kept}{rest}"), &json!(rest.len()))
        );
    }
    workspace.note("y.md", "other");
    let mut call = with_limits(copy("a.md", 1, "x.md", "overwrite"), json!({ "max_chars": 18 }));
    call["from_ref"] = client.ok("bridge_copy_section", &call)["next"].clone();
    (call["to_path"], call["mode"]) = (json!("y.md"), json!("append"));
    client.ok("bridge_copy_section", &call);
    assert_eq!(workspace.text("y.md"), "other\nfour\n");
}

#[test]
fn an_append_starts_on_its_own_line_and_counts_the_newline() {
    let workspace = Workspace::with("# A\na");
    let client = workspace.open();
    assert_eq!(client.copy("a.md", 1, "x.md", "append")["written_bytes"], 5);
    assert_eq!(client.copy("a.md", 1, "x.md", "append")["written_bytes"], 6);
    workspace.note("y.md", "y\n");
    assert_eq!(client.copy("a.md", 1, "y.md", "append")["written_bytes"], 5);
    workspace.note("z.md", "");
    assert_eq!(client.copy("a.md", 1, "z.md", "append")["written_bytes"], 5);
    assert_eq!(
        (workspace.text("x.md"), workspace.text("y.md"), workspace.text("z.md")),
        ("# A\na\n# A\na".into(), "y\n# A\na".into(), "# A\na".into())
    );
}

#[test]
fn written_path_is_in_normal_form() {
    let workspace = Workspace::with("# A\n");
    let client = workspace.open();
    assert_eq!(client.copy("./a.md", 1, ".\\sub\\./x.md", "append")["written_path"], "sub/x.md");
    assert_eq!(workspace.text("sub/x.md"), "# A\n");
}

#[test]
fn a_long_section_is_cut_between_characters_and_says_so() {
    let workspace = Workspace::with(format!("# A\n{}", "あ".repeat(30_000)));
    let client = workspace.open();
    for (limits, chars) in [
        (json!(null), 8000),
        (json!({ "max_chars": 9 }), 9),
        (json!({ "max_chars": 9.0 }), 9),
        (json!({ "max_chars": 99_999_999 }), 20_000),
    ] {
        let answer =
            client.ok("bridge_copy_section", &with_limits(copy("a.md", 1, "x.md", "overwrite"), limits));
        assert_eq!((&answer["truncated"], &answer["written_sections"]), (&json!(true), &json!(1)));
        let copied = workspace.text("x.md");
        assert_eq!(copied.chars().count(), chars);
        assert_eq!(answer["written_bytes"], copied.len());
    }
    // Exactly at the limit, nothing is cut.
    workspace.manual("b.md", format!("# B\n{}", "あ".repeat(4)));
    let answer = client.ok(
        "bridge_copy_section",
        &with_limits(copy("b.md", 1, "y.md", "append"), json!({ "max_chars": 8 })),
    );
    assert_eq!(answer["truncated"], false);
}

#[test]
fn a_section_may_be_empty() {
    let workspace = Workspace::with("");
    let client = workspace.open();
    workspace.note("old.md", "old");
    assert_eq!(client.copy("a.md", 1, "old.md", "append")["written_bytes"], 0);
    assert_eq!(workspace.text("old.md"), "old");
    assert_eq!(client.copy("a.md", 1, "old.md", "overwrite")["written_bytes"], 0);
    assert_eq!(client.copy("a.md", 1, "new.md", "append")["written_bytes"], 0);
    assert_eq!((workspace.text("old.md"), workspace.text("new.md")), (String::new(), String::new()));
}

#[test]
fn json_is_copied_as_a_file_by_both() {
    let workspace = Workspace::new();
    workspace.manual("a.json", "{\"a\":1}");
    let client = workspace.open();
    let answer = client.copy("a.json", 1, "x.json", "overwrite");
    assert_eq!(answer["written_bytes"], 7);
    let call = json!({ "from_path": "a.json", "manual_id": "m", "to_path": "y.json", "mode": "overwrite" });
    assert_eq!(
        client.ok("bridge_copy_file", &call),
        json!({ "written_path": "y.json", "written_bytes": 7, "truncated": false })
    );
    assert_eq!(
        (workspace.text("x.json"), workspace.text("y.json")),
        ("{\"a\":1}".into(), "{\"a\":1}".into())
    );
}

#[test]
fn half_a_json_is_only_written_when_asked_for() {
    let workspace = Workspace::new();
    workspace.manual("big.json", "x".repeat(20_001));
    let client = workspace.open();
    let file =
        json!({ "from_path": "big.json", "manual_id": "m", "to_path": "new/x.json", "mode": "overwrite" });
    for (tool, call) in [
        ("bridge_copy_section", copy("big.json", Value::Null, "new/x.json", "overwrite")),
        ("bridge_copy_file", file),
    ] {
        let error = client.refused(tool, &call);
        assert_eq!((&error["code"], &error["details"]["limit_chars"]), (&json!("forbidden"), &json!(20_000)));
        assert_eq!(workspace.vault(), Vec::<String>::new(), "nothing is written");
    }
    let call =
        with_limits(copy("big.json", Value::Null, "x.json", "overwrite"), json!({ "max_chars": 50_000 }));
    assert_eq!(client.ok("bridge_copy_section", &call)["truncated"], true);
    assert_eq!(workspace.read("x.json").len(), 20_000);
}

#[test]
fn a_whole_md_needs_both_permissions() {
    let workspace = Workspace::with("# A\n# B\n");
    for server in [false, true] {
        let client = Client::new(workspace.builder().allow_file_scope(server));
        for call in [Value::Null, json!(false), json!(true)] {
            let arguments =
                with_limits(copy_file("a.md", "x.md", "overwrite"), json!({ "allow_file": call }));
            if server && call == true {
                assert_eq!(client.ok("bridge_copy_file", &arguments)["written_bytes"], 8);
                assert_eq!(workspace.text("x.md"), "# A\n# B\n");
            } else {
                assert_eq!(client.code("bridge_copy_file", &arguments), "forbidden", "{server} {call}");
                assert_eq!(workspace.vault(), Vec::<String>::new());
            }
        }
        let without = json!({ "from_path": "a.md", "manual_id": "m", "to_path": "y.md", "mode": "append" });
        assert_eq!(client.code("bridge_copy_file", &without), "forbidden");
    }
}

#[test]
fn the_byte_order_mark_is_kept_by_a_whole_overwrite_only() {
    let workspace = Workspace::with("\u{feff}# A\n");
    workspace.manual("a.json", "\u{feff}{}");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    client.ok("bridge_copy_file", &copy_file("a.md", "whole.md", "overwrite"));
    client.ok("bridge_copy_file", &copy_file("a.md", "added.md", "append"));
    client.copy("a.md", 1, "section.md", "overwrite");
    client.copy("a.json", 1, "a.json", "overwrite");
    assert_eq!(workspace.text("whole.md"), "\u{feff}# A\n");
    assert_eq!(workspace.text("added.md"), "# A\n");
    assert_eq!(workspace.text("section.md"), "# A\n");
    assert_eq!(workspace.text("a.json"), "\u{feff}{}");
}

/// The byte order mark of a `.json` counts as a character, because it is copied too.
#[test]
fn the_byte_order_mark_of_a_json_counts() {
    let workspace = Workspace::new();
    workspace.manual("fits.json", format!("\u{feff}{}", "1".repeat(19_999)));
    workspace.manual("over.json", format!("\u{feff}{}", "1".repeat(20_000)));
    let client = workspace.open();
    client.copy("fits.json", Value::Null, "fits.json", "overwrite");
    assert_eq!(workspace.text("fits.json").chars().count(), 20_000);
    let error = client.refused("bridge_copy_section", &copy("over.json", Value::Null, "x.json", "overwrite"));
    assert_eq!((&error["code"], &error["details"]["size_chars"]), (&json!("forbidden"), &json!(20_001)));
    let mut call = copy("over.json", Value::Null, "part.json", "overwrite");
    call["limits"] = json!({ "max_chars": 3 });
    client.ok("bridge_copy_section", &call);
    assert_eq!(workspace.text("part.json"), "\u{feff}11");
}

#[test]
fn every_bad_source_has_its_code_and_leaves_no_target() {
    let workspace = Workspace::with("# A\n");
    std::fs::create_dir(workspace.path("manuals/m/dir.md")).unwrap();
    symlink("a.md", workspace.path("manuals/m/link.md")).unwrap();
    symlink("m", workspace.path("manuals/linked")).unwrap();
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let rows = [
        ("none.md", "m", "not_found"),
        ("a.md/b.md", "m", "invalid_path"),
        ("a.md", "none", "not_found"),
        ("dir.md", "m", "forbidden"),
        ("../m/a.md", "m", "invalid_path"),
        ("x/../../m/a.md", "m", "invalid_path"),
        ("/etc/passwd.md", "m", "invalid_path"),
        ("..\\m\\a.md", "m", "invalid_path"),
        ("C:\\a.md", "m", "invalid_path"),
        ("link.md", "m", "out_of_scope"),
        ("x/../a.md", "m", "invalid_path"),
        ("a.md/.", "m", "invalid_path"),
        ("a\n.md", "m", "invalid_path"),
        ("", "m", "invalid_path"),
        ("a\0.md", "m", "invalid_path"),
        ("a.md", "..", "invalid_path"),
        ("a.md", "/etc", "invalid_path"),
        ("a.md", "linked", "out_of_scope"),
        ("a.md", "m\n", "invalid_path"),
        ("a.md", "m/../m", "invalid_path"),
        ("a.md", "", "invalid_path"),
        ("a.md.", "m", "invalid_path"),
        ("a.pdf", "m", "invalid_parameter"),
    ];
    for (path, manual, code) in rows {
        let mut call = copy_file(path, "new/x.md", "append");
        call["manual_id"] = json!(manual);
        assert_eq!(client.code("bridge_copy_file", &call), code, "{path:?} of {manual:?}");
        let mut call = copy(path, 1, "new/x.md", "append");
        call["from_ref"]["manual_id"] = json!(manual);
        assert_eq!(client.code("bridge_copy_section", &call), code, "{path:?} of {manual:?}");
        let mut reference = reference(path, 1);
        reference["manual_id"] = json!(manual);
        assert_eq!(client.code("manual_read", &json!({ "ref": reference })), code, "{path:?} of {manual:?}");
    }
    assert_eq!(workspace.vault(), Vec::<String>::new());
}

/// A reference must fit the kind of file.
#[test]
fn a_reference_that_does_not_fit_the_kind_of_file_has_its_code() {
    let workspace = Workspace::with("# A\na\n# B\n");
    workspace.manual("a.json", "{}");
    workspace.manual("a.pdf", "text");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let section = |path: &str, line: Value, json_path: Value| {
        let mut call = copy(path, line, "x.md", "overwrite");
        call["from_ref"]["json_path"] = json_path;
        ("bridge_copy_section", call)
    };
    let file = |path: &str| ("bridge_copy_file", copy_file(path, "x.md", "overwrite"));
    let none = Value::Null;
    let rows = [
        (section("a.md", none.clone(), none.clone()), None),
        (section("a.md", json!(3), none.clone()), None),
        (section("a.md", json!(2), none.clone()), Some("not_found")),
        (section("a.md", json!(2.5), none.clone()), Some("invalid_parameter")),
        (section("a.md", json!(1), json!("$.a")), Some("invalid_scope")),
        (section("a.md", none.clone(), json!("$.a")), Some("invalid_scope")),
        // A `.json` is only copied whole, and its line is not used.
        (section("a.json", none.clone(), none.clone()), None),
        (section("a.json", json!(1), none.clone()), None),
        (section("a.json", json!(2), none.clone()), None),
        (section("a.json", json!(99), none.clone()), None),
        (section("a.json", json!(2.5), none.clone()), Some("invalid_parameter")),
        (section("a.json", none.clone(), json!("$.a")), Some("invalid_parameter")),
        // Manuals have no files of other kinds.
        (section("a.pdf", none.clone(), none.clone()), Some("invalid_parameter")),
        (section("a.pdf", json!(1), json!("$.a")), Some("invalid_parameter")),
        (section("none.json", json!(99), none.clone()), Some("not_found")),
        (file("a.md"), None),
        (file("a.json"), None),
        (file("a.pdf"), Some("invalid_parameter")),
        (file("a"), Some("invalid_parameter")),
        (file("none.md"), Some("not_found")),
    ];
    for ((tool, arguments), want) in rows {
        let result = client.call(tool, &arguments);
        assert_eq!(result["structuredContent"]["code"].as_str(), want, "{tool} {arguments}: {result}");
        assert_eq!(workspace.path("vault/x.md").exists(), want.is_none(), "{tool} {arguments}");
        _ = std::fs::remove_file(workspace.path("vault/x.md"));
    }
}

#[test]
fn max_sections_limits_the_headings_that_are_copied() {
    let text = "\u{feff}intro\n# A\na\n## B\nb\n### C\nc\n## D\nd\n# E\n";
    let workspace = Workspace::with(text);
    workspace.manual("a.json", "{}");
    let client = Client::new(workspace.builder().allow_file_scope(true).hard_max_sections(3));
    let all = "# A\na\n## B\nb\n### C\nc\n## D\nd\n";
    for (most, want, truncated) in [
        (json!(null), "# A\na\n## B\nb\n### C\nc\n", true),
        (json!(1), "# A\na\n", true),
        (json!(2), "# A\na\n## B\nb\n", true),
        (json!(3.0), "# A\na\n## B\nb\n### C\nc\n", true),
        // Lowered to the server's limit, as every limit is.
        (json!(4), "# A\na\n## B\nb\n### C\nc\n", true),
    ] {
        let call = with_limits(copy("a.md", 2, "x.md", "overwrite"), json!({ "max_sections": most }));
        let answer = client.ok("bridge_copy_section", &call);
        assert_eq!(
            (workspace.text("x.md").as_str(), &answer["truncated"]),
            (want, &json!(truncated)),
            "{most}"
        );
        assert_eq!(answer["written_sections"], 1, "{most}");
    }
    let raised = Client::new(workspace.builder().allow_file_scope(true));
    for (line, most, want, truncated) in [
        (2, 4, all, false),
        (2, 5, all, false),
        (4, 2, "## B\nb\n### C\nc\n", false),
        (4, 1, "## B\nb\n", true),
        (6, 1, "### C\nc\n", false),
        (10, 1, "# E\n", false),
    ] {
        let call = with_limits(copy("a.md", line, "x.md", "overwrite"), json!({ "max_sections": most }));
        let answer = raised.ok("bridge_copy_section", &call);
        assert_eq!(
            (workspace.text("x.md").as_str(), &answer["truncated"]),
            (want, &json!(truncated)),
            "{line} {most}"
        );
    }
    for (most, want, truncated) in [
        (1, "\u{feff}intro\n", true),
        (2, "\u{feff}intro\n# A\na\n", true),
        (6, text, false),
        (7, text, false),
    ] {
        let limits = json!({ "max_sections": most, "allow_file": true });
        let call = with_limits(copy_file("a.md", "x.md", "overwrite"), limits);
        let answer = raised.ok("bridge_copy_file", &call);
        assert_eq!(
            (workspace.text("x.md").as_str(), &answer["truncated"]),
            (want, &json!(truncated)),
            "{most}"
        );
    }
    // A `.json` counts as one section.
    for (tool, call) in [
        ("bridge_copy_section", copy("a.json", Value::Null, "x.json", "overwrite")),
        ("bridge_copy_file", copy_file("a.json", "x.json", "overwrite")),
    ] {
        let answer = raised.ok(tool, &with_limits(call.clone(), json!({ "max_sections": 1 })));
        assert_eq!(
            (workspace.text("x.json").as_str(), &answer["truncated"]),
            ("{}", &json!(false)),
            "{tool}"
        );
        for bad in [json!(0), json!(1.5), json!(-1), json!("1")] {
            let call = with_limits(call.clone(), json!({ "max_sections": bad }));
            assert_eq!(raised.code(tool, &call), "invalid_parameter", "{tool} {bad}");
        }
    }
}
