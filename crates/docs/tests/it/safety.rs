//! Nothing outside of the two roots is ever read or written, whatever links or special files there are.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};
use serde_json::{Value, json};

use crate::support::{Client, OnDrop, Workspace, copy, copy_file, names, reference, writing};

const SECRET: &str = "# Secret\n\nswordfish\n";

/// A workspace with a folder and a file outside its roots.
fn with_outside() -> Workspace {
    let workspace = Workspace::with("# A\ninside\n");
    fs::create_dir(workspace.path("outside")).unwrap();
    fs::write(workspace.path("outside/secret.md"), SECRET).unwrap();
    workspace
}

#[track_caller]
fn assert_outside_is_untouched(workspace: &Workspace) {
    assert_eq!(names(&workspace.path("outside")), ["secret.md"]);
    assert_eq!(fs::read_to_string(workspace.path("outside/secret.md")).unwrap(), SECRET);
}

/// Every call that reads `path` of the manual `m`.
fn reading(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("manual_read", json!({ "ref": reference(path, Value::Null) })),
        ("bridge_copy_section", copy(path, Value::Null, "copy.md", "overwrite")),
        ("bridge_copy_file", copy_file(path, "copy.md", "append")),
    ]
}

#[test]
fn a_link_is_never_followed_not_in_the_middle_not_at_the_end_not_dangling() {
    let workspace = with_outside();
    let outside = workspace.path("outside");
    for root in ["manuals/m", "vault"] {
        let at = |name: &str| workspace.path(root).join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/x.md"), "# R\n").unwrap();
        symlink(&outside, at("away")).unwrap();
        symlink("real", at("near")).unwrap();
        symlink(outside.join("secret.md"), at("secret.md")).unwrap();
        symlink("real/x.md", at("here.md")).unwrap();
        symlink(outside.join("new.md"), at("dangling.md")).unwrap();
        symlink("loop.md", at("loop.md")).unwrap();
    }
    let client = Client::new(workspace.builder().allow_file_scope(true));
    for path in ["away/secret.md", "near/x.md", "secret.md", "here.md", "dangling.md", "loop.md"] {
        for (tool, arguments) in reading(path).into_iter().chain(writing(path)) {
            assert_eq!(client.code(tool, &arguments), "out_of_scope", "{tool} {arguments}");
        }
        assert_eq!(client.code("vault_read", &json!({ "path": path })), "out_of_scope", "{path}");
    }
    for dir in ["away", "near"] {
        assert_eq!(client.code("vault_ls", &json!({ "path": dir })), "out_of_scope", "{dir}");
        for (tool, arguments) in writing(&format!("{dir}/sub/new.md")) {
            assert_eq!(client.code(tool, &arguments), "out_of_scope", "{tool} {arguments}");
        }
    }
    let listed =
        client.ok("manual_ls", &json!({})).to_string() + &client.ok("vault_ls", &json!({})).to_string();
    for link in ["away", "near", "secret", "here", "dangling", "loop"] {
        assert!(!listed.contains(link), "{listed}");
    }
    assert_outside_is_untouched(&workspace);
}

