//! One correct client: the very group that users run, with the keys of `keys::threshold` over the transport through brokers,
//! on the simulation's time; and an application that takes what comes in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sealcast::group::{Group, Output, PublishError, Together};
use sealcast::url::OriginMode;
use sealcast_broker::operation::{Client as Id, Operation};
use sealcast_broker::receipt::Receipt;
use sealcast_broker::state::{Code, Entry};
use sealcast_client::{Config, Content, Done, Handle, Item, Notice, OperationOutcome, PayloadKind, Transport};
use sealcast_crypto::group::Ristretto255;
use sealcast_crypto::secret::Secret;
use sealcast_delivery::{Batch, Delivery, Token};
use sealcast_keys::threshold::{Config as KeyConfig, RequiredVersions, Threshold, pin};
use sealcast_keys::{self as keys, Keys};
use sealcast_wire::{Address, Culprit, Evidence, Incarnation, Monotonic, Now, Utc};

use crate::fixture::{Desk, Fixture, Interest, Plan, key};

/// One correct client.
pub struct Client {
    /// Its key.
    pub id: Id,
    /// What it may read.
    pub desk: Desk,
    group: Group<Box<dyn Keys>, Box<dyn Delivery>>,
    handle: Handle,
    batch: Batch,
    /// What is still to be sent: plans by their numbers in the run.
    pub plans: VecDeque<(usize, Arc<Plan>)>,
    /// Acts and other operations still to be sent.
    pub acts: VecDeque<(usize, Operation)>,
    sent: BTreeMap<Token, Sent>,
    receipts: BTreeMap<Token, usize>,
    /// What it is still to subscribe to.
    wanted: Interest,
    subscribing: Option<Token>,
    subscription: Option<u64>,
}

/// What a token stands for.
enum Sent {
    /// A plan that the group seals, and the number under which it is sealed.
    Sealed(usize, Arc<Plan>, Option<u64>),
    Clear(usize),
    Act(usize),
}

/// What comes of a client's work.
pub enum ClientEvent {
    /// A message to a broker.
    Send(u16, Arc<[u8]>),
    /// A plan got this number.
    Sends(usize, u64),
    /// What became of a plan: block, number, code, sn.
    Outcome(usize, u64, u64, Code, u64),
    /// What became of an act: the block, and the code.
    Acted(usize, u64, Code),
    /// The subscription stands.
    Subscribed,
    /// The application got this.
    Delivered(u64, Box<Entry>, Vec<u8>),
    /// It may not read so many places from here on.
    Empty(u64, u64),
    /// A receipt of a plan.
    Receipt(usize, Box<Receipt>),
    /// A broker misbehaved.
    Accused(u16, String),
    /// A publisher misbehaved.
    Convicted(Id, u64),
}

impl Client {
    /// It knows genesis and the threshold key, and has an issuer's word.
    ///
    /// # Panics
    /// If it knows a key that is none.
    pub fn new(fixture: &Fixture, seed: u8, desk: Desk, wanted: Interest) -> Client {
        let origin = Arc::new(key(seed));
        let id = Id(origin.public_bytes());
        let registrations = vec![fixture.registration(seed, desk)];
        let config = Config { genesis: fixture.genesis.clone(), key: origin, registrations, batch_operations: 8 };
        let now = Now { monotonic: Monotonic(0), utc: None };
        let payload_kind = PayloadKind::Messages { sealed: true };
        let (transport, handle) =
            Transport::open(now, config, None, payload_kind, None, true).expect("there is no record");
        let keys = keys(fixture, id, [seed; 32]);
        let group = Group::new(keys, transport, OriginMode::Auto).expect("the transport gives what the keys need");
        Client {
            id,
            desk,
            group,
            handle,
            batch: Batch::default(),
            plans: VecDeque::new(),
            acts: VecDeque::new(),
            sent: BTreeMap::new(),
            receipts: BTreeMap::new(),
            wanted,
            subscribing: None,
            subscription: None,
        }
    }

    /// The channel to a broker is open.
    pub fn connected(&mut self, now: Now, broker: u16) {
        self.group.connected(now, Address::Node(u32::from(broker)));
    }

    /// The channel to a broker is closed.
    pub fn disconnected(&mut self, now: Now, broker: u16) {
        self.group.disconnected(now, Address::Node(u32::from(broker)));
    }

    /// A broker says something.
    pub fn handle(&mut self, now: Now, broker: u16, reply: &[u8]) {
        self.group.handle_message(now, Address::Node(u32::from(broker)), reply);
    }

