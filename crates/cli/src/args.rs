//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use toolbridge::docs::LogLevel;
use toolbridge::model::Transport;
use tracing_subscriber::filter::LevelFilter;

pub(crate) const LOG_VARIABLE: &str = "TOOLBRIDGE_LOG";

/// Lets a model in the Claude Code CLI call functions inside a running process.
#[derive(Debug, Parser)]
#[command(
    name = "toolbridge",
    version,
    arg_required_else_help = true,
    after_help = "Examples:
  toolbridge demo                       call demo tools through a real bridge, and see how long it takes
  toolbridge demo --serve               host the demo tools, for `claude --mcp-config` or any MCP client
  toolbridge doctor                     check that everything is installed
  toolbridge ask \"What is 40 + 2?\" --tools demo
                                        ask a model in the CLI, with the demo tools in it
  toolbridge docs ~/notes               serve the document tools to any MCP client
  toolbridge sessions                   list the sessions of this user
  toolbridge trace FILE                 show what a session did, from what it wrote with `--trace FILE`
  toolbridge call SOCKET echo '{\"text\":\"hi\"}'
                                        call a tool of a live session"
)]
pub(crate) struct Args {
    /// Log to stderr, as `TOOLBRIDGE_LOG` does [default: warn; off for `bridge`]
    #[arg(long, global = true, value_name = "LEVEL", value_parser = level())]
    pub(crate) log: Option<LevelFilter>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn level() -> impl TypedValueParser<Value = LevelFilter> {
    let names = PossibleValuesParser::new(["off", "error", "warn", "info", "debug", "trace"]);
    names.try_map(|name| name.parse::<LevelFilter>())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the MCP server that the CLI starts: relay between stdin/stdout and a session
    #[command(
        after_help = "The Claude Code CLI runs this command, as a session's MCP config tells it to. To run it by hand:
  toolbridge bridge /tmp/claudecode_ipc_ID.sock /tmp/claudecode_ipc_schema_ID.json"
    )]
    Bridge {
        /// The session's socket
        socket: PathBuf,
        /// The session's schema file
        schema: PathBuf,
        #[command(flatten)]
        trace: TraceTo,
    },
    /// Run an MCP server with the tools of all live sessions that have a name
    #[command(after_help = "Examples:
  claude mcp add live -- toolbridge attach          once; every CLI then has the tools of all named sessions
  toolbridge attach shop                            only those of sessions called `shop`")]
    Attach {
        /// The sessions' names [default: all named sessions]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        trace: TraceTo,
    },
    /// Call demo tools in this process through a real bridge, as the CLI would
    #[command(after_help = "Examples:
  toolbridge demo
  toolbridge demo --json | jq .calls
  toolbridge demo --serve               then point an MCP client at the config it prints; ends with stdin")]
    Demo {
        /// Host the demo tools until stdin ends or SIGINT/SIGTERM/SIGHUP; print one JSON line with `socket`, `schema` and `mcp_config`
        #[arg(long, conflicts_with = "json")]
        serve: bool,
        /// The name under which `toolbridge attach` finds the tools that --serve hosts
        #[arg(long, requires = "serve")]
        name: Option<String>,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        trace: TraceTo,
    },
    /// Offer tools from one or more sources to MCP clients, CLIs or other machines
    #[command(
        override_usage = "toolbridge serve [OPTIONS] [--docs DIR] [--mcp-config FILE] [--session NAME] [--demo] [--http ADDR | --name NAME] [-- COMMAND...]",
        after_help = "Examples:
  toolbridge serve --name time -- uvx mcp-server-time
                                        one process of a server for every CLI: claude mcp add live -- toolbridge attach
  toolbridge serve --mcp-config .mcp.json --prefix --http 127.0.0.1:8000
                                        all servers of a file, for HTTP clients on this machine
  toolbridge serve --docs ~/notes --session shop --only manual_find --only order
                                        some tools of several sources, on stdin and stdout
  toolbridge serve --demo --http 0.0.0.0:8000 --token-file tokens --allow-host tools.example
                                        for other machines; encryption needs a proxy in front
  toolbridge serve --demo --nats nats://127.0.0.1:4222 --name gpu
                                        for callers on other machines, together with other hosts called `gpu`
  toolbridge serve --nats-tools nats://127.0.0.1:4222/gpu
                                        the tools of all hosts called `gpu`, on stdin and stdout

