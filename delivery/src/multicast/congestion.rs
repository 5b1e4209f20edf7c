//! How much of a sender's reliable records may be under way, and how many are sent again.
//!
//! ```text
//! acknowledged ─▶ round trips ─┬─ short ───▶ the window grows: doubles, or by a part of itself, each round trip
//!                              ├─ a queue ─▶ it stays; where others fill the queue, it grows by a datagram each round trip
//!                              └─ a long one, nothing lost ─▶ a probe: with a fourth under way, are round trips still long?
//! NAK ─▶ a round ends: part lost ── in a full queue, or a sixth and more ─▶ the window shrinks by that part
//! ```
//! Loss alone says little of a network: radio loses one in twenty at any rate. What is lost while no round trip is within
//! [`QUEUE_FULL`] of the shortest one was lost in a full queue, and the window shrinks as TCP's does (RFC 5681, 3.1), so that
//! beside TCP streams each gets a share. Without loss it stops to grow at a short queue, as in Copa (Arun and Balakrishnan,
//! NSDI 2018, 2.2): then a member whose link becomes slow has little to catch up with. A round is what was sealed before the
//! last one ended, as in BBR; of each its shortest round trip counts, since those that wait for a processor are longer now and
//! then. A probe, also once in a while, shows whether a queue is ours, and the shortest round trip again (BBR's ProbeRTT).

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_wire::{Monotonic, Slot, limits};

use super::frame::Stream;
use super::pace::Pace;

/// See the module.
#[derive(Debug)]
pub(super) struct Congestion {
    /// Bytes that may be unacknowledged.
    window: usize,
    /// At this window it was too much once: above it grows slowly.
    threshold: usize,
    /// The most that there may be.
    most: usize,
    rtt: Rtt,
    /// When something was last lost in a full queue.
    competes: Option<Monotonic>,
    /// Records sealed so far, and those of them after which a round ends and began.
    sealed: u64,
    round: (u64, u64),
    /// The same of the longer run whose losses are looked at where there is no queue.
    sample: u64,
    lost: BTreeMap<(Slot, Stream), Lost>,
    /// The window is short for so many rounds, after one in which round trips were so long.
    probe: Option<(u32, Duration)>,
    repairs: Allowance,
    /// Best effort beside it.
    pub(super) pace: Pace,
}

/// What one receiver lost of one stream.
#[derive(Debug, Default)]
struct Lost {
    /// The last record that it asked for: what it asks for again counts once.
    last: u64,
    round: u64,
    sample: u64,
}

/// Round trips: from sealing until all readers have it.
#[derive(Debug, Default)]
struct Rtt {
    /// The least of this round and of the one before: what waits for a processor does so now and then, what waits in a queue
    /// always.
    round: Option<Duration>,
    /// The same of what was asked for. It counts where nothing else does: one fast reader's asking says nothing of the others.
    asked: Option<Duration>,
    last: Duration,
    /// The least of this while and of the one before.
    least: [Option<Duration>; 2],
    since: Monotonic,
}

/// How many records may be sent again: half as many as are sent for the first time, two for each that is acknowledged, and some
/// each round trip. So who asks without end, which every member can, costs the group no more than that, and a link that is full of
/// repairs gets no more than it carries.
#[derive(Debug)]
struct Allowance {
    /// In halves.
    left: usize,
    at: Monotonic,
}

impl Congestion {
    /// Of a sender with so many bytes at most.
    pub(super) fn new(most: usize) -> Congestion {
        Congestion {
            window: limits::RELIABLE_WINDOW_BYTES.min(most),
            threshold: most,
            most,
            rtt: Rtt::default(),
            competes: None,
            sealed: 0,
            round: (0, 0),
            sample: 0,
            lost: BTreeMap::new(),
            probe: None,
            repairs: Allowance { left: 2 * limits::REPAIRS_MAX, at: Monotonic(0) },
            pace: Pace::default(),
        }
    }

