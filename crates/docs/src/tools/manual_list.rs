//! `manual_list`: the manuals.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, Tool};
use crate::refusal::Refusal;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {}

pub(super) fn tool() -> Tool {
    let description = "Lists the manuals. Start here, or with `manual_find`. If manuals and vault are one folder, `.` has the notes at its top.";
    super::tool("manual_list", "List manuals", description, run).read_only()
}

fn run(call: &Call<'_>, _: &Arguments) -> Result<Value, Refusal> {
    let ids = call.shared.manuals.ids()?;
    let items: Vec<_> = ids.into_iter().map(|id| json!({ "manual_id": id })).collect();
    Ok(json!({ "items": items }))
}
