//! Our own roles: one process each, driven by lines on stdin.
//!
//! `echo`, `ping`, `send`, `receive` and `talk` are those of `lab/peers/lcm_peer.c`, line for line; so is
//! what each does in its hot loop, as far as the two libraries let it. `member` belongs to the groups whose
//! formation and changes are measured.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use sealcast::config::Home;
use sealcast::{Session, SlowReader, ViewEvent};

use crate::Failure;
use crate::peers::{Cpu, Pace};

/// One process of a measurement, driven by lines on stdin
#[derive(Debug, Args)]
pub struct Role {
    /// What it does
    role: Kind,
    /// Where
    url: String,
    /// The name of its identity
    #[arg(long, requires = "home")]
    identity: Option<String>,
    /// Where that is
    #[arg(long)]
    home: Option<PathBuf>,
    /// How many members the group must have before it is ready
    #[arg(long, default_value_t = 1)]
    members: usize,
    /// With what it sends: all but best effort lose nothing
    #[arg(long, default_value = "best-effort")]
    guarantee: Sent,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sent {
    BestEffort,
    Fifo,
    Ordered,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Echo,
    Ping,
    Send,
    Receive,
    Talk,
    Member,
    Insider,
    Publisher,
}

impl Role {
    /// Plays the role until stdin ends.
    ///
    /// # Errors
    /// If the session cannot be opened, or ends.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        match self.role {
            Kind::Echo => self.echo()?,
            Kind::Ping => self.ping()?,
            Kind::Send => self.send()?,
            Kind::Receive => self.receive()?,
            Kind::Talk => self.talk()?,
            Kind::Member => self.member()?,
            Kind::Insider => self.insider()?,
            Kind::Publisher => crate::kills::publisher::run(&self.open()?)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Somebody who misbehaves, at the address that the URL is here.
    fn insider(&self) -> Result<(), Failure> {
        let home = self.home.as_deref().ok_or("it needs --home")?;
        let number = self.identity.as_deref().and_then(|name| name.strip_prefix("robot"));
        super::insider::run(self.url.parse()?, home, number.ok_or("it needs --identity robotN")?.parse()?)
    }

    fn open(&self) -> Result<Session, Failure> {
        let opening = sealcast::open(&self.url);
        let opening = match (&self.home, &self.identity) {
            (Some(home), Some(name)) => opening.home(Home::at(home)).identity(&**name),
            _ => opening,
        };
        Ok(opening.wait()?)
    }

