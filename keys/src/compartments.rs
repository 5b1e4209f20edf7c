//! Topic compartments (A8): which topics travel under which key, and who reads them.
//!
//! A *domain* is a key of the epoch: 0 is the whole group's, 1 and up are the compartments, in the
//! table's order. A topic belongs to the first compartment with a matching pattern; a member reads a
//! compartment if one of its grants covers *all* of it. The table is the group's policy where the CA
//! signed one; else it is derived from the roster's certificates: the distinct patterns that members
//! may read, most specific first, each one compartment, and `#` at the end.
//!
//! We deviate from A8's 'one key per topic' on purpose: a key per topic needs a tag per topic in clear,
//! by which outsiders could link messages, and readers of a compartment may read all its topics anyway.
//!
//! Compartments with the same readers share one *ring* of the key agreement and get independent keys
//! from its secret; each other set of readers has a ring, and exponents, of its own. Ring 0 is everybody.

use std::collections::BTreeSet;
use std::sync::Arc;

use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::pattern::Pattern;
use sealcast_crypto::identity::rights::Rights;
use sealcast_crypto::identity::statement::Compartment as Listed;
use sealcast_wire::limits::{CENTER_MEMBERS_MAX, COMPARTMENTS_MAX};
use sealcast_wire::{Access, Domain, Slot};

use crate::status::CompartmentStatus;

/// The numbers of the bits that are set.
pub(crate) fn bits(set: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |i| set >> i & 1 == 1)
}

/// A set of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots([u64; WORDS]);

impl Slots {
    const NONE: Slots = Slots([0; WORDS]);

    /// Of slots below 64, as bits.
    pub(crate) fn of_word(word: u64) -> Slots {
        let mut set = Slots::NONE;
        set.0[0] = word;
        set
    }

    /// Those below 64, as bits.
    pub(crate) fn word(self) -> u64 {
        self.0[0]
    }

    pub(crate) fn holds(&self, slot: usize) -> bool {
        self.0.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn insert(&mut self, slot: usize) {
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Slots::NONE
    }

    fn without(mut self, others: &Slots) -> Slots {
        self.0.iter_mut().zip(others.0).for_each(|(word, others)| *word &= !others);
        self
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..).zip(self.0).flat_map(|(at, word)| bits(word).map(move |bit| at * 64 + bit))
    }
}

