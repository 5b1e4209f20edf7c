//! A function that t of n holders of key shares evaluate together, and whose value nobody knows before: the DDH coin of
//! C. Cachin, K. Kursawe, V. Shoup, J. Cryptology 18 (2005) 219–246, over a group of prime order.
//!
//! ```text
//! key      x_i = F(i), h_i = g^x_i, h = g^F(0), as in tdh2 but never the same (S28)
//! M        = HG("prf"; pkh0, input)                                    RFC 9380; log_g M must be unknown to all
//! evaluate y_i = M^x_i; û = M^s, ĥ = g^s; e = HS("prf-H3"; pkh, i, M, h_i, y_i, û, ĥ); f = s + x_i e
//! combine  y = SHA-512(T("prf-out"; pkh0, input, Π y_i^λ_i))          of t proved shares; the same for every set
//! ```
//! Unlike a decryption share's, nothing checks the result of unproved shares, so every share comes with its proof, and
//! [`PublicKey::combine`] takes verified ones only. Assumed: at most t − 1 corrupt holders; DDH, random oracles.
//!
//! A share says as much about the value as its sender knows of it: send shares over confidential channels where the
//! value is secret.

use std::fmt;

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::group::{
    Base, Coefficients, Committee, Element, Parameters, ParametersError, Polynomial, PrimeGroup, Relation,
    SecretScalar, SharesError, Transcript, verify_batch,
};
use crate::secret::Secret;
use crate::tdh2::{BadShare, DecodeError, KeyError};

/// h, h_1 … h_n. The parameters' Δ plays no part.
pub struct PublicKey<G: PrimeGroup> {
    committee: Committee<G>,
    /// pkh, of this sharing; pkh0, of the function.
    hash: [u8; 32],
    lasting_hash: [u8; 32],
    /// g, h_1 … h_n.
    statics: G::Statics,
}

/// x_i of the function.
pub struct KeyShare<G: PrimeGroup> {
    index: u16,
    x: SecretScalar<G>,
    h_i: Element<G>,
    key: [u8; 32],
    lasting_key: [u8; 32],
    hedge: Secret<32>,
}

/// An argument of the function, hashed into the group once.
#[derive(Clone, Debug)]
pub struct Input<G: PrimeGroup> {
    bytes: Vec<u8>,
    key: [u8; 32],
    /// M.
    point: Element<G>,
}

/// (i, y_i, û, ĥ, f): what one holder says, with its proof.
///
/// ```text
/// i u16 ‖ y_i ‖ û ‖ ĥ ‖ f (32)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share<G: PrimeGroup> {
    index: u16,
    y_i: Element<G>,
    m_hat: Element<G>,
    h_hat: Element<G>,
    f: G::Scalar,
}

/// A share whose proof holds, for one input and sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified<G: PrimeGroup> {
    share: Share<G>,
    key: [u8; 32],
    point: Element<G>,
}

/// The function's key by a trusted dealer, and x_1 … x_n for its holders.
///
/// # Errors
/// Parameters out of range.
pub fn deal<G: PrimeGroup>(
    parameters: Parameters,
    rng: &mut impl CryptoRng,
) -> Result<(PublicKey<G>, Vec<KeyShare<G>>), ParametersError> {
    parameters.validate()?;
    loop {
        let polynomial = Polynomial::<G>::random(parameters.threshold, rng);
        let secrets: Option<Vec<_>> = (1..=parameters.holders).map(|i| polynomial.at(i)).collect();
        let (Some(secrets), Some(whole)) = (secrets, polynomial.at(0)) else {
            continue;
        };
        let key = PublicKey::new(parameters, whole.public(), secrets.iter().map(SecretScalar::public).collect())?;
        let share = |(i, x): (u16, &SecretScalar<G>)| KeyShare::new(&key, i, &x.to_bytes()).expect("h_i is of x_i");
        let shares = (1..).zip(&secrets).map(share).collect();
        return Ok((key, shares));
    }
}

