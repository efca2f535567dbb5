//! A server behind a URL: the HTTP client for rmcp's transport.
//!
//! rmcp has one for reqwest, but that parses payloads into rmcp's types; here they stay as they were written.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::mcp::MAX_LINE_BYTES;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::ClientInitializeError;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use crate::client::ServerError;
use crate::client::exchange::{Exchange, Sifted};
use crate::client::fetch::Fetch;
use crate::client::open::{BeginError, reason};
use crate::client::target::UrlTarget;

/// The accepted content types.
const ACCEPTED: &str = "application/json, text/event-stream";

/// The limit of parallel calls; further ones wait.
const MAX_CALLS: usize = 512;

/// Why a request over HTTP failed. It contains neither URLs nor headers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("no secure connection: {0}")]
    Tls(String),
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("it answered with HTTP status {}", .0.as_u16())]
    Status(StatusCode),
    #[error("it is not an MCP server, it sent {0}")]
    NotMcp(String),
    #[error("{0}")]
    Unreadable(String),
}

type Failed = StreamableHttpError<HttpError>;

/// Sends rmcp's messages.
#[derive(Clone)]
pub(crate) struct Http {
    fetch: Fetch,
    exchange: Arc<Exchange>,
}

/// A transport to a URL. Does not connect yet.
pub(crate) fn connect(
    server: &str,
    target: &UrlTarget,
    exchange: Arc<Exchange>,
) -> Result<impl rmcp::transport::Transport<RoleClient> + 'static, ServerError> {
    let bad = |reason: String| ServerError::Url { server: server.to_owned(), reason };
    let shown = &target.shown;
    let url = Uri::try_from(&target.url).map_err(|error| bad(format!("`{shown}`: {error}")))?;
    match url.scheme_str() {
        Some("http" | "https") => {}
        Some(_) => {
            let scheme = shown.split(':').next().unwrap_or_default();
            return Err(bad(format!("`{shown}` begins with `{scheme}`, not with `http` or `https`")));
        }
        None => return Err(bad(format!("`{shown}` does not begin with `http` or `https`"))),
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &target.headers {
        let refused = || ServerError::Header { server: server.to_owned(), name: name.clone() };
        let name = HeaderName::try_from(name).map_err(|_| refused())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| refused())?;
        if [ACCEPT, CONTENT_TYPE].contains(&name) || name.as_str().starts_with("mcp-") {
            return Err(refused());
        }
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let fetch = Fetch::new(&url, headers).map_err(bad)?;
    let config = StreamableHttpClientTransportConfig::with_uri(target.url.as_str())
        .max_concurrent_requests(MAX_CALLS)
        .max_sse_event_size(MAX_LINE_BYTES);
    Ok(StreamableHttpClientTransport::with_client(Http { fetch, exchange }, config))
}

/// An error with its causes.
fn full(error: &(dyn Error + 'static)) -> String {
    crate::with_causes(error)
}

impl From<hyper_util::client::legacy::Error> for HttpError {
    fn from(error: hyper_util::client::legacy::Error) -> Self {
        let text = full(&error);
        if let Some(error) = tls_error(&error) {
            return Self::Tls(tls_reason(error).unwrap_or(text));
        }
        if error.is_connect() { Self::Connect(text) } else { Self::Lost(text) }
    }
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        Self::Lost(full(&error))
    }
}

fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    // `io::Error` does not return the wrapped error as its source.
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error
        .downcast_ref()
        .or_else(|| inner.and_then(|inner| tls_error(inner)))
        .or_else(|| error.source().and_then(tls_error))
}

