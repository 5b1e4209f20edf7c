//! The epochs whose keys are held at once, and what a datagram of each of them may do (A5).
//!
//! ```text
//! Keyed ──Epoch──▶ Current ──joined, rekeyed, merged──▶ Overlap    opened for ≤ 2 s
//!                     │ └──────left, suspected, evicted─▶ Closing   opened only if vouched for, ≤ 2 s
//!                     └ Prepare, excludes: held until the next epoch, or until it is abandoned
//! Keyed ──passed over──▶ Passed ──Epoch──▶ Overlap if all of its members are in the new one, else Closing
//! ```
//! On a channel on which a position ends epochs, the clock alone does not: a key is kept until the order has passed the
//! cut, and opens nothing else meanwhile (Kept).
//!
//! Others may have installed an epoch that we passed over: what they sealed under it is opened like that of an epoch
//! before. Until our next one it is opened only if vouched for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealcast_keys::replay::Window;
use sealcast_wire::{Address, Domain, EpochId, Header, MemberId, Monotonic, Slot, Source, View, limits};

use super::gate::Epoch;
use super::policy::Policy;
use super::vouch::{Part, Unproved, Vouched};

/// See the module. Newest last.
#[derive(Default)]
pub(super) struct Ring {
    entries: Vec<Entry>,
    /// Epochs whose keys were erased last: nothing opens them any more, however near they are.
    erased: VecDeque<EpochId>,
}

/// One epoch that we hold the key of.
pub(super) struct Entry {
    pub(super) epoch: Arc<Epoch>,
    pub(super) policy: Policy,
    phase: Phase,
    /// Until when records in an order, before the cut, may need the key.
    kept: Option<Monotonic>,
    /// By slot of this epoch: what that member vouched for, once it is in a newer epoch.
    vouched: BTreeMap<Slot, Vouched>,
    /// Which ordered records counted, by sender and domain: the same at all members that passed the same records.
    records: BTreeMap<(Slot, Domain), Window>,
    /// When a datagram of each slot was last opened; from before the epoch is installed, too.
    pub(super) heard: BTreeMap<Slot, Heard>,
}

/// What was last heard of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) at: Monotonic,
    /// Where from; `None` if it came through an order.
    pub(super) from: Option<Address>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Keyed,
    Passed { until: Monotonic },
    Current,
    Suspended,
    Overlap { until: Monotonic },
    Closing { until: Monotonic },
    Kept,
}

impl Entry {
    /// Whether this record of an order counted before.
    pub(super) fn has_record(&self, source: &Source) -> bool {
        let Source::Inside { slot, domain, counter, .. } = *source else { return false };
        self.records.get(&(slot, domain)).is_some_and(|it| !it.is_new(counter))
    }

    /// Whether another view has been installed since. Two parts of a group that meet may number their
    /// epochs alike, so that numbers do not tell.
    pub(super) fn is_superseded(&self) -> bool {
        matches!(self.phase, Phase::Overlap { .. } | Phase::Closing { .. } | Phase::Kept)
    }
}

/// What becomes of a sealed datagram.
pub(super) enum Disposition {
    /// Open it with this entry's capability.
    Open(usize),
    /// Its epoch is not known (yet).
    Unknown,
    /// Its key was erased.
    Erased,
    /// Its key is superseded and its sender has not vouched yet.
    Wait,
    /// Its key is superseded, and its sender's vouch does not name it.
    Old,
}

/// What becomes of a record at its place.
pub(super) enum RecordStatus {
    /// Open it with this entry's capability.
    Open(usize),
    /// It waits for what comes of the change.
    Suspended,
    /// It is void.
    Closed,
}

impl Ring {
    /// A record of an order counted.
    pub(super) fn mark_record(&mut self, source: &Source) {
        let Source::Inside { epoch, slot, domain, counter, .. } = *source else { return };
        if let Some(entry) = self.entries.iter_mut().find(|it| it.epoch.view.epoch == epoch) {
            entry.records.entry((slot, domain)).or_default().accept(counter);
        }
    }

    /// An agreed key, not installed yet; the oldest is forgotten beyond the limit.
    pub(super) fn keyed(&mut self, epoch: Arc<Epoch>) {
        self.hold(epoch, Phase::Keyed);
    }

