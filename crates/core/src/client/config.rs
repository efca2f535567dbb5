//! Reads the CLI's MCP config files: `.mcp.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::client::target::{McpServerBuilder, without_secrets};
use crate::client::{McpServer, ServerError};

impl McpServer {
    /// The servers of a file in the format of the CLI's `.mcp.json`: `{"mcpServers": {"time": {"command":
    /// "uvx", "args": ["mcp-server-time"]}}}`, not yet started. `${VARIABLE}` and `${VARIABLE:-default}` are expanded in
    /// every command, argument, URL and value. Other members are ignored.
    ///
    /// ```no_run
    /// # use toolbridge_core as toolbridge;
    /// use toolbridge::client::McpServer;
    /// use toolbridge::source::Combined;
    ///
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tools = Combined::new(); // time_get_current_time, …
    /// for server in McpServer::from_config(".mcp.json")? {
    ///     tools = tools.with_prefix(&server.prefix(), server.start().await?)?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or its content is not valid.
    pub fn from_config(path: impl AsRef<Path>) -> Result<Vec<McpServerBuilder>, ServerError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let servers = text.and_then(|text| read(&text, &|name| std::env::var(name).ok()));
        servers.map_err(|reason| ServerError::Config { path: path.into(), reason })
    }
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ConfigFile {
    mcp_servers: BTreeMap<String, ServerEntry>,
}

/// The entry of one server.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ServerEntry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// The servers of a file; or what is wrong, and where. Values are left out: they may be secret.
fn read(text: &str, variables: Variables<'_>) -> Result<Vec<McpServerBuilder>, String> {
    let file: ConfigFile = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text))
        .map_err(|error| {
            let (place, reason) = (error.path().to_string(), error.inner().to_string());
            match reason.rsplit_once(", expected ") {
                Some((_, expected)) if error.inner().is_data() => {
                    format!("at `{place}`: this is not {expected}")
                }
                _ => format!("it is not a configuration: {reason}"),
            }
        })?;
    let named = |(name, entry): (String, ServerEntry)| Ok(entry.server(&name, variables)?.name(name));
    file.mcp_servers.into_iter().map(named).collect()
}

impl ServerEntry {
    fn server(self, name: &str, variables: Variables<'_>) -> Result<McpServerBuilder, String> {
        let wrong = |reason: &str| Err(format!("at `mcpServers.{name}`: {reason}"));
        let expanded = |member: &str, text: &str| {
            expand(text, variables).map_err(|missing| {
                format!(
                    "at `mcpServers.{name}.{member}`: the variable `{missing}` is not set; set it, or give a default: \
                     `${{{missing}:-default}}`"
                )
            })
        };
        match (self.kind.as_deref(), self.command, self.url) {
            (None | Some("stdio"), Some(command), _) if !command.is_empty() => {
                let mut server = McpServer::command(expanded("command", &command)?);
                server.target.shown_program = command;
                server.target.shown_path = self.env.get("PATH").cloned();
                for (place, arg) in self.args.iter().enumerate() {
                    server = server.arg(expanded(&format!("args[{place}]"), arg)?);
                }
                for (name, value) in &self.env {
                    server = server.env(name, expanded(&format!("env.{name}"), value)?);
                }
                Ok(server.into())
            }
            (Some("http" | "streamable-http"), _, Some(url)) if !url.is_empty() => {
                let mut server = McpServer::url(expanded("url", &url)?);
                server.target.shown = without_secrets(&url);
                for (name, value) in &self.headers {
                    server = server.header(name, expanded(&format!("headers.{name}"), value)?);
                }
                Ok(server.into())
            }
            (Some("http" | "streamable-http"), ..) => {
                wrong("there is no `url`, such as `https://example.com/mcp`")
            }
            (None | Some("stdio"), ..) => {
                wrong("there is no `command`, nor a `url` with `\"type\": \"http\"`")
            }
            (Some(kind), ..) => wrong(&format!(
                "there is no server of the type `{kind}` here; Streamable HTTP is supported, which is `http`, and \
                 commands, which are `stdio`"
            )),
        }
    }
}

