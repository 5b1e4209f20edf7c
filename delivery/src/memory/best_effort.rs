//! One datagram per message, delivered at most once, in any order.

use std::collections::VecDeque;
use std::sync::Arc;

use sealcast_wire::frame::{FLAG_RELIABLE, FLAG_SIGNED, ORDERED};
use sealcast_wire::limits::{MEMORY_DATAGRAM_BYTES_MAX, TOPIC_BYTES_MAX};
use sealcast_wire::{Dropped, Drops, Fetched, Flush, Guarantee, Monotonic, Now, Protect, Sealed, Source, To};

use super::frame::{Data, Frame, PADDED};
use super::{open_datagram, with_room};
use crate::{Batch, Body, Delivered, Delivery, Input, Outcome, Outgoing, Output, Properties, SendError, Token, What};

/// The machine of `mem:`.
#[derive(Debug)]
pub struct BestEffort {
    /// Whether data is taken that nobody sealed (`keys=plain`).
    plain: bool,
    /// Bytes of a datagram.
    bytes_max: usize,
    /// What is sealed has a multiple of so many bytes.
    padding: usize,
    tokens: u64,
    number: u64,
    /// Datagrams on their way out, each with its destination.
    pub(super) outbox: VecDeque<(To, Vec<u8>)>,
    pub(super) outputs: VecDeque<Output>,
    pub(super) drops: Drops,
    told: Drops,
}

impl Default for BestEffort {
    fn default() -> BestEffort {
        BestEffort::up_to(MEMORY_DATAGRAM_BYTES_MAX)
    }
}

impl BestEffort {
    /// The same with datagrams of other ways.
    pub fn up_to(bytes_max: usize) -> BestEffort {
        BestEffort {
            plain: false,
            bytes_max,
            padding: 1,
            tokens: 0,
            number: 0,
            outbox: VecDeque::new(),
            outputs: VecDeque::new(),
            drops: Drops::default(),
            told: Drops::default(),
        }
    }

    /// A way for `keys=plain` with datagrams of other ways.
    #[cfg(feature = "relay")]
    pub(crate) fn plain_up_to(bytes_max: usize) -> BestEffort {
        BestEffort { plain: true, ..BestEffort::up_to(bytes_max) }
    }

    /// Has what is sealed from now on be a multiple of so many bytes, as far as a datagram's bytes let it.
    #[cfg(feature = "relay")]
    pub(crate) fn pad(&mut self, step: usize) {
        self.padding = step.max(1);
    }

