//! Shamir's secret sharing over a group: who holds shares, what makes t of them the whole (CACM 22(11), 1979;
//! verifiable as in Feldman, FOCS 1987).
//!
//! x_i = F(i) for i in 1..=n, x = F(0), deg F = t − 1; h_i = g^{x_i}, h = g^x.

use std::collections::BTreeMap;

use rand_core::CryptoRng;
use sealcast_wire::limits::{COEFFICIENTS_HELD, SHAREHOLDERS_MAX, SYSTEM_BYTES_MAX};

use super::{Element, PrimeGroup, SecretScalar, small_msm};

/// What a shared key is for and how it is shared; everything but the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The system's id: no two systems share one. At most `SYSTEM_BYTES_MAX` bytes.
    pub system: Vec<u8>,
    /// The number of the sharing: a refresh keeps the key and counts up.
    pub epoch: u64,
    /// t: so many shares open; 1 ≤ t ≤ n.
    pub threshold: u16,
    /// n: so many there are, at most `SHAREHOLDERS_MAX`.
    pub holders: u16,
    /// Δ, by which Lagrange coefficients are multiplied so that they become integers; 1 for none. Part of the
    /// key: keep it when n changes, or old ciphertexts do not open.
    pub delta: u64,
}

impl Parameters {
    /// The first sharing, with Δ by [`delta`].
    pub fn new(system: &[u8], threshold: u16, holders: u16) -> Parameters {
        Parameters { system: system.to_vec(), epoch: 0, threshold, holders, delta: delta(threshold, holders) }
    }

    /// # Errors
    /// What is out of range.
    pub fn validate(&self) -> Result<(), ParametersError> {
        if self.holders == 0 || usize::from(self.holders) > SHAREHOLDERS_MAX {
            return Err(ParametersError::Holders(self.holders));
        }
        if !(1..=self.holders).contains(&self.threshold) {
            return Err(ParametersError::Threshold(self.threshold));
        }
        if self.system.len() > SYSTEM_BYTES_MAX {
            return Err(ParametersError::System);
        }
        if self.delta == 0 {
            return Err(ParametersError::Delta);
        }
        Ok(())
    }
}

/// Parameters that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParametersError {
    /// n is 0 or too large.
    #[error("{0} holders of shares, and 1 to {SHAREHOLDERS_MAX} can be")]
    Holders(u16),
    /// t is not in 1..=n.
    #[error("a threshold of {0} is not between 1 and the number of holders")]
    Threshold(u16),
    /// The system's id is too long.
    #[error("a system's id has at most {SYSTEM_BYTES_MAX} bytes")]
    System,
    /// Δ is 0.
    #[error("Δ is 0")]
    Delta,
    /// h_1 … h_n are not n, or lie on no polynomial of degree t − 1 that is h at 0.
    #[error("the holders' public keys are not shares of the public key")]
    Inconsistent,
}

/// Shares that are not t different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharesError {
    /// Fewer than t.
    #[error("{have} shares, and {need} are needed")]
    TooFew {
        /// So many there are.
        have: usize,
        /// t.
        need: usize,
    },
    /// Two of one holder.
    #[error("two shares of holder {0}")]
    Duplicate(u16),
    /// An index not in 1..=n.
    #[error("there is no holder {0}")]
    Range(u16),
    /// A share that was verified for another ciphertext or input, or another key.
    #[error("a share of holder {0} for something else")]
    Foreign(u16),
}

/// Δ for (t, n): the least common multiple of the reduced denominators of all Lagrange coefficients at 0 over all
/// t-subsets of 1..=n, so that Δλ_i are (small) integers. 1 for n above 13, where integers no longer pay.
pub fn delta(threshold: u16, holders: u16) -> u64 {
    if holders > INTEGER_HOLDERS_MAX {
        return 1;
    }
    let mut delta = 1_i128;
    for set in 0_u32..1 << holders {
        if set.count_ones() != u32::from(threshold) {
            continue;
        }
        let indices: Vec<u16> = (1..=holders).filter(|i| set >> (i - 1) & 1 == 1).collect();
        for (numerator, denominator) in fractions(&indices) {
            let reduced = denominator.abs() / gcd(numerator, denominator);
            delta = delta / gcd(delta, reduced) * reduced;
        }
    }
    u64::try_from(delta).expect("Δ for 13 holders has 33 bits at most: it divides 13!")
}

