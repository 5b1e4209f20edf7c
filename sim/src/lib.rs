//! The deterministic simulator: any number of pure machines on virtual time and a simulated network.
//!
//! ```text
//!            command ─▶┌──────┐─▶ Send ──▶ Network ──▶ queue of what is due ──▶ handle
//!   timer ──────────── │ Node │─▶ Store ─▶ Disk ─────▶ durable after a while: what waited leaves
//!                      └──────┘─▶ Tell ──▶ Observer (checkers, actors)
//! ```
//! One thread, one queue, seeded chance: the same seed gives the same trace (G10). Every node has its
//! own clock with its own zero and drift (G5), and its own disk, on which a `Store` is a barrier (G6).

#![forbid(unsafe_code)]

pub mod agenda;
pub mod channels;
pub mod checker;
pub mod clock;
pub mod dice;
pub mod disk;
pub mod network;
pub mod seeds;
pub mod trace;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sealcast_wire::{Address, Monotonic, Now};

use agenda::Agenda;
use clock::Clock;
use dice::Dice;
use disk::Disk;
pub use disk::Records;
use network::Network;
use trace::{Kind, Trace};

/// A pure machine that the simulator runs: bytes, time and commands go in, effects come out.
pub trait Node {
    /// What it tells its application.
    type Event;
    /// What its application asks of it.
    type Command: Clone;

    /// A datagram has come.
    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]);
    /// The application asks for something.
    fn command(&mut self, now: Now, command: Self::Command);
    /// When [`Node::handle_timeout`] wants to be called next, on the node's own clock.
    fn timeout(&self) -> Option<Monotonic>;
    /// Time has come.
    fn handle_timeout(&mut self, now: Now);
    /// What it asked to be stored is durable.
    fn stored(&mut self, _now: Now) {}
    /// The next thing to be done, until there is none.
    fn poll(&mut self) -> Option<Effect<Self::Event>>;
}

/// Nodes of different kinds side by side.
impl<T, C: Clone> Node for Box<dyn Node<Event = T, Command = C>> {
    type Event = T;
    type Command = C;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        (**self).handle(now, from, datagram);
    }
    fn command(&mut self, now: Now, command: C) {
        (**self).command(now, command);
    }
    fn timeout(&self) -> Option<Monotonic> {
        (**self).timeout()
    }
    fn handle_timeout(&mut self, now: Now) {
        (**self).handle_timeout(now);
    }
    fn stored(&mut self, now: Now) {
        (**self).stored(now);
    }
    fn poll(&mut self) -> Option<Effect<T>> {
        (**self).poll()
    }
}

/// What a node wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<T> {
    /// Send a datagram.
    Send {
        /// Whom to.
        to: Reach,
        /// Its bytes.
        datagram: Vec<u8>,
    },
    /// Make a record durable before any later effect (G6).
    Store {
        /// Overwrites the record of the same id.
        id: u64,
        /// The record.
        record: Vec<u8>,
    },
    /// Tell the application something.
    Tell(T),
}

/// How far a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every other node of the multicast group.
    All,
    /// One node.
    One(usize),
}

/// Watches a run from outside: sees every datagram and everything that nodes tell, at once.
pub trait Observer<N: Node> {
    /// A datagram left a node.
    fn sent(&mut self, at: Monotonic, from: usize, to: Reach, datagram: &[u8]);
    /// A node told its application something.
    fn told(&mut self, at: Monotonic, node: usize, told: N::Event);
}

/// How a node comes to life: again for every start, with what its disk holds.
pub type Birth<N> = Box<dyn Fn(Now, &Records) -> N>;

/// A run: nodes, network, what is due, and chance.
pub struct Sim<N: Node> {
    now: Monotonic,
    /// The network; may be changed at any time.
    pub network: Network,
    /// What happened so far.
    pub trace: Trace,
    slots: Vec<NodeSlot<N>>,
    due: Agenda<Due>,
    dice: Dice,
    clocks: Dice,
    same_instant: (Monotonic, u32),
    journals: bool,
}

/// One computer: its clock and disk stay, its process comes and goes.
struct NodeSlot<N: Node> {
    clock: Clock,
    disk: Disk<N::Event>,
    process: Option<Process<N>>,
    /// Counts processes, so that timers of a dead one are known.
    generation: u64,
    multicast: bool,
}

struct Process<N: Node> {
    node: N,
    birth: Arc<(Birth<N>, Now, Records)>,
    journal: Vec<(Now, Input<N::Command>)>,
    armed: Option<Monotonic>,
    /// While the process is stopped: what its socket holds.
    stopped: Option<VecDeque<(Address, Arc<[u8]>)>>,
}

