//! Members of a group on a LAN without loss, in virtual time, whose control messages are counted.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_crypto::identity::{Act, Authority, Identity, MemberSecret, Request, Right, Rights};
use sealcast_crypto::signature::Algorithm;
use sealcast_keys::contributory::{Config, Contributory, Counters, Memo};
use sealcast_keys::{Input, Keys as _, Output};
use sealcast_wire::{Address, EpochId, Monotonic, Now, Source, Utc};

use crate::Failure;

/// What the members of a group sent until they had a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// JOINs sent.
    pub(crate) joins: u64,
    /// Responses sent.
    pub(crate) responses: u64,
    /// Bytes of a response, on average.
    pub(crate) response_bytes: f64,
    /// Control messages of all kinds.
    pub(crate) messages: u64,
    /// Those of them that ask for certificates and give them.
    pub(crate) cards: u64,
    /// All of them, by kind.
    pub(crate) kinds: Vec<(&'static str, u64)>,
    /// Epochs that were agreed on the way.
    pub(crate) agreements: u64,
    /// From the last start to the last member's key.
    pub(crate) took: Duration,
}

/// A LAN of members.
pub(crate) struct Lan {
    members: Vec<Contributory>,
    views: Vec<Option<(EpochId, usize, Monotonic)>>,
    now: Monotonic,
    /// What is under way, soonest first.
    wire: BinaryHeap<Reverse<UnderWay>>,
    number: u64,
    epochs: BTreeSet<EpochId>,
    memo: Arc<Memo>,
    rng: ChaCha20Rng,
}

/// When a message arrives, its number, where, and its bytes.
type UnderWay = (Monotonic, u64, usize, Arc<[u8]>);

/// Identities of one group with one or more compartments.
pub(crate) fn identities(members: usize, compartments: usize, seed: u64) -> Result<Vec<Arc<Identity>>, Failure> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut authority = Authority::create("lab CA", Algorithm::Ed25519, DATE, &mut rng)?;
    (0..members)
        .map(|i| {
            let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng);
            let mut rights = Rights::none();
            (1..compartments)
                .try_for_each(|c| Right::new(GROUP, Act::Both, &format!("part{c}/#")).map(|r| rights.grant(r)))?;
            rights.grant(Right::new(GROUP, Act::Both, "#")?);
            let request = Request { name: format!("robot{i}"), keys: secret.public(), rights, attributes: vec![] };
            let certificate = authority.issue(&request, DATE, YEAR_SECONDS)?;
            let identity = Identity::new(&certificate, &secret, authority.anchor().clone())?;
            Ok(Arc::new(identity.with_bootstrap_key(GROUP, authority.bootstrap_key(GROUP))))
        })
        .collect()
}

impl Lan {
    /// Nobody is there yet.
    pub(crate) fn new(seed: u64) -> Lan {
        Lan {
            members: Vec::new(),
            views: Vec::new(),
            now: Monotonic(1_000_000),
            wire: BinaryHeap::new(),
            number: 0,
            epochs: BTreeSet::new(),
            memo: Arc::default(),
            rng: ChaCha20Rng::seed_from_u64(seed),
        }
    }

    /// Members start within `spread`, and find each other; what all sent since.
    ///
    /// # Errors
    /// If they have no common key after a minute.
    pub(crate) fn join(&mut self, who: &[Arc<Identity>], spread: Duration) -> Result<Counted, Failure> {
        let (before, epochs) = (self.sent(), self.epochs.len());
        let mut starts: Vec<Duration> = who.iter().map(|_| self.between(spread)).collect();
        starts.sort();
        let begin = self.now;
        for (identity, start) in who.iter().zip(&starts) {
            self.run(begin + *start, |_| false);
            self.now = begin + *start;
            let mut seed = [0; 32];
            self.rng.fill_bytes(&mut seed);
            let mut config = Config::new(GROUP, Arc::clone(identity));
            config.memo = Some(Arc::clone(&self.memo));
            self.members.push(Contributory::new(config, seed, self.time()));
            self.views.push(None);
            self.drain(self.members.len() - 1);
        }
        let last = self.now;
        self.run(last + Duration::from_secs(60), Lan::agreed);
        if !self.agreed() {
            return Err(format!("{} members did not agree on a key", self.members.len()).into());
        }
        let keyed = self.views.iter().flatten().map(|v| v.2).max().unwrap_or(last);
        let after = self.sent();
        let response = after.response.sent - before.response.sent;
        let bytes = after.response.sent_bytes - before.response.sent_bytes;
        let all = |c: &Counters| c.iter().map(|(_, t)| t.sent).sum::<u64>();
        let cards = |c: &Counters| c.fetch.sent + c.give.sent;
        Ok(Counted {
            joins: after.join.sent - before.join.sent,
            responses: response,
            response_bytes: if response > 0 { bytes as f64 / response as f64 } else { 0.0 },
            messages: all(&after) - all(&before),
            cards: cards(&after) - cards(&before),
            kinds: after.iter().zip(before.iter()).map(|((kind, a), (_, b))| (kind, a.sent - b.sent)).collect(),
            agreements: (self.epochs.len() - epochs) as u64,
            took: keyed.since(last),
        })
    }

