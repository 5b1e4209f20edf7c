//! What carries a story's members: the simulator, or real sockets in real time.

use std::time::Duration;

use sealcast_sim::network::Network;
use sealcast_sim::trace::Trace;
use sealcast_sim::{Birth, Sim};
use sealcast_wire::Monotonic;

use super::fixture::Player;
use super::watch::Watch;
use crate::member::MemberCommand;

/// Runs the nodes of a story. What cannot be done any more is reported to the watch, and ends the story.
pub(crate) trait Carrier {
    /// How long after the last step messages may still arrive.
    const SETTLE: Duration;

    /// The time, from the run's beginning.
    fn now(&self) -> Monotonic;
    /// Adds a computer, switched off; its index. One that is not `multicast` hears only what is sent to it
    /// alone.
    fn add(&mut self, multicast: bool, watch: &mut Watch) -> usize;
    /// Starts a process with what the disk holds.
    fn start(&mut self, node: usize, birth: Birth<Player>, watch: &mut Watch);
    /// Ends a process without a word.
    fn crash(&mut self, node: usize);
    /// Stops a process (SIGSTOP): its socket fills, its timers wait.
    fn stop(&mut self, node: usize);
    /// Lets it go on with what its socket holds.
    fn resume(&mut self, node: usize, watch: &mut Watch);
    /// Whether a process runs there (it may be stopped).
    fn runs(&self, node: usize) -> bool;
    /// Asks a node's machine for something.
    fn command(&mut self, node: usize, ask: MemberCommand, watch: &mut Watch);
    /// The network is another one from now on; who hears whom stays as it was.
    fn set_network(&mut self, network: &Network);
    /// The network, for cuts and partitions.
    fn network(&mut self) -> &mut Network;
    /// Does what is due next, unless that is later than `until`; `false` if nothing was and it is `until`.
    fn step(&mut self, until: Monotonic, watch: &mut Watch) -> bool;
    /// What happened so far.
    fn trace(&self) -> &Trace;
}

impl Carrier for Sim<Player> {
    const SETTLE: Duration = Duration::from_secs(3);

    fn now(&self) -> Monotonic {
        Sim::now(self)
    }
    fn add(&mut self, multicast: bool, _watch: &mut Watch) -> usize {
        Sim::add(self, multicast)
    }
    fn start(&mut self, node: usize, birth: Birth<Player>, watch: &mut Watch) {
        Sim::start(self, node, birth, watch);
    }
    fn crash(&mut self, node: usize) {
        Sim::crash(self, node);
    }
    fn stop(&mut self, node: usize) {
        Sim::stop(self, node);
    }
    fn resume(&mut self, node: usize, watch: &mut Watch) {
        Sim::resume(self, node, watch);
    }
    fn runs(&self, node: usize) -> bool {
        Sim::runs(self, node)
    }
    fn command(&mut self, node: usize, ask: MemberCommand, watch: &mut Watch) {
        Sim::command(self, node, ask, watch);
    }
    fn set_network(&mut self, network: &Network) {
        let old = std::mem::replace(&mut self.network, network.clone());
        self.network.keep_sides_of(&old);
    }
    fn network(&mut self) -> &mut Network {
        &mut self.network
    }
    fn step(&mut self, until: Monotonic, watch: &mut Watch) -> bool {
        Sim::step(self, until, watch)
    }
    fn trace(&self) -> &Trace {
        &self.trace
    }
}
