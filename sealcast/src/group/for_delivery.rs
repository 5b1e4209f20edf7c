//! What the way brings up: keys' messages, vouches, and messages of the application.

use sealcast_delivery::{self as delivery, Delivered, Delivery, OrderStatus};
use sealcast_keys::{self as keys, HandleError, Keys, Misbehaviour, Notice};
use sealcast_wire::{Dropped, Now, PayloadContext, Slot, Source, limits};

use super::gate::Epoch;
use super::message::{From, Message, ViewEvent};
use super::opening::{Of, Sealed};
use super::ordered::Record;
use super::vouch::{self, TAG_HERE, TAG_KEYS, TAG_VOUCH};
use super::{Group, Output};

impl<K: Keys, D: Delivery> Group<K, D> {
    pub(super) fn do_for_delivery(&mut self, now: Now, output: delivery::Output) {
        match output {
            delivery::Output::Keys { source, position, bytes } => {
                if let Some(ordered) = &mut self.ordered {
                    ordered.by_order = true;
                }
                match source {
                    Source::Inside { .. } => self.control(now, source, position, &bytes),
                    Source::Outside(_) | Source::Client { .. } => {
                        self.tell_keys(now, keys::Input::Message { source: &source, position, bytes: &bytes });
                    }
                }
            }
            delivery::Output::Record { index, from, ours, datagram } => {
                if let Some(token) = ours {
                    self.echoed(token);
                }
                self.take_record(now, Record { index, from, ours, datagram });
            }
            delivery::Output::Up => {
                self.is_up = true;
                self.tell_keys(now, keys::Input::Up);
                self.open_kept(now);
            }
            delivery::Output::Subscribed(pattern, result) => {
                self.ready.push_back(Output::Subscribed(pattern, result));
            }
            delivery::Output::InForce(versions) => {
                self.tell_keys(now, keys::Input::InForce(versions));
            }
            delivery::Output::Deliver(delivered) => {
                if let Err(why) = self.deliver(now, delivered) {
                    self.drops.count(why);
                }
            }
            delivery::Output::Attach { index, attachments } => {
                let more = keys::Delivered { index, header: &[], body: None, attachments: &attachments };
                self.tell_keys(now, keys::Input::Delivered(more));
            }
            delivery::Output::Open { index, header, body } => {
                self.opening.want(index, header, body);
                self.open_kept(now);
            }
            delivery::Output::Fetched(id, result) => self.tell_keys(now, keys::Input::Fetched(id, result)),
            delivery::Output::PackagesKept(single_use) => self.tell_keys(now, keys::Input::PackagesKept(single_use)),
            delivery::Output::Outcome(token, outcome) => match self.tokens.remove(&token) {
                Some(of_keys) => {
                    let outcome = match outcome {
                        delivery::Outcome::Accepted => keys::SendResult::Accepted,
                        delivery::Outcome::Ordered(position) => keys::SendResult::Ordered(position),
                        delivery::Outcome::InDoubt => keys::SendResult::InDoubt,
                        delivery::Outcome::Superseded(_) | delivery::Outcome::Failed | delivery::Outcome::Denied(_) => {
                            keys::SendResult::Failed
                        }
                    };
                    self.settle(now, of_keys, outcome);
                }
                None => self.tell(now, token, outcome),
            },
            delivery::Output::Suspect(slot) => self.tell_keys(now, keys::Input::Suspected(slot)),
            delivery::Output::State(topic, event) => self.ready.push_back(Output::State(topic, event)),
            delivery::Output::Slow { slot, judged } => self.is_slow(now, slot, judged),
            delivery::Output::Flushed(epoch, cut) => self.tell_keys(now, keys::Input::Flushed(epoch, cut)),
            delivery::Output::Left => self.tell_keys(now, keys::Input::Command(keys::Command::Leave)),
            delivery::Output::Entered(epoch) => {
                let shown = self.unshown.iter().position(|(it, _)| *it == epoch).map_or(0, |at| at + 1);
                self.ready.extend(self.unshown.drain(..shown).map(|(_, event)| Output::View(event)));
            }
            delivery::Output::Order(OrderStatus { sequencer, is_settled, forced, gap, term, from }) => {
                let event = ViewEvent::Order { sequencer, is_settled, forced, gap, term, from };
                self.ready.push_back(Output::View(event));
            }
            delivery::Output::Gap(slot) => {
                let from = self.ring.current().and_then(|it| it.view.member(slot).cloned());
                self.ready.extend(from.map(|from| Output::View(ViewEvent::Gap { from })));
            }
            delivery::Output::Missed(from, until) => {
                let delivered = self.ordered.as_ref().and_then(|it| it.delivered_before).map_or(0, |(_, until)| until);
                let from = from.max(delivered.saturating_add(1));
                if from <= until {
                    self.ready.push_back(Output::View(ViewEvent::Missed { from, until }));
                }
                // An eviction may be among it: until the order says how the group goes on, nothing behind it counts.
                if self.ring.current().is_none() {
                    self.ends_at(until);
                }
            }
            delivery::Output::Silence(silent) => self.ready.push_back(Output::View(ViewEvent::Stale { silent })),
            // Whoever leaves, or is in no epoch yet, needs none.
            delivery::Output::Renew => _ = self.command(now, keys::Command::Rotate),
            delivery::Output::Sealed(epoch, packets) => self.named(now, epoch, &packets),
            delivery::Output::Dropped(drops) => self.drops.add(&drops),
            delivery::Output::Transmit(_) | delivery::Output::Store { .. } => {
                unreachable!("poll hands these out before it comes here")
            }
        }
    }

