//! The document tools as a source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::{
    CallContext, CallFuture, RawJson, ToolCall, ToolError, ToolList, ToolResult, ToolSource,
};

use crate::builder::DocumentsBuilder;
use crate::find::Search;
use crate::log::Log;
use crate::manual::Manuals;
use crate::tool::Tool;
use crate::vault::Vault;

/// Tools over two folders: manuals, which are only read, and a vault, which is written to.
///
/// A model finds a section and has it copied; the text moves inside the server and never passes through
/// the model. Cloning is cheap.
///
/// ```
/// use toolbridge_core::{CallContext, RawJson, ToolCall, ToolSource as _};
/// use toolbridge_docs::Documents;
///
/// # let dir = tempfile::TempDir::new()?;
/// # let workspace = dir.path();
/// let builder = Documents::builder().workspace(workspace);
/// builder.init()?;
/// let documents = builder.open()?;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let call = ToolCall::new("manual_find", RawJson::parse(r#"{"query":"copy a section"}"#)?);
/// let answer = documents.call(call, CallContext::default()).await?;
/// assert!(answer.as_str().contains("start_line"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Documents {
    list: ToolList,
    shared: Arc<Shared>,
}

/// What all calls share.
pub(crate) struct Shared {
    pub(crate) manuals: Manuals,
    pub(crate) vault: Vault,
    pub(crate) search: Search,
    pub(crate) log: Log,
    /// In the order of the list.
    pub(crate) tools: Vec<Tool>,
}

impl Documents {
    /// Starts with the defaults: `manuals` and `vault` in the current directory.
    pub fn builder() -> DocumentsBuilder {
        DocumentsBuilder::default()
    }

    pub(crate) fn new(shared: Shared) -> Self {
        let schemas = shared.tools.iter().map(|tool| tool.schema.clone()).collect();
        let list = ToolList::new(schemas).expect("each tool has a name of its own");
        Self { list, shared: Arc::new(shared) }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|tool| tool.name == name)
    }
}

impl std::fmt::Debug for Documents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Documents")
            .field("manuals", &self.shared.manuals)
            .field("vault", &self.shared.vault)
            .finish_non_exhaustive()
    }
}

impl ToolSource for Documents {
    fn tools(&self) -> &ToolList {
        &self.list
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move {
            let Some(place) = self.place(&call.name) else {
                return Err(self.list.not_found(call.name));
            };
            let shared = Arc::clone(&self.shared);
            let is_dropped = Arc::new(AtomicBool::new(false));
            let caller = Caller { context, is_dropped: Arc::clone(&is_dropped) };
            // The context holds the call's turn, until the disk has been left alone.
            let work = tokio::task::spawn_blocking(move || shared.answer(place, &call.arguments, &caller));
            // When this is dropped, work that still waits for a thread is taken back; work that has begun can see it.
            let _waiting = Waiting { is_dropped };
            match AbortOnDropHandle::new(work).await {
                Ok(answer) => Ok(answer),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(error) => Err(ToolError::new("ToolCancelledError", error.to_string())),
                },
            }
        })
    }

    fn is_exclusive(&self, name: &str) -> bool {
        self.place(name).is_some_and(|place| !self.shared.tools[place].is_read_only())
    }
}

impl Shared {
    /// Runs a tool; a refusal is an answer too.
    fn answer(&self, place: usize, arguments: &RawJson, caller: &Caller) -> RawJson {
        let tool = &self.tools[place];
        let started = Instant::now();
        let outcome = (tool.run)(self, arguments, caller);
        let logged = outcome.as_ref().map(|(_, note)| note.as_ref());
        self.log.call(&tool.schema.name, started.elapsed(), logged);
        let result = match outcome {
            Ok((answer, _)) => ToolResult::text(answer.as_str()).structured(answer),
            Err(refusal) => {
                let refusal = RawJson::of(&refusal).expect("strings and numbers can be written");
                ToolResult::error(refusal.as_str()).structured(refusal)
            }
        };
        result.to_json()
    }
}

/// Whoever waits for an answer.
pub(crate) struct Caller {
    context: CallContext,
    is_dropped: Arc<AtomicBool>,
}

impl Caller {
    /// Whether nobody waits any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.context.is_cancelled() || self.is_dropped.load(Ordering::Relaxed)
    }
}

/// A call that waits for its answer.
struct Waiting {
    is_dropped: Arc<AtomicBool>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Relaxed);
    }
}
