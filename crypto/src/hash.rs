//! Hashes, and transcripts that no two different lists of parts share.

use aws_lc_rs::digest::{Context, Digest, SHA256, SHA512, digest};

/// SHA-256 of the bytes (FIPS 180-4).
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    array(digest(&SHA256, bytes))
}

/// A hash over labelled, length-prefixed parts: what is signed, proved and confirmed goes through here.
///
/// ```text
/// PREFIX ‖ u64 |label| ‖ label ‖ u64 |part 1| ‖ part 1 ‖ u64 |part 2| ‖ part 2 …
/// ```
/// Every length is explicit, so the encoding is injective: two transcripts are equal only if label and
/// parts are (G3). Integers are big-endian. A label names protocol version, message and purpose, as
/// `sealcast/v1/r1`.
///
/// `N` is the length of the result: 32 (SHA-256) for what is compared or signed, 64 (SHA-512) for what
/// is reduced to a scalar.
#[derive(Clone)]
pub struct Transcript<const N: usize = 32>(Context);

impl Transcript<32> {
    /// A transcript of 32 bytes.
    pub fn new(label: &str) -> Transcript<32> {
        Transcript(Context::new(&SHA256)).begin(label)
    }

    /// The hash of one part, which is public: where many are hashed, laying it beside its label costs less than a
    /// context.
    pub fn of(label: &str, part: &[u8]) -> [u8; 32] {
        if part.len() > COPIED_BYTES {
            return Transcript::new(label).add(part).finish();
        }
        let mut bytes = Vec::with_capacity(PREFIX.len() + 16 + label.len() + part.len());
        bytes.extend_from_slice(PREFIX);
        for part in [label.as_bytes(), part] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        sha256(&bytes)
    }
}

impl Transcript<64> {
    /// A transcript of 64 bytes.
    pub fn wide(label: &str) -> Transcript<64> {
        Transcript(Context::new(&SHA512)).begin(label)
    }
}

impl<const N: usize> Transcript<N> {
    /// Appends one part.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "a transcript is no number; `add` is the word")]
    pub fn add(mut self, part: &[u8]) -> Self {
        self.absorb(part);
        self
    }

    /// Appends one part, for loops.
    pub fn absorb(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    /// The hash of all parts.
    pub fn finish(self) -> [u8; N] {
        array(self.0.finish())
    }

    fn begin(mut self, label: &str) -> Self {
        self.0.update(PREFIX);
        self.add(label.as_bytes())
    }
}

impl<const N: usize> std::fmt::Debug for Transcript<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transcript")
    }
}

fn array<const N: usize>(digest: Digest) -> [u8; N] {
    digest.as_ref().try_into().expect("the constructors pair each length with its hash")
}

/// Sets our transcripts apart from all other uses of the hash.
const PREFIX: &[u8] = b"sealcast transcript\0";
/// A longer part is hashed where it lies.
const COPIED_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sha256_of_abc() {
        let expect = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; // FIPS 180-4
        assert_eq!(sha256(b"abc").to_vec(), crate::unhex(expect));
    }

    #[test]
    fn parts_do_not_flow_into_each_other() {
        let ab_c = Transcript::new("t").add(b"ab").add(b"c").finish();
        assert_ne!(ab_c, Transcript::new("t").add(b"a").add(b"bc").finish());
        assert_ne!(ab_c, Transcript::new("t").add(b"abc").finish());
        assert_ne!(ab_c, Transcript::new("t").add(b"ab").add(b"c").add(b"").finish());
        assert_ne!(ab_c, Transcript::new("ta").add(b"b").add(b"c").finish());
    }

    #[test]
    fn one_part_hashes_the_same_where_it_is_copied_and_where_not() {
        for length in [0, 1, COPIED_BYTES, COPIED_BYTES + 1] {
            let part = vec![7; length];
            assert_eq!(Transcript::of("t", &part), Transcript::new("t").add(&part).finish(), "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn rule_g3_a_transcript_is_injective(
            a in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..4),
            b in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..4),
        ) {
            let hash = |parts: &[Vec<u8>]| parts.iter().fold(Transcript::new("t"), |t, p| t.add(p)).finish();
            let wide = |parts: &[Vec<u8>]| parts.iter().fold(Transcript::wide("t"), |t, p| t.add(p)).finish();
            prop_assert_eq!(a == b, hash(&a) == hash(&b));
            prop_assert_eq!(a == b, wide(&a) == wide(&b));
        }
    }
}
