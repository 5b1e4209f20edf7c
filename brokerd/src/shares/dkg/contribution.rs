//! What a broker draws for a run, all of it from its seed.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_crypto::disclosure::Pair;
use sealcast_crypto::group::feldman::{self, Dealing};
use sealcast_crypto::group::{PrimeGroup, SecretScalar};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;

use super::super::word::{Announcement, Binding};
use super::Setup;

/// What one broker draws for one run.
pub(super) struct Contribution<G: PrimeGroup> {
    /// y, Y.
    pub(super) key: Pair<G>,
    /// x, X.
    pub(super) sender: Pair<G>,
    /// a_0, φ_0.
    pub(super) secret: Pair<G>,
    pub(super) dealt: Dealing<G>,
    pub(super) announcement: Announcement<G>,
}

impl<G: PrimeGroup> Contribution<G> {
    /// All of it from the seed, the run and the broker's number.
    pub(super) fn derive(setup: &Setup, binding: Binding, seed: &Secret<32>) -> Contribution<G> {
        let info: [&[u8]; 2] = [b"sealcast/v1/key ceremony seed", &setup.index.to_be_bytes()];
        let mut rng = ChaCha20Rng::from_seed(*hkdf::<32>(seed.expose(), binding.as_bytes(), &info).expose());
        let (key, sender) = (Pair::new(SecretScalar::random(&mut rng)), Pair::new(SecretScalar::random(&mut rng)));
        let (secret, dealt) = feldman::deal(setup.threshold, setup.brokers, &mut rng);
        let announcement = Announcement {
            key: *key.public(),
            knowledge: key.know(&binding.proof(setup.index, KEY)),
            promise: binding.promise(setup.index, &dealt.commitment),
        };
        Contribution { key, sender, secret: Pair::new(secret), dealt, announcement }
    }
}

/// What proofs are of: y, a_0, x.
pub(super) const KEY: &str = "key";
pub(super) const SECRET: &str = "secret";
pub(super) const SENDER: &str = "sender";
