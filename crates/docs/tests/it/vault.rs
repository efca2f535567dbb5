//! The vault: listing, reading, writing, and what it refuses.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolbridge_core::tool::{RawJson, ToolCall};
use toolbridge_core::{CallContext, ToolSource as _};

use crate::support::{Client, OnDrop, Workspace, copy, copy_file, writing};

#[test]
fn a_folder_is_listed_sorted_and_without_what_is_reserved() {
    let workspace = Workspace::new();
    workspace.note("b.md", "12345");
    workspace.note("a/x.md", "1");
    workspace.note(".system/secret.md", "1");
    workspace.note(".toolbridge-0123456789abcdef0123456789abcdef.tmp", "half");
    std::os::unix::fs::symlink("b.md", workspace.path("vault/link.md")).unwrap();
    let client = workspace.open();
    let root = json!({ "entries": [
        { "path": "a", "type": "dir", "size_bytes": null },
        { "path": "b.md", "type": "file", "size_bytes": 5 },
    ] });
    for arguments in [
        json!({}),
        json!({ "path": null }),
        json!({ "path": "" }),
        json!({ "path": "." }),
        json!({ "relative_dir": "." }),
    ] {
        assert_eq!(client.ok("vault_ls", &arguments), root, "{arguments}");
    }
    // `relative_dir` is the specified name; all other tools say `path`.
    for argument in ["path", "relative_dir"] {
        assert_eq!(
            client.ok("vault_ls", &json!({ argument: "a" })),
            json!({ "entries": [{ "path": "a/x.md", "type": "file", "size_bytes": 1 }] })
        );
    }
    for (dir, code) in [
        ("none", "not_found"),
        ("b.md", "invalid_path"),
        ("Daily", "not_found"),
        ("link.md", "out_of_scope"),
        ("..", "invalid_path"),
        ("a/.", "invalid_path"),
        ("a/../b", "invalid_path"),
        (".system", "forbidden"),
        (".SYSTEM", "forbidden"),
    ] {
        assert_eq!(client.code("vault_ls", &json!({ "path": dir })), code, "{dir}");
    }
}

#[test]
fn a_file_is_read_by_lines_within_limits() {
    let workspace = Workspace::new();
    workspace.note("a.md", "one\ntwo\nthree");
    let client = workspace.open();
    assert_eq!(
        client.ok("vault_read", &json!({ "path": "a.md", "range": { "start_line": 2, "end_line": 2 } })),
        json!({
            "text": "two\n", "truncated": true, "returned_chars": 4, "applied_range": { "start_line": 2, "end_line": 2 },
            "next_offset": { "start_line": 3 }, "truncated_reason": "range_end",
        })
    );
    assert_eq!(
        client.ok("vault_read", &json!({ "path": "a.md" })),
        json!({
            "text": "one\ntwo\nthree", "truncated": false, "returned_chars": 13,
            "applied_range": { "start_line": 1, "end_line": 3 }, "next_offset": { "start_line": null },
            "truncated_reason": "none",
        })
    );
    let answer = client.ok("vault_read", &json!({ "path": "a.md", "limits": { "max_chars": 5 } }));
    assert_eq!((&answer["text"], &answer["truncated_reason"]), (&json!("one\nt"), &json!("max_chars")));
    assert_eq!(answer["next_offset"]["start_line"], 2);
    for range in
        [json!({ "start_line": 4 }), json!({ "start_line": 3, "end_line": 2 }), json!({ "start_line": 0 })]
    {
        assert_eq!(
            client.code("vault_read", &json!({ "path": "a.md", "range": range })),
            "invalid_parameter"
        );
    }
}

#[test]
fn going_on_at_next_offset_reads_everything() {
    let workspace = Workspace::new();
    let text: String = (0..500).map(|line| format!("line {line} {}\n", "あ".repeat(line % 50))).collect();
    workspace.note("a.md", &text);
    let client = workspace.open();
    let (mut got, mut line) = (String::new(), json!(1));
    while line != Value::Null {
        let answer = client.ok(
            "vault_read",
            &json!({ "path": "a.md", "range": { "start_line": line }, "limits": { "max_chars": 100 } }),
        );
        // A line that was cut is returned again as a whole.
        let kept = answer["text"].as_str().unwrap();
        let whole = kept.rfind('\n').map_or(0, |end| end + 1);
        got.push_str(&kept[..whole]);
        line = answer["next_offset"]["start_line"].clone();
    }
    assert_eq!(got, text);
}

