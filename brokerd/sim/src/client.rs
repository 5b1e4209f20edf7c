//! One correct client: the machine of `sealcast_client`, the keys of `keys::threshold`, and an application that takes
//! what comes in order. What joins them does what `sealcast::brokers` does, on the simulation's time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sealcast_broker::operation::{Body, Client as Id, Operation, Publication, Registration};
use sealcast_broker::receipt::Receipt;
use sealcast_broker::state::{Code, Entry};
use sealcast_client::{Config, Delivered, Notice, Outcome, Output, Quorum};
use sealcast_crypto::group::Ristretto255;
use sealcast_crypto::secret::Secret;
use sealcast_delivery::Token;
use sealcast_keys::threshold::{Config as KeyConfig, Standing, Threshold, pin};
use sealcast_keys::{self as keys, Keys as _};
use sealcast_wire::{Culprit, Evidence, Incarnation, Monotonic, Now, SealedHeader, Utc};

use crate::cast::{Cast, Desk, Interest, Plan, key};

/// One correct client.
pub struct Client {
    /// Its key.
    pub id: Id,
    /// What it may read.
    pub desk: Desk,
    quorum: Quorum,
    keys: Threshold<Ristretto255>,
    /// What is still to be sent: plans by their numbers in the run.
    pub plans: VecDeque<(usize, Arc<Plan>)>,
    /// Acts and other operations still to be sent.
    pub acts: VecDeque<(usize, Operation)>,
    sent: BTreeMap<Token, Sent>,
    receipts: BTreeMap<Token, usize>,
    lines: BTreeMap<u64, VecDeque<Waiting>>,
    /// What it is still to subscribe to.
    wanted: Interest,
}

/// What a token stands for.
enum Sent {
    Plan(usize, Arc<Plan>),
    Act(usize),
}

/// A place of its subscription, perhaps still sealed.
enum Waiting {
    Opened { place: u64, entry: Box<Entry>, body: Vec<u8> },
    Empty { place: u64, count: u64 },
    Sealed { place: u64, entry: Box<Entry> },
}

/// What comes of a client's work.
pub enum Said {
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
    pub fn new(cast: &Cast, seed: u8, desk: Desk, interest: Interest) -> Client {
        let origin = Arc::new(key(seed));
        let id = Id(origin.public_bytes());
        let registration = Some(cast.registration(seed, desk));
        Client::with(cast, seed, desk, interest, registration)
            .unwrap_or_else(|| panic!("{id:?} knows a key that is none"))
    }

    fn with(cast: &Cast, seed: u8, desk: Desk, wanted: Interest, registration: Option<Registration>) -> Option<Client> {
        let origin = Arc::new(key(seed));
        let id = Id(origin.public_bytes());
        let registrations = registration.into_iter().collect();
        let config = Config { genesis: cast.genesis.clone(), key: origin, registrations, frame_operations: 8 };
        let encoded = cast.key.encode();
        let brokers: Vec<[u8; 32]> = cast.genesis.brokers.iter().copied().collect();
        let pinned = pin(&cast.cluster.0, &encoded);
        let of_keys = KeyConfig::new(id.0, cast.cluster.0, &brokers, &encoded, &pinned).ok()?;
        let secret = Secret::from_bytes([seed; 32]);
        let keys = Threshold::new("client", Incarnation([seed; 16]), of_keys, Standing::default(), &secret);
        Some(Client {
            id,
            desk,
            quorum: Quorum::new(config),
            keys,
            plans: VecDeque::new(),
            acts: VecDeque::new(),
            sent: BTreeMap::new(),
            receipts: BTreeMap::new(),
            lines: BTreeMap::new(),
            wanted,
        })
    }

    /// The channel to a broker is open.
    pub fn connected(&mut self, now: Now, broker: u16) {
        self.quorum.connected(now, broker);
    }

    /// The channel to a broker is closed.
    pub fn disconnected(&mut self, now: Now, broker: u16) {
        self.quorum.disconnected(now, broker);
    }

    /// A broker says something.
    pub fn handle(&mut self, now: Now, broker: u16, reply: &[u8]) {
        self.quorum.handle(now, broker, reply);
    }

    /// When [`Client::work`] wants to be called next.
    pub fn timeout(&self) -> Option<Monotonic> {
        [self.quorum.timeout(), self.keys.timeout()].into_iter().flatten().min()
    }

    /// The time of the newest block that it believes in.
    pub fn believes(&self) -> Option<Utc> {
        self.quorum.at()
    }

    /// What waits for an outcome or to be sent.
    pub fn pending(&self) -> usize {
        self.plans.len() + self.acts.len() + self.sent.len()
    }

