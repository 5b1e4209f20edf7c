//! A scheme with the shape of threshold decryption at brokers (Chios): the body comes now, shares of
//! its key come later from each broker, some of them are false, and who may not read gets ⊥.
//!
//! ```text
//! publisher ─ seal: header (policy, commitments, one sealed share per broker), body ─▶ order
//! reader    ◀─ Deliver(body) … ◀─ Attach(share by broker) … combine ─ reader check
//!              ├ holds: Opened(body)       └ fails: Fetch(Shares) ─ leave out the false ─ again
//!              └ f+1 brokers deny: Opened(⊥)
//! ```
//! Keys follow from names, and a proof is a list of hashes: shape, not strength.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_crypto::aead::{Key, Suite};
use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_crypto::hpke::{self, KeyPair};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{OriginKey, PublicKey};
use sealcast_keys::plain::Everything;
use sealcast_keys::{
    CommandError, Delivered, FetchId, Fetches, HandleError, Input, Keys, Need, Output, Properties, Seal, SealError,
    Sealed,
};
use sealcast_wire::frame::TAG_LEN;
use sealcast_wire::{
    Agreement, CertHash, Change, Dropped, EpochId, Fetch, Guarantee, Incarnation, Malformed, Member, MemberId,
    Monotonic, Now, Reader, Slot, View, Writer,
};

use super::sharing::{Share, combine, split};

/// A client's machine: publishes, reads, or both.
pub struct ThresholdShaped {
    name: String,
    incarnation: Incarnation,
    roster: Vec<String>,
    rng: ChaCha8Rng,
    pair: KeyPair,
    waiting: BTreeMap<u64, Waiting>,
    fetches: BTreeMap<FetchId, u64>,
    names: u64,
    outputs: VecDeque<Output>,
}

/// A message whose shares are being collected.
#[derive(Default)]
struct Waiting {
    sealed: Option<(Header, Vec<u8>)>,
    shares: BTreeMap<u16, Share>,
    proofs: BTreeMap<u16, Vec<[u8; 32]>>,
    denied: std::collections::BTreeSet<u16>,
    /// A reader check failed: count only shares with proof.
    doubted: bool,
    ask_at: Monotonic,
}

/// What carriers and brokers may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    author: String,
    id: [u8; 16],
    /// Hash of the message's key: the reader check.
    commitment: [u8; 32],
    /// Hash of the list of the shares' hashes: what proofs are checked against.
    root: [u8; 32],
    /// By broker: share and list of hashes, sealed to it.
    packets: Vec<Vec<u8>>,
    signature: Vec<u8>,
}

impl ThresholdShaped {
    /// A client; the roster is who takes part, for views only.
    pub fn new(name: &str, roster: Vec<String>, seed: [u8; 32]) -> ThresholdShaped {
        let mut machine = ThresholdShaped {
            name: name.to_owned(),
            incarnation: Incarnation(seed[..16].try_into().expect("a seed has 32 bytes")),
            roster,
            rng: ChaCha8Rng::from_seed(seed),
            pair: pair(name),
            waiting: BTreeMap::new(),
            fetches: BTreeMap::new(),
            names: 0,
            outputs: VecDeque::new(),
        };
        if let Some(view) = machine.view() {
            machine.outputs.push_back(Output::Epoch { view, protect: None, access: Arc::new(Everything) });
        }
        machine
    }

    fn view(&self) -> Option<View> {
        let member = |name: &String| Member {
            id: MemberId { cert: CertHash(sha256(name.as_bytes())), incarnation: Incarnation::default() },
            name: name.as_str().into(),
        };
        let mut members: Vec<Member> = self.roster.iter().map(member).collect();
        members.sort_by_key(|m| m.id);
        let me = members.iter().position(|m| *m.name == *self.name)?;
        Some(View::new(None, EPOCH, members.into_iter().collect(), Slot(me as u32), Change::Formed))
    }

