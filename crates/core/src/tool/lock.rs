//! Locks of data that a panic does not leave half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `data`, also after a panic of another holder.
pub(crate) fn lock<T>(data: &Mutex<T>) -> MutexGuard<'_, T> {
    data.lock().unwrap_or_else(PoisonError::into_inner)
}
