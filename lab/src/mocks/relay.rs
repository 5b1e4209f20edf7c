//! A relay in the simulator: the real directory as a node, and a member's channels to it.
//!
//! The simulated network plays the MQTT broker: what goes to the group reaches everybody, or is lost. Requests and responses
//! carry numbers, as a stream would give them an order; when an answer does not come, the channel breaks and opens again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_delivery::relay::{Config, DIRECTORY, Handle, MQTT, Relay};
use sealcast_delivery::{Batch, Delivery, Input, Outgoing, Output, Properties, SendError, Token};
use sealcast_relay::directory::{Config as Quotas, Directory, Handled, Memory, Published, Write};
use sealcast_relay::evidence::Evidence;
use sealcast_relay::ids::DeviceId;
use sealcast_relay::key::RelayKey;
use sealcast_sim::{Birth, Effect, Node, Reach, Records};
use sealcast_wire::frame::{KIND_OPEN, MAGIC};
use sealcast_wire::{Address, Dropped, Monotonic, Now, Protect, Reader, Source, To, Writer};

use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::fixture::Player;

/// A member's end, over datagrams to a node.
pub struct AtRelay {
    relay: Relay,
    node: Address,
    has_directory: bool,
    begun: bool,
    /// The time when something happened last.
    now: Monotonic,
    next: u64,
    /// Requests that are not answered.
    waits: BTreeMap<u64, Waiting>,
}

/// A request on its way.
struct Waiting {
    since: Monotonic,
    /// Of the answer, how many, and those that are here.
    parts: Option<u16>,
    here: BTreeMap<u16, Vec<u8>>,
}

impl Waiting {
    fn is_whole(&self) -> bool {
        self.parts.is_some_and(|count| self.here.len() == usize::from(count))
    }
}

impl AtRelay {
    /// A member that goes on from what its transport stored, and what it holds against the relay.
    pub fn new(node: Address, record: Option<&[u8]>) -> (AtRelay, Handle) {
        let config =
            Config { relay: public(), signer: Box::new(joiner()), device: Box::new(|cert| DeviceId(sha256(&cert.0))) };
        let (relay, handle) = Relay::open(config, record, false).expect("its own record");
        (AtRelay { has_directory: true, ..AtRelay::over(relay.padded(PADDING), node) }, handle)
    }

    /// A member that meets others at an MQTT broker alone.
    pub fn without_directory(node: Address, plain: bool) -> AtRelay {
        AtRelay::over(Relay::without_directory(plain), node)
    }

    fn over(relay: Relay, node: Address) -> AtRelay {
        AtRelay { relay, node, has_directory: false, begun: false, now: Monotonic(0), next: 0, waits: BTreeMap::new() }
    }

    fn begin(&mut self, now: Now) {
        self.now = now.monotonic;
        if !std::mem::replace(&mut self.begun, true) {
            self.relay.handle(now, Input::Connected(MQTT));
            if self.has_directory {
                self.relay.handle(now, Input::Connected(DIRECTORY));
            }
        }
    }

    /// The node says something.
    fn hear(&mut self, now: Now, frame: &[u8]) -> Option<()> {
        let mut r = Reader::new(frame);
        match r.u8().ok()? {
            RESPONSE => {
                let (number, index, count) = (r.u64().ok()?, r.u16().ok()?, r.u16().ok()?);
                let waiting = self.waits.get_mut(&number)?;
                waiting.parts = Some(count);
                waiting.here.insert(index, r.rest().to_vec());
                while let Some(first) = self.waits.first_entry().filter(|it| it.get().is_whole()) {
                    let bytes = first.remove().here.into_values().collect::<Vec<_>>().concat();
                    self.relay.handle(now, Input::Message { peer: DIRECTORY, bytes: &bytes });
                }
            }
            ANNOUNCEMENT => self.relay.handle(now, Input::Message { peer: MQTT, bytes: r.rest() }),
            _ => return None,
        }
        Some(())
    }

    /// When the channel breaks, if nothing is answered.
    fn breaks(&self) -> Option<Monotonic> {
        self.waits.values().map(|it| it.since + TIMEOUT).min()
    }
}

