//! Pair keys from a centre, by symmetric means alone: Leighton and Micali, as corrected.
//!
//! Source: Leighton and Micali, "Secret-key agreement without public-key cryptography", CRYPTO '93; its use in LSGC
//! (McDaniel, Honeyman and Prakash, 1998, Fig. 2), which dropped the authenticator. A centre holds two master keys; each
//! principal holds two long-term keys that it made of them. To talk to `j`, `i` asks the centre:
//!
//! ```text
//! X_i = PRF(MK, "x", i)      A_i = PRF(MK', "a", i)                       long-term keys: to exchange, to prove
//! i ─▶ centre:  i, j, n, PRF(A_i, "ask", i, j, n)
//! centre ─▶ i:  s, n, π, α     σ = PRF(X_j, "key", i, j, s)               the pair key, i to j
//!                              π = PRF(X_i, "mask", i, j, s) ⊕ σ
//!                              α = PRF(A_i, "answer", i, j, s, n, π, PRF(σ, "kc"), note)
//! i ─▶ j:       i, s          j computes σ by itself
//! ```
//! A principal is the hash of its registration, so that both learn from σ itself that the centre knows the other's
//! registration as it was shown: who shows another one has another σ.
//!
//! | weakness of LSGC's use (research: LSGC 1.7, tcrypto 4.1) | here |
//! |---|---|
//! | the centre encrypts a block of anybody's choice under K_SL (1) | it answers who proves to be `i`; labels keep uses apart |
//! | π is bound to nothing and malleable (2) | α covers it with both names, nonce and salt |
//! | σ is one for ever for each pair (3) | the centre draws a salt for each |
//! | DES, MD5 (8, 9) | HMAC-SHA256 and 256-bit keys |

use aws_lc_rs::hmac;
use rand_core::CryptoRng;

use crate::kdf::hkdf;
use crate::secret::Secret;

/// Who has long-term keys: SHA-256 of its registration.
pub type Principal = [u8; 32];

/// The centre's two master keys.
pub struct Master {
    exchange: hmac::Key,
    authentication: hmac::Key,
}

/// A principal's two long-term keys.
#[derive(Clone)]
pub struct LongTerm {
    /// X: makes pair keys, and unmasks what the centre gives.
    pub exchange: Secret<32>,
    /// A: proves to the centre who asks, and to who asked that the centre answers.
    pub authentication: Secret<32>,
}

/// What `from` asks the centre for: a key to talk to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Who asks.
    pub from: Principal,
    /// Whom it will talk to.
    pub to: Principal,
    /// Tells its question from all others of the same two.
    pub nonce: [u8; 16],
}

/// What the centre answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Of this pair key; `to` computes the key from it.
    pub salt: [u8; 16],
    /// The pair key, masked.
    pub masked: [u8; 32],
    /// α.
    pub proof: [u8; 32],
}

/// The key that a pair shares, in the direction from who asked to the other one.
pub type PairSecret = Secret<32>;

/// It was not made by who shares the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("authentication failed")]
pub struct Forged;

impl Master {
    /// The master keys of a centre, both made of its one secret.
    pub fn new(secret: &Secret<32>) -> Master {
        let key = |label: &[u8]| hmac_key(&hkdf::<32>(secret.expose(), b"", &[b"sealcast/v1/lm/master", label]));
        Master { exchange: key(b"x"), authentication: key(b"a") }
    }

    /// A principal's long-term keys.
    pub fn long_term(&self, of: &Principal) -> LongTerm {
        let authentication = Secret::from_bytes(prf(&self.authentication, "sealcast/v1/lm/a", &[of]));
        LongTerm { exchange: self.exchange_of(of), authentication }
    }

    fn exchange_of(&self, of: &Principal) -> Secret<32> {
        Secret::from_bytes(prf(&self.exchange, "sealcast/v1/lm/x", &[of]))
    }

    /// Makes a pair key for who asked, whose keys are `from`; `note` is said along with it, and nobody can change it.
    pub fn grant(&self, pair: &Pair, from: &LongTerm, note: &[u8], rng: &mut impl CryptoRng) -> Granted {
        let mut salt = [0; 16];
        rng.fill_bytes(&mut salt);
        let key = pair_key(&self.exchange_of(&pair.to), &pair.from, &pair.to, &salt);
        let mut masked = *key.expose();
        masked.iter_mut().zip(from.mask(pair, &salt).expose()).for_each(|(byte, mask)| *byte ^= mask);
        let proof = prf(&hmac_key(&from.authentication), ANSWER, &answer(pair, &salt, &masked, &confirms(&key), note));
        Granted { salt, masked, proof }
    }
}

