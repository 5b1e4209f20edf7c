//! MLS groups over an order: the fixture, and what the mock of their shape does not play.

use std::time::Duration;

use sealcast::url::OriginMode;
use sealcast_delivery::memory::{Ordered, Start};
use sealcast_keys::Command;
use sealcast_keys::mls::engine::mls_rs::MlsRs;
use sealcast_keys::mls::{self, Config, Mls};
use sealcast_sim::Birth;
use sealcast_sim::dice::Dice;
use sealcast_sim::network::Network;
use sealcast_wire::{Address, CertHash, Guarantee};

use super::channels::BOTH;
use super::contributory::{GROUP, identity};
use super::fixture::{Fixture, Player, TOPIC, TOPIC_ORDERED};
use super::mocks::admission;
use super::script::{Knobs, Script, Step};
use crate::member::{Member, keys_records, record_of_delivery};
use crate::mocks::fixture::orderer;
use crate::mocks::relay::{AtRelay, relay};

/// Members with certificates, and an orderer or a relay whose node follows them.
pub struct MlsMembers {
    /// Whether they meet at a relay with a directory.
    pub at_relay: bool,
    /// How many members.
    pub members: usize,
    /// How many of them, from the first on, found a group if they find none.
    pub founders: usize,
    /// Whether the others wait until a member admits them.
    pub wait: bool,
}

impl Fixture for MlsMembers {
    fn cert(&self, member: usize) -> CertHash {
        identity(member).certificate().hash
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let node = Address::Node(self.members as u32);
        let (founds, at_relay) = (member < self.founders, self.at_relay);
        let joins = founds || !self.wait;
        Box::new(move |now, raw| {
            let config = Config { founds, joins, ..Config::new(GROUP, identity(member)) };
            let records: Vec<(u64, Vec<u8>)> = keys_records(raw).into_iter().collect();
            let start = mls::position(&records).map_or(Start::Head, Start::At);
            let keys = Mls::<MlsRs>::restore(config, seed, now, &records).expect("its certificate is good");
            if at_relay {
                let record = record_of_delivery(raw, RELAY_RECORD);
                return Box::new(Member::new(now, keys, AtRelay::new(node, record.as_deref()), OriginMode::Auto));
            }
            Box::new(Member::new(now, keys, Ordered::new(node, start), OriginMode::Auto))
        })
    }

    fn helpers(&self) -> Vec<(bool, Birth<Player>)> {
        vec![(true, if self.at_relay { relay() } else { orderer() })]
    }

    fn channels(&self) -> &'static [(&'static str, Guarantee)] {
        BOTH
    }

    fn secrets(&self) -> Vec<Vec<u8>> {
        vec![TOPIC.into(), TOPIC_ORDERED.into(), b"wall-e".to_vec()]
    }
}

/// All processes end at once, and come back.
pub(super) fn fleet_restart(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    for member in 0..n {
        script.then(Step::Crash(member)).wait(dice.between(Duration::ZERO, Duration::from_millis(20)));
    }
    for member in 0..n {
        script.wait(dice.between(Duration::ZERO, SECOND / 4)).then(Step::Start(member));
    }
    publish(script, n)
}

/// A member is away while the others change keys, and follows them.
pub(super) fn offline(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    let away = 1 + dice.index(n - 1);
    script.then(Step::Crash(away));
    for _ in 0..10 {
        let by = (0..n).filter(|it| *it != away).nth(dice.index(n - 1)).expect("others are left");
        script.then(Step::Command(by, Command::Rotate)).wait(dice.between(Duration::ZERO, SECOND / 2));
    }
    script.wait(SECOND).then(Step::Start(away));
    publish(script, n)
}

/// The network parts a member, perhaps a founder, from the order for some seconds.
pub(super) fn partition(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    let alone = dice.index(n);
    let others = (0..=n).filter(|it| *it != alone).collect();
    script.then(Step::Partition(vec![others, vec![alone]]));
    for member in 0..n {
        script.then(Step::Command(member, Command::Rotate)).wait(dice.between(Duration::ZERO, SECOND / 4));
    }
    script.wait(dice.between(SECOND, 4 * SECOND)).then(Step::Heal).wait(SECOND);
    publish(script, n)
}

/// Devices that wait are admitted; the last one is off meanwhile, and all others are when it comes in.
pub(super) fn admitted_while_off(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let late = n - 1;
    let mut script = Script::new(n, Network::rough(knobs.loss));
    script.start_all(0..late, knobs.jitter, dice).converge(0..late, TIMEOUT);
    // It leaves key packages, and perhaps it is admitted before it ends.
    script.then(Step::Start(late)).wait(dice.between(SECOND / 20, SECOND)).then(Step::Crash(late));
    let by = dice.index(late);
    script.then(Step::Command(by, Command::Admit { cert: identity(late).certificate().hash }));
    script.wait(dice.between(2 * SECOND, 4 * SECOND));
    for member in 0..late {
        script.then(Step::Crash(member));
    }
    script.then(Step::Start(late)).wait(5 * SECOND);
    for member in 0..late {
        script.wait(dice.between(Duration::ZERO, SECOND / 4)).then(Step::Start(member));
    }
    publish(script, n)
}

/// An evicted member comes back with its state, and without.
pub(super) fn evicted_rejoiner(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    let evicted = 1 + dice.index(n - 1);
    let others: Vec<usize> = (0..n).filter(|it| *it != evicted).collect();
    if dice.index(2) == 0 {
        script.then(Step::Crash(evicted));
    }
    script.then(Step::Evict { by: 0, whom: evicted }).converge(others.iter().copied(), TIMEOUT);
    script.then(Step::Crash(evicted)).wait(SECOND / 4).then(Step::Start(evicted)).wait(3 * SECOND);
    script.converge(others.iter().copied(), TIMEOUT);
    script.then(Step::Traffic { by: others, rate: 50, bytes: 100, lasting: SECOND }).wait(SECOND);
    script
}

/// The relay's process ends at any moment, and comes back with what it wrote; meanwhile members change keys.
pub(super) fn relay_restart(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    for _ in 0..3 {
        for member in 0..n {
            script.then(Step::Command(member, Command::Rotate)).wait(dice.between(Duration::ZERO, SECOND / 20));
        }
        script.then(Step::Crash(n)).wait(dice.between(Duration::ZERO, 2 * SECOND)).then(Step::Start(n));
        script.wait(dice.between(Duration::ZERO, SECOND));
    }
    publish(script, n)
}

/// All are together, and hear each other.
fn publish(mut script: Script, n: usize) -> Script {
    script.converge(0..n, TIMEOUT).wait(SECOND);
    script.then(Step::Traffic { by: (0..n).collect(), rate: 50, bytes: 100, lasting: SECOND }).wait(SECOND);
    script
}

/// Under which a relay's transport stores where a later run begins.
pub(super) const RELAY_RECORD: u64 = 1;
const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);
