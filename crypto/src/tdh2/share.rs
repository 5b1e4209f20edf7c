//! Decryption shares: plain, for channels on which their sender is known, and proved, on complaint.

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::ciphertext::{Checked, DecodeError, G_AT, Invalid, Labelled, SHARES_AT};
use super::key::{KeyShare, PublicKey};
use super::oracle::{Full, Oracle, ShareStatement};
use crate::group::{Base, Element, PrimeGroup, Relation, SecretScalar, Transcript, verify_batch};
use crate::secret::Secret;

/// (i, u_i), unproved: believed only as far as what it combines to checks out.
///
/// ```text
/// i u16 ‖ u_i
/// ```
/// Whoever has t of them reads the message: send it sealed to its reader, and only of an ordered ciphertext whose
/// policy admits that reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share<G: PrimeGroup> {
    pub(super) index: u16,
    pub(super) u_i: Element<G>,
}

impl<G: PrimeGroup> Share<G> {
    /// Bytes on the wire.
    pub const LEN: usize = 2 + G::POINT_LEN;

    /// i.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Its bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        [&self.index.to_be_bytes(), self.u_i.bytes()].concat()
    }

    /// Reads what [`Share::encode`] writes, and nothing else.
    ///
    /// # Errors
    /// [`DecodeError`], by what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Share<G>, DecodeError> {
        let (index, u_i) = bytes.split_first_chunk().ok_or(DecodeError::Length)?;
        if bytes.len() != Self::LEN {
            return Err(DecodeError::Length);
        }
        let index = u16::from_be_bytes(*index);
        if index == 0 {
            return Err(DecodeError::Index);
        }
        Ok(Share { index, u_i: Element::decode(u_i).ok_or(DecodeError::Element)? })
    }
}

/// (i, u_i, û, ĥ, f_i): a share with the proof that it is right.
///
/// ```text
/// i u16 ‖ u_i ‖ û ‖ ĥ ‖ f_i (32)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvedShare<G: PrimeGroup> {
    pub(super) share: Share<G>,
    pub(super) u_hat: Element<G>,
    pub(super) h_hat: Element<G>,
    pub(super) f: G::Scalar,
}

impl<G: PrimeGroup> ProvedShare<G> {
    /// Bytes on the wire.
    pub const LEN: usize = 2 + 3 * G::POINT_LEN + 32;

    /// The share without its proof.
    pub fn share(&self) -> &Share<G> {
        &self.share
    }

    /// Its bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let f = G::scalar_bytes(&self.f);
        [&self.share.encode(), self.u_hat.bytes(), self.h_hat.bytes(), &f].concat()
    }

    /// Reads what [`ProvedShare::encode`] writes, and nothing else.
    ///
    /// # Errors
    /// [`DecodeError`], by what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<ProvedShare<G>, DecodeError> {
        if bytes.len() != Self::LEN {
            return Err(DecodeError::Length);
        }
        let (share, rest) = bytes.split_at(Share::<G>::LEN);
        let (u_hat, rest) = rest.split_at(G::POINT_LEN);
        let (h_hat, f) = rest.split_at(G::POINT_LEN);
        Ok(ProvedShare {
            share: Share::decode(share)?,
            u_hat: Element::decode(u_hat).ok_or(DecodeError::Element)?,
            h_hat: Element::decode(h_hat).ok_or(DecodeError::Element)?,
            f: G::decode_scalar(f.try_into().expect("the length is checked")).ok_or(DecodeError::Scalar)?,
        })
    }
}

/// A proved share that is right: u_i = u^x_i for this ciphertext and sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified<G: PrimeGroup> {
    pub(super) proved: ProvedShare<G>,
    /// pkh, ctid.
    pub(super) key: [u8; 32],
    pub(super) ciphertext: [u8; 32],
}

impl<G: PrimeGroup> Verified<G> {
    /// The share with its proof, which convinces everybody.
    pub fn proved(&self) -> &ProvedShare<G> {
        &self.proved
    }
}

impl<G: PrimeGroup> KeyShare<G> {
    /// ShareDec, fast form: u_i = u^{x_i}, in constant time.
    ///
    /// # Errors
    /// [`Invalid`] if the ciphertext was checked under another key.
    pub fn share(&self, it: &Checked<G>) -> Result<Share<G>, Invalid> {
        if it.key != self.lasting_key {
            return Err(Invalid);
        }
        let u_i = G::mul(it.ciphertext.u.point(), self.x.scalar());
        Ok(Share { index: self.index, u_i: Element::new(u_i).expect("x is not 0, u not the identity, q prime") })
    }

