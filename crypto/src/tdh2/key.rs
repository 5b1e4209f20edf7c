//! The public key, its shares, and how a trusted dealer makes them.

use std::fmt;

use rand_core::CryptoRng;
use sealcast_wire::limits::{SHAREHOLDERS_MAX, SYSTEM_BYTES_MAX};

use crate::group::{Committee, Element, Parameters, ParametersError, Polynomial, PrimeGroup, SecretScalar, Transcript};
use crate::hash;
use crate::secret::Secret;

/// pk and vk: h, ḡ, h_1 … h_n with what is prepared for them. Some 100 KB; share it.
pub struct PublicKey<G: PrimeGroup> {
    pub(super) committee: Committee<G>,
    /// ḡ.
    pub(super) g_bar: Element<G>,
    /// pkh0: what ciphertexts are bound to; a refresh keeps it.
    lasting_hash: [u8; 32],
    /// pkh: what shares are bound to.
    hash: [u8; 32],
    pub(super) g_bar_table: G::Table,
    /// Of H_Δ = h^Δ.
    pub(super) h_delta_table: G::Table,
    /// g, ḡ, h_1 … h_n.
    pub(super) statics: G::Statics,
}

impl<G: PrimeGroup> PublicKey<G> {
    /// The key of a sharing made elsewhere (DKG, ceremony, refresh): h and h_1 … h_n.
    ///
    /// # Errors
    /// Parameters out of range, or h_i that are no sharing of h.
    pub fn new(
        parameters: Parameters,
        h: Element<G>,
        shares: Vec<Element<G>>,
    ) -> Result<PublicKey<G>, ParametersError> {
        // ḡ = HG("gbar"; sysid, pt(h))
        let g_bar = Transcript::<G>::new("gbar").add(&parameters.system).element(&h).to_element();
        PublicKey::with_g_bar(parameters, h, g_bar, shares)
    }

    /// With ḡ from somewhere else: other implementations draw it.
    pub(super) fn with_g_bar(
        parameters: Parameters,
        h: Element<G>,
        g_bar: Element<G>,
        shares: Vec<Element<G>>,
    ) -> Result<PublicKey<G>, ParametersError> {
        let committee = Committee::new(parameters, h, shares)?;
        let parameters = &committee.parameters;
        // pkh = SHA-256(T("pk"; n, t, epoch, pt(h), pt(ḡ), pt(h_1) … pt(h_n)))
        let hash = Transcript::<G>::new("pk")
            .add(&u32::from(parameters.holders).to_be_bytes())
            .add(&u32::from(parameters.threshold).to_be_bytes())
            .add(&parameters.epoch.to_be_bytes())
            .element(&h)
            .element(&g_bar)
            .elements(&committee.shares)
            .hash();
        // pkh0 = SHA-256(T("pk0"; sysid, pt(h), pt(ḡ), Δ))
        let lasting_hash = Transcript::<G>::new("pk0")
            .add(&parameters.system)
            .element(&h)
            .element(&g_bar)
            .add(&parameters.delta.to_be_bytes())
            .hash();
        let h_delta = G::mul(h.point(), &G::Scalar::from(parameters.delta));
        let known = [G::generator(), *g_bar.point()].into_iter().chain(committee.shares.iter().map(|it| *it.point()));
        let statics = G::statics(&known.collect::<Vec<_>>());
        Ok(PublicKey {
            g_bar_table: G::table(g_bar.point()),
            h_delta_table: G::table(&h_delta),
            statics,
            committee,
            g_bar,
            lasting_hash,
            hash,
        })
    }

    /// n, t, epoch, Δ and the system's id.
    pub fn parameters(&self) -> &Parameters {
        &self.committee.parameters
    }

    /// h.
    pub fn h(&self) -> &Element<G> {
        &self.committee.h
    }

    /// ḡ.
    pub fn g_bar(&self) -> &Element<G> {
        &self.g_bar
    }

    /// h_i, or `None` if there is no holder i.
    pub fn share_of(&self, index: u16) -> Option<&Element<G>> {
        self.committee.share_of(index)
    }

    /// pkh: of this sharing.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// How the statements of holders name this sharing.
    pub fn sharing(&self) -> Sharing {
        if self.parameters().epoch == 0 { Sharing::First } else { Sharing::Later(self.hash) }
    }

    /// pkh0: of the key, however it is shared.
    pub fn lasting_hash(&self) -> &[u8; 32] {
        &self.lasting_hash
    }

    /// suite u8 ‖ u8 |system| ‖ system ‖ epoch u64 ‖ t u16 ‖ n u16 ‖ Δ u64 ‖ h ‖ h_1 … h_n; ḡ follows from it.
    pub fn encode(&self) -> Vec<u8> {
        let parameters = self.parameters();
        let mut bytes = vec![G::SUITE, parameters.system.len() as u8];
        bytes.extend_from_slice(&parameters.system);
        bytes.extend_from_slice(&parameters.epoch.to_be_bytes());
        bytes.extend_from_slice(&parameters.threshold.to_be_bytes());
        bytes.extend_from_slice(&parameters.holders.to_be_bytes());
        bytes.extend_from_slice(&parameters.delta.to_be_bytes());
        [self.h()].into_iter().chain(&self.committee.shares).for_each(|it| bytes.extend_from_slice(it.bytes()));
        bytes
    }

