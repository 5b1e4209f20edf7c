//! Who takes part, with all keys, and what is published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_broker::genesis::{Cluster, Genesis, Issuer};
use sealcast_broker::operation::{
    Action, Admin, Body, Claim, Client, Execute, Header, Operation, Publication, Registration,
};
use sealcast_brokerd::shares::deal;
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::group::Ristretto255;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, SigningKey};
use sealcast_crypto::tdh2::{KeyShare, PublicKey};
use sealcast_wire::Utc;

/// The cluster with all keys.
pub struct Fixture {
    /// What the cluster began with.
    pub genesis: Genesis,
    /// Its id.
    pub cluster: Cluster,
    /// How many brokers may lie.
    pub faulty: usize,
    /// So many shares open.
    pub threshold: usize,
    /// Seeds of the brokers' keys, by number.
    pub seeds: Vec<[u8; 32]>,
    /// The threshold key.
    pub key: Arc<PublicKey<Ristretto255>>,
    issuer: SigningKey,
    other_issuer: SigningKey,
    administrator: OriginKey,
}

/// Somebody at a desk, or at none.
pub type Desk = Option<&'static str>;

/// What somebody subscribes to: everything, or one topic; `None` is nothing.
pub type Interest = Option<&'static str>;

/// The interest in everything.
pub const EVERYTHING: &str = "#";

/// One publication that a correct client, or a Byzantine client, has a mind to.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose.
    pub client: Client,
    /// Its topic.
    pub topic: &'static str,
    /// For whom; `None` is for everybody who is registered.
    pub only: Desk,
    /// Whether brokers may not read it.
    pub sealed: bool,
    /// What.
    pub payload: Vec<u8>,
}

/// Payloads of what is sealed begin so: no broker may ever hold these bytes.
pub const MARK: &[u8] = b"<for readers' eyes>";

/// How many shares open what is sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threshold {
    /// 2f + 1, the default (E2).
    #[default]
    Default,
    /// f + 1, as in the paper.
    Paper,
}

impl Fixture {
    /// 3f + 1 brokers, and the shares of their key by number.
    ///
    /// # Panics
    /// If `faulty` is 0 or too many for one broker's number in a byte.
    pub fn new(faulty: usize, threshold: Threshold, seed: u64) -> (Fixture, Vec<KeyShare<Ristretto255>>) {
        let count = u8::try_from(3 * faulty + 1).expect("a simulation has few brokers");
        let mut seeds: Vec<[u8; 32]> = (0..count).map(|i| [100 + i; 32]).collect();
        seeds.sort_by_key(|it| key_of(*it).public_bytes());
        let issuer = SigningKey::from_seed(Algorithm::Ed25519, &Secret::from_bytes([2; 32])).expect("a key");
        let other_issuer = SigningKey::from_seed(Algorithm::Ed25519, &Secret::from_bytes([3; 32])).expect("a key");
        let administrator = key(250);
        let genesis = Genesis {
            name: "simulation".into(),
            brokers: seeds.iter().map(|it| key_of(*it).public_bytes()).collect::<BTreeSet<_>>(),
            quorum: 1,
            administrators: vec![Key::new(&administrator.public_bytes()).expect("a key")],
            issuers: BTreeMap::from([("exchange".to_owned(), Issuer::Key(issuer.public().clone()))]),
        };
        let cluster = genesis.cluster();
        let threshold = if threshold == Threshold::Paper { faulty + 1 } else { 2 * faulty + 1 };
        let t = u16::try_from(threshold).expect("it is small");
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (public, shares) = deal::<Ristretto255>(&cluster, t, u16::from(count), &mut rng).expect("a key");
        let key = Arc::new(public);
        let fixture = Fixture { genesis, cluster, faulty, threshold, seeds, key, issuer, other_issuer, administrator };
        (fixture, shares)
    }

    /// How many brokers there are.
    pub fn brokers(&self) -> usize {
        self.seeds.len()
    }

    /// The issuer's word on a client.
    pub fn registration(&self, seed: u8, desk: Desk) -> Registration {
        self.claim(seed, desk, &self.issuer)
    }

    /// The word of somebody who is no issuer of this cluster, in the issuer's name.
    pub fn foreign_registration(&self, seed: u8, desk: Desk) -> Registration {
        self.claim(seed, desk, &self.other_issuer)
    }

    fn claim(&self, seed: u8, desk: Desk, issuer: &SigningKey) -> Registration {
        let attributes: Vec<(&str, &str)> = desk.map(|desk| ("desk", desk)).into_iter().collect();
        let claim = Claim::sign("exchange", &[seed], (Utc(0), Utc(1_000_000)), &attributes, key(seed).public(), issuer);
        Registration { intent: false, proof: claim.into() }
    }

    /// An act of the administrators.
    pub fn act(&self, number: u64, action: Action) -> Operation {
        let mut admin = Admin::new(number, action);
        assert!(admin.sign(&self.genesis, &self.cluster, &self.administrator), "genesis names the administrator");
        Operation::Administer(admin)
    }
}

impl Plan {
    /// What leaves, with a body that is not sealed.
    pub fn publication(&self, policy: u64) -> Publication {
        Publication {
            headers: vec![Header { topic: self.topic.into(), value: None }],
            associated: Vec::new(),
            access: self.only.map(|desk| format!("exchange:desk = {desk}").parse().expect("a condition")),
            execute: Execute::Nothing,
            policy,
            epoch: 0,
            body: Body::Plain(if self.sealed { Vec::new() } else { self.payload.clone() }),
        }
    }

    /// Whether somebody at this desk may read it.
    pub fn is_for(&self, desk: Desk) -> bool {
        self.only.is_none_or(|only| desk == Some(only))
    }
}

/// Whether somebody with this interest is told of what is published in a topic.
pub fn wants(interest: Interest, topic: &str) -> bool {
    interest.is_some_and(|it| it == EVERYTHING || it == topic)
}

/// A key that everybody can guess.
pub fn key(seed: u8) -> OriginKey {
    key_of([seed; 32])
}

pub(crate) fn key_of(seed: [u8; 32]) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes(seed))
}