/// Others run what is in such folders: `.git/hooks`, `.obsidian/plugins`.
#[test]
fn a_name_that_begins_with_a_dot_is_not_listed_found_read_or_written() {
    let workspace = Workspace::with("# A\nplain\n");
    let paths = [".git/config", ".git/hooks/pre-commit", ".hidden.md", "sub/.obsidian/p/main.md", ".x.json"];
    for path in paths {
        workspace.manual(path, "# Secret\nswordfish\n");
        workspace.note(path, "# Secret\nswordfish\n");
    }
    fs::create_dir(workspace.path("manuals/.m")).unwrap();
    fs::write(workspace.path("manuals/.m/a.md"), "# Secret\nswordfish\n").unwrap();
    let (before, manuals) = (names(&workspace.path("vault")), names(&workspace.path("manuals")));
    let client = Client::new(workspace.builder().allow_file_scope(true));
    // Some file systems ignore the invisible character in the last ones.
    let others = [".new.md", ".new/a.md", "new/.a/b.md", ".git", "\u{200b}.git/config", "\u{feff}.new.md"];
    for path in paths.into_iter().chain(others) {
        for (tool, arguments) in reading(path).into_iter().chain(writing(path)) {
            assert_eq!(client.code(tool, &arguments), "forbidden", "{tool} {arguments}");
        }
        assert_eq!(client.code("vault_read", &json!({ "path": path })), "forbidden", "{path}");
        assert_eq!(client.code("vault_undo", &json!({ "path": path })), "forbidden", "{path}");
        let toc = json!({ "manual_id": "m", "path": path });
        assert_eq!(client.code("manual_toc", &toc), "forbidden", "{path}");
    }
    for folder in [".git", ".git/hooks", "sub/.obsidian", ".system"] {
        assert_eq!(client.code("vault_ls", &json!({ "path": folder })), "forbidden", "{folder}");
    }
    for tool in ["manual_ls", "manual_toc", "manual_find"] {
        let mut call = json!({ "manual_id": ".m" });
        if tool == "manual_find" {
            call["query"] = json!("swordfish");
        }
        assert_eq!(client.code(tool, &call), "forbidden", "{tool}");
    }
    for (tool, arguments) in [
        ("manual_list", json!({})),
        ("manual_ls", json!({})),
        ("manual_toc", json!({ "manual_id": "m" })),
        ("vault_ls", json!({})),
        ("vault_ls", json!({ "path": "sub" })),
        ("manual_find", json!({ "query": "swordfish" })),
        ("vault_find", json!({ "query": "swordfish" })),
    ] {
        let answer = client.ok(tool, &arguments).to_string();
        for hidden in ["git", "hidden", "obsidian", ".x", ".m\"", "Secret", "system"] {
            assert!(!answer.contains(hidden), "{tool}: {answer}");
        }
    }
    assert_eq!(names(&workspace.path("vault")), before);
    assert_eq!(names(&workspace.path("manuals")), manuals);
    // A dot elsewhere in a name is like any other character.
    client.ok("vault_create", &json!({ "path": "a.b/c.d.md", "content": "x" }));
}

/// A manual that is itself a link.
#[test]
fn a_manual_may_not_be_a_link() {
    let workspace = with_outside();
    symlink(workspace.path("outside"), workspace.path("manuals/linked")).unwrap();
    let client = workspace.open();
    for tool in ["manual_ls", "manual_toc"] {
        assert_eq!(client.code(tool, &json!({ "manual_id": "linked" })), "out_of_scope", "{tool}");
    }
    assert_eq!(
        client.code("manual_find", &json!({ "manual_id": "linked", "query": "swordfish" })),
        "out_of_scope"
    );
    assert_eq!(client.ok("manual_find", &json!({ "query": "swordfish" }))["total"], 0);
    let mut call = copy("secret.md", 1, "x.md", "append");
    call["from_ref"]["manual_id"] = json!("linked");
    assert_eq!(client.code("bridge_copy_section", &call), "out_of_scope");
}

#[test]
fn a_hard_link_at_the_target_leaves_the_outside_file_as_it_is() {
    let workspace = with_outside();
    fs::hard_link(workspace.path("outside/secret.md"), workspace.path("vault/x.md")).unwrap();
    let client = workspace.open();
    for (tool, arguments) in [
        ("bridge_copy_section", copy("a.md", 1, "x.md", "append")),
        ("vault_write", json!({ "path": "x.md", "content": "x", "mode": "append" })),
    ] {
        assert_eq!(client.code(tool, &arguments), "forbidden", "{tool}");
    }
    assert_eq!(workspace.text("x.md"), SECRET);
    // An overwrite replaces this name; the other hard link keeps the old file.
    client.copy("a.md", 1, "x.md", "overwrite");
    assert_eq!(workspace.text("x.md"), "# A\ninside\n");
    client.copy("a.md", 1, "x.md", "append");
    fs::remove_file(workspace.path("vault/x.md")).unwrap();
    fs::hard_link(workspace.path("outside/secret.md"), workspace.path("vault/x.md")).unwrap();
    client.ok("vault_replace", &json!({ "path": "x.md", "find": "swordfish", "replace": "x" }));
    assert_outside_is_untouched(&workspace);
}

