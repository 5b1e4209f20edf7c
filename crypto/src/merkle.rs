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
    /// If there are none, or more than 2²⁴.
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

/// A record's path from its leaf to the root, computed as far as somebody asks.
#[derive(Debug)]
pub struct MerklePath<'a> {
    index: usize,
    count: usize,
    /// By level: the sibling there, if there is one.
    siblings: [Option<&'a [u8; 32]>; LEVELS_MAX],
    /// How many levels lie below the top.
    depth: usize,
    /// By level; the first `computed` are.
    nodes: [[u8; 32]; LEVELS_MAX],
    computed: usize,
}

impl<'a> MerklePath<'a> {
    /// The path of the record with this hash, which has place `index` of `count` and this path; `None` if no
    /// batch of this shape has such a path.
    pub fn new(record: &[u8; 32], index: usize, count: usize, path: &'a [[u8; 32]]) -> Option<MerklePath<'a>> {
        if index >= count || count > COUNT_MAX {
            return None;
        }
        let (mut i, mut width, mut path, mut depth) = (index, count, path.iter(), 0);
        let mut siblings = [None; LEVELS_MAX];
        while width > 1 {
            if i ^ 1 < width {
                siblings[depth] = Some(path.next()?);
            }
            (i, width, depth) = (i / 2, width.div_ceil(2), depth + 1);
        }
        let mut nodes = [[0; 32]; LEVELS_MAX];
        nodes[0] = leaf(record);
        path.next().is_none().then_some(MerklePath { index, count, siblings, depth, nodes, computed: 1 })
    }

    /// The root that it leads to. Proves nothing until the root's signature is verified.
    pub fn root(&mut self) -> [u8; 32] {
        root(self.count, self.node(self.depth))
    }

    fn node(&mut self, level: usize) -> &[u8; 32] {
        while self.computed <= level {
            let at = self.computed - 1;
            let below = &self.nodes[at];
            self.nodes[at + 1] = match self.siblings[at] {
                None => *below,
                Some(right) if (self.index >> at).is_multiple_of(2) => node(below, right),
                Some(left) => node(left, below),
            };
            self.computed += 1;
        }
        &self.nodes[level]
    }
}

/// The nodes of one tree that are known to be below its verified root: they spare the next records most of
/// their hashes.
///
/// Who holds a node that is known shows it to be that node by being equal to it; its two children and the
/// siblings above it are then known too, since a node is the hash of its children.
#[derive(Clone, Debug)]
pub struct Known {
    count: usize,
    /// Level by level, leaves first.
    nodes: Vec<Option<[u8; 32]>>,
}

impl Known {
    /// What a record's path shows of the tree, once the root that it leads to is verified.
    pub fn new(path: &mut MerklePath<'_>) -> Known {
        let mut known = Known { count: path.count, nodes: vec![None; 2 * path.count + path.depth] };
        path.node(path.depth);
        known.learn(path, path.depth);
        known
    }

    /// Whether this path leads to the tree's root: exactly if [`MerklePath::root`] is that root.
    pub fn proves(&mut self, path: &mut MerklePath<'_>) -> bool {
        if path.count != self.count {
            return false;
        }
        let (mut level, mut start, mut width) = (0, 0, self.count);
        // Upwards to the first node that is known; the top always is.
        let met = loop {
            if let Some(known) = &self.nodes[start + (path.index >> level)] {
                break known == path.node(level);
            }
            (level, start, width) = (level + 1, start + width, width.div_ceil(2));
        };
        // The rest of the way must be the tree's too, or the same path would prove a record here and not
        // where nothing is known yet.
        let met_at = level;
        while met && level < path.depth {
            let sibling = path.siblings[level].map(|_| (path.index >> level) ^ 1);
            if sibling.is_some_and(|at| self.nodes[start + at].as_ref() != path.siblings[level]) {
                return false;
            }
            (level, start, width) = (level + 1, start + width, width.div_ceil(2));
        }
        if met {
            self.learn(path, met_at);
        }
        met
    }

    /// Takes in the nodes of a way up to this level, and their siblings below it.
    fn learn(&mut self, path: &MerklePath<'_>, to: usize) {
        let (mut start, mut width) = (0, self.count);
        for level in 0..=to {
            let at = path.index >> level;
            self.nodes[start + at] = Some(path.nodes[level]);
            if let Some(sibling) = path.siblings[level].filter(|_| level < to) {
                self.nodes[start + (at ^ 1)] = Some(*sibling);
            }
            (start, width) = (start + width, width.div_ceil(2));
        }
    }
}

/// The root of the batch of `count` records in which the record with this hash has place `index` and
/// this path; `None` if no batch of this shape has such a path. Proves nothing until the root's
/// signature is verified.
pub fn root_of(record: &[u8; 32], index: usize, count: usize, path: &[[u8; 32]]) -> Option<[u8; 32]> {
    Some(MerklePath::new(record, index, count, path)?.root())
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
const COUNT_MAX: usize = 1 << 24;
/// Levels of the largest tree, leaves and top among them.
const LEVELS_MAX: usize = COUNT_MAX.ilog2() as usize + 1;

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
    fn rule_a12_merkle_what_is_known_proves_exactly_what_the_root_does() {
        for n in (1..=20).chain([63, 64, 65]) {
            let (records, tree) = (records(n), Tree::new(&records(n)));
            let paths: Vec<_> = (0..n).map(|i| tree.path(i)).collect();
            for first in [0, n / 2, n - 1] {
                let proves = |known: &mut Known, i: usize, record, path: &[[u8; 32]]| {
                    known.proves(&mut MerklePath::new(record, i, n, path).unwrap())
                };
                let mut known = Known::new(&mut MerklePath::new(&records[first], first, n, &paths[first]).unwrap());
                for i in (0..n).rev().chain(0..n) {
                    // Any bit of the path, any other place, any other record.
                    for level in 0..paths[i].len() {
                        let mut wrong = paths[i].clone();
                        wrong[level][7] ^= 1;
                        assert!(!proves(&mut known, i, &records[i], &wrong), "{i} of {n}: level {level}");
                    }
                    for (j, record) in records.iter().enumerate().filter(|(j, _)| *j != i) {
                        assert!(!proves(&mut known, i, record, &paths[i]), "{j} for {i} of {n}");
                    }
                    assert!(proves(&mut known, i, &records[i], &paths[i]), "{i} of {n}");
                }
                assert!(!known.proves(&mut MerklePath::new(&records[0], 0, 1, &[]).unwrap()) || n == 1);
            }
        }
    }

    #[test]
    fn rule_a12_merkle_what_is_known_spares_hashes() {
        let (records, tree) = (records(64), Tree::new(&records(64)));
        let paths: Vec<_> = (0..64).map(|i| tree.path(i)).collect();
        let mut known = Known::new(&mut MerklePath::new(&records[0], 0, 64, &paths[0]).unwrap());
        let hashes: usize = (1..64)
            .map(|i| {
                let mut path = MerklePath::new(&records[i], i, 64, &paths[i]).unwrap();
                assert!(known.proves(&mut path));
                path.computed - 1
            })
            .sum();
        assert!(hashes <= 64, "{hashes} nodes for 63 records");
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
