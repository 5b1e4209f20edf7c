//! Clients that misbehave, each by a name. They hold a key and a registration like others, and keep to no machine.

use std::collections::BTreeSet;
use std::sync::Arc;

use sealcast_broker::operation::{Batch, Body, Client as Id, Operation, Publication};
use sealcast_broker::protocol::{Query, Request};
use sealcast_crypto::signature::OriginKey;

use crate::fixture::{Desk, Fixture, Plan, key};

/// How a client misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// Signs two different operations under one number, and hands them to different brokers.
    SameNumberTwice,
    /// Sends ciphertexts that are none, or that somebody changed.
    MalformedCiphertext,
    /// Sends others' batches again, and others' ciphertexts as its own.
    Replayer,
    /// Registers by the word of somebody who is no issuer, and publishes for attributes that nobody gives.
    ForeignIssuer,
    /// Sends long batches to one broker faster than they are ordered.
    Flooder,
}

impl Deed {
    /// All of them.
    pub const ALL: [Deed; 5] =
        [Deed::SameNumberTwice, Deed::MalformedCiphertext, Deed::Replayer, Deed::ForeignIssuer, Deed::Flooder];

    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Deed::SameNumberTwice => "same-number-twice",
            Deed::MalformedCiphertext => "malformed-ciphertext",
            Deed::Replayer => "replayer",
            Deed::ForeignIssuer => "foreign-issuer",
            Deed::Flooder => "flooder",
        }
    }
}

/// One such client.
pub struct ByzantineClient {
    /// Its key's public part.
    pub id: Id,
    /// What it may read.
    pub desk: Desk,
    deed: Deed,
    origin: OriginKey,
    seed: u8,
    number: u64,
    turn: u64,
    /// What it overheard: batches of others.
    pub overheard: Vec<Vec<u8>>,
    /// Batches in which it misbehaved.
    pub misbehaviours: BTreeSet<Vec<u8>>,
}

/// What it does at one time.
#[derive(Default)]
pub struct Act {
    /// Messages to brokers.
    pub messages: Vec<(usize, Vec<u8>)>,
    /// What it has in mind to publish, under which number.
    pub plans: Vec<(Arc<Plan>, u64)>,
}

impl ByzantineClient {
    /// At desk rates; a client that is registered by an unregistered client alone is at none.
    pub fn new(seed: u8, deed: Deed) -> ByzantineClient {
        let origin = key(seed);
        let id = Id(origin.public_bytes());
        let desk = (deed != Deed::ForeignIssuer).then_some("rates");
        ByzantineClient {
            id,
            desk,
            deed,
            origin,
            seed,
            number: 0,
            turn: 0,
            overheard: Vec::new(),
            misbehaviours: BTreeSet::new(),
        }
    }

    /// What it does now. `dice` are the seed's.
    pub fn act(&mut self, fixture: &Fixture, dice: u64) -> Act {
        let mut act = Act::default();
        let brokers = fixture.brokers();
        let at = usize::try_from(dice % brokers as u64).expect("it is small");
        self.turn += 1;
        match self.turn {
            1 => {
                if self.deed == Deed::ForeignIssuer {
                    let foreign = Operation::Register(fixture.foreign_registration(self.seed, Some("fx")));
                    self.send(&mut act, fixture, 0, at, foreign);
                }
                let word = Operation::Register(fixture.registration(self.seed, self.desk));
                self.send(&mut act, fixture, 0, at, word);
                self.number = 1;
            }
            2 => {
                self.send(&mut act, fixture, 1, at, Operation::Subscribe("#".parse().expect("an interest")));
                self.number = 2;
            }
            turn => {
                self.misbehave(&mut act, fixture, turn, at, dice >> 8);
                let batches = act.messages.iter().filter_map(|(_, bytes)| Request::submitted(bytes));
                self.misbehaviours.extend(batches.map(<[u8]>::to_vec));
                // Whoever reads what he may not asks everybody for shares, with proofs.
                for broker in 0..brokers {
                    let query = Query::Share { sn: (dice >> 16) % 40, proved: turn.is_multiple_of(2) };
                    act.messages.push((broker, Request::Query { id: turn, query }.to_bytes()));
                }
            }
        }
        act
    }

