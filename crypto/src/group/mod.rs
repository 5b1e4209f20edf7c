//! Groups of prime order q with generator g, in which discrete logarithms are hard: what threshold encryption and
//! the threshold PRF are written over.
//!
//! Two suites: [`Ristretto255`] (RFC 9496), the default, and [`P256`] (FIPS 186-5), the curve of the paper, of other
//! implementations and of hardware tokens, and six times slower here. Both have cofactor 1 as seen from outside, so
//! that every decoded element is in the group and random-exponent batches are sound.
//!
//! Written additively in the code, as the libraries write it; papers and comments say g^x.
//!
//! What secrets decide runs in constant time: [`PrimeGroup::mul`], [`PrimeGroup::mul_base`], [`PrimeGroup::mul_table`].
//! [`PrimeGroup::msm`] takes public scalars only. Encodings are canonical, and the identity has none: [`Element`] cannot
//! hold it.

mod dleq;
mod expand;
pub mod feldman;
mod nist;
mod ristretto;
mod sharing;
mod transcript;

use std::fmt;
use std::ops::{Add, Mul, Neg, Sub};

use rand_core::CryptoRng;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

pub use nist::P256;
pub use ristretto::Ristretto255;
pub use sharing::{Coefficients, Parameters, ParametersError, SharesError, delta};

pub(crate) use dleq::{Base, Relation, verify_batch};
pub(crate) use sharing::{Cache, Committee, Polynomial};
pub(crate) use transcript::Transcript;

use crate::secret::Secret;

/// A group of prime order with hashing into it and into its scalars (RFC 9380): one suite of the schemes above it.
pub trait PrimeGroup: Copy + Eq + fmt::Debug + Send + Sync + 'static {
    /// Stands in every hash and names the suite in files.
    const NAME: &'static str;
    /// RFC 9380's name of the hash to the group; ends every domain separation tag of ours.
    const HASH_TO_GROUP: &'static str;
    /// The suite's number on the wire.
    const SUITE: u8;
    /// Bytes of an encoded element.
    const POINT_LEN: usize;
    /// An integer mod q.
    type Scalar: Scalar;
    /// An element, the identity included.
    type Point: Point;
    /// The one encoding of an element.
    type Encoded: AsRef<[u8]> + Copy + Ord + fmt::Debug + Zeroize + Send + Sync + 'static;
    /// Multiples of one element, for [`PrimeGroup::mul_table`].
    type Table: Send + Sync;
    /// Multiples of several public elements, for [`PrimeGroup::msm`].
    type Statics: Send + Sync;

    /// The neutral element.
    fn identity() -> Self::Point;
    /// g.
    fn generator() -> Self::Point;
    /// x P, in constant time.
    fn mul(point: &Self::Point, scalar: &Self::Scalar) -> Self::Point;
    /// x g, in constant time.
    fn mul_base(scalar: &Self::Scalar) -> Self::Point;
    /// Prepares multiplications of one element.
    fn table(point: &Self::Point) -> Self::Table;
    /// x P for the table's P, in constant time.
    fn mul_table(table: &Self::Table, scalar: &Self::Scalar) -> Self::Point;
    /// Prepares public elements for sums in which they occur again and again.
    fn statics(points: &[Self::Point]) -> Self::Statics;
    /// Σ `fixed`_j S_j + Σ `scalars`_k `points`_k, in variable time: all of it public. `fixed` may be shorter than
    /// the statics; `scalars` and `points` are of one length.
    fn msm(
        statics: &Self::Statics,
        fixed: &[Self::Scalar],
        scalars: &[Self::Scalar],
        points: &[Self::Point],
    ) -> Self::Point;

    /// The encoding; of the identity it has no meaning.
    fn encode(point: &Self::Point) -> Self::Encoded;
    /// The encodings of 2 P for each P: cheaper together than one by one. See [`PrimeGroup::half`].
    fn encode_doubled(halves: &[Self::Point]) -> Vec<Self::Encoded>;
    /// `None` unless `bytes` are the canonical encoding of an element other than the identity.
    fn decode(bytes: &[u8]) -> Option<(Self::Point, Self::Encoded)>;
    /// The element to a message, whose logarithm nobody knows: RFC 9380's random-oracle encoding
    /// [`PrimeGroup::HASH_TO_GROUP`] under the domain separation tag `dst`, at most 255 bytes.
    fn hash_to_point(dst: &str, message: &[u8]) -> Self::Point;

    /// A scalar's 32 bytes, in the suite's byte order.
    fn scalar_bytes(scalar: &Self::Scalar) -> [u8; 32];
    /// `None` unless below q.
    fn decode_scalar(bytes: &[u8; 32]) -> Option<Self::Scalar>;
    /// A scalar out of uniform bytes, with a bias below 2⁻¹²⁸.
    fn reduce(uniform: &[u8; 64]) -> Self::Scalar;
    /// The scalar to a message, under a tag.
    fn hash_to_scalar(tag: &str, message: &[u8]) -> Self::Scalar;
    /// 1/x, in constant time; of 0 it is 0.
    fn invert(scalar: &Self::Scalar) -> Self::Scalar;
    /// x/2, in constant time.
    fn half(scalar: &Self::Scalar) -> Self::Scalar;
}

