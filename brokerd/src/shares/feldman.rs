//! Verifiable secret sharing (Feldman, FOCS 1987) by `frost-core`, handed over by bytes.
//!
//! Of frost's own key generation (`keys::dkg`) nothing is used: it needs a package of every one of the n, ends with the
//! first bad one and names no session in its proof of knowledge. What is used is audited all the same: dealing, checking a share
//! against commitments, and the public keys of a sum of commitments.
//!
//! What crosses the bridge erases itself here; frost's own copies of a_0 … a_{t−1} are plain numbers on its stack and heap, which
//! it does not erase.

use std::collections::{BTreeMap, BTreeSet};

use frost_core::keys::{
    IdentifierList, PublicKeyPackage, SecretShare, SigningShare, VerifiableSecretSharingCommitment,
    generate_with_dealer, split,
};
use frost_core::{Ciphersuite, Identifier, SigningKey};
use rand_core::CryptoRng;
use sealcast_crypto::group::{Element, Group, P256, Parameters, Ristretto255, SecretScalar};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::tdh2::PublicKey;
use zeroize::{Zeroize, Zeroizing};

/// A suite that frost has, too.
pub trait Suite: Group {
    /// The same group there: same elements, same encodings.
    type Frost: Ciphersuite;
}

impl Suite for Ristretto255 {
    type Frost = frost_ristretto255::Ristretto255Sha512;
}

impl Suite for P256 {
    type Frost = frost_p256::P256Sha256;
}

/// One polynomial f of degree t − 1, dealt to n holders.
pub(crate) struct Dealt<G: Suite> {
    /// φ_k = g^{a_k}, k = 0 … t − 1.
    pub(crate) commitment: Vec<Element<G>>,
    /// f(1) … f(n).
    pub(crate) shares: Vec<Secret<32>>,
}

/// Deals a random secret a_0 = f(0); 2 ≤ t ≤ n. `None` with a probability of no more than 2⁻²⁴⁰, or for other numbers.
pub(crate) fn deal_random<G: Suite>(
    threshold: u16,
    holders: u16,
    rng: &mut impl CryptoRng,
) -> Option<(SecretScalar<G>, Dealt<G>)> {
    let mut rng = Bridge(rng);
    let key = SigningKey::<G::Frost>::new(&mut rng);
    let (shares, _) = split(&key, holders, threshold, IdentifierList::Default, &mut rng).ok()?;
    let commitment = shares.values().next()?.commitment().serialize().ok()?;
    let commitment = commitment.iter().map(|it| Element::decode(it)).collect::<Option<_>>()?;
    let shares = (1..=holders).map(|i| secret(shares.get(&identifier(i))?.signing_share().serialize()));
    let shares = shares.collect::<Option<_>>()?;
    Some((SecretScalar::from_bytes(&secret(key.serialize())?)?, Dealt { commitment, shares }))
}

/// The shares and public keys of frost's trusted dealer: x_1 … x_n, h, h_1 … h_n.
pub(crate) type Sharing<G> = (Vec<Secret<32>>, Element<G>, Vec<Element<G>>);

/// Frost's trusted dealer; 2 ≤ t ≤ n.
pub(crate) fn trusted<G: Suite>(threshold: u16, holders: u16, rng: &mut impl CryptoRng) -> Option<Sharing<G>> {
    let mut rng = Bridge(rng);
    let (shares, public) =
        generate_with_dealer::<G::Frost, _>(holders, threshold, IdentifierList::Default, &mut rng).ok()?;
    let secrets = (1..=holders).map(|i| {
        let share = shares.get(&identifier(i))?;
        share.verify().ok()?;
        secret(share.signing_share().serialize())
    });
    let secrets = secrets.collect::<Option<_>>()?;
    let (h, shares) = public_keys::<G>(&public, holders)?;
    Some((secrets, h, shares))
}

/// Whether g^share = Π φ_k^{i^k}.
pub(crate) fn fits<G: Suite>(commitment: &[Element<G>], index: u16, share: &Secret<32>) -> bool {
    let fits = || {
        let share = SigningShare::<G::Frost>::deserialize(share.expose()).ok()?;
        SecretShare::new(identifier(index), share, frosted::<G>(commitment)?).verify().ok()
    };
    fits().is_some()
}

/// The public key of the sum of these polynomials; `None` if the sum is degenerate, which no set of dealers can bring
/// about that has an honest one among it.
pub(crate) fn sum_of_commitments<G: Suite>(
    parameters: Parameters,
    commitments: &[&[Element<G>]],
) -> Option<PublicKey<G>> {
    let coefficient = |k: usize| {
        let of_all = commitments.iter().map(|it| it.get(k).map(|it| *it.point()));
        let sum = of_all.collect::<Option<Vec<_>>>()?.into_iter().reduce(|sum, it| sum + it)?;
        Element::new(sum)
    };
    let sum: Vec<Element<G>> = (0..usize::from(parameters.threshold)).map(coefficient).collect::<Option<_>>()?;
    let identifiers: BTreeSet<_> = (1..=parameters.holders).map(identifier::<G::Frost>).collect();
    let public = PublicKeyPackage::from_commitment(&identifiers, &frosted::<G>(&sum)?).ok()?;
    let (h, shares) = public_keys::<G>(&public, parameters.holders)?;
    PublicKey::new(parameters, h, shares).ok()
}

/// Σ of shares, mod q; `None` if one of them is not below q.
pub(crate) fn sum_of_shares<'a, G: Suite>(shares: impl IntoIterator<Item = &'a Secret<32>>) -> Option<Secret<32>> {
    let mut sum = G::Scalar::from(0);
    for share in shares {
        let mut share = G::decode_scalar(share.expose())?;
        sum = sum + share;
        share.zeroize();
    }
    let bytes = Secret::from_bytes(G::scalar_bytes(&sum));
    sum.zeroize();
    Some(bytes)
}

fn public_keys<G: Suite>(public: &PublicKeyPackage<G::Frost>, holders: u16) -> Option<(Element<G>, Vec<Element<G>>)> {
    let h = Element::decode(&public.verifying_key().serialize().ok()?)?;
    let shares: &BTreeMap<_, _> = public.verifying_shares();
    let share = |i| Element::decode(&shares.get(&identifier(i))?.serialize().ok()?);
    Some((h, (1..=holders).map(share).collect::<Option<_>>()?))
}

fn frosted<G: Suite>(commitment: &[Element<G>]) -> Option<VerifiableSecretSharingCommitment<G::Frost>> {
    VerifiableSecretSharingCommitment::deserialize(commitment.iter().map(Element::bytes)).ok()
}

fn identifier<C: Ciphersuite>(index: u16) -> Identifier<C> {
    index.try_into().expect("holders are counted from 1")
}

fn secret(bytes: Vec<u8>) -> Option<Secret<32>> {
    Secret::try_from(&Zeroizing::new(bytes)[..]).ok()
}

/// Our generator under the traits of an older `rand_core`.
struct Bridge<'a, R>(&'a mut R);

impl<R: CryptoRng> frost_ristretto255::rand_core::RngCore for Bridge<'_, R> {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        self.0.fill_bytes(dest);
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), frost_ristretto255::rand_core::Error> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}

impl<R: CryptoRng> frost_ristretto255::rand_core::CryptoRng for Bridge<'_, R> {}
