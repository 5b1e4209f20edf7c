//! The handle to what brokers do beside carrying a group's messages: publications in clear, acts, subscriptions by interest,
//! reads, receipts.
//!
//! A verb takes the call in; what has to be sent for it leaves when the group is polled next. What a caller waits for is
//! kept under its token until [`Handle::done`] takes it or [`Handle::forget`] gives it up. A publication to be sealed goes
//! through the group that holds the keys; [`Handle::follow`] keeps what the brokers say of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealcast_broker::operation::{Client, Interest, Operation, Publication};
use sealcast_broker::state::{Code, Entry};
use sealcast_delivery::{SendError, Token};
use sealcast_wire::{Now, Utc};

use super::advertised::Advertisements;
use super::item::{Item, Took};
use super::machine::{Done, Machine};
use super::transport::lock;
use super::{Conduct, ConfirmedSubscription, Notice, OrderStatus, Read};

/// See the module. Clones share one client.
#[derive(Clone, Debug)]
pub struct Handle(pub(super) Arc<Mutex<Machine>>);

/// Publications and other operations.
impl Handle {
    /// Publishes in clear, whatever the keys do: brokers and all whom they let read it read it.
    ///
    /// # Errors
    /// As [`super::Quorum::publish`].
    pub fn publish(&self, now: Now, publication: Publication) -> Result<Token, SendError> {
        self.act(now, |machine| machine.quorum.publish(now, publication))
    }

    /// Has any other operation ordered: advertisements, acts of administrators, registrations, `Sync`.
    ///
    /// # Errors
    /// As [`super::Quorum::publish`].
    pub fn submit(&self, now: Now, operation: Operation) -> Result<Token, SendError> {
        self.act(now, |machine| machine.quorum.submit(now, operation))
    }

    fn act(&self, now: Now, verb: impl FnOnce(&mut Machine) -> Result<Token, SendError>) -> Result<Token, SendError> {
        let mut machine = lock(&self.0);
        let token = verb(&mut machine)?;
        machine.acts.insert(token);
        machine.drain(now);
        Ok(token)
    }

    /// Keeps what the brokers say of a message that the group has just taken: block, number, details. What became of the
    /// message the group tells; it may have been sealed again meanwhile.
    pub fn follow(&self, token: Token) {
        lock(&self.0).followed.insert(token);
    }

    /// Takes what a caller waited for, once it is there.
    pub fn done(&self, token: Token) -> Option<Done> {
        lock(&self.0).done.remove(&token)
    }

    /// Nobody waits for this any more.
    pub fn forget(&self, now: Now, token: Token) {
        let mut machine = lock(&self.0);
        match machine.done.remove(&token) {
            _ if machine.followed.remove(&token) => {}
            None => {
                machine.forgotten.insert(token);
            }
            Some(Done::Subscribed(subscription)) => leave(&mut machine, now, subscription),
            Some(Done::Outcome(_) | Done::Read(_) | Done::Receipt(_) | Done::Status(_) | Done::Proofs(_)) => {}
        }
    }

    /// The number that the next operation gets.
    ///
    /// # Errors
    /// As [`super::Quorum::number`].
    pub fn number(&self, now: Now) -> Result<u64, SendError> {
        lock(&self.0).quorum.number(now)
    }

    /// The number that an operation has now; `None` before it has one, and once it is known what became of it.
    pub fn number_of(&self, token: Token) -> Option<u64> {
        lock(&self.0).quorum.number_of(token)
    }

    /// Whether it is known of all operations what became of them.
    pub fn is_settled(&self) -> bool {
        lock(&self.0).quorum.is_settled()
    }

    /// Whether a registration is under way.
    pub fn is_registering(&self) -> bool {
        lock(&self.0).quorum.is_registering()
    }
}

/// Subscriptions by interest.
impl Handle {
    /// Begins to subscribe, or waits again for what nobody waited for any more; `None` if somebody reads the same through
    /// this handle: two readers of one subscription would take it from each other. A subscription of a run before goes on
    /// where its reader left it.
    ///
    /// # Errors
    /// As [`super::Quorum::publish`].
    pub fn subscribe(&self, now: Now, interest: &Interest) -> Result<Option<Token>, SendError> {
        let mut machine = lock(&self.0);
        if let Some((&token, _)) = machine.wanted.iter().find(|(_, it)| *it == interest) {
            return Ok(machine.forgotten.remove(&token).then_some(token));
        }
        if machine.quorum.subscriptions().any(|(id, it, _)| it == interest && machine.readers.is_read(id)) {
            return Ok(None);
        }
        let token = machine.quorum.subscribe(now, interest.clone())?;
        machine.wanted.insert(token, interest.clone());
        machine.drain(now);
        Ok(Some(token))
    }

