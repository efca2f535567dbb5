//! More results than fit into memory, and full disks. The test binary starts itself again as a child with a
//! small disk of its own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use toolbridge_core::park::Parked;

use crate::parked::{call, said, text, tools};

const DIR: &str = "TOOLBRIDGE_PARK_DISK";

/// Not a test of its own: it runs in the child.
#[tokio::test]
async fn job() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = Path::new(&dir);
    let kept = Arc::default();
    let source = Parked::new(tools(&kept)).unwrap().memory_bytes(0).spill_to(dir);
    // A small result fits, and is complete.
    let small = said(&call(&source, "give", &json!({ "size": 30_000 })).await.unwrap());
    call(&source, "store", &json!({ "text": small["handle"] })).await.unwrap();
    assert_eq!(kept.lock().unwrap()[0]["text"], text(30_000));
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "the file must be unnamed");
    // A large one does not. The tool has run, so the result is not an error, but it says what is lost.
    let large = call(&source, "give", &json!({ "size": 2_000_000 })).await.unwrap();
    let said_of_it = large["content"][0]["text"].as_str().unwrap();
    assert_eq!(large["isError"], false);
    assert!(said_of_it.starts_with(&text(25_000)), "its start must be there");
    let end = &said_of_it[text(25_000).len()..];
    assert!(end.contains("The rest is lost") && end.contains("No space left on device"), "{end}");
    // Results that were kept before are not lost, and further ones that fit are kept.
    call(&source, "store", &json!({ "text": small["handle"] })).await.unwrap();
    let again = said(&call(&source, "give", &json!({ "size": 30_000 })).await.unwrap());
    call(&source, "store", &json!({ "text": again["handle"] })).await.unwrap();
    assert_eq!(kept.lock().unwrap().len(), 3);
    println!("job done");
}

#[test]
fn a_full_disk_loses_only_what_does_not_fit_and_says_so() {
    let dir = tempfile::TempDir::new().unwrap();
    let own_mounts: &[&str] = if rustix::process::geteuid().is_root() {
        &["unshare", "--mount"]
    } else {
        &["unshare", "--user", "--map-root-user", "--mount"]
    };
    let script = format!("mount -t tmpfs -o size=256k none '{}' && exec \"$@\"", dir.path().display());
    let mut child = Command::new(own_mounts[0]);
    child.args(&own_mounts[1..]).args(["sh", "-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
    child.args(["--exact", "disk::job", "--nocapture"]).env(DIR, dir.path());
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("job done"), "{said}");
}

/// Results in files are complete, and use no memory.
#[tokio::test]
async fn results_beyond_the_memory_limit_are_passed_on_from_a_file() {
    let dir = tempfile::TempDir::new().unwrap();
    let kept = Arc::default();
    let source = Parked::new(tools(&kept)).unwrap().memory_bytes(100_000).spill_to(dir.path());
    let mut handles = Vec::new();
    for size in [40_000, 50_000, 1_000_000, 60_000] {
        let note = said(&call(&source, "give", &json!({ "size": size })).await.unwrap());
        handles.push((size, note["handle"].clone()));
    }
    for (size, handle) in handles {
        call(&source, "store", &json!({ "text": handle })).await.unwrap();
        assert_eq!(kept.lock().unwrap().last().unwrap()["text"], text(size));
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
