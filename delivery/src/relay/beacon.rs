//! What members of one log show each other beside the relay (D2): receipts, and the proof of two logs.
//!
//! Both are signed by the relay, so it does not matter who shows them. Some three of them speak a minute in a
//! whole group: each waits for a time that the epoch gives it, and anew once another one showed as much as it knows.

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_crypto::hash::Transcript;
use sealcast_relay::evidence::Evidence;
use sealcast_relay::follower::{Comparison, Misbehaviour};
use sealcast_relay::receipt::Receipt;
use sealcast_wire::{Dropped, EpochId, Monotonic, Now, Slot, View, limits};

use super::log::Log;
use crate::memory::{Frame, open_datagram};

/// When we speak, and what.
#[derive(Default)]
pub(super) struct Beacons {
    /// Our turns; none before the first view.
    turns: Option<Turns>,
    at: Option<Monotonic>,
    /// When somebody showed as much as we know.
    shown: Option<Monotonic>,
    outbox: VecDeque<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Turns {
    epoch: EpochId,
    me: Slot,
    members: usize,
    round: u64,
}

impl Turns {
    /// Our place among the others who would speak.
    fn wait(&self) -> Duration {
        let t = Transcript::new("sealcast/v1/relay/beacon").add(&self.epoch.to_bytes()).add(&self.me.0.to_be_bytes());
        let hash = t.add(&self.round.to_be_bytes()).finish();
        let part = f64::from(u32::from_be_bytes(*hash.first_chunk().expect("4 of 32 bytes"))) / f64::from(u32::MAX);
        let spread = APART.saturating_mul(u32::try_from(self.members).unwrap_or(u32::MAX)).min(SPREAD_LONGEST);
        spread.mul_f64(part)
    }
}

impl Beacons {
    /// We speak after this time, unless another one does before.
    fn wait_for_turn(&mut self, now: Now, after: Duration) {
        if let Some(turns) = &mut self.turns {
            turns.round = turns.round.wrapping_add(1);
            self.at = Some(now.monotonic + after + turns.wait());
        }
    }

    fn shown(&mut self, now: Now) {
        self.shown = Some(now.monotonic);
        self.wait_for_turn(now, EVERY);
    }

    pub(super) fn timeout(&self) -> Option<Monotonic> {
        self.at
    }

    /// The relay showed two logs: the others are to know.
    pub(super) fn convicted(&mut self, evidence: &Evidence) {
        let bytes = evidence.to_bytes();
        let proof = open_datagram(&Frame::Evidence(&bytes));
        if proof.len() <= limits::OPEN_BYTES_MAX {
            self.outbox.push_back(proof);
        }
        // Of more links than fit a datagram: what others have contradicts one of these.
        let of = |receipt: &Receipt| open_datagram(&Frame::Receipt(&receipt.to_bytes()));
        self.outbox.extend([of(&evidence.one), of(&evidence.other)]);
        (self.turns, self.at) = (None, None);
    }
}

impl Log {
    pub(super) fn installed(&mut self, now: Now, view: &View) {
        let round = self.beacons.turns.map_or(0, |it| it.round);
        self.beacons.turns = Some(Turns { epoch: view.epoch, me: view.me, members: view.members.len(), round });
        // A group that changes often still speaks.
        if self.beacons.at.is_none() {
            self.beacons.wait_for_turn(now, EVERY);
        }
    }

    /// Shows the newest receipt, if nobody did.
    pub(super) fn say_beacon(&mut self, now: Now) {
        if self.beacons.at.take_if(|at| *at <= now.monotonic).is_none() {
            return;
        }
        if let Some(receipt) = self.follower.receipt() {
            self.beacons.outbox.push_back(open_datagram(&Frame::Receipt(&receipt.to_bytes())));
        }
        self.beacons.shown(now);
    }

    /// Another member shows something; anybody may send these bytes.
    pub(super) fn heard(&mut self, now: Now, frame: &[u8]) {
        if self.is_over {
            return;
        }
        if let Err(why) = self.compare(now, frame) {
            self.drops.count(why);
        }
        self.go_on(now);
    }

    fn compare(&mut self, now: Now, frame: &[u8]) -> Result<(), Dropped> {
        match Frame::parse(frame).map_err(|_| Dropped::Malformed)? {
            Frame::Receipt(bytes) => {
                let receipt = Receipt::from_bytes(bytes).map_err(|_| Dropped::Malformed)?;
                match self.follower.exchange(&receipt) {
                    Ok(Comparison::Ahead) => self.beacons.shown(now),
                    Ok(Comparison::Same) if receipt.position == self.follower.position() => self.beacons.shown(now),
                    // It knows less than we do, or something else.
                    Ok(Comparison::Same | Comparison::TooOld) => self.answer(now),
                    Err(why @ Misbehaviour::Forked(_)) => self.blame(now, why),
                    // Not signed by the relay.
                    Err(_) => return Err(Dropped::Auth),
                }
            }
            Frame::Evidence(bytes) => {
                let evidence = Evidence::from_bytes(bytes).map_err(|_| Dropped::Malformed)?;
                if evidence.one.group != *self.follower.group() {
                    return Err(Dropped::Foreign);
                }
                evidence.verify(self.follower.relay()).map_err(|_| Dropped::Auth)?;
                self.blame(now, Misbehaviour::Forked(Box::new(evidence)));
            }
            _ => return Err(Dropped::Malformed),
        }
        Ok(())
    }

    /// Who knows less may be on another branch, and learns it by the receipt of one of us.
    fn answer(&mut self, now: Now) {
        if self.beacons.shown.is_none_or(|at| now.monotonic.since(at) >= ANSWER_EVERY) {
            self.beacons.shown = Some(now.monotonic);
            self.beacons.wait_for_turn(now, Duration::ZERO);
        }
    }

    pub(super) fn next_beacon(&mut self) -> Option<Vec<u8>> {
        self.beacons.outbox.pop_front()
    }
}

/// Whether an open frame is for this module.
pub(super) fn is_one(frame: &[u8]) -> bool {
    matches!(Frame::parse(frame), Ok(Frame::Receipt(_) | Frame::Evidence(_)))
}

/// Three beacons a minute for a whole group.
const EVERY: Duration = Duration::from_secs(20);
/// Between the waits of two members, on average.
const APART: Duration = Duration::from_millis(200);
const SPREAD_LONGEST: Duration = Duration::from_secs(40);
const ANSWER_EVERY: Duration = Duration::from_secs(5);
