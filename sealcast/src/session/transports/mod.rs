//! How bytes travel: one constructor for each transport, and what the driver asks of the shell around its machine.

#[cfg(feature = "brokers")]
mod brokers;
mod memory;
#[cfg(not(feature = "brokers"))]
mod no_brokers;
#[cfg(not(feature = "lan"))]
mod no_lan;
#[cfg(not(feature = "relay"))]
mod no_relay;
#[cfg(feature = "relay")]
mod relay;
#[cfg(feature = "lan")]
mod tx_queue;
#[cfg(feature = "lan")]
mod udp;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mio::Registry;
use sealcast_crypto::identity::Identity;
use sealcast_delivery::{Batch, Delivery};
use sealcast_keys::Notice;
use sealcast_wire::{Monotonic, Now};

#[cfg(not(feature = "brokers"))]
use no_brokers as brokers;
#[cfg(not(feature = "lan"))]
use no_lan as udp;
#[cfg(not(feature = "relay"))]
use no_relay as relay;

#[cfg(feature = "lan")]
pub(super) use crate::io::udp::LoopbackSocket;
#[cfg(feature = "brokers")]
pub(crate) use brokers::BrokerLink;
#[cfg(feature = "brokers")]
pub use brokers::BrokersInfo;
pub(crate) use brokers::BrokersShell;
pub(super) use brokers::Reach;
pub(super) use memory::at_hub;
#[cfg(not(feature = "lan"))]
pub(super) use no_lan::{LoopbackSocket, TxQueue};
#[cfg(feature = "lan")]
pub(super) use tx_queue::TxQueue;

use super::driver::AnyCore;
use crate::config::Home;
use crate::error::{Error, Result};
use crate::group::Gate;
use crate::io::clock::Clock;
use crate::session::Warning;
use crate::url::{TransportAddress, Url};

/// A transport, before it is joined with keys.
pub(super) struct Transport {
    pub(super) delivery: Box<dyn Delivery>,
    pub(super) shell: MakeShell,
    /// What only brokers can be asked.
    pub(super) brokers: Option<BrokersShell>,
}

/// Makes the shell, and the tx queue that publishers' threads use where there is one, once the group has its gate.
pub(super) type MakeShell = Box<dyn FnOnce(Arc<Mutex<Gate>>) -> (Box<dyn Shell>, Option<Arc<TxQueue>>)>;

/// Sockets and files around a transport's machine, worked by whoever drives the session.
pub(super) trait Shell: Send {
    /// Hears from now on, if it does not yet and has to be told.
    fn listen(&mut self, registry: &Registry) -> Result<Option<Listening>>;

    /// Hands what has come to the session, at most a system call's worth; whether there was anything.
    fn receive(&mut self, now: Now, core: &mut AnyCore) -> std::result::Result<bool, Fault>;

    /// Sends a batch, or sees to it that it is sent. One for a message of so many bytes that was just published may wait for
    /// others.
    fn send(&mut self, batch: &Batch, published: Option<usize>);

    /// Hands to the kernel what was sent.
    fn flush(&mut self);

    /// Gives the transport's own readers what is theirs, and takes in what it found out by itself; whether there was anything.
    fn hand_over(&mut self, now: Now) -> bool;

    /// How long the driver may wait for its sockets.
    fn timeout(&self) -> Option<Duration>;

    /// The system says that something happened on this socket.
    fn woken(&mut self, token: mio::Token);

    /// Makes a record of the transport's durable; `false` if the session's store is to keep it.
    fn keep(&mut self, record: &[u8]) -> io::Result<bool>;

    /// The key scheme found this.
    fn noticed(&mut self, notice: &Notice);

    /// Whether all that it does by itself is done.
    fn is_settled(&self) -> bool;

    /// Why there is no key yet, if that is the transport's.
    fn late(&self, timeout: Duration) -> Option<Error>;

    /// How what carries the group does, for people, where that is one that can fail.
    fn carrier(&self) -> Option<Carrier>;

    /// Sends what is queued, as far as the kernel takes it, and closes.
    fn end(&mut self, now: Now);
}

/// What a shell says when it begins to listen.
pub(super) struct Listening {
    /// What is not as it should be.
    pub(super) warnings: Vec<Warning>,
    /// Keeps our own datagrams from us, where the system can.
    pub(super) loopback_socket: Option<LoopbackSocket>,
}

/// What carries a group.
pub(super) struct Carrier {
    /// When it answered last.
    pub(super) heard: Option<Monotonic>,
    /// What is wrong with it.
    pub(super) trouble: Option<Error>,
}

/// Why nothing was received.
pub(super) enum Fault {
    /// The system refused; that may pass.
    #[cfg_attr(not(feature = "lan"), expect(dead_code, reason = "only sockets of a LAN refuse and go on"))]
    Refused,
    /// Nothing more will come of it; `any` says whether there was something all the same.
    #[cfg_attr(
        not(any(feature = "brokers", feature = "relay")),
        expect(dead_code, reason = "brokers and relays end it")
    )]
    Ended { why: Error, any: bool },
}

/// Who meets whom at a relay.
#[cfg_attr(not(feature = "relay"), expect(dead_code, reason = "there is no relay"))]
pub(super) struct Meeting {
    /// The group's name.
    pub(super) group: String,
    /// Nobody's where nothing is sealed.
    pub(super) identity: Option<Arc<Identity>>,
    /// What the transport itself stored in an earlier run.
    pub(super) record: Option<Vec<u8>>,
    /// Where this user's files are, if the identity is one of them.
    pub(super) home: Option<Home>,
}

/// The transport of a URL.
pub(super) fn open(
    url: &Url,
    (reach, meeting): (Option<Reach>, Meeting),
    clock: Clock,
    registry: &Registry,
    waker: &Arc<mio::Waker>,
) -> Result<Transport> {
    match &url.address {
        TransportAddress::Multicast { group, ordered } => udp::open(*group, *ordered, url, clock),
        TransportAddress::Memory { name, ordered } => memory::open(name, *ordered, !url.is_sealed(), waker),
        TransportAddress::Quorum(_) => {
            let reach = reach.ok_or_else(Error::closed)?;
            brokers::open(reach, clock.now(), registry)
        }
        TransportAddress::Relay(address) => relay::open(address, url, meeting, waker),
    }
}
