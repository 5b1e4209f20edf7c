//! What a leader and a member share, and what they say to each other under it.
//!
//! ```text
//! σ of the centre ── HKDF(runs of leader and member, "sealcast/v1/center/pair", group) ──▶ pair key ──▶ tags, entries
//! ```
//! The runs in it are drawn at each start, so that no tag and no entry of an earlier run holds. Each kind of message has a
//! label, which also tells directions apart.

use sealcast_crypto::aead::{Key, Suite};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::leighton_micali::{Forged, PairSecret, tag, verify};
use sealcast_crypto::secret::Secret;
use sealcast_wire::MemberId;

use super::message::{Accept, Ack, Challenge, Dismiss, Lack, Tag, Wish};

/// The key of a leader and a member, in one run of each.
#[derive(Clone)]
pub(super) struct PairKey(Secret<32>);

impl PairKey {
    pub(super) fn new(group: &str, sigma: &PairSecret, leader: &MemberId, member: &MemberId) -> PairKey {
        let runs = [leader.incarnation.0, member.incarnation.0].concat();
        PairKey(hkdf(sigma.expose(), &runs, &[b"sealcast/v1/center/pair", group.as_bytes()]))
    }

    fn tag(&self, label: &str, parts: &[&[u8]]) -> Tag {
        *tag(&self.0, label, parts).first_chunk().expect("a tag has 32 bytes")
    }

    pub(super) fn challenge(&self, it: &Challenge) -> Tag {
        self.tag(CHALLENGE, &[&it.token])
    }

    pub(super) fn check_challenge(&self, it: &Challenge) -> Result<(), Forged> {
        verify(&self.0, CHALLENGE, &[&it.token], &it.tag)
    }

    pub(super) fn accept(&self, it: &Accept) -> Tag {
        self.tag(ACCEPT, &[&it.token, &it.epoch.to_bytes()])
    }

    pub(super) fn check_accept(&self, it: &Accept) -> Result<(), Forged> {
        verify(&self.0, ACCEPT, &[&it.token, &it.epoch.to_bytes()], &it.tag)
    }

    pub(super) fn lack(&self, it: &Lack) -> Tag {
        self.tag(LACK, &[&it.proposal, &it.parts.to_be_bytes()])
    }

    pub(super) fn check_lack(&self, it: &Lack) -> Result<(), Forged> {
        verify(&self.0, LACK, &[&it.proposal, &it.parts.to_be_bytes()], &it.tag)
    }

    pub(super) fn ack(&self, it: &Ack) -> Tag {
        self.tag(ACK, &[&it.proposal, &it.base.to_bytes(), &it.cut])
    }

    pub(super) fn check_ack(&self, it: &Ack) -> Result<(), Forged> {
        verify(&self.0, ACK, &[&it.proposal, &it.base.to_bytes(), &it.cut], &it.tag)
    }

    pub(super) fn wish(&self, it: &Wish) -> Tag {
        self.tag(WISH, &[&it.epoch.to_bytes(), &[it.what as u8]])
    }

    pub(super) fn check_wish(&self, it: &Wish) -> Result<(), Forged> {
        verify(&self.0, WISH, &[&it.epoch.to_bytes(), &[it.what as u8]], &it.tag)
    }

    pub(super) fn dismiss(&self, it: &Dismiss) -> Tag {
        self.tag(DISMISS, &[&[it.why as u8]])
    }

    pub(super) fn check_dismiss(&self, it: &Dismiss) -> Result<(), Forged> {
        verify(&self.0, DISMISS, &[&[it.why as u8]], &it.tag)
    }

    /// Seals one member's entry of an epoch.
    pub(super) fn seal_entry(&self, transcript: &[u8; 32], plaintext: &[u8]) -> Vec<u8> {
        let mut sealed = [plaintext, &[0; 16]].concat();
        self.entry(transcript).seal(0, transcript, &mut sealed);
        sealed
    }

    /// Opens what [`PairKey::seal_entry`] made.
    pub(super) fn open_entry<'a>(&self, transcript: &[u8; 32], sealed: &'a mut [u8]) -> Result<&'a mut [u8], Forged> {
        self.entry(transcript).open(0, transcript, sealed).map_err(|_| Forged)
    }

    /// Of one epoch, so that its one nonce is used once.
    fn entry(&self, transcript: &[u8; 32]) -> Key {
        Key::new(Suite::Aes256Gcm, &hkdf(self.0.expose(), transcript, &[b"sealcast/v1/center/entry"]))
    }
}

const CHALLENGE: &str = "sealcast/v1/center/challenge";
const ACCEPT: &str = "sealcast/v1/center/accept";
const LACK: &str = "sealcast/v1/center/lack";
const ACK: &str = "sealcast/v1/center/ack";
const WISH: &str = "sealcast/v1/center/wish";
const DISMISS: &str = "sealcast/v1/center/dismiss";
