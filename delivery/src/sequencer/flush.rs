//! The end of a view: those who stay hold the same of its order, deliver that, and decide whether they may go on.
//!
//! ```text
//! Prepare ─▶ fence ─▶ FLUSH, signed, until all who stay have said theirs ─▶ decision: the cut, and whether it is primary
//!                       └─ FILL and records, for those who hold less ─▶ Flushed(hash) ─▶ Install: all up to the cut delivered
//! ```
//! FLUSH names whose reports its speaker has. Who lacks some says its own again, unless another one that lacks the same just
//! did, and those whose reports are missing answer: on a busy machine many wait for one, and all hear all that is said.
//!
//! A fenced member says no more that it holds anything, so that the old sequencer gets no majority (B3). Each sequence number
//! up to the cut is held by somebody who stays, hence everything that was acknowledged: that is held by a majority of the view,
//! as those who stay have to be. The hash goes into the key of the coming view: nobody installs it who decided otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sealcast_wire::codec::Reader;
use sealcast_wire::{Change, Dropped, EpochId, Incarnation, Member, Monotonic, Slot, View, limits};

use super::control::{Control, Of};
use super::named::Slots;
use super::order::{Order, Stamped};
use super::primary::{Decision, Id, Primary, Report, decide, id_of};
use super::{Ahead, Current, Sequencer, ordering};
use crate::multicast::frame::{Frame, Frames, Stamp, Stream, write_stamps};
use crate::{OrderStatus, Output};

/// A view that is prepared.
#[derive(Debug)]
pub(super) struct Flush {
    view: EpochId,
    /// The view in use; and its members' ids, which are those that reports name.
    base: EpochId,
    known: BTreeSet<Id>,
    /// Those of the view in use who stay.
    pub(super) stay: BTreeMap<Slot, Id>,
    /// Whether nobody goes, and whether nobody comes.
    is_whole: bool,
    nobody_comes: bool,
    pub(super) reports: BTreeMap<Id, Report>,
    /// When each member reported last, and whose reports it had then.
    pub(super) complaints: BTreeMap<Slot, (Monotonic, Slots)>,
    decision: Option<Decision>,
    is_done: bool,
    /// What we said of it, which the coming key binds, and the primary view that it makes.
    said: Option<([u8; 32], Primary)>,
    pub(super) began: Monotonic,
    /// When it has to be over: the key scheme waits no longer, takes us to have flushed nothing, and so do we.
    pub(super) until: Monotonic,
    /// When we say our report because of what we lack, and because of what somebody else lacks.
    say_at: Option<Monotonic>,
    answer_at: Option<Monotonic>,
    /// When it was said last, and how often.
    said_at: Option<Monotonic>,
    times: u32,
}

/// The views that a report is said in and for, whose reports its author has, and the report.
pub(super) type Early = ((EpochId, EpochId), (Slots, Vec<u8>));

