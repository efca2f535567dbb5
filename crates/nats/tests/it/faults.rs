//! Hosts and servers that die, freeze, are full, or leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use toolbridge_core::trace::Outcome;
use toolbridge_core::{NoArgs, Tool, ToolError, Toolset};
use toolbridge_nats::{self as nats, Tools};

use crate::support::{HostProcess, Log, Server, call, connect_to, free_ports, text, until, within, work};

/// Makes many calls of `tool` with a limited number in parallel; returns the outcome of each.
async fn load(
    tools: &Arc<Tools>,
    tool: &'static str,
    (calls, at_a_time): (usize, usize),
    ms: u64,
    done: &Arc<AtomicUsize>,
) -> Vec<(usize, Result<String, ToolError>)> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..at_a_time {
        let (tools, next, done) = (Arc::clone(tools), Arc::clone(&next), Arc::clone(done));
        workers.spawn(async move {
            let mut went = Vec::new();
            loop {
                let id = next.fetch_add(1, Ordering::Relaxed);
                if id >= calls {
                    return went;
                }
                went.push((id, work(&*tools, tool, id, ms).await));
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut all = within(workers.join_all()).await.concat();
    all.sort_by_key(|(id, _)| *id);
    assert_eq!(all.len(), calls);
    all
}

/// Checks that every answer belongs to its call.
fn check_answers(went: &[(usize, Result<String, ToolError>)]) {
    for (id, answer) in went {
        if let Ok(text) = answer {
            assert_eq!(text.split(' ').next().unwrap(), id.to_string(), "an answer to another call");
        }
    }
}

fn is_in_doubt(error: &ToolError) -> bool {
    error.type_name() == "InDoubtError"
        && error.to_string().contains("may have run")
        && error.outcome() == Outcome::TransportError
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_under_load_costs_only_the_calls_that_it_had() {
    let server = Server::start();
    let log = Log::new(&server);
    let start = |host| HostProcess::start(&server.url(), "shop", host, &["--log", log.path()]);
    let (_a, mut b, _c) = (start("a"), start("b"), start("c"));
    let tools = Arc::new(connect_to(&server, "shop", 3).await);
    let done = Arc::new(AtomicUsize::new(0));
    let reads = load(&tools, "nap", (300, 30), 20, &done);
    let writes = load(&tools, "write", (300, 30), 20, &done);
    let killing = async {
        until(|| done.load(Ordering::Relaxed) > 150).await;
        b.kill();
    };
    let (reads, writes, ()) = tokio::join!(reads, writes, killing);
    check_answers(&reads);
    check_answers(&writes);
    for (id, answer) in &reads {
        assert!(answer.is_ok(), "a read-only call fails: {id}: {answer:?}");
    }
    let lines = log.lines();
    for (id, answer) in &writes {
        let Err(error) = answer else { continue };
        assert!(is_in_doubt(error), "{error}");
        let elsewhere = [format!("begin write {id} a"), format!("begin write {id} c")];
        assert!(!lines.iter().any(|line| elsewhere.contains(line)), "{id} ran elsewhere: {error}");
    }
    let began =
        |id: &usize| lines.iter().filter(|line| line.starts_with(&format!("begin write {id} "))).count();
    assert!(writes.iter().all(|(id, _)| began(id) <= 1), "a call that changes something ran twice");
    let failed = writes.iter().filter(|(_, answer)| answer.is_err()).count();
    assert!(failed <= 30, "{failed} failed, and at most 30 were under way");
    assert!(writes.iter().filter(|(_, answer)| answer.is_ok()).all(|(id, _)| began(id) == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_drained_under_load_costs_no_call() {
    let server = Server::start();
    let log = Log::new(&server);
    let start = |host| HostProcess::start(&server.url(), "shop", host, &["--log", log.path()]);
    let (_a, mut b) = (start("a"), start("b"));
    let tools = Arc::new(connect_to(&server, "shop", 2).await);
    let done = Arc::new(AtomicUsize::new(0));
    let writes = load(&tools, "write", (1000, 30), 5, &done);
    let draining = async {
        until(|| done.load(Ordering::Relaxed) > 200).await;
        b.drain();
        tokio::task::spawn_blocking(move || b.ended()).await.unwrap();
    };
    let (writes, ()) = tokio::join!(writes, draining);
    check_answers(&writes);
    for (id, answer) in &writes {
        assert!(answer.is_ok(), "{id}: {answer:?}");
    }
    assert!(log.begun().values().all(|times| *times == 1), "each ran once");
    assert!(writes.iter().any(|(_, answer)| answer.as_ref().is_ok_and(|text| text.ends_with(" b"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_freezes_is_noticed() {
    let server = Server::start();
    let log = Log::new(&server);
    let mut host = HostProcess::start(&server.url(), "shop", "a", &["--log", log.path()]);
    let tools = connect_to(&server, "shop", 1).await;
    let freezing = async {
        until(|| !log.lines().is_empty()).await;
        // Enough time for the host to confirm the call.
        tokio::time::sleep(Duration::from_secs(1)).await;
        host.freeze();
    };
    let (answer, ()) = tokio::join!(work(&tools, "write", 1, 100_000), freezing);
    let error = answer.unwrap_err();
    assert!(is_in_doubt(&error) && error.to_string().contains("at host `a` was not answered"), "{error}");
    host.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_host_that_ends_are_repeated_elsewhere_if_they_only_read() {
    let server = Server::start();
    let never = || async |_: NoArgs| std::future::pending::<String>().await;
    let slow = Toolset::builder()
        .with(Tool::new("read", "", never()).read_only())
        .with(Tool::new("write", "", never()).parallel())
        .build()
        .unwrap();
    let at = |tools: Toolset, host: &str| nats::Host::builder(tools, "shop").at(server.url()).host(host);
    let slow = at(slow, "slow").drain_timeout(Duration::ZERO).start().await.unwrap();
    let tools = connect_to(&server, "shop", 1).await;
    let (read, write) = (call(&tools, "read", "{}"), call(&tools, "write", "{}"));
    let ending = async {
        // The other host comes later, so the calls are at the first one.
        let fast = Toolset::builder()
            .with(Tool::new("read", "", async |_: NoArgs| "fast").read_only())
            .with(Tool::new("write", "", async |_: NoArgs| "fast").parallel());
        let fast = at(fast.build().unwrap(), "fast").start().await.unwrap();
        until(|| tools.hosts().iter().filter(|host| host.tools > 0).count() == 2).await;
        slow.drain().await;
        fast
    };
    let (read, write, _fast) = tokio::join!(read, write, ending);
    assert_eq!(text(&read.unwrap()), "fast");
    let error = write.unwrap_err();
    assert!(is_in_doubt(&error) && error.to_string().contains("at host `slow`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_calls_outlive_a_restart_of_the_server() {
    let mut server = Server::start();
    let log = Log::new(&server);
    let _hosts =
        ["a", "b"].map(|host| HostProcess::start(&server.url(), "shop", host, &["--log", log.path()]));
    let tools = Arc::new(connect_to(&server, "shop", 2).await);
    let done = Arc::new(AtomicUsize::new(0));
    let writes = load(&tools, "write", (10_000, 100), 1, &done);
    let restarting = async {
        until(|| done.load(Ordering::Relaxed) > 3000).await;
        tokio::task::spawn_blocking(move || {
            server.restart();
            server
        })
        .await
        .unwrap()
    };
    let (writes, _server) = tokio::join!(writes, restarting);
    check_answers(&writes);
    let begun = log.begun();
    let mut in_doubt = 0;
    for (id, answer) in &writes {
        let times = begun.get(&id.to_string()).copied().unwrap_or_default();
        match answer {
            Ok(_) => assert_eq!(times, 1, "{id} was answered, and ran {times} times"),
            Err(error) => {
                assert!(is_in_doubt(error) && times <= 1, "{id} ran {times} times: {error}");
                in_doubt += 1;
            }
        }
    }
    eprintln!("{in_doubt} of 10000 calls are in doubt");
    assert!(in_doubt <= 100, "no more than were under way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_full_leaves_calls_to_others() {
    let server = Server::start();
    let log = Log::new(&server);
    let slow = ["--max", "1", "--wait", "600000", "--log", log.path()];
    let _slow = HostProcess::start(&server.url(), "shop", "slow", &slow);
    let _fast = HostProcess::start(&server.url(), "shop", "fast", &["--max", "4"]);
    let tools = Arc::new(connect_to(&server, "shop", 2).await);
    let one = Tools::connect(server.url(), "shop@slow").await.unwrap();
    let under_way = tokio::spawn(async move { work(&one, "nap", 0, 0).await });
    until(|| !log.lines().is_empty()).await;
    let done = Arc::new(AtomicUsize::new(0));
    for (id, answer) in load(&tools, "write", (200, 20), 1, &done).await {
        assert_eq!(answer.unwrap(), format!("{id} fast"));
    }
    assert!(!under_way.is_finished());
    under_way.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_for_room_and_no_host_has_more_than_it_may() {
    let server = Server::start();
    let log = Log::new(&server);
    let hosts = ["a", "b"];
    let _hosts = hosts
        .map(|host| HostProcess::start(&server.url(), "shop", host, &["--log", log.path(), "--max", "3"]));
    let tools = Arc::new(connect_to(&server, "shop", 2).await);
    let done = Arc::new(AtomicUsize::new(0));
    let went = load(&tools, "nap", (200, 40), 10, &done).await;
    check_answers(&went);
    assert!(went.iter().all(|(_, answer)| answer.is_ok()));
    for host in hosts {
        let mut running = 0_i32;
        for line in log.lines().iter().filter(|line| line.ends_with(&format!(" {host}"))) {
            running += if line.starts_with("begin") { 1 } else { -1 };
            assert!(running <= 3, "{running} at a time");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_hosts_and_callers_may_be_at_different_servers_and_outlive_one() {
    let taken = free_ports::<6>();
    let (ports, routes) = (&taken[..3], &taken[3..]);
    let all_routes: Vec<_> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
    let all_routes = all_routes.join(", ");
    let mut servers: Vec<_> = ports
        .iter()
        .zip(routes)
        .map(|(port, route)| {
            let cluster =
                format!("cluster {{ name: c, listen: 127.0.0.1:{route}, routes: [{all_routes}] }}\n");
            Server::at(*port, &cluster)
        })
        .collect();
    let log = Log::new(&servers[0]);
    let all = |first: usize| {
        let order = [first, (first + 1) % 3, (first + 2) % 3];
        order.map(|server| format!("nats://127.0.0.1:{}", ports[server])).join(",")
    };
    let start = |host, at| HostProcess::start(&all(at), "shop", host, &["--log", log.path()]);
    let _hosts = [start("a", 0), start("b", 1)];
    let tools = within(Tools::connect(all(2), "shop").may_be_empty().into_future()).await.unwrap();
    let tools = Arc::new(tools);
    until(|| tools.hosts().iter().filter(|host| host.tools > 0).count() == 2).await;
    let done = Arc::new(AtomicUsize::new(0));
    let reads = load(&tools, "nap", (1000, 20), 5, &done);
    let writes = load(&tools, "write", (1000, 20), 5, &done);
    let killing = async {
        until(|| done.load(Ordering::Relaxed) > 400).await;
        servers[0].kill();
    };
    let (reads, writes, ()) = tokio::join!(reads, writes, killing);
    check_answers(&reads);
    check_answers(&writes);
    for (id, answer) in &reads {
        assert!(answer.is_ok(), "a read-only call fails: {id}: {answer:?}");
    }
    let begun = log.begun();
    for (id, answer) in &writes {
        if let Err(error) = answer {
            assert!(is_in_doubt(error), "{error}");
        }
        // Calls of both kinds have the same ids.
        assert!(begun[&id.to_string()] <= 4);
    }
    let lines = log.lines();
    for (id, answer) in &writes {
        let times = lines.iter().filter(|line| line.starts_with(&format!("begin write {id} "))).count();
        assert!(times <= 1 && (answer.is_err() || times == 1), "{id} ran {times} times: {answer:?}");
    }
    assert_eq!(text(&call(&*tools, "echo", r#"{"text":"still here"}"#).await.unwrap()), "still here");
}