    /// A key that others may have installed while we agreed on a later one.
    pub(super) fn passed(&mut self, epoch: Arc<Epoch>, until: Monotonic) {
        let phase = match self.current() {
            Some(current) if current.view.epoch.counter >= epoch.view.epoch.counter => {
                after_passing(&epoch.view, &current.view, until)
            }
            _ => Phase::Passed { until },
        };
        self.hold(epoch, phase);
    }

    /// The last key that was passed over is superseded by another one.
    pub(super) fn supersede_passed(&mut self, end: Monotonic) {
        for entry in self.entries.iter_mut().filter(|e| e.phase == Phase::Passed { until: UNTIL_NEXT }) {
            entry.phase = Phase::Passed { until: end };
        }
    }

    fn hold(&mut self, epoch: Arc<Epoch>, phase: Phase) {
        if self.position(epoch.view.epoch).is_none() {
            self.free();
            let (policy, vouched, heard, kept) = (Policy::default(), BTreeMap::new(), BTreeMap::new(), None);
            let at = self.entries.iter().position(|e| matches!(e.phase, Phase::Current | Phase::Suspended));
            let at = if phase == Phase::Keyed { self.entries.len() } else { at.unwrap_or(self.entries.len()) };
            self.entries.insert(at, Entry { epoch, policy, phase, kept, vouched, records: BTreeMap::new(), heard });
        }
    }

    /// Keys agreed and not installed open what is vouched for until then; without a time they are forgotten.
    fn pass_over(&mut self, until: Option<Monotonic>) {
        match until {
            Some(until) => {
                let keyed = self.entries.iter_mut().filter(|e| e.phase == Phase::Keyed);
                keyed.for_each(|e| e.phase = Phase::Passed { until });
            }
            None => self.entries.retain(|e| e.phase != Phase::Keyed),
        }
    }

    /// Installs a view; the epoch before it closes, at once if somebody is excluded, else after `overlap`. Keys agreed
    /// for others are forgotten, or open what was sealed with them until `passed`. An order may need the closing epoch's
    /// key until `kept`, and no earlier one's for longer if somebody is excluded.
    pub(super) fn install(
        &mut self,
        now: Monotonic,
        epoch: Arc<Epoch>,
        excludes: bool,
        overlap: Duration,
        passed: Option<Monotonic>,
        kept: Option<Monotonic>,
    ) {
        let until = now + overlap;
        let id = epoch.view.epoch;
        self.keyed(epoch.clone());
        let at = self.position(id).expect("keyed puts it in");
        let entry = self.entries.remove(at);
        self.pass_over(passed);
        for entry in &mut self.entries {
            match entry.phase {
                Phase::Current | Phase::Suspended => entry.kept = kept,
                _ if excludes => entry.kept = entry.kept.min(kept),
                Phase::Keyed | Phase::Passed { .. } | Phase::Overlap { .. } | Phase::Closing { .. } | Phase::Kept => {}
            }
            entry.phase = match entry.phase {
                Phase::Current | Phase::Suspended if excludes => Phase::Closing { until },
                Phase::Current | Phase::Suspended => Phase::Overlap { until },
                // Who was excluded may hold the keys of earlier epochs too.
                Phase::Overlap { until } if excludes => Phase::Closing { until },
                Phase::Passed { until: end } => after_passing(&entry.epoch.view, &epoch.view, end.min(until)),
                Phase::Keyed | Phase::Overlap { .. } | Phase::Closing { .. } | Phase::Kept => entry.phase,
            };
        }
        self.entries.push(Entry { phase: Phase::Current, ..entry });
    }

    /// A change that excludes somebody begins: nothing of the current epoch is opened unvouched.
    ///
    /// Nor is anything of keys agreed but not installed, which are held until `passed` or forgotten: whoever must go may
    /// have been in that agreement. Should it be installed after all, it is current all the same.
    pub(super) fn suspend(&mut self, passed: Option<Monotonic>) {
        self.pass_over(passed);
        for entry in &mut self.entries {
            match entry.phase {
                Phase::Current => entry.phase = Phase::Suspended,
                Phase::Overlap { until } => entry.phase = Phase::Closing { until },
                Phase::Keyed | Phase::Passed { .. } | Phase::Suspended | Phase::Closing { .. } | Phase::Kept => {}
            }
        }
    }

