//! Goals and limits, and whether they are met.

use anyhow::{Result, ensure};

use crate::contender::{Class, Contender};
use crate::options::Part;
use crate::python_cost::PythonRow;
use crate::row::{Beside, Row};
use crate::search::SearchRow;

/// A goal for a row's median.
struct Goal(&'static str, Contender, Limit);

#[derive(Clone, Copy)]
enum Limit {
    /// A multiple of the floor's median.
    Ratio(f64),
    /// A multiple of another contender's median.
    Beside(Contender, f64),
    Megabytes(f64),
    /// A limit of the specification that holds on any machine: the criterion, and milliseconds. The limits
    /// are a hundred times what is measured on an idle machine, so the median exceeds them only through a
    /// fault of the product, and not because of other load.
    Promise(&'static str, f64),
}

/// The limit for a call's overhead, without the tool's own time.
const OVERHEAD: Limit = Limit::Promise("SC-010", 10.0);

/// The limit from the start of a bridge to its list of tools.
const READINESS: Limit = Limit::Promise("SC-011", 500.0);

/// Five times as fast as a peer.
const FIFTH: f64 = 0.2;

const GOALS: [Goal; 36] = [
    Goal("text_100_b_any_cpu", Contender::BridgeAndParent, OVERHEAD),
    Goal("text_100_b_any_cpu", Contender::BridgeAndPython, OVERHEAD),
    Goal("text_10_kb_any_cpu", Contender::BridgeAndParent, OVERHEAD),
    Goal("text_10_kb_any_cpu", Contender::BridgeAndPython, OVERHEAD),
    Goal("start", Contender::Bridge, READINESS),
    Goal("start", Contender::WholeBridge, READINESS),
    Goal("start_1000_tools", Contender::Bridge, READINESS),
    Goal("start_1000_tools", Contender::WholeBridge, READINESS),
    Goal("start", Contender::Bridge, Limit::Ratio(3.0)),
    Goal("text_100_b", Contender::Bridge, Limit::Ratio(1.3)),
    Goal("text_100_b", Contender::BridgeAndParent, Limit::Ratio(1.8)),
    Goal("text_10_kb", Contender::Bridge, Limit::Ratio(1.7)),
    // Depends as much on the kernel's choice of CPUs as on us; but it is what a user sees.
    Goal("text_100_b_any_cpu", Contender::Bridge, Limit::Ratio(1.3)),
    Goal("text_100_b_any_cpu", Contender::BridgeAndParent, Limit::Ratio(1.8)),
    Goal("text_10_kb_any_cpu", Contender::Bridge, Limit::Ratio(1.7)),
    Goal("text_1_mb", Contender::Bridge, Limit::Ratio(2.5)),
    Goal("text_9_mb", Contender::Bridge, Limit::Ratio(2.0)),
    // Both ways, as in all other rows.
    Goal("structured_1_mb", Contender::Bridge, Limit::Ratio(2.0)),
    // 0.6 of the floor's rate.
    Goal("in_flight_64", Contender::Bridge, Limit::Ratio(1.0 / 0.6)),
    Goal("memory_fresh", Contender::Bridge, Limit::Megabytes(4.0)),
    Goal("memory_used", Contender::Bridge, Limit::Megabytes(4.0)),
    Goal("text_100_b", Contender::Attached, Limit::Beside(Contender::BridgeAndParent, 1.3)),
    Goal("text_10_kb", Contender::Attached, Limit::Beside(Contender::BridgeAndParent, 1.3)),
    Goal("memory_fresh", Contender::Attached, Limit::Megabytes(4.0)),
    Goal("http_100_b", Contender::Server, Limit::Beside(Contender::PythonMcp, FIFTH)),
    Goal("http_100_b", Contender::Server, Limit::Beside(Contender::FastMcp, FIFTH)),
    Goal("http_100_b", Contender::Server, Limit::Beside(Contender::NodeSdk, FIFTH)),
    Goal("http_10_kb", Contender::Server, Limit::Beside(Contender::PythonMcp, FIFTH)),
    Goal("http_10_kb", Contender::Server, Limit::Beside(Contender::FastMcp, FIFTH)),
    Goal("http_10_kb", Contender::Server, Limit::Beside(Contender::NodeSdk, FIFTH)),
    Goal("http_memory_fresh", Contender::Server, Limit::Beside(Contender::PythonMcp, 1.0)),
    Goal("http_memory_fresh", Contender::Server, Limit::Beside(Contender::FastMcp, 1.0)),
    Goal("http_memory_fresh", Contender::Server, Limit::Beside(Contender::NodeSdk, 1.0)),
    Goal("http_memory_used", Contender::Server, Limit::Beside(Contender::PythonMcp, 1.0)),
    Goal("http_memory_used", Contender::Server, Limit::Beside(Contender::FastMcp, 1.0)),
    Goal("http_memory_used", Contender::Server, Limit::Beside(Contender::NodeSdk, 1.0)),
];

/// A Python tool through our bridge: a multiple of the floor plus Python's own work.
const PYTHON_LIMIT: f64 = 1.5;

/// A call through `toolbridge serve` to another server: a multiple of a direct call to the server. The server
/// in Rust has no goal: it does so little that the second process dominates.
const PROXY_LIMIT: f64 = 2.0;

/// Calls over NATS: a multiple of a plain request and reply, and of the share of one host, of which 95 % are
/// to be reached.
const NATS_LIMITS: [(&str, f64, &str); 3] = [
    ("nats_100_b", 1.5, "bare NATS"),
    ("nats_2_hosts", 1.0 / 0.95, "share"),
    ("nats_3_hosts", 1.0 / 0.95, "share"),
];

/// From `request` to the model, with a CLI that was started before: milliseconds.
const WARM_LIMIT: f64 = 150.0;

/// The most memory of a process that searches 100,000 files of 500 MB, in megabytes.
const INDEX_LIMIT: f64 = 200.0;

/// A goal and the measured value.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) what: &'static str,
    pub(crate) who: &'static str,
    pub(crate) measured: f64,
    pub(crate) limit: f64,
    /// `×`, ` MB` or ` ms`.
    pub(crate) unit: &'static str,
    /// What it is compared with, or the criterion.
    pub(crate) against: &'static str,
    /// Whether the benchmark fails if it is not met.
    pub(crate) is_promise: bool,
}

impl Verdict {
    pub(crate) fn is_reached(&self) -> bool {
        self.measured <= self.limit
    }
}

/// The measurements that goals refer to.
#[derive(Default)]
pub(crate) struct Measured<'a> {
    pub(crate) rows: &'a [Row],
    pub(crate) http: &'a [Row],
    pub(crate) python: &'a [PythonRow],
    /// Servers through `toolbridge serve`, compared with direct calls.
    pub(crate) proxy: &'a [(Contender, Beside)],
    pub(crate) nats: &'a [Beside],
    pub(crate) talk: &'a [Beside],
    pub(crate) search: &'a [SearchRow],
}

