//! The client's half of a conversation.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::call::{Call, FIRST_ID, id_of};
use super::peer::Peer;

const INITIALIZE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}}
"#;
const INITIALIZED_AND_LIST: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
"#;

/// Talks to one relay or bridge.
pub(crate) struct Client {
    peer: Peer,
    next_id: u32,
}

impl Client {
    pub(crate) fn new(peer: Peer) -> Self {
        Self { peer, next_id: FIRST_ID }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.peer.finish()
    }

    /// Does what a client does first, up to the list of tools; returns the list's line.
    pub(crate) fn list_tools(&mut self) -> Result<&[u8]> {
        self.peer.send(INITIALIZE)?;
        self.peer.line()?;
        self.peer.send(INITIALIZED_AND_LIST)?;
        self.peer.line()
    }

    /// Calls, waits for the answer and checks it; how long the answer took.
    pub(crate) fn call(&mut self, call: &mut Call, thorough: bool) -> Result<Duration> {
        let id = self.new_id();
        let line = call.line(id);
        let started = Instant::now();
        self.peer.send(line)?;
        let answer = self.peer.line()?;
        let took = started.elapsed();
        call.check(id, answer, thorough).with_context(|| self.peer.name())?;
        Ok(took)
    }

    /// Calls `total` times, with `in_flight` calls under way at any time; how long all of it took.
    ///
    /// Each call is written on its own, as clients do.
    pub(crate) fn calls(&mut self, call: &mut Call, in_flight: usize, total: usize) -> Result<Duration> {
        let first = self.next_id;
        let mut answered = vec![false; total];
        let (mut sent, mut done) = (0, 0);
        let started = Instant::now();
        while done < total {
            while sent < total && sent - done < in_flight {
                let id = self.new_id();
                self.peer.send(call.line(id))?;
                sent += 1;
            }
            let name = self.peer.name();
            let length = call.answer_bytes();
            for answer in self.peer.lines(length)?.chunks_exact(length) {
                let id = id_of(answer).with_context(|| format!("{name}: an answer without an id"))?;
                let place = id.checked_sub(first).and_then(|place| answered.get_mut(place as usize));
                let place =
                    place.with_context(|| format!("{name}: an answer to {id}, which was not called"))?;
                ensure!(!std::mem::replace(place, true), "{name}: a second answer to {id}");
                call.check(id, answer, false).context(name)?;
                done += 1;
            }
        }
        Ok(started.elapsed())
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }
}
