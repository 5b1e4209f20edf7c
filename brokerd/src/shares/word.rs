//! What brokers say while they make a key, as bytes.
//!
//! ```text
//! word     = u8 1 ‖ binding, 32 ‖ u16 broker ‖ (1 ‖ announce | 2 ‖ deal | 3 ‖ judge)
//! announce = key Y ‖ knowledge of y ‖ promise, 32
//! deal     = u16 t ‖ φ_0 … φ_{t−1} ‖ knowledge of a_0 ‖ sender's key X ‖ knowledge of x ‖ u16 count ‖ sealed share, 48 …
//! judge    = u16 count ‖ (u16 dealer ‖ disclosure) …                               dealers strictly ascending
//! ```
//! Who speaks is known from the signature on the batch; the broker in the word is what proofs are bound to, and must
//! be the same. Elements and scalars are canonical (TDH2's suites), so every word has one encoding.

use sealcast_crypto::aead;
use sealcast_crypto::disclosure::{Disclosure, Knowledge, disclosure_len, knowledge_len};
use sealcast_crypto::group::{Element, PrimeGroup};
use sealcast_crypto::hash::Transcript;
use sealcast_wire::limits::{BROKERS_MAX, DKG_BYTES_MAX};
use sealcast_wire::{Malformed, Reader, Writer};

use super::dkg::Setup;

/// The three rounds, and the word of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Round {
    /// Brokers name the key to which shares are sealed for them, and promise their commitment.
    Announce = 1,
    /// They open the promise and deal shares.
    Deal = 2,
    /// They say which shares were bad.
    Judge = 3,
}

/// A word's parts that say whether it is heard at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) binding: Binding,
    pub(super) broker: u16,
    pub(super) round: Round,
}

/// What all words of one run are bound to: `T("sealcast/v1/key dkg"; cluster, u32 run, u16 t, u16 n, u8 suite)` for the
/// key of epoch 0, `T("sealcast/v1/key dkg of epoch"; cluster, u32 epoch, u32 run, u16 t, u16 n, u8 suite)` for a later
/// one. Runs of each epoch count from 0. The words of epoch 0 stay as they were ordered: a broker that lost its folder
/// finds the key in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding([u8; 32]);

/// Round 1: Y with its proof, and the hash of what will be dealt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcement<G: PrimeGroup> {
    pub(super) key: Element<G>,
    pub(super) knowledge: Knowledge<G>,
    pub(super) promise: [u8; 32],
}

/// Round 2: a polynomial in the exponent, and its values for all who announced themselves, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dealing<G: PrimeGroup> {
    pub(super) commitment: Vec<Element<G>>,
    pub(super) knowledge: Knowledge<G>,
    pub(super) sender: Element<G>,
    pub(super) sender_knowledge: Knowledge<G>,
    pub(super) sealed: Vec<[u8; SEALED_LEN]>,
}

/// Round 3: what a dealer sealed for the one who complains, open to everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Complaint<G: PrimeGroup> {
    pub(super) dealer: u16,
    pub(super) disclosure: Disclosure<G>,
}

impl Binding {
    pub(super) fn new<G: PrimeGroup>(setup: &Setup, run: u32) -> Binding {
        let transcript = match setup.epoch {
            0 => Transcript::new("sealcast/v1/key ceremony").add(&setup.cluster.0),
            epoch => {
                let transcript = Transcript::new("sealcast/v1/key ceremony of epoch").add(&setup.cluster.0);
                transcript.add(&epoch.to_be_bytes())
            }
        };
        let transcript = transcript.add(&run.to_be_bytes()).add(&setup.threshold.to_be_bytes());
        Binding(transcript.add(&setup.brokers.to_be_bytes()).add(&[G::SUITE]).finish())
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The context of a broker's proof: of y, of a_0, of x.
    pub(super) fn proof(&self, broker: u16, of: &str) -> [u8; 32] {
        let transcript = Transcript::new("sealcast/v1/key ceremony proof").add(&self.0);
        transcript.add(&broker.to_be_bytes()).add(of.as_bytes()).finish()
    }

    /// The context in which a dealer seals a share for a receiver, and in which the receiver discloses it.
    pub(super) fn share(&self, dealer: u16, receiver: u16) -> [u8; 32] {
        let transcript = Transcript::new("sealcast/v1/key ceremony share").add(&self.0);
        transcript.add(&dealer.to_be_bytes()).add(&receiver.to_be_bytes()).finish()
    }

    /// What a broker promises to deal: `T("sealcast/v1/key dkg promise"; binding, u16 broker, φ_0, …)`. It hides
    /// the commitment, which is as random as a key.
    pub(super) fn promise<G: PrimeGroup>(&self, broker: u16, commitment: &[Element<G>]) -> [u8; 32] {
        let mut transcript =
            Transcript::new("sealcast/v1/key ceremony promise").add(&self.0).add(&broker.to_be_bytes());
        commitment.iter().for_each(|it| transcript.absorb(it.bytes()));
        transcript.finish()
    }
}

impl Head {
    /// The head of a word, and the rest of it.
    ///
    /// # Errors
    /// [`Malformed`], also if the word is too long.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Head, &[u8]), Malformed> {
        let mut r = Reader::new(bytes);
        if bytes.len() > DKG_BYTES_MAX || r.u8()? != VERSION {
            return Err(Malformed);
        }
        let (binding, broker) = (Binding(r.array()?), r.u16()?);
        let round = match r.u8()? {
            1 => Round::Announce,
            2 => Round::Deal,
            3 => Round::Judge,
            _ => return Err(Malformed),
        };
        Ok((Head { binding, broker, round }, r.rest()))
    }

