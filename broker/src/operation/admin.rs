//! Administrative operations: what m of the k administrators of genesis signed (E3).

use sealcast_crypto::ed25519::Key;
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::signature::{OriginKey, Signature};
use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::policy::Policy;
use super::{Client, read_bytes, write_bytes};
use crate::genesis::{Cluster, Genesis};

/// An act of the administrators; any client may bring it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Acts are counted from 1 and execute in this order, so that none is executed twice.
    pub number: u64,
    /// What is done.
    pub action: Action,
    /// Who signed, by place in genesis' list, strictly ascending.
    pub signatures: Vec<(u16, Signature)>,
}

/// What administrators do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Puts the next global policy in force.
    Policy(Policy),
    /// Ends a client: nothing of it executes any more, and it gets nothing.
    RevokeClient(Client),
    /// Ends what one certificate or claim says, whoever holds it.
    RevokeCredential {
        /// Whose word.
        issuer: String,
        /// Which.
        serial: Vec<u8>,
    },
    /// From here on publications name this key epoch (E6); it only grows.
    Epoch(u32),
    /// Lets a suspended client publish again: what it published so far is forgiven (E4).
    Restore(Client),
}

/// Why an act is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Too few signatures, a wrong one, or one of nobody.
    #[error("not signed by enough administrators")]
    Signatures,
}

impl Admin {
    /// An act that nobody signed yet.
    pub fn new(number: u64, action: Action) -> Admin {
        Admin { number, action, signatures: Vec::new() }
    }

    /// Adds an administrator's signature; a second one of the same replaces the first. Whoever is no
    /// administrator adds nothing: `false`.
    pub fn sign(&mut self, genesis: &Genesis, cluster: &Cluster, key: &OriginKey) -> bool {
        let Some(place) = genesis.administrators.iter().position(|k| *k.as_bytes() == key.public_bytes()) else {
            return false;
        };
        let place = u16::try_from(place).expect("administrators have a limit");
        self.signatures.retain(|(other, _)| *other != place);
        self.signatures.push((place, key.sign(&self.digest(cluster))));
        self.signatures.sort_unstable();
        true
    }

    /// Whether m of the administrators signed it, and nobody wrongly.
    ///
    /// # Errors
    /// [`AdminError`].
    pub fn verify(&self, genesis: &Genesis, cluster: &Cluster) -> Result<(), AdminError> {
        if self.signatures.len() >= genesis.quorum && self.false_signatures(genesis, cluster).is_empty() {
            Ok(())
        } else {
            Err(AdminError::Signatures)
        }
    }

    /// Whose signatures do not hold, by place in genesis' list, ascending; a place behind its end is nobody's.
    pub fn false_signatures(&self, genesis: &Genesis, cluster: &Cluster) -> Vec<u16> {
        let digest = self.digest(cluster);
        let is_false = |(place, signature): &&(u16, Signature)| {
            let key: Option<&Key> = genesis.administrators.get(usize::from(*place));
            key.is_none_or(|key| !key.verify(&digest, signature))
        };
        self.signatures.iter().filter(is_false).map(|(place, _)| *place).collect()
    }

    /// What is signed: `T("sealcast/v1/admin"; cluster, u64 number, action)`.
    pub fn digest(&self, cluster: &Cluster) -> [u8; 32] {
        let mut w = Writer::new();
        self.action.encode(&mut w);
        let number = self.number.to_be_bytes();
        Transcript::new("sealcast/v1/admin").add(&cluster.0).add(&number).add(w.as_slice()).finish()
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        w.u64(self.number);
        self.action.encode(w);
        w.u16(u16::try_from(self.signatures.len()).expect("administrators have a limit"));
        for (place, signature) in &self.signatures {
            w.u16(*place).raw(signature);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Admin, Malformed> {
        let (number, action) = (r.u64()?, Action::decode(r)?);
        let count = r.count16(66, limits::ADMINISTRATORS_MAX)?;
        let signatures: Vec<_> = (0..count).map(|_| Ok((r.u16()?, r.array()?))).collect::<Result<_, Malformed>>()?;
        if !signatures.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(Malformed);
        }
        Ok(Admin { number, action, signatures })
    }
}

impl Action {
    fn encode(&self, w: &mut Writer) {
        match self {
            Action::Policy(policy) => write_bytes(w.u8(1), &policy.to_bytes()),
            Action::RevokeClient(client) => {
                w.u8(2).raw(&client.0);
            }
            Action::RevokeCredential { issuer, serial } => {
                w.u8(3).bytes16(issuer.as_bytes()).bytes16(serial);
            }
            Action::Epoch(epoch) => {
                w.u8(4).u32(*epoch);
            }
            Action::Restore(client) => {
                w.u8(5).raw(&client.0);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Action, Malformed> {
        match r.u8()? {
            1 => Ok(Action::Policy(Policy::from_bytes(read_bytes(r, limits::RULES_BYTES_MAX)?)?)),
            2 => Ok(Action::RevokeClient(Client(r.array()?))),
            3 => {
                let issuer = r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?.to_vec();
                let issuer = String::from_utf8(issuer).map_err(|_| Malformed)?;
                Ok(Action::RevokeCredential { issuer, serial: r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?.to_vec() })
            }
            4 => Ok(Action::Epoch(r.u32()?)),
            5 => Ok(Action::Restore(Client(r.array()?))),
            _ => Err(Malformed),
        }
    }
}
