//! One order of all members' messages.

use sealcast_wire::frame::{COUNTER_ORDERED, COUNTER_RELIABLE, COUNTER_SIGNED, FLAG_ORDERED, FLAG_SAFE};

use super::*;
use crate::multicast::frame::write_stamps;

impl Net {
    /// All nodes got one order, the positions rise, and each sender's messages are in it in the order of publishing.
    fn assert_one_order(&self, count: usize) {
        let order = &self.order[0];
        assert_eq!(order.len(), count);
        assert!(order.windows(2).all(|pair| pair[0].0 < pair[1].0), "positions rise");
        for (node, got) in self.order.iter().enumerate() {
            let parted = got.iter().zip(order).position(|(a, b)| a != b);
            assert!(got == order, "node {node} has {} of {count}, parted at {parted:?}", got.len());
        }
        for slot in 0..self.nodes.len() {
            let of = order.iter().filter(|(_, from, _)| from.index() == slot);
            assert!(of.map(|(.., body)| body[1]).is_sorted(), "slot {slot}");
        }
    }

    fn bytes(&self, node: usize) -> usize {
        self.nodes[node].current.as_ref().and_then(|it| it.order.as_ref()).map_or(0, Order::bytes)
            + self.nodes[node].incoming.bytes()
    }
}

#[test]
fn all_members_deliver_one_order_and_senders_learn_the_place() {
    for (members, loss, seed) in [(2, 0, 2), (3, 0, 3), (4, 50, 4), (5, 200, 5), (4, 300, 6)] {
        let mut net = Net::new(members, loss, seed);
        net.order(1, &(0..members).collect::<Vec<_>>());
        let mut tokens = vec![Vec::new(); members];
        for (n, body) in bodies(0, 60).iter().enumerate() {
            for (node, tokens) in tokens.iter_mut().enumerate() {
                let topic = ["c1/a", "c2/b", "c1/a", "c1/c!"][(n + node) / 3 % 4];
                let guarantee = if n % 11 == 10 { Guarantee::Safe } else { Guarantee::Ordered };
                tokens.push(net.publish_patiently_as(guarantee, node, topic, body).0);
            }
            net.run(net.now + 700);
        }
        net.run(net.now + 8 * SECOND);
        net.assert_one_order(60 * members);
        for (node, tokens) in tokens.iter().enumerate() {
            let ordered: Vec<u64> = net.ordered[node].iter().map(|(number, _)| *number).collect();
            assert!(ordered == *tokens, "node {node} of {members} at loss {loss}: {} acknowledged", ordered.len());
            let positions = net.order[0].iter().filter(|(_, slot, _)| slot.index() == node).map(|(at, ..)| *at);
            assert!(net.ordered[node].iter().map(|(_, at)| *at).eq(positions));
            assert_eq!((net.backlog(node), net.bytes(node)), (0, 0), "node {node} of {members} at loss {loss}");
        }
        let before = net.sent.len();
        net.run(net.now + 6 * SECOND);
        let sent = net.sent.len() - before;
        assert!(sent <= members * 17, "{sent} datagrams in 6 s of silence");
    }
}

/// A message in pieces has the position of its last piece, and several in one record have positions one after the other.
#[test]
fn long_and_short_messages_have_places_of_their_own() {
    let mut net = Net::new(3, 50, 7);
    net.order(1, &[0, 1, 2]);
    let long = [vec![1, 0], vec![7; 60_000]].concat();
    net.publish_as(Guarantee::Ordered, 1, "c1/a", &long).expect("there is room");
    for n in 0..20 {
        net.publish_as(Guarantee::Ordered, 2, "c2/b", &[2, n]).expect("there is room");
    }
    net.run(net.now + 5 * SECOND);
    net.assert_one_order(21);
}

/// The other channel of the same sender keeps its order beside the order, and what comes after an ordered message waits for it.
#[test]
fn ordered_messages_and_others_of_one_sender_come_in_the_order_of_publishing() {
    for seed in 0..10 {
        let mut net = Net::new(3, 200, 40 + seed);
        net.order(1, &[0, 1, 2]);
        let sent = bodies(1, 40);
        for (n, body) in sent.iter().enumerate() {
            let guarantee = [Guarantee::Fifo, Guarantee::Ordered, Guarantee::Safe][n / 3 % 3];
            net.publish_patiently_as(guarantee, 1, ["c1/a", "c2/b!"][n / 5 % 2], body);
            net.run(net.now + 300);
        }
        net.run(net.now + 8 * SECOND);
        for node in 0..3 {
            let got: Vec<u8> = net.of(node, 1).iter().map(|it| it[1]).collect();
            assert!(net.of(node, 1) == sent, "node {node}, seed {seed}: {got:?}");
        }
    }
}

#[test]
fn rule_b2_a_majority_holds_what_is_delivered_and_all_hold_what_is_safe() {
    for (deaf, delivered) in
        [(vec![], [true, true]), (vec![4], [true, false]), (vec![3, 4], [true, false]), (vec![2, 3, 4], [false; 2])]
    {
        for (guarantee, delivered) in [Guarantee::Ordered, Guarantee::Safe].into_iter().zip(delivered) {
            let mut net = Net::new(5, 0, 8);
            net.order(1, &[0, 1, 2, 3, 4]);
            net.deaf.extend(deaf.iter().copied());
            net.publish_as(guarantee, 1, "c1/a", b"\x01\0").expect("there is room");
            net.run(net.now + SECOND);
            let hears = |node: &usize| !deaf.contains(node);
            for node in (0..5).filter(hears) {
                assert_eq!(!net.order[node].is_empty(), delivered, "{guarantee:?} at node {node} beside {deaf:?}");
            }
            assert_eq!(!net.ordered[1].is_empty(), delivered);
            net.deaf.clear();
            net.run(net.now + 3 * SECOND);
            net.assert_one_order(1);
        }
    }
}

/// Nothing overtakes a safe message, however few hold what.
#[test]
fn what_comes_after_a_safe_message_waits_for_it() {
    let mut net = Net::new(3, 0, 9);
    net.order(1, &[0, 1, 2]);
    net.deaf.insert(2);
    net.publish_as(Guarantee::Ordered, 0, "c1/a", b"\0\0").expect("there is room");
    net.publish_as(Guarantee::Safe, 0, "c1/a", b"\0\x01").expect("there is room");
    net.run(net.now + 10_000);
    net.publish_as(Guarantee::Ordered, 1, "c1/a", b"\x01\0").expect("there is room");
    net.run(net.now + SECOND);
    assert_eq!((net.order[0].len(), net.order[1].len()), (1, 1));
    net.deaf.clear();
    net.run(net.now + 3 * SECOND);
    net.assert_one_order(3);
}

