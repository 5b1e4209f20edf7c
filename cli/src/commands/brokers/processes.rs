//! The program `sealcast-broker`, found beside this one: run in its place, or started and stopped. For demonstrations, a
//! broker's place can be taken by one that lies.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sealcast::code::Code;
use sealcast::config::FileError;
use serde_json::Value;

use crate::beside::{self, missing, program};
use crate::hint::Failure;

/// Brokers of one folder. Those that were started here are stopped when this is dropped.
pub(super) struct Processes(Vec<Process>);

struct Process {
    number: usize,
    folder: PathBuf,
    /// `None` for a broker that somebody else started.
    child: Option<Child>,
    /// How long its log was before this process.
    logged: u64,
    ended: bool,
}

/// A broker that runs no longer.
pub(super) struct Ended {
    pub(super) number: usize,
    pub(super) folder: PathBuf,
    /// Predicate of a sentence about it: `was killed by SIGKILL`.
    pub(super) how: String,
}

/// Becomes the broker.
pub(super) fn run(folder: &Path, arguments: &[String]) -> Result<(), Failure> {
    Err(missing(NAME, &command(BROKER, folder).args(arguments).exec()))
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
            all.0.push(Process::start(BROKER, number, folder)?);
        }
        Ok(all)
    }

    /// The same, but for those that run already: they are watched, and not stopped.
    pub(super) fn start_missing(folders: &[PathBuf]) -> Result<Processes, Failure> {
        let mut all = Processes(Vec::new());
        for (number, folder) in folders.iter().enumerate() {
            all.0.push(match is_locked(folder) {
                true => Process { number, folder: folder.clone(), child: None, logged: 0, ended: false },
                false => Process::start(BROKER, number, folder)?,
            });
        }
        Ok(all)
    }

    /// Kills one with SIGKILL, as a crash does.
    pub(super) fn kill(&mut self, number: usize) -> Result<(), Failure> {
        let it = &mut self.0[number];
        if let Some(child) = &mut it.child {
            child.kill().and_then(|()| child.wait()).map_err(|e| Failure::system(NAME, &e))?;
        }
        it.ended = true;
        Ok(())
    }

    /// Starts one again that has ended.
    pub(super) fn restart(&mut self, number: usize, folder: &Path) -> Result<(), Failure> {
        self.0[number] = Process::start(BROKER, number, folder)?;
        Ok(())
    }

    /// Ends one, and lets a program that lies take its place.
    pub(super) fn corrupt(&mut self, number: usize, folder: &Path) -> Result<(), Failure> {
        self.0[number].ask_to_end();
        self.0[number].end(Instant::now() + STOP_TIMEOUT);
        self.0[number] = Process::start(LIAR, number, folder)?;
        Ok(())
    }

    /// The processes' ids, by the brokers' numbers, of brokers that were all started here.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.0.iter().filter_map(|it| it.child.as_ref()).map(Child::id).collect()
    }

    /// Those that have ended since the last call.
    pub(super) fn ended(&mut self) -> Vec<Ended> {
        self.0.iter_mut().filter_map(Process::ended).collect()
    }

    /// Those that had ended and that somebody has started again since the last call, by number.
    pub(super) fn returned(&mut self) -> Vec<usize> {
        let mut returned = Vec::new();
        for it in self.0.iter_mut().filter(|it| it.ended && is_locked(&it.folder)) {
            (it.child, it.ended) = (None, false);
            returned.push(it.number);
        }
        returned
    }

    /// How many run, whoever started them.
    pub(super) fn running(&self) -> usize {
        self.0.iter().filter(|it| !it.ended).count()
    }

    /// How many run that were started here.
    pub(super) fn own(&self) -> usize {
        self.0.iter().filter(|it| !it.ended && it.child.is_some()).count()
    }

    /// Asks all that were started here to end, and waits; whoever does not within `timeout` is killed. Whether all ended
    /// by themselves.
    pub(super) fn stop(&mut self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        self.0.iter().for_each(Process::ask_to_end);
        // All of them, not only those up to the first that was killed.
        self.0.iter_mut().filter_map(|it| (!it.end(until)).then_some(())).count() == 0
    }
}

impl Process {
    fn start(program: Runs, number: usize, folder: &Path) -> Result<Process, Failure> {
        let path = folder.join(LOG);
        let log = File::options().create(true).append(true).open(&path);
        let log = log.map_err(|e| FileError::io(&path, e))?;
        let logged = log.metadata().map_err(|e| FileError::io(&path, e))?.len();
        let both = log.try_clone().map_err(|e| FileError::io(&path, e))?;
        let mut command = command(program, folder);
        // Ctrl-C is meant for us: we tell them. If we are killed, the pipe closes, and they end too.
        command.arg("--until-stdin-closes").stdin(Stdio::piped()).stdout(log).stderr(both).process_group(0);
        let child = Some(command.spawn().map_err(|e| missing(program.name, &e))?);
        Ok(Process { number, folder: folder.to_path_buf(), child, logged, ended: false })
    }

