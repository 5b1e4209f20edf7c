//! The name of a sealed packet: what its sender vouches for (A5).

use sealcast_crypto::hash::sha256;
use sealcast_wire::{Domain, EpochId, Header};

/// Names one sealed packet.
///
/// By a hash of all its bytes and not by its tag: GCM's tag is linear in the ciphertext, and whoever
/// knows the key makes another packet with the same counter and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// The domain that it was sealed in.
    pub domain: Domain,
    /// Its packet counter.
    pub counter: u64,
    /// The first 16 bytes of the SHA-256 of the datagram as it is sent.
    pub digest: [u8; 16],
}

impl Packet {
    /// What stands for this sealed datagram, and its epoch; `None` if it is none.
    pub fn of(datagram: &[u8]) -> Option<(EpochId, Packet)> {
        let header = Header::parse(datagram).ok()?;
        let digest = sha256(datagram)[..16].try_into().expect("16 of 32 bytes");
        Some((header.epoch, Packet { domain: header.domain, counter: header.counter, digest }))
    }

    /// The same, if its sender vouches for it once its epoch has ended (A5). What members say of themselves in
    /// [`Domain::GROUP`] is of no use afterwards, or said again under the next key.
    pub fn vouched(datagram: &[u8]) -> Option<(EpochId, Packet)> {
        Header::parse(datagram).ok().filter(|header| header.domain != Domain::GROUP)?;
        Packet::of(datagram)
    }
}
