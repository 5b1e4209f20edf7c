//! One epoch's keys, as the capability that seals and opens: no key leaves this file.
//!
//! ```text
//! secret of a domain ── HKDF("sealcast/v1/sub", group, epoch, domain, slot, incarnation, suite) ──▶ sender's key
//! ```
//! Each sender has a key of its own per domain, so that nonces (packet counters) cannot collide even
//! between members, and each run of a process has its own (G4). The replay window is per key.
//!
//! Senders' keys are made when their first packet comes, and stay; sealing takes no lock, opening one
//! small lock per sender and domain; neither allocates.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use sealcast_crypto::aead::{Key, PACKETS_MAX, Suite};
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::leighton_micali;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, PublicKey};
use sealcast_wire::frame::{COUNTER_RELIABLE, FLAG_RELIABLE, FLAG_SIGNED, HEADER_LEN};
use sealcast_wire::protect::SIGNATURE_BYTES;
use sealcast_wire::{
    Domain, Dropped, EpochId, Exhausted, Header, Incarnation, Protect, SealPayload, Slot, Source, limits,
};

use super::replay::Window;
use crate::compartments::Slots;

/// What an epoch is made of.
pub(crate) struct Parts {
    pub(crate) group: Arc<str>,
    pub(crate) suite: Suite,
    pub(crate) epoch: EpochId,
    pub(crate) me: Slot,
    pub(crate) members: Box<dyn Runs>,
    /// By domain; `None` where we do not read.
    pub(crate) secrets: Vec<Option<Secret<32>>>,
    /// By domain: the slots that hold its secret; `None` if all do.
    pub(crate) readers: Vec<Option<Slots>>,
    /// By domain: our own sending key where we write without reading (A1).
    pub(crate) own: Vec<Option<Secret<32>>>,
    pub(crate) signer: Arc<OriginKey>,
    /// What seals each message of the application by itself, too.
    pub(crate) payload: Option<Arc<dyn SealPayload>>,
}

/// The members of an epoch, by slot: how each runs, and the key by which it vouches.
pub(crate) trait Runs: Send + Sync {
    /// How many slots there are, blank ones before the last member's included.
    fn count(&self) -> usize;

    /// The run of a slot's member; `None` if there is none.
    fn get(&self, slot: Slot) -> Option<(Incarnation, &PublicKey)>;
}

impl Runs for Vec<(Incarnation, PublicKey)> {
    fn count(&self) -> usize {
        self.len()
    }

    fn get(&self, slot: Slot) -> Option<(Incarnation, &PublicKey)> {
        self.as_slice().get(slot.index()).map(|(incarnation, key)| (*incarnation, key))
    }
}

impl Parts {
    /// Whether a slot holds a domain's secret.
    fn reads(&self, slot: Slot, domain: usize) -> bool {
        self.readers[domain].is_none_or(|readers| readers.holds(slot.index()))
    }
}

/// Seals and opens one epoch's datagrams.
pub(crate) struct EpochKeys {
    parts: Parts,
    /// By domain.
    sending: Vec<Option<Sending>>,
    /// Of ordered records, over all domains.
    ordered: AtomicU64,
    /// By domain.
    receiving: Vec<Receivers>,
    /// What we share with the member at each slot alone, made at first use; none where nobody shows MACs.
    pair_keys: Vec<OnceLock<Option<Secret<32>>>>,
    /// Whether members show each other MACs, not signatures, what they say to all of them.
    has_mac_vectors: bool,
}

struct Sending {
    key: Key,
    next: AtomicU64,
    /// Of reliable records: unsigned ones, and signed ones.
    reliable: [AtomicU64; 2],
}

/// Senders' keys of one domain by slot, some slots at a time: of a large group few send between two changes of its key.
struct Receivers(Vec<OnceLock<Few>>);

type Few = Box<[OnceLock<Box<Receiving>>; FEW]>;

impl Receivers {
    fn new(members: usize) -> Receivers {
        Receivers((0..members.div_ceil(FEW)).map(|_| OnceLock::new()).collect())
    }

