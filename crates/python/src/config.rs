//! The JSON form of a model's settings and requests, as Python sends them.

use std::path::PathBuf;

use pyo3::pyfunction;
use serde::Deserialize;
use serde_json::Value;
use toolbridge::model::{self, ClaudeCodeError, Input, Settings};
use toolbridge::tool::ServerInfo;
use toolbridge::{ClaudeCodeModel, Request, set};

use crate::error;

/// Settings shared by all requests of a model.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelConfig {
    settings: Settings,
    bridge: PathBuf,
    guard: PathBuf,
    cli: Option<PathBuf>,
    /// The CLI bundled with a Python package; used if no other is found.
    bundled_cli: Option<PathBuf>,
    session_dir: Option<PathBuf>,
    server: Option<ServerInfo>,
    inherit_env: bool,
    strict_mcp_config: Option<bool>,
    allow_own_tools: Option<bool>,
    max_concurrent_requests: Option<usize>,
    #[serde(default)]
    restrictions: Vec<(String, String, Value)>,
}

/// One request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestConfig {
    request: Request,
    settings: Value,
}

impl ModelConfig {
    pub(crate) fn parse(json: &[u8]) -> Result<Self, ClaudeCodeError> {
        // As a value first: the place of an error in our own JSON says nothing.
        let config = serde_json::from_slice::<Value>(json).and_then(serde_json::from_value);
        config.map_err(|error| invalid_request(format!("a setting is invalid: {error}")))
    }

    pub(crate) fn build(self) -> Result<ClaudeCodeModel, ClaudeCodeError> {
        let mut builder = ClaudeCodeModel::builder()
            .bridge(self.bridge)
            .guard(self.guard)
            .inherit_env(self.inherit_env)
            .tool_parameter_restrictions(self.restrictions);
        set! { builder:
            cli = self.cli.or_else(|| bundled_if_needed(self.bundled_cli)),
            strict_mcp_config = self.strict_mcp_config,
            allow_own_tools = self.allow_own_tools,
            max_concurrent_requests = self.max_concurrent_requests,
            session_dir = self.session_dir,
            info = self.server,
        }
        builder.settings(self.settings).build()
    }
}

/// The CLI that a model starts if no path is given.
#[pyfunction]
pub(crate) fn find_cli(bundled: Option<PathBuf>) -> error::Result<PathBuf> {
    Ok(model::find_cli(bundled_if_needed(bundled).as_deref())?)
}

/// The CLI bundled with a Python package, if no other is found.
fn bundled_if_needed(bundled: Option<PathBuf>) -> Option<PathBuf> {
    bundled.filter(|_| model::find_cli(None).is_err())
}

fn invalid_request(reason: impl Into<String>) -> ClaudeCodeError {
    ClaudeCodeError::InvalidRequest { reason: reason.into() }
}

/// Parses a prompt.
pub(crate) fn prompt(json: &[u8]) -> Result<Vec<Input>, ClaudeCodeError> {
    serde_json::from_slice(json).map_err(|error| invalid_request(format!("the prompt is invalid: {error}")))
}

/// Parses a request.
pub(crate) fn request(json: &[u8]) -> Result<Request, ClaudeCodeError> {
    let RequestConfig { request, settings } = serde_json::from_slice(json)
        .map_err(|error| invalid_request(format!("the request is invalid: {error}")))?;
    let settings: Settings = serde_json::from_value(settings)
        .map_err(|error| invalid_request(format!("a setting is invalid: {error}")))?;
    Ok(request.settings(settings))
}
