//! A wrapper for user-provided values without `Debug`.

use std::fmt;
use std::sync::Arc;

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
