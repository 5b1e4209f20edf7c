//! Both halves against each other, over a network that the test plays.

mod beats;

use std::collections::BTreeMap;

use proptest::prelude::*;
use sealcast_wire::frame::{FLAG_SIGNED, HEADER_LEN, KIND_OPEN, SEGMENT_MIN, TAG_LEN};
use sealcast_wire::{
    Address, CertHash, Change, Domain, Dropped, EpochId, Exhausted, Guarantee, Incarnation, Member, MemberId, Slot,
    Utc, View,
};
use serde::Deserialize;

use super::frame::{Frame, Frames, Head, Stream, write_after, write_control, write_heartbeat};
use super::origin::{Origins, Unsigned};
use super::*;
use crate::Packet;
use crate::testing::{Ring, everything, group, incarnation};

const TOPIC: &str = "pose/robot7";
const COMPARTMENT: Domain = Domain(1);

/// A frame that nobody sealed.
fn outside(node: u32, frame: &mut [u8]) -> Input<'_> {
    Input::open(Address::Node(node), frame)
}

/// A frame that a member sealed.
fn inside<'a>(source: Source, flags: u8, frame: &'a mut [u8], protect: &'a dyn Protect) -> Input<'a> {
    Input::Frame { source, from: Address::Node(9), flags, frame, sealed: None, protect: Some(protect) }
}

/// What one receiver got.
#[derive(Default)]
struct Got {
    messages: Vec<Received<'static>>,
    keys: Vec<Vec<u8>>,
    unwanted: Option<&'static str>,
}

impl Sink for Got {
    fn wants(&mut self, topic: &str) -> bool {
        self.unwanted != Some(topic)
    }

    fn message(&mut self, m: Received<'_>) {
        let Received { number, ordered, source, signed, topic, sent_micros, body } = m;
        let topic = topic.to_owned().leak();
        let body = body.into_owned().into();
        self.messages.push(Received { number, ordered, source, signed, topic, sent_micros, body });
    }

    fn keys(&mut self, _: Source, bytes: Cow<'_, [u8]>) {
        self.keys.push(bytes.into_owned());
    }
}

impl Got {
    fn bodies(&self) -> Vec<&[u8]> {
        self.messages.iter().map(|m| &*m.body).collect()
    }
}

fn receiver() -> Receiver {
    Receiver::new(limits::DETECT, Bounds::default())
}

fn data(body: &[u8]) -> Data<'_> {
    Data { topic: TOPIC, domain: COMPARTMENT, signed: false, guarantee: Guarantee::BestEffort, sent_micros: None, body }
}

fn signed(body: &[u8]) -> Data<'_> {
    Data { signed: true, ..data(body) }
}

fn body(n: usize) -> Vec<u8> {
    (0..n).map(|k| (13 * k + k / 256) as u8).collect()
}

fn flush(sender: &mut Sender) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    while let Some(batch) = sender.poll() {
        datagrams.extend(batch.iter().map(<[u8]>::to_vec));
    }
    assert_eq!(sender.pending(), 0);
    datagrams
}

/// Opens and takes in datagrams; those that do not open count as the seal's business.
fn receive(receiver: &mut Receiver, protect: &Arc<dyn Protect>, datagrams: &[Vec<u8>], got: &mut Got) {
    for datagram in datagrams {
        let mut datagram = datagram.clone();
        if let Ok((source, flags, record)) = protect.open(&mut datagram) {
            receiver.handle(Monotonic(0), source, flags, record, Some(&**protect), got);
        }
    }
}

fn view(epoch: EpochId, slots: u32, me: u32) -> View {
    let member = |slot| Member {
        id: MemberId { cert: CertHash([u8::try_from(slot).expect("small"); 32]), incarnation: incarnation(Slot(slot)) },
        name: "robot".into(),
    };
    View::new(None, epoch, (0..slots).map(member).collect(), Slot(me), Change::Formed)
}

fn at(micros: u64) -> Now {
    Now { monotonic: Monotonic(micros), utc: Some(Utc(0)) }
}

#[test]
fn small_messages_share_a_datagram_and_arrive_as_they_were_sent() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    let bodies: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 100]).collect();
    for (n, body) in bodies.iter().enumerate() {
        let timed = Data { sent_micros: Some(n as u64), ..data(body) };
        assert_eq!(sender.data(Monotonic(0), Some(&members[0]), timed), Ok(n as u64 + 1));
    }
    let datagrams = flush(&mut sender);
    assert_eq!(datagrams.len(), 2);
    assert!(datagrams.iter().all(|d| d.len() <= ETHERNET_SEGMENT));
    let mut got = Got::default();
    receive(&mut receiver(), &members[1], &datagrams, &mut got);
    assert_eq!(got.bodies(), bodies);
    for (n, m) in got.messages.iter().enumerate() {
        assert_eq!((m.number, m.topic, m.sent_micros, m.signed), (n as u64 + 1, TOPIC, Some(n as u64), false));
        assert!(matches!(m.source, Source::Inside { slot: Slot(0), domain: COMPARTMENT, .. }));
        assert!(matches!(m.body, Cow::Owned(_)));
    }
}