    /// A member holds all up. By whomever that is judged, all tell why it goes.
    fn is_slow(&mut self, now: Now, slot: Slot, judged: bool) {
        let member = self.ring.current().and_then(|it| it.view.member(slot));
        let Some((cert, name)) = member.map(|it| (it.id.cert, it.name.to_string())) else { return };
        if self.slow.insert(cert) {
            let notice = Notice::LeftOut { cert, why: Misbehaviour::Slow };
            self.ready.push_back(Output::Notice { notice, about: Some(name) });
        }
        if judged {
            self.tell_keys(now, keys::Input::Suspected(slot));
        }
    }

    /// What became of a message that is not the key scheme's, or of one for which handing it over was all.
    fn tell(&mut self, now: Now, token: delivery::Token, outcome: delivery::Outcome) {
        self.echoed(token);
        if let Some(whole) = self.sealed.remove(&token) {
            self.whole_became(now, token, whole, outcome);
        } else if !self.lost(now, token, outcome)
            && let Some(first) = self.names.remove(&token).or(Some(token).filter(|_| self.numbered))
        {
            self.ready.push_back(Output::Outcome(first, outcome));
        }
    }

    /// A message of the control lane: a vouch, or the key scheme's.
    fn control(&mut self, now: Now, source: Source, position: Option<u64>, message: &[u8]) {
        match message {
            [TAG_KEYS, bytes @ ..] => self.tell_keys(now, keys::Input::Message { source: &source, position, bytes }),
            [TAG_VOUCH, ..] => {
                if let Err(why) = self.vouched(now, source, message) {
                    self.drops.count(why);
                }
            }
            // That it was opened is all that it says.
            [TAG_HERE] => {}
            _ => self.drops.count(Dropped::Malformed),
        }
    }

    fn vouched(&mut self, now: Now, source: Source, message: &[u8]) -> std::result::Result<(), Dropped> {
        let Source::Inside { epoch, slot, .. } = source else { return Err(Dropped::Auth) };
        let new = self.ring.of(epoch).ok_or(Dropped::Stale)?.epoch.clone();
        let protect = new.protect.as_deref().ok_or(Dropped::NoKey)?;
        let word = vouch::read(message).map_err(|_| Dropped::Malformed)?;
        // It is said several times, by each member to each: one that adds nothing costs no check of its proof.
        if !self.ring.hears(&word, &new.view, slot) {
            return Err(Dropped::Stale);
        }
        let part = word.proved(slot, protect).ok_or(Dropped::Auth)?;
        let old = part.old;
        let was = self.ring.vouch(part, &new.view, slot).ok_or(Dropped::Stale)?;
        self.release(now, |h| h.epoch == old && h.slot == was);
        Ok(())
    }

