//! What `group show` prints, and what experiments count.

use std::time::Duration;

use sealcast_crypto::aead::Suite;
use sealcast_crypto::hash::Transcript;
use sealcast_wire::{Drops, EpochId, Now};

use super::Contributory;
use super::message::Message;
use crate::status::{self, CompartmentStatus, MemberStatus};

/// One member's view of its group.
#[derive(Clone, Debug)]
pub struct Status {
    /// The group's name.
    pub group: String,
    /// The epoch in use; `None` before the first.
    pub epoch: Option<EpochId>,
    /// The version of the wire that it is of; 0 before the first.
    pub version: u8,
    /// How long it has been in use.
    pub age: Duration,
    /// When its key is replaced at latest.
    pub rotates_in: Duration,
    /// How datagrams are sealed.
    pub suite: Suite,
    /// By slot.
    pub members: Vec<MemberStatus>,
    /// Our slot.
    pub me: usize,
    /// By domain, from 1.
    pub compartments: Vec<CompartmentStatus>,
    /// Eviction statements known.
    pub evictions: usize,
    /// Number of the revocation list; 0 without one.
    pub crl_number: u64,
    /// Number of the policy; 0 without one.
    pub policy_number: u64,
    /// Number of the epoch that is being agreed and the attempt at it, if one is.
    pub attempt: Option<(u32, u8)>,
    /// Messages sent and received.
    pub counters: Counters,
    /// Messages dropped, by reason.
    pub drops: Drops,
}

/// Number of messages and their bytes, bootstrap encryption included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages received and well-formed.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

/// A tally per kind of message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// JOIN: asks to be let in.
    pub join: Tally,
    /// The response to JOINs: a proposal.
    pub response: Tally,
    /// Round 1.
    pub r1: Tally,
    /// Round 2.
    pub r2: Tally,
    /// Key confirmations.
    pub kc: Tally,
    /// What is held, so that the rest is sent again.
    pub status: Tally,
    /// Asks for cards and proposals.
    pub fetch: Tally,
    /// Cards and statements handed on.
    pub give: Tally,
    /// Signs of life of a group.
    pub beacon: Tally,
    /// Leaves, sender keys, lists of statements.
    pub other: Tally,
}

impl Tally {
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += 1;
        self.sent_bytes += bytes as u64;
    }

    pub(super) fn received(&mut self, bytes: usize) {
        self.received += 1;
        self.received_bytes += bytes as u64;
    }
}

impl Counters {
    /// Each kind's name with its tally.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Tally)> {
        [
            ("JOIN", self.join),
            ("RESPONSE", self.response),
            ("R1", self.r1),
            ("R2", self.r2),
            ("KC", self.kc),
            ("STATUS", self.status),
            ("FETCH", self.fetch),
            ("GIVE", self.give),
            ("BEACON", self.beacon),
            ("OTHER", self.other),
        ]
        .into_iter()
    }

    pub(super) fn of(&mut self, message: &Message) -> &mut Tally {
        match message {
            Message::Join(_) => &mut self.join,
            Message::Propose(_) => &mut self.response,
            Message::R1(_) => &mut self.r1,
            Message::R2(_) => &mut self.r2,
            Message::Kc(_) => &mut self.kc,
            Message::Status(_) => &mut self.status,
            Message::Fetch(_) => &mut self.fetch,
            Message::Give(_) => &mut self.give,
            Message::Beacon(_) => &mut self.beacon,
            Message::Leave(_) | Message::SenderKey(_) | Message::State(_) => &mut self.other,
        }
    }
}

pub(super) fn status(of: &Contributory, now: Now) -> Status {
    let installed = of.installed.as_ref();
    let (now, pace) = (of.config.slower(now), of.config.pace.get());
    let age = installed.map_or(Duration::ZERO, |i| now.monotonic.since(i.at));
    let members = installed.map_or(Vec::new(), |i| {
        let since = i.since.iter();
        let member = |(p, since): (&std::sync::Arc<super::people::Person>, &u32)| MemberStatus {
            id: p.id,
            name: p.cert.name.to_string(),
            serial: p.cert.serial,
            key: p.cert.key.clone(),
            sealing: p.cert.sealing,
            exchanges: false,
            rights: p.cert.rights.clone(),
            attributes: p.cert.attributes.clone(),
            not_after: p.cert.not_after.0,
            since: *since,
        };
        i.agreed.people.iter().zip(since).map(member).collect()
    });
    let compartments = installed.map_or(Vec::new(), |i| i.agreed.table.status());
    let summary = of.statements.summary();
    Status {
        group: of.group.to_string(),
        epoch: installed.map(|i| i.agreed.epoch),
        version: installed.map_or(0, |i| i.agreed.version),
        age: age * pace,
        rotates_in: of.config.rekey_after.saturating_sub(age) * pace,
        suite: of.config.suite,
        members,
        me: installed.map_or(0, |i| i.agreed.me.index()),
        compartments,
        evictions: of.statements.evictions().len(),
        crl_number: summary.crl,
        policy_number: summary.policy,
        attempt: of.attempt.as_ref().map(|a| (a.proposal.content.counter, a.proposal.content.attempt)),
        counters: of.counters,
        drops: of.drops.clone(),
    }
}

impl Status {
    /// What is of interest whatever the scheme.
    pub(super) fn known(self) -> status::Status {
        let Status { members, compartments, rotates_in, .. } = self;
        status::Status { members, compartments, rotates_in: Some(rotates_in), ..status::Status::default() }
    }

    /// Eight digits for two members to compare by eye: equal if they hold the same epoch.
    pub fn fingerprint(&self) -> String {
        let Some(epoch) = self.epoch else { return String::new() };
        let t = Transcript::new("sealcast/v1/fingerprint").add(&epoch.to_bytes());
        let t = self.members.iter().fold(t, |t, m| t.add(&m.id.cert.0).add(&m.id.incarnation.0));
        t.finish()[..4].iter().map(|b| format!("{b:02x}")).collect()
    }
}
