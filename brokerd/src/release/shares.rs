//! Shares and proofs of one group, each computed once for a ciphertext.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_broker::operation::{Body, Client, Operation, OperationId, Sealed};
use sealcast_broker::protocol::Why;
use sealcast_broker::state::Entry;
use sealcast_crypto::group::PrimeGroup;
use sealcast_crypto::tdh2::{Checked, Ciphertext, KeyShare, Label, Labelled, PublicKey, Seen};
use sealcast_keys::threshold::evidence::{self, Against};
use sealcast_keys::threshold::sealed::{Attachment, SignedShare, What, statement};
use sealcast_wire::limits;

use super::Kind;
use crate::cache::Cache;
use crate::executor::Shared;

/// The key, one share of it if this broker has one, and what was computed with them. The key alone suffices to check
/// ciphertexts.
pub struct Shares<G: PrimeGroup> {
    key: Arc<PublicKey<G>>,
    share: Option<KeyShare<G>>,
    /// Ciphertexts whose proof holds, by publication.
    checked: Mutex<Cache<Name, Arc<Checked<G>>>>,
    /// That so many more were checked, by ctid: who reads history need not check its proofs again.
    seen: Mutex<Cache<[u8; 32], Seen>>,
    /// Attachments with shares and with proofs, by sn.
    shares: Mutex<Cache<u64, Vec<u8>>>,
    proofs: Mutex<Cache<u64, Vec<u8>>>,
}

/// Names a ciphertext with its label: who published it, under which number, and all bytes of the operation.
type Name = (Client, u64, OperationId);

impl<G: PrimeGroup> Shares<G> {
    pub(super) fn new(key: PublicKey<G>, share: Option<KeyShare<G>>) -> Shares<G> {
        Shares {
            key: Arc::new(key),
            share,
            checked: Mutex::new(Cache::new(limits::CIPHERTEXTS_CHECKED_BYTES)),
            seen: Mutex::new(Cache::new(limits::CIPHERTEXTS_SEEN_BYTES)),
            shares: Mutex::new(Cache::new(limits::SHARES_HELD_BYTES)),
            proofs: Mutex::new(Cache::new(limits::SHARES_HELD_BYTES)),
        }
    }

    pub(super) fn encoded(&self) -> (u32, Vec<u8>) {
        let epoch = u32::try_from(self.key.parameters().epoch).expect("key epochs are counted from 0");
        (epoch, self.key.encode())
    }

