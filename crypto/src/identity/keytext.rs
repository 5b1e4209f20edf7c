//! Keys as text that one recognises, greps for and cannot mistype: Bech32m (BIP-350), after age's example.
//!
//! | text | holds | who may see it |
//! |---|---|---|
//! | `scpub1…` | a member's public keys: signing and sealing | everybody |
//! | `scca1…` | the fingerprint of an authority: SHA-256 of its certificate | everybody |
//! | `scrl1…` | the key by which a relay's directory signs receipts | everybody |
//! | `SC-SECRET-1…` | a member's, an authority's, a group's bootstrap key's, a broker's, a centre's or its principal's secret | its holder |
//! | `scjoin1…` | a join token: a secret of 128 bits, and whom to ask (A11) | the invited one |
//!
//! The first byte in the text says what exactly follows. Secrets are written in capitals.

use std::fmt;
use std::str::FromStr;

use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32m, Hrp};
use rand_core::CryptoRng;
use sealcast_wire::Reader;
use zeroize::Zeroizing;

use crate::hpke;
use crate::kdf::hkdf;
use crate::leighton_micali::LongTerm;
use crate::secret::Secret;
use crate::signature::{Algorithm, OriginKey, PublicKey, SigningKey};

/// A member's public keys: what a joiner hands to an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKeys {
    /// Verifies what it signs.
    pub signing: PublicKey,
    /// Seals for it.
    pub sealing: hpke::PublicKey,
}

/// A member's secret, from which its keys come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSecret {
    algorithm: Algorithm,
    signing: Secret<32>,
    sealing: Secret<32>,
}

/// An authority's secret: its signing key, and the root of its groups' bootstrap keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthoritySecret {
    algorithm: Algorithm,
    signing: Secret<32>,
    bootstrap_keys: Secret<32>,
}

/// SHA-256 of an authority's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// What lets somebody ask an authority's running service for a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// Never crosses the wire (A11).
    pub secret: Secret<16>,
    /// Whom to ask.
    pub authority: Fingerprint,
}

/// A text is not the key that it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// Another kind of text, or none of ours.
    #[error("this is not {0}")]
    Kind(&'static str),
    /// A character is wrong, or missing.
    #[error("a character of the key is wrong or missing")]
    Checksum,
    /// The checksum holds and the content does not: of a later version, or made by somebody else.
    #[error("the key has a form that this version does not know")]
    Content,
}

impl MemberSecret {
    /// Fresh keys.
    pub fn generate(algorithm: Algorithm, rng: &mut impl CryptoRng) -> MemberSecret {
        MemberSecret { algorithm, signing: signing_seed(algorithm, rng), sealing: Secret::random(rng) }
    }

    /// The signing key.
    pub fn signing_key(&self) -> SigningKey {
        SigningKey::from_seed(self.algorithm, &self.signing).expect("seeds are checked where they enter")
    }

    /// The signing key as one that signs for an administrator of brokers; `None` if it is of another kind than Ed25519.
    pub fn origin_key(&self) -> Option<OriginKey> {
        (self.algorithm == Algorithm::Ed25519).then(|| OriginKey::from_seed(&self.signing))
    }

    /// The key that others seal for.
    pub fn sealing_key(&self) -> hpke::KeyPair {
        hpke::KeyPair::derive(&self.sealing)
    }

    /// The public halves.
    pub fn public(&self) -> PublicKeys {
        PublicKeys { signing: self.signing_key().public().clone(), sealing: self.sealing_key().public() }
    }

    /// The secret as text, for the file that it is kept in.
    pub fn export(&self) -> Zeroizing<String> {
        export(KIND_MEMBER, self.algorithm, &[&self.signing, &self.sealing])
    }

    /// Reads what [`MemberSecret::export`] wrote.
    ///
    /// # Errors
    /// It is something else, or damaged.
    pub fn import(text: &str) -> Result<MemberSecret, KeyTextError> {
        let (algorithm, [signing, sealing]) = import(text, KIND_MEMBER, "a member's secret (SC-SECRET-1…)")?;
        Ok(MemberSecret { algorithm, signing, sealing })
    }
}

impl AuthoritySecret {
    /// A fresh secret.
    pub fn generate(algorithm: Algorithm, rng: &mut impl CryptoRng) -> AuthoritySecret {
        AuthoritySecret { algorithm, signing: signing_seed(algorithm, rng), bootstrap_keys: Secret::random(rng) }
    }

