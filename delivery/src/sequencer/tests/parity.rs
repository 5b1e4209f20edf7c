//! Records that are rebuilt from parities, and parities that are none.

use super::*;
use crate::multicast::frame::write_control;
use crate::multicast::parity::{PARITY_BLOCK, ParityHead, shard};

/// What was sent, counted as an insider can.
#[derive(Debug, Default)]
struct Counted {
    data: usize,
    repairs: usize,
    parities: usize,
    naks: usize,
}

fn parity_net(members: usize, loss: u64, seed: u64) -> Net {
    let mut net = Net::new(members, loss, seed);
    net.nodes.iter_mut().for_each(Sequencer::use_parities);
    net.install(1, &(0..members).collect::<Vec<_>>());
    net
}

/// Node 0 publishes so many messages of 600 bytes, one each 100 µs, and all others get them.
fn publish_to_all(net: &mut Net, guarantee: Guarantee, messages: u32) {
    for n in 0..messages {
        let body = [&n.to_be_bytes()[..], &[7; 596]].concat();
        net.publish_patiently_as(guarantee, 0, "c1/a", &body);
        net.run(net.now + 100);
    }
    net.run(net.now + 3 * SECOND);
    for node in 1..net.nodes.len() {
        let got: Vec<u32> = net.of(node, 0).iter().map(|it| u32::from_be_bytes([it[0], it[1], it[2], it[3]])).collect();
        assert_eq!(got, (0..messages).collect::<Vec<_>>(), "node {node}");
    }
}

fn count(net: &Net) -> Counted {
    let spy = Ring::member(net.current[0], 1, net.nodes.len() as u32);
    let mut counted = Counted::default();
    let mut seen = BTreeSet::new();
    for (node, datagram) in &net.sent {
        let header = Header::parse(datagram).expect("it was sealed");
        if header.flags & FLAG_RELIABLE != 0 {
            if *node == 0 {
                let is_new = seen.insert(header.counter);
                counted.data += usize::from(is_new);
                counted.repairs += usize::from(!is_new);
            }
            continue;
        }
        let mut datagram = datagram.clone();
        // Of an epoch before.
        let Ok((.., frames)) = spy.open(&mut datagram) else { continue };
        for frame in Frames::of(frames).map_while(Result::ok) {
            let Frame::Control { bytes } = frame else { continue };
            match Control::read(bytes) {
                Ok(Control::Parity(..)) => counted.parities += 1,
                Ok(Control::Nak { .. }) => counted.naks += 1,
                _ => {}
            }
        }
    }
    counted
}

/// The row of the figures: without parity, 0.41 of what is sent are data.
#[test]
fn of_what_two_hundred_receivers_with_loss_are_sent_most_is_data() {
    let mut net = parity_net(201, 50, 1);
    net.is_large = true;
    publish_to_all(&mut net, Guarantee::Fifo, 3_200);
    let counted = count(&net);
    let all = counted.data + counted.repairs + counted.parities;
    println!(
        "{counted:?}: data / all {:.3}, NAKs per datagram {:.3}",
        counted.data as f64 / all as f64,
        counted.naks as f64 / counted.data as f64
    );
    assert!(10 * counted.data >= 7 * all, "{counted:?}");
    assert!(counted.naks <= 2 * counted.data, "{counted:?}");
}

#[test]
fn three_receivers_send_few_naks_and_get_no_parities() {
    let mut net = parity_net(4, 50, 1);
    net.is_even = true;
    publish_to_all(&mut net, Guarantee::Fifo, 2_000);
    let counted = count(&net);
    // 1 − 0.95³ of the records got lost somewhere.
    let lost = counted.data as f64 * 0.143;
    println!("{counted:?}: NAKs per datagram that anyone lost {:.2}", counted.naks as f64 / lost);
    assert!(counted.naks as f64 <= 1.3 * lost && counted.parities == 0, "{counted:?}");
}

/// The rows `ord-loss-…` of the figures without what processors take: a message each 10 µs, 2,000 ahead of the slowest one.
#[test]
fn goodput_under_loss_is_near_that_without() {
    let time = |loss: u64, bursts: Option<Vec<u64>>| {
        let mut net = parity_net(4, loss, 7);
        (net.is_even, net.bursts) = (true, bursts);
        net.nodes[0].multicast.lock().keep_backlog(limits::RELIABLE_BACKLOG_BYTES);
        net.nodes[0].use_parities();
        net.install(2, &[0, 1, 2, 3]);
        let (start, mut sent) = (net.now, 0);
        loop {
            let slowest = (1..4).map(|node| net.got[node].len()).min().expect("there are three");
            if slowest == 20_000 {
                return (net.now - start) as f64;
            }
            if sent < 20_000.min(slowest + 2_000) && net.publish(0, "c1/a", &[7; 1_000]).is_ok() {
                sent += 1;
            }
            net.run(net.now + 10);
            assert!(net.now - start < 10 * SECOND, "{sent} of 20,000");
        }
    };
    let lossless = time(0, None);
    for (what, took, goal) in [
        ("1 %", time(10, None), 0.9),
        ("5 %", time(50, None), 0.7),
        ("bursts", time(0, Some(vec![0, 0, 333, 666])), 0.7),
    ] {
        println!("{what}: {:.2} of {:.0} messages/s", lossless / took, 20_000.0 * 1e6 / lossless);
        assert!(lossless / took >= goal, "{what}: {:.2}", lossless / took);
    }
}