impl Sequencer {
    /// A view is coming.
    pub(super) fn prepare(&mut self, now: Monotonic, view: &View) {
        let (epoch, me) = (view.epoch, view.me);
        if let Some(Current { incarnations, order: Some(order), .. }) = ordering(&mut self.current, &mut self.last) {
            (self.report.held, self.report.chain) = order.fence();
            let left = order.left().filter_map(|slot| incarnations.get(slot)).map(id_of);
            self.report.leave(&left.collect());
        }
        self.report.waits = view.waits || now < self.grew + SETTLES;
        let Some(current) = &self.current else {
            return self.ready.push_back(Output::Flushed(epoch, [0; 32]));
        };
        if self.leaving.said.is_some() {
            // Who has our report knows that we leave, though our word is not in the order yet.
            self.report.leave(&current.incarnations.get(&current.me).map(id_of).into_iter().collect());
        }
        let members: BTreeSet<Incarnation> = view.members.iter().map(|it| it.id.incarnation).collect();
        let stay: BTreeMap<Slot, Id> = current
            .incarnations
            .iter()
            .filter(|(_, it)| members.contains(*it))
            .map(|(s, it)| (*s, id_of(it)))
            .collect();
        let (is_whole, nobody_comes) = (stay.len() == current.members.len(), stay.len() == members.len());
        let Some(id) = stay.get(&current.me).copied() else { return };
        let (base, ids) = (current.epoch, current.ids());
        self.prepared = Some(view.clone());
        self.judge_unheard(now);
        self.lacked += u32::from(self.flush.as_ref().is_some_and(|it| !it.is_done && it.decision.is_some()));
        if let Some(done) = self.flush.take_if(|it| it.is_done) {
            self.flushed = Some(done);
        }
        // What cannot be said is not known here either, so that all take it alike.
        let sayable = self.report.known_by(&ids);
        let reports = BTreeMap::from_iter(sayable.map(|it| (id, it)));
        let (began, say_at) = (now, Some(now));
        let until = now + limits::flush_within(members.len()).saturating_sub(MARGIN);
        let (decision, is_done, said) = (None, false, None);
        self.flush = Some(Flush {
            view: epoch,
            base,
            known: ids.into_iter().collect(),
            stay,
            is_whole,
            nobody_comes,
            reports,
            complaints: BTreeMap::new(),
            decision,
            is_done,
            said,
            began,
            until,
            say_at,
            answer_at: None,
            said_at: None,
            times: 0,
        });
        self.renew_at = Some(now + RENEW_ABANDONED + RENEW_SPREAD * me.0);
        for (slot, (of, (heard, report))) in std::mem::take(&mut self.early) {
            if let Err(why) = self.take_report(now, slot, of, (heard, &report)) {
                self.drops.count(why);
            }
        }
        self.flush_on(now);
    }

    /// A member that stays reports.
    pub(super) fn take_report(
        &mut self,
        now: Monotonic,
        slot: Slot,
        (base, view): (EpochId, EpochId),
        (heard, report): (Slots, &[u8]),
    ) -> Result<(), Dropped> {
        let Some(current) = &self.current else { return Err(Dropped::Stale) };
        let (me, known) = (current.me, current.ids());
        // Of another view it names other members.
        let Some(flush) = self.flush.as_mut().filter(|it| it.base == base && it.view == view) else {
            // It may have overtaken what prepares its view here.
            let known = self.early.get(&slot).map_or(base.counter, |((_, view), _)| view.counter.max(base.counter));
            if base != current.epoch || view.counter <= base.counter || view.counter < known {
                return Err(Dropped::Stale);
            }
            if report.len() > limits::REPORT_BYTES_MAX {
                return Err(Dropped::Malformed);
            }
            self.early.insert(slot, ((base, view), (heard, report.to_vec())));
            return Ok(());
        };
        let id = flush.stay.get(&slot).copied().ok_or(Dropped::Stale)?;
        let mut r = Reader::new(report);
        let read = Report::read(&mut r, &known).and_then(|it| r.end().map(|()| it))?;
        // A made-up number would be everybody's next one, and for good.
        if read.highest() > self.report.highest().saturating_add(limits::ORDINALS_AHEAD_MAX) {
            return Err(Dropped::Malformed);
        }
        // The same of how much of the order it holds. Who was in our last view cannot hold much more than we do.
        let is_ours = flush.is_of(&self.report, read.installed.as_ref());
        let most = match &self.report.installed {
            Some(_) if is_ours => self.report.held.saturating_add(limits::HELD_AHEAD_MAX),
            Some(_) => limits::HELD_MAX,
            None => limits::SEQUENCE_MAX,
        };
        if read.held > most {
            return Err(Dropped::Malformed);
        }
        flush.answer(now, me, &heard, &read);
        flush.complaints.insert(slot, (now, heard));
        // What it reported stands, but for what it got since.
        match flush.reports.get_mut(&id) {
            Some(known) if *known == read => return Ok(()),
            Some(known) if flush.decision.is_none() => *known = read,
            Some(known) if known.installed == read.installed => known.held = known.held.max(read.held),
            Some(_) => {}
            None => _ = flush.reports.insert(id, read),
        }
        self.flush_on(now);
        Ok(())
    }

