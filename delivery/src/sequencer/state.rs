//! The state of an application, for members that come or lack some of the order: a snapshot, and the order from there on.
//!
//! ```text
//! QUERY ─▶ giver ─ Wanted, in turn ─▶ its application ─ Give ─▶ HEAD, signed ─▶ WANT ⇄ PIECE … ─▶ Here { position, bytes }
//!           └── nothing, or it waits itself: the next member is asked; if all say so, who had the most before a gap goes on
//!               with that, or the lowest slot begins with nothing
//! ```
//! A state is that of one topic. What follows from the messages of a topic is for its readers, so all of this is sealed under
//! the key of the topic's compartment; it comes only from members that may publish the topic, who could have said what is in
//! it. HEAD binds the hash of the whole, so pieces need no proof. Asker and giver know each other by their runs: a transfer
//! goes on from view to view, and if the giver is gone, another member is asked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_wire::codec::{Malformed, Reader};
use sealcast_wire::{Domain, Dropped, Incarnation, Monotonic, Slot, To, limits};

use super::control::{Control, ROOM};
use super::{Current, MESSAGES_PER_RECORD_BITS, Sequencer};
use crate::{Output, StateEvent, StateInput};

/// What members say of states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StateMessage {
    /// Whether the giver has the state of a topic, with all before this position in it.
    Query { giver: Slot, nonce: u64, least: u64, topic: String },
    /// The answer.
    Head { asker: Slot, nonce: u64, head: Head, topic: String, proof: [u8; 64] },
    /// Pieces of it, from this one on.
    Want { giver: Slot, ticket: u64, first: u32, count: u8 },
    /// One of them.
    Piece { asker: Slot, ticket: u64, index: u32, bytes: Vec<u8> },
}

/// What a member says of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Its application has none for this topic.
    Nothing,
    /// It waits for one itself; before it lacked messages, it had all before this position, or zero.
    Waits { had: u64 },
    /// It is being made.
    Comes,
    /// With all before `position` in it.
    Here { ticket: u64, position: u64, len: u32, hash: [u8; 32] },
}

impl Head {
    fn bytes(self) -> [u8; 1 + 8 + 8 + 4 + 32] {
        let mut bytes = [0; 53];
        match self {
            Head::Nothing => {}
            Head::Waits { had } => {
                bytes[0] = 1;
                bytes[9..17].copy_from_slice(&had.to_be_bytes());
            }
            Head::Comes => bytes[0] = 2,
            Head::Here { ticket, position, len, hash } => {
                bytes[0] = 3;
                bytes[1..9].copy_from_slice(&ticket.to_be_bytes());
                bytes[9..17].copy_from_slice(&position.to_be_bytes());
                bytes[17..21].copy_from_slice(&len.to_be_bytes());
                bytes[21..].copy_from_slice(&hash);
            }
        }
        bytes
    }

    fn read(r: &mut Reader<'_>) -> Result<Head, Malformed> {
        let what = r.u8()?;
        let (ticket, position, len, hash) = (r.u64()?, r.u64()?, r.u32()?, r.array()?);
        let head = match what {
            0 => Head::Nothing,
            1 => Head::Waits { had: position },
            2 => Head::Comes,
            3 => Head::Here { ticket, position, len, hash },
            _ => return Err(Malformed),
        };
        let is_plain = match head {
            Head::Here { .. } => true,
            Head::Waits { .. } => (ticket, len, hash) == (0, 0, [0; 32]),
            Head::Nothing | Head::Comes => (ticket, position, len, hash) == (0, 0, 0, [0; 32]),
        };
        if is_plain { Ok(head) } else { Err(Malformed) }
    }

    /// What its speaker signs; epoch and slot are bound by who vouches.
    fn statement(self, asker: Slot, nonce: u64, topic: &str) -> [u8; 32] {
        let t = Transcript::new("sealcast/v1/state").add(&asker.to_bytes()).add(&nonce.to_be_bytes());
        t.add(topic.as_bytes()).add(&self.bytes()).finish()
    }
}

