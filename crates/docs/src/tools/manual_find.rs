//! `manual_find`: searches the manuals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Call, Tool};
use crate::arguments::Count;
use crate::refusal::Refusal;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Words, at most 1000 characters.
    pub(crate) query: String,
    /// Only in this manual.
    pub(crate) manual_id: Option<String>,
    /// At most; default 10.
    pub(crate) limit: Option<Count>,
    /// Scores and long snippets.
    pub(crate) full: Option<bool>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Found {
    /// The best ones, best first.
    pub(crate) items: Vec<Hit>,
    /// How many sections have one of the words.
    pub(crate) total: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Hit {
    /// A string, or an object; to be passed to `manual_read` or `bridge_copy_section` as it is.
    #[serde(rename = "ref")]
    pub(crate) reference: Value,
    /// The heading's text, or the file's name.
    pub(crate) title: String,
    /// What it lies in: the titles above it.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<String>,
    /// How well it fits; higher is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<f64>,
    /// A line of it that shows why, if there is room for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snippet: Option<String>,
}

pub(super) fn tool() -> Tool {
    super::tool(
        "manual_find",
        "Search manuals",
        "The quickest way to a section: searches manuals for words in any language, best first. Give its `ref` to \
         `manual_read` or `bridge_copy_section` as it is; `in` are the titles above it, `total` counts all.",
        run,
    ).read_only()
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Found, Refusal> {
    let is_gone = || call.context.is_cancelled();
    call.shared.search.find(&call.shared.manuals, arguments, &is_gone)
}
