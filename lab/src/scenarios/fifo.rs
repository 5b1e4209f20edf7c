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
}

impl ReliableRobots {
    /// Those of the LAN, which publish fifo.
    pub(crate) fn new() -> ReliableRobots {
        ReliableRobots { robots: Robots::new(), channels: BOTH, complete: true }
    }

    /// The same; they publish ordered, too, and everything of that comes to all who stay, if it is `complete`.
    pub(crate) fn ordering(complete: bool) -> ReliableRobots {
        ReliableRobots { robots: Robots::new(), channels: ALL, complete }
    }
}

impl Fixture for ReliableRobots {
    fn cert(&self, member: usize) -> CertHash {
        self.robots.cert(member)
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let config = Config { memo: self.robots.memo(), reliable: true, ..Config::new(GROUP, identity(member)) };
        Box::new(move |now: Now, records: &Records| {
            let records: Vec<(u64, Vec<u8>)> = keys_records(records).into_iter().collect();
            let keys = Contributory::restore(config.clone(), seed, now, &records);
            let delivery = Sequencer::new(OfMulticast::default(), limits::RELIABLE_BACKLOG_BYTES);
            Box::new(Member::new(now, keys, delivery, OriginMode::Auto))
        })
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
