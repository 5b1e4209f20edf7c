//! What others advertise, until the program takes it.

use std::collections::VecDeque;

use sealcast_broker::operation::{Client, Interest};
use sealcast_wire::limits;

/// Somebody tells what it publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Which publications.
    pub scope: Interest,
    /// What to know of them, as the advertiser wrote it.
    pub text: Vec<u8>,
    /// The advertiser.
    pub client: Client,
    /// Its place among all operations.
    pub sn: u64,
}

/// What came since it was last looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertisements {
    /// In the brokers' order.
    pub came: Vec<Advertisement>,
    /// Older ones that had no room.
    pub missed: u64,
}

/// What waits to be taken.
#[derive(Debug, Default)]
pub struct Advertised {
    waiting: VecDeque<Advertisement>,
    missed: u64,
}

impl Advertised {
    /// Takes one in; the oldest makes room.
    pub fn put(&mut self, advertisement: Advertisement) {
        if self.waiting.len() >= limits::CLIENT_ADVERTISEMENTS_MAX {
            self.waiting.pop_front();
            self.missed += 1;
        }
        self.waiting.push_back(advertisement);
    }

    /// What came since the last call.
    pub fn take(&mut self) -> Advertisements {
        let Advertised { waiting, missed } = std::mem::take(self);
        Advertisements { came: waiting.into(), missed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_g7_the_oldest_advertisements_make_room_and_are_counted() {
        let mut advertised = Advertised::default();
        let max = limits::CLIENT_ADVERTISEMENTS_MAX as u64;
        for sn in 0..max + 3 {
            let scope = "market/#".parse().expect("an interest");
            advertised.put(Advertisement { scope, text: Vec::new(), client: Client([1; 32]), sn });
        }
        let Advertisements { came, missed } = advertised.take();
        assert_eq!((came.len() as u64, came[0].sn, missed), (max, 3, 3));
        assert_eq!(advertised.take(), Advertisements::default());
    }
}
