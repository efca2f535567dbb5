//! Where trace events go.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

use tracing::Span;

use super::{Event, Process, SPAN_TARGET, TraceError, TraceFile, What};

/// Writes events to a file, if there is one, and opens spans. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Tracer {
    pub(super) process: Process,
    file: Option<Arc<TraceFile>>,
    /// The parent span of calls, if it is not that of the task that takes them.
    pub(super) around: Arc<RwLock<Option<Span>>>,
}

impl Tracer {
    /// Only opens spans, without a file.
    #[must_use]
    pub fn without_file(process: Process) -> Self {
        Self { process, file: None, around: Arc::default() }
    }

    /// Writes to the file at `path` too, if one is given.
    ///
    /// # Errors
    ///
    /// When the file cannot be used.
    pub fn open(process: Process, path: Option<&Path>) -> Result<Self, TraceError> {
        let file = path.map(TraceFile::open).transpose()?;
        Ok(Self { process, file: file.map(Arc::new), around: Arc::default() })
    }

    /// Makes the spans of calls children of `span` from now on; with `None`, of the span of the task that takes
    /// the call. `span` does not end before it is replaced.
    pub fn surround(&self, span: Option<Span>) {
        let before = {
            let mut around = self.around.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *around, span)
        };
        // Dropping a span may run code of a subscriber.
        drop(before);
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref().map(TraceFile::path)
    }

    /// The current time if tracing is on; otherwise this costs almost nothing.
    #[must_use]
    pub fn clock(&self) -> Option<Instant> {
        let is_on = self.file.is_some() || tracing::span_enabled!(target: SPAN_TARGET, tracing::Level::INFO);
        is_on.then(Instant::now)
    }

    /// Writes a line to the file.
    pub fn note(&self, what: impl FnOnce() -> What) {
        if let Some(file) = &self.file {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let ts_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
            file.write(&Event { what: what(), ts_ns, process: self.process, pid: std::process::id() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_only_when_tracing_is_on() {
        assert!(Tracer::without_file(Process::Bridge).clock().is_none());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.jsonl");
        assert!(Tracer::open(Process::Bridge, Some(&path)).unwrap().clock().is_some());
    }
}
