//! A wrapper for user-provided values without `Debug`.

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;

/// A function or a trait object, wrapped so that its owner can derive `Debug`.
pub(crate) struct Opaque<T: ?Sized>(pub(crate) Arc<T>);

impl<T: ?Sized> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl<A: 'static, T: 'static> Opaque<dyn Fn(A) -> BoxFuture<'static, T> + Send + Sync> {
    /// Wraps an async function.
    pub(crate) fn function<F, R>(function: F) -> Self
    where
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output = T> + Send + 'static,
    {
        Self(Arc::new(move |argument| Box::pin(function(argument))))
    }
}
