//! The robots of the LAN over two channels: best effort, and beside it one order. Their keys change as on a LAN, by messages
//! that nobody orders.

use std::time::Duration;

use sealcast::url::OriginMode;
use sealcast_delivery::memory::{Ordered, Start};
use sealcast_keys::contributory::{Config, Contributory};
use sealcast_sim::dice::Dice;
use sealcast_sim::{Birth, Records};
use sealcast_wire::{Address, CertHash, Guarantee, Now};

use super::contributory::{GROUP, Robots, identity};
use super::fixture::{Fixture, Player, TOPIC, TOPIC_ORDERED};
use super::lan::{TIMEOUT, all_publish, formed, without};
use super::script::{Knobs, Script, Step};
use crate::member::{Member, keys_records};
use crate::mocks::fixture::orderer;

/// What members publish on two channels.
pub(crate) const BOTH: &[(&str, Guarantee)] = &[(TOPIC, Guarantee::BestEffort), (TOPIC_ORDERED, Guarantee::Ordered)];

/// Robots with an orderer, whose node follows them.
pub(crate) struct OrderedRobots {
    /// How many members.
    members: usize,
    robots: Robots,
}

impl OrderedRobots {
    /// So many of them.
    pub(crate) fn new(members: usize) -> OrderedRobots {
        OrderedRobots { members, robots: Robots::new() }
    }
}

impl Fixture for OrderedRobots {
    fn cert(&self, member: usize) -> CertHash {
        self.robots.cert(member)
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let orderer = Address::Node(self.members as u32);
        let config = Config { memo: self.robots.memo(), ..Config::new(GROUP, identity(member)) };
        Box::new(move |now: Now, records: &Records| {
            let records: Vec<(u64, Vec<u8>)> = keys_records(records).into_iter().collect();
            let keys = Contributory::restore(config.clone(), seed, now, &records);
            Box::new(Member::new(now, keys, Ordered::new(orderer, Start::Head), OriginMode::Auto))
        })
    }

    fn helpers(&self) -> Vec<(bool, Birth<Player>)> {
        vec![(true, orderer())]
    }

    fn channels(&self) -> &'static [(&'static str, Guarantee)] {
        BOTH
    }

    fn secrets(&self) -> Vec<Vec<u8>> {
        vec![TOPIC.into(), TOPIC_ORDERED.into(), b"wall-e".to_vec()]
    }
}

/// One dies, and the others are told that it is silent: this transport detects no failures.
pub(super) fn suspect(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 100, 4 * SECOND);
    let victim = dice.index(n);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Crash(victim)).wait(SECOND / 2);
    (0..n).filter(|by| *by != victim).for_each(|by| _ = script.then(Step::Suspect { by, whom: victim }));
    script.converge(without(n, &[victim]), TIMEOUT).wait(2 * SECOND);
    script
}

/// The network splits, and the orderer is on one side; each side goes on without the other, and they merge.
pub(super) fn partition(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 50, 20 * SECOND);
    let mut members: Vec<usize> = (0..n).collect();
    dice.shuffle(&mut members);
    let (one, other) = members.split_at(1 + dice.index(n - 1));
    script.then(Step::Partition(vec![[one, &[n]].concat(), other.to_vec()])).wait(SECOND / 2);
    for (side, gone) in [(one, other), (other, one)] {
        let pairs = side.iter().flat_map(|by| gone.iter().map(|whom| (*by, *whom)));
        pairs.for_each(|(by, whom)| _ = script.then(Step::Suspect { by, whom }));
    }
    if dice.below(4) > 0 {
        script.converge(one.iter().copied(), TIMEOUT).converge(other.iter().copied(), TIMEOUT);
    } else {
        // It heals in the middle of the sides' own changes.
        script.wait(dice.between(Duration::ZERO, 2 * SECOND));
    }
    script.then(Step::Heal).wait(SECOND / 2).converge(0..n, TIMEOUT).wait(2 * SECOND);
    script
}

const SECOND: Duration = Duration::from_secs(1);
