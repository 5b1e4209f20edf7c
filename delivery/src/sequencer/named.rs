//! Members of views, as reports name them.
//!
//! ```text
//! who reads a report:   members of one view, by slot      a b c d e f
//! a view it is about:   b d f x y                     ─▶  bits of b, d, f · 2 more · whether the lowest id is one of those
//! ```
//! Who reports is in the view in which all report, so its members alone are counted. Of other members it matters how many
//! there are: all decide as if all were named, and a report's length has a bound in any group.

use std::collections::BTreeSet;

use sealcast_wire::codec::{Malformed, Reader};
use sealcast_wire::limits::ORDERED_MEMBERS_MAX;
use sealcast_wire::{Slot, limits};

use super::primary::Id;

/// The members of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Members {
    named: BTreeSet<Id>,
    /// How many more there are; and whether the lowest id is among those.
    unnamed: u16,
    lowest_is_unnamed: bool,
}

impl From<BTreeSet<Id>> for Members {
    fn from(named: BTreeSet<Id>) -> Members {
        Members { named, ..Members::default() }
    }
}

impl Members {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.named.len() + usize::from(self.unnamed)
    }

    /// Those that are named.
    pub(super) fn named(&self) -> &BTreeSet<Id> {
        &self.named
    }

    /// Whether each is named, and is one of these.
    pub(super) fn are_all(&self, is_here: impl Fn(&Id) -> bool) -> bool {
        self.unnamed == 0 && self.named.iter().all(is_here)
    }

    /// Whether those who are here are more than half of them, or the half with the lowest id.
    pub(super) fn have_majority(&self, is_here: impl Fn(&Id) -> bool) -> bool {
        let here = self.named.iter().filter(|id| is_here(id)).count();
        let has_lowest = !self.lowest_is_unnamed && self.named.first().is_some_and(&is_here);
        2 * here > self.len() || 2 * here == self.len() && has_lowest
    }

    /// Without these, if they are named.
    pub(super) fn remove(&mut self, gone: &BTreeSet<Id>) {
        let lowest = self.named.first().copied();
        self.named.retain(|id| !gone.contains(id));
        // One of those that are not named may have the lowest id now.
        self.lowest_is_unnamed |= self.unnamed > 0 && self.named.first() != lowest.as_ref();
    }

    /// As members of a view know them who know these ids.
    pub(super) fn known_by(&self, known: &BTreeSet<Id>) -> Members {
        let named: BTreeSet<Id> = self.named.intersection(known).copied().collect();
        let lowest_is_unnamed = self.lowest_is_unnamed || self.named.first() != named.first();
        Members { unnamed: (self.len() - named.len()) as u16, named, lowest_is_unnamed }
    }

    /// Those that are in both, which name members of the same view; of those that are not named, the fewer. The lowest id is
    /// that of a named one only where one of both says so of that very id: two halves never both have it.
    pub(super) fn in_both(&self, other: &Members) -> Members {
        let named: BTreeSet<Id> = self.named.intersection(&other.named).copied().collect();
        let unnamed = self.unnamed.min(other.unnamed);
        let is_lowest = |of: &Members| !of.lowest_is_unnamed && of.named.first() == named.first();
        let lowest_is_unnamed = unnamed > 0 && (named.is_empty() || !is_lowest(self) && !is_lowest(other));
        Members { named, unnamed, lowest_is_unnamed }
    }

    /// How long their bytes are beside others of `named` at most.
    pub(super) fn length(&self, named: usize) -> usize {
        let lacking = named.saturating_sub(self.named.len());
        MEMBERS_FIXED + (2 * lacking).min(named.div_ceil(8))
    }

    /// Appends them: the places in `named`, where all of them are, of those that are none of them, or bits if that is shorter.
    pub(super) fn write(&self, named: &[Id], bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&(self.unnamed | u16::from(self.lowest_is_unnamed) << 15).to_be_bytes());
        let lacking = || (0_u16..).zip(named).filter(|(_, id)| !self.named.contains(*id)).map(|(at, _)| at);
        let length = named.len().div_ceil(8);
        match lacking().count() {
            count if 2 * count < length => {
                bytes.push(count as u8);
                lacking().for_each(|at| bytes.extend_from_slice(&at.to_be_bytes()));
            }
            _ => {
                bytes.push(BITS);
                write_bits(named.iter().map(|id| self.named.contains(id)), bytes);
            }
        }
    }

    /// Reads them.
    pub(super) fn read(r: &mut Reader<'_>, named: &[Id]) -> Result<Members, Malformed> {
        let unnamed = r.u16()?;
        let (unnamed, lowest_is_unnamed) = (unnamed & 0x7FFF, unnamed >> 15 == 1);
        let length = named.len().div_ceil(8);
        let named: BTreeSet<Id> = match r.u8()? {
            BITS => {
                let members: BTreeSet<Id> = read_bits(r, named)?.into_iter().copied().collect();
                if 2 * (named.len() - members.len()) < length {
                    return Err(Malformed);
                }
                members
            }
            count if 2 * usize::from(count) < length => {
                let mut members: BTreeSet<Id> = named.iter().copied().collect();
                let mut next = 0;
                for _ in 0..count {
                    let at = r.u16()?;
                    let lacks = named.get(usize::from(at)).filter(|_| at >= next).ok_or(Malformed)?;
                    members.remove(lacks);
                    next = at + 1;
                }
                members
            }
            _ => return Err(Malformed),
        };
        let members = Members { named, unnamed, lowest_is_unnamed };
        let is_sound = members.len() <= ORDERED_MEMBERS_MAX && (unnamed > 0 || !lowest_is_unnamed);
        if is_sound { Ok(members) } else { Err(Malformed) }
    }
}

