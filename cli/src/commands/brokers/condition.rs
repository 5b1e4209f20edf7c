//! What `sealcast brokers status` makes of what brokers say: the state of each beside the others, and what one more loss
//! would cost. `docs/operations.md` says what to do about each state.

use std::collections::BTreeSet;
use std::fmt;

use sealcast::brokers::BrokerStatus;
use sealcast_broker::protocol::{Report, Status};

use super::status::misbehaviour;

/// The state of one broker, the worst first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It does not answer, and why.
    Silent(String),
    /// There is evidence that it lied: the first of so many.
    Convicted(Report, usize),
    /// A client of this user has evidence that it lied.
    ConvictedHere,
    /// Its order has ended.
    Stopped,
    /// Its clock differs from those of the others by so many seconds, and they accept no connection.
    Clock(i64),
    /// It hears too few of the others, or goes on with nothing while they do.
    CutOff(u64),
    /// It has so many blocks to catch up with.
    Behind(u64),
    /// The cluster has a key, and it no share.
    NoShare,
    /// Nothing is wrong with it.
    Ok,
}

impl Condition {
    /// Whether it takes part in the order.
    fn orders(&self) -> bool {
        matches!(self, Condition::Convicted(..) | Condition::ConvictedHere | Condition::NoShare | Condition::Ok)
    }

    /// Whether it may be counted on.
    fn is_honest(&self) -> bool {
        !matches!(self, Condition::Convicted(..) | Condition::ConvictedHere)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Silent(why) => f.write_str(why),
            Condition::Convicted(report, 1) => write!(f, "{} at {}", misbehaviour(report.misbehaviour), report.at),
            Condition::Convicted(report, count) => {
                write!(f, "{} at {} and {} more", misbehaviour(report.misbehaviour), report.at, count - 1)
            }
            Condition::ConvictedHere => f.write_str("lied: evidence is kept here"),
            Condition::Stopped => f.write_str("stopped"),
            Condition::Clock(ahead) if *ahead > 0 => write!(f, "cut off: clock {ahead} s ahead"),
            Condition::Clock(ahead) => write!(f, "cut off: clock {} s behind", ahead.unsigned_abs()),
            Condition::CutOff(_) => f.write_str("cut off"),
            Condition::Behind(blocks) => write!(f, "behind by {blocks} blocks"),
            Condition::NoShare => f.write_str("no share"),
            Condition::Ok => f.write_str("ok"),
        }
    }
}

/// A whole cluster, as its brokers told it.
#[derive(Debug)]
pub(super) struct Conditions {
    /// Of each broker, as they were asked.
    pub(super) each: Vec<Condition>,
    /// Who has cut off whom: a broker that hears another no more, for an hour.
    cut_off: BTreeSet<(u16, u16)>,
    /// Brokers whose shares readers can have.
    shares: usize,
    has_key: bool,
    faulty: usize,
    threshold: usize,
}

impl Conditions {
    /// `here` are brokers against which this user has evidence; a reader needs `threshold` shares.
    pub(super) fn of(stands: &[BrokerStatus], reports: &[Report], here: &BTreeSet<u16>, threshold: u16) -> Conditions {
        let said = || stands.iter().filter_map(|it| it.said.as_ref().ok());
        let highest = said().map(|it| it.height).max().unwrap_or(0);
        let has_key = said().any(|it| it.key_age.is_some());
        let faulty = stands.len().saturating_sub(1) / 3;
        let condition = |it: &BrokerStatus| {
            let status = match &it.said {
                Ok(status) => status,
                Err(why) => return Condition::Silent(silence(&it.address, why)),
            };
            let mut against = reports.iter().filter(|report| report.broker == it.broker);
            match against.next() {
                Some(first) => Condition::Convicted(*first, 1 + against.count()),
                None if here.contains(&it.broker) => Condition::ConvictedHere,
                None => honest(status, highest, stands.len(), has_key),
            }
        };
        let each: Vec<Condition> = stands.iter().map(condition).collect();
        let gives = |(it, condition): &(&BrokerStatus, &Condition)| {
            let status = it.said.as_ref();
            condition.orders() && condition.is_honest() && status.is_ok_and(|status| status.has_share)
        };
        let shares = stands.iter().zip(&each).filter(gives).count();
        let pairs = |it: &BrokerStatus| {
            let whom = it.said.iter().flat_map(|status| status.cut_off.clone());
            let (by, known) = (it.broker, |whom: &u16| usize::from(*whom) < stands.len());
            whom.filter(known).map(|whom| (by, whom)).collect::<Vec<_>>()
        };
        let cut_off = stands.iter().flat_map(pairs).collect();
        Conditions { each, cut_off, shares, has_key, faulty, threshold: usize::from(threshold) }
    }