impl LongTerm {
    /// Unmasks what the centre answered to our question.
    ///
    /// # Errors
    /// [`Forged`] if it is not the centre's answer to this very question with this very note.
    pub fn unmask(&self, pair: &Pair, granted: &Granted, note: &[u8]) -> Result<PairSecret, Forged> {
        let mut key = *self.mask(pair, &granted.salt).expose();
        key.iter_mut().zip(granted.masked).for_each(|(byte, masked)| *byte ^= masked);
        let key = Secret::from_bytes(key);
        let confirms = confirms(&key);
        let parts = answer(pair, &granted.salt, &granted.masked, &confirms, note);
        verify(&self.authentication, ANSWER, &parts, &granted.proof)?;
        Ok(key)
    }

    /// The key of a pair in which we, `to`, are talked to.
    pub fn receives(&self, from: &Principal, to: &Principal, salt: &[u8; 16]) -> PairSecret {
        pair_key(&self.exchange, from, to, salt)
    }

    fn mask(&self, pair: &Pair, salt: &[u8; 16]) -> Secret<32> {
        Secret::from_bytes(prf(&hmac_key(&self.exchange), "sealcast/v1/lm/mask", &[&pair.from, &pair.to, salt]))
    }
}

fn pair_key(exchange: &Secret<32>, from: &Principal, to: &Principal, salt: &[u8; 16]) -> PairSecret {
    Secret::from_bytes(prf(&hmac_key(exchange), "sealcast/v1/lm/key", &[from, to, salt]))
}

/// A tag of 32 bytes that only holders of `key` make: HMAC-SHA256 of a label and parts, each behind its 64-bit length.
pub fn tag(key: &Secret<32>, label: &str, parts: &[&[u8]]) -> [u8; 32] {
    prf(&hmac_key(key), label, parts)
}

/// Checks what [`tag`] made, or its first bytes, 16 of them at least; in constant time.
///
/// # Errors
/// [`Forged`].
pub fn verify(key: &Secret<32>, label: &str, parts: &[&[u8]], said: &[u8]) -> Result<(), Forged> {
    use subtle::ConstantTimeEq as _;
    let made = tag(key, label, parts);
    let is_long = (16..=32).contains(&said.len());
    if is_long && bool::from(made[..said.len()].ct_eq(said)) { Ok(()) } else { Err(Forged) }
}

fn confirms(key: &PairSecret) -> [u8; 32] {
    prf(&hmac_key(key), "sealcast/v1/lm/kc", &[])
}

fn answer<'a>(
    pair: &'a Pair,
    salt: &'a [u8; 16],
    masked: &'a [u8; 32],
    confirms: &'a [u8; 32],
    note: &'a [u8],
) -> [&'a [u8]; 7] {
    [&pair.from, &pair.to, salt, &pair.nonce, masked, confirms, note]
}

fn hmac_key(key: &Secret<32>) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.expose())
}

/// The PRF: label and parts go in behind their lengths (G3).
fn prf(key: &hmac::Key, label: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(key);
    for part in [label.as_bytes()].into_iter().chain(parts.iter().copied()) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.sign().as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
}

