//! What a tool and a server may be called, so that the CLI shows them to the model.

use crate::{RegistrationError, ToolList};

/// The CLI leaves out tools whose full name, `mcp__<server>__<tool>`, is longer, and says nothing.
pub const MAX_FULL_NAME_CHARS: usize = 128;

/// What stands around server and tool in a full name.
const FULL_NAME_FRAME_CHARS: usize = "mcp____".len();

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// A tool's own name; the server's name, at least one character, comes on top.
pub(crate) fn check_tool_name(name: &str) -> Result<(), RegistrationError> {
    if name.is_empty() {
        return Err(RegistrationError::EmptyName);
    }
    if !is_plain(name) {
        return Err(RegistrationError::BadName { name: name.into() });
    }
    check_full_name("s", name)
}

fn check_full_name(server: &str, tool: &str) -> Result<(), RegistrationError> {
    let chars = FULL_NAME_FRAME_CHARS + server.len() + tool.len();
    if chars > MAX_FULL_NAME_CHARS {
        return Err(RegistrationError::LongName {
            server: server.into(),
            tool: tool.into(),
            chars,
            limit: MAX_FULL_NAME_CHARS,
        });
    }
    Ok(())
}

/// Checks that a server of that name can offer `tools` to the CLI.
///
/// # Errors
///
/// When the name is empty, has other characters than `A-Z a-z 0-9 _ -`, or makes a tool's full name too
/// long.
pub fn check_server_name(server: &str, tools: &ToolList) -> Result<(), RegistrationError> {
    if !is_plain(server) {
        return Err(RegistrationError::BadServerName { name: server.into() });
    }
    tools.iter().try_for_each(|tool| check_full_name(server, &tool.name))
}