    /// Asks for the receipt of a plan that has its place.
    pub fn ask_receipt(&mut self, now: Now, plan: usize, height: u64, number: u64) {
        if let Ok(token) = self.quorum.receipt(now, height, number) {
            self.receipts.insert(token, plan);
        }
    }

    /// Does all that can be done now.
    pub fn work(&mut self, now: Now) -> Vec<Said> {
        let mut said = Vec::new();
        if self.quorum.timeout().is_some_and(|at| at <= now.monotonic) {
            self.quorum.handle_timeout(now);
        }
        if self.keys.timeout().is_some_and(|at| at <= now.monotonic) {
            self.keys.handle_timeout(now);
        }
        if let Some(wanted) = self.wanted
            && self.quorum.subscribe(now, wanted.parse().expect("an interest")).is_ok()
        {
            self.wanted = None;
        }
        self.pump(now, &mut said);
        while let Some((plan, it)) = self.plans.front().cloned() {
            if !self.publish(now, plan, &it, &mut said) {
                break;
            }
            self.plans.pop_front();
            self.pump(now, &mut said);
        }
        while let Some((act, operation)) = self.acts.front() {
            let Ok(token) = self.quorum.submit(now, operation.clone()) else { break };
            self.sent.insert(token, Sent::Act(*act));
            self.acts.pop_front();
            self.pump(now, &mut said);
        }
        said
    }

    fn publish(&mut self, now: Now, plan: usize, it: &Arc<Plan>, said: &mut Vec<Said>) -> bool {
        let Ok(number) = self.quorum.number(now) else { return false };
        let token = if it.sealed {
            let Some(standing) = self.quorum.standing() else { return false };
            let versions = Standing { epoch: standing.epoch, policy: standing.policy };
            self.tell_keys(now, keys::Input::InForce(versions.into()));
            let publication = it.publication(0);
            let envelope = publication.envelope();
            let id = u128::from(number).to_be_bytes();
            let message = keys::Seal { id, envelope: &envelope, bodies: &[&it.payload] };
            let Ok(sealed) = self.keys.seal(&message) else { return false };
            let Ok(header) = SealedHeader::from_bytes(&sealed.header) else { return false };
            let (policy, epoch) = (header.envelope.policy, header.envelope.epoch);
            let publication = Publication { policy, epoch, body: Body::Sealed(sealed.body), ..publication };
            self.quorum.publish_sealed(now, number, publication, None)
        } else {
            self.quorum.publish(now, it.publication(0))
        };
        let Ok(token) = token else { return false };
        said.push(Said::Sends(plan, number));
        self.sent.insert(token, Sent::Plan(plan, it.clone()));
        true
    }

    fn pump(&mut self, now: Now, said: &mut Vec<Said>) {
        loop {
            if let Some(output) = self.quorum.poll(now) {
                self.perform(now, output, said);
            } else if let Some(output) = self.keys.poll() {
                self.perform_for_keys(now, output, said);
            } else {
                return;
            }
        }
    }

    fn perform(&mut self, now: Now, output: Output, said: &mut Vec<Said>) {
        match output {
            Output::Send { broker, request } => said.push(Said::Send(broker, request)),
            Output::Standing(it) => {
                let versions = Standing { epoch: it.epoch, policy: it.policy };
                self.tell_keys(now, keys::Input::InForce(versions.into()));
            }
            Output::Delivered(it) => self.deliver(now, *it, said),
            Output::Skipped { subscription, place, count } => {
                self.line_up(now, subscription, Waiting::Empty { place, count }, said);
            }
            Output::Attach { sn, broker, attachment } => {
                let attachments = [(broker, attachment)];
                let more = keys::Delivered { index: sn, header: &[], body: None, attachments: &attachments };
                self.tell_keys(now, keys::Input::Delivered(more));
            }
            Output::Outcome(token, outcome) => self.settle_outcome(token, outcome, said),
            Output::Subscribed { subscription, .. } => {
                self.lines.entry(subscription).or_default();
                said.push(Said::Subscribed);
            }
            Output::Receipt(token, receipt) => {
                if let (Some(plan), Some(receipt)) = (self.receipts.remove(&token), receipt) {
                    said.push(Said::Receipt(plan, receipt));
                }
            }
            Output::Notice(Notice::Misbehaved { broker, how }) => said.push(Said::Accused(broker, format!("{how:?}"))),
            Output::Notice(Notice::Evidence(it)) => said.push(Said::Accused(it.word.broker, "Testimony".into())),
            Output::Notice(_)
            | Output::Read(..)
            | Output::Status(..)
            | Output::Proofs(..)
            | Output::Store(_)
            | Output::Lost { .. }
            | Output::Advertised { .. } => {}
        }
    }