#[derive(Clone)]
enum Input<C> {
    Datagram(Address, Arc<[u8]>),
    Command(C),
    Timeout,
    Stored,
}

enum Due {
    /// It is at its receiver's link.
    Arrive {
        to: usize,
        from: Address,
        datagram: Arc<[u8]>,
    },
    /// It is through.
    Take {
        to: usize,
        from: Address,
        datagram: Arc<[u8]>,
    },
    Timer {
        node: usize,
        generation: u64,
    },
    Synced {
        node: usize,
        generation: u64,
    },
}

impl<N: Node> Sim<N> {
    /// An empty world at time zero.
    pub fn new(seed: u64, network: Network) -> Sim<N> {
        Sim {
            now: Monotonic(0),
            network,
            trace: Trace::new(0),
            slots: Vec::new(),
            due: Agenda::default(),
            dice: Dice::new(seed, STREAM_NETWORK),
            clocks: Dice::new(seed, STREAM_CLOCKS),
            same_instant: (Monotonic(0), 0),
            journals: false,
        }
    }

    /// Keeps every process's inputs, so that [`Sim::clone_process`] can be used.
    pub fn keep_journals(&mut self) {
        self.journals = true;
    }

    /// The simulator's own time.
    pub fn now(&self) -> Monotonic {
        self.now
    }

    /// Adds a computer, switched off; its index. One that is not `multicast` hears only what is sent
    /// to it alone.
    pub fn add(&mut self, multicast: bool) -> usize {
        let clock = Clock::draw(&mut self.clocks);
        self.slots.push(NodeSlot { clock, disk: Disk::new(), process: None, generation: 0, multicast });
        self.slots.len() - 1
    }

    /// How many computers there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether a process runs there (it may be stopped).
    pub fn runs(&self, node: usize) -> bool {
        self.slots.get(node).is_some_and(|slot| slot.process.is_some())
    }

    /// The machine at a seat, to look at.
    pub fn node(&self, node: usize) -> Option<&N> {
        self.slots[node].process.as_ref().map(|p| &p.node)
    }

    /// What is durable on a node's disk.
    pub fn records(&self, node: usize) -> &Records {
        self.slots[node].disk.durable()
    }

    /// A computer without its disk's content: a replaced machine.
    pub fn wipe(&mut self, node: usize) {
        self.slots[node].disk.wipe();
    }

    /// The time as a node's process sees it.
    pub fn local(&self, node: usize) -> Now {
        self.slots[node].clock.at(self.now)
    }

    /// Starts a process with what the disk holds.
    ///
    /// # Panics
    /// If one runs there already.
    pub fn start(&mut self, node: usize, birth: Birth<N>, observer: &mut impl Observer<N>) {
        assert!(!self.runs(node), "one process per computer");
        let now = self.local(node);
        self.trace.note(self.now, node, Kind::Start, 0);
        let slot = &mut self.slots[node];
        slot.generation += 1;
        let birth = Arc::new((birth, now, slot.disk.durable().clone()));
        let machine = (birth.0)(now, &birth.2);
        slot.process = Some(Process { node: machine, birth, journal: Vec::new(), armed: None, stopped: None });
        self.drain(node, observer);
    }

    /// Ends a process without a word. What its disk had not confirmed is kept or lost, record by
    /// record; what waited for it never leaves.
    pub fn crash(&mut self, node: usize) {
        self.trace.note(self.now, node, Kind::Crash, 0);
        let slot = &mut self.slots[node];
        slot.process = None;
        slot.generation += 1;
        slot.disk.crash(&mut self.dice);
    }

    /// Stops a process (SIGSTOP): its socket fills, its timers wait.
    pub fn stop(&mut self, node: usize) {
        if let Some(p) = &mut self.slots[node].process {
            p.stopped.get_or_insert_default();
        }
    }

    /// Lets a stopped process go on with what its socket holds.
    pub fn resume(&mut self, node: usize, observer: &mut impl Observer<N>) {
        let Some(held) = self.slots[node].process.as_mut().and_then(|p| p.stopped.take()) else { return };
        for (from, datagram) in held {
            self.input(node, Input::Datagram(from, datagram), observer);
        }
        if self.slots[node].disk.is_idle() {
            self.input(node, Input::Stored, observer);
        }
        self.input(node, Input::Timeout, observer);
    }

