//! Groups of `keys=mls`, beside OpenMLS 0.9 in the same run (`make peers`).
//!
//! | file | rows |
//! |---|---|
//! | `group` | what a commit, a Welcome and missed epochs cost a member of a large group |
//! | `engine` | the engine alone beside OpenMLS, in one group of 10,000 |
//! | `traffic` | what a member sends and receives in an idle hour, simulated |
//! | `relay` | an eviction at a relay |
//! | `brokers` | a change of key beside an ordered publication, over brokers |
//! | `fleet`, `timed`, `tree` | large groups, and members whose work is measured |

mod brokers;
mod engine;
mod fan_out;
mod fleet;
mod group;
mod relay;
mod timed;
mod traffic;
mod tree;

use std::fs;
use std::time::Duration;

use crate::Failure;

pub(super) use brokers::{BROKERS, brokers};
pub(super) use group::{GROUP, group};
pub(super) use relay::{RELAY, relay};
pub(super) use traffic::{TRAFFIC, traffic};

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// How many bytes this process grows by one of these, after others have filled what was free in it.
fn memory_of<T>(mut make: impl FnMut() -> Result<T, Failure>) -> Result<f64, Failure> {
    let own = std::process::id();
    let mut all = (0..COPIES).map(|_| make()).collect::<Result<Vec<T>, Failure>>()?;
    let before = resident_bytes(own)?;
    (0..COPIES).try_for_each(|_| make().map(|one| all.push(one)))?;
    let grown = resident_bytes(own)?.saturating_sub(before);
    Ok(grown as f64 / COPIES as f64)
}

/// The resident set of a process now.
fn resident_bytes(process: u32) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kilobytes.ok_or("the kernel does not say how much memory a process has")? * 1024)
}

const COPIES: usize = 16;
/// How this area is called.
const AREA: &str = "mls";
