//! What was verified once, remembered: for simulations, where all members live in one process and each
//! would verify the same signatures, certificates and proofs again.
//!
//! Verification is a pure function of its inputs, so remembering changes no outcome and no trace. Off
//! unless [`super::Config`] carries a [`Memo`]; a real member hears each message about once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealcast_crypto::dutta_barua::{Contribution, Misbehaved, Ring, Round2, Share};
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::anchor::{TrustAnchor, Verified};
use sealcast_crypto::identity::certificate::{Certificate, CertificateError};
use sealcast_crypto::signature::PublicKey;
use sealcast_wire::Utc;

/// Remembers verdicts; shared by all simulated members.
#[derive(Default)]
pub struct Memo {
    verdicts: Mutex<Verdicts>,
}

#[derive(Default)]
struct Verdicts {
    signatures: BTreeMap<[u8; 32], bool>,
    certificates: BTreeMap<[u8; 32], Arc<Verified>>,
    contributions: BTreeMap<[u8; 32], Result<Contribution, Misbehaved>>,
    shares: BTreeMap<[u8; 32], Result<Share, Misbehaved>>,
}

/// Verifies, by way of a memo if there is one.
#[derive(Clone, Default)]
pub(super) struct Verifier(pub(super) Option<Arc<Memo>>);

impl Verifier {
    pub(super) fn signature(&self, key: &PublicKey, message: &[u8; 32], signature: &[u8; 64]) -> bool {
        let verify = || key.verify(message, signature).is_ok();
        let Some(memo) = &self.0 else { return verify() };
        let id = Transcript::new("memo/signature").add(key.point()).add(message).add(signature).finish();
        *memo.lock().signatures.entry(id).or_insert_with(verify)
    }

    /// Verifies a certificate against the authority, its dates, and the revocation list.
    pub(super) fn certificate(
        &self,
        anchor: &TrustAnchor,
        der: &[u8],
        utc: Option<Utc>,
        floor: Utc,
    ) -> Result<Arc<Verified>, CertificateError> {
        let verify = || anchor.verify(&Certificate::parse(der)?, utc, floor);
        let Some(memo) = &self.0 else { return verify() };
        let id = Transcript::new("memo/certificate").add(anchor.key().point()).add(der).finish();
        let known = memo.lock().certificates.get(&id).cloned();
        if let Some(verified) = known {
            // The signature does not age; dates and revocation do.
            return anchor.check(&verified, utc, floor).map(|()| verified);
        }
        let verified = verify()?;
        memo.lock().certificates.insert(id, verified.clone());
        Ok(verified)
    }

    /// Checks an X; `id` names the ring and what it is bound to.
    pub(super) fn contribution(
        &self,
        id: &[u8],
        ring: &Ring,
        seat: usize,
        bytes: &[u8],
    ) -> Result<Contribution, Misbehaved> {
        let decode = || Contribution::decode(ring, seat, bytes);
        let Some(memo) = &self.0 else { return decode() };
        let id = Transcript::new("memo/x").add(id).add(&[seat as u8]).add(bytes).finish();
        *memo.lock().contributions.entry(id).or_insert_with(decode)
    }

    /// Checks another seat's Y; `id` names the ring, what it is bound to, and all X.
    pub(super) fn share(&self, id: &[u8], round: &Round2, seat: usize, bytes: &[u8]) -> Result<Share, Misbehaved> {
        let admit = || round.admit(seat, bytes);
        let Some(memo) = &self.0 else { return admit() };
        let id = Transcript::new("memo/y").add(id).add(&[seat as u8]).add(bytes).finish();
        *memo.lock().shares.entry(id).or_insert_with(admit)
    }
}

impl Memo {
    /// Forgets all: between two simulated runs, so that memory stays small.
    pub fn clear(&self) {
        *self.lock() = Verdicts::default();
    }

    fn lock(&self) -> MutexGuard<'_, Verdicts> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memo")
    }
}
