//! The capability that `keys` hands out per epoch: sealing and opening without a key in sight.

use crate::address::Source;
use crate::dropped::Dropped;
use crate::frame::{Domain, HEADER_LEN, Header, TAG_LEN};
use crate::member::{EpochId, Slot};

/// Seals and opens the datagrams of one epoch, in place, from any thread.
///
/// Counters are atomic and never repeat; replay windows live inside. What holds this holds no key
/// byte, as a QUIC stack's `PacketKey` holds none.
pub trait Protect: Send + Sync {
    /// The epoch that this seals for.
    fn epoch(&self) -> EpochId;

    /// The slot that this seals as.
    fn slot(&self) -> Slot;

    /// Bytes that sealing adds before and after the plaintext.
    fn overhead(&self) -> (usize, usize) {
        (HEADER_LEN, TAG_LEN)
    }

    /// Whether [`Protect::seal`] can still seal in this domain; asked before a message is taken, since
    /// sealing comes later, when its record is full or flushed.
    ///
    /// # Errors
    /// [`Exhausted`] as [`Protect::seal`].
    fn ready(&self, _domain: Domain) -> Result<(), Exhausted> {
        Ok(())
    }

    /// Seals `datagram` = header room ‖ plaintext ‖ tag room in place and returns its packet counter.
    ///
    /// `flags` are the frame's `FLAG_…`; reliable records are numbered by themselves ([`Header::counting`]).
    ///
    /// # Errors
    /// [`Exhausted`] when the epoch's packet counter is used up, or we hold no sending key of the domain.
    fn seal(&self, domain: Domain, flags: u8, datagram: &mut [u8]) -> Result<u64, Exhausted>;

    /// Opens `datagram` in place: who it claims to be from, its flags, and the plaintext.
    ///
    /// Verifies before it changes anything: only a datagram whose tag is right moves a replay window, and of one that is signed,
    /// or whose payload is sealed by itself, [`Protect::admit`] moves it. Of records that say `FLAG_RELIABLE` it remembers
    /// nothing: who keeps their stream knows what came. Our own are opened, too.
    fn open<'a>(&self, datagram: &'a mut [u8]) -> Result<(Source, u8, &'a mut [u8]), Dropped>;

    /// Marks a datagram as seen that was opened, once more than the group's key shows who sealed it; `false` if it was seen
    /// before. All members have the keys of all senders: one that seals in another's place shall not move its window.
    fn admit(&self, _source: &Source) -> bool {
        true
    }

    /// Whether we read what this datagram claims to be, and lack its sender's key alone: that one may still come.
    fn awaits_sender(&self, _header: &Header) -> bool {
        false
    }

    /// Appends a proof that we, and nobody else, made `statement` (A3): a signature of 64 bytes here.
    fn vouch(&self, statement: &[u8], proof: &mut Vec<u8>);

    /// Whether `proof` shows that the member at `by` made `statement`.
    fn vouched(&self, by: Slot, statement: &[u8], proof: &[u8]) -> bool;

    /// Appends a proof for each other member of the epoch, and for nobody else, that we made `statement` (A3): MACs under
    /// the keys that we share with one of them each, cheaper than a signature to make and to check; or what
    /// [`Protect::vouch`] appends, where members are too many or share no keys.
    fn attest(&self, statement: &[u8], proof: &mut Vec<u8>) {
        self.vouch(statement, proof);
    }

    /// Bytes of what [`Protect::attest`] appends.
    fn attestation_len(&self) -> usize {
        SIGNATURE_BYTES
    }

    /// Whether `proof`, of [`Protect::attest`] or [`Protect::vouch`], shows us that the member at `by` made `statement`.
    fn attested(&self, by: Slot, statement: &[u8], proof: &[u8]) -> bool {
        self.vouched(by, statement, proof)
    }

    /// What seals each message of the application by itself, beneath the datagrams' seal, where the scheme does so.
    fn payload(&self) -> Option<&dyn SealPayload> {
        None
    }
}

/// Seals and opens single messages of the application in one epoch, from any thread: each is signed by its sender.
pub trait SealPayload: Send + Sync {
    /// Seals a message, which then grows by some two hundred bytes.
    ///
    /// # Errors
    /// [`Exhausted`] if nothing can be sealed in this epoch any more: the next one can.
    fn seal(&self, context: &PayloadContext<'_>, payload: &[u8]) -> Result<Vec<u8>, Exhausted>;

    /// Opens what [`SealPayload::seal`] made in the same context, once; our own, too.
    ///
    /// # Errors
    /// Why it is of no use.
    fn open(&self, context: &PayloadContext<'_>, sealed: &[u8]) -> Result<Vec<u8>, Dropped>;

    /// Whether a new epoch is wanted, since this one can seal few messages more: said once.
    fn is_worn(&self) -> bool;
}

/// What a sealed message is bound to.
#[derive(Clone, Copy, Debug)]
pub struct PayloadContext<'a> {
    /// The epoch whose key seals its datagrams.
    pub epoch: EpochId,
    /// Who says it.
    pub by: Slot,
    /// Whether it has its place by a position in an order.
    pub ordered: bool,
    /// Its topic.
    pub topic: &'a str,
    /// The sender's clock, microseconds since 1970, if it told.
    pub sent_micros: Option<u64>,
}

/// Bytes of what [`Protect::vouch`] appends, at most.
pub const SIGNATURE_BYTES: usize = 64;

/// Who may do what to which topic in one epoch, and under which key a topic travels.
pub trait Access: Send + Sync {
    /// The compartment whose key seals this topic; `None` where no compartment covers it.
    fn domain(&self, topic: &str) -> Option<Domain>;
    /// Whether the member's certificate grants `pub` on the topic.
    fn may_publish(&self, slot: Slot, topic: &str) -> bool;
    /// Whether the member's certificate grants `sub` on the topic and it reads the topic's compartment.
    fn may_subscribe(&self, slot: Slot, topic: &str) -> bool;
    /// Whether the member holds the key of this domain, and opens what is sealed there.
    fn reads(&self, slot: Slot, domain: Domain) -> bool;
    /// Whether some reader of the topic may not write it, so that receivers demand a signature (A1).
    fn must_sign(&self, topic: &str) -> bool;
}

/// Sealing is over for this epoch and domain: ask for a new epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no sending key for this domain, or its packet counter is used up")]
pub struct Exhausted;
