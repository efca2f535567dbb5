//! The answer to `tools/list`, written once.

use toolbridge_core::{RawJson, ToolSchema};

/// The result of `tools/list`. Schemas are copied as they are and not decoded.
pub(crate) fn write_list(tools: &[ToolSchema]) -> RawJson {
    let mut text = String::from(r#"{"tools":["#);
    for (place, tool) in tools.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        write_tool(&mut text, tool);
    }
    text.push_str("]}");
    RawJson::written(text.into_bytes())
}

fn write_tool(text: &mut String, tool: &ToolSchema) {
    let quoted = |value: &str| serde_json::Value::from(value).to_string();
    let mut member = |key: &str, value: &str| {
        text.push_str(if key == "name" { "{\"" } else { ",\"" });
        text.push_str(key);
        text.push_str("\":");
        text.push_str(value);
    };
    member("name", &quoted(&tool.name));
    if let Some(title) = &tool.title {
        member("title", &quoted(title));
    }
    member("description", &quoted(&tool.description));
    member("inputSchema", tool.input_schema.as_str());
    for (key, value) in
        [("outputSchema", &tool.output_schema), ("annotations", &tool.annotations), ("_meta", &tool.meta)]
    {
        if let Some(value) = value {
            member(key, value.as_str());
        }
    }
    text.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_written_in_mcps_words() {
        let raw = |text: &'static str| RawJson::parse(text).unwrap();
        let mut full = ToolSchema::new("a", "say \"A\"", raw("{}"));
        assert_eq!(
            write_list(std::slice::from_ref(&full)).as_str(),
            r#"{"tools":[{"name":"a","description":"say \"A\"","inputSchema":{}}]}"#
        );
        full.title = Some("T".into());
        full.output_schema = Some(raw(r#"{"o":1}"#));
        full.annotations = Some(raw(r#"{"readOnlyHint":true}"#));
        full.meta = Some(raw(r#"{"m":1}"#));
        assert_eq!(
            write_list(&[ToolSchema::new("b", "", raw("{}")), full]).as_str(),
            r#"{"tools":[{"name":"b","description":"","inputSchema":{}},{"name":"a","title":"T","description":"say \"A\"","inputSchema":{},"outputSchema":{"o":1},"annotations":{"readOnlyHint":true},"_meta":{"m":1}}]}"#
        );
        assert_eq!(write_list(&[]).as_str(), r#"{"tools":[]}"#);
    }
}
