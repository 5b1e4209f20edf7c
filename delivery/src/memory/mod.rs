//! `mem:`: the ways without a network, for tests, the simulator and programs of one process.
//!
//! [`BestEffort`] frames and seals one datagram per message. [`Ordered`] has a second channel, one total order, which an
//! [`Orderer`] makes: a machine of its own that holds no key, speaks datagrams too (so that the
//! simulator can lose and delay them) and gives each message its position.

mod best_effort;
pub(crate) mod frame;
mod ordered;
mod orderer;

pub use best_effort::BestEffort;
pub use ordered::{Ordered, Start};
pub use orderer::Orderer;

use sealcast_wire::frame::{KIND_OPEN, MAGIC, OPEN_HEADER_LEN};
use sealcast_wire::{Address, Malformed, Protect};

pub(crate) use frame::Frame;

/// An open datagram that holds a frame.
pub(crate) fn open_datagram(frame: &Frame<'_>) -> Vec<u8> {
    let mut datagram = vec![MAGIC, KIND_OPEN];
    datagram.extend_from_slice(&frame.bytes());
    datagram
}

/// A frame with room for a seal around it.
pub(crate) fn with_room(protect: &dyn Protect, frame: &Frame<'_>) -> Vec<u8> {
    let (before, after) = protect.overhead();
    let mut datagram = vec![0; before];
    datagram.extend_from_slice(&frame.bytes());
    datagram.resize(datagram.len() + after, 0);
    datagram
}

/// The content of an open datagram.
pub(crate) fn open_content(datagram: &[u8]) -> Result<&[u8], Malformed> {
    match datagram.split_at_checked(OPEN_HEADER_LEN) {
        Some(([MAGIC, KIND_OPEN], content)) => Ok(content),
        _ => Err(Malformed),
    }
}

/// A key scheme's message in an open datagram.
///
/// # Errors
/// [`Malformed`], also for a datagram that holds something else.
pub fn keys_message(datagram: &[u8]) -> Result<&[u8], Malformed> {
    match Frame::parse(open_content(datagram)?)? {
        Frame::Keys(bytes) => Ok(bytes),
        _ => Err(Malformed),
    }
}

/// A broker's attachment to an ordered message (a share, a digest, a proof) as an open datagram.
pub fn attachment(index: u64, broker: u16, bytes: &[u8]) -> Vec<u8> {
    open_datagram(&Frame::Attachment { index, broker, bytes })
}

/// What a broker reads from the datagrams of this way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// An ordered message that its publisher sealed as a whole.
    Ordered {
        /// Its place.
        index: u64,
        /// Its topic.
        topic: &'a str,
        /// What carriers may read.
        header: &'a [u8],
        /// What they may not.
        body: &'a [u8],
    },
    /// Somebody asks for this broker's share of a message.
    WantsShare {
        /// The message's place.
        index: u64,
        /// With its proof.
        proved: bool,
    },
}

/// Reads a datagram as a broker does; `None` if it does not concern brokers.
pub fn heard(datagram: &[u8]) -> Option<Heard<'_>> {
    match Frame::parse(open_content(datagram).ok()?).ok()? {
        Frame::Entry { index, payload, .. } => match Frame::parse(open_content(payload).ok()?).ok()? {
            Frame::Sealed { topic, header, body } => Some(Heard::Ordered { index, topic, header, body }),
            _ => None,
        },
        Frame::Fetch { what: sealcast_wire::Fetch::Shares { index, proved }, .. } => {
            Some(Heard::WantsShare { index, proved })
        }
        _ => None,
    }
}

/// An orderer's datagrams on their way out, each with its destination; `None` is the group.
type Outbox = std::collections::VecDeque<(Option<Address>, Vec<u8>)>;
