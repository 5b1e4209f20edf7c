//! Two channels: best effort, one datagram per message, and one total order over an [`Orderer`](super::Orderer).
//!
//! ```text
//! send ─ Submit ─▶ Orderer ─ Entry ─▶ everybody, in the order of its index
//!                     └── Ordered ─▶ who submitted
//! ```
//! A client submits again until it hears what became of its message; the same bytes are the same message, which has one
//! position. Its outcome is reported there, after everything before it. Sealed datagrams come back as
//! [`Output::Record`], and their receiver opens them at their position.
//!
//! Each entry names the hash of all before it, so that a client sees when it is shown another order than before. That hash,
//! where a view is flushed, is the cut: at the message that leads to the next view, or at an entry of our own, which is the
//! same for all who prepare that view, and so has one position.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealcast_crypto::hash::sha256;
use sealcast_wire::frame::{FLAG_RELIABLE, KIND_SEALED};
use sealcast_wire::limits::{
    FORMER_EPOCHS_MAX, OFFER_BYTES_MAX, ORDERED_AHEAD_MAX, ORDERED_PENDING_MAX, SUBMITTED_MAX,
};
use sealcast_wire::{
    Address, Agreement, Dropped, EpochId, Fetch, FetchId, Fetched, Fetches, Flush, Guarantee, KeyPackages, Monotonic,
    Now, Protect, Source, To,
};

use super::best_effort::BestEffort;
use super::frame::{Chain, EntryId, Frame, chained};
use super::{open_content, open_datagram};
use crate::{Batch, Channel, Cut, Delivered, Delivery, Input, Outcome, Outgoing, Output, Properties, SendError, Token};

/// The machine of an ordered `mem:`.
#[derive(Debug)]
pub struct Ordered {
    orderer: Address,
    best_effort: BestEffort,
    /// The next index to deliver; `None` until we know where the order stands.
    next: Option<u64>,
    ahead: BTreeMap<u64, (EntryId, Chain, Vec<u8>)>,
    /// The hash of the order before `next`, once something of it came.
    chain: Option<Chain>,
    /// Of the order up to key schemes' messages, by their positions.
    cuts: BTreeMap<u64, Chain>,
    /// Of the order up to where views were flushed, the newest last.
    flushed: VecDeque<(EpochId, Chain)>,
    /// The prepared epoch whose flush is waited for, and the entry that ends it.
    flushing: Option<(EpochId, EntryId)>,
    pending: BTreeMap<EntryId, Pending>,
    asked: BTreeMap<FetchId, Fetching>,
    provided: BTreeMap<Fetch, Provided>,
    again_at: Monotonic,
    started: bool,
    /// Everything goes through the order; by this number no two messages are the same.
    all: Option<u64>,
}

/// Where in the order a client begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the first message ever.
    Beginning,
    /// With what is ordered from now on.
    Head,
    /// With this index.
    At(u64),
}

#[derive(Debug)]
struct Pending {
    token: Token,
    datagram: Vec<u8>,
    retry_at: Monotonic,
    tries: u32,
    /// Its position, once the orderer has told.
    ordered: Option<(u64, Chain)>,
}

#[derive(Debug)]
struct Provided {
    datagram: Vec<u8>,
    retry_at: Monotonic,
    tries: u32,
}

#[derive(Debug)]
struct Fetching {
    what: Fetch,
    retry_at: Monotonic,
    tries: u32,
}

impl Ordered {
    /// What it gives, unless everything goes through the order.
    pub const PROPERTIES: Properties = Properties {
        fifo: Some(CHANNEL),
        ordered: Some(CHANNEL),
        fetches: Fetches { directory: true, shares: true },
        ..Properties::BEST_EFFORT
    };

    /// A client of the orderer at that address.
    pub fn new(orderer: Address, start: Start) -> Ordered {
        Ordered::over(BestEffort::new(), orderer, start)
    }

    /// The same for `keys=plain`.
    ///
    /// Unsealed messages of two clients can be the same bytes, and the same bytes are one message, so each client
    /// numbers its own from a `first` that it drew at random.
    pub fn plain(orderer: Address, start: Start, first: u64) -> Ordered {
        Ordered::over(BestEffort::plain_from(first), orderer, start)
    }