/// Replaces `${VARIABLE}` and `${VARIABLE:-default}` by their values, as the CLI does. The error is the name of a variable without value and default.
fn expand(text: &str, variables: Variables<'_>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, behind)) = after.split_once('}') else { break };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        expanded.push_str(before);
        match (variables(name), default) {
            (Some(value), _) => expanded.push_str(&value),
            (None, Some(default)) => expanded.push_str(default),
            (None, None) if name.is_empty() => expanded.push_str("${}"),
            (None, None) => return Err(name.to_owned()),
        }
        rest = behind;
    }
    Ok(expanded + rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::target::Target;

    fn check(config: &str) -> String {
        let variables = |name: &str| (name == "SET").then(|| "value".to_owned());
        read(config, &variables).map_or_else(|reason| reason, |servers| format!("{servers:?}"))
    }

    #[test]
    fn errors_are_reported_with_their_position() {
        let rows = [
            ("[]", "at `.`: this is not an object at line 1 column 2"),
            ("{}", "it is not a configuration: missing field `mcpServers` at line 1 column 2"),
            (r#"{"mcpServers":[]}"#, "at `mcpServers`: this is not a map at line 1 column 14"),
            (r#"{"mcpServers":{"a":5}}"#, "at `mcpServers.a`: this is not an object at line 1 column 20"),
            (
                r#"{"mcpServers":{"a":{}}}"#,
                r#"at `mcpServers.a`: there is no `command`, nor a `url` with `"type": "http"`"#,
            ),
            (
                r#"{"mcpServers":{"a":{"url":"http://h"}}}"#,
                r#"at `mcpServers.a`: there is no `command`, nor a `url` with `"type": "http"`"#,
            ),
            (
                r#"{"mcpServers":{"a":{"type":"sse","url":"http://h"}}}"#,
                "at `mcpServers.a`: there is no server of the type `sse` here; Streamable HTTP is supported, which is \
                 `http`, and commands, which are `stdio`",
            ),
            (
                r#"{"mcpServers":{"a":{"type":"http","command":"c"}}}"#,
                "at `mcpServers.a`: there is no `url`, such as `https://example.com/mcp`",
            ),
            (
                r#"{"mcpServers":{"a":{"command":"c","args":["x",{"secret":1}]}}}"#,
                "at `mcpServers.a.args[1]`: this is not a string at line 1 column 46",
            ),
            (
                r#"{"mcpServers":{"a":{"command":"c","env":"secret, expected to be hidden"}}}"#,
                "at `mcpServers.a.env`: this is not a map at line 1 column 71",
            ),
            (
                r#"{"mcpServers":{"a":{"type":"http","url":"http://h","headers":{"X-Key":"secret ${UNSET}"}}}}"#,
                "at `mcpServers.a.headers.X-Key`: the variable `UNSET` is not set; set it, or give a default: \
                 `${UNSET:-default}`",
            ),
        ];
        for (config, want) in rows {
            assert_eq!(check(config), want, "{config}");
        }
        assert_eq!(
            check(r#"{"mcpServers":{"a":{"command":"c","oauth":{}}},"other":1}"#).matches("\"c\"").count(),
            1
        );
    }

    #[test]
    fn variables_are_expanded_in_every_string() {
        let config = r#"{"mcpServers":{
            "b":{"command":"${SET}/bin","args":["${SET}"],"env":{"K":"${SET}"}},
            "a":{"type":"http","url":"http://${UNSET:-host}/${SET}","headers":{"X":"${SET}"}}
        }}"#;
        let variables = |name: &str| (name == "SET").then(|| "value".to_owned());
        let servers: [McpServerBuilder; 2] = read(config, &variables).unwrap().try_into().unwrap();
        assert_eq!(servers.each_ref().map(McpServerBuilder::server_name), ["a", "b"]);
        let shown = format!("{servers:?}");
        assert!(
            shown.contains("${UNSET:-host}/${SET}") && shown.contains(r#"Command("${SET}/bin""#),
            "{shown}"
        );
        assert!(!shown.contains("value"), "{shown}");
        let [Target::Url(url), Target::Command(command)] = servers.map(|server| server.target) else {
            panic!("{shown}")
        };
        let command = command.command();
        assert_eq!((&*url.url, &url.headers[0].1[..]), ("http://host/value", "value"));
        assert_eq!(command.get_program(), "value/bin");
        assert!(
            command.get_args().eq(["value"])
                && command.get_envs().eq([("K".as_ref(), Some("value".as_ref()))])
        );
    }

    #[test]
    fn variables_and_defaults_are_put_in() {
        let variables = |name: &str| match name {
            "A" => Some("1".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${A}".into()),
            _ => None,
        };
        let rows = [
            ("plain", Ok("plain")),
            ("${A}", Ok("1")),
            ("a${A}b${A}c", Ok("a1b1c")),
            ("${NO:-d}${NO:-}", Ok("d")),
            ("${NO:-http://h:-1}", Ok("http://h:-1")),
            ("${A:-d}", Ok("1")),
            ("[${EMPTY:-d}]", Ok("[]")),
            ("${NESTED}", Ok("${A}")),
            ("$A {A} ${A", Ok("$A {A} ${A")),
            ("x ${NO}", Err("NO")),
            ("${} ${A}", Ok("${} 1")),
        ];
        for (text, want) in rows {
            let want = want.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(expand(text, &variables), want, "{text}");
        }
    }
}
