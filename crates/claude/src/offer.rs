//! The tools of a request, and how the CLI reaches them.

use std::sync::Arc;

use serde_json::{Value, json};
use toolbridge_core::ipc::IpcError;
use toolbridge_core::source::Selection;
use toolbridge_core::tool::{ServerInfo, ToolList, check_server_name};
use toolbridge_core::trace::{Process as Side, Tracer, trace_path};
use toolbridge_core::{Session, ToolSource, set};
use tracing::Span;

use crate::builder::Options;
use crate::callbacks::restriction::{Restrictions, canonical, is_among, no_such_tool};
use crate::model::DEFAULT_SERVER_NAME;
use crate::opaque::Opaque;
use crate::request::Request;
use crate::settings::{NO_HOOKS_VARIABLE, Settings};
use crate::tools::RequestTools;
use crate::{ClaudeCodeError, Transport};

/// Tools under a server's name.
#[derive(Debug, Clone)]
pub(crate) struct ServerTools {
    pub(crate) source: Opaque<dyn ToolSource>,
    pub(crate) server: String,
    pub(crate) transport: Transport,
}

/// Tools as described to the CLI.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    pub(crate) server: String,
    pub(crate) transport: Transport,
    pub(crate) list: ToolList,
    pub(crate) may_change: bool,
}

/// A server that the CLI can reach.
pub(crate) struct Offer {
    pub(crate) server: String,
    pub(crate) tools: Arc<RequestTools>,
    pub(crate) channel: Channel,
}

/// How the CLI reaches a server.
pub(crate) enum Channel {
    /// Through a bridge that the CLI starts.
    Stdio(Arc<Session>),
    /// Over the control channel.
    Sdk { source: Arc<dyn ToolSource>, info: ServerInfo, tracer: Tracer },
}

impl ServerTools {
    /// The request's own tools, if it has any.
    pub(crate) fn of(request: &Request) -> Result<Option<Self>, ClaudeCodeError> {
        let Some(source) = request.tools.clone() else { return Ok(None) };
        let server = request.server_name.as_deref().unwrap_or(DEFAULT_SERVER_NAME);
        check_server_name(server, &source.0.tools())?;
        Ok(Some(Self { source, server: server.into(), transport: request.transport }))
    }

    /// The tools' names as the CLI uses them.
    fn full_names(&self) -> Vec<String> {
        self.source.0.tools().iter().map(|tool| format!("mcp__{}__{}", self.server, tool.name)).collect()
    }

    /// The tools selected by the request; `None` if none is left.
    pub(crate) fn chosen(
        mut self,
        request: &Request,
        settings: &Settings,
    ) -> Result<Option<Self>, ClaudeCodeError> {
        if let Some(names) = &request.only {
            self.source = Opaque(Arc::new(Selection::new(self.source.0, names)?));
        }
        if self.source.0.tools().is_empty() {
            return Ok(None);
        }
        if settings.mcp_servers.contains_key(&self.server) {
            let reason = format!("both the toolset and an MCP server are called `{}`", self.server);
            return Err(ClaudeCodeError::invalid(reason));
        }
        Ok(Some(self))
    }

    /// The description for the CLI; `auto` is the transport that [`Transport::Auto`] selects.
    pub(crate) fn described(&self, auto: Transport) -> Described {
        let source = &self.source.0;
        Described {
            server: self.server.clone(),
            transport: if self.transport == Transport::Auto { auto } else { self.transport }.resolved(),
            list: source.tools(),
            may_change: !source.changes().is_never(),
        }
    }
}

impl Described {
    /// Makes the tools reachable for a CLI, and returns the entry for its MCP servers.
    pub(crate) async fn offer(
        &self,
        options: &Options,
        limit: Option<usize>,
    ) -> Result<(Offer, Value), ClaudeCodeError> {
        let server = self.server.clone();
        let failed = |error| ClaudeCodeError::session(&self.server, error);
        let (list, restrictions) = (self.list.clone(), options.restrictions.clone());
        let tools = Arc::new(RequestTools::new(server.clone(), list, restrictions, limit, self.may_change));
        let source = tools.offered();
        if self.transport == Transport::Sdk {
            let entry = json!({ "type": "sdk", "name": server });
            let file = trace_path(options.trace.as_deref());
            let tracer =
                Tracer::open(Side::Parent, file.as_deref()).map_err(IpcError::from).map_err(failed)?;
            let info = options.info.clone().unwrap_or_default();
            return Ok((Offer { server, tools, channel: Channel::Sdk { source, info, tracer } }, entry));
        }
        let mut builder = Session::builder(source);
        let info = options.info.clone();
        set!(builder: dir = &options.session_dir, bridge = &options.bridge, trace = &options.trace, info = info);
        let session = builder.start().await.map_err(failed)?;
        let entry = serde_json::to_value(session.mcp_server().map_err(failed)?).map_err(|error| {
            ClaudeCodeError::invalid(format!("the bridge's path cannot be written as JSON: {error}"))
        })?;
        Ok((Offer { server, tools, channel: Channel::Stdio(Arc::new(session)) }, entry))
    }
}

impl Offer {
    /// Its session, if it has one. The session ends with the offer, even if other holders remain.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        match &self.channel {
            Channel::Stdio(session) => Some(session),
            Channel::Sdk { .. } => None,
        }
    }
}

impl Offer {
    /// Sets the parent span of tool calls.
    pub(crate) fn surround_calls(&self, span: Option<Span>) {
        match &self.channel {
            Channel::Stdio(session) => session.surround_calls(span),
            Channel::Sdk { tracer, .. } => tracer.surround(span),
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Some(session) = self.session() {
            session.abandon();
        }
    }
}

/// The restricted or built-in tools whose existence only the CLI can confirm.
///
/// # Errors
///
/// When such a tool cannot exist, or the settings disable restrictions.
pub(crate) fn unconfirmed_tools(
    restrictions: &Restrictions,
    settings: &Settings,
    tools: Option<&ServerTools>,
    strict: bool,
) -> Result<Vec<String>, ClaudeCodeError> {
    let switches_off = settings.env.contains_key(NO_HOOKS_VARIABLE) || settings.has_argument("--bare");
    if switches_off && !restrictions.is_empty() {
        return Err(ClaudeCodeError::invalid(format!(
            "`--bare` and `{NO_HOOKS_VARIABLE}` disable the hooks that enforce restrictions of tool parameters"
        )));
    }
    let server = tools.map(|tools| tools.server.as_str());
    let own = tools.map(ServerTools::full_names).unwrap_or_default();
    let may_come = |tool: &str| match tool.strip_prefix("mcp__") {
        Some(name) => {
            let of = |server: &String| {
                name.strip_prefix(server.as_str()).is_some_and(|name| name.starts_with("__"))
            };
            !strict || settings.mcp_servers.keys().any(of)
        }
        None => {
            settings.offered_builtins().is_none_or(|names| names.iter().any(|name| canonical(name) == tool))
        }
    };
    let unknown = restrictions.tools().filter(|tool| !is_among(tool, &own, server));
    let restricted = unknown
        .map(|tool| if may_come(tool) { Ok(tool.to_owned()) } else { Err(no_such_tool(tool, &own, server)) });
    restricted.chain(settings.unknown_builtins().map(|tool| Ok(tool.to_owned()))).collect()
}
