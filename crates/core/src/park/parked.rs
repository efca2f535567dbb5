//! A source that keeps large results.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{fmt, io};

use rustix::fs::{Mode, OFlags};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::park::expand::expand;
use crate::park::long::Long;
use crate::park::store::{Owner, PREFIX, Store, owner_of, unusable};
use crate::park::tools::{self, SaveTo};
use crate::source::DerivedList;
use crate::{
    CallContext, CallFuture, Changes, RawJson, RegistrationError, Tool, ToolCall, ToolError, ToolList,
    ToolSource, ToolSpec, Toolset,
};

/// The default limit for results in characters, the same as the CLI's.
const LIMIT_CHARS: usize = 25_000;

/// A source around another one. Results over a limit stay in this process, and the model gets a handle; when
/// it passes the handle as an argument, the handle is replaced by the text, byte for byte.
///
/// - A handle is valid only for the client that got it: the CLI's session, the HTTP session or the process.
///   Handles are random.
/// - Results are kept in memory, and beyond 16 MiB in unnamed files, which only this process can read and
///   which the system removes when it ends. Above 1 GiB or 200 results, the oldest are dropped.
/// - A tool's own limit (`Tool::max_result_chars`) takes precedence over the one here, 25,000 characters.
/// - Errors, pictures and sounds are not kept: they are meant for the model.
///
/// Output schemas are not listed: a kept result would not match them.
pub struct Parked<S> {
    source: S,
    store: Arc<Store>,
    limit_chars: usize,
    at_most_chars: usize,
    save_to: Option<Arc<SaveTo>>,
    on_demand: bool,
    /// Whether a result was ever kept, so that the tools are listed.
    has_kept: AtomicBool,
    kept: watch::Sender<()>,
    /// The tools for kept results, made when everything is set.
    own: OnceLock<Toolset>,
    list: DerivedList,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("results cannot be saved to `{}`: {error}", path.display())]
pub struct ParkError {
    /// The folder.
    pub path: PathBuf,
    /// The system's error.
    #[source]
    pub error: io::Error,
}

impl<S: fmt::Debug> fmt::Debug for Parked<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parked")
            .field("source", &self.source)
            .field("limit_chars", &self.limit_chars)
            .finish_non_exhaustive()
    }
}

impl<S: ToolSource> Parked<S> {
    /// The tools of `source`, and `result_read` and `result_find`.
    ///
    /// # Errors
    ///
    /// When `source` has a tool with one of these names.
    pub fn new(source: S) -> Result<Self, RegistrationError> {
        if let Some(taken) = source.tools().iter().find(|tool| tools::is_own(&tool.name)) {
            return Err(RegistrationError::Duplicate(taken.name.clone()));
        }
        Ok(Self {
            source,
            store: Arc::default(),
            limit_chars: LIMIT_CHARS,
            at_most_chars: usize::MAX,
            save_to: None,
            on_demand: false,
            has_kept: AtomicBool::new(false),
            kept: watch::Sender::new(()),
            own: OnceLock::new(),
            list: DerivedList::default(),
        })
    }

    /// Keeps results longer than this; 25,000 characters by default.
    #[must_use]
    pub fn limit_chars(mut self, most: usize) -> Self {
        self.limit_chars = most;
        self
    }

    /// Keeps results longer than this even if the tool's own limit is higher.
    #[must_use]
    pub fn at_most_chars(mut self, most: usize) -> Self {
        self.at_most_chars = most;
        self
    }

    /// The limit of memory; further results go to files. 16 MiB by default.
    #[must_use]
    pub fn memory_bytes(mut self, most: usize) -> Self {
        self.unshared().memory_bytes = most;
        self
    }

    /// The limit of all kept results; 1 GiB by default.
    #[must_use]
    pub fn total_bytes(mut self, most: usize) -> Self {
        self.unshared().total_bytes = most;
        self
    }

    /// The directory for the files; the system's temporary directory by default.
    #[must_use]
    pub fn spill_to(mut self, dir: impl Into<PathBuf>) -> Self {
        self.unshared().dir = Some(dir.into());
        self
    }

    /// Offers `result_save` too, which creates new files in this directory only.
    ///
    /// # Errors
    ///
    /// When the directory does not exist or is not a directory.
    pub fn save_to(mut self, dir: impl AsRef<Path>) -> Result<Self, ParkError> {
        let path = dir.as_ref();
        let opened = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let dir = opened.map_err(|error| ParkError { path: path.to_owned(), error: error.into() })?;
        self.save_to = Some(Arc::new(SaveTo { dir, shown: path.display().to_string() }));
        Ok(self)
    }

