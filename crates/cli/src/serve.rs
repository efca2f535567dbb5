//! `toolbridge serve`: sources of tools and a front, chosen on one command line. `docs` and `demo --serve` are short forms of it.

use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::try_join_all;
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serde_json::json;
use tokio::runtime::Builder;
use toolbridge::client::{McpServer, ServerError};
use toolbridge::docs::DocumentsBuilder;
use toolbridge::ipc::Attached;
use toolbridge::park::Parked;
use toolbridge::source::{Combined, Selection};
use toolbridge::stdio::StdioServer;
use toolbridge::tool::{RegistrationError, ServerInfo};
use toolbridge::{Session, ToolSource, http, set};

use crate::args::{NatsAccess, ServeArgs, ServeFront};
use crate::demo::demo_tools;
use crate::nats::NatsFront;
use crate::output::{WithHint, end_of_stdin, ending_signal, print, say, small_runtime};
use crate::{docs, nats};

/// The server's name in an MCP config.
const SERVER: &str = "tools";

/// How long servers have to exit: a little longer than it takes until they get SIGKILL.
const LAST_SIGNALS: Duration = Duration::from_secs(5);

/// What is served, and to which clients.
pub(crate) struct Serve {
    pub(crate) sources: Vec<Source>,
    /// Only these tools; all if empty.
    pub(crate) only: Vec<String>,
    /// Whether each tool's name is prefixed with its source's name. For a command, that is the name in its
    /// server info.
    pub(crate) has_prefixes: bool,
    pub(crate) front: Front,
    pub(crate) park: Option<Park>,
    /// How long an MCP server may take to start.
    pub(crate) start_timeout: Option<Duration>,
    pub(crate) trace: Option<PathBuf>,
    /// The credentials for NATS servers.
    pub(crate) access: NatsAccess,
}

impl Serve {
    /// One source with all its tools.
    pub(crate) fn one(source: Source, front: Front, trace: Option<PathBuf>) -> Self {
        let (sources, only, access) = (vec![source], Vec::new(), NatsAccess::default());
        let (has_prefixes, park, start_timeout) = (false, None, None);
        Self { sources, only, has_prefixes, front, park, start_timeout, trace, access }
    }
}

/// The settings for keeping long results.
pub(crate) struct Park {
    pub(crate) limit_chars: usize,
    pub(crate) save_to: Option<PathBuf>,
}

/// Where tools come from.
pub(crate) enum Source {
    Documents(Box<DocumentsBuilder>),
    /// The servers in an MCP config file of the CLI.
    Config(PathBuf),
    /// Live sessions by name; all if empty.
    Sessions(Vec<String>),
    /// A URL of tools that hosts offer over NATS.
    Nats(String),
    Demo,
    /// An MCP server on its stdin and stdout.
    Command(Vec<OsString>),
}

/// How clients reach the tools.
pub(crate) enum Front {
    /// The process that started this one.
    Stdio,
    Http(HttpFront),
    /// The bridges of this user.
    Session {
        name: Option<String>,
        ends_with_stdin: bool,
    },
    /// Callers on other machines.
    Nats(NatsFront),
}

pub(crate) struct HttpFront {
    listener: TcpListener,
    token_file: Option<PathBuf>,
    hosts: Vec<String>,
    has_metrics: bool,
}

/// Serves what the command line names.
pub(crate) fn run(args: ServeArgs) -> Result<ExitCode> {
    let front = Front::of(args.front)?;
    if let Front::Session { name: Some(name), .. } = &front
        && args.sources.session.contains(name)
    {
        let error = format!("a session called `{name}` would offer its own tools to itself");
        return Err(WithHint { error, hint: "give --name another name than --session" }.into());
    }
    if let Front::Nats(NatsFront { name, .. }) = &front
        && args.sources.nats_tools.iter().any(|url| nats::name_in(url) == name)
    {
        let error = format!("a host of `{name}` would offer its own tools to itself");
        return Err(WithHint { error, hint: "give --name another name than --nats-tools" }.into());
    }
    let mut sources = Vec::new();
    if let Some(workspace) = args.sources.docs {
        sources.push(Source::Documents(Box::new(DocumentsBuilder::from_env()?.workspace(workspace))));
    }
    sources.extend(args.sources.mcp_config.into_iter().map(Source::Config));
    if !args.sources.session.is_empty() {
        sources.push(Source::Sessions(args.sources.session));
    }
    sources.extend(args.sources.nats_tools.into_iter().map(Source::Nats));
    if args.sources.demo {
        sources.push(Source::Demo);
    }
    if !args.sources.command.is_empty() {
        sources.push(Source::Command(args.sources.command));
    }
    let (only, has_prefixes, start_timeout, access) =
        (args.only, args.prefix, args.start_timeout, args.access);
    let park = args.park.map(|limit_chars| Park { limit_chars, save_to: args.park_save });
    serve(Serve { sources, only, has_prefixes, front, park, start_timeout, trace: args.trace.file, access })
}

