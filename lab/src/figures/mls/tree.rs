//! A group of any size whose tree has no blank node but those with nobody on one side: the one that comes about when each
//! member commits once, in the order of the leaves. It is computed in one pass instead of by that many commits, and entered by
//! external commits as any other.
//!
//! What each node holds is what RFC 9420 wants of it: keys, parent hashes (section 7.9), tree hashes (7.8), signatures. The left
//! child of a parent carries the hash of an earlier state of that parent, as it does where both sides committed; here it is
//! drawn. Nobody holds the keys of these members, so they say nothing.

use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::SigningKey;
use sealcast_keys::mls::engine::Suite;
use sealcast_wire::Writer;

use crate::Failure;

/// A group that can be entered.
pub(super) struct FullGroup {
    /// A GroupInfo (an MLSMessage), signed by the first member.
    pub(super) group_info: Vec<u8>,
    /// `ratchet_tree`.
    pub(super) tree: Vec<u8>,
}

impl FullGroup {
    /// A group of so many members with `basic` credentials.
    ///
    /// # Errors
    /// The cryptography refuses.
    pub(super) fn new(members: u32) -> Result<FullGroup, Failure> {
        let mut builder = Builder { members, nodes: vec![vec![0]; 2 * members as usize - 1], drawn: 0 };
        let size = members.next_power_of_two();
        let tree_hash = builder.subtree(0, size, &[])?;
        let signer = signer(0)?;
        let external = SUITE.kem_derive(&sha256(b"external"))?;
        let mut w = Writer::new();
        // struct { GroupContext; Extension extensions<V>; MAC confirmation_tag<V>; uint32 signer; opaque signature<V> }
        w.u16(MLS_1_0).u16(SUITE.number());
        vector(&mut w, GROUP_ID);
        w.u64(u64::from(members));
        vector(&mut w, &tree_hash);
        vector(&mut w, &sha256(b"confirmed transcript"));
        vector(&mut w, b"");
        let mut extensions = Writer::new();
        let mut key = Writer::new();
        vector(&mut key, &external.public);
        extensions.u16(EXTERNAL_PUB);
        vector(&mut extensions, &key.finish());
        vector(&mut w, &extensions.finish());
        vector(&mut w, &sha256(b"confirmation tag"));
        w.u32(0);
        let info = w.finish();
        let signature = signed(&signer, "GroupInfoTBS", &info);
        let mut w = Writer::new();
        w.u16(MLS_1_0).u16(WIRE_FORMAT_GROUP_INFO).raw(&info);
        vector(&mut w, &signature);
        let group_info = w.finish();
        let mut w = Writer::new();
        vector(&mut w, &builder.nodes.concat());
        Ok(FullGroup { group_info, tree: w.finish() })
    }
}

struct Builder {
    members: u32,
    /// `optional<Node>` of each.
    nodes: Vec<Vec<u8>>,
    drawn: u64,
}

impl Builder {
    /// The nodes of the subtree over `size` leaves from `first` on, whose root has this parent hash; its tree hash.
    fn subtree(&mut self, first: u32, size: u32, parent_hash: &[u8]) -> Result<[u8; 32], Failure> {
        if size == 1 {
            return self.leaf(first, parent_hash);
        }
        let half = size / 2;
        let at = 2 * first + size - 1;
        let mut parent = Writer::new();
        let (left, right) = if first + half >= self.members {
            // Nobody is on the right: the node is no part of anybody's filtered direct path, and stays blank.
            (self.subtree(first, half, parent_hash)?, blank(first + half, half))
        } else {
            let earlier = self.draw();
            let left = self.subtree(first, half, &earlier)?;
            let key = SUITE.kem_derive(&self.draw())?.public;
            vector(&mut parent, &key);
            vector(&mut parent, parent_hash);
            // struct { HPKEPublicKey encryption_key; opaque parent_hash<V>; opaque original_sibling_tree_hash<V>; }
            let mut input = Writer::new();
            input.raw(parent.as_slice());
            vector(&mut input, &left);
            let right = self.subtree(first + half, half, &sha256(&input.finish()))?;
            vector(&mut parent, b"");
            (left, right)
        };
        let parent = parent.finish();
        let is_blank = parent.is_empty();
        if !is_blank {
            self.nodes[at as usize] = [&[1, NODE_PARENT][..], &parent].concat();
        }
        Ok(parent_tree_hash((!is_blank).then_some(&parent), &left, &right))
    }