impl<G: PrimeGroup> PublicKey<G> {
    /// The key of a sharing made elsewhere.
    ///
    /// # Errors
    /// Parameters out of range, or h_i that are no sharing of h.
    pub fn new(
        parameters: Parameters,
        h: Element<G>,
        shares: Vec<Element<G>>,
    ) -> Result<PublicKey<G>, ParametersError> {
        let committee = Committee::new(parameters, h, shares)?;
        let parameters = &committee.parameters;
        let lasting_hash = Transcript::<G>::new("prf-pk0").add(&parameters.system).element(&h).hash();
        let hash = Transcript::<G>::new("prf-pk")
            .add(&lasting_hash)
            .add(&u32::from(parameters.holders).to_be_bytes())
            .add(&u32::from(parameters.threshold).to_be_bytes())
            .add(&parameters.epoch.to_be_bytes())
            .elements(&committee.shares)
            .hash();
        let known = [G::generator()].into_iter().chain(committee.shares.iter().map(|it| *it.point()));
        let statics = G::statics(&known.collect::<Vec<_>>());
        Ok(PublicKey { committee, hash, lasting_hash, statics })
    }

    /// n, t, epoch and the system's id.
    pub fn parameters(&self) -> &Parameters {
        &self.committee.parameters
    }

    /// M = HG("prf"; pkh0, input).
    pub fn input(&self, bytes: &[u8]) -> Input<G> {
        let point = Transcript::<G>::new("prf").add(&self.lasting_hash).add(bytes).to_element();
        Input { bytes: bytes.to_vec(), key: self.lasting_hash, point }
    }

    /// Whether the share is right: exact and deterministic.
    ///
    /// # Errors
    /// [`BadShare`], which names the holder.
    pub fn verify(&self, input: &Input<G>, share: &Share<G>) -> Result<Verified<G>, BadShare> {
        match self.relation(input, share) {
            Some(relation) if relation.holds(&self.statics) => Ok(self.verified(input, share)),
            _ => Err(BadShare(share.index)),
        }
    }

    /// [`PublicKey::verify`] of many at once; put those of one input next to each other. `rng` weighs the equations,
    /// after the shares are there.
    pub fn verify_batch(
        &self,
        batch: &[(&Input<G>, Share<G>)],
        rng: &mut impl CryptoRng,
    ) -> Vec<Result<Verified<G>, BadShare>> {
        let relations: Vec<_> = batch.iter().map(|(input, share)| self.relation(input, share)).collect();
        let holds = verify_batch(&relations, &self.statics, rng);
        let verify = |(holds, (input, share)): (bool, &(&Input<G>, Share<G>))| {
            if holds { Ok(self.verified(input, share)) } else { Err(BadShare(share.index)) }
        };
        holds.into_iter().zip(batch).map(verify).collect()
    }

    /// y: the function's value, from the t verified shares of lowest index.
    ///
    /// # Errors
    /// Shares that are not at least t different holders', or verified for something else.
    pub fn combine(&self, input: &Input<G>, shares: &[Verified<G>]) -> Result<Secret<64>, SharesError> {
        let foreign =
            |it: &&Verified<G>| it.key != self.hash || it.point != input.point || input.key != self.lasting_hash;
        if let Some(share) = shares.iter().find(foreign) {
            return Err(SharesError::Foreign(share.share.index));
        }
        let indices: Vec<u16> = shares.iter().map(|it| it.share.index).collect();
        let chosen = self.committee.choose(&indices)?;
        let (indices, points): (Vec<u16>, Vec<G::Point>) =
            chosen.iter().map(|(i, place)| (*i, *shares[*place].share.y_i.point())).unzip();
        // Π y_i^{λ_i}
        let whole = Coefficients::<G>::new(&indices, 1).combine(&points);
        let whole = Element::new(whole).expect("M^x: x is not 0, M not the identity, q prime");
        // y = SHA-512(T("prf-out"; pkh0, input, pt(Π y_i^λ_i)))
        Ok(Transcript::<G>::secret("prf-out").add(&self.lasting_hash).add(&input.bytes).element(&whole).wide())
    }

    /// log_g h_i = log_M y_i.
    fn relation(&self, input: &Input<G>, share: &Share<G>) -> Option<Relation<G>> {
        let h_i = self.committee.share_of(share.index)?;
        if input.key != self.lasting_hash {
            return None;
        }
        let Share { index, y_i, m_hat, h_hat, f } = share;
        Some(Relation {
            bases: [Base::Fixed(0), Base::Free(*input.point.point())],
            images: [Base::Fixed(usize::from(*index)), Base::Free(*y_i.point())],
            commitments: [*h_hat.point(), *m_hat.point()],
            challenge: challenge(&self.hash, *index, [&input.point, h_i, y_i, m_hat, h_hat]),
            response: *f,
        })
    }

    fn verified(&self, input: &Input<G>, share: &Share<G>) -> Verified<G> {
        Verified { share: *share, key: self.hash, point: input.point }
    }
}

