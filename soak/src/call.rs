//! Requests and their expected answers.

use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::host::{Host, HostKind};
use crate::random::pick;

/// The picture of the demo tools.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// Over the limit of a message.
const TOO_LARGE_BYTES: usize = 11_000_000;

/// Longer than any client waits.
const FOR_EVER_MS: u64 = 600_000;

/// Characters of one to four bytes, and ones that JSON has to escape.
const LETTERS: [char; 16] =
    ['a', 'Z', '0', ' ', 'ü', 'ß', 'Ж', '中', '\u{200d}', '😀', '"', '\\', '/', '\n', '\t', '\u{1}'];

/// A request.
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
    pub(crate) want: Want,
    /// How long its handler takes.
    pub(crate) lasts: Duration,
}

/// The expected answer.
pub(crate) enum Want {
    /// This result.
    Result(Value),
    /// A result with that many tools.
    Tools(usize),
    /// A result of `initialize`.
    Hello,
    /// An error of the protocol.
    Refusal(i64),
    /// A tool error that begins like this.
    Error(&'static str),
    /// A note with this text, whose number is higher than any seen before.
    Note { text: String, seen: u64, ms: u64 },
    /// None: the call is cancelled, or its bridge is ended.
    Nothing,
}

/// The checked answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Right,
    /// The note with that number.
    Note(u64),
    /// The parent could not be reached.
    Lost(String),
}

impl Call {
    fn new(method: &'static str, params: Value, want: Want) -> Self {
        Self { method, params, want, lasts: Duration::ZERO }
    }

    pub(crate) fn hello() -> Self {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "soak", "version": "0" },
        });
        Self::new("initialize", params, Want::Hello)
    }

    pub(crate) fn ping() -> Self {
        Self::new("ping", json!({}), Want::Result(json!({})))
    }

    fn tool(name: &str, arguments: &Value, want: Want) -> Self {
        Self::new("tools/call", json!({ "name": name, "arguments": arguments }), want)
    }

    fn text(name: &str, arguments: &Value, text: impl Into<Value>) -> Self {
        Self::tool(name, arguments, Want::Result(text_result(text, false)))
    }

    fn echo(text: String) -> Self {
        Self::text("echo", &json!({ "text": &text }), text)
    }

    /// A call that does not end by itself; an exclusive one blocks all others of its host.
    pub(crate) fn endless(exclusive: bool) -> Self {
        if exclusive {
            Self::tool("write_note", &json!({ "text": "never", "ms": FOR_EVER_MS }), Want::Nothing)
        } else {
            Self::tool("wait", &json!({ "ms": FOR_EVER_MS }), Want::Nothing)
        }
    }

    /// A large answer to a small request.
    pub(crate) fn blob(random: &mut Rng) -> Self {
        let bytes = random.usize(50_000..=500_000);
        Self::text("blob", &json!({ "bytes": bytes }), "x".repeat(bytes))
    }

    /// Any call that `host` supports; `name` is unique.
    pub(crate) fn any(random: &mut Rng, host: &Host, name: &str) -> Self {
        match random.usize(0..=19) {
            0 => return Self::ping(),
            1 => {
                let tools = if host.kind == HostKind::Demo { 9 } else { 3 };
                return Self::new("tools/list", json!({}), Want::Tools(tools));
            }
            2 => return Self::tool("nothing", &json!({}), Want::Refusal(-32602)),
            3..=9 => return Self::echo(text(random, name)),
            _ => {}
        }
        match host.kind {
            HostKind::Demo => Self::of_demo(random, host, name),
            HostKind::Parent => Self::of_parent(random, name),
        }
    }

    fn of_demo(random: &mut Rng, host: &Host, name: &str) -> Self {
        match random.usize(0..=31) {
            0..=4 => {
                let (a, b) = (random.u64(..) >> 1, random.u64(..) >> 1);
                Self::text("add", &json!({ "a": a, "b": b }), (u128::from(a) + u128::from(b)).to_string())
            }
            5..=10 => {
                let ms = random.usize(0..=300);
                let call = Self::text("wait", &json!({ "ms": ms }), format!("waited {ms} ms"));
                Self { lasts: Duration::from_millis(ms as u64), ..call }
            }
            11..=17 => {
                let ms = random.usize(0..=20) as u64;
                let want = Want::Note { text: name.into(), seen: host.notes.highest(), ms };
                Self::tool("write_note", &json!({ "text": name, "ms": ms }), want)
            }
            18..=21 => {
                let want = Want::Result(text_result(format!("{name} (type: DemoError)"), true));
                Self::tool("fail", &json!({ "message": name }), want)
            }
            22 | 23 => {
                let said = "tool `panic` panicked: this tool always panics (type: ToolPanicError)";
                Self::tool("panic", &json!({}), Want::Result(text_result(said, true)))
            }
            24 | 25 => {
                let want = Want::Error("invalid arguments for tool `add`: at `/a`: ");
                Self::tool("add", &json!({ "a": name, "b": 1 }), want)
            }
            26 if random.usize(..8) == 0 => {
                let want = Want::Error("the answer of tool `blob` cannot be sent: message of ");
                Self::tool("blob", &json!({ "bytes": TOO_LARGE_BYTES }), want)
            }
            26 => Self::blob(random),
            27 | 28 => {
                let picture = json!({ "type": "image", "data": PICTURE, "mimeType": "image/png" });
                let result = json!({ "content": [picture], "isError": false });
                Self::tool("picture", &json!({}), Want::Result(result))
            }
            _ => Self::countdown(random, name),
        }
    }

    /// A call that reports progress under its name.
    fn countdown(random: &mut Rng, name: &str) -> Self {
        let from = random.usize(0..=3);
        let mut call = Self::text("countdown", &json!({ "from": from }), "lift-off");
        call.params["_meta"] = json!({ "progressToken": name });
        Self { lasts: Duration::from_millis(100 * from as u64), ..call }
    }

    /// Structured values, both ways.
    fn of_parent(random: &mut Rng, name: &str) -> Self {
        let item = |random: &mut Rng, id: u32| {
            json!({ "id": id, "name": short(random, name), "parent": id.checked_sub(1), "price": 0.25 * f64::from(id),
                    "tags": [name, "ü"], "visible": random.usize(..2) == 0 })
        };
        let items: Vec<_> = (0..200).take(random.usize(0..=200)).map(|id| item(random, id)).collect();
        let arguments = json!({ "items": items, "text": name });
        if random.usize(..2) == 0 {
            return Self::text("take", &arguments, name);
        }
        let mut result = text_result("items", false);
        result["structuredContent"].clone_from(&arguments);
        Self::tool("both", &arguments, Want::Result(result))
    }

    /// The progress token.
    pub(crate) fn token(&self) -> Option<&str> {
        self.params["_meta"]["progressToken"].as_str()
    }

    /// The progress report of a step.
    pub(crate) fn report(&self, step: u64) -> Value {
        let from = self.params["arguments"]["from"].as_u64().unwrap_or(0);
        let message = if step < from { format!("{} left", from - step) } else { "done".into() };
        json!({ "progressToken": self.token(), "progress": step, "total": from, "message": message })
    }

    /// The number of steps that are reported before the answer.
    pub(crate) fn reports(&self) -> u64 {
        self.token().map_or(0, |_| self.params["arguments"]["from"].as_u64().unwrap_or(0) + 1)
    }

    pub(crate) fn judge(&self, answer: &Value) -> Result<Verdict> {
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let is_error = result["isError"] == true;
        if is_error && text.ends_with("(type: IPCConnectionError)") {
            return Ok(Verdict::Lost(text.into()));
        }
        let is_right = match &self.want {
            Want::Result(want) => result == want,
            Want::Tools(count) => result["tools"].as_array().is_some_and(|tools| tools.len() == *count),
            Want::Hello => result["serverInfo"]["name"] == "toolbridge",
            Want::Refusal(code) => answer["error"]["code"] == *code,
            Want::Error(start) => is_error && text.starts_with(start),
            Want::Note { text: want, .. } => {
                let number =
                    text.strip_prefix("note ").and_then(|rest| rest.strip_suffix(&format!(": {want}")));
                if let Some(Ok(number)) = number.map(str::parse)
                    && !is_error
                {
                    return Ok(Verdict::Note(number));
                }
                false
            }
            Want::Nothing => false,
        };
        ensure!(is_right, "{} is answered with {}", excerpt(&self.params), excerpt(answer));
        Ok(Verdict::Right)
    }
}

