//! Who is there, who shall be in the next epoch, and whose turn it is to say so.
//!
//! A JOIN changes nothing but a list of who *wants* in. What a member *wishes* for the next epoch follows
//! from that list, from who is to be removed, and from statements: a set, compared by content. One
//! proposal answers all JOINs collected until then; members take turns by rank, and who hears a
//! proposal keeps silent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng;
use sealcast_crypto::hash::Transcript;
use sealcast_wire::limits::MEMBERS_MAX;
use sealcast_wire::{CertHash, Change, Dropped, EpochId, Monotonic, Now, Reader, limits};

use super::message::{Base, Beacon, InstanceId, Join, Kind, Message, Propose, ShortId, next_counter, signed};
use super::people::Person;
use super::proposal::Proposal;
use super::timing::{self, Timer, jitter, rank_wait};
use super::version::Versions;
use super::{Contributory, Lacks, Merging, Phase, Strike, Wanting};
use crate::compartments::Table;
use crate::{Exclusion, HandleError, Misbehaviour, Notice, Output};

/// What the next epoch should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// Who is in it; we too.
    pub(super) members: BTreeSet<ShortId>,
    /// Of those, who is not in our view.
    pub(super) joiners: BTreeSet<ShortId>,
    /// Whether somebody goes, or a new key is wanted: nothing to wait for.
    pub(super) urgent: bool,
    /// Whether somebody goes who may not stay a moment longer: others that agree are not waited for either.
    pub(super) removes: bool,
}

impl Contributory {
    /// Says that we want in, and again later unless that was heard.
    pub(super) fn join_again(&mut self, now: Now) {
        if self.phase != Phase::Running {
            return;
        }
        if self.installed.is_some() && !self.is_merging(now) {
            // Nobody let us in: what we wished for before is due.
            return self.plan(now);
        }
        // An attempt among newcomers waits for a group that is heard: that one lets us in only if it hears of us.
        // One of its own members that went ahead lets nobody in: it answers questions about the attempt.
        let among_newcomers = |a: &super::Attempt| !self.is_grouped() && a.proposal.content.base.is_none();
        let waits = |a: &super::Attempt| among_newcomers(a) && self.outside(now, a).next().is_some();
        if self.attempt.as_ref().is_some_and(|a| !waits(a)) {
            // Named already: whether that comes to something shows soon.
            self.timers.set(Timer::Join, now.monotonic + timing::JOIN_RETRY);
            return;
        }
        if self.installed.is_none() && self.is_alone(now) {
            return self.found_alone(now);
        }
        let lately = self.join_sent.is_some_and(|at| at + timing::JOIN_RETRY > now.monotonic);
        // A group that we heard of lets us in only if it hears of us.
        if now.monotonic < self.hold_until && lately && self.towards == EpochId::default() {
            let wait = jitter(&mut self.rng, timing::JOIN_RETRY / 2);
            self.timers.set(Timer::Join, self.hold_until + wait);
            return;
        }
        self.send_join(now);
        self.plan(now);
    }

    fn send_join(&mut self, now: Now) {
        let (epoch, size) = (self.epoch(), self.view_size() as u16);
        let summary = self.statements.summary();
        let card = self.me.card.clone();
        let added = self.added();
        let mut join = Join { card, summary, epoch, size, towards: self.towards, added, signature: [0; 64] };
        let body = Message::Join(join.clone()).body();
        join.signature = self.key.sign(&signed(JOIN_LABEL, &self.group, &[], &body));
        self.send(&Message::Join(join));
        self.join_sent = Some(now.monotonic);
        self.asked.get_or_insert(now.monotonic);
        self.card_sent = now.monotonic;
        let wait = self.join_wait + jitter(&mut self.rng, self.join_wait / 2);
        self.join_wait = (self.join_wait * 3 / 2).min(timing::JOIN_RETRY_MAX);
        // A lone newcomer looks again when it is time to found a group.
        let found = self.last_sign + timing::LONE + jitter(&mut self.rng, timing::LONE / 4);
        let next = now.monotonic + wait;
        let alone = self.installed.is_none() && self.wanting.is_empty() && found > now.monotonic;
        self.timers.set(Timer::Join, if alone { next.min(found) } else { next });
    }

    /// What we add to a JOIN or BEACON: items of a type, a length and bytes. Version 2, which tests speak, shows that those of
    /// other types are skipped.
    fn added(&self) -> Vec<u8> {
        let channels = if self.config.reliable { vec![ADDED_CHANNELS, 1, CHANNELS_RELIABLE] } else { Vec::new() };
        #[cfg(any(test, feature = "misbehaving"))]
        if self.config.versions.contains(2) {
            return [&[2; 16][..], &channels].concat();
        }
        channels
    }

    /// Whether somebody whose JOIN or BEACON has these items is of a group with the channels of ours; else it is reported, and
    /// we have nothing to do with each other.
    fn has_our_channels(&mut self, now: Now, cert: CertHash, added: &[u8]) -> bool {
        let reliable = is_reliable(added);
        if reliable != self.config.reliable && self.is_told_first(now, cert) {
            self.notice(Notice::OtherChannels { cert, reliable });
        }
        reliable == self.config.reliable
    }

    /// Whether nobody else was heard for [`timing::LONE`], and no group for `detect`.
    ///
    /// Who was asked and did not answer does not count; and signs of which nothing comes end some time: an
    /// outsider can repeat those of others who are long gone.
    fn is_alone(&self, now: Now) -> bool {
        let quiet = now.monotonic >= self.last_sign + timing::LONE && now.monotonic >= self.hold_until;
        let nobody = self.wanting.keys().all(|s| self.is_struck(now, s));
        // A group that was heard of says so each second: it may have much to do before it lets us in.
        let group = self.elsewhere.values().any(|e| now.monotonic < e.last + self.config.detect);
        nobody && quiet && !group || now.monotonic >= self.started + timing::FOUND_ANYWAY
    }

    fn is_struck(&self, now: Now, short: &ShortId) -> bool {
        self.strikes.get(short).is_some_and(|s| s.until > now.monotonic)
    }

    /// Others agree: we let them for a while, though not for ever, lest old proposals hold us up.
    fn hold(&mut self, now: Now, wait: Duration) {
        if now.monotonic > self.hold_until + HOLD_ANEW {
            self.held_since = now.monotonic;
        }
        let until = (now.monotonic + wait).min(self.held_since + PAUSE_MAX);
        self.hold_until = self.hold_until.max(until);
    }

    /// A group of one; it merges with whoever comes.
    fn found_alone(&mut self, now: Now) {
        let members = BTreeSet::from([self.me.short]);
        let wish = Wish { members, joiners: BTreeSet::new(), urgent: true, removes: false };
        self.propose_wish(now, &wish);
    }

