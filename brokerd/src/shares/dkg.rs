//! The brokers make a key that nobody knows: distributed key generation over their own order (E8).
//!
//! Source: P. Feldman, FOCS 1987 (verifiable sharing); T. Pedersen, EUROCRYPT 1991 (the sum of n sharings);
//! R. Gennaro, S. Jarecki, H. Krawczyk, T. Rabin, J. Cryptology 20 (2007) 51–83 (what bias remains in its key).
//! Assumed of the order: all honest brokers see the same words at the same heights, and an honest broker's word is
//! ordered before the round's deadline. Of 3f + 1 brokers at most f do anything else.
//!
//! ```text
//! announce   Y_i = g^y_i with proof, to which shares are sealed; promise H(φ_i0 … φ_i,t−1)
//! deal       φ_ik = g^a_ik as promised, proof of a_i0; X_i = g^x_i with proof; for each j: f_i(j) sealed under X_i, Y_j
//! judge      for each dealer whose share is bad: Z = X_i^y_j with a proof, by which everybody opens what i sealed for j
//! made       over the dealers that remain: h = Π φ_i0, h_j = Π φ_ik^(j^k); j's own share x_j = Σ f_i(j)
//! ```
//! A round ends when everybody has spoken who is not excluded, or `round_blocks` blocks after it began; there is no
//! clock here. A run begins with the first announcement in the order. Whoever was silent, or said what is provably wrong,
//! is excluded: its dealing counts no more in that run, whatever it says. After more than f exclusions the run has
//! failed, and the next number may begin. Who announced itself is still owed its share when it is excluded as a dealer
//! (a slow broker is no liar), so its complaints are heard: they prove themselves.
//!
//! *All judge alike.* Everything that excludes is computed from the ordered words alone: no broker takes another's
//! word for a bad share, and nothing secret decides. A complaint whose proof fails, or that discloses a good share, changes nothing.
//!
//! *Promise first* (S30): commitments are promised before any is seen, so nobody chooses its own after those of others.
//! What is left to f liars is to drop out after seeing all: see SECURITY.md.
//!
//! *A crash loses nothing.* All that a broker draws follows from its seed and the run, so that a machine that is
//! given the same seed and the same words stands where the lost one stood, and says the same bytes.

mod contribution;
mod outcome;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::mem;

use sealcast_broker::genesis::Cluster;
use sealcast_crypto::group::{Element, Parameters, ParametersError, PrimeGroup, feldman};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::tdh2::{KeyShare, PublicKey};
use sealcast_wire::limits::BROKERS_MAX;

use self::contribution::{Contribution, KEY, SECRET, SENDER};
pub use self::outcome::{Event, Failure, Fault, Made};
pub use super::word::Round;
use super::word::{Announcement, Binding, Complaint, Dealing, Head, SEALED_LEN};

/// What a cluster's brokers agree on before they make a key, and which of them this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The cluster.
    pub cluster: Cluster,
    /// The epoch of the key that is made, from 0.
    pub epoch: u32,
    /// n.
    pub brokers: u16,
    /// This broker, from 0.
    pub index: u16,
    /// t: 2f + 1, or f + 1. At least 2.
    pub threshold: u16,
    /// So many blocks a round waits for those who are silent; `limits::DKG_ROUND_BLOCKS`.
    pub round_blocks: u64,
}

/// The machine of one broker: runs, until one of them makes a key.
pub struct Dkg<G: PrimeGroup> {
    setup: Setup,
    seed: Secret<32>,
    run: u32,
    binding: Binding,
    contribution: Contribution<G>,
    /// The order holds an announcement of ours that is not from this seed: we take no part in this run.
    lost: bool,
    phase: Phase<G>,
    excluded: BTreeMap<u16, Fault>,
    unheard: Option<Unheard>,
    events: VecDeque<Event<G>>,
}

/// Why no DKG can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// n or t.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    /// t is 1: every dealer would know the key.
    #[error("a key of which one share opens alone is dealt, not made together")]
    Alone,
    /// There is no such broker.
    #[error("there is no broker {0}")]
    Index(u16),
}

