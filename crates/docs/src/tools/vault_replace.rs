//! `vault_replace`: replaces text in a note.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool};
use crate::arguments::{Count, Mode};
use crate::limit::HARD_MAX_REPLACEMENTS;
use crate::refusal::Refusal;
use crate::vault::check_size;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// File in the vault.
    path: String,
    /// Text to be replaced.
    find: String,
    /// The new text.
    replace: String,
    /// At most; default 1.
    max_replacements: Option<Count>,
}

#[derive(Serialize)]
struct Answer {
    /// Relative to the vault.
    written_path: String,
    /// In how many places.
    replacements: usize,
}

pub(super) fn tool() -> Tool {
    let description = "Replaces `find`, exactly as it stands in the note, with `replace`.";
    super::tool("vault_replace", "Replace text", description, run)
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let Arguments { path, find, replace, max_replacements } = arguments;
    let vault = &call.shared.vault;
    let path = vault.admit(path, Some(Mode::Overwrite))?;
    if find.is_empty() {
        return Err(Refusal::parameter("`find` is empty; give the text to be replaced"));
    }
    let most = max_replacements.map_or(1, Count::get).min(HARD_MAX_REPLACEMENTS);
    let edited = vault.edit(&path, |text| {
        let replacements = text.matches(find).take(most).count();
        if replacements == 0 {
            return Err(Refusal::not_found(format!(
                "`find` does not occur in `{path}`; it must match the text exactly"
            )));
        }
        let kept = text.len() - replacements * find.len();
        check_size(&path, kept as u64 + replacements as u64 * replace.len() as u64)?;
        Ok((text.replacen(find, replace, replacements), replacements))
    })?;
    let replacements = edited
        .ok_or_else(|| Refusal::not_found(format!("there is no `{path}`; `vault_ls` lists what there is")))?;
    Ok(Answer { written_path: path.into(), replacements })
}
