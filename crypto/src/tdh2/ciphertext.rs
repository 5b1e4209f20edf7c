//! Ciphertexts: made by a publisher, checked by everybody.

use std::fmt;
use std::ops::Deref;

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::key::PublicKey;
use super::label::Label;
use super::oracle::{CiphertextStatement, Full, Oracle};
use crate::aead::{Key, Suite, TAG_LEN};
use crate::group::{Base, Element, PrimeGroup, Relation, SecretScalar, Transcript, verify_batch};
use crate::secret::Secret;

/// c = (u, ū, w, w̄, f, c_1, com, C), in the form whose proof can be checked in batches; no other is legal.
///
/// ```text
/// u ‖ ū ‖ w ‖ w̄ ‖ f (32) ‖ c_1 (32) ‖ com (32) ‖ C        elements: 32 bytes (ristretto255), 33 (P-256)
/// ```
/// With ristretto255 224 + 16 bytes more than the message.
#[derive(Clone, PartialEq, Eq)]
pub struct Ciphertext<G: PrimeGroup> {
    pub(super) u: Element<G>,
    pub(super) u_bar: Element<G>,
    pub(super) w: Element<G>,
    pub(super) w_bar: Element<G>,
    pub(super) f: G::Scalar,
    /// c_1 = σ ⊕ H1(Z).
    pub(super) masked: [u8; 32],
    /// com.
    pub(super) commitment: [u8; 32],
    /// C: the message under the AEAD, with its tag.
    pub(super) body: Vec<u8>,
}

impl<G: PrimeGroup> Ciphertext<G> {
    /// Bytes beyond the message.
    pub const OVERHEAD: usize = 4 * G::POINT_LEN + 3 * 32 + TAG_LEN;

    /// Its bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::OVERHEAD + self.body.len());
        for element in [&self.u, &self.u_bar, &self.w, &self.w_bar] {
            bytes.extend_from_slice(element.bytes());
        }
        bytes.extend_from_slice(&G::scalar_bytes(&self.f));
        bytes.extend_from_slice(&self.masked);
        bytes.extend_from_slice(&self.commitment);
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Reads what [`Ciphertext::encode`] writes, and nothing else (S5).
    ///
    /// # Errors
    /// [`DecodeError`], by what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Ciphertext<G>, DecodeError> {
        if bytes.len() < Self::OVERHEAD {
            return Err(DecodeError::Length);
        }
        let (elements, rest) = bytes.split_at(4 * G::POINT_LEN);
        let mut elements = elements.chunks(G::POINT_LEN).map(|it| Element::decode(it).ok_or(DecodeError::Element));
        let mut element = || elements.next().expect("four elements were split off");
        let (u, u_bar, w, w_bar) = (element()?, element()?, element()?, element()?);
        let mut fixed = rest.chunks(32).map(|it| <[u8; 32]>::try_from(it).expect("the length is checked"));
        let mut part = || fixed.next().expect("the length is checked");
        Ok(Ciphertext {
            u,
            u_bar,
            w,
            w_bar,
            f: G::decode_scalar(&part()).ok_or(DecodeError::Scalar)?,
            masked: part(),
            commitment: part(),
            body: rest[3 * 32..].to_vec(),
        })
    }

    /// D = H("body"; com, C).
    fn body_hash(&self) -> [u8; 32] {
        body_hash::<G>(&self.commitment, &self.body)
    }
}

impl<G: PrimeGroup> fmt::Debug for Ciphertext<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ciphertext(u = {:?}, {} bytes)", self.u, self.body.len())
    }
}

/// A ciphertext with its label under one key: what there is to check, name and open.
#[derive(Clone, Debug)]
pub struct Labelled<G: PrimeGroup> {
    pub(super) ciphertext: Ciphertext<G>,
    /// L'.
    pub(super) label: [u8; 32],
    /// D.
    pub(super) body: [u8; 32],
    /// pkh0 of the key.
    pub(super) key: [u8; 32],
    /// ctid.
    id: [u8; 32],
}

impl<G: PrimeGroup> Labelled<G> {
    /// ctid: all of ciphertext, label and key in 32 bytes. Two ciphertexts of one id are the same.
    pub fn id(&self) -> &[u8; 32] {
        &self.id
    }

    /// The ciphertext.
    pub fn ciphertext(&self) -> &Ciphertext<G> {
        &self.ciphertext
    }