    /// The same share with its proof: three multiplications. Once per ciphertext; keep the answer (E4).
    ///
    /// # Errors
    /// [`Invalid`] if the ciphertext was checked under another key.
    pub fn prove(&self, it: &Checked<G>, rng: &mut impl CryptoRng) -> Result<ProvedShare<G>, Invalid> {
        let share = self.share(it)?;
        Ok(self.prove_with::<Full>(it, share, &Secret::random(rng)))
    }

    /// Derandomised twin, under any hashes, for vectors and attacks.
    pub(super) fn prove_with<O: Oracle<G>>(
        &self,
        it: &Labelled<G>,
        share: Share<G>,
        random: &Secret<32>,
    ) -> ProvedShare<G> {
        // s_i = HS("nonce"; k_i, pkh, ctid, i, 32 random bytes): a repeated random string repeats no nonce (S17)
        let nonce = Transcript::<G>::secret("nonce")
            .add(self.hedge.expose())
            .add(&self.key)
            .add(it.id())
            .add(&u32::from(self.index).to_be_bytes())
            .add(random.expose());
        let s = SecretScalar::<G>::new(nonce.scalar()).expect("no input is known that hashes to 0");
        // û = u^{s_i}, ĥ = g^{s_i}; e_i = HS("H3"; …), f_i = s_i + x_i e_i
        let half = Zeroizing::new(G::half(s.scalar()));
        let [u_hat, h_hat] = Element::doubled([G::mul(it.ciphertext.u.point(), &half), G::mul_base(&half)])
            .expect("s is not 0, u not the identity, q prime");
        let e = O::share(&ShareStatement {
            key: &self.key,
            index: self.index,
            ciphertext: it.id(),
            bases: [&it.ciphertext.u, &self.h_i],
            answers: [&share.u_i, &u_hat, &h_hat],
        });
        ProvedShare { share, u_hat, h_hat, f: *s.scalar() + *self.x.scalar() * e }
    }
}

impl<G: PrimeGroup> PublicKey<G> {
    /// Vrf: exact and deterministic.
    ///
    /// # Errors
    /// [`BadShare`], which names the holder.
    pub fn verify_share(&self, it: &Labelled<G>, proved: &ProvedShare<G>) -> Result<Verified<G>, BadShare> {
        match self.share_relation::<Full>(it, proved) {
            Some(relation) if relation.holds(&self.statics) => Ok(self.verified(it, proved)),
            _ => Err(BadShare(proved.share.index)),
        }
    }

    /// [`PublicKey::verify_share`] of many at once, of one ciphertext or several; put those of one ciphertext next to
    /// each other. `rng` weighs the equations, as in [`PublicKey::check_batch`].
    pub fn verify_shares(
        &self,
        batch: &[(&Labelled<G>, ProvedShare<G>)],
        rng: &mut impl CryptoRng,
    ) -> Vec<Result<Verified<G>, BadShare>> {
        let relations: Vec<_> = batch.iter().map(|(it, proved)| self.share_relation::<Full>(it, proved)).collect();
        let holds = verify_batch(&relations, &self.statics, rng);
        let verify = |(holds, (it, proved)): (bool, &(&Labelled<G>, ProvedShare<G>))| {
            if holds { Ok(self.verified(it, proved)) } else { Err(BadShare(proved.share.index)) }
        };
        holds.into_iter().zip(batch).map(verify).collect()
    }

    /// log_g h_i = log_u u_i, as the share claims; `None` for a holder or ciphertext of another key.
    pub(super) fn share_relation<O: Oracle<G>>(
        &self,
        it: &Labelled<G>,
        proved: &ProvedShare<G>,
    ) -> Option<Relation<G>> {
        let ProvedShare { share, u_hat, h_hat, f } = proved;
        let h_i = self.share_of(share.index)?;
        if it.key != *self.lasting_hash() {
            return None;
        }
        let challenge = O::share(&ShareStatement {
            key: self.hash(),
            index: share.index,
            ciphertext: it.id(),
            bases: [&it.ciphertext.u, h_i],
            answers: [&share.u_i, u_hat, h_hat],
        });
        Some(Relation {
            bases: [Base::Fixed(G_AT), Base::Free(*it.ciphertext.u.point())],
            images: [Base::Fixed(SHARES_AT + usize::from(share.index)), Base::Free(*share.u_i.point())],
            commitments: [*h_hat.point(), *u_hat.point()],
            challenge,
            response: *f,
        })
    }

    fn verified(&self, it: &Labelled<G>, proved: &ProvedShare<G>) -> Verified<G> {
        Verified { proved: *proved, key: *self.hash(), ciphertext: *it.id() }
    }
}

/// A share whose proof fails: its sender lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the share of holder {0} is not proved")]
pub struct BadShare(pub u16);
