//! Records at their places in a way's one order: all members deliver the same ones, in that order, whatever they know when.
//!
//! ```text
//!   place:     …  e  e  e  k  e  e  k   e   e′  e   e′ …        k: the key scheme's messages, which wait for nothing
//!                          └─ excludes ─┘   │   └ void
//!                              void      the cut
//! ```
//! *The cut.* Epoch e is over at the first record of a later epoch, or, where the scheme orders its commits, at the commit
//! that leads to that epoch. What was sealed for e and comes behind the cut is void, for everybody, and whoever sealed it
//! seals it again. So there is no overlap by the clock, and nobody has to vouch (A5, B4).
//!
//! *Beside the order.* Keys may change by messages that take no position ([`KeysIn::Beside`]), as on a LAN. Members then
//! install an epoch at different times, and only the cut is the same for all: records before it open, whatever was
//! installed meanwhile. A member that excludes somebody shows its application the view where the cut is, so that nothing of
//! the excluded comes after that. Best effort goes on by the clock meanwhile, in the same group.
//!
//! *Exclusion.* Where the order has all of the scheme's messages ([`KeysIn::Messages`]), it begins earlier:
//! from the message that begins a change which excludes somebody, records of the old epoch wait. They are void
//! once the new epoch is installed, since the excluded can seal them in anybody's name; if nothing comes of the change,
//! they are as good as before. Whoever says the beginning itself lets it count from its place, too.
//!
//! *Too much.* What waits is void for nobody because it is much: the order is made to wait ([`Input::Pause`]), but for
//! messages of the key scheme, which end the waiting; a member to whom more comes all the same leaves, and says so.
//!
//! *Order of one sender.* A publisher seals for the new epoch when all that it sealed for the old one has its place, and
//! what was void goes first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealcast_delivery::{Delivery, Input, Outcome, Token};
use sealcast_keys::{Command, Exclusion, Keys};
use sealcast_wire::frame::{FLAG_SIGNED, ORDERED};
use sealcast_wire::{Change, Dropped, EpochId, Header, Monotonic, Now, Source, limits};

use super::gate::{Epoch, Pass, Publication, Queued};
use super::message::ViewEvent;
use super::ring::Heard;
use super::{Group, Output, lock};

/// How the key scheme's messages go with the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeysIn {
    /// Its commits have positions in it, and all members install an epoch at the same one.
    Commits,
    /// All of its messages have positions, because the transport orders everything.
    Messages,
    /// None has: keys change beside the order.
    Beside,
}

/// See the module.
pub(super) struct OrderedRecords {
    pub(super) keys: KeysIn,
    /// In the order of their places; the first one waits for something, or is about to be passed.
    waiting: VecDeque<Record>,
    bytes: usize,
    /// Until when the first one waits for a key.
    until: Option<Monotonic>,
    /// Until when records of a client wait for keys that we have not got: one wait for each in an epoch, whatever epochs
    /// it names.
    key_deadlines: BTreeMap<Option<[u8; 32]>, Monotonic>,
    /// The epoch of the last record that was passed, and those before it, each with the index where it ended.
    newest: Option<EpochId>,
    over: VecDeque<(EpochId, u64)>,
    /// Clients whose records were opened since somebody was excluded last.
    insiders: BTreeSet<[u8; 32]>,
    /// Those before them, who were left out for nothing but their silence, if they were.
    former: BTreeSet<[u8; 32]>,
    /// Those of either who spoke in an epoch of which we have no key, before anything of ours ended the old one: they go on
    /// without us, until something of theirs opens here.
    apart: BTreeSet<Option<[u8; 32]>>,
    /// Messages of ours that have not come back, to be sealed again if they are void.
    pub(super) ours: BTreeMap<Token, Ours>,
    /// Void ones that are to be sealed again.
    void: Vec<Ours>,
    /// Publishers wait until all of [`OrderedRecords::ours`] have come back.
    opening: bool,
    /// Installed views that exclude somebody, and those behind them, until the order passes their cut, or that time.
    views: VecDeque<(EpochId, Monotonic, ViewEvent)>,
    /// What the key scheme does now follows from a message at its place.
    pub(super) by_order: bool,
    /// It began to exclude somebody by itself, and has not said so yet.
    pub(super) begins: bool,
    /// It said so in this message, from whose place that counts.
    barrier: Option<Token>,
    /// Something may be passed now that could not before.
    again: bool,
    /// What was sealed for this epoch, up to this position, a run before delivered.
    pub(super) delivered_before: Option<(EpochId, u64)>,
    /// The last position that was passed, until the key scheme knows.
    passed: Option<u64>,
}

