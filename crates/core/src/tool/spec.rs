//! Descriptions of tools and lists of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::tool::name::nearest;
use crate::{RawJson, RegistrationError, ToolError};

/// The description of a tool, for the model and for the code that runs its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolSpec {
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
    /// Hints about its behaviour, as MCP defines them; an object.
    pub annotations: Option<RawJson>,
    /// Other metadata; an object.
    pub meta: Option<RawJson>,
    /// Its calls do not overlap with other exclusive calls of the same session. Not set where another process
    /// decides.
    pub exclusive: bool,
    /// How long a call may take; `None` means without limit.
    pub timeout: Option<Duration>,
}

impl ToolSpec {
    /// A tool with the three required properties.
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
            exclusive: false,
            timeout: None,
        }
    }
}

/// The tools of a source, in order, with unique names. Cloning is cheap.
#[derive(Debug, Clone, Default)]
pub struct ToolList {
    // Not `Arc<[_]>`, which would copy the tools into a new allocation.
    tools: Arc<Vec<ToolSpec>>,
    places: Arc<HashMap<String, usize>>,
}

impl ToolList {
    /// A list of `tools`.
    ///
    /// # Errors
    ///
    /// When two of them have the same name.
    pub fn new(tools: Vec<ToolSpec>) -> Result<Self, DuplicateName> {
        let mut places = HashMap::with_capacity(tools.len());
        for (place, tool) in tools.iter().enumerate() {
            if places.insert(tool.name.clone(), place).is_some() {
                return Err(DuplicateName(tool.name.clone()));
            }
        }
        Ok(Self { tools: tools.into(), places: places.into() })
    }

    /// A list of `tools`. Of several tools with the same name, only the first is kept.
    pub fn of<'a>(tools: impl Iterator<Item = &'a ToolSpec>) -> Self {
        let mut names = HashSet::new();
        let tools = tools.filter(|tool| names.insert(&tool.name)).cloned().collect();
        Self::new(tools).unwrap_or_default()
    }

    /// The tool of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.places.get(name).map(|place| &self.tools[*place])
    }

    /// The indices of those tools, in ascending order, without duplicates.
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

/// The name that two tools of a list share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two tools are called `{0}`")]
pub struct DuplicateName(pub String);
