//! Sessions and system limits: modes, full and read-only disks, descriptors.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Host, PATIENCE, eventually, files, run, start_host, toolbridge};

#[test]
fn files_are_private_with_any_umask() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().to_owned();
    let (done, over) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let mut looks = 0_u64;
        while over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            for entry in std::fs::read_dir(&path).unwrap().flatten() {
                let Ok(meta) = std::fs::symlink_metadata(entry.path()) else { continue };
                let mode = meta.permissions().mode();
                assert_eq!(mode & 0o177, 0, "{}: {mode:o}", entry.path().display());
                looks += 1;
            }
        }
        looks
    });
    for _ in 0..30 {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_toolbridge")]);
        let (mut process, stdin, _) = start_host(command.env("TMPDIR", dir.path()));
        drop(stdin);
        assert!(process.wait_within(PATIENCE).success());
    }
    drop(done);
    assert!(watch.join().unwrap() > 100, "the watcher did not look often enough");
}

/// Runs `toolbridge demo --serve` inside a private mount namespace, on a tmpfs with these options.
fn start_on_tmpfs(options: &str, before: &str) -> (i32, String, String) {
    let dir = TempDir::new().unwrap();
    let script = format!(
        "mount -t tmpfs -o {options} none '{0}' && cd '{0}' && {before} ls -A > /tmp/.before.$$; \
         TMPDIR='{0}' '{1}' demo --serve < /dev/null; code=$?; \
         ls -A | cmp -s - /tmp/.before.$$ || echo 'LEFT BEHIND' >&2; rm -f /tmp/.before.$$; exit $code",
        dir.path().display(),
        env!("CARGO_BIN_EXE_toolbridge"),
    );
    let mut command = Command::new("unshare");
    // Without root, become root of a user namespace, which may mount a tmpfs too.
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    run(command.args(["--mount", "sh", "-c", &script]))
}

#[test]
fn a_directory_that_is_full_read_only_or_out_of_inodes_is_one_clear_error_and_nothing_is_left() {
    let fill = "dd if=/dev/zero of=fill bs=4k 2>/dev/null;";
    for (options, before, want) in [
        ("size=64k", fill, "No space left on device (os error 28)"),
        ("size=1m,nr_inodes=2", "touch one;", "No space left on device (os error 28)"),
        ("size=1m", "mount -o remount,ro . ;", "Read-only file system (os error 30)"),
    ] {
        let (code, stdout, stderr) = start_on_tmpfs(options, before);
        assert_eq!((code, stdout.as_str()), (1, ""), "{options}: {stderr}");
        let lines: Vec<_> = stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{options}: {stderr}");
        assert!(lines[0].starts_with("error: cannot start a session in `"), "{options}: {stderr}");
        assert!(lines[0].ends_with(want), "{options}: {stderr}");
        assert_eq!(lines[1], "hint: set TMPDIR to a directory that exists, can be written and has space");
    }
}

#[test]
fn running_out_of_descriptors_pauses_accepting_and_disturbs_no_open_connection() {
    let dir = TempDir::new().unwrap();
    let mut command = Command::new("prlimit");
    command
        .args(["--nofile=40", env!("CARGO_BIN_EXE_toolbridge")])
        .env("TMPDIR", dir.path())
        .stderr(std::process::Stdio::null());
    let (process, stdin, hello) = start_host(&mut command);
    let path = |key: &str| Path::new(hello[key].as_str().unwrap()).to_owned();
    let mut client = crate::support::McpClient::start(&path("socket"), &path("schema"));
    client.initialize();
    let open_call = client.start_call("wait", json!({ "ms": 2_000 }));
    client.call("echo", json!({ "text": "" }));
    // More connections than descriptors; the rest stay unaccepted.
    let crowd: Vec<_> =
        (0..60).map(|_| std::os::unix::net::UnixStream::connect(path("socket")).unwrap()).collect();
    let cpu = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
        let times: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|t| t.parse().unwrap())
            .collect();
        times.iter().sum::<u64>()
    };
    let before = cpu();
    let answer = client.answer(open_call);
    assert_eq!(answer["result"]["content"][0]["text"], "waited 2000 ms");
    let ticks = cpu() - before;
    assert!(ticks < 50, "it was busy for {ticks} hundredths of 2 seconds");
    drop(crowd);
    eventually("it accepts again", PATIENCE, || client.call_text("echo", json!({ "text": "hi" })) == "hi");
    drop(stdin);
    let mut process = process;
    assert!(process.wait_within(PATIENCE).success());
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn fifty_hosts_start_side_by_side_and_none_loses_a_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().to_owned();
    let start = |_| {
        let path = path.clone();
        std::thread::spawn(move || {
            let (process, stdin, hello) = start_host(toolbridge().env("TMPDIR", &path));
            for key in ["socket", "schema"] {
                assert!(Path::new(hello[key].as_str().unwrap()).exists(), "{key}");
            }
            (process, stdin, hello)
        })
    };
    let starting: Vec<_> = (0..50).map(start).collect();
    let mut hosts: Vec<_> = starting.into_iter().map(|host| host.join().unwrap()).collect();
    assert_eq!(files(dir.path()).len(), 100);
    let (mut process, stdin, _) = hosts.pop().unwrap();
    drop(stdin);
    assert!(process.wait_within(PATIENCE).success());
    assert_eq!(files(dir.path()).len(), 98);
    for (mut process, stdin, _) in hosts {
        drop(stdin);
        assert!(process.wait_within(PATIENCE).success());
    }
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn thousands_of_calls_leave_no_descriptor_open() {
    let host = Host::start();
    let mut client = host.client();
    let descriptors = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    client.call("echo", json!({ "text": "" }));
    let before = (descriptors(host.process.pid()), descriptors(client.bridge.pid()));
    for n in 0..3_000 {
        assert_eq!(client.call_text("add", json!({ "a": n, "b": 1 })), (n + 1).to_string());
    }
    assert_eq!((descriptors(host.process.pid()), descriptors(client.bridge.pid())), before);
}
