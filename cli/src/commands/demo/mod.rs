//! `sealcast demo`: the whole system in a temporary folder on this machine, told step by step.

mod attend;
mod brokers;
mod conference;
mod eavesdropper;
mod lan;
mod member;
mod participant;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use sealcast::code::Code;
use serde_json::json;

use super::Env;
use crate::hint::Failure;
use crate::text::duration;

/// See it work: robots and an eavesdropper on a LAN, a conference, or hospitals and their brokers
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