    pub(super) fn on_join(&mut self, now: Now, m: &Join) -> Result<(), HandleError> {
        let short = m.card.short_id(&self.group);
        if short == self.me.short {
            return Err(Dropped::Stale.into());
        }
        let floor = self.statements.floor();
        let met = self.people.meet(now, floor, self.statements.anchor(), &self.verifier, &m.card);
        self.judge_twins(now);
        let person = met?;
        if !self.people.may_join(&short, now.monotonic) {
            return Err(Dropped::Rate.into());
        }
        let body = Message::Join(m.clone()).body();
        let digest = signed(JOIN_LABEL, &self.group, &[], &body);
        if !self.verifier.signature(&person.key, &digest, &m.signature) {
            return Err(Dropped::Auth.into());
        }
        self.people.hear(&short, now.monotonic);
        self.card_is_here(now, short);
        self.compare(now, m.summary);
        if self.statements.excludes(&person.cert) {
            self.timers.sooner(Timer::State, now.monotonic + jitter(&mut self.rng, timing::RTO));
            return Err(Dropped::Policy.into());
        }
        if self.versions().and(m.card.versions).is_none() {
            self.tell_of_version(now, Some(person.id.cert), Some(m.card.versions));
            return Err(Dropped::Policy.into());
        }
        let is_first = !self.is_told_of_version(now.monotonic, Some(person.id.cert));
        if !self.has_our_channels(now, person.id.cert, &m.added) {
            // It shall know why.
            if is_first {
                self.answer_with_beacon(now);
            }
            return Err(Dropped::Policy.into());
        }
        if !self.is_struck(now, &short) {
            self.last_sign = now.monotonic;
        }
        if m.size >= 2 {
            self.hear_elsewhere(now, &person);
        }
        if self.removing.get(&short) == Some(&Change::Left) {
            return Err(Dropped::Stale.into());
        }
        if self.removing.get(&short) == Some(&Change::Suspected) && self.attempt.is_none() && m.towards == self.epoch()
        {
            self.removing.remove(&short);
        }
        if self.is_in_view(&short) && m.epoch != self.epoch() {
            // It missed our epoch. Only a JOIN that knows of the present epoch is surely not an old one, sent
            // again by an outsider: the next key is then for the same members.
            if m.towards == self.epoch() && !self.rotate && !self.rekeys.take(person.id.cert, now.monotonic) {
                return Err(Dropped::Rate.into());
            }
            if m.towards == self.epoch() {
                self.rotate = true;
                let on_ours = |a: &super::Attempt| {
                    matches!(a.proposal.content.kind, Kind::Join(_)) && a.proposal.seat_of(&short).is_some()
                };
                if self.attempt.as_ref().is_some_and(on_ours) {
                    // It cannot add to a ring whose key it lacks; a new ring needs nobody's.
                    self.drop_attempt();
                }
            } else {
                self.answer_with_beacon(now);
            }
        }
        self.forget_runs(person.id.cert, &short);
        if self.wanting.len() < limits::REMEMBERED_PEOPLE_MAX || self.wanting.contains_key(&short) {
            let (since, last) = (now.monotonic, now.monotonic);
            let new = Wanting { since, last, epoch: m.epoch, size: m.size, towards: m.towards };
            let known = self.wanting.entry(short).or_insert(new);
            *known = Wanting { since: known.since, ..new };
        }
        self.forget_people();
        if let Some(next) = self.joins.next(&person.id.cert, now.monotonic) {
            self.timers.sooner(Timer::Judge, next);
        }
        self.greet(now);
        self.plan(now);
        Ok(())
    }

    /// Of one certificate's runs that want in, a few: its holder can start as many as it likes.
    fn forget_runs(&mut self, cert: CertHash, but: &ShortId) {
        let of_cert = |s: &&ShortId| *s != but && self.people.get(s).is_some_and(|p| p.id.cert == cert);
        let mut runs: Vec<ShortId> = self.wanting.keys().filter(of_cert).copied().collect();
        runs.sort_by_key(|s| self.wanting.get(s).map(|w| w.since));
        for short in runs.iter().rev().skip(limits::RUNS_PER_CERTIFICATE_MAX - 1) {
            self.wanting.remove(short);
        }
    }

    /// What we think the next epoch should be, if other than the present one.
    pub(super) fn wish(&self, now: Now) -> Option<Wish> {
        if self.phase != Phase::Running {
            return None;
        }
        let grouped = self.is_grouped();
        let here: Vec<&Arc<Person>> = self.installed.iter().flat_map(|i| &i.agreed.people).collect();
        let view: BTreeSet<ShortId> = here.iter().map(|p| p.short).collect();
        let stays = |p: &&&Arc<Person>| {
            p.short == self.me.short
                || !(self.removing.contains_key(&p.short)
                    || self.statements.excludes(&p.cert)
                    || self.is_banned(now.monotonic, p))
        };
        let mut members: Vec<&Arc<Person>> = here.iter().filter(stays).copied().collect();
        if members.is_empty() {
            members.push(&self.me);
        }
        // A suspicion may be our own fault, and ends with a JOIN; it waits as a JOIN does.
        let goes = |p: &&Arc<Person>| {
            self.statements.excludes(&p.cert)
                || self.removing.get(&p.short).is_some_and(|why| *why != Change::Suspected)
        };
        let removes = here.iter().any(|p| p.short != self.me.short && goes(p));
        let fewer = here.len() > members.len();
        if self.is_merging(now) && !removes {
            return None; // the other part lets us in; whoever must go goes at once all the same (A4)
        }

        let eligible = |(short, w): &(&ShortId, &Wanting)| {
            let fits = grouped || w.size <= 1 || w.towards == self.epoch();
            let struck = self.is_struck(now, short);
            fits && !struck && !view.contains(short) && !self.removing.contains_key(short)
        };
        let mut newcomers: Vec<(Monotonic, &Arc<Person>)> = self
            .wanting
            .iter()
            .filter(eligible)
            .filter_map(|(short, w)| Some((w.since, self.people.get(short)?)))
            .filter(|(_, p)| p.id.cert != self.me.id.cert || p.short == self.me.short || grouped)
            .filter(|(_, p)| self.ghosts.get(&p.id.cert).is_none_or(|g| g.until <= now.monotonic))
            .filter(|(_, p)| !self.is_banned(now.monotonic, p))
            .filter(|(_, p)| !grouped || self.joins.next(&p.id.cert, now.monotonic).is_none())
            .filter(|(_, p)| self.statements.admits(now, p))
            .collect();
        // Of several runs of one certificate the newest counts (A6).
        newcomers.sort_by_key(|(since, p)| (*since, p.short));
        let mut joiners = BTreeSet::new();
        let mut spoken = Versions::common(members.iter().map(|m| m.card.versions));
        for (i, (_, p)) in newcomers.iter().enumerate() {
            let newer = newcomers[i + 1..].iter().any(|(_, later)| later.id.cert == p.id.cert);
            let ours = p.id.cert == self.me.id.cert;
            if newer || ours && !grouped || members.len() >= MEMBERS_MAX {
                continue;
            }
            // Of two that have no version in common with each other, the first one is let in.
            let Some(both) = spoken.and_then(|spoken| spoken.and(p.card.versions)) else { continue };
            members.retain(|m| m.id.cert != p.id.cert || m.short == self.me.short);
            if !members.iter().any(|m| m.id.cert == p.id.cert) {
                members.push(p);
                spoken = Some(both);
                joiners.insert(p.short);
            }
        }
        let members: BTreeSet<ShortId> = members.iter().map(|p| p.short).collect();
        let rekeys = self.rotate && self.installed.is_some();
        if members == view && !rekeys {
            return None;
        }
        if self.installed.is_none() && joiners.is_empty() {
            return None; // alone: see `is_alone`
        }
        Some(Wish { members, joiners, urgent: fewer || rekeys || self.retry, removes })
    }

