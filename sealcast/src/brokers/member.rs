//! Who a client of brokers is: a key of its own, kept with what it knew when it ran last, and an identity's certificate
//! that vouches for it.
//!
//! Of one identity several processes may run at once; each takes the first key of the identity that no other one has.
//! Those that subscribe have keys of their own, so that one which only publishes never passes over what a subscription
//! is to go on with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealcast_broker::cluster_file::ClusterFile;
use sealcast_broker::genesis::{Cluster, Issuer};
use sealcast_broker::operation::registration::binding_digest;
use sealcast_broker::operation::{Client, Proof, Registration};
use sealcast_crypto::identity::Identity;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{OriginKey, Signature, SigningKey};
use sealcast_wire::{CertHash, Utc};

use crate::code::Code;
use crate::config::{Home, KeptIdentity, Voucher};
use crate::error::{Error, Result};
use crate::io::rng;
use crate::io::store::Store;
use crate::remedy::Remedy;

/// A client's key, held by this process alone.
pub struct ClientKey {
    key: Arc<OriginKey>,
    record: Record,
}

/// What a client's key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Subscriptions, which go on where the last process with this key left them.
    Subscribe,
    /// Sessions, whose subscriptions begin when they do.
    Session,
    /// Everything else.
    Call,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Purpose::Subscribe => "sub",
            Purpose::Session => "session",
            Purpose::Call => "call",
        }
    }
}

/// What a client knew when it ran last; nothing is kept where it has no file.
pub(crate) struct Record(Option<Store>);

impl ClientKey {
    /// A key for this process only: of somebody who registers nowhere, or leaves no trace.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn fresh() -> Result<ClientKey> {
        let key = Arc::new(OriginKey::from_seed(&Secret::from_bytes(rng::bytes()?)));
        Ok(ClientKey { key, record: Record(None) })
    }

    /// A key that somebody has already, for this process only: an administrator's, to whom brokers tell by that key what
    /// only they and registered clients learn.
    pub fn own(key: OriginKey) -> ClientKey {
        ClientKey { key: Arc::new(key), record: Record(None) }
    }

    /// The first key of a certificate's holder in this cluster that no other process has; made if need be.
    ///
    /// # Errors
    /// All are in use, or the system's own.
    pub fn of(home: &Home, cluster: &Cluster, certificate: &CertHash, purpose: Purpose) -> Result<ClientKey> {
        for path in places(home, cluster, certificate, purpose) {
            match ClientKey::at(&path) {
                Err(e) if e.code() == Code::Duplicate => {}
                other => return other,
            }
        }
        Err(Error::new(Code::Duplicate, format!("{CLIENTS_MAX} processes run with this identity at these brokers"))
            .with_remedy(Remedy::OwnIdentity))
    }

    /// The keys that a certificate's holder has in this cluster by now; and how many more of them other processes have.
    ///
    /// # Errors
    /// The system's own.
    pub fn kept(
        home: &Home,
        cluster: &Cluster,
        certificate: &CertHash,
        purpose: Purpose,
    ) -> Result<(Vec<ClientKey>, usize)> {
        let (mut keys, mut in_use) = (Vec::new(), 0);
        for path in places(home, cluster, certificate, purpose).filter(|it| it.is_file()) {
            match ClientKey::at(&path) {
                Ok(key) => keys.push(key),
                Err(e) if e.code() == Code::Duplicate => in_use += 1,
                Err(e) => return Err(e),
            }
        }
        Ok((keys, in_use))
    }

    fn at(path: &Path) -> Result<ClientKey> {
        let mut store = Store::open(path)?;
        let kept = store.records()?.into_iter().find(|(id, _)| *id == SEED);
        let seed = match kept.map(|(_, seed)| Secret::try_from(&seed[..])) {
            Some(Ok(seed)) => seed,
            Some(Err(_)) => return Err(Error::new(Code::Content, format!("{} is damaged", path.display()))),
            None => {
                let seed = Secret::from_bytes(rng::bytes()?);
                let kept = store.put(SEED, seed.expose()).and_then(|()| store.sync());
                kept.map_err(|e| Error::system(path.display(), &e))?;
                seed
            }
        };
        Ok(ClientKey { key: Arc::new(OriginKey::from_seed(&seed)), record: Record(Some(store)) })
    }

    /// Who this is to the brokers.
    pub fn client(&self) -> Client {
        Client(self.key.public_bytes())
    }

    pub(crate) fn into_parts(self) -> (Arc<OriginKey>, Record) {
        (self.key, self.record)
    }
}

impl Record {
    /// The last one.
    pub(crate) fn last(&self) -> Option<Vec<u8>> {
        self.0.as_ref()?.records().ok()?.into_iter().find(|(id, _)| *id == LAST).map(|(_, record)| record)
    }

    /// Durable on return.
    pub(crate) fn keep(&mut self, record: &[u8]) -> std::io::Result<()> {
        match &mut self.0 {
            Some(store) => store.put(LAST, record).and_then(|()| store.sync()),
            None => Ok(()),
        }
    }
}