/// A message of ours under way.
pub(super) struct Ours {
    /// What the application knows it by.
    pub(super) first: Token,
    pub(super) message: Queued,
    pub(super) tries: u32,
}

/// A sealed datagram at its place.
pub(super) struct Record {
    pub(super) index: u64,
    pub(super) from: Source,
    pub(super) ours: Option<Token>,
    pub(super) datagram: Vec<u8>,
}

enum Verdict {
    Open(usize, EpochId),
    /// For what comes of a change, or for a key that may still come.
    Wait {
        for_key: bool,
    },
    Void(Dropped),
}

impl OrderedRecords {
    /// Nothing has a position yet.
    pub(super) fn new(keys: KeysIn) -> OrderedRecords {
        OrderedRecords {
            keys,
            waiting: VecDeque::new(),
            bytes: 0,
            until: None,
            key_deadlines: BTreeMap::new(),
            newest: None,
            over: VecDeque::new(),
            insiders: BTreeSet::new(),
            former: BTreeSet::new(),
            apart: BTreeSet::new(),
            ours: BTreeMap::new(),
            void: Vec::new(),
            opening: false,
            views: VecDeque::new(),
            by_order: false,
            begins: false,
            barrier: None,
            again: false,
            delivered_before: None,
            passed: None,
        }
    }

    /// Whether a run before delivered it.
    fn is_delivered(&self, record: &Record) -> bool {
        let of = |it: &Header| self.delivered_before.is_some_and(|(epoch, _)| epoch == it.epoch);
        let is_before = self.delivered_before.is_some_and(|(_, until)| record.index <= until);
        is_before && record.ours.is_none() && Header::parse(&record.datagram).is_ok_and(|it| of(&it))
    }

    /// Whether all messages of ours have their place.
    pub(super) fn is_settled(&self) -> bool {
        self.ours.is_empty() && self.void.is_empty()
    }

    /// The key scheme begins to exclude somebody, by itself and not for what it heard.
    pub(super) fn begin(&mut self, has_begun: bool) {
        self.begins = self.barrier.is_none() && !has_begun;
    }

    /// The key scheme says something.
    pub(super) fn says(&mut self, token: Token) {
        if std::mem::take(&mut self.begins) {
            self.barrier = Some(token);
        }
    }

    /// When the first record has waited too long for its key.
    pub(super) fn timeout(&self) -> Option<Monotonic> {
        let shown = self.views.front().map(|(_, until, _)| *until);
        [self.until, shown].into_iter().flatten().min()
    }

    /// Whether the order is to wait: from half of what there is room for until nothing waits.
    fn is_behind(&self, holds: bool) -> bool {
        let half = self.waiting.len() >= limits::ORDERED_RECORDS_MAX / 2 || self.bytes >= limits::ORDERED_BYTES_MAX / 2;
        half || holds && !self.waiting.is_empty()
    }

    fn pop(&mut self) -> Option<Record> {
        self.until = None;
        let record = self.waiting.pop_front()?;
        self.bytes -= record.datagram.len();
        self.passed = Some(record.index);
        Some(record)
    }

