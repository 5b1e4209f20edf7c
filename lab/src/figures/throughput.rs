//! Throughput without loss, and what a sender pays for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Failure;
use crate::figures::{Bench, Goal, Holds, Row, median};
use crate::peers::contest::Flow;
use crate::peers::side::{Path, Side, liblcm};

pub(super) const ROWS: &[&str] = &[
    "tp-one-1k",
    "tp-one-60k",
    "tp-gso-1k",
    "tp-gso-60k",
    "tp-liblcm-1k",
    "tp-liblcm-1k-4",
    "tp-liblcm-60k",
    "tp-liblcm-60k-4",
    "tp-signed-one-1k",
    "tp-signed-gso-1k",
    SEALED,
];

/// One rate beside another, of the same size and for as many receivers.
struct Ratio {
    id: &'static str,
    what: &'static str,
    /// What it shall reach at least.
    goal: f64,
    above: (Side, Path),
    below: (Side, Path),
    receivers: usize,
    /// Bytes of a message.
    size: usize,
}

const RATIOS: &[Ratio] = &[
    Ratio {
        id: "tp-one-1k",
        what: "sealed / plain, one packet each, 1 KB",
        goal: 0.9,
        above: (Side::Sealed, ONE),
        below: (Side::Plain, ONE),
        receivers: 1,
        size: SMALL,
    },
    Ratio {
        id: "tp-one-60k",
        what: "sealed / plain, one packet each, 60 KB",
        goal: 0.65,
        above: (Side::Sealed, ONE),
        below: (Side::Plain, ONE),
        receivers: 1,
        size: LARGE,
    },
    Ratio {
        id: "tp-gso-1k",
        what: "sealed / plain, segmented, 1 KB",
        goal: 0.4,
        above: (Side::Sealed, GSO),
        below: (Side::Plain, GSO),
        receivers: 1,
        size: SMALL,
    },
    Ratio {
        id: "tp-gso-60k",
        what: "sealed / plain, segmented, 60 KB",
        goal: 0.4,
        above: (Side::Sealed, GSO),
        below: (Side::Plain, GSO),
        receivers: 1,
        size: LARGE,
    },
    Ratio {
        id: "tp-liblcm-1k",
        what: "sealed / liblcm's plain, 1 KB, 1 receiver",
        goal: 3.0,
        above: (Side::Sealed, GSO),
        below: (Side::Liblcm, ONE),
        receivers: 1,
        size: SMALL,
    },
    Ratio {
        id: "tp-liblcm-1k-4",
        what: "sealed / liblcm's plain, 1 KB, 4 receivers",
        goal: 3.0,
        above: (Side::Sealed, GSO),
        below: (Side::Liblcm, ONE),
        receivers: 4,
        size: SMALL,
    },
    Ratio {
        id: "tp-liblcm-60k",
        what: "sealed / liblcm's plain, 60 KB, 1 receiver",
        goal: 1.1,
        above: (Side::Sealed, GSO),
        below: (Side::Liblcm, ONE),
        receivers: 1,
        size: LARGE,
    },
    Ratio {
        id: "tp-liblcm-60k-4",
        what: "sealed / liblcm's plain, 60 KB, 4 receivers",
        goal: 1.1,
        above: (Side::Sealed, GSO),
        below: (Side::Liblcm, ONE),
        receivers: 4,
        size: LARGE,
    },
    Ratio {
        id: "tp-signed-one-1k",
        what: "signed / mac, one packet each, 1 KB",
        goal: 0.75,
        above: (Side::Signed, EACH),
        below: (Side::Sealed, EACH),
        receivers: 1,
        size: SMALL,
    },
    Ratio {
        id: "tp-signed-gso-1k",
        what: "signed / mac, segmented, 1 KB",
        goal: 0.5,
        above: (Side::Signed, GSO),
        below: (Side::Sealed, GSO),
        receivers: 1,
        size: SMALL,
    },
];

const ONE: Path = Path::OnePacket;
const GSO: Path = Path::Segmented;
const EACH: Path = Path::OneEach;

