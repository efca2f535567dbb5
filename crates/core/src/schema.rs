//! What a tool is called, what it does and what it takes.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::nearest;
use crate::{RawJson, RegistrationError, ToolError};

/// One tool as a model sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolSchema {
    /// The tool's name, unique in its list.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments; an object.
    pub input_schema: RawJson,
    /// A name for people.
    pub title: Option<String>,
    /// The JSON Schema of its structured result; an object.
    pub output_schema: Option<RawJson>,
    /// Hints about its behaviour, as [`Annotations`] writes them; kept raw, so that hints unknown here pass.
    pub annotations: Option<RawJson>,
    /// Anything else said about it; an object.
    pub meta: Option<RawJson>,
}

impl ToolSchema {
    /// A tool with the three things every tool has.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>, input_schema: RawJson) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema,
            title: None,
            output_schema: None,
            annotations: None,
            meta: None,
        }
    }
}

/// Hints about a tool's behaviour, in MCP's words. What is not said is left to the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Annotations {
    /// It changes nothing; calls may run side by side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// It may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// The same call twice is the same as once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It deals with things outside, such as the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// The tools of a source, in order, each name once. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct ToolList {
    tools: Arc<[ToolSchema]>,
    places: Arc<HashMap<String, usize>>,
}

impl ToolList {
    /// A list of `tools`.
    ///
    /// # Errors
    ///
    /// The name that two of them have.
    pub fn new(tools: Vec<ToolSchema>) -> Result<Self, DuplicateName> {
        let mut places = HashMap::with_capacity(tools.len());
        for (place, tool) in tools.iter().enumerate() {
            if places.insert(tool.name.clone(), place).is_some() {
                return Err(DuplicateName(tool.name.clone()));
            }
        }
        Ok(Self { tools: tools.into(), places: places.into() })
    }

    /// The tool of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ToolSchema> {
        self.places.get(name).map(|place| &self.tools[*place])
    }

    /// The places of those tools, in order, each once.
    pub(crate) fn places<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Vec<usize>, RegistrationError> {
        let place = |name: N| {
            self.place(name.as_ref()).ok_or_else(|| RegistrationError::UnknownTool {
                name: name.as_ref().into(),
                known: self.iter().map(|tool| tool.name.clone()).collect(),
            })
        };
        let mut places = names.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        places.sort_unstable();
        places.dedup();
        Ok(places)
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
        let places = self.places(names)?;
        Ok(Self::new(places.into_iter().map(|place| self[place].clone()).collect())?)
    }

    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The error that there is no tool of that name, with those that may have been meant.
    #[must_use]
    pub fn not_found(&self, name: impl Into<String>) -> ToolError {
        let name = name.into();
        let nearest = nearest(&name, self.iter().map(|tool| tool.name.as_str()));
        ToolError::NotFound { name, nearest }
    }
}

impl std::ops::Deref for ToolList {
    type Target = [ToolSchema];
    fn deref(&self) -> &[ToolSchema] {
        &self.tools
    }
}

/// The name that two tools of a list have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two tools are called `{0}`")]
pub struct DuplicateName(pub String);