impl StateMessage {
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let topic_of = |topic: &str, bytes: &mut Vec<u8>| {
            bytes.push(topic.len() as u8);
            bytes.extend_from_slice(topic.as_bytes());
        };
        match self {
            StateMessage::Query { giver, nonce, least, topic } => {
                bytes.push(QUERY);
                bytes.extend_from_slice(&giver.to_bytes());
                bytes.extend_from_slice(&nonce.to_be_bytes());
                bytes.extend_from_slice(&least.to_be_bytes());
                topic_of(topic, bytes);
            }
            StateMessage::Head { asker, nonce, head, topic, proof } => {
                bytes.push(HEAD);
                bytes.extend_from_slice(&asker.to_bytes());
                bytes.extend_from_slice(&nonce.to_be_bytes());
                bytes.extend_from_slice(&head.bytes());
                topic_of(topic, bytes);
                bytes.extend_from_slice(proof);
            }
            StateMessage::Want { giver, ticket, first, count } => {
                bytes.push(WANT);
                bytes.extend_from_slice(&giver.to_bytes());
                bytes.extend_from_slice(&ticket.to_be_bytes());
                bytes.extend_from_slice(&first.to_be_bytes());
                bytes.push(*count);
            }
            StateMessage::Piece { asker, ticket, index, bytes: piece } => {
                bytes.push(PIECE);
                bytes.extend_from_slice(&asker.to_bytes());
                bytes.extend_from_slice(&ticket.to_be_bytes());
                bytes.extend_from_slice(&index.to_be_bytes());
                bytes.extend_from_slice(piece);
            }
        }
    }

    /// Reads one of this kind; `None` if there is no such kind.
    pub(super) fn read(kind: u8, r: &mut Reader<'_>) -> Result<Option<StateMessage>, Malformed> {
        let topic = |r: &mut Reader<'_>| {
            let len = usize::from(r.u8()?);
            let bytes = r.take(len)?;
            std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
        };
        if !(QUERY..=PIECE).contains(&kind) {
            return Ok(None);
        }
        let who = Slot(r.u32()?);
        Ok(Some(match kind {
            QUERY => StateMessage::Query { giver: who, nonce: r.u64()?, least: r.u64()?, topic: topic(r)? },
            HEAD => {
                let (nonce, head) = (r.u64()?, Head::read(r)?);
                StateMessage::Head { asker: who, nonce, head, topic: topic(r)?, proof: r.array()? }
            }
            WANT => StateMessage::Want { giver: who, ticket: r.u64()?, first: r.u32()?, count: r.u8()? },
            _ => {
                let (ticket, index) = (r.u64()?, r.u32()?);
                let bytes = r.rest().to_vec();
                if bytes.is_empty() || bytes.len() > PIECE_BYTES {
                    return Err(Malformed);
                }
                StateMessage::Piece { asker: who, ticket, index, bytes }
            }
        }))
    }
}

/// The states that the application keeps, and those that others are given.
#[derive(Debug, Default)]
pub(super) struct States {
    /// By topic.
    follows: BTreeMap<Arc<str>, Follow>,
    given: VecDeque<Given>,
    tickets: u64,
    /// By asker: when it was answered last, which costs a signature.
    answered: BTreeMap<Slot, Monotonic>,
}

#[derive(Debug)]
enum Follow {
    /// There is no order yet.
    Idle,
    Has,
    Asks(Box<StateRequest>),
}

/// A state that we lack.
#[derive(Debug)]
struct StateRequest {
    /// We get what comes from this position on.
    least: u64,
    /// What we had before we lacked messages: all before this position, or zero.
    had: u64,
    /// When something is to be said.
    at: Monotonic,
    giver: Option<Incarnation>,
    /// Who was asked last.
    last: Slot,
    nonce: u64,
    tries: u32,
    nothing: BTreeSet<Incarnation>,
    /// With what they had.
    wait: BTreeMap<Incarnation, u64>,
    transfer: Option<Transfer>,
}

/// One under way to us.
#[derive(Debug)]
struct Transfer {
    ticket: u64,
    position: u64,
    hash: [u8; 32],
    bytes: Vec<u8>,
    here: Vec<bool>,
    /// The first piece that is not here, and the first that was not asked for.
    first: usize,
    asked: usize,
}

/// One that others may fetch.
#[derive(Debug)]
struct Given {
    ticket: u64,
    topic: Arc<str>,
    domain: Domain,
    position: u64,
    /// Its bytes and their hash, once the application has made it.
    made: Option<(Vec<u8>, [u8; 32])>,
    used: Monotonic,
}

impl States {
    /// Whether one is under way to us.
    fn is_fetching(&self) -> bool {
        self.follows.values().any(|it| matches!(it, Follow::Asks(query) if query.transfer.is_some()))
    }
}