fn text_result(text: impl Into<Value>, is_error: bool) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }], "isError": is_error })
}

/// The start of a text that may be large.
pub(crate) fn excerpt(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 300 {
        return text;
    }
    format!("{}… ({} bytes)", text.chars().take(300).collect::<String>(), text.len())
}

/// Begins with `name`; mostly small, sometimes several megabytes.
fn text(random: &mut Rng, name: &str) -> String {
    let bytes = match random.usize(0..=99) {
        0..=69 => random.usize(0..=300),
        70..=89 => random.usize(300..=20_000),
        90..=98 => random.usize(20_000..=500_000),
        _ => random.usize(500_000..=4_000_000),
    };
    let mut text = short(random, name);
    let piece = text.clone();
    while text.len() < bytes {
        text += &piece;
        text.push(*pick(random, &LETTERS));
    }
    text
}

fn short(random: &mut Rng, name: &str) -> String {
    let letters = random.usize(0..=50);
    std::iter::once(format!("{name} "))
        .chain((0..letters).map(|_| pick(random, &LETTERS).to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with the text of a successful result.
    fn good(text: &str) -> Value {
        json!({ "jsonrpc": "2.0", "id": 1, "result": text_result(text, false) })
    }

    #[test]
    fn only_the_very_result_is_right() {
        let call = Call::echo("mine".into());
        assert_eq!(call.judge(&good("mine")).unwrap(), Verdict::Right);
        for wrong in [
            good("another's"),
            good(""),
            json!({ "id": 1, "result": text_result("mine", true) }),
            json!({ "id": 1, "error": { "code": -32602, "message": "mine" } }),
            json!({ "id": 1, "result": { "content": [], "isError": false } }),
        ] {
            assert!(call.judge(&wrong).is_err(), "{wrong}");
        }
        assert!(Call::endless(false).judge(&good("waited 600000 ms")).is_err());
    }

    #[test]
    fn a_lost_connection_is_distinguished_from_other_errors() {
        let lost = |text: &str| json!({ "id": 1, "result": text_result(text, true) });
        let call = Call::echo("mine".into());
        let text = "cannot reach the parent process at `x`: gone (type: IPCConnectionError)";
        assert_eq!(call.judge(&lost(text)).unwrap(), Verdict::Lost(text.into()));
        assert!(call.judge(&lost("gone (type: IPCError)")).is_err());
    }

    #[test]
    fn a_note_has_its_own_text() {
        let want = Want::Note { text: "mine".into(), seen: 0, ms: 0 };
        let call = Call::tool("write_note", &json!({ "text": "mine" }), want);
        assert_eq!(call.judge(&good("note 7: mine")).unwrap(), Verdict::Note(7));
        for wrong in ["note 7: yours", "note : mine", "note x: mine", "mine"] {
            assert!(call.judge(&good(wrong)).is_err(), "{wrong}");
        }
    }
}
