//! Shared test support: the real CLI with a scripted model, tools that record their calls, and checks for
//! leftovers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::sleep;
use toolbridge::model::{ClaudeCodeModelBuilder, Transport};
use toolbridge::schemars::{self, JsonSchema};
use toolbridge::toolset::Json;
use toolbridge::{CallContext, ClaudeCodeModel, NoArgs, Tool, ToolResult, Toolset};
pub(crate) use toolbridge_scripted::processes_of;
use toolbridge_scripted::{
    ModelRequest, Script, ScriptedModel, ToolResultBlock, Turn, claude_cli, clean_environment, one_of,
};

/// Longer than anything here takes on a busy machine. A test that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// For tests about the transport itself, and for those that do not start the real CLI.
pub(crate) const BOTH: [Transport; 2] = [Transport::Stdio, Transport::Sdk];

/// One transport for each test, or both when thorough: each start of the real CLI takes half a second of CPU time.
pub(crate) fn transports() -> Vec<Transport> {
    one_of(&BOTH)
}

/// A scripted model, a home for the CLI and a directory for sessions, all empty.
pub(crate) struct World {
    pub(crate) scripted: ScriptedModel,
    pub(crate) home: TempDir,
    pub(crate) sessions: TempDir,
}

impl World {
    pub(crate) fn new(script: impl Into<Script>) -> Self {
        Self::with(ScriptedModel::start(script))
    }

    pub(crate) fn answering(turn: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Self {
        Self::with(ScriptedModel::start_with(turn))
    }

    fn with(scripted: ScriptedModel) -> Self {
        Self { scripted, home: TempDir::new().unwrap(), sessions: TempDir::new().unwrap() }
    }

    /// A model that cannot access anything outside this world.
    pub(crate) fn builder(&self) -> ClaudeCodeModelBuilder {
        let builder = ClaudeCodeModel::builder()
            .cli(claude_cli())
            .bridge(bridge())
            .guard(bridge())
            .session_dir(self.sessions.path())
            .inherit_env(false)
            .working_directory(self.home.path())
            .timeout(PATIENCE);
        let environment = clean_environment(self.home.path(), &self.scripted.url());
        environment.into_iter().fold(builder, |builder, (name, value)| builder.env(name, value))
    }

    pub(crate) fn model(&self) -> ClaudeCodeModel {
        self.builder().build().unwrap()
    }

    /// A model with the test's tools.
    pub(crate) fn model_with(&self, tools: &Tools, transport: Transport) -> ClaudeCodeModel {
        let model = self.model();
        model.set_agent_toolsets(tools.toolset(), "tools", transport).unwrap();
        model
    }

    /// A world whose model calls the tool that never ends.
    pub(crate) fn hanging(transport: Transport) -> (Self, Tools, ClaudeCodeModel) {
        let (world, tools) = (Self::new("call hang {}\n---\ntext done"), Tools::new());
        let model = world.model_with(&tools, transport);
        (world, tools, model)
    }

    /// The texts of the tool results in the last request to the model.
    #[track_caller]
    pub(crate) fn last_results(&self) -> Vec<String> {
        let requests = self.scripted.requests();
        let last = requests.last().expect("a request to the model");
        last.tool_results().iter().map(ToolResultBlock::text).collect()
    }

    /// The session files and the processes of this world.
    fn left(&self) -> Vec<String> {
        processes_of(self.home.path()).chain(files(self.sessions.path())).collect()
    }

    /// Checks that nothing is left, immediately: a request that has ended must have cleaned up.
    #[track_caller]
    pub(crate) fn nothing_is_left(&self) {
        let left = self.left();
        assert!(left.is_empty(), "left behind: {left:#?}");
    }

    /// The same for a request whose end was not awaited, such as a dropped one.
    #[track_caller]
    pub(crate) fn nothing_is_left_soon(&self) {
        let started = Instant::now();
        let mut pause = Duration::from_millis(5);
        while started.elapsed() < PATIENCE && !self.left().is_empty() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        self.nothing_is_left();
    }
}

/// A program in the world's home that replaces the CLI or the bridge.
pub(crate) fn program(world: &World, name: &str, script: &str) -> PathBuf {
    let path = world.home.path().join(name);
    let version = r#"[ "$1" = --version ] && { echo 2.1.326; exit; }"#;
    std::fs::write(&path, format!("#!/bin/sh\n{version}\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The example that is its own bridge; cargo builds it before it runs the tests.
pub(crate) fn bridge() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples/own_bridge")
}

fn files(dir: &Path) -> impl Iterator<Item = String> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path().display().to_string())
}

/// Whether it is the CLI: it has an output format. The guardian's command line contains the CLI's after its
/// own.
pub(crate) fn is_cli(process: &str) -> bool {
    process.contains("--output-format") && !process.contains("toolbridge-guard")
}

pub(crate) fn pid_of(process: &str) -> Pid {
    Pid::from_raw(process.split(['/', ':']).nth(2).unwrap().parse().unwrap()).unwrap()
}

/// Waits for a notification from a handler.
pub(crate) async fn notified(what: &'static str, notify: &Notify) {
    tokio::time::timeout(PATIENCE, notify.notified()).await.expect(what);
}

/// What the tools record about their calls; they run in this process.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) calls: AtomicUsize,
    running: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
    /// How many calls of `look` or `change` are waiting for each other.
    pub(crate) together: AtomicUsize,
    pub(crate) hanging: Notify,
    pub(crate) cancelled: Notify,
    /// Running calls of `hang`.
    hangs: AtomicUsize,
}

