//! Streams that tell of changes of the list of tools.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use toolbridge_core::{CancellationToken, Changes};

use crate::body::{Response, STILL_HERE, event, events};
use crate::session::Session;

/// How often a stream on which nothing happens says that it is there.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A stream of events about the list of tools.
pub(crate) struct ChangeStream {
    /// What is said at once.
    pub(crate) first: Option<Bytes>,
    pub(crate) changes: Changes,
    /// What is said of each change; nothing where the client did not ask for it.
    pub(crate) news: Option<Bytes>,
    /// Ends the stream.
    pub(crate) ended: CancellationToken,
    /// Ends every stream.
    pub(crate) closing: CancellationToken,
    /// The session whose stream it is.
    pub(crate) session: Option<Arc<Session>>,
}

impl ChangeStream {
    pub(crate) fn response(self) -> Response {
        events(stream::unfold(self, |mut stream| async move {
            let event = stream.next().await?;
            Some((event, stream))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(event(&first));
        }
        tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            () = self.ended.cancelled() => None,
            () = self.changes.next(), if self.news.is_some() => self.news.as_deref().map(event),
            () = tokio::time::sleep(KEEP_ALIVE) => Some(STILL_HERE),
        }
    }
}

impl Drop for ChangeStream {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.close_stream(&self.ended);
        }
    }
}