#[test]
fn a_message_of_one_datagram_is_borrowed_from_it() {
    struct Borrowed(usize);
    impl Sink for Borrowed {
        fn message(&mut self, m: Received<'_>) {
            self.0 += usize::from(matches!(m.body, Cow::Borrowed(_)));
        }
        fn keys(&mut self, _: Source, _: Cow<'_, [u8]>) {}
    }
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    sender.data(Monotonic(0), Some(&members[0]), data(b"abc")).expect("sealed");
    let mut datagram = flush(&mut sender).remove(0);
    let (source, flags, record) = members[1].open(&mut datagram).expect("ours");
    let mut borrowed = Borrowed(0);
    receiver().handle(Monotonic(0), source, flags, record, Some(&*members[1]), &mut borrowed);
    assert_eq!(borrowed.0, 1);
}

#[test]
fn equal_messages_and_pieces_leave_in_long_trains() {
    let members = group(1, 2);
    for (n, len) in [(200, 100), (200, 1000), (3, 100 * 1024)] {
        for origin in [false, true] {
            let mut sender = Sender::new(ETHERNET_SEGMENT, false);
            for _ in 0..n {
                let data = Data { signed: origin, ..data(&[5; 100 * 1024][..len]) };
                sender.data(Monotonic(0), Some(&members[0]), data).expect("sealed");
            }
            let (mut trains, mut datagrams) = (0, 0);
            while let Some(batch) = sender.poll() {
                trains += batch.trains().count();
                datagrams += batch.lengths.len();
            }
            assert!(trains * 8 < datagrams, "{trains} trains for {datagrams} datagrams of {n} × {len} B");
        }
    }
}

#[test]
fn records_of_mixed_messages_are_padded_into_one_train() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    let bodies: Vec<Vec<u8>> = (0..60).map(|n| vec![1; 40 + n * 37 % 90]).collect();
    for body in &bodies {
        sender.data(Monotonic(0), Some(&members[0]), data(body)).expect("sealed");
    }
    let batch = sender.poll().expect("sealed");
    assert!(batch.trains().count() <= 3, "{:?}", batch.lengths);
    let mut got = Got::default();
    receive(&mut receiver(), &members[1], &batch.iter().map(<[u8]>::to_vec).collect::<Vec<_>>(), &mut got);
    assert_eq!(got.bodies(), bodies);
}

#[test]
fn steady_sending_reuses_its_batches() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    let mut addresses = std::collections::BTreeSet::new();
    for _ in 0..2_000 {
        for _ in 0..40 {
            sender.data(Monotonic(0), Some(&members[0]), data(&[1; 1000])).expect("sealed");
        }
        while let Some(batch) = sender.poll() {
            addresses.insert(batch.bytes.as_ptr() as usize);
        }
    }
    assert!(addresses.len() < 64, "{} buffers for 2,000 flushes", addresses.len());
}

#[test]
fn a_stream_in_one_domain_does_not_hold_up_a_lone_message_in_another() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    let stream = body(300_000);
    sender.data(Monotonic(0), Some(&members[0]), data(&stream)).expect("sealed");
    let lone = Data { domain: Domain(2), ..data(b"lone") };
    sender.data(Monotonic(0), Some(&members[0]), lone).expect("sealed");
    sender.keys(Monotonic(0), None, b"open").expect("taken");
    let (mut domains, mut open) = (Vec::new(), 0);
    for _ in 0..6 {
        // Whoever transmits is never done before there is more.
        let batch = sender.poll().expect("there is more");
        domains.extend(batch.iter().filter_map(Packet::of).map(|(_, packet)| packet.domain));
        open += batch.iter().filter(|d| d[1] == KIND_OPEN).count();
        sender.data(Monotonic(0), Some(&members[0]), data(&stream)).expect("sealed");
    }
    assert!(domains.contains(&Domain(2)), "the lone message is not sent");
    assert_eq!(open, 1, "the open message is not sent");
}

#[test]
fn a_record_is_sealed_with_the_key_that_its_messages_were_sent_under() {
    let (old, new) = (group(1, 2), group(2, 2));
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    sender.data(Monotonic(0), Some(&old[0]), data(b"old")).expect("sealed");
    sender.data(Monotonic(0), Some(&new[0]), data(b"new")).expect("sealed");
    let datagrams = flush(&mut sender);
    for (members, expect) in [(&old, b"old"), (&new, b"new")] {
        let mut got = Got::default();
        receive(&mut receiver(), &members[1], &datagrams, &mut got);
        assert_eq!(got.bodies(), [expect]);
    }
    assert_eq!(Arc::strong_count(&old[0]), 1, "the sender holds no key that it does not need");
}

#[test]
fn rule_a5_a_retired_epoch_seals_nothing_more_and_its_last_packets_are_named() {
    let (old, new) = (group(1, 2), group(2, 2));
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    for n in 0..3 {
        sender.data(Monotonic(0), Some(&old[0]), data(&[n; 1000])).expect("sealed");
    }
    sender.retire(old[0].epoch());
    assert_eq!(sender.data(Monotonic(0), Some(&old[0]), data(b"late")), Err(SendError::Retired));
    sender.data(Monotonic(0), Some(&new[0]), data(b"new")).expect("sealed");
    let datagrams = flush(&mut sender);
    let sent = sender.sent(old[0].epoch());
    let named: Vec<_> =
        datagrams.iter().filter_map(|d| Packet::of(d)).map(|(epoch, p)| (epoch, sent.contains(&p))).collect();
    let (was, is) = (old[0].epoch(), new[0].epoch());
    assert_eq!(named, [(was, true), (was, true), (was, true), (is, false)]);
    let mut forged = datagrams[0].clone();
    forged[HEADER_LEN + 3] ^= 1;
    assert!(!sent.contains(&Packet::of(&forged).expect("of a packet's form").1), "header and tag alone prove nothing");
}

