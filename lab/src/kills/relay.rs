//! `sealcast lab kills relay`: crash after crash of a relay and of the members of a group there, under ordered load.
//!
//! Five members of `keys=mls` publish in one order, and change the key. Again and again one or two of them are killed, or the
//! relay's directory, or its MQTT broker, or members beside one of these; all are started again on what their folders hold. All
//! the time it must hold: what was acknowledged is delivered, each once, in one order, by all who were in the view from then
//! on; what failed is delivered to nobody; no member goes back to an earlier epoch, and none is lost that was acknowledged.
//! At the end the relay's folder is searched for what it must not know.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng as _;
use serde_json::json;

use super::members::{MEMBERS, Members};
use super::publisher::{FILL, TOPIC};
use super::{Plan, below, below_ms, some};
use crate::Failure;
use crate::brokers::interrupted;
use crate::figures::progress;

/// Kill a relay and members of a group there again and again under ordered load, and see that nothing is lost
#[derive(Args, Clone, Debug)]
pub(crate) struct Relay {
    #[command(flatten)]
    plan: Plan,
    /// Ordered messages per second, of each member
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
}

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    kills: u32,
    members: u32,
    directories: u32,
    brokers: u32,
    /// The longest time without a delivery.
    gap: Duration,
    /// The longest time from the last start until all were together.
    together: Duration,
}

impl Relay {
    /// Runs it.
    ///
    /// # Errors
    /// What did not hold, and the seed.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let (begun, end) = (Instant::now(), interrupted()?);
        let mut members = Members::at_a_relay(self.rate, end.clone())?;
        let mut seen = Seen::default();
        let searched = self.kill(&mut members, &mut seen).map_err(|why| self.plan.ended(&end, seen.kills, &why))?;
        let ms = |it: Duration| it.as_secs_f64() * 1e3;
        let (seconds, counts) = (begun.elapsed().as_secs_f64(), &members.counts);
        let (acknowledged, delivered) = (members.ledger.acknowledged(), members.ledger.len());
        if self.plan.json {
            let object = json!({
                "kills": seen.kills, "members": seen.members, "directories": seen.directories, "brokers": seen.brokers,
                "seed": self.plan.seed, "seconds": seconds, "acknowledged": acknowledged, "delivered": delivered,
                "doubtful": counts.doubtful, "failed": counts.failed, "refused": counts.refused,
                "reasons": counts.reasons, "rotations": counts.rotations, "gap_ms": ms(seen.gap),
                "together_ms": ms(seen.together), "searched_bytes": searched, "holds": true,
            });
            println!("{object}");
            return Ok(ExitCode::SUCCESS);
        }
        println!(
            "{} kills in {seconds:.0} s (seed {}): {} members, {} times the directory, {} times the MQTT broker",
            seen.kills, self.plan.seed, seen.members, seen.directories, seen.brokers
        );
        println!(
            "{acknowledged} messages acknowledged, {delivered} delivered, each once, in one order at {MEMBERS} members; {} \
             in doubt, {} failed, {} refused; {} new keys were asked for and had",
            counts.doubtful, counts.failed, counts.refused, counts.rotations
        );
        counts.reasons.iter().for_each(|(why, times)| println!("    {times} times: {why}"));
        println!(
            "longest time without a delivery {:.0} ms; all together within {:.0} ms of a start",
            ms(seen.gap),
            ms(seen.together)
        );
        println!("nothing acknowledged was lost; {searched} bytes of the relay hold no name, topic or payload");
        Ok(ExitCode::SUCCESS)
    }

    /// How many bytes of the relay were searched in the end.
    fn kill(&self, members: &mut Members, seen: &mut Seen) -> Result<u64, Failure> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.seed);
        let bar = progress(u64::from(self.plan.kills), self.plan.no_progress || self.plan.json);
        while seen.kills < self.plan.kills {
            let (directory, broker) = (below(&mut rng, 3) == 0, below(&mut rng, 4) == 0);
            let victims =
                if (directory || broker) && below(&mut rng, 2) == 0 { vec![] } else { some(&mut rng, MEMBERS, 2) };
            members.pass(below_ms(&mut rng, UP_MS))?;
            members.longest_gap();
            members.rotate(below(&mut rng, MEMBERS))?;
            members.pass(below_ms(&mut rng, BETWEEN_MS))?;
            let servers = members.servers().ok_or("they are at a relay")?;
            if directory {
                servers.kill_directory();
            }
            if broker {
                servers.kill_broker();
            }
            for victim in &victims {
                members.pass(below_ms(&mut rng, BETWEEN_MS))?;
                members.kill(*victim)?;
            }
            members.pass(below_ms(&mut rng, DOWN_MS))?;
            let servers = members.servers().ok_or("they are at a relay")?;
            servers.start_broker()?;
            servers.start_directory()?;
            for victim in &victims {
                members.restart(*victim)?;
            }
            seen.together = seen.together.max(members.together()?);
            seen.gap = seen.gap.max(members.longest_gap());
            seen.kills += 1;
            seen.members += u32::try_from(victims.len()).expect("they are few");
            seen.directories += u32::from(directory);
            seen.brokers += u32::from(broker);
            members.ledger.next_turn();
            members.ledger.check()?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        members.halt()?;
        members.ledger.check_all()?;
        let servers = members.servers().ok_or("they are at a relay")?;
        servers.kill_directory();
        search(&servers.data())
    }
}

/// Searches what a relay keeps for what it must not know.
///
/// # Errors
/// What it found.
fn search(folder: &Path) -> Result<u64, Failure> {
    let payload = [FILL; 24];
    let words: [&[u8]; 4] = [b"robot0", b"lab CA", TOPIC.as_bytes(), &payload];
    let mut searched = 0;
    for path in files(folder)? {
        let bytes = fs::read(&path)?;
        searched += bytes.len() as u64;
        for word in words {
            if bytes.windows(word.len()).any(|it| it == word) {
                let word = String::from_utf8_lossy(word);
                return Err(format!("the relay knows {word:?}: {}", path.display()).into());
            }
        }
    }
    Ok(searched)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => all.extend(files(&path)?),
            false => all.push(path),
        }
    }
    Ok(all)
}

/// How long all are up between two kills, how long after a change of key and after each other processes are killed, and how
/// long they are away, at most.
const UP_MS: u64 = 400;
const BETWEEN_MS: u64 = 100;
const DOWN_MS: u64 = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_relay_must_not_know_is_found_where_it_is() {
        let folder = tempfile::tempdir().expect("there is room");
        fs::create_dir(folder.path().join("deep")).expect("there is room");
        fs::write(folder.path().join("deep/it"), b"\0\x01sealed").expect("there is room");
        assert_eq!(search(folder.path()).expect("it knows nothing"), 8);
        for word in [&b"robot0"[..], TOPIC.as_bytes(), &[FILL; 30]] {
            fs::write(folder.path().join("deep/it"), [b"\0\x01", word, b"\xff"].concat()).expect("there is room");
            assert!(search(folder.path()).is_err());
        }
    }
}
