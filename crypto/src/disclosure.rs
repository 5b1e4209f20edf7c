//! Sealing to a key of the group, so that the receiver can prove to everybody what was sealed to it.
//!
//! Two pairs (x, X = g^x) and (y, Y = g^y) have Z = g^xy in common, and seal under a key derived from Z. The receiver
//! *discloses* a message by publishing Z with a proof that log_g Y = log_X Z (Chaum–Pedersen): Z is then the only right
//! one, everybody derives the same key and reads the same message, or sees the same failure.
//!
//! HPKE over X25519 cannot do this here: its private keys are clamped numbers and its public keys x-coordinates, which
//! no library multiplies and adds as a group of prime order; a proof would need a second arithmetic of the same curve.
//! So the group of the sharing itself is used, whose proofs are there already.
//!
//! A disclosed Z is an answer of the receiver's secret to a sender's X. A sender that copied X of somebody else's
//! message could so have that one opened too; therefore X comes with a proof that its sender knows x ([`Knowledge`],
//! bound to a context that names the sender), and who knows x knows Z without being told.
//!
//! Nonces of proofs are derived from the secret and the whole statement, without fresh randomness: the same proof
//! comes out again when a crashed process says it a second time.

use std::fmt;

use zeroize::Zeroizing;

use crate::aead;
use crate::group::{Base, Element, PrimeGroup, Relation, SecretElement, SecretScalar, Transcript};
use crate::secret::Secret;

/// A secret x with X = g^x: of a sender for one occasion, or of a receiver.
pub struct Pair<G: PrimeGroup> {
    secret: SecretScalar<G>,
    public: Element<G>,
}

impl<G: PrimeGroup> Pair<G> {
    /// The pair of a secret.
    pub fn new(secret: SecretScalar<G>) -> Pair<G> {
        let public = secret.public();
        Pair { secret, public }
    }

    /// X.
    pub fn public(&self) -> &Element<G> {
        &self.public
    }

    /// Seals for `to`: as many bytes and a tag. One plaintext for each pair of keys and context: the nonce is constant.
    pub fn seal(&self, to: &Element<G>, context: &[u8], plaintext: &[u8]) -> Vec<u8> {
        let key = sealing_key(self.shared(to).expose(), &self.public, to, context);
        let mut sealed = plaintext.to_vec();
        sealed.resize(plaintext.len() + aead::TAG_LEN, 0);
        key.seal(0, context, &mut sealed);
        sealed
    }

    /// Opens what the holder of `from` sealed for us in this context.
    ///
    /// # Errors
    /// [`OpenError`] if it did not.
    pub fn open(&self, from: &Element<G>, context: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        open(self.shared(from).expose(), from, &self.public, context, sealed)
    }

    /// Proves that we know x.
    pub fn know(&self, context: &[u8]) -> Knowledge<G> {
        // k = HS("knowledge nonce"; x, X, context), R = g^k, e = HS("knowledge"; context, X, R), f = k + xe
        let k = self.nonce(Transcript::secret("knowledge nonce"), &[self.public], context);
        let commitment = k.public();
        let e = Knowledge::challenge(&self.public, &commitment, context);
        Knowledge { commitment, response: *k.scalar() + *self.secret.scalar() * e }
    }

    /// Z for `from`, with its proof: what lets everybody open what the holder of `from` sealed for us.
    pub fn disclose(&self, from: &Element<G>, context: &[u8]) -> Disclosure<G> {
        // From here on it is public.
        let shared = *self.shared(from).expose();
        // k = HS("disclosure nonce"; x, …); a = g^k, b = from^k; e = HS("disclosure"; …), f = k + xe
        let k = self.nonce(Transcript::secret("disclosure nonce"), &[*from, shared], context);
        let commitments = [k.public(), product(from, &k)];
        let e = Disclosure::challenge(from, &self.public, &shared, &commitments, context);
        Disclosure { shared, commitments, response: *k.scalar() + *self.secret.scalar() * e }
    }

    /// Z, by which what is sealed between the two can be opened.
    fn shared(&self, with: &Element<G>) -> SecretElement<G> {
        SecretElement::of(product(with, &self.secret))
    }

    fn nonce(&self, transcript: Transcript<G>, of: &[Element<G>], context: &[u8]) -> SecretScalar<G> {
        let transcript = transcript.add(self.secret.to_bytes().expose()).elements(of).add(context);
        SecretScalar::new(transcript.scalar()).expect("no input is known that hashes to 0")
    }
}

impl<G: PrimeGroup> fmt::Debug for Pair<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pair({:?}, <redacted>)", self.public)
    }
}

/// A proof that somebody knows the logarithm of X (Schnorr), in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knowledge<G: PrimeGroup> {
    commitment: Element<G>,
    response: G::Scalar,
}

