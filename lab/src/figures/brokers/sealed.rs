//! Publications sealed to the brokers' key: throughput, and what reading costs a broker.

use super::{brokered, disk, number, rate};
use crate::Failure;
use crate::figures::threshold::unit_under_load;
use crate::figures::{Bench, Goal, Holds, Row, median};

pub(in crate::figures) const SEALED: &[&str] = &[
    "brokers-sealed-paper",
    "brokers-sealed-paper-ifma",
    "brokers-sealed-model",
    "brokers-sealed",
    "brokers-sealed-together",
];
pub(in crate::figures) const READS: &[&str] =
    &["brokers-read-cpu", "brokers-read-cpu-stored", "brokers-read-cpu-asked"];

/// Sealed and released to one subscriber, beside publications that brokers can read, in turn.
pub(in crate::figures) fn sealed(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (runs, seconds) = (bench.pick(1, 3), bench.pick(4, 10));
    let sealed = ["--keys", "threshold"];
    let single = [&sealed[..], &["--window", "2048"]].concat();
    let cores = std::thread::available_parallelism()?.get();
    let (mut clear, mut paper, mut default, mut together, mut units) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..runs {
        let measure = |options: &[&str]| rate(&brokered(&disk(), seconds, options)?);
        clear.push(measure(&[])?);
        units.push(unit_under_load(cores));
        paper.push(measure(&[&single[..], &["--paper"]].concat())?);
        units.push(unit_under_load(cores));
        default.push(measure(&single)?);
        together.push(measure(&[&sealed[..], &["--together", "16"]].concat())?);
    }
    let [clear, paper, default, together, unit] = [clear, paper, default, together, units].map(|it| median(&it));
    // The cores have this much time in a second, and a publication in clear takes this much of it.
    let second = 1e6 * cores as f64;
    let model = second / (second / clear + SEALING_UNITS * unit);
    let how = format!("medians of {runs} runs of {seconds} s, batches of 32, 1 KB, in {}", disk().display());
    let one = format!("{how}, window 2048, one TDH2 ciphertext each");
    let row = |id: &str, what: &str, unit, goal| Row::new("brokers", id, what, unit, goal);
    Ok(vec![
        row("brokers-sealed-paper", "sealed publications read by one subscriber, t = f+1", "1/s", Goal::AtLeast(3.1e3))
            .measured(paper, &one),
        with_ifma(paper, &one, IFMA),
        row("brokers-sealed-model", "the same ÷ what the unit costs allow beside publications in clear", "ratio", Goal::AtLeast(0.8))
            .part("sealed", paper)
            .part("in clear", clear)
            .part("model", model)
            .part("unit µs", unit)
            .measured(
                paper / model,
                format!(
                    "{one}; {cores} cores ÷ (processor time in clear + {SEALING_UNITS:.1} units for sealing, 4 checks and shares, \
                     opening); a unit is a multiplication, timed on all cores at once before and after each run"
                ),
            ),
        row("brokers-sealed", "the same, t = 2f+1", "1/s", Goal::Report).measured(default, &one),
        row("brokers-sealed-together", "16 publications in a ciphertext ÷ in clear", "ratio", Goal::AtLeast(0.65))
            .part("sealed", together)
            .part("in clear", clear)
            .measured(together / clear, format!("{how}, window 8192 both, t = 2f+1, batches of 32 ciphertexts")),
    ])
}

/// The same row with its goal for builds that use AVX-512 IFMA, if this is one.
fn with_ifma(paper: f64, how: &str, is_used: bool) -> Row {
    let what = "sealed publications read by one subscriber, t = f+1, with AVX-512 IFMA";
    let row = Row::new("brokers", "brokers-sealed-paper-ifma", what, "1/s", Goal::AtLeast(3.9e3));
    match is_used {
        true => row.measured(paper, how),
        false => row.absent(
            Holds::NotRun,
            "curve25519-dalek uses AVX-512 IFMA only where a build says that the processor has it, and default builds do not: \
             build all with RUSTFLAGS=\"-C target-feature=+avx512ifma,+avx512vl\"",
        ),
    }
}

