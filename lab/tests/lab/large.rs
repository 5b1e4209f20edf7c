//! Large groups: a thousand members over both channels of `mem:`, and what a commit costs the join.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealcast::group::Group;
use sealcast::session::core::{Core, Output};
use sealcast::url::OriginMode;
use sealcast_delivery::Batch;
use sealcast_delivery::memory::{Ordered, Start};
use sealcast_keys::plain::Everything;
use sealcast_keys::{self as keys, Command, Exclusion, HandleError, Keys, Properties, Seal, SealError, Sealed};
use sealcast_lab::member::{MemberCommand, MemberEvent};
use sealcast_lab::mocks::fixture::{MlsFixture, name};
use sealcast_lab::mocks::mls_shaped::cert;
use sealcast_lab::scenarios::fixture::{Fixture, Player};
use sealcast_sim::network::Network;
use sealcast_sim::{Observer, Reach, Sim};
use sealcast_wire::frame::{KIND_SEALED, MAGIC};
use sealcast_wire::{
    Address, CertHash, Change, Domain, Dropped, EpochId, Exhausted, Guarantee, Incarnation, Member, MemberId,
    Monotonic, Now, Protect, Roster, Slot, Source, View,
};

const MEMBERS: usize = 1000;

/// What members tell, and how much is said.
struct Seen {
    views: Vec<Option<Arc<View>>>,
    out: Vec<Option<Exclusion>>,
    /// By member: what came under each topic.
    came: Vec<BTreeMap<String, Vec<Vec<u8>>>>,
    /// Sealed datagrams by who sent them: of best effort.
    sealed: BTreeMap<usize, usize>,
}

impl Observer<Player> for Seen {
    fn sent(&mut self, _: Monotonic, from: usize, _: Reach, datagram: &[u8]) {
        if datagram.starts_with(&[MAGIC, KIND_SEALED]) {
            *self.sealed.entry(from).or_default() += 1;
        }
    }

    fn told(&mut self, _: Monotonic, node: usize, told: MemberEvent) {
        match told {
            MemberEvent::Installed(epoch) => self.views[node] = Some(epoch.view.clone()),
            MemberEvent::Excluded(why) => self.out[node] = Some(why),
            MemberEvent::Delivered(message) => {
                let of = self.came[node].entry(message.topic().to_owned()).or_default();
                of.push(message.payload().to_vec());
            }
            MemberEvent::Refused(_, why) => panic!("member {node} may not publish: {why}"),
            MemberEvent::Denied(why) => panic!("member {node} is refused: {why}"),
            MemberEvent::Prepared(_)
            | MemberEvent::Abandoned
            | MemberEvent::Keyed { .. }
            | MemberEvent::Speaks(_)
            | MemberEvent::Silence(_)
            | MemberEvent::Read(..)
            | MemberEvent::Published(..)
            | MemberEvent::Outcome(_)
            | MemberEvent::Ordered(..)
            | MemberEvent::Doubted(_)
            | MemberEvent::Gap(_)
            | MemberEvent::Sequencer(_)
            | MemberEvent::State(..)
            | MemberEvent::Restored(_)
            | MemberEvent::Notice(_)
            | MemberEvent::Blames { .. } => {}
        }
    }
}

struct Simulation {
    sim: Sim<Player>,
    seen: Seen,
}

impl Simulation {
    fn run(&mut self, lasting: Duration, found: impl Fn(&Seen) -> bool) -> bool {
        let until = self.sim.now() + lasting;
        loop {
            let next = (self.sim.now() + Duration::from_millis(10)).min(until);
            self.sim.run_until(next, &mut self.seen);
            if found(&self.seen) || next == until {
                return found(&self.seen);
            }
        }
    }

    /// Each of these publishes so many messages on both channels; what came of them at `node` is judged later.
    fn publish(&mut self, by: &[usize], times: usize) {
        for n in 0..times {
            for by in by {
                for (topic, guarantee) in [("pose", Guarantee::BestEffort), ("order", Guarantee::Ordered)] {
                    let body = format!("{by} says {n}").into_bytes();
                    let ask = MemberCommand::Publish { topic: topic.to_owned(), body, guarantee };
                    self.sim.command(*by, ask, &mut self.seen);
                }
            }
            self.run(Duration::from_millis(20), |_| false);
        }
        self.run(Duration::from_millis(500), |_| false);
    }