    /// Sets the time at which we propose what we wish, or clears it.
    pub(super) fn plan(&mut self, now: Now) {
        let wish = self.wish(now);
        // Two newcomers wait for a group's answer: to let a third one in meanwhile costs them nothing.
        let pair = self.attempt.as_ref().is_some_and(|a| self.waits_as_pair(now, a));
        if let Some(attempt) = &self.attempt {
            // A running attempt is let run, unless somebody in it must not be.
            let named = &attempt.proposal.content.seats;
            let unfit = |s: &ShortId| {
                *s != self.me.short
                    && (self.removing.get(s).is_some_and(|why| *why != Change::Suspected)
                        || self.people.get(s).is_some_and(|p| self.statements.excludes(&p.cert)))
            };
            // Those who join may have gone elsewhere; meanwhile there may be more to go on with.
            let more = |w: &Wish| named.iter().all(|s| w.members.contains(s)) && w.members.len() > named.len();
            let idle = now.monotonic.since(attempt.progress) >= timing::RTO;
            let grows = self.later.is_none() && wish.as_ref().is_some_and(more);
            let stalls = attempt.nobody_joined() && idle || pair;
            let goes = named.iter().any(unfit);
            let excluded = |s: &ShortId| self.people.get(s).is_some_and(|p| self.statements.excludes(&p.cert));
            // Whoever was to join goes, and all others are here: nothing comes of it, unless it has already elsewhere.
            let over = attempt.lacks_our_share() || attempt.only_listens() || named.iter().any(excluded);
            if goes && wish.is_none() && over {
                self.let_go(now);
            }
            if self.attempt.is_some() && !(stalls && grows || goes) {
                self.unplan();
                return;
            }
        }
        let Some(wish) = wish else { return self.unplan() };
        let key = (wish.members.clone(), wish.urgent);
        if self.planned.as_ref() == Some(&key) && self.timers.is_set(Timer::Propose) {
            return;
        }
        self.planned = Some(key);
        let rank = self.rank(&wish);
        let grouped = self.is_grouped();
        let turn = if grouped { rank_wait(rank) } else { timing::RANK_UNGROUPED * rank as u32 };
        let blur = jitter(&mut self.rng, Duration::from_micros(if grouped { 500 } else { 100 }));
        let at = if wish.urgent {
            now.monotonic + turn
        } else {
            let heard = wish.joiners.iter().filter_map(|s| self.wanting.get(s)).map(|w| w.since);
            let last = heard.clone().max().unwrap_or(now.monotonic);
            let first = heard.min().unwrap_or(now.monotonic);
            let ready = match grouped {
                true => {
                    let ready = (last + timing::QUIET).min(first + timing::QUIET_MAX);
                    if ready > first + timing::NEWCOMERS_ALONE {
                        // Lest those who wait found a group of their own meanwhile.
                        self.timers.sooner(Timer::Beacon, (first + timing::NEWCOMERS_ALONE).max(now.monotonic) + turn);
                    }
                    ready
                }
                // Who is in no group goes by its own start, so that elders speak first.
                false => self.started + timing::COLLECT + timing::seniority_wait(last.since(self.started)),
            };
            ready.max(now.monotonic) + turn
        };
        let at = if self.changes_nobody(&wish) { at.max(self.may_rekey_from()) } else { at };
        let held = if wish.urgent && wish.removes { at } else { at.max(self.hold_until + turn) };
        // Proposals that came to nothing make room for those of others, whatever the reason for ours (G7).
        let spaced = match self.own_proposals {
            (0, _) => held,
            _ if pair => held,
            (n, last) => {
                let wait = timing::RTO * (1 << (n - 1).min(timing::PROPOSE_DOUBLINGS));
                held.max(last + wait + jitter(&mut self.rng, wait))
            }
        };
        self.timers.set(Timer::Propose, spaced + blur);
    }

    /// Whether all that is wished for is a new key for the same members.
    pub(super) fn changes_nobody(&self, wish: &Wish) -> bool {
        wish.joiners.is_empty() && wish.members.len() == self.view_size()
    }

    fn unplan(&mut self) {
        self.planned = None;
        self.timers.stop(Timer::Propose);
    }

    /// Our turn among those who could propose this.
    fn rank(&self, wish: &Wish) -> usize {
        let place = |s: &ShortId| {
            let t = Transcript::new("sealcast/v1/rank").add(&self.epoch().to_bytes());
            (t.add(&s.0).finish(), *s)
        };
        // In no group: those who came after us let us go first; those who came with us take turns.
        let together = |s: &&ShortId| {
            self.wanting.get(s).is_none_or(|w| w.since.since(self.started) <= timing::TOGETHER || wish.urgent)
        };
        let candidates: Vec<&ShortId> = match self.is_grouped() {
            true => wish.members.difference(&wish.joiners).collect(),
            false => wish.members.iter().filter(together).collect(),
        };
        let mine = place(&self.me.short);
        // Whose attempt failed lets all others go first: they may reach those whom it did not.
        let after = if self.yields { candidates.len() } else { 0 };
        after + candidates.into_iter().filter(|s| place(s) < mine).count()
    }

    /// It is our turn.
    pub(super) fn propose(&mut self, now: Now) {
        self.planned = None;
        // Whoever has gone on from the agreement that we are about to give up knows that it made an epoch.
        if let Some(later) = self.later.take_if(|_| self.installed.as_ref().is_some_and(|i| i.agreed.people.len() >= 2))
        {
            return self.come_back_to(now, later);
        }
        let Some(wish) = self.wish(now) else { return };
        self.propose_wish(now, &wish);
    }

