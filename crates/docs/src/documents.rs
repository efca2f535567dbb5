//! The document tools as a tool source.

use std::sync::Arc;

use toolbridge_core::source::CallFuture;
use toolbridge_core::tool::{ToolCall, ToolList};
use toolbridge_core::toolset::ToolsetBuilder;
use toolbridge_core::{CallContext, ToolSource, Toolset};

use crate::builder::DocumentsBuilder;
use crate::find::Search;
use crate::log::Log;
use crate::manual::Manuals;
use crate::tools::tools;
use crate::vault::Vault;

/// Tools over two folders, manuals, which are read-only, and a vault, which is written to; or over a
/// [single folder](DocumentsBuilder::workspace) of notes.
///
/// A model finds a section and has it copied; the text is copied inside the server and never passes through
/// the model. Cloning is cheap.
///
/// ```
/// # mod toolbridge { pub use toolbridge_core::*; pub use toolbridge_docs as docs; }
/// use toolbridge::docs::Documents;
/// use toolbridge::tool::{RawJson, ToolCall};
/// use toolbridge::{CallContext, ToolSource as _};
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
/// assert!(answer.as_str().contains("getting-started/guide.md#L13"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Documents {
    tools: Toolset,
}

/// State shared by all calls.
pub(crate) struct Shared {
    pub(crate) manuals: Arc<Manuals>,
    pub(crate) search: Arc<Search>,
    pub(crate) vault: Vault,
    /// The vault's notes, for searching; in a single folder, the same as the manuals.
    pub(crate) notes: Arc<Manuals>,
    pub(crate) note_search: Arc<Search>,
    pub(crate) log: Log,
}

impl Documents {
    /// Starts with the defaults: `manuals` and `vault` in the current directory.
    pub fn builder() -> DocumentsBuilder {
        DocumentsBuilder::default()
    }

    pub(crate) fn new(shared: Shared, read_only: bool) -> Self {
        let shared = Arc::new(shared);
        prepare(Arc::clone(&shared));
        let tools = tools(shared.vault.daily.as_ref()).into_iter();
        let tools = tools.fold(Toolset::builder().state(shared), ToolsetBuilder::with).build();
        let tools = tools.expect("each tool has a name of its own, and a schema");
        if !read_only {
            return Self { tools };
        }
        let list = tools.tools();
        let reading = list.iter().filter(|tool| !tool.exclusive).map(|tool| &tool.name);
        Self { tools: tools.filter(reading).expect("they are in it") }
    }
}

/// Reads all manuals in the background; stops when all clones are dropped.
fn prepare(shared: Arc<Shared>) {
    let prepare = move || shared.search.prepare(&shared.manuals, &|| Arc::strong_count(&shared) == 1);
    if let Err(error) = std::thread::Builder::new().name("toolbridge-docs".into()).spawn(prepare) {
        tracing::debug!(%error, "the manuals are read at the first search");
    }
}

impl ToolSource for Documents {
    fn tools(&self) -> ToolList {
        self.tools.tools()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        self.tools.call(call, context)
    }
}
