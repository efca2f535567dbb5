//! A file of tokens, one on each line.

use std::fs::{File, Metadata};
use std::hint::black_box;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::http::error::HttpError;

/// More than enough for any number of tokens.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The tokens of a file, which is read again when it has changed.
pub(crate) struct TokenFile {
    path: PathBuf,
    read: Mutex<(Stamp, Vec<String>)>,
}

/// Identifies a version of the file.
#[derive(PartialEq)]
struct Stamp {
    place: (u64, u64),
    size: u64,
    modified: Option<SystemTime>,
    /// Includes changes of the mode. Seconds and nanoseconds.
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            place: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: metadata.modified().ok(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl TokenFile {
    pub(crate) fn open(path: &Path) -> Result<Self, HttpError> {
        Ok(Self { path: path.to_owned(), read: Mutex::new(read(path)?) })
    }

    /// Whether a token is one of the file's.
    pub(crate) fn knows(&self, token: &str) -> Result<bool, HttpError> {
        let mut kept = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = std::fs::metadata(&self.path).map_err(|error| HttpError::tokens(&self.path, error))?;
        if kept.0 != Stamp::of(&now) {
            *kept = read(&self.path)?;
        }
        // All tokens are compared, so that the time does not depend on the match.
        Ok(kept.1.iter().fold(false, |known, one| known | is_same(one.as_bytes(), token.as_bytes())))
    }
}

fn read(path: &Path) -> Result<(Stamp, Vec<String>), HttpError> {
    let failed = |error| HttpError::tokens(path, error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.mode() & 0o777;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(HttpError::TokensOwner { path: path.to_owned() });
    }
    if mode & 0o077 != 0 {
        return Err(HttpError::TokensMode { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
    let lines = text.lines().map(str::trim);
    let tokens: Vec<_> =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect();
    if tokens.is_empty() {
        return Err(HttpError::NoTokens { path: path.to_owned() });
    }
    Ok((Stamp::of(&metadata), tokens))
}

/// Compares in constant time.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && black_box(one.iter().zip(other).fold(0, |differences, (one, other)| differences | (one ^ other)))
            == 0
}