/// A member that lacks a topic's key holds its records: they count for the majority, and it hands them on for a sender that is gone.
#[test]
fn rule_b8_members_without_the_key_hold_what_they_cannot_read() {
    for loss in [0, 150] {
        let mut net = Net::new(3, loss, 10);
        net.access = Arc::new(Topics { deaf: Some(Slot(2)) });
        net.order(1, &[0, 1, 2]);
        for n in 0..20 {
            net.publish_patiently_as(Guarantee::Safe, 1, ["c2/b", "c1/a"][usize::from(n) % 2], &[1, n]);
            net.publish_patiently_as(Guarantee::Ordered, 2, "c1/a", &[2, n]);
            net.run(net.now + 500);
        }
        net.run(net.now + 5 * SECOND);
        assert_eq!((net.order[0].len(), net.ordered[1].len(), net.ordered[2].len()), (40, 20, 20), "loss {loss}");
        assert!(net.order[0] == net.order[1]);
        let read: Vec<_> = net.order[0].iter().filter(|(_, slot, body)| slot.0 == 2 || body[1] % 2 == 1).collect();
        assert!(net.order[2].iter().eq(read), "it reads the rest in the same order");
        assert_eq!(net.bytes(2), 0);
    }
}

/// Senders tell the sequencer what it cannot open, its own records among that; it dies amid them, and one follows it that reads.
#[test]
fn rule_b8_a_sequencer_orders_what_it_cannot_read() {
    for (loss, seed) in [(0, 10), (0, 11), (150, 12), (150, 13), (150, 14)] {
        let mut net = Net::new(4, loss, seed);
        net.access = Arc::new(Topics { deaf: Some(Slot(0)) });
        net.order(1, &[0, 1, 2, 3]);
        let big = [vec![1, 200], vec![7; 20_000]].concat();
        for n in 0..30 {
            net.publish_patiently_as(Guarantee::Safe, 1, ["c2/b", "c1/a"][usize::from(n) % 2], &[1, n]);
            net.publish_patiently_as(Guarantee::Ordered, 2, "c2/b", &[2, n]);
            net.publish_patiently_as(Guarantee::Ordered, 0, "c2/b!", &[0, n]);
            net.run(net.now + 500);
        }
        net.publish_patiently_as(Guarantee::Ordered, 1, "c2/b", &big);
        net.run(net.now + 5 * SECOND);
        assert_eq!((net.order[1].len(), net.ordered[1].len(), net.ordered[2].len()), (91, 31, 30), "seed {seed}");
        assert_eq!(net.ordered[0].len(), 30, "seed {seed}");
        assert!(net.order[1] == net.order[2] && net.order[1] == net.order[3], "seed {seed}");
        assert!(net.order[0].iter().all(|(_, slot, body)| slot.0 == 0 || slot.0 == 1 && body[1] % 2 == 1));
        assert_eq!((net.bytes(0), net.bytes(3)), (0, 0), "seed {seed}");
        for n in 30..60 {
            net.publish_patiently_as(Guarantee::Ordered, 1, "c2/b", &[1, n]);
        }
        net.run(net.now + seed * 200);
        net.deaf.insert(0);
        net.access = Arc::new(Topics { deaf: None });
        net.change(3, &[1, 2, 3]);
        net.run(net.now + 5 * SECOND);
        assert_eq!((net.order[1].len(), net.ordered[1].len()), (121, 61), "seed {seed}");
        assert!(net.order[1] == net.order[2] && net.order[1] == net.order[3], "seed {seed}");
    }
}

/// An insider names noise, in another member's slot: the sequencer gives it a place, and who reads the topic cannot open it.
#[test]
fn rule_b8_noise_that_was_stamped_holds_no_reader_up() {
    let mut net = Net::new(4, 0, 16);
    net.access = Arc::new(Topics { deaf: Some(Slot(0)) });
    net.order(1, &[0, 1, 2, 3]);
    net.publish_as(Guarantee::Ordered, 1, "c2/b", &[1, 0]).expect("there is room");
    net.run(net.now + SECOND);
    // Its record, and what names it, were the first two.
    let ring = Ring::of_runs(2, 4, (0..4).map(|it| incarnation(Slot(it))).collect());
    let counter = COUNTER_RELIABLE | COUNTER_ORDERED;
    let mut noise = vec![7; 600];
    let header = Header {
        domain: Domain(2),
        epoch: ring.epoch(),
        slot: Slot(1),
        flags: FLAG_RELIABLE | FLAG_ORDERED,
        counter: counter | 3,
    };
    header.write(&mut noise);
    let mut frame = Vec::new();
    crate::multicast::frame::write_named(3, &[Stamp::hash_of(&noise)], &mut frame);
    let names = ring.forge(Domain::GROUP, FLAG_RELIABLE | FLAG_ORDERED, Slot(1), counter | 4, &frame);
    // And one that opens, and whose proof is none.
    let signed = FLAG_RELIABLE | FLAG_ORDERED | FLAG_SIGNED;
    let unproved = ring.forge(Domain(2), signed, Slot(1), counter | 5, &[7; 90]);
    let mut frame = Vec::new();
    crate::multicast::frame::write_named(5, &[Stamp::hash_of(&unproved)], &mut frame);
    let names_it = ring.forge(Domain::GROUP, FLAG_RELIABLE | FLAG_ORDERED, Slot(1), counter | 6, &frame);
    for to in [0, 2, 3] {
        for datagram in [&noise, &names, &unproved, &names_it] {
            net.carry(1, to, datagram);
        }
    }
    net.run(net.now + SECOND);
    for n in 0..10 {
        net.publish_as(Guarantee::Ordered, 2, "c2/b", &[2, n]).expect("there is room");
        net.publish_as(Guarantee::Ordered, 3, "c1/a", &[3, n]).expect("there is room");
    }
    net.run(net.now + 5 * SECOND);
    assert_eq!((net.order[2].len(), net.order[3].len(), net.order[0].len()), (21, 21, 10));
    assert_eq!((net.ordered[2].len(), net.ordered[3].len()), (10, 10));
}