    /// Hands something to the key scheme, and counts what it drops.
    pub(super) fn tell_keys(&mut self, now: Now, input: keys::Input<'_>) {
        if !self.is_up {
            return;
        }
        match self.keys.handle(now, input) {
            // Only commands are refused, and whoever gave one is told.
            Ok(()) | Err(HandleError::Refused(_)) => {}
            Err(HandleError::Dropped(why)) => self.drops.count(why),
            Err(HandleError::Misbehaved(who, how)) => {
                self.drops.count(Dropped::Auth);
                if self.misbehaved.len() >= limits::MISBEHAVED_MAX {
                    self.misbehaved.pop_front();
                }
                self.misbehaved.push_back((who, how));
            }
        }
    }

    /// Hands a message to the application; one with a position in the order was judged there.
    pub(super) fn deliver(&mut self, now: Now, delivered: Delivered) -> std::result::Result<(), Dropped> {
        let delivered = self.open_payload(delivered)?;
        let Delivered { index, ordered, source, signed, topic, sent_micros, header, body, attachments } = delivered;
        let from = match source {
            Source::Inside { epoch, slot, domain, .. } => {
                let entry = self.ring.of(epoch).ok_or(Dropped::OldKey)?;
                let id = entry.epoch.view.member(slot).ok_or(Dropped::Malformed)?.id;
                if entry.is_superseded() && !ordered {
                    // It was opened before a change that excluded its sender, but waited behind a record.
                    if self.ring.current().is_some_and(|e| e.view.members.iter().all(|it| it.id != id)) {
                        return Err(Dropped::OldKey);
                    }
                }
                let entry = self.ring.of(epoch).ok_or(Dropped::OldKey)?;
                let Epoch { view, access, .. } = &*entry.epoch;
                entry.policy.judge(&**access, slot, domain, signed, &topic)?;
                From::Member { view: view.clone(), slot, signed: signed && !self.claims_names }
            }
            Source::Client { key, epoch } if header.is_empty() => {
                let current = self.ring.current().ok_or(Dropped::NoKey)?;
                if current.protect.is_some() {
                    return Err(Dropped::Auth);
                }
                From::Client { key, epoch }
            }
            Source::Outside(_) if header.is_empty() => {
                let current = self.ring.current().ok_or(Dropped::NoKey)?;
                if current.protect.is_some() {
                    return Err(Dropped::Auth);
                }
                From::Anonymous
            }
            Source::Outside(_) | Source::Client { .. } => {
                let of = Some(Of { source, topic, sent_micros });
                let sealed = Sealed { index, header, body, attachments, of };
                if !self.opening.keep(sealed) {
                    self.drops.count(Dropped::Queue);
                    self.leave_behind(now);
                }
                self.open_kept(now);
                return Ok(());
            }
        };
        let message = Message { from, topic, sequence: index, ordered, sent_micros, payload: body };
        self.ready.push_back(Output::Deliver(message));
        Ok(())
    }

    /// A message as its sender published it, where the keys seal each by itself, too.
    pub(super) fn open_payload(&mut self, delivered: Delivered) -> std::result::Result<Delivered, Dropped> {
        let Source::Inside { epoch, slot: by, .. } = delivered.source else { return Ok(delivered) };
        let entry = self.ring.of(epoch).ok_or(Dropped::OldKey)?;
        let Some(protect) = entry.epoch.protect.as_deref() else { return Ok(delivered) };
        let Some(payload) = protect.payload() else { return Ok(delivered) };
        let Delivered { ordered, topic, sent_micros, body, .. } = &delivered;
        let context = PayloadContext { epoch, by, ordered: *ordered, topic, sent_micros: *sent_micros };
        let body = payload.open(&context, body)?;
        if !*ordered {
            // It opens once, whatever its datagram's number is.
            let _ = protect.admit(&delivered.source);
        }
        Ok(Delivered { signed: true, body, ..delivered })
    }

    /// Hands sealed messages to the keys, in their order, while there is room; the order waits for the rest.
    pub(super) fn open_kept(&mut self, now: Now) {
        while let Some(it) = self.opening.next(|bytes| self.is_up && self.keys.has_capacity(bytes)) {
            let Sealed { index, header, body, attachments, .. } = &it;
            let delivered = keys::Delivered { index: *index, header, body: Some(body), attachments };
            self.tell_keys(now, keys::Input::Delivered(delivered));
        }
        self.regulate(now);
    }
}