#[test]
fn rule_a5_who_vouches_for_an_epoch_has_ended_it() {
    let (old, new) = (group(1, 2), group(2, 2));
    let mut node = Multicast::new(Config::default());
    let what = What::Data { topic: TOPIC, domain: COMPARTMENT, signed: false, sent_micros: None, body: b"x" };
    let out = Outgoing { what, guarantee: Guarantee::BestEffort, to: To::Group };
    node.send(at(0), Some(&old[0]), out).expect("sealed");
    node.handle(at(0), Input::Retire(old[0].epoch()));
    let named = std::iter::from_fn(|| node.poll(&mut Batch::default())).find_map(|it| match it {
        Output::Sealed(epoch, packets) => Some((epoch, packets.len())),
        _ => None,
    });
    assert_eq!(named, Some((old[0].epoch(), 1)), "what waited is sealed and named");
    assert_eq!(node.send(at(0), Some(&old[0]), out), Err(SendError::Retired));
    node.send(at(0), Some(&new[0]), out).expect("sealed");
}

#[test]
fn nothing_goes_out_in_clear_by_mistake() {
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    assert_eq!(sender.data(Monotonic(0), None, data(b"secret")), Err(Exhausted.into()));
    assert_eq!(sender.poll(), None);
    let members = group(1, 2);
    sender.data(Monotonic(0), Some(&members[0]), data(b"a secret body")).expect("sealed");
    let datagrams = flush(&mut sender);
    for word in [TOPIC.as_bytes(), b"secret"] {
        assert!(!datagrams.iter().any(|d| d.windows(word.len()).any(|w| w == word)));
    }
}

#[test]
fn an_unsealable_message_is_refused_before_it_is_taken() {
    let mut ring = Ring::member(1, 0, 1);
    ring.packets_max = 2;
    let protect: Arc<dyn Protect> = Arc::new(ring);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    let no_key = Data { domain: Domain(9), ..data(b"x") };
    assert_eq!(sender.data(Monotonic(0), Some(&protect), no_key), Err(Exhausted.into()));
    for _ in 0..2 {
        sender.data(Monotonic(0), Some(&protect), data(b"x")).expect("sealed");
        assert_eq!(flush(&mut sender).len(), 1);
    }
    assert_eq!(sender.data(Monotonic(0), Some(&protect), data(b"x")), Err(Exhausted.into()));
    assert_eq!(sender.lost(), 0);
}

#[test]
fn w10_an_exhausted_counter_stops_a_message_in_the_middle_and_repeats_no_nonce() {
    let mut ring = Ring::member(1, 0, 2);
    ring.packets_max = 5;
    let protect: Arc<dyn Protect> = Arc::new(ring);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    sender.data(Monotonic(0), Some(&protect), data(&body(20_000))).expect("the first pieces can be sealed");
    let datagrams = flush(&mut sender);
    let counters: Vec<_> = datagrams.iter().filter_map(|d| Packet::of(d)).map(|(_, p)| p.counter).collect();
    assert_eq!(counters, [0, 1, 2, 3, 4]);
    assert!(sender.lost() > 5);
}

#[test]
fn full_is_said_before_memory_is_gone() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    let big = body(1 << 20);
    let taken = (0..100).take_while(|_| sender.data(Monotonic(0), Some(&members[0]), data(&big)).is_ok()).count();
    assert_eq!(sender.data(Monotonic(0), Some(&members[0]), data(b"x")), Err(SendError::Full));
    assert!((8..=9).contains(&taken), "{taken} messages of 1 MiB");
    flush(&mut sender);
    sender.data(Monotonic(0), Some(&members[0]), data(b"x")).expect("there is room again");
    let too_long = vec![0; limits::MESSAGE_BYTES_MAX + 1];
    assert_eq!(sender.data(Monotonic(0), Some(&members[0]), data(&too_long)), Err(SendError::TooLong));
    let topic = "t".repeat(256);
    let long_topic = Data { topic: &topic, ..data(b"") };
    assert_eq!(sender.data(Monotonic(0), Some(&members[0]), long_topic), Err(SendError::BadTopic));
}

#[test]
fn pieces_of_unwanted_topics_are_passed_over() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    sender.data(Monotonic(0), Some(&members[0]), data(&body(10_000))).expect("sealed");
    let datagrams = flush(&mut sender);
    let mut got = Got { unwanted: Some(TOPIC), ..Got::default() };
    let mut receiver = receiver();
    receive(&mut receiver, &members[1], &datagrams[1..], &mut got);
    assert_eq!((got.messages.len(), receiver.bytes()), (0, 0));
}

#[test]
fn rule_a12_each_signed_record_proves_itself_and_a_lost_one_breaks_nothing() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    for n in 0..50 {
        sender.data(Monotonic(0), Some(&members[0]), signed(&[n; 1000])).expect("sealed");
    }
    let datagrams = flush(&mut sender);
    assert_eq!(datagrams.len(), 50);
    for keep in 0..50 {
        let (mut receiver, mut got) = (receiver(), Got::default());
        let fresh = group(1, 2);
        receive(&mut receiver, &fresh[1], &datagrams[keep..=keep], &mut got);
        assert_eq!(got.bodies(), [[u8::try_from(keep).expect("small"); 1000]]);
        assert!(got.messages[0].signed);
    }
    let (mut receiver, mut got) = (receiver(), Got::default());
    let odd: Vec<_> = datagrams.into_iter().skip(1).step_by(2).collect();
    receive(&mut receiver, &members[1], &odd, &mut got);
    assert_eq!((got.messages.len(), receiver.signature_checks()), (25, 1), "a burst shares one signature");
}

