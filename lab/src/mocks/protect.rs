//! The mock schemes' capability: real sealing under one key for all topics, and a MAC for a signature.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sealcast_crypto::aead::{Key, Suite};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_wire::frame::{FLAG_RELIABLE, HEADER_LEN, KIND_SEALED};
use sealcast_wire::{Domain, Dropped, EpochId, Exhausted, Header, Incarnation, Protect, Roster, Slot, Source, View};

/// Seals and opens under one epoch's secret.
pub struct MockProtect {
    epoch: EpochId,
    me: Slot,
    roster: Roster,
    secret: Secret<32>,
    /// Of those whom we heard, and ours.
    keys: Mutex<BTreeMap<Slot, Sender>>,
    vouching: Secret<32>,
    counter: AtomicU64,
    /// Of reliable records: unsigned, signed, and ordered ones; schemes here have one domain for data.
    reliable: [AtomicU64; 3],
    seen: Mutex<BTreeSet<(Slot, u64)>>,
}

/// A run of a member, and its sending key.
type Sender = Arc<(Incarnation, Key)>;

impl MockProtect {
    /// One sending key per member and incarnation (G4), made when it is needed: a large group is mostly silent.
    pub fn new(view: &View, secret: &Secret<32>) -> MockProtect {
        MockProtect {
            epoch: view.epoch,
            me: view.me,
            roster: view.members.clone(),
            secret: secret.clone(),
            keys: Mutex::default(),
            vouching: hkdf(secret.expose(), b"", &[b"sealcast/mock/vouch"]),
            counter: AtomicU64::new(0),
            reliable: [1; 3].map(AtomicU64::new),
            seen: Mutex::default(),
        }
    }

    /// The same, whose counter begins here: for schemes in which a process that starts again has the key of the one before.
    pub fn starting_at(self, counter: u64) -> MockProtect {
        MockProtect { counter: AtomicU64::new(counter), ..self }
    }

    fn key(&self, slot: Slot) -> Option<Sender> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = keys.get(&slot) {
            return Some(key.clone());
        }
        let incarnation = self.roster.get(slot)?.id.incarnation;
        let parts: [&[u8]; 4] = [b"sealcast/mock/sub", &self.epoch.to_bytes(), &slot.0.to_be_bytes(), &incarnation.0];
        let key = Arc::new((incarnation, Key::new(Suite::Aes256Gcm, &hkdf(self.secret.expose(), b"", &parts))));
        keys.insert(slot, key.clone());
        Some(key)
    }

    fn mac(&self, by: Slot, statement: &[u8]) -> Secret<32> {
        hkdf(self.vouching.expose(), b"", &[&by.0.to_be_bytes(), statement])
    }
}

impl Protect for MockProtect {
    fn epoch(&self) -> EpochId {
        self.epoch
    }

    fn slot(&self) -> Slot {
        self.me
    }

    fn seal(&self, domain: Domain, flags: u8, datagram: &mut [u8]) -> Result<u64, Exhausted> {
        let [plain, signed, ordered] = &self.reliable;
        let next = [&self.counter, plain, signed, ordered][Header::sequence(flags)];
        let counter = Header::counting(flags) | next.fetch_add(1, Ordering::Relaxed);
        Header { domain, epoch: self.epoch, slot: self.me, flags, counter }.write(datagram);
        let (header, rest) = datagram.split_at_mut(HEADER_LEN);
        self.key(self.me).expect("we are in our view").1.seal(counter, header, rest);
        Ok(counter)
    }

    fn open<'a>(&self, datagram: &'a mut [u8]) -> Result<(Source, u8, &'a mut [u8]), Dropped> {
        let Header { domain, epoch, slot, flags, counter } = Header::parse(datagram).map_err(|_| Dropped::Malformed)?;
        if epoch != self.epoch {
            return Err(Dropped::NoKey);
        }
        let sender = self.key(slot).ok_or(Dropped::Auth)?;
        let (incarnation, key) = &*sender;
        let (header, rest) = datagram.split_at_mut(HEADER_LEN);
        debug_assert_eq!(header[1], KIND_SEALED);
        let plaintext = key.open(counter, header, rest).map_err(|_| Dropped::Auth)?;
        let fresh =
            flags & FLAG_RELIABLE != 0 || self.seen.lock().map_err(|_| Dropped::Replay)?.insert((slot, counter));
        if !fresh {
            return Err(Dropped::Replay);
        }
        let source = Source::Inside { epoch, slot, incarnation: *incarnation, counter, domain };
        Ok((source, flags, plaintext))
    }

    fn vouch(&self, statement: &[u8], proof: &mut Vec<u8>) {
        proof.extend_from_slice(self.mac(self.me, statement).expose());
    }

    fn vouched(&self, by: Slot, statement: &[u8], proof: &[u8]) -> bool {
        proof == self.mac(by, statement).expose()
    }
}
