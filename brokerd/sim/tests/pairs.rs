//! Every key scheme of URLs over brokers, through the core of a session: messages are lost, channels break, a broker dies and
//! comes back, a member dies and comes back, and one is evicted or revoked.
//! `SEALCAST_SEED=<seed> payload_kind test --workspace --test pairs every_scheme` plays one seed.

use std::collections::BTreeMap;

use sealcast::url::Scheme;
use sealcast::url::pairs::{Pair, Transport};
use sealcast_broker::operation::Action;
use sealcast_order::engine::simulated::{Brokers as Orders, play};

use sealcast_brokers_sim::cast::Threshold;
use sealcast_brokers_sim::checkers::Violation;
use sealcast_brokers_sim::stage::Stage;

#[test]
fn every_scheme_runs_over_brokers() {
    let only: Option<u64> = std::env::var("SEALCAST_SEED").ok().and_then(|it| it.parse().ok());
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    for keys in Scheme::ALL {
        assert!(Pair { transport: Transport::Quorum, keys }.is_allowed(), "{keys:?}");
        for seed in seeds.clone() {
            let mut stage = Stage::new(seed, 1, Threshold::Default, None);
            let (done, _) = play(seed, false, |root| async move {
                let mut orders = Orders::new(root, stage.settings()).await;
                story(&mut stage, &mut orders, keys).await
            });
            done.unwrap_or_else(|it| panic!("{keys:?}, seed {seed}: {}: {}", it.checker, it.what));
        }
    }
}

async fn story(stage: &mut Stage, orders: &mut Orders, keys: Scheme) -> Result<(), Violation> {
    (stage.delay_max, stage.breaks) = (8_000, 20);
    stage.link_all(orders, 5).await;
    let administrator = stage.enter(7, None, None)?;
    (0..MEMBERS).for_each(|n| stage.enter_member(keys, seed_of(n)));
    for broker in 0..stage.cast.brokers() {
        stage.start(orders, broker).await;
    }
    let all: Vec<usize> = (0..MEMBERS).collect();
    together(stage, orders, &all).await?;
    round(stage, orders, &all, 0).await?;

    let broker = stage.below(stage.cast.brokers() as u64) as usize;
    stage.crash(orders, broker).await;
    round(stage, orders, &all, 1).await?;
    stage.start(orders, broker).await;

    let victim = 1 + stage.below(MEMBERS as u64 - 1) as usize;
    stage.restart_member(victim);
    together(stage, orders, &all).await?;
    round(stage, orders, &all, 2).await?;

    let (gone, rest) = (MEMBERS - 1, &all[..MEMBERS - 1]);
    if keys == Scheme::Contributory {
        let now = stage.time();
        stage.members[0].evict(now, seed_of(gone));
        let is_out = stage.until(orders, TIMEOUT, |it| it.members[gone].is_out).await?;
        if !is_out {
            return Err(stage.violation("eviction", "nobody told the member that it is out"));
        }
    } else {
        let act = stage.cast.act(1, Action::RevokeClient(stage.members[gone].id));
        stage.clients[administrator].acts.push_back((1, act));
        if !stage.until(orders, TIMEOUT, |it| it.acted(1).is_some()).await? {
            return Err(stage.violation("revocation", "administrators are not heard"));
        }
    }
    together(stage, orders, rest).await?;
    let before = stage.members[gone].delivered.len();
    round(stage, orders, rest, 3).await?;
    let after = &stage.members[gone].delivered[before..];
    if after.iter().any(|(_, body)| body.ends_with(b"round 3")) {
        return Err(stage.violation("exclusion", "an excluded member reads on"));
    }
    one_order(stage)
}

/// Waits until all of these are in one group, or whatever their scheme has for it.
async fn together(stage: &mut Stage, orders: &mut Orders, who: &[usize]) -> Result<(), Violation> {
    let is_group = |it: &Stage| {
        let epochs: Vec<_> = who.iter().map(|n| it.members[*n].stands(who.len())).collect();
        epochs.iter().all(|epoch| epoch.is_some() && *epoch == epochs[0])
    };
    match stage.until(orders, TIMEOUT, is_group).await? {
        true => Ok(()),
        false => {
            let epochs: Vec<_> = who.iter().map(|n| stage.members[*n].stands(who.len())).collect();
            Err(stage.violation("liveness 1", format!("{who:?} are not together: {epochs:?}")))
        }
    }
}

/// Each of these publishes, and each hears all.
async fn round(stage: &mut Stage, orders: &mut Orders, who: &[usize], round: usize) -> Result<(), Violation> {
    let mut waiting = who.to_vec();
    let bodies: Vec<Vec<u8>> = who.iter().map(|n| format!("member {n} round {round}").into_bytes()).collect();
    for _ in 0..TRIES {
        let now = stage.time();
        waiting.retain(|n| {
            let body = format!("member {n} round {round}");
            !stage.members[*n].publish(now, body.as_bytes())
        });
        if waiting.is_empty() {
            break;
        }
        stage.advance(orders, 50_000).await?;
    }
    let hears = |it: &Stage, n: usize| bodies.iter().all(|b| it.members[n].delivered.iter().any(|(_, got)| got == b));
    if stage.until(orders, TIMEOUT, |it| who.iter().all(|n| hears(it, *n))).await? {
        return Ok(());
    }
    let deaf: Vec<_> = who.iter().filter(|n| !hears(stage, **n)).collect();
    Err(stage.violation("liveness 1", format!("{deaf:?} do not hear all of round {round}, {waiting:?} did not speak")))
}

/// All read one order, each message once.
fn one_order(stage: &Stage) -> Result<(), Violation> {
    let mut at: BTreeMap<u64, &[u8]> = BTreeMap::new();
    for (n, member) in stage.members.iter().enumerate() {
        if !member.delivered.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(stage.violation("one order", format!("member {n}: {:?}", member.delivered)));
        }
        for (number, body) in &member.delivered {
            if *at.entry(*number).or_insert(body) != body.as_slice() {
                return Err(stage.violation("one order", format!("member {n} reads something else at {number}")));
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
