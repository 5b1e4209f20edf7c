//! The join of the two axes: any key scheme over any way that gives what it needs.
//!
//! ```text
//!   publish ─▶ Gate ─▶ Delivery::send ─▶ Transmit          handle_datagram
//!                ▲                                               │ by kind: LCM, open, sealed
//!   Prepare, Epoch, Excluded                                Ring (epochs held) ─▶ Protect::open
//!                │                                               ▼
//!              Keys ◀──── Suspect, Flushed, Outcome, Fetched ── Delivery ─▶ Policy ─▶ Deliver
//! ```
//! A group is a value: time and bytes go in, [`Output`]s come out, nothing waits. A session is the
//! shell around it; the simulator is another one. Call a verb, then drain [`Group::poll`].

mod for_delivery;
mod for_keys;
mod gate;
mod held;
pub(crate) mod message;
mod opening;
mod ordered;
mod policy;
mod recent;
mod ring;
#[cfg(test)]
mod tests;
mod vouch;
mod whole;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sealcast_crypto::identity::Pattern;
use sealcast_delivery::{self as delivery, Batch, Delivery, Input, Outgoing, What};
use sealcast_keys::{self as keys, Command, CommandError, Exclusion, Keys, Notice};
use sealcast_wire::{
    Address, CertHash, Dropped, Drops, EpochId, Guarantee, Header, MemberId, Monotonic, Now, PayloadContext, Reason,
    Slot, Source, To, View, frame, limits,
};

pub use gate::{Epoch, Gate, Pass, Publication, PublishError, Route};
pub use message::{Message, Origin, ViewEvent};
pub use whole::Together;

use crate::error::Result;
use crate::url::{OriginMode, pairs};
use held::EarlyDatagrams;
use opening::Opening;
use ordered::{KeysIn, OrderedRecords, Ours};
use ring::{Disposition, Heard, Ring};
use whole::Whole;

/// One group, as one member sees it.
pub struct Group<K, D> {
    keys: K,
    delivery: D,
    gate: Arc<Mutex<Gate>>,
    ring: Ring,
    /// Datagrams of epochs whose key is not agreed yet, and of superseded ones not vouched for yet.
    held: EarlyDatagrams,
    opening: Opening,
    /// Records at their positions, where there is a channel on which one ends epochs.
    ordered: Option<OrderedRecords>,
    /// The last position in the order that was handed on, until the key scheme knows that readers took it.
    untold: Option<u64>,
    /// This run goes on in an epoch of the run before.
    pub(crate) comes_back: bool,
    /// The transport carries messages: the key scheme has begun.
    is_up: bool,
    /// The way waits for us.
    holds: bool,
    /// Readers take nothing now.
    readers_wait: bool,
    /// Why we leave, if the application did not ask for it.
    leaving: Option<Exclusion>,
    /// Messages of ours that the scheme sealed as a whole, until it is known what became of them.
    sealed: BTreeMap<delivery::Token, Whole>,
    /// Names given to messages before the way took them.
    named: u64,
    /// Such messages under way, where the way tells what becomes of them, by what it calls them.
    names: BTreeMap<delivery::Token, delivery::Token>,
    /// Ready to be handed out, before anything new is asked of the axes.
    ready: VecDeque<Output>,
    /// G6: a record is not durable yet; what came after it waits here, but for what concerns this process alone: a member that
    /// follows many epochs waits for the disk once.
    storing: bool,
    blocked_keys: Option<keys::Output>,
    blocked_delivery: Option<(delivery::Output, Batch)>,
    /// Keys' messages by the token that delivery gave them.
    tokens: BTreeMap<delivery::Token, keys::Token>,
    /// Keys' messages that wait for another one to be accepted.
    after: BTreeMap<keys::Token, Vec<keys::Output>>,
    /// Our own vouch, to be said again.
    vouching: Option<Vouching>,
    /// Where members were heard under keys before the current one.
    addresses: BTreeMap<MemberId, Address>,
    drops: Drops,
    /// Whether the change that is being prepared evicts somebody.
    evicting: bool,
    /// Whether the way remembers what it sent last, so that we need not.
    remembers: bool,
    /// Whether members' names are claimed alone: a signature proves none.
    claims_names: bool,
    /// Publishers' threads send reliably without us, and the way names those messages by their numbers.
    numbered: bool,
    /// Members end each view together.
    ends_views: bool,
    /// The last datagram of those, as it came.
    as_sealed: Vec<u8>,
    misbehaved: VecDeque<(CertHash, keys::Misbehaviour)>,
    excluded: Option<Exclusion>,
    /// Members of the installed view that hold all up, as the transport says.
    slow: BTreeSet<CertHash>,
    /// Views of which messages of those before them may still come up, where the way tells when not.
    unshown: VecDeque<(EpochId, ViewEvent)>,
}

