//! The connection of a client.

use anyhow::Result;

use crate::process::Process;

/// Carries messages to a contender, and answers back.
pub(crate) trait Wire {
    /// Whether notifications are answered too.
    const ANSWERS_ALL: bool;

    /// The contender's name.
    fn name(&self) -> &'static str;

    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Waits for one answer, if only one is expected.
    fn receive(&mut self) -> Result<&[u8]>;
}

/// Lines over a socket pair.
impl Wire for Process {
    const ANSWERS_ALL: bool = false;

    fn name(&self) -> &'static str {
        self.name
    }

    fn send(&mut self, message: &[u8]) -> Result<()> {
        Process::send(self, message)
    }

    fn receive(&mut self) -> Result<&[u8]> {
        self.line()
    }
}