    /// The signing key.
    pub fn signing_key(&self) -> SigningKey {
        SigningKey::from_seed(self.algorithm, &self.signing).expect("seeds are checked where they enter")
    }

    /// A group's bootstrap key: every group has its own.
    pub fn bootstrap_key(&self, group: &str) -> Secret<32> {
        hkdf(self.bootstrap_keys.expose(), b"", &[b"sealcast/v1/veil of a group", group.as_bytes()])
    }

    /// The secret as text, for the file that it is kept in.
    pub fn export(&self) -> Zeroizing<String> {
        export(KIND_AUTHORITY, self.algorithm, &[&self.signing, &self.bootstrap_keys])
    }

    /// Reads what [`AuthoritySecret::export`] wrote.
    ///
    /// # Errors
    /// It is something else, or damaged.
    pub fn import(text: &str) -> Result<AuthoritySecret, KeyTextError> {
        let (algorithm, [signing, bootstrap_keys]) =
            import(text, KIND_AUTHORITY, "an authority's secret (SC-SECRET-1…)")?;
        Ok(AuthoritySecret { algorithm, signing, bootstrap_keys })
    }
}

/// A group's bootstrap key as text, for the file that it is kept in.
pub fn export_bootstrap_key(bootstrap_key: &Secret<32>) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(vec![KIND_BOOTSTRAP]);
    bytes.extend_from_slice(bootstrap_key.expose());
    write_secret(&bytes)
}

/// Reads what [`export_bootstrap_key`] wrote.
///
/// # Errors
/// It is something else, or damaged.
pub fn import_bootstrap_key(text: &str) -> Result<Secret<32>, KeyTextError> {
    const WHAT: &str = "a veil's secret (SC-SECRET-1…)";
    let bytes = read(text, SECRET, WHAT)?;
    match bytes.split_first() {
        Some((&KIND_BOOTSTRAP, bootstrap_key)) => Secret::try_from(bootstrap_key).map_err(|_| KeyTextError::Content),
        _ => Err(KeyTextError::Kind(WHAT)),
    }
}

/// The seed of an Ed25519 key as text, for the file that it is kept in: a broker's, or that of a client of brokers.
pub fn export_seed(seed: &Secret<32>) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(vec![KIND_SEED]);
    bytes.extend_from_slice(seed.expose());
    write_secret(&bytes)
}

/// Reads what [`export_seed`] wrote.
///
/// # Errors
/// It is something else, or damaged.
pub fn import_seed(text: &str) -> Result<Secret<32>, KeyTextError> {
    const WHAT: &str = "the secret of a broker or of a client (SC-SECRET-1…)";
    let bytes = read(text, SECRET, WHAT)?;
    match bytes.split_first() {
        Some((&KIND_SEED, seed)) => Secret::try_from(seed).map_err(|_| KeyTextError::Content),
        _ => Err(KeyTextError::Kind(WHAT)),
    }
}

/// The secret of a key distribution centre as text, for the file that it is kept in.
pub fn export_centre(secret: &Secret<32>) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(vec![KIND_CENTRE]);
    bytes.extend_from_slice(secret.expose());
    write_secret(&bytes)
}

/// Reads what [`export_centre`] wrote.
///
/// # Errors
/// It is something else, or damaged.
pub fn import_centre(text: &str) -> Result<Secret<32>, KeyTextError> {
    const WHAT: &str = "a centre's secret (SC-SECRET-1…)";
    let bytes = read(text, SECRET, WHAT)?;
    match bytes.split_first() {
        Some((&KIND_CENTRE, secret)) => Secret::try_from(secret).map_err(|_| KeyTextError::Content),
        _ => Err(KeyTextError::Kind(WHAT)),
    }
}

/// The secrets of a centre's principal as text: its long-term keys, and the seed of its signing key.
pub fn export_principal(long_term: &LongTerm, signing: &Secret<32>) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(97));
    bytes.push(KIND_PRINCIPAL);
    for secret in [&long_term.exchange, &long_term.authentication, signing] {
        bytes.extend_from_slice(secret.expose());
    }
    write_secret(&bytes)
}

