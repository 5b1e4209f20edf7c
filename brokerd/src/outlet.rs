//! Between the executor and the rest of the process: where results leave, and where old blocks are found.

use bytes::Bytes;
use sealcast_broker::operation::Client;
use sealcast_broker::protocol::{Reply, Report, Status};
use sealcast_order::StartCertificate;

/// Where the executor's results leave for clients. Calls return at once; what a client cannot take is dropped with its
/// channel, and the client asks again when it comes back.
pub trait Outlet: Send + Sync + 'static {
    /// Whether the client has a channel here.
    fn is_here(&self, client: &Client) -> bool;

    /// Sends it, if it is here.
    fn send(&self, client: &Client, reply: Reply);

    /// A broker's word in making the threshold key has its place in the order (E8); words of a block come in order.
    fn dkg(&self, height: u64, broker: u16, word: &[u8]);

    /// A block was executed, whether or not it held anything.
    fn executed(&self, height: u64);

    /// Fills in what the executor does not know of where the broker stands: leader, view, tip, clients, what waits,
    /// file descriptors, whether it orders, misbehaviour, whom it hears, its clock.
    fn describe(&self, _status: &mut Status) {}

    /// The proofs that are kept of what other brokers did.
    fn evidence(&self) -> Vec<(Report, Vec<u8>)> {
        Vec::new()
    }

    /// The storage failed, and nothing is executed any more: the broker is to end, saying why.
    fn failed(&self, _why: &str) {}
}

/// Where the batches of blocks that were executed long ago are found.
pub trait Blocks: Send + Sync + 'static {
    /// The encoded batch at this place of a block; `None` if it is no longer kept.
    fn batch(&self, height: u64, batch: u32) -> Option<Bytes>;

    /// The proof that a quorum made this block final, if it has one of its own.
    fn start_certificate(&self, _height: u64) -> Option<StartCertificate> {
        None
    }

    /// Blocks below this one are needed no more.
    fn prune(&self, _height: u64) {}
}
