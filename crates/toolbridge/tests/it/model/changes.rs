//! Tools that are added and removed while a request runs, and the server's own information.

use toolbridge::tool::ServerInfo;
use toolbridge::{CallContext, NoArgs, Tool, Toolset};
use toolbridge_scripted::{Block, ModelRequest, ToolResultBlock, Turn};

use super::support::{BOTH, World};

/// More turns than needed, even on a busy machine.
const MANY_TURNS: usize = 200;

fn call(tool: &str) -> Turn {
    Turn::blocks(vec![Block::call(tool, serde_json::json!({}))])
}

/// Adds `greet`, polls until it is offered, calls it, removes it, and calls it again: once offered, a tool
/// stays offered by the CLI until the end of a run.
fn plan(request: &ModelRequest) -> Turn {
    let is_offered = request.tools().contains(&"mcp__tools__greet");
    let results = request.tool_results();
    let last = results.first().map(ToolResultBlock::text).unwrap_or_default();
    match last.as_str() {
        _ if request.turn() > MANY_TURNS => Turn::text("it never came"),
        "" => call("learn"),
        "learnt" if !is_offered => call("look"),
        "learnt" | "forgotten" => call("greet"),
        "hello" => call("forget"),
        error => Turn::text(error),
    }
}

fn learning() -> Toolset {
    let set = Toolset::builder().build().unwrap();
    let (learner, forgetter) = (set.clone(), set.clone());
    let learn = Tool::new("learn", "Learns", async move |_: NoArgs| {
        let greet = Tool::new("greet", "Greets", async |_: NoArgs| "hello");
        learner.add(greet).map(|()| "learnt")
    });
    let forget = Tool::new("forget", "Forgets", async move |_: NoArgs| {
        if forgetter.remove("greet") { "forgotten" } else { "nothing to forget" }
    });
    let look = Tool::new("look", "Looks around", async |_: NoArgs| "learnt");
    for tool in [learn, forget, look] {
        set.add(tool).unwrap();
    }
    set
}

#[tokio::test]
async fn a_tool_that_a_handler_adds_is_called_in_the_same_run_and_one_that_it_removes_is_not() {
    for transport in BOTH {
        let world = World::answering(plan);
        let model = world.model();
        model.set_agent_toolsets(learning(), "tools", transport).unwrap();
        let answer = model.request("go").await.unwrap().text();
        assert!(answer.contains("there is no tool `greet`"), "{transport}: {answer}");
        let requests = world.scripted.requests();
        assert!(!requests[0].tools().contains(&"mcp__tools__greet"));
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn a_server_has_instructions_and_handlers_know_their_client() {
    for transport in BOTH {
        let world = World::new("call who {}\n---\ntext {result}");
        let who = Tool::new("who", "Says who calls", async |_: NoArgs, context: CallContext| {
            let client = context.caller().cloned().unwrap_or_default();
            format!("{} {}", client.name.unwrap_or_default(), client.session_id.is_some())
        });
        let info = ServerInfo::new("shop").version("7").instructions("Orders are numbered from 1000.");
        let model = world.builder().info(info).build().unwrap();
        model.set_agent_toolsets(Toolset::builder().with(who).build().unwrap(), "tools", transport).unwrap();
        let answer = model.request("go").await.unwrap();
        let of_a_bridge = transport == toolbridge::model::Transport::Stdio;
        assert_eq!(answer.text(), format!("claude-code {of_a_bridge}"), "{transport}");
        let sent = world.scripted.requests()[0].body.to_string();
        assert!(sent.contains("Orders are numbered from 1000."), "{transport}: {sent}");
        world.nothing_is_left();
    }
}
