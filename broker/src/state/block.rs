//! One block on its way into the state.

mod clients;
mod kept;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use sealcast_crypto::identity::Attribute;
use sealcast_wire::{Utc, Writer, limits};

use super::client::{CredentialName, Record};
use super::entries::Entries;
use super::entry::Entry;
use super::index::Runs;
use super::interests::{Id, Subscription, Usage};
use super::outbox::{Advertisement, Notice, Outbox, Results};
use super::outcome::{Code, OperationResult};
use super::store::{Changes, Store, StoreError};
use super::table::{Kept, Value};
use super::{State, results, table};
use crate::operation::{
    Act, Action, Admin, Body, Checked, Client, Execute, Header, Interest, Operation, OperationId, Publication,
};
use kept::Write;

pub use clients::may_vouch;

/// What an executable operation answers, and what it writes.
type Ran = (Vec<u8>, Option<Write>);

/// The block, with what it has changed so far.
pub(super) struct Block<'a, S> {
    state: &'a mut State<S>,
    outbox: Outbox,
    /// Rows, but for those of clients and subscriptions, which are written once at the end.
    changes: Changes,
    clients: BTreeMap<Client, Option<Record>>,
    /// What clients hold at the block's time, as far as it was asked since a record changed.
    held: BTreeMap<Client, Option<Rc<[Attribute]>>>,
    /// What the clients of a credential have standing, as far as it was asked in the block: what they give up in it is
    /// free in the next one.
    active: BTreeMap<CredentialName, Usage>,
    /// Publications (by index) and who they interest at which place.
    ordered: Vec<(usize, Id, u64)>,
    /// Subscriptions whose row is to be written, or is gone.
    subscriptions: BTreeSet<Id>,
    /// What it publishes, as rows.
    entries: Entries,
    /// The same by topic.
    runs: Runs,
    /// The last number that the block used up, of each client.
    used: BTreeMap<Client, u64>,
    /// Of the publications, in their order.
    leaves: Vec<[u8; 32]>,
    /// Whether it published anything sealed.
    has_sealed: bool,
}

/// Where an operation comes from.
#[derive(Clone, Copy)]
struct Origin<'a> {
    client: Client,
    number: u64,
    id: &'a OperationId,
    batch: u32,
}

