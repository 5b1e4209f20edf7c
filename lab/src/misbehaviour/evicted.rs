//! A member who is evicted and does not stop: it seals with every key that it ever held, and tries to
//! read whatever it hears.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sealcast::group::Epoch;
use sealcast_delivery::multicast::{self, Multicast};
use sealcast_delivery::{Batch, Delivery, Outgoing, Output, What};
use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::{Address, Domain, Guarantee, Monotonic, Now, To};

use crate::checkers::Body;
use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::fixture::{Player, TOPIC};

/// See the module.
pub(super) struct Insider {
    robot: Player,
    member: usize,
    /// Datagrams that tell it that it is out, where it does not listen to them.
    ignores: Box<Ignores>,
    keys: Vec<Arc<Epoch>>,
    out: bool,
    next: Option<Monotonic>,
    sent: u64,
    effects: VecDeque<Effect<MemberEvent>>,
}

/// Whether a datagram is not listened to.
pub(super) type Ignores = dyn Fn(&[u8]) -> bool;

impl Insider {
    pub(super) fn new(robot: Player, member: usize, ignores: Box<Ignores>) -> Insider {
        let (keys, effects) = (Vec::new(), VecDeque::new());
        Insider { robot, member, ignores, keys, out: false, next: None, sent: 0, effects }
    }

    fn drain(&mut self, now: Now) {
        while let Some(effect) = self.robot.poll() {
            match &effect {
                Effect::Tell(MemberEvent::Installed(epoch) | MemberEvent::Keyed { epoch, .. }) => {
                    self.keys.push(epoch.clone())
                }
                Effect::Tell(MemberEvent::Excluded(_)) => {
                    self.out = true;
                    self.next = Some(now.monotonic + EVERY);
                }
                _ => {}
            }
            self.effects.push_back(effect);
        }
    }

    /// A well-formed message under the `back`-th newest of its keys.
    fn seal(&mut self, now: Now, back: usize) {
        let Some(epoch) = self.keys.iter().rev().nth(back) else { return };
        let Some(protect) = &epoch.protect else { return };
        self.sent += 1;
        // Told as published: whoever does not know of the eviction yet may take it.
        let body = Body { author: self.member as u32, life: 1, number: FORGED + self.sent }.bytes(100);
        self.effects.push_back(Effect::Tell(MemberEvent::Published(TOPIC.into(), body.clone())));
        let what = What::Data { topic: TOPIC, domain: Domain(1), signed: false, sent_micros: None, body: &body };
        let outgoing = Outgoing { what, guarantee: Guarantee::BestEffort, to: To::Group };
        let mut delivery = Multicast::new(multicast::Config::default());
        let mut batch = Batch::default();
        if delivery.send(now, Some(protect), outgoing).is_ok() {
            while let Some(output) = delivery.poll(&mut batch) {
                if let Output::Transmit(_) = output {
                    for datagram in batch.iter() {
                        let datagram = datagram.to_vec();
                        self.effects.push_back(Effect::Send { to: Reach::All, datagram });
                    }
                    batch.clear();
                }
            }
        }
    }
}

/// What these keys open of a datagram.
pub(super) fn read(keys: &[Arc<Epoch>], datagram: &[u8]) -> Option<MemberEvent> {
    keys.iter().find_map(|epoch| {
        let mut datagram = datagram.to_vec();
        let (_, _, plaintext) = epoch.protect.as_ref()?.open(&mut datagram).ok()?;
        Some(MemberEvent::Read(find(plaintext)?, epoch.view.epoch))
    })
}

/// A test message somewhere in a record.
fn find(plaintext: &[u8]) -> Option<Body> {
    (0..plaintext.len()).find_map(|at| Body::begins(&plaintext[at..]))
}

impl Node for Insider {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        if (self.ignores)(datagram) {
            self.out = true;
            self.next.get_or_insert(now.monotonic + EVERY);
            return;
        }
        if self.out {
            self.effects.extend(read(&self.keys, datagram).map(Effect::Tell));
        }
        self.robot.handle(now, from, datagram);
        self.drain(now);
    }

    fn command(&mut self, now: Now, command: MemberCommand) {
        self.robot.command(now, command);
        self.drain(now);
    }

    fn timeout(&self) -> Option<Monotonic> {
        [self.robot.timeout(), self.next].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.next.is_some_and(|at| at <= now.monotonic) {
            self.next = Some(now.monotonic + EVERY);
            (0..2).for_each(|back| self.seal(now, back));
        }
        self.robot.handle_timeout(now);
        self.drain(now);
    }

    fn stored(&mut self, now: Now) {
        self.robot.stored(now);
        self.drain(now);
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front().or_else(|| self.robot.poll())
    }
}

const EVERY: Duration = Duration::from_millis(7);
/// Tells its forgeries from what its application publishes.
const FORGED: u64 = 1 << 40;
