//! Who plays: how the members of one scheme over one way are made.

use sealcast_keys::Command;
use sealcast_keys::contributory::misbehaving::Rule;
use sealcast_sim::{Birth, Node};
use sealcast_wire::{CertHash, Guarantee};

use crate::checkers::{Authentic, Property};
use crate::member::{MemberCommand, MemberEvent};
use crate::misbehaviour::Misbehaviour;

/// A node of any kind, as the simulation runs it.
pub type Player = Box<dyn Node<Event = MemberEvent, Command = MemberCommand>>;

/// One scheme over one way.
pub trait Fixture {
    /// The certificate hash of a member.
    fn cert(&self, member: usize) -> CertHash;

    /// A process of a member: its `life`-th, with this chance of its own.
    fn member(&self, member: usize, life: u32, seed: [u8; 32]) -> Birth<Player>;

    /// Orderers, brokers: nodes that come after the members, and whether they hear the group.
    fn helpers(&self) -> Vec<(bool, Birth<Player>)> {
        Vec::new()
    }

    /// Whether all sides of a partition hear the helpers.
    fn shares_helpers(&self) -> bool {
        false
    }

    /// Somebody who misbehaves; `None` where this fixture has no such role.
    fn actor(&self, _kind: Misbehaviour, _seed: [u8; 32]) -> Option<Birth<Player>> {
        None
    }

    /// A member whose program was changed; `None` where this fixture has no such role.
    fn imposter(&self, _member: usize, _kind: Misbehaviour, _seed: [u8; 32]) -> Option<Birth<Player>> {
        None
    }

    /// Whether a member may be the first of a view, which leads where somebody does.
    fn may_lead(&self, _member: usize) -> bool {
        true
    }

    /// Whether payloads must never be seen on the wire.
    fn seals(&self) -> bool {
        true
    }

    /// What must never be seen on the wire, beside payloads.
    fn secrets(&self) -> Vec<Vec<u8>> {
        vec![TOPIC.into()]
    }

    /// Whether members let others in by name.
    fn admits(&self) -> bool {
        false
    }

    /// Whether members know each other, and what they say is sealed and comes once.
    fn meets(&self) -> bool {
        true
    }

    /// Evicts a member.
    fn eviction(&self, whom: usize) -> Command {
        Command::Evict { cert: self.cert(whom), reason: "lost laptop".into() }
    }

    /// The same fixture for members that share nothing but a network; `None` where its ways need more
    /// than UDP multicast.
    fn apart(&self) -> Option<Box<dyn Fixture>> {
        None
    }

    /// The same fixture, of which nobody who behaves keeps these rules: a planted fault. `None` where it has no such.
    fn lacking(&self, _without: &'static [Rule]) -> Option<Box<dyn Fixture>> {
        None
    }

    /// Under which topics messages are published, in turn, and how strongly.
    fn channels(&self) -> &'static [(&'static str, Guarantee)] {
        &[(TOPIC, Guarantee::BestEffort)]
    }

    /// Whether members may be shown different orders.
    fn may_fork(&self) -> bool {
        false
    }

    /// Whether ordered messages reach all who see their senders, unless those are told otherwise.
    fn delivers_ordered(&self) -> bool {
        false
    }

    /// Whether members order, in primary views: what was ordered in one comes though others were shown meanwhile, and who misses
    /// some is told.
    fn orders_in_views(&self) -> bool {
        false
    }

    /// The checker of authorship.
    fn authentic(&self) -> Box<Property> {
        Box::<Authentic>::default()
    }
}

/// The topic of test traffic: a word that stands nowhere else.
pub const TOPIC: &str = "zanzibar/pose";
/// The topic of what is published fifo, where best effort flows beside it.
pub const TOPIC_FIFO: &str = "zanzibar/fifo";
/// The topic of what is ordered, where best effort flows beside it.
pub const TOPIC_ORDERED: &str = "zanzibar/order";
/// The topic of ordered test traffic that all members hold before it is delivered.
pub const TOPIC_SAFE: &str = "zanzibar/safe";
