//! The wiring of the join, with a scheme and a way that do what the test says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use sealcast_delivery::{Properties, SendError};
use sealcast_keys::{HandleError, Token};
use sealcast_wire::frame::HEADER_LEN;
use sealcast_wire::{
    Access, Agreement, Change, Domain, Flush, Guarantee, Incarnation, Lane, Member, MemberId, Protect, Roster, Slot,
    limits,
};

use super::*;

/// Where all that is transmitted goes.
const TO: Address = Address::Node(3);

pub(super) const NOW: Now = Now { monotonic: Monotonic(1), utc: None };

/// What both sides were told, in order.
pub(super) type Story = Arc<Mutex<Vec<String>>>;

pub(super) struct Script {
    story: Story,
    pub(super) outputs: VecDeque<keys::Output>,
    needs: &'static [keys::Need],
    has_capacity: bool,
    /// It seals whole messages.
    seals: bool,
}

impl Keys for Script {
    fn properties(&self) -> keys::Properties {
        keys::Properties { messages: self.needs, seals_messages: self.seals, ..keys::Properties::ANY }
    }
    fn handle(&mut self, _: Now, input: keys::Input<'_>) -> std::result::Result<(), HandleError> {
        let it = match input {
            keys::Input::Message { bytes, .. } => format!("keys hear {bytes:?}"),
            keys::Input::Command(_) => return Err(CommandError::Unsupported.into()),
            keys::Input::Outcome(token, outcome) => format!("outcome of {}: {outcome:?}", token.0),
            keys::Input::Suspected(slot) => format!("suspect {}", slot.0),
            keys::Input::Slow(_) => "slow".to_owned(),
            keys::Input::Delivered(message) => format!("open {}", message.index),
            keys::Input::Flushed(epoch, cut) => format!("flushed {} {}", epoch.counter, cut[0]),
            keys::Input::Up => "up".to_owned(),
            keys::Input::Passed(position) => format!("passed {position}"),
            keys::Input::InForce(_)
            | keys::Input::Fetched(..)
            | keys::Input::PackagesKept(_)
            | keys::Input::Ends
            | keys::Input::Describe => {
                return Ok(());
            }
        };
        told(&self.story, it);
        Ok(())
    }
    fn seal(&mut self, message: &keys::Seal<'_>) -> std::result::Result<keys::Sealed, keys::SealError> {
        let body = message.bodies.concat();
        match body.is_empty() {
            true => Err(keys::SealError::TooLarge),
            false => Ok(keys::Sealed { header: message.id.to_vec(), body, epoch: EpochId::default() }),
        }
    }
    fn has_capacity(&self, _: usize) -> bool {
        self.has_capacity
    }
    fn timeout(&self) -> Option<Monotonic> {
        None
    }
    fn handle_timeout(&mut self, _: Now) {}
    fn poll(&mut self) -> Option<keys::Output> {
        self.outputs.pop_front()
    }
}

pub(super) struct Wire {
    story: Story,
    pub(super) outputs: VecDeque<delivery::Output>,
    pending: Vec<Vec<u8>>,
    next: u64,
    pub(super) places: bool,
    connects: bool,
    /// Whom the last message was for.
    to: To,
}

