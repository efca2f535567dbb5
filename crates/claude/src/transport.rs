//! How tool calls are transported between the CLI and this process.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ClaudeCodeError;
use crate::record::display_as_serialized;

/// How tool calls are transported between the CLI and this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Transport {
    /// Selects one that works with every version of the CLI; currently [`Stdio`](Self::Stdio).
    #[default]
    Auto,
    /// The CLI starts a bridge, which calls this process over a Unix socket.
    Stdio,
    /// Over the CLI's stdin and stdout, without another process. Needs CLI 2.1.248.
    Sdk,
}

impl Transport {
    /// Replaces `Auto` with the transport that it selects.
    #[must_use]
    pub fn resolved(self) -> Self {
        if self == Self::Auto { Self::Stdio } else { self }
    }
}

display_as_serialized!(Transport);

impl FromStr for Transport {
    type Err = ClaudeCodeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::deserialize(serde_json::Value::from(text)).map_err(|_| {
            let there_are = "there are `auto`, `stdio` and `sdk`";
            ClaudeCodeError::invalid(format!("there is no transport `{text}`; {there_are}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_parsed_from_their_names() {
        for transport in [Transport::Auto, Transport::Stdio, Transport::Sdk] {
            assert_eq!(transport.to_string().parse::<Transport>().unwrap(), transport);
        }
        assert_eq!(Transport::default(), Transport::Auto);
        assert_eq!(Transport::Auto.resolved(), Transport::Stdio);
        let error = "http".parse::<Transport>().unwrap_err().to_string();
        assert_eq!(error, "there is no transport `http`; there are `auto`, `stdio` and `sdk`");
    }
}