/// What a group wants done.
#[derive(Debug)]
pub enum Output {
    /// The batch holds datagrams to be sent now.
    Transmit(To),
    /// An application message.
    Deliver(Message),
    /// What becomes of the state of this topic, in turn with its messages.
    State(Arc<str>, delivery::StateEvent),
    /// The membership changed.
    View(ViewEvent),
    /// Make this durable, then call [`Group::stored`]: nothing later leaves before that (G6). Several in a
    /// row need one sync.
    Store {
        /// Whose record it is.
        of: Axis,
        /// Overwrites the record of the same id.
        id: u64,
        /// The record.
        record: Vec<u8>,
    },
    /// What became of a message that was published with a stronger guarantee than best effort.
    Outcome(delivery::Token, delivery::Outcome),
    /// Something worth telling the operator.
    Notice {
        /// What.
        notice: Notice,
        /// The name of the member that it is about, if the key scheme knows it.
        about: Option<String>,
    },
    /// The transport brings what is published under topics that match from now on, or those who carry it refuse.
    Subscribed(Pattern, std::result::Result<(), Reason>),
    /// The answer to [`Group::describe`].
    Described(Box<keys::Status>),
}

/// Whose record a [`Output::Store`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// The key scheme's.
    Keys,
    /// The way's.
    Delivery,
}

/// A vouch that is said a few times, since a lost one would cost every message under way.
struct Vouching {
    parts: Vec<Vec<u8>>,
    /// What it is said under.
    epoch: EpochId,
    /// Epochs whose packets the transport has not named yet.
    unnamed: usize,
    next: Monotonic,
    left: u32,
}

impl<K: Keys, D: Delivery> Group<K, D> {
    /// Joins a key scheme and a way.
    ///
    /// # Errors
    /// [`crate::code::Code::BadPair`] if the way does not give what the scheme needs.
    pub fn new(keys: K, delivery: D, origin: OriginMode) -> Result<Group<K, D>> {
        pairs::check(&keys.properties(), &delivery.properties())?;
        let properties = delivery.properties();
        let is_up = !properties.connects;
        let by_position = GUARANTEES.map(|it| properties.cuts_by_position(it));
        let keys_in = match keys.properties().commits_in_order() {
            true => KeysIn::Commits,
            false if properties.orders_keys => KeysIn::Messages,
            false => KeysIn::Beside,
        };
        let ordered = by_position.contains(&true).then(|| OrderedRecords::new(keys_in));
        let remembers = by_position[Guarantee::BestEffort as usize] || properties.names_packets;
        Ok(Group {
            remembers,
            claims_names: keys.properties().claims_names,
            numbered: properties.acknowledges(Guarantee::Fifo) && !properties.cuts_by_position(Guarantee::Fifo),
            ends_views: properties.needs_flush,
            as_sealed: Vec::new(),
            keys,
            delivery,
            gate: Arc::new(Mutex::new(Gate::new(origin).cut_by_position(by_position))),
            ring: Ring::default(),
            held: EarlyDatagrams::default(),
            opening: Opening::default(),
            ordered,
            untold: None,
            comes_back: false,
            is_up,
            holds: false,
            readers_wait: false,
            leaving: None,
            sealed: BTreeMap::new(),
            named: 0,
            names: BTreeMap::new(),
            ready: VecDeque::new(),
            storing: false,
            blocked_keys: None,
            blocked_delivery: None,
            tokens: BTreeMap::new(),
            after: BTreeMap::new(),
            vouching: None,
            addresses: BTreeMap::new(),
            drops: Drops::default(),
            evicting: false,
            misbehaved: VecDeque::new(),
            excluded: None,
            slow: BTreeSet::new(),
            unshown: VecDeque::new(),
        })
    }

