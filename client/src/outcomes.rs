//! What became of operations: results that f + 1 brokers back, refusals, silence.

use sealcast_broker::operation::Operation;
use sealcast_broker::protocol::{Query, Refusal, Why};
use sealcast_broker::state::{self, Code, Results};
use sealcast_wire::Now;

use super::event::{Notice, OperationOutcome, Output};
use super::line::SubscriptionState;
use super::order_status::INTERNAL;
use super::queries::Purpose;
use super::sending::{Op, Settled, What};
use super::{Known, Quorum};
use sealcast_delivery::Token;

impl Quorum {
    /// f + 1 brokers say what became of a batch.
    pub(super) fn executed(&mut self, now: Now, height: u64, results: &Results) {
        let (settled, doubts) = self.sending.executed(now.monotonic, results);
        settled.into_iter().for_each(|it| self.settle(now, height, it));
        for number in doubts {
            self.request_result(now, number);
        }
        self.sending.hasten_early(now.monotonic);
    }

    /// Somebody used a number of ours, perhaps we: which batch it was tells.
    pub(super) fn request_result(&mut self, now: Now, number: u64) {
        let purpose = Purpose::Result(number);
        if self.queries.has_capacity() && !self.queries.is_open(&purpose) {
            self.ask(now, purpose, Query::Result { number }, self.faulty + 1);
        }
    }

    pub(super) fn refused(&mut self, now: Now, broker: u16, first: u64, why: Refusal) {
        if why == Refusal::Executed {
            return self.request_result(now, first);
        }
        if broker == self.primary_broker && !matches!(why, Refusal::Quota | Refusal::Unregistered) {
            self.primary_broker =
                (self.primary_broker + 1) % u16::try_from(self.channels.len()).expect("brokers have a limit");
        }
        let keys = (&self.cluster, &*self.config.key);
        let is_registered = self.known.order_status.as_ref().is_some_and(|it| it.registered);
        let who = (self.faulty, is_registered);
        let settled = self.sending.refused(now.monotonic, keys, (broker, first, why), who);
        settled.into_iter().for_each(|it| self.settle(now, 0, it));
        self.send_late(now);
    }

    /// Sends again what is due: batches that came to nothing go to more brokers, as one that censors them would want it not
    /// to be.
    pub(super) fn send_late(&mut self, now: Now) {
        let up = self.up();
        if up.is_empty() {
            return;
        }
        let executed = self.channels.iter().map(|it| it.claim.next);
        let executed = super::channel::reached(executed, self.faulty).unwrap_or(0);
        while let Some(late) = {
            let keys = (&self.cluster, &*self.config.key);
            self.sending.late(now.monotonic, keys, &up, self.faulty)
        } {
            if late.silent.contains(&self.primary_broker) {
                self.primary_broker =
                    (self.primary_broker + 1) % u16::try_from(self.channels.len()).expect("brokers have a limit");
            }
            for broker in &late.silent {
                self.channels[usize::from(*broker)].conduct.silent += 1;
            }
            if !late.silent.is_empty() || late.number < executed {
                self.request_result(now, late.number);
            }
            for broker in late.to {
                self.send(broker, late.request.clone());
            }
        }
    }

    /// What became of one operation is known.
    pub(super) fn settle(&mut self, now: Now, height: u64, settled: Settled) {
        match settled {
            Settled::Refused(Op { what: What::SyncForRead(read), .. }, Refusal::Unregistered) => {
                self.fail_read(read, Why::Denied);
            }
            Settled::Refused(Op { what: What::SyncForRead(read), .. }, _) => self.sync_refused(read),
            Settled::Refused(op, why) => {
                if op.what == What::Register {
                    self.known.is_registering = false;
                    let outcome = state::OperationResult { code: Code::Proof, detail: Vec::new() };
                    self.outputs.push_back(Output::Notice(Notice::NotRegistered(op.id, outcome)));
                }
                self.report(op.token, OperationOutcome::Refused(why));
            }
            // The same again under another number; what is sealed is bound to its own.
            Settled::Displaced(op) if op.what == What::Sealed => self.superseded(op.token),
            Settled::Displaced(op) => self.sending.push(now.monotonic, op.afresh()),
            Settled::Done { op, number, outcome } => self.done(now, height, op, number, outcome),
        }
    }

