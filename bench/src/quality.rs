//! The quality of a search: questions with known answers, ours compared with FTS5, tantivy and bm25s.
//!
//! Every engine reads the same Markdown. The others are given the best of several settings for each set of questions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use xtask::project::{Project, run, stdout_of};

use crate::corpus::Random;
use crate::documents::Server;
use crate::environment::{Runtime, source};
use crate::search::{ENGINES, Peers, SearchRow};

/// The pages that our own questions are about.
const PAGES: &str = "crates/docs/tests/pages.txt";
/// Shorter words get no typo.
const TYPO_LETTERS: usize = 5;

/// Questions about one manual.
struct Set {
    key: &'static str,
    label: &'static str,
    file: &'static str,
    /// Whether each long word gets a typo.
    has_typos: bool,
}

const fn set(key: &'static str, label: &'static str, file: &'static str) -> Set {
    Set { key, label, file, has_typos: false }
}

const OWN: [Set; 2] = [
    set("search_ndcg", "our own pages", "crates/docs/tests/questions.tsv"),
    Set {
        has_typos: true,
        ..set("search_ndcg_typos", "the same with typos", "crates/docs/tests/questions.tsv")
    },
];
const RUST: [Set; 3] = [
    set("search_ndcg_rust", "the Rust book and reference", "bench/questions/rust.tsv"),
    Set {
        has_typos: true,
        ..set("search_ndcg_rust_typos", "the same with typos", "bench/questions/rust.tsv")
    },
    set("search_ndcg_cargo", "the Cargo book", "bench/questions/cargo.tsv"),
];
const ELECTRON: [Set; 1] =
    [set("search_ndcg_electron", "Electron's manual in Japanese", "bench/questions/electron.tsv")];

pub(crate) fn measure(
    toolbridge: &Path,
    peers: &Peers,
    project: &Project,
    has_manuals: bool,
    profile: &str,
) -> Result<Vec<SearchRow>> {
    eprintln!("measuring: what is found");
    let root = &project.root;
    let dir = TempDir::new()?;
    let judge = |name: &str, sets: &[Set]| judge(toolbridge, peers, root, &dir.path().join(name), sets);
    let folder = |name: &str| dir.path().join(name).join("manuals/m");
    for page in fs::read_to_string(root.join(PAGES))?.lines() {
        copy(root, &root.join(page), &folder("own"))?;
    }
    let mut rows = judge("own", &OWN)?;
    if !has_manuals {
        return Ok(rows);
    }
    let convert = |manual: &str, from: PathBuf, to: &str| {
        let mut command = peers.script(&source(root, "manuals.py"));
        run(command.arg(manual).arg(from).arg(folder(to)))
    };
    let sysroot = stdout_of(Command::new("rustc").args(["--print", "sysroot"]))?;
    let html = Path::new(sysroot.trim()).join("share/doc/rust/html");
    if html.join("reference").exists() {
        convert("rust", html, "rust")?;
        rows.extend(judge("rust", &RUST)?);
    } else {
        eprintln!("THERE ARE NO BOOKS IN {}: `rustup component add rust-docs`", html.display());
    }
    let node = Runtime::Node.install(project, profile)?;
    let packages = node.parent().context("no folder")?.join("node_modules");
    convert("electron", packages.join("electron-i18n/dist/docs.json"), "electron")?;
    rows.extend(judge("electron", &ELECTRON)?);
    Ok(rows)
}

/// Copies a page, or all pages of a folder.
fn copy(root: &Path, from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        for entry in fs::read_dir(from)? {
            copy(root, &entry?.path(), to)?;
        }
    } else if from.extension().is_some_and(|extension| extension == "md") {
        let to = to.join(from.strip_prefix(root)?);
        fs::create_dir_all(to.parent().context("no folder")?)?;
        fs::copy(from, to)?;
    }
    Ok(())
}

