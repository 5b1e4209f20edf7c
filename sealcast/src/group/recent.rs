//! The last datagrams that we sealed and sent, so that after a change of key which excludes somebody
//! we can vouch for those still under way (A5). For ways that do not remember them ([`sealcast_delivery::Delivery::sent`]). Hashing is put off until a
//! vouch is made, which is seldom; before that, bytes are only copied.

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_delivery::{Batch, Packet};
use sealcast_wire::{EpochId, Monotonic, limits};

/// See the module.
#[derive(Default)]
pub(super) struct Recent {
    /// The datagrams end to end.
    bytes: VecDeque<u8>,
    sent: VecDeque<(Monotonic, usize)>,
}

impl Recent {
    /// Copies what leaves now; forgets the oldest beyond the limits.
    pub(super) fn remember(&mut self, now: Monotonic, batch: &Batch) {
        for datagram in batch.iter() {
            if datagram.get(1) == Some(&sealcast_wire::frame::KIND_SEALED) {
                self.push(now, datagram);
            }
        }
    }

    fn push(&mut self, now: Monotonic, datagram: &[u8]) {
        while self.sent.len() >= limits::VOUCHED_PACKETS || self.bytes.len() + datagram.len() > limits::RECENT_BYTES_MAX
        {
            let Some((_, oldest)) = self.sent.pop_front() else { return };
            self.bytes.drain(..oldest);
        }
        self.bytes.extend(datagram);
        self.sent.push_back((now, datagram.len()));
    }

    /// Names those of an epoch that may still be under way, and forgets everything.
    pub(super) fn packets(&mut self, now: Monotonic, epoch: EpochId) -> Vec<Packet> {
        let mut packets = Vec::new();
        let bytes = self.bytes.make_contiguous();
        let mut at = 0;
        for (when, len) in self.sent.drain(..) {
            let of = Packet::vouched(&bytes[at..at + len]);
            at += len;
            packets.extend(of.filter(|(e, _)| *e == epoch && now.since(when) <= UNDER_WAY).map(|(_, p)| p));
        }
        self.bytes.clear();
        packets
    }
}

/// A datagram older than this has arrived or is lost.
const UNDER_WAY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use sealcast_wire::{Domain, Header, Slot};

    #[test]
    fn the_last_packets_of_the_old_epoch_are_vouched_for_and_no_others() {
        let old = EpochId { counter: 1, hash: 7 };
        let mut recent = Recent::default();
        let mut batch = Batch::default();
        for counter in 0..limits::VOUCHED_PACKETS as u64 + 10 {
            let epoch = if counter % 2 == 0 { old } else { EpochId { counter: 2, hash: 8 } };
            let mut datagram = vec![0; 60];
            Header { domain: Domain(1), epoch, slot: Slot(0), flags: 0, counter }.write(&mut datagram);
            batch.push(&datagram);
        }
        recent.remember(Monotonic(1), &batch);
        let vouched = recent.packets(Monotonic(2), old);
        assert_eq!(vouched.len(), limits::VOUCHED_PACKETS / 2);
        assert!(vouched.iter().all(|v| v.counter >= 10 && v.counter % 2 == 0));
        assert!(recent.packets(Monotonic(2), old).is_empty(), "a vouch is made once");
    }
}
