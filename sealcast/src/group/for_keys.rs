//! What the key scheme wants done: messages sent, changes prepared, keys installed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sealcast_delivery::{Delivery, Input, Outcome, Outgoing, Packet, Token, What};
use sealcast_keys::{self as keys, Keys};
use sealcast_wire::{Change, Dropped, EpochId, Flush, Guarantee, Lane, Monotonic, Now, Protect, To, View, limits};

use super::gate::{self, Epoch, Pass, Publication, PublishError};
use super::message::ViewEvent;
use super::ordered::KeysIn;
use super::vouch::{self, TAG_HERE, TAG_KEYS};
use super::{Group, Output, Vouching, lock, ordered, ring};

/// A key scheme's message.
struct Letter<'a> {
    guarantee: Guarantee,
    to: To,
    /// The key of the epoch that it leads to.
    names: Option<[u8; 32]>,
    bytes: &'a [u8],
}

/// Whether an output concerns this process alone until something else follows from it, which waits for the disk (G6).
pub(super) fn stays_inside(output: &keys::Output) -> bool {
    use keys::Output::{Checkpointed, DeliveredBefore, Keyed, Prepare};
    matches!(output, Prepare { .. } | Keyed { .. } | DeliveredBefore { .. } | Checkpointed(_))
}

impl<K: Keys, D: Delivery> Group<K, D> {
    pub(super) fn do_for_keys(&mut self, now: Now, output: keys::Output) {
        match output {
            keys::Output::Send { after: Some(other), token, lane, needs, to, names, bytes } => {
                let waits = keys::Output::Send { after: None, token, lane, needs, to, names, bytes };
                self.after.entry(other).or_default().push(waits);
            }
            keys::Output::Send { token, lane, needs, to, names, bytes, .. } => {
                self.send_for_keys(now, token, lane, Letter { guarantee: needs, to, names, bytes: &bytes });
            }
            keys::Output::AppendKey(key) => self.delivery.handle(now, Input::AppendKey(&key)),
            keys::Output::Fetch { id, what } => self.delivery.handle(now, Input::Fetch(id, &what)),
            keys::Output::Provide { what, bytes } => {
                self.delivery.handle(now, Input::Provide { what: &what, bytes: &bytes });
            }
            keys::Output::Withdraw(token) => {
                if let Some((given, _)) = self.tokens.iter().find(|(_, it)| **it == token) {
                    self.delivery.handle(now, Input::Withdraw(*given));
                }
            }
            keys::Output::Packages(packages) => self.delivery.handle(now, Input::Packages(&packages)),
            keys::Output::Again(position) => {
                self.forget_records();
                self.delivery.handle(now, Input::Again(position));
            }
            keys::Output::Checkpointed(position) => self.delivery.handle(now, Input::Checkpointed(position)),
            keys::Output::Prepare { view, flush } => {
                let passed = self.passed_until(now);
                if self.excludes(&view) {
                    lock(&self.gate).pause();
                    match &mut self.ordered {
                        // It counts from the position of what we say of it.
                        Some(ordered) if ordered.keys == KeysIn::Messages && !ordered.by_order => {
                            ordered.begin(self.ring.is_suspended());
                        }
                        Some(ordered) => {
                            ordered.begins = false;
                            self.ring.suspend(passed);
                        }
                        None => self.ring.suspend(passed),
                    }
                }
                self.evicting |= view.change == Change::Evicted;
                self.delivery.handle(now, Input::Prepare { view: &view, flush });
                if let Flush::At(position) = flush {
                    self.ring.supersede_passed(now.monotonic + limits::EPOCH_OVERLAP * 2);
                    self.ends_at(position);
                }
            }
            // An eviction stands, whatever becomes of an attempt: the evicted must not read what is
            // published now, so everything waits for the next epoch.
            keys::Output::Abandoned if self.evicting => {}
            keys::Output::Abandoned => {
                self.ring.resume(self.passed_until(now));
                self.go_on(now);
                let queued = lock(&self.gate).reopen();
                self.send_queued(now, queued);
                self.open_when_back(now);
                self.release(now, |_| true);
            }
            keys::Output::DeliveredBefore { epoch, until } => {
                self.comes_back = true;
                if let Some(ordered) = &mut self.ordered {
                    ordered.delivered_before = Some((epoch, until));
                }
            }
            keys::Output::Keyed { epoch, protect, view, access, passed } => {
                self.delivery.handle(now, Input::Keyed { view: &view, protect: &protect, access: &access });
                let keyed = Arc::new(Epoch { view: Arc::new(view), protect: Some(protect), access });
                match self.passed_until(now) {
                    _ if !passed => self.ring.keyed(keyed),
                    Some(until) => {
                        self.ring.supersede_passed(now.monotonic + limits::EPOCH_OVERLAP * 2);
                        self.ring.passed(keyed, until);
                    }
                    None => {}
                }
                self.release(now, |h| h.epoch == epoch);
            }
            keys::Output::SenderKey { epoch, slot } => self.release(now, |h| h.epoch == epoch && h.slot == slot),
            keys::Output::Epoch { view, protect, access } => {
                let view = Arc::new(self.known_slow(now, view));
                self.install(now, Epoch { view, protect, access });
            }
            keys::Output::Excluded { why } => {
                // If we left, perhaps for a reason of ours.
                let why = self.leaving.clone().unwrap_or(why);
                self.exclude(now, why);
            }
            keys::Output::Opened { index, origin, bodies } => {
                self.delivery.handle(now, Input::Opened(index, bodies.as_deref()));
                for message in self.opening.opened(index, origin, bodies, self.ring.current()) {
                    self.ready.push_back(Output::Deliver(message));
                }
                self.open_kept(now);
            }
            keys::Output::Notice { notice, about } => self.ready.push_back(Output::Notice { notice, about }),
            keys::Output::Described(status) => self.ready.push_back(Output::Described(status)),
            keys::Output::Store { .. } => unreachable!("poll hands out records before it comes here"),
        }
    }

