//! The client that is used for all contenders.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::call::{Call, Dialect};
use crate::process::Process;
use crate::template::{FIRST_ID, Template};
use crate::wire::Wire;

/// The MCP version that is used.
pub(crate) const VERSION: &str = "2025-11-25";

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

/// A client of a contender.
pub(crate) struct Client<W = Process> {
    pub(crate) wire: W,
    dialect: Dialect,
    next_id: u32,
    request: Template,
    answer: Template,
}

impl<W: Wire> Client<W> {
    pub(crate) fn new(wire: W) -> Self {
        Self::speaking(Dialect::Mcp, wire)
    }

    pub(crate) fn speaking(dialect: Dialect, wire: W) -> Self {
        let (request, answer) = (Template::default(), Template::default());
        Self { wire, dialect, next_id: FIRST_ID, request, answer }
    }

    /// Does the handshake.
    pub(crate) fn initialize(&mut self) -> Result<()> {
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"0"}}}}}}"#
        );
        self.send(1, &initialize)?;
        self.wire.receive()?;
        self.send(0, INITIALIZED)?;
        if W::ANSWERS_ALL || self.dialect.answers_all() {
            self.wire.receive()?;
        }
        Ok(())
    }

    /// Lists the tools; returns the line with them.
    pub(crate) fn list(&mut self) -> Result<&[u8]> {
        self.send(2, LIST)?;
        self.wire.receive()
    }

    /// Does the handshake and lists the tools; returns how many there are.
    pub(crate) fn open(&mut self) -> Result<usize> {
        self.initialize()?;
        let (dialect, name) = (self.dialect, self.wire.name());
        let list = dialect.message(self.list()?).context(name)?;
        tools_in(&list).context(name)
    }

    fn send(&mut self, id: u32, message: &str) -> Result<()> {
        let line = self.dialect.line(id, message);
        self.wire.send(&line)
    }

    /// Makes a call for the first time, and checks the whole answer. Later answers must have the same form.
    pub(crate) fn learn(&mut self, call: &Call) -> Result<Duration> {
        let id = self.new_id();
        let (dialect, name) = (self.dialect, self.wire.name());
        self.request = Template::new(dialect.line(id, &call.request(id)), id);
        let started = Instant::now();
        self.wire.send(self.request.with(id))?;
        let answer = self.wire.receive()?.to_vec();
        let took = started.elapsed();
        call.check(id, &dialect.message(&answer).context(name)?).context(name)?;
        self.answer = Template::new(answer, id);
        ensure!(self.answer.ids() >= 2, "{name}: an answer that does not contain its id twice");
        Ok(took)
    }

    /// Makes the learnt call again, and checks the answer; returns how long it took.
    pub(crate) fn call(&mut self, thorough: bool) -> Result<Duration> {
        let id = self.new_id();
        let line = self.request.with(id);
        let name = self.wire.name();
        let started = Instant::now();
        self.wire.send(line)?;
        let answer = self.wire.receive()?;
        let took = started.elapsed();
        self.answer.check(id, answer, thorough).context(name)?;
        Ok(took)
    }

    /// Makes the learnt call again, without waiting for the answer.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let id = self.new_id();
        self.wire.send(self.request.with(id))
    }

    /// Waits for the answer to that call, and checks it.
    pub(crate) fn end(&mut self) -> Result<()> {
        let (id, name) = (self.next_id - 1, self.wire.name());
        self.answer.check(id, self.wire.receive()?, false).context(name)
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }
}

impl Client {
    pub(crate) fn finish(self) -> Result<()> {
        self.wire.finish()
    }

    /// Makes the learnt call `total` times, with `in_flight` calls in parallel; returns the total time.
    ///
    /// Each call is a separate write, as in other clients.
    pub(crate) fn calls(&mut self, in_flight: usize, total: usize) -> Result<Duration> {
        let first = self.next_id;
        let mut answered = vec![false; total];
        let (mut sent, mut done) = (0, 0);
        let started = Instant::now();
        while done < total {
            while sent < total && sent - done < in_flight {
                let id = self.new_id();
                self.wire.send(self.request.with(id))?;
                sent += 1;
            }
            let (name, length) = (self.wire.name, self.answer.len());
            for answer in self.wire.lines(length)?.chunks_exact(length) {
                let id =
                    self.answer.id_in(answer).with_context(|| format!("{name}: an answer without an id"))?;
                let place = id.checked_sub(first).and_then(|place| answered.get_mut(place as usize));
                let place =
                    place.with_context(|| format!("{name}: an answer to {id}, which was not called"))?;
                ensure!(!std::mem::replace(place, true), "{name}: a second answer to {id}");
                self.answer.check(id, answer, false).context(name)?;
                done += 1;
            }
        }
        Ok(started.elapsed())
    }
}

/// The number of tools in an answer to `tools/list`.
pub(crate) fn tools_in(list: &Value) -> Result<usize> {
    let tools = list["result"]["tools"].as_array().map_or(0, Vec::len);
    ensure!(tools > 0, "an answer without a list of tools: {list}");
    ensure!(list["result"]["nextCursor"].is_null(), "an incomplete list of tools");
    Ok(tools)
}
