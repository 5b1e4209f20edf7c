//! What is measured between processes: a round trip, and a flow without loss.

use std::time::Duration;

use crate::Failure;
use crate::peers::{Field, Path, Player, Side, side};

/// Two processes: one pings, one echoes.
#[derive(Debug)]
pub struct Pair {
    ping: Player,
    _echo: Player,
}

/// Round trips of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrip {
    /// The middle one, microseconds.
    pub p50: f64,
    /// One in a hundred is longer, microseconds.
    pub p99: f64,
    /// How many did not come back.
    pub lost: u64,
}

impl Pair {
    /// Starts both.
    ///
    /// # Errors
    /// If they cannot be started.
    pub fn start(field: &Field, side: Side, path: Path) -> Result<Pair, Failure> {
        let mut players = field.start(side, path, &["echo", "ping"])?;
        let ping = players.pop().expect("two were started");
        let echo = players.pop().expect("two were started");
        Ok(Pair { ping, _echo: echo })
    }

    /// `count` round trips of `size` bytes, one outstanding, after a warm-up of a tenth.
    ///
    /// # Errors
    /// If a process has ended.
    pub fn round_trip(&mut self, size: usize, count: usize) -> Result<RoundTrip, Failure> {
        let [_, lost, p50, p99] = self.ping.ask_numbers(&format!("{size} {count} {}", count / 10 + 10))?;
        Ok(RoundTrip { p50: p50 as f64 / 1000.0, p99: p99 as f64 / 1000.0, lost })
    }
}

/// A sending process and receiving ones.
#[derive(Debug)]
pub struct Flow {
    sender: Player,
    receivers: Vec<Player>,
}

/// What came of sending at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Messages per second that really were sent.
    pub sent_rate: f64,
    /// Messages per second at the slowest receiver.
    pub received_rate: f64,
    /// Share of the sent that the worst receiver got.
    pub delivered: f64,
    /// The sender's own processor time per message, nanoseconds.
    pub user_nanos: f64,
    /// The kernel's for the sender, nanoseconds.
    pub system_nanos: f64,
}

impl Flow {
    /// Starts all.
    ///
    /// # Errors
    /// If they cannot be started.
    pub fn start(field: &Field, side: Side, path: Path, receivers: usize) -> Result<Flow, Failure> {
        let roles: Vec<&str> = std::iter::once("send").chain(std::iter::repeat_n("receive", receivers)).collect();
        let mut players = field.start(side, path, &roles)?;
        let receivers = players.split_off(1);
        Ok(Flow { sender: players.pop().expect("the sender was started"), receivers })
    }

    /// The same of members `robot0`, `robot1`, …, whose identities are in this home; the first one sends.
    ///
    /// # Errors
    /// If they cannot be started.
    pub fn of(home: &std::path::Path, url: &str, guarantee: &str, members: usize) -> Result<Flow, Failure> {
        let mut players = Vec::new();
        for i in 0..members {
            let mut command = side::command(if i == 0 { "send" } else { "receive" }, url, None, i)?;
            command.arg("--home").arg(home).args(["--identity", &format!("robot{i}")]);
            command.args(["--members", &members.to_string(), "--guarantee", guarantee]);
            players.push(Player::start(&mut command)?);
            // Many who start at once keep each other from coming together.
            if (i + 1) % AT_ONCE == 0 {
                std::thread::sleep(APART);
            }
        }
        players.iter().try_for_each(Player::ready)?;
        let receivers = players.split_off(1);
        Ok(Flow { sender: players.pop().expect("the sender was started"), receivers })
    }

    /// Sends messages of `size` bytes at `rate` (0: as fast as it goes) for `window`.
    ///
    /// # Errors
    /// If a process has ended.
    pub fn point(&mut self, size: usize, rate: f64, window: Duration) -> Result<Point, Failure> {
        self.take()?;
        let [sent, nanos, user, system] =
            self.sender.ask_numbers(&format!("{size} {rate:.0} {}", window.as_millis()))?;
        std::thread::sleep(DRAIN);
        let worst = self.take()?;
        let (sent, seconds) = (sent as f64, nanos as f64 / 1e9);
        Ok(Point {
            sent_rate: sent / seconds,
            received_rate: worst / seconds,
            delivered: worst / sent,
            user_nanos: user as f64 / sent,
            system_nanos: system as f64 / sent,
        })
    }

    /// The highest rate found at which less than 0.1 % is lost and the pace is kept, messages per second:
    /// doubling from `from`, then bisection down to 8 %. A rate fails if it fails twice.
    ///
    /// # Errors
    /// If a process has ended.
    pub fn lossless(&mut self, size: usize, from: f64, window: Duration) -> Result<f64, Failure> {
        let mut good = |rate: f64| -> Result<Option<f64>, Failure> {
            for _ in 0..2 {
                let p = self.point(size, rate, window)?;
                if p.delivered > DELIVERED && p.sent_rate > PACE_KEPT * rate {
                    return Ok(Some(p.sent_rate));
                }
            }
            Ok(None)
        };
        let (mut best, mut rate) = (0.0, from);
        while rate > 100.0 {
            match good(rate)? {
                Some(sent) => (best, rate) = (sent, rate * 2.0),
                None if best > 0.0 => break,
                None => rate /= 4.0,
            }
        }
        let mut failed = rate;
        while best > 0.0 && failed > best * 1.08 {
            let rate = (best + failed) / 2.0;
            match good(rate)? {
                Some(sent) => best = sent.max(best * 1.01),
                None => failed = rate,
            }
        }
        Ok(best)
    }

    fn take(&mut self) -> Result<f64, Failure> {
        let mut worst = u64::MAX;
        for r in &mut self.receivers {
            let [messages, ..] = r.ask_numbers::<4>("take")?;
            worst = worst.min(messages);
        }
        Ok(worst as f64)
    }
}

/// Who start together, and how long the next wait.
const AT_ONCE: usize = 8;
const APART: Duration = Duration::from_secs(1);
/// More than this share must arrive.
const DELIVERED: f64 = 0.999;
/// More than this share of the rate must really have been sent.
const PACE_KEPT: f64 = 0.93;
/// What is on its way arrives within this.
const DRAIN: Duration = Duration::from_millis(60);