/// Reads what [`export_principal`] wrote: long-term keys, and the seed of the signing key.
///
/// # Errors
/// It is something else, or damaged.
pub fn import_principal(text: &str) -> Result<(LongTerm, Secret<32>), KeyTextError> {
    const WHAT: &str = "a principal's secret (SC-SECRET-1…)";
    let bytes = read(text, SECRET, WHAT)?;
    let mut reader = Reader::new(&bytes);
    if reader.u8() != Ok(KIND_PRINCIPAL) {
        return Err(KeyTextError::Kind(WHAT));
    }
    let mut secret = || reader.take(32).ok().and_then(|b| Secret::try_from(b).ok()).ok_or(KeyTextError::Content);
    let (exchange, authentication, signing) = (secret()?, secret()?, secret()?);
    reader.end().map_err(|_| KeyTextError::Content)?;
    Ok((LongTerm { exchange, authentication }, signing))
}

/// `scpub1…`
impl fmt::Display for PublicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.sealing.0.to_vec();
        bytes.extend_from_slice(&self.signing.to_bytes());
        f.write_str(&write(PUBLIC, &bytes))
    }
}

impl FromStr for PublicKeys {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<PublicKeys, KeyTextError> {
        let bytes = read(text, PUBLIC, "a public key (scpub1…)")?;
        let mut reader = Reader::new(&bytes);
        let sealing = hpke::PublicKey(reader.array().map_err(|_| KeyTextError::Content)?);
        let signing = PublicKey::from_bytes(reader.rest()).map_err(|_| KeyTextError::Content)?;
        Ok(PublicKeys { signing, sealing })
    }
}

/// `scca1…`
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&write(AUTHORITY, &self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Fingerprint, KeyTextError> {
        let bytes = read(text, AUTHORITY, "an authority's fingerprint (scca1…)")?;
        bytes.as_slice().try_into().map(Fingerprint).map_err(|_| KeyTextError::Content)
    }
}

impl JoinToken {
    /// The token as text, `scjoin1…`; whoever has it may join.
    pub fn export(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(self.secret.expose().to_vec());
        bytes.extend_from_slice(&self.authority.0);
        Zeroizing::new(write(JOIN, &bytes))
    }

    /// Reads what [`JoinToken::export`] wrote.
    ///
    /// # Errors
    /// It is something else, or damaged.
    pub fn import(text: &str) -> Result<JoinToken, KeyTextError> {
        let bytes = read(text, JOIN, "a join token (scjoin1…)")?;
        let (secret, authority) = bytes.split_first_chunk::<16>().ok_or(KeyTextError::Content)?;
        let authority = authority.try_into().map(Fingerprint).map_err(|_| KeyTextError::Content)?;
        Ok(JoinToken { secret: Secret::from_bytes(*secret), authority })
    }
}

/// A key's text for a table or a sentence: `scpub1zk…e0a`. Never compare by it.
pub fn short(text: &str) -> String {
    match text.split_once('1') {
        Some((kind, rest)) if text.is_ascii() && rest.len() > 8 => {
            format!("{kind}1{}…{}", &rest[..2], &rest[rest.len() - 3..])
        }
        _ => text.to_owned(),
    }
}

/// An authority's fingerprint for people who compare it by eye: `scca1`, its first 80 bits, and its end. Whoever wants
/// another authority that looks alike has to try 2⁸⁰ of them.
pub fn compared(text: &str) -> String {
    match text.split_once('1') {
        Some((kind, rest)) if text.is_ascii() && rest.len() > COMPARED_CHARS + 3 => {
            format!("{kind}1{}…{}", &rest[..COMPARED_CHARS], &rest[rest.len() - 3..])
        }
        _ => text.to_owned(),
    }
}

/// Characters of 5 bits each. The end is a checksum and adds nothing.
const COMPARED_CHARS: usize = 80 / 5;

/// A seed that is a key: P-256 refuses one in 2³².
fn signing_seed(algorithm: Algorithm, rng: &mut impl CryptoRng) -> Secret<32> {
    loop {
        let seed = Secret::random(rng);
        if SigningKey::from_seed(algorithm, &seed).is_ok() {
            return seed;
        }
    }
}

fn export(kind: u8, algorithm: Algorithm, secrets: &[&Secret<32>; 2]) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(66));
    bytes.extend_from_slice(&[kind, algorithm as u8]);
    secrets.iter().for_each(|s| bytes.extend_from_slice(s.expose()));
    write_secret(&bytes)
}