/// A stranger takes the numbers of a sender's records first, and one with the group's key names what no record follows.
#[test]
fn rule_b8_noise_does_not_keep_a_sequencer_from_what_it_cannot_read() {
    let mut net = Net::new(3, 0, 15);
    net.access = Arc::new(Topics { deaf: Some(Slot(0)) });
    net.order(1, &[0, 1, 2]);
    let (epoch, flags) = (net.keys[0][&2].epoch(), FLAG_RELIABLE | FLAG_ORDERED);
    let noise = |number: u64| {
        let mut noise = vec![7; 1_000];
        let counter = COUNTER_RELIABLE | COUNTER_ORDERED | number;
        Header { domain: Domain(2), epoch, slot: Slot(1), flags, counter }.write(&mut noise);
        noise
    };
    (1..2_000).chain(1 << 40..1 << 40 | 9).for_each(|number| net.hear(1, 0, &mut noise(number)));
    assert!(net.bytes(0) <= limits::ORDERED_UNREAD_BYTES_MAX);
    for n in 0..20 {
        net.publish_as(Guarantee::Ordered, 1, ["c1/a", "c2/b"][usize::from(n) % 2], &[1, n]).expect("there is room");
        net.run(net.now + 1_000);
    }
    net.run(net.now + 5 * SECOND);
    assert_eq!((net.order[2].len(), net.order[0].len(), net.ordered[1].len()), (20, 10, 20));
    // Each name costs the room of a record, and those of records that come after it, or long before, count for nothing.
    let mut order = Order::new(Slot(0), (0..3).map(Slot).collect(), BTreeSet::new(), (0, [0; 32]));
    assert!(order.name(Slot(1), 1, [7; 16]).is_none() && order.bytes() > 0);
    assert_eq!(order.is_named(Slot(1), 1, &noise(1)), Err(Dropped::Auth));
    let record = noise(2);
    assert_eq!(order.is_named(Slot(1), 2, &record), Ok(false));
    assert_eq!(order.name(Slot(1), 2, Stamp::hash_of(&record)).as_ref(), Some(&record));
    order.keep(Slot(1), 2, (false, false), &record);
    assert!(order.name(Slot(1), 2, [7; 16]).is_none(), "it is known");
}

/// The sender is gone once a majority holds its message: the sequencer hands it on to who lacks it.
#[test]
fn what_the_sequencer_holds_is_not_lost_with_its_sender() {
    let mut net = Net::new(4, 0, 11);
    net.order(1, &[0, 1, 2, 3]);
    net.deaf.extend([3]);
    net.publish_as(Guarantee::Ordered, 1, "c1/a", b"\x01\0").expect("there is room");
    net.run(net.now + 2_000);
    net.deaf = BTreeSet::from([1]);
    net.under_way.retain(|_, (from, ..)| *from != 1);
    net.run(net.now + 3 * SECOND);
    for node in [0, 2, 3] {
        assert_eq!(net.order[node].len(), 1, "node {node}");
    }
}

#[test]
fn rule_b4_an_ordered_message_is_delivered_in_its_view_or_its_sender_is_told() {
    let mut net = Net::new(3, 0, 12);
    net.order(1, &[0, 1, 2]);
    net.publish_as(Guarantee::Ordered, 1, "c1/a", b"\x01\0").expect("there is room");
    net.run(net.now + SECOND);
    net.deaf.extend([0, 2]);
    net.publish_as(Guarantee::Ordered, 1, "c1/a", b"\x01\x01").expect("there is room");
    net.run(net.now + SECOND);
    net.deaf.clear();
    // Another view, before which nobody had the time to say what it holds.
    net.install(3, &[0, 1, 2]);
    assert_eq!((net.ordered[1].len(), net.in_doubt[1].len()), (1, 1));
    let refused = net.publish_as(Guarantee::Ordered, 1, "c1/a", b"\x01\x02");
    assert_eq!(refused.unwrap_err(), SendError::NotReady);
    net.run(net.now + SECOND);
    assert!(net.renewed[0] > 0, "another change is asked for");
    net.change(4, &[0, 1, 2]);
    net.publish_as(Guarantee::Ordered, 1, "c1/a", b"\x01\x02").expect("there is room");
    net.run(net.now + 3 * SECOND);
    assert_eq!((net.ordered[1].len(), net.in_doubt[1].len()), (2, 1));
    for node in 0..3 {
        assert_eq!(net.order[node].iter().map(|(.., body)| body[1]).collect::<Vec<_>>(), [0, 2], "node {node}");
    }
}

/// An insider stamps in the sequencer's slot, which it cannot sign for; and in its own, which is not the sequencer's.
#[test]
fn rule_a3_nobody_but_the_sequencer_stamps() {
    let mut net = Net::new(3, 0, 13);
    net.order(1, &[0, 1, 2]);
    let mallory = Ring::member(2, 2, 3);
    let record = forged_record(&mallory, 1, b"forged");
    let stamp = Stamp { slot: Slot(1), number: 1, safe: false, hash: Stamp::hash_of(&record) };
    for (slot, flags, far) in [
        (0, FLAG_RELIABLE | FLAG_SIGNED, COUNTER_RELIABLE | COUNTER_SIGNED),
        (0, FLAG_RELIABLE, COUNTER_RELIABLE),
        (2, FLAG_RELIABLE | FLAG_SIGNED, COUNTER_RELIABLE | COUNTER_SIGNED),
        (2, FLAG_RELIABLE, COUNTER_RELIABLE),
    ] {
        let mut frames = Vec::new();
        write_stamps(1, &[stamp], &mut frames);
        net.hear(2, 1, &mut mallory.forge(Domain::GROUP, flags, Slot(slot), far | 1, &frames));
    }
    net.hear(2, 1, &mut record.clone());
    let mut frames = Vec::new();
    crate::multicast::frame::write_control(
        &Control::Stable { majority: 1, all: 1, slowest: None }.bytes(),
        &mut frames,
    );
    net.hear(2, 1, &mut mallory.forge(Domain::GROUP, 0, Slot(2), 77, &frames));
    net.run(net.now + SECOND);
    assert!(
        net.order[1].is_empty()
            && net.nodes[1].current.as_ref().and_then(|it| it.order.as_ref()).is_some_and(|it| it.last() == 0)
    );
    // The real one goes on.
    net.publish_as(Guarantee::Ordered, 0, "c1/a", b"\0\0").expect("there is room");
    net.run(net.now + 3 * SECOND);
    assert_eq!((net.order[1].len(), net.order[2].len()), (1, 1));
}

fn forged_record(mallory: &Ring, number: u64, body: &[u8]) -> Vec<u8> {
    let head = Head { keys: false, again: false, number: 1, sent_micros: None, topic: "c1/a" };
    let mut frames = Vec::new();
    head.write_whole(body, &mut frames);
    let flags = FLAG_RELIABLE | FLAG_ORDERED;
    mallory.forge(Domain(1), flags, Slot(1), COUNTER_RELIABLE | COUNTER_ORDERED | number, &frames)
}

/// An insider seals another record in a sender's slot, and hands it to one member first: what is stamped is one record, and
/// that member gets it all the same.
#[test]
fn rule_b8_of_two_records_under_one_number_all_deliver_the_stamped_one() {
    for victim in [0, 2] {
        let mut net = Net::new(4, 0, 14);
        net.order(1, &[0, 1, 2, 3]);
        let mallory = Ring::member(2, 3, 4);
        net.deaf.insert(victim);
        net.publish_as(Guarantee::Ordered, 1, "c1/a", b"\x01\0").expect("there is room");
        net.run(net.now + 2_000);
        net.deaf.clear();
        net.hear(3, victim, &mut forged_record(&mallory, 1, b"\x01\x09"));
        net.run(net.now + 5 * SECOND);
        // The sequencer that has the forged one stamps it: then its sender is told nothing, and all still agree.
        let first = &net.order[if victim == 0 { 2 } else { 0 }];
        assert!(victim == 0 || first.len() == 1 && first[0].2 == b"\x01\0", "{first:?}");
        for node in [0, 2, 3] {
            assert!(net.order[node] == *first, "node {node}: {:?}", net.order[node]);
        }
    }
}