    /// A member that stays hands on stamps.
    pub(super) fn take_fill(&mut self, now: Monotonic, slot: Slot, view: EpochId, bytes: &[u8]) -> Result<(), Dropped> {
        let Some(flush) = &self.flush else { return Err(Dropped::Stale) };
        let id = flush.stay.get(&slot).filter(|_| flush.view == view).ok_or(Dropped::Stale)?;
        let ordering = ordering(&mut self.current, &mut self.last).ok_or(Dropped::Stale)?;
        let (epoch, me) = (ordering.epoch, ordering.me);
        let (Some(decision), Some(order)) = (&flush.decision, &mut ordering.order) else { return Err(Dropped::Stale) };
        let Some(Ok(Frame::Stamps { first, stamps })) = Frames::of(bytes).next() else {
            return Err(Dropped::Malformed);
        };
        let end = first.checked_add(stamps.len() as u64).ok_or(Dropped::Malformed)?;
        if end > decision.cut.saturating_add(1)
            || flush.reports.get(id).is_none_or(|it| it.held.saturating_add(1) < end)
        {
            return Err(Dropped::Policy);
        }
        if end <= order.last() + 1 {
            return Err(Dropped::Replay);
        }
        let stamped = order.take_filled(first, &stamps)?;
        self.take_stamped(now, epoch, me, stamped)?;
        self.flush_on(now);
        Ok(())
    }

    /// Where the records of stamps are: what is missing is asked for.
    pub(super) fn take_stamped(
        &mut self,
        now: Monotonic,
        epoch: EpochId,
        me: Slot,
        stamped: Vec<(Stamp, Stamped)>,
    ) -> Result<(), Dropped> {
        for (Stamp { slot, number, .. }, record) in stamped {
            let of = Of { slot, stream: Stream::ORDERED };
            let who = self.view(epoch).and_then(|it| it.incarnations.get(&slot).copied());
            let who = who.ok_or(Dropped::Malformed)?;
            match record {
                Stamped::Here => {}
                Stamped::Unread => self.pass_over(now, epoch, slot, number)?,
                Stamped::Missing { .. } if slot == me => self.fill_own(now, of, number),
                Stamped::Missing { refuse } => {
                    if refuse {
                        self.incoming.refuse(now, me, epoch, of, number);
                    }
                    self.incoming.expect(now, me, epoch, who, of, number);
                }
            }
        }
        Ok(())
    }

    /// Does what can be done of a flush.
    pub(super) fn flush_on(&mut self, now: Monotonic) {
        let is_open = |it: &&mut Flush| !it.is_done && now < it.until;
        let Some(flush) = self.flush.as_mut().filter(is_open) else { return };
        if flush.reports.len() < flush.stay.len() {
            return;
        }
        let (reports, is_whole) = (&flush.reports, flush.is_whole);
        let decision = flush.decision.get_or_insert_with(|| decide(reports, is_whole)).clone();
        let is_ours = flush.is_of(&self.report, decision.last.as_ref());
        // What is forgotten of a former view is not waited for.
        let ordering = ordering(&mut self.current, &mut self.last).and_then(|it| it.order.as_mut());
        let lacks = |order: &mut Order| !order.ends_at(decision.cut, decision.chain);
        // Who does not get it in the end goes on with a gap: one that lacks something for good holds up nobody's keys.
        let waits =
            !self.lost && (self.lacked < LACKS_MAX || now + flush.until.since(flush.began) / FILL_PART < flush.until);
        if decision.is_primary && is_ours && ordering.is_some_and(lacks) && waits {
            return;
        }
        let Some(flush) = &mut self.flush else { return };
        flush.is_done = true;
        // Whoever lacks our report asks for it.
        flush.say_at.take_if(|_| flush.times > 0);
        self.report.forget_failed(&flush.reports);
        let next = decision.next(&flush.reports, flush.view);
        let hash = decision.hash(&flush.reports);
        flush.said = Some((hash, next.clone()));
        // A newcomer learns that there is an order: without most of those who vote in it it begins no other one.
        let is_notified = !decision.is_primary && self.report.installed.is_none() && decision.voters.len() > 0;
        let last = decision.last.as_ref().filter(|_| is_notified);
        let known = last.map(|it| Primary { members: decision.voters.clone(), ..*it });
        if let Some(known) = known.filter(|it| self.report.has_capacity_for(it)) {
            self.report.attempt(known);
        }
        if decision.is_primary && self.report.has_capacity_for(&next) {
            // It may be installed elsewhere, though not here.
            self.report.attempt(next);
        }
        self.ready.push_back(Output::Flushed(flush.view, hash));
    }

