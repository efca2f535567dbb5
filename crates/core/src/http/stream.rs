//! Streams that notify of changes of the list of tools.

use std::sync::Arc;

use crate::{CancellationToken, Changes};
use bytes::Bytes;
use futures_util::stream;

use crate::http::body::{Response, event, events};
use crate::http::session::HttpSession;

/// A stream of events about the list of tools.
pub(crate) struct ChangeStream {
    /// Sent immediately.
    pub(crate) first: Option<Bytes>,
    pub(crate) changes: Changes,
    /// Sent for each change; `None` if the client did not ask for it.
    pub(crate) notification: Option<Bytes>,
    /// Ends this stream.
    pub(crate) ended: CancellationToken,
    /// Ends all streams.
    pub(crate) closing: CancellationToken,
    /// The session that the stream belongs to, if any.
    pub(crate) session: Option<Arc<HttpSession>>,
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
            () = self.changes.next(), if self.notification.is_some() => self.notification.as_deref().map(event),
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
