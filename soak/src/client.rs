//! A bridge process, and a client that checks all of its output.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::account::{Account, Count};
use crate::call::{Call, Verdict, Want, excerpt};
use crate::host::{Host, LIMIT, Place, wait_for};
use crate::note::Note;

/// The size of one read.
const PIECE_BYTES: usize = 64 * 1024;

/// How a bridge is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// After all answers, by closing its stdin.
    Done,
    /// By closing its stdin with pending calls; answers are read to the end.
    Closed,
    /// By closing the connection.
    HungUp,
    /// SIGTERM.
    Terminated,
    /// kill -9.
    Killed,
}

/// A pending request.
struct Asked {
    call: Call,
    sent: Instant,
    /// The step after the last one that was reported.
    reported: u64,
    /// After the answer to this request, sent after the cancellation, no answer may come.
    fence: Option<u64>,
}

/// The client of one bridge.
pub(crate) struct Client<'a> {
    name: String,
    pub(crate) host: Arc<Host>,
    account: &'a Account,
    child: Child,
    stream: UnixStream,
    read: Vec<u8>,
    pub(crate) has_ended: bool,
    last_id: u64,
    under_way: HashMap<u64, Asked>,
}

impl<'a> Client<'a> {
    pub(crate) fn start(
        place: &Place,
        program: &Path,
        host: Arc<Host>,
        account: &'a Account,
        name: String,
    ) -> Result<Self> {
        let (stream, far) = UnixStream::pair()?;
        let mut command = place.command(program);
        command.arg("bridge").arg(&host.socket).arg(&host.schema);
        let child = command.stdin(OwnedFd::from(far.try_clone()?)).stdout(OwnedFd::from(far)).spawn()?;
        stream.set_write_timeout(Some(LIMIT))?;
        account.note(&name, format!("started for {}", host.name));
        Ok(Self {
            name,
            host,
            account,
            child,
            stream,
            read: Vec::new(),
            has_ended: false,
            last_id: 0,
            under_way: HashMap::new(),
        })
    }

