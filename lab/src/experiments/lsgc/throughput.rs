//! LSGC, Figs. 3 and 5: what the two channels carry, secured and not, against the size of the message and of the group.
//!
//! The paper: one sender, three clients, 8 KB messages, 10 Mb/s; secure a third of insecure on both channels, and the same at two,
//! four and eight hosts. Here processes on one machine, over loopback: more members share the same cores. As there, reliable
//! messages go as fast as the protocol takes them, and best effort as fast as nothing is lost. Keys are `contributory`, which
//! needs no centre beside it: what seals a datagram is the same with each scheme. Insecure is
//! `keys=plain&order=total`: the same framing on both channels, unsealed.

use std::time::Duration;

use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, median, number};
use crate::peers::contest::Flow;
use crate::peers::side::{Field, Path, Side};
use crate::plots::{Chart, Curve, Table};

const SIDES: [Side; 6] =
    [Side::Unsealed, Side::Sealed, Side::ChaCha, Side::ReliableUnsealed, Side::Reliable, Side::ReliableChaCha];
const SIZES: [usize; 4] = [100, 1_000, 8_000, 60_000];
/// The paper's, bytes.
const MESSAGE_BYTES: usize = 8_000;
const CLIENTS: usize = 3;
/// Members; the paper has the first three.
const HOSTS: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// Where the search for a rate without loss begins, messages per second.
const FROM: f64 = 1_000.0;

/// Throughput by size of the message.
pub(in crate::experiments) fn fig3(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let points: Vec<(usize, usize)> = SIZES.iter().map(|size| (CLIENTS, *size)).collect();
    let found = measure(lab, "lsgc-fig3", &points, |(_, size)| size as f64)?;
    let title = format!("One sender, {CLIENTS} receivers, one machine");
    draw(lab, "lsgc-fig3", &title, "message, bytes", &found)?;
    let at = |side: Side| rate(&found, side, MESSAGE_BYTES as f64);
    Ok(vec![
        ratio(
            "LSGC Fig. 3: secure / insecure, best effort, 8 KB (LSGC a third) >= 0.35",
            at(Side::Sealed),
            at(Side::Unsealed),
            0.35,
        ),
        ratio("the same with ChaCha20-Poly1305 >= 0.15", at(Side::ChaCha), at(Side::Unsealed), 0.15),
        ratio(
            "LSGC Fig. 3: secure / insecure, reliable, 8 KB (LSGC a third) >= 0.35",
            at(Side::Reliable),
            at(Side::ReliableUnsealed),
            0.35,
        ),
        ratio(
            "the same with ChaCha20-Poly1305, reliable >= 0.15",
            at(Side::ReliableChaCha),
            at(Side::ReliableUnsealed),
            0.15,
        ),
        ratio("reliable / best effort, both sealed, 8 KB >= 0.85", at(Side::Reliable), at(Side::Sealed), 0.85),
    ])
}

/// Throughput by size of the group.
pub(in crate::experiments) fn fig5(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let hosts = lab.pick(&HOSTS[..3], &HOSTS[..]);
    let points: Vec<(usize, usize)> = hosts.iter().map(|hosts| (hosts - 1, MESSAGE_BYTES)).collect();
    let found = measure(lab, "lsgc-fig5", &points, |(receivers, _)| receivers as f64 + 1.0)?;
    draw(lab, "lsgc-fig5", "One sender, 8 KB messages, one machine", "members", &found)?;
    let least = hosts[0];
    let verdict = |side: Side, most: usize| {
        let [few, many] = [least, most].map(|hosts| rate(&found, side, hosts as f64));
        let claim = format!(
            "LSGC Fig. 5: throughput does not depend on the group's size: {}, {most} members / {least}",
            side.name()
        );
        match few.is_nan() || many.is_nan() {
            true => Verdict { claim, holds: Holds::NotRun, seen: "no such group formed".into() },
            // Many processes on few cores: the machine's share of each, not the protocol.
            false => Verdict {
                claim,
                holds: Holds::Reported,
                seen: format!("{} / {} MB/s = {}", number(many), number(few), number(many / few)),
            },
        }
    };
    Ok(SIDES.iter().flat_map(|side| hosts[1..].iter().map(|most| verdict(*side, *most))).collect())
}

/// MB/s at the slowest receiver by x, of each side.
type Found = Vec<(Side, Vec<(f64, f64)>)>;

fn measure(lab: &Lab, name: &str, points: &[(usize, usize)], x: fn((usize, usize)) -> f64) -> Result<Found, Failure> {
    let field = Field::default();
    let blocks = lab.pick(1, 3);
    let window = lab.pick(Duration::from_millis(200), Duration::from_millis(700));
    lab.bar.set_length((points.len() * SIDES.len()) as u64);
    let mut table = Table::new(&["side", "receivers", "bytes", "block", "messages_per_s", "bytes_per_s"]);
    let mut found = Vec::new();
    for side in SIDES {
        let mut curve = Vec::new();
        for point in points {
            let (receivers, size) = *point;
            // Many processes on few cores may not find each other in time; the others are measured all the same.
            let mut flow = match Flow::start(&field, side, Path::Segmented, receivers) {
                Ok(flow) => flow,
                Err(why) if receivers > CLIENTS => {
                    lab.bar.suspend(|| eprintln!("{}, {receivers} receivers: {why}", side.name()));
                    lab.bar.inc(1);
                    continue;
                }
                Err(why) => return Err(why),
            };
            let mut rates = Vec::new();
            for block in 0..blocks {
                let rate = match side.is_reliable() {
                    true => flow.point(size, 0.0, window)?.received_rate,
                    false => flow.lossless(size, FROM, window)?,
                };
                table.push(&[&side.name(), &receivers, &size, &block, &rate, &(rate * size as f64)]);
                rates.push(rate * size as f64 / 1e6);
            }
            curve.push((x(*point), median(&rates)));
            lab.bar.inc(1);
        }
        found.push((side, curve));
    }
    lab.wrote(&table.write(&lab.out, name)?);
    Ok(found)
}

fn draw(lab: &Lab, name: &str, title: &str, x: &str, found: &Found) -> Result<(), Failure> {
    let curve = |(side, points): &(Side, Vec<(f64, f64)>)| Curve { label: side.name().into(), points: points.clone() };
    let curves = found.iter().map(curve).collect();
    let chart = Chart { title, x, y: "MB/s at the slowest receiver", log_x: true, curves };
    lab.wrote(&chart.write(&lab.out, name)?);
    Ok(())
}

fn rate(found: &Found, side: Side, x: f64) -> f64 {
    let curve = found.iter().find(|it| it.0 == side).map(|it| &it.1);
    curve.into_iter().flatten().find(|it| it.0 == x).map_or(f64::NAN, |it| it.1)
}

fn ratio(claim: &str, above: f64, below: f64, least: f64) -> Verdict {
    Verdict {
        claim: claim.into(),
        holds: Holds::of(above / below >= least),
        seen: format!("{} / {} MB/s = {}", number(above), number(below), number(above / below)),
    }
}
