//! Operations with their numbers, in batches under way.
//!
//! ```text
//!             first                                       numbers ▶
//! operations  │ done │ ? │ done │ ? │ ? │ ? │ waiting │ waiting │
//! flights     └──── [first, end) ────┘└──── … ───┘
//! ```
//! A lone operation leaves at once; while batches are under way others gather for a moment. Batches go to one broker, the
//! client's primary broker, so that they are ordered in their order; what it refuses or what comes to nothing goes to others.
//! A number belongs to its operation until f + 1 brokers say what came of it, so the same bytes may be ordered any number
//! of times and are executed once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::{Interest, Operation, OperationId, sign_encoded};
use sealcast_broker::protocol::{Refusal, Request};
use sealcast_broker::state::{Code, OperationResult, Results};
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{Monotonic, Took, limits};

use sealcast_delivery::Token;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// The number of the first of `operations`, once it is known.
    first: Option<u64>,
    operations: VecDeque<Op>,
    bytes: usize,
    /// So many of `operations`, from the front, are in flights.
    batched: usize,
    flights: BTreeMap<u64, Flight>,
    flying_bytes: usize,
    /// Batches by the digests under which they were sent.
    digests: BTreeMap<[u8; 32], u64>,
    due: BTreeSet<(Monotonic, u64)>,
    /// When the oldest one that waits came.
    gathering: Option<Monotonic>,
    /// How long batches take.
    took: Took,
    /// When a batch last came to something.
    came: Option<Monotonic>,
    /// Operations wait for registrations.
    is_held: bool,
}

/// An operation of ours.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) token: Token,
    pub(super) what: What,
    pub(super) id: OperationId,
    pub(super) bytes: Arc<[u8]>,
    /// How often it got another number, or another version.
    pub(super) tries: u32,
    /// Brokers judge something of it when they execute it, and a batch has few of these: see [`limits::BATCH_PROOFS_MAX`].
    is_costly: bool,
    done: bool,
}

/// What the client does when it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It is brought up to date if it names old versions.
    Publish,
    /// Whoever sealed it seals again.
    Sealed,
    Subscribe(Interest),
    Unsubscribe(u64),
    Register,
    /// Gives a floor to the read with this token.
    SyncForRead(Token),
    /// Fills the number of an operation that brokers refuse.
    Filler,
    Other,
}

/// A batch under way.
#[derive(Debug)]
struct Flight {
    end: u64,
    /// Operations of it of which it is not known what came of them.
    left: usize,
    again: u8,
    digests: Vec<[u8; 32]>,
    request: Arc<[u8]>,
    /// It was ordered before its turn.
    early: bool,
    sent_at: Monotonic,
    due: Monotonic,
    tries: u32,
    at: BTreeSet<u16>,
    refused: BTreeMap<u16, Refusal>,
}

/// What became of one operation, if that is known.
#[derive(Debug)]
pub(super) enum Settled {
    /// It was executed.
    Done { op: Op, number: u64, outcome: OperationResult },
    /// Its number was used for something else: nothing came of it, and nothing will.
    Displaced(Op),
    /// Brokers refuse it.
    Refused(Op, Refusal),
}

impl Op {
    pub(super) fn new(token: Token, what: What, operation: &Operation) -> Op {
        let bytes: Arc<[u8]> = operation.to_bytes().into();
        let is_costly = matches!(operation, Operation::Register(_) | Operation::Administer(_) | Operation::Accuse(_));
        Op { token, what, id: OperationId::of(&bytes), bytes, tries: 0, is_costly, done: false }
    }

    /// The same, to get another number.
    pub(super) fn afresh(self) -> Op {
        Op { tries: self.tries + 1, done: false, ..self }
    }

    /// The same with other bytes, to get another number.
    pub(super) fn instead(self, operation: &Operation) -> Op {
        Op { tries: self.tries + 1, ..Op::new(self.token, self.what, operation) }
    }
}

impl Sending {
    /// Whether nothing waits or is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether another operation of so many bytes has room.
    pub(super) fn has_capacity(&self, bytes: usize) -> bool {
        self.operations.len() < limits::CLIENT_OPERATIONS_MAX
            && self.bytes + bytes <= limits::CLIENT_OPERATIONS_BYTES_MAX
    }

    /// Whether a registration waits or is under way.
    pub(super) fn is_registering(&self) -> bool {
        self.operations.iter().any(|op| op.what == What::Register && !op.done)
    }

