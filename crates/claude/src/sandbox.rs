//! Where the CLI's own commands run.

use std::collections::BTreeMap;

use crate::record::record;

record! {
    /// Runs the commands of the CLI's tool `Bash` in a sandbox.
    ///
    /// One that is [`enabled`](Self::enabled) and cannot be had is an error, unless
    /// [`fail_if_unavailable(false)`](Self::fail_if_unavailable) says otherwise. What files and hosts the CLI's other tools reach is
    /// said by rules for tools.
    ///
    /// In JSON its members have the CLI's names, such as `excludedCommands`.
    pub struct Sandbox {
        /// Whether there is one.
        value enabled: bool;
        /// Whether the CLI refuses to run where the sandbox cannot be had; it does by default.
        value fail_if_unavailable: bool;
        /// Whether commands in the sandbox run without anybody being asked; the CLI's default is that they do.
        value auto_allow_bash_if_sandboxed: bool;
        /// Names commands that run outside of it.
        list excluded_commands: Vec<String>;
        /// Whether the model may have a command run outside of it; the CLI's default is that it may, by the rules for tools.
        value allow_unsandboxed_commands: bool;
        /// What commands reach of the network.
        value network: SandboxNetwork;
        /// Which violations are not reported: for a part of a command, or `*`, parts of the reports.
        value ignore_violations: BTreeMap<String, Vec<String>>;
        /// Whether a weaker one is taken inside a container.
        value enable_weaker_nested_sandbox: bool;
    }
}

record! {
    /// What commands in a [`Sandbox`] reach of the network.
    pub struct SandboxNetwork {
        /// Names hosts that they reach.
        list allowed_domains: Vec<String>;
        /// Names hosts that they do not reach, whatever else is allowed.
        list denied_domains: Vec<String>;
        /// Whether only the hosts of the administrator's settings count.
        value allow_managed_domains_only: bool;
        /// Names Unix sockets that they reach.
        list allow_unix_sockets: Vec<String>;
        /// Whether they reach all Unix sockets.
        value allow_all_unix_sockets: bool;
        /// Whether they may listen on loopback.
        value allow_local_binding: bool;
        /// Names services of macOS that they reach.
        list allow_mach_lookup: Vec<String>;
        /// The port of an HTTP proxy of your own.
        value http_proxy_port: u16;
        /// The port of a SOCKS proxy of your own.
        value socks_proxy_port: u16;
    }
}