    /// log_g u = log_ḡ ū, as the ciphertext claims.
    pub(super) fn relation<O: Oracle<G>>(&self) -> Relation<G> {
        let it = &self.ciphertext;
        let challenge = O::ciphertext(&CiphertextStatement {
            key: &self.key,
            label: &self.label,
            masked: &it.masked,
            body: &self.body,
            body_len: it.body.len(),
            elements: [&it.u, &it.u_bar, &it.w, &it.w_bar],
        });
        Relation {
            bases: [Base::Fixed(G_AT), Base::Fixed(G_BAR_AT)],
            images: [Base::Free(*it.u.point()), Base::Free(*it.u_bar.point())],
            commitments: [*it.w.point(), *it.w_bar.point()],
            challenge,
            response: it.f,
        }
    }
}

/// A labelled ciphertext whose proof holds: what alone holders of key shares touch.
#[derive(Clone, Debug)]
pub struct Checked<G: PrimeGroup>(Labelled<G>);

impl<G: PrimeGroup> Deref for Checked<G> {
    type Target = Labelled<G>;

    fn deref(&self) -> &Labelled<G> {
        &self.0
    }
}

impl<G: PrimeGroup> Checked<G> {
    /// What is kept of it by whoever has no room for it.
    pub fn seen(&self) -> Seen {
        Seen(self.id)
    }
}

/// That a ciphertext was checked under one key, in 32 bytes. Only a [`Checked`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen([u8; 32]);

impl<G: PrimeGroup> PublicKey<G> {
    /// TEnc: seals a message to whom the label names. About two variable-base multiplications.
    pub fn encrypt(&self, label: &Label, message: &[u8], rng: &mut impl CryptoRng) -> Ciphertext<G> {
        loop {
            if let Some(ciphertext) = self.encrypt_with(&label.hash(), message, &Secret::random(rng)) {
                return ciphertext;
            }
        }
    }

    /// Derandomised twin, for vectors: σ and the nonce's randomness are the seed's halves, the label is L'. `None` for
    /// a seed that makes r or s zero, of which none is known.
    pub(crate) fn encrypt_with(&self, label: &[u8; 32], message: &[u8], seed: &Secret<64>) -> Option<Ciphertext<G>> {
        let (sigma, random) = seed.expose().split_at(32);
        let sigma: &[u8; 32] = sigma.try_into().expect("half of 64 bytes");
        // (k ‖ com) = SHA-512(T("dem"; pkh0, L', σ)); C = AEAD(k, 0, AAD = L', M); D = H("body"; com, C)
        let (key, commitment) = self.body_key(label, sigma);
        let mut body = Vec::with_capacity(message.len() + TAG_LEN);
        body.extend_from_slice(message);
        body.resize(message.len() + TAG_LEN, 0);
        key.seal(0, label, &mut body);
        let digest = body_hash::<G>(&commitment, &body);
        // r = HS("r"; pkh0, L', σ, D)
        let r = self.exponent(label, sigma, &digest)?;
        // s from σ, the statement and fresh randomness together (S17)
        let s = Transcript::<G>::secret("s").add(self.lasting_hash()).add(label).add(sigma).add(&digest).add(random);
        let s = SecretScalar::new(s.scalar())?;
        self.seal::<Full>(label, sigma, commitment, body, &digest, &r, &s)
    }

    /// The threshold part around a body: u … f and c_1, for given σ, r and s.
    #[expect(clippy::too_many_arguments, reason = "each is one symbol of the scheme")]
    pub(super) fn seal<O: Oracle<G>>(
        &self,
        label: &[u8; 32],
        sigma: &[u8; 32],
        commitment: [u8; 32],
        body: Vec<u8>,
        digest: &[u8; 32],
        r: &SecretScalar<G>,
        s: &SecretScalar<G>,
    ) -> Option<Ciphertext<G>> {
        // u = g^r, ū = ḡ^r, w = g^s, w̄ = ḡ^s, Z = H_Δ^r; by halves, which encode faster together
        let halves = Zeroizing::new([G::half(r.scalar()), G::half(s.scalar())]);
        let elements = Element::doubled([
            G::mul_base(&halves[0]),
            G::mul_table(&self.g_bar_table, &halves[0]),
            G::mul_base(&halves[1]),
            G::mul_table(&self.g_bar_table, &halves[1]),
            G::mul_table(&self.h_delta_table, &halves[0]),
        ])?;
        // Z opens the ciphertext, so it is erased.
        let elements = Zeroizing::new(elements);
        let [u, u_bar, w, w_bar, ref z] = *elements;
        // c_1 = σ ⊕ H1(Z)
        let mask = O::mask(self, &u, z);
        let masked: [u8; 32] = std::array::from_fn(|i| sigma[i] ^ mask.expose()[i]);
        // e = HS("H2"; …), f = s + re
        let e = O::ciphertext(&CiphertextStatement {
            key: self.lasting_hash(),
            label,
            masked: &masked,
            body: digest,
            body_len: body.len(),
            elements: [&u, &u_bar, &w, &w_bar],
        });
        let f = *s.scalar() + *r.scalar() * e;
        Some(Ciphertext { u, u_bar, w, w_bar, f, masked, commitment, body })
    }

