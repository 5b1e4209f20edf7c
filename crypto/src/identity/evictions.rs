//! The set of a group's evictions (A4): it only grows, and whatever the order in which statements arrive,
//! members who have seen the same ones hold the same set, with the same hash.
//!
//! Of several statements by one signer about one certificate one is kept: the authority's highest number,
//! a member's lowest. A signer can therefore not fill the set by repeating itself.
//!
//! **When a signer's power ends.** A statement is judged without dates and revocation, since a set that
//! depended on the moment would differ between members. A member with an `evict` right who turns out to be
//! hostile could therefore go on evicting others after its own eviction, under numbers that it chooses. The
//! authority's eviction of it may void all that it signed; what of it is to stay, the authority signs anew
//! before. Only the authority can void: what two members say of each other both counts.

use std::collections::BTreeMap;

use sealcast_wire::{CertHash, limits};

use super::serial::Serial;
use super::statement::{SignedEviction, Signer};
use crate::hash::Transcript;

/// The statements of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evictions {
    group: String,
    /// By evicted certificate and signer, `None` being the authority.
    statements: BTreeMap<(CertHash, Option<CertHash>), SignedEviction>,
    hash: [u8; 32],
}

/// Why a statement was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvictionsError {
    /// It speaks of another group.
    #[error("the statement is about another group")]
    OtherGroup,
    /// [`limits::EVICTIONS_MAX`] are there, or half as many by members.
    #[error("the group has as many evictions as it can hold; its authority should issue new certificates")]
    Full,
}

impl Evictions {
    /// The empty set.
    pub fn new(group: &str) -> Evictions {
        let mut set = Evictions { group: group.to_owned(), statements: BTreeMap::new(), hash: [0; 32] };
        set.hash = set.compute_hash();
        set
    }

    /// Adds a verified statement; whether that changed the set.
    ///
    /// # Errors
    /// `OtherGroup` or `Full`. Members' statements fill at most half of the set, so that the authority's
    /// always find room.
    pub fn insert(&mut self, statement: SignedEviction) -> Result<bool, EvictionsError> {
        if statement.eviction().group != self.group {
            return Err(EvictionsError::OtherGroup);
        }
        let key = (statement.eviction().certificate, statement.signer().certificate());
        let max = if key.1.is_some() { limits::EVICTIONS_MAX / 2 } else { limits::EVICTIONS_MAX };
        let changed = match self.statements.get(&key) {
            Some(known) => is_preferred(&statement, known),
            None if self.statements.len() >= max => return Err(EvictionsError::Full),
            None => true,
        };
        if changed {
            self.statements.insert(key, statement);
            self.hash = self.compute_hash();
        }
        Ok(changed)
    }

    /// The eviction that counts for this certificate, if there is one: the authority's before members'.
    /// A serial number is evicted whatever the bytes of its certificate.
    pub fn find(&self, certificate: &CertHash, serial: &Serial) -> Option<&SignedEviction> {
        let about = |s: &&SignedEviction| s.eviction().certificate == *certificate || s.eviction().serial == *serial;
        let mut counting = self.statements.values().filter(about).filter(|s| self.counts(s)).peekable();
        let first = counting.peek().copied();
        counting.find(|s| *s.signer() == Signer::Authority).or(first)
    }

    /// Whether the holder of this certificate is evicted.
    pub fn excludes(&self, certificate: &CertHash, serial: &Serial) -> bool {
        self.find(certificate, serial).is_some()
    }

    /// Whether a statement with this id is in the set.
    pub fn contains(&self, id: &[u8; 32]) -> bool {
        self.statements.values().any(|s| s.id() == *id)
    }

    /// The highest number that a signer has used; its next statement takes a higher one. `None` is the
    /// authority.
    pub fn last_number(&self, signer: Option<CertHash>) -> u64 {
        self.statements.iter().filter(|((_, by), _)| *by == signer).map(|(_, s)| s.eviction().number).max().unwrap_or(0)
    }

    /// SHA-256 over group and statements; equal if and only if the sets are.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// All statements, ordered by evicted certificate.
    pub fn iter(&self) -> impl Iterator<Item = &SignedEviction> {
        self.statements.values()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Whether the authority has not taken the power from its signer.
    fn counts(&self, statement: &SignedEviction) -> bool {
        let Some(by) = statement.signer().certificate() else { return true };
        self.statements.get(&(by, None)).is_none_or(|s| !s.eviction().voids)
    }

    fn compute_hash(&self) -> [u8; 32] {
        let mut transcript = Transcript::new("sealcast/v1/evictions").add(self.group.as_bytes());
        self.statements.values().for_each(|s| transcript.absorb(&s.id()));
        transcript.finish()
    }
}

/// Which of two statements of one signer about one certificate is kept; a total order, so that the order
/// of arrival does not matter.
fn is_preferred(new: &SignedEviction, known: &SignedEviction) -> bool {
    let rank = |s: &SignedEviction| (s.eviction().number, s.id());
    match new.signer() {
        Signer::Authority => rank(new) > rank(known),
        Signer::Member(_) => rank(new) < rank(known),
    }
}
