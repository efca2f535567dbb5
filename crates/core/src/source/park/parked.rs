//! A source that keeps large results.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{error, io};

use crate::{
    Budget, CallContext, CallFuture, CallMeta, Changes, DerivedList, DuplicateName, RawJson,
    RegistrationError, ToolCall, ToolError, ToolList, ToolSource, ToolSpec,
};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use tokio::sync::watch;

use crate::source::park::handle::Handle;
use crate::source::park::outcome::Long;
use crate::source::park::place::{Filling, MAX_BYTES};
use crate::source::park::shelf::{Item, Owner, Shelf};
use crate::source::park::tools::{self, SaveTo};

/// The default limit for results in characters, the same as the CLI's.
const LIMIT_CHARS: usize = 25_000;

/// The key in a tool's `_meta` for its own result limit.
const LIMIT_KEY: &str = "anthropic/maxResultSizeChars";

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
    results: Arc<Shelf>,
    limit_chars: usize,
    at_most_chars: usize,
    save_to: Option<Arc<SaveTo>>,
    /// For the texts that replace handles, of all calls.
    texts: Budget,
    /// For results that are being read, searched or saved: these never wait for somebody's tool.
    loaded: Budget,
    on_demand: bool,
    /// Whether a result was ever kept, so that the tools are listed.
    has_kept: AtomicBool,
    kept: watch::Sender<()>,
    /// The tools for kept results.
    own: ToolList,
    list: DerivedList,
}

/// Why a folder cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub struct ParkError {
    /// The folder.
    pub path: PathBuf,
    /// The system's error.
    pub error: io::Error,
}

impl fmt::Display for ParkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "results cannot be saved to `{}`: {}", self.path.display(), self.error)
    }
}

