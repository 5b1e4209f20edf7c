//! `keys=plain` where members order messages together: a group with views, in which everybody takes part and nothing is sealed.
//!
//! Order needs members that know each other and end views together. So this runs the machine of [`Contributory`], under an
//! authority whose secret everybody has: its seed is a hash of a label. Each process issues itself a certificate with
//! all rights but `evict`, for the name that it was given. What members publish travels in the group's own records, with
//! the payload in clear and zeros in the place of the tag.
//!
//! Nothing here is secure: anybody reads, joins, and speaks as anybody. All but sealing costs what it costs elsewhere, proofs
//! of stamps too, so that a comparison shows what sealing alone costs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_crypto::hash::sha256;
use sealcast_crypto::identity::authority::{AUTHORITY_VALIDITY_SECONDS, Authority, AuthorityError, Request};
use sealcast_crypto::identity::{Act, Identity, MemberSecret, Right, Rights};
use sealcast_crypto::signature::Algorithm;
use sealcast_wire::frame::{COUNTER_RELIABLE, FLAG_RELIABLE, HEADER_LEN, TAG_LEN};
use sealcast_wire::{
    Access, Domain, Dropped, EpochId, Exhausted, Header, Incarnation, Monotonic, Now, Protect, Slot, Source, Utc, View,
};

use crate::contributory::{self, Config, Contributory};
use crate::replay::Window;
use crate::{HandleError, Input, Keys, Output, Properties, Seal, SealError, Sealed};

/// What it needs: the group's own records, and a transport that flushes views or needs none flushed.
pub const GROUP_PROPERTIES: Properties = contributory::PROPERTIES;

/// The identity of a member: its name is what it says it is. Its keys come from `seed`, of which each run has its own.
///
/// # Errors
/// [`AuthorityError`]: names that certificates cannot hold.
pub fn identity(name: &str, group: &str, seed: [u8; 32]) -> Result<Identity, AuthorityError> {
    let mut authority = authority();
    let secret = MemberSecret::generate(Algorithm::Ed25519, &mut ChaCha20Rng::from_seed(seed));
    let mut rights = Rights::none();
    rights.grant(Right::new(group, Act::Both, "#")?);
    let request = Request { name: name.to_owned(), keys: secret.public(), rights, attributes: Vec::new() };
    let certificate = authority.issue(&request, BEGIN, AUTHORITY_VALIDITY_SECONDS)?;
    let identity = Identity::new(&certificate, &secret, authority.anchor().clone());
    Ok(identity.expect("the authority issued it for this secret"))
}

/// The authority whose secret is no secret.
fn authority() -> Authority {
    let mut rng = ChaCha20Rng::from_seed(sha256(AUTHORITY_LABEL));
    Authority::create("keys=plain", Algorithm::Ed25519, BEGIN, &mut rng).expect("name and dates are possible")
}

/// The machine of `keys=plain` with views; see the module.
pub struct PlainGroup {
    views: Contributory,
    /// Those that were handed out and are in use: an epoch has one, which counts its records.
    epochs: VecDeque<Weak<Unsealed>>,
}

impl PlainGroup {
    /// A member that begins; `config` holds an [`identity`] of this module.
    pub fn new(config: Config, seed: [u8; 32], now: Now) -> PlainGroup {
        PlainGroup { views: Contributory::new(config, seed, now), epochs: VecDeque::new() }
    }

    fn unsealed(&mut self, vouches: Arc<dyn Protect>, view: &View, access: &Arc<dyn Access>) -> Arc<dyn Protect> {
        self.epochs.retain(|it| it.strong_count() > 0);
        let known = self.epochs.iter().filter_map(Weak::upgrade).find(|it| it.epoch() == vouches.epoch());
        known.unwrap_or_else(|| {
            let incarnations = view.members.iter().map(|it| it.id.incarnation).collect();
            let made = Arc::new(Unsealed::new(vouches, incarnations, access.clone()));
            self.epochs.push_back(Arc::downgrade(&made));
            made
        })
    }
}

impl Keys for PlainGroup {
    fn properties(&self) -> Properties {
        GROUP_PROPERTIES
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        self.views.handle(now, input)
    }

    fn seal(&mut self, message: &Seal<'_>) -> Result<Sealed, SealError> {
        self.views.seal(message)
    }

    fn has_capacity(&self, bytes: usize) -> bool {
        self.views.has_capacity(bytes)
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.views.timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.views.handle_timeout(now);
    }

    fn poll(&mut self) -> Option<Output> {
        Some(match self.views.poll()? {
            Output::Keyed { epoch, protect, view, access, passed } => {
                let protect = self.unsealed(protect, &view, &access);
                Output::Keyed { epoch, protect, view, access, passed }
            }
            Output::Epoch { view, protect, access } => {
                let protect = protect.map(|it| self.unsealed(it, &view, &access));
                Output::Epoch { view, protect, access }
            }
            other => other,
        })
    }
}

