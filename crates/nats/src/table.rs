//! A host's table of calls.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use toolbridge_core::CancellationToken;

use crate::wire::Lane;

/// How long an answer is kept for a caller that may have missed it, and how long a refused call is
/// remembered.
pub(crate) const KEPT: Duration = Duration::from_secs(10);

/// The limits of kept answers in bytes, and of remembered calls.
const KEPT_BYTES: usize = 16 * 1024 * 1024;
const KEPT_CALLS: usize = 1 << 16;

/// How long a refused caller is assumed to wait for room; callers that still wait ask again within that time.
const REFUSED_WAIT: Duration = Duration::from_secs(2);

/// Allows for the time that a message was in transit.
const CLOCK_SLACK: Duration = Duration::from_millis(500);

/// The number of queued messages per call; the caller sends again what does not fit.
const WAITING_MESSAGES: usize = 16;

/// The calls of a host, by inbox.
#[derive(Debug)]
pub(crate) struct Table {
    inner: Mutex<Inner>,
    /// Notified when a call has ended.
    pub(crate) freed: Notify,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    calls: HashMap<String, Entry>,
    /// The calls that have ended, oldest first.
    ended: VecDeque<(Instant, String)>,
    /// The ended calls whose answers are kept.
    kept: VecDeque<String>,
    kept_bytes: usize,
    /// The end time of the latest forgotten call.
    forgotten: Option<Instant>,
    parallel: usize,
    exclusive: usize,
    /// When a call was last refused for lack of room, per lane.
    refused_at: [Option<Instant>; 2],
    #[cfg(test)]
    later: Duration,
}

#[derive(Debug)]
enum Entry {
    Running {
        cancelled: CancellationToken,
        listens: Option<Listens>,
    },
    Answered {
        headers: HeaderMap,
        payload: Bytes,
    },
    /// It ran, and its answer is no longer kept.
    Over,
    /// It did not run here, and must not.
    Refused,
}

/// The messages that a call expects from its caller.
#[derive(Debug)]
enum Listens {
    /// Parts of the arguments.
    Parts(mpsc::Sender<(u32, Bytes)>),
    /// The number of received parts of the answer.
    Acks(mpsc::Sender<u32>),
}

/// Whether a call may start.
#[derive(Debug)]
pub(crate) enum Begin {
    Now(CancellationToken),
    /// There is no room.
    Busy,
    /// The call is known already, or must not run.
    Never,
}

/// The state of a call.
#[derive(Debug)]
pub(crate) enum Place {
    Running,
    Answered(HeaderMap, Bytes),
    /// Not here, and it will not run here.
    Absent,
    /// It has ended, or may have.
    Over,
}

/// The free room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) parallel: usize,
    pub(crate) exclusive: usize,
}

