//! Servers that cannot be started.

use std::time::Duration;

use toolbridge_core::client::{McpServer, ServerError};
use toolbridge_core::tool::Hint as _;

use crate::support::{server, within};

async fn error(starting: impl Future<Output = Result<McpServer, ServerError>>) -> (String, &'static str) {
    let error = within(starting).await.expect_err("it cannot be started");
    (error.to_string(), error.hint().unwrap_or_default())
}

#[tokio::test]
async fn a_missing_command_is_reported_with_the_path_that_was_searched() {
    let (said, hint) = error(McpServer::command("no-such-command-1").env("PATH", "/usr/bin").start()).await;
    assert_eq!(
        said,
        "MCP server `no-such-command-1`: there is no command `no-such-command-1` on the PATH, which is `/usr/bin`"
    );
    assert_eq!(hint, "install it, or give its path");
    let (said, _) = error(McpServer::command("/no/such").start()).await;
    assert_eq!(said, "MCP server `such`: there is no file `/no/such`");
    let (said, _) = error(McpServer::command("sh").current_dir("/no/where").start()).await;
    assert_eq!(said, "MCP server `sh`: cannot start `sh`: there is no directory `/no/where`");
    let (said, _) = error(McpServer::command("/etc/passwd").start()).await;
    assert!(said.starts_with("MCP server `passwd`: cannot start `/etc/passwd`: Permission denied"), "{said}");
}

#[tokio::test]
async fn a_server_that_ends_before_it_answers_is_reported_with_its_last_line() {
    let (said, _) = error(server(&["broken"]).start()).await;
    assert_eq!(
        said,
        "MCP server `test`: it ended before it had answered: exit status: 3; its last line on stderr was `no such \
         file: config.toml`"
    );
    let (said, _) = error(McpServer::command("true").start()).await;
    assert_eq!(
        said,
        "MCP server `true`: it ended before it had answered: exit status: 0, and it said nothing on stderr"
    );
}

#[tokio::test]
async fn a_server_that_never_answers_is_not_waited_for_any_longer() {
    let (said, hint) = error(server(&["deaf"]).start_timeout(Duration::from_millis(300)).start()).await;
    assert!(said.starts_with("MCP server `test`: it did not answer within 0.3 s"), "{said}");
    assert!(hint.contains("`start_timeout`"), "{hint}");
}
