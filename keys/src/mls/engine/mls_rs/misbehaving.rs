//! Commits whose path others cannot open, for tests and simulations elsewhere (feature `misbehaving`).
//!
//! Signatures, tree and tags of such a commit are good: a member notices only if it is one of the victims.

use std::collections::BTreeSet;

use mls_rs_core::crypto::{HpkeCiphertext, HpkePublicKey};

use super::{MlsRs, nodes};
use crate::mls::engine::{Engine, LeafIndex};

/// For whom what is sealed is spoiled: public keys of nodes.
#[derive(Default)]
pub(super) struct Spoiled(BTreeSet<Vec<u8>>);

impl Spoiled {
    /// What was sealed to this key, or something that its holder cannot open.
    pub(super) fn change(&self, to: &HpkePublicKey, mut sealed: HpkeCiphertext) -> HpkeCiphertext {
        if self.0.contains(to.as_ref())
            && let Some(byte) = sealed.ciphertext.first_mut()
        {
            *byte ^= 1;
        }
        sealed
    }
}

impl MlsRs {
    /// From now on these members cannot open the paths of our commits, nor can others who share a node with one of them below
    /// where their path meets ours.
    pub fn spoil(&mut self, victims: &[LeafIndex]) {
        let own: BTreeSet<u32> = self.path(self.own_leaf()).collect();
        let theirs: BTreeSet<u32> = victims.iter().flat_map(|leaf| self.path(*leaf)).collect();
        let keys = theirs.difference(&own).filter_map(|index| encryption_key(&self.node(*index)));
        *self.tools.provider.spoiled() = Spoiled(keys.collect());
    }

    /// A leaf's node, and those above it.
    fn path(&self, leaf: LeafIndex) -> impl Iterator<Item = u32> + use<> {
        let leaves = nodes::leaf_count(self.node_count() as usize);
        [2 * leaf.0].into_iter().chain(nodes::above(leaf.0, leaves))
    }
}

/// Leaves and parents begin with their `encryption_key` (RFC 9420, sections 7.1 and 7.2), behind a byte of presence and the type.
fn encryption_key(node: &[u8]) -> Option<Vec<u8>> {
    let node = node.get(2..)?;
    // Its length is a variable-size integer: of one byte for X25519, of two for P-256.
    match *node.first()? {
        length if length < 0x40 => node.get(1..1 + usize::from(length)).map(<[u8]>::to_vec),
        _ => node.get(2..2 + usize::from(*node.get(1)?)).map(<[u8]>::to_vec),
    }
}