#[test]
fn rule_a12_a_lone_message_is_signed_too_and_its_proof_is_short() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    sender.data(Monotonic(0), Some(&members[0]), signed(b"alone")).expect("sealed");
    let datagrams = flush(&mut sender);
    let unsigned = HEADER_LEN + 14 + TOPIC.len() + 5 + TAG_LEN;
    assert_eq!(datagrams[0].len(), unsigned + 64 + 4);
    let mut got = Got::default();
    receive(&mut receiver(), &members[1], &datagrams, &mut got);
    assert!(got.messages[0].signed);
}

/// LSGC, weakness 10: any member could speak as any other.
#[test]
fn lsgc_w10_rule_a12_nothing_is_signed_by_whoever_did_not_sign_it() {
    let members = group(1, 3);
    let insider = Ring::member(1, 2, 3);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    for n in 0..3 {
        sender.data(Monotonic(0), Some(&members[0]), signed(&[n; 1000])).expect("sealed");
    }
    let datagrams = flush(&mut sender);
    let mut record = datagrams[0].clone();
    let (_, flags, record) = members[2].open(&mut record).expect("an insider reads it");
    assert_eq!(flags, FLAG_SIGNED);

    // Changed in one place; as somebody else; in another compartment; without its proof.
    let (mut receiver, mut got) = (receiver(), Got::default());
    for i in (0..record.len()).step_by(7) {
        let mut changed = record.to_vec();
        changed[i] ^= 1;
        let forged = insider.forge(COMPARTMENT, FLAG_SIGNED, Slot(0), 1000 + i as u64, &changed);
        receive(&mut receiver, &members[1], &[forged], &mut got);
    }
    let as_another = insider.forge(COMPARTMENT, FLAG_SIGNED, Slot(2), 1, record);
    let elsewhere = insider.forge(Domain(2), FLAG_SIGNED, Slot(0), 1, record);
    let mut bare = Vec::new();
    Head { keys: false, again: false, number: 1, sent_micros: None, topic: TOPIC }.write_whole(b"x", &mut bare);
    let proofless = insider.forge(COMPARTMENT, FLAG_SIGNED, Slot(0), 900, &bare);
    receive(&mut receiver, &members[1], &[as_another, elsewhere, proofless], &mut got);
    assert_eq!(got.messages, [], "none of them is taken");
    assert!(receiver.drops().of(Dropped::Auth) > 100);

    // Sealed again under new counters the signed message is one that was seen.
    receive(&mut receiver, &members[1], &datagrams, &mut got);
    assert_eq!(got.messages.len(), 3);
    let again: Vec<_> = (0..500).map(|n| insider.forge(COMPARTMENT, FLAG_SIGNED, Slot(0), 9000 + n, record)).collect();
    receive(&mut receiver, &members[1], &again, &mut got);
    assert_eq!((got.messages.len(), receiver.drops().of(Dropped::Replay)), (3, 500));
}

#[test]
fn rule_g8_false_proofs_cost_a_bounded_number_of_signature_checks() {
    let members = group(1, 3);
    let insider = Ring::member(1, 2, 3);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    sender.data(Monotonic(0), Some(&members[0]), signed(b"true")).expect("sealed");
    let mut genuine = flush(&mut sender).remove(0);
    let (source, flags, record) = members[1].open(&mut genuine).expect("sealed by the group");
    let (mut receiver, mut got) = (receiver(), Got::default());
    for n in 0..3 * u64::from(limits::FALSE_PROOFS_PER_SECOND) {
        let mut forged = record.to_vec();
        forged[6..14].copy_from_slice(&n.to_be_bytes());
        let mut forged = insider.forge(COMPARTMENT, FLAG_SIGNED, Slot(0), n + 1, &forged);
        let (source, flags, record) = members[1].open(&mut forged).expect("the insider has the key");
        receiver.handle(Monotonic(n), source, flags, record, Some(&*members[1]), &mut got);
    }
    assert!(receiver.signature_checks() <= u64::from(limits::FALSE_PROOFS_PER_SECOND) + 1);
    assert!(receiver.drops().of(Dropped::Rate) > 0);
    // Others are not kept waiting, and the slot only until the second is over.
    receiver.handle(Monotonic(1_500_000), source, flags, record, Some(&*members[1]), &mut got);
    assert_eq!(got.bodies(), [b"true"]);
}