    pub(super) fn check(&self, shared: &Shared, sealed: &[Sealed<'_>]) -> Vec<bool> {
        let name = |it: &Sealed<'_>| (it.client, it.number, it.id);
        let mut valid: Vec<bool> = {
            let checked = held(&self.checked);
            sealed.iter().map(|it| it.against.is_none() && checked.get(&name(it)).is_some()).collect()
        };
        let (mut places, mut batch) = (Vec::new(), Vec::new());
        let unknown: Vec<usize> = (0..sealed.len()).filter(|place| !valid[*place]).collect();
        for place in unknown {
            let it = &sealed[place];
            match (self.bind(it.ciphertext, &it.label), it.against) {
                (Some(labelled), None) => {
                    places.push(place);
                    batch.push(labelled);
                }
                (Some(labelled), Some(accusation)) => {
                    let (cluster, brokers) = (&shared.cluster.0, &shared.broker_keys);
                    let against = Against { sharing: accusation.sharing, shares: &accusation.shares };
                    valid[place] =
                        evidence::opens_to_nothing(&self.key, cluster, brokers, labelled, &against, &mut rng());
                }
                (None, _) => {}
            }
        }
        if batch.is_empty() {
            return valid;
        }
        let results = self.key.check_batch(batch, &mut rng());
        let (mut checked, mut seen) = (held(&self.checked), held(&self.seen));
        for (place, result) in places.into_iter().zip(results) {
            if let Ok(it) = result {
                valid[place] = true;
                seen.insert(*it.id(), it.seen(), SEEN_BYTES);
                checked.insert(name(&sealed[place]), Arc::new(it), sealed[place].ciphertext.len() + CHECKED_BYTES);
            }
        }
        valid
    }

    /// An attachment to a publication, in bytes.
    ///
    /// # Errors
    /// The publication is not sealed, not under this key, or no longer kept; or this broker has no share.
    pub(super) fn prepare(&self, shared: &Shared, entry: &Entry, kind: Kind) -> Result<Vec<u8>, Why> {
        let cache = match kind {
            Kind::Share => Some(&self.shares),
            Kind::Proved => Some(&self.proofs),
            Kind::Denied => None,
        };
        if let Some(known) = cache.and_then(|cache| held(cache).get(&entry.sn).cloned()) {
            return Ok(known);
        }
        if kind == Kind::Denied {
            let ciphertext = self.id(shared, entry)?;
            return Ok(Attachment::<G> { ciphertext, what: What::Denied }.to_bytes());
        }
        let it = self.checked(shared, entry)?;
        let what = match kind {
            Kind::Share => What::Share(self.share()?.share(&it).map_err(|_| Why::Nothing)?),
            Kind::Proved => {
                let proved = self.share()?.prove(&it, &mut rng()).map_err(|_| Why::Nothing)?;
                let sharing = self.key.sharing();
                let signature = shared.key.sign(&statement(&shared.cluster.0, &sharing, it.id(), &proved.encode()));
                What::Proved(SignedShare { sharing, proved, signature })
            }
            Kind::Denied => What::Denied,
        };
        let bytes = Attachment { ciphertext: *it.id(), what }.to_bytes();
        match cache {
            // Of two threads that proved at once, the first is remembered, and everybody gets that proof.
            Some(cache) => Ok(held(cache).insert(entry.sn, bytes.clone(), bytes.len() + CACHED_BYTES).clone()),
            None => Ok(bytes),
        }
    }

    pub(super) fn has_share(&self) -> bool {
        self.share.is_some()
    }

    pub(super) fn threshold(&self) -> usize {
        usize::from(self.key.parameters().threshold)
    }

    fn share(&self) -> Result<&KeyShare<G>, Why> {
        self.share.as_ref().ok_or(Why::Nothing)
    }

    /// A publication's ciphertext, which admission has checked or which is checked now.
    fn checked(&self, shared: &Shared, entry: &Entry) -> Result<Arc<Checked<G>>, Why> {
        let name = (entry.client, entry.number, entry.id);
        if let Some(it) = held(&self.checked).get(&name) {
            return Ok(it.clone());
        }
        let (labelled, bytes) = self.labelled(shared, entry)?;
        let seen = held(&self.seen).get(labelled.id()).copied();
        let it = match seen {
            Some(seen) => self.key.check_again(labelled, seen),
            None => self.key.check(labelled),
        };
        let it = Arc::new(it.map_err(|_| Why::Nothing)?);
        held(&self.seen).insert(*it.id(), it.seen(), SEEN_BYTES);
        Ok(held(&self.checked).insert(name, it, bytes + CHECKED_BYTES).clone())
    }

    /// What names a publication's ciphertext, which nobody checks for that.
    fn id(&self, shared: &Shared, entry: &Entry) -> Result<[u8; 32], Why> {
        if let Some(it) = held(&self.checked).get(&(entry.client, entry.number, entry.id)) {
            return Ok(*it.id());
        }
        Ok(*self.labelled(shared, entry)?.0.id())
    }

    /// A publication's ciphertext bound to its label, and its length.
    fn labelled(&self, shared: &Shared, entry: &Entry) -> Result<(Labelled<G>, usize), Why> {
        let operation = Operation::from_bytes(&shared.operation(entry)?).map_err(|_| Why::Storage)?;
        let Operation::Publish(publication) = operation else { return Err(Why::Nothing) };
        let Body::Sealed(ciphertext) = &publication.body else { return Err(Why::Nothing) };
        let labelled = self.bind(ciphertext, &publication.label(&entry.client, entry.number)).ok_or(Why::Nothing)?;
        Ok((labelled, ciphertext.len()))
    }

    fn bind(&self, ciphertext: &[u8], label: &Label) -> Option<Labelled<G>> {
        Ciphertext::decode(ciphertext).ok().map(|it| self.key.bind(it, label))
    }
}

fn held<T>(cache: &Mutex<T>) -> MutexGuard<'_, T> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A generator for one batch or proof, seeded by the operating system.
fn rng() -> ChaCha20Rng {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).expect("the operating system gives random bytes");
    ChaCha20Rng::from_seed(seed)
}

/// Bytes in memory of a checked ciphertext beside the ciphertext, about: decoded elements, hashes, the cache's own.
const CHECKED_BYTES: usize = 1024;
/// Bytes in memory of what says that a ciphertext was checked, about.
const SEEN_BYTES: usize = 160;
/// Bytes in memory of a cached attachment beside its own, about.
const CACHED_BYTES: usize = 64;