    /// A record of this epoch is passed at an index; the epoch that it ends, if it does.
    fn pass(&mut self, epoch: EpochId, index: u64, from: Source) -> Option<EpochId> {
        if let Source::Client { key, .. } = from
            && self.insiders.len() < limits::KNOWN_PEOPLE_MAX
        {
            self.insiders.insert(key);
        }
        if self.keys == KeysIn::Commits {
            return None;
        }
        let old = self.newest.replace(epoch).filter(|old| *old != epoch)?;
        self.end(old, index);
        Some(old)
    }

    /// The epoch is over from this index on, unless it ended before.
    fn end(&mut self, old: EpochId, index: u64) {
        if self.over.iter().any(|(epoch, _)| *epoch == old) {
            return;
        }
        if self.over.len() >= limits::FORMER_EPOCHS_MAX {
            self.over.pop_front();
        }
        self.over.push_back((old, index));
    }

    /// Whether the epoch is over at this index.
    fn is_over(&self, epoch: EpochId, index: u64) -> bool {
        self.over.iter().any(|(old, end)| *old == epoch && *end <= index)
    }

    fn is_insider(&self, from: Source) -> bool {
        client(from).is_none_or(|key| self.insiders.contains(&key))
    }

    /// Until when a record of this sender waits for a key that we have not got.
    fn key_deadline(&self, now: Monotonic, from: Source) -> Monotonic {
        self.key_deadlines.get(&client(from)).copied().unwrap_or(now + limits::EPOCH_OVERLAP)
    }

    /// An epoch is installed: who was excluded by it is no insider any more, and everybody may be early once more.
    fn installed(&mut self, change: Change, excludes: bool) {
        self.key_deadlines.clear();
        if excludes {
            let insiders = std::mem::take(&mut self.insiders);
            // Whoever was left out for silence may say the same of us.
            if change == Change::Suspected {
                let room = limits::KNOWN_PEOPLE_MAX.saturating_sub(self.former.len());
                self.former.extend(insiders.into_iter().take(room));
            }
        }
    }

    /// A record is void since we have no key of its epoch.
    fn unknown(&mut self, from: Source, epoch: EpochId) {
        let known = |key: [u8; 32]| self.insiders.contains(&key) || self.former.contains(&key);
        let is_first = self.newest.is_none_or(|newest| epoch.counter > newest.counter);
        if is_first && client(from).is_none_or(known) {
            self.apart.insert(client(from));
        }
    }

    /// A record of somebody else opens: we are together.
    fn met(&mut self, from: Source) {
        self.apart.remove(&client(from));
        if let Some(key) = client(from) {
            self.former.remove(&key);
        }
    }
}

/// Which client of brokers sent it, if one did.
fn client(from: Source) -> Option<[u8; 32]> {
    match from {
        Source::Client { key, .. } => Some(key),
        Source::Outside(_) | Source::Inside { .. } => None,
    }
}

impl<K: Keys, D: Delivery> Group<K, D> {
    /// A record came at its place.
    pub(super) fn take_record(&mut self, now: Now, mut record: Record) {
        let Some(ordered) = &mut self.ordered else { return self.drops.count(Dropped::Foreign) };
        if ordered.is_delivered(&record) {
            // A copy of it at a later place is none of it.
            let epoch = Header::parse(&record.datagram).ok().and_then(|it| self.ring.held(it.epoch));
            let protect = epoch.and_then(|at| self.ring.epoch_at(at).protect.clone());
            if let Some((protect, index)) = protect.zip(Some(record.index))
                && let Ok((source, flags, frame)) = protect.open(&mut record.datagram)
                && let Ok(sealcast_delivery::Output::Deliver(it)) =
                    self.delivery.open_at(index, source, flags, frame, &*protect)
                && self.open_payload(sealcast_delivery::Delivered { ordered: true, ..it }).is_ok()
            {
                self.ring.mark_record(&source);
            }
            return;
        }
        let full = ordered.waiting.len() >= limits::ORDERED_RECORDS_MAX
            || ordered.bytes + record.datagram.len() > limits::ORDERED_BYTES_MAX;
        if full || self.leaving.is_some() {
            self.drops.count(Dropped::Queue);
            return self.leave_behind(now);
        }
        ordered.bytes += record.datagram.len();
        ordered.waiting.push_back(record);
        self.pass_records(now);
    }

