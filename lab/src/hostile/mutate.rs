//! Mutations of datagrams: what a fuzzer does to recorded ones, drawn from a seed.

use rand_core::Rng;

/// One change to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// Some bits flipped.
    Bits,
    /// Some bytes drawn anew.
    Bytes,
    /// A field of 1, 2, 4 or 8 bytes set to a limit: 0, 1, all ones, the sign bit, or near the length.
    Limits,
    /// A field added to or subtracted from by a little.
    Nudge,
    /// Cut off.
    Truncate,
    /// Bytes appended.
    Extend,
    /// A piece taken out.
    Remove,
    /// A piece repeated.
    Repeat,
    /// The end of another datagram in place of its own.
    Splice,
    /// Nothing but noise, of any length.
    Noise,
    /// As it was recorded: a replay.
    Replay,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 11] = [
        Mutation::Bits,
        Mutation::Bytes,
        Mutation::Limits,
        Mutation::Nudge,
        Mutation::Truncate,
        Mutation::Extend,
        Mutation::Remove,
        Mutation::Repeat,
        Mutation::Splice,
        Mutation::Noise,
        Mutation::Replay,
    ];

    /// Draws one.
    pub fn draw(rng: &mut impl Rng) -> Mutation {
        Mutation::ALL[below(rng, Mutation::ALL.len())]
    }

    /// Changes `bytes`; `other` is another datagram, for splicing.
    pub fn apply(self, bytes: &mut Vec<u8>, other: &[u8], rng: &mut impl Rng) {
        let n = bytes.len();
        match self {
            Mutation::Replay => {}
            Mutation::Noise => {
                bytes.resize(below(rng, NOISE_MAX), 0);
                let keep = below(rng, 4).min(bytes.len());
                rng.fill_bytes(&mut bytes[keep..]);
            }
            Mutation::Extend => {
                let more = 1 + below(rng, EXTEND_MAX);
                bytes.resize(n + more, 0);
                if rng.next_u32() & 1 == 0 {
                    rng.fill_bytes(&mut bytes[n..]);
                }
            }
            _ if n == 0 => {}
            Mutation::Bits => (0..=below(rng, 3)).for_each(|_| bytes[below(rng, n)] ^= 1 << below(rng, 8)),
            Mutation::Bytes => {
                let from = below(rng, n);
                let to = (from + 1 + below(rng, 8)).min(n);
                rng.fill_bytes(&mut bytes[from..to]);
            }
            Mutation::Limits => {
                let limits = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 31, n as u64, n as u64 + 1, n as u64 - 1];
                let value = limits[below(rng, limits.len())];
                with_field(bytes, rng, |_| value);
            }
            Mutation::Nudge => {
                let by = 1 + rng.next_u64() % 16;
                let up = rng.next_u32() & 1 == 0;
                with_field(bytes, rng, |v| if up { v.wrapping_add(by) } else { v.wrapping_sub(by) });
            }
            Mutation::Truncate => bytes.truncate(below(rng, n)),
            Mutation::Remove => {
                let from = below(rng, n);
                bytes.drain(from..(from + 1 + below(rng, PIECE_MAX)).min(n));
            }
            Mutation::Repeat => {
                let from = below(rng, n);
                let piece = bytes[from..(from + 1 + below(rng, PIECE_MAX)).min(n)].to_vec();
                let at = below(rng, n);
                bytes.splice(at..at, piece);
            }
            Mutation::Splice => {
                bytes.truncate(below(rng, n));
                bytes.extend_from_slice(&other[below(rng, other.len().max(1)).min(other.len())..]);
            }
        }
        bytes.truncate(DATAGRAM_MAX);
    }
}

/// Rewrites a big-endian field of 1, 2, 4 or 8 bytes somewhere.
fn with_field(bytes: &mut [u8], rng: &mut impl Rng, change: impl FnOnce(u64) -> u64) {
    let width = (1 << below(rng, 4)).min(bytes.len());
    let at = below(rng, bytes.len() - width + 1);
    let field = &mut bytes[at..at + width];
    let value = field.iter().fold(0, |v, b| v << 8 | u64::from(*b));
    let changed = change(value).to_be_bytes();
    field.copy_from_slice(&changed[8 - width..]);
}

/// A number below `n`, or 0 if there is none.
pub(super) fn below(rng: &mut impl Rng, n: usize) -> usize {
    ((u64::from(rng.next_u32()) * n as u64) >> 32) as usize
}

/// UDP carries no more.
const DATAGRAM_MAX: usize = 65_507;
const NOISE_MAX: usize = 2_000;
const EXTEND_MAX: usize = 64;
const PIECE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;

    use super::*;

    #[test]
    fn every_mutation_changes_every_length_but_a_replay() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        for mutation in Mutation::ALL {
            let mut changed = 0;
            for n in (0..200).chain([65_507]) {
                let before: Vec<u8> = (0..n).map(|i| i as u8).collect();
                let mut bytes = before.clone();
                mutation.apply(&mut bytes, b"another", &mut rng);
                assert!(bytes.len() <= DATAGRAM_MAX);
                changed += usize::from(bytes != before);
            }
            assert_eq!(changed > 100, mutation != Mutation::Replay, "{mutation:?}: {changed}");
        }
    }

    #[test]
    fn rule_g10_the_same_seed_makes_the_same_mutations() {
        let run = |seed| {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let mut bytes = vec![7; 100];
            (0..50).for_each(|_| Mutation::draw(&mut rng).apply(&mut bytes, &[1; 40], &mut rng));
            bytes
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
