//! LCMsec, Fig. 8: what security costs a round trip, against the size of the message.
//!
//! The paper: 'a small latency overhead' between two servers over Ethernet. Here loopback, where no wire
//! hides the cryptography; all sides in turn, block by block, all on one core.

use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, median, number};
use crate::peers::OneCore;
use crate::peers::contest::Pair;
use crate::peers::side::{Field, Path, Side, liblcm};
use crate::plots::{Chart, Curve, Table};

const SIZES: [usize; 5] = [100, 1_000, 3_000, 10_000, 100_000];

pub(super) fn run(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let field = Field::default();
    let mut sides = vec![Side::Plain, Side::Sealed, Side::ChaCha];
    if liblcm().is_ok() {
        sides.push(Side::Liblcm);
    }
    // All processes on one core: else a side is now and then measured with its ends on two, where waking the other one costs
    // more than any cipher, and another side beside it without.
    let core = OneCore::hold()?;
    let mut pairs =
        sides.iter().map(|s| Pair::start(&field, *s, Path::Segmented)).collect::<Result<Vec<_>, Failure>>()?;
    // A thousand round trips of each side and size, in blocks of a hundred.
    let (blocks, count) = lab.pick((3, 50), (10, 100));
    lab.bar.set_length((blocks * SIZES.len()) as u64);
    let mut table = Table::new(&["side", "bytes", "block", "p50_us", "p99_us", "lost"]);
    let mut p50 = vec![vec![Vec::new(); SIZES.len()]; sides.len()];
    for block in 0..blocks {
        for (i, size) in SIZES.iter().enumerate() {
            for (s, pair) in pairs.iter_mut().enumerate() {
                let t = pair.round_trip(*size, count)?;
                table.push(&[&sides[s].name(), size, &block, &t.p50, &t.p99, &t.lost]);
                p50[s][i].push(t.p50);
            }
            lab.bar.inc(1);
        }
    }
    drop(core);
    lab.wrote(&table.write(&lab.out, "lcmsec-fig8")?);
    let at = |side: Side, size: usize| {
        let s = sides.iter().position(|s| *s == side)?;
        Some(median(&p50[s][SIZES.iter().position(|z| *z == size)?]))
    };
    let curve = |side: &Side| Curve {
        label: side.name().into(),
        points: SIZES.iter().filter_map(|z| Some((*z as f64, at(*side, *z)?))).collect(),
    };
    let chart = Chart {
        title: "Echo round trip on one core, median",
        x: "message, bytes",
        y: "µs",
        log_x: true,
        curves: sides.iter().map(curve).collect(),
    };
    lab.wrote(&chart.write(&lab.out, "lcmsec-fig8")?);

    let claim = |claim: &str, above: Side, below: Side, size: usize, most: f64| {
        let ratio = at(above, size).zip(at(below, size)).map(|(a, b)| (a, b, a / b));
        Verdict {
            claim: claim.into(),
            holds: ratio.map_or(Holds::NotRun, |r| Holds::of(r.2 <= most)),
            seen: ratio.map_or("the peer was not built: type `make peers`".into(), |(a, b, r)| {
                format!("{} {} us / {} {} us = {}", above.name(), number(a), below.name(), number(b), number(r))
            }),
        }
    };
    Ok(vec![
        claim("LCMsec Fig. 8, small overhead (<= 1.05) at 100 B", Side::Sealed, Side::Plain, 100, 1.05),
        claim("the same at 1 KB", Side::Sealed, Side::Plain, 1_000, 1.05),
        claim("at 100 KB <= 1.5 (LCMsec here: 2.9)", Side::Sealed, Side::Plain, 100_000, 1.5),
        claim("ChaCha20-Poly1305 at 1 KB <= 1.36, as LCMsec's here", Side::ChaCha, Side::Plain, 1_000, 1.36),
        claim("ChaCha20-Poly1305 at 100 KB <= 5.5, as LCMsec's here", Side::ChaCha, Side::Plain, 100_000, 5.5),
        claim("plain is no slower than liblcm at 100 B", Side::Plain, Side::Liblcm, 100, 1.0),
        claim("plain <= 0.8 of liblcm at 100 KB", Side::Plain, Side::Liblcm, 100_000, 0.8),
    ])
}
