//! A trusted dealer: somebody who makes the key, hands out its shares and forgets it. `brokers init --dealer`.

use rand_core::CryptoRng;
use sealcast_broker::genesis::Cluster;
use sealcast_crypto::group::{Parameters, ParametersError, PrimeGroup};
use sealcast_crypto::tdh2::{self, KeyShare, PublicKey};

/// TGen: the key of a cluster, and x_1 … x_n for its brokers. The dealer knows the key until it erases it: run it on a machine
/// that is trusted with that.
///
/// # Errors
/// So many brokers cannot share a key so.
pub fn deal<G: PrimeGroup>(
    cluster: &Cluster,
    threshold: u16,
    brokers: u16,
    rng: &mut impl CryptoRng,
) -> Result<(PublicKey<G>, Vec<KeyShare<G>>), ParametersError> {
    tdh2::deal(Parameters::new(&cluster.0, threshold, brokers), rng)
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;
    use sealcast_crypto::group::{P256, Ristretto255};

    use super::super::testing::opens_with_every_t;
    use super::*;

    fn dealt<G: PrimeGroup>(threshold: u16, brokers: u16) -> (PublicKey<G>, Vec<KeyShare<G>>) {
        deal(&Cluster([7; 32]), threshold, brokers, &mut ChaCha20Rng::seed_from_u64(u64::from(threshold))).unwrap()
    }

    fn any_t_shares_open<G: PrimeGroup>() {
        for (threshold, brokers) in [(1, 1), (2, 4), (3, 4), (5, 7)] {
            let (key, shares) = dealt::<G>(threshold, brokers);
            assert_eq!(key.parameters(), &Parameters::new(&[7; 32], threshold, brokers));
            assert_eq!(shares.iter().map(KeyShare::index).collect::<Vec<_>>(), (1..=brokers).collect::<Vec<_>>());
            opens_with_every_t(&key, &shares);
        }
    }

    #[test]
    fn any_t_shares_of_a_dealt_key_open_ristretto255() {
        any_t_shares_open::<Ristretto255>();
    }

    #[test]
    fn any_t_shares_of_a_dealt_key_open_p256() {
        any_t_shares_open::<P256>();
    }

    #[test]
    fn a_dealt_key_reads_back() {
        let (key, shares) = dealt::<Ristretto255>(3, 4);
        let read = PublicKey::<Ristretto255>::decode(&key.encode()).unwrap();
        assert_eq!(read.hash(), key.hash());
        let again = KeyShare::new(&read, 2, &shares[1].secret_bytes());
        assert!(again.is_ok());
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let deal = |t, n| deal::<Ristretto255>(&Cluster([7; 32]), t, n, &mut ChaCha20Rng::seed_from_u64(1)).map(drop);
        assert_eq!(deal(0, 4), Err(ParametersError::Threshold(0)));
        assert_eq!(deal(5, 4), Err(ParametersError::Threshold(5)));
        assert_eq!(deal(1, 0), Err(ParametersError::Holders(0)));
    }
}
