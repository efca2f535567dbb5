//! The document tools, compared with the system calls that they need at least.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::process::Process;
use crate::row::Beside;

const LARGE_BYTES: usize = 20_000_000;
const SECTION_BYTES: usize = 8_000;
const FILES: usize = 10_000;
const TOC_FILES: usize = 1_000;

const ROWS: [(&str, &str); 7] = [
    ("copy_first", "copy 8 KB out of 20 MB, first time"),
    ("copy_later", "copy 8 KB out of 20 MB, later"),
    ("list", "list 10,000 files"),
    ("toc_first", "table of contents of 1,000 files, first time"),
    ("toc_later", "table of contents of 1,000 files, later"),
    ("find_first", "search 10,000 sections, from the start of the server"),
    ("find_later", "search 10,000 sections, later"),
];

/// The times in seconds of a row: ours, and those of plain system calls.
type Seconds = (Vec<f64>, Vec<f64>);

/// Measures everything `rounds` times, alternating between ours and plain.
pub(crate) fn measure(toolbridge: &Path, rounds: usize) -> Result<Vec<Beside>> {
    eprintln!("measuring the document tools");
    let copying = copying(toolbridge, large_manual()?.path(), rounds)?;
    let listing = listing(toolbridge, many_files()?.path(), rounds)?;
    let finding = finding(toolbridge, many_sections()?.path(), rounds)?;
    Beside::lines(ROWS, copying.into_iter().chain(listing).chain(finding))
}

/// `toolbridge docs`.
pub(crate) struct Server(Process);

impl Server {
    pub(crate) fn start(toolbridge: &Path, workspace: &Path, more: &[&OsStr]) -> Result<Self> {
        let mut command = Command::new(toolbridge);
        command.args(["docs", "--log-level", "error", "--workspace"]).arg(workspace).args(more);
        let mut client = Client::new(Process::start("toolbridge docs", command)?);
        client.initialize()?;
        Ok(Self(client.wire))
    }

    pub(crate) fn resident_bytes(&self) -> Result<f64> {
        self.0.resident_bytes()
    }

    pub(crate) fn most_resident_bytes(&self) -> Result<f64> {
        self.0.most_resident_bytes()
    }

    /// Calls a tool; returns its structured content, and the time in seconds.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Result<(Value, f64)> {
        let params = json!({ "name": tool, "arguments": arguments });
        let request = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
        let started = Instant::now();
        self.0.send(format!("{request}\n").as_bytes())?;
        let answer: Value = serde_json::from_slice(self.0.line()?)?;
        let seconds = started.elapsed().as_secs_f64();
        let result = &answer["result"];
        ensure!(result.is_object() && result["isError"] != true, "{tool}: {answer}");
        Ok((result["structuredContent"].clone(), seconds))
    }
}

/// A workspace with these files, as path and text, below `manuals`.
fn workspace(files: impl IntoIterator<Item = (String, String)>) -> Result<TempDir> {
    let dir = TempDir::new()?;
    fs::create_dir(dir.path().join("vault"))?;
    for (path, text) in files {
        let path = dir.path().join("manuals").join(path);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        fs::write(path, text)?;
    }
    Ok(dir)
}

/// One manual of 20 MB, in sections of 8 KB.
fn large_manual() -> Result<TempDir> {
    let line = "The quick brown fox jumps over the lazy dog, again and again and again.\n";
    let lines = line.repeat(SECTION_BYTES / line.len());
    let section = |number| format!("## Section {number}\n\n{lines}");
    let text = (0..LARGE_BYTES / SECTION_BYTES).map(section).collect();
    workspace([("m/large.md".to_owned(), text)])
}

/// 10,000 files in a hundred folders, and a thousand with a few headings.
fn many_files() -> Result<TempDir> {
    let listed = (0..FILES).map(|file| {
        let text = format!("# File {file}\n\nText.\n\n## More\n\nText.\n");
        (format!("m/{:02}/{file}.md", file % 100), text)
    });
    let with_headings = (0..TOC_FILES).map(|file| {
        let heading = |n: usize| format!("# Heading {n}\n\nSome text of file {file}.\n\n");
        (format!("toc/{file}.md"), (0..10).map(heading).collect())
    });
    workspace(listed.chain(with_headings))
}

