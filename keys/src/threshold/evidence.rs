//! Proofs of misbehaviour that convince whoever has the cluster file (E4).
//!
//! ```text
//! evidence = 1 ‖ u16 broker ‖ message ‖ proved share ‖ signature     a broker signed a proof that fails
//!          | 2 ‖ message ‖ u16 count ‖ (proved share ‖ signature) …  right shares of a ciphertext that is false
//!          | 3 ‖ …                                                 another outcome of a block: `sealcast_broker::contradiction`
//!          | 4 ‖ pkh, 32 ‖ u16 broker ‖ …                          as 1, of a later sharing than the first
//!          | 5 ‖ pkh, 32 ‖ message ‖ u16 count ‖ …                 as 2, of a later sharing than the first
//! message  = bytes16 header ‖ u32 length ‖ ciphertext
//! ```
//! A record convicts under the one sharing of the key that it is about: a share that was right before a refresh is wrong
//! after it. Forms 1 and 2 are about the first sharing.
//!
//! All of it are signed statements: a broker that refuses to sign is silent, and convicts nobody.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand_core::CryptoRng;
use sealcast_crypto::ed25519;
use sealcast_crypto::group::PrimeGroup;
use sealcast_crypto::signature::SIGNATURE_LEN;
use sealcast_crypto::tdh2::{Ciphertext, Combined, Combiner, Labelled, ProvedShare, PublicKey, Sharing};
use sealcast_wire::{Culprit, Malformed, Reader, SealedHeader, Writer, limits};

use super::config::Config;
use super::sealed::{SignedShare, label, statement};

/// The shares by which a publisher is convicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Against<'a> {
    /// The sharing of the key that they are of.
    pub sharing: Sharing,
    /// `u16 count ‖ (proved share ‖ signature) …`, as the key's group encodes them.
    pub shares: &'a [u8],
}

/// The record that convicts a broker.
pub(super) fn false_share<G: PrimeGroup>(
    header: &[u8],
    it: &Labelled<G>,
    broker: u16,
    signed: &SignedShare<G>,
) -> Vec<u8> {
    let mut w = Writer::new();
    match &signed.sharing {
        Sharing::First => w.u8(BROKER),
        Sharing::Later(pkh) => w.u8(BROKER_LATER).raw(pkh),
    };
    message(w.u16(broker), header, it);
    w.raw(&signed.proved.encode()).raw(&signed.signature);
    w.finish()
}

/// The record that convicts a publisher, by shares of one sharing.
pub(super) fn faulty<G: PrimeGroup>(
    sharing: &Sharing,
    header: &[u8],
    it: &Labelled<G>,
    shares: &[SignedShare<G>],
) -> Vec<u8> {
    let mut w = Writer::new();
    match sharing {
        Sharing::First => w.u8(PUBLISHER),
        Sharing::Later(pkh) => w.u8(PUBLISHER_LATER).raw(pkh),
    };
    message(&mut w, header, it);
    w.u16(shares.len() as u16);
    shares.iter().for_each(|share| {
        w.raw(&share.proved.encode()).raw(&share.signature);
    });
    w.finish()
}

/// Whom a record convicts; `None` if it convicts nobody, or is about another sharing of the key than the configuration's.
pub fn judge<G: PrimeGroup>(config: &Config<G>, record: &[u8], rng: &mut impl CryptoRng) -> Option<Culprit> {
    let mut r = Reader::new(record);
    let form = r.u8().ok()?;
    let sharing = match form {
        BROKER | PUBLISHER => Sharing::First,
        BROKER_LATER | PUBLISHER_LATER => Sharing::Later(r.array().ok()?),
        _ => return None,
    };
    if sharing != config.key.sharing() {
        return None;
    }
    match form {
        BROKER | BROKER_LATER => {
            let broker = r.u16().ok()?;
            let (_, it) = read_message(config, &mut r).ok()?;
            let signed = SignedShare::<G>::decode(&mut r, sharing).ok()?;
            r.end().ok()?;
            let checked = config.key.check(it).ok()?;
            let statement = statement(&config.cluster, &sharing, checked.id(), &signed.proved.encode());
            let signature = config.brokers.get(usize::from(broker))?.verify(&statement, &signed.signature);
            let own = signed.proved.share().index() == broker + 1;
            let right = own && config.key.verify_share(&checked, &signed.proved).is_ok();
            (signature && !right).then_some(Culprit::Broker(broker))
        }
        _ => {
            let (header, it) = read_message(config, &mut r).ok()?;
            let culprit = Culprit::Publisher { client: header.client, number: header.number };
            let against = Against { sharing, shares: r.rest() };
            opens_to_nothing(&config.key, &config.cluster, &config.brokers, it, &against, rng).then_some(culprit)
        }
    }
}

/// Whether these shares prove that a ciphertext opens to nothing: they are of this sharing and of t different holders, each
/// is right for this ciphertext and signed by its broker, and what they combine to fails the reader's check. The
/// ciphertext itself must be well-formed: of another one nobody makes shares (S12).
pub fn opens_to_nothing<G: PrimeGroup>(
    key: &Arc<PublicKey<G>>,
    cluster: &[u8; 32],
    brokers: &[ed25519::Key],
    it: Labelled<G>,
    against: &Against<'_>,
    rng: &mut impl CryptoRng,
) -> bool {
    let Against { sharing, shares } = *against;
    let convicts = || {
        if sharing != key.sharing() {
            return None;
        }
        let mut r = Reader::new(shares);
        let count = r.count16(ProvedShare::<G>::LEN + SIGNATURE_LEN, limits::SHAREHOLDERS_MAX).ok()?;
        let read = |_| SignedShare::<G>::decode(&mut r, sharing).ok();
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
            let statement = statement(cluster, &sharing, checked.id(), &it.proved.encode());
            brokers.get(broker)?.verify(&statement, &it.signature).then_some((&*checked, it.proved))
        };
        let batch: Vec<_> = signed.iter().map(signed_by_broker).collect::<Option<_>>()?;
        let verified: Vec<_> = key.verify_shares(&batch, rng).into_iter().collect::<Result<_, _>>().ok()?;
        let outcome = Combiner::new(key.clone()).combine_verified(&checked, &verified).ok()?;
        matches!(outcome, Combined::Bottom(_)).then_some(())
    };
    convicts().is_some()
}

fn message<G: PrimeGroup>(w: &mut Writer, header: &[u8], it: &Labelled<G>) {
    let ciphertext = it.ciphertext().encode();
    w.bytes16(header).u32(ciphertext.len() as u32).raw(&ciphertext);
}

fn read_message<G: PrimeGroup>(
    config: &Config<G>,
    r: &mut Reader<'_>,
) -> Result<(SealedHeader, Labelled<G>), Malformed> {
    let header = SealedHeader::from_bytes(r.bytes16(usize::from(u16::MAX))?)?;
    let length = usize::try_from(r.u32()?).map_err(|_| Malformed)?;
    let ciphertext = Ciphertext::decode(r.take(length)?).map_err(|_| Malformed)?;
    let it = config.key.bind(ciphertext, &label(&header));
    Ok((header, it))
}

const BROKER: u8 = 1;
const PUBLISHER: u8 = 2;
const BROKER_LATER: u8 = 4;
const PUBLISHER_LATER: u8 = 5;
