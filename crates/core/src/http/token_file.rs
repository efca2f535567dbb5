//! A file of tokens, one on each line.

use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::http::error::HttpError;

/// More than enough for any number of tokens.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A file that is read for each request, so that its tokens can change.
pub(crate) struct TokenFile(PathBuf);

impl TokenFile {
    pub(crate) fn open(path: &Path) -> Result<Self, HttpError> {
        read(path)?;
        Ok(Self(path.to_owned()))
    }

    /// Whether a token is one of the file's.
    pub(crate) fn knows(&self, token: &str) -> Result<bool, HttpError> {
        let tokens = read(&self.0)?;
        // All tokens are compared, so that the time does not depend on the match.
        Ok(tokens.iter().fold(false, |known, one| known | is_same(one.as_bytes(), token.as_bytes())))
    }
}

fn read(path: &Path) -> Result<Vec<String>, HttpError> {
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
    Ok(tokens)
}

/// Compares in constant time.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && black_box(one.iter().zip(other).fold(0, |differences, (one, other)| differences | (one ^ other)))
            == 0
}
