//! Every key scheme of URLs over brokers, through the core of a session: messages are lost, channels break, a broker dies and
//! comes back, a member dies and comes back, and one is evicted or revoked.
//! `SEALCAST_SEED=<seed> cargo test --workspace --test sim every_scheme` plays one seed.

use std::collections::BTreeMap;

use sealcast::url::Scheme;
use sealcast::url::pairs::{Pair, Transport};
use sealcast_broker::operation::Action;
use sealcast_order_testing::simulated::{Brokers as Orders, play};

use sealcast_brokers_sim::checkers::Violation;
use sealcast_brokers_sim::fixture::Threshold;
use sealcast_brokers_sim::simulation::Simulation;

#[test]
fn every_scheme_that_may_runs_over_brokers() {
    let only: Option<u64> = std::env::var("SEALCAST_SEED").ok().and_then(|it| it.parse().ok());
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    let runs = |keys: &Scheme| Pair { transport: Transport::Quorum, keys: *keys }.is_allowed();
    for keys in Scheme::ALL.into_iter().filter(runs) {
        for seed in seeds.clone() {
            let mut simulation = Simulation::new(seed, 1, Threshold::Default, None);
            let (done, _) = play(seed, false, |root| async move {
                let mut orders = Orders::new(root, simulation.settings()).await;
                story(&mut simulation, &mut orders, keys).await
            });
            done.unwrap_or_else(|it| panic!("{keys:?}, seed {seed}: {}: {}", it.checker, it.what));
        }
    }
}

async fn story(simulation: &mut Simulation, orders: &mut Orders, keys: Scheme) -> Result<(), Violation> {
    (simulation.delay_max, simulation.breaks) = (8_000, 20);
    simulation.link_all(orders, 5).await;
    let administrator = simulation.enter(7, None, None)?;
    (0..MEMBERS).for_each(|n| simulation.enter_member(keys, seed_of(n)));
    for broker in 0..simulation.fixture.brokers() {
        simulation.start(orders, broker).await;
    }
    let all: Vec<usize> = (0..MEMBERS).collect();
    together(simulation, orders, &all).await?;
    round(simulation, orders, &all, 0).await?;

    let broker = simulation.below(simulation.fixture.brokers() as u64) as usize;
    simulation.crash(orders, broker).await;
    round(simulation, orders, &all, 1).await?;
    simulation.start(orders, broker).await;

    let victim = 1 + simulation.below(MEMBERS as u64 - 1) as usize;
    simulation.restart_member(victim);
    together(simulation, orders, &all).await?;
    round(simulation, orders, &all, 2).await?;

    let (gone, rest) = (MEMBERS - 1, &all[..MEMBERS - 1]);
    if matches!(keys, Scheme::Contributory | Scheme::Mls) {
        let now = simulation.time();
        simulation.members[0].evict(now, seed_of(gone));
        let is_out = simulation.until(orders, TIMEOUT, |it| it.members[gone].is_out).await?;
        if !is_out {
            return Err(simulation.violation("eviction", "nobody told the member that it is out"));
        }
    } else {
        let act = simulation.fixture.act(1, Action::RevokeClient(simulation.members[gone].id));
        simulation.clients[administrator].acts.push_back((1, act));
        if !simulation.until(orders, TIMEOUT, |it| it.acted(1).is_some()).await? {
            return Err(simulation.violation("revocation", "administrators are not heard"));
        }
    }
    together(simulation, orders, rest).await?;
    let before = simulation.members[gone].delivered.len();
    round(simulation, orders, rest, 3).await?;
    let after = &simulation.members[gone].delivered[before..];
    if after.iter().any(|(_, body)| body.ends_with(b"round 3")) {
        return Err(simulation.violation("exclusion", "an excluded member reads on"));
    }
    one_order(simulation)
}

/// Waits until all of these are in one group, or whatever their scheme has for it.
async fn together(simulation: &mut Simulation, orders: &mut Orders, who: &[usize]) -> Result<(), Violation> {
    let is_group = |it: &Simulation| {
        let epochs: Vec<_> = who.iter().map(|n| it.members[*n].stands(who.len())).collect();
        epochs.iter().all(|epoch| epoch.is_some() && *epoch == epochs[0])
    };
    match simulation.until(orders, TIMEOUT, is_group).await? {
        true => Ok(()),
        false => {
            let epochs: Vec<_> = who.iter().map(|n| simulation.members[*n].stands(who.len())).collect();
            Err(simulation.violation("liveness 1", format!("{who:?} are not together: {epochs:?}")))
        }
    }
}

/// Each of these publishes, and each hears all.
async fn round(simulation: &mut Simulation, orders: &mut Orders, who: &[usize], round: usize) -> Result<(), Violation> {
    let mut waiting = who.to_vec();
    let bodies: Vec<Vec<u8>> = who.iter().map(|n| format!("member {n} round {round}").into_bytes()).collect();
    for _ in 0..TRIES {
        let now = simulation.time();
        waiting.retain(|n| {
            let body = format!("member {n} round {round}");
            !simulation.members[*n].publish(now, body.as_bytes())
        });
        if waiting.is_empty() {
            break;
        }
        simulation.advance(orders, 50_000).await?;
    }
    let hears =
        |it: &Simulation, n: usize| bodies.iter().all(|b| it.members[n].delivered.iter().any(|(_, got)| got == b));
    if simulation.until(orders, TIMEOUT, |it| who.iter().all(|n| hears(it, *n))).await? {
        return Ok(());
    }
    let deaf: Vec<_> = who.iter().filter(|n| !hears(simulation, **n)).collect();
    Err(simulation
        .violation("liveness 1", format!("{deaf:?} do not hear all of round {round}, {waiting:?} did not speak")))
}

/// All read one order, each message once.
fn one_order(simulation: &Simulation) -> Result<(), Violation> {
    let mut at: BTreeMap<u64, &[u8]> = BTreeMap::new();
    for (n, member) in simulation.members.iter().enumerate() {
        if !member.delivered.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(simulation.violation("one order", format!("member {n}: {:?}", member.delivered)));
        }
        for (number, body) in &member.delivered {
            if *at.entry(*number).or_insert(body) != body.as_slice() {
                return Err(simulation.violation("one order", format!("member {n} reads something else at {number}")));
            }
        }
    }
    Ok(())
}

fn seed_of(member: usize) -> u8 {
    20 + u8::try_from(member).expect("members are few")
}

const MEMBERS: usize = 3;
const SEEDS: u64 = 20;
/// Simulated microseconds.
const TIMEOUT: u64 = 120_000_000;
const TRIES: usize = 1_000;
