//! `toolbridge serve`: sources of tools and a front, chosen on one command line. `docs` and `demo --serve` are short forms of it.

use std::ffi::OsString;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use toolbridge::core::Selection;
use toolbridge::core::trace::{Process, Tracer, trace_path};
use toolbridge::docs::DocumentsBuilder;
use toolbridge::ipc::Attached;
use toolbridge::{Combined, McpServer, RegistrationError, ServerInfo, Session, ToolSource, http};

use crate::args::{ServeArgs, ServeFront};
use crate::demo::demo_tools;
use crate::docs;
use crate::output::{WithHint, end_of_stdin, ending_signal, print, say};

/// The server's name in an MCP config.
const SERVER: &str = "tools";

/// What is served, and to whom.
pub(crate) struct Serve {
    pub(crate) sources: Vec<Source>,
    /// Only these tools; all, where none is named.
    pub(crate) only: Vec<String>,
    /// Whether each tool has the name of its source before its own.
    pub(crate) has_prefixes: bool,
    pub(crate) front: Front,
    pub(crate) trace: Option<PathBuf>,
}

/// Where tools come from.
pub(crate) enum Source {
    Documents(Box<DocumentsBuilder>),
    /// The servers that a file of the CLI's names.
    Config(PathBuf),
    /// Live sessions by their names; all, where none is named.
    Sessions(Vec<String>),
    Demo,
    /// An MCP server on its stdin and stdout.
    Command(Vec<OsString>),
}

/// Who may call them.
pub(crate) enum Front {
    /// Who started this process.
    Stdio,
    Http(HttpFront),
    /// Bridges of this user.
    Session {
        name: Option<String>,
        ends_with_stdin: bool,
    },
}

pub(crate) struct HttpFront {
    pub(crate) address: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) hosts: Vec<String>,
    pub(crate) has_metrics: bool,
}

/// Serves what the command line names.
pub(crate) fn run(args: ServeArgs) -> Result<ExitCode> {
    let mut sources = Vec::new();
    if let Some(workspace) = args.sources.docs {
        sources.push(Source::Documents(Box::new(docs::workspace(workspace)?)));
    }
    sources.extend(args.sources.mcp_config.into_iter().map(Source::Config));
    if !args.sources.session.is_empty() {
        sources.push(Source::Sessions(args.sources.session));
    }
    if args.sources.demo {
        sources.push(Source::Demo);
    }
    if !args.sources.command.is_empty() {
        sources.push(Source::Command(args.sources.command));
    }
    let ServeFront { http, token_file, allow_host, metrics, name, .. } = args.front;
    let front = match (http, name) {
        (Some(address), _) => {
            Front::Http(HttpFront { address, token_file, hosts: allow_host, has_metrics: metrics })
        }
        (None, Some(name)) => Front::Session { name: Some(name), ends_with_stdin: false },
        (None, None) => Front::Stdio,
    };
    serve(Serve { sources, only: args.only, has_prefixes: args.prefix, front, trace: args.trace.file })
}

/// Serves until the client, a signal or the end of stdin ends it.
pub(crate) fn serve(serve: Serve) -> Result<ExitCode> {
    let runtime = toolbridge::runtime(Builder::new_multi_thread())?;
    let served = runtime.block_on(async {
        let signalled = ending_signal()?;
        let opened = Opened::open(serve.sources, serve.has_prefixes);
        let (tools, info) = tokio::select! {
            opened = opened => opened?.joined(&serve.only)?,
            code = signalled => return Ok(code),
        };
        offer(tools, info, serve.front, serve.trace.as_deref()).await
    });
    // A tool that blocks its thread must not hold the process.
    runtime.shutdown_background();
    served
}

/// Sources that are ready.
#[derive(Default)]
struct Opened {
    tools: Combined,
    /// How each introduces itself.
    infos: Vec<ServerInfo>,
    has_prefixes: bool,
}

impl Opened {
    async fn open(sources: Vec<Source>, has_prefixes: bool) -> Result<Self> {
        let mut opened = Self { has_prefixes, ..Self::default() };
        for source in sources {
            match source {
                Source::Documents(builder) => {
                    opened.add("docs", builder.open()?, docs::info())?;
                }
                Source::Sessions(names) => {
                    let attached = Attached::new(names)?;
                    // It tells its sessions apart by itself.
                    let info = attached.info();
                    opened.add("", attached, info)?;
                }
                Source::Demo => {
                    opened.add("demo", demo_tools(Arc::default())?, ServerInfo::default())?;
                }
                Source::Config(file) => {
                    let servers = McpServer::from_config(file)?.into_iter();
                    let servers = servers.map(|server| async { (server.prefix(), server.start().await) });
                    for (prefix, server) in futures_util::future::join_all(servers).await {
                        opened.add_server(&prefix, server?)?;
                    }
                }
                Source::Command(command) => {
                    let [program, args @ ..] = &command[..] else { continue };
                    let server = McpServer::command(program).args(args);
                    let prefix = toolbridge::McpServerBuilder::from(server.clone()).prefix();
                    opened.add_server(&prefix, server.start().await?)?;
                }
            }
        }
        Ok(opened)
    }