impl Front {
    /// Called before any server is started, so that a wrong front fails early.
    fn of(args: ServeFront) -> Result<Self> {
        let ServeFront {
            http,
            token_file,
            allow_host: hosts,
            metrics: has_metrics,
            name,
            nats,
            host,
            max_calls,
            ..
        } = args;
        if let (Some(url), Some(name)) = (nats, &name) {
            return Ok(Self::Nats(NatsFront { url, name: name.clone(), host, max_calls }));
        }
        Ok(match (http, name) {
            (Some(address), _) => {
                let listener = listen(&address, token_file.is_some())?;
                Self::Http(HttpFront { listener, token_file, hosts, has_metrics })
            }
            (None, Some(name)) => Self::Session { name: Some(name), ends_with_stdin: false },
            (None, None) => Self::Stdio,
        })
    }
}

fn listen(address: &str, has_tokens: bool) -> Result<TcpListener> {
    let failed = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "name another port, or 0 for one that is free",
            io::ErrorKind::PermissionDenied => "name a port above 1023",
            _ => "name an address of this machine and a port, such as 127.0.0.1:8000",
        };
        WithHint { error: format!("cannot listen on `{address}`: {error}"), hint }
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    if !has_tokens && !listener.local_addr().map_err(failed)?.ip().is_loopback() {
        let error = format!("`{address}` can be reached from other machines, and no token is required");
        let hint = "listen on 127.0.0.1, or require a token: --token-file FILE";
        return Err(WithHint { error, hint }.into());
    }
    Ok(listener)
}

/// Serves until the client disconnects, a signal arrives or stdin ends.
pub(crate) fn serve(serve: Serve) -> Result<ExitCode> {
    let starts = |source: &Source| matches!(source, Source::Config(_) | Source::Command(_));
    let starts_servers = serve.sources.iter().any(starts);
    // One client, and tools that wait for I/O: a single thread is enough and saves wake-ups. The demo has a
    // tool that blocks its thread.
    let is_small =
        matches!(serve.front, Front::Stdio) && !serve.sources.iter().any(|it| matches!(it, Source::Demo));
    let runtime =
        if is_small { small_runtime()? } else { Builder::new_multi_thread().enable_all().build()? };
    let served = runtime.block_on(async {
        // One handler from start to end, so that no signal is lost in between.
        let mut signalled = pin!(ending_signal()?);
        let opened = Opened::open(serve.sources, serve.has_prefixes, serve.start_timeout, &serve.access);
        let (tools, info) = tokio::select! {
            opened = opened => opened?.joined(&serve.only, serve.park)?,
            code = &mut signalled => return Ok(code),
        };
        offer(tools, info, serve.front, serve.trace.as_deref(), &serve.access, signalled).await
    });
    // Do not wait for a tool that blocks its thread.
    runtime.shutdown_background();
    if starts_servers {
        wait_for_servers();
    }
    served
}