    /// Sends a request without waiting for the answer.
    pub(crate) fn ask(&mut self, call: impl FnOnce(&str) -> Call) -> Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        let call = call(&format!("{}/{id}", self.name));
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": call.method, "params": &call.params });
        self.account.add(Count::Calls, 1);
        self.account.note(&self.name, format!("asks {id}: {} {}", call.method, excerpt(&call.params)));
        self.under_way.insert(id, Asked { call, sent: Instant::now(), reported: 0, fence: None });
        self.send(&request)?;
        Ok(id)
    }

    /// Cancels a request. Its answer may be in flight; after the answer to a later request it may not come.
    pub(crate) fn cancel(&mut self, id: u64) -> Result<()> {
        self.account.note(&self.name, format!("cancels {id}"));
        let params = json!({ "requestId": id, "reason": "soak" });
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }))?;
        let fence = self.ask(|_| Call::ping())?;
        if let Some(asked) = self.under_way.get_mut(&id) {
            asked.fence = Some(fence);
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, message: &Value) -> Result<()> {
        match self.stream.write_all(format!("{message}\n").as_bytes()) {
            Ok(()) => Ok(()),
            // The reason of the end is found when the process is waited for.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                self.has_ended = true;
                Ok(())
            }
            Err(error) => Err(error).context("the bridge does not take a message"),
        }
    }

    /// The tool calls that are pending and not cancelled, in order.
    pub(crate) fn calls(&self) -> Vec<u64> {
        let calls = self.under_way.iter().filter(|(_, asked)| asked.fence.is_none());
        let calls = calls.filter(|(_, asked)| asked.call.method == "tools/call");
        let mut ids: Vec<_> = calls.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Those of them that do not end by themselves.
    pub(crate) fn endless(&self) -> Vec<u64> {
        let ends = |id: &u64| !matches!(self.under_way[id].call.want, Want::Nothing);
        self.calls().into_iter().filter(|id| !ends(id)).collect()
    }

    /// The number of requests whose answer must come.
    pub(crate) fn waiting(&self) -> usize {
        self.under_way.values().filter(|asked| !matches!(asked.call.want, Want::Nothing)).count()
    }

    /// Reads and checks messages until that time, or until `enough`.
    pub(crate) fn read_until(&mut self, until: Instant, enough: impl Fn(&Self) -> bool) -> Result<()> {
        while !self.has_ended && !enough(self) {
            self.check_limits()?;
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            self.read_some(left.clamp(Duration::from_millis(1), Duration::from_secs(1)))?;
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<()> {
        let is_over = |asked: &Asked| {
            let is_wanted = asked.fence.is_none() && !matches!(asked.call.want, Want::Nothing);
            is_wanted && asked.sent.elapsed() > LIMIT + asked.call.lasts
        };
        let Some((id, asked)) = self.under_way.iter().find(|(_, asked)| is_over(asked)) else {
            return Ok(());
        };
        let wrong = format!("no answer to {id} within {LIMIT:?}: {}", excerpt(&asked.call.params));
        Err(Error::msg(wrong).context(Count::Unanswered))
    }

    /// Reads once, and handles all complete lines.
    fn read_some(&mut self, patience: Duration) -> Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let read = self.stream.set_read_timeout(Some(patience)).and_then(|()| self.stream.read(&mut piece));
        let count = match read {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error).context("cannot read from the bridge"),
        };
        self.has_ended |= count == 0;
        let Some(end) = piece[..count].iter().rposition(|byte| *byte == b'\n') else {
            self.read.extend_from_slice(&piece[..count]);
            return Ok(());
        };
        self.read.extend_from_slice(&piece[..end]);
        let lines = std::mem::replace(&mut self.read, piece[end + 1..count].to_vec());
        lines.split(|byte| *byte == b'\n').try_for_each(|line| self.take(line))
    }

    fn take(&mut self, line: &[u8]) -> Result<()> {
        let message: Value = serde_json::from_slice(line)
            .with_context(|| format!("a line of {} bytes is no message", line.len()))?;
        if message["method"] == "notifications/progress" {
            return self.take_report(&message["params"]);
        }
        ensure!(message.get("method").is_none(), "the bridge says {}", excerpt(&message));
        let asked = message["id"].as_u64().and_then(|id| Some((id, self.under_way.remove(&id)?)));
        let Some((id, asked)) = asked else {
            bail!("an unexpected answer: {}", excerpt(&message));
        };
        self.settle(id, &asked, &message)?;
        // Requests cancelled before this one was sent are answered by now, or never.
        let before = self.under_way.len();
        self.under_way.retain(|_, asked| asked.fence != Some(id));
        self.account.add(Count::Cancelled, (before - self.under_way.len()) as u64);
        Ok(())
    }

    /// Checks and counts an answer.
    fn settle(&mut self, id: u64, asked: &Asked, answer: &Value) -> Result<()> {
        let answered = Instant::now();
        let count = match asked.call.judge(answer)? {
            Verdict::Lost(text) => {
                let is_explained = self.host.troubles.explain(asked.sent, answered);
                ensure!(
                    is_explained,
                    "an error without a reason, to {}: {text}",
                    excerpt(&asked.call.params)
                );
                Count::Explained
            }
            Verdict::Note(number) => {
                if let Want::Note { seen, ms, .. } = asked.call.want {
                    self.host.notes.add(number, seen, Note { sent: asked.sent, answered, ms })?;
                }
                Count::Right
            }
            Verdict::Right => {
                let (came, want) = (asked.reported, asked.call.reports());
                ensure!(came == want, "progress up to {came} for {id}, and not {want}");
                Count::Right
            }
        };
        self.account.add(count, 1);
        self.account.note(&self.name, format!("has an answer to {id}: {count:?}"));
        Ok(())
    }

    fn take_report(&mut self, report: &Value) -> Result<()> {
        let token = report["progressToken"].as_str();
        let asked = self.under_way.values_mut().find(|asked| token.is_some() && asked.call.token() == token);
        let Some(asked) = asked else {
            bail!("progress of nothing: {report}");
        };
        // A newer report may have replaced some.
        let step =
            report["progress"].as_u64().filter(|step| *step >= asked.reported).unwrap_or(asked.reported);
        let want = asked.call.report(step);
        ensure!(*report == want, "progress is {report}, and not {want}");
        asked.reported = step + 1;
        Ok(())
    }

    /// Ends the bridge, and checks its remaining output and its exit status.
    pub(crate) fn end(&mut self, end: End) -> Result<()> {
        self.account.note(&self.name, format!("ends: {end:?}"));
        match end {
            End::Done | End::Closed => _ = self.stream.shutdown(Shutdown::Write),
            End::HungUp => _ = self.stream.shutdown(Shutdown::Both),
            End::Terminated => kill_process(Pid::from_child(&self.child), Signal::TERM)?,
            End::Killed => self.child.kill()?,
        }
        let remaining_output = self.remaining_output(end);
        let status = self.wait()?;
        remaining_output?;
        let is_right = if end == End::Killed { status.signal() == Some(9) } else { status.success() };
        ensure!(is_right, "the bridge ended with {status}: {end:?}");
        Ok(())
    }

    fn remaining_output(&mut self, end: End) -> Result<()> {
        let until = Instant::now() + LIMIT;
        while end != End::HungUp && !self.has_ended {
            ensure!(Instant::now() < until, "the bridge does not close its stdout: {end:?}");
            self.read_some(Duration::from_secs(1))?;
        }
        let (cut, missing) = (self.read.len(), self.waiting());
        let may_be_cut = matches!(end, End::Killed | End::Terminated | End::HungUp);
        ensure!(cut == 0 || may_be_cut, "the last line lacks its end, after {cut} bytes");
        ensure!(missing == 0 || end != End::Done, "{missing} calls are not answered at a good end");
        Ok(())
    }

    /// Waits for the process and returns its status.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        self.account.add(Count::Gone, self.under_way.drain().count() as u64);
        wait_for(&mut self.child, "a bridge")
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        // After a fault: the rest is not checked.
        self.account.add(Count::Gone, self.under_way.len() as u64);
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
