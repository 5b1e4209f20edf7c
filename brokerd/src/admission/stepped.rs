//! Admission without threads, for simulations: whoever holds it says when it works.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};

use sealcast_order::{Ack, Delivered};

use super::{Admission, Setup, Shared};

/// Admission whose lanes and deliveries are served by [`Stepped::step`].
pub struct Stepped {
    admission: Arc<Admission>,
    delivered: mpsc::Receiver<(Delivered, Ack)>,
}

impl Stepped {
    /// It works once an order is there ([`Admission::attach`]).
    pub fn new(setup: Setup) -> Stepped {
        let (deliveries, delivered) = mpsc::channel();
        let admission = Admission {
            shared: Arc::new(Shared::new(setup)),
            deliveries: Mutex::new(Some(deliveries)),
            threads: Mutex::default(),
        };
        Stepped { admission: Arc::new(admission), delivered }
    }

    /// What the order and clients hold.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// Checks what came and hands on what was delivered; whether there was anything.
    pub fn step(&self) -> bool {
        let shared = &self.admission.shared;
        let mut any = false;
        for lane in &shared.lanes {
            let batch = lane.try_next(shared.batch.load(Ordering::Relaxed));
            if !batch.is_empty() {
                any = true;
                shared.attend(batch);
            }
        }
        while let Ok((block, ack)) = self.delivered.try_recv() {
            any = true;
            if !shared.take(block, ack) {
                break;
            }
        }
        any
    }
}
