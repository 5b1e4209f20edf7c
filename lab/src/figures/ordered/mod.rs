//! Groups with a channel that loses nothing: throughput, latency, loss, failover, keys from a centre.
//!
//! The network is a bridge of namespaces with an MTU of 1,500. `sealcast bench` makes the load; where a process must crash,
//! the lab's own roles are the members.
//!
//! | file | rows |
//! |---|---|
//! | `throughput` | ratios of two kinds of messages; a row is an entry of its table |
//! | `latency` | time to acknowledgement ÷ a round trip |
//! | `failover` | a crashed sequencer or leader; a partition that heals |
//! | `members` | a group of sessions in this process: changes of key, idle members |
//! | `links` | a slow receiver, a bottleneck |
//! | `peers` | beside JGroups, Aeron and NORM |
//! | `center` | a key distribution centre's rate and memory |
//! | `lossy` | many receivers that lose much, simulated |
//! | `rekey` | joins and leaves a second in large groups |

mod center;
mod failover;
mod latency;
mod links;
mod lossy;
mod members;
mod peers;
mod rekey;
mod throughput;

use std::process::Command;

use crate::Failure;
use crate::brokers::beside;
use crate::netns::Bridge;

pub(super) use center::{CENTER, center};
pub(super) use failover::{CRASHES, MERGE, crashes, merge};
pub(super) use latency::{LATENCY, latency};
pub(super) use links::{BOTTLENECK, SLOW, bottleneck, slow};
pub(super) use lossy::{LOSSY, lossy};
pub(super) use members::{CHURN, CPU, IDLE, SUSPICIONS, churn, cpu, idle, suspicions};
pub(super) use peers::{CHANGES, PEERS, changes, peers};
pub(super) use rekey::{REKEY_200, REKEY_350, REKEY_1000, rekey_200, rekey_350, rekey_1000};
pub(super) use throughput::{LOSS, MEMORY, THROUGHPUT, loss, memory, throughput};

/// `sealcast bench` with its members on a bridge, one in each namespace.
fn bench(bridge: &Bridge, measurement: &str) -> Result<Command, Failure> {
    let namespaces: Vec<String> = (0..bridge.len()).map(|i| bridge.namespace(i).display().to_string()).collect();
    let mut command = bridge.command(0, beside("sealcast")?);
    command.args(["--json", "--no-progress", "bench", measurement, "--namespaces", &namespaces.join(",")]);
    Ok(command)
}

/// Rows that a quick run leaves out unless they are asked for.
pub(super) const ONLY_IN_FULL: &[&str] = &[
    "ord-jgroups",
    "ord-aeron",
    "ord-norm",
    "ord-join",
    "ord-lead",
    "ord-rekey-350",
    "ord-rekey-1000",
    "ord-slow-wait",
    "ord-slow-expel",
    "ord-bottleneck-use",
    "ord-bottleneck-share",
    "ord-cpu-64",
    "ord-suspicions",
];

/// A sender and three receivers.
const MEMBERS: usize = 4;
/// How this area is called.
const AREA: &str = "ordered";
