//! The simulator on toy machines: who hears what, in which order, and the same again.

use super::*;
use crate::dice::Chance;

/// Says hello every 10 ms, stores what it hears, and tells it.
struct Parrot {
    next: Monotonic,
    said: u8,
    wants: VecDeque<Effect<(u32, u8)>>,
}

impl Parrot {
    fn birth() -> Birth<Parrot> {
        Box::new(|now, _| Parrot { next: now.monotonic + TICK, said: 0, wants: VecDeque::new() })
    }
}

impl Node for Parrot {
    type Event = (u32, u8);
    type Command = u8;

    fn handle(&mut self, _now: Now, from: Address, datagram: &mut [u8]) {
        let Address::Node(from) = from else { panic!("the simulator has nodes only") };
        self.wants.push_back(Effect::Tell((from, datagram[0])));
    }

    fn command(&mut self, _now: Now, command: u8) {
        self.wants.push_back(Effect::Store { id: 0, record: vec![command] });
        self.wants.push_back(Effect::Send { to: Reach::All, datagram: vec![command; 5] });
    }

    fn timeout(&self) -> Option<Monotonic> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.said += 1;
        self.next = now.monotonic + TICK;
        self.wants.push_back(Effect::Send { to: Reach::All, datagram: vec![self.said; 5] });
    }

    fn poll(&mut self) -> Option<Effect<(u32, u8)>> {
        self.wants.pop_front()
    }
}

#[derive(Default)]
struct Ears(Vec<(usize, u32, u8)>);

impl Observer<Parrot> for Ears {
    fn sent(&mut self, _at: Monotonic, _from: usize, _to: Reach, _datagram: &[u8]) {}
    fn told(&mut self, _at: Monotonic, node: usize, told: (u32, u8)) {
        self.0.push((node, told.0, told.1));
    }
}

fn aviary(seed: u64, network: Network, n: usize) -> (Sim<Parrot>, Ears) {
    let (mut sim, mut ears) = (Sim::new(seed, network), Ears::default());
    for _ in 0..n {
        let node = sim.add(true);
        sim.start(node, Parrot::birth(), &mut ears);
    }
    (sim, ears)
}

#[test]
fn rule_g10_the_same_seed_gives_the_same_trace() {
    let run = |seed| {
        let (mut sim, mut ears) = aviary(seed, Network::rough(Chance::of(0.1)), 5);
        sim.run_until(Monotonic(500_000), &mut ears);
        sim.command(1, 99, &mut ears);
        sim.crash(2);
        sim.run_until(Monotonic(600_000), &mut ears);
        sim.start(2, Parrot::birth(), &mut ears);
        sim.run_until(Monotonic(1_000_000), &mut ears);
        (sim.trace.hash(), sim.trace.count(), ears.0)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn everybody_hears_everybody_else_once_on_a_quiet_network() {
    let (mut sim, mut ears) = aviary(3, Network::quiet(), 3);
    sim.run_until(Monotonic(TICK.as_micros() as u64 * 2 - 1000), &mut ears);
    ears.0.sort_unstable();
    assert_eq!(ears.0, [(0, 1, 1), (0, 2, 1), (1, 0, 1), (1, 2, 1), (2, 0, 1), (2, 1, 1)]);
}

#[test]
fn what_follows_a_store_waits_for_it_and_dies_with_it() {
    let (mut sim, mut ears) = aviary(4, Network::quiet(), 2);
    sim.command(0, 77, &mut ears);
    sim.crash(0);
    sim.run_until(Monotonic(5_000), &mut ears);
    assert_eq!(ears.0, []);
    sim.start(0, Parrot::birth(), &mut ears);
    sim.command(0, 78, &mut ears);
    sim.run_until(Monotonic(9_000), &mut ears);
    assert_eq!(ears.0, [(1, 0, 78)]);
    assert_eq!(sim.records(0)[&0], [78]);
}

#[test]
fn a_stopped_process_goes_on_with_what_its_socket_holds() {
    let (mut sim, mut ears) = aviary(5, Network::quiet(), 2);
    sim.stop(1);
    sim.run_until(Monotonic(25_000), &mut ears);
    assert!(ears.0.is_empty(), "node 1 neither hears nor speaks: {:?}", ears.0);
    sim.resume(1, &mut ears);
    assert_eq!(ears.0, [(1, 0, 1), (1, 0, 2)]);
}

#[test]
fn a_clone_is_in_the_state_of_its_original() {
    let (mut sim, mut ears) = (Sim::new(6, Network::quiet()), Ears::default());
    sim.keep_journals();
    for _ in 0..2 {
        let node = sim.add(true);
        sim.start(node, Parrot::birth(), &mut ears);
    }
    sim.run_until(Monotonic(55_000), &mut ears);
    let clone = sim.clone_process(0, &mut ears);
    let said = |node: usize| sim.node(node).expect("runs").said;
    assert_eq!((said(0), said(clone)), (5, 5));
}

const TICK: Duration = Duration::from_millis(10);