    fn misbehave(&mut self, act: &mut Act, fixture: &Fixture, turn: u64, at: usize, dice: u64) {
        let other = (at + 1) % fixture.brokers();
        // The policy in force, as a rule; now and then the one before.
        let policy = u64::from(!turn.is_multiple_of(4));
        match self.deed {
            Deed::SameNumberTwice => {
                for (face, broker) in [("one", at), ("other", other)] {
                    let plan =
                        self.plan(format!("{face} face of {turn}"), Some("fx").filter(|_| turn.is_multiple_of(2)));
                    let operation = Operation::Publish(Box::new(plan.publication(policy)));
                    act.plans.push((plan, self.number));
                    self.send(act, fixture, self.number, broker, operation);
                }
                self.number += 1;
            }
            Deed::MalformedCiphertext => {
                let changed = self.overheard.iter().rev().find_map(|batch| sealed_in(batch));
                let body = match changed {
                    Some(it) if turn.is_multiple_of(2) => {
                        let Body::Sealed(mut bytes) = it.body else { return };
                        let place = usize::try_from(dice % bytes.len() as u64).expect("it is small");
                        bytes[place] ^= 1;
                        bytes
                    }
                    _ => vec![7; 200 + usize::from(self.seed)],
                };
                let plan = self.plan(format!("malformed {turn}"), None);
                let publication = Publication { body: Body::Sealed(body), ..plan.publication(policy) };
                self.send(act, fixture, self.number, at, Operation::Publish(Box::new(publication)));
            }
            Deed::Replayer => {
                if let Some(batch) = self.overheard.get(usize::try_from(dice % 64).expect("it is small")) {
                    act.messages.push((at, Request::Submit(batch.clone()).to_bytes()));
                }
                if let Some(it) = self.overheard.iter().rev().find_map(|batch| sealed_in(batch)) {
                    self.send(act, fixture, self.number, other, Operation::Publish(Box::new(it)));
                }
            }
            Deed::ForeignIssuer => {
                let plan = self.plan(format!("for nobody {turn}"), Some("nowhere"));
                let access = Some("nowhere:desk = fx".parse().expect("a condition"));
                let publication = Publication { access, ..plan.publication(policy) };
                act.plans.push((plan, self.number));
                self.send(act, fixture, self.number, at, Operation::Publish(Box::new(publication)));
                self.number += 1;
            }
            Deed::Flooder => {
                for n in 0..FLOOD_BATCHES {
                    let plan = self.plan(format!("flood {turn} {n} {}", "~".repeat(FLOOD_BYTES)), None);
                    let operation = Operation::Publish(Box::new(plan.publication(policy)));
                    act.plans.push((plan, self.number));
                    self.send(act, fixture, self.number, usize::from(self.seed) % fixture.brokers(), operation);
                    self.number += 1;
                }
            }
        }
    }

    fn plan(&self, what: String, only: Desk) -> Arc<Plan> {
        let payload = format!("villain: {what}").into_bytes();
        Arc::new(Plan { client: self.id, topic: "open", only, sealed: false, payload })
    }

    fn send(&self, act: &mut Act, fixture: &Fixture, number: u64, broker: usize, operation: Operation) {
        let batch = Batch::sign(&fixture.cluster, &self.origin, number, vec![operation]);
        act.messages.push((broker, Request::Submit(batch.to_bytes()).to_bytes()));
    }
}

/// A sealed publication in a batch.
fn sealed_in(batch: &[u8]) -> Option<Publication> {
    let batch = Batch::from_bytes(batch).ok()?;
    batch.operations().find_map(|(_, _, operation)| match operation {
        Operation::Publish(it) if matches!(it.body, Body::Sealed(_)) => Some((**it).clone()),
        _ => None,
    })
}

/// Batches that a flooder sends at one time.
const FLOOD_BATCHES: usize = 16;
/// Bytes of each.
const FLOOD_BYTES: usize = 4096;