    /// Nothing is published any more.
    pub(super) fn close_gate(&mut self, why: &keys::Exclusion) {
        let queued = lock(&self.gate).close(why.clone());
        queued.into_iter().for_each(|it| self.fail(it.token));
    }

    /// A message of ours will not be sent.
    fn fail(&mut self, token: Option<Token>) {
        self.ready.extend(token.map(|it| Output::Outcome(it, Outcome::Failed)));
    }

    /// We are out.
    pub(super) fn exclude(&mut self, now: Now, why: keys::Exclusion) {
        self.close_gate(&why);
        self.ring.clear();
        self.delivery.handle(now, Input::Excluded);
        self.vouching = None;
        self.give_up();
        for _ in self.held.take(|_| true) {
            self.drops.count(Dropped::NoKey);
        }
        self.excluded = Some(why.clone());
        self.ready.extend(self.unshown.drain(..).map(|(_, event)| Output::View(event)));
        self.ready.push_back(Output::View(ViewEvent::Excluded(why)));
    }

    fn send_for_keys(&mut self, now: Now, token: keys::Token, lane: Lane, message: Letter<'_>) {
        let Letter { guarantee, to, names, bytes } = message;
        let sealed = lane != Lane::Open;
        let epoch = self.ring.current().cloned();
        let protect = epoch.as_ref().and_then(|e| e.protect.as_ref()).filter(|_| sealed);
        let tagged = if protect.is_some() { [&[TAG_KEYS][..], bytes].concat() } else { Vec::new() };
        let bytes = if protect.is_some() { &tagged } else { bytes };
        let what = What::Keys { bytes, sealed: protect.is_some(), names };
        match self.delivery.send(now, protect, Outgoing { what, guarantee, to }) {
            // Best effort has no outcome of its own: handed to the network is all that it promises.
            Ok(given) if guarantee == Guarantee::BestEffort => {
                if let Some(ordered) = &mut self.ordered {
                    ordered.says(given);
                }
                self.settle(now, token, keys::SendResult::Accepted);
            }
            Ok(given) => {
                self.tokens.insert(given, token);
            }
            Err(_) => self.settle(now, token, keys::SendResult::Failed),
        }
    }

    pub(super) fn settle(&mut self, now: Now, token: keys::Token, outcome: keys::SendResult) {
        self.tell_keys(now, keys::Input::Outcome(token, outcome));
        for waiting in self.after.remove(&token).unwrap_or_default() {
            match (outcome, waiting) {
                (keys::SendResult::Accepted | keys::SendResult::Ordered(_), output) => self.do_for_keys(now, output),
                (_, keys::Output::Send { token, .. }) => self.settle(now, token, keys::SendResult::Failed),
                (_, _) => unreachable!("only messages wait for messages"),
            }
        }
    }

    /// Whether a view leaves out somebody of the installed one, so that no old key may be trusted (A5).
    fn excludes(&self, next: &View) -> bool {
        let gone = |e: &Arc<Epoch>| {
            let went = e.view.members.without(&next.members);
            went.iter().any(|m| next.slot_of(&m.id.cert).is_none())
        };
        next.change.excludes() || self.ring.current().is_some_and(gone)
    }

