//! Who decides whether a tool may be used.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolbridge::{ClaudeCodeModel, Permission, Transport};

use super::support::{TRANSPORTS, Tools, World};

const ADD: &str = "call add {\"a\": 1, \"b\": 1}\n---\ntext {result}";

fn with_tools(model: ClaudeCodeModel, tools: &Tools, transport: Transport) -> ClaudeCodeModel {
    model.set_agent_toolsets(tools.toolset(), "tools", transport).unwrap();
    model
}

#[tokio::test]
async fn own_tools_are_allowed_unless_that_is_switched_off() {
    for transport in TRANSPORTS {
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
    for transport in TRANSPORTS {
        let rows = [
            (Permission::Allow, "2", 1),
            (Permission::AllowWith(json!({ "a": 40, "b": 2 })), "42", 1),
            (Permission::deny("not on a Sunday"), "not on a Sunday", 0),
        ];
        for (permission, want, calls) in rows {
            let world = World::new(ADD);
            let tools = Tools::new();
            let asked = Arc::<Mutex<Vec<_>>>::default();
            let list = Arc::clone(&asked);
            let decide = move |request: toolbridge::claude::PermissionRequest| {
                list.lock().unwrap().push((request.tool_name, request.input, request.tool_use_id));
                std::future::ready(permission.clone())
            };
            let model = with_tools(world.builder().can_use_tool(decide).build().unwrap(), &tools, transport);
            assert_eq!(model.request("go").await.unwrap().text(), want, "over {transport}");
            assert_eq!(tools.0.calls.load(Ordering::SeqCst), calls);
            let asked = asked.lock().unwrap();
            let want = ("mcp__tools__add".into(), json!({ "a": 1, "b": 1 }), Some("toolu_0_0".into()));
            assert_eq!(*asked, [want]);
        }
    }
}

#[tokio::test]
async fn a_hook_that_panics_denies() {
    let world = World::new(ADD);
    let tools = Tools::new();
    let hook = async |_: toolbridge::claude::PermissionRequest| -> Permission { panic!("the hook's own") };
    let model = with_tools(world.builder().can_use_tool(hook).build().unwrap(), &tools, TRANSPORTS[0]);
    let text = model.request("go").await.unwrap().text();
    assert_eq!(text, "the permission hook failed, so the tool is not allowed");
    assert_eq!(tools.0.calls.load(Ordering::SeqCst), 0);
    world.nothing_is_left();
}

#[tokio::test]
async fn restricted_parameters_hold_whatever_is_allowed() {
    for transport in TRANSPORTS {
        for (limit, want) in [(5, "2"), (0, "restricted: at `/a`")] {
            let world = World::new(ADD);
            let tools = Tools::new();
            let rule = ("mcp__tools__add", "a", json!({ "maximum": limit }));
            let model = world.builder().tool_parameter_restrictions([rule]).build().unwrap();
            let text = with_tools(model, &tools, transport).request("go").await.unwrap().text();
            assert!(text.contains(want), "{text}");
            assert_eq!(tools.0.calls.load(Ordering::SeqCst), usize::from(limit == 5));
        }
    }
    // A built-in tool that the CLI allows by itself.
    let world = World::new("call Bash {\"command\": \"echo 12\"}\n---\ntext {result}");
    let rule = ("Bash", "command", json!({ "pattern": "^git " }));
    let model = world.builder().allowed_tools(["Bash"]).tool_parameter_restrictions([rule]).build().unwrap();
    let text = model.request("go").await.unwrap().text();
    assert!(text.contains("the arguments of `Bash` are restricted: at `/command`"), "{text}");
}

#[tokio::test]
async fn a_changed_input_must_keep_the_restrictions_too() {
    let world = World::new(ADD);
    let tools = Tools::new();
    let change =
        async |_: toolbridge::claude::PermissionRequest| Permission::AllowWith(json!({ "a": 9, "b": 1 }));
    let rule = ("mcp__tools__add", "a", json!({ "maximum": 5 }));
    let model = world.builder().can_use_tool(change).tool_parameter_restrictions([rule]).build().unwrap();
    let text = with_tools(model, &tools, TRANSPORTS[1]).request("go").await.unwrap().text();
    assert!(text.contains("restricted: at `/a`"), "{text}");
    assert_eq!(tools.0.calls.load(Ordering::SeqCst), 0);
}

#[test]
fn a_restriction_must_be_a_schema() {
    let rule = ("Bash", "command", json!({ "pattern": "(" }));
    let error = ClaudeCodeModel::builder().tool_parameter_restrictions([rule]).build().unwrap_err();
    assert!(error.to_string().contains("`command` of tool `Bash` is not a JSON Schema"), "{error}");
}
