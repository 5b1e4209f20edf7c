//! The simulated network: what becomes of a datagram between one node and another.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::Duration;

use sealcast_wire::Monotonic;

use crate::dice::{Chance, Dice};

/// How the network treats datagrams; may change while a run goes on.
#[derive(Clone, Debug)]
pub struct Network {
    /// Chance that a copy on the way to one receiver is lost.
    pub loss: Chance,
    /// Chance that a receiver gets it twice.
    pub duplication: Chance,
    /// Chance that a copy is held back for up to `reordering_max`, so that later ones overtake it.
    pub reordering: Chance,
    /// How long one that is held back waits at most.
    pub reordering_max: Duration,
    /// How long the others take.
    pub delay: Delay,
    /// Longest datagram that is carried, bytes.
    pub datagram_bytes_max: usize,
    /// What the link of each node carries, in each direction; `None`: all that comes.
    pub bandwidth: Option<Bandwidth>,
    cuts: BTreeSet<(usize, usize)>,
    sides: Vec<usize>,
    /// Nodes that a partition does not cut off: all sides hear them.
    shared: BTreeSet<usize>,
    /// Until when the links are busy, out and in, by node.
    busy: BTreeMap<(End, usize), Monotonic>,
}

/// What a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes per second.
    pub bytes_per_second: NonZeroU64,
    /// Longest wait before a link; what would wait longer is dropped.
    pub queue: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Out,
    In,
}

/// A distribution of one-way delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Always the same.
    Constant(Duration),
    /// Evenly between the two.
    Uniform(Duration, Duration),
    /// At least the first, and on top of it an exponential one with the second as mean, cut off at
    /// ten means: a busy machine's scheduler.
    Tailed(Duration, Duration),
}

impl Network {
    /// A network that loses, duplicates and reorders nothing, with delays as on a quiet LAN.
    pub fn quiet() -> Network {
        Network {
            loss: Chance::NEVER,
            duplication: Chance::NEVER,
            reordering: Chance::NEVER,
            reordering_max: Duration::from_millis(5),
            delay: Delay::Uniform(Duration::from_micros(50), Duration::from_micros(300)),
            datagram_bytes_max: UDP_PAYLOAD_BYTES_MAX,
            bandwidth: None,
            cuts: BTreeSet::new(),
            sides: Vec::new(),
            shared: BTreeSet::new(),
            busy: BTreeMap::new(),
        }
    }

    /// A busy network: long-tailed delays, one datagram in fifty out of order, one in a hundred twice,
    /// and the given loss.
    pub fn rough(loss: Chance) -> Network {
        Network {
            loss,
            duplication: Chance::of(0.01),
            reordering: Chance::of(0.02),
            delay: Delay::Tailed(Duration::from_micros(80), Duration::from_micros(400)),
            ..Network::quiet()
        }
    }

    /// A quiet LAN, except that datagrams overtake each other and some come twice.
    pub fn lossless() -> Network {
        Network { duplication: Chance::of(0.005), reordering: Chance::of(0.01), ..Network::quiet() }
    }

    /// Nothing of `from` reaches `to` any more; the other direction stays as it was.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to));
    }

    /// Splits the network: only nodes of the same side hear each other. Nodes that are on no side form
    /// one of their own.
    pub fn partition(&mut self, sides: &[Vec<usize>]) {
        self.sides.clear();
        for (side, nodes) in sides.iter().enumerate() {
            for &node in nodes {
                if self.sides.len() <= node {
                    self.sides.resize(node + 1, 0);
                }
                self.sides[node] = side + 1;
            }
        }
    }

    /// Whatever partition there will be, all of its sides hear this node, and it hears them.
    pub fn share(&mut self, node: usize) {
        self.shared.insert(node);
    }

    /// Takes over who hears whom from another network.
    pub fn keep_sides_of(&mut self, other: &Network) {
        self.cuts.clone_from(&other.cuts);
        self.sides.clone_from(&other.sides);
        self.shared.clone_from(&other.shared);
    }

    /// Ends partition and cuts.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.sides.clear();
    }

    /// Whether datagrams of `from` can reach `to` at all.
    pub fn connected(&self, from: usize, to: usize) -> bool {
        let side = |node: usize| self.sides.get(node).copied().unwrap_or(0);
        let is_shared = self.shared.contains(&from) || self.shared.contains(&to);
        (is_shared || side(from) == side(to)) && !self.cuts.contains(&(from, to))
    }

    /// When a datagram has left its node, once for all receivers; `None` if there is no room before the link.
    pub fn leave(&mut self, now: Monotonic, from: usize, length: usize) -> Option<Monotonic> {
        self.pass(End::Out, from, now, length)
    }

    /// What becomes of one datagram on its way to one receiver's link: after which delays copies of it are there; none if it
    /// is lost.
    pub fn carry(&self, dice: &mut Dice, from: usize, to: usize, length: usize) -> Copies {
        if length > self.datagram_bytes_max || !self.connected(from, to) || dice.happens(self.loss) {
            return Copies(None, None);
        }
        let again = dice.happens(self.duplication).then(|| self.travel_time(dice));
        Copies(Some(self.travel_time(dice)), again)
    }

    /// When a datagram that comes to its receiver's link now has arrived; `None` if there is no room before the link.
    pub fn arrive(&mut self, now: Monotonic, to: usize, length: usize) -> Option<Monotonic> {
        self.pass(End::In, to, now, length)
    }

    /// When a datagram that comes to a link at this moment is through.
    fn pass(&mut self, end: End, node: usize, at: Monotonic, length: usize) -> Option<Monotonic> {
        let Some(Bandwidth { bytes_per_second, queue }) = self.bandwidth else { return Some(at) };
        let busy = self.busy.entry((end, node)).or_insert(at);
        let begins = at.max(*busy);
        if begins.since(at) > queue {
            return None;
        }
        let micros = (length as u64).saturating_mul(1_000_000).div_ceil(bytes_per_second.get());
        *busy = begins + Duration::from_micros(micros);
        Some(*busy)
    }

    fn travel_time(&self, dice: &mut Dice) -> Duration {
        let held = match dice.happens(self.reordering) {
            true => dice.between(Duration::ZERO, self.reordering_max),
            false => Duration::ZERO,
        };
        held + self.delay.draw(dice)
    }
}

