//! Suite 1: ristretto255 (RFC 9496) with SHA-512, on curve25519-dalek.

use std::iter;

use curve25519_dalek::constants::RISTRETTO_BASEPOINT_POINT;
use curve25519_dalek::ristretto::{
    CompressedRistretto, RistrettoBasepointTable, RistrettoPoint, VartimeRistrettoPrecomputation,
};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{Identity, VartimeMultiscalarMul, VartimePrecomputedMultiscalarMul};

use super::PrimeGroup;
use super::expand::{Hash, expand_message_xmd};
use crate::secret::Secret;

/// ristretto255, SHA-512: the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ristretto255;

/// Public elements and their multiples.
pub struct Statics {
    multiples: VartimeRistrettoPrecomputation,
    points: Vec<RistrettoPoint>,
}

impl PrimeGroup for Ristretto255 {
    const NAME: &'static str = "ristretto255";
    const HASH_TO_GROUP: &'static str = "ristretto255_XMD:SHA-512_R255MAP_RO_";
    const SUITE: u8 = 1;
    const POINT_LEN: usize = 32;
    type Scalar = Scalar;
    type Point = RistrettoPoint;
    type Encoded = [u8; 32];
    type Table = RistrettoBasepointTable;
    type Statics = Statics;

    fn identity() -> RistrettoPoint {
        RistrettoPoint::identity()
    }

    fn generator() -> RistrettoPoint {
        RISTRETTO_BASEPOINT_POINT
    }

    fn mul(point: &RistrettoPoint, scalar: &Scalar) -> RistrettoPoint {
        point * scalar
    }

    fn mul_base(scalar: &Scalar) -> RistrettoPoint {
        RistrettoPoint::mul_base(scalar)
    }

    fn table(point: &RistrettoPoint) -> RistrettoBasepointTable {
        RistrettoBasepointTable::create(point)
    }

    fn mul_table(table: &RistrettoBasepointTable, scalar: &Scalar) -> RistrettoPoint {
        table * scalar
    }

    fn statics(points: &[RistrettoPoint]) -> Statics {
        Statics { multiples: VartimeRistrettoPrecomputation::new(points), points: points.to_vec() }
    }

    fn msm(statics: &Statics, fixed: &[Scalar], scalars: &[Scalar], points: &[RistrettoPoint]) -> RistrettoPoint {
        if points.len() < PIPPENGER_FROM {
            return statics.multiples.vartime_mixed_multiscalar_mul(fixed, scalars, points);
        }
        let used = iter::zip(fixed, &statics.points).filter(|(scalar, _)| **scalar != Scalar::ZERO);
        let (fixed, statics): (Vec<Scalar>, Vec<RistrettoPoint>) = used.unzip();
        RistrettoPoint::vartime_multiscalar_mul(fixed.iter().chain(scalars), statics.iter().chain(points))
    }

    fn encode(point: &RistrettoPoint) -> [u8; 32] {
        point.compress().to_bytes()
    }

    fn encode_doubled(halves: &[RistrettoPoint]) -> Vec<[u8; 32]> {
        RistrettoPoint::double_and_compress_batch(halves).into_iter().map(|it| it.to_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Option<(RistrettoPoint, [u8; 32])> {
        let bytes: [u8; 32] = bytes.try_into().ok()?;
        // The identity's one encoding is all zeros (RFC 9496 §4.3.2).
        let point = CompressedRistretto(bytes).decompress().filter(|_| bytes != [0; 32])?;
        Some((point, bytes))
    }

    fn hash_to_point(dst: &str, message: &[u8]) -> RistrettoPoint {
        // RFC 9380 appendix B: hash_to_ristretto255.
        RistrettoPoint::from_uniform_bytes(&expand_message_xmd(Hash::Sha512, message, &[dst.as_bytes()]))
    }

    fn scalar_bytes(scalar: &Scalar) -> [u8; 32] {
        scalar.to_bytes()
    }

    fn decode_scalar(bytes: &[u8; 32]) -> Option<Scalar> {
        Scalar::from_canonical_bytes(*bytes).into()
    }

    fn reduce(uniform: &[u8; 64]) -> Scalar {
        Scalar::from_bytes_mod_order_wide(uniform)
    }

    fn hash_to_scalar(_tag: &str, message: &[u8]) -> Scalar {
        // The tag stands in the message already: a transcript begins with it.
        let uniform: Secret<64> = Secret::filled(|bytes| {
            bytes.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, message).as_ref());
        });
        Scalar::from_bytes_mod_order_wide(uniform.expose())
    }

    fn invert(scalar: &Scalar) -> Scalar {
        scalar.invert()
    }

    fn half(scalar: &Scalar) -> Scalar {
        scalar.div_by_2()
    }
}

/// From this many points on, buckets over all of them beat tables of the fixed ones (curve25519-dalek switches its
/// own sums at 190).
const PIPPENGER_FROM: usize = 190;
