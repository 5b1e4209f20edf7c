//! Members of a group that orders, with a changed program: they lie about the order, or do not stop when they are evicted.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sealcast::group::Epoch;
use sealcast_delivery::multicast::frame::{Frame, Frames, Stamp, Stream, write_control};
use sealcast_delivery::sequencer::Sequencer;
use sealcast_keys::Keys;
use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::frame::{FLAG_ORDERED, FLAG_RELIABLE, FLAG_SIGNED, HEADER_LEN, TAG_LEN};
use sealcast_wire::{Address, CertHash, Domain, Header, Monotonic, Now, Slot};

use super::liar::{Inside, Lies, Program};
use super::open_message;
use crate::member::{Member, MemberCommand, MemberEvent};
use crate::scenarios::fixture::TOPIC_FIFO;

/// A member of a group that orders.
pub type OrderingRobot<K> = Member<K, Sequencer>;

/// How a member lies about the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrderLie {
    /// It says that it holds all of the order as soon as it hears of it, and all of everybody's streams.
    Acknowledges,
    /// It asks for everything, again and again.
    AsksForAll,
    /// Of each ordered record that it hears it says which position it has, before the sequencer does; if it is that, it does not lie.
    Stamps,
    /// If it is the sequencer, it says one order to half of the others and another one to the rest.
    TellsTwo,
    /// Once a group of so many orders, it does not listen to the key scheme any more, and goes on when it is evicted.
    StaysWhenEvicted {
        /// How many.
        members: usize,
    },
}

/// What it tells of itself is no matter, but for what it publishes.
fn is_shown(effect: &Effect<MemberEvent>) -> bool {
    matches!(effect, Effect::Send { .. } | Effect::Tell(MemberEvent::Published(..)))
}

/// A member that says what it should not.
pub(super) struct OrderLiar {
    lie: OrderLie,
    epoch: Option<Arc<Epoch>>,
    sequencer: Option<CertHash>,
    /// The last position that has a record, by the sequencer's stamps and its own.
    last: u64,
}

impl OrderLiar {
    pub(super) fn new(lie: OrderLie) -> OrderLiar {
        OrderLiar { lie, epoch: None, sequencer: None, last: 0 }
    }

    /// Whether it is too late to tell this one anything of the group's keys.
    fn is_deaf(&self) -> bool {
        let OrderLie::StaysWhenEvicted { members } = self.lie else { return false };
        let is_whole = self.epoch.as_ref().is_some_and(|it| it.view.members.len() == members);
        is_whole && self.sequencer.is_some()
    }

    /// Says this about the order to all, under its own slot.
    fn say<K: Keys>(&self, member: &mut Inside<OrderingRobot<K>>, control: &[u8]) {
        let Some(protect) = self.epoch.as_ref().and_then(|it| it.protect.as_ref()) else { return };
        let mut datagram = vec![0; HEADER_LEN];
        write_control(control, &mut datagram);
        datagram.resize(datagram.len() + TAG_LEN, 0);
        if protect.seal(Domain::GROUP, 0, &mut datagram).is_ok() {
            member.send(datagram);
        }
    }

    /// How far the order goes, by the sequencer's stamps in this datagram.
    fn stamped(&self, datagram: &[u8]) -> Option<u64> {
        let header = Header::parse(datagram).ok()?;
        if header.flags & (FLAG_RELIABLE | FLAG_SIGNED | FLAG_ORDERED) != FLAG_RELIABLE | FLAG_SIGNED {
            return None;
        }
        // Of reliable records, opening remembers nothing.
        let mut datagram = datagram.to_vec();
        let (_, _, record) = self.epoch.as_ref()?.protect.as_ref()?.open(&mut datagram).ok()?;
        Frames::of(record).map_while(Result::ok).find_map(|frame| match frame {
            Frame::Stamps { first, stamps } => Some(first + stamps.len() as u64 - 1),
            _ => None,
        })
    }

    /// Stamps an ordered record as its sequencer would: all is right but who says it.
    fn stamp<K: Keys>(&mut self, now: Now, robot: &OrderingRobot<K>, datagram: &[u8]) {
        let (Ok(header), Some(epoch)) = (Header::parse(datagram), &self.epoch) else { return };
        let Some(number) = Header::reliable_number(header.flags, header.counter) else { return };
        let view = &epoch.view;
        let is_mine = header.slot == view.me || self.sequencer == view.members.get(view.me).map(|it| it.id.cert);
        if header.flags & FLAG_ORDERED == 0 || header.epoch != view.epoch || is_mine || self.sequencer.is_none() {
            return;
        }
        let Some(protect) = &epoch.protect else { return };
        self.last += 1;
        let stamp = Stamp { slot: header.slot, number, safe: false, hash: Stamp::hash_of(datagram) };
        let sender = robot.group().delivery().sender();
        // What a full queue refuses is not missed.
        let _ =
            sender.lock().unwrap_or_else(PoisonError::into_inner).stamps(now.monotonic, protect, self.last, &[stamp]);
    }