    /// All who stay hold what is up to the cut, since the view after it is installed: it is delivered.
    fn deliver_rest(&mut self, now: Monotonic, decision: &Decision, is_ours: bool) {
        if let Some(order) = ordering(&mut self.current, &mut self.last).and_then(|it| it.order.as_mut())
            && is_ours
            && order.ends_at(decision.cut, decision.chain)
        {
            order.end();
            // What it comes after, of the other channel, comes in the next view if it did not yet.
            self.deliver_as(now, true);
        }
    }

    /// When something of a flush is due.
    pub(super) fn flush_due(&self) -> Option<Monotonic> {
        let flush = self.flush.as_ref()?;
        flush.say_at.into_iter().chain(flush.answer_at).min()
    }

    /// Says what is due of a flush: our report, and what others lack of the order.
    pub(super) fn say_flush(&mut self, now: Monotonic) {
        self.flush_on(now);
        if self.flush_due().is_none_or(|at| at > now) {
            return;
        }
        let Some(current) = &self.current else { return };
        let (me, protect, known) = (current.me, current.protect.clone(), current.ids());
        let order = ordering(&mut self.current, &mut self.last).and_then(|it| it.order.as_ref());
        let Some(flush) = &mut self.flush else { return };
        // Until all is said; then to those who ask.
        let pause = flush.pause(me);
        flush.times += 1;
        (flush.said_at, flush.answer_at) = (Some(now), None);
        flush.say_at = (!flush.is_done && now < flush.until).then(|| now + pause);
        let (view, heard) = (flush.view, flush.heard());
        let mut says = Vec::new();
        // As it was when the view was fenced, so that all decide from the same.
        let report = flush.stay.get(&me).and_then(|id| flush.reports.get(id)).cloned();
        if let Some(mut report) = report {
            (report.held, report.chain) = order.map_or((report.held, report.chain), |it| (it.held(), it.chain()));
            says.extend(report.bytes(&known).map(|report| Control::Flush { view, heard, report }));
        }
        let mut records = Vec::new();
        if let (Some(decision), Some(order)) = (&flush.decision, order) {
            // What we reported at first the others have forgotten, if we got more since.
            let ours = flush.stay.get(&me).and_then(|id| flush.reports.get_mut(id));
            ours.into_iter().for_each(|it| it.held = order.held());
            let least = flush.reports.values().filter(|it| it.installed == decision.last).map(|it| it.held).min();
            let is_first = |id: &Id| flush.reports.get(id).is_some_and(|it| it.held == decision.cut);
            // One of those who have all of it: the lowest slot.
            let helper = flush.stay.iter().find(|(_, id)| is_first(id)).map(|(slot, _)| *slot);
            let mut from = least.unwrap_or(decision.cut);
            while helper == Some(me) && records.len() < FILLS_AT_ONCE {
                let Some((first, stamps, batch)) = order.after(from, decision.cut) else { break };
                let mut frame = Vec::new();
                write_stamps(first, &stamps, &mut frame);
                from = first + stamps.len() as u64 - 1;
                says.push(Control::Fill { view, stamps: frame });
                records.push(batch);
            }
        }
        let mut sender = self.multicast.lock();
        for it in says {
            // What cannot be said now is said again.
            let _ = sender.flush(now, &protect, &it.bytes());
        }
        records.into_iter().rev().for_each(|it| sender.again(it));
        drop(sender);
        self.multicast.transmit_soon();
    }

