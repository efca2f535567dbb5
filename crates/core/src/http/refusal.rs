//! Refused requests: a status, and a JSON-RPC error that says what was expected.

use std::borrow::Cow;

use hyper::StatusCode;
use hyper::header::{ALLOW, CONNECTION, HeaderName, HeaderValue, RETRY_AFTER};
use rmcp::ErrorData;
use rmcp::model::ErrorCode;

use crate::http::body::{Response, json};
use crate::mcp::rpc::{RpcId, error_line, invalid_request};

/// An error of the server itself, from the range that JSON-RPC reserves for this.
const SERVER_ERROR: ErrorCode = ErrorCode(-32000);

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    id: Option<Box<RpcId>>,
    error: Box<ErrorData>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, error: ErrorData) -> Self {
        Self { status, id: None, error: Box::new(error), headers: Vec::new() }
    }

    /// An error of the client.
    pub(crate) fn because(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(status, invalid_request(message))
    }

    /// An error of the server, or a state that the client cannot know.
    pub(crate) fn server(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(status, ErrorData::new(SERVER_ERROR, message, None))
    }

    /// The server is overloaded; the client may retry.
    pub(crate) fn busy(message: impl Into<Cow<'static, str>>) -> Self {
        Self::server(StatusCode::SERVICE_UNAVAILABLE, message)
            .header(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// The HTTP method is not supported.
    pub(crate) fn method(allowed: &'static str) -> Self {
        Self::because(StatusCode::METHOD_NOT_ALLOWED, format!("this address accepts only {allowed}"))
            .header(ALLOW, HeaderValue::from_static(allowed))
    }

    /// Closes the connection, because the rest of the request is not read.
    pub(crate) fn and_close(self) -> Self {
        self.header(CONNECTION, HeaderValue::from_static("close"))
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sets the id of the refused request.
    pub(crate) fn of(mut self, id: impl Into<Option<RpcId>>) -> Self {
        self.id = id.into().map(Box::new);
        self
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        tracing::debug!(
            status = refusal.status.as_u16(),
            message = &*refusal.error.message,
            "refused a request"
        );
        let mut response = json(refusal.status, error_line(refusal.id.as_deref(), &refusal.error));
        response.headers_mut().extend(refusal.headers);
        response
    }
}
