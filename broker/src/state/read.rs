//! Reading without ordering (Chios III-A, `read`): always judged on the newest executed state (E2).

use sealcast_crypto::identity::Attribute;
use sealcast_wire::limits;

use super::entries::Finder;
use super::entry::Entry;
use super::store::{Store, StoreError};
use super::{State, entries, index, table};
use crate::operation::{Act, Client, Header, Policy};

/// What stands at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A publication that the client may read.
    Publication(Box<Entry>),
    /// One that it may not: ⊥.
    Empty,
}

/// A position in a topic and what is published there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPosition {
    /// The number at the topic.
    pub ps: u64,
    /// What stands there.
    pub reading: Reading,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// This broker has not come as far as the client has seen (E9); another one has.
    #[error("this broker is at height {height}, below what the client has seen")]
    Behind {
        /// Where it is.
        height: u64,
    },
    /// Nobody vouches for the client, or it was ended, or the policy keeps it from the topic's values.
    #[error("the client may not read")]
    Denied,
    /// It was there once and is no longer kept.
    #[error("it is no longer kept")]
    Pruned,
    /// The client has no such subscription.
    #[error("no such subscription")]
    NoSubscription,
    /// The storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<S: Store> State<S> {
    /// What stands at a topic's place; `None` if nothing does yet. What it is never changes, only whether
    /// this client may read it (E9).
    ///
    /// # Errors
    /// `Denied`, `Pruned` or `Store`.
    pub fn read(&self, client: &Client, header: &Header, ps: u64) -> Result<Option<Reading>, ReadError> {
        let attributes = self.reader(client)?;
        let Some(sn) = index::find(&self.store, header, ps, 1)?.pop() else {
            return if ps < self.next_ps(header)? { Err(ReadError::Pruned) } else { Ok(None) };
        };
        // Rows go some time after the low-water mark is raised.
        if sn < self.low_water_mark.sn {
            return Err(ReadError::Pruned);
        }
        let entry = self.entry(sn)?;
        Ok(Some(self.judge(entry, &attributes)))
    }

    /// The places of a topic from a number on, at most `limit` of them and of [`limits::READ_POSITIONS_MAX`], at a broker that has
    /// executed block `min_height`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_range(
        &self,
        client: &Client,
        header: &Header,
        from: u64,
        limit: usize,
        min_height: u64,
    ) -> Result<Vec<TopicPosition>, ReadError> {
        self.reached(min_height)?;
        let attributes = self.reader(client)?;
        let sns = index::find(&self.store, header, from, limit.min(limits::READ_POSITIONS_MAX))?;
        let is_pruned = match sns.first() {
            Some(sn) => *sn < self.low_water_mark.sn,
            None => from < self.next_ps(header)?,
        };
        if is_pruned {
            return Err(ReadError::Pruned);
        }
        let (mut places, mut room) = (Vec::new(), limits::ANSWER_ENTRIES_BYTES);
        let mut finder = Finder::new(&self.store);
        for (sn, ps) in sns.into_iter().zip(from..) {
            let row = finder.find(sn)?.ok_or_else(|| missing(sn))?;
            let entry = entries::read(&row)?;
            places.push(TopicPosition { ps, reading: self.judge(entry, &attributes) });
            // One is answered however long it is.
            match room.checked_sub(row.len()) {
                Some(left) => room = left,
                None => break,
            }
        }
        Ok(places)
    }

    /// The last place of a topic, at a broker that has executed block `min_height`; `None` if it has none.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_latest(
        &self,
        client: &Client,
        header: &Header,
        min_height: u64,
    ) -> Result<Option<TopicPosition>, ReadError> {
        self.reached(min_height)?;
        let Some(ps) = self.next_ps(header)?.checked_sub(1) else {
            return self.reader(client).map(|_| None);
        };
        Ok(self.read(client, header, ps)?.map(|reading| TopicPosition { ps, reading }))
    }

    /// A value of the key–value state, and the block that changed it last. Who may read it, the policy says of its topic.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_value(
        &self,
        client: &Client,
        topic: &str,
        key: &[u8],
        min_height: u64,
    ) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        self.reached(min_height)?;
        let attributes = self.reader(client)?;
        if !self.may_read_values(topic, &attributes) {
            return Err(ReadError::Denied);
        }
        let row = self.store.get(&table::value(topic, key))?;
        let found = row.map(|row| table::read(&row, table::Value::decode)).transpose()?;
        Ok(found.map(|it| (it.height, it.value)))
    }

    /// Whether the policy in force lets somebody with these attributes read a topic's values.
    pub(super) fn may_read_values(&self, topic: &str, attributes: &[Attribute]) -> bool {
        let header = Header { topic: topic.to_owned(), value: None };
        self.policy().1.allows(Act::Read, &[header], attributes)
    }

    /// The global policy in force and its number, at a broker that has executed block `min_height`. Its rules name topics and
    /// attributes: to whom they are told says [`State::tells`].
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_policy(&self, client: &Client, min_height: u64) -> Result<(u64, &Policy), ReadError> {
        self.reached(min_height)?;
        self.tells(client)?;
        Ok(self.policy())
    }

    /// Whether a client is told what concerns all and is nobody's business outside: if somebody vouches for it, for it is
    /// ruled by it; or if it is an administrator, by the key that genesis names, who needs no registration to rule.
    ///
    /// # Errors
    /// `Denied`, or `Store`.
    pub fn tells(&self, client: &Client) -> Result<(), ReadError> {
        match self.administers(client) {
            true => Ok(()),
            false => self.reader(client).map(drop),
        }
    }

    /// Whether a client's key is one of the administrators' in genesis.
    pub(super) fn administers(&self, client: &Client) -> bool {
        self.genesis.administrators.iter().any(|key| *key.as_bytes() == client.0)
    }

    /// Whether a share of the publication with this sn may leave for the client now (E2).
    ///
    /// # Errors
    /// `Store`.
    pub fn may_read(&self, client: &Client, sn: u64) -> Result<bool, ReadError> {
        match self.published(sn)? {
            Some(entry) => self.may_read_entry(client, &entry),
            None => Ok(false),
        }
    }

    /// The same of a publication that is at hand.
    ///
    /// # Errors
    /// `Store`.
    pub fn may_read_entry(&self, client: &Client, entry: &Entry) -> Result<bool, ReadError> {
        match self.reader(client) {
            Ok(attributes) => Ok(self.releases(entry, &entry.headers(), &attributes)),
            Err(ReadError::Store(error)) => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    /// The publication with this sn, for the broker itself.
    ///
    /// # Errors
    /// There is none, or the storage failed.
    pub fn entry(&self, sn: u64) -> Result<Entry, StoreError> {
        self.published(sn)?.ok_or_else(|| missing(sn))
    }

    /// The publication with this sn, if there is one, for the broker itself.
    ///
    /// # Errors
    /// The storage failed.
    pub fn published(&self, sn: u64) -> Result<Option<Entry>, StoreError> {
        entries::find(&self.store, sn)?.map(|entry| entries::read(&entry)).transpose()
    }

    /// The place that a topic's next publication gets.
    fn next_ps(&self, header: &Header) -> Result<u64, StoreError> {
        self.store.get(&table::topic(header))?.map_or(Ok(0), |row| table::number(&row))
    }

    fn judge(&self, entry: Entry, attributes: &[Attribute]) -> Reading {
        if self.releases(&entry, &entry.headers(), attributes) {
            Reading::Publication(Box::new(entry))
        } else {
            Reading::Empty
        }
    }

    pub(super) fn reader(&self, client: &Client) -> Result<Vec<Attribute>, ReadError> {
        self.client(client)?.and_then(|r| r.attributes(self.head.at)).ok_or(ReadError::Denied)
    }

    pub(super) fn reached(&self, min_height: u64) -> Result<(), ReadError> {
        let height = self.head.height;
        if height < min_height { Err(ReadError::Behind { height }) } else { Ok(()) }
    }
}

fn missing(sn: u64) -> StoreError {
    StoreError(format!("publication {sn} is missing"))
}
