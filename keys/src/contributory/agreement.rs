//! Running an attempt: its start, its messages, its retries, its success and its failure.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand_core::Rng;
use sealcast_wire::{Change, Dropped, EpochId, Flush, Monotonic, Now, Roster, Slot, View, limits};

use super::attempt::{Agreed, Attempt, AttemptState, Formation, Refused, Step};
use super::message::{Base, InstanceId, Kind, Message, ShortId, Status, first8, next_counter};
use super::people::Person;
use super::proposal::Proposal;
use super::timing::{self, Timer, Timers, jitter};
use super::version::Versions;
use super::{Contributory, Installed, Lacks, Phase, Strike, Wanting, Written};
use crate::compartments::bits;
use crate::{CommandError, Exclusion, HandleError, Misbehaviour, Notice, Output};

impl Contributory {
    /// Follows a proposal that names us; whatever attempt ran before is dropped.
    pub(super) fn adopt(&mut self, now: Now, proposal: Proposal) {
        let Some(me) = proposal.seat_of(&self.me.short) else { return };
        let content = &proposal.content;
        let (counter, number, members) = (content.counter, content.attempt, content.seats.len());
        // Of the number that our next one can have: another base's say nothing of it.
        if content.base == self.base() {
            self.proposed = self.proposed.max((counter, number));
        }
        self.remember_judged(&proposal);
        self.planned = None;
        self.timers.stop(Timer::Propose);
        self.retry = false;
        let (seats, proposer) = (content.seats.clone(), *proposal.proposer());
        // Who goes on alone has nobody to prove it to, and ends its own view.
        let of_base = members == 1 || content.base.is_some_and(|base| self.vouches_for(base));
        let mut attempt = Attempt::new(proposal, me, now.monotonic);
        attempt.of_base = of_base;
        #[cfg(any(test, feature = "misbehaving"))]
        {
            attempt.of_base |= self.lacks(super::misbehaving::Rule::Proof);
        }
        let kin = |(seat, s): (usize, &ShortId)| (seat != me && self.is_in_view(s)).then_some(1_u64 << seat);
        // The other one of a pair may be an epoch ahead of us, and no more without us.
        let near = attempt.proposal.content.base.is_some_and(|b| b.counter == next_counter(self.epoch().counter));
        attempt.kin =
            if of_base || !near { 0 } else { seats.iter().enumerate().filter_map(kin).fold(0, |all, bit| all | bit) };
        let base = attempt.proposal.content.base;
        if let Some(mut before) = self.attempt.replace(attempt) {
            let again = *before.proposal.proposer() == proposer;
            if before.is_confirming() {
                before.state = AttemptState::Failed;
                self.passed = Some(before);
            } else if base.is_some_and(|base| before.ended_without_us(base)) {
                self.overtake(now, Some(before));
            }
            if again {
                self.charge(now, proposer);
            }
        }
        for seat in seats {
            if seat != self.me.short && !self.people.knows(&seat) {
                self.want_card(now, seat);
            }
            // Whoever is named wants in; should this attempt fail, it is in the next one too.
            if seat != self.me.short && !self.is_in_view(&seat) && self.wanting.len() < limits::REMEMBERED_PEOPLE_MAX {
                let at = now.monotonic;
                let none = EpochId::default();
                let new = Wanting { since: at, last: at, epoch: none, size: 0, towards: none };
                self.wanting.entry(seat).or_insert(new);
            }
        }
        self.rto = timing::RTO;
        let blur = jitter(&mut self.rng, timing::RTO / 4);
        self.timers.set(Timer::Resend, now.monotonic + self.rto + blur);
        self.timers.stop(Timer::Greet);
        self.greet(now);
        self.notice(Notice::Attempt { counter, attempt: u32::from(number), members });
        self.try_form(now);
    }

    /// Whether we can sign that an epoch exists: we are in it, or computed and confirmed its key with its other members.
    ///
    /// Of those who confirm, one installs first. What it proposes next must not fail because the others still lack a
    /// confirmation.
    pub(super) fn vouches_for(&self, base: Base) -> bool {
        self.base() == Some(base) || self.confirmed.contains(&base)
    }

    /// Enters the attempt's rings once all cards are here and all know the same statements.
    pub(super) fn try_form(&mut self, now: Now) {
        let Some(attempt) = self.attempt.as_ref().filter(|a| matches!(a.state, AttemptState::Gathering)) else {
            return;
        };
        let proposal = attempt.proposal.clone();
        let people: Vec<Arc<Person>> =
            proposal.content.seats.iter().filter_map(|s| self.people.get(s).cloned()).collect();
        if people.len() < proposal.content.seats.len() {
            return;
        }
        if proposal.content.hint != self.statements.hint() {
            self.timers.sooner(Timer::State, now.monotonic + jitter(&mut self.rng, timing::RANK));
            return;
        }
        let spoken = Versions::common(people.iter().map(|p| p.card.versions));
        if spoken.map(Versions::highest) != Some(proposal.content.version) {
            return self.refuse_version(now);
        }
        if people.iter().any(|p| self.statements.excludes(&p.cert)) {
            // Not with those; the statement that says so is on its way to the proposer.
            return self.give_up(now);
        }
        let ours = proposal.content.base.is_none() && *proposal.proposer() == self.me.short;
        let on_ours = self.is_grouped() && (proposal.content.base == self.base() || ours);
        let base = self.installed.as_ref().filter(|_| on_ours);
        let adds = matches!(proposal.content.kind, Kind::Join(_));
        if adds && base.is_some_and(|i| i.agreed.version != proposal.content.version) {
            return self.give_up(now); // another version may agree otherwise: a ring is set up anew for it
        }
        let members: Option<BTreeSet<ShortId>> = base.map(|i| i.agreed.people.iter().map(|p| p.short).collect());
        let is_base = |p: &Person| members.as_ref().map(|m| m.contains(&p.short));
        let state = self.statements.hash();
        let formation = Formation::new(&self.group, &proposal, people, self.statements.lines(), state, is_base);
        let seed = base.map(|i| i.ring_key.clone());
        let Some(formation) = formation else { return self.give_up(now) };
        let Some(mut attempt) = self.attempt.take() else { return };
        attempt.form(formation, seed.as_deref(), &mut self.env());
        attempt.progress = now.monotonic;
        self.attempt = Some(attempt);
        self.resume(now, |lacks| *lacks == Lacks::Instance(proposal.id()));
        self.advance(now);
    }

