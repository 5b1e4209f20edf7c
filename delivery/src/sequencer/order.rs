//! One order of all members' records in a view: what the sequencer stamped, what of it is here, and how far it goes.
//!
//! ```text
//! record ─▶ kept ─┐
//!                 ├─▶ held ── ACK ──▶ sequencer ── STABLE ─▶ delivered once a majority holds it, or all (safe)
//! STAMPS ─▶ stamp ┘
//! ```
//! Stamps name sealed records (B8): who lacks a topic's key holds its records too, and tells them by their hashes. A record
//! that is here without its stamp is not held, and a stamp without its record neither (B2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sealcast_crypto::hash::Transcript;
use sealcast_wire::{Dropped, Monotonic, Slot, limits};

use super::buffers::Buffers;
use crate::Batch;
use crate::multicast::frame::{STAMPS_MAX, Stamp};

/// See the module. Of one view.
#[derive(Debug)]
pub(super) struct Order {
    me: Slot,
    /// Ascending; the first one is the sequencer.
    members: Vec<Slot>,
    /// The sequence number of the first of `stamps`: all members hold what comes before, and it was delivered here.
    first: u64,
    stamps: VecDeque<Stamp>,
    /// By sender: the last of its records that is stamped.
    stamped: BTreeMap<Slot, u64>,
    /// Stamped records that are not here, by sender and number.
    wanted: BTreeMap<(Slot, u64), [u8; 16]>,
    /// Records that are here, from the first one that is stamped and not held by all.
    kept: BTreeMap<(Slot, u64), Kept>,
    bytes: usize,
    buffers: Buffers,
    /// Datagrams that we cannot open, before their stamps tell whether they are what they say.
    unread: BTreeMap<(Slot, u64), Vec<u8>>,
    unread_bytes: usize,
    /// What datagrams that are not here yet are, by their senders' word, if we cannot open them.
    named: BTreeMap<(Slot, u64), [u8; 16]>,
    /// So much of the order is here.
    held: u64,
    /// Hash of those stamps.
    chain: [u8; 32],
    /// The view ends: no more than this is held any more.
    fence: Option<u64>,
    /// Whose word that they leave is among what is here of the order, and its sequence number: they hold nothing after it.
    left: BTreeMap<Slot, u64>,
    /// All who stay hold that much, and deliver it.
    ends: bool,
    delivered: u64,
    /// So much of it a majority holds, and all members.
    stable: (u64, u64),
    /// When we say again how much is here, unless we hear how much a majority holds; and how often we did.
    again_at: Option<Monotonic>,
    tries: u32,
    sequencing: Sequencing,
}

/// What the sequencer alone knows, and what is asked for in vain.
#[derive(Debug, Default)]
struct Sequencing {
    /// So many stamps were said.
    said: u64,
    /// All members hold as much as there was when the view began.
    base: u64,
    /// By member: so much of the order it holds.
    held: BTreeMap<Slot, u64>,
    /// Whether records wait for stamps, since too much is stamped.
    waits: bool,
    /// When another member's records were sent again last.
    repaired: Option<Monotonic>,
    /// Whether somebody missed how much a majority holds.
    is_missed: bool,
    /// By sender: the first of its records that somebody asks for, and how often.
    asked: BTreeMap<Slot, (u64, u32)>,
    /// The last stamps of records of ours, ascending, and the last record of that stream that came before theirs.
    proved: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Kept {
    hash: [u8; 16],
    safe: bool,
    /// Its sender says in it that it leaves.
    leaves: bool,
    datagram: Vec<u8>,
}

impl Kept {
    fn cost(&self) -> usize {
        self.datagram.len() + KEPT_OVERHEAD
    }
}

/// What a stamp says of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamped {
    /// It is here.
    Here,
    /// It is not here, or another one under its number is.
    Missing {
        /// The one that is here has to go.
        refuse: bool,
    },
    /// It is here as a datagram that we cannot open.
    Unread,
}

