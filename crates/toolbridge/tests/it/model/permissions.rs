//! Decisions about whether a tool may be used.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::sync::Notify;
use toolbridge::ClaudeCodeModel;
use toolbridge::model::{
    ClaudeCodeError, Permission, PermissionDestination, PermissionMode, PermissionRequest, PermissionRule,
    PermissionUpdate, Transport,
};
use toolbridge_scripted::thorough;

use super::support::{Tools, World, notified, transports};

const ADD: &str = "call add {\"a\": 1, \"b\": 1}\n---\ntext {result}";

fn with_tools(model: ClaudeCodeModel, tools: &Tools, transport: Transport) -> ClaudeCodeModel {
    model.set_agent_toolsets(tools.toolset(), "tools", transport).unwrap();
    model
}

#[tokio::test]
async fn own_tools_are_allowed_by_default() {
    for transport in transports() {
        let world = World::new(ADD);
        let tools = Tools::new();
        let model = with_tools(world.builder().allow_own_tools(false).build().unwrap(), &tools, transport);
        let text = model.request("go").await.unwrap().text();
        assert!(text.contains("permission"), "{text}");
        assert_eq!(tools.0.calls.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_hook_allows_denies_and_changes() {
    for transport in transports() {
        // One call after the other, because the CLI may ask about calls of one turn in any order.
        let world = World::new(
            "call add {\"a\": 1, \"b\": 1}\n---\ncall add {\"a\": 2, \"b\": 1}\n---\n\
             call add {\"a\": 3, \"b\": 1}\n---\ntext done",
        );
        let tools = Tools::new();
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let list = Arc::clone(&asked);
        let decide = move |request: PermissionRequest| {
            let permission = match request.input["a"].as_i64() {
                Some(1) => Permission::Allow,
                Some(2) => Permission::AllowWith(json!({ "a": 40, "b": 2 })),
                _ => Permission::deny("not on a Sunday"),
            };
            list.lock().unwrap().push((request.tool_name, request.input, request.tool_use_id));
            std::future::ready(permission)
        };
        let model = with_tools(world.builder().can_use_tool(decide).build().unwrap(), &tools, transport);
        model.request("go").await.unwrap();
        let requests = world.scripted.requests();
        let results: Vec<_> =
            requests[1..].iter().map(|request| request.tool_results().last().unwrap().text()).collect();
        assert_eq!(results, ["2", "42", "not on a Sunday"], "over {transport}");
        assert_eq!(tools.0.calls.load(Ordering::SeqCst), 2);
        let call = |number: usize| {
            let input = json!({ "a": number, "b": 1 });
            ("mcp__tools__add".to_owned(), input, Some(format!("toolu_{}_0", number - 1)))
        };
        assert_eq!(*asked.lock().unwrap(), [call(1), call(2), call(3)]);
    }
}

#[tokio::test]
async fn a_hook_that_panics_denies() {
    let world = World::new(ADD);
    let tools = Tools::new();
    let hook = async |_: PermissionRequest| -> Permission { panic!("the hook's own") };
    let model = with_tools(world.builder().can_use_tool(hook).build().unwrap(), &tools, Transport::Stdio);
    let text = model.request("go").await.unwrap().text();
    assert_eq!(text, "`can_use_tool` failed, so the tool is denied");
    assert_eq!(tools.0.calls.load(Ordering::SeqCst), 0);
    world.nothing_is_left();
}

#[tokio::test]
async fn restrictions_apply_to_allowed_tools() {
    for transport in transports() {
        let world =
            World::new("call add {\"a\": 1, \"b\": 1}\ncall add {\"a\": 9, \"b\": 1}\n---\ntext {results}");
        let tools = Tools::new();
        let rule = ("mcp__tools__add", "a", json!({ "maximum": 5 }));
        let model = world.builder().tool_parameter_restrictions([rule]).build().unwrap();
        let text = with_tools(model, &tools, transport).request("go").await.unwrap().text();
        assert!(text.starts_with("2, ") && text.contains("restricted: at `/a`"), "{text}");
        assert_eq!(tools.0.calls.load(Ordering::SeqCst), 1);
    }
    // A built-in tool that a rule of the CLI allows; `versions::restrictions_hold` has this too.
    if !thorough() {
        return;
    }
    let world = World::new("call Bash {\"command\": \"echo 12\"}\n---\ntext {result}");
    let rule = ("Bash", "command", json!({ "pattern": "^git " }));
    let builder = world.builder().builtin_tools(["Bash"]).allowed_tools(["Bash"]);
    let model = builder.tool_parameter_restrictions([rule]).build().unwrap();
    let text = model.request("go").await.unwrap().text();
    assert!(text.contains("the arguments of `Bash` are restricted: at `/command`"), "{text}");
}

#[tokio::test]
async fn restrictions_apply_to_changed_arguments() {
    let world = World::new(ADD);
    let tools = Tools::new();
    let change = async |_: PermissionRequest| Permission::AllowWith(json!({ "a": 9, "b": 1 }));
    let rule = ("mcp__tools__add", "a", json!({ "maximum": 5 }));
    let model = world.builder().can_use_tool(change).tool_parameter_restrictions([rule]).build().unwrap();
    let text = with_tools(model, &tools, Transport::Sdk).request("go").await.unwrap().text();
    assert!(text.contains("restricted: at `/a`"), "{text}");
    assert_eq!(tools.0.calls.load(Ordering::SeqCst), 0);
}

#[test]
fn a_restriction_must_be_a_schema() {
    let rule = ("Bash", "command", json!({ "pattern": "(" }));
    let error = ClaudeCodeModel::builder().tool_parameter_restrictions([rule]).build().unwrap_err();
    assert!(error.to_string().contains("`command` of tool `Bash` is not a JSON Schema"), "{error}");
}

#[tokio::test]
async fn a_denial_may_end_the_request() {
    for transport in transports() {
        let world = World::new(ADD);
        let stop = async |_: PermissionRequest| Permission::Deny { message: "stop".into(), interrupt: true };
        let model = with_tools(world.builder().can_use_tool(stop).build().unwrap(), &Tools::new(), transport);
        let outcome = model.request("go").await;
        assert!(matches!(outcome, Err(ClaudeCodeError::CliInterrupted { .. })), "{outcome:?}");
        world.nothing_is_left();
    }
}

struct Gone(Arc<Notify>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_hook_that_never_answers_ends_with_its_request() {
    let world = World::new(ADD);
    let (asked, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, guard) = (Arc::clone(&asked), Arc::clone(&gone));
    let hook = move |_: PermissionRequest| {
        let (tell, guard) = (Arc::clone(&tell), Gone(Arc::clone(&guard)));
        async move {
            let _guard = guard;
            tell.notify_one();
            std::future::pending().await
        }
    };
    let model =
        with_tools(world.builder().can_use_tool(hook).build().unwrap(), &Tools::new(), Transport::Stdio);
    tokio::select! {
        outcome = model.request("go") => panic!("{outcome:?}"),
        () = notified("the hook is asked", &asked) => {}
    }
    notified("the hook is dropped", &gone).await;
    world.nothing_is_left_soon();
}

#[tokio::test]
async fn permission_modes_reach_the_cli() {
    for (mode, exists) in [(PermissionMode::Default, false), (PermissionMode::AcceptEdits, true)] {
        let home = World::new("text unused").home;
        let file = home.path().join("note.txt");
        let call = json!({ "file_path": file, "content": "hello" });
        let world = World::new(&*format!("call Write {call}\n---\ntext done"));
        let builder = world.builder().working_directory(home.path()).builtin_tools(["Write"]);
        let model = builder.permission_mode(mode.clone()).build().unwrap();
        model.request("go").await.unwrap();
        assert_eq!(file.exists(), exists, "{mode}");
    }
}

#[tokio::test]
async fn settings_that_disable_restrictions_are_refused() {
    let world = World::new(ADD);
    let rule = || ("Bash", "command", json!({ "pattern": "^git " }));
    for builder in [world.builder().extra_args(["--bare"]), world.builder().env("CLAUDE_CODE_SIMPLE", "1")] {
        let model = builder.tool_parameter_restrictions([rule()]).build().unwrap();
        let error = model.request("go").await.unwrap_err();
        assert!(error.to_string().contains("disable the hooks that enforce restrictions"), "{error}");
    }
    // The short name of our own tool, and a CLI that does not ask: the tool itself enforces the
    // restriction.
    let tools = Tools::new();
    let rule = ("add", "a", json!({ "maximum": 0 }));
    let model = world.builder().tool_parameter_restrictions([rule]).build().unwrap();
    let text = with_tools(model, &tools, Transport::Stdio).request("go").await.unwrap().text();
    assert!(text.contains("restricted: at `/a`"), "{text}");
    assert_eq!(tools.0.calls.load(Ordering::SeqCst), 0);
}

/// Calls `add` twice, one after the other.
const ADD_TWICE: &str =
    "call add {\"a\": 1, \"b\": 1}\n---\ncall add {\"a\": 2, \"b\": 2}\n---\ntext {result}";

#[tokio::test]
async fn a_decision_may_allow_later_calls() {
    for transport in transports() {
        type Answer = fn(PermissionRequest) -> Vec<PermissionUpdate>;
        let rows: [(Answer, usize); 3] = [
            (|_| Vec::new(), 2),
            (|_| vec![PermissionUpdate::allow([PermissionRule::new("mcp__tools__add")])], 1),
            // The CLI's suggestions, but not stored in a file.
            (
                |asked| {
                    asked
                        .suggestions
                        .into_iter()
                        .map(|one| one.kept_in(PermissionDestination::Session))
                        .collect()
                },
                1,
            ),
        ];
        // `a_hook_allows_denies_and_changes` is asked about each call, too.
        for (updates, times) in rows.into_iter().skip(usize::from(!thorough())) {
            let (world, tools) = (World::new(ADD_TWICE), Tools::new());
            let asked = Arc::<AtomicUsize>::default();
            let count = Arc::clone(&asked);
            let decide = move |request: PermissionRequest| {
                count.fetch_add(1, Ordering::SeqCst);
                assert!(!request.suggestions.is_empty(), "{request:?}");
                std::future::ready(Permission::allow_and(updates(request)))
            };
            let model = with_tools(world.builder().can_use_tool(decide).build().unwrap(), &tools, transport);
            assert_eq!(model.request("go").await.unwrap().text(), "4", "over {transport}");
            assert_eq!(asked.load(Ordering::SeqCst), times, "over {transport}");
            assert_eq!(tools.0.calls.load(Ordering::SeqCst), 2);
            let written = world.home.path().join(".claude/settings.local.json");
            assert!(!written.exists(), "no file has changed");
            world.nothing_is_left();
        }
    }
}
