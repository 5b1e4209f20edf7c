//! A group under one key for tests and the bench: real AEAD, replay windows, signatures that only
//! their slot can make.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use sealcast_crypto::aead::{Key, Suite};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::frame::{FLAG_RELIABLE, HEADER_LEN};
use sealcast_wire::limits::REPLAY_WINDOW_PACKETS;
use sealcast_wire::{Access, Domain, Dropped, EpochId, Exhausted, Header, Incarnation, Protect, Slot, Source, limits};

/// Domains that a [`Ring`] seals in.
pub(crate) const DOMAINS: u16 = 4;

/// One member's capability; all members of an epoch can seal as anybody (A2).
pub(crate) struct Ring {
    epoch: EpochId,
    slot: Slot,
    /// By slot.
    runs: Vec<Incarnation>,
    /// By slot and domain.
    keys: Arc<Keys>,
    counters: Vec<AtomicU64>,
    /// By domain: of reliable records, unsigned and signed ones.
    reliable: Vec<[AtomicU64; 2]>,
    /// Of ordered ones, over all domains.
    ordered: AtomicU64,
    /// Packets that may be sealed per domain.
    pub(crate) packets_max: u64,
    windows: Mutex<BTreeMap<(Slot, Domain), Window>>,
}

impl Ring {
    /// Slot `slot` of `members` in an epoch whose key follows from its counter.
    pub(crate) fn member(epoch: u32, slot: u32, members: u32) -> Ring {
        Ring::of_runs(epoch, slot, (0..members).map(|slot| incarnation(Slot(slot))).collect())
    }

    /// The same of these processes.
    pub(crate) fn of_runs(epoch: u32, slot: u32, runs: Vec<Incarnation>) -> Ring {
        let members = runs.len() as u32;
        Ring {
            epoch: epoch_id(epoch),
            slot: Slot(slot),
            runs,
            keys: keys(epoch, members),
            counters: (0..DOMAINS).map(|_| AtomicU64::new(0)).collect(),
            reliable: (0..DOMAINS).map(|_| [1, 1].map(AtomicU64::new)).collect(),
            ordered: AtomicU64::new(1),
            packets_max: u64::MAX,
            windows: Mutex::default(),
        }
    }

    /// Seals chosen plaintext as any member: what a hostile insider can do.
    pub(crate) fn forge(&self, domain: Domain, flags: u8, slot: Slot, counter: u64, plaintext: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; HEADER_LEN];
        datagram.extend_from_slice(plaintext);
        datagram.extend_from_slice(&[0; 16]);
        Header { domain, epoch: self.epoch, slot, flags, counter }.write(&mut datagram);
        let (header, rest) = datagram.split_at_mut(HEADER_LEN);
        self.keys[&(slot, domain)].seal(counter, header, rest);
        datagram
    }
}

/// The same process in every epoch.
pub(crate) fn incarnation(slot: Slot) -> Incarnation {
    let mut bytes = [0xAA; 16];
    bytes[..4].copy_from_slice(&slot.to_bytes());
    Incarnation(bytes)
}

/// All members of an epoch.
pub(crate) fn group(epoch: u32, members: u32) -> Vec<Arc<dyn Protect>> {
    (0..members).map(|slot| Arc::new(Ring::member(epoch, slot, members)) as Arc<dyn Protect>).collect()
}

/// The rights of a group in which everybody may do everything, in one compartment.
pub(crate) fn everything() -> Arc<dyn Access> {
    struct Everything;
    impl Access for Everything {
        fn domain(&self, _: &str) -> Option<Domain> {
            Some(Domain(1))
        }
        fn may_publish(&self, _: Slot, _: &str) -> bool {
            true
        }
        fn may_subscribe(&self, _: Slot, _: &str) -> bool {
            true
        }
        fn reads(&self, _: Slot, _: Domain) -> bool {
            true
        }
        fn must_sign(&self, _: &str) -> bool {
            false
        }
    }
    Arc::new(Everything)
}

/// The key of a slot, the same in every epoch.
fn signing(slot: Slot) -> &'static OriginKey {
    static KEYS: [OnceLock<OriginKey>; limits::ORDERED_MEMBERS_MAX] =
        [const { OnceLock::new() }; limits::ORDERED_MEMBERS_MAX];
    KEYS[slot.index()].get_or_init(|| {
        let mut seed = [7; 32];
        seed[..2].copy_from_slice(&slot.to_bytes()[2..]);
        OriginKey::from_seed(&Secret::from_bytes(seed))
    })
}