    /// What waits comes again.
    pub(super) fn forget_records(&mut self) {
        if let Some(ordered) = &mut self.ordered {
            while ordered.pop().is_some() {}
            ordered.passed = None;
        }
    }

    /// We cannot follow the order any more: nothing is delivered from here on, and the others are told that we leave.
    pub(super) fn leave_behind(&mut self, now: Now) {
        if self.leaving.is_none() {
            self.close_gate(&Exclusion::Behind);
            self.give_up();
            self.leaving = Some(Exclusion::Behind);
            if self.command(now, Command::Leave).is_err() {
                self.exclude(now, Exclusion::Behind);
            }
        }
    }

    /// Passes records as far as they can be judged.
    pub(super) fn pass_records(&mut self, now: Now) {
        while let Some(first) = self.ordered.as_ref().and_then(|ordered| ordered.waiting.front()) {
            let (verdict, from) = (self.judge_record(now, first), first.from);
            let Some(ordered) = &mut self.ordered else { return };
            if let Verdict::Wait { for_key } = verdict {
                ordered.until = for_key.then(|| {
                    let until = ordered.key_deadline(now.monotonic, from);
                    *ordered.key_deadlines.entry(client(from)).or_insert(until)
                });
                break;
            }
            let Some(record) = ordered.pop() else { break };
            match verdict {
                Verdict::Open(at, epoch) => {
                    if self.open_record(now, at, epoch, record) {
                        // What the key scheme says to it comes first.
                        break;
                    }
                }
                Verdict::Void(why) => {
                    // Where commits are in the order, an epoch that we passed over is over for all others, too.
                    let is_passed = |epoch: EpochId| {
                        let current = self.ring.current().map(|it| it.view.epoch.counter);
                        ordered.keys == KeysIn::Commits && current.is_none_or(|counter| epoch.counter <= counter)
                    };
                    if let (Dropped::NoKey, Ok(header)) = (why, Header::parse(&record.datagram))
                        && !is_passed(header.epoch)
                    {
                        ordered.unknown(from, header.epoch);
                    }
                    self.voided(now, record, why);
                }
                Verdict::Wait { .. } => {}
            }
        }
        if let Some(position) = self.ordered.as_mut().and_then(|it| it.passed.take_if(|_| it.keys == KeysIn::Commits)) {
            self.untold = Some(position);
        }
        self.open_when_back(now);
        self.regulate(now);
    }

    /// Lets the order wait for us, or go on.
    pub(super) fn regulate(&mut self, now: Now) {
        let is_behind = match &self.ordered {
            Some(ordered) => ordered.is_behind(self.holds),
            None => {
                self.readers_wait
                    || self.opening.is_behind()
                    || !self.keys.has_capacity(limits::SEALED_WAITING_BYTES_MAX / 2)
            }
        };
        if std::mem::replace(&mut self.holds, is_behind) != is_behind {
            let input = if is_behind { Input::Pause } else { Input::Resume };
            self.delivery.handle(now, input);
        }
    }