    /// The number that the next operation gets.
    pub(super) fn next(&self) -> Option<u64> {
        self.first.map(|first| first + self.operations.len() as u64)
    }

    /// The number that an operation has.
    pub(super) fn number_of(&self, token: Token) -> Option<u64> {
        let at = self.operations.iter().position(|op| op.token == token && !op.done)?;
        self.first.map(|first| first + at as u64)
    }

    /// The client's next number, as f + 1 brokers back it. Does nothing once operations have theirs.
    pub(super) fn begin(&mut self, next: u64) {
        if self.operations.is_empty() || self.first.is_none() {
            self.first = self.first.max(Some(next));
        }
    }

    pub(super) fn push(&mut self, now: Monotonic, op: Op) {
        self.bytes += op.bytes.len();
        self.operations.push_back(op);
        self.gathering.get_or_insert(now);
    }

    /// Puts one before all others; only before numbers are given.
    pub(super) fn push_front(&mut self, now: Monotonic, op: Op) {
        assert!(self.batched == 0, "operations have no numbers yet");
        self.bytes += op.bytes.len();
        self.operations.push_front(op);
        self.gathering.get_or_insert(now);
    }

    /// Cuts batches of what waits, and names those that go to `primary_broker` now. Unless the client is registered, what comes after
    /// registrations waits for them: of a client that brokers do not know, no number is used up. Several go in one batch:
    /// who is not known is let in if one of them holds.
    pub(super) fn cut(
        &mut self,
        now: Monotonic,
        (cluster, key): (&Cluster, &OriginKey),
        operations: usize,
        primary_broker: u16,
        is_registered: bool,
    ) -> Vec<Arc<[u8]>> {
        let Some(first) = self.first.filter(|_| self.batched < self.operations.len()) else { return Vec::new() };
        let mut requests = Vec::new();
        let registers = |op: &Op| op.what == What::Register && !op.done;
        // Called for each publication: nothing may be looked for in all of them.
        let first_to_register = if is_registered { None } else { self.operations.iter().position(registers) };
        let end = first_to_register.map_or(self.operations.len(), |at| {
            let most = operations.min(limits::BATCH_PROOFS_MAX);
            at + self.operations.range(at..).take(most).take_while(|op| registers(op)).count()
        });
        self.is_held = end < self.operations.len();
        while self.batched < end
            && self.flying_bytes < limits::CLIENT_BATCHES_BYTES_MAX
            && self.flights.len() < limits::CLIENT_BATCHES_MAX
        {
            let (mut count, mut bytes, mut costly) = (0, 0, 0);
            let mut is_full = false;
            for op in self.operations.range(self.batched..end) {
                costly += usize::from(op.is_costly);
                if count == operations
                    || (count > 0 && bytes + op.bytes.len() > limits::CLIENT_BATCH_BYTES)
                    || costly > limits::BATCH_PROOFS_MAX
                {
                    is_full = true;
                    break;
                }
                (count, bytes) = (count + 1, bytes + op.bytes.len());
            }
            is_full |= count == operations;
            let gathered = self.gathering.is_none_or(|since| now >= since + self.gather());
            is_full |= self.batched + count == end && end < self.operations.len();
            if !is_full && !self.flights.is_empty() && !gathered {
                break;
            }
            let at = first + self.batched as u64;
            let flight = self.batch(now, cluster, key, at..at + count as u64, 0);
            let flight = Flight { at: BTreeSet::from([primary_broker]), due: now + self.retry_timeout(0), ..flight };
            requests.push(flight.request.clone());
            self.enter(at, flight);
            self.batched += count;
            self.gathering = (self.batched < self.operations.len()).then_some(now);
        }
        requests
    }

    /// A batch of these numbers, that is due to be sent.
    fn batch(
        &self,
        now: Monotonic,
        cluster: &Cluster,
        key: &OriginKey,
        Range { start: first, end }: Range<u64>,
        again: u8,
    ) -> Flight {
        let (from, until) = (self.place(first).expect("it is ours"), self.place(end - 1).expect("it is ours"));
        let of = self.operations.range(from..=until);
        let left = of.clone().filter(|op| !op.done).count();
        let (digest, bytes) = sign_encoded(cluster, key, first, again, of.map(|op| (&op.id, &op.bytes[..])));
        let request: Arc<[u8]> = Request::Submit(bytes).to_bytes().into();
        Flight {
            end,
            left,
            again,
            digests: vec![digest],
            request,
            early: false,
            sent_at: now,
            due: now,
            tries: 0,
            at: BTreeSet::new(),
            refused: BTreeMap::new(),
        }
    }