    /// Bytes that may be unacknowledged now.
    pub(super) fn window(&self) -> usize {
        let part = if self.probe.is_some() { self.window / 4 } else { self.window };
        part.max(limits::RELIABLE_WINDOW_BYTES_MIN).min(self.most)
    }

    /// The most that there may ever be.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Another epoch begins, and with it other readers, perhaps on other paths.
    pub(super) fn change(&mut self) {
        self.lost.clear();
        self.rtt.least = [None, None];
        self.round = (self.sealed, self.sealed);
        (self.sample, self.probe) = (self.sealed, None);
    }

    /// Records were sealed; how many there were so far.
    pub(super) fn sealed(&mut self, count: usize) -> u64 {
        self.sealed += count as u64;
        self.repairs.add(count);
        self.sealed
    }

    /// Of so many bytes under way, all readers have so many more now, in so many records; if none of the last of them was sent
    /// again, `took` says how long that took. As many records as `sealed` had been sealed with them.
    pub(super) fn acknowledged(
        &mut self,
        now: Monotonic,
        waiting: usize,
        (bytes, records): (usize, usize),
        (took, sealed): (Option<Duration>, u64),
    ) {
        if let Some(took) = took {
            self.rtt.take(took);
        }
        self.repairs.add(4 * records);
        let more = match () {
            // What is not used proves nothing (RFC 7661).
            () if 2 * waiting < self.window => 0,
            () if self.competes(now) => bytes * DATAGRAM_BYTES / self.window,
            () if self.rtt.queue() > QUEUE => 0,
            () if self.window < self.threshold => bytes,
            () => bytes * (self.window / 16).clamp(DATAGRAM_BYTES, limits::TRAIN_BYTES_MAX) / self.window,
        };
        self.window = (self.window + more).min(self.most);
        self.pass(now, sealed);
    }

    /// A receiver asks for these of a stream's records up to `last`. The latest of them was sealed as the last of so many, and
    /// so long ago, if it was asked for at once.
    pub(super) fn asked(
        &mut self,
        now: Monotonic,
        of: (Slot, Stream),
        (ranges, last): (&[(u64, u64)], u64),
        (took, sealed): (Option<Duration>, u64),
    ) {
        let lost = self.lost.entry(of).or_default();
        let known = lost.last;
        for (from, to) in ranges {
            let (from, to) = ((*from).max(known + 1), (*to).min(last));
            if from <= to {
                lost.round += to - from + 1;
                lost.sample += to - from + 1;
                lost.last = to;
            }
        }
        if lost.last > known {
            took.into_iter().for_each(|it| self.rtt.take_asked(it));
            self.pass(now, sealed);
        }
    }

    /// How long a repair may be under way: until then it is not sent once more.
    pub(super) fn repair_pause(&self) -> Duration {
        REPAIR_PAUSE.max(self.rtt.last.min(REPAIR_PAUSE_MAX))
    }

    /// More records may be sent again as time goes by.
    pub(super) fn refill(&mut self, now: Monotonic) {
        let count = now.since(self.repairs.at).as_micros() / self.repair_each().as_micros();
        if count > 0 {
            self.repairs.at = now;
            self.repairs.add(usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(2));
        }
    }

    /// When one more may be sent again.
    pub(super) fn repairs_due(&self) -> Monotonic {
        self.repairs.at + if self.repairs.left >= 2 { Duration::ZERO } else { self.repair_each() }
    }

    /// The time for one repair where nothing else allows for more.
    fn repair_each(&self) -> Duration {
        (self.rtt.last / REPAIRS_PER_ROUND).max(REPAIR_EACH)
    }

    /// Whether one more record may be sent again; it is then.
    pub(super) fn may_repair(&mut self) -> bool {
        self.repairs.take()
    }

    /// Whether we share a full queue with others.
    fn competes(&self, now: Monotonic) -> bool {
        self.competes.is_some_and(|at| now.since(at) < COMPETES)
    }