    /// The place of a slot's key; those above the last member's stay empty.
    fn get(&self, slot: Slot) -> Option<&OnceLock<Box<Receiving>>> {
        let few = self.0.get(slot.index() / FEW)?.get_or_init(|| Box::new([const { OnceLock::new() }; FEW]));
        few.get(slot.index() % FEW)
    }
}

const FEW: usize = 16;

struct Receiving {
    incarnation: Incarnation,
    key: Key,
    window: Mutex<Window>,
}

impl EpochKeys {
    pub(crate) fn new(parts: Parts) -> EpochKeys {
        let count = parts.members.count();
        let receiving = parts.secrets.iter().map(|_| Receivers::new(count)).collect();
        let own_run = parts.members.get(parts.me).map(|(incarnation, _)| incarnation);
        let sending = (0..parts.secrets.len()).map(|d| {
            let of_run = |(run, secret)| subkey(&parts, Domain(d as u16), (parts.me, run), secret);
            let sub = own_run.zip(parts.secrets[d].as_ref()).map(of_run);
            let key = sub.as_ref().or(parts.own[d].as_ref())?;
            Some(Sending {
                key: Key::new(parts.suite, key),
                next: AtomicU64::new(0),
                reliable: [1, 1].map(AtomicU64::new),
            })
        });
        let sending = sending.collect();
        let agrees = |(_, key): (Incarnation, &PublicKey)| key.algorithm() == Algorithm::Ed25519;
        let mut known = (0..count as u32).filter_map(|slot| parts.members.get(Slot(slot)));
        let has_mac_vectors = (2..=limits::MAC_VECTOR_MEMBERS_MAX).contains(&count) && known.all(agrees);
        let pair_keys = (0..if has_mac_vectors { count } else { 0 }).map(|_| OnceLock::new()).collect();
        EpochKeys { sending, pair_keys, has_mac_vectors, ordered: AtomicU64::new(1), receiving, parts }
    }

    /// Takes in the sending key that a member without read right gave to the readers (A1); the first
    /// one counts.
    pub(crate) fn learn(&self, slot: Slot, domain: Domain, key: &Secret<32>) {
        let place = self.receiving.get(usize::from(domain.0)).and_then(|d| d.get(slot));
        if let (Some(place), Some((run, _))) = (place, self.parts.members.get(slot)) {
            place.get_or_init(|| Box::new(Receiving::new(self.parts.suite, run, key)));
        }
    }

    /// Whether that key is here.
    pub(crate) fn knows(&self, slot: Slot, domain: Domain) -> bool {
        let place = self.receiving.get(usize::from(domain.0)).and_then(|d| d.get(slot));
        place.is_some_and(|p| p.get().is_some())
    }

    /// The key with which a slot seals in a domain that we read; who writes without reading announced it.
    fn receiving(&self, domain: Domain, slot: Slot) -> Option<&Receiving> {
        let place = self.receiving.get(usize::from(domain.0))?.get(slot)?;
        if let Some(known) = place.get() {
            return Some(known);
        }
        let domain_secret = self.parts.secrets[usize::from(domain.0)].as_ref();
        let (run, _) = self.parts.members.get(slot)?;
        // What we sealed ourselves, and where we write without reading.
        if let (None, Some(own)) = (domain_secret, self.parts.own[usize::from(domain.0)].as_ref())
            && slot == self.parts.me
        {
            return Some(place.get_or_init(|| Box::new(Receiving::new(self.parts.suite, run, own))));
        }
        let secret = domain_secret?;
        if !self.parts.reads(slot, usize::from(domain.0)) {
            return None;
        }
        let key = || subkey(&self.parts, domain, (slot, run), secret);
        let new = || Box::new(Receiving::new(self.parts.suite, run, &key()));
        Some(place.get_or_init(new))
    }

