//! What tests of keys ask of them.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_crypto::group::PrimeGroup;
use sealcast_crypto::tdh2::{Combined, Combiner, KeyShare, Label, PublicKey, Share};

/// Each run of t neighbours among these shares, in a ring, opens a ciphertext, and t − 1 of them do not.
pub(super) fn opens_with_every_t<G: PrimeGroup>(key: &PublicKey<G>, shares: &[KeyShare<G>]) {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let key = Arc::new(PublicKey::<G>::decode(&key.encode()).unwrap());
    let label = Label::new(b"client", 1);
    let ciphertext = key.encrypt(&label, b"a message", &mut rng);
    let checked = key.check(key.bind(ciphertext.clone(), &label)).unwrap();
    let labelled = key.bind(ciphertext, &label);
    let threshold = usize::from(key.parameters().threshold);
    assert!(shares.len() >= threshold, "{} shares, and {threshold} are needed", shares.len());
    let given: Vec<Share<G>> = shares.iter().map(|it| it.share(&checked).unwrap()).collect();
    let mut combiner = Combiner::new(key);
    for first in 0..given.len() {
        let chosen: Vec<_> = given.iter().cycle().skip(first).take(threshold).copied().collect();
        match combiner.combine(&labelled, &chosen).unwrap() {
            Combined::Opened(message) => assert_eq!(message.as_slice(), b"a message"),
            other => panic!("shares from {first} on: {other:?}"),
        }
        assert!(combiner.combine(&labelled, &chosen[1..]).is_err());
    }
}
