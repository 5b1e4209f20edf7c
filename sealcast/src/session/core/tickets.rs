//! What was published, and what became of it, where the transport tells it.

use std::time::Duration;

use sealcast_delivery::Outcome;
use sealcast_wire::Monotonic;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tickets {
    /// Messages that the group took.
    pub published: u64,
    /// Those of which it is known what became.
    pub settled: u64,
    /// Those that came to nothing.
    pub refused: u64,
    /// What became of the first of those.
    pub refusal: Option<Outcome>,
}

impl Tickets {
    /// Messages of which it is not known yet.
    pub fn open(&self) -> usize {
        usize::try_from(self.published.saturating_sub(self.settled)).unwrap_or(usize::MAX)
    }

    pub(super) fn settle(&mut self, outcome: Outcome) {
        self.settled += 1;
        match outcome {
            Outcome::Denied(_) | Outcome::Failed => {
                self.refused += 1;
                self.refusal.get_or_insert(outcome);
            }
            Outcome::Accepted | Outcome::Ordered(_) | Outcome::Superseded(_) | Outcome::InDoubt => {}
        }
    }
}

/// Whether messages are still being settled, as somebody who waits for that sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress(Option<(u64, Monotonic)>);

impl Progress {
    /// Whether nothing was settled for so long.
    pub fn is_over(&mut self, now: Monotonic, settled: u64, timeout: Duration) -> bool {
        let since = self.0.filter(|(before, _)| *before == settled).map_or(now, |(_, since)| since);
        self.0 = Some((settled, since));
        now.since(since) >= timeout
    }

    /// When that will be.
    pub(super) fn until(&self, timeout: Duration) -> Option<Monotonic> {
        self.0.map(|(_, since)| since + timeout)
    }
}
