//! MLS groups over an order: the fixture, and what the mock of their shape does not play.

use std::collections::BTreeSet;
use std::time::Duration;

use sealcast::url::OriginMode;
use sealcast_delivery::memory::{Ordered, Start};
use sealcast_keys::Command;
use sealcast_keys::mls::engine::mls_rs::MlsRs;
use sealcast_keys::mls::{self, Config, Mls};
use sealcast_sim::dice::Dice;
use sealcast_sim::network::Network;
use sealcast_sim::{Birth, Records};
use sealcast_wire::{Address, CertHash, Guarantee, Now};

use super::channels::BOTH;
use super::contributory::{GROUP, identity};
use super::fixture::{Fixture, Player, TOPIC, TOPIC_ORDERED};
use super::mocks::admission;
use super::script::{Knobs, Script, Step};
use crate::member::{Member, keys_records, record_of_delivery};
use crate::misbehaviour::{self, Misbehaviour, MlsLie, MlsRobot};
use crate::mocks::fixture::orderer;
use crate::mocks::relay::{AtRelay, blames, relay};

/// Members with certificates, and an orderer or a relay whose node follows them.
#[derive(Clone, Copy)]
pub struct MlsMembers {
    /// Whether they meet at a relay with a directory.
    pub at_relay: bool,
    /// How many members.
    pub members: usize,
    /// How many of them, from the first on, found a group if they find none.
    pub founders: usize,
    /// Whether the others wait until a member lets them in.
    pub admits: bool,
    /// Whether the relay may show them different logs.
    pub may_fork: bool,
    /// Whether what they publish are PrivateMessages (`data=mls`).
    pub private_messages: bool,
}

impl MlsMembers {
    /// So many; the first one founds the group, over an order without a relay.
    pub fn new(members: usize) -> MlsMembers {
        let (at_relay, admits, may_fork, private_messages) = Default::default();
        MlsMembers { at_relay, members, founders: 1, admits, may_fork, private_messages }
    }

    /// The key scheme of a member with what its disk holds, and where it reads on.
    fn keys(&self, member: usize, seed: [u8; 32], now: Now, raw: &Records) -> (Mls<MlsRs>, Start) {
        let founds = member < self.founders;
        let (joins, private_messages) = (founds || !self.admits, self.private_messages);
        let config = Config { founds, joins, private_messages, ..Config::new(GROUP, identity(member)) };
        let records: Vec<(u64, Vec<u8>)> = keys_records(raw).into_iter().collect();
        let start = mls::position(&records).map_or(Start::Head, Start::At);
        (Mls::restore(config, seed, now, &records).expect("its certificate is good"), start)
    }

    /// A member over an order without a relay, whose engine perhaps judges nothing.
    fn over_order(
        &self,
        member: usize,
        seed: [u8; 32],
        now: Now,
        raw: &Records,
        judges_nothing: bool,
    ) -> MlsRobot<Ordered> {
        let (mut keys, start) = self.keys(member, seed, now, raw);
        if judges_nothing {
            keys.judge_nothing();
        }
        Member::new(now, keys, Ordered::new(Address::Node(self.members as u32), start), OriginMode::Auto)
    }
}

impl Fixture for MlsMembers {
    fn cert(&self, member: usize) -> CertHash {
        identity(member).certificate().hash
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let (fixture, node) = (*self, Address::Node(self.members as u32));
        Box::new(move |now, raw| {
            if !fixture.at_relay {
                return Box::new(fixture.over_order(member, seed, now, raw, false));
            }
            let (keys, _) = fixture.keys(member, seed, now, raw);
            let (relay, handle) = AtRelay::new(node, record_of_delivery(raw, RELAY_RECORD).as_deref());
            Box::new(Member::new(now, keys, relay, OriginMode::Auto).telling(blames(handle)))
        })
    }

    fn helpers(&self) -> Vec<(bool, Birth<Player>)> {
        vec![(true, if self.at_relay { relay() } else { orderer() })]
    }

    fn admits(&self) -> bool {
        self.admits
    }

    fn may_fork(&self) -> bool {
        self.may_fork
    }

    fn actor(&self, kind: Misbehaviour, seed: [u8; 32]) -> Option<Birth<Player>> {
        Some(misbehaviour::outsider(kind, seed))
    }

