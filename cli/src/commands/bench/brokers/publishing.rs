//! Publishers that run ahead of one subscriber by a window.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sealcast::brokers::{Brokers, Content, Item, Outgoing, Subscription};
use sealcast::code::Code;
use sealcast_delivery::Token;

use super::{Brokered, HEAD, Measured, Spent, WARM_UP, nanos, stop_if_asked, word};
use crate::commands::brokers::Local;
use crate::hint::Failure;
use crate::text::duration;

/// What the reader has got so far.
struct Progress {
    /// Of each publisher, the number after the last one.
    next: Vec<AtomicU64>,
    all: AtomicU64,
    /// Blocks and batches that they came in.
    blocks: AtomicU64,
    batches: AtomicU64,
    ended: AtomicBool,
    epoch: Instant,
}

/// How much has come.
#[derive(Clone, Copy)]
struct Come {
    publications: u64,
    blocks: u64,
    batches: u64,
}

/// One publisher, and what of its own is under way.
struct Publisher {
    client: Brokers,
    number: u64,
    under_way: VecDeque<Token>,
}

impl Brokered {
    pub(super) fn measure_publishing(&self, mut local: Local) -> Result<Measured, Failure> {
        let publishers = (0..self.clients()).map(|n| self.client(&mut local, &format!("publisher-{n}")));
        let publishers: Vec<Brokers> = publishers.collect::<Result<_, _>>()?;
        let subscriber = self.client(&mut local, "subscriber")?;
        let subscription = subscriber.subscribe("load/#".parse().expect("an interest")).wait()?;
        let progress = Arc::new(Progress::new(publishers.len()));
        let reader = read(subscription, progress.clone());
        let of = |client| Publisher { client, number: 0, under_way: VecDeque::new() };
        let mut publishers: Vec<Publisher> = publishers.into_iter().map(of).collect();
        let sent = self.send(&mut publishers, &progress, &local.ids());
        progress.ended.store(true, Ordering::Release);
        let delays = reader.join().map_err(|_| Failure::new(Code::System, "the subscriber's thread ended"))?;
        let (sent, delays) = (sent?, delays?);
        local.check()?;
        publishers.into_iter().for_each(|it| it.client.close());
        subscriber.close();
        Ok(sent.with(delays))
    }

    /// Publishes until the time is over, and waits for what is under way; the rate counts what came in the time.
    fn send(&self, publishers: &mut [Publisher], progress: &Progress, brokers: &[u32]) -> Result<Measured, Failure> {
        let mut outgoing = self.outgoing();
        let mut more = vec![outgoing.body.clone(); usize::from(self.together) - 1];
        let together = u64::from(self.together);
        let window = if self.paced { together } else { (self.window / publishers.len() as u64).max(together) };
        // The first ones show that all is there, and warm it.
        let mut begun: Option<(Spent, Come)> = None;
        let start = Instant::now();
        while begun.as_ref().is_none_or(|(spent, _)| spent.at.elapsed() < self.time) {
            let delivered = progress.all.load(Ordering::Acquire);
            if begun.is_none() && start.elapsed() >= WARM_UP.min(self.time) && delivered > 0 {
                begun = Some((Spent::now(brokers), progress.come()));
            }
            let mut any = false;
            for (n, publisher) in publishers.iter_mut().enumerate() {
                // Nobody waits long for the others.
                for _ in 0..self.batch {
                    if progress.ahead(n, publisher.number) + together > window {
                        break;
                    }
                    if self.paced {
                        std::thread::sleep(PACE);
                    }
                    publisher.publish(n, &mut outgoing, &mut more, progress.epoch)?;
                    if publisher.under_way.len() as u64 > 2 * window / together {
                        publisher.settle()?;
                    }
                    any = true;
                }
            }
            match any {
                true => stop_if_asked()?,
                false => progress.changes(delivered)?,
            }
        }
        let (spent, before) = begun.expect("the loop ends after it has begun");
        let come = progress.come();
        let done = come.publications - before.publications;
        let each = |count: u64| done as f64 / count.max(1) as f64;
        let measured = Measured {
            per_block: each(come.blocks - before.blocks),
            per_batch: each(come.batches - before.batches),
            ..spent.since(brokers, done)
        };
        let all: u64 = publishers.iter().map(|it| it.number).sum();
        while progress.all.load(Ordering::Acquire) < all {
            progress.changes(progress.all.load(Ordering::Acquire))?;
        }
        Ok(measured)
    }
}

