//! Data goes to stdout, messages to stderr.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use toolbridge::tool::{Hint, hint_of, show_hint, with_causes};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LOG_VARIABLE;
use crate::question::IS_OPEN;

/// A runtime on the current thread.
pub(crate) fn small_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Waits for SIGINT, SIGTERM or SIGHUP and returns the exit code that shells use for it. Must be called inside a
/// runtime.
pub(crate) fn ending_signal() -> io::Result<impl Future<Output = ExitCode>> {
    let signalled = toolbridge::stdio::ending_signal()?;
    Ok(async { signalled.await.into() })
}

/// Waits for the end of stdin in a thread of our own, because tokio's stdin panics if it cannot start a
/// thread.
pub(crate) fn end_of_stdin() -> io::Result<impl Future<Output = ()>> {
    let (sender, receiver) = oneshot::channel();
    let read = move || {
        _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        _ = sender.send(());
    };
    thread::Builder::new().name("stdin".into()).spawn(read)?;
    Ok(async { _ = receiver.await })
}

/// Prints data. A closed pipe is not an error.
pub(crate) fn print(data: &[u8]) -> Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(data).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints a message to stderr.
pub(crate) fn say(text: &str) {
    // There is no way to report a failure to write to stderr.
    _ = writeln!(io::stderr(), "{text}");
}

/// An error with a hint.
pub(crate) struct WithHint {
    pub(crate) error: String,
    pub(crate) hint: &'static str,
}

impl fmt::Display for WithHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl Hint for WithHint {
    fn hint(&self) -> Option<&'static str> {
        Some(self.hint)
    }
}

show_hint!(WithHint);

/// Prints an error and its hint.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    say(&format!("error: {}", with_causes(error.as_ref())));
    if let Some(hint) = hint_of(error.as_ref()) {
        say(&format!("hint: {hint}"));
    }
    ExitCode::FAILURE
}

/// A spinner that is shown on a terminal while waiting.
///
/// Not indicatif: it draws from its own thread, so it could draw over an unfinished line of text.
pub(crate) struct Spinner {
    is_wanted: bool,
    is_shown: bool,
    step: usize,
    ticks: tokio::time::Interval,
}

impl Spinner {
    const STEPS: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

    /// Must be called inside a runtime.
    pub(crate) fn new(is_wanted: bool) -> Self {
        let ticks = tokio::time::interval(Duration::from_millis(80));
        Self { is_wanted, is_shown: false, step: 0, ticks }
    }

    /// Waits for the next tick and draws it; never returns when no spinner is wanted.
    pub(crate) async fn turn(&mut self) {
        if !self.is_wanted {
            return std::future::pending().await;
        }
        self.ticks.tick().await;
        if IS_OPEN.load(Ordering::SeqCst) {
            return;
        }
        self.step = (self.step + 1) % Self::STEPS.len();
        _ = write!(io::stderr(), "\r{} ", Self::STEPS[self.step]);
        self.is_shown = true;
    }

    /// Erases the spinner before something is printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The level set in the environment. An invalid one is only a warning: it must not stop a bridge.
pub(crate) fn level_from_environment() -> Option<LevelFilter> {
    let text = std::env::var(LOG_VARIABLE).ok().filter(|text| !text.is_empty())?;
    let level = text.parse().ok();
    if level.is_none() {
        say(&format!(
            "warning: {LOG_VARIABLE} is `{text}`; it can be off, error, warn, info, debug or trace"
        ));
    }
    level
}

/// Guards that must live as long as the program.
pub(crate) struct Listeners {
    #[cfg(feature = "otel")]
    _export: Option<crate::otel::Export>,
}

/// Sets up the subscribers for events and spans: stderr, and a collector if one is configured.
pub(crate) fn log_to_stderr(level: LevelFilter) -> Listeners {
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // Only our own crates: what others log may contain URLs with passwords.
        .with_filter(Targets::new().with_target("toolbridge", level));
    let registry = tracing_subscriber::registry().with(stderr);
    #[cfg(not(feature = "otel"))]
    {
        registry.init();
        Listeners {}
    }
    #[cfg(feature = "otel")]
    {
        let (tracer, export) = crate::otel::start().unzip();
        let ours = Targets::new().with_target("toolbridge", LevelFilter::INFO);
        let spans = tracer.map(|tracer| tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours));
        registry.with(spans).init();
        Listeners { _export: export }
    }
}
