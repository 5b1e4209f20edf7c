//! The judge of groups whose members have certificates: one authority, its revocation list, and the group's evictions.
//! Where credentials are `basic`, for experiments, names prove nothing, and any member may remove any other.
//!
//! Members must judge alike (RFC 9420, section 5.3), whatever each heard elsewhere. So the list and the evictions by which
//! they judge lie in the group context (A4), and so do complaints that exclude somebody (D3): [`Trust`] is that extension. A member that knows a newer list, or evicts somebody,
//! commits the extension with it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sealcast_crypto::identity::certificate::{Certificate, CertificateError};
use sealcast_crypto::identity::evictions::Evictions;
use sealcast_crypto::identity::pattern::Pattern;
use sealcast_crypto::identity::statement::SignedEviction;
use sealcast_crypto::identity::{self, Crl, Right, Rights, TrustAnchor, Verified};
use sealcast_crypto::signature::{Algorithm, PublicKey};
use sealcast_wire::codec::{Malformed, Reader, Writer};
use sealcast_wire::{CertHash, Utc, limits};

use super::complaints::Complaints;
use super::judge::{Act, Claim, Credential, Extension, Judge, Refusal, What};

/// Judges by one authority's certificates.
pub struct Certificates {
    group: Arc<str>,
    anchor: TrustAnchor,
    /// The same authority without its revocation list: that of the group context counts.
    dates: TrustAnchor,
    floor: Utc,
    /// What each may do whose credential is `basic`, where they are.
    basic: Option<Rights>,
    /// The time of the last call, seconds since 1970, and whether a clock said so.
    utc: AtomicI64,
    has_clock: AtomicBool,
    /// Certificates whose signature was verified, by hash.
    verified: Mutex<BTreeMap<CertHash, Arc<Verified>>>,
    /// The last extension that was read, and what it says.
    trust: Mutex<Option<(Vec<u8>, Arc<Trust>)>>,
    /// What no extension says.
    nobody: Arc<Trust>,
}

/// How members name themselves in the tree (RFC 9420, section 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CredentialKind {
    /// By certificates.
    #[default]
    X509,
    /// By names, which nothing proves: for experiments.
    Basic,
}

type Verify = fn(&TrustAnchor, &Certificate) -> Result<Arc<Verified>, CertificateError>;

/// Whom a group excludes: the authority's revocation list, statements of eviction (A4), and complaints about commits (D3).
#[derive(Clone, Debug)]
pub struct Trust {
    /// The newest list that the group knows.
    pub crl: Option<Arc<Crl>>,
    /// Who is evicted.
    pub evictions: Evictions,
    /// Members of different names who could not open commits; all whom it accuses are excluded.
    pub(super) complaints: Complaints,
}

impl Trust {
    /// That of a group in which nobody is excluded.
    pub fn new(group: &str) -> Trust {
        Trust { crl: None, evictions: Evictions::new(group), complaints: Complaints::default() }
    }

    /// Whether a certificate's holder is excluded.
    pub fn excludes(&self, it: &Verified) -> bool {
        self.evictions.excludes(&it.hash, &it.serial)
            || self.crl.as_ref().is_some_and(|crl| crl.revokes(&it.serial))
            || self.complaints.exclude(&it.hash)
    }

    /// A date that has surely passed, as all members know who follow the group (G5).
    fn newest_date(&self) -> Utc {
        self.crl.as_ref().map_or(Utc(i64::MIN), |crl| crl.this_update())
    }

    /// What both exclude, as far as a group context holds it.
    pub(super) fn with(&self, other: &Trust) -> Trust {
        let mut both = self.clone();
        let newer = |crl: &&Arc<Crl>| crl.replaces(self.crl.as_deref()) == Ok(true);
        both.crl = other.crl.as_ref().filter(newer).or(self.crl.as_ref()).cloned();
        for statement in other.evictions.iter() {
            let before = both.evictions.clone();
            let kept = both.evictions.insert(statement.clone()).is_ok();
            if !kept || both.extension().data.len() > limits::MLS_TRUST_BYTES_MAX {
                both.evictions = before;
            }
        }
        both.complaints.extend(other.complaints.excluding(|accuser| !self.excludes(accuser)));
        if both.extension().data.len() > limits::MLS_TRUST_BYTES_MAX {
            both.complaints = self.complaints.clone();
        }
        both
    }

