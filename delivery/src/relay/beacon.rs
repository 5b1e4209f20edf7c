//! What members of one log show each other beside the relay (D2): receipts, and the proof of two logs.
//!
//! Both are signed by the relay, so it does not matter who shows them. Some three members speak a minute in a whole
//! group: each waits for a time that the epoch gives it, and anew once another one showed as much as it knows. A receipt is
//! shown twice: openly, for members on another branch, and sealed, as a sign that a member is there which no relay can make.
//!
//! ```text
//! beacon ─ open ──▶ all: compared            ─ sealed ──▶ members of the epoch: compared; the next turn waits; somebody is there
//! nothing sealed by others for three of the longest waits ──▶ stale, until something is
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_crypto::hash::Transcript;
use sealcast_relay::evidence::Evidence;
use sealcast_relay::follower::{Comparison, Misbehaviour};
use sealcast_relay::receipt::Receipt;
use sealcast_wire::{Domain, Dropped, EpochId, Monotonic, Now, Protect, Slot, View, limits};

use super::log::Log;
use crate::Output;
use crate::memory::{Frame, open_datagram, with_room};

/// When we speak, and what.
#[derive(Default)]
pub(super) struct Beacons {
    /// Our turns; none before the first view.
    turns: Option<Turns>,
    at: Option<Monotonic>,
    /// When somebody showed as much as we know.
    shown: Option<Monotonic>,
    silence: Silence,
    outbox: VecDeque<Vec<u8>>,
}

/// How long no other member was heard, as far as the relay was connected.
#[derive(Default)]
struct Silence {
    /// When it began; none while nobody else is in the group.
    since: Option<Monotonic>,
    /// When the relay's channel was lost.
    paused: Option<Monotonic>,
    /// Something of another member was opened, at a time that is not known yet.
    ended: bool,
    /// It is long, and so was told.
    is_notified: bool,
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
        self.spread().mul_f64(part)
    }

    /// The longest wait of a member whose turn it may be.
    fn spread(&self) -> Duration {
        APART.saturating_mul(u32::try_from(self.members).unwrap_or(u32::MAX)).min(SPREAD_LONGEST)
    }

    /// A member that hears nobody for so long is stale: three beacons were missed in a row.
    fn silence_max(&self) -> Duration {
        (EVERY + self.spread()) * 3
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
        self.at.into_iter().chain(self.silent_at()).min()
    }

    /// When it has been silent for too long.
    fn silent_at(&self) -> Option<Monotonic> {
        let Silence { since, paused, is_notified, .. } = &self.silence;
        let since = since.filter(|_| paused.is_none() && !is_notified)?;
        Some(since + self.turns?.silence_max())
    }

    /// The relay's channel to us opens, or is lost: what is lost meanwhile is no silence.
    pub(super) fn listen(&mut self, now: Now, connected: bool) {
        match (connected, self.silence.paused) {
            (false, None) => self.silence.paused = Some(now.monotonic),
            (true, Some(from)) => {
                self.silence.paused = None;
                self.silence.since = self.silence.since.map(|at| at + now.monotonic.since(from));
            }
            _ => {}
        }
    }

    /// A seal of this epoch proves that another member sent something. Its time comes with the next call.
    pub(super) fn opened(&mut self, from: Slot) {
        self.silence.ended |= self.turns.is_some_and(|it| it.me != from);
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
        self.silence = Silence::default();
    }
}

impl Log {
    pub(super) fn installed(&mut self, now: Now, view: &View) {
        let (round, before) = self.beacons.turns.map_or((0, 0), |it| (it.round, it.members));
        let members = view.members.len();
        self.beacons.turns = Some(Turns { epoch: view.epoch, me: view.me, members, round });
        if members < 2 {
            self.heard_of_others(now);
            self.beacons.silence.since = None;
        } else if before < 2 {
            self.beacons.silence.since = Some(now.monotonic);
        }
        // A group that changes often still speaks.
        if self.beacons.at.is_none() {
            self.beacons.wait_for_turn(now, EVERY);
        }
    }

    /// Shows the newest receipt, if nobody did.
    pub(super) fn say_beacon(&mut self, now: Now, protect: Option<&dyn Protect>) {
        if self.beacons.at.take_if(|at| *at <= now.monotonic).is_none() {
            return;
        }
        if let Some(receipt) = self.follower.receipt() {
            let receipt = receipt.to_bytes();
            let frame = Frame::Receipt(&receipt);
            self.beacons.outbox.push_back(open_datagram(&frame));
            // An epoch of which nothing more can be sealed is followed by another one.
            let seal = |protect: &dyn Protect| {
                let mut datagram = with_room(protect, &frame);
                protect.seal(Domain::GROUP, 0, &mut datagram).ok().map(|_| datagram)
            };
            self.beacons.outbox.extend(protect.and_then(seal));
        }
        self.beacons.shown = Some(now.monotonic);
        // Others come first now, so that each member hears somebody.
        let spread = self.beacons.turns.map_or(Duration::ZERO, |it| it.spread());
        self.beacons.wait_for_turn(now, EVERY + spread);
    }

    /// Another member sealed something, or there is none.
    fn heard_of_others(&mut self, now: Now) {
        let silence = &mut self.beacons.silence;
        silence.since = silence.since.map(|_| now.monotonic);
        silence.paused = silence.paused.map(|_| now.monotonic);
        if std::mem::take(&mut silence.is_notified) {
            self.outputs.push_back(Output::Silence(None));
        }
    }

    /// Tells that nobody was heard for long, and that somebody is.
    pub(super) fn watch_silence(&mut self, now: Now) {
        if self.is_over {
            return;
        }
        if std::mem::take(&mut self.beacons.silence.ended) {
            self.heard_of_others(now);
        }
        if self.beacons.silent_at().is_some_and(|at| at <= now.monotonic)
            && let Some(since) = self.beacons.silence.since
        {
            self.beacons.silence.is_notified = true;
            self.outputs.push_back(Output::Silence(Some(now.monotonic.since(since))));
        }
    }

    /// Somebody shows something: anybody may send these bytes, unless they came sealed.
    pub(super) fn heard(&mut self, now: Now, frame: &[u8], is_sealed: bool) {
        if self.is_over {
            return;
        }
        if let Err(why) = self.compare(now, frame, is_sealed) {
            self.drops.count(why);
        }
        self.go_on(now);
    }

    fn compare(&mut self, now: Now, frame: &[u8], is_sealed: bool) -> Result<(), Dropped> {
        match Frame::parse(frame).map_err(|_| Dropped::Malformed)? {
            Frame::Receipt(bytes) => {
                let receipt = Receipt::from_bytes(bytes).map_err(|_| Dropped::Malformed)?;
                match self.follower.exchange(&receipt) {
                    // It knows less than we do, or something else.
                    Ok(Comparison::TooOld) => self.answer(now),
                    Ok(Comparison::Same) if receipt.position != self.follower.position() => self.answer(now),
                    Ok(Comparison::Ahead | Comparison::Same) if is_sealed => self.beacons.shown(now),
                    // The relay itself could show as much, to keep members from speaking to each other.
                    Ok(Comparison::Ahead | Comparison::Same) => {}
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
