//! Reads what a server sends before rmcp gets it, and knows which requests the server can have read.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use rmcp::model::{
    CustomResult, JsonRpcMessage, JsonRpcResponse, ProgressToken, RequestId, ServerJsonRpcMessage,
    ServerNotification, ServerResult,
};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::tool::lock::lock;
use crate::{CallContext, RawJson};

/// Reads the messages of one server.
#[derive(Debug, Default)]
pub(crate) struct Interceptor {
    /// Notified when the server reports that its tools have changed.
    pub(crate) tools_changed: Notify,
    /// The pending calls whose progress is wanted.
    pub(crate) reports: Mutex<HashMap<ProgressToken, CallContext>>,
    /// The pending requests whose lines have been written to the server's process.
    pub(crate) written: Mutex<HashSet<RequestId>>,
    /// The bytes of messages that the server's process has not read yet.
    pub(crate) unread: AtomicUsize,
    /// Whether rmcp needs the lists of tools: over HTTP, they say which arguments are sent as headers.
    rmcp_reads_lists: bool,
}

impl Interceptor {
    pub(crate) fn over_http() -> Self {
        Self { rmcp_reads_lists: true, ..Self::default() }
    }

    /// The message for rmcp, if it is for rmcp. Results of calls and lists of tools are in it as the string of their text:
    /// rmcp's types sort the members of schemas, and lose digits and what they do not know. Progress goes straight to its
    /// call: rmcp would handle each report in a task of its own, in any order.
    pub(crate) fn read(&self, text: &[u8]) -> Result<Option<ServerJsonRpcMessage>, serde_json::Error> {
        if let Ok(JsonRpcResponse::<&RawValue> { id, result, .. }) = serde_json::from_slice(text)
            && let Ok(members) = serde_json::from_str::<HashMap<String, &RawValue>>(result.get())
            && (members.contains_key("content") || members.contains_key("tools") && !self.rmcp_reads_lists)
        {
            let text = CustomResult::new(result.get().into());
            return Ok(Some(ServerJsonRpcMessage::response(text.into(), id)));
        }
        let message = serde_json::from_slice(text)?;
        if let JsonRpcMessage::Notification(notification) = &message {
            match &notification.notification {
                ServerNotification::ProgressNotification(report) => {
                    let report = &report.params;
                    if let Some(context) = lock(&self.reports).get(&report.progress_token) {
                        context.progress(report.progress, report.total, report.message.as_deref());
                    }
                    return Ok(None);
                }
                ServerNotification::ToolListChangedNotification(_) => self.tools_changed.notify_one(),
                _ => {}
            }
        }
        Ok(Some(message))
    }
}

/// The text of a result.
pub(crate) fn text_of(result: ServerResult) -> Result<RawJson, serde_json::Error> {
    match result {
        ServerResult::CustomResult(CustomResult(Value::String(text))) => RawJson::parse(text),
        result => RawJson::of(&result),
    }
}