    /// A view is installed: the order that goes on in it, if one does; whether what was not delivered may be sent again; and
    /// whether the order before is over.
    pub(super) fn end_flush(&mut self, now: Monotonic, view: &View) -> (Option<Order>, bool, bool) {
        let members: BTreeSet<Incarnation> = view.members.iter().map(|it| it.id.incarnation).collect();
        // The end that all of our view said alike, and no other: the key of this view binds it.
        let is_of = |it: &Flush| it.said.as_ref().is_some_and(|(hash, _)| *hash == view.cut);
        let flush = self.flush.take_if(|it| is_of(it)).or_else(|| self.flushed.take_if(|it| is_of(it)));
        (self.lacked, self.lost) = (0, false);
        // One for a later view goes on: it is said once more, of this view.
        self.flush.take_if(|it| it.view.counter <= view.epoch.counter);
        self.flushed = None;
        let slots: Vec<Slot> = view.members.slots().map(|(slot, _)| slot).collect();
        let (mut gap, mut forced) = (false, false);
        let is_of_last = flush
            .as_ref()
            .is_some_and(|it| it.is_of(&self.report, it.decision.as_ref().and_then(|decision| decision.last.as_ref())));
        let (order, again, is_over, is_decided) =
            match flush.and_then(|it| Some((it.decision?, it.said?, it.nobody_comes))) {
                Some((decision, (_, next), nobody_comes)) if decision.is_primary => {
                    self.deliver_rest(now, &decision, is_of_last);
                    // Who was in none before comes anew; for others, what they did not deliver is past.
                    let is_ours = is_of_last || self.report.chain == decision.chain;
                    gap = self.report.installed.is_some() && (!is_ours || self.delivered < decision.cut);
                    let (first, comes) = (decision.last.is_none(), self.report.installed.is_none());
                    let had = self.next_position();
                    self.delivered = decision.cut;
                    self.states_enter(now, first, gap || comes && !first, had);
                    forced = decision.is_forced;
                    let next = Primary { epoch: view.epoch, ..next };
                    let votes = |it: &Member| next.members.named().contains(&id_of(&it.id.incarnation));
                    let left = view.members.slots().filter(|(_, it)| !votes(it)).map(|(slot, _)| slot).collect();
                    self.report.install(next, decision.cut, decision.chain);
                    self.last = None;
                    let end = (decision.cut, decision.chain);
                    let order = nobody_comes.then(|| Order::new(view.me, slots, left, end));
                    // Of messages of ours that others may have at positions that we miss, nobody knows what became.
                    (order, !gap, true, nobody_comes)
                }
                Some((decision, _, nobody_comes)) => (None, false, false, nobody_comes && !decision.is_early),
                // Before the first order nothing is delivered anywhere.
                None => (None, self.report.installed.is_none(), self.report.installed.is_none(), false),
            };
        let was = || self.current.iter().flat_map(|it| it.incarnations.values());
        if !members.is_subset(&was().copied().collect()) {
            (self.grew, self.renewals) = (now, 0);
        }
        let left = was().filter(|it| view.change == Change::Left && !members.contains(*it)).map(id_of).collect();
        self.report.meet(view.epoch, members.iter().map(id_of).collect(), &left);
        // Who came is asked, too, by another change; a first order waits until nobody came for a while.
        let begins = self.report.installed.is_none() && members.len() > 1;
        let settles = (self.grew + SETTLES).since(now);
        let pause =
            (RENEW * (1 << self.renewals.min(RENEW_DOUBLINGS))).max(if begins { settles } else { Duration::ZERO });
        let turn = if view.members.slots().next().is_some_and(|(slot, _)| slot == view.me) {
            pause
        } else {
            pause + RENEW_ABANDONED + RENEW_SPREAD * view.me.0
        };
        if is_decided {
            self.unheard.settle();
        }
        self.renewals = if is_decided { 0 } else { self.renewals.saturating_add(1) };
        self.renew_at = (!is_decided).then(|| now + turn);
        let sequencer = order.as_ref().and_then(Order::sequencer).and_then(|slot| view.member(slot).cloned());
        let term = self.report.installed.as_ref().map_or(0, |it| it.ordinal);
        // The last of the positions that the messages of a record may have.
        let bits = super::MESSAGES_PER_RECORD_BITS;
        let from = self.report.held << bits | ((1 << bits) - 1);
        let status = OrderStatus { sequencer, is_settled: is_decided, forced, gap, term, from };
        self.order_news = (status != self.order_status).then(|| status.clone());
        self.order_status = OrderStatus { forced: false, gap: false, ..status };
        (order, again, is_over)
    }

