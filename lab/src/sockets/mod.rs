//! Real sockets in real time: the second carrier of a story's members.
//!
//! ```text
//!   namespace 0          namespace 1                 namespace n
//!  ┌──────────────┐    ┌──────────────┐            ┌───────────────┐
//!  │ member 0     │    │ member 1     │            │ an outsider   │   one thread runs all machines,
//!  │ UDP sockets  │    │ UDP sockets  │     …      │ UDP sockets   │   so that checkers see their
//!  │ 10.77.0.2    │    │ 10.77.0.3    │            │ 10.77.0.n+2   │   events in the order they had
//!  └──── veth0 ───┘    └──── veth0 ───┘            └──── veth0 ────┘
//!          └──────── br0 ─────┴──────── MTU 1500 ──────────┘
//! ```
//! The sockets are those of a session, segmented sends included; the kernels' queues, fragments and
//! delays are real. Only what a quiet bridge does not do (losing, doubling and overtaking, as a script
//! asks for) happens at a receiver's ear, behind its socket.

mod slot;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sealcast_delivery::Batch;
use sealcast_sim::agenda::Agenda;
use sealcast_sim::clock::Clock;
use sealcast_sim::dice::Dice;
use sealcast_sim::network::{Copies, Delay, Network};
use sealcast_sim::trace::{Kind, Trace};
use sealcast_sim::{Birth, Effect, Node, Observer, Reach};
use sealcast_wire::{Address, Monotonic};

use crate::member::MemberCommand;
use crate::netns::Bridge;
use crate::scenarios::carrier::Carrier;
use crate::scenarios::fixture::Player;
use crate::scenarios::watch::Watch;
use slot::{NodeSlot, Process};

/// A bridged network and the processes on it.
pub(crate) struct Sockets {
    start: Instant,
    bridge: Bridge,
    network: Network,
    slots: Vec<NodeSlot>,
    /// What is held back at an ear: for whom, from where.
    late: Agenda<(usize, SocketAddr, Vec<u8>)>,
    dice: Dice,
    clocks: Dice,
    trace: Trace,
}

impl Sockets {
    /// A bridge with nobody on it.
    ///
    /// # Errors
    /// If namespaces cannot be made here; this process must be inside one of [`crate::netns`], or root.
    pub(crate) fn new(seed: u64, network: &Network, keep: usize) -> io::Result<Sockets> {
        Ok(Sockets {
            start: Instant::now(),
            bridge: Bridge::new(0)?,
            network: at_the_ear(network),
            slots: Vec::new(),
            late: Agenda::default(),
            dice: Dice::new(seed, STREAM_EARS),
            clocks: Dice::new(seed, STREAM_CLOCKS),
            trace: Trace::new(keep),
        })
    }

    fn process(&mut self, node: usize) -> Option<&mut Process> {
        self.slots[node].process.as_mut().filter(|p| !p.stopped)
    }

    /// Lets machines see the time that came.
    fn timers(&mut self, watch: &mut Watch) -> bool {
        let mut any = false;
        for node in 0..self.slots.len() {
            let now = self.slots[node].clock.at(self.now());
            let Some(p) = self.process(node) else { continue };
            if p.machine.timeout().is_some_and(|at| at <= now.monotonic) {
                p.machine.handle_timeout(now);
                self.trace.note(Carrier::now(self), node, Kind::Timer, 0);
                self.drain(node, watch);
                any = true;
            }
        }
        any
    }

    /// Hands over what was held back long enough.
    fn overtaken(&mut self, watch: &mut Watch) -> bool {
        let mut any = false;
        while let Some((_, (node, from, datagram))) = self.late.pop(Monotonic(elapsed(self.start))) {
            self.arrive(node, from, datagram, watch);
            any = true;
        }
        any
    }

    /// When a machine or an ear wants attention next.
    fn due(&self) -> Option<Monotonic> {
        let timers = self.slots.iter().filter_map(|slot| {
            let p = slot.process.as_ref().filter(|p| !p.stopped)?;
            p.machine.timeout().map(|at| slot.clock.reaches(at))
        });
        timers.chain(self.late.first()).min()
    }

