//! The inputs that every run begins with.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

/// Where the inputs of a target are: examples, and everything that ever failed.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The inputs of a target, in the order of their names.
///
/// # Errors
///
/// When there are none, or they cannot be read.
pub fn read(target: &str) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let folder = folder(target);
    let context = || format!("cannot read the inputs in `{}`", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(context)? {
        paths.push(entry.with_context(context)?.path());
    }
    ensure!(!paths.is_empty(), "there is no input in `{}`", folder.display());
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let bytes = std::fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
            Ok((path, bytes))
        })
        .collect()
}
