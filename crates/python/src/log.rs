//! Forwards events from Rust to Python's `logging`.
//!
//! A thread that logs must not wait for the interpreter, as it does with `pyo3-log` (0.13): the thread that holds it
//! may wait for a lock that the logging thread holds. So records are queued, and one task of the runtime delivers
//! them.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

/// The Python logger, and the crates whose events it receives.
const LOGGER: &str = "toolbridge";

/// The maximum number of queued records. Further ones are dropped, so that no call waits for the log.
const QUEUE: usize = 1024;

/// Python's current log level as a number: events below it are not even formatted.
static THRESHOLD: AtomicU8 = AtomicU8::new(30);

thread_local! {
    /// The queue of this thread's process. Thread-local, because a fork could copy a global one while it is
    /// locked.
    static SENDER: RefCell<Option<Sender>> = const { RefCell::new(None) };
}

/// A record for Python's `logging`.
pub(crate) struct Record {
    pub(crate) logger: &'static str,
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) file: &'static str,
    pub(crate) line: u32,
}

/// The sending side of the queue.
#[derive(Clone)]
pub(crate) struct Sender {
    queue: mpsc::Sender<Record>,
    pid: u32,
}

impl Sender {
    /// Makes this thread send its records to this queue.
    pub(crate) fn install(&self) {
        SENDER.with(|sender| sender.replace(Some(self.clone())));
    }
}

/// A queue, and the task that delivers its records.
pub(crate) fn queue() -> (Sender, impl Future<Output = ()> + Send) {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        // No other subscriber can be set: this library has its own copy of `tracing`.
        _ = subscriber::set_global_default(Events);
    });
    let (queue, mut records) = mpsc::channel(QUEUE);
    let work = async move {
        while let Some(record) = records.recv().await {
            Python::try_attach(|py| {
                if let Err(error) = deliver(py, &record) {
                    error.write_unraisable(py, None);
                }
            });
        }
    };
    (Sender { queue, pid: std::process::id() }, work)
}

/// Queues a record for this thread's process without waiting.
pub(crate) fn send(record: Record) {
    SENDER.with(|sender| {
        // A record that is sent while the queue is being set is dropped.
        let Ok(sender) = sender.try_borrow() else { return };
        if let Some(sender) = sender.as_ref().filter(|sender| sender.pid == std::process::id()) {
            _ = sender.queue.try_send(record);
        }
    });
}

/// Reads the log level that is set in Python.
///
/// # Errors
///
/// Fails if the call to `logging` fails.
pub(crate) fn refresh_threshold(py: Python<'_>) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
    let wanted: i64 = logger.call_method0("getEffectiveLevel")?.extract()?;
    let wanted = u8::try_from(wanted.clamp(0, 255)).unwrap_or(u8::MAX);
    if THRESHOLD.swap(wanted, Ordering::Relaxed) != wanted {
        tracing::callsite::rebuild_interest_cache();
    }
    Ok(())
}

fn deliver(py: Python<'_>, record: &Record) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (record.logger,))?;
    let level = python_level(record.level);
    if logger.call_method1("isEnabledFor", (level,))?.extract()? {
        let message = record.message.as_str();
        let made = (record.logger, level, record.file, record.line, message, PyTuple::empty(py), py.None());
        logger.call_method1("handle", (logger.call_method1("makeRecord", made)?,))?;
    }
    Ok(())
}

/// Python's `logging` has no name for levels below `DEBUG`; `TRACE` becomes 5.
fn python_level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// Receives the events of this project's crates.
struct Events;

impl Events {
    fn wants(metadata: &Metadata<'_>) -> bool {
        python_level(*metadata.level()) >= THRESHOLD.load(Ordering::Relaxed)
    }
}

impl Subscriber for Events {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target().starts_with(LOGGER) && metadata.is_event() && Self::wants(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(LOGGER) && Self::wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let threshold = THRESHOLD.load(Ordering::Relaxed);
        let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
        let most = levels.into_iter().find(|level| python_level(*level) >= threshold);
        Some(most.map_or(LevelFilter::OFF, LevelFilter::from_level))
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        send(Record {
            logger: LOGGER,
            level: *metadata.level(),
            message: text.message + &text.fields,
            file: metadata.file().unwrap_or_default(),
            line: metadata.line().unwrap_or_default(),
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Formats an event: its message, followed by its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let written = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
        written.expect("strings take everything");
    }
}