/// One epoch's records in clear: numbered and told apart as sealed ones are.
struct Unsealed {
    /// The epoch's keys: they sign and verify statements, and seal nothing.
    vouches: Arc<dyn Protect>,
    access: Arc<dyn Access>,
    /// By slot.
    incarnations: Vec<Incarnation>,
    /// By domain and [`Header::sequence`]; ordered records take those of the first domain.
    next: [[AtomicU64; 4]; DOMAINS],
    /// By domain, then slot.
    windows: [Vec<Mutex<Window>>; DOMAINS],
}

impl Unsealed {
    fn new(vouches: Arc<dyn Protect>, incarnations: Vec<Incarnation>, access: Arc<dyn Access>) -> Unsealed {
        let windows = || incarnations.iter().map(|_| Mutex::new(Window::new())).collect();
        let windows = std::array::from_fn(|_| windows());
        let next = std::array::from_fn(|_| [0, 1, 1, 1].map(AtomicU64::new));
        Unsealed { vouches, access, incarnations, next, windows }
    }
}

impl Protect for Unsealed {
    fn epoch(&self) -> EpochId {
        self.vouches.epoch()
    }

    fn slot(&self) -> Slot {
        self.vouches.slot()
    }

    fn ready(&self, domain: Domain) -> Result<(), Exhausted> {
        if usize::from(domain.0) < DOMAINS { Ok(()) } else { Err(Exhausted) }
    }

    /// 61 bits of a counter do not run out.
    fn seal(&self, domain: Domain, flags: u8, datagram: &mut [u8]) -> Result<u64, Exhausted> {
        self.ready(domain)?;
        let sequence = Header::sequence(flags);
        let domain_of_counter = if sequence == ORDERED { 0 } else { usize::from(domain.0) };
        let number = self.next[domain_of_counter][sequence].fetch_add(1, Ordering::Relaxed);
        let counter = Header::counting(flags) | number;
        Header { domain, epoch: self.epoch(), slot: self.slot(), flags, counter }.write(datagram);
        let tag = datagram.len() - TAG_LEN;
        datagram[tag..].fill(0);
        Ok(counter)
    }

    fn open<'a>(&self, datagram: &'a mut [u8]) -> Result<(Source, u8, &'a mut [u8]), Dropped> {
        let header = Header::parse(datagram).map_err(|_| Dropped::Malformed)?;
        let Header { domain, epoch, slot, flags, counter } = header;
        if epoch != self.epoch() {
            return Err(Dropped::NoKey);
        }
        let incarnation = *self.incarnations.get(slot.index()).ok_or(Dropped::Malformed)?;
        let windows = self.windows.get(usize::from(domain.0)).ok_or(Dropped::NoKey)?;
        if !self.access.reads(self.slot(), domain) {
            return Err(Dropped::NoKey);
        }
        let is_reliable = flags & FLAG_RELIABLE != 0;
        if is_reliable != (counter & COUNTER_RELIABLE != 0) {
            return Err(Dropped::Malformed);
        }
        let (record, tag) = datagram.split_at_mut(datagram.len() - TAG_LEN);
        if tag.iter().any(|it| *it != 0) {
            return Err(Dropped::Auth);
        }
        if !is_reliable {
            let mut window = windows[slot.index()].lock().unwrap_or_else(PoisonError::into_inner);
            if !window.accept(counter) {
                return Err(Dropped::Replay);
            }
        }
        Ok((Source::Inside { epoch, slot, incarnation, counter, domain }, flags, &mut record[HEADER_LEN..]))
    }

    fn vouch(&self, statement: &[u8], proof: &mut Vec<u8>) {
        self.vouches.vouch(statement, proof);
    }

    fn vouched(&self, by: Slot, statement: &[u8], proof: &[u8]) -> bool {
        self.vouches.vouched(by, statement, proof)
    }

    fn attest(&self, statement: &[u8], proof: &mut Vec<u8>) {
        self.vouches.attest(statement, proof);
    }

    fn attestation_len(&self) -> usize {
        self.vouches.attestation_len()
    }

    fn attested(&self, by: Slot, statement: &[u8], proof: &[u8]) -> bool {
        self.vouches.attested(by, statement, proof)
    }
}

const AUTHORITY_LABEL: &[u8] = b"sealcast/v1/plain/authority";
/// When authority and certificates begin, 2026-01-01T00:00:00Z; they last ten years.
const BEGIN: Utc = Utc(1_767_225_600);
/// The group's own, and the one compartment of members with the same rights.
const DOMAINS: usize = 2;
/// The sequence of ordered records, which is one over all domains.
const ORDERED: usize = 3;

#[cfg(test)]
mod tests {
    use sealcast_crypto::aead::Suite;
    use sealcast_crypto::secret::Secret;
    use sealcast_crypto::signature::OriginKey;
    use sealcast_wire::frame::{FLAG_ORDERED, FLAG_SIGNED, MAGIC};

    use super::*;
    use crate::epoch::{EpochKeys, Parts};
    use crate::plain::Everything;

