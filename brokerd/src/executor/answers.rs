//! Answers to clients, each judged on the newest executed state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealcast_broker::operation::{Client, Interest};
use sealcast_broker::protocol::{ActiveSubscription, Answer, Contents, Query, Status, Update, Welcome, Why};
use sealcast_broker::receipt::{Fact, Testimony};
use sealcast_broker::state::{Entry, Part, Past, ReadError, Resuming, StoreError, TopicPosition};
use sealcast_wire::limits;

use super::Shared;
use super::recent::{Kept, operation_of};

impl Shared {
    pub(super) fn welcome(&self, client: &Client) -> Welcome {
        let state = self.state();
        // A broker whose storage fails says so when it is asked something.
        let record = state.client(client).ok().flatten();
        let active = |(id, interest, since, next): (u64, &Interest, u64, u64)| ActiveSubscription {
            id,
            interest: interest.clone(),
            since,
            next,
        };
        Welcome {
            broker: self.index,
            height: state.height(),
            at: state.time(),
            sn: state.next_sn(),
            policy: state.policy().0,
            epoch: state.epoch(),
            registered: record.as_ref().is_some_and(|it| it.attributes(state.time()).is_some()),
            next: record.map_or(0, |it| it.next),
            subscriptions: state.subscriptions(client).map(active).collect(),
            key: self.release.signed_key(),
        }
    }

    pub(super) fn answer(&self, client: &Client, query: Query) -> Answer {
        self.find(client, query).unwrap_or_else(Answer::No)
    }

    fn find(&self, client: &Client, query: Query) -> Result<Answer, Why> {
        let read = |error| match error {
            ReadError::Behind { .. } => Why::Behind,
            ReadError::Denied => Why::Denied,
            ReadError::NoSubscription => Why::Nothing,
            ReadError::Pruned => Why::Pruned,
            ReadError::Store(_) => Why::Storage,
        };
        let found =
            |places: Vec<TopicPosition>| if places.is_empty() { Err(Why::Nothing) } else { Ok(Answer::Places(places)) };
        match query {
            Query::Update { height } => self.update(client, height),
            Query::Result { number } => {
                let (height, results) = self.state().result(client, number).map_err(storage)?.ok_or(Why::Nothing)?;
                Ok(Answer::Result { height, results })
            }
            Query::Receipt { height, number } => self.testify(client, height, number),
            Query::Witness { sn } => {
                let entry = self.readable(client, sn)?;
                self.testify(&entry.client, entry.height, entry.number)
            }
            Query::TopicPosition { header, ps } => {
                let reading = self.state().read(client, &header, ps).map_err(read)?;
                found(reading.map(|reading| TopicPosition { ps, reading }).into_iter().collect())
            }
            Query::Range { header, from, limit, min_height } => {
                found(self.state().read_range(client, &header, from, usize::from(limit), min_height).map_err(read)?)
            }
            Query::Latest { header, min_height } => {
                found(self.state().read_latest(client, &header, min_height).map_err(read)?.into_iter().collect())
            }
            Query::Value { topic, key, min_height } => {
                self.state().read_value(client, &topic, &key, min_height).map(Answer::Value).map_err(read)
            }
            Query::Evidence => {
                self.state().tells(client).map_err(read)?;
                Ok(Answer::Evidence(self.outlet.evidence()))
            }
            Query::Policy { min_height } => {
                let state = self.state();
                let (number, policy) = state.read_policy(client, min_height).map_err(read)?;
                Ok(Answer::Policy { number, policy: policy.clone() })
            }
            Query::Subject { subject, min_height } => {
                self.state().read_subject(client, &subject, min_height).map(Answer::Subject).map_err(read)
            }
            Query::Resume { subscription, place, sn, min_height } => {
                let mut resuming = Resuming::new(*client, subscription, place, sn, min_height);
                // Blocks are executed between two steps.
                while resuming.step(&self.state()).map_err(read)? {}
                let it = resuming.found();
                Ok(Answer::Resumed { lost: it.lost, notice: it.notice, until: it.until, publications: it.publications })
            }
            Query::Bodies { sns } => self.bodies(client, &sns),
            Query::Share { sn, proved } => self.release.answer(self, client, sn, proved).map(Answer::Share),
            Query::Status => Ok(Answer::Status(Box::new(self.status()))),
            Query::Key => self.release.signed_key().map(Answer::Key).ok_or(Why::Nothing),
            Query::History => self.history(client),
            Query::Checkpoint { height } => self.checkpoint(client, height),
            Query::Part { height, offset } => self.part(client, height, offset),
        }
    }