    /// The streams of all others: the ordered one, and that of fifo messages.
    fn streams(&self) -> Vec<(Slot, Stream)> {
        let Some(epoch) = &self.epoch else { return Vec::new() };
        let fifo = epoch.access.domain(TOPIC_FIFO).map(|domain| Stream { domain, signed: false });
        let others = epoch.view.members.slots().map(|(slot, _)| slot).filter(|slot| *slot != epoch.view.me);
        others.flat_map(|slot| fifo.into_iter().chain([Stream::ORDERED]).map(move |it| (slot, it))).collect()
    }
}

impl<K: Keys> Lies<OrderingRobot<K>> for OrderLiar {
    fn hear(&mut self, now: Now, member: &mut Inside<OrderingRobot<K>>, from: Address, datagram: &mut [u8]) {
        if open_message(datagram).is_some() && self.is_deaf() {
            return;
        }
        match (self.lie, self.stamped(datagram)) {
            (OrderLie::Acknowledges, Some(all)) => self.say(member, &[&[ACK][..], &all.to_be_bytes()].concat()),
            (OrderLie::Stamps, Some(all)) => self.last = all,
            (OrderLie::Stamps, None) => self.stamp(now, &member.robot, datagram),
            _ => {}
        }
        member.robot.handle(now, from, datagram);
    }

    fn effect(&mut self, _now: Now, member: &mut Inside<OrderingRobot<K>>, effect: Effect<MemberEvent>) {
        match &effect {
            Effect::Tell(MemberEvent::Installed(epoch)) => self.epoch = Some(epoch.clone()),
            Effect::Tell(MemberEvent::Sequencer(who)) => self.sequencer = *who,
            _ => {}
        }
        member.effects.extend(Some(effect).filter(is_shown));
    }

    fn act(&mut self, _now: Now, member: &mut Inside<OrderingRobot<K>>) {
        for (slot, stream) in self.streams() {
            let mut of = slot.to_bytes().to_vec();
            stream.write(&mut of);
            match self.lie {
                OrderLie::AsksForAll => {
                    let nak = |last: u64| [&[NAK][..], &of, &[1], &1_u64.to_be_bytes(), &last.to_be_bytes()].concat();
                    self.say(member, &nak(u64::MAX));
                    self.say(member, &nak(64));
                }
                OrderLie::Acknowledges if stream.is_fifo() => {
                    self.say(member, &[&[STATUS, 1][..], &of, &FAR.to_be_bytes()].concat());
                }
                _ => {}
            }
        }
    }
}

/// A sequencer with two faces, which differ in the order in which ordered records come to them. Both begin alike and hear the
/// same of the key scheme, so they are one member.
pub(super) struct TwoOrders<R> {
    faces: [R; 2],
    /// An ordered record that the second face gets after the next one.
    waits: Option<(Address, Vec<u8>)>,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl<R: Program> TwoOrders<R> {
    pub(super) fn new(one: R, other: R) -> TwoOrders<R> {
        TwoOrders { faces: [one, other], waits: None, effects: VecDeque::new() }
    }

    fn drain(&mut self) {
        for (face, robot) in self.faces.iter_mut().enumerate() {
            while let Some(effect) = robot.poll() {
                if let Effect::Send { datagram, .. } = effect {
                    let half = (face..HALF_MAX).step_by(2);
                    let send = half.map(|to| Effect::Send { to: Reach::One(to), datagram: datagram.clone() });
                    self.effects.extend(send);
                }
            }
        }
    }
}

impl<R: Program> Node for TwoOrders<R> {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        let is_ordered = Header::parse(datagram).is_ok_and(|it| it.flags & FLAG_ORDERED != 0);
        match self.waits.take() {
            None if is_ordered => self.waits = Some((from, datagram.to_vec())),
            waits => {
                self.faces[1].handle(now, from, &mut datagram.to_vec());
                waits.into_iter().for_each(|(from, mut it)| self.faces[1].handle(now, from, &mut it));
            }
        }
        self.faces[0].handle(now, from, datagram);
        self.drain();
    }

    fn command(&mut self, now: Now, command: MemberCommand) {
        self.faces.iter_mut().for_each(|robot| robot.command(now, command.clone()));
        self.drain();
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.faces.iter().filter_map(Node::timeout).min()
    }

    fn handle_timeout(&mut self, now: Now) {
        let due = self.faces.iter_mut().filter(|it| it.timeout().is_some_and(|at| at <= now.monotonic));
        due.for_each(|robot| robot.handle_timeout(now));
        self.drain();
    }

    fn stored(&mut self, now: Now) {
        self.faces.iter_mut().for_each(|robot| robot.stored(now));
        self.drain();
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

/// From one lie of its own to the next.
pub(super) const EVERY: Duration = Duration::from_millis(10);
/// More records than anybody sends.
const FAR: u64 = 1 << 40;
/// Members that it speaks to.
const HALF_MAX: usize = 8;

// Kinds of what members say about reliable records (`docs/WIRE.md`).
const STATUS: u8 = 2;
const NAK: u8 = 4;
const ACK: u8 = 6;
