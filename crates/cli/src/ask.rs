//! `toolbridge ask`: the model from the command line, with tools in this process.

use std::cell::Cell;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;
use toolbridge::docs::LogLevel;
use toolbridge::model::{
    ClaudeCodeError, ExecutionKind, Metadata, ModelResponse, Part, ResponseStream, ResponseWithMetadata,
};
use toolbridge::tool::{hint_of, with_causes};
use toolbridge::{ClaudeCodeModel, Event, Request, set};

use crate::args::{AskArgs, AskTools};
use crate::demo::{demo_tools, hide_demo_panic};
use crate::docs;
use crate::excerpt::excerpt;
use crate::output::{Spinner, WithHint, ending_signal, print, say, small_runtime};
use crate::question;

/// How many characters of a tool's arguments or result are shown.
const SHOWN_CHARS: usize = 120;

/// How long to wait at the end for other threads; one may be blocked in a tool.
const END_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &AskArgs) -> Result<ExitCode> {
    match answer_to(args) {
        Err(error) if args.json => {
            print(format!("{}\n", error.as_json()).as_bytes())?;
            Ok(ExitCode::FAILURE)
        }
        answered => Ok(answered?),
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Failure {
    Model(#[from] ClaudeCodeError),
    Other(#[from] anyhow::Error),
}

impl Failure {
    /// `{"error":{"type","message","hint"?}}`.
    fn as_json(&self) -> Value {
        let type_name = match self {
            Self::Model(error) => error.type_name(),
            Self::Other(_) => "Error",
        };
        let mut entry = json!({ "type": type_name, "message": with_causes(self) });
        if let Some(hint) = hint_of(self) {
            entry["hint"] = json!(hint);
        }
        json!({ "error": entry })
    }
}

fn answer_to(args: &AskArgs) -> Result<ExitCode, Failure> {
    hide_demo_panic();
    let deadline = args.timeout.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
    // Before the signal handlers are installed, so that Ctrl-C still interrupts a read from stdin.
    let prompt = prompt(&args.prompt, args.timeout)?;
    let runtime = small_runtime().map_err(anyhow::Error::from)?;
    let has_answer = Cell::new(false);
    let answered = runtime.block_on(async {
        let Some((deadline, limit)) = deadline else { return ask(args, prompt, &has_answer).await };
        tokio::select! {
            answered = ask(args, prompt, &has_answer) => answered,
            // The guardian ends the CLI, whatever that takes.
            () = sleep_until(deadline.into()) => {
                if has_answer.get() { Ok(ExitCode::SUCCESS) } else { Err(timed_out(limit)) }
            }
        }
    });
    // What the request has made is removed at once; threads that are blocked in a tool may take longer.
    runtime.shutdown_timeout(END_PATIENCE);
    answered
}

fn timed_out(limit: Duration) -> Failure {
    let message = format!("no result within {} s", limit.as_secs_f64());
    ClaudeCodeError::CliExecution { kind: ExecutionKind::Timeout(limit), message, result: None }.into()
}

async fn ask(args: &AskArgs, prompt: String, has_answer: &Cell<bool>) -> Result<ExitCode, Failure> {
    let signalled = ending_signal().map_err(anyhow::Error::from)?;
    let mut builder =
        ClaudeCodeModel::builder().claude_code(args.claude_code).expand_prompts(args.expand_prompts);
    set!(builder: cli = &args.claude, model = &args.model, timeout = args.timeout, trace = &args.trace.file);
    if question::can_ask() {
        builder = builder.on_ask(async |asked| match asked.url {
            None => question::ask(asked.server_name, asked.message, asked.schema).await,
            // A page to open in a browser, which is not supported here.
            Some(_) => toolbridge::call::Answer::Declined,
        });
    }
    let model = builder.build()?;
    let mut stream = model.request_stream(request(args, prompt).await?).await?;
    let code = tokio::select! {
        answer = follow(&mut stream, args, has_answer) => return answer,
        code = signalled => code,
    };
    stream.cancel().await;
    Ok(code)
}

async fn request(args: &AskArgs, prompt: String) -> Result<Request> {
    let request = Request::new(prompt).transport(args.transport);
    Ok(match args.tools {
        Some(AskTools::Demo) => request.tools(demo_tools(Arc::default())?),
        // `--stream` shows the calls; log only disk errors besides.
        Some(AskTools::Docs) => {
            let docs = docs::roots(&args.docs)?.log_level(LogLevel::Error);
            // In a thread of its own, because the time-out holds for it too.
            request.tools(spawn_blocking(move || docs.open()).await??)
        }
        None => request,
    })
}

/// The prompt, read from stdin if it is `-`.
fn prompt(given: &str, limit: Option<Duration>) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let (sender, text) = mpsc::channel();
    thread::spawn(move || sender.send(io::read_to_string(io::stdin())));
    let text = text.recv_timeout(limit.unwrap_or(Duration::MAX));
    let text = text.map_err(|_| timed_out(limit.unwrap_or_default()))?.map_err(|error| WithHint {
        error: format!("cannot read the prompt from stdin: {error}"),
        hint: "the prompt is text in UTF-8",
    });
    Ok(text.map_err(anyhow::Error::from)?)
}

/// Shows events as they arrive, and the answer at the end.
async fn follow(
    stream: &mut ResponseStream,
    args: &AskArgs,
    has_answer: &Cell<bool>,
) -> Result<ExitCode, Failure> {
    let mut spinner = Spinner::new(!args.json && io::stderr().is_terminal());
    let mut text_is_open = false;
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            // Do not draw over an unfinished line of text.
            () = spinner.turn(), if !text_is_open => continue,
        };
        let Some(event) = event.transpose()? else { break };
        spinner.clear();
        match event {
            Event::TextDelta(text) if args.stream => {
                print(text.as_bytes())?;
                text_is_open = !text.ends_with('\n');
            }
            Event::Part(Part::Text { .. }) if args.stream => end_line(&mut text_is_open)?,
            Event::Part(Part::ToolCall { name, input, .. }) if args.stream => {
                end_line(&mut text_is_open)?;
                say(&format!("→ {name} {}", excerpt(input.as_str(), SHOWN_CHARS)));
            }
            Event::Part(part @ Part::ToolResult { .. }) if args.stream => {
                let is_error = matches!(part, Part::ToolResult { is_error: true, .. });
                let text = part.text().filter(|text| !text.is_empty()).unwrap_or("(no text)".into());
                say(&format!("← {}{}", if is_error { "error: " } else { "" }, excerpt(&text, SHOWN_CHARS)));
            }
            Event::Result(whole) => {
                has_answer.set(true);
                if args.json {
                    print(format!("{}\n", answer_json(&whole)?).as_bytes())?;
                } else if !args.stream {
                    print(format!("{}\n", whole.response.text()).as_bytes())?;
                }
            }
            _ => {}
        }
    }
    end_line(&mut text_is_open)?;
    Ok(ExitCode::SUCCESS)
}

fn end_line(text_is_open: &mut bool) -> Result<()> {
    if std::mem::take(text_is_open) {
        print(b"\n")?;
    }
    Ok(())
}

/// The answer, as printed by `--json`.
#[derive(Serialize)]
struct Answer<'a> {
    text: String,
    #[serde(flatten)]
    response: &'a ModelResponse,
    #[serde(flatten)]
    metadata: &'a Metadata,
}

fn answer_json(ResponseWithMetadata { response, metadata, .. }: &ResponseWithMetadata) -> Result<Value> {
    let mut answer = serde_json::to_value(Answer { text: response.text(), response, metadata })?;
    // The CLI's original message repeats all of the above.
    answer.as_object_mut().map(|members| members.remove("raw"));
    Ok(answer)
}
