//! Finds the Claude Code CLI.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::ClaudeCodeError;

/// Install locations, relative to the home directory.
const BELOW_HOME: [&str; 6] = [
    ".claude/local/claude",
    ".local/bin/claude",
    ".npm-global/bin/claude",
    ".bun/bin/claude",
    ".yarn/bin/claude",
    "node_modules/.bin/claude",
];

const ELSEWHERE: [&str; 3] = ["/usr/local/bin/claude", "/opt/homebrew/bin/claude", "/usr/bin/claude"];

/// The executable bundled with the Python package `claude-agent-sdk`, relative to a packages directory.
const BUNDLED: &str = "claude_agent_sdk/_bundled/claude";

/// Finds the CLI: the `given` path, else `claude` on the PATH, else in the usual install locations, else in
/// an installed Python package `claude-agent-sdk`: in the virtual environment, or in a Python installation whose `bin`
/// holds this program or is on the PATH.
///
/// # Errors
///
/// [`CliNotFound`](ClaudeCodeError::CliNotFound) when there is none.
pub fn find_cli(given: Option<&Path>) -> Result<PathBuf, ClaudeCodeError> {
    if let Some(path) = given {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let reason = format!("`{}` is not an executable file", path.display());
        return if is_executable(&path) { Ok(path) } else { Err(ClaudeCodeError::CliNotFound { reason }) };
    }
    let folders: Vec<_> = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .filter(|folder| folder.is_absolute())
        .collect();
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let venv = env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let on_path = folders.iter().map(|folder| folder.join("claude"));
    let usual = home.iter().flat_map(|home| BELOW_HOME.map(|place| home.join(place)));
    // Each `bin` on the PATH may belong to a Python installation, with its packages next to it.
    let beside = folders.iter().filter_map(|folder| folder.parent()).map(Path::to_path_buf);
    let own = home.as_ref().map(|home| home.join(".local"));
    // `toolbridge` of a wheel is in the `bin` of its environment, which need not be activated.
    let this = env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.to_path_buf()));
    let in_python = venv.into_iter().chain(this).chain(own).chain(beside).flat_map(|prefix| bundled(&prefix));
    let places = on_path.chain(usual).chain(ELSEWHERE.map(PathBuf::from)).chain(in_python);
    places.into_iter().find(|path| is_executable(path)).ok_or_else(|| ClaudeCodeError::CliNotFound {
        reason: "`claude` is not on the PATH, not in the usual places, and there is no Python package \
                 `claude-agent-sdk`"
            .into(),
    })
}

/// The existing ones of `<prefix>/lib/python3.*/{site,dist}-packages/claude_agent_sdk/_bundled/claude`.
fn bundled(prefix: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(prefix.join("lib")) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .flat_map(|entry| ["site-packages", "dist-packages"].map(|packages| entry.path().join(packages)))
        .map(|packages| packages.join(BUNDLED))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found
}

/// Not the crate `which`: most of the places are not on the PATH, and it would accept relative directories
/// on it.
fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use toolbridge_core::tool::Hint as _;

    use super::*;

    #[test]
    fn a_given_path_must_be_an_executable_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("claude");
        let error = find_cli(Some(&path)).unwrap_err();
        assert_eq!(error.type_name(), "CLINotFoundError");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert!(error.hint().unwrap().contains("npm install"), "{error:?}");
        std::fs::write(&path, "").unwrap();
        assert!(find_cli(Some(&path)).is_err());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_cli(Some(&path)).unwrap(), path);
    }

    #[test]
    fn the_cli_bundled_in_a_python_environment_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib/python3.12/site-packages").join(BUNDLED);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(bundled(dir.path()).is_empty());
        std::fs::write(&path, "").unwrap();
        assert_eq!(bundled(dir.path()), [path]);
    }
}