    /// The next packet counters, by [`Header::sequence`].
    fn counters<'a>(&'a self, sending: &'a Sending) -> [&'a AtomicU64; 4] {
        [&sending.next, &sending.reliable[0], &sending.reliable[1], &self.ordered]
    }

    fn statement(&self, slot: Slot, statement: &[u8]) -> [u8; 32] {
        let t = Transcript::new("sealcast/v1/vouch").add(self.parts.group.as_bytes());
        t.add(&self.parts.epoch.to_bytes()).add(&slot.to_bytes()).add(statement).finish()
    }

    /// What we and the member at this slot share in this epoch, ourselves among them: other members and those who left cannot
    /// know it (A3).
    fn pair_key(&self, slot: Slot) -> Option<&Secret<32>> {
        let Parts { group, epoch, me, members, signer, .. } = &self.parts;
        let derive = || {
            let agreed = signer.agree(members.get(slot)?.1)?;
            // In the order of their slots, so that both derive the same.
            let end = |slot: Slot| Some((slot.to_bytes(), members.get(slot)?));
            let (low, (low_run, low_key)) = &end(*me.min(&slot))?;
            let (high, (high_run, high_key)) = &end(*me.max(&slot))?;
            let info: [&[u8]; 8] = [
                b"sealcast/v1/pair",
                low,
                &low_run.0,
                low_key.point(),
                high,
                &high_run.0,
                high_key.point(),
                group.as_bytes(),
            ];
            Some(hkdf(agreed.expose(), &epoch.to_bytes(), &info))
        };
        self.pair_keys.get(slot.index())?.get_or_init(derive).as_ref()
    }
}

impl Receiving {
    fn new(suite: Suite, incarnation: Incarnation, key: &Secret<32>) -> Receiving {
        Receiving { incarnation, key: Key::new(suite, key), window: Mutex::new(Window::new()) }
    }

    fn window(&self) -> std::sync::MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Protect for EpochKeys {
    fn epoch(&self) -> EpochId {
        self.parts.epoch
    }

    fn slot(&self) -> Slot {
        self.parts.me
    }

    fn ready(&self, domain: Domain) -> Result<(), Exhausted> {
        let sending = self.sending.get(usize::from(domain.0)).and_then(Option::as_ref).ok_or(Exhausted)?;
        let has_capacity = self.counters(sending).iter().all(|next| next.load(Ordering::Relaxed) < PACKETS_MAX);
        if has_capacity { Ok(()) } else { Err(Exhausted) }
    }

    fn seal(&self, domain: Domain, flags: u8, datagram: &mut [u8]) -> Result<u64, Exhausted> {
        let sending = self.sending.get(usize::from(domain.0)).and_then(Option::as_ref).ok_or(Exhausted)?;
        let next = self.counters(sending)[Header::sequence(flags)];
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= PACKETS_MAX {
            next.store(PACKETS_MAX, Ordering::Relaxed);
            return Err(Exhausted);
        }
        let counter = Header::counting(flags) | number;
        Header { domain, epoch: self.parts.epoch, slot: self.parts.me, flags, counter }.write(datagram);
        let (header, body) = datagram.split_at_mut(HEADER_LEN);
        sending.key.seal(counter, header, body);
        Ok(counter)
    }

    fn open<'a>(&self, datagram: &'a mut [u8]) -> Result<(Source, u8, &'a mut [u8]), Dropped> {
        let header = Header::parse(datagram).map_err(|_| Dropped::Malformed)?;
        if header.epoch != self.parts.epoch {
            return Err(Dropped::NoKey);
        }
        if header.slot.index() >= self.parts.members.count() {
            return Err(Dropped::Malformed);
        }
        let receiving = self.receiving(header.domain, header.slot).ok_or(Dropped::NoKey)?;
        // Which reliable records came, their stream knows, however far apart they come.
        let is_reliable = header.flags & FLAG_RELIABLE != 0;
        if is_reliable != (header.counter & COUNTER_RELIABLE != 0) {
            return Err(Dropped::Malformed);
        }
        if !is_reliable && !receiving.window().is_new(header.counter) {
            return Err(Dropped::Replay);
        }
        let (head, body) = datagram.split_at_mut(HEADER_LEN);
        let plaintext = receiving.key.open(header.counter, head, body).map_err(|_| Dropped::Auth)?;
        // Two threads may have opened the same datagram at once: only one may have it.
        let is_proved_later =
            header.flags & FLAG_SIGNED != 0 || self.parts.payload.is_some() && header.domain != Domain::GROUP;
        if !is_reliable && !is_proved_later && !receiving.window().accept(header.counter) {
            return Err(Dropped::Replay);
        }
        let (epoch, slot, counter, domain) = (header.epoch, header.slot, header.counter, header.domain);
        let incarnation = receiving.incarnation;
        Ok((Source::Inside { epoch, slot, incarnation, counter, domain }, header.flags, plaintext))
    }

