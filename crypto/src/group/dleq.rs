//! Proofs that two logarithms are equal (Chaum–Pedersen 1992), as relations that hold or not: one by one, or many in
//! one multi-scalar multiplication.
//!
//! The prover knows x with A = xP and B = xQ. It draws s, sends a = sP, b = sQ, gets the challenge e as a hash of the
//! *whole* statement and answers f = s + xe. The verifier checks fP = a + eA and fQ = b + eB. Sending (a, b, f) instead
//! of (e, f) lets many proofs be checked at once.

use rand_core::CryptoRng;

use super::PrimeGroup;

/// A public element: one of those prepared with [`PrimeGroup::statics`], by place, or any other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base<G: PrimeGroup> {
    Fixed(usize),
    Free(G::Point),
}

/// fP − eA − a = 0 and fQ − eB − b = 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relation<G: PrimeGroup> {
    /// P, Q.
    pub(crate) bases: [Base<G>; 2],
    /// A, B.
    pub(crate) images: [Base<G>; 2],
    /// a, b.
    pub(crate) commitments: [G::Point; 2],
    /// e.
    pub(crate) challenge: G::Scalar,
    /// f.
    pub(crate) response: G::Scalar,
}

impl<G: PrimeGroup> Relation<G> {
    /// Whether both equations hold: exactly, without chance.
    pub(crate) fn holds(&self, statics: &G::Statics) -> bool {
        (0..2).all(|side| {
            let mut sum = Sum::new();
            sum.add(self.response, self.bases[side]);
            sum.add(-self.challenge, self.images[side]);
            sum.value(statics) == self.commitments[side]
        })
    }

    /// Adds both equations, each times a weight. The weight itself stands before what was committed to: it is half as
    /// long as −weight would be.
    fn add_to(&self, sum: &mut Sum<G>, rng: &mut impl CryptoRng) {
        for side in 0..2 {
            let weight = weight::<G>(rng);
            sum.add_again(-(weight * self.response), self.bases[side]);
            sum.add(weight * self.challenge, self.images[side]);
            sum.add(weight, Base::Free(self.commitments[side]));
        }
    }
}

/// Which of the relations hold; `None` does not. All of them by one multi-scalar multiplication if all do, else by
/// halving.
///
/// Σ α_j (e_j A_j + a_j − f_j P_j) + β_j (e_j B_j + b_j − f_j Q_j) = 0 with α, β of 128 random bits, drawn here, after
/// everything they weigh is fixed. If some relation fails, the sum is 0 with probability 2⁻¹²⁸ (Bellare, Garay, Rabin
/// 1998; sound since the group's order is prime). A relation is called false only by [`Relation::holds`].
pub(crate) fn verify_batch<G: PrimeGroup>(
    relations: &[Option<Relation<G>>],
    statics: &G::Statics,
    rng: &mut impl CryptoRng,
) -> Vec<bool> {
    match relations {
        [] => vec![],
        [one] => vec![one.is_some_and(|it| it.holds(statics))],
        many => {
            let mut sum = Sum::new();
            for relation in many.iter().flatten() {
                relation.add_to(&mut sum, rng);
            }
            if sum.value(statics) == G::identity() {
                return many.iter().map(Option::is_some).collect();
            }
            let (left, right) = many.split_at(many.len() / 2);
            [verify_batch(left, statics, rng), verify_batch(right, statics, rng)].concat()
        }
    }
}

/// 128 random bits.
fn weight<G: PrimeGroup>(rng: &mut impl CryptoRng) -> G::Scalar {
    let shift = G::Scalar::from(1 << 32) * G::Scalar::from(1 << 32);
    G::Scalar::from(rng.next_u64()) * shift + G::Scalar::from(rng.next_u64())
}

/// Σ scalar · element.
struct Sum<G: PrimeGroup> {
    fixed: Vec<G::Scalar>,
    scalars: Vec<G::Scalar>,
    points: Vec<G::Point>,
}

impl<G: PrimeGroup> Sum<G> {
    fn new() -> Sum<G> {
        Sum { fixed: Vec::new(), scalars: Vec::new(), points: Vec::new() }
    }

    fn add(&mut self, scalar: G::Scalar, place: Base<G>) {
        match place {
            Base::Fixed(at) => {
                if self.fixed.len() <= at {
                    self.fixed.resize(at + 1, G::Scalar::from(0));
                }
                self.fixed[at] = self.fixed[at] + scalar;
            }
            Base::Free(point) => {
                self.scalars.push(scalar);
                self.points.push(point);
            }
        }
    }

    /// Adds what the relation before may have added: shares of one ciphertext follow each other and have u in common.
    fn add_again(&mut self, scalar: G::Scalar, place: Base<G>) {
        let near = self.points.len().saturating_sub(NEAR);
        let met = match place {
            Base::Free(point) => self.points[near..].iter().position(|it| *it == point),
            Base::Fixed(_) => None,
        };
        match met {
            Some(at) => self.scalars[near + at] = self.scalars[near + at] + scalar,
            None => self.add(scalar, place),
        }
    }

    fn value(&self, statics: &G::Statics) -> G::Point {
        G::msm(statics, &self.fixed, &self.scalars, &self.points)
    }
}

/// How far back a repeated element is looked for: a relation has at most this many of its own.
const NEAR: usize = 4;

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::super::{P256, Ristretto255};
    use super::*;

    #[test]
    fn a_weight_has_128_bits() {
        fn below<G: PrimeGroup>(rng: &mut ChaCha20Rng) -> usize {
            let bytes = G::scalar_bytes(&weight::<G>(rng));
            bytes.iter().filter(|byte| **byte != 0).count()
        }
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        assert!((8..=16).contains(&below::<Ristretto255>(&mut rng)));
        assert!((8..=16).contains(&below::<P256>(&mut rng)));
    }
}
