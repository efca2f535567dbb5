//! Reads the CLI's MCP config files: `.mcp.json`.

use std::collections::HashSet;
use std::path::Path;

use crate::Combined;
use futures_util::future::try_join_all;
use serde_json::{Map, Value};

use crate::client::expand::expand;
use crate::client::target::{CommandTarget, McpServerBuilder, UrlTarget, prefix_of, without_secrets};
use crate::client::{McpServer, ServerError};

/// The servers of a config file, not yet started; made by [`McpServer::from_config`].
#[derive(Debug, Clone)]
pub struct McpServers(Vec<McpServerBuilder>);

impl McpServer {
    /// The servers of a file in the format of the CLI's `.mcp.json`: `{"mcpServers": {"time": {"command":
    /// "uvx", "args": ["mcp-server-time"]}}}`. `${VARIABLE}` and `${VARIABLE:-default}` are expanded in every
    /// string.
    ///
    /// ```no_run
    /// # mod toolbridge { pub use toolbridge_core::client::*; pub use toolbridge_core::*; }
    /// use toolbridge::{McpServer, ToolSource};
    ///
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let tools = McpServer::from_config(".mcp.json")?.start().await?;
    /// println!("{:?}", tools.tools().iter().map(|tool| &tool.name).collect::<Vec<_>>()); // time_get_current_time, …
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or its content is not valid.
    pub fn from_config(path: impl AsRef<Path>) -> Result<McpServers, ServerError> {
        let path = path.as_ref();
        let unread = |reason: String| ServerError::Config { path: path.into(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| unread(error.to_string()))?;
        let config: Value =
            serde_json::from_str(&text).map_err(|error| unread(format!("it is not JSON: {error}")))?;
        read(&config, &|name| std::env::var(name).ok())
            .map_err(|Wrong { place, reason }| ServerError::Entry { path: path.into(), place, reason })
    }
}

impl McpServers {
    /// The servers' names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|server| server.server_name().to_string()).collect()
    }

    /// Keeps only the servers with these names.
    #[must_use]
    pub fn only<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let names: HashSet<_> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        self.0.retain(|server| names.contains(&*server.server_name()));
        self
    }

    /// Starts all servers in parallel and joins their tools: each is called `<server>_<tool>`.
    ///
    /// # Errors
    ///
    /// When one of the servers cannot be started; the others are stopped then.
    pub async fn start(self) -> Result<Combined, ServerError> {
        let started = try_join_all(self.0.into_iter().map(McpServerBuilder::start)).await?;
        let mut all = Combined::new();
        for server in started {
            all = all.with_prefix(&prefix_of(server.name()), server)?;
        }
        Ok(all)
    }
}

impl IntoIterator for McpServers {
    type Item = McpServerBuilder;
    type IntoIter = std::vec::IntoIter<McpServerBuilder>;

    /// The servers one by one, to be started separately.
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// What is wrong in a file, and where. Values are left out: they may be secret.
#[derive(Debug)]
struct Wrong {
    place: String,
    reason: String,
}

fn wrong(place: impl Into<String>, reason: impl Into<String>) -> Wrong {
    Wrong { place: place.into(), reason: reason.into() }
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

fn read(config: &Value, variables: Variables<'_>) -> Result<McpServers, Wrong> {
    let config = object(config, "/")?;
    only_members(config, "", &["mcpServers"])?;
    let Some(servers) = config.get("mcpServers") else {
        return Err(wrong("/", "there is no `mcpServers`, an object with an entry for each server"));
    };
    let servers = object(servers, "mcpServers")?.iter();
    let servers = servers.map(|(name, entry)| {
        let place = format!("mcpServers.{name}");
        let entry = Entry { members: object(entry, &place)?, place, variables };
        Ok(entry.server()?.name(name))
    });
    servers.collect::<Result<_, Wrong>>().map(McpServers)
}

/// The entry of one server.
struct Entry<'a> {
    members: &'a Map<String, Value>,
    place: String,
    variables: Variables<'a>,
}

impl Entry<'_> {
    fn server(&self) -> Result<McpServerBuilder, Wrong> {
        let kind = self.text("type")?;
        match kind.as_deref() {
            None if self.members.contains_key("url") && !self.members.contains_key("command") => {
                let reason = "a server with a `url` needs `\"type\": \"http\"`";
                Err(wrong(&self.place, reason))
            }
            None | Some("stdio") => self.command(),
            Some("http" | "streamable-http") => self.url(),
            Some(_) => {
                let kind = self.unexpanded("type");
                let reason = format!(
                    "there is no server of the type `{kind}` here; Streamable HTTP is supported, which is `http`, and \
                     commands, which are `stdio`"
                );
                Err(wrong(self.at("type"), reason))
            }
        }
    }

