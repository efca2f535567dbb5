//! A server behind a URL: the HTTP client of rmcp's transport.
//!
//! rmcp has one, but that puts URLs and answers into its errors, and its types lose parts of payloads.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http_body_util::{BodyExt as _, Collected, Limited};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Body, Client, RequestBuilder, Response, StatusCode, Url};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcError, JsonRpcMessage, ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use rustls::crypto::ring;
use sse_stream::{Sse, SseStream};

use crate::client::interceptor::Interceptor;
use crate::client::target::UrlTarget;
use crate::client::{ConnectError, ServerFault};
use crate::mcp::MAX_LINE_BYTES;

/// The timeout for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The limit of redirects for one request.
const MAX_REDIRECTS: usize = 10;

/// The limit of parallel calls; further ones wait.
const MAX_CALLS: usize = 512;

/// Why rmcp's transport failed.
pub(crate) type HttpError = StreamableHttpError<ConnectError>;

/// Sends rmcp's messages.
#[derive(Clone)]
struct Http {
    client: Client,
    interceptor: Arc<Interceptor>,
}

/// A transport to a URL. Does not connect yet.
pub(crate) fn connect(
    target: &UrlTarget,
    interceptor: Arc<Interceptor>,
) -> Result<impl Transport<RoleClient, Error = HttpError> + 'static, ServerFault> {
    if !Url::parse(&target.url).is_ok_and(|url| ["http", "https"].contains(&url.scheme())) {
        let reason = format!("`{}` does not begin with `http` or `https`, or is not a URL", target.shown);
        return Err(ServerFault::Url(reason));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &target.headers {
        let refused = || ServerFault::Url(format!("the header `{name}` cannot be sent"));
        let name = HeaderName::try_from(name).map_err(|_| refused())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| refused())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON_MIME_TYPE));
    // If the program has set a provider, that one is used.
    _ = ring::default_provider().install_default();
    let client = Client::builder().default_headers(headers).connect_timeout(CONNECT_TIMEOUT);
    let client = client
        .redirect(redirects())
        .build()
        .map_err(|error| ServerFault::Url(crate::tool::with_causes(&error)))?;
    let config =
        StreamableHttpClientTransportConfig::with_uri(target.url.as_str()).max_concurrent_requests(MAX_CALLS);
    Ok(StreamableHttpClientTransport::with_client(Http { client, interceptor }, config))
}

/// Only redirects on the same host, since the headers are sent along, and only those that keep the method.
fn redirects() -> Policy {
    Policy::custom(|attempt| {
        let is_same = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
        let keeps_method =
            [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT].contains(&attempt.status());
        let is_allowed = is_same && keeps_method && attempt.previous().len() <= MAX_REDIRECTS;
        if is_allowed { attempt.follow() } else { attempt.stop() }
    })
}

impl From<reqwest::Error> for ConnectError {
    fn from(error: reqwest::Error) -> Self {
        let host = error.url().and_then(Url::host_str).map(str::to_owned);
        let text = crate::tool::with_causes(&error.without_url());
        // The host may be the value of a variable.
        Self::Failed(host.map_or_else(|| text.clone(), |host| text.replace(&host, "the host")))
    }
}

impl From<ConnectError> for HttpError {
    fn from(error: ConnectError) -> Self {
        Self::Client(error)
    }
}

/// Sends a request.
async fn send(
    mut request: RequestBuilder,
    session: Option<Arc<str>>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> Result<Response, ConnectError> {
    if let Some(session) = session {
        request = request.header(HEADER_SESSION_ID, &*session);
    }
    Ok(request.headers(headers.into_iter().collect()).send().await?)
}

fn kind(response: &Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.map_or_else(|| "no content type".into(), |kind| kind.chars().take(100).collect())
}

fn body(response: Response) -> Limited<Body> {
    Limited::new(response.into(), MAX_LINE_BYTES)
}

async fn text(response: Response) -> Result<Bytes, ConnectError> {
    let text = body(response).collect().await;
    text.map(Collected::to_bytes).map_err(|error| ConnectError::Failed(crate::tool::with_causes(&*error)))
}

impl Http {
    /// The events of a response, without those that are not for rmcp.
    fn events(&self, response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let interceptor = Arc::clone(&self.interceptor);
        let events = SseStream::new(body(response).map_err(io::Error::other)).map(move |event| {
            let mut event = event?;
            event.data = event.data.and_then(|data| match interceptor.read(data.as_bytes()) {
                Ok(message) => serde_json::to_string(&message?).ok(),
                Err(_) => Some(data),
            });
            Ok(event)
        });
        events.boxed()
    }
}

impl StreamableHttpClient for Http {
    type Error = ConnectError;

    async fn post_message(
        &self,
        url: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let has_session = session.is_some();
        let response = send(self.client.post(&*url).json(&message), session, headers).await?;
        let (status, kind) = (response.status(), kind(&response));
        let is_json = kind.starts_with(JSON_MIME_TYPE);
        let session = response.headers().get(HEADER_SESSION_ID);
        let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(HttpError::SessionExpired);
        }
        let (JsonRpcMessage::Request(request), false) =
            (message, matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
        else {
            // A notification has no answer.
            let accepted = status.is_success().then_some(StreamableHttpPostResponse::Accepted);
            return accepted.ok_or(ConnectError::Status(status.as_u16()).into());
        };
        if !status.is_success() {
            let body = if is_json { text(response).await? } else { Bytes::new() };
            let refused = serde_json::from_slice::<JsonRpcError>(&body).ok();
            let error = match (refused, &request.request) {
                (Some(refused), _) => refused.error,
                // Servers that only know `initialize` answer like this.
                (None, ClientRequest::DiscoverRequest(_)) if status.is_client_error() => {
                    ErrorData::invalid_request(format!("HTTP status {}", status.as_u16()), None)
                }
                (None, _) => return Err(ConnectError::Status(status.as_u16()).into()),
            };
            let error = ServerJsonRpcMessage::error(error, Some(request.id));
            return Ok(StreamableHttpPostResponse::Json(error, session));
        }
        if kind.starts_with(EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response), session));
        }
        if !is_json {
            return Err(ConnectError::NotMcp(kind).into());
        }
        match self.interceptor.read(&text(response).await?) {
            Ok(Some(message)) => Ok(StreamableHttpPostResponse::Json(message, session)),
            _ => Err(ConnectError::NotMcp("JSON that is not MCP".into()).into()),
        }
    }

    async fn delete_session(
        &self,
        url: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        // Servers may refuse to delete sessions.
        _ = send(self.client.delete(&*url), Some(session), headers).await?;
        Ok(())
    }

    async fn get_stream(
        &self,
        url: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let mut request = self.client.get(&*url);
        if let Some(last) = last {
            request = request.header(HEADER_LAST_EVENT_ID, last);
        }
        let response = send(request, session, headers).await?;
        match (response.status(), kind(&response)) {
            (StatusCode::METHOD_NOT_ALLOWED, _) => Err(HttpError::ServerDoesNotSupportSse),
            (status, _) if !status.is_success() => Err(ConnectError::Status(status.as_u16()).into()),
            (_, kind) if kind.starts_with(EVENT_STREAM_MIME_TYPE) => Ok(self.events(response)),
            (_, kind) => Err(ConnectError::NotMcp(kind).into()),
        }
    }
}
