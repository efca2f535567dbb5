//! All named sessions of this user, as one source of tools.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::{
    CallContext, CallFuture, Changes, RawJson, ServerInfo, ToolCall, ToolList, ToolResult, ToolSource,
    ToolSpec, with_prefix,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ipc::IpcError;
use crate::ipc::dir_watch::dir_changed;
use crate::ipc::names::{NamedSession, check_name, named_sessions, names_dirs, private_dir};
use crate::ipc::remote::{Follower, RemoteSession, start_following};
use crate::ipc::sweep::sweep_session;

/// The tool that is offered when there are no others. Its name belongs to it, so that a permission for it is never one for
/// a session's tool.
const SESSIONS: &str = "sessions";

/// How long until watching a directory is retried.
const WATCH_AGAIN: Duration = Duration::from_secs(5);

/// The tools of all live named sessions of this user, or of those with certain names.
///
/// A tool is called `session__tool`; with exactly one name, it keeps its own. So its name does not depend on other
/// sessions. If several sessions have the same name, only the newest is offered. When sessions start, end or change
/// their tools, [`changes`](ToolSource::changes) notifies.
#[derive(Debug)]
pub struct Attached {
    discovery: Arc<Discovery>,
    follower: Follower,
}

/// Finds the sessions.
#[derive(Debug)]
struct Discovery {
    /// Empty for all sessions.
    names: Vec<String>,
    dirs: Vec<PathBuf>,
    found: RwLock<Arc<Snapshot>>,
    /// Notified when a session has changed its tools.
    member_changed: Arc<watch::Sender<()>>,
    changed: watch::Sender<()>,
}

/// The sessions and tools at one moment.
#[derive(Debug, Default)]
struct Snapshot {
    members: Vec<Member>,
    list: ToolList,
    /// For each name in `list`: the session that has the tool, and the tool's name there.
    routes: HashMap<String, (Arc<RemoteSession>, String)>,
}

type Member = (NamedSession, Arc<RemoteSession>);

impl Attached {
    /// The sessions with those names; if there are none, all named sessions. It follows them from now on; outside
    /// a runtime, from its first use inside one.
    ///
    /// # Errors
    ///
    /// When a session cannot have such a name.
    pub fn new(names: Vec<String>) -> Result<Self, IpcError> {
        Self::in_dirs(names, names_dirs())
    }

    /// The same, in other directories than this user's own.
    ///
    /// # Errors
    ///
    /// When a session cannot have such a name.
    pub fn in_dirs(names: Vec<String>, dirs: Vec<PathBuf>) -> Result<Self, IpcError> {
        names.iter().try_for_each(|name| check_name(name))?;
        let discovery = Discovery {
            names,
            dirs,
            found: RwLock::default(),
            member_changed: Arc::default(),
            changed: watch::Sender::default(),
        };
        discovery.look(&HashSet::new());
        let attached = Self { discovery: Arc::new(discovery), follower: Follower::default() };
        attached.follow();
        Ok(attached)
    }

    fn follow(&self) {
        let discovery = Arc::clone(&self.discovery);
        start_following(&self.follower, || async move { discovery.follow().await });
    }

    /// The instructions of the current sessions, combined for one server.
    #[must_use]
    pub fn info(&self) -> ServerInfo {
        let found = self.discovery.found();
        let instructions = newest(&found.members).filter_map(|(session, _)| {
            Some(format!("{}: {}", session.name, session.server.instructions.as_ref()?))
        });
        let instructions = instructions.reduce(|all, next| all + "\n" + &next);
        ServerInfo { instructions, ..ServerInfo::default() }
    }
}

