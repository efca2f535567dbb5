//! Calls: one at a time, and many at a time.

use std::time::Duration;

use anyhow::Result;

use super::call::Call;
use super::client::Client;
use super::contender::Contender;
use super::effort::{Effort, Plan};
use super::machine::OneCpu;
use super::program::Programs;
use super::row::{Row, Unit};
use super::sample::Samples;
use super::stage::Stage;

/// 100 bytes are what most calls are like; 9 MB nearly what the protocol allows.
pub(crate) const SMALL_BYTES: usize = 100;
pub(crate) const MEDIUM_BYTES: usize = 10_000;
pub(crate) const LARGE_BYTES: usize = 1_000_000;
pub(crate) const LARGEST_BYTES: usize = 9_000_000;

/// Calls at the beginning of a batch that are made and not counted: the caches still belong to the
/// contender before.
const LEAD_IN: usize = 2;

/// Calls before the first batch.
const WARM_UP: usize = 50;

/// All rows of calls.
pub(crate) fn measure(programs: &Programs, contenders: &[Contender], effort: &Effort) -> Result<Vec<Row>> {
    let mut rows = on_one_cpu(programs, contenders, effort)?;
    let mut stage = Stage::set(programs, contenders)?;
    let mut clients = stage.clients()?;
    for (key, label, call, plan) in [
        ("text_100_b_any_cpu", "100 B on any CPU", Call::text(SMALL_BYTES), effort.small),
        ("text_10_kb_any_cpu", "10 KB on any CPU", Call::text(MEDIUM_BYTES), effort.medium),
    ] {
        rows.push(one_at_a_time(&mut clients, key, label, &call, plan)?);
    }
    // Where there is more to do, being busy makes no difference.
    clients.retain(|(contender, _)| *contender != Contender::BusyFloor);
    for (key, label, call, plan) in [
        ("text_1_mb", "1 MB text", Call::text(LARGE_BYTES), effort.large),
        ("text_9_mb", "9 MB text", Call::text(LARGEST_BYTES), effort.largest),
        ("structured_1_mb", "1 MB structured, both ways", Call::items_both_ways(LARGE_BYTES), effort.large),
        (
            "structured_1_mb_one_way",
            "1 MB structured, one way",
            Call::items_one_way(LARGE_BYTES),
            effort.large,
        ),
    ] {
        rows.push(one_at_a_time(&mut clients, key, label, &call, plan)?);
    }
    for (key, label, in_flight) in [
        ("in_flight_1", "1 in flight, 100 B", 1),
        ("in_flight_8", "8 in flight, 100 B", 8),
        ("in_flight_64", "64 in flight, 100 B", 64),
    ] {
        rows.push(many_at_a_time(&mut clients, key, label, in_flight, effort.parallel)?);
    }
    for (_, client) in clients {
        client.finish()?;
    }
    Ok(rows)
}

/// Small calls, one at a time, with everybody on one CPU.
///
/// One call at a time means that only one of the processes has something to do. What two CPUs would add
/// is the time it takes to wake a sleeping one, which is more than all else and differs from run to run.
fn on_one_cpu(programs: &Programs, contenders: &[Contender], effort: &Effort) -> Result<Vec<Row>> {
    let _one_cpu = OneCpu::new()?;
    let mut stage = Stage::set(programs, contenders)?;
    let mut clients = stage.clients()?;
    let (small, medium) = (Call::text(SMALL_BYTES), Call::text(MEDIUM_BYTES));
    let mut rows = vec![
        one_at_a_time(&mut clients, "text_100_b", "100 B text", &small, effort.small)?,
        one_at_a_time(&mut clients, "text_10_kb", "10 KB text", &medium, effort.medium)?,
    ];
    // A large call must not leave anything behind that slows down the small ones after it.
    for bytes in [LARGEST_BYTES, LARGE_BYTES] {
        for (_, client) in &mut clients {
            client.learn(&Call::text(bytes))?;
        }
    }
    let (key, label) = ("text_100_b_after_large", "100 B after 9 and 1 MB");
    rows.push(one_at_a_time(&mut clients, key, label, &small, effort.small)?);
    Ok(rows)
}

/// Who has a turn in a round, in which order: each goes first as often as the others.
pub(crate) fn turns(round: usize, contenders: usize) -> impl Iterator<Item = usize> {
    (0..contenders).map(move |turn| (round + turn) % contenders)
}

/// Learns a call, makes it often enough that everything is warm, and says how long it takes then.
fn warm_up(client: &mut Client, call: &Call, plan: Plan) -> Result<Duration> {
    let mut shortest = client.learn(call)?;
    for _ in 0..WARM_UP {
        shortest = shortest.min(client.call(true)?);
        // Who is slow is warm before.
        if shortest * 10 > plan.limit {
            break;
        }
    }
    Ok(shortest)
}

/// One call at a time, in batches that take turns.
pub(crate) fn one_at_a_time(
    clients: &mut [(Contender, Client)],
    key: &'static str,
    label: &'static str,
    call: &Call,
    plan: Plan,
) -> Result<Row> {
    eprintln!("measuring: {label}");
    let mut batches = Vec::new();
    for (_, client) in &mut *clients {
        batches.push(plan.batch_of(warm_up(client, call, plan)?));
    }
    let mut samples: Vec<Samples> = clients.iter().map(|_| Samples::default()).collect();
    let mut spent = vec![Duration::ZERO; clients.len()];
    for round in 0..plan.rounds {
        for turn in turns(round, clients.len()) {
            if !plan.has_turn(round, spent[turn]) {
                continue;
            }
            let (batch, (_, client)) = (batches[turn], &mut clients[turn]);
            for place in 0..LEAD_IN.min(batch) + batch {
                let took = client.call(false)?;
                spent[turn] += took;
                if place >= LEAD_IN.min(batch) {
                    samples[turn].add(took.as_secs_f64());
                }
            }
        }
    }
    Ok(Row::new(key, label, Unit::Time, clients.iter().map(|(one, _)| *one).zip(samples)))
}

/// Many calls at a time; a batch is timed as a whole.
fn many_at_a_time(
    clients: &mut [(Contender, Client)],
    key: &'static str,
    label: &'static str,
    in_flight: usize,
    plan: Plan,
) -> Result<Row> {
    eprintln!("measuring: {label}");
    let call = Call::text(SMALL_BYTES);
    let mut batches = Vec::new();
    for (_, client) in &mut *clients {
        let batch = plan.batch_of(warm_up(client, &call, plan)?);
        // Fewer would not all be under way.
        batches.push(batch.max(in_flight * 2));
        client.calls(in_flight, in_flight * 2)?;
    }
    let mut samples: Vec<Samples> = clients.iter().map(|_| Samples::default()).collect();
    let mut spent = vec![Duration::ZERO; clients.len()];
    for round in 0..plan.rounds {
        for turn in turns(round, clients.len()) {
            if plan.has_turn(round, spent[turn]) {
                let took = clients[turn].1.calls(in_flight, batches[turn])?;
                spent[turn] += took;
                samples[turn].add((took / u32::try_from(batches[turn])?).as_secs_f64());
            }
        }
    }
    Ok(Row::new(key, label, Unit::Rate, clients.iter().map(|(one, _)| *one).zip(samples)))
}
