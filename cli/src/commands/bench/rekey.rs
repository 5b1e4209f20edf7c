//! How often a group with keys from a centre changes its key: one member joins and leaves again and again, and each of both
//! counts once all members have installed its key. Beside it, what multicasts to as many sockets cost by themselves.

use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sealcast::Session;
use sealcast::code::Code;
use serde_json::json;

use super::plain::PlainSockets;
use super::{BenchSetup, median, stop_if_asked};
use crate::commands::Env;
use crate::hint::Failure;
use crate::scene::LCM_ADDRESS;
use crate::text::{duration, parse_duration, row, table, thousands};

/// See the module.
#[derive(Debug, Args)]
pub(super) struct Rekey {
    /// Members that stay in the group
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1000))]
    members: u16,
    /// Members that join and leave, each by itself; those of one time share a change of key
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    joiners: u16,
    /// How long one run takes
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,
    /// Runs; their medians are shown
    #[arg(long, default_value_t = 3, value_name = "N")]
    runs: usize,
    /// Further options of the URL, for example suite=chacha20poly1305
    #[arg(long, value_name = "OPTIONS")]
    options: Option<String>,
}

/// One run.
struct Measured {
    changes: f64,
    join_millis: f64,
    leave_millis: f64,
}

impl Rekey {
    pub(super) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let members = usize::from(self.members);
        env.output.say(format!(
            "{} members, {} that join and leave, keys from a centre, loopback multicast, {} × {}, medians, one process",
            members,
            self.joiners,
            self.runs,
            duration(self.time)
        ));
        raise_descriptors();
        let bar = env.output.progress(self.runs as u64 * 2 + 1, "rekey");
        let mut multicasts = self.plain(members)?;
        bar.inc(1);
        let mut options = self.options.clone().unwrap_or_default();
        if members > STARVED && !options.contains("detect=") {
            options = format!("detect={DETECT_STARVED}&{options}").trim_end_matches('&').to_owned();
        }
        let setup = BenchSetup::centered(members + JOINERS, Some(&options).filter(|it| !it.is_empty()))?;
        let (mut sessions, mut runs) = (vec![], vec![]);
        let measured = form(&setup, members, &mut sessions).and_then(|()| {
            (0..self.runs.max(1)).try_for_each(|_| {
                runs.push(self.measure(&setup, &sessions)?);
                bar.inc(1);
                Ok(())
            })
        });
        if let Err(why) = measured {
            // To leave a large group that is in trouble takes each member seconds: the process ends without that.
            std::mem::forget(sessions);
            return Err(why);
        }
        // All at once, as when the machine is turned off: one after the other each would cost the rest a key.
        std::thread::scope(|scope| sessions.into_iter().for_each(|it| _ = scope.spawn(move || it.close())));
        drop(setup);
        multicasts.extend(self.plain(members)?);
        bar.finish_and_clear();
        let of = |value: fn(&Measured) -> f64| median(runs.iter().map(value).collect());
        let (changes, join, leave) = (of(|m| m.changes), of(|m| m.join_millis), of(|m| m.leave_millis));
        let multicasts = median(multicasts);
        let ratio = changes / multicasts;
        env.output.object(&json!({
            "bench": "rekey", "members": members, "joiners": self.joiners, "seconds": self.time.as_secs_f64(),
            "runs": self.runs, "changes_per_second": changes, "multicasts_per_second": multicasts, "ratio": ratio,
            "join_ms": join, "leave_ms": leave,
        }))?;
        let rows = [
            row(["", "per second", "median ms", "ratio"]),
            vec![format!("multicasts of {SIZE} B, plain"), thousands(multicasts as u64), String::new(), String::new()],
            vec!["joins and leaves".into(), format!("{changes:.1}"), String::new(), format!("{ratio:.4}")],
            vec!["one joins, until all have its key".into(), String::new(), format!("{join:.1}"), String::new()],
            vec!["one leaves, until the others have".into(), String::new(), format!("{leave:.1}"), String::new()],
        ];
        env.output.line(table(&rows))
    }

    /// Multicasts a second to so many sockets, each run's.
    fn plain(&self, members: usize) -> Result<Vec<f64>, Failure> {
        let to = std::net::SocketAddrV4::new(LCM_ADDRESS, crate::scene::free_port()?);
        let sockets = PlainSockets::open(to, members)?;
        let lasts = self.time.min(PLAIN_MAX);
        (0..self.runs.max(1)).map(|_| sockets.measure(SIZE, lasts)).collect()
    }

    fn measure(&self, setup: &BenchSetup, sessions: &[Session]) -> Result<Measured, Failure> {
        let start = Instant::now();
        let (mut joins, mut leaves) = (vec![], vec![]);
        let mut next = 0;
        while start.elapsed() < self.time {
            stop_if_asked()?;
            let begun = Instant::now();
            let mut joined = vec![];
            for _ in 0..self.joiners {
                joined.push(setup.open(sessions.len() + next % JOINERS)?);
                next += 1;
            }
            installed(joined.iter().chain(sessions), sessions.len() + joined.len())?;
            joins.push(begun.elapsed().as_secs_f64() * 1e3);
            let begun = Instant::now();
            // Who leaves is done when it is told so; the others may have the next key before.
            std::thread::scope(|scope| {
                joined.into_iter().for_each(|it| _ = scope.spawn(move || it.close()));
                installed(sessions.iter(), sessions.len())?;
                leaves.push(begun.elapsed().as_secs_f64() * 1e3);
                Ok::<(), Failure>(())
            })?;
        }
        let changes = (joins.len() + leaves.len()) * usize::from(self.joiners);
        let changes = changes as f64 / start.elapsed().as_secs_f64();
        Ok(Measured { changes, join_millis: median(joins), leave_millis: median(leaves) })
    }
}

