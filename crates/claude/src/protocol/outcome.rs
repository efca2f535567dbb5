//! Turns the CLI's result into a response or an error.

use serde::Deserialize;
use serde_json::value::RawValue;
use toolbridge_core::tool::RawJson;

use crate::ClaudeCodeError;
use crate::error::ExecutionKind;
use crate::part::Part;
use crate::response::{Metadata, ModelResponse, ResponseWithMetadata, Usage, lenient};

/// The members of the CLI's result that are used here.
#[derive(Debug, Deserialize)]
struct ResultLine<'a> {
    #[serde(default, deserialize_with = "lenient")]
    subtype: String,
    #[serde(default, deserialize_with = "lenient")]
    is_error: bool,
    #[serde(default, deserialize_with = "lenient")]
    result: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    errors: Vec<String>,
    #[serde(borrow)]
    structured_output: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Usage,
    #[serde(default, deserialize_with = "lenient")]
    api_error_status: Option<u16>,
    #[serde(default, deserialize_with = "lenient")]
    terminal_reason: Option<String>,
}

/// What a request expects of its result.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Expected {
    /// Whether output matching a schema was requested.
    pub(crate) output: bool,
    /// Whether `interrupt` was called.
    pub(crate) interrupted: bool,
    /// Whether the CLI has reported that it has no login, or a wrong one; without an account the result does not say so.
    pub(crate) login_failed: bool,
}

/// Builds the response from the CLI's result and the parts before it.
pub(crate) fn response_of(
    raw: &RawJson,
    parts: Vec<Part>,
    model: Option<String>,
    expected: Expected,
) -> Result<ResponseWithMetadata, ClaudeCodeError> {
    let parse_error = |error: serde_json::Error| ClaudeCodeError::CliResponseParse {
        reason: format!("its result is invalid: {error}"),
    };
    let result: ResultLine<'_> = raw.decode().map_err(parse_error)?;
    if result.is_error || result.subtype != "success" {
        return Err(failure(&result, raw, expected));
    }
    let structured_output =
        result.structured_output.map(|output| RawJson::parse(output.get().to_owned())).transpose();
    let structured_output = structured_output.unwrap_or_default();
    if expected.output && structured_output.is_none() {
        return Err(ClaudeCodeError::StructuredOutput {
            reason: "it answered with text only".into(),
            text: result.result.unwrap_or_default(),
        });
    }
    let metadata = Metadata { raw: raw.clone(), ..raw.decode().map_err(parse_error)? };
    // A command of the CLI, such as `/cost`, answers without the model, and only in the result.
    let mut parts = parts;
    if let Some(text) = result.result.filter(|text| !text.is_empty() && structured_output.is_none())
        && !parts.iter().any(|part| matches!(part, Part::Text { .. }))
    {
        parts.push(Part::Text { text });
    }
    let response = ModelResponse { parts, usage: result.usage, model, structured_output };
    Ok(ResponseWithMetadata { response, metadata })
}

fn failure(result: &ResultLine<'_>, raw: &RawJson, expected: Expected) -> ClaudeCodeError {
    let aborted = result.terminal_reason.as_deref().is_some_and(|reason| reason.starts_with("aborted"));
    if expected.interrupted || aborted {
        return ClaudeCodeError::CliInterrupted { result: Some(raw.clone()) };
    }
    let kind = match (result.subtype.as_str(), result.api_error_status) {
        ("error_max_turns", _) => ExecutionKind::MaxTurns,
        ("error_max_budget_usd", _) => ExecutionKind::MaxBudget,
        ("error_max_structured_output_retries", _) => {
            return ClaudeCodeError::StructuredOutput {
                reason: "it tried several times".into(),
                text: message_of(result).unwrap_or_default(),
            };
        }
        _ if message_of(result).is_some_and(|text| text.starts_with("No conversation found")) => {
            ExecutionKind::NoConversation
        }
        (_, None) if expected.login_failed => ExecutionKind::Authentication,
        (_, Some(401 | 403)) => ExecutionKind::Authentication,
        (_, Some(429)) => ExecutionKind::RateLimit,
        (_, Some(500..)) => ExecutionKind::Api,
        (_, Some(400..)) => ExecutionKind::InvalidRequest,
        _ => ExecutionKind::Other,
    };
    let message = message_of(result).unwrap_or_else(|| format!("the CLI reports `{}`", result.subtype));
    ClaudeCodeError::CliExecution { kind, message, result: Some(raw.clone()) }
}