    fn propose_wish(&mut self, now: Now, wish: &Wish) {
        self.own_proposals = (self.own_proposals.0.saturating_add(1), now.monotonic);
        // What nobody but us could prove to those who join is no base.
        let ours = |s: &&ShortId| self.is_in_view(s);
        let proves = wish.joiners.is_empty() || wish.members.iter().filter(ours).count() >= 2;
        let small = self.epoch().counter < limits::FIRST_COUNTER_MAX;
        let goes = |p: &Arc<Person>| self.removing.contains_key(&p.short) || self.statements.excludes(&p.cert);
        let mut others = self.installed.iter().flat_map(|i| &i.agreed.people).filter(|p| p.short != self.me.short);
        if !proves && !small && others.all(goes) {
            // A first epoch's number is small: we are alone first, whose number may be less the next time.
            return self.found_alone(now);
        }
        let base = self.base().filter(|_| proves || !small);
        let (counter, attempt) = self.next_number(base, wish);
        let others: Vec<ShortId> = wish.members.iter().filter(|s| **s != self.me.short).copied().collect();
        let seats: Vec<ShortId> = std::iter::once(self.me.short).chain(others).collect();
        let joiners = seats.iter().enumerate().filter(|(_, s)| wish.joiners.contains(s));
        let joiners = joiners.fold(0_u64, |all, (seat, _)| all | 1 << seat);
        let kind = if self.can_add(wish) { Kind::Join(joiners) } else { Kind::Setup };
        let hint = self.statements.hint();
        let version = self.version_of(&seats);
        let mut content = Propose { counter, attempt, version, kind, base, hint, seats, signature: [0; 64] };
        let mut nonce = [0; 12];
        self.rng.fill_bytes(&mut nonce);
        let instance = Proposal::instance(&self.group, &nonce, &content);
        content.signature = self.key.sign(&instance);
        let message = Message::Propose(content.clone());
        let bootstrap_sealed = self.bootstrap_key.seal(nonce, &message.encode());
        // Who came after our card was last sent cannot verify what we propose without it.
        if wish.joiners.iter().filter_map(|s| self.wanting.get(s)).any(|w| w.since > self.card_sent) {
            self.give_own_card(now);
        }
        if content.seats.len() > 1 {
            self.send_bootstrap(&message, bootstrap_sealed.clone());
        }
        let proposal = Proposal { content, instance, bootstrap_sealed, sent: now.monotonic };
        self.adopt(now, proposal);
    }