/// 10,000 sections in a hundred files.
fn many_sections() -> Result<TempDir> {
    workspace((0..100).map(|file| {
        let section = |n: usize| {
            let topic = ["backup", "network", "printer", "会議室", "payroll"][n % 5];
            format!("# {topic} {n}\n\nHow to deal with {topic} number {n} in file {file}: ask first.\n\n")
        };
        (format!("m/{file}.md"), (0..100).map(section).collect())
    }))
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64())
}

fn copying(toolbridge: &Path, workspace: &Path, rounds: usize) -> Result<[Seconds; 2]> {
    let [mut first, mut later] = <[Seconds; 2]>::default();
    let (source, target) = (workspace.join("manuals/m/large.md"), workspace.join("vault/plain.md"));
    for _ in 0..rounds {
        let mut server = Server::start(toolbridge, workspace, &[])?;
        let found = server.call("manual_toc", &json!({ "manual_id": "m", "full": true, "limit": 1000 }))?.0;
        let section = found["items"].as_array().and_then(|items| items.get(items.len() / 2)).cloned();
        let copy = json!({ "from_ref": section.context("no sections")?["ref"], "to_path": "copy.md",
            "mode": "overwrite", "limits": { "max_chars": 20_000 } });
        drop(server);
        let mut server = Server::start(toolbridge, workspace, &[])?;
        let (copied, took) = server.call("bridge_copy_section", &copy)?;
        ensure!(copied["truncated"] == false, "{copied}");
        let bytes = copied["written_bytes"].as_u64().context("no `written_bytes`")?;
        first.0.push(took);
        for _ in 0..10 {
            later.0.push(server.call("bridge_copy_section", &copy)?.1);
            later.1.push(timed(|| plain_copy(&source, &target, bytes))?);
        }
    }
    Ok([first, later])
}

/// The minimal work of an atomic copy of a known section.
fn plain_copy(source: &Path, target: &Path, bytes: u64) -> Result<()> {
    let mut text = Vec::new();
    File::open(source)?.take(bytes).read_to_end(&mut text)?;
    let unfinished = target.with_extension("tmp");
    let mut file = File::create(&unfinished)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(unfinished, target)?;
    File::open(target.parent().context("no folder")?)?.sync_all()?;
    Ok(())
}

fn listing(toolbridge: &Path, workspace: &Path, rounds: usize) -> Result<[Seconds; 3]> {
    let [mut list, mut first, mut later] = <[Seconds; 3]>::default();
    for _ in 0..rounds {
        let mut server = Server::start(toolbridge, workspace, &[])?;
        first.0.push(whole_toc(&mut server)?);
        for _ in 0..3 {
            // Only one page: each page walks the whole folder.
            let (found, took) = server.call("manual_ls", &json!({ "manual_id": "m", "limit": 1000 }))?;
            let items = found["items"].as_array().map_or(0, Vec::len);
            ensure!(items == 1000 && found["next"].is_string(), "files are missing");
            list.0.push(took);
            list.1.push(timed(|| plain_listing(&workspace.join("manuals/m")))?);
            later.0.push(whole_toc(&mut server)?);
            later.1.push(timed(|| plain_reading(&workspace.join("manuals/toc")))?);
        }
    }
    Ok([list, first, later])
}

/// The total time of all pages of a table of contents.
fn whole_toc(server: &mut Server) -> Result<f64> {
    let (mut took, mut after) = (0.0, json!(null));
    loop {
        let page = json!({ "manual_id": "toc", "limit": 1000, "after": after });
        let (found, seconds) = server.call("manual_toc", &page)?;
        took += seconds;
        after = found["next"].clone();
        if after.is_null() {
            return Ok(took);
        }
    }
}

fn plain_listing(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            plain_listing(&entry.path())?;
        }
    }
    Ok(())
}

fn plain_reading(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        std::hint::black_box(fs::read(entry?.path())?);
    }
    Ok(())
}

fn finding(toolbridge: &Path, workspace: &Path, rounds: usize) -> Result<[Seconds; 2]> {
    let [mut first, mut later] = <[Seconds; 2]>::default();
    for _ in 0..rounds {
        let started = Instant::now();
        let mut server = Server::start(toolbridge, workspace, &[])?;
        server.call("manual_find", &json!({ "query": "printer 42" }))?;
        first.0.push(started.elapsed().as_secs_f64());
        for query in ["backup number 10", "会議室", "network in file 7"] {
            let (found, took) = server.call("manual_find", &json!({ "query": query }))?;
            ensure!(
                found["items"].as_array().is_some_and(|items| !items.is_empty()),
                "`{query}` found nothing"
            );
            later.0.push(took);
        }
    }
    Ok([first, later])
}
