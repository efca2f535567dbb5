//! Searching many files: ours compared with FTS5, tantivy and ripgrep.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use xtask::project::{Project, stdout_of};

use crate::corpus;
use crate::documents::Server;
use crate::environment::{Runtime, source};
use crate::quality;
use crate::row::Unit;

/// The engines that are compared, in the order of the columns.
pub(crate) const ENGINES: [&str; 5] = ["ours", "fts5", "tantivy", "bm25s", "ripgrep"];

/// How the other engines are started.
pub(crate) struct Peers {
    python: PathBuf,
    script: PathBuf,
}

impl Peers {
    pub(crate) fn command(&self) -> Command {
        self.script(&self.script)
    }

    /// The command that runs a script in their environment.
    pub(crate) fn script(&self, script: &Path) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(script).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// One row: a figure for each engine that has one.
pub(crate) struct SearchRow {
    pub(crate) key: &'static str,
    pub(crate) label: String,
    /// `None` for a number without a unit.
    pub(crate) unit: Option<Unit>,
    pub(crate) values: [Option<f64>; ENGINES.len()],
}

/// The ranks of each query's words by frequency: common, medium and rare ones.
const QUERIES: [&[usize]; 10] = [
    &[900, 4_000],
    &[20_000],
    &[300, 800],
    &[5_000, 9_000, 15_000],
    &[150],
    &[40, 60],
    &[30_000, 100],
    &[2_000],
    &[700, 1_500, 2_500],
    &[25, 12_000],
];

pub(crate) fn measure(
    toolbridge: &Path,
    files: usize,
    has_manuals: bool,
    profile: &str,
) -> Result<Vec<SearchRow>> {
    let project = Project::find()?;
    let peers = Peers {
        python: Runtime::Search.install(&project, profile)?,
        script: source(&project.root, "search_peers.py"),
    };
    eprintln!("measuring: searching {files} files");
    let dir = TempDir::new()?;
    let workspace = dir.path().join("workspace");
    fs::create_dir_all(workspace.join("vault"))?;
    corpus::write(&workspace.join("manuals"), files)?;
    let words = corpus::words();
    let query =
        |places: &&[usize]| places.iter().map(|place| words[*place].as_str()).collect::<Vec<_>>().join(" ");
    let queries: Vec<_> = QUERIES.iter().map(query).collect();
    let megabytes = files * corpus::FILE_BYTES / 1_000_000;
    let row = |key, label: &str, unit| SearchRow {
        key,
        label: label.to_owned(),
        unit: Some(unit),
        values: [None; ENGINES.len()],
    };
    let mut rows = [
        row("search_index", &format!("index {files} files, {megabytes} MB"), Unit::Time),
        row("search_index_memory", "most memory meanwhile", Unit::Memory),
        row("search_first", "first search after a restart", Unit::Time),
        row("search_later", "later search, median", Unit::Time),
        row("search_slowest", "later search, slowest", Unit::Time),
        row("search_memory", "memory of a process that searches", Unit::Memory),
    ];
    let mut set = |engine: usize, values: [Option<f64>; 6]| {
        rows.iter_mut().zip(values).for_each(|(row, value)| row.values[engine] = value);
    };
    set(0, ours(toolbridge, &workspace, &queries)?);
    for (place, engine) in [(1, "fts5"), (2, "tantivy")] {
        set(place, theirs(&peers, engine, &workspace, dir.path(), &queries)?);
    }
    set(4, ripgrep(&workspace, &queries)?);
    let mut rows: Vec<_> = rows.into();
    rows.extend(quality::measure(toolbridge, &peers, &project, has_manuals, profile)?);
    Ok(rows)
}

/// Every start builds the index anew, so that the first search is the one that waits for it.
fn ours(toolbridge: &Path, workspace: &Path, queries: &[String]) -> Result<[Option<f64>; 6]> {
    let find = |server: &mut Server, query: &str| -> Result<f64> {
        let (found, took) = server.call("manual_find", &json!({ "query": query }))?;
        ensure!(found["items"].is_array(), "`{query}`: {found}");
        Ok(took)
    };
    let started = Instant::now();
    let mut server = Server::start(toolbridge, workspace, &[])?;
    find(&mut server, &queries[0])?;
    let first = started.elapsed().as_secs_f64();
    let most = server.most_resident_bytes()?;
    let later: Vec<_> = queries.iter().map(|query| find(&mut server, query)).collect::<Result<_>>()?;
    let resident = server.resident_bytes()?;
    Ok([Some(first), Some(most), Some(first), median(&later), slowest(&later), Some(resident)])
}

fn theirs(
    peers: &Peers,
    engine: &str,
    workspace: &Path,
    dir: &Path,
    queries: &[String],
) -> Result<[Option<f64>; 6]> {
    let store = dir.join(format!("{engine}-store"));
    fs::create_dir(&store)?;
    let run = |arguments: &[&std::ffi::OsStr]| -> Result<Value> {
        Ok(serde_json::from_str(&stdout_of(peers.command().args(arguments))?)?)
    };
    let manuals = workspace.join("manuals");
    let indexed = run(&["index".as_ref(), engine.as_ref(), manuals.as_os_str(), store.as_os_str()])?;
    let mut arguments = vec!["search".as_ref(), engine.as_ref(), store.as_os_str(), queries[0].as_ref()];
    arguments.extend(queries.iter().map(std::ffi::OsStr::new));
    let searched = run(&arguments)?;
    let later: Vec<_> =
        searched["later"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    Ok([
        indexed["seconds"].as_f64(),
        indexed["bytes"].as_f64(),
        searched["first"].as_f64(),
        median(&later),
        slowest(&later),
        searched["bytes"].as_f64(),
    ])
}

/// It has no index: it reads all files at every search.
fn ripgrep(workspace: &Path, queries: &[String]) -> Result<[Option<f64>; 6]> {
    if Command::new("rg").arg("--version").output().is_err() {
        eprintln!("THERE IS NO `rg` (ripgrep): its column stays empty");
        return Ok([None; 6]);
    }
    let mut later = Vec::new();
    for query in queries {
        let started = Instant::now();
        let found = Command::new("rg")
            .args(["--ignore-case", "--count", &query.replace(' ', "|")])
            .arg(workspace.join("manuals"))
            .output()?;
        later.push(started.elapsed().as_secs_f64());
        // Exit code 1: no match, because few files may lack a rare word.
        ensure!(matches!(found.status.code(), Some(0 | 1)), "rg fails for `{query}`");
    }
    Ok([None, None, later.first().copied(), median(&later), slowest(&later), None])
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn slowest(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}
