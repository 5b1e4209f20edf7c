//! Sending at a rate: bursts, one per tick, as the C peer does it line for line.

use std::io;
use std::time::{Duration, Instant};

/// Processor time of this process, as the kernel accounts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// In our own code.
    pub user: Duration,
    /// In the kernel on our behalf.
    pub system: Duration,
}

impl Cpu {
    /// Of this process since it began; resolution is that of `/proc`, 10 ms.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn now() -> io::Result<Cpu> {
        Cpu::of("self")
    }

    /// The same of a process that runs.
    ///
    /// # Errors
    /// If it does not run, or `/proc` cannot be read.
    pub fn of(process: impl std::fmt::Display) -> io::Result<Cpu> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        Ok(Cpu { user: Duration::from_millis(ticks(11) * 10), system: Duration::from_millis(ticks(12) * 10) })
    }

    /// What was used since `before`.
    pub fn since(self, before: Cpu) -> Cpu {
        Cpu { user: self.user.saturating_sub(before.user), system: self.system.saturating_sub(before.system) }
    }
}

/// How fast and how long to send.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Messages per second; 0 means as fast as sending returns.
    pub rate: f64,
    /// For how long.
    pub window: Duration,
}

impl Pace {
    /// Calls `send` with 0, 1, … at the pace; how often it was called, and the time that took.
    ///
    /// # Errors
    /// The first error of `send`.
    pub fn run<E>(self, mut send: impl FnMut(u64) -> Result<(), E>) -> Result<(u64, Duration), E> {
        let start = Instant::now();
        let (mut sent, mut tick) = (0u64, Duration::ZERO);
        loop {
            let now = start.elapsed();
            if now >= self.window {
                return Ok((sent, start.elapsed()));
            }
            let due = if self.rate > 0.0 { (now.as_secs_f64() * self.rate) as u64 + 1 } else { sent + 64 };
            while sent < due {
                send(sent)?;
                sent += 1;
                if sent.is_multiple_of(64) && start.elapsed() >= self.window {
                    break;
                }
            }
            if self.rate > 0.0 {
                tick += TICK;
                let now = start.elapsed();
                if tick > now { std::thread::sleep(tick - now) } else { tick = now }
            }
        }
    }
}

/// Messages are sent in bursts, one per tick.
const TICK: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_sends_what_its_rate_and_window_say() {
        let pace = Pace { rate: 10_000.0, window: Duration::from_millis(50) };
        let mut numbers = Vec::new();
        let (sent, took) = pace
            .run(|n| {
                numbers.push(n);
                Ok::<_, ()>(())
            })
            .expect("nothing fails");
        assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
        assert!(sent as f64 <= took.as_secs_f64() * 10_000.0 + 1.0, "never faster than the rate");
    }

    #[test]
    fn used_processor_time_is_seen() {
        let before = Cpu::now().expect("/proc is there");
        let start = Instant::now();
        while Cpu::now().expect("/proc is there").since(before).user + Cpu::now().expect("/proc").since(before).system
            < Duration::from_millis(20)
        {
            assert!(start.elapsed() < Duration::from_secs(30), "processor time does not advance");
        }
    }
}
