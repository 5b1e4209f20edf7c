//! Messages per second that every receiver gets, of one kind beside another: one sender, three receivers, 1 KB.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{AREA, MEMBERS, bench};
use crate::Failure;
use crate::figures::brokers::{number, run};
use crate::figures::{Bench, Goal, Holds, Row, median};
use crate::netns::Bridge;

/// What is sent, as `sealcast bench throughput` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    name: &'static str,
    protection: &'static str,
    guarantee: &'static str,
    publisher: &'static str,
    options: &'static str,
    /// Which datagrams get lost, as nftables says it.
    loss: Option<&'static str>,
}

/// One kind's rate beside another's.
struct Ratio {
    id: &'static str,
    what: &'static str,
    goal: f64,
    above: Kind,
    below: Kind,
}

const fn kind(
    name: &'static str,
    protection: &'static str,
    (guarantee, publisher): (&'static str, &'static str),
    options: &'static str,
) -> Kind {
    Kind { name, protection, guarantee, publisher, options, loss: None }
}

const fn ratio(id: &'static str, what: &'static str, goal: f64, above: Kind, below: Kind) -> Ratio {
    Ratio { id, what, goal, above, below }
}

const BEST_EFFORT: (&str, &str) = ("best-effort", "any");
const PLAIN_ONE: Kind = kind("plain", "plain", BEST_EFFORT, ONE);
const SEALED_ONE: Kind = kind("sealed", "sealed", BEST_EFFORT, ONE);
const PLAIN: Kind = kind("plain", "plain", BEST_EFFORT, GSO);
const SEALED: Kind = kind("sealed", "sealed", BEST_EFFORT, GSO);
const PLAIN_FIFO_ONE: Kind = kind("plain fifo", "plain", ("fifo", "another"), ONE);
const FIFO_ONE: Kind = kind("fifo", "sealed", ("fifo", "another"), ONE);
const PLAIN_FIFO: Kind = kind("plain fifo", "plain", ("fifo", "another"), GSO);
const BESIDE_ORDER: Kind = kind("best effort beside order=total", "sealed", BEST_EFFORT, "gso=on&order=total");
const FIFO: Kind = kind("fifo", "sealed", ("fifo", "another"), GSO);
const BY_SEQUENCER: Kind = kind("ordered, the sequencer sends", "sealed", ("ordered", "sequencer"), GSO);
const BY_ANOTHER: Kind = kind("ordered, another sends", "sealed", ("ordered", "another"), GSO);
const BY_ALL: Kind = kind("ordered, all four send", "sealed", ("ordered", "all"), GSO);
const MAC_EACH: Kind = kind("mac", "sealed", BEST_EFFORT, EACH);
const SIGNED_EACH: Kind = kind("signed", "signed", BEST_EFFORT, EACH);
const SIGNED: Kind = kind("signed", "signed", BEST_EFFORT, GSO);

const RATIOS: &[Ratio] = &[
    ratio("ord-sealed-one", "sealed / plain, best effort, one packet each", 0.85, SEALED_ONE, PLAIN_ONE),
    ratio("ord-sealed-gso", "sealed / plain, best effort, segmented", 0.6, SEALED, PLAIN),
    ratio("ord-sealed-one-fifo", "sealed / plain, fifo, one packet each", 0.85, FIFO_ONE, PLAIN_FIFO_ONE),
    ratio("ord-sealed-gso-fifo", "sealed / plain, fifo, segmented", 0.6, FIFO, PLAIN_FIFO),
    ratio("ord-fifo", "fifo / best effort", 0.85, FIFO, SEALED),
    ratio("ord-idle-order", "best effort beside an idle order=total / without", 0.97, BESIDE_ORDER, SEALED),
    ratio("ord-sequencer", "ordered / fifo, the sequencer sends", 0.9, BY_SEQUENCER, FIFO),
    ratio("ord-another", "ordered / fifo, another sends", 0.75, BY_ANOTHER, FIFO),
    ratio("ord-all", "ordered / fifo, all four send", 0.75, BY_ALL, FIFO),
];

