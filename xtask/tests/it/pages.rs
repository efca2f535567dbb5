//! The links of the pages work, on the repository's web view and in the book.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use xtask::project::Project;

/// The summary of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Every page for readers, relative to the root; the book contains them all.
fn pages(root: &Path) -> BTreeSet<PathBuf> {
    let mut pages = BTreeSet::from([PathBuf::from("crates/python/README.md")]);
    for folder in ["", "docs", "docs/first-steps"] {
        let names = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        pages.extend(names.map(|name| Path::new(folder).join(name)).filter(|page| is_page(page)));
    }
    assert!(pages.remove(Path::new(SUMMARY)));
    pages
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

fn read(root: &Path, page: &Path) -> String {
    fs::read_to_string(root.join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The lines that are not code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The targets of a page's links to other files, relative to the root, each with its heading.
fn links(root: &Path, page: &Path) -> Vec<(PathBuf, String)> {
    let text = read(root, page);
    let links =
        prose(&text).flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    links
        .filter(|link| !link.contains(':'))
        .map(|link| {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { page.to_owned() } else { plain(&page.with_file_name(file)) };
            (file, heading.to_owned())
        })
        .collect()
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            assert!(plain.pop(), "{} leads out of the repository", path.display());
        } else {
            plain.push(part);
        }
    }
    plain
}

/// The headings of a page, as link anchors.
fn headings(root: &Path, page: &Path) -> Vec<String> {
    let text = read(root, page);
    let titles = prose(&text)
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let link = |title: &str| {
        let kept =
            title.chars().filter(|character| character.is_alphanumeric() || "-_ ".contains(*character));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    titles.map(link).collect()
}

#[test]
fn every_page_is_in_the_book_once() {
    let root = Project::find().unwrap().root;
    let listed: Vec<_> = links(&root, Path::new(SUMMARY)).into_iter().map(|(page, _)| page).collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), pages(&root));
    assert_eq!(listed.len(), pages(&root).len(), "{listed:?}");
}

#[test]
fn links_lead_to_pages_and_headings_that_are_there() {
    let root = Project::find().unwrap().root;
    let pages = pages(&root);
    let mut count = 0;
    for page in &pages {
        for (target, heading) in links(&root, page) {
            let shown = format!("{} links to {}#{heading}", page.display(), target.display());
            if is_page(&target) {
                assert!(pages.contains(&target), "{shown}, which is not in the book");
                let found = heading.is_empty() || headings(&root, &target).contains(&heading);
                assert!(found, "{shown}, which has no such heading");
            } else {
                // mdBook copies pictures and other files only from there.
                assert!(
                    target.starts_with("docs") && root.join(&target).is_file(),
                    "{shown}, which is not in the book"
                );
            }
            count += 1;
        }
    }
    assert!(count >= 60, "only {count} links are found");
}