    /// The next item of a subscription. It is taken: a restarted program goes on behind it.
    pub fn next(&self, now: Now, subscription: u64) -> Option<Item> {
        let mut machine = lock(&self.0);
        let item = machine.readers.take(subscription)?;
        let (place, sn) = item.end();
        machine.quorum.taken(now, subscription, place, sn);
        machine.drain(now);
        Some(item)
    }

    /// Hands over all items of a subscription that can be taken now, to a queue before its reader. They count as waiting
    /// until [`Handle::took`].
    pub fn hand_over(&self, subscription: u64) -> VecDeque<Item> {
        lock(&self.0).readers.hand_over(subscription)
    }

    /// The reader has taken items that were handed over: a restarted program goes on behind them.
    pub fn took(&self, now: Now, subscription: u64, took: &Took) {
        let mut machine = lock(&self.0);
        machine.readers.took(subscription, took);
        let (place, sn) = took.end;
        machine.quorum.taken(now, subscription, place, sn);
        machine.drain(now);
    }

    /// Whether the brokers are asked for no more: readers do not keep up, or too much waits to be opened.
    pub fn is_behind(&self) -> bool {
        lock(&self.0).readers.is_behind()
    }

    /// How many items of a subscription can be taken now.
    pub fn ready(&self, subscription: u64) -> usize {
        lock(&self.0).readers.ready(subscription)
    }

    /// A subscription has no reader any more. It stays, and goes on where its reader left it.
    pub fn leave(&self, now: Now, subscription: u64) {
        leave(&mut lock(&self.0), now, subscription);
    }

    /// Ends a subscription for good.
    ///
    /// # Errors
    /// As [`super::Quorum::publish`].
    pub fn unsubscribe(&self, now: Now, subscription: u64) -> Result<Token, SendError> {
        self.submit(now, Operation::Unsubscribe(subscription))
    }

    /// The client's subscriptions at the brokers, whether or not somebody reads them here.
    pub fn confirmed_subscriptions(&self) -> Vec<ConfirmedSubscription> {
        lock(&self.0).quorum.confirmed_subscriptions()
    }
}

/// Reads and other queries.
impl Handle {
    /// Reads the newest state that f + 1 brokers agree on; [`Done::Read`] answers. What is sealed there [`Handle::open`]
    /// opens.
    ///
    /// # Errors
    /// As [`super::Quorum::read`].
    pub fn read(&self, now: Now, what: Read, linearizable: bool) -> Result<Token, SendError> {
        self.ask(now, |machine| machine.quorum.read(now, what, linearizable))
    }

    /// Begins to open a sealed publication that was read. Each call ends with an answer of [`Handle::opened`] or with
    /// [`Handle::end_read`].
    ///
    /// # Errors
    /// `Full`.
    pub fn open(&self, now: Now, entry: &Entry, publication: &Publication) -> Result<(), SendError> {
        lock(&self.0).open(now, entry, publication)
    }

    /// What opened of a publication that is being read; `Some(None)` is ⊥.
    pub fn opened(&self, sn: u64) -> Option<Option<Vec<Vec<u8>>>> {
        let mut machine = lock(&self.0);
        let opened = machine.reads.get(&sn)?.opened.clone()?;
        machine.end_read(sn);
        Some(opened)
    }

    /// A caller reads a publication no more.
    pub fn end_read(&self, sn: u64) {
        lock(&self.0).end_read(sn);
    }

    /// Asks for the receipt of an operation; [`Done::Receipt`] answers.
    ///
    /// # Errors
    /// `Full`.
    pub fn receipt(&self, now: Now, height: u64, number: u64) -> Result<Token, SendError> {
        self.ask(now, |machine| machine.quorum.receipt(now, height, number))
    }

    /// The same of somebody else's publication.
    ///
    /// # Errors
    /// `Full`.
    pub fn receipt_of(&self, now: Now, entry: &Entry) -> Result<Token, SendError> {
        self.ask(now, |machine| machine.quorum.receipt_of(now, entry))
    }

