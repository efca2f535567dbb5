//! The programs that are compared.

use std::ops::Deref;

use clap::ValueEnum;

use crate::environment::Runtime;

macro_rules! contenders {
    ($($contender:ident, $name:literal, $class:ident, $runtime:expr, $explanation:literal;)*) => {
        /// The program between the client and a tool.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
        pub(crate) enum Contender { $(#[value(name = $name)] $contender,)* }

        impl Deref for Contender {
            type Target = Facts;

            fn deref(&self) -> &Facts {
                match self {
                    $(Self::$contender => &Facts {
                        name: $name, class: Class::$class, runtime: $runtime, explanation: $explanation
                    },)*
                }
            }
        }
    };
}

/// The properties of a contender.
pub(crate) struct Facts {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// What it needs besides our own executables.
    pub(crate) runtime: Option<Runtime>,
    /// Its description in the report.
    pub(crate) explanation: &'static str,
}

/// The kind of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// It relays bytes without parsing them: it has no list of tools, and needs no handshake.
    Relay,
    Ours,
    /// Another project.
    Peer,
}

contenders! {
    Floor, "floor", Relay, None,
        "a static C program in place of the bridge, which relays bytes and looks at none of them; its parent, \
         in another process, answers with as little work as possible";
    BusyFloor, "floor+3µs", Relay, None,
        "the same relay, busy for 3 µs each time it has read something: what any relay costs that does a little; \
         only where calls are small";
    Bridge, "bridge", Ours, None,
        "`toolbridge-bridge`, linked statically, as packages bring it along; its parent answers with as little \
         work as possible, so the difference to the floor is the bridge";
    WholeBridge, "toolbridge", Ours, None,
        "`toolbridge bridge`, which has everything else in it too, and the same parent; a program that is its \
         own bridge is like it";
    BridgeAndParent, "bridge+parent", Ours, None,
        "`toolbridge-bridge`, and a Rust program with a session and typed handlers";
    Attached, "attach+parent", Ours, None,
        "`toolbridge-bridge attach`, and the same Rust program with a session that has a name";
    Sdk, "sdk", Ours, None,
        "the same Rust program over the transport `sdk`: the floor's relay in place of the CLI, and the \
         CLI's control channel on its stdin and stdout";
    BridgeAndPython, "bridge+python", Ours, Some(Runtime::Toolbridge),
        "`toolbridge-bridge`, and a Python program with `toolbridge.Session` and plain functions";
    Server, "server", Ours, None,
        "a Rust program that is the server itself, with the tools in it: no bridge, no parent; only over HTTP and behind \
         `toolbridge serve`";
    Before, "before", Ours, None,
        "an earlier `toolbridge-bridge`, as given with `--before`, and the parent that answers with as little work as possible";
    BeforeAndParent, "before+parent", Ours, None,
        "the same, and an earlier Rust program with a session and typed handlers";
    PythonBridge, "python-bridge", Peer, Some(Runtime::Mcp),
        "a bridge and a parent in Python, on the package `mcp` and asyncio, with the same frames";
    PythonMcp, "python-mcp", Peer, Some(Runtime::Mcp),
        "a server on the Python package `mcp`, with the tools in it: no bridge, no parent";
    FastMcp, "fastmcp", Peer, Some(Runtime::FastMcp),
        "a server on the Python package `fastmcp`, with the tools in it";
    NodeSdk, "node-sdk", Peer, Some(Runtime::Node),
        "a server on the SDK for Node, with the tools in it";
}

impl Contender {
    pub(crate) fn is_relay(self) -> bool {
        self.class == Class::Relay
    }

    /// Whether it contains the tools, and can be served over HTTP too.
    pub(crate) fn is_server(self) -> bool {
        matches!(self, Self::Server | Self::PythonMcp | Self::FastMcp | Self::NodeSdk)
    }

    /// Whether it is an earlier build of ours.
    pub(crate) fn is_earlier(self) -> bool {
        matches!(self, Self::Before | Self::BeforeAndParent)
    }
}