    /// Somebody reports in a view whose key we agreed to, and that we did not install: that view is the one in use, and what
    /// was prepared comes after it.
    pub(super) fn catch_up(&mut self, now: Monotonic, epoch: EpochId, control: &Control) -> Result<(), Dropped> {
        let Control::Flush { .. } = control else { return Ok(()) };
        let Some(at) = self.ahead.iter().position(|it| it.view.epoch == epoch) else { return Ok(()) };
        let Some(Ahead { view: ahead, protect, access }) = self.ahead.remove(at) else { return Ok(()) };
        let next = self.prepared.take().filter(|it| it.epoch.counter > ahead.epoch.counter);
        // What we flushed for was another one than this.
        self.flush.take_if(|it| !it.is_done || it.view.counter > ahead.epoch.counter);
        self.install(now, &ahead, Some(&protect), &access);
        self.multicast.lock().seal_ahead(&protect, &access);
        self.tell_order();
        if let Some(next) = next {
            self.prepare(now, &next);
        }
        Ok(())
    }

    /// We are about to leave. Those who stay count us no more, once that is in the order, or in a report of ours.
    pub(super) fn leave(&mut self, now: Monotonic) {
        if self.leaving.until.is_some() {
            return;
        }
        let is_heard = self.current.as_ref().is_some_and(|it| it.members.len() > 1) && self.report.installed.is_some();
        if !is_heard || self.leaving.said.is_some() {
            return self.ready.push_back(Output::Left);
        }
        self.leaving.until = Some(now + LEAVE);
        self.say_leave(now);
    }

    /// Says in the order that we leave: if the view in use ends, in that of the next one.
    pub(super) fn say_leave(&mut self, now: Monotonic) {
        let Some(current) = self.current.as_ref().filter(|_| self.leaving.until.is_some()) else { return };
        if current.members.len() == 1 {
            return self.go();
        }
        let is_open = self.leaving.said.is_none() && current.order.as_ref().is_some_and(|it| !it.is_fenced());
        let protect = is_open.then(|| current.protect.clone());
        let said = protect.map(|it| self.multicast.lock().ordered_control(now, &it, &Control::Leave.bytes()));
        if let Some(Ok(number)) = said {
            self.leaving.said = Some(number);
            self.multicast.transmit_soon();
        }
    }

    /// Nothing comes of our last word any more, or all came: we may go.
    pub(super) fn go(&mut self) {
        if self.leaving.until.take().is_some() {
            self.ready.push_back(Output::Left);
        }
    }

    /// Asks for another change, if this view did not decide.
    pub(super) fn renew(&mut self, now: Monotonic) {
        if self.renew_at.is_some_and(|at| at <= now) {
            self.renewals += 1;
            self.renew_at = Some(now + RENEW_ABANDONED * (1 << self.renewals.min(ABANDONED_DOUBLINGS)));
            self.ready.push_back(Output::Renew);
        }
    }
}