/// What makes an identity's client known: its certificate, and what others say of it at this time that this cluster takes.
pub(crate) fn registrations(
    cluster: &ClusterFile,
    identity: Option<&Identity>,
    kept: Option<&KeptIdentity>,
    client: &Client,
    at: Utc,
) -> Vec<Registration> {
    let vouched = kept.into_iter().flat_map(|kept| {
        let (holder, vouchers) = (kept.secret.signing_key(), kept.vouchers.iter().filter(|it| it.not_after() >= at));
        vouchers.filter_map(move |it| vouched(cluster, it, &holder, client))
    });
    identity.and_then(|it| registration(cluster, it, client, false)).into_iter().chain(vouched).collect()
}

/// What makes a client known by what an issuer says of its holder's key; `None` if the cluster does not name who says it.
pub fn vouched(cluster: &ClusterFile, voucher: &Voucher, holder: &SigningKey, client: &Client) -> Option<Registration> {
    let issuer = voucher.issuer(&cluster.genesis)?.to_owned();
    let binding = |word| binding(cluster, holder, client, word);
    let proof = match voucher {
        Voucher::Certificate(it) => {
            Proof::Certificate { issuer, der: it.der().to_vec(), binding: binding(&it.hash().0) }
        }
        Voucher::Claim(claim) => Proof::Claim { claim: Box::new(claim.clone()), binding: binding(&claim.hash()) },
    };
    Some(Registration { intent: false, proof })
}

/// What makes a client known by an identity's certificate; `None` if the cluster does not name its authority.
pub fn registration(cluster: &ClusterFile, identity: &Identity, client: &Client, intent: bool) -> Option<Registration> {
    let authority = identity.anchor().certificate().der();
    let is_ours = |issuer: &Issuer| matches!(issuer, Issuer::Authority { der, .. } if der[..] == authority[..]);
    let (issuer, _) = cluster.genesis.issuers.iter().find(|(_, issuer)| is_ours(issuer))?;
    let certificate = identity.certificate();
    let binding = binding(cluster, identity.key(), client, &certificate.hash.0);
    let proof = Proof::Certificate { issuer: issuer.clone(), der: certificate.der.to_vec(), binding };
    Some(Registration { intent, proof })
}

/// The holder's key signs that the client's is its too; where they are the same, what vouches for it says so itself.
fn binding(cluster: &ClusterFile, holder: &SigningKey, client: &Client, word: &[u8; 32]) -> Option<Signature> {
    let own = holder.public().point() == client.0;
    (!own).then(|| holder.sign(&binding_digest(&cluster.cluster(), client, word)))
}

/// Where the keys of a certificate's holder lie.
fn places(
    home: &Home,
    cluster: &Cluster,
    certificate: &CertHash,
    purpose: Purpose,
) -> impl Iterator<Item = PathBuf> + use<> {
    let folder = home.state().join("brokers").join(hex::encode(&cluster.0[..8]));
    let of = format!("{}-{}", hex::encode(&certificate.0[..8]), purpose.name());
    (0..CLIENTS_MAX).map(move |slot| folder.join(format!("{of}-{slot}.records")))
}

