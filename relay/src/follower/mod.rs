//! One member's view of a group's log at a directory that it does not trust.
//!
//! ```text
//! call = follower.read();  send call.request();  answer = follower.handle(&call, &response)?
//! ```
//! A follower believes nothing that does not lead to a receipt by the pinned key. It tells each entry once and in order. It keeps
//! the head at its position, the newest receipts, and the links of the last positions, by which it compares its log with what
//! the directory or another member shows, and proves a difference. What it learns it learns whole: an error changes nothing.
//!
//! | file | what |
//! |---|---|
//! | `call` | requests |
//! | `judging` | receipts and pages: what they add, contradict or withhold |
//! | `saved` | what a process leaves for the next one |

mod call;
mod judging;
mod saved;

use std::collections::VecDeque;

use sealcast_crypto::hash::sha256;

pub use self::call::{Call, ProposeError};
pub use self::saved::SavedError;

use self::call::Kind;
use crate::codec::FormatError;
use crate::evidence::Evidence;
use crate::ids::{AppendKey, BlobHash, GroupId, Head};
use crate::key::RelayKey;
use crate::log::{Link, LogEntry, first_head};
use crate::receipt::{Announcement, Receipt};
use crate::response::{Info, MailItem, Page, Refusal, Response, Taken};

/// A member's view of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    group: GroupId,
    relay: RelayKey,
    position: u64,
    head: Head,
    /// Of the last positions, the newest last: each with the head before it.
    links: VecDeque<(Head, Link)>,
    /// Signs the head at `position`; `None` at position 0.
    receipt: Option<Receipt>,
    /// The receipt of the greatest position, if that is not reached yet.
    newest: Option<Receipt>,
    pending: Option<Pending>,
}

/// An append that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    request: Vec<u8>,
    /// The position behind that at which it was proposed.
    first: u64,
    /// By then it has won or lost: the same, or what the directory's receipt says if it may stand later.
    until: Option<u64>,
    /// The head there if it wins; `None` if it may stand later.
    head: Option<Head>,
    link: Link,
}

/// An entry that is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position.
    pub position: u64,
    /// The head with it.
    pub head: Head,
    /// The key that it names.
    pub next_key: Option<AppendKey>,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// It is the append that this follower proposed.
    pub is_own: bool,
}

/// What became of the append that was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the log at this position, and a receipt covers it.
    Won(u64),
    /// Another one came first. Judge the entries, and propose anew.
    Lost,
    /// The follower went on behind it.
    Unknown,
}

/// What a follower learned of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// New entries in their order.
    pub entries: Vec<Entry>,
    /// What became of the append that was under way, if that is known now.
    pub outcome: Option<Outcome>,
}

/// What a response says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The receipt of the log's end, to be adopted.
    Newest(Receipt),
    /// The receipt of the position that was asked for, to be adopted.
    Before(Receipt),
    /// Entries, or what became of an append. [`Follower::is_behind`] says whether to read on.
    Progress(Progress),
    /// What the directory is; it has the pinned key.
    Info(Info),
    /// Blobs that were asked for, in that order, each with the right content; `None` where there is none.
    Blobs(Vec<(BlobHash, Option<Vec<u8>>)>),
    /// What was to be kept is kept.
    Stored {
        /// Single-use packages that the device has.
        single_use: u16,
    },
    /// A key package, not yet verified.
    Package(Option<Taken>),
    /// Mail, not yet verified.
    Mail {
        /// By ascending numbers.
        items: Vec<MailItem>,
        /// Acknowledge these, and ask for more.
        more: bool,
    },
    /// Entries after the follower's position are no longer kept: come in anew, and adopt the receipt, or a later one.
    Gone(Receipt),
    /// The directory refused. An append that is under way stays so until it is retried or withdrawn.
    Refused(Refusal),
}

/// What another member's receipt says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// That member saw the same log.
    Same,
    /// It is ahead: read on. If what comes does not lead to its receipt, that proves a fork.
    Ahead,
    /// It is too far behind to be compared.
    TooOld,
}

