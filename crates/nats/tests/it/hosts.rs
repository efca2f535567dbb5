//! Several hosts of one name.

use std::collections::BTreeSet;

use serde_json::Value;
use toolbridge_core::tool::Hint as _;
use toolbridge_core::{NoArgs, ToolSource as _, Toolset};
use toolbridge_nats::{self as nats, NatsError, Tools};

use crate::support::{HostProcess, Server, call, connect, connect_to, names, text, until, within, work};

fn three(server: &Server) -> Vec<HostProcess> {
    ["a", "b", "c.lan"].iter().map(|host| HostProcess::start(&server.url(), "shop", host, &[])).collect()
}

#[tokio::test]
async fn any_host_answers_or_one_or_all() {
    let server = Server::start();
    let _hosts = three(&server);
    let any = connect_to(&server, "shop", 3).await;
    let mut who = BTreeSet::new();
    while who.len() < 3 {
        who.insert(text(&call(&any, "who", "{}").await.unwrap()));
    }
    assert_eq!(who, ["a", "b", "c.lan"].map(String::from).into());

    let one = connect(&server, "shop@c.lan").await;
    for _ in 0..20 {
        assert_eq!(text(&call(&one, "who", "{}").await.unwrap()), "c.lan");
    }

    let all = connect_to(&server, "shop@*", 3).await;
    let result = call(&all, "who", "{}").await.unwrap();
    let joined: Value = result.decode().unwrap();
    let results = joined["structuredContent"]["results"].as_array().unwrap();
    let hosts: Vec<_> = results
        .iter()
        .map(|one| (one["host"].as_str().unwrap(), &one["result"]["content"][0]["text"]))
        .collect();
    assert_eq!(hosts, [("a", &"a".into()), ("b", &"b".into()), ("c.lan", &"c.lan".into())]);
    let failed: Value = call(&all, "fail", "{}").await.unwrap().decode().unwrap();
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["structuredContent"]["results"][2]["error"]["type"], "QuotaError");
}

#[tokio::test]
async fn without_a_host_there_is_an_error_at_once() {
    let server = Server::start();
    let error = within(Tools::connect(server.url(), "shop").into_future()).await.unwrap_err();
    assert!(matches!(&error, NatsError::NoHost { name } if name == "shop"), "{error:?}");
    assert!(error.hint().unwrap().contains("toolbridge serve"));
    let empty = within(Tools::connect(server.url(), "shop").may_be_empty().into_future()).await.unwrap();
    assert_eq!(empty.tools().len(), 0);
    let error = call(&empty, "who", "{}").await.unwrap_err();
    assert_eq!(
        (error.type_name(), &*error.to_string()),
        ("NoHostError", "no host offers `shop` at the moment; the call did not run")
    );

    let mut host = HostProcess::start(&server.url(), "shop", "a", &[]);
    until(|| !empty.tools().is_empty()).await;
    let error = within(Tools::connect(server.url(), "shop@b").into_future()).await.unwrap_err();
    assert!(matches!(&error, NatsError::NoHost { name } if name == "shop@b"), "{error:?}");
    let one = connect(&server, "shop@a").await;
    host.kill();
    for tools in [&empty, &one] {
        let mut error = call(tools, "who", "{}").await.unwrap_err();
        while error.type_name() != "NoHostError" {
            // The server did not know yet that the host had died.
            assert_eq!(error.type_name(), "InDoubtError", "{error}");
            error = call(tools, "who", "{}").await.unwrap_err();
        }
    }
    assert!(!empty.tools().is_empty(), "the list stays, so that calls can say why they fail");
}

