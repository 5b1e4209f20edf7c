//! Sessions without keys over the in-memory transports.

use sealcast_delivery::memory::{BestEffort, Ordered, Orderer, Start};
use sealcast_keys::plain::Plain;
use sealcast_wire::{Guarantee, Incarnation};

use super::*;
use crate::group::message::From;
use crate::url::OriginMode;

const ORDERER: Address = Address::Node(0);

fn now(millis: u64) -> Now {
    Now { monotonic: Monotonic(millis * 1000), utc: None }
}

/// From 100 on, who has not read what has that position.
impl Reader for u8 {
    fn first_unread(&self) -> Option<u64> {
        Some(u64::from(*self)).filter(|it| *it >= 100)
    }
}

#[test]
fn what_lay_unread_with_who_unsubscribes_counts_as_unread_if_the_session_ends_next() {
    let (subscriptions, at) = (Subscriptions::<u8>::default(), |millis| now(millis).monotonic);
    [120, 7, 130].into_iter().for_each(|it| subscriptions.add(Filter::pattern("a").unwrap(), it));
    assert_eq!(subscriptions.first_unread(at(0)), Some(120));
    subscriptions.leave(at(0), &120, |it| *it == 120);
    subscriptions.leave(at(900), &130, |it| *it == 130);
    assert_eq!((subscriptions.first_unread(at(901)), subscriptions.is_empty()), (Some(120), false));
    assert_eq!(subscriptions.first_unread(at(1900)), None);
}

fn session<D: Delivery>(delivery: D) -> Core<Plain, D, u8> {
    let keys = Plain::new("robot7", Incarnation([7; 16]));
    Core::new(Group::new(keys, delivery, OriginMode::Auto).expect("no keys need nothing"))
}

fn publish<D: Delivery>(session: &mut Core<Plain, D, u8>, topic: &str, guarantee: Guarantee) {
    let message = Publication { topic, body: b"x", guarantee, sent_micros: None };
    session.publish(now(0), message).expect("it is taken");
}

/// What a session wants done; its datagrams, with where they go.
fn drain<D: Delivery>(session: &mut Core<Plain, D, u8>, at: Now) -> (Vec<Output<u8>>, Vec<Vec<u8>>) {
    let (mut outputs, mut sent) = (Vec::new(), Vec::new());
    let mut batch = Batch::default();
    while let Some(output) = session.poll(at, &mut batch) {
        match output {
            Output::Transmit(_) => sent.extend(batch.iter().map(<[u8]>::to_vec)),
            other => outputs.push(other),
        }
        batch.clear();
    }
    (outputs, sent)
}

fn closed(outputs: &[Output<u8>]) -> Option<usize> {
    outputs.iter().find_map(|it| if let Output::Closed(unordered) = it { Some(*unordered) } else { None })
}

#[test]
fn a_message_goes_to_those_who_take_its_topic_as_subscriptions_change() {
    let (mut robot, mut screen) = (session(BestEffort::plain()), session(BestEffort::plain()));
    drain(&mut robot, now(0));
    drain(&mut screen, now(0));
    let subscriptions = screen.subscriptions();
    let mut readers = |topic: &str| {
        publish(&mut robot, topic, Guarantee::BestEffort);
        for mut datagram in drain(&mut robot, now(0)).1 {
            screen.handle_datagram(now(0), Address::Node(1), &mut datagram);
        }
        let readers = drain(&mut screen, now(0)).0.into_iter().find_map(|it| match it {
            Output::Deliver(readers, _) => Some(readers.to_vec()),
            _ => None,
        });
        readers.unwrap_or_default()
    };
    assert_eq!(readers("pose/robot7"), [0; 0]);
    subscriptions.add(Filter::pattern("pose/+").unwrap(), 1);
    subscriptions.add(Filter::regex("pose.*").unwrap(), 2);
    assert_eq!(readers("pose/robot7"), [1, 2]);
    assert_eq!(readers("pose"), [2]);
    assert!(subscriptions.wants("pose") && !subscriptions.wants("scan"));
    subscriptions.remove(|reader| *reader == 2);
    assert_eq!((readers("pose/robot7"), readers("pose")), (vec![1], vec![]));
}

