//! Payloads, topics and names are never seen on the wire.

use sealcast_wire::Monotonic;

use super::body::MARKER;
use super::{Checker, Event, Roles, Verdict};

/// See the module.
pub struct Secrecy {
    needles: Vec<Vec<u8>>,
}

impl Secrecy {
    /// Besides payloads, these must not be seen: topics, members' names.
    pub fn new(mut needles: Vec<Vec<u8>>) -> Secrecy {
        needles.push(MARKER.to_vec());
        Secrecy { needles }
    }
}

impl Checker<Roles, Event> for Secrecy {
    fn name(&self) -> &'static str {
        "secrecy"
    }

    fn sent(&mut self, _at: Monotonic, from: usize, datagram: &[u8]) -> Verdict {
        match self.needles.iter().find(|needle| contains(datagram, needle)) {
            Some(needle) => Err(format!("a datagram of node {from} shows '{}'", String::from_utf8_lossy(needle))),
            None => Ok(()),
        }
    }

    fn event(&mut self, _at: Monotonic, _node: usize, _event: &Event, _roles: &Roles) -> Verdict {
        Ok(())
    }
}

/// Whether `needle` stands somewhere in `hay`; looks for its first byte first.
fn contains(hay: &[u8], needle: &[u8]) -> bool {
    let Some((&first, rest)) = needle.split_first() else { return false };
    let mut at = hay;
    while let Some(i) = at.iter().position(|b| *b == first) {
        at = &at[i + 1..];
        if at.starts_with(rest) {
            return true;
        }
    }
    false
}