    /// How long keys are of use that were agreed and not installed: others may have, and sealed with them. Where all is
    /// ordered, they are of none.
    fn passed_until(&self, now: Now) -> Option<Monotonic> {
        // Where a run before ended, the others may be still.
        if self.ordered.as_ref().is_some_and(|it| it.keys == KeysIn::Commits) && self.ring.current().is_none() {
            return Some(ring::UNTIL_NEXT);
        }
        (!self.orders_all()).then(|| now.monotonic + limits::EPOCH_OVERLAP)
    }

    /// Whether no channel is left on which the clock ends epochs.
    fn orders_all(&self) -> bool {
        self.ordered.as_ref().is_some_and(|it| it.keys == KeysIn::Messages)
    }

    /// A view with the reason that the transport knows: whom the scheme takes for silent may have held all up.
    fn known_slow(&mut self, now: Now, view: View) -> View {
        let slow = std::mem::take(&mut self.slow);
        let gone = self.ring.current().map(|it| it.view.members.without(&view.members)).unwrap_or_default();
        let gone: Vec<_> = gone.iter().map(|it| it.id.cert).collect();
        let is_slow = !gone.is_empty() && gone.iter().all(|it| slow.contains(it));
        let left_out = gone.into_iter().filter(|it| slow.contains(it));
        left_out.for_each(|cert| self.tell_keys(now, keys::Input::Slow(cert)));
        View { change: if is_slow && view.change == Change::Suspected { Change::Slow } else { view.change }, ..view }
    }

    fn install(&mut self, now: Now, epoch: Epoch) {
        let epoch = Arc::new(epoch);
        let before = self.ring.current().map(|e| e.view.clone());
        let excludes = self.excludes(&epoch.view) && before.is_some();
        self.evicting = false;
        let overlap = if self.orders_all() { ordered::OPEN_END } else { limits::EPOCH_OVERLAP };
        let kept = self.ordered.as_ref().and_then(|it| match it.keys {
            KeysIn::Messages => None,
            // A record before the commit may wait behind one of an epoch that is not known.
            KeysIn::Commits => Some(now.monotonic + limits::EPOCH_OVERLAP * 2),
            KeysIn::Beside if excludes => Some(now.monotonic + limits::EPOCH_OVERLAP),
            KeysIn::Beside => Some(now.monotonic + ordered::OPEN_END),
        });
        self.keep_addresses(&epoch.view);
        self.ring.install(now.monotonic, epoch.clone(), excludes, overlap, self.passed_until(now), kept);
        let Epoch { view, protect, access } = &*epoch;
        self.delivery.handle(now, Input::Install { view, protect: protect.as_ref(), access });
        // Others may have been in an epoch between that excluded somebody, and hold what we sealed before.
        let skipped = |old: &View| epoch.view.epoch.counter > old.epoch.counter.saturating_add(1);
        let vouches = !self.orders_all() && (excludes || before.as_deref().is_some_and(skipped));
        if let (Some(old), true) = (&before, vouches && epoch.protect.is_some()) {
            self.vouch_for(now, old.epoch, epoch.view.epoch);
        }
        self.pause_publishers();
        let queued = lock(&self.gate).open(epoch.clone());
        self.vouch_again(now);
        if let Some(protect) = epoch.protect.as_ref().filter(|_| vouch::says_here(&epoch.view)) {
            // Whoever asked for the change waits to hear the others under the new key.
            if !self.orders_all() && epoch.view.change == Change::Rekeyed && !vouches {
                self.say_here(now, protect, Guarantee::BestEffort);
            }
            // In an order, it ends the old epoch, unless a commit does.
            if self.ordered.as_ref().is_some_and(|it| it.keys != KeysIn::Commits) {
                self.say_here(now, protect, Guarantee::Ordered);
            }
        }
        self.send_queued(now, queued);
        let event = ViewEvent::between(before.as_deref(), epoch.view.clone());
        match self.delivery.properties().needs_flush {
            true => self.unshown.push_back((epoch.view.epoch, event)),
            false => self.show(now, epoch.view.epoch, excludes, event),
        }
        self.open_for(now, before.map(|it| it.epoch), &epoch, excludes);
        self.release(now, |h| h.epoch == epoch.view.epoch);
        // A scheme may open nothing before its first epoch.
        self.open_kept(now);
    }

    /// Says that we seal for an epoch.
    fn say_here(&mut self, now: Now, protect: &Arc<dyn Protect>, guarantee: Guarantee) {
        let what = What::Keys { bytes: &[TAG_HERE], sealed: true, names: None };
        // A full queue is met by the next sign of life.
        let _ = self.delivery.send(now, Some(protect), Outgoing { what, guarantee, to: To::Group });
    }