/// What signatures cost: 100 less this many percent of the unsigned rate is the goal.
const SIGNED_RATIOS: &[Ratio] = &[
    ratio("ord-signed-one", "cost of origin signatures, one packet each", 20.0, SIGNED_EACH, MAC_EACH),
    ratio("ord-signed-gso", "cost of origin signatures, segmented", 45.0, SIGNED, SEALED),
];

pub(in crate::figures) const THROUGHPUT: &[&str] = &[
    "ord-sealed-one",
    "ord-sealed-gso",
    "ord-sealed-one-fifo",
    "ord-sealed-gso-fifo",
    "ord-fifo",
    "ord-idle-order",
    "ord-sequencer",
    "ord-another",
    "ord-all",
    "ord-signed-one",
    "ord-signed-gso",
];

/// Ratios without loss.
pub(in crate::figures) fn throughput(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let rates = Rates::measure(bench, &[RATIOS, SIGNED_RATIOS])?;
    let mut rows = Vec::new();
    for it in RATIOS.iter().filter(|it| bench.wants(it.id)) {
        let row = Row::new(AREA, it.id, format!("{}, 1 KB, 1 -> 3", it.what), "ratio", Goal::AtLeast(it.goal));
        rows.push(rates.row(row, it, |above, below| above / below));
    }
    for it in SIGNED_RATIOS.iter().filter(|it| bench.wants(it.id)) {
        let row = Row::new(AREA, it.id, format!("{}, 1 KB, 1 -> 3", it.what), "%", Goal::AtMost(it.goal));
        rows.push(rates.row(row, it, |signed, mac| (1.0 - signed / mac) * 100.0));
    }
    Ok(rows)
}

const LOSSLESS: Kind = kind("lossless", "sealed", ("fifo", "another"), EACH);
const LOSS_1: Kind = Kind { name: "1 %", loss: Some("numgen random mod 1000 lt 10"), ..LOSSLESS };
const LOSS_5: Kind = Kind { name: "5 %", loss: Some("numgen random mod 1000 lt 50"), ..LOSSLESS };
const BURSTS: Kind = Kind { name: "bursts", loss: Some("numgen inc mod 1000 lt 50"), ..LOSSLESS };

const LOSSES: &[Ratio] = &[
    ratio("ord-loss-1", "goodput / lossless, fifo, 1 % loss", 0.9, LOSS_1, LOSSLESS),
    ratio("ord-loss-5", "goodput / lossless, fifo, 5 % loss", 0.7, LOSS_5, LOSSLESS),
    ratio("ord-loss-bursts", "goodput / lossless, fifo, bursts of 50 in 1,000", 0.7, BURSTS, LOSSLESS),
];

pub(in crate::figures) const LOSS: &[&str] = &["ord-loss-1", "ord-loss-5", "ord-loss-bursts"];

/// Ratios under loss, which every member's kernel makes of what arrives, before its socket.
pub(in crate::figures) fn loss(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let rates = Rates::measure(bench, &[LOSSES])?;
    let row = |it: &Ratio| {
        let row = Row::new(AREA, it.id, format!("{}, 1 KB, 1 -> 3", it.what), "ratio", Goal::AtLeast(it.goal));
        rates.row(row, it, |above, below| above / below)
    };
    Ok(LOSSES.iter().filter(|it| bench.wants(it.id)).map(row).collect())
}

pub(in crate::figures) const MEMORY: &[&str] = &["ord-memory"];

/// What a program of four members has used at most.
pub(in crate::figures) fn memory(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let bridge = Bridge::new(MEMBERS)?;
    let seconds = bench.pick(3, 10);
    let defaults = kind("ordered", "sealed", ("ordered", "another"), "");
    let object = measured(&bridge, &defaults, seconds)?;
    let megabytes = number(&object, "memory_bytes")? / 1e6;
    let what = "memory at full rate, default options, ordered, all four members in one process";
    let row = Row::new(AREA, "ord-memory", what, "MB", Goal::AtMost(128.0));
    let row = row.part("msg/s", number(&object, "messages_per_second")?);
    Ok(vec![row.measured(megabytes, format!("peak of the resident set, {seconds} s, 1 KB, window 2000"))])
}