    /// The change was abandoned: the current epoch stands, keys agreed for the next are held until `passed` or forgotten.
    pub(super) fn resume(&mut self, passed: Option<Monotonic>) {
        self.pass_over(passed);
        for entry in &mut self.entries {
            if entry.phase == Phase::Suspended {
                entry.phase = Phase::Current;
            }
        }
    }

    /// What to do with a sealed datagram.
    pub(super) fn disposition(&self, header: &Header, datagram: &[u8]) -> Disposition {
        let Some(at) = self.position(header.epoch) else {
            return if self.erased.contains(&header.epoch) { Disposition::Erased } else { Disposition::Unknown };
        };
        let entry = &self.entries[at];
        match entry.phase {
            Phase::Keyed | Phase::Current | Phase::Overlap { .. } => Disposition::Open(at),
            Phase::Kept => Disposition::Erased,
            Phase::Passed { .. } | Phase::Suspended | Phase::Closing { .. } => match entry.vouched.get(&header.slot) {
                None => Disposition::Wait,
                Some(word) => match word.covers(datagram) {
                    Some(true) => Disposition::Open(at),
                    Some(false) => Disposition::Old,
                    None => Disposition::Wait,
                },
            },
        }
    }

    /// Whether a change that excludes somebody has begun.
    pub(super) fn is_suspended(&self) -> bool {
        self.entries.iter().any(|e| e.phase == Phase::Suspended)
    }

    /// What to do with a record at its place; `None` if its epoch is not known.
    pub(super) fn record_status(&self, epoch: EpochId) -> Option<RecordStatus> {
        let at = self.position(epoch)?;
        Some(match self.entries[at].phase {
            Phase::Keyed | Phase::Current | Phase::Overlap { .. } => RecordStatus::Open(at),
            Phase::Suspended => RecordStatus::Suspended,
            Phase::Passed { .. } | Phase::Closing { .. } | Phase::Kept => RecordStatus::Closed,
        })
    }

    /// The entry whose key opens a record of this epoch, whatever the clock says of it.
    pub(super) fn held(&self, epoch: EpochId) -> Option<usize> {
        self.position(epoch)
    }

    /// The epoch in use, and those that others use or used and we passed over: a member that comes back installs none of them.
    pub(super) fn begun(&self) -> Vec<EpochId> {
        let passed = self.entries.iter().filter(|it| matches!(it.phase, Phase::Passed { .. }));
        let passed = passed.map(|it| it.epoch.view.epoch);
        passed.chain(self.current().map(|it| it.view.epoch)).collect()
    }

    /// The order has passed the end of an epoch: it needs the key no more.
    pub(super) fn passed_in_order(&mut self, epoch: EpochId) {
        self.entries.iter_mut().filter(|e| e.epoch.view.epoch == epoch).for_each(|e| e.kept = None);
    }

    /// An overlap ends earlier.
    pub(super) fn shorten(&mut self, epoch: EpochId, end: Monotonic) {
        for entry in self.entries.iter_mut().filter(|e| e.epoch.view.epoch == epoch) {
            if let Phase::Overlap { until } = &mut entry.phase {
                *until = end.min(*until);
            }
        }
    }

    /// Takes a vouch of the member that sits at `by` in `new` for what it sealed before; the slot that it
    /// had there, if that is something new: what is held is judged once for each part.
    pub(super) fn vouch(&mut self, part: Part, new: &View, by: Slot) -> Option<Slot> {
        let (at, slot) = self.vouches_at(part.old, new, by)?;
        self.entries[at].vouched.entry(slot).or_default().add(part).then_some(slot)
    }

    /// Whether such a word would be taken in, if its sender said it.
    pub(super) fn hears(&self, word: &Unproved<'_>, new: &View, by: Slot) -> bool {
        let vouched = self.vouches_at(word.old(), new, by).map(|(at, slot)| self.entries[at].vouched.get(&slot));
        vouched.is_some_and(|it| it.is_none_or(|it| word.adds_to(it)))
    }

    /// Where an old epoch is, and at which slot of it a member of a new view was.
    fn vouches_at(&self, old: EpochId, new: &View, by: Slot) -> Option<(usize, Slot)> {
        let member: MemberId = new.member(by)?.id;
        let at = self.position(old)?;
        let (slot, _) = self.entries[at].epoch.view.members.find(&member.cert).filter(|(_, m)| m.id == member)?;
        Some((at, slot))
    }

