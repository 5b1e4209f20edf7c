//! The cluster file: what clients and brokers must know of a cluster before they say a word to it (E11).
//!
//! ```text
//! genesis ──────────── names the cluster: brokers' keys, administrators, issuers
//! threshold, suite ─── of the key that the brokers share
//! addresses ────────── where each broker listens: signed by nobody, since the broker's key says who answers there
//! key ──────────────── the threshold key, once it is made, with the signatures of 2f + 1 brokers
//! authority ────────── a certificate authority's signature over the first two, where there is one
//! ```
//! A file that was read holds together: its id is the one of its genesis, 2f + 1 brokers signed its key, its authority
//! signed it. Whether it is the right cluster's, only the reader can know: by the authority that he trusts
//! ([`ClusterFile::signed_by`]) or by the id that he knew before ([`ClusterFile::cluster`]). [`text`] is the form on
//! disk.

pub mod text;

use std::collections::BTreeMap;

use sealcast_crypto::ed25519::Key;
use sealcast_crypto::group::{P256, PrimeGroup, Ristretto255};
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::{Fingerprint, TrustAnchor};
use sealcast_crypto::signature::Signature;
use sealcast_crypto::tdh2::PublicKey;
use sealcast_wire::limits;

use crate::genesis::{Cluster, Genesis};
use crate::protocol::SignedKey;

pub use text::ParseError;

/// A cluster as its file describes it.
#[derive(Clone, Debug)]
pub struct ClusterFile {
    /// What it begins with.
    pub genesis: Genesis,
    /// Where the brokers are, by their numbers.
    pub addresses: Vec<Addresses>,
    /// t: so many brokers' shares open a publication.
    pub threshold: u16,
    /// The group in which the threshold key lies.
    pub suite: Suite,
    /// The threshold key, once there is one.
    pub key: Option<VouchedKey>,
    /// The authority's word, where there is one.
    pub endorsement: Option<Endorsement>,
}

/// Where one broker is; `host:port` each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// For clients.
    pub gateway: String,
    /// For the other brokers.
    pub order: String,
}

/// The group of the threshold key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Suite {
    /// ristretto255.
    #[default]
    Ristretto255,
    /// P-256.
    P256,
}

/// A threshold key that 2f + 1 brokers signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VouchedKey {
    /// The key epoch.
    pub epoch: u32,
    /// `sealcast_crypto::tdh2::PublicKey`, encoded.
    pub key: Vec<u8>,
    /// By brokers' numbers, over [`SignedKey::statement`].
    pub signatures: BTreeMap<u16, Signature>,
}

/// An authority's signature over [`ClusterFile::statement`].
#[derive(Clone, Debug)]
pub struct Endorsement {
    /// Its certificate, ready to verify.
    pub authority: Box<TrustAnchor>,
    /// Its signature.
    pub signature: Signature,
}

/// What does not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// How many brokers there can be.
    #[error("{0} brokers: there must be 3f+1, at least {min} and at most {max}", min = limits::BROKERS_MIN, max = limits::BROKERS_MAX)]
    Brokers(usize),
    /// Each broker needs addresses.
    #[error("{addresses} brokers have addresses, {brokers} have keys")]
    Addresses {
        /// How many addresses there are.
        addresses: usize,
        /// How many brokers genesis names.
        brokers: usize,
    },
    /// t.
    #[error("the threshold is {threshold}; with {brokers} brokers it is {least} (f+1) to {most} (2f+1)")]
    Threshold {
        /// What the file says.
        threshold: u16,
        /// n.
        brokers: usize,
        /// f + 1.
        least: usize,
        /// 2f + 1.
        most: usize,
    },
    /// The threshold key.
    #[error("the threshold key: {0}")]
    Key(String),
    /// A signature on the threshold key.
    #[error("broker {0} did not sign this threshold key for this cluster")]
    KeySignature(u16),
    /// Too few signatures on it.
    #[error("{signed} brokers signed the threshold key, {needed} must")]
    KeySignatures {
        /// How many did.
        signed: usize,
        /// 2f + 1.
        needed: usize,
    },
    /// The authority's signature.
    #[error(
        "the authority's signature is not over this file: brokers, administrators, issuers or threshold were changed"
    )]
    Endorsement,
    /// It is somebody else's.
    #[error("the file is signed by the authority {found}, not by {expected}")]
    Authority {
        /// Who signed.
        found: Fingerprint,
        /// Who is trusted.
        expected: Fingerprint,
    },
    /// No authority signed it.
    #[error("no authority signed the file")]
    Unsigned,
}

impl ClusterFile {
    /// The cluster's id.
    pub fn cluster(&self) -> Cluster {
        self.genesis.cluster()
    }

    /// n.
    pub fn brokers(&self) -> usize {
        self.genesis.brokers.len()
    }

    /// f: so many brokers may lie.
    pub fn faulty(&self) -> usize {
        self.brokers().saturating_sub(1) / 3
    }

    /// The brokers' keys by their numbers.
    pub fn broker_keys(&self) -> Vec<[u8; 32]> {
        self.genesis.brokers.iter().copied().collect()
    }

    /// The number of the broker with this key.
    pub fn number_of(&self, key: &[u8; 32]) -> Option<u16> {
        let location = self.genesis.brokers.iter().position(|it| it == key)?;
        Some(u16::try_from(location).expect("brokers have a limit"))
    }