    /// The proposal is for another version than the highest that all speak, and whoever signed it knows that: the cards
    /// that it names say so.
    fn refuse_version(&mut self, now: Now) {
        if let Some(mut attempt) = self.attempt.take() {
            attempt.culprits.push((0, Misbehaviour::Version));
            attempt.state = AttemptState::Failed;
            self.failed(now, attempt);
        }
    }

    /// The proposal cannot be followed; others may, or come to see it as we do.
    fn give_up(&mut self, now: Now) {
        if let Some(attempt) = self.attempt.take() {
            self.charge(now, *attempt.proposal.proposer());
        }
        self.timers.stop(Timer::Resend);
        self.retry = true;
        self.plan(now);
    }

    /// Does what the running attempt can do now.
    pub(super) fn advance(&mut self, now: Now) {
        while let Some(mut attempt) = self.attempt.take() {
            attempt.held_until =
                if attempt.is_at_first_round() { self.hears_others_first(now, &attempt) } else { None };
            if let Some(until) = attempt.held_until {
                self.timers.sooner(Timer::Resend, until);
            }
            let mut env = self.env();
            let step = attempt.step(now.monotonic, &mut env);
            let alone = attempt.seats() == 1;
            match step {
                None => {
                    self.attempt = Some(attempt);
                    return;
                }
                Some(Step::Send(message)) => {
                    let message = *message;
                    if matches!(message, Message::R1(_)) && (self.installed.is_some() || attempt.of_base) {
                        self.prepare(now, &attempt);
                    }
                    self.attempt = Some(attempt);
                    if !alone {
                        self.send(&message);
                    }
                }
                Some(Step::Show(messages)) => {
                    self.attempt = Some(attempt);
                    messages.iter().for_each(|message| _ = self.send(message));
                }
                Some(Step::Keyed) => {
                    let AttemptState::Confirming(confirming) = &attempt.state else {
                        unreachable!("a key is to be confirmed")
                    };
                    let agreed = confirming.agreed.clone();
                    self.keyed(now, &agreed, false);
                    let confirmation = attempt.message(2, attempt.me).cloned();
                    if !alone && confirmation.is_some() {
                        self.confirmed.push_back(Base::of(agreed.epoch, agreed.people.len()));
                        if self.confirmed.len() > limits::FORMER_EPOCHS_MAX {
                            self.confirmed.pop_front();
                        }
                    }
                    self.attempt = Some(attempt);
                    if let Some(message) = confirmation.filter(|_| !alone) {
                        self.send(&message);
                    }
                }
                #[cfg(any(test, feature = "misbehaving"))]
                Some(Step::Done(_)) if !attempt.liars.is_empty() && self.lacks(super::misbehaving::Rule::Liars) => {
                    return self.failed(now, attempt);
                }
                Some(Step::Done(agreed)) => self.install(now, attempt, *agreed),
                Some(Step::Failed) => {
                    self.failed(now, attempt);
                    return;
                }
            }
        }
    }

    /// Others may have ended this attempt, or it ends for nobody: we listen on without waiting for it.
    pub(super) fn overtake(&mut self, now: Now, attempt: Option<Attempt>) {
        if attempt.is_some() {
            self.overtaken = attempt;
            self.timers.sooner(Timer::Judge, now.monotonic + limits::EPOCH_OVERLAP);
        }
    }

    /// Somebody who was to join goes. Others may have ended the attempt before they heard that.
    pub(super) fn let_go(&mut self, now: Now) {
        let listens = self.attempt.take_if(|a| a.only_listens());
        self.drop_attempt();
        self.overtake(now, listens);
    }

    /// The same as [`Contributory::advance`] with one that was overtaken: all that it can still come to is its key.
    fn advance_overtaken(&mut self, now: Now) {
        let Some(mut attempt) = self.overtaken.take() else { return };
        match (attempt.step(now.monotonic, &mut self.env()), &attempt.state) {
            (None, _) => self.overtaken = Some(attempt),
            (Some(Step::Keyed), AttemptState::Confirming(confirming)) => self.keyed(now, &confirming.agreed, true),
            _ => {}
        }
    }

    /// A proposal to add to the epoch that we are in, or were in, comes after the one that follows on it: of that
    /// agreement, too, we want the key.
    pub(super) fn listen_to(&mut self, now: Now, proposal: Proposal) -> Option<()> {
        let me = proposal.seat_of(&self.me.short)?;
        let of = |i: &&Installed| Some(Base::of(i.agreed.epoch, i.agreed.people.len())) == proposal.content.base;
        let base = self.installed.iter().chain(self.left_behind.iter().map(|(i, _)| i)).find(of)?;
        let ours: BTreeSet<ShortId> = base.agreed.people.iter().map(|p| p.short).collect();
        let seed = base.ring_key.clone();
        let people = proposal.content.seats.iter().map(|s| self.people.get(s).cloned());
        let people: Vec<Arc<Person>> = people.collect::<Option<_>>()?;
        let later = |a: &Attempt| a.proposal.content.counter >= proposal.content.counter;
        let adds = matches!(proposal.content.kind, Kind::Join(_)) && !proposal.marks_joiner(me);
        if self.overtaken.as_ref().is_some_and(later) {
            return None; // one for each epoch, whatever a member proposes besides
        }
        let unfit = |p: &Arc<Person>| self.statements.excludes(&p.cert);
        let spoken = Versions::common(people.iter().map(|p| p.card.versions));
        if spoken.map(Versions::highest) != Some(proposal.content.version) {
            return None;
        }
        if !adds || proposal.content.hint != self.statements.hint() || people.iter().any(unfit) {
            return None;
        }
        let (lines, state) = (self.statements.lines(), self.statements.hash());
        let is_base = |p: &Person| Some(ours.contains(&p.short));
        let formation = Formation::new(&self.group, &proposal, people, lines, state, is_base)?;
        let id = proposal.id();
        let mut attempt = Attempt::new(proposal, me, now.monotonic);
        attempt.of_base = true;
        attempt.form(formation, Some(&seed), &mut self.env());
        if attempt.active_seats() >> me & 1 == 0 {
            self.overtake(now, Some(attempt));
            self.resume(now, |lacks| *lacks == Lacks::Instance(id));
            self.advance_overtaken(now);
        }
        Some(())
    }

