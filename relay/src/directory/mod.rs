//! The directory's state: requests and time go in, responses and writes come out.
//!
//! ```text
//! shell:  for each request    handled = directory.handle(now, request, &overlay)?;  overlay.apply(handled.writes)
//!         then                one durable, atomic write of overlay.into_writes();  then the responses, then what was accepted (G6)
//! ```
//! All that lasts lies in the storage; in memory there are the key and a bounded number of token buckets. If the durable write
//! fails, the shell drops the overlay and answers nobody: nothing happened.
//!
//! | file | what |
//! |---|---|
//! | `storage` | rows, and changes over them |
//! | `rows` | keys and values of rows |
//! | `limiter` | token buckets |
//! | `appending` | the log: founding, compare-and-set, repeats, pages |
//! | `keys` | the keys that may append to it |
//! | `blobs` | content by hash |
//! | `devices` | key packages and mail |
//! | `expiry` | what is removed because its time is over |

mod appending;
mod blobs;
mod devices;
mod expiry;
mod keys;
mod limiter;
mod rows;
mod storage;

use std::time::Duration;

use sealcast_crypto::ed25519::Key;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::limits::Rate;
use sealcast_wire::{Now, limits};

pub use self::storage::{Memory, Overlay, Row, Storage, StorageError, Write};

use self::keys::Keys;
use self::limiter::{Limiter, Payer};
use self::rows::GroupRecord;
use crate::ids::{AppendKey, GroupId, Head};
use crate::key::RelayKey;
use crate::receipt::{Announcement, Receipt};
use crate::request::{Proof, Request};
use crate::response::{Info, Refusal, Response};

/// Quotas and times, which an operator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Entries of a group's log that are kept.
    pub log_entries: u64,
    /// Bytes of them; each entry counts [`limits::RELAY_ROW_BYTES`] more. The newest one is kept in any case.
    pub log_bytes: u64,
    /// Bytes of a group's blobs, counted so.
    pub blob_bytes: u64,
    /// Bytes of mail that waits in a group, counted so.
    pub mail_bytes: u64,
    /// Bytes of a group's key packages, counted so.
    pub package_bytes: u64,
    /// Devices of a group that have key packages.
    pub devices: u32,
    /// Groups.
    pub groups: u64,
    /// How long mail waits.
    pub mail_kept: Duration,
    /// After so much time without a change a group is removed.
    pub idle_kept: Duration,
    /// Token buckets that are remembered.
    pub buckets: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            log_entries: limits::DIRECTORY_LOG_ENTRIES,
            log_bytes: limits::DIRECTORY_LOG_BYTES,
            blob_bytes: limits::DIRECTORY_BLOB_BYTES,
            mail_bytes: limits::DIRECTORY_MAIL_BYTES,
            package_bytes: limits::DIRECTORY_PACKAGE_BYTES,
            devices: limits::DIRECTORY_DEVICES,
            groups: limits::DIRECTORY_GROUPS,
            mail_kept: limits::DIRECTORY_MAIL_KEPT,
            idle_kept: limits::DIRECTORY_IDLE_KEPT,
            buckets: limits::DIRECTORY_BUCKETS,
        }
    }
}

/// A directory.
#[derive(Debug)]
pub struct Directory {
    config: Config,
    key: OriginKey,
    public: RelayKey,
    limiter: Limiter,
}

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handled {
    /// For the client, once `writes` are durable.
    pub response: Vec<u8>,
    /// To be applied at once; none if the request changes nothing.
    pub writes: Vec<Write>,
    /// What was accepted and is to be published, once `writes` are durable.
    pub published: Option<Published>,
}

/// An entry that a log took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Whose log.
    pub group: GroupId,
    /// Where.
    pub position: u64,
    /// The receipt, and the entry.
    pub announcement: Announcement,
}

impl Published {
    /// The announcement's bytes, without the entry if they were more than `max`.
    pub fn to_bytes(&self, max: usize) -> Vec<u8> {
        let bytes = self.announcement.to_bytes();
        if bytes.len() <= max {
            return bytes;
        }
        Announcement { receipt: self.announcement.receipt, entry: None }.to_bytes()
    }
}