#[test]
fn rule_a12_a_stream_gathers_for_one_signature_and_holds_up_nobody_else() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    let at = |micros| Monotonic(1_000_000 + micros);
    let gather = u64::try_from(limits::SIGNING_GATHER.as_micros()).expect("it is short");
    let publish = |sender: &mut Sender, micros, data| {
        sender.data(at(micros), Some(&members[0]), data).expect("sealed");
    };
    publish(&mut sender, 0, signed(&[0; 1000]));
    publish(&mut sender, 0, data(b"claimed"));
    let passing = sender.poll_gathered(at(0)).expect("what is not signed does not wait");
    assert_eq!(passing.lengths.len(), 1);
    for n in 1..10 {
        publish(&mut sender, gather / 10 * n, signed(&[0; 1000]));
        assert_eq!(sender.poll_gathered(at(gather / 10 * n)), None);
    }
    assert_eq!((sender.gathers_until(), sender.has_full()), (Some(at(gather)), false));
    let mut datagrams: Vec<_> = sender.poll_gathered(at(gather)).expect("due").iter().map(<[u8]>::to_vec).collect();
    assert_eq!((datagrams.len(), sender.gathers_until()), (10, None));
    let (mut receiver, mut got) = (receiver(), Got::default());
    receive(&mut receiver, &members[1], &datagrams, &mut got);
    assert_eq!((got.messages.len(), receiver.signature_checks()), (10, 1));

    // Whoever wants it now gets it now; and a full batch does not wait.
    publish(&mut sender, gather, signed(b"now"));
    assert!(sender.poll().is_some());
    for _ in 0..limits::ORIGIN_BATCH_MAX + 2 {
        publish(&mut sender, 2 * gather, signed(&[0; 1000]));
    }
    assert!(sender.has_full());
    datagrams = sender.poll_gathered(at(2 * gather)).expect("full").iter().map(<[u8]>::to_vec).collect();
    assert_eq!(datagrams.len(), limits::ORIGIN_BATCH_MAX);
    assert_eq!(sender.poll_gathered(at(2 * gather)), None, "what came after it gathers anew");
    assert_eq!(sender.gathers_until(), Some(at(3 * gather)));
}

#[test]
fn rule_a1_whether_a_message_was_signed_is_said_with_it() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    sender.data(Monotonic(0), Some(&members[0]), data(b"claimed")).expect("sealed");
    sender.data(Monotonic(0), Some(&members[0]), signed(b"proved")).expect("sealed");
    sender.data(Monotonic(0), Some(&members[0]), signed(&body(5000))).expect("sealed");
    let mut got = Got::default();
    receive(&mut receiver(), &members[1], &flush(&mut sender), &mut got);
    let said: BTreeMap<u64, bool> = got.messages.iter().map(|m| (m.number, m.signed)).collect();
    assert_eq!(said, BTreeMap::from([(1, false), (2, true), (3, true)]));
}

#[test]
fn rule_a1_unsigned_pieces_never_complete_a_signed_message() {
    let members = group(1, 3);
    let insider = Ring::member(1, 2, 3);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    sender.data(Monotonic(0), Some(&members[0]), signed(&body(2000))).expect("sealed");
    let datagrams = flush(&mut sender);
    assert_eq!(datagrams.len(), 2);
    let head = Head { keys: false, again: false, number: 1, sent_micros: None, topic: TOPIC };
    let mut forged = Vec::new();
    head.write_piece(2000, 1000, &[0xEE; 1000], &mut forged);
    let forged = insider.forge(COMPARTMENT, 0, Slot(0), 77, &forged);
    let (mut receiver, mut got) = (receiver(), Got::default());
    receive(&mut receiver, &members[1], &[datagrams[0].clone(), forged, datagrams[1].clone()], &mut got);
    assert_eq!(got.bodies(), [body(2000)]);
    assert!(got.messages[0].signed);
}

#[test]
fn w3_a_hostile_insiders_offsets_are_checked() {
    let members = group(1, 2);
    let insider = Ring::member(1, 0, 2);
    let head = Head { keys: false, again: false, number: 1, sent_micros: None, topic: TOPIC };
    let mut piece = Vec::new();
    head.write_piece(36, 0, &[0; 36], &mut piece);
    let (mut receiver, mut got) = (receiver(), Got::default());
    let mut counter = 0;
    for total in [0_u32, 1, 35, 1 << 20, u32::MAX] {
        for offset in [0xFFFF_FFF0_u32, u32::MAX, 0x8000_0000, 1, 36] {
            piece[14..18].copy_from_slice(&total.to_be_bytes());
            piece[18..22].copy_from_slice(&offset.to_be_bytes());
            counter += 1;
            let datagram = insider.forge(COMPARTMENT, 0, Slot(0), counter, &piece);
            receive(&mut receiver, &members[1], &[datagram], &mut got);
        }
    }
    assert_eq!(got.messages, []);
    assert!(receiver.bytes() < 4096, "{} bytes held", receiver.bytes());
}

#[test]
fn w1_a_datagram_sent_500_times_is_delivered_once() {
    let members = group(1, 2);
    let mut sender = Sender::new(ETHERNET_SEGMENT, false);
    sender.data(Monotonic(0), Some(&members[0]), data(b"once")).expect("sealed");
    let datagrams = vec![flush(&mut sender).remove(0); 500];
    let mut got = Got::default();
    receive(&mut receiver(), &members[1], &datagrams, &mut got);
    assert_eq!(got.bodies(), [b"once"]);
}

#[test]
fn w2_short_and_empty_records_kill_nobody() {
    let members = group(1, 2);
    let insider = Ring::member(1, 0, 2);
    let (mut receiver, mut got) = (receiver(), Got::default());
    for (n, flags) in (0..40).flat_map(|n| [(n, 0), (n, FLAG_SIGNED)]) {
        for fill in [0, 1, 2, 3, 0x41, 0x82, 0xFF] {
            let counter = u64::from(fill) * 1000 + n as u64 * 2 + u64::from(flags);
            let record = insider.forge(COMPARTMENT, flags, Slot(0), counter, &vec![fill; n]);
            receive(&mut receiver, &members[1], &[record], &mut got);
        }
    }
    assert_eq!((got.messages.len(), receiver.bytes()), (0, 0));
}

