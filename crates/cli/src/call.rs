//! `toolbridge call`: one call of a live session, for debugging.

use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Result;
use serde::Deserialize;
use toolbridge::call::Question;
use toolbridge::ipc::{IpcError, Remote};
use toolbridge::source::CallEvent;
use toolbridge::tool::{RawJson, ToolCall, ToolList};
use toolbridge::trace::Outcome;
use toolbridge::{CallContext, ToolError};

use crate::output::{WithHint, print, say, small_runtime};
use crate::question;

/// The hint for a message over the protocol's size limit.
const TOO_LARGE: &str = "pass a path or an id instead of the data itself";

pub(crate) fn run(socket: &Path, tool: &str, arguments: &str, json: bool) -> Result<ExitCode> {
    let bad = |reason: String| WithHint {
        error: format!("the arguments are not a JSON object: {reason}"),
        hint: "quote them for the shell: '{\"name\": \"value\"}'",
    };
    let arguments = RawJson::parse(arguments.to_owned()).map_err(|error| bad(error.to_string()))?;
    if !arguments.is_object() {
        return Err(bad(format!("`{arguments}`")).into());
    }
    let remote = Remote::new(socket, ToolList::default())?;
    let runtime = small_runtime()?;
    let answered = runtime.block_on(call(&remote, ToolCall::new(tool, arguments)));
    // A thread that waits for the terminal must not hold the program.
    runtime.shutdown_background();
    let (error, hint) = match answered {
        Ok(Ok(result)) => return show(&result, json),
        Ok(Err(error)) => {
            let hint = match error.outcome() {
                Outcome::Refused => "`toolbridge sessions` lists the tools of each session",
                Outcome::TransportError => TOO_LARGE,
                _ => "the error is the tool's own; the connection works",
            };
            (error, hint)
        }
        Err(error) => {
            let hint = match error {
                IpcError::MessageSize { .. } => TOO_LARGE,
                IpcError::Invalid { .. } | IpcError::Io { .. } => {
                    "is that the socket of a toolbridge session?"
                }
                _ => "`toolbridge sessions` lists the live sessions",
            };
            (error.into(), hint)
        }
    };
    Err(WithHint { error: format!("{error} (type: {})", error.type_name()), hint }.into())
}

async fn call(remote: &Remote, mut call: ToolCall) -> Result<Result<RawJson, ToolError>, IpcError> {
    let mut context = CallContext::default();
    call.meta.progress_token = RawJson::of("call").ok();
    let listener = context.listen(true, question::can_ask());
    // Whether it is the connection that fails, or the tool.
    let failed = OnceLock::new();
    let mut running = listener.follow(Box::pin(async {
        remote.relay(call, context).await.unwrap_or_else(|error| {
            let result = Err(ToolError::new(error.type_name(), error.to_string()));
            _ = failed.set(error);
            result
        })
    }));
    let result = loop {
        match running.next().await {
            CallEvent::Progress(report) => {
                let total = report.total.map(|total| format!(" of {total}")).unwrap_or_default();
                say(&format!("progress: {}{total} {}", report.progress, report.message.unwrap_or_default()));
            }
            CallEvent::Question(asked) => {
                // In a separate task: the tool may continue meanwhile.
                tokio::spawn(async move {
                    let Question { message, schema } = asked.question.clone();
                    let schema = schema.decode().unwrap_or_default();
                    let answer = question::ask("the tool".into(), message, schema).await;
                    asked.answer(answer.try_map(|content| Ok(RawJson::from(&content))));
                });
            }
            CallEvent::Done(result) => break result,
        }
    };
    drop(running);
    failed.into_inner().map_or(Ok(result), Err)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    content: Vec<serde_json::Value>,
    #[serde(default)]
    is_error: bool,
}

fn show(result: &RawJson, json: bool) -> Result<ExitCode> {
    let shown: Shown = result.decode()?;
    let code = if shown.is_error { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    let text = if json {
        format!("{result}\n")
    } else {
        let block = |block: &serde_json::Value| match block["text"].as_str() {
            Some(text) => format!("{text}\n"),
            None => format!("{block}\n"),
        };
        shown.content.iter().map(block).collect()
    };
    print(text.as_bytes()).map(|_| code)
}
