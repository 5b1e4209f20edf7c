//! Simulator, checkers, misbehaving members, experiments and plots; nobody imports this crate.

pub mod brokers;
pub mod checkers;
pub mod experiments;
pub mod figures;
pub mod history;
pub mod hostile;
pub mod kills;
pub mod member;
pub mod misbehaviour;
pub mod mocks;
pub mod netns;
pub mod peers;
pub mod plots;
pub mod scenarios;
pub(crate) mod sockets;
pub mod tap;

/// Why an experiment could not be run; a person reads it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Says on stderr, and in the file that `make test` names, that a test was skipped, and why.
pub fn skipped(test: &str, why: &str) {
    use std::io::Write as _;
    eprintln!("skipped {test}: {why}");
    if let Some(path) = std::env::var_os("SEALCAST_SKIPPED") {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let _ = log.and_then(|mut f| writeln!(f, "{test}: {why}"));
    }
}
