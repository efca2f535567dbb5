//! Subagents that the model may start.

use serde_json::Value;

use crate::record::record;
use crate::settings::{Effort, PermissionMode};

record! {
    /// A subagent that the model may start for part of its work, with its own conversation.
    ///
    /// It has only the tools that it is given.
    ///
    /// ```
    /// # mod toolbridge { pub use toolbridge_claude::{self as model, ClaudeCodeModel, Request}; }
    /// use toolbridge::ClaudeCodeModel;
    /// use toolbridge::model::Subagent;
    ///
    /// let reader = Subagent::new("Reads files and sums them up", "You are a librarian.").tools(["Read"]);
    /// let model = ClaudeCodeModel::builder().builtin_tools(["Read"]).agent("reader", reader).build()?;
    /// # Ok::<(), toolbridge_claude::ClaudeCodeError>(())
    /// ```
    ///
    /// In JSON its members have the CLI's names, such as `maxTurns`.
    pub struct Subagent {
        /// When the model should use it.
        into description: String;
        /// Its system prompt.
        into prompt: String;
        /// Its tools, among those of the request: `Read`, `mcp__tools__add`, or `add` for a tool of this
        /// process. `*` means all of them.
        list tools: Vec<String>;
        /// Tools that it does not have.
        list disallowed_tools: Vec<String>;
        /// Its model: a name, or `inherit`.
        into model: String;
        /// Skills that are loaded from the beginning.
        list skills: Vec<String>;
        /// Where it stores memories on disk: `user`, `project` or `local`.
        into memory: String;
        /// Its MCP servers: names of the request's servers, or objects that map a name to an entry.
        value mcp_servers: Vec<Value>;
        /// Its first prompt, if it runs as the main agent.
        into initial_prompt: String;
        /// Limits the number of its turns.
        value max_turns: u32;
        /// Runs it in the background, so that the model does not wait for it. Only in a conversation that
        /// stays open: a request ends with its answer, so its model waits for everything. When the subagent
        /// has ended, the CLI starts a turn by itself, whose events are
        /// [`Event::Background`](crate::Event::Background). By default the model waits for its subagents.
        value background: bool;
        /// How much effort it spends.
        value effort: Effort;
        /// How the CLI handles tools that no rule allows.
        value permission_mode: PermissionMode;
    }
}

impl Subagent {
    /// A subagent with a description of when to use it, and a system prompt.
    pub fn new(description: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self::default().description(description).prompt(prompt)
    }

    /// Returns what is invalid, if anything.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let is_blank = |text: &Option<String>| text.as_ref().is_none_or(|text| text.trim().is_empty());
        if is_blank(&self.description) {
            return Some("`description` is missing; it tells the model when to use it");
        }
        is_blank(&self.prompt).then_some("`prompt` is missing; it is its system prompt")
    }

    /// The entry for the CLI. `own` maps a tool of this process to the CLI's name for it.
    pub(crate) fn to_cli(&self, own: impl Fn(&str) -> String) -> Value {
        let named = |tools: &[String]| tools.iter().map(|tool| own(tool)).collect::<Vec<_>>();
        let tools = self.tools.as_deref().unwrap_or_default();
        let mut entry = self.clone();
        // Without a list the CLI would give it all tools.
        entry.tools = (!tools.iter().any(|tool| tool == "*")).then(|| named(tools));
        entry.disallowed_tools = self.disallowed_tools.as_deref().map(named);
        serde_json::json!(entry)
    }
}
