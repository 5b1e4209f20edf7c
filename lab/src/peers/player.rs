//! A started process that answers each line with a line.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One process of a measurement. Dropped, the process is ended.
#[derive(Debug)]
pub struct Player {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    called: String,
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
        Ok(Player { child, stdin, stdout, called })
    }

    /// The process's next line, without its end.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err(io::Error::other(format!("ended early: {}", self.called)));
        }
        Ok(line.trim_end().to_string())
    }

    /// Waits until it says `ready`.
    ///
    /// # Errors
    /// If it says something else, or ends.
    pub fn ready(&mut self) -> io::Result<()> {
        match self.hear()?.as_str() {
            "ready" => Ok(()),
            other => Err(io::Error::other(format!("not ready but {other:?}: {}", self.called))),
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
        numbers.try_into().map_err(|_| io::Error::other(format!("{line:?} answered by {answer:?}: {}", self.called)))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
