//! A request that the CLI sent to the model.

use serde_json::Value;

/// A recorded request to `/v1/messages`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelRequest {
    /// The whole body.
    pub body: Value,
}

impl ModelRequest {
    /// The names of the tools that the model sees.
    #[must_use]
    pub fn tools(&self) -> Vec<&str> {
        items(&self.body["tools"]).iter().filter_map(|tool| tool["name"].as_str()).collect()
    }

    /// The system prompt, followed by the messages of role `system`, in which the CLI sends some of it.
    #[must_use]
    pub fn system(&self) -> String {
        let mut parts = texts(&self.body["system"]);
        parts.extend(self.messages("system").flat_map(|message| texts(&message["content"])));
        parts.join("\n")
    }

    /// The user's last message, without tool results and the CLI's `<system-reminder>` blocks.
    #[must_use]
    pub fn prompt(&self) -> String {
        let said = |message: &Value| {
            let mut parts = texts(&message["content"]);
            parts.retain(|text| !text.trim_start().starts_with("<system-reminder>"));
            (!parts.is_empty()).then(|| parts.join("\n"))
        };
        self.messages("user").rev().find_map(said).unwrap_or_default()
    }

    /// The tool results of the last message that has any, in the order of the message.
    #[must_use]
    pub fn tool_results(&self) -> Vec<ToolResultBlock> {
        let results = |message: &Value| {
            let blocks = items(&message["content"]).iter().filter(|block| block["type"] == "tool_result");
            let results: Vec<_> = blocks.map(ToolResultBlock::new).collect();
            (!results.is_empty()).then_some(results)
        };
        self.messages("user").rev().find_map(results).unwrap_or_default()
    }

    /// The turn of the conversation, from 0: the number of answers so far.
    #[must_use]
    pub fn turn(&self) -> usize {
        self.messages("assistant").count()
    }

    /// The full name of a tool with this name in a script.
    pub(crate) fn tool_named(&self, name: &str) -> String {
        if name.starts_with("mcp__") || name.contains(char::is_uppercase) {
            return name.into();
        }
        let usual = format!("mcp__tools__{name}");
        let is_it = |tool: &&str| {
            tool.strip_suffix(name)
                .is_some_and(|server| server.starts_with("mcp__") && server.ends_with("__"))
        };
        let offered: Vec<&str> = self.tools().into_iter().filter(is_it).collect();
        match offered[..] {
            [only] => only.into(),
            _ => usual,
        }
    }

    /// The ids of all tool calls so far, in order.
    pub(crate) fn call_ids(&self) -> Vec<&str> {
        let blocks = self.messages("assistant").flat_map(|message| items(&message["content"]));
        blocks.filter(|block| block["type"] == "tool_use").filter_map(|call| call["id"].as_str()).collect()
    }

    fn messages<'a>(&'a self, role: &'a str) -> impl DoubleEndedIterator<Item = &'a Value> {
        items(&self.body["messages"]).iter().filter(move |message| message["role"] == role)
    }
}

/// A tool's result as the model sees it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolResultBlock {
    /// The id of the call.
    pub tool_use_id: String,
    /// Whether the call failed.
    pub is_error: bool,
    /// The content as sent: a string or an array of blocks.
    pub content: Value,
}

impl ToolResultBlock {
    fn new(block: &Value) -> Self {
        Self {
            tool_use_id: block["tool_use_id"].as_str().unwrap_or_default().into(),
            is_error: block["is_error"] == true,
            content: block["content"].clone(),
        }
    }

