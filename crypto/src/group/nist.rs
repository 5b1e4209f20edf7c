//! Suite 2: P-256 (FIPS 186-5, SEC 1) with SHA-256, on RustCrypto's p256.

use std::iter;
use std::sync::LazyLock;

use p256::elliptic_curve::array::Array;
use p256::elliptic_curve::consts::U48;
use p256::elliptic_curve::ff::PrimeField;
use p256::elliptic_curve::group::GroupEncoding;
use p256::elliptic_curve::ops::{LinearCombination, Reduce};
use p256::hash2curve::MapToCurve;
use p256::{NistP256, ProjectivePoint, Scalar};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::PrimeGroup;
use super::expand::{Hash, expand_message_xmd};

/// NIST P-256, SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct P256;

/// The sixteen multiples of 16^w P, for each of a scalar's 64 windows of four bits.
pub struct Table(Vec<[ProjectivePoint; 16]>);

impl PrimeGroup for P256 {
    const NAME: &'static str = "P256";
    const HASH_TO_GROUP: &'static str = "P256_XMD:SHA-256_SSWU_RO_";
    const SUITE: u8 = 2;
    const POINT_LEN: usize = 33;
    type Scalar = Scalar;
    type Point = ProjectivePoint;
    type Encoded = [u8; 33];
    type Table = Table;
    type Statics = Vec<ProjectivePoint>;

    fn identity() -> ProjectivePoint {
        ProjectivePoint::IDENTITY
    }

    fn generator() -> ProjectivePoint {
        ProjectivePoint::GENERATOR
    }

    fn mul(point: &ProjectivePoint, scalar: &Scalar) -> ProjectivePoint {
        point * scalar
    }

    fn mul_base(scalar: &Scalar) -> ProjectivePoint {
        P256::mul_table(&GENERATOR, scalar)
    }

    fn table(point: &ProjectivePoint) -> Table {
        let mut base = *point;
        let window = |_| {
            let mut multiples = [ProjectivePoint::IDENTITY; 16];
            for i in 1..16 {
                multiples[i] = multiples[i - 1] + base;
            }
            base = multiples[15] + base;
            multiples
        };
        Table((0..64).map(window).collect())
    }

    fn mul_table(table: &Table, scalar: &Scalar) -> ProjectivePoint {
        let digits = scalar.to_repr();
        let nibbles = digits.iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
        let mut sum = ProjectivePoint::IDENTITY;
        for (nibble, multiples) in nibbles.zip(&table.0) {
            // All sixteen are read, so that the address says nothing.
            let mut chosen = ProjectivePoint::IDENTITY;
            for (i, multiple) in (0_u8..).zip(multiples) {
                chosen.conditional_assign(multiple, nibble.ct_eq(&i));
            }
            sum += chosen;
        }
        sum
    }

    fn statics(points: &[ProjectivePoint]) -> Vec<ProjectivePoint> {
        points.to_vec()
    }

    fn msm(
        statics: &Vec<ProjectivePoint>,
        fixed: &[Scalar],
        scalars: &[Scalar],
        points: &[ProjectivePoint],
    ) -> ProjectivePoint {
        let used = iter::zip(statics, fixed).filter(|(_, scalar)| **scalar != Scalar::ZERO);
        let terms: Vec<_> = used.chain(iter::zip(points, scalars)).map(|(point, scalar)| (*point, *scalar)).collect();
        ProjectivePoint::lincomb_vartime(&terms[..])
    }

    fn encode(point: &ProjectivePoint) -> [u8; 33] {
        point.to_bytes().into()
    }

    fn encode_doubled(halves: &[ProjectivePoint]) -> Vec<[u8; 33]> {
        use p256::elliptic_curve::point::BatchNormalize;
        let doubled: Vec<_> = halves.iter().map(|half| half + half).collect();
        let affine = ProjectivePoint::batch_normalize(&doubled[..]);
        affine.iter().map(|point| point.to_bytes().into()).collect()
    }

    fn decode(bytes: &[u8]) -> Option<(ProjectivePoint, [u8; 33])> {
        let bytes: [u8; 33] = bytes.try_into().ok()?;
        // SEC 1 §2.3.3, compressed only: 2 or 3, then x < p; the identity's one byte 0 is no encoding of ours.
        if !matches!(bytes[0], 2 | 3) {
            return None;
        }
        let point: Option<ProjectivePoint> = ProjectivePoint::from_bytes(&bytes.into()).into();
        Some((point?, bytes))
    }

    fn hash_to_point(dst: &str, message: &[u8]) -> ProjectivePoint {
        // RFC 9380 §3: u = hash_to_field(msg, 2); Q0 = map_to_curve(u[0]); Q1 = map_to_curve(u[1]); Q0 + Q1
        let uniform: [u8; 96] = expand_message_xmd(Hash::Sha256, message, &[dst.as_bytes()]);
        let field = |bytes: &[u8]| {
            let bytes = Array::<u8, U48>::try_from(bytes).expect("L is 48 bytes");
            <NistP256 as MapToCurve>::FieldElement::reduce(&bytes)
        };
        NistP256::map_to_curve(field(&uniform[..48])) + NistP256::map_to_curve(field(&uniform[48..]))
    }

    fn scalar_bytes(scalar: &Scalar) -> [u8; 32] {
        scalar.to_repr().into()
    }

    fn decode_scalar(bytes: &[u8; 32]) -> Option<Scalar> {
        Scalar::from_repr((*bytes).into()).into()
    }

    fn reduce(uniform: &[u8; 64]) -> Scalar {
        reduce48(uniform.first_chunk().expect("64 bytes hold 48"))
    }

    fn hash_to_scalar(tag: &str, message: &[u8]) -> Scalar {
        // RFC 9380 §5.2, hash_to_field for the field of order q: L = 48, count = 1.
        reduce48(&expand_message_xmd(Hash::Sha256, message, &[b"CHIOS-v1/P256/", tag.as_bytes()]))
    }

    fn invert(scalar: &Scalar) -> Scalar {
        scalar.invert().unwrap_or(Scalar::ZERO)
    }

    fn half(scalar: &Scalar) -> Scalar {
        *scalar * *HALF
    }
}

fn reduce48(bytes: &[u8; 48]) -> Scalar {
    Scalar::reduce(&Array::<u8, U48>::from(*bytes))
}

static GENERATOR: LazyLock<Table> = LazyLock::new(|| P256::table(&ProjectivePoint::GENERATOR));
static HALF: LazyLock<Scalar> = LazyLock::new(|| P256::invert(&Scalar::from(2_u64)));
