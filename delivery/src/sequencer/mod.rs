//! One group, two channels over UDP multicast: best effort, and beside it one that loses nothing and keeps each sender's
//! order. Keys, membership and the sending half are those of [`Multicast`].
//!
//! ```text
//! publish ─▶ Sender ── sealed records, numbered per stream ──▶ others ─▶ Incoming ─▶ messages in order
//!              │ ▲                                               │
//!           Backlog ◀── SUMMARY ── coordinator ◀── STATUS ───────┤
//!              └────────── the same bytes again ◀── NAK ─────────┘
//! ```
//! A stream is the records that one member seals in one domain of one epoch, signed or not. Receivers see gaps in their
//! numbers and ask for them (NAK, after a wait that spreads the askers: RFC 5740, 5.3); the sender repeats the datagrams as
//! they were (B5), and says from time to time how far it came, so that the last ones are missed, too. Each receiver says what
//! it has without a gap; the coordinator, the member with the lowest slot, gathers that and tells all how far all readers are
//! (B10): then the sender forgets the records, and the messages are acknowledged. What not all have when a view is installed
//! is sealed again for its epoch; receivers know a message by its number.

mod acknowledged;
mod buffers;
mod control;
mod flush;
mod gone;
mod incoming;
mod named;
mod order;
mod primary;
mod rebuild;
mod repair;
mod saying;
mod slow;
mod state;
#[cfg(test)]
mod tests;
mod unheard;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use sealcast_wire::codec::Malformed;
use sealcast_wire::frame::{FLAG_ORDERED, FLAG_RELIABLE, FLAG_SAFE, FLAG_SIGNED};
use sealcast_wire::{
    Access, Agreement, Domain, Dropped, Drops, EpochId, Flush as Flushing, Guarantee, Header, Incarnation, Monotonic,
    Now, Protect, Slot, Source, View, limits,
};

use self::acknowledged::Acknowledged;
use self::control::{Control, Of};
use self::flush::{Early, Flush};
use self::incoming::{Incoming, Record};
use self::order::Order;
use self::primary::Report;
use self::rebuild::Rebuild;
use self::saying::{ALL_PAUSE, STAMPS_STATUS, Saying, TAIL_AGAIN};
use self::slow::Slow;
use self::state::States;
use self::unheard::Unheard;
use crate::multicast::backlog::{Orders, Settled};
use crate::multicast::frame::{Frame, Frames, Stamp, Stream};
use crate::multicast::origin::without_proof;
use crate::multicast::{Config, Data, Multicast, Sender};
use crate::{Batch, Channel, Cut, Delivery, Input, OrderStatus, Outgoing, Output, Properties, SendError, Token, What};

/// See the module.
pub struct Sequencer {
    multicast: Multicast,
    current: Option<Current>,
    /// The last view that ordered, if how far its order goes is not decided yet; and until when it is remembered.
    last: Option<(Current, Monotonic)>,
    incoming: Incoming,
    /// Records of our own while they are taken in, as they were sealed and opened.
    filling: (Vec<u8>, Vec<u8>),
    /// If lost records are rebuilt from parities.
    rebuild: Option<Rebuild>,
    /// Outcomes of our messages.
    ready: VecDeque<Output>,
    drops: Drops,
    told: Drops,
    /// When we say what we have, and whether all of it; when we did so last.
    status: Saying,
    /// The same of what all readers have, if we are the coordinator.
    /// How often we said so since the last record came.
    restated: u32,
    summary: Saying,
    stamping: Saying,
    /// How much of the order we hold, and, of the sequencer, how much enough members hold.
    ack: Saying,
    stable: Saying,
    /// When we said last how far our streams go without an answer, and how often.
    tail: (Monotonic, u32),
    /// When we said so last since somebody asked for more.
    corrected: Monotonic,
    /// When we vouched last for having forgotten records.
    vouched: Monotonic,
    /// What we know of primary views, and hold of the last one's order.
    report: Report,
    flush: Option<Flush>,
    /// The view that it is for; and the flush before, if that one was done.
    prepared: Option<View>,
    flushed: Option<Flush>,
    /// By member: its last report in the view in use for one that is not prepared here yet.
    early: BTreeMap<Slot, Early>,
    /// Views whose keys are agreed: others may install one, and we not.
    ahead: VecDeque<Ahead>,
    /// Whether this view orders, and whether that is decided; what was told of it last.
    order_status: OrderStatus,
    order_news: Option<OrderStatus>,
    /// So much of the last primary view's order was delivered here.
    delivered: u64,
    /// How many attempts at the next view came to nothing here since we lack some of the order.
    lacked: u32,
    /// Whether we lack some of it for good.
    lost: bool,
    /// Who holds all up.
    slow: Slow,
    /// Whose reports others lack.
    unheard: Unheard,
    states: States,
    /// Our last word, if we leave.
    leaving: Leaving,
    /// When we ask for another change, which may order, and how often we did.
    renew_at: Option<Monotonic>,
    renewals: u32,
    /// When somebody came to our view last.
    grew: Monotonic,
    /// When something happened last: what is said of the order then is said once all of that is taken in.
    now: Monotonic,
}

/// How a member leaves.
#[derive(Debug, Default)]
struct Leaving {
    /// Our record that says so: we vote no more.
    said: Option<u64>,
    /// We wait so long at most for it to be in the order.
    until: Option<Monotonic>,
}

/// A view whose key is agreed.
struct Ahead {
    view: View,
    protect: Arc<dyn Protect>,
    access: Arc<dyn Access>,
}

