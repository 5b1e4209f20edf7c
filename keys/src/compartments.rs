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
use sealcast_wire::limits::COMPARTMENTS_MAX;
use sealcast_wire::{Access, Domain, Slot};

use crate::status::CompartmentStatus;

/// The numbers of the bits that are set.
pub(crate) fn bits(set: Slots) -> impl Iterator<Item = usize> {
    (0..64).filter(move |i| set >> i & 1 == 1)
}

/// Whether a slot's bit is set.
pub(crate) fn holds(set: Slots, slot: usize) -> bool {
    slot < 64 && set >> slot & 1 == 1
}

/// Slots as bits.
pub(crate) type Slots = u64;

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
        let everybody: Slots = if rights.len() == 64 { Slots::MAX } else { (1 << rights.len()) - 1 };
        let mut rings = vec![everybody];
        let mut compartments = Vec::new();
        for line in lines.into_iter().take(COMPARTMENTS_MAX) {
            let readers = slots(&rights, |r| line.patterns.iter().all(|p| r.reads_all(&group, p)));
            let writes = |r: &Rights| r.publishes(&group).any(|w| line.patterns.iter().any(|p| w.overlaps(p)));
            let writers_only = slots(&rights, writes) & !readers;
            let ring = (readers != 0).then(|| {
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
            0 => 0,
            d => self.compartments.get(usize::from(d) - 1).map_or(0, |c| c.writers_only),
        }
    }

    /// Domains that have readers and writers who do not read: their readers publish a key (A1).
    pub(crate) fn with_public_key(&self) -> Vec<Domain> {
        self.domains().filter(|d| self.writers_only(*d) != 0 && self.ring_of(*d).is_some()).collect()
    }

    /// Binds names, patterns and readers into the transcript.
    pub(crate) fn hash(&self) -> [u8; 32] {
        let mut t = Transcript::new("sealcast/v1/compartments");
        for c in &self.compartments {
            t.absorb(c.line.name.as_bytes());
            t.absorb(&(c.line.patterns.len() as u64).to_be_bytes());
            c.line.patterns.iter().for_each(|p| t.absorb(p.to_string().as_bytes()));
            t.absorb(&c.readers.to_be_bytes());
        }
        t.finish()
    }

    /// The compartments for people to read.
    pub(crate) fn status(&self) -> Vec<CompartmentStatus> {
        let signed = |c: &Compartment| {
            let may_all = |i: usize| c.line.patterns.iter().all(|p| self.rights[i].writes_all(&self.group, p));
            !bits(c.readers).all(may_all)
        };
        let one = |(i, c): (usize, &Compartment)| CompartmentStatus {
            domain: Domain(i as u16 + 1),
            name: c.line.name.clone(),
            patterns: c.line.patterns.iter().map(Pattern::to_string).collect(),
            readers: bits(c.readers).collect(),
            writers_only: bits(c.writers_only).collect(),
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
        let reads = self.find(topic).is_some_and(|(_, c)| slot.0 < 64 && c.readers >> slot.0 & 1 == 1);
        reads && self.rights(slot).is_some_and(|r| r.may_subscribe(&self.group, topic))
    }

    fn reads(&self, slot: Slot, domain: Domain) -> bool {
        let ring = self.ring_of(domain).and_then(|ring| self.rings().get(ring).copied());
        ring.is_some_and(|readers| slot.0 < 64 && readers >> slot.0 & 1 == 1)
    }

    fn must_sign(&self, topic: &str) -> bool {
        let readers = self.find(topic).map_or(0, |(_, c)| c.readers);
        let may_not = |(i, r): (usize, &Arc<Rights>)| readers >> i & 1 == 1 && !r.may_publish(&self.group, topic);
        self.rights.iter().enumerate().any(may_not)
    }
}

/// The compartments of a roster without a policy.
fn derive(group: &str, rights: &[Arc<Rights>]) -> Vec<Listed> {
    let mut patterns: BTreeSet<Pattern> = rights.iter().flat_map(|r| r.subscribes(group).cloned()).collect();
    let all = Pattern::all();
    patterns.remove(&all);
    let lines = patterns.into_iter().take(COMPARTMENTS_MAX - 1).chain([all]);
    lines.map(|p| Listed { name: p.to_string(), patterns: vec![p] }).collect()
}

fn slots(rights: &[Arc<Rights>], has: impl Fn(&Rights) -> bool) -> Slots {
    rights.iter().enumerate().filter(|(_, r)| has(r)).fold(0, |bits, (i, _)| bits | 1 << i)
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
        assert_eq!(t.rings(), [0b11]);
        assert_eq!((t.domain("pose/1"), t.ring_of(Domain(1))), (Some(Domain(1)), Some(0)));
        assert!(!t.must_sign("pose/1"));
    }

    #[test]
    fn rule_a8_each_reader_set_is_a_compartment_with_a_ring_of_its_own() {
        let t = table(&[&[(Act::Both, "#")], &[(Act::Both, "pose/+")], &[(Act::Subscribe, "pose/1")]]);
        assert_eq!(t.rings(), [0b111, 0b011, 0b001]);
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
        assert_eq!(t.rings(), [0b11, 0b01]);
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
        assert_eq!(t.rings(), [0b11, 0b01]);
        assert_eq!((t.writers_only(Domain(1)), t.with_public_key()), (0b10, vec![Domain(1)]));
    }

    #[test]
    fn a_topic_that_nobody_reads_has_no_domain() {
        let t = table(&[&[(Act::Publish, "log/+")]]);
        assert_eq!((t.domain("log/1"), t.must_sign("log/1")), (None, false));
    }
}