/// The goals whose rows were measured.
pub(crate) fn verdicts(measured: &Measured<'_>) -> Vec<Verdict> {
    let of_rows = GOALS.iter().filter_map(|Goal(key, contender, limit)| {
        let row = measured.rows.iter().chain(measured.http).find(|row| row.key == *key)?;
        let median = row.figure(*contender)?.median;
        let (measured, limit, unit, against, is_promise) = match *limit {
            Limit::Ratio(limit) => (row.to_floor(*contender)?, limit, "×", "floor", false),
            Limit::Beside(other, limit) => {
                (median / row.figure(other)?.median, limit, "×", other.name, false)
            }
            Limit::Megabytes(limit) => (median / 1e6, limit, " MB", "", false),
            Limit::Promise(criterion, limit) => (median * 1e3, limit, " ms", criterion, true),
        };
        Some(Verdict { what: row.label, who: contender.name, measured, limit, unit, against, is_promise })
    });
    let of_python = measured.python.iter().map(|row| Verdict {
        what: row.label,
        who: Contender::BridgeAndPython.name,
        measured: row.to_json(),
        limit: PYTHON_LIMIT,
        unit: "×",
        against: "floor + Python's own",
        is_promise: false,
    });
    let of_proxy = measured.proxy.iter().filter_map(|(server, row)| {
        let measured = row.ours.median / row.other?.median;
        let goal =
            Verdict { what: row.label, who: "serve", measured, limit: PROXY_LIMIT, ..Verdict::default() };
        (server.class == Class::Peer).then_some(Verdict { unit: "×", against: "direct", ..goal })
    });
    let of_nats = NATS_LIMITS.iter().filter_map(|(key, limit, against)| {
        let row = measured.nats.iter().find(|row| row.key == *key)?;
        let measured = row.ours.median / row.other?.median;
        let goal = Verdict { what: row.label, who: "nats", measured, limit: *limit, ..Verdict::default() };
        Some(Verdict { unit: "×", against, ..goal })
    });
    let of_talk = measured.talk.iter().filter(|row| row.key == "talk_warm").map(|row| {
        let measured = 1000.0 * row.ours.median;
        Verdict {
            what: row.label,
            who: "model",
            measured,
            limit: WARM_LIMIT,
            unit: " ms",
            ..Verdict::default()
        }
    });
    let of_search = measured.search.iter().filter(|row| row.key == "search_memory").filter_map(|row| {
        let (what, measured) = ("memory of an index of many files", row.values[0]? / 1e6);
        let goal = Verdict { what, who: "docs", measured, limit: INDEX_LIMIT, ..Verdict::default() };
        Some(Verdict { unit: " MB", ..goal })
    });
    of_rows.chain(of_python).chain(of_proxy).chain(of_nats).chain(of_talk).chain(of_search).collect()
}