    /// Everything came to all of them, once, and in one order what is ordered.
    fn check(&mut self, members: impl Iterator<Item = usize> + Clone, by: &[usize], times: usize) {
        let mut order = None;
        for node in members {
            let came = std::mem::take(&mut self.seen.came[node]);
            let others = by.iter().filter(|it| **it != node).count();
            assert_eq!(came.get("pose").map_or(0, Vec::len), others * times, "best effort at {node}");
            let pose: BTreeSet<_> = came.get("pose").into_iter().flatten().collect();
            assert_eq!(pose.len(), others * times, "twice at {node}");
            let ordered = came.get("order").cloned().unwrap_or_default();
            assert_eq!(ordered.len(), by.len() * times, "ordered at {node}");
            assert_eq!(*order.get_or_insert(ordered.clone()), ordered, "another order at {node}");
        }
    }
}

/// One orders for a thousand members whose commits are ordered: they are let in, publish on both channels, and evict one.
#[test]
fn a_thousand_members_share_both_channels() {
    let fixture = MlsFixture { members: MEMBERS };
    let seen = Seen {
        views: vec![None; MEMBERS],
        out: vec![None; MEMBERS],
        came: vec![BTreeMap::new(); MEMBERS],
        sealed: BTreeMap::new(),
    };
    let mut simulation = Simulation { sim: Sim::new(1, Network::quiet()), seen };
    (0..MEMBERS).for_each(|_| _ = simulation.sim.add(true));
    for (multicast, birth) in fixture.helpers() {
        let node = simulation.sim.add(multicast);
        simulation.sim.start(node, birth, &mut simulation.seen);
    }
    for member in 0..MEMBERS {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&(member as u64).to_be_bytes());
        simulation.sim.start(member, fixture.member(member, 1, seed), &mut simulation.seen);
    }
    assert!(simulation.run(Duration::from_secs(1), |seen| seen.views[0].is_some()), "the founder founds");
    for member in 1..MEMBERS {
        let command = Command::Admit { cert: fixture.cert(member) };
        simulation.sim.command(0, MemberCommand::Command(command), &mut simulation.seen);
    }
    let of = |n: usize| move |view: &Option<Arc<View>>| view.as_ref().is_some_and(|it| it.members.len() == n);
    let all_in = simulation.run(Duration::from_secs(10), |seen| seen.views.iter().all(of(MEMBERS)));
    let short = simulation.seen.views.iter().filter(|view| !of(MEMBERS)(view)).count();
    assert!(all_in, "{short} are not in a view of all");
    let epoch = simulation.seen.views[0].as_ref().expect("it is in").epoch;
    assert!(simulation.seen.views.iter().flatten().all(|view| view.epoch == epoch), "one epoch");
    assert!(epoch.counter <= 11, "newcomers come in together: {epoch:?}");

    simulation.publish(&[1, 400, 999], 5);
    simulation.check(0..MEMBERS, &[1, 400, 999], 5);

    simulation.seen.sealed.clear();
    let evict = Command::Evict { cert: cert(&name(500)), reason: "lost".to_owned() };
    simulation.sim.command(1, MemberCommand::Command(evict), &mut simulation.seen);
    let stay = || (0..MEMBERS).filter(|it| *it != 500);
    let all_know = simulation.run(Duration::from_secs(5), |seen| stay().all(|it| of(MEMBERS - 1)(&seen.views[it])));
    assert!(all_know && simulation.seen.out[500].is_some(), "one is out, and all know");
    simulation.run(Duration::from_secs(1), |_| false);
    let (said, by) = (simulation.seen.sealed.values().sum::<usize>(), simulation.seen.sealed.len());
    assert!(by <= 3 + 64 && said <= 4 * 3 + 64, "rule B10: {by} members say {said} things at an eviction");

    simulation.publish(&[0, 499, 501], 5);
    simulation.check(stay(), &[0, 499, 501], 5);
    assert!(simulation.seen.came[500].is_empty(), "who is out reads nothing");
}

/// A scheme that installs what it is told to.
#[derive(Default)]
struct Script(VecDeque<keys::Output>);

impl Keys for Script {
    fn properties(&self) -> Properties {
        Properties::ANY
    }
    fn handle(&mut self, _: Now, _: keys::Input<'_>) -> Result<(), HandleError> {
        Ok(())
    }
    fn seal(&mut self, _: &Seal<'_>) -> Result<Sealed, SealError> {
        Err(SealError::PerDatagram)
    }
    fn has_capacity(&self, _: usize) -> bool {
        true
    }
    fn timeout(&self) -> Option<Monotonic> {
        None
    }
    fn handle_timeout(&mut self, _: Now) {}
    fn poll(&mut self) -> Option<keys::Output> {
        self.0.pop_front()
    }
}

