//! Two publishers at a rate, and two subscribers.
//!
//! A publisher's numbers must come to both subscribers each once and in their order, and what the two of them publish in
//! one order; what was acknowledged must come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sealcast::brokers::{Brokers, Content, Item, Outgoing, Subscription};
use sealcast_broker::operation::{Execute, Header};
use sealcast_client::OperationOutcome;

use super::cluster::Cluster;
use crate::Failure;

/// How much is published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Publications per second, of both publishers together.
    pub(crate) per_second: f64,
    /// Bytes of each.
    pub(crate) bytes: usize,
    /// Publications of one batch, at most.
    pub(crate) batch: usize,
}

/// A running load.
pub(crate) struct Load {
    shared: Arc<Shared>,
    publishers: Vec<JoinHandle<Result<Sent, String>>>,
    readers: Vec<JoinHandle<Result<Read, String>>>,
}

/// What it came to.
#[derive(Debug)]
pub(crate) struct Outcomes {
    /// Publications whose place was acknowledged.
    pub(crate) acknowledged: u64,
    /// Publications that came to each subscriber.
    pub(crate) delivered: u64,
    /// Receipts that were asked for, and held.
    pub(crate) receipts: u64,
}

#[derive(Default)]
struct Shared {
    ending: AtomicBool,
    /// How many each publisher has published, once it has ended.
    published: [AtomicU64; PUBLISHERS],
    ended: AtomicU64,
    /// Deliveries to the first subscriber: how many, when the last one was, and the longest time without one.
    deliveries: Mutex<Deliveries>,
    failure: Mutex<Option<String>>,
}

#[derive(Default)]
struct Deliveries {
    count: u64,
    last: Option<Instant>,
    longest: Duration,
}

/// What a publisher has done.
struct Sent {
    acknowledged: u64,
    receipts: u64,
}

/// What a subscriber got: publisher and number, in its order.
struct Read(Vec<(u8, u32)>);

impl Load {
    /// Starts it; the brokers are there.
    pub(crate) fn start(cluster: &Cluster, rate: Rate) -> Result<Load, Failure> {
        let shared = Arc::new(Shared::default());
        let (mut subscriptions, mut publishers, mut readers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..READERS {
            let client = cluster.client(1)?;
            client.registered().wait()?;
            let subscription = client.subscribe("load/#".parse()?).wait()?;
            subscriptions.push((client, subscription));
        }
        let clients = (0..PUBLISHERS).map(|_| cluster.client(rate.batch)).collect::<Result<Vec<_>, _>>()?;
        clients.iter().try_for_each(|it| it.registered().wait().map(drop))?;
        for (number, (client, subscription)) in subscriptions.into_iter().enumerate() {
            let shared = shared.clone();
            readers.push(std::thread::spawn(move || {
                let read = read(number, subscription, &shared);
                client.close();
                read.inspect_err(|why| shared.fail(why))
            }));
        }
        for (number, client) in clients.into_iter().enumerate() {
            let (shared, genesis) = (shared.clone(), cluster.file().genesis.clone());
            publishers.push(std::thread::spawn(move || {
                let publisher = Publisher { number, client, rate, under_way: VecDeque::new(), last: None };
                let sent = publisher.run(&shared, &genesis);
                shared.ended.fetch_add(1, Ordering::AcqRel);
                sent.inspect_err(|why| shared.fail(why))
            }));
        }
        Ok(Load { shared, publishers, readers })
    }

    /// How many were delivered.
    pub(crate) fn delivered(&self) -> u64 {
        lock(&self.shared.deliveries).count
    }

    /// The longest time without a delivery since the last call, the time until now among them.
    pub(crate) fn longest_gap(&self) -> Duration {
        let mut deliveries = lock(&self.shared.deliveries);
        let longest = deliveries.longest.max(deliveries.last.map_or(Duration::ZERO, |it| it.elapsed()));
        deliveries.longest = Duration::ZERO;
        longest
    }

    /// Fails if something came that must not.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match lock(&self.shared.failure).as_ref() {
            Some(why) => Err(why.clone().into()),
            None => Ok(()),
        }
    }

    /// Ends it when all that was published has come, and compares what the subscribers got.
    pub(crate) fn end(self) -> Result<Outcomes, Failure> {
        self.shared.ending.store(true, Ordering::Release);
        let mut outcomes = Outcomes { acknowledged: 0, delivered: 0, receipts: 0 };
        for publisher in self.publishers {
            let sent = publisher.join().map_err(|_| "a publisher's thread ended")??;
            outcomes.acknowledged += sent.acknowledged;
            outcomes.receipts += sent.receipts;
        }
        let mut orders = Vec::new();
        for reader in self.readers {
            orders.push(reader.join().map_err(|_| "a subscriber's thread ended")??.0);
        }
        if orders[0] != orders[1] {
            let at = orders[0].iter().zip(&orders[1]).take_while(|(a, b)| a == b).count();
            let what = format!(
                "two orders: at place {at} of {} and {} stand {:?} and {:?}",
                orders[0].len(),
                orders[1].len(),
                orders[0].get(at),
                orders[1].get(at)
            );
            return Err(what.into());
        }
        outcomes.delivered = orders[0].len() as u64;
        if outcomes.delivered < outcomes.acknowledged {
            let what = format!("{} came of {} that were acknowledged", outcomes.delivered, outcomes.acknowledged);
            return Err(what.into());
        }
        Ok(outcomes)
    }
}

