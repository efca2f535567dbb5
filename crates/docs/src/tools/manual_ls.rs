//! `manual_ls`: the files of manuals.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Tool};
use crate::arguments::Count;
use crate::format::Format;
use crate::limit::{MAX_SOURCE_BYTES, page};
use crate::refusal::Refusal;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Only this manual.
    manual_id: Option<String>,
    /// At most; default 200.
    limit: Option<Count>,
    /// `next` of the last answer.
    after: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    items: Vec<Item>,
    /// If there are more: `after` of the call that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many files cannot be read, by their endings.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    left_out: BTreeMap<String, usize>,
}

#[derive(Serialize)]
struct Item {
    manual_id: String,
    /// Relative to the manual.
    path: String,
    file_type: Format,
}

pub(super) fn tool() -> Tool {
    super::tool(
        "manual_ls",
        "List files",
        "Lists the files of one manual, or of all; `left_out` counts those not readable.",
        run,
    )
    .read_only()
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let manuals = &call.shared.manuals;
    let manual = arguments.manual_id.as_deref().map(|id| manuals.manual(id)).transpose()?;
    // With the manual's id, because a page may list all manuals.
    let after = arguments.after.as_deref().map(|after| manuals.file(after)).transpose()?;
    let most = page(arguments.limit);
    let mut answer = Answer { items: Vec::new(), next: None, left_out: BTreeMap::new() };
    for entry in manuals.walk(manual.as_ref())? {
        let path = &entry.path;
        match Format::of(path) {
            Some(_) if entry.stamp.size > MAX_SOURCE_BYTES => {
                *answer.left_out.entry("too large".to_owned()).or_default() += 1;
            }
            None => {
                let ending = path.name().rsplit_once('.').map_or("no ending", |(_, ending)| ending);
                *answer.left_out.entry(ending.to_lowercase()).or_default() += 1;
            }
            Some(_) if after.as_ref().is_some_and(|after| path <= after) => {}
            Some(_) if answer.items.len() == most => {
                let last = answer.items.last();
                answer.next = last.map(|last| format!("{}/{}", last.manual_id, last.path));
            }
            Some(file_type) => {
                let (manual_id, path) = (path.first().to_owned(), path.below_first().to_owned());
                answer.items.push(Item { manual_id, path, file_type });
            }
        }
    }
    Ok(answer)
}