impl Delivery for Wire {
    fn properties(&self) -> delivery::Properties {
        let cut = if self.places { delivery::Cut::Position } else { delivery::Cut::Clock };
        let given = Some(delivery::Channel { agreement: Agreement::Forkable, acknowledged: true, cut });
        let all = delivery::Properties { best_effort: given, fifo: given, ordered: given, ..Properties::BEST_EFFORT };
        Properties { orders_keys: self.places, connects: self.connects, keeps_sealed: Some(0), ..all }
    }
    fn send(
        &mut self,
        _: Now,
        _: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> std::result::Result<delivery::Token, SendError> {
        if let What::Keys { bytes, .. } | What::Data { body: bytes, .. } = message.what {
            told(&self.story, format!("send {bytes:?}"));
            self.pending.push(bytes.to_vec());
        }
        self.to = message.to;
        self.next += 1;
        let token = delivery::Token(self.next);
        let What::Message { envelope, body, again } = message.what else { return Ok(token) };
        let body = match body {
            delivery::Body::Clear(bytes) => format!("{bytes:?} in clear"),
            delivery::Body::Sealed(seal) => {
                let sealed = seal.seal(Some(u128::from(self.next).to_be_bytes()))?;
                format!("{:?} sealed under {}", sealed.body, sealed.header[15])
            }
        };
        told(&self.story, format!("{} holds {body}", envelope.topic()));
        Ok(again.unwrap_or(token))
    }
    fn handle(&mut self, _: Now, input: Input<'_>) {
        match input {
            Input::Frame { source, from, frame, sealed, .. } => {
                if let Some(sealed) = sealed {
                    let sealed = &sealed[HEADER_LEN..];
                    told(&self.story, format!("from {from:?}: {:?} sealed as {:?}", &frame[..2], &sealed[..2]));
                }
                self.outputs.push_back(delivery::Output::Keys { source, position: None, bytes: frame.to_vec() });
            }
            Input::Unread(sealed) => told(&self.story, format!("unread {:?}", &sealed[HEADER_LEN..][..2])),
            Input::Pause => told(&self.story, "hold true".to_owned()),
            Input::Resume => told(&self.story, "hold false".to_owned()),
            Input::Prepare { view, .. } => {
                told(&self.story, "prepare".to_owned());
                self.outputs.push_back(delivery::Output::Flushed(view.epoch, [7; 32]));
            }
            Input::Install { view, .. } => told(&self.story, format!("install {}", view.epoch.counter)),
            Input::Fetch(id, _) => self.outputs.push_back(delivery::Output::Fetched(id, keys::Fetched::Missing)),
            Input::Opened(index, bodies) => told(&self.story, format!("opened {index}: {bodies:?}")),
            Input::Keyed { .. }
            | Input::Provide { .. }
            | Input::AppendKey(_)
            | Input::Packages(_)
            | Input::Again(_)
            | Input::Checkpointed(_)
            | Input::Withdraw(_)
            | Input::Retire(_)
            | Input::Subscribe(_)
            | Input::Unsubscribe(_)
            | Input::Leave
            | Input::ForcePrimary
            | Input::State(_)
            | Input::Excluded => {}
            Input::Connected(_) | Input::Disconnected(_) | Input::Message { .. } => {}
        }
    }
    fn open_at(
        &mut self,
        _: u64,
        _: Source,
        _: u8,
        _: &mut [u8],
        _: &dyn Protect,
    ) -> std::result::Result<delivery::Output, Dropped> {
        Err(Dropped::Foreign)
    }
    fn timeout(&self) -> Option<Monotonic> {
        None
    }
    fn handle_timeout(&mut self, _: Now, _: Option<&Arc<dyn Protect>>) {}
    fn poll(&mut self, batch: &mut Batch) -> Option<delivery::Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let all = std::mem::take(&mut self.pending);
        all.iter().for_each(|d| batch.push(d));
        if self.to == To::Group {
            batch.to = Some(TO);
        }
        (!all.is_empty()).then_some(delivery::Output::Transmit(self.to))
    }
}

struct Anything;

impl Access for Anything {
    fn reads(&self, _: Slot, _: Domain) -> bool {
        true
    }
    fn domain(&self, _: &str) -> Option<Domain> {
        Some(Domain::GROUP)
    }
    fn may_publish(&self, _: Slot, _: &str) -> bool {
        true
    }
    fn may_subscribe(&self, _: Slot, _: &str) -> bool {
        true
    }
    fn must_sign(&self, _: &str) -> bool {
        false
    }
}

fn told(story: &Story, what: String) {
    lock(story).push(what);
}

pub(super) fn view(counter: u32, members: u8, change: Change) -> View {
    let member = |n| Member {
        id: MemberId { cert: CertHash([n; 32]), incarnation: Incarnation([n; 16]) },
        name: format!("m{n}").into(),
    };
    let members = (0..members).map(member).collect();
    View::new(None, EpochId { counter, hash: 0 }, members, Slot(0), change)
}

pub(super) fn installed(counter: u32, members: u8, change: Change) -> keys::Output {
    keys::Output::Epoch { view: view(counter, members, change), protect: None, access: Arc::new(Anything) }
}

fn send(token: u64, lane: Lane, after: Option<u64>) -> keys::Output {
    let bytes = vec![u8::try_from(token).expect("small")];
    let needs = Guarantee::BestEffort;
    keys::Output::Send { token: Token(token), lane, needs, to: To::Group, after: after.map(Token), names: None, bytes }
}

