//! What a broker executes: ordered blocks in, results and notices out, the same at every broker.
//!
//! A block is (height, time, batches), the batches [`Checked`] before. [`State::execute`] depends on
//! nothing else: time is the block's (E10), and there is no clock, no randomness and no map without order.
//! Rows lie in a [`Store`]; memory holds the active subscriptions, the policies and one block's changes.
//!
//! **Who gets what** (Chios IV-C). A publication interests whoever has an active subscription at its place in the
//! order. Each subscription counts what interests it, without gaps: also under `and` and wildcards, where the
//! numbers of a single topic would leave the subscriber wondering what to wait for. Whether it is released or ⊥
//! is judged on the state after the block, so that a revocation in the same block comes first; and again on
//! the newest state before a share leaves: [`State::may_read`] (E2).
//!
//! **State root.** `T("sealcast/v1/state"; cluster, u64 height, i64 time, u64 next sn, u64 next act, u64 policy,
//! u32 epoch, history, set, u64 rows, u64 bytes)`. `set` is the [`SetHash`] over all rows that may change, `rows` and
//! `bytes` are how many they are and how long; publications, which never change,
//! are in the `history`: `T("sealcast/v1/history"; history before, u64 height, root of the block's
//! publications)`, over blocks that have any. So a block costs as much as it changes, and whoever is handed a snapshot
//! knows from its head alone whether it is the right one and how long it is ([`Restore`]).
//!
//! **What is no longer kept.** Each broker decides for itself how far back it keeps publications: [`LowWaterMark`].

mod block;
pub mod client;
mod entries;
mod entry;
mod index;
mod interests;
mod low_water_mark;
mod outbox;
mod outcome;
mod past;
mod read;
mod results;
mod resume;
mod snapshot;
pub mod store;
mod subject;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::Attribute;
use sealcast_crypto::set_hash::{SET_HASH_LEN, SetHash};
use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

use crate::expression::Tree;
use crate::genesis::{Cluster, Genesis};
use crate::operation::{Act, Checked, Client, Header, Interest, Policy};
use interests::{Interests, Subscription};

pub use block::may_vouch;
pub use client::{Holder, Record};
pub use entry::Entry;
pub use low_water_mark::LowWaterMark;
pub use outbox::{Advertisement, Notice, Outbox, Part, Proof, Results, Run, executed};
pub use outcome::{Code, ExecuteError, OperationResult};
pub use past::Past;
pub use read::{ReadError, Reading, TopicPosition};
pub use resume::{Resumed, Resuming};
pub use snapshot::{Restore, RestoreError, SnapshotHead, elements};
pub use store::{Changes, Memory, Row, Store, StoreError};
pub use subject::{Subject, SubjectStatus};

/// A broker's state at one height.
#[derive(Clone, Debug)]
pub struct State<S> {
    genesis: Genesis,
    cluster: Cluster,
    store: S,
    head: Head,
    low_water_mark: LowWaterMark,
    policies: BTreeMap<u64, Policy>,
    interests: Interests,
    /// Who wants advertisements without a subscription.
    intents: BTreeSet<Client>,
    /// Whom evidence keeps from publishing, and since which block.
    suspended: BTreeMap<Client, u64>,
    /// Clients by the last second of each of their credentials.
    expiries: BTreeMap<Utc, BTreeSet<Client>>,
    /// Counts changes to who vouches for whom since this state was opened.
    vouching: u64,
}

/// What is stored beside the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Head {
    height: u64,
    at: Utc,
    next_sn: u64,
    next_act: u64,
    policy: u64,
    epoch: u32,
    history: [u8; 32],
    set: SetHash,
    /// Elements of the set, and bytes of their keys and values.
    rows: u64,
    bytes: u64,
}

impl<S: Store> State<S> {
    /// The state that lies in a store; in an empty one, that of height 0.
    ///
    /// # Errors
    /// The storage failed.
    pub fn open(genesis: Genesis, store: S) -> Result<State<S>, StoreError> {
        let head = Head::stored(&store)?.unwrap_or_else(Head::first);
        let cluster = genesis.cluster();
        let mut state = State {
            genesis,
            cluster,
            low_water_mark: LowWaterMark::of(&store)?,
            store,
            head,
            policies: BTreeMap::from([(0, Policy::default())]),
            interests: Interests::default(),
            intents: BTreeSet::new(),
            suspended: BTreeMap::new(),
            expiries: BTreeMap::new(),
            vouching: 0,
        };
        state.remember()?;
        Ok(state)
    }

    /// Executes the next block. All of it is stored, in one change, or nothing.
    ///
    /// # Errors
    /// [`ExecuteError`].
    pub fn execute(&mut self, height: u64, at: Utc, batches: &[Checked]) -> Result<Outbox, ExecuteError> {
        let next = self.head.height + 1;
        if height != next {
            return Err(ExecuteError::Height(next));
        }
        Ok(block::Block::new(self, height, outcome::later(at, self.head.at)).execute(batches)?)
    }

