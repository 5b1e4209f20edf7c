//! A started process that answers each line with a line.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::peers::Cpu;
use crate::peers::identities::Identities;

/// One process of a measurement. Dropped, the process is ended.
#[derive(Debug)]
pub struct Player {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    called: String,
    /// What it reads from disk, which must not go before it.
    identities: Option<Arc<Identities>>,
}

impl Player {
    /// Starts `command`, without waiting for its first line.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Player> {
        let called = format!("{command:?}");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (say, lines) = mpsc::channel();
        // Ends with the process, or with whom it tells.
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| say.send(line)));
        Ok(Player { child, stdin, lines, called, identities: None })
    }

    /// The same process, which uses these identities as long as it lives.
    #[must_use]
    pub fn with(mut self, identities: Option<Arc<Identities>>) -> Player {
        self.identities = identities;
        self
    }

    /// The processor time that it has used.
    ///
    /// # Errors
    /// If it has ended.
    pub fn cpu(&self) -> io::Result<Cpu> {
        Cpu::of(self.child.id())
    }

    /// The process's next line.
    ///
    /// # Errors
    /// If the process has ended, or says nothing for too long.
    pub fn hear(&self) -> io::Result<String> {
        self.hear_for(TIMEOUT)?.ok_or_else(|| self.failed("says nothing"))
    }

    /// The process's next line, if it comes in time.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn hear_for(&self, wait: Duration) -> io::Result<Option<String>> {
        match self.lines.recv_timeout(wait) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.failed("ended early")),
        }
    }

    /// Waits until it says `ready`.
    ///
    /// # Errors
    /// If it says something else, or ends.
    pub fn ready(&self) -> io::Result<()> {
        match self.hear()?.as_str() {
            "ready" => Ok(()),
            other => Err(self.failed(&format!("is not ready but says {other:?}"))),
        }
    }

    /// Sends it a line.
    ///
    /// # Errors
    /// If it has ended.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().expect("open until dropped");
        writeln!(stdin, "{line}")?;
        stdin.flush()
    }

    /// Sends a line and reads the answer.
    ///
    /// # Errors
    /// If it has ended.
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        self.tell(line)?;
        self.hear()
    }

    /// Sends a line and reads `N` numbers.
    ///
    /// # Errors
    /// If it has ended, or answers something else.
    pub fn ask_numbers<const N: usize>(&mut self, line: &str) -> io::Result<[u64; N]> {
        let answer = self.ask(line)?;
        let numbers: Vec<u64> = answer.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        numbers.try_into().map_err(|_| self.failed(&format!("answers {line:?} by {answer:?}")))
    }

    /// Kills it with SIGKILL, as a crash does; what it had said by then is still heard.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn failed(&self, how: &str) -> io::Error {
        io::Error::other(format!("a process of the measurement {how}: {}", self.called))
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No step of a measurement takes longer than this.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_player_answers_and_is_gone_when_dropped() {
        let mut sh =
            Player::start(Command::new("sh").args(["-c", "echo ready; while read x; do echo $x 2; done"])).expect("sh");
        sh.ready().expect("it says so");
        assert_eq!(sh.ask_numbers::<2>("1").expect("an answer"), [1, 2]);
        assert_eq!(sh.hear_for(Duration::from_millis(1)).expect("it lives"), None);
        let id = sh.id();
        drop(sh);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }
}
