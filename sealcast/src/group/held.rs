//! Datagrams that wait: for the key of an epoch that is being agreed, or for their sender's vouch (A5).

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_wire::{Address, Domain, Header, Monotonic, limits};

/// A bounded queue of sealed datagrams, oldest first.
#[derive(Default)]
pub(super) struct EarlyDatagrams {
    datagrams: VecDeque<Waiting>,
    bytes: usize,
    /// Of these, what is of epochs that are not known: anybody can make such datagrams up.
    unknown: (usize, usize),
}

/// A sealed datagram as it came.
pub(super) struct Waiting {
    pub(super) since: Monotonic,
    pub(super) from: Address,
    pub(super) header: Header,
    pub(super) bytes: Vec<u8>,
    unknown: bool,
}

impl EarlyDatagrams {
    /// Keeps a copy; `false` if the queue is full. Datagrams of `unknown` epochs take half of it at most, so that
    /// what outsiders make up leaves room for what waits for its sender's word.
    pub(super) fn push(
        &mut self,
        now: Monotonic,
        from: Address,
        header: Header,
        datagram: &[u8],
        unknown: bool,
    ) -> bool {
        let over = |(datagrams, bytes): (usize, usize), share: usize| {
            datagrams >= limits::EARLY_DATAGRAMS_MAX / share || bytes + datagram.len() > limits::EARLY_BYTES_MAX / share
        };
        if over((self.datagrams.len(), self.bytes), 1) || unknown && over(self.unknown, 2) {
            return false;
        }
        self.datagrams.push_back(Waiting { since: now, from, header, bytes: datagram.to_vec(), unknown });
        self.bytes += datagram.len();
        if unknown {
            self.unknown = (self.unknown.0 + 1, self.unknown.1 + datagram.len());
        }
        true
    }

    /// Takes out those that `wanted` says, in the order in which they came.
    pub(super) fn take(&mut self, mut wanted: impl FnMut(&Header) -> bool) -> Vec<Waiting> {
        let (out, kept): (Vec<_>, Vec<_>) = self.datagrams.drain(..).partition(|w| wanted(&w.header));
        self.datagrams = kept.into();
        out.iter().for_each(|w: &Waiting| self.let_go(w));
        out
    }

    /// Takes out those that have waited too long, and says of what.
    pub(super) fn expire(&mut self, now: Monotonic, after: Duration) -> Vec<Domain> {
        let mut expired = Vec::new();
        while let Some(gone) = self.datagrams.pop_front_if(|w| now.since(w.since) >= after) {
            self.let_go(&gone);
            expired.push(gone.header.domain);
        }
        expired
    }

    fn let_go(&mut self, gone: &Waiting) {
        self.bytes -= gone.bytes.len();
        if gone.unknown {
            self.unknown = (self.unknown.0 - 1, self.unknown.1 - gone.bytes.len());
        }
    }

    /// When the oldest came.
    pub(super) fn oldest(&self) -> Option<Monotonic> {
        self.datagrams.front().map(|w| w.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealcast_wire::{EpochId, Slot};

    #[test]
    fn rule_g7_what_waits_is_bounded_by_number_and_bytes() {
        let header = Header { domain: Domain(1), epoch: EpochId::default(), slot: Slot(0), flags: 0, counter: 0 };
        let mut held = EarlyDatagrams::default();
        for i in 0..limits::EARLY_DATAGRAMS_MAX {
            assert!(held.push(Monotonic(i as u64), Address::Node(1), header, &[0; 60], false));
        }
        assert!(!held.push(Monotonic(0), Address::Node(1), header, &[0; 60], false));
        assert_eq!(held.expire(Monotonic(99), Duration::from_micros(50)).len(), 50);
        assert_eq!(held.take(|_| true).len(), limits::EARLY_DATAGRAMS_MAX - 50);
        assert_eq!((held.bytes, held.oldest()), (0, None));

        let mut held = EarlyDatagrams::default();
        let big = vec![0; limits::EARLY_BYTES_MAX / 2 + 1];
        assert!(held.push(Monotonic(0), Address::Node(1), header, &big, false));
        assert!(!held.push(Monotonic(0), Address::Node(1), header, &big, false));
    }

    #[test]
    fn rule_g8_what_anybody_can_make_up_leaves_room_for_the_rest() {
        let header = Header { domain: Domain(1), epoch: EpochId::default(), slot: Slot(0), flags: 0, counter: 0 };
        let mut held = EarlyDatagrams::default();
        let push =
            |held: &mut EarlyDatagrams, unknown| held.push(Monotonic(0), Address::Node(1), header, &[0; 60], unknown);
        let made_up = (0..limits::EARLY_DATAGRAMS_MAX).filter(|_| push(&mut held, true)).count();
        assert_eq!(made_up, limits::EARLY_DATAGRAMS_MAX / 2);
        assert!(push(&mut held, false));
        held.expire(Monotonic(99), Duration::from_micros(50));
        assert_eq!((held.bytes, held.unknown), (0, (0, 0)));
        assert!(push(&mut held, true));
    }
}