/// Arithmetic mod q, in constant time.
pub trait Scalar:
    Copy
    + Eq
    + fmt::Debug
    + Zeroize
    + ConstantTimeEq
    + From<u64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + Send
    + Sync
    + 'static
{
}

impl<T> Scalar for T where
    T: Copy
        + Eq
        + fmt::Debug
        + Zeroize
        + ConstantTimeEq
        + From<u64>
        + Add<Output = T>
        + Sub<Output = T>
        + Mul<Output = T>
        + Neg<Output = T>
        + Send
        + Sync
        + 'static
{
}

/// Addition in the group, in constant time.
pub trait Point:
    Copy + Eq + fmt::Debug + Zeroize + Add<Output = Self> + Sub<Output = Self> + Neg<Output = Self> + Send + Sync + 'static
{
}

impl<T> Point for T where
    T: Copy + Eq + fmt::Debug + Zeroize + Add<Output = T> + Sub<Output = T> + Neg<Output = T> + Send + Sync + 'static
{
}

/// A public element with its one encoding; never the identity.
#[derive(Clone, Copy)]
pub struct Element<G: PrimeGroup> {
    point: G::Point,
    bytes: G::Encoded,
}

impl<G: PrimeGroup> Element<G> {
    /// `None` for the identity.
    pub fn new(point: G::Point) -> Option<Element<G>> {
        (point != G::identity()).then(|| Element { point, bytes: G::encode(&point) })
    }

    /// `None` unless `bytes` are the canonical encoding of an element other than the identity.
    pub fn decode(bytes: &[u8]) -> Option<Element<G>> {
        G::decode(bytes).map(|(point, bytes)| Element { point, bytes })
    }

    /// Twice each of these, encoded together; `None` if one of them is the identity.
    pub(crate) fn doubled<const N: usize>(halves: [G::Point; N]) -> Option<[Element<G>; N]> {
        let halves = Zeroizing::new(halves);
        if halves.contains(&G::identity()) {
            return None;
        }
        let encoded = Zeroizing::new(G::encode_doubled(&*halves));
        let element = |i: usize| Element { point: halves[i] + halves[i], bytes: encoded[i] };
        Some(std::array::from_fn(element))
    }

    /// x g for a public x other than 0.
    pub(crate) fn base(scalar: &G::Scalar) -> Option<Element<G>> {
        Element::new(G::mul_base(scalar))
    }

    /// The element.
    pub fn point(&self) -> &G::Point {
        &self.point
    }

    /// Its encoding, [`PrimeGroup::POINT_LEN`] bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl<G: PrimeGroup> Zeroize for Element<G> {
    fn zeroize(&mut self) {
        self.point.zeroize();
        self.bytes.zeroize();
    }
}

/// A secret element, such as a Diffie–Hellman value: erased when dropped, printed as `<redacted>`.
pub(crate) struct SecretElement<G: PrimeGroup>(Element<G>);

impl<G: PrimeGroup> SecretElement<G> {
    /// `None` for the identity.
    pub(crate) fn new(point: G::Point) -> Option<SecretElement<G>> {
        let point = Zeroizing::new(point);
        Element::new(*point).map(SecretElement)
    }

