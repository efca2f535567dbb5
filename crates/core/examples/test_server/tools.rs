//! Tools whose results do not fit into rmcp's types, and tools that misbehave.

use std::time::Duration;

use serde_json::Value;
use toolbridge_core::source::{CallFuture, Changes};
use toolbridge_core::tool::{RawJson, RegistrationError, ToolCall, ToolList};
use toolbridge_core::{CallContext, NoArgs, Tool, ToolError, ToolResult, ToolSource, Toolset};

const NAMES: [&str; 9] = ["echo", "fail", "wait", "steps", "grow", "exit", "say", "variable", "big"];

/// All of the tools; each call is handled by its name.
pub(crate) struct Tools(Toolset);

impl Tools {
    pub(crate) fn new() -> Result<Self, RegistrationError> {
        let mut tools = Toolset::builder();
        for name in NAMES {
            tools = tools.tool(name, "A tool", async |_: NoArgs| "");
        }
        Ok(Self(tools.build()?))
    }
}

/// A file that is written when the call is dropped.
struct Dropped(String);

impl Drop for Dropped {
    fn drop(&mut self) {
        _ = std::fs::write(&self.0, "cancelled");
    }
}

impl ToolSource for Tools {
    fn tools(&self) -> ToolList {
        self.0.tools()
    }

    fn changes(&self) -> Changes {
        self.0.changes()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move {
            let text = |key: &str| {
                let arguments: Value = call.arguments.decode().unwrap_or_default();
                arguments[key].as_str().unwrap_or_default().to_owned()
            };
            match call.name.as_str() {
                "echo" => {
                    let traced = call.meta.traceparent.is_some();
                    let id = call.meta.tool_use_id.unwrap_or_default();
                    let result = format!(
                        r#"{{"zzz":1e400,"content":[{{"type":"new","x":[1]}},{{"type":"image","data":"AA==","mimeType":"image/png","odd":null}},{{"type":"resource_link","uri":"a:b","name":"n"}}],"structuredContent":{},"isError":false,"_meta":{{"traced":{traced},"id":"{id}"}},"aaa":12345678901234567890123}}"#,
                        call.arguments
                    );
                    Ok(RawJson::parse(result).expect("it is JSON"))
                }
                "fail" => Err(ToolError::new("QuotaError", "out of luck")),
                "wait" => {
                    let _dropped = Dropped(text("file"));
                    std::fs::write(text("began"), "").expect("it can be written");
                    std::future::pending().await
                }
                "steps" => {
                    for step in 1..=3 {
                        context.progress(f64::from(step), Some(3.0), Some("going on"));
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Ok(ToolResult::text("done").to_json())
                }
                "grow" => {
                    let more = Tool::new("grown", "Another", async |_: NoArgs| "");
                    self.0.add(more).expect("it is new");
                    Ok(ToolResult::text("grown").to_json())
                }
                "exit" => {
                    eprintln!("that was all");
                    std::process::exit(7);
                }
                "say" => {
                    eprintln!("{}", text("line"));
                    Ok(ToolResult::text("said").to_json())
                }
                "variable" => Ok(ToolResult::text(std::env::var(text("name")).unwrap_or_default()).to_json()),
                "big" => Ok(ToolResult::text("x".repeat(3_000_000)).to_json()),
                name => Err(self.tools().not_found(name)),
            }
        })
    }
}