The name of a source is `docs`, `demo`, the server's name in FILE, the hosts' name in URL, or the name that the server of COMMAND reports;
sessions have none.
It ends on SIGINT, SIGTERM or SIGHUP, and on stdin and stdout when its client disconnects; it stops the servers that it started."
    )]
    Serve(Box<ServeArgs>),
    /// Ask a model in the Claude Code CLI, which may call tools of this process
    #[command(after_help = "Examples:
  toolbridge ask \"What is 40 + 2?\" --tools demo
  toolbridge ask --tools demo --stream \"Count down from 3, then show me a picture\"
  toolbridge ask --tools docs --workspace ~/notes \"Copy what the manuals say about backups to backups.md\"
  echo \"Sum this up: …\" | toolbridge ask - --json | jq -r .text")]
    Ask(AskArgs),
    /// Run an MCP server with the document tools: find sections of manuals, copy them into a vault
    #[command(after_help = "Examples:
  toolbridge docs ~/notes                         serve a folder of notes on stdin and stdout, for any MCP client
  claude mcp add notes -- toolbridge docs ~/notes
                                                  add it to Claude Code
  toolbridge docs --init --workspace ~/library    create ~/library/manuals (with an example) and ~/library/vault

Flags take precedence over the variables WORKSPACE_ROOT, MANUALS_ROOT, VAULT_ROOT, ALLOW_FILE_SCOPE, HARD_MAX_SECTIONS,
HARD_MAX_CHARS, HARD_MAX_COPY_CHARS, DOCS_DAILY and LOG_LEVEL. One JSON line for each call goes to stderr; it never contains text of a
document.")]
    Docs(DocsArgs),
    /// Check the installation: the CLI, the temporary directory, the bridge
    #[command(after_help = "Examples:
  toolbridge doctor
  toolbridge doctor --claude ~/bin/claude --json")]
    Doctor {
        /// The CLI's executable, instead of the one found on this machine
        #[arg(long, value_name = "PATH")]
        claude: Option<PathBuf>,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Call a tool of a live session
    #[command(after_help = "Examples:
  toolbridge call /tmp/claudecode_ipc_ID.sock add '{\"a\":1,\"b\":2}'
  toolbridge sessions                   lists the sockets")]
    Call {
        /// The session's socket
        socket: PathBuf,
        /// The tool's name
        tool: String,
        /// The arguments, a JSON object
        #[arg(default_value = "{}", value_name = "JSON")]
        arguments: String,
        /// Print the whole result as JSON instead of its text
        #[arg(long)]
        json: bool,
    },
    /// List the live and stale sessions of this user
    #[command(after_help = "Examples:
  toolbridge sessions
  toolbridge sessions --watch           again each second, with calls per second
  toolbridge sessions --clean           remove what dead sessions left behind")]
    Sessions {
        /// Remove the stale ones
        #[arg(long)]
        clean: bool,
        /// Refresh the list every second, until SIGINT, SIGTERM or SIGHUP
        #[arg(long, conflicts_with = "clean")]
        watch: bool,
        /// Print one JSON array; with --watch, one on each line
        #[arg(long)]
        json: bool,
    },
    /// Show a trace: the calls, and how long each part of them took
    #[command(after_help = "Examples:
  toolbridge demo --trace demo.jsonl && toolbridge trace demo.jsonl
  toolbridge trace demo.jsonl --html              write demo.html, a page for any browser
  toolbridge trace demo.jsonl --json | jq '.calls[] | select(.outcome != \"ok\")'

A trace has no arguments and no results in it, only names, ids, sizes, times and outcomes.")]
    Trace(TraceArgs),
    /// Print the man page or a completion script
    #[command(after_help = "Examples:
  toolbridge generate man > toolbridge.1
  toolbridge generate bash > /etc/bash_completion.d/toolbridge")]
    Generate {
        /// What to print
        what: Generated,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Offer only this tool; may be repeated
    #[arg(long, value_name = "TOOL")]
    pub(crate) only: Vec<String>,
    /// Prefix each tool's name with the name of its source: `time_now`
    #[arg(long)]
    pub(crate) prefix: bool,
    /// Keep results of more than CHARS characters in this process, and give the model a handle, which it can
    /// pass to any of the tools [default: 25000]
    #[arg(long, value_name = "CHARS", num_args = 0..=1, default_missing_value = "25000", require_equals = true)]
    pub(crate) park: Option<usize>,
    /// Let the model save kept results to new files in DIR
    #[arg(long, value_name = "DIR", requires = "park")]
    pub(crate) park_save: Option<PathBuf>,
    /// How long each MCP server may take to answer and list its tools when it is started, in seconds [default: 30]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub(crate) start_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) trace: TraceTo,
    // Last: a help heading applies to all arguments after it.
    #[command(flatten)]
    pub(crate) sources: ServeSources,
    #[command(flatten)]
    pub(crate) front: ServeFront,
    #[command(flatten)]
    pub(crate) access: NatsAccess,
}

/// Where the tools come from.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Where the tools come from")]
#[group(required = true, multiple = true)]
pub(crate) struct ServeSources {
    /// The document tools on the folder DIR, as in `toolbridge docs DIR`
    #[arg(long, value_name = "DIR")]
    pub(crate) docs: Option<PathBuf>,
    /// The MCP servers listed in FILE, in the format of the CLI's `.mcp.json`; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp_config: Vec<PathBuf>,
    /// The tools of live sessions called NAME; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Vec<String>,
    /// The tools that hosts offer over NATS: of any host of a name, `nats://ADDR/NAME`; of one host,
    /// `nats://ADDR/NAME@HOST`; of all hosts at once, `nats://ADDR/NAME@*`; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) nats_tools: Vec<String>,
    /// The tools of `toolbridge demo`
    #[arg(long)]
    pub(crate) demo: bool,
    /// An MCP server to start, which communicates on its stdin and stdout
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// Who may call the tools.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Who may call them")]
pub(crate) struct ServeFront {
    /// An MCP client on stdin and stdout [default]
    #[arg(long, conflicts_with_all = ["http", "name", "nats"])]
    pub(crate) stdio: bool,
    /// MCP clients over HTTP, at `http://ADDR/mcp`; prints one JSON line with `url`
    #[arg(long, value_name = "ADDR", conflicts_with = "name")]
    pub(crate) http: Option<String>,
    /// Require HTTP clients to send one of the tokens in FILE, one per line; needed where other machines can
    /// reach ADDR
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) token_file: Option<PathBuf>,
    /// Accept HTTP requests for this host name too, and not only for `localhost` or 127.0.0.1; may be
    /// repeated
    #[arg(long, value_name = "HOST", requires = "http")]
    pub(crate) allow_host: Vec<String>,
    /// Serve metrics for Prometheus at /metrics
    #[arg(long, requires = "http")]
    pub(crate) metrics: bool,
    /// Every CLI of this user with `toolbridge attach`, under this name; prints one JSON line with `socket`, `schema` and `mcp_config`
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Callers on other machines, over the NATS server at URL, under the name given with --name, together
    /// with all other hosts of that name; prints one JSON line with `nats`, `name` and `host`
    #[arg(long, value_name = "URL", requires = "name", conflicts_with = "http")]
    pub(crate) nats: Option<String>,
    /// This host's name, by which callers can address it [default: the machine's name]
    #[arg(long, value_name = "HOST", requires = "nats")]
    pub(crate) host: Option<String>,
    /// The number of calls over NATS that run at a time; further ones are left to other hosts [default: 512]
    #[arg(long, value_name = "N", requires = "nats")]
    pub(crate) max_calls: Option<usize>,
}

/// The credentials for a NATS server.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Credentials for NATS, if not in the URL")]
#[expect(clippy::struct_field_names, reason = "they are the names of options")]
pub(crate) struct NatsAccess {
    /// A credentials file, as `nsc` writes it
    #[arg(long, value_name = "FILE", conflicts_with = "nats_nkey")]
    pub(crate) nats_creds: Option<PathBuf>,
    /// A file with the seed of an nkey
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_nkey: Option<PathBuf>,
    /// A file with the certificate authorities to trust for the server's certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_ca: Option<PathBuf>,
    /// A file with the client certificate
    #[arg(long, value_name = "FILE", requires = "nats_key")]
    pub(crate) nats_cert: Option<PathBuf>,
    /// A file with the client certificate's private key
    #[arg(long, value_name = "FILE", requires = "nats_cert")]
    pub(crate) nats_key: Option<PathBuf>,
    /// The prefix of inbox subjects
    #[arg(long, value_name = "PREFIX")]
    pub(crate) nats_inbox: Option<String>,
}

/// Where to write a trace.
#[derive(Debug, clap::Args)]
pub(crate) struct TraceTo {
    /// Append a line of JSON for each event to FILE, as `TOOLBRIDGE_TRACE` does; never arguments or results
    #[arg(long = "trace", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    /// The trace
    pub(crate) file: PathBuf,
    /// Write a page for a browser instead [default: FILE with the extension .html]
    #[arg(long, value_name = "OUT", num_args = 0..=1, conflicts_with = "json")]
    #[expect(clippy::option_option, reason = "the file need not be named")]
    pub(crate) html: Option<Option<PathBuf>>,
    /// Print one JSON object instead
    #[arg(long)]
    pub(crate) json: bool,
    /// Show every call in a row of its own, instead of at most 40 rows: those that failed, and the longest
    #[arg(long)]
    pub(crate) all: bool,
}

#[expect(clippy::struct_excessive_bools, reason = "each is one flag")]
#[derive(Debug, clap::Args)]
pub(crate) struct AskArgs {
    /// What to ask; `-` reads it from stdin
    pub(crate) prompt: String,
    /// Tools to offer to the model
    #[arg(long, value_name = "WHICH")]
    pub(crate) tools: Option<AskTools>,
    /// The transport for tool calls: `stdio` is a bridge process, `sdk` the CLI's own stdin and stdout
    #[arg(long, default_value_t = Transport::Auto, value_name = "auto|stdio|sdk")]
    pub(crate) transport: Transport,
    /// Print text as it arrives, and tool calls as they happen (on stderr)
    #[arg(long, conflicts_with = "json")]
    pub(crate) stream: bool,
    /// Print one JSON object, for errors too
    #[arg(long)]
    pub(crate) json: bool,
    /// The CLI's executable, instead of the one found on this machine
    #[arg(long, value_name = "PATH")]
    pub(crate) claude: Option<PathBuf>,
    /// Run Claude Code with everything it has: its own tools, settings, memories, hooks and servers,
    /// transcripts on disk
    #[arg(long)]
    pub(crate) claude_code: bool,
    /// Let the CLI read the files that the prompt names with `@`, and run a prompt that begins with `/`
    #[arg(long)]
    pub(crate) expand_prompts: bool,
    /// The model to ask [default: the CLI's own]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// How long the whole command may take, in seconds; by default the model has 120, without the time of tools
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) trace: TraceTo,
    // Last: a help heading applies to all arguments after it.
    #[command(flatten, next_help_heading = "With --tools docs")]
    pub(crate) docs: DocsRoots,
}