    fn take(&mut self, index: u64, broker: u16, attachment: &[u8]) -> Result<(), Malformed> {
        let mut r = Reader::new(attachment);
        let kind = r.u8()?;
        let opened = self.pair.open(INFO, &index.to_be_bytes(), r.rest()).map_err(|_| Malformed)?;
        let mut r = Reader::new(&opened);
        let waiting = self.waiting.entry(index).or_default();
        match kind {
            SHARE => {
                let share = Share { at: r.u8()?, values: r.array()? };
                if usize::from(share.at) == usize::from(broker) + 1 {
                    waiting.shares.insert(broker, share);
                }
            }
            DENIED => {
                waiting.denied.insert(broker);
            }
            PROOF => {
                let n = r.count16(32, usize::from(BROKERS))?;
                let hashes = (0..n).map(|_| r.array()).collect::<Result<_, _>>()?;
                waiting.proofs.insert(broker, hashes);
            }
            _ => return Err(Malformed),
        }
        Ok(())
    }

    /// Opens a message if its shares suffice.
    fn look(&mut self, index: u64) {
        let Some(waiting) = self.waiting.get_mut(&index) else { return };
        let Some((header, body)) = &waiting.sealed else { return };
        if waiting.denied.len() > FAULTY {
            self.waiting.remove(&index);
            self.outputs.push_back(Output::Opened { index, origin: None, bodies: None });
            return;
        }
        let proved = |broker: &u16, share: &Share| {
            let proof = waiting.proofs.get(broker);
            proof.is_some_and(|hashes| {
                root(hashes) == header.root && hashes.get(usize::from(*broker)) == Some(&share_hash(share))
            })
        };
        let shares: Vec<Share> = waiting
            .shares
            .iter()
            .filter(|(broker, share)| !waiting.doubted || proved(broker, share))
            .take(THRESHOLD)
            .map(|(_, share)| share.clone())
            .collect();
        if shares.len() < THRESHOLD {
            return;
        }
        let key = combine(&shares);
        if sha256(&key) == header.commitment {
            let (origin, opened) = (header.verified_author(body), header.open(&key, body));
            self.waiting.remove(&index);
            self.outputs.push_back(Output::Opened { index, origin, bodies: opened.map(|body| vec![body]) });
        } else if !waiting.doubted {
            waiting.doubted = true;
            self.ask(index);
            self.look(index);
        }
    }

    /// Asks the brokers for shares and proofs of a message.
    fn ask(&mut self, index: u64) {
        self.names += 1;
        let id = FetchId(self.names);
        self.fetches.insert(id, index);
        self.outputs.push_back(Output::Fetch { id, what: Fetch::Shares { index, proved: true } });
    }
}

impl ThresholdShaped {
    fn open(&mut self, now: Now, message: Delivered<'_>) {
        let index = message.index;
        if let Some(body) = message.body {
            match Header::read(message.header) {
                Ok(header) => {
                    let waiting = self.waiting.entry(index).or_default();
                    waiting.sealed = Some((header, body.to_vec()));
                    waiting.ask_at = now.monotonic + TIMEOUT;
                }
                Err(Malformed) => {
                    self.outputs.push_back(Output::Opened { index, origin: None, bodies: None });
                    return;
                }
            }
        }
        for (broker, attachment) in message.attachments {
            // An attachment may come before its message, and long after it was opened.
            if *broker < BROKERS && self.waiting.len() < WAITING_MAX {
                let known = self.waiting.contains_key(&index);
                if self.take(index, *broker, attachment).is_err() && !known {
                    self.waiting.remove(&index);
                }
            }
        }
        self.look(index);
    }
}

impl Keys for ThresholdShaped {
    fn properties(&self) -> Properties {
        Properties {
            data: Need(Guarantee::Ordered, Agreement::Forkable),
            fetches: Fetches { shares: true, directory: false },
            seals_messages: true,
            ..Properties::ANY
        }
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        match input {
            Input::Delivered(message) => self.open(now, message),
            Input::Fetched(id, _) => {
                // Proofs come as attachments, one per broker; the answer only says that the asking is over.
                self.fetches.remove(&id);
            }
            Input::Message { .. } => return Err(Dropped::Foreign.into()),
            Input::Command(_) => return Err(CommandError::Unsupported.into()),
            Input::Outcome(..)
            | Input::InForce(_)
            | Input::Passed(_)
            | Input::Ends
            | Input::PackagesKept(_)
            | Input::Suspected(_)
            | Input::Slow(_)
            | Input::Flushed(..)
            | Input::Up
            | Input::Describe => {}
        }
        Ok(())
    }