/// The installed view.
struct Current {
    epoch: EpochId,
    me: Slot,
    /// Ascending.
    members: Vec<Slot>,
    protect: Arc<dyn Protect>,
    access: Arc<dyn Access>,
    incarnations: BTreeMap<Slot, Incarnation>,
    acknowledged: Acknowledged,
    /// Of a primary view.
    order: Option<Order>,
    /// How much of the order we said that we hold.
    told_held: u64,
    /// How often we said so again, since nobody seemed to hear it.
    unheard: u32,
}

impl Current {
    fn reads(&self, domain: Domain) -> bool {
        self.access.reads(self.me, domain)
    }

    fn coordinator(&self) -> Option<Slot> {
        self.members.first().copied()
    }
}

impl Sequencer {
    /// What it gives.
    pub const PROPERTIES: Properties = Properties {
        fifo: Some(Channel { agreement: Agreement::None, acknowledged: true, cut: Cut::Clock }),
        ordered: Some(Channel { agreement: Agreement::Primary, acknowledged: true, cut: Cut::Clock }),
        safe: Some(Channel { agreement: Agreement::Primary, acknowledged: true, cut: Cut::Clock }),
        needs_keys: true,
        needs_flush: true,
        keeps_sealed: Some(FLAG_RELIABLE | FLAG_ORDERED),
        ..Multicast::PROPERTIES
    };

    /// A member that has sent nothing and heard nobody; so many bytes may wait to be acknowledged.
    pub fn new(config: Config, backlog: usize) -> Sequencer {
        let mut multicast = Multicast::new(Config { collects: true, ..config });
        multicast.keep_backlog(backlog);
        Sequencer {
            multicast,
            current: None,
            last: None,
            incoming: Incoming::default(),
            filling: <_>::default(),
            rebuild: None,
            ready: VecDeque::new(),
            drops: Drops::default(),
            told: Drops::default(),
            status: Saying::default(),
            restated: 0,
            summary: Saying::default(),
            stamping: Saying::default(),
            ack: Saying::default(),
            stable: Saying::default(),
            tail: (Monotonic(0), 0),
            corrected: Monotonic(0),
            vouched: Monotonic(0),
            report: Report::default(),
            flush: None,
            prepared: None,
            flushed: None,
            early: BTreeMap::new(),
            ahead: VecDeque::new(),
            order_status: OrderStatus::default(),
            order_news: None,
            delivered: 0,
            slow: Slow::default(),
            unheard: Unheard::default(),
            states: States::default(),
            leaving: Leaving::default(),
            lacked: 0,
            lost: false,
            renew_at: None,
            grew: Monotonic(0),
            renewals: 0,
            now: Monotonic(0),
        }
    }

    /// Sends parities over its reliable records when much of them is lost, and rebuilds what it lost itself from those of
    /// others (`fec=auto`).
    pub fn use_parities(&mut self) {
        self.multicast.lock().make_parities();
        self.rebuild = Some(Rebuild::default());
    }

    /// As [`Multicast::transmitted_by_shell`].
    pub fn transmitted_by_shell(&mut self) {
        self.multicast.transmitted_by_shell();
    }

    /// The sending half, to be shared with publishers' threads.
    pub fn sender(&self) -> Arc<Mutex<Sender>> {
        self.multicast.sender()
    }

    /// Takes in a reliable record.
    fn take(
        &mut self,
        now: Monotonic,
        source: Source,
        flags: u8,
        frame: &[u8],
        protect: Option<&dyn Protect>,
    ) -> Result<(), Dropped> {
        let Source::Inside { epoch, slot, incarnation, counter, domain } = source else {
            return Err(Dropped::Malformed);
        };
        let number = Header::reliable_number(flags, counter).ok_or(Dropped::Malformed)?;
        let signed = flags & FLAG_SIGNED != 0;
        let sealed = Stream { domain, signed };
        let stream = match flags & FLAG_ORDERED {
            // That name is taken.
            0 if sealed == Stream::ORDERED => return Err(Dropped::Malformed),
            0 => sealed,
            _ => Stream::ORDERED,
        };
        let of = Of { slot, stream };
        let Sequencer { multicast, current, incoming, .. } = self;
        let current = current.as_ref();
        let me = current.filter(|it| it.epoch == epoch).map_or_else(|| protect.map(|it| it.slot()), |it| Some(it.me));
        let me = me.ok_or(Dropped::NoKey)?;
        // Before its proof costs anything, and before it is a sign of life: anybody who heard it can send it again.
        if !incoming.is_new(epoch, of, number) {
            return Err(Dropped::Replay);
        }
        // Others hold the key of our slot, too.
        let is_now = current.is_none_or(|it| it.epoch == epoch);
        if slot == me && is_now && multicast.lock().backlog().is_none_or(|it| number > it.last(stream)) {
            return Err(Dropped::Auth);
        }
        // Of another epoch it is not known who reads what: what comes after something waits for it.
        let reads = |domain| current.is_none_or(|it| it.epoch != epoch || it.reads(domain));
        let ours = slot == me && is_now;
        let acknowledged = if ours { multicast.lock().backlog().map_or(0, |it| it.acknowledged(stream)) } else { 0 };
        let (receiver, inbox) = multicast.receiving();
        let frames = receiver.prove(now, (epoch, slot), (sealed, number, stream == Stream::STAMPS), frame, protect)?;
        let record = Record { source, epoch, incarnation, of, number, signed, frames };
        if slot == me && !incoming.begin_at(now, &record, acknowledged) {
            return Err(Dropped::Replay);
        }
        let words: Vec<Control> = match stream {
            Stream::STAMPS => Frames::of(frames).map_while(Result::ok).filter_map(signed_word).collect(),
            _ => Vec::new(),
        };
        incoming.take(now, me, &record, reads, inbox)?;
        receiver.heard(now, &incarnation);
        let pause = current.filter(|it| it.epoch == epoch && slot != me).map(Current::pause);
        match stream {
            // How much of the order is here is said apart, and nobody but the sequencer waits to forget its words.
            Stream::ORDERED => {}
            Stream::STAMPS => self.status.plan_at(now + STAMPS_STATUS),
            _ => {
                if let Some(pause) = pause {
                    self.status.plan(now, pause);
                    self.restated = 0;
                }
            }
        }
        words.into_iter().filter(|_| slot != me).try_for_each(|it| self.take_signed(now, epoch, slot, it))
    }