/// Parses a positive number of seconds.
fn seconds(text: &str) -> Result<Duration, &'static str> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or("it must be a number of seconds above 0, such as 600")
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum AskTools {
    /// The tools of `toolbridge demo`
    Demo,
    /// The tools of `toolbridge docs`
    Docs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DocsArgs {
    /// A folder of notes, to read and write; one with a folder `manuals` is a workspace, as with --workspace
    #[arg(value_name = "DIR", conflicts_with = "workspace")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) roots: DocsRoots,
    /// How many sections of manuals a call may read or copy, and how many hits a search may have [default: 20]
    #[arg(long, value_name = "N")]
    pub(crate) hard_max_sections: Option<usize>,
    /// How many characters a call may read [default: 20000]
    #[arg(long, value_name = "N")]
    pub(crate) hard_max_chars: Option<usize>,
    /// How many characters a call may copy, and copies if it sets no limit [default: as for reading, 8000]
    #[arg(long, value_name = "N")]
    pub(crate) hard_max_copy_chars: Option<usize>,
    /// Which calls are logged to stderr: `error`, `warn` or `info` [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
    /// Create the two folders, with a small example manual, and exit
    #[arg(long)]
    pub(crate) init: bool,
    #[command(flatten)]
    pub(crate) trace: TraceTo,
}

/// The two folders of the document tools.
#[derive(Debug, clap::Args)]
pub(crate) struct DocsRoots {
    /// The folder that contains the two others, or a single folder of notes without `manuals` [default: .]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The folder to read from, with one folder for each manual [default: <workspace>/manuals]
    #[arg(long, value_name = "DIR")]
    pub(crate) manuals: Option<PathBuf>,
    /// The folder to copy to [default: <workspace>/vault]
    #[arg(long, value_name = "DIR")]
    pub(crate) vault: Option<PathBuf>,
    /// The folder in the vault that takes only daily notes, which can only be appended to; `off` for none [default: daily]
    #[arg(long, value_name = "DIR")]
    pub(crate) daily: Option<String>,
    /// Allow whole `.md` files to be read and copied, if the call asks for it
    #[arg(long)]
    pub(crate) allow_file_scope: bool,
    /// Offer only tools that do not write
    #[arg(long)]
    pub(crate) read_only: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Generated {
    Man,
    Bash,
    Zsh,
    Fish,
}