    /// Binds a ciphertext to its label under this key: hashes both.
    pub fn bind(&self, ciphertext: Ciphertext<G>, label: &Label) -> Labelled<G> {
        self.bind_hash(ciphertext, &label.hash())
    }

    pub(crate) fn bind_hash(&self, ciphertext: Ciphertext<G>, label: &[u8; 32]) -> Labelled<G> {
        let body = ciphertext.body_hash();
        let it = &ciphertext;
        // ctid = SHA-256(T("ctid"; pkh0, L', c_1, com, D, pt(u), pt(ū), pt(w), pt(w̄), sc(f)))
        let id = Transcript::<G>::new("ctid")
            .add(self.lasting_hash())
            .add(label)
            .add(&it.masked)
            .add(&it.commitment)
            .add(&body)
            .elements([&it.u, &it.u_bar, &it.w, &it.w_bar])
            .add(&G::scalar_bytes(&it.f))
            .hash();
        Labelled { ciphertext, label: *label, body, key: *self.lasting_hash(), id }
    }

    /// Whether the ciphertext is well-formed: its publisher knew r, and sealed under this key and label. Exact and
    /// deterministic; everybody finds the same.
    ///
    /// # Errors
    /// [`Invalid`] if not; drop it, before it is ordered.
    pub fn check(&self, it: Labelled<G>) -> Result<Checked<G>, Invalid> {
        if it.key == *self.lasting_hash() && it.relation::<Full>().holds(&self.statics) {
            Ok(Checked(it))
        } else {
            Err(Invalid)
        }
    }

    /// [`PublicKey::check`] of what was checked before, by its hash instead of its proof.
    ///
    /// # Errors
    /// [`Invalid`] if it is not what was seen.
    pub fn check_again(&self, it: Labelled<G>, seen: Seen) -> Result<Checked<G>, Invalid> {
        if it.id == seen.0 { Ok(Checked(it)) } else { Err(Invalid) }
    }

    /// [`PublicKey::check`] of many at once, some two times faster from eight on. `rng` weighs the equations; draw it
    /// after the ciphertexts are there. Finds what `check` finds, but for one chance in 2¹²⁸ that all pass.
    pub fn check_batch(&self, batch: Vec<Labelled<G>>, rng: &mut impl CryptoRng) -> Vec<Result<Checked<G>, Invalid>> {
        let ours = |it: &Labelled<G>| (it.key == *self.lasting_hash()).then(|| it.relation::<Full>());
        let relations: Vec<_> = batch.iter().map(ours).collect();
        let holds = verify_batch(&relations, &self.statics, rng);
        batch.into_iter().zip(holds).map(|(it, holds)| if holds { Ok(Checked(it)) } else { Err(Invalid) }).collect()
    }

    /// (k ‖ com) = SHA-512(T("dem"; pkh0, L', σ)): the AEAD's key, used once, and its commitment.
    pub(super) fn body_key(&self, label: &[u8; 32], sigma: &[u8; 32]) -> (Key, [u8; 32]) {
        let both = Transcript::<G>::secret("dem").add(self.lasting_hash()).add(label).add(sigma).wide();
        let (key, commitment) = both.expose().split_at(32);
        let key = Secret::try_from(key).expect("half of 64 bytes");
        (Key::new(Suite::Aes256Gcm, &key), commitment.try_into().expect("half of 64 bytes"))
    }

    /// r = HS("r"; pkh0, L', σ, D).
    pub(super) fn exponent(&self, label: &[u8; 32], sigma: &[u8; 32], digest: &[u8; 32]) -> Option<SecretScalar<G>> {
        let r = Transcript::<G>::secret("r").add(self.lasting_hash()).add(label).add(sigma).add(digest);
        SecretScalar::new(r.scalar())
    }
}

pub(super) fn body_hash<G: PrimeGroup>(commitment: &[u8; 32], body: &[u8]) -> [u8; 32] {
    Transcript::<G>::new("body").add(commitment).hash_with(body)
}

/// Bytes that are no ciphertext or share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Too few or too many bytes.
    #[error("wrong length")]
    Length,
    /// An element that is not canonical, not in the group, or the identity.
    #[error("not an element of the group")]
    Element,
    /// A scalar that is not below q.
    #[error("not a scalar")]
    Scalar,
    /// Holder 0.
    #[error("there is no holder 0")]
    Index,
}

/// A ciphertext whose proof fails: not made for this key and label, or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ciphertext's proof does not hold for this key and label")]
pub struct Invalid;

/// Places among the key's statics.
pub(super) const G_AT: usize = 0;
const G_BAR_AT: usize = 1;
/// Place of h_i, less i.
pub(super) const SHARES_AT: usize = 1;
