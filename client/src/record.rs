//! What a restarted client goes on from (G6, E11).
//!
//! ```text
//! record = u8 1 ‖ cluster ‖ client ‖ u64 height ‖ u32 epoch ‖ u16 count ‖ line …
//! line   = u64 id ‖ bytes16 interest ‖ u64 place ‖ u64 anchor's place ‖ u64 anchor's sn
//! ```

use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::{Client, Interest};
use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::line::SubscriptionState;
use super::{Config, Quorum};

impl Quorum {
    /// What [`Quorum::restore`] reads: subscriptions with their cursors, and the highest block and epoch seen. Also
    /// handed out as [`super::Output::Store`] from time to time.
    pub fn record(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(VERSION).raw(&self.cluster.0).raw(&self.client.0).u64(self.known.height).u32(self.known.epoch);
        let count = self.lines.len().min(limits::SUBSCRIPTIONS_PER_CLIENT_MAX);
        w.u16(u16::try_from(count).expect("subscriptions have a limit"));
        for (id, line) in self.lines.iter().take(count) {
            let (next, (place, sn)) = line.cursor();
            w.u64(*id).bytes16(&line.interest.to_bytes()).u64(next).u64(place).u64(sn);
        }
        w.finish()
    }

    /// A client that goes on where an [`super::Output::Store`] left it. What was taken since that was stored comes
    /// again; nothing is left out.
    ///
    /// # Errors
    /// The record is none, or of another cluster or client.
    pub fn restore(config: Config, record: &[u8]) -> Result<Quorum, Malformed> {
        let mut quorum = Quorum::new(config);
        let mut r = Reader::new(record);
        let (version, cluster, client) = (r.u8()?, Cluster(r.array()?), Client(r.array()?));
        if version != VERSION || cluster != quorum.cluster || client != quorum.client {
            return Err(Malformed);
        }
        (quorum.known.height, quorum.known.epoch) = (r.u64()?, r.u32()?);
        for _ in 0..r.count16(34, limits::SUBSCRIPTIONS_PER_CLIENT_MAX)? {
            let (id, interest) = (r.u64()?, Interest::from_bytes(r.bytes16(limits::EXPRESSION_BYTES_MAX)?)?);
            let mut line = SubscriptionState::new(interest, r.u64()?, (r.u64()?, r.u64()?));
            (line.is_read, line.stands) = (false, false);
            if line.anchor.0 > line.place || quorum.lines.insert(id, line).is_some() {
                return Err(Malformed);
            }
        }
        r.end()?;
        Ok(quorum)
    }
}

const VERSION: u8 = 1;
