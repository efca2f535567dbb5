//! Descriptions of tools and lists of them, also as JSON in MCP's form.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::tool::name::{check_tool_name, nearest};
use crate::{RawJson, RegistrationError, ToolError};

/// The description of a tool, for the model and for the code that runs its calls.
///
/// As JSON it has the form of MCP's `tools/list`; `exclusive` and `timeout` are not part of it. It can only be read from
/// JSON text, since schemas and metadata are kept as they were written. A missing description is empty, and the
/// members of a schema file (`input_schema`, `output_schema`, `meta`) are known too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
#[non_exhaustive]
pub struct ToolSpec {
    /// The tool's name, unique in its list.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, for the model.
    #[serde(default, deserialize_with = "text")]
    pub description: String,
    /// The JSON Schema of its arguments; an object.
    #[serde(alias = "input_schema", deserialize_with = "object")]
    pub input_schema: RawJson,
    /// The JSON Schema of its structured result; an object.
    #[serde(
        default,
        alias = "output_schema",
        deserialize_with = "maybe_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub output_schema: Option<RawJson>,
    /// Hints about its behaviour, as MCP defines them; an object.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub annotations: Option<RawJson>,
    /// Other metadata; an object.
    #[serde(
        default,
        rename = "_meta",
        alias = "meta",
        deserialize_with = "maybe_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub meta: Option<RawJson>,
    /// Its calls do not overlap with other exclusive calls of the same session. Not set where another process
    /// decides.
    #[serde(skip)]
    pub exclusive: bool,
    /// How long a call may take; `None` means without limit.
    #[serde(skip)]
    pub timeout: Option<Duration>,
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RawJson, D::Error> {
    RawJson::deserialize(deserializer).and_then(checked)
}

fn maybe_object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    Option::deserialize(deserializer)?.map(checked).transpose()
}

fn checked<E: Error>(json: RawJson) -> Result<RawJson, E> {
    if json.is_object() { Ok(json) } else { Err(E::custom("it is not a JSON object")) }
}

impl ToolSpec {
    /// A tool with the three required properties.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>, input_schema: RawJson) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema,
            output_schema: None,
            annotations: None,
            meta: None,
            exclusive: false,
            timeout: None,
        }
    }

    /// A tool of a list, if the CLI accepts its name.
    fn listed(listed: &RawJson) -> Result<Self, String> {
        let mut text = serde_json::Deserializer::from_slice(listed.as_bytes());
        let tool: Self = serde_path_to_error::deserialize(&mut text).map_err(|error| error.to_string())?;
        check_tool_name(&tool.name).map_err(|error| error.to_string())?;
        Ok(tool)
    }
}

/// The tools of a source, in order, with unique names. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct ToolList {
    // Not `Arc<[_]>`, which would copy the tools into a new allocation.
    tools: Arc<Vec<ToolSpec>>,
    positions: Arc<HashMap<String, usize>>,
}

impl ToolList {
    /// A list of `tools`.
    ///
    /// # Errors
    ///
    /// When two of them have the same name.
    pub fn new(tools: Vec<ToolSpec>) -> Result<Self, RegistrationError> {
        let mut positions = HashMap::with_capacity(tools.len());
        for (position, tool) in tools.iter().enumerate() {
            if positions.insert(tool.name.clone(), position).is_some() {
                return Err(RegistrationError::Duplicate(tool.name.clone()));
            }
        }
        Ok(Self { tools: tools.into(), positions: positions.into() })
    }