    /// List, statements and complaints by themselves: [`Learned::verify`](sealcast_crypto::identity::statement::Learned::verify)
    /// reads all but the last.
    pub(super) fn statements(&self) -> Vec<Vec<u8>> {
        let crl = self.crl.iter().map(|it| it.der().to_vec());
        let complaints = self.complaints.iter().map(|it| it.complaint.written());
        crl.chain(self.evictions.iter().map(|it| it.bytes().to_vec())).chain(complaints).collect()
    }

    /// The extension of the group context that says so.
    pub fn extension(&self) -> Extension {
        let mut w = Writer::new();
        let crl = self.crl.as_ref().map_or(&[][..], |crl| crl.der());
        w.u32(crl.len() as u32).raw(crl).u16(self.evictions.len() as u16);
        self.evictions.iter().for_each(|it| _ = w.bytes16(it.bytes()));
        w.raw(&self.complaints.bytes());
        Extension { kind: TRUST, data: w.finish() }
    }

    /// Reads the extension; a group context without it excludes nobody.
    fn read(group: &str, anchor: &TrustAnchor, extensions: &[Extension]) -> Result<Trust, Refusal> {
        let mut trust = Trust::new(group);
        let Some(extension) = extensions.iter().find(|it| it.kind == TRUST) else { return Ok(trust) };
        let Parts { crl, statements, complaints } = parse(&extension.data).map_err(|Malformed| Refusal::Right)?;
        if !crl.is_empty() {
            trust.crl = Some(Arc::new(Crl::verify(crl, anchor).map_err(|_| Refusal::Right)?));
        }
        for statement in statements {
            let statement = SignedEviction::verify(statement, anchor).map_err(|_| Refusal::Right)?;
            trust.evictions.insert(statement).map_err(|_| Refusal::Right)?;
        }
        trust.complaints = Complaints::read(group, anchor, complaints).map_err(|Malformed| Refusal::Right)?;
        // One encoding of one content.
        if trust.extension() == *extension { Ok(trust) } else { Err(Refusal::Right) }
    }
}

/// The extension's content, of which nothing is verified.
struct Parts<'a> {
    crl: &'a [u8],
    statements: Vec<&'a [u8]>,
    complaints: &'a [u8],
}

fn parse(data: &[u8]) -> Result<Parts<'_>, Malformed> {
    if data.len() > limits::MLS_TRUST_BYTES_MAX {
        return Err(Malformed);
    }
    let mut r = Reader::new(data);
    let crl = r.u32()? as usize;
    let crl = r.take(crl)?;
    let count = r.count16(2, limits::EVICTIONS_MAX)?;
    let statements = (0..count).map(|_| r.bytes16(limits::STATEMENT_BYTES_MAX)).collect::<Result<_, _>>()?;
    Ok(Parts { crl, statements, complaints: r.rest() })
}

impl Certificates {
    /// A judge of a group; `floor` is a date that has surely passed (G5).
    pub fn new(group: Arc<str>, anchor: TrustAnchor, floor: Utc, kind: CredentialKind) -> Certificates {
        let dates = TrustAnchor::new(anchor.certificate().der()).expect("it is an anchor");
        let (utc, has_clock) = (AtomicI64::new(floor.0), AtomicBool::new(false));
        let basic = (kind == CredentialKind::Basic).then(|| {
            let mut rights = Rights::none();
            Right::new(&group, identity::Act::Both, "#").into_iter().for_each(|it| rights.grant(it));
            rights
        });
        Certificates {
            basic,
            nobody: Arc::new(Trust::new(&group)),
            group,
            anchor,
            dates,
            floor,
            utc,
            has_clock,
            verified: Mutex::default(),
            trust: Mutex::default(),
        }
    }

    /// Whom it trusts.
    pub fn anchor(&self) -> &TrustAnchor {
        &self.anchor
    }