/// A setup: side, path, receivers.
type Setup = (Side, Path, usize);

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let blocks = bench.pick(2, 5);
    let window = bench.window();
    let mut found: BTreeMap<(Setup, usize), Vec<f64>> = BTreeMap::new();
    let have_liblcm = liblcm().is_ok();
    let wanted: Vec<&Ratio> = RATIOS.iter().filter(|ratio| bench.wants(ratio.id)).collect();
    let setups_at = |size: usize, receivers: usize| -> BTreeSet<Setup> {
        let of = wanted.iter().filter(|ratio| ratio.size == size && ratio.receivers == receivers);
        let sealed = (size == SMALL && receivers == 1 && bench.wants(SEALED)).then_some((Side::Sealed, GSO));
        let setups = of.flat_map(|ratio| [ratio.above, ratio.below]).chain(sealed);
        setups
            .filter(|(side, _)| have_liblcm || *side != Side::Liblcm)
            .map(|(side, path)| (side, path, receivers))
            .collect()
    };
    for receivers in [1, 4] {
        let setups: BTreeSet<Setup> = [SMALL, LARGE].into_iter().flat_map(|size| setups_at(size, receivers)).collect();
        let mut flows = setups
            .iter()
            .map(|&(side, path, n)| Ok(((side, path, n), Flow::start(&bench.field, side, path, n)?)))
            .collect::<Result<BTreeMap<Setup, Flow>, Failure>>()?;
        for size in [SMALL, LARGE] {
            for _ in 0..blocks {
                for setup in setups_at(size, receivers) {
                    bench.bar.tick();
                    let flow = flows.get_mut(&setup).expect("every setup was started");
                    let known = found.entry((setup, size)).or_default();
                    // Later blocks begin near what the first one found.
                    let from = known.last().map_or(START[usize::from(size == LARGE)], |best| (best / 4.0).max(500.0));
                    known.push(flow.lossless(size, from, window)?);
                }
            }
        }
    }
    let rate = |side, path, receivers, size| found.get(&((side, path, receivers), size)).map(|v| median(v));
    let how = format!(
        "highest rate with < 0.1 % loss and pace kept, median of {blocks} searches in turn, window {} ms, linger 0, loopback",
        window.as_millis()
    );
    let mut rows = Vec::new();
    for Ratio { id, what, goal, above, below, receivers, size } in wanted {
        let row = Row::new("lan", id, *what, "ratio", Goal::AtLeast(*goal));
        let value = |setup: &(Side, Path)| rate(setup.0, setup.1, *receivers, *size);
        rows.push(match (value(above), value(below)) {
            (Some(a), Some(b)) => row
                .part(format!("{} msg/s", above.0.name()), a)
                .part(format!("{} msg/s", below.0.name()), b)
                .measured(a / b, &how),
            _ => row.absent(Holds::NotRun, "the peer was not built: type `make peers`"),
        });
    }
    let row = Row::new("lan", SEALED, "sealed, 1 KB, 1 -> 1; aim 750 000", "msg/s", Goal::Report);
    rows.push(match rate(Side::Sealed, GSO, 1, SMALL) {
        Some(v) => row.measured(v, &how),
        None => row.absent(Holds::NotRun, "not measured"),
    });
    Ok(rows)
}

pub(super) const CPU_ROWS: &[&str] = &["cpu-user-10"];

/// What a sender pays per message when ten receive instead of one.
pub(super) fn cpu(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (blocks, window) = bench.pick((3, Duration::from_millis(800)), (7, Duration::from_secs(3)));
    let mut flows = [1, 10]
        .map(|n| Flow::start(&bench.field, Side::Sealed, Path::Segmented, n))
        .into_iter()
        .collect::<Result<Vec<_>, Failure>>()?;
    let (mut user, mut system) = (vec![Vec::new(); 2], vec![Vec::new(); 2]);
    for _ in 0..blocks {
        for (i, flow) in flows.iter_mut().enumerate() {
            // A rate far below what is possible, so that both send as much.
            let p = flow.point(SMALL, 0.0, window)?;
            user[i].push(p.user_nanos);
            system[i].push(p.system_nanos);
        }
    }
    let (u1, u10) = (median(&user[0]), median(&user[1]));
    let row = Row::new(
        "lan",
        "cpu-user-10",
        "sender's user time a message, 1 -> 10 / 1 -> 1, 1 KB",
        "ratio",
        Goal::AtMost(1.1),
    );
    let row = row
        .part("user ns, 1 -> 1", u1)
        .part("user ns, 1 -> 10", u10)
        .part("kernel ns, 1 -> 1", median(&system[0]))
        .part("kernel ns, 1 -> 10", median(&system[1]));
    let how = format!("unpaced, median of {blocks} blocks in turn, window {} ms, linger 0", window.as_millis());
    Ok(vec![row.measured(u10 / u1, how)])
}

/// What is reported, beside the ratios.
const SEALED: &str = "tp-sealed-1k";
const SMALL: usize = 1_000;
const LARGE: usize = 60_000;
/// Where a first search begins, messages a second: small and large.
const START: [f64; 2] = [16_000.0, 4_000.0];