    /// Takes in what a member says of the end of a view.
    fn take_signed(&mut self, now: Monotonic, epoch: EpochId, slot: Slot, word: Control) -> Result<(), Dropped> {
        self.catch_up(now, epoch, &word)?;
        if self.current.as_ref().is_none_or(|it| it.epoch != epoch) {
            return Err(Dropped::Stale);
        }
        match word {
            Control::Flush { view, heard, report } => self.take_report(now, slot, (epoch, view), (heard, &report)),
            Control::Fill { view, stamps } => self.take_fill(now, slot, view, &stamps),
            Control::Slow(who) => {
                self.take_slow(slot, who);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The view of this epoch, if its order may matter.
    fn view(&mut self, epoch: EpochId) -> Option<&mut Current> {
        let last = self.last.as_mut().map(|(it, _)| it);
        self.current.as_mut().into_iter().chain(last).find(|it| it.epoch == epoch)
    }

    /// Takes in an ordered record, which came as `sealed`.
    fn take_ordered(
        &mut self,
        now: Monotonic,
        source: Source,
        flags: u8,
        (frame, sealed): (&[u8], &[u8]),
        protect: Option<&dyn Protect>,
    ) -> Result<(), Dropped> {
        let header = Header::parse(sealed)?;
        let number = Header::reliable_number(flags, header.counter).ok_or(Dropped::Malformed)?;
        // Outside of its view it has no position: its sender is told (B4).
        let view = self.view(header.epoch).ok_or(Dropped::Stale)?;
        if let Some(order) = &view.order {
            order.judge(header.slot, number, sealed)?;
        }
        self.take(now, source, flags, frame, protect)?;
        if let Some(order) = self.view(header.epoch).and_then(|it| it.order.as_mut()) {
            let may_leave = flags & FLAG_SIGNED != 0 && header.domain == Domain::GROUP;
            let frames = if may_leave { without_proof(frame) } else { None };
            let leaves = frames.is_some_and(|it| Frames::of(it).any(is_leave));
            order.keep(header.slot, number, (flags & FLAG_SAFE != 0, leaves), sealed);
        }
        if flags & FLAG_SIGNED == 0 && header.domain == Domain::GROUP {
            let named = self.take_named(now, header.epoch, (header.slot, number), frame);
            self.go_on(now, header.epoch, header.slot);
            return named;
        }
        self.go_on(now, header.epoch, header.slot);
        Ok(())
    }

    /// A sender says in a record what those before it are that not all can open (B8).
    fn take_named(
        &mut self,
        now: Monotonic,
        epoch: EpochId,
        (slot, by): (Slot, u64),
        frames: &[u8],
    ) -> Result<(), Dropped> {
        for frame in Frames::of(frames).map_while(Result::ok) {
            let Frame::Named { first, hashes } = frame else { continue };
            let is_behind = first.checked_add(hashes.len() as u64).is_some_and(|end| end <= by);
            if !is_behind || by - first > limits::NAMED_BEHIND_MAX {
                return Err(Dropped::Malformed);
            }
            for (number, hash) in (first..).zip(hashes) {
                // What was opened is what it is.
                let of = Of { slot, stream: Stream::ORDERED };
                let is_new = self.incoming.is_new(epoch, of, number);
                let order = self.view(epoch).and_then(|it| it.order.as_mut());
                if let Some(sealed) = order.filter(|_| is_new).and_then(|it| it.name(slot, number, hash)) {
                    self.hold_unread(now, epoch, (slot, number), &sealed)?;
                }
            }
        }
        Ok(())
    }

    /// Takes in an ordered record that we cannot open: we hold it all the same, so that it is not lost with its sender (B8).
    fn take_unread(&mut self, now: Monotonic, sealed: &[u8]) -> Result<(), Dropped> {
        let header = Header::parse(sealed)?;
        let number = Header::reliable_number(header.flags, header.counter).ok_or(Dropped::Malformed)?;
        let view = self.view(header.epoch).ok_or(Dropped::NoKey)?;
        let reads = view.reads(header.domain);
        let order = view.order.as_mut().filter(|_| header.flags & FLAG_ORDERED != 0).ok_or(Dropped::NoKey)?;
        if reads {
            return self.take_void(now, sealed).map_err(|_| Dropped::Auth);
        }
        if order.is_named(header.slot, number, sealed)? {
            self.hold_unread(now, header.epoch, (header.slot, number), sealed)?;
        }
        self.go_on(now, header.epoch, header.slot);
        Ok(())
    }

    /// Takes in what nobody who reads its topic can open or prove, if it is what was stamped. Its hash says that it is the same at
    /// all: it holds nobody up, and nobody gets anything of it.
    fn take_void(&mut self, now: Monotonic, sealed: &[u8]) -> Result<(), Dropped> {
        let header = Header::parse(sealed)?;
        let number = Header::reliable_number(header.flags, header.counter).ok_or(Dropped::Malformed)?;
        let order = self.view(header.epoch).and_then(|it| it.order.as_ref()).ok_or(Dropped::NoKey)?;
        if !order.is_stamped(header.slot, number, sealed) {
            return Err(Dropped::Auth);
        }
        self.hold_unread(now, header.epoch, (header.slot, number), sealed)?;
        self.go_on(now, header.epoch, header.slot);
        Ok(())
    }

    /// Holds a record of the order that we cannot open.
    fn hold_unread(
        &mut self,
        now: Monotonic,
        epoch: EpochId,
        (slot, number): (Slot, u64),
        sealed: &[u8],
    ) -> Result<(), Dropped> {
        self.pass_over(now, epoch, slot, number)?;
        let is_safe = Header::parse(sealed)?.flags & FLAG_SAFE != 0;
        if let Some(order) = self.view(epoch).and_then(|it| it.order.as_mut()) {
            order.keep(slot, number, (is_safe, false), sealed);
        }
        Ok(())
    }

    /// A record of the order is here that we cannot open.
    fn pass_over(&mut self, now: Monotonic, epoch: EpochId, slot: Slot, number: u64) -> Result<(), Dropped> {
        let view = self.view(epoch).ok_or(Dropped::Stale)?;
        let (me, incarnation) = (view.me, view.incarnations.get(&slot).copied().ok_or(Dropped::Malformed)?);
        let Sequencer { multicast, incoming, .. } = self;
        let of = Of { slot, stream: Stream::ORDERED };
        let counter = Header::counting(FLAG_RELIABLE | FLAG_ORDERED) | number;
        // In which domain it is matters to nobody: there is nothing in it for us.
        let domain = Domain::GROUP;
        let source = Source::Inside { epoch, slot, incarnation, counter, domain };
        let record = Record { source, epoch, incarnation, of, number, signed: false, frames: &[] };
        let (_, inbox) = multicast.receiving();
        incoming.take(now, me, &record, |_| false, inbox)
    }

    /// A record came: the sequencer stamps its sender's next ones, and a member that held too little tells that it holds more.
    fn go_on(&mut self, now: Monotonic, epoch: EpochId, slot: Slot) {
        let of = Of { slot, stream: Stream::ORDERED };
        let next = self.incoming.next(epoch, of).unwrap_or(1);
        if let Some(order) = self.view(epoch).and_then(|it| it.order.as_mut()) {
            order.stamp(slot, next - 1);
        }
        self.deliver(now);
        self.flush_on(now);
    }

    /// The sequencer said more of the order.
    fn take_stamps(&mut self, now: Monotonic) {
        while let Some((epoch, by, first, stamps)) = self.incoming.next_stamps() {
            if let Err(why) = self.take_some_stamps(now, epoch, by, first, &stamps) {
                self.drops.count(why);
            }
        }
    }

    fn take_some_stamps(
        &mut self,
        now: Monotonic,
        epoch: EpochId,
        by: Slot,
        first: u64,
        stamps: &[Stamp],
    ) -> Result<(), Dropped> {
        let current = self.current.as_mut().filter(|it| it.epoch == epoch).ok_or(Dropped::Stale)?;
        // Our own come back to us.
        if by == current.me {
            return Ok(());
        }
        if current.sequencer() != Some(by) {
            return Err(Dropped::Policy);
        }
        let me = current.me;
        let stamped = current.order.as_mut().ok_or(Dropped::Policy)?.take_stamps(first, stamps)?;
        self.take_stamped(now, epoch, me, stamped)?;
        self.deliver(now);
        Ok(())
    }

    /// Hands on what has its turn, and says so if more is held.
    fn deliver(&mut self, now: Monotonic) {
        self.deliver_as(now, false);
    }

    /// The same; `anyway`, what comes after messages of the other channel waits for those no more.
    fn deliver_as(&mut self, now: Monotonic, anyway: bool) {
        // At the end of a view nothing of it waits any more.
        if anyway && self.multicast.receiving().1.pause(false) {
            self.deliver_as(now, anyway);
            self.multicast.receiving().1.pause(true);
            return;
        }
        let Sequencer { multicast, current, last, incoming, delivered, leaving, .. } = self;
        let Some(view) = ordering(current, last) else { return };
        let (pause, count) = (view.ack_pause(), view.members.len());
        let Current { epoch, access, me, order: Some(order), told_held, .. } = view else { return };
        let mut told = Vec::new();
        let mut goes = false;
        while let Some((sequence, Stamp { slot, number, .. })) = order.next() {
            let of = Of { slot, stream: Stream::ORDERED };
            let reads = |domain| !anyway && access.reads(*me, domain);
            let position = sequence << MESSAGES_PER_RECORD_BITS;
            let (_, inbox) = multicast.receiving();
            if !incoming.pass(now, *epoch, (of, number, position), reads, inbox) {
                break;
            }
            let ordered = incoming.take_ordered();
            if slot == *me {
                let mut sender = multicast.lock();
                if let Some(backlog) = sender.backlog() {
                    ordered.into_iter().for_each(|(number, position)| backlog.ordered(number, position));
                    told.extend(backlog.told());
                }
            }
            order.delivered();
            *delivered = sequence;
            goes |= slot == *me && leaving.said == Some(number);
        }
        let ours = order.forget().get(me).copied();
        // A member that never says what it has of the stamps does not make their sender keep them all.
        if let Some(number) = order.take_proved() {
            multicast.lock().acknowledge(now, Stream::STAMPS, number);
        }
        if order.take_waiting() {
            for slot in order.members().to_vec() {
                let next = incoming.next(*epoch, Of { slot, stream: Stream::ORDERED }).unwrap_or(1);
                order.stamp(slot, next - 1);
            }
        }
        if let Some(number) = ours {
            told.extend(multicast.lock().acknowledge(now, Stream::ORDERED, number));
        }
        if order.held() > *told_held {
            self.ack.plan_soon(now, pause, count);
        }
        if !told.is_empty() {
            self.tail.1 = 0;
        }
        self.tell(told);
        if goes {
            self.go();
        }
    }

    /// Takes in what a member says about reliable records.
    fn take_control(&mut self, now: Monotonic, source: Source, bytes: &[u8]) -> Result<(), Dropped> {
        let Source::Inside { epoch, slot, incarnation, domain, .. } = source else { return Err(Dropped::Auth) };
        let Some(current) = self.current.as_mut().filter(|it| it.epoch == epoch) else {
            return Err(Dropped::Stale);
        };
        let (me, pause) = (current.me, current.pause());
        if slot == me {
            return Ok(());
        }
        let control = Control::read(bytes)?;
        // What is said of records is for all.
        if domain != Domain::GROUP && !matches!(control, Control::State(_)) {
            return Err(Dropped::Malformed);
        }
        match control {
            Control::State(word) => self.take_word(now, (slot, incarnation, domain), word)?,
            Control::Tail(streams) => {
                for (stream, number) in streams {
                    if current.reads(stream.domain) {
                        self.incoming.know(now, me, epoch, incarnation, Of { slot, stream }, number);
                    }
                }
                // The sender of a TAIL misses an answer.
                self.status.all = true;
                self.status.plan(now, pause);
            }
            Control::Status(streams) => {
                if current.coordinator() != Some(me) {
                    return Ok(());
                }
                // Nobody has what we did not send, what it sent itself, or what it does not read.
                let is_sent = |of: Of, number| {
                    of.slot != me || self.multicast.lock().backlog().is_some_and(|it| number <= it.last(of.stream))
                };
                let may_have = |(of, number): &(Of, u64)| {
                    let is_member = current.members.binary_search(&of.slot).is_ok();
                    let reads = of.slot != slot && current.access.reads(slot, of.stream.domain);
                    is_member && reads && is_sent(*of, *number)
                };
                if !streams.iter().all(may_have) {
                    return Err(Dropped::Malformed);
                }
                let acknowledged = &mut current.acknowledged;
                let is_news = streams.into_iter().fold(false, |news, (of, it)| acknowledged.note(slot, of, it) || news);
                if is_news {
                    self.summary.plan(now, pause);
                }
            }
            Control::Summary(streams) => {
                if current.coordinator() != Some(slot) {
                    return Err(Dropped::Policy);
                }
                streams.into_iter().for_each(|(of, number)| self.all_have(now, of, number));
            }
            Control::Nak { of, ranges } if of.slot == me => self.repair(now, (slot, of.stream), &ranges),
            Control::Nak { of, ranges } => {
                self.incoming.heard_nak(now, epoch, of, &ranges);
                if let Some(order) = current.order.as_mut().filter(|_| of.stream == Stream::ORDERED) {
                    let (repairs, is_past) = (order.repair(now, of.slot, &ranges), order.is_past(of.slot, &ranges));
                    if is_past {
                        self.say_past(now);
                    }
                    if !repairs.is_empty() {
                        self.multicast.lock().again(repairs);
                        self.multicast.transmit_soon();
                    }
                }
            }
            Control::Ack(held) => {
                if current.sequencer() == Some(me)
                    && let Some(order) = &mut current.order
                    && let Some(waits) = order.note(slot, held)?
                {
                    // What no message waits for is said with what one does.
                    let count = current.members.len();
                    match waits {
                        true => self.stable.plan_soon(now, current.ack_pause(), count),
                        false => self.stable.plan_at(now + ALL_PAUSE),
                    }
                }
            }
            Control::Stable { majority, all, slowest } => {
                let order = current.order.as_mut().filter(|it| it.sequencer() == Some(slot));
                order.ok_or(Dropped::Policy)?.reaches(majority, all);
                self.note_slowest(slowest);
                self.deliver(now);
            }
            Control::Parity(head, shard) => self.take_parity(now, slot, head, shard)?,
            // They are proved.
            Control::Flush { .. } | Control::Fill { .. } | Control::Leave | Control::Slow(_) => {
                return Err(Dropped::Auth);
            }
            Control::Gone { stream, first, proof } => self.take_gone(now, Of { slot, stream }, first, &proof)?,
            Control::Past { first, proof } => self.take_past(slot, first, &proof)?,
        }
        Ok(())
    }

    /// All readers have a stream up to this record.
    fn all_have(&mut self, now: Monotonic, of: Of, number: u64) {
        let Some(current) = &self.current else { return };
        if of.slot != current.me {
            return self.incoming.settle(current.epoch, of, number);
        }
        self.fill_own(now, of, number);
        let told = self.multicast.lock().acknowledge(now, of.stream, number);
        if !told.is_empty() {
            self.tail.1 = 0;
        }
        self.tell(told);
    }

    /// Tells what became of messages of ours, in the order of publishing.
    fn tell(&mut self, told: Vec<Settled>) {
        self.ready.extend(told.into_iter().map(|it| Output::Outcome(Token(it.number), it.outcome)));
    }

    /// Records of our own that we hear, too, and that got lost on their way to us, before they are forgotten.
    fn fill_own(&mut self, now: Monotonic, of: Of, number: u64) {
        let Some((epoch, me)) = self.current.as_ref().map(|it| (it.epoch, it.me)) else { return };
        // Those of a view before are sealed anew, or lost.
        if of.slot != me {
            return;
        }
        // Of ordered ones we need all; of others, too, if somebody here reads them.
        let all = of.stream == Stream::ORDERED || of.stream.is_fifo() && self.incoming.hears_own();
        let first = self.incoming.next(epoch, of).or(all.then_some(1));
        let Some(first) = first else { return };
        if of.stream.is_fifo() && number.saturating_sub(first) > OWN_MISSED {
            return self.incoming.forget(epoch, of);
        }
        for number in first..=number {
            let (mut sealed, mut datagram) = std::mem::take(&mut self.filling);
            sealed.clear();
            datagram.clear();
            let protect = self.multicast.lock().backlog().and_then(|backlog| {
                let (bytes, protect) = backlog.record(of.stream, number)?;
                sealed.extend_from_slice(bytes);
                Some(Arc::clone(protect))
            });
            datagram.extend_from_slice(&sealed);
            let opened = protect.as_ref().map(|it| (it.open(&mut datagram), it));
            let is_ordered = of.stream == Stream::ORDERED;
            // What came already is not missing.
            let is_taken = match opened {
                Some((Ok((source, flags, frame)), protect)) => {
                    let _ = match is_ordered {
                        true => self.take_ordered(now, source, flags, (frame, &sealed), Some(&**protect)),
                        false => self.take(now, source, flags, frame, Some(&**protect)),
                    };
                    true
                }
                // We write some of it that we do not read.
                Some((Err(Dropped::NoKey), _)) if is_ordered => {
                    let _ = self.take_unread(now, &sealed);
                    true
                }
                Some((Err(_), _)) | None => false,
            };
            self.filling = (sealed, datagram);
            if !is_taken {
                return;
            }
        }
    }

    /// Has ordered messages taken from now on, if a view orders.
    fn admit_ordered(&self) {
        let not = if self.order_status.is_settled { SendError::NotPrimary } else { SendError::NotReady };
        let by = self.current.as_ref().and_then(|it| {
            let slot = it.sequencer()?;
            Some(Orders::By { slot, access: it.access.clone(), ours: slot == it.me })
        });
        self.order_by(by.unwrap_or(Orders::Not(not)));
    }

    fn order_by(&self, orders: Orders) {
        if let Some(backlog) = self.multicast.lock().backlog() {
            backlog.order(orders);
        }
    }

    /// Sends again what a member lacks.
    fn repair(&mut self, now: Monotonic, (by, stream): (Slot, Stream), ranges: &[(u64, u64)]) {
        let Some(protect) = self.current.as_ref().map(|it| it.protect.clone()) else { return };
        let mut sender = self.multicast.lock();
        if let Some(Err(first)) = sender.backlog().map(|it| it.repair(now, (by, stream), ranges)) {
            drop(sender);
            return self.say_gone(now, stream, first);
        }
        // Somebody may have said that there are records which there are not.
        let last = sender.backlog().map_or(0, |it| it.last(stream));
        if ranges.iter().any(|(_, to)| *to > last) && now >= self.corrected + TAIL_AGAIN {
            self.corrected = now;
            let _ = sender.control(now, &protect, &Control::Tail(vec![(stream, last)]).bytes());
        }
        drop(sender);
        self.multicast.transmit_soon();
        self.send_repairs(now);
    }

    /// Sends again as much of what is asked for as may be.
    fn send_repairs(&mut self, now: Monotonic) {
        let mut sender = self.multicast.lock();
        let repairs = sender.backlog().map(|it| it.repairs(now)).unwrap_or_default();
        if !repairs.is_empty() {
            sender.again(repairs);
            drop(sender);
            self.multicast.transmit_soon();
        }
    }

    /// Acknowledges what nobody else reads.
    fn settle_unread(&mut self, now: Monotonic) {
        let Some(current) = &self.current else { return };
        let is_read = |stream: Stream| {
            let others = current.members.iter().filter(|it| **it != current.me);
            stream == Stream::ORDERED || others.into_iter().any(|it| current.access.reads(*it, stream.domain))
        };
        let tails = self.multicast.lock().backlog().map(|it| it.tails()).unwrap_or_default();
        let unread: Vec<_> = tails.into_iter().filter(|(stream, _)| !is_read(*stream)).collect();
        let slot = current.me;
        unread.into_iter().for_each(|(stream, number)| self.all_have(now, Of { slot, stream }, number));
    }

    fn install(&mut self, now: Monotonic, view: &View, protect: Option<&Arc<dyn Protect>>, access: &Arc<dyn Access>) {
        let Some(protect) = protect.filter(|_| self.current.as_ref().is_none_or(|it| it.epoch != view.epoch)) else {
            return;
        };
        let me = view.me;
        self.ahead.retain(|it| it.view.epoch.counter > view.epoch.counter);
        let (order, again, is_over) = self.end_flush(now, view);
        let route = |topic: &str, signed: bool| {
            let domain = access.domain(topic).filter(|_| access.may_publish(me, topic))?;
            // Readers know the numbers of signed messages and of others apart.
            (signed || !access.must_sign(topic)).then_some(Stream { domain, signed })
        };
        // What is sealed anew is so for its sequencer.
        if let Some(slot) = order.as_ref().and_then(Order::sequencer) {
            self.order_by(Orders::By { slot, access: access.clone(), ours: slot == me });
        }
        let told = self.multicast.lock().change_epoch(now, protect, again, route);
        if let Some(before) = self.current.take().filter(|it| it.order.is_some() && !is_over) {
            self.last = Some((before, now + limits::EPOCH_OVERLAP));
        }
        self.tell(told);
        let current = Current {
            epoch: view.epoch,
            me,
            members: view.members.slots().map(|(slot, _)| slot).collect(),
            protect: protect.clone(),
            access: access.clone(),
            incarnations: view.members.slots().map(|(slot, member)| (slot, member.id.incarnation)).collect(),
            acknowledged: Acknowledged::default(),
            told_held: self.report.held,
            unheard: 0,
            order,
        };
        let is_member = |who: &Incarnation| view.members.iter().any(|member| member.id.incarnation == *who);
        let (_, inbox) = self.multicast.receiving();
        self.incoming.install(
            now,
            (me, current.members.len()),
            view.epoch,
            is_member,
            |domain| current.reads(domain),
            inbox,
        );
        let pause = current.pause();
        self.rebuild.iter_mut().for_each(Rebuild::clear);
        (self.status, self.summary, self.tail) = (Saying::default(), Saying::default(), (now, 0));
        (self.stamping, self.ack, self.stable) = <_>::default();
        self.current = Some(current);
        self.watch_slow(now);
        self.states_install(now);
        self.admit_ordered();
        // What came before the view did is acknowledged now.
        self.status.plan(now, pause);
        self.multicast.transmit_soon();
        // What comes after this view ends this one, whose members report, and not the one before.
        if self.flush.as_ref().is_some_and(|it| it.is_of_former(view.epoch, now))
            && let Some(next) = self.prepared.take()
        {
            self.prepare(now, &next);
        }
    }

    /// Hands on what waited for readers.
    fn hand_on(&mut self, now: Monotonic) {
        let Some(current) = &self.current else { return };
        let (_, inbox) = self.multicast.receiving();
        self.incoming.handle_timeout(now, current.epoch, |domain| current.reads(domain), inbox);
        self.status.plan(now, current.pause());
        self.deliver(now);
    }

    /// Tells who orders, if that changed.
    fn tell_order(&mut self) {
        if let Some(news) = self.order_news.take() {
            self.tell_in_turn(Output::Order(news));
        }
    }

    /// What comes after the messages that came before it.
    fn tell_in_turn(&mut self, output: Output) {
        let (_, inbox) = self.multicast.receiving();
        inbox.tell(output);
    }

    /// We are out: whether others have the last messages, nobody tells us any more.
    fn exclude(&mut self) {
        (self.current, self.last) = (None, None);
        (self.flush, self.flushed, self.prepared) = (None, None, None);
        self.early.clear();
        self.ahead.clear();
        self.rebuild.iter_mut().for_each(Rebuild::clear);
        (self.renew_at, self.report) = (None, Report::default());
        (self.order_status, self.delivered, self.leaving) = (OrderStatus::default(), 0, Leaving::default());
        (self.status, self.summary) = (Saying::default(), Saying::default());
        (self.stamping, self.ack, self.stable) = <_>::default();
        self.incoming.clear();
        self.states_end();
        self.admit_ordered();
        let told = self.multicast.lock().give_up();
        self.tell(told);
    }

    fn take_controls(&mut self, now: Monotonic) {
        while let Some((source, bytes)) = self.multicast.next_control() {
            if let Err(why) = self.take_control(now, source, &bytes) {
                self.drops.count(why);
            }
        }
    }
}

/// Whether its sender says that it leaves.
fn is_leave(frame: Result<Frame<'_>, Malformed>) -> bool {
    frame.is_ok_and(|it| signed_word(it) == Some(Control::Leave))
}

/// What is said in signed frames.
fn signed_word(frame: Frame<'_>) -> Option<Control> {
    match frame {
        Frame::Control { bytes } => Control::read(bytes).ok(),
        _ => None,
    }
}

/// The view that orders, or did last.
fn ordering<'a>(
    current: &'a mut Option<Current>,
    last: &'a mut Option<(Current, Monotonic)>,
) -> Option<&'a mut Current> {
    match current.as_mut().filter(|it| it.order.is_some()) {
        Some(current) => Some(current),
        None => last.as_mut().map(|(it, _)| it),
    }
}

impl Delivery for Sequencer {
    fn properties(&self) -> Properties {
        // Where parities come, what was lost is rebuilt from how all else was sealed.
        let rebuilds = self.rebuild.as_ref().is_some_and(Rebuild::is_used);
        let keeps_sealed = if rebuilds { Some(FLAG_RELIABLE) } else { Sequencer::PROPERTIES.keeps_sealed };
        Properties { keeps_sealed, ..Sequencer::PROPERTIES }
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        match (message.guarantee, message.what) {
            (
                Guarantee::Fifo | Guarantee::Ordered | Guarantee::Safe,
                What::Data { topic, domain, signed, sent_micros, body },
            ) => {
                let data = Data { topic, domain, signed, guarantee: message.guarantee, sent_micros, body };
                let number = self.multicast.lock().data(now.monotonic, protect, data)?;
                self.multicast.transmit_soon();
                Ok(Token(number))
            }
            (Guarantee::BestEffort, _) => self.multicast.send(now, protect, message),
            (guarantee, _) => Err(SendError::NotGiven(guarantee)),
        }
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        self.now = now.monotonic;
        match input {
            Input::Frame { source, flags, frame, sealed, protect, .. } if flags & FLAG_RELIABLE != 0 => {
                let taken = match sealed.filter(|_| flags & FLAG_ORDERED != 0) {
                    Some(sealed) => self.take_ordered(now.monotonic, source, flags, (frame, sealed), protect),
                    None if flags & FLAG_ORDERED != 0 => Err(Dropped::Foreign),
                    None => self.take(now.monotonic, source, flags, frame, protect),
                };
                // What others hold all the same is held here, too.
                let taken = match (taken, sealed) {
                    (Err(Dropped::Auth), Some(sealed)) if flags & FLAG_ORDERED != 0 => {
                        self.take_void(now.monotonic, sealed).map_err(|_| Dropped::Auth)
                    }
                    (taken, _) => taken,
                };
                match (taken, sealed) {
                    (Ok(()), Some(sealed)) => self.keep_shard(now.monotonic, sealed),
                    (Ok(()), None) => {}
                    (Err(why), _) => self.drops.count(why),
                }
                self.take_stamps(now.monotonic);
            }
            Input::Unread(sealed) => match self.take_unread(now.monotonic, sealed) {
                Ok(()) => self.keep_shard(now.monotonic, sealed),
                Err(why) => self.drops.count(why),
            },
            Input::Frame { .. } => {
                self.multicast.handle(now, input);
                self.take_controls(now.monotonic);
                self.take_stamps(now.monotonic);
            }
            Input::Prepare { flush: Flushing::Later, .. } => self.multicast.handle(now, input),
            Input::Prepare { view, .. } => {
                self.multicast.lock().seal();
                self.multicast.transmit_soon();
                self.prepare(now.monotonic, view);
            }
            Input::Keyed { view, protect, access } => {
                if self.ahead.len() >= limits::EPOCHS_HELD {
                    self.ahead.pop_front();
                }
                let (view, protect, access) = (view.clone(), protect.clone(), access.clone());
                self.ahead.push_back(Ahead { view, protect, access });
            }
            Input::Install { view, protect, access } => {
                self.multicast.handle(now, input);
                self.install(now.monotonic, view, protect, access);
                self.tell_in_turn(Output::Entered(view.epoch));
                self.tell_order();
                // Our last word was for the view before, or is for this one.
                match self.leaving.said {
                    Some(_) => self.go(),
                    None => self.say_leave(now.monotonic),
                }
                self.take_stamps(now.monotonic);
            }
            Input::Leave => self.leave(now.monotonic),
            Input::ForcePrimary => {
                self.report.forces = true;
                self.ready.push_back(Output::Renew);
            }
            Input::State(input) => self.states_for(now.monotonic, input),
            Input::Excluded => self.exclude(),
            // What is reliable waits here, unacknowledged, and its senders with it.
            Input::Pause => _ = self.multicast.receiving().1.pause(true),
            Input::Resume => {
                self.multicast.receiving().1.pause(false);
                self.hand_on(now.monotonic);
            }
            Input::Fetch(..)
            | Input::Provide { .. }
            | Input::AppendKey(_)
            | Input::Packages(_)
            | Input::Again(_)
            | Input::Opened(..)
            | Input::Connected(_)
            | Input::Disconnected(_)
            | Input::Message { .. }
            | Input::Subscribe(_)
            | Input::Unsubscribe(_)
            | Input::Checkpointed(_)
            | Input::Withdraw(_)
            | Input::Retire(_) => self.multicast.handle(now, input),
        }
    }

    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u8,
        frame: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        self.multicast.open_at(index, source, flags, frame, protect)
    }

