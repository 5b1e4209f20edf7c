//! One attempt at a key: a proposal, and the two rounds and the confirmation that follow from it.
//!
//! ```text
//! Gathering ──cards of all──▶ Round1 ──all X──▶ Round2 ──all Y──▶ Confirming ──all confirmations──▶ Agreed
//! ```
//! Joiners send their R1 first, over the proposal's nonce: members enter the ring only when those are
//! here, so that a replayed JOIN, or a joiner that dies, stops nobody (A6, W4, W5). Until the end the
//! installed epoch stays as it is; a failed attempt is dropped and leaves nothing behind.
//!
//! All compartments' rings ride in the same messages (A8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use sealcast_crypto::aead::Suite;
use sealcast_crypto::dutta_barua::{
    self, Context, Contribution, Following, Key, Ring, Round1, Round2, SEED_SLOT, Share, Shares, join_ring,
};
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::hpke;
use sealcast_crypto::identity::statement::Compartment;
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{OriginKey, SigningKey};
use sealcast_wire::{Domain, EpochId, MemberId, Monotonic, Slot};

use super::memo::Verifier;
use super::message::{Base, Kc, Kind, Message, R1, R2, ShortId, Status, signed};
use super::people::Person;
use super::proposal::Proposal;
use crate::Misbehaviour;
use crate::compartments::{Slots, Table, bits};
use crate::epoch::{EpochKeys, Parts};

/// A running attempt, as one of its members sees it.
pub(super) struct Attempt {
    pub(super) proposal: Proposal,
    /// Our seat.
    pub(super) me: usize,
    pub(super) started: Monotonic,
    /// When it last came nearer to its end.
    pub(super) progress: Monotonic,
    pub(super) formation: Option<Formation>,
    /// Two signed messages of one author for one place, if we hold such: what proves whom to leave out.
    pub(super) proof: Vec<Message>,
    pub(super) state: AttemptState,
    /// Messages held, by round and seat.
    held: [Vec<Option<ReceivedMessage>>; 3],
    /// When each seat last said something of this attempt: its other messages may be old ones, sent again.
    spoken: Vec<Monotonic>,
    /// Seats whose messages each seat lacked of those that we held, when it said last what it holds; and both times that it
    /// did so last. By round.
    owed: Vec<([u64; 3], [u64; 3])>,
    /// Whether somebody else asked for what we lack.
    covered: bool,
    /// How often in a row we did not ask because of that.
    silences: u32,
    /// It failed for a reason that its proposer could not foresee.
    pub(super) excused: bool,
    /// Whether we are in the epoch that the proposal follows on, or confirmed it.
    pub(super) of_base: bool,
    /// Seats of the other members of our own epoch, where the one that the proposal follows on comes right after it.
    pub(super) kin: u64,
    /// Until when we do not go beyond the first round: others may be there that we have to hear of first.
    pub(super) held_until: Option<Monotonic>,
    /// Since when others of its members may follow a proposal on another base, which nothing proves to us.
    pub(super) aside: Option<Monotonic>,
    /// It failed since too few said in round 1 that they are in the epoch that it follows on.
    pub(super) unproven: bool,
    /// How often we showed cards since somebody signed another roster, and when last.
    pub(super) disagreed: (u32, Monotonic),
    /// Whether members contradicted each other to the end, and most agree with us.
    resolved: bool,
    /// Seats whose confirmation is proved wrong; they are left out of the next epoch.
    pub(super) liars: Vec<usize>,
    /// Since when members contradict each other about what was said (somebody lies, or said two things), and
    /// how often we showed what we hold.
    doubt: Option<(Monotonic, u32)>,
    /// Seats that were proved to misbehave.
    pub(super) culprits: Vec<(usize, Misbehaviour)>,
}

/// Where an attempt stands; what one stage needs lives in it alone.
pub(super) enum AttemptState {
    /// Cards are missing, or our knowledge of statements differs from the proposer's.
    Gathering,
    /// Our exponents are drawn.
    Round1 { mine: Vec<(usize, Mine)>, message: Option<R1>, sent: bool },
    /// All X are here and our Y sent.
    Round2 { rounds: Vec<(usize, Round2)>, heard: [u8; 32] },
    /// The key is there; the others' confirmations are not yet.
    Confirming(Box<Confirming>),
    /// Confirmed by all.
    Done,
    /// It cannot succeed; another one must.
    Failed,
}

/// Our part in one ring.
pub(super) enum Mine {
    Active(Round1),
    Passive(Following),
}

pub(super) struct Confirming {
    keys: Vec<(usize, Key)>,
    pub(super) agreed: Agreed,
}

/// What an attempt comes to.
#[derive(Clone)]
pub(super) struct Agreed {
    pub(super) epoch: EpochId,
    /// The version of the wire that it is of.
    pub(super) version: u8,
    pub(super) me: Slot,
    pub(super) people: Vec<Arc<Person>>,
    pub(super) table: Arc<Table>,
    pub(super) keys: Arc<EpochKeys>,
    /// By domain: seals to the readers (A1), and the pair that opens, where we read.
    pub(super) pairs: Vec<(Domain, Arc<hpke::KeyPair>)>,
    /// By domain: our own sending key, where we write without reading (A1).
    pub(super) own: Vec<(Domain, Secret<32>)>,
    /// By domain: the readers' public key, of domains in `own`.
    pub(super) publics: Vec<(Domain, hpke::PublicKey)>,
    /// The group ring's key: seeds a join.
    pub(super) ring_key: Option<Arc<Key>>,
    /// How the view before ended, if that was ours.
    pub(super) cut: [u8; 32],
}

/// What follows from a proposal once all cards are here.
pub(super) struct Formation {
    /// By slot.
    pub(super) people: Vec<Arc<Person>>,
    slot_of_seat: Vec<usize>,
    seat_of_slot: Vec<usize>,
    /// Hash of the full roster.
    pub(super) roster: [u8; 32],
    /// Hash of statements, CRL and policy.
    state: [u8; 32],
    pub(super) table: Arc<Table>,
    rings: Vec<Plan>,
    /// Slots whose R1 we await before we send ours.
    awaited: u64,
}

/// One ring of the attempt.
struct Plan {
    ring: Ring,
    /// Slots in ring order.
    places: Vec<usize>,
    /// Slots that get its key.
    readers: u64,
}

struct ReceivedMessage {
    message: Message,
    /// What its signature is over.
    digest: [u8; 32],
    contributions: Vec<Option<Contribution>>,
    /// When it was last heard or sent.
    sent: Monotonic,
    /// When we last handed it on to somebody who asked for it again.
    handed_on: Option<Monotonic>,
}