impl Order {
    /// Nothing is stamped after this sequence number, up to which stamps have that hash; some members `left` by their own word,
    /// and are there still.
    pub(super) fn new(me: Slot, members: Vec<Slot>, left: BTreeSet<Slot>, (last, chain): (u64, [u8; 32])) -> Order {
        let sequencing = Sequencing { said: last, base: last, ..Sequencing::default() };
        Order {
            me,
            members,
            first: last.saturating_add(1),
            stamps: VecDeque::new(),
            stamped: BTreeMap::new(),
            wanted: BTreeMap::new(),
            kept: BTreeMap::new(),
            bytes: 0,
            buffers: Buffers::default(),
            unread: BTreeMap::new(),
            unread_bytes: 0,
            named: BTreeMap::new(),
            held: last,
            chain,
            fence: None,
            left: left.into_iter().map(|slot| (slot, last)).collect(),
            ends: false,
            delivered: last,
            stable: (last, last),
            again_at: None,
            tries: 0,
            sequencing,
        }
    }

    /// The member of the lowest slot.
    pub(super) fn sequencer(&self) -> Option<Slot> {
        self.members.first().copied()
    }

    /// Ascending.
    pub(super) fn members(&self) -> &[Slot] {
        &self.members
    }

    fn is_sequencer(&self) -> bool {
        self.sequencer() == Some(self.me)
    }

    /// So much is stamped, as far as we know.
    pub(super) fn last(&self) -> u64 {
        self.first + self.stamps.len() as u64 - 1
    }

    /// All members hold what comes before this sequence number, and it is forgotten.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The sequencer: whether records of a sender are asked for that are stamped and forgotten.
    pub(super) fn is_past(&self, slot: Slot, ranges: &[(u64, u64)]) -> bool {
        let stamped = self.stamped.get(&slot).copied().unwrap_or(0);
        let is_gone = |from: u64| from <= stamped && !self.kept.contains_key(&(slot, from));
        self.is_sequencer() && ranges.iter().any(|(from, _)| is_gone(*from))
    }

    /// So much is here.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Whose word that they leave is among that.
    pub(super) fn left(&self) -> impl Iterator<Item = &Slot> {
        self.left.keys()
    }

    /// Hash of those stamps.
    pub(super) fn chain(&self) -> [u8; 32] {
        self.chain
    }

    /// Whether all members hold all that is stamped.
    pub(super) fn is_settled(&self) -> bool {
        self.stable.1 >= self.last()
    }

