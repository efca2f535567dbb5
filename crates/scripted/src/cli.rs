//! Finds the real CLI.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Names the CLI to test with; it has precedence.
const VARIABLE: &str = "TOOLBRIDGE_TEST_CLAUDE";

/// The CLI to test with: the one that `TOOLBRIDGE_TEST_CLAUDE` names, else the newest under `target/venv`.
///
/// # Panics
///
/// If there is none: a test without the CLI must not pass.
#[must_use]
pub fn claude_cli() -> PathBuf {
    if let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) {
        assert!(path.is_file(), "`{}`, named by {VARIABLE}, is not a file", path.display());
        return path;
    }
    under_target(newest_under).unwrap_or_else(|| {
        panic!(
            "there is no CLI to test with; run `cargo xtask test` once: it installs the CLI under target/venv"
        )
    })
}

/// Searches the target directory.
pub(crate) fn under_target<T>(find: impl FnMut(&Path) -> Option<T>) -> Option<T> {
    // Tests run from `<target>/debug/deps`, doctests from elsewhere.
    let this = env::current_exe().unwrap_or_default();
    let fixed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    this.ancestors().skip(1).chain([&*fixed]).find_map(find)
}

fn newest_under(target: &Path) -> Option<PathBuf> {
    let found = fs::read_dir(target.join("venv/lib")).ok()?.flatten().filter_map(|entry| {
        entry.file_name().to_str()?.starts_with("python3").then_some(())?;
        let cli = entry.path().join("site-packages/claude_agent_sdk/_bundled/claude");
        let written = fs::metadata(&cli).and_then(|data| data.modified()).ok()?;
        Some((written, cli))
    });
    found.max().map(|(_, cli): (SystemTime, _)| cli)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_newest_cli_is_found() {
        let target = tempfile::tempdir().unwrap();
        assert_eq!(newest_under(target.path()), None);
        let install = |python: &str, age: u64| {
            let dir =
                target.path().join(format!("venv/lib/{python}/site-packages/claude_agent_sdk/_bundled"));
            fs::create_dir_all(&dir).unwrap();
            let cli = dir.join("claude");
            let time = SystemTime::now() - Duration::from_secs(age);
            File::create(&cli).unwrap().set_modified(time).unwrap();
            cli
        };
        fs::create_dir_all(target.path().join("venv/lib/python3.14")).unwrap();
        install("python2.7", 0);
        install("python3.9", 200);
        let newest = install("python3.11", 100);
        install("python3.12", 300);
        assert_eq!(newest_under(target.path()), Some(newest));
    }
}