    fn keyed(&mut self, now: Now, agreed: &Agreed, passed: bool) {
        let view = self.view_of(now, agreed);
        let (epoch, protect, access) = (agreed.epoch, agreed.keys.clone(), agreed.table.clone());
        self.outputs.push_back(Output::Keyed { epoch, protect, view, access, passed });
        if agreed.pairs.is_empty() {
            return;
        }
        if self.written.len() >= limits::EPOCHS_HELD {
            let spare = self.written.iter().position(|w| w.agreed.epoch != self.epoch());
            spare.map(|at| self.written.remove(at));
        }
        let until = passed.then_some(now.monotonic + limits::EPOCH_OVERLAP);
        self.written.push_back(Written { agreed: agreed.clone(), until });
    }

    /// Forgets the secrets of agreements whose time is over.
    pub(super) fn forget_agreements(&mut self, now: Monotonic) {
        self.written.retain(|w| w.until.is_none_or(|until| until > now));
        self.overtaken.take_if(|a| now.since(a.started) >= limits::EPOCH_OVERLAP);
        self.left_behind.take_if(|(_, until)| *until <= now);
    }

    /// The view that an agreement makes, and what it changes of ours.
    fn view_of(&self, now: Now, agreed: &Agreed) -> View {
        let members = agreed.people.iter().map(|p| p.member()).collect();
        let change = self.change_to(now, &agreed.people);
        View::new(self.installed_members(), agreed.epoch, members, agreed.me, change).after(agreed.cut)
    }

    pub(super) fn installed_members(&self) -> Option<&Roster> {
        self.installed.as_ref().map(|i| &i.members)
    }

    fn change_to(&self, now: Now, people: &[Arc<Person>]) -> Change {
        let Some(installed) = &self.installed else { return Change::Formed };
        let old = &installed.agreed.people;
        let gone = |p: &&Arc<Person>| !people.iter().any(|q| q.id.cert == p.id.cert);
        let why = |p: &Arc<Person>| match self.removing.get(&p.short) {
            _ if self.statements.excludes(&p.cert) => Change::Evicted,
            Some(why) => *why,
            None => Change::Suspected,
        };
        if let Some(worst) = old.iter().filter(gone).map(why).max() {
            return worst;
        }
        let new = people.iter().filter(|p| !old.iter().any(|q| q.short == p.short)).count();
        match new {
            0 => Change::Rekeyed,
            n if n > old.len() || self.is_merging(now) => Change::Merged,
            _ => Change::Joined,
        }
    }

    /// Tells what is coming: who leaves the ring can no longer read what is queued from now on (A5).
    fn prepare(&mut self, now: Now, attempt: &Attempt) {
        let Some(formation) = &attempt.formation else { return };
        let people = formation.people.clone();
        let me = Slot(formation.slot(attempt.me) as u32);
        let hash = u64::from_be_bytes(attempt.proposal.id().0);
        let epoch = EpochId { counter: attempt.proposal.content.counter, hash };
        (self.cut, self.flushing) = (None, epoch);
        // Others wait for longer: what it says meanwhile of what it holds tells them that it is there.
        self.timers.set(Timer::Flush, now.monotonic + limits::flush_within(people.len()));
        self.prepare_view(now, epoch, &people, me, Flush::Now);
    }

    /// What is delivered in the view in use is settled, or is not known in time: then zeros stand for it, and the attempt
    /// comes to nothing if others know it.
    pub(super) fn flushed(&mut self, now: Now, cut: [u8; 32]) {
        self.timers.stop(Timer::Flush);
        if self.cut.is_none() {
            self.cut = Some(cut);
            self.advance(now);
        }
    }

    fn prepare_view(&mut self, now: Now, epoch: EpochId, people: &[Arc<Person>], me: Slot, flush: Flush) {
        let members = people.iter().map(|p| p.member()).collect();
        let change = self.change_to(now, people);
        self.prepared = true;
        let view = View::new(self.installed_members(), epoch, members, me, change);
        let is_apart = self.apart.is_some_and(|cert| view.members.find(&cert).is_none());
        let waits = is_apart && now.monotonic.since(self.grew) < self.config.detect * timing::APART_DETECTS;
        let view = view.waiting(waits);
        self.outputs.push_back(Output::Prepare { view, flush });
    }

    /// Somebody in the view must go: publishers pause at once.
    pub(super) fn prepare_removal(&mut self, now: Now) {
        let Some(installed) = &self.installed else { return };
        let goes = |p: &Arc<Person>| {
            p.short != self.me.short && (self.removing.contains_key(&p.short) || self.statements.excludes(&p.cert))
        };
        let people: Vec<Arc<Person>> = installed.agreed.people.iter().filter(|p| !goes(p)).cloned().collect();
        if people.len() < installed.agreed.people.len() {
            let me = people.iter().position(|p| p.short == self.me.short).unwrap_or(0);
            let epoch = EpochId { counter: next_counter(installed.agreed.epoch.counter), hash: 0 };
            self.prepare_view(now, epoch, &people, Slot(me as u32), Flush::Later);
        }
    }