    /// Two members of one epoch.
    fn pair() -> [Unsealed; 2] {
        let signers = [1, 2].map(|it| OriginKey::from_seed(&Secret::from_bytes([it; 32])));
        let incarnations = [1, 2].map(|it| Incarnation([it; 16]));
        [0, 1].map(|me| {
            let runs: Vec<_> = incarnations.into_iter().zip(signers.iter().map(|it| it.public().clone())).collect();
            let vouches = EpochKeys::new(Parts {
                group: "g".into(),
                suite: Suite::Aes256Gcm,
                epoch: EpochId { counter: 3, hash: 77 },
                me: Slot(me as u32),
                members: Box::new(runs),
                secrets: [5, 6].map(|it| Some(Secret::from_bytes([it; 32]))).into(),
                readers: vec![None; 2],
                own: vec![None, None],
                signer: Arc::new(OriginKey::from_seed(&Secret::from_bytes([me as u8 + 1; 32]))),
                payload: None,
            });
            Unsealed::new(Arc::new(vouches), incarnations.to_vec(), Arc::new(Everything))
        })
    }

    fn record(keys: &dyn Protect, domain: u16, flags: u8, text: &[u8]) -> Vec<u8> {
        let mut datagram = [&[0; HEADER_LEN][..], text, &[7; TAG_LEN]].concat();
        keys.seal(Domain(domain), flags, &mut datagram).expect("a domain of two");
        datagram
    }

    #[test]
    fn what_members_publish_is_readable_by_all_and_comes_once() {
        let [a, b] = pair();
        for domain in [0, 1] {
            let sent = record(&a, domain, 0, b"in clear");
            assert_eq!((sent[0], &sent[HEADER_LEN..sent.len() - TAG_LEN]), (MAGIC, &b"in clear"[..]));
            let mut heard = sent.clone();
            let (source, _, text) = b.open(&mut heard).expect("no key is needed");
            assert_eq!(text, b"in clear");
            assert!(matches!(source, Source::Inside { slot, domain: d, .. } if slot == a.slot() && d.0 == domain));
            assert_eq!(b.open(&mut sent.clone()).map(|_| ()), Err(Dropped::Replay));
        }
        assert_eq!(a.seal(Domain(2), 0, &mut [0; 60]), Err(Exhausted));
    }

    #[test]
    fn reliable_records_are_numbered_as_sealed_ones_are() {
        let [a, b] = pair();
        let ordered = FLAG_RELIABLE | FLAG_ORDERED;
        for (number, (domain, flags)) in (1..).zip([(1, ordered), (0, ordered | FLAG_SIGNED), (1, ordered)]) {
            let sent = record(&a, domain, flags, b"one sequence over all domains");
            let counter = Header::parse(&sent).expect("ours").counter;
            assert_eq!(Header::reliable_number(flags, counter), Some(number));
            assert!((0..2).all(|_| b.open(&mut sent.clone()).is_ok()));
        }
        for flags in [FLAG_RELIABLE, FLAG_RELIABLE | FLAG_SIGNED] {
            for domain in [0, 1] {
                let counter = Header::parse(&record(&a, domain, flags, b"")).expect("ours").counter;
                assert_eq!(Header::reliable_number(flags, counter), Some(1), "a sequence each");
            }
        }
    }

    /// A comparison with sealed groups shows what sealing costs, and nothing else.
    #[test]
    fn members_prove_statements_as_in_a_sealed_group() {
        let [a, b] = pair();
        let mut proof = Vec::new();
        a.attest(b"stamps", &mut proof);
        assert_eq!((proof.len(), a.attestation_len()), (1 + 2 * 16, 1 + 2 * 16));
        assert!(b.attested(a.slot(), b"stamps", &proof) && !b.attested(a.slot(), b"others", &proof));
    }

    #[test]
    fn rule_g2_hostile_records_reach_no_memory() {
        let [a, b] = pair();
        let sent = record(&a, 1, 0, b"hello");
        for (at, value) in [(2, [0xFF; 2]), (2, [0, 2]), (16, [0xFF; 2]), (16, [0, 2])] {
            let mut forged = sent.clone();
            forged[at..at + 2].copy_from_slice(&value);
            assert!(b.open(&mut forged).is_err());
        }
        let mut with_tag = sent.clone();
        *with_tag.last_mut().expect("it has a tag") = 1;
        assert_eq!(b.open(&mut with_tag).map(|_| ()), Err(Dropped::Auth), "a sealed record is none of these");
        assert_eq!(b.open(&mut sent[..40].to_vec()).map(|_| ()), Err(Dropped::Malformed));
        assert!(b.open(&mut sent.clone()).is_ok(), "what is refused moves no window");
    }

    /// All programs have the same authority: another one in the next version would split groups.
    #[test]
    fn the_authority_is_the_one_of_the_wire() {
        assert_eq!(
            authority().fingerprint().to_string(),
            "scca1lx7pax5c2cnqucp9mfqqpnz9gfyjssvg09jg7axdw89l099exdss8j6agf"
        );
    }
}