#[tokio::test]
async fn the_list_follows_hosts_and_their_tools() {
    let server = Server::start();
    let first = HostProcess::start(&server.url(), "shop", "a", &[]);
    let tools = connect_to(&server, "shop", 1).await;
    let mut changes = tools.changes();
    assert!(!names(&tools).contains(&"late".into()));
    first.change();
    within(changes.next()).await;
    until(|| names(&tools).contains(&"late".into()) && !names(&tools).contains(&"echo".into())).await;
    assert_eq!(text(&call(&tools, "late", "{}").await.unwrap()), "late");

    let mut second = HostProcess::start(&server.url(), "shop", "b", &[]);
    until(|| names(&tools).contains(&"echo".into())).await;
    assert_eq!(
        text(&call(&tools, "echo", r#"{"text":"hi"}"#).await.unwrap()),
        "hi",
        "only the second has it"
    );
    second.drain();
    second.ended();
    until(|| tools.hosts().len() == 1 && !names(&tools).contains(&"echo".into())).await;
    assert_eq!(text(&call(&tools, "late", "{}").await.unwrap()), "late");

    // A host that dies without notice is removed after a while.
    let mut third = HostProcess::start(&server.url(), "shop", "c", &[]);
    until(|| tools.hosts().len() == 2).await;
    third.kill();
    until(|| tools.hosts().len() == 1).await;
}

#[tokio::test]
async fn of_hosts_that_disagree_the_newest_version_is_listed_and_called() {
    let server = Server::start();
    let _old = HostProcess::start(&server.url(), "shop", "old", &["--version", "1.9.0"]);
    let _new = HostProcess::start(&server.url(), "shop", "new", &["--version", "1.10.0"]);
    let tools = connect_to(&server, "shop", 2).await;
    assert_eq!(tools.tools().get("who").unwrap().description, "Says which host this is, 1.10.0");
    for _ in 0..20 {
        assert_eq!(text(&call(&tools, "who", "{}").await.unwrap()), "new");
    }
    // Tools that they agree on are called on both.
    let mut who = BTreeSet::new();
    while who.len() < 2 {
        who.insert(work(&tools, "nap", 1, 0).await.unwrap());
    }
    let versions: BTreeSet<_> = tools.hosts().into_iter().map(|host| host.version).collect();
    assert_eq!(versions, ["1.10.0", "1.9.0"].map(String::from).into());
}

#[tokio::test]
async fn names_of_hosts_need_not_be_plain() {
    let server = Server::start();
    let own = Toolset::builder().tool("hello", "", async |_: NoArgs| "hello").build().unwrap();
    for name in ["a b.c *>", "größe", "$SYS.%"] {
        let host =
            nats::Host::builder(own.clone(), "shop").at(server.url()).host(name).start().await.unwrap();
        let tools = within(Tools::connect(server.url(), format!("shop@{name}")).into_future()).await.unwrap();
        assert_eq!(text(&call(&tools, "hello", "{}").await.unwrap()), "hello");
        assert_eq!(tools.hosts()[0].name, name);
        host.drain().await;
    }
    let error = nats::Host::builder(own, "a.b").at(server.url()).start().await.unwrap_err();
    assert!(matches!(error, NatsError::Name { .. }), "{error:?}");
}

#[tokio::test]
async fn a_host_that_was_dropped_is_gone_at_once() {
    let server = Server::start();
    let own = Toolset::builder().tool("hello", "", async |_: NoArgs| "hello").build().unwrap();
    let host = nats::Host::builder(own, "shop").at(server.url()).start().await.unwrap();
    let tools = connect(&server, "shop").await;
    assert_eq!(text(&call(&tools, "hello", "{}").await.unwrap()), "hello");
    drop(host);
    within(async { while call(&tools, "hello", "{}").await.is_ok() {} }).await;
}

#[tokio::test]
async fn a_host_with_more_tools_than_fit_says_so() {
    let server = Server::with("max_payload: 65536\n");
    let many = (0..1000).fold(Toolset::builder(), |tools, number| {
        tools.tool(format!("tool_{number}"), "", async |_: NoArgs| "")
    });
    let error =
        nats::Host::builder(many.build().unwrap(), "shop").at(server.url()).start().await.unwrap_err();
    assert!(matches!(error, NatsError::TooManyTools { tools: 1000, limit: 65536, .. }), "{error:?}");
}

#[tokio::test]
async fn many_tools_are_listed() {
    let server = Server::start();
    let many = (0..400).fold(Toolset::builder(), |tools, number| {
        tools.tool(format!("tool_{number}"), "x".repeat(2000), async move |_: NoArgs| number.to_string())
    });
    let host = nats::Host::builder(many.build().unwrap(), "shop").at(server.url()).start().await.unwrap();
    let tools = connect(&server, "shop").await;
    assert_eq!(tools.tools().len(), 400);
    assert_eq!(text(&call(&tools, "tool_399", "{}").await.unwrap()), "399");
    host.drain().await;
}

#[tokio::test]
async fn calls_that_take_turns_do_so_at_each_host_and_hosts_share_them() {
    let server = Server::start();
    let log = crate::support::Log::new(&server);
    let _hosts =
        ["a", "b"].map(|host| HostProcess::start(&server.url(), "shop", host, &["--log", log.path()]));
    let tools = connect_to(&server, "shop", 2).await;
    let calls = (0..20).map(|id| work(&tools, "turn", id, 20));
    let by: BTreeSet<_> = futures_util::future::join_all(calls)
        .await
        .into_iter()
        .map(|done| done.unwrap().split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(by.len(), 2);
    for host in ["a", "b"] {
        let lines: Vec<_> = log.lines().into_iter().filter(|line| line.ends_with(host)).collect();
        for pair in lines.chunks(2) {
            assert!(pair[0].starts_with("begin") && pair[1].starts_with("end"), "{lines:?}");
        }
    }
    assert!(log.begun().values().all(|times| *times == 1));
}
