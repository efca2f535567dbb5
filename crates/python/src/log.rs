//! What happens in Rust, for Python's `logging`.
//!
//! A thread that logs must not wait for the interpreter, which may hold a lock that the thread of Python's waits
//! for. So records are queued, and one task of the runtime hands them over.

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

/// The logger of all of it, and the crates whose events it gets.
const LOGGER: &str = "toolbridge";

/// How many records wait for the interpreter at most. Further ones are left out: no call waits for the log.
const QUEUE: usize = 1024;

/// What is asked for, as a number of Python's: what is below is not even written.
static THRESHOLD: AtomicU8 = AtomicU8::new(30);

thread_local! {
    /// The queue of the process that this thread belongs to. Not a global one, which a fork could copy while
    /// it is locked.
    static SENDER: RefCell<Option<Sender>> = const { RefCell::new(None) };
}

/// Something to be logged.
pub(crate) struct Record {
    pub(crate) logger: &'static str,
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) file: &'static str,
    pub(crate) line: u32,
}

/// Where records are put.
#[derive(Clone)]
pub(crate) struct Sender {
    queue: mpsc::Sender<Record>,
    pid: u32,
}

impl Sender {
    /// From now on, what this thread has to say goes there.
    pub(crate) fn install(&self) {
        SENDER.with(|sender| sender.replace(Some(self.clone())));
    }
}

/// A queue, and the task that empties it.
pub(crate) fn queue() -> (Sender, impl Future<Output = ()> + Send) {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        // None can be set already: this library has its own copy of `tracing`.
        _ = subscriber::set_global_default(Events);
    });
    let (queue, mut records) = mpsc::channel(QUEUE);
    let work = async move {
        while let Some(record) = records.recv().await {
            Python::try_attach(|py| {
                if let Err(error) = handed_over(py, &record) {
                    error.write_unraisable(py, None);
                }
            });
        }
    };
    (Sender { queue, pid: std::process::id() }, work)
}

/// Puts a record into the queue of this thread's process; does not wait.
pub(crate) fn send(record: Record) {
    SENDER.with(|sender| {
        // Not even if a record comes while the queue is being set.
        let Ok(sender) = sender.try_borrow() else { return };
        if let Some(sender) = sender.as_ref().filter(|sender| sender.pid == std::process::id()) {
            _ = sender.queue.try_send(record);
        }
    });
}

/// Looks up which level Python wants.
///
/// # Errors
///
/// When `logging` does not answer.
pub(crate) fn refresh_threshold(py: Python<'_>) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
    let wanted: i64 = logger.call_method0("getEffectiveLevel")?.extract()?;
    let wanted = u8::try_from(wanted.clamp(0, 255)).unwrap_or(u8::MAX);
    if THRESHOLD.swap(wanted, Ordering::Relaxed) != wanted {
        tracing::callsite::rebuild_interest_cache();
    }
    Ok(())
}

fn handed_over(py: Python<'_>, record: &Record) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (record.logger,))?;
    let level = python_level(record.level);
    if logger.call_method1("isEnabledFor", (level,))?.extract()? {
        let message = record.message.as_str();
        let made = (record.logger, level, record.file, record.line, message, PyTuple::empty(py), py.None());
        logger.call_method1("handle", (logger.call_method1("makeRecord", made)?,))?;
    }
    Ok(())
}

/// `logging` has no name for what is below `DEBUG`.
fn python_level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// The events of the crates of this project.
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

/// An event in words: its message, and its fields behind it.
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