/// Waits until all servers have exited: the threads that stop them end with this process.
fn wait_for_servers() {
    let until = Instant::now() + LAST_SIGNALS;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let has_child = || !matches!(waitid(WaitId::All, options), Err(Errno::CHILD));
    while has_child() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The opened sources.
#[derive(Default)]
struct Opened {
    tools: Combined,
    /// The server info of each source, if it has one.
    infos: Vec<Option<ServerInfo>>,
    has_prefixes: bool,
}

impl Opened {
    async fn open(
        sources: Vec<Source>,
        has_prefixes: bool,
        start_timeout: Option<Duration>,
        access: &NatsAccess,
    ) -> Result<Self> {
        let mut opened = Self { has_prefixes, ..Self::default() };
        for source in sources {
            match source {
                Source::Documents(builder) => {
                    opened.add("docs", builder.open()?, Some(docs::info()))?;
                }
                Source::Sessions(names) => {
                    let attached = Attached::new(names)?;
                    let info = Some(attached.info()).filter(|info| info.instructions.is_some());
                    // No prefix: it keeps the tools of several sessions apart itself.
                    opened.put(info, |tools| tools.with_name("--session", attached))?;
                }
                Source::Nats(url) => {
                    let (name, tools) = nats::tools(&url, access).await?;
                    opened.add(&name, tools, None)?;
                }
                Source::Demo => {
                    opened.add("demo", demo_tools(Arc::default())?, None)?;
                }
                Source::Config(file) => {
                    let servers = McpServer::from_config(file)?.into_iter();
                    // Not an async closure: rustc 1.95 panics on one here in incremental builds.
                    let servers = servers.map(|mut server| async move {
                        set!(server: start_timeout = start_timeout);
                        Ok::<_, ServerError>((server.prefix(), server.start().await?))
                    });
                    for (prefix, server) in try_join_all(servers).await? {
                        opened.add_server(&prefix, server)?;
                    }
                }
                Source::Command(command) => {
                    let [program, args @ ..] = &command[..] else { continue };
                    let mut server = McpServer::command(program).args(args);
                    set!(server: start_timeout = start_timeout);
                    let server = server.start().await?;
                    opened.add_server(&own_prefix(&server), server)?;
                }
            }
        }
        Ok(opened)
    }

    fn add_server(&mut self, prefix: &str, server: McpServer) -> Result<()> {
        let info = server.info();
        self.add(prefix, server, info)
    }

    fn add(&mut self, prefix: &str, source: impl ToolSource, info: Option<ServerInfo>) -> Result<()> {
        let has_prefix = self.has_prefixes && !prefix.is_empty();
        self.put(info, |tools| {
            if has_prefix { tools.with_prefix(prefix, source) } else { tools.with_name(prefix, source) }
        })
    }

    fn put(
        &mut self,
        info: Option<ServerInfo>,
        with: impl FnOnce(Combined) -> Result<Combined, RegistrationError>,
    ) -> Result<()> {
        let tools = with(std::mem::take(&mut self.tools));
        self.tools = tools.map_err(|error| clash(error, self.has_prefixes))?;
        self.infos.push(info);
        Ok(())
    }

    /// All sources as one, filtered by `only`.
    fn joined(
        self,
        only: &[String],
        park: Option<Park>,
    ) -> Result<(Arc<dyn ToolSource>, Option<ServerInfo>)> {
        let mut tools: Arc<dyn ToolSource> =
            if only.is_empty() { Arc::new(self.tools) } else { Arc::new(Selection::new(self.tools, only)?) };
        // Around all sources, so that a result of one can be an argument of another.
        if let Some(park) = park {
            let parked = Parked::new(tools).map_err(|error| clash(error, self.has_prefixes))?;
            let parked = parked.limit_chars(park.limit_chars);
            tools = match park.save_to {
                Some(dir) => Arc::new(parked.save_to(dir)?),
                None => Arc::new(parked),
            };
        }
        let info = <[_; 1]>::try_from(self.infos).map_or_else(joined_info, |[only]| only);
        Ok((tools, info))
    }
}

/// The joined server info of several sources.
fn joined_info(infos: Vec<Option<ServerInfo>>) -> Option<ServerInfo> {
    let texts: Vec<_> = infos.into_iter().flatten().filter_map(|info| info.instructions).collect();
    let instructions = texts.join("\n\n");
    (!texts.is_empty()).then(|| ServerInfo { instructions: Some(instructions), ..ServerInfo::default() })
}

/// The prefix of a server started by a command, from its server info: the command itself may be `uvx` or
/// `node`.
fn own_prefix(server: &McpServer) -> String {
    let own = server.info().map_or_else(|| server.name().to_owned(), |info| info.name);
    McpServer::command("").name(own).prefix()
}

fn clash(error: RegistrationError, has_prefixes: bool) -> anyhow::Error {
    match error {
        RegistrationError::Duplicate(_) if !has_prefixes => {
            let hint = "add --prefix: each tool then has the name of its source before its own";
            WithHint { error: error.to_string(), hint }.into()
        }
        error => error.into(),
    }
}

async fn offer(
    tools: Arc<dyn ToolSource>,
    info: Option<ServerInfo>,
    front: Front,
    trace: Option<&Path>,
    access: &NatsAccess,
    signalled: impl Future<Output = ExitCode>,
) -> Result<ExitCode> {
    match front {
        Front::Stdio => {
            let mut server = StdioServer::builder(tools);
            set!(server: info = info, trace = trace);
            tokio::select! {
                ended = server.serve() => ended?,
                _ = signalled => {}
            }
        }
        Front::Http(front) => over_http(tools, info.unwrap_or_default(), front, trace, signalled).await?,
        Front::Nats(front) => {
            nats::serve(tools, info.unwrap_or_default(), front, trace, access, signalled).await?;
        }
        Front::Session { name, ends_with_stdin } => {
            let mut session = Session::builder(tools);
            set!(session: info = info, name = name, trace = trace);
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
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn over_http(
    tools: Arc<dyn ToolSource>,
    info: ServerInfo,
    front: HttpFront,
    trace: Option<&Path>,
    signalled: impl Future<Output = ExitCode>,
) -> Result<()> {
    let count = tools.tools().len();
    let mut server = http::Server::builder(tools).info(info);
    set!(server: trace = trace);
    for host in front.hosts {
        server = server.allow_host(host);
    }
    if let Some(file) = front.token_file {
        server = server.bearer_tokens_from(file)?;
    }
    if front.has_metrics {
        server = server.metrics();
    }
    // Before anything is printed: a trace that cannot be written is an error at the start.
    let service = server.service()?;
    let listener = tokio::net::TcpListener::from_std(front.listener)?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    say(&format!("{count} tools at {url}"));
    print(format!("{}\n", json!({ "url": url })).as_bytes())?;
    service.serve(listener, async { _ = signalled.await }).await?;
    Ok(())
}

/// A path for the MCP config, which is JSON and cannot hold a path that is not UTF-8.
fn in_json(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        let error = format!(
            "the path of the session, `{}`, is not UTF-8 and cannot be written to a config",
            path.display()
        );
        WithHint { error, hint: "set TMPDIR to a directory whose path is UTF-8" }.into()
    })
}