/// What a read by topic and number costs a broker.
pub(in crate::figures) fn reads(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (runs, seconds) = (bench.pick(1, 3), bench.pick(4, 10));
    let stored = bench.pick("12000", "40000");
    // Of one broker for each read: what it takes alone, and what is done anyway in that time; and reads in a second.
    let read = |options: &[&str]| -> Result<[f64; 3], Failure> {
        let object = brokered(&disk(), seconds, &[&["--reads", "--stored", stored][..], options].concat())?;
        let rate = number(&object, "reads_per_second")?;
        let (all, idle) = (number(&object, "broker_cpu_us")?, number(&object, "broker_idle_us_per_s")? / rate);
        if idle < all { Ok([all - idle, idle, rate]) } else { Err("brokers did more before anybody read".into()) }
    };
    let sealed = ["--keys", "threshold"];
    let kinds: [Vec<&str>; 4] =
        [vec!["-n", "1"], vec![], [&sealed[..], &["--share-on", "write"]].concat(), sealed.to_vec()];
    let mut seen = vec![Vec::new(); kinds.len()];
    for _ in 0..runs {
        for (kind, options) in kinds.iter().enumerate() {
            seen[kind].push(read(options)?);
        }
    }
    let of = |which: usize| -> Vec<f64> {
        let values = |it: &Vec<[f64; 3]>| it.iter().map(|it| it[which]).collect::<Vec<f64>>();
        seen.iter().map(|it| median(&values(it))).collect()
    };
    let (cost, idle, rate) = (of(0), of(1), of(2));
    let how = format!(
        "the mean of all brokers, of which f+1 answer and one sends the body, without what they do when nobody reads; 8 readers \
         of {stored} stored publications of 1 KB at random, medians of {runs} runs of {seconds} s, in {}",
        disk().display()
    );
    let row = |id: &str, what: &str, unit, goal, kind: usize| {
        Row::new("brokers", id, what, unit, goal)
            .part("µs", cost[kind])
            .part("all four µs", 4.0 * cost[kind])
            .part("idle µs", idle[kind])
            .part("solo µs", cost[0])
            .part("reads/s", rate[kind])
            .part("solo reads/s", rate[0])
    };
    Ok(vec![
        row(
            "brokers-read-cpu",
            "a broker's processor time per read ÷ one broker's alone",
            "ratio",
            Goal::AtMost(1.1),
            1,
        )
        .measured(cost[1] / cost[0], &how),
        row("brokers-read-cpu-stored", "the same, sealed, shares computed on write", "ratio", Goal::AtMost(1.15), 2)
            .measured(cost[2] / cost[0], &how),
        row(
            "brokers-read-cpu-asked",
            "the same, sealed, shares computed on read, over one alone",
            "µs",
            Goal::AtMost(40.0),
            3,
        )
        .measured(cost[3] - cost[0], format!("{how}; each read once")),
    ])
}

/// Whether this build, and with it the brokers beside it, was told that there is AVX-512 IFMA.
const IFMA: bool = cfg!(all(target_feature = "avx512ifma", target_feature = "avx512vl"));
/// t = 2 of 4, 1 KB, without AVX-512 (research on TDH2): 66 µs to seal, at each of four brokers 44.4 to check and 36.1
/// for a share, 47 to open, where a multiplication took 31.
const SEALING_UNITS: f64 = (66.0 + 4.0 * (44.4 + 36.1) + 47.0) / 31.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goal_with_ifma_is_judged_where_it_is_used_alone() {
        let row = |paper, is_used| with_ifma(paper, "", is_used);
        assert_eq!(row(4e3, true).holds, Holds::Yes);
        assert_eq!(row(3.5e3, true).holds, Holds::No);
        assert_eq!((row(4e3, false).holds, row(4e3, false).value), (Holds::NotRun, None));
        assert!(SEALED.contains(&row(4e3, false).id.as_str()));
    }
}
