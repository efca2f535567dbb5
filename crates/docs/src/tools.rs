//! The tools: what each is called, what a model is told about it, and what it runs.

use std::sync::Arc;
use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolbridge_core::{CallContext, RawJson, Tool, ToolResult, schema_of};

use crate::arguments::ManualList;
use crate::copy;
use crate::documents::Shared;
use crate::log::Note;
use crate::refusal::{Refusal, shown};

/// What a tool does to the vault, for clients that ask before they call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Nothing.
    Reads,
    /// Something new comes; nothing that was there is lost.
    Adds,
    /// What was there may be lost.
    Changes,
}

/// The tools, in the order in which a model would use them; only those that change nothing, if that is wanted.
pub(crate) fn tools(read_only: bool) -> impl Iterator<Item = Tool> {
    let all = [manual_tools(), bridge_tools(), vault_tools()].into_iter().flatten();
    all.filter(move |(effect, _)| !read_only || *effect == Effect::Reads).map(|(_, tool)| tool)
}

fn manual_tools() -> Vec<(Effect, Tool)> {
    vec![
        tool(
            "manual_list",
            "List manuals",
            "Lists the manuals: `items` with `manual_id`, sorted. Start here, or with `manual_find`.",
            Effect::Reads,
            |shared, _: &ManualList, _| shared.manuals.list().map(plain),
        ),
        tool(
            "manual_ls",
            "List the files of manuals",
            "Lists the `.md` and `.json` files of one manual, or of all: `items` with `manual_id`, `path`, \
             `file_type`, sorted. For the sections in them use `manual_toc`.",
            Effect::Reads,
            |shared, request, _| shared.manuals.ls(request).map(plain),
        ),
        tool(
            "manual_toc",
            "Table of contents of a manual",
            "The table of contents of a manual: one item for each heading of its `.md` files and one for each \
             `.json` file, in order. Each has `title`, `level`, `line_start`, `line_end`, `parent_id`, and a `ref` \
             that `manual_read` and `bridge_copy_section` take as it is. Text before the first heading has level 0 \
             and the file's name as title.",
            Effect::Reads,
            |shared, request, _| shared.manuals.toc(request).map(plain),
        ),
        tool(
            "manual_find",
            "Search manuals",
            "Searches all manuals, or one, for words in any language and returns the best sections first. Each \
             item has a `ref` that `manual_read` and `bridge_copy_section` take as it is, the section's `title`, a \
             `score` and a one-line `snippet`; `total` says how many sections matched. This is the quickest way to \
             a section.",
            Effect::Reads,
            |shared, request, context| {
                shared.search.find(&shared.manuals, request, &|| context.is_cancelled()).map(plain)
            },
        ),
        tool(
            "manual_read",
            "Read from a manual",
            "Reads text of a manual. `scope`: `snippet` (default) is the section's own text without its subsections, \
             `section` includes them, `sections` goes on through `limits.max_sections` headings, `file` is the whole \
             file (for `.md` only if the server allows it and `limits.allow_file` is true; a `.json` is always \
             read as `file`, and has no sections). Limits above the server's are lowered to them; `applied` says \
             what was really applied, `truncated` whether a limit cut something off. A `.json` over the limit is \
             refused, unless `limits.max_chars` asks for a part. To move text \
             into the vault you need not read it: use `bridge_copy_section`.",
            Effect::Reads,
            |shared, request, _| shared.manuals.read(request).map(plain),
        ),
    ]
}

