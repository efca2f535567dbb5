//! Who is compared.

use anyhow::{Result, bail};

use super::environment::Runtime;

/// What stands between the client and a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    Floor,
    BusyFloor,
    Bridge,
    WholeBridge,
    BridgeAndParent,
    Sdk,
    BridgeAndPython,
    PythonBridge,
    PythonMcp,
    FastMcp,
    NodeSdk,
}

impl Contender {
    pub(crate) const ALL: [Self; 11] = [
        Self::Floor,
        Self::BusyFloor,
        Self::Bridge,
        Self::WholeBridge,
        Self::BridgeAndParent,
        Self::Sdk,
        Self::BridgeAndPython,
        Self::PythonBridge,
        Self::PythonMcp,
        Self::FastMcp,
        Self::NodeSdk,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::BusyFloor => "floor+3µs",
            Self::Bridge => "bridge",
            Self::WholeBridge => "toolbridge",
            Self::BridgeAndParent => "bridge+parent",
            Self::Sdk => "sdk",
            Self::BridgeAndPython => "bridge+python",
            Self::PythonBridge => "python-bridge",
            Self::PythonMcp => "python-mcp",
            Self::FastMcp => "fastmcp",
            Self::NodeSdk => "node-sdk",
        }
    }

    /// What it is, for the report.
    pub(crate) fn explanation(self) -> &'static str {
        match self {
            Self::Floor => {
                "a static C program in place of the bridge, which relays bytes and looks at none of them; its parent, \
                 in another process, answers with as little work as possible"
            }
            Self::BusyFloor => {
                "the same relay, busy for 3 µs each time it has read something: what any relay costs that does a little; \
                 only where calls are small"
            }
            Self::Bridge => {
                "`toolbridge-bridge`, linked statically, as packages bring it along; its parent answers with as little \
                 work as possible, so the difference to the floor is the bridge"
            }
            Self::WholeBridge => {
                "`toolbridge bridge`, which has everything else in it too, and the same parent; a program that is its \
                 own bridge is like it"
            }
            Self::BridgeAndParent => {
                "`toolbridge-bridge`, and a Rust program with a session and typed handlers"
            }
            Self::Sdk => {
                "the same Rust program over the transport `sdk`: the floor's relay in place of the CLI, and the \
                 CLI's control channel on its stdin and stdout"
            }
            Self::BridgeAndPython => {
                "`toolbridge-bridge`, and a Python program with `toolbridge.Session` and plain functions"
            }
            Self::PythonBridge => {
                "a bridge and a parent in Python, on the package `mcp` and asyncio, with the same frames"
            }
            Self::PythonMcp => {
                "a server on the Python package `mcp`, with the tools in it: no bridge, no parent"
            }
            Self::FastMcp => "a server on the Python package `fastmcp`, with the tools in it",
            Self::NodeSdk => "a server on the SDK for Node, with the tools in it",
        }
    }

    /// Whether it is somebody else's.
    pub(crate) fn is_peer(self) -> bool {
        matches!(self, Self::PythonBridge | Self::PythonMcp | Self::FastMcp | Self::NodeSdk)
    }

    /// Whether it passes on what it does not understand: it has no list, and needs no greeting.
    pub(crate) fn is_relay(self) -> bool {
        matches!(self, Self::Floor | Self::BusyFloor)
    }

    /// What it needs besides our own executables.
    pub(crate) fn runtime(self) -> Option<Runtime> {
        match self {
            Self::Floor
            | Self::BusyFloor
            | Self::Bridge
            | Self::WholeBridge
            | Self::BridgeAndParent
            | Self::Sdk => None,
            Self::BridgeAndPython => Some(Runtime::Toolbridge),
            Self::PythonBridge | Self::PythonMcp => Some(Runtime::Mcp),
            Self::FastMcp => Some(Runtime::FastMcp),
            Self::NodeSdk => Some(Runtime::Node),
        }
    }

    /// Those that need no environment.
    pub(crate) fn native() -> Vec<Self> {
        Self::ALL.into_iter().filter(|contender| contender.runtime().is_none()).collect()
    }

    /// The native ones, and those that are named.
    pub(crate) fn named(names: &str) -> Result<Vec<Self>> {
        for name in names.split(',') {
            if Self::ALL.iter().all(|contender| contender.name() != name) {
                let all = Self::ALL.map(Self::name).join(", ");
                bail!("there is no contender `{name}`; there are {all}");
            }
        }
        let wanted = |one: &Self| one.runtime().is_none() || names.split(',').any(|name| name == one.name());
        Ok(Self::ALL.into_iter().filter(wanted).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_native_ones_are_always_compared() {
        assert_eq!(Contender::named("floor").unwrap(), Contender::native());
        let some = Contender::named("fastmcp").unwrap();
        assert_eq!(some.len(), Contender::native().len() + 1);
        assert!(some.contains(&Contender::FastMcp));
        assert!(Contender::named("nobody").is_err());
    }
}