/// Makes a special file; returns whether that is possible here.
fn make(mut command: Command, path: &Path, kind: &[&str]) -> bool {
    command.arg(path).args(kind).status().unwrap().success()
}

#[test]
fn only_regular_files_are_read_or_written() {
    let workspace = Workspace::with("# A\n");
    let mut irregular = vec!["dir.md", "socket.md"];
    let mut sockets = Vec::new();
    for root in ["manuals/m", "vault"] {
        let at = |name: &str| workspace.path(root).join(name);
        fs::create_dir(at("dir.md")).unwrap();
        sockets.push(UnixListener::bind(at("socket.md")).unwrap());
        assert!(make(Command::new("mkfifo"), &at("pipe.md"), &[]));
        // The null device.
        if make(Command::new("mknod"), &at("device.md"), &["c", "1", "3"]) && root == "vault" {
            irregular.push("device.md");
        }
    }
    if !irregular.contains(&"device.md") {
        toolbridge_scripted::report_skipped("only root can make a device");
    }
    irregular.push("pipe.md");
    let before = workspace.vault();
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let started = Instant::now();
    for path in irregular {
        for (tool, arguments) in reading(path).into_iter().chain(writing(path)) {
            // The name is taken by any kind of file.
            let want = if tool == "vault_create" { "conflict" } else { "forbidden" };
            assert_eq!(client.code(tool, &arguments), want, "{tool} {arguments}");
        }
        assert_eq!(client.code("vault_read", &json!({ "path": path })), "forbidden", "{path}");
    }
    assert!(started.elapsed() < Duration::from_secs(120), "a pipe without another end is not waited for");
    assert_eq!(workspace.vault(), before);
    let listed = client.ok("manual_ls", &json!({}));
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn a_source_over_64_mib_is_refused_before_it_is_read() {
    let workspace = Workspace::new();
    let sources = [("sparse.md", 1_u64 << 30), ("sparse.json", 1 << 30), ("edge.md", (64 << 20) + 1)];
    for ((name, size), files) in sources.into_iter().zip(1..) {
        File::create(workspace.path("manuals/m").join(name)).unwrap().set_len(size).unwrap();
        File::create(workspace.path("vault").join(name)).unwrap().set_len(size).unwrap();
        let client = Client::new(workspace.builder().allow_file_scope(true));
        let started = Instant::now();
        for (tool, arguments) in reading(name) {
            let error = client.refused(tool, &arguments);
            assert_eq!(error["code"], "forbidden", "{tool} {error}");
            assert_eq!(error["details"], json!({ "size_bytes": size, "limit_bytes": 64 << 20 }), "{tool}");
        }
        let replace = json!({ "path": name, "find": "x", "replace": "y" });
        for (tool, arguments) in [("vault_read", json!({ "path": name })), ("vault_replace", replace)] {
            assert_eq!(client.refused(tool, &arguments)["details"]["size_bytes"], size, "{tool}");
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{name}: {:?}", started.elapsed());
        // Lists and searches skip it.
        let listed = client.ok("manual_ls", &json!({}));
        assert_eq!((&listed["items"], &listed["left_out"]), (&json!([]), &json!({ "too large": files })));
        assert_eq!(client.ok("manual_toc", &json!({ "manual_id": "m" })), json!({ "items": [] }));
        assert_eq!(client.ok("manual_find", &json!({ "query": "x" }))["total"], 0);
    }
}

fn exchange(one: &Path, other: &Path) {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Links are swapped in and out as fast as possible while the tools read and write there.
///
/// Two seconds, or until both sides have won often enough; `TOOLBRIDGE_RACE_SECONDS` sets a longer time.
#[test]
fn a_link_swapped_in_between_check_and_use_is_not_followed() {
    let seconds =
        std::env::var("TOOLBRIDGE_RACE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let workspace = with_outside();
    let outside = workspace.path("outside");
    for root in ["manuals/m", "vault"] {
        let at = |name: &str| workspace.path(root).join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/secret.md"), "# A\ninside\n").unwrap();
        symlink(&outside, at("dir-link")).unwrap();
        fs::write(at("file.md"), "# A\ninside\n").unwrap();
        symlink(outside.join("secret.md"), at("file-link.md")).unwrap();
    }
    let client = Client::new(workspace.builder().allow_file_scope(true));
    let done = AtomicBool::new(false);
    let mut outcomes = BTreeMap::<String, usize>::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |name: &str| workspace.path(name);
            while !done.load(Ordering::Relaxed) {
                exchange(&at("manuals/m/dir"), &at("manuals/m/dir-link"));
                exchange(&at("manuals/m/file.md"), &at("manuals/m/file-link.md"));
                exchange(&at("vault/dir"), &at("vault/dir-link"));
                // An overwrite replaces the link itself, so it has to be created again.
                let fresh = at("vault/fresh");
                symlink(outside.join("secret.md"), &fresh).unwrap();
                exchange(&fresh, &at("vault/file.md"));
                fs::remove_file(&fresh).unwrap();
                std::thread::yield_now();
                fs::write(&fresh, "").unwrap();
                fs::rename(&fresh, at("vault/file.md")).unwrap();
            }
        });
        let _done = OnDrop(&done);
        let started = Instant::now();
        let enough = Duration::from_secs(seconds);
        let too_long = enough + Duration::from_secs(120);
        let was_race = |outcomes: &BTreeMap<String, usize>| {
            ["ok", "out_of_scope"].iter().all(|code| outcomes.get(*code).is_some_and(|count| *count > 50))
        };
        while started.elapsed() < enough || !was_race(&outcomes) && started.elapsed() < too_long {
            for (tool, arguments) in [
                ("manual_read", json!({ "ref": reference("dir/secret.md", 1) })),
                ("manual_read", json!({ "ref": reference("file.md", 1) })),
                ("bridge_copy_section", copy("file.md", 1, "dir/secret.md", "overwrite")),
                ("bridge_copy_section", copy("dir/secret.md", 1, "dir/new.md", "append")),
                ("bridge_copy_section", copy("a.md", 1, "file.md", "append")),
                ("bridge_copy_section", copy("a.md", 1, "file.md", "overwrite")),
                ("bridge_copy_section", copy("a.md", 1, "dir/made/new.md", "append")),
                ("vault_undo", json!({ "path": "dir/secret.md" })),
                ("vault_undo", json!({ "path": "file.md" })),
                ("vault_find", json!({ "query": "secret swordfish" })),
                ("vault_read", json!({ "path": "dir/secret.md" })),
                ("vault_read", json!({ "path": "file.md" })),
                ("vault_ls", json!({ "path": "dir" })),
            ] {
                let answer = client.call(tool, &arguments);
                assert!(!answer.to_string().contains("swordfish"), "{tool} {arguments}: {answer}");
                let code = answer["structuredContent"]["code"].as_str().unwrap_or("ok");
                *outcomes.entry(code.to_owned()).or_default() += 1;
            }
        }
        assert!(was_race(&outcomes), "there was no race: {outcomes:?}");
    });
    let codes: Vec<_> = outcomes.keys().map(String::as_str).collect();
    assert!(
        codes.iter().all(|code| ["ok", "out_of_scope", "not_found", "conflict"].contains(code)),
        "{outcomes:?}"
    );
    assert_outside_is_untouched(&workspace);
}