    /// A client that sends everything through the order, best effort and key schemes' messages too, as clients of brokers
    /// do. `first` is drawn at random.
    pub fn ordering_all(orderer: Address, start: Start, first: u64) -> Ordered {
        Ordered { all: Some(first), ..Ordered::over(BestEffort::new(), orderer, start) }
    }

    fn over(best_effort: BestEffort, orderer: Address, start: Start) -> Ordered {
        Ordered {
            orderer,
            best_effort,
            next: match start {
                Start::Beginning => Some(0),
                Start::Head => None,
                Start::At(index) => Some(index),
            },
            ahead: BTreeMap::new(),
            chain: None,
            cuts: BTreeMap::new(),
            flushed: VecDeque::new(),
            flushing: None,
            pending: BTreeMap::new(),
            asked: BTreeMap::new(),
            provided: BTreeMap::new(),
            again_at: Monotonic(0),
            started: false,
            all: None,
        }
    }

    fn submit(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        if self.pending.len() >= SUBMITTED_MAX {
            return Err(SendError::Full);
        }
        let payload = self.best_effort.record(protect.map(|p| &**p), &message)?;
        // A message that needed no order is another one when it is sent again: a newcomer may lack it.
        let mut named = self.all.map_or_else(Vec::new, |first| first.to_be_bytes().to_vec());
        named.extend_from_slice(&payload);
        self.all = self.all.map(|it| it.wrapping_add(1));
        Ok(self.submit_as(now, &named, &payload).0)
    }

    /// Submits something under the name that these bytes give it.
    fn submit_as(&mut self, now: Now, named: &[u8], payload: &[u8]) -> (Token, EntryId) {
        let id: EntryId = sha256(named)[..16].try_into().expect("a hash has 32 bytes");
        let datagram = open_datagram(&Frame::Submit { id, payload });
        let token = self.best_effort.token();
        self.tell_orderer(datagram.clone());
        let retry_at = now.monotonic + RETRY;
        self.pending.insert(id, Pending { token, datagram, retry_at, tries: 0, ordered: None });
        (token, id)
    }

    /// Flushes the view before a prepared one.
    fn flush(&mut self, now: Now, epoch: EpochId, flush: Flush) {
        let known = match flush {
            Flush::Later => return,
            Flush::Now => self.flushed.iter().find(|(of, _)| *of == epoch).map(|(_, cut)| *cut),
            Flush::At(position) => self.cuts.get(&position).copied(),
        };
        match (known, flush) {
            // What stands behind it belongs to the next view.
            (Some(cut), _) => self.best_effort.outputs.push_front(Output::Flushed(epoch, cut)),
            (None, Flush::Now) => {
                self.forget_flush();
                let payload = open_datagram(&Frame::Flush { epoch });
                let (_, id) = self.submit_as(now, &payload, &payload);
                self.flushing = Some((epoch, id));
            }
            // Nothing is known so far back: whoever asks waits in vain.
            (None, Flush::At(_) | Flush::Later) => self.best_effort.drops.count(Dropped::Stale),
        }
    }

    /// Nobody waits any more for what is flushed.
    fn forget_flush(&mut self) {
        if let Some((_, id)) = self.flushing.take() {
            self.pending.remove(&id);
        }
    }

    /// A view is flushed up to here, whether we prepared the next one or will.
    fn flushed_here(&mut self, epoch: EpochId) {
        let Some(cut) = self.chain else { return };
        if self.flushed.len() >= FORMER_EPOCHS_MAX {
            self.flushed.pop_front();
        }
        self.flushed.push_back((epoch, cut));
        if self.flushing.take_if(|it| it.0 == epoch).is_some() {
            self.best_effort.outputs.push_back(Output::Flushed(epoch, cut));
        }
    }

    fn tell_orderer(&mut self, datagram: Vec<u8>) {
        self.best_effort.outbox.push_back((To::Peer(self.orderer), datagram));
    }