    /// The same of an operation together with its own bytes.
    ///
    /// # Errors
    /// `Full`.
    pub fn bound(&self, now: Now, height: u64, number: u64) -> Result<Token, SendError> {
        self.ask(now, |machine| machine.quorum.bound(now, height, number))
    }

    /// Asks all brokers for their status; [`Done::Status`] answers.
    ///
    /// # Errors
    /// `Full`.
    pub fn status(&self, now: Now) -> Result<Token, SendError> {
        self.ask(now, |machine| machine.quorum.status(now))
    }

    /// Asks all brokers for the proofs that they keep (E4); [`Done::Proofs`] answers.
    ///
    /// # Errors
    /// `Full`.
    pub fn proofs(&self, now: Now) -> Result<Token, SendError> {
        self.ask(now, |machine| machine.quorum.proofs(now))
    }

    fn ask(&self, now: Now, verb: impl FnOnce(&mut Machine) -> Result<Token, SendError>) -> Result<Token, SendError> {
        let mut machine = lock(&self.0);
        let token = verb(&mut machine)?;
        machine.drain(now);
        Ok(token)
    }

    /// Asks all brokers for the threshold key; [`OrderStatus`] has what they sign.
    pub fn look_for_key(&self, now: Now) {
        let mut machine = lock(&self.0);
        machine.quorum.look_for_key(now);
        machine.drain(now);
    }
}

/// What is known of the order, the brokers and this client.
impl Handle {
    /// Where the order is; `None` before f + 1 brokers said it.
    pub fn order_status(&self) -> Option<OrderStatus> {
        lock(&self.0).quorum.order_status().cloned()
    }

    /// Whether the group can send messages.
    pub fn is_up(&self) -> bool {
        lock(&self.0).is_up
    }

    /// Whether the topics where a group meets are active at the brokers by now, or why they refuse them.
    pub fn group_status(&self) -> Option<Result<(), Code>> {
        lock(&self.0).group_status()
    }

    /// The threshold key that the cluster's file names, or else enough brokers.
    pub fn key(&self) -> Option<Vec<u8>> {
        lock(&self.0).key()
    }

    /// The time of the newest block that f + 1 brokers back (E10).
    pub fn at(&self) -> Option<Utc> {
        lock(&self.0).quorum.at()
    }

    /// How old that block is by the clock here (E6).
    pub fn age(&self, now: Now) -> Option<Duration> {
        lock(&self.0).quorum.age(now)
    }

    /// The client's key, by which the order knows it.
    pub fn client(&self) -> Client {
        *lock(&self.0).quorum.client()
    }

    /// How the brokers behave, by number.
    pub fn conduct(&self) -> Vec<Conduct> {
        lock(&self.0).quorum.conduct().cloned().collect()
    }

    /// Whether every broker has welcomed us.
    pub fn is_complete(&self) -> bool {
        lock(&self.0).quorum.is_complete()
    }

    /// The next thing worth telling the operator.
    pub fn notice(&self) -> Option<Notice> {
        lock(&self.0).notices.pop_front()
    }

    /// What others advertised since the last call.
    pub fn advertised(&self) -> Advertisements {
        lock(&self.0).advertised.take()
    }

    /// The highest sn of a publication that came.
    pub fn newest(&self) -> u64 {
        lock(&self.0).newest
    }

    /// Why the brokers do nothing for this client any more, if they refused an operation for that: nobody vouches for it, or
    /// it is revoked.
    pub fn dismissed(&self) -> Option<Code> {
        lock(&self.0).dismissed
    }

    /// What a restarted client goes on from.
    pub fn record(&self) -> Vec<u8> {
        lock(&self.0).quorum.record()
    }

    /// Counts what came for callers and readers: whoever waits looks again when it has changed.
    pub fn changes(&self) -> u64 {
        lock(&self.0).changes
    }

    /// Whether the group is to be polled: a verb left something to be sent or opened.
    pub fn has_output(&self) -> bool {
        lock(&self.0).has_next()
    }
}

fn leave(machine: &mut Machine, now: Now, subscription: u64) {
    machine.readers.end(subscription);
    if !machine.is_patterns(subscription) {
        machine.quorum.leave(now, subscription);
    }
    machine.drain(now);
}
