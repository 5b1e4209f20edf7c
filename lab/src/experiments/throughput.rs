//! LCMsec, Sec. VI: the rate is raised until messages are lost.
//!
//! The paper saw no loss with or without security up to 123 MB/s, the line rate of its Ethernet; on
//! loopback the limit is the machine, so that the price of security shows.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, median, number};
use crate::peers::contest::Flow;
use crate::peers::side::{Field, Path, Side, liblcm};
use crate::plots::{Chart, Curve, Table};

const SIZES: [usize; 2] = [1_000, 60_000];
const RATES: [f64; 8] = [4e3, 16e3, 48e3, 96e3, 192e3, 384e3, 768e3, 1.5e6];

pub(super) fn run(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let field = Field::default();
    let mut sides = vec![
        (Side::Plain, Path::OnePacket),
        (Side::Sealed, Path::OnePacket),
        (Side::Plain, Path::Segmented),
        (Side::Sealed, Path::Segmented),
        (Side::ChaCha, Path::Segmented),
    ];
    if liblcm().is_ok() {
        sides.push((Side::Liblcm, Path::OnePacket));
    }
    let label = |side: Side, path: Path| match (side, path) {
        (Side::Liblcm, _) => "liblcm".to_string(),
        (_, Path::OnePacket | Path::OneEach) => format!("{}, one packet each", side.name()),
        (_, Path::Segmented) => format!("{}, segmented", side.name()),
    };
    let blocks = lab.pick(1, 3);
    let window = lab.pick(Duration::from_millis(200), Duration::from_millis(700));
    lab.bar.set_length((2 * SIZES.len() * blocks * sides.len()) as u64);
    let columns = ["side", "receivers", "bytes", "block", "asked_per_s", "sent_per_s", "received_per_s", "delivered"];
    let mut curve = Table::new(&columns);
    let mut best = Table::new(&["side", "receivers", "bytes", "block", "lossless_per_s", "bytes_per_s"]);
    let mut found: BTreeMap<(usize, usize, usize), Vec<f64>> = BTreeMap::new();
    let mut points: BTreeMap<(usize, usize, usize), Vec<(f64, f64)>> = BTreeMap::new();
    for receivers in [1, 4] {
        let mut flows = sides
            .iter()
            .map(|(side, path)| Flow::start(&field, *side, *path, receivers))
            .collect::<Result<Vec<_>, Failure>>()?;
        for size in SIZES {
            for block in 0..blocks {
                for (s, flow) in flows.iter_mut().enumerate() {
                    let name = label(sides[s].0, sides[s].1);
                    if block == 0 {
                        for rate in RATES.iter().filter(|r| **r * size as f64 <= 8e9) {
                            let p = flow.point(size, *rate, window)?;
                            curve.push(&[
                                &name,
                                &receivers,
                                &size,
                                &block,
                                rate,
                                &p.sent_rate,
                                &p.received_rate,
                                &p.delivered,
                            ]);
                            points.entry((receivers, size, s)).or_default().push((*rate, p.received_rate));
                        }
                    }
                    let lossless = flow.lossless(size, 4_000.0, window)?;
                    best.push(&[&name, &receivers, &size, &block, &lossless, &(lossless * size as f64)]);
                    found.entry((receivers, size, s)).or_default().push(lossless);
                    lab.bar.inc(1);
                }
            }
        }
    }
    lab.wrote(&curve.write(&lab.out, "lcmsec-throughput-curve")?);
    lab.wrote(&best.write(&lab.out, "lcmsec-throughput")?);
    for (receivers, size) in [(1, 1_000), (4, 1_000), (1, 60_000), (4, 60_000)] {
        let title = format!("{size} B to {receivers}: received against sent");
        let of = |s: usize| Curve {
            label: label(sides[s].0, sides[s].1),
            points: points.get(&(receivers, size, s)).cloned().unwrap_or_default(),
        };
        let curves = (0..sides.len()).map(of).collect();
        let chart = Chart { title: &title, x: "asked, messages/s", y: "received, messages/s", log_x: true, curves };
        lab.wrote(&chart.write(&lab.out, &format!("lcmsec-throughput-{size}-{receivers}"))?);
    }

    let rate = |side: Side, path: Path, receivers: usize, size: usize| {
        let s = sides.iter().position(|x| *x == (side, path))?;
        found.get(&(receivers, size, s)).map(|v| median(v))
    };
    let (one, gso) = (Path::OnePacket, Path::Segmented);
    let mut verdicts = Vec::new();
    for (claim, above, below, receivers, size, least) in [
        ("sealed / plain, one packet, 1 KB (LCMsec 0.47)", (Side::Sealed, one), (Side::Plain, one), 1, 1_000, 0.9),
        (
            "sealed / plain, one packet, 60 KB (LCMsec 0.27-0.38)",
            (Side::Sealed, one),
            (Side::Plain, one),
            1,
            60_000,
            0.65,
        ),
        ("sealed / plain, segmented, 1 KB", (Side::Sealed, gso), (Side::Plain, gso), 1, 1_000, 0.4),
        ("sealed / plain, segmented, 60 KB", (Side::Sealed, gso), (Side::Plain, gso), 1, 60_000, 0.4),
        ("sealed / liblcm, 1 KB, 1 receiver", (Side::Sealed, gso), (Side::Liblcm, one), 1, 1_000, 3.0),
        ("sealed / liblcm, 1 KB, 4 receivers", (Side::Sealed, gso), (Side::Liblcm, one), 4, 1_000, 3.0),
        ("sealed / liblcm, 60 KB, 1 receiver", (Side::Sealed, gso), (Side::Liblcm, one), 1, 60_000, 1.1),
        ("sealed / liblcm, 60 KB, 4 receivers", (Side::Sealed, gso), (Side::Liblcm, one), 4, 60_000, 1.1),
    ] {
        let ratio = rate(above.0, above.1, receivers, size).zip(rate(below.0, below.1, receivers, size));
        verdicts.push(Verdict {
            claim: format!("{claim} >= {least}"),
            holds: ratio.map_or(Holds::NotRun, |(a, b)| Holds::of(a / b >= least)),
            seen: ratio.map_or("the peer was not built: type `make peers`".into(), |(a, b)| {
                format!("{} / {} msg/s = {}", number(a), number(b), number(a / b))
            }),
        });
    }
    let line = 123e6;
    let sealed = rate(Side::Sealed, gso, 1, 1_000).map(|r| r * 1_000.0);
    verdicts.push(Verdict {
        claim: "LCMsec Sec. VI: with security no loss up to Ethernet's line rate, 123 MB/s".into(),
        holds: sealed.map_or(Holds::NotRun, |b| Holds::of(b >= line)),
        seen: sealed.map_or("not measured".into(), |b| format!("{} MB/s at 1 KB", number(b / 1e6))),
    });
    Ok(verdicts)
}
