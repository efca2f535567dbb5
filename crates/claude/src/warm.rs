//! CLIs that are started before anybody asks for them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use toolbridge_core::{CancellationToken, ToolSpec};

use crate::ClaudeCodeError;
use crate::cli::Cli;
use crate::model::{ClaudeCodeModel, Inner};
use crate::request::Request;
use crate::settings::DEFAULT_TIMEOUT;
use crate::start::Wanted;

/// How long a CLI waits for a request.
const IDLE: Duration = Duration::from_secs(300);

/// The CLIs of a model that wait for a prompt.
#[derive(Default)]
pub(crate) struct Warm(Mutex<Pool>);

#[derive(Default)]
struct Pool {
    /// How many there should be.
    count: usize,
    /// How many are being started.
    starting: usize,
    /// The newest last.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    cli: Cli,
    key: Key,
    until: Instant,
}

/// What must be the same for a request to take a CLI that was started for another.
#[derive(PartialEq)]
struct Key {
    said: Value,
    tools: Vec<ToolSpec>,
    /// Of this process, which the CLI has inherited.
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
}

impl Key {
    fn of(wanted: &Wanted) -> Self {
        let Wanted { cli, settings, strict, partial, asks, output_schema, tools, .. } = wanted;
        let server = tools.as_ref().map(|tools| (&tools.server, tools.transport, tools.may_change));
        let said = json!([cli, settings, strict, partial, asks, output_schema, server]);
        Self {
            said,
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

    /// A CLI that fits, if one waits.
    pub(crate) fn take(&self, wanted: &Wanted) -> Option<Cli> {
        let mut pool = self.lock();
        if pool.waiting.is_empty() {
            return None;
        }
        pool.waiting.retain(|one| !one.cli.is_over());
        let key = Key::of(wanted);
        let place = pool.waiting.iter().position(|one| one.key == key)?;
        pool.waiting.remove(place).map(|one| one.cli)
    }

    /// Ends the one that has waited longest.
    pub(crate) fn end_one(&self) {
        let oldest = self.lock().waiting.pop_front();
        drop(oldest);
    }

    /// Whether one more is to be started. If so, it counts from now on.
    fn begins(&self) -> bool {
        let mut pool = self.lock();
        let begins = pool.starting < pool.count;
        pool.starting += usize::from(begins);
        begins
    }

    /// Keeps a CLI that was started; without one, the start has failed.
    fn keep(&self, cli: Option<(Cli, Key)>) -> Option<Instant> {
        let mut pool = self.lock();
        pool.starting -= 1;
        let (cli, key) = cli?;
        let until = Instant::now() + IDLE;
        pool.waiting.push_back(Waiting { cli, key, until });
        let excess = pool.waiting.len().saturating_sub(pool.count);
        let ended: Vec<_> = pool.waiting.drain(..excess).collect();
        drop(pool);
        drop(ended);
        Some(until)
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
    /// Keeps so many CLIs started and connected to the tools, up to the prompt: a request that one of them fits saves the
    /// start, about half a second. Returns once they are ready for requests that say nothing but a prompt; 0 ends them.
    ///
    /// Each serves one request, and is then replaced. One fits when the request has the same settings and the same tools as
    /// that which it was started for, and this process has the same environment and directory; a request for which there is none
    /// starts its own, and one like it is kept for the next. None waits longer than 5 minutes. A waiting CLI takes about 175 MB.
    ///
    /// # Errors
    ///
    /// When a CLI cannot be started.
    pub async fn keep_warm(&self, count: usize) -> Result<(), ClaudeCodeError> {
        let excess: Vec<_> = {
            let mut pool = self.0.warm.lock();
            pool.count = count;
            let excess = pool.waiting.len().saturating_sub(count);
            pool.waiting.drain(..excess).collect()
        };
        drop(excess);
        let (wanted, _) = self.wanted(&Request::default(), false).await?;
        if !can_wait(&wanted) {
            return Err(ClaudeCodeError::invalid(
                "a conversation that is kept or gone on with cannot be started before it is asked for",
            ));
        }
        let missing = count.saturating_sub(self.0.warm.lock().waiting.len());
        let starts = (0..missing).filter(|_| self.0.warm.begins()).map(|_| prepare(&self.0, &wanted));
        let mut starting: tokio::task::JoinSet<_> = starts.collect();
        while let Some(started) = starting.join_next().await {
            started.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    /// Has a CLI like this one started, for the next request.
    pub(crate) fn warm_up(&self, wanted: &Wanted) {
        if can_wait(wanted) && self.0.warm.begins() {
            let preparing = prepare(&self.0, wanted);
            tokio::spawn(async move {
                if let Err(error) = preparing.await {
                    tracing::warn!(%error, "a CLI for the next request could not be started");
                }
            });
        }
    }
}

/// A conversation's own CLI is no other's.
fn can_wait(wanted: &Wanted) -> bool {
    wanted.settings.conversation.is_none()
}

/// Starts a CLI, and keeps it once it is ready.
fn prepare(
    model: &Arc<Inner>,
    wanted: &Wanted,
) -> impl Future<Output = Result<(), ClaudeCodeError>> + Send + 'static {
    let (model, wanted) = (ClaudeCodeModel(Arc::clone(model)), wanted.clone());
    async move {
        let key = Key::of(&wanted);
        let opened = async {
            let cli = model.open(&wanted, &CancellationToken::new()).await?;
            cli.ready(wanted.settings.timeout.unwrap_or(DEFAULT_TIMEOUT)).await?;
            Ok(cli)
        };
        let (cli, failure) = match opened.await {
            Ok(cli) => (Some((cli, key)), Ok(())),
            Err(error) => (None, Err(error)),
        };
        if let Some(until) = model.0.warm.keep(cli) {
            let model = Arc::downgrade(&model.0);
            tokio::spawn(async move {
                sleep_until(until).await;
                if let Some(model) = model.upgrade() {
                    model.warm.end_idle();
                }
            });
        }
        failure
    }
}
