//! `bridge_copy_file`: copies a file of a manual into the vault. The text stays inside the server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool, answer_schema};
use crate::arguments::{Limits, Mode, Scope};
use crate::excerpt::{Excerpt, Extent};
use crate::path::RelPath;
use crate::reference::Spot;
use crate::refusal::Refusal;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// File in the manual, or `next`.
    from_path: String,
    /// The manual.
    manual_id: String,
    /// File in the vault.
    to_path: String,
    /// Replace, or add at the end.
    mode: Mode,
    /// Up to `max_chars` (8000), `max_sections`; `allow_file`: whole `.md`.
    limits: Option<Limits>,
}

#[derive(Serialize, JsonSchema)]
struct Answer {
    /// Relative to the vault.
    written_path: String,
    /// What this call added to the file, or the new file's size.
    written_bytes: u64,
    /// Whether a limit cut the copy.
    truncated: bool,
    /// If it was cut: `from_path` of the call that appends what is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub(super) fn tool() -> Tool {
    super::tool(
        "bridge_copy_file",
        "Copy a file",
        "Copies a whole `.json`, or an `.md` if the server and `allow_file` allow it, as `bridge_copy_section` does a section.",
        run,
    ).output_schema(answer_schema::<Answer>())
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let Arguments { from_path, manual_id, to_path, mode, limits } = arguments;
    let manuals = &call.shared.manuals;
    let to = call.shared.vault.admit(to_path, Some(*mode))?;
    let (path, spot) = match Spot::split(from_path) {
        // More than a path is accepted only if it is the `next` of a copy that was cut.
        (path, spot) if spot.offset > 0 => (path, spot),
        _ => (from_path.as_str(), Spot::default()),
    };
    let reading = manuals.read(&manuals.manual(manual_id)?.join(&RelPath::parse(path)?))?;
    let is_json = reading.format.is_json();
    if !is_json {
        manuals.admit_file(*limits)?;
    }
    let extent = Extent {
        scope: Scope::File,
        max_sections: manuals.hard.sections(*limits),
        max_chars: manuals.hard.copied_chars(*limits, is_json),
    };
    let excerpt = Excerpt::of(&reading, &spot, extent)?;
    let written_bytes = call.put(&to, *mode, &excerpt, None)?;
    let next = excerpt.next.map(|next| format!("{path}{next}"));
    Ok(Answer { written_path: to.into(), written_bytes, truncated: excerpt.truncated, next })
}
