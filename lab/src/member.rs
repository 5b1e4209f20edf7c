//! A member as the simulator runs it: the [`Core`] of a session with its application, which reads all topics.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sealcast::group::{Axis, Epoch, Group, Message, Publication, PublishError, ViewEvent};
use sealcast::session::core::{Core, Filter, Output};
use sealcast::url::OriginMode;
use sealcast_crypto::hash::sha256;
use sealcast_delivery::{self as delivery, Batch, Delivery, StateEvent, StateInput, Token};
use sealcast_keys::{Command, CommandError, Exclusion, Keys, Notice};
use sealcast_sim::{Effect, Node, Reach, Records};
use sealcast_wire::{Address, CertHash, EpochId, Guarantee, Monotonic, Now, To, View};

use crate::checkers::Body;
use crate::scenarios::fixture::TOPIC_ORDERED;
use crate::tap::{Heard, HeardLog, Tap};

/// What a member's application asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberCommand {
    /// Publish a message.
    Publish {
        /// Its topic.
        topic: String,
        /// Its payload.
        body: Vec<u8>,
        /// How strongly.
        guarantee: Guarantee,
    },
    /// Something of the key scheme.
    Command(Command),
    /// Take this member for silent, as a delivery's failure detector would.
    Suspect(CertHash),
}

/// What a member tells.
pub enum MemberEvent {
    /// Somebody is about to be excluded: nothing is sealed any more until the next view.
    Prepared(View),
    /// That will not happen.
    Abandoned,
    /// A key is agreed.
    Keyed {
        /// The epoch that it is of.
        epoch: Arc<Epoch>,
        /// Whether that was passed over already: it is never installed.
        passed: bool,
    },
    /// A view is installed.
    Installed(Arc<Epoch>),
    /// We are out.
    Excluded(Exclusion),
    /// A message came.
    Delivered(Message),
    /// A datagram was opened with a kept key (only who misbehaves tells this).
    Read(Body, EpochId),
    /// A message was taken for publishing: topic and payload.
    Published(String, Vec<u8>),
    /// It was not.
    Refused(Vec<u8>, PublishError),
    /// A command was refused.
    Denied(CommandError),
    /// What became of a message sent with a guarantee.
    Outcome(delivery::Outcome),
    /// An ordered message of ours, with this body, was delivered at this place.
    Ordered(Vec<u8>, u64),
    /// One with this body may be delivered or not.
    Doubted(Vec<u8>),
    /// Nobody else was heard for so long; `None` once somebody is.
    Silence(Option<Duration>),
    /// Some of the order never comes.
    Gap(u64),
    /// Who orders in our view, if anybody does.
    Sequencer(Option<CertHash>),
    /// Our state after the ordered message at this position, as a hash.
    State(u64, [u8; 32]),
    /// We got another member's state, at this position.
    Restored(u64),
    /// For the operator.
    Notice(Notice),
    /// The epoch that is installed is of this version of the wire (only a fixture of several versions tells this).
    Speaks(u8),
    /// What the relay did that no honest one does.
    Blames {
        /// What.
        why: String,
        /// Whether the evidence that it showed two logs holds, where there is some.
        proof: Option<bool>,
    },
}

/// A session and its application.
pub struct Member<K, D> {
    core: Core<Tap<K>, D, ()>,
    line: HeardLog,
    prepared: Option<View>,
    paused: bool,
    /// Ordered messages of which we were not told what became of them.
    under_way: BTreeMap<Token, Vec<u8>>,
    /// What follows from the ordered messages of a topic, where members keep that.
    kept: Option<Kept>,
    /// Tells what this member does not see of its transport.
    also: Option<Box<dyn FnMut() -> Option<MemberEvent>>>,
    effects: VecDeque<Effect<MemberEvent>>,
    batch: Batch,
}

impl<K: Keys, D: Delivery> Member<K, D> {
    /// A member with this scheme over this way.
    ///
    /// # Panics
    /// If the way does not give what the scheme needs.
    pub fn new(now: Now, keys: K, delivery: D, origin: OriginMode) -> Member<K, D> {
        let (tap, line) = Tap::new(keys);
        let group = Group::new(tap, delivery, origin).expect("scenarios pair schemes and ways that fit");
        let core = Core::new(group);
        core.subscriptions().add(Filter::pattern("#").expect("it is a pattern"), ());
        let mut member = Member {
            core,
            line,
            prepared: None,
            paused: false,
            under_way: BTreeMap::new(),
            kept: None,
            also: None,
            effects: VecDeque::new(),
            batch: Batch::default(),
        };
        if member.core.group().delivery().properties().needs_flush {
            member.kept = Some(Kept::default());
            member.core.state(now, StateInput::Follow(TOPIC_ORDERED));
        }
        member.drain(now);
        member
    }

