//! The protocol's versions: which one a request speaks, and the answers that only say who we are.

use rmcp::ErrorData;
use rmcp::model::{
    DiscoverResult, ErrorCode, Implementation, InitializeRequestParams, InitializeResult, ProtocolVersion,
    RequestMetaObject, ServerCapabilities, ToolsCapability,
};
use serde::Deserialize;
use toolbridge_core::RawJson;

use crate::rpc::{Era, invalid_params};

const KNOWN_VERSIONS: &[ProtocolVersion] = ProtocolVersion::KNOWN_VERSIONS;

/// The member of a request's `_meta` that says which version it speaks.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// How the server introduces itself.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What a model should know before it uses the tools.
    pub instructions: Option<String>,
}

impl Default for ServerInfo {
    fn default() -> Self {
        Self {
            name: "toolbridge".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            instructions: Some("These tools run inside a live process, with its state.".into()),
        }
    }
}

/// What is known of the client.
pub(crate) struct Protocol {
    info: ServerInfo,
    /// The client has called `initialize`.
    is_initialized: bool,
}

impl Protocol {
    pub(crate) fn new(info: ServerInfo) -> Self {
        Self { info, is_initialized: false }
    }

    /// The shape of the answer to a request with this `_meta`.
    ///
    /// # Errors
    ///
    /// When the protocol forbids the request.
    pub(crate) fn era(&self, meta: Option<&RawJson>) -> Result<Era, ErrorData> {
        era(meta, self.is_initialized)
    }

    /// The result of a request that is about neither calls nor the list of tools.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or nothing like it is offered.
    pub(crate) fn answer(
        &mut self,
        method: &str,
        meta: Option<&RawJson>,
        line: &[u8],
    ) -> Result<RawJson, ErrorData> {
        let written = match method {
            "initialize" => RawJson::of(&self.initialize(line)?),
            "server/discover" => {
                // It comes before any `initialize`, and so says everything itself.
                era(meta, false)?;
                let versions = KNOWN_VERSIONS.to_vec();
                RawJson::of(&DiscoverResult::from_server_info(versions, self.introduction()))
            }
            "ping" if !matches!(self.era(meta), Ok(Era::Stateless)) => Ok(RawJson::empty_object()),
            _ => {
                self.era(meta)?;
                let message = format!("unknown method `{method}`");
                return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None));
            }
        };
        Ok(written.expect("what a server says of itself can always be written"))
    }

    fn initialize(&mut self, line: &[u8]) -> Result<InitializeResult, ErrorData> {
        #[derive(Deserialize)]
        struct Initialize {
            params: InitializeRequestParams,
        }
        let asked: Initialize = serde_json::from_slice(line).map_err(|error| {
            invalid_params(format!("the parameters of `initialize` cannot be read: {error}"))
        })?;
        self.is_initialized = true;
        let asked = asked.params.protocol_version;
        let is_offered = asked.has_initialize() && KNOWN_VERSIONS.contains(&asked);
        let version = if is_offered { asked } else { ProtocolVersion::LATEST_WITH_INITIALIZE };
        Ok(self.introduction().with_protocol_version(version))
    }

    fn introduction(&self) -> InitializeResult {
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(ToolsCapability::default());
        let mut introduction = InitializeResult::new(capabilities)
            .with_server_info(Implementation::new(&self.info.name, &self.info.version));
        introduction.instructions.clone_from(&self.info.instructions);
        introduction
    }
}

fn era(meta: Option<&RawJson>, is_initialized: bool) -> Result<Era, ErrorData> {
    let meta = match meta {
        // The keys are too long to be spelt with escapes by accident.
        Some(meta) if memchr::memmem::find(meta.as_bytes(), b"modelcontextprotocol/").is_some() => {
            let unread = |error| invalid_params(format!("`_meta` cannot be read: {error}"));
            meta.decode::<RequestMetaObject>().map_err(unread)?
        }
        _ => RequestMetaObject::default(),
    };
    let version = meta.protocol_version();
    if version.is_none() && meta.get(VERSION_KEY).is_some_and(|said| !said.is_null()) {
        return Err(invalid_params("the protocol version in `_meta` is not a string"));
    }
    if let Some(version) = version.clone().filter(|version| !KNOWN_VERSIONS.contains(version)) {
        return Err(ErrorData::unsupported_protocol_version(version, KNOWN_VERSIONS));
    }
    let is_stateless = version.is_some_and(|version| !version.has_initialize());
    // A request that does not lean on `initialize` must bring everything itself.
    if is_stateless || !is_initialized {
        let missing = meta.missing_required_keys(&ProtocolVersion::NO_INITIALIZE).join(", ");
        if !missing.is_empty() {
            let message = format!("request _meta is missing or has malformed required fields: {missing}");
            return Err(invalid_params(message));
        }
    }
    Ok(if is_stateless { Era::Stateless } else { Era::Initialize })
}
