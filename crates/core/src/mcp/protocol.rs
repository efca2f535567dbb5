//! The versions of the protocol: which one a request uses, and the answers that introduce the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Caller, RawJson, ServerInfo};
use rmcp::ErrorData;
use rmcp::model::{
    DiscoverResult, ErrorCode, Implementation, InitializeRequestParams, InitializeResult, ProtocolVersion,
    RequestMetaObject, ServerCapabilities, ToolsCapability,
};

use crate::mcp::rpc::{Era, invalid_params, read_params};

/// The supported versions of the protocol.
pub(crate) const KNOWN_VERSIONS: &[ProtocolVersion] = ProtocolVersion::KNOWN_VERSIONS;

/// The member of a request's `_meta` with its protocol version.
pub(crate) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// The member of a request's `_meta` with the client's capabilities.
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// How much of a client's name and version is kept.
const MAX_CLIENT_CHARS: usize = 200;

/// What is known about the client.
#[derive(Debug)]
pub(crate) struct Protocol {
    info: ServerInfo,
    /// The client has called `initialize`.
    is_initialized: bool,
    /// How it introduced itself.
    caller: Option<Arc<Caller>>,
    /// The CLI's session id, if the client is the CLI.
    session_id: Option<String>,
    /// The number of this client.
    connection: Option<u64>,
    /// The client announced in `initialize` that it can ask its user.
    asks: bool,
    /// The client's last stateless request announced that.
    asks_now: bool,
}

impl Protocol {
    /// Nothing is known about the client yet; `info` introduces the server.
    pub(crate) fn new(info: ServerInfo, session_id: Option<String>) -> Self {
        Self {
            info,
            is_initialized: false,
            caller: None,
            session_id,
            connection: None,
            asks: false,
            asks_now: false,
        }
    }

    /// The same for a client that stays connected: it gets a unique number.
    pub(crate) fn lasting(mut self) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.connection = Some(NEXT.fetch_add(1, Ordering::Relaxed));
        self
    }

    /// Whether the client has called `initialize`, and is therefore notified of changes without a subscription.
    pub(crate) fn is_initialized(&self) -> bool {
        self.is_initialized
    }

    /// The calling client; for stateless requests, the one that the last request named.
    pub(crate) fn caller(&self) -> Option<Arc<Caller>> {
        self.caller.clone()
    }

    /// Whether the client can ask its user, according to the last request of that era.
    pub(crate) fn can_ask(&self, era: Era) -> bool {
        match era {
            Era::Initialize => self.asks,
            Era::Stateless => self.asks_now,
        }
    }

    fn meet(&mut self, client: Implementation) {
        let short = |text: String| Some(text.chars().take(MAX_CLIENT_CHARS).collect::<String>());
        let (name, version) = (short(client.name), short(client.version));
        if self.caller.as_ref().is_none_or(|known| known.name != name || known.version != version) {
            let mut client = Caller::default();
            (client.name, client.version, client.session_id) = (name, version, self.session_id.clone());
            client.connection = self.connection;
            self.caller = Some(Arc::new(client));
        }
    }

    /// The form of the response to a request with this `_meta`.
    ///
    /// # Errors
    ///
    /// When the protocol does not allow the request.
    pub(crate) fn era(&mut self, meta: Option<&RawJson>) -> Result<Era, ErrorData> {
        let (era, client, can_ask) = era(meta, self.is_initialized)?;
        if let Some(client) = client {
            self.meet(client);
        }
        self.asks_now = can_ask;
        Ok(era)
    }

    /// The result of a request other than `tools/call` and `tools/list`.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or the method is unknown.
    pub(crate) fn answer(
        &mut self,
        method: &str,
        meta: Option<&RawJson>,
        params: Option<&RawJson>,
    ) -> Result<RawJson, ErrorData> {
        let written = match method {
            "initialize" => RawJson::of(&self.initialize(read_params(method, params)?)),
            "server/discover" => {
                // It comes before any `initialize`, so it must contain all metadata itself.
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
        Ok(written.expect("strings and flags can always be written"))
    }

    fn initialize(&mut self, asked: InitializeRequestParams) -> InitializeResult {
        self.is_initialized = true;
        self.meet(asked.client_info);
        // A client that names no mode supports forms.
        let elicitation = asked.capabilities.elicitation;
        self.asks = elicitation.is_some_and(|can| can.form.is_some() || can.url.is_none());
        let asked = asked.protocol_version;
        let is_offered = asked.has_initialize() && KNOWN_VERSIONS.contains(&asked);
        let version = if is_offered { asked } else { ProtocolVersion::LATEST_WITH_INITIALIZE };
        self.introduction().with_protocol_version(version)
    }

    fn introduction(&self) -> InitializeResult {
        let mut capabilities = ServerCapabilities::default();
        let mut tools = ToolsCapability::default();
        tools.list_changed = Some(true);
        capabilities.tools = Some(tools);
        let mut introduction = InitializeResult::new(capabilities)
            .with_server_info(Implementation::new(&self.info.name, &self.info.version));
        introduction.instructions.clone_from(&self.info.instructions);
        introduction
    }
}

/// What a request's `_meta` contains: the form of its response, the client, and whether that can ask its user.
fn era(
    meta: Option<&RawJson>,
    is_initialized: bool,
) -> Result<(Era, Option<Implementation>, bool), ErrorData> {
    let meta = match meta {
        // The key is too long to be written with escapes by accident.
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
    // A request that does not rely on `initialize` must contain all metadata itself.
    if is_stateless || !is_initialized {
        let missing = meta.missing_required_keys(&ProtocolVersion::NO_INITIALIZE).join(", ");
        if !missing.is_empty() {
            let message = format!("request _meta is missing or has malformed required fields: {missing}");
            return Err(invalid_params(message));
        }
    }
    let era = if is_stateless { Era::Stateless } else { Era::Initialize };
    let elicitation = meta.get(CAPABILITIES_KEY).and_then(|can| can.get("elicitation")?.as_object());
    let can_ask = elicitation.is_some_and(|can| can.contains_key("form") || !can.contains_key("url"));
    Ok((era, meta.client_info().filter(|_| is_stateless), can_ask))
}
