//! The mathematics of Sealcast: one file per primitive or paper, all of it pure.
//!
//! This crate knows no members, sockets, clocks or files. Randomness is an argument
//! (`&mut impl CryptoRng`), with one exception: the library draws the nonce of an ECDSA signature itself.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`secret`] | bytes that erase themselves and never print | – |
//! | [`hash`] | SHA-256 and injective transcripts | FIPS 180-4 |
//! | [`kdf`] | HKDF-SHA256 with injective info | RFC 5869 |
//! | [`aead`] | AES-256-GCM, ChaCha20-Poly1305 in place, counter nonces | RFC 5116, RFC 8439 |
//! | [`at_rest`] | secrets on disk, sealed under a file key that is overwritten | RFC 5116, RFC 5869 |
//! | [`bootstrap`] | misuse-resistant sealing for what travels before there is a key | RFC 8452 |
//! | [`signature`] | Ed25519, ECDSA P-256 | RFC 8032, FIPS 186-5 |
//! | [`ed25519`] | Ed25519 by one predicate, singly or in batches | RFC 8032 |
//! | [`merkle`] | one signature for a batch of records | RFC 6962 §2.1 |
//! | [`set_hash`] | the hash of a set, cheap to change | LtHash 2019 |
//! | [`hpke`] | sealing to a public key | RFC 9180 |
//! | [`cipher_suite`] | suites 1 and 2 of MLS | RFC 9420, RFC 9180 |
//! | [`leighton_micali`] | pair keys from a centre, by symmetric means alone | Leighton–Micali 1993 |
//! | [`dutta_barua`] | a group's key, contributed to by all, on ristretto255 | Dutta–Barua 2008, RFC 9496 |
//! | [`group`] | prime-order groups for the two below: ristretto255, P-256 | RFC 9496, RFC 9380, SEC 1 |
//! | [`tdh2`] | encryption that t of n holders of shares open together | Shoup–Gennaro 2002, Chios appendix B |
//! | [`disclosure`] | sealing to a key whose holder can prove what it got | Chaum–Pedersen 1992, Schnorr 1991 |
//! | [`threshold_prf`] | a function that t of n holders of shares evaluate together | Cachin–Kursawe–Shoup 2005 |
//! | [`identity`] | certificates, rights, statements | RFC 5280 |
//!
//! Prime-order groups and the three that run on them are there with the feature `threshold`.

#![forbid(unsafe_code)]

pub mod aead;
pub mod at_rest;
pub mod bootstrap;
pub mod cipher_suite;
#[cfg(feature = "threshold")]
pub mod disclosure;
pub mod dutta_barua;
pub mod ed25519;
#[cfg(feature = "threshold")]
pub mod group;
pub mod hash;
pub mod hpke;
pub mod identity;
pub mod kdf;
pub mod leighton_micali;
pub mod merkle;
pub mod secret;
pub mod set_hash;
pub mod signature;
#[cfg(feature = "threshold")]
pub mod tdh2;
#[cfg(feature = "threshold")]
pub mod threshold_prf;

#[cfg(test)]
mod vectors;
#[cfg(all(test, feature = "threshold"))]
mod wycheproof;

/// Bytes from hexadecimal digits, for tests and their vectors.
#[cfg(test)]
pub(crate) fn unhex(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "two digits a byte");
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}
