//! Verifiable secret sharing (Feldman, FOCS 1987): a dealer commits to its polynomial F, and each holder checks its share
//! against that.
//!
//! φ_k = g^{a_k}, k = 0 … t − 1; s_i = F(i) for i in 1..=n, right if g^{s_i} = Π φ_k^{i^k}.

use rand_core::CryptoRng;
use zeroize::Zeroize;

use super::{Element, Polynomial, PrimeGroup, SecretScalar};
use crate::secret::Secret;

/// One polynomial F of degree t − 1, dealt to n holders.
pub struct Dealing<G: PrimeGroup> {
    /// φ_0 … φ_{t−1}.
    pub commitment: Vec<Element<G>>,
    /// F(1) … F(n).
    pub shares: Vec<Secret<32>>,
}

/// Deals a random secret a_0 = F(0); 1 ≤ t.
pub fn deal<G: PrimeGroup>(threshold: u16, holders: u16, rng: &mut impl CryptoRng) -> (SecretScalar<G>, Dealing<G>) {
    loop {
        // Again if F is 0 at a holder, which no seed is known to give.
        if let Some(dealt) = share_out(Polynomial::random(threshold, rng), holders) {
            return dealt;
        }
    }
}

fn share_out<G: PrimeGroup>(polynomial: Polynomial<G>, holders: u16) -> Option<(SecretScalar<G>, Dealing<G>)> {
    let shares = (1..=holders).map(|i| Some(polynomial.at(i)?.to_bytes())).collect::<Option<_>>()?;
    Some((polynomial.at(0)?, Dealing { commitment: polynomial.commitment(), shares }))
}

/// Whether g^share = Π φ_k^{i^k}.
pub fn fits<G: PrimeGroup>(commitment: &[Element<G>], index: u16, share: &Secret<32>) -> bool {
    let Some(mut scalar) = G::decode_scalar(share.expose()) else { return false };
    let public = G::mul_base(&scalar);
    scalar.zeroize();
    public == committed(commitment, index)
}

/// The commitment of a sum of polynomials, each of t coefficients; `None` if one has fewer, or if a sum is the identity, which
/// no set of dealers can bring about that has an honest one among it.
pub fn sum_of_commitments<G: PrimeGroup>(threshold: u16, commitments: &[&[Element<G>]]) -> Option<Vec<Element<G>>> {
    let coefficient = |k: usize| {
        let of_all = commitments.iter().map(|it| it.get(k).map(|it| *it.point()));
        Element::new(of_all.collect::<Option<Vec<_>>>()?.into_iter().reduce(|sum, it| sum + it)?)
    };
    (0..usize::from(threshold)).map(coefficient).collect()
}

/// h = g^{F(0)}, and h_i = g^{F(i)} for i in 1..=n; `None` if one is the identity.
pub fn public_keys<G: PrimeGroup>(commitment: &[Element<G>], holders: u16) -> Option<(Element<G>, Vec<Element<G>>)> {
    let shares = (1..=holders).map(|i| Element::new(committed(commitment, i))).collect::<Option<_>>()?;
    Some((*commitment.first()?, shares))
}

