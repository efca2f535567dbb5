//! Names of tools and servers that the CLI accepts.

use crate::{RegistrationError, ToolList};

/// The CLI silently leaves out tools whose full name, `mcp__<server>__<tool>`, is longer.
pub(crate) const MAX_FULL_NAME_CHARS: usize = 128;

/// As long as the shortest name of a server.
pub(crate) const SHORTEST_SERVER: &str = "s";

/// What a full name has besides the server and the tool.
const FULL_NAME_FRAME_CHARS: usize = "mcp____".len();

/// Checks the characters of a name, or of what is put before one.
pub(crate) fn check_plain(of: &'static str, name: &str) -> Result<(), RegistrationError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !name.is_empty() && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(RegistrationError::BadName { of, name: name.into() })
}

/// Checks a tool's own name; the full name also contains the server's name, which has at least one character.
///
/// # Errors
///
/// When it is empty, has other characters than `A-Z a-z 0-9 _ -`, or makes the full name too long even for the shortest
/// server's name.
pub(crate) fn check_tool_name(name: &str) -> Result<(), RegistrationError> {
    if name.is_empty() {
        return Err(RegistrationError::EmptyName);
    }
    check_plain("tool name", name)?;
    check_full_name(SHORTEST_SERVER, name)
}

/// Checks the length of a full name.
pub(crate) fn check_full_name(server: &str, tool: &str) -> Result<(), RegistrationError> {
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
    check_plain("server name", server)?;
    tools.iter().try_for_each(|tool| check_full_name(server, &tool.name))
}

/// How many similar names are suggested.
const MAX_NEAREST: usize = 3;

/// The names among `known` that are almost `name`, the nearest first.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    // Too long to be a typo, and comparing would be slow.
    if name.len() > MAX_FULL_NAME_CHARS {
        return Vec::new();
    }
    let letters = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let wanted = letters(name);
    // At most a third of the letters may be wrong, and never all of them.
    let count = wanted.chars().count();
    let limit = (count / 3).max(1).min(count.saturating_sub(1));
    let mut near: Vec<_> = known
        .filter(|known| known.len() <= MAX_FULL_NAME_CHARS)
        .map(|known| (strsim::osa_distance(&wanted, &letters(known)), known))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(MAX_NEAREST).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_those_with_the_fewest_slips() {
        let known = ["add", "and", "adder", "search_orders", "search_order", "get_weather", "x"];
        let long = "x".repeat(10_000);
        let rows: [(&str, &[&str]); 12] = [
            ("ad", &["add", "and"]),
            ("dad", &["add"]),
            ("Add", &["add", "and"]),
            ("search-orders", &["search_orders", "search_order"]),
            ("serach_orders", &["search_orders", "search_order"]),
            ("get_wether", &["get_weather"]),
            ("weather", &[]),
            ("delete", &[]),
            ("y", &[]),
            ("X", &["x"]),
            ("", &[]),
            (&long, &[]),
        ];
        for (name, want) in rows {
            assert_eq!(nearest(name, known.into_iter()), want, "{name}");
        }
        let many = ["tool_1", "tool_2", "tool_3", "tool_4"];
        assert_eq!(nearest("tool_5", many.into_iter()), ["tool_1", "tool_2", "tool_3"]);
    }
}
