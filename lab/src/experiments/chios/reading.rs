//! Fig. 13: peak throughput of reads.

use super::{System, at_most, not_run};
use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::plots::{Bars, Table};

pub(in crate::experiments) fn fig13(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let clients = lab.pick(8, 16);
    lab.bar.set_length(4);
    let on_write = ["--share-on", "write"];
    let sides: [(&str, System, &[&str]); 4] = [
        ("Solo", System::Solo, &[]),
        ("module 1", System::One, &[]),
        ("module 2, shares on read", System::Two, &[]),
        ("module 2, shares on write", System::Two, &on_write),
    ];
    let mut table = Table::new(&["system", "readers", "reads_per_s", "p50_ms", "broker_cpu_us", "all_brokers_cpu_us"]);
    let mut found = Vec::new();
    for (name, system, options) in sides {
        let it = lab.read(system, clients, options)?;
        let broker = it.broker_us.ok_or("the brokers' processor time is unknown")?;
        let brokers = if system == System::Solo { 1.0 } else { 4.0 };
        table.push(&[&name, &clients, &it.rate, &it.p50_ms, &broker, &(brokers * broker)]);
        found.push((name, it.rate, broker));
    }
    let bars = |value: fn(&(&str, f64, f64)) -> f64| found.iter().map(|it| (it.0.to_owned(), value(it))).collect();
    let title = format!("Reads of 1 KB by topic and number, {clients} readers, all on the same cores");
    let rates = Bars { title: &title, y: "reads/s", bars: bars(|it| it.1) };
    let works = Bars { title: "Processor time of one broker for each read", y: "µs", bars: bars(|it| it.2) };
    lab.wrote_all([
        table.write(&lab.out, "chios-fig13")?,
        rates.write(&lab.out, "chios-fig13")?,
        works.write(&lab.out, "chios-fig13-cpu")?,
    ]);

    // A broker on a machine of its own reads as often as its processor time lets it.
    let (solo, solo_rate) = (found[0].2, found[0].1);
    let claim = |what: &str, slower: f64, it: &(&str, f64, f64)| {
        let claim =
            format!("Chios Fig. 13: {what} at most {:.1} % slower than Solo, by one broker's work", 100.0 * slower);
        let mut verdict = at_most(&claim, 1.0 / (1.0 - slower), (it.0, it.2), ("Solo", solo), "µs");
        verdict.seen += &format!("; on the same cores {:.2} of Solo's reads/s", it.1 / solo_rate);
        verdict
    };
    let mut verdicts = vec![
        claim("module 1", 0.055, &found[1]),
        claim("module 2", 0.155, &found[2]),
        claim("module 2 with shares computed before", 0.063, &found[3]),
        not_run("Chios Fig. 13: module 4 at most 5.5 % slower than Solo", "not re-run: there is no module 4 yet"),
    ];
    if lab.compare {
        verdicts.push(not_run(
            "Fig. 13 beside Kafka and NATS",
            "the paper has no such claim; their reads are not measured",
        ));
    }
    Ok(verdicts)
}
