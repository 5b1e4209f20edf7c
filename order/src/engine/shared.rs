//! What the engine's tasks and its handle know in common.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use commonware_utils::sync::Notify;
use sealcast_wire::limits;

use crate::application::Application;
use crate::order::{Evidence, Fault, Status};

pub(super) struct Shared {
    pub(super) application: Arc<dyn Application>,
    /// A frame came in: a leader that holds back an empty block looks again.
    pub(super) frames: Notify,
    /// The leader changed, or a block was delivered: waiting frames may be sent to the leader.
    pub(super) look: Notify,
    /// A submitted frame found no room on its way to the leader; it is in the pool.
    pub(super) overflowed: AtomicBool,
    /// A fault came up.
    faulty: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    status: Status,
    evidence: VecDeque<Evidence>,
    fault: Option<Fault>,
}

impl Shared {
    pub(super) fn new(application: Arc<dyn Application>) -> Shared {
        Shared {
            application,
            frames: Notify::new(),
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

    pub(super) fn caught(&self, evidence: Evidence) {
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