    fn take(
        &mut self,
        now: Now,
        source: Source,
        flags: u8,
        frame: Frame<'_>,
        protect: Option<&dyn Protect>,
    ) -> Result<(), Dropped> {
        let from_orderer = source == Source::Outside(self.orderer);
        match frame {
            Frame::Entry { index, id, before, payload } if from_orderer => {
                let next = *self.next.get_or_insert(index);
                if index < next {
                    return Err(Dropped::Stale);
                }
                if self.ahead.len() >= ORDERED_AHEAD_MAX && index != next {
                    return Err(Dropped::Queue);
                }
                self.ahead.insert(index, (id, before, payload.to_vec()));
                if index > next {
                    self.again_at = self.again_at.min(now.monotonic + RETRY);
                }
                self.advance();
            }
            Frame::Head { next } if from_orderer => {
                self.next.get_or_insert(next);
                self.settle_passed();
            }
            Frame::Ordered { id, index, before } if from_orderer => {
                if let Some(pending) = self.pending.get_mut(&id) {
                    pending.ordered = Some((index, chained(&before, &id)));
                    if self.next.is_none_or(|next| index >= next) {
                        // It is under way to us, or was lost.
                        self.again_at = self.again_at.min(now.monotonic + RETRY);
                    }
                    self.settle_passed();
                }
            }
            Frame::Answer { id, result } => {
                let Some(asked) = self.asked.get(&id) else { return Err(Dropped::Stale) };
                let many = matches!(asked.what, Fetch::Shares { .. });
                if let (Fetch::Blob(hash), Fetched::Bytes(bytes)) = (&asked.what, &result)
                    && sha256(bytes) != *hash
                {
                    return Err(Dropped::Auth);
                }
                if result == Fetched::Missing {
                    return Ok(()); // somebody may still bring it: asked again until the timeout
                }
                if !many {
                    self.asked.remove(&id);
                }
                self.best_effort.outputs.push_back(Output::Fetched(id, result));
            }
            Frame::Kept { what } if from_orderer => {
                self.provided.remove(&what);
            }
            Frame::Attachment { index, broker, bytes } => {
                let attachments = vec![(broker, bytes.to_vec())];
                self.best_effort.outputs.push_back(Output::Attach { index, attachments });
            }
            Frame::Submit { .. } | Frame::Again { .. } | Frame::Fetch { .. } | Frame::Provide { .. } => {}
            Frame::Entry { .. } | Frame::Head { .. } | Frame::Ordered { .. } | Frame::Kept { .. } => {
                return Err(Dropped::Auth);
            }
            other => return self.best_effort.take(source, flags, other, protect),
        }
        Ok(())
    }

    /// Messages of ours whose position is before where we began, or was passed before a restart. Of the order up to there we
    /// know what the orderer says.
    fn settle_passed(&mut self) {
        let Some(next) = self.next else { return };
        let passed = |p: &Pending| p.ordered.is_some_and(|(index, _)| index < next);
        let passed: Vec<_> = self.pending.extract_if(.., |_, p| passed(p)).collect();
        for (id, ours) in passed {
            let Some((index, cut)) = ours.ordered else { continue };
            self.best_effort.outputs.push_back(Output::Outcome(ours.token, Outcome::Ordered(index)));
            self.cut_at(index, cut);
            if let Some((epoch, _)) = self.flushing.take_if(|(_, ours)| *ours == id) {
                self.best_effort.outputs.push_back(Output::Flushed(epoch, cut));
            }
        }
    }

    /// Remembers the order up to a position, where a view may end.
    fn cut_at(&mut self, index: u64, cut: Chain) {
        if self.cuts.len() >= ORDERED_PENDING_MAX {
            self.cuts.pop_first();
        }
        self.cuts.entry(index).or_insert(cut);
    }

    /// Hands on what is next in the order, as far as it is here.
    fn advance(&mut self) {
        while let Some(next) = self.next
            && let Some((id, before, payload)) = self.ahead.remove(&next)
        {
            if self.chain.is_some_and(|chain| chain != before) {
                // Another order than the one that we followed: nothing of it is taken.
                return self.best_effort.drops.count(Dropped::Auth);
            }
            self.next = Some(next + 1);
            self.chain = Some(chained(&before, &id));
            if let Err(why) = self.hand_on(next, id, payload) {
                self.best_effort.drops.count(why);
            }
        }
    }