impl<G: PrimeGroup> Dkg<G> {
    /// A machine that has heard nothing yet. The seed is drawn once for each cluster and broker, and kept until there is a key.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn new(setup: Setup, seed: Secret<32>) -> Result<Dkg<G>, SetupError> {
        let Setup { brokers, threshold, index, .. } = setup;
        Parameters::new(&setup.cluster.0, threshold, brokers).validate()?;
        if usize::from(brokers) > BROKERS_MAX {
            return Err(ParametersError::Holders(brokers).into());
        }
        if threshold < 2 {
            return Err(SetupError::Alone);
        }
        if index >= brokers {
            return Err(SetupError::Index(index));
        }
        let binding = Binding::new::<G>(&setup, 0);
        Ok(Dkg {
            contribution: Contribution::derive(&setup, binding, &seed),
            setup,
            seed,
            run: 0,
            binding,
            lost: false,
            phase: Phase::Waiting,
            excluded: BTreeMap::new(),
            unheard: None,
            events: VecDeque::new(),
        })
    }

    /// Announces us, if no run is under way and there is no key: the first one, or the next after one that failed.
    /// Nothing happens if the order begins a run first: then we announce ourselves by that.
    pub fn begin(&mut self) {
        if matches!(self.phase, Phase::Waiting) {
            self.announce();
        }
    }

    /// A broker's word has its place in the order. Words come in their order, those of a block before its
    /// [`Dkg::at`]; whose they are, the batches' signatures say.
    pub fn word(&mut self, height: u64, broker: u16, bytes: &[u8]) {
        self.at(height.saturating_sub(1));
        let Ok((head, body)) = Head::decode(bytes) else { return };
        if head.binding != self.binding || head.broker != broker || broker >= self.setup.brokers {
            return;
        }
        // Only a broker's first word counts; of others nothing is read, so that they cost nothing.
        if self.has_spoken(broker, head.round) {
            return;
        }
        let phase = mem::replace(&mut self.phase, Phase::Over);
        self.phase = match (phase, head.round) {
            (phase @ (Phase::Waiting | Phase::Announcing { .. }), Round::Announce) => {
                self.announced(phase, height, broker, body)
            }
            (Phase::Dealing { until, members, dealings }, Round::Deal) => {
                let dealings = self.dealt(&members, dealings, broker, body);
                Phase::Dealing { until, members, dealings }
            }
            (Phase::Judging { until, members, dealings, judged, received }, Round::Judge) => {
                let judged = self.judged(&members, &dealings, judged, broker, body);
                Phase::Judging { until, members, dealings, judged, received }
            }
            // Too late, too early, or after the end.
            (phase, _) => phase,
        };
        self.advance(height);
    }

    /// All words of blocks up to this one were given.
    pub fn at(&mut self, height: u64) {
        while let Some(until) = self.deadline().filter(|until| *until <= height) {
            self.close(until);
        }
    }

    /// What comes of it; until `None` after every call above.
    pub fn poll(&mut self) -> Option<Event<G>> {
        self.events.pop_front().or_else(|| {
            let unheard = self.unheard.as_mut().filter(|it| !it.said)?;
            unheard.said = true;
            Some(Event::Say(unheard.word.clone()))
        })
    }

    /// What we said and is not ordered yet: to be said again if it may be lost.
    pub fn unheard(&self) -> Option<&[u8]> {
        self.unheard.as_ref().map(|it| &it.word[..])
    }

    /// The number of the run that is under way or comes next.
    pub fn run(&self) -> u32 {
        self.run
    }

    /// The height at which the round under way ends even if somebody is silent.
    pub fn deadline(&self) -> Option<u64> {
        match self.phase {
            Phase::Announcing { until, .. } | Phase::Dealing { until, .. } | Phase::Judging { until, .. } => {
                Some(until)
            }
            Phase::Waiting | Phase::Over => None,
        }
    }

    /// Whether no further word of this broker is heard in this round.
    fn has_spoken(&self, broker: u16, round: Round) -> bool {
        match (&self.phase, round) {
            (Phase::Announcing { announced, .. }, Round::Announce) => {
                announced.contains_key(&broker) || self.excluded.contains_key(&broker)
            }
            (Phase::Dealing { dealings, .. }, Round::Deal) => {
                dealings.contains_key(&broker) || self.excluded.contains_key(&broker)
            }
            // The excluded are owed shares, and may complain.
            (Phase::Judging { judged, .. }, Round::Judge) => judged.contains(&broker),
            _ => false,
        }
    }

    fn announced(&mut self, phase: Phase<G>, height: u64, broker: u16, body: &[u8]) -> Phase<G> {
        let Ok(it) = Announcement::<G>::decode(body) else { return phase };
        let (until, mut announced) = match phase {
            Phase::Announcing { until, announced } => (until, announced),
            // The first announcement begins the run, for us too.
            _ => {
                self.announce();
                (height.saturating_add(self.setup.round_blocks), BTreeMap::new())
            }
        };
        self.heard(broker, Round::Announce);
        self.lost |= broker == self.setup.index && it != self.contribution.announcement;
        if it.knowledge.holds(&it.key, &self.binding.proof(broker, KEY)) {
            announced.insert(broker, it);
        } else {
            self.exclude(broker, Fault::Proof(Round::Announce));
        }
        Phase::Announcing { until, announced }
    }

    fn dealt(&mut self, members: &Members<G>, mut dealings: Dealings<G>, broker: u16, body: &[u8]) -> Dealings<G> {
        let Some(member) = members.get(&broker) else { return dealings };
        let Ok(it) = Dealing::<G>::decode(body) else { return dealings };
        self.heard(broker, Round::Deal);
        match self.check(&it, broker, member, members.len()) {
            Ok(()) => {
                dealings.insert(broker, it);
            }
            Err(fault) => self.exclude(broker, fault),
        }
        dealings
    }

    /// What everybody can check of a dealing.
    fn check(&self, it: &Dealing<G>, broker: u16, member: &Announcement<G>, members: usize) -> Result<(), Fault> {
        let whole = it.commitment.len() == usize::from(self.setup.threshold) && it.sealed.len() == members;
        if !whole || self.binding.promise(broker, &it.commitment) != member.promise {
            return Err(Fault::Promise);
        }
        let knows = it.knowledge.holds(&it.commitment[0], &self.binding.proof(broker, SECRET))
            && it.sender_knowledge.holds(&it.sender, &self.binding.proof(broker, SENDER));
        if knows { Ok(()) } else { Err(Fault::Proof(Round::Deal)) }
    }

    fn judged(
        &mut self,
        members: &Members<G>,
        dealings: &Dealings<G>,
        mut judged: BTreeSet<u16>,
        broker: u16,
        body: &[u8],
    ) -> BTreeSet<u16> {
        let Some(place) = members.keys().position(|it| *it == broker) else { return judged };
        let Ok(complaints) = Complaint::<G>::decode_all(body) else { return judged };
        judged.insert(broker);
        self.heard(broker, Round::Judge);
        for it in &complaints {
            let Some(dealing) = dealings.get(&it.dealer) else { continue };
            if self.excluded.contains_key(&it.dealer) {
                continue;
            }
            if self.upheld(it, dealing, broker, &members[&broker].key, place) {
                self.exclude(it.dealer, Fault::Share(broker));
            } else {
                self.events.push_back(Event::Refuted { run: self.run, complainer: broker, dealer: it.dealer });
            }
        }
        judged
    }

    /// Whether the complaint shows that the dealer's share for the complainer, who has this place and key, is bad.
    fn upheld(&self, it: &Complaint<G>, dealing: &Dealing<G>, complainer: u16, key: &Element<G>, place: usize) -> bool {
        let context = self.binding.share(it.dealer, complainer);
        let opened = || it.disclosure.open(&dealing.sender, key, &context, &dealing.sealed[place]).ok();
        it.disclosure.holds(&dealing.sender, key, &context)
            && opened().and_then(|share| fits::<G>(dealing, complainer, &share)).is_none()
    }

    /// Ends the round as often as everybody has spoken who is waited for.
    fn advance(&mut self, height: u64) {
        while self.is_complete() || self.failed() {
            self.close(height);
        }
    }

    fn is_complete(&self) -> bool {
        let excluded = |broker: &u16| self.excluded.contains_key(broker);
        match &self.phase {
            Phase::Announcing { announced, .. } => {
                (0..self.setup.brokers).all(|it| announced.contains_key(&it) || excluded(&it))
            }
            Phase::Dealing { members, dealings, .. } => {
                members.keys().all(|it| dealings.contains_key(it) || excluded(it))
            }
            Phase::Judging { members, judged, .. } => members.keys().all(|it| judged.contains(it) || excluded(it)),
            Phase::Waiting | Phase::Over => false,
        }
    }

    /// f is exceeded.
    fn failed(&self) -> bool {
        self.excluded.len() > usize::from((self.setup.brokers - 1) / 3)
    }

    /// The round ends at this height, and the next one begins.
    fn close(&mut self, height: u64) {
        self.unheard = None;
        let until = height.saturating_add(self.setup.round_blocks);
        let phase = mem::replace(&mut self.phase, Phase::Over);
        match &phase {
            // Enough is wrong already; who is silent so far is not to blame.
            _ if self.failed() => {}
            Phase::Announcing { announced, .. } => {
                (0..self.setup.brokers).filter(|it| !announced.contains_key(it)).for_each(|it| {
                    self.exclude(it, Fault::Silent(Round::Announce));
                });
            }
            Phase::Dealing { members, dealings, .. } => {
                members.keys().filter(|it| !dealings.contains_key(it)).for_each(|it| {
                    self.exclude(*it, Fault::Silent(Round::Deal));
                });
            }
            // Who says nothing here complains of nobody.
            Phase::Judging { .. } | Phase::Waiting | Phase::Over => {}
        }
        if self.failed() {
            let excluded = u16::try_from(self.excluded.len()).expect("no more than brokers are excluded");
            return self.fail(Failure::Excluded { excluded, brokers: self.setup.brokers });
        }
        match phase {
            Phase::Announcing { announced: members, .. } => {
                self.deal(&members);
                self.phase = Phase::Dealing { until, members, dealings: BTreeMap::new() };
            }
            Phase::Dealing { members, dealings, .. } => {
                let received = self.judge(&members, &dealings);
                self.phase = Phase::Judging { until, members, dealings, judged: BTreeSet::new(), received };
            }
            Phase::Judging { dealings, received, .. } => self.conclude(dealings, &received),
            Phase::Waiting | Phase::Over => {}
        }
    }

    /// Says our dealing, if we are a member.
    fn deal(&mut self, members: &Members<G>) {
        let me = self.setup.index;
        if self.lost || !members.contains_key(&me) {
            return;
        }
        let Contribution { dealt, sender, .. } = &self.contribution;
        let seal = |(receiver, member): (&u16, &Announcement<G>)| -> [u8; SEALED_LEN] {
            let share = &dealt.shares[usize::from(*receiver)];
            let sealed = sender.seal(&member.key, &self.binding.share(me, *receiver), share.expose());
            sealed.try_into().expect("a share of 32 bytes gets a tag")
        };
        let dealing = Dealing {
            commitment: dealt.commitment.clone(),
            knowledge: self.contribution.secret.know(&self.binding.proof(me, SECRET)),
            sender: *sender.public(),
            sender_knowledge: sender.know(&self.binding.proof(me, SENDER)),
            sealed: members.iter().map(seal).collect(),
        };
        self.say(Round::Deal, dealing.encode(self.binding, me));
    }

    /// Opens what was dealt to us, and complains of what is bad.
    fn judge(&mut self, members: &Members<G>, dealings: &Dealings<G>) -> BTreeMap<u16, Secret<32>> {
        let me = self.setup.index;
        let mut received = BTreeMap::new();
        let Some(place) = members.keys().position(|it| *it == me).filter(|_| !self.lost) else { return received };
        let mut complaints = Vec::new();
        for (dealer, dealing) in dealings {
            let context = self.binding.share(*dealer, me);
            let opened = self.contribution.key.open(&dealing.sender, &context, &dealing.sealed[place]).ok();
            match opened.and_then(|share| fits::<G>(dealing, me, &share)) {
                Some(share) => {
                    received.insert(*dealer, share);
                }
                None => {
                    let disclosure = self.contribution.key.disclose(&dealing.sender, &context);
                    complaints.push(Complaint { dealer: *dealer, disclosure });
                }
            }
        }
        self.say(Round::Judge, Complaint::encode_all(&complaints, self.binding, me));
        received
    }

    /// Sums up what remains.
    fn conclude(&mut self, mut dealings: Dealings<G>, received: &BTreeMap<u16, Secret<32>>) {
        dealings.retain(|dealer, _| !self.excluded.contains_key(dealer));
        let Setup { cluster, epoch, brokers, threshold, index, .. } = &self.setup;
        let epoch = u64::from(*epoch);
        let parameters = Parameters { epoch, ..Parameters::new(&cluster.0, *threshold, *brokers) };
        let commitments: Vec<&[Element<G>]> = dealings.values().map(|it| &it.commitment[..]).collect();
        let sum = feldman::sum_of_commitments(*threshold, &commitments);
        let keys = sum.and_then(|it| feldman::public_keys(&it, *brokers));
        let Some(key) = keys.and_then(|(h, shares)| PublicKey::new(parameters, h, shares).ok()) else {
            return self.fail(Failure::Degenerate);
        };
        // x_j = Σ f_i(j), checked against h_j
        let shares: Option<Vec<_>> = dealings.keys().map(|dealer| received.get(dealer)).collect();
        let x = shares.and_then(feldman::sum_of_shares::<G>);
        let share = x.and_then(|x| KeyShare::new(&key, index + 1, &x).ok());
        let dealers = dealings.into_keys().collect();
        self.events.push_back(Event::Made(Box::new(Made { run: self.run, key, share, dealers })));
    }

    fn fail(&mut self, why: Failure) {
        self.events.push_back(Event::Failed { run: self.run, why });
        self.run += 1;
        self.binding = Binding::new::<G>(&self.setup, self.run);
        self.contribution = Contribution::derive(&self.setup, self.binding, &self.seed);
        self.lost = false;
        self.excluded.clear();
        self.phase = Phase::Waiting;
    }

    fn exclude(&mut self, broker: u16, fault: Fault) {
        if let Entry::Vacant(place) = self.excluded.entry(broker) {
            place.insert(fault);
            self.events.push_back(Event::Excluded { run: self.run, broker, fault });
        }
    }

    fn announce(&mut self) {
        if self.unheard.is_none() {
            self.say(Round::Announce, self.contribution.announcement.encode(self.binding, self.setup.index));
        }
    }

    fn say(&mut self, round: Round, word: Vec<u8>) {
        self.unheard = Some(Unheard { round, word, said: false });
    }

    fn heard(&mut self, broker: u16, round: Round) {
        if broker == self.setup.index {
            self.unheard.take_if(|it| it.round == round);
        }
    }
}

