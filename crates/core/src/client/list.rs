//! A server's list of tools, page by page.

use std::collections::HashSet;

use crate::{RawJson, ToolList, ToolSpec, check_tool_name};
use serde::Deserialize;

/// The limit of pages; a longer list is treated as an endless one.
pub(crate) const MAX_PAGES: usize = 1000;

/// One page of `tools/list`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    pub(crate) tools: Vec<RawJson>,
    pub(crate) next_cursor: Option<String>,
}

/// A tool as listed by MCP, with the members that a [`ToolSpec`] has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: RawJson,
    output_schema: Option<RawJson>,
    annotations: Option<RawJson>,
    #[serde(rename = "_meta")]
    meta: Option<RawJson>,
}

/// The usable tools. Others are left out, with a warning.
pub(crate) fn tool_list(server: &str, listed: &[RawJson]) -> ToolList {
    let mut names = HashSet::new();
    let mut tools = Vec::new();
    for tool in listed {
        match spec(tool) {
            Ok(tool) if names.insert(tool.name.clone()) => tools.push(tool),
            Ok(ToolSpec { name, .. }) => {
                tracing::warn!(
                    server,
                    name,
                    "the server lists two tools of this name; the second is left out"
                );
            }
            Err(reason) => tracing::warn!(server, reason, "a tool of the server cannot be offered"),
        }
    }
    ToolList::new(tools).unwrap_or_default()
}

fn spec(listed: &RawJson) -> Result<ToolSpec, String> {
    let listed: Listed = listed.decode().map_err(|error| error.to_string())?;
    check_tool_name(&listed.name).map_err(|error| error.to_string())?;
    let object = |key: &str, value: Option<RawJson>| match value {
        Some(value) if !value.is_object() => {
            Err(format!("`{key}` of tool `{}` is not an object", listed.name))
        }
        value => Ok(value),
    };
    let input_schema =
        object("inputSchema", Some(listed.input_schema))?.unwrap_or_else(RawJson::empty_object);
    let output_schema = object("outputSchema", listed.output_schema)?;
    let annotations = object("annotations", listed.annotations)?;
    let meta = object("_meta", listed.meta)?;
    let mut spec = ToolSpec::new(listed.name, listed.description.unwrap_or_default(), input_schema);
    (spec.title, spec.output_schema, spec.annotations, spec.meta) =
        (listed.title, output_schema, annotations, meta);
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_tool_affects_no_other() {
        let list = |tools: &[&str]| {
            let tools: Vec<_> =
                tools.iter().map(|tool| RawJson::parse((*tool).to_owned()).unwrap()).collect();
            tool_list("s", &tools).iter().map(|tool| tool.name.clone()).collect::<Vec<_>>().join(" ")
        };
        let long = format!(r#"{{"name":"{}","inputSchema":{{}}}}"#, "x".repeat(121));
        let listed = list(&[
            r#"{"name":"a","inputSchema":{}}"#,
            r#"{"name":"b c","inputSchema":{}}"#,
            r#"{"name":"","inputSchema":{}}"#,
            r#"{"name":"d"}"#,
            r#"{"name":"e","inputSchema":[]}"#,
            r#"{"name":"f","inputSchema":{},"annotations":5}"#,
            r#"{"name":"a","inputSchema":{},"title":"again"}"#,
            r#"{"name":7,"inputSchema":{}}"#,
            "5",
            &long,
            r#"{"name":"z","inputSchema":{},"outputSchema":null,"new":[1]}"#,
        ]);
        assert_eq!(listed, "a z");
    }

    #[test]
    fn everything_that_is_listed_stays_as_it_was_written() {
        let text = r#"{"name":"a","title":"A","description":"d","inputSchema":{"z":1,"a":12345678901234567890123},
            "outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"m":1e400}}"#;
        let spec = spec(&RawJson::parse(text).unwrap()).unwrap();
        assert_eq!(spec.input_schema.as_str(), r#"{"z":1,"a":12345678901234567890123}"#);
        assert_eq!(spec.meta.unwrap().as_str(), r#"{"m":1e400}"#);
        assert_eq!(spec.output_schema.unwrap().as_str(), r#"{"type":"object"}"#);
        assert_eq!(spec.annotations.unwrap().as_str(), r#"{"readOnlyHint":true}"#);
        assert_eq!((spec.title.as_deref(), &*spec.description), (Some("A"), "d"));
    }
}
