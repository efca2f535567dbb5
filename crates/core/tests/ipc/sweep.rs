use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use toolbridge_core::Session;
use toolbridge_core::ipc::{SessionState, sessions, sweep};

use crate::{files, tools};

/// The ids of a session of ours (version 8) and of another implementation (version 4).
const OURS: &str = "0123456789ab8def8123456789abcdef";
const FOREIGN: &str = "0123456789ab4def8123456789abcdef";

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn socket(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("claudecode_ipc_{id}.sock"))
}

fn schema(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("claudecode_ipc_schema_{id}.json"))
}

/// What a killed process leaves: a socket without a listener, and a schema file.
fn leave_behind(dir: &Path, id: &str, age: Duration) {
    drop(UnixListener::bind(socket(dir, id)).unwrap());
    std::fs::write(schema(dir, id), "[]").unwrap();
    for path in [socket(dir, id), schema(dir, id)] {
        set_age(&path, age);
    }
}

fn set_age(path: &Path, age: Duration) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let then = (SystemTime::now() - age).duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let time = Timespec { tv_sec: then.as_secs().try_into().unwrap(), tv_nsec: 0 };
    utimensat(CWD, path, &Timestamps { last_access: time, last_modification: time }, AtFlags::empty())
        .unwrap();
}

#[test]
fn what_a_dead_session_of_ours_left_goes_at_once() {
    let dir = TempDir::new().unwrap();
    leave_behind(dir.path(), OURS, Duration::ZERO);
    drop(UnixListener::bind(dir.path().join(format!("claudecode_ipc_{OURS}.tmp"))).unwrap());
    assert_eq!(sessions(dir.path()).unwrap()[0].state, SessionState::Stale);
    assert_eq!(sweep(dir.path()).unwrap().len(), 1);
    assert!(files(dir.path()).is_empty());
}

#[test]
fn a_schema_file_that_was_to_replace_another_goes_with_its_session() {
    let dir = TempDir::new().unwrap();
    leave_behind(dir.path(), OURS, Duration::from_secs(120));
    let next = dir.path().join(format!("claudecode_ipc_schema_{OURS}.{FOREIGN}.tmp"));
    std::fs::write(&next, "[]").unwrap();
    set_age(&next, Duration::from_secs(120));
    assert_eq!(sweep(dir.path()).unwrap().len(), 1);
    assert!(files(dir.path()).is_empty());
}

#[test]
fn each_half_of_a_dead_session_goes_alone_too() {
    for remove in [socket, schema] {
        let dir = TempDir::new().unwrap();
        leave_behind(dir.path(), OURS, Duration::ZERO);
        std::fs::remove_file(remove(dir.path(), OURS)).unwrap();
        sweep(dir.path()).unwrap();
        assert!(files(dir.path()).is_empty());
    }
}

#[test]
fn files_without_our_lock_are_left_alone_for_a_minute() {
    let dir = TempDir::new().unwrap();
    leave_behind(dir.path(), FOREIGN, Duration::from_secs(50));
    assert_eq!(sessions(dir.path()).unwrap()[0].state, SessionState::Unclear);
    sweep(dir.path()).unwrap();
    assert_eq!(files(dir.path()).len(), 2);
    for path in [socket(dir.path(), FOREIGN), schema(dir.path(), FOREIGN)] {
        set_age(&path, Duration::from_secs(70));
    }
    sweep(dir.path()).unwrap();
    assert!(files(dir.path()).is_empty());
}

#[test]
fn a_socket_that_answers_is_never_touched() {
    let dir = TempDir::new().unwrap();
    let _listener = UnixListener::bind(socket(dir.path(), FOREIGN)).unwrap();
    std::fs::write(schema(dir.path(), FOREIGN), "[]").unwrap();
    for path in [socket(dir.path(), FOREIGN), schema(dir.path(), FOREIGN)] {
        set_age(&path, Duration::from_secs(3600));
    }
    assert_eq!(sessions(dir.path()).unwrap()[0].state, SessionState::Live);
    sweep(dir.path()).unwrap();
    assert_eq!(files(dir.path()).len(), 2);
}