    /// Waits for datagrams, up to `wait`, and takes at most one call's worth at each node.
    fn listen(&mut self, wait: Duration, watch: &mut Watch) {
        let listening: Vec<usize> = (0..self.slots.len()).filter(|&node| self.slots[node].listens()).collect();
        let mut ready: Vec<PollFd<'_>> =
            listening.iter().filter_map(|&node| self.slots[node].poll_fd(PollFlags::IN)).collect();
        let wait = Timespec::try_from(wait.min(WAIT_MAX)).expect("less than a second");
        match poll(&mut ready, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => watch.broken(self.now(), &format!("waiting for sockets: {why}")),
        }
        let ready: Vec<bool> = ready.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (node, _) in listening.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            let mut came = Vec::new();
            // An error of the network is a loss like any other.
            let _ = self.process(node).map(|p| p.receiver.receive(|from, bytes| came.push((from, bytes.to_vec()))));
            for (from, datagram) in came {
                self.hear(node, from, datagram, watch);
            }
        }
    }

    /// What becomes of a datagram between a node's socket and its machine.
    fn hear(&mut self, node: usize, from: SocketAddr, datagram: Vec<u8>, watch: &mut Watch) {
        // As in a session that takes nothing of what it publishes: its own datagrams stop at the socket.
        let Some(sender) = Bridge::member_of(from.ip()).filter(|sender| *sender != node) else { return };
        if !self.slots[node].hears_group && !Bridge::is_aside(from.ip()) {
            return;
        }
        let now = self.now();
        let Copies(one, two) = self.network.carry(&mut self.dice, sender, node, datagram.len());
        if one.is_none() {
            self.trace.note(self.now(), node, Kind::Lose, datagram.len());
        }
        for delay in [two, one].into_iter().flatten() {
            if delay.is_zero() {
                self.arrive(node, from, datagram.clone(), watch);
            } else {
                self.late.push(now + delay, (node, from, datagram.clone()));
            }
        }
    }

    fn arrive(&mut self, node: usize, from: SocketAddr, mut datagram: Vec<u8>, watch: &mut Watch) {
        self.trace.note(self.now(), node, Kind::Arrive, datagram.len());
        let now = self.slots[node].clock.at(self.now());
        // Who is spoken to alone can answer: a way aside has an address of its own, and leads nowhere back.
        let sender = Bridge::member_of(from.ip()).filter(|_| Bridge::is_aside(from.ip()));
        let address = sender.map_or(Address::Socket(from), |node| Address::Node(node as u32));
        let Some(p) = self.process(node) else { return };
        p.machine.handle(now, address, &mut datagram);
        self.drain(node, watch);
    }

    /// Does all that a node wants done. Its disk is memory and always in time; what waits for it waits
    /// until it has been told.
    fn drain(&mut self, node: usize, watch: &mut Watch) {
        let mut batch = Batch::default();
        let mut stored = false;
        loop {
            let at = self.now();
            let slot = &mut self.slots[node];
            let Some(p) = slot.process.as_mut() else { return };
            let Some(effect) = p.machine.poll() else {
                p.send(&mut batch);
                if std::mem::take(&mut stored) {
                    p.machine.stored(slot.clock.at(at));
                    continue;
                }
                return;
            };
            match effect {
                Effect::Send { to: Reach::All, datagram } => {
                    self.trace.note(at, node, Kind::Send, datagram.len());
                    watch.sent(at, node, Reach::All, &datagram);
                    batch.push(&datagram);
                }
                Effect::Send { to: Reach::One(to), datagram } => {
                    self.trace.note(at, node, Kind::Send, datagram.len());
                    watch.sent(at, node, Reach::One(to), &datagram);
                    if to == node || to >= self.bridge.len() {
                        continue;
                    }
                    p.send(&mut batch);
                    batch.push(&datagram);
                    if let Err(why) = p.send_aside(&mut self.bridge, node, to, &mut batch) {
                        watch.broken(at, &why);
                    }
                }
                Effect::Store { id, record } => {
                    self.trace.note(at, node, Kind::Store, record.len());
                    slot.records.insert(id, record);
                    stored = true;
                }
                Effect::Tell(told) => {
                    self.trace.note(at, node, Kind::Tell, 0);
                    watch.told(at, node, told);
                }
            }
        }
    }
}

impl Carrier for Sockets {
    const SETTLE: Duration = Duration::from_secs(1);

    fn now(&self) -> Monotonic {
        Monotonic(elapsed(self.start))
    }

    fn add(&mut self, multicast: bool, watch: &mut Watch) -> usize {
        if let Err(why) = self.bridge.add() {
            watch.broken(self.now(), &format!("no namespace: {why}"));
        }
        self.slots.push(NodeSlot::new(Clock::draw(&mut self.clocks), multicast));
        self.slots.len() - 1
    }

    fn start(&mut self, node: usize, birth: Birth<Player>, watch: &mut Watch) {
        let at = self.now();
        self.trace.note(at, node, Kind::Start, 0);
        match self.slots[node].start(&self.bridge, node, at, &birth) {
            Ok(()) => self.drain(node, watch),
            Err(why) => watch.broken(at, &why),
        }
    }

    fn crash(&mut self, node: usize) {
        self.trace.note(self.now(), node, Kind::Crash, 0);
        self.slots[node].process = None;
    }

    fn stop(&mut self, node: usize) {
        if let Some(p) = &mut self.slots[node].process {
            p.stopped = true;
        }
    }

    fn resume(&mut self, node: usize, _watch: &mut Watch) {
        if let Some(p) = &mut self.slots[node].process {
            p.stopped = false;
        }
    }

    fn runs(&self, node: usize) -> bool {
        self.slots[node].process.is_some()
    }

    fn command(&mut self, node: usize, ask: MemberCommand, watch: &mut Watch) {
        let now = self.slots[node].clock.at(self.now());
        let Some(p) = self.process(node) else { return };
        p.machine.command(now, ask);
        self.drain(node, watch);
    }

    fn set_network(&mut self, network: &Network) {
        let old = std::mem::replace(&mut self.network, at_the_ear(network));
        self.network.keep_sides_of(&old);
    }

    fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    fn step(&mut self, until: Monotonic, watch: &mut Watch) -> bool {
        if self.now() >= until {
            return false;
        }
        let busy = self.timers(watch) | self.overtaken(watch);
        let next = self.due().map_or(until, |due| due.min(until));
        self.listen(if busy { Duration::ZERO } else { next.since(self.now()) }, watch);
        true
    }

    fn trace(&self) -> &Trace {
        &self.trace
    }
}

/// The network as it is played at the receivers' ears: the way there takes as long as it takes.
fn at_the_ear(network: &Network) -> Network {
    let mut network = network.clone();
    network.delay = Delay::Constant(Duration::ZERO);
    network
}

fn elapsed(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).expect("a run ends within 584,000 years")
}

/// How long to wait at most before looking at everything again.
const WAIT_MAX: Duration = Duration::from_millis(500);
const STREAM_EARS: u64 = 1;
const STREAM_CLOCKS: u64 = 2;
