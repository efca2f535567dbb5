//! `bridge_copy_section`: copies a section of a manual into the vault. The text stays inside the server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool, answer_schema};
use crate::arguments::{Limits, Mode, Scope};
use crate::excerpt::{Excerpt, Extent};
use crate::path::RelPath;
use crate::reference::Ref;
use crate::refusal::Refusal;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    from_ref: Ref,
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
    written_sections: u64,
    /// Whether a limit cut the copy.
    truncated: bool,
    /// What was copied; left out for a `.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// If it was cut: `from_ref` of the call that appends what is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub(super) fn tool(daily: Option<&RelPath>) -> Tool {
    let daily =
        daily.map(|daily| format!(" `{daily}/YYYY-MM-DD.md` only takes appends.")).unwrap_or_default();
    super::tool(
        "bridge_copy_section",
        "Copy a section",
        &format!(
            "Copies a section with its subsections, or a whole `.json`, into a file of the vault, byte for byte and without \
             showing it. Creates file and folders. A section changed since it was found is refused. If cut, append the rest \
             with `next` as `from_ref`.{daily}"
        ),
        run,
    ).output_schema(answer_schema::<Answer>())
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let Arguments { from_ref, to_path, mode, limits } = arguments;
    let manuals = &call.shared.manuals;
    let to = call.shared.vault.admit(to_path, Some(*mode))?;
    let reading = manuals.read_ref(from_ref)?;
    let is_json = reading.format.is_json();
    let extent = Extent {
        scope: if is_json { Scope::File } else { Scope::Section },
        max_sections: manuals.hard.sections(*limits),
        max_chars: manuals.hard.copied_chars(*limits, is_json),
    };
    let excerpt = Excerpt::of(&reading, &from_ref.spot, extent)?;
    let written_bytes = call.put(&to, *mode, &excerpt, Some(1))?;
    let Excerpt { truncated, title, next, .. } = excerpt;
    let next = next.map(|next| format!("{}{next}", reading.path.as_str()));
    Ok(Answer { written_path: to.into(), written_bytes, written_sections: 1, truncated, title, next })
}