impl StateRequest {
    fn new(now: Monotonic, least: u64, had: u64) -> Box<StateRequest> {
        let (nothing, wait) = <_>::default();
        let (giver, transfer) = (None, None);
        Box::new(StateRequest {
            least,
            had,
            at: now,
            giver,
            last: Slot(0),
            nonce: 0,
            tries: 0,
            nothing,
            wait,
            transfer,
        })
    }

    /// Who gets the next question to this member.
    fn reach(&self, giver: Slot) -> To {
        if self.tries < ALONE_TRIES { To::Slot(giver) } else { To::Group }
    }

    /// Somebody else is asked.
    fn go_on(&mut self, now: Monotonic) {
        (self.giver, self.transfer, self.tries, self.at) = (None, None, 0, now);
    }
}

impl Transfer {
    fn pieces(len: usize) -> usize {
        len.div_ceil(PIECE_BYTES)
    }
}

impl Sequencer {
    /// The application does something with a state.
    pub(super) fn states_for(&mut self, now: Monotonic, input: StateInput<'_>) {
        match input {
            StateInput::Follow(topic) if self.states.follows.len() < limits::STATES_MAX => {
                let follow = if self.report.installed.is_none() {
                    Follow::Idle
                } else {
                    Follow::Asks(StateRequest::new(now, self.next_position(), 0))
                };
                self.states.follows.insert(topic.into(), follow);
            }
            StateInput::Follow(topic) => self.tell_state(topic.into(), StateEvent::Refused),
            StateInput::Unfollow(topic) => {
                self.states.follows.remove(topic);
                self.states.given.retain(|it| &*it.topic != topic);
            }
            StateInput::Again(topic) => {
                let least = self.next_position();
                if let Some(follow) = self.states.follows.get_mut(topic) {
                    *follow = Follow::Asks(StateRequest::new(now, least, 0));
                }
            }
            StateInput::Give { ticket, bytes } => {
                let Some(at) = self.states.given.iter().position(|it| it.ticket == ticket) else { return };
                match bytes.filter(|it| it.len() <= limits::STATE_BYTES_MAX) {
                    Some(bytes) => {
                        let hash = sha256(&bytes);
                        (self.states.given[at].made, self.states.given[at].used) = (Some((bytes, hash)), now);
                    }
                    None => _ = self.states.given.remove(at),
                }
            }
        }
    }

    /// What is delivered from now on has this position or a later one.
    pub(super) fn next_position(&self) -> u64 {
        self.delivered.saturating_add(1) << MESSAGES_PER_RECORD_BITS
    }

    fn tell_state(&mut self, topic: Arc<str>, event: StateEvent) {
        self.tell_in_turn(Output::State(topic, event));
    }

    /// A view is primary: whether it is the `first` one of its group, and whether we `lack` some of the order before it, of which
    /// we had all before the position `had`.
    pub(super) fn states_enter(&mut self, now: Monotonic, first: bool, lack: bool, had: u64) {
        let least = self.next_position();
        let mut told = Vec::new();
        for (topic, follow) in &mut self.states.follows {
            if first && matches!(follow, Follow::Idle) {
                *follow = Follow::Has;
                told.push((topic.clone(), StateEvent::Begins));
            } else if lack || matches!(follow, Follow::Idle) {
                let had = match follow {
                    Follow::Idle => 0,
                    Follow::Has => {
                        told.push((topic.clone(), StateEvent::Lost));
                        had
                    }
                    Follow::Asks(query) => query.had,
                };
                *follow = Follow::Asks(StateRequest::new(now, least, had));
            }
        }
        if lack {
            self.states.given.clear();
        }
        told.into_iter().for_each(|(topic, event)| self.tell_state(topic, event));
    }

    /// A view is installed: slots are others now.
    pub(super) fn states_install(&mut self, now: Monotonic) {
        self.states.answered.clear();
        for follow in self.states.follows.values_mut() {
            if let Follow::Asks(query) = follow {
                // A member that said it has nothing may have come by it.
                (query.at, query.last, query.tries) = (now, Slot(0), 0);
                query.nothing.clear();
                query.wait.clear();
            }
        }
    }

    /// We are out.
    pub(super) fn states_end(&mut self) {
        self.states.given.clear();
        self.states.follows.values_mut().for_each(|it| *it = Follow::Idle);
    }

    /// When something is to be said of states.
    pub(super) fn states_due(&self) -> Option<Monotonic> {
        self.current.as_ref().and_then(|it| it.order.as_ref())?;
        let due = |it: &Follow| if let Follow::Asks(query) = it { Some(query.at) } else { None };
        self.states.follows.values().filter_map(due).min()
    }

