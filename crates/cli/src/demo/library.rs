//! Two small manuals for the demo of the document tools.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolbridge::docs::{Documents, LogLevel};

use super::client::Client;
use super::report::Row;

const MANUALS: [(&str, &str); 4] = [
    ("espresso-machine/guide.md", include_str!("workspace/manuals/espresso-machine/guide.md")),
    ("espresso-machine/maintenance.md", include_str!("workspace/manuals/espresso-machine/maintenance.md")),
    ("espresso-machine/settings.json", include_str!("workspace/manuals/espresso-machine/settings.json")),
    ("office-ja/はじめに.md", include_str!("workspace/manuals/office-ja/はじめに.md")),
];

/// The manuals on disk, and an empty vault; removed on drop.
pub(crate) struct Library(TempDir);

impl Library {
    pub(crate) fn new() -> Result<Self> {
        let dir = TempDir::with_prefix("toolbridge-demo-").context("cannot create a folder for the demo")?;
        for (path, text) in MANUALS {
            let path = dir.path().join("manuals").join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            std::fs::write(path, text)?;
        }
        std::fs::create_dir(dir.path().join("vault"))?;
        Ok(Self(dir))
    }

    pub(crate) fn documents(&self) -> Result<Documents> {
        Ok(Documents::builder().workspace(self.0.path()).log_level(LogLevel::Error).open()?)
    }

    /// Finds and copies a section; the text itself must not be in the result.
    pub(crate) async fn copy_a_section(&self, client: &Client) -> Result<[Row; 2]> {
        let query = json!({ "query": "カードを忘れたとき" });
        let (found, find) = call(client, "manual_find", &query).await?;
        let item = &found["items"][0];
        let find = Row { answer: format!("found `{}`", item["title"].as_str().unwrap_or("nothing")), ..find };
        let copy = json!({ "from_ref": item["ref"], "to_path": "card.md", "mode": "append" });
        let (copied, row) = call(client, "bridge_copy_section", &copy).await?;
        let written = std::fs::read_to_string(self.0.path().join("vault/card.md")).unwrap_or_default();
        let is_whole = MANUALS[3].1.contains(&written) && written.contains("カードを忘れたとき");
        ensure!(!copied.to_string().contains("カードを"), "the result contains the text: {copied}");
        let copy = Row {
            call: "bridge_copy_section {that one}".into(),
            answer: format!("{} bytes copied inside the server; the text did not come back", written.len()),
            ok: row.ok && is_whole && copied["written_bytes"] == written.len(),
            ..row
        };
        Ok([find, copy])
    }
}

/// Makes one call and returns its structured content, and its row so far.
async fn call(client: &Client, tool: &str, arguments: &Value) -> Result<(Value, Row)> {
    let answer = client.call(tool, arguments).await?;
    let row = Row {
        call: format!("{tool} {arguments}"),
        answer: String::new(),
        time: answer.time,
        ok: answer.is_good(),
    };
    Ok((answer.result.map_or_else(|error| error, |mut result| result["structuredContent"].take()), row))
}
