//! How tool calls travel between the CLI and this process.

use std::fmt;
use std::str::FromStr;

use crate::ClaudeCodeError;

/// How tool calls travel between the CLI and this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// Whatever works with every version of the CLI; today [`Stdio`](Self::Stdio).
    #[default]
    Auto,
    /// The CLI starts a bridge, which calls this process over a Unix socket.
    Stdio,
    /// Over the CLI's own stdin and stdout, without another process.
    Sdk,
}

impl Transport {
    /// The transport that `Auto` stands for, or the one it is.
    #[must_use]
    pub fn resolved(self) -> Self {
        match self {
            Self::Auto | Self::Stdio => Self::Stdio,
            Self::Sdk => Self::Sdk,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Stdio => "stdio",
            Self::Sdk => "sdk",
        })
    }
}

impl FromStr for Transport {
    type Err = ClaudeCodeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "stdio" => Ok(Self::Stdio),
            "sdk" => Ok(Self::Sdk),
            _ => Err(ClaudeCodeError::invalid(format!(
                "there is no transport `{text}`; there are `auto`, `stdio` and `sdk`"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_transports_are_the_same() {
        for transport in [Transport::Auto, Transport::Stdio, Transport::Sdk] {
            assert_eq!(transport.to_string().parse::<Transport>().unwrap(), transport);
        }
        assert_eq!(Transport::default(), Transport::Auto);
        assert_eq!(Transport::Auto.resolved(), Transport::Stdio);
        let error = "http".parse::<Transport>().unwrap_err().to_string();
        assert_eq!(error, "there is no transport `http`; there are `auto`, `stdio` and `sdk`");
    }
}
