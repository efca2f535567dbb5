//! One server for many CLIs: `toolbridge serve --name`, used by several real CLIs.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use toolbridge::{NoArgs, Tool, Toolset};
use toolbridge_scripted::{ScriptedModel, Turn, thorough};

use crate::attach::{call, last_result, model, session};
use crate::serve::{kill, noon, time};
use crate::support::{PATIENCE, eventually, text};
use crate::world::World;

/// Matches the processes of the server itself, and no others with its name on their command line.
const SERVER: &str = "/python ";

/// Checks the converted time.
#[track_caller]
fn check(converted: &str) {
    let converted: Value =
        serde_json::from_str(converted).unwrap_or_else(|error| panic!("{error}: {converted}"));
    assert_eq!(converted["time_difference"], "-9.0h", "{converted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_clis_use_one_server_and_none_notices_that_it_is_killed() {
    let clis = if thorough() { 10 } else { 3 };
    let world = Arc::new(World::new());
    let (mut served, _) = world.start(&["--name", "time", "--", &time()]);
    // The last CLI to arrive kills the server; then all continue.
    let (meeting, killed) = (
        Arc::new([Barrier::new(clis), Barrier::new(clis)]),
        Arc::new(Mutex::new(None::<(Instant, Vec<String>)>)),
    );
    let (in_world, when) = (Arc::clone(&world), Arc::clone(&killed));
    let meeting_point = Tool::new("meet", "Waits for the others", move |_: NoArgs| {
        let (meeting, in_world, when) = (Arc::clone(&meeting), Arc::clone(&in_world), Arc::clone(&when));
        async move {
            if meeting[0].wait().await.is_leader() {
                let servers = in_world.servers(SERVER);
                for server in &servers {
                    kill(server);
                }
                *when.lock().unwrap() = Some((Instant::now(), servers));
            }
            meeting[1].wait().await;
            "met"
        }
    });
    let session = session(&world, Toolset::builder().with(meeting_point.parallel()).build().unwrap()).await;

    let answered = Arc::new(Mutex::new(Vec::<Duration>::new()));
    let ask = |_| {
        let (killed, answered) = (Arc::clone(&killed), Arc::clone(&answered));
        let scripted = ScriptedModel::start_with(move |request| match request.turn() {
            0 | 2 => call("time__convert_time", noon()),
            1 => call("driver__meet", json!({})),
            _ => {
                let since = killed.lock().unwrap().as_ref().map(|(when, _)| when.elapsed());
                answered.lock().unwrap().extend(since);
                Turn::text("done")
            }
        });
        let model = model(&world, &scripted);
        async move { (model.request("go").await.unwrap().text(), scripted) }
    };
    for (text, scripted) in join_all((0..clis).map(ask)).await {
        assert_eq!(text, "done");
        let requests = scripted.requests();
        let results: Vec<_> = requests.iter().filter(|request| request.turn() > 0).map(last_result).collect();
        let [before, met, later] = &results[..] else { panic!("{results:?}") };
        assert_eq!(met, "met");
        check(before);
        check(later);
        // No CLI saw an error.
        for result in requests.iter().flat_map(toolbridge_scripted::ModelRequest::tool_results) {
            assert!(!result.is_error, "{result:?}");
        }
    }
    session.stop().await;
    let servers = killed.lock().unwrap().take().unwrap().1;
    assert_eq!(servers.len(), 1, "{servers:?}");
    let mut answered = answered.lock().unwrap().clone();
    answered.sort();
    eprintln!(
        "{clis} CLIs had the answer to their next call {:?} to {:?} after the server was killed",
        answered[0],
        answered[clis - 1]
    );
    assert_eq!(world.servers(SERVER).len(), 1);

    // The same without a CLI: the time of a call right after the kill.
    let mut client = world.attach(&["time"]);
    eventually("the session shows", PATIENCE, || !client.call("convert_time", noon())["result"].is_null());
    kill(&world.servers(SERVER)[0]);
    let since = Instant::now();
    let answer = client.call("convert_time", noon());
    let took = since.elapsed();
    check(&text(&answer));
    eprintln!("a call right after the server was killed took {took:?}");
    assert!(took < PATIENCE, "{took:?}");
    drop(client);
    served.signal(Signal::TERM);
    assert!(served.wait_within(PATIENCE).success());
    world.nothing_is_left();
}
