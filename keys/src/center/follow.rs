//! A member's side: asking to be let in, following proposals, taking epochs in.

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_crypto::identity::Registration;
use sealcast_wire::{Address, CertHash, Dropped, EpochId, MemberId, Monotonic, Now, limits};

use super::epoch::{derive, has_sending_keys, places, take};
use super::lead::spread;
use super::message::{
    Accept, Ack, Beacon, Challenge, Commit, Content, Dismiss, Gone, Join, Lack, Message, PART_SLOTS, PARTS_MAX, Part,
    Propose, lock,
};
use super::pair::PairKey;
use super::query::Query;
use super::{Center, JOIN_RETRY, JOIN_RETRY_MAX, Phase, Timer};
use crate::timers::jitter;
use crate::{Exclusion, HandleError, Misbehaviour, Output};

/// A leader's challenge that we accept, or accept once the centre says that the leader is good.
pub(super) struct Courts {
    pub(super) leader: MemberId,
    challenge: Challenge,
    key: PairKey,
    /// Where it came from; `None` if what we answered there did not help.
    from: Option<Address>,
    accepted: bool,
    at: Monotonic,
}

/// A proposal that we follow, to the end or until it fails.
pub(super) struct Follows {
    pub(super) id: [u8; 32],
    pub(super) content: Content,
    key: PairKey,
    /// Where the leader said it: acknowledgements go there, and to all if they are not heard.
    from: Option<Address>,
    state: FollowState,
    since: Monotonic,
    tries: u32,
    /// When we acknowledged last.
    said: Option<Monotonic>,
    /// When we last asked for registrations, or were about to be given them.
    wanted: Option<Monotonic>,
}

/// A proposal whose roster comes in parts.
pub(super) struct Gathers {
    id: [u8; 32],
    pub(super) propose: Propose,
    from: Option<Address>,
    parts: BTreeMap<u16, Vec<(MemberId, [u8; 16])>>,
    since: Monotonic,
    tries: u32,
}

impl Gathers {
    /// Whom the parts that came name.
    pub(super) fn certs(&self) -> impl Iterator<Item = CertHash> {
        self.parts.values().flatten().map(|(who, _)| who.cert)
    }