/// What an attempt borrows for a step.
pub(super) struct Env<'a> {
    pub(super) group: &'a Arc<str>,
    pub(super) suite: Suite,
    pub(super) rng: &'a mut ChaCha20Rng,
    pub(super) verifier: &'a Verifier,
    /// The certificate's key.
    pub(super) identity: &'a SigningKey,
    /// The incarnation's key.
    pub(super) key: &'a Arc<OriginKey>,
    /// Hash of what is delivered in our view; none while it is flushed.
    pub(super) cut: Option<[u8; 32]>,
}

/// What a step led to.
pub(super) enum Step {
    Send(Box<Message>),
    /// Show what others said, as we hold it.
    Show(Vec<Message>),
    /// Open with this from now on.
    Keyed,
    /// Confirmed by all: install.
    Done(Box<Agreed>),
    Failed,
}

/// Why a round's message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Its author is not in the attempt.
    Unknown,
    /// It cannot be verified yet.
    Early,
    /// Held already.
    Known,
    /// The signature is wrong.
    Auth,
    /// Signed, and about another roster or other statements than ours.
    Disagrees,
    /// Signed, and wrong: the author is to be left out.
    Misbehaved(usize, Misbehaviour),
}

impl Attempt {
    pub(super) fn new(proposal: Proposal, me: usize, now: Monotonic) -> Attempt {
        let n = proposal.content.seats.len();
        let empty = || (0..n).map(|_| None).collect();
        Attempt {
            proposal,
            me,
            started: now,
            progress: now,
            formation: None,
            proof: Vec::new(),
            state: AttemptState::Gathering,
            held: [empty(), empty(), empty()],
            spoken: vec![now; n],
            owed: vec![([0; 3], [0; 3]); n],
            covered: false,
            silences: 0,
            excused: false,
            of_base: false,
            kin: 0,
            held_until: None,
            aside: None,
            unproven: false,
            disagreed: (0, Monotonic(0)),
            resolved: false,
            liars: Vec::new(),
            doubt: None,
            culprits: Vec::new(),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        !matches!(self.state, AttemptState::Done | AttemptState::Failed)
    }

    /// Seats of those who signed that they are in the epoch that the proposal follows on.
    pub(super) fn vouchers(&self) -> u64 {
        let vouches = |held: &Option<ReceivedMessage>| matches!(held.as_ref().map(|h| &h.message), Some(Message::R1(m)) if m.of_base);
        let seats = self.held[0].iter().enumerate().filter(|(seat, held)| *seat != self.me && vouches(held));
        seats.fold(0, |all, (seat, _)| all | 1 << seat)
    }

    /// Whether the epoch that the proposal follows on is believed: it is ours, or two certificates signed that they are
    /// in it, or it comes after ours and all others of ours signed so. One holder can make one up alone.
    pub(super) fn is_proven(&self) -> bool {
        let vouchers = self.vouchers();
        let kin = self.kin & self.active_seats();
        let all_kin = kin != 0 && kin & !vouchers == 0;
        self.proposal.content.base.is_none() || self.of_base || vouchers.count_ones() >= 2 || all_kin
    }

    /// Whether another proposal follows on another epoch, by somebody whom this one does not name: one of the two may be
    /// made up.
    pub(super) fn has_rival(&self, other: &Proposal) -> bool {
        let (theirs, ours) = (other.content.base, self.proposal.content.base);
        let apart = theirs.is_some() && ours.is_some() && theirs != ours;
        apart && self.proposal.seat_of(other.proposer()).is_none()
    }

    /// Whether the others have ended it without a word of ours, if they are in this epoch.
    pub(super) fn ended_without_us(&self, base: Base) -> bool {
        self.proposal.may_make(base) && self.only_listens()
    }

    /// Whether all X are here and our Y is not sent.
    pub(super) fn is_at_first_round(&self) -> bool {
        let complete = self.active_seats() & !self.held(0) == 0;
        complete && matches!(self.state, AttemptState::Round1 { sent: true, .. })
    }

    /// Whether nobody can end it yet, since our Y is not sent.
    pub(super) fn lacks_our_share(&self) -> bool {
        matches!(self.state, AttemptState::Round1 { .. }) && self.active_seats() >> self.me & 1 == 1
    }

    /// Whether all that is missing is what others say: they may have ended it without a word of ours.
    pub(super) fn only_listens(&self) -> bool {
        let underway = matches!(self.state, AttemptState::Round1 { .. } | AttemptState::Round2 { .. });
        underway && self.active_seats() >> self.me & 1 == 0
    }

    /// Whether our confirmation is out, and not all others' are here.
    pub(super) fn is_confirming(&self) -> bool {
        matches!(self.state, AttemptState::Confirming(_))
    }

    pub(super) fn seats(&self) -> usize {
        self.proposal.content.seats.len()
    }

    /// Takes our places in the rings; `seed` is the installed group ring's key, where we are of the base.
    pub(super) fn form(&mut self, formation: Formation, seed: Option<&Key>, env: &mut Env<'_>) {
        let me = formation.slot_of_seat[self.me];
        let (mut mine, mut contributions) = (Vec::new(), Vec::new());
        for (i, plan) in formation.rings.iter().enumerate().filter(|(_, p)| p.readers >> me & 1 == 1) {
            let place = plan.places.iter().position(|slot| *slot == me);
            let joins = || formation.seed_input();
            // tcrypto 4.2: ring U_1 (fresh), U_2 (exponent from the seed), U_n (fresh), J_1 … J_m
            let (part, contribution) = match (place, self.proposal.content.kind) {
                (Some(SEED_SLOT), Kind::Join(_)) => {
                    let seed = seed.expect("the second of the base knows the base's key").seed(&plan.ring, &joins());
                    let (r, c) = Round1::start_from_seed(&plan.ring, SEED_SLOT, &seed, env.rng);
                    (Mine::Active(r), Some(c))
                }
                (Some(place), _) => {
                    let (r, c) = Round1::start(&plan.ring, place, env.rng);
                    (Mine::Active(r), Some(c))
                }
                (None, _) => {
                    let seed = seed.expect("only the base's members are passive").seed(&plan.ring, &joins());
                    (Mine::Passive(Following::start(&plan.ring, SEED_SLOT, &seed)), None)
                }
            };
            contributions.extend(contribution.map(|c| c.encode()));
            mine.push((i, part));
        }
        let person = &formation.people[me];
        let message = (!contributions.is_empty()).then(|| {
            let mut r1 = R1 {
                author: person.short,
                instance: self.proposal.instance,
                roster: formation.roster,
                state: formation.state,
                of_base: self.of_base,
                contributions,
                signature: [0; 64],
            };
            r1.signature = env.identity.sign(&digest_r1(env.group, &person.id, &Message::R1(r1.clone()).body()));
            r1
        });
        self.formation = Some(formation);
        self.state = AttemptState::Round1 { mine, message, sent: false };
    }

    /// Takes in a message of round 1, 2 or 3 (confirmation).
    pub(super) fn take(&mut self, message: Message, now: Monotonic, env: &Env<'_>) -> Result<(), Refused> {
        let (round, author) = match &message {
            Message::R1(m) => (0, m.author),
            Message::R2(m) => (1, m.author),
            Message::Kc(m) => (2, m.author),
            _ => return Err(Refused::Unknown),
        };
        let seat = self.proposal.seat_of(&author).ok_or(Refused::Unknown)?;
        let Some(formation) = &self.formation else { return Err(Refused::Early) };
        let body = message.body();
        let slot = formation.slot_of_seat[seat];
        let person = &formation.people[slot];
        let digest = match round {
            0 => digest_r1(env.group, &person.id, &body),
            _ => formation.digest(LABELS[round], env.group, &self.proposal, &body),
        };
        if let Some(held) = self.held[round][seat].as_mut().filter(|held| held.digest == digest) {
            held.sent = now;
            return Err(Refused::Known);
        }
        let key = if round == 0 { &person.cert.key } else { &person.key };
        let signature = message.signature().expect("rounds' messages carry one");
        if !env.verifier.signature(key, &digest, signature) {
            return Err(Refused::Auth);
        }
        if matches!(&message, Message::R1(m) if m.instance != self.proposal.instance) {
            return Err(Refused::Unknown); // of another attempt, whose hash begins alike
        }
        if self.held[round][seat].is_some() {
            // Two signed messages for one place.
            if round == 2 && self.is_running() {
                // Others may have installed by one of the two: so do we, and leave its author out of the next epoch.
                if !self.liars.contains(&seat) {
                    self.liars.push(seat);
                }
                return Err(Refused::Misbehaved(seat, Misbehaviour::Equivocation));
            }
            if let Some(held) = self.held[round][seat].as_ref().filter(|_| self.proof.is_empty()) {
                self.proof = vec![held.message.clone(), message];
            }
            return Err(self.blame(seat, Misbehaviour::Equivocation));
        }
        if matches!(&message, Message::R1(m) if (m.roster, m.state) != (formation.roster, formation.state)) {
            // Signed, and about other members or statements: one of us was shown something else.
            self.spoken[seat] = now;
            return Err(Refused::Disagrees);
        }
        let contributions = match &message {
            Message::R1(m) => {
                match formation.contributions(m, slot, formation.slot_of_seat[self.me], &self.proposal, env) {
                    Some(contributions) => contributions,
                    None => return Err(self.blame(seat, Misbehaviour::WrongValue)),
                }
            }
            _ => Vec::new(),
        };
        self.held[round][seat] = Some(ReceivedMessage { message, digest, contributions, sent: now, handed_on: None });
        self.spoken[seat] = now;
        self.progress = now;
        Ok(())
    }

    /// Does the next thing that can be done; to be called until `None`.
    pub(super) fn step(&mut self, now: Monotonic, env: &mut Env<'_>) -> Option<Step> {
        if !self.culprits.is_empty() && self.is_running() {
            self.state = AttemptState::Failed;
            return Some(Step::Failed);
        }
        let formation = self.formation.as_ref()?;
        let me = formation.slot_of_seat[self.me];
        match &mut self.state {
            AttemptState::Gathering | AttemptState::Done | AttemptState::Failed => None,
            // R1: M = (U_i, 1, X_i, d_i), joiners first
            AttemptState::Round1 { message, sent: sent @ false, .. } => {
                let here = |slot: usize| self.held[0][formation.seat_of_slot[slot]].is_some();
                if !bits(formation.awaited).all(here) {
                    return None;
                }
                *sent = true;
                // Who follows says nothing, and may hold all that comes next already.
                let Some(message) = message.take() else { return self.step(now, env) };
                let message = Message::R1(message);
                self.keep_own(now, 0, message.clone(), env);
                Some(Step::Send(Box::new(message)))
            }
            // R2: with all X: K_i^L, K_i^R, Y_i = K_i^R − K_i^L
            AttemptState::Round1 { mine, sent: true, .. } => {
                let complete = formation.active().all(|slot| self.held[0][formation.seat_of_slot[slot]].is_some());
                let flushes = self.of_base && env.cut.is_none() && formation.active().any(|slot| slot == me);
                if !complete || self.held_until.is_some() || flushes {
                    return None;
                }
                let mine = std::mem::take(mine);
                if !self.is_proven() {
                    self.unproven = true;
                    self.state = AttemptState::Failed;
                    return Some(Step::Failed);
                }
                self.round2(now, mine, env)
            }
            // Key: with all Y: the walk round the ring, checked against K_i^L
            AttemptState::Round2 { rounds, heard } => {
                let of = |slot: usize| self.held[1][formation.seat_of_slot[slot]].as_ref();
                if !formation.active().all(|slot| of(slot).is_some()) {
                    return None;
                }
                let same = |slot| matches!(of(slot).map(|h| &h.message), Some(Message::R2(m)) if m.heard == *heard);
                if !formation.active().all(same) {
                    let alike = formation.active().filter(|slot| same(*slot)).collect();
                    return self.contradiction(now, 0, alike);
                }
                let (rounds, heard) = (std::mem::take(rounds), *heard);
                // Those of one view have flushed it alike, or do so once more.
                let Some(cut) = self.cut() else {
                    self.excused = true;
                    self.state = AttemptState::Failed;
                    return Some(Step::Failed);
                };
                self.confirm(now, rounds, (heard, cut), env)
            }
            // Installed once every active member has confirmed the same key (A9, A13)
            AttemptState::Confirming(confirming) => {
                let slots: Vec<usize> = formation.active().filter(|slot| *slot != me).collect();
                let kc = |slot: usize| match &self.held[2][formation.seat_of_slot[slot]].as_ref()?.message {
                    Message::Kc(m) => Some(m),
                    _ => None,
                };
                let epoch = confirming.agreed.epoch.hash;
                let second = self.proposal.content.attempt > 1;
                // The same X and Y, and so the same key, if not all Y of a first attempt fit: whoever confirms another
                // one lies. Others may hold a right confirmation of it and have installed: so do we, and leave it out
                // of the next epoch.
                for slot in &slots {
                    let Some(m) = kc(*slot).filter(|m| m.epoch == epoch) else { continue };
                    let seat = formation.seat_of_slot[*slot];
                    if !self.liars.contains(&seat) && !formation.confirms(m, *slot, confirming, second) {
                        self.liars.push(seat);
                    }
                }
                if !slots.iter().all(|slot| kc(*slot).is_some()) {
                    return None;
                }
                let lies = |slot: &usize| self.liars.contains(&formation.seat_of_slot[*slot]);
                let others = |slot: &usize| kc(*slot).is_some_and(|m| m.epoch != epoch) && !lies(slot);
                let differ: Vec<usize> = slots.iter().copied().filter(others).collect();
                if !differ.is_empty() && !self.resolved {
                    let alike = formation.active().filter(|slot| !differ.contains(slot)).collect();
                    let step = self.contradiction(now, 1, alike);
                    return if self.resolved { self.step(now, env) } else { step };
                }
                let seats = differ.iter().map(|slot| formation.seat_of_slot[*slot]);
                self.liars.extend(seats.filter(|seat| !self.liars.contains(seat)).collect::<Vec<_>>());
                let honest = |slot: &&usize| !self.liars.contains(&formation.seat_of_slot[**slot]);
                let honest: Vec<usize> = slots.iter().filter(honest).copied().collect();
                if honest.iter().any(|slot| kc(*slot).is_some_and(|m| !formation.confirms(m, *slot, confirming, true)))
                {
                    self.state = AttemptState::Failed;
                    return Some(Step::Failed);
                }
                let mut agreed = confirming.agreed.clone();
                let confirmations: Vec<(usize, &Kc)> = honest.iter().filter_map(|s| Some((*s, kc(*s)?))).collect();
                let (publics, minority) = formation.publics(&confirmations, &agreed);
                agreed.publics = publics;
                let keys = std::mem::take(&mut confirming.keys);
                self.liars.extend(minority);
                agreed.ring_key = keys.into_iter().find(|(i, _)| *i == 0).map(|(_, key)| Arc::new(key));
                self.state = AttemptState::Done;
                Some(Step::Done(Box::new(agreed)))
            }
        }
    }

    /// What an active member says of a round's messages is not what we hold. All show what they hold, for two
    /// things that one member said in one place prove who is to blame; who takes itself for the majority too,
    /// since a member with two faces agrees with both sides. It is shown more than once: were it lost, the
    /// honest would be left out. If nobody shows that in time, the others are wrong about what everybody
    /// else heard alike: they are left out.
    fn contradiction(&mut self, now: Monotonic, round: usize, alike: Vec<usize>) -> Option<Step> {
        let formation = self.formation.as_ref()?;
        let active: Vec<usize> = formation.active().collect();
        let most = alike.len() * 2 > active.len();
        let mine = alike.iter().position(|slot| *slot == formation.slot_of_seat[self.me]);
        let (since, shown) = self.doubt.unwrap_or((now, 0));
        if shown < SHOWN_TIMES && now.since(since) >= SHOWN_WITHIN / SHOWN_TIMES * shown {
            self.doubt = Some((since, shown + 1));
            self.progress = now;
            // Those who hold the same share the work, and each takes another part the next time. Each part is two members',
            // for one of them may be the liar.
            let part = |i: usize| (i + shown as usize) % alike.len();
            let parts = |mine: usize| [mine, (mine + 1) % alike.len()];
            let share = |(i, _): &(usize, &usize)| mine.is_some_and(|mine| parts(mine).contains(&part(*i)));
            let seats = active.iter().enumerate().filter(share).map(|(_, slot)| formation.seat_of_slot[*slot]);
            let messages: Vec<Message> = seats.filter_map(|seat| self.message(round, seat).cloned()).collect();
            return (!messages.is_empty()).then_some(Step::Show(messages));
        }
        if now.since(since) < SHOWN_WITHIN {
            return None;
        }
        if most && round == 1 {
            // All said the same before, and a right confirmation of those may be with somebody who has installed.
            self.resolved = true;
            return None;
        }
        if most {
            let seats = active.iter().filter(|slot| !alike.contains(slot)).map(|slot| formation.seat_of_slot[*slot]);
            let culprits: Vec<usize> = seats.collect();
            self.culprits.extend(culprits.into_iter().map(|seat| (seat, Misbehaviour::WrongValue)));
        }
        self.state = AttemptState::Failed;
        Some(Step::Failed)
    }

    /// Our X are said and the others' are here: our Y.
    fn round2(&mut self, now: Monotonic, mine: Vec<(usize, Mine)>, env: &mut Env<'_>) -> Option<Step> {
        let formation = self.formation.as_ref().expect("round 2 comes after the formation");
        let (mut rounds, mut shares) = (Vec::new(), Vec::new());
        for (i, part) in mine {
            let plan = &formation.rings[i];
            let x = |slot: &usize| self.held[0][formation.seat_of_slot[*slot]].as_ref()?.contributions[i];
            let contributions: Vec<Contribution> = plan.places.iter().filter_map(x).collect();
            let result = match part {
                Mine::Active(round1) => round1.finish(&contributions, env.rng).map(|(r, share)| (r, Some(share))),
                Mine::Passive(following) => following.finish(&contributions).map(|r| (r, None)),
            };
            match result {
                Ok((round2, share)) => {
                    shares.extend(share.map(|s: Share| s.encode()));
                    rounds.push((i, round2));
                }
                Err(misbehaved) => return Some(self.fail(i, &misbehaved.culprits())),
            }
        }
        let heard = formation.heard(&self.held[0]);
        let me = &formation.people[formation.slot_of_seat[self.me]];
        let message = (!shares.is_empty()).then(|| {
            let instance = self.proposal.id();
            let cut = env.cut.filter(|_| self.of_base).unwrap_or_default();
            let mut r2 = R2 { author: me.short, instance, heard, cut, shares, signature: [0; 64] };
            let body = Message::R2(r2.clone()).body();
            r2.signature = env.key.sign(&formation.digest(LABELS[1], env.group, &self.proposal, &body));
            Message::R2(r2)
        });
        self.state = AttemptState::Round2 { rounds, heard };
        match message {
            Some(message) => {
                self.keep_own(now, 1, message.clone(), env);
                Some(Step::Send(Box::new(message)))
            }
            None => self.step(now, env),
        }
    }

    /// All Y are here: the keys.
    fn confirm(
        &mut self,
        now: Monotonic,
        rounds: Vec<(usize, Round2)>,
        (heard, cut): ([u8; 32], [u8; 32]),
        env: &mut Env<'_>,
    ) -> Option<Step> {
        let formation = self.formation.as_ref().expect("the key comes after the formation");
        let mut keys = Vec::new();
        for (i, round) in rounds {
            let plan = &formation.rings[i];
            let id = [&self.proposal.instance[..], &formation.roster, &heard, &[i as u8]].concat();
            let mut shares = Vec::new();
            for (place, slot) in plan.places.iter().enumerate() {
                let Some(Message::R2(m)) = self.held[1][formation.seat_of_slot[*slot]].as_ref().map(|h| &h.message)
                else {
                    unreachable!("all Y are here");
                };
                let bytes = formation.nth_of(*slot, i).and_then(|nth| m.shares.get(nth)).map_or(&[][..], Vec::as_slice);
                // Our own place was computed, not received: no need to prove it to ourselves.
                match env.verifier.share(&id, &round, place, bytes) {
                    Ok(share) => shares.push(share),
                    Err(misbehaved) => return Some(self.fail(i, &misbehaved.culprits())),
                }
            }
            match round.finish(&shares) {
                Ok(key) => keys.push((i, key)),
                Err(misbehaved) => return Some(self.fail(i, &misbehaved.culprits())),
            }
        }
        let mut agreed = formation.agree(&self.proposal, self.me, (&self.held, &cut), &keys, env);
        agreed.cut = if self.of_base { cut } else { [0; 32] };
        let me = formation.slot_of_seat[self.me];
        let message = formation.active().any(|slot| slot == me).then(|| {
            let confirmation = |(i, key): &(usize, Key)| {
                let place = formation.rings[*i].places.iter().position(|slot| *slot == me)?;
                Some((key.confirmation(place), key.commitment()))
            };
            let mut kc = Kc {
                author: formation.people[me].short,
                instance: self.proposal.id(),
                epoch: agreed.epoch.hash,
                rings: keys.iter().filter_map(confirmation).collect(),
                publics: agreed.pairs.iter().map(|(_, pair)| pair.public().0).collect(),
                signature: [0; 64],
            };
            let body = Message::Kc(kc.clone()).body();
            kc.signature = env.key.sign(&formation.digest(LABELS[2], env.group, &self.proposal, &body));
            Message::Kc(kc)
        });
        self.state = AttemptState::Confirming(Box::new(Confirming { keys, agreed }));
        if let Some(message) = message {
            self.keep_own(now, 2, message, env);
        }
        Some(Step::Keyed)
    }

    /// What those that are of the base say is delivered in it, if all say the same; zero if nobody is.
    fn cut(&self) -> Option<[u8; 32]> {
        let of_base = |seat: &usize| matches!(self.message(0, *seat), Some(Message::R1(m)) if m.of_base);
        let said = |seat| match self.message(1, seat) {
            Some(Message::R2(m)) => Some(m.cut),
            _ => None,
        };
        let mut cuts = (0..self.seats()).filter(of_base).filter_map(said);
        let cut = cuts.next().unwrap_or_default();
        cuts.all(|other| other == cut).then_some(cut)
    }

    fn keep_own(&mut self, now: Monotonic, round: usize, message: Message, env: &Env<'_>) {
        let formation = self.formation.as_ref().expect("we speak after the formation");
        let slot = formation.slot_of_seat[self.me];
        let body = message.body();
        let digest = match &message {
            Message::R1(_) => digest_r1(env.group, &formation.people[slot].id, &body),
            _ => formation.digest(LABELS[round], env.group, &self.proposal, &body),
        };
        let contributions = match &message {
            Message::R1(m) => {
                formation.contributions(m, slot, slot, &self.proposal, env).expect("our own contributions are valid")
            }
            _ => Vec::new(),
        };
        self.held[round][self.me] =
            Some(ReceivedMessage { message, digest, contributions, sent: now, handed_on: None });
    }

    fn blame(&mut self, seat: usize, why: Misbehaviour) -> Refused {
        if self.is_running() && !self.culprits.iter().any(|(s, _)| *s == seat) {
            self.culprits.push((seat, why));
        }
        Refused::Misbehaved(seat, why)
    }

    /// The places of a ring that a check named; none where it can name nobody.
    fn fail(&mut self, ring: usize, places: &[usize]) -> Step {
        let formation = self.formation.as_ref().expect("checks come after the formation");
        let seats = places.iter().map(|place| formation.seat_of_slot[formation.rings[ring].places[*place]]);
        let culprits: Vec<usize> = seats.filter(|seat| *seat != self.me).collect();
        self.culprits.extend(culprits.into_iter().map(|seat| (seat, Misbehaviour::WrongValue)));
        self.state = AttemptState::Failed;
        Step::Failed
    }

    /// The message of a round that we hold of a seat, to be sent again unchanged.
    pub(super) fn message(&self, round: usize, seat: usize) -> Option<&Message> {
        self.held[round][seat].as_ref().map(|h| &h.message)
    }

    /// How long ago a held message was last heard or sent; it counts as sent now if that is `after` or more.
    pub(super) fn send_again(&mut self, round: usize, seat: usize, now: Monotonic, after: Duration) -> Option<Message> {
        let held = self.held[round][seat].as_mut()?;
        if now.since(held.sent) < after {
            return None;
        }
        held.sent = now;
        Some(held.message.clone())
    }

    /// A held message for a member that still lacks it, unless we handed it on less than `after` ago. What others said
    /// meanwhile does not count.
    pub(super) fn hand_on(&mut self, round: usize, seat: usize, now: Monotonic, after: Duration) -> Option<Message> {
        let held = self.held[round][seat].as_mut()?;
        if held.handed_on.is_some_and(|at| now.since(at) < after) {
            return None;
        }
        (held.sent, held.handed_on) = (now, Some(now));
        Some(held.message.clone())
    }

    /// Whether nobody else has said anything in its rounds.
    pub(super) fn is_unanswered(&self) -> bool {
        self.held(0) & !(1 << self.me) == 0
    }

    /// Seats of which we hold the round's message, as bits.
    pub(super) fn held(&self, round: usize) -> u64 {
        self.held[round].iter().enumerate().fold(0, |bits, (i, h)| bits | u64::from(h.is_some()) << i)
    }

    /// Seats that send in rounds; known after the formation.
    pub(super) fn active_seats(&self) -> u64 {
        self.formation.as_ref().map_or(0, |f| f.active().fold(0, |bits, slot| bits | 1 << f.seat_of_slot[slot]))
    }

    /// Seats whose R1 we await before we send ours.
    pub(super) fn awaited_seats(&self) -> u64 {
        self.formation.as_ref().map_or(0, |f| bits(f.awaited).fold(0, |all, slot| all | 1 << f.seat_of_slot[slot]))
    }

    /// Whether our own first word is still held back, until the joiners' are here.
    pub(super) fn waits_for_joiners(&self) -> bool {
        matches!(self.state, AttemptState::Round1 { sent: false, .. })
    }

    /// Whether we wait for joiners, and no other member is seen to have gone on.
    pub(super) fn nobody_joined(&self) -> bool {
        self.waits_for_joiners() && self.held(0) & !self.awaited_seats() == 0
    }

    /// Seats for whose message we wait at this stage.
    pub(super) fn waiting_for(&self) -> u64 {
        match &self.state {
            AttemptState::Gathering | AttemptState::Done | AttemptState::Failed => 0,
            AttemptState::Round1 { sent: false, .. } => self.awaited_seats() & !self.held(0),
            AttemptState::Round1 { sent: true, .. } => self.active_seats() & !self.held(0),
            AttemptState::Round2 { .. } => self.active_seats() & !self.held(1),
            AttemptState::Confirming(_) => self.active_seats() & !self.held(2),
        }
    }

    /// An X of ours for the group's ring that is not the one we sent: what an equivocator has.
    #[cfg(any(test, feature = "misbehaving"))]
    pub(super) fn other_contribution(&self, rng: &mut ChaCha20Rng) -> Option<[u8; dutta_barua::CONTRIBUTION_LEN]> {
        let formation = self.formation.as_ref()?;
        let me = formation.slot_of_seat[self.me];
        let plan = &formation.rings[0];
        let place = plan.places.iter().position(|slot| *slot == me)?;
        Some(Round1::start(&plan.ring, place, rng).1.encode())
    }

    /// The proposal, to be said again, if that falls to us: to its proposer once it was not heard for `after`,
    /// and then to one after the other of the others, so that they do not all speak at once.
    pub(super) fn remind(&mut self, now: Monotonic, after: Duration) -> Option<(Message, Vec<u8>)> {
        let unheard = now.since(self.proposal.sent);
        let turns = usize::try_from(unheard.as_micros() / REMIND.as_micros()).unwrap_or(usize::MAX);
        let ours = match self.me {
            0 => unheard >= after,
            me => turns > 0 && (turns - 1) % (self.seats() - 1) + 1 == me,
        };
        if !ours {
            return None;
        }
        self.proposal.sent = now;
        Some((Message::Propose(self.proposal.content.clone()), self.proposal.bootstrap_sealed.clone()))
    }

    /// Somebody lacks all that we lack, and said so: the answer comes to us too.
    pub(super) fn cover(&mut self, theirs: &Status) {
        let active = self.active_seats();
        let held = [theirs.r1, theirs.r2, theirs.kc];
        self.covered |= (0..3).all(|round| active & held[round] & !self.held(round) == 0);
    }

    /// Of what the author of this status lacks and we hold, what it lacked already by its last one, and what by its last two,
    /// by round. It may not hear everybody whom we hear.
    pub(super) fn still_owed(&mut self, theirs: &Status) -> ([u64; 3], [u64; 3]) {
        let Some(seat) = self.proposal.seat_of(&theirs.author) else { return Default::default() };
        let theirs = [theirs.r1, theirs.r2, theirs.kc];
        let takes_part = theirs != [0; 3]; // while it lacks cards it can use nothing
        let owed = [0, 1, 2].map(|round| if takes_part { !theirs[round] & self.held(round) } else { 0 });
        let both = |a: [u64; 3], b: [u64; 3]| [0, 1, 2].map(|round| a[round] & b[round]);
        let (once, twice) = self.owed[seat];
        let again = both(once, owed);
        self.owed[seat] = (owed, again);
        (again, both(twice, owed))
    }

    /// Whether what we would ask for was asked for by somebody else since we last could have; so often in a row
    /// only, since a question is a sign of life too, and may be an old one, sent again.
    pub(super) fn is_covered(&mut self) -> bool {
        if self.formation.is_none() || self.active_seats() >> self.me & 1 == 1 {
            return false;
        }
        let covered = std::mem::take(&mut self.covered) && self.silences < SILENCES_MAX;
        self.silences = if covered { self.silences + 1 } else { 0 };
        covered
    }

    /// Somebody said something of this attempt, though it brings it no further.
    pub(super) fn hear(&mut self, author: &ShortId, now: Monotonic) {
        if let Some(seat) = self.proposal.seat_of(author) {
            self.spoken[seat] = now;
        }
    }

    /// How long a seat has said nothing of this attempt.
    pub(super) fn quiet_for(&self, seat: usize, now: Monotonic) -> Duration {
        now.since(self.spoken[seat])
    }

    /// Whether anybody but us has said anything in its rounds.
    pub(super) fn has_others(&self) -> bool {
        (0..3).any(|round| self.held(round) & !(1 << self.me) != 0)
    }

    /// What we hold, signed; while cards are missing, a sign of life.
    pub(super) fn status(&self, env: &Env<'_>) -> Message {
        let author = self.proposal.content.seats[self.me];
        let (r1, r2, kc) = (self.held(0), self.held(1), self.held(2));
        let mut status = Status { author, instance: self.proposal.id(), r1, r2, kc, signature: [0; 64] };
        let body = Message::Status(status.clone()).body();
        status.signature = env.key.sign(&signed(STATUS_LABEL, env.group, &[&self.proposal.instance], &body));
        Message::Status(status)
    }

    /// Whether a status is of who it says.
    pub(super) fn verify_status(&self, status: &Status, author: &Person, env: &Env<'_>) -> Result<(), Refused> {
        self.proposal.seat_of(&status.author).ok_or(Refused::Unknown)?;
        let body = Message::Status(status.clone()).body();
        let digest = signed(STATUS_LABEL, env.group, &[&self.proposal.instance], &body);
        if env.verifier.signature(&author.key, &digest, &status.signature) { Ok(()) } else { Err(Refused::Auth) }
    }
}

impl Formation {
    /// The rings of a proposal. `people` come by seat; `base` tells the slots of the epoch that it
    /// follows, if we are of it.
    ///
    /// `None`: the proposal asks for what cannot be (a join where rings must be set up).
    pub(super) fn new(
        group: &Arc<str>,
        proposal: &Proposal,
        people: Vec<Arc<Person>>,
        policy: Option<&[Compartment]>,
        state: [u8; 32],
        is_base: impl Fn(&Person) -> Option<bool>,
    ) -> Option<Formation> {
        let mut seat_of_slot: Vec<usize> = (0..people.len()).collect();
        seat_of_slot.sort_by_key(|seat| people[*seat].id);
        let mut slot_of_seat = vec![0; people.len()];
        seat_of_slot.iter().enumerate().for_each(|(slot, seat)| slot_of_seat[*seat] = slot);
        let people: Vec<Arc<Person>> = seat_of_slot.iter().map(|seat| people[*seat].clone()).collect();
        // One live instance per certificate (A6).
        if people.windows(2).any(|two| two[0].id.cert == two[1].id.cert) {
            return None;
        }
        let roster = people.iter().fold(Transcript::new("sealcast/v1/roster").add(group.as_bytes()), |t, p| {
            t.add(&p.id.cert.0).add(&p.id.incarnation.0).add(p.key.point()).add(&p.card.versions.to_bytes())
        });
        let roster = roster.finish();
        let rights = people.iter().map(|p| p.rights.clone()).collect();
        let table = Arc::new(Table::new(group.clone(), rights, policy));

        let joins = matches!(proposal.content.kind, Kind::Join(_));
        if joins && table.rings().len() > 1 {
            return None;
        }
        let content = &proposal.content;
        let attempt = u32::from(content.attempt);
        let shares = if attempt == 1 { Shares::Plain } else { Shares::Proved };
        let mut rings = Vec::new();
        for (i, readers) in table.rings().iter().map(|it| it.word()).enumerate() {
            let kind = if joins { dutta_barua::Kind::Join } else { dutta_barua::Kind::Setup };
            let compartment = i as u16;
            let instance = proposal.instance;
            let context = Context { group, compartment, epoch: content.counter, attempt, kind, roster, instance };
            let places: Vec<usize> = if joins {
                let joiner = |slot: &usize| proposal.marks_joiner(seat_of_slot[*slot]);
                let (joiners, members): (Vec<usize>, Vec<usize>) = bits(readers).partition(joiner);
                join_ring(&members, &joiners)?
            } else {
                bits(readers).collect()
            };
            let ring = Ring::new(&context, places.len(), shares);
            rings.push(Plan { ring, places, readers });
        }
        // Joiners of a join are those who are not of the base, and everybody of the base is in it.
        let misfit = |(slot, p): (usize, &Arc<Person>)| {
            joins && is_base(p).is_some_and(|base| base == proposal.marks_joiner(seat_of_slot[slot]))
        };
        if people.iter().enumerate().any(misfit) {
            return None;
        }
        let awaited = people.iter().enumerate().filter(|(_, p)| is_base(p) == Some(false));
        let awaited = awaited.fold(0, |all, (slot, _)| all | 1 << slot);
        Some(Formation { people, slot_of_seat, seat_of_slot, roster, state, table, rings, awaited })
    }