    fn admit(&self, source: &Source) -> bool {
        let Source::Inside { slot, counter, domain, .. } = *source else { return false };
        self.receiving(domain, slot).is_some_and(|it| it.window().accept(counter))
    }

    fn awaits_sender(&self, header: &Header) -> bool {
        let domain = usize::from(header.domain.0);
        let reads = self.parts.secrets.get(domain).is_some_and(Option::is_some);
        let place = self.receiving.get(domain).and_then(|d| d.get(header.slot));
        reads
            && header.epoch == self.parts.epoch
            && place.is_some_and(|p| p.get().is_none())
            && !self.parts.reads(header.slot, domain)
    }

    fn vouch(&self, statement: &[u8], proof: &mut Vec<u8>) {
        proof.extend_from_slice(&self.parts.signer.sign(&self.statement(self.parts.me, statement)));
    }

    fn vouched(&self, by: Slot, statement: &[u8], proof: &[u8]) -> bool {
        let member = self.parts.members.get(by);
        member.is_some_and(|(_, key)| key.verify(&self.statement(by, statement), proof).is_ok())
    }

    fn attest(&self, statement: &[u8], proof: &mut Vec<u8>) {
        if !self.has_mac_vectors {
            return self.vouch(statement, proof);
        }
        let by = self.parts.me;
        let said = self.statement(by, statement);
        proof.push(MAC_VECTOR);
        for slot in (0..self.parts.members.count() as u32).map(Slot) {
            let mac = |key: &Secret<32>| leighton_micali::tag(key, ATTEST, &[&by.to_bytes(), &said]);
            proof.extend_from_slice(&self.pair_key(slot).map_or([0; 32], mac)[..MAC_BYTES]);
        }
    }

    fn attestation_len(&self) -> usize {
        if self.has_mac_vectors { 1 + self.parts.members.count() * MAC_BYTES } else { SIGNATURE_BYTES }
    }

    fn attested(&self, by: Slot, statement: &[u8], proof: &[u8]) -> bool {
        // No vector has the length of a signature.
        if proof.len() == SIGNATURE_BYTES {
            return self.vouched(by, statement, proof);
        }
        let Some((MAC_VECTOR, macs)) = proof.split_first().map(|(kind, macs)| (*kind, macs)) else { return false };
        if !self.has_mac_vectors || macs.len() != self.parts.members.count() * MAC_BYTES {
            return false;
        }
        let ours = &macs[self.parts.me.index() * MAC_BYTES..][..MAC_BYTES];
        let said = self.statement(by, statement);
        self.pair_key(by)
            .is_some_and(|key| leighton_micali::verify(key, ATTEST, &[&by.to_bytes(), &said], ours).is_ok())
    }

    fn payload(&self) -> Option<&dyn SealPayload> {
        self.parts.payload.as_deref()
    }
}

const ATTEST: &str = "sealcast/v1/attest";
/// The first byte of a vector, so that it never has the length of a signature.
const MAC_VECTOR: u8 = 1;
const MAC_BYTES: usize = 16;

fn subkey(parts: &Parts, domain: Domain, whose: (Slot, Incarnation), secret: &Secret<32>) -> Secret<32> {
    sending_key((&parts.group, parts.suite, parts.epoch), domain, whose, secret)
}

/// G4: the key of one sender, in one run, in one domain of one epoch.
pub(crate) fn sending_key(
    (group, suite, epoch): (&str, Suite, EpochId),
    domain: Domain,
    (slot, incarnation): (Slot, Incarnation),
    secret: &Secret<32>,
) -> Secret<32> {
    hkdf(
        secret.expose(),
        &epoch.to_bytes(),
        &[
            b"sealcast/v1/sub",
            group.as_bytes(),
            &domain.0.to_be_bytes(),
            &slot.to_bytes(),
            &incarnation.0,
            &[suite as u8],
        ],
    )
}