    fn command(&self) -> Result<McpServerBuilder, Wrong> {
        only_members(self.members, &self.place, &["type", "command", "args", "env"])?;
        let Some(command) = self.text("command")?.filter(|command| !command.is_empty()) else {
            return Err(wrong(&self.place, "there is no `command`, nor a `url` with `\"type\": \"http\"`"));
        };
        let mut target = CommandTarget::new(command);
        target.shown_program = self.unexpanded("command").into();
        target.shown_path =
            self.members.get("env").and_then(|env| Some(env.get("PATH")?.as_str()?.to_owned()));
        let mut server = McpServerBuilder::new(target);
        if let Some(args) = self.members.get("args") {
            let Some(args) = args.as_array() else {
                return Err(wrong(self.at("args"), "this is not a list of strings"));
            };
            for (place, arg) in args.iter().enumerate() {
                server = server.arg(self.expanded(arg, &self.at(&format!("args[{place}]")))?);
            }
        }
        for (name, value) in self.texts("env")? {
            server = server.env(name, value);
        }
        Ok(server.erased())
    }

    fn url(&self) -> Result<McpServerBuilder, Wrong> {
        only_members(self.members, &self.place, &["type", "url", "headers"])?;
        let Some(url) = self.text("url")?.filter(|url| !url.is_empty()) else {
            return Err(wrong(&self.place, "there is no `url`, such as `https://example.com/mcp`"));
        };
        let mut target = UrlTarget::new(url);
        target.shown = without_secrets(self.unexpanded("url"));
        let mut server = McpServerBuilder::new(target);
        for (name, value) in self.texts("headers")? {
            server = server.header(name, value);
        }
        Ok(server.erased())
    }

    fn at(&self, member: &str) -> String {
        format!("{}.{member}", self.place)
    }

    /// A string as it stands in the file, for errors: the values of variables may be secret.
    fn unexpanded(&self, member: &str) -> &str {
        self.members.get(member).and_then(Value::as_str).unwrap_or_default()
    }

    fn text(&self, member: &str) -> Result<Option<String>, Wrong> {
        self.members.get(member).map(|value| self.expanded(value, &self.at(member))).transpose()
    }

    fn texts(&self, member: &str) -> Result<Vec<(String, String)>, Wrong> {
        let Some(value) = self.members.get(member) else { return Ok(Vec::new()) };
        let place = self.at(member);
        let each = |(name, value): (&String, &Value)| {
            Ok((name.clone(), self.expanded(value, &format!("{place}.{name}"))?))
        };
        object(value, &place)?.iter().map(each).collect()
    }

    fn expanded(&self, value: &Value, place: &str) -> Result<String, Wrong> {
        let Some(text) = value.as_str() else { return Err(wrong(place, "this is not a string")) };
        expand(text, self.variables).map_err(|missing| {
            let reason = format!(
                "the variable `{missing}` is not set; set it, or give a default: `${{{missing}:-default}}`"
            );
            wrong(place, reason)
        })
    }
}

fn object<'a>(value: &'a Value, place: &str) -> Result<&'a Map<String, Value>, Wrong> {
    value.as_object().ok_or_else(|| wrong(place, "this is not an object"))
}

