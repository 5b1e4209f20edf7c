//! Handing on no faster than the application takes: what waits is bounded here, and beyond that it waits at the brokers.
//!
//! Places are gap-free, so whoever stops loses nothing: blocks wait as far as there is room, their bodies beyond that are
//! asked for again, and what there was no room for at all is a gap, which is caught up. Everything else goes on.

use sealcast_wire::Now;

use super::Quorum;

impl Quorum {
    /// Hands on nothing that subscriptions get, or goes on with it. What was handed out before stands in
    /// [`Quorum::poll`] still: a block and a few things.
    pub fn hold(&mut self, now: Now, held: bool) {
        if std::mem::replace(&mut self.held, held) && !held {
            self.advance(now);
        }
    }

    /// Nobody reads a subscription any more. Whoever wants the same again is handed what was not taken of it, and what
    /// came since.
    pub fn leave(&mut self, now: Now, subscription: u64) {
        if let Some(line) = self.lines.get_mut(&subscription) {
            line.leave();
            self.changed(now);
            // Others waited for what it lagged behind.
            self.advance(now);
        }
    }

    /// Hands on nothing of one subscription, or goes on with it where it stopped, by catching up. Others come on.
    pub fn pause(&mut self, now: Now, subscription: u64, paused: bool) {
        if let Some(line) = self.lines.get_mut(&subscription).filter(|it| it.is_read == paused) {
            line.goal = line.goal.max(line.place);
            line.is_read = !paused;
            self.advance(now);
        }
    }

    /// Whether more may be handed on now; what is ready is drained first.
    pub(super) fn may_hand_on(&mut self) -> bool {
        self.midway = !self.held && self.outputs.len() >= OUTPUTS_AT_ONCE;
        !self.held && !self.midway
    }

    /// Goes on where handing on stopped, once what was ready is drained.
    pub(super) fn hand_on_further(&mut self, now: Now) {
        if self.outputs.is_empty() && std::mem::take(&mut self.midway) {
            self.advance(now);
        }
    }
}

/// Things that are ready to be drained before more are made ready.
const OUTPUTS_AT_ONCE: usize = 256;