    /// What became of this record of all that were sealed is known: a round may end with it.
    fn pass(&mut self, now: Monotonic, sealed: u64) {
        let (begun, end) = self.round;
        if sealed < end {
            return;
        }
        self.rtt.end_round();
        let worst = self.lost.values_mut().map(|it| std::mem::take(&mut it.round)).max().unwrap_or(0);
        let count = end.saturating_sub(begun).max(1);
        let in_sample = self.sealed - self.sample;
        if worst > 0 && self.rtt.queue() > QUEUE_FULL {
            self.competes = Some(now);
            self.shrink(now, worst.min(count) as f64 / count as f64);
        } else if in_sample >= SAMPLE {
            let worst = self.lost.values().map(|it| it.sample).max().unwrap_or(0);
            if 6 * worst > in_sample {
                self.shrink(now, worst.min(in_sample) as f64 / in_sample as f64);
            }
        }
        if in_sample >= SAMPLE {
            self.sample = self.sealed;
            self.lost.values_mut().for_each(|it| it.sample = 0);
        }
        self.round = (end, self.sealed);
        self.probe = match self.probe {
            Some((0, before)) => {
                self.judge_probe(now, before);
                None
            }
            Some((rounds, before)) => Some((rounds - 1, before)),
            None => {
                let is_long = self.rtt.queue() > QUEUE_FULL && !self.competes(now);
                (self.rtt.take_probe(now) || is_long).then_some((1, self.rtt.last))
            }
        };
    }

    /// Round trips were so long before the window was short for a round: if they still are, it is others who fill the queue.
    fn judge_probe(&mut self, now: Monotonic, before: Duration) {
        let least = self.rtt.least();
        if before.saturating_sub(least) <= QUEUE_FULL {
            return;
        }
        if self.rtt.last > before.mul_f64(OURS) {
            self.competes = Some(now);
        } else {
            self.shrink(now, 1.0 - QUEUE_LEFT);
        }
    }

    /// This part of what was sent got lost.
    fn shrink(&mut self, now: Monotonic, part: f64) {
        let left = self.window as f64 * (1.0 - part).clamp(SHRINK_MOST, SHRINK_LEAST);
        self.window = (left as usize).max(limits::RELIABLE_WINDOW_BYTES_MIN);
        self.threshold = self.window;
        self.pace.cut(now);
    }
}

impl Rtt {
    /// One was measured.
    fn take(&mut self, took: Duration) {
        let least = &mut self.least[0];
        *least = Some(least.map_or(took, |it| it.min(took)));
        let took = took.min(LATE_MOST);
        self.round = Some(self.round.map_or(took, |it| it.min(took)));
    }

    /// One was measured of one reader, which may contain a wait.
    fn take_asked(&mut self, took: Duration) {
        let took = took.min(LATE_MOST);
        self.asked = Some(self.asked.map_or(took, |it| it.min(took)));
    }

    /// A round ends.
    fn end_round(&mut self) {
        let asked = self.asked.take();
        self.last = self.round.take().or(asked).unwrap_or(self.last);
    }

    /// How much longer they are than the shortest one.
    fn queue(&self) -> Duration {
        self.last.saturating_sub(self.least())
    }

    /// The shortest one; the last one if there is none.
    fn least(&self) -> Duration {
        self.least.iter().flatten().min().copied().unwrap_or(self.last)
    }

    /// Whether it is time to see the shortest one again.
    fn take_probe(&mut self, now: Monotonic) -> bool {
        let is_due = now.since(self.since) >= LEAST_AGE;
        if is_due {
            self.since = now;
            self.least = [None, self.least[0]];
        }
        is_due
    }
}

impl Allowance {
    /// Halves.
    fn add(&mut self, more: usize) {
        self.left = self.left.saturating_add(more).min(8 * limits::REPAIRS_MAX);
    }

    fn take(&mut self) -> bool {
        let is_left = self.left >= 2;
        self.left -= 2 * usize::from(is_left);
        is_left
    }
}

