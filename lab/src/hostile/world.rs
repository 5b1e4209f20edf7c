//! A small group in one process, whose datagrams are recorded and then forged.

use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast::group::{Group, Output, Publication};
use sealcast::url::OriginMode;
use sealcast_crypto::bootstrap::BootstrapKey;
use sealcast_crypto::identity::{Act, Authority, Identity, MemberSecret, Request, Right, Rights};
use sealcast_crypto::signature::Algorithm;
use sealcast_delivery::Batch;
use sealcast_delivery::multicast::{self, Multicast};
use sealcast_keys::contributory::{Config, Contributory};
use sealcast_wire::{Address, Drops, Guarantee, Monotonic, Now, Protect, Utc};

use crate::Failure;

/// A member as the lab holds it.
pub(super) type Member = Group<Contributory, Multicast>;

/// The group's members and what they sent.
pub(super) struct World {
    /// Member 0 will be attacked.
    pub(super) members: Vec<Member>,
    pub(super) now: Now,
    /// Every datagram so far, with its sender.
    pub(super) sent: Vec<(usize, Vec<u8>)>,
    /// Messages that member 0 delivered.
    pub(super) delivered: u64,
    /// Draws what is lost while the group forms, so that its repairs are seen too.
    lossy: Option<ChaCha20Rng>,
    batch: Batch,
}

/// Certificates are slow to make and the same in every world.
pub(super) struct People {
    pub(super) identities: Vec<Arc<Identity>>,
    pub(super) bootstrap_key: BootstrapKey,
}

impl People {
    /// Members of one group, drawn from a seed.
    pub(super) fn new(seed: u64) -> Result<People, Failure> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut authority = Authority::create("hostile CA", Algorithm::Ed25519, DATE, &mut rng)?;
        let identities = (0..=WRITER)
            .map(|i| {
                let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng);
                let mut rights = Rights::none();
                // One may only read a part and one only write one, so that there are compartments,
                // signatures, and senders' own keys.
                let (act, topics) = match i {
                    READER => (Act::Subscribe, "open/#"),
                    WRITER => (Act::Publish, "logs/#"),
                    _ => (Act::Both, "#"),
                };
                rights.grant(Right::new(GROUP, act, topics)?);
                let request = Request { name: format!("robot{i}"), keys: secret.public(), rights, attributes: vec![] };
                let certificate = authority.issue(&request, DATE, YEAR_SECONDS)?;
                let identity = Identity::new(&certificate, &secret, authority.anchor().clone())?;
                Ok(Arc::new(identity.with_bootstrap_key(GROUP, authority.bootstrap_key(GROUP))))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        Ok(People { identities, bootstrap_key: BootstrapKey::new(&authority.bootstrap_key(GROUP)) })
    }
}

impl World {
    /// A group that has formed and talked; what it sent is recorded.
    pub(super) fn new(people: &People, seed: u64) -> Result<World, Failure> {
        let mut world = World::formed(people, seed)?;
        for (member, topic, bytes) in [
            (HOSTILE, "private/small", 20),
            (HONEST, "open/small", 100),
            (HONEST, "open/large", 9_000),
            (HOSTILE, "private/large", 9_000),
            (WRITER, "logs/small", 30),
        ] {
            world.publish(member, topic, &vec![7; bytes])?;
        }
        world.run(Duration::from_secs(1), |_| false);
        Ok(world)
    }