impl Table {
    /// A table for `limit` parallel calls.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                limit,
                calls: HashMap::new(),
                ended: VecDeque::new(),
                kept: VecDeque::new(),
                kept_bytes: 0,
                forgotten: None,
                parallel: 0,
                exclusive: 0,
                refused_at: [None; 2],
                #[cfg(test)]
                later: Duration::ZERO,
            }),
            freed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call, if there is room.
    pub(crate) fn begin(&self, inbox: &str, lane: Lane, parent: &CancellationToken) -> Begin {
        let mut inner = self.lock();
        let now = inner.now();
        if inner.calls.contains_key(inbox) {
            return Begin::Never;
        }
        let room = inner.room();
        let (free, which) = match lane {
            Lane::Parallel => (room.parallel, 0),
            Lane::Exclusive => (room.exclusive, 1),
        };
        if free == 0 {
            inner.refused_at[which] = Some(now);
            return Begin::Busy;
        }
        inner.parallel += 1;
        inner.exclusive += usize::from(lane == Lane::Exclusive);
        let cancelled = parent.child_token();
        let entry = Entry::Running { cancelled: cancelled.clone(), listens: None };
        inner.calls.insert(inbox.into(), entry);
        Begin::Now(cancelled)
    }

    /// Ends a call and keeps its answer for a while. Returns the free room, if a caller was refused recently.
    pub(crate) fn end(&self, inbox: &str, lane: Lane, answer: Option<(HeaderMap, Bytes)>) -> Option<Room> {
        let mut inner = self.lock();
        inner.parallel -= 1;
        inner.exclusive -= usize::from(lane == Lane::Exclusive);
        let entry = match answer {
            Some((headers, payload)) => {
                inner.kept_bytes += payload.len();
                inner.kept.push_back(inbox.into());
                Entry::Answered { headers, payload }
            }
            None => Entry::Over,
        };
        inner.calls.insert(inbox.into(), entry);
        inner.note_end(inbox.into());
        let room = inner.room();
        let now = inner.now();
        let is_wanted = |which: usize| inner.refused_at[which].is_some_and(|when| now - when < REFUSED_WAIT);
        let waited_for = (is_wanted(0) && room.parallel > 0) || (is_wanted(1) && room.exclusive > 0);
        drop(inner);
        self.freed.notify_one();
        waited_for.then_some(room)
    }

    /// Adds a listing, which does not count as a call.
    pub(crate) fn begin_listing(&self, inbox: &str) {
        let entry = Entry::Running { cancelled: CancellationToken::new(), listens: None };
        self.lock().calls.insert(inbox.into(), entry);
    }

    pub(crate) fn end_listing(&self, inbox: &str) {
        self.lock().calls.remove(inbox);
    }

    /// Cancels a call. If it has not arrived yet, it will not run.
    pub(crate) fn cancel(&self, inbox: &str) {
        let mut inner = self.lock();
        match inner.calls.get(inbox) {
            Some(Entry::Running { cancelled, .. }) => cancelled.cancel(),
            Some(_) => {}
            None => inner.refuse(inbox),
        }
    }

    /// The state of a call that was made `age` ago. If it has not arrived yet, it will not run.
    pub(crate) fn place(&self, inbox: &str, age: Duration) -> Place {
        let mut inner = self.lock();
        match inner.calls.get(inbox) {
            Some(Entry::Running { .. }) => Place::Running,
            Some(Entry::Answered { headers, payload }) => Place::Answered(headers.clone(), payload.clone()),
            Some(Entry::Refused) => Place::Absent,
            Some(Entry::Over) => Place::Over,
            None => {
                inner.refuse(inbox);
                let was_made = inner.now().checked_sub(age + CLOCK_SLACK);
                // If calls were forgotten since then, this may have been one of them.
                let is_sure =
                    inner.forgotten.is_none_or(|forgotten| was_made.is_some_and(|made| made > forgotten));
                if is_sure { Place::Absent } else { Place::Over }
            }
        }
    }

    /// The receiver for the parts of a call's arguments.
    pub(crate) fn parts(&self, inbox: &str) -> mpsc::Receiver<(u32, Bytes)> {
        let (sender, receiver) = mpsc::channel(WAITING_MESSAGES);
        self.listen(inbox, Listens::Parts(sender));
        receiver
    }

    /// The receiver for the acknowledgements of a call's answer.
    pub(crate) fn acks(&self, inbox: &str) -> mpsc::Receiver<u32> {
        let (sender, receiver) = mpsc::channel(WAITING_MESSAGES);
        self.listen(inbox, Listens::Acks(sender));
        receiver
    }

    fn listen(&self, inbox: &str, to: Listens) {
        if let Some(Entry::Running { listens, .. }) = self.lock().calls.get_mut(inbox) {
            *listens = Some(to);
        }
    }

    /// Passes a part on to its call.
    pub(crate) fn pass_part(&self, inbox: &str, place: u32, part: Bytes) {
        if let Some(Entry::Running { listens: Some(Listens::Parts(parts)), .. }) =
            self.lock().calls.get(inbox)
        {
            _ = parts.try_send((place, part));
        }
    }

    /// Passes an acknowledgement on to its call.
    pub(crate) fn pass_ack(&self, inbox: &str, count: u32) {
        if let Some(Entry::Running { listens: Some(Listens::Acks(acks)), .. }) = self.lock().calls.get(inbox)
        {
            _ = acks.try_send(count);
        }
    }

    /// The number of running calls.
    pub(crate) fn running(&self) -> usize {
        self.lock().parallel
    }
}

impl Inner {
    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have a clock of their own")]
    fn now(&self) -> Instant {
        Instant::now()
    }

    #[cfg(test)]
    fn now(&self) -> Instant {
        Instant::now() + self.later
    }

    fn room(&self) -> Room {
        let parallel = self.limit.saturating_sub(self.parallel);
        // One exclusive call at a time: a second would only wait here while other hosts are idle.
        Room { parallel, exclusive: parallel.min(usize::from(self.exclusive == 0)) }
    }

    fn refuse(&mut self, inbox: &str) {
        self.calls.insert(inbox.into(), Entry::Refused);
        self.note_end(inbox.into());
    }