impl Directory {
    /// A directory that signs receipts with this key. It must keep the key as long as its storage.
    pub fn new(config: Config, key: OriginKey) -> Directory {
        let public = RelayKey::new(&key.public_bytes()).expect("a key that signs has a valid point");
        Directory { limiter: Limiter::new(config.buckets), config, key, public }
    }

    /// The key that clients pin.
    pub fn public(&self) -> &RelayKey {
        &self.public
    }

    /// How many token buckets it remembers now.
    pub fn buckets(&self) -> usize {
        self.limiter.len()
    }

    /// Handles one request. `storage` shows all writes of earlier requests.
    ///
    /// # Errors
    /// The storage failed, and nothing may be answered.
    pub fn handle(&mut self, now: Now, request: &[u8], storage: &dyn Storage) -> Result<Handled, StorageError> {
        let mut step = Step { now, directory: self, rows: Overlay::new(storage), published: None };
        let response = match Request::decode(request) {
            Ok(request) => step.handle(request),
            Err(why) => Err(Stop::Refused(why.into())),
        };
        let (response, writes, published) = match response {
            Ok(response) => (response, step.rows.into_writes(), step.published),
            Err(Stop::Refused(why)) => (Response::Refused(why), Vec::new(), None),
            Err(Stop::Storage(why)) => return Err(why),
        };
        Ok(Handled { response: response.encode(), writes, published })
    }
}

/// One request under way.
struct Step<'a> {
    now: Now,
    directory: &'a mut Directory,
    rows: Overlay<'a>,
    published: Option<Published>,
}

/// Why a request is not done: its writes are dropped.
enum Stop {
    Refused(Refusal),
    Storage(StorageError),
}

impl From<Refusal> for Stop {
    fn from(why: Refusal) -> Stop {
        Stop::Refused(why)
    }
}

impl From<StorageError> for Stop {
    fn from(why: StorageError) -> Stop {
        Stop::Storage(why)
    }
}

