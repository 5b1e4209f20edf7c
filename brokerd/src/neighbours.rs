//! What a broker notices of the others, and of itself beside them: who is gone and back, whether it lags or is cut off,
//! blocks that it refused, brokers that its engine has cut off, and a clock that differs.
//!
//! [`Neighbours::look`] takes what was counted and gives lines for the log; it knows no clock, no thread and no socket.
//! Each state is logged when it begins and when it ends, and none more often than each `LOG_EVERY`.

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_order::Peer;

/// What is looked at.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Time on a clock that never goes back.
    pub now: Duration,
    /// What the engine noticed of each broker, by index.
    pub peers: Vec<Peer>,
    /// The last block known to be final.
    pub tip: u64,
    /// The last block executed here.
    pub height: u64,
    /// Blocks refused since the start, because they hold a batch that is not valid.
    pub refused: u64,
}

/// What is shown in the broker's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// Brokers of which no message has come for [`SILENT`].
    pub silent: Vec<u16>,
    /// Brokers whose channels the engine has closed within [`CUT_OFF`].
    pub cut_off: Vec<u16>,
    /// Seconds by which this broker's clock is ahead of the others', negative if it is behind; 0 if it does not differ by
    /// more than [`CLOCK_OF_NOTE`], or nothing is known.
    pub clock_ahead: i64,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLine {
    /// Something happened that is as it should be.
    Info(String),
    /// Something that somebody should look at.
    Warn(String),
}

/// Watches over the others for one broker.
#[derive(Debug)]
pub struct Neighbours {
    index: usize,
    brokers: usize,
    peers: Vec<Neighbour>,
    lags: State,
    alone: State,
    clock: State,
    refused: (u64, Option<Duration>),
    clock_ahead: i64,
    /// The last block of each other broker and its time, as it said when it was asked last.
    times: BTreeMap<u16, u64>,
}

#[derive(Clone, Debug, Default)]
struct Neighbour {
    heard: (u64, Duration),
    silent: State,
    cut_off: (u64, Option<Duration>),
}

/// Something that holds or does not, and when it was logged last.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    logged: bool,
    at: Option<Duration>,
}

impl State {
    /// Whether it is to be logged that it holds now, or does so no more.
    fn turns(&mut self, holds: bool, now: Duration) -> bool {
        let rests = self.at.is_some_and(|at| now.saturating_sub(at) < LOG_EVERY);
        if holds == self.logged || rests {
            return false;
        }
        (self.logged, self.at) = (holds, Some(now));
        true
    }
}

impl Neighbours {
    /// Of the broker of this index, among so many.
    pub fn new(index: u16, brokers: usize) -> Neighbours {
        let peers = vec![Neighbour::default(); brokers];
        let (lags, alone, clock) = Default::default();
        let (refused, clock_ahead, times) = Default::default();
        Neighbours { index: usize::from(index), brokers, peers, lags, alone, clock, refused, clock_ahead, times }
    }

    /// Looks at what was counted; what is new is to be logged.
    pub fn look(&mut self, seen: &Seen) -> Vec<LogLine> {
        let mut lines = Vec::new();
        let now = seen.now;
        for (broker, (it, peer)) in self.peers.iter_mut().zip(&seen.peers).enumerate() {
            if broker == self.index {
                continue;
            }
            if peer.heard > it.heard.0 {
                it.heard = (peer.heard, now);
            }
            let is_silent = now.saturating_sub(it.heard.1) >= SILENT;
            if it.silent.turns(is_silent, now) {
                lines.push(match is_silent {
                    true => LogLine::Warn(format!(
                        "broker {broker} is gone: nothing was heard of it for {} s",
                        SILENT.as_secs()
                    )),
                    false => LogLine::Info(format!("broker {broker} is back")),
                });
            }
            if peer.cut_off > it.cut_off.0 {
                it.cut_off = (peer.cut_off, Some(now));
                lines.push(LogLine::Warn(format!(
                    "broker {broker} is cut off for an hour: it contradicted itself, or sent what no honest broker sends; \
                     see 'sealcast brokers evidence'"
                )));
            }
        }
        let behind = seen.tip.saturating_sub(seen.height);
        // Once it lags, it has caught up when it has next to nothing left to do.
        let lags = if self.lags.logged { behind > CAUGHT_UP } else { behind > LAG_OF_NOTE };
        if self.lags.turns(lags, now) {
            lines.push(match lags {
                true => LogLine::Info(format!("behind by {behind} blocks, catching up")),
                false => LogLine::Info(format!("caught up, at block {}", seen.height)),
            });
        }
        if seen.refused > self.refused.0 && self.refused.1.is_none_or(|at| now.saturating_sub(at) >= LOG_EVERY) {
            let more = seen.refused - self.refused.0;
            lines.push(LogLine::Warn(format!("refused {more} proposed blocks: each held a batch that is not valid")));
            self.refused = (seen.refused, Some(now));
        }
        let alone = self.is_alone(now);
        if self.alone.turns(alone, now) {
            lines.push(match alone {
                true => LogLine::Warn(format!(
                    "cut off from the order: only {} of the {} other brokers are heard",
                    self.heard(now),
                    self.brokers - 1
                )),
                false => LogLine::Info("the order is heard again".to_owned()),
            });
        }
        if !alone {
            self.clock_ahead = 0;
            if self.clock.turns(false, now) {
                lines.push(LogLine::Info("the clock agrees with the others again".to_owned()));
            }
        }
        lines
    }