#[test]
fn w8_long_messages_arrive_whatever_their_topic() {
    let members = group(1, 2);
    for topic in ["", "c", "c1", &"x".repeat(255)] {
        let mut sender = Sender::new(ETHERNET_SEGMENT, false);
        let sent = body(100 * 1024);
        sender.data(Monotonic(0), Some(&members[0]), Data { topic, ..data(&sent) }).expect("sealed");
        let mut got = Got::default();
        receive(&mut receiver(), &members[1], &flush(&mut sender), &mut got);
        assert_eq!((got.messages[0].topic, &*got.messages[0].body), (topic, &sent[..]));
    }
}

#[test]
fn keys_travel_sealed_in_the_groups_domain_only_and_open_as_they_are() {
    let members = group(1, 2);
    let (mut a, mut b) = (Multicast::new(Config::default()), Multicast::new(Config::default()));
    let long = body(4000);
    for (bytes, sealed) in [(&b"open"[..], false), (b"sealed", true), (&long, true)] {
        let what = What::Keys { bytes, sealed, names: None };
        let out = Outgoing { what, guarantee: Guarantee::BestEffort, to: To::Group };
        a.send(at(0), Some(&members[0]), out).expect("sent");
    }
    let mut batch = Batch::default();
    while let Some(output) = a.poll(&mut batch) {
        assert!(matches!(output, Output::Transmit(To::Group)));
    }
    for datagram in batch.iter() {
        let mut datagram = datagram.to_vec();
        match members[1].open(&mut datagram) {
            Ok((source, flags, record)) => b.handle(at(0), inside(source, flags, record, &*members[1])),
            Err(_) => b.handle(at(0), outside(1, &mut datagram[2..])),
        }
    }
    let mut got = Vec::new();
    while let Some(Output::Keys { source, bytes, .. }) = b.poll(&mut batch) {
        got.push((matches!(source, Source::Inside { domain: Domain::GROUP, .. }), bytes));
    }
    got.sort();
    assert_eq!(got, [(false, b"open".to_vec()), (true, long.clone()), (true, b"sealed".to_vec())]);

    let mut stray = Vec::new();
    Head { keys: true, again: false, number: 1, sent_micros: None, topic: "" }.write_whole(b"k", &mut stray);
    let stray = Ring::member(1, 0, 2).forge(COMPARTMENT, 0, Slot(0), 5, &stray);
    let mut got = Got::default();
    receive(&mut receiver(), &members[1], &[stray], &mut got);
    assert_eq!(got.keys.len(), 0, "a compartment's key does not speak for the group");
}

#[test]
fn the_silent_are_suspected_and_the_idle_are_not() {
    let members = group(1, 3);
    let mut nodes: Vec<_> = (0..3).map(|_| Multicast::new(Config::default())).collect();
    for (me, node) in (0..).zip(&mut nodes) {
        let (view, access) = (view(members[0].epoch(), 3, me), everything());
        node.handle(at(0), Input::Install { view: &view, protect: None, access: &access });
    }
    let mut suspected = Vec::new();
    let mut beats = 0;
    // Slot 2 falls silent after two seconds; nobody publishes anything.
    for step in 0..120 {
        let now = at(step * 50_000);
        let mut sent = Vec::new();
        for slot in 0..if step < 40 { 3 } else { 2 } {
            if nodes[slot].timeout().is_some_and(|due| now.monotonic >= due) {
                nodes[slot].handle_timeout(now, Some(&members[slot]));
            }
            let mut batch = Batch::default();
            while let Some(output) = nodes[slot].poll(&mut batch) {
                if let Output::Suspect(who) = output {
                    suspected.push((step * 50, slot, who));
                }
            }
            sent.extend(batch.iter().map(|d| (slot, d.to_vec())));
        }
        beats += sent.len();
        for (from, datagram) in sent {
            for slot in (0..3).filter(|&slot| slot != from) {
                let mut datagram = datagram.clone();
                let (source, flags, record) = members[slot].open(&mut datagram).expect("sealed by the group");
                nodes[slot].handle(now, inside(source, flags, record, &*members[slot]));
            }
        }
    }
    let who: Vec<_> = suspected.iter().map(|(_, by, who)| (*by, *who)).collect();
    assert_eq!(who, [(0, Slot(2)), (1, Slot(2))], "{suspected:?}");
    assert!(suspected.iter().all(|(ms, _, _)| (4_600..=5_100).contains(ms)), "{suspected:?}");
    assert!(beats < 50, "{beats} heartbeats in 6 s");
}

#[test]
fn data_that_not_everybody_reads_does_not_replace_the_heartbeat() {
    let members = group(1, 2);
    let mut node = Multicast::new(Config::default());
    let (view, access) = (view(members[0].epoch(), 2, 0), everything());
    node.handle(at(0), Input::Install { view: &view, protect: None, access: &access });
    let mut group_frames = 0;
    for step in 0..60 {
        let now = at(step * 50_000);
        let what = What::Data { topic: TOPIC, domain: COMPARTMENT, signed: false, sent_micros: None, body: b"x" };
        let out = Outgoing { what, guarantee: Guarantee::BestEffort, to: To::Group };
        node.send(now, Some(&members[0]), out).expect("sealed");
        if node.timeout().is_some_and(|due| now.monotonic >= due) {
            node.handle_timeout(now, Some(&members[0]));
        }
        let mut batch = Batch::default();
        while node.poll(&mut batch).is_some() {}
        group_frames += batch.iter().filter(|d| Packet::of(d).is_some_and(|(_, p)| p.domain == Domain::GROUP)).count();
    }
    assert!((7..=9).contains(&group_frames), "{group_frames} heartbeats in 3 s");
}

