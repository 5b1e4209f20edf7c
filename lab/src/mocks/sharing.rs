//! Shamir's sharing over GF(2⁸): a key among brokers, so that few enough of them learn nothing of it.
//!
//! A. Shamir, How to share a secret (1979), bytewise. For the mock only: it gives no proofs by itself.

/// One broker's share: the value of every byte's polynomial at `at` (never 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Where.
    pub at: u8,
    /// The values there.
    pub values: [u8; 32],
}

/// Shares of `secret` at 1..=n, any `threshold` of which give it back; `coefficient` draws chance.
pub fn split(secret: &[u8; 32], threshold: usize, n: u8, mut coefficient: impl FnMut() -> u8) -> Vec<Share> {
    let polynomials: Vec<Vec<u8>> =
        secret.iter().map(|s| std::iter::once(*s).chain((1..threshold).map(|_| coefficient())).collect()).collect();
    let value = |p: &Vec<u8>, at| p.iter().rev().fold(0, |sum, c| times(sum, at) ^ c);
    (1..=n).map(|at| Share { at, values: std::array::from_fn(|i| value(&polynomials[i], at)) }).collect()
}

/// The secret that these shares, all at different places, lie on.
pub fn combine(shares: &[Share]) -> [u8; 32] {
    let mut secret = [0; 32];
    for share in shares {
        let others = shares.iter().filter(|o| o.at != share.at);
        let weight = others.fold(1, |w, o| times(w, times(o.at, inverse(o.at ^ share.at))));
        for (byte, value) in secret.iter_mut().zip(share.values) {
            *byte ^= times(value, weight);
        }
    }
    secret
}

/// Multiplication modulo x⁸ + x⁴ + x³ + x + 1.
fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b > 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1b } else { 0 };
        b >>= 1;
    }
    product
}

/// a²⁵⁴ = a⁻¹.
fn inverse(a: u8) -> u8 {
    (0..253).fold(a, |power, _| times(power, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_threshold_of_the_shares_gives_the_secret_and_fewer_do_not() {
        let secret = std::array::from_fn(|i| i as u8);
        let mut next = 7u8;
        let shares = split(&secret, 3, 5, || {
            next = next.wrapping_mul(29).wrapping_add(13);
            next
        });
        for (a, b, c) in [(0, 1, 2), (0, 2, 4), (2, 3, 4)] {
            assert_eq!(combine(&[shares[a].clone(), shares[b].clone(), shares[c].clone()]), secret);
        }
        assert_ne!(combine(&shares[..2]), secret);
        let mut bad = shares[1].clone();
        bad.values[9] ^= 1;
        assert_ne!(combine(&[shares[0].clone(), bad, shares[2].clone()]), secret);
    }
}