    /// Hands on what has this position: a sealed datagram as it came, since its receiver opens it there.
    fn hand_on(&mut self, index: u64, id: EntryId, payload: Vec<u8>) -> Result<(), Dropped> {
        let ours = self.pending.remove(&id).map(|p| p.token);
        let source = Source::Outside(self.orderer);
        let outputs = &mut self.best_effort.outputs;
        if payload.get(1) == Some(&KIND_SEALED) {
            outputs.push_back(Output::Record { index, from: source, ours, datagram: payload });
            return Ok(());
        }
        if let Some(token) = ours {
            outputs.push_back(Output::Outcome(token, Outcome::Ordered(index)));
        }
        match open_content(&payload).and_then(Frame::parse).map_err(|_| Dropped::Malformed)? {
            Frame::Sealed { topic, header, body } => {
                outputs.push_back(Output::Deliver(Delivered {
                    index,
                    ordered: true,
                    source,
                    signed: false,
                    topic: topic.into(),
                    sent_micros: None,
                    header: header.to_vec(),
                    body: body.to_vec(),
                    attachments: Vec::new(),
                }));
                Ok(())
            }
            Frame::Keys(bytes) => {
                // Its sender knows it, and has just been told its position.
                if ours.is_none() {
                    outputs.push_back(Output::Keys { source, position: Some(index), bytes: bytes.to_vec() });
                }
                if let Some(chain) = self.chain {
                    self.cut_at(index, chain);
                }
                Ok(())
            }
            Frame::Flush { epoch } => {
                self.flushed_here(epoch);
                Ok(())
            }
            data @ Frame::Data(_) => self.take_at(index, source, data),
            _ => Err(Dropped::Foreign),
        }
    }

    /// Takes in unsealed data; its messages are numbered by their position in the order.
    fn take_at(&mut self, index: u64, source: Source, frame: Frame<'_>) -> Result<(), Dropped> {
        let before = self.best_effort.outputs.len();
        self.best_effort.take(source, 0, frame, None)?;
        for output in self.best_effort.outputs.range_mut(before..) {
            if let Output::Deliver(delivered) = output {
                delivered.index = index;
            }
        }
        Ok(())
    }
}