    /// Says what is due.
    pub(super) fn say_states(&mut self, now: Monotonic) {
        let current = self.current.as_ref().filter(|it| it.order.is_some());
        let Some(Current { me, members, access, incarnations, .. }) = current else { return };
        let (me, mut says, mut told) = (*me, Vec::new(), Vec::new());
        for (topic, follow) in &mut self.states.follows {
            let Follow::Asks(query) = follow else { continue };
            if query.at > now {
                continue;
            }
            let Some(domain) = access.domain(topic).filter(|it| access.reads(me, *it)) else {
                query.at = now + ASK_LATER;
                continue;
            };
            let slot_of = |who: &Incarnation| incarnations.iter().find(|(_, it)| *it == who).map(|(slot, _)| *slot);
            let giver = query.giver.as_ref().and_then(slot_of);
            let tries = if query.transfer.is_some() { WANT_TRIES } else { FETCH_TRIES_MAX };
            if giver.is_none() || query.tries >= tries {
                query.go_on(now);
            }
            if let (Some(giver), Some(transfer)) = (giver, &mut query.transfer) {
                let run = transfer.here[transfer.first..].iter().take(WINDOW).take_while(|it| !**it).count();
                transfer.asked = transfer.first + run;
                let (ticket, first, count) = (transfer.ticket, transfer.first as u32, run as u8);
                says.push((domain, query.reach(giver), StateMessage::Want { giver, ticket, first, count }));
                (query.tries, query.at) = (query.tries + 1, now + WANT_AGAIN);
                continue;
            }
            if query.giver.is_none() {
                let others = || members.iter().copied().filter(|it| *it != me && access.reads(*it, domain));
                let may_give = || others().filter(|it| access.may_publish(*it, topic));
                let said = |set: &BTreeSet<Incarnation>, slot: &Slot| {
                    incarnations.get(slot).is_some_and(|it| set.contains(it))
                };
                let waits = |slot: &Slot| incarnations.get(slot).and_then(|it| query.wait.get(it)).copied();
                let open = || may_give().filter(|it| !said(&query.nothing, it) && waits(it).is_none());
                let next = open().find(|it| *it > query.last).or_else(|| open().next());
                let Some(next) = next else {
                    // Nobody has all of it: who had the most goes on with that, and others get it from there.
                    let had = query.had;
                    let is_first = |it: Slot| waits(&it).is_none_or(|its| its < had || its == had && me < it);
                    let may_begin = access.may_publish(me, topic) && may_give().next().is_some();
                    if others().next().is_none() || may_begin && may_give().all(is_first) {
                        let event = if had > 0 { StateEvent::Resumes } else { StateEvent::Begins };
                        told.push((topic.clone(), event));
                    }
                    query.nothing.clear();
                    query.wait.clear();
                    query.at = now + ASK_LATER;
                    continue;
                };
                (query.last, query.tries) = (next, 0);
                query.giver = incarnations.get(&next).copied();
                query.nonce = now.0 << 8 | u64::from(next.0) & 0xFF;
            }
            let Some(giver) = query.giver.as_ref().and_then(slot_of) else { continue };
            let (nonce, least, topic) = (query.nonce, query.least, topic.to_string());
            says.push((domain, query.reach(giver), StateMessage::Query { giver, nonce, least, topic }));
            (query.tries, query.at) = (query.tries + 1, now + REQUEST_AGAIN_AFTER);
        }
        for (topic, event) in told {
            self.states.follows.insert(topic.clone(), Follow::Has);
            self.tell_state(topic, event);
        }
        says.into_iter().for_each(|(domain, to, word)| self.say_word(domain, to, word));
    }

    fn say_word(&mut self, domain: Domain, to: To, word: StateMessage) {
        let Some(protect) = self.current.as_ref().map(|it| it.protect.clone()) else { return };
        self.multicast.tell(&protect, domain, to, &Control::State(word).bytes());
    }

