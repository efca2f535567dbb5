//! The cost of a call through `toolbridge serve` to another MCP server.

use std::process::Command;

use anyhow::Result;

use crate::client::Client;
use crate::contender::Contender;
use crate::effort::Effort;
use crate::machine::OneCpu;
use crate::process::Process;
use crate::program::Programs;
use crate::round_trip::seconds;
use crate::row::Beside;
use crate::stage::FEW_TOOLS;

/// Key and label of a row.
type Names = (&'static str, &'static str);

/// The servers, with all processes on one CPU, and on any.
const SERVERS: [(Contender, [Names; 2]); 4] = [
    (
        Contender::PythonMcp,
        [
            ("proxy_python_mcp", "100 B to python-mcp"),
            ("proxy_python_mcp_any_cpu", "100 B to python-mcp, any CPU"),
        ],
    ),
    (
        Contender::FastMcp,
        [("proxy_fastmcp", "100 B to fastmcp"), ("proxy_fastmcp_any_cpu", "100 B to fastmcp, any CPU")],
    ),
    (
        Contender::NodeSdk,
        [("proxy_node_sdk", "100 B to node-sdk"), ("proxy_node_sdk_any_cpu", "100 B to node-sdk, any CPU")],
    ),
    (
        Contender::Server,
        [("proxy_server", "100 B to server"), ("proxy_server_any_cpu", "100 B to server, any CPU")],
    ),
];

/// Each server twice: called directly, and through `toolbridge serve`, which starts it.
pub(crate) fn measure(
    programs: &Programs,
    contenders: &[Contender],
    effort: &Effort,
) -> Result<Vec<(Contender, Beside)>> {
    let servers: Vec<_> = SERVERS.iter().filter(|(server, _)| contenders.contains(server)).collect();
    let side_by_side = |place: usize| -> Result<Vec<(Contender, Beside)>> {
        let mut clients = Vec::new();
        for (server, _) in &servers {
            let direct = programs.server(*server, FEW_TOOLS)?;
            let proxied = proxied(programs, &direct);
            for (way, command) in [("direct", direct), ("proxied", proxied)] {
                let mut client = Client::new(Process::start(server.name, command)?);
                client.open()?;
                clients.push((way, client));
            }
        }
        let kind = effort.kind(["proxy_100_b", "proxy_100_b_any_cpu"][place]);
        let mut samples = seconds(&mut clients, &kind)?.into_iter();
        clients.into_iter().try_for_each(|(_, client)| client.finish())?;
        let pairs = std::iter::from_fn(|| samples.next().zip(samples.next()));
        let lines = pairs.map(|(direct, proxied)| (proxied, direct));
        let lines = Beside::lines(servers.iter().map(|(_, names)| names[place]), lines)?;
        Ok(servers.iter().map(|(server, _)| *server).zip(lines).collect())
    };
    let mut rows = {
        let _one_cpu = OneCpu::new()?;
        side_by_side(0)?
    };
    rows.extend(side_by_side(1)?);
    Ok(rows)
}

/// `toolbridge serve` with this server.
fn proxied(programs: &Programs, server: &Command) -> Command {
    let mut command = Command::new(&programs.toolbridge);
    command.args(["serve", "--stdio", "--"]).arg(server.get_program()).args(server.get_args());
    command.envs(server.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // Logging and tracing would be measured too.
    command.env_remove("TOOLBRIDGE_LOG").env_remove("TOOLBRIDGE_TRACE");
    command
}