    /// Lets time pass without a change.
    pub(crate) fn rest(&mut self, time: Duration) {
        let until = self.now + time;
        self.run(until, |_| false);
        self.now = until;
    }

    fn agreed(&self) -> bool {
        let n = self.members.len();
        let first = self.views[0].map(|v| v.0);
        self.views.iter().all(|v| v.is_some_and(|v| v.1 == n && Some(v.0) == first))
    }

    fn run(&mut self, until: Monotonic, done: impl Fn(&Lan) -> bool) {
        while !done(self) {
            let arrival = self.wire.peek().map(|Reverse((at, ..))| *at);
            let timer = self.members.iter().filter_map(sealcast_keys::Keys::timeout).min();
            let Some(next) = arrival.into_iter().chain(timer).min().filter(|at| *at <= until) else { return };
            self.now = next.max(self.now);
            while let Some(Reverse((at, ..))) = self.wire.peek()
                && *at <= self.now
            {
                let Some(Reverse((_, _, to, bytes))) = self.wire.pop() else { break };
                let source = Source::Outside(Address::Node(0));
                // What a member drops, it counts; here only what is sent matters.
                let now = self.time();
                let _ = self.members[to].handle(now, Input::Message { source: &source, position: None, bytes: &bytes });
                self.drain(to);
            }
            for i in 0..self.members.len() {
                if self.members[i].timeout().is_some_and(|at| at <= self.now) {
                    let now = self.time();
                    self.members[i].handle_timeout(now);
                    self.drain(i);
                }
            }
        }
    }

    fn drain(&mut self, from: usize) {
        while let Some(output) = self.members[from].poll() {
            match output {
                Output::Send { bytes, .. } => {
                    let bytes: Arc<[u8]> = bytes.into();
                    for to in (0..self.members.len()).filter(|to| *to != from) {
                        let at = self.now + DELAY + self.between(DELAY);
                        self.number += 1;
                        self.wire.push(Reverse((at, self.number, to, Arc::clone(&bytes))));
                    }
                }
                Output::Epoch { view, .. } => {
                    self.epochs.insert(view.epoch);
                    self.views[from] = Some((view.epoch, view.members.len(), self.now));
                }
                // No transport is here that could have delivered anything in the view.
                Output::Prepare { view, .. } => {
                    let now = self.time();
                    let _ = self.members[from].handle(now, Input::Flushed(view.epoch, [0; 32]));
                }
                _ => {}
            }
        }
    }

    fn sent(&self) -> Counters {
        let mut sum = Counters::default();
        for m in &self.members {
            let c = m.status(self.time()).counters;
            for (mine, theirs) in [
                (&mut sum.join, c.join),
                (&mut sum.response, c.response),
                (&mut sum.r1, c.r1),
                (&mut sum.r2, c.r2),
                (&mut sum.kc, c.kc),
                (&mut sum.status, c.status),
                (&mut sum.fetch, c.fetch),
                (&mut sum.give, c.give),
                (&mut sum.beacon, c.beacon),
                (&mut sum.other, c.other),
            ] {
                mine.sent += theirs.sent;
                mine.sent_bytes += theirs.sent_bytes;
            }
        }
        sum
    }

    fn time(&self) -> Now {
        Now { monotonic: self.now, utc: Some(Utc(DATE.0 + 60)) }
    }

    fn between(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).expect("a spread of seconds");
        Duration::from_micros(self.rng.next_u64() % (micros + 1))
    }
}

const GROUP: &str = "lab";
/// 2026-11-20.
const DATE: Utc = Utc(1_795_132_800);
const YEAR_SECONDS: i64 = 365 * 24 * 60 * 60;
/// The least delay of a LAN between programs; the most is twice that.
const DELAY: Duration = Duration::from_micros(150);
