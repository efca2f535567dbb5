//! The conversations that the CLI stores, for Python.

use serde::Deserialize;
use toolbridge::{ClaudeCodeError, ClaudeCodeModel};

use crate::error::{Result, invalid};
use crate::json;

/// A request from Python.
#[derive(Deserialize)]
struct Asked {
    everywhere: bool,
    #[serde(flatten)]
    what: What,
}

#[derive(Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
enum What {
    List,
    Get { session_id: String },
    Messages { session_id: String },
    Rename { session_id: String, title: String },
    Tag { session_id: String, tag: Option<String> },
    Delete { session_id: String },
    Fork { session_id: String, up_to: Option<String>, title: Option<String> },
}

pub(crate) fn answer(model: &ClaudeCodeModel, asked: &[u8]) -> Result<Vec<u8>> {
    let asked: Asked = serde_json::from_slice(asked).map_err(invalid)?;
    Ok(done(model, asked)?)
}

fn done(
    model: &ClaudeCodeModel,
    Asked { everywhere, what }: Asked,
) -> std::result::Result<Vec<u8>, ClaudeCodeError> {
    let sessions = model.sessions()?;
    let sessions = if everywhere { sessions.everywhere() } else { sessions };
    Ok(match what {
        What::List => json(&sessions.list()?),
        What::Get { session_id } => json(&sessions.get(&session_id)?),
        What::Messages { session_id } => json(&sessions.messages(&session_id)?),
        What::Rename { session_id, title } => json(&sessions.rename(&session_id, &title)?),
        What::Tag { session_id, tag } => json(&sessions.tag(&session_id, tag.as_deref())?),
        What::Delete { session_id } => json(&sessions.delete(&session_id)?),
        What::Fork { session_id, up_to, title } => {
            json(&sessions.fork(&session_id, up_to.as_deref(), title.as_deref())?)
        }
    })
}
