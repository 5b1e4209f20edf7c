//! The tx queue: publishers' threads frame and seal, and whoever is free hands datagrams to the kernel.
//!
//! A message alone, or in answer to what was received, is sent at once, on the thread that publishes it.
//! Messages in quick succession gather while the ones before them are being sent: the flusher thread
//! sends whatever has gathered as soon as it is free, so that a batch is as large as the load makes it
//! and nothing waits for a timer; but signed messages gather for a moment, so that one signature, which
//! every receiver has to verify, does for many (A12).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use sealcast_delivery::multicast::{Data, Flow, Sender};
use sealcast_wire::{Guarantee, Monotonic};

use crate::group::{Gate, Pass, Publication, PublishError, Route, lock};
use crate::io::clock::Clock;
use crate::io::process::Process;
use crate::io::udp::UdpSender;

/// See the module.
pub(in crate::session) struct TxQueue {
    gate: Arc<Mutex<Gate>>,
    sender: Arc<Mutex<Sender>>,
    pub(super) udp: UdpSender,
    clock: Clock,
    process: Process,
    linger: Duration,
    /// Off: every message is sent by itself.
    batch: bool,
    /// Held while datagrams are handed to the kernel, so that they leave in order.
    transmit: Mutex<()>,
    /// When the last sending ended, microseconds.
    last_sent: AtomicU64,
    /// How long it took, microseconds.
    last_took: AtomicU64,
    /// Whether something was received since the last message was published.
    heard: AtomicBool,
    /// Whether the flusher has something to do.
    armed: AtomicBool,
    /// Whether the flusher will come by itself for messages that are to be signed.
    gathers: AtomicBool,
    flusher: Mutex<Flusher>,
    wake: Condvar,
    sent_datagrams: AtomicU64,
    failed_sends: AtomicU64,
}

/// What a message may wait for with others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gathers {
    /// Nothing.
    Not,
    /// One signature.
    Signed,
    /// Its turn to be ordered: what was sent before has no position yet.
    Ordered,
}

#[derive(Default)]
struct Flusher {
    closing: bool,
    asleep: bool,
}

impl TxQueue {
    pub(super) fn new(
        gate: Arc<Mutex<Gate>>,
        sender: Arc<Mutex<Sender>>,
        udp: UdpSender,
        clock: Clock,
        linger: Duration,
        batch: bool,
    ) -> TxQueue {
        TxQueue {
            gate,
            sender,
            udp,
            clock,
            process: Process::current(),
            linger,
            batch,
            transmit: Mutex::new(()),
            last_sent: AtomicU64::new(0),
            last_took: AtomicU64::new(0),
            heard: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            gathers: AtomicBool::new(false),
            flusher: Mutex::new(Flusher::default()),
            wake: Condvar::new(),
            sent_datagrams: AtomicU64::new(0),
            failed_sends: AtomicU64::new(0),
        }
    }