    fn leaf(&mut self, index: u32, parent_hash: &[u8]) -> Result<[u8; 32], Failure> {
        if index >= self.members {
            return Ok(blank(index, 1));
        }
        let signer = signer(index)?;
        let key = SUITE.kem_derive(&self.draw())?.public;
        let mut w = Writer::new();
        vector(&mut w, &key);
        vector(&mut w, signer.public().point());
        w.u16(CREDENTIAL_BASIC);
        vector(&mut w, format!("member {index}").as_bytes());
        for kinds in [&[MLS_1_0][..], &[SUITE.number()], &[], &[], &[CREDENTIAL_BASIC]] {
            vector(&mut w, &kinds.iter().flat_map(|it| it.to_be_bytes()).collect::<Vec<u8>>());
        }
        w.u8(SOURCE_COMMIT);
        vector(&mut w, parent_hash);
        vector(&mut w, b"");
        let leaf = w.finish();
        let mut signs = Writer::new();
        signs.raw(&leaf);
        vector(&mut signs, GROUP_ID);
        signs.u32(index);
        let mut w = Writer::new();
        w.raw(&leaf);
        vector(&mut w, &signed(&signer, "LeafNodeTBS", &signs.finish()));
        let leaf = w.finish();
        self.nodes[2 * index as usize] = [&[1, NODE_LEAF][..], &leaf].concat();
        let mut input = Writer::new();
        input.u8(NODE_LEAF).u32(index).u8(1).raw(&leaf);
        Ok(sha256(&input.finish()))
    }

    fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        sha256(&self.drawn.to_be_bytes())
    }
}

/// The tree hash of a subtree without members.
fn blank(first: u32, size: u32) -> [u8; 32] {
    if size == 1 {
        let mut input = Writer::new();
        input.u8(NODE_LEAF).u32(first).u8(0);
        return sha256(&input.finish());
    }
    let half = size / 2;
    parent_tree_hash(None, &blank(first, half), &blank(first + half, half))
}

fn parent_tree_hash(node: Option<&Vec<u8>>, left: &[u8], right: &[u8]) -> [u8; 32] {
    let mut input = Writer::new();
    input.u8(NODE_PARENT).u8(node.is_some().into()).raw(node.map_or(&[][..], |it| it));
    vector(&mut input, left);
    vector(&mut input, right);
    sha256(&input.finish())
}

fn signer(index: u32) -> Result<SigningKey, Failure> {
    let seed = Secret::from_bytes(sha256(&[&b"signer"[..], &index.to_be_bytes()].concat()));
    Ok(SigningKey::from_seed(SUITE.algorithm(), &seed)?)
}

/// RFC 9420, section 5.1.2.
fn signed(signer: &SigningKey, label: &str, content: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    vector(&mut w, format!("MLS 1.0 {label}").as_bytes());
    vector(&mut w, content);
    SUITE.encode_signature(&signer.sign(&w.finish()))
}

/// A vector with its length (RFC 9420, section 2.1.2).
fn vector(w: &mut Writer, bytes: &[u8]) {
    match bytes.len() {
        length @ 0..0x40 => w.u8(length as u8),
        length @ 0x40..0x4000 => w.u16(length as u16 | 0x4000),
        length => w.u32(length as u32 | 0x8000_0000),
    };
    w.raw(bytes);
}

const SUITE: Suite = Suite::X25519;
const GROUP_ID: &[u8] = b"full group";
/// RFC 9420, section 17.
const MLS_1_0: u16 = 1;
const WIRE_FORMAT_GROUP_INFO: u16 = 4;
const EXTERNAL_PUB: u16 = 4;
const CREDENTIAL_BASIC: u16 = 1;
const SOURCE_COMMIT: u8 = 3;
const NODE_LEAF: u8 = 1;
const NODE_PARENT: u8 = 2;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sealcast_keys::mls::engine::mls_rs::MlsRs;
    use sealcast_keys::mls::engine::{Engine, Handshake, Plan, Processed, Setup, Step};
    use sealcast_keys::mls::judge::{Credential, Everybody};
    use sealcast_wire::Utc;

    use super::*;

    #[test]
    fn members_enter_a_full_group_and_follow_each_other() {
        for members in [1, 2, 3, 6, 7, 14, 20] {
            let setup = |name: u8| Setup {
                suite: SUITE,
                credential: Credential::Basic(vec![name]),
                signer: Arc::new(SigningKey::from_seed(SUITE.algorithm(), &Secret::from_bytes([name; 32])).unwrap()),
                judge: Arc::new(Everybody),
                handshake: Handshake::Private,
                extension_kinds: Vec::new(),
            };
            let seed = |at: u8| Secret::from_bytes([at; 32]);
            let utc = Utc(1_800_000_000);
            let group = FullGroup::new(members).unwrap();
            let enter = |info: &[u8], tree: &[u8], name: u8| {
                MlsRs::external_join(&setup(name), info, tree, None, Step { utc, seed: &seed(name) }).unwrap()
            };
            let (mut first, _) = enter(&group.group_info, &group.tree, 1);
            let (mut second, commit) = enter(&first.group_info(), &first.tree(), 2);
            assert!(matches!(first.process(&commit.message, utc), Ok(Processed::Commit(_))));
            assert_eq!(first.members().len(), members as usize + 2);
            let made = second.commit(&Plan::default(), Step { utc, seed: &seed(3) }).unwrap();
            second.apply(&made.pending).unwrap();
            first.process(&made.message, utc).unwrap();
            assert_eq!(first.context(), second.context(), "{members} members");
            // A node with nobody on its one side is blank in any tree.
            if (members + 2).is_power_of_two() {
                assert_eq!(first.blanks_above(), 0, "{members} members");
            }
        }
    }
}