    /// When [`Client::work`] wants to be called next.
    pub fn timeout(&self) -> Option<Monotonic> {
        self.group.timeout()
    }

    /// The time of the newest block that it believes in.
    pub fn believes(&self) -> Option<Utc> {
        self.handle.at()
    }

    /// What waits for an outcome or to be sent.
    pub fn pending(&self) -> usize {
        self.plans.len() + self.acts.len() + self.sent.len()
    }

    /// Asks for the receipt of a plan that has its place.
    pub fn ask_receipt(&mut self, now: Now, plan: usize, height: u64, number: u64) {
        if let Ok(token) = self.handle.receipt(now, height, number) {
            self.receipts.insert(token, plan);
        }
    }

    /// Does all that can be done now.
    pub fn work(&mut self, now: Now) -> Vec<ClientEvent> {
        let mut said = Vec::new();
        if self.group.timeout().is_some_and(|at| at <= now.monotonic) {
            self.group.handle_timeout(now);
        }
        if let Some(wanted) = self.wanted
            && let Ok(token) = self.handle.subscribe(now, &wanted.parse().expect("an interest"))
        {
            (self.wanted, self.subscribing) = (None, token);
        }
        self.pump(now, &mut said);
        while let Some((plan, it)) = self.plans.front().cloned() {
            if !self.publish(now, plan, it, &mut said) {
                break;
            }
            self.plans.pop_front();
            self.pump(now, &mut said);
        }
        while let Some((act, operation)) = self.acts.front() {
            let Ok(token) = self.handle.submit(now, operation.clone()) else { break };
            self.sent.insert(token, Sent::Act(*act));
            self.acts.pop_front();
            self.pump(now, &mut said);
        }
        said
    }

    fn publish(&mut self, now: Now, plan: usize, it: Arc<Plan>, said: &mut Vec<ClientEvent>) -> bool {
        let Ok(number) = self.handle.number(now) else { return false };
        let publication = it.publication(0);
        let (token, sent) = if it.sealed {
            let message = Together { envelope: &publication.envelope(), bodies: &[&it.payload] };
            let token = match self.group.publish_together(now, message) {
                Ok(token) => token,
                Err(PublishError::NotReady | PublishError::Send(_)) => return false,
                Err(why) => panic!("{:?} publishes what it may: {why}", self.id),
            };
            self.handle.follow(token);
            (token, Sent::Sealed(plan, it, Some(number)))
        } else {
            let Ok(token) = self.handle.publish(now, publication) else { return false };
            (token, Sent::Clear(plan))
        };
        said.push(ClientEvent::Sends(plan, number));
        self.sent.insert(token, sent);
        true
    }

    fn pump(&mut self, now: Now, said: &mut Vec<ClientEvent>) {
        loop {
            self.batch.clear();
            match self.group.poll(now, &mut self.batch) {
                Some(output) => self.perform(now, output, said),
                None if !self.collect(now, said) => return,
                None => {}
            }
        }
    }

    fn perform(&mut self, now: Now, output: Output, said: &mut Vec<ClientEvent>) {
        match output {
            Output::Transmit(_) => {
                let Some(Address::Node(broker)) = self.batch.to else { return };
                let broker = u16::try_from(broker).expect("brokers are few");
                said.extend(self.batch.iter().map(|request| ClientEvent::Send(broker, request.into())));
            }
            // It is durable at once, and no client of the simulation ends.
            Output::Store { .. } => self.group.stored(),
            Output::Outcome(token, _) => {
                self.resealed(said);
                match (self.sent.remove(&token), self.handle.done(token)) {
                    (Some(Sent::Sealed(plan, ..)), Some(Done::Outcome(it @ OperationOutcome::Executed { .. }))) => {
                        said.push(executed(plan, &it));
                    }
                    // It was sealed again too often, or there was no room to.
                    (Some(Sent::Sealed(plan, it, _)), None) => {
                        self.handle.forget(now, token);
                        self.plans.push_front((plan, it));
                    }
                    // What a broker refuses or has forgotten is missed at the end.
                    (Some(sent), _) => _ = self.sent.insert(token, sent),
                    (None, _) => {}
                }
            }
            Output::Notice { notice: keys::Notice::Evidence(Evidence { against, .. }), .. } => {
                said.push(match against {
                    Culprit::Broker(broker) => ClientEvent::Accused(broker, "false share".into()),
                    Culprit::Publisher { client, number } => ClientEvent::Convicted(Id(client), number),
                })
            }
            Output::Deliver(_)
            | Output::View(_)
            | Output::Notice { .. }
            | Output::Described(_)
            | Output::State(..)
            | Output::Subscribed(..) => {}
        }
    }

