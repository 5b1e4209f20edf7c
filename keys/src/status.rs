//! What a scheme knows of its group, for people to read: the answer to [`Input::Describe`](crate::Input::Describe).

use std::collections::BTreeSet;
use std::time::Duration;

use sealcast_crypto::hpke;
use sealcast_crypto::identity::Serial;
use sealcast_crypto::identity::attributes::Attribute;
use sealcast_crypto::identity::rights::Rights;
use sealcast_crypto::signature::PublicKey;
use sealcast_wire::{CertHash, Domain, MemberId};

/// A group as its key scheme knows it.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The members of the installed view, by slot.
    pub members: Vec<MemberStatus>,
    /// The keys in use besides the group's, by domain, from 1.
    pub compartments: Vec<CompartmentStatus>,
    /// When the key is replaced at latest, if ever.
    pub rotates_in: Option<Duration>,
    /// What messages that came sealed as a whole still need to be opened, in their order.
    pub missing: Vec<Shortage>,
    /// The first of these that waits for longer than such messages usually do.
    pub late: Option<Shortage>,
    /// Devices that want to be let in, by certificate: those that this member heard.
    pub pending: Vec<PendingStatus>,
    /// How many more want it, and have not shown their certificates yet.
    pub unnamed: usize,
    /// Of a group of RFC 9420.
    pub tree: Option<TreeStatus>,
}

/// A device that waits to be let in.
#[derive(Clone, Debug)]
pub struct PendingStatus {
    /// Its certificate.
    pub cert: CertHash,
    /// The subject's common name.
    pub name: String,
    /// The certificate's serial number.
    pub serial: Serial,
    /// Seconds since 1970 at which the certificate ends.
    pub not_after: i64,
    /// How long ago it said so last.
    pub heard: Duration,
}

/// A ratchet tree (RFC 9420, section 4), and how far the order that changes it was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeStatus {
    /// The cipher suite, as section 17.1 names it.
    pub suite: &'static str,
    /// How many nodes the tree has: an odd number.
    pub nodes: u32,
    /// How many of those above our leaf are blank: each makes commits of others larger, until we commit.
    pub blanks_above: usize,
    /// The position in the order of the last message that was judged.
    pub position: u64,
}

/// What a message needs before it can be opened: shares of its key, which others hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Its place in the order.
    pub index: u64,
    /// How many shares open it.
    pub needed: usize,
    /// Whose shares have come and may be right: fewer than that.
    pub holders: BTreeSet<u16>,
}

/// A member, by its certificate.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Certificate and run.
    pub id: MemberId,
    /// The subject's common name.
    pub name: String,
    /// The certificate's serial number.
    pub serial: Serial,
    /// The certificate's public key.
    pub key: PublicKey,
    /// Seals for its holder, if the certificate says so.
    pub sealing: Option<hpke::PublicKey>,
    /// Whether it mixes an X25519 exchange into keys from a centre, with others who do.
    pub exchanges: bool,
    /// What the certificate grants.
    pub rights: Rights,
    /// What it says of its holder.
    pub attributes: Vec<Attribute>,
    /// Seconds since 1970 at which it ends.
    pub not_after: i64,
    /// The epoch in which we first saw this run of it.
    pub since: u32,
}

/// Topics under one key.
#[derive(Clone, Debug)]
pub struct CompartmentStatus {
    /// Which key.
    pub domain: Domain,
    /// Its name.
    pub name: String,
    /// The patterns of its topics.
    pub patterns: Vec<String>,
    /// Slots that read it.
    pub readers: Vec<usize>,
    /// Slots that write some of it and do not read it.
    pub writers_only: Vec<usize>,
    /// Whether messages must be signed, because some reader may not write all that it reads (A1).
    pub signed: bool,
}