    /// Publishes one message; it leaves, or is queued, with the next [`Group::poll`]. Its token comes back with what becomes of
    /// it ([`Output::Outcome`]), where the way tells that.
    ///
    /// # Errors
    /// [`PublishError`].
    pub fn publish(
        &mut self,
        now: Now,
        message: Publication<'_>,
    ) -> std::result::Result<delivery::Token, PublishError> {
        if self.delivery.properties().gives(message.guarantee).is_none() {
            return Err(delivery::SendError::NotGiven(message.guarantee).into());
        }
        let gate = self.gate.clone();
        let mut gate = lock(&gate);
        // It takes its place in the sender's order when it is published, and one that waited here could find no room then.
        if self.numbered && message.guarantee > Guarantee::BestEffort && gate.is_paused() {
            return Err(delivery::SendError::Retired.into());
        }
        match gate.admit(&message)? {
            Pass::Queued => {
                self.named += 1;
                let token = delivery::Token(NAMED | self.named);
                gate.name_queued(token);
                Ok(token)
            }
            Pass::Send(epoch, route) => self.send_as(now, &epoch, route, &message, None),
        }
    }

    /// Whether we stay a member when the session is closed.
    pub fn stays(&self) -> bool {
        self.keys.properties().stays
    }

    /// Whether this run goes on in an epoch of the run before, and so is handed what was ordered in between.
    pub fn comes_back(&self) -> bool {
        self.comes_back
    }

    /// The last position in the order that was handed on and that the key scheme does not know to be taken.
    pub fn untold(&self) -> Option<u64> {
        self.untold
    }

    /// Readers took all that has a position below `first_unread`: a later run is not handed it again.
    pub fn taken(&mut self, now: Now, first_unread: Option<u64>) {
        let Some(position) = self.untold else { return };
        let taken = first_unread.map_or(position, |it| position.min(it.saturating_sub(1)));
        if taken == position {
            self.untold = None;
        }
        self.tell_keys(now, keys::Input::Passed(taken));
    }

    /// This process ends: what a later run is to know is stored next.
    pub fn ends(&mut self, now: Now) {
        self.tell_keys(now, keys::Input::Ends);
    }

    /// Whether a message waited for a key when it was published: what the way calls it was not known yet.
    pub fn is_named(token: delivery::Token) -> bool {
        token.0 & NAMED != 0
    }

    /// Sends a message; one that was sent or queued before has that token, and was sent so often.
    fn send_as(
        &mut self,
        now: Now,
        epoch: &Epoch,
        route: Route,
        message: &Publication<'_>,
        before: Option<(delivery::Token, u32)>,
    ) -> std::result::Result<delivery::Token, PublishError> {
        let Publication { topic, body, guarantee, sent_micros } = *message;
        let ours = |token| {
            let (first, tries) = before.unwrap_or((token, 0));
            let message =
                gate::Queued { token: None, topic: topic.into(), body: body.to_vec(), guarantee, sent_micros };
            Ours { first, message, tries }
        };
        let outgoing = |what| Outgoing { what, guarantee, to: To::Group };
        if self.keys.properties().seals_messages {
            return self.send_whole(now, Whole::of_one(topic, body, guarantee, before));
        }
        let properties = self.delivery.properties();
        let sealed = match epoch.protect.as_deref().and_then(|it| it.payload()) {
            Some(payload) => {
                let (epoch, by) = (epoch.view.epoch, epoch.view.me);
                let ordered = properties.cuts_by_position(guarantee);
                let context = PayloadContext { epoch, by, ordered, topic, sent_micros };
                // Until the next epoch, which is asked for in time.
                let sealed = payload.seal(&context, body).map_err(|_| delivery::SendError::Full)?;
                if payload.is_worn() {
                    _ = self.command(now, Command::Rotate);
                }
                Some(sealed)
            }
            None => None,
        };
        let body = sealed.as_deref().unwrap_or(body);
        let what = What::Data { topic, domain: route.domain, signed: route.signed, sent_micros, body };
        let token = self.delivery.send(now, epoch.protect.as_ref(), outgoing(what))?;
        match &mut self.ordered {
            Some(ordered) if properties.cuts_by_position(guarantee) => _ = ordered.ours.insert(token, ours(token)),
            _ if properties.acknowledges(guarantee) => {
                self.names.insert(token, before.map_or(token, |(first, _)| first));
            }
            _ => {}
        }
        Ok(token)
    }