    /// Whether too few of the others are heard to order anything, so that they are to be asked for the time.
    pub fn is_alone(&self, now: Duration) -> bool {
        let faulty = (self.brokers - 1) / 3;
        self.heard(now) < 2 * faulty
    }

    /// What others said of their last block and its time, Unix seconds, and this broker's own clock. Only those count that
    /// have gone on since they were asked before: the last block of one that stands still says nothing of the time.
    pub fn compare_clocks(&mut self, now: Duration, clock: i64, said: &BTreeMap<u16, (u64, i64)>) -> Option<LogLine> {
        let went_on =
            |(broker, (height, _)): &(&u16, &(u64, i64))| self.times.get(broker).is_some_and(|it| it < height);
        let mut ahead: Vec<i64> = said.iter().filter(went_on).map(|(_, (_, at))| clock.saturating_sub(*at)).collect();
        self.times = said.iter().map(|(broker, (height, _))| (*broker, *height)).collect();
        ahead.sort_unstable();
        // f of them may say anything.
        let faulty = (self.brokers - 1) / 3;
        let ahead = *ahead.get(faulty).filter(|_| ahead.len() > faulty * 2 || faulty == 0)?;
        let differs = ahead.unsigned_abs() > CLOCK_OF_NOTE;
        self.clock_ahead = if differs { ahead } else { 0 };
        let which = if ahead > 0 { "ahead of" } else { "behind" };
        self.clock.turns(differs, now).then(|| match differs {
            true => LogLine::Warn(format!(
                "the clock is {} s {which} the others': beyond 10 s brokers accept no connection; set it right",
                ahead.unsigned_abs()
            )),
            false => LogLine::Info("the clock agrees with the others again".to_owned()),
        })
    }

    /// What is shown of it.
    pub fn noticed(&self, now: Duration) -> Noticed {
        let number = |(broker, _): (usize, &Neighbour)| u16::try_from(broker).expect("brokers have a limit");
        let others = || self.peers.iter().enumerate().filter(|(broker, _)| *broker != self.index);
        let is_silent = |it: &Neighbour| now.saturating_sub(it.heard.1) >= SILENT;
        let is_cut_off = |it: &Neighbour| it.cut_off.1.is_some_and(|at| now.saturating_sub(at) < CUT_OFF);
        Noticed {
            silent: others().filter(|(_, it)| is_silent(it)).map(number).collect(),
            cut_off: others().filter(|(_, it)| is_cut_off(it)).map(number).collect(),
            clock_ahead: self.clock_ahead,
        }
    }

    /// How many of the others are heard.
    fn heard(&self, now: Duration) -> usize {
        let is_heard = |it: &Neighbour| now.saturating_sub(it.heard.1) < SILENT;
        self.peers.iter().enumerate().filter(|(broker, it)| *broker != self.index && is_heard(it)).count()
    }
}