/// Where round trips are longer by so much, the window does not grow.
const QUEUE: Duration = Duration::from_millis(3);
/// So much longer, and what is lost is lost in a full queue.
const QUEUE_FULL: Duration = Duration::from_millis(12);
/// A queue is ours if round trips are no longer than this part of what they were, once a fourth is under way.
const OURS: f64 = 0.6;
/// What is left of the window then.
const QUEUE_LEFT: f64 = 0.7;
/// How long others are taken to share a queue in which something was lost.
const COMPETES: Duration = Duration::from_secs(10);
/// By so much a window grows each round trip where others share the queue.
const DATAGRAM_BYTES: usize = 1_500;
/// Records sealed before losses among them say anything of a network without a queue.
const SAMPLE: u64 = 512;
/// What is left of a window after a loss.
const SHRINK_LEAST: f64 = 0.7;
/// The same after a round of which nearly all was lost.
const SHRINK_MOST: f64 = 0.5;
/// After so long the shortest round trip is looked for again.
const LEAST_AGE: Duration = Duration::from_secs(10);
/// Longer waits say nothing of a path.
const LATE_MOST: Duration = Duration::from_millis(200);
/// A record is sent again once in so long.
const REPAIR_PAUSE: Duration = Duration::from_millis(1);
const REPAIR_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Records that may be sent again each round trip where nothing is sent for the first time, and the time for one at least.
const REPAIRS_PER_ROUND: u32 = 4;
const REPAIR_EACH: Duration = Duration::from_micros(125);

#[cfg(test)]
mod tests {
    use sealcast_wire::Domain;

    use super::*;

    const STREAM: Stream = Stream { domain: Domain(1), signed: false };
    const RECORD: usize = 1_000;
    const MOST: usize = 16 << 20;

    /// A sender that is never short of messages, whose records take `path` there and back and pass a link of so many a
    /// second, with a queue for so many; this part of them is lost besides. Returns how many passed in the last half of the
    /// time, and the window.
    fn played(per_second: u64, queue: u64, loss_percent: u64, path: Duration) -> (u64, usize) {
        let (passed, _, window) = played_beside(per_second, queue, loss_percent, path, 0);
        (passed, window)
    }

    /// The same with so many records of best effort offered a second, and how many of those passed.
    fn played_beside(
        per_second: u64,
        queue: u64,
        loss_percent: u64,
        path: Duration,
        best_effort: u64,
    ) -> (u64, u64, usize) {
        let mut congestion = Congestion::new(MOST);
        let (mut sent, mut acknowledged, mut waits, mut passed, mut dice) = (0_u64, 0_u64, 0_u64, 0, 1_u64);
        let mut beside = 0;
        // When it was sealed, when an answer comes, and whether it was lost.
        let mut under_way: std::collections::VecDeque<(Monotonic, Monotonic, bool)> = <_>::default();
        let ticks = 20_000;
        for tick in 0..ticks {
            let now = Monotonic(tick * 1_000);
            waits = waits.saturating_sub(per_second / 1_000);
            for _ in 0..best_effort / 1_000 {
                if congestion.pace.take(now, RECORD) && waits < queue {
                    (waits, beside) = (waits + 1, beside + u64::from(tick >= ticks / 2));
                }
            }
            while (sent - acknowledged) as usize * RECORD + RECORD <= congestion.window()
                && sent - acknowledged < 10_000
            {
                sent = congestion.sealed(1);
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let is_lost = waits >= queue || (dice >> 33) % 100 < loss_percent;
                waits += u64::from(!is_lost);
                let took = path + Duration::from_micros(waits * 1_000_000 / per_second);
                under_way.push_back((now, now + took, is_lost));
            }
            while let Some((sealed, _, is_lost)) = under_way.pop_front_if(|(_, answer, _)| *answer <= now) {
                acknowledged += 1;
                let waiting = (sent - acknowledged + 1) as usize * RECORD;
                if is_lost {
                    let range = [(acknowledged, acknowledged)];
                    let since = (Some(now.since(sealed)), acknowledged);
                    congestion.asked(now, (Slot(1), STREAM), (&range, sent), since);
                }
                let took = (!is_lost).then(|| now.since(sealed));
                congestion.acknowledged(now, waiting, (RECORD, 1), (took, acknowledged));
                passed += u64::from(!is_lost && tick >= ticks / 2);
            }
        }
        (passed, beside, congestion.window())
    }

