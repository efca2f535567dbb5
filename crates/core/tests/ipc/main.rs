//! Sessions in this process: their files, their end, and the removal of dead ones.
#![allow(clippy::unwrap_used, reason = "tests")]

mod fork;
mod lifecycle;
mod names;
mod progress;
mod questions;
mod sweep;

use std::path::Path;

use toolbridge_core::{NoArgs, Toolset};

/// One tool that answers immediately and one that never does.
fn tools() -> Toolset {
    Toolset::builder()
        .tool("hello", "Greets", async |_: NoArgs| "hello")
        .tool("hang", "Never answers", async |_: NoArgs| std::future::pending::<()>().await)
        .build()
        .unwrap()
}

/// The names in a directory, sorted.
fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