impl Shared {
    fn fail(&self, why: &str) {
        lock(&self.failure).get_or_insert_with(|| why.to_owned());
    }
}

/// One publisher.
struct Publisher {
    number: usize,
    client: Brokers,
    rate: Rate,
    under_way: VecDeque<sealcast_delivery::Token>,
    /// Block and number of the last one that is acknowledged.
    last: Option<(u64, u64)>,
}

impl Publisher {
    fn run(mut self, shared: &Shared, genesis: &sealcast_broker::genesis::Genesis) -> Result<Sent, String> {
        let begun = Instant::now();
        let (mut number, mut sent) = (0_u64, Sent { acknowledged: 0, receipts: 0 });
        let mut receipt_at = Instant::now() + RECEIPT_EVERY;
        let mut body = vec![0x5A; self.rate.bytes.max(HEAD)];
        let per_second = self.rate.per_second / PUBLISHERS as f64;
        let mut behind = Duration::ZERO;
        while !shared.ending.load(Ordering::Acquire) {
            // What could not be published while the brokers were down is not made up for.
            let due = ((begun.elapsed() - behind).as_secs_f64() * per_second) as u64;
            if number >= due {
                std::thread::sleep(TICK);
            }
            if due > number + per_second as u64 {
                behind += Duration::from_secs_f64((due - number) as f64 / per_second);
            }
            while number < due.min(number + BURST) && self.under_way.len() < UNDER_WAY_MAX {
                body[0] = self.number as u8;
                body[1..HEAD].copy_from_slice(&(number as u32).to_be_bytes());
                let token = self.client.begin(&self.outgoing(&body)).wait();
                self.under_way.push_back(token.map_err(|e| format!("publisher {}: {e}", self.number))?);
                number += 1;
            }
            while self.under_way.len() >= UNDER_WAY_MAX / 2 {
                self.settle(&mut sent)?;
            }
            if receipt_at <= Instant::now() {
                receipt_at = Instant::now() + RECEIPT_EVERY;
                while !self.under_way.is_empty() {
                    self.settle(&mut sent)?;
                }
                if let Some((height, number)) = self.last.take() {
                    let receipt = self.client.receipt(height, number).wait().map_err(|e| format!("a receipt: {e}"))?;
                    receipt.verify(genesis).map_err(|e| format!("a receipt: {e}"))?;
                    sent.receipts += 1;
                }
            }
        }
        while !self.under_way.is_empty() {
            self.settle(&mut sent)?;
        }
        self.client.close();
        shared.published[self.number].store(number, Ordering::Release);
        Ok(sent)
    }

