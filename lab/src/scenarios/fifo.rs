//! The robots of the LAN over two channels of one group: best effort, and beside it one that loses nothing (`order=total`).

use std::time::Duration;

use sealcast::url::OriginMode;
use sealcast_delivery::multicast::Config as OfMulticast;
use sealcast_delivery::sequencer::Sequencer;
use sealcast_keys::contributory::{Config, Contributory};
use sealcast_sim::dice::{Chance, Dice};
use sealcast_sim::{Birth, Records};
use sealcast_wire::{CertHash, Guarantee, Now, limits};

use super::contributory::{GROUP, Robots, identity};
use super::fixture::{Fixture, Player, TOPIC, TOPIC_FIFO, TOPIC_ORDERED, TOPIC_SAFE};
use super::lan::{SECOND, all_publish, formed, network};
use super::script::{Knobs, Script, Step};
use crate::member::{Member, keys_records};
use crate::misbehaviour::{self, Misbehaviour, OrderingRobot};

/// What members publish on two channels.
pub(super) const BOTH: &[(&str, Guarantee)] = &[(TOPIC, Guarantee::BestEffort), (TOPIC_FIFO, Guarantee::Fifo)];

/// What members publish on all channels.
pub(super) const ALL: &[(&str, Guarantee)] = &[
    (TOPIC, Guarantee::BestEffort),
    (TOPIC_FIFO, Guarantee::Fifo),
    (TOPIC_ORDERED, Guarantee::Ordered),
    (TOPIC_SAFE, Guarantee::Safe),
];

/// Robots whose datagrams are repeated until all have them.
pub(crate) struct ReliableRobots {
    robots: Robots,
    channels: &'static [(&'static str, Guarantee)],
    /// Whether nobody who stays may lack an ordered message.
    complete: bool,
    /// Whether a member that holds all up is left out.
    expels: bool,
}

impl ReliableRobots {
    /// Those of the LAN, which publish fifo.
    pub(crate) fn new() -> ReliableRobots {
        ReliableRobots { robots: Robots::new(), channels: BOTH, complete: true, expels: false }
    }

    /// The same; they publish ordered, too, and everything of that comes to all who stay, if it is `complete`.
    pub(crate) fn ordering(complete: bool) -> ReliableRobots {
        ReliableRobots { robots: Robots::new(), channels: ALL, complete, expels: false }
    }

    /// Of these a member that holds all up is left out, and has a gap then.
    pub(crate) fn expelling() -> ReliableRobots {
        ReliableRobots { expels: true, ..ReliableRobots::ordering(false) }
    }

    /// How a member's processes are made.
    fn make(&self, member: usize, seed: [u8; 32]) -> impl Fn(Now, &Records) -> OrderingRobot<Contributory> + 'static {
        let config = Config { memo: self.robots.memo(), reliable: true, ..Config::new(GROUP, identity(member)) };
        let expels = self.expels;
        move |now, records| {
            let records: Vec<(u64, Vec<u8>)> = keys_records(records).into_iter().collect();
            let keys = Contributory::restore(config.clone(), seed, now, &records);
            let mut delivery = Sequencer::new(OfMulticast::default(), limits::RELIABLE_BACKLOG_BYTES);
            if expels {
                delivery.expel_slow(EXPELLED_AFTER);
            }
            Member::new(now, keys, delivery, OriginMode::Auto)
        }
    }
}

impl Fixture for ReliableRobots {
    fn cert(&self, member: usize) -> CertHash {
        self.robots.cert(member)
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let make = self.make(member, seed);
        Box::new(move |now: Now, records: &Records| Box::new(make(now, records)))
    }

    fn imposter(&self, member: usize, kind: Misbehaviour, seed: [u8; 32]) -> Option<Birth<Player>> {
        let make = self.make(member, seed);
        misbehaviour::ordering(kind, Box::new(move |now| make(now, &Records::new())))
    }

    fn channels(&self) -> &'static [(&'static str, Guarantee)] {
        self.channels
    }

    fn delivers_ordered(&self) -> bool {
        self.complete
    }

    fn orders_in_views(&self) -> bool {
        true
    }

    fn apart(&self) -> Option<Box<dyn Fixture>> {
        Some(Box::new(ReliableRobots {
            robots: self.robots.without_memo(),
            channels: self.channels,
            complete: self.complete,
            expels: self.expels,
        }))
    }

    fn secrets(&self) -> Vec<Vec<u8>> {
        let topics = self.channels.iter().map(|(topic, _)| topic.as_bytes().to_vec());
        topics.chain([b"wall-e".to_vec()]).collect()
    }
}

/// All publish on a network that loses up to so much: how much, the seed says; it changes once.
pub(super) fn loss(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(&Knobs { loss: Chance(0), ..*knobs }, dice);
    all_publish(&mut script, 0..n, 100, 3 * SECOND);
    for _ in 0..2 {
        let loss = Chance(dice.below(u64::from(knobs.loss.0) + 1) as u32);
        script.then(Step::Network(network(&Knobs { loss, ..*knobs }))).wait(dice.between(SECOND, 2 * SECOND));
    }
    script.converge(0..n, 10 * SECOND);
    script
}

/// A member hears nothing for a while, less than until it is suspected, and catches up.
pub(super) fn deaf(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 50, 4 * SECOND);
    let member = dice.index(n);
    script.wait(SECOND / 2);
    (0..n).filter(|other| *other != member).for_each(|other| _ = script.then(Step::Cut(other, member)));
    script.wait(dice.between(Duration::from_millis(50), SECOND)).then(Step::Heal).wait(3 * SECOND);
    script.converge(0..n, 10 * SECOND);
    script
}

/// A member gets nothing for a while, less than until it suspects the others, who hear it: they leave it out as slow.
pub(super) fn slow(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 50, 8 * SECOND);
    let member = dice.index(n);
    script.wait(SECOND);
    (0..n).filter(|other| *other != member).for_each(|other| _ = script.then(Step::Cut(other, member)));
    script.wait(dice.between(2 * SECOND + SECOND / 4, 3 * SECOND - SECOND / 10)).then(Step::Heal).wait(3 * SECOND);
    // It is not let in again at once.
    script.converge(0..n, limits::SLOW_OUT + 10 * SECOND);
    script
}

/// Members die and come back one after the other, so that each needs the state, and who gives it dies.
pub(super) fn state(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 50, 60 * SECOND);
    script.wait(SECOND);
    let mut member = dice.index(n);
    for _ in 0..6 {
        script.then(Step::Crash(member)).wait(dice.between(SECOND / 20, 4 * SECOND)).then(Step::Start(member));
        script.wait(dice.between(Duration::ZERO, SECOND / 2));
        member = (member + 1 + dice.index(n - 1)) % n;
    }
    script.wait(3 * SECOND).converge(0..n, 20 * SECOND);
    script
}

/// A member that holds all up for so long is left out.
pub(super) const EXPELLED_AFTER: Duration = Duration::from_secs(2);
