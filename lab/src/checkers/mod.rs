//! What must hold in every run, whatever happens: small observers of a whole group, fed with every
//! event as it happens, by the simulator or by real processes.
//!
//! Each of them has a planted fault, a test in which it must report.

mod acknowledged;
mod agreement;
mod authentic;
mod blame;
mod causal;
mod duplicates;
mod exclusion;
mod fifo;
mod fork;
mod forward;
mod gapless;
mod leaders;
mod linearizable;
pub mod loss;
mod numbers;
mod order;
mod primary;
mod same_view;
mod secrecy;
mod states;

pub mod body;

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast::group::{Epoch, Origin};
use sealcast_keys::Misbehaviour;
pub use sealcast_sim::checker::{Checker, Verdict, Violation};
use sealcast_wire::{CertHash, EpochId, MemberId, View};

pub use acknowledged::Acknowledged;
pub use agreement::Agreement;
pub use authentic::Authentic;
pub use blame::Blame;
pub use body::Body;
pub use causal::Causal;
pub use duplicates::Duplicates;
pub use exclusion::Exclusions;
pub use fifo::Fifo;
pub use fork::ForkConsistency;
pub use forward::Forward;
pub use gapless::Gapless;
pub use leaders::Leaders;
pub use linearizable::Linearizable;
pub use loss::Loss;
pub use numbers::Numbers;
pub use order::OneOrder;
pub use primary::OnePrimary;
pub use same_view::SameView;
pub use secrecy::Secrecy;
pub use states::States;

/// Something that happened at a node, as checkers see it.
#[derive(Clone)]
pub enum Event {
    /// A process started.
    Started,
    /// The node's program is not ours: it misbehaves.
    Changed,
    /// The node names somebody whom it leaves out.
    LeftOut(CertHash, Misbehaviour),
    /// The node says that its relay misbehaves.
    Blames {
        /// The relay's node.
        relay: usize,
        /// Whether the evidence that it showed two logs holds, where there is some.
        proof: Option<bool>,
    },
    /// The process ended, by a crash or on purpose.
    Stopped,
    /// A change of view is coming.
    Prepared(View),
    /// It will not come.
    Abandoned,
    /// A key is agreed for an epoch that the node may install (not told by a process of its own).
    Keyed(EpochId),
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
    /// An ordered message of the node was acknowledged, at this position.
    Ordered(Body, u64),
    /// One may be delivered or not.
    Doubted(Body),
    /// The node says that it misses some of the order.
    Gap(u64),
    /// The node says who orders in the view that it is in; nobody, if that view does not order.
    Sequencer(Option<CertHash>),
    /// The node's state after the ordered message at this position: a hash of it.
    State(u64, [u8; 32]),
    /// A datagram was opened by somebody who kept keys that it should not use any more.
    Read(Body, EpochId),
    /// A message came.
    Delivered {
        /// Its number: its position in the order, where there is one.
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

/// The checkers of a run, and what they found.
pub type Panel = sealcast_sim::checker::Panel<Roles, Event>;

/// A property of a run of members.
pub type Property = dyn Checker<Roles, Event>;

/// Who plays whom: certificates by node.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    nodes: BTreeMap<CertHash, usize>,
}

impl Roles {
    /// The certificates of nodes 0, 1, ….
    pub fn new(certs: impl IntoIterator<Item = CertHash>) -> Roles {
        Roles { nodes: certs.into_iter().enumerate().map(|(node, cert)| (cert, node)).collect() }
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

/// The origin of a message as a member id, if it names one.
fn member_of(origin: &Origin) -> Option<MemberId> {
    match origin {
        Origin::Signed(m) | Origin::Claimed(m) => Some(m.id),
        _ => None,
    }
}

#[cfg(test)]
mod planted;