impl Delivery for AtRelay {
    fn properties(&self) -> Properties {
        self.relay.properties()
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        self.begin(now);
        self.relay.send(now, protect, message)
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        self.begin(now);
        match input {
            Input::Frame { source: Source::Outside(from), frame, .. } if from == self.node => {
                _ = self.hear(now, frame);
            }
            input => self.relay.handle(now, input),
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
        self.relay.open_at(index, source, flags, frame, protect)
    }

    fn timeout(&self) -> Option<Monotonic> {
        if !self.begun {
            return Some(Monotonic(0));
        }
        self.relay.timeout().into_iter().chain(self.breaks()).min()
    }

    fn handle_timeout(&mut self, now: Now, protect: Option<&Arc<dyn Protect>>) {
        self.begin(now);
        if self.breaks().is_some_and(|at| at <= now.monotonic) {
            self.waits.clear();
            self.relay.handle(now, Input::Disconnected(DIRECTORY));
            self.relay.handle(now, Input::Connected(DIRECTORY));
        }
        self.relay.handle_timeout(now, protect);
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        let output = self.relay.poll(batch)?;
        if let Output::Transmit(_) = output {
            if batch.to != Some(DIRECTORY) {
                batch.to = None;
                return Some(Output::Transmit(To::Group));
            }
            let requests: Vec<Vec<u8>> = batch.iter().map(<[u8]>::to_vec).collect();
            batch.clear();
            batch.to = Some(self.node);
            for request in requests {
                let waiting = Waiting { since: self.now, parts: None, here: BTreeMap::new() };
                self.waits.insert(self.next, waiting);
                batch.push(&open(REQUEST, self.next, &request));
                self.next += 1;
            }
            return Some(Output::Transmit(To::Peer(self.node)));
        }
        Some(output)
    }
}

/// The relay as a node; what it wrote outlives its process.
pub fn relay() -> Birth<Player> {
    Box::new(|_, records: &Records| Box::new(RelayNode::new(records)))
}

/// A directory with a disk.
pub(crate) struct RelayNode {
    pub(crate) directory: Directory,
    pub(crate) storage: Memory,
    next: u64,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl RelayNode {
    /// It goes on from what it wrote, and notes that it starts.
    pub(crate) fn new(records: &Records) -> RelayNode {
        let mut storage = Memory::default();
        for record in records.values() {
            storage.apply(read_writes(record));
        }
        let next = records.keys().last().map_or(0, |id| id + 1);
        let mut node = RelayNode { directory: directory(), storage, next, effects: VecDeque::new() };
        node.store(&[]);
        node
    }

    /// The records that were written before the last start.
    pub(crate) fn before_last_start(records: &Records) -> Records {
        let start = records.iter().rev().find(|(_, record)| record.is_empty()).map_or(0, |(id, _)| *id);
        records.range(..start).map(|(id, record)| (*id, record.clone())).collect()
    }

    /// Handles a request; what it changes is stored.
    pub(crate) fn request(&mut self, now: Now, request: &[u8]) -> Handled {
        let mut handled = self.directory.handle(now, request, &self.storage).expect("memory does not fail");
        let writes = std::mem::take(&mut handled.writes);
        if !writes.is_empty() {
            self.store(&writes);
            self.storage.apply(writes);
        }
        handled
    }

    fn store(&mut self, writes: &[Write]) {
        self.effects.push_back(Effect::Store { id: self.next, record: write_writes(writes) });
        self.next += 1;
    }
}

/// The member that a datagram is of, and the number and the bytes of the request in it.
pub(crate) fn request_in(from: Address, datagram: &[u8]) -> Option<(usize, u64, &[u8])> {
    let mut r = Reader::new(datagram.strip_prefix(&[MAGIC, KIND_OPEN])?);
    let (REQUEST, Address::Node(node)) = (r.u8().ok()?, from) else { return None };
    Some((node as usize, r.u64().ok()?, r.rest()))
}

/// Sends a response to a request of this number, in parts that fit datagrams.
pub(crate) fn respond(to: usize, number: u64, response: &[u8]) -> Vec<Effect<MemberEvent>> {
    let parts: Vec<&[u8]> = response.chunks(PART_BYTES).collect();
    let datagram = |(index, part): (u16, &[u8])| {
        let place = [index.to_be_bytes(), (parts.len() as u16).to_be_bytes()].concat();
        open(RESPONSE, number, &[&place, part].concat())
    };
    let datagrams = (0..).zip(parts.iter().copied()).map(datagram);
    datagrams.map(|datagram| Effect::Send { to: Reach::One(to), datagram }).collect()
}

/// Sends an announcement, several times: the broker sends what is not acknowledged again (QoS 1).
pub(crate) fn announce(to: Reach, published: &Published) -> impl Iterator<Item = Effect<MemberEvent>> + use<> {
    announce_within(ANNOUNCED_BYTES, to, published)
}

/// The same without what is longer.
pub(crate) fn announce_within(
    most: usize,
    to: Reach,
    published: &Published,
) -> impl Iterator<Item = Effect<MemberEvent>> + use<> {
    let mut datagram = vec![MAGIC, KIND_OPEN, ANNOUNCEMENT];
    datagram.extend(published.to_bytes(most));
    (0..ANNOUNCED_TIMES).map(move |_| Effect::Send { to, datagram: datagram.clone() })
}

/// Tells what a member holds against its relay, each time that it is something else.
pub(crate) fn blames(handle: Handle) -> impl FnMut() -> Option<MemberEvent> {
    let mut told = None;
    move || {
        let status = handle.lock();
        if told == status.misbehaviour {
            return None;
        }
        told.clone_from(&status.misbehaviour);
        let holds = |it: &Evidence| Evidence::from_bytes(&it.to_bytes()).is_ok_and(|it| it.verify(&public()).is_ok());
        let proof = status.evidence.as_deref().map(holds);
        status.misbehaviour.clone().map(|why| MemberEvent::Blames { why, proof })
    }
}

impl Node for RelayNode {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        // What is no request is for members.
        let Some((node, number, request)) = request_in(from, datagram) else { return };
        let handled = self.request(now, request);
        self.effects.extend(respond(node, number, &handled.response));
        self.effects.extend(handled.published.iter().flat_map(|it| announce(Reach::All, it)));
    }