    /// A list of `tools`. Of several tools with the same name, only the first is kept.
    pub fn of<'a>(tools: impl Iterator<Item = &'a ToolSpec>) -> Self {
        let mut names = HashSet::new();
        let tools = tools.filter(|tool| names.insert(&tool.name)).cloned().collect();
        Self::new(tools).unwrap_or_default()
    }

    /// The tools that `source`, such as an MCP server, lists. Unusable ones, and all but the first of a name, are left
    /// out with a warning.
    #[must_use]
    pub fn of_listed(source: &str, listed: &[RawJson]) -> Self {
        let mut names = HashSet::new();
        let usable = |listed: &RawJson| match ToolSpec::listed(listed) {
            Ok(tool) if names.insert(tool.name.clone()) => Some(tool),
            Ok(ToolSpec { name, .. }) => {
                tracing::warn!(source, name, "two tools of this name are listed; the second is left out");
                None
            }
            Err(reason) => {
                tracing::warn!(source, reason, "a listed tool cannot be offered");
                None
            }
        };
        Self::new(listed.iter().filter_map(usable).collect()).unwrap_or_default()
    }

    /// The tool of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.positions.get(name).map(|position| &self.tools[*position])
    }

    /// The list of those tools, in this list's order.
    ///
    /// # Errors
    ///
    /// When a name is not in this list.
    pub fn select<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, RegistrationError> {
        let position = |name: N| {
            self.position(name.as_ref()).ok_or_else(|| RegistrationError::UnknownTool {
                name: name.as_ref().into(),
                known: self.iter().map(|tool| tool.name.clone()).collect(),
            })
        };
        let positions = names.into_iter().map(position).collect::<Result<BTreeSet<_>, _>>()?;
        Self::new(positions.into_iter().map(|position| self[position].clone()).collect())
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// Whether this is the same list in memory, and not only an equal one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tools, &other.tools)
    }

    /// The error for a tool that does not exist, with similar names.
    #[must_use]
    pub fn not_found(&self, name: impl Into<String>) -> ToolError {
        let name = name.into();
        let nearest = nearest(&name, self.iter().map(|tool| tool.name.as_str()));
        ToolError::NotFound { name, nearest }
    }
}

impl std::ops::Deref for ToolList {
    type Target = [ToolSpec];
    fn deref(&self) -> &[ToolSpec] {
        &self.tools
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> RawJson {
        RawJson::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn a_tool_is_written_as_mcp_defines_it_and_comes_back_as_it_was() {
        let mut tool = ToolSpec::new("a", "say \"A\"", raw(r#"{"z": 1,"a":12345678901234567890123}"#));
        let written = RawJson::of(&tool).unwrap();
        assert_eq!(
            written.as_str(),
            r#"{"name":"a","description":"say \"A\"","inputSchema":{"z": 1,"a":12345678901234567890123}}"#
        );
        assert_eq!(written.decode::<ToolSpec>().unwrap(), tool);
        tool.title = Some("T".into());
        tool.output_schema = Some(raw(r#"{"o":1}"#));
        tool.annotations = Some(raw(r#"{"readOnlyHint":true}"#));
        tool.meta = Some(raw(r#"{"m":1e400}"#));
        let written = RawJson::of(&tool).unwrap();
        assert_eq!(
            written.as_str(),
            r#"{"name":"a","title":"T","description":"say \"A\"","inputSchema":{"z": 1,"a":12345678901234567890123},"outputSchema":{"o":1},"annotations":{"readOnlyHint":true},"_meta":{"m":1e400}}"#
        );
        assert_eq!(written.decode::<ToolSpec>().unwrap(), tool);
    }

    #[test]
    fn the_members_of_a_schema_file_are_read_and_nulls_are_missing() {
        let text = r#"{"name":"a","description":null,"input_schema":{},"title":null,"output_schema":{"x":1},"meta":{"m":[]},"new":5}"#;
        let tool: ToolSpec = raw(text).decode().unwrap();
        assert_eq!((tool.description.as_str(), tool.title), ("", None));
        assert_eq!(tool.output_schema.unwrap().as_str(), r#"{"x":1}"#);
        assert_eq!(tool.meta.unwrap().as_str(), r#"{"m":[]}"#);
    }

    #[test]
    fn an_unusable_tool_affects_no_other() {
        let long = format!(r#"{{"name":"{}","inputSchema":{{}}}}"#, "x".repeat(121));
        let listed = [
            r#"{"name":"a","inputSchema":{}}"#,
            r#"{"name":"b c","inputSchema":{}}"#,
            r#"{"name":"","inputSchema":{}}"#,
            r#"{"name":"d"}"#,
            r#"{"name":"e","inputSchema":[]}"#,
            r#"{"name":"e","inputSchema":null}"#,
            r#"{"name":"f","inputSchema":{},"annotations":5}"#,
            r#"{"name":"a","inputSchema":{},"title":"again"}"#,
            r#"{"name":7,"inputSchema":{}}"#,
            "5",
            &long,
            r#"{"name":"z","inputSchema":{},"outputSchema":null,"new":[1]}"#,
        ];
        let tools = ToolList::of_listed("s", &listed.map(raw));
        assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["a", "z"]);
        let error = ToolSpec::listed(&raw(listed[4])).unwrap_err();
        assert_eq!(error, "inputSchema: it is not a JSON object at line 1 column 29");
    }
}