#[test]
fn a_locked_schema_file_without_a_socket_is_a_session_that_starts() {
    let dir = TempDir::new().unwrap();
    std::fs::write(schema(dir.path(), OURS), "[]").unwrap();
    let file = std::fs::File::open(schema(dir.path(), OURS)).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    sweep(dir.path()).unwrap();
    assert_eq!(files(dir.path()).len(), 1);
}

#[test]
fn links_and_strangers_names_are_left_alone() {
    let dir = TempDir::new().unwrap();
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    symlink(&victim, schema(dir.path(), OURS)).unwrap();
    symlink(&victim, socket(dir.path(), FOREIGN)).unwrap();
    std::fs::create_dir(dir.path().join("claudecode_ipc_.sock")).unwrap();
    std::fs::write(dir.path().join("claudecode_ipc_notanid.sock"), "").unwrap();
    std::fs::write(dir.path().join(format!("other_{OURS}.sock")), "").unwrap();
    let before = files(dir.path());
    assert!(sweep(dir.path()).unwrap().is_empty());
    assert_eq!(files(dir.path()), before);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sweep_never_takes_a_file_from_a_session_that_lives_or_starts() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().to_owned();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let sweepers: Vec<_> = (0..2)
        .map(|_| {
            let (path, stop) = (path.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    sweep(&path).unwrap();
                }
            })
        })
        .collect();
    for _ in 0..10 {
        let starting: Vec<_> = (0..50)
            .map(|_| {
                let path = path.clone();
                tokio::spawn(async move {
                    let session = Session::builder(tools()).dir(path).start().await.unwrap();
                    assert!(session.socket_path().exists() && session.schema_path().exists());
                    session
                })
            })
            .collect();
        let mut live = Vec::new();
        for session in starting {
            live.push(session.await.unwrap());
        }
        for session in &live {
            assert!(session.socket_path().exists() && session.schema_path().exists());
            session.stop().await;
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for sweeper in sweepers {
        sweeper.join().unwrap();
    }
    assert!(files(&path).is_empty());
}

#[test]
fn a_foreign_schema_file_alone_may_belong_to_a_socket_of_another_name() {
    let dir = TempDir::new().unwrap();
    leave_behind(dir.path(), FOREIGN, Duration::from_secs(3600));
    std::fs::remove_file(socket(dir.path(), FOREIGN)).unwrap();
    assert!(sweep(dir.path()).unwrap().is_empty());
    assert_eq!(files(dir.path()).len(), 1);
}

fn fifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn what_is_not_a_session_file_takes_a_name_and_does_not_stop_the_sweep() {
    let obstacles: [fn(&Path); 5] = [
        fifo,
        |path| std::fs::create_dir(path).unwrap(),
        |path| symlink("/etc/passwd", path).unwrap(),
        |path| symlink("/nowhere", path).unwrap(),
        // A socket with a schema file's name, and the reverse.
        |path| match path.extension().unwrap().to_str() {
            Some("json") => drop(UnixListener::bind(path).unwrap()),
            _ => std::fs::write(path, "").unwrap(),
        },
    ];
    for (number, obstacle) in obstacles.into_iter().enumerate() {
        let dir = TempDir::new().unwrap();
        // Before and after the obstacles in any order, and beside one.
        leave_behind(dir.path(), OURS, Duration::ZERO);
        for place in [socket, schema] {
            let late = OURS.replace("012345", "fedcba");
            let early = OURS.replace("012345", "000000");
            obstacle(&place(dir.path(), &late));
            obstacle(&place(dir.path(), &early));
        }
        let broken = OURS.replace("012345", "111111");
        leave_behind(dir.path(), &broken, Duration::ZERO);
        std::fs::remove_file(socket(dir.path(), &broken)).unwrap();
        obstacle(&socket(dir.path(), &broken));
        // On a separate thread: opening a FIFO for reading could block forever.
        let (path, (done, is_done)) = (dir.path().to_owned(), mpsc::channel());
        std::thread::spawn(move || done.send(sweep(&path).unwrap().len()));
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok(2), "obstacle {number}");
        let left = files(dir.path());
        assert_eq!(left.len(), 5, "obstacle {number}: {left:?}");
    }
}
