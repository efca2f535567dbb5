//! One model, many users: requests are isolated from each other, and their number is limited.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::Notify;
use toolbridge::model::{ClaudeCodeError, ExecutionKind, Permission, PermissionRequest, Settings};
use toolbridge::tool::Hint as _;
use toolbridge::{CallContext, NoArgs, Request, Toolset};
use toolbridge_scripted::{Block, Turn, thorough};

use super::support::{PATIENCE, Tools, World, notified, program, transports};

struct User(String);

/// Returns the user of the request and the owner of the tools.
fn whoami(owner: &str) -> Toolset {
    let who = async |_: NoArgs, context: CallContext| {
        let user = context.try_state::<User>().map_or("nobody", |user| &user.0);
        format!("{user} with tools of {}", context.state::<Arc<str>>())
    };
    Toolset::builder().state(Arc::<str>::from(owner)).tool("whoami", "Tells who asks", who).build().unwrap()
}

/// A model that calls the tool and repeats its result.
fn curious() -> World {
    World::answering(|request| match request.turn() {
        0 => Turn::blocks(vec![Block::call("mcp__tools__whoami", json!({}))]),
        _ => Turn::text(request.tool_results()[0].text()),
    })
}

#[tokio::test]
async fn tools_state_and_permissions_are_separate_per_request() {
    for transport in transports() {
        let world = curious();
        let model = world.builder().max_concurrent_requests(if thorough() { 4 } else { 2 }).build().unwrap();
        // The tools registered with the model are for requests without tools of their own.
        model.set_agent_toolsets(whoami("the model"), "tools", transport).unwrap();
        let ask = |number: usize| {
            let name = format!("user {number}");
            let (asked, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (count, heard) = (Arc::clone(&asked), Arc::clone(&seen));
            let request = Request::new(&name)
                .tools(whoami(&name))
                .transport(transport)
                .state(User(name.clone()))
                .can_use_tool(move |_: PermissionRequest| {
                    count.fetch_add(1, Ordering::SeqCst);
                    std::future::ready(if number == 1 {
                        Permission::deny("not you")
                    } else {
                        Permission::Allow
                    })
                })
                .on_message(move |_| _ = heard.fetch_add(1, Ordering::SeqCst));
            let answering = model.request(request);
            async move { (name, answering.await.unwrap().text(), asked, seen) }
        };
        // One of them is denied.
        let answers = join_all((0..if thorough() { 6 } else { 2 }).map(ask));
        let plain = model.request("nobody in particular");
        let (answers, plain) = tokio::join!(answers, plain);
        for (number, (name, answer, asked, seen)) in answers.into_iter().enumerate() {
            let want = if number == 1 { "not you".into() } else { format!("{name} with tools of {name}") };
            assert_eq!(answer, want, "over {transport}");
            assert_eq!(asked.load(Ordering::SeqCst), 1);
            assert!(seen.load(Ordering::SeqCst) > 0);
        }
        assert_eq!(plain.unwrap().text(), "nobody with tools of the model");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn a_requests_server_has_the_name_that_it_gives() {
    let world = World::new("call mcp__shop__add {\"a\": 1, \"b\": 1}\n---\ntext {result}");
    let request = Request::new("go").tools(Tools::new().toolset()).server_name("shop");
    assert_eq!(world.model().request(request).await.unwrap().text(), "2");
    let request = Request::new("go").tools(Tools::new().toolset()).server_name("my shop");
    let error = world.model().request(request).await.unwrap_err();
    assert!(error.to_string().contains("`my shop`"), "{error}");
    world.nothing_is_left();
}

#[tokio::test]
async fn excess_requests_wait_in_order() {
    let world = World::new("call look {}\n---\ntext done");
    let tools = Tools::new();
    let model = world.builder().max_concurrent_requests(2).build().unwrap();
    let ask = |number: usize| model.request(Request::new(format!("{number}")).tools(tools.toolset()));
    let count = if thorough() { 6 } else { 3 };
    for answer in join_all((0..count).map(ask)).await {
        assert_eq!(answer.unwrap().text(), "done");
    }
    assert!(tools.0.most_at_once.load(Ordering::SeqCst) <= 2);
    // Requests that run at the same time may be reordered, but none overtakes one that has waited longer.
    let prompts: Vec<usize> =
        world.scripted.requests().iter().map(|one| one.prompt().parse().unwrap()).collect();
    let first = |number: usize| prompts.iter().position(|prompt| *prompt == number).unwrap();
    for number in 0..count - 2 {
        assert!(first(number) < first(number + 2), "{prompts:?}");
    }
    world.nothing_is_left();
}

#[tokio::test]
async fn a_request_that_waits_can_be_dropped_and_interrupted() {
    let world = World::new("call hang {}\n---\ntext done");
    let tools = Tools::new();
    let model = world.builder().max_concurrent_requests(1).build().unwrap();
    let request = || Request::new("go").tools(tools.toolset());
    let running = model.request_stream(request()).await.unwrap();
    notified("the tool starts", &tools.0.hanging).await;

    let waiting = tokio::time::timeout(Duration::from_millis(300), model.request("dropped")).await;
    assert!(waiting.is_err(), "it waits: {waiting:?}");
    let begun = Notify::new();
    let (outcome, ()) = tokio::join!(
        async {
            begun.notify_one();
            model.request("interrupted").await
        },
        async {
            begun.notified().await;
            // The running request and the waiting one.
            while model.interrupt() < 2 {
                tokio::task::yield_now().await;
            }
        }
    );
    assert!(matches!(outcome, Err(ClaudeCodeError::CliInterrupted { result: None })), "{outcome:?}");
    assert!(matches!(running.finish().await, Err(ClaudeCodeError::CliInterrupted { .. })));
    // The permit is free again.
    let next = tokio::time::timeout(PATIENCE, model.request(Request::new("go").only([""; 0])));
    assert!(next.await.unwrap().is_ok());
    let prompts: Vec<_> =
        world.scripted.requests().iter().map(toolbridge_scripted::ModelRequest::prompt).collect();
    assert!(!prompts.iter().any(|prompt| prompt == "dropped" || prompt == "interrupted"), "{prompts:?}");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_request_in_a_tool_call_does_not_wait_for_the_request_that_makes_the_call() {
    let world = World::answering(|request| match (&*request.prompt(), request.tool_results().first()) {
        ("outer", None) => Turn::blocks(vec![Block::call("ask", json!({}))]),
        ("outer", Some(result)) => Turn::text(format!("the tool says {}", result.text())),
        (prompt, _) => Turn::text(format!("you said {prompt}")),
    });
    let model = world.builder().max_concurrent_requests(1).build().unwrap();
    let inner = model.clone();
    let ask = async move |_: NoArgs| inner.request("inner").await.map(|answer| answer.text());
    let tools = Toolset::builder().tool("ask", "Asks", ask).build().unwrap();
    let asking = model.request(Request::new("outer").tools(tools));
    let answer = tokio::time::timeout(PATIENCE, asking).await.expect("it does not wait for itself").unwrap();
    assert_eq!(answer.text(), "the tool says you said inner");
    world.nothing_is_left();
}

/// Accepts a prompt and never answers; so many real CLIs would need much memory.
fn silent(world: &World) -> PathBuf {
    let ready = r#"{"type":"control_response","response":{"subtype":"success","request_id":"toolbridge_1","response":{}}}"#;
    program(world, "claude", &format!("read -r line; echo '{ready}'; cat > /dev/null"))
}

#[tokio::test]
async fn a_request_that_a_running_function_may_wait_for_does_not_wait_for_ever() {
    let world = World::answering(|request| match (&*request.prompt(), request.tool_results().first()) {
        ("outer", None) => Turn::blocks(vec![Block::call("ask", json!({}))]),
        ("outer", Some(result)) => Turn::text(format!("the tool says {}", result.text())),
        (prompt, _) => Turn::text(format!("you said {prompt}")),
    });
    let model = world.builder().max_concurrent_requests(1).build().unwrap();
    let inner = model.clone();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&errors);
    let short = || Settings::default().timeout(Duration::from_secs(1));
    let ask = async move |_: NoArgs| {
        let inner = inner.clone();
        // Nothing tells that this task belongs to the call.
        let asking =
            tokio::spawn(async move { inner.request(Request::new("inner").settings(short())).await });
        let error = asking.await.unwrap().unwrap_err();
        list.lock().unwrap().push(error);
        "nothing"
    };
    let tools = Toolset::builder().tool("ask", "Asks", ask).build().unwrap();
    let asking = model.request(Request::new("outer").tools(tools));
    let answer = tokio::time::timeout(PATIENCE, asking).await.expect("it does not wait for itself").unwrap();
    assert_eq!(answer.text(), "the tool says nothing");
    let error = errors.lock().unwrap().remove(0);
    assert!(
        matches!(&error, ClaudeCodeError::CliExecution { kind: ExecutionKind::Blocked, .. }),
        "{error:?}"
    );
    assert_eq!(
        error.to_string(),
        "the request has not begun within 1 s: all requests that may run at a time (1) wait for functions of this \
         process, and one of these may wait for this request"
    );
    assert!(error.hint().unwrap().contains("`max_concurrent_requests`"), "{error:?}");

    // A request that waits for its model will end, so others wait for it as long as it takes.
    let model = world.builder().cli(silent(&world)).max_concurrent_requests(1).build().unwrap();
    let running = model.request_stream("go").await.unwrap();
    let waiting = model.request(Request::new("inner").settings(short()));
    let waiting = tokio::time::timeout(Duration::from_secs(3), waiting).await;
    assert!(waiting.is_err(), "it waits: {waiting:?}");
    drop(running);
    world.nothing_is_left_soon();
}

#[tokio::test]
async fn twice_as_many_requests_as_cores_run_at_a_time_by_default() {
    let most = 2 * std::thread::available_parallelism().unwrap().get();
    let world = World::new("text ok");
    let model = world.builder().cli(silent(&world)).build().unwrap();
    let mut running = Vec::new();
    for _ in 0..most {
        running.push(model.request_stream("go").await.unwrap());
    }
    // A conversation stays open, so it does not count.
    let conversation = tokio::time::timeout(PATIENCE, model.conversation().open()).await.unwrap().unwrap();
    let waiting = tokio::time::timeout(Duration::from_secs(1), model.request_stream("one more")).await;
    assert!(waiting.is_err(), "it waits: {waiting:?}");
    running.pop().unwrap().cancel().await;
    running.push(tokio::time::timeout(PATIENCE, model.request_stream("one more")).await.unwrap().unwrap());
    drop((conversation, running));
    world.nothing_is_left_soon();
}

#[test]
fn a_limit_of_zero_requests_is_an_error() {
    let error = toolbridge::ClaudeCodeModel::builder().max_concurrent_requests(0).build().unwrap_err();
    assert_eq!(error.to_string(), "`max_concurrent_requests` is 0; it must be at least 1");
}
