//! The README's program, run as its reader would.

use std::process::Command;

use toolbridge_scripted::{claude_cli, clean_environment};

use super::support::{World, bridge};

/// Without the lines that only our lints and our documentation need.
fn program() -> String {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/ask.rs")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("//!") && !line.starts_with("#!["));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[test]
fn the_readme_shows_the_example_and_it_is_short() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    assert!(readme.contains(&program()), "the README does not have examples/ask.rs as it is");
    let lines = program().lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines < 25, "{lines} lines");
}

/// Runs an example as its reader would: the CLI is on the PATH.
fn run(world: &World, example: &str, args: &[&str]) -> String {
    let bin = world.home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(claude_cli(), bin.join("claude")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new(bridge().with_file_name(example))
        .args(args)
        .env_clear()
        .envs(clean_environment(world.home.path(), &world.scripted.url()))
        .env("PATH", path)
        .env("TMPDIR", world.sessions.path())
        .current_dir(world.home.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    // What the CLI itself leaves in the temporary directory is not ours to judge.
    let left = std::fs::read_dir(world.sessions.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let ours: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("claudecode_ipc")).collect();
    assert!(ours.is_empty(), "{ours:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_example_asks_and_its_function_is_called() {
    let world = World::new("call add {\"a\": 40, \"b\": 2}\n---\ntext The sum is {result}.");
    assert_eq!(run(&world, "ask", &[]), "The sum is 42.0.\n");
    assert_eq!(world.scripted.requests()[0].prompt(), "What is 40 + 2?");
}

#[test]
fn documents_stand_beside_functions_of_ones_own() {
    let script = "call shout {\"text\": \"hi\"}\ncall manual_list {}\n---\ntext {results}";
    let world = World::new(script);
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workspace");
    let shown = run(&world, "docs", &[workspace, "Which manuals are there?"]);
    let manuals = r#"{"items":[{"manual_id":"espresso-machine"},{"manual_id":"office-ja"}]}"#;
    assert_eq!(shown, format!("HI, {manuals}\n"));
}
