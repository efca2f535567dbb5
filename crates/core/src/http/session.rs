//! Sessions of clients that have called `initialize`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::http::auth::Principal;
use crate::mcp::call::OpenCalls;
use crate::mcp::protocol::Protocol;
use crate::tool::lock::lock;
use crate::{CancellationToken, ToolList};

/// One client's session.
#[derive(Debug)]
pub(crate) struct HttpSession {
    pub(crate) id: String,
    principal: Principal,
    /// Cancelled when the session ends; its calls are cancelled with it.
    pub(crate) ended: CancellationToken,
    pub(crate) open: Arc<OpenCalls>,
    state: Mutex<HttpSessionState>,
}

#[derive(Debug)]
struct HttpSessionState {
    protocol: Protocol,
    /// The stream that notifies of changes, if it is open.
    stream: Option<CancellationToken>,
    /// The list of tools that the client has last received.
    seen: Option<ToolList>,
    used: Instant,
}

impl HttpSession {
    pub(crate) fn with_protocol<T>(&self, then: impl FnOnce(&mut Protocol) -> T) -> T {
        then(&mut lock(&self.state).protocol)
    }

    /// Records that the session has been used.
    pub(crate) fn touch(&self) {
        lock(&self.state).used = Instant::now();
    }

    /// Records that the client has received this list.
    pub(crate) fn see(&self, tools: ToolList) {
        lock(&self.state).seen = Some(tools);
    }

    /// Opens the session's only stream, which replaces an earlier one; also returns whether the client has last
    /// received another list than this one.
    pub(crate) fn open_stream(&self, tools: &ToolList) -> (CancellationToken, bool) {
        let stream = self.ended.child_token();
        let mut state = lock(&self.state);
        if let Some(earlier) = state.stream.replace(stream.clone()) {
            earlier.cancel();
        }
        let has_changed = state.seen.as_ref().is_some_and(|seen| !seen.is(tools));
        (stream, has_changed)
    }

    /// Records that the stream has ended.
    pub(crate) fn close_stream(&self, stream: &CancellationToken) {
        stream.cancel();
        let mut state = lock(&self.state);
        // A later stream is not cancelled and stays.
        if state.stream.as_ref().is_some_and(CancellationToken::is_cancelled) {
            state.stream = None;
            state.used = Instant::now();
        }
    }

    /// Since when the session has been idle; `None` while it is in use.
    fn idle_since(&self) -> Option<Instant> {
        let state = lock(&self.state);
        // Each call of the session holds these.
        let has_calls = Arc::strong_count(&self.open) > 1;
        (!has_calls && state.stream.is_none()).then_some(state.used)
    }
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<String, Arc<HttpSession>>>,
    most: usize,
    idle: Duration,
}

impl Sessions {
    pub(crate) fn new(most: usize, idle: Duration) -> Self {
        Self { open: Mutex::default(), most, idle }
    }

    /// Opens a session; it ends with `parent`. When there are too many, the one that has been idle for longest
    /// ends; `None` if all are in use.
    pub(crate) fn open(
        &self,
        protocol: Protocol,
        principal: Principal,
        parent: &CancellationToken,
    ) -> Option<Arc<HttpSession>> {
        let mut open = lock(&self.open);
        self.sweep(&mut open);
        if open.len() >= self.most {
            let idle = open.values().filter_map(|session| Some((session.idle_since()?, &session.id)));
            let longest = idle.min_by_key(|(since, _)| *since).map(|(_, id)| id.clone())?;
            if let Some(session) = open.remove(&longest) {
                session.ended.cancel();
            }
        }
        // 122 random bits from the system, which cannot be guessed.
        let id = Uuid::new_v4().simple().to_string();
        let state = HttpSessionState { protocol, stream: None, seen: None, used: Instant::now() };
        let (ended, open_calls, state) = (parent.child_token(), Arc::default(), Mutex::new(state));
        let session = Arc::new(HttpSession { id: id.clone(), principal, ended, open: open_calls, state });
        open.insert(id, Arc::clone(&session));
        Some(session)
    }

    /// The session with that id, if it belongs to this principal. A session of another principal is treated as
    /// missing.
    pub(crate) fn get(&self, id: &str, principal: &Principal) -> Option<Arc<HttpSession>> {
        let mut open = lock(&self.open);
        let session = Arc::clone(open.get(id).filter(|session| session.principal == *principal)?);
        if self.is_over(&session) {
            open.remove(id);
            session.ended.cancel();
            return None;
        }
        session.touch();
        Some(session)
    }

    pub(crate) fn end(&self, session: &HttpSession) {
        lock(&self.open).remove(&session.id);
        session.ended.cancel();
    }

    pub(crate) fn len(&self) -> usize {
        let mut open = lock(&self.open);
        self.sweep(&mut open);
        open.len()
    }

    pub(crate) fn clear(&self) {
        for (_, session) in lock(&self.open).drain() {
            session.ended.cancel();
        }
    }

    fn sweep(&self, open: &mut HashMap<String, Arc<HttpSession>>) {
        open.retain(|_, session| {
            let is_over = self.is_over(session);
            if is_over {
                session.ended.cancel();
            }
            !is_over
        });
    }

    fn is_over(&self, session: &HttpSession) -> bool {
        session.idle_since().is_some_and(|since| since.elapsed() >= self.idle)
    }
}
