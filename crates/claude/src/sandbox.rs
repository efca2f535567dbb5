//! The sandbox for the CLI's own commands.

use std::collections::BTreeMap;

use crate::record::record;

record! {
    /// Runs the commands of the CLI's tool `Bash` in a sandbox.
    ///
    /// If it is [`enabled`](Self::enabled) but unavailable, the request fails, unless
    /// [`fail_if_unavailable(false)`](Self::fail_if_unavailable) is set. Rules for tools control which
    /// files and hosts the CLI's other tools can access.
    ///
    /// In JSON its members have the CLI's names, such as `excludedCommands`.
    pub struct Sandbox {
        /// Whether the sandbox is enabled.
        value enabled: bool;
        /// Whether the CLI refuses to run if the sandbox is unavailable; true by default.
        value fail_if_unavailable: bool;
        /// Whether sandboxed commands run without asking for permission; true by default in the CLI.
        value auto_allow_bash_if_sandboxed: bool;
        /// Commands that run outside the sandbox.
        list excluded_commands: Vec<String>;
        /// Whether the model may run a command outside the sandbox; by default the CLI allows it, subject
        /// to the rules for tools.
        value allow_unsandboxed_commands: bool;
        /// Network access of commands.
        value network: SandboxNetwork;
        /// Violations that are not reported: for a part of a command, or `*`, parts of the reports.
        value ignore_violations: BTreeMap<String, Vec<String>>;
        /// Whether to use a weaker sandbox inside a container.
        value enable_weaker_nested_sandbox: bool;
    }
}

record! {
    /// Network access of commands in a [`Sandbox`].
    pub struct SandboxNetwork {
        /// Hosts that commands can reach.
        list allowed_domains: Vec<String>;
        /// Hosts that commands cannot reach, even if allowed elsewhere.
        list denied_domains: Vec<String>;
        /// Whether only the hosts in the administrator's settings are allowed.
        value allow_managed_domains_only: bool;
        /// Unix sockets that commands can use.
        list allow_unix_sockets: Vec<String>;
        /// Whether commands can use all Unix sockets.
        value allow_all_unix_sockets: bool;
        /// Whether commands may listen on loopback.
        value allow_local_binding: bool;
        /// macOS services that commands can use.
        list allow_mach_lookup: Vec<String>;
        /// The port of your own HTTP proxy.
        value http_proxy_port: u16;
        /// The port of your own SOCKS proxy.
        value socks_proxy_port: u16;
    }
}
