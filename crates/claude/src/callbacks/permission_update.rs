//! Changes to permissions.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::settings::PermissionMode;

/// A change to permissions: suggested by the CLI in a [`PermissionRequest`](crate::PermissionRequest), or
/// returned with [`Permission::AllowAnd`](crate::Permission::AllowAnd).
///
/// ```
/// # mod toolbridge { pub use toolbridge_claude::{self as model, ClaudeCodeModel, Request}; }
/// use toolbridge::model::{Permission, PermissionRule, PermissionUpdate};
///
/// // This `git status`, and any other in the same conversation.
/// let rule = PermissionRule::new("Bash").content("git status:*");
/// let answer = Permission::allow_and([PermissionUpdate::allow([rule])]);
/// # let _ = answer;
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum PermissionUpdate {
    /// Adds rules to the existing ones.
    AddRules {
        /// The rules.
        rules: Vec<PermissionRule>,
        /// The rules' behaviour.
        behavior: RuleBehavior,
        /// Where they are stored.
        #[serde(default)]
        destination: PermissionDestination,
    },
    /// Replaces the rules with the same behaviour and destination.
    ReplaceRules {
        /// The rules.
        rules: Vec<PermissionRule>,
        /// The rules' behaviour.
        behavior: RuleBehavior,
        /// Where they are stored.
        #[serde(default)]
        destination: PermissionDestination,
    },
    /// Removes rules.
    RemoveRules {
        /// The rules.
        rules: Vec<PermissionRule>,
        /// The rules' behaviour.
        behavior: RuleBehavior,
        /// Where they are stored.
        #[serde(default)]
        destination: PermissionDestination,
    },
    /// Sets the permission mode.
    SetMode {
        /// The mode.
        mode: PermissionMode,
        /// Where it is stored.
        #[serde(default)]
        destination: PermissionDestination,
    },
    /// Gives the CLI's tools access to more directories.
    AddDirectories {
        /// The directories.
        directories: Vec<PathBuf>,
        /// Where they are stored.
        #[serde(default)]
        destination: PermissionDestination,
    },
    /// Removes access to directories.
    RemoveDirectories {
        /// The directories.
        directories: Vec<PathBuf>,
        /// Where they are stored.
        #[serde(default)]
        destination: PermissionDestination,
    },
    /// Another update of the CLI.
    #[serde(untagged)]
    Other(Value),
}

impl PermissionUpdate {
    /// Allows what these rules match, until the CLI ends.
    pub fn allow(rules: impl IntoIterator<Item = PermissionRule>) -> Self {
        let rules = rules.into_iter().collect();
        Self::AddRules { rules, behavior: RuleBehavior::Allow, destination: PermissionDestination::Session }
    }

    /// Sets the mode, until the CLI ends.
    #[must_use]
    pub fn mode(mode: PermissionMode) -> Self {
        Self::SetMode { mode, destination: PermissionDestination::Session }
    }

    /// Gives the CLI's tools access to more directories, until it ends.
    pub fn directories<P: Into<PathBuf>>(directories: impl IntoIterator<Item = P>) -> Self {
        let directories = directories.into_iter().map(Into::into).collect();
        Self::AddDirectories { directories, destination: PermissionDestination::Session }
    }

    /// Changes the destination. The CLI's suggestions often target a settings file;
    /// [`Session`](PermissionDestination::Session) writes none.
    #[must_use]
    pub fn kept_in(mut self, place: PermissionDestination) -> Self {
        match &mut self {
            Self::AddRules { destination, .. }
            | Self::ReplaceRules { destination, .. }
            | Self::RemoveRules { destination, .. }
            | Self::SetMode { destination, .. }
            | Self::AddDirectories { destination, .. }
            | Self::RemoveDirectories { destination, .. } => *destination = place,
            Self::Other(update) => update["destination"] = json!(place),
        }
        self
    }
}

/// The calls that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PermissionRule {
    /// The tool, such as `Bash` or `mcp__tools__add`.
    pub tool_name: String,
    /// Which of its calls; `None` matches all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_content: Option<String>,
}

impl PermissionRule {
    /// A rule for all calls of a tool.
    pub fn new(tool_name: impl Into<String>) -> Self {
        Self { tool_name: tool_name.into(), rule_content: None }
    }

    /// Restricts the rule to certain calls, in the CLI's syntax, such as `git status:*`.
    #[must_use]
    pub fn content(mut self, content: impl Into<String>) -> Self {
        self.rule_content = Some(content.into());
        self
    }
}

/// A rule's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum RuleBehavior {
    /// Allow the call.
    Allow,
    /// Deny the call.
    Deny,
    /// Ask each time.
    Ask,
}

/// Where a permission change is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum PermissionDestination {
    /// Not stored: it applies until the CLI ends.
    #[default]
    Session,
    /// In the user's settings, for all projects.
    UserSettings,
    /// In the project's settings, which may be shared with others.
    ProjectSettings,
    /// In this user's local settings for the project.
    LocalSettings,
    /// With the command-line rules; it applies until the CLI ends.
    CliArg,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_have_the_clis_format() {
        let rule = PermissionRule::new("Bash").content("ls:*");
        let rows = [
            (
                PermissionUpdate::allow([rule, PermissionRule::new("Read")]),
                json!({
                    "type": "addRules", "behavior": "allow", "destination": "session",
                    "rules": [{ "toolName": "Bash", "ruleContent": "ls:*" }, { "toolName": "Read" }],
                }),
            ),
            (
                PermissionUpdate::mode(PermissionMode::AcceptEdits)
                    .kept_in(PermissionDestination::LocalSettings),
                json!({ "type": "setMode", "mode": "acceptEdits", "destination": "localSettings" }),
            ),
            (
                PermissionUpdate::directories(["/srv"]),
                json!({ "type": "addDirectories", "directories": ["/srv"], "destination": "session" }),
            ),
            (
                PermissionUpdate::Other(json!({ "type": "ofTomorrow", "x": 1 })),
                json!({ "type": "ofTomorrow", "x": 1 }),
            ),
        ];
        for (update, want) in rows {
            assert_eq!(serde_json::to_value(&update).unwrap(), want);
            assert_eq!(serde_json::from_value::<PermissionUpdate>(want).unwrap(), update);
        }
        let other = PermissionUpdate::Other(json!({ "type": "x" })).kept_in(PermissionDestination::Session);
        assert_eq!(other, PermissionUpdate::Other(json!({ "type": "x", "destination": "session" })));
        let places = ["session", "userSettings", "projectSettings", "localSettings", "cliArg"];
        for place in places {
            let read: PermissionDestination = serde_json::from_value(json!(place)).unwrap();
            assert_eq!(json!(read), place);
        }
    }
}