    /// Hands out something beside.
    #[cfg(feature = "relay")]
    pub(crate) fn put(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// Counts something that was not used.
    #[cfg(feature = "relay")]
    pub(crate) fn drop_one(&mut self, why: Dropped) {
        self.drops.count(why);
    }

    /// A way that takes sealed data only.
    pub fn new() -> BestEffort {
        BestEffort::default()
    }

    /// A way for `keys=plain`: data travels unsealed and is taken unsealed.
    pub fn plain() -> BestEffort {
        BestEffort { plain: true, ..BestEffort::default() }
    }

    /// The same, whose messages are numbered from after `first`.
    pub(super) fn plain_from(first: u64) -> BestEffort {
        BestEffort { number: first, ..BestEffort::plain() }
    }

    pub(crate) fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// The whole datagram of a best-effort message, sealed as it asks for.
    pub fn datagram(&mut self, protect: Option<&dyn Protect>, message: &Outgoing<'_>) -> Result<Vec<u8>, SendError> {
        self.sealed_as(0, protect, message)
    }

    /// The same of a message that gets a place in an order: who carries it cannot hand it out as one of best effort, nor the
    /// other way round, and each kind has a replay window of its own.
    pub fn record(&mut self, protect: Option<&dyn Protect>, message: &Outgoing<'_>) -> Result<Vec<u8>, SendError> {
        self.sealed_as(ORDERED, protect, message)
    }

    fn sealed_as(
        &mut self,
        flags: u8,
        protect: Option<&dyn Protect>,
        message: &Outgoing<'_>,
    ) -> Result<Vec<u8>, SendError> {
        match message.what {
            What::Keys { bytes, sealed: false, .. } => self.bounded(open_datagram(&Frame::Keys(bytes))),
            What::Keys { bytes, sealed: true, .. } => {
                let protect = protect.ok_or(SendError::Exhausted(sealcast_wire::Exhausted))?;
                self.seal(protect, sealcast_wire::Domain::GROUP, flags, &Frame::Keys(bytes))
            }
            What::Message { body: Body::Clear(_), .. } => Err(SendError::PerDatagram),
            What::Message { envelope, body: Body::Sealed(seal), .. } => {
                let (topic, Sealed { header, body, .. }) = (envelope.topic(), seal.seal(None)?);
                if topic.len() > TOPIC_BYTES_MAX || header.len() > usize::from(u16::MAX) {
                    return Err(SendError::TooLong);
                }
                self.bounded(open_datagram(&Frame::Sealed { topic, header: &header, body: &body }))
            }
            What::Data { topic, domain, signed, sent_micros, body } => {
                if topic.len() > TOPIC_BYTES_MAX {
                    return Err(SendError::TooLong);
                }
                self.number = self.number.wrapping_add(1);
                let mut data = Data { number: self.number, sent_micros, proof: &[], topic, body };
                match protect {
                    Some(protect) => {
                        let mut proof = Vec::new();
                        if signed {
                            protect.vouch(&Frame::Data(data).bytes(), &mut proof);
                        }
                        data.proof = &proof;
                        self.seal(protect, domain, flags | if signed { FLAG_SIGNED } else { 0 }, &Frame::Data(data))
                    }
                    None if self.plain => self.bounded(open_datagram(&Frame::Data(data))),
                    None => Err(SendError::Exhausted(sealcast_wire::Exhausted)),
                }
            }
        }
    }

    /// Takes in a frame of this way; `Err` says why it was dropped.
    pub(super) fn take(
        &mut self,
        source: Source,
        flags: u8,
        frame: Frame<'_>,
        protect: Option<&dyn Protect>,
    ) -> Result<(), Dropped> {
        match frame {
            // Nobody signs them here: no proof would be looked at, and no window moved.
            Frame::Keys(_) if flags & FLAG_SIGNED != 0 => return Err(Dropped::Malformed),
            Frame::Keys(bytes) => {
                self.outputs.push_back(Output::Keys { source, position: None, bytes: bytes.to_vec() })
            }
            Frame::Data(data) => {
                if data.topic.is_empty() || data.topic.contains('\0') {
                    return Err(Dropped::Malformed);
                }
                let signed = match source {
                    Source::Outside(_) | Source::Client { .. } if !self.plain => return Err(Dropped::Auth),
                    Source::Outside(_) | Source::Client { .. } => false,
                    Source::Inside { slot, .. } if flags & FLAG_SIGNED != 0 => {
                        let statement = Frame::Data(Data { proof: &[], ..data }).bytes();
                        let vouched = protect.is_some_and(|p| p.vouched(slot, &statement, data.proof));
                        if !vouched {
                            return Err(Dropped::Auth);
                        }
                        if flags & FLAG_RELIABLE == 0 && !protect.is_some_and(|p| p.admit(&source)) {
                            return Err(Dropped::Replay);
                        }
                        true
                    }
                    Source::Inside { .. } => false,
                };
                self.outputs.push_back(Output::Deliver(Delivered {
                    index: data.number,
                    ordered: false,
                    source,
                    signed,
                    topic: data.topic.into(),
                    sent_micros: data.sent_micros,
                    header: Vec::new(),
                    body: data.body.to_vec(),
                    attachments: Vec::new(),
                }));
            }
            _ => return Err(Dropped::Foreign),
        }
        Ok(())
    }

    /// Reads an opened frame whose datagram has this place in an order.
    pub fn take_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u8,
        frame: &[u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        let frame = Frame::parse_padded(frame).map_err(|_| Dropped::Malformed)?;
        self.take(source, flags, frame, Some(protect))?;
        match self.outputs.pop_back() {
            Some(Output::Deliver(delivered)) => Ok(Output::Deliver(Delivered { index, ..delivered })),
            Some(Output::Keys { source, bytes, .. }) => Ok(Output::Keys { source, position: Some(index), bytes }),
            Some(output) => Ok(output),
            None => Err(Dropped::Malformed),
        }
    }

    fn seal(
        &self,
        protect: &dyn Protect,
        domain: sealcast_wire::Domain,
        flags: u8,
        frame: &Frame<'_>,
    ) -> Result<Vec<u8>, SendError> {
        let (before, after) = protect.overhead();
        let mut datagram = with_room(protect, frame);
        if self.padding > 1 {
            let length = (datagram.len() - before - after) as u32;
            datagram.splice(before..before, [&[PADDED][..], &length.to_be_bytes()].concat());
            let padded = datagram.len().next_multiple_of(self.padding).min(self.bytes_max);
            datagram.resize(datagram.len().max(padded), 0);
        }
        let mut datagram = self.bounded(datagram)?;
        protect.seal(domain, flags, &mut datagram)?;
        Ok(datagram)
    }

    fn bounded(&self, datagram: Vec<u8>) -> Result<Vec<u8>, SendError> {
        if datagram.len() > self.bytes_max { Err(SendError::TooLong) } else { Ok(datagram) }
    }

    /// Appends the next datagram to the batch, if it goes where the batch goes.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> Option<Output> {
        let (to, datagram) = self.outbox.pop_front()?;
        if let To::Peer(address) = to {
            batch.to = Some(address);
        }
        batch.push(&datagram);
        Some(Output::Transmit(to))
    }
}