    pub(super) fn slot(&self, seat: usize) -> usize {
        self.slot_of_seat[seat]
    }

    /// Slots that send in rounds, ascending.
    fn active(&self) -> impl Iterator<Item = usize> + '_ {
        let active = self.rings.iter().flat_map(|p| &p.places).fold(0_u64, |all, slot| all | 1 << slot);
        bits(active)
    }

    /// At which index of its messages a slot speaks for a ring.
    fn nth_of(&self, slot: usize, ring: usize) -> Option<usize> {
        let speaks = |p: &Plan| p.places.contains(&slot);
        speaks(&self.rings[ring]).then(|| self.rings[..ring].iter().filter(|p| speaks(p)).count())
    }

    /// The checked X of those rings that we are in, by ring; `None` if one is wrong, or their number.
    fn contributions(
        &self,
        m: &R1,
        slot: usize,
        me: usize,
        proposal: &Proposal,
        env: &Env<'_>,
    ) -> Option<Vec<Option<Contribution>>> {
        let expected = self.rings.iter().filter(|p| p.places.contains(&slot)).count();
        if m.contributions.len() != expected {
            return None;
        }
        let checked = self.rings.iter().enumerate().map(|(i, plan)| {
            let Some(nth) = self.nth_of(slot, i).filter(|_| plan.readers >> me & 1 == 1) else { return Some(None) };
            let place = plan.places.iter().position(|s| *s == slot)?;
            let id = [&proposal.instance[..], &self.roster, &[i as u8]].concat();
            env.verifier.contribution(&id, &plan.ring, place, &m.contributions[nth]).ok().map(Some)
        });
        checked.collect()
    }

