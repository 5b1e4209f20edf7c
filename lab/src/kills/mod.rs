//! `sealcast lab kills`: processes are killed again and again (`kill -9`) under load and started again, and nothing that was
//! acknowledged may be lost.
//!
//! | file | what |
//! |---|---|
//! | `ordered` | members of a group with one order over multicast, on a loopback of their own |
//! | `relay` | members of a group of `keys=mls` at a relay, its directory and its MQTT broker |
//! | `members` | the members' processes |
//! | `publisher` | what each of these processes does |
//! | `ledger` | what they told, and what must hold of it |
//! | `../brokers/kills` | brokers, with publishers and subscribers that stay |

mod ledger;
mod members;
mod ordered;
pub(crate) mod publisher;
mod relay;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use rand_chacha::ChaCha8Rng;
use rand_core::Rng as _;

use crate::Failure;
use crate::brokers::kills::Brokers;
use ordered::Ordered;
use relay::Relay;

/// Kill processes again and again under load, and see that nothing is lost
#[derive(Args, Clone, Debug)]
#[command(disable_help_subcommand = true)]
pub struct Kills {
    #[command(subcommand)]
    whom: Whom,
}

#[derive(Clone, Debug, Subcommand)]
enum Whom {
    /// Brokers: up to f at once, and now and then all
    Brokers(Brokers),
    /// Members of a group with one order over multicast: one or two of five at once
    Ordered(Ordered),
    /// A relay, and members of a group there: one or two of five at once, its directory, its MQTT broker
    Relay(Relay),
}

impl Kills {
    /// Runs it.
    ///
    /// # Errors
    /// What did not hold, and what shows it again.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        match &self.whom {
            Whom::Brokers(brokers) => brokers.run(),
            Whom::Ordered(ordered) => ordered.run(),
            Whom::Relay(relay) => relay.run(),
        }
    }
}

/// What both take.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// How often some of them are killed
    #[arg(long, default_value_t = 200)]
    pub(crate) kills: u32,
    /// Whom, and when
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,
}

impl Plan {
    /// Why it ended before its last kill: somebody interrupted it, or something did not hold.
    fn ended(&self, end: &AtomicBool, kills: u32, why: &Failure) -> Failure {
        match end.load(Ordering::Acquire) {
            true => format!("ended after {kills} kills; nothing is left of the processes").into(),
            false => format!("after {kills} kills (seed {}): {why}", self.seed).into(),
        }
    }
}

/// One to `most` of `n`.
pub(crate) fn some(rng: &mut ChaCha8Rng, n: usize, most: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..n).collect();
    let wanted = 1 + below(rng, most.max(1));
    (0..wanted).map(|_| all.swap_remove(below(rng, all.len()))).collect()
}

/// A number below a bound.
pub(crate) fn below(rng: &mut ChaCha8Rng, bound: usize) -> usize {
    // The bias is far below what anybody could see in a few hundred draws.
    (rng.next_u64() % bound as u64) as usize
}

/// A time below so many milliseconds.
pub(crate) fn below_ms(rng: &mut ChaCha8Rng, most_ms: u64) -> Duration {
    Duration::from_millis(rng.next_u64() % most_ms)
}

/// Beyond this something is wrong.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
