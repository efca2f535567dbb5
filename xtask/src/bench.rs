//! To come.
use anyhow::{Result, bail};
pub(crate) fn run(_: &[String]) -> Result<()> {
    bail!("to come")
}