impl<G: PrimeGroup> fmt::Debug for Dkg<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("Dkg");
        it.field("run", &self.run).field("deadline", &self.deadline()).field("excluded", &self.excluded).finish()
    }
}

/// Those who announced themselves.
type Members<G> = BTreeMap<u16, Announcement<G>>;
/// By dealer.
type Dealings<G> = BTreeMap<u16, Dealing<G>>;

enum Phase<G: PrimeGroup> {
    Waiting,
    Announcing {
        until: u64,
        announced: Members<G>,
    },
    Dealing {
        until: u64,
        members: Members<G>,
        dealings: Dealings<G>,
    },
    Judging {
        until: u64,
        members: Members<G>,
        dealings: Dealings<G>,
        judged: BTreeSet<u16>,
        /// Our good shares, by dealer.
        received: BTreeMap<u16, Secret<32>>,
    },
    Over,
}

struct Unheard {
    round: Round,
    word: Vec<u8>,
    /// Whether it was given to the caller.
    said: bool,
}

/// The share as it was opened, if it is the dealer's polynomial at the receiver.
fn fits<G: PrimeGroup>(dealing: &Dealing<G>, receiver: u16, share: &[u8]) -> Option<Secret<32>> {
    let share = Secret::try_from(share).ok()?;
    feldman::fits(&dealing.commitment, receiver + 1, &share).then_some(share)
}

#[cfg(test)]
mod tests;
