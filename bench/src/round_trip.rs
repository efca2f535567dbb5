//! Calls: one at a time, and many in parallel.

use std::time::Duration;

use anyhow::Result;

use crate::call::Call;
use crate::client::Client;
use crate::contender::Contender;
use crate::effort::{CallRow, Effort, Plan, SMALL_BYTES};
use crate::machine::OneCpu;
use crate::program::Programs;
use crate::row::{Row, Unit};
use crate::stage::Stage;
use crate::wire::Wire;

/// The first calls of a batch, which are not counted: the caches still hold the data of the previous
/// contender.
const LEAD_IN: usize = 2;

/// Calls before the first batch.
const WARM_UP: usize = 50;

/// All rows of calls.
pub(crate) fn measure(programs: &Programs, contenders: &[Contender], effort: &Effort) -> Result<Vec<Row>> {
    let mut rows = on_one_cpu(programs, contenders, effort)?;
    let mut stage = Stage::set(programs, contenders)?;
    let mut clients = stage.clients()?;
    for key in ["text_100_b_any_cpu", "text_10_kb_any_cpu"] {
        rows.push(one_at_a_time(&mut clients, &effort.kind(key))?);
    }
    // With more work per call, being busy makes no difference.
    clients.retain(|(contender, _)| *contender != Contender::BusyFloor);
    for key in ["text_1_mb", "text_9_mb", "structured_1_mb", "structured_1_mb_one_way"] {
        rows.push(one_at_a_time(&mut clients, &effort.kind(key))?);
    }
    for (key, label, in_flight) in [
        ("in_flight_1", "1 in flight, 100 B", 1),
        ("in_flight_8", "8 in flight, 100 B", 8),
        ("in_flight_64", "64 in flight, 100 B", 64),
    ] {
        rows.push(many_at_a_time(&mut clients, (key, label), in_flight, effort.parallel)?);
    }
    clients.into_iter().try_for_each(|(_, client)| client.finish())?;
    Ok(rows)
}

/// Small calls, one at a time, with all processes on one CPU.
///
/// With one call at a time, only one of the processes has work at any moment. A second CPU would only add the
/// time to wake it from sleep, which exceeds all else and differs from run to run.
fn on_one_cpu(programs: &Programs, contenders: &[Contender], effort: &Effort) -> Result<Vec<Row>> {
    let _one_cpu = OneCpu::new()?;
    let mut stage = Stage::set(programs, contenders)?;
    let mut clients = stage.clients()?;
    let mut rows = Vec::new();
    for key in ["text_100_b", "text_10_kb", "text_100_b_after_large"] {
        // A large call must not slow down the small ones after it.
        if key == "text_100_b_after_large" {
            for bytes in effort.large_before_small {
                let large = Call::text(*bytes);
                clients.iter_mut().try_for_each(|(_, client)| client.learn(&large).map(drop))?;
            }
        }
        rows.push(one_at_a_time(&mut clients, &effort.kind(key))?);
    }
    Ok(rows)
}

/// Lets `count` contenders take turns as planned. `batch` makes one batch, adds its measurements, and returns
/// how long it took.
pub(crate) fn in_turn(
    plan: Plan,
    count: usize,
    mut batch: impl FnMut(usize, &mut Vec<f64>) -> Result<Duration>,
) -> Result<Vec<Vec<f64>>> {
    let mut samples = vec![Vec::new(); count];
    let mut spent = vec![Duration::ZERO; count];
    for round in 0..plan.rounds {
        // Rotate the order, so that each goes first equally often.
        for turn in (round..round + count).map(|turn| turn % count) {
            if plan.has_turn(round, spent[turn]) {
                spent[turn] += batch(turn, &mut samples[turn])?;
            }
        }
    }
    Ok(samples)
}

/// Learns a call, repeats it until everything is warm, and returns how long it takes then.
fn warm_up<W: Wire>(client: &mut Client<W>, call: &Call, plan: Plan) -> Result<Duration> {
    let mut shortest = client.learn(call)?;
    let mut spent = shortest;
    for _ in 0..WARM_UP {
        // A slow contender needs fewer.
        if spent * 10 > plan.limit {
            break;
        }
        let took = client.call(true)?;
        spent += took;
        shortest = shortest.min(took);
    }
    Ok(shortest)
}

/// One call at a time, in alternating batches.
pub(crate) fn one_at_a_time<W: Wire>(clients: &mut [(Contender, Client<W>)], kind: &CallRow) -> Result<Row> {
    let samples = seconds(clients, kind)?;
    Ok(Row::new(kind.key, kind.label, Unit::Time, clients.iter().map(|(one, _)| *one).zip(samples)))
}

/// The same; returns the seconds of each call of each client.
pub(crate) fn seconds<T, W: Wire>(clients: &mut [(T, Client<W>)], kind: &CallRow) -> Result<Vec<Vec<f64>>> {
    let CallRow { label, ref call, plan, .. } = *kind;
    eprintln!("measuring: {label}");
    let mut batches = Vec::new();
    for (_, client) in &mut *clients {
        batches.push(plan.batch_of(warm_up(client, call, plan)?));
    }
    in_turn(plan, clients.len(), |turn, samples| {
        let (batch, mut spent) = (batches[turn], Duration::ZERO);
        let lead_in = LEAD_IN.min(batch);
        for place in 0..lead_in + batch {
            let took = clients[turn].1.call(false)?;
            spent += took;
            if place >= lead_in {
                samples.push(took.as_secs_f64());
            }
        }
        Ok(spent)
    })
}

/// Many calls in parallel; a batch is timed as a whole.
fn many_at_a_time(
    clients: &mut [(Contender, Client)],
    (key, label): (&'static str, &'static str),
    in_flight: usize,
    plan: Plan,
) -> Result<Row> {
    eprintln!("measuring: {label}");
    let call = Call::text(SMALL_BYTES);
    let mut batches = Vec::new();
    for (_, client) in &mut *clients {
        let batch = plan.batch_of(warm_up(client, &call, plan)?);
        // With fewer, not all would be in flight.
        batches.push(batch.max(in_flight * 2));
        client.calls(in_flight, in_flight * 2)?;
    }
    let samples = in_turn(plan, clients.len(), |turn, samples| {
        let took = clients[turn].1.calls(in_flight, batches[turn])?;
        samples.push((took / u32::try_from(batches[turn])?).as_secs_f64());
        Ok(took)
    })?;
    Ok(Row::new(key, label, Unit::Rate, clients.iter().map(|(one, _)| *one).zip(samples)))
}