    /// The highest version that these speak; our own, where they have none in common.
    pub(super) fn version_of<'a>(&self, seats: impl IntoIterator<Item = &'a ShortId>) -> u8 {
        let versions = seats.into_iter().filter_map(|s| self.people.get(s)).map(|p| p.card.versions);
        Versions::common(versions).unwrap_or(self.config.versions).highest()
    }

    /// The number of the epoch to be, and of the attempt at it.
    ///
    /// It is one more than the base's. Without a base nobody can prove where it comes from: what the others say counts
    /// up to [`limits::FIRST_COUNTER_MAX`]. Whoever is alone beyond that begins again, and can let others in then.
    fn next_number(&self, base: Option<Base>, wish: &Wish) -> (u32, u8) {
        let counter = base.map_or_else(
            || {
                let claims = wish.joiners.iter().filter_map(|s| self.wanting.get(s)).map(|w| w.epoch.counter);
                let known = claims.max().unwrap_or(0).max(self.epoch().counter);
                // Where all attempts at a number are used up, the next one.
                let tried = if self.proposed.1 == u8::MAX { next_counter(self.proposed.0) } else { self.proposed.0 };
                let first = known.saturating_add(1).max(tried);
                let begins_again = wish.members.len() == 1 && first > limits::FIRST_COUNTER_MAX;
                if begins_again { 1 } else { first.min(limits::FIRST_COUNTER_MAX) }
            },
            Base::next_counter,
        );
        match self.proposed {
            (last, attempt) if last == counter => (counter, attempt.saturating_add(1)),
            _ => (counter, 1),
        }
    }

    /// Whether the ring can be added to, instead of set up anew (tcrypto 4.2, rule 2).
    fn can_add(&self, wish: &Wish) -> bool {
        let Some(installed) = &self.installed else { return false };
        let kept = installed.agreed.people.iter().all(|p| wish.members.contains(&p.short));
        let merges = |s: &ShortId| self.wanting.get(s).is_some_and(|w| w.size >= 2);
        let joins = installed.joins_since_setup.saturating_add(wish.joiners.len() as u32);
        if !kept
            // Who only follows says nothing of what is delivered before.
            || self.config.reliable
            || installed.agreed.version != self.version_of(&wish.members)
            || self.view_size() < 3
            || wish.joiners.is_empty()
            || self.rotate
            || joins > timing::JOINS_PER_SETUP
            || wish.joiners.iter().any(merges)
        {
            return false;
        }
        let mut people: Vec<&Arc<Person>> = wish.members.iter().filter_map(|s| self.people.get(s)).collect();
        people.sort_by_key(|p| p.id);
        let rights = people.iter().map(|p| p.rights.clone()).collect();
        let table = Table::new(self.group.clone(), rights, self.statements.lines());
        installed.agreed.table.rings().len() == 1 && table.rings().len() == 1
    }

    /// Somebody proposes an epoch.
    pub(super) fn on_propose(
        &mut self,
        now: Now,
        content: Propose,
        bootstrap_sealed: &[u8],
    ) -> Result<(), HandleError> {
        let nonce: &[u8; 12] = bootstrap_sealed.get(8..20).and_then(|n| n.try_into().ok()).ok_or(Dropped::Malformed)?;
        let instance = Proposal::instance(&self.group, nonce, &content);
        let proposal = Proposal { content, instance, bootstrap_sealed: bootstrap_sealed.to_vec(), sent: now.monotonic };
        self.wanted_proposals.remove(&proposal.id());
        if let Some(running) = self.attempt.as_mut().filter(|a| a.proposal.instance == instance) {
            running.proposal.sent = now.monotonic;
            return Ok(());
        }
        if self.is_judged(&proposal.id()) || *proposal.proposer() == self.me.short {
            return Err(Dropped::Stale.into());
        }
        let proposer = *proposal.proposer();
        let Some(person) = self.people.get(&proposer).cloned() else {
            self.keep(Lacks::Proposer(proposer, proposal.id()), bootstrap_sealed);
            self.want_card(now, proposer);
            if self.installed.is_none() && self.attempt.is_none() {
                // Who came before us proposes: what it is shows as soon as its card is here.
                self.hold(now, CARD_WAIT);
                self.planned = None;
                self.plan(now);
            }
            return Ok(());
        };
        if self.statements.excludes(&person.cert) {
            self.timers.sooner(Timer::State, now.monotonic + jitter(&mut self.rng, timing::RTO));
            return Err(Dropped::Policy.into());
        }
        if !self.verifier.signature(&person.key, &instance, &proposal.content.signature) {
            return Err(Dropped::Auth.into());
        }
        self.people.hear(&proposer, now.monotonic);
        if self.names_a_twin(now, &proposal) {
            return Err(Dropped::Policy.into());
        }
        if let Some(base) = proposal.content.base {
            let names_me = proposal.seat_of(&self.me.short).is_some();
            let on_ours = self.is_grouped() && self.base() == Some(base);
            if !on_ours && self.is_doubted(now, &person) || names_me && self.wavers(now, proposer, base) {
                return Err(Dropped::Policy.into());
            }
            self.hear_elsewhere(now, &person);
        }
        if self.proposes_in_vain(now, &proposer) {
            self.remember_judged(&proposal);
            self.answer_with_beacon(now);
            self.rated = Some(proposal);
            return Err(Dropped::Rate.into());
        }
        self.last_sign = now.monotonic;
        self.judge_proposal(now, proposal, false)
    }

    /// What a verified proposal means to us; whether it has waited already for our attempt's end.
    pub(super) fn judge_proposal(&mut self, now: Now, proposal: Proposal, waited: bool) -> Result<(), HandleError> {
        let content = &proposal.content;
        let number = (content.counter, content.attempt);
        let proposer = *proposal.proposer();
        let names_me = proposal.seat_of(&self.me.short).is_some();
        let on_our_base = self.is_grouped() && content.base == self.base();
        let in_attempt = self.attempt.as_ref().is_some_and(|a| a.proposal.seat_of(&proposer).is_some());
        let merging = self.is_merging(now);
        let related = self.is_in_view(&proposer) || in_attempt;

        if names_me && content.base.is_none() && self.installed.is_some() && !related {
            self.wants_in(now, proposer);
        }
        // A member's epochs have ascending numbers: of two with one number it is in one at most, and says in which.
        // Who is alone in its own goes to any group's.
        let ours = self.epoch().counter;
        let alone = !self.is_grouped() && (content.base.is_some() || ours >= limits::FIRST_COUNTER_MAX);
        if self.installed.is_some() && !on_our_base && !alone && content.counter <= ours {
            if related || names_me {
                self.answer_with_beacon(now);
            }
            self.remember_judged(&proposal);
            self.listen_to(now, proposal);
            return Err(Dropped::Stale.into());
        }
        let acceptable = match (self.is_grouped(), content.base) {
            (false, _) => true,
            (true, None) => merging || self.is_in_view(&proposer),
            (true, Some(_)) if on_our_base => self.is_in_view(&proposer),
            (true, Some(_)) => related || merging,
        };
        if !acceptable {
            self.refused.push_back(proposal.id());
            if self.refused.len() > limits::JUDGED_INSTANCES_MAX {
                self.refused.pop_front();
            }
            return Err(Dropped::Policy.into());
        }
        // Of the number that ours can have: another base's say nothing of it.
        if content.base == self.base() && (names_me || related || !self.is_grouped()) {
            self.proposed = self.proposed.max(number);
        }
        let undecided = |a: &super::Attempt| !a.is_proven() && a.has_rival(&proposal);
        if names_me && !waited && self.attempt.as_ref().is_some_and(undecided) {
            // Two groups want us, or somebody made one up. Which one exists shows in the first round: the greater claim
            // says nothing.
            self.remember_judged(&proposal);
            // Of those that wait, one on our own base goes before what somebody else may have made up, too.
            let after = |later: &Proposal| later.content.base == content.base && later.order() >= proposal.order();
            if self.later.as_ref().is_none_or(|later| on_our_base && !after(later)) {
                self.later = Some(proposal);
            }
            return Ok(());
        }
        // Ours that nobody follows: we have proposed as often as anybody may. The others would wait for us, and we for them.
        let is_ignored = |a: &super::Attempt| {
            let is_ours = *a.proposal.proposer() == self.me.short && a.proposal.content.base == content.base;
            is_ours && a.is_unanswered() && now.monotonic.since(a.started) >= IGNORED
        };
        let yields = names_me && on_our_base && self.attempt.as_ref().is_some_and(is_ignored);
        let better = yields || self.attempt.as_ref().is_none_or(|a| a.proposal.order() < proposal.order());
        if !better {
            self.remember_judged(&proposal);
            let after = self.attempt.as_ref().and_then(|a| a.proposal.content.base);
            if on_our_base && after.is_some_and(|base| proposal.may_make(base)) {
                self.listen_to(now, proposal);
            }
            return Err(Dropped::Stale.into());
        }
        if !names_me {
            return self.left_aside(now, &proposal, on_our_base);
        }
        if self.phase == Phase::Leaving {
            return Err(Dropped::Stale.into());
        }
        // Our confirmation is out: others may have installed that epoch, and theirs are on their way.
        let confirming =
            |a: &super::Attempt| a.is_confirming() && now.monotonic.since(a.progress) < timing::RTO && !waited;
        if self.attempt.as_ref().is_some_and(confirming) {
            self.remember_judged(&proposal);
            if self.later.as_ref().is_none_or(|later| later.order() < proposal.order()) {
                self.later = Some(proposal);
            }
            return Ok(());
        }
        // A join's members must know the key that it builds on: finish that agreement first.
        let my_seat = proposal.seat_of(&self.me.short).unwrap_or(0);
        let follows = matches!(content.kind, Kind::Join(_)) && !proposal.marks_joiner(my_seat) && !on_our_base;
        if follows {
            let behind = self.attempt.as_ref().is_some_and(|a| a.proposal.content.counter < content.counter);
            self.remember_judged(&proposal);
            let greater = self.later.as_ref().is_none_or(|later| later.order() < proposal.order());
            match behind {
                true if greater => self.later = Some(proposal),
                true => {}
                false => self.ask_to_merge(now),
            }
            return Ok(());
        }
        let greater = |later: &mut Proposal| later.content.base == content.base && later.order() > proposal.order();
        if let Some(later) = self.later.take_if(greater) {
            // The one that waited is better: its author and others follow it.
            self.remember_judged(&proposal);
            self.come_back_to(now, later);
            return Ok(());
        }
        self.adopt(now, proposal);
        Ok(())
    }

    /// Somebody in no group proposes one with us, who are in one: as good as a JOIN, and noted as one.
    fn wants_in(&mut self, now: Now, short: ShortId) {
        let gone = self.removing.get(&short) == Some(&Change::Left);
        if !gone && (self.wanting.len() < limits::REMEMBERED_PEOPLE_MAX || self.wanting.contains_key(&short)) {
            let (at, none) = (now.monotonic, EpochId::default());
            let new = Wanting { since: at, last: at, epoch: none, size: 0, towards: none };
            self.wanting.entry(short).or_insert(new).last = at;
            self.plan(now);
        }
    }

    /// A proposal that wins and does not name us.
    fn left_aside(&mut self, now: Now, proposal: &Proposal, on_our_base: bool) -> Result<(), HandleError> {
        self.remember_judged(proposal);
        let shares = |a: &super::Attempt| {
            a.proposal.content.seats.iter().any(|s| *s != self.me.short && proposal.seat_of(s).is_some())
        };
        // Nobody who is in it has to say that it is made up: who follows it may come back.
        let may_return = |a: &super::Attempt| a.of_base && self.is_grouped() && !on_our_base;
        match self.attempt.as_ref().filter(|a| shares(a)).map(may_return) {
            Some(true) => self.attempt.iter_mut().for_each(|a| _ = a.aside.get_or_insert(now.monotonic)),
            Some(false) => {
                // Ours cannot end: some of its members follow the better one.
                self.attempt = None;
                self.timers.stop(Timer::Resend);
            }
            None => {}
        }
        if on_our_base || self.is_grouped() && proposal.content.base.is_none() && self.is_in_view(proposal.proposer()) {
            let ours = |s: &ShortId| self.people.get(s).is_some_and(|p| p.id.cert == self.me.id.cert);
            self.replaced = self.replaced || proposal.content.seats.iter().any(ours);
        }
        if on_our_base && self.phase == Phase::Leaving {
            self.exclude(Exclusion::Left);
            return Ok(());
        }
        if on_our_base {
            let unknown: Vec<ShortId> =
                proposal.content.seats.iter().filter(|s| !self.people.knows(s)).copied().collect();
            unknown.into_iter().for_each(|s| self.want_card(now, s));
        }
        let concerns = on_our_base || !self.is_grouped();
        if concerns {
            self.hold(now, AGREEMENT_WAIT);
            self.planned = None;
            self.plan(now);
        }
        // Our JOIN was lost, if it had time to arrive.
        let heard = self.join_sent.is_some_and(|at| now.monotonic.since(at) < timing::CROSSING);
        if self.installed.is_none() && !heard {
            let at = now.monotonic + jitter(&mut self.rng, timing::QUIET);
            let recently = self.join_sent.map_or(Monotonic(0), |sent| sent + REJOIN_SPACING);
            // Others may found a group without us, for which we must not wait long: several may be so missed.
            self.hold_until = self.hold_until.min(now.monotonic + ASIDE_WAIT);
            self.join_sent = None;
            self.timers.sooner(Timer::Join, at.max(recently));
        }
        Ok(())
    }

    pub(super) fn is_judged(&self, id: &InstanceId) -> bool {
        self.judged.contains(id) || self.refused.contains(id)
    }

    pub(super) fn remember_judged(&mut self, proposal: &Proposal) {
        if !self.judged.contains(&proposal.id()) {
            self.judged.push_back(proposal.id());
            if self.judged.len() > limits::JUDGED_INSTANCES_MAX {
                self.judged.pop_front();
            }
        }
    }

    /// Says that the group is here, when nobody else did for a while.
    pub(super) fn beacon(&mut self, now: Now) {
        let Some(installed) = &self.installed else { return };
        let (epoch, size) = (installed.agreed.epoch, installed.agreed.people.len() as u16);
        let (author, summary) = (self.me.short, self.statements.summary());
        let (versions, added) = (self.config.versions, self.added());
        let mut beacon = Beacon { author, epoch, size, summary, versions, added, signature: [0; 64] };
        let body = Message::Beacon(beacon.clone()).body();
        beacon.signature = self.key.sign(&signed(BEACON_LABEL, &self.group, &[], &body));
        self.send(&Message::Beacon(beacon));
        self.greeted = now.monotonic;
        self.timers.stop(Timer::Greet);
        self.schedule_beacon(now, timing::BEACON);
    }

    /// Newcomers who asked since our last beacon and are not being let in: a beacon before they found a group.
    pub(super) fn greet(&mut self, now: Now) {
        let Some(first) = self.first_ungreeted(now) else { return };
        let wait = (first + timing::GREET).max(now.monotonic) + rank_wait(self.beacon_turn());
        let blur = jitter(&mut self.rng, timing::RANK / 20);
        self.timers.sooner(Timer::Greet, wait + blur);
    }

    pub(super) fn greet_now(&mut self, now: Now) {
        if self.first_ungreeted(now).is_some() && self.greeting.take(now.monotonic, GREETINGS_PER_SECOND) {
            self.beacon(now);
        }
    }

    /// When the first of those asked who do not know yet that there is a group.
    fn first_ungreeted(&self, now: Now) -> Option<Monotonic> {
        if !self.is_grouped() || self.phase != Phase::Running {
            return None;
        }
        let named = |s: &ShortId| self.attempt.as_ref().is_some_and(|a| a.proposal.seat_of(s).is_some());
        let unaware = |(s, w): &(&ShortId, &Wanting)| {
            let told = w.last <= self.greeted || w.towards == self.epoch() || w.size > 1;
            !told && !named(s) && !self.is_in_view(s) && !self.is_struck(now, s)
        };
        self.wanting.iter().filter(unaware).map(|(_, w)| w.last).min()
    }

    /// Our turn to say that the group is here.
    fn beacon_turn(&self) -> usize {
        let Some(installed) = &self.installed else { return 0 };
        let n = installed.agreed.people.len().max(1);
        (installed.agreed.me.index() + installed.agreed.epoch.hash as usize % n) % n
    }

    /// The next beacon, in turns; one that is heard starts the wait anew.
    pub(super) fn schedule_beacon(&mut self, now: Now, wait: Duration) {
        if self.installed.is_some() {
            let blur = jitter(&mut self.rng, timing::RANK);
            self.timers.set(Timer::Beacon, now.monotonic + wait + rank_wait(self.beacon_turn()) + blur);
        }
    }

    /// Somebody does not know where we are: a beacon soon, unless another one comes.
    pub(super) fn answer_with_beacon(&mut self, now: Now) {
        if self.installed.is_some() {
            let wait = timing::RANK + jitter(&mut self.rng, timing::RTO * 2);
            self.timers.sooner(Timer::Beacon, now.monotonic + wait);
        }
    }

    pub(super) fn on_beacon(&mut self, now: Now, m: &Beacon, bootstrap_sealed: &[u8]) -> Result<(), HandleError> {
        if m.author == self.me.short {
            return Err(Dropped::Stale.into());
        }
        let Some(person) = self.people.get(&m.author).cloned() else {
            self.keep(Lacks::Card(m.author), bootstrap_sealed);
            self.want_card(now, m.author);
            return Ok(());
        };
        if !self.people.may_beacon(&m.author, m.epoch, now.monotonic) {
            return Err(Dropped::Stale.into());
        }
        let body = Message::Beacon(m.clone()).body();
        if !self.verifier.signature(&person.key, &signed(BEACON_LABEL, &self.group, &[], &body), &m.signature) {
            return Err(Dropped::Auth.into());
        }
        if m.versions != person.card.versions {
            // Its own key says the one, its certificate's the other: nobody else can have said so.
            self.strike(now, m.author, Misbehaviour::Version);
            return Err(HandleError::Misbehaved(person.id.cert, Misbehaviour::Version));
        }
        self.people.beaconed(&m.author, m.epoch, now.monotonic);
        self.people.hear(&m.author, now.monotonic);
        self.compare(now, m.summary);
        if self.statements.excludes(&person.cert) {
            return Err(Dropped::Policy.into());
        }
        if self.versions().and(m.versions).is_none() {
            self.tell_of_version(now, Some(person.id.cert), Some(m.versions));
            return Err(Dropped::Policy.into());
        }
        if !self.has_our_channels(now, person.id.cert, &m.added) {
            return Err(Dropped::Policy.into());
        }
        self.last_sign = now.monotonic;
        if m.size >= 2 {
            self.hear_elsewhere(now, &person);
        }
        if usize::from(m.size) >= MEMBERS_MAX && !self.is_grouped() && self.is_told_first(now, person.id.cert) {
            self.notice(Notice::GroupFull { cert: person.id.cert, is_us: true, most: MEMBERS_MAX });
        }
        self.pass_over(now, m);
        let ours = self.epoch();
        if m.epoch == ours {
            self.greeted = now.monotonic;
            if self.timers.is_set(Timer::Greet) {
                self.timers.stop(Timer::Greet);
                _ = self.greeting.take(now.monotonic, GREETINGS_PER_SECOND);
            }
            self.schedule_beacon(now, timing::BEACON);
            return Ok(());
        }
        if self.phase == Phase::Leaving {
            if self.is_in_view(&m.author) && m.epoch.counter > ours.counter {
                self.exclude(Exclusion::Left);
            }
            return Ok(());
        }
        if self.installed.is_none() {
            // There is a group: our JOIN was lost, or its answer.
            self.towards = m.epoch;
            self.stop_founding(now, m);
            let recently = self.join_sent.map_or(Monotonic(0), |sent| sent + timing::JOIN_RETRY / 2);
            let at = now.monotonic + jitter(&mut self.rng, timing::QUIET);
            self.timers.sooner(Timer::Join, at.max(recently));
            return Ok(());
        }
        if self.history.contains(&m.epoch) {
            // A reader of an old page, who has to hear of the new one.
            self.answer_with_beacon(now);
            return Ok(());
        }
        // One order over all epochs, by what every member of an epoch says of it alike: were it judged by who is
        // in whose view, three parts could each wait for the next one. Who moved on has the greater number.
        // Of two with one number, fewer go to more.
        let rank = |epoch: EpochId, n: u16| (n >= 2, epoch.counter, n, epoch.hash);
        let lesser = rank(ours, self.view_size() as u16) < rank(m.epoch, m.size);
        // It is told once for as long as it lasts, not at each of its beacons.
        let last = self.part_heard.replace(now.monotonic);
        if last.is_none_or(|last| now.monotonic.since(last) >= PART_GONE) {
            self.notice(Notice::OtherPart { epoch: m.epoch });
        }
        if self.replaced && self.is_in_view(&m.author) && m.epoch.counter > ours.counter {
            self.exclude(Exclusion::Duplicate);
        } else if lesser {
            self.towards = m.epoch;
            let waits = self.attempt.as_ref().is_some_and(super::Attempt::nobody_joined);
            if waits && self.passed_over.insert(m.author) {
                // Nobody has joined us yet: we join them.
                self.drop_attempt();
            }
            self.ask_to_merge(now);
        } else {
            self.answer_with_beacon(now);
        }
        Ok(())
    }

    /// Who is in an epoch takes part in none of a lesser number, or of another one of the same: if our attempt
    /// is at such a one, the next one has to have a greater number.
    fn pass_over(&mut self, now: Now, m: &Beacon) {
        let passed = |a: &super::Attempt| {
            let Some(seat) = a.proposal.seat_of(&m.author) else { return false };
            let counter = a.proposal.content.counter;
            // Of the same number it may be this attempt's own, which we are late for: then its members answer us.
            let unheard = a.held(0) >> seat & 1 == 0 && now.monotonic.since(a.progress) >= timing::RTO * 2;
            // And who has left the base does not know what a Join on it starts from.
            let joins = matches!(a.proposal.content.kind, Kind::Join(_)) && !a.proposal.marks_joiner(seat);
            let base = self.base();
            let left = joins && a.proposal.content.base == base && m.epoch.counter > self.epoch().counter;
            counter < m.epoch.counter || counter == m.epoch.counter && unheard || left && m.epoch.counter < counter
        };
        // Whoever is alone follows on any base.
        let alone = |a: &super::Attempt| m.size < 2 && a.proposal.content.base.is_some();
        if self.attempt.as_ref().is_some_and(|a| !alone(a) && passed(a)) && self.passed_over.insert(m.author) {
            if self.base().is_none() {
                self.proposed = self.proposed.max((m.epoch.counter.min(limits::FIRST_COUNTER_MAX), u8::MAX));
            }
            self.drop_attempt();
        }
    }

    /// Nobody's fault: the attempt cannot end.
    pub(super) fn drop_attempt(&mut self) {
        self.attempt = None;
        self.planned = None;
        self.retry = true;
        self.timers.stop(Timer::Resend);
        let goes = |p: &Arc<Person>| self.removing.contains_key(&p.short) || self.statements.excludes(&p.cert);
        if self.prepared && !self.installed.iter().flat_map(|i| &i.agreed.people).any(goes) {
            self.prepared = false;
            self.outputs.push_back(Output::Abandoned);
        }
    }

    /// Somebody whom we would found a group with is in one already: we join that one.
    fn stop_founding(&mut self, now: Now, m: &Beacon) {
        if m.size < 2 {
            return;
        }
        self.wanting.remove(&m.author);
        self.wanted_proposals.clear(); // what names us is said again
        self.hold(now, AGREEMENT_WAIT);
        self.planned = None;
        let waits = |a: &super::Attempt| {
            let seat = a.proposal.seat_of(&m.author);
            a.proposal.content.base.is_none()
                && now.monotonic.since(a.started) > timing::RTO
                && seat.is_some_and(|seat| a.held(0) >> seat & 1 == 0)
        };
        if self.attempt.as_ref().is_some_and(waits) {
            self.attempt = None;
            self.timers.stop(Timer::Resend);
        }
        self.planned = None;
        self.plan(now);
    }

    /// Whether we wait for another part of the group to let us in.
    pub(super) fn is_merging(&self, now: Now) -> bool {
        self.merging.is_some_and(|m| m.until > now.monotonic)
    }

    /// We are the lesser part, or behind: we ask to be let in.
    ///
    /// Of what we heard nothing may come: it may be an old beacon that an outsider sent again, or an insider's
    /// lie. So we wait for a while only, and the more often in vain the longer not again.
    pub(super) fn ask_to_merge(&mut self, now: Now) {
        let already = self.is_merging(now);
        let vain = self.merging.map_or(0, |m| m.vain);
        let merging = match self.merging.filter(|_| already) {
            Some(m) => Merging { until: (now.monotonic + MERGE_WAIT).min(m.since + MERGE_WAIT * 2), ..m },
            // One alone has nothing to go on with meanwhile.
            None if self.is_grouped()
                && self.merging.is_some_and(|m| now.monotonic < m.until + MERGE_WAIT * (1 << vain.min(5))) =>
            {
                return self.answer_with_beacon(now);
            }
            None => {
                self.refused.clear();
                Merging { since: now.monotonic, until: now.monotonic + MERGE_WAIT, vain: vain + 1 }
            }
        };
        self.merging = Some(merging);
        if self.attempt.is_none() && !(already && self.timers.is_set(Timer::Join)) {
            self.join_wait = timing::JOIN_RETRY;
            let at = now.monotonic + jitter(&mut self.rng, timing::QUIET);
            let recently = self.join_sent.map_or(Monotonic(0), |sent| sent + REJOIN_SPACING);
            self.timers.set(Timer::Join, at.max(recently));
            self.plan(now);
        }
    }

    /// The longest time for which somebody is left out or not followed for what may be no fault of its own.
    pub(super) fn by_mistake(&self) -> Duration {
        (self.config.detect * 2).min(timing::STRIKE_MAX)
    }

    /// Somebody is left out of the next attempt, for a while that doubles each time.
    pub(super) fn strike(&mut self, now: Now, short: ShortId, why: Misbehaviour) {
        // Loss can make an honest member look silent: it is asked again as soon as a captured one must be back.
        let most = if why == Misbehaviour::Silent { self.by_mistake() } else { timing::STRIKE_MAX };
        let strike = self.strikes.entry(short).or_insert(Strike { count: 0, until: now.monotonic });
        let wait = timing::STRIKE * (1 << strike.count.min(7));
        strike.count = strike.count.saturating_add(if why == Misbehaviour::Silent { 1 } else { 3 });
        strike.until = now.monotonic + wait.min(most);
        let until = strike.until;
        while self.strikes.len() > limits::REMEMBERED_PEOPLE_MAX {
            self.strikes.pop_first();
        }
        if why == Misbehaviour::Silent && !self.is_in_view(&short) && !self.is_grouped() {
            self.wanting.remove(&short);
        }
        if self.is_in_view(&short) {
            self.removing.entry(short).or_insert(Change::Suspected);
        }
        let person = self.people.get(&short).cloned();
        if let Some(person) = person.as_ref().filter(|_| why == Misbehaviour::Silent && !self.is_in_view(&short)) {
            // A holder that starts run after run, none of which answers, holds the group up now and then only.
            let ghost = self.ghosts.entry(person.id.cert).or_insert(Strike { count: 0, until: now.monotonic });
            ghost.until = now.monotonic + (timing::STRIKE * (1 << ghost.count.min(7))).min(timing::GHOST_MAX);
            ghost.count += 1;
            self.timers.sooner(Timer::Judge, ghost.until);
            if self.ghosts.len() > limits::REMEMBERED_PEOPLE_MAX {
                let first = self.ghosts.iter().min_by_key(|(_, g)| g.until).map(|(cert, _)| *cert);
                first.map(|cert| self.ghosts.remove(&cert));
            }
        }
        if let Some(person) = person {
            self.notice(Notice::LeftOut { cert: person.id.cert, why });
            if why != Misbehaviour::Silent {
                self.shut_out(now, person.id.cert, timing::STRIKE);
            }
        }
        self.timers.sooner(Timer::Judge, until);
    }

    /// Forgets unknown members whose cards are of no use now, if there are many.
    pub(super) fn forget_people(&mut self) {
        if !self.people.is_crowded() {
            return;
        }
        let needed: BTreeSet<ShortId> = self
            .wanting
            .keys()
            .chain(self.attempt.iter().flat_map(|a| &a.proposal.content.seats))
            .copied()
            .chain(self.installed.iter().flat_map(|i| i.agreed.people.iter().map(|p| p.short)))
            .collect();
        let me = self.me.short;
        self.people.forget(|short| *short == me || needed.contains(short));
    }

    /// Forgets those who wanted in long ago, and looks at certificates and the CRL's age.
    pub(super) fn judge(&mut self, now: Now) {
        self.wanting.retain(|_, w| now.monotonic.since(w.last) < timing::WANTING);
        self.forget_agreements(now.monotonic);
        self.forget_people();
        self.judge_own(now);
        let next = self
            .strikes
            .values()
            .chain(self.ghosts.values())
            .chain(self.banned.values())
            .map(|s| s.until)
            .chain(self.written.iter().filter_map(|w| w.until))
            .chain(self.overtaken.iter().map(|a| a.started + limits::EPOCH_OVERLAP))
            .chain(self.left_behind.iter().map(|(_, until)| *until))
            .filter(|until| *until > now.monotonic)
            .min();
        let later = now.monotonic + timing::JUDGE;
        self.timers.set(Timer::Judge, next.map_or(later, |n| n.min(later)));
        if self.phase == Phase::Running {
            self.plan(now);
        }
    }
}