    fn judge_record(&self, now: Now, record: &Record) -> Verdict {
        let Some(ordered) = &self.ordered else { return Verdict::Void(Dropped::Foreign) };
        let Ok(header) = Header::parse(&record.datagram) else { return Verdict::Void(Dropped::Malformed) };
        // Else it was sealed for the channel without an order, and somebody else put it here.
        if header.flags & !FLAG_SIGNED != ORDERED {
            return Verdict::Void(Dropped::Foreign);
        }
        if Header::reliable_number(header.flags, header.counter).is_none() {
            return Verdict::Void(Dropped::Malformed);
        }
        if ordered.is_over(header.epoch, record.index) {
            return Verdict::Void(Dropped::OldKey);
        }
        let status = match ordered.keys {
            KeysIn::Messages => self.ring.record_status(header.epoch),
            KeysIn::Commits | KeysIn::Beside => self.ring.held(header.epoch).map(super::ring::RecordStatus::Open),
        };
        match status {
            Some(super::ring::RecordStatus::Open(at)) => Verdict::Open(at, header.epoch),
            Some(super::ring::RecordStatus::Suspended) => Verdict::Wait { for_key: false },
            Some(super::ring::RecordStatus::Closed) => Verdict::Void(Dropped::OldKey),
            None => {
                // Everybody has the same messages of the key scheme before it; we may only be late with our own part.
                let ahead = |e: &Arc<Epoch>| e.view.members.len() == 1 || header.epoch.counter > e.view.epoch.counter;
                let ahead = self.ring.current().is_some_and(ahead);
                let young = now.monotonic < ordered.key_deadline(now.monotonic, record.from);
                if ahead && young && ordered.is_insider(record.from) {
                    Verdict::Wait { for_key: true }
                } else {
                    Verdict::Void(Dropped::NoKey)
                }
            }
        }
    }

    /// Opens a record; whether it was a message for the key scheme.
    fn open_record(&mut self, now: Now, at: usize, epoch: EpochId, record: Record) -> bool {
        let Record { index, from, ours, mut datagram } = record;
        let entry = self.ring.at(at);
        let Some(protect) = entry.epoch.protect.clone() else { return false };
        let opened = protect.open(&mut datagram);
        let by = opened.as_ref().ok().map(|(source, ..)| *source);
        let output = match opened {
            // All members judge so, who have the same records before it.
            Ok((source, ..)) if entry.has_record(&source) => Err(Dropped::Replay),
            Ok((source, flags, frame)) => {
                if let Source::Inside { slot, .. } = source {
                    let from = entry.heard.get(&slot).and_then(|it| it.from);
                    entry.heard.insert(slot, Heard { at: now.monotonic, from });
                }
                if let Some(ordered) = self.ordered.as_mut().filter(|_| ours.is_none()) {
                    ordered.met(from);
                }
                if let Some(old) = self.ordered.as_mut().and_then(|ordered| ordered.pass(epoch, index, from)) {
                    self.cut(now, old, epoch);
                }
                self.delivery.open_at(index, source, flags, frame, &*protect)
            }
            Err(why) => Err(why),
        };
        if let Some(ours) = ours.and_then(|token| self.ordered.as_mut()?.ours.remove(&token)) {
            // A copy of ours that has a place before it says the same.
            let outcome = match output {
                Ok(_) | Err(Dropped::Replay) if self.ordered.as_ref().is_some_and(|it| !it.apart.is_empty()) => {
                    Outcome::InDoubt
                }
                Ok(_) | Err(Dropped::Replay) => Outcome::Ordered(index),
                Err(_) => Outcome::Failed,
            };
            self.ready.push_back(Output::Outcome(ours.first, outcome));
        }
        let delivered = match output {
            Ok(sealcast_delivery::Output::Deliver(delivered)) => {
                self.deliver(now, sealcast_delivery::Delivered { ordered: true, ..delivered })
            }
            Ok(output) => {
                by.iter().for_each(|by| self.ring.mark_record(by));
                self.do_for_delivery(now, output);
                if let Some(ordered) = &mut self.ordered {
                    ordered.again = true;
                }
                return true;
            }
            Err(why) => Err(why),
        };
        match delivered {
            // Not before: all members have the keys of all senders, and none shall move another's window by what counts for
            // nothing.
            Ok(()) => by.iter().for_each(|by| self.ring.mark_record(by)),
            Err(why) => self.drops.count(why),
        }
        false
    }

    /// The commit at this position leads to the next epoch: what comes behind it is void, however late we are to follow it.
    pub(super) fn ends_at(&mut self, position: u64) {
        if let Some(ordered) = self.ordered.as_mut().filter(|it| it.keys == KeysIn::Commits) {
            self.ring.begun().into_iter().for_each(|epoch| ordered.end(epoch, position));
        }
    }

