//! A conversation that stays open.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toolbridge_core::ToolSource;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::tool::RawJson;

use crate::callbacks::Callbacks;
use crate::cli::Cli;
use crate::cli::TurnOptions;
use crate::launch::Launch;
use crate::model::ClaudeCodeModel;
use crate::prompt::Message;
use crate::request::Request;
use crate::response::McpServerStatus;
use crate::settings::{PermissionMode, Settings};
use crate::stream::ResponseStream;
use crate::{ClaudeCodeError, ModelResponse, ResponseWithMetadata, Transport};

/// The result of a control request that returns no data.
type Done = Result<(), ClaudeCodeError>;

/// A conversation on one CLI process, created by [`ClaudeCodeModel::conversation`]. Dropping it ends the
/// process.
///
/// ```no_run
/// # mod toolbridge { pub use toolbridge_claude::{self as model, ClaudeCodeModel, Request}; }
/// use toolbridge::ClaudeCodeModel;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut conversation = ClaudeCodeModel::new().conversation().open().await?;
/// conversation.send("My name is Ada.").await?;
/// println!("{}", conversation.send("What is my name?").await?.text());
/// conversation.close().await;
/// # Ok(()) }
/// ```
///
/// When tools are added to or removed from a toolset between two prompts, the model sees the change in the
/// next prompt.
#[derive(Debug)]
pub struct Conversation {
    cli: Cli,
    model: ClaudeCodeModel,
    launch: Launch,
    turn: TurnOptions,
    /// Earlier messages, to be sent with the first prompt.
    unsent: Vec<Message>,
}

/// Builder for a [`Conversation`].
#[derive(Debug)]
#[must_use]
pub struct ConversationBuilder {
    model: ClaudeCodeModel,
    request: Request,
}

impl ClaudeCodeModel {
    /// Starts building a conversation, which stays open across several prompts.
    pub fn conversation(&self) -> ConversationBuilder {
        ConversationBuilder { model: self.clone(), request: Request::default() }
    }
}

impl ConversationBuilder {
    pub(crate) fn own_callbacks(&mut self) -> &mut Callbacks {
        &mut self.request.callbacks
    }

    /// As [`Request::tools`].
    pub fn tools(self, tools: impl ToolSource) -> Self {
        self.with(|request| request.tools(tools))
    }

    /// As [`Request::server_name`].
    pub fn server_name(self, name: impl Into<String>) -> Self {
        self.with(|request| request.server_name(name))
    }

    /// As [`Request::transport`].
    pub fn transport(self, transport: Transport) -> Self {
        self.with(|request| request.transport(transport))
    }

    /// As [`Request::only`].
    pub fn only<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.with(|request| request.only(names))
    }

    /// As [`Request::state`].
    pub fn state<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.with(|request| request.state(value))
    }

    /// As [`Request::system_prompt`].
    pub fn system_prompt(self, text: impl Into<String>) -> Self {
        self.with(|request| request.system_prompt(text))
    }

    /// As [`Request::history`]: the messages before the first prompt.
    pub fn history(self, messages: impl IntoIterator<Item = Message>) -> Self {
        self.with(|request| request.history(messages))
    }

    /// As [`Request::output`], for every answer.
    pub fn output<T: JsonSchema + DeserializeOwned>(self) -> Self {
        self.with(Request::output::<T>)
    }

    /// Takes over all options of `request`, replacing those set so far. Its prompt and
    /// [`until`](Request::until) are ignored.
    pub fn like(self, request: Request) -> Self {
        Self { request, ..self }
    }

    /// Stores the conversation on disk, so that it can be [resumed](Self::resume) by its
    /// [`session_id`](Conversation::session_id).
    pub fn keep(self) -> Self {
        self.settings(Settings::default().keep_session(true))
    }

    /// Continues the stored conversation with this id.
    pub fn resume(self, session_id: impl Into<String>) -> Self {
        self.settings(Settings::default().resume(session_id))
    }

    /// As [`Request::settings`]. The timeout applies to each prompt.
    pub fn settings(self, settings: Settings) -> Self {
        self.with(|request| request.settings(settings))
    }

    fn with(self, change: impl FnOnce(Request) -> Request) -> Self {
        Self { request: change(self.request), ..self }
    }

    /// Starts the CLI and waits until it accepts a prompt.
    ///
    /// # Errors
    ///
    /// When the CLI cannot be started, or cannot connect to the tools.
    pub async fn open(self) -> Result<Conversation, ClaudeCodeError> {
        let Self { model, mut request } = self;
        request.until = None;
        let (launch, turn) = model.resolve(&request, true, true).await?;
        let history = launch.history(&request.history);
        let cli = model.open(&launch, history.as_deref(), &CancellationToken::new()).await?;
        cli.ready(turn.limit).await?;
        let unsent = if history.is_none() { request.history } else { Vec::new() };
        Ok(Conversation { cli, model, launch, turn, unsent })
    }
}

