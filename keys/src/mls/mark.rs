//! How far a run delivered what was ordered, for the run after it.
//!
//! A run that begins in an epoch gets what was sealed for it while it was away, and nothing twice: the mark of the run before
//! says where that begins. It is stored when the process ends, and at most a second after something came; so what a killed
//! process took in its last second comes again, as from a client of brokers.

use std::time::Duration;

use sealcast_wire::codec::{Malformed, Reader, Writer};
use sealcast_wire::{EpochId, Now};

use super::engine::Engine;
use super::scheme::{Mls, Timer};
use crate::Output;

/// Records of this epoch are delivered up to this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    epoch: EpochId,
    position: u64,
}

impl Mark {
    /// Nothing is delivered.
    const NONE: Mark = Mark { epoch: EpochId { counter: 0, hash: 0 }, position: 0 };

    fn read(record: &[u8]) -> Result<Mark, Malformed> {
        let mut r = Reader::new(record);
        if r.u8()? != VERSION {
            return Err(Malformed);
        }
        let mark = Mark { epoch: EpochId { counter: r.u32()?, hash: r.u64()? }, position: r.u64()? };
        r.end()?;
        Ok(mark)
    }

    fn written(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(VERSION).u32(self.epoch.counter).u64(self.epoch.hash).u64(self.position);
        w.finish()
    }
}

/// What is delivered, and what is stored of that.
#[derive(Default)]
pub(super) struct Marks {
    stored: Option<Mark>,
    last: Option<Mark>,
}

impl Marks {
    /// What the run before stored; a record that does not parse is none.
    pub(super) fn of(stored: &[(u64, Vec<u8>)]) -> Marks {
        let record = stored.iter().find(|(id, _)| *id == MARK);
        Marks { stored: record.and_then(|(_, it)| Mark::read(it).ok()), last: None }
    }
}

impl<E: Engine> Mls<E> {
    /// Records of this epoch are delivered up to this position.
    pub(super) fn passed(&mut self, now: Now, position: u64) {
        let Some(epoch) = self.epoch() else { return };
        // A record that was void comes again in a later run.
        let mut before = self.marks.last.iter().chain(&self.marks.stored);
        if before.any(|it| it.epoch == epoch && it.position >= position) {
            return;
        }
        self.marks.last = Some(Mark { epoch, position });
        if !self.timers.is_set(Timer::Mark) {
            self.timers.set(Timer::Mark, now.monotonic + MARK_EVERY);
        }
    }

    pub(super) fn store_mark(&mut self) {
        self.timers.stop(Timer::Mark);
        if let Some(mark) = self.marks.last.filter(|it| self.marks.stored != Some(*it)) {
            self.put_mark(mark);
        }
    }

    /// How far the epoch in which this run begins is delivered. A run of a program that stored no mark delivered all of it.
    pub(super) fn delivered_before(&mut self, epoch: EpochId) -> u64 {
        match self.marks.stored {
            Some(mark) if mark.epoch == epoch => mark.position,
            Some(_) => 0,
            None => {
                self.put_mark(Mark { epoch, position: u64::MAX });
                u64::MAX
            }
        }
    }

    /// A later run knows by it that nothing of its epoch is delivered yet.
    pub(super) fn begin_marks(&mut self) {
        if self.marks.stored.is_none() {
            self.put_mark(Mark::NONE);
        }
    }

    fn put_mark(&mut self, mark: Mark) {
        self.marks.stored = Some(mark);
        self.outputs.push_back(Output::Store { id: MARK, record: mark.written() });
    }
}

const MARK_EVERY: Duration = Duration::from_secs(1);
pub(super) const MARK: u64 = 4;
const VERSION: u8 = 1;
