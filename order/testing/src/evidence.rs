//! What a broker signs that lies to the others.

use commonware_codec::Encode as _;
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::{ConflictingNotarize, Notarize, Proposal};
use commonware_consensus::types::{Epoch, Round, View};
use commonware_cryptography::sha256::Digest;
use sealcast_order::Evidence;
use sealcast_order_engine::parts::{Members, namespace_of, signer};
use sealcast_order_engine::{SigningSeed, judge};

/// What a broker signs that votes for two blocks in one view: for tests of whoever keeps or checks proofs.
///
/// # Panics
/// If the liar is not one of the brokers.
pub fn two_votes(brokers: &[[u8; 32]], namespace: &[u8], liar: &SigningSeed, view: u64) -> Evidence {
    let Members { sorted, .. } = Members::of(brokers.iter()).expect("they are keys");
    let key = signer(liar);
    let scheme = Scheme::signer(&namespace_of(namespace), sorted, key).expect("it is one of them");
    let vote = |block: u8| {
        let proposal = Proposal::new(Round::new(Epoch::zero(), View::new(view)), View::zero(), Digest([block; 32]));
        Notarize::sign(&scheme, proposal).expect("it signs")
    };
    let proof = ConflictingNotarize::new(vote(1), vote(2)).encode().to_vec();
    judge(brokers, namespace, &proof).expect("it contradicts itself")
}