impl Delivery for BestEffort {
    fn properties(&self) -> Properties {
        Properties::BEST_EFFORT
    }

    fn send(
        &mut self,
        _now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        if message.guarantee != Guarantee::BestEffort {
            return Err(SendError::NotGiven(message.guarantee));
        }
        let datagram = self.datagram(protect.map(|p| &**p), &message)?;
        self.outbox.push_back((message.to, datagram));
        let token = self.token();
        self.outputs.push_back(Output::Outcome(token, Outcome::Accepted));
        Ok(token)
    }

    fn handle(&mut self, _now: Now, input: Input<'_>) {
        match input {
            // It has a place in an order, where it comes by itself.
            Input::Frame { flags, .. } if flags & FLAG_RELIABLE != 0 => self.drops.count(Dropped::Foreign),
            Input::Frame { source, flags, frame, protect, .. } => {
                let taken = Frame::parse_padded(frame)
                    .map_err(|_| Dropped::Malformed)
                    .and_then(|frame| self.take(source, flags, frame, protect));
                if let Err(why) = taken {
                    self.drops.count(why);
                }
            }
            Input::Prepare { flush: Flush::Later, .. } => {}
            Input::Prepare { view, flush: Flush::Now | Flush::At(_) } => {
                self.outputs.push_back(Output::Flushed(view.epoch, [0; 32]));
            }
            Input::Fetch(id, _) => self.outputs.push_back(Output::Fetched(id, Fetched::Missing)),
            // Everything comes, nothing is kept, and nothing waits.
            Input::Install { .. }
            | Input::Leave
            | Input::ForcePrimary
            | Input::State(_)
            | Input::Excluded
            | Input::Checkpointed(_)
            | Input::Withdraw(_)
            | Input::Retire(_)
            | Input::Unread(_)
            | Input::Keyed { .. }
            | Input::Pause
            | Input::Resume
            | Input::Provide { .. }
            | Input::AppendKey(_)
            | Input::Packages(_)
            | Input::Again(_)
            | Input::Opened(..)
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
        self.take_at(index, source, flags, frame, protect)
    }

    fn timeout(&self) -> Option<Monotonic> {
        None
    }

    fn handle_timeout(&mut self, _now: Now, _protect: Option<&Arc<dyn Protect>>) {}

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        let output = self.fill(batch).or_else(|| self.outputs.pop_front());
        output.or_else(|| self.drops.since(&mut self.told).map(Output::Dropped))
    }
}

