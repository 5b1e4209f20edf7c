//! Publications that brokers can read, in order at one subscriber: throughput and latency.

use std::path::Path;

use super::{MEMORY, brokered, disk, engine, number, rate};
use crate::Failure;
use crate::figures::{Bench, Goal, Holds, Row, median};
use crate::peers::servers::{Load, Server};

pub(in crate::figures) const ORDERED: &[&str] = &[
    "brokers-pub-disk",
    "brokers-pub-engine",
    "brokers-pub-solo",
    "brokers-cpu-solo",
    "brokers-pub-kafka",
    "brokers-pub-nats",
    "brokers-pub-single",
];
pub(in crate::figures) const LATENCY: &[&str] = &["brokers-latency-disk", "brokers-latency-memory"];

/// Throughput of what brokers can read, batches of 32 signed publications of 1 KB.
pub(in crate::figures) fn ordered(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (runs, seconds) = (bench.pick(1, 3), bench.pick(4, 10));
    let disk = disk();
    let (mut four, mut alone, mut solo, mut cpu) = (vec![], vec![], vec![], vec![]);
    let mut kafka = Beside::new(Server::Kafka, bench.wants("brokers-pub-kafka"));
    let mut nats = Beside::new(Server::Nats, bench.wants("brokers-pub-nats"));
    for _ in 0..runs {
        let brokers = brokered(&disk, seconds, &[])?;
        let engine = engine(&disk, &["--ops", bench.pick("150000", "400000")])?;
        let one = brokered(&disk, seconds, &["-n", "1"])?;
        four.push(rate(&brokers)?);
        alone.push(number(&engine, "ops_s")?);
        solo.push(rate(&one)?);
        cpu.push(number(&brokers, "broker_cpu_us")? / number(&one, "broker_cpu_us")?);
        kafka.measure(&disk, seconds);
        nats.measure(&disk, seconds);
    }
    let single: Result<Vec<f64>, Failure> =
        (0..runs).map(|_| rate(&brokered(MEMORY.as_ref(), seconds, &["--batch", "1"])?)).collect();
    let (four, alone, solo) = (median(&four), median(&alone), median(&solo));
    let how = format!("medians of {runs} runs of {seconds} s, window 8192, batches of 32, 1 KB, in {}", disk.display());
    let row = |id: &str, what: &str, unit, goal| Row::new("brokers", id, what, unit, goal);
    let ratio = |id: &str, what: &str, goal: f64, name: &str, other: f64| {
        row(id, what, "ratio", Goal::AtLeast(goal)).part("brokers", four).part(name, other).measured(four / other, &how)
    };
    Ok(vec![
        row(
            "brokers-pub-disk",
            "publications through four brokers, in order at one subscriber",
            "1/s",
            Goal::AtLeast(35e3),
        )
        .measured(four, &how),
        ratio("brokers-pub-engine", "the same ÷ the engine alone", 0.75, "engine alone", alone),
        ratio("brokers-pub-solo", "the same ÷ one broker alone, same code and cores", 0.25, "solo", solo),
        row("brokers-cpu-solo", "processor time of one broker of four ÷ of one alone", "ratio", Goal::AtMost(2.0))
            .measured(median(&cpu), &how),
        kafka.row(row, "brokers-pub-kafka", "the same ÷ Kafka, one node, flush.messages=1", 1.0, four, &how),
        nats.row(row, "brokers-pub-nats", "the same ÷ NATS JetStream, sync_interval: always", 7.0, four, &how),
        row(
            "brokers-pub-single",
            "the same, one publication per batch, memory file system",
            "1/s",
            Goal::AtLeast(15e3),
        )
        .measured(median(&single?), format!("medians of {runs} runs of {seconds} s in {MEMORY}")),
    ])
}

/// A peer's throughput in the same run.
struct Beside {
    server: Server,
    /// Or why there is none.
    rates: Result<Vec<f64>, Failure>,
}

impl Beside {
    fn new(server: Server, is_wanted: bool) -> Beside {
        let rates = match is_wanted {
            true => server.is_here().map(|()| Vec::new()),
            false => Err("its row was not asked for".into()),
        };
        Beside { server, rates }
    }

    fn measure(&mut self, within: &Path, seconds: u64) {
        let load = Load { size: BYTES, window: WINDOW, publishers: 1, seconds, paced: false };
        if let Ok(rates) = &mut self.rates {
            match self.server.measure(within, &load).and_then(|object| rate(&object)) {
                Ok(rate) => rates.push(rate),
                Err(why) => self.rates = Err(why),
            }
        }
    }

    fn row(
        &self,
        row: impl Fn(&str, &str, &'static str, Goal) -> Row,
        id: &str,
        what: &str,
        goal: f64,
        brokers: f64,
        how: &str,
    ) -> Row {
        let row = row(id, what, "ratio", Goal::AtLeast(goal));
        match &self.rates {
            Err(why) => row.absent(Holds::NotRun, why.to_string()),
            Ok(rates) => {
                let peer = median(rates);
                let how = format!(
                    "{how}; {}; acknowledged and delivered in order to one consumer, the same window, in turn with ours",
                    self.server.described()
                );
                row.part("brokers", brokers).part(self.server.name(), peer).measured(brokers / peer, how)
            }
        }
    }
}

/// One publication at a time, 20 a second.
pub(in crate::figures) fn latency(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let seconds = bench.pick(5, 20);
    let of = |id: &str, what: &str, folder: &Path| -> Result<Row, Failure> {
        let brokers = number(&brokered(folder, seconds, &["--paced"])?, "p50_us")? / 1e3;
        let engine =
            number(&engine(folder, &["--paced", "--batch", "1", "--ops", bench.pick("80", "200")])?, "p50_ms")?;
        let row = Row::new("brokers", id, what, "ratio", Goal::AtMost(1.25));
        let how = format!("p50 from publish to the subscriber, unloaded, over {seconds} s in {}", folder.display());
        Ok(row.part("ms", brokers).part("engine alone ms", engine).measured(brokers / engine, how))
    };
    Ok(vec![
        of("brokers-latency-disk", "latency of one publication ÷ the engine alone, disk", &disk())?,
        of("brokers-latency-memory", "latency of one publication ÷ the engine alone, memory", MEMORY.as_ref())?,
    ])
}

/// What `sealcast bench brokers` does unless told otherwise.
const BYTES: usize = 1024;
const WINDOW: u64 = 8192;
