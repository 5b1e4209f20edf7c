//! Where a message came from and where it goes.

use std::net::SocketAddr;

use crate::frame::Domain;
use crate::member::{EpochId, Incarnation, Slot};

/// An address of the carrying network; proves nothing about who sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// An IP address and UDP or TCP port.
    Socket(SocketAddr),
    /// A node of an in-process network (`mem:` and the simulator).
    Node(u32),
}

/// Who a received frame is from, as far as the frame itself proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Not sealed by the group; anyone may have sent it.
    Outside(Address),
    /// Sealed under a key that the group shares: from inside, but no proof of who (A2).
    Inside {
        /// The epoch whose key opened it.
        epoch: EpochId,
        /// The slot that it claims.
        slot: Slot,
        /// The running process that the slot stands for in this epoch.
        incarnation: Incarnation,
        /// The sender's packet counter in this epoch and domain; never repeats.
        counter: u64,
        /// Which of the epoch's keys sealed it.
        domain: Domain,
    },
    /// A client of brokers: f + 1 of them checked its signature.
    Client {
        /// Its key.
        key: [u8; 32],
        /// The versions of key and policy that it sealed for; all zero where brokers have no key.
        epoch: EpochId,
    },
}

/// Whom a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Everybody in the group.
    Group,
    /// One member of the current view, where it was last heard; everybody, if it was not heard yet or the transport has no
    /// addresses for members.
    Slot(Slot),
    /// Whoever something came from, a member or not: a joiner, the target of a Welcome, a key distribution centre.
    Peer(Address),
}
