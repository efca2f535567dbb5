//! `vault_find`: searches the notes of the vault, as `manual_find` does manuals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::manual_find::{Arguments as ManualFind, Found, Hit};
use super::{Call, Tool};
use crate::arguments::Count;
use crate::reference::Spot;
use crate::refusal::Refusal;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Words to find.
    query: String,
    /// At most; default 10.
    limit: Option<Count>,
}

#[derive(Serialize)]
struct Answer {
    /// The best ones, best first.
    items: Vec<Item>,
    /// How many sections have one of the words.
    total: usize,
}

#[derive(Serialize)]
struct Item {
    /// Relative to the vault.
    path: String,
    /// The line at which the section starts; left out for a `.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    title: String,
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snippet: Option<String>,
}

pub(super) fn tool() -> Tool {
    super::tool("vault_find", "Search the vault", "Searches the notes as `manual_find` does manuals.", run)
        .read_only()
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let Arguments { query, limit } = arguments;
    let request = ManualFind { query: query.clone(), manual_id: None, limit: *limit, full: None };
    let is_gone = || call.context.is_cancelled();
    let Found { items, total } = call.shared.note_search.find(&call.shared.notes, &request, &is_gone)?;
    let item = |hit: Hit| {
        let (path, spot) = Spot::split(hit.reference.as_str().unwrap_or_default());
        // Notes at the top are in the manual `.`.
        let path = path.strip_prefix("./").unwrap_or(path).to_owned();
        Item { path, line: spot.line, title: hit.title, within: hit.within, snippet: hit.snippet }
    };
    Ok(Answer { items: items.into_iter().map(item).collect(), total })
}
