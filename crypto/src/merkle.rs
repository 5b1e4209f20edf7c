//! Merkle trees: one signature for a batch of records, and a proof in each (RFC 6962 §2.1).
//!
//! ```text
//! root = H(2 ‖ count ‖ top)        top of leaves 0..5:      n
//! node = H(1 ‖ left ‖ right)                             n     \
//! leaf = H(0 ‖ record's hash)                          n   n    \
//!                                                     0 1 2 3    4
//! ```
//! A node without a sibling moves up unchanged. Leaves, nodes and roots are hashed apart, and the count is in
//! the root, so a proof shows one place in one batch and nothing else. Each datagram carries its own path:
//! one that is lost takes no other with it (A12).

use crate::hash::sha256;

/// All levels of a tree, leaves first; what a sender needs to give each record its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    levels: Vec<Vec<[u8; 32]>>,
}

impl Tree {
    /// The tree over the records' hashes, in their order.
    ///
    /// # Panics
    /// If there are none, or more than 2¹⁶.
    pub fn new(records: &[[u8; 32]]) -> Tree {
        assert!((1..=COUNT_MAX).contains(&records.len()), "a batch has at least one record and a bound");
        let mut levels = vec![records.iter().map(leaf).collect::<Vec<_>>()];
        while let Some(below) = levels.last().filter(|level| level.len() > 1) {
            let above = below.chunks(2).map(|pair| match pair {
                [left, right] => node(left, right),
                alone => alone[0],
            });
            levels.push(above.collect());
        }
        Tree { levels }
    }

    /// What is signed.
    pub fn root(&self) -> [u8; 32] {
        root(self.count(), &self.levels.last().expect("there is a level")[0])
    }

    /// How many records there are.
    pub fn count(&self) -> usize {
        self.levels[0].len()
    }

    /// The siblings on the way from record `index` to the top; at most ⌈log₂ count⌉ of them.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn path(&self, mut index: usize) -> Vec<[u8; 32]> {
        assert!(index < self.count(), "no record {index}");
        let mut path = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            path.extend(level.get(index ^ 1));
            index /= 2;
        }
        path
    }
}

/// The root of the batch of `count` records in which the record with this hash has place `index` and
/// this path; `None` if no batch of this shape has such a path. Proves nothing until the root's
/// signature is verified.
pub fn root_of(record: &[u8; 32], index: usize, count: usize, path: &[[u8; 32]]) -> Option<[u8; 32]> {
    if index >= count || count > COUNT_MAX {
        return None;
    }
    let (mut index, mut width, mut path) = (index, count, path.iter());
    let mut top = leaf(record);
    while width > 1 {
        if index ^ 1 < width {
            let sibling = path.next()?;
            top = if index % 2 == 0 { node(&top, sibling) } else { node(sibling, &top) };
        }
        (index, width) = (index / 2, width.div_ceil(2));
    }
    path.next().is_none().then(|| root(count, &top))
}

/// How many siblings the path of record `index` of `count` has; what a sender leaves room for.
pub fn path_len(index: usize, count: usize) -> usize {
    let (mut index, mut width, mut len) = (index, count, 0);
    while width > 1 {
        len += usize::from(index ^ 1 < width);
        (index, width) = (index / 2, width.div_ceil(2));
    }
    len
}

fn leaf(record: &[u8; 32]) -> [u8; 32] {
    let mut bytes = [0; 33];
    bytes[1..].copy_from_slice(record);
    sha256(&bytes)
}

fn node(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(left);
    bytes[33..].copy_from_slice(right);
    sha256(&bytes)
}

fn root(count: usize, top: &[u8; 32]) -> [u8; 32] {
    let mut bytes = [2; 41];
    bytes[1..9].copy_from_slice(&(count as u64).to_be_bytes());
    bytes[9..].copy_from_slice(top);
    sha256(&bytes)
}

/// Records of one tree: far more than any batch (`wire::limits::ORIGIN_BATCH_MAX`) and little work to check.
const COUNT_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(n: usize) -> Vec<[u8; 32]> {
        (0..n).map(|i| sha256(&i.to_be_bytes())).collect()
    }

    #[test]
    fn rule_a12_merkle_each_record_proves_itself_alone() {
        for n in 1..=65 {
            let (records, tree) = (records(n), Tree::new(&records(n)));
            for (i, record) in records.iter().enumerate() {
                let path = tree.path(i);
                assert_eq!(path.len(), path_len(i, n));
                assert!(path.len() <= n.next_power_of_two().ilog2() as usize);
                assert_eq!(root_of(record, i, n, &path), Some(tree.root()), "record {i} of {n}");
            }
        }
    }

    #[test]
    fn rule_a12_merkle_a_node_is_no_record_and_a_root_no_node() {
        let tree = Tree::new(&records(4));
        let top = &tree.levels[1];
        assert_ne!(Tree::new(top).root(), tree.root(), "inner nodes given as records make another root");
        assert_ne!(root_of(&top[0], 0, 2, &[top[1]]), Some(tree.root()));
    }

    #[test]
    fn rule_a12_merkle_the_count_is_bound() {
        // Five records and six have the same siblings for record 0 where the sixth is on no path of it …
        let tree = Tree::new(&records(5));
        for count in (1..=64).filter(|&count| count != 5) {
            assert_ne!(root_of(&records(5)[0], 0, count, &tree.path(0)), Some(tree.root()));
        }
    }

    proptest! {
        #[test]
        fn rule_a12_merkle_nothing_else_has_the_root(
            n in 1_usize..70,
            place: prop::sample::Index,
            other: prop::sample::Index,
            byte in 0..32_usize,
            bit in 0..8_u32,
        ) {
            let (records, tree) = (records(n), Tree::new(&records(n)));
            let (i, j) = (place.index(n), other.index(n));
            let (path, root) = (tree.path(i), Some(tree.root()));
            let mut changed = records[i];
            changed[byte] ^= 1 << bit;
            prop_assert_ne!(root_of(&changed, i, n, &path), root);
            prop_assert_eq!(root_of(&records[i], j, n, &path) == root, i == j);
            let mut longer = path.clone();
            longer.push([0; 32]);
            prop_assert_eq!(root_of(&records[i], i, n, &longer), None);
            if !path.is_empty() {
                prop_assert_eq!(root_of(&records[i], i, n, &path[..path.len() - 1]), None);
                let mut wrong = path.clone();
                wrong[other.index(path.len())][byte] ^= 1 << bit;
                prop_assert_ne!(root_of(&records[i], i, n, &wrong), root);
            }
        }
    }
}