    /// Whether all of it fits together: numbers, the key's signatures, the authority's signature.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn check(&self) -> Result<(), Mismatch> {
        let (n, f) = (self.brokers(), self.faulty());
        // One alone orders too, and bears no fault: the baseline of comparisons.
        let enough = n == 1 || (limits::BROKERS_MIN..=limits::BROKERS_MAX).contains(&n);
        if !enough || n != 3 * f + 1 {
            return Err(Mismatch::Brokers(n));
        }
        if self.addresses.len() != n {
            return Err(Mismatch::Addresses { addresses: self.addresses.len(), brokers: n });
        }
        let (least, most) = (f + 1, 2 * f + 1);
        if !(least..=most).contains(&usize::from(self.threshold)) {
            return Err(Mismatch::Threshold { threshold: self.threshold, brokers: n, least, most });
        }
        self.key.iter().try_for_each(|key| self.check_key(key))?;
        match &self.endorsement {
            Some(it) => {
                let verified = it.authority.key().verify(&self.statement(), &it.signature);
                verified.map_err(|_| Mismatch::Endorsement)
            }
            None => Ok(()),
        }
    }

    /// Makes this the cluster's key, if it is one of this cluster and 2f + 1 brokers signed it.
    ///
    /// # Errors
    /// [`Mismatch`]; nothing changed then.
    pub fn set_key(&mut self, key: VouchedKey) -> Result<(), Mismatch> {
        self.check_key(&key)?;
        self.key = Some(key);
        Ok(())
    }

    /// The key that 2f + 1 of these words agree on; each is of the broker with that number. `None` if there is none yet.
    pub fn agreed_key<'a>(&self, words: impl IntoIterator<Item = (u16, &'a SignedKey)>) -> Option<VouchedKey> {
        let mut keys: BTreeMap<(u32, &[u8]), BTreeMap<u16, Signature>> = BTreeMap::new();
        for (broker, word) in words {
            if self.has_signed(broker, word.epoch, &word.key, &word.signature) {
                keys.entry((word.epoch, &word.key)).or_default().insert(broker, word.signature);
            }
        }
        keys.into_iter().rev().find_map(|((epoch, key), signatures)| {
            let key = VouchedKey { epoch, key: key.to_vec(), signatures };
            self.check_key(&key).is_ok().then_some(key)
        })
    }

    /// Lets an authority sign it; `sign` is its key's. Nothing that it signs may change later.
    pub fn endorse(&mut self, authority: TrustAnchor, sign: impl FnOnce(&[u8; 32]) -> Signature) {
        let signature = sign(&self.statement());
        self.endorsement = Some(Endorsement { authority: Box::new(authority), signature });
    }

    /// Whether the authority with this fingerprint signed it.
    ///
    /// # Errors
    /// [`Mismatch`] if nobody did, or another one.
    pub fn signed_by(&self, expected: Fingerprint) -> Result<(), Mismatch> {
        let it = self.endorsement.as_ref().ok_or(Mismatch::Unsigned)?;
        let found = it.authority.fingerprint();
        if found != expected {
            return Err(Mismatch::Authority { found, expected });
        }
        it.authority.key().verify(&self.statement(), &it.signature).map_err(|_| Mismatch::Endorsement)
    }

    /// What an authority signs: `T("sealcast/v1/cluster file"; genesis, u16 threshold, u8 suite)`.
    pub fn statement(&self) -> [u8; 32] {
        let transcript = Transcript::new("sealcast/v1/cluster file").add(&self.genesis.to_bytes());
        transcript.add(&self.threshold.to_be_bytes()).add(&[self.suite.number()]).finish()
    }

    /// E11: the key is one of this cluster and as the file says, and 2f + 1 brokers signed it.
    fn check_key(&self, key: &VouchedKey) -> Result<(), Mismatch> {
        let (threshold, holders) = self.suite.shape(&key.key).map_err(Mismatch::Key)?;
        if (threshold, usize::from(holders)) != (self.threshold, self.brokers()) {
            let (t, n) = (self.threshold, self.brokers());
            let what = format!("{threshold} of {holders} shares open it, the file says {t} of {n}");
            return Err(Mismatch::Key(what));
        }
        for (&broker, signature) in &key.signatures {
            if !self.has_signed(broker, key.epoch, &key.key, signature) {
                return Err(Mismatch::KeySignature(broker));
            }
        }
        let (signed, needed) = (key.signatures.len(), 2 * self.faulty() + 1);
        if signed < needed { Err(Mismatch::KeySignatures { signed, needed }) } else { Ok(()) }
    }

    fn has_signed(&self, broker: u16, epoch: u32, key: &[u8], signature: &Signature) -> bool {
        let signer = self.genesis.brokers.iter().nth(usize::from(broker)).and_then(|it| Key::new(it).ok());
        let statement = SignedKey::statement(&self.cluster(), epoch, key);
        signer.is_some_and(|signer| signer.verify(&statement, signature))
    }
}

impl Suite {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Ristretto255 => "ristretto255",
            Suite::P256 => "p256",
        }
    }

    /// As keys begin.
    pub fn number(self) -> u8 {
        match self {
            Suite::Ristretto255 => Ristretto255::SUITE,
            Suite::P256 => P256::SUITE,
        }
    }

    fn of_name(name: &str) -> Option<Suite> {
        [Suite::Ristretto255, Suite::P256].into_iter().find(|suite| suite.name() == name)
    }

    /// t and n of an encoded key of this suite, or what is wrong with it.
    fn shape(self, key: &[u8]) -> Result<(u16, u16), String> {
        fn of<G: PrimeGroup>(key: &[u8]) -> Result<(u16, u16), String> {
            let key = PublicKey::<G>::decode(key).map_err(|e| e.to_string())?;
            Ok((key.parameters().threshold, key.parameters().holders))
        }
        match self {
            Suite::Ristretto255 => of::<Ristretto255>(key),
            Suite::P256 => of::<P256>(key),
        }
    }
}

#[cfg(test)]
mod tests;