fn only_members(members: &Map<String, Value>, place: &str, known: &[&str]) -> Result<(), Wrong> {
    match members.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let known = known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            Err(wrong(place, format!("unknown member; it can be {known}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::target::Target;

    fn check(config: &str) -> String {
        let variables = |name: &str| (name == "SET").then(|| "value".to_owned());
        match read(&serde_json::from_str(config).unwrap(), &variables) {
            Ok(McpServers(servers)) => format!("{servers:?}"),
            Err(Wrong { place, reason }) => format!("{place}: {reason}"),
        }
    }

    #[test]
    fn errors_are_reported_with_their_position() {
        let rows = [
            ("[]", "/: this is not an object"),
            ("{}", "/: there is no `mcpServers`, an object with an entry for each server"),
            (r#"{"mcpServers":{},"other":1}"#, "other: unknown member; it can be `mcpServers`"),
            (r#"{"mcpServers":[]}"#, "mcpServers: this is not an object"),
            (r#"{"mcpServers":{"a":5}}"#, "mcpServers.a: this is not an object"),
            (
                r#"{"mcpServers":{"a":{}}}"#,
                r#"mcpServers.a: there is no `command`, nor a `url` with `"type": "http"`"#,
            ),
            (
                r#"{"mcpServers":{"a":{"url":"http://h"}}}"#,
                r#"mcpServers.a: a server with a `url` needs `"type": "http"`"#,
            ),
            (
                r#"{"mcpServers":{"a":{"type":"sse","url":"http://h"}}}"#,
                "mcpServers.a.type: there is no server of the type `sse` here; Streamable HTTP is supported, which is `http`, and \
                 commands, which are `stdio`",
            ),
            (
                r#"{"mcpServers":{"a":{"command":"c","cwd":"/"}}}"#,
                "mcpServers.a.cwd: unknown member; it can be `type`, `command`, `args`, `env`",
            ),
            (
                r#"{"mcpServers":{"a":{"type":"http","url":"http://h","command":"c"}}}"#,
                "mcpServers.a.command: unknown member; it can be `type`, `url`, `headers`",
            ),
            (
                r#"{"mcpServers":{"a":{"type":"http"}}}"#,
                "mcpServers.a: there is no `url`, such as `https://example.com/mcp`",
            ),
            (r#"{"mcpServers":{"a":{"command":5}}}"#, "mcpServers.a.command: this is not a string"),
            (
                r#"{"mcpServers":{"a":{"command":"c","args":"x"}}}"#,
                "mcpServers.a.args: this is not a list of strings",
            ),
            (
                r#"{"mcpServers":{"a":{"command":"c","args":["x",1]}}}"#,
                "mcpServers.a.args[1]: this is not a string",
            ),
            (
                r#"{"mcpServers":{"a":{"command":"c","env":{"K":null}}}}"#,
                "mcpServers.a.env.K: this is not a string",
            ),
            (
                r#"{"mcpServers":{"a":{"type":"http","url":"http://h","headers":{"X-Key":"secret ${UNSET}"}}}}"#,
                "mcpServers.a.headers.X-Key: the variable `UNSET` is not set; set it, or give a default: `${UNSET:-default}`",
            ),
        ];
        for (config, want) in rows {
            assert_eq!(check(config), want, "{config}");
        }
    }

    #[test]
    fn variables_are_expanded_in_every_string() {
        let config = r#"{"mcpServers":{
            "b":{"command":"${SET}/bin","args":["${SET}"],"env":{"K":"${SET}"}},
            "a":{"type":"http","url":"http://${UNSET:-host}/${SET}","headers":{"X":"${SET}"}}
        }}"#;
        let variables = |name: &str| (name == "SET").then(|| "value".to_owned());
        let servers = read(&serde_json::from_str(config).unwrap(), &variables).unwrap();
        assert_eq!(servers.names(), ["a", "b"]);
        let shown = format!("{servers:?}");
        assert!(
            shown.contains("${UNSET:-host}/${SET}") && shown.contains(r#"program: "${SET}/bin""#),
            "{shown}"
        );
        assert!(!shown.contains("value"), "{shown}");
        let [Target::Url(url), Target::Command(command)] =
            [0, 1].map(|place| servers.0[place].target.clone())
        else {
            panic!("{shown}")
        };
        let command = command.command();
        assert_eq!((&*url.url, &url.headers[0].1[..]), ("http://host/value", "value"));
        assert_eq!(command.get_program(), "value/bin");
        assert!(
            command.get_args().eq(["value"])
                && command.get_envs().eq([("K".as_ref(), Some("value".as_ref()))])
        );
        assert_eq!(servers.only(["b", "c"]).names(), ["b"]);
    }
}