    /// How it has ended, if it has since the last call.
    fn ended(&mut self) -> Option<Ended> {
        if self.ended {
            return None;
        }
        let how = match &mut self.child {
            Some(child) => {
                let status = child.try_wait().ok().flatten()?;
                how(status, || last_line(&self.folder.join(LOG), self.logged))
            }
            None if is_locked(&self.folder) => return None,
            None => "has ended; it was not started here".to_owned(),
        };
        self.ended = true;
        Some(Ended { number: self.number, folder: self.folder.clone(), how })
    }

    fn ask_to_end(&self) {
        let child = self.child.as_ref().filter(|_| !self.ended);
        if let Some(pid) = child.and_then(|it| Pid::from_raw(i32::try_from(it.id()).ok()?)) {
            // It may have ended in this instant.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for its end, and kills it if that does not come in time; whether it came.
    fn end(&mut self, until: Instant) -> bool {
        let Some(child) = self.child.as_mut().filter(|_| !self.ended) else { return true };
        let mut by_itself = true;
        while by_itself && child.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > until {
                by_itself = false;
                let _ = child.kill();
                let _ = child.wait();
            } else {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.ended = true;
        by_itself
    }
}

/// Whether a broker runs in a folder: it holds the folder's lock.
///
/// For an instant this holds the lock itself where nobody else does, so do not ask often while somebody may start one.
fn is_locked(folder: &Path) -> bool {
    let lock = File::options().write(true).open(folder.join(LOCK));
    lock.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// What became of a process. A killed one had no time to say why, so that its log has nothing about it.
fn how(status: ExitStatus, last: impl Fn() -> Option<String>) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("was killed by {name}"),
            None => format!("was killed by signal {signal}"),
        },
        (None, Some(0)) => "has ended because somebody asked it to".to_owned(),
        (None, code) => {
            let code = code.map_or_else(|| "without an exit code".to_owned(), |it| format!("with exit code {it}"));
            let said = last().map_or_else(String::new, |it| format!(": {it}"));
            format!("has ended {code}{said}")
        }
    }
}

/// The last line of a log behind its first `from` bytes, without its time.
fn last_line(log: &Path, from: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let begin = from.max(file.metadata().ok()?.len().saturating_sub(LAST_BYTES));
    file.seek(SeekFrom::Start(begin)).ok()?;
    let mut bytes = Vec::new();
    file.take(LAST_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rfind(|it| !it.trim().is_empty())?;
    let is_time = |word: &str| word.ends_with('Z') && word.starts_with(|c: char| c.is_ascii_digit());
    Some(match line.split_once(' ') {
        Some((time, rest)) if is_time(time) => rest.to_owned(),
        _ => line.to_owned(),
    })
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.stop(STOP_TIMEOUT);
    }
}

/// A program that runs the broker of a folder, and the word by which it does.
#[derive(Clone, Copy)]
struct Runs {
    name: &'static str,
    verb: &'static str,
}

fn command(runs: Runs, folder: &Path) -> Command {
    let mut command = Command::new(program(runs.name));
    command.arg(runs.verb).arg(folder);
    command
}

const NAME: &str = beside::BROKER;
const BROKER: Runs = Runs { name: NAME, verb: "run" };
/// Its log, in its folder.
const LOG: &str = "log";
/// As in `sealcast_brokerd::config`: held while a broker runs.
const LOCK: &str = "lock";
/// Of a log, as much as is looked at for its last line.
const LAST_BYTES: u64 = 16 << 10;
/// How it ends if a proof convicts nobody.
const CONVICTS_NOBODY: i32 = 6;
/// It is not installed, and never started but by [`Processes::corrupt`].
const LIAR: Runs = Runs { name: "broker-testing", verb: "lie" };
/// How long brokers may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_broker_is_not_said_to_have_died_of_its_last_line() {
        let last = || Some("info: the threshold key was made".to_owned());
        assert_eq!(how(ExitStatus::from_raw(9), last), "was killed by SIGKILL");
        assert_eq!(how(ExitStatus::from_raw(11), last), "was killed by SIGSEGV");
        assert_eq!(how(ExitStatus::from_raw(0), last), "has ended because somebody asked it to");
        let said = || Some("error[E0101]: the disk is full".to_owned());
        assert_eq!(
            how(ExitStatus::from_raw(1 << 8), said),
            "has ended with exit code 1: error[E0101]: the disk is full"
        );
        assert_eq!(how(ExitStatus::from_raw(3 << 8), || None), "has ended with exit code 3");
    }

    #[test]
    fn the_last_line_of_a_log_is_one_of_this_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let before = "2026-11-23T17:02:21.896Z info: of an earlier run\n";
        std::fs::write(&log, before).expect("it is written");
        assert_eq!(last_line(&log, before.len() as u64), None);
        assert_eq!(last_line(&log, 0).as_deref(), Some("info: of an earlier run"));
        std::fs::write(&log, format!("{before}thread panicked\n\n")).expect("it is written");
        assert_eq!(last_line(&log, before.len() as u64).as_deref(), Some("thread panicked"));
        std::fs::remove_file(&log).expect("it was there");
        assert_eq!(last_line(&log, 0), None);
    }
}