const ANSWER: &str = "sealcast/v1/lm/answer";

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;

    use super::*;

    const LEADER: Principal = [1; 32];
    const ALICE: Principal = [2; 32];
    const MALLORY: Principal = [3; 32];
    const PAIR: Pair = Pair { from: LEADER, to: ALICE, nonce: [9; 16] };

    fn master() -> Master {
        Master::new(&Secret::from_bytes([7; 32]))
    }

    fn rng() -> ChaCha20Rng {
        ChaCha20Rng::seed_from_u64(1)
    }

    #[test]
    fn both_of_a_pair_come_to_one_key_and_only_one_of_them_asked() {
        let granted = master().grant(&PAIR, &master().long_term(&PAIR.from), b"7", &mut rng());
        let leader = master().long_term(&LEADER).unmask(&PAIR, &granted, b"7").unwrap();
        assert_eq!(leader, master().long_term(&ALICE).receives(&LEADER, &ALICE, &granted.salt));
    }

    #[test]
    fn rule_g3_who_shows_another_registration_has_another_key() {
        let granted = master().grant(&PAIR, &master().long_term(&PAIR.from), b"", &mut rng());
        let alice = master().long_term(&ALICE);
        let key = alice.receives(&LEADER, &ALICE, &granted.salt);
        assert_ne!(key, alice.receives(&MALLORY, &ALICE, &granted.salt));
        assert_ne!(key, alice.receives(&LEADER, &MALLORY, &granted.salt));
        assert_ne!(key, alice.receives(&LEADER, &ALICE, &[0; 16]));
        assert_ne!(key, master().long_term(&LEADER).receives(&ALICE, &LEADER, &granted.salt), "one for each direction");
    }

    /// LSGC, weakness 2: the masked key was malleable, and an old one could stand beside a fresh nonce.
    #[test]
    fn lsgc_w2_an_answer_that_was_changed_swapped_or_is_an_old_one_is_refused() {
        let (master, mut rng) = (master(), rng());
        let leader = master.long_term(&LEADER);
        let granted = master.grant(&PAIR, &master.long_term(&PAIR.from), b"7", &mut rng);
        for bit in 0..256 {
            let mut other = granted;
            other.masked[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(leader.unmask(&PAIR, &other, b"7"), Err(Forged));
        }
        assert_eq!(leader.unmask(&PAIR, &Granted { salt: [0; 16], ..granted }, b"7"), Err(Forged));
        assert_eq!(leader.unmask(&PAIR, &granted, b"8"), Err(Forged), "what is said along with it");
        assert_eq!(leader.unmask(&Pair { nonce: [8; 16], ..PAIR }, &granted, b"7"), Err(Forged), "an old answer");
        assert_eq!(leader.unmask(&Pair { to: MALLORY, ..PAIR }, &granted, b"7"), Err(Forged), "for another one");
        let of_mallory = master.grant(&Pair { to: MALLORY, ..PAIR }, &master.long_term(&PAIR.from), b"7", &mut rng);
        assert_eq!(leader.unmask(&PAIR, &of_mallory, b"7"), Err(Forged));
        // An insider who knows the mask of its own pair learns nothing of another's, which has its own salt.
        let masks = [granted, of_mallory].map(|it| it.salt);
        assert_ne!(masks[0], masks[1]);
    }

    /// LSGC, weaknesses 1 and 1b: nonces of an outsider's choice were encrypted under the keys that protect everything else,
    /// so that two questions gave away a pair key. Here no label is shared, whatever the nonce says.
    #[test]
    fn lsgc_w1_no_nonce_makes_the_centre_or_a_leader_compute_another_ones_value() {
        let (master, mut rng) = (master(), rng());
        let alice = master.long_term(&ALICE);
        let key = alice.receives(&LEADER, &ALICE, &[5; 16]);
        let asked = Pair { from: ALICE, to: LEADER, nonce: LEADER[..16].try_into().unwrap() };
        let granted = master.grant(&asked, &master.long_term(&asked.from), b"", &mut rng);
        assert_ne!((&granted.masked, &granted.proof), (key.expose(), key.expose()));
        assert_ne!(tag(&alice.exchange, "sealcast/v1/lm/ask", &[&LEADER, &ALICE, &[5; 16]]), *key.expose());
        assert_ne!(alice.authentication, alice.exchange);
    }

    /// LSGC, weakness 3: a pair had one key for good. Here who steals one has nothing of the pair's other sessions.
    #[test]
    fn lsgc_w3_a_stolen_pair_key_is_none_of_the_pairs_other_ones() {
        let (master, mut rng) = (master(), rng());
        let leader = master.long_term(&LEADER);
        let mut keys = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let granted = master.grant(&PAIR, &leader, b"", &mut rng);
            keys.insert(*leader.unmask(&PAIR, &granted, b"").unwrap().expose());
        }
        assert_eq!(keys.len(), 20, "the very same question brings another key each time");
    }

    #[test]
    fn a_tag_is_of_its_key_label_and_parts_and_has_16_bytes_at_least() {
        let key = Secret::from_bytes([4; 32]);
        let made = tag(&key, "a", &[b"bc", b"d"]);
        assert_eq!(verify(&key, "a", &[b"bc", b"d"], &made[..16]), Ok(()));
        assert_eq!(verify(&key, "a", &[b"b", b"cd"], &made), Err(Forged));
        assert_eq!(verify(&key, "ab", &[b"c", b"d"], &made), Err(Forged));
        assert_eq!(verify(&key, "a", &[b"bc", b"d"], &made[..15]), Err(Forged));
        assert_eq!(verify(&key, "a", &[b"bc", b"d"], &[]), Err(Forged));
        assert_eq!(verify(&Secret::from_bytes([5; 32]), "a", &[b"bc", b"d"], &made), Err(Forged));
    }

    /// Golden values: a peer is written from `docs/WIRE.md`, and these are its check.
    #[test]
    fn rule_g9_the_values_of_this_version_do_not_change() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let alice = master().long_term(&ALICE);
        let granted = master().grant(&PAIR, &master().long_term(&PAIR.from), b"7", &mut rng());
        let key = alice.receives(&LEADER, &ALICE, &granted.salt);
        let made = [&alice.exchange.expose()[..8], &alice.authentication.expose()[..8], &granted.salt[..8]];
        let more = [&granted.masked[..8], &granted.proof[..8], &key.expose()[..8]];
        let all: Vec<String> = made.iter().chain(&more).map(|it| hex(it)).collect();
        assert_eq!(
            all.join(" "),
            "203c37519ef3b8ff c8c75cb5521bc679 9a3744504560639e 6a9fd55493a7a528 bb75adfb9e8cdad0 be9de76cb018a91e"
        );
    }
}
