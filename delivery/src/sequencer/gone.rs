//! What was forgotten, and somebody asks for: GONE.
//!
//! ```text
//! NAK for what all readers are said to have ─▶ GONE, proved ─▶ of a fifo stream: it goes on behind the gap
//!                                                          └─▶ of the order: another view is asked for, where it goes on so
//! ```
//! Of the order the sequencer alone is believed, who could stop it anyway: a sender that says so of its own records would make
//! a gap where others hold them.

use sealcast_crypto::hash::Transcript;
use sealcast_wire::{Dropped, Monotonic, Protect, Slot};

use super::control::{Control, Of, ROOM, gone_statement};
use super::saying::TAIL_AGAIN;
use super::{Current, Sequencer};
use crate::Output;
use crate::multicast::frame::Stream;

/// What the sequencer vouches for that has nothing of the order before this sequence number any more, as all hold that.
fn past_statement(first: u64) -> [u8; 32] {
    Transcript::new("sealcast/v1/gone order").add(&first.to_be_bytes()).finish()
}

/// A proof that we say so (A3), which fits beside a few numbers into a control frame of any segment.
fn prove(protect: &dyn Protect, statement: &[u8]) -> Vec<u8> {
    let mut proof = Vec::new();
    match protect.attestation_len() + BESIDE_PROOF <= ROOM {
        true => protect.attest(statement, &mut proof),
        false => protect.vouch(statement, &mut proof),
    }
    proof
}

impl Sequencer {
    /// Somebody asks for records of ours of which we have only those from `first` on.
    pub(super) fn say_gone(&mut self, now: Monotonic, stream: Stream, first: u64) {
        let Some(current) = &self.current else { return };
        if !stream.is_fifo() {
            return self.say_past(now);
        }
        // A proof: once in a while.
        if now < self.vouched + TAIL_AGAIN {
            return;
        }
        self.vouched = now;
        let proof = prove(&*current.protect, &gone_statement(stream, first));
        self.say(now, &Control::Gone { stream, first, proof });
    }

    /// The sequencer: somebody asks for what is forgotten of the order.
    pub(super) fn say_past(&mut self, now: Monotonic) {
        let current = self.current.as_ref().filter(|it| it.sequencer() == Some(it.me));
        let Some(Current { protect, order: Some(order), .. }) = current else { return };
        if now < self.vouched + TAIL_AGAIN {
            return;
        }
        self.vouched = now;
        let first = order.first();
        let proof = prove(&**protect, &past_statement(first));
        self.say(now, &Control::Past { first, proof });
    }

    /// A sender has no record of a stream before this one any more.
    pub(super) fn take_gone(&mut self, now: Monotonic, of: Of, first: u64, proof: &[u8]) -> Result<(), Dropped> {
        let Some(current) = &self.current else { return Err(Dropped::Stale) };
        // What has its position in the order is not missing for good while somebody holds it.
        if !of.stream.is_fifo() || !self.incoming.would_end_gap(now, current.epoch, of, first) {
            return Err(Dropped::Stale);
        }
        if !current.protect.attested(of.slot, &gone_statement(of.stream, first), proof) {
            return Err(Dropped::Auth);
        }
        let (_, inbox) = self.multicast.receiving();
        let reads = |domain| current.reads(domain);
        self.incoming.gone(now, (current.epoch, of, first), reads, inbox);
        inbox.tell(Output::Gap(of.slot));
        Ok(())
    }

    /// The sequencer has nothing of the order before this sequence number any more: if we lack some of that, we lack it for
    /// good, and go on in another view.
    pub(super) fn take_past(&mut self, by: Slot, first: u64, proof: &[u8]) -> Result<(), Dropped> {
        let Some(current) = self.current.as_ref().filter(|it| it.sequencer() == Some(by)) else {
            return Err(Dropped::Policy);
        };
        let Some(order) = current.order.as_ref().filter(|it| it.held() < first.saturating_sub(1) && !self.lost) else {
            return Err(Dropped::Stale);
        };
        if order.is_fenced() {
            return Err(Dropped::Stale);
        }
        if !current.protect.attested(by, &past_statement(first), proof) {
            return Err(Dropped::Auth);
        }
        self.lost = true;
        self.drops.count(Dropped::Incomplete);
        self.ready.push_back(Output::Renew);
        Ok(())
    }
}

/// Bytes beside the proof in these messages, at most.
const BESIDE_PROOF: usize = 1 + 3 + 8;
