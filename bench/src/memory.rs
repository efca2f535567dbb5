//! The memory of the process that the CLI starts.

use std::time::Duration;

use anyhow::Result;

use crate::call::Call;
use crate::effort::{LARGEST_BYTES, SMALL_BYTES};
use crate::row::{Row, Unit};
use crate::stage::Stage;

/// After this time without work, a process is idle and has returned its free memory.
pub(crate) const IDLE: Duration = Duration::from_millis(1500);

/// Before its first call, and some time after a large one.
pub(crate) fn measure(stage: &mut Stage<'_>, runs: usize) -> Result<[Row; 2]> {
    eprintln!("measuring: memory");
    let (small, largest) = (Call::text(SMALL_BYTES), Call::text(LARGEST_BYTES));
    let none = || stage.contenders.iter().map(|one| (*one, Vec::new())).collect::<Vec<_>>();
    let (mut fresh, mut used) = (none(), none());
    for _ in 0..runs {
        let mut clients = stage.clients()?;
        for ((contender, client), (_, samples)) in clients.iter_mut().zip(&mut fresh) {
            // The relay has only just been started; an answer shows that it runs.
            if contender.is_relay() {
                client.learn(&small)?;
            }
            if client.wire.is_ours() {
                samples.push(client.wire.resident_bytes()?);
            }
            client.learn(&largest)?;
            client.learn(&small)?;
        }
        std::thread::sleep(IDLE);
        for ((_, client), (_, samples)) in clients.into_iter().zip(&mut used) {
            if client.wire.is_ours() {
                samples.push(client.wire.resident_bytes()?);
            }
            client.finish()?;
        }
    }
    Ok([
        Row::new("memory_fresh", "memory after start", Unit::Memory, fresh),
        Row::new("memory_used", "memory after a 9 MB call", Unit::Memory, used),
    ])
}