#[test]
fn full_reads_up_to_the_hard_limit() {
    let workspace = Workspace::new();
    workspace.note("a.md", "x\n".repeat(15_000));
    let client = workspace.open();
    let read = |extra: Value| {
        let mut arguments = json!({ "path": "a.md" });
        arguments.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let answer = client.ok("vault_read", &arguments);
        (answer["returned_chars"].as_u64().unwrap(), answer["truncated_reason"].as_str().unwrap().to_owned())
    };
    assert_eq!(read(json!({})), (8000, "max_chars".into()));
    assert_eq!(read(json!({ "full": true })), (20_000, "hard_limit".into()));
    assert_eq!(read(json!({ "limits": { "max_chars": 50_000 } })), (20_000, "hard_limit".into()));
    assert_eq!(read(json!({ "limits": { "max_chars": 20_000 } })), (20_000, "max_chars".into()));
}

#[test]
fn create_refuses_what_exists_and_write_what_does_not() {
    let workspace = Workspace::with("# A\n");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let create = json!({ "path": "new/a.md", "content": "one" });
    assert_eq!(client.ok("vault_create", &create), json!({ "written_path": "new/a.md", "written_bytes": 3 }));
    assert_eq!(client.code("vault_create", &create), "conflict");
    let write = |path: &str, mode: &str| json!({ "path": path, "content": "two", "mode": mode });
    assert_eq!(client.ok("vault_write", &write("new/a.md", "append"))["written_bytes"], 4);
    assert_eq!(workspace.text("new/a.md"), "one\ntwo");
    assert_eq!(client.ok("vault_write", &write("new/a.md", "overwrite"))["written_bytes"], 3);
    assert_eq!(workspace.text("new/a.md"), "two");
    for path in ["none.md", "no/folder.md", "new/a.md/x"] {
        for mode in ["append", "overwrite"] {
            assert_eq!(client.code("vault_write", &write(path, mode)), "conflict", "{path} {mode}");
        }
    }
    for mode in ["append", "overwrite"] {
        assert_eq!(client.code("vault_write", &write("new", mode)), "forbidden", "{mode}");
    }
    // A file in the place of a folder, and a folder in the place of a file.
    for (tool, arguments) in writing("new/a.md/b.md") {
        let error = client.refused(tool, &arguments);
        assert_eq!(error["code"], "conflict", "{tool}");
        assert_eq!(error["message"], "`new/a.md` is a file, not a folder; choose another path", "{tool}");
    }
    assert_eq!(client.code("vault_create", &json!({ "path": "new", "content": "" })), "conflict");
    assert_eq!(client.code("vault_read", &json!({ "path": "new/a.md/b.md" })), "invalid_path");
    assert_eq!(workspace.vault(), ["new", "new/a.md"]);
}

#[test]
fn an_append_drops_a_byte_order_mark_and_an_overwrite_keeps_it() {
    let workspace = Workspace::new();
    workspace.note("a.md", "");
    let client = workspace.open();
    let write = |mode: &str| {
        client.ok("vault_write", &json!({ "path": "a.md", "content": "\u{feff}x\n", "mode": mode }))
    };
    assert_eq!((write("append")["written_bytes"].clone(), workspace.text("a.md")), (json!(2), "x\n".into()));
    write("append");
    assert_eq!(workspace.text("a.md"), "x\nx\n");
    write("overwrite");
    assert_eq!(workspace.text("a.md"), "\u{feff}x\n");
}