    /// Whether a confirmation of our epoch hash fits our keys: of `all` rings, or of the one whose key that hash binds;
    /// and the public keys of what both of us read.
    fn confirms(&self, m: &Kc, slot: usize, ours: &Confirming, all: bool) -> bool {
        let theirs: Vec<usize> = (0..self.rings.len()).filter(|i| self.rings[*i].places.contains(&slot)).collect();
        let domains = self.public_domains_of(slot);
        let fits = |i: usize, (mac, commitment): &([u8; 32], [u8; 32])| {
            let known = ours.keys.iter().find(|(ring, _)| *ring == i && (all || *ring == 0));
            let Some((_, key)) = known else { return true };
            let place = self.rings[i].places.iter().position(|s| *s == slot).expect("of the rings with the slot");
            key.commitment() == *commitment && key.confirmed_by(place, mac).is_ok()
        };
        // A public key follows from its ring's key, of which both of us have the same if our commitments are.
        let same_key = |domain: &Domain| {
            let ring = self.table.ring_of(*domain);
            let of = theirs.iter().position(|i| Some(*i) == ring).and_then(|nth| m.rings.get(nth));
            ours.keys.iter().any(|(i, key)| Some(*i) == ring && of.is_some_and(|(_, c)| key.commitment() == *c))
        };
        let own = |domain: &Domain| ours.agreed.pairs.iter().find(|(d, _)| d == domain).map(|(_, p)| p.public().0);
        theirs.len() == m.rings.len()
            && m.publics.len() == domains.len()
            && theirs.iter().zip(&m.rings).all(|(i, ring)| fits(*i, ring))
            && domains.iter().zip(&m.publics).all(|(d, key)| !same_key(d) || own(d).is_none_or(|own| own == *key))
    }