impl Flush {
    /// The slots of those who stay and reported.
    fn heard(&self) -> Slots {
        self.stay.iter().filter(|(_, id)| self.reports.contains_key(*id)).map(|(slot, _)| *slot).collect()
    }

    /// Whether this is the last primary view that we were in, by our own report.
    fn is_of(&self, ours: &Report, installed: Option<&Primary>) -> bool {
        installed.is_some_and(|it| ours.installed.as_ref().is_some_and(|ours| ours.known_by(&self.known) == *it))
    }

    /// Whether it is under way, and began in another view than this one.
    pub(super) fn is_of_former(&self, base: EpochId, now: Monotonic) -> bool {
        self.base != base && now < self.until
    }

    /// How long after we said our report we say it again if we still lack something: those who do so at once take turns.
    fn pause(&self, me: Slot) -> Duration {
        let rank = self.stay.range(..me).count() as u32;
        SAY_AGAIN * (1 << self.times.min(SAY_DOUBLINGS)) + SAY_SPREAD * rank
    }

    /// Somebody reports, and has these slots' reports: whether that is for us to answer, and whether it spares us to ask.
    fn answer(&mut self, now: Monotonic, me: Slot, heard: &Slots, report: &Report) {
        let lacks_ours = !heard.holds(me);
        let behind = self.decision.as_ref().is_some_and(|it| it.last == report.installed && report.held < it.cut);
        // It may have said so before ours came to it.
        let crosses = self.said_at.is_none_or(|at| now < at + CROSSING);
        if behind || lacks_ours && !crosses {
            let at = self.said_at.map_or(now, |at| (at + SAY_AGAIN).max(now));
            self.answer_at.get_or_insert(at);
        }
        let lacking = || self.stay.iter().filter(|(_, id)| !self.reports.contains_key(*id));
        if lacking().next().is_some() && lacking().all(|(slot, _)| !heard.holds(*slot)) && !crosses {
            let pause = self.pause(me);
            self.say_at = self.say_at.map(|at| at.max(now + pause));
        }
    }
}

impl Current {
    /// Of its members, by slot.
    fn ids(&self) -> Vec<Id> {
        self.incarnations.values().map(id_of).collect()
    }

    /// The member that stamps, if this view orders.
    pub(super) fn sequencer(&self) -> Option<Slot> {
        self.order.as_ref().and_then(Order::sequencer)
    }
}

/// So many attempts at a next view may fail since a member lacks some of the order.
const LACKS_MAX: u32 = 4;
/// In one after them it waits but for the last part of the time, so manieth: by then the others have reported.
const FILL_PART: u32 = 3;
/// How long a member that leaves waits until that is in the order.
const LEAVE: Duration = Duration::from_millis(200);
/// How long after a report it is said again.
const SAY_AGAIN: Duration = Duration::from_millis(4);
/// So often that doubles.
const SAY_DOUBLINGS: u32 = 2;
/// From one who stays to the next.
const SAY_SPREAD: Duration = Duration::from_micros(100);
/// Two reports that leave within this time may cross.
const CROSSING: Duration = Duration::from_millis(2);
/// So much sooner than the key scheme's wait is over ([`limits::flush_within`]), a flush has to be.
const MARGIN: Duration = Duration::from_millis(10);
/// Frames of stamps, each with its records, that are handed on at once.
const FILLS_AT_ONCE: usize = 8;
/// When the lowest slot asks for a change of a view that did not decide.
const RENEW: Duration = Duration::from_millis(2);
/// So often that doubles.
const RENEW_DOUBLINGS: u32 = 11;
/// When a change is taken to have come to nothing, and the lowest slot to be silent.
const RENEW_ABANDONED: Duration = Duration::from_millis(500);
/// So often that doubles, to 8 s.
const ABANDONED_DOUBLINGS: u32 = 4;
/// Before a first order nobody has come for so long: members elsewhere who have one show themselves meanwhile.
const SETTLES: Duration = Duration::from_millis(250);
/// From one slot to the next.
const RENEW_SPREAD: Duration = Duration::from_millis(100);
