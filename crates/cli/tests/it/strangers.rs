//! A temporary directory shared with other users: their files, and users that a namespace does not map.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::foreign_bridge::KNOCK;
use toolbridge_scripted::report_skipped;

use crate::support::{PATIENCE, files, run, start_host};
use crate::wire::{frame, python, python_as_another_user, request};

const EXECUTABLE: &str = env!("CARGO_BIN_EXE_toolbridge");

/// Our user and another one, both without privileges.
const US: u32 = 54_321;
const STRANGER: u32 = 54_322;

/// Session ids of ours (by their version), in the order in which the sweep visits them.
const EARLY: &str = "000000000000800080000000000000aa";
const LATE: &str = "ffffffffffff8fff8fffffffffffffff";
/// The id of another implementation's session.
const FOREIGN: &str = "0123456789ab4def8123456789abcdef";

fn socket(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("claudecode_ipc_{id}.sock"))
}

fn schema(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("claudecode_ipc_schema_{id}.json"))
}

/// A directory like `/tmp`: every user may create files there, and remove their own.
fn shared_dir() -> TempDir {
    let dir = TempDir::new().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
    dir
}

/// A socket without a listener.
fn dead_socket(path: &Path, owner: u32) {
    drop(UnixListener::bind(path).unwrap());
    chown(path, Some(owner), Some(owner)).unwrap();
}

fn plain_file(path: &Path, owner: u32) {
    std::fs::write(path, "[]").unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
}

/// Creates the files that a killed session of `owner` leaves.
fn leave_behind(dir: &Path, id: &str, owner: u32) {
    dead_socket(&socket(dir, id), owner);
    plain_file(&schema(dir, id), owner);
}

/// Whether processes can run as `uid`, and inside a user namespace that maps only that user. Reports it if
/// not.
fn can_be(uid: u32, map: Option<u32>) -> bool {
    if !rustix::process::geteuid().is_root() {
        report_skipped("only root can start a process of another user");
        return false;
    }
    let (code, _, stderr) = run(&mut command_as(uid, map, &["test", "-x", EXECUTABLE]));
    if code != 0 {
        report_skipped(&format!("user {uid} cannot start the executable here: {}", stderr.trim()));
    }
    code == 0
}

/// A command run by `uid`, inside a user namespace that maps only that user, as user `map`, if that is given.
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

/// Removes the files of dead sessions of user `uid`, with the real executable.
fn clean(dir: &Path, uid: u32, map: Option<u32>) -> String {
    let mut command = command_as(uid, map, &[EXECUTABLE, "sessions", "--clean"]);
    let (code, stdout, stderr) = run(command.env("TMPDIR", dir));
    assert_eq!(code, 0, "{stderr}");
    stdout
}

#[test]
fn strangers_files_do_not_stop_the_sweep_and_stay() {
    if !can_be(US, None) {
        return;
    }
    for stranger in [STRANGER, 0] {
        let dir = shared_dir();
        for id in [EARLY, FOREIGN] {
            leave_behind(dir.path(), id, stranger);
        }
        let folder = socket(dir.path(), &EARLY.replace("aa", "bb"));
        std::fs::create_dir(&folder).unwrap();
        let strangers = files(dir.path());
        // One session of ours alone, and one whose files have a stranger's files beside them.
        leave_behind(dir.path(), LATE, US);
        let beside = EARLY.replace("aa", "cc");
        plain_file(&schema(dir.path(), &beside), US);
        dead_socket(&socket(dir.path(), &beside), stranger);
        let planted = dir.path().join(format!("claudecode_ipc_{LATE}.tmp"));
        dead_socket(&planted, stranger);
        let stdout = clean(dir.path(), US, None);
        assert_eq!(stdout.matches("removed ").count(), 2, "{stdout}");
        let mut want = strangers;
        want.extend(
            [socket(dir.path(), &beside), planted]
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()),
        );
        want.sort();
        assert_eq!(files(dir.path()), want);
    }
}

