//! The bytes: what is in a ciphertext, and what brokers attach to it. Before it stands a [`SealedHeader`].
//!
//! ```text
//! plaintext  = u16 count ‖ (u32 length ‖ payload) …             one ciphertext for one payload or several
//! attachment = 1 ‖ ctid, 32 ‖ share
//!            | 2 ‖ ctid, 32 ‖ proved share ‖ signature, 64
//!            | 3 ‖ ctid, 32                                     this broker finds that we may not read it
//!            | 4 ‖ ctid, 32 ‖ pkh, 32 ‖ proved share ‖ signature, 64
//! ```
//! A proved share is signed, so that a false proof convicts its broker (E4). Form 2 is of the key's first sharing, form 4 of a
//! later one, which [`statement`] then names.

use sealcast_crypto::group::PrimeGroup;
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::signature::{SIGNATURE_LEN, Signature};
use sealcast_crypto::tdh2::{Label, ProvedShare, Share, Sharing};
use sealcast_wire::{Malformed, Reader, SealedHeader, Writer, limits};

/// What a ciphertext is bound to.
pub fn label(header: &SealedHeader) -> Label {
    Label::of(&header.client, header.number, &header.envelope)
}

/// Bytes of a sealed body that its payloads cannot use: the ciphertext's own, and the payloads' lengths.
pub const fn together_overhead(ciphertext: usize, payloads: usize) -> usize {
    ciphertext + 2 + 4 * payloads
}

/// The plaintext of these payloads; `None` if they are none, or too many or too large for one ciphertext with
/// `overhead` bytes of its own.
pub(super) fn together(payloads: &[&[u8]], overhead: usize) -> Option<Vec<u8>> {
    let size = payloads.iter().try_fold(2 + overhead, |sum, it| it.len().checked_add(4)?.checked_add(sum))?;
    if payloads.is_empty() || payloads.len() > limits::SEALED_TOGETHER_MAX || size > limits::BODY_BYTES_MAX {
        return None;
    }
    let mut w = Writer::new();
    w.u16(payloads.len() as u16);
    for payload in payloads {
        w.u32(payload.len() as u32).raw(payload);
    }
    Some(w.finish())
}

/// Reads what [`together`] wrote, and nothing else.
///
/// # Errors
/// [`Malformed`].
pub(super) fn apart(plaintext: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut r = Reader::new(plaintext);
    let count = r.count16(4, limits::SEALED_TOGETHER_MAX)?;
    let mut payloads = Vec::with_capacity(count);
    for _ in 0..count {
        let length = usize::try_from(r.u32()?).map_err(|_| Malformed)?;
        payloads.push(r.take(length)?.to_vec());
    }
    r.end()?;
    if payloads.is_empty() { Err(Malformed) } else { Ok(payloads) }
}

/// What a broker attaches to a ciphertext for one reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment<G: PrimeGroup> {
    /// ctid of the ciphertext that it is for.
    pub ciphertext: [u8; 32],
    /// What.
    pub what: What<G>,
}

/// What a broker says of a ciphertext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What<G: PrimeGroup> {
    /// Its share.
    Share(Share<G>),
    /// Its share with proof, on complaint.
    Proved(SignedShare<G>),
    /// That we may not read it.
    Denied,
}

/// A proved share under its broker's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedShare<G: PrimeGroup> {
    /// Under which sharing of the key its broker made it.
    pub sharing: Sharing,
    /// The share.
    pub proved: ProvedShare<G>,
    /// Over [`statement`].
    pub signature: Signature,
}

impl<G: PrimeGroup> Attachment<G> {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match &self.what {
            What::Share(share) => w.u8(SHARE).raw(&self.ciphertext).raw(&share.encode()),
            What::Proved(it) => {
                match &it.sharing {
                    Sharing::First => w.u8(PROVED).raw(&self.ciphertext),
                    Sharing::Later(pkh) => w.u8(PROVED_LATER).raw(&self.ciphertext).raw(pkh),
                };
                w.raw(&it.proved.encode()).raw(&it.signature)
            }
            What::Denied => w.u8(DENIED).raw(&self.ciphertext),
        };
        w.finish()
    }

    /// Reads what [`Attachment::to_bytes`] wrote, and nothing else.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Attachment<G>, Malformed> {
        let mut r = Reader::new(bytes);
        let (kind, ciphertext) = (r.u8()?, r.array()?);
        let what = match kind {
            SHARE => What::Share(Share::decode(r.rest()).map_err(|_| Malformed)?),
            PROVED => What::Proved(SignedShare::decode(&mut r, Sharing::First)?),
            PROVED_LATER => {
                let sharing = Sharing::Later(r.array()?);
                What::Proved(SignedShare::decode(&mut r, sharing)?)
            }
            DENIED => What::Denied,
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(Attachment { ciphertext, what })
    }
}

impl<G: PrimeGroup> SignedShare<G> {
    /// `proved share ‖ signature`.
    pub(super) fn decode(r: &mut Reader<'_>, sharing: Sharing) -> Result<SignedShare<G>, Malformed> {
        let proved = ProvedShare::decode(r.take(ProvedShare::<G>::LEN)?).map_err(|_| Malformed)?;
        Ok(SignedShare { sharing, proved, signature: r.array::<SIGNATURE_LEN>()? })
    }
}

/// What a broker signs with a proved share: `T("sealcast/v1/share"; cluster, ctid, proved share)` under the first sharing,
/// `T("sealcast/v1/share of sharing"; cluster, pkh, ctid, proved share)` under a later one.
///
/// A refresh changes what a right share is and keeps the ciphertext's id. Each statement therefore counts under one
/// sharing alone, or an honest broker's old share would convict it after a refresh.
pub fn statement(cluster: &[u8; 32], sharing: &Sharing, ciphertext: &[u8; 32], proved: &[u8]) -> [u8; 32] {
    let transcript = match sharing {
        Sharing::First => Transcript::new("sealcast/v1/share").add(cluster),
        Sharing::Later(pkh) => Transcript::new("sealcast/v1/share of sharing").add(cluster).add(pkh),
    };
    transcript.add(ciphertext).add(proved).finish()
}

const SHARE: u8 = 1;
const PROVED: u8 = 2;
const DENIED: u8 = 3;
const PROVED_LATER: u8 = 4;

const _: () = assert!(limits::SEALED_TOGETHER_MAX <= u16::MAX as usize && limits::BODY_BYTES_MAX <= u32::MAX as usize);
