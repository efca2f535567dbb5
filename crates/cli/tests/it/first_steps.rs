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
fn messages_that_the_readme_explains_are_in_the_sources() {
    let mut sources = String::new();
    for entry in std::fs::read_dir(path("crates")).unwrap() {
        read_sources(&entry.unwrap().path().join("src"), &mut sources);
    }
    let readme = std::fs::read_to_string(path("README.md")).unwrap();
    let (_, table) = readme.split_once("| you see |").unwrap();
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

#[test]
fn links_of_the_pages_lead_somewhere() {
    let pages = ["README.md", "ARCHITECTURE.md", "PROTOCOL.md", "docs/TRACE.md", "docs/first-steps/rust.md"];
    let more = [
        "docs/first-steps/python.md",
        "docs/first-steps/from-claudecode-model.md",
        "docs/first-steps/documents.md",
        "docs/USING.md",
        "crates/python/README.md",
    ];
    for name in pages.into_iter().chain(more) {
        let text = std::fs::read_to_string(path(name)).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            if file.starts_with("http") {
                continue;
            }
            let target = if file.is_empty() { path(name) } else { path(name).with_file_name(file) };
            assert!(target.exists(), "{name} links to `{link}`");
            let found = place.is_empty() || headings(&target).iter().any(|heading| heading == place);
            assert!(found, "{name} links to `{link}`, where there is no such heading");
        }
    }
}

/// The headings of a page, as links name them.
fn headings(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let titles =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let link = |title: &str| {
        let kept =
            title.chars().filter(|character| character.is_alphanumeric() || "-_ ".contains(*character));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    titles.map(link).collect()
}