    /// A virtual machine's clone: a second process, on a new computer, in exactly the state of the
    /// first one (same keys, same incarnation, same counters). Its index.
    ///
    /// # Panics
    /// If no process runs there or journals were not kept.
    pub fn clone_process(&mut self, of: usize, observer: &mut impl Observer<N>) -> usize {
        assert!(self.journals, "call keep_journals first");
        let original = self.slots[of].process.as_ref().expect("a process to clone");
        let (birth, journal) = (original.birth.clone(), original.journal.clone());
        let mut machine = (birth.0)(birth.1, &birth.2);
        while machine.poll().is_some() {}
        for (now, input) in journal.iter().cloned() {
            feed(&mut machine, now, input);
            while machine.poll().is_some() {}
        }
        let (clock, multicast) = (self.slots[of].clock, self.slots[of].multicast);
        let process = Process { node: machine, birth, journal, armed: None, stopped: None };
        self.slots.push(NodeSlot { clock, disk: Disk::new(), process: Some(process), generation: 1, multicast });
        let clone = self.slots.len() - 1;
        self.trace.note(self.now, clone, Kind::Start, 0);
        self.drain(clone, observer);
        clone
    }

    /// Asks a node's machine for something; nothing happens where no process runs.
    pub fn command(&mut self, node: usize, command: N::Command, observer: &mut impl Observer<N>) {
        self.input(node, Input::Command(command), observer);
    }

    /// Puts a datagram on the network as if `from` had sent it: an attacker's hand.
    pub fn inject(&mut self, from: usize, to: Reach, datagram: Vec<u8>, observer: &mut impl Observer<N>) {
        self.transmit(from, to, datagram, observer);
    }