#[test]
fn ordered_records_are_rebuilt_too() {
    let mut net = Net::new(12, 100, 3);
    net.nodes.iter_mut().for_each(Sequencer::use_parities);
    net.order(1, &(0..12).collect::<Vec<_>>());
    publish_to_all(&mut net, Guarantee::Ordered, 2_000);
    assert!(count(&net).parities > 0);
    let rebuilt: u64 = net.nodes[1..].iter().filter_map(|it| Some(it.rebuild.as_ref()?.rebuilt())).sum();
    assert!(rebuilt > 1_000, "{rebuilt} were rebuilt");
}

/// An insider makes parities up: of other lengths, of records that nobody sent, of one block twice, without end.
#[test]
fn rule_g8_false_parities_cost_bounded_memory_and_deliver_nothing() {
    let mut net = parity_net(3, 0, 1);
    for n in 0..100_u32 {
        net.publish(0, "c1/a", &n.to_be_bytes()).expect("there is room");
        net.run(net.now + 100);
    }
    net.run(net.now + SECOND);
    let forger = Ring::member(1, 2, 3);
    let stream = Stream { domain: Domain(1), signed: false };
    let mut counter = 1 << 20;
    let mut say = |net: &mut Net, body: &[u8]| {
        let mut frames = Vec::new();
        write_control(body, &mut frames);
        counter += 1;
        net.hear(0, 1, &mut forger.forge(Domain::GROUP, 0, Slot(0), counter, &frames));
    };
    let mut false_ones = Vec::new();
    for (first, parities, index, length) in [
        (65, 32, 0, 200),
        (65, 32, 0, 200),
        (65, 32, 1, 202),
        (65, 31, 1, 200),
        (65, 32, 32, 200),
        (65, 33, 0, 200),
        (65, 32, 2, 201),
        (66, 32, 2, 200),
        (0, 32, 2, 200),
        (1 << 40, 32, 2, 200),
        (129, 32, 2, 200),
        (u64::MAX, 32, 2, 200),
    ] {
        let mut body = Vec::new();
        ParityHead { stream, first, parities, index }.write(&vec![9; length], &mut body);
        false_ones.push(body);
    }
    false_ones.iter().for_each(|body| say(&mut net, body));
    for index in 0..32 {
        let mut body = Vec::new();
        ParityHead { stream, first: 65, parities: 32, index }.write(&[index; 200], &mut body);
        say(&mut net, &body);
    }
    let held = |net: &Net| net.nodes[1].rebuild.as_ref().map_or(0, Rebuild::bytes);
    let before = held(&net);
    assert!((32 * 200..64 * 200).contains(&before), "{before}");
    (0..1_000).for_each(|n| say(&mut net, &false_ones[n % false_ones.len()]));
    assert_eq!(held(&net), before);
    // With these, the false ones are enough to decode: what comes out is opened, and refused.
    for n in 100..128_u32 {
        net.publish(0, "c1/a", &n.to_be_bytes()).expect("there is room");
        net.run(net.now + 100);
    }
    net.run(net.now + SECOND);
    assert_eq!(net.of(1, 0).len(), 128);
    assert!(net.of(1, 0).iter().zip(0_u32..).all(|(got, n)| **got == n.to_be_bytes()));
}

#[test]
fn rule_g2_a_shard_is_a_record_of_its_stream_or_malformed() {
    let sealer = Ring::member(1, 0, 2);
    let mut sealed = vec![0; HEADER_LEN + 100 + 16];
    sealer.seal(Domain(1), FLAG_RELIABLE, &mut sealed).expect("it has the key");
    let stream = Stream { domain: Domain(1), signed: false };
    let whose = (sealer.epoch(), Slot(0));
    let shard = shard(&sealed).expect("it is a record");
    let read = |shard: &[u8], stream| crate::multicast::parity::datagram(shard, whose, (stream, 1));
    assert_eq!(read(&shard, stream), Ok(sealed));
    for n in 0..shard.len() {
        assert!(read(&shard[..n], stream).is_err());
    }
    for other in
        [Stream { signed: true, ..stream }, Stream { domain: Domain(2), ..stream }, Stream::ORDERED, Stream::STAMPS]
    {
        assert!(read(&shard, other).is_err());
    }
    assert_eq!(PARITY_BLOCK, 64);
}