/// The text of an error whose own text has the name of the host, which may be the value of a variable.
fn tls_reason(error: &rustls::Error) -> Option<String> {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
    use rustls::Error::InvalidCertificate;

    matches!(error, InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
        .then(|| "the certificate is for another name".into())
}

impl From<HttpError> for Failed {
    fn from(error: HttpError) -> Self {
        Self::Client(error)
    }
}

impl Http {
    async fn post(
        &self,
        url: &str,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let asked = Asked::of(&message);
        let (body, _) = self.exchange.write(message)?;
        let has_session = session.is_some();
        let headers = about(session, headers, true)?;
        let response = self.fetch.send(Method::POST, url, headers, body.into()).await?;
        let status = response.status();
        let kind = kind(&response);
        let session = response.headers().get(HEADER_SESSION_ID);
        let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(Failed::SessionExpired);
        }
        let is_json = kind.starts_with(JSON_MIME_TYPE);
        if !status.is_success() {
            let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            if !is_refused
                && is_json
                && let Ok(ServerJsonRpcMessage::Error(mut error)) =
                    serde_json::from_slice(&body_of(response).await?)
            {
                // A server that could not parse the request does not know its id.
                error.id = error.id.or(asked.id());
                return Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session));
            }
            if let Asked::Discover(id) = asked
                && !is_refused
                && status.is_client_error()
            {
                // Servers that only know `initialize` answer like this.
                let error = ErrorData::invalid_request(format!("HTTP status {}", status.as_u16()), None);
                return Ok(StreamableHttpPostResponse::Json(
                    ServerJsonRpcMessage::error(error, Some(id)),
                    None,
                ));
            }
            return Err(HttpError::Status(status).into());
        }
        if asked.id().is_none() {
            // A notification has no answer.
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if is_json {
            let body = body_of(response).await?;
            let unread = |error| HttpError::Unreadable(format!("its answer is not MCP: {error}"));
            return match self.exchange.read(&body).map_err(unread)? {
                Some(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
                None => Err(HttpError::Unreadable("its answer is not a response".into()).into()),
            };
        }
        if kind.starts_with(EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(self.seen(events_of(response)), session));
        }
        Err(HttpError::NotMcp(kind).into())
    }

    /// The same events, without those that are not for rmcp.
    fn seen(&self, events: Events) -> Events {
        let exchange = Arc::clone(&self.exchange);
        let see = move |event: Result<Sse, SseError>| {
            let mut event = event?;
            if let Some(data) = event.data.take() {
                let data = Bytes::from(data);
                event.data = match exchange.sift(&data) {
                    Sifted::Same => String::from_utf8(data.into()).ok(),
                    Sifted::Nothing => None,
                    Sifted::Instead(message) => serde_json::to_string(&message).ok(),
                };
            }
            Ok(event)
        };
        events.map(see).boxed()
    }
}

type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The kind of answer that a message gets.
enum Asked {
    Discover(RequestId),
    Request(RequestId),
    Nothing,
}

impl Asked {
    fn of(message: &ClientJsonRpcMessage) -> Self {
        match message {
            JsonRpcMessage::Request(request) => match request.request {
                ClientRequest::DiscoverRequest(_) => Self::Discover(request.id.clone()),
                _ => Self::Request(request.id.clone()),
            },
            _ => Self::Nothing,
        }
    }

    fn id(&self) -> Option<RequestId> {
        match self {
            Self::Discover(id) | Self::Request(id) => Some(id.clone()),
            Self::Nothing => None,
        }
    }
}

fn kind(response: &Response<Incoming>) -> String {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.map_or_else(|| "no content type".into(), |kind| kind.chars().take(100).collect())
}

/// The events of a response, each within the size limit.
fn events_of(response: Response<Incoming>) -> Events {
    // The number of bytes of the current event.
    let unread = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&unread);
    let parts = response.into_body().into_data_stream().map(move |part| {
        let part = part.map_err(|error| io::Error::other(HttpError::from(error)))?;
        if counted.fetch_add(part.len(), Ordering::Relaxed) > MAX_LINE_BYTES {
            return Err(io::Error::other(too_large()));
        }
        Ok(part)
    });
    SseStream::from_bytes_stream(parts).inspect(move |_| unread.store(0, Ordering::Relaxed)).boxed()
}

fn too_large() -> HttpError {
    HttpError::Unreadable(format!("its answer is over the limit of {MAX_LINE_BYTES} bytes"))
}

async fn body_of(response: Response<Incoming>) -> Result<Bytes, HttpError> {
    let mut body = BytesMut::new();
    let mut parts = response.into_body().into_data_stream();
    while let Some(part) = parts.next().await {
        body.extend_from_slice(&part?);
        if body.len() > MAX_LINE_BYTES {
            return Err(too_large());
        }
    }
    Ok(body.freeze())
}

impl StreamableHttpClient for Http {
    type Error = HttpError;

