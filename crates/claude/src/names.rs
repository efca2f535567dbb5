//! The names of the CLI that settings may have, so that a typo is an error.

use toolbridge_core::tool::did_you_mean;

use crate::ClaudeCodeError;

/// An enum of names of the CLI. Reading any other name is an error that has the nearest one.
macro_rules! names {
    (
        $(#[$attr:meta])*
        pub enum $names:ident, of $what:literal {
            $($(#[$doc:meta])* $variant:ident = $name:literal,)*
        }
    ) => {
        $(#[$attr])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $names {
            $($(#[$doc])* $variant,)*
            /// Another one, of a newer CLI. It is never read from text, so that a typo is an error.
            Other(String),
        }

        impl $names {
            /// All names, except [`Other`](Self::Other) ones.
            pub const NAMES: &[&str] = &[$($name),*];
        }

        impl std::fmt::Display for $names {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                })
            }
        }

        impl std::str::FromStr for $names {
            type Err = crate::ClaudeCodeError;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $($name => Ok(Self::$variant),)*
                    _ => Err(crate::names::unknown($what, name, Self::NAMES)),
                }
            }
        }

        impl serde::Serialize for $names {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $names {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(from)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use names;

/// The built-in tools of all versions of the CLI, from 2.0.0 on, also those that only some accounts, systems or
/// settings have. A name that is not like any of these may be one of a newer CLI.
pub const BUILTIN_TOOLS: &[&str] = &[
    "Agent",
    "AgentOutputTool",
    "Artifact",
    "AskUserQuestion",
    "Bash",
    "BashOutput",
    "Brief",
    "ClaudeDesign",
    "Config",
    "CronCreate",
    "CronDelete",
    "CronList",
    "DesignSync",
    "Edit",
    "EndConversation",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "Glob",
    "Grep",
    "JavaScript",
    "KillBash",
    "KillShell",
    "LS",
    "LSP",
    "ListAgents",
    "ListMcpResources",
    "ListMcpResourcesTool",
    "Monitor",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "OfferChromeSetup",
    "PowerShell",
    "Projects",
    "ProposeGoal",
    "PushNotification",
    "REPL",
    "Read",
    "ReadMcpResource",
    "ReadMcpResourceDirTool",
    "ReadMcpResourceTool",
    "ReadNotifications",
    "RemoteTrigger",
    "ReportFindings",
    "ScheduleWakeup",
    "SendFeedback",
    "SendMessage",
    "SendUserFile",
    "SendUserMessage",
    "ShareOnboardingGuide",
    "ShowOnboardingRolePicker",
    "Skill",
    "SlashCommand",
    "StructuredOutput",
    "SubagentHandback",
    "SubscribePR",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TeamCreate",
    "TeamDelete",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
    "WaitForMcpServers",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
    "propose_skills",
];

/// The events for which the CLI, when a program runs it, calls no hook when a user expects it, and when it does.
const UNCALLED: [(&str, Option<&str>); 10] = [
    ("SessionStart", Some("only after `/clear` and compactions, not when a conversation begins")),
    ("SessionEnd", Some("only at `/clear`, not when a conversation ends")),
    ("Setup", None),
    ("PreModelSwitch", None),
    ("PostModelSwitch", None),
    ("TeammateIdle", None),
    ("WorktreeRemove", None),
    ("CwdChanged", None),
    ("FileChanged", None),
    ("DirectoryAdded", None),
];

/// The error for an event that the CLI has, but does not call hooks for.
pub(crate) fn uncalled(event: &str) -> Option<ClaudeCodeError> {
    let (_, when) = UNCALLED.iter().find(|(name, _)| *name == event)?;
    Some(ClaudeCodeError::invalid(match when {
        Some(when) => format!("the CLI calls hooks for `{event}` {when}"),
        None => format!("the CLI never calls hooks for `{event}` when a program runs it"),
    }))
}

/// What a name for an event is called in errors.
const HOOK_EVENT: &str = "hook event";

/// The error for an unknown name.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> ClaudeCodeError {
    if let Some(error) = uncalled(name).filter(|_| what == HOOK_EVENT) {
        return error;
    }
    let near = did_you_mean(name, known.iter().copied());
    let all = if near.is_empty() { format!("; there are: {}", known.join(", ")) } else { String::new() };
    ClaudeCodeError::invalid(format!("there is no {what} `{name}`{near}{all}"))
}

/// Whether a name can only be that of a built-in tool: it is no pattern and no tool of a server.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_word) && !name.starts_with("mcp__")
}

/// The tool in a rule such as `Bash(git log *)`.
pub(crate) fn tool_of(rule: &str) -> &str {
    rule.split_once('(').map_or(rule, |(tool, _)| tool)
}

/// Whether no known CLI has a built-in tool of that name.
pub(crate) fn is_unknown(tool: &str) -> bool {
    is_plain(tool) && tool != "default" && !BUILTIN_TOOLS.contains(&tool)
}

/// What is wrong with the name of a built-in tool, if it is almost a known one.
pub(crate) fn misspelt(tool: &str) -> Option<String> {
    let near =
        if is_unknown(tool) { did_you_mean(tool, BUILTIN_TOOLS.iter().copied()) } else { String::new() };
    (!near.is_empty()).then(|| format!("there is no built-in tool `{tool}`{near}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Effort, HookEvent, PermissionMode};

    #[test]
    fn an_unknown_name_is_an_error_with_the_nearest() {
        let event = |name: &str| name.parse::<HookEvent>().unwrap_err().to_string();
        assert_eq!(event("PreTooluse"), "there is no hook event `PreTooluse`; did you mean `PreToolUse`?");
        assert!(event("zebra").starts_with("there is no hook event `zebra`; there are: PreToolUse, "));
        assert_eq!(
            event("SessionStart"),
            "the CLI calls hooks for `SessionStart` only after `/clear` and compactions, not when a conversation begins"
        );
        assert_eq!(event("Setup"), "the CLI never calls hooks for `Setup` when a program runs it");
        let mode = "acceptEdit".parse::<PermissionMode>().unwrap_err().to_string();
        assert_eq!(mode, "there is no permission mode `acceptEdit`; did you mean `acceptEdits`?");
        let effort = "hihg".parse::<Effort>().unwrap_err().to_string();
        assert_eq!(effort, "there is no effort `hihg`; did you mean `high`?");
        assert_eq!(serde_json::json!(PermissionMode::Other("new".into())), "new");
    }

    #[test]
    fn a_tool_is_misspelt_only_if_it_is_almost_a_known_one() {
        for name in BUILTIN_TOOLS {
            assert_eq!(misspelt(name), None);
        }
        for name in ["default", "mcp__tools__raed", "mcp__*", "*", "", "Frobnicate"] {
            assert_eq!(misspelt(name), None, "{name}");
        }
        assert_eq!(misspelt("Raed").unwrap(), "there is no built-in tool `Raed`; did you mean `Read`?");
    }
}
