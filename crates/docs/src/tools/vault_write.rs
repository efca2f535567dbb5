//! `vault_write`: replaces a note, or adds to its end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool};
use crate::arguments::Mode;
use crate::refusal::Refusal;
use crate::section::BOM;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// File in the vault.
    path: String,
    /// The text.
    content: String,
    /// Replace, or add at the end.
    mode: Mode,
}

#[derive(Serialize)]
struct Answer {
    /// Relative to the vault.
    written_path: String,
    /// What this call added to the file, or the new file's size.
    written_bytes: u64,
}

pub(super) fn tool() -> Tool {
    let description = "Replaces a note or adds to its end; `vault_create` creates a new one.";
    super::tool("vault_write", "Write to a note", description, run)
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let Arguments { path, content, mode } = arguments;
    let vault = &call.shared.vault;
    let path = vault.admit(path, Some(*mode))?;
    let written = match mode {
        Mode::Overwrite => vault.overwrite(&path, &[content.as_bytes()])?,
        // A byte order mark is only valid at the start of a file.
        Mode::Append => vault.append(&path, content.strip_prefix(BOM).unwrap_or(content), false)?,
    };
    let written_bytes = written.ok_or_else(|| {
        Refusal::conflict(format!("there is no `{path}` to write to; `vault_create` creates a new file"))
    })?;
    Ok(Answer { written_path: path.into(), written_bytes })
}
