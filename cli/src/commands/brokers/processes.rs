//! The program `sealcast-broker`, found beside this one: run in its place, or started and stopped. For demonstrations, a
//! broker's place can be taken by one that lies.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sealcast::code::Code;
use sealcast::config::{FileError, Home};
use serde_json::Value;

use crate::hint::Failure;

/// Brokers of one folder, stopped when dropped.
pub(super) struct Processes(Vec<Process>);

struct Process {
    number: usize,
    child: Child,
    log: PathBuf,
    ended: bool,
}

/// Becomes the broker.
pub(super) fn run(folder: &Path, arguments: &[String]) -> Result<(), Failure> {
    Err(missing(NAME, &command(NAME, folder).args(arguments).exec()))
}

/// Lets the broker's program deal a threshold key to the brokers of a folder.
pub(super) fn deal(folder: &Path, n: usize) -> Result<(), Failure> {
    let folders: Vec<PathBuf> = super::init::folders(folder, n)?;
    let mut command = Command::new(program(NAME));
    command.arg("deal").args(folders).stdin(Stdio::null());
    let output = command.output().map_err(|e| missing(NAME, &e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("it said nothing").to_owned();
    Err(Failure::new(Code::System, format!("{NAME} deal: {last}")))
}

/// Lets the broker's program check a proof that brokers keep: what it says of whom it convicts, `None` if it convicts nobody.
pub(super) fn convicts(proof: &str, cluster: &Path) -> Result<Option<Value>, Failure> {
    let mut command = Command::new(program(NAME));
    command.args(["evidence", "verify", "-", "--cluster"]).arg(cluster);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| missing(NAME, &e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // It takes no more than a proof has; whatever is longer is none.
        let _ = stdin.write_all(proof.as_bytes());
    }
    let output = child.wait_with_output().map_err(|e| Failure::system(NAME, &e))?;
    match output.status.code() {
        Some(0) => Ok(serde_json::from_slice(&output.stdout).ok()),
        Some(CONVICTS_NOBODY) => Ok(None),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("it said nothing").to_owned();
            Err(Failure::new(Code::System, format!("{NAME} evidence verify: {last}")))
        }
    }
}

impl Processes {
    /// Starts them; each writes to the file `log` of its folder.
    pub(super) fn start(folders: &[PathBuf]) -> Result<Processes, Failure> {
        let mut all = Processes(Vec::new());
        for (number, folder) in folders.iter().enumerate() {
            all.0.push(Process::start(NAME, number, folder)?);
        }
        Ok(all)
    }

    /// Kills one with SIGKILL, as a crash does.
    pub(super) fn kill(&mut self, number: usize) -> Result<(), Failure> {
        let it = &mut self.0[number];
        it.child.kill().and_then(|()| it.child.wait()).map_err(|e| Failure::system(NAME, &e))?;
        it.ended = true;
        Ok(())
    }

    /// Starts one again that has ended.
    pub(super) fn restart(&mut self, number: usize, folder: &Path) -> Result<(), Failure> {
        self.0[number] = Process::start(NAME, number, folder)?;
        Ok(())
    }

    /// Ends one, and lets a program that lies take its place.
    pub(super) fn corrupt(&mut self, number: usize, folder: &Path) -> Result<(), Failure> {
        self.0[number].ask_to_end();
        self.0[number].end(Instant::now() + STOP_PATIENCE);
        self.0[number] = Process::start(LIAR, number, folder)?;
        Ok(())
    }

    /// The processes' ids, by the brokers' numbers.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.0.iter().map(|it| it.child.id()).collect()
    }

    /// Those that have ended since the last call: number, and the last line of their log.
    pub(super) fn ended(&mut self) -> Vec<(usize, String)> {
        let mut ended = Vec::new();
        for it in self.0.iter_mut().filter(|it| !it.ended) {
            if let Ok(Some(status)) = it.child.try_wait() {
                it.ended = true;
                let said = std::fs::read_to_string(&it.log).unwrap_or_default();
                let last = said.lines().last().map_or_else(|| status.to_string(), str::to_owned);
                ended.push((it.number, format!("{last}   ({})", Home::shown(&it.log))));
            }
        }
        ended
    }

    /// How many run.
    pub(super) fn running(&self) -> usize {
        self.0.iter().filter(|it| !it.ended).count()
    }

    /// Asks all to end, and waits; whoever does not within `patience` is killed. Whether all ended by themselves.
    pub(super) fn stop(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        self.0.iter().for_each(Process::ask_to_end);
        // All of them, not only those up to the first that was killed.
        self.0.iter_mut().filter_map(|it| (!it.end(until)).then_some(())).count() == 0
    }
}

impl Process {
    fn start(program: &str, number: usize, folder: &Path) -> Result<Process, Failure> {
        let path = folder.join("log");
        let log = File::options().create(true).append(true).open(&path);
        let log = log.map_err(|e| FileError::io(&path, e))?;
        let both = log.try_clone().map_err(|e| FileError::io(&path, e))?;
        let mut command = command(program, folder);
        // Ctrl-C is meant for us: we tell them. If we are killed, the pipe closes, and they end too.
        command.arg("--until-stdin-closes").stdin(Stdio::piped()).stdout(log).stderr(both).process_group(0);
        let child = command.spawn().map_err(|e| missing(program, &e))?;
        Ok(Process { number, child, log: path, ended: false })
    }

    fn ask_to_end(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).filter(|_| !self.ended) {
            // It may have ended in this instant.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for its end, and kills it if that does not come in time; whether it came.
    fn end(&mut self, until: Instant) -> bool {
        let mut by_itself = true;
        while by_itself && !self.ended && self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > until {
                by_itself = false;
                let _ = self.child.kill();
                let _ = self.child.wait();
            } else {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.ended = true;
        by_itself
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.stop(STOP_PATIENCE);
    }
}

fn command(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(program(name));
    command.arg("run").arg(folder);
    command
}

fn program(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|me| Some(me.parent()?.join(name)));
    beside.filter(|p| p.is_file()).unwrap_or_else(|| PathBuf::from(OsStr::new(name)))
}

fn missing(name: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(Code::Missing, format!("{name} is neither beside this program nor on the PATH"))
                .hint("cargo install --path brokerd   (cargo build -p sealcast-brokerd beside a build of this program)")
        }
        _ => Failure::system(name, error),
    }
}

const NAME: &str = "sealcast-broker";
/// How it ends if a proof convicts nobody.
const CONVICTS_NOBODY: i32 = 6;
/// Of the same package, and never started but by [`Processes::corrupt`].
const LIAR: &str = "lying-broker";
/// How long brokers may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