    /// Reads what [`PublicKey::encode`] writes, and nothing else.
    ///
    /// # Errors
    /// [`KeyError::Encoding`], or what is wrong with the key.
    pub fn decode(bytes: &[u8]) -> Result<PublicKey<G>, KeyError> {
        let [suite, length, rest @ ..] = bytes else {
            return Err(KeyError::Encoding);
        };
        let (system, rest) = rest.split_at_checked(usize::from(*length)).ok_or(KeyError::Encoding)?;
        let (&[e0, e1, e2, e3, e4, e5, e6, e7, t0, t1, n0, n1, ref delta @ ..], rest) =
            rest.split_first_chunk::<20>().ok_or(KeyError::Encoding)?;
        let parameters = Parameters {
            system: system.to_vec(),
            epoch: u64::from_be_bytes([e0, e1, e2, e3, e4, e5, e6, e7]),
            threshold: u16::from_be_bytes([t0, t1]),
            holders: u16::from_be_bytes([n0, n1]),
            delta: u64::from_be_bytes(*delta),
        };
        parameters.validate()?;
        if *suite != G::SUITE || rest.len() != (usize::from(parameters.holders) + 1) * G::POINT_LEN {
            return Err(KeyError::Encoding);
        }
        let elements: Option<Vec<_>> = rest.chunks(G::POINT_LEN).map(Element::decode).collect();
        let mut elements = elements.ok_or(KeyError::Encoding)?;
        let shares = elements.split_off(1);
        Ok(PublicKey::new(parameters, elements[0], shares)?)
    }
}

impl<G: PrimeGroup> fmt::Debug for PublicKey<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("parameters", self.parameters()).field("h", self.h()).finish()
    }
}

/// How a statement of a holder names the sharing that it is about. Ciphertexts outlive a refresh, so a ciphertext's id does
/// not tell under which sharing a share of it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The sharing of epoch 0. Its statements name none, and count for no other sharing.
    First,
    /// The sharing with this pkh, of a later epoch.
    Later([u8; 32]),
}

/// sk_i: what one holder knows of one sharing.
pub struct KeyShare<G: PrimeGroup> {
    pub(super) index: u16,
    /// x_i.
    pub(super) x: SecretScalar<G>,
    /// h_i.
    pub(super) h_i: Element<G>,
    /// pkh, pkh0.
    pub(super) key: [u8; 32],
    pub(super) lasting_key: [u8; 32],
    /// k_i: keys the nonces of proofs.
    pub(super) hedge: Secret<32>,
}

impl<G: PrimeGroup> KeyShare<G> {
    /// Holder `index`'s share of this sharing, checked against h_i: whoever made it (S29).
    ///
    /// # Errors
    /// There is no such holder, x is 0 or not below q, or g^x ≠ h_i.
    pub fn new(key: &PublicKey<G>, index: u16, x: &Secret<32>) -> Result<KeyShare<G>, KeyError> {
        let h_i = *key.share_of(index).ok_or(KeyError::Index(index))?;
        let x = SecretScalar::from_bytes(x).ok_or(KeyError::Mismatch(index))?;
        // g^{x_i} = h_i
        if x.public() != h_i {
            return Err(KeyError::Mismatch(index));
        }
        let hedge = Secret::from_bytes(Transcript::<G>::secret("hedge").add(x.to_bytes().expose()).hash());
        Ok(KeyShare { index, x, h_i, key: *key.hash(), lasting_key: *key.lasting_hash(), hedge })
    }

    /// i, from 1.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// x_i, to be stored under lock and key. Each call is a place to look at in a review.
    pub fn secret_bytes(&self) -> Secret<32> {
        self.x.to_bytes()
    }
}

impl<G: PrimeGroup> fmt::Debug for KeyShare<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyShare({}, <redacted>)", self.index)
    }
}

/// What a holder signs to vouch that an encoded key is the one of its cluster and epoch (E11):
/// `T("sealcast/v1/threshold key signed"; cluster, u32 epoch, key)`.
pub fn vouching(cluster: &[u8; 32], epoch: u32, key: &[u8]) -> [u8; 32] {
    let transcript = hash::Transcript::new("sealcast/v1/threshold key signed").add(cluster);
    transcript.add(&epoch.to_be_bytes()).add(key).finish()
}

/// TGen, by a trusted dealer: the key, and x_1 … x_n for its holders.
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
        if let Some(dealt) = share_out(&parameters, &polynomial) {
            return Ok(dealt);
        }
    }
}

/// `None` if some F(i) is 0, which no seed is known to give.
pub(super) fn share_out<G: PrimeGroup>(
    parameters: &Parameters,
    polynomial: &Polynomial<G>,
) -> Option<(PublicKey<G>, Vec<KeyShare<G>>)> {
    // x_i = F(i), h_i = g^{x_i}; x = F(0), h = g^x
    let secrets: Vec<_> = (1..=parameters.holders).map(|i| polynomial.at(i)).collect::<Option<_>>()?;
    let shares = secrets.iter().map(SecretScalar::public).collect();
    let key =
        PublicKey::new(parameters.clone(), polynomial.at(0)?.public(), shares).expect("a polynomial's values fit");
    let share = |(i, x): (u16, &SecretScalar<G>)| KeyShare::new(&key, i, &x.to_bytes()).expect("h_i was made from x_i");
    let shares = (1..).zip(&secrets).map(share).collect();
    Some((key, shares))
}

/// A key that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Parameters out of range, or h_i that are no sharing of h.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    /// Not the encoding of a key of this suite.
    #[error("not the encoding of a key of this suite")]
    Encoding,
    /// There is no such holder.
    #[error("there is no holder {0}")]
    Index(u16),
    /// g^x is not h_i.
    #[error("the secret of holder {0} is not that of its public key")]
    Mismatch(u16),
}

const _: () = assert!(SYSTEM_BYTES_MAX <= u8::MAX as usize && SHAREHOLDERS_MAX < u16::MAX as usize);