    /// The order has passed the end of an epoch.
    fn cut(&mut self, now: Now, old: EpochId, new: EpochId) {
        let Some(ordered) = &mut self.ordered else { return };
        match ordered.keys {
            KeysIn::Messages => self.ring.shorten(old, now.monotonic + limits::EPOCH_OVERLAP),
            KeysIn::Commits | KeysIn::Beside => self.ring.passed_in_order(old),
        }
        let mut gate = lock(&self.gate);
        if gate.epoch().is_some_and(|it| it.view.epoch == old) {
            // Others have gone on, and what we seal for it now is void.
            gate.pause_ordered();
            ordered.opening = true;
        }
        drop(gate);
        self.show_views(now, Some(new));
    }

    /// Shows the application views whose cut the order has passed, or will not soon.
    pub(super) fn show_views(&mut self, now: Now, passed: Option<EpochId>) {
        let Some(ordered) = &mut self.ordered else { return };
        let is_shown = |(epoch, until, _): &(EpochId, Monotonic, ViewEvent)| {
            *until <= now.monotonic || passed.is_some_and(|it| epoch.counter <= it.counter)
        };
        while let Some((.., event)) = ordered.views.pop_front_if(|it| is_shown(it)) {
            self.ready.push_back(Output::View(event));
        }
    }

    /// A view is installed: the application sees it now, or where the order's cut is.
    pub(super) fn show(&mut self, now: Now, epoch: EpochId, excludes: bool, event: ViewEvent) {
        let beside = self.ordered.as_mut().filter(|it| it.keys == KeysIn::Beside);
        match beside.filter(|it| excludes || !it.views.is_empty()) {
            Some(ordered) => ordered.views.push_back((epoch, now.monotonic + limits::EPOCH_OVERLAP, event)),
            None => self.ready.push_back(Output::View(event)),
        }
    }

    /// A record is void, for everybody.
    fn voided(&mut self, now: Now, record: Record, why: Dropped) {
        let ours = record.ours.and_then(|token| self.ordered.as_mut()?.ours.remove(&token));
        let beside = self.ordered.as_ref().is_some_and(|it| it.keys == KeysIn::Beside);
        match ours {
            None => self.drops.count(why),
            // Our key is erased by the clock, and others may have opened it with theirs.
            Some(ours) if beside && why == Dropped::NoKey => {
                self.ready.push_back(Output::Outcome(ours.first, Outcome::InDoubt));
                self.open_when_back(now);
            }
            Some(ours) => self.seal_later(now, ours),
        }
    }

    /// A message of ours is void: it is sealed again once all that was sealed before is back.
    fn seal_later(&mut self, now: Now, ours: Ours) {
        if let Some(ordered) = &mut self.ordered {
            ordered.void.push(ours);
            ordered.opening = true;
            lock(&self.gate).pause_ordered();
        }
        self.open_when_back(now);
    }

    /// The key scheme has said all that it has to say to what came: what waited for that goes on.
    pub(super) fn keys_are_drained(&mut self, now: Now) -> bool {
        let Some(ordered) = &mut self.ordered else { return false };
        ordered.by_order = false;
        let again = std::mem::take(&mut ordered.again);
        if again {
            self.pass_records(now);
        }
        again
    }

    /// A message of the key scheme that we sent has its place, or never will.
    pub(super) fn echoed(&mut self, token: Token) {
        let Some(ordered) = &mut self.ordered else { return };
        if ordered.barrier == Some(token) {
            ordered.barrier = None;
            self.ring.suspend(None);
        }
    }

    /// An epoch is installed: its publishers may seal, at once or when all is back that they sealed before.
    pub(super) fn open_for(&mut self, now: Now, before: Option<EpochId>, epoch: &Epoch, excludes: bool) {
        let Some(ordered) = &mut self.ordered else { return };
        ordered.installed(epoch.view.change, excludes);
        ordered.barrier = None;
        ordered.begins = false;
        if ordered.keys == KeysIn::Commits {
            ordered.newest = Some(epoch.view.epoch);
            before.into_iter().for_each(|before| ordered.end(before, 0));
            // The scheme may say next that this epoch has ended already.
            ordered.again = true;
        } else {
            self.pass_records(now);
        }
    }