    /// The last block that was executed; 0 before the first.
    pub fn height(&self) -> u64 {
        self.head.height
    }

    /// That block's time.
    pub fn time(&self) -> Utc {
        self.head.at
    }

    /// The cluster's id.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What the cluster began with.
    pub fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    /// The global policy in force and its number, which publications must name (E6).
    pub fn policy(&self) -> (u64, &Policy) {
        (self.head.policy, &self.policies[&self.head.policy])
    }

    /// The key epoch in force, which publications must name (E6).
    pub fn epoch(&self) -> u32 {
        self.head.epoch
    }

    /// The place in the order that the next operation gets.
    pub fn next_sn(&self) -> u64 {
        self.head.next_sn
    }

    /// The number of the administrators' next act.
    pub fn next_act(&self) -> u64 {
        self.head.next_act
    }

    /// What is known of a client.
    ///
    /// # Errors
    /// The storage failed.
    pub fn client(&self, client: &Client) -> Result<Option<Record>, StoreError> {
        let row = self.store.get(&table::client(client))?;
        row.map(|bytes| table::read(&bytes, Record::decode)).transpose()
    }

    /// Whom evidence keeps from publishing, and since which block (E4).
    pub fn suspended(&self) -> &BTreeMap<Client, u64> {
        &self.suspended
    }

    /// A number that changes when somebody begins or ceases to vouch for a client.
    pub fn vouching(&self) -> u64 {
        self.vouching
    }

    /// A client's active subscriptions: number, interest, since which sn, and the place that is next.
    pub fn subscriptions(&self, client: &Client) -> impl Iterator<Item = (u64, &Interest, u64, u64)> {
        self.interests.of_client(client).map(|((_, id), it)| (*id, &it.interest, it.since, it.next))
    }

    /// The hash that stands for all of it.
    pub fn root(&self) -> [u8; 32] {
        self.head.root(&self.cluster)
    }

    /// Where its rows lie.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Whether any rule of the policies that judge a publication could ask for its headers.
    fn has_rules(&self, entry: &Entry) -> bool {
        let rules = |number: u64| !self.policies[&number].rules.is_empty();
        rules(self.head.policy) || rules(entry.policy)
    }

    /// Whether the publication may be released to somebody with these attributes: its own rule, the
    /// global policy that it was sealed for, and the one in force now, all of them.
    fn releases(&self, entry: &Entry, headers: &[Header], attributes: &[Attribute]) -> bool {
        let by = |number: u64| self.policies[&number].allows(Act::Read, headers, attributes);
        entry.access.as_ref().is_none_or(|access| access.allows(attributes))
            && by(self.head.policy)
            && (entry.policy == self.head.policy || by(entry.policy))
    }

    /// One of a client's credentials ends after this second.
    fn ends(&mut self, not_after: Utc, client: Client) {
        self.expiries.entry(not_after).or_default().insert(client);
    }

    /// Reads into memory what is held there.
    fn remember(&mut self) -> Result<(), StoreError> {
        for (key, value) in rows(&self.store, &[table::POLICY]) {
            let (key, value) = (key, value?);
            let number = table::read(&key[1..], |r| r.u64())?;
            let policy = Policy::from_bytes(&value).map_err(|_| StoreError("a policy is none".into()))?;
            self.policies.insert(number, policy);
        }
        for (key, value) in rows(&self.store, &[table::SUBSCRIPTION]) {
            let (id, subscription) = (
                table::read(&key[1..], |r| Ok((Client(r.array()?), r.u64()?)))?,
                table::read(&value?, Subscription::decode)?,
            );
            self.interests.insert(id, subscription);
        }
        for (key, value) in rows(&self.store, &[table::CLIENT]) {
            let record = table::read(&value?, Record::decode)?;
            let client = Client(table::read(&key[1..], |r| r.array())?);
            if record.intent && record.attributes(self.head.at).is_some() {
                self.intents.insert(client);
            }
            for vouched in record.credentials.values() {
                self.expiries.entry(vouched.not_after).or_default().insert(client);
            }
            if let Some(since) = record.suspended {
                self.suspended.insert(client, since);
            }
        }
        Ok(())
    }
}

/// How far the state in a store has come; 0 in an empty one.
///
/// # Errors
/// The storage failed.
pub fn height(store: &impl Store) -> Result<u64, StoreError> {
    Ok(Head::stored(store)?.map_or(0, |head| head.height))
}

/// All rows whose keys begin so, page by page. After an error there is nothing more.
fn rows<'a, S: Store>(store: &'a S, prefix: &[u8]) -> impl Iterator<Item = StoredRow> + use<'a, S> {
    rows_from(store, prefix.to_vec(), prefix, limits::STORE_PAGE_ROWS)
}