/// What no honest directory does. The follower is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// A response does not parse.
    #[error("the relay's response cannot be read: {0}")]
    Malformed(FormatError),
    /// A response fits another request, or another group.
    #[error("the relay's response does not fit the request")]
    Unexpected,
    /// The directory has another key than the pinned one.
    #[error("the relay does not have the pinned key")]
    OtherKey,
    /// A receipt is not signed by the pinned key.
    #[error("a receipt is not signed by the relay's pinned key")]
    BadReceipt,
    /// Entries do not lead to the receipt that came with them: some were changed, left out or exchanged.
    #[error("the relay's entries do not lead to its receipt")]
    WrongEntries,
    /// A blob has another hash than the one that was asked for.
    #[error("the relay gave other content than was asked for")]
    WrongContent,
    /// The directory signed two histories, and here is the proof.
    #[error("the relay signed two histories of the group's log")]
    Forked(Box<Evidence>),
    /// The directory's log ends before a position for which this follower has its receipt.
    #[error("the relay's log ends at position {now}, and it had signed position {had}")]
    RolledBack {
        /// What this follower has a receipt for.
        had: u64,
        /// Where the log ends now; 0 if the directory does not know the group any more.
        now: u64,
    },
    /// The directory does not give entries that it signed a receipt for.
    #[error("the relay withholds entries: it had signed position {signed}, and gives none after {given}")]
    Withheld {
        /// What somebody has a receipt for.
        signed: u64,
        /// The last position that the directory gives.
        given: u64,
    },
}

impl Follower {
    /// Goes back to a receipt of an earlier position, and reads on from there. What it knew a receipt for before must come again.
    ///
    /// # Errors
    /// As [`Follower::adopt`].
    pub fn go_back(&mut self, receipt: Receipt) -> Result<Option<Outcome>, Misbehaviour> {
        let known = self.newest.or(self.receipt);
        let outcome = self.adopt(receipt)?;
        known.into_iter().for_each(|it| self.note(it));
        Ok(outcome)
    }

    /// A follower that knows nothing: it reads from the first entry on, unless it adopts a receipt.
    pub fn new(group: GroupId, relay: RelayKey) -> Follower {
        let head = first_head(&group);
        Follower { group, relay, position: 0, head, links: VecDeque::new(), receipt: None, newest: None, pending: None }
    }

    /// The group.
    pub fn group(&self) -> &GroupId {
        &self.group
    }

    /// The key that is pinned.
    pub fn relay(&self) -> &RelayKey {
        &self.relay
    }