pub(super) fn group(needs: &'static [keys::Need], outputs: Vec<keys::Output>) -> (Group<Script, Wire>, Story) {
    group_over(needs, outputs, false)
}

/// The same over a way that gives every record its place.
pub(super) fn group_over(
    needs: &'static [keys::Need],
    outputs: Vec<keys::Output>,
    places: bool,
) -> (Group<Script, Wire>, Story) {
    group_that(needs, outputs, places, false)
}

fn group_that(
    needs: &'static [keys::Need],
    outputs: Vec<keys::Output>,
    places: bool,
    connects: bool,
) -> (Group<Script, Wire>, Story) {
    let story = Story::default();
    let keys = Script { story: story.clone(), outputs: outputs.into(), needs, has_capacity: true, seals: false };
    let wire = Wire {
        story: story.clone(),
        outputs: VecDeque::new(),
        pending: Vec::new(),
        next: 0,
        places,
        connects,
        to: To::Group,
    };
    (Group::new(keys, wire, OriginMode::Auto).expect("a pair that fits"), story)
}

pub(super) const BEST_EFFORT: &[keys::Need] = &[];
pub(super) const ORDERED: &[keys::Need] = &[keys::Need(Guarantee::Ordered, Agreement::Forkable)];

/// Drains the group; what it handed out, in words.
pub(super) fn drain(group: &mut Group<Script, Wire>) -> Vec<String> {
    let mut out = Vec::new();
    loop {
        let mut batch = Batch::default();
        match group.poll(NOW, &mut batch) {
            None => return out,
            Some(Output::Transmit(To::Slot(slot))) => out.push(format!("to slot {} at {:?}", slot.0, batch.to)),
            Some(Output::Transmit(_)) => {
                assert_eq!(batch.to, Some(TO), "what waited for the disk still knows where it goes");
                out.push(format!("transmit {}", batch.lengths.len()));
            }
            Some(Output::Store { of, id, .. }) => out.push(format!("store {of:?} {id}")),
            Some(Output::View(ViewEvent::Changed { view, .. })) => out.push(format!("view {}", view.epoch.counter)),
            Some(other) => out.push(format!("{other:?}")),
        }
    }
}

#[test]
fn rule_g6_nothing_leaves_before_what_it_rests_on_is_durable() {
    let outputs = vec![
        send(1, Lane::Open, None),
        keys::Output::Store { id: 4, record: vec![] },
        keys::Output::Store { id: 5, record: vec![] },
        send(2, Lane::Open, None),
        installed(1, 1, Change::Formed),
    ];
    let (mut group, story) = group(BEST_EFFORT, outputs);
    assert_eq!(drain(&mut group), ["store Keys 4", "store Keys 5"], "one sync serves both");
    assert_eq!(lock(&story)[..], ["send [1]", "outcome of 1: Accepted"]);
    assert!(drain(&mut group).is_empty(), "it waits, however often it is asked");
    group.stored();
    assert_eq!(drain(&mut group), ["view 1", "transmit 2"]);
}

#[test]
fn rule_g6_a_member_that_follows_epoch_after_epoch_waits_for_the_disk_once() {
    let store = |id| keys::Output::Store { id, record: vec![] };
    let prepare = |counter| keys::Output::Prepare { view: view(counter, 2, Change::Rekeyed), flush: Flush::Now };
    let outputs =
        vec![store(4), prepare(2), store(5), prepare(3), store(6), installed(3, 2, Change::Rekeyed), prepare(4)];
    let (mut group, story) = group(BEST_EFFORT, outputs);
    assert_eq!(drain(&mut group), ["store Keys 4", "store Keys 5", "store Keys 6"]);
    assert_eq!(lock(&story)[..], ["prepare", "prepare"]);
    assert!(drain(&mut group).is_empty() && group.view().is_none(), "nothing is sealed before they are durable");
    group.stored();
    assert_eq!(drain(&mut group), ["view 3"]);
    assert_eq!(lock(&story)[2..], ["install 3", "prepare", "flushed 2 7", "flushed 3 7", "flushed 4 7"]);
}

