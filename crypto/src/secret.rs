//! Bytes that only the right people may know.

use std::fmt;

use rand_core::CryptoRng;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// `N` secret bytes: erased when dropped, compared in constant time, printed as `<redacted>`.
///
/// A move leaves the old place to the compiler, as any value's does; hold secrets where they stay, and
/// hand on references.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Takes the bytes in. The caller's own copy, if it keeps one, is the caller's to erase.
    pub fn from_bytes(bytes: [u8; N]) -> Secret<N> {
        Secret(bytes)
    }

    /// `N` fresh random bytes.
    pub fn random(rng: &mut impl CryptoRng) -> Secret<N> {
        Secret::filled(|bytes| rng.fill_bytes(bytes))
    }

    /// A secret that `fill` writes in place, without a copy elsewhere.
    pub fn filled(fill: impl FnOnce(&mut [u8; N])) -> Secret<N> {
        let mut secret = Secret([0; N]);
        fill(&mut secret.0);
        secret
    }

    /// The bytes themselves. Each call is a place to look at in a review.
    pub fn expose(&self) -> &[u8; N] {
        &self.0
    }
}

/// A secret from a slice of exactly `N` bytes.
impl<const N: usize> TryFrom<&[u8]> for Secret<N> {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Secret<N>, Self::Error> {
        let bytes: &[u8; N] = bytes.try_into()?;
        Ok(Secret(*bytes))
    }
}

impl<const N: usize> PartialEq for Secret<N> {
    fn eq(&self, other: &Secret<N>) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl<const N: usize> Eq for Secret<N> {}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_redacted() {
        assert_eq!(format!("{:?}", Secret::from_bytes([0x41; 32])), "<redacted>");
    }

    #[test]
    fn equality_is_of_all_bytes() {
        let a = Secret::from_bytes([7; 32]);
        for i in 0..32 {
            let mut bytes = [7; 32];
            bytes[i] ^= 0x80;
            assert_ne!(a, Secret::from_bytes(bytes));
        }
        assert_eq!(a, Secret::from_bytes([7; 32]));
    }

    #[test]
    fn only_the_right_length_becomes_a_secret() {
        assert!(Secret::<32>::try_from(&[0_u8; 31][..]).is_err());
        assert!(Secret::<32>::try_from(&[0_u8; 33][..]).is_err());
        assert!(Secret::<32>::try_from(&[5_u8; 32][..]).unwrap() == Secret::from_bytes([5; 32]));
    }
}
