//! Proofs of misbehaviour, checked by whoever knows the brokers' keys (E4).

use bytes::Bytes;
use commonware_codec::Decode as _;
use commonware_consensus::Viewable as _;
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::{Attributable, ConflictingFinalize, ConflictingNotarize, NullifyFinalize};
use commonware_consensus::types::{Participant, View};
use commonware_cryptography::sha256::Digest;
use commonware_cryptography::{Hasher as _, Sha256};
use commonware_parallel::Sequential;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_order::{Evidence, Misbehaviour};

use super::stack::{Members, namespace_of};

/// What a proof shows; `None` if nothing. `brokers` are the keys of all in the callers' order, and `namespace` is that of
/// their [`super::Settings`]. A proof does not say which kind it is: the signatures of each kind are over other bytes.
pub fn judge(brokers: &[[u8; 32]], namespace: &[u8], proof: &[u8]) -> Option<Evidence> {
    let Members { sorted, indices, .. } = Members::of(brokers.iter()).ok()?;
    let scheme = Scheme::verifier(&namespace_of(namespace), sorted);
    // Upstream asks for it and draws nothing for single votes; a hash of the proof is chosen after it in any case.
    let mut rng = ChaCha20Rng::from_seed(Sha256::hash(&[proof]).0);
    let bytes = || Bytes::copy_from_slice(proof);
    let shows = |broker: Participant, view: View, misbehaviour| {
        let broker = *indices.get(usize::try_from(broker.get()).ok()?)?;
        Some(Evidence { broker, view: view.get(), misbehaviour, proof: proof.to_vec() })
    };
    if let Ok(it) = ConflictingNotarize::<Scheme, Digest>::decode_cfg(bytes(), &())
        && it.verify(&mut rng, &scheme, &Sequential)
    {
        return shows(it.signer(), it.view(), Misbehaviour::TwoNotarizeVotes);
    }
    if let Ok(it) = ConflictingFinalize::<Scheme, Digest>::decode_cfg(bytes(), &())
        && it.verify(&mut rng, &scheme, &Sequential)
    {
        return shows(it.signer(), it.view(), Misbehaviour::TwoFinalizeVotes);
    }
    let it = NullifyFinalize::<Scheme, Digest>::decode_cfg(bytes(), &()).ok()?;
    it.verify(&mut rng, &scheme, &Sequential)
        .then(|| shows(it.signer(), it.view(), Misbehaviour::SkippedAndFinalized))?
}