const JOIN_LABEL: &str = "sealcast/v1/join";
const BEACON_LABEL: &str = "sealcast/v1/beacon";
/// How long an agreement of others is given before we propose over it.
const AGREEMENT_WAIT: Duration = Duration::from_millis(250);
/// A proposal of ours that nobody answered for so long gives way to another one.
const IGNORED: Duration = Duration::from_millis(80);
/// The same for who is not named since its own JOIN was lost.
const ASIDE_WAIT: Duration = Duration::from_millis(60);
/// How long a proposal holds us up whose author's card we do not have yet.
const CARD_WAIT: Duration = Duration::from_millis(20);
/// Beacons for newcomers: an outsider can send old JOINs again (G8).
const GREETINGS_PER_SECOND: u32 = 10;
/// How long we let others agree, one proposal after the other.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// After so long without, a proposal of others holds us up anew.
const HOLD_ANEW: Duration = Duration::from_secs(1);
/// Shortest time between two JOINs of ours.
const REJOIN_SPACING: Duration = Duration::from_millis(60);
/// How long the other part is given to let us in, from its last sign of life.
const MERGE_WAIT: Duration = Duration::from_secs(3);
/// Another part of the group that was not heard for so long is told of anew.
const PART_GONE: Duration = Duration::from_secs(10);

/// What the items that a JOIN or BEACON adds say of its author's channels; without a word there is best effort alone.
fn is_reliable(added: &[u8]) -> bool {
    let mut r = Reader::new(added);
    while let (Ok(kind), Ok(length)) = (r.u8(), r.u8()) {
        match (kind, r.take(usize::from(length))) {
            (ADDED_CHANNELS, Ok(value)) => return value == [CHANNELS_RELIABLE],
            (_, Ok(_)) => {}
            (_, Err(_)) => return false,
        }
    }
    false
}

/// An item that says which channels a group has.
const ADDED_CHANNELS: u8 = 1;
/// Best effort, one that loses nothing, and one order.
const CHANNELS_RELIABLE: u8 = 2;