    /// Does what the application asks of the group.
    ///
    /// # Errors
    /// Those of the key scheme.
    pub fn command(&mut self, now: Now, command: Command) -> std::result::Result<(), CommandError> {
        if !self.is_up {
            return Err(CommandError::NotReady);
        }
        if command == Command::Leave && self.delivery.properties().needs_flush {
            self.delivery.handle(now, Input::Leave);
            return Ok(());
        }
        match self.keys.handle(now, keys::Input::Command(command)) {
            Err(keys::HandleError::Refused(why)) => Err(why),
            Ok(()) => Ok(()),
            // No message came that could be dropped; whatever it was, it is not done.
            Err(keys::HandleError::Dropped(_) | keys::HandleError::Misbehaved(..)) => Err(CommandError::Invalid),
        }
    }

    /// Makes those who are here the primary component, though most of the last one are missing (B1): for an operator who knows
    /// that they are gone for good.
    ///
    /// # Errors
    /// Unsupported, where no primary component orders.
    pub fn force_primary(&mut self, now: Now) -> std::result::Result<(), CommandError> {
        if !self.delivery.properties().needs_flush {
            return Err(CommandError::Unsupported);
        }
        self.delivery.handle(now, Input::ForcePrimary);
        Ok(())
    }

    /// Does something with the application's state, where members keep one
    /// ([`Properties::needs_flush`](delivery::Properties::needs_flush)).
    pub fn state(&mut self, now: Now, input: delivery::StateInput<'_>) {
        self.delivery.handle(now, Input::State(input));
    }

    /// Asks the key scheme what it knows of the group: the answer comes as [`Output::Described`], if it knows anything.
    pub fn describe(&mut self, now: Now) {
        self.tell_keys(now, keys::Input::Describe);
    }

    /// Asks the transport for what is published under topics that match: the answer comes as [`Output::Subscribed`], where
    /// [`Properties::subscribes`](delivery::Properties::subscribes).
    pub fn subscribe(&mut self, now: Now, pattern: &Pattern) {
        self.delivery.handle(now, Input::Subscribe(pattern));
    }

    /// Undoes one [`Group::subscribe`].
    pub fn unsubscribe(&mut self, now: Now, pattern: &Pattern) {
        self.delivery.handle(now, Input::Unsubscribe(pattern));
    }

    /// A member is taken for silent, by a failure detector outside the way.
    pub fn suspect(&mut self, now: Now, slot: sealcast_wire::Slot) {
        self.tell_keys(now, keys::Input::Suspected(slot));
    }

    /// Takes in one datagram, and opens it in place; drops are counted by reason.
    pub fn handle_datagram(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        if let Err(why) = self.take_in(now, from, datagram) {
            self.drops.count(why);
        }
    }

    /// A channel to a peer is open, and the peer is the one of this address.
    pub fn connected(&mut self, now: Now, peer: Address) {
        self.delivery.handle(now, Input::Connected(peer));
    }

    /// The channel to a peer is closed, or cannot be opened.
    pub fn disconnected(&mut self, now: Now, peer: Address) {
        self.delivery.handle(now, Input::Disconnected(peer));
    }

    /// A peer's channel brings a whole message.
    pub fn handle_message(&mut self, now: Now, peer: Address, bytes: &[u8]) {
        self.delivery.handle(now, Input::Message { peer, bytes });
    }

