//! Who calls.

use serde::{Deserialize, Serialize};

/// The program that calls a tool, as far as it is known. Handlers get it with [`CallContext::caller`](crate::CallContext::caller).
///
/// Clients report their own name and version, so use them for logs and for telling callers apart; only `pid` comes
/// from the system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", expecting = "an object")]
#[non_exhaustive]
pub struct Caller {
    /// What it calls itself, such as `claude-code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The CLI's session id, if the client is the CLI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The process at the other end of the session's socket: the bridge, which ends with the client that started it.
    #[serde(skip)]
    pub pid: Option<u32>,
    /// Identifies the client where one front serves several; no two sessions have the same number.
    #[serde(skip)]
    pub connection: Option<u64>,
}