#[cfg(test)]
mod tests {
    use sealcast_wire::frame::{FLAG_SIGNED, TAG_LEN};

    use super::*;

    const EPOCH: EpochId = EpochId { counter: 3, hash: 77 };

    /// Slot 0 and 1 read domain 0 and 1; slot 2 reads domain 0 only and writes domain 1.
    fn keys(me: u32) -> EpochKeys {
        keys_of(me, [9; 16])
    }

    fn keys_of(me: u32, last_incarnation: [u8; 16]) -> EpochKeys {
        let signer = |i: u8| OriginKey::from_seed(&Secret::from_bytes([i; 32]));
        let incarnation = |i: u8| if i == 2 { Incarnation(last_incarnation) } else { Incarnation([i; 16]) };
        let reads = me < 2;
        EpochKeys::new(Parts {
            group: "g".into(),
            suite: Suite::Aes256Gcm,
            epoch: EPOCH,
            me: Slot(me),
            members: Box::new((0..3).map(|i| (incarnation(i), signer(i).public().clone())).collect::<Vec<_>>()),
            secrets: vec![Some(Secret::from_bytes([1; 32])), reads.then(|| Secret::from_bytes([2; 32]))],
            readers: [0b111, 0b011].map(|word| Some(Slots::of_word(word))).to_vec(),
            own: vec![None, (!reads).then(|| Secret::from_bytes([5; 32]))],
            signer: Arc::new(signer(me as u8)),
            payload: None,
        })
    }

    #[test]
    fn what_cannot_be_sealed_is_said_before_it_is_tried() {
        let reader = keys(0);
        assert_eq!((reader.ready(Domain(1)), reader.ready(Domain(2))), (Ok(()), Err(Exhausted)));
        reader.sending[1].as_ref().expect("it may write").next.store(PACKETS_MAX - 1, Ordering::Relaxed);
        assert_eq!(reader.ready(Domain(1)), Ok(()));
        datagram(&reader, 1, b"the last");
        assert_eq!(reader.ready(Domain(1)), Err(Exhausted));
        assert_eq!(reader.seal(Domain(1), 0, &mut [0; 60]), Err(Exhausted));
    }

    #[test]
    fn rule_g3_what_is_signed_moves_a_window_once_its_proof_is_right() {
        let (ann, bob) = (keys(0), keys(1));
        // Every member has ann's key, and can seal in her slot, with the farthest counter; it cannot sign as she.
        let mut forged = vec![0; HEADER_LEN + 4 + TAG_LEN];
        ann.sending[0].as_ref().expect("it may write").next.store(PACKETS_MAX - 1, Ordering::Relaxed);
        ann.seal(Domain(0), FLAG_SIGNED, &mut forged).unwrap();
        ann.sending[0].as_ref().expect("it may write").next.store(0, Ordering::Relaxed);
        let mut signed = vec![0; HEADER_LEN + 4 + TAG_LEN];
        ann.seal(Domain(0), FLAG_SIGNED, &mut signed).unwrap();
        assert!(bob.open(&mut forged.clone()).is_ok(), "its tag is right");
        let (source, ..) = bob.open(&mut signed.clone()).expect("nothing was proved by the forged one");
        assert!(bob.admit(&source) && !bob.admit(&source), "once");
        assert_eq!(bob.open(&mut signed).map(|_| ()), Err(Dropped::Replay));
    }

    fn datagram(keys: &EpochKeys, domain: u16, text: &[u8]) -> Vec<u8> {
        let mut d = vec![0; HEADER_LEN];
        d.extend_from_slice(text);
        d.resize(d.len() + TAG_LEN, 0);
        keys.seal(Domain(domain), 0, &mut d).unwrap();
        d
    }

    #[test]
    fn what_a_member_seals_the_others_open_once() {
        let (a, b) = (keys(0), keys(1));
        let sealed = datagram(&a, 1, b"hello");
        let (source, flags, text) = b.open(&mut sealed.clone()).map(|(s, f, t)| (s, f, t.to_vec())).unwrap();
        let from_a = Source::Inside {
            epoch: EPOCH,
            slot: Slot(0),
            incarnation: Incarnation([0; 16]),
            counter: 0,
            domain: Domain(1),
        };
        assert_eq!((source, flags, &text[..]), (from_a, 0, &b"hello"[..]));
        assert_eq!(b.open(&mut sealed.clone()).map(|_| ()), Err(Dropped::Replay));
    }

