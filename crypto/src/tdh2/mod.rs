//! 'TDH2-VIL v1': labelled threshold encryption that t of n holders of key shares open together, secure against
//! chosen ciphertexts. V. Shoup, R. Gennaro, J. Cryptology 15 (2002) 75–96 (TDH2); Chios, appendix B, Fig. 8
//! (TDH2-VIL: a label that is a vector of strings).
//!
//! Group G of prime order q, generator g; written multiplicatively here. H with a tag is a hash over an injective
//! transcript that names the suite; HS ends in a scalar, HG in an element.
//!
//! ```text
//! key      F of degree t − 1; x_i = F(i), h_i = g^x_i, h = g^F(0), ḡ = HG("gbar"; system, h), H_Δ = h^Δ
//! encrypt  σ ← {0,1}²⁵⁶; (k ‖ com) = H("dem"; pkh0, L', σ); C = AEAD(k, L', M); D = H("body"; com, C)
//!          r = HS("r"; pkh0, L', σ, D); u = g^r, ū = ḡ^r; c_1 = σ ⊕ H("mask"; pkh0, u, H_Δ^r)
//!          s hedged; w = g^s, w̄ = ḡ^s; e = HS("H2"; pkh0, L', c_1, D, |C|, u, ū, w, w̄); f = s + re
//! check    g^f = w u^e, ḡ^f = w̄ ū^e                                            anybody, before anything else
//! share    u_i = u^x_i                                                       holder i, of a checked ciphertext
//! prove    s_i hedged; û = u^s_i, ĥ = g^s_i; e_i = HS("H3"; pkh, i, ctid, u, h_i, u_i, û, ĥ); f_i = s_i + x_i e_i
//! combine  Z' = Π u_i^(Δλ_i); σ' = c_1 ⊕ H("mask"; …); r' = HS("r"; …); g^r' = u and H_Δ^r' = Z' and com, or ⊥
//! ```
//! [`encrypt`](PublicKey::encrypt) → [`Ciphertext`] → [`bind`](PublicKey::bind) to its label: [`Labelled`] →
//! [`check`](PublicKey::check): [`Checked`] → [`KeyShare::share`]: [`Share`] → [`Combiner::combine`]: [`Combined`].
//! On complaint [`KeyShare::prove`]: [`ProvedShare`] → [`verify_share`](PublicKey::verify_share): [`Verified`] →
//! [`Combiner::combine_verified`].
//!
//! Assumed: at most t − 1 holders are corrupt, and chosen before the key is made (TDH2 is proven for static
//! corruption, S16); DDH, in the random-oracle model.
//!
//! Where we deviate from the printed scheme, and why. Each number has a test of its name (`s1_…`):
//!
//! * **S1** Fig. 8 hashes (u_i, û_i, ĥ_i) only, so a publisher and one holder forge a share that verifies and is wrong,
//!   and readers see different plaintexts. H3 covers the whole statement, the key and the ciphertext's id.
//! * **S2, S4** e covers c_1, and D for the AEAD part, so that nothing of a ciphertext can be exchanged.
//! * **S3** A message of any length: threshold KEM of σ, and a key-committing AEAD of the message.
//! * **S5** Prime-order groups, canonical encodings, no identity, all on decoding.
//! * **S6** ḡ by hashing to the group: nobody knows log_g ḡ, with a dealer or without.
//! * **S7** pkh0 (system, h, ḡ, Δ) in every hash of a ciphertext, pkh (n, t, epoch, all h_i) in every hash of a share:
//!   ciphertexts outlive a refresh of the shares, shares do not.
//! * **S8, S9, S10** The label is hashed in one pass, of eight components of fixed meaning ([`Label`]), each injectively
//!   encoded: no rule of access becomes a header, and the executable operation is bound.
//! * **S11, S12, S14** [`Labelled::id`] (ctid) is what admission, notification and evidence name; only checked
//!   ciphertexts get shares, so that no holder has a ⊥ to claim.
//! * **S13** Combining refuses too few shares, doubles and indices out of range, and sorts.
//! * **S17** Nonces of proofs hash the secret, the statement and fresh randomness together.
//! * **S28** Shares of this key are no shares of the PRF's key: other types, other hashes.
//!
//! **Combining is optimistic**: t shares *without* proofs are combined, and the reader checks the result by encrypting
//! again (Fujisaki–Okamoto). Both equations are needed, g^r' = u and H_Δ^r' = Z'; then Z' is *the* Z of this u whatever
//! the shares were, and every reader gets the same σ. A key-committing AEAD alone is not enough: a publisher knows
//! every u_j = h_j^r, so with one corrupt holder it picks a false u_i, and fits com, C and c_1 to what *that* set of
//! holders combines to. With t proved shares and the check still failing the publisher is at fault, and the outcome is
//! ⊥ for everybody ([`Combined::Bottom`]).

mod ciphertext;
mod combine;
mod key;
mod label;
mod misbehaving;
mod oracle;
mod share;

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod sckt;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

pub use ciphertext::{Checked, Ciphertext, DecodeError, Invalid, Labelled, Seen};
pub use combine::{Combined, Combiner};
pub use key::{KeyError, KeyShare, PublicKey, Sharing, deal, vouching};
pub use label::{Header, Label, LabelError, vector_hash};
pub use share::{BadShare, ProvedShare, Share, Verified};