    /// The readers' public keys of domains that we write without reading, as most readers say, and the seats of those
    /// who say otherwise. Where readers are of two minds there is no key: they leave out who lies.
    fn publics(&self, confirmations: &[(usize, &Kc)], agreed: &Agreed) -> (Vec<(Domain, hpke::PublicKey)>, Vec<usize>) {
        let (mut publics, mut minority) = (Vec::new(), BTreeSet::new());
        for (domain, _) in &agreed.own {
            let mut said: BTreeMap<[u8; 32], Vec<usize>> = BTreeMap::new();
            for (slot, kc) in confirmations {
                let nth = self.public_domains_of(*slot).iter().position(|d| d == domain);
                if let Some(key) = nth.and_then(|nth| kc.publics.get(nth)) {
                    said.entry(*key).or_default().push(self.seat_of_slot[*slot]);
                }
            }
            let readers: usize = said.values().map(Vec::len).sum();
            let Some(key) = said.iter().find(|(_, by)| by.len() * 2 > readers).map(|(key, _)| *key) else { continue };
            publics.push((*domain, hpke::PublicKey(key)));
            minority.extend(said.iter().filter(|(other, _)| **other != key).flat_map(|(_, by)| by).copied());
        }
        (publics, minority.into_iter().collect())
    }

