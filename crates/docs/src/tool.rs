//! The tools: what each is called, what a model is told about it, and what it runs.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::json;
use toolbridge_core::{Annotations, RawJson, ToolSchema, forget_widths};

use crate::answer::Answer;
use crate::bridge;
use crate::documents::{Caller, Shared};
use crate::log::Note;
use crate::refusal::{Refusal, shown};
use crate::request::ManualList;

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

type Run = Box<dyn Fn(&Shared, &RawJson, &Caller) -> Result<(RawJson, Option<Note>), Refusal> + Send + Sync>;

/// One tool.
pub(crate) struct Tool {
    pub(crate) schema: ToolSchema,
    pub(crate) run: Run,
    effect: Effect,
}

impl Tool {
    pub(crate) fn is_read_only(&self) -> bool {
        self.effect == Effect::Reads
    }
}

/// All tools, in the order in which a model would use them.
pub(crate) fn tools() -> Vec<Tool> {
    [manual_tools(), bridge_tools(), vault_tools()].into_iter().flatten().collect()
}

fn manual_tools() -> Vec<Tool> {
    vec![
        tool(
            "manual_list",
            "List manuals",
            "Lists the manuals: `items` with `manual_id`, sorted. Start here, or with `manual_find`.",
            Effect::Reads,
            |shared, _: &ManualList, _| shared.manuals.list(),
        ),
        tool(
            "manual_ls",
            "List the files of manuals",
            "Lists the `.md` and `.json` files of one manual, or of all: `items` with `manual_id`, `path`, \
             `file_type`, sorted. For the sections in them use `manual_toc`.",
            Effect::Reads,
            |shared, request, _| shared.manuals.ls(request),
        ),
        tool(
            "manual_toc",
            "Table of contents of a manual",
            "The table of contents of a manual: one item for each heading of its `.md` files and one for each \
             `.json` file, in order. Each has `title`, `level`, `line_start`, `line_end`, `parent_id`, and a `ref` \
             that `manual_read` and `bridge_copy_section` take as it is. Text before the first heading has level 0 \
             and the file's name as title.",
            Effect::Reads,
            |shared, request, _| shared.manuals.toc(request),
        ),
        tool(
            "manual_find",
            "Search manuals",
            "Searches all manuals, or one, for words in any language and returns the best sections first. Each \
             item has a `ref` that `manual_read` and `bridge_copy_section` take as it is, the section's `title`, a \
             `score` and a one-line `snippet`; `total` says how many sections matched. This is the quickest way to \
             a section.",
            Effect::Reads,
            |shared, request, caller| shared.search.find(&shared.manuals, request, &|| caller.is_gone()),
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
            |shared, request, _| shared.manuals.read(request),
        ),
    ]
}

fn bridge_tools() -> Vec<Tool> {
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
            |shared, request, _| bridge::copy_section(&shared.manuals, &shared.vault, request),
        ),
        tool(
            "bridge_copy_file",
            "Copy a file into the vault",
            "Copies a whole file of a manual into a file of the vault without showing the text. A `.json` can \
             always be copied if it is within the server's hard limit, or in part if `limits.max_chars` is given; an `.md` only if the server allows it and `limits.allow_file` is \
             true, otherwise use `bridge_copy_section`. `limits.max_sections` copies only that many headings from the \
             start of an `.md`. `to_path` and `mode` as there.",
            Effect::Changes,
            |shared, request, _| bridge::copy_file(&shared.manuals, &shared.vault, request),
        ),
    ]
}

fn vault_tools() -> Vec<Tool> {
    vec![
        tool(
            "vault_ls",
            "List a folder of the vault",
            "Lists one folder of the vault, not those below it: `entries` with `path` (relative to the vault), `type` \
             (`file` or `dir`) and `size_bytes`, sorted.",
            Effect::Reads,
            |shared, request, _| shared.vault.ls(request),
        ),
        tool(
            "vault_read",
            "Read a file of the vault",
            "Reads a text file of the vault, or the lines `range` of it (from 1, both ends included). `full` reads as \
             much as the server's hard limit allows. If `truncated`, `truncated_reason` says why, and reading goes on at \
             `next_offset.start_line`; a line that is longer than the limit is cut, and its rest can only be had with \
             a higher `limits.max_chars`, up to the hard limit.",
            Effect::Reads,
            |shared, request, _| shared.vault.read(request),
        ),
        tool(
            "vault_create",
            "Create a file in the vault",
            "Makes a new file in the vault, with its folders. If it exists already, that is a `conflict`, and nothing \
             changes.",
            Effect::Adds,
            |shared, request, _| shared.vault.create(request),
        ),
        tool(
            "vault_write",
            "Write to a file of the vault",
            "Replaces a file of the vault (`mode` `overwrite`) or adds to its end on a new line (`append`). The file \
             must exist, otherwise that is a `conflict`: use `vault_create`. `daily/YYYY-MM-DD.md` can only be \
             appended to.",
            Effect::Changes,
            |shared, request, _| shared.vault.write(request),
        ),
        tool(
            "vault_replace",
            "Replace text in a file of the vault",
            "Replaces `find`, exactly as it stands in the file, by `replace`: in the first place, or in the first \
             `max_replacements` places (10,000 at most). `not_found` if it does not occur; then nothing changes.",
            Effect::Changes,
            |shared, request, _| shared.vault.replace(request),
        ),
    ]
}

fn tool<I, O>(
    name: &str,
    title: &str,
    description: &str,
    effect: Effect,
    run: impl Fn(&Shared, &I, &Caller) -> Result<O, Refusal> + Send + Sync + 'static,
) -> Tool
where
    I: DeserializeOwned + JsonSchema,
    O: Answer,
{
    let mut schema = ToolSchema::new(name, description, schema_of::<I>());
    schema.title = Some(title.to_owned());
    schema.output_schema = Some(schema_of::<O>());
    schema.annotations = Some(RawJson::of(&annotations(effect)).expect("booleans can be written"));
    // As for any tool of a toolset: shown to the model from the start.
    schema.meta = Some(RawJson::from(&json!({ "anthropic/alwaysLoad": true })));
    let run = move |shared: &Shared, arguments: &RawJson, caller: &Caller| {
        let answer = run(shared, &decode(arguments)?, caller)?;
        let written = RawJson::of(&answer).expect("strings and numbers can be written");
        Ok((written, answer.note()))
    };
    Tool { schema, run: Box::new(run), effect }
}

fn annotations(effect: Effect) -> Annotations {
    let mut annotations = Annotations::default();
    annotations.read_only_hint = Some(effect == Effect::Reads);
    if effect != Effect::Reads {
        annotations.destructive_hint = Some(effect == Effect::Changes);
        annotations.idempotent_hint = Some(false);
    }
    annotations.open_world_hint = Some(false);
    annotations
}

/// Whole in one piece: not every client follows references.
fn schema_of<T: JsonSchema>() -> RawJson {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // None of them tells the model anything that the tool's description does not.
    for noise in ["$schema", "title", "description"] {
        schema.remove(noise);
    }
    forget_widths(&mut schema);
    RawJson::from(&schema.to_value())
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
