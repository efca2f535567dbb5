//! The server for the tool scenarios of MCP's conformance suite. It prints its address, and ends when its stdin
//! ends.
#![allow(clippy::print_stdout, reason = "the process that starts it reads the address")]

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use toolbridge_core::{
    CallContext, CallFuture, Combined, Content, NoArgs, RawJson, Tool, ToolCall, ToolError, ToolList,
    ToolResult, ToolSource, ToolSpec, Toolset,
};
use toolbridge_http::{serve, service};

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
        // These would send logs, or ask the client something, if they did.
        .tool("test_logging_tool", "Logs nothing", async |_: NoArgs| "no log")
        .tool("test_streaming_elicitation", "Asks nothing", async |_: NoArgs, context: CallContext| {
            context.progress(1.0, None, None);
            "no question"
        })
        .build()?;
    // A tool that changes its own list.
    let changed = tools.clone();
    tools.add(Tool::new("test_trigger_tool_change", "Changes the list", async move |_: NoArgs| {
        if !changed.remove("test_more") {
            changed.add(Tool::new("test_more", "Comes and goes", async |_: NoArgs| "more"))?;
        }
        Ok::<_, toolbridge_core::RegistrationError>("changed")
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
    serve(listener, service(tools).build(), stdin_ends).await?;
    Ok(())
}