/// The sequencer itself stamps what does not go on from before: nothing of it counts, and nothing is held up for ever by it.
#[test]
fn rule_g1_stamps_that_do_not_go_on_from_before_count_for_nothing() {
    let mut order = Order::new(Slot(1), vec![Slot(0), Slot(1), Slot(2)], BTreeSet::new(), (0, [0; 32]));
    let stamp = |slot, number| Stamp { slot: Slot(slot), number, safe: false, hash: [number as u8; 16] };
    for (first, stamps) in [
        (2, vec![stamp(0, 1)]),
        (0, vec![stamp(0, 1)]),
        (1, vec![stamp(0, 2)]),
        (1, vec![stamp(0, 1), stamp(0, 1)]),
        (1, vec![stamp(0, 1), stamp(9, 1)]),
        (1, vec![stamp(0, u64::MAX), stamp(0, 0)]),
    ] {
        assert_eq!(order.take_stamps(first, &stamps).unwrap_err(), Dropped::Malformed);
        assert_eq!(order.last(), 0);
    }
    assert_eq!(order.take_stamps(1, &[stamp(0, 1), stamp(2, 1), stamp(0, 2)]).map(|it| it.len()), Ok(3));
    assert_eq!(order.take_stamps(4, &[stamp(0, 2)]).unwrap_err(), Dropped::Malformed);
    let mut sequencer = Order::new(Slot(0), vec![Slot(0), Slot(1)], BTreeSet::new(), (0, [0; 32]));
    assert_eq!(sequencer.note(Slot(1), 1), Err(Dropped::Malformed), "nobody holds what is not stamped");
    assert_eq!(sequencer.note(Slot(7), 0), Err(Dropped::Malformed));
}

/// Somebody asks again and again, and neither the sender answers nor who comes before us.
#[test]
fn whoever_holds_a_record_sends_it_again_if_its_sender_and_the_sequencer_do_not() {
    for (me, asked) in [(0, 3), (1, 6), (2, 9)] {
        let mut order = Order::new(Slot(me), (0..4).map(Slot).collect(), BTreeSet::new(), (0, [0; 32]));
        order.keep(Slot(3), 1, (false, false), &[7; 100]);
        let mut answers = (1..20).map(|n| order.repair(Monotonic(n * 20_000), Slot(3), &[(1, 1)]));
        assert_eq!(answers.position(|it| !it.is_empty()), Some(asked - 1), "slot {me}");
    }
}

/// Strangers send what nobody can open, as if it were of an ordered topic.
#[test]
fn rule_g8_what_nobody_can_tell_from_noise_takes_little_room() {
    let mut net = Net::new(3, 0, 15);
    net.access = Arc::new(Topics { deaf: Some(Slot(2)) });
    net.order(1, &[0, 1, 2]);
    let flags = FLAG_RELIABLE | FLAG_ORDERED | FLAG_SAFE;
    for number in 1..5_000 {
        let mut noise = vec![7; 1_400];
        let epoch = net.keys[2][&2].epoch();
        let counter = COUNTER_RELIABLE | COUNTER_ORDERED | number;
        Header { domain: Domain(2), epoch, slot: Slot(1), flags, counter }.write(&mut noise);
        net.hear(2, 2, &mut noise);
    }
    assert!(net.bytes(2) <= limits::ORDERED_UNREAD_BYTES_MAX);
    for n in 0..10 {
        net.publish_as(Guarantee::Ordered, 1, ["c1/a", "c2/b"][usize::from(n) % 2], &[1, n]).expect("there is room");
    }
    net.run(net.now + 5 * SECOND);
    assert_eq!((net.order[0].len(), net.order[2].len(), net.ordered[1].len()), (10, 5, 10));
}

/// The body of a numbered message, and nothing that a compressor would like.
fn numbered(slot: u8, n: u8) -> Vec<u8> {
    [vec![slot, n], vec![n; 30]].concat()
}

/// Members die, leave and come at any moment, the sequencer too: those who stay deliver the same, nothing acknowledged is lost,
/// nothing comes twice, and positions rise.
#[test]
fn lsgc_w15_rule_b3_those_who_stay_deliver_the_same_and_nothing_acknowledged_is_lost() {
    for seed in 0..30 {
        let loss = [0, 50, 150][seed as usize % 3];
        let mut net = Net::new(5, loss, 100 + seed);
        net.order(1, &[0, 1, 2, 3, 4]);
        let mut number = [0_u8; 5];
        let mut stay: Vec<usize> = vec![0, 1, 2, 3, 4];
        for (epoch, gone) in (3..).zip([None, Some([0, 4, 2][seed as usize % 3]), None, Some(1)]) {
            for _ in 0..25 {
                for node in stay.clone() {
                    let guarantee = if number[node] % 7 == 6 { Guarantee::Safe } else { Guarantee::Ordered };
                    let body = numbered(node as u8, number[node]);
                    if net.publish_as(guarantee, node, "c1/a", &body).is_ok() {
                        number[node] += 1;
                    }
                }
                net.run(net.now + 200 + net.now % 700);
            }
            // It is gone in the midst of that.
            if let Some(gone) = gone {
                stay.retain(|it| *it != gone);
                net.deaf.insert(gone);
                net.keys[gone].clear();
                net.under_way.retain(|_, (from, ..)| *from != gone);
                net.current[gone] = 0;
                net.run(net.now + 500);
            }
            net.change(epoch, &stay);
        }
        net.run(net.now + 5 * SECOND);
        let order: Vec<_> = net.order[stay[0]].clone();
        assert!(order.windows(2).all(|pair| pair[0].0 < pair[1].0), "positions rise, seed {seed}");
        for node in &stay {
            let bodies =
                |node: usize| net.order[node].iter().map(|(at, _, body)| (*at, body.clone())).collect::<Vec<_>>();
            let (ours, theirs) = (bodies(*node), bodies(stay[0]));
            let parted = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            assert!(ours == theirs, "node {node}, seed {seed}: {} of {}, {parted:?}", ours.len(), theirs.len());
            assert_eq!(net.ordered[*node].len() + net.in_doubt[*node].len(), usize::from(number[*node]), "seed {seed}");
            assert!(net.in_doubt[*node].is_empty(), "what is not delivered is sent again, seed {seed}");
        }
        let all: BTreeSet<_> = order.iter().map(|(.., body)| body).collect();
        assert_eq!(all.len(), order.len(), "nothing comes twice, seed {seed}");
        for node in 0..5 {
            let positions: BTreeSet<u64> =
                order.iter().filter(|(.., body)| usize::from(body[0]) == node).map(|(at, ..)| *at).collect();
            for (_, at) in &net.ordered[node] {
                assert!(positions.contains(at), "acknowledged to {node} at {at} and lost, seed {seed}");
            }
            let of: Vec<u8> =
                order.iter().filter(|(.., body)| usize::from(body[0]) == node).map(|(.., body)| body[1]).collect();
            assert!(of.iter().copied().eq(0..of.len() as u8), "node {node} in order, seed {seed}: {of:?}");
        }
    }
}

