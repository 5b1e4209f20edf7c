//! One computer on the bridge: its clock and disk stay, its process with its sockets comes and goes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags};
use sealcast::io::udp::{UdpReceiver, UdpSender};
use sealcast::url::Options;
use sealcast_delivery::Batch;
use sealcast_sim::clock::Clock;
use sealcast_sim::{Birth, Records};
use sealcast_wire::Monotonic;

use crate::netns::Bridge;
use crate::scenarios::fixture::Player;

/// See the module.
pub(super) struct NodeSlot {
    pub(super) clock: Clock,
    pub(super) records: Records,
    /// Whether what is sent to all reaches it.
    pub(super) hears_group: bool,
    pub(super) process: Option<Process>,
}

/// A machine and its sockets.
pub(super) struct Process {
    pub(super) machine: Player,
    pub(super) receiver: UdpReceiver,
    pub(super) stopped: bool,
    sender: UdpSender,
    /// By node: what leaves here reaches it alone.
    aside: BTreeMap<usize, UdpSender>,
}

impl NodeSlot {
    pub(super) fn new(clock: Clock, hears_group: bool) -> NodeSlot {
        NodeSlot { clock, records: Records::new(), hears_group, process: None }
    }

    /// Opens the sockets in the node's namespace, and starts the machine with what the disk holds.
    pub(super) fn start(
        &mut self,
        bridge: &Bridge,
        node: usize,
        at: Monotonic,
        birth: &Birth<Player>,
    ) -> Result<(), String> {
        let open = || -> sealcast::Result<(UdpReceiver, UdpSender)> {
            let options = options(None);
            Ok((UdpReceiver::open(group(), &options)?.0, UdpSender::open(group(), &options)?))
        };
        let opened = bridge.enter(node, open).map_err(|why| format!("the namespace of node {node}: {why}"))?;
        let (receiver, sender) = opened.map_err(|why| format!("node {node}: {why}"))?;
        let machine = birth(self.clock.at(at), &self.records);
        self.process = Some(Process { machine, receiver, sender, stopped: false, aside: BTreeMap::new() });
        Ok(())
    }

    /// Whether datagrams are taken from its socket.
    pub(super) fn listens(&self) -> bool {
        self.process.as_ref().is_some_and(|p| !p.stopped)
    }

    /// Its socket, to wait for.
    pub(super) fn poll_fd(&self, flags: PollFlags) -> Option<PollFd<'_>> {
        self.process.as_ref().map(|p| PollFd::from_borrowed_fd(p.receiver.as_fd(), flags))
    }
}

impl Process {
    /// Sends a batch to the group, and empties it. What the system refuses is lost, as on any network.
    pub(super) fn send(&self, batch: &mut Batch) {
        let _ = self.sender.send(batch);
        batch.clear();
    }

    /// Sends a batch to one node alone: addressed to the group, in frames addressed to that node.
    pub(super) fn send_aside(
        &mut self,
        bridge: &mut Bridge,
        me: usize,
        to: usize,
        batch: &mut Batch,
    ) -> Result<(), String> {
        let sender = match self.aside.entry(to) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let interface = bridge.aside(me, to).map_err(|why| format!("the way from {me} to {to}: {why}"))?;
                let open = || UdpSender::open(group(), &options(Some(interface)));
                let opened = bridge.enter(me, open).map_err(|why| format!("the namespace of node {me}: {why}"))?;
                new.insert(opened.map_err(|why| format!("node {me} to {to} alone: {why}"))?)
            }
        };
        let _ = sender.send(batch);
        batch.clear();
        Ok(())
    }
}

/// LCM's own address: every bridge is a network by itself.
fn group() -> SocketAddr {
    SocketAddr::from(([239, 255, 76, 67], 7667))
}

/// Over one Ethernet.
fn options(interface: Option<IpAddr>) -> Options {
    let mut options = Options::default();
    (options.ttl, options.interface) = (1, interface);
    options
}
