//! A call on its way to a tool.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::tool::traceparent::TraceParent;
use crate::{Caller, RawJson};

/// A longer token for progress is treated as missing: it is copied, and kept as long as its call.
const MAX_TOKEN_BYTES: usize = 1024;

/// One call: the tool, its arguments, and metadata from the caller.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The tool's name, without any server prefix.
    pub name: String,
    /// The arguments: always a JSON object, not decoded yet.
    pub arguments: RawJson,
    /// The caller's metadata.
    pub meta: CallMeta,
}

impl ToolCall {
    /// A call without metadata.
    #[must_use]
    pub fn new(name: impl Into<String>, arguments: RawJson) -> Self {
        Self { name: name.into(), arguments, meta: CallMeta::default() }
    }
}

/// Metadata that a caller may send with a call.
///
/// As JSON it is `params.meta` of a request on the socket, and the part of MCP's `_meta` that is known here; there, the id
/// has another key. A member of the wrong type is treated as missing.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, expecting = "an object")]
pub struct CallMeta {
    /// The model's id for this use of the tool.
    #[serde(
        alias = "claudecode/toolUseId",
        deserialize_with = "if_fits",
        skip_serializing_if = "Option::is_none"
    )]
    pub tool_use_id: Option<String>,
    /// The token for progress notifications, a string or a number; without one, no progress is reported.
    #[serde(deserialize_with = "token", skip_serializing_if = "Option::is_none")]
    pub progress_token: Option<RawJson>,
    /// The call's place in a trace that the caller keeps.
    #[serde(
        deserialize_with = "traceparent",
        serialize_with = "as_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub traceparent: Option<TraceParent>,
    /// The client that calls.
    #[serde(skip)]
    pub caller: Option<Arc<Caller>>,
    /// The caller can put questions to a person; nobody is asked without this.
    #[serde(deserialize_with = "is_true", skip_serializing_if = "std::ops::Not::not")]
    pub can_ask: bool,
}

fn if_fits<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    RawJson::deserialize(deserializer).map(|value| value.decode().ok())
}

fn token<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    let token = RawJson::deserialize(deserializer)?;
    let is_token =
        matches!(token.as_bytes()[0], b'"' | b'-' | b'0'..=b'9') && token.as_bytes().len() <= MAX_TOKEN_BYTES;
    Ok(is_token.then_some(token))
}

fn traceparent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TraceParent>, D::Error> {
    Ok(if_fits::<D, String>(deserializer)?.and_then(|text| text.parse().ok()))
}

#[expect(clippy::ref_option, reason = "serde's signature")]
fn as_text<S: Serializer>(parent: &Option<TraceParent>, serializer: S) -> Result<S::Ok, S::Error> {
    parent.map(|parent| parent.to_string()).serialize(serializer)
}

fn is_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(if_fits(deserializer)? == Some(true))
}
