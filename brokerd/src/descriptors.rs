//! The file descriptors that a broker's process may open: what it needs, and how many clients fit beside that.
//!
//! Order, links and rows have their part, which no client can take: at the limit the gateway turns clients away.

use std::fmt;
use std::fs;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sealcast_wire::limits;

/// Raises the process's soft limit of open files to its hard limit. The order must not run out of files at the soft
/// limit, which is meant for programs that use `select`.
///
/// # Errors
/// The operating system refuses; the limits are as before.
pub fn raise() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(())
}

/// How many descriptors the process may open: its soft limit; `usize::MAX` if there is none.
pub fn allowed() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Whether the process, or the whole system, has no descriptor left.
pub fn are_used_up(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// How many connections the gateway lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Of registered clients.
    pub registered: usize,
    /// Of clients for whom nobody vouches, and of those that have not said yet who they are.
    pub unregistered: usize,
    /// Of other brokers.
    pub brokers: usize,
}

impl Connections {
    /// As many as a broker serves at most.
    pub const ALL: Connections = Connections {
        registered: limits::GATEWAY_REGISTERED_MAX,
        unregistered: limits::GATEWAY_UNREGISTERED_MAX,
        brokers: limits::BROKERS_MAX,
    };

    /// How many clients these are.
    pub fn clients(&self) -> usize {
        self.registered + self.unregistered
    }

    /// All of them.
    pub fn total(&self) -> usize {
        self.clients() + self.brokers
    }

    /// For so many clients: a fourth of them may be unregistered.
    fn of(clients: usize, brokers: usize) -> Connections {
        let unregistered = (clients / 4).clamp(1, limits::GATEWAY_UNREGISTERED_MAX);
        let registered = (clients - unregistered).min(limits::GATEWAY_REGISTERED_MAX);
        Connections { registered, unregistered, brokers }
    }
}

/// A broker's part of the process's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How many the process may open.
    pub allowed: usize,
    /// The connections that fit.
    pub connections: Connections,
}

/// Too few descriptors are allowed for a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFew {
    allowed: usize,
    brokers: usize,
}

impl Budget {
    /// For one of so many brokers whose process may open `allowed` descriptors.
    ///
    /// # Errors
    /// [`TooFew`]: not even [`limits::GATEWAY_CONNECTIONS_MIN`] clients fit.
    pub fn new(brokers: usize, allowed: usize) -> Result<Budget, TooFew> {
        let most = Connections::ALL.clients();
        match allowed.checked_sub(own(brokers)).map(|left| left.min(most)) {
            Some(clients) if clients >= limits::GATEWAY_CONNECTIONS_MIN => {
                Ok(Budget { allowed, connections: Connections::of(clients, brokers.saturating_sub(1)) })
            }
            _ => Err(TooFew { allowed, brokers }),
        }
    }

    /// What to tell the operator, if fewer clients fit than a broker could serve.
    pub fn shortage(&self) -> Option<String> {
        let (fit, most) = (self.connections.clients(), Connections::ALL.clients());
        let all = self.allowed + most - fit;
        (fit < most).then(|| {
            format!(
                "{} open files are allowed: at most {fit} clients can connect, not {most}; for all of them, type \
                 \"ulimit -n {all}\" before the start, or set LimitNOFILE={all} in its service",
                self.allowed
            )
        })
    }
}

impl TooFew {
    /// What to type.
    pub fn hint(&self) -> String {
        to_type(all(self.brokers))
    }
}

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = own(self.brokers) + limits::GATEWAY_CONNECTIONS_MIN;
        write!(
            f,
            "this broker needs at least {least} open files, and the operating system allows it {}: {} for the order, {} for \
             {} other brokers, {} for rows, {} in reserve, {} for clients",
            self.allowed,
            limits::ORDER_DESCRIPTORS,
            limits::BROKER_DESCRIPTORS * self.brokers.saturating_sub(1),
            self.brokers.saturating_sub(1),
            limits::STORE_FILES_OPEN,
            limits::RESERVED_DESCRIPTORS + limits::GATEWAY_CLOSING_MAX,
            limits::GATEWAY_CONNECTIONS_MIN,
        )
    }
}

/// How a process is allowed to open so many files.
pub fn to_type(files: usize) -> String {
    format!("ulimit -n {files}; in a systemd service: LimitNOFILE={files}")
}

/// What one of so many brokers needs with as many clients as it serves.
pub fn all(brokers: usize) -> usize {
    own(brokers) + Connections::ALL.clients()
}

/// What one of so many brokers needs, clients aside.
fn own(brokers: usize) -> usize {
    let links = limits::BROKER_DESCRIPTORS * brokers.saturating_sub(1);
    let reserved = limits::RESERVED_DESCRIPTORS + limits::GATEWAY_CLOSING_MAX;
    limits::ORDER_DESCRIPTORS + limits::STORE_FILES_OPEN + links + reserved
}

/// Counts the process's open descriptors, at most once a second whoever asks.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Option<(Instant, usize)>>);

impl Meter {
    /// How many are open, as of the last second; 0 where the system does not show them.
    pub fn used(&self) -> usize {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*counted {
            Some((at, used)) if at.elapsed() < COUNTED_EVERY => *used,
            _ => counted.insert((Instant::now(), count())).1,
        }
    }
}

fn count() -> usize {
    match fs::read_dir("/proc/self/fd") {
        // One of them is the folder's own.
        Ok(open) => open.count().saturating_sub(1),
        Err(e) if are_used_up(&e) => allowed(),
        Err(_) => 0,
    }
}

/// How long a count holds: with thousands of descriptors it takes a millisecond.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meter_counts_what_is_open_and_not_for_each_question() {
        let files: Vec<fs::File> = (0..50).map(|_| fs::File::open("/dev/null").expect("it is there")).collect();
        let meter = Meter::default();
        let used = meter.used();
        assert!((files.len()..=allowed()).contains(&used), "{used} of {}", allowed());
        *meter.0.lock().expect("nobody panicked") = Some((Instant::now(), 7));
        assert_eq!(meter.used(), 7, "it was counted just now");
    }

    #[test]
    fn clients_give_way_where_descriptors_are_few_and_the_brokers_own_never_do() {
        for brokers in [1, 4, 7, limits::BROKERS_MAX] {
            let plenty = Budget::new(brokers, 1 << 20).expect("all fit");
            assert_eq!(plenty.connections, Connections { brokers: brokers - 1, ..Connections::ALL });
            assert_eq!(plenty.shortage(), None);
            let least = own(brokers) + limits::GATEWAY_CONNECTIONS_MIN;
            for allowed in [least, least + 1, least + 100] {
                let few = Budget::new(brokers, allowed).expect("a few fit").connections;
                assert!(few.unregistered > 0 && few.registered > few.unregistered);
                assert_eq!(few.clients(), allowed - own(brokers));
            }
            let refused = Budget::new(brokers, least - 1).expect_err("too few fit");
            assert!(refused.to_string().contains(&format!("at least {least} open files")), "{refused}");
        }
        let soak = Budget::new(4, 256).expect("a few dozen fit");
        assert!(soak.connections.clients() >= 36, "{soak:?}");
        assert!(soak.shortage().is_some_and(|it| it.contains("LimitNOFILE=4")), "{:?}", soak.shortage());
    }
}
