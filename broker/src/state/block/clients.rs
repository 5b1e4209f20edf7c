//! Who a block's clients are: who vouches for them, until when, and what ends that.
//!
//! Whoever has something standing after a block (a subscription, an intent) has a credential whose time is not over at
//! the block's: what ends with a credential ends in the same block, so that nobody holds room, or hears of anything, for
//! whom no one vouches any more.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_wire::{Utc, limits};

use super::{Block, Origin, accusable};
use crate::operation::{Accusation, Client, Credential, Interest, Registration};
use crate::state::client::Record;
use crate::state::interests::Usage;
use crate::state::outcome::{Code, OperationResult};
use crate::state::store::{Store, StoreError};
use crate::state::{rows, table};

impl<S: Store> Block<'_, S> {
    /// Forgets credentials whose time is over by the block's (E10), but for those by which a suspended publisher would be
    /// known again (E4).
    pub(super) fn expire(&mut self) -> Result<(), StoreError> {
        let at = self.outbox.at;
        let later = self.state.expiries.split_off(&at);
        let over = std::mem::replace(&mut self.state.expiries, later);
        for client in over.into_values().flatten().collect::<BTreeSet<Client>>() {
            let Some(record) = self.record(&client)? else { continue };
            if record.suspended.is_none() {
                let (live, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    std::mem::take(&mut record.credentials).into_iter().partition(|(_, it)| it.not_after >= at);
                record.credentials = live;
                for (issuer, serial) in ended.keys() {
                    self.changes.insert(table::holder(issuer, serial, Some(&client)), None);
                }
            }
            self.vouched_less(&client)?;
        }
        Ok(())
    }

    /// `reg`: who vouches for the client, judged at the block's time (E10), is remembered (E3).
    pub(super) fn register(
        &mut self,
        origin: Origin<'_>,
        asked: &Registration,
    ) -> Result<Result<Vec<u8>, OperationResult>, StoreError> {
        let client = origin.client;
        let Ok(credential) = asked.verify(&self.state.genesis, &self.state.cluster, &client, self.outbox.at) else {
            return Ok(Err(OperationResult::new(Code::Proof)));
        };
        let (issuer, serial) = credential.name();
        if self.get(&table::revoked(&issuer, &serial))?.is_some() {
            return Ok(Err(OperationResult::new(Code::CredentialRevoked)));
        }
        let holders = self.holders(&issuer, &serial)?;
        let before = self.record(&client)?.clone();
        let vouched = before.as_ref().map(|it| it.credentials.clone());
        let mut record = before.unwrap_or_default();
        // Keys are free: without a limit one credential could take all room there is.
        let is_one_of_few = holders.contains(&client) || holders.len() < limits::CLIENTS_PER_CREDENTIAL_MAX;
        if !is_one_of_few || !record.add(&credential) {
            return Ok(Err(OperationResult::new(Code::TooMany)));
        }
        // Whom the same credential vouches for is the same publisher, whatever its key (E4).
        if let Some(since) = holders.iter().filter_map(|it| self.state.suspended.get(it)).min().copied() {
            record.suspended.get_or_insert(since);
            self.state.suspended.insert(client, since);
        }
        record.intent = asked.intent;
        let intents = &mut self.state.intents;
        if asked.intent {
            intents.insert(client)
        } else {
            intents.remove(&client)
        };
        self.state.ends(credential.not_after, client);
        self.changes.insert(table::holder(&issuer, &serial, Some(&client)), Some(Vec::new()));
        // Who says again what is known makes nobody look anything up anew.
        let is_new = vouched.as_ref() != Some(&record.credentials);
        self.clients.insert(client, Some(record));
        if is_new {
            self.vouching_changed(&client);
        }
        Ok(Ok(Vec::new()))
    }

    /// Whether one more subscription of the client's has room.
    pub(super) fn has_capacity(&mut self, client: &Client, interest: &Interest) -> Result<bool, StoreError> {
        let with = |mut held: Usage| {
            held.add(interest.to_bytes().len());
            held
        };
        let all = with(self.state.interests.all());
        if self.state.interests.of_client(client).count() >= limits::SUBSCRIPTIONS_PER_CLIENT_MAX
            || all.subscriptions > limits::SUBSCRIPTIONS_MAX
            || all.bytes > limits::SUBSCRIPTIONS_BYTES_MAX
        {
            return Ok(false);
        }
        let credentials: Vec<_> = self.record(client)?.iter().flat_map(|it| it.credentials.keys()).cloned().collect();
        let mut active = Vec::with_capacity(credentials.len());
        for name in credentials {
            let held = match self.active.get(&name) {
                Some(held) => *held,
                None => self.state.interests.held(&self.holders(&name.0, &name.1)?),
            };
            let held = with(held);
            if held.subscriptions > limits::SUBSCRIPTIONS_PER_CREDENTIAL_MAX
                || held.bytes > limits::SUBSCRIPTIONS_BYTES_PER_CREDENTIAL_MAX
            {
                return Ok(false);
            }
            active.push((name, held));
        }
        self.active.extend(active);
        Ok(true)
    }

    /// Ends a client, also one that never came: its key is never good again (E2).
    pub(super) fn revoke(&mut self, client: &Client) -> Result<bool, StoreError> {
        let record = self.record(client)?.get_or_insert_default();
        if record.revoked {
            return Ok(false);
        }
        record.revoked = true;
        self.vouched_less(client)?;
        Ok(true)
    }

    /// Ends a credential: who held it loses what it says, and nobody registers with it again.
    pub(super) fn revoke_credential(&mut self, issuer: &str, serial: &[u8]) -> Result<bool, StoreError> {
        let row = table::revoked(issuer, serial);
        if self.get(&row)?.is_some() {
            return Ok(false);
        }
        self.changes.insert(row, Some(Vec::new()));
        for client in self.holders(issuer, serial)? {
            if let Some(record) = self.record(&client)? {
                record.credentials.remove(&(issuer.to_owned(), serial.to_vec()));
            }
            self.changes.insert(table::holder(issuer, serial, Some(&client)), None);
            self.vouched_less(&client)?;
        }
        Ok(true)
    }

    /// Somebody vouches for the client no longer: if nobody does, what it has standing ends.
    fn vouched_less(&mut self, client: &Client) -> Result<(), StoreError> {
        self.vouching_changed(client);
        if self.attributes(client)?.is_some() {
            return Ok(());
        }
        self.state.intents.remove(client);
        for id in self.state.interests.of(client) {
            self.state.interests.remove(&id);
            self.subscriptions.insert(id);
        }
        Ok(())
    }

    /// What was remembered of who vouches for the client is no longer so.
    fn vouching_changed(&mut self, client: &Client) {
        self.held.remove(client);
        self.active.clear();
        self.state.vouching += 1;
    }

    /// Evidence against a publisher (E4). That it convicts, brokers checked before it was ordered; here it is seen that
    /// what it convicts of was published. Each publication costs its publisher one suspension at most.
    pub(super) fn accuse(&mut self, it: &Accusation) -> Result<Result<Vec<u8>, OperationResult>, StoreError> {
        let published = self.get(&table::accusable(it.sn))?;
        if published != Some(accusable(&it.client, it.number, &it.accused())) {
            return Ok(Err(OperationResult::new(Code::Unfounded)));
        }
        let open = |record: &Record| record.suspended.is_none() && record.forgiven <= it.sn;
        if !self.record(&it.client)?.as_ref().is_some_and(open) {
            return Ok(Err(OperationResult::new(Code::Futile)));
        }
        let since = self.outbox.height;
        for client in self.same_holder(&it.client)? {
            if let Some(record) = self.record(&client)? {
                let since = *record.suspended.get_or_insert(since);
                self.state.suspended.insert(client, since);
            }
        }
        Ok(Ok(it.client.0.to_vec()))
    }

    /// Lifts a suspension, and forgives what was published before.
    pub(super) fn restore(&mut self, client: &Client) -> Result<bool, StoreError> {
        if self.record(client)?.as_ref().is_none_or(|it| it.suspended.is_none()) {
            return Ok(false);
        }
        let forgiven = self.state.head.next_sn;
        for client in self.same_holder(client)? {
            if let Some(record) = self.record(&client)? {
                (record.suspended, record.forgiven) = (None, forgiven);
                let ends: Vec<Utc> = record.credentials.values().map(|it| it.not_after).collect();
                self.state.suspended.remove(&client);
                // What was kept of it beyond its time may go.
                ends.into_iter().for_each(|end| self.state.ends(end, client));
            }
        }
        Ok(true)
    }

    /// The client and all others for whom one of its credentials vouches too.
    fn same_holder(&mut self, client: &Client) -> Result<BTreeSet<Client>, StoreError> {
        let mut all = BTreeSet::from([*client]);
        let credentials: Vec<_> = self.record(client)?.iter().flat_map(|it| it.credentials.keys()).cloned().collect();
        for (issuer, serial) in credentials {
            all.extend(self.holders(&issuer, &serial)?);
        }
        Ok(all)
    }

    /// For whom a credential vouches.
    fn holders(&self, issuer: &str, serial: &[u8]) -> Result<BTreeSet<Client>, StoreError> {
        let prefix = table::holder(issuer, serial, None);
        let mut found = stored_holders(&self.state.store, &prefix)?;
        for (key, value) in self.changes.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix)) {
            if value.is_some() {
                found.insert(key.clone())
            } else {
                found.remove(key)
            };
        }
        found.iter().map(|key| table::read(&key[prefix.len()..], |r| Ok(Client(r.array()?)))).collect()
    }
}

/// Whether a credential may vouch for this client, as the rows say now: it is not revoked, nor are there too many others.
///
/// # Errors
/// The storage failed.
pub fn may_vouch(store: &impl Store, credential: &Credential, client: &Client) -> Result<bool, StoreError> {
    let (issuer, serial) = credential.name();
    if store.get(&table::revoked(&issuer, &serial))?.is_some() {
        return Ok(false);
    }
    let holders = stored_holders(store, &table::holder(&issuer, &serial, None))?;
    let is_one = holders.contains(&table::holder(&issuer, &serial, Some(client)));
    Ok(is_one || holders.len() < limits::CLIENTS_PER_CREDENTIAL_MAX)
}

/// The keys of the rows of a credential's clients.
fn stored_holders(store: &impl Store, prefix: &[u8]) -> Result<BTreeSet<Vec<u8>>, StoreError> {
    rows(store, prefix).map(|(key, row)| row.map(|_| key)).collect()
}