impl<G: PrimeGroup> Knowledge<G> {
    /// Whether it is one.
    pub fn holds(&self, public: &Element<G>, context: &[u8]) -> bool {
        // g^f = R X^e
        let e = Self::challenge(public, &self.commitment, context);
        G::mul_base(&self.response) == *self.commitment.point() + G::mul(public.point(), &e)
    }

    /// R ‖ f, [`knowledge_len`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.commitment.bytes(), &G::scalar_bytes(&self.response)].concat()
    }

    /// Reads what [`Knowledge::to_bytes`] wrote; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Knowledge<G>> {
        let (commitment, response) = bytes.split_at_checked(G::POINT_LEN)?;
        Some(Knowledge { commitment: Element::decode(commitment)?, response: scalar::<G>(response)? })
    }

    fn challenge(public: &Element<G>, commitment: &Element<G>, context: &[u8]) -> G::Scalar {
        Transcript::<G>::new("knowledge").add(context).element(public).element(commitment).scalar()
    }
}

/// Z of a sender and a receiver, proved by the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disclosure<G: PrimeGroup> {
    shared: Element<G>,
    commitments: [Element<G>; 2],
    response: G::Scalar,
}

impl<G: PrimeGroup> Disclosure<G> {
    /// Whether Z is that of `from` and `to`: exactly and deterministically.
    pub fn holds(&self, from: &Element<G>, to: &Element<G>, context: &[u8]) -> bool {
        let [a, b] = self.commitments;
        let relation = Relation::<G> {
            bases: [Base::Free(G::generator()), Base::Free(*from.point())],
            images: [Base::Free(*to.point()), Base::Free(*self.shared.point())],
            commitments: [*a.point(), *b.point()],
            challenge: Self::challenge(from, to, &self.shared, &self.commitments, context),
            response: self.response,
        };
        relation.holds(&G::statics(&[]))
    }

    /// What `from` sealed for `to` in this context. Meaningful only if the disclosure [`holds`](Disclosure::holds).
    ///
    /// # Errors
    /// [`OpenError`]: then the receiver could not open it either.
    pub fn open(
        &self,
        from: &Element<G>,
        to: &Element<G>,
        context: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        open(&self.shared, from, to, context, sealed)
    }

    /// Z ‖ a ‖ b ‖ f, [`disclosure_len`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let [a, b] = &self.commitments;
        [self.shared.bytes(), a.bytes(), b.bytes(), &G::scalar_bytes(&self.response)].concat()
    }

    /// Reads what [`Disclosure::to_bytes`] wrote; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Disclosure<G>> {
        let (points, response) = bytes.split_at_checked(3 * G::POINT_LEN)?;
        let at = |i: usize| Element::decode(&points[i * G::POINT_LEN..(i + 1) * G::POINT_LEN]);
        Some(Disclosure { shared: at(0)?, commitments: [at(1)?, at(2)?], response: scalar::<G>(response)? })
    }

    fn challenge(
        from: &Element<G>,
        to: &Element<G>,
        shared: &Element<G>,
        commitments: &[Element<G>],
        context: &[u8],
    ) -> G::Scalar {
        let transcript = Transcript::<G>::new("disclosure").add(context).element(from).element(to).element(shared);
        transcript.elements(commitments).scalar()
    }
}

/// The sealed bytes were not made by this sender for this receiver and context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sealed by this key for that one")]
pub struct OpenError;

/// Bytes of an encoded [`Knowledge`].
pub const fn knowledge_len<G: PrimeGroup>() -> usize {
    G::POINT_LEN + 32
}

/// Bytes of an encoded [`Disclosure`].
pub const fn disclosure_len<G: PrimeGroup>() -> usize {
    3 * G::POINT_LEN + 32
}

fn open<G: PrimeGroup>(
    shared: &Element<G>,
    from: &Element<G>,
    to: &Element<G>,
    context: &[u8],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let mut buffer = Zeroizing::new(sealed.to_vec());
    let opened = sealing_key(shared, from, to, context).open(0, context, &mut buffer).map_err(|_| OpenError)?.len();
    buffer.truncate(opened);
    Ok(buffer)
}

/// The first half of H("seal"; context, X, Y, Z).
fn sealing_key<G: PrimeGroup>(shared: &Element<G>, from: &Element<G>, to: &Element<G>, context: &[u8]) -> aead::Key {
    let wide = Transcript::<G>::secret("seal").add(context).element(from).element(to).element(shared).wide();
    let key = Secret::filled(|key: &mut [u8; 32]| key.copy_from_slice(&wide.expose()[..32]));
    aead::Key::new(aead::Suite::Aes256Gcm, &key)
}

fn product<G: PrimeGroup>(element: &Element<G>, secret: &SecretScalar<G>) -> Element<G> {
    Element::new(G::mul(element.point(), secret.scalar())).expect("neither is neutral and q is prime")
}