    fn begin(self) -> Writer {
        let mut w = Writer::new();
        w.u8(VERSION).raw(&self.binding.0).u16(self.broker).u8(self.round as u8);
        w
    }
}

impl<G: PrimeGroup> Announcement<G> {
    pub(super) fn encode(&self, binding: Binding, broker: u16) -> Vec<u8> {
        let mut w = Head { binding, broker, round: Round::Announce }.begin();
        w.raw(self.key.bytes()).raw(&self.knowledge.to_bytes()).raw(&self.promise);
        w.finish()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Announcement<G>, Malformed> {
        let mut r = Reader::new(body);
        let it = Announcement { key: element(&mut r)?, knowledge: knowledge(&mut r)?, promise: r.array()? };
        r.end()?;
        Ok(it)
    }
}

impl<G: PrimeGroup> Dealing<G> {
    pub(super) fn encode(&self, binding: Binding, broker: u16) -> Vec<u8> {
        let mut w = Head { binding, broker, round: Round::Deal }.begin();
        write_count(&mut w, self.commitment.len());
        self.commitment.iter().for_each(|it| {
            w.raw(it.bytes());
        });
        w.raw(&self.knowledge.to_bytes()).raw(self.sender.bytes()).raw(&self.sender_knowledge.to_bytes());
        write_count(&mut w, self.sealed.len());
        self.sealed.iter().for_each(|it| {
            w.raw(it);
        });
        w.finish()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Dealing<G>, Malformed> {
        let mut r = Reader::new(body);
        let count = r.count16(G::POINT_LEN, BROKERS_MAX)?;
        let commitment = (0..count).map(|_| element(&mut r)).collect::<Result<_, _>>()?;
        let (of_secret, sender, of_sender) = (knowledge(&mut r)?, element(&mut r)?, knowledge(&mut r)?);
        let count = r.count16(SEALED_LEN, BROKERS_MAX)?;
        let sealed = (0..count).map(|_| r.array()).collect::<Result<_, _>>()?;
        r.end()?;
        Ok(Dealing { commitment, knowledge: of_secret, sender, sender_knowledge: of_sender, sealed })
    }
}

impl<G: PrimeGroup> Complaint<G> {
    /// All of one broker, by ascending dealer.
    pub(super) fn encode_all(complaints: &[Complaint<G>], binding: Binding, broker: u16) -> Vec<u8> {
        let mut w = Head { binding, broker, round: Round::Judge }.begin();
        write_count(&mut w, complaints.len());
        complaints.iter().for_each(|it| {
            w.u16(it.dealer).raw(&it.disclosure.to_bytes());
        });
        w.finish()
    }

    pub(super) fn decode_all(body: &[u8]) -> Result<Vec<Complaint<G>>, Malformed> {
        let mut r = Reader::new(body);
        let count = r.count16(2 + disclosure_len::<G>(), BROKERS_MAX)?;
        let complaint = |r: &mut Reader<'_>| {
            let (dealer, disclosure) = (r.u16()?, Disclosure::from_bytes(r.take(disclosure_len::<G>())?));
            Ok(Complaint { dealer, disclosure: disclosure.ok_or(Malformed)? })
        };
        let all: Vec<Complaint<G>> = (0..count).map(|_| complaint(&mut r)).collect::<Result<_, _>>()?;
        r.end()?;
        if all.is_sorted_by(|a, b| a.dealer < b.dealer) { Ok(all) } else { Err(Malformed) }
    }
}

fn element<G: PrimeGroup>(r: &mut Reader<'_>) -> Result<Element<G>, Malformed> {
    Element::decode(r.take(G::POINT_LEN)?).ok_or(Malformed)
}

fn knowledge<G: PrimeGroup>(r: &mut Reader<'_>) -> Result<Knowledge<G>, Malformed> {
    Knowledge::from_bytes(r.take(knowledge_len::<G>())?).ok_or(Malformed)
}

fn write_count(w: &mut Writer, count: usize) {
    w.u16(u16::try_from(count).expect("there are at most as many as brokers"));
}

/// A share of 32 bytes with its tag.
pub(super) const SEALED_LEN: usize = 32 + aead::TAG_LEN;
const VERSION: u8 = 1;

/// The largest word, of the suite with the longer elements: t, n ≤ `BROKERS_MAX`.
const _: () = {
    const POINT: usize = 33;
    let deal = 2 + BROKERS_MAX * POINT + 3 * POINT + 64 + 2 + BROKERS_MAX * SEALED_LEN;
    let judge = 2 + BROKERS_MAX * (2 + 3 * POINT + 32);
    assert!(36 + deal <= DKG_BYTES_MAX && 36 + judge <= DKG_BYTES_MAX);
};
