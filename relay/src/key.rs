//! The key that signs a directory's receipts, which its clients pin, and its text `scrl1…` (Bech32m, BIP-350).

use std::fmt;
use std::str::FromStr;

use sealcast_crypto::ed25519::Key;

/// A directory's receipt key: a valid Ed25519 point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RelayKey(Key);

/// A text is no receipt key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayKeyError {
    /// The text does not begin with `scrl1`.
    #[error("this is not a relay's key (scrl1…)")]
    Kind,
    /// The text is mistyped or cut.
    #[error("the relay's key is mistyped or incomplete")]
    Checksum,
    /// The checksum holds, and the content is no Ed25519 key.
    #[error("the relay's key does not hold an Ed25519 key")]
    Content,
}

impl RelayKey {
    /// The key with these bytes.
    ///
    /// # Errors
    /// [`RelayKeyError::Content`] if they are no point, not its canonical encoding, or of small order.
    pub fn new(bytes: &[u8; 32]) -> Result<RelayKey, RelayKeyError> {
        Key::new(bytes).map(RelayKey).map_err(|_| RelayKeyError::Content)
    }

    /// Its 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    pub(crate) fn key(&self) -> &Key {
        &self.0
    }
}

impl fmt::Display for RelayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values = regroup(self.as_bytes(), 8, 5).expect("padding is allowed when bytes become groups");
        let checksum = polymod(values.iter().copied().chain([0; CHECKSUM_LEN])) ^ BECH32M;
        values.extend((0..CHECKSUM_LEN).rev().map(|i| (checksum >> (5 * i)) as u8 & 31));
        let text: String = values.iter().map(|value| char::from(ALPHABET[usize::from(*value)])).collect();
        write!(f, "{PREFIX}1{text}")
    }
}

impl FromStr for RelayKey {
    type Err = RelayKeyError;

    fn from_str(text: &str) -> Result<RelayKey, RelayKeyError> {
        let text = text.trim();
        let (prefix, data) = text.rsplit_once('1').ok_or(RelayKeyError::Kind)?;
        if !prefix.eq_ignore_ascii_case(PREFIX) {
            return Err(RelayKeyError::Kind);
        }
        // BIP-350: one case throughout.
        if text.contains(|c: char| c.is_ascii_lowercase()) && text.contains(|c: char| c.is_ascii_uppercase()) {
            return Err(RelayKeyError::Checksum);
        }
        let value = |byte: u8| ALPHABET.iter().position(|it| *it == byte.to_ascii_lowercase()).map(|at| at as u8);
        let values: Option<Vec<u8>> = data.bytes().map(value).collect();
        let values = values.filter(|it| it.len() == DATA_LEN + CHECKSUM_LEN).ok_or(RelayKeyError::Checksum)?;
        if polymod(values.iter().copied()) != BECH32M {
            return Err(RelayKeyError::Checksum);
        }
        let bytes = regroup(&values[..DATA_LEN], 5, 8).and_then(|it| it.try_into().ok());
        RelayKey::new(&bytes.ok_or(RelayKeyError::Content)?)
    }
}

impl fmt::Debug for RelayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// BIP-173's checksum over the prefix and 5-bit values.
fn polymod(values: impl Iterator<Item = u8>) -> u32 {
    let high = PREFIX.bytes().map(|byte| byte >> 5);
    let low = PREFIX.bytes().map(|byte| byte & 31);
    high.chain([0]).chain(low).chain(values).fold(1, |sum: u32, value| {
        let shifted = (sum & 0x01ff_ffff) << 5 ^ u32::from(value);
        (0..5).filter(|i| sum >> (25 + i) & 1 == 1).fold(shifted, |sum, i| sum ^ GENERATOR[i])
    })
}

/// Groups of `from` bits as groups of `to` bits; `None` if what pads the last group to bytes is not zero.
fn regroup(values: &[u8], from: u32, to: u32) -> Option<Vec<u8>> {
    let (mut pending, mut bits, mut groups) = (0_u32, 0, Vec::new());
    for value in values {
        pending = pending << from | u32::from(*value);
        bits += from;
        while bits >= to {
            bits -= to;
            groups.push((pending >> bits) as u8 & ((1_u16 << to) - 1) as u8);
            pending &= (1 << bits) - 1;
        }
    }
    match (bits, to) {
        (0, _) => {}
        (_, 5) => groups.push((pending << (to - bits)) as u8),
        _ if pending != 0 || bits >= from => return None,
        _ => {}
    }
    Some(groups)
}

const PREFIX: &str = "scrl";
/// BIP-173.
const ALPHABET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
/// BIP-350.
const BECH32M: u32 = 0x2bc8_30a3;
const CHECKSUM_LEN: usize = 6;
/// Groups of 5 bits in 32 bytes.
const DATA_LEN: usize = 52;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sealcast_crypto::secret::Secret;
    use sealcast_crypto::signature::OriginKey;

    use super::*;

    fn key(seed: u8) -> RelayKey {
        RelayKey::new(&OriginKey::from_seed(&Secret::from_bytes([seed; 32])).public_bytes()).unwrap()
    }

    /// Made with BIP-350's reference implementation (`bech32_encode`, Bech32m) of the Ed25519 key of the seed 01 01 ….
    #[test]
    fn the_text_of_a_key_is_what_the_reference_implementation_writes() {
        let expect = "scrl132yw8ht5p8cetl2jmvknewjawt9xwzdlrk2pyxlnwjyqrdq0dawqvf0c05";
        assert_eq!(key(1).to_string(), expect);
        assert_eq!(expect.parse(), Ok(key(1)));
        assert_eq!(format!(" {}\n", expect.to_uppercase()).parse(), Ok(key(1)));
    }

    #[test]
    fn texts_that_are_no_key_of_a_relay_are_refused() {
        let text = key(1).to_string();
        assert_eq!("scca1qqqqqq".parse::<RelayKey>(), Err(RelayKeyError::Kind));
        assert_eq!("".parse::<RelayKey>(), Err(RelayKeyError::Kind));
        assert_eq!("scrl1".parse::<RelayKey>(), Err(RelayKeyError::Checksum));
        assert_eq!(text.replacen("scrl", "Scrl", 1).parse::<RelayKey>(), Err(RelayKeyError::Checksum));
        for at in 5..text.len() {
            let other = if text.as_bytes()[at] == b'q' { "p" } else { "q" };
            let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            assert_eq!(changed.parse::<RelayKey>(), Err(RelayKeyError::Checksum), "{changed}");
        }
    }

    proptest! {
        #[test]
        fn every_key_has_one_text(seed: u8, junk in "(scrl1)?[ -~é]{0,70}") {
            prop_assert_eq!(key(seed).to_string().parse(), Ok(key(seed)));
            let _ = junk.parse::<RelayKey>();
        }
    }
}