#[test]
fn rule_a14_the_way_suspects_and_flushes_and_only_the_keys_change_the_view() {
    let (mut group, story) = group(BEST_EFFORT, vec![installed(1, 2, Change::Formed)]);
    drain(&mut group);
    group.delivery_mut().outputs.push_back(delivery::Output::Suspect(Slot(1)));
    assert!(drain(&mut group).is_empty());
    assert_eq!(group.view().map(|v| v.members.len()), Some(2), "a suspicion alone changes nothing");
    group.keys.outputs.push_back(keys::Output::Prepare { view: view(2, 1, Change::Suspected), flush: Flush::Now });
    drain(&mut group);
    assert!(lock(&group.gate()).is_paused());
    group.keys.outputs.push_back(installed(2, 1, Change::Suspected));
    assert_eq!(drain(&mut group), ["view 2"]);
    let told = lock(&story).clone();
    assert_eq!(told, ["install 1", "suspect 1", "prepare", "flushed 2 7", "install 2"]);
}

#[test]
fn rule_a5_an_abandoned_change_lets_publishers_go_on_in_order() {
    let (mut group, story) = group(BEST_EFFORT, vec![installed(1, 2, Change::Formed)]);
    drain(&mut group);
    group.keys.outputs.push_back(keys::Output::Prepare { view: view(2, 1, Change::Left), flush: Flush::Now });
    drain(&mut group);
    let publish = |group: &mut Group<Script, Wire>, body: &[u8]| {
        let message = Publication { topic: "t", body, guarantee: Guarantee::BestEffort, sent_micros: None };
        group.publish(NOW, message).expect("taken")
    };
    assert!([1, 2].map(|body| publish(&mut group, &[body])).into_iter().all(Group::<Script, Wire>::is_named), "queued");
    assert!(!lock(&story).iter().any(|s| s.starts_with("send")));
    group.keys.outputs.push_back(keys::Output::Abandoned);
    drain(&mut group);
    assert!(!Group::<Script, Wire>::is_named(publish(&mut group, &[3])));
    let sent: Vec<_> = lock(&story).iter().filter(|s| s.starts_with("send")).cloned().collect();
    assert_eq!(sent, ["send [1]", "send [2]", "send [3]"]);
}

#[test]
fn rule_a5_an_eviction_is_never_abandoned() {
    let (mut group, story) = group(BEST_EFFORT, vec![installed(1, 2, Change::Formed)]);
    drain(&mut group);
    group.keys.outputs.push_back(keys::Output::Prepare { view: view(2, 1, Change::Evicted), flush: Flush::Now });
    group.keys.outputs.push_back(keys::Output::Abandoned);
    drain(&mut group);
    let message = Publication { topic: "t", body: &[1], guarantee: Guarantee::BestEffort, sent_micros: None };
    let queued = group.publish(NOW, message).expect("queued: the evicted holds the old key");
    assert!(!lock(&story).contains(&"send [1]".to_owned()) && Group::<Script, Wire>::is_named(queued));
    group.keys.outputs.push_back(installed(3, 1, Change::Evicted));
    drain(&mut group);
    assert!(lock(&story).contains(&"send [1]".to_owned()));
    assert!(!Group::<Script, Wire>::is_named(group.publish(NOW, message).expect("taken")));
}

#[test]
fn what_comes_after_a_message_waits_for_its_outcome() {
    let ordered = |token, after| match send(token, Lane::Open, after) {
        keys::Output::Send { token, lane, to, after, names, bytes, .. } => {
            keys::Output::Send { token, lane, needs: Guarantee::Ordered, to, after, names, bytes }
        }
        other => other,
    };
    let (mut group, story) = group(ORDERED, vec![ordered(1, None), ordered(2, Some(1)), ordered(3, Some(2))]);
    drain(&mut group);
    assert_eq!(lock(&story)[..], ["send [1]"]);
    group
        .delivery_mut()
        .outputs
        .push_back(delivery::Output::Outcome(delivery::Token(1), delivery::Outcome::Ordered(7)));
    drain(&mut group);
    assert_eq!(lock(&story)[1..], ["outcome of 1: Ordered(7)", "send [2]"]);
    let lost = delivery::Outcome::InDoubt;
    group.delivery_mut().outputs.push_back(delivery::Output::Outcome(delivery::Token(2), lost));
    drain(&mut group);
    assert_eq!(lock(&story)[3..], ["outcome of 2: InDoubt", "outcome of 3: Failed"]);
}

