//! Who is a member and at which slot, shared from one view to the next.
//!
//! ```text
//!   by slot   digits of the slot, as many as the highest one needs   ┐
//!                                                                    ├─▶ leaf: slot, member
//!   by name   digits of the certificate, until they tell it apart    ┘
//! ```
//! Two tries of sixteen branches lead to the same leaves. A change copies the branches above one leaf and shares all
//! others, so that it costs O(log n), and two rosters of which one came of the other are compared where they differ
//! alone.

use std::fmt;
use std::sync::Arc;

use crate::member::{CertHash, Member, MemberId, Slot};

/// The members of a view. A clone shares everything; a certificate is in it once, and so is a slot.
#[derive(Clone, Default)]
pub struct Roster {
    by_slot: Link,
    /// Digits of a slot that [`Roster::by_slot`] looks at.
    height: usize,
    by_cert: Link,
    len: usize,
}

type Link = Option<Arc<Node>>;

#[derive(Clone)]
enum Node {
    Leaf(Slot, Member),
    Branch([Link; 16]),
}

impl Roster {
    /// How many members there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The member at a slot.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&Member> {
        if digits_of(slot) > self.height {
            return None;
        }
        let mut node = self.by_slot.as_deref()?;
        let mut level = LEVELS - self.height;
        loop {
            match node {
                Node::Leaf(at, member) => return (*at == slot).then_some(member),
                Node::Branch(links) => node = links[slot.digit(level)].as_deref()?,
            }
            level += 1;
        }
    }

    /// The slot of the member with a certificate, and who that is.
    pub fn find(&self, cert: &CertHash) -> Option<(Slot, &Member)> {
        let mut node = self.by_cert.as_deref()?;
        let mut level = 0;
        loop {
            match node {
                Node::Leaf(slot, member) => return (member.id.cert == *cert).then_some((*slot, member)),
                Node::Branch(links) => node = links[cert.digit(level)].as_deref()?,
            }
            level += 1;
        }
    }

    /// Whether this very run of a member is in it.
    pub fn contains(&self, id: &MemberId) -> bool {
        self.find(&id.cert).is_some_and(|(_, member)| member.id == *id)
    }

    /// The highest slot that is taken, and whose it is.
    pub fn last(&self) -> Option<(Slot, &Member)> {
        let mut node = self.by_slot.as_deref()?;
        loop {
            match node {
                Node::Leaf(slot, member) => return Some((*slot, member)),
                Node::Branch(links) => node = links.iter().rev().find_map(Option::as_deref)?,
            }
        }
    }

    /// Puts a member at a slot, instead of whoever was there, and of the slot that its certificate had.
    ///
    /// # Panics
    /// If the slot has more than 24 bits: a scheme gives out what fits the wire.
    pub fn insert(&mut self, slot: Slot, member: Member) {
        assert!(slot <= Slot::MAX, "a slot has 24 bits");
        self.remove(slot);
        if let Some((before, _)) = self.find(&member.id.cert) {
            self.remove(before);
        }
        while self.height < digits_of(slot) {
            // What was the top is what begins with one more zero.
            let top = self.by_slot.take();
            self.height += 1;
            self.by_slot = match top.as_deref() {
                Some(Node::Branch(_)) => {
                    let mut links = Node::empty();
                    links[0] = top;
                    Some(Arc::new(Node::Branch(links)))
                }
                Some(Node::Leaf(..)) | None => top,
            };
        }
        let cert = member.id.cert;
        let leaf = Arc::new(Node::Leaf(slot, member));
        put(&mut self.by_slot, leaf.clone(), &slot, LEVELS - self.height);
        put(&mut self.by_cert, leaf, &cert, 0);
        self.len += 1;
    }

    /// Takes out whoever is at a slot.
    pub fn remove(&mut self, slot: Slot) -> Option<Member> {
        let member = self.get(slot)?.clone();
        take(&mut self.by_slot, &slot, LEVELS - self.height);
        take(&mut self.by_cert, &member.id.cert, 0);
        self.len -= 1;
        Some(member)
    }

    /// The members, by ascending slot.
    pub fn iter(&self) -> Iter<'_> {
        self.slots().into_members()
    }

    /// The slots that are taken, ascending, and whose they are.
    pub fn slots(&self) -> Slots<'_> {
        Slots { open: self.by_slot.iter().map(|node| Open { node, next: 0 }).collect(), left: self.len }
    }

    /// Who is in this roster and not in `other`, by certificate: O(change · log n) where one came of the other.
    pub fn without<'a>(&'a self, other: &Roster) -> Vec<&'a Member> {
        let mut found = Vec::new();
        differ(self.by_cert.as_ref(), other.by_cert.as_ref(), 0, &mut |member| {
            found.push(member);
            false
        });
        found
    }

    /// Whether all in this roster are in `other`.
    pub fn is_within(&self, other: &Roster) -> bool {
        !differ(self.by_cert.as_ref(), other.by_cert.as_ref(), 0, &mut |_| true)
    }
}

