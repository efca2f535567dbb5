//! The answer to `tools/list`, written once.

use crate::{RawJson, ToolSpec};

/// The result of `tools/list`. Schemas are copied as they are and not decoded.
pub fn write_list(tools: &[ToolSpec]) -> RawJson {
    // Reserved in one piece: growing step by step would touch twice the memory.
    let sizes = tools.iter().map(|tool| {
        let raw = raw_members(tool).into_iter().filter_map(|(_, value)| value);
        let raw = raw.map(|value| value.as_bytes().len()).sum::<usize>();
        raw + tool.name.len() + tool.description.len() + 128
    });
    let mut text = Vec::with_capacity(sizes.sum());
    text.extend_from_slice(br#"{"tools":["#);
    for (place, tool) in tools.iter().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        write_tool(&mut text, tool);
    }
    text.extend_from_slice(b"]}");
    RawJson::written(text)
}

fn write_tool(text: &mut Vec<u8>, tool: &ToolSpec) {
    write_text(text, r#"{"name":"#, &tool.name);
    if let Some(title) = &tool.title {
        write_text(text, r#","title":"#, title);
    }
    write_text(text, r#","description":"#, &tool.description);
    for (key, value) in raw_members(tool) {
        if let Some(value) = value {
            text.extend_from_slice(key.as_bytes());
            text.extend_from_slice(value.as_bytes());
        }
    }
    text.push(b'}');
}

fn raw_members(tool: &ToolSpec) -> [(&'static str, Option<&RawJson>); 4] {
    [
        (r#","inputSchema":"#, Some(&tool.input_schema)),
        (r#","outputSchema":"#, tool.output_schema.as_ref()),
        (r#","annotations":"#, tool.annotations.as_ref()),
        (r#","_meta":"#, tool.meta.as_ref()),
    ]
}

fn write_text(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend_from_slice(key.as_bytes());
    serde_json::to_writer(text, value).expect("a string can always be written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_written_as_mcp_defines_it() {
        let raw = |text: &'static str| RawJson::parse(text).unwrap();
        let mut full = ToolSpec::new("a", "say \"A\"", raw("{}"));
        assert_eq!(
            write_list(std::slice::from_ref(&full)).as_str(),
            r#"{"tools":[{"name":"a","description":"say \"A\"","inputSchema":{}}]}"#
        );
        full.title = Some("T".into());
        full.output_schema = Some(raw(r#"{"o":1}"#));
        full.annotations = Some(raw(r#"{"readOnlyHint":true}"#));
        full.meta = Some(raw(r#"{"m":1}"#));
        assert_eq!(
            write_list(&[ToolSpec::new("b", "", raw("{}")), full]).as_str(),
            r#"{"tools":[{"name":"b","description":"","inputSchema":{}},{"name":"a","title":"T","description":"say \"A\"","inputSchema":{},"outputSchema":{"o":1},"annotations":{"readOnlyHint":true},"_meta":{"m":1}}]}"#
        );
        assert_eq!(write_list(&[]).as_str(), r#"{"tools":[]}"#);
    }
}
