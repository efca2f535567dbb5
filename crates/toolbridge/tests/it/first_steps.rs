//! Runs each command on the pages about the examples again and compares its output.
//!
//! Covered here: every `console` block of `docs/first-steps/rust.md`, that its programs are the examples, and the block of
//! the README that runs a program. The Rust code in the README is a doctest of this crate.

use std::path::{Path, PathBuf};

use toolbridge_scripted::{Page, claude_cli};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Cargo builds the examples before it runs the tests, beside their executables.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples").join(name)
}

fn page(name: &str) -> Page {
    Page::new(path(name))
        .program("ask", example("ask"))
        .program("own_bridge", example("own_bridge"))
        .program("claude", claude_cli())
        .instead_of("cargo run --quiet --example own_bridge", "own_bridge")
        .instead_of("TOOLBRIDGE_TRACE=calls.jsonl cargo run --quiet", "TOOLBRIDGE_TRACE=calls.jsonl ask")
        .instead_of("cargo run --quiet", "ask")
}

#[test]
fn first_steps_in_rust() {
    assert!(page("docs/first-steps/rust.md").repeat() >= 6);
}

#[test]
fn programs_of_the_readme() {
    assert_eq!(page("README.md").only(&["cargo run --quiet"]).repeat(), 1);
}

/// The pages leave out lines that only our lints and our documentation need.
#[test]
fn the_programs_shown_are_the_examples() {
    let rust = "docs/first-steps/rust.md";
    for (page, name) in
        [(rust, "ask"), (rust, "own_bridge"), ("docs/HTTP.md", "http"), ("docs/TESTING.md", "testing")]
    {
        let shown = std::fs::read_to_string(path(page)).unwrap();
        let text = std::fs::read_to_string(path(&format!("crates/toolbridge/examples/{name}.rs"))).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("//!") && !line.starts_with("#!["));
        let program = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
        assert!(shown.contains(&program), "{page} does not have examples/{name}.rs as it is");
    }
}
