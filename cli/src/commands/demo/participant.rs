//! A participant of the conference as the demonstration sees it: a process, and all that it told so far.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::attend::{Figures, Seen};
use super::{program, starting};
use crate::hint::Failure;

/// A process that attends. Dropped, it is ended.
pub(super) struct Participant {
    pub(super) name: &'static str,
    child: Child,
    stdin: ChildStdin,
    seen: Arc<Mutex<Record>>,
    reader: Option<JoinHandle<()>>,
}

/// What a participant told.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The epoch's number and how many members it has.
    pub(super) view: Option<(u32, usize)>,
    /// Who orders.
    pub(super) sequencer: Option<String>,
    /// The shared state, in the order in which it was delivered.
    pub(super) log: Vec<String>,
    pub(super) acknowledged: Vec<String>,
    /// Entries of its own that may have no position, with the reasons.
    pub(super) unacknowledged: Vec<(String, String)>,
    /// Whether entries never came here that others have.
    pub(super) has_gap: bool,
    /// When the last entry came, and the longest time between two of them.
    last: Option<Instant>,
    pub(super) pause: Duration,
    figures: Option<Figures>,
}

impl Participant {
    /// Starts the process of a name, which has a principal's file in this home.
    pub(super) fn start(home: &str, url: &str, name: &'static str) -> Result<Participant, Failure> {
        let mut command = program(home, &["demo", "conference", "--participant", name, "--url", url, "--json"])?;
        // Ctrl-C is meant for us: this process ends with its stdin. What goes wrong there is read here.
        command.stdin(Stdio::piped()).stderr(Stdio::inherit()).process_group(0);
        let mut child = command.spawn().map_err(starting)?;
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let seen = Arc::<Mutex<Record>>::default();
        let into = seen.clone();
        let reader = std::thread::spawn(move || {
            let told = stdout.lines().map_while(Result::ok);
            told.filter_map(|line| serde_json::from_str(&line).ok()).for_each(|it| lock(&into).note(it));
        });
        Ok(Participant { name, child, stdin, seen, reader: Some(reader) })
    }

    /// What it told so far.
    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.seen)
    }

    /// Tells it to begin or to end with what it sends.
    pub(super) fn tell(&mut self, command: &str) -> Result<(), Failure> {
        writeln!(self.stdin, "{command}")
            .map_err(|e| Failure::system(format!("telling {} to {command}", self.name), &e))
    }

    /// Asks for its figures, which come once all that it was told before is done.
    pub(super) fn ask_figures(&mut self) -> Result<(), Failure> {
        self.record().figures = None;
        self.tell("figures")
    }

    /// The figures that it was asked for, once they have come.
    pub(super) fn figures(&self) -> Option<Figures> {
        self.record().figures.clone()
    }

    /// Kills it with SIGKILL, as a crash does; what it had told by then is noted.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill().and_then(|()| self.child.wait()).map_err(|e| Failure::system(self.name, &e))?;
        // A panic in it was reported when it happened.
        let _ = self.reader.take().map(JoinHandle::join);
        Ok(())
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Record {
    fn note(&mut self, seen: Seen) {
        match seen {
            Seen::View(epoch, members) => self.view = Some((epoch, members)),
            Seen::Sequencer(name) => self.sequencer = name,
            Seen::Entry(entry) => {
                let now = Instant::now();
                self.pause = self.pause.max(self.last.replace(now).map_or(Duration::ZERO, |last| now - last));
                self.log.push(entry);
            }
            Seen::Acknowledged(entry) => self.acknowledged.push(entry),
            Seen::Unacknowledged(entry, why) => self.unacknowledged.push((entry, why)),
            Seen::Gap => self.has_gap = true,
            Seen::Figures(figures) => self.figures = Some(figures),
        }
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
