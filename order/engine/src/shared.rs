//! What the engine's tasks and its handle know in common.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use commonware_utils::sync::Notify;
use sealcast_order::{Application, Evidence, Fault, Peer, Status};
use sealcast_wire::limits;

pub(super) struct Shared {
    pub(super) application: Arc<dyn Application>,
    /// A batch came in: a leader that holds back an empty block looks again.
    pub(super) batches: Notify,
    /// The leader changed, or a block was delivered: waiting batches may be sent to the leader.
    pub(super) look: Notify,
    /// A submitted batch found no room on its way to the leader; it is in the pool.
    pub(super) overflowed: AtomicBool,
    /// A fault came up.
    faulty: Notify,
    /// By broker.
    peers: Vec<Counters>,
    state: Mutex<State>,
}

#[derive(Default)]
struct Counters {
    heard: AtomicU64,
    cut_off: AtomicU64,
}

#[derive(Default)]
struct State {
    status: Status,
    evidence: VecDeque<Evidence>,
    fault: Option<Fault>,
}

impl Shared {
    pub(super) fn new(application: Arc<dyn Application>, brokers: usize) -> Shared {
        Shared {
            application,
            peers: (0..brokers).map(|_| Counters::default()).collect(),
            batches: Notify::new(),
            look: Notify::new(),
            overflowed: AtomicBool::new(false),
            faulty: Notify::new(),
            state: Mutex::default(),
        }
    }

    /// A task that panicked ends the engine anyway; what it left behind is still the last that is known.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> Status {
        self.state().status
    }

    pub(super) fn started(&self, height: u64, leader: usize) {
        let status = &mut self.state().status;
        *status = Status { view: 1, leader, height, tip: height, running: true, ..Status::default() };
    }

    pub(super) fn ended(&self) {
        self.state().status.running = false;
    }

    /// The engine's files cannot be used any more: it ends. The first reason is kept.
    pub(super) fn failed(&self, fault: Fault) {
        self.state().fault.get_or_insert(fault);
        self.faulty.notify_one();
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.state().fault.clone()
    }

    /// Ends when there is a fault. One task waits at a time.
    pub(super) async fn until_fault(&self) -> Fault {
        loop {
            if let Some(fault) = self.fault() {
                return fault;
            }
            self.faulty.notified().await;
        }
    }

    /// A view was entered, after the one before was done, or `skipped`.
    pub(super) fn entered(&self, view: u64, leader: usize, skipped: bool) {
        let status = &mut self.state().status;
        if view <= status.view {
            return;
        }
        status.view = view;
        status.skips += u64::from(skipped);
        if std::mem::replace(&mut status.leader, leader) != leader {
            status.changes += 1;
            self.look.notify_one();
        }
    }

    pub(super) fn acknowledged(&self, height: u64) {
        let status = &mut self.state().status;
        status.height = status.height.max(height);
        status.tip = status.tip.max(height);
    }

    pub(super) fn finalised(&self, height: u64) {
        let status = &mut self.state().status;
        status.tip = status.tip.max(height);
    }

    /// A message of this broker came.
    pub(super) fn heard(&self, broker: usize) {
        self.peers[broker].heard.fetch_add(1, Ordering::Relaxed);
    }

    /// This broker's channel was closed, and opens again after an hour.
    pub(super) fn cut_off(&self, broker: usize) {
        self.peers[broker].cut_off.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn peers(&self) -> Vec<Peer> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.peers.iter().map(|it| Peer { heard: count(&it.heard), cut_off: count(&it.cut_off) }).collect()
    }

    /// Evidence was found; what is known of this broker and view already changes nothing.
    pub(super) fn caught(&self, evidence: Evidence) {
        let says_the_same = |it: &Evidence| {
            (it.broker, it.view, it.misbehaviour) == (evidence.broker, evidence.view, evidence.misbehaviour)
        };
        if self.state().evidence.iter().any(says_the_same) {
            return;
        }
        self.application.misbehaved(&evidence);
        let kept = &mut self.state().evidence;
        if kept.len() == limits::EVIDENCE_MAX {
            kept.pop_front();
        }
        kept.push_back(evidence);
    }

    pub(super) fn evidence(&self) -> Vec<Evidence> {
        self.state().evidence.iter().cloned().collect()
    }
}