/// Of each kind: its rates, in turn, or why there are none.
struct Rates {
    found: BTreeMap<Kind, Result<Vec<Value>, String>>,
    how: String,
}

impl Rates {
    /// All kinds of these ratios that are wanted, in turn.
    fn measure(bench: &Bench, ratios: &[&[Ratio]]) -> Result<Rates, Failure> {
        let bridge = Bridge::new(MEMBERS)?;
        let (turns, seconds) = bench.pick((3, 1), (5, 3));
        let mut found: BTreeMap<Kind, Result<Vec<Value>, String>> = BTreeMap::new();
        for it in ratios.iter().copied().flatten().filter(|it| bench.wants(it.id)) {
            found.insert(it.above, Ok(vec![]));
            found.insert(it.below, Ok(vec![]));
        }
        for _ in 0..turns {
            for (kind, known) in &mut found {
                bench.bar.tick();
                for i in 0..MEMBERS {
                    bridge.lose(i, kind.loss)?;
                }
                // A group that does not form under loss says something of its own.
                let one = measured(&bridge, kind, seconds);
                match (one, &mut *known) {
                    (Ok(one), Ok(all)) => all.push(one),
                    (Err(why), Ok(_)) => *known = Err(why.to_string()),
                    (_, Err(_)) => {}
                }
            }
        }
        let how = format!(
            "messages at the slowest receiver, sender at most 2,000 ahead, medians of {turns} turns of {seconds} s, \
             bridge of namespaces, MTU 1500, one process"
        );
        Ok(Rates { found, how })
    }

    fn row(&self, row: Row, it: &Ratio, value: fn(f64, f64) -> f64) -> Row {
        let of = |kind: &Kind, field: &str| -> Result<f64, String> {
            let runs = self.found[kind].as_ref().map_err(|why| format!("{}: {why}", kind.name))?;
            let all: Result<Vec<f64>, Failure> = runs.iter().map(|run| number(run, field)).collect();
            Ok(median(&all.map_err(|why| why.to_string())?))
        };
        let both = |field| Ok((of(&it.above, field)?, of(&it.below, field)?));
        let (rates, lost) = match (both("messages_per_second"), both("lost")) {
            (Ok(rates), Ok(lost)) => (rates, lost),
            (Err(why), _) | (_, Err(why)) => {
                let why: String = why;
                return row.absent(Holds::No, why);
            }
        };
        let mut row = row;
        for (kind, rate, lost) in [(&it.above, rates.0, lost.0), (&it.below, rates.1, lost.1)] {
            row = row.part(format!("{} msg/s", kind.name), rate);
            if lost > 0.0 {
                row = row.part(format!("{} lost %", kind.name), lost * 100.0);
            }
        }
        row.measured(value(rates.0, rates.1), &self.how)
    }
}

/// One run of a kind.
fn measured(bridge: &Bridge, kind: &Kind, seconds: u64) -> Result<Value, Failure> {
    let mut command = bench(bridge, "throughput")?;
    command.args(["--size", "1000", "--runs", "1", "--time", &format!("{seconds}s")]);
    command.args(["--subs", &(MEMBERS - 1).to_string(), "--compare", kind.protection]);
    command.args(["--guarantee", kind.guarantee, "--publisher", kind.publisher]);
    if !kind.options.is_empty() {
        command.args(["--options", &format!("recv_buf_size={RECEIVE_BUFFER}&{}", kind.options)]);
    }
    run(&mut command)
}

/// One message, one datagram, one system call.
const ONE: &str = "batch=off&gso=off";
/// One message of 1 KB a datagram, while signatures are made for many at once.
const EACH: &str = "gso=off&segment=1472";
const GSO: &str = "gso=on";
/// As the rows of the LAN have it.
const RECEIVE_BUFFER: usize = 4 << 20;
