//! The key that signs a directory's receipts, which its clients pin, and its text `scrl1…` (Bech32m, BIP-350).

use std::fmt;
use std::str::FromStr;

use sealcast_crypto::ed25519::Key;
use sealcast_crypto::identity::keytext::{KeyTextError, export_relay_key, import_relay_key};

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
        f.write_str(&export_relay_key(self.as_bytes()))
    }
}

impl FromStr for RelayKey {
    type Err = RelayKeyError;

    fn from_str(text: &str) -> Result<RelayKey, RelayKeyError> {
        let bytes = import_relay_key(text).map_err(|why| match why {
            KeyTextError::Kind(_) => RelayKeyError::Kind,
            KeyTextError::Checksum => RelayKeyError::Checksum,
            KeyTextError::Content => RelayKeyError::Content,
        })?;
        RelayKey::new(&bytes)
    }
}

impl fmt::Debug for RelayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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
