//! LSGC, Sec. 3 and 4: negative acknowledgements on the reliable channel under loss, against the number of members.
//!
//! The paper has no figure of them. It says that each lost packet makes one or more hosts send a NAK, that hosts could listen for
//! those of others first, and that the share of NAKs in all traffic grows with the group ("acknowledgement implosion"). Played
//! here: one sender, a network that loses each copy by itself, in virtual time. The scheme as published is computed from the
//! same chance: all who lack a datagram multicast a NAK of their own, and nobody listens.

use std::time::Duration;

use sealcast_sim::dice::Chance;
use sealcast_sim::network::Network;
use sealcast_wire::Guarantee;

use super::group::{Group, Traffic};
use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, number};
use crate::plots::{Chart, Curve, Table};

const SIZES: [usize; 6] = [2, 4, 8, 16, 32, 64];
const LOSSES: [f64; 2] = [0.01, 0.05];
const MESSAGE_BYTES: usize = 1_000;
/// Between two messages.
const EVERY: Duration = Duration::from_millis(1);
/// By then all is repaired, or will not be.
const REST: Duration = Duration::from_secs(3);

/// One size of the group under one loss, over all seeds.
struct Point {
    members: usize,
    loss: f64,
    traffic: Traffic,
    /// Deliveries that never came.
    missing: u64,
}

impl Point {
    /// How many others there are.
    fn receivers(&self) -> f64 {
        self.members as f64 - 1.0
    }

    /// Datagrams of data that are expected to be lost for somebody.
    fn lost(&self) -> f64 {
        self.traffic.data as f64 * (1.0 - (1.0 - self.loss).powf(self.receivers()))
    }

    fn naks_per_lost(&self) -> f64 {
        self.traffic.naks as f64 / self.lost()
    }

    /// The same of the scheme as published.
    fn naks_per_lost_published(&self) -> f64 {
        self.traffic.data as f64 * self.loss * self.receivers() / self.lost()
    }

    fn share_of_naks(&self) -> f64 {
        self.traffic.naks as f64 / self.traffic.all() as f64
    }

    /// The same of the scheme as published: each NAK brings one answer, and there is no other control traffic.
    fn share_of_naks_published(&self) -> f64 {
        let naks = self.loss * self.receivers();
        naks / (1.0 + 2.0 * naks)
    }

    fn share_of_data(&self) -> f64 {
        self.traffic.data as f64 / self.traffic.all() as f64
    }
}

pub(in crate::experiments) fn run(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let (seeds, messages) = (lab.pick(1, 5), lab.pick(1_000, 5_000));
    lab.bar.set_length((SIZES.len() * LOSSES.len()) as u64 * seeds);
    let mut table = Table::new(&["members", "loss", "seed", "data", "repairs", "naks", "other", "missing"]);
    let mut points = Vec::new();
    for loss in LOSSES {
        for members in SIZES {
            let mut point = Point { members, loss, traffic: Traffic::default(), missing: 0 };
            for seed in lab.seed..lab.seed + seeds {
                let (traffic, missing) = play(members, loss, messages, seed)?;
                let Traffic { data, repairs, naks, other } = traffic;
                table.push(&[&members, &loss, &seed, &data, &repairs, &naks, &other, &missing]);
                point.traffic.add(traffic);
                point.missing += missing;
                lab.bar.inc(1);
            }
            points.push(point);
        }
    }
    lab.wrote(&table.write(&lab.out, "lsgc-nak")?);
    let curve = |name: &str, loss: f64, of: fn(&Point) -> f64| Curve {
        label: format!("{name}, {} %", number(loss * 100.0)),
        points: points.iter().filter(|it| it.loss == loss).map(|it| (it.members as f64, of(it))).collect(),
    };
    let curves = LOSSES.iter().flat_map(|loss| {
        [curve("ours", *loss, Point::share_of_naks), curve("LSGC, computed", *loss, Point::share_of_naks_published)]
    });
    let chart = Chart {
        title: "Negative acknowledgements against the size of the group",
        x: "members",
        y: "NAKs / all datagrams",
        log_x: true,
        curves: curves.collect(),
    };
    lab.wrote(&chart.write(&lab.out, "lsgc-nak")?);
    let at = |members: usize, loss: f64| points.iter().find(|it| it.members == members && it.loss == loss);
    let (few, many) = (at(SIZES[0], LOSSES[1]), at(SIZES[5], LOSSES[1]));
    let (few, many) = few.zip(many).ok_or("the least and the greatest group were not played")?;
    let most = |of: fn(&Point) -> f64| points.iter().map(of).fold(0.0, f64::max);
    let missing: u64 = points.iter().map(|it| it.missing).sum();
    let shares = |of: fn(&Point) -> f64| [few, many].map(|it| number(of(it) * 100.0)).join(" and ");
    Ok(vec![
        Verdict {
            claim: "all that was published fifo comes to all".into(),
            holds: Holds::of(missing == 0),
            seen: format!("{missing} deliveries are missing"),
        },
        Verdict {
            claim: "NAKs per datagram that anyone lost <= 2, at any size and loss".into(),
            holds: Holds::of(most(Point::naks_per_lost) <= 2.0),
            seen: format!(
                "{} at most; at 64 members and 5 % {}, as published {}",
                number(most(Point::naks_per_lost)),
                number(many.naks_per_lost()),
                number(many.naks_per_lost_published())
            ),
        },
        Verdict {
            claim: "LSGC Sec. 4: the share of NAKs in all traffic grows with the group".into(),
            holds: Holds::Reported,
            seen: format!(
                "at 2 and 64 members, 5 %: ours {} %, as published {} %",
                shares(Point::share_of_naks),
                shares(Point::share_of_naks_published)
            ),
        },
        Verdict {
            claim: "data / all datagrams, 64 members, 5 %".into(),
            holds: Holds::Reported,
            seen: format!(
                "{}: {} of data, {} repairs, {} NAKs, {} others",
                number(many.share_of_data()),
                many.traffic.data,
                many.traffic.repairs,
                many.traffic.naks,
                many.traffic.other
            ),
        },
    ])
}

/// One sends fifo while copies are lost; what crossed the network meanwhile, and what is missing.
fn play(members: usize, loss: f64, messages: u64, seed: u64) -> Result<(Traffic, u64), Failure> {
    let mut group = Group::reliable(members, Network::quiet(), seed);
    (0..members).for_each(|member| group.start(member));
    group.meet(members)?;
    group.rest(REST);
    group.lose(Chance::of(loss));
    group.seen.forget();
    let mut next = 0;
    let mut tries = 10 * messages;
    while next < messages && tries > 0 {
        group.publish(0, next, MESSAGE_BYTES, Guarantee::Fifo);
        // What the channel refuses while it is full is published later.
        next += u64::from(group.seen.refused.pop().is_none());
        tries -= 1;
        group.rest(EVERY);
    }
    group.rest(REST);
    let came = group.seen.delivered.iter().filter(|(_, node, body)| *node != body.author as usize).count() as u64;
    Ok((group.seen.traffic, (messages * (members as u64 - 1)).saturating_sub(came)))
}
