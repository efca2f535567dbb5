//! What a client's messages go over.

use anyhow::Result;

use crate::process::Process;

/// Carries messages to whatever is compared, and answers back.
pub(crate) trait Wire {
    /// Whether a notification is answered too.
    const ANSWERS_ALL: bool;

    /// Whose it is.
    fn name(&self) -> &'static str;

    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Waits for one answer, where only one can be coming.
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