/// A group of so many: the first one forms it, and lets in the others some at a time.
fn form(setup: &BenchSetup, members: usize, sessions: &mut Vec<Session>) -> Result<(), Failure> {
    sessions.push(setup.open(0)?);
    installed(sessions.iter(), 1)?;
    while sessions.len() < members {
        stop_if_asked()?;
        for i in sessions.len()..members.min(sessions.len() + AT_ONCE) {
            sessions.push(setup.open(i)?);
        }
        installed(sessions.iter(), sessions.len())?;
    }
    Ok(())
}

/// Waits until each session has installed a view of this many members.
fn installed<'a>(sessions: impl Iterator<Item = &'a Session>, members: usize) -> Result<(), Failure> {
    let start = Instant::now();
    for (i, session) in sessions.enumerate() {
        while session.view().is_none_or(|view| view.members.len() != members) {
            stop_if_asked()?;
            if start.elapsed() > CHANGE_TIMEOUT {
                let size = session.view().map_or(0, |view| view.members.len());
                let what = format!("{i} have a view of {members} members, and {} one of {size}", session.info().me);
                return Err(Failure::new(Code::TimedOut, format!("{what} after {CHANGE_TIMEOUT:?}")));
            }
            std::thread::sleep(POLLED);
        }
    }
    Ok(())
}

/// Each member has some descriptors: as many may be open as the system lets this process have.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // With too few, opening a session says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Bytes of a plain multicast.
const SIZE: usize = 1_400;
/// Identities that take turns in joining: each is let in twice a second at most.
const JOINERS: usize = 24;
/// Members that join together while the group grows.
const AT_ONCE: usize = 12;
/// Of more threads than this a few cores let each run so seldom that it seems silent: `detect=` is longer then, as on a busy machine.
const STARVED: usize = 400;
const DETECT_STARVED: &str = "20s";
/// One run of plain multicasts takes no longer.
const PLAIN_MAX: Duration = Duration::from_secs(2);
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);
const POLLED: Duration = Duration::from_micros(50);