/// The network parts: the greater side goes on, the other one refuses, and what was acknowledged there stays.
#[test]
fn rule_b1_a_minority_does_not_order_and_comes_back() {
    let mut net = Net::new(5, 0, 200);
    net.order(1, &[0, 1, 2, 3, 4]);
    for n in 0..10 {
        net.publish_as(Guarantee::Ordered, 3, "c1/a", &numbered(3, n)).expect("there is room");
        net.run(net.now + 500);
    }
    net.run(net.now + SECOND);
    net.parted = Some(BTreeSet::from([3, 4]));
    net.publish_as(Guarantee::Ordered, 3, "c1/a", &numbered(3, 10)).expect("there is room");
    net.publish_as(Guarantee::Ordered, 1, "c1/a", &numbered(1, 0)).expect("there is room");
    net.run(net.now + SECOND);
    net.change(3, &[3, 4]);
    net.change(4, &[0, 1, 2]);
    assert_eq!(net.in_doubt[3].len(), 1, "others may hold it");
    assert_eq!(net.publish_as(Guarantee::Ordered, 3, "c1/a", b"\x03\x0b").unwrap_err(), SendError::NotPrimary);
    assert!(net.publish(3, "c1/a", b"\x03\x0b").is_ok(), "the other channels go on");
    for n in 1..5 {
        net.publish_as(Guarantee::Ordered, 1, "c1/a", &numbered(1, n)).expect("there is room");
    }
    net.run(net.now + SECOND);
    // It heals: they come to the greater side, which asks everybody.
    net.parted = None;
    net.prepare(5, &[0, 1, 2, 3, 4], 100_000);
    assert!(net.flushed[0].is_some() && net.flushed[0] == net.flushed[1] && net.flushed[0] == net.flushed[2]);
    net.install(5, &[0, 1, 2, 3, 4]);
    assert_eq!(net.publish_as(Guarantee::Ordered, 0, "c1/a", b"\0\0").unwrap_err(), SendError::NotReady);
    net.run(net.now + 100_000);
    assert!(net.renewed[0] > 0);
    net.change(6, &[0, 1, 2, 3, 4]);
    net.publish_as(Guarantee::Ordered, 3, "c1/a", &numbered(3, 11)).expect("there is room");
    net.run(net.now + 3 * SECOND);
    let bodies = |node: usize| net.order[node].iter().map(|(.., body)| body[..2].to_vec()).collect::<Vec<_>>();
    assert!(bodies(0) == bodies(1) && bodies(0) == bodies(2));
    assert_eq!(bodies(0).len(), 10 + 5 + 1);
    let late = &bodies(0)[15..];
    assert!(bodies(3).ends_with(late) && bodies(3).starts_with(&bodies(0)[..10]), "{:?}", bodies(3));
    assert_eq!(bodies(3).len(), 11, "what was ordered meanwhile it has not: a gap");
    assert_eq!((net.ordered[1].len(), net.in_doubt[1].len()), (5, 0));
}

/// A minority installs the primary's position: it delivers nothing of the old keys that it did not get in time, is told the gap,
/// and learns of each message of its own what became of it, so that it can publish it again.
#[test]
fn rule_b6_a_minority_merges_at_the_primarys_position_and_is_told_the_gap() {
    let mut net = Net::new(5, 0, 216);
    net.order(1, &[0, 1, 2, 3, 4]);
    net.publish_as(Guarantee::Ordered, 4, "c1/a", &numbered(4, 0)).expect("there is room");
    net.run(net.now + SECOND);
    net.parted = Some(BTreeSet::from([3, 4]));
    let lost = net.publish_as(Guarantee::Ordered, 4, "c1/a", &numbered(4, 1)).expect("it does not know yet");
    net.change(3, &[3, 4]);
    net.change(4, &[0, 1, 2]);
    for n in 0..5 {
        net.publish_as(Guarantee::Ordered, 1, "c1/a", &numbered(1, n)).expect("there is room");
    }
    net.run(net.now + SECOND);
    assert_eq!(net.in_doubt[4], [lost.0]);
    net.parted = None;
    net.prepare(5, &[0, 1, 2, 3, 4], 100_000);
    net.install(5, &[0, 1, 2, 3, 4]);
    net.run(net.now + 100_000);
    net.change(6, &[0, 1, 2, 3, 4]);
    net.publish_as(Guarantee::Ordered, 4, "c1/a", &numbered(4, 1)).expect("it is of the primary component");
    net.run(net.now + 3 * SECOND);
    let told: BTreeSet<usize> = net.gaps.iter().copied().collect();
    assert_eq!(told, BTreeSet::from([3, 4]));
    let primary = net.order[0].clone();
    assert_eq!(primary.len(), 1 + 5 + 1, "the one sent again is there once");
    for node in 3..5 {
        assert_eq!(net.order[node], [&primary[..1], &primary[6..]].concat(), "node {node}: the same positions");
    }
}

/// At full load, with loss, for several times `detect`, nobody is taken for dead: what waits for room delays no signs of life.
#[test]
fn rule_b9_nobody_is_suspected_under_full_load() {
    for guarantee in [Guarantee::Fifo, Guarantee::Ordered] {
        let mut net = Net::new(4, 50, 217);
        net.order(1, &[0, 1, 2, 3]);
        let mut full = 0;
        for _ in 0..40 {
            for node in 0..3 {
                let taken =
                    (0..2000).take_while(|_| net.publish_as(guarantee, node, "c1/a", &[0; 1000]).is_ok()).count();
                full += usize::from(taken < 2000);
            }
            net.run(net.now + 150_000);
        }
        assert_eq!(full, 40 * 3, "each time all published until there was no room");
        assert_eq!(net.suspected, [], "{guarantee:?}");
    }
    // Somebody who is dead is.
    let mut net = Net::new(4, 50, 217);
    net.order(1, &[0, 1, 2, 3]);
    net.parted = Some(BTreeSet::from([3]));
    net.run(net.now + 10 * SECOND);
    assert!((0..3).all(|node| net.suspected.contains(&(node, Slot(3)))));
}