/// Seals nothing: what a scheme's cryptography costs is not the join's.
struct Nothing(EpochId, Slot);

impl Protect for Nothing {
    fn epoch(&self) -> EpochId {
        self.0
    }
    fn slot(&self) -> Slot {
        self.1
    }
    fn seal(&self, _: Domain, _: u8, _: &mut [u8]) -> Result<u64, Exhausted> {
        Ok(0)
    }
    fn open<'a>(&self, _: &'a mut [u8]) -> Result<(Source, u8, &'a mut [u8]), Dropped> {
        Err(Dropped::NoKey)
    }
    fn vouch(&self, _: &[u8], _: &mut Vec<u8>) {}
    fn vouched(&self, _: Slot, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

/// A session's core of one member, whose group changes by one member at a time.
struct Session {
    core: Core<Script, Ordered, ()>,
    roster: Roster,
    now: Now,
    counter: u32,
    met: u64,
}

impl Session {
    fn new(members: u64) -> Session {
        let group = Group::new(Script::default(), Ordered::new(Address::Node(0), Start::Head), OriginMode::Auto);
        let core = Core::new(group.expect("they fit"));
        let now = Now { monotonic: Monotonic(1), utc: None };
        let mut session = Session { core, roster: Roster::default(), now, counter: 0, met: 0 };
        (0..members).for_each(|_| session.meet());
        session.install(None, Change::Formed);
        session
    }

    fn meet(&mut self) {
        let cert = sealcast_crypto::hash::sha256(&self.met.to_be_bytes());
        let id = MemberId { cert: CertHash(cert), incarnation: Incarnation([0; 16]) };
        let slot = self.roster.last().map_or(Slot(0), |(slot, _)| Slot(slot.0 + 1));
        self.roster.insert(slot, Member { id, name: format!("m{}", self.met).into() });
        self.met += 1;
    }

    fn install(&mut self, before: Option<&Roster>, change: Change) {
        self.counter += 1;
        self.now.monotonic = self.now.monotonic + Duration::from_millis(700);
        let (epoch, me) = (EpochId { counter: self.counter, hash: 0 }, Slot(0));
        let view = View::new(before, epoch, self.roster.clone(), me, change);
        let protect: Option<Arc<dyn Protect>> = Some(Arc::new(Nothing(epoch, me)));
        let output = keys::Output::Epoch { view, protect, access: Arc::new(Everything) };
        self.core.group_mut().keys_mut().0.push_back(output);
        self.core.handle_timeout(self.now);
        let mut batch = Batch::default();
        let mut shown = 0;
        while let Some(output) = self.core.poll(self.now, &mut batch) {
            shown += usize::from(matches!(output, Output::View(_)));
            batch.clear();
        }
        assert!(shown <= 2, "{shown} views");
    }

    /// What so many changes by one member cost, in nanoseconds each; the median.
    fn costs(&mut self, times: usize, mut change: impl FnMut(&mut Session) -> Change) -> u128 {
        let mut costs: Vec<u128> = Vec::new();
        for _ in 0..times {
            let before = self.roster.clone();
            let begun = Instant::now();
            let change = change(self);
            self.install(Some(&before), change);
            costs.push(begun.elapsed().as_nanos());
        }
        costs.sort_unstable();
        costs[costs.len() / 2]
    }
}

/// Prints what a commit costs one member inside the join: rosters, group, events, install; the goal is a ratio of 3.
#[test]
#[ignore = "a measurement: cargo test --workspace --test lab large:: -- --ignored --nocapture"]
fn what_a_commit_costs_inside_the_join() {
    let mut first = None;
    println!("members   one joins      one goes");
    for members in [64, 1000, 10_000] {
        let mut session = Session::new(members);
        let joins = |session: &mut Session| {
            session.meet();
            Change::Joined
        };
        let goes = |session: &mut Session| {
            let last = session.roster.last().map(|(slot, _)| slot).expect("there are some");
            session.roster.remove(last);
            Change::Evicted
        };
        session.costs(20, joins);
        let costs = (session.costs(200, joins), session.costs(200, goes));
        let (joined, gone) = *first.get_or_insert(costs);
        let ratio = |cost: u128, of: u128| cost as f64 / of as f64;
        let ratios = (ratio(costs.0, joined), ratio(costs.1, gone));
        println!("{members:7} {:6} ns {:4.2} {:6} ns {:4.2}", costs.0, ratios.0, costs.1, ratios.1);
    }
}
