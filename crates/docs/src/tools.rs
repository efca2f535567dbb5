//! The tools: their names, their descriptions for the model, and their handlers.

use std::sync::Arc;
use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toolbridge_core::tool::{RawJson, schema_of};
use toolbridge_core::{CallContext, Tool, ToolResult};

use crate::arguments::{EXAMPLE_REFS, ManualList};
use crate::copy;
use crate::documents::Shared;
use crate::log::Note;
use crate::note;
use crate::path::RelPath;
use crate::refusal::{Refusal, shown};

/// What a tool does to the vault, for clients that ask for confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Changes nothing.
    Reads,
    /// Adds something; nothing existing is lost.
    Adds,
    /// May overwrite or remove something.
    Changes,
}

/// The tools, in the order in which a model would use them; with `read_only`, only those that change nothing.
pub(crate) fn tools(daily: Option<&RelPath>, read_only: bool) -> impl Iterator<Item = Tool> + use<> {
    let all = [manual_tools(), bridge_tools(daily), vault_tools()].into_iter().flatten();
    all.filter(move |(effect, _)| !read_only || *effect == Effect::Reads).map(|(_, tool)| tool)
}

fn manual_tools() -> Vec<(Effect, Tool)> {
    vec![
        tool(
            "manual_list",
            "List manuals",
            "Lists the manuals. Start here, or with `manual_find`.",
            Effect::Reads,
            |shared, _: &ManualList, _| shared.manuals.list().map(plain),
        ),
        tool(
            "manual_ls",
            "List files",
            "Lists the files of one manual, or of all; `left_out` counts those not readable.",
            Effect::Reads,
            |shared, request, _| shared.manuals.ls(request).map(plain),
        ),
        tool(
            "manual_toc",
            "Contents",
            "The headings of a manual by file, as lines such as `#L98~k3f9a2bcd 2 Title`: place, level, title. `file` and place \
             make a `ref`; for a `.json`, `file` alone. Level 0 is text before the first heading.",
            Effect::Reads,
            |shared, request, _| shared.manuals.toc(request).map(plain),
        ),
        tool(
            "manual_find",
            "Search manuals",
            "The quickest way to a section: searches manuals for words in any language, best first. Give its `ref` to \
             `manual_read` or `bridge_copy_section` as it is; `in` are the titles above it, `total` counts all.",
            Effect::Reads,
            |shared, request, context| {
                shared.search.find(&shared.manuals, request, &|| context.is_cancelled()).map(plain)
            },
        ),
        tool(
            "manual_read",
            "Read a manual",
            "Reads from a manual. `scope`: `snippet` (default) is the section without its subsections, `section` has them, \
             `sections` continues through `max_sections` headings, `file` is the whole file (an `.md` only if the server and \
             `allow_file` allow it). If cut, `next` is the `ref` to continue with. To put text into the vault do not read it: use \
             `bridge_copy_section`.",
            Effect::Reads,
            |shared, request, _| shared.manuals.read(request).map(plain),
        ),
    ]
}

fn bridge_tools(daily: Option<&RelPath>) -> Vec<(Effect, Tool)> {
    let daily =
        daily.map(|daily| format!(" `{daily}/YYYY-MM-DD.md` only takes appends.")).unwrap_or_default();
    vec![
        tool(
            "bridge_copy_section",
            "Copy a section",
            &format!(
                "Copies a section with its subsections, or a whole `.json`, into a file of the vault, byte for byte and without \
                 showing it. Creates file and folders. A section changed since it was found is refused. If cut, append the rest \
                 with `next` as `from_ref`.{daily}"
            ),
            Effect::Changes,
            |shared, request, _| copy::copy_section(shared, request),
        ),
        tool(
            "bridge_copy_file",
            "Copy a file",
            "Copies a whole `.json`, or an `.md` if the server and `allow_file` allow it, as `bridge_copy_section` does a section.",
            Effect::Changes,
            |shared, request, _| copy::copy_file(shared, request),
        ),
    ]
}

