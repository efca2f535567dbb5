//! A host's list of tools as sent to callers, in MCP's format.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use toolbridge_core::{RawJson, ToolList, ToolSpec, check_tool_name};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    description: String,
    input_schema: RawJson,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_schema: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<RawJson>,
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<RawJson>,
}

/// The list as text.
pub(crate) fn write(tools: &ToolList) -> Result<RawJson, serde_json::Error> {
    let listed = |tool: &ToolSpec| Listed {
        name: tool.name.clone(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        output_schema: tool.output_schema.clone(),
        annotations: tool.annotations.clone(),
        meta: tool.meta.clone(),
    };
    RawJson::of(&tools.iter().map(listed).collect::<Vec<_>>())
}

/// Parses a list. Unusable tools are left out, with a warning.
pub(crate) fn read(host: &str, text: &[u8]) -> Result<ToolList, serde_json::Error> {
    let mut names = HashSet::new();
    let mut tools = Vec::new();
    for listed in serde_json::from_slice::<Vec<RawJson>>(text)? {
        match spec(&listed) {
            Ok(tool) if names.insert(tool.name.clone()) => tools.push(tool),
            Ok(tool) => tracing::warn!(host, tool = tool.name, "a host lists two tools of this name"),
            Err(reason) => tracing::warn!(host, reason, "a tool of a host cannot be offered"),
        }
    }
    Ok(ToolList::new(tools).unwrap_or_default())
}

fn spec(listed: &RawJson) -> Result<ToolSpec, String> {
    let listed: Listed = listed.decode().map_err(|error| error.to_string())?;
    check_tool_name(&listed.name).map_err(|error| error.to_string())?;
    let objects = [
        Some(&listed.input_schema),
        listed.output_schema.as_ref(),
        listed.annotations.as_ref(),
        listed.meta.as_ref(),
    ];
    if objects.into_iter().flatten().any(|value| !value.is_object()) {
        return Err(format!("a schema, `annotations` or `_meta` of tool `{}` is not an object", listed.name));
    }
    let mut spec = ToolSpec::new(listed.name, listed.description, listed.input_schema);
    (spec.title, spec.output_schema, spec.annotations, spec.meta) =
        (listed.title, listed.output_schema, listed.annotations, listed.meta);
    Ok(spec)
}

/// Whether a call may be repeated although it may have run.
pub(crate) fn is_repeatable(tool: &ToolSpec) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Hints {
        read_only_hint: bool,
        idempotent_hint: bool,
    }
    let hints = tool.annotations.as_ref().and_then(|annotations| annotations.decode::<Hints>().ok());
    hints.is_some_and(|hints| hints.read_only_hint || hints.idempotent_hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_as_it_was() {
        let raw = |text: &str| Some(RawJson::parse(text.to_owned()).unwrap());
        let mut tool = ToolSpec::new("a", "größe", raw(r#"{"z": 1,"a":12345678901234567890123}"#).unwrap());
        tool.title = Some("A".into());
        tool.output_schema = raw(r#"{"type":"object"}"#);
        tool.annotations = raw(r#"{"readOnlyHint":true}"#);
        tool.meta = raw(r#"{"m":1e400}"#);
        let plain = ToolSpec::new("b", "", RawJson::empty_object());
        let list = ToolList::new(vec![tool, plain]).unwrap();
        let read = read("h", write(&list).unwrap().as_bytes()).unwrap();
        assert_eq!(*read, *list);
        assert!(is_repeatable(&read[0]) && !is_repeatable(&read[1]));
    }

    #[test]
    fn an_unusable_tool_affects_no_other() {
        let text = r#"[{"name":"a","description":"","inputSchema":{}},{"name":"b c","description":"","inputSchema":{}},
            {"name":"d","description":"","inputSchema":5},5,{"name":"a","description":"","inputSchema":{}},
            {"name":"z","description":"","inputSchema":{},"annotations":{"idempotentHint":true},"new":1}]"#;
        let list = read("h", text.as_bytes()).unwrap();
        assert_eq!(list.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["a", "z"]);
        assert!(is_repeatable(&list[1]));
        assert!(read("h", b"{}").is_err());
    }
}