    fn names(&self, cert: &CertHash) -> bool {
        self.certs().any(|it| it == *cert)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowState {
    /// Registrations are missing.
    Gathering,
    /// Our view ends.
    Ending,
    /// We said that we are ready.
    Acknowledged,
}

/// Keys that leaders share with us, by leader: some, since σ is cheap to make again.
#[derive(Default)]
pub(super) struct PairKeys(BTreeMap<CertHash, (MemberId, [u8; 16], PairKey)>);

impl PairKeys {
    fn get(&self, leader: &MemberId) -> Option<&PairKey> {
        self.0.get(&leader.cert).filter(|(who, ..)| who == leader).map(|(.., key)| key)
    }

    pub(super) fn forget(&mut self, cert: &CertHash) {
        self.0.remove(cert);
    }

    fn put(&mut self, leader: MemberId, salt: [u8; 16], key: PairKey) {
        if self.0.len() >= limits::LEADERS_KNOWN_MAX && !self.0.contains_key(&leader.cert) {
            self.0.pop_first();
        }
        self.0.insert(leader.cert, (leader, salt, key));
    }
}

impl Center {
    /// The key that a leader shares with us through this salt.
    fn pair_with(&self, leader: &MemberId, registration: &Registration, salt: &[u8; 16]) -> Result<PairKey, Dropped> {
        if let Some((who, known, key)) = self.pairs.0.get(&leader.cert)
            && (who, known) == (leader, salt)
        {
            return Ok(key.clone());
        }
        let principal = &self.config.principal;
        let sigma = principal.long_term.receives(&leader.cert.0, &self.me.cert.0, salt);
        let mixed = principal.mixed(&sigma, registration).ok_or(Dropped::Auth)?;
        Ok(PairKey::new(&self.group, &mixed, leader, &self.me))
    }

    /// The key that we share with somebody, whoever of us leads or led.
    pub(super) fn shared_with(&self, other: &MemberId) -> Option<PairKey> {
        self.pairs.get(other).cloned().or_else(|| self.leads.key_with(&self.group, &self.me, other))
    }

    /// Asks to be let in, as long as we are in no group, or want to come to another part of it.
    pub(super) fn join_again(&mut self, now: Now) {
        self.towards.take_if(|(_, until)| *until <= now.monotonic);
        let wants = self.installed.is_none() || self.towards.is_some() || self.is_orphaned();
        if self.phase != Phase::Running || !wants || self.follows.is_some() {
            return;
        }
        let registration = self.registration.clone();
        let (run, epoch, size) = (self.me.incarnation, self.epoch(), self.view_size() as u16);
        let reliable = self.config.reliable;
        self.send(&Message::Join(Join { registration, run, epoch, size, reliable }));
        self.joined_at = Some(now.monotonic);
        // All of a large group that lost its leaders ask at once, and each hears all others.
        let wait = spread(self.join_wait, self.view_size());
        let wait = wait + jitter(&mut self.rng, wait / 2);
        self.timers.set(Timer::Join, now.monotonic + wait);
        self.join_wait = (self.join_wait * 2).min(JOIN_RETRY_MAX);
    }

    /// A leader would let us in.
    pub(super) fn on_challenge(&mut self, now: Now, from: Option<Address>, m: Challenge) -> Result<(), Dropped> {
        let leader = MemberId { cert: m.registration.hash(), incarnation: m.run };
        if m.to != self.me || self.phase != Phase::Running {
            return Err(Dropped::Stale);
        }
        self.judge(now, &m.registration)?;
        if !m.registration.rights.may_lead(&self.group) {
            return Err(Dropped::Policy);
        }
        let wants = self.view_size() < 2
            || self.is_orphaned()
            || self.towards.is_some_and(|(cert, until)| cert == leader.cert && until > now.monotonic);
        let old = |it: &Courts| it.leader == leader || now.monotonic.since(it.at) >= COURT;
        if !wants || self.follows.is_some() || !self.courts.as_ref().is_none_or(old) {
            return Err(Dropped::Stale);
        }
        let key = self.pair_with(&leader, &m.registration, &m.salt)?;
        key.check_challenge(&m).map_err(|_| Dropped::Auth)?;
        // From here on it is a leader whom the centre registered, and gave a key for us at some time.
        self.learn(now.monotonic, &m.registration);
        self.pairs.put(leader, m.salt, key.clone());
        // The same one again, or a recorded one, holds us no longer than it did.
        let same = |it: &&Courts| it.leader == leader && it.challenge.token == m.token;
        let before = self.courts.as_ref().filter(same);
        let at = before.map_or(now.monotonic, |it| it.at);
        let again = before.is_some_and(|it| it.accepted);
        self.courts = Some(Courts { leader, challenge: m, key, from: from.filter(|_| !again), accepted: false, at });
        self.take_challenge(now);
        Ok(())
    }

    /// Accepts the challenge if its leader is known to be good: whoever was revoked while we were off still has a key for us.
    pub(super) fn take_challenge(&mut self, now: Now) {
        let Some(courts) = &self.courts else { return };
        let cert = courts.leader.cert;
        let is_good = self.good.get(&cert).is_some_and(|at| now.monotonic.since(*at) < super::GOOD_FOR);
        #[cfg(any(test, feature = "misbehaving"))]
        let is_good = is_good || self.lacks(super::misbehaving::Rule::Check);
        if !is_good && !self.is_in_view(&cert) {
            self.ask(now, Query::Check(cert));
            return;
        }
        let (to, token) = (courts.leader, courts.challenge.token);
        let mut accept = Accept { from: self.me, to, token, epoch: self.epoch(), tag: [0; 16] };
        accept.tag = courts.key.accept(&accept);
        let mut address = None;
        if let Some(courts) = &mut self.courts {
            courts.accepted = true;
            address = courts.from;
        }
        self.send_to(address, &Message::Accept(accept));
    }

    /// A leader says who shall be in the next epoch.
    pub(super) fn on_propose(&mut self, now: Now, from: Option<Address>, m: Propose) -> Result<(), Dropped> {
        let (leader, id) = (m.leader, m.id());
        // Numbers ascend, and nobody, who may lead or not, brings them near their end (research: LAN attacks, L1).
        let reach = self.installed.as_ref().map_or(COUNTER_MAX, |it| it.epoch.counter.saturating_add(AHEAD_MAX));
        let near = (self.epoch().counter + 1..=reach.min(COUNTER_MAX)).contains(&m.counter);
        let over = !near || self.failed == Some(id);
        if leader.cert == self.me.cert || self.phase == Phase::Out || over {
            return Err(Dropped::Stale);
        }
        if usize::from(m.size) > self.members_max() {
            return Err(Dropped::Policy);
        }
        if let Some(follows) = self.follows.as_mut().filter(|it| it.id == id) {
            let slot = follows.content.slot_of(&self.me).unwrap_or_default();
            match follows.state {
                FollowState::Acknowledged if m.has_heard(slot) => {}
                // What we said just now may be on its way.
                FollowState::Acknowledged if follows.said.is_some_and(|at| now.monotonic.since(at) < ACK_SPACING) => {}
                FollowState::Acknowledged => self.acknowledge(now),
                FollowState::Gathering | FollowState::Ending => self.go_on(now),
            }
            return Ok(());
        }
        if self.gathers.as_ref().is_some_and(|it| it.id == id) {
            return Ok(());
        }
        let Some(known) = self.people.get(&leader.cert).map(|it| it.registration.clone()) else {
            self.send(&Message::Want(vec![leader.cert]));
            return Err(Dropped::NoKey);
        };
        self.judge(now, &known)?;
        if !known.rights.may_lead(&self.group) {
            return Err(Dropped::Policy);
        }
        // Nobody else's signature is looked at: what any key signs, anybody can have signed.
        let may_follow = self.may_follow(&m);
        if !may_follow && !self.is_in_view(&leader.cert) {
            return Err(Dropped::Policy);
        }
        known.key.verify(&id, &m.signature).map_err(|_| Dropped::Auth)?;
        if !may_follow {
            self.doubt(now, &m);
            self.overtook = Some((now.monotonic, from, m));
            return Err(Dropped::Policy);
        }
        // An older attempt of the same leader, which came late.
        // Attempts of one run ascend, whatever numbers their epochs have.
        if self.newest.is_some_and(|(of, attempt)| of == leader && attempt > m.attempt) {
            return Err(Dropped::Stale);
        }
        // What we acknowledged was handed out, and did not reach us: we pass over no epoch that others were in.
        let missed = |it: &&Follows| {
            it.content.leader == leader && it.state == FollowState::Acknowledged && it.content.counter == m.base.counter
        };
        if self.follows.as_ref().filter(missed).is_some() {
            self.acknowledge(now);
            return Ok(());
        }
        let base = self.installed.as_ref().filter(|it| it.epoch == m.base);
        let content = base.and_then(|it| m.applied(&it.slots));
        if content.as_ref().is_some_and(|it| it.slot_of(&self.me).is_none()) {
            return Err(Dropped::Foreign);
        }
        match content.zip(self.pairs.get(&leader).cloned()) {
            Some((content, key)) => self.follow(now, from, (id, content), key),
            None => self.gather(now, from, m),
        }
        Ok(())
    }

    /// Somebody has to go: the proposal that follows from that may have overtaken the word of it.
    pub(super) fn follow_late(&mut self, now: Now) {
        let overtook = self.overtook.take();
        if let Some((_, from, m)) = overtook.filter(|(at, ..)| now.monotonic.since(*at) < OVERTAKEN) {
            let _ = self.on_propose(now, from, m);
        }
    }

    /// Follows a proposal whose roster is here.
    fn follow(&mut self, now: Now, from: Option<Address>, (id, content): ([u8; 32], Content), key: PairKey) {
        self.newest = Some((content.leader, content.attempt));
        self.gathers = None;
        self.last_sign = Some(now.monotonic);
        self.leads.give_up();
        self.timers.stop(Timer::Resend);
        self.timers.stop(Timer::Propose);
        let (state, since) = (FollowState::Gathering, now.monotonic);
        // Who all are a newcomer is told without a word; a member asks at once who a newcomer is.
        let is_base = self.installed.as_ref().is_some_and(|it| it.epoch == content.base);
        let wanted = (!is_base).then_some(since);
        self.follows = Some(Follows { id, content, key, from, state, since, tries: 0, said: None, wanted });
        self.timers.set(Timer::Ack, now.monotonic + ACK_AGAIN);
        self.go_on(now);
    }

    /// Waits for the parts of a proposal's roster: those of the base are told what changes, all others need it whole.
    fn gather(&mut self, now: Now, from: Option<Address>, propose: Propose) {
        // They come by themselves, if its leader knows that we lack them.
        let comes = propose.came.as_ref().is_none_or(|came| came.iter().any(|(_, who)| *who == self.me));
        let id = propose.id();
        self.gathers = Some(Gathers { id, propose, from, parts: BTreeMap::new(), since: now.monotonic, tries: 0 });
        let early = std::mem::take(&mut self.early);
        let wait = if comes { ACK_AGAIN } else { Duration::ZERO };
        self.timers.set(Timer::Gather, now.monotonic + wait);
        early.into_iter().for_each(|part| _ = self.on_roster(now, part));
    }

    /// Asks again for the parts that did not come.
    pub(super) fn gather_again(&mut self, now: Now) {
        let most = self.gathers.as_ref().map_or(FOLLOW, |it| self.follows_for(usize::from(it.propose.size)));
        let Some(gathers) = self.gathers.as_mut().filter(|it| now.monotonic.since(it.since) < most) else {
            self.gathers = None;
            return;
        };
        let wait = (ACK_AGAIN * 2_u32.saturating_pow(gathers.tries.min(4))) + jitter(&mut self.rng, ACK_AGAIN / 2);
        let tries = gathers.tries;
        gathers.tries += 1;
        let (to, proposal, address) = (gathers.propose.leader, gathers.id, gathers.from);
        let lacks = (0..gathers.propose.parts()).filter(|part| !gathers.parts.contains_key(&(*part as u16)));
        let parts = lacks.fold(0, |bits, part| bits | 1_u64 << part);
        self.timers.set(Timer::Gather, now.monotonic + wait);
        if let Some(key) = self.pairs.get(&to).cloned() {
            let mut lack = Lack { from: self.me, to, proposal, parts, tag: [0; 16] };
            lack.tag = key.lack(&lack);
            // Its machine may let in what answers it, and nothing else.
            let address = address.filter(|_| tries < ACKS_TO_LEADER);
            self.send_to(address, &Message::Lack(lack));
        }
    }

    /// A part of the roster that we wait for.
    pub(super) fn on_roster(&mut self, now: Now, m: Part) -> Result<(), Dropped> {
        let Some(gathers) = self.gathers.as_ref().filter(|it| it.id == m.proposal) else {
            // It may have overtaken its proposal; both prove themselves then.
            let knows = self.follows.as_ref().is_some_and(|it| it.id == m.proposal);
            if knows || self.phase != Phase::Running || self.early.contains(&m) {
                return Err(Dropped::Stale);
            }
            if self.early.len() >= PARTS_MAX {
                self.early.remove(0);
            }
            self.early.push(m);
            return Ok(());
        };
        let (leader, part) = (gathers.propose.leader, usize::from(m.part));
        let slots = usize::from(gathers.propose.size).saturating_sub(part * PART_SLOTS).min(PART_SLOTS);
        if m.slots.len() != slots || gathers.parts.contains_key(&m.part) {
            return Err(Dropped::Stale);
        }
        let known = self.people.get(&leader.cert).ok_or(Dropped::NoKey)?;
        known.registration.key.verify(&m.statement(), &m.signature).map_err(|_| Dropped::Auth)?;
        if let Some((_, salt)) = m.slots.iter().find(|(who, _)| *who == self.me) {
            let key = self.pair_with(&leader, &known.registration, salt)?;
            self.pairs.put(leader, *salt, key);
        }
        let Some(gathers) = &mut self.gathers else { return Ok(()) };
        gathers.parts.insert(m.part, m.slots);
        if gathers.parts.len() < gathers.propose.parts() {
            return Ok(());
        }
        let Some(gathers) = self.gathers.take() else { return Ok(()) };
        let slots = gathers.parts.values().flatten().map(|(who, _)| *who).collect();
        let content = gathers.propose.with(slots).ok_or(Dropped::Conflict)?;
        content.slot_of(&self.me).ok_or(Dropped::Foreign)?;
        let key = self.pairs.get(&leader).cloned().ok_or(Dropped::NoKey)?;
        self.follow(now, gathers.from, (gathers.id, content), key);
        Ok(())
    }

    /// Whether its leader is ours, or becomes it, or let us in.
    fn may_follow(&self, m: &Propose) -> bool {
        let courted = self.courts.as_ref().is_some_and(|it| it.accepted && it.leader == m.leader);
        let Some(installed) = &self.installed else { return courted };
        // A stand-by's word deposes nobody.
        let deposed = |it: &MemberId| it.cert != m.leader.cert && self.going.contains_key(&it.cert);
        let next = installed.slots.iter().find(|it| self.may_lead(&it.cert) && !deposed(it));
        let leads = installed.slots[0] == m.leader && self.going.get(&m.leader.cert) != Some(&Gone::Revoked);
        courted || leads || (next == Some(&m.leader) && m.base == installed.epoch)
    }

    /// A stand-by says that our leader is revoked: the centre knows.
    fn doubt(&mut self, now: Now, m: &Propose) {
        let said = m.gone.contains(&(0, Gone::Revoked)) && m.base == self.epoch();
        if let Some(leader) = self.leader().filter(|_| said) {
            self.ask(now, Query::Check(leader.cert));
        }
    }

    /// Goes on with the proposal that we follow, as far as that is possible now.
    pub(super) fn go_on(&mut self, now: Now) {
        let Some(follows) = self.follows.as_ref().filter(|it| it.state == FollowState::Gathering) else { return };
        // Those of our view are known.
        let base = self.installed.as_ref().map_or(&[][..], |it| &it.slots);
        let new = follows.content.slots.iter().zip(places(&follows.content.slots, base));
        let new = new.filter(|(_, place)| place.is_none()).map(|(it, _)| it.cert);
        let missing: Vec<CertHash> = new.filter(|cert| !self.people.contains_key(cert)).collect();
        if !missing.is_empty() {
            let spaced = |at: Monotonic| now.monotonic.since(at) < WANT_SPACING;
            let Some(follows) = self.follows.as_mut().filter(|it| !it.wanted.is_some_and(spaced)) else { return };
            follows.wanted = Some(now.monotonic);
            let leader = follows.from.filter(|_| follows.tries < ACKS_TO_LEADER);
            // As many as one packet names; the answer to them brings the next ones.
            return self.send_to(leader, &Message::Want(missing.into_iter().take(WANTED_AT_ONCE).collect()));
        }
        if let Some(follows) = &mut self.follows {
            follows.state = FollowState::Ending;
        }
        let Some((id, content)) = self.follows.as_ref().map(|it| (it.id, it.content.clone())) else { return };
        self.fetch_keys(now, &content.slots);
        match self.installed.is_some() {
            true => self.prepare(now, &id, &content),
            false => {
                self.cut = Some([0; 32]);
                self.acknowledge(now);
            }
        }
    }

    /// Whether there is a change of which we may lack registrations.
    pub(super) fn wants_any(&self) -> bool {
        let gathers = self.follows.as_ref().is_some_and(|it| it.state == FollowState::Gathering);
        gathers || self.gathers.is_some() || !self.early.is_empty() || self.is_let_in()
    }

    /// Whether we lack this registration.
    pub(super) fn is_wanted(&self, cert: &CertHash) -> bool {
        let named = |it: &Follows| it.content.slots.iter().any(|it| it.cert == *cert);
        let named = self.follows.as_ref().is_some_and(named) || self.gathers.as_ref().is_some_and(|it| it.names(cert));
        let named = named || self.early.iter().flat_map(|it| &it.slots).any(|(who, _)| who.cert == *cert);
        (named || self.is_let_in()) && !self.people.contains_key(cert)
    }

    /// Whether we are about to be let in: then it may be told who all are before which change that is of. How many are remembered
    /// has a limit ([`limits::CENTER_PEOPLE_MAX`]).
    fn is_let_in(&self) -> bool {
        self.installed.is_none() && self.courts.as_ref().is_some_and(|it| it.accepted)
    }

    /// What is delivered in the view in use is settled, or is not known in time: then zeros stand for it.
    pub(super) fn flushed(&mut self, now: Now, cut: [u8; 32]) {
        self.timers.stop(Timer::Flush);
        if self.cut.is_none() {
            self.cut = Some(cut);
            if self.follows.as_ref().is_some_and(|it| it.state == FollowState::Ending) {
                self.acknowledge(now);
            }
            self.try_commit(now);
        }
    }

    /// The centre gave us a key that we may have waited for.
    pub(super) fn take_keys(&mut self, now: Now) {
        if self.follows.as_ref().is_some_and(|it| it.state == FollowState::Ending) {
            self.acknowledge(now);
        }
    }

    /// Says that we are ready. Who will stand by is once it has its keys, or the centre did not give them in time (C2).
    fn acknowledge(&mut self, now: Now) {
        let (Some(cut), base) = (self.cut, self.epoch()) else { return };
        let waits = |it: &&Follows| {
            let is_ending = it.state == FollowState::Ending && now.monotonic.since(it.since) < KEYS_WAIT;
            is_ending && !self.keys_lacked(&it.content.slots).is_empty()
        };
        if let Some(follows) = self.follows.as_ref().filter(waits) {
            return self.timers.sooner(Timer::Ack, follows.since + KEYS_WAIT);
        }
        let most = self.follows.as_ref().map_or(FOLLOW, |it| self.follows_for(it.content.slots.len()));
        let Some(follows) = &mut self.follows else { return };
        follows.state = FollowState::Acknowledged;
        let (proposal, to) = (follows.id, follows.content.leader);
        let mut ack = Ack { from: self.me, to, proposal, base, cut, tag: [0; 16] };
        ack.tag = follows.key.ack(&ack);
        let again = spread(ACK_AGAIN, follows.content.slots.len());
        let wait = (again * 2_u32.saturating_pow(follows.tries.min(4))) + jitter(&mut self.rng, again / 2);
        // Anybody can say a proposal again: who answers that follows it no longer than it would.
        self.timers.set(Timer::Ack, (now.monotonic + wait).min(follows.since + most));
        follows.said = Some(now.monotonic);
        let to = follows.from.filter(|_| follows.tries < ACKS_TO_LEADER);
        self.send_to(to, &Message::Ack(ack));
    }

    /// Says again that we are ready, which a leader that has ended the change answers; or what we lack.
    pub(super) fn ack_again(&mut self, now: Now) {
        let most = self.follows.as_ref().map_or(FOLLOW, |it| self.follows_for(it.content.slots.len()));
        let Some(follows) = &mut self.follows else { return };
        // What was not said yet is not said again.
        follows.tries += u32::from(follows.state != FollowState::Ending);
        if now.monotonic.since(follows.since) >= most {
            return self.give_up(now);
        }
        match follows.state {
            FollowState::Acknowledged => self.acknowledge(now),
            FollowState::Gathering => {
                self.timers.set(Timer::Ack, now.monotonic + ACK_AGAIN);
                self.go_on(now);
            }
            FollowState::Ending => {
                self.timers.set(Timer::Ack, now.monotonic + ACK_AGAIN);
                self.acknowledge(now);
            }
        }
    }

    /// How long a proposal of so many is followed: as long as its leader goes on with it, or all who waited would come anew.
    fn follows_for(&self, members: usize) -> Duration {
        FOLLOW.max(self.lasts(members))
    }

    /// The proposal that we follow came to nothing. It is not followed again: its leader may count on how we said that our
    /// view ended.
    fn give_up(&mut self, now: Now) {
        self.failed = self.follows.take().map(|it| it.id);
        self.abandon();
        self.timers.sooner(Timer::Join, now.monotonic);
        self.plan(now, Duration::ZERO);
    }

    /// What was prepared will not happen, unless somebody has to go all the same.
    pub(super) fn abandon(&mut self) {
        let evicts = self.going.values().any(|why| *why == Gone::Revoked);
        if self.prepared && !evicts {
            self.prepared = false;
            self.outputs.push_back(Output::Abandoned);
        }
    }

    /// The secrets of the epoch that we are ready for.
    pub(super) fn on_commit(&mut self, now: Now, m: &Commit) -> Result<(), HandleError> {
        let ready = |it: &&Follows| it.id == m.proposal && it.state == FollowState::Acknowledged;
        let follows = self.follows.as_ref().filter(ready).ok_or(Dropped::Stale)?;
        let slot = follows.content.slot_of(&self.me).ok_or(Dropped::Stale)?;
        // What its leader vouched for: nobody else's nonce or commitments come so far.
        if lock(m.nonce.as_ref(), &m.commitments) != follows.content.lock {
            return Err(Dropped::Auth.into());
        }
        let entry = m.entries.iter().find(|(at, _)| usize::from(*at) == slot);
        let (content, leader, from) = (follows.content.clone(), follows.content.leader.cert, follows.from);
        let base = self.installed.as_ref().filter(|it| it.epoch == content.base);
        let of_base = base.is_some();
        let table = self.table_of(&content).ok_or(Dropped::Stale)?;
        // A member that lacks the base derives nothing: it asks for its entry by saying again where it is.
        let taken = match (entry, &m.nonce, base) {
            (Some((_, sealed)), ..) => take(&content, &table, m, slot, (sealed, &follows.key)),
            (None, Some(nonce), Some(base)) if !has_sending_keys(&table, slot) => {
                derive(base, &content, &table, m, (slot, nonce))
            }
            (None, ..) => return Err(Dropped::Foreign.into()),
        };
        let taken = taken.map_err(|why| match why {
            // Only the leader seals for us: what it says contradicts itself (A13).
            Dropped::Conflict => HandleError::Misbehaved(leader, Misbehaviour::WrongValue),
            other => HandleError::Dropped(other),
        })?;
        if of_base && self.cut != Some(m.cut) {
            // The leader took somebody else's word, or an old one of ours: we come to it as a newcomer does.
            self.give_up(now);
            return Err(Dropped::Conflict.into());
        }
        self.addresses = from.map(|at| (content.leader, at)).into_iter().collect();
        self.enter(now, &content, table, taken, m.nonce.is_some());
        Ok(())
    }

    /// A group is here: ours, which went on without us, or another part of it.
    pub(super) fn on_beacon(&mut self, now: Now, m: &Beacon) -> Result<(), Dropped> {
        let leader = MemberId { cert: m.registration.hash(), incarnation: m.run };
        self.judge(now, &m.registration)?;
        let leads = m.registration.rights.may_lead(&self.group);
        if leader.cert == self.me.cert || (m.size > 0 && !leads) {
            return Err(Dropped::Policy);
        }
        self.learn_unproved(now.monotonic, &m.registration)?;
        self.has_channels(now.monotonic, leader.cert, m.reliable)?;
        self.hear(leader);
        if self.installed.as_ref().is_some_and(|it| it.epoch == m.epoch && it.slots.contains(&leader)) {
            self.timers.stop(Timer::Sign);
        }
        // Where nobody is left who may lead, newcomers form a group and let the others in.
        if leads {
            self.last_sign = Some(now.monotonic);
        }
        if m.size == 0 {
            return Ok(());
        }
        if self.installed.is_none() && leads && usize::from(m.size) >= self.members_max() {
            self.tell_full(now.monotonic, leader.cert, true);
        }
        let calls = match &self.installed {
            None => true,
            Some(it) if it.slots[0] == leader => m.epoch != it.epoch && m.epoch.counter >= it.epoch.counter,
            // A beacon proves nothing; a challenge will.
            Some(it) if self.is_in_view(&leader.cert) && it.epoch == m.epoch => false,
            Some(_) => self.is_orphaned() || self.outranks((m.size, leader.cert)),
        };
        if calls && self.follows.is_none() && self.phase == Phase::Running {
            if self.installed.is_some() && self.towards.is_none_or(|(_, until)| until <= now.monotonic) {
                self.towards = Some((leader.cert, now.monotonic + TOWARDS));
                self.join_wait = JOIN_RETRY;
            }
            // However many say that they are here.
            let earliest = self.joined_at.map_or(now.monotonic, |at| now.monotonic.max(at + JOIN_RETRY));
            let most = spread(SPREAD, self.view_size());
            let wait = jitter(&mut self.rng, most);
            self.timers.sooner(Timer::Join, earliest + wait);
        }
        Ok(())
    }

    /// Whether a group of so many with this leader takes ours in, not the other way round.
    fn outranks(&self, (size, leader): (u16, CertHash)) -> bool {
        let ours = self.leader().map(|it| it.cert);
        let (size, own) = (usize::from(size), self.view_size());
        size > own || (size == own && ours.is_some_and(|ours| leader < ours))
    }

    /// A leader says that we are out.
    pub(super) fn on_dismiss(&mut self, m: &Dismiss) -> Result<(), Dropped> {
        if m.to != self.me {
            return Err(Dropped::Foreign);
        }
        // Only who leads us dismisses; and who stands by for us, if we led, by the key that we have for it. All members know that
        // kind of key: it must be one who may lead.
        let leads_us =
            self.leader() == Some(m.from) || self.follows.as_ref().is_some_and(|it| it.content.leader == m.from);
        let stands_by = self.leader() == Some(self.me) && self.line().any(|it| *it == m.from);
        let key = match (leads_us, stands_by) {
            (true, _) => self.pairs.get(&m.from).cloned(),
            (false, true) => self.leads.key_with(&self.group, &self.me, &m.from),
            (false, false) => return Err(Dropped::Policy),
        };
        key.ok_or(Dropped::Stale)?.check_dismiss(m).map_err(|_| Dropped::Auth)?;
        match m.why {
            Gone::Left if self.phase == Phase::Leaving => self.exclude(Exclusion::Left),
            Gone::Revoked => self.exclude(Exclusion::Evicted { reason: REVOKED.to_owned() }),
            Gone::Replaced => self.exclude(Exclusion::Duplicate),
            Gone::Left | Gone::Silent => return Err(Dropped::Stale),
        }
        Ok(())
    }

    /// Others of the group are near.
    pub(super) fn hear(&mut self, who: MemberId) {
        if self.installed.as_ref().is_none_or(|it| !it.slots.contains(&who)) {
            self.others = Some(who);
        }
    }

    /// Looks at whoever asks to be let in, where we are no leader: others may be about to form a group.
    pub(super) fn notice_other(&mut self, now: Now, registration: &Registration, epoch: EpochId) {
        let earlier = registration.hash() < self.me.cert && registration.rights.may_lead(&self.group);
        if self.installed.is_none() && earlier && epoch == EpochId::default() {
            self.last_sign = Some(now.monotonic);
        }
    }
}

/// Epochs that a member may be ahead of its new leader, or a leader of a member.
pub(super) const AHEAD_MAX: u32 = limits::FIRST_COUNTER_MAX;
/// No epoch has a greater number: what is left up to there is more than any group needs, and no sum of two overflows.
pub(super) const COUNTER_MAX: u32 = 1 << 31;
/// For so long a challenge that we accepted is the only one.
const COURT: Duration = Duration::from_millis(1500);
/// For so long we try to come to another part of the group.
const TOWARDS: Duration = Duration::from_secs(3);
/// Members of one part ask another to let them in within this time.
const SPREAD: Duration = Duration::from_millis(20);
/// The first wait before an acknowledgement is said again.
const ACK_AGAIN: Duration = Duration::from_millis(40);
/// So long before the word of why its leader leads a proposal may come.
const OVERTAKEN: Duration = Duration::from_millis(100);
/// How long a change waits for a stand-by's keys: a small part of the time after which it is silent.
const KEYS_WAIT: Duration = Duration::from_millis(100);
/// Acknowledgements that a leader asks for have as much between them.
const ACK_SPACING: Duration = Duration::from_millis(20);
/// So often an acknowledgement goes to where the proposal came from; later ones go to all.
const ACKS_TO_LEADER: u32 = 2;
/// Between two requests for registrations.
const WANT_SPACING: Duration = Duration::from_millis(20);
/// Registrations that one message asks for.
const WANTED_AT_ONCE: usize = 32;
/// A proposal that came to nothing for so long is no longer followed, of a small group.
const FOLLOW: Duration = Duration::from_secs(3);
/// What a member is told of its revocation: the leader knows no more.
const REVOKED: &str = "revoked at the key distribution centre";
