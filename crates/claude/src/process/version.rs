//! The CLI's version and what that version supports.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use tokio::sync::OnceCell;
use toolbridge_core::ipc::session_dir;

use crate::ClaudeCodeError;
use crate::error::ExecutionKind;
use crate::process;
use crate::process::scratch::ScratchDir;

/// How long the CLI may take to print its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// A version of the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

impl Version {
    /// A CLI that does not report its version is treated as a current one.
    pub(crate) const UNKNOWN: Self = Self(u32::MAX, 0, 0);

    /// `--tools` selects the built-in tools.
    pub(crate) const WITH_TOOLS: Self = Self(2, 0, 45);

    /// `--no-session-persistence` disables the transcript.
    pub(crate) const WITHOUT_TRANSCRIPT: Self = Self(2, 0, 76);

    /// The first version that can do all that is needed here, except skills.
    pub(crate) const COMPLETE: Self = Self(2, 1, 248);

    /// The first version known to accept skills in `initialize`.
    pub(crate) const WITH_SKILLS: Self = Self(2, 1, 325);

    /// User lines may have `client_composed`: their text is not expanded.
    pub(crate) fn takes_plain_prompts(self) -> bool {
        self != Self::UNKNOWN && self >= Self::COMPLETE
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::UNKNOWN {
            return f.write_str("of an unknown version");
        }
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let core = text.split(['-', '+']).next().unwrap_or_default();
        let numbers: Result<Vec<u32>, _> = core.split('.').map(str::parse).collect();
        match numbers.map_err(drop)?[..] {
            [major, minor, patch] => Ok(Self(major, minor, patch)),
            _ => Err(()),
        }
    }
}

/// Whether this version has an option for plain-text prompts. Other versions do not get prompts that they
/// would expand.
#[must_use]
pub fn takes_plain_prompts(version: &str) -> bool {
    version.parse().is_ok_and(Version::takes_plain_prompts)
}

/// The version of the CLI at `path`. It is queried once per executable; a replaced file is queried again.
pub(crate) async fn version_of(path: &Path, guardian: Option<&Path>) -> Version {
    type Known = BTreeMap<PathBuf, (Option<SystemTime>, u64, Arc<OnceCell<Version>>)>;
    static KNOWN: Mutex<Known> = Mutex::new(Known::new());
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(file) = std::fs::metadata(path) else { return Version::UNKNOWN };
    let (changed, size) = (file.modified().ok(), file.len());
    let known = {
        let mut all = lock();
        let same = all.get(path).filter(|(when, bytes, _)| (*when, *bytes) == (changed, size));
        let known = same.map_or_else(Arc::default, |(_, _, known)| Arc::clone(known));
        all.insert(path.into(), (changed, size, Arc::clone(&known)));
        known
    };
    // Requests that come meanwhile wait for the same answer, and so stay in order.
    let query = || async {
        match guarded_version(path, guardian).await {
            Ok(text) => text.parse().unwrap_or(Version::UNKNOWN),
            Err(error) => {
                tracing::warn!(%error, "the CLI's version is unknown; it is treated as a current one");
                // The next request asks again.
                lock().remove(path);
                Version::UNKNOWN
            }
        }
    };
    *known.get_or_init(query).await
}

/// Asks the CLI at `path` for its version.
///
/// # Errors
///
/// When it does not start, does not answer in time, or fails.
pub async fn cli_version(path: &Path) -> Result<String, ClaudeCodeError> {
    guarded_version(path, None).await
}

async fn guarded_version(path: &Path, guardian: Option<&Path>) -> Result<String, ClaudeCodeError> {
    let failed = |what: String| {
        let message = format!("`{}` does not report its version: {what}", path.display());
        ClaudeCodeError::execution(ExecutionKind::Exit, message)
    };
    let mut command = process::command(path, guardian);
    // Old versions create or read their settings even for this, and print no version if another process is
    // writing them.
    let scratch = ScratchDir::new(&session_dir())?;
    command.arg("--version").env("CLAUDE_CONFIG_DIR", scratch.path());
    command.env_remove("CLAUDECODE");
    let Some((status, text, _)) = process::output_of(command, Some(scratch), PATIENCE).await? else {
        return Err(failed(format!("no answer within {} s", PATIENCE.as_secs())));
    };
    if let Some(status) = status.filter(|status| !status.success()) {
        return Err(failed(format!("it ends with {status}")));
    }
    match text.split_whitespace().find(|word| word.parse::<Version>().is_ok()) {
        Some(version) => Ok(version.into()),
        None if text.trim().is_empty() => Err(failed("it prints nothing".into())),
        None => Err(failed(format!("it prints `{}`", text.trim()))),
    }
}

