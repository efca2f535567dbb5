//! Removes files of dead sessions before a start, within a short time.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::ipc::remains::{finish, remove_dead, sweep};
use crate::ipc::search::Search;

/// How many entries of a directory are swept without a thread.
const FEW_ENTRIES: usize = 256;

/// How long a start waits for the sweep of a larger directory.
const PATIENCE: Duration = Duration::from_millis(50);

/// The rest of a sweep.
type Work = Box<dyn FnOnce() + Send>;

/// Removes the files of dead sessions in `dir`, as [`sweep`] does. In a directory with many files, a thread
/// continues while the session starts. That is safe: a sweep never touches live or starting sessions.
///
/// # Errors
///
/// When the directory cannot be read.
pub(crate) async fn sweep_briefly(dir: &Path) -> io::Result<()> {
    sweep_with(dir, |work| {
        // Not a thread of the runtime, which would wait for it when it shuts down.
        std::thread::Builder::new().name("session-sweep".into()).spawn(work).map(drop)
    })
    .await
}

async fn sweep_with(dir: &Path, spawn: impl FnOnce(Work) -> io::Result<()>) -> io::Result<()> {
    let mut search = Search::begin(dir)?;
    // For few entries a thread would cost more; and this way the sweep is complete, however busy the machine is.
    if search.read(FEW_ENTRIES)? {
        remove_dead(search);
        return Ok(());
    }
    let Some(turn) = Turn::take() else { return Ok(()) };
    let (running, ended) = oneshot::channel::<()>();
    let work = move || {
        let _until_then = (turn, running);
        if let Err(error) = finish(search) {
            tracing::warn!(%error, "cannot look for files of dead sessions");
        }
    };
    if let Err(error) = spawn(Box::new(work)) {
        tracing::debug!(%error, "cannot start a thread to look for files of dead sessions");
        sweep(dir)?;
        return Ok(());
    }
    _ = tokio::time::timeout(PATIENCE, ended).await;
    Ok(())
}

/// The pid of the process whose thread sweeps; 0 if there is none. A fork copies this value but not the thread, so
/// the pid is compared.
static SWEEPING: AtomicU32 = AtomicU32::new(0);

/// The right to sweep on a thread. Only one exists at a time, so that a process that starts many sessions is not
/// busy with sweeping only; without it, the sweep is left to a later start.
struct Turn;

impl Turn {
    fn take() -> Option<Self> {
        let own = std::process::id();
        (SWEEPING.swap(own, Ordering::AcqRel) != own).then_some(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        SWEEPING.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use tempfile::TempDir;

    use super::*;
    use crate::ipc::files::SessionId;

    /// Tests of one process share the turn.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory with a file of a dead session and this many others.
    fn crowd(others: usize) -> (TempDir, std::path::PathBuf) {
        let dir = TempDir::new().unwrap();
        for number in 0..others {
            std::fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        let left = SessionId::random().schema(dir.path());
        std::fs::write(&left, "[]").unwrap();
        (dir, left)
    }

    fn block_on(work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn a_small_directory_needs_no_thread() {
        let (dir, left) = crowd(FEW_ENTRIES - 2);
        block_on(sweep_with(dir.path(), |_| panic!("a thread"))).unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn a_large_directory_is_not_waited_for_and_swept_once_at_a_time() {
        let _alone = alone();
        let (dir, left) = crowd(FEW_ENTRIES);
        let mut held = None;
        // The work is not run, so this only returns if it does not wait for it.
        block_on(sweep_with(dir.path(), |work| {
            held = Some(work);
            Ok(())
        }))
        .unwrap();
        assert!(left.exists());
        block_on(sweep_with(dir.path(), |_| panic!("a second thread"))).unwrap();
        held.unwrap()();
        assert!(!left.exists());
        // A sweep that has ended, or was dropped without running, does not block the next.
        for _ in 0..2 {
            let mut spawned = false;
            block_on(sweep_with(dir.path(), |_| {
                spawned = true;
                Ok(())
            }))
            .unwrap();
            assert!(spawned);
        }
    }

    #[test]
    fn the_turn_of_a_forked_parent_is_not_ours() {
        let _alone = alone();
        SWEEPING.store(std::process::id() + 1, Ordering::Release);
        assert!(Turn::take().is_some());
    }

    #[test]
    fn without_a_thread_the_start_sweeps_itself() {
        let _alone = alone();
        let (dir, left) = crowd(FEW_ENTRIES);
        block_on(sweep_with(dir.path(), |_| Err(io::ErrorKind::WouldBlock.into()))).unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn a_large_directory_is_swept_by_a_thread() {
        let _alone = alone();
        let (dir, left) = crowd(FEW_ENTRIES);
        block_on(sweep_briefly(dir.path())).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(10);
        // On a busy machine the sweep continues after the start.
        while left.exists() {
            assert!(std::time::Instant::now() < until, "the thread has not swept");
            std::thread::yield_now();
        }
    }
}
