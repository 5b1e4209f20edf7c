//! Brokers, measured by `sealcast bench brokers` beside the ordering engine alone, in turn. All processes share this
//! machine's cores: four brokers, publisher and subscriber.

mod faults;
mod flood;
mod ordered;
mod sealed;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Failure;
use crate::brokers::beside;

pub(super) use faults::{FAULTS, faults};
pub(super) use flood::{FLOODS, floods};
pub(super) use ordered::{LATENCY, ORDERED, latency, ordered};
pub(super) use sealed::{READS, SEALED, reads, sealed};

/// `sealcast bench brokers` with these options.
pub(crate) fn brokered(folder: &Path, seconds: u64, options: &[&str]) -> Result<Value, Failure> {
    let mut command = Command::new(beside("sealcast")?);
    command.args(["--json", "--no-progress", "bench", "brokers", "--time", &format!("{seconds}s")]);
    run(command.arg("--within").arg(folder).args(options))
}

fn engine(folder: &Path, options: &[&str]) -> Result<Value, Failure> {
    let folder = folder.join(format!("sealcast-engine-{}", std::process::id()));
    let mut command = Command::new(beside("broker-testing")?);
    run(command.args(["bench-engine", "--json", "--folder"]).arg(folder).args(options))
}

/// The object that a program prints.
pub(super) fn run(command: &mut Command) -> Result<Value, Failure> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, said.trim()).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn rate(object: &Value) -> Result<f64, Failure> {
    number(object, "publications_per_second")
}

pub(crate) fn number(object: &Value, name: &str) -> Result<f64, Failure> {
    object[name].as_f64().ok_or_else(|| format!("there is no '{name}' in {object}").into())
}

/// Where files go to a disk, unless TMPDIR says otherwise.
pub(crate) fn disk() -> PathBuf {
    std::env::temp_dir()
}

const MEMORY: &str = "/dev/shm";