    fn enter(&mut self, first: u64, flight: Flight) {
        self.flying_bytes += flight.request.len();
        self.due.insert((flight.due, first));
        for digest in &flight.digests {
            self.digests.insert(*digest, first);
        }
        self.flights.insert(first, flight);
    }

    fn leave(&mut self, first: u64) -> Option<Flight> {
        let flight = self.flights.remove(&first)?;
        self.flying_bytes -= flight.request.len();
        self.due.remove(&(flight.due, first));
        for digest in &flight.digests {
            self.digests.remove(digest);
        }
        Some(flight)
    }

    fn put_off(&mut self, first: u64, due: Monotonic) {
        if let Some(flight) = self.flights.get_mut(&first) {
            self.due.remove(&(flight.due, first));
            flight.due = due;
            self.due.insert((due, first));
        }
    }

    fn place(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.first?)?).ok()?;
        (at < self.operations.len()).then_some(at)
    }

    /// The flight that holds a number.
    fn flight_of(&self, number: u64) -> Option<u64> {
        self.flights.range(..=number).next_back().filter(|(_, flight)| number < flight.end).map(|(first, _)| *first)
    }

    /// How long a batch may take before others are asked: well over what batches took lately.
    fn retry_timeout(&self, tries: u32) -> Duration {
        self.took.timeout(TIMEOUT_MIN, TIMEOUT_MAX) * (1 << tries.min(4))
    }

    /// How long operations gather while batches are under way.
    fn gather(&self) -> Duration {
        (self.took.lately() / 32).clamp(GATHER_MIN, GATHER_MAX)
    }

    /// Until when a batch that is due waits with those that come to something before it: much is under way, and its turn
    /// comes. Whoever lets one pass now and then gains no more than [`TIMEOUT_MAX`] by it.
    fn turn(&self, flight: &Flight) -> Option<Monotonic> {
        let is_with_somebody = flight.tries == 0 && !flight.early && !flight.at.is_empty();
        let came = self.came.filter(|_| is_with_somebody)?;
        Some((came + self.retry_timeout(0)).min(flight.sent_at + TIMEOUT_MAX))
    }

    /// Takes in what became of a batch, as f + 1 brokers say. Names the numbers that somebody used, nobody knows for what.
    pub(super) fn executed(&mut self, now: Monotonic, results: &Results) -> (Vec<Settled>, Vec<u64>) {
        let (mut settled, mut doubts) = (Vec::new(), Vec::new());
        let ours = self.digests.get(&results.batch).copied();
        if let Some(flight) = ours.and_then(|first| self.flights.get_mut(&first)) {
            let early = results.outcomes.last().is_some_and(|it| it.code == Code::Gap);
            if early && flight.digests.last() == Some(&results.batch) {
                flight.early = true;
            } else if !early {
                self.came = Some(now);
                if flight.tries == 0 {
                    self.took.saw(now.since(flight.sent_at));
                }
            }
        }
        for (number, outcome) in (results.first..).zip(&results.outcomes) {
            let Some(at) = self.place(number).filter(|at| *at < self.batched && !self.operations[*at].done) else {
                continue;
            };
            match outcome.code {
                Code::Gap => {}
                Code::Duplicate if ours.is_some() => doubts.push(number),
                Code::Duplicate => {}
                _ => {
                    let op = self.take(at, number);
                    let outcome = outcome.clone();
                    settled.push(if ours.is_some() {
                        Settled::Done { op, number, outcome }
                    } else {
                        Settled::Displaced(op)
                    });
                }
            }
        }
        self.pop();
        (settled, doubts)
    }

    /// Takes an operation out; its number is used up, and batches that are signed again hold it still.
    fn take(&mut self, at: usize, number: u64) -> Op {
        let op = &mut self.operations[at];
        op.done = true;
        let taken = Op { token: op.token, what: op.what.clone(), id: op.id, bytes: op.bytes.clone(), ..*op };
        if let Some(first) = self.flight_of(number)
            && let Some(flight) = self.flights.get_mut(&first)
        {
            flight.left -= 1;
            if flight.left == 0 {
                self.leave(first);
            }
        }
        taken
    }

    /// Forgets what is done, from the front.
    fn pop(&mut self) {
        while self.operations.front().is_some_and(|op| op.done) {
            let op = self.operations.pop_front().expect("just seen");
            self.bytes -= op.bytes.len();
            self.batched -= 1;
            self.first = self.first.map(|first| first + 1);
        }
    }

    /// Of a number that was used f + 1 brokers no longer know for what.
    pub(super) fn forgotten(&mut self, number: u64) -> Option<Op> {
        let at = self.place(number).filter(|at| *at < self.batched && !self.operations[*at].done)?;
        let op = self.take(at, number);
        self.pop();
        Some(op)
    }

    /// A broker refuses a batch. What f + 1 refuse for good is cut until it is clear which operation is the cause; that
    /// one is given back, and its number filled, since later ones wait for it. What they refuse because they do not know
    /// the client is given back with all that is under way: of whom they do not know they use no number up. Whom they do
    /// know soon finds a broker that has come as far.
    pub(super) fn refused(
        &mut self,
        now: Monotonic,
        keys: (&Cluster, &OriginKey),
        (broker, first, why): (u16, u64, Refusal),
        (faulty, is_registered): (usize, bool),
    ) -> Vec<Settled> {
        let Some(flight) = self.flights.get_mut(&first) else { return Vec::new() };
        flight.refused.insert(broker, why);
        flight.at.remove(&broker);
        let of_strangers = |why: &Refusal| matches!(why, Refusal::Unregistered | Refusal::Proof);
        let for_now = |why: &Refusal| {
            matches!(why, Refusal::Full | Refusal::Quota | Refusal::Ended) || is_registered && of_strangers(why)
        };
        if flight.refused.values().filter(|why| !for_now(why)).count() <= faulty {
            if flight.at.is_empty() {
                let waits = why == Refusal::Quota || is_registered && of_strangers(&why);
                self.put_off(first, now + if waits { QUOTA } else { Duration::ZERO });
            }
            return Vec::new();
        }
        if of_strangers(&why) {
            let refused: Vec<Settled> = self.take_back().into_iter().map(|op| Settled::Refused(op, why)).collect();
            // What waits moves up; what is sealed was sealed for its number.
            let (moved, waiting): (VecDeque<Op>, _) = self.operations.drain(..).partition(|op| op.what == What::Sealed);
            self.operations = waiting;
            self.bytes = self.operations.iter().map(|op| op.bytes.len()).sum();
            return refused.into_iter().chain(moved.into_iter().map(Settled::Displaced)).collect();
        }
        self.cut_out(now, keys, first, why).into_iter().collect()
    }

    /// All that is under way, as if it had never had a number.
    fn take_back(&mut self) -> Vec<Op> {
        let flights: Vec<u64> = self.flights.keys().copied().collect();
        flights.into_iter().for_each(|first| _ = self.leave(first));
        let batched = std::mem::take(&mut self.batched);
        let back: Vec<Op> = self.operations.drain(..batched).filter(|op| !op.done).collect();
        self.bytes = self.operations.iter().map(|op| op.bytes.len()).sum();
        back
    }

    /// One operation of a batch that brokers refuse, if it is alone there; else what is in it goes one by one.
    fn cut_out(&mut self, now: Monotonic, keys: (&Cluster, &OriginKey), first: u64, why: Refusal) -> Option<Settled> {
        let end = self.leave(first)?.end;
        let mut settled = None;
        if end - first == 1 {
            let at = self.place(first)?;
            let mut op = Op::new(self.operations[at].token, What::Filler, &Operation::Sync);
            std::mem::swap(&mut op, &mut self.operations[at]);
            self.bytes = self.bytes + self.operations[at].bytes.len() - op.bytes.len();
            settled = Some(Settled::Refused(op, why));
        }
        for number in first..end {
            if self.place(number).is_some_and(|at| !self.operations[at].done) {
                let flight = self.batch(now, keys.0, keys.1, number..number + 1, 0);
                self.enter(number, flight);
            }
        }
        settled
    }

    /// The channel to a broker is gone: what was with it alone goes to another one.
    pub(super) fn lost(&mut self, now: Monotonic, broker: u16) {
        let mut alone = Vec::new();
        for (first, flight) in &mut self.flights {
            if flight.at.remove(&broker) && flight.at.is_empty() {
                alone.push(*first);
            }
        }
        alone.into_iter().for_each(|first| self.put_off(first, now));
    }

    /// Some batches may have been ordered before their turn: if what was before them is done, all of them are due.
    pub(super) fn hasten_early(&mut self, now: Monotonic) {
        if self.flights.first_key_value().is_none_or(|(_, flight)| !flight.early) {
            return;
        }
        let early: Vec<u64> = self.flights.iter().filter(|(_, flight)| flight.early).map(|(first, _)| *first).collect();
        for first in early {
            if let Some(flight) = self.flights.get_mut(&first) {
                flight.at.clear();
            }
            self.put_off(first, now);
        }
    }

    /// The next batch whose time has come, and which of these brokers it goes to; the first is the client's primary broker.
    pub(super) fn late(
        &mut self,
        now: Monotonic,
        keys: (&Cluster, &OriginKey),
        up: &[u16],
        faulty: usize,
    ) -> Option<Late> {
        let first = loop {
            let &(_, first) = self.due.first().filter(|(due, _)| *due <= now)?;
            match self.turn(&self.flights[&first]).filter(|turn| *turn > now) {
                Some(turn) => self.put_off(first, turn),
                None => break first,
            }
        };
        let flight = &self.flights[&first];
        if flight.early || flight.tries >= TRIES_ALIKE {
            // Pools take no batch twice, so it is another one from now on: it came before its turn, perhaps unseen by us.
            let mut old = self.leave(first)?;
            let mut flight = self.batch(now, keys.0, keys.1, first..old.end, old.again.wrapping_add(1));
            flight.digests.splice(0..0, old.digests.drain(..));
            flight.tries = old.tries;
            if !old.early {
                flight.at = old.at;
            }
            self.enter(first, flight);
        }
        let silent = {
            let flight = self.flights.get_mut(&first).expect("what is due is under way");
            let silent: Vec<u16> = flight.at.iter().copied().collect();
            let fresh = up.iter().filter(|b| !flight.at.contains(b) && !flight.refused.contains_key(b));
            let mut to: Vec<u16> = fresh.take(if silent.is_empty() { 1 } else { faulty + 1 }).copied().collect();
            if to.is_empty() {
                flight.refused.clear();
                to = up.to_vec();
            }
            flight.at.extend(&to);
            flight.tries += 1;
            flight.sent_at = now;
            Late { request: flight.request.clone(), to, silent, number: first }
        };
        let tries = self.flights[&first].tries;
        let number = (first..self.flights[&first].end)
            .find(|number| self.place(*number).is_some_and(|at| !self.operations[at].done));
        self.put_off(first, now + self.retry_timeout(tries));
        Some(Late { number: number.unwrap_or(first), ..silent })
    }

    /// When [`Sending::cut`] or [`Sending::late`] has something to do.
    pub(super) fn timeout(&self) -> Option<Monotonic> {
        let has_capacity = !(self.is_held && self.batched > 0)
            && self.flying_bytes < limits::CLIENT_BATCHES_BYTES_MAX
            && self.flights.len() < limits::CLIENT_BATCHES_MAX
            && self.first.is_some();
        let gathering = self.gathering.filter(|_| has_capacity).map(|since| since + self.gather());
        self.due.first().map(|(due, _)| *due).into_iter().chain(gathering).min()
    }
}

/// A batch that is sent again.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) request: Arc<[u8]>,
    pub(super) to: Vec<u16>,
    /// Who had it and nothing came of it; none if they were lost or refused it.
    pub(super) silent: Vec<u16>,
    /// The first number of it of which nothing is known.
    pub(super) number: u64,
}

/// How often the same batch is sent, to ever more brokers, before it is signed as another one.
const TRIES_ALIKE: u32 = 2;
/// They are counted together here.
const _: () = assert!(limits::BATCH_PROOFS_MAX <= limits::BATCH_ACCUSATIONS_MAX);
/// How long operations gather while batches are under way, a fraction of what batches take: at least,
const GATHER_MIN: Duration = Duration::from_millis(1);
/// and at most.
const GATHER_MAX: Duration = Duration::from_millis(10);
/// Silence after which a batch goes to more brokers, at least: a block under load took half a second here.
const TIMEOUT_MIN: Duration = Duration::from_millis(500);
/// And at most.
const TIMEOUT_MAX: Duration = Duration::from_secs(4);
/// How long a broker is left alone that says that too much waits with it.
const QUOTA: Duration = Duration::from_millis(20);