/// A broker of which nothing comes for this long is gone: running ones send several messages a second.
pub const SILENT: Duration = Duration::from_secs(5);
/// How long the engine keeps a channel closed.
pub const CUT_OFF: Duration = Duration::from_secs(3600);
/// Seconds by which a clock may differ before it is of note. The others accept no connection beyond 10, and a block's time
/// is up to a second and a half old.
pub const CLOCK_OF_NOTE: u64 = 8;
/// The same state is logged no more often.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// So many blocks may be final and not yet executed.
const LAG_OF_NOTE: u64 = 64;
/// A broker that lagged has caught up when no more are left.
const CAUGHT_UP: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// What broker 0 of four sees at a second when the others have sent so many messages.
    fn seen(at: u64, heard: [u64; 4]) -> Seen {
        let peers = heard.map(|heard| Peer { heard, cut_off: 0 }).to_vec();
        Seen { now: seconds(at), peers, ..Seen::default() }
    }

    fn info(text: &str) -> LogLine {
        LogLine::Info(text.to_owned())
    }

    fn warn(text: &str) -> LogLine {
        LogLine::Warn(text.to_owned())
    }

    #[test]
    fn who_is_gone_and_back_is_logged_once_each() {
        let mut neighbours = Neighbours::new(0, 4);
        for at in 0..20 {
            let peer_3 = if at < 8 { at } else { 7 };
            let lines = neighbours.look(&seen(at, [0, at, at, peer_3]));
            match at {
                12 => assert_eq!(lines, [warn("broker 3 is gone: nothing was heard of it for 5 s")]),
                _ => assert_eq!(lines, [], "second {at}"),
            }
        }
        assert_eq!(neighbours.noticed(seconds(19)).silent, [3]);
        // It flaps: the next lines come 10 s later at the earliest.
        assert_eq!(neighbours.look(&seen(23, [0, 23, 23, 8])), [info("broker 3 is back")]);
        assert_eq!(neighbours.look(&seen(29, [0, 29, 29, 8])), []);
        assert_eq!(neighbours.look(&seen(30, [0, 30, 30, 9])), []);
        assert_eq!(neighbours.noticed(seconds(30)), Noticed::default());
    }

    #[test]
    fn a_broker_that_hears_too_few_says_that_it_is_cut_off() {
        let mut neighbours = Neighbours::new(1, 4);
        neighbours.look(&seen(1, [1, 0, 1, 1]));
        let lines = neighbours.look(&seen(7, [2, 0, 1, 1]));
        assert!(lines.contains(&warn("cut off from the order: only 1 of the 3 other brokers are heard")), "{lines:?}");
        assert!(neighbours.is_alone(seconds(7)));
        let lines = neighbours.look(&seen(20, [3, 0, 2, 2]));
        assert!(lines.contains(&info("the order is heard again")), "{lines:?}");
    }

    #[test]
    fn lag_cut_off_brokers_and_refused_blocks_are_logged() {
        let mut neighbours = Neighbours::new(0, 4);
        let mut look = |at: u64, tip, height, refused, cut_off| {
            let mut seen = Seen { tip, height, refused, ..seen(at, [0, at, at, at]) };
            seen.peers[2].cut_off = cut_off;
            (neighbours.look(&seen), neighbours.noticed(seconds(at)).cut_off)
        };
        assert_eq!(look(1, 64, 0, 0, 0).0, []);
        assert_eq!(look(2, 70, 0, 0, 0).0, [info("behind by 70 blocks, catching up")]);
        assert_eq!(look(13, 90, 40, 0, 0).0, []);
        assert_eq!(look(14, 92, 90, 0, 0).0, [info("caught up, at block 90")]);
        assert_eq!(look(15, 92, 92, 3, 0).0, [warn("refused 3 proposed blocks: each held a batch that is not valid")]);
        assert_eq!(look(16, 92, 92, 9, 0).0, [], "not more often than each 10 s");
        assert_eq!(look(25, 92, 92, 9, 0).0, [warn("refused 6 proposed blocks: each held a batch that is not valid")]);
        let (lines, cut_off) = look(26, 92, 92, 9, 1);
        assert!(
            matches!(&lines[..], [LogLine::Warn(it)] if it.starts_with("broker 2 is cut off for an hour")),
            "{lines:?}"
        );
        assert_eq!((cut_off, look(27, 92, 92, 9, 1)), (vec![2], (vec![], vec![2])));
        assert_eq!(look(3627, 92, 92, 9, 1).1, Vec::<u16>::new(), "after an hour");
    }

    #[test]
    fn a_clock_that_differs_from_those_of_brokers_that_go_on_is_noticed() {
        let mut neighbours = Neighbours::new(3, 4);
        let mut compare = |at: u64, clock, said: [(u64, i64); 3]| {
            let said = (0..).zip(said).collect();
            (neighbours.compare_clocks(seconds(at), clock, &said), neighbours.noticed(seconds(at)).clock_ahead)
        };
        assert_eq!(compare(0, 1030, [(10, 1000), (10, 1000), (10, 1000)]), (None, 0), "they may stand still");
        assert_eq!(compare(10, 1040, [(10, 1000), (10, 1000), (10, 1000)]), (None, 0), "and do");
        let line = "the clock is 30 s ahead of the others': beyond 10 s brokers accept no connection; set it right";
        assert_eq!(compare(20, 1050, [(11, 1020), (11, 1020), (11, i64::MIN)]), (Some(warn(line)), 30), "one lies");
        assert_eq!(compare(40, 1041, [(12, 1040), (12, 1040), (12, 1040)]).1, 0);
        let (line, ahead) = compare(60, 0, [(13, 3600), (13, 3600), (13, i64::MIN)]);
        assert_eq!(ahead, -3600);
        assert!(matches!(line, Some(LogLine::Warn(it)) if it.starts_with("the clock is 3600 s behind the others'")));
    }
}