    /// It tells this, too, whenever something happens.
    pub fn telling(self, also: impl FnMut() -> Option<MemberEvent> + 'static) -> Member<K, D> {
        Member { also: Some(Box::new(also)), ..self }
    }

    /// The group, to look at.
    pub fn group(&self) -> &Group<Tap<K>, D> {
        self.core.group()
    }

    /// Makes the key scheme do what its group would not ask of it.
    pub fn with_keys<T>(&mut self, now: Now, ask: impl FnOnce(&mut K) -> T) -> T {
        let answer = ask(self.core.group_mut().keys_mut().inner_mut());
        self.drain(now);
        answer
    }

    fn drain(&mut self, now: Now) {
        loop {
            self.batch.clear();
            let output = self.core.poll(now, &mut self.batch);
            let heard = std::mem::take(&mut *self.line.lock().unwrap_or_else(PoisonError::into_inner));
            for heard in heard {
                match heard {
                    Heard::Prepared(view) => self.prepared = Some(view),
                    Heard::Keyed { epoch, passed } => self.tell(MemberEvent::Keyed { epoch, passed }),
                }
            }
            self.look_at_gate();
            let Some(output) = output else {
                return self.effects.extend(self.also.as_mut().and_then(|also| also()).map(Effect::Tell));
            };
            match output {
                Output::Transmit(to) => {
                    let to = match (self.batch.to, to) {
                        (Some(Address::Node(node)), _) => Reach::One(node as usize),
                        // On a LAN everything is multicast; the addressee knows itself.
                        (_, To::Group | To::Slot(_) | To::Peer(_)) => Reach::All,
                    };
                    for datagram in self.batch.iter() {
                        self.effects.push_back(Effect::Send { to, datagram: datagram.to_vec() });
                    }
                }
                Output::Deliver(_, message) => {
                    let is_kept = message.is_ordered() && message.topic() == TOPIC_ORDERED;
                    let state = self.kept.as_mut().filter(|_| is_kept);
                    let state = state.and_then(|it| it.take(message.sequence(), message.payload()));
                    self.tell(MemberEvent::Delivered(message));
                    state.into_iter().for_each(|(position, hash)| self.tell(MemberEvent::State(position, hash)));
                }
                Output::State(_, event) => self.state(now, event),
                Output::View(ViewEvent::Changed { view, .. }) => {
                    let group = self.core.group();
                    let epoch = group.epoch_of(view.epoch).expect("a view that is shown has its key").clone();
                    self.tell(MemberEvent::Installed(epoch));
                }
                Output::View(ViewEvent::Order { sequencer, gap, from, .. }) => {
                    if gap {
                        self.tell(MemberEvent::Gap(from));
                    }
                    self.tell(MemberEvent::Sequencer(sequencer.map(|it| it.id.cert)));
                }
                Output::View(ViewEvent::Missed { until, .. }) => self.tell(MemberEvent::Gap(until)),
                Output::View(ViewEvent::Gap { .. }) => self.tell(MemberEvent::Gap(0)),
                Output::View(ViewEvent::Stale { silent }) => self.tell(MemberEvent::Silence(silent)),
                Output::View(ViewEvent::Excluded(why)) => self.tell(MemberEvent::Excluded(why)),
                Output::View(other) => panic!("no checker looks at {other:?}"),
                Output::Store { of, id, record } => {
                    self.effects.push_back(Effect::Store { id: record_id(of, id), record });
                }
                Output::Outcome(token, outcome) => {
                    let body = self.under_way.remove(&token);
                    self.tell(MemberEvent::Outcome(outcome));
                    match (body, outcome) {
                        (Some(body), delivery::Outcome::Ordered(at)) => self.tell(MemberEvent::Ordered(body, at)),
                        (Some(body), _) => self.tell(MemberEvent::Doubted(body)),
                        (None, _) => {}
                    }
                }
                Output::Notice(notice) => self.tell(MemberEvent::Notice(notice)),
                Output::Described(_) | Output::Subscribed(..) | Output::Confirmed | Output::Closed(_) => {}
            }
        }
    }

