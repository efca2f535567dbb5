//! What a guardian and those who start one must agree on: `<executable> toolbridge-guard <pid> <program> <args…>`.
//!
//! The guardian itself is `toolbridge::run_guard_if_asked`. Not for users, and so not documented.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::locate::own_executable;

/// The first argument of a guardian; nobody calls a command of their own so.
pub const COMMAND: &str = "toolbridge-guard";

/// Names, in a guardian's environment, the directory of the request. If the program cannot remove it any more, the
/// guardian does.
pub const ROOM: &str = "TOOLBRIDGE_ROOM";

/// Tells a guardian to kill everybody at once. It gets the same when its parent is gone.
pub const HURRY: Signal = Signal::USR1;

/// Finds an executable that is a guardian: this program if it is one, else `toolbridge-bridge` or `toolbridge`
/// beside it or on the PATH. Neither `TOOLBRIDGE_BRIDGE` nor a bridge given by hand: those may be somebody else's.
#[must_use]
pub fn executable() -> Option<PathBuf> {
    own_executable()
}

/// Has the system kill the command's process when the thread that starts it ends; where the system can.
pub fn die_with_parent(command: &mut Command) {
    end_with_parent(command, Signal::KILL);
}

/// The same with another signal.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "no other system has that"))]
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    let bind = move || -> io::Result<()> {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // Too late for the signal if the parent is gone already.
        if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
    };
    #[expect(unsafe_code, reason = "the child has to say by itself what it wants of the system")]
    // SAFETY: between fork and exec there are only two system calls, and nothing is allocated.
    unsafe {
        command.pre_exec(bind);
    }
}
