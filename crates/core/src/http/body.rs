//! Bodies of requests, which are read within limits, and of responses.

use std::convert::Infallible;
use std::fmt::Display;
use std::time::Duration;

use crate::mcp::MAX_LINE_BYTES;
use crate::{Budget, Share};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::StatusCode;
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout, timeout_at};

use crate::http::refusal::Refusal;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The response to a request.
pub type Response = hyper::Response<Body>;

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENTS: &str = "text/event-stream";

/// How often a comment is sent on an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Keeps a stream open: a comment.
pub(crate) const STILL_HERE: Bytes = Bytes::from_static(b":\n\n");

/// Reads a message: of limited size, within the time limit, and only while the budget has room.
pub(crate) async fn read<B>(body: B, limit: Duration, budget: &Budget) -> Result<Bytes, Refusal>
where
    B: hyper::body::Body<Error: Display>,
{
    let too_large = || {
        let text = format!("a message is over the limit of {MAX_LINE_BYTES} bytes");
        Refusal::because(StatusCode::PAYLOAD_TOO_LARGE, text).and_close()
    };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > MAX_LINE_BYTES {
        return Err(too_large());
    }
    let mut body = std::pin::pin!(body);
    let whole =
        body.size_hint().upper().and_then(|size| usize::try_from(size).ok()).unwrap_or(MAX_LINE_BYTES);
    let (mut share, mut deadline) = (None, Instant::now() + limit);
    let mut message = BytesMut::with_capacity(announced.min(Budget::SMALL_BYTES));
    loop {
        let late = |_| {
            let text = format!("the request's body did not arrive within {limit:?}");
            Refusal::because(StatusCode::REQUEST_TIMEOUT, text).and_close()
        };
        let data = match timeout_at(deadline, body.frame()).await.map_err(late)? {
            None => break,
            Some(Ok(frame)) => frame.into_data(),
            Some(Err(error)) => {
                let text = format!("the request's body cannot be read: {error}");
                return Err(Refusal::because(StatusCode::BAD_REQUEST, text).and_close());
            }
        };
        let Ok(data) = data else { continue };
        let size = message.len() + data.remaining();
        if size > MAX_LINE_BYTES {
            return Err(too_large());
        }
        // A message that has only been announced takes nothing from others.
        if share.is_none() && size > Budget::SMALL_BYTES {
            let began = Instant::now();
            let waiting = timeout(limit, budget.wait(whole.min(MAX_LINE_BYTES)));
            let busy =
                |_| Refusal::busy("too many large messages are under way; try again later").and_close();
            share = Some(waiting.await.map_err(busy)?);
            // Waiting for others does not count against the client.
            deadline += began.elapsed();
        }
        message.put(data);
    }
    let share: Share = share.unwrap_or_default();
    Ok(share.shrunk_to(message.len()).hold(message.freeze()))
}

/// A response with one message.
pub(crate) fn json(status: StatusCode, message: impl Into<Bytes>) -> Response {
    full(status, JSON, message)
}

pub(crate) fn full(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response {
    let mut response = hyper::Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = hyper::Response::new(Full::new(Bytes::new()).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// A response with a stream of events, and comments while there are none.
pub(crate) fn events(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let frames = stream::unfold(Box::pin(events), |mut events| async {
        let event = match tokio::time::timeout(KEEP_ALIVE, events.next()).await {
            Ok(event) => event?,
            Err(_) => STILL_HERE,
        };
        Some((Ok(Frame::data(event)), events))
    });
    let mut response = hyper::Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Otherwise nginx would buffer events.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// One message as an event; it has no line breaks.
pub(crate) fn event(message: &[u8]) -> Bytes {
    [b"data: ", message, b"\n\n"].concat().into()
}
