//! A hash of a set that is cheap to change: LtHash (Bellare–Micciancio 1997; Lewi, Kim, Maykov, Weis,
//! 'Securing update propagation with homomorphic hashing', 2019) with 1,024 sums of 16 bits.
//!
//! Each element is expanded by BLAKE3 to 1,024 numbers mod 2¹⁶, and the set's hash is their sum: an element
//! comes or goes for about a microsecond, however large the set is, in any order and from any thread. Finding two
//! sets of one hash is a problem of short integer solutions; with these parameters at 200 bits or more. That holds
//! for sets; an element inserted 2¹⁶ times would vanish, so callers insert what they keyed uniquely, once.
//!
//! A Merkle tree would prove single elements too, and cost some twenty hashes and stored nodes per change
//! instead. XOR or sums mod 2²⁵⁶ of ordinary hashes would be broken by linear algebra or lattice reduction.

use crate::hash::Transcript;

/// The hash of a set of (key, value) pairs.
#[derive(Clone, PartialEq, Eq)]
pub struct SetHash(Box<[u16; NUMBERS]>);

impl SetHash {
    /// Of the empty set.
    pub fn new() -> SetHash {
        SetHash(Box::new([0; NUMBERS]))
    }

    /// Adds a pair, which must not be in the set.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        for (sum, number) in self.0.iter_mut().zip(expand(key, value)) {
            *sum = sum.wrapping_add(number);
        }
    }

    /// Takes a pair away, which must be in the set.
    pub fn remove(&mut self, key: &[u8], value: &[u8]) {
        for (sum, number) in self.0.iter_mut().zip(expand(key, value)) {
            *sum = sum.wrapping_sub(number);
        }
    }

    /// 32 bytes that stand for the set: `T("sealcast/v1/set"; the sums)`.
    pub fn digest(&self) -> [u8; 32] {
        Transcript::new("sealcast/v1/set").add(&self.to_bytes()).finish()
    }

    /// The sums, little-endian, [`SET_HASH_LEN`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    /// The hash with these sums; `None` if they are not [`SET_HASH_LEN`] bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<SetHash> {
        let mut set = SetHash::new();
        let (pairs, rest) = bytes.as_chunks::<2>();
        if pairs.len() != NUMBERS || !rest.is_empty() {
            return None;
        }
        set.0.iter_mut().zip(pairs).for_each(|(n, pair)| *n = u16::from_le_bytes(*pair));
        Some(set)
    }
}

impl Default for SetHash {
    fn default() -> SetHash {
        SetHash::new()
    }
}

impl std::fmt::Debug for SetHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.digest().iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// BLAKE3 in key derivation mode with [`CONTEXT`], of `u64 |key| ‖ key ‖ value`, to 2,048 bytes.
fn expand(key: &[u8], value: &[u8]) -> impl Iterator<Item = u16> {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    hasher.update(&(key.len() as u64).to_be_bytes()).update(key).update(value);
    let mut bytes = [0; SET_HASH_LEN];
    hasher.finalize_xof().fill(&mut bytes);
    (0..NUMBERS).map(move |i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]))
}

const CONTEXT: &str = "sealcast/v1/set element";
/// LtHash16's n of the paper's section 3: 200 bits or more against collisions.
const NUMBERS: usize = 1024;
/// Bytes of a set's hash as it is stored.
pub const SET_HASH_LEN: usize = 2 * NUMBERS;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_and_values_do_not_flow_into_each_other() {
        let of = |key: &[u8], value: &[u8]| {
            let mut set = SetHash::new();
            set.insert(key, value);
            set
        };
        assert_ne!(of(b"a", b"bc"), of(b"ab", b"c"));
        assert_ne!(of(b"", b""), SetHash::new());
    }

    #[test]
    fn it_survives_its_bytes() {
        let mut set = SetHash::new();
        set.insert(b"k", b"v");
        assert_eq!(SetHash::from_bytes(&set.to_bytes()).as_ref(), Some(&set));
        assert_eq!(SetHash::from_bytes(&set.to_bytes()[1..]), None);
    }

    proptest! {
        #[test]
        fn the_way_to_a_set_does_not_show(changes in prop::collection::vec((0_u8..6, prop::option::of(0_u8..4)), 0..24)) {
            let (mut set, mut map) = (SetHash::new(), BTreeMap::new());
            for (key, value) in changes {
                let old = match value {
                    Some(v) => { set.insert(&[key], &[v]); map.insert(key, v) }
                    None => map.remove(&key),
                };
                if let Some(v) = old { set.remove(&[key], &[v]); }
            }
            let mut fresh = SetHash::new();
            map.iter().rev().for_each(|(k, v)| fresh.insert(&[*k], &[*v]));
            prop_assert_eq!(fresh.digest(), set.digest());
            fresh.insert(b"one more", b"");
            prop_assert_ne!(fresh.digest(), set.digest());
        }
    }
}
