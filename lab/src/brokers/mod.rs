//! Real brokers on this machine: made by `sealcast brokers init`, run by `sealcast-broker`, loaded, killed and started
//! again.
//!
//! | file | what |
//! |---|---|
//! | `cluster` | their folders, processes and clients |
//! | `load` | two publishers at a rate, two subscribers that remember in which order everything came |
//! | `soak` | `sealcast lab soak brokers`: what age costs |
//! | `kills` | `sealcast lab kills brokers`: crash after crash under load, and what must hold all the time |

pub(crate) mod cluster;
pub(crate) mod kills;
pub(crate) mod load;
pub mod soak;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failure;

/// A program of this project, built where this one is.
pub(crate) fn beside(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let packages = "-p sealcast-cli -p sealcast-brokerd -p sealcast-brokerd-program -p sealcast-brokerd-testing";
    Err(format!("{} is not built: cargo build --release {packages}", path.display()).into())
}

/// Becomes true at SIGINT or SIGTERM; a second signal ends the process at once.
pub(crate) fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, end.clone())?;
        signal_hook::flag::register(signal, end.clone())?;
    }
    Ok(end)
}