/// The keys of all members of an epoch, which all of them share: a large group's take long to make.
fn keys(epoch: u32, members: u32) -> Arc<Keys> {
    thread_local!(static LAST: RefCell<Option<(u32, u32, Arc<Keys>)>> = const { RefCell::new(None) });
    let last = LAST.take().filter(|last| (last.0, last.1) == (epoch, members));
    let key = |of: u32, domain: u16| {
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(&epoch.to_be_bytes());
        secret[8..12].copy_from_slice(&Slot(of).to_bytes());
        secret[6..8].copy_from_slice(&domain.to_be_bytes());
        ((Slot(of), Domain(domain)), Key::new(Suite::Aes256Gcm, &Secret::from_bytes(secret)))
    };
    let all = || (0..members).flat_map(|of| (0..DOMAINS).map(move |domain| key(of, domain))).collect();
    let keys = last.map_or_else(|| Arc::new(all()), |(.., keys)| keys);
    LAST.set(Some((epoch, members, keys.clone())));
    keys
}

type Keys = BTreeMap<(Slot, Domain), Key>;

/// The name of an epoch.
pub(crate) fn epoch_id(epoch: u32) -> EpochId {
    EpochId { counter: epoch, hash: 0xE0 + u64::from(epoch) }
}

impl Protect for Ring {
    fn epoch(&self) -> EpochId {
        self.epoch
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn ready(&self, domain: Domain) -> Result<(), Exhausted> {
        let counter = self.counters.get(usize::from(domain.0)).ok_or(Exhausted)?;
        if counter.load(Ordering::Relaxed) < self.packets_max { Ok(()) } else { Err(Exhausted) }
    }

    fn seal(&self, domain: Domain, flags: u8, datagram: &mut [u8]) -> Result<u64, Exhausted> {
        self.ready(domain)?;
        let at = usize::from(domain.0);
        let [plain, signed] = &self.reliable[at];
        let next = [&self.counters[at], plain, signed, &self.ordered][Header::sequence(flags)];
        let counter = Header::counting(flags) | next.fetch_add(1, Ordering::Relaxed);
        Header { domain, epoch: self.epoch, slot: self.slot, flags, counter }.write(datagram);
        let (header, rest) = datagram.split_at_mut(HEADER_LEN);
        self.keys[&(self.slot, domain)].seal(counter, header, rest);
        Ok(counter)
    }

    fn open<'a>(&self, datagram: &'a mut [u8]) -> Result<(Source, u8, &'a mut [u8]), Dropped> {
        let Header { domain, epoch, slot, flags, counter } = Header::parse(datagram)?;
        let key = self.keys.get(&(slot, domain)).filter(|_| epoch == self.epoch).ok_or(Dropped::NoKey)?;
        let (header, rest) = datagram.split_at_mut(HEADER_LEN);
        let plaintext = key.open(counter, header, rest).map_err(|_| Dropped::Auth)?;
        let mut windows = self.windows.lock().expect("no test panics while it holds this");
        if flags & FLAG_RELIABLE == 0 && !windows.entry((slot, domain)).or_default().mark(counter) {
            return Err(Dropped::Replay);
        }
        let incarnation = self.runs[slot.index()];
        let source = Source::Inside { epoch, slot, incarnation, counter, domain };
        Ok((source, flags, plaintext))
    }

    fn vouch(&self, statement: &[u8], proof: &mut Vec<u8>) {
        proof.extend_from_slice(signing(self.slot).sign(statement).as_ref());
    }

    fn vouched(&self, by: Slot, statement: &[u8], proof: &[u8]) -> bool {
        by.index() < self.runs.len() && signing(by).public().verify(statement, proof).is_ok()
    }

    fn attest(&self, statement: &[u8], proof: &mut Vec<u8>) {
        proof.push(1);
        self.vouch(&[b"to members", statement].concat(), proof);
    }

    fn attestation_len(&self) -> usize {
        1 + 64
    }

    fn attested(&self, by: Slot, statement: &[u8], proof: &[u8]) -> bool {
        match proof.split_first() {
            Some((1, rest)) if rest.len() == 64 => self.vouched(by, &[b"to members", statement].concat(), rest),
            _ => self.vouched(by, statement, proof),
        }
    }
}

struct Window {
    next: u64,
    seen: Vec<bool>,
}

impl Default for Window {
    fn default() -> Window {
        Window { next: 0, seen: vec![false; REPLAY_WINDOW_PACKETS] }
    }
}

impl Window {
    fn mark(&mut self, counter: u64) -> bool {
        let size = REPLAY_WINDOW_PACKETS as u64;
        if counter + size < self.next {
            return false;
        }
        if counter >= self.next {
            for skipped in self.next.max((counter + 1).saturating_sub(size))..=counter {
                self.seen[(skipped % size) as usize] = false;
            }
            self.next = counter + 1;
        }
        !std::mem::replace(&mut self.seen[(counter % size) as usize], true)
    }
}