    fn seal(&mut self, message: &Seal<'_>) -> Result<Sealed, SealError> {
        let (topic, &[body]) = (message.envelope.topic(), message.bodies) else { return Err(SealError::TooLarge) };
        let mut key = [0; 32];
        self.rng.fill_bytes(&mut key);
        let shares = split(&key, THRESHOLD, BROKERS as u8, || self.rng.next_u32() as u8);
        let hashes: Vec<[u8; 32]> = shares.iter().map(share_hash).collect();
        let id = Transcript::new("sealcast/mock/id").add(&self.incarnation.0).add(&message.id).finish();
        let id: [u8; 16] = id[..16].try_into().expect("a hash has 32 bytes");
        let mut packets = Vec::new();
        for share in &shares {
            let mut w = Writer::new();
            w.u8(share.at).raw(&share.values).u16(hashes.len() as u16);
            for hash in &hashes {
                w.raw(hash);
            }
            let broker = pair(&broker_name(u16::from(share.at) - 1)).public();
            let packet = hpke::seal_to(&broker, INFO, &id, w.as_slice(), &mut self.rng);
            packets.push(packet.expect("brokers have good keys"));
        }
        let mut body = body.to_vec();
        body.resize(body.len() + TAG_LEN, 0);
        Key::new(Suite::Aes256Gcm, &Secret::from_bytes(key)).seal(0, topic.as_bytes(), &mut body);
        let mut header = Header {
            author: self.name.clone(),
            id,
            commitment: sha256(&key),
            root: root(&hashes),
            packets,
            signature: Vec::new(),
        };
        header.signature = signing_key(&self.name).sign(&header.statement(&body)).to_vec();
        let mut sealed = Writer::new();
        sealed.bytes16(topic.as_bytes()).raw(&body);
        Ok(Sealed { header: header.bytes(), body: sealed.finish(), epoch: EPOCH })
    }

    fn has_capacity(&self, _bytes: usize) -> bool {
        true
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.waiting.values().filter(|w| w.sealed.is_some()).map(|w| w.ask_at).min()
    }

