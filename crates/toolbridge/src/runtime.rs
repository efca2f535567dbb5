//! Runtimes that cannot be had.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use tokio::runtime::{Builder, Runtime};

/// Builds a runtime. Where there is no descriptor for its signals, or no thread for its first worker, tokio panics;
/// here that is an error like any other.
///
/// # Errors
///
/// When there is no runtime to be had.
pub fn build_runtime(builder: &mut Builder) -> io::Result<Runtime> {
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let built = catch_unwind(AssertUnwindSafe(|| builder.build()));
    set_hook(hook);
    built.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map_or("it panicked", String::as_str);
        Err(io::Error::other(format!("there is no runtime to be had: {text}")))
    })
}
