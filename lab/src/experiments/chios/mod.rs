//! Chios, Sec. VII and App. H: modules 1 and 2 with f = 1, beside one broker alone and, with `--compare`, Kafka and NATS.
//!
//! The paper has a machine of 8 cores for each broker, and more for its clients. Here all brokers and clients share this
//! machine's cores, so that four brokers cannot be as fast as one: beside what was seen stands the processor time of one
//! broker of four, which says what it could do on a machine of its own. The curves of the paper are images; its
//! claims are those of its text.

mod latency;
mod publishing;
mod reading;

use std::path::PathBuf;

use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::brokers::{brokered, disk, number};
use crate::figures::{Holds, number as shown};
use crate::peers::servers::{Load, Server};

pub(super) use latency::fig6;
pub(super) use publishing::{fig5, fig7, fig15};
pub(super) use reading::fig13;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Four brokers that read what they order.
    One,
    /// Four brokers that hold shares of a key; two of them open a publication, as in the paper.
    Two,
    /// One broker.
    Solo,
    Peer(Server),
}

/// One run's figures.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Per second.
    rate: f64,
    p50_ms: f64,
    /// Processor time of one broker for each publication or read; unknown of peers.
    broker_us: Option<f64>,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            System::One => "module 1",
            System::Two => "module 2",
            System::Solo => "Solo",
            System::Peer(server) => server.name(),
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            System::One | System::Peer(_) => &[],
            System::Two => &["--keys", "threshold", "--paper"],
            System::Solo => &["-n", "1"],
        }
    }
}

/// Publishing clients, and how their operations are put into blocks.
#[derive(Clone, Copy, Debug)]
struct Publishing {
    clients: u16,
    /// Publications under way, of all clients together.
    window: u64,
    /// Operations of one block, if not the default.
    block: Option<u32>,
    /// Operations that one signature vouches for.
    batch: u32,
    paced: bool,
}

impl Lab {
    fn publish(&self, system: System, it: Publishing) -> Result<Point, Failure> {
        self.bar.set_message(format!("{}, {} clients", system.name(), it.clients));
        let seconds = self.pick(2, 8);
        let within = disk();
        let object = match system {
            System::Peer(server) => {
                let (window, publishers, paced) = (it.window, it.clients, it.paced);
                server.measure(&within, &Load { size: BYTES, window, publishers, seconds, paced })?
            }
            _ => {
                let mut options: Vec<String> = system.options().iter().map(|it| (*it).to_owned()).collect();
                let numbers = [("clients", it.clients.into()), ("window", it.window), ("batch", it.batch.into())];
                for (name, value) in numbers {
                    options.extend([format!("--{name}"), value.to_string()]);
                }
                if let Some(operations) = it.block {
                    options.extend(["--block-size".to_owned(), (operations / it.batch).max(1).to_string()]);
                }
                options.extend(it.paced.then(|| "--paced".to_owned()));
                brokered(&within, seconds, &options.iter().map(String::as_str).collect::<Vec<_>>())?
            }
        };
        self.bar.inc(1);
        Ok(Point {
            rate: number(&object, "publications_per_second")?,
            p50_ms: number(&object, "p50_us")? / 1e3,
            broker_us: number(&object, "broker_cpu_us").ok(),
        })
    }

    fn read(&self, system: System, clients: u16, options: &[&str]) -> Result<Point, Failure> {
        self.bar.set_message(format!("{}, {clients} readers", system.name()));
        let (seconds, stored) = self.pick((2, "8000"), (8, "30000"));
        let clients = clients.to_string();
        let all = [system.options(), &["--reads", "--clients", &clients, "--stored", stored], options].concat();
        let object = brokered(&disk(), seconds, &all)?;
        self.bar.inc(1);
        let rate = number(&object, "reads_per_second")?;
        // What it does without readers, too, is none of theirs.
        let idle = number(&object, "broker_idle_us_per_s")? / rate;
        let broker_us = Some(number(&object, "broker_cpu_us")? - idle).filter(|it| *it > 0.0);
        Ok(Point { rate, p50_ms: number(&object, "p50_us")? / 1e3, broker_us })
    }

    /// The peers that are to be compared with and are here.
    fn servers(&self) -> Vec<System> {
        let here = [Server::Kafka, Server::Nats].into_iter().filter(|it| self.compare && it.is_here().is_ok());
        here.map(System::Peer).collect()
    }

    /// Why a peer is not among them.
    fn without(&self, server: Server) -> String {
        match (self.compare, server.is_here()) {
            (false, _) => "type: --compare".to_owned(),
            (true, Err(why)) => why.to_string(),
            (true, Ok(())) => "it was not measured".to_owned(),
        }
    }

    fn wrote_all(&self, paths: impl IntoIterator<Item = PathBuf>) {
        paths.into_iter().for_each(|path| self.wrote(&path));
    }
}

/// A claim about a ratio that shall be at least this.
fn at_least(claim: &str, least: f64, above: (&str, f64), below: (&str, f64), unit: &str) -> Verdict {
    let ratio = above.1 / below.1;
    Verdict {
        claim: claim.to_owned(),
        holds: Holds::of(ratio >= least),
        seen: format!("{} {} / {} {} {unit} = {}", above.0, shown(above.1), below.0, shown(below.1), shown(ratio)),
    }
}

/// The same of one that shall be at most this.
fn at_most(claim: &str, most: f64, above: (&str, f64), below: (&str, f64), unit: &str) -> Verdict {
    let verdict = at_least(claim, 0.0, above, below, unit);
    Verdict { holds: Holds::of(above.1 / below.1 <= most), ..verdict }
}

fn not_run(claim: &str, why: impl Into<String>) -> Verdict {
    Verdict { claim: claim.to_owned(), holds: Holds::NotRun, seen: why.into() }
}

/// As in the paper: all operations have 1 KB.
const BYTES: usize = 1024;
/// Operations of one batch.
const BATCH: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_as_its_ratio_says() {
        let seen = [
            at_least("", 0.9, ("a", 90.0), ("b", 100.0), "1/s"),
            at_least("", 0.9, ("a", 89.0), ("b", 100.0), "1/s"),
            at_most("", 1.1, ("a", 110.0), ("b", 100.0), "µs"),
            at_most("", 1.1, ("a", 111.0), ("b", 100.0), "µs"),
            not_run("", "not re-run"),
        ];
        assert_eq!(seen.each_ref().map(|it| it.holds), [Holds::Yes, Holds::No, Holds::Yes, Holds::No, Holds::NotRun]);
        assert_eq!(seen[0].seen, "a 90 / b 100 1/s = 0.900");
    }
}