    fn handle_timeout(&mut self, now: Now) {
        let due = |w: &Waiting| w.sealed.is_some() && w.ask_at <= now.monotonic;
        let late: Vec<u64> = self.waiting.iter().filter(|(_, w)| due(w)).map(|(i, _)| *i).collect();
        for index in late {
            self.waiting.get_mut(&index).expect("just found").ask_at = now.monotonic + TIMEOUT;
            if !self.fetches.values().any(|i| *i == index) {
                self.ask(index);
            }
        }
        // What was opened long ago still gets late shares; they wait for nothing.
        let newest = self.waiting.keys().next_back().copied().unwrap_or(0);
        self.waiting.retain(|index, w| w.sealed.is_some() || index + LATE > newest);
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

impl Header {
    fn statement(&self, body: &[u8]) -> [u8; 32] {
        let mut t = Transcript::new("sealcast/mock/sealed").add(self.author.as_bytes()).add(&self.id);
        t = t.add(&self.commitment).add(&self.root).add(&sha256(body));
        self.packets.iter().fold(t, |t, p| t.add(p)).finish()
    }

    /// Who sealed it, if the signature says so.
    fn verified_author(&self, body: &[u8]) -> Option<CertHash> {
        let mut r = Reader::new(body);
        r.bytes16(TOPIC_MAX).ok()?;
        let key = signing_key(&self.author);
        let public: &PublicKey = key.public();
        public.verify(&self.statement(r.rest()), &self.signature).ok()?;
        Some(CertHash(sha256(self.author.as_bytes())))
    }

    fn open(&self, key: &[u8; 32], body: &[u8]) -> Option<Vec<u8>> {
        let mut r = Reader::new(body);
        let topic = r.bytes16(TOPIC_MAX).ok()?;
        let mut body = r.rest().to_vec();
        let key = Key::new(Suite::Aes256Gcm, &Secret::from_bytes(*key));
        key.open(0, topic, &mut body).ok().map(|plaintext| plaintext.to_vec())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.bytes16(self.author.as_bytes()).raw(&self.id).raw(&self.commitment).raw(&self.root);
        w.bytes16(&self.signature).u16(self.packets.len() as u16);
        for packet in &self.packets {
            w.bytes16(packet);
        }
        w.finish()
    }

    fn read(bytes: &[u8]) -> Result<Header, Malformed> {
        let mut r = Reader::new(bytes);
        let author = String::from_utf8(r.bytes16(64)?.to_vec()).map_err(|_| Malformed)?;
        let (id, commitment, root) = (r.array()?, r.array()?, r.array()?);
        let signature = r.bytes16(128)?.to_vec();
        let n = r.count16(2, usize::from(BROKERS))?;
        let packets = (0..n).map(|_| r.bytes16(1024).map(<[u8]>::to_vec)).collect::<Result<_, _>>()?;
        r.end()?;
        Ok(Header { author, id, commitment, root, packets, signature })
    }
}

/// What a broker does with a message: its share for a reader and, where it was asked for, the proof,
/// each sealed to that reader.
///
/// `lies` makes the share false; `allowed` is the broker's judgement of the policy.
#[allow(clippy::too_many_arguments)] // the facts of one judgement
pub fn answers(
    broker: u16,
    index: u64,
    header: &[u8],
    reader: &str,
    allowed: bool,
    lies: bool,
    proof: bool,
    rng: &mut ChaCha8Rng,
) -> Vec<Vec<u8>> {
    let Ok(header) = Header::read(header) else { return Vec::new() };
    let packet = header.packets.get(usize::from(broker));
    let opened = packet.and_then(|p| pair(&broker_name(broker)).open(INFO, &header.id, p).ok());
    let Some(mut packet) = opened.map(|p| p.to_vec()) else { return Vec::new() };
    if lies {
        packet[7] ^= 0x55;
    }
    let mut attachment = |kind: u8, bytes: &[u8]| {
        let sealed = hpke::seal_to(&pair(reader).public(), INFO, &index.to_be_bytes(), bytes, rng);
        [&[kind][..], &sealed.expect("readers have good keys")].concat()
    };
    match (allowed, proof) {
        (false, _) => vec![attachment(DENIED, b"no")],
        (true, false) => vec![attachment(SHARE, &packet[..33])],
        (true, true) => vec![attachment(SHARE, &packet[..33]), attachment(PROOF, &packet[33..])],
    }
}

/// A broker's name.
pub fn broker_name(broker: u16) -> String {
    format!("broker {broker}")
}

fn pair(name: &str) -> KeyPair {
    KeyPair::derive(&hkdf(name.as_bytes(), b"", &[b"sealcast/mock/pair"]))
}

fn signing_key(name: &str) -> OriginKey {
    OriginKey::from_seed(&hkdf(name.as_bytes(), b"", &[b"sealcast/mock/sign"]))
}

fn share_hash(share: &Share) -> [u8; 32] {
    Transcript::new("sealcast/mock/share").add(&[share.at]).add(&share.values).finish()
}

fn root(hashes: &[[u8; 32]]) -> [u8; 32] {
    hashes.iter().fold(Transcript::new("sealcast/mock/root"), |t, h| t.add(h)).finish()
}

/// How many brokers there are: 3f + 1.
pub const BROKERS: u16 = 4;
/// How many of them may lie.
const FAULTY: usize = 1;
/// Shares that give the key: f + 1, as in the paper.
const THRESHOLD: usize = FAULTY + 1;
const EPOCH: EpochId = EpochId { counter: 1, hash: 1 };
const SHARE: u8 = 1;
const DENIED: u8 = 2;
const PROOF: u8 = 3;
const TOPIC_MAX: usize = 255;
const WAITING_MAX: usize = 4096;
/// Shares of messages this far behind are no longer kept.
const LATE: u64 = 256;
/// How long shares may take before the brokers are asked again.
const TIMEOUT: Duration = Duration::from_millis(150);
const INFO: &[u8] = b"sealcast/mock/threshold";