/// After which delays the copies of a datagram arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies(pub Option<Duration>, pub Option<Duration>);

impl Delay {
    /// One delay.
    pub fn draw(self, dice: &mut Dice) -> Duration {
        match self {
            Delay::Constant(d) => d,
            Delay::Uniform(low, high) => dice.between(low, high),
            Delay::Tailed(base, mean) => base + tail(dice, mean),
        }
    }
}

/// An exponential delay without floating point: each halving of chance adds ln 2 of the mean, and the
/// rest is spread evenly between two halvings.
fn tail(dice: &mut Dice, mean: Duration) -> Duration {
    let step = mean.as_micros() as u64 * 693 / 1000;
    let bits = dice.bits();
    let halvings = u64::from(bits.leading_zeros()).min(TAIL_HALVINGS_MAX);
    Duration::from_micros(step * halvings + dice.below(step + 1))
}

/// Largest payload of one UDP datagram over IPv4.
const UDP_PAYLOAD_BYTES_MAX: usize = 65_507;
/// Cuts the exponential tail at about ten means.
const TAIL_HALVINGS_MAX: u64 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_duplication_come_as_often_as_asked() {
        let network = Network { loss: Chance::of(0.1), duplication: Chance::of(0.3), ..Network::quiet() };
        let mut dice = Dice::new(3, 0);
        let (mut lost, mut twice) = (0, 0);
        for _ in 0..10_000 {
            match network.carry(&mut dice, 0, 1, 100) {
                Copies(None, _) => lost += 1,
                Copies(Some(_), Some(_)) => twice += 1,
                Copies(Some(_), None) => {}
            }
        }
        assert!((900..1100).contains(&lost), "{lost}");
        assert!((2500..2900).contains(&twice), "{twice}");
    }

    #[test]
    fn all_sides_of_a_partition_hear_a_node_that_they_share() {
        let mut network = Network::quiet();
        network.share(3);
        network.partition(&[vec![0], vec![1, 2]]);
        assert!(network.connected(0, 3) && network.connected(3, 2) && !network.connected(0, 2));
        network.cut(0, 3);
        assert!(!network.connected(0, 3) && network.connected(3, 0));
    }

    #[test]
    fn a_cut_is_one_way_and_a_partition_is_both() {
        let mut network = Network::quiet();
        network.cut(0, 1);
        assert!(!network.connected(0, 1) && network.connected(1, 0));
        network.heal();
        network.partition(&[vec![0, 1], vec![2]]);
        assert!(network.connected(0, 1) && !network.connected(1, 2) && !network.connected(2, 0));
        assert!(network.connected(3, 4) && !network.connected(3, 0), "nodes on no side form their own");
        network.heal();
        assert!(network.connected(1, 2));
    }

    #[test]
    fn reordering_lets_later_datagrams_overtake() {
        let network = Network { reordering: Chance::of(0.5), ..Network::quiet() };
        let mut dice = Dice::new(4, 0);
        let arrivals: Vec<Duration> = (0..100u64)
            .map(|i| Duration::from_micros(100 * i) + network.carry(&mut dice, 0, 1, 9).0.expect("nothing is lost"))
            .collect();
        assert!(arrivals.windows(2).any(|w| w[1] < w[0]));
    }

    #[test]
    fn a_tail_has_about_its_mean_and_an_end() {
        let mut dice = Dice::new(5, 0);
        let mean = Duration::from_micros(1000);
        let draws: Vec<u128> = (0..20_000).map(|_| tail(&mut dice, mean).as_micros()).collect();
        let average = draws.iter().sum::<u128>() / draws.len() as u128;
        assert!((900..1200).contains(&average), "{average}");
        assert!(*draws.iter().max().expect("not empty") <= 11_000);
    }

    #[test]
    fn a_link_carries_so_much_and_drops_what_would_wait_too_long() {
        let bytes_per_second = NonZeroU64::new(1_000_000).expect("it is not 0");
        let bandwidth = Some(Bandwidth { bytes_per_second, queue: Duration::from_millis(5) });
        let mut network = Network { bandwidth, ..Network::quiet() };
        // 1,000 bytes take 1 ms: of ten at once the seventh would wait for 6 ms.
        let left: Vec<_> = (0..10).filter_map(|_| network.leave(Monotonic(0), 0, 1_000)).map(|at| at.0).collect();
        assert_eq!(left, [1_000, 2_000, 3_000, 4_000, 5_000, 6_000]);
        // What comes from anywhere shares the receiver's link, which is idle in between.
        let came = [0, 100, 5_000].map(|at| network.arrive(Monotonic(at), 2, 1_000).map(|at| at.0));
        assert_eq!(came, [Some(1_000), Some(2_000), Some(6_000)]);
    }

    #[test]
    fn what_is_too_long_is_not_carried() {
        let copies = Network::quiet().carry(&mut Dice::new(6, 0), 0, 1, 70_000);
        assert_eq!(copies, Copies(None, None));
    }
}
