//! Tools over the control channel: the same MCP server, on the CLI's stdin and stdout.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use toolbridge_core::mcp::{Incoming, LineTooLong, Outgoing};
use toolbridge_core::tool::RawJson;

use crate::protocol::control::Control;

/// The server's ends of the control channel: it gets the CLI's messages, and sends the server's.
#[derive(Debug, Clone)]
pub(crate) struct SdkServer(Arc<Shared>);

/// The input of the MCP server.
#[derive(Debug)]
pub(crate) struct SdkIncoming(mpsc::UnboundedReceiver<Bytes>);

#[derive(Debug)]
struct Shared {
    name: String,
    /// Unbounded, because the server always reads and refuses excess messages.
    messages: mpsc::UnboundedSender<Bytes>,
    control: Arc<Control>,
    /// Maps the ids of MCP requests to those of the CLI's requests that wait for them.
    waiting: Mutex<HashMap<String, String>>,
}

impl SdkServer {
    /// A server called `name`, and its input.
    pub(crate) fn new(name: &str, control: Arc<Control>) -> (Self, SdkIncoming) {
        let (messages, incoming) = mpsc::unbounded_channel();
        let shared = Shared { name: name.into(), messages, control, waiting: Mutex::default() };
        (Self(Arc::new(shared)), SdkIncoming(incoming))
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// Forwards a message. Returns whether there will be an answer; otherwise the CLI expects only an
    /// acknowledgement.
    pub(crate) fn take(&self, request_id: &str, message: &RawJson) -> bool {
        #[derive(Deserialize)]
        struct Request<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
            /// A response to a request of the server has an id too, but no method.
            #[serde(rename = "method")]
            _method: IgnoredAny,
        }
        let id = message.decode::<Request<'_>>().ok().map(|request| request.id.get().to_owned());
        let has_answer = id.is_some();
        self.waiting().extend(id.map(|id| (id, request_id.to_owned())));
        _ = self.0.messages.send(message.to_bytes());
        has_answer
    }

    /// Cancels the MCP request that the CLI has cancelled.
    pub(crate) fn cancel(&self, request_id: &str) {
        for (id, _) in self.waiting().extract_if(|_, request| request == request_id) {
            let cancel = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            );
            _ = self.0.messages.send(cancel.into());
        }
    }
}

impl Incoming for SdkIncoming {
    async fn next(&mut self) -> io::Result<Option<Result<Bytes, LineTooLong>>> {
        Ok(self.0.recv().await.map(Ok))
    }
}

impl Outgoing for SdkServer {
    async fn send(&self, answers: Option<&RawJson>, [head, payload, tail]: [Bytes; 3]) -> io::Result<()> {
        let (before, after) = if let Some(id) = answers {
            // The CLI has cancelled this request.
            let Some(request_id) = self.waiting().remove(id.as_str()) else { return Ok(()) };
            let request_id = json!(request_id);
            let frame = r#"{"type":"control_response","response":{"subtype":"success","request_id":"#;
            (format!(r#"{frame}{request_id},"response":{{"mcp_response":"#), "}}}")
        } else {
            let (request_id, name) = (json!(self.0.control.new_id()), json!(self.0.name));
            let frame = format!(r#"{{"type":"control_request","request_id":{request_id},"request":"#);
            (format!(r#"{frame}{{"subtype":"mcp_message","server_name":{name},"message":"#), "}}")
        };
        let head = [before.as_bytes(), &head].concat();
        let tail = [&tail, after.as_bytes()].concat();
        self.0.control.write([head.into(), payload, tail.into()]).await
    }

    async fn finish(&self) -> io::Result<()> {
        self.0.control.finish().await
    }
}