    /// Publishes one message: frames it, and sends it or sees to it that it is sent.
    ///
    /// `patient` callers wait while the network is slower than they are; others are told `Full`. So is a caller that publishes
    /// reliably, since room comes when others acknowledge, or `Retired` while the key is changing; and one whose best effort goes
    /// too fast beside what is reliable. `first` is done before anything else, unless this is a forked child.
    pub(in crate::session) fn publish(
        &self,
        message: &Publication<'_>,
        patient: bool,
        first: impl FnOnce(),
    ) -> Result<Option<u64>, PublishError> {
        let now = self.clock.monotonic();
        if !self.process.is_ours_for_batch(now) {
            return Err(PublishError::Forked);
        }
        first();
        let reliable = message.guarantee > Guarantee::BestEffort;
        let patient = patient && !reliable;
        let mut message = *message;
        message.sent_micros = Some(self.clock.wall_micros(now));
        loop {
            let (sent, gathers, pending, full, held_back) = {
                // The gate stays locked until the message is with the sender: once the gate is paused,
                // nothing is taken for the old key any more (A5).
                let mut gate = lock(&self.gate);
                // It takes its place in the sender's order when it is published: it does not wait here without one.
                if reliable && gate.is_paused() {
                    return Err(sealcast_delivery::SendError::Retired.into());
                }
                let (epoch, route) = match gate.admit(&message)? {
                    Pass::Queued => return Ok(None),
                    Pass::Send(epoch, route) => (epoch, route),
                };
                let Publication { topic, body, sent_micros, .. } = message;
                let Route { domain, signed } = route;
                let data = Data { topic, domain, signed, guarantee: message.guarantee, sent_micros, body };
                let mut sender = lock(&self.sender);
                let held_back = if reliable { None } else { sender.holds_back(now) };
                let sent = match held_back {
                    Some(_) => Err(sealcast_delivery::SendError::Full),
                    None => sender.data(now, epoch.protect.as_ref(), data),
                };
                // What is ordered gathers behind what has no position yet: one stamp does for many.
                let gathers = match message.guarantee {
                    Guarantee::Ordered | Guarantee::Safe if sender.gathers_ordered() => Gathers::Ordered,
                    _ if signed => Gathers::Signed,
                    _ => Gathers::Not,
                };
                (sent, gathers, sender.pending(), sender.has_full(), held_back)
            };
            match sent {
                Ok(number) => {
                    let gathers = if full { Gathers::Not } else { gathers };
                    self.see_off(now, message.body.len(), gathers, pending, patient);
                    return Ok(Some(number));
                }
                // The sender knows already that the epoch is over; the gate will in a moment.
                Err(sealcast_delivery::SendError::Retired) if patient => std::thread::yield_now(),
                Err(sealcast_delivery::SendError::Full) if patient && held_back.is_none() => self.flush(),
                Err(why) => {
                    // Of a pace that somebody waits for already the flusher knows.
                    if held_back != Some(false) {
                        self.arm();
                    }
                    return Err(why.into());
                }
            }
        }
    }