fn import(text: &str, kind: u8, what: &'static str) -> Result<(Algorithm, [Secret<32>; 2]), KeyTextError> {
    let bytes = read(text, SECRET, what)?;
    let mut reader = Reader::new(&bytes);
    if reader.u8() != Ok(kind) {
        return Err(KeyTextError::Kind(what));
    }
    let algorithm = match reader.u8() {
        Ok(1) => Algorithm::Ed25519,
        Ok(2) => Algorithm::P256,
        _ => return Err(KeyTextError::Content),
    };
    let mut secret = || reader.take(32).ok().and_then(|b| Secret::try_from(b).ok()).ok_or(KeyTextError::Content);
    let secrets = [secret()?, secret()?];
    reader.end().map_err(|_| KeyTextError::Content)?;
    SigningKey::from_seed(algorithm, &secrets[0]).map_err(|_| KeyTextError::Content)?;
    Ok((algorithm, secrets))
}

/// The text of a relay's receipt key.
pub fn export_relay_key(key: &[u8; 32]) -> String {
    write(RELAY, key)
}

/// Reads what [`export_relay_key`] wrote.
///
/// # Errors
/// It is something else, or damaged.
pub fn import_relay_key(text: &str) -> Result<[u8; 32], KeyTextError> {
    let key = read(text, RELAY, "a relay's key (scrl1…)")?.as_slice().try_into().map_err(|_| KeyTextError::Content)?;
    // One text for each key: the last character has bits to spare.
    if export_relay_key(&key).eq_ignore_ascii_case(text.trim()) { Ok(key) } else { Err(KeyTextError::Content) }
}

fn write(kind: Hrp, bytes: &[u8]) -> String {
    bech32::encode::<Bech32m>(kind, bytes).expect("all our keys are far below Bech32m's 1,023 characters")
}

fn write_secret(bytes: &[u8]) -> Zeroizing<String> {
    let text = bech32::encode_upper::<Bech32m>(SECRET, bytes);
    Zeroizing::new(text.expect("all our keys are far below Bech32m's 1,023 characters"))
}

fn read(text: &str, kind: Hrp, what: &'static str) -> Result<Zeroizing<Vec<u8>>, KeyTextError> {
    let text = text.trim();
    if text.rsplit_once('1').is_none_or(|(k, _)| !k.eq_ignore_ascii_case(kind.as_str())) {
        return Err(KeyTextError::Kind(what));
    }
    let checked = CheckedHrpstring::new::<Bech32m>(text).map_err(|_| KeyTextError::Checksum)?;
    Ok(Zeroizing::new(checked.byte_iter().collect()))
}