    /// Domains for which a slot publishes a key.
    fn public_domains_of(&self, slot: usize) -> Vec<Domain> {
        let reads = |d: &Domain| self.table.ring_of(*d).is_some_and(|ring| self.rings[ring].readers >> slot & 1 == 1);
        self.table.with_public_key().into_iter().filter(reads).collect()
    }

    /// The name of each joiner, for the seed of a join.
    fn seed_input(&self) -> Vec<[u8; 32]> {
        let joiners = self.rings[0].places.iter().skip(3);
        joiners.map(|slot| member_hash(&self.people[*slot].id)).collect()
    }

    /// Hash of all X, as we hold them.
    fn heard(&self, r1: &[Option<ReceivedMessage>]) -> [u8; 32] {
        let t = Transcript::new("sealcast/v1/heard").add(&self.roster);
        let digests = self.active().filter_map(|slot| r1[self.seat_of_slot[slot]].as_ref());
        digests.fold(t, |t, held| t.add(&held.digest)).finish()
    }

    fn digest(&self, label: &str, group: &str, proposal: &Proposal, body: &[u8]) -> [u8; 32] {
        signed(label, group, &[&proposal.instance, &self.roster, &self.state], body)
    }

    /// The epoch that the keys make.
    fn agree(
        &self,
        proposal: &Proposal,
        me: usize,
        (held, cut): (&[Vec<Option<ReceivedMessage>>; 3], &[u8; 32]),
        keys: &[(usize, Key)],
        env: &mut Env<'_>,
    ) -> Agreed {
        let me = self.slot_of_seat[me];
        let group_key = keys.iter().find(|(i, _)| *i == 0).map(|(_, key)| key).expect("everybody is in ring 0");
        let version = proposal.content.version;
        let mut t = Transcript::new("sealcast/v1/epoch").add(env.group.as_bytes()).add(&[env.suite as u8, version]);
        for part in [&proposal.instance, &self.roster, &self.state, &self.table.hash(), cut] {
            t.absorb(part);
        }
        for round in &held[..2] {
            for slot in self.active() {
                t.absorb(&round[self.seat_of_slot[slot]].as_ref().expect("both rounds are complete").digest);
            }
        }
        let transcript = t.add(&group_key.commitment()).finish();
        let hash = u64::from_be_bytes(*transcript.first_chunk().expect("32 bytes have a first 8"));
        let epoch = EpochId { counter: proposal.content.counter, hash };

        let secret = |domain: Domain| {
            let ring = self.table.ring_of(domain)?;
            let (_, key) = keys.iter().find(|(i, _)| *i == ring)?;
            let parts: [&[u8]; 3] = [domain_label(version), env.group.as_bytes(), &domain.0.to_be_bytes()];
            Some(hkdf::<32>(key.secret().expose(), &transcript, &parts))
        };
        let domains: Vec<Domain> = self.table.domains().collect();
        let secrets: Vec<Option<Secret<32>>> = domains.iter().map(|d| secret(*d)).collect();
        let pairs = self.public_domains_of(me).into_iter().filter_map(|d| {
            let secret = secrets[usize::from(d.0)].as_ref()?;
            let seed = hkdf::<32>(secret.expose(), b"", &[b"sealcast/v1/writers"]);
            Some((d, Arc::new(hpke::KeyPair::derive(&seed))))
        });
        let pairs = pairs.collect();
        let writes = |d: &&Domain| self.table.writers_only(**d).holds(me) && self.table.ring_of(**d).is_some();
        let own: Vec<(Domain, Secret<32>)> =
            domains.iter().filter(writes).map(|d| (*d, Secret::random(env.rng))).collect();
        let readers = |d: &Domain| Slots::of_word(self.table.ring_of(*d).map_or(0, |ring| self.rings[ring].readers));
        let own_of = |d: &Domain| own.iter().find(|(o, _)| o == d).map(|(_, key)| key.clone());
        let keys = EpochKeys::new(Parts {
            group: env.group.clone(),
            suite: env.suite,
            epoch,
            me: Slot(me as u32),
            members: Box::new(self.people.iter().map(|p| (p.id.incarnation, p.key.clone())).collect::<Vec<_>>()),
            secrets,
            readers: domains.iter().map(readers).map(Some).collect(),
            own: domains.iter().map(own_of).collect(),
            signer: env.key.clone(),
            payload: None,
        });
        Agreed {
            epoch,
            version,
            me: Slot(me as u32),
            people: self.people.clone(),
            table: self.table.clone(),
            keys: Arc::new(keys),
            pairs,
            own,
            publics: Vec::new(),
            ring_key: None,
            cut: [0; 32],
        }
    }
}

