//! The server for the tool scenarios of MCP's conformance suite. It prints its address, and ends when its stdin
//! ends.
#![allow(clippy::print_stdout, reason = "the process that starts it reads the address")]

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use toolbridge_core::call::{Answer, Question};
use toolbridge_core::source::{CallFuture, Combined};
use toolbridge_core::tool::{Content, RawJson, ToolCall, ToolList, ToolSpec};
use toolbridge_core::{CallContext, NoArgs, Tool, ToolError, ToolResult, ToolSource, Toolset, http};

/// A red pixel.
const PIXEL: &[u8] = include_bytes!("pixel.png");

/// An empty sound.
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Colour {
    Red,
    Green,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Region {
    /// Repeated in a header.
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Message {
    message: String,
}

fn resource(uri: &str, mime_type: &str, text: &str) -> Result<Content, ToolError> {
    let resource = json!({ "uri": uri, "mimeType": mime_type, "text": text });
    let resource = RawJson::of(&resource).map_err(|error| ToolError::new("Error", error.to_string()))?;
    Ok(Content::Resource { resource })
}

/// A tool whose schema names its draft. A toolset removes that, because many clients refuse every draft but theirs;
/// here the server lists the schema of the source unchanged.
struct Schema(ToolList);

impl Schema {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let schema = RawJson::parse(include_str!("schema.json"))?;
        Ok(Self(ToolList::new(vec![ToolSpec::new("json_schema_2020_12_tool", "Has a long schema", schema)])?))
    }
}

impl ToolSource for Schema {
    fn tools(&self) -> ToolList {
        self.0.clone()
    }

    fn call(&self, call: ToolCall, _: CallContext) -> CallFuture<'_> {
        Box::pin(async move { Ok(ToolResult::text(call.arguments.as_str()).to_json()) })
    }
}

/// Asks for texts.
async fn ask(
    context: &CallContext,
    message: impl Into<String>,
    fields: &[&str],
) -> Result<String, ToolError> {
    let properties: serde_json::Map<_, _> =
        fields.iter().map(|field| ((*field).to_owned(), json!({ "type": "string" }))).collect();
    let schema = json!({ "type": "object", "properties": properties, "required": fields });
    Ok(shown(&context.ask_for(message, &schema).await?))
}

async fn confirm(_: NoArgs, context: CallContext) -> Result<String, ToolError> {
    let schema =
        json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"] });
    let answer = context.ask_for("Please confirm", &schema).await?;
    Ok(format!("state-ok: {}", shown(&answer)))
}

fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Accepted(content) => format!("action=accept, content={content}"),
        Answer::Declined => "action=decline".into(),
        Answer::Cancelled => "action=cancel".into(),
        Answer::Nobody => "there was nobody to ask".into(),
    }
}

async fn suggest(_: NoArgs, context: CallContext) -> Result<String, ToolError> {
    let fields = json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    });
    let schema = json!({ "type": "object", "properties": fields });
    Ok(shown(&context.ask_for("Is this right?", &schema).await?))
}

/// As the question of another server, which is passed on unchanged: forms of our own have no lists.
async fn choose(_: NoArgs, context: CallContext) -> Result<String, ToolError> {
    let values = json!(["option1", "option2", "option3"]);
    let titled = json!([
        { "const": "value1", "title": "First" },
        { "const": "value2", "title": "Second" },
        { "const": "value3", "title": "Third" },
    ]);
    let fields = json!({
        "untitledSingle": { "type": "string", "enum": values },
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": { "type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"] },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": values } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    });
    let schema = RawJson::from(&json!({ "type": "object", "properties": fields }));
    match context.put(Question { message: "Which?".into(), schema }) {
        Some(pending) => Ok(shown(&pending.await?)),
        None => Ok(shown(&Answer::Nobody)),
    }
}