    /// A block's update with contents, and with the bodies of what the client may read now (E2): what it was let read in
    /// the block it may have been forbidden since.
    fn update(&self, client: &Client, height: u64) -> Result<Answer, Why> {
        let kept = self.kept(height)?;
        let contents = Contents::of(&kept.outbox, client).ok_or(Why::Nothing)?;
        let digest = contents.digest(&self.cluster, client, height);
        let mut readable = BTreeSet::new();
        if !contents.publications.is_empty() || !contents.advertisements.is_empty() {
            let state = self.state();
            let record = state.client(client).map_err(storage)?;
            if record.is_none_or(|it| it.attributes(state.time()).is_none()) {
                return Err(Why::Denied);
            }
            readable.extend(contents.advertisements.iter().map(|it| it.sn));
            for it in &contents.publications {
                match state.may_read_entry(client, it) {
                    Ok(true) => readable.insert(it.sn),
                    Ok(false) => continue,
                    Err(_) => return Err(Why::Storage),
                };
            }
        }
        let contents = kept.with_bodies(contents, &*self.blocks, |sn| readable.contains(&sn));
        Ok(Answer::Update(Update { height, digest, contents: Some(contents) }))
    }

    /// This broker's word on what became of an operation (E1). The block is signed when the first one asks.
    fn testify(&self, client: &Client, height: u64, number: u64) -> Result<Answer, Why> {
        let kept = match self.kept(height) {
            Err(Why::Pruned) => return self.testify_of_old(client, height, number),
            kept => kept?,
        };
        let outbox = &kept.outbox;
        let (fact, proof) = Fact::of(outbox, client, number).ok_or(Why::Nothing)?;
        let signature = *kept.signature.get_or_init(|| self.key.sign(&outbox.executed(&self.cluster)));
        let state_root = outbox.state_root;
        Ok(Answer::Receipt(Box::new(Testimony { broker: self.index, height, state_root, fact, proof, signature })))
    }

    /// The same of a block of long ago, for as long as its publications are kept. All of the block is read and hashed:
    /// for clients alone, and no block waits meanwhile.
    fn testify_of_old(&self, client: &Client, height: u64, number: u64) -> Result<Answer, Why> {
        let (rows, newest, low_water_mark) = {
            let state = self.state();
            state.client(client).map_err(storage)?.ok_or(Why::Nothing)?;
            (self.rows.freeze(), state.height(), state.low_water_mark().height)
        };
        let past = match Past::of(&rows, height).map_err(storage)? {
            Some(past) => past,
            None if height <= low_water_mark => return Err(Why::Pruned),
            None => return Err(Why::Nothing),
        };
        let (fact, proof) = match past.publication(&rows, client, number).map_err(storage)? {
            Some((index, entry, leaves)) => {
                (Fact::Published(Box::new(entry)), past.prove(Part::Publication, index, &leaves))
            }
            None => match past.result(&rows, client, number).map_err(storage)? {
                Some((index, results, leaves)) => (Fact::Executed(results), past.prove(Part::Result, index, &leaves)),
                // What became of other operations is forgotten sooner.
                None if newest - height >= limits::RESULTS_KEPT_BLOCKS => return Err(Why::Pruned),
                None => return Err(Why::Nothing),
            },
        };
        let proof = proof.ok_or(Why::Storage)?;
        let signature = self.key.sign(&past.executed(&self.cluster));
        let state_root = past.state_root;
        Ok(Answer::Receipt(Box::new(Testimony { broker: self.index, height, state_root, fact, proof, signature })))
    }

