//! Name, version and instructions of a server.

use serde::{Deserialize, Serialize};

/// How a server introduces itself to its clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What a model should know before it uses the tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

impl ServerInfo {
    /// A server of that name, with toolbridge's version.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Sets what a model should know before it uses the tools.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }
}

impl Default for ServerInfo {
    fn default() -> Self {
        let version = env!("CARGO_PKG_VERSION").into();
        Self { name: "toolbridge".into(), version, instructions: None }
    }
}