    fn take_in(&mut self, now: Now, from: Address, datagram: &mut [u8]) -> std::result::Result<(), Dropped> {
        let plain = self.ring.current().is_some_and(|e| e.protect.is_none());
        match *datagram {
            [b'L', ..] if plain => {
                self.delivery.handle(now, Input::open(from, datagram));
                Ok(())
            }
            [frame::MAGIC, frame::KIND_OPEN, ref mut message @ ..] => {
                if message.len() > limits::OPEN_BYTES_MAX {
                    return Err(Dropped::Malformed);
                }
                // An ordered way finds sealed messages inside, at their places.
                let epoch = self.ring.current().cloned();
                let protect = epoch.as_ref().and_then(|e| e.protect.as_deref());
                let source = Source::Outside(from);
                self.delivery
                    .handle(now, Input::Frame { source, from, flags: 0, frame: message, sealed: None, protect });
                Ok(())
            }
            [frame::MAGIC, frame::KIND_SEALED, ..] => {
                let header = Header::parse(datagram).map_err(|_| Dropped::Malformed)?;
                self.take_sealed(now, from, header, datagram)
            }
            [] => Err(Dropped::Malformed),
            _ => Err(Dropped::Foreign),
        }
    }

    fn take_sealed(
        &mut self,
        now: Now,
        from: Address,
        header: Header,
        datagram: &mut [u8],
    ) -> std::result::Result<(), Dropped> {
        let disposition = match self.ring.disposition(&header, datagram) {
            // What members say of the end of a view does not wait for the next one, though others hold the key. Nor does a record of its
            // order, which its sender may have sealed long before what it vouches for: the stamps name it.
            Disposition::Wait | Disposition::Old if self.ends_views && header.proves_itself() => {
                self.ring.held(header.epoch).map_or(Disposition::Wait, Disposition::Open)
            }
            disposition => disposition,
        };
        match disposition {
            Disposition::Open(at) => {
                let entry = self.ring.at(at);
                let protect = entry.epoch.protect.as_deref().ok_or(Dropped::NoKey)?;
                // Opened in place: who wants to send it again as it came has a copy.
                let kept = self.delivery.properties().keeps_sealed;
                let is_kept = kept.is_some_and(|flags| header.flags & flags == flags);
                if is_kept {
                    self.as_sealed.clear();
                    self.as_sealed.extend_from_slice(datagram);
                }
                let (source, flags, plaintext) = match protect.open(datagram) {
                    // What a sender seals may overtake the key that it hands out by itself (A1).
                    Err(Dropped::NoKey) if protect.awaits_sender(&header) => {
                        return self.hold(now, from, header, datagram, true);
                    }
                    // Of a topic whose key we do not have; it may be for us to hold (B8).
                    Err(Dropped::NoKey) if is_kept => {
                        self.delivery.handle(now, Input::Unread(datagram));
                        return Ok(());
                    }
                    // Nobody can open it; if it has a place in the order all the same, it holds nobody up.
                    Err(Dropped::Auth) if is_kept => {
                        self.delivery.handle(now, Input::Unread(&self.as_sealed));
                        return Ok(());
                    }
                    opened => opened?,
                };
                // Anybody who heard a reliable record can send it again.
                if flags & frame::FLAG_RELIABLE == 0 {
                    entry.heard.insert(header.slot, Heard { at: now.monotonic, from: Some(from) });
                }
                let (sealed, protect) = (is_kept.then_some(&self.as_sealed[..]), Some(protect));
                self.delivery.handle(now, Input::Frame { source, from, flags, frame: plaintext, sealed, protect });
                Ok(())
            }
            Disposition::Wait => self.hold(now, from, header, datagram, false),
            Disposition::Unknown => {
                // Ahead of us, or a little behind where we went on without it: its key may be being agreed. Far behind us:
                // its key is erased. Whoever is alone may come to an epoch of any number.
                let near = |e: &Arc<Epoch>| {
                    let behind = e.view.epoch.counter.saturating_sub(header.epoch.counter);
                    e.view.members.len() == 1 || (behind as usize) < limits::EPOCHS_HELD
                };
                let near = self.ring.current().is_none_or(near);
                if near && self.excluded.is_none() {
                    self.hold(now, from, header, datagram, true)
                } else {
                    Err(Dropped::NoKey)
                }
            }
            Disposition::Erased => Err(Dropped::NoKey),
            // Nobody vouches for what was said in the group's own domain: it is over with its epoch.
            Disposition::Old if header.domain == sealcast_wire::Domain::GROUP => Err(Dropped::Stale),
            Disposition::Old => Err(Dropped::OldKey),
        }
    }