#[cfg(all(test, feature = "relay"))]
mod tests {
    use sealcast_wire::Domain;

    use super::*;
    use crate::testing::group;

    #[test]
    fn what_is_padded_shows_its_size_in_steps_and_is_read_by_those_who_do_not_pad() {
        let members = group(1, 2);
        let (mut padded, mut other) = (BestEffort::up_to(4096), BestEffort::up_to(4096));
        padded.pad(256);
        for (length, bytes) in [(0, 256), (1, 256), (128, 256), (129, 512), (3900, 4096)] {
            let body = vec![7; length];
            let what = What::Data { topic: "t", domain: Domain::GROUP, signed: true, sent_micros: None, body: &body };
            let message = Outgoing { what, guarantee: Guarantee::BestEffort, to: To::Group };
            let mut datagram = padded.datagram(Some(&*members[0]), &message).expect("it fits");
            assert_eq!(datagram.len(), bytes, "{length}");
            let (source, flags, frame) = members[1].open(&mut datagram).expect("a member's");
            let output = other.take_at(9, source, flags, frame, &*members[1]).expect("it is read");
            let Output::Deliver(delivered) = output else { panic!("data") };
            assert!(delivered.signed && delivered.body == body && delivered.index == 9);
        }
        let what = What::Data { topic: "t", domain: Domain::GROUP, signed: false, sent_micros: None, body: &[7; 4090] };
        let message = Outgoing { what, guarantee: Guarantee::BestEffort, to: To::Group };
        assert_eq!(padded.datagram(Some(&*members[0]), &message), Err(SendError::TooLong));
    }

    /// Who carries an order, or anybody who hears best effort, shows what is for the one where the other comes.
    #[test]
    fn rule_g3_what_has_a_place_in_an_order_does_not_count_as_best_effort_nor_use_up_its_number() {
        let members = group(1, 2);
        let (mut ann, mut bob) = (BestEffort::new(), BestEffort::new());
        let now = Now { monotonic: Monotonic(0), utc: None };
        let what = What::Data { topic: "t", domain: Domain(1), signed: false, sent_micros: None, body: b"first" };
        let message = Outgoing { what, guarantee: Guarantee::Ordered, to: To::Group };
        let record = ann.record(Some(&*members[0]), &message).expect("it fits");
        let delivered = |bob: &mut BestEffort, at: usize, datagram: &[u8]| {
            let (mut datagram, protect) = (datagram.to_vec(), &*members[at]);
            let (source, flags, frame) = protect.open(&mut datagram).expect("a member's");
            let from = sealcast_wire::Address::Node(0);
            bob.handle(now, Input::Frame { source, from, flags, frame, sealed: None, protect: Some(protect) });
            let outputs: Vec<Output> = std::iter::from_fn(|| bob.poll(&mut Batch::default())).collect();
            outputs.iter().filter(|it| matches!(it, Output::Deliver(_))).count()
        };
        assert_eq!(delivered(&mut bob, 1, &record), 0, "its place tells when it counts");
        let mut here = record.clone();
        let (source, flags, frame) = members[1].open(&mut here).expect("who keeps the order knows what came of it");
        let output = bob.take_at(9, source, flags, frame, &*members[1]);
        assert!(matches!(output, Ok(Output::Deliver(it)) if it.body == b"first"));
        let message = Outgoing { guarantee: Guarantee::BestEffort, ..message };
        let datagram = ann.datagram(Some(&*members[0]), &message).expect("it fits");
        assert_eq!(delivered(&mut bob, 1, &datagram), 1);
        let taken = bob.take(source, FLAG_SIGNED, Frame::Keys(b"k"), Some(&*members[1]));
        assert_eq!(taken, Err(Dropped::Malformed), "a proof that nobody looks at");
    }
}