impl<'a, S: Store> Block<'a, S> {
    pub(super) fn new(state: &'a mut State<S>, height: u64, at: Utc) -> Block<'a, S> {
        Block {
            state,
            outbox: Outbox::new(height, at),
            changes: Changes::new(),
            clients: BTreeMap::new(),
            held: BTreeMap::new(),
            active: BTreeMap::new(),
            ordered: Vec::new(),
            subscriptions: BTreeSet::new(),
            entries: Entries::default(),
            runs: Runs::default(),
            used: BTreeMap::new(),
            leaves: Vec::new(),
            has_sealed: false,
        }
    }

    pub(super) fn execute(mut self, batches: &[Checked]) -> Result<Outbox, StoreError> {
        self.expire()?;
        for (place, batch) in (0..).zip(batches) {
            self.batch(place, batch)?;
        }
        self.notify()?;
        self.commit()
    }

    /// Executes what of a batch is new: a batch that is sent again, also if cut differently, repeats
    /// nothing; one whose turn has not come waits with its client.
    fn batch(&mut self, place: u32, checked: &Checked) -> Result<(), StoreError> {
        let batch = checked.batch();
        let client = batch.client();
        let mut outcomes = Vec::new();
        for (number, id, operation) in batch.operations() {
            let next = self.record(&client)?.as_ref().map(|r| r.next);
            outcomes.push(if next.is_some_and(|next| number < next) {
                OperationResult::new(Code::Duplicate)
            } else if let Some(next) = next.filter(|next| number > *next) {
                OperationResult::number(Code::Gap, next)
            } else {
                let outcome = self.operation(Origin { client, number, id, batch: place }, operation)?;
                // A number is used up whatever became of the operation, once the client is known.
                if let Some(record) = self.record(&client)? {
                    record.next = number + 1;
                    self.used.insert(client, number);
                }
                outcome
            });
        }
        self.outbox.results.push(Results { client, first: batch.first(), batch: *checked.digest(), outcomes });
        Ok(())
    }

    fn operation(&mut self, origin: Origin<'_>, operation: &Operation) -> Result<OperationResult, StoreError> {
        if self.record(&origin.client)?.as_ref().is_some_and(|r| r.revoked) {
            return Ok(OperationResult::new(Code::Revoked));
        }
        let done = match operation {
            Operation::Register(registration) => self.register(origin, registration)?,
            Operation::Administer(admin) => self.administer(admin)?,
            Operation::Dkg(word) => self.word(origin, word)?,
            _ => match self.attributes(&origin.client)? {
                None => Err(OperationResult::new(Code::Unregistered)),
                Some(attributes) => match operation {
                    Operation::Advertise { .. } => Ok(self.advertise(origin)),
                    Operation::Subscribe(interest) => self.subscribe(origin, interest)?,
                    Operation::Unsubscribe(id) => self.unsubscribe((origin.client, *id)),
                    Operation::Publish(publication) => self.publish(origin, publication, &attributes)?,
                    Operation::Sync => Ok(self.outbox.height.to_be_bytes().to_vec()),
                    Operation::Accuse(accusation) => self.accuse(accusation)?,
                    Operation::Register(_) | Operation::Administer(_) | Operation::Dkg(_) => {
                        unreachable!("they stand above")
                    }
                },
            },
        };
        Ok(match done {
            Err(outcome) => outcome,
            Ok(answer) => {
                let sn = self.state.head.next_sn;
                self.state.head.next_sn += 1;
                OperationResult::with(Code::Done, [&sn.to_be_bytes()[..], &answer].concat())
            }
        })
    }

    /// `dkg`: brokers are no clients; they need no registration, and their words no numbers. Nothing prunes them, so
    /// that one of them is heard so often.
    fn word(&mut self, origin: Origin<'_>, word: &[u8]) -> Result<Result<Vec<u8>, OperationResult>, StoreError> {
        let broker = self.state.genesis.brokers.iter().position(|key| *key == origin.client.0);
        let Some(broker) = broker.and_then(|place| u16::try_from(place).ok()) else {
            return Ok(Err(OperationResult::new(Code::Denied)));
        };
        let said = table::said(broker);
        let mut kept = self.get(&said)?.map_or(Ok(Kept::default()), |row| table::read(&row, Kept::decode))?;
        kept.add(word.len());
        if kept.rows > limits::DKG_STATEMENTS_PER_BROKER_MAX || kept.bytes > limits::DKG_BYTES_PER_BROKER_MAX {
            return Ok(Err(OperationResult::new(Code::TooMany)));
        }
        self.changes.insert(said, Some(kept.to_bytes()));
        let place = u32::try_from(self.outbox.words.len()).expect("a block's operations have a limit");
        let row = [&broker.to_be_bytes(), word].concat();
        self.changes.insert(table::word(self.outbox.height, place), Some(row));
        self.outbox.words.push((broker, word.to_vec()));
        Ok(Ok(Vec::new()))
    }

    /// `advertise`: to all with intent, when the block is done.
    fn advertise(&mut self, origin: Origin<'_>) -> Vec<u8> {
        let Origin { client, number, id, batch } = origin;
        let sn = self.state.head.next_sn;
        self.outbox.advertisements.push(Advertisement { sn, client, number, id: *id, batch });
        Vec::new()
    }

    /// `sub`: stands from its own place in the order on.
    fn subscribe(
        &mut self,
        origin: Origin<'_>,
        interest: &Interest,
    ) -> Result<Result<Vec<u8>, OperationResult>, StoreError> {
        let id = (origin.client, origin.number);
        if !self.has_capacity(&origin.client, interest)? {
            return Ok(Err(OperationResult::new(Code::TooMany)));
        }
        let since = self.state.head.next_sn;
        self.state.interests.insert(id, Subscription::new(interest.clone(), since, 0));
        self.subscriptions.insert(id);
        Ok(Ok(Vec::new()))
    }

    fn unsubscribe(&mut self, id: Id) -> Result<Vec<u8>, OperationResult> {
        if !self.state.interests.remove(&id) {
            return Err(OperationResult::new(Code::NoSubscription));
        }
        self.subscriptions.insert(id);
        Ok(Vec::new())
    }

    /// `pub` (Chios IV-B, IV-C): executes `o`, gives the publication its numbers, and finds who is interested.
    /// If `o` fails, nothing is published.
    fn publish(
        &mut self,
        origin: Origin<'_>,
        publication: &Publication,
        attributes: &[Attribute],
    ) -> Result<Result<Vec<u8>, OperationResult>, StoreError> {
        if let Some(since) = self.record(&origin.client)?.as_ref().and_then(|it| it.suspended) {
            return Ok(Err(OperationResult::number(Code::Suspended, since)));
        }
        let (policy, rules) = self.state.policy();
        if publication.policy != policy {
            return Ok(Err(OperationResult::number(Code::StalePolicy, policy)));
        }
        if publication.epoch != self.state.head.epoch {
            return Ok(Err(OperationResult::with(Code::StaleEpoch, self.state.head.epoch.to_be_bytes())));
        }
        if !rules.allows(Act::Publish, &publication.headers, attributes) {
            return Ok(Err(OperationResult::new(Code::Denied)));
        }
        let (answer, write) = match self.run(&publication.headers[0], &publication.execute, attributes)? {
            Ok(done) => done,
            Err(outcome) => return Ok(Err(outcome)),
        };
        let (mut next, mut fresh) = (Vec::with_capacity(publication.headers.len()), Vec::new());
        for header in &publication.headers {
            next.push(match self.runs.next(header) {
                Some(ps) => ps,
                None => {
                    let key = table::topic(header);
                    let row = self.state.store.get(&key)?;
                    if row.is_none() {
                        fresh.push(key.len() + size_of::<u64>());
                    }
                    row.map_or(Ok(0), |row| table::number(&row))?
                }
            });
        }
        let at = self.outbox.at;
        let holder = self.record(&origin.client)?.as_ref().and_then(|it| it.holder(at));
        let holder = holder.expect("who has attributes has a credential");
        if !self.keep(holder.name(), write, &fresh)? {
            return Ok(Err(OperationResult::new(Code::TooMany)));
        }
        let sn = self.state.head.next_sn;
        let mut places = Vec::with_capacity(publication.headers.len());
        for (header, ps) in publication.headers.iter().zip(next) {
            assert!(self.runs.push(header, ps, sn), "it is the next one");
            places.push((header.clone(), ps));
        }
        let mut detail = Writer::new();
        places.iter().for_each(|(_, ps)| {
            detail.u64(*ps);
        });
        detail.raw(&answer);
        let index = self.outbox.publications.len();
        for (id, place) in self.state.interests.place(&publication.headers) {
            self.ordered.push((index, id, place));
            self.subscriptions.insert(id);
        }
        let entry = Entry {
            sn,
            height: self.outbox.height,
            at: self.outbox.at,
            batch: origin.batch,
            client: origin.client,
            number: origin.number,
            id: *origin.id,
            policy: publication.policy,
            epoch: publication.epoch,
            places,
            access: publication.access.clone(),
        };
        if matches!(publication.body, Body::Sealed(_)) {
            let row = accusable(&entry.client, entry.number, &entry.id);
            self.changes.insert(table::accusable(sn), Some(row));
            self.has_sealed = true;
        }
        let row = entry.to_bytes();
        self.leaves.push(Entry::leaf_of(&row));
        self.entries.push(sn, &row);
        self.outbox.publications.push(entry);
        Ok(Ok(detail.finish()))
    }

    /// The executable operation `o`, on keys of the first header's topic: what it answers and writes. Of what was held
    /// nothing is said to whom the policy does not let read it.
    fn run(
        &self,
        header: &Header,
        execute: &Execute,
        attributes: &[Attribute],
    ) -> Result<Result<Ran, OperationResult>, StoreError> {
        let (key, now) = match execute {
            Execute::Nothing => return Ok(Ok((Vec::new(), None))),
            Execute::Put { key, value } | Execute::CompareAndSet { key, value, .. } => (key, value.clone()),
            Execute::Increment { key, .. } => (key, Vec::new()),
        };
        let mut write = Write { key: table::value(&header.topic, key), before: None, now };
        write.before = self.get(&write.key)?.map(|row| table::read(&row, Value::decode)).transpose()?;
        let held = write.before.as_ref().map(|it| &it.value);
        let may_read = || self.state.may_read_values(&header.topic, attributes);
        let mut answer = Vec::new();
        match execute {
            Execute::Nothing | Execute::Put { .. } => {}
            Execute::Increment { by, .. } => {
                let held = held.map_or(Some(0), |value| Some(i64::from_be_bytes(value[..].try_into().ok()?)));
                let sum = held.and_then(|held| held.checked_add(*by));
                let Some(sum) = sum else { return Ok(Err(OperationResult::new(Code::NoNumber))) };
                write.now = sum.to_be_bytes().to_vec();
                if may_read() {
                    answer.clone_from(&write.now);
                }
            }
            Execute::CompareAndSet { expected, .. } if held != expected.as_ref() => {
                let said = may_read().then(|| held.map_or(vec![0], |value| [&[1], &value[..]].concat()));
                return Ok(Err(OperationResult::with(Code::Mismatch, said.unwrap_or_default())));
            }
            Execute::CompareAndSet { .. } => {}
        }
        Ok(Ok((answer, Some(write))))
    }

    /// An act of the administrators, each once and in order (E3).
    fn administer(&mut self, admin: &Admin) -> Result<Result<Vec<u8>, OperationResult>, StoreError> {
        let next = self.state.head.next_act;
        if admin.number != next {
            return Ok(Err(OperationResult::number(Code::AdminNumber, next)));
        }
        if admin.verify(&self.state.genesis, &self.state.cluster).is_err() {
            return Ok(Err(OperationResult::new(Code::Signatures)));
        }
        self.held.clear();
        let changed = match &admin.action {
            Action::Policy(policy) => {
                self.state.head.policy += 1;
                let number = self.state.head.policy;
                self.changes.insert(table::policy(number), Some(policy.to_bytes()));
                self.state.policies.insert(number, policy.clone());
                true
            }
            Action::Epoch(epoch) if *epoch > self.state.head.epoch => {
                self.state.head.epoch = *epoch;
                true
            }
            Action::Epoch(_) => false,
            Action::RevokeClient(client) => self.revoke(client)?,
            Action::Restore(client) => self.restore(client)?,
            Action::RevokeCredential { issuer, serial } => self.revoke_credential(issuer, serial)?,
        };
        // An act that changes nothing is used up too: the next one was signed with the next number.
        self.state.head.next_act += 1;
        Ok(if changed { Ok(Vec::new()) } else { Err(OperationResult::new(Code::Futile)) })
    }

    /// Deliver or ⊥, for all whom the block's publications interest, by the state after the block (E2).
    fn notify(&mut self) -> Result<(), StoreError> {
        let mut notices: BTreeMap<Id, Notice> = BTreeMap::new();
        // The publication that is judged for one reader after another.
        let (mut judged, mut headers) = (None, Vec::new());
        for (index, id, place) in std::mem::take(&mut self.ordered) {
            // Who unsubscribed or was ended later in the block gets nothing of it any more.
            if self.state.interests.get(&id).is_none() {
                continue;
            }
            let held = self.attributes(&id.0)?;
            let entry = &self.outbox.publications[index];
            if judged != Some(index) {
                (judged, headers) =
                    (Some(index), if self.state.has_rules(entry) { entry.headers() } else { Vec::new() });
            }
            let deliver = held.is_some_and(|held| self.state.releases(entry, &headers, &held));
            let notice = notices.entry(id).or_insert(Notice {
                client: id.0,
                subscription: id.1,
                first: place,
                runs: Vec::new(),
            });
            notice.push(entry.sn, deliver);
        }
        self.outbox.notices = notices.into_values().collect();
        if !self.outbox.advertisements.is_empty() {
            let mut intents = self.state.interests.clients();
            intents.extend(&self.state.intents);
            self.outbox.intents = intents.into_iter().collect();
        }
        Ok(())
    }

    /// Brings the hashes up to date and stores all of it in one change.
    fn commit(mut self) -> Result<Outbox, StoreError> {
        for (client, record) in std::mem::take(&mut self.clients) {
            if let Some(record) = record {
                self.changes.insert(table::client(&client), Some(record.to_bytes()));
            }
        }
        for id in std::mem::take(&mut self.subscriptions) {
            let row = self.state.interests.get(&id).map(Subscription::to_bytes);
            self.changes.insert(table::subscription(&id.0, id.1), row);
        }
        if self.has_sealed {
            let until = table::accusable(self.state.head.next_sn.saturating_sub(limits::ACCUSABLE));
            let old = self.state.store.range(&table::accusable(0), &until, limits::ACCUSABLE_FORGOTTEN)?;
            self.changes.extend(old.into_iter().map(|(key, _)| (key, None)));
        }
        self.changes.extend(self.runs.topics().chain(self.runs.rows()).map(|(key, row)| (key, Some(row))));
        for (key, value) in self.changes.iter().filter(|(key, _)| table::is_element(key)) {
            let before = self.state.store.get(key)?;
            if before == *value {
                continue;
            }
            self.state.head.change(key, before.as_deref(), value.as_deref());
        }
        self.changes.extend(std::mem::take(&mut self.entries).rows().map(|(key, row)| (key, Some(row))));
        let (height, at) = (self.outbox.height, self.outbox.at);
        for (client, number) in std::mem::take(&mut self.used) {
            self.changes.insert(table::executed(&client, number), Some(height.to_be_bytes().to_vec()));
        }
        if !self.outbox.results.is_empty() {
            self.changes.insert(table::results(height), Some(results::to_bytes(&self.outbox.results)));
        }
        self.outbox.know_leaves(std::mem::take(&mut self.leaves));
        if !self.outbox.publications.is_empty() {
            self.state.head.append(height, &self.outbox.publications_root());
        }
        self.state.head.height = height;
        self.state.head.at = at;
        self.outbox.state_root = self.state.root();
        // Also where nothing happened: brokers testify to the state at these heights.
        if !self.outbox.results.is_empty() || height.is_multiple_of(limits::CHECKPOINT_BLOCKS) {
            self.changes.insert(table::past(height), Some(self.outbox.past().to_bytes()));
        }
        let (key, row) = self.state.head.row();
        self.changes.insert(key, Some(row));
        self.state.store.apply(self.changes)?;
        Ok(self.outbox)
    }

    /// What is known of a client, to be read or changed.
    fn record(&mut self, client: &Client) -> Result<&mut Option<Record>, StoreError> {
        if !self.clients.contains_key(client) {
            let record = self.state.client(client)?;
            self.clients.insert(*client, record);
        }
        Ok(self.clients.get_mut(client).expect("it was just put there"))
    }

    fn attributes(&mut self, client: &Client) -> Result<Option<Rc<[Attribute]>>, StoreError> {
        if let Some(held) = self.held.get(client) {
            return Ok(held.clone());
        }
        let at = self.outbox.at;
        let held: Option<Rc<[Attribute]>> = self.record(client)?.as_ref().and_then(|r| r.attributes(at)).map(Rc::from);
        self.held.insert(*client, held.clone());
        Ok(held)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.changes.get(key) {
            Some(changed) => Ok(changed.clone()),
            None => self.state.store.get(key),
        }
    }
}

/// What an accusation must name of a publication.
fn accusable(client: &Client, number: u64, id: &OperationId) -> Vec<u8> {
    [&client.0[..], &number.to_be_bytes(), &id.0].concat()
}
