//! Round trips: ours against itself without keys, and against the original LCM.

use crate::Failure;
use crate::figures::{Bench, Goal, Holds, Row, median};
use crate::peers::OneCore;
use crate::peers::contest::Pair;
use crate::peers::side::{Path, Side, liblcm};

pub(super) const ROWS: &[&str] =
    &["rtt-sealed-100", "rtt-sealed-1k", "rtt-sealed-100k", "rtt-liblcm-100", "rtt-liblcm-100k", "rtt-signed-100"];

const SIZES: [(usize, &str); 3] = [(100, "100 B"), (1_000, "1 KB"), (100_000, "100 KB")];

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let mut sides = vec![Side::Plain, Side::Sealed, Side::Signed];
    if liblcm().is_ok() {
        sides.push(Side::Liblcm);
    }
    // Waking the other end on another core costs more than any cipher, and happens now to one side, now to another.
    let core = OneCore::hold()?;
    let mut pairs = sides
        .iter()
        .map(|side| Ok((*side, Pair::start(&bench.field, *side, Path::Segmented)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let (blocks, count) = bench.pick((9, 200), (20, 1_000));
    // p50 of each block, by size and side.
    let mut found = vec![vec![Vec::new(); sides.len()]; SIZES.len()];
    for _ in 0..blocks {
        for (size, into) in SIZES.iter().zip(&mut found) {
            for ((_, pair), into) in pairs.iter_mut().zip(into) {
                into.push(pair.round_trip(size.0, count)?.p50);
            }
        }
    }
    drop(core);
    let p50 = |size: usize, side: Side| {
        let (s, i) = (SIZES.iter().position(|s| s.0 == size)?, sides.iter().position(|s| *s == side)?);
        Some(median(&found[s][i]))
    };
    let how =
        format!("p50 of {blocks} blocks of {count} in turn, one outstanding, linger 0, loopback, all on one core");

    let mut rows = Vec::new();
    for ((size, name), (id, goal)) in
        SIZES.iter().zip([("rtt-sealed-100", 1.05), ("rtt-sealed-1k", 1.05), ("rtt-sealed-100k", 1.5)])
    {
        let row = Row::new("lan", id, format!("sealed / plain round trip, {name}"), "ratio", Goal::AtMost(goal));
        rows.push(ratio(row, (Side::Sealed, p50(*size, Side::Sealed)), (Side::Plain, p50(*size, Side::Plain)), &how));
    }
    for (size, name, id, goal) in [(100, "100 B", "rtt-liblcm-100", 1.0), (100_000, "100 KB", "rtt-liblcm-100k", 0.8)] {
        let what = format!("our plain / liblcm's round trip, {name}");
        let row = Row::new("lan", id, what, "ratio", Goal::AtMost(goal));
        rows.push(ratio(row, (Side::Plain, p50(size, Side::Plain)), (Side::Liblcm, p50(size, Side::Liblcm)), &how));
    }
    let row = Row::new("lan", "rtt-signed-100", "signed - mac round trip, 100 B, alone", "us", Goal::AtMost(110.0));
    rows.push(match (p50(100, Side::Signed), p50(100, Side::Sealed)) {
        (Some(signed), Some(mac)) => row.part("signed us", signed).part("mac us", mac).measured(signed - mac, &how),
        _ => row.absent(Holds::NotRun, "not measured"),
    });
    Ok(rows)
}

fn ratio(row: Row, (a, above): (Side, Option<f64>), (b, below): (Side, Option<f64>), how: &str) -> Row {
    match (above, below) {
        (Some(above), Some(below)) => row
            .part(format!("{} us", a.name()), above)
            .part(format!("{} us", b.name()), below)
            .measured(above / below, how),
        _ => row.absent(Holds::NotRun, "the peer was not built: type `make peers`"),
    }
}
