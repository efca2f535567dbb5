//! The tools, each in a file of its own, and what they have in common.

mod bridge_copy_file;
mod bridge_copy_section;
pub(crate) mod manual_find;
mod manual_list;
mod manual_ls;
mod manual_read;
mod manual_toc;
mod vault_create;
mod vault_find;
mod vault_ls;
mod vault_read;
mod vault_replace;
mod vault_undo;
mod vault_write;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toolbridge_core::tool::{RawJson, schema_of};
use toolbridge_core::{CallContext, Tool, ToolResult};

use crate::arguments::Mode;
use crate::documents::Shared;
use crate::excerpt::Excerpt;
use crate::log::Note;
use crate::path::RelPath;
use crate::reference::EXAMPLE_REFS;
use crate::refusal::{Refusal, shown};
use crate::section::BOM;

/// The tools, in the order in which a model would use them.
pub(crate) fn tools(daily: Option<&RelPath>) -> [Tool; 14] {
    [
        manual_list::tool(),
        manual_ls::tool(),
        manual_toc::tool(),
        manual_find::tool(),
        manual_read::tool(),
        bridge_copy_section::tool(daily),
        bridge_copy_file::tool(),
        vault_ls::tool(),
        vault_find::tool(),
        vault_read::tool(),
        vault_create::tool(),
        vault_write::tool(),
        vault_replace::tool(),
        vault_undo::tool(),
    ]
}

/// What a handler works with.
struct Call<'a> {
    shared: &'a Shared,
    context: &'a CallContext,
    /// What the log line says besides the outcome.
    note: Cell<Option<Note>>,
}

impl Call<'_> {
    /// Writes what was taken from a manual; returns the number of bytes.
    fn put(
        &self,
        to: &RelPath,
        mode: Mode,
        excerpt: &Excerpt<'_>,
        written_sections: Option<u64>,
    ) -> Result<u64, Refusal> {
        let vault = &self.shared.vault;
        let written_bytes = match mode {
            Mode::Append => vault.add(to, excerpt.text, excerpt.is_mid_line)?,
            // With the byte order mark of a file that is copied whole.
            Mode::Overwrite => {
                let bom = if excerpt.has_bom { BOM } else { "" };
                vault.put(to, &[bom.as_bytes(), excerpt.text.as_bytes()])?
            }
        };
        let (written_path, truncated) = (to.as_str().to_owned(), excerpt.truncated);
        self.note.set(Some(Note { written_path, mode, written_bytes, written_sections, truncated }));
        Ok(written_bytes)
    }
}

/// A handler.
type Run<I, O> = fn(&Call<'_>, &I) -> Result<O, Refusal>;

/// A tool. By the protocol's defaults it changes something and may destroy it.
fn tool<I, O>(name: &'static str, title: &str, description: &str, run: Run<I, O>) -> Tool
where
    I: DeserializeOwned + JsonSchema + 'static,
    O: Serialize + 'static,
{
    let handler = move |arguments: RawJson, context: CallContext| {
        let shared = context.state::<Arc<Shared>>();
        let call = Call { shared, context: &context, note: Cell::new(None) };
        let started = Instant::now();
        let outcome = decode(&arguments).and_then(|arguments| run(&call, &arguments));
        shared.log.call(name, started.elapsed(), call.note.take().as_ref(), outcome.as_ref().err());
        // A refusal is an answer too.
        let written = |answer: Result<RawJson, _>| answer.expect("strings and numbers can be written");
        match &outcome {
            Ok(answer) => {
                let answer = written(RawJson::of(answer));
                ToolResult::text(answer.as_str()).structured(answer)
            }
            Err(refusal) => {
                let refusal = written(RawJson::of(refusal));
                ToolResult::error(refusal.as_str()).structured(refusal)
            }
        }
    };
    // The limits of the bridges may be null, as specified. References are taken as answers have them, with null
    // members.
    let nullable: &[_] = if name.starts_with("bridge_") { &["limits", "from_ref"] } else { &["ref"] };
    let arguments = short(shown_schema::<I>(), nullable, false);
    // Unchecked: `decode` refuses wrong arguments with messages of its own.
    Tool::raw(name, description, arguments, handler).unchecked().title(title).open_world(false)
}

/// The schema without the type's description, which only repeats the tool's.
fn shown_schema<T: JsonSchema>() -> Value {
    let mut schema = schema_of::<T>();
    schema.as_object_mut().map(|root| root.remove("description"));
    schema
}

/// The schema without members that no client needs, because every conversation pays for its size. Unknown
/// members and numbers below 1 are refused with a clear message anyway.
///
/// Optional members may also be null; the schema states this only within the members `nullable`.
fn short(mut schema: Value, nullable: &[&str], says_null: bool) -> Value {
    const IDLE: [&str; 5] = ["title", "format", "default", "additionalProperties", "minimum"];
    if let Some(members) = schema.as_object_mut() {
        // An object under one of these names is an argument with that name.
        members.retain(|name, value| !IDLE.contains(&name.as_str()) || value.is_object());
        for (name, member) in members {
            let says_null = says_null || nullable.contains(&name.as_str());
            if let Some(list) = member.as_array_mut().filter(|_| !says_null) {
                list.retain(|item| !item.is_null() && item != "null");
                if let [only] = &mut list[..]
                    && name == "type"
                {
                    *member = only.take();
                }
            }
            *member = short(member.take(), nullable, says_null);
        }
    }
    schema
}

/// The schema of the members that an answer always has. Only the bridges have one: a model sees the answers but not
/// their schemas.
fn answer_schema<O: JsonSchema>() -> Value {
    let mut schema = shown_schema::<O>();
    let required = schema["required"].take();
    let names = required.as_array().into_iter().flatten().filter_map(Value::as_str);
    let types = names.map(|name| (name.to_owned(), json!({ "type": schema["properties"][name]["type"] })));
    let properties = Value::Object(types.collect());
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Decodes a call's arguments; the refusal names the wrong one and the reason.
fn decode<I: DeserializeOwned>(arguments: &RawJson) -> Result<I, Refusal> {
    if !arguments.is_object() {
        return Err(Refusal::parameter("expected an object with the arguments"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(arguments.as_bytes());
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = shown(&error.path().to_string());
        let mut reason = error.into_inner().to_string();
        if let Some(place) = reason.rfind(" at line ") {
            reason.truncate(place);
        }
        let reason = shown(&reason);
        let is_ref = matches!(path.split('.').next(), Some("ref" | "from_ref"));
        let hint = if is_ref { format!("; give a reference such as {EXAMPLE_REFS}") } else { String::new() };
        Refusal::parameter(if path == "." { reason } else { format!("`{path}`: {reason}{hint}") })
    })
}
