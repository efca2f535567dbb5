//! The environment of the CLI in tests.

use std::env;
use std::path::Path;

/// The complete environment for a run of the CLI against a model: start it with no other variable.
///
/// [`ScriptedModel::environment`](crate::ScriptedModel::environment) returns it for a model, with its own
/// home.
///
/// ```
/// # use std::{path::Path, process::Command};
/// let home = Path::new("/nowhere");
/// let environment = toolbridge_testing::clean_environment(home, "http://127.0.0.1:1");
/// let mut claude = Command::new("claude");
/// claude.env_clear().envs(environment);
/// ```
#[must_use]
pub fn clean_environment(home: &Path, url: &str) -> Vec<(String, String)> {
    let path = env::var_os("PATH").unwrap_or_default();
    let variables = [
        ("HOME", &*home.to_string_lossy()),
        ("PATH", &*path.to_string_lossy()),
        ("ANTHROPIC_BASE_URL", url),
        ("ANTHROPIC_API_KEY", "dummy"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        // A scripted error is repeated on each retry.
        ("CLAUDE_CODE_MAX_RETRIES", "1"),
    ];
    variables.map(|(name, value)| (name.into(), value.into())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_holds_nothing_else() {
        let environment = clean_environment(Path::new("/home/test"), "http://127.0.0.1:1");
        let names: Vec<&str> = environment.iter().map(|(name, _)| &**name).collect();
        let want = "HOME PATH ANTHROPIC_BASE_URL ANTHROPIC_API_KEY CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC \
                    DISABLE_AUTOUPDATER CLAUDE_CODE_MAX_RETRIES";
        assert_eq!(names.join(" "), want);
        assert_eq!(environment[0].1, "/home/test");
    }
}