impl Discovery {
    fn found(&self) -> Arc<Snapshot> {
        Arc::clone(&self.found.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks for sessions again, except for those whose sockets are known to be `gone`.
    fn look(&self, gone: &HashSet<PathBuf>) {
        let before = self.found();
        let wanted = |session: &NamedSession| self.names.is_empty() || self.names.contains(&session.name);
        let found = named_sessions(&self.dirs).into_iter();
        let found = found.filter(|session| wanted(session) && !gone.contains(&session.socket));
        let members = found.filter_map(|session| self.member(&before, session)).collect();
        let mut now = Snapshot::of(members, self.names.len() != 1);
        let is_same = now.list[..] == before.list[..];
        if is_same {
            now.list = before.list.clone();
        }
        *self.found.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(now);
        if !is_same {
            self.changed.send_replace(());
        }
    }

    /// The session with its connections; an already known session keeps them.
    fn member(&self, before: &Snapshot, session: NamedSession) -> Option<Member> {
        if let Some((_, known)) = before.members.iter().find(|(old, _)| old.socket == session.socket) {
            return Some((session, Arc::clone(known)));
        }
        let changed = Arc::clone(&self.member_changed);
        let remote = RemoteSession::open(session.socket.clone(), session.schema.clone(), changed);
        // It may just have ended.
        let remote = remote.inspect_err(|error| tracing::debug!(%error, "a session cannot be used")).ok()?;
        Some((session, Arc::new(remote)))
    }

    /// Follows sessions as they start, end and change.
    async fn follow(&self) {
        let mut followed = JoinSet::new();
        let mut known = HashSet::new();
        let mut gone = HashSet::new();
        let mut changes = self.member_changed.subscribe();
        loop {
            // Created before looking, so that no later change is missed.
            let mut news = JoinSet::new();
            for dir in &self.dirs {
                match private_dir(dir).and_then(|()| dir_changed(dir)) {
                    Ok(waiting) => _ = news.spawn(waiting),
                    Err(error) => {
                        tracing::warn!(dir = %dir.display(), %error, "new sessions here will not be noticed");
                    }
                }
            }
            let is_blind = news.len() < self.dirs.len();
            self.look(&gone);
            let now = self.found();
            // A session that comes back is followed again; the remains of dead sessions have been removed.
            known.retain(|known| now.members.iter().any(|(session, _)| session.socket == *known));
            gone.retain(|socket: &PathBuf| socket.exists());
            for (session, remote) in &now.members {
                if known.insert(session.socket.clone()) {
                    let (remote, socket) = (Arc::clone(remote), session.socket.clone());
                    followed.spawn(async move {
                        remote.follow().await;
                        socket
                    });
                }
            }
            tokio::select! {
                Some(_) = news.join_next() => {}
                () = tokio::time::sleep(WATCH_AGAIN), if is_blind => {}
                Some(Ok(socket)) = followed.join_next() => {
                    // Removes what a killed process left; otherwise it would stay until another session starts.
                    sweep_session(&socket);
                    gone.insert(socket);
                }
                _ = changes.changed() => {}
            }
        }
    }

    /// What the `sessions` tool tells the model when there are no tools.
    fn advice(&self) -> String {
        let all: Vec<_> = named_sessions(&self.dirs).into_iter().map(|session| session.name).collect();
        let looked =
            self.dirs.iter().map(|dir| format!("`{}`", dir.display())).collect::<Vec<_>>().join(" and ");
        let mut text = if self.names.is_empty() {
            format!("There is no live session with tools in {looked}.\n")
        } else {
            format!("There is no live session called {} in {looked}.\n", self.names.join(" or "))
        };
        if !all.is_empty() {
            text.push_str(&format!("There are sessions called {}.\n", all.join(", ")));
        }
        text.push_str(
            "Start a program that opens one: in Rust `Session::builder(tools).name(\"shop\").start()`, in Python \
             `Session(tools, name=\"shop\")`; or try `toolbridge demo --serve --name demo`. Its tools are here as soon as it \
             runs.",
        );
        text
    }
}

/// The newest session of each name. Sessions with the same name are in order, the newest first.
fn newest(members: &[Member]) -> impl Iterator<Item = &Member> {
    let mut known = HashSet::new();
    members.iter().filter(move |(session, _)| known.insert(&session.name))
}

impl Snapshot {
    fn of(members: Vec<Member>, has_prefixes: bool) -> Self {
        let mut specs = Vec::<ToolSpec>::new();
        let mut routes = HashMap::new();
        for (session, remote) in newest(&members) {
            // No session's name contains `__` or ends with `_`, so no two sessions have a tool of the same name.
            let prefix = if has_prefixes { format!("{}__", session.name) } else { String::new() };
            for tool in remote.tools().iter() {
                let Some(spec) = with_prefix(&prefix, tool) else { continue };
                if spec.name == SESSIONS {
                    let name = &session.name;
                    tracing::warn!(
                        "the tool `{SESSIONS}` of the session `{name}` is left out: `attach` has one of its own"
                    );
                    continue;
                }
                routes.insert(spec.name.clone(), (Arc::clone(remote), tool.name.clone()));
                specs.push(spec);
            }
        }
        if specs.is_empty() {
            let schema = RawJson::parse(r#"{"type":"object","properties":{}}"#).expect("it is JSON");
            let mut tool =
                ToolSpec::new(SESSIONS, "Says which live sessions there are, and how to start one.", schema);
            tool.annotations = RawJson::parse(r#"{"readOnlyHint":true}"#).ok();
            tool.meta = RawJson::parse(r#"{"anthropic/alwaysLoad":true}"#).ok();
            specs.push(tool);
        }
        let list = ToolList::of(specs.iter());
        Self { members, list, routes }
    }
}

impl ToolSource for Attached {
    fn tools(&self) -> ToolList {
        self.follow();
        self.discovery.found().list.clone()
    }

    fn changes(&self) -> Changes {
        let changes = Changes::of(self.discovery.changed.subscribe());
        self.follow();
        changes
    }

    fn call(&self, mut call: ToolCall, context: CallContext) -> CallFuture<'_> {
        self.follow();
        let now = self.discovery.found();
        match now.routes.get(&call.name) {
            Some((remote, name)) => {
                let remote = Arc::clone(remote);
                call.name.clone_from(name);
                Box::pin(async move { remote.call(call, context).await })
            }
            None if call.name == SESSIONS => {
                Box::pin(async { Ok(ToolResult::text(self.discovery.advice()).to_json()) })
            }
            None => Box::pin(async move { Err(now.list.not_found(call.name)) }),
        }
    }
}