    #[test]
    fn rule_g4_reliable_records_have_numbers_of_their_own_and_are_opened_as_often_as_they_come() {
        let (a, b) = (keys(0), keys(1));
        let seal = |flags: u8| {
            let mut d = vec![0; HEADER_LEN + TAG_LEN];
            let counter = a.seal(Domain(1), flags, &mut d).unwrap();
            (counter, d)
        };
        let (first, _) = seal(0);
        let sealed = [FLAG_RELIABLE, FLAG_RELIABLE | FLAG_SIGNED, FLAG_RELIABLE].map(seal);
        let numbers = sealed.each_ref().map(|(counter, d)| Header::reliable_number(d[19], *counter));
        assert_eq!((first, numbers), (0, [Some(1), Some(1), Some(2)]));
        // Ordered ones have one sequence over all domains, signed or not.
        for (number, (domain, flags)) in (1..).zip([(1, 6), (0, 7), (1, 14), (0, 6)]) {
            let mut d = vec![0; HEADER_LEN + TAG_LEN];
            let counter = a.seal(Domain(domain), flags, &mut d).unwrap();
            assert_eq!(Header::reliable_number(flags, counter), Some(number));
            assert!((0..2).all(|_| b.open(&mut d.clone()).is_ok()));
        }
        for (_, d) in &sealed {
            assert!((0..3).all(|_| b.open(&mut d.clone()).is_ok()));
            let mut unmarked = d.clone();
            unmarked[19] &= !FLAG_RELIABLE;
            assert_eq!(b.open(&mut unmarked).map(|_| ()), Err(Dropped::Malformed));
        }
        assert!(b.open(&mut datagram(&a, 1, b"best effort")).is_ok(), "their counters move no window");
        // Who writes without reading opens what it sealed itself, and nothing else.
        let writer = keys(2);
        let own = datagram(&writer, 1, b"log");
        assert!(writer.open(&mut own.clone()).is_ok());
    }

    #[test]
    fn rule_g1_a_forged_packet_does_not_move_the_window() {
        let (a, b) = (keys(0), keys(1));
        let sealed = datagram(&a, 0, b"hello");
        let mut forged = sealed.clone();
        forged[20..28].copy_from_slice(&(1_u64 << 40).to_be_bytes());
        assert_eq!(b.open(&mut forged).map(|_| ()), Err(Dropped::Auth));
        assert!(b.open(&mut sealed.clone()).is_ok());
    }

    /// LSGC, weakness 23, the trap of the modern port: with one key for all senders their nonces would repeat.
    #[test]
    fn lsgc_w23_rule_g4_a_key_is_of_one_incarnation_slot_domain_and_epoch() {
        let [one, other] = [keys(0), keys(1)].map(|it| datagram(&it, 0, b"the very same text"));
        assert_eq!(one[20..28], other[20..28], "both count from the beginning");
        let shared = one[HEADER_LEN..].iter().zip(&other[HEADER_LEN..]).filter(|(a, b)| a == b).count();
        assert!(shared < 8, "{shared} bytes are alike: one key stream");
        let sealed = datagram(&keys(2), 0, b"hello");
        assert!(keys(0).open(&mut sealed.clone()).is_ok());
        assert_eq!(keys_of(0, [8; 16]).open(&mut sealed.clone()).map(|_| ()), Err(Dropped::Auth));
        let mut other_slot = sealed.clone();
        other_slot[17] = 1;
        assert_eq!(keys(0).open(&mut other_slot).map(|_| ()), Err(Dropped::Auth));
        let mut other_epoch = sealed;
        other_epoch[15] ^= 1;
        assert_eq!(keys(0).open(&mut other_epoch).map(|_| ()), Err(Dropped::NoKey));
    }

