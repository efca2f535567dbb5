//! A temporary directory that other users share: their files, and users whom a namespace does not map.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::foreign_bridge::KNOCK;
use crate::support::{PATIENCE, files, run, say_unchecked, start_host};
use crate::wire::{frame, python, python_as_another_user, request};

const EXECUTABLE: &str = env!("CARGO_BIN_EXE_toolbridge");

/// Us, without any right.
const US: u32 = 54_321;

/// A directory like `/tmp`: everybody may make files there, and remove their own.
fn shared_dir() -> TempDir {
    let dir = TempDir::new().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
    dir
}

/// Whether there can be processes of `uid`, and inside a user namespace that maps only them. Says so if not.
fn can_be(uid: u32, map: Option<u32>) -> bool {
    if !rustix::process::geteuid().is_root() {
        say_unchecked("only root can start a process of another user");
        return false;
    }
    let (code, _, stderr) = run(&mut command_as(uid, map, &["test", "-x", EXECUTABLE]));
    if code != 0 {
        say_unchecked(&format!("user {uid} cannot start the executable here: {}", stderr.trim()));
    }
    code == 0
}

/// What is run by `uid`, inside a user namespace that maps only them, as user `map`, if there is one.
fn command_as(uid: u32, map: Option<u32>, command: &[&str]) -> Command {
    let mut setpriv = Command::new("setpriv");
    let uid = uid.to_string();
    setpriv.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
    if let Some(map) = map {
        setpriv.args(["unshare", "--user", &format!("--map-user={map}")]);
    }
    setpriv.args(command);
    setpriv
}

#[test]
fn an_unmapped_peer_is_refused_though_it_seems_to_be_this_user() {
    if !can_be(US, Some(65534)) {
        return;
    }
    // Who the parent is outside and inside; whether a process of nobody and one of ours are served.
    for (uid, map, nobody_is_served, we_are_served) in [
        (US, Some(65534), false, false),
        (US, Some(1000), false, true),
        (65534, None, true, false),
        (US, None, false, true),
    ] {
        let dir = shared_dir();
        let mut command = command_as(uid, map, &[EXECUTABLE]);
        let command = command.env("TMPDIR", dir.path()).stderr(Stdio::null());
        let (mut host, stdin, hello) = start_host(command);
        let socket = hello["socket"].as_str().unwrap();
        std::fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
        let hex: String = frame(request("echo", json!({ "text": "let me in" })).to_string())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let knock = |command: &mut Command| {
            let (code, stdout, stderr) = run(command.args([socket, &hex]));
            assert_eq!(code, 0, "{stderr}");
            stdout == "served\n"
        };
        let ours = python(KNOCK);
        let ours = [ours.get_program().to_str().unwrap(), "-c", KNOCK];
        let served =
            (knock(&mut python_as_another_user(KNOCK).unwrap()), knock(&mut command_as(US, None, &ours)));
        assert_eq!(served, (nobody_is_served, we_are_served), "{uid} as {map:?}");
        drop(stdin);
        assert!(host.wait_within(PATIENCE).success());
        assert_eq!(files(dir.path()), Vec::<String>::new());
    }
}