    /// Takes what came for the application, in order; whether there was anything.
    fn collect(&mut self, now: Now, said: &mut Vec<ClientEvent>) -> bool {
        let before = said.len();
        self.resealed(said);
        if let Some(token) = self.subscribing
            && let Some(Done::Subscribed(subscription)) = self.handle.done(token)
        {
            (self.subscribing, self.subscription) = (None, Some(subscription));
            said.push(ClientEvent::Subscribed);
        }
        while let Some(item) = self.subscription.and_then(|it| self.handle.next(now, it)) {
            match item {
                Item::Publication { place, entry, content: Content::Bodies(bodies), .. } => {
                    said.push(ClientEvent::Delivered(place, entry, bodies.concat()));
                }
                Item::Publication { place, entry, content: Content::Elsewhere { hash, .. }, .. } => {
                    said.push(ClientEvent::Delivered(place, entry, hash.to_vec()));
                }
                Item::Empty { place, count } => said.push(ClientEvent::Empty(place, count)),
                Item::Lost { .. } => {}
            }
        }
        let handle = &self.handle;
        self.sent.retain(|token, sent| {
            let (plan, is_act) = match sent {
                Sent::Sealed(..) => return true,
                Sent::Clear(plan) => (*plan, false),
                Sent::Act(act) => (*act, true),
            };
            match handle.done(*token) {
                Some(Done::Outcome(OperationOutcome::Executed { height, outcome, .. })) if is_act => {
                    said.push(ClientEvent::Acted(plan, height, outcome.code));
                }
                Some(Done::Outcome(it @ OperationOutcome::Executed { .. })) => said.push(executed(plan, &it)),
                _ => return true,
            }
            false
        });
        self.receipts.retain(|token, plan| match handle.done(*token) {
            Some(Done::Receipt(receipt)) => {
                said.extend(receipt.map(|it| ClientEvent::Receipt(*plan, it)));
                false
            }
            _ => true,
        });
        while let Some(notice) = handle.notice() {
            match notice {
                Notice::Misbehaved { broker, how } => said.push(ClientEvent::Accused(broker, format!("{how:?}"))),
                Notice::Evidence(it) => said.push(ClientEvent::Accused(it.word.broker, "Testimony".into())),
                Notice::Unregistered | Notice::NotRegistered(..) | Notice::NotVouched | Notice::RolledBack { .. } => {}
            }
        }
        said.len() > before
    }

    /// Tells under which numbers plans were sealed again.
    fn resealed(&mut self, said: &mut Vec<ClientEvent>) {
        for (token, sent) in &mut self.sent {
            if let Sent::Sealed(plan, _, number) = sent
                && let Some(now) = self.handle.number_of(*token)
                && number.replace(now) != Some(now)
            {
                said.push(ClientEvent::Sends(*plan, now));
            }
        }
    }
}

/// The keys of a client of these brokers, who knows their key; the chance is its process's own.
///
/// # Panics
/// If it knows a key that is none.
pub(crate) fn keys(fixture: &Fixture, id: Id, chance: [u8; 32]) -> Box<dyn Keys> {
    let encoded = fixture.key.encode();
    let brokers: Vec<[u8; 32]> = fixture.genesis.brokers.iter().copied().collect();
    let pinned = pin(&fixture.cluster.0, &encoded);
    let config = KeyConfig::<Ristretto255>::new(id.0, fixture.cluster.0, &brokers, &encoded, &pinned);
    let config = config.unwrap_or_else(|why| panic!("{id:?}: {why}"));
    let incarnation = Incarnation(*chance.first_chunk().expect("it has 32 bytes"));
    Box::new(Threshold::new("client", incarnation, config, RequiredVersions::default(), &Secret::from_bytes(chance)))
}

/// What became of a plan.
fn executed(plan: usize, outcome: &OperationOutcome) -> ClientEvent {
    let OperationOutcome::Executed { height, number, outcome } = outcome else { unreachable!("it was executed") };
    let sn = outcome.detail.first_chunk().map_or(u64::MAX, |sn| u64::from_be_bytes(*sn));
    ClientEvent::Outcome(plan, *height, *number, outcome.code, sn)
}
