//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use toolbridge::Transport;

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
  toolbridge doctor                     check that everything is there
  toolbridge ask \"What is 40 + 2?\" --tools demo
                                        ask a model in the CLI, with the demo tools in it
  toolbridge sessions                   list the sessions of this user
  toolbridge call SOCKET echo '{\"text\":\"hi\"}'
                                        call a tool of a live session"
)]
pub(crate) struct Args {
    /// Log to stderr, as `TOOLBRIDGE_LOG` does [default: warn; off for `bridge`]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log: Option<Level>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Be the MCP server that the CLI starts: relay between stdin/stdout and a session
    #[command(
        after_help = "The Claude Code CLI runs this by itself; a session's MCP config says so. By hand:
  toolbridge bridge /tmp/claudecode_ipc_ID.sock /tmp/claudecode_ipc_schema_ID.json"
    )]
    Bridge {
        /// The session's socket
        socket: PathBuf,
        /// The session's schema file
        schema: PathBuf,
    },
    /// Call demo tools in this process through a real bridge, as the CLI would
    #[command(after_help = "Examples:
  toolbridge demo
  toolbridge demo --json | jq .calls
  toolbridge demo --serve               then point an MCP client at the config it prints; ends with stdin")]
    Demo {
        /// Host the demo tools until stdin ends or SIGINT/SIGTERM; print one JSON line with `socket`, `schema` and `mcp_config`
        #[arg(long, conflicts_with = "json")]
        serve: bool,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Ask a model in the Claude Code CLI, which may call tools of this process
    #[command(after_help = "Examples:
  toolbridge ask \"What is 40 + 2?\" --tools demo
  toolbridge ask --tools demo --stream \"Count down from 3, then show me a picture\"
  echo \"Sum this up: …\" | toolbridge ask - --json | jq -r .text")]
    Ask(AskArgs),
    /// Check that everything is there: the CLI, the temporary directory, the bridge
    #[command(after_help = "Examples:
  toolbridge doctor
  toolbridge doctor --claude ~/bin/claude --json")]
    Doctor {
        /// The CLI's executable, instead of the one that is found
        #[arg(long, value_name = "PATH")]
        claude: Option<PathBuf>,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Call a tool of a live session
    #[command(after_help = "Examples:
  toolbridge call /tmp/claudecode_ipc_ID.sock add '{\"a\":1,\"b\":2}'
  toolbridge sessions                   lists the sockets there are")]
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
  toolbridge sessions --clean           remove what dead sessions left behind")]
    Sessions {
        /// Remove the stale ones
        #[arg(long)]
        clean: bool,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
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
pub(crate) struct AskArgs {
    /// What to ask; `-` reads it from stdin
    pub(crate) prompt: String,
    /// Tools to offer to the model
    #[arg(long, value_name = "WHICH")]
    pub(crate) tools: Option<AskTools>,
    /// How tool calls travel: `stdio` is a bridge process, `sdk` the CLI's own stdin and stdout
    #[arg(long, default_value_t = Transport::Auto, value_name = "auto|stdio|sdk")]
    pub(crate) transport: Transport,
    /// Print text as it comes, and tool calls as they happen (on stderr)
    #[arg(long, conflicts_with = "json")]
    pub(crate) stream: bool,
    /// Print one JSON object, also for an error
    #[arg(long)]
    pub(crate) json: bool,
    /// The CLI's executable, instead of the one that is found
    #[arg(long, value_name = "PATH")]
    pub(crate) claude: Option<PathBuf>,
    /// The model to ask [default: claude-sonnet-4-5]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// How long to wait for the answer, in seconds [default: 120]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) timeout: Option<f64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum AskTools {
    /// Those of `toolbridge demo`
    Demo,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Generated {
    Man,
    Bash,
    Zsh,
    Fish,
}
