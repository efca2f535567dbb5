//! The tools: three that are called, and any number of others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolbridge::tool::{RawJson, RegistrationError};
use toolbridge::toolset::ToolsetBuilder;
use toolbridge::{Tool, ToolResult, Toolset};

/// The least number of tools: those that are called.
pub(crate) const OWN: usize = 3;

#[derive(Deserialize, JsonSchema)]
struct Echo {
    /// Comes back exactly as it is.
    text: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Items {
    items: Vec<Item>,
    text: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Item {
    id: u32,
    name: String,
    parent: Option<u32>,
    price: f64,
    tags: Vec<String>,
    visible: bool,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "the tools with these arguments are never called")]
struct Orders {
    /// The customer to look for, as it is written in the register of orders.
    customer: String,
    /// The article to look for, as it is written in the register of orders.
    article: Option<String>,
    status: Option<Status>,
    offset: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Open,
    Paid,
    Sent,
    Returned,
}

/// A toolset with that many tools.
pub(crate) fn toolset(tools: usize) -> Result<Toolset, RegistrationError> {
    let echo = Tool::new("echo", "Returns exactly the text", async |args: Echo| args.text);
    let take = Tool::new("take", "Takes items, and returns the text", async |args: Items| args.text);
    let both = Tool::new("both", "Returns the items", async |args: Items| {
        RawJson::of(&args).map(|items| ToolResult::text("items").structured(items))
    });
    let called = [echo, take, both].map(Tool::read_only);
    let others = (called.len()..tools).map(|number| {
        let description = "Finds the orders that fit all of what is given, the newest first. Leave out what does \
                           not matter. At most a hundred orders are returned; ask again with an offset for more.";
        Tool::new(format!("find_orders_{number}"), description, async |_: Orders| "none").read_only()
    });
    called.into_iter().take(tools).chain(others).fold(Toolset::builder(), ToolsetBuilder::with).build()
}