/// Appends a bit for each of these, the first one as the lowest bit of the first byte.
pub(super) fn write_bits(of: impl Iterator<Item = bool>, bytes: &mut Vec<u8>) {
    for (at, it) in of.enumerate() {
        if at % 8 == 0 {
            bytes.push(0);
        }
        *bytes.last_mut().expect("one was pushed") |= u8::from(it) << (at % 8);
    }
}

/// Reads a bit for each of these: those whose bit is set.
pub(super) fn read_bits<'a, T>(r: &mut Reader<'_>, of: &'a [T]) -> Result<Vec<&'a T>, Malformed> {
    let bits = r.take(of.len().div_ceil(8))?;
    let is_set = |at: usize| bits[at / 8] >> (at % 8) & 1 == 1;
    let is_sound = (of.len()..8 * bits.len()).all(|at| !is_set(at));
    let set = of.iter().enumerate().filter(|(at, _)| is_set(*at)).map(|(_, it)| it);
    if is_sound { Ok(set.collect()) } else { Err(Malformed) }
}

/// Slots of members, as bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Slots(Vec<u8>);

impl FromIterator<Slot> for Slots {
    /// Those that are no member's of a group with an order are left out.
    fn from_iter<T: IntoIterator<Item = Slot>>(slots: T) -> Slots {
        let mut bits = Vec::new();
        for slot in slots.into_iter().map(Slot::index).filter(|it| *it < ORDERED_MEMBERS_MAX) {
            if bits.len() <= slot / 8 {
                bits.resize(slot / 8 + 1, 0);
            }
            bits[slot / 8] |= 1 << (slot % 8);
        }
        Slots(bits)
    }
}

impl Slots {
    /// Whether this one is among them.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.0.get(slot.index() / 8).is_some_and(|it| it >> (slot.index() % 8) & 1 == 1)
    }

    /// Appends them: a byte that says how many follow, the last of which is not 0.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.0.len() as u8);
        bytes.extend_from_slice(&self.0);
    }

    /// Reads them.
    pub(super) fn read(r: &mut Reader<'_>) -> Result<Slots, Malformed> {
        let length = usize::from(r.u8()?);
        let bits = r.take(length)?.to_vec();
        let is_sound = length <= SLOTS_BYTES && bits.last() != Some(&0);
        if is_sound { Ok(Slots(bits)) } else { Err(Malformed) }
    }
}