impl FromIterator<usize> for Slots {
    fn from_iter<T: IntoIterator<Item = usize>>(slots: T) -> Slots {
        let mut set = Slots::NONE;
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

const WORDS: usize = CENTER_MEMBERS_MAX / 64;

/// Who reads and writes what in one roster.
#[derive(Clone)]
pub(crate) struct Table {
    group: Arc<str>,
    rights: Vec<Arc<Rights>>,
    compartments: Vec<Compartment>,
    rings: Vec<Slots>,
}

#[derive(Clone)]
struct Compartment {
    line: Listed,
    readers: Slots,
    /// Of those who may write some of it but do not read it (A1).
    writers_only: Slots,
    /// `None`: nobody reads it.
    ring: Option<usize>,
}

impl Table {
    /// The table of a roster, whose rights come by slot.
    pub(crate) fn new(group: Arc<str>, rights: Vec<Arc<Rights>>, policy: Option<&[Listed]>) -> Table {
        let lines = policy.map_or_else(|| derive(&group, &rights), <[Listed]>::to_vec);
        let everybody: Slots = (0..rights.len()).collect();
        let mut rings = vec![everybody];
        let mut compartments = Vec::new();
        for line in lines.into_iter().take(COMPARTMENTS_MAX) {
            let readers = slots(&rights, |r| line.patterns.iter().all(|p| r.reads_all(&group, p)));
            let writes = |r: &Rights| r.publishes(&group).any(|w| line.patterns.iter().any(|p| w.overlaps(p)));
            let writers_only = slots(&rights, writes).without(&readers);
            let ring = (!readers.is_empty()).then(|| {
                rings.iter().position(|ring| *ring == readers).unwrap_or_else(|| {
                    rings.push(readers);
                    rings.len() - 1
                })
            });
            compartments.push(Compartment { line, readers, writers_only, ring });
        }
        Table { group, rights, compartments, rings }
    }

    /// The members of each ring; ring 0 is everybody.
    pub(crate) fn rings(&self) -> &[Slots] {
        &self.rings
    }

    /// The ring that makes a domain's key; `None` if nobody reads it.
    pub(crate) fn ring_of(&self, domain: Domain) -> Option<usize> {
        match domain.0 {
            0 => Some(0),
            d => self.compartments.get(usize::from(d) - 1)?.ring,
        }
    }

    /// All domains, the group's own first.
    pub(crate) fn domains(&self) -> impl Iterator<Item = Domain> + use<> {
        (0..=self.compartments.len() as u16).map(Domain)
    }

    /// Who writes a domain without reading it.
    pub(crate) fn writers_only(&self, domain: Domain) -> Slots {
        match domain.0 {
            0 => Slots::NONE,
            d => self.compartments.get(usize::from(d) - 1).map_or(Slots::NONE, |c| c.writers_only),
        }
    }

    /// Domains that have readers and writers who do not read: their readers publish a key (A1).
    pub(crate) fn with_public_key(&self) -> Vec<Domain> {
        self.domains().filter(|d| !self.writers_only(*d).is_empty() && self.ring_of(*d).is_some()).collect()
    }

    /// Binds names, patterns and readers into the transcript of an agreement, which has 64 members at most.
    pub(crate) fn hash(&self) -> [u8; 32] {
        let mut t = Transcript::new("sealcast/v1/compartments");
        for c in &self.compartments {
            t.absorb(c.line.name.as_bytes());
            t.absorb(&(c.line.patterns.len() as u64).to_be_bytes());
            c.line.patterns.iter().for_each(|p| t.absorb(p.to_string().as_bytes()));
            t.absorb(&c.readers.word().to_be_bytes());
        }
        t.finish()
    }

    /// The compartments for people to read.
    pub(crate) fn status(&self) -> Vec<CompartmentStatus> {
        let signed = |c: &Compartment| {
            let may_all = |i: usize| c.line.patterns.iter().all(|p| self.rights[i].writes_all(&self.group, p));
            !c.readers.iter().all(may_all)
        };
        let one = |(i, c): (usize, &Compartment)| CompartmentStatus {
            domain: Domain(i as u16 + 1),
            name: c.line.name.clone(),
            patterns: c.line.patterns.iter().map(Pattern::to_string).collect(),
            readers: c.readers.iter().collect(),
            writers_only: c.writers_only.iter().collect(),
            signed: signed(c),
        };
        self.compartments.iter().enumerate().map(one).collect()
    }

    fn find(&self, topic: &str) -> Option<(Domain, &Compartment)> {
        let i = self.compartments.iter().position(|c| c.line.patterns.iter().any(|p| p.matches(topic)))?;
        Some((Domain(i as u16 + 1), &self.compartments[i]))
    }

    fn rights(&self, slot: Slot) -> Option<&Rights> {
        self.rights.get(slot.index()).map(|r| &**r)
    }
}

impl Access for Table {
    fn domain(&self, topic: &str) -> Option<Domain> {
        self.find(topic).filter(|(_, c)| c.ring.is_some()).map(|(domain, _)| domain)
    }

    fn may_publish(&self, slot: Slot, topic: &str) -> bool {
        self.rights(slot).is_some_and(|r| r.may_publish(&self.group, topic))
    }

    fn may_subscribe(&self, slot: Slot, topic: &str) -> bool {
        let reads = self.find(topic).is_some_and(|(_, c)| c.readers.holds(slot.index()));
        reads && self.rights(slot).is_some_and(|r| r.may_subscribe(&self.group, topic))
    }

    fn reads(&self, slot: Slot, domain: Domain) -> bool {
        let ring = self.ring_of(domain).and_then(|ring| self.rings().get(ring).copied());
        ring.is_some_and(|readers| readers.holds(slot.index()))
    }

    fn must_sign(&self, topic: &str) -> bool {
        let readers = self.find(topic).map_or(Slots::NONE, |(_, c)| c.readers);
        let may_not = |(i, r): (usize, &Arc<Rights>)| readers.holds(i) && !r.may_publish(&self.group, topic);
        self.rights.iter().enumerate().any(may_not)
    }
}

/// The compartments of a roster without a policy.
fn derive(group: &str, rights: &[Arc<Rights>]) -> Vec<Listed> {
    // Of a large group many have the same rights.
    let different = rights.chunk_by(Arc::ptr_eq).filter_map(|alike| alike.first());
    let mut patterns: BTreeSet<Pattern> = different.flat_map(|r| r.subscribes(group).cloned()).collect();
    let all = Pattern::all();
    patterns.remove(&all);
    let lines = patterns.into_iter().take(COMPARTMENTS_MAX - 1).chain([all]);
    lines.map(|p| Listed { name: p.to_string(), patterns: vec![p] }).collect()
}

fn slots(rights: &[Arc<Rights>], has: impl Fn(&Rights) -> bool) -> Slots {
    let mut set = Slots::NONE;
    // Of a large group many have the same rights.
    let mut last: Option<(&Arc<Rights>, bool)> = None;
    for (slot, rights) in rights.iter().enumerate() {
        let holds = match last {
            Some((before, holds)) if before == rights => holds,
            _ => has(rights),
        };
        last = Some((rights, holds));
        if holds {
            set.insert(slot);
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use sealcast_crypto::identity::rights::{Act, Right};

    use super::*;

    fn rights(list: &[(Act, &str)]) -> Arc<Rights> {
        Arc::new(list.iter().map(|(act, pattern)| Right::new("g", *act, pattern).unwrap()).collect())
    }

    fn table(members: &[&[(Act, &str)]]) -> Table {
        Table::new("g".into(), members.iter().map(|m| rights(m)).collect(), None)
    }

    #[test]
    fn equal_rights_make_one_ring() {
        let t = table(&[&[(Act::Both, "#")], &[(Act::Both, "#")]]);
        assert_eq!(t.rings(), [0b11].map(Slots::of_word));
        assert_eq!((t.domain("pose/1"), t.ring_of(Domain(1))), (Some(Domain(1)), Some(0)));
        assert!(!t.must_sign("pose/1"));
    }

    #[test]
    fn rule_a8_each_reader_set_is_a_compartment_with_a_ring_of_its_own() {
        let t = table(&[&[(Act::Both, "#")], &[(Act::Both, "pose/+")], &[(Act::Subscribe, "pose/1")]]);
        assert_eq!(t.rings(), [0b111, 0b011, 0b001].map(Slots::of_word));
        assert_eq!(t.domain("pose/1"), Some(Domain(1)), "the most specific pattern comes first");
        assert_eq!(t.ring_of(Domain(1)), Some(0), "read by all");
        assert_eq!((t.domain("pose/2"), t.ring_of(Domain(2))), (Some(Domain(2)), Some(1)));
        assert_eq!((t.domain("camera"), t.ring_of(Domain(3))), (Some(Domain(3)), Some(2)));
        assert!(t.may_subscribe(Slot(2), "pose/1") && !t.may_subscribe(Slot(2), "pose/2"));
        assert!(!t.may_subscribe(Slot(1), "camera") && !t.may_subscribe(Slot(64), "camera"));
    }

    #[test]
    fn rule_a8_a_policy_of_the_authority_rules_the_table() {
        let line = |name: &str, p: &str| Listed { name: name.into(), patterns: vec![p.parse().unwrap()] };
        let members = vec![rights(&[(Act::Both, "#")]), rights(&[(Act::Both, "pose/#")])];
        let t = Table::new("g".into(), members, Some(&[line("motion", "pose/#"), line("rest", "#")]));
        assert_eq!((t.domain("pose/9/raw"), t.domain("x")), (Some(Domain(1)), Some(Domain(2))));
        assert_eq!(t.rings(), [0b11, 0b01].map(Slots::of_word));
    }

    #[test]
    fn rule_a1_a_topic_with_a_reader_who_may_not_write_it_must_be_signed() {
        let t = table(&[&[(Act::Both, "#")], &[(Act::Subscribe, "#"), (Act::Publish, "log/+")]]);
        assert!(t.must_sign("pose/1") && !t.must_sign("log/1"));
        assert!(!t.may_publish(Slot(1), "pose/1") && t.may_publish(Slot(1), "log/1"));
    }

    #[test]
    fn rule_a1_a_writer_who_may_not_read_has_a_public_key_to_write_to() {
        let t = table(&[&[(Act::Both, "#")], &[(Act::Publish, "log/+")]]);
        assert_eq!(t.rings(), [0b11, 0b01].map(Slots::of_word));
        assert_eq!((t.writers_only(Domain(1)).word(), t.with_public_key()), (0b10, vec![Domain(1)]));
    }

    #[test]
    fn a_topic_that_nobody_reads_has_no_domain() {
        let t = table(&[&[(Act::Publish, "log/+")]]);
        assert_eq!((t.domain("log/1"), t.must_sign("log/1")), (None, false));
    }
}