    /// LSGC, weakness 9: a checksum without a key, inside of the encryption, let messages be put together of others' parts.
    #[test]
    fn lsgc_w9_no_record_is_made_of_others_or_changed() {
        let (a, b) = (keys(0), keys(1));
        let [one, two] = [b"to bob, 100, 1 copy", b"to eve, 999, 1 copy"].map(|text| datagram(&a, 1, text));
        for at in 0..one.len() {
            let mut changed = one.clone();
            changed[at] ^= 1;
            assert!(b.open(&mut changed).is_err(), "byte {at}");
            assert!(b.open(&mut one[..at].to_vec()).is_err(), "{at} bytes");
            let mut spliced = [&one[..at], &two[at..]].concat();
            assert!(spliced == two || b.open(&mut spliced).is_err(), "spliced at {at}");
        }
        assert!(b.open(&mut [&one[..], &[0]].concat()).is_err());
        assert!([one, two].iter_mut().all(|it| b.open(it).is_ok()), "no attempt used them up");
    }

    /// LSGC, weakness 22: counters began anew with each view, and what a replay is was not defined where datagrams overtake
    /// each other.
    #[test]
    fn lsgc_w22_a_record_is_opened_once_in_whatever_order_it_comes_and_in_no_other_epoch() {
        let (a, b) = (keys(0), keys(1));
        let mut sealed: Vec<Vec<u8>> = (0..500).map(|_| datagram(&a, 1, b"hello")).collect();
        sealed.reverse();
        assert!(sealed.iter().all(|it| b.open(&mut it.clone()).is_ok()));
        assert!(sealed.iter().all(|it| b.open(&mut it.clone()).map(|_| ()) == Err(Dropped::Replay)));
        // Those who are in the next epoch, where each counter comes again.
        let mut parts = keys(1).parts;
        parts.epoch.counter += 1;
        let next = EpochKeys::new(parts);
        for sealed in &sealed {
            assert_eq!(next.open(&mut sealed.clone()).map(|_| ()), Err(Dropped::NoKey));
            let mut renamed = sealed.clone();
            renamed[4..16].copy_from_slice(&next.parts.epoch.to_bytes());
            assert_eq!(next.open(&mut renamed).map(|_| ()), Err(Dropped::Auth));
        }
    }

    #[test]
    fn rule_g4_w10_sealing_ends_before_a_nonce_could_repeat() {
        let keys = keys(0);
        keys.sending[0].as_ref().unwrap().next.store(PACKETS_MAX - 1, Ordering::Relaxed);
        let mut d = vec![0; HEADER_LEN + TAG_LEN];
        assert_eq!(keys.seal(Domain(0), 0, &mut d), Ok(PACKETS_MAX - 1));
        assert_eq!(keys.seal(Domain(0), 0, &mut d), Err(Exhausted));
        assert_eq!(keys.seal(Domain(0), 0, &mut d), Err(Exhausted));
        assert_eq!(keys.seal(Domain(9), 0, &mut d), Err(Exhausted), "no such domain");
    }

    #[test]
    fn rule_a1_who_writes_without_reading_is_heard_by_its_own_key_only() {
        let (reader, writer) = (keys(0), keys(2));
        let sealed = datagram(&writer, 1, b"log");
        assert_eq!(reader.open(&mut sealed.clone()).map(|_| ()), Err(Dropped::NoKey));
        reader.learn(Slot(2), Domain(1), &Secret::from_bytes([5; 32]));
        assert!(reader.open(&mut sealed.clone()).is_ok());
        let from_reader = datagram(&reader, 1, b"secret");
        assert_eq!(writer.open(&mut from_reader.clone()).map(|_| ()), Err(Dropped::NoKey));
    }

    #[test]
    fn rule_a3_only_the_slot_itself_can_vouch() {
        let (a, b) = (keys(0), keys(1));
        let mut proof = Vec::new();
        a.vouch(b"I sent up to 17", &mut proof);
        assert!(b.vouched(Slot(0), b"I sent up to 17", &proof));
        assert!(!b.vouched(Slot(1), b"I sent up to 17", &proof) && !b.vouched(Slot(0), b"up to 18", &proof));
        assert!(
            !b.vouched(Slot(9), b"I sent up to 17", &proof) && !b.vouched(Slot(0), b"I sent up to 17", &proof[..63])
        );
    }