fn bridge_tools() -> Vec<(Effect, Tool)> {
    vec![
        tool(
            "bridge_copy_section",
            "Copy a section into the vault",
            "Copies a section of a manual, with its subsections, into a file of the vault, byte for byte and without \
             showing the text. `from_ref` is a `ref` from `manual_find` or `manual_toc`; of a `.json` the whole file \
             is copied. `to_path` is relative to the vault and is made if missing, folders too. `mode` is `overwrite` \
             or `append` (on a new line). Sections longer than `limits.max_chars` (default 8000) are cut, and \
             `truncated` says so; raise it to copy more, up to the server's hard limit. `limits.max_sections` copies only \
             that many headings of the section, its own included; without it all are copied. A `.json` over that limit is \
             refused, unless `limits.max_chars` asks for a part. `daily/YYYY-MM-DD.md` can only be appended to, `.system/` \
             cannot be used.",
            Effect::Changes,
            |shared, request, _| copy::copy_section(&shared.manuals, &shared.vault, request),
        ),
        tool(
            "bridge_copy_file",
            "Copy a file into the vault",
            "Copies a whole file of a manual into a file of the vault without showing the text. A `.json` can \
             always be copied if it is within the server's hard limit, or in part if `limits.max_chars` is given; an `.md` only if the server allows it and `limits.allow_file` is \
             true, otherwise use `bridge_copy_section`. `limits.max_sections` copies only that many headings from the \
             start of an `.md`. `to_path` and `mode` as there.",
            Effect::Changes,
            |shared, request, _| copy::copy_file(&shared.manuals, &shared.vault, request),
        ),
    ]
}

fn vault_tools() -> Vec<(Effect, Tool)> {
    vec![
        tool(
            "vault_ls",
            "List a folder of the vault",
            "Lists one folder of the vault, not those below it: `entries` with `path` (relative to the vault), `type` \
             (`file` or `dir`) and `size_bytes`, sorted.",
            Effect::Reads,
            |shared, request, _| shared.vault.ls(request).map(plain),
        ),
        tool(
            "vault_read",
            "Read a file of the vault",
            "Reads a text file of the vault, or the lines `range` of it (from 1, both ends included). `full` reads as \
             much as the server's hard limit allows. If `truncated`, `truncated_reason` says why, and reading goes on at \
             `next_offset.start_line`; a line that is longer than the limit is cut, and its rest can only be had with \
             a higher `limits.max_chars`, up to the hard limit.",
            Effect::Reads,
            |shared, request, _| shared.vault.read(request).map(plain),
        ),
        tool(
            "vault_create",
            "Create a file in the vault",
            "Makes a new file in the vault, with its folders. If it exists already, that is a `conflict`, and nothing \
             changes.",
            Effect::Adds,
            |shared, request, _| shared.vault.create(request).map(plain),
        ),
        tool(
            "vault_write",
            "Write to a file of the vault",
            "Replaces a file of the vault (`mode` `overwrite`) or adds to its end on a new line (`append`). The file \
             must exist, otherwise that is a `conflict`: use `vault_create`. `daily/YYYY-MM-DD.md` can only be \
             appended to.",
            Effect::Changes,
            |shared, request, _| shared.vault.write(request).map(plain),
        ),
        tool(
            "vault_replace",
            "Replace text in a file of the vault",
            "Replaces `find`, exactly as it stands in the file, by `replace`: in the first place, or in the first \
             `max_replacements` places (10,000 at most). `not_found` if it does not occur; then nothing changes.",
            Effect::Changes,
            |shared, request, _| shared.vault.replace(request).map(plain),
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
    // Wrong arguments are refused in the words of these tools.
    let mut tool = Tool::raw(name, description, shown_schema::<I>(), handler)
        .unchecked()
        .title(title)
        .output_schema(shown_schema::<O>())
        .annotation("readOnlyHint", effect == Effect::Reads);
    if effect != Effect::Reads {
        tool = tool.destructive(effect == Effect::Changes).idempotent(false);
    }
    (effect, tool.open_world(false))
}

/// An answer of which the log says nothing more.
fn plain<O>(answer: O) -> (O, Option<Note>) {
    (answer, None)
}

/// Without the type's description, which tells the model nothing that the tool's does not.
fn shown_schema<T: JsonSchema>() -> Value {
    let mut schema = schema_of::<T>();
    schema.as_object_mut().map(|root| root.remove("description"));
    schema
}

/// Reads a call's arguments; says which one is wrong, and how.
fn decode<I: DeserializeOwned>(arguments: &RawJson) -> Result<I, Refusal> {
    let mut deserializer = serde_json::Deserializer::from_slice(arguments.as_bytes());
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = shown(&error.path().to_string());
        let mut reason = error.into_inner().to_string();
        if let Some(place) = reason.rfind(" at line ") {
            reason.truncate(place);
        }
        let reason = shown(&reason);
        Refusal::parameter(if path == "." { reason } else { format!("`{path}`: {reason}") })
    })
}