const SEED: u64 = 0;
const LAST: u64 = 1;
/// Processes of one identity at one cluster.
const CLIENTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;
    use sealcast_broker::cluster_file::{Addresses, Suite};
    use sealcast_broker::genesis::Genesis;
    use sealcast_broker::operation::Claim;
    use sealcast_crypto::ed25519::Key;
    use sealcast_crypto::identity::{Attribute, Authority, MemberSecret, Request, Rights};
    use sealcast_crypto::signature::Algorithm;

    use super::*;

    const NOW: Utc = Utc(1_795_132_800);

    fn key(seed: u8) -> OriginKey {
        OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
    }

    /// A cluster that knows the authority as an issuer, and an identity of it.
    fn known(algorithm: Algorithm) -> (ClusterFile, Identity, MemberSecret) {
        let mut rng = ChaCha20Rng::seed_from_u64(5);
        let mut authority = Authority::create("exchange", Algorithm::P256, NOW, &mut rng).unwrap();
        let secret = MemberSecret::generate(algorithm, &mut rng);
        let attributes = vec![Attribute::new("exchange", "desk", "fx").unwrap()];
        let request = Request { name: "ann".into(), keys: secret.public(), rights: Rights::none(), attributes };
        let certificate = authority.issue(&request, NOW, 86_400).unwrap();
        let issuer = Issuer::authority(authority.certificate().der()).unwrap();
        let genesis = Genesis {
            name: "market".into(),
            brokers: (1..5).map(|seed| key(seed).public_bytes()).collect(),
            quorum: 1,
            administrators: vec![Key::new(&key(9).public_bytes()).unwrap()],
            issuers: [("exchange".to_owned(), issuer)].into(),
        };
        let at = Addresses { gateway: "127.0.0.1:1".into(), order: "127.0.0.1:2".into() };
        let (threshold, suite) = (3, Suite::Ristretto255);
        let file = ClusterFile { genesis, addresses: vec![at; 4], threshold, suite, key: None, endorsement: None };
        (file, Identity::new(&certificate, &secret, authority.anchor().clone()).unwrap(), secret)
    }

    #[test]
    fn rule_e3_an_identity_of_an_issuer_vouches_for_the_clients_own_key() {
        for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
            let (file, identity, _) = known(algorithm);
            let client = Client(key(7).public_bytes());
            let registration = registration(&file, &identity, &client, false).expect("its issuer is known");
            let credential = registration.verify(&file.genesis, &file.cluster(), &client, NOW).expect("it verifies");
            assert_eq!(credential.attributes, identity.certificate().attributes);
            let other = Client(key(8).public_bytes());
            assert!(registration.verify(&file.genesis, &file.cluster(), &other, NOW).is_err(), "of no other key");
        }
        let (mut file, identity, _) = known(Algorithm::P256);
        file.genesis.issuers.clear();
        assert!(registration(&file, &identity, &Client(key(7).public_bytes()), false).is_none());
    }

    #[test]
    fn rule_e3_several_issuers_vouch_for_one_identity() {
        let mut rng = ChaCha20Rng::seed_from_u64(6);
        for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
            let (mut file, identity, secret) = known(algorithm);
            let client = Client(key(7).public_bytes());
            let mut insurer = Authority::create("insurer", Algorithm::P256, NOW, &mut rng).unwrap();
            let bank = key(8);
            let attributes = vec![Attribute::new("insurer", "level", "3").unwrap()];
            let request = Request { name: "a".into(), keys: identity.public(), rights: Rights::none(), attributes };
            let certificate = Voucher::Certificate(insurer.issue(&request, NOW, 86_400).unwrap());
            let signer = SigningKey::from_seed(Algorithm::Ed25519, &Secret::from_bytes([8; 32])).unwrap();
            let validity = (NOW, Utc(NOW.0 + 86_400));
            let of = identity.key().public();
            let claim = Voucher::Claim(Claim::sign("bank", &[1], validity, &[("rating", "a")], of, &signer));
            let vouchers = [certificate, claim].map(|it| Voucher::from_pem(&it.to_pem()).unwrap());
            assert!(vouchers.iter().all(|it| it.is_of(of) && !it.is_of(bank.public())));
            let mut kept = KeptIdentity::new(&Home::at(Path::new("/nowhere")), "ann", secret);
            kept.vouchers = vouchers.into();
            let all = |file: &ClusterFile, at| registrations(file, Some(&identity), Some(&kept), &client, at);
            assert_eq!(all(&file, NOW).len(), 1, "it knows neither of them");

            let authority = Issuer::authority(insurer.certificate().der()).unwrap();
            file.genesis.issuers.insert("insurer".to_owned(), authority);
            file.genesis.issuers.insert("bank".to_owned(), Issuer::Key(bank.public().clone()));
            assert_eq!(all(&file, Utc(NOW.0 + 86_401)).len(), 1, "their time is over");
            assert_eq!(registrations(&file, None, Some(&kept), &client, NOW).len(), 2, "they do without a certificate");
            let all = all(&file, NOW);
            let said = |it: &Registration| it.verify(&file.genesis, &file.cluster(), &client, NOW).unwrap().attributes;
            let said: Vec<Attribute> = all.iter().flat_map(said).collect();
            let names: Vec<String> = said.iter().map(|it| format!("{}:{}={}", it.issuer, it.key, it.value)).collect();
            assert_eq!(names, ["exchange:desk=fx", "insurer:level=3", "bank:rating=a"]);
        }
        assert!(Voucher::from_pem("nothing").is_err());
    }

    #[test]
    fn processes_of_one_identity_have_keys_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let (cluster, certificate) = (Cluster([1; 32]), CertHash([2; 32]));
        let open = || ClientKey::of(&home, &cluster, &certificate, Purpose::Call).unwrap();
        let (first, second) = (open(), open());
        assert_ne!(first.client(), second.client());
        let (was, mut record) = (first.client(), first.into_parts().1);
        record.keep(b"where we were").unwrap();
        drop(record);
        let again = open();
        assert_eq!(again.client(), was, "the first key is free again");
        assert_eq!(again.into_parts().1.last().as_deref(), Some(&b"where we were"[..]));
        let other = ClientKey::of(&home, &Cluster([3; 32]), &certificate, Purpose::Call).unwrap();
        assert_ne!(other.client(), was);
        let (free, in_use) = ClientKey::kept(&home, &cluster, &certificate, Purpose::Call).unwrap();
        assert_eq!((free.len(), in_use), (1, 1), "the second one runs");
        drop((free, second));
        let (free, in_use) = ClientKey::kept(&home, &cluster, &certificate, Purpose::Call).unwrap();
        assert_eq!((free.len(), in_use), (2, 0));
        assert!(ClientKey::kept(&home, &cluster, &certificate, Purpose::Session).unwrap().0.is_empty());
        let reader = ClientKey::of(&home, &cluster, &certificate, Purpose::Subscribe).unwrap();
        assert_ne!(reader.client(), was, "who only publishes does not touch what subscriptions go on with");
    }
}