/// How the CLI at `path` logs in, such as `api_key` or `claude.ai`, and `none` without a login. It only looks for a
/// login, and does not try it: no request leaves this machine. `None` if this version does not tell.
///
/// # Errors
///
/// When the CLI does not start.
pub async fn cli_login(path: &Path) -> Result<Option<String>, ClaudeCodeError> {
    /// What is read of the answer; the rest is personal.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        logged_in: bool,
        auth_method: Option<String>,
    }
    let mut command = process::command(path, None);
    command.args(["auth", "status", "--json"]).env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    // It would fetch details of the account, and renew an old login.
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        command.env(proxy, "http://127.0.0.1:9");
    }
    command.env_remove("NO_PROXY").env_remove("no_proxy");
    command.env_remove("CLAUDECODE");
    let output = process::output_of(command, None, PATIENCE).await?;
    let status: Option<Status> = output.and_then(|(_, text, _)| serde_json::from_str(&text).ok());
    Ok(status.map(|status| match status.auth_method {
        Some(method) if status.logged_in => method,
        _ => if status.logged_in { "unknown" } else { "none" }.into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_by_number() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("2.1.248") > version("2.1.50"));
        assert!(version("2.1.248").takes_plain_prompts() && !version("2.1.247").takes_plain_prompts());
        assert_eq!(version("2.1.300-beta.1"), version("2.1.300"));
        assert_eq!(version("2.0.0").to_string(), "2.0.0");
        for text in ["", "2", "2.1", "v2.1.3", "2.1.x", "2.1.3.4"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    /// A CLI that behaves like `script`.
    fn program(dir: &Path, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;

        let path = dir.join("claude");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    /// The version found for a CLI that behaves like `script`.
    async fn version_from(script: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        cli_version(&program(dir.path(), script)).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn the_given_guardian_is_between_this_process_and_the_cli() {
        let dir = tempfile::tempdir().unwrap();
        let (cli, guardian) = (dir.path().join("cli"), dir.path().join("guardian"));
        for path in [&cli, &guardian] {
            std::fs::create_dir(path).unwrap();
        }
        let cli = program(&cli, "echo 2.1.7");
        let guardian = program(&guardian, r#"echo "$@" > "$0.said"; shift 2; exec "$@""#);
        assert_eq!(version_of(&cli, Some(&guardian)).await, Version(2, 1, 7));
        let said = std::fs::read_to_string(guardian.with_extension("said")).unwrap();
        let (command, id) = (toolbridge_core::process::guard::COMMAND, std::process::id());
        assert_eq!(said, format!("{command} {id} {} --version\n", cli.display()));
    }

    #[tokio::test]
    async fn requests_at_once_ask_once_and_after_a_failure_the_next_asks_again() {
        let dir = tempfile::tempdir().unwrap();
        let asked = || std::fs::read_to_string(dir.path().join("asked")).unwrap().lines().count();
        let path = program(dir.path(), "echo . >> \"${0%/*}/asked\"; echo 2.1.50");
        let (one, two, three) =
            tokio::join!(version_of(&path, None), version_of(&path, None), version_of(&path, None));
        assert_eq!(([one, two, three], asked()), ([Version(2, 1, 50); 3], 1));
        program(dir.path(), "echo . >> \"${0%/*}/asked\"; exit 1");
        let (one, two) = tokio::join!(version_of(&path, None), version_of(&path, None));
        assert_eq!(([one, two], asked()), ([Version::UNKNOWN; 2], 2));
        assert_eq!((version_of(&path, None).await, asked()), (Version::UNKNOWN, 3));
    }

    #[tokio::test]
    async fn the_version_query_does_not_use_the_users_settings() {
        // As old versions do. Another CLI that starts at the same moment must not interfere.
        let script = "set -C; echo {} > \"$CLAUDE_CONFIG_DIR/.claude.json\" && echo '2.0.0 (Claude Code)'";
        let (one, other) = tokio::join!(version_from(script), version_from(script));
        assert_eq!([one.unwrap(), other.unwrap()], ["2.0.0", "2.0.0"]);
    }

    #[tokio::test]
    async fn output_without_a_version_is_quoted_in_the_error() {
        assert_eq!(version_from("echo 'A notice.'; echo 2.1.50").await.unwrap(), "2.1.50");
        let error = version_from("echo The settings are corrupted.").await.unwrap_err();
        assert!(
            error.contains("does not report its version: it prints `The settings are corrupted.`"),
            "{error}"
        );
        let error = version_from("true").await.unwrap_err();
        assert!(error.contains("it prints nothing"), "{error}");
    }

    #[test]
    fn an_unknown_version_gets_current_flags_but_no_expandable_prompts() {
        let unknown = Version::UNKNOWN;
        assert!(unknown >= Version::WITH_TOOLS && unknown >= Version::WITHOUT_TRANSCRIPT);
        assert!(unknown >= Version::COMPLETE);
        assert!(!unknown.takes_plain_prompts());
    }
}