    fn command(&mut self, _now: Now, _command: MemberCommand) {}

    fn timeout(&self) -> Option<Monotonic> {
        None
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

fn directory() -> Directory {
    Directory::new(Quotas::default(), key(b"directory"))
}

/// The key that members pin.
pub(crate) fn public() -> RelayKey {
    *directory().public()
}

/// The key of all who were ever invited.
pub(crate) fn joiner() -> OriginKey {
    key(b"joiner")
}

fn key(name: &[u8]) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes(sha256(name)))
}

fn open(kind: u8, number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.raw(&[MAGIC, KIND_OPEN, kind]).u64(number).raw(bytes);
    w.finish()
}

fn write_writes(writes: &[Write]) -> Vec<u8> {
    let mut w = Writer::new();
    for write in writes {
        w.u32(write.key.len() as u32).raw(&write.key);
        match &write.value {
            Some(value) => w.u8(1).u32(value.len() as u32).raw(value),
            None => w.u8(0),
        };
    }
    w.finish()
}

fn read_writes(record: &[u8]) -> Vec<Write> {
    let mut r = Reader::new(record);
    let long = |r: &mut Reader<'_>| -> Vec<u8> {
        let length = r.u32().expect("we wrote it") as usize;
        r.take(length).expect("we wrote it").to_vec()
    };
    let mut writes = Vec::new();
    while r.remaining() > 0 {
        let key = long(&mut r);
        let value = if r.u8().expect("we wrote it") == 1 { Some(long(&mut r)) } else { None };
        writes.push(Write { key, value });
    }
    writes
}

/// Members at a relay pad what they seal.
const PADDING: usize = 256;
const REQUEST: u8 = 0xD0;
const RESPONSE: u8 = 0xD1;
const ANNOUNCEMENT: u8 = 0xD2;
/// An answer that has not come by then does not come.
const TIMEOUT: Duration = Duration::from_millis(300);
const PART_BYTES: usize = 16_000;
/// So often an announcement is sent where datagrams get lost.
const ANNOUNCED_TIMES: usize = 3;
/// What fits a datagram; longer entries are read.
pub(crate) const ANNOUNCED_BYTES: usize = 60_000;