    /// The text of all text blocks, joined with newlines, without the reminder that the CLI may append.
    #[must_use]
    pub fn text(&self) -> String {
        let text = texts(&self.content).join("\n");
        match text.rsplit_once("\n\n<system-reminder>") {
            Some((own, reminder)) if reminder.trim_end().ends_with("</system-reminder>") => own.into(),
            _ => text,
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The texts of a content, which is a string or an array of blocks.
fn texts(content: &Value) -> Vec<&str> {
    match content.as_str() {
        Some(text) => vec![text],
        None => items(content).iter().filter_map(|block| block["text"].as_str()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A request as the CLI sends it after two calls, shortened.
    fn after_two_calls() -> ModelRequest {
        let reminder = json!({"type": "text", "text": "<system-reminder>\nbe brief\n</system-reminder>"});
        ModelRequest {
            body: json!({
                "system": [{"type": "text", "text": "You are Claude."}, {"type": "text", "text": "Be kind."}],
                "tools": [{"name": "mcp__tools__add"}, {"name": "Bash"}],
                "messages": [
                    {"role": "user", "content": [reminder, {"type": "text", "text": "add and fail"}]},
                    {"role": "system", "content": [{"type": "text", "text": "# Environment"}]},
                    {"role": "assistant", "content": [
                        {"type": "text", "text": "I will."},
                        {"type": "tool_use", "id": "toolu_0_0", "name": "mcp__tools__add", "input": {}},
                        {"type": "tool_use", "id": "toolu_0_1", "name": "mcp__tools__fail", "input": {}},
                    ]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_0_1", "content": "no such order", "is_error": true},
                        {"type": "tool_result", "tool_use_id": "toolu_0_0", "content": [
                            {"type": "image", "source": {}},
                            {"type": "text", "text": "4"},
                            {"type": "text", "text": "2"},
                        ]},
                        reminder,
                    ]},
                    {"role": "system", "content": "Go on."},
                ],
            }),
        }
    }

    #[test]
    fn helpers_find_what_the_cli_sent() {
        let request = after_two_calls();
        assert_eq!(request.tools(), ["mcp__tools__add", "Bash"]);
        assert_eq!(request.system(), "You are Claude.\nBe kind.\n# Environment\nGo on.");
        assert_eq!(request.prompt(), "add and fail");
        assert_eq!(request.turn(), 1);
        assert_eq!(request.call_ids(), ["toolu_0_0", "toolu_0_1"]);
        let [failed, added] = &request.tool_results()[..] else { panic!("not two results") };
        assert_eq!(
            (&*failed.tool_use_id, failed.is_error, &*failed.text()),
            ("toolu_0_1", true, "no such order")
        );
        assert_eq!((&*added.tool_use_id, added.is_error, &*added.text()), ("toolu_0_0", false, "4\n2"));
        assert_eq!(added.content[0]["type"], "image");
    }

    #[test]
    fn bare_names_are_tools_of_servers() {
        let request = |tools: &[&str]| {
            let tools: Vec<_> = tools.iter().map(|name| json!({ "name": name })).collect();
            ModelRequest { body: json!({ "tools": tools }) }
        };
        for (offered, name, want) in [
            (&["mcp__tools__add"][..], "add", "mcp__tools__add"),
            (&["mcp__tools__add", "mcp__other__add"], "add", "mcp__tools__add"),
            (&["mcp__one__add", "mcp__other__add"], "add", "mcp__tools__add"),
            (&["mcp__pydantic_tools__add", "mcp__other__re_add", "Bash"], "add", "mcp__pydantic_tools__add"),
            (&["mcp__other__add"], "write_note", "mcp__tools__write_note"),
            (&["mcp__other__add"], "mcp__tools__add", "mcp__tools__add"),
            (&["mcp__other__Bash"], "Bash", "Bash"),
        ] {
            assert_eq!(request(offered).tool_named(name), want, "{offered:?}");
        }
    }

    #[test]
    fn a_later_prompt_replaces_the_first() {
        let mut request = after_two_calls();
        let messages = request.body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "user", "content": "and now?"}));
        assert_eq!(request.prompt(), "and now?");
        assert_eq!(request.tool_results().len(), 2);
    }

    #[test]
    fn an_empty_request_has_nothing() {
        let request = ModelRequest { body: json!({}) };
        assert!(request.tools().is_empty() && request.tool_results().is_empty());
        assert_eq!((request.prompt(), request.system(), request.turn()), (String::new(), String::new(), 0));
    }

    #[test]
    fn the_clis_reminder_is_not_the_tools_text() {
        let text = |content: &str| {
            ToolResultBlock::new(&json!({ "content": [{ "type": "text", "text": content }] })).text()
        };
        assert_eq!(text("42\n\n<system-reminder>\n9 tokens left\n</system-reminder>"), "42");
        assert_eq!(text("42\n\n<system-reminder> is a tag"), "42\n\n<system-reminder> is a tag");
    }
}