/// Π j and Π (j − i) over the others of a set of at most 13 indices.
fn fractions(indices: &[u16]) -> impl Iterator<Item = (i128, i128)> {
    indices.iter().map(move |i| {
        let others = indices.iter().filter(move |j| *j != i).map(|j| i128::from(*j));
        others.fold((1, 1), |(numerator, denominator), j| (numerator * j, denominator * (j - i128::from(*i))))
    })
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Δλ_i for one set of t holders.
pub struct Coefficients<G: PrimeGroup> {
    indices: Vec<u16>,
    values: Values<G>,
}

enum Values<G: PrimeGroup> {
    /// Small: additions do.
    Integers(Vec<i64>),
    Scalars(Vec<G::Scalar>),
}

impl<G: PrimeGroup> Coefficients<G> {
    /// For different `indices`, none of them 0.
    pub(crate) fn new(indices: &[u16], delta: u64) -> Coefficients<G> {
        let values =
            integers(indices, delta).map_or_else(|| Values::Scalars(scalars::<G>(indices, delta)), Values::Integers);
        Coefficients { indices: indices.to_vec(), values }
    }

    /// Σ Δλ_i P_i: ΔF(0) in the exponent. The points come in the order of the indices.
    pub(crate) fn combine(&self, points: &[G::Point]) -> G::Point {
        assert_eq!(self.indices.len(), points.len(), "one point a holder");
        match &self.values {
            Values::Integers(values) => small_msm::<G>(values, points),
            Values::Scalars(values) => G::msm(&G::statics(&[]), &[], values, points),
        }
    }

    /// Whether the coefficients are integers, and combining is a few additions.
    pub fn are_integers(&self) -> bool {
        matches!(self.values, Values::Integers(_))
    }
}

/// `None` if Δ does not make them integers of 64 bits.
fn integers(indices: &[u16], delta: u64) -> Option<Vec<i64>> {
    if indices.iter().any(|i| *i > INTEGER_HOLDERS_MAX) {
        return None;
    }
    let whole = |(numerator, denominator): (i128, i128)| {
        let numerator = numerator.checked_mul(i128::from(delta))?;
        (numerator % denominator == 0).then_some(numerator / denominator).and_then(|it| i64::try_from(it).ok())
    };
    fractions(indices).map(whole).collect()
}

/// λ_i = Π_{j≠i} j / (j − i), times Δ; one inversion for all of them.
fn scalars<G: PrimeGroup>(indices: &[u16], delta: u64) -> Vec<G::Scalar> {
    let scalar = |i: u16| G::Scalar::from(u64::from(i));
    let one = G::Scalar::from(1);
    let denominators: Vec<G::Scalar> = indices
        .iter()
        .map(|i| indices.iter().filter(|j| *j != i).fold(scalar(*i), |it, j| it * (scalar(*j) - scalar(*i))))
        .collect();
    // λ_i = Π_j j / (i Π_{j≠i} (j − i)): the numerator is the same for all.
    let numerator = indices.iter().fold(G::Scalar::from(delta), |it, j| it * scalar(*j));
    let before: Vec<G::Scalar> =
        denominators.iter().scan(one, |product, it| Some(std::mem::replace(product, *product * *it))).collect();
    let mut inverse = G::invert(&denominators.iter().fold(one, |product, it| product * *it));
    let mut values = vec![one; indices.len()];
    for k in (0..indices.len()).rev() {
        values[k] = numerator * inverse * before[k];
        inverse = inverse * denominators[k];
    }
    values
}

/// Coefficients of the sets met last: a scalar's inversion costs half a multiplication.
pub(crate) struct Cache<G: PrimeGroup>(BTreeMap<Vec<u16>, Coefficients<G>>);

impl<G: PrimeGroup> Cache<G> {
    pub(crate) fn new() -> Cache<G> {
        Cache(BTreeMap::new())
    }

    pub(crate) fn of(&mut self, indices: &[u16], delta: u64) -> &Coefficients<G> {
        if !self.0.contains_key(indices) && self.0.len() >= COEFFICIENTS_HELD {
            self.0.clear();
        }
        self.0.entry(indices.to_vec()).or_insert_with(|| Coefficients::new(indices, delta))
    }
}

/// Who holds shares of one key: the public half of it.
pub(crate) struct Committee<G: PrimeGroup> {
    pub(crate) parameters: Parameters,
    /// h.
    pub(crate) h: Element<G>,
    /// h_1 … h_n.
    pub(crate) shares: Vec<Element<G>>,
}

impl<G: PrimeGroup> Committee<G> {
    /// # Errors
    /// Parameters out of range, or h_1 … h_n that are no sharing of h.
    pub(crate) fn new(
        parameters: Parameters,
        h: Element<G>,
        shares: Vec<Element<G>>,
    ) -> Result<Committee<G>, ParametersError> {
        parameters.validate()?;
        let (t, n) = (usize::from(parameters.threshold), usize::from(parameters.holders));
        if shares.len() != n {
            return Err(ParametersError::Inconsistent);
        }
        // h and h_1 … h_{t−1} fix the polynomial, so each further h_j has one right value.
        for j in t..=n {
            let indices: Vec<u16> = (1..t).chain([j]).map(|i| i as u16).collect();
            let points: Vec<G::Point> = indices.iter().map(|i| *shares[usize::from(*i) - 1].point()).collect();
            if Coefficients::<G>::new(&indices, 1).combine(&points) != *h.point() {
                return Err(ParametersError::Inconsistent);
            }
        }
        Ok(Committee { parameters, h, shares })
    }

    /// h_i.
    pub(crate) fn share_of(&self, index: u16) -> Option<&Element<G>> {
        self.shares.get(usize::from(index).checked_sub(1)?)
    }

    /// The t lowest of these indices, sorted, with their places in `indices` (S13).
    ///
    /// # Errors
    /// Too few, one twice, or one that is no holder's.
    pub(crate) fn choose(&self, indices: &[u16]) -> Result<Vec<(u16, usize)>, SharesError> {
        let mut seen = BTreeMap::new();
        for (place, index) in indices.iter().enumerate() {
            if self.share_of(*index).is_none() {
                return Err(SharesError::Range(*index));
            }
            if seen.insert(*index, place).is_some() {
                return Err(SharesError::Duplicate(*index));
            }
        }
        let need = usize::from(self.parameters.threshold);
        if seen.len() < need {
            return Err(SharesError::TooFew { have: seen.len(), need });
        }
        Ok(seen.into_iter().take(need).collect())
    }
}

/// F, in the hands of a trusted dealer.
pub(crate) struct Polynomial<G: PrimeGroup>(Vec<SecretScalar<G>>);

impl<G: PrimeGroup> Polynomial<G> {
    /// a_0 … a_{t−1} ← Z_q*
    pub(crate) fn random(threshold: u16, rng: &mut impl CryptoRng) -> Polynomial<G> {
        Polynomial((0..threshold).map(|_| SecretScalar::random(rng)).collect())
    }

    /// g^{a_0} … g^{a_{t−1}}
    pub(crate) fn commitment(&self) -> Vec<Element<G>> {
        self.0.iter().map(SecretScalar::public).collect()
    }

    /// The one of these coefficients.
    #[cfg(test)]
    pub(crate) fn of(coefficients: Vec<SecretScalar<G>>) -> Polynomial<G> {
        Polynomial(coefficients)
    }

    /// Another polynomial with the same F(0).
    #[cfg(test)]
    pub(crate) fn refresh(&self, rng: &mut impl CryptoRng) -> Polynomial<G> {
        let mut fresh = Polynomial::random(self.0.len() as u16, rng);
        fresh.0[0] = SecretScalar::new(*self.0[0].scalar()).expect("it was not 0 before");
        fresh
    }

    /// F(i); `None` for the one i in 2²⁵² at which it is 0.
    pub(crate) fn at(&self, i: u16) -> Option<SecretScalar<G>> {
        let i = G::Scalar::from(u64::from(i));
        let value = self.0.iter().rev().fold(G::Scalar::from(0), |value, a| value * i + *a.scalar());
        SecretScalar::new(value)
    }
}

/// Up to this many holders, Δλ_i are integers short enough that additions beat a multiplication.
const INTEGER_HOLDERS_MAX: u16 = 13;