/// How many are not named, and the number of places, or [`BITS`].
const MEMBERS_FIXED: usize = 2 + 1;
/// In the number's place: bits follow.
const BITS: u8 = 255;
/// Bytes of bits for each member of a group, at most.
pub(super) const SLOTS_BYTES: usize = ORDERED_MEMBERS_MAX.div_ceil(8);
const _: () = assert!(SLOTS_BYTES <= BITS as usize && ORDERED_MEMBERS_MAX < 1 << 15);
const _: () = assert!(limits::ORDERED_MEMBERS_MAX <= limits::CENTER_MEMBERS_MAX);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(of: impl IntoIterator<Item = u16>) -> BTreeSet<Id> {
        // Slots ascend otherwise than ids.
        of.into_iter().map(|it| u64::from(it).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()).collect()
    }

    /// A member that said that it leaves had the lowest id, and one of those who stay does not know that it left.
    #[test]
    fn rule_b1_who_left_leaves_the_lowest_id_to_one_half_alone() {
        let all: Vec<Id> = (1..=5_u8).map(|it| [it; 8]).collect();
        let set = |of: &[usize]| of.iter().map(|at| all[*at]).collect::<BTreeSet<Id>>();
        let (left, view) = (set(&[0]), Members::from(set(&[0, 1, 2, 3, 4])));
        for (half, other) in [(set(&[2, 4]), set(&[1, 3])), (set(&[1, 2]), set(&[3, 4])), (set(&[3, 4]), set(&[1, 2]))]
        {
            // The one half was in a view with the one that left, and names its members.
            let known = &half | &left;
            let (mut knows, lacks) = (view.clone(), view.known_by(&known));
            knows.remove(&left);
            let has = |voters: Members, here: &BTreeSet<Id>| voters.have_majority(|id| here.contains(id));
            let one = has(knows.known_by(&known).in_both(&lacks), &half);
            let late = {
                let mut late = lacks.clone();
                late.remove(&left);
                has(late.in_both(&lacks), &half)
            };
            let rest = has(knows.clone(), &other);
            assert!(!(one || late) || !rest, "{half:?} and {other:?}");
        }
    }

    #[test]
    fn of_members_that_are_not_named_the_number_counts_and_who_has_the_lowest_id() {
        let all = Members::from(ids(0..10));
        let low: BTreeSet<Id> = all.named().iter().take(5).copied().collect();
        let high: BTreeSet<Id> = all.named().iter().skip(5).copied().collect();
        assert!(all.have_majority(|it| low.contains(it)) && !all.have_majority(|it| high.contains(it)));
        assert!(all.known_by(&low).have_majority(|_| true) && !all.known_by(&high).have_majority(|_| true));
        assert_eq!((all.known_by(&high).len(), all.known_by(&high).known_by(&low).len()), (10, 10));
        assert!(!all.known_by(&high).known_by(&low).have_majority(|_| true), "nobody is named");
        // Who left counts no more, named or not.
        let mut rest = all.clone();
        rest.remove(&low.iter().take(1).copied().collect());
        assert!(rest.known_by(&high).have_majority(|_| true));
        assert_eq!(all.known_by(&high).in_both(&rest.known_by(&high)), rest.known_by(&high));
    }

    #[test]
    fn slots_are_read_as_they_were_written_and_nothing_else() {
        for slots in [vec![], vec![0], vec![7, 8], vec![255], (0..256).collect()] {
            let slots: Slots = slots.into_iter().map(Slot).collect();
            let mut bytes = Vec::new();
            slots.write(&mut bytes);
            assert!(bytes.len() <= 1 + SLOTS_BYTES);
            assert_eq!(Slots::read(&mut Reader::new(&bytes)), Ok(slots));
        }
        assert_eq!([Slot(9), Slot(256), Slot::MAX].into_iter().collect::<Slots>(), Slots(vec![0, 2]));
        assert!(!Slots(vec![0, 2]).holds(Slot::MAX) && Slots(vec![0, 2]).holds(Slot(9)));
        for bytes in [&[1, 0][..], &[2, 1, 0], &[2, 1], &[]] {
            assert_eq!(Slots::read(&mut Reader::new(bytes)), Err(Malformed));
        }
        assert_eq!(Slots::read(&mut Reader::new(&[33; 34])), Err(Malformed));
    }

    proptest! {
        #[test]
        fn members_are_read_as_they_were_written(
            named in 0_u16..256, step in 1_u16..5, of in prop::collection::btree_set(0_u16..256, 0..40),
            unnamed in 0_u16..3, lowest_is_unnamed: bool, most: bool,
        ) {
            let all = ids(0..named);
            let some = ids(of.into_iter().filter(|it| *it < named));
            let some = if most { &all - &some } else { some };
            let some: BTreeSet<Id> = some.into_iter().step_by(usize::from(step)).collect();
            let unnamed = unnamed.min(256 - some.len() as u16);
            let members = Members { named: some, unnamed, lowest_is_unnamed: unnamed > 0 && lowest_is_unnamed };
            let named: Vec<Id> = all.into_iter().rev().collect();
            let mut bytes = Vec::new();
            members.write(&named, &mut bytes);
            prop_assert!(bytes.len() <= members.length(named.len()));
            let mut r = Reader::new(&bytes);
            prop_assert_eq!(Members::read(&mut r, &named), Ok(members));
            prop_assert_eq!(r.end(), Ok(()));
            prop_assert!((0..bytes.len()).all(|n| Members::read(&mut Reader::new(&bytes[..n]), &named).is_err()));
        }

        #[test]
        fn rule_g2_any_bytes_are_members_in_one_way_or_malformed(
            named in 0_u16..200, bytes in prop::collection::vec(any::<u8>(), 0..40), bits: bool,
        ) {
            let named: Vec<Id> = ids(0..named).into_iter().collect();
            let mut bytes = bytes;
            bytes.get_mut(2).into_iter().filter(|_| bits).for_each(|it| *it = BITS);
            let mut r = Reader::new(&bytes);
            if let Ok(members) = Members::read(&mut r, &named) {
                let mut again = Vec::new();
                members.write(&named, &mut again);
                prop_assert_eq!(&again[..], &bytes[..again.len()]);
            }
        }
    }
}