    /// Erases the keys whose time is over, but for those that an order still needs; the epochs of all of them.
    pub(super) fn expire(&mut self, now: Monotonic) -> Vec<EpochId> {
        let mut gone = Vec::new();
        for entry in &mut self.entries {
            match entry.phase {
                Phase::Passed { until } | Phase::Overlap { until } | Phase::Closing { until } if until <= now => {
                    gone.push(entry.epoch.view.epoch);
                    entry.phase = Phase::Kept;
                }
                Phase::Passed { .. } | Phase::Overlap { .. } | Phase::Closing { .. } => {}
                Phase::Keyed | Phase::Current | Phase::Suspended | Phase::Kept => {}
            }
        }
        let kept = |e: &Entry| e.phase != Phase::Kept || e.kept.is_some_and(|kept| kept > now);
        let erased = self.entries.extract_if(.., |e| !kept(e)).map(|e| e.epoch.view.epoch);
        self.erased.extend(erased);
        let more = self.erased.len().saturating_sub(limits::EPOCHS_HELD);
        self.erased.drain(..more);
        gone
    }

    /// The epochs that were in use before the current one and whose keys are still held.
    pub(super) fn superseded(&self) -> impl Iterator<Item = EpochId> + '_ {
        let used = |e: &&Entry| matches!(e.phase, Phase::Overlap { .. } | Phase::Closing { .. });
        self.entries.iter().filter(used).map(|e| e.epoch.view.epoch)
    }

    /// When the next key's time is over.
    pub(super) fn timeout(&self) -> Option<Monotonic> {
        let ends = self.entries.iter().filter_map(|e| match e.phase {
            Phase::Passed { until } | Phase::Overlap { until } | Phase::Closing { until } => Some(until),
            Phase::Kept => Some(e.kept.unwrap_or_default()),
            Phase::Keyed | Phase::Current | Phase::Suspended => None,
        });
        ends.min().filter(|it| *it != UNTIL_NEXT)
    }

    /// Forgets every key.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// The entry at an index that [`Ring::disposition`] gave.
    pub(super) fn at(&mut self, at: usize) -> &mut Entry {
        &mut self.entries[at]
    }

    /// The epoch of the entry there.
    pub(super) fn epoch_at(&self, at: usize) -> &Arc<Epoch> {
        &self.entries[at].epoch
    }

    /// The entry of an epoch.
    pub(super) fn of(&mut self, epoch: EpochId) -> Option<&mut Entry> {
        let at = self.position(epoch)?;
        Some(&mut self.entries[at])
    }

    /// The installed epoch.
    pub(super) fn current(&self) -> Option<&Arc<Epoch>> {
        self.current_entry().map(|e| &e.epoch)
    }

    /// The installed epoch's entry.
    pub(super) fn current_entry(&self) -> Option<&Entry> {
        self.entries.iter().find(|e| matches!(e.phase, Phase::Current | Phase::Suspended))
    }

    fn position(&self, epoch: EpochId) -> Option<usize> {
        // Newest first: nearly every datagram is of the newest epoch.
        self.entries.iter().rposition(|e| e.epoch.view.epoch == epoch)
    }

    fn free(&mut self) {
        let is_agreed = |e: &Entry| matches!(e.phase, Phase::Keyed | Phase::Passed { .. });
        let is_spare = |e: &Entry| !matches!(e.phase, Phase::Current | Phase::Suspended);
        let spare = match () {
            () if self.entries.iter().filter(|e| is_agreed(e)).count() >= limits::EPOCHS_HELD => {
                self.entries.iter().position(is_agreed)
            }
            () if self.entries.len() >= limits::EPOCHS_OVERLAPPED => self.entries.iter().position(is_spare),
            () => None,
        };
        spare.map(|at| self.entries.remove(at));
    }
}

/// What becomes of an epoch that we passed over, when another one is installed: that of any other before it.
fn after_passing(passed: &View, current: &View, until: Monotonic) -> Phase {
    if passed.members.is_within(&current.members) { Phase::Overlap { until } } else { Phase::Closing { until } }
}

/// Until another epoch is in use, or passed over.
pub(super) const UNTIL_NEXT: Monotonic = Monotonic(u64::MAX);

const _: () = assert!(limits::EPOCHS_OVERLAPPED > 1);

#[cfg(test)]
mod tests {
    use sealcast_wire::{Access, CertHash, Change, Domain, Dropped, Exhausted, Incarnation, Member, Protect, Source};

