//! Several processes, killed processes, full disks. The test binary starts itself as a child process.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolbridge_docs::Documents;
use toolbridge_scripted::thorough;

use crate::support::{Client, Workspace, copy, names, writing};

const JOB: &str = "TOOLBRIDGE_DOCS_TEST_JOB";

const PROCESSES: usize = 4;
const THREADS: usize = 6;
const APPENDS: usize = 50;

fn command(before: &[&str], job: &Value) -> Command {
    let executable = std::env::current_exe().unwrap();
    let mut words = before.iter().map(Into::into).chain([executable.into_os_string()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["--exact", "process::child", "--nocapture"]).env(JOB, job.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Not a test by itself: the child process of the other tests.
#[test]
fn child() {
    let Ok(job) = std::env::var(JOB) else { return };
    let job: Value = serde_json::from_str(&job).unwrap();
    let workspace = Path::new(job["workspace"].as_str().unwrap());
    match job["name"].as_str().unwrap() {
        "append" => append_from_threads(workspace, job["process"].as_u64().unwrap()),
        "overwrite" => overwrite_for_ever(workspace),
        "append for ever" => append_for_ever(workspace),
        "full disk" => write_to_a_full_disk(workspace),
        "no inodes" => make_without_inodes(workspace),
        "read-only disk" => write_to_a_read_only_disk(workspace),
        "other names" => change_under_other_names(workspace),
        other => panic!("no job {other}"),
    }
}

fn open(workspace: &Path) -> Client {
    Client::new(Documents::builder().workspace(workspace).hard_max_chars(10_000_000))
}

/// The section that one thread appends.
fn section(process: u64, thread: usize) -> String {
    format!("# p{process} t{thread} {}\n", "日本語".repeat(100 + thread))
}

fn append_from_threads(workspace: &Path, process: u64) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let client = open(workspace);
                let source = format!("p{process}-t{thread}.md");
                for _ in 0..APPENDS {
                    client.copy(&source, 1, "shared/log.md", "append");
                }
            });
        }
    });
}

