//! The tree's nodes: which ones a commit changed, and their hashes (RFC 9420, sections 4, 7.8, appendix C).
//!
//! ```text
//! level 2         3
//!             ╱       ╲
//! level 1   1           5        node x of level k has its parent at (x | 1<<k) & !(1<<(k+1))
//!         ╱   ╲       ╱   ╲
//! level 0 0   2       4   6      leaf i is node 2i
//! ```

use std::collections::BTreeSet;

use mls_rs::group::Node;
use mls_rs::mls_rs_codec::MlsEncode;
use sealcast_crypto::hash::sha256;

use crate::mls::engine::{NodeChange, NodeChanges};

/// A tree's nodes as mls-rs holds them: blank ones at its end are left out.
pub(super) type Nodes = [Option<Node>];

/// `optional<Node>`; blank beyond the tree.
pub(super) fn encode(nodes: &Nodes, index: u32) -> Vec<u8> {
    nodes.get(index as usize).unwrap_or(&None).mls_encode_to_vec().expect("a node that was decoded has an encoding")
}

/// The leaves that differ.
pub(super) fn changed_leaves(old: &Nodes, new: &Nodes) -> BTreeSet<u32> {
    let differs = |at: &usize| at_index(old, *at) != at_index(new, *at);
    (0..old.len().max(new.len())).step_by(2).filter(differs).map(|at| at as u32 / 2).collect()
}

/// The leaves that are blank in the first tree and not in the second.
pub(super) fn filled_leaves(old: &Nodes, new: &Nodes) -> BTreeSet<u32> {
    let filled = |at: &usize| at_index(new, *at).is_some() && at_index(old, *at).is_none();
    (0..new.len()).step_by(2).filter(filled).map(|at| at as u32 / 2).collect()
}

/// What changed between two trees that differ in these leaves, and in nothing but them and the nodes above them.
pub(super) fn changes(old: &Nodes, new: &Nodes, leaves: &BTreeSet<u32>) -> NodeChanges {
    let leaf_count = leaf_count(old.len().max(new.len()));
    let mut places: BTreeSet<u32> = leaves.iter().map(|leaf| 2 * leaf).collect();
    places.extend(leaves.iter().flat_map(|leaf| above(*leaf, leaf_count)));
    let differs = |at: &u32| {
        let at = *at as usize;
        at < new.len() && at_index(old, at) != at_index(new, at)
    };
    let change = |index: u32| NodeChange { index, bytes: encode(new, index) };
    NodeChanges { count: new.len() as u32, nodes: places.into_iter().filter(differs).map(change).collect() }
}

/// How many nodes above a leaf are blank.
pub(super) fn blanks_above(nodes: &Nodes, leaf: u32) -> usize {
    let blank = |at: &u32| at_index(nodes, *at as usize).is_none();
    above(leaf, leaf_count(nodes.len())).filter(blank).count()
}

/// The tree hash of every node, blank ones at the end included; the root's is in the middle.
pub(super) fn tree_hashes(nodes: &Nodes) -> Vec<[u8; 32]> {
    let leaf_count = leaf_count(nodes.len());
    let count = 2 * leaf_count - 1;
    let mut hashes = vec![[0; 32]; count as usize];
    for leaf in 0..leaf_count {
        // struct { TreeHashInput = 1; uint32 leaf_index; optional<LeafNode> leaf_node; }
        let mut input = vec![1];
        input.extend_from_slice(&leaf.to_be_bytes());
        put_optional(&mut input, nodes, 2 * leaf);
        hashes[2 * leaf as usize] = sha256(&input);
    }
    let levels = leaf_count.trailing_zeros();
    for level in 1..=levels {
        let half = 1 << (level - 1);
        for node in (((1 << level) - 1)..count).step_by(2 << level) {
            // struct { TreeHashInput = 2; optional<ParentNode> parent_node; opaque left_hash<V>; opaque right_hash<V>; }
            let mut input = vec![2];
            put_optional(&mut input, nodes, node);
            for child in [node - half, node + half] {
                input.push(32);
                input.extend_from_slice(&hashes[child as usize]);
            }
            hashes[node as usize] = sha256(&input);
        }
    }
    hashes
}

/// A node without its type, which `TreeHashInput` names itself.
fn put_optional(to: &mut Vec<u8>, nodes: &Nodes, index: u32) {
    match encode(nodes, index).split_first_chunk::<2>() {
        Some(([present, _], node)) => {
            to.push(*present);
            to.extend_from_slice(node);
        }
        None => to.push(0),
    }
}

/// How many leaves a tree of so many nodes has room for.
pub(super) fn leaf_count(nodes: usize) -> u32 {
    (nodes as u32 / 2 + 1).next_power_of_two()
}

/// The nodes above a leaf, up to the root.
pub(super) fn above(leaf: u32, leaf_count: u32) -> impl Iterator<Item = u32> {
    (0..leaf_count.trailing_zeros()).scan(2 * leaf, |node, level| {
        *node = (*node | (1 << level)) & !(2 << level);
        Some(*node)
    })
}

/// A node that is not blank.
fn at_index(nodes: &Nodes, at: usize) -> Option<&Node> {
    nodes.get(at).and_then(Option::as_ref)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9420, appendix C: the array of a tree of eight leaves.
    #[test]
    fn the_nodes_above_a_leaf_are_those_of_appendix_c() {
        assert_eq!(above(0, 8).collect::<Vec<_>>(), [1, 3, 7]);
        assert_eq!(above(3, 8).collect::<Vec<_>>(), [5, 3, 7]);
        assert_eq!(above(5, 8).collect::<Vec<_>>(), [9, 11, 7]);
        assert_eq!(above(7, 8).collect::<Vec<_>>(), [13, 11, 7]);
        assert_eq!(above(0, 1).count(), 0);
    }
}
