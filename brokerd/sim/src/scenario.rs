//! What is played: a market of two publishers and five readers, one of whom reads one topic alone and one of whom
//! administrators end half-way, while things break and somebody misbehaves as the scenario's name says. At most f brokers do
//! anything wrong at a time.
//!
//! *A broker that joins beside a liar.* One that lost its folder has forgotten for what it voted, and counts among the f
//! faulty ones until those views are over. With f = 1 nobody beside it may misbehave in votes, nor withhold shares, of which
//! 2f + 1 are needed: the liar then votes and shares as it should, and lies in what it says to the broker that joins
//! and to clients, who believe f + 1. From f = 2 on, f − 1 brokers lie as they like.

use std::ops::Range;

use sealcast_broker::operation::Action;
use sealcast_broker::state::Code;
use sealcast_brokerd::sync::{Forgotten, Keep};
use sealcast_order_testing::simulated::{Brokers as Orders, Root, play, play_on};
use sealcast_wire::limits;

use crate::byzantine_client::Deed;
use crate::checkers::Violation;
use crate::fixture::{Desk, EVERYTHING, Interest, MARK, Plan, Threshold};
use crate::liar::Lie;
use crate::simulation::{Counts, Plant, Simulation};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing but delays.
    Honest,
    /// Messages among brokers are lost, channels of clients break.
    Loss,
    /// One broker after another crashes, and comes back.
    Crash,
    /// Halves, or one broker and the others, do not hear each other for a while.
    Partition,
    /// All brokers are killed at once, with torn writes, and come back.
    Killed,
    /// Brokers prune; one loses its folder and joins by a snapshot, while another one lies.
    JoiningBesideLiar,
    /// The same, but it votes at once, whatever it has said before: here checkers must find something, in some seeds.
    RejoinWithoutVoteQuarantine,
    /// f brokers lie.
    Lie(Lie),
    /// A client misbehaves.
    Deed(Deed),
}

impl Fault {
    /// All that must hold, as `--fault` names them.
    pub fn all() -> Vec<Fault> {
        let plain =
            [Fault::Honest, Fault::Loss, Fault::Crash, Fault::Partition, Fault::Killed, Fault::JoiningBesideLiar];
        let lies = Lie::ALL.map(Fault::Lie);
        let deeds = Deed::ALL.map(Fault::Deed);
        plain.into_iter().chain(lies).chain(deeds).collect()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Honest => "honest",
            Fault::Loss => "loss",
            Fault::Crash => "crash",
            Fault::Partition => "partition",
            Fault::Killed => "killed",
            Fault::JoiningBesideLiar => "joining-beside-liar",
            Fault::RejoinWithoutVoteQuarantine => "rejoin-without-vote-quarantine",
            Fault::Lie(lie) => lie.name(),
            Fault::Deed(deed) => deed.name(),
        }
    }

    /// The one of this name.
    pub fn find(name: &str) -> Option<Fault> {
        Fault::all()
            .into_iter()
            .chain([Fault::RejoinWithoutVoteQuarantine])
            .find(|it| it.name() == name || (*it == Fault::RejoinWithoutVoteQuarantine && name == "joining-hastily"))
    }
}

/// What one run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// What did not hold, if anything.
    pub violation: Option<Violation>,
    /// A hash over all that happened: the same for the same seed.
    pub trace: String,
    /// What was counted.
    pub counts: Counts,
}

/// Plays a scenario for one seed.
pub fn run(fault: Fault, seed: u64, faulty: usize, threshold: Threshold) -> Report {
    run_with(fault, seed, faulty, threshold, None)
}

