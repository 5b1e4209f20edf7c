//! VOUCH: a member's word, under the new epoch's key, for the last datagrams it sealed under the old
//! one (A5).
//!
//! ```text
//! | 1 | old epoch id (12) | n (2) | n × ( domain (2) | counter (8) | digest (16) ) | proof (rest) |
//! ```
//! It travels on the control lane, so that whoever was excluded can neither read nor make it; the proof
//! is the member's signature over the new epoch, its slot and all the bytes before (A3).

use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_wire::{Domain, EpochId, Malformed, Protect, Reader, Slot, Writer, limits};

/// The first 128 bits of a datagram's SHA-256, sealed as it was sent.
pub(super) type Digest = [u8; 16];

/// Names one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Voucher {
    /// Which key sealed it.
    pub(super) domain: Domain,
    /// Its packet counter.
    pub(super) counter: u64,
    /// Its bytes.
    pub(super) digest: Digest,
}

/// The digest of a sealed datagram.
pub(super) fn digest(datagram: &[u8]) -> Digest {
    sha256(datagram)[..16].try_into().expect("16 of 32 bytes")
}

/// The first byte of a VOUCH on the control lane; the key scheme's own messages begin with another one.
pub(super) const TAG_VOUCH: u8 = 1;
/// The first byte of a key scheme's message on the control lane.
pub(super) const TAG_KEYS: u8 = 0;

/// Writes a VOUCH for `old`, signed with the new epoch's capability.
pub(super) fn write(old: EpochId, vouchers: &[Voucher], protect: &dyn Protect) -> Vec<u8> {
    let vouchers = &vouchers[vouchers.len().saturating_sub(limits::VOUCHED_PACKETS)..];
    let mut w = Writer::new();
    w.u8(TAG_VOUCH).raw(&old.to_bytes());
    w.u16(u16::try_from(vouchers.len()).expect("cut to VOUCHED_PACKETS"));
    for voucher in vouchers {
        w.u16(voucher.domain.0).u64(voucher.counter).raw(&voucher.digest);
    }
    let mut bytes = w.finish();
    let statement = statement(protect.epoch(), protect.slot(), &bytes);
    protect.vouch(&statement, &mut bytes);
    bytes
}

/// Reads a VOUCH that came sealed under `protect`'s epoch from the member at `by`; the old epoch and
/// what is vouched for.
pub(super) fn read(message: &[u8], by: Slot, protect: &dyn Protect) -> Result<(EpochId, Vec<Voucher>), VouchError> {
    let mut r = Reader::new(message);
    if r.u8()? != TAG_VOUCH {
        return Err(VouchError::Malformed);
    }
    let old = EpochId { counter: r.u32()?, hash: r.u64()? };
    let n = r.count16(VOUCHER_BYTES, limits::VOUCHED_PACKETS)?;
    let mut vouchers = Vec::with_capacity(n);
    for _ in 0..n {
        vouchers.push(Voucher { domain: Domain(r.u16()?), counter: r.u64()?, digest: r.array()? });
    }
    let proof = r.rest();
    let stated = &message[..message.len() - proof.len()];
    if !protect.vouched(by, &statement(protect.epoch(), by, stated), proof) {
        return Err(VouchError::Proof);
    }
    Ok((old, vouchers))
}

fn statement(new: EpochId, by: Slot, stated: &[u8]) -> [u8; 32] {
    Transcript::new("sealcast/v1/vouch").add(&new.to_bytes()).add(&by.0.to_be_bytes()).add(stated).finish()
}

const VOUCHER_BYTES: usize = 2 + 8 + 16;

/// Why a VOUCH is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VouchError {
    Malformed,
    Proof,
}

impl From<Malformed> for VouchError {
    fn from(_: Malformed) -> VouchError {
        VouchError::Malformed
    }
}
