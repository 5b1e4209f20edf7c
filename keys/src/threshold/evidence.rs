//! Proofs of misbehaviour that convince whoever has the cluster file (E4).
//!
//! ```text
//! evidence = 1 ‖ u16 broker ‖ message ‖ proved share ‖ signature     a broker signed a proof that fails
//!          | 2 ‖ message ‖ u16 count ‖ (proved share ‖ signature) …  right shares of a ciphertext that is false
//!          | 3 ‖ …                                                 another outcome of a block: `sealcast_broker::contradiction`
//! message  = bytes16 header ‖ u32 length ‖ ciphertext
//! ```
//! All of it are signed statements: a broker that refuses to sign is silent, and convicts nobody.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand_core::CryptoRng;
use sealcast_crypto::ed25519;
use sealcast_crypto::group::Group;
use sealcast_crypto::signature::SIGNATURE_LEN;
use sealcast_crypto::tdh2::{Ciphertext, Combiner, Labelled, Outcome, ProvedShare, PublicKey};
use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::config::Config;
use super::sealed::{Header, SignedShare, statement};

/// Who misbehaved at or with the brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// The broker with this number signed a false proof.
    Broker(u16),
    /// Who published this made a ciphertext that opens to nothing. That this client did, the brokers' order shows.
    Publisher {
        /// Its key.
        client: [u8; 32],
        /// Its number of the publication.
        number: u64,
    },
}

/// The record that convicts a broker.
pub(super) fn false_share<G: Group>(header: &[u8], it: &Labelled<G>, broker: u16, signed: &SignedShare<G>) -> Vec<u8> {
    let mut w = Writer::new();
    message(w.u8(BROKER).u16(broker), header, it);
    w.raw(&signed.proved.encode()).raw(&signed.signature);
    w.finish()
}

/// The record that convicts a publisher.
pub(super) fn faulty<G: Group>(header: &[u8], it: &Labelled<G>, shares: &[SignedShare<G>]) -> Vec<u8> {
    let mut w = Writer::new();
    message(w.u8(PUBLISHER), header, it);
    w.u16(shares.len() as u16);
    shares.iter().for_each(|share| {
        w.raw(&share.proved.encode()).raw(&share.signature);
    });
    w.finish()
}

/// Whom a record convicts; `None` if it convicts nobody.
pub fn judge<G: Group>(config: &Config<G>, record: &[u8], rng: &mut impl CryptoRng) -> Option<Culprit> {
    let mut r = Reader::new(record);
    match r.u8().ok()? {
        BROKER => {
            let broker = r.u16().ok()?;
            let (_, it) = read_message(config, &mut r).ok()?;
            let signed = SignedShare::<G>::decode(&mut r).ok()?;
            r.end().ok()?;
            let checked = config.key.check(it).ok()?;
            let statement = statement(&config.cluster, checked.id(), &signed.proved.encode());
            let signature = config.brokers.get(usize::from(broker))?.verify(&statement, &signed.signature);
            let own = signed.proved.share().index() == broker + 1;
            let right = own && config.key.verify_share(&checked, &signed.proved).is_ok();
            (signature && !right).then_some(Culprit::Broker(broker))
        }
        PUBLISHER => {
            let (header, it) = read_message(config, &mut r).ok()?;
            let culprit = Culprit::Publisher { client: header.client, number: header.number };
            opens_to_nothing(&config.key, &config.cluster, &config.brokers, it, r.rest(), rng).then_some(culprit)
        }
        _ => None,
    }
}

/// Whether these shares, `u16 count ‖ (proved share ‖ signature) …`, prove that a ciphertext opens to nothing: they are of
/// at least t different holders, each is right for this ciphertext and signed by its broker, and what they combine to
/// fails the reader's check. The ciphertext itself must be well-formed: of another one nobody makes shares (S12).
pub fn opens_to_nothing<G: Group>(
    key: &Arc<PublicKey<G>>,
    cluster: &[u8; 32],
    brokers: &[ed25519::Key],
    it: Labelled<G>,
    shares: &[u8],
    rng: &mut impl CryptoRng,
) -> bool {
    let convicts = || {
        let mut r = Reader::new(shares);
        let count = r.count16(ProvedShare::<G>::LEN + SIGNATURE_LEN, limits::SHAREHOLDERS_MAX).ok()?;
        let read = |_| SignedShare::<G>::decode(&mut r).ok();
        let signed: Vec<SignedShare<G>> = (0..count).map(read).collect::<Option<_>>()?;
        r.end().ok()?;
        // More than t convict no better, and cost more.
        let indices: BTreeSet<u16> = signed.iter().map(|it| it.proved.share().index()).collect();
        if indices.len() != count || count != usize::from(key.parameters().threshold) {
            return None;
        }
        let checked = key.check(it).ok()?;
        let signed_by_broker = |it: &SignedShare<G>| {
            let broker = usize::from(it.proved.share().index().checked_sub(1)?);
            let statement = statement(cluster, checked.id(), &it.proved.encode());
            brokers.get(broker)?.verify(&statement, &it.signature).then_some((&*checked, it.proved))
        };
        let batch: Vec<_> = signed.iter().map(signed_by_broker).collect::<Option<_>>()?;
        let verified: Vec<_> = key.verify_shares(&batch, rng).into_iter().collect::<Result<_, _>>().ok()?;
        let outcome = Combiner::new(key.clone()).combine_verified(&checked, &verified).ok()?;
        matches!(outcome, Outcome::Bottom(_)).then_some(())
    };
    convicts().is_some()
}

fn message<G: Group>(w: &mut Writer, header: &[u8], it: &Labelled<G>) {
    let ciphertext = it.ciphertext().encode();
    w.bytes16(header).u32(ciphertext.len() as u32).raw(&ciphertext);
}

fn read_message<G: Group>(config: &Config<G>, r: &mut Reader<'_>) -> Result<(Header, Labelled<G>), Malformed> {
    let header = Header::from_bytes(r.bytes16(usize::from(u16::MAX))?)?;
    let length = usize::try_from(r.u32()?).map_err(|_| Malformed)?;
    let ciphertext = Ciphertext::decode(r.take(length)?).map_err(|_| Malformed)?;
    let it = config.key.bind(ciphertext, &header.label());
    Ok((header, it))
}

const BROKER: u8 = 1;
const PUBLISHER: u8 = 2;