impl<G: PrimeGroup> KeyShare<G> {
    /// Holder `index`'s share of this sharing, checked against h_i.
    ///
    /// # Errors
    /// There is no such holder, x is 0 or not below q, or g^x ≠ h_i.
    pub fn new(key: &PublicKey<G>, index: u16, x: &Secret<32>) -> Result<KeyShare<G>, KeyError> {
        let h_i = *key.committee.share_of(index).ok_or(KeyError::Index(index))?;
        let x = SecretScalar::from_bytes(x).filter(|x: &SecretScalar<G>| x.public() == h_i);
        let x = x.ok_or(KeyError::Mismatch(index))?;
        let hedge = Secret::from_bytes(Transcript::<G>::secret("prf-hedge").add(x.to_bytes().expose()).hash());
        Ok(KeyShare { index, x, h_i, key: key.hash, lasting_key: key.lasting_hash, hedge })
    }

    /// x_i, to be stored under lock and key.
    pub fn secret_bytes(&self) -> Secret<32> {
        self.x.to_bytes()
    }

    /// y_i = M^{x_i} with its proof; `None` for an input of another key.
    pub fn evaluate(&self, input: &Input<G>, rng: &mut impl CryptoRng) -> Option<Share<G>> {
        (input.key == self.lasting_key).then(|| self.evaluate_with(input, &Secret::random(rng)))
    }

    /// Derandomised twin, for vectors.
    fn evaluate_with(&self, input: &Input<G>, random: &Secret<32>) -> Share<G> {
        // s = HS("prf-nonce"; k_i, pkh, M, i, 32 random bytes)
        let nonce = Transcript::<G>::secret("prf-nonce")
            .add(self.hedge.expose())
            .add(&self.key)
            .element(&input.point)
            .add(&u32::from(self.index).to_be_bytes())
            .add(random.expose());
        let s = SecretScalar::<G>::new(nonce.scalar()).expect("no input is known that hashes to 0");
        let halves = Zeroizing::new([G::half(self.x.scalar()), G::half(s.scalar())]);
        let point = input.point.point();
        let [y_i, m_hat, h_hat] =
            Element::doubled([G::mul(point, &halves[0]), G::mul(point, &halves[1]), G::mul_base(&halves[1])])
                .expect("neither exponent is 0, M is not the identity, q prime");
        let e = challenge(&self.key, self.index, [&input.point, &self.h_i, &y_i, &m_hat, &h_hat]);
        Share { index: self.index, y_i, m_hat, h_hat, f: *s.scalar() + *self.x.scalar() * e }
    }
}

/// e = HS("prf-H3"; pkh, i, M, h_i, y_i, û, ĥ).
fn challenge<G: PrimeGroup>(key: &[u8; 32], index: u16, elements: [&Element<G>; 5]) -> G::Scalar {
    Transcript::<G>::new("prf-H3").add(key).add(&u32::from(index).to_be_bytes()).elements(elements).scalar()
}

impl<G: PrimeGroup> Share<G> {
    /// Bytes on the wire.
    pub const LEN: usize = 2 + 3 * G::POINT_LEN + 32;

    /// i.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Its bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let f = G::scalar_bytes(&self.f);
        [&self.index.to_be_bytes(), self.y_i.bytes(), self.m_hat.bytes(), self.h_hat.bytes(), &f].concat()
    }

    /// Reads what [`Share::encode`] writes, and nothing else.
    ///
    /// # Errors
    /// [`DecodeError`], by what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Share<G>, DecodeError> {
        if bytes.len() != Self::LEN {
            return Err(DecodeError::Length);
        }
        let (index, rest) = bytes.split_first_chunk().expect("the length is checked");
        let (elements, f) = rest.split_at(3 * G::POINT_LEN);
        let element =
            |k: usize| Element::decode(&elements[k * G::POINT_LEN..(k + 1) * G::POINT_LEN]).ok_or(DecodeError::Element);
        let index = u16::from_be_bytes(*index);
        if index == 0 {
            return Err(DecodeError::Index);
        }
        Ok(Share {
            index,
            y_i: element(0)?,
            m_hat: element(1)?,
            h_hat: element(2)?,
            f: G::decode_scalar(f.try_into().expect("the length is checked")).ok_or(DecodeError::Scalar)?,
        })
    }
}

impl<G: PrimeGroup> fmt::Debug for KeyShare<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyShare({}, <redacted>)", self.index)
    }
}

impl<G: PrimeGroup> fmt::Debug for PublicKey<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("parameters", self.parameters()).field("h", &self.committee.h).finish()
    }
}

#[cfg(test)]
mod tests;