const PUBLIC: Hrp = Hrp::parse_unchecked("scpub");
const AUTHORITY: Hrp = Hrp::parse_unchecked("scca");
const SECRET: Hrp = Hrp::parse_unchecked("sc-secret-");
const RELAY: Hrp = Hrp::parse_unchecked("scrl");
const JOIN: Hrp = Hrp::parse_unchecked("scjoin");
/// First byte of a secret's content.
const KIND_MEMBER: u8 = 1;
const KIND_AUTHORITY: u8 = 2;
const KIND_BOOTSTRAP: u8 = 3;
const KIND_SEED: u8 = 4;
const KIND_CENTRE: u8 = 5;
const KIND_PRINCIPAL: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    fn rng() -> ChaCha20Rng {
        ChaCha20Rng::seed_from_u64(7)
    }

    #[test]
    fn keys_are_recognised_by_their_text() {
        for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
            let secret = MemberSecret::generate(algorithm, &mut rng());
            let public = secret.public();
            assert!(public.to_string().starts_with("scpub1"));
            assert_eq!(public.to_string().parse(), Ok(public.clone()));
            assert!(secret.export().starts_with("SC-SECRET-1"));
            assert_eq!(MemberSecret::import(&secret.export()).map(|s| s.public()), Ok(public));
            assert_eq!(format!("{secret:?}").matches("<redacted>").count(), 2);
        }
        let ca = AuthoritySecret::generate(Algorithm::P256, &mut rng());
        assert_eq!(AuthoritySecret::import(&format!(" {}\n", *ca.export())), Ok(ca.clone()));
        assert_ne!(ca.bootstrap_key("a"), ca.bootstrap_key("b"));
        assert_eq!(import_bootstrap_key(&export_bootstrap_key(&ca.bootstrap_key("a"))), Ok(ca.bootstrap_key("a")));
        assert_eq!(import_seed(&export_seed(&ca.bootstrap_key("a"))), Ok(ca.bootstrap_key("a")));
        let token = JoinToken { secret: Secret::random(&mut rng()), authority: Fingerprint([7; 32]) };
        assert_eq!(JoinToken::import(&token.export()), Ok(token));
        assert_eq!("scca1q".parse::<Fingerprint>(), Err(KeyTextError::Checksum));
    }

    #[test]
    fn secrets_of_a_centre_and_of_its_principals_are_told_from_others() {
        let [exchange, authentication, signing, centre] = [1, 2, 3, 4].map(|b| Secret::from_bytes([b; 32]));
        let text = export_principal(&LongTerm { exchange, authentication }, &signing);
        assert!(text.starts_with("SC-SECRET-1"));
        let (keys, seed) = import_principal(&text).unwrap();
        assert_eq!([keys.exchange, keys.authentication, seed].map(|it| it.expose()[0]), [1, 2, 3]);
        assert_eq!(import_centre(&export_centre(&centre)), Ok(centre.clone()));
        assert!(matches!(import_centre(&export_seed(&centre)), Err(KeyTextError::Kind(_))));
        assert!(matches!(import_seed(&export_centre(&centre)), Err(KeyTextError::Kind(_))));
        assert!(matches!(import_principal(&export_centre(&centre)).map(drop), Err(KeyTextError::Kind(_))));
        let mut mistyped = text.to_string();
        mistyped.replace_range(20..21, if &text[20..21] == "Q" { "P" } else { "Q" });
        assert_eq!(import_principal(&mistyped).map(drop), Err(KeyTextError::Checksum));
    }

    #[test]
    fn one_kind_is_not_another() {
        let member = MemberSecret::generate(Algorithm::Ed25519, &mut rng());
        assert!(matches!(AuthoritySecret::import(&member.export()), Err(KeyTextError::Kind(_))));
        assert!(matches!(import_bootstrap_key(&member.export()), Err(KeyTextError::Kind(_))));
        let bootstrap_key = AuthoritySecret::generate(Algorithm::P256, &mut rng()).bootstrap_key("a");
        assert!(matches!(import_seed(&export_bootstrap_key(&bootstrap_key)), Err(KeyTextError::Kind(_))));
        let other = MemberSecret::generate(Algorithm::P256, &mut rng());
        let point = |key: Option<OriginKey>| key.map(|key| key.public().clone());
        assert_eq!(point(member.origin_key()), Some(member.public().signing));
        assert_eq!(point(other.origin_key()), None);
        assert!(matches!(member.export().parse::<PublicKeys>(), Err(KeyTextError::Kind(_))));
        assert!(matches!(MemberSecret::import(&member.public().to_string()), Err(KeyTextError::Kind(_))));
    }

    #[test]
    fn a_mistyped_key_is_noticed() {
        let text = MemberSecret::generate(Algorithm::Ed25519, &mut rng()).public().to_string();
        for i in 6..text.len() {
            let other = if text.as_bytes()[i] == b'q' { "p" } else { "q" };
            let wrong = format!("{}{other}{}", &text[..i], &text[i + 1..]);
            assert_eq!(wrong.parse::<PublicKeys>(), Err(KeyTextError::Checksum), "character {i}");
        }
        assert_eq!(text[..text.len() - 1].parse::<PublicKeys>(), Err(KeyTextError::Checksum));
    }

    #[test]
    fn a_short_form_is_for_people() {
        let text = Fingerprint([9; 32]).to_string();
        assert_eq!(short(&text).chars().count(), "scca1xx…xxx".chars().count());
        assert_eq!(short("hello"), "hello");
        assert_eq!(compared("hello"), "hello");
    }

    #[test]
    fn what_people_compare_of_an_authority_has_80_bits() {
        for bit in 0..80 {
            let mut other = [9; 32];
            other[bit / 8] ^= 0x80 >> (bit % 8);
            // The first 80 bits are compared by themselves, without the checksum at the end.
            let data = |bytes| compared(&Fingerprint(bytes).to_string()).split('…').next().map(str::to_owned);
            assert_ne!(data([9; 32]), data(other), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(tail in "\\PC{0,60}|[qpzry9x8gf2tvdw0s3jn54khce6mua7l]{0,120}") {
            for kind in ["", "scpub1", "SC-SECRET-1", "sc-secret-1", "scca1", "scjoin1"] {
                let text = format!("{kind}{tail}");
                let _ = (text.parse::<PublicKeys>(), text.parse::<Fingerprint>(), MemberSecret::import(&text));
                let _ = (AuthoritySecret::import(&text), JoinToken::import(&text), import_bootstrap_key(&text), short(&text));
            }
        }
    }
}