    /// Keeps a datagram; of `unknown` ones, which anybody can make up, less is kept.
    fn hold(
        &mut self,
        now: Now,
        from: Address,
        header: Header,
        datagram: &[u8],
        unknown: bool,
    ) -> std::result::Result<(), Dropped> {
        if self.held.push(now.monotonic, from, header, datagram, unknown) { Ok(()) } else { Err(Dropped::Queue) }
    }

    /// Takes in again what was held, as far as `wanted` says.
    fn release(&mut self, now: Now, wanted: impl FnMut(&Header) -> bool) {
        for mut waiting in self.held.take(wanted) {
            if let Err(why) = self.take_sealed(now, waiting.from, waiting.header, &mut waiting.bytes) {
                self.drops.count(why);
            }
        }
    }

    /// What was asked to be stored is durable: what waited for it may leave.
    pub fn stored(&mut self) {
        self.storing = false;
    }

    /// When [`Group::handle_timeout`] wants to be called next.
    pub fn timeout(&self) -> Option<Monotonic> {
        let held = self.held.oldest().map(|since| since + limits::EPOCH_OVERLAP);
        let vouching = self.vouching.as_ref().filter(|v| v.unnamed == 0).map(|v| v.next);
        let ordered = self.ordered.as_ref().and_then(OrderedRecords::timeout);
        let own = [self.ring.timeout(), held, vouching, ordered];
        let keys = self.keys.timeout().filter(|_| self.is_up);
        [keys, self.delivery.timeout()].into_iter().chain(own).flatten().min()
    }

    /// Readers take nothing now, or again: what was promised to come waits where it is, and its senders with it.
    pub fn readers_wait(&mut self, now: Now, wait: bool) {
        self.readers_wait = wait;
        self.regulate(now);
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.is_up {
            self.keys.handle_timeout(now);
        }
        let epoch = self.ring.current().cloned();
        let protect = epoch.as_ref().and_then(|e| e.protect.as_ref());
        self.delivery.handle_timeout(now, protect);
        let gone = self.ring.expire(now.monotonic);
        for _ in self.held.take(|h| gone.contains(&h.epoch)) {
            self.drops.count(Dropped::OldKey);
        }
        for domain in self.held.expire(now.monotonic, limits::EPOCH_OVERLAP) {
            // What members say of an epoch that never came is over with it.
            let is_message = domain != sealcast_wire::Domain::GROUP;
            self.drops.count(if is_message { Dropped::NoKey } else { Dropped::Stale });
        }
        self.show_views(now, None);
        self.vouch_again(now);
        self.pass_records(now);
    }

    /// The next thing to be done, until there is none; datagrams to transmit are appended to `batch`,
    /// which the caller hands over empty.
    pub fn poll(&mut self, now: Now, batch: &mut Batch) -> Option<Output> {
        loop {
            if !self.storing
                && let Some(output) = self.ready.pop_front()
            {
                return Some(output);
            }
            let next = match self.blocked_keys.take() {
                Some(output) => Some(output),
                None if self.is_up => self.keys.poll(),
                None => None,
            };
            match next {
                Some(keys::Output::Store { id, record }) => {
                    self.storing = true;
                    return Some(Output::Store { of: Axis::Keys, id, record });
                }
                Some(output) if self.storing && !for_keys::stays_inside(&output) => {
                    self.blocked_keys = Some(output);
                    return None;
                }
                Some(output) => {
                    self.do_for_keys(now, output);
                    continue;
                }
                None if self.keys_are_drained(now) => continue,
                None => {}
            }
            let next = match self.blocked_delivery.take() {
                Some((output, held)) => {
                    *batch = held;
                    Some(output)
                }
                None => self.delivery.poll(batch),
            };
            match next {
                Some(delivery::Output::Store { id, record }) => {
                    self.storing = true;
                    return Some(Output::Store { of: Axis::Delivery, id, record });
                }
                Some(output @ delivery::Output::Transmit(_)) if self.storing => {
                    self.blocked_delivery = Some((output, std::mem::take(batch)));
                    return None;
                }
                Some(delivery::Output::Transmit(to)) => {
                    if !self.remembers {
                        lock(&self.gate).sending(now.monotonic, batch);
                    }
                    if let To::Slot(slot) = to {
                        batch.to = self.address_of(slot);
                    }
                    return Some(Output::Transmit(to));
                }
                Some(output) => self.do_for_delivery(now, output),
                None => return None,
            }
        }
    }