    /// Whom a leaf names: of a certificate with a verified signature. Dates and revocation are not judged, nor whether the
    /// leaf's key is the certificate's.
    ///
    /// # Errors
    /// [`Refusal::Credential`].
    pub fn verify(&self, claim: &Claim) -> Result<Arc<Verified>, Refusal> {
        self.verify_by(claim, TrustAnchor::verify_issued)
    }

    /// The same of one that a run before verified, by this authority: [`TrustAnchor::recall`].
    pub(super) fn recall(&self, claim: &Claim) -> Result<Arc<Verified>, Refusal> {
        self.verify_by(claim, TrustAnchor::recall)
    }

    fn verify_by(&self, claim: &Claim, verify: Verify) -> Result<Arc<Verified>, Refusal> {
        match (&claim.credential, &self.basic) {
            (Credential::X509(chain), None) => self.verify_chain(chain, verify),
            (Credential::Basic(name), Some(rights)) => {
                let name = std::str::from_utf8(name).map_err(|_| Refusal::Credential)?;
                self.verified_once(Verified::claim(name, &claim.signature_key), || {
                    let algorithm = if claim.signature_key.len() == 32 { Algorithm::Ed25519 } else { Algorithm::P256 };
                    let key = PublicKey::new(algorithm, &claim.signature_key).map_err(|_| Refusal::Key)?;
                    Verified::claimed(name, key, rights.clone()).map(Arc::new).map_err(|_| Refusal::Credential)
                })
            }
            (Credential::X509(_), Some(_)) | (Credential::Basic(_), None) => Err(Refusal::Credential),
        }
    }

    fn verify_chain(&self, chain: &[Vec<u8>], verify: Verify) -> Result<Arc<Verified>, Refusal> {
        let [der] = chain else { return Err(Refusal::Credential) };
        let certificate = Certificate::parse(der).map_err(|_| Refusal::Credential)?;
        self.verified_once(certificate.hash(), || verify(&self.anchor, &certificate).map_err(|_| Refusal::Credential))
    }

    fn verified_once(
        &self,
        hash: CertHash,
        verify: impl FnOnce() -> Result<Arc<Verified>, Refusal>,
    ) -> Result<Arc<Verified>, Refusal> {
        let known = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().get(&hash) {
            return Ok(known.clone());
        }
        // Several threads may verify at once.
        let verified = verify()?;
        let mut known = known();
        if known.len() >= limits::MLS_PEOPLE_MAX {
            known.clear();
        }
        known.insert(verified.hash, verified.clone());
        Ok(verified)
    }

    /// Whether a member may remove another one that is not excluded.
    pub(super) fn may_remove(&self, by: &Verified, whom: &Verified) -> bool {
        self.basic.is_some() || by.rights.may_evict(&self.group, &whom.rights)
    }

    /// Whom a group with these extensions excludes.
    ///
    /// # Errors
    /// [`Refusal::Right`] if the extension is not one that members make.
    pub fn trust(&self, extensions: &[Extension]) -> Result<Arc<Trust>, Refusal> {
        let Some(Extension { data, .. }) = extensions.iter().find(|it| it.kind == TRUST) else {
            return Ok(self.nobody.clone());
        };
        let mut known = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, trust)) = known.as_ref().filter(|(bytes, _)| bytes == data) {
            return Ok(trust.clone());
        }
        let trust = Arc::new(Trust::read(&self.group, &self.anchor, extensions)?);
        *known = Some((data.clone(), trust.clone()));
        Ok(trust)
    }
}

impl Judge for Certificates {
    fn identity(&self, credential: &Credential) -> Result<Vec<u8>, Refusal> {
        match (credential, &self.basic) {
            (Credential::X509(chain), None) if let [der] = chain.as_slice() => {
                Ok(sealcast_crypto::hash::sha256(der).to_vec())
            }
            (Credential::Basic(name), Some(_)) => Ok(name.clone()),
            (Credential::X509(_) | Credential::Basic(_), _) => Err(Refusal::Credential),
        }
    }