    /// Whether enough brokers order.
    pub(super) fn has_quorum(&self) -> bool {
        self.ordering() > 2 * self.faulty
    }

    /// Whether all is well.
    pub(super) fn is_well(&self) -> bool {
        self.cut_off.is_empty() && self.each.iter().all(|it| *it == Condition::Ok)
    }

    /// How many take part in the order, of how many that must.
    pub(super) fn quorum(&self) -> (usize, usize) {
        (self.ordering(), 2 * self.faulty + 1)
    }

    /// What does not work, and what one more loss would cost.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let (ordering, needed) = self.quorum();
        if self.faulty > 0 && ordering == needed {
            warnings.push(format!("one more loss stops the order: {ordering} brokers order, {needed} must"));
        }
        let (shares, threshold) = (self.shares, self.threshold);
        if self.has_key && shares < threshold {
            warnings.push(format!("nothing sealed can be read: {shares} brokers have a share, {threshold} must"));
        } else if self.has_key && self.faulty > 0 && shares == threshold {
            warnings.push(format!(
                "one more loss and nothing sealed can be read: {shares} brokers have a share, {threshold} must"
            ));
        }
        if let Some(i) = self.each.iter().position(|it| matches!(it, Condition::Silent(why) if why.contains("refused")))
        {
            warnings.push(format!(
                "broker {i} does not run, or it has lost its votes and waits until it may vote: its log says which"
            ));
        }
        let cut_off = self.cut_off.iter();
        warnings.extend(
            cut_off.map(|(by, whom)| format!("broker {by} has cut off broker {whom} for an hour: see its log")),
        );
        warnings
    }

    fn ordering(&self) -> usize {
        self.each.iter().filter(|it| it.orders()).count()
    }
}

fn silence(address: &str, why: &str) -> String {
    // The address stands before it already.
    why.strip_prefix(&format!("{address}: ")).unwrap_or(why).to_owned()
}

/// The state of a broker against which there is no evidence.
fn honest(it: &Status, highest: u64, brokers: usize, has_key: bool) -> Condition {
    let faulty = brokers.saturating_sub(1) / 3;
    let heard = brokers.saturating_sub(1 + it.silent.len());
    // Its own tip says how far it knows to be behind; only the others show that it knows too little.
    let known = it.tip.max(it.height);
    if !it.running {
        Condition::Stopped
    } else if it.clock_ahead != 0 {
        Condition::Clock(it.clock_ahead)
    } else if heard < 2 * faulty || highest.saturating_sub(known) > BLOCKS_OF_NOTE {
        Condition::CutOff(highest.saturating_sub(it.height))
    } else if highest.max(known) - it.height > BLOCKS_OF_NOTE {
        Condition::Behind(highest.max(known) - it.height)
    } else if has_key && !it.has_share {
        Condition::NoShare
    } else {
        Condition::Ok
    }
}

/// By so many blocks brokers may differ that are asked at different moments, or work at a backlog.
const BLOCKS_OF_NOTE: u64 = 64;

#[cfg(test)]
mod tests {
    use sealcast_broker::protocol::Misbehaviour;

    use super::*;

