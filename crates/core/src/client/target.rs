//! Settings of a server that has not been started.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::client::{McpServer, ServerError, ServerFault};

/// How long a server may take to answer and list its tools.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A server that has not been started; made by [`McpServer::command`], [`McpServer::url`] and
/// [`McpServer::from_config`].
#[derive(Debug, Clone)]
pub struct McpServerBuilder<T = Target> {
    name: String,
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
    fn with<U>(self, target: impl FnOnce(T) -> U) -> McpServerBuilder<U> {
        McpServerBuilder { name: self.name, timeout: self.timeout, target: target(self.target) }
    }

    /// The server's name in errors and logs; by default its command or its host.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// How long the server may take to answer and list its tools; 30 seconds by default.
    #[must_use]
    pub fn start_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The server's name.
    #[must_use]
    pub fn server_name(&self) -> &str {
        &self.name
    }

    /// A prefix for its tools: its name, with `_` for characters that a tool name cannot have.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.name.replace(|char: char| !(char.is_ascii_alphanumeric() || "_-".contains(char)), "_")
    }

    /// Starts the server, or connects to it, and lists its tools. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// When that fails, or takes too long.
    pub async fn start(self) -> Result<McpServer, ServerError>
    where
        Self: Into<McpServerBuilder>,
    {
        let this = self.into();
        // Boxed: rmcp's futures are large.
        Box::pin(McpServer::open(this.name.into(), this.target, this.timeout)).await
    }
}

impl McpServerBuilder<CommandTarget> {
    pub(crate) fn command(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_owned();
        let name = Path::new(&program).file_name().unwrap_or(&program).to_string_lossy().into_owned();
        let shown_program = program.to_string_lossy().into_owned();
        let (args, env) = (Vec::new(), BTreeMap::new());
        let target = CommandTarget { program, args, env, dir: None, shown_program, shown_path: None };
        Self { name, timeout: START_TIMEOUT, target }
    }

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
    pub(crate) fn url(url: String) -> Self {
        let name = host_of(&url).to_owned();
        let target = UrlTarget { shown: without_secrets(&url), url, headers: Vec::new() };
        Self { name, timeout: START_TIMEOUT, target }
    }

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

impl From<McpServerBuilder<CommandTarget>> for McpServerBuilder {
    fn from(server: McpServerBuilder<CommandTarget>) -> Self {
        server.with(Target::Command)
    }
}

impl From<McpServerBuilder<UrlTarget>> for McpServerBuilder {
    fn from(server: McpServerBuilder<UrlTarget>) -> Self {
        server.with(Target::Url)
    }
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
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(&self.env);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }

    /// The error of a failed start.
    pub(crate) fn cannot_start(&self, error: io::Error) -> ServerFault {
        let command = self.shown_program.clone();
        if let Some(dir) = self.dir.as_ref().filter(|dir| !dir.is_dir()) {
            let error = io::Error::new(error.kind(), format!("there is no directory `{}`", dir.display()));
            return ServerFault::Start { command, error };
        }
        if error.kind() != io::ErrorKind::NotFound {
            return ServerFault::Start { command, error };
        }
        let path = || {
            let path = self.env.get(OsStr::new("PATH")).cloned().or_else(|| std::env::var_os("PATH"));
            path.unwrap_or_default().to_string_lossy().into_owned()
        };
        let is_searched = !self.program.as_encoded_bytes().contains(&b'/');
        let path = is_searched.then(|| self.shown_path.clone().unwrap_or_else(path));
        ServerFault::NotFound { command, path }
    }
}

/// Without arguments and values of variables, which may be secret.
impl fmt::Debug for CommandTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, args, env) = (&self.shown_program, self.args.len(), self.env.keys());
        write!(f, "Command({program:?} with {args} arguments and {:?})", env.collect::<Vec<_>>())
    }
}

/// Without values of headers, and secret parts of the URL.
impl fmt::Debug for UrlTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        write!(f, "Url({:?} with {headers:?})", self.shown)
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
        assert_eq!(McpServer::command("/usr/bin/uvx").server_name(), "uvx");
        assert_eq!(McpServer::url("https://u:p@example.com:8443/mcp").server_name(), "example.com:8443");
        assert_eq!(McpServer::url("nonsense").server_name(), "nonsense");
        assert_eq!(McpServer::command("uvx").name("own time").prefix(), "own_time");
    }
}
