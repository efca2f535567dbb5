//! A host's answers.

use async_nats::service;
use async_nats::{Client, HeaderMap, Message, PublishError, Subject};
use bytes::Bytes;
use toolbridge_core::{Progress, ToolError};

use crate::parts::room;
use crate::wire::{self, Told};

/// A received call.
pub(crate) enum Arrived {
    /// Through the NATS service, which counts requests.
    Service(Box<service::Request>),
    /// Directly to this host.
    Directly(Box<Message>),
}

impl Arrived {
    pub(crate) fn message(&self) -> &Message {
        match self {
            Self::Service(request) => &request.message,
            Self::Directly(message) => message,
        }
    }
}

/// The receiver of the answers. The reply subject gets one message, the outcome; everything else goes to the
/// inbox.
pub(crate) struct Reply<'a> {
    pub(crate) client: &'a Client,
    /// This host, as written in a header.
    pub(crate) speaker: &'a str,
    pub(crate) arrived: &'a Arrived,
    pub(crate) inbox: Option<Subject>,
}

impl Reply<'_> {
    /// Sends the result.
    pub(crate) async fn result(&self, headers: HeaderMap, payload: Bytes) {
        log_failure(match self.arrived {
            Arrived::Service(request) => request.respond_with_headers(Ok(payload), headers).await,
            Arrived::Directly(message) => self.to(message.reply.clone(), headers, payload).await,
        });
    }

    /// Sends an error, with its headers.
    pub(crate) async fn error(&self, headers: HeaderMap, error: &ToolError) {
        let status = wire::short(error);
        log_failure(match self.arrived {
            Arrived::Service(request) => {
                let error = service::error::Error { status, code: 500 };
                request.respond_with_headers(Err(error), headers).await
            }
            Arrived::Directly(message) => {
                let mut headers = headers;
                headers.insert(service::NATS_SERVICE_ERROR, status);
                headers.insert(service::NATS_SERVICE_ERROR_CODE, "500");
                self.to(message.reply.clone(), headers, Bytes::new()).await
            }
        });
    }

    /// Sends that the call does not run here.
    pub(crate) async fn refusal(&self, told: Told, reason: &str) {
        let mut headers = told.headers(self.speaker);
        headers.insert(service::NATS_SERVICE_ERROR, reason);
        headers.insert(service::NATS_SERVICE_ERROR_CODE, "503");
        log_failure(self.to(self.arrived.message().reply.clone(), headers, Bytes::new()).await);
    }

    /// Sends a message other than the outcome.
    pub(crate) async fn aside(&self, told: Told, payload: Bytes) {
        log_failure(self.to(self.inbox.clone(), told.headers(self.speaker), payload).await);
    }

    pub(crate) async fn progress(&self, mut report: Progress) {
        let mut text = serde_json::to_vec(&report).unwrap_or_default();
        if text.len() > room(self.client.max_payload()) {
            // Drop the message and keep the numbers, which matter more.
            report.message = None;
            text = serde_json::to_vec(&report).unwrap_or_default();
        }
        self.aside(Told::Progress, text.into()).await;
    }

    async fn to(
        &self,
        subject: Option<Subject>,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), PublishError> {
        match subject {
            Some(subject) => self.client.publish_with_headers(subject, headers, payload).await,
            // The caller has no inbox.
            None => Ok(()),
        }
    }
}

/// Logs a failure. A caller without an answer asks where its call is.
fn log_failure(sent: Result<(), PublishError>) {
    if let Err(error) = sent {
        tracing::warn!(%error, "an answer could not be sent");
    }
}