impl Delivery for Ordered {
    fn properties(&self) -> Properties {
        match self.all {
            Some(_) => Properties { best_effort: Some(CHANNEL), orders_keys: true, ..Ordered::PROPERTIES },
            None => Ordered::PROPERTIES,
        }
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        match message.guarantee {
            Guarantee::BestEffort if self.all.is_some() => self.submit(now, protect, message),
            Guarantee::BestEffort => self.best_effort.send(now, protect, message),
            Guarantee::Fifo | Guarantee::Ordered => self.submit(now, protect, message),
            Guarantee::Safe => Err(SendError::NotGiven(message.guarantee)),
        }
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Frame { flags, .. } if flags & FLAG_RELIABLE != 0 => {
                self.best_effort.drops.count(Dropped::Foreign);
            }
            Input::Frame { source, flags, frame, protect, .. } => {
                let taken = Frame::parse(frame)
                    .map_err(|_| Dropped::Malformed)
                    .and_then(|frame| self.take(now, source, flags, frame, protect));
                if let Err(why) = taken {
                    self.best_effort.drops.count(why);
                }
            }
            Input::Fetch(id, _) if self.asked.len() >= ORDERED_PENDING_MAX => {
                self.best_effort.outputs.push_back(Output::Fetched(id, Fetched::Missing));
            }
            // All are here at once: nobody leaves mail.
            Input::Fetch(id, Fetch::Mail(_)) => {
                self.best_effort.outputs.push_back(Output::Fetched(id, Fetched::Missing));
            }
            Input::Fetch(id, what) => {
                self.asked.insert(id, Fetching { what: what.clone(), retry_at: now.monotonic, tries: 0 });
            }
            // One device has one entry here, which may be taken often.
            Input::Packages(KeyPackages { cert, last_resort, .. }) => {
                if let Some(bytes) = last_resort {
                    self.handle(now, Input::Provide { what: &Fetch::KeyPackage(*cert), bytes });
                }
            }
            Input::Provide { what: Fetch::Mail(_), .. } | Input::AppendKey(_) => {}
            Input::Again(position) => {
                self.next = Some(position.saturating_add(1));
                self.ahead.clear();
                self.chain = None;
                self.again_at = now.monotonic;
            }
            Input::Provide { bytes, .. }
                if bytes.len() > OFFER_BYTES_MAX || self.provided.len() >= ORDERED_PENDING_MAX =>
            {
                self.best_effort.drops.count(Dropped::Queue);
            }
            Input::Provide { what, bytes } => {
                let datagram = open_datagram(&Frame::Provide { what: what.clone(), bytes });
                self.provided.insert(what.clone(), Provided { datagram, retry_at: now.monotonic, tries: 0 });
            }
            Input::Prepare { view, flush } => self.flush(now, view.epoch, flush),
            Input::Install { .. } => self.forget_flush(),
            // The orderer does not wait, and brings everything.
            Input::Checkpointed(_)
            | Input::Withdraw(_)
            | Input::Retire(_)
            | Input::Unread(_)
            | Input::Keyed { .. }
            | Input::Pause
            | Input::Resume
            | Input::Opened(..)
            | Input::Leave
            | Input::ForcePrimary
            | Input::State(_)
            | Input::Excluded
            | Input::Subscribe(_)
            | Input::Unsubscribe(_) => {}
            // There are no channels.
            Input::Connected(_) | Input::Disconnected(_) | Input::Message { .. } => {}
        }
    }

    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u8,
        frame: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        self.best_effort.take_at(index, source, flags, frame, protect)
    }

    fn timeout(&self) -> Option<Monotonic> {
        if !self.started {
            return Some(Monotonic(0));
        }
        let pending = self.pending.values().filter(|p| p.ordered.is_none()).map(|p| p.retry_at);
        let asked = self.asked.values().map(|a| a.retry_at);
        pending.chain(asked).chain(self.provided.values().map(|o| o.retry_at)).chain([self.again_at]).min()
    }

    fn handle_timeout(&mut self, now: Now, _protect: Option<&Arc<dyn Protect>>) {
        let mut datagrams = VecDeque::new();
        if now.monotonic >= self.again_at || !self.started {
            self.started = true;
            let is_awaited = !self.ahead.is_empty() || self.flushing.is_some();
            self.again_at = now.monotonic + if is_awaited { RETRY } else { IDLE };
            let from = self.next.unwrap_or(u64::MAX);
            datagrams.push_back((To::Peer(self.orderer), open_datagram(&Frame::Again { from })));
        }
        for pending in self.pending.values_mut().filter(|p| p.ordered.is_none() && p.retry_at <= now.monotonic) {
            pending.tries += 1;
            pending.retry_at = now.monotonic + backoff(pending.tries);
            datagrams.push_back((To::Peer(self.orderer), pending.datagram.clone()));
        }
        for provided in self.provided.values_mut().filter(|o| o.retry_at <= now.monotonic) {
            provided.tries += 1;
            provided.retry_at = now.monotonic + backoff(provided.tries);
            datagrams.push_back((To::Peer(self.orderer), provided.datagram.clone()));
        }
        let mut missing = Vec::new();
        for (id, asked) in self.asked.iter_mut().filter(|(_, a)| a.retry_at <= now.monotonic) {
            if asked.tries == FETCH_TRIES_MAX {
                missing.push(*id);
                continue;
            }
            asked.tries += 1;
            asked.retry_at = now.monotonic + backoff(asked.tries);
            let to = match asked.what {
                Fetch::Shares { .. } => To::Group, // brokers hear the group's datagrams
                _ => To::Peer(self.orderer),
            };
            datagrams.push_back((to, open_datagram(&Frame::Fetch { id: *id, what: asked.what.clone() })));
        }
        for id in missing {
            self.asked.remove(&id);
            self.best_effort.outputs.push_back(Output::Fetched(id, Fetched::Missing));
        }
        self.best_effort.outbox.append(&mut datagrams);
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        self.best_effort.poll(batch)
    }
}

fn backoff(tries: u32) -> Duration {
    RETRY * 2u32.saturating_pow(tries.min(6))
}

/// One that the orderer orders, who may be wrong or lie.
const CHANNEL: Channel = Channel { agreement: Agreement::Forkable, acknowledged: true, cut: Cut::Position };
/// First wait for an answer of the orderer: well above a round trip on a LAN.
const RETRY: Duration = Duration::from_millis(20);
/// How often an idle client asks whether it missed the last message.
const IDLE: Duration = Duration::from_millis(200);
/// How often something is asked for before it is missing: about two seconds.
const FETCH_TRIES_MAX: u32 = 6;

#[cfg(test)]
mod tests;
