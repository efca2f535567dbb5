//! `toolbridge call`: one call of a live session, for debugging.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use serde::Deserialize;
use toolbridge::core::{Step, ToolCall, ToolList, Underway};
use toolbridge::ipc::Remote;
use toolbridge::{CallContext, RawJson, ToolError, ToolSource as _};

use crate::output::{WithHint, print, say};

pub(crate) fn run(socket: &Path, tool: &str, arguments: &str, json: bool) -> Result<ExitCode> {
    let bad = |reason: String| WithHint {
        error: format!("the arguments are not a JSON object: {reason}"),
        hint: "quote them for the shell: '{\"name\": \"value\"}'".into(),
    };
    let arguments = RawJson::parse(arguments.to_owned()).map_err(|error| bad(error.to_string()))?;
    if !arguments.is_object() {
        return Err(bad(format!("`{arguments}`")).into());
    }
    let remote = Remote::new(socket, ToolList::default())?;
    let runtime = toolbridge::small_runtime()?;
    match runtime.block_on(call(&remote, ToolCall::new(tool, arguments))) {
        Ok(result) => show(&result, json),
        Err(error) => {
            let hint = match error.type_name() {
                "IPCConnectionError" => "`toolbridge sessions` lists the live sessions",
                "ToolNotFoundError" => "`toolbridge sessions` lists the tools of each session",
                "ToolArgumentsError" => "the session's schema file has the tool's input schema",
                "IPCMessageSizeError" => "pass a path or an id instead of the data itself",
                "IPCError" => "is that the socket of a toolbridge session?",
                _ => "the tool itself says so; the connection works",
            };
            Err(WithHint { error: format!("{error} (type: {})", error.type_name()), hint: hint.into() }
                .into())
        }
    }
}

async fn call(remote: &Remote, mut call: ToolCall) -> Result<RawJson, ToolError> {
    let mut context = CallContext::default();
    call.meta.progress_token = RawJson::of("call").ok();
    let reports = context.report_progress();
    let mut call = Underway::new(remote.call(call, context), Some(reports));
    loop {
        match call.next().await {
            Step::Progress(report) => {
                let total = report.total.map(|total| format!(" of {total}")).unwrap_or_default();
                say(&format!("progress: {}{total} {}", report.progress, report.message.unwrap_or_default()));
            }
            Step::Done(result) => return result,
        }
    }
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
