//! `manual_list`: the manuals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Entry, entry};
use crate::refusal::Refusal;

/// Takes nothing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {}

#[derive(Serialize)]
struct Answer {
    items: Vec<Item>,
}

#[derive(Serialize)]
struct Item {
    manual_id: String,
}

pub(super) fn tool() -> Entry {
    let description = "Lists the manuals. Start here, or with `manual_find`. If manuals and vault are one folder, `.` has the notes at its top.";
    entry("manual_list", "List manuals", description, run).reads()
}

fn run(call: &Call<'_>, _: &Arguments) -> Result<Answer, Refusal> {
    let ids = call.shared.manuals.ids()?;
    Ok(Answer { items: ids.into_iter().map(|manual_id| Item { manual_id }).collect() })
}
