//! What a long history costs a broker that starts: one with so many empty blocks, made for it, beside one without any.
//!
//! `broker-testing age` makes the history. The first start executes it, as after the loss of `state/`. The second one is measured: the time until it
//! answers, and its memory and open files after a while.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::home::{Home, Progress};

/// What a start cost.
struct Cost {
    start: Duration,
    memory: u64,
    files: usize,
}

pub(crate) fn run(home: &Home, blocks: u64, json: bool, progress: &Progress) -> io::Result<()> {
    let begun = Instant::now();
    home.age(AGED, blocks, progress)?;
    let made = begun.elapsed();

    let begun = Instant::now();
    let first = home.start(AGED, None)?;
    loop {
        let height = home.status(AGED).map_or(0, |status| status.height);
        progress.tell("blocks executed", height, blocks)?;
        if height >= blocks {
            break;
        }
        if begun.elapsed() > EXECUTION_TIMEOUT {
            return Err(io::Error::other(format!("it stands at block {height}")));
        }
        thread::sleep(Duration::from_millis(200));
    }
    let executed = begun.elapsed();
    first.stop()?;
    progress.finish();

    let (aged, empty) = (cost(home, AGED)?, cost(home, EMPTY)?);
    let megabytes = |it: &Cost| it.memory as f64 / 1e6;
    let more = megabytes(&aged) - megabytes(&empty);
    if json {
        println!(
            "{{\"blocks\":{blocks},\"made_seconds\":{:.1},\"executed_seconds\":{:.1},\"start_seconds\":{:.3},\
             \"start_seconds_empty\":{:.3},\"memory_mb\":{:.1},\"memory_mb_empty\":{:.1},\"files\":{},\"files_empty\":{}}}",
            made.as_secs_f64(),
            executed.as_secs_f64(),
            aged.start.as_secs_f64(),
            empty.start.as_secs_f64(),
            megabytes(&aged),
            megabytes(&empty),
            aged.files,
            empty.files,
        );
    } else {
        println!(
            "{blocks} blocks, made in {:.0} s, executed at the first start in {:.0} s",
            made.as_secs_f64(),
            executed.as_secs_f64()
        );
        let [aged_ms, empty_ms] = [&aged, &empty].map(|it| it.start.as_millis());
        println!("start-up   {aged_ms} ms, {empty_ms} ms without history");
        println!("memory     {:.0} MB, {more:+.0} MB to one without history", megabytes(&aged));
        println!("open files {}, {} without history", aged.files, empty.files);
    }
    let faults = aged.faults(&empty);
    if faults.is_empty() { Ok(()) } else { Err(io::Error::other(faults.join("; "))) }
}

impl Cost {
    /// What is beyond its bound, beside a broker without history.
    fn faults(&self, empty: &Cost) -> Vec<String> {
        let more = self.memory as f64 / 1e6 - empty.memory as f64 / 1e6;
        let mut faults = Vec::new();
        if self.files > FILES_MAX {
            faults.push(format!("{} open files, {FILES_MAX} are allowed", self.files));
        }
        if self.files > empty.files + FILES_MORE {
            faults.push(format!("{} open files, {} without history", self.files, empty.files));
        }
        if more > MEMORY_MORE_MB {
            faults.push(format!("{more:.0} MB more memory than without history, {MEMORY_MORE_MB:.0} MB are allowed"));
        }
        if self.start > START_MAX {
            faults.push(format!("the start took {:.1} s", self.start.as_secs_f64()));
        }
        faults
    }
}

fn cost(home: &Home, broker: usize) -> io::Result<Cost> {
    let begun = Instant::now();
    let running = home.start(broker, None)?;
    home.status(broker)?;
    let start = begun.elapsed();
    thread::sleep(SETTLED);
    let cost = Cost { start, memory: running.memory()?, files: running.open_files()? };
    running.stop()?;
    Ok(cost)
}

/// The one with a history, and the one without.
const AGED: usize = 0;
const EMPTY: usize = 1;
/// After so long it has allocated what it needs.
const SETTLED: Duration = Duration::from_secs(5);
/// Files that a broker may have open, whatever its age.
const FILES_MAX: usize = 256;
/// So many more than without history: the log's `LOG_FILES_OPEN` and `LOG_RUNS_MAX`, and sorted tables of rows.
const FILES_MORE: usize = 64;
/// Memory that a history may cost, MB.
const MEMORY_MORE_MB: f64 = 50.0;
/// How long a start may take, whatever the history.
const START_MAX: Duration = Duration::from_secs(10);
/// How long the history may take.
const EXECUTION_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_history_costs_too_much_is_a_failure() {
        let cost = |seconds, megabytes: u64, files| Cost {
            start: Duration::from_secs(seconds),
            memory: megabytes * 1_000_000,
            files,
        };
        let empty = cost(1, 100, 90);
        assert_eq!(cost(10, 150, 150).faults(&empty), [""; 0]);
        let said = cost(11, 152, 257).faults(&empty);
        let words = [
            "257 open files, 256 are allowed",
            "257 open files, 90 without history",
            "52 MB more memory than without history, 50 MB are allowed",
            "the start took 11.0 s",
        ];
        assert_eq!(said, words);
    }
}