impl error::Error for ParkError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
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
        let own = tools::specs(true);
        if let Some(taken) = own.iter().find(|tool| source.tools().get(&tool.name).is_some()) {
            return Err(DuplicateName(taken.name.clone()).into());
        }
        Ok(Self {
            source,
            results: Arc::default(),
            limit_chars: LIMIT_CHARS,
            at_most_chars: usize::MAX,
            save_to: None,
            texts: Budget::new(MAX_BYTES as usize),
            loaded: Budget::new(MAX_BYTES as usize),
            on_demand: false,
            has_kept: AtomicBool::new(false),
            kept: watch::Sender::new(()),
            own: ToolList::of(tools::specs(false).iter()),
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
    pub fn memory_bytes(mut self, most: u64) -> Self {
        self.room().memory_bytes = most;
        self
    }

    /// The limit of all kept results; 1 GiB by default.
    #[must_use]
    pub fn total_bytes(mut self, most: u64) -> Self {
        self.room().total_bytes = most;
        self
    }

    /// The directory for the files; the system's temporary directory by default.
    #[must_use]
    pub fn spill_to(mut self, dir: impl Into<PathBuf>) -> Self {
        self.room().dir = Some(dir.into());
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
        self.own = ToolList::of(tools::specs(true).iter());
        Ok(self)
    }

    /// Lists the tools for kept results only once there is one; until then the list is that of the source.
    #[must_use]
    pub fn on_demand(mut self) -> Self {
        self.on_demand = true;
        self
    }

    fn room(&mut self) -> &mut crate::source::park::shelf::Room {
        let results =
            Arc::get_mut(&mut self.results).expect("it is not shared before it is used as a source");
        &mut results.room
    }

    fn limit_of(&self, name: &str) -> usize {
        let tools = self.source.tools();
        let meta = tools.get(name).and_then(|tool| tool.meta.as_ref()?.decode::<Value>().ok());
        let own = meta.and_then(|meta| meta.get(LIMIT_KEY)?.as_u64());
        own.and_then(|limit| limit.try_into().ok()).unwrap_or(self.limit_chars).min(self.at_most_chars)
    }

    /// Replaces the handles in the arguments by texts.
    async fn filled(&self, owner: &Owner, call: &mut ToolCall) -> Result<(), ToolError> {
        if !Handle::may_be_in(call.arguments.as_str()) {
            return Ok(());
        }
        let Some(tool) = self.source.tools().get(&call.name).cloned() else { return Ok(()) };
        let (results, owner, arguments) = (Arc::clone(&self.results), owner.clone(), call.arguments.clone());
        let filling = blocking(move || {
            Filling::of(&arguments, &tool.input_schema, &mut |handle| find(&results, &owner, handle))
        });
        let Some(filling) = filling.await?? else { return Ok(()) };
        // Waiting for other calls' tools would hold the place of a running call, and the turn of an exclusive one.
        let share = self.texts.now(filling.bytes as usize).ok_or_else(too_many_texts)?;
        // Dropped when the client leaves, and then nobody wants the texts.
        let wanted = Arc::new(());
        let still = Arc::downgrade(&wanted);
        let filled = blocking(move || {
            let filled = filling.filled(|| still.strong_count() > 0);
            filled.map(|arguments| arguments.map(|arguments| arguments.held_by(share)))
        });
        if let Some(arguments) = filled.await?.map_err(|error| unreadable(&error))? {
            call.arguments = arguments;
        }
        drop(wanted);
        Ok(())
    }

    /// The result, or what the model gets instead.
    async fn kept(&self, owner: Owner, result: RawJson, limit_chars: usize) -> Result<RawJson, ToolError> {
        if result.as_bytes().len() <= limit_chars {
            return Ok(result);
        }
        let results = Arc::clone(&self.results);
        let kept = blocking(move || {
            let Some(long) = Long::of(&result, limit_chars) else { return (result, false) };
            match results.put(owner, long.text.clone(), long.is_json) {
                Ok((handle, item)) => (long.note(handle, &item), true),
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

    async fn call_own(&self, owner: Owner, call: ToolCall) -> Result<RawJson, ToolError> {
        let handle = tools::handle_of(&call.name, &call.arguments)?;
        let Some(handle) = Handle::parse(&handle) else { return Err(no_handle(&handle)) };
        let item = find(&self.results, &owner, handle)?;
        let share =
            self.loaded.wait(u32::try_from(item.bytes).unwrap_or(MAX_BYTES).min(MAX_BYTES) as usize).await;
        let (most_chars, save_to) = (self.limit_chars, self.save_to.clone());
        let work = blocking(move || {
            let text = item.load().map_err(|error| unreadable(&error))?;
            let shown = std::str::from_utf8(&text).map_err(|error| unreadable(&io::Error::other(error)))?;
            let answer = tools::call(&call.name, &call.arguments, shown, most_chars, save_to.as_deref());
            drop((text, share));
            answer
        });
        work.await?
    }
}

/// The owner of the results of a call.
fn owner_of(meta: &CallMeta) -> Owner {
    let client = meta.caller.as_ref()?;
    let number = |kind: &str, number: String| Some(Arc::from(format!("{kind} {number}")));
    if let Some(session) = &client.session_id {
        return number("session", session.clone());
    }
    if let Some(connection) = client.connection {
        return number("connection", connection.to_string());
    }
    number("process", client.pid?.to_string())
}

fn find(results: &Shelf, owner: &Owner, handle: Handle) -> Result<Arc<Item>, ToolError> {
    results.get(owner, handle).ok_or_else(|| no_handle(&handle.to_string()))
}

fn unreadable(error: &io::Error) -> ToolError {
    ToolError::new("ParkedHandleError", format!("a kept result cannot be read: {error}"))
}

fn too_many_texts() -> ToolError {
    let text = format!(
        "the texts of handles in running calls have {MAX_BYTES} bytes together at most; call again when others have ended"
    );
    ToolError::new("ParkedHandleError", text)
}

fn no_handle(handle: &str) -> ToolError {
    let shown: String = handle.chars().take(60).collect();
    ToolError::new(
        "ParkedHandleError",
        format!(
            "there is no result `{shown}` in this session; call the tool that gave it again, and use the new handle"
        ),
    )
}

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        ToolError::new("ParkedHandleError", format!("the result could not be processed: {error}"))
    })
}

impl<S: ToolSource> ToolSource for Parked<S> {
    fn tools(&self) -> ToolList {
        let mut lists = vec![self.source.tools()];
        if self.lists_own() {
            lists.push(self.own.clone());
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
            let owner = owner_of(&call.meta);
            if tools::is_own(&call.name) {
                let tools = self.tools();
                return match tools.get(&call.name) {
                    Some(_) => self.call_own(owner, call).await,
                    None => Err(tools.not_found(call.name)),
                };
            }
            self.filled(&owner, &mut call).await?;
            // A tool may drop them while it still works with a copy, which counts until the call ends.
            let _arguments = call.arguments.clone();
            let limit_chars = self.limit_of(&call.name);
            let result = self.source.call(call, context).await?;
            self.kept(owner, result, limit_chars).await
        })
    }
}