    /// Takes in what a member says of states, sealed in this domain.
    pub(super) fn take_word(
        &mut self,
        now: Monotonic,
        (slot, who, domain): (Slot, Incarnation, Domain),
        word: StateMessage,
    ) -> Result<(), Dropped> {
        let current = self.current.as_ref().filter(|it| it.order.is_some()).ok_or(Dropped::Stale)?;
        let (me, next) = (current.me, self.next_position());
        match word {
            StateMessage::Query { giver, nonce, least, topic } if giver == me => {
                self.answer(now, (slot, nonce, domain), least, &topic)
            }
            StateMessage::Head { asker, nonce, head, topic, proof } if asker == me => {
                // Of several states one comes at a time: they may be long.
                let is_busy = self.states.is_fetching();
                let Some(Follow::Asks(query)) = self.states.follows.get_mut(&*topic) else {
                    return Err(Dropped::Stale);
                };
                if query.giver != Some(who) || query.nonce != nonce || query.transfer.is_some() {
                    return Err(Dropped::Stale);
                }
                let access = &current.access;
                if access.domain(&topic) != Some(domain) || !access.may_publish(slot, &topic) {
                    return Err(Dropped::Policy);
                }
                if !current.protect.vouched(slot, &head.statement(me, nonce, &topic), &proof) {
                    return Err(Dropped::Auth);
                }
                match head {
                    Head::Nothing => {
                        query.nothing.insert(who);
                        query.go_on(now);
                    }
                    // Nobody had what nobody was given.
                    Head::Waits { had } if had > next => return Err(Dropped::Policy),
                    Head::Waits { had } => {
                        query.wait.insert(who, had);
                        query.go_on(now);
                    }
                    // The tries are those of an application that does not make it.
                    Head::Comes => query.at = now + REQUEST_AGAIN_AFTER,
                    Head::Here { .. } if is_busy => (query.tries, query.at) = (0, now + ASK_LATER),
                    Head::Here { position, len, .. }
                        if position < query.least || len as usize > limits::STATE_BYTES_MAX =>
                    {
                        query.go_on(now + REQUEST_AGAIN_AFTER);
                    }
                    Head::Here { ticket, position, len, hash } => {
                        let here = vec![false; Transfer::pieces(len as usize)];
                        let bytes = vec![0; len as usize];
                        query.transfer = Some(Transfer { ticket, position, hash, bytes, here, first: 0, asked: 0 });
                        (query.tries, query.at) = (0, now);
                        self.finish_state(now, &topic);
                    }
                }
                Ok(())
            }
            StateMessage::Want { giver, ticket, first, count } if giver == me => {
                let given = self.states.given.iter_mut().find(|it| it.ticket == ticket && it.domain == domain);
                let given = given.ok_or(Dropped::Stale)?;
                let (bytes, _) = given.made.as_ref().ok_or(Dropped::Stale)?;
                given.used = now;
                let pieces = (first..).zip(bytes.chunks(PIECE_BYTES).skip(first as usize));
                let pieces = pieces.take(usize::from(count).min(WINDOW));
                let words: Vec<StateMessage> = pieces
                    .map(|(index, bytes)| StateMessage::Piece { asker: slot, ticket, index, bytes: bytes.to_vec() })
                    .collect();
                words.into_iter().for_each(|word| self.say_word(domain, To::Slot(slot), word));
                Ok(())
            }
            StateMessage::Piece { asker, ticket, index, bytes } if asker == me => {
                let is_of = |it: &StateRequest| {
                    it.giver == Some(who) && it.transfer.as_ref().is_some_and(|it| it.ticket == ticket)
                };
                let mut asks = self.states.follows.iter_mut();
                let found = asks.find_map(|(topic, it)| match it {
                    Follow::Asks(query) if is_of(query) => Some((topic.clone(), query)),
                    _ => None,
                });
                let (topic, query) = found.ok_or(Dropped::Stale)?;
                if current.access.domain(&topic) != Some(domain) {
                    return Err(Dropped::Policy);
                }
                let Some(transfer) = &mut query.transfer else { return Err(Dropped::Stale) };
                let start = index as usize * PIECE_BYTES;
                let whole = transfer.bytes.get_mut(start..).filter(|it| bytes.len() == it.len().min(PIECE_BYTES));
                let (Some(whole), Some(here)) = (whole, transfer.here.get_mut(index as usize)) else {
                    return Err(Dropped::Malformed);
                };
                if std::mem::replace(here, true) {
                    return Err(Dropped::Replay);
                }
                whole[..bytes.len()].copy_from_slice(&bytes);
                query.tries = 0;
                while transfer.here.get(transfer.first) == Some(&true) {
                    transfer.first += 1;
                }
                if transfer.first >= transfer.asked {
                    query.at = now;
                }
                self.finish_state(now, &topic);
                Ok(())
            }
            // It is for another member.
            StateMessage::Query { .. }
            | StateMessage::Head { .. }
            | StateMessage::Want { .. }
            | StateMessage::Piece { .. } => Ok(()),
        }
    }