    /// Of a link that either would fill.
    #[test]
    fn best_effort_and_what_is_reliable_each_get_a_share() {
        for (per_second, queue) in [(10_000, 500), (2_000, 100), (50_000, 2_000)] {
            let (passed, beside, window) =
                played_beside(per_second, queue, 0, Duration::from_millis(1), 3 * per_second);
            println!("{per_second}/s, a queue of {queue}: {passed} passed, {beside} beside, window {window}");
            let all = 10 * per_second;
            assert!(passed >= all / 5 && beside >= all / 5, "{passed} and {beside} of {all}");
            assert!(passed + beside >= all * 3 / 4, "{passed} and {beside} of {all}");
        }
    }

    #[test]
    fn a_link_is_used_whatever_it_carries_and_however_short_its_queue_is() {
        for (per_second, queue) in [(1_000, 30), (10_000, 500), (10_000, 5_000), (1_000, 1_000)] {
            let (passed, window) = played(per_second, queue, 0, Duration::from_millis(1));
            println!("{per_second}/s, a queue of {queue}: {passed} passed, window {window}");
            assert!(passed >= 8 * per_second, "{passed} of {} with a queue of {queue}", 10 * per_second);
            assert!(window <= (2 * queue as usize + 100) * RECORD + limits::RELIABLE_WINDOW_BYTES, "{window}");
        }
    }

    /// One reader that is near and asks for something in each round hides no queue before the others.
    #[test]
    fn rule_g8_one_readers_naks_do_not_make_round_trips_shorter() {
        let mut congestion = Congestion::new(MOST);
        let mut windows = Vec::new();
        for round in 1..40 {
            let now = Monotonic(round * 50_000);
            let sealed = congestion.sealed(100);
            let took = Duration::from_millis(if round == 1 { 1 } else { 40 });
            congestion.acknowledged(now, congestion.window(), (100 * RECORD, 100), (Some(took), sealed - 1));
            let since = (Some(Duration::from_micros(200)), sealed);
            congestion.asked(now, (Slot(1), STREAM), (&[(sealed, sealed)], sealed), since);
            windows.push(congestion.window());
        }
        assert!(windows[38] < windows[2] + 39 * DATAGRAM_BYTES, "it shares the queue: {windows:?}");
    }

    #[test]
    fn what_is_lost_without_a_queue_slows_nobody_down() {
        let time = Duration::from_millis(5);
        let (whole, _) = played(1_000_000, 100_000, 0, time);
        let (lossy, window) = played(1_000_000, 100_000, 5, time);
        assert!(10 * lossy >= 9 * whole * 95 / 100, "{lossy} of {whole}, window {window}");
    }

    #[test]
    fn a_window_shrinks_by_what_was_lost_and_never_to_nothing() {
        let mut congestion = Congestion::new(MOST);
        let mut sealed = 0;
        let mut windows = vec![congestion.window()];
        for round in 1..20 {
            let now = Monotonic(round * 100_000);
            let from = sealed + 1;
            sealed = congestion.sealed(600);
            congestion.asked(
                now,
                (Slot(1), STREAM),
                (&[(from, sealed - 60)], sealed),
                (Some(Duration::from_millis(1)), sealed),
            );
            windows.push(congestion.window());
        }
        assert!(windows.is_sorted_by(|a, b| a >= b), "{windows:?}");
        assert!(windows[5] <= windows[0] / 16, "nine of ten are lost: {windows:?}");
        assert_eq!(windows.last(), Some(&limits::RELIABLE_WINDOW_BYTES_MIN));
    }
}
