//! `sealcast lab sync`: how a fresh broker comes by the history of the others.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, ValueEnum};

use crate::Failure;
use crate::brokers::beside;

/// Measure how a fresh broker comes by the history of the others
///
/// Four brokers order publications of 1 KB until there are --size of them; then one of them loses its folder, all but its
/// key, and comes back. Printed are the time until it has executed what the others have, and the memory that it took.
/// What is kept in the end is compared with another broker's.
#[derive(Debug, Args)]
pub struct Sync {
    /// What comes back
    what: What,
    /// How much is published before: a number with kB, MB or GB
    #[arg(long, default_value = "64MB")]
    size: String,
    /// How far back the brokers keep publications, as '2d' or '1024 blocks': the fresh one then begins with a snapshot
    #[arg(long, value_name = "HOW FAR")]
    keep: Option<String>,
    /// A folder for the brokers' folders, removed at the end
    #[arg(long, value_name = "FOLDER")]
    within: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// No progress on stderr
    #[arg(long)]
    no_progress: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// One of four brokers
    Brokers,
}

impl Sync {
    /// Runs it.
    ///
    /// # Errors
    /// A program that it needs is not built, or cannot be started.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let What::Brokers = self.what;
        beside("sealcast-broker")?;
        let mut command = Command::new(beside("fresh-broker")?);
        // It ends with this process, however that one ends, and its brokers with it.
        command.arg("--size").arg(&self.size).arg("--until-stdin-closes").stdin(Stdio::piped());
        self.keep.iter().for_each(|keep| _ = command.arg("--keep").arg(keep));
        self.within.iter().for_each(|folder| _ = command.arg("--within").arg(folder));
        command.args(self.json.then_some("--json")).args(self.no_progress.then_some("--no-progress"));
        let mut child = command.spawn()?;
        // `wait` would close it.
        let stdin = child.stdin.take();
        let ended = child.wait()?;
        drop(stdin);
        Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