    fn add_server(&mut self, prefix: &str, server: McpServer) -> Result<()> {
        let info = server.info().unwrap_or_default();
        self.add(prefix, server, info)
    }

    fn add(&mut self, prefix: &str, source: impl ToolSource, info: ServerInfo) -> Result<()> {
        let tools = std::mem::take(&mut self.tools);
        let prefix = if self.has_prefixes { prefix } else { "" };
        self.tools = if prefix.is_empty() { tools.with(source) } else { tools.with_prefix(prefix, source) }
            .map_err(clash)?;
        self.infos.push(info);
        Ok(())
    }

    /// All of it as one source, or some of its tools.
    fn joined(self, only: &[String]) -> Result<(Arc<dyn ToolSource>, ServerInfo)> {
        let tools: Arc<dyn ToolSource> =
            if only.is_empty() { Arc::new(self.tools) } else { Arc::new(Selection::new(self.tools, only)?) };
        let info = <[ServerInfo; 1]>::try_from(self.infos).map_or_else(of_several, |[only]| only);
        Ok((tools, info))
    }
}

/// How several sources introduce themselves together.
fn of_several(infos: Vec<ServerInfo>) -> ServerInfo {
    let said: Vec<_> = infos.into_iter().filter_map(|info| info.instructions).collect();
    let instructions = (!said.is_empty()).then(|| said.join("\n\n"));
    ServerInfo { instructions, ..ServerInfo::default() }
}

fn clash(error: RegistrationError) -> anyhow::Error {
    match error {
        RegistrationError::Duplicate(_) => {
            let hint = "add --prefix: each tool then has the name of its source before its own";
            WithHint { error: error.to_string(), hint }.into()
        }
        error => error.into(),
    }
}

async fn offer(
    tools: Arc<dyn ToolSource>,
    info: ServerInfo,
    front: Front,
    trace: Option<&Path>,
) -> Result<ExitCode> {
    match front {
        Front::Stdio => {
            toolbridge::serve_stdio_async(tools, info, trace).await?;
            Ok(ExitCode::SUCCESS)
        }
        Front::Http(front) => over_http(tools, info, front, trace).await,
        Front::Session { name, ends_with_stdin } => {
            let mut session = Session::builder(tools).server(info);
            toolbridge::core::set!(session: name = name, trace = trace);
            let signalled = ending_signal()?;
            let end = if ends_with_stdin { Some(end_of_stdin()?) } else { None };
            let session = session.start().await?;
            let hello = json!({
                "socket": in_json(session.socket_path())?,
                "schema": in_json(session.schema_path())?,
                "mcp_config": session.mcp_config(SERVER)?,
            });
            print(format!("{hello}\n").as_bytes())?;
            tokio::select! {
                () = async { match end { Some(end) => end.await, None => pending().await } } => {}
                _ = signalled => {}
            }
            session.stop().await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn over_http(
    tools: Arc<dyn ToolSource>,
    info: ServerInfo,
    front: HttpFront,
    trace: Option<&Path>,
) -> Result<ExitCode> {
    let signalled = ending_signal()?;
    let count = tools.tools().len();
    let mut service =
        http::service(tools).info(info).tracer(Tracer::open(Process::Server, trace_path(trace).as_deref())?);
    for host in front.hosts {
        service = service.allow_host(host);
    }
    if let Some(file) = front.token_file {
        service = service.bearer_tokens_from(file)?;
    }
    if front.has_metrics {
        service = service.metrics();
    }
    let address = &front.address;
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen at `{address}`"))?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    say(&format!("{count} tools at {url}"));
    print(format!("{}\n", json!({ "url": url })).as_bytes())?;
    http::serve(listener, service.build(), async { _ = signalled.await }).await?;
    Ok(ExitCode::SUCCESS)
}

/// A path for the config that the CLI reads, which is JSON: that has no way to write every path.
fn in_json(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        let error =
            format!("the path of the session, `{}`, is not UTF-8 and fits into no config", path.display());
        WithHint { error, hint: "set TMPDIR to a directory whose path is UTF-8" }.into()
    })
}