    pub(crate) fn kept(&self, height: u64) -> Result<Arc<Kept>, Why> {
        match self.recent().get(height) {
            Some(kept) => Ok(kept),
            None if height > self.height.load(Ordering::Acquire) => Err(Why::Behind),
            None => Err(Why::Pruned),
        }
    }

    /// The operations of these publications, those left out that the client may not read or that are no longer kept.
    fn bodies(&self, client: &Client, sns: &[u64]) -> Result<Answer, Why> {
        let (mut bodies, mut room) = (Vec::new(), limits::UPDATE_BODIES_BYTES_MAX);
        let mut first = None;
        for sn in sns.iter().take(limits::READ_POSITIONS_MAX) {
            match self.readable(client, *sn).and_then(|entry| self.operation(&entry)) {
                Ok(operation) => match room.checked_sub(operation.len()) {
                    Some(left) => {
                        room = left;
                        bodies.push((*sn, operation));
                    }
                    None => break,
                },
                Err(why) => {
                    first.get_or_insert(why);
                }
            }
        }
        if bodies.is_empty() { Err(first.unwrap_or(Why::Nothing)) } else { Ok(Answer::Bodies(bodies)) }
    }

    /// Whether it was ever registered here: whoever was not is told nothing that takes time to find.
    pub(crate) fn is_client(&self, client: &Client) -> Result<bool, Why> {
        Ok(self.state().client(client).map_err(storage)?.is_some())
    }

    /// The publication with this sn if the client may read it now (E2).
    pub(crate) fn readable(&self, client: &Client, sn: u64) -> Result<Entry, Why> {
        let state = self.state();
        match state.published(sn).map_err(storage)? {
            // Whoever may read nothing is not told what there is.
            Some(entry) => match state.may_read_entry(client, &entry) {
                Ok(true) => Ok(entry),
                Err(ReadError::Store(_)) => Err(Why::Storage),
                _ => Err(Why::Denied),
            },
            None if sn < state.low_water_mark().sn => Err(Why::Pruned),
            None => Err(Why::Nothing),
        }
    }

    /// A publication's operation, from a recent block or from the order's archive.
    pub(crate) fn operation(&self, entry: &Entry) -> Result<Vec<u8>, Why> {
        let kept = self.recent().get(entry.height);
        let here = kept.and_then(|kept| kept.batch(entry.batch)).and_then(|batch| operation_of(entry, &batch));
        let found = here.or_else(|| operation_of(entry, &self.blocks.batch(entry.height, entry.batch)?));
        found.ok_or(Why::Pruned)
    }

    fn status(&self) -> Status {
        let (height, state_root, at, policy, epoch, next_act, low_water_mark, suspended) = {
            let state = self.state();
            let suspended = state.suspended().iter().take(limits::SUSPENDED_SHOWN).map(|(client, at)| (*client, *at));
            (
                state.height(),
                state.root(),
                state.time(),
                state.policy().0,
                state.epoch(),
                state.next_act(),
                state.low_water_mark(),
                suspended.collect(),
            )
        };
        let mut status = Status {
            broker: self.index,
            height,
            state_root,
            at,
            policy,
            epoch,
            next_act,
            tip: height,
            low_water_mark,
            suspended,
            key_age: self.release.key_age(),
            has_share: self.release.has_share(),
            running: self.failure.get().is_none(),
            ..Status::default()
        };
        self.outlet.describe(&mut status);
        status
    }
}

fn storage(_: StoreError) -> Why {
    Why::Storage
}
