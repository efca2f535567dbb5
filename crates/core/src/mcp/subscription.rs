//! Notifications that the list of tools has changed.

use rmcp::ErrorData;
use rmcp::model::{SubscriptionFilter, SubscriptionsListenRequestParams};

use crate::RawJson;
use crate::mcp::rpc::{IdKey, RpcId, invalid_request, read_params};

/// The number of subscriptions that may be open at a time; each is a pending request.
const MAX_SUBSCRIPTIONS: usize = 64;

/// For clients that have called `initialize`, which need no subscription.
pub(crate) const LIST_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// The open `subscriptions/listen` requests of a client. They never get a response; the client cancels them.
#[derive(Default)]
pub(crate) struct Subscriptions(
    /// Each with whether it includes changes of the tools; nothing else changes here.
    Vec<(RpcId, bool)>,
);

impl Subscriptions {
    /// Opens the requested subscription; returns the line that acknowledges it.
    ///
    /// # Errors
    ///
    /// When it cannot be read, its id is in use, or there are too many.
    pub(crate) fn open(&mut self, id: &RpcId, params: Option<&RawJson>) -> Result<String, ErrorData> {
        let asked: SubscriptionsListenRequestParams = read_params("subscriptions/listen", params)?;
        if self.0.iter().any(|(open, _)| open.key == id.key) {
            return Err(invalid_request(format!("a subscription with id {} is open", id.raw)));
        }
        if self.0.len() >= MAX_SUBSCRIPTIONS {
            let reason = format!("{MAX_SUBSCRIPTIONS} subscriptions are open, which is the limit");
            return Err(invalid_request(reason));
        }
        let wants_tools = asked.notifications.tools_list_changed == Some(true);
        self.0.push((id.clone(), wants_tools));
        let mut accepted = SubscriptionFilter::default();
        accepted.tools_list_changed = wants_tools.then_some(true);
        let accepted = serde_json::to_string(&accepted).expect("flags can always be written");
        Ok(notification(
            "notifications/subscriptions/acknowledged",
            id,
            &format!(r#","notifications":{accepted}"#),
        ))
    }

    /// Ends a subscription; returns whether it existed.
    pub(crate) fn close(&mut self, id: &IdKey) -> bool {
        let before = self.0.len();
        self.0.retain(|(open, _)| open.key != *id);
        self.0.len() < before
    }

    /// The notification of changed tools for each subscription.
    pub(crate) fn tools_changed(&self) -> impl Iterator<Item = String> {
        let those = self.0.iter().filter(|(_, wants_tools)| *wants_tools);
        those.map(|(id, _)| notification("notifications/tools/list_changed", id, ""))
    }
}

fn notification(method: &str, id: &RpcId, members: &str) -> String {
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}"#, id.raw);
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{meta}{members}}}}}"#)
}