/// A member that flushed for a view that the others installed without it takes no part in any other order.
#[test]
fn rule_b1_a_member_that_may_have_been_left_behind_orders_with_no_minority() {
    let mut net = Net::new(5, 0, 201);
    net.order(1, &[0, 1, 2, 3, 4]);
    net.prepare(3, &[0, 1, 2], 100_000);
    // 0 and 1 install it; 2 does not hear the last confirmation, and finds itself with 3 and 4.
    net.install_at(3, &[0, 1, 2], 0);
    net.install_at(3, &[0, 1, 2], 1);
    net.parted = Some(BTreeSet::from([2, 3, 4]));
    net.change(4, &[2, 3, 4]);
    assert_eq!(net.publish_as(Guarantee::Ordered, 2, "c1/a", b"\x02\0").unwrap_err(), SendError::NotPrimary);
    net.change(5, &[0, 1]);
    net.publish_as(Guarantee::Ordered, 0, "c1/a", b"\0\0").expect("they are the primary component");
    net.run(net.now + SECOND);
    assert_eq!((net.order[0].len(), net.order[1].len(), net.order[2].len()), (1, 1, 0));
}

/// Who leaves by its own word counts no more: the rest goes on, however few, and orders with who comes. After a crash the half
/// with the lowest id does.
#[test]
fn rule_b1_who_leaves_says_so_in_the_order_and_the_rest_goes_on() {
    for (leaver, says) in [(0, true), (1, true), (0, false), (1, false)] {
        for loss in [0, 200] {
            let mut net = Net::new(3, loss, 210);
            net.order(1, &[0, 1]);
            let stays = 1 - leaver;
            net.publish_as(Guarantee::Ordered, leaver, "c1/a", &numbered(leaver as u8, 0)).expect("there is room");
            if says {
                let now = net.at();
                net.nodes[leaver].handle(now, Input::Leave);
                net.drain(leaver);
                net.run(net.now + 190_000);
                assert_eq!(net.left, [leaver], "it waits for the others at most so long");
            }
            net.parted = Some(BTreeSet::from([leaver]));
            net.change(3, &[stays]);
            let sent = net.publish_as(Guarantee::Ordered, stays, "c1/a", &numbered(stays as u8, 0));
            assert_eq!(sent.is_ok(), says || stays == 0, "{leaver} leaves and says so: {says}");
            if sent.is_err() {
                continue;
            }
            net.run(net.now + 10_000);
            assert_eq!(net.ordered[stays].len(), 1, "who is alone waits for nobody");
            net.order(4, &[stays, 2]);
            net.publish_as(Guarantee::Safe, 2, "c1/a", &numbered(2, 0)).expect("there is room");
            net.run(net.now + 3 * SECOND);
            let got: Vec<&[u8]> = net.order[stays].iter().map(|(.., body)| &body[..1]).collect();
            assert_eq!(got.last(), Some(&&[2_u8][..]));
            assert_eq!((net.ordered[stays].len(), net.ordered[2].len()), (1, 1));
        }
    }
}

/// Once somebody has said that it leaves, what is ordered after that is delivered where most hold it who did not.
#[test]
fn rule_b2_who_leaves_does_not_count_for_what_comes_after_its_word() {
    for leaver in [0, 1] {
        let mut net = Net::new(3, 0, 212);
        net.order(1, &[0, 1, 2]);
        let now = net.at();
        net.nodes[leaver].handle(now, Input::Leave);
        net.drain(leaver);
        net.run(net.now + 100_000);
        assert_eq!(net.left, [leaver]);
        let (sender, deaf) = (1 - leaver, 2);
        net.deaf.insert(deaf);
        net.publish_as(Guarantee::Ordered, sender, "c1/a", &numbered(sender as u8, 0)).expect("there is room");
        net.run(net.now + SECOND);
        assert!(net.ordered[sender].is_empty() && net.order[sender].is_empty(), "only one who stays holds it");
        net.deaf.clear();
        net.run(net.now + SECOND);
        assert_eq!((net.ordered[sender].len(), net.order[deaf].len()), (1, 1));
    }
}

/// What a view's key does not bind decides nothing, though all had agreed on it in an attempt before.
#[test]
fn rule_b3_an_end_of_a_view_that_the_next_key_does_not_bind_is_none() {
    let mut net = Net::new(3, 0, 213);
    net.order(1, &[0, 1, 2]);
    net.prepare(3, &[0, 1, 2], 100_000);
    assert!(net.flushed.iter().all(Option::is_some), "that attempt fails");
    net.flushed = vec![None; 3];
    net.install(3, &[0, 1, 2]);
    assert_eq!(net.publish_as(Guarantee::Ordered, 0, "c1/a", b"\0\0").unwrap_err(), SendError::NotReady);
    net.change(4, &[0, 1, 2]);
    assert!(net.publish_as(Guarantee::Ordered, 0, "c1/a", b"\0\0").is_ok());
}

/// A newcomer that met one who knows of an order begins no other one with somebody else who comes.
#[test]
fn rule_b1_who_heard_of_an_order_begins_no_other_one() {
    let mut net = Net::new(6, 0, 214);
    net.order(1, &[0, 1, 2, 3]);
    net.parted = Some(BTreeSet::from([3, 4, 5]));
    net.change(3, &[3]);
    net.order(4, &[3, 4]);
    net.change(6, &[4]);
    net.order(7, &[4, 5]);
    for node in [4, 5] {
        let sent = net.publish_as(Guarantee::Ordered, node, "c1/a", &numbered(node as u8, 0));
        assert_eq!(sent.unwrap_err(), SendError::NotPrimary);
    }
}

/// Who has said that it leaves helps nobody to a majority: where only some know of it, no two parts may go on.
#[test]
fn rule_b1_who_has_said_that_it_leaves_votes_no_more() {
    let mut net = Net::new(3, 0, 211);
    net.order(1, &[0, 1, 2]);
    net.parted = Some(BTreeSet::from([1]));
    let now = net.at();
    net.nodes[2].handle(now, Input::Leave);
    net.drain(2);
    net.run(net.now + 100_000);
    assert_eq!(net.left, [2]);
    // 0 knows of it, and goes on alone with the lowest id of those who are left; 2 does not help 1 to do the same.
    net.change(3, &[0]);
    assert!(net.publish_as(Guarantee::Ordered, 0, "c1/a", &numbered(0, 0)).is_ok());
    net.parted = Some(BTreeSet::from([0]));
    net.change(4, &[1, 2]);
    for node in [1, 2] {
        let sent = net.publish_as(Guarantee::Ordered, node, "c1/a", &numbered(node as u8, 0));
        assert_eq!(sent.unwrap_err(), SendError::NotPrimary);
    }
}