    /// Every active member has confirmed: the epoch is in use.
    fn install(&mut self, now: Now, attempt: Attempt, agreed: Agreed) {
        let view = self.view_of(now, &agreed);
        let previous = self.installed.take();
        let joins = match attempt.proposal.content.kind {
            Kind::Setup => 0,
            Kind::Join(joiners) => previous.as_ref().map_or(0, |i| i.joins_since_setup) + joiners.count_ones(),
        };
        let known = |p: &Arc<Person>| {
            let i = previous.as_ref()?;
            let slot = i.agreed.people.iter().position(|q| q.short == p.short)?;
            Some(i.since[slot])
        };
        let since = agreed.people.iter().map(|p| known(p).unwrap_or(agreed.epoch.counter)).collect();
        if let Some(previous) = &previous {
            self.history.push_back(previous.agreed.epoch);
            if self.history.len() > limits::FORMER_EPOCHS_MAX {
                self.history.pop_front();
            }
        }
        let recent = |i: &Installed| now.monotonic.since(i.at) < timing::VAIN_FORGIVEN;
        // An epoch between ours and this one may have had somebody in it who had to go.
        let of_others = attempt.proposal.content.base.is_some_and(|b| usize::from(b.size) != agreed.people.len());
        let soon_again = view.change == Change::Rekeyed && !of_others && previous.as_ref().is_some_and(recent);
        let came =
            |p: &&Arc<Person>| previous.as_ref().is_some_and(|i| !i.agreed.people.iter().any(|q| q.short == p.short));
        for person in agreed.people.iter().filter(came) {
            self.joins.spend(person.id.cert, now.monotonic);
        }
        for person in &agreed.people {
            self.wanting.remove(&person.short);
            self.strikes.remove(&person.short);
            self.ghosts.remove(&person.id.cert);
            self.removing.remove(&person.short);
        }
        // A former run of a member's certificate does not come back.
        let former: Vec<ShortId> = self
            .wanting
            .keys()
            .filter(|s| {
                let cert = self.people.get(s).map(|p| p.id.cert);
                let first = self.wanting[s].since;
                agreed.people.iter().any(|p| Some(p.id.cert) == cert) && first <= attempt.started
            })
            .copied()
            .collect();
        former.iter().for_each(|s| _ = self.wanting.remove(s));

        let ring_key = agreed.ring_key.clone().expect("everybody is in the group's ring");
        let until = now.monotonic + limits::EPOCH_OVERLAP;
        for written in self.written.iter_mut().filter(|w| w.agreed.epoch != agreed.epoch) {
            written.until.get_or_insert(until);
        }
        self.forget_agreements(now.monotonic);
        if self.written.len() > 1 {
            self.timers.sooner(Timer::Judge, until);
        }
        let base = attempt.proposal.content.base;
        let on_it = |i: &Installed| base == Some(Base::of(i.agreed.epoch, i.agreed.people.len()));
        self.left_behind = previous.filter(|i| base.is_some() && !on_it(i)).map(|i| (i, until));
        if self.left_behind.is_some() {
            self.timers.sooner(Timer::Judge, until);
        }
        let (keys, access) = (agreed.keys.clone(), agreed.table.clone());
        let at = now.monotonic;
        let agreed = Agreed { ring_key: None, ..agreed };
        self.cut = Some([0; 32]);
        self.timers.stop(Timer::Flush);
        self.installed =
            Some(Installed { agreed, at, joins_since_setup: joins, ring_key, since, members: view.members.clone() });
        if soon_again {
            self.charge_rekey(now, *attempt.proposal.proposer());
        }
        // One that follows on this epoch came before our last confirmation: others may still follow it.
        let installed = self.base();
        self.rated.take_if(|rated| rated.content.base != installed);
        self.proposed = (attempt.proposal.content.counter, attempt.proposal.content.attempt);
        let seats = &attempt.proposal.content.seats;
        let liars: Vec<ShortId> = attempt.liars.iter().map(|seat| seats[*seat]).collect();
        let lies: Vec<Message> = attempt.liars.iter().filter_map(|seat| attempt.message(2, *seat).cloned()).collect();
        self.last = Some(attempt);
        self.prepared = false;
        if self.is_grouped() {
            if !view.came.is_empty() {
                self.grew = now.monotonic;
            }
            // Members of a group that we heard of and that are not in ours may have an order.
            let heard = self.elsewhere.keys().copied().chain(self.apart);
            self.apart = heard.into_iter().find(|cert| view.members.find(cert).is_none());
            self.elsewhere.clear();
            self.confirmed.clear();
        }
        self.own_proposals.0 = 0;
        self.yields = false;
        self.retry = false;
        self.rotate = false;
        self.replaced = false;
        self.merging = self.merging.filter(|m| m.until <= now.monotonic); // one in vain is remembered
        self.hold_until = now.monotonic;
        self.join_wait = timing::JOIN_RETRY;
        self.timers.stop(Timer::Join);
        self.timers.stop(Timer::Resend);
        let rekey = self.config.rekey_after + timing::rank_wait(self.installed_slot().index());
        self.timers.set(Timer::Rekey, now.monotonic + rekey);
        self.schedule_beacon(now, timing::BEACON_FIRST);
        self.greet(now);
        self.key_tries = 0;
        // Before anything that is sealed with them.
        self.send_own_keys(now);
        self.outputs.push_back(Output::Epoch { view, protect: Some(keys), access });
        self.passed_over.clear();
        // Others may hold right ones of theirs.
        lies.iter().for_each(|message| _ = self.send(message));
        for liar in liars {
            self.strike(now, liar, Misbehaviour::WrongValue);
        }
        match self.later.take() {
            Some(later) => self.come_back_to(now, later),
            None => self.plan(now),
        }
    }