    /// Whether a record that came is one to take in: none is here under its number, its stamp does not name another one, and
    /// there is room.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn judge(&self, slot: Slot, number: u64, datagram: &[u8]) -> Result<(), Dropped> {
        let is_over = || number <= self.stamped.get(&slot).copied().unwrap_or(0);
        // At the end of a view nothing comes that has no position yet.
        if self.fence.is_some() && !self.wanted.contains_key(&(slot, number)) {
            return Err(Dropped::Stale);
        }
        match self.wanted.get(&(slot, number)) {
            Some(hash) if *hash != Stamp::hash_of(datagram) => Err(Dropped::Auth),
            None if is_over() || self.kept.contains_key(&(slot, number)) => Err(Dropped::Replay),
            // What is stamped is never refused: all wait for it.
            None if self.bytes + datagram.len() + KEPT_OVERHEAD > limits::ORDERED_KEPT_BYTES_MAX => Err(Dropped::Queue),
            _ => Ok(()),
        }
    }

    /// Keeps a record that [`Order::judge`] lets in.
    pub(super) fn keep(&mut self, slot: Slot, number: u64, (safe, leaves): (bool, bool), datagram: &[u8]) {
        self.wanted.remove(&(slot, number));
        self.forget_name((slot, number));
        let kept = Kept { hash: Stamp::hash_of(datagram), safe, leaves, datagram: self.buffers.copy(datagram) };
        self.bytes += kept.cost();
        if let Some(before) = self.kept.insert((slot, number), kept) {
            self.bytes -= before.cost();
        }
        self.hold();
    }

    /// Whether a stamp names this datagram, which is not here.
    pub(super) fn is_stamped(&self, slot: Slot, number: u64, datagram: &[u8]) -> bool {
        self.wanted.get(&(slot, number)).is_some_and(|hash| *hash == Stamp::hash_of(datagram))
    }

    /// A datagram that we cannot open: whether a stamp says that it is what it seems, or its sender, so that it is to be kept.
    /// Others may be anybody's, and wait for that in little room.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn is_named(&mut self, slot: Slot, number: u64, datagram: &[u8]) -> Result<bool, Dropped> {
        self.judge(slot, number, datagram)?;
        let named = self.named.get(&(slot, number));
        if self.wanted.contains_key(&(slot, number)) || named == Some(&Stamp::hash_of(datagram)) {
            return Ok(true);
        }
        if named.is_some() {
            return Err(Dropped::Auth);
        }
        if number > self.stamped.get(&slot).copied().unwrap_or(0) + limits::RELIABLE_AHEAD_MAX {
            return Err(Dropped::Queue);
        }
        if self.unread_bytes + datagram.len() > limits::ORDERED_UNREAD_BYTES_MAX {
            return Err(Dropped::Queue);
        }
        self.unread_bytes += datagram.len();
        if let Some(before) = self.unread.insert((slot, number), datagram.to_vec()) {
            self.unread_bytes -= before.len();
        }
        Ok(false)
    }

    /// A sender says what a record of its own is; that one, if it is here, cannot be opened, and is to be kept.
    pub(super) fn name(&mut self, slot: Slot, number: u64, hash: [u8; 16]) -> Option<Vec<u8>> {
        let key = (slot, number);
        let is_stamped = number <= self.stamped.get(&slot).copied().unwrap_or(0);
        if self.fence.is_some() || is_stamped || self.kept.contains_key(&key) {
            return None;
        }
        let unread = self.unread.remove(&key);
        self.unread_bytes -= unread.as_ref().map_or(0, Vec::len);
        self.bytes += if self.named.insert(key, hash).is_none() { KEPT_OVERHEAD } else { 0 };
        unread.filter(|it| Stamp::hash_of(it) == hash)
    }

    fn forget_name(&mut self, key: (Slot, u64)) {
        self.bytes -= if self.named.remove(&key).is_some() { KEPT_OVERHEAD } else { 0 };
    }

    /// The sequencer: the next records of a sender have their positions, up to this one.
    pub(super) fn stamp(&mut self, slot: Slot, to: u64) {
        if !self.is_sequencer() || self.fence.is_some() {
            return;
        }
        let from = self.stamped.get(&slot).copied().unwrap_or(0) + 1;
        for number in from..=to {
            let Some(kept) = self.kept.get(&(slot, number)) else { break };
            let is_full = self.stamps.len() >= limits::STAMPS_AHEAD_MAX / 2;
            let is_over = self.last() >= limits::SEQUENCE_MAX;
            if is_full || is_over || self.last() >= self.delivered + limits::RELIABLE_AHEAD_MAX {
                self.sequencing.waits = true;
                break;
            }
            self.stamps.push_back(Stamp { slot, number, safe: kept.safe, hash: kept.hash });
            self.stamped.insert(slot, number);
        }
        self.hold();
    }

    /// The sequencer: whether records waited for stamps; they are to be stamped now.
    pub(super) fn take_waiting(&mut self) -> bool {
        let has_capacity = self.stamps.len() < limits::STAMPS_AHEAD_MAX / 4;
        has_capacity && std::mem::take(&mut self.sequencing.waits)
    }

    /// The sequencer: stamps that were not said yet, so many at most.
    pub(super) fn unsaid(&self, most: usize) -> Option<(u64, Vec<Stamp>)> {
        let first = self.sequencing.said.max(self.first - 1) + 1;
        let stamps = self.stamps.iter().skip((first - self.first) as usize).take(most);
        let stamps: Vec<Stamp> = stamps.copied().collect();
        (self.is_sequencer() && !stamps.is_empty()).then_some((first, stamps))
    }

    /// How many stamps are to be said.
    pub(super) fn unsaid_len(&self) -> usize {
        let said = self.sequencing.said.max(self.first - 1) + 1 - self.first;
        if self.is_sequencer() { self.stamps.len().saturating_sub(said as usize) } else { 0 }
    }

    /// They are said, in a record after this one.
    pub(super) fn said(&mut self, count: usize, after: u64) {
        self.sequencing.said = self.sequencing.said.max(self.first - 1) + count as u64;
        self.sequencing.proved.push_back((self.sequencing.said, after));
    }

    /// The sequencer: the last record of stamps that nobody needs any more. Who holds what later ones say has it.
    pub(super) fn take_proved(&mut self) -> Option<u64> {
        let mut proved = None;
        while let Some((_, after)) = self.sequencing.proved.pop_front_if(|(last, _)| *last < self.first) {
            proved = Some(after);
        }
        proved.filter(|it| *it > 0)
    }

    /// What the sequencer says of the order. Returns where its records are, in that order.
    ///
    /// # Errors
    /// Malformed, if it does not go on from what was said before, in each sender's order: nothing of it counts then.
    pub(super) fn take_stamps(&mut self, first: u64, stamps: &[Stamp]) -> Result<Vec<(Stamp, Stamped)>, Dropped> {
        let mut next = BTreeMap::new();
        let mut goes_on = |it: &Stamp| {
            let last = next.entry(it.slot).or_insert_with(|| self.stamped.get(&it.slot).copied().unwrap_or(0));
            *last = last.saturating_add(1);
            *last == it.number && self.members.binary_search(&it.slot).is_ok()
        };
        if self.fence.is_some() {
            return Err(Dropped::Stale);
        }
        if self.is_sequencer() || first != self.last() + 1 || !stamps.iter().all(&mut goes_on) {
            return Err(Dropped::Malformed);
        }
        self.append(stamps)
    }

    /// Takes in stamps that go on from what is here.
    fn append(&mut self, stamps: &[Stamp]) -> Result<Vec<(Stamp, Stamped)>, Dropped> {
        if self.stamps.len() + stamps.len() > limits::STAMPS_AHEAD_MAX {
            return Err(Dropped::Queue);
        }
        let mut stamped = Vec::new();
        for stamp in stamps {
            let key = (stamp.slot, stamp.number);
            let unread = self.unread.remove(&key);
            self.unread_bytes -= unread.as_ref().map_or(0, Vec::len);
            self.forget_name(key);
            let record = match (self.kept.get(&key), unread) {
                (Some(kept), _) if kept.hash == stamp.hash => Stamped::Here,
                (None, Some(datagram)) if Stamp::hash_of(&datagram) == stamp.hash => {
                    self.keep(stamp.slot, stamp.number, (stamp.safe, false), &datagram);
                    Stamped::Unread
                }
                (kept, _) => {
                    let refuse = kept.is_some();
                    self.bytes -= self.kept.remove(&key).map_or(0, |it| it.cost());
                    self.wanted.insert(key, stamp.hash);
                    Stamped::Missing { refuse }
                }
            };
            self.stamps.push_back(*stamp);
            self.stamped.insert(stamp.slot, stamp.number);
            stamped.push((*stamp, record));
        }
        self.hold();
        Ok(stamped)
    }

    /// Counts what is here of the order.
    fn hold(&mut self) {
        while let Some(stamp) = self.stamps.get((self.held + 1 - self.first) as usize)
            && let Some(kept) = self.kept.get(&(stamp.slot, stamp.number))
            && self.fence.is_none_or(|fence| self.held < fence)
            // Who has said that it leaves counts for nothing that comes after that, as it votes for nothing. At the end of a
            // view all who are there hold the same.
            && (!self.left.contains_key(&self.me) || self.fence.is_some())
        {
            self.held += 1;
            self.tries = 0;
            if kept.leaves {
                self.left.entry(stamp.slot).or_insert(self.held);
            }
            let t = Transcript::new("sealcast/v1/stamps").add(&self.chain).add(&stamp.slot.to_bytes());
            self.chain = t.add(&stamp.number.to_be_bytes()).add(&stamp.hash).finish();
        }
        if self.is_sequencer() {
            self.sequencing.held.insert(self.me, self.held);
        }
    }

    /// We say now how much is here; it is said again if no answer comes.
    pub(super) fn says_held(&mut self, now: Monotonic) -> Option<u64> {
        let is_open = self.stable.1 < self.held && !self.is_sequencer() && self.fence.is_none();
        let pause = (HELD_AGAIN * (1 << self.tries.min(5))).min(HELD_AGAIN_MAX);
        self.again_at = is_open.then(|| now + pause);
        self.tries += 1;
        is_open.then_some(self.held)
    }

    /// When that is.
    pub(super) fn again_at(&self) -> Option<Monotonic> {
        self.again_at
    }

    /// The sequencer: a member holds so much. `None` if that is nothing to tell, else whether a message waits for it.
    ///
    /// # Errors
    /// Malformed, if there is not so much.
    pub(super) fn note(&mut self, by: Slot, held: u64) -> Result<Option<bool>, Dropped> {
        if held > self.sequencing.said || self.members.binary_search(&by).is_err() {
            return Err(Dropped::Malformed);
        }
        // Who goes on saying so after its word that it leaves counts in no majority.
        let held = self.left.get(&by).map_or(held, |until| held.min(*until));
        let before = self.sequencing.held.entry(by).or_default();
        // It says what it said before: it did not hear how much a majority holds.
        let is_missed = held <= *before && held <= self.stable.0;
        *before = held.max(*before);
        self.sequencing.is_missed |= is_missed;
        let (majority, all) = self.reached();
        // What comes after a safe one waits with it.
        let next = self.stamps.get((self.delivered + 1).saturating_sub(self.first) as usize);
        let waits = is_missed || majority != self.stable.0 || all != self.stable.1 && next.is_some_and(|it| it.safe);
        Ok((waits || all != self.stable.1).then_some(waits))
    }

    /// So much a majority holds, as far as was told.
    pub(super) fn majority(&self) -> u64 {
        self.stable.0
    }

    /// The sequencer: how much of the order each member holds.
    pub(super) fn progress(&self) -> Vec<(Slot, u64)> {
        let held = |slot: &Slot| self.sequencing.held.get(slot).copied().unwrap_or(self.sequencing.base);
        self.members.iter().map(|slot| (*slot, held(slot))).collect()
    }

    /// How many records a majority holds that not all do, as far as was told.
    pub(super) fn lag(&self) -> u64 {
        self.stable.0.saturating_sub(self.stable.1)
    }

    /// The sequencer: the member that holds the least, if that is less than most hold.
    pub(super) fn slowest(&self) -> Option<Slot> {
        let (slot, held) = self.progress().into_iter().min_by_key(|(_, held)| *held)?;
        (held < self.reached().0).then_some(slot)
    }

    /// So much a majority holds, and all: ⌊n ÷ 2⌋ + 1 of them (B2).
    fn reached(&self) -> (u64, u64) {
        let mut held: Vec<u64> = self.progress().into_iter().map(|(_, held)| held).collect();
        held.sort_unstable_by(|a, b| b.cmp(a));
        (held[self.members.len() / 2], held[self.members.len() - 1])
    }

    /// The sequencer: how much a majority holds, and all, if somebody does not know.
    pub(super) fn news(&mut self) -> Option<(u64, u64)> {
        if !self.is_sequencer() {
            return None;
        }
        let reached = self.reached();
        let is_news = reached != self.stable || std::mem::take(&mut self.sequencing.is_missed);
        self.stable = reached;
        is_news.then_some(reached)
    }

    /// The sequencer says how much a majority holds, and all.
    pub(super) fn reaches(&mut self, majority: u64, all: u64) {
        let (before, all_before) = self.stable;
        // What is not here not all hold, though somebody says so.
        self.stable = (majority.min(self.last()).max(before), all.min(self.held).max(all_before));
        if self.stable.1 >= self.held {
            (self.again_at, self.tries) = (None, 0);
        }
    }

    /// What is to be delivered next, if it is: its sequence number, and which record that is.
    pub(super) fn next(&self) -> Option<(u64, Stamp)> {
        let next = self.delivered + 1;
        let stamp = self.stamps.get((next - self.first) as usize)?;
        let (majority, all) = self.stable;
        let is_due = next <= self.held && (self.ends || next <= if stamp.safe { all } else { majority });
        is_due.then_some((next, *stamp))
    }

    /// It is delivered.
    pub(super) fn delivered(&mut self) {
        self.delivered += 1;
    }

    /// What is delivered and held by all is forgotten; returns the last such record of each sender.
    pub(super) fn forget(&mut self) -> BTreeMap<Slot, u64> {
        let mut forgotten = BTreeMap::new();
        while self.first <= self.delivered.min(self.stable.1)
            && let Some(stamp) = self.stamps.pop_front()
        {
            self.first += 1;
            if let Some(kept) = self.kept.remove(&(stamp.slot, stamp.number)) {
                self.bytes -= kept.cost();
                self.buffers.give(kept.datagram);
            }
            forgotten.insert(stamp.slot, stamp.number);
        }
        forgotten
    }

    /// Somebody asks for records of another member; those, if that one does not answer. The sequencer does so first, and then
    /// the others that hold them, one after another.
    pub(super) fn repair(&mut self, now: Monotonic, slot: Slot, ranges: &[(u64, u64)]) -> Batch {
        let mut repairs = Batch::default();
        let is_known = self.members.binary_search(&slot).is_ok();
        let Some((first, _)) = ranges.first().copied().filter(|_| is_known) else { return repairs };
        let turn = self.members.iter().position(|it| *it == self.me).unwrap_or(0).min(limits::REPAIR_TURNS_MAX) as u32;
        let (asked, times) = self.sequencing.asked.entry(slot).or_default();
        *times = if *asked == first { *times + 1 } else { 1 };
        *asked = first;
        let lately = self.sequencing.repaired.is_some_and(|at| now < at + HELPED_AGAIN);
        if *times < ASKED_IN_VAIN * (turn + 1) || lately {
            return repairs;
        }
        self.sequencing.repaired = Some(now);
        *times = 0;
        for (from, to) in ranges {
            let range = self.kept.range((slot, *from)..=(slot, *to));
            for (_, kept) in range.take(limits::REPAIRS_MAX - repairs.lengths.len()) {
                repairs.push(&kept.datagram);
            }
        }
        repairs
    }

    /// The view ends: we hold so much of its order, and from now on no more, nor say that we do (B3). Also the hash of those
    /// stamps.
    pub(super) fn fence(&mut self) -> (u64, [u8; 32]) {
        self.fence.get_or_insert(self.held);
        self.again_at = None;
        (self.held, self.chain)
    }

    /// Whether it ends.
    pub(super) fn is_fenced(&self) -> bool {
        self.fence.is_some()
    }

    /// All who stay hold so much of the order, or get it: it is the last that is delivered in this view. Whether all of it is
    /// here.
    pub(super) fn ends_at(&mut self, last: u64, chain: [u8; 32]) -> bool {
        self.fence = Some(last.max(self.held));
        self.hold();
        self.held == last && self.chain == chain
    }

    /// All who stay hold all of it.
    pub(super) fn end(&mut self) {
        self.ends = true;
    }

    /// Stamps that another one who stays hands on, those after what is here; where their records are.
    ///
    /// # Errors
    /// Malformed, if they do not go on from what is here.
    pub(super) fn take_filled(&mut self, first: u64, stamps: &[Stamp]) -> Result<Vec<(Stamp, Stamped)>, Dropped> {
        let known = (self.last() + 1).checked_sub(first).ok_or(Dropped::Malformed)? as usize;
        let new = stamps.get(known..).unwrap_or_default();
        if self.fence.is_none() || new.iter().any(|it| self.members.binary_search(&it.slot).is_err()) {
            return Err(Dropped::Malformed);
        }
        self.append(new)
    }

    /// Stamps after this one, as many as one frame takes, and their records as they were sealed.
    pub(super) fn after(&self, held: u64, to: u64) -> Option<(u64, Vec<Stamp>, Batch)> {
        let first = held.max(self.first - 1).saturating_add(1);
        let count = to.saturating_add(1).saturating_sub(first).min(FILLED_MAX) as usize;
        let stamps: Vec<Stamp> = self.stamps.iter().skip((first - self.first) as usize).take(count).copied().collect();
        let mut records = Batch::default();
        for stamp in &stamps {
            records.push(&self.kept.get(&(stamp.slot, stamp.number))?.datagram);
        }
        (!stamps.is_empty()).then_some((first, stamps, records))
    }

    /// Senders whose records somebody asks for.
    #[cfg(test)]
    pub(super) fn asked_for(&self) -> usize {
        self.sequencing.asked.len()
    }

    /// Bytes held.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.unread_bytes
    }
}

/// Stamps that are handed on in one frame: less than the sequencer says in one, since more stands beside them.
const FILLED_MAX: u64 = STAMPS_MAX as u64 - 2;
/// What a kept record costs besides its bytes.
const KEPT_OVERHEAD: usize = 160;
/// How long after a member said how much it holds it says so again, unless it hears how much a majority does.
const HELD_AGAIN: Duration = Duration::from_millis(10);
/// The same after several tries.
const HELD_AGAIN_MAX: Duration = Duration::from_millis(320);
/// For so long after it did, it does not: a member that asks without end gets little.
const HELPED_AGAIN: Duration = Duration::from_millis(10);
/// So often in vain somebody asks for a sender's records until the sequencer answers, and then the next one.
const ASKED_IN_VAIN: u32 = 3;
