//! State that belongs to one process and is not shared with its forked children.

use std::process::id;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that belongs to the process that created it. A forked child neither uses nor drops it, because the
/// threads that serve it do not exist there.
pub(crate) struct Own<T> {
    value: Option<T>,
    pid: u32,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), pid: id() }
    }

    /// Whether this process created it.
    pub(crate) fn is_own(&self) -> bool {
        self.pid == id()
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_own())
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        let is_own = self.is_own();
        self.value.as_mut().filter(|_| is_own)
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_own() { self.value.take() } else { None }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.value.take());
        }
    }
}

/// Locks even after a panic: the data behind these locks is always consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
