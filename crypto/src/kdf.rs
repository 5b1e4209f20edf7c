//! HKDF-SHA256 (RFC 5869): every key of ours is derived here.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};

use crate::secret::Secret;

/// HKDF with an `info` that no other list of parts shares: each part goes in behind its 64-bit length (G3).
///
/// The first part is the label, as `sealcast/v1/sub`; then what the key is bound to.
pub fn hkdf<const N: usize>(ikm: &[u8], salt: &[u8], info_parts: &[&[u8]]) -> Secret<N> {
    const { assert!(N <= OKM_MAX) };
    let lengths: Vec<[u8; 8]> = info_parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
    let info: Vec<&[u8]> = lengths.iter().zip(info_parts).flat_map(|(length, part)| [&length[..], part]).collect();
    Secret::filled(|okm| rfc5869(ikm, salt, &info, okm).expect("the length is checked at compile time"))
}

/// HKDF as in the RFC: `info` is the parts one after the other, without lengths.
///
/// # Errors
/// [`TooLong`] if more than `OKM_MAX` bytes are asked for.
pub(crate) fn rfc5869(ikm: &[u8], salt: &[u8], info: &[&[u8]], okm: &mut [u8]) -> Result<(), TooLong> {
    let prk = Salt::new(HKDF_SHA256, salt).extract(ikm);
    prk.expand(info, Length(okm.len())).and_then(|it| it.fill(okm)).map_err(|_| TooLong)
}

/// More output than HKDF gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HKDF-SHA256 gives at most 8160 bytes")]
pub(crate) struct TooLong;

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// RFC 5869 §2.3: at most 255 blocks of the hash's length, bytes.
const OKM_MAX: usize = 255 * 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unhex;

    #[test]
    fn rfc5869_test_case_1() {
        let mut okm = [0; 42];
        let (salt, info) = (unhex("000102030405060708090a0b0c"), unhex("f0f1f2f3f4f5f6f7f8f9"));
        rfc5869(&[0x0b; 22], &salt, &[&info], &mut okm).unwrap();
        let expect = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(okm.to_vec(), unhex(expect));
    }

    #[test]
    fn rule_g3_info_parts_do_not_flow_into_each_other() {
        let key = |parts: &[&[u8]]| hkdf::<32>(b"ikm", b"salt", parts);
        assert_eq!(key(&[b"ab", b"c"]), key(&[b"ab", b"c"]));
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"abc"]));
        assert_ne!(key(&[b"ab", b""]), key(&[b"ab"]));
    }

    #[test]
    fn salt_and_secret_matter() {
        assert_ne!(hkdf::<32>(b"a", b"s", &[b"x"]), hkdf::<32>(b"b", b"s", &[b"x"]));
        assert_ne!(hkdf::<32>(b"a", b"s", &[b"x"]), hkdf::<32>(b"a", b"t", &[b"x"]));
    }
}