    fn done(&mut self, now: Now, height: u64, op: Op, number: u64, outcome: state::OperationResult) {
        let number_in = |at: usize| outcome.detail.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        match (&op.what, outcome.code) {
            (What::Publish | What::Sealed, Code::StalePolicy | Code::StaleEpoch) => {
                let epoch = outcome.detail.as_slice().try_into().ok().map(u32::from_be_bytes);
                self.learn(number_in(0), epoch);
                match Operation::from_bytes(&op.bytes) {
                    Ok(Operation::Publish(publication)) if op.what == What::Publish && op.tries < TRIES => {
                        let publication = Box::new(self.known.stamp(*publication));
                        self.sending.push(now.monotonic, op.instead(&Operation::Publish(publication)));
                    }
                    _ => self.superseded(op.token),
                }
            }
            (What::Filler, _) => {}
            (What::SyncForRead(read), code) => {
                let min_height = number_in(8).filter(|_| code == Code::Done);
                self.sync_done(now, *read, min_height);
            }
            (What::Subscribe(interest), Code::Done) => {
                let sn = number_in(0).unwrap_or(0);
                self.lines.insert(number, SubscriptionState::new(interest.clone(), 0, (0, sn)));
                self.outputs.push_back(Output::Subscribed { token: op.token, subscription: number });
                self.changed(now);
            }
            (What::Unsubscribe(id), code) => {
                if matches!(code, Code::Done | Code::NoSubscription) {
                    self.lines.remove(id);
                    self.changed(now);
                }
                self.report(op.token, OperationOutcome::Executed { height, number, outcome });
            }
            (What::Register, code) => {
                if code == Code::Done {
                    self.registered();
                } else {
                    self.known.is_registering = false;
                    self.outputs.push_back(Output::Notice(Notice::NotRegistered(op.id, outcome.clone())));
                }
                self.report(op.token, OperationOutcome::Executed { height, number, outcome });
            }
            (_, Code::Unregistered) if op.tries < TRIES && self.register(now) => {
                if op.what == What::Sealed {
                    self.superseded(op.token);
                } else {
                    self.sending.push(now.monotonic, op.afresh());
                }
            }
            _ => self.report(op.token, OperationOutcome::Executed { height, number, outcome }),
        }
    }

    /// Registers once more, for a credential whose time was over. `false` if there is nothing to register with.
    fn register(&mut self, now: Now) -> bool {
        if self.config.registrations.is_empty() {
            return false;
        }
        if !std::mem::replace(&mut self.known.is_registering, true) {
            for registration in &self.config.registrations {
                let operation = Operation::Register(registration.clone());
                self.sending.push(now.monotonic, Op::new(INTERNAL, What::Register, &operation));
            }
        }
        true
    }

    /// It had its place, and nobody knows any more what came of it.
    pub(super) fn forgotten(&mut self, now: Now, op: Op) {
        match op.what {
            // A mark that was passed by unseen is ordered again: it does nothing but say where it stands.
            What::SyncForRead(_) => self.sending.push(now.monotonic, op.afresh()),
            _ => self.report(op.token, OperationOutcome::Forgotten),
        }
    }

    fn superseded(&mut self, token: Token) {
        let Known { policy, epoch, .. } = self.known;
        self.report(token, OperationOutcome::Superseded { policy, epoch });
    }

    pub(super) fn report(&mut self, token: Token, outcome: OperationOutcome) {
        if token != INTERNAL {
            self.outputs.push_back(Output::Outcome(token, outcome));
        }
    }
}

/// How often an operation is brought up to date before the application hears of it.
const TRIES: u32 = 8;