#[test]
fn what_was_ordered_while_a_process_was_away_waits_for_who_subscribes_within_ten_seconds() {
    let mut screen = session(BestEffort::plain());
    drain(&mut screen, now(0));
    let message = |topic: &str, ordered| Message {
        from: From::Anonymous,
        topic: topic.into(),
        sequence: 7,
        ordered,
        sent_micros: None,
        payload: vec![0; 1 << 20],
    };
    let came = |screen: &mut Core<Plain, BestEffort, u8>, at| {
        let delivered =
            |it| if let Output::Deliver(to, it) = it { Some((it.topic().to_owned(), to.to_vec())) } else { None };
        drain(screen, now(at)).0.into_iter().filter_map(delivered).collect::<Vec<_>>()
    };
    screen.keep_early(now(0), message("a", true));
    assert!(screen.early.is_empty(), "it does not come back from anywhere");
    screen.group_mut().comes_back = true;
    for (topic, ordered) in [("a", true), ("b", true), ("a", false), ("a", true)] {
        screen.keep_early(now(0), message(topic, ordered));
    }
    assert_eq!(came(&mut screen, 1), []);
    let subscriptions = screen.subscriptions();
    subscriptions.add(Filter::pattern("a").unwrap(), 1);
    assert_eq!(came(&mut screen, 2), vec![("a".to_owned(), vec![1]); 2]);
    subscriptions.add(Filter::pattern("b").unwrap(), 2);
    assert_eq!(came(&mut screen, 3), [("b".to_owned(), vec![2])]);
    // The oldest give way to others, and time ends it.
    (0..9).for_each(|_| screen.keep_early(now(4), message("c", true)));
    assert!((1..5).contains(&screen.early.len()) && screen.early_bytes <= limits::UNSUBSCRIBED_BYTES_MAX);
    assert!(screen.timeout().is_some_and(|at| at <= now(10_000).monotonic));
    screen.handle_timeout(now(10_000));
    subscriptions.add(Filter::pattern("c").unwrap(), 3);
    screen.keep_early(now(10_001), message("c", true));
    assert_eq!((came(&mut screen, 10_001), screen.early.len()), (vec![], 0));
}

#[test]
fn a_session_leaves_when_its_messages_have_their_positions() {
    let mut robot = session(Ordered::plain(ORDERER, Start::Head, 1));
    let mut orderer = Orderer::new();
    drain(&mut robot, now(0));
    publish(&mut robot, "a", Guarantee::Ordered);
    publish(&mut robot, "b", Guarantee::Ordered);
    robot.close(now(0), true);
    assert_eq!((robot.unordered(), robot.is_closing()), (2, true));
    let (mut outputs, mut sent) = drain(&mut robot, now(0));
    for millis in 0..1000 {
        assert_eq!(closed(&outputs).is_some(), robot.unordered() == 0, "not before");
        if robot.unordered() == 0 {
            break;
        }
        sent.drain(..).for_each(|datagram| orderer.handle(Address::Node(1), &datagram));
        while let Some((_, mut datagram)) = orderer.poll() {
            robot.handle_datagram(now(millis), ORDERER, &mut datagram);
        }
        robot.handle_timeout(now(millis));
        (outputs, sent) = drain(&mut robot, now(millis));
    }
    assert_eq!(closed(&outputs), Some(0));
    assert_eq!((robot.tickets().published, robot.tickets().settled), (2, 2));
}

#[test]
fn a_session_whose_messages_get_no_position_leaves_all_the_same_and_says_how_many() {
    let mut robot = session(Ordered::plain(ORDERER, Start::Head, 1));
    drain(&mut robot, now(0));
    publish(&mut robot, "a", Guarantee::Ordered);
    robot.close(now(0), true);
    assert_eq!(closed(&drain(&mut robot, now(0)).0), None);
    let millis = u64::try_from(CLOSE_TIMEOUT_ORDERED.as_millis()).unwrap();
    robot.handle_timeout(now(millis - 1));
    assert_eq!(closed(&drain(&mut robot, now(millis - 1)).0), None);
    assert!(robot.timeout().is_some_and(|at| at <= now(millis).monotonic));
    robot.handle_timeout(now(millis));
    assert_eq!(closed(&drain(&mut robot, now(millis)).0), Some(1));
}

#[test]
fn a_session_without_acknowledgements_leaves_at_once_and_waits_for_its_shell() {
    let mut robot = session(BestEffort::plain());
    drain(&mut robot, now(0));
    publish(&mut robot, "a", Guarantee::BestEffort);
    assert_eq!(robot.unordered(), 0, "nobody tells");
    robot.close(now(0), true);
    assert_eq!(closed(&drain(&mut robot, now(0)).0), Some(0));
    let mut robot = session(Ordered::plain(ORDERER, Start::Head, 1));
    drain(&mut robot, now(0));
    robot.close(now(0), false);
    assert_eq!(closed(&drain(&mut robot, now(0)).0), None);
    robot.shell_is_settled(now(1), true);
    assert_eq!(closed(&drain(&mut robot, now(1)).0), Some(0));
    robot.close(now(2), true);
    assert_eq!(closed(&drain(&mut robot, now(2)).0), None, "once");
}