/// The key scheme knows later than the order that a member leaves, and agrees on a view with it: its report says so, the view
/// before ends as ever, and the rest goes on when it is gone, however few.
#[test]
fn rule_b1_who_leaves_and_is_in_the_next_view_votes_in_it_no_more() {
    for (leaver, comes, loss) in
        [(0, false, 0), (1, false, 0), (0, true, 0), (1, true, 0), (0, false, 200), (1, true, 200)]
    {
        let mut net = Net::new(3, loss, 216);
        net.order(1, &[0, 1]);
        let (now, stays) = (net.at(), 1 - leaver);
        net.nodes[leaver].handle(now, Input::Leave);
        net.drain(leaver);
        if loss == 0 {
            // The others hold more than who leaves.
            net.run(net.now + 5_000);
            net.publish_as(Guarantee::Ordered, stays, "c1/a", &numbered(stays as u8, 9)).expect("there is room");
            net.run(net.now + 5_000);
        }
        let all: &[usize] = if comes { &[0, 1, 2] } else { &[0, 1] };
        net.prepare(3, all, 100_000);
        assert!(net.flushed[0].is_some() && net.flushed[0] == net.flushed[1], "the end is common");
        net.install(3, all);
        if comes {
            net.change(4, all);
        }
        net.publish_as(Guarantee::Ordered, stays, "c1/a", &numbered(stays as u8, 0)).expect("it is primary");
        net.run(net.now + 100_000);
        net.parted = Some(BTreeSet::from([leaver]));
        let rest: &[usize] = if comes { &[stays, 2] } else { &[stays] };
        net.change(5, rest);
        net.publish_as(Guarantee::Ordered, stays, "c1/a", &numbered(stays as u8, 1)).expect("who left counts no more");
        net.run(net.now + SECOND);
        assert_eq!(net.ordered[stays].len(), if loss == 0 { 3 } else { 2 });
    }
}

/// The old sequencer was asleep while the others went on: it stamps for nobody (B3).
#[test]
fn rule_b3_a_sequencer_that_slept_neither_orders_nor_acknowledges() {
    let mut net = Net::new(3, 0, 202);
    net.order(1, &[0, 1, 2]);
    net.parted = Some(BTreeSet::from([0]));
    net.change(3, &[1, 2]);
    net.publish_as(Guarantee::Ordered, 1, "c1/a", b"\x01\0").expect("a majority goes on");
    net.run(net.now + 100_000);
    // It wakes up in its old view, and publishes there.
    net.publish_as(Guarantee::Ordered, 0, "c1/a", b"\0\0").expect("it does not know yet");
    net.parted = None;
    net.run(net.now + SECOND);
    assert!(net.ordered[0].is_empty() && net.order[0].is_empty());
    assert_eq!((net.order[1].len(), net.order[2].len()), (1, 1));
}

/// A member leaves while the view ends since somebody comes: it says so in the order of the next view that has one.
#[test]
fn rule_b1_who_leaves_while_a_view_ends_says_so_in_the_next_one() {
    for leaver in [0, 1] {
        let mut net = Net::new(3, 0, 218);
        net.order(1, &[0, 1]);
        for node in [0, 1] {
            let (now, view) = (net.at(), Net::coming(3, &[0, 1, 2], node));
            net.nodes[node].handle(now, Input::Prepare { view: &view, flush: sealcast_wire::Flush::Now });
        }
        let now = net.at();
        net.nodes[leaver].handle(now, Input::Leave);
        for epoch in [3, 4] {
            assert!(net.left.is_empty(), "nobody knows of it yet");
            net.prepare(epoch, &[0, 1, 2], 20_000);
            net.install(epoch, &[0, 1, 2]);
        }
        net.run(net.now + 20_000);
        assert_eq!(net.left, [leaver]);
        // One of three goes on nowhere, and of two who vote the one with the lowest id does.
        let stays = 1 - leaver;
        net.parted = Some(BTreeSet::from([leaver, 2]));
        net.change(5, &[stays]);
        net.publish_as(Guarantee::Ordered, stays, "c1/a", &numbered(stays as u8, 0)).expect("who left counts no more");
    }
}

/// An insider says that it leaves, and goes on acknowledging: in the order that it says so in, and in that of the next view.
#[test]
fn rule_b2_acknowledgements_after_a_word_of_leaving_count_in_no_majority() {
    for before in [true, false] {
        let left = BTreeSet::from_iter(before.then_some(Slot(2)));
        let mut order = Order::new(Slot(0), (0..3).map(Slot).collect(), left, (0, [0; 32]));
        order.keep(Slot(2), 1, (false, !before), &[2; 100]);
        order.keep(Slot(1), 1, (false, false), &[1; 100]);
        order.stamp(Slot(2), 1);
        order.stamp(Slot(1), 1);
        order.said(2, 0);
        order.note(Slot(2), 2).expect("it is stamped");
        let counted = u64::from(!before);
        assert_eq!(order.news().map_or(0, |(majority, _)| majority), counted, "its word is the last that it holds");
        order.note(Slot(1), 2).expect("it is stamped");
        assert_eq!(order.news(), Some((2, counted)));
    }
}

/// Reports overtake what tells one member of the coming view: nobody has to say them again.
#[test]
fn rule_b10_a_report_that_comes_before_its_view_is_prepared_counts() {
    let mut net = Net::new(4, 0, 217);
    let all = [0, 1, 2, 3];
    net.order(1, &all);
    for node in all {
        let (now, view) = (net.at(), Net::coming(3, &all, node));
        net.nodes[node].handle(now, Input::Prepare { view: &view, flush: sealcast_wire::Flush::Now });
        net.drain(node);
        net.run(net.now + 1_000);
    }
    assert!(net.flushed.iter().all(|it| it.is_some() && *it == net.flushed[0]));
    // Those of another view in use count in none, nor those of who is out.
    net.install(3, &all);
    net.prepare(4, &all, 100_000);
    assert!(net.flushed.iter().all(|it| it.is_some_and(|(of, _)| of.counter == 4) && *it == net.flushed[0]));
}

/// How often members say something in the stream of signed words.
fn signed_words(net: &Net) -> usize {
    let is_word = |header: &Header| {
        header.domain == Domain::GROUP && header.flags & (FLAG_RELIABLE | FLAG_SIGNED) == FLAG_RELIABLE | FLAG_SIGNED
    };
    net.sent.iter().filter_map(|(_, it)| Header::parse(it).ok()).filter(is_word).count()
}

/// All hear and check all that is said: who lacks nothing says its report once, and where many wait for one, few ask for it.
#[test]
fn rule_b10_a_report_is_said_again_for_who_lacks_it_alone() {
    let members: Vec<usize> = (0..32).collect();
    let mut net = Net::new(members.len(), 0, 215);
    net.order(1, &members);
    net.sent.clear();
    net.prepare(3, &members, 100_000);
    assert!(net.flushed.iter().all(|it| it.is_some() && *it == net.flushed[0]));
    // Some datagrams take longer than two reports that cross.
    assert!(signed_words(&net) <= 48, "{} words", signed_words(&net));
    net.install(3, &members);
    net.run(net.now + SECOND);
    net.sent.clear();
    // One hears of the coming view 60 ms later.
    for node in members.iter().copied() {
        let (_, view) = Net::view(4, &members, node);
        let wait = if node == 31 { 60_000 } else { 0 };
        net.run(net.now + wait);
        let now = net.at();
        net.nodes[node].handle(now, Input::Prepare { view: &view, flush: sealcast_wire::Flush::Now });
        net.drain(node);
    }
    net.run(net.now + 100_000);
    assert!(net.flushed.iter().all(|it| it.is_some_and(|(epoch, _)| epoch.counter == 4)));
    assert!(signed_words(&net) <= 4 * 32, "{} words", signed_words(&net));
}