    fn settle_outcome(&mut self, token: Token, outcome: Outcome, said: &mut Vec<Said>) {
        match (self.sent.remove(&token), outcome) {
            (Some(Sent::Plan(plan, it)), Outcome::Superseded { .. }) => self.plans.push_front((plan, it)),
            (Some(Sent::Plan(plan, _)), Outcome::Executed { height, number, outcome }) => {
                let sn = outcome.detail.first_chunk().map_or(u64::MAX, |sn| u64::from_be_bytes(*sn));
                said.push(Said::Outcome(plan, height, number, outcome.code, sn));
            }
            (Some(Sent::Act(act)), Outcome::Executed { height, outcome, .. }) => {
                said.push(Said::Acted(act, height, outcome.code));
            }
            // What a broker refuses or has forgotten is missed at the end, unless it is nothing of ours.
            (Some(sent), _) => {
                self.sent.insert(token, sent);
            }
            (None, _) => {}
        }
    }

    fn perform_for_keys(&mut self, now: Now, output: keys::Output, said: &mut Vec<Said>) {
        match output {
            keys::Output::Opened { index, bodies, .. } => {
                self.quorum.opened(index);
                let body = bodies.and_then(|bodies| bodies.into_iter().next());
                for line in self.lines.values_mut() {
                    for it in line.iter_mut() {
                        if let Waiting::Sealed { place, entry } = it
                            && entry.sn == index
                        {
                            *it = match &body {
                                Some(body) => {
                                    Waiting::Opened { place: *place, entry: entry.clone(), body: body.clone() }
                                }
                                None => Waiting::Empty { place: *place, count: 1 },
                            };
                        }
                    }
                }
                self.advance(now, said);
            }
            keys::Output::Fetch { id, what } => {
                let result = self.quorum.fetch(now, &what);
                self.tell_keys(now, keys::Input::Fetched(id, result));
            }
            keys::Output::Notice { notice: keys::Notice::Evidence(Evidence { against, .. }), .. } => match against {
                Culprit::Broker(broker) => {
                    said.push(Said::Accused(broker, "false share".into()));
                }
                Culprit::Publisher { client, number } => {
                    said.push(Said::Convicted(Id(client), number));
                }
            },
            _ => {}
        }
    }

    /// Nothing is refused: these are no commands and no messages.
    fn tell_keys(&mut self, now: Now, input: keys::Input<'_>) {
        let _ = self.keys.handle(now, input);
    }

    fn deliver(&mut self, now: Now, delivered: Delivered, said: &mut Vec<Said>) {
        let Delivered { subscription, place, entry, publication } = delivered;
        let entry = Box::new(entry);
        match &publication.body {
            Body::Sealed(body) => {
                let header =
                    SealedHeader { client: entry.client.0, number: entry.number, envelope: publication.envelope() };
                let (header, sn) = (header.to_bytes(), entry.sn);
                self.line_up(now, subscription, Waiting::Sealed { place, entry }, said);
                let it = keys::Delivered { index: sn, header: &header, body: Some(body), attachments: &[] };
                self.tell_keys(now, keys::Input::Delivered(it));
            }
            Body::Plain(body) => {
                let body = body.clone();
                self.line_up(now, subscription, Waiting::Opened { place, entry, body }, said);
            }
            Body::Digest { hash, .. } => {
                let body = hash.to_vec();
                self.line_up(now, subscription, Waiting::Opened { place, entry, body }, said);
            }
        }
    }

    fn line_up(&mut self, now: Now, subscription: u64, waiting: Waiting, said: &mut Vec<Said>) {
        self.lines.entry(subscription).or_default().push_back(waiting);
        self.advance(now, said);
    }

    /// The application takes what is ready, in order.
    fn advance(&mut self, now: Now, said: &mut Vec<Said>) {
        for (subscription, line) in &mut self.lines {
            while let Some(next) = line.pop_front_if(|next| !matches!(next, Waiting::Sealed { .. })) {
                match next {
                    Waiting::Opened { place, entry, body } => {
                        self.quorum.taken(now, *subscription, place + 1, Some(entry.sn));
                        said.push(Said::Delivered(place, entry, body));
                    }
                    Waiting::Empty { place, count } => {
                        self.quorum.taken(now, *subscription, place + count, None);
                        said.push(Said::Empty(place, count));
                    }
                    Waiting::Sealed { .. } => {}
                }
            }
        }
    }
}
