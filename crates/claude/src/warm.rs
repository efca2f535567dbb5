//! CLIs that are started in advance.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::tool::ToolSpec;

use crate::ClaudeCodeError;
use crate::cli::Cli;
use crate::launch::Launch;
use crate::model::{ClaudeCodeModel, Inner};
use crate::request::Request;
use crate::settings::DEFAULT_TIMEOUT;

/// How long a CLI waits for a request.
const IDLE: Duration = Duration::from_secs(300);

/// The CLIs of a model that wait for a prompt.
#[derive(Default)]
pub(crate) struct Warm(Mutex<Pool>);

#[derive(Default)]
struct Pool {
    /// The configured number.
    count: usize,
    /// How many are being started.
    starting: usize,
    /// Starts in the background, which no caller awaits.
    starts: Vec<AbortOnDropHandle<()>>,
    /// The newest is last.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    cli: Cli,
    key: Key,
    until: Instant,
}

/// What must be equal for a request to use a CLI that was started for another one.
#[derive(PartialEq)]
struct Key {
    options: Value,
    tools: Vec<ToolSpec>,
    /// The environment of this process, which the CLI has inherited.
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
}

impl Key {
    fn of(launch: &Launch) -> Self {
        let Launch { cli, settings, strict, partial, asks, hooks, output_schema, tools, .. } = launch;
        let server = tools.as_ref().map(|tools| (&tools.server, tools.transport, tools.may_change));
        let options = json!([cli, settings, strict, partial, asks, hooks, output_schema, server]);
        Self {
            options,
            tools: tools.as_ref().map(|tools| tools.list.to_vec()).unwrap_or_default(),
            environment: std::env::vars_os().collect(),
            directory: std::env::current_dir().ok(),
        }
    }
}

impl fmt::Debug for Warm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = self.lock();
        f.debug_struct("Warm").field("count", &pool.count).field("waiting", &pool.waiting.len()).finish()
    }
}

impl Warm {
    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a matching CLI, if one is waiting.
    pub(crate) fn take(&self, launch: &Launch) -> Option<Cli> {
        let mut pool = self.lock();
        if pool.waiting.is_empty() {
            return None;
        }
        pool.waiting.retain(|one| !one.cli.is_over());
        let key = Key::of(launch);
        let place = pool.waiting.iter().position(|one| one.key == key)?;
        pool.waiting.remove(place).map(|one| one.cli)
    }

    /// Ends the one that has waited longest.
    pub(crate) fn end_one(&self) {
        let oldest = self.lock().waiting.pop_front();
        drop(oldest);
    }

    /// Ends those that have waited too long.
    fn end_idle(&self) {
        let now = Instant::now();
        let mut pool = self.lock();
        let (stay, end) = pool.waiting.drain(..).partition(|one| one.until > now);
        pool.waiting = stay;
        drop(pool);
        let _: VecDeque<Waiting> = end;
    }
}

impl ClaudeCodeModel {
    /// Keeps `count` CLIs started and connected to the tools: a request that can use one of them saves the
    /// start, about half a second. Returns once they are ready for requests with only a prompt; 0 ends
    /// them.
    ///
    /// Each serves one request and is then replaced. A request can use one if it has the same settings and
    /// tools as the request it was started for, and this process has the same environment and directory.
    /// Otherwise the request starts its own CLI, and one like it is kept for the next. None waits longer
    /// than 5 minutes. A waiting CLI takes about 175 MB.
    ///
    /// # Errors
    ///
    /// When a CLI cannot be started.
    pub async fn keep_warm(&self, count: usize) -> Result<(), ClaudeCodeError> {
        let excess: Vec<_> = {
            let mut pool = self.0.warm.lock();
            pool.count = count;
            if count == 0 {
                pool.starts.clear();
            }
            let excess = pool.waiting.len().saturating_sub(count);
            pool.waiting.drain(..excess).collect()
        };
        drop(excess);
        let (launch, _) = self.resolve(&Request::default(), false, false).await?;
        if !can_wait(&launch) {
            return Err(ClaudeCodeError::invalid(
                "`keep_warm` cannot start CLIs for a conversation that has an id or is resumed",
            ));
        }
        let missing = count.saturating_sub(self.0.warm.lock().waiting.len());
        let starts = (0..missing).filter_map(|_| self.0.begin_warm(&launch));
        try_join_all(starts).await.map(drop)
    }

    /// Starts a similar CLI for the next request once this one is running, so that this one is not delayed.
    pub(crate) fn warm_up(&self, launch: &Launch, has_begun: oneshot::Receiver<()>) {
        if !can_wait(launch) {
            return;
        }
        let Some(start) = self.0.begin_warm(launch) else { return };
        let start = tokio::spawn(async {
            _ = has_begun.await;
            if let Err(error) = start.await {
                tracing::warn!(%error, "a CLI for the next request could not be started");
            }
        });
        let starts = &mut self.0.warm.lock().starts;
        starts.retain(|start| !start.is_finished());
        starts.push(AbortOnDropHandle::new(start));
    }
}

/// A CLI that continues a conversation, or has its id, can serve only one request.
fn can_wait(launch: &Launch) -> bool {
    !launch.settings.resumes() && launch.settings.session_id.is_none()
}

impl Inner {
    /// Starts a CLI and keeps it once it is ready; `None` if there are enough. Holds no strong reference to
    /// the model, so that dropping its last owner ends everything.
    fn begin_warm(
        self: &Arc<Self>,
        launch: &Launch,
    ) -> Option<impl Future<Output = Result<(), ClaudeCodeError>> + Send + 'static> {
        let guard = StartGuard::new(self)?;
        let (options, permits) = (self.options.clone(), self.permits.clone());
        let starter = ClaudeCodeModel(Arc::new(Self { options, permits, ..Self::default() }));
        let launch = launch.clone();
        Some(async move {
            let key = Key::of(&launch);
            let cli = starter.open(&launch, None, &CancellationToken::new()).await?;
            cli.ready(launch.settings.timeout.unwrap_or(DEFAULT_TIMEOUT)).await?;
            guard.keep(cli, key);
            Ok(())
        })
    }
}

/// A CLI being started. It is counted until this is dropped.
struct StartGuard(Weak<Inner>);

impl StartGuard {
    fn new(model: &Arc<Inner>) -> Option<Self> {
        let mut pool = model.warm.lock();
        let begins = pool.starting < pool.count;
        pool.starting += usize::from(begins);
        begins.then(|| Self(Arc::downgrade(model)))
    }

    /// Keeps it for a while, and ends others if there are too many.
    fn keep(&self, cli: Cli, key: Key) {
        let Some(model) = self.0.upgrade() else { return };
        let until = Instant::now() + IDLE;
        let ended: Vec<_> = {
            let mut pool = model.warm.lock();
            pool.waiting.push_back(Waiting { cli, key, until });
            let excess = pool.waiting.len().saturating_sub(pool.count);
            pool.waiting.drain(..excess).collect()
        };
        drop(ended);
        let model = Weak::clone(&self.0);
        tokio::spawn(async move {
            sleep_until(until).await;
            if let Some(model) = model.upgrade() {
                model.warm.end_idle();
            }
        });
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        if let Some(model) = self.0.upgrade() {
            model.warm.lock().starting -= 1;
        }
    }
}
