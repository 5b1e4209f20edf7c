//! `sealcast demo`: the whole system in a temporary folder on this machine, told step by step.

mod attend;
mod brokers;
mod conference;
mod eavesdropper;
mod lan;
mod local_relay;
mod member;
mod observer;
mod participant;
mod relay;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use sealcast::code::Code;
use serde_json::json;

use super::Env;
use crate::hint::Failure;
use crate::text::duration;

/// See it work: robots and an eavesdropper on a LAN, a conference, a desk at a relay, or hospitals and their brokers
#[derive(Debug, Args)]
#[command(after_help = "\
lan   three robots agree on keys by UDP multicast, send poses and a camera frame; an eavesdropper
      sees ciphertext, outsiders get nothing, an evicted robot reads nothing any more.
      Under 30 seconds.
conference
      five people with keys from a key distribution centre: cameras go best effort, raised hands,
      slides and chat in one order; who hands out the keys is killed in the middle of it, and
      nothing that was acknowledged is lost.
      Under 30 seconds.
relay
      five traders meet at Mosquitto and sealcast-relay, which none of them trusts. An observer of
      everything there sees ciphertext; one comes in by its own commit, one is evicted; the relay
      is killed; one was away for ten epochs; the relay goes on with an old copy of its log, and is
      convicted.
      Under 60 seconds.
brokers
      two hospitals and an insurer exchange records through four brokers that none of them trusts:
      one order, no word on any broker's disk, each record read only by whom its policy allows; a
      broker is killed and catches up, another one lies and is convicted, a reader is revoked.
      Under 60 seconds.

Everything happens in a temporary folder and on this machine's loopback; nothing stays behind.
The exit code is 0 only if every claim held.")]
pub(crate) struct Demo {
    /// Which one
    #[arg(default_value = "lan")]
    which: Which,
    /// Be the process of one of the conference's participants
    #[arg(long, hide = true, value_name = "NAME")]
    participant: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    Lan,
    Conference,
    Relay,
    Brokers,
}

impl Demo {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        if let Some(name) = &self.participant {
            return attend::run(env, name);
        }
        let done = match self.which {
            Which::Lan => lan::run(env),
            Which::Conference => conference::run(env),
            Which::Relay => relay::run(env),
            Which::Brokers => brokers::run(env),
        };
        // The user who interrupted it knows why a claim did not hold.
        done.map_err(|why| if crate::interrupt::asked() { Failure::said(130) } else { why })
    }
}

/// Tells one claim after the other, and how each ended.
struct Teller<'a> {
    env: &'a Env<'a>,
    start: Instant,
    step: usize,
}

impl<'a> Teller<'a> {
    fn new(env: &'a Env<'a>) -> Teller<'a> {
        Teller { env, start: Instant::now(), step: 0 }
    }

    /// One line for a claim that held, or the error about one that did not.
    fn tell(&mut self, outcome: Result<String, Failure>) -> Result<(), Failure> {
        if crate::interrupt::asked() {
            return Err(Failure::said(130));
        }
        self.step += 1;
        let (holds, text) = match &outcome {
            Ok(text) => (true, text.clone()),
            Err(failure) => (false, failure.what().to_owned()),
        };
        let ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let out = self.env.output;
        out.object(&json!({ "step": self.step, "holds": holds, "what": text, "at_ms": ms }))?;
        let mark = if holds { out.good("✓") } else { out.bad("✗") };
        out.line(format!("{:>2} {mark} {text}", self.step))?;
        outcome.map(|_| ())
    }

    fn end(&self) {
        self.env
            .output
            .say(format!("     every claim held, after {}; nothing stays behind", duration(self.start.elapsed())));
    }
}

/// A claim that did not hold.
fn broken(what: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Claim, what).hint("sealcast doctor")
}

/// Waits until something holds; false if it did not in time, or if the user wants to end.
fn holds_within(timeout: Duration, mut check: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if check() {
            return true;
        }
        if start.elapsed() > timeout || crate::interrupt::asked() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How much disk these folders take, if no file in them holds one of these texts.
fn without_words(folders: &[&Path], words: &[&str]) -> Result<u64, Failure> {
    let (mut bytes, mut folders) = (0, folders.iter().map(|it| it.to_path_buf()).collect::<Vec<_>>());
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| Failure::system(folder.display(), &e))?;
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(content) = std::fs::read(&path) {
                bytes += entry.metadata().map_or(0, |it| on_disk(&it));
                let holds = |text: &&&str| content.windows(text.len()).any(|window| window == text.as_bytes());
                if let Some(word) = words.iter().find(holds) {
                    return Err(broken(format!("'{word}' lies readable in {}", path.display())));
                }
            }
        }
    }
    Ok(bytes)
}

/// The bytes of disk that a file takes, as `du` counts them: programs reserve more than they write.
fn on_disk(file: &std::fs::Metadata) -> u64 {
    // Linux: `st_blocks` is in units of 512 bytes, whatever the file system's are.
    512 * file.blocks()
}

/// This program, with a home of its own.
fn program(home: &str, arguments: &[&str]) -> Result<Command, Failure> {
    let me = std::env::current_exe().map_err(|e| Failure::system("finding this program", &e))?;
    let mut command = Command::new(me);
    for variable in ["SEALCAST_URL", "SEALCAST_ID", "SEALCAST_CTX", "LCM_DEFAULT_URL"] {
        command.env_remove(variable);
    }
    command.args(arguments).env("SEALCAST_HOME", home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

fn starting(error: std::io::Error) -> Failure {
    Failure::system("running this program again", &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_only_reserves_takes_no_disk() {
        let path = std::env::temp_dir().join(format!("sealcast-on-disk-{}", std::process::id()));
        let file = std::fs::File::create(&path).expect("it is made");
        file.set_len(64 << 20).expect("it is sparse");
        let sparse = on_disk(&file.metadata().expect("it is there"));
        std::fs::write(&path, [7; 100_000]).expect("it is written");
        std::fs::File::open(&path).and_then(|it| it.sync_all()).expect("it is stored");
        let written = on_disk(&std::fs::metadata(&path).expect("it is there"));
        std::fs::remove_file(&path).expect("it was there");
        assert!(sparse < 1 << 20, "{sparse}");
        assert!((100_000..1 << 20).contains(&written), "{written}");
    }
}