    /// Vouches under a new epoch for what we sealed under the one before. What was sealed under those before it may be under
    /// way as well, where keys change fast.
    fn vouch_for(&mut self, now: Now, old: EpochId, new: EpochId) {
        let mut epochs = vec![old];
        epochs.extend(self.ring.superseded().filter(|e| *e != old));
        let (next, unnamed) = (now.monotonic, epochs.len());
        self.vouching = Some(Vouching { parts: Vec::new(), epoch: new, unnamed, next, left: VOUCHES });
        for epoch in epochs {
            match self.remembers {
                true => self.delivery.handle(now, Input::Retire(epoch)),
                false => {
                    let packets = lock(&self.gate).recent.packets(now.monotonic, epoch);
                    self.named(now, epoch, &packets);
                }
            }
        }
    }

    /// The packets are known that we sealed under an epoch that has ended. The vouch leaves once all of them are; who sealed
    /// nothing says HERE instead.
    pub(super) fn named(&mut self, now: Now, epoch: EpochId, packets: &[Packet]) {
        let Some(vouching) = self.vouching.as_mut().filter(|it| it.unnamed > 0) else { return };
        let new = self.ring.current().filter(|it| it.view.epoch == vouching.epoch).cloned();
        let protect = new.as_ref().and_then(|it| it.protect.as_ref());
        if let Some(protect) = protect.filter(|_| !packets.is_empty()) {
            vouching.parts.extend(vouch::write(epoch, packets, &**protect));
        }
        vouching.unnamed -= 1;
        if vouching.unnamed == 0 && vouching.parts.is_empty() {
            self.vouching = None;
            if let (Some(new), Some(protect)) = (&new, protect)
                && vouch::says_here(&new.view)
            {
                self.say_here(now, protect, Guarantee::BestEffort);
            }
        }
        self.vouch_again(now);
    }

    pub(super) fn send_queued(&mut self, now: Now, queued: VecDeque<gate::Queued>) {
        let gate = self.gate.clone();
        for waiting in queued {
            let message = Publication {
                topic: &waiting.topic,
                body: &waiting.body,
                guarantee: waiting.guarantee,
                sent_micros: waiting.sent_micros,
            };
            // Rights were judged when it was queued, but the new epoch may know better ones.
            let admitted = {
                let mut gate = lock(&gate);
                let admitted = gate.admit(&message);
                if let (Ok(Pass::Queued), Some(token)) = (&admitted, waiting.token) {
                    gate.name_queued(token);
                }
                admitted
            };
            let sent = match admitted {
                Ok(Pass::Send(epoch, route)) => {
                    self.send_as(now, &epoch, route, &message, waiting.token.map(|it| (it, 0))).map(drop)
                }
                Ok(Pass::Queued) => Ok(()),
                Err(why) => Err(why),
            };
            let Err(why) = sent else { continue };
            self.drops.count(match why {
                PublishError::Denied | PublishError::MustSign => Dropped::Policy,
                _ => Dropped::Queue,
            });
            self.fail(waiting.token);
        }
    }

    pub(super) fn vouch_again(&mut self, now: Now) {
        let is_due = |v: &&mut Vouching| v.unnamed == 0 && v.next <= now.monotonic;
        let Some(vouching) = self.vouching.as_mut().filter(is_due) else { return };
        vouching.left -= 1;
        // Spread by slot, so that the members' repetitions do not collide.
        let spread = self.ring.current().map_or(0, |e| u64::from(e.view.me.0) % 16);
        vouching.next = now.monotonic + VOUCH_AGAIN * (VOUCHES - vouching.left) + Duration::from_millis(spread);
        let epoch = self.ring.current().filter(|e| e.view.epoch == vouching.epoch).cloned();
        let protect = epoch.as_ref().and_then(|e| e.protect.as_ref());
        for part in vouching.parts.iter().filter(|_| protect.is_some()) {
            let what = What::Keys { bytes: part, sealed: true, names: None };
            let outgoing = Outgoing { what, guarantee: Guarantee::BestEffort, to: To::Group };
            // A full queue is met by the repetitions.
            let _ = self.delivery.send(now, protect, outgoing);
        }
        if protect.is_none() || self.vouching.as_ref().is_some_and(|v| v.left == 0) {
            self.vouching = None;
        }
    }
}

/// How often a vouch is said, the first included: with 20 % loss, 99.8 % hear it.
const VOUCHES: u32 = 4;
/// The wait before the first repetition; later ones wait longer.
const VOUCH_AGAIN: Duration = Duration::from_millis(15);
