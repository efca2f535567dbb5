//! The tests that `docs/FAULTS.md` names exist.

use std::path::{Path, PathBuf};

use xtask::project::Project;

/// A test as the page names it: a crate or a folder of the engine, a file in it, and a function.
#[derive(Debug)]
struct Named<'a> {
    krate: &'a str,
    file: String,
    function: &'a str,
}

/// Everything in backticks that looks like a test.
fn named(page: &str) -> Vec<Named<'_>> {
    let words = page.split('`').skip(1).step_by(2).filter(|word| !word.contains(['…', ' ']));
    words
        .filter_map(|word| {
            let parts: Vec<_> = word.split("::").collect();
            let [krate, file @ .., function] = &parts[..] else { return None };
            (!file.is_empty()).then(|| Named { krate, file: file.join("/"), function })
        })
        .collect()
}

/// The files that may contain the test.
fn files(root: &Path, named: &Named<'_>) -> Vec<PathBuf> {
    let Named { krate, file, .. } = named;
    let folders = match *krate {
        "fuzz" => vec![root.join("fuzz")],
        "tests" => vec![root.join("tests/python")],
        _ if root.join("crates").join(krate).is_dir() => vec![root.join("crates").join(krate)],
        _ => ["src", "src/source", "tests"].map(|of| root.join("crates/core").join(of).join(krate)).into(),
    };
    let mut found = Vec::new();
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        below(folder, &mut found);
    }
    let is_it = |path: &PathBuf| {
        let path = path.with_extension("");
        path.ends_with(file) || path.ends_with(format!("{file}/mod"))
    };
    found.retain(is_it);
    found
}

/// The sources in a folder and its folders.
fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.ends_with("target") {
            below(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs" || end == "py") {
            found.push(path);
        }
    }
}

/// Whether `text` has a test of that name.
fn has_test(text: &str, function: &str) -> bool {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(place, line)| {
        let is_it = ["fn ", "async fn ", "def ", "async def "].iter().any(|start| {
            line.strip_prefix(start)
                .is_some_and(|rest| rest.strip_prefix(function).is_some_and(|rest| rest.starts_with('(')))
        });
        let is_rust = !line.contains("def ");
        let above = lines[place.saturating_sub(4)..place].iter().rev();
        let is_marked = above.take_while(|line| line.starts_with("#[")).any(|line| line.contains("test"));
        is_it && (is_marked || !is_rust && function.starts_with("test_"))
    })
}

#[test]
fn every_test_named_on_the_page_of_faults_exists() {
    let root = Project::find().unwrap().root;
    let page = std::fs::read_to_string(root.join("docs/FAULTS.md")).unwrap();
    let named = named(&page);
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| fault"));
    assert!(rows.clone().count() > 50, "the page has lost its rows");
    for row in rows {
        assert!(row.contains("::"), "no test is named: {row}");
    }
    let missing: Vec<_> = named
        .iter()
        .filter(|named| {
            let files = files(&root, named);
            !files.iter().any(|file| has_test(&std::fs::read_to_string(file).unwrap(), named.function))
        })
        .collect();
    assert!(named.len() > 100 && missing.is_empty(), "{missing:#?}");
}

#[test]
fn tests_are_distinguished_from_other_functions() {
    assert!(has_test("#[test]\nfn a() {}", "a"));
    assert!(has_test("#[tokio::test(start_paused = true)]\n    async fn a() {", "a"));
    assert!(has_test("def test_a(exe: str):", "test_a"));
    assert!(!has_test("#[test]\nfn ab() {}", "a"));
    assert!(!has_test("fn a() {}", "a"));
    assert!(!has_test("#[test]\n\nfn b() {}\nfn a() {}", "a"));
}
