//! `manual_read`: text of a manual.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool};
use crate::arguments::{Limits, Scope};
use crate::excerpt::{Excerpt, Extent};
use crate::reference::Ref;
use crate::refusal::{Code, Refusal};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(rename = "ref")]
    reference: Ref,
    /// How much of it.
    scope: Option<Scope>,
    /// Up to `max_chars` (8000), `max_sections`; `allow_file`: whole `.md`.
    limits: Option<Limits>,
}

#[derive(Serialize)]
struct Answer {
    text: String,
    /// Whether a limit cut something off.
    truncated: bool,
    applied: Applied,
    /// If it was cut: the `ref` of the call that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What was really applied.
#[derive(Serialize)]
struct Applied {
    scope: Scope,
    max_sections: usize,
    max_chars: usize,
}

pub(super) fn tool() -> Tool {
    super::tool(
        "manual_read",
        "Read a manual",
        "Reads from a manual. `scope`: `snippet` (default) is the section without its subsections, `section` has them, \
         `sections` continues through `max_sections` headings, `file` is the whole file (an `.md` only if the server and \
         `allow_file` allow it). If cut, `next` is the `ref` to continue with. To put text into the vault do not read it: use \
         `bridge_copy_section`.",
        run,
    ).read_only()
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let Arguments { reference, scope, limits } = arguments;
    let manuals = &call.shared.manuals;
    let reading = manuals.read_ref(reference)?;
    let is_json = reading.format.is_json();
    let scope = match scope.or(reference.spot.scope).unwrap_or(Scope::Snippet) {
        Scope::Section | Scope::Sections if is_json => {
            let message = "a `.json` file has no sections; leave `scope` out, or set it to `file`";
            return Err(Refusal::new(Code::InvalidScope, message));
        }
        _ if is_json => Scope::File,
        Scope::File => {
            manuals.admit_file(*limits)?;
            Scope::File
        }
        scope => scope,
    };
    let (max_sections, max_chars) = (manuals.hard.sections(*limits), manuals.hard.chars(*limits, is_json));
    let excerpt = Excerpt::of(&reading, &reference.spot, Extent { scope, max_sections, max_chars })?;
    // `next` goes on in the same scope; a snippet is what is read without one.
    let through = match scope {
        Scope::Snippet => "",
        Scope::Section => ":section",
        Scope::Sections => ":sections",
        Scope::File => ":file",
    };
    let path = reading.path.as_str();
    Ok(Answer {
        text: excerpt.text.to_owned(),
        truncated: excerpt.truncated,
        next: excerpt.next.map(|next| format!("{path}{next}{through}")),
        applied: Applied { scope, max_sections, max_chars: max_chars.chars },
    })
}