    /// Where a member was last heard under the current key, or under one before. Whoever copies its datagrams from elsewhere before they come can
    /// have what is for it alone sent there: that costs the message and shows nothing but ciphertext.
    fn address_of(&self, slot: Slot) -> Option<Address> {
        let entry = self.ring.current_entry()?;
        let now = entry.heard.get(&slot).and_then(|it| it.from);
        now.or_else(|| self.addresses.get(&entry.epoch.view.member(slot)?.id).copied())
    }

    /// Remembers where members were heard under a key that goes: what is for one of them alone would go to all else, until
    /// that one is heard under the next key.
    fn keep_addresses(&mut self, next: &View) {
        let Some(entry) = self.ring.current_entry() else { return };
        let heard = entry.heard.iter().filter_map(|(slot, it)| Some((entry.epoch.view.member(*slot)?.id, it.from?)));
        self.addresses.extend(heard);
        if self.addresses.len() > 2 * next.members.len() {
            self.addresses.retain(|id, _| next.members.contains(id));
        }
    }

    /// The installed epoch.
    pub fn epoch(&self) -> Option<&Arc<Epoch>> {
        self.ring.current()
    }

    /// An epoch whose key is held.
    pub fn epoch_of(&self, epoch: EpochId) -> Option<&Arc<Epoch>> {
        self.ring.held(epoch).map(|at| self.ring.epoch_at(at))
    }

    /// The installed membership.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.ring.current().map(|e| &e.view)
    }

    /// How many members were heard under the current key, ourselves included, and how many there are.
    pub fn on_new_key(&self) -> (usize, usize) {
        match self.ring.current_entry() {
            Some(entry) => {
                let others = entry.heard.len() - usize::from(entry.heard.contains_key(&entry.epoch.view.me));
                (others + 1, entry.epoch.view.members.len())
            }
            None => (0, 0),
        }
    }

    /// By slot: how long ago a member was last heard under the current key, if ever.
    pub fn last_heard(&self, now: Monotonic) -> Vec<Option<Duration>> {
        let Some(entry) = self.ring.current_entry() else { return Vec::new() };
        let slots = entry.epoch.view.members.slots();
        slots.map(|(slot, _)| entry.heard.get(&slot).map(|it| now.since(it.at))).collect()
    }

    /// Why we are out, if so.
    pub fn excluded(&self) -> Option<&Exclusion> {
        self.excluded.as_ref()
    }

    /// The gate, for publishers on other threads.
    pub fn gate(&self) -> Arc<Mutex<Gate>> {
        self.gate.clone()
    }

    /// What was dropped, by reason (G7): by the join, and by the transport as far as it was polled.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Members whose misbehaviour was proved, newest last.
    pub fn misbehaved(&self) -> impl Iterator<Item = &(CertHash, keys::Misbehaviour)> {
        self.misbehaved.iter()
    }

    /// The key scheme, to look at.
    pub fn keys(&self) -> &K {
        &self.keys
    }

    /// The same, for simulations in which it misbehaves.
    #[doc(hidden)]
    pub fn keys_mut(&mut self) -> &mut K {
        &mut self.keys
    }

    /// Whether it is known of all messages of ours what became of them, where that is told.
    pub fn is_settled(&self) -> bool {
        self.sealed.is_empty() && self.ordered.as_ref().is_none_or(OrderedRecords::is_settled)
    }

    /// The way, to look at.
    pub fn delivery(&self) -> &D {
        &self.delivery
    }

    /// The way, for its shell.
    pub fn delivery_mut(&mut self) -> &mut D {
        &mut self.delivery
    }
}

/// All guarantees, in their order.
const GUARANTEES: [Guarantee; 4] = [Guarantee::BestEffort, Guarantee::Fifo, Guarantee::Ordered, Guarantee::Safe];
/// Set in tokens that the group gave itself.
const NAMED: u64 = 1 << 63;

/// A lock whose holder cannot leave half a change behind: what it guards stays usable after a panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
