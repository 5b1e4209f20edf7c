//! What happened when, as a rolling hash: the same seed gives the same trace (G10).

use std::fmt;
use std::hash::Hasher;

use sealcast_wire::Monotonic;

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, on the simulator's own clock.
    pub at: Monotonic,
    /// Which node.
    pub actor: u32,
    /// What it was.
    pub kind: Kind,
    /// How many bytes it concerned.
    pub length: u32,
}

/// What a line of a trace tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A process started.
    Start,
    /// A process stopped without a word.
    Crash,
    /// A datagram left a node.
    Send,
    /// A datagram reached a node.
    Arrive,
    /// The network lost a copy on the way to this node.
    Lose,
    /// A node's timer fired.
    Timer,
    /// A record was handed to the disk.
    Store,
    /// The disk said that it is durable.
    Synced,
    /// The node told its application something.
    Tell,
}

/// The trace of a run: always its hash, and its last lines if asked to keep them.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    count: u64,
    keep: usize,
    lines: std::collections::VecDeque<Line>,
}

impl Trace {
    /// A trace that keeps its last `keep` lines.
    pub fn new(keep: usize) -> Trace {
        Trace { hash: FNV_OFFSET, count: 0, keep, lines: Default::default() }
    }

    /// Adds a line.
    pub fn note(&mut self, at: Monotonic, actor: usize, kind: Kind, length: usize) {
        let line = Line { at, actor: actor as u32, kind, length: length as u32 };
        self.mix(at.micros());
        self.mix(u64::from(line.actor) << 40 | (kind as u64) << 32 | u64::from(line.length));
        self.count += 1;
        if self.keep > 0 {
            if self.lines.len() == self.keep {
                self.lines.pop_front();
            }
            self.lines.push_back(line);
        }
    }

    /// The hash over all lines so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many lines there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The lines kept, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter()
    }

    fn mix(&mut self, word: u64) {
        let mut fnv = Fnv(self.hash);
        fnv.write_u64(word);
        self.hash = fnv.finish();
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.at.micros() as f64 / 1e3;
        write!(f, "{ms:>12.3} ms  node {:<3} {:<7} {:>6} B", self.actor, format!("{:?}", self.kind), self.length)
    }
}

/// FNV-1a with 64 bits: no defence against anybody, only a fingerprint that is the same everywhere.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(FNV_PRIME);
        }
    }

    fn write_u64(&mut self, v: u64) {
        self.write(&v.to_le_bytes());
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_changes_the_hash() {
        let hash = |at, actor, kind, length| {
            let mut t = Trace::new(0);
            t.note(Monotonic(at), actor, kind, length);
            t.hash()
        };
        let base = hash(1, 2, Kind::Send, 3);
        assert_eq!(base, hash(1, 2, Kind::Send, 3));
        for other in [hash(2, 2, Kind::Send, 3), hash(1, 3, Kind::Send, 3), hash(1, 2, Kind::Arrive, 3)] {
            assert_ne!(base, other);
        }
        assert_ne!(base, hash(1, 2, Kind::Send, 4));
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut t = Trace::new(2);
        for i in 0..5 {
            t.note(Monotonic(i), 0, Kind::Timer, 0);
        }
        assert_eq!(t.lines().map(|l| l.at.micros()).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(t.count(), 5);
    }
}
