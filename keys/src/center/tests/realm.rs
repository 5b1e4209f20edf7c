//! A centre and its principals, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_crypto::identity::registration::{bootstrap_secret, exchange_key, realm};
use sealcast_crypto::identity::{Act, Principal, Registration, Right};
use sealcast_crypto::leighton_micali::Master;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{CertHash, Monotonic, Now, Utc};

use crate::center::kdc::{Kdc, Registry};

pub(in crate::center) const GROUP: &str = "ward3";
pub(in crate::center) const UTC: i64 = 1_790_000_000;
/// What most tests register: may lead, evict, write and read.
pub(in crate::center) const ALL: &[(Act, &str)] = &[(Act::Both, "#"), (Act::Lead, "#"), (Act::Evict, "#")];
pub(in crate::center) const PLAIN: &[(Act, &str)] = &[(Act::Both, "#")];

/// Registrations in memory.
#[derive(Default)]
pub(in crate::center) struct Book {
    entries: BTreeMap<CertHash, Registration>,
    revoked: Vec<CertHash>,
    pub(in crate::center) stale: bool,
    pub(in crate::center) full: bool,
}

impl Registry for Book {
    fn find(&self, principal: &CertHash) -> Option<(Arc<Registration>, bool)> {
        Some((Arc::new(self.entries.get(principal)?.clone()), self.revoked.contains(principal)))
    }

    fn number(&self) -> u64 {
        self.revoked.len() as u64
    }

    fn revoked_since(&self, number: u64, most: usize) -> Vec<(u64, CertHash)> {
        (1..).zip(&self.revoked).skip(number as usize).take(most).map(|(n, it)| (n, *it)).collect()
    }

    fn revoke(&mut self, principal: &CertHash, _: &str, _: &str) -> Option<u64> {
        if !self.revoked.contains(principal) && !self.full {
            self.revoked.push(*principal);
        }
        self.revoked.iter().position(|it| it == principal).map(|at| at as u64 + 1)
    }

    fn is_stale(&self, _: Now) -> bool {
        self.stale
    }
}

pub(in crate::center) struct Realm {
    pub(in crate::center) secret: Secret<32>,
    pub(in crate::center) kdc: Kdc<Book>,
    /// Whether those who are registered have X25519 keys.
    pub(in crate::center) has_exchange: bool,
}

impl Realm {
    pub(in crate::center) fn new() -> Realm {
        let secret = Secret::from_bytes([42; 32]);
        let kdc = Kdc::new(&secret, Book::default(), [7; 32], Utc(UTC));
        Realm { secret, kdc, has_exchange: false }
    }

    pub(in crate::center) fn register(&mut self, name: &str, rights: &[(Act, &str)]) -> Principal {
        self.register_until(name, rights, UTC + 86_400)
    }

    pub(in crate::center) fn register_until(&mut self, name: &str, rights: &[(Act, &str)], until: i64) -> Principal {
        let serial = self.kdc.registry().entries.len() as u64 + 1;
        let signing = Secret::random(&mut ChaCha20Rng::seed_from_u64(serial));
        let registration = Registration {
            realm: realm(&self.secret),
            serial,
            name: name.into(),
            key: OriginKey::from_seed(&signing).public().clone(),
            exchange: self.has_exchange.then(|| exchange_key(&signing)),
            not_before: UTC - 1,
            not_after: until,
            rights: rights.iter().map(|(act, pattern)| Right::new(GROUP, *act, pattern).unwrap()).collect(),
        };
        self.kdc.registry_mut().entries.insert(registration.hash(), registration.clone());
        let long_term = Master::new(&self.secret).long_term(&registration.hash().0);
        let bootstrap = vec![(GROUP.to_owned(), bootstrap_secret(&self.secret, GROUP))];
        Principal { registration, long_term, signing, bootstrap }
    }
}

pub(in crate::center) fn now(micros: u64) -> Now {
    Now { monotonic: Monotonic(micros), utc: Some(Utc(UTC)) }
}