/// Asks every engine all questions about a manual: nDCG of the first ten results.
fn judge(
    toolbridge: &Path,
    peers: &Peers,
    root: &Path,
    workspace: &Path,
    sets: &[Set],
) -> Result<Vec<SearchRow>> {
    fs::create_dir_all(workspace.join("vault"))?;
    let mut server = Server::start(toolbridge, workspace, &[])?;
    let mut rows = Vec::new();
    let mut files = Vec::new();
    for set in sets {
        let mut random = Random(7);
        let text = fs::read_to_string(root.join(set.file))?;
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (question, answers) = line.split_once('\t').unwrap_or((line, ""));
            let question =
                if set.has_typos { with_typos(question, &mut random) } else { question.to_owned() };
            format!("{question}\t{answers}\n")
        });
        let lines: Vec<_> = lines.collect();
        let file = workspace.join(format!("{}.tsv", set.key));
        fs::write(&file, lines.concat())?;
        files.push(file);
        let mut values = [None; ENGINES.len()];
        values[0] = Some(ours(&mut server, &lines)?);
        let label = format!("{} questions about {}, nDCG@10", lines.len(), set.label);
        let label = if set.has_typos { format!("{}, nDCG@10", set.label) } else { label };
        rows.push(SearchRow { key: set.key, label, unit: None, values });
    }
    for (place, engine) in [(1, "fts5"), (2, "tantivy"), (3, "bm25s")] {
        let mut command = peers.command();
        command.args(["quality", engine]).arg(workspace.join("manuals/m")).args(&files);
        let said: Value = serde_json::from_str(&stdout_of(&mut command)?)?;
        for (row, value) in rows.iter_mut().zip(said["ndcg"].as_array().into_iter().flatten()) {
            row.values[place] = value.as_f64();
        }
    }
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, reason = "there are few questions")]
fn ours(server: &mut Server, lines: &[String]) -> Result<f64> {
    let discounted = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
    let mut sum = 0.0;
    for line in lines {
        let mut columns = line.trim_end().split('\t');
        let question = columns.next().unwrap_or_default();
        let answers: Vec<_> = columns.collect();
        let found = server.call("manual_find", &json!({ "query": question }))?.0;
        ensure!(found["items"].is_array(), "`{question}`: {found}");
        let mut seen = Vec::new();
        let mut gain = 0.0;
        for (rank, item) in found["items"].as_array().into_iter().flatten().enumerate() {
            let path = item["ref"].as_str().unwrap_or_default().trim_start_matches("m/");
            let path = path.split('#').next().unwrap_or_default();
            let section = format!("{path}#{}", item["title"].as_str().unwrap_or_default());
            // A page may have several sections with one title; only the first of them counts.
            if answers.contains(&section.as_str()) && !seen.contains(&section) {
                gain += discounted(rank);
                seen.push(section);
            }
        }
        sum += gain / (0..answers.len()).map(discounted).sum::<f64>();
    }
    Ok(sum / lines.len() as f64)
}

/// Each long word with one error: a letter left out, put in, replaced, or exchanged with the next one.
fn with_typos(question: &str, random: &mut Random) -> String {
    let mut words = Vec::new();
    for word in question.split(' ') {
        let mut letters: Vec<_> = word.chars().collect();
        if letters.len() >= TYPO_LETTERS && word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            let place = 1 + random.below(letters.len() - 2);
            let other = char::from(b"abcdefghijklmnopqrstuvwxyz"[random.below(26)]);
            match random.below(4) {
                0 => drop(letters.remove(place)),
                1 => letters.insert(place, other),
                2 => letters[place] = other,
                _ => letters.swap(place, place + 1),
            }
        }
        words.push(letters.into_iter().collect::<String>());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_get_one_typing_error_each_time_the_same() {
        let question = "which section answers the question";
        let typed = with_typos(question, &mut Random(7));
        assert_eq!(typed, with_typos(question, &mut Random(7)));
        let pairs = question.split(' ').zip(typed.split(' '));
        assert!(pairs.clone().all(|(word, typed)| word.len().abs_diff(typed.len()) <= 1), "{typed}");
        assert!(pairs.filter(|(word, typed)| word != typed).count() >= 3, "{typed}");
        assert!(typed.contains(" the "), "{typed}");
    }
}