    use super::super::vouch;
    use super::*;

    struct Anything;

    impl Access for Anything {
        fn reads(&self, _: Slot, _: Domain) -> bool {
            true
        }
        fn domain(&self, _: &str) -> Option<Domain> {
            Some(Domain(1))
        }
        fn may_publish(&self, _: Slot, _: &str) -> bool {
            true
        }
        fn may_subscribe(&self, _: Slot, _: &str) -> bool {
            true
        }
        fn must_sign(&self, _: &str) -> bool {
            false
        }
    }

    fn epoch(counter: u32, members: u8) -> Arc<Epoch> {
        let member = |n| Member {
            id: MemberId { cert: CertHash([n; 32]), incarnation: Incarnation([n; 16]) },
            name: format!("m{n}").into(),
        };
        let id = EpochId { counter, hash: u64::from(counter) };
        let members = (0..members).map(member).collect();
        let view = View::new(None, id, members, Slot(0), Change::Joined);
        Arc::new(Epoch { view: Arc::new(view), protect: None, access: Arc::new(Anything) })
    }

    fn header(epoch: &Epoch) -> Header {
        Header { domain: Domain(1), epoch: epoch.view.epoch, slot: Slot(2), flags: 0, counter: 0 }
    }

    /// LSGC, weakness 12: at each change datagrams under the key before it and the key after it were dropped.
    #[test]
    fn lsgc_w12_datagrams_under_the_keys_around_a_change_are_opened() {
        let (now, until) = (Monotonic(0), Monotonic(0) + limits::EPOCH_OVERLAP);
        let (first, second) = (epoch(1, 3), epoch(2, 4));
        let mut ring = Ring::default();
        let opens = |ring: &Ring, of: &Epoch| matches!(ring.disposition(&header(of), &[]), Disposition::Open(_));
        ring.install(now, first.clone(), false, limits::EPOCH_OVERLAP, None, None);
        let of_others_ahead = ring.disposition(&header(&second), &[]);
        assert!(matches!(of_others_ahead, Disposition::Unknown), "the group holds it until it has the key");
        ring.keyed(second.clone());
        assert!(opens(&ring, &first) && opens(&ring, &second), "others have installed it before us");
        ring.install(now, second.clone(), false, limits::EPOCH_OVERLAP, Some(until), None);
        assert!(opens(&ring, &first) && opens(&ring, &second), "others install it after us");
        assert_eq!(ring.expire(until), [first.view.epoch]);
        assert!(matches!(ring.disposition(&header(&first), &[]), Disposition::Erased) && opens(&ring, &second));
    }

    /// Who is evicted while a key that it helped to make waits to be installed must not be heard under it.
    #[test]
    fn rule_a5_a_key_agreed_with_the_evicted_opens_nothing() {
        let (now, first, second) = (Monotonic(0), epoch(1, 2), epoch(2, 3));
        let mut ring = Ring::default();
        ring.install(now, first.clone(), false, limits::EPOCH_OVERLAP, None, None);
        ring.keyed(second.clone());
        assert!(
            matches!(ring.disposition(&header(&second), &[]), Disposition::Open(_)),
            "the next key opens before it seals"
        );
        ring.suspend(None);
        assert!(matches!(ring.disposition(&header(&second), &[]), Disposition::Unknown));
        assert!(matches!(ring.disposition(&header(&first), &[]), Disposition::Wait));
    }