impl Node {
    fn empty() -> [Link; 16] {
        [const { None }; 16]
    }

    fn key_digit<K: Digits>(&self, level: usize) -> usize {
        match self {
            Node::Leaf(slot, member) => K::of(*slot, member).digit(level),
            Node::Branch(_) => unreachable!("only leaves are pushed down"),
        }
    }
}

/// A key as digits of four bits, the highest first.
trait Digits: Copy + PartialEq {
    fn digit(&self, level: usize) -> usize;
    fn of(slot: Slot, member: &Member) -> Self;
}

impl Digits for Slot {
    #[inline]
    fn digit(&self, level: usize) -> usize {
        (self.0 >> (4 * (LEVELS - 1 - level)) & 15) as usize
    }

    fn of(slot: Slot, _: &Member) -> Slot {
        slot
    }
}

impl Digits for CertHash {
    fn digit(&self, level: usize) -> usize {
        usize::from(self.0[level / 2] >> (4 * (1 - level % 2)) & 15)
    }

    fn of(_: Slot, member: &Member) -> CertHash {
        member.id.cert
    }
}

/// Puts a leaf below `link`; there is none of its key.
fn put<K: Digits>(link: &mut Link, leaf: Arc<Node>, key: &K, level: usize) {
    let Some(node) = link else { return *link = Some(leaf) };
    if let Node::Leaf(..) = **node {
        let mut links = Node::empty();
        links[node.key_digit::<K>(level)] = Some(node.clone());
        *node = Arc::new(Node::Branch(links));
    }
    if let Node::Branch(links) = Arc::make_mut(node) {
        put(&mut links[key.digit(level)], leaf, key, level + 1);
    }
}

/// Takes out the leaf of a key that is there; a branch with one leaf becomes that leaf.
fn take<K: Digits>(link: &mut Link, key: &K, level: usize) {
    let Some(node) = link else { return };
    if let Node::Leaf(..) = **node {
        return *link = None;
    }
    let Node::Branch(links) = Arc::make_mut(node) else { return };
    take(&mut links[key.digit(level)], key, level + 1);
    let mut left = links.iter().flatten();
    match (left.next(), left.next()) {
        (None, _) => *link = None,
        (Some(only), None) if matches!(**only, Node::Leaf(..)) => {
            let only = only.clone();
            *link = Some(only);
        }
        (Some(_), _) => {}
    }
}

/// Shows `found` the members below `a` of which the very run is not below `b`, until it says `true`; whether it did.
fn differ<'a>(
    a: Option<&'a Arc<Node>>,
    b: Option<&Arc<Node>>,
    level: usize,
    found: &mut impl FnMut(&'a Member) -> bool,
) -> bool {
    let Some(a) = a else { return false };
    match (&**a, b.map(|b| (b, &**b))) {
        (_, Some((b, _))) if Arc::ptr_eq(a, b) => false,
        (Node::Branch(links), Some((_, Node::Branch(others)))) => {
            links.iter().zip(others).any(|(a, b)| differ(a.as_ref(), b.as_ref(), level + 1, found))
        }
        (Node::Branch(links), Some((b, Node::Leaf(_, other)))) => {
            let digit = other.id.cert.digit(level);
            let below = |at| Some(b).filter(|_| at == digit);
            links.iter().enumerate().any(|(at, a)| differ(a.as_ref(), below(at), level + 1, found))
        }
        (Node::Branch(links), None) => links.iter().any(|a| differ(a.as_ref(), None, level + 1, found)),
        (Node::Leaf(_, member), Some((_, Node::Leaf(_, other)))) => member.id != other.id && found(member),
        (Node::Leaf(_, member), Some((b, Node::Branch(_)))) => !is_below(b, member, level) && found(member),
        (Node::Leaf(_, member), None) => found(member),
    }
}