    /// Something becomes of our state.
    fn state(&mut self, now: Now, event: StateEvent) {
        let Some(kept) = &mut self.kept else { return };
        let states = match event {
            StateEvent::Begins => kept.restore(0, [0; 32]),
            StateEvent::Resumes => kept.restore(0, kept.lost),
            StateEvent::Wanted(ticket) => {
                let bytes = kept.snapshot();
                return self.core.state(now, StateInput::Give { ticket, bytes });
            }
            StateEvent::Here { position, bytes } => {
                let (hash, _) = bytes.split_first_chunk().expect("a member made it");
                let states = kept.restore(position, *hash);
                self.tell(MemberEvent::Restored(position));
                states
            }
            StateEvent::Lost => {
                *kept = Kept { lost: kept.hash.unwrap_or(kept.lost), ..Kept::default() };
                return;
            }
            StateEvent::Refused => panic!("it keeps one"),
        };
        states.into_iter().for_each(|(position, hash)| self.tell(MemberEvent::State(position, hash)));
    }

    /// Tells when publishing pauses and when it goes on.
    fn look_at_gate(&mut self) {
        let paused = self.core.group().gate().lock().unwrap_or_else(PoisonError::into_inner).is_paused();
        match (std::mem::replace(&mut self.paused, paused), paused, &self.prepared) {
            (false, true, Some(view)) => self.tell(MemberEvent::Prepared(view.clone())),
            (true, false, _) => self.tell(MemberEvent::Abandoned),
            _ => {}
        }
    }

    fn tell(&mut self, told: MemberEvent) {
        self.effects.push_back(Effect::Tell(told));
    }
}

impl<K: Keys, D: Delivery> Node for Member<K, D> {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        self.core.handle_datagram(now, from, datagram);
        self.drain(now);
    }

    fn command(&mut self, now: Now, ask: MemberCommand) {
        match ask {
            MemberCommand::Publish { topic, body, guarantee } => {
                let message = Publication { topic: &topic, body: &body, guarantee, sent_micros: None };
                match self.core.publish(now, message) {
                    Ok(token) => {
                        if guarantee >= Guarantee::Ordered {
                            self.under_way.insert(token, body.clone());
                        }
                        self.tell(MemberEvent::Published(topic, body));
                    }
                    Err(why) => self.tell(MemberEvent::Refused(body, why)),
                }
            }
            MemberCommand::Command(command) => {
                if let Err(why) = self.core.command(now, command) {
                    self.tell(MemberEvent::Denied(why));
                }
            }
            MemberCommand::Suspect(cert) => {
                if let Some(slot) = self.core.group().view().and_then(|v| v.slot_of(&cert)) {
                    self.core.group_mut().suspect(now, slot);
                }
            }
        }
        self.drain(now);
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.core.timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.core.handle_timeout(now);
        self.drain(now);
    }

    fn stored(&mut self, now: Now) {
        self.core.stored();
        self.drain(now);
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

/// A hash of all ordered messages so far.
#[derive(Default)]
struct Kept {
    hash: Option<[u8; 32]>,
    /// What it was when messages were missed.
    lost: [u8; 32],
    /// Those before this position are in it.
    from: u64,
    /// Messages that wait for it.
    pending: Vec<(u64, Vec<u8>)>,
}

impl Kept {
    fn take(&mut self, position: u64, body: &[u8]) -> Option<(u64, [u8; 32])> {
        let Some(hash) = &mut self.hash else {
            self.pending.push((position, body.to_vec()));
            return None;
        };
        if position < self.from {
            return None;
        }
        *hash = sha256(&[&hash[..], &position.to_be_bytes(), body].concat());
        Some((position, *hash))
    }

    fn restore(&mut self, from: u64, hash: [u8; 32]) -> Vec<(u64, [u8; 32])> {
        (self.hash, self.from) = (Some(hash), from);
        let pending = std::mem::take(&mut self.pending).into_iter();
        pending.filter_map(|(position, body)| self.take(position, &body)).collect()
    }

    /// Of many pieces.
    fn snapshot(&self) -> Option<Vec<u8>> {
        self.hash.map(|hash| [&hash[..], &[0; 40_000]].concat())
    }
}

/// Both axes keep records on one disk.
fn record_id(of: Axis, id: u64) -> u64 {
    match of {
        Axis::Keys => id,
        Axis::Delivery => id | DELIVERY_RECORDS,
    }
}

/// The key scheme's own records.
pub fn keys_records(records: &Records) -> Records {
    records.range(..DELIVERY_RECORDS).map(|(id, record)| (*id, record.clone())).collect()
}

/// What the transport stored under this id.
pub fn record_of_delivery(records: &Records, id: u64) -> Option<Vec<u8>> {
    records.get(&(DELIVERY_RECORDS | id)).cloned()
}

const DELIVERY_RECORDS: u64 = 1 << 63;
