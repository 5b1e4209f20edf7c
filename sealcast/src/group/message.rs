//! What an application gets: messages with their origin, and memberships as they change.

use std::sync::Arc;
use std::time::Duration;

use sealcast_keys::Exclusion;
use sealcast_wire::{EpochId, Member, Roster, Slot, View};

/// A delivered message.
#[derive(Clone, Debug)]
pub struct Message {
    pub(crate) from: From,
    pub(crate) topic: Arc<str>,
    pub(crate) sequence: u64,
    pub(crate) ordered: bool,
    pub(crate) sent_micros: Option<u64>,
    pub(crate) payload: Vec<u8>,
}

/// Where a message is from, kept small: the roster is shared by all messages of an epoch.
#[derive(Clone, Debug)]
pub(crate) enum From {
    Anonymous,
    Member { view: Arc<View>, slot: Slot, signed: bool },
    Client { key: [u8; 32], epoch: EpochId },
}

/// Who sent a message, and how well that is proved (A2).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A verified signature of this member.
    Signed(Member),
    /// Sealed by somebody who holds the group's key and claims to be this member.
    Claimed(Member),
    /// A client of brokers, by its key: f + 1 of them checked its signature.
    Client([u8; 32]),
    /// Nothing is proved: the group has no keys.
    Anonymous,
}

impl Message {
    /// Who sent it, as far as it is proved.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-origin?keys=plain").wait()?;
    /// let mut all = session.subscribe("#").wait()?;
    /// session.publish("t", "x").wait()?;
    /// assert_eq!(all.wait()?.origin(), sealcast::Origin::Anonymous, "without keys nobody is known");
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn origin(&self) -> Origin {
        match &self.from {
            From::Anonymous => Origin::Anonymous,
            From::Client { key, .. } => Origin::Client(*key),
            From::Member { view, slot, signed } => {
                let member = view.member(*slot).expect("policy let the message pass, so its slot is in the roster");
                if *signed { Origin::Signed(member.clone()) } else { Origin::Claimed(member.clone()) }
            }
        }
    }

    /// Its topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Its payload, without a copy.
    pub fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// The epoch whose key sealed it, of the brokers' key with the number of their policy as its hash; `None` without keys.
    pub fn epoch(&self) -> Option<EpochId> {
        match &self.from {
            From::Anonymous => None,
            From::Member { view, .. } => Some(view.epoch),
            From::Client { epoch, .. } => Some(*epoch).filter(|it| *it != EpochId::default()),
        }
    }

    /// Its number: the place in the order where there is one, else its sender's count.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether its number is a place in the order of all members.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// The sender's clock when it published, microseconds since 1970, if it told.
    pub fn sent_micros(&self) -> Option<u64> {
        self.sent_micros
    }
}

impl Origin {
    /// The name that is signed or claimed.
    pub fn name(&self) -> Option<&str> {
        match self {
            Origin::Signed(member) | Origin::Claimed(member) => Some(&member.name),
            Origin::Client(_) | Origin::Anonymous => None,
        }
    }
}

/// As the command line prints it: `robot7`, `~robot7` for a claim, `0d78e2b0…` for a key, `?` where nothing is proved.
impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Signed(member) => f.write_str(&member.name),
            Origin::Claimed(member) => write!(f, "~{}", member.name),
            Origin::Client(key) => {
                key.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("…")
            }
            Origin::Anonymous => f.write_str("?"),
        }
    }
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Signed(member) => f.debug_tuple("Signed").field(member).finish(),
            Origin::Claimed(member) => f.debug_tuple("Claimed").field(member).finish(),
            Origin::Client(_) => write!(f, "Client({self})"),
            Origin::Anonymous => f.write_str("Anonymous"),
        }
    }
}

/// A membership as it changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewEvent {
    /// A view is installed.
    Changed {
        /// The membership; `view.change` says why.
        view: Arc<View>,
        /// Who is new.
        joined: Vec<Member>,
        /// Who is gone.
        left: Vec<Member>,
    },
    /// Who orders, as it changed (`order=total` over multicast).
    Order {
        /// Who says what comes next in the order; `None`: nothing is ordered, and `.ordered()` and `.safe()` are refused.
        sequencer: Option<Member>,
        /// Whether it stays so until others come back, since this member is not in the primary component; otherwise another view
        /// follows at once.
        is_settled: bool,
        /// Whether an operator made this part of the group primary (`group primary --force`): others may have another order.
        forced: bool,
        /// Ordered messages were delivered to others and never come here: this member was apart from them.
        gap: bool,
        /// The number of the primary view that this member was in last; each one's is greater than the one's before.
        term: u64,
        /// What has a greater sequence number than this, and is ordered, comes here from that view on.
        from: u64,
    },
    /// Messages of this member that were promised to come ([`Guarantee::Fifo`](sealcast_wire::Guarantee::Fifo)) never do: it was
    /// told that we have them.
    Gap {
        /// Who published them.
        from: Member,
    },
    /// A relay's log reaches back no further: what had these positions in the order, from the first to the last, never comes.
    Missed {
        /// The first one.
        from: u64,
        /// The last one.
        until: u64,
    },
    /// No other member was heard for so long, though the transport is connected: the others may be off, or the relay keeps
    /// them from us, with what they removed or published (D2).
    Stale {
        /// For how long; `None` once somebody is heard again, or nobody else is in the group.
        silent: Option<Duration>,
    },
    /// We are out; nothing can be published any more.
    Excluded(Exclusion),
}

impl ViewEvent {
    pub(super) fn between(old: Option<&View>, view: Arc<View>) -> ViewEvent {
        let nobody = Roster::default();
        let before = old.map_or(&nobody, |v| &v.members);
        let cloned = |of: Vec<&Member>| of.into_iter().cloned().collect();
        let (joined, left) = (cloned(view.members.without(before)), cloned(before.without(&view.members)));
        ViewEvent::Changed { view, joined, left }
    }
}