    /// Publishers of an epoch that is being installed wait until all is back that they sealed before.
    pub(super) fn pause_publishers(&mut self) {
        if let Some(ordered) = &mut self.ordered {
            ordered.opening = true;
            lock(&self.gate).pause_ordered();
        }
    }

    /// The change is off: the old epoch goes on.
    pub(super) fn go_on(&mut self, now: Now) {
        if let Some(ordered) = &mut self.ordered {
            ordered.barrier = None;
            ordered.begins = false;
            self.pass_records(now);
        }
    }

    /// We are out.
    pub(super) fn give_up(&mut self) {
        let Some(ordered) = self.ordered.as_mut().map(|it| std::mem::replace(it, OrderedRecords::new(it.keys))) else {
            return;
        };
        for (.., event) in ordered.views {
            self.ready.push_back(Output::View(event));
        }
        for ours in ordered.ours.into_values() {
            self.ready.push_back(Output::Outcome(ours.first, Outcome::InDoubt));
        }
        for ours in ordered.void {
            self.ready.push_back(Output::Outcome(ours.first, Outcome::Failed));
        }
    }

    /// What became of a message of ours, other than coming back at its place.
    pub(super) fn lost(&mut self, now: Now, token: Token, outcome: Outcome) -> bool {
        let Some(ours) = self.ordered.as_mut().and_then(|ordered| ordered.ours.remove(&token)) else { return false };
        if let Outcome::Superseded(_) = outcome {
            self.seal_later(now, ours);
        } else {
            self.ready.push_back(Output::Outcome(ours.first, outcome));
            self.open_when_back(now);
        }
        true
    }

    /// Seals again what was void, and lets publishers go on.
    pub(super) fn open_when_back(&mut self, now: Now) {
        let Some(ordered) = self.ordered.as_mut().filter(|it| it.opening && it.ours.is_empty()) else { return };
        let mut gate = lock(&self.gate);
        let is_over = |it: &Arc<Epoch>| ordered.is_over(it.view.epoch, u64::MAX);
        if gate.is_paused() || gate.epoch().is_none_or(is_over) {
            return;
        }
        ordered.opening = false;
        let queued = gate.open_ordered();
        drop(gate);
        for ours in std::mem::take(&mut ordered.void) {
            self.send_again(now, ours);
        }
        self.send_queued(now, queued);
    }

    /// Seals and sends a message anew, under the epoch of now.
    pub(super) fn send_again(&mut self, now: Now, ours: Ours) {
        let Ours { first, message, tries } = ours;
        let publication = Publication {
            topic: &message.topic,
            body: &message.body,
            guarantee: message.guarantee,
            sent_micros: message.sent_micros,
        };
        let admitted = {
            let mut gate = lock(&self.gate);
            let admitted = gate.admit(&publication);
            if let Ok(Pass::Queued) = admitted {
                gate.name_queued(first);
            }
            admitted
        };
        let sent = match admitted {
            Ok(Pass::Send(epoch, route)) if tries < TRIES_MAX => {
                self.send_as(now, &epoch, route, &publication, Some((first, tries + 1))).map(drop)
            }
            Ok(Pass::Queued) => Ok(()),
            Ok(Pass::Send(..)) => Err(sealcast_delivery::SendError::Retired.into()),
            Err(why) => Err(why),
        };
        if sent.is_err() {
            self.ready.push_back(Output::Outcome(first, Outcome::Failed));
        }
    }
}

/// How often a message is sealed anew: each time the key changed while it was under way.
pub(super) const TRIES_MAX: u32 = 16;
/// How long the key of an epoch is kept whose end nobody has sealed yet: members say HERE when they install the next. Of
/// one whose successor excludes somebody it is `limits::EPOCH_OVERLAP`.
pub(super) const OPEN_END: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