/// A number so great that nobody reaches it would stay the end of every later view.
#[test]
fn rule_g7_nobody_says_that_it_holds_more_of_an_order_than_there_can_be() {
    let mut net = Net::new(3, 0, 204);
    net.order(1, &[0, 1, 2]);
    net.publish_as(Guarantee::Ordered, 0, "c1/a", b"\0\0").expect("there is room");
    net.run(net.now + SECOND);
    net.deaf.extend([0, 1, 2]);
    net.prepare(3, &[0, 1, 2], 10_000);
    let (_, view) = Net::view(3, &[0, 1, 2], 0);
    let base = net.nodes[0].current.as_ref().expect("there is a view").epoch;
    let known = [0, 1, 2].map(|it| primary::id_of(&incarnation(Slot(it))));
    assert_eq!(limits::SEQUENCE_MAX << MESSAGES_PER_RECORD_BITS >> MESSAGES_PER_RECORD_BITS, limits::SEQUENCE_MAX);
    for (held, taken) in [(1 << 50, Err(Dropped::Malformed)), (u64::MAX, Err(Dropped::Malformed)), (1_000, Ok(()))] {
        let far = primary::Report { held, ..net.nodes[0].report.clone() };
        let report = far.bytes(&known).expect("it is short");
        let now = net.at().monotonic;
        assert_eq!(
            net.nodes[0].take_report(now, Slot(2), (base, view.epoch), (named::Slots::default(), &report)),
            taken,
            "{held}"
        );
    }
    // Of an order that is not ours, too.
    let other = primary::Primary { ordinal: 9, epoch: view.epoch, members: BTreeSet::from(known).into() };
    let far = primary::Report { installed: Some(other), held: limits::HELD_MAX + 1, ..net.nodes[0].report.clone() };
    let report = far.bytes(&known).expect("it is short");
    let now = net.at().monotonic;
    assert_eq!(
        net.nodes[0].take_report(now, Slot(1), (base, view.epoch), (named::Slots::default(), &report)),
        Err(Dropped::Malformed)
    );
}

/// What a member asks for of slots that there are not costs no memory.
#[test]
fn rule_g7_records_of_nobody_are_asked_for_in_vain() {
    let mut order = Order::new(Slot(0), vec![Slot(0), Slot(1)], BTreeSet::new(), (0, [0; 32]));
    for slot in 0..1_000 {
        assert!(order.repair(Monotonic(1), Slot(slot), &[(1, 9)]).is_empty());
    }
    assert_eq!(order.asked_for(), 2);
}

/// A member holds all of the order, and never says what it has of the records that its stamps come in.
#[test]
fn rule_g7_stamps_that_all_hold_are_not_kept_for_who_does_not_say_so() {
    let mut net = Net::new(3, 0, 205);
    net.order(1, &[0, 1, 2]);
    let ring = Ring::of_runs(2, 1, (0..3).map(|it| incarnation(Slot(it))).collect());
    net.deaf.insert(2);
    for n in 0..400_u32 {
        net.publish_patiently_as(Guarantee::Ordered, 1, "c1/a", &n.to_be_bytes());
        net.acknowledge_for(&ring, Slot(2), 4_000 + u64::from(n));
    }
    assert_eq!(net.ordered[1].len(), 400, "all are said to hold it");
    let kept = net.nodes[0].multicast.lock().backlog().map_or(0, |it| it.kept());
    assert!(kept <= 4_000, "{kept} bytes of stamps");
}

/// Reports and stamps that somebody else signed, or that are of another view, count for nothing.
#[test]
fn rule_a3_flushes_are_signed_by_who_reports() {
    let mut net = Net::new(3, 0, 203);
    net.order(1, &[0, 1, 2]);
    net.publish_as(Guarantee::Ordered, 0, "c1/a", b"\0\0").expect("there is room");
    net.run(net.now + SECOND);
    net.deaf.extend([0, 1, 2]);
    net.prepare(3, &[0, 1, 2], 10_000);
    let mallory = Ring::member(2, 2, 3);
    let (_, view) = Net::view(3, &[0, 1, 2], 0);
    let far = primary::Report { held: 900, ..net.nodes[0].report.clone() };
    let known = [0, 1, 2].map(|it| primary::id_of(&incarnation(Slot(it))));
    let report = far.bytes(&known).expect("it is short");
    for (slot, flags, counter) in [
        (0, 0, 500),
        (0, FLAG_RELIABLE | FLAG_SIGNED, COUNTER_RELIABLE | COUNTER_SIGNED | 500),
        (2, 0, 501),
        (0, FLAG_RELIABLE, COUNTER_RELIABLE | 500),
    ] {
        let mut frames = Vec::new();
        let said = Control::Flush { view: view.epoch, heard: named::Slots::default(), report: report.clone() };
        crate::multicast::frame::write_control(&said.bytes(), &mut frames);
        net.hear(2, 1, &mut mallory.forge(Domain::GROUP, flags, Slot(slot), counter, &frames));
    }
    net.deaf.clear();
    net.run(net.now + 90_000);
    assert!(net.flushed[0].is_some() && net.flushed[0] == net.flushed[1] && net.flushed[0] == net.flushed[2]);
    assert_eq!(net.nodes[1].report.attempts.len(), 1);
}

/// A member shows one other member a wrong proof of its report, and the others a right one: it goes, and nobody else does.
#[test]
fn rule_a3_a_member_whose_report_one_member_alone_cannot_check_is_the_one_to_go() {
    for whom in [0, 1] {
        let mut net = Net::new(4, 0, 216);
        net.order(1, &[0, 1, 2, 3]);
        net.garbled.insert((3, whom));
        for round in 0..6 {
            assert_eq!(net.suspected, [], "{round} flushes failed");
            net.prepare(3, &[0, 1, 2, 3], 105_000);
            assert!((0..4).all(|node| net.flushed[node].is_some() == (node != whom)));
        }
        assert_eq!(net.suspected, [(0, Slot(3))]);
        net.change(4, &[0, 1, 2]);
        net.publish_as(Guarantee::Ordered, 1, "c1/a", b"on").expect("there is room");
        net.run(net.now + SECOND);
        assert!((0..3).all(|node| net.order[node].len() == 1));
    }
}

/// Reports that are lost or late are nobody's fault.
#[test]
fn who_reports_through_a_bad_network_stays() {
    let members: Vec<usize> = (0..12).collect();
    let mut net = Net::new(members.len(), 100, 217);
    net.order(1, &members);
    (3..40).for_each(|epoch| net.change(epoch, &members));
    assert_eq!(net.suspected, []);
}