fn scalar<G: PrimeGroup>(bytes: &[u8]) -> Option<G::Scalar> {
    G::decode_scalar(bytes.try_into().ok()?)
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;
    use crate::group::in_both_suites;

    fn pair<G: PrimeGroup>(seed: u64) -> Pair<G> {
        Pair::new(SecretScalar::random(&mut ChaCha20Rng::seed_from_u64(seed)))
    }

    in_both_suites! {
        fn what_is_sealed_opens_for_its_receiver_and_context_alone = opens;
        fn rule_e8_everybody_reads_what_a_receiver_discloses = disclosed;
        fn rule_e8_nobody_proves_another_z = no_other_z;
        fn knowledge_is_of_one_key_in_one_context = knowledge;
        fn nothing_but_what_was_written_is_read = bytes;
    }

    fn opens<G: PrimeGroup>() {
        let (sender, receiver, other) = (pair::<G>(1), pair::<G>(2), pair::<G>(3));
        let sealed = sender.seal(receiver.public(), b"context", b"a share");
        assert_eq!(sealed.len(), 7 + aead::TAG_LEN);
        assert_eq!(receiver.open(sender.public(), b"context", &sealed).unwrap().as_slice(), b"a share");
        assert_eq!(receiver.open(sender.public(), b"another", &sealed), Err(OpenError));
        assert_eq!(receiver.open(other.public(), b"context", &sealed), Err(OpenError));
        assert_eq!(other.open(sender.public(), b"context", &sealed), Err(OpenError));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(receiver.open(sender.public(), b"context", &changed), Err(OpenError), "byte {at}");
            assert_eq!(receiver.open(sender.public(), b"context", &sealed[..at]), Err(OpenError), "first {at} bytes");
        }
    }

    fn disclosed<G: PrimeGroup>() {
        let (sender, receiver) = (pair::<G>(1), pair::<G>(2));
        let sealed = sender.seal(receiver.public(), b"c", b"a share");
        let shown = receiver.disclose(sender.public(), b"c");
        assert!(shown.holds(sender.public(), receiver.public(), b"c"));
        let opened = shown.open(sender.public(), receiver.public(), b"c", &sealed);
        assert_eq!(opened.unwrap().as_slice(), b"a share");
        assert_eq!(shown, receiver.disclose(sender.public(), b"c"), "said again, the proof is the same");
    }

    fn no_other_z<G: PrimeGroup>() {
        let (sender, receiver, other) = (pair::<G>(1), pair::<G>(2), pair::<G>(3));
        let shown = receiver.disclose(sender.public(), b"c");
        assert!(!shown.holds(sender.public(), receiver.public(), b"d"), "another context");
        assert!(!shown.holds(other.public(), receiver.public(), b"c"), "another sender");
        assert!(!shown.holds(sender.public(), other.public(), b"c"), "another receiver");
        let lie = Disclosure { shared: *other.public(), ..shown };
        assert!(!lie.holds(sender.public(), receiver.public(), b"c"), "another Z");
        let lie = Disclosure { response: shown.response + G::Scalar::from(1), ..shown };
        assert!(!lie.holds(sender.public(), receiver.public(), b"c"), "another answer");
    }

    fn knowledge<G: PrimeGroup>() {
        let (x, y) = (pair::<G>(1), pair::<G>(2));
        let proof = x.know(b"broker 3");
        assert!(proof.holds(x.public(), b"broker 3"));
        assert!(!proof.holds(x.public(), b"broker 4"), "copied by another");
        assert!(!proof.holds(y.public(), b"broker 3"));
        let lie = Knowledge { response: proof.response + G::Scalar::from(1), ..proof };
        assert!(!lie.holds(x.public(), b"broker 3"));
    }

    fn bytes<G: PrimeGroup>() {
        let (x, y) = (pair::<G>(1), pair::<G>(2));
        let (known, shown) = (x.know(b"c").to_bytes(), x.disclose(y.public(), b"c").to_bytes());
        assert_eq!((known.len(), shown.len()), (knowledge_len::<G>(), disclosure_len::<G>()));
        assert_eq!(Knowledge::<G>::from_bytes(&known), Some(x.know(b"c")));
        assert_eq!(Disclosure::<G>::from_bytes(&shown), Some(x.disclose(y.public(), b"c")));
        for n in 0..known.len() {
            assert_eq!(Knowledge::<G>::from_bytes(&known[..n]), None);
        }
        for n in 0..shown.len() {
            assert_eq!(Disclosure::<G>::from_bytes(&shown[..n]), None);
        }
        assert_eq!(Knowledge::<G>::from_bytes(&[known, vec![0]].concat()), None);
        assert_eq!(Disclosure::<G>::from_bytes(&[shown, vec![0]].concat()), None);
    }
}