#[test]
fn a_plain_group_speaks_lcm_both_ways() {
    let config = Config { plain: true, ..Config::default() };
    let (mut a, mut b) = (Multicast::new(config), Multicast::new(config));
    let sent = [body(0), body(100), body(70_000)];
    for body in &sent {
        let what = What::Data { topic: "c1", domain: Domain::GROUP, signed: false, sent_micros: None, body };
        let out = Outgoing { what, guarantee: Guarantee::BestEffort, to: To::Group };
        a.send(at(0), None, out).expect("sent");
    }
    let mut batch = Batch::default();
    while a.poll(&mut batch).is_some() {}
    assert!(batch.iter().all(|d| d.starts_with(b"LC0")));
    for datagram in batch.iter() {
        b.handle(at(0), outside(7, &mut datagram.to_vec()));
    }
    let mut got = Vec::new();
    while let Some(Output::Deliver(m)) = b.poll(&mut Batch::default()) {
        assert_eq!((&*m.topic, m.signed, m.source), ("c1", false, Source::Outside(Address::Node(7))));
        got.push(m.body);
    }
    assert_eq!(got, sent);
}

#[test]
fn rule_g7_what_a_hostile_insider_makes_us_hold_is_bounded_and_passes() {
    let members = group(1, 2);
    let insider = Ring::member(1, 0, 2);
    let (mut receiver, mut got) = (receiver(), Got::default());
    let mut received = 0;
    for n in 0..20_000_u64 {
        let mut record = Vec::new();
        let head = Head { keys: n % 2 == 0, again: false, number: n, sent_micros: None, topic: "" };
        head.write_piece(64 << 20, (n as usize * 977) % (32 << 20), &[0; 1000], &mut record);
        let datagram = insider.forge(Domain::GROUP, 0, Slot(0), n, &record);
        received += datagram.len();
        receive(&mut receiver, &members[1], &[datagram], &mut got);
    }
    assert!(received > 20_000_000);
    assert!(receiver.bytes() < 64 * 8192, "{} bytes held", receiver.bytes());
    receiver.handle_timeout(Monotonic(0) + limits::REASSEMBLY_TIMEOUT);
    assert_eq!(receiver.bytes(), 0);
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![
        6 => 0_usize..3_000,
        3 => 1_300_usize..1_500,
        2 => 0_usize..200_000,
        1 => Just(3 << 20),
    ];
    prop::collection::vec(size, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn messages_round_trip_shuffled_doubled_and_lost(
        sizes in sizes(), segment in prop_oneof![Just(SEGMENT_MIN), Just(ETHERNET_SEGMENT), Just(16_384), Just(SEGMENT_MAX)],
        origin in any::<bool>(), seed in any::<u64>(), lose_one_in in prop_oneof![Just(0_u64), Just(2), Just(50)],
    ) {
        let members = group(1, 2);
        let mut sender = Sender::new(segment, false);
        let bodies: Vec<Vec<u8>> = sizes.into_iter().map(body).collect();
        let mut sealed = Vec::new();
        for body in &bodies {
            let data = Data { signed: origin, ..data(body) };
            if sender.data(Monotonic(0), Some(&members[0]), data) == Err(SendError::Full) {
                sealed.append(&mut flush(&mut sender));
                sender.data(Monotonic(0), Some(&members[0]), data).expect("an empty lane takes any message");
            }
        }
        sealed.append(&mut flush(&mut sender));
        prop_assert!(sealed.iter().all(|d| d.len() <= segment));
        let random = |i: usize| (i as u64 + 1).wrapping_mul(seed | 1).rotate_left(23);
        let mut datagrams: Vec<_> = sealed.iter().enumerate()
            .filter(|(i, _)| lose_one_in == 0 || random(*i) % lose_one_in != 0).map(|(_, d)| d.clone()).collect();
        let lossless = datagrams.len() == sealed.len();
        datagrams.extend_from_within(..datagrams.len() / 2);
        // Shuffled as far as a replay window of the test's size allows.
        for (chunk, part) in datagrams.chunks_mut(1000).enumerate() {
            part.sort_by_key(|d| random(d[d.len() - 1] as usize + 256 * chunk));
        }
        let (mut receiver, mut got) = (receiver(), Got::default());
        receive(&mut receiver, &members[1], &datagrams, &mut got);
        for m in &got.messages {
            prop_assert_eq!(&*m.body, &bodies[m.number as usize - 1][..]);
            prop_assert_eq!((m.signed, m.topic), (origin, TOPIC));
        }
        let mut numbers: Vec<_> = got.messages.iter().map(|m| m.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), got.messages.len(), "none twice");
        if lossless {
            prop_assert_eq!(numbers.len(), bodies.len());
            prop_assert_eq!(receiver.bytes(), 0);
        }
    }

    #[test]
    fn rule_g2_any_record_of_an_insider_is_harmless(
        records in prop::collection::vec(
            (prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(2), Just(0x42), any::<u8>()], 0..300), any::<bool>(), 0_u16..3),
            1..60)
    ) {
        let members = group(1, 2);
        let (mut receiver, mut got) = (receiver(), Got::default());
        let mut received = 0;
        for (n, (record, signed, domain)) in records.into_iter().enumerate() {
            received += record.len() + 600;
            let source = Source::Inside {
                epoch: members[0].epoch(),
                slot: Slot(0),
                incarnation: Incarnation([1; 16]),
                counter: n as u64,
                domain: Domain(domain),
            };
            let flags = if signed { FLAG_SIGNED } else { 0 };
            receiver.handle(Monotonic(0), source, flags, &record, Some(&*members[1]), &mut got);
            prop_assert!(receiver.bytes() <= 4 * received);
        }
        prop_assert!(got.messages.iter().all(|m| !m.signed));
    }
}