    fn admit(&self, claim: &Claim, utc: Utc, extensions: &[Extension]) -> Result<(), Refusal> {
        let it = self.verify(claim)?;
        if it.key.point() != claim.signature_key {
            return Err(Refusal::Key);
        }
        // One set of readers: who reads not all of it, or writes only, needs a group of its own.
        if !it.rights.is_member(&self.group) || !it.rights.reads_all(&self.group, &Pattern::all()) {
            return Err(Refusal::Right);
        }
        let trust = self.trust(extensions)?;
        if trust.excludes(&it) {
            return Err(Refusal::Revoked);
        }
        if self.basic.is_some() {
            return Ok(());
        }
        // Without a clock nothing is too early (G5).
        let late = utc.max(trust.newest_date());
        let utc = Some(late).filter(|_| self.has_clock.load(Ordering::Relaxed));
        self.dates.check(&it, utc, self.floor.max(late)).map_err(|_| Refusal::Time)
    }

    fn permit(&self, act: &Act<'_>) -> Result<(), Refusal> {
        let (by, whom) = match act.what {
            // Whom a member may let in is judged by `admit`.
            What::Add(_) | What::Join => return Ok(()),
            What::Remove(whom) if whom == act.by || self.basic.is_some() => return Ok(()),
            What::Remove(Credential::X509(whom)) if let Credential::X509(by) = act.by => (by, whom),
            What::Remove(_) => return Err(Refusal::Credential),
            What::Extensions(new) => return self.follows(act.extensions, new),
        };
        let of = |chain: &[Vec<u8>]| self.verify_chain(chain, TrustAnchor::verify_issued);
        let (by, whom, trust) = (of(by)?, of(whom)?, self.trust(act.extensions)?);
        // Members' clocks may differ: the committer waits longer.
        let listed = whom.not_after.0.saturating_add(OVER_SECONDS) < trust.newest_date().0;
        let over = listed || self.is_over(&whom, OVER_SECONDS);
        let may = trust.excludes(&whom) || over || by.rights.may_evict(&self.group, &whom.rights);
        if may { Ok(()) } else { Err(Refusal::Right) }
    }
}

impl Certificates {
    /// It is this late, by a clock or at least.
    pub(super) fn set_time(&self, utc: Utc, has_clock: bool) {
        self.utc.store(utc.0, Ordering::Relaxed);
        self.has_clock.store(has_clock, Ordering::Relaxed);
    }

    /// Whether a certificate ended so many seconds ago.
    pub(super) fn is_over(&self, it: &Verified, seconds: i64) -> bool {
        self.is_past(it.not_after, seconds)
    }

    /// Whether this was so many seconds ago.
    pub(super) fn is_past(&self, at: Utc, seconds: i64) -> bool {
        at.0.saturating_add(seconds) < self.utc.load(Ordering::Relaxed)
    }

    /// Whether the revocation list that we were started with revokes a certificate.
    pub(super) fn is_revoked(&self, it: &Verified) -> bool {
        self.anchor.crl().is_some_and(|crl| crl.revokes(&it.serial))
    }

    /// Whether these extensions exclude all whom those exclude, and say nothing else anew: the complaints that come are by
    /// certificates which those do not exclude.
    fn follows(&self, old: &[Extension], new: &[Extension]) -> Result<(), Refusal> {
        let others = |of: &[Extension]| of.iter().filter(|it| it.kind != TRUST).cloned().collect::<Vec<_>>();
        if others(old) != others(new) {
            return Err(Refusal::Right);
        }
        let (before, after) = (self.trust(old)?, self.trust(new)?);
        let newer = match (&before.crl, &after.crl) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(before), Some(after)) => before.der() == after.der() || after.replaces(Some(before)).unwrap_or(false),
        };
        let mut both = after.evictions.clone();
        let keeps = before.evictions.iter().all(|it| both.insert(it.clone()) == Ok(false));
        let may_complain = |it: &Verified| it.rights.reads_all(&self.group, &Pattern::all()) && !before.excludes(it);
        let complains = after.complaints.follow(&before.complaints, may_complain);
        if newer && keeps && complains { Ok(()) } else { Err(Refusal::Right) }
    }
}

/// So long after the end of a certificate any member may remove its holder.
pub(super) const OVER_SECONDS: i64 = 3600;
/// The extension's number, of those for private use (RFC 9420, section 17.3).
pub const TRUST: u16 = 0xF0A4;
