//! `vault_create`: a new note.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool};
use crate::arguments::Mode;
use crate::refusal::Refusal;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// New file in the vault.
    path: String,
    /// Its text.
    content: String,
}

#[derive(Serialize)]
struct Answer {
    /// Relative to the vault.
    written_path: String,
    written_bytes: u64,
}

pub(super) fn tool() -> Tool {
    let description = "Creates a new note and its folders; one that exists is a `conflict`.";
    // Nothing that exists is lost.
    super::tool("vault_create", "Create a note", description, run).destructive(false)
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let vault = &call.shared.vault;
    let path = vault.admit(&arguments.path, Some(Mode::Append))?;
    let written_bytes = vault.create(&path, &[arguments.content.as_bytes()])?;
    Ok(Answer { written_path: path.into(), written_bytes })
}
