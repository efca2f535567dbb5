//! Creates tokio runtimes. Without enough descriptors or threads tokio panics; here that is an error.

use std::io;
use std::panic::{PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::runtime::{Builder, Runtime};

const THREAD: &str = "toolbridge-start";

/// A runtime on the current thread.
///
/// # Errors
///
/// When the runtime cannot be created.
pub fn small_runtime() -> io::Result<Runtime> {
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let built = catch_unwind(|| Builder::new_current_thread().enable_all().build());
    set_hook(hook);
    built.unwrap_or_else(|_| Err(io::Error::other("no file descriptor is left for a runtime")))
}

/// A multi-threaded runtime. It is built in a thread of our own: after a panic about a thread that cannot be
/// started, tokio waits for its other threads forever.
///
/// # Errors
///
/// When the runtime cannot be created.
pub fn runtime(mut builder: Builder) -> io::Result<Runtime> {
    let (tell, told) = mpsc::sync_channel(1);
    let tell_panic = tell.clone();
    let hook = Arc::new(take_hook());
    let others = Arc::clone(&hook);
    set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        if thread::current().name() == Some(THREAD) {
            let text = panic.payload().downcast_ref::<String>().map_or("tokio panicked", String::as_str);
            _ = tell_panic.try_send(Err(io::Error::other(format!("cannot create a runtime: {text}"))));
        } else {
            others(panic);
        }
    }));
    let work = move || _ = tell.send(builder.enable_all().build());
    let started = thread::Builder::new().name(THREAD.into()).spawn(work);
    let built = started.and_then(|_| told.recv().unwrap_or_else(|error| Err(io::Error::other(error))));
    set_hook(Box::new(move |panic| hook(panic)));
    built
}