    fn imposter(&self, node: usize, kind: Misbehaviour, seed: [u8; 32]) -> Option<Birth<Player>> {
        if node == self.members {
            return misbehaviour::false_relay(kind, self.members, seed);
        }
        let fixture = *self;
        let make = move |now, raw: &Records, judges_nothing| fixture.over_order(node, seed, now, raw, judges_nothing);
        misbehaviour::of_mls(kind, make, |member| identity(member).certificate().hash)
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

/// An evicted member comes back with its state, and without, and perhaps does not care that it is evicted.
pub(super) fn evicted_rejoiner(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    let evicted = 1 + dice.index(n - 1);
    let others: Vec<usize> = (0..n).filter(|it| *it != evicted).collect();
    if dice.index(2) == 0 {
        script.then(Step::Crash(evicted));
    }
    script.then(Step::Evict { by: 0, whom: evicted }).converge(others.iter().copied(), TIMEOUT);
    script.then(Step::Never { members: others.iter().copied().collect(), whom: evicted }).then(Step::Crash(evicted));
    if dice.index(2) == 0 {
        script.then(Step::Imposter(evicted, Misbehaviour::OfMls(MlsLie::Rejoins))).then(Step::Deaf(evicted));
    }
    script.wait(SECOND / 4).then(Step::Start(evicted)).wait(3 * SECOND);
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

/// A member has void messages ordered.
pub(super) fn garbage_committer(knobs: &Knobs, dice: &mut Dice) -> Script {
    liar(knobs, dice, MlsLie::AppendsGarbage)
}

/// A member makes two commits of each epoch.
pub(super) fn double_committer(knobs: &Knobs, dice: &mut Dice) -> Script {
    liar(knobs, dice, MlsLie::CommitsTwice)
}

/// A member removes another one, and everybody, without the right to.
pub(super) fn rights_forger(knobs: &Knobs, dice: &mut Dice) -> Script {
    let whom = dice.index(knobs.members - 1);
    liar(knobs, dice, MlsLie::Removes { whom })
}

/// A member has many proposals ordered.
pub(super) fn proposal_flooder(knobs: &Knobs, dice: &mut Dice) -> Script {
    liar(knobs, dice, MlsLie::Proposes)
}

/// A member complains of the commits of others, and nobody is removed.
pub(super) fn false_complainer(knobs: &Knobs, dice: &mut Dice) -> Script {
    liar(knobs, dice, MlsLie::Complains)
}

/// Half of the others cannot open the commits of a member: they come in anew, and the group removes it.
pub(super) fn bad_path(knobs: &Knobs, dice: &mut Dice) -> Script {
    spoiler(knobs, dice, MlsLie::SpoilsHalf)
}

/// Nobody can open the commits of a member: the others found the group anew, without it.
pub(super) fn bad_path_all(knobs: &Knobs, dice: &mut Dice) -> Script {
    spoiler(knobs, dice, MlsLie::SpoilsAll)
}

/// The last member makes commits that others cannot open: they are together without it, one of them though it was away, and
/// stay so, whatever it tries.
fn spoiler(knobs: &Knobs, dice: &mut Dice, lie: MlsLie) -> Script {
    let n = knobs.members;
    let honest: BTreeSet<usize> = (0..n - 1).collect();
    let mut script = Script::new(n, Network::rough(knobs.loss));
    script.start_all(0..n, knobs.jitter, dice).converge(0..n, TIMEOUT).then(Step::Crash(n - 1));
    script.then(Step::Imposter(n - 1, Misbehaviour::OfMls(lie))).then(Step::Start(n - 1));
    let away = dice.index(n - 1);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Crash(away));
    script.wait(dice.between(Duration::ZERO, 2 * SECOND)).then(Step::Start(away));
    script.converge(honest.iter().copied(), TIMEOUT);
    script.then(Step::Never { members: honest.clone(), whom: n - 1 }).then(Step::Crash(n - 1)).then(Step::Start(n - 1));
    for member in honest.clone() {
        script.then(Step::Command(member, Command::Rotate)).wait(dice.between(Duration::ZERO, SECOND));
    }
    script.wait(2 * SECOND).converge(honest.iter().copied(), TIMEOUT);
    script.then(Step::Traffic { by: honest.iter().copied().collect(), rate: 10, bytes: 100, lasting: SECOND });
    script.then(Step::Hears { members: honest, within: SECOND });
    script
}

/// The last member lies from some time on; the others change keys, one of them runs anew, and they stay together.
fn liar(knobs: &Knobs, dice: &mut Dice, lie: MlsLie) -> Script {
    let n = knobs.members;
    let honest: BTreeSet<usize> = (0..n - 1).collect();
    let mut script = Script::new(n, Network::rough(knobs.loss));
    script.start_all(0..n, knobs.jitter, dice).converge(0..n, TIMEOUT).then(Step::Crash(n - 1));
    script.then(Step::Imposter(n - 1, Misbehaviour::OfMls(lie))).then(Step::Start(n - 1));
    script.then(Step::Traffic { by: honest.iter().copied().collect(), rate: 10, bytes: 100, lasting: 6 * SECOND });
    for member in honest.clone() {
        script.then(Step::Command(member, Command::Rotate)).wait(dice.between(Duration::ZERO, SECOND));
    }
    let restarted = dice.index(n - 1);
    script.then(Step::Crash(restarted)).wait(dice.between(Duration::ZERO, SECOND)).then(Step::Start(restarted));
    script.wait(2 * SECOND).then(Step::Together { members: honest.clone(), within: TIMEOUT });
    // The liar goes, and all is as if it had not been.
    script.then(Step::Evict { by: 0, whom: n - 1 }).converge(honest.iter().copied(), TIMEOUT);
    script.then(Step::Traffic { by: honest.iter().copied().collect(), rate: 10, bytes: 100, lasting: SECOND });
    script.then(Step::Hears { members: honest, within: SECOND });
    script
}

/// A member lets others in, and sends them no Welcome: another one shows them the way.
pub(super) fn no_welcome(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, Network::rough(knobs.loss));
    script.start_all(0..2, knobs.jitter, dice).converge(0..2, TIMEOUT);
    script.then(Step::Crash(0)).then(Step::Imposter(0, Misbehaviour::OfMls(MlsLie::KeepsWelcomes)));
    script.then(Step::Start(0)).wait(SECOND).start_all(2..n, knobs.jitter, dice);
    publish(script, n)
}

/// All are together, and hear each other.
pub(super) fn publish(mut script: Script, n: usize) -> Script {
    script.converge(0..n, TIMEOUT).wait(SECOND);
    script.then(Step::Traffic { by: (0..n).collect(), rate: 50, bytes: 100, lasting: SECOND }).wait(SECOND);
    script
}

/// Under which a relay's transport stores where a later run begins.
pub(super) const RELAY_RECORD: u64 = 1;
const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);