    /// Records the end of a call, and forgets the oldest ones.
    fn note_end(&mut self, inbox: String) {
        let now = self.now();
        self.ended.push_back((now, inbox));
        while self.kept_bytes > KEPT_BYTES
            && let Some(oldest) = self.kept.pop_front()
        {
            if let Some(entry @ Entry::Answered { .. }) = self.calls.get_mut(&oldest)
                && let Entry::Answered { payload, .. } = std::mem::replace(entry, Entry::Over)
            {
                self.kept_bytes -= payload.len();
            }
        }
        while let Some((since, _)) = self.ended.front()
            && (now - *since > KEPT || self.ended.len() > KEPT_CALLS)
        {
            let Some((since, oldest)) = self.ended.pop_front() else { return };
            self.forgotten = Some(since);
            if let Some(Entry::Answered { payload, .. }) = self.calls.remove(&oldest) {
                self.kept_bytes -= payload.len();
                // `kept` has the same order as `ended`.
                self.kept.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(table: &Table, inbox: &str, lane: Lane) -> &'static str {
        match table.begin(inbox, lane, &CancellationToken::new()) {
            Begin::Now(_) => "now",
            Begin::Busy => "busy",
            Begin::Never => "never",
        }
    }

    fn answer(bytes: usize) -> (HeaderMap, Bytes) {
        (HeaderMap::new(), vec![0; bytes].into())
    }

    #[tokio::test]
    async fn there_is_room_for_so_many_calls_and_one_that_takes_turns() {
        let table = Table::new(2);
        assert_eq!(begin(&table, "a", Lane::Exclusive), "now");
        assert_eq!(begin(&table, "b", Lane::Exclusive), "busy");
        assert_eq!(begin(&table, "c", Lane::Parallel), "now");
        assert_eq!(begin(&table, "d", Lane::Parallel), "busy");
        assert_eq!(table.end("c", Lane::Parallel, Some(answer(1))), Some(Room { parallel: 1, exclusive: 0 }));
        assert_eq!(
            table.end("a", Lane::Exclusive, Some(answer(1))),
            Some(Room { parallel: 2, exclusive: 1 })
        );
        assert_eq!(begin(&table, "b", Lane::Exclusive), "now");
    }

    #[tokio::test]
    async fn room_is_announced_only_after_a_refusal() {
        let table = Table::new(1);
        assert_eq!(begin(&table, "a", Lane::Parallel), "now");
        assert_eq!(table.end("a", Lane::Parallel, Some(answer(1))), None);
        assert_eq!(begin(&table, "b", Lane::Parallel), "now");
        assert_eq!(begin(&table, "c", Lane::Parallel), "busy");
        table.lock().later += 2 * REFUSED_WAIT;
        assert_eq!(table.end("b", Lane::Parallel, Some(answer(1))), None);
    }

    #[tokio::test]
    async fn a_call_runs_once_and_its_answer_is_kept() {
        let table = Table::new(2);
        assert_eq!(begin(&table, "a", Lane::Parallel), "now");
        assert_eq!(begin(&table, "a", Lane::Parallel), "never");
        assert!(matches!(table.place("a", Duration::ZERO), Place::Running));
        table.end("a", Lane::Parallel, Some(answer(3)));
        assert_eq!(begin(&table, "a", Lane::Parallel), "never");
        assert!(
            matches!(table.place("a", Duration::ZERO), Place::Answered(_, payload) if payload.len() == 3)
        );
    }

    #[tokio::test]
    async fn a_call_reported_absent_or_cancelled_does_not_run_later() {
        let table = Table::new(2);
        assert!(matches!(table.place("a", Duration::ZERO), Place::Absent));
        assert_eq!(begin(&table, "a", Lane::Parallel), "never");
        table.cancel("b");
        assert_eq!(begin(&table, "b", Lane::Parallel), "never");
    }

    #[tokio::test]
    async fn kept_answers_have_a_limit_and_forgotten_calls_are_in_doubt() {
        let table = Table::new(1);
        let run = |inbox: &str| {
            assert_eq!(begin(&table, inbox, Lane::Parallel), "now");
            table.end(inbox, Lane::Parallel, Some(answer(10_000)));
        };
        for number in 0..2000 {
            run(&number.to_string());
        }
        assert!(table.lock().kept_bytes <= KEPT_BYTES);
        assert!(
            matches!(table.place("0", Duration::ZERO), Place::Over),
            "its answer was dropped for newer ones"
        );
        assert!(matches!(table.place("1999", Duration::ZERO), Place::Answered(..)));
        table.lock().later += 2 * KEPT;
        run("last");
        let inner = table.lock();
        assert_eq!(
            (inner.calls.len(), inner.ended.len(), inner.kept.len(), inner.kept_bytes),
            (1, 1, 1, 10_000)
        );
        drop(inner);
        assert!(matches!(table.place("1999", 3 * KEPT), Place::Over), "it may be a forgotten one");
        assert!(matches!(table.place("new", Duration::from_secs(1)), Place::Absent));
    }
}
