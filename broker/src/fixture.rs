//! A small cluster for tests: two issuers, three administrators of whom two must sign, and clients.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::identity::{Attribute, Authority, MemberSecret, Request, Rights};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, SigningKey};
use sealcast_wire::Utc;

use crate::genesis::{Cluster, Genesis, Issuer};
use crate::operation::{
    Action, Admin, Batch, Body, Checked, Claim, Client, Execute, Header, Interest, Operation, Proof, Publication,
    Registration, check,
};

/// The block time at which these tests begin: 2026-11-20.
pub(crate) const NOW: Utc = Utc(1_795_132_800);
pub(crate) const DAY: i64 = 24 * 60 * 60;

/// The cluster and the keys of all.
pub(crate) struct World {
    pub(crate) genesis: Genesis,
    pub(crate) cluster: Cluster,
    /// Of the issuer 'exchange', which signs claims.
    pub(crate) exchange: SigningKey,
    /// Of the issuer 'hospitalA', which issues certificates.
    pub(crate) hospital: Authority,
    pub(crate) administrators: Vec<OriginKey>,
}

pub(crate) fn origin_key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

pub(crate) fn client(seed: u8) -> Client {
    Client(origin_key(seed).public_bytes())
}

impl World {
    pub(crate) fn new() -> World {
        let mut rng = ChaCha20Rng::seed_from_u64(7);
        let exchange = SigningKey::generate(Algorithm::P256, &mut rng);
        let hospital = Authority::create("hospital CA", Algorithm::P256, NOW, &mut rng).expect("an authority");
        let mut administrators: Vec<OriginKey> = (200..203).map(origin_key).collect();
        administrators.sort_by_key(OriginKey::public_bytes);
        let issuers = BTreeMap::from([
            ("exchange".to_owned(), Issuer::Key(exchange.public().clone())),
            (
                "hospitalA".to_owned(),
                Issuer::authority(hospital.anchor().certificate().der()).expect("an authority's certificate"),
            ),
        ]);
        let genesis = Genesis {
            name: "test".into(),
            brokers: (210..214).map(|s| origin_key(s).public_bytes()).collect::<BTreeSet<_>>(),
            quorum: 2,
            administrators: administrators.iter().map(|k| Key::new(&k.public_bytes()).expect("a key")).collect(),
            issuers,
        };
        let cluster = genesis.cluster();
        World { genesis, cluster, exchange, hospital, administrators }
    }

    /// A registration by the exchange, for 30 days.
    pub(crate) fn claim(&self, seed: u8, attributes: &[(&str, &str)]) -> Operation {
        let validity = (NOW, Utc(NOW.0 + 30 * DAY));
        let claim = Claim::sign("exchange", &[seed], validity, attributes, origin_key(seed).public(), &self.exchange);
        Operation::Register(Registration { intent: false, proof: claim.into() })
    }

    /// A registration by a certificate of the hospital whose Ed25519 key is the client's.
    pub(crate) fn certificate(&mut self, seed: u8, attributes: &[(&str, &str, &str)]) -> Operation {
        let mut keys = MemberSecret::generate(Algorithm::Ed25519, &mut ChaCha20Rng::seed_from_u64(1)).public();
        keys.signing = origin_key(seed).public().clone();
        let attributes = attributes.iter().map(|(i, k, v)| Attribute::new(i, k, v).expect("an attribute")).collect();
        let request = Request { name: format!("client{seed}"), keys, rights: Rights::none(), attributes };
        let certificate = self.hospital.issue(&request, NOW, 90 * DAY).expect("issued");
        let proof = Proof::Certificate { issuer: "hospitalA".into(), der: certificate.der().to_vec(), binding: None };
        Operation::Register(Registration { intent: false, proof })
    }

    pub(crate) fn admin(&self, number: u64, action: Action) -> Operation {
        let mut admin = Admin::new(number, action);
        for key in &self.administrators[..2] {
            assert!(admin.sign(&self.genesis, &self.cluster, key));
        }
        Operation::Administer(admin)
    }

    pub(crate) fn batch(&self, seed: u8, first: u64, operations: Vec<Operation>) -> Checked {
        let batch = Batch::sign(&self.cluster, &origin_key(seed), first, operations);
        check(&self.cluster, vec![batch], |sealed| vec![true; sealed.len()]).remove(0).expect("a good batch")
    }
}

/// `topic` or `topic=value`.
pub(crate) fn header(text: &str) -> Header {
    match text.split_once('=') {
        Some((topic, value)) => Header { topic: topic.into(), value: Some(value.into()) },
        None => Header { topic: text.into(), value: None },
    }
}

pub(crate) fn publication(headers: &[&str], body: &[u8]) -> Publication {
    Publication {
        headers: headers.iter().map(|h| header(h)).collect(),
        associated: vec![],
        access: None,
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: Body::Plain(body.to_vec()),
    }
}

pub(crate) fn publish(publication: Publication) -> Operation {
    Operation::Publish(Box::new(publication))
}

pub(crate) fn subscribe(text: &str) -> Operation {
    Operation::Subscribe(text.parse::<Interest>().expect("an interest"))
}
