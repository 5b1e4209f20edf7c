//! What a cluster begins with, and what its name in every signature stands for.
//!
//! ```text
//! u8 1 ‖ bytes16 name ‖ u16 count ‖ broker's key, 32 …
//!      ‖ u16 m ‖ u16 k ‖ administrator's key, 32 …
//!      ‖ u16 count ‖ issuer …
//! issuer = bytes16 name ‖ (1 ‖ bytes16 authority's certificate, DER | 2 ‖ bytes16 public key)
//! ```
//! Lists are strictly ascending by their bytes, so that a cluster has one encoding. The cluster's id is
//! `T("sealcast/v1/genesis"; bytes)`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sealcast_crypto::ed25519::Key;
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::{Attribute, TrustAnchor};
use sealcast_crypto::signature::PublicKey;
use sealcast_wire::{Malformed, Reader, Writer, limits};

/// Names a cluster in everything that is signed for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cluster(pub [u8; 32]);

/// What a cluster begins with.
#[derive(Clone, Debug)]
pub struct Genesis {
    /// For people.
    pub name: String,
    /// The brokers' keys for statements of results (E1).
    pub brokers: BTreeSet<[u8; 32]>,
    /// How many administrators must sign.
    pub quorum: usize,
    /// Their keys (Ed25519), by which signatures name them.
    pub administrators: Vec<Key>,
    /// Whose word on attributes counts, by the name that stands before the colon (E3).
    pub issuers: BTreeMap<String, Issuer>,
}

/// How an issuer's word is known.
#[derive(Clone, Debug)]
pub enum Issuer {
    /// By certificates of this authority (DER).
    Authority {
        /// Its certificate.
        der: Vec<u8>,
        /// The same, ready to verify.
        anchor: Box<TrustAnchor>,
    },
    /// By claims that this key signs.
    Key(PublicKey),
}

impl Genesis {
    /// The cluster's id.
    pub fn cluster(&self) -> Cluster {
        Cluster(Transcript::new("sealcast/v1/genesis").add(&self.to_bytes()).finish())
    }

    /// Its bytes.
    ///
    /// # Panics
    /// If it has more than [`limits`] allow.
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = |n: usize| u16::try_from(n).expect("limits are below 2¹⁶");
        let mut w = Writer::new();
        w.u8(VERSION).bytes16(self.name.as_bytes()).u16(count(self.brokers.len()));
        self.brokers.iter().for_each(|key| {
            w.raw(key);
        });
        w.u16(count(self.quorum)).u16(count(self.administrators.len()));
        self.administrators.iter().for_each(|key| {
            w.raw(key.as_bytes());
        });
        w.u16(count(self.issuers.len()));
        for (name, issuer) in &self.issuers {
            w.bytes16(name.as_bytes());
            match issuer {
                Issuer::Authority { der, .. } => w.u8(1).bytes16(der),
                Issuer::Key(key) => w.u8(2).bytes16(&key.to_bytes()),
            };
        }
        w.finish()
    }

    /// Reads what [`Genesis::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`], also if keys or certificates are none, or no quorum of administrators can exist.
    pub fn from_bytes(bytes: &[u8]) -> Result<Genesis, Malformed> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(Malformed);
        }
        let name = text(r.bytes16(limits::GROUP_BYTES_MAX)?)?;
        let count = r.count16(32, limits::BROKERS_MAX)?;
        let brokers: Vec<[u8; 32]> = (0..count).map(|_| r.array()).collect::<Result<_, _>>()?;
        let quorum = usize::from(r.u16()?);
        let count = r.count16(32, limits::ADMINISTRATORS_MAX)?;
        let keys: Vec<[u8; 32]> = (0..count).map(|_| r.array()).collect::<Result<_, _>>()?;
        let administrators: Vec<Key> = keys.iter().filter_map(|k| Key::new(k).ok()).collect();
        let count = r.count16(5, limits::ISSUERS_MAX)?;
        let issuers: Vec<(String, Issuer)> = (0..count).map(|_| issuer(&mut r)).collect::<Result<_, _>>()?;
        r.end()?;
        let ascending = brokers.is_sorted_by(|a, b| a < b)
            && keys.is_sorted_by(|a, b| a < b)
            && issuers.is_sorted_by(|a, b| a.0 < b.0);
        if !ascending
            || brokers.iter().any(|key| Key::new(key).is_err())
            || administrators.len() != keys.len()
            || !(1..=keys.len()).contains(&quorum)
        {
            return Err(Malformed);
        }
        let (brokers, issuers) = (brokers.into_iter().collect(), issuers.into_iter().collect());
        Ok(Genesis { name, brokers, quorum, administrators, issuers })
    }
}

impl Issuer {
    /// The authority with this certificate (DER).
    ///
    /// # Errors
    /// [`Malformed`] if it is none.
    pub fn authority(der: &[u8]) -> Result<Issuer, Malformed> {
        let anchor = Box::new(TrustAnchor::new(der).map_err(|_| Malformed)?);
        Ok(Issuer::Authority { der: der.to_vec(), anchor })
    }
}

fn issuer(r: &mut Reader<'_>) -> Result<(String, Issuer), Malformed> {
    let name = text(r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?)?;
    // The name is the first part of attributes.
    Attribute::new(&name, "key", "value").map_err(|_| Malformed)?;
    let issuer = match r.u8()? {
        1 => Issuer::authority(r.bytes16(limits::CERTIFICATE_BYTES_MAX)?)?,
        2 => Issuer::Key(PublicKey::from_bytes(r.bytes16(limits::ATTRIBUTE_BYTES_MAX + 2)?).map_err(|_| Malformed)?),
        _ => return Err(Malformed),
    };
    Ok((name, issuer))
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

const VERSION: u8 = 1;
