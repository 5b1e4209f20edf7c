//! Readers of what the brokers store: each reads one publication after the other, by topic and number, in random order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand_core::Rng;
use sealcast::brokers::Brokers;
use sealcast::code::Code;
use sealcast_broker::operation::Header;
use sealcast_client::{OperationOutcome, Read};
use sealcast_delivery::Token;

use super::{Brokered, Kind, Measured, ShareOn, Spent, TOPIC, WARM_UP, nanos, stop_if_asked, word};
use crate::commands::brokers::Local;
use crate::hint::Failure;

/// What readers share.
struct Course {
    /// The number at the topic of the first one that is stored.
    first: u64,
    /// In which order the stored ones are read.
    order: Vec<u64>,
    taken: AtomicUsize,
    done: AtomicU64,
    ended: AtomicBool,
}

impl Brokered {
    pub(super) fn measure_reading(&self, mut local: Local) -> Result<Measured, Failure> {
        let publisher = self.client(&mut local, "publisher")?;
        let course = Course::new(self.store(&publisher)?, self.stored.max(1));
        publisher.close();
        let readers = (0..self.clients()).map(|n| self.client(&mut local, &format!("reader-{n}")));
        let readers: Vec<Brokers> = readers.collect::<Result<_, _>>()?;
        // Shares are computed once: what is computed on read is read once.
        let once = self.keys == Kind::Threshold && self.share_on == ShareOn::Read;
        let ids = local.ids();
        let idle_micros = idle(&ids)?;
        let (measured, took) = std::thread::scope(|threads| {
            let course = &course;
            let start = |reader| threads.spawn(move || course.run(reader, once));
            let running: Vec<_> = readers.iter().map(start).collect();
            let measured = self.watch(course, once, &ids);
            course.ended.store(true, Ordering::Release);
            let took: Result<Vec<Vec<u64>>, Failure> = running
                .into_iter()
                .map(|it| it.join().map_err(|_| Failure::new(Code::System, "a reader's thread ended"))?)
                .collect();
            Ok::<_, Failure>((measured?, took?.concat()))
        })?;
        local.check()?;
        readers.into_iter().for_each(Brokers::close);
        Ok(Measured { idle_micros, ..measured.with(took) })
    }

    /// Publishes what is to be read; the number at the topic of the first one.
    fn store(&self, publisher: &Brokers) -> Result<u64, Failure> {
        let mut outgoing = self.outgoing();
        outgoing.body[..8].copy_from_slice(&0_u64.to_be_bytes());
        let first = publisher.publish(&outgoing).wait()?.places[0];
        let mut under_way = VecDeque::new();
        for number in 1..self.stored {
            stop_if_asked()?;
            outgoing.body[..8].copy_from_slice(&number.to_be_bytes());
            under_way.push_back(publisher.begin(&outgoing).wait()?);
            if under_way.len() as u64 > self.window {
                stored(publisher, &mut under_way)?;
            }
        }
        while !under_way.is_empty() {
            stored(publisher, &mut under_way)?;
        }
        Ok(first)
    }

    /// Waits until the time is over, or all is read that may be.
    fn watch(&self, course: &Course, once: bool, brokers: &[u32]) -> Result<Measured, Failure> {
        let is_over = || course.ended.load(Ordering::Acquire) || once && course.is_over();
        let start = Instant::now();
        while start.elapsed() < WARM_UP.min(self.time) && !is_over() {
            stop_if_asked()?;
            std::thread::sleep(LOOK_AGAIN);
        }
        let (spent, before) = (Spent::now(brokers), course.done.load(Ordering::Acquire));
        while spent.at.elapsed() < self.time && !is_over() {
            stop_if_asked()?;
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(spent.since(brokers, course.done.load(Ordering::Acquire) - before))
    }
}

/// What brokers do in a second without being asked, once they are done with what was stored: µs of processor time each.
fn idle(brokers: &[u32]) -> Result<f64, Failure> {
    let during = |time: Duration| -> Result<f64, Failure> {
        let begun = Spent::now(brokers);
        while begun.at.elapsed() < time {
            stop_if_asked()?;
            std::thread::sleep(LOOK_AGAIN);
        }
        let now = begun.since(brokers, 1);
        Ok(now.broker_micros * now.rate)
    };
    let mut before = during(CALM)?;
    for _ in 0..CALM_TRIES {
        let now = during(CALM)?;
        // As long as it grows less, something is still being done.
        if now > 0.9 * before {
            return during(IDLE);
        }
        before = now;
    }
    Err(Failure::new(Code::TimedOut, "the brokers are not done with what was stored"))
}

impl Course {
    fn new(first: u64, stored: u64) -> Course {
        let mut order: Vec<u64> = (0..stored).collect();
        let mut rng = crate::rng();
        for place in (1..order.len()).rev() {
            let other = rng.next_u64() % (place as u64 + 1);
            order.swap(place, usize::try_from(other).expect("it is at most the place"));
        }
        Course { first, order, taken: AtomicUsize::new(0), done: AtomicU64::new(0), ended: AtomicBool::new(false) }
    }

    fn is_over(&self) -> bool {
        self.taken.load(Ordering::Acquire) >= self.order.len()
    }

    /// Reads until the others end; how long each took, in ns.
    fn run(&self, reader: &Brokers, once: bool) -> Result<Vec<u64>, Failure> {
        let mut took = Vec::new();
        while !self.ended.load(Ordering::Acquire) {
            let taken = self.taken.fetch_add(1, Ordering::AcqRel);
            if once && taken >= self.order.len() {
                break;
            }
            let number = self.order[taken % self.order.len()];
            let begun = Instant::now();
            let result = self.read(reader, number);
            // Whoever fails ends all.
            result.inspect_err(|_| self.ended.store(true, Ordering::Release))?;
            took.push(nanos(begun.elapsed()));
            self.done.fetch_add(1, Ordering::Release);
        }
        Ok(took)
    }

    fn read(&self, reader: &Brokers, number: u64) -> Result<(), Failure> {
        let header = Header { topic: TOPIC.into(), value: None };
        let places = reader.read(&Read::TopicPosition { header, ps: self.first + number }, false).wait()?;
        let read = places.first().and_then(|it| word(it.publication.as_ref()?.1.bodies()?.first()?, 0));
        match read {
            Some(read) if read == number => Ok(()),
            Some(read) => Err(Failure::new(Code::Signature, format!("publication {read} was read, not {number}"))),
            None => Err(Failure::new(Code::Denied, format!("publication {number} was not released to its reader"))),
        }
    }
}

/// Waits until the oldest one is stored.
fn stored(publisher: &Brokers, under_way: &mut VecDeque<Token>) -> Result<(), Failure> {
    let Some(token) = under_way.pop_front() else { return Ok(()) };
    match publisher.outcome(token).wait()? {
        OperationOutcome::Executed { .. } => Ok(()),
        other => Err(Failure::new(Code::System, format!("a publication was not stored: {other:?}"))),
    }
}

/// How long brokers are watched to see what they do by themselves, and how often until that grows less no more.
const CALM: Duration = Duration::from_secs(2);
const CALM_TRIES: usize = 10;
/// For how long it is measured then: processor time is told in steps of 10 ms.
const IDLE: Duration = Duration::from_secs(5);
/// How often the end is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