    /// The position up to which it told all entries.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The head there.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The receipt for its position, for other members' [`Follower::exchange`]; `None` before the first entry.
    pub fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }

    /// Whether it knows of entries that it has not got.
    pub fn is_behind(&self) -> bool {
        self.newest.is_some()
    }

    /// The position of the append that is under way, should it win; the first one that it may have.
    pub fn pending(&self) -> Option<u64> {
        self.pending.as_ref().map(|it| it.first)
    }

    /// Whether the directory says that the append which is under way is in the log, and the entries there are still to be read.
    pub fn awaits_entry(&self) -> bool {
        self.pending.as_ref().is_some_and(|it| it.head.is_none() && it.until.is_some())
    }

    /// Goes on behind a receipt without the entries before it: for a newcomer, and for a member that missed too much or follows
    /// another branch. What lies between is not compared; other members' receipts show a difference (D2).
    ///
    /// # Errors
    /// The receipt is of another group, or not signed by the pinned key.
    pub fn adopt(&mut self, receipt: Receipt) -> Result<Option<Outcome>, Misbehaviour> {
        self.authentic(&receipt)?;
        self.position = receipt.position;
        self.head = receipt.head;
        self.links.clear();
        self.receipt = Some(receipt);
        self.newest = None;
        Ok(self.pending.take().map(|_| Outcome::Unknown))
    }

    /// A response has come.
    ///
    /// # Errors
    /// [`Misbehaviour`] of the directory, or of what carries its responses; nothing changed.
    pub fn handle(&mut self, call: &Call, response: &[u8]) -> Result<Answer, Misbehaviour> {
        let response = Response::decode(response).map_err(Misbehaviour::Malformed)?;
        match (&call.kind, response) {
            (Kind::Append(first), Response::Receipt(receipt)) => {
                self.accepted(call, *first, receipt).map(Answer::Progress)
            }
            (Kind::Append(_), Response::Refused(Refusal::Conflict(page))) => {
                let mut progress = self.page(call, *page)?;
                // The directory takes it no longer.
                let is_lost = |it: &mut Pending| it.head.is_none() && it.request == call.request();
                if self.pending.take_if(is_lost).is_some() {
                    progress.outcome = Some(Outcome::Lost);
                }
                Ok(Answer::Progress(progress))
            }
            (Kind::Read, Response::Page(page)) => self.page(call, *page).map(Answer::Progress),
            (Kind::Newest, Response::Page(page)) => self.newest_is(call, page.newest),
            (Kind::Newest, Response::Refused(Refusal::Gone { newest, .. })) => self.newest_is(call, *newest),
            (Kind::Before(position), Response::Page(page)) => self.before_is(*position, &page),
            (Kind::Before(_), Response::Refused(why @ Refusal::Gone { .. })) => Ok(Answer::Refused(why)),
            (Kind::Read, Response::Refused(Refusal::Gone { before, newest })) => self.gone(call, *before, *newest),
            (_, Response::Refused(Refusal::Conflict(_) | Refusal::Gone { .. })) => Err(Misbehaviour::Unexpected),
            (_, Response::Refused(Refusal::UnknownGroup)) if call.newest > 0 => {
                Err(Misbehaviour::RolledBack { had: call.newest, now: 0 })
            }
            (_, Response::Refused(why)) => Ok(Answer::Refused(why)),
            (Kind::Info, Response::Info(info)) if info.key == *self.relay.as_bytes() => Ok(Answer::Info(info)),
            (Kind::Info, Response::Info(_)) => Err(Misbehaviour::OtherKey),
            (Kind::Blobs(hashes), Response::Blobs(blobs)) => {
                if hashes.len() != blobs.len() {
                    return Err(Misbehaviour::Unexpected);
                }
                let blobs: Vec<_> = hashes.iter().copied().zip(blobs).collect();
                let is_right =
                    |(hash, bytes): &(_, Option<Vec<u8>>)| bytes.as_ref().is_none_or(|it| sha256(it) == *hash);
                if blobs.iter().all(is_right) { Ok(Answer::Blobs(blobs)) } else { Err(Misbehaviour::WrongContent) }
            }
            (Kind::Put, Response::Stored { single_use }) => Ok(Answer::Stored { single_use }),
            (Kind::Take, Response::Package(taken)) => Ok(Answer::Package(taken)),
            (Kind::Mail, Response::Mail { items, more }) => Ok(Answer::Mail { items, more }),
            _ => Err(Misbehaviour::Unexpected),
        }
    }

    fn before_is(&self, position: u64, page: &Page) -> Result<Answer, Misbehaviour> {
        let receipt = page.before.ok_or(Misbehaviour::Unexpected)?;
        self.authentic(&receipt)?;
        self.compare(&receipt)?;
        if receipt.position == position { Ok(Answer::Before(receipt)) } else { Err(Misbehaviour::Unexpected) }
    }

    fn newest_is(&self, call: &Call, newest: Receipt) -> Result<Answer, Misbehaviour> {
        self.authentic(&newest)?;
        self.compare(&newest)?;
        self.is_up_to_date(call, &newest)?;
        Ok(Answer::Newest(newest))
    }

    /// An announcement has come, by whatever path: see [`crate::directory::Published`]. Only what the pinned key signed counts.
    ///
    /// # Errors
    /// [`Misbehaviour`]. Anybody can make announcements that do not parse or verify, so those say nothing of the directory.
    pub fn hint(&mut self, announcement: &[u8]) -> Result<Progress, Misbehaviour> {
        let Announcement { receipt, entry } =
            Announcement::from_bytes(announcement).map_err(Misbehaviour::Malformed)?;
        self.authentic(&receipt)?;
        self.compare(&receipt)?;
        let follows = |entry: &LogEntry| {
            receipt.position == self.position + 1 && entry.link().head(&self.head, receipt.position) == receipt.head
        };
        match entry.filter(follows) {
            Some(entry) => self.advance(vec![entry], receipt, receipt),
            None => {
                self.note(receipt);
                Ok(Progress::default())
            }
        }
    }

    /// Compares the log with what another member saw.
    ///
    /// # Errors
    /// [`Misbehaviour::Forked`], with the proof; or the receipt is of another group, or not signed by the pinned key.
    pub fn exchange(&mut self, other: &Receipt) -> Result<Comparison, Misbehaviour> {
        self.authentic(other)?;
        self.compare(other)?;
        self.note(*other);
        Ok(match self.head_at(other.position) {
            Some(_) => Comparison::Same,
            None if other.position > self.position => Comparison::Ahead,
            None => Comparison::TooOld,
        })
    }
}