    /// Sends a message now if it is alone, large, or much has gathered, else leaves it to the flusher.
    ///
    fn see_off(&self, now: Monotonic, len: usize, gathers: Gathers, pending: usize, patient: bool) {
        let gathers = match gathers {
            Gathers::Ordered if self.batch && len < LARGE => {
                if !self.gathers.load(Ordering::Relaxed) {
                    self.arm();
                }
                return;
            }
            Gathers::Signed => true,
            Gathers::Ordered | Gathers::Not => false,
        };
        let pause = now.micros().saturating_sub(self.last_sent.load(Ordering::Relaxed));
        let answer = self.heard.load(Ordering::Relaxed) && self.heard.swap(false, Ordering::Relaxed);
        let least = if gathers { ALONE_SIGNED_MICROS } else { ALONE_MICROS };
        let alone = self.linger.is_zero() && (answer || pause >= least.max(self.last_took.load(Ordering::Relaxed)));
        if alone || len >= LARGE || !self.batch {
            match self.transmit.try_lock() {
                Ok(turn) => return self.drain(&turn),
                Err(TryLockError::Poisoned(turn)) => return self.drain(&turn.into_inner()),
                Err(TryLockError::WouldBlock) if !self.batch => return self.flush(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        if pending >= GATHERED_MAX && patient {
            return self.flush();
        }
        if !(gathers && self.gathers.load(Ordering::Relaxed)) {
            self.arm();
        }
    }

    /// How much waits to be acknowledged, where that is told.
    pub(in crate::session) fn flow(&self) -> Option<Flow> {
        lock(&self.sender).flow()
    }

    /// A message of so many bytes went to the sender by another way: it is sent as one of [`TxQueue::publish`] is.
    pub(super) fn published(&self, bytes: usize) {
        let (pending, gathers) = {
            let sender = lock(&self.sender);
            (sender.pending(), sender.gathers_ordered() && !sender.has_full())
        };
        let gathers = if gathers { Gathers::Ordered } else { Gathers::Not };
        self.see_off(self.clock.monotonic(), bytes, gathers, pending, false);
    }

    /// Something was received: the next message may be an answer to it, and leaves at once.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether something waits to be acknowledged and nobody looks at the clock for it: the caller wakes the driver.
    pub(in crate::session) fn take_unwatched(&self) -> bool {
        lock(&self.sender).take_unwatched()
    }

    /// Sends everything that has gathered; returns when it is with the kernel.
    pub(in crate::session) fn flush(&self) {
        // Before the lock, which a thread that is not in the child may have held.
        if self.process.is_ours() {
            self.drain(&lock(&self.transmit));
        }
    }

    fn drain(&self, _turn: &MutexGuard<'_, ()>) {
        self.process.end_batch();
        // Once for the batch: a child that was forked since seals nothing.
        if !self.process.is_ours() {
            return;
        }
        loop {
            // Sealing happens in here, so it must not overlap with a change of the epoch's.
            let Some(batch) = lock(&self.sender).poll() else { break };
            self.hand_over(&batch);
        }
    }

    /// Sends what has gathered, but for what may gather further; returns until when that may, or something waits for its pace.
    fn flush_gathered(&self) -> [Option<Monotonic>; 2] {
        let _turn = lock(&self.transmit);
        self.process.end_batch();
        loop {
            let mut sender = lock(&self.sender);
            let now = self.clock.monotonic();
            let Some(batch) = sender.poll_gathered(now) else {
                // Told under the sender's lock: who adds to it afterwards knows whether somebody comes.
                let until = sender.gathers_until();
                self.gathers.store(until.is_some(), Ordering::Relaxed);
                return [until, sender.paced_until(now)];
            };
            drop(sender);
            self.hand_over(&batch);
        }
    }

    fn hand_over(&self, batch: &sealcast_delivery::Batch) {
        let start = self.clock.monotonic();
        if self.transmit_batch(batch).is_err() {
            self.failed_sends.fetch_add(1, Ordering::Relaxed);
        }
        let end = self.clock.monotonic();
        self.last_took.store(end.micros().saturating_sub(start.micros()), Ordering::Relaxed);
        self.last_sent.store(end.micros(), Ordering::Relaxed);
    }

    fn transmit_batch(&self, batch: &sealcast_delivery::Batch) -> io::Result<()> {
        self.sent_datagrams.fetch_add(batch.lengths.len() as u64, Ordering::Relaxed);
        self.udp.send(batch)
    }

    /// Sees to it that the flusher sends what has gathered.
    fn arm(&self) {
        if !self.armed.swap(true, Ordering::AcqRel) {
            let flusher = lock(&self.flusher);
            if flusher.asleep {
                self.wake.notify_one();
            }
        }
    }

    /// The flusher thread; `sent` is told when there may be room again, and whether that is since a pace is over. It is not in a
    /// forked child.
    pub(in crate::session) fn run_flusher(&self, sent: impl Fn(bool)) {
        let mut waits = [None; 2];
        loop {
            {
                let mut flusher = lock(&self.flusher);
                while !self.armed.swap(false, Ordering::AcqRel) {
                    if flusher.closing {
                        return;
                    }
                    let due = waits.into_iter().flatten().min();
                    let left = due.map(|due: Monotonic| due.since(self.clock.monotonic()));
                    if left.is_some_and(|left| left.is_zero()) {
                        break;
                    }
                    flusher.asleep = true;
                    flusher = match left {
                        Some(left) => self.wake.wait_timeout(flusher, left).unwrap_or_else(PoisonError::into_inner).0,
                        None => self.wake.wait(flusher).unwrap_or_else(PoisonError::into_inner),
                    };
                    flusher.asleep = false;
                }
            }
            if !self.linger.is_zero() {
                std::thread::sleep(self.linger);
            }
            let pace = waits[1];
            waits = self.flush_gathered();
            sent(pace.is_some_and(|it| it <= self.clock.monotonic()));
        }
    }

    /// Datagrams that the kernel took.
    pub(in crate::session) fn sent_datagrams(&self) -> u64 {
        self.sent_datagrams.load(Ordering::Relaxed)
    }

    /// Datagrams that it did not take.
    pub(in crate::session) fn failed_sends(&self) -> u64 {
        self.failed_sends.load(Ordering::Relaxed)
    }

    /// Sends what is left and ends the flusher thread.
    pub(in crate::session) fn close(&self) {
        lock(&self.flusher).closing = true;
        self.armed.store(true, Ordering::Release);
        self.wake.notify_all();
        self.flush();
    }
}

/// A message that comes this long after the last sending ended, and as long after it as that took, is alone: more than
/// the time between messages of a stream that is worth gathering.
const ALONE_MICROS: u64 = 5;
/// The same for a message that is to be signed: about what its verification takes.
const ALONE_SIGNED_MICROS: u64 = 50;
/// A message of this size fills a segmented send by itself: gathering more would gain nothing, and its
/// bytes are in this core's cache.
const LARGE: usize = 24 << 10;
/// With this much gathered, a patient publisher sends it itself rather than go on filling.
const GATHERED_MAX: usize = 256 << 10;