#[test]
fn a_pair_that_does_not_fit_is_refused_with_a_hint() {
    let keys = Script {
        story: Story::default(),
        outputs: VecDeque::new(),
        needs: &[keys::Need(Guarantee::Ordered, Agreement::Byzantine)],
        has_capacity: true,
        seals: false,
    };
    let wire = Wire {
        story: Story::default(),
        outputs: VecDeque::new(),
        pending: Vec::new(),
        next: 0,
        places: false,
        connects: false,
        to: To::Group,
    };
    let error = Group::new(keys, wire, OriginMode::Auto).err().expect("refused");
    assert_eq!(error.code(), crate::Code::BadPair);
    assert!(error.hint().is_some());
}

#[test]
fn rule_g1_foreign_and_malformed_datagrams_change_nothing_but_a_counter() {
    let (mut group, story) = group(BEST_EFFORT, vec![]);
    let from = Address::Node(9);
    for bytes in [&b""[..], b"LC02....", b"\x5C", b"\x5C\x03x", b"\x5C\x01short", b"GET / HTTP/1.1"] {
        group.handle_datagram(NOW, from, &mut bytes.to_vec());
    }
    group.handle_datagram(NOW, from, &mut vec![0x5C; limits::OPEN_BYTES_MAX + 100]);
    let mut long = vec![frame::MAGIC, frame::KIND_OPEN];
    long.resize(limits::OPEN_BYTES_MAX + 3, 0);
    group.handle_datagram(NOW, from, &mut long);
    assert!(drain(&mut group).is_empty() && lock(&story).is_empty());
    let drops = group.drops();
    assert_eq!(drops.of(Dropped::Malformed) + drops.of(Dropped::Foreign), 8, "{drops:?}");
}

#[test]
fn rule_g7_a_sealed_message_for_which_the_keys_have_no_room_is_kept_until_they_have() {
    let (mut group, story) = group(BEST_EFFORT, vec![installed(1, 1, Change::Formed)]);
    drain(&mut group);
    group.keys.has_capacity = false;
    group.delivery_mut().outputs.push_back(sealed(1));
    assert!(drain(&mut group).is_empty());
    group.delivery_mut().outputs.push_back(sealed(2));
    assert!(drain(&mut group).is_empty());
    assert!(lock(&story).iter().all(|it| !it.starts_with("open")) && lock(&story).contains(&"hold true".to_owned()));
    group.keys.has_capacity = true;
    group.open_kept(NOW);
    assert!(lock(&story).ends_with(&["open 1", "open 2", "hold false"].map(str::to_owned)), "{:?}", lock(&story));
    for index in [2, 1] {
        let bodies = Some(vec![b"it".to_vec()]);
        group.keys.outputs.push_back(keys::Output::Opened { index, origin: None, bodies });
    }
    assert_eq!(drain(&mut group).len(), 2);
    assert_eq!(group.drops().of(Dropped::Queue), 0);
}

#[test]
fn keys_begin_when_a_transport_that_connects_first_is_up() {
    let (mut group, story) = group_that(BEST_EFFORT, vec![installed(1, 1, Change::Formed)], false, true);
    assert_eq!(group.command(NOW, Command::Leave), Err(CommandError::NotReady));
    let source = Source::Outside(Address::Node(9));
    group.delivery_mut().outputs.push_back(delivery::Output::Keys { source, position: None, bytes: vec![1] });
    group.delivery_mut().outputs.push_back(sealed(1));
    assert!(drain(&mut group).is_empty() && group.view().is_none());
    assert!(lock(&story).iter().all(|it| it.starts_with("hold")), "the keys hear nothing: {:?}", lock(&story));

    group.delivery_mut().outputs.push_back(delivery::Output::Up);
    assert_eq!(drain(&mut group), ["view 1"]);
    let heard: Vec<String> = lock(&story).iter().filter(|it| !it.starts_with("hold")).take(2).cloned().collect();
    assert_eq!(heard, ["up", "open 1"], "what came sealed waited");
    assert_eq!(group.command(NOW, Command::Leave), Err(CommandError::Unsupported), "it is the keys' answer");
}