fn vault_tools() -> Vec<(Effect, Tool)> {
    vec![
        tool(
            "vault_ls",
            "List the vault",
            "Lists one folder of the vault, not those below it.",
            Effect::Reads,
            |shared, request, _| shared.vault.ls(request).map(plain),
        ),
        tool(
            "vault_find",
            "Search the vault",
            "Searches the notes as `manual_find` does manuals.",
            Effect::Reads,
            |shared, request, context| {
                let Shared { notes, note_search, .. } = shared;
                note::find(note_search, notes, request, &|| context.is_cancelled()).map(plain)
            },
        ),
        tool(
            "vault_read",
            "Read a note",
            "Reads a note, or lines of it. If `truncated`, continue at `next_offset.start_line`.",
            Effect::Reads,
            |shared, request, _| shared.vault.look(request).map(plain),
        ),
        tool(
            "vault_create",
            "Create a note",
            "Creates a new note and its folders; one that exists is a `conflict`.",
            Effect::Adds,
            |shared, request, _| shared.vault.create(request).map(plain),
        ),
        tool(
            "vault_write",
            "Write to a note",
            "Replaces a note or adds to its end; `vault_create` creates a new one.",
            Effect::Changes,
            |shared, request, _| shared.vault.write(request).map(plain),
        ),
        tool(
            "vault_replace",
            "Replace text",
            "Replaces `find`, exactly as it stands in the note, with `replace`.",
            Effect::Changes,
            |shared, request, _| shared.vault.replace(request).map(plain),
        ),
        tool(
            "vault_undo",
            "Undo a change",
            "Undoes the last overwrite or replacement in a note. A second call redoes it.",
            Effect::Changes,
            |shared, request, _| shared.vault.undo(request).map(plain),
        ),
    ]
}

fn tool<I, O>(
    name: &'static str,
    title: &str,
    description: &str,
    effect: Effect,
    run: impl Fn(&Shared, &I, &CallContext) -> Result<(O, Option<Note>), Refusal> + Send + Sync + 'static,
) -> (Effect, Tool)
where
    I: DeserializeOwned + JsonSchema,
    O: Serialize + JsonSchema,
{
    let handler = move |arguments: RawJson, context: CallContext| {
        let shared = context.state::<Arc<Shared>>();
        let started = Instant::now();
        let outcome = decode(&arguments).and_then(|request| run(shared, &request, &context));
        shared.log.call(name, started.elapsed(), outcome.as_ref().map(|(_, note)| note.as_ref()));
        // A refusal is an answer too.
        let written = |answer: Result<RawJson, _>| answer.expect("strings and numbers can be written");
        match &outcome {
            Ok((answer, _)) => {
                let answer = written(RawJson::of(answer));
                ToolResult::text(answer.as_str()).structured(answer)
            }
            Err(refusal) => {
                let refusal = written(RawJson::of(refusal));
                ToolResult::error(refusal.as_str()).structured(refusal)
            }
        }
    };
    // The bridges are as specified: they have an output schema, and their limits may be null. For the others, a model
    // sees the answers but not their schemas. References are taken as answers have them, with null members.
    let is_bridge = name.starts_with("bridge_");
    let nullable: &[_] = if is_bridge { &["limits", "from_ref"] } else { &["ref"] };
    let arguments = short(shown_schema::<I>(), nullable, false);
    // Unchecked: `decode` refuses wrong arguments with messages of its own.
    let mut tool = Tool::raw(name, description, arguments, handler).unchecked().title(title);
    if is_bridge {
        tool = tool.output_schema(answer_schema(shown_schema::<O>()));
    }
    // By the protocol's defaults a tool changes something, may destroy it, and belongs to an open world.
    tool = match effect {
        Effect::Reads => tool.read_only(),
        Effect::Adds => tool.destructive(false),
        Effect::Changes => tool,
    };
    (effect, tool.open_world(false))
}

/// An answer without an additional log note.
fn plain<O>(answer: O) -> (O, Option<Note>) {
    (answer, None)
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
    const IDLE: [&str; 6] = ["$schema", "title", "format", "default", "additionalProperties", "minimum"];
    match &mut schema {
        Value::Object(members) => {
            // An object under one of these names is an argument with that name.
            members.retain(|name, value| !IDLE.contains(&name.as_str()) || value.is_object());
            for (name, member) in members {
                if let Some(list) =
                    member.as_array_mut().filter(|_| !says_null && matches!(name.as_str(), "type" | "enum"))
                {
                    list.retain(|item| !item.is_null() && item != "null");
                    if let [only] = &mut list[..] {
                        *member = only.take();
                    }
                }
                // Items are described with their list.
                if name == "items" {
                    member.as_object_mut().map(|items| items.remove("description"));
                }
                *member = short(member.take(), nullable, says_null || nullable.contains(&name.as_str()));
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = short(item.take(), nullable, says_null);
            }
        }
        _ => {}
    }
    schema
}

/// The schema of the members that an answer always has.
fn answer_schema(mut schema: Value) -> Value {
    let required = schema["required"].take();
    let names = required.as_array().into_iter().flatten().filter_map(Value::as_str);
    let types = names.map(|name| (name.to_owned(), json!({ "type": schema["properties"][name]["type"] })));
    let properties = Value::Object(types.collect());
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Decodes a call's arguments; the refusal names the wrong one and the reason.
fn decode<I: DeserializeOwned>(arguments: &RawJson) -> Result<I, Refusal> {
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