fn is_below(mut node: &Arc<Node>, member: &Member, mut level: usize) -> bool {
    loop {
        match &**node {
            Node::Leaf(_, other) => return other.id == member.id,
            Node::Branch(links) => match &links[member.id.cert.digit(level)] {
                Some(next) => node = next,
                None => return false,
            },
        }
        level += 1;
    }
}

/// Digits that a slot has without its leading zeros.
fn digits_of(slot: Slot) -> usize {
    (u32::BITS - slot.0.leading_zeros()).div_ceil(4) as usize
}

/// Digits of a slot of 24 bits.
const LEVELS: usize = 6;

/// [`Roster::slots`].
pub struct Slots<'a> {
    open: Vec<Open<'a>>,
    left: usize,
}

struct Open<'a> {
    node: &'a Node,
    next: usize,
}

impl<'a> Slots<'a> {
    fn into_members(self) -> Iter<'a> {
        Iter(self)
    }
}

impl<'a> Iterator for Slots<'a> {
    type Item = (Slot, &'a Member);

    fn next(&mut self) -> Option<(Slot, &'a Member)> {
        loop {
            let open = self.open.last_mut()?;
            match open.node {
                Node::Leaf(slot, member) => {
                    self.open.pop();
                    self.left -= 1;
                    return Some((*slot, member));
                }
                Node::Branch(links) => match links[open.next..].iter().position(Option::is_some) {
                    Some(skipped) => {
                        let at = open.next + skipped;
                        open.next = at + 1;
                        let node = links[at].as_deref().expect("it was found just now");
                        self.open.push(Open { node, next: 0 });
                    }
                    None => _ = self.open.pop(),
                },
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Slots<'_> {}

/// [`Roster::iter`].
pub struct Iter<'a>(Slots<'a>);

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Member;

    fn next(&mut self) -> Option<&'a Member> {
        self.0.next().map(|(_, member)| member)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a Roster {
    type Item = &'a Member;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Slots count up from 0, in the order given.
impl FromIterator<Member> for Roster {
    fn from_iter<I: IntoIterator<Item = Member>>(members: I) -> Roster {
        let mut roster = Roster::default();
        (0..).zip(members).for_each(|(slot, member)| roster.insert(Slot(slot), member));
        roster
    }
}

impl FromIterator<(Slot, Member)> for Roster {
    fn from_iter<I: IntoIterator<Item = (Slot, Member)>>(members: I) -> Roster {
        let mut roster = Roster::default();
        members.into_iter().for_each(|(slot, member)| roster.insert(slot, member));
        roster
    }
}

impl PartialEq for Roster {
    fn eq(&self, other: &Roster) -> bool {
        let same = match (&self.by_slot, &other.by_slot) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (_, _) => false,
        };
        self.len == other.len && (same || self.slots().eq(other.slots()))
    }
}

impl Eq for Roster {}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.slots()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::member::Incarnation;

    /// The same numbers at each run.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % n
        }
    }

    /// Certificates of which many begin alike.
    fn member(n: u64, run: u8) -> Member {
        let mut cert = [0; 32];
        cert[..2].copy_from_slice(&[(n % 3) as u8, (n % 7) as u8]);
        cert[24..].copy_from_slice(&n.to_be_bytes());
        Member {
            id: MemberId { cert: CertHash(cert), incarnation: Incarnation([run; 16]) },
            name: format!("m{n}").into(),
        }
    }

    #[test]
    fn a_roster_is_what_a_map_of_slots_is() {
        for seed in 0..50 {
            let mut dice = Dice(seed);
            let (mut roster, mut known) = (Roster::default(), BTreeMap::<Slot, Member>::new());
            let mut before = (roster.clone(), known.clone());
            for step in 0..400 {
                let span = [4, 300, 1 << 24][dice.below(3) as usize];
                let slot = Slot(dice.below(span) as u32);
                if dice.below(3) == 0 {
                    assert_eq!(roster.remove(slot), known.remove(&slot));
                } else {
                    let member = member(dice.below(200), dice.below(3) as u8);
                    known.retain(|at, m| m.id.cert != member.id.cert || *at == slot);
                    known.insert(slot, member.clone());
                    roster.insert(slot, member);
                }
                assert_eq!(roster.len(), known.len());
                assert!(roster.slots().map(|(s, m)| (s, m.clone())).eq(known.clone()), "seed {seed}, step {step}");
                for (slot, member) in &known {
                    assert_eq!(roster.get(*slot), Some(member));
                    assert_eq!(roster.find(&member.id.cert), Some((*slot, member)));
                }
                assert_eq!(roster.get(slot), known.get(&slot));
                assert_eq!(roster.last().map(|(slot, _)| slot), known.keys().next_back().copied());
                if dice.below(8) == 0 {
                    let ids = |of: &BTreeMap<Slot, Member>| of.values().map(|m| m.id).collect::<Vec<_>>();
                    let (was, is) = (ids(&before.1), ids(&known));
                    let mut came: Vec<MemberId> = is.iter().filter(|id| !was.contains(id)).copied().collect();
                    let mut went: Vec<MemberId> = was.iter().filter(|id| !is.contains(id)).copied().collect();
                    came.sort();
                    went.sort();
                    assert!(roster.without(&before.0).iter().map(|m| m.id).eq(came.clone()));
                    assert!(before.0.without(&roster).iter().map(|m| m.id).eq(went.clone()));
                    assert_eq!(before.0.is_within(&roster), went.is_empty());
                    assert!(before.0.slots().map(|(s, m)| (s, m.clone())).eq(before.1.clone()), "it is not touched");
                    before = (roster.clone(), known.clone());
                }
            }
        }
    }

    /// How many nodes of `b` are not nodes of `a`.
    fn unshared(a: Option<&Arc<Node>>, b: Option<&Arc<Node>>) -> usize {
        match (a, b) {
            (_, None) => 0,
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => 0,
            (a, Some(b)) => match (a.map(|a| &**a), &**b) {
                (Some(Node::Branch(was)), Node::Branch(is)) => {
                    1 + was.iter().zip(is).map(|(a, b)| unshared(a.as_ref(), b.as_ref())).sum::<usize>()
                }
                (_, Node::Branch(is)) => 1 + is.iter().map(|b| unshared(None, b.as_ref())).sum::<usize>(),
                (_, Node::Leaf(..)) => 1,
            },
        }
    }

    /// One joins and one leaves, of 64 and of 10,000: all other members are shared.
    #[test]
    fn a_change_copies_what_is_above_it_and_nothing_else() {
        let copied = |n: u64| {
            let before: Roster = (0..n).map(|i| member(i, 0)).collect();
            let mut after = before.clone();
            after.remove(Slot(n as u32 / 2));
            after.insert(Slot(n as u32), member(n, 0));
            assert_eq!((after.without(&before).len(), before.without(&after).len()), (1, 1));
            unshared(before.by_slot.as_ref(), after.by_slot.as_ref())
                + unshared(before.by_cert.as_ref(), after.by_cert.as_ref())
        };
        let (few, many) = (copied(64), copied(10_000));
        assert!(many <= 3 * few, "{few} nodes of 64, {many} of 10,000");
    }

    #[test]
    #[should_panic(expected = "24 bits")]
    fn a_slot_beyond_24_bits_is_refused() {
        Roster::default().insert(Slot(1 << 24), member(0, 0));
    }
}