/// What the signature of an R1 is over. A6: over (nonce, roster hash, incarnation): the body says the instance, which
/// binds the nonce, and the roster, which binds everybody's incarnation. Whoever knows another card of the author, or
/// another roster, can verify it too.
pub(super) fn digest_r1(group: &str, author: &MemberId, body: &[u8]) -> [u8; 32] {
    signed(LABELS[0], group, &[&author.cert.0], body)
}

/// Version 2 is one of tests: its keys are others.
fn domain_label(_version: u8) -> &'static [u8] {
    #[cfg(any(test, feature = "misbehaving"))]
    if _version > 1 {
        return b"sealcast/v2/domain";
    }
    b"sealcast/v1/domain"
}

fn member_hash(id: &MemberId) -> [u8; 32] {
    Transcript::new("sealcast/v1/joiner").add(&id.cert.0).add(&id.incarnation.0).finish()
}

const LABELS: [&str; 3] = ["sealcast/v1/r1", "sealcast/v1/r2", "sealcast/v1/kc"];
const STATUS_LABEL: &str = "sealcast/v1/status";
/// So long each of those who hold a proposal has to say it again, before it is the next one's turn.
const REMIND: Duration = Duration::from_millis(40);
/// Questions in a row that are left to others.
const SILENCES_MAX: u32 = 2;
/// So long members who contradict others have time to show why.
const SHOWN_WITHIN: Duration = Duration::from_millis(210);
/// How often they show it.
const SHOWN_TIMES: u32 = 3;