    /// Takes over an element; the caller's copy is the caller's to erase.
    pub(crate) fn of(element: Element<G>) -> SecretElement<G> {
        SecretElement(element)
    }

    /// The element. Each call is a place to look at in a review.
    pub(crate) fn expose(&self) -> &Element<G> {
        &self.0
    }
}

impl<G: PrimeGroup> Drop for SecretElement<G> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<G: PrimeGroup> fmt::Debug for SecretElement<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

impl<G: PrimeGroup> PartialEq for Element<G> {
    fn eq(&self, other: &Element<G>) -> bool {
        self.bytes == other.bytes
    }
}

impl<G: PrimeGroup> Eq for Element<G> {}

impl<G: PrimeGroup> fmt::Debug for Element<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A secret integer mod q other than 0: erased when dropped, printed as `<redacted>`.
pub struct SecretScalar<G: PrimeGroup>(G::Scalar);

impl<G: PrimeGroup> SecretScalar<G> {
    /// `None` for 0.
    pub(crate) fn new(scalar: G::Scalar) -> Option<SecretScalar<G>> {
        let it: SecretScalar<G> = SecretScalar(scalar);
        (!bool::from(it.0.ct_eq(&G::Scalar::from(0)))).then_some(it)
    }

    /// x ← Z_q*
    pub fn random(rng: &mut impl CryptoRng) -> SecretScalar<G> {
        loop {
            if let Some(x) = SecretScalar::new(G::reduce(Secret::<64>::random(rng).expose())) {
                return x;
            }
        }
    }

    /// `None` unless below q and other than 0.
    pub fn from_bytes(bytes: &Secret<32>) -> Option<SecretScalar<G>> {
        SecretScalar::new(G::decode_scalar(bytes.expose())?)
    }

    /// The 32 bytes to store. Each call is a place to look at in a review.
    pub fn to_bytes(&self) -> Secret<32> {
        Secret::from_bytes(G::scalar_bytes(&self.0))
    }

    pub(crate) fn scalar(&self) -> &G::Scalar {
        &self.0
    }

    /// x g.
    pub(crate) fn public(&self) -> Element<G> {
        Element::base(&self.0).expect("x is not 0 and q is prime")
    }
}

impl<G: PrimeGroup> Drop for SecretScalar<G> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<G: PrimeGroup> fmt::Debug for SecretScalar<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Σ n_k P_k for public small integers: doublings shared, in variable time.
pub(crate) fn small_msm<G: PrimeGroup>(exponents: &[i64], points: &[G::Point]) -> G::Point {
    // Non-adjacent forms: bits of (3x & ¬x)/2 add, bits of (x & ¬3x)/2 subtract.
    let forms: Vec<(u128, u128)> = exponents
        .iter()
        .map(|&n| {
            let x = u128::from(n.unsigned_abs());
            let (plus, minus) = (((3 * x) & !x) >> 1, (x & !(3 * x)) >> 1);
            if n < 0 { (minus, plus) } else { (plus, minus) }
        })
        .collect();
    let highest = forms.iter().map(|(plus, minus)| 128 - (plus | minus).leading_zeros()).max().unwrap_or(0);
    let mut sum = G::identity();
    for bit in (0..highest).rev() {
        if bit + 1 != highest {
            sum = sum + sum;
        }
        for ((plus, minus), point) in forms.iter().zip(points) {
            if plus >> bit & 1 == 1 {
                sum = sum + *point;
            } else if minus >> bit & 1 == 1 {
                sum = sum - *point;
            }
        }
    }
    sum
}

/// A test for each suite, of one that is generic over them.
#[cfg(test)]
macro_rules! in_both_suites {
    ($($(#[doc = $doc:literal])* fn $name:ident = $test:ident;)*) => {$(
        $(#[doc = $doc])*
        #[test]
        fn $name() {
            $test::<$crate::group::Ristretto255>();
            $test::<$crate::group::P256>();
        }
    )*};
}
#[cfg(test)]
pub(crate) use in_both_suites;

#[cfg(test)]
mod tests;