    /// Does what is due next, unless it is later than `until`; `false` if nothing was.
    pub fn step(&mut self, until: Monotonic, observer: &mut impl Observer<N>) -> bool {
        let Some((at, due)) = self.due.pop(until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = at;
        match due {
            Due::Arrive { to, from, datagram } => match self.network.arrive(self.now, to, datagram.len()) {
                Some(at) if at > self.now => self.due.push(at, Due::Take { to, from, datagram }),
                Some(_) => self.take(to, from, datagram, observer),
                None => self.trace.note(self.now, to, Kind::Lose, datagram.len()),
            },
            Due::Take { to, from, datagram } => self.take(to, from, datagram, observer),
            Due::Timer { node, generation } => self.timer(node, generation, observer),
            Due::Synced { node, generation } => {
                let slot = &mut self.slots[node];
                if slot.generation == generation {
                    self.trace.note(self.now, node, Kind::Synced, 0);
                    slot.disk.synced();
                    self.input(node, Input::Stored, observer);
                    self.drain(node, observer);
                }
            }
        }
        true
    }

    /// Runs until a moment on the simulator's clock.
    pub fn run_until(&mut self, until: Monotonic, observer: &mut impl Observer<N>) {
        while self.step(until, observer) {}
    }

    fn take(&mut self, to: usize, from: Address, datagram: Arc<[u8]>, observer: &mut impl Observer<N>) {
        self.trace.note(self.now, to, Kind::Arrive, datagram.len());
        self.input(to, Input::Datagram(from, datagram), observer);
    }

    fn timer(&mut self, node: usize, generation: u64, observer: &mut impl Observer<N>) {
        let now = self.local(node);
        let slot = &mut self.slots[node];
        let Some(p) = slot.process.as_mut().filter(|_| slot.generation == generation) else { return };
        if p.armed.is_some_and(|t| t > self.now) {
            return; // a later timer replaced this one
        }
        p.armed = None;
        match p.node.timeout() {
            Some(t) if t <= now.monotonic => {
                self.trace.note(self.now, node, Kind::Timer, 0);
                self.input(node, Input::Timeout, observer);
            }
            _ => self.arm(node),
        }
    }

    fn input(&mut self, node: usize, input: Input<N::Command>, observer: &mut impl Observer<N>) {
        let now = self.local(node);
        let Some(p) = self.slots[node].process.as_mut() else { return };
        if let Some(held) = &mut p.stopped {
            match input {
                Input::Datagram(from, datagram) if held.len() < SOCKET_DATAGRAMS_MAX => {
                    held.push_back((from, datagram));
                }
                _ => {}
            }
            return;
        }
        if self.journals {
            p.journal.push((now, input.clone()));
        }
        feed(&mut p.node, now, input);
        self.drain(node, observer);
    }

    /// Does all that a node wants done, up to the barrier of its disk, and sets its timer.
    fn drain(&mut self, node: usize, observer: &mut impl Observer<N>) {
        let mut budget = EFFECTS_PER_STEP_MAX;
        while let Some(effect) = self.slots[node].process.as_mut().and_then(|p| p.node.poll()) {
            self.slots[node].disk.queue(effect);
            budget -= 1;
            assert!(budget > 0, "node {node} never stops wanting things: its poll has no end");
        }
        loop {
            match self.slots[node].disk.next() {
                disk::Step::Do(Effect::Send { to, datagram }) => self.transmit(node, to, datagram, observer),
                disk::Step::Do(Effect::Tell(told)) => {
                    self.trace.note(self.now, node, Kind::Tell, 0);
                    observer.told(self.now, node, told);
                }
                disk::Step::Do(Effect::Store { .. }) => unreachable!("the disk keeps its records"),
                disk::Step::Write { bytes } => {
                    self.trace.note(self.now, node, Kind::Store, bytes);
                    let at = self.now + disk::SYNC.draw(&mut self.dice);
                    let generation = self.slots[node].generation;
                    self.due.push(at, Due::Synced { node, generation });
                }
                disk::Step::Wait => break,
            }
        }
        self.arm(node);
    }

    /// Sets the timer of a node, if it is not set for that moment or before.
    fn arm(&mut self, node: usize) {
        let slot = &mut self.slots[node];
        let generation = slot.generation;
        let Some(p) = slot.process.as_mut().filter(|p| p.stopped.is_none()) else { return };
        let Some(local) = p.node.timeout() else { return };
        let at = slot.clock.reaches(local).max(self.now);
        if p.armed.is_some_and(|t| t <= at && t >= self.now) {
            return;
        }
        p.armed = Some(at);
        if at == self.now {
            let (instant, times) = &mut self.same_instant;
            *times = if *instant == at { *times + 1 } else { 1 };
            *instant = at;
            assert!(*times < SAME_INSTANT_MAX, "node {node} asks for a time-out at once, for ever");
        }
        self.due.push(at, Due::Timer { node, generation });
    }

    fn transmit(&mut self, from: usize, to: Reach, datagram: Vec<u8>, observer: &mut impl Observer<N>) {
        self.trace.note(self.now, from, Kind::Send, datagram.len());
        observer.sent(self.now, from, to, &datagram);
        let datagram: Arc<[u8]> = datagram.into();
        let Some(left) = self.network.leave(self.now, from, datagram.len()) else {
            self.trace.note(self.now, from, Kind::Lose, datagram.len());
            return;
        };
        match to {
            Reach::One(to) => self.carry(left, from, to, &datagram),
            Reach::All => {
                for to in (0..self.slots.len()).filter(|&to| to != from) {
                    if self.slots[to].multicast {
                        self.carry(left, from, to, &datagram);
                    }
                }
            }
        }
    }

    fn carry(&mut self, left: Monotonic, from: usize, to: usize, datagram: &Arc<[u8]>) {
        if !self.runs(to) {
            return;
        }
        let copies = self.network.carry(&mut self.dice, from, to, datagram.len());
        if copies.0.is_none() {
            self.trace.note(self.now, to, Kind::Lose, datagram.len());
        }
        for delay in [copies.0, copies.1].into_iter().flatten() {
            let from = Address::Node(from as u32);
            self.due.push(left + delay, Due::Arrive { to, from, datagram: datagram.clone() });
        }
    }
}

fn feed<N: Node>(machine: &mut N, now: Now, input: Input<N::Command>) {
    match input {
        Input::Datagram(from, datagram) => machine.handle(now, from, &mut datagram.to_vec()),
        Input::Command(command) => machine.command(now, command),
        Input::Timeout => machine.handle_timeout(now),
        Input::Stored => machine.stored(now),
    }
}

/// How long a run of a scenario may at most be, on the simulator's clock.
pub const RUN_MAX: Duration = Duration::from_secs(3600);
/// Datagrams that a stopped process's socket holds: 212,992 B of buffer over 1 KB with its overhead.
const SOCKET_DATAGRAMS_MAX: usize = 128;
/// Effects of one input, beyond which a machine is taken for one that never stops.
const EFFECTS_PER_STEP_MAX: u32 = 1_000_000;
/// Timers that may fire at one instant, all nodes together.
const SAME_INSTANT_MAX: u32 = 100_000;
/// Which throws of the seed's dice are whose.
const STREAM_NETWORK: u64 = 1;
const STREAM_CLOCKS: u64 = 2;

#[cfg(test)]
mod tests;