/// Σ of shares, mod q; `None` if one of them is not below q.
pub fn sum_of_shares<'a, G: PrimeGroup>(shares: impl IntoIterator<Item = &'a Secret<32>>) -> Option<Secret<32>> {
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

/// g^{F(i)} = Π φ_k^{i^k}, all of it public.
fn committed<G: PrimeGroup>(commitment: &[Element<G>], i: u16) -> G::Point {
    let i = G::Scalar::from(u64::from(i));
    let powers = std::iter::successors(Some(G::Scalar::from(1)), |power| Some(*power * i));
    let powers: Vec<G::Scalar> = powers.take(commitment.len()).collect();
    let points: Vec<G::Point> = commitment.iter().map(|it| *it.point()).collect();
    G::msm(&G::statics(&[]), &[], &powers, &points)
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;
    use serde_json::Value;

    use super::*;
    use crate::group::{P256, Ristretto255};
    use crate::unhex;

    fn vectors(kind: &str, suite: &str) -> Vec<Value> {
        let file: Value = serde_json::from_str(include_str!("../../vectors/feldman.json")).unwrap();
        let found: Vec<Value> =
            file[kind].as_array().unwrap().iter().filter(|it| it["suite"] == suite).cloned().collect();
        assert!(!found.is_empty());
        found
    }

    fn secrets(of: &Value) -> Vec<Secret<32>> {
        let bytes = of.as_array().unwrap().iter().map(|it| unhex(it.as_str().unwrap()));
        bytes.map(|it| Secret::try_from(&it[..]).unwrap()).collect()
    }

    fn secret(of: &Value) -> Secret<32> {
        Secret::try_from(&unhex(of.as_str().unwrap())[..]).unwrap()
    }

    fn number(of: &Value) -> u16 {
        u16::try_from(of.as_u64().unwrap()).unwrap()
    }

    fn shares_of_rfc_9591<G: PrimeGroup>(suite: &str) {
        for it in vectors("rfc9591", suite) {
            let coefficients = [vec![secret(&it["secret"])], secrets(&it["coefficients"])].concat();
            let coefficients = coefficients.iter().map(|it| SecretScalar::from_bytes(it).unwrap()).collect();
            let (secret, dealt) = share_out::<G>(Polynomial::of(coefficients), 3).unwrap();
            assert_eq!(dealt.shares, secrets(&it["shares"]));
            assert_eq!(secret.public().bytes(), unhex(it["public"].as_str().unwrap()));
        }
    }

    /// What another implementation dealt fits, adds up, and fits nobody else; `draws_alike` says whether the same seed gives the same
    /// dealing here.
    fn dealings<G: PrimeGroup>(suite: &str, draws_alike: bool) {
        for it in vectors("dealings", suite) {
            let (threshold, holders) = (number(&it["threshold"]), number(&it["holders"]));
            let commitment = it["commitment"].as_array().unwrap().iter();
            let commitment: Vec<Element<G>> =
                commitment.map(|it| Element::decode(&unhex(it.as_str().unwrap())).unwrap()).collect();
            let shares = secrets(&it["shares"]);
            for (i, share) in (1..).zip(&shares) {
                assert!(fits(&commitment, i, share) && !fits(&commitment, i + 1, share));
                assert!(!fits(&commitment[1..], i, share));
            }
            let (secret, ours) = deal::<G>(threshold, holders, &mut ChaCha20Rng::seed_from_u64(u64::from(threshold)));
            if draws_alike {
                assert_eq!((&ours.commitment, &ours.shares), (&commitment, &shares));
                assert_eq!(secret.to_bytes(), super::tests::secret(&it["secret"]));
            }
            let sum = sum_of_commitments(threshold, &[&commitment, &ours.commitment]).unwrap();
            let (h, keys) = public_keys(&sum, holders).unwrap();
            assert_eq!((h, keys.len()), (sum[0], shares.len()));
            for (i, key) in (0..).zip(&keys) {
                let share = sum_of_shares::<G>([&shares[i], &ours.shares[i]]).unwrap();
                assert_eq!(SecretScalar::<G>::from_bytes(&share).unwrap().public(), *key);
                assert!(fits(&sum, i as u16 + 1, &share));
            }
        }
    }

    #[test]
    fn shares_are_those_of_rfc_9591() {
        shares_of_rfc_9591::<Ristretto255>("ristretto255");
        shares_of_rfc_9591::<P256>("P-256");
    }

    #[test]
    fn dealings_of_frost_fit_and_add_up() {
        dealings::<Ristretto255>("ristretto255", true);
        dealings::<P256>("P-256", false);
    }

    #[test]
    fn what_is_no_share_and_no_commitment_is_refused() {
        let (_, it) = deal::<Ristretto255>(2, 3, &mut ChaCha20Rng::seed_from_u64(1));
        assert!(!fits(&it.commitment, 1, &Secret::from_bytes([0xff; 32])), "not below q");
        assert!(sum_of_shares::<Ristretto255>([&Secret::from_bytes([0xff; 32])]).is_none());
        assert!(sum_of_commitments(3, &[&it.commitment[..]]).is_none(), "too short");
        assert!(sum_of_commitments::<Ristretto255>(2, &[]).is_none() && public_keys::<Ristretto255>(&[], 3).is_none());
        let negated: Vec<_> = it.commitment.iter().map(|it| Element::new(-*it.point()).unwrap()).collect();
        assert!(sum_of_commitments(2, &[&it.commitment[..], &negated]).is_none(), "the identity");
    }
}