    /// A group that has formed: the same as in [`World::new`], before it talked.
    pub(super) fn formed(people: &People, seed: u64) -> Result<World, Failure> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut world = World {
            members: Vec::new(),
            now: Now { monotonic: Monotonic(1_000_000), utc: Some(Utc(DATE.0 + 60)) },
            sent: Vec::new(),
            delivered: 0,
            lossy: None,
            batch: Batch::default(),
        };
        for identity in &people.identities {
            let mut own = [0; 32];
            rng.fill_bytes(&mut own);
            let keys = Contributory::new(Config::new(GROUP, Arc::clone(identity)), own, world.now);
            let delivery = Multicast::new(multicast::Config::default());
            world.members.push(Group::new(keys, delivery, OriginMode::Auto)?);
        }
        let n = world.members.len();
        world.lossy = Some(rng);
        world.run(Duration::from_secs(5), |w| w.members.iter().all(|m| m.view().is_some_and(|v| v.members.len() == n)));
        if world.members.iter().any(|m| m.view().is_none_or(|v| v.members.len() < n)) {
            return Err("the group to be attacked did not form".into());
        }
        world.lossy = None;
        world.run(Duration::from_millis(400), |_| false);
        Ok(world)
    }

    /// Publishes as a member, and lets it arrive.
    pub(super) fn publish(&mut self, member: usize, topic: &str, body: &[u8]) -> Result<(), Failure> {
        let message = Publication { topic, body, guarantee: Guarantee::BestEffort, sent_micros: None };
        self.members[member].publish(self.now, message)?;
        self.run(Duration::from_millis(1), |_| false);
        Ok(())
    }

    /// Lets time pass until `done`, or for `most`; every datagram reaches all others at once.
    pub(super) fn run(&mut self, most: Duration, done: impl Fn(&World) -> bool) {
        let end = self.now.monotonic + most;
        loop {
            self.pump();
            if done(self) {
                return;
            }
            let next = self.members.iter().filter_map(Group::timeout).min();
            match next {
                Some(at) if at <= end => self.now.monotonic = at.max(self.now.monotonic),
                _ => {
                    self.now.monotonic = end;
                    return;
                }
            }
            let now = self.now;
            for m in &mut self.members {
                if m.timeout().is_some_and(|t| t <= now.monotonic) {
                    m.handle_timeout(now);
                }
            }
        }
    }

    /// Carries datagrams until nobody has one.
    fn pump(&mut self) {
        loop {
            let from = self.sent.len();
            for i in 0..self.members.len() {
                self.drain(i);
            }
            if self.sent.len() == from {
                return;
            }
            for at in from..self.sent.len() {
                let (sender, datagram) = self.sent[at].clone();
                for (_, m) in self.members.iter_mut().enumerate().filter(|(i, _)| *i != sender) {
                    if self.lossy.as_mut().is_some_and(|rng| rng.next_u32() % LOST == 0) {
                        continue;
                    }
                    m.handle_datagram(self.now, Address::Node(sender as u32), &mut datagram.clone());
                }
            }
        }
    }

    /// Takes what a member wants done.
    fn drain(&mut self, i: usize) {
        loop {
            self.batch.clear();
            match self.members[i].poll(self.now, &mut self.batch) {
                None => return,
                Some(Output::Transmit(_)) => self.sent.extend(self.batch.iter().map(|d| (i, d.to_vec()))),
                Some(Output::Deliver(_)) if i == 0 => self.delivered += 1,
                Some(Output::Store { .. }) => self.members[i].stored(),
                Some(_) => {}
            }
        }
    }

    /// Lets a moment pass at member 0 alone; what it wants to send is thrown away.
    pub(super) fn tick(&mut self) {
        self.now.monotonic = self.now.monotonic + STEP;
        let now = self.now;
        if self.members[0].timeout().is_some_and(|t| t <= now.monotonic) {
            self.members[0].handle_timeout(now);
            self.drain_alone();
        }
    }

    /// Hands member 0 a datagram, alone: what it answers is thrown away.
    pub(super) fn attack(&mut self, datagram: &mut [u8]) {
        self.members[0].handle_datagram(self.now, Address::Node(99), datagram);
        self.drain_alone();
    }

    fn drain_alone(&mut self) {
        let sent = self.sent.len();
        self.drain(0);
        self.sent.truncate(sent);
    }

    /// What member 0 has dropped so far.
    pub(super) fn drops(&self) -> Drops {
        self.members[0].drops().clone()
    }

    /// The capability of a member, as the hostile insider that it may be.
    pub(super) fn protect(&self, member: usize) -> Arc<dyn Protect> {
        let epoch = self.members[member].epoch().expect("the group has formed");
        Arc::clone(epoch.protect.as_ref().expect("the group is sealed"))
    }
}

/// The member that knows the keys and means ill.
pub(super) const HOSTILE: usize = 1;
/// The member that goes on talking.
pub(super) const HONEST: usize = 2;
/// The member that may only read.
pub(super) const READER: usize = 3;
/// The member that may only write.
pub(super) const WRITER: usize = 4;
/// Share of the datagrams that are lost, for a member, while the group forms: one in this many.
const LOST: u32 = 12;
/// The name of the attacked group.
pub(super) const GROUP: &str = "hostile";
/// 2026-11-20.
const DATE: Utc = Utc(1_795_132_800);
const YEAR_SECONDS: i64 = 365 * 24 * 60 * 60;
/// Between two hostile datagrams: a chunk of them ends before anybody is suspected for silence.
const STEP: Duration = Duration::from_micros(200);
