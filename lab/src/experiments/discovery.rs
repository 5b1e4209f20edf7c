//! LCMsec, Fig. 9: how many JOINs and responses it takes until a group has its keys, against its size.
//!
//! The paper's nodes take part in two agreements, one for the group and one for a channel, which double
//! every message; here all compartments ride in the same messages. In virtual time, without loss.

use std::time::Duration;

use crate::Failure;
use crate::experiments::lan::{Lan, identities};
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, median, number};
use crate::plots::{Chart, Curve, Table};

const SIZES: [usize; 10] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 64];
const SPREAD: Duration = Duration::from_millis(100);

pub(super) fn run(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let runs = lab.pick(3, 20);
    lab.bar.set_length((2 * SIZES.len()) as u64 * runs);
    let columns =
        ["compartments", "members", "seed", "joins", "responses", "response_bytes", "messages", "agreements", "ms"];
    let mut table = Table::new(&columns);
    let mut curves = Vec::new();
    let (mut most_responses, mut most_bytes, mut joins_at_64) = (0.0_f64, 0.0_f64, Vec::new());
    for compartments in [1, 2] {
        let keys = if compartments == 1 { "1 compartment".to_string() } else { format!("{compartments} compartments") };
        let mut joins = Curve { label: format!("JOINs, {keys}"), points: Vec::new() };
        let mut responses = Curve { label: format!("responses, {keys}"), points: Vec::new() };
        for n in SIZES {
            let who = identities(n, compartments, lab.seed)?;
            let (mut j, mut r) = (Vec::new(), Vec::new());
            for seed in lab.seed..lab.seed + runs {
                let counted = Lan::new(seed).join(&who, SPREAD)?;
                let ms = counted.took.as_secs_f64() * 1e3;
                let (joins, responses, bytes) = (counted.joins, counted.responses, counted.response_bytes);
                table.push(&[
                    &compartments,
                    &n,
                    &seed,
                    &joins,
                    &responses,
                    &bytes,
                    &counted.messages,
                    &counted.agreements,
                    &ms,
                ]);
                j.push(joins as f64);
                r.push(responses as f64);
                most_responses = most_responses.max(responses as f64 / counted.agreements.max(1) as f64);
                most_bytes = most_bytes.max(bytes / n as f64);
                if n == 64 {
                    joins_at_64.push(joins as f64 / 64.0);
                }
                lab.bar.inc(1);
            }
            joins.points.push((n as f64, median(&j)));
            responses.points.push((n as f64, median(&r)));
        }
        curves.extend([joins, responses]);
    }
    lab.wrote(&table.write(&lab.out, "lcmsec-discovery")?);
    let title = "Messages until a group has its keys";
    let chart = Chart { title, x: "members", y: "messages", log_x: true, curves };
    lab.wrote(&chart.write(&lab.out, "lcmsec-discovery")?);
    let at_64 = median(&joins_at_64);
    Ok(vec![
        Verdict {
            claim: "LCMsec Fig. 9: the number of JOINs grows as the group does (N + o(N))".into(),
            holds: Holds::of(at_64 <= 1.1),
            seen: format!("{} JOINs a member at 64, started within {} ms", number(at_64), SPREAD.as_millis()),
        },
        Verdict {
            claim: "LCMsec Fig. 9: few responses at any size (<= 3; LCMsec 1-4 an agreement)".into(),
            holds: Holds::of(most_responses <= 3.0),
            seen: format!("at most {} per agreement", number(most_responses)),
        },
        Verdict {
            claim: "a response has at most 64 bytes a member (LCMsec 0.5 KB)".into(),
            holds: Holds::of(most_bytes <= 64.0),
            seen: format!("at most {} bytes a member", number(most_bytes)),
        },
    ])
}