    /// Others may have installed it: what they sealed with it is opened once they vouch for it in an epoch without the
    /// evicted, who can vouch for nothing there.
    #[test]
    fn rule_a5_a_key_that_was_passed_over_opens_only_what_is_vouched_for() {
        let (now, first, second, third) = (Monotonic(0), epoch(1, 2), epoch(2, 3), epoch(3, 2));
        let until = now + limits::EPOCH_OVERLAP;
        let vouch = |ring: &mut Ring, by: u32| {
            let words = vouch::write(second.view.epoch, &[], &Says(third.view.epoch, Slot(by)));
            let word = vouch::read(&words[0]).expect("it is well formed");
            let part = word.proved(Slot(by), &Says(third.view.epoch, Slot(by))).expect("it is proved");
            ring.vouch(part, &third.view, Slot(by))
        };
        let of = |slot| Header { slot: Slot(slot), ..header(&second) };
        for keyed_before in [true, false] {
            let mut ring = Ring::default();
            ring.install(now, first.clone(), false, limits::EPOCH_OVERLAP, Some(until), None);
            if keyed_before {
                ring.keyed(second.clone());
                ring.suspend(Some(until));
                assert!(matches!(ring.disposition(&of(0), &[]), Disposition::Wait), "somebody must go");
            }
            ring.install(now, third.clone(), true, limits::EPOCH_OVERLAP, Some(until), None);
            if !keyed_before {
                ring.passed(second.clone(), until);
            }
            assert!((0..3).all(|slot| matches!(ring.disposition(&of(slot), &[]), Disposition::Wait)));
            let words = vouch::write(second.view.epoch, &[], &Says(third.view.epoch, Slot(1)));
            let hears =
                |ring: &Ring, by| ring.hears(&vouch::read(&words[0]).expect("well formed"), &third.view, Slot(by));
            assert!(hears(&ring, 1));
            assert_eq!(vouch(&mut ring, 1), Some(Slot(1)));
            assert!(!hears(&ring, 1) && hears(&ring, 0), "what is said again costs no check of its proof (G8)");
            assert!(matches!(ring.disposition(&of(1), &[]), Disposition::Old), "it vouched for nothing");
            assert_eq!(vouch(&mut ring, 2), None, "it is not in the epoch in which it would vouch");
            assert!(matches!(ring.disposition(&of(2), &[]), Disposition::Wait));
            assert_eq!(ring.expire(until), [first.view.epoch, second.view.epoch]);
            assert!(matches!(ring.disposition(&of(1), &[]), Disposition::Erased));
        }
    }

    #[test]
    fn rule_a5_a_key_that_was_passed_over_opens_where_nobody_went() {
        let (now, until) = (Monotonic(0), Monotonic(0) + limits::EPOCH_OVERLAP);
        let (first, second, third) = (epoch(1, 2), epoch(2, 3), epoch(3, 4));
        let mut ring = Ring::default();
        ring.install(now, first, false, limits::EPOCH_OVERLAP, Some(until), None);
        ring.passed(second.clone(), until);
        assert!(matches!(ring.disposition(&header(&second), &[]), Disposition::Wait), "it shows only then who stays");
        ring.install(now, third, false, limits::EPOCH_OVERLAP, Some(until), None);
        assert!(matches!(ring.disposition(&header(&second), &[]), Disposition::Open(_)));
    }

    /// A capability of a slot in an epoch, whose word everybody believes.
    struct Says(EpochId, Slot);

    impl Protect for Says {
        fn epoch(&self) -> EpochId {
            self.0
        }
        fn slot(&self) -> Slot {
            self.1
        }
        fn seal(&self, _: Domain, _: u8, _: &mut [u8]) -> Result<u64, Exhausted> {
            Err(Exhausted)
        }
        fn open<'a>(&self, _: &'a mut [u8]) -> Result<(Source, u8, &'a mut [u8]), Dropped> {
            Err(Dropped::NoKey)
        }
        fn vouch(&self, _: &[u8], _: &mut Vec<u8>) {}
        fn vouched(&self, _: Slot, _: &[u8], _: &[u8]) -> bool {
            true
        }
    }

    #[test]
    fn rule_a5_at_a_hundred_changes_a_second_each_key_is_held_for_all_of_its_overlap() {
        let mut ring = Ring::default();
        for counter in 1..=300_u32 {
            let now = Monotonic(10_000 * u64::from(counter));
            ring.expire(now);
            ring.install(now, epoch(counter, 2), false, limits::EPOCH_OVERLAP, None, None);
        }
        let held = ring.entries.iter().map(|e| e.epoch.view.epoch.counter);
        assert!(held.eq(100..=300), "{:?}", ring.entries.len());
    }

    #[test]
    fn rule_a5_no_more_than_a_few_epochs_are_held_and_the_current_one_always() {
        let mut ring = Ring::default();
        ring.install(Monotonic(0), epoch(1, 2), false, limits::EPOCH_OVERLAP, None, None);
        // An insider who never confirms makes key after key that is not installed.
        for counter in 2..20 {
            ring.keyed(epoch(counter, 2));
            assert!(ring.entries.len() <= limits::EPOCHS_HELD + 1);
            assert_eq!(ring.current().map(|e| e.view.epoch.counter), Some(1));
        }
    }
}
