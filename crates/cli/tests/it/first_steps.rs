//! The pages that show commands of the executable: each is run again, and has to print what the page shows.
//!
//! Covered here: every `console` block of docs/first-steps/documents.md, docs/USING.md and docs/TRACE.md, and those of
//! README.md that start with the executable (or with cargo, which would build and start it). The README's other
//! blocks are covered by `crates/toolbridge` (its Rust code as doctests, its program in `tests/it/first_steps.rs`) and by
//! `crates/python/tests/test_first_steps.py`; that none is forgotten is seen to here.

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

/// How the commands begin that are run here.
const OURS: [&str; 2] = ["toolbridge ", "cargo run --release -- "];

/// How the others begin: those of the examples in Rust, and of Python.
const OTHERS: [&str; 2] = ["cargo run --quiet", "python "];

#[test]
fn first_steps_with_documents() {
    assert!(page("docs/first-steps/documents.md").repeat() >= 6);
}

#[test]
fn commands_of_the_readme() {
    assert!(page("README.md").only(&OURS).repeat() >= 8);
}

#[test]
fn commands_of_the_page_for_users() {
    assert!(page("docs/USING.md").repeat() >= 3);
}

#[test]
fn commands_of_the_page_about_traces() {
    assert!(page("docs/TRACE.md").repeat() >= 4);
}

#[test]
fn no_command_of_the_readme_is_forgotten() {
    let (console, sh) = page("README.md").commands();
    for command in console {
        let known = OURS.iter().chain(&OTHERS).any(|start| command.starts_with(start));
        assert!(known, "no test runs `{command}`");
    }
    // The first is what runs this test, and does what the other two do, with a wheel of its own.
    assert_eq!(sh, ["cargo xtask test", "cargo xtask wheel", "pip install target/wheels/toolbridge-*.whl"]);
}

#[test]
fn links_of_the_pages_lead_somewhere() {
    let pages = ["README.md", "ARCHITECTURE.md", "PROTOCOL.md", "docs/TRACE.md", "docs/first-steps/rust.md"];
    let more = [
        "docs/first-steps/python.md",
        "docs/first-steps/documents.md",
        "docs/USING.md",
        "crates/python/README.md",
    ];
    for name in pages.into_iter().chain(more) {
        let text = std::fs::read_to_string(path(name)).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.starts_with("http") {
                continue;
            }
            assert!(path(name).with_file_name(file).exists(), "{name} links to `{link}`");
        }
    }
}