    fn outgoing(&self, body: &[u8]) -> Outgoing {
        Outgoing {
            headers: vec![Header { topic: format!("load/{}", self.number), value: None }],
            associated: Vec::new(),
            access: None,
            execute: Execute::Nothing,
            body: body.to_vec(),
        }
    }

    /// Waits for the oldest one under way.
    fn settle(&mut self, sent: &mut Sent) -> Result<(), String> {
        let token = self.under_way.pop_front().expect("callers look");
        match self.client.outcome(token).wait().map_err(|e| format!("publisher {}: {e}", self.number))? {
            OperationOutcome::Executed { height, number, outcome }
                if outcome.code == sealcast_broker::state::Code::Done =>
            {
                self.last = Some((height, number));
                sent.acknowledged += 1;
                Ok(())
            }
            other => Err(format!("publisher {}: a publication came to {other:?}", self.number)),
        }
    }
}

/// Reads until all that the publishers published has come.
fn read(reader: usize, mut subscription: Subscription, shared: &Shared) -> Result<Read, String> {
    let mut order = Vec::new();
    let mut next = [0_u64; PUBLISHERS];
    let mut last_sn = None;
    let mut heard = Instant::now();
    loop {
        let over = shared.ended.load(Ordering::Acquire) == PUBLISHERS as u64;
        if over && (0..PUBLISHERS).all(|it| next[it] >= shared.published[it].load(Ordering::Acquire)) {
            return Ok(Read(order));
        }
        let item = subscription.next_timeout(LOOK).map_err(|e| format!("subscriber {reader}: {e}"))?;
        let Some(item) = item else {
            if over && heard.elapsed() > LAST_TIMEOUT {
                let published: Vec<u64> = shared.published.iter().map(|it| it.load(Ordering::Acquire)).collect();
                return Err(format!("subscriber {reader}: {next:?} came of {published:?}, and nothing more"));
            }
            continue;
        };
        heard = Instant::now();
        let Item::Publication { entry, content: Content::Bodies(bodies), .. } = item else {
            return Err(format!("subscriber {reader}: ⊥ came, and all may be read"));
        };
        if last_sn.replace(entry.sn).is_some_and(|before| before >= entry.sn) {
            return Err(format!("subscriber {reader}: sn {} came after {last_sn:?}", entry.sn));
        }
        for body in bodies {
            let publisher = usize::from(body[0]);
            let number = u32::from_be_bytes(body[1..HEAD].try_into().expect("four bytes"));
            let expected = next.get_mut(publisher).ok_or_else(|| format!("there is no publisher {publisher}"))?;
            if u64::from(number) != *expected {
                return Err(format!("subscriber {reader}: {number} of publisher {publisher} came, not {expected}"));
            }
            *expected += 1;
            order.push((body[0], number));
        }
        if reader == 0 {
            let mut deliveries = lock(&shared.deliveries);
            deliveries.count = order.len() as u64;
            let now = Instant::now();
            let gap = deliveries.last.replace(now).map_or(Duration::ZERO, |before| now - before);
            deliveries.longest = deliveries.longest.max(gap);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const PUBLISHERS: usize = 2;
const READERS: usize = 2;
/// Publisher and number.
const HEAD: usize = 5;
const TICK: Duration = Duration::from_millis(1);
const BURST: u64 = 256;
/// Publications of one publisher that are not acknowledged yet.
const UNDER_WAY_MAX: usize = 16_384;
const RECEIPT_EVERY: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);
/// How long the last ones may take.
const LAST_TIMEOUT: Duration = Duration::from_secs(30);