#[test]
fn replace_changes_the_first_places() {
    let workspace = Workspace::new();
    let client = workspace.open();
    let replace = |most: Value| {
        workspace.note("a.md", "x x x");
        let arguments = json!({ "path": "a.md", "find": "x", "replace": "日", "max_replacements": most });
        let answer = client.ok("vault_replace", &arguments);
        assert_eq!(answer["written_path"], "a.md");
        (answer["replacements"].as_u64().unwrap(), workspace.text("a.md"))
    };
    assert_eq!(replace(Value::Null), (1, "日 x x".into()));
    assert_eq!(replace(json!(2.0)), (2, "日 日 x".into()));
    assert_eq!(replace(json!(1e300)), (3, "日 日 日".into()));
    let missing = json!({ "path": "a.md", "find": "y", "replace": "z" });
    assert_eq!(client.code("vault_replace", &missing), "not_found");
    assert_eq!(
        client.code("vault_replace", &json!({ "path": "none.md", "find": "y", "replace": "z" })),
        "not_found"
    );
    assert_eq!(workspace.text("a.md"), "日 日 日");
}

/// Two servers on one vault, like two processes: they share only the file's lock.
#[test]
fn a_replacement_loses_nothing_that_others_append_meanwhile() {
    let workspace = Workspace::new();
    workspace.note("a.md", "toggle 0\n");
    let done = AtomicBool::new(false);
    let replaced = AtomicUsize::new(0);
    let appended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = workspace.open();
            for count in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let (find, replace) = (format!("toggle {count}\n"), format!("toggle {}\n", count + 1));
                client.ok("vault_replace", &json!({ "path": "a.md", "find": find, "replace": replace }));
                replaced.store(count, Ordering::Relaxed);
            }
        });
        let _done = OnDrop(&done);
        let client = workspace.open();
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut line = 0;
        while (line < 200 || replaced.load(Ordering::Relaxed) < 20) && Instant::now() < deadline {
            let arguments = json!({ "path": "a.md", "content": format!("line {line}\n"), "mode": "append" });
            client.ok("vault_write", &arguments);
            line += 1;
        }
        line
    });
    assert!(replaced.load(Ordering::Relaxed) > 0, "there was no race");
    let lines: Vec<_> = workspace.text("a.md").lines().skip(1).map(str::to_owned).collect();
    let want: Vec<_> = (0..appended).map(|line| format!("line {line}")).collect();
    assert_eq!(lines, want);
}

/// A replacement based on old text never undoes a later overwrite.
#[test]
fn a_replacement_undoes_no_overwrite_of_others() {
    let workspace = Workspace::new();
    workspace.note("a.md", "gen 0 toggle\n");
    let done = AtomicBool::new(false);
    let replaced = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = workspace.open();
            let arguments = json!({ "path": "a.md", "find": "toggle", "replace": "TOGGLE" });
            while !done.load(Ordering::Relaxed) {
                let answer = client.call("vault_replace", &arguments);
                replaced.fetch_add(usize::from(answer["isError"] == false), Ordering::Relaxed);
            }
        });
        let _done = OnDrop(&done);
        let client = workspace.open();
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut generation = 0;
        while (generation < 200 || replaced.load(Ordering::Relaxed) < 50) && Instant::now() < deadline {
            generation += 1;
            let content = format!("gen {generation} toggle\n");
            client.ok("vault_write", &json!({ "path": "a.md", "content": content, "mode": "overwrite" }));
            // A lost write is visible immediately, or when a running replacement has finished.
            for _ in 0..5 {
                let text = workspace.text("a.md");
                assert!(text.starts_with(&format!("gen {generation} ")), "{generation}: {text}");
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    });
    assert!(replaced.load(Ordering::Relaxed) > 0, "there was no race");
    assert_eq!(workspace.vault(), ["a.md"]);
}

#[test]
fn a_replacement_that_would_be_too_large_is_not_made() {
    let workspace = Workspace::new();
    workspace.note("a.md", "a".repeat(100));
    let client = workspace.open();
    let call = |most: usize| json!({ "path": "a.md", "find": "a", "replace": "b".repeat(1 << 20), "max_replacements": most });
    let error = client.refused("vault_replace", &call(64));
    assert_eq!(error["code"], "forbidden");
    let size = (64 << 20) + 36;
    assert_eq!(error["details"], json!({ "size_bytes": size, "limit_bytes": 64 << 20 }));
    assert_eq!(workspace.text("a.md"), "a".repeat(100));
    client.ok("vault_replace", &call(2));
}