/// Fails if a limit of the specification is exceeded.
pub(crate) fn check_promises(verdicts: &[Verdict]) -> Result<()> {
    let broken = verdicts.iter().filter(|verdict| verdict.is_promise && !verdict.is_reached());
    let broken: Vec<_> = broken
        .map(|Verdict { what, who, measured, limit, unit, against, .. }| {
            format!("{against} is missed: {what}, {who}: a median of {measured:.2}{unit}, and at most {limit}{unit} are allowed")
        })
        .collect();
    ensure!(broken.is_empty(), "{}", broken.join("; "));
    Ok(())
}

/// Fails if a run of these parts did not measure everything that it must check.
pub(crate) fn check_measured(
    rows: &[Row],
    wants: impl Fn(Part) -> bool,
    contenders: &[Contender],
) -> Result<()> {
    for Goal(key, contender, limit) in &GOALS {
        let Limit::Promise(criterion, _) = limit else { continue };
        let part = if key.starts_with("start") { Part::Start } else { Part::Calls };
        if wants(part) && contenders.contains(contender) {
            let is_measured = rows.iter().any(|row| row.key == *key && row.figure(*contender).is_some());
            ensure!(is_measured, "{criterion} was not measured: `{key}` of {}", contender.name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::row::Unit;
    use crate::sample::Figure;

    /// A row with one run for each contender.
    fn row(key: &'static str, figures: &[(Contender, f64)]) -> Row {
        Row::new(key, key, Unit::Time, figures.iter().map(|(contender, value)| (*contender, vec![*value])))
    }

    fn of(rows: &[Row]) -> Measured<'_> {
        Measured { rows, ..Measured::default() }
    }

    #[test]
    fn a_goal_is_reached_at_its_limit_and_not_above_it() {
        for (bridge, want) in [(17.0, true), (17.1, false)] {
            let row = row("text_10_kb", &[(Contender::Floor, 10.0), (Contender::Bridge, bridge)]);
            let found = verdicts(&of(&[row]));
            assert_eq!(found.len(), 1, "only measured goals");
            assert_eq!(found[0].is_reached(), want);
            check_promises(&found).unwrap();
        }
    }

    #[test]
    fn a_promise_that_is_not_kept_fails_the_benchmark_and_is_named() {
        let call = |median| row("text_100_b_any_cpu", &[(Contender::BridgeAndParent, median)]);
        let start = |median| row("start", &[(Contender::Bridge, 0.002), (Contender::WholeBridge, median)]);
        let check = |rows: &[Row]| check_promises(&verdicts(&of(rows))).map_err(|error| error.to_string());
        assert_eq!(check(&[call(0.01), start(0.5)]), Ok(()), "at the limits");
        assert_eq!(
            check(&[call(0.0101), start(0.5)]).unwrap_err(),
            "SC-010 is missed: text_100_b_any_cpu, bridge+parent: a median of 10.10 ms, and at most 10 ms are allowed"
        );
        assert_eq!(
            check(&[call(0.0001), start(0.6)]).unwrap_err(),
            "SC-011 is missed: start, toolbridge: a median of 600.00 ms, and at most 500 ms are allowed"
        );
        let both = check(&[call(1.0), start(1.0)]).unwrap_err();
        assert!(both.contains("SC-010 is missed") && both.contains("; SC-011 is missed"), "{both}");
    }

    #[test]
    fn one_run_that_is_held_up_misses_no_promise() {
        let samples = vec![0.001, 2.0, 0.001, 0.001, 3.0];
        let row = Row::new("start", "start", Unit::Time, [(Contender::Bridge, samples)]);
        check_promises(&verdicts(&of(&[row]))).unwrap();
    }

    #[test]
    fn an_unmeasured_promise_is_not_kept() {
        let native: Vec<_> =
            Contender::value_variants().iter().copied().filter(|one| one.runtime.is_none()).collect();
        let few = row("start", &[(Contender::Bridge, 0.1), (Contender::WholeBridge, 0.1)]);
        let check = |rows: &[Row], parts: &[Part]| {
            check_measured(rows, |part| parts.contains(&part), &native).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[], &[Part::Memory]), Ok(()), "it was not requested");
        assert_eq!(
            check(&[few], &[Part::Start]).unwrap_err(),
            "SC-011 was not measured: `start_1000_tools` of bridge"
        );
        assert_eq!(
            check(&[], &[Part::Calls, Part::Memory]).unwrap_err(),
            "SC-010 was not measured: `text_100_b_any_cpu` of bridge+parent"
        );
    }

    #[test]
    fn a_python_tool_is_compared_with_the_relay_and_its_own_work() {
        let figure = |median| Figure { median, p99: median, runs: 1 };
        let (floor, json, pydantic_ai, ours) = (figure(10.0), figure(30.0), figure(90.0), figure(60.0));
        let row = PythonRow { key: "k", label: "l", floor, json, pydantic_ai, ours };
        let found = verdicts(&Measured { python: std::slice::from_ref(&row), ..Measured::default() });
        assert!((found[0].measured - 1.5).abs() < 1e-9 && found[0].is_reached());
        assert!((row.to_pydantic_ai() - 0.6).abs() < 1e-9);
    }

    #[test]
    fn ours_over_http_is_compared_with_each_peer_that_was_measured() {
        let peers = [(Contender::Server, 10.0), (Contender::PythonMcp, 50.0), (Contender::NodeSdk, 40.0)];
        let http = [row("http_100_b", &peers)];
        let found = verdicts(&Measured { http: &http, ..Measured::default() });
        let said: Vec<_> = found.iter().map(|goal| (goal.against, goal.is_reached())).collect();
        assert_eq!(said, [("python-mcp", true), ("node-sdk", false)]);
    }

    #[test]
    fn a_call_over_nats_is_compared_with_a_bare_one_and_hosts_with_their_share() {
        let figure = |median| Figure { median, p99: median, runs: 1 };
        let line = |key, ours| Beside { key, label: "l", ours: figure(ours), other: Some(figure(100.0)) };
        let nats = [line("nats_100_b", 140.0), line("nats_100_b_http", 300.0), line("nats_3_hosts", 106.0)];
        let found = verdicts(&Measured { nats: &nats, ..Measured::default() });
        let said: Vec<_> = found.iter().map(|goal| (goal.against, goal.is_reached())).collect();
        assert_eq!(said, [("bare NATS", true), ("share", false)]);
    }

    #[test]
    fn an_index_has_a_limit_of_memory() {
        for (bytes, want) in [(200e6, true), (200.1e6, false)] {
            let values = [Some(bytes), Some(1.0), None, None, None];
            let row = SearchRow { key: "search_memory", label: "l".into(), unit: None, values };
            let found = verdicts(&Measured { search: &[row], ..Measured::default() });
            assert_eq!(found.iter().map(Verdict::is_reached).collect::<Vec<_>>(), [want]);
        }
    }

    #[test]
    fn a_call_through_serve_is_compared_with_the_direct_one_and_for_our_own_server_only_shown() {
        let figure = |median| Figure { median, p99: median, runs: 1 };
        let line = |ours| Beside { key: "k", label: "l", ours: figure(ours), other: Some(figure(10.0)) };
        let proxy = [Contender::PythonMcp, Contender::NodeSdk, Contender::Server]
            .map(|one| (one, line(if one == Contender::PythonMcp { 20.0 } else { 21.0 })));
        let found = verdicts(&Measured { proxy: &proxy, ..Measured::default() });
        assert_eq!(found.iter().map(Verdict::is_reached).collect::<Vec<_>>(), [true, false]);
    }
}