impl Conversation {
    /// Sends a prompt, of a request only that, and waits for the answer. Dropping the future interrupts the model.
    ///
    /// # Errors
    ///
    /// See [`ClaudeCodeError`]. After a timeout or an interrupt the conversation can continue. Once the CLI
    /// has ended, every further call fails.
    pub async fn send(&mut self, prompt: impl Into<Request>) -> Result<ModelResponse, ClaudeCodeError> {
        Ok(self.send_with_metadata(prompt).await?.response)
    }

    /// Like [`send`](Self::send), and also returns cost, turns, session id and durations.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn send_with_metadata(
        &mut self,
        prompt: impl Into<Request>,
    ) -> Result<ResponseWithMetadata, ClaudeCodeError> {
        self.stream(prompt)?.finish().await
    }

    /// Sends a prompt and returns a stream of events. [`ResponseStream::interrupt`], or dropping the stream
    /// before its end, interrupts only this answer. A prompt sent before the answer has ended waits for it.
    ///
    /// # Errors
    ///
    /// When the prompt cannot be sent. A later failure is the stream's last item.
    pub fn stream(&mut self, prompt: impl Into<Request>) -> Result<ResponseStream, ClaudeCodeError> {
        let request = prompt.into().history(self.unsent.iter().cloned());
        request.check()?;
        let line = request.prompt_line(&self.launch, true)?;
        self.unsent.clear();
        Ok(self.cli.turn(&self.turn, line, &self.model.0.running.add()))
    }

    /// The conversation's id, available once the first answer has begun. It can be used to resume the
    /// conversation if it is [kept](ConversationBuilder::keep).
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.turn.session_id.get().map(String::as_str)
    }

    /// Switches to another model from now on; `None` selects the CLI's default.
    ///
    /// # Errors
    ///
    /// When the CLI refuses, or has ended.
    pub fn set_model(&self, model: Option<&str>) -> impl Future<Output = Done> + Send + use<> {
        self.control(json!({ "subtype": "set_model", "model": model }))
    }

    /// Changes the permission mode from now on.
    ///
    /// # Errors
    ///
    /// When the CLI refuses, or has ended.
    #[expect(clippy::needless_pass_by_value, reason = "the caller has no other use for it")]
    pub fn set_permission_mode(&self, mode: PermissionMode) -> impl Future<Output = Done> + Send + use<> {
        self.control(json!({ "subtype": "set_permission_mode", "mode": mode }))
    }

    /// Lists the MCP servers and their connection state.
    ///
    /// # Errors
    ///
    /// When the CLI refuses, or has ended.
    pub fn mcp_servers(
        &self,
    ) -> impl Future<Output = Result<Vec<McpServerStatus>, ClaudeCodeError>> + Send + use<> {
        #[derive(Deserialize)]
        struct Status {
            #[serde(rename = "mcpServers")]
            servers: Vec<McpServerStatus>,
        }
        let parse_error =
            |error| ClaudeCodeError::CliResponseParse { reason: format!("its servers: {error}") };
        let status = self.cli.request(json!({ "subtype": "mcp_status" }));
        async move { Ok(status.await?.decode::<Status>().map_err(parse_error)?.servers) }
    }

    /// Reports how full the model's context is, in the CLI's own format.
    ///
    /// # Errors
    ///
    /// When the CLI refuses, or has ended.
    pub fn context_usage(&self) -> impl Future<Output = Result<RawJson, ClaudeCodeError>> + Send + use<> {
        self.cli.request(json!({ "subtype": "get_context_usage" }))
    }

    /// Restores files changed by the CLI's tools to their state before the prompt with this id, which is
    /// the `uuid` of the messages passed to [`on_message`](ConversationBuilder::on_message). Requires
    /// [`enable_file_checkpointing`](Settings::enable_file_checkpointing).
    ///
    /// # Errors
    ///
    /// When the CLI refuses, or has ended.
    pub fn rewind_files(&self, prompt_id: &str) -> impl Future<Output = Done> + Send + use<> {
        self.control(json!({ "subtype": "rewind_files", "user_message_id": prompt_id }))
    }

    /// Sends a control request whose response carries no data.
    fn control(&self, request: Value) -> impl Future<Output = Done> + Send + use<> {
        let answer = self.cli.request(request);
        async move { answer.await.map(drop) }
    }

    /// Ends the conversation and waits until everything is cleaned up.
    pub async fn close(self) {
        self.cli.close().await;
    }
}