    #[test]
    fn rule_a3_a_mac_vector_shows_each_member_who_said_it_and_nobody_can_pass_it_off_as_its_own() {
        let [a, b, c] = [0, 1, 2].map(keys);
        let mut proof = Vec::new();
        a.attest(b"stamps", &mut proof);
        assert_eq!((proof.len(), a.attestation_len()), (1 + 3 * 16, 1 + 3 * 16));
        assert!([&b, &c].iter().all(|it| it.attested(Slot(0), b"stamps", &proof)));
        assert!(!b.attested(Slot(0), b"stamp", &proof) && !b.attested(Slot(2), b"stamps", &proof));
        assert!(!b.attested(Slot(1), b"stamps", &proof) && !b.attested(Slot(9), b"stamps", &proof));
        // Each member shares another key with the author: what one knows makes no proof for another one.
        let swapped: Vec<u8> = [&proof[..1], &proof[1..17], &proof[33..], &proof[17..33]].concat();
        assert!(!b.attested(Slot(0), b"stamps", &swapped) && !c.attested(Slot(0), b"stamps", &swapped));
        // The key is the pair's in both directions, the proof is not.
        let mut back = Vec::new();
        b.attest(b"stamps", &mut back);
        let mirrored: Vec<u8> = [&back[..1], &back[17..33], &back[1..17], &back[33..]].concat();
        assert!(!b.attested(Slot(0), b"stamps", &mirrored));
        assert!((0..proof.len()).all(|n| !b.attested(Slot(0), b"stamps", &proof[..n])));
        // A signature shows as much.
        let mut signed = Vec::new();
        a.vouch(b"stamps", &mut signed);
        assert!(b.attested(Slot(0), b"stamps", &signed) && !b.vouched(Slot(0), b"stamps", &proof));
    }

    #[test]
    fn rule_a3_a_run_and_an_epoch_have_pair_keys_of_their_own() {
        let mut proof = Vec::new();
        keys(2).attest(b"stamps", &mut proof);
        assert!(keys(0).attested(Slot(2), b"stamps", &proof));
        assert!(!keys_of(0, [8; 16]).attested(Slot(2), b"stamps", &proof));
        let mut next = keys(0);
        next.parts.epoch.counter += 1;
        assert!(!next.attested(Slot(2), b"stamps", &proof));
    }

    /// LCMsec shared ciphers and buffers between the threads that publish and receive: nonces repeated, and
    /// payloads went out in clear.
    #[test]
    fn w7_many_threads_seal_and_open_at_once_and_no_counter_repeats() {
        let (a, b) = (keys(0), keys(1));
        let sealed = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mine: Vec<Vec<u8>> = (0..500).map(|_| datagram(&a, 1, b"the very same text")).collect();
                    let echo = datagram(&b, 1, b"echo");
                    assert!(a.open(&mut echo.clone()).is_ok());
                    sealed.lock().unwrap().extend(mine);
                });
            }
        });
        let sealed = sealed.into_inner().unwrap();
        let counters: std::collections::BTreeSet<&[u8]> = sealed.iter().map(|d| &d[20..28]).collect();
        assert_eq!(counters.len(), 2000);
        // Each once, though every datagram comes to two threads.
        let opened = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for d in &sealed {
                        match b.open(&mut d.clone()) {
                            Ok((_, _, text)) => {
                                assert_eq!(text, b"the very same text");
                                opened.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(why) => assert_eq!(why, Dropped::Replay),
                        }
                    }
                });
            }
        });
        assert_eq!(opened.into_inner(), 2000);
    }

    /// LCMsec indexed an array by a number of the datagram's.
    #[test]
    fn w17_slots_and_domains_that_nobody_has_reach_no_memory() {
        let b = keys(1);
        let sealed = datagram(&keys(0), 1, b"hello");
        for (at, value) in [(16, [0xFF; 2]), (16, [0, 3]), (16, [0x80, 0]), (2, [0xFF; 2]), (2, [0, 2]), (2, [0x80, 0])]
        {
            let mut forged = sealed.clone();
            forged[at..at + 2].copy_from_slice(&value);
            assert!(b.open(&mut forged).is_err());
        }
        assert!(b.open(&mut sealed.clone()).is_ok());
    }
}
