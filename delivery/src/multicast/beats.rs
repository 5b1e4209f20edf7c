//! Heartbeats: when we say that we are alive, and to whom.
//!
//! In a small group each member says so to all. In a larger one that would be n² receptions: members say so to the *collector*,
//! the lowest slot, which tells all whom it heard (B10). Whom it does not name, as far as that one hears, says so to all: so
//! nobody is suspected because the collector is gone, but the collector.

use std::time::Duration;

use sealcast_wire::{Monotonic, Slot, View, limits};

/// See the module.
#[derive(Debug)]
pub(super) struct Beats {
    period: Duration,
    /// Whether a large group has a collector.
    collects: bool,
    /// When to see whether the next one is due, once there are others to hear it.
    at: Option<Monotonic>,
    /// Of a large group.
    collector: Option<Collector>,
}

#[derive(Debug)]
struct Collector {
    slot: Slot,
    is_us: bool,
    /// When it named us last.
    named: Monotonic,
}

/// Who hears the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// All do.
    All,
    /// The collector.
    To(Slot),
    /// All hear whom we heard since then.
    Heard(Monotonic),
}

impl Beats {
    /// One at least in each period.
    pub(super) fn new(period: Duration, collects: bool) -> Beats {
        Beats { period, collects, at: None, collector: None }
    }

    /// A view begins; `false` where nobody beats. Members of a large group beat as they did before: at the collector all at
    /// once would come at each change of key.
    pub(super) fn install(&mut self, now: Monotonic, view: &View, beats: bool) {
        let members = view.members.len();
        let lowest = view.members.slots().next().map(|(slot, _)| slot);
        let lowest = lowest.filter(|_| self.collects && members > limits::DIRECT_MEMBERS_MAX);
        let before = self.at.filter(|_| lowest.is_some());
        self.at = (beats && members > 1).then(|| before.unwrap_or(now));
        self.collector = lowest.map(|slot| Collector { slot, is_us: slot == view.me, named: now });
    }

    /// When to see whether one is due.
    pub(super) fn timeout(&self) -> Option<Monotonic> {
        self.at
    }

    /// The collector has heard us.
    pub(super) fn named(&mut self, now: Monotonic) {
        self.collector.iter_mut().for_each(|it| it.named = now);
    }

    /// The one that is due, if one is; all heard us last at `spoken`.
    pub(super) fn due(&mut self, now: Monotonic, spoken: Option<Monotonic>) -> Option<Beat> {
        self.at.filter(|at| *at <= now)?;
        let collects = self.collector.as_ref().is_some_and(|it| it.is_us);
        let due = spoken.map_or(now, |last| last + self.period);
        if due > now && !collects {
            self.at = Some(due);
            return None;
        }
        self.at = Some(now + self.period);
        Some(match &self.collector {
            // Who beats once in a period was heard within two, unless it is gone.
            Some(_) if collects => Beat::Heard(Monotonic(0) + now.since(Monotonic(0)).saturating_sub(2 * self.period)),
            Some(it) if now < it.named + PERIODS_UNNAMED * self.period => Beat::To(it.slot),
            _ => Beat::All,
        })
    }
}

/// So long a member waits for the collector to name it.
const PERIODS_UNNAMED: u32 = 3;