#[test]
fn an_unremovable_file_does_not_stop_the_sweep_and_is_not_reported_as_removed() {
    let dir = shared_dir();
    let us = rustix::process::geteuid().as_raw();
    leave_behind(dir.path(), LATE, us);
    leave_behind(dir.path(), EARLY, us);
    let stuck = schema(dir.path(), EARLY);
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&stuck).stderr(Stdio::null()).status();
    if !chattr("+i").is_ok_and(|status| status.success()) {
        report_skipped("only root can make a file immutable, and not on every file system");
        return;
    }
    let mut command = Command::new(EXECUTABLE);
    let (code, stdout, stderr) = run(command.args(["sessions", "--clean"]).env("TMPDIR", dir.path()));
    assert!(chattr("-i").unwrap().success());
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(files(dir.path()), [stuck.file_name().unwrap().to_str().unwrap()]);
    let rows: Vec<_> = stdout.lines().filter(|row| row.contains(&*dir.path().to_string_lossy())).collect();
    assert_eq!(rows.len(), 2, "{stdout}");
    assert!(rows[0].starts_with("stale ") && rows[0].contains(EARLY), "{stdout}");
    assert!(rows[1].starts_with("removed ") && rows[1].contains(LATE), "{stdout}");
}

/// The exit code and stderr of a bridge of user `uid` whose client sends nothing.
fn bridge(dir: &Path, uid: u32, map: Option<u32>) -> (i32, String) {
    let (socket, schema) = (socket(dir, LATE), schema(dir, LATE));
    let paths = [socket.to_str().unwrap(), schema.to_str().unwrap()];
    let mut command = command_as(uid, map, &[EXECUTABLE, "bridge", paths[0], paths[1]]);
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!(stdout, "");
    (code, stderr)
}

#[test]
fn a_bridge_refuses_the_schema_file_of_another_user() {
    if !can_be(US, None) {
        return;
    }
    let dir = shared_dir();
    let path = schema(dir.path(), LATE);
    let refusal = |reason: &str| (1, format!("error: schema file `{}` {reason}\n", path.display()));
    let rows = [
        (US, 0o600, (0, String::new())),
        (0, 0o644, (0, String::new())),
        (STRANGER, 0o644, refusal("belongs to user 54322, not to this user or root")),
        // The owner is checked before readability.
        (STRANGER, 0o600, refusal("belongs to user 54322, not to this user or root")),
        (US, 0o666, refusal("can be written by other users, its mode is 0666; `chmod 600` it")),
    ];
    for (owner, mode, want) in rows {
        plain_file(&path, owner);
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(bridge(dir.path(), US, None), want, "{owner}, {mode:o}");
    }
}

#[test]
fn the_schema_file_of_an_unmapped_user_is_refused() {
    if !can_be(US, Some(65534)) {
        return;
    }
    let dir = shared_dir();
    let path = schema(dir.path(), LATE);
    plain_file(&path, US);
    // Only this user is mapped inside; mapped to another id than `nobody`, the owner is recognised.
    assert_eq!(bridge(dir.path(), US, Some(1000)), (0, String::new()));
    for stranger in [STRANGER, 0] {
        chown(&path, Some(stranger), None).unwrap();
        let (code, stderr) = bridge(dir.path(), US, Some(1000));
        let want = "belongs to user 65534, not to this user or root\n";
        assert!(code == 1 && stderr.ends_with(want), "{stderr}");
        // Mapped to `nobody`, a stranger's files look like the user's own.
        let (code, stderr) = bridge(dir.path(), US, Some(65534));
        let want =
            "belongs to user 65534, which stands for every user that this user namespace does not map\n";
        assert!(code == 1 && stderr.ends_with(want), "{stderr}");
    }
    // With all users mapped, `nobody` is a user like any other.
    chown(&path, Some(65534), None).unwrap();
    assert_eq!(bridge(dir.path(), 65534, None), (0, String::new()));
}

#[test]
fn files_of_an_unmapped_user_are_left_alone() {
    if !can_be(US, Some(65534)) {
        return;
    }
    let dir = TempDir::new().unwrap();
    // Not sticky: a process that takes the files for its own could remove them.
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    leave_behind(dir.path(), EARLY, STRANGER);
    leave_behind(dir.path(), LATE, US);
    clean(dir.path(), US, Some(65534));
    assert_eq!(files(dir.path()).len(), 4);
    clean(dir.path(), US, Some(1000));
    assert!(files(dir.path()).iter().all(|name| name.contains(EARLY)) && files(dir.path()).len() == 2);
    for path in [socket(dir.path(), EARLY), schema(dir.path(), EARLY)] {
        chown(path, Some(65534), None).unwrap();
    }
    clean(dir.path(), 65534, None);
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn an_unmapped_peer_is_refused_though_it_seems_to_be_this_user() {
    if !can_be(US, Some(65534)) {
        return;
    }
    // The parent's user outside and inside; whether a process of `nobody` and one of ours are served.
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