/// The message in the result.
fn message_of(result: &ResultLine<'_>) -> Option<String> {
    let errors = (!result.errors.is_empty()).then(|| result.errors.join("; "));
    result.result.clone().filter(|text| !text.is_empty()).or(errors)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::Event;

    fn read(result: &Value, expected: Expected) -> Result<ResponseWithMetadata, ClaudeCodeError> {
        response_of(&RawJson::from(result), Vec::new(), None, expected)
    }

    #[test]
    fn a_result_becomes_an_answer_with_its_metadata() {
        let result = json!({
            "type": "result", "subtype": "success", "is_error": false, "result": "hi", "session_id": "s",
            "num_turns": 2, "total_cost_usd": 0.5, "duration_ms": 1500, "duration_api_ms": 250.5,
            "usage": { "input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5, "iterations": [] },
            "structured_output": { "n": 18_446_744_073_709_551_615_u64 },
        });
        let whole = read(&result, Expected { output: true, ..Expected::default() }).unwrap();
        assert_eq!(whole.metadata.session_id.as_deref(), Some("s"));
        assert_eq!(whole.metadata.num_turns, Some(2));
        assert_eq!(whole.metadata.total_cost_usd, Some(0.5));
        assert_eq!(whole.metadata.duration, Some(Duration::from_millis(1500)));
        assert_eq!(whole.metadata.duration_api, Some(Duration::from_micros(250_500)));
        let usage = Usage { input_tokens: 3, output_tokens: 4, cache_read_tokens: 5, cache_write_tokens: 0 };
        assert_eq!(whole.response.usage, usage);
        assert_eq!(whole.response.output::<Value>().unwrap()["n"], u64::MAX);
        assert_eq!(whole.metadata.raw.decode::<Value>().unwrap(), result);
    }

    #[test]
    fn an_error_result_has_the_clis_message() {
        let rows = [
            (json!({ "subtype": "error_max_turns", "errors": ["Reached 1"] }), "max_turns", "Reached 1"),
            (json!({ "subtype": "error_max_budget_usd", "errors": ["a", "b"] }), "max_budget", "a; b"),
            (
                json!({ "subtype": "success", "result": "no", "api_error_status": 401 }),
                "authentication",
                "no",
            ),
            (json!({ "subtype": "success", "result": "no", "api_error_status": 429 }), "rate_limit", "no"),
            (json!({ "subtype": "success", "result": "no", "api_error_status": 529 }), "api", "no"),
            (
                json!({ "subtype": "success", "result": "no", "api_error_status": 400 }),
                "invalid_request",
                "no",
            ),
            (
                json!({ "subtype": "error_during_execution" }),
                "other",
                "the CLI reports `error_during_execution`",
            ),
            (
                json!({ "subtype": "error_of_unknown_kind", "is_error": false }),
                "other",
                "the CLI reports `error_of_unknown_kind`",
            ),
        ];
        for (mut result, want_kind, want) in rows {
            if result.get("is_error").is_none() {
                result["is_error"] = json!(true);
            }
            let error = read(&result, Expected::default()).unwrap_err();
            let ClaudeCodeError::CliExecution { kind, message, result: Some(_) } = &error else {
                panic!("{error}")
            };
            assert_eq!((kind.as_str(), message.as_str()), (want_kind, want));
            assert_eq!(error.is_recoverable(), ["rate_limit", "api"].contains(&want_kind), "{want_kind}");
        }
    }

    #[test]
    fn an_interrupted_result_is_an_interrupt_error() {
        let result = json!({ "subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_tools" });
        let error = read(&result, Expected::default()).unwrap_err();
        assert!(matches!(error, ClaudeCodeError::CliInterrupted { result: Some(_) }), "{error}");
        let result = json!({ "subtype": "error_during_execution", "is_error": true });
        let error = read(&result, Expected { interrupted: true, ..Expected::default() }).unwrap_err();
        assert_eq!(error.type_name(), "CLIInterruptedError");
    }

    #[test]
    fn a_missing_output_is_an_error_with_the_models_text() {
        let result = json!({ "subtype": "success", "is_error": false, "result": "I would rather not" });
        let error = read(&result, Expected { output: true, ..Expected::default() }).unwrap_err();
        assert!(
            matches!(&error, ClaudeCodeError::StructuredOutput { text, .. } if text == "I would rather not")
        );
        assert!(read(&result, Expected::default()).unwrap().response.output::<Value>().is_err());
    }

    #[test]
    fn invalid_metadata_does_not_lose_the_answer() {
        let whole = read(
            &json!({ "subtype": "success", "is_error": null, "result": "hi", "errors": null, "num_turns": "2",
                "usage": { "input_tokens": null, "output_tokens": 4 }, "duration_ms": "x", "api_error_status": "none" }),
            Expected::default(),
        )
        .unwrap();
        assert_eq!(whole.response.text(), "hi");
        assert_eq!((whole.metadata.num_turns, whole.metadata.duration), (None, None));
        assert_eq!((whole.response.usage.input_tokens, whole.response.usage.output_tokens), (0, 4));
    }

    #[test]
    fn the_text_is_all_text_after_the_last_tool_call() {
        let text = |text: &str| Part::Text { text: text.into() };
        let call = Part::ToolCall { id: "t".into(), name: "n".into(), input: RawJson::empty_object() };
        let mut whole = read(&json!({ "subtype": "success" }), Expected::default()).unwrap();
        whole.response.parts = vec![text("let me see"), call, text("a"), text("b")];
        assert_eq!(whole.response.text(), "a\n\nb");
        whole.response.parts = vec![text("only")];
        assert_eq!(whole.response.text(), "only");
    }

    #[test]
    fn a_tool_results_text_is_read_from_both_shapes() {
        let part = |content: Value| Part::ToolResult {
            id: "t".into(),
            name: None,
            content: RawJson::from(&content),
            is_error: false,
        };
        assert_eq!(part(json!("42")).text().unwrap(), "42");
        let blocks =
            json!([{ "type": "text", "text": "4" }, { "type": "image" }, { "type": "text", "text": "2" }]);
        assert_eq!(part(blocks).text().unwrap(), "42");
    }
    #[test]
    fn an_answer_can_be_serialized_without_loss() {
        let text = concat!(
            r#"{"response":{"parts":[{"type":"text","text":"hi"},"#,
            r#"{"type":"thinking","text":"hm","signature":null},"#,
            r#"{"type":"tool_call","id":"t","name":"n","input":{"a": 1.10, "a":12345678901234567890123}},"#,
            r#"{"type":"tool_result","id":"t","name":"n","content":[],"is_error":true},"#,
            r#"{"type":"of_unknown_kind"},{"type":"text"},7],"#,
            r#""usage":{"input_tokens":1,"output_tokens":2,"cache_write_tokens":3,"cache_read_tokens":4},"#,
            r#""model":null,"structured_output":{"n":1.10}},"#,
            r#""metadata":{"total_cost_usd":0.5,"num_turns":2,"session_id":"s","duration_ms":1500.0,"#,
            r#""duration_api_ms":null,"stop_reason":"end_turn","raw":{"type":"result"}}}"#,
        );
        let whole: ResponseWithMetadata = serde_json::from_str(text).unwrap();
        assert_eq!(whole.response.parts[6], Part::Other(RawJson::from(json!(7))));
        assert_eq!(whole.metadata.duration, Some(Duration::from_millis(1500)));
        assert_eq!(serde_json::to_string(&whole).unwrap(), text);
        let event = Event::Subagent {
            parent_tool_use_id: "p".into(),
            event: Box::new(Event::Result(Box::new(whole))),
        };
        let event = serde_json::to_string(&event).unwrap();
        assert_eq!(
            event,
            format!(r#"{{"subagent":{{"parent_tool_use_id":"p","event":{{"result":{text}}}}}}}"#)
        );
        let read: Event = serde_json::from_str(&event).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), event);
    }
}