/// `delivery/vectors/records.json`: made by a second implementation.
#[derive(Deserialize)]
struct Vectors {
    frames: Vec<FrameVector>,
    signed: SignedVectors,
}

#[derive(Deserialize)]
struct FrameVector {
    what: String,
    kind: String,
    #[serde(default)]
    keys: bool,
    #[serde(default)]
    again: bool,
    number: u64,
    sent_micros: Option<u64>,
    #[serde(default)]
    topic: String,
    #[serde(default)]
    total: usize,
    #[serde(default)]
    offset: usize,
    #[serde(default)]
    body: String,
    #[serde(default)]
    domain: u16,
    #[serde(default)]
    is_signed: bool,
    bytes: String,
}

#[derive(Deserialize)]
struct SignedVectors {
    epoch_counter: u32,
    epoch_hash: u64,
    domain: u16,
    slot: u32,
    batches: Vec<BatchVector>,
}

#[derive(Deserialize)]
struct BatchVector {
    count: usize,
    records: Vec<RecordVector>,
}

#[derive(Deserialize)]
struct RecordVector {
    index: usize,
    frames: String,
    record: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../vectors/records.json")).expect("vectors are JSON")
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

#[test]
fn rule_g9_frames_are_those_of_the_vectors_both_ways() {
    for v in vectors().frames {
        let (body, expect) = (unhex(&v.body), unhex(&v.bytes));
        let head = Head { keys: v.keys, again: v.again, number: v.number, sent_micros: v.sent_micros, topic: &v.topic };
        let mut bytes = Vec::new();
        let frame = match &*v.kind {
            "whole" => {
                head.write_whole(&body, &mut bytes);
                Frame::Whole { head, body: &body }
            }
            "piece" => {
                head.write_piece(v.total, v.offset, &body, &mut bytes);
                let number = |n| u32::try_from(n).expect("32 bits");
                Frame::Piece { head, total: number(v.total), offset: number(v.offset), bytes: &body }
            }
            "control" => {
                write_control(&body, &mut bytes);
                Frame::Control { bytes: &body }
            }
            "after" => {
                let stream = Stream { domain: Domain(v.domain), signed: v.is_signed };
                write_after(stream, v.number, &mut bytes);
                Frame::After { stream, number: v.number }
            }
            "heartbeat" => {
                write_heartbeat(v.number, &mut bytes);
                Frame::Heartbeat { number: v.number }
            }
            other => panic!("no frame is called {other}"),
        };
        assert_eq!(bytes, expect, "{}", v.what);
        assert_eq!(Frames::of(&expect).collect::<Vec<_>>(), [Ok(frame)], "{}", v.what);
    }
}

#[test]
fn rule_g9_signed_records_are_those_of_the_vectors_both_ways() {
    let v = vectors().signed;
    let signer = Ring::member(v.epoch_counter, v.slot, 1);
    assert_eq!(signer.epoch(), EpochId { counter: v.epoch_counter, hash: v.epoch_hash });
    let (slot, domain) = (Slot(v.slot), Domain(v.domain));
    for batch in v.batches {
        // All records of a batch differ in number and fill alone, so that three of 64 tell the others.
        let mut unsigned = Unsigned::default();
        for n in 0..batch.count {
            let fill = [u8::try_from(n).expect("small"); 3];
            let mut frames = Vec::new();
            let head = Head { keys: false, again: false, number: n as u64 + 1, sent_micros: None, topic: TOPIC };
            head.write_whole(&fill, &mut frames);
            unsigned.push(&frames);
        }
        let signed = unsigned.sign(domain, None, false, &signer);
        for expect in batch.records {
            let mut record = unhex(&expect.frames);
            let frames = record.len();
            record.resize(frames + signed.proof_len(), 0);
            signed.write(expect.index, &mut record[frames..]);
            assert_eq!(record, unhex(&expect.record), "record {} of {}", expect.index, batch.count);
            let proved = Origins::default().verify(
                Monotonic(0),
                (signer.epoch(), domain, slot),
                (None, false),
                &record,
                &signer,
            );
            assert_eq!(proved, Ok(&record[..frames]));
        }
    }
}

#[test]
fn rule_a3_a_proof_for_members_alone_stands_for_no_signature() {
    let (signer, other) = (Ring::member(1, 0, 1), Ring::member(1, 1, 1));
    for attests in [true, false] {
        let mut unsigned = Unsigned::default();
        unsigned.push(b"frames");
        let signed = unsigned.sign(Domain::GROUP, Some(7), attests, &signer);
        let mut record = b"frames".to_vec();
        record.resize(6 + signed.proof_len(), 0);
        signed.write(0, &mut record[6..]);
        let taken = |number, attested| {
            let of = (signer.epoch(), Domain::GROUP, Slot(0));
            Origins::default().verify(Monotonic(0), of, (Some(number), attested), &record, &other).map(<[u8]>::len)
        };
        assert_eq!(taken(7, true), Ok(6));
        assert_eq!(taken(7, false), if attests { Err(Dropped::Auth) } else { Ok(6) });
        assert_eq!(taken(8, true), Err(Dropped::Auth));
    }
}
