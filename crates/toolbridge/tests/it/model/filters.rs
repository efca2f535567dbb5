//! Tool filters as the model sees them: the offered tools, and calls to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use toolbridge::model::{ClaudeCodeModelBuilder, Permission};
use toolbridge::source::{Combined, Selection};
use toolbridge::{CallContext, NoArgs, Request, Toolset};
use toolbridge_scripted::thorough;

use super::support::{World, transports};

/// How often the filtered tool ran.
type Wiped = Arc<AtomicUsize>;

/// Calls both tools, whether offered or not.
const BOTH: &str = "call mcp__tools__keep {}\ncall mcp__tools__wipe {}\n---\ntext done";

fn keep() -> Toolset {
    Toolset::builder().tool("keep", "Keeps", async |_: NoArgs| "kept").build().unwrap()
}

fn wipe(wiped: &Wiped) -> Toolset {
    let wipe = async |_: NoArgs, context: CallContext| {
        context.state::<Wiped>().fetch_add(1, Ordering::SeqCst);
        "wiped"
    };
    Toolset::builder().state(Arc::clone(wiped)).tool("wipe", "Wipes", wipe).build().unwrap()
}

fn both(wiped: &Wiped) -> Combined {
    Combined::new().with(keep()).unwrap().with(wipe(wiped)).unwrap()
}

/// Runs a request that calls both tools; returns the offered tools and the two results, `Err` for errors.
async fn asked(
    world: &World,
    builder: ClaudeCodeModelBuilder,
    request: Request,
) -> (Vec<String>, Vec<Result<String, String>>) {
    assert_eq!(builder.build().unwrap().request(request).await.unwrap().text(), "done");
    let requests = world.scripted.requests();
    let offered = requests[0].tools().into_iter().map(str::to_owned).collect();
    let results = requests[1].tool_results();
    let results = results.iter().map(|one| if one.is_error { Err(one.text()) } else { Ok(one.text()) });
    world.nothing_is_left();
    (offered, results.collect())
}

#[tokio::test]
async fn filtered_tools_are_not_offered_and_do_not_run() {
    type Way = fn(ClaudeCodeModelBuilder, Request, &Wiped) -> (ClaudeCodeModelBuilder, Request);
    let ways: [(&str, Way); 5] = [
        ("Request::only", |model, request, wiped| (model, request.tools(both(wiped)).only(["keep"]))),
        ("Selection", |model, request, wiped| {
            (model, request.tools(Selection::new(both(wiped), ["keep"]).unwrap()))
        }),
        ("Toolset::filter", |model, request, wiped| {
            let all = Toolset::builder()
                .state(Arc::clone(wiped))
                .tool("keep", "Keeps", async |_: NoArgs| "kept")
                .tool("wipe", "Wipes", async |_: NoArgs, context: CallContext| {
                    context.state::<Wiped>().fetch_add(1, Ordering::SeqCst);
                })
                .build()
                .unwrap();
            (model, request.tools(all.filter(["keep"]).unwrap()))
        }),
        ("disallowed_tools", |model, request, wiped| {
            (model.disallowed_tools(["mcp__tools__wipe"]), request.tools(both(wiped)))
        }),
        ("disallowed_tools, all of the server's", |model, request, wiped| {
            (model.disallowed_tools(["mcp__tools"]), request.tools(both(wiped)))
        }),
    ];
    for transport in transports() {
        // Offering only some of the tools is the same to the CLI, so one way of it is enough by default.
        let is_same = |way: &str| ["Selection", "Toolset::filter"].contains(&way);
        for (way, set) in ways.into_iter().filter(|(way, _)| thorough() || !is_same(way)) {
            let (world, wiped) = (World::new(BOTH), Wiped::default());
            let request = Request::new("go").transport(transport);
            let (builder, request) = set(world.builder(), request, &wiped);
            let (offered, results) = asked(&world, builder, request).await;
            let refused = |name: &str| format!("Error: No such tool available: mcp__tools__{name}");
            let is_refused = |result: &Result<String, String>, name| {
                result.as_ref().is_err_and(|text| text.contains(&refused(name)))
            };
            let [kept, wipe] = &results[..] else { panic!("{results:?}") };
            if way.ends_with("all of the server's") {
                assert_eq!(offered, [""; 0], "{way} over {transport}");
                assert!(is_refused(kept, "keep"), "{way} over {transport}: {kept:?}");
            } else {
                assert_eq!(offered, ["mcp__tools__keep"], "{way} over {transport}");
                assert_eq!(kept, &Ok("kept".to_owned()), "{way} over {transport}");
            }
            assert!(is_refused(wipe, "wipe"), "{way} over {transport}: {wipe:?}");
            assert_eq!(wiped.load(Ordering::SeqCst), 0, "{way} over {transport}");
        }
    }
}

#[tokio::test]
async fn a_tool_that_is_offered_and_not_allowed_does_not_run() {
    for transport in transports() {
        let ask = async |change: fn(ClaudeCodeModelBuilder) -> ClaudeCodeModelBuilder| {
            let (world, wiped) = (World::new(BOTH), Wiped::default());
            let request = Request::new("go").transport(transport).tools(both(&wiped));
            let (offered, results) = asked(&world, change(world.builder()), request).await;
            assert_eq!(offered, ["mcp__tools__keep", "mcp__tools__wipe"], "over {transport}");
            (results, wiped.load(Ordering::SeqCst))
        };
        // Rules allow one of them, and no function decides about the other.
        let (results, wiped) =
            ask(|model| model.allow_own_tools(false).allowed_tools(["mcp__tools__keep"])).await;
        assert_eq!(results[0], Ok("kept".into()), "over {transport}");
        assert!(results[1].as_ref().is_err_and(|text| text.contains("haven't granted it")), "{results:?}");
        assert_eq!(wiped, 0, "over {transport}");
        // A function decides about both.
        let (results, wiped) = ask(|model| {
            model.can_use_tool(async |request| match request.tool_name.as_str() {
                "mcp__tools__keep" => Permission::Allow,
                _ => Permission::deny("not this one"),
            })
        })
        .await;
        assert_eq!(results, [Ok("kept".into()), Err("not this one".into())], "over {transport}");
        assert_eq!(wiped, 0, "over {transport}");
        // Without a filter both run, so the assertions above are meaningful.
        if thorough() {
            let (results, wiped) = ask(|model| model).await;
            assert_eq!(results, [Ok("kept".into()), Ok("wiped".into())], "over {transport}");
            assert_eq!(wiped, 1, "over {transport}");
        }
    }
}
