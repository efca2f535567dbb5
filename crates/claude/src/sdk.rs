//! Tools over the control channel: the same MCP server, on the CLI's own stdin and stdout.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use toolbridge_core::RawJson;
use toolbridge_core::json::members;
use toolbridge_mcp::{Incoming, LineTooLong, Outgoing};

use crate::control::Control;

/// How an answer of the front begins; it says whose answer it is.
const ANSWER: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

/// Where the CLI's messages to the server go in.
#[derive(Debug)]
pub(crate) struct SdkServer {
    name: Arc<str>,
    messages: mpsc::UnboundedSender<Bytes>,
    waiting: Waiting,
}

/// Which of the CLI's requests waits for the answer to which MCP request.
#[derive(Debug, Clone, Default)]
struct Waiting(Arc<Mutex<HashMap<String, String>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the MCP server reads.
#[derive(Debug)]
pub(crate) struct SdkIncoming(mpsc::UnboundedReceiver<Bytes>);

/// Where the MCP server writes.
#[derive(Debug, Clone)]
pub(crate) struct SdkOutgoing {
    name: Arc<str>,
    control: Arc<Control>,
    waiting: Waiting,
}

/// The three ends of a server called `name`.
pub(crate) fn sdk_server(name: &str, control: Arc<Control>) -> (SdkServer, SdkIncoming, SdkOutgoing) {
    let name: Arc<str> = name.into();
    let waiting = Waiting::default();
    // Without a bound, because the server always reads, and refuses what is too much.
    let (messages, incoming) = mpsc::unbounded_channel();
    let outgoing = SdkOutgoing { name: Arc::clone(&name), control, waiting: waiting.clone() };
    (SdkServer { name, messages, waiting }, SdkIncoming(incoming), outgoing)
}

impl SdkServer {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Passes a message on. `true` means that there will be an answer; otherwise the CLI wants to hear
    /// only that it has arrived.
    pub(crate) fn take(&self, request_id: &str, message: &RawJson) -> bool {
        let id = members(message.as_str(), &["id", "method"]).ok().flatten().and_then(|[id, method]| {
            // An answer to something the server asked has an id too, but no method.
            method.and(id).map(|id| id.get().to_owned())
        });
        let has_answer = id.is_some();
        if let Some(id) = id {
            self.waiting.lock().insert(id, request_id.into());
        }
        _ = self.messages.send(message.to_bytes());
        has_answer
    }

    /// Cancels the MCP request that the CLI no longer waits for.
    pub(crate) fn withdraw(&self, request_id: &str) {
        let mut waiting = self.waiting.lock();
        let Some(id) = waiting.iter().find(|(_, request)| *request == request_id).map(|(id, _)| id.clone())
        else {
            return;
        };
        waiting.remove(&id);
        let cancel = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        _ = self.messages.send(cancel.into());
    }
}

impl Incoming for SdkIncoming {
    async fn next(&mut self) -> io::Result<Option<Result<Bytes, LineTooLong>>> {
        Ok(self.0.recv().await.map(Ok))
    }
}

impl Outgoing for SdkOutgoing {
    async fn send(&self, head: &[u8], payload: &[u8], tail: &[u8]) -> io::Result<()> {
        let (before, after) = if let Some(id) = answered_id(head, payload, tail) {
            // Nobody waits for it any more.
            let Some(request_id) = self.waiting.lock().remove(&id) else { return Ok(()) };
            let request_id = json!(request_id);
            let frame = r#"{"type":"control_response","response":{"subtype":"success","request_id":"#;
            (format!(r#"{frame}{request_id},"response":{{"mcp_response":"#), "}}}")
        } else {
            let (request_id, name) = (json!(self.control.new_id()), json!(&*self.name));
            let frame = format!(r#"{{"type":"control_request","request_id":{request_id},"request":"#);
            (format!(r#"{frame}{{"subtype":"mcp_message","server_name":{name},"message":"#), "}}")
        };
        let head = [before.as_bytes(), head].concat();
        let tail = [tail, after.as_bytes()].concat();
        self.control.write(&head, payload, &tail).await
    }

    async fn finish(&self) -> io::Result<()> {
        self.control.finish().await
    }
}

/// The id of the request that a message answers; `None` for a notification.
fn answered_id(head: &[u8], payload: &[u8], tail: &[u8]) -> Option<String> {
    if let Some(rest) = head.strip_prefix(ANSWER) {
        let id = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>().next()?.ok()?;
        return Some(id.get().to_owned());
    }
    // Everything else is small.
    let whole = [head, payload, tail].concat();
    let [id, method] = members(std::str::from_utf8(&whole).ok()?, &["id", "method"]).ok()??;
    if method.is_some() { None } else { id.map(|id| id.get().to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whose_it_is() {
        let rows = [
            (r#"{"jsonrpc":"2.0","id":7,"result":"#, r#"{"id":9}"#, "}", Some("7")),
            (r#"{"jsonrpc":"2.0","id":"a b","error":{}}"#, "", "", Some(r#""a b""#)),
            ("", r#"{"id":3,"jsonrpc":"2.0","result":{}}"#, "", Some("3")),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#, "", "", None),
            ("", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "", None),
        ];
        for (head, payload, tail, want) in rows {
            let found = answered_id(head.as_bytes(), payload.as_bytes(), tail.as_bytes());
            assert_eq!(found.as_deref(), want, "{head}{payload}");
        }
    }
}