    /// Hands a state on, once it is whole.
    fn finish_state(&mut self, now: Monotonic, topic: &str) {
        let Some(Follow::Asks(query)) = self.states.follows.get_mut(topic) else { return };
        let Some(transfer) = query.transfer.take_if(|it| it.first == it.here.len()) else { return };
        if sha256(&transfer.bytes) != transfer.hash {
            self.drops.count(Dropped::Auth);
            return query.go_on(now);
        }
        self.states.follows.insert(topic.into(), Follow::Has);
        self.tell_state(topic.into(), StateEvent::Here { position: transfer.position, bytes: transfer.bytes });
    }

    /// Somebody asks for a state.
    fn answer(
        &mut self,
        now: Monotonic,
        (asker, nonce, domain): (Slot, u64, Domain),
        least: u64,
        topic: &str,
    ) -> Result<(), Dropped> {
        let position = self.next_position();
        let Some(Current { me, access, protect, .. }) = &self.current else { return Err(Dropped::Stale) };
        if access.domain(topic) != Some(domain) || !access.may_publish(*me, topic) || !access.reads(asker, domain) {
            return Err(Dropped::Policy);
        }
        if self.states.answered.get(&asker).is_some_and(|at| now < *at + ANSWER_AGAIN) {
            return Err(Dropped::Rate);
        }
        let protect = protect.clone();
        self.states.answered.insert(asker, now);
        let States { follows, given, tickets, .. } = &mut self.states;
        let mut wanted = None;
        let head = match follows.get_key_value(topic) {
            None | Some((_, Follow::Idle)) => Head::Nothing,
            Some((_, Follow::Asks(query))) => Head::Waits { had: query.had },
            Some((topic, Follow::Has)) => {
                given.retain(|it| now.since(it.used) < KEPT_FOR);
                let is_full = given.len() >= limits::STATES_GIVEN_MAX;
                match given.iter_mut().find(|it| it.topic == *topic && it.position >= least) {
                    Some(Given { made: Some((bytes, hash)), used, ticket, position, .. }) => {
                        *used = now;
                        Head::Here { ticket: *ticket, position: *position, len: bytes.len() as u32, hash: *hash }
                    }
                    Some(Given { made: None, .. }) => Head::Comes,
                    None if position < least || is_full => Head::Comes,
                    None => {
                        *tickets += 1;
                        let (ticket, topic, made) = (*tickets, topic.clone(), None);
                        wanted = Some((topic.clone(), ticket));
                        given.push_back(Given { ticket, topic, domain, position, made, used: now });
                        Head::Comes
                    }
                }
            }
        };
        if let Some((topic, ticket)) = wanted {
            self.tell_state(topic, StateEvent::Wanted(ticket));
        }
        let mut signature = Vec::new();
        protect.vouch(&head.statement(asker, nonce, topic), &mut signature);
        let Ok(proof) = <[u8; 64]>::try_from(&signature[..]) else { return Ok(()) };
        self.say_word(
            domain,
            To::Slot(asker),
            StateMessage::Head { asker, nonce, head, topic: topic.to_owned(), proof },
        );
        Ok(())
    }
}

const QUERY: u8 = 13;
const HEAD: u8 = 14;
const WANT: u8 = 15;
const PIECE: u8 = 16;

/// Bytes of a piece, but for the last one.
const PIECE_BYTES: usize = 960;
const _: () = assert!(1 + 4 + 8 + 4 + PIECE_BYTES <= ROOM && 1 + 4 + 8 + 53 + 256 + 64 <= ROOM);
/// Pieces that are asked for at once.
const WINDOW: usize = 32;
/// How long after pieces were asked for the missing ones are asked for again.
const WANT_AGAIN: Duration = Duration::from_millis(20);
/// So often in vain until another member is asked.
const WANT_TRIES: u32 = 50;
/// The same of the question.
const REQUEST_AGAIN_AFTER: Duration = Duration::from_millis(50);
const FETCH_TRIES_MAX: u32 = 40;
/// After so many questions that only their addressee got, all get the next ones: its machine may let in what answers it, and
/// nothing else.
const ALONE_TRIES: u32 = 3;
/// If nobody has it: when all are asked again.
const ASK_LATER: Duration = Duration::from_millis(100);
/// A member gets no two answers sooner.
const ANSWER_AGAIN: Duration = Duration::from_millis(5);
/// How long a state is kept that nobody fetches.
const KEPT_FOR: Duration = Duration::from_secs(5);