/// The same from a key on, and so many at a time.
fn rows_from<'a, S: Store>(
    store: &'a S,
    mut from: Vec<u8>,
    prefix: &[u8],
    page_rows: usize,
) -> impl Iterator<Item = StoredRow> + use<'a, S> {
    let until = table::after(prefix);
    let mut page = Vec::new().into_iter();
    let mut done = false;
    std::iter::from_fn(move || {
        loop {
            if let Some((key, value)) = page.next() {
                return Some((key, Ok(value)));
            }
            if done {
                return None;
            }
            let rows: Vec<Row> = match store.range(&from, &until, page_rows) {
                Ok(rows) => rows,
                Err(error) => {
                    done = true;
                    return Some((Vec::new(), Err(error)));
                }
            };
            match rows.last() {
                Some((last, _)) => from = [last, &[0][..]].concat(),
                None => done = true,
            }
            page = rows.into_iter();
        }
    })
}

/// Of all rows together: a store of another one is not opened. The first had none, and began with a height.
const FORMAT: u8 = 3;

/// A key, and the value or why it cannot be read.
type StoredRow = (Vec<u8>, Result<Vec<u8>, StoreError>);

impl Head {
    fn first() -> Head {
        Head {
            height: 0,
            at: Utc(i64::MIN),
            next_sn: 0,
            next_act: 1,
            policy: 0,
            epoch: 0,
            history: [0; 32],
            set: SetHash::new(),
            rows: 0,
            bytes: 0,
        }
    }

    /// That of a store; `None` of an empty one.
    fn stored(store: &impl Store) -> Result<Option<Head>, StoreError> {
        let Some(row) = store.get(table::HEAD)? else { return Ok(None) };
        match row.split_first() {
            Some((&FORMAT, head)) => table::read(head, Head::decode).map(Some),
            _ => Err(StoreError(format!(
                "another version of the broker wrote these rows: they are not of format {FORMAT}; \
                 run the version that wrote them"
            ))),
        }
    }

    /// Its row.
    fn row(&self) -> (Vec<u8>, Vec<u8>) {
        (table::HEAD.to_vec(), [&[FORMAT], &self.to_bytes()[..]].concat())
    }

    fn root(&self, cluster: &Cluster) -> [u8; 32] {
        Transcript::new("sealcast/v1/state")
            .add(&cluster.0)
            .add(&self.height.to_be_bytes())
            .add(&self.at.0.to_be_bytes())
            .add(&self.next_sn.to_be_bytes())
            .add(&self.next_act.to_be_bytes())
            .add(&self.policy.to_be_bytes())
            .add(&self.epoch.to_be_bytes())
            .add(&self.history)
            .add(&self.set.digest())
            .add(&self.rows.to_be_bytes())
            .add(&self.bytes.to_be_bytes())
            .finish()
    }

    /// A row of the set has another value; `None` is none.
    fn change(&mut self, key: &[u8], before: Option<&[u8]>, now: Option<&[u8]>) {
        let length = |value: &[u8]| (key.len() + value.len()) as u64;
        if let Some(value) = before {
            self.set.remove(key, value);
            (self.rows, self.bytes) = (self.rows - 1, self.bytes - length(value));
        }
        if let Some(value) = now {
            self.set.insert(key, value);
            (self.rows, self.bytes) = (self.rows + 1, self.bytes + length(value));
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u64(self.height).raw(&self.at.0.to_be_bytes()).u64(self.next_sn).u64(self.next_act);
        w.u64(self.policy).u32(self.epoch).raw(&self.history).raw(&self.set.to_bytes());
        w.u64(self.rows).u64(self.bytes);
        w.finish()
    }

    fn decode(r: &mut Reader<'_>) -> Result<Head, Malformed> {
        let (height, at, next_sn, next_act) = (r.u64()?, Utc(i64::from_be_bytes(r.array()?)), r.u64()?, r.u64()?);
        let (policy, epoch, history) = (r.u64()?, r.u32()?, r.array()?);
        let set = SetHash::from_bytes(r.take(SET_HASH_LEN)?).ok_or(Malformed)?;
        let (rows, bytes) = (r.u64()?, r.u64()?);
        Ok(Head { height, at, next_sn, next_act, policy, epoch, history, set, rows, bytes })
    }

    /// Appends a block's publications to the history.
    fn append(&mut self, height: u64, publications: &[u8; 32]) {
        let transcript = Transcript::new("sealcast/v1/history").add(&self.history);
        self.history = transcript.add(&height.to_be_bytes()).add(publications).finish();
    }
}

impl Subscription {
    fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u64(self.since).u64(self.next).bytes16(&self.interest.to_bytes());
        w.finish()
    }

    fn decode(r: &mut Reader<'_>) -> Result<Subscription, Malformed> {
        let (since, next) = (r.u64()?, r.u64()?);
        let interest: Interest = Tree::from_bytes(r.bytes16(limits::EXPRESSION_BYTES_MAX)?)?;
        Ok(Subscription::new(interest, since, next))
    }
}
