//! What the group's authority, or who has the right, said for ever: evictions, revocations, policy.
//!
//! Evictions are a grow-only set; the CRL and the policy have numbers that never go back (A4, A10).
//! Members compare hashes and hand each other what is missing, before any round of an agreement.

use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::anchor::{TrustAnchor, Verified};
use sealcast_crypto::identity::evictions::Evictions;
use sealcast_crypto::identity::statement::{self, Compartment, Kind, OnStale, SignedEviction, SignedPolicy};
use sealcast_wire::{Now, Utc};

use super::message::{Object, State, Summary, first8};
use super::people::Person;

/// Everything of the kind that we know.
pub(super) struct Statements {
    group: String,
    anchor: TrustAnchor,
    evictions: Evictions,
    policy: Option<SignedPolicy>,
    /// The build's date at least (G5).
    floor: Utc,
}

/// Why something signed was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotLearnt;

impl Statements {
    pub(super) fn new(group: &str, anchor: TrustAnchor, floor: Utc) -> Statements {
        Statements { group: group.to_owned(), anchor, evictions: Evictions::new(group), policy: None, floor }
    }

    /// Whether these very bytes were learnt already, or say no more than what was; costs no check.
    pub(super) fn knows(&self, bytes: &[u8]) -> bool {
        match Kind::of(bytes) {
            Some(Kind::Eviction) => statement::id(bytes, &self.anchor).is_some_and(|id| self.evictions.contains(&id)),
            Some(Kind::Crl) => self.anchor.crl().is_some_and(|crl| crl.der()[..] == *bytes),
            Some(Kind::Policy) => self.policy.as_ref().is_some_and(|p| p.bytes() == bytes),
            None => false,
        }
    }

    /// Takes in an eviction, a CRL or a policy, told apart by their first bytes; whether it was new.
    ///
    /// # Errors
    /// [`NotLearnt`] if it does not verify, is another group's, or is older than what we have.
    pub(super) fn learn(&mut self, bytes: &[u8]) -> Result<bool, NotLearnt> {
        if self.knows(bytes) {
            return Ok(false);
        }
        match Kind::of(bytes).ok_or(NotLearnt)? {
            Kind::Eviction => {
                let signed = SignedEviction::verify(bytes, &self.anchor).map_err(|_| NotLearnt)?;
                self.evictions.insert(signed).map_err(|_| NotLearnt)
            }
            Kind::Crl => self.anchor.learn_crl(bytes).map_err(|_| NotLearnt),
            Kind::Policy => {
                let signed = SignedPolicy::verify(bytes, &self.anchor).map_err(|_| NotLearnt)?;
                if signed.policy().group != self.group {
                    return Err(NotLearnt);
                }
                let newer = signed.replaces(self.policy.as_ref()).map_err(|_| NotLearnt)?;
                if newer {
                    self.policy = Some(signed);
                }
                Ok(newer)
            }
        }
    }

    /// Whether somebody may be in no ring: evicted, or revoked. Expiry alone changes no roster (A10).
    pub(super) fn excludes(&self, cert: &Verified) -> bool {
        self.evictions.excludes(&cert.hash, &cert.serial) || self.anchor.crl().is_some_and(|c| c.revokes(&cert.serial))
    }

    /// Whether a newcomer may be let in now.
    pub(super) fn admits(&self, now: Now, person: &Person) -> bool {
        let refuses = matches!(self.staleness(now), Some(OnStale::RefuseJoins | OnStale::Stop));
        !refuses && !self.excludes(&person.cert) && self.anchor.check(&person.cert, now.utc, self.floor()).is_ok()
    }

    /// The eviction of somebody, for the log.
    pub(super) fn eviction_of(&self, cert: &Verified) -> Option<&SignedEviction> {
        self.evictions.find(&cert.hash, &cert.serial)
    }

    /// What the age of the revocation list leads to, if it is too old.
    pub(super) fn staleness(&self, now: Now) -> Option<OnStale> {
        self.policy.as_ref()?.policy().staleness(self.anchor.crl(), now.utc, self.floor())
    }

    pub(super) fn anchor(&self) -> &TrustAnchor {
        &self.anchor
    }

    pub(super) fn evictions(&self) -> &Evictions {
        &self.evictions
    }

    /// The lines of the policy, if there is one with lines.
    pub(super) fn lines(&self) -> Option<&[Compartment]> {
        self.policy.as_ref().map(|p| &p.policy().compartments[..]).filter(|lines| !lines.is_empty())
    }

    /// A time that has surely come (G5).
    pub(super) fn floor(&self) -> Utc {
        self.floor.max(self.anchor.newest_date())
    }

    /// Binds all of it.
    pub(super) fn hash(&self) -> [u8; 32] {
        let s = self.summary();
        let t = Transcript::new("sealcast/v1/statements").add(&self.evictions.hash());
        t.add(&s.crl.to_be_bytes()).add(&s.policy.to_be_bytes()).finish()
    }

    /// The first bytes of [`Statements::hash`], as proposals carry them.
    pub(super) fn hint(&self) -> [u8; 4] {
        *self.hash().first_chunk().expect("32 bytes have a first 4")
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            evictions: u64::from_be_bytes(first8(&self.evictions.hash())),
            crl: self.anchor.crl().map_or(0, |c| c.number()),
            policy: self.policy.as_ref().map_or(0, |p| p.policy().number),
        }
    }

    /// The list of what we know.
    pub(super) fn state(&self) -> State {
        let summary = self.summary();
        let mut evictions: Vec<[u8; 8]> = self.evictions.iter().map(|s| first8(&s.id())).collect();
        evictions.sort_unstable();
        State { crl: summary.crl, policy: summary.policy, evictions }
    }

    /// What we know and the author of `theirs` does not.
    pub(super) fn beyond(&self, theirs: &State) -> Vec<Object> {
        let unknown = self.evictions.iter().filter(|s| theirs.evictions.binary_search(&first8(&s.id())).is_err());
        let mut objects: Vec<Object> = unknown.map(|s| Object::Eviction(s.bytes().to_vec())).collect();
        let mine = self.summary();
        objects.extend(self.anchor.crl().filter(|_| mine.crl > theirs.crl).map(|c| Object::Crl(c.der().to_vec())));
        let policy = self.policy.as_ref().filter(|_| mine.policy > theirs.policy);
        objects.extend(policy.map(|p| Object::Policy(p.bytes().to_vec())));
        objects.retain(Object::fits);
        objects
    }

    /// Whether the author of `theirs` knows something that we do not.
    pub(super) fn lacks(&self, theirs: &State) -> bool {
        let mine = self.state();
        theirs.crl > mine.crl
            || theirs.policy > mine.policy
            || theirs.evictions.iter().any(|id| mine.evictions.binary_search(id).is_err())
    }

    /// All of it as records to be kept, so that a restart does not go back (A10).
    pub(super) fn records(&self) -> Vec<(u64, Vec<u8>)> {
        let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
        records.extend(self.anchor.crl().map(|c| (RECORD_CRL, c.der().to_vec())));
        records.extend(self.policy.as_ref().map(|p| (RECORD_POLICY, p.bytes().to_vec())));
        let number = |(i, s): (usize, &SignedEviction)| (RECORD_EVICTIONS + i as u64, s.bytes().to_vec());
        records.extend(self.evictions.iter().enumerate().map(number));
        records
    }
}

const RECORD_CRL: u64 = 1;
const RECORD_POLICY: u64 = 2;
const RECORD_EVICTIONS: u64 = 16;