    /// A proposal that had to wait for the end of our attempt.
    pub(super) fn come_back_to(&mut self, now: Now, later: Proposal) {
        self.judged.retain(|id| *id != later.id());
        if self.judge_proposal(now, later, true).is_err() || self.attempt.is_none() {
            self.plan(now);
        }
    }

    /// An attempt that somebody else proposed came to nothing, or took the place of its own last one, or changed
    /// nobody's place soon after the last: with more of these in a short time than mishaps explain, a group
    /// does not follow its proposals for a while. Who could propose without end would keep everybody out.
    fn charge(&mut self, now: Now, proposer: ShortId) {
        if proposer != self.me.short && self.is_grouped() {
            self.charge_as_any(now, proposer);
        }
    }

    /// A new key for the same members, soon after the last one. We count our own as the others do, and wait as long as they
    /// would not follow us.
    fn charge_rekey(&mut self, now: Now, proposer: ShortId) {
        #[cfg(any(test, feature = "misbehaving"))]
        if self.lacks(super::misbehaving::Rule::Allowance) {
            return;
        }
        if self.is_grouped() {
            self.charge_as_any(now, proposer);
        }
    }

    fn charge_as_any(&mut self, now: Now, proposer: ShortId) {
        let at = now.monotonic;
        let Some(cert) = self.people.get(&proposer).map(|p| p.id.cert) else { return };
        let vain = self.vain.entry(cert).or_insert(Strike { count: 0, until: at });
        let forgiven = at.since(vain.until).as_secs() / timing::VAIN_FORGIVEN.as_secs();
        vain.count = vain.count.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX)) + 1;
        let more = vain.count.saturating_sub(timing::VAIN_FREE);
        let wait = if more == 0 { std::time::Duration::ZERO } else { timing::VAIN * (1 << more.min(8)) };
        vain.until = at + wait;
        if self.vain.len() > limits::REMEMBERED_PEOPLE_MAX {
            let least = self.vain.iter().min_by_key(|(_, v)| (v.count, v.until)).map(|(s, _)| *s);
            least.map(|s| self.vain.remove(&s));
        }
    }

    /// Whether a proposer could expect an answer of this one: a member of ours, or a newcomer that answered
    /// as far as we know.
    fn could_expect(&self, now: Now, short: &ShortId) -> bool {
        let over = |s: Option<&Strike>| s.is_none_or(|s| s.until <= now.monotonic);
        let known = self.people.get(short);
        known.is_some_and(|p| over(self.strikes.get(short)) && over(self.ghosts.get(&p.id.cert)))
    }

    /// Whether this proposer's attempts came to nothing too often.
    pub(super) fn proposes_in_vain(&self, now: Now, proposer: &ShortId) -> bool {
        let cert = self.people.get(proposer).map(|p| p.id.cert);
        let vain = cert.and_then(|cert| self.vain.get(&cert)).filter(|_| self.is_grouped());
        vain.is_some_and(|v| v.count > timing::VAIN_FREE && v.until > now.monotonic)
    }

    /// From when on the others follow us to a new key for the same members.
    pub(super) fn may_rekey_from(&self) -> Monotonic {
        let spent = self.vain.get(&self.me.id.cert).filter(|v| v.count > timing::VAIN_FREE);
        // They installed the last one a little later than we did, perhaps.
        spent.map_or(Monotonic(0), |v| v.until + timing::RTO)
    }

    /// A proposal that was not followed since its author proposes too often is followed all the same once another member
    /// does: members must not part over when exactly somebody may propose again.
    fn follow_after_all(&mut self, now: Now, id: InstanceId, author: ShortId, bootstrap_sealed: &[u8]) -> bool {
        let follows = |p: &Proposal| p.id() == id && *p.proposer() != author && p.seat_of(&author).is_some();
        if !self.is_in_view(&author) {
            return false;
        }
        let Some(proposal) = self.rated.take_if(|p| follows(p)) else { return false };
        self.keep(Lacks::Instance(id), bootstrap_sealed);
        self.come_back_to(now, proposal);
        true
    }

    fn installed_slot(&self) -> Slot {
        self.installed.as_ref().map_or(Slot(0), |i| i.agreed.me)
    }

    /// The attempt cannot succeed: without whom it was for, and as it was if nobody can be named.
    fn failed(&mut self, now: Now, attempt: Attempt) {
        self.timers.stop(Timer::Resend);
        for (seat, why) in &attempt.culprits {
            self.strike(now, attempt.proposal.content.seats[*seat], *why);
        }
        let proposer = *attempt.proposal.proposer();
        // Others may hold right ones of the same authors, and wait for us.
        let wrong = attempt.culprits.iter().filter(|(_, why)| *why == Misbehaviour::WrongValue);
        let shown: Vec<Message> = wrong.filter_map(|(seat, _)| attempt.message(1, *seat).cloned()).collect();
        shown.iter().for_each(|message| _ = self.send(message));
        // Who lacks one half of the proof would blame those who lack the other.
        let shown: Vec<Message> = shown.into_iter().chain(attempt.proof).collect();
        if !shown.is_empty() {
            self.shown = Some((attempt.proposal.id(), shown, now.monotonic));
        }
        if attempt.unproven {
            self.doubt(now, proposer);
        }
        self.yields |= proposer == self.me.short;
        let others = attempt.culprits.iter().any(|(seat, _)| attempt.proposal.content.seats[*seat] != proposer);
        if !attempt.excused && !others {
            self.charge(now, proposer);
        }
        let base = self.is_grouped() && attempt.proposal.content.base == self.base();
        let same = |i: &Installed| {
            attempt.proposal.content.seats.iter().all(|s| i.agreed.people.iter().any(|p| p.short == *s))
        };
        if base && self.installed.as_ref().is_some_and(same) {
            self.rotate = true; // it was a rekey, and is still wanted
        }
        self.retry = true;
        self.planned = None;
        match self.later.take() {
            Some(later) => self.come_back_to(now, later),
            None => self.plan(now),
        }
        // Whoever is evicted stays so, whatever becomes of this attempt: publishers wait for the next one (A5).
        let evicted = |p: &Arc<Person>| self.statements.excludes(&p.cert);
        let goes = self.installed.as_ref().is_some_and(|i| i.agreed.people.iter().any(evicted));
        if self.prepared && !goes && self.attempt.is_none() && !self.timers.is_set(Timer::Propose) {
            self.prepared = false;
            self.outputs.push_back(Output::Abandoned);
        }
        if self.installed.is_none() && !self.timers.is_set(Timer::Join) {
            let wait = self.join_wait + jitter(&mut self.rng, self.join_wait / 2);
            self.timers.set(Timer::Join, now.monotonic + wait);
        }
        if self.is_merging(now) {
            // Another part was to let us in, which this attempt kept us from asking for.
            let wait = jitter(&mut self.rng, timing::QUIET);
            self.timers.sooner(Timer::Join, now.monotonic + wait);
        }
    }

    /// A message of a round.
    pub(super) fn on_round(&mut self, now: Now, message: Message, bootstrap_sealed: &[u8]) -> Result<(), HandleError> {
        let (author, id) = match &message {
            Message::R1(m) => (m.author, InstanceId(first8(&m.instance))),
            Message::R2(m) => (m.author, m.instance),
            Message::Kc(m) => (m.author, m.instance),
            _ => return Err(Dropped::Malformed.into()),
        };
        if author == self.me.short {
            return Err(Dropped::Stale.into());
        }
        let of = |a: &Option<Attempt>| a.as_ref().is_some_and(|a| a.proposal.id() == id);
        let of_passed = !of(&self.attempt) && !of(&self.last);
        let place = if of(&self.attempt) {
            &mut self.attempt
        } else if of(&self.last) {
            &mut self.last
        } else if of(&self.passed) && matches!(message, Message::Kc(_)) {
            &mut self.passed
        } else if of(&self.overtaken) {
            return self.on_overtaken(now, message);
        } else {
            return self.unknown_instance(now, id, author, bootstrap_sealed);
        };
        let Some(mut attempt) = place.take() else { return Err(Dropped::Stale.into()) };
        let running = attempt.is_running();
        let round = match &message {
            Message::R1(_) => 0,
            Message::R2(_) => 1,
            _ => 2,
        };
        let unproved = attempt.proof.is_empty();
        let taken = attempt.take(message, now.monotonic, &self.env());
        let other = match taken {
            // Others hold it, too, and each would answer all of them.
            Err(Refused::Misbehaved(seat, Misbehaviour::Equivocation)) => {
                attempt.hand_on(round, seat, now.monotonic, timing::RTO)
            }
            _ => None,
        };
        match (running, of_passed) {
            (true, _) => self.attempt = Some(attempt),
            (false, false) => self.last = Some(attempt),
            (false, true) => self.passed = Some(attempt),
        }
        match taken {
            Ok(()) => {
                self.people.hear(&author, now.monotonic);
                self.advance(now);
                Ok(())
            }
            Err(Refused::Early) => {
                self.keep(Lacks::Instance(id), bootstrap_sealed);
                Ok(())
            }
            Err(Refused::Known) => Err(Dropped::Stale.into()),
            Err(Refused::Unknown) => Err(Dropped::Policy.into()),
            Err(Refused::Auth) => Err(Dropped::Auth.into()),
            Err(Refused::Disagrees) => {
                self.people.hear(&author, now.monotonic);
                self.timers.sooner(Timer::State, now.monotonic + jitter(&mut self.rng, timing::RANK));
                self.show_cards(now, Some(author));
                Err(Dropped::Policy.into())
            }
            Err(Refused::Misbehaved(_, why)) => {
                if why == Misbehaviour::WrongValue {
                    // Somebody else may hold a right one, and wait for us.
                    self.resend_bootstrap(bootstrap_sealed);
                }
                let cert = self.people.get(&author).map(|p| p.id.cert).unwrap_or_default();
                let known = self.people.get(&author).is_some_and(|p| self.is_banned(now.monotonic, p));
                if running || !known || unproved {
                    // Members that hold one of the two are shown both, even if we know its author already.
                    other.iter().for_each(|message| _ = self.send(message));
                }
                if running {
                    self.advance(now);
                } else if !known {
                    // Of the epoch that we are in, or that others are in: the next one is without it.
                    self.strike(now, author, why);
                    self.plan(now);
                }
                Err(HandleError::Misbehaved(cert, why))
            }
        }
    }

    /// A message of an attempt that was overtaken: the next one deals with whoever says something wrong.
    fn on_overtaken(&mut self, now: Now, message: Message) -> Result<(), HandleError> {
        let Some(mut attempt) = self.overtaken.take() else { return Err(Dropped::Stale.into()) };
        let author = message.author();
        let taken = attempt.take(message, now.monotonic, &self.env());
        self.overtaken = Some(attempt);
        match taken {
            Ok(()) => {
                author.iter().for_each(|author| self.people.hear(author, now.monotonic));
                self.advance_overtaken(now);
                Ok(())
            }
            Err(Refused::Auth) => Err(Dropped::Auth.into()),
            Err(_) => Err(Dropped::Stale.into()),
        }
    }

    /// A message of an attempt that is not ours: one that we judged already, or one that we missed.
    fn unknown_instance(
        &mut self,
        now: Now,
        id: InstanceId,
        author: ShortId,
        bootstrap_sealed: &[u8],
    ) -> Result<(), HandleError> {
        if self.later.as_ref().is_some_and(|later| later.id() == id) {
            self.keep(Lacks::Instance(id), bootstrap_sealed);
            let awaited =
                |a: &Attempt| a.proposal.seat_of(&author).is_some_and(|seat| a.waiting_for() >> seat & 1 == 1);
            if self.attempt.as_ref().is_some_and(|a| a.is_confirming() && awaited(a))
                && let Some(later) = self.later.take()
            {
                // It went on without confirming.
                self.come_back_to(now, later);
            }
            return Ok(());
        }
        if self.follow_after_all(now, id, author, bootstrap_sealed) {
            return Ok(());
        }
        if self.is_judged(&id) {
            // Its author may wait for us, since it has not seen what made us give that attempt up.
            let again = |at: &Monotonic| now.monotonic.since(*at) >= timing::RTO / 2;
            if let Some((_, shown, at)) = self.shown.as_mut().filter(|(of, _, at)| *of == id && again(at)) {
                *at = now.monotonic;
                let shown = shown.clone();
                shown.iter().for_each(|message| _ = self.send(message));
            }
            // Its author may not have heard of the better proposal.
            let named = self.attempt.as_mut().filter(|a| a.proposal.seat_of(&author).is_some());
            let again = named.and_then(|a| a.remind(now.monotonic, timing::RTO));
            again.iter().for_each(|(message, bootstrap_sealed)| self.send_bootstrap(message, bootstrap_sealed.clone()));
            return Err(Dropped::Stale.into());
        }
        self.keep(Lacks::Instance(id), bootstrap_sealed);
        // Its proposal may be here, and wait for its author's card.
        if !self.early.iter().any(|(lacks, _)| matches!(lacks, Lacks::Proposer(_, held) if *held == id)) {
            // A newcomer is hardly named by whom it does not know, and will be told soon that there is a group.
            let likely = self.installed.is_some() || self.wanting.contains_key(&author);
            self.want_proposal(now, id, likely);
        }
        Ok(())
    }

    /// Somebody says what it holds, and so what it lacks.
    pub(super) fn on_status(&mut self, now: Now, m: &Status, bootstrap_sealed: &[u8]) -> Result<(), HandleError> {
        if m.author == self.me.short {
            return Err(Dropped::Stale.into());
        }
        let of = |a: &Option<Attempt>| a.as_ref().is_some_and(|a| a.proposal.id() == m.instance);
        let (of_last, of_running) = (of(&self.last), of(&self.attempt));
        if !of_last && !of_running {
            if self.is_judged(&m.instance) && self.is_in_view(&m.author) {
                self.answer_with_beacon(now);
            }
            return self.unknown_instance(now, m.instance, m.author, bootstrap_sealed);
        }
        let over = self.installed.as_ref().is_some_and(|i| now.monotonic.since(i.at) > LAST_ANSWERS);
        if !of_running && over {
            // Whoever asks now gave up long ago, or is an outsider who sends an old question again (G8).
            return Err(Dropped::Stale.into());
        }
        let Some(author) = self.people.get(&m.author).cloned() else { return Err(Dropped::Stale.into()) };
        let place = if of_running { &mut self.attempt } else { &mut self.last };
        let Some(mut attempt) = place.take() else { return Err(Dropped::Stale.into()) };
        let verified = attempt.verify_status(m, &author, &self.env());
        let answer = match verified {
            Ok(()) => {
                attempt.hear(&m.author, now.monotonic);
                attempt.cover(m);
                self.answers(now, &mut attempt, m)
            }
            Err(_) => Vec::new(),
        };
        if of_running {
            self.attempt = Some(attempt);
        } else {
            self.last = Some(attempt);
        }
        match verified {
            Ok(_) => {
                self.people.hear(&m.author, now.monotonic);
                answer.iter().for_each(|message| _ = self.send(message));
                Ok(())
            }
            Err(Refused::Unknown) => Err(Dropped::Policy.into()),
            Err(_) => Err(Dropped::Auth.into()),
        }
    }

    /// What the author of a status lacks and we should send: our own; of others what they do not send.
    fn answers(&mut self, now: Now, attempt: &mut Attempt, m: &Status) -> Vec<Message> {
        let n = attempt.seats() as u64;
        let active = attempt.active_seats();
        let (twice, thrice) = attempt.still_owed(m);
        let mut answer = Vec::new();
        for (round, theirs) in [m.r1, m.r2, m.kc].into_iter().enumerate() {
            for seat in bits(active & !theirs & attempt.held(round)) {
                if seat == attempt.me {
                    answer.extend(attempt.send_again(round, seat, now.monotonic, timing::RTO / 2));
                    continue;
                }
                let heard = self.people.heard(&attempt.proposal.content.seats[seat]);
                let silent = heard.is_none_or(|at| now.monotonic.since(at) > timing::RTO * 2);
                let chance = if silent || twice[round] >> seat & 1 == 1 { 3 } else { 1 };
                if self.rng.next_u64() % n >= chance {
                    continue;
                }
                let after = timing::RTO * 2;
                answer.extend(match thrice[round] >> seat & 1 == 1 {
                    // We hear its author, and a member that asks so often does not.
                    true => attempt.hand_on(round, seat, now.monotonic, after),
                    false => attempt.send_again(round, seat, now.monotonic, after),
                });
            }
        }
        answer
    }

    /// Asks for what is missing, or gives up on who is silent.
    pub(super) fn resend(&mut self, now: Now) {
        self.advance(now);
        let Some(attempt) = self.attempt.as_ref() else { return };
        let idle = |since: Monotonic| now.monotonic.since(since.max(attempt.progress)) >= timing::RTO * 2;
        if attempt.aside.is_some_and(idle) {
            // They did not: what they follow exists, it seems, and they are not silent.
            self.drop_attempt();
            return self.plan(now);
        }
        let late = attempt.is_confirming() && now.monotonic.since(attempt.progress) >= timing::RTO;
        let made_up = !attempt.is_proven();
        let waited = now.monotonic.since(attempt.started) >= timing::RTO;
        // One that this attempt went past is no rival of it: it is over.
        if let Some(rival) = self.later.take_if(|later| made_up && waited && attempt.has_rival(later)) {
            // What it follows on may be made up: another group wants us too.
            let proposer = *attempt.proposal.proposer();
            self.attempt = None;
            self.doubt(now, proposer);
            return self.come_back_to(now, rival);
        }
        if let Some(later) = self.later.take_if(|_| late) {
            // The confirmations do not come, and others have gone on.
            let before = attempt.proposal.id();
            self.come_back_to(now, later);
            if self.attempt.as_ref().is_none_or(|a| a.proposal.id() != before) {
                return;
            }
        }
        let Some(attempt) = self.attempt.as_ref() else { return };
        let gathering = matches!(attempt.state, AttemptState::Gathering);
        let seats = &attempt.proposal.content.seats;
        let waiting: Vec<usize> = match gathering {
            true => (0..seats.len()).filter(|seat| !self.people.knows(&seats[*seat])).collect(),
            false => bits(attempt.waiting_for()).collect(),
        };
        let timeout =
            if attempt.waits_for_joiners() { timing::SILENT_JOINER } else { timing::silent(self.config.detect) };
        let idle = now.monotonic.since(attempt.progress);
        let stuck = idle >= timing::stuck(self.config.detect);
        // What is not of this attempt shows no life: an outsider may have sent it again. Who asks and never
        // answers is left out in the end as well, unless nobody answers, and so the fault may be ours.
        let lacks = |seat: &usize| attempt.quiet_for(*seat, now.monotonic) >= timeout || stuck && attempt.has_others();
        let silent: Vec<ShortId> = waiting.iter().filter(|seat| lacks(seat)).map(|seat| seats[*seat]).collect();
        let left = |s: &ShortId| self.removing.get(s) == Some(&Change::Left) && !self.is_in_view(s);
        if seats.iter().any(left) && idle >= timing::RTO * 2 {
            // It ended for nobody, and those whom we wait for may have dropped it: they are not silent.
            self.let_go(now);
            return self.plan(now);
        }
        let gave_up = !silent.is_empty() && idle >= timeout / 2;
        if gave_up || stuck {
            let Some(mut attempt) = self.attempt.take() else { return };
            attempt.state = AttemptState::Failed;
            // Those who know that there is no epoch which it follows on are right to be silent. Whoever is in a group has
            // something better to follow meanwhile.
            let proven = attempt.is_proven();
            attempt.unproven |= !proven && self.is_grouped();
            let silent: Vec<ShortId> = silent.into_iter().filter(|_| proven).collect();
            attempt.excused = silent.iter().any(|s| self.could_expect(now, s));
            for short in silent {
                self.strike(now, short, Misbehaviour::Silent);
            }
            return self.failed(now, attempt);
        }
        if let Some(mut attempt) = self.attempt.take() {
            let status = (!attempt.is_covered()).then(|| attempt.status(&self.env()));
            self.attempt = Some(attempt);
            status.iter().for_each(|status| _ = self.send(status));
            self.try_form(now);
            self.plan(now);
        }
        self.rto = (self.rto * 5 / 4).min(timing::RTO_MAX);
        let blur = jitter(&mut self.rng, self.rto / 2);
        self.timers.set(Timer::Resend, now.monotonic + self.rto * 3 / 4 + blur);
        if let Some(until) = self.attempt.as_ref().and_then(|a| a.held_until) {
            self.timers.sooner(Timer::Resend, until);
        }
        if self.attempt.as_ref().is_some_and(|a| a.disagreed.0 > 0) {
            self.show_cards(now, None);
        }
    }

    /// A new key for the same members.
    pub(super) fn rotate(&mut self, now: Now) -> Result<(), CommandError> {
        if self.installed.is_none() {
            return Err(CommandError::NotReady);
        }
        self.rotate = true;
        match self.wish(now) {
            // Whoever was asked proposes; no need to wait for a turn.
            Some(wish) if wish.urgent && self.attempt.is_none() => {
                let at = if self.changes_nobody(&wish) { self.may_rekey_from() } else { now.monotonic };
                self.planned = Some((wish.members, true));
                self.timers.set(Timer::Propose, at.max(now.monotonic));
            }
            _ => self.plan(now),
        }
        Ok(())
    }

    /// Says that we go, a few times, and is gone.
    ///
    /// Whoever asked a group to be let in says so too: the group would wait for it.
    pub(super) fn leave(&mut self, now: Now) {
        self.phase = Phase::Leaving;
        self.attempt = None;
        self.planned = None;
        let asked = self.join_sent.is_some() && self.leave_tries == 0;
        let awaited = self.is_grouped() || !self.elsewhere.is_empty() || self.towards != EpochId::default();
        let more = awaited && self.leave_tries < timing::LEAVE_TRIES;
        self.timers = Timers::default();
        if asked && !more {
            self.send_leave(); // whoever heard our JOIN, though we did not hear of it
        }
        if !more {
            return self.exclude(Exclusion::Left);
        }
        self.leave_tries += 1;
        self.send_leave();
        let wait = timing::LEAVE_RETRY + jitter(&mut self.rng, timing::LEAVE_RETRY / 2);
        self.timers.set(Timer::Leave, now.monotonic + wait);
    }
}

/// How long the attempt that made the installed epoch answers those who missed some of it: until they have
/// given it up ([`timing::stuck`]), and ask to be let in anew.
const LAST_ANSWERS: std::time::Duration = std::time::Duration::from_secs(4);
