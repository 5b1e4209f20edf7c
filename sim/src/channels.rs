//! Connections between clients and servers: messages of one direction stay in order, take their time, and are lost when
//! the connection breaks.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_wire::Monotonic;

/// Which way a message of a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the server.
    ToClient,
    /// To the server.
    ToServer,
}

/// A client and a server, by number.
pub type Pair = (usize, usize);

/// All connections of a run.
#[derive(Debug, Default)]
pub struct Channels {
    open: BTreeSet<Pair>,
    /// How often each was broken: a message of an earlier connection does not arrive.
    broken: BTreeMap<Pair, u32>,
    /// When the last message of a direction arrives.
    last: BTreeMap<(Direction, Pair), Monotonic>,
}

impl Channels {
    /// A connection stands; `false` if it did.
    pub fn open(&mut self, pair: Pair) -> bool {
        self.open.insert(pair)
    }

    /// A connection breaks: nothing that is under way arrives; `false` if none stood.
    pub fn cut(&mut self, pair: Pair) -> bool {
        let was_open = self.open.remove(&pair);
        if was_open {
            *self.broken.entry(pair).or_default() += 1;
        }
        was_open
    }

    /// Whether a connection stands.
    pub fn is_open(&self, pair: Pair) -> bool {
        self.open.contains(&pair)
    }

    /// Which connection of these two this is: a message arrives if it is still the one that it was sent over.
    pub fn number(&self, pair: Pair) -> u32 {
        self.broken.get(&pair).copied().unwrap_or(0)
    }

    /// When a message that could be there at `at` arrives: behind those before it.
    pub fn arrives(&mut self, direction: Direction, pair: Pair, at: Monotonic) -> Monotonic {
        let last = self.last.entry((direction, pair)).or_insert(Monotonic(0));
        *last = at.max(Monotonic(last.0 + 1));
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_direction_stay_in_order_and_die_with_their_connection() {
        let (mut channels, pair) = (Channels::default(), (1, 2));
        assert!(channels.open(pair) && !channels.open(pair));
        let number = channels.number(pair);
        let arrives = [9, 4, 4, 20].map(|at| channels.arrives(Direction::ToServer, pair, Monotonic(at)).0);
        assert_eq!(arrives, [9, 10, 11, 20]);
        assert_eq!(channels.arrives(Direction::ToClient, pair, Monotonic(4)).0, 4);
        assert!(channels.cut(pair) && !channels.cut(pair) && !channels.is_open(pair));
        assert_ne!(channels.number(pair), number);
    }
}