    /// Lists the tools for kept results only once there is one; until then the list is that of the source.
    #[must_use]
    pub fn on_demand(mut self) -> Self {
        self.on_demand = true;
        self
    }

    fn unshared(&mut self) -> &mut Store {
        Arc::get_mut(&mut self.store).expect("it is not shared before it is used as a source")
    }

    fn own(&self) -> &Toolset {
        let make = || tools::toolset(&self.store, self.limit_chars, self.save_to.clone());
        self.own.get_or_init(|| make().expect("their names differ"))
    }

    fn limit_of(&self, name: &str) -> usize {
        let tools = self.source.tools();
        let own = tools.get(name).and_then(|tool| tool.meta.as_ref()?.member(Tool::MAX_RESULT_CHARS));
        own.unwrap_or(self.limit_chars).min(self.at_most_chars)
    }

    /// Replaces the handles in the arguments by texts; returns the permit for their memory.
    async fn expand(
        &self,
        owner: &Owner,
        call: &mut ToolCall,
    ) -> Result<Option<OwnedSemaphorePermit>, ToolError> {
        if !call.arguments.as_str().contains(PREFIX) {
            return Ok(None);
        }
        let Some(tool) = self.source.tools().get(&call.name).cloned() else { return Ok(None) };
        let (store, owner, arguments) = (Arc::clone(&self.store), owner.clone(), call.arguments.clone());
        let expanded = blocking(move || expand(&store, &owner, &arguments, &tool.input_schema)).await??;
        Ok(expanded.map(|(arguments, permit)| {
            call.arguments = arguments;
            permit
        }))
    }

    /// The result, or what the model gets instead.
    async fn kept(&self, owner: Owner, result: RawJson, limit_chars: usize) -> Result<RawJson, ToolError> {
        if result.as_bytes().len() <= limit_chars {
            return Ok(result);
        }
        let store = Arc::clone(&self.store);
        let kept = blocking(move || {
            let Some(long) = Long::of(&result, limit_chars) else { return (result, false) };
            match store.put(owner, long.text.clone(), long.is_json) {
                Ok(item) => (long.note(&item), true),
                Err(reason) => {
                    tracing::warn!(%reason, "a long result could not be kept");
                    (long.start(limit_chars, &reason), false)
                }
            }
        });
        let (answer, is_kept) = kept.await?;
        if is_kept && !self.has_kept.swap(true, Ordering::AcqRel) && self.on_demand {
            self.kept.send_replace(());
        }
        Ok(answer)
    }

    fn lists_own(&self) -> bool {
        !self.on_demand || self.has_kept.load(Ordering::Acquire)
    }
}

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| unusable(&format!("the result could not be processed: {error}")))
}

impl<S: ToolSource> ToolSource for Parked<S> {
    fn tools(&self) -> ToolList {
        let mut lists = vec![self.source.tools()];
        if self.lists_own() {
            lists.push(self.own().tools());
        }
        self.list.get(lists, |lists| {
            let plain = |tool: &ToolSpec| {
                let mut tool = tool.clone();
                tool.output_schema = None;
                tool
            };
            let (source, own) = lists.split_first().expect("the source's list is the first");
            // Checked when this was made; but a source may get more tools.
            let is_free = |tool: &&ToolSpec| {
                let is_free = !tools::is_own(&tool.name);
                if !is_free {
                    tracing::warn!(
                        "the tool `{}` is left out: it is the name of a tool for long results",
                        tool.name
                    );
                }
                is_free
            };
            let all = source.iter().filter(is_free).chain(own.iter().flat_map(|own| own.iter()));
            let all: Vec<_> = all.map(plain).collect();
            ToolList::of(all.iter())
        })
    }

    fn changes(&self) -> Changes {
        let changes = self.source.changes();
        if self.on_demand { changes.and(Changes::of(self.kept.subscribe())) } else { changes }
    }

    fn call(&self, mut call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move {
            if tools::is_own(&call.name) {
                let tools = self.tools();
                return match tools.get(&call.name) {
                    Some(_) => self.own().call(call, context).await,
                    None => Err(tools.not_found(call.name)),
                };
            }
            let owner = owner_of(call.meta.caller.as_deref());
            // Held until the call ends: the tool may work with a copy of the texts.
            let _permit = self.expand(&owner, &mut call).await?;
            let limit_chars = self.limit_of(&call.name);
            let result = self.source.call(call, context).await?;
            self.kept(owner, result, limit_chars).await
        })
    }
}
