//! LSGC, Fig. 4: what a change of the members costs, against their number; each one brings a new key.
//!
//! The paper computes the changes of a second from the speed of its ciphers and from the bytes of message 6, and runs none of
//! them: 50 and more below 200 members, 20 at 350. Here each is played, the next one when all have the key of the last, in
//! virtual time, without loss.

use std::time::Duration;

use sealcast_sim::network::Network;

use super::group::Group;
use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, median, number};
use crate::plots::{Chart, Curve, Table};

const SIZES: [usize; 8] = [2, 3, 4, 8, 16, 32, 48, 64];
/// What came of the change before is over then.
const REST: Duration = Duration::from_millis(400);

pub(in crate::experiments) fn run(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let runs = lab.pick(3, 20);
    lab.bar.set_length(SIZES.len() as u64 * runs);
    let mut table = Table::new(&["members", "seed", "change", "ms", "datagrams", "bytes"]);
    let names = ["join", "leave"];
    let curves = || names.map(|it| Curve { label: it.into(), points: Vec::new() });
    let (mut times, mut sizes) = (curves(), curves());
    let mut slowest = 0.0_f64;
    for n in SIZES {
        let (mut ms, mut kilobytes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for seed in lab.seed..lab.seed + runs {
            let mut group = Group::new(n, Network::quiet(), seed);
            (0..n - 1).for_each(|member| group.start(member));
            group.meet(n - 1)?;
            for (change, name) in names.iter().enumerate() {
                group.rest(REST);
                let before = group.seen.sent;
                match change {
                    0 => group.start(n - 1),
                    _ => group.leave(n - 1),
                }
                let took = group.meet(if change == 0 { n } else { n - 1 })?.as_secs_f64() * 1e3;
                let datagrams = group.seen.sent.datagrams - before.datagrams;
                let bytes = group.seen.sent.bytes - before.bytes;
                table.push(&[&n, &seed, name, &took, &datagrams, &bytes]);
                ms[change].push(took);
                kilobytes[change].push(bytes as f64 / 1e3);
            }
            lab.bar.inc(1);
        }
        for change in 0..names.len() {
            times[change].points.push((n as f64, median(&ms[change])));
            sizes[change].points.push((n as f64, median(&kilobytes[change])));
            slowest = slowest.max(median(&ms[change]));
        }
    }
    lab.wrote(&table.write(&lab.out, "lsgc-fig4")?);
    let chart = |title, y, curves: [Curve; 2]| Chart {
        title,
        x: "members, with who comes or goes",
        y,
        log_x: true,
        curves: curves.into(),
    };
    let at_64 = times.clone().map(|it| it.points.last().map_or(0.0, |it| it.1));
    let bytes_at_64 = sizes.clone().map(|it| it.points.last().map_or(0.0, |it| it.1));
    lab.wrote(&chart("From a join or leave to the new key at all members", "ms", times).write(&lab.out, "lsgc-fig4")?);
    lab.wrote(&chart("Sent for one change, by all members together", "KB", sizes).write(&lab.out, "lsgc-fig4-bytes")?);
    let both = at_64[0] + at_64[1];
    Ok(vec![
        Verdict {
            claim:
                "LSGC Fig. 4 (computed there): 50 changes a second below 200 members; here at 64, one after the other"
                    .into(),
            holds: Holds::of(2e3 / both >= 50.0),
            seen: format!(
                "join {} ms, leave {} ms: {} a second",
                number(at_64[0]),
                number(at_64[1]),
                number(2e3 / both)
            ),
        },
        Verdict {
            claim: "each change has its key at all members within 20 ms, at any size up to 64".into(),
            holds: Holds::of(slowest <= 20.0),
            seen: format!("at most {} ms in the median", number(slowest)),
        },
        Verdict {
            claim: "bytes of one change at 64 members (LSGC's message 6: 24 a member, without acknowledgements)".into(),
            holds: Holds::Reported,
            seen: format!("join {} KB, leave {} KB", number(bytes_at_64[0]), number(bytes_at_64[1])),
        },
    ])
}
