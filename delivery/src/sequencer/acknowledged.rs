//! What the coordinator, the member with the lowest slot, knows of who has which reliable records.

use std::collections::BTreeMap;

use sealcast_wire::{Domain, Slot};

use super::control::Of;

/// See the module. Of one epoch.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    streams: BTreeMap<Of, Readers>,
}

#[derive(Debug, Default)]
struct Readers {
    /// By reader: up to which record it has them all.
    by: BTreeMap<Slot, u64>,
    /// What all were told that all readers have.
    told: u64,
    /// Whether somebody missed that.
    again: bool,
}

impl Acknowledged {
    /// A reader has a stream's records up to this one; whether that may be news to all.
    pub(super) fn note(&mut self, by: Slot, of: Of, number: u64) -> bool {
        let readers = self.streams.entry(of).or_default();
        let before = readers.by.entry(by).or_default();
        *before = number.max(*before);
        // It says what all were told before: it did not hear it.
        readers.again |= number <= readers.told;
        number > readers.told || readers.again
    }

    /// Up to where each of `members` who reads a stream has it; its sender has all.
    pub(super) fn progress(
        &self,
        members: &[Slot],
        reads: impl Fn(Slot, Domain) -> bool,
    ) -> Vec<(Of, Vec<(Slot, u64)>)> {
        let line = |of: &Of, readers: &Readers| {
            let has =
                |slot: &Slot| if *slot == of.slot { u64::MAX } else { readers.by.get(slot).copied().unwrap_or(0) };
            let in_it = members.iter().filter(|it| **it == of.slot || reads(**it, of.stream.domain));
            in_it.map(|slot| (*slot, has(slot))).collect()
        };
        self.streams.iter().filter(|(of, _)| of.stream.is_fifo()).map(|(of, it)| (*of, line(of, it))).collect()
    }

    /// Up to where all of `members` who read a stream have it, of streams of which that is news; told with this.
    pub(super) fn news(&mut self, members: &[Slot], reads: impl Fn(Slot, Domain) -> bool) -> Vec<(Of, u64)> {
        let mut news = Vec::new();
        for (of, readers) in &mut self.streams {
            let others = members.iter().filter(|it| **it != of.slot && reads(**it, of.stream.domain));
            let all = others.map(|it| readers.by.get(it).copied().unwrap_or(0)).min().unwrap_or(0);
            if all > readers.told || readers.again && all > 0 {
                (readers.told, readers.again) = (all.max(readers.told), false);
                news.push((*of, readers.told));
            }
        }
        news
    }
}
