//! `vault_ls`: one folder of the vault.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool};
use crate::path::RelPath;
use crate::refusal::Refusal;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The folder; default: the vault.
    #[serde(alias = "relative_dir")]
    path: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    entries: Vec<Item>,
}

#[derive(Serialize)]
struct Item {
    /// Relative to the vault.
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// A file's size; null for a folder.
    size_bytes: Option<u64>,
}

pub(super) fn tool() -> Tool {
    super::tool("vault_ls", "List the vault", "Lists one folder of the vault, not those below it.", run)
        .read_only()
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let vault = &call.shared.vault;
    let folder = match arguments.path.as_deref() {
        None | Some("" | "." | "./") => None,
        Some(folder) => Some(vault.admit(folder, None)?),
    };
    let place = folder.as_ref().map_or("vault", RelPath::as_str);
    let entries = vault.root.list(folder.as_ref()).map_err(|error| Refusal::system(place, &error))?;
    let item = |entry: crate::root::Entry| Item {
        kind: if entry.is_dir { "dir" } else { "file" },
        size_bytes: (!entry.is_dir).then_some(entry.stamp.size),
        path: entry.path.into(),
    };
    Ok(Answer { entries: entries.into_iter().map(item).collect() })
}