/// The same, with something planted between what happens and the checkers.
pub fn run_with(fault: Fault, seed: u64, faulty: usize, threshold: Threshold, plant: Option<Plant>) -> Report {
    let lies = match fault {
        Fault::Lie(lie) => Some((lie, faulty)),
        Fault::JoiningBesideLiar | Fault::RejoinWithoutVoteQuarantine => Some(beside(seed, faulty)),
        _ => None,
    };
    let mut simulation = Simulation::new(seed, faulty, threshold, lies);
    if matches!(fault, Fault::JoiningBesideLiar | Fault::RejoinWithoutVoteQuarantine) {
        simulation.keep(Keep::Blocks(KEPT_BLOCKS));
    }
    if let Some(plant) = plant {
        simulation.plant(plant);
    }
    let first = |root: Root| async move {
        let mut orders = Orders::new(root, simulation.settings()).await;
        let done = begin(&mut simulation, &mut orders, fault).await;
        (done, simulation, orders.trace())
    };
    let ((mut done, mut simulation, mut trace), disks) = play(seed, fault == Fault::Killed, first);
    if done.is_ok() && fault == Fault::Killed {
        simulation.killed();
        let second = |root: Root| async move {
            let mut orders = Orders::new(root, simulation.settings()).await;
            let done = again(&mut simulation, &mut orders).await;
            (done, simulation, orders.trace())
        };
        let ((after, now, traced), _) = play_on(disks, second);
        (done, simulation) = (after, now);
        trace.push_str(&traced);
    }
    trace.push_str(&simulation.trace().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    Report { violation: done.err(), trace, counts: simulation.counts }
}

/// Everybody comes, and publishes while things break; to the end, unless all are to be killed.
async fn begin(simulation: &mut Simulation, orders: &mut Orders, fault: Fault) -> Result<(), Violation> {
    simulation.delay_max = [2_000, 8_000, 40_000][simulation.below(3) as usize];
    simulation.breaks = if fault == Fault::Loss { 40 } else { simulation.below(8) };
    let loss = if fault == Fault::Loss { 10 } else { simulation.below(2) * 3 };
    simulation.link_all(orders, loss).await;
    for (seed, desk, interest) in CLIENTS {
        simulation.enter(seed, desk, interest)?;
    }
    // A censor has something against the first publisher.
    simulation.refuse(0);
    for number in 0..simulation.fixture.brokers() {
        simulation.start(orders, number).await;
    }
    if !simulation.until(orders, 60_000_000, |it| it.are_subscribed(READERS)).await? {
        return Err(simulation.violation("liveness 1", "readers are not subscribed after a minute"));
    }
    if let Fault::Deed(deed) = fault {
        simulation.add_byzantine_client(90, deed)?;
    }
    publish(simulation, 0..PUBLICATIONS)?;
    act(simulation);
    match fault {
        Fault::Crash => crash(simulation, orders).await?,
        Fault::Partition => part(simulation, orders).await?,
        Fault::JoiningBesideLiar => join(simulation, orders, true).await?,
        Fault::RejoinWithoutVoteQuarantine => join(simulation, orders, false).await?,
        Fault::Killed => {
            let time = 200_000 + simulation.below(2_500_000);
            return simulation.advance(orders, time).await;
        }
        _ => simulation.advance(orders, 3_000_000).await?,
    }
    finish(simulation, orders).await
}

/// After all were killed.
async fn again(simulation: &mut Simulation, orders: &mut Orders) -> Result<(), Violation> {
    simulation.link_all(orders, 0).await;
    for number in 0..simulation.fixture.brokers() {
        simulation.start(orders, number).await;
    }
    finish(simulation, orders).await
}

/// Plans of two publishers over some seconds.
fn publish(simulation: &mut Simulation, numbers: Range<usize>) -> Result<(), Violation> {
    for n in numbers {
        for client in 0..PUBLISHERS {
            let (topic, only, sealed): (&str, Desk, bool) = match (n + client) % 5 {
                0 => ("open", None, false),
                1 => ("desks/fx", Some("fx"), false),
                2 => ("desks/fx", Some("fx"), true),
                3 => ("open", None, true),
                _ => ("desks/rates", Some("rates"), true),
            };
            let mut payload = if sealed { MARK.to_vec() } else { Vec::new() };
            payload.extend(format!("{n}th of publisher {client} for {only:?}").into_bytes());
            let plan = Plan { client: simulation.clients[client].id, topic, only, sealed, payload };
            let wait = simulation.below(2_500_000);
            simulation.plan(wait, client, plan)?;
        }
    }
    Ok(())
}

/// What administrators do.
fn act(simulation: &mut Simulation) {
    let policy = "read closed if exchange:desk = fx".parse().expect("a policy");
    let leaver = simulation.clients[LEAVER].id;
    let acts = [(1, Action::Policy(policy)), (2, Action::RevokeClient(leaver))];
    for (number, action) in acts {
        let act = simulation.fixture.act(number, action);
        simulation.clients[ADMINISTRATOR].acts.push_back((usize::try_from(number).expect("it is small"), act));
    }
}

async fn crash(simulation: &mut Simulation, orders: &mut Orders) -> Result<(), Violation> {
    for _ in 0..3 {
        let wait = simulation.below(500_000);
        simulation.advance(orders, wait).await?;
        let victims: Vec<u64> =
            (0..simulation.fixture.faulty).map(|_| simulation.below(simulation.fixture.brokers() as u64)).collect();
        for victim in &victims {
            if simulation.runs(*victim as usize) {
                simulation.crash(orders, *victim as usize).await;
            }
        }
        let away = 50_000 + simulation.below(1_500_000);
        simulation.advance(orders, away).await?;
        for victim in victims {
            if !simulation.runs(victim as usize) {
                simulation.start(orders, victim as usize).await;
            }
        }
    }
    Ok(())
}

async fn part(simulation: &mut Simulation, orders: &mut Orders) -> Result<(), Violation> {
    for _ in 0..2 {
        let wait = simulation.below(800_000);
        simulation.advance(orders, wait).await?;
        let n = simulation.fixture.brokers();
        let (from, size) = (simulation.below(n as u64) as usize, 1 + simulation.below(n as u64 / 2) as usize);
        let is_inside = |it: usize| (it + n - from) % n < size;
        let crossing: Vec<(usize, usize)> = (0..n)
            .flat_map(|a| (0..n).map(move |b| (a, b)))
            .filter(|(a, b)| a != b && is_inside(*a) != is_inside(*b))
            .collect();
        for (a, b) in &crossing {
            orders.unlink(*a, *b).await;
        }
        let apart = 300_000 + simulation.below(1_500_000);
        simulation.advance(orders, apart).await?;
        for (a, b) in crossing {
            orders.link(a, b, std::time::Duration::from_millis(5), 100).await;
        }
    }
    Ok(())
}

/// Who lies beside a broker that joins, and how many do.
fn beside(seed: u64, faulty: usize) -> (Lie, usize) {
    let nth = usize::try_from(seed / 2).expect("a seed is a usize here");
    let lie = match (seed.is_multiple_of(2), faulty) {
        (true, _) => Lie::SnapshotForger,
        (false, 1) => IN_WORDS[nth % IN_WORDS.len()],
        (false, _) => Lie::ALL[nth % Lie::ALL.len()],
    };
    (lie, faulty.saturating_sub(1).max(1))
}

/// When all have pruned what they began with, one loses its folder, and comes back while the others go on.
async fn join(simulation: &mut Simulation, orders: &mut Orders, waits: bool) -> Result<(), Violation> {
    leave(simulation, orders).await?;
    if !simulation.until(orders, 120_000_000, |it| it.is_quiet() && it.low_water_mark() > 0).await? {
        return Err(simulation.violation("liveness 1", "after two minutes not all have pruned"));
    }
    let honest = simulation.honest();
    let victim = honest[simulation.below(honest.len() as u64) as usize];
    simulation.lose(orders, victim).await;
    publish(simulation, PUBLICATIONS..PUBLICATIONS + 2)?;
    let away = 50_000 + simulation.below(1_500_000);
    simulation.advance(orders, away).await?;
    let start_height = snapshot(simulation, orders, victim).await?;
    if waits {
        let mut forgotten = Forgotten::new(start_height);
        let mut tries = 0;
        while !simulation.is_over(&mut forgotten, victim) {
            tries += 1;
            again_after(simulation, orders, 500_000, tries, "others are not past what it may have voted for").await?;
        }
        // Meanwhile they have pruned on.
        snapshot(simulation, orders, victim).await?;
    }
    // Rows take their time, and blocks go on.
    let taking = simulation.below(500_000);
    simulation.advance(orders, taking).await?;
    simulation.start(orders, victim).await;
    publish(simulation, PUBLICATIONS + 2..PUBLICATIONS + 4)?;
    simulation.advance(orders, 3_000_000).await
}

/// Has a broker that lost everything begin with a snapshot of the others; where its order begins.
async fn snapshot(simulation: &mut Simulation, orders: &mut Orders, number: usize) -> Result<u64, Violation> {
    let mut tries = 0;
    loop {
        if let Some(start_height) = simulation.join(orders, number)? {
            return Ok(start_height);
        }
        tries += 1;
        again_after(simulation, orders, 500_000, tries, "no snapshot to begin with").await?;
    }
}

/// Lets time pass before a broker that joins tries once more, but not for ever.
async fn again_after(
    simulation: &mut Simulation,
    orders: &mut Orders,
    micros: u64,
    tries: u32,
    why: &str,
) -> Result<(), Violation> {
    if tries > JOINS {
        return Err(simulation.violation("liveness 1", format!("{why}, in {JOINS} tries")));
    }
    simulation.advance(orders, micros).await
}

/// Waits until a client is ended.
async fn leave(simulation: &mut Simulation, orders: &mut Orders) -> Result<(), Violation> {
    let acted = simulation.until(orders, 60_000_000, |it| it.acted(2).is_some()).await?;
    match simulation.acted(2) {
        Some((height, Code::Done)) => simulation.revoked(LEAVER, height),
        other => {
            let what = format!("administrators ended a client, and after a minute: {other:?} ({acted})");
            Err(simulation.violation("liveness 1", what))
        }
    }
}

/// Faults are over: everything comes, receipts are asked for, and it is looked at what lies where.
async fn finish(simulation: &mut Simulation, orders: &mut Orders) -> Result<(), Violation> {
    simulation.breaks = 0;
    leave(simulation, orders).await?;
    let mut complete = simulation.until(orders, 90_000_000, Simulation::is_quiet).await?;
    if complete {
        // What nobody waits for may come now, and must not.
        simulation.ask_receipts(3);
        simulation.advance(orders, 2_000_000).await?;
        complete = simulation.until(orders, 60_000_000, Simulation::is_quiet).await?;
    }
    simulation.end(complete)
}

/// Keys' seeds, desks, and who subscribes to what.
const CLIENTS: [(u8, Desk, Interest); 8] = [
    (1, Some("fx"), None),
    (2, Some("rates"), None),
    (3, Some("fx"), Some(EVERYTHING)),
    (4, Some("fx"), Some(EVERYTHING)),
    (5, Some("rates"), Some(EVERYTHING)),
    (6, Some("fx"), Some(EVERYTHING)),
    (7, None, None),
    (8, Some("fx"), Some("desks/fx")),
];
const PUBLISHERS: usize = 2;
const READERS: usize = 5;
/// Who is ended.
const LEAVER: usize = 5;
/// Who hands in acts.
const ADMINISTRATOR: usize = 6;
/// Of each publisher, before anything more.
const PUBLICATIONS: usize = 5;
/// Lies in words alone.
const IN_WORDS: [Lie; 2] = [Lie::LiarInResults, Lie::StaleState];
/// As few as a broker's settings allow.
const KEPT_BLOCKS: u64 = 2 * limits::CHECKPOINT_BLOCKS;
/// How often a broker that lost its folder asks the others for the same.
const JOINS: u32 = 60;