/// A message that was sealed as a whole, at this index.
fn sealed(index: u64) -> delivery::Output {
    let source = Source::Client { key: [1; 32], epoch: EpochId::default() };
    let (header, body) = (b"header".to_vec(), b"ciphertext".to_vec());
    let (topic, sent_micros, attachments) = ("t".into(), None, Vec::new());
    let (ordered, signed) = (true, true);
    let delivered =
        delivery::Delivered { index, ordered, source, signed, topic, sent_micros, header, body, attachments };
    delivery::Output::Deliver(delivered)
}

/// Topics of one message that is sealed as a whole.
fn envelope() -> sealcast_wire::Envelope {
    let mut envelope = sealcast_wire::Envelope::of_topic("market");
    envelope.headers.push(("orders".into(), Some("5".into())));
    envelope
}

#[test]
fn rule_e6_what_was_sealed_for_what_was_replaced_is_sealed_again_and_keeps_its_token() {
    let (mut group, story) = group(BEST_EFFORT, vec![installed(1, 1, Change::Formed)]);
    group.keys.seals = true;
    let envelope = envelope();
    let message = Together { envelope: &envelope, bodies: &[&[1], &[2]] };
    assert_eq!(group.publish_together(NOW, message), Err(PublishError::NotReady), "there is no key yet");
    drain(&mut group);
    lock(&story).clear();
    let token = group.publish_together(NOW, message).expect("it is taken");
    assert!(!group.is_settled());
    let superseded = delivery::Outcome::Superseded(EpochId { counter: 0, hash: 1 });
    group.delivery.outputs.push_back(delivery::Output::Outcome(token, superseded));
    assert!(drain(&mut group).is_empty(), "nothing has become of it");
    group.delivery.outputs.push_back(delivery::Output::Outcome(token, delivery::Outcome::Ordered(7)));
    assert_eq!(drain(&mut group), [format!("Outcome({token:?}, Ordered(7))")]);
    assert!(group.is_settled());
    assert_eq!(lock(&story)[..], ["market holds [1, 2] sealed under 1", "market holds [1, 2] sealed under 2"]);

    let nothing = Together { envelope: &envelope, bodies: &[] };
    assert_eq!(group.publish_together(NOW, nothing), Err(SendError::TooLong.into()));
    // Whoever replaces what is in force for ever keeps nobody sealing for ever.
    let token = group.publish_together(NOW, message).expect("it is taken");
    let mut tries = 0;
    while !group.is_settled() {
        group.delivery.outputs.push_back(delivery::Output::Outcome(token, superseded));
        tries += 1;
        let failed = drain(&mut group);
        assert!(failed.is_empty() || failed == [format!("Outcome({token:?}, Failed)")]);
    }
    assert_eq!(tries, ordered::TRIES_MAX + 1);
}

#[test]
fn what_is_published_together_travels_in_clear_where_nothing_is_sealed() {
    let (mut group, story) = group(BEST_EFFORT, vec![installed(1, 1, Change::Formed)]);
    drain(&mut group);
    lock(&story).clear();
    let envelope = envelope();
    group.publish_together(NOW, Together { envelope: &envelope, bodies: &[&[1]] }).expect("it is taken");
    assert_eq!(lock(&story)[..], ["market holds [1] in clear"]);
    let two = Together { envelope: &envelope, bodies: &[&[1], &[2]] };
    assert_eq!(group.publish_together(NOW, two), Err(SendError::PerDatagram.into()), "in clear nothing is together");
}

#[test]
fn what_the_transport_wants_opened_waits_for_room_and_comes_back_to_it() {
    let (mut group, story) = group(BEST_EFFORT, vec![installed(1, 1, Change::Formed)]);
    drain(&mut group);
    lock(&story).clear();
    group.keys.has_capacity = false;
    group.delivery.outputs.push_back(delivery::Output::Open { index: 3, header: vec![1], body: vec![2] });
    drain(&mut group);
    assert_eq!(lock(&story)[..], ["hold true"], "the transport is asked to wait");
    group.keys.has_capacity = true;
    group.keys.outputs.push_back(keys::Output::Opened { index: 2, origin: None, bodies: None });
    drain(&mut group);
    let bodies = Some(vec![vec![7]]);
    group.keys.outputs.push_back(keys::Output::Opened { index: 3, origin: None, bodies });
    assert!(drain(&mut group).is_empty(), "the application did not ask for it");
    let told = lock(&story).clone();
    assert_eq!(told, ["hold true", "opened 2: None", "open 3", "hold false", "opened 3: Some([[7]])"]);
}

