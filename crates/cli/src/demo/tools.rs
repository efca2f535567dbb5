//! The demo tools: one for each thing that can happen in a call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Number;
use tokio::sync::Notify;
use tokio::time::sleep;
use toolbridge::schemars::{self, JsonSchema};
use toolbridge::{CallContext, NoArgs, RegistrationError, Tool, ToolResult, Toolset};

/// What the CLI shows the model of a result at most.
const LONG_RESULT_CHARS: u32 = 500_000;

/// A red dot, 1 × 1.
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\
\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";

#[derive(Deserialize, JsonSchema)]
struct Echo {
    /// Comes back exactly as it is.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    #[schemars(with = "f64")]
    a: Number,
    #[schemars(with = "f64")]
    b: Number,
}

/// Whole numbers exactly, others as well as floating point can.
fn sum(args: &Add) -> String {
    if let (Some(a), Some(b)) = (args.a.as_i128(), args.b.as_i128()) {
        return (a + b).to_string();
    }
    let float = |number: &Number| number.as_f64().unwrap_or(f64::NAN);
    (float(&args.a) + float(&args.b)).to_string()
}

#[derive(Deserialize, JsonSchema)]
struct Wait {
    /// How long, in milliseconds.
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Note {
    text: String,
    /// How long writing takes, in milliseconds.
    #[serde(default)]
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Fail {
    /// What the error says.
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Blob {
    /// How long the text is, in bytes.
    #[schemars(range(max = 100_000_000))]
    bytes: usize,
}

#[derive(Deserialize, JsonSchema)]
struct Countdown {
    /// Where to start; one step each 100 ms.
    from: u32,
}

/// The error of the tool that fails.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct DemoError(String);

/// What the tools share: they run in the process that made it.
#[derive(Default)]
pub(crate) struct Shared {
    notes: AtomicUsize,
    /// Told when a `wait` begins, and when one ends before its time.
    pub(crate) waiting: Notify,
    pub(crate) cancelled: Notify,
}

/// Tells if it is dropped before it is disarmed.
struct TellIfDropped<'a>(Option<&'a Notify>);

impl Drop for TellIfDropped<'_> {
    fn drop(&mut self) {
        if let Some(cancelled) = self.0 {
            cancelled.notify_one();
        }
    }
}

const PANIC: &str = "this tool always panics";

/// The demo panics on purpose; its answer says so, and a second account on stderr would only confuse.
pub(crate) fn hide_demo_panic() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<String>().is_none_or(|said| said != PANIC) {
            others(info);
        }
    }));
}

pub(crate) fn demo_tools(shared: std::sync::Arc<Shared>) -> Result<Toolset, RegistrationError> {
    type State = std::sync::Arc<Shared>;
    let echo = Tool::new("echo", "Returns exactly the text", async |args: Echo| args.text)
        .read_only()
        .max_result_chars(LONG_RESULT_CHARS);
    let add = Tool::new("add", "Adds two numbers", async |args: Add| sum(&args)).read_only();
    let wait = Tool::new("wait", "Waits, and can be cancelled", async |args: Wait, context: CallContext| {
        let shared = context.state::<State>();
        shared.waiting.notify_one();
        let mut tell = TellIfDropped(Some(&shared.cancelled));
        sleep(Duration::from_millis(args.ms)).await;
        tell.0 = None;
        format!("waited {} ms", args.ms)
    });
    let write_note = Tool::new(
        "write_note",
        "Writes a note down, one at a time",
        async |args: Note, context: CallContext| {
            sleep(Duration::from_millis(args.ms)).await;
            let count = context.state::<State>().notes.fetch_add(1, Ordering::Relaxed) + 1;
            format!("note {count}: {}", args.text)
        },
    );
    let fail =
        Tool::new("fail", "Fails with the message", async |args: Fail| Err::<(), _>(DemoError(args.message)));
    let panic = Tool::new("panic", "Panics", async |_: NoArgs| -> () { panic!("{PANIC}") });
    let blob =
        Tool::new("blob", "Returns a text of that many bytes", async |args: Blob| "x".repeat(args.bytes))
            .read_only()
            .max_result_chars(LONG_RESULT_CHARS);
    let picture = Tool::new("picture", "Returns a picture, a red dot", async |_: NoArgs| {
        ToolResult::image(PICTURE, "image/png")
    });
    let countdown = Tool::new(
        "countdown",
        "Counts down and reports its progress",
        async |args: Countdown, context: CallContext| {
            for done in 0..args.from {
                let left = format!("{} left", args.from - done);
                context.progress(f64::from(done), Some(f64::from(args.from)), Some(&left));
                sleep(Duration::from_millis(100)).await;
            }
            context.progress(f64::from(args.from), Some(f64::from(args.from)), Some("done"));
            "lift-off"
        },
    );
    Toolset::builder()
        .state(shared)
        .with(echo)
        .with(add)
        .with(wait.read_only())
        .with(write_note.destructive(false))
        .with(fail)
        .with(panic)
        .with(blob)
        .with(picture.read_only())
        .with(countdown)
        .build()
}