    fn stand(broker: u16, change: impl FnOnce(&mut Status)) -> BrokerStatus {
        let mut status = Status { broker, running: true, height: 900, tip: 900, ..Status::default() };
        (status.key_age, status.has_share) = (Some(60), true);
        change(&mut status);
        BrokerStatus::new(broker, format!("10.0.0.{broker}:7500"), Ok(status))
    }

    fn well() -> Vec<BrokerStatus> {
        (0..4).map(|broker| stand(broker, |_| {})).collect()
    }

    fn conditions(stands: &[BrokerStatus], reports: &[Report]) -> Conditions {
        Conditions::of(stands, reports, &BTreeSet::new(), 3)
    }

    #[test]
    fn four_brokers_that_are_well_need_no_word() {
        let all = conditions(&well(), &[]);
        assert!(all.is_well() && all.has_quorum());
        assert_eq!((all.warnings(), all.quorum()), (vec![], (4, 3)));
    }

    #[test]
    fn each_state_has_its_words() {
        type Case = (&'static str, fn(&mut Status));
        let cases: [Case; 9] = [
            ("stopped", |it| it.running = false),
            ("cut off: clock 30 s ahead", |it| (it.clock_ahead, it.silent) = (30, vec![0, 1, 2])),
            ("cut off: clock 3600 s behind", |it| it.clock_ahead = -3600),
            ("cut off", |it| it.silent = vec![0, 2]),
            // Its own tip agrees with its height: only the others show it.
            ("cut off", |it| (it.height, it.tip) = (527, 527)),
            ("behind by 400 blocks", |it| it.height = 500),
            ("no share", |it| it.has_share = false),
            ("ok", |it| it.height = 850),
            ("ok", |it| it.silent = vec![2]),
        ];
        for (words, change) in cases {
            let mut stands = well();
            stands[3] = stand(3, change);
            assert_eq!(conditions(&stands, &[]).each[3].to_string(), words);
        }
    }

    #[test]
    fn who_has_cut_off_whom_is_said_and_not_well() {
        let mut stands = well();
        stands[0] = stand(0, |it| it.cut_off = vec![3]);
        let all = conditions(&stands, &[]);
        assert!(all.each.iter().all(|it| *it == Condition::Ok) && all.has_quorum() && !all.is_well());
        assert_eq!(all.warnings(), ["broker 0 has cut off broker 3 for an hour: see its log"]);
    }

    #[test]
    fn evidence_comes_before_everything_else() {
        let report = Report { broker: 1, at: 1279, misbehaviour: Misbehaviour::Equivocated };
        let all = conditions(&well(), &[report]);
        assert_eq!(all.each[1].to_string(), "equivocated at 1279");
        assert!(!all.is_well() && all.has_quorum());
        let again = Report { at: 1300, ..report };
        assert_eq!(conditions(&well(), &[report, again]).each[1].to_string(), "equivocated at 1279 and 1 more");
        let here = Conditions::of(&well(), &[], &BTreeSet::from([2]), 3);
        assert_eq!(here.each[2].to_string(), "lied: evidence is kept here");
        assert!(!here.is_well());
    }

    #[test]
    fn what_one_more_loss_would_cost_is_said() {
        let mut stands = well();
        stands[2] = stand(2, |it| it.has_share = false);
        let read = "one more loss and nothing sealed can be read: 3 brokers have a share, 3 must";
        assert_eq!(conditions(&stands, &[]).warnings(), [read]);

        stands[3].said = Err("10.0.0.3:7500: connection refused".to_owned());
        let all = conditions(&stands, &[]);
        let words = [
            "one more loss stops the order: 3 brokers order, 3 must",
            "nothing sealed can be read: 2 brokers have a share, 3 must",
            "broker 3 does not run, or it has lost its votes and waits until it may vote: its log says which",
        ];
        assert_eq!(
            (all.each[3].to_string(), all.warnings()),
            ("connection refused".to_owned(), words.map(String::from).to_vec())
        );
        assert!(all.has_quorum());

        stands[1] = stand(1, |it| it.silent = vec![0, 2, 3]);
        assert!(!conditions(&stands, &[]).has_quorum(), "it answers, and orders nothing");
    }
}