impl Publisher {
    fn publish(
        &mut self,
        n: usize,
        outgoing: &mut Outgoing,
        more: &mut [Vec<u8>],
        epoch: Instant,
    ) -> Result<(), Failure> {
        let at = nanos(epoch.elapsed());
        for body in std::iter::once(&mut outgoing.body).chain(more.iter_mut()) {
            for (place, value) in [self.number, at, n as u64].into_iter().enumerate() {
                body[8 * place..8 * (place + 1)].copy_from_slice(&value.to_be_bytes());
            }
            self.number += 1;
        }
        let more: Vec<&[u8]> = more.iter().map(Vec::as_slice).collect();
        self.under_way.push_back(self.client.begin_together(outgoing, &more).wait()?);
        Ok(())
    }

    /// Takes the outcome of the oldest one.
    fn settle(&mut self) -> Result<(), Failure> {
        self.under_way.pop_front().map(|token| self.client.outcome(token).wait()).transpose()?;
        Ok(())
    }
}

impl Progress {
    fn new(publishers: usize) -> Progress {
        let next = (0..publishers).map(|_| AtomicU64::new(0)).collect();
        let (all, blocks, batches) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Progress { next, all, blocks, batches, ended: AtomicBool::new(false), epoch: Instant::now() }
    }

    fn come(&self) -> Come {
        let [publications, blocks, batches] =
            [&self.all, &self.blocks, &self.batches].map(|count| count.load(Ordering::Acquire));
        Come { publications, blocks, batches }
    }

    /// How far a publisher is ahead.
    fn ahead(&self, publisher: usize, number: u64) -> u64 {
        number.saturating_sub(self.next[publisher].load(Ordering::Acquire))
    }

    /// Waits until more than so many have come.
    fn changes(&self, delivered: u64) -> Result<(), Failure> {
        let since = Instant::now();
        while self.all.load(Ordering::Acquire) <= delivered {
            stop_if_asked()?;
            if since.elapsed() > STUCK {
                let what = format!("nothing was delivered for {}", duration(STUCK));
                return Err(Failure::new(Code::TimedOut, what));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

/// Takes what comes, checks that nothing is missing or twice, and returns delays in ns.
fn read(mut subscription: Subscription, progress: Arc<Progress>) -> JoinHandle<Result<Vec<u64>, Failure>> {
    std::thread::spawn(move || {
        let mut delays = Vec::new();
        let mut last = (0, 0);
        while !progress.ended.load(Ordering::Acquire) {
            let Some(item) = subscription.next_timeout(Duration::from_millis(50))? else { continue };
            let Item::Publication { entry, content: Content::Bodies(bodies), .. } = item else {
                return Err(Failure::new(Code::Denied, "a publication was not released to the subscriber"));
            };
            let place = (entry.height, entry.batch);
            progress.blocks.fetch_add(u64::from(place.0 != last.0), Ordering::Relaxed);
            progress.batches.fetch_add(u64::from(place != last), Ordering::Relaxed);
            last = place;
            for body in bodies {
                let words = [0, 8, 16].map(|at| word(&body[..HEAD.min(body.len())], at).unwrap_or(u64::MAX));
                let [number, at, publisher] = words;
                let next = usize::try_from(publisher).ok().and_then(|n| progress.next.get(n));
                let next = next.ok_or_else(|| Failure::new(Code::Signature, "something else was delivered"))?;
                let expected = next.load(Ordering::Relaxed);
                if number != expected {
                    let what = format!("publication {number} came, not {expected}");
                    return Err(Failure::new(Code::Signature, what));
                }
                delays.push(nanos(progress.epoch.elapsed()).saturating_sub(at));
                next.store(expected + 1, Ordering::Release);
                progress.all.fetch_add(1, Ordering::Release);
            }
        }
        Ok(delays)
    })
}

const PACE: Duration = Duration::from_millis(50);
const STUCK: Duration = Duration::from_secs(20);
/// How often the publishers look whether there is room.
const LOOK_AGAIN: Duration = Duration::from_micros(200);