pub(crate) struct Tools(pub(crate) Arc<Watch>);

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

#[derive(Serialize, JsonSchema)]
struct Weather {
    degrees: f64,
    sky: String,
}

struct Hangs(Arc<Watch>);

impl Hangs {
    fn new(watch: &Arc<Watch>) -> Self {
        watch.hangs.fetch_add(1, Ordering::SeqCst);
        watch.hanging.notify_one();
        Self(Arc::clone(watch))
    }
}

impl Drop for Hangs {
    fn drop(&mut self) {
        self.0.hangs.fetch_sub(1, Ordering::SeqCst);
        self.0.cancelled.notify_one();
    }
}

async fn watched(context: CallContext) -> &'static str {
    let watch: &Arc<Watch> = context.state();
    let running = watch.running.fetch_add(1, Ordering::SeqCst) + 1;
    watch.most_at_once.fetch_max(running, Ordering::SeqCst);
    sleep(Duration::from_millis(300)).await;
    let all = async {
        while watch.most_at_once.load(Ordering::SeqCst) < watch.together.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    _ = tokio::time::timeout(PATIENCE / 2, all).await;
    watch.running.fetch_sub(1, Ordering::SeqCst);
    "done"
}

impl Tools {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// The number of running calls of `hang`.
    pub(crate) fn hangs(&self) -> usize {
        self.0.hangs.load(Ordering::SeqCst)
    }

    /// Waits until there are none: the runtime drops a cancelled handler with some delay.
    pub(crate) async fn no_handler_goes_on(&self) {
        let gone = async {
            while self.hangs() > 0 {
                self.0.cancelled.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("no handler goes on");
    }

    pub(crate) fn toolset(&self) -> Toolset {
        let picture = |_: NoArgs| ToolResult::text("a dot").and_image(PICTURE, "image/png");
        let weather = |_: NoArgs| Json(Weather { degrees: 21.5, sky: "clear".into() });
        let hang = async |_: NoArgs, context: CallContext| {
            let _hangs = Hangs::new(context.state());
            std::future::pending::<()>().await;
        };
        Toolset::builder()
            .state(Arc::clone(&self.0))
            .tool("add", "Adds two numbers", async |args: Add, context: CallContext| {
                context.state::<Arc<Watch>>().calls.fetch_add(1, Ordering::SeqCst);
                (args.a + args.b).to_string()
            })
            .tool("picture", "Shows a dot", picture)
            .tool("fail", "Fails", |_: NoArgs| Err::<(), _>(std::io::Error::other("no such order")))
            .tool("panic", "Panics", |_: NoArgs| -> () { panic!("oh no") })
            .with(Tool::new("weather", "Tells the weather", weather).output::<Weather>())
            .with(
                Tool::new("large", "400,000 characters", |_: NoArgs| "x".repeat(400_000))
                    .max_result_chars(500_000),
            )
            .tool("huge", "A million characters", |_: NoArgs| "x".repeat(1_000_000))
            .with(
                Tool::new("look", "Takes a while", async |_: NoArgs, context| watched(context).await)
                    .read_only(),
            )
            .tool("change", "Takes a while", async |_: NoArgs, context: CallContext| watched(context).await)
            .tool("progress", "Reports progress", async |_: NoArgs, context: CallContext| {
                context.progress(1.0, Some(2.0), Some("half"));
                context.progress(2.0, Some(2.0), None);
                context.wants_progress()
            })
            .tool("hang", "Never ends", hang)
            .build()
            .unwrap()
    }
}

/// A red dot, 1 × 1.
pub(crate) const PICTURE: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\
\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";
