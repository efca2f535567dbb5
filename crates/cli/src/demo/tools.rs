//! The demo tools: one for each kind of result.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Number;
use tokio::sync::Notify;
use tokio::time::sleep;
use toolbridge::tool::RegistrationError;
use toolbridge::{CallContext, State, ToolResult, Toolset, tool};

/// A red dot, 1 × 1.
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\
\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";

/// The error of the tool `fail`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct DemoError(String);

/// State that the tools share with the process that hosts them.
#[derive(Default)]
pub(crate) struct Shared {
    notes: AtomicUsize,
    /// Notified when a `wait` begins.
    pub(crate) waiting: Notify,
    pub(crate) cancelled: Notify,
}

/// Notifies if it is dropped before it is disarmed.
struct NotifyOnDrop<'a>(Option<&'a Notify>);

impl Drop for NotifyOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(cancelled) = self.0 {
            cancelled.notify_one();
        }
    }
}

const PANIC: &str = "this tool always panics";

/// The demo's `panic` tool panics on purpose; its result shows that, so the message on stderr is suppressed.
pub(crate) fn hide_demo_panic() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<String>().is_none_or(|message| message != PANIC) {
            others(info);
        }
    }));
}

/// Returns exactly the text
#[tool(read_only, max_result_chars = 500_000)]
async fn echo(
    /// Comes back exactly as it is.
    text: String,
) -> String {
    text
}

/// Adds two numbers
#[tool(read_only)]
async fn add(#[schemars(with = "f64")] a: Number, #[schemars(with = "f64")] b: Number) -> String {
    // Integers exactly, others in floating point.
    if let (Some(a), Some(b)) = (a.as_i128(), b.as_i128()) {
        return (a + b).to_string();
    }
    let float = |number: Number| number.as_f64().unwrap_or(f64::NAN);
    (float(a) + float(b)).to_string()
}

/// Waits, and can be cancelled
#[tool(read_only)]
async fn wait(
    State(shared): State<Arc<Shared>>,
    /// How long, in milliseconds.
    ms: u64,
) -> String {
    shared.waiting.notify_one();
    let mut on_drop = NotifyOnDrop(Some(&shared.cancelled));
    sleep(Duration::from_millis(ms)).await;
    on_drop.0 = None;
    format!("waited {ms} ms")
}

/// Writes a note down, one at a time
#[tool(destructive = false)]
async fn write_note(
    State(shared): State<Arc<Shared>>,
    text: String,
    /// How long writing takes, in milliseconds.
    #[serde(default)]
    ms: u64,
) -> String {
    sleep(Duration::from_millis(ms)).await;
    let count = shared.notes.fetch_add(1, Ordering::Relaxed) + 1;
    format!("note {count}: {text}")
}

/// Fails with the message
#[tool]
async fn fail(
    /// What the error says.
    message: String,
) -> Result<(), DemoError> {
    Err(DemoError(message))
}

/// Panics
#[tool]
async fn panic() {
    panic!("{PANIC}")
}

/// Returns a text of that many bytes
#[tool(read_only, max_result_chars = 500_000)]
async fn blob(
    /// How long the text is, in bytes.
    #[schemars(range(max = 100_000_000))]
    bytes: usize,
) -> String {
    "x".repeat(bytes)
}

/// Returns a picture, a red dot
#[tool(read_only)]
async fn picture() -> ToolResult {
    ToolResult::image(PICTURE, "image/png")
}

/// Counts down and reports its progress
#[tool]
async fn countdown(
    context: CallContext,
    /// Where to start; one step each 100 ms.
    from: u32,
) -> &'static str {
    let total = Some(f64::from(from));
    for done in 0..from {
        context.progress(f64::from(done), total, Some(&format!("{} left", from - done)));
        sleep(Duration::from_millis(100)).await;
    }
    context.progress(f64::from(from), total, Some("done"));
    "lift-off"
}

pub(crate) fn demo_tools(shared: Arc<Shared>) -> Result<Toolset, RegistrationError> {
    Toolset::builder()
        .state(shared)
        .with(echo {})
        .with(add {})
        .with(wait {})
        .with(write_note {})
        .with(fail {})
        .with(panic {})
        .with(blob {})
        .with(picture {})
        .with(countdown {})
        .build()
}