/// A program that locks a file and never releases it.
#[test]
fn a_lock_on_one_file_holds_up_no_other() {
    let workspace = Workspace::new();
    let held = fs::File::open(workspace.note("held.md", "x")).unwrap();
    workspace.note("free.md", "y");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let client = workspace.open();
    let call = |path: &str| {
        let arguments = json!({ "path": path, "content": "z", "mode": "append" });
        ToolCall::new("vault_write", RawJson::from(&arguments))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let waiting = runtime.spawn({
        let (documents, call) = (client.documents.clone(), call("held.md"));
        async move { documents.call(call, CallContext::default()).await.unwrap().as_str().to_owned() }
    });
    for _ in 0..20 {
        runtime.block_on(client.documents.call(call("free.md"), CallContext::default())).unwrap();
    }
    assert!(!waiting.is_finished(), "it waits for the lock");
    assert_eq!(workspace.text("held.md"), "x");
    drop(held);
    let answer = runtime.block_on(waiting).unwrap();
    assert!(answer.contains("\"written_bytes\":2"), "{answer}");
    assert_eq!(workspace.text("held.md"), "x\nz");
}

#[test]
fn text_that_is_not_utf8_is_an_io_error() {
    let workspace = Workspace::new();
    workspace.note("a.md", b"ab\xff");
    let client = workspace.open();
    for (tool, arguments) in [
        ("vault_read", json!({ "path": "a.md" })),
        ("vault_replace", json!({ "path": "a.md", "find": "a", "replace": "b" })),
    ] {
        let error = client.refused(tool, &arguments);
        assert_eq!(
            (&error["code"], &error["details"]["byte_position"]),
            (&json!("io_error"), &json!(2)),
            "{tool}"
        );
    }
    assert_eq!(workspace.read("a.md"), b"ab\xff");
}

#[test]
fn daily_takes_only_notes_of_real_days_and_only_more_of_them() {
    let workspace = Workspace::with("# A\n");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let day = "daily/2024-02-29.md";
    let forbidden = |client: &Client, mode: &str| {
        for (tool, arguments) in writing(day).into_iter().filter(|(_, call)| call["mode"] == mode) {
            assert_eq!(client.code(tool, &arguments), "forbidden", "{tool} {arguments}");
        }
    };
    forbidden(&client, "overwrite");
    client.ok("vault_create", &json!({ "path": day, "content": "morning" }));
    client.ok("vault_write", &json!({ "path": day, "content": "noon", "mode": "append" }));
    client.copy("a.md", 1, day, "append");
    assert_eq!(workspace.text(day), "morning\nnoon\n# A\n");
    forbidden(&client, "overwrite");
    assert_eq!(
        client.code("vault_replace", &json!({ "path": day, "find": "noon", "replace": "" })),
        "forbidden"
    );
    assert_eq!(client.copy("a.md", 1, "daily/2025-12-31.md", "append")["written_bytes"], 4);
    client.ok("vault_read", &json!({ "path": day }));
    for bad in [
        "daily/2023-02-29.md",
        "daily/2025-02-30.md",
        "daily/2025-13-01.md",
        "daily/2025-1-1.md",
        "daily/notes.md",
        "daily/x/2025-01-01.md",
        "daily",
    ] {
        for (tool, arguments) in writing(bad) {
            assert_eq!(client.code(tool, &arguments), "forbidden", "{tool} {arguments}");
        }
    }
    assert_eq!(workspace.vault(), ["daily", "daily/2024-02-29.md", "daily/2025-12-31.md"]);
}

/// Where names differ by case; other file systems are in `process.rs`.
#[test]
fn a_folder_with_a_name_like_daily_is_an_ordinary_folder() {
    let workspace = Workspace::with("# A\n");
    workspace.note("daily/2025-01-01.md", "morning");
    let client = workspace.open();
    for folder in ["Daily", "DAILY", "ｄａｉｌｙ", "dai\u{2113}y", "dai\u{200b}ly", "notes/daily"] {
        let path = format!("{folder}/plan.md");
        client.ok("vault_create", &json!({ "path": path, "content": "old" }));
        client.ok("vault_replace", &json!({ "path": path, "find": "old", "replace": "new" }));
        client.ok("vault_undo", &json!({ "path": path }));
        client.copy("a.md", 1, &path, "overwrite");
        assert_eq!(client.ok("vault_read", &json!({ "path": path }))["text"], "# A\n");
        assert_eq!(client.ok("vault_ls", &json!({ "path": folder }))["entries"][0]["path"], path);
    }
}

#[test]
fn another_folder_or_none_can_be_for_daily_notes() {
    let workspace = Workspace::with("# A\n");
    let write = |path: &str| json!({ "path": path, "content": "x", "mode": "overwrite" });
    for daily in ["journal/days", "./journal/days/"] {
        let client = Client::new(workspace.builder().daily(daily));
        workspace.note("daily/plan.md", "old");
        workspace.note("journal/plan.md", "old");
        workspace.note("journal/days/2025-01-01.md", "old");
        for path in ["daily/plan.md", "journal/plan.md"] {
            client.ok("vault_write", &write(path));
        }
        let error = client.refused("vault_write", &write("journal/days/2025-01-01.md"));
        assert_eq!(error["code"], "forbidden");
        assert!(error["message"].as_str().unwrap().contains("`append`"), "{error}");
        let error = client.refused("vault_create", &json!({ "path": "journal/days/x.md", "content": "x" }));
        assert_eq!(error["code"], "forbidden");
        assert!(error["message"].as_str().unwrap().contains("`journal/days/YYYY-MM-DD.md`"), "{error}");
        client.copy("a.md", 1, "journal/days/2025-01-01.md", "append");
        let described = client.documents.tools().get("bridge_copy_section").unwrap().description.clone();
        assert!(described.contains("`journal/days/YYYY-MM-DD.md`"), "{described}");
    }
    let client = Client::new(workspace.builder().daily("off"));
    for path in ["daily/plan.md", "journal/days/2025-01-01.md"] {
        client.ok("vault_write", &write(path));
    }
    let described = client.documents.tools().get("bridge_copy_section").unwrap().description.clone();
    assert!(!described.contains("YYYY"), "{described}");
}

#[test]
fn system_is_neither_read_nor_written_in_any_spelling() {
    let workspace = Workspace::with("# A\n");
    workspace.note(".system/a.md", "x");
    let client = Client::new(workspace.builder().allow_file_scope(true));
    for folder in [
        ".system",
        ".System",
        ".SYSTEM",
        ".ſystem",
        ".ｓｙｓｔｅｍ",
        "./.system",
        ".sys\u{ff54}em",
        "\u{200b}.system",
    ] {
        let path = format!("{folder}/a.md");
        for (tool, arguments) in writing(&path) {
            assert_eq!(client.code(tool, &arguments), "forbidden", "{tool} {arguments}");
        }
        assert_eq!(client.code("vault_read", &json!({ "path": path })), "forbidden");
        assert_eq!(client.code("vault_ls", &json!({ "path": folder })), "forbidden");
    }
    assert_eq!(workspace.text(".system/a.md"), "x");
    assert_eq!(workspace.vault(), [".system", ".system/a.md"]);
}

/// Names are stored as given: a composed and a decomposed one are two files.
#[test]
fn names_are_stored_as_given() {
    let workspace = Workspace::new();
    let client = workspace.open();
    for path in ["caf\u{e9}.md", "cafe\u{301}.md"] {
        assert_eq!(
            client.ok("vault_create", &json!({ "path": path, "content": path }))["written_path"],
            path
        );
        assert_eq!(fs::read_to_string(workspace.path("vault").join(path)).unwrap(), path);
    }
}

/// Every tool reports the same message for the same path.
#[test]
fn paths_that_are_not_plain_are_invalid_for_every_tool() {
    let workspace = Workspace::with("# A\n");
    workspace.note("a/x.md", "x");
    let before = workspace.vault();
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let long = "x".repeat(300);
    let deep = "d/".repeat(3000) + "x";
    for (path, code) in [
        ("", "invalid_path"),
        (".", "invalid_path"),
        ("a/.", "invalid_path"),
        ("a/x.md/.", "invalid_path"),
        ("a\\.", "invalid_path"),
        ("a/..", "invalid_path"),
        ("a/../x.md", "invalid_path"),
        ("a//x.md", "invalid_path"),
        ("a/", "invalid_path"),
        ("x.md.", "invalid_path"),
        ("x ", "invalid_path"),
        ("a./x", "invalid_path"),
        ("x\0", "invalid_path"),
        ("x\n.md", "invalid_path"),
        ("a\t/x.md", "invalid_path"),
        ("\u{1b}]0;x\u{7}.md", "invalid_path"),
        ("x\u{7f}", "invalid_path"),
        ("x\u{9b}31m", "invalid_path"),
        ("x\u{2028}y.md", "invalid_path"),
        ("x\u{202e}dm.exe", "invalid_path"),
        (&long, "invalid_path"),
        (&deep, "invalid_path"),
        ("..", "invalid_path"),
        ("../x.md", "invalid_path"),
        ("a/../../x.md", "invalid_path"),
        ("a\\..\\..\\x.md", "invalid_path"),
        ("/x.md", "invalid_path"),
        ("\\x.md", "invalid_path"),
        ("C:\\x.md", "invalid_path"),
    ] {
        for (tool, arguments) in writing(path) {
            let error = client.refused(tool, &arguments);
            assert_eq!(error["code"], code, "{tool} {path:.40?}");
            let message = error["message"].as_str().unwrap();
            assert!(!message.contains(char::is_control), "{tool} {message:?}");
        }
        assert_eq!(client.code("vault_read", &json!({ "path": path })), code, "{path:.40?}");
    }
    assert_eq!(workspace.vault(), before);
}

/// Callers could not ask for them, and they would look like something else.
#[test]
fn files_with_control_characters_in_their_names_are_not_listed() {
    let workspace = Workspace::with("# A\n");
    for name in ["a\nb.md", "a\u{1b}[2J.md", "a\u{202e}dm.md"] {
        workspace.note(name, "x");
        workspace.manual(name, "# hidden\n");
    }
    fs::create_dir(workspace.path("manuals/m\n2")).unwrap();
    workspace.note("b.md", "x");
    let client = workspace.open();
    let paths = |answer: &Value, list: &str, member: &str| -> Vec<String> {
        let items = answer[list].as_array().unwrap().iter();
        items.map(|item| item[member].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(&client.ok("vault_ls", &json!({})), "entries", "path"), ["b.md"]);
    assert_eq!(paths(&client.ok("manual_ls", &json!({})), "items", "path"), ["a.md"]);
    assert_eq!(paths(&client.ok("manual_list", &json!({})), "items", "manual_id"), ["m"]);
    assert_eq!(client.ok("manual_find", &json!({ "query": "hidden" }))["total"], 0);
}

/// The limit is exactly 64 MiB.
#[test]
fn no_write_makes_a_file_that_could_not_be_read() {
    let workspace = Workspace::with(format!("# A\n{}", "x".repeat(1000)));
    let limit = 64 << 20;
    let client = Client::new(workspace.builder().allow_file_scope(true).hard_max_chars(100_000_000));
    let append = |content: &str| json!({ "path": "big.md", "content": content, "mode": "append" });
    // A sparse file, which uses no disk space. Its last byte is not a line break, so an append adds one.
    let big = fs::File::create(workspace.path("vault/big.md")).unwrap();
    big.set_len(limit - 100).unwrap();
    let copied = limit - 100 + 1 + 1004;
    for (tool, arguments, size) in [
        ("vault_write", append(&"y".repeat(100)), limit + 1),
        ("bridge_copy_section", copy("a.md", 1, "big.md", "append"), copied),
        ("bridge_copy_file", copy_file("a.md", "big.md", "append"), copied),
    ] {
        let error = client.refused(tool, &arguments);
        assert_eq!(error["code"], "forbidden", "{tool} {error}");
        assert_eq!(error["details"], json!({ "size_bytes": size, "limit_bytes": limit }), "{tool}");
        assert_eq!(fs::metadata(workspace.path("vault/big.md")).unwrap().len(), limit - 100, "{tool}");
    }
    assert_eq!(client.ok("vault_write", &append(&"y".repeat(99)))["written_bytes"], 100);
    assert_eq!(fs::metadata(workspace.path("vault/big.md")).unwrap().len(), limit);
    assert_eq!(client.code("vault_write", &append("z")), "forbidden");
    // An empty append adds nothing.
    assert_eq!(client.ok("vault_write", &append(""))["written_bytes"], 0);
    assert_eq!(workspace.vault(), ["big.md"]);
}