    async fn post_message(
        &self,
        url: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.post(&url, message, session, headers).await
    }

    async fn delete_session(
        &self,
        url: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failed> {
        let headers = about(Some(session), headers, false)?;
        let response = self.fetch.send(Method::DELETE, &url, headers, Bytes::new()).await?;
        match response.status() {
            // Servers may refuse to delete sessions.
            status if status.is_success() || status == StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            status => Err(HttpError::Status(status).into()),
        }
    }

    async fn get_stream(
        &self,
        url: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failed> {
        let mut headers = about(session, headers, false)?;
        if let Some(last) = last {
            headers.insert(HEADER_LAST_EVENT_ID, header_value(&last)?);
        }
        let response = self.fetch.send(Method::GET, &url, headers, Bytes::new()).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => return Err(Failed::ServerDoesNotSupportSse),
            status if !status.is_success() => return Err(HttpError::Status(status).into()),
            _ => {}
        }
        let kind = kind(&response);
        if !kind.starts_with(EVENT_STREAM_MIME_TYPE) {
            return Err(HttpError::NotMcp(kind).into());
        }
        Ok(self.seen(events_of(response)))
    }
}

/// The headers of a request.
fn about(
    session: Option<Arc<str>>,
    headers: HashMap<HeaderName, HeaderValue>,
    has_body: bool,
) -> Result<HeaderMap, HttpError> {
    let mut all: HeaderMap = headers.into_iter().collect();
    all.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
    if has_body {
        all.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_MIME_TYPE));
    }
    if let Some(session) = session {
        all.insert(HEADER_SESSION_ID, header_value(&session)?);
    }
    Ok(all)
}

/// A header value that a server gave us to send back.
fn header_value(value: &str) -> Result<HeaderValue, HttpError> {
    HeaderValue::try_from(value)
        .map_err(|_| HttpError::Unreadable("it gave an id that cannot be sent back".into()))
}

/// The text of an HTTP error; `None` for other errors.
pub(crate) fn explain(error: &(dyn Error + Send + Sync + 'static)) -> Option<String> {
    Some(match error.downcast_ref::<Failed>()? {
        Failed::Client(error) => error.to_string(),
        error => error.to_string(),
    })
}

/// Converts a failed start over HTTP to a `ServerError`.
pub(crate) fn server_error(
    server: &str,
    target: &UrlTarget,
    error: BeginError,
    limit: Duration,
) -> ServerError {
    let (server, url) = (server.to_owned(), target.shown.clone());
    let error = match error {
        BeginError::Silent => return ServerError::Silent { server, limit, said: None },
        BeginError::List(error) => return ServerError::Protocol { server, reason: error.to_string() },
        BeginError::Init(error) => error,
    };
    match http_error(&error) {
        Some(HttpError::Connect(reason) | HttpError::Lost(reason)) => {
            ServerError::Connect { server, url, reason: reason.clone() }
        }
        Some(HttpError::Tls(reason)) => ServerError::Tls { server, url, reason: reason.clone() },
        Some(HttpError::Status(status)) => ServerError::Status { server, url, status: status.as_u16() },
        Some(HttpError::NotMcp(kind)) => ServerError::NotMcp { server, url, content_type: kind.clone() },
        Some(HttpError::Unreadable(_)) | None => {
            ServerError::Protocol { server, reason: reason(&error, &Exchange::default()) }
        }
    }
}

fn http_error(error: &ClientInitializeError) -> Option<&HttpError> {
    match error {
        ClientInitializeError::TransportError { error, .. } => match error.error.downcast_ref::<Failed>()? {
            Failed::Client(error) => Some(error),
            _ => None,
        },
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => http_error(fallback),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_for_another_name_is_an_error_without_the_name() {
        let expected = rustls::pki_types::ServerName::try_from("secret.example").unwrap();
        let presented = vec!["other.example".to_owned()];
        let wrong = rustls::CertificateError::NotValidForNameContext { expected, presented };
        let wrong = io::Error::other(rustls::Error::InvalidCertificate(wrong));
        let found = tls_error(&wrong).unwrap();
        assert!(found.to_string().contains("secret.example"), "{found}");
        assert_eq!(tls_reason(found).unwrap(), "the certificate is for another name");
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        assert_eq!(tls_reason(&expired), None);
    }
}