#[test]
fn appends_of_several_processes_all_land_whole() {
    let workspace = Workspace::new();
    for process in 0..PROCESSES as u64 {
        for thread in 0..THREADS {
            workspace.manual(&format!("p{process}-t{thread}.md"), section(process, thread));
        }
    }
    let children: Vec<Child> = (0..PROCESSES)
        .map(|process| {
            let job = json!({ "name": "append", "workspace": workspace.dir.path(), "process": process });
            command(&[], &job).spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    let mut counts = BTreeMap::<String, usize>::new();
    for line in workspace.text("shared/log.md").split_inclusive('\n') {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    let want: BTreeMap<String, usize> = (0..PROCESSES as u64)
        .flat_map(|process| (0..THREADS).map(move |thread| (section(process, thread), APPENDS)))
        .collect();
    assert!(counts == want, "{} different lines", counts.len());
    assert_eq!(workspace.vault(), ["shared", "shared/log.md"]);
}

/// Two versions of a file, large enough that writing takes a while.
const VERSIONS: [&str; 2] = ["old", "new"];

fn version(name: &str) -> String {
    format!("# {name}\n{}", format!("{name}\n").repeat(100_000))
}

fn overwrite_for_ever(workspace: &Path) {
    let client = open(workspace);
    let copy = |name: &str| {
        let mut call = copy(&format!("{name}.txt"), 1, "x.md", "overwrite");
        call["limits"] = json!({ "max_chars": 10_000_000 });
        client.ok("bridge_copy_section", &call);
    };
    VERSIONS.into_iter().for_each(copy);
    eprintln!("ready");
    loop {
        VERSIONS.into_iter().for_each(copy);
    }
}

#[test]
fn a_process_killed_at_any_moment_leaves_the_old_file_or_the_new_one() {
    let workspace = Workspace::new();
    for name in VERSIONS {
        // Plain text, so that most of the time is spent writing.
        workspace.manual(&format!("{name}.txt"), version(name));
    }
    let [old, new] = VERSIONS.map(version);
    let mut found = [0, 0];
    let mut left_behind = 0;
    let mut kills = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    let at_least = if thorough() { 50 } else { 6 };
    // At least that often, and until one was killed while it wrote.
    while kills < at_least || left_behind == 0 && Instant::now() < deadline {
        kills += 1;
        let job = json!({ "name": "overwrite", "workspace": workspace.dir.path() });
        let mut child = command(&[], &job).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
            said.push(line);
            said.last().is_some_and(|line| line == "ready")
        });
        assert!(is_ready, "the child does not start: {said:#?}");
        // A random time within the next 50 ms.
        std::thread::sleep(Duration::from_micros(RandomState::new().build_hasher().finish() % 50_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let text = workspace.text("x.md");
        found[0] += usize::from(text == old);
        found[1] += usize::from(text == new);
        left_behind = left_behind.max(workspace.vault().len() - 1);
        assert!(left_behind <= 1, "every start removes what the one before left: {:?}", workspace.vault());
        workspace.open().ok("vault_undo", &json!({ "path": "x.md" }));
        assert!(workspace.text("x.md") != text, "nothing was undone after {kills} kills");
    }
    assert_eq!(found[0] + found[1], kills, "half a file");
    assert!(left_behind == 1, "no process was killed while it wrote");
    workspace.open().copy("old.txt", 1, "x.md", "overwrite");
    assert_eq!(workspace.vault(), ["x.md"]);
}

/// A section large enough that writing it takes a while, with its number at both ends.
fn numbered(number: usize) -> String {
    format!("# {number}\n{}end of {number}\n", format!("{number}\n").repeat(100_000))
}

/// Appends numbered sections in a loop, and prints which ones were confirmed.
fn append_for_ever(workspace: &Path) {
    let client = open(workspace);
    for number in 0.. {
        let call = json!({ "path": "log.md", "content": numbered(number), "mode": "append" });
        client.ok("vault_write", &call);
        // In one write, so that a kill cannot leave half of it.
        let line = format!("confirmed {number}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

/// The number of the next confirmation, or what was said instead. A line without an end was cut off by a kill.
fn next_confirmed(stderr: &mut impl BufRead) -> Result<usize, String> {
    let mut said = String::new();
    loop {
        let mut line = String::new();
        if stderr.read_line(&mut line).is_err() || !line.ends_with('\n') {
            return Err(said + &line);
        }
        if let Some(number) = line.strip_prefix("confirmed ") {
            return Ok(number.trim_end().parse().unwrap());
        }
        said += &line;
    }
}

#[test]
fn a_process_killed_while_it_appends_leaves_whole_sections_only() {
    let workspace = Workspace::new();
    let mut killed_in_the_middle = 0;
    let mut kills = 0;
    let deadline = Instant::now() + Duration::from_secs(120);
    let (at_least, in_the_middle) = if thorough() { (60, 5) } else { (6, 2) };
    // At least that often, and until some were killed while they wrote.
    while kills < at_least || killed_in_the_middle < in_the_middle && Instant::now() < deadline {
        kills += 1;
        workspace.note("log.md", "# before\n");
        let job = json!({ "name": "append for ever", "workspace": workspace.dir.path() });
        let mut child = command(&[], &job).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut last = next_confirmed(&mut stderr).expect("the child starts");
        // A random time within the next 20 ms.
        std::thread::sleep(Duration::from_micros(RandomState::new().build_hasher().finish() % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
        // The last confirmation before it was killed.
        while let Ok(next) = next_confirmed(&mut stderr) {
            last = next;
        }
        let text = workspace.text("log.md");
        let mut rest = text.strip_prefix("# before\n").expect("what was there is there");
        let mut found = 0;
        while !rest.is_empty() {
            rest = rest
                .strip_prefix(numbered(found).as_str())
                .unwrap_or_else(|| panic!("{} bytes are no whole section {found}", rest.len()));
            found += 1;
        }
        assert!(found > last, "section {last} was confirmed and is gone");
        assert!(found <= last + 2, "sections that were not written");
        killed_in_the_middle += workspace.vault().len() - 1;
        assert!(
            workspace.vault().len() <= 2,
            "what one left is removed by the next: {:?}",
            workspace.vault()
        );
    }
    assert!(killed_in_the_middle >= in_the_middle, "too few processes were killed while they wrote");
    workspace.open().ok("vault_write", &json!({ "path": "log.md", "content": "x", "mode": "append" }));
    assert_eq!(workspace.vault(), ["log.md"]);
}

/// The command that gives a process its own mounts. Without root it first becomes root of a user namespace,
/// where it may mount a tmpfs.
fn own_mounts() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() {
        &["unshare", "--mount"]
    } else {
        &["unshare", "--user", "--map-root-user", "--mount"]
    }
}

/// Runs a job with its vault on a separate tmpfs.
fn on_tmpfs(options: &str, job: &str) {
    let workspace = Workspace::with(format!("# A\n{}", "x".repeat(300_000)));
    workspace.manual("small.md", "# S\n");
    let script =
        format!("mount -t tmpfs -o {options} none '{}' && exec \"$@\"", workspace.path("vault").display());
    let job = json!({ "name": job, "workspace": workspace.dir.path() });
    let output = command(&[own_mounts(), &["sh", "-c", &script, "sh"]].concat(), &job).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("job done"), "{job}: {said}");
}

/// On a case-insensitive disk `Daily` is `daily`, on others `SYSTEM~1` is `.system`. A mount makes such names everywhere.
#[test]
fn folders_that_the_file_system_takes_for_daily_and_system_are_treated_so() {
    let workspace = Workspace::new();
    workspace.note("daily/2025-01-01.md", "old");
    workspace.note(".system/a.md", "ours");
    for folder in ["Daily", "notes/deep", "SYSTEM~1"] {
        fs::create_dir_all(workspace.path("vault").join(folder)).unwrap();
    }
    let script = "cd \"$0\" && mount --bind daily Daily && mount --bind daily notes/deep && \
        mount --bind .system SYSTEM~1 && exec \"$@\"";
    let job = json!({ "name": "other names", "workspace": workspace.dir.path() });
    let vault = workspace.path("vault");
    let before = [own_mounts(), &["sh", "-c", script, vault.to_str().unwrap()]].concat();
    let output = command(&before, &job).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("job done"), "{said}");
}

fn change_under_other_names(workspace: &Path) {
    let client = open(workspace);
    for folder in ["daily", "Daily", "notes/deep"] {
        let write = |name: &str, mode: &str| json!({ "path": format!("{folder}/{name}"), "content": "new", "mode": mode });
        assert_eq!(client.code("vault_write", &write("2025-01-01.md", "overwrite")), "forbidden", "{folder}");
        for name in ["plan.md", "2025-02-30.md", "deeper/2025-01-01.md"] {
            let create = json!({ "path": format!("{folder}/{name}"), "content": "x" });
            assert_eq!(client.code("vault_create", &create), "forbidden", "{folder}/{name}");
        }
        client.ok("vault_write", &write("2025-01-01.md", "append"));
        client.ok("vault_read", &json!({ "path": format!("{folder}/2025-01-01.md") }));
    }
    let text = fs::read_to_string(workspace.join("vault/daily/2025-01-01.md")).unwrap();
    assert_eq!(text, "old\nnew\nnew\nnew");
    assert_eq!(client.code("vault_ls", &json!({ "path": "SYSTEM~1" })), "forbidden");
    assert_eq!(client.code("vault_read", &json!({ "path": "SYSTEM~1/a.md" })), "forbidden");
    for (tool, arguments) in writing("SYSTEM~1/a.md").into_iter().chain(writing("SYSTEM~1/new/b.md")) {
        assert_eq!(client.code(tool, &arguments), "forbidden", "{tool} {arguments}");
    }
    println!("job done");
}

/// Every way to write 300,000 bytes.
fn large_writes(path: &str) -> Vec<(&'static str, Value)> {
    let limits = json!({ "max_chars": 10_000_000 });
    let mut copies: Vec<_> = ["append", "overwrite"].map(|mode| copy("a.md", 1, path, mode)).into();
    for call in &mut copies {
        call["limits"] = limits.clone();
    }
    copies.into_iter().map(|call| ("bridge_copy_section", call)).collect()
}

#[track_caller]
fn assert_io_error(client: &Client, tool: &str, arguments: &Value, os_error: i32) {
    let error = client.refused(tool, arguments);
    assert_eq!(
        (&error["code"], &error["details"]["os_error"]),
        (&json!("io_error"), &json!(os_error)),
        "{tool} {error}"
    );
}

const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

fn write_to_a_full_disk(workspace: &Path) {
    let client = open(workspace);
    let vault = workspace.join("vault");
    fs::write(vault.join("old.md"), "old").unwrap();
    for (tool, arguments) in large_writes("old.md").into_iter().chain(large_writes("new/sub/x.md")) {
        assert_io_error(&client, tool, &arguments, ENOSPC);
        assert_eq!(names(&vault), ["old.md"], "{arguments}");
        assert_eq!(fs::read_to_string(vault.join("old.md")).unwrap(), "old", "{arguments}");
    }
    let large = "x".repeat(300_000);
    for (tool, arguments) in [
        ("vault_create", json!({ "path": "new.md", "content": large })),
        ("vault_write", json!({ "path": "old.md", "content": large, "mode": "append" })),
        ("vault_write", json!({ "path": "old.md", "content": large, "mode": "overwrite" })),
        ("vault_replace", json!({ "path": "old.md", "find": "old", "replace": large })),
    ] {
        assert_io_error(&client, tool, &arguments, ENOSPC);
        assert_eq!(names(&vault), ["old.md"], "{tool}");
        assert_eq!(fs::read_to_string(vault.join("old.md")).unwrap(), "old", "{tool}");
    }
    // What fits is still written, even if the replaced text cannot be kept.
    let [old, new] = ["a", "b"].map(|letter| letter.repeat(100_000));
    fs::write(vault.join("kept.md"), &old).unwrap();
    client.ok("vault_write", &json!({ "path": "kept.md", "content": new, "mode": "overwrite" }));
    assert_eq!(fs::read_to_string(vault.join("kept.md")).unwrap(), new);
    assert_eq!(client.code("vault_undo", &json!({ "path": "kept.md" })), "not_found");
    assert_eq!(names(&vault), ["kept.md", "old.md"]);
    fs::remove_file(vault.join("kept.md")).unwrap();
    client.copy("small.md", 1, "old.md", "append");
    assert_eq!(fs::read_to_string(vault.join("old.md")).unwrap(), "old\n# S\n");
    println!("job done");
}

fn make_without_inodes(workspace: &Path) {
    let client = open(workspace);
    let vault = workspace.join("vault");
    fs::write(vault.join("old.md"), "old").unwrap();
    for path in ["new.md", "sub/new.md"] {
        assert_io_error(&client, "bridge_copy_section", &copy("small.md", 1, path, "append"), ENOSPC);
    }
    for mode in ["append", "overwrite"] {
        assert_io_error(&client, "bridge_copy_section", &copy("small.md", 1, "old.md", mode), ENOSPC);
    }
    assert_eq!(names(&vault), ["old.md"]);
    assert_eq!(fs::read_to_string(vault.join("old.md")).unwrap(), "old");
    println!("job done");
}

fn write_to_a_read_only_disk(workspace: &Path) {
    let client = open(workspace);
    let vault = workspace.join("vault");
    fs::write(vault.join("old.md"), "old").unwrap();
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&vault).status().unwrap();
    assert!(remount.success());
    for path in ["old.md", "new.md", "sub/new.md"] {
        for mode in ["append", "overwrite"] {
            assert_io_error(&client, "bridge_copy_section", &copy("small.md", 1, path, mode), EROFS);
        }
    }
    assert_eq!(client.ok("vault_read", &json!({ "path": "old.md" }))["text"], "old");
    assert_eq!(names(&vault), ["old.md"]);
    println!("job done");
}

#[test]
fn a_full_disk_leaves_what_was_there() {
    on_tmpfs("size=256k", "full disk");
}

#[test]
fn a_disk_without_inodes_leaves_what_was_there() {
    // Enough for the root and one file.
    on_tmpfs("size=1m,nr_inodes=2", "no inodes");
}

#[test]
fn a_read_only_disk_is_an_io_error() {
    on_tmpfs("size=1m", "read-only disk");
}
