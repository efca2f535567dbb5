//! Settings of a server that has not been started.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{McpServer, ServerError};

/// How long a server may take to answer and list its tools.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A server that has not been started; made by [`McpServer::command`], [`McpServer::url`] and
/// [`McpServer::from_config`].
#[derive(Debug, Clone)]
pub struct McpServerBuilder<T = Target> {
    name: Option<String>,
    timeout: Duration,
    pub(crate) target: T,
}

/// A command to start, see [`McpServer::command`].
#[derive(Clone)]
pub struct CommandTarget {
    program: OsString,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    dir: Option<PathBuf>,
    /// The program and the PATH for errors: in a configuration, values of variables are left out.
    pub(crate) shown_program: String,
    pub(crate) shown_path: Option<String>,
}

/// A URL to connect to, see [`McpServer::url`].
#[derive(Clone)]
pub struct UrlTarget {
    pub(crate) url: String,
    /// The URL for errors: without secrets and, in a configuration, without values of variables.
    pub(crate) shown: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// A command or a URL.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Target {
    /// A command to start.
    Command(CommandTarget),
    /// A URL to connect to.
    Url(UrlTarget),
}

impl<T> McpServerBuilder<T> {
    pub(crate) fn new(target: T) -> Self {
        Self { name: None, timeout: START_TIMEOUT, target }
    }

    /// The server's name in errors and logs; by default its command or its host.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long the server may take to answer and list its tools; 30 seconds by default.
    #[must_use]
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }
}

impl McpServerBuilder<CommandTarget> {
    /// Adds an argument.
    #[must_use]
    pub fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.target.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the server's environment, which is otherwise that of this process.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.target.env.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Starts the server in this directory instead of the current one.
    #[must_use]
    pub fn current_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.target.dir = Some(dir.as_ref().to_owned());
        self
    }
}

impl McpServerBuilder<UrlTarget> {
    /// Sends a header with each request.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.target.headers.push((name.into(), value.into()));
        self
    }

    /// Sends a token with each request, as `Authorization: Bearer …`.
    #[must_use]
    pub fn bearer(self, token: impl fmt::Display) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }
}

impl<T: Into<Target>> McpServerBuilder<T> {
    /// Starts the server, or connects to it, and lists its tools. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// When that fails, or takes too long.
    pub async fn start(self) -> Result<McpServer, ServerError> {
        let this = self.erased();
        McpServer::open(this.server_name(), this.target, this.timeout).await
    }

    /// The same server, as a [`Target`].
    pub(crate) fn erased(self) -> McpServerBuilder {
        McpServerBuilder { name: self.name, timeout: self.timeout, target: self.target.into() }
    }
}

impl McpServerBuilder {
    /// The server's name.
    #[must_use]
    pub fn server_name(&self) -> Arc<str> {
        match (&self.name, &self.target) {
            (Some(name), _) => name.as_str().into(),
            (None, Target::Command(command)) => {
                let name = Path::new(&command.program).file_name().unwrap_or(&command.program);
                name.to_string_lossy().into()
            }
            (None, Target::Url(target)) => host_of(&target.url).into(),
        }
    }

    /// A prefix for its tools: its name, with `_` for characters that a tool name cannot have.
    #[must_use]
    pub fn prefix(&self) -> String {
        prefix_of(&self.server_name())
    }
}

impl From<McpServerBuilder<CommandTarget>> for McpServerBuilder {
    fn from(server: McpServerBuilder<CommandTarget>) -> Self {
        server.erased()
    }
}

impl From<McpServerBuilder<UrlTarget>> for McpServerBuilder {
    fn from(server: McpServerBuilder<UrlTarget>) -> Self {
        server.erased()
    }
}

/// Replaces characters that a tool name cannot have by `_`.
pub(crate) fn prefix_of(name: &str) -> String {
    name.replace(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '_' | '-')), "_")
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// A URL without parts that may be secret: credentials, and everything after the path.
pub(crate) fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return host_of(url).to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let path = rest[end..].split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{}{path}", host_of(url))
}

impl CommandTarget {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_owned();
        let (shown_program, shown_path) = (program.to_string_lossy().into_owned(), None);
        Self { program, args: Vec::new(), env: BTreeMap::new(), dir: None, shown_program, shown_path }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(&self.env);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }

    /// The error of a failed start.
    pub(crate) fn cannot_start(&self, server: &str, error: std::io::Error) -> ServerError {
        let (server, command) = (server.to_owned(), self.shown_program.clone());
        if let Some(dir) = self.dir.as_ref().filter(|dir| !dir.is_dir()) {
            let error =
                std::io::Error::new(error.kind(), format!("there is no directory `{}`", dir.display()));
            return ServerError::Start { server, command, error };
        }
        if error.kind() != std::io::ErrorKind::NotFound {
            return ServerError::Start { server, command, error };
        }
        let path = || {
            let path = self.env.get(OsStr::new("PATH")).cloned().or_else(|| std::env::var_os("PATH"));
            let path = path.unwrap_or_default().to_string_lossy().into_owned();
            self.shown_path.clone().unwrap_or(path)
        };
        let path = (!self.program.as_encoded_bytes().contains(&b'/')).then(path);
        ServerError::NotFound { server, command, path }
    }
}

impl UrlTarget {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        let url = url.into();
        Self { shown: without_secrets(&url), url, headers: Vec::new() }
    }
}

impl From<CommandTarget> for Target {
    fn from(command: CommandTarget) -> Self {
        Self::Command(command)
    }
}

impl From<UrlTarget> for Target {
    fn from(url: UrlTarget) -> Self {
        Self::Url(url)
    }
}

/// Without arguments and values of variables, which may be secret.
impl fmt::Debug for CommandTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env: Vec<_> = self.env.keys().collect();
        f.debug_struct("Command")
            .field("program", &self.shown_program)
            .field("args", &format_args!("{} arguments", self.args.len()))
            .field("env", &env)
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

/// Without values of headers, and secret parts of the URL.
impl fmt::Debug for UrlTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Url").field("url", &self.shown).field("headers", &headers).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!(
            "{:?} {:?}",
            McpServer::command("a").arg("secret-1").env("TOKEN", "secret-2"),
            McpServer::url("https://u:secret-3@h:1/mcp?key=secret-4#secret-5")
                .bearer("secret-6")
                .header("X", "secret-7"),
        );
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains("https://h:1/mcp") && shown.contains("TOKEN"), "{shown}");
    }

    #[test]
    fn a_server_without_a_name_is_named_after_its_command_or_host() {
        assert_eq!(&*McpServer::command("/usr/bin/uvx").erased().server_name(), "uvx");
        assert_eq!(
            &*McpServer::url("https://u:p@example.com:8443/mcp").erased().server_name(),
            "example.com:8443"
        );
        assert_eq!(&*McpServer::url("nonsense").erased().server_name(), "nonsense");
        assert_eq!(&*McpServer::command("uvx").name("time").erased().server_name(), "time");
    }
}
