//! The README's program, run as a reader would.

use std::path::{Path, PathBuf};
use std::process::Command;

use toolbridge_scripted::{claude_cli, clean_environment};

use super::support::{World, bridge};
use super::traps::{Traps, files_below, left_in};

/// The example without the lines that only our lints and our documentation need.
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

/// A directory for the PATH that contains the CLI.
fn bin(world: &World) -> PathBuf {
    let bin = world.home.path().join("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(claude_cli(), bin.join("claude")).unwrap();
    }
    bin
}

/// Runs an example as a reader would, in this directory: the CLI is on the PATH.
fn run(world: &World, directory: &Path, example: &str, args: &[&str]) -> String {
    let path = format!("{}:{}", bin(world).display(), std::env::var("PATH").unwrap());
    let output = Command::new(bridge().with_file_name(example))
        .args(args)
        .env_clear()
        .envs(clean_environment(world.home.path(), &world.scripted.url()))
        .env("PATH", path)
        .env("TMPDIR", world.sessions.path())
        .current_dir(directory)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    world.nothing_is_left();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_example_asks_and_its_function_is_called() {
    let world = World::new("call add {\"a\": 40, \"b\": 2}\n---\ntext The sum is {result}.");
    let traps = Traps::new(&world);
    bin(&world);
    let before = files_below(world.home.path());
    assert_eq!(run(&world, &traps.project, "ask", &[]), "The sum is 42.0.\n");
    let request = &world.scripted.requests()[0];
    assert_eq!(request.prompt(), "What is 40 + 2?");
    // The model got that function and nothing else; and no files are left.
    assert_eq!(request.tools(), ["mcp__tools__add"]);
    assert!(!request.body.to_string().contains(traps.project.to_str().unwrap()), "{}", request.body);
    assert_eq!((Traps::seen(&world), traps.sprung()), (vec![], vec![]));
    assert_eq!(left_in(world.home.path(), &before), [""; 0].map(PathBuf::from));
}

#[test]
fn documents_stand_beside_functions_of_ones_own() {
    let script = "call shout {\"text\": \"hi\"}\ncall manual_list {}\n---\ntext {results}";
    let world = World::new(script);
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workspace");
    let shown = run(&world, world.home.path(), "docs", &[workspace, "Which manuals are there?"]);
    let manuals = r#"{"items":[{"manual_id":"espresso-machine"},{"manual_id":"office-ja"}]}"#;
    assert_eq!(shown, format!("HI, {manuals}\n"));
}
