//! The command line and environment of a guardian process: `<executable> toolbridge-guard <pid> <program> <args…>`.
//!
//! The guardian itself is `toolbridge::bridge::run_guard_if_asked`. Any of our executables is one ([`own_executable`]).
//!
//! [`own_executable`]: crate::ipc::own_executable

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::Signal;

/// The first argument of a guardian; unlikely to clash with a program's own commands.
pub const COMMAND: &str = "toolbridge-guard";

/// The environment variable with the scratch directory of the request. The guardian removes it if the program no longer
/// can.
pub const SCRATCH_DIRECTORY: &str = "TOOLBRIDGE_ROOM";

/// Makes a guardian kill all its processes immediately. The system sends the same signal when its parent ends.
pub const HURRY: Signal = Signal::USR1;

/// Makes signals that come before the guardian can handle them wait until it can: otherwise they would end it, and the
/// directory of its request would be left.
pub fn hold_signals(command: &mut Command) {
    #[expect(unsafe_code, reason = "the signals have to be blocked in the child")]
    // SAFETY: between fork and exec there are only system calls on local values, and nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
            Ok(())
        });
    }
}

/// Makes the system kill the command's process when the thread that starts it ends, where the system supports this.
pub fn die_with_parent(command: &mut Command) {
    end_with_parent(command, Signal::KILL);
}

/// The same with another signal.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has this"))]
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    let bind = move || -> io::Result<()> {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // If the parent has already ended, the signal will not come.
        if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
    };
    #[expect(unsafe_code, reason = "the death signal has to be set in the child")]
    // SAFETY: between fork and exec there are only two system calls, and nothing is allocated.
    unsafe {
        command.pre_exec(bind);
    }
}
