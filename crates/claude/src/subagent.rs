//! Agents that the model may start.

use serde_json::Value;

use crate::record::record;
use crate::settings::{Effort, PermissionMode};

record! {
    /// An agent that the model may start for a part of its work, with a conversation of its own.
    ///
    /// It has the tools that it is given, and no others.
    ///
    /// ```
    /// # use toolbridge_claude as toolbridge;
    /// use toolbridge::{ClaudeCodeModel, Subagent};
    ///
    /// let reader = Subagent::new("Reads files and sums them up", "You are a librarian.").tools(["Read"]);
    /// let model = ClaudeCodeModel::builder().builtin_tools(["Read"]).agent("reader", reader).build()?;
    /// # Ok::<(), toolbridge_claude::ClaudeCodeError>(())
    /// ```
    ///
    /// In JSON its members have the CLI's names, such as `maxTurns`.
    pub struct Subagent {
        /// Says when the model should use it.
        into description: String;
        /// Its system prompt.
        into prompt: String;
        /// Names the tools that it has, among those of the request: `Read`, `mcp__tools__add`, or `add` for a tool of
        /// this process. `*` is all of them.
        list tools: Vec<String>;
        /// Names tools that it does not have.
        list disallowed_tools: Vec<String>;
        /// Names the model that it asks: a name, or `inherit`.
        into model: String;
        /// Names skills whose text it has from the beginning.
        list skills: Vec<String>;
        /// Gives it a memory on disk: `user`, `project` or `local`.
        into memory: String;
        /// Names the MCP servers that it has: names of the request's, or objects with an entry of its own by its name.
        value mcp_servers: Vec<Value>;
        /// What it is told first, where it is the one that is asked.
        into initial_prompt: String;
        /// Limits how often its model is asked.
        value max_turns: u32;
        /// Has it run beside the model, which does not wait for it. It is for a conversation that stays open: a request ends with its
        /// answer. Without this the model gets the answers of its agents before it goes on.
        value background: bool;
        /// How much it is to think.
        value effort: Effort;
        /// What the CLI does about tools that no rule allows.
        value permission_mode: PermissionMode;
    }
}

impl Subagent {
    /// An agent with that system prompt, and when the model should use it.
    pub fn new(description: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self::default().description(description).prompt(prompt)
    }

    /// What makes no sense.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let is_blank = |text: &Option<String>| text.as_ref().is_none_or(|text| text.trim().is_empty());
        if is_blank(&self.description) {
            return Some("`description` is missing; it tells the model when to use it");
        }
        is_blank(&self.prompt).then_some("`prompt` is missing; it is its system prompt")
    }

    /// As the CLI takes it. `own` gives a tool of this process the name that the CLI has for it.
    pub(crate) fn to_cli(&self, own: impl Fn(&str) -> String) -> Value {
        let named = |tools: &[String]| tools.iter().map(|tool| own(tool)).collect::<Vec<_>>();
        let tools = self.tools.as_deref().unwrap_or_default();
        let mut said = self.clone();
        // Without a list the CLI gives it all that there are.
        said.tools = (!tools.iter().any(|tool| tool == "*")).then(|| named(tools));
        said.disallowed_tools = self.disallowed_tools.as_deref().map(named);
        serde_json::json!(said)
    }
}