/// Opens everything in place, as from the slot in the header.
struct Opens(EpochId);

impl Protect for Opens {
    fn epoch(&self) -> EpochId {
        self.0
    }
    fn slot(&self) -> Slot {
        Slot(0)
    }
    fn seal(&self, _: Domain, _: u8, _: &mut [u8]) -> std::result::Result<u64, sealcast_wire::Exhausted> {
        Ok(0)
    }
    fn open<'a>(&self, datagram: &'a mut [u8]) -> std::result::Result<(Source, u8, &'a mut [u8]), Dropped> {
        let Header { domain, epoch, slot, flags, counter } = Header::parse(datagram)?;
        let frame = &mut datagram[HEADER_LEN..];
        frame.fill(0);
        Ok((Source::Inside { epoch, slot, incarnation: Incarnation::default(), counter, domain }, flags, frame))
    }
    fn vouch(&self, _: &[u8], _: &mut Vec<u8>) {}
    fn vouched(&self, _: Slot, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

#[test]
fn a_member_is_sent_to_where_it_was_heard_and_a_transport_gets_what_was_sealed_as_it_came() {
    let epoch = EpochId { counter: 1, hash: 0 };
    let protect: Option<Arc<dyn Protect>> = Some(Arc::new(Opens(epoch)));
    let installed = keys::Output::Epoch { view: view(1, 3, Change::Formed), protect, access: Arc::new(Anything) };
    let (mut group, story) = group(BEST_EFFORT, vec![installed]);
    drain(&mut group);
    let mut datagram = vec![5; 60];
    Header { domain: Domain::GROUP, epoch, slot: Slot(1), flags: 0, counter: 0 }.write(&mut datagram);
    group.handle_datagram(NOW, Address::Node(9), &mut datagram);
    assert!(lock(&story).contains(&"from Node(9): [0, 0] sealed as [5, 5]".to_owned()), "{:?}", lock(&story));
    let to = |slot| match send(1, Lane::Open, None) {
        keys::Output::Send { token, lane, needs, after, names, bytes, .. } => {
            keys::Output::Send { token, lane, needs, to: To::Slot(Slot(slot)), after, names, bytes }
        }
        other => other,
    };
    for (slot, expected) in [(1, "to slot 1 at Some(Node(9))"), (2, "to slot 2 at None")] {
        group.keys.outputs.push_back(to(slot));
        assert_eq!(drain(&mut group).last().map(String::as_str), Some(expected));
    }
}

/// A member lacks records of the order before an eviction, which their sender sealed before what it vouches for: others hand
/// them on, and nothing else of that epoch counts.
#[test]
fn rule_a5_records_of_an_order_are_taken_after_an_eviction_though_no_vouch_names_them() {
    let opened = |counter, members, change| {
        let view = view(counter, members, change);
        let protect: Option<Arc<dyn Protect>> = Some(Arc::new(Opens(view.epoch)));
        keys::Output::Epoch { view, protect, access: Arc::new(Anything) }
    };
    let (mut group, story) = group(BEST_EFFORT, vec![opened(1, 3, Change::Formed), opened(2, 2, Change::Evicted)]);
    drain(&mut group);
    let (old, new) = (EpochId { counter: 1, hash: 0 }, view(2, 2, Change::Evicted));
    let words = vouch::write(old, &[], &Opens(new.epoch));
    let word = vouch::read(&words[0]).expect("well formed").proved(Slot(1), &Opens(new.epoch)).expect("proved");
    assert_eq!(group.ring.vouch(word, &new, Slot(1)), Some(Slot(1)), "it names nothing");
    group.ends_views = true;
    let reliable = sealcast_wire::frame::FLAG_RELIABLE;
    let ordered = reliable | sealcast_wire::frame::FLAG_ORDERED;
    for (flags, body, is_taken) in [(0, 5, false), (reliable, 6, false), (ordered, 7, true)] {
        let mut datagram = vec![body; 60];
        Header { domain: Domain(1), epoch: old, slot: Slot(1), flags, counter: 0 }.write(&mut datagram);
        group.handle_datagram(NOW, Address::Node(9), &mut datagram);
        let taken = format!("from Node(9): [0, 0] sealed as [{body}, {body}]");
        assert_eq!(lock(&story).contains(&taken), is_taken, "flags {flags}: {:?}", lock(&story));
    }
}

/// Seals nothing and opens nothing.
struct Silent {
    epoch: EpochId,
    me: Slot,
}

impl Protect for Silent {
    fn epoch(&self) -> EpochId {
        self.epoch
    }
    fn slot(&self) -> Slot {
        self.me
    }
    fn seal(&self, _: Domain, _: u8, _: &mut [u8]) -> std::result::Result<u64, sealcast_wire::Exhausted> {
        Ok(0)
    }
    fn open<'a>(&self, _: &'a mut [u8]) -> std::result::Result<(Source, u8, &'a mut [u8]), Dropped> {
        Err(Dropped::NoKey)
    }
    fn vouch(&self, _: &[u8], _: &mut Vec<u8>) {}
    fn vouched(&self, _: Slot, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

/// How many VOUCH and HERE a member of so many says when it installs a second epoch; it may have sealed something under
/// the first one.
fn says(members: &Roster, me: Slot, change: Change, sealed: Option<Domain>, places: bool) -> (usize, usize) {
    let epoch = |counter: u32, members: &Roster| {
        let id = EpochId { counter, hash: 7 };
        let view = View::new(Some(members), id, members.clone(), me, change);
        let protect: Option<Arc<dyn Protect>> = Some(Arc::new(Silent { epoch: id, me }));
        keys::Output::Epoch { view, protect, access: Arc::new(Anything) }
    };
    let (mut group, story) = group_over(BEST_EFFORT, vec![epoch(1, members)], places);
    drain(&mut group);
    if let Some(domain) = sealed {
        let mut datagram = vec![0; 60];
        let id = EpochId { counter: 1, hash: 7 };
        let header = Header { domain, epoch: id, slot: me, flags: 0, counter: 0 };
        header.write(&mut datagram);
        group.delivery_mut().pending.push(datagram);
        drain(&mut group);
    }
    lock(&story).clear();
    group.keys.outputs.push_back(epoch(2, members));
    drain(&mut group);
    (0..10).for_each(|ms| {
        group.handle_timeout(Now { monotonic: Monotonic(1) + Duration::from_millis(100 * ms), utc: None });
    });
    let said = |first: &str| lock(&story).iter().filter(|it| it.starts_with(first)).count();
    (said("send [1, "), said("send [2]"))
}

fn roster(members: u32) -> Roster {
    let member = |n: u32| {
        let mut cert = [0; 32];
        cert[..4].copy_from_slice(&n.to_be_bytes());
        Member { id: MemberId { cert: CertHash(cert), incarnation: Incarnation([0; 16]) }, name: "somebody".into() }
    };
    (0..members).map(member).collect()
}

#[test]
fn rule_a5_only_who_sealed_lately_vouches_and_the_others_are_heard_all_the_same() {
    let few = roster(3);
    let said = |change, sealed| says(&few, Slot(1), change, sealed, false);
    let data = Some(Domain(1));
    assert_eq!(said(Change::Suspected, data), (4, 0), "a word is said four times");
    assert_eq!(said(Change::Suspected, None), (0, 1));
    assert_eq!(said(Change::Suspected, Some(Domain::GROUP)), (0, 1), "nobody vouches for heartbeats");
    assert_eq!(said(Change::Rekeyed, data), (0, 1));
    assert_eq!(said(Change::Joined, data), (0, 0));
}

#[test]
fn rule_g7_of_however_many_members_a_few_say_that_they_are_here() {
    for (members, least) in [(64, 64), (65, 3), (1000, 3)] {
        let many = roster(members);
        for (change, places) in [(Change::Evicted, false), (Change::Rekeyed, false), (Change::Joined, true)] {
            let all = (0..members).map(|me| says(&many, Slot(me), change, None, places));
            let (vouches, here) = all.fold((0, 0), |(v, h), (vouch, here)| (v + vouch, h + here));
            assert_eq!(vouches, 0);
            let most = if members > 64 { 4 } else { 64 };
            assert!((least..=most).contains(&here), "{here} of {members} at {change:?}");
        }
    }
}