/// Tools that ask. One that waits for its answer must not delay other calls, so all are `parallel`.
fn questions() -> Vec<Tool> {
    let tools = vec![
        Tool::new("test_elicitation", "Asks who you are", async |args: Message, context: CallContext| {
            ask(&context, args.message, &["username", "email"]).await
        }),
        Tool::new("test_elicitation_sep1034_defaults", "Suggests answers", suggest),
        Tool::new("test_elicitation_sep1330_enums", "Asks for choices", choose),
        Tool::new(
            "test_streaming_elicitation",
            "Reports and asks",
            async |_: NoArgs, context: CallContext| {
                context.progress(1.0, None, None);
                ask(&context, "Who are you?", &["name"]).await
            },
        ),
        Tool::new(
            "test_input_required_result_elicitation",
            "Asks for a name",
            async |_: NoArgs, context: CallContext| ask(&context, "What is your name?", &["name"]).await,
        ),
        Tool::new(
            "test_input_required_result_multi_round",
            "Asks twice",
            async |_: NoArgs, context: CallContext| {
                let name = ask(&context, "Step 1: What is your name?", &["name"]).await?;
                let color = ask(&context, "Step 2: What is your favorite color?", &["color"]).await?;
                Ok::<_, ToolError>(format!("{name}, {color}"))
            },
        ),
        Tool::new("test_input_required_result_request_state", "Asks", confirm),
        Tool::new("test_input_required_result_tampered_state", "Asks", confirm),
    ];
    tools.into_iter().map(Tool::parallel).collect()
}

fn tools() -> Result<Toolset, Box<dyn std::error::Error>> {
    let tools = Toolset::builder()
        .tool(
            "test_simple_text",
            "Says something",
            async |_: NoArgs| "This is a simple text response for testing.",
        )
        .tool("test_image_content", "Shows a pixel", async |_: NoArgs| ToolResult::image(PIXEL, "image/png"))
        .tool("test_audio_content", "Plays nothing", async |_: NoArgs| {
            ToolResult::default().and(Content::Audio { data: SOUND.into(), mime_type: "audio/wav".into() })
        })
        .tool("test_embedded_resource", "Brings a text along", async |_: NoArgs| {
            let text = "This is an embedded resource content.";
            resource("test://embedded-resource", "text/plain", text)
                .map(|resource| ToolResult::default().and(resource))
        })
        .tool("test_multiple_content_types", "Brings everything along", async |_: NoArgs| {
            let data = r#"{"test":"data","value":123}"#;
            let resource = resource("test://mixed-content-resource", "application/json", data)?;
            let text = ToolResult::text("Multiple content types test:");
            Ok::<_, ToolError>(text.and_image(PIXEL, "image/png").and(resource))
        })
        .tool("test_error_handling", "Fails", async |_: NoArgs| {
            ToolResult::error("This tool intentionally returns an error for testing")
        })
        .tool("test_tool_with_progress", "Tells how far it is", async |_: NoArgs, context: CallContext| {
            for done in [0.0, 50.0, 100.0] {
                context.progress(done, Some(100.0), None);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            "done"
        })
        .tool("test_custom_headers", "Has an argument in a header", async |args: Region| args.region)
        // For other clients than the suite's.
        .tool("paint", "Asks for a colour", async |_: NoArgs, context: CallContext| {
            let colour = context.ask::<Colour>("Which colour?").await?;
            let sure = context.ask::<bool>("Sure?").await?;
            Ok::<_, ToolError>(format!("{colour:?} {sure:?}"))
        })
        // It would send logs, if it could.
        .tool("test_logging_tool", "Logs nothing", async |_: NoArgs| "no log")
        .with(questions())
        .build()?;
    // A tool that changes its own list.
    let changed = tools.clone();
    tools.add(Tool::new("test_trigger_tool_change", "Changes the list", async move |_: NoArgs| {
        if !changed.remove("test_more") {
            changed.add(Tool::new("test_more", "Comes and goes", async |_: NoArgs| "more"))?;
        }
        Ok::<_, toolbridge_core::tool::RegistrationError>("changed")
    }))?;
    Ok(tools)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let stdin_ends = async {
        _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    };
    let tools = Combined::new().with(tools()?)?.with(Schema::new()?)?;
    http::Server::builder(tools).serve(listener, stdin_ends).await?;
    Ok(())
}
