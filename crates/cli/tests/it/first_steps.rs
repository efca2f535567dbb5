//! Runs each command on the documentation pages again and compares its output with the page.
//!
//! Covered here: every `console` block of the pages in `PAGES`, and those of README.md that start with the
//! executable (or with cargo, which would build and start it, or add it to the CLI). The others are covered
//! by `crates/toolbridge` (the README's Rust code as doctests, its program and the page for Rust in
//! `tests/it/first_steps.rs`, docs/TESTING.md in `tests/it/testing.rs`) and by
//! `crates/python/tests/test_first_steps.py`; a test here looks for blocks that no test runs.

use std::path::{Path, PathBuf};

use toolbridge_scripted::{Page, claude_cli};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn page(name: &str) -> Page {
    Page::new(path(name))
        .program("toolbridge", env!("CARGO_BIN_EXE_toolbridge"))
        .program("claude", claude_cli())
        .instead_of("cargo run --release --", "toolbridge")
}

/// The prefixes of the commands that are run here.
const OURS: [&str; 3] = ["toolbridge ", "cargo run --release -- ", "claude mcp add live "];

/// The prefixes of commands that other tests run: the Rust examples, and Python.
const OTHERS: [&str; 2] = ["cargo run --quiet", "python "];

/// The pages that are run here.
const PAGES: [&str; 4] =
    ["docs/first-steps/documents.md", "docs/TRACE.md", "docs/TROUBLE.md", "docs/USING.md"];
const PAGES_OF_OTHERS: [&str; 4] = [
    "docs/TESTING.md",
    "docs/first-steps/from-claudecode-model.md",
    "docs/first-steps/python.md",
    "docs/first-steps/rust.md",
];

#[test]
fn first_steps_with_documents() {
    assert!(page(PAGES[0]).repeat() >= 6);
}

#[test]
fn commands_of_the_readme() {
    assert!(page("README.md").only(&OURS).repeat() >= 5);
}

#[test]
fn commands_of_the_page_about_errors() {
    assert!(page(PAGES[2]).repeat() >= 4);
}

#[test]
fn commands_of_the_page_for_users() {
    assert!(page(PAGES[3]).repeat() >= 3);
}

#[test]
fn commands_of_the_page_about_traces() {
    assert!(page(PAGES[1]).repeat() >= 6);
}

#[test]
fn no_page_with_commands_is_forgotten() {
    let mut pages = Vec::new();
    for folder in ["docs", "docs/first-steps"] {
        for entry in std::fs::read_dir(path(folder)).unwrap() {
            let name = format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap());
            if Path::new(&name).extension().is_some_and(|end| end == "md")
                && !page(&name).commands().0.is_empty()
            {
                pages.push(name);
            }
        }
    }
    pages.sort();
    let mut run = [&PAGES[..], &PAGES_OF_OTHERS[..]].concat();
    run.sort_unstable();
    assert_eq!(pages, run);
}

#[test]
fn no_command_of_the_readme_is_forgotten() {
    let (console, sh) = page("README.md").commands();
    for command in console {
        let known = OURS.iter().chain(&OTHERS).any(|start| command.starts_with(start));
        assert!(known, "no test runs `{command}`");
    }
    // The first command runs this test, and does what the other two do, with its own wheel.
    assert_eq!(sh, ["cargo xtask test", "cargo xtask wheel", "pip install target/wheels/toolbridge-*.whl"]);
}

#[test]
fn messages_that_the_page_about_errors_explains_are_in_the_sources() {
    let mut sources = String::new();
    for entry in std::fs::read_dir(path("crates")).unwrap() {
        read_sources(&entry.unwrap().path().join("src"), &mut sources);
    }
    let text = std::fs::read_to_string(path(PAGES[2])).unwrap();
    let (_, table) = text.split_once("| you see |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
    let messages: Vec<&str> = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    assert!(messages.len() >= 8, "{messages:?}");
    for message in messages {
        for part in message.split('…').map(str::trim) {
            assert!(sources.contains(part), "no source says `{part}` of `{message}`");
        }
    }
}

fn read_sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() {
            read_sources(&entry, into);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&std::fs::read_to_string(entry).unwrap());
        }
    }
}