    /// A session whose group has all its members.
    fn complete(&self) -> Result<Session, Failure> {
        let session = self.open()?;
        let until = Instant::now() + FORMATION_MAX;
        while session.view().is_none_or(|v| v.members.len() < self.members) && self.members > 1 {
            if Instant::now() > until {
                return Err(format!("no group of {} formed", self.members).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(session)
    }

    fn echo(&self) -> Result<(), Failure> {
        let session = self.complete()?;
        let mut pings = session.subscribe("c1").capacity(UNLIMITED).when_slow(SlowReader::Block).wait()?;
        std::thread::spawn(|| {
            std::io::stdin().lines().for_each(drop);
            std::process::exit(0);
        });
        say("ready");
        loop {
            let message = pings.wait()?;
            session.publish("c2", message.payload()).wait()?;
        }
    }

    fn ping(&self) -> Result<(), Failure> {
        let session = self.complete()?;
        let mut echoes = session.subscribe("c2").capacity(UNLIMITED).when_slow(SlowReader::Block).wait()?;
        say("ready");
        let mut number = 0_u64;
        for line in std::io::stdin().lines() {
            let [size, count, warmup] = numbers(&line?)?;
            let mut message = vec![0; (size as usize).max(8)];
            let (mut took, mut lost) = (Vec::with_capacity(count as usize), 0);
            for i in 0..warmup + count {
                number += 1;
                message[..8].copy_from_slice(&number.to_le_bytes());
                let start = Instant::now();
                session.publish("c1", &message).wait()?;
                let came = loop {
                    match echoes.next_timeout(LOST)? {
                        Some(echo) if echo.payload()[..8] == number.to_le_bytes() => break true,
                        Some(_) => {}
                        None => break false,
                    }
                };
                let nanos = start.elapsed().as_nanos();
                match (i < warmup, came) {
                    (true, _) => {}
                    (false, true) => took.push(nanos),
                    (false, false) => lost += 1,
                }
            }
            took.sort_unstable();
            let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or(0);
            say(format!("{} {lost} {} {}", took.len(), at(50), at(99)));
        }
        Ok(())
    }

    fn send(&self) -> Result<(), Failure> {
        let session = self.complete()?;
        say("ready");
        for line in std::io::stdin().lines() {
            let [size, rate, millis] = numbers(&line?)?;
            let mut message = vec![0; size as usize];
            let pace = Pace { rate: rate as f64, window: Duration::from_millis(millis) };
            let before = Cpu::now()?;
            let (sent, took) = pace.run(|n| {
                if let Some(head) = message.get_mut(..8) {
                    head.copy_from_slice(&n.to_le_bytes());
                }
                let message = session.publish("t", &message);
                // As much is under way as the channel takes.
                match self.guarantee {
                    Sent::BestEffort => message.wait().map(drop),
                    Sent::Fifo => message.fifo().ticket().map(drop),
                    Sent::Ordered => message.ordered().ticket().map(drop),
                }
            })?;
            session.flush().wait()?;
            let used = Cpu::now()?.since(before);
            say(format!("{sent} {} {} {}", took.as_nanos(), used.user.as_nanos(), used.system.as_nanos()));
        }
        Ok(())
    }

    fn receive(&self) -> Result<(), Failure> {
        let session = self.complete()?;
        let mut messages = session.subscribe("t").capacity(UNLIMITED).when_slow(SlowReader::Block).wait()?;
        let counters: &[AtomicU64; 2] = Box::leak(Box::default());
        std::thread::spawn(move || {
            let (mut seen, mut before) = ([0; 2], Cpu::now().unwrap_or_default());
            for _ in std::io::stdin().lines() {
                let now = [0, 1].map(|i| counters[i].load(Ordering::Relaxed));
                let (cpu, had) = (Cpu::now().unwrap_or_default(), seen);
                let used = cpu.since(before);
                let (user, system) = (used.user.as_nanos(), used.system.as_nanos());
                say(format!("{} {} {user} {system}", now[0] - had[0], now[1] - had[1]));
                (seen, before) = (now, cpu);
            }
            std::process::exit(0);
        });
        say("ready");
        loop {
            let message = messages.wait()?;
            counters[0].fetch_add(1, Ordering::Relaxed);
            counters[1].fetch_add(message.payload().len() as u64, Ordering::Relaxed);
        }
    }

    fn talk(&self) -> Result<(), Failure> {
        let session = self.complete()?;
        say("ready");
        for line in std::io::stdin().lines() {
            let line = line?;
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["subscribe", regex] => {
                    let mut messages = session.subscribe(regex).regex().capacity(UNLIMITED).wait()?;
                    std::thread::spawn(move || {
                        while let Ok(m) = messages.wait() {
                            say(format!("got {} {} {:016x}", m.topic(), m.payload().len(), checksum(m.payload())));
                        }
                    });
                    say("ready");
                }
                ["publish", channel, length] => {
                    session.publish(channel, pattern(length.parse()?)).wait()?;
                }
                _ => return Err(format!("no command {line:?}").into()),
            }
        }
        Ok(())
    }

    /// ```text
    /// open                          -> opening NANOS, and then 'view NANOS EPOCH MEMBERS' for every view
    /// publish TOPIC SIZE RATE MILLIS -> sent N
    /// count TOPIC                   -> ready
    /// take                          -> got N, the different messages counted since the last one
    /// evict NAME | rotate           -> evicted|rotated NANOS TOOK_NANOS MEMBERS
    /// sequencer                     -> sequencer NAME, who orders; none if nobody does here
    /// first                         -> first NAME, the first member of the view
    /// order EVERY_MILLIS MILLIS     -> ordered and SENT:DELIVERED of all that was delivered meanwhile, in nanoseconds
    /// ```
    fn member(&self) -> Result<(), Failure> {
        let mut session = None;
        let counted = Arc::new(Mutex::new(BTreeSet::new()));
        say("ready");
        for line in std::io::stdin().lines() {
            let line = line?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match (&words[..], &session) {
                (["open"], None) => {
                    say(format!("opening {}", monotonic_nanos()));
                    let opened = self.open()?;
                    let mut views = opened.views();
                    std::thread::spawn(move || {
                        while let Some(event) = views.next_timeout(FOR_EVER) {
                            if let ViewEvent::Changed { view, .. } = event {
                                say(format!("view {} {:?} {}", monotonic_nanos(), view.epoch, view.members.len()));
                            }
                        }
                    });
                    session = Some(opened);
                }
                (["publish", topic, size, rate, millis], Some(session)) => {
                    let mut message = vec![0; size.parse::<usize>()?.max(8)];
                    let pace = Pace { rate: rate.parse()?, window: Duration::from_millis(millis.parse()?) };
                    let (sent, _) = pace.run(|n| {
                        message[..8].copy_from_slice(&n.to_le_bytes());
                        session.publish(topic, &message).wait().map(drop)
                    })?;
                    say(format!("sent {sent}"));
                }
                (["count", topic], Some(session)) => {
                    let mut messages = session.subscribe(topic).capacity(UNLIMITED).wait()?;
                    let counted = Arc::clone(&counted);
                    std::thread::spawn(move || {
                        while let Ok(m) = messages.wait() {
                            let number = m.payload().get(..8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
                            counted.lock().expect("no holder panics").insert(number);
                        }
                    });
                    say("ready");
                }
                (["take"], _) => {
                    let got = std::mem::take(&mut *counted.lock().expect("no holder panics"));
                    say(format!("got {}", got.len()));
                }
                (["evict", name], Some(session)) => {
                    let start = monotonic_nanos();
                    let changed = session.evict(*name, "measured").wait()?;
                    say(format!("evicted {start} {} {}", changed.elapsed.as_nanos(), changed.on_new_key));
                }
                (["rotate"], Some(session)) => {
                    let start = monotonic_nanos();
                    let changed = session.rotate().wait()?;
                    say(format!("rotated {start} {} {}", changed.elapsed.as_nanos(), changed.on_new_key));
                }
                (["sequencer"], Some(session)) => {
                    let who = session.info().order.flatten();
                    say(format!("sequencer {}", who.map(|it| it.name.to_string()).unwrap_or_default()));
                }
                (["first"], Some(session)) => {
                    let first = session.view().and_then(|view| Some(view.members.iter().next()?.name.to_string()));
                    say(format!("first {}", first.unwrap_or_default()));
                }
                (["order", every, millis], Some(session)) => {
                    let (every, lasts) =
                        (Duration::from_millis(every.parse()?), Duration::from_millis(millis.parse()?));
                    say(format!("ordered {}", order(session, every, lasts)?.join(" ")));
                }
                _ => return Err(format!("no command {line:?} now").into()),
            }
        }
        Ok(())
    }
}

/// Publishes ordered messages, one at each interval, and takes in everybody's: when each was sent and delivered.
fn order(session: &Session, every: Duration, lasts: Duration) -> Result<Vec<String>, Failure> {
    let mut messages = session.subscribe("order").capacity(UNLIMITED).wait()?;
    let end = Instant::now() + lasts;
    let publisher = session.clone();
    let publishing = std::thread::spawn(move || {
        while Instant::now() < end {
            let next = Instant::now() + every;
            // What comes to nothing is seen where it is not delivered.
            let _ = publisher.publish("order", monotonic_nanos().to_le_bytes()).ordered().ticket();
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    let mut seen = Vec::new();
    while Instant::now() < end {
        let Some(message) = messages.next_timeout(every)? else { continue };
        let Some(sent) = message.payload().first_chunk().copied().map(u64::from_le_bytes) else { continue };
        seen.push(format!("{sent}:{}", monotonic_nanos()));
    }
    publishing.join().map_err(|_| "the publisher panicked")?;
    Ok(seen)
}

/// The bytes that `talk` sends for a length; so do the peers.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| i % 65_536).map(|i| (i * 31 + (i >> 8) + length) as u8).collect()
}

/// FNV-1a, 64 bits, of every byte of a short message; of a long one every 61st, and the last.
fn checksum(bytes: &[u8]) -> u64 {
    let step = if bytes.len() <= 65_536 { 1 } else { 61 };
    let last = if step > 1 { bytes.last() } else { None };
    bytes
        .iter()
        .step_by(step)
        .chain(last)
        .fold(0xCBF2_9CE4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01B3))
}

fn numbers<const N: usize>(line: &str) -> Result<[u64; N], Failure> {
    let numbers: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|_| format!("{N} numbers are wanted, not {line:?}").into())
}

pub(crate) fn say(line: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    // Whoever drives us is gone if this fails, and stdin ends too.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// The program `sealcast-lab` itself, which plays these roles.
///
/// # Errors
/// If it cannot be found.
pub(super) fn program() -> Result<PathBuf, Failure> {
    match std::env::var_os("SEALCAST_LAB") {
        Some(path) => Ok(path.into()),
        None => Ok(std::env::current_exe()?),
    }
}

/// The monotonic clock, which all processes of a machine share.
pub(crate) fn monotonic_nanos() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Queues are not to lose anything: losses are the network's.
const UNLIMITED: usize = 1 << 22;
/// A round trip that takes longer is counted as lost.
const LOST: Duration = Duration::from_millis(500);
/// A group that has not formed by then is given up.
const FORMATION_MAX: Duration = Duration::from_secs(20);
/// Longer than any measurement.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