impl Step<'_> {
    fn handle(&mut self, request: Request) -> Result<Response, Stop> {
        match request {
            Request::Info => Ok(Response::Info(Info {
                key: *self.directory.public.as_bytes(),
                entry_bytes: limits::RELAY_ENTRY_BYTES_MAX as u32,
                blob_bytes: limits::RELAY_BLOB_BYTES_MAX as u32,
                mail_bytes: limits::RELAY_MAIL_BYTES_MAX as u32,
                request_bytes: limits::RELAY_REQUEST_BYTES_MAX as u32,
                response_bytes: limits::RELAY_RESPONSE_BYTES_MAX as u32,
            })),
            Request::Append(it, proof) => self.append(*it, &proof),
            Request::Read { group, from, max_bytes } => self.read(&group, from, max_bytes as usize),
            Request::Blobs { group, hashes } => self.give_blobs(&group, &hashes),
            Request::PutBlobs(it, proof) => {
                let mut group = self.known(&it.group)?;
                let bytes = it.blobs.iter().filter_map(|blob| Some(blob.bytes()?.len())).sum();
                let statement = it.statement(&self.directory.public, &proof.signer);
                self.authorize(&it.group, &group, &proof, &statement, bytes, Payer::Others)?;
                self.keep_blobs(&it.group, &mut group, &it.blobs)?;
                self.keep(&it.group, group);
                Ok(Response::Stored { single_use: 0 })
            }
            Request::PutPackages(it, proof) => self.put_packages(it, &proof),
            Request::TakePackage(it, proof) => self.take_package(&it, &proof),
            Request::Mail(it, proof) => self.give_mail(&it, &proof),
            Request::PutMail(it, proof) => self.put_mail(&it, &proof),
        }
    }

    fn group(&self, group: &GroupId) -> Result<Option<GroupRecord>, StorageError> {
        self.rows.value(&rows::of_group(rows::GROUP, group))
    }

    fn known(&self, group: &GroupId) -> Result<GroupRecord, Stop> {
        self.group(group)?.ok_or(Stop::Refused(Refusal::UnknownGroup))
    }

    /// Writes a group's record; the group was changed today.
    fn keep(&mut self, id: &GroupId, mut group: GroupRecord) {
        let day = self.today().unwrap_or(group.day).max(group.day);
        if day != group.day || group.position == 1 {
            self.rows.remove(rows::of_day(rows::GROUP_BY_DAY, group.day, id, None));
            self.rows.put(rows::of_day(rows::GROUP_BY_DAY, day, id, None), Vec::new());
            group.day = day;
        }
        self.rows.put_value(rows::of_group(rows::GROUP, id), &group);
    }

    /// Whether a key of the group signed the statement, and may ask for so much now.
    fn authorize(
        &mut self,
        id: &GroupId,
        group: &GroupRecord,
        proof: &Proof,
        statement: &[u8; 32],
        bytes: usize,
        payer: fn(GroupId, [u8; 32]) -> Payer,
    ) -> Result<(), Stop> {
        let is_joiner = GroupId::of(&proof.signer) == *id;
        let keys = if is_joiner { Keys::default() } else { self.keys(id, group)? };
        if !is_joiner && !keys.contains(&proof.signer) {
            return Err(Refusal::WrongKey.into());
        }
        // Anybody can bring a wrong signature in the name of a key, so nobody pays for it.
        if !is_signed(proof, statement) {
            return Err(Refusal::BadSignature.into());
        }
        let payer_of = |key: &AppendKey| payer(*id, *key);
        let payer = payer_of(&proof.signer);
        let rate = match payer {
            Payer::Appends(..) if is_joiner => limits::DIRECTORY_APPENDS_OF_JOINERS,
            Payer::Appends(..) => {
                // Who has many keys has no more than who has one: two of them have their full rate beside each other.
                let limiter = &self.directory.limiter;
                let busy = |key: &&AppendKey| **key != proof.signer && limiter.owes(self.now.monotonic, &payer_of(key));
                limits::DIRECTORY_APPENDS.part_of((1 + keys.iter().filter(busy).count()).div_ceil(2) as u32)
            }
            _ if is_joiner => limits::DIRECTORY_OTHERS_OF_JOINERS,
            _ => limits::DIRECTORY_OTHERS,
        };
        self.admit(payer, &rate)?;
        self.charge(payer, &rate, bytes);
        Ok(())
    }

    /// The keys that may append to a group's log, beside its joiner key.
    fn keys(&self, id: &GroupId, group: &GroupRecord) -> Result<Keys, StorageError> {
        let keys = self.rows.value(&rows::of_group(rows::KEYS, id))?;
        Ok(keys.unwrap_or_else(|| Keys::of_list(&group.keys)))
    }

    fn admit(&self, payer: Payer, rate: &Rate) -> Result<(), Stop> {
        let admitted = self.directory.limiter.admit(self.now.monotonic, payer, rate);
        admitted.map_err(|retry_after| Stop::Refused(Refusal::RateLimited { retry_after }))
    }

    fn charge(&mut self, payer: Payer, rate: &Rate, bytes: usize) {
        self.directory.limiter.charge(self.now.monotonic, payer, rate, bytes);
    }

    fn receipt(&self, group: &GroupId, position: u64, head: Head) -> Receipt {
        Receipt::sign(&self.directory.key, *group, position, head)
    }

    fn today(&self) -> Option<u32> {
        self.now.utc.map(|utc| day_of(utc.0))
    }
}

fn is_signed(proof: &Proof, statement: &[u8; 32]) -> bool {
    Key::new(&proof.signer).is_ok_and(|key| key.verify(statement, &proof.signature))
}

/// What a row of so many bytes counts.
fn weight(bytes: usize) -> u64 {
    bytes as u64 + limits::RELAY_ROW_BYTES
}

/// The day of a time; times before 1970 are on the first one.
fn day_of(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0) / DAY).unwrap_or(u32::MAX)
}

/// Seconds.
const DAY: i64 = 86_400;