    fn timeout(&self) -> Option<Monotonic> {
        let current = self.current.as_ref();
        let naks = current.and_then(|it| self.incoming.timeout(it.epoch));
        let held = current.and_then(|it| it.order.as_ref()?.again_at());
        let tail = self.tail_due().filter(|_| current.is_some());
        let repairs = self.multicast.lock().backlog().and_then(|it| it.repairs_due()).filter(|_| current.is_some());
        let forgets = self.last.as_ref().map(|(_, until)| *until);
        let ours = [
            self.status.due,
            self.summary.due,
            self.stamping
                .due
                .filter(|_| current.and_then(|it| it.order.as_ref()).is_some_and(|it| it.unsaid_len() > 0)),
            self.ack.due,
            self.stable.due,
            naks,
            held,
            tail,
            repairs,
            self.flush_due(),
            self.renew_at,
            forgets,
            self.leaving.until,
            self.slow.due().filter(|_| current.is_some()),
            self.states_due(),
        ];
        [self.multicast.timeout()].into_iter().chain(ours).flatten().min()
    }

    fn handle_timeout(&mut self, now: Now, protect: Option<&Arc<dyn Protect>>) {
        self.now = now.monotonic;
        self.multicast.handle_timeout(now, protect);
        if let Some(current) = &self.current {
            let (_, inbox) = self.multicast.receiving();
            self.incoming.handle_timeout(now.monotonic, current.epoch, |domain| current.reads(domain), inbox);
        }
        // Its key is not held any longer (B5).
        self.last.take_if(|(_, until)| *until <= now.monotonic);
        if self.leaving.until.is_some_and(|until| until <= now.monotonic) {
            self.go();
        }
        self.take_stamps(now.monotonic);
        self.deliver(now.monotonic);
        self.settle_unread(now.monotonic);
        self.send_repairs(now.monotonic);
        self.say_due(now.monotonic);
        // Whoever waits for a disk polls nothing meanwhile.
        self.say_stamps();
        self.judge_slow(now.monotonic);
        self.say_states(now.monotonic);
        self.say_flush(now.monotonic);
        self.renew(now.monotonic);
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        if let Some(output) = self.ready.pop_front() {
            return Some(output);
        }
        self.say_stamps();
        let mut drops = self.drops.clone();
        drops.add(self.incoming.drops());
        match drops.since(&mut self.told) {
            Some(dropped) => Some(Output::Dropped(dropped)),
            None => self.multicast.poll(batch),
        }
    }
}

/// A record of 64 KiB has fewer messages than 2 to the power of this: in the order, a message has the position sequence
/// number × that + its number in its record.
const MESSAGES_PER_RECORD_BITS: u32 = 13;
/// If we lack so many of our own records in a row, nobody here wants them any more.
const OWN_MISSED: u64 = 4096;
