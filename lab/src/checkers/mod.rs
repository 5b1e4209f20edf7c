//! What must hold in every run, whatever happens: small observers of a whole group, fed with every
//! event as it happens, by the simulator or by real processes.
//!
//! Each of them has a planted fault, a test in which it must report.

mod agreement;
mod authentic;
mod blame;
mod duplicates;
mod exclusion;
mod forward;
pub mod loss;
mod numbers;
mod order;
mod secrecy;

pub mod body;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sealcast::group::{Epoch, Origin};
use sealcast_keys::Misbehaviour;
use sealcast_wire::{CertHash, EpochId, MemberId, Monotonic, View};

pub use agreement::Agreement;
pub use authentic::Authentic;
pub use blame::Blame;
pub use body::Body;
pub use duplicates::Duplicates;
pub use exclusion::Exclusions;
pub use forward::Forward;
pub use loss::Loss;
pub use numbers::Numbers;
pub use order::OneOrder;
pub use secrecy::Secrecy;

/// Something that happened at a node, as checkers see it.
#[derive(Clone)]
pub enum Event {
    /// A process started.
    Started,
    /// The node's program is not ours: it misbehaves.
    Changed,
    /// The node names somebody whom it leaves out.
    LeftOut(CertHash, Misbehaviour),
    /// The process ended, by a crash or on purpose.
    Stopped,
    /// A change of view is coming.
    Prepared(View),
    /// It will not come.
    Abandoned,
    /// A view is installed; with its keys, where they can be had (not from a process of its own).
    Installed(Arc<View>, Option<Arc<Epoch>>),
    /// The node is out.
    Excluded,
    /// A message was taken for publishing.
    Published {
        /// Its topic.
        topic: Arc<str>,
        /// Its payload.
        body: Arc<[u8]>,
    },
    /// A datagram was opened by somebody who kept keys that it should not use any more.
    Read(Body, EpochId),
    /// A message came.
    Delivered {
        /// Its number: its place in the order, where there is one.
        sequence: u64,
        /// Its topic.
        topic: Arc<str>,
        /// Its payload.
        body: Arc<[u8]>,
        /// Who sent it, as the message says.
        origin: Origin,
        /// The epoch that it was sealed in.
        epoch: Option<EpochId>,
    },
}

/// A property of a run.
pub trait Checker {
    /// Its name in reports.
    fn name(&self) -> &'static str;
    /// A datagram left a node.
    fn sent(&mut self, _at: Monotonic, _from: usize, _datagram: &[u8]) -> Verdict {
        Ok(())
    }
    /// Something happened at a node.
    fn event(&mut self, at: Monotonic, node: usize, event: &Event, cast: &Cast) -> Verdict;
    /// The run is over.
    fn end(&mut self) -> Verdict {
        Ok(())
    }
}

/// `Err` says what is wrong.
pub type Verdict = Result<(), String>;

/// Who plays whom: certificates by node.
#[derive(Clone, Debug, Default)]
pub struct Cast {
    nodes: BTreeMap<CertHash, usize>,
}

impl Cast {
    /// The certificates of nodes 0, 1, ….
    pub fn new(certs: impl IntoIterator<Item = CertHash>) -> Cast {
        Cast { nodes: certs.into_iter().enumerate().map(|(node, cert)| (cert, node)).collect() }
    }

    /// The node of a certificate.
    pub fn node(&self, cert: &CertHash) -> Option<usize> {
        self.nodes.get(cert).copied()
    }

    /// The nodes of a view.
    pub fn nodes_of(&self, view: &View) -> Vec<usize> {
        view.members.iter().filter_map(|m| self.node(&m.id.cert)).collect()
    }
}

/// A property did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, on the run's clock.
    pub at: Monotonic,
    /// Which checker says so.
    pub checker: &'static str,
    /// What it says.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms  {}: {}", self.at.micros() as f64 / 1e3, self.checker, self.what)
    }
}

/// A set of checkers and what they found.
pub struct Panel {
    cast: Cast,
    checkers: Vec<Box<dyn Checker>>,
    violations: Vec<Violation>,
}

impl Panel {
    /// These checkers over this cast.
    pub fn new(cast: Cast, checkers: Vec<Box<dyn Checker>>) -> Panel {
        Panel { cast, checkers, violations: Vec::new() }
    }

    /// A datagram left a node.
    pub fn sent(&mut self, at: Monotonic, from: usize, datagram: &[u8]) {
        self.each(at, |checker, _| checker.sent(at, from, datagram));
    }

    /// Something happened at a node.
    pub fn event(&mut self, at: Monotonic, node: usize, event: &Event) {
        self.each(at, |checker, cast| checker.event(at, node, event, cast));
    }

    /// The run is over.
    pub fn end(&mut self, at: Monotonic) {
        self.each(at, |checker, _| checker.end());
    }

    /// Reports what the run itself found.
    pub fn report(&mut self, at: Monotonic, checker: &'static str, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { at, checker, what });
        }
    }

    /// What was found so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    fn each(&mut self, at: Monotonic, mut ask: impl FnMut(&mut dyn Checker, &Cast) -> Verdict) {
        for checker in &mut self.checkers {
            if let Err(what) = ask(&mut **checker, &self.cast)
                && self.violations.len() < VIOLATIONS_MAX
            {
                self.violations.push(Violation { at, checker: checker.name(), what });
            }
        }
    }
}

/// The origin of a message as a member id, if it names one.
fn member_of(origin: &Origin) -> Option<MemberId> {
    match origin {
        Origin::Signed(m) | Origin::Claimed(m) => Some(m.id),
        Origin::Client(_) | Origin::Anonymous => None,
    }
}

/// Violations kept; the first ones tell the story.
const VIOLATIONS_MAX: usize = 100;

#[cfg(test)]
mod planted;
