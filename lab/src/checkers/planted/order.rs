//! A planted fault for each checker of an order that members make.

use super::*;

const T: &str = "t";

fn topic() -> [Arc<str>; 1] {
    [T.into()]
}

fn epoch(counter: u32) -> EpochId {
    EpochId { counter, hash: u64::from(counter) }
}

/// A node shows a view of these.
fn shows(node: usize, counter: u32, members: &[usize]) -> (usize, Event) {
    (node, Event::Installed(Arc::new(view(counter, members, node, Change::Formed)), None))
}

fn orders(node: usize, by: Option<usize>) -> (usize, Event) {
    (node, Event::Sequencer(by.map(|it| member(it).id.cert)))
}

/// A node gets the message of an author with that number, at a position, sealed in that epoch.
fn gets(node: usize, at: u64, (author, number): (u32, u64), counter: u32) -> (usize, Event) {
    let (topic, body, epoch) = (T.into(), body(author, number), Some(epoch(counter)));
    (node, Event::Delivered { sequence: at, topic, body, origin: Origin::Anonymous, epoch })
}

fn publishes(author: u32, number: u64) -> (usize, Event) {
    (author as usize, published(&body(author, number)))
}

fn acknowledged(author: u32, number: u64, at: u64) -> (usize, Event) {
    (author as usize, Event::Ordered(Body { author, life: 1, number }, at))
}

#[test]
fn rule_b1_two_primaries_that_order_in_parallel_are_reported() {
    let of = |story: &[(usize, Event)]| told(OnePrimary::of(topic()), story);
    let parted = [shows(0, 2, &[0, 1]), shows(2, 3, &[2, 3]), orders(0, Some(0)), orders(2, Some(2))];
    let one_goes_on = [gets(0, 5, (0, 1), 2), gets(0, 6, (0, 2), 2), gets(2, 7, (2, 1), 3), gets(0, 6, (0, 2), 2)];
    assert_eq!(of(&[&parted[..], &one_goes_on].concat()), [""; 0]);
    for both in [
        [gets(0, 5, (0, 1), 2), gets(2, 5, (2, 1), 3), gets(0, 7, (0, 2), 2)],
        [gets(0, 5, (0, 1), 2), gets(2, 6, (2, 1), 3), gets(0, 7, (0, 2), 2)],
        [gets(0, 5, (0, 1), 2), gets(0, 7, (0, 2), 2), gets(2, 6, (2, 1), 3)],
        [gets(0, 7, (0, 1), 2), gets(2, 6, (2, 1), 3), gets(0, 5, (0, 2), 2)],
    ] {
        assert!(!of(&[&parted[..], &both].concat()).is_empty());
    }
}

#[test]
fn rule_b1_an_order_in_a_view_that_is_not_primary_is_reported() {
    let of = |story: &[(usize, Event)]| told(OnePrimary::of(topic()), story);
    let first = [shows(0, 1, &[0, 1]), orders(0, Some(0)), gets(0, 1, (0, 1), 1)];
    let parted = [shows(0, 2, &[0]), orders(0, None)];
    let with = |last| of(&[&first[..], &parted, &[last]].concat());
    assert!(with(gets(0, 2, (0, 2), 2))[0].contains("does not order"));
    assert_eq!(with(gets(0, 2, (0, 2), 1)), [""; 0], "what was ordered before comes after all");
}

#[test]
fn rule_d2_members_that_saw_a_fork_and_meet_again_are_reported() {
    let of = |story: &[(usize, Event)]| told(ForkConsistency::of(topic()), story);
    let forked = [gets(0, 5, (0, 1), 1), gets(1, 5, (1, 1), 1), gets(2, 5, (1, 1), 1)];
    let apart =
        [gets(0, 6, (0, 2), 1), gets(1, 6, (1, 2), 1), gets(2, 6, (1, 2), 1), shows(1, 2, &[1]), shows(2, 2, &[2])];
    assert_eq!(of(&[&forked[..], &apart].concat()), [""; 0]);
    assert!(of(&[&forked[..], &[gets(0, 6, (0, 2), 1), gets(1, 6, (0, 2), 1)]].concat())[0].contains("the same again"));
    assert!(of(&[&forked[..], &[shows(0, 2, &[0]), shows(1, 2, &[1])]].concat())[0].contains("have both epoch"));
    assert!(of(&[&forked[..], &[(0, Event::Started), gets(0, 5, (1, 1), 1)]].concat())[0].contains("than before"));
    assert!(of(&[&forked[..], &[gets(1, 4, (0, 2), 1)]].concat())[0].contains("after"));
}

#[test]
fn rule_b3_two_sequencers_of_one_view_are_reported() {
    let story = [
        shows(0, 1, &[0, 1]),
        shows(1, 1, &[0, 1]),
        orders(0, Some(0)),
        orders(1, Some(1)),
        gets(0, 1, (0, 1), 1),
        gets(1, 1, (0, 1), 1),
    ];
    assert!(told(OnePrimary::of(topic()), &story)[0].contains("different sequencers"));
}

#[test]
fn rule_b4_another_list_in_one_view_is_reported() {
    let of = |story: &[(usize, Event)]| told(SameView::of(topic()), story);
    let all = [gets(0, 1, (0, 1), 1), gets(0, 2, (0, 2), 1)];
    let with = |story: &[(usize, Event)]| of(&[&all[..], story].concat());
    assert_eq!(with(&[gets(1, 1, (0, 1), 1)]), [""; 0], "a prefix");
    assert!(with(&[gets(1, 2, (0, 2), 1)])[0].contains("as message 0"), "it begins later");
    assert!(with(&[gets(1, 1, (0, 1), 1), gets(1, 2, (1, 1), 1)])[0].contains("as message 1"));
    // Both go on to the next view, one of them without the last message.
    let short = [gets(1, 1, (0, 1), 1), gets(0, 3, (0, 3), 2), gets(1, 3, (0, 3), 2)];
    assert!(with(&short)[0].contains("after 1 messages"));
    let told_so = [gets(1, 1, (0, 1), 1), gets(0, 3, (0, 3), 2), (1, Event::Gap(9)), gets(1, 3, (0, 3), 2)];
    assert_eq!(with(&told_so), [""; 0]);
}

#[test]
fn rule_b4_other_members_of_one_view_are_reported() {
    let story = [shows(0, 1, &[0, 1]), shows(1, 1, &[0, 1, 2])];
    assert!(told(SameView::of(topic()), &story)[0].contains("another one"));
}

#[test]
fn an_effect_before_its_cause_is_reported() {
    let of = |story: &[(usize, Event)]| told(Causal::of(topic(), ["f".into()]), story);
    let cause = [publishes(0, 1), gets(1, 5, (0, 1), 1), publishes(1, 1)];
    let with = |at| of(&[&cause[..], &[gets(2, at, (1, 1), 1)]].concat());
    assert_eq!(with(6), [""; 0]);
    assert!(with(4)[0].contains("published after what is at 5"));
    // Of one publisher.
    let own = [publishes(0, 1), publishes(0, 2), gets(1, 5, (0, 2), 1), gets(1, 6, (0, 1), 1)];
    assert!(of(&own)[0].contains("number 2 of its publisher"));
    let (topic, body, origin) = ("f".into(), body(0, 1), Origin::Anonymous);
    let fifo = (1, Event::Delivered { sequence: 1, topic, body, origin, epoch: Some(epoch(1)) });
    assert!(of(&[shows(1, 1, &[0, 1]), gets(1, 5, (0, 2), 1), fifo])[0].contains("ordered after it"));
}

#[test]
fn an_order_that_disagrees_with_real_time_is_reported() {
    let of = |story: &[(usize, Event)]| told(Linearizable::of(topic()), story);
    let first = [publishes(0, 1), acknowledged(0, 1, 5), publishes(1, 1)];
    let with = |story: &[(usize, Event)]| of(&[&first[..], story].concat());
    assert_eq!(with(&[acknowledged(1, 1, 6)]), [""; 0]);
    assert!(with(&[acknowledged(1, 1, 4)])[0].contains("published after 5"));
    assert!(with(&[gets(2, 4, (1, 1), 1)])[0].contains("published after 5"));
    // A read that is no prefix.
    assert!(with(&[gets(2, 4, (3, 1), 1), gets(2, 6, (1, 1), 1)])[0].contains("without"));
    assert_eq!(with(&[gets(2, 4, (3, 1), 1), (2, Event::Gap(9)), gets(2, 6, (1, 1), 1)]), [""; 0]);
}

#[test]
fn rule_b2_an_acknowledged_message_that_is_lost_is_reported() {
    let of = |story: &[(usize, Event)]| told(Acknowledged::of(topic()), story);
    assert!(of(&[acknowledged(0, 1, 5)])[0].contains("nobody saw it"));
    let both = [shows(0, 1, &[0, 1]), shows(1, 1, &[0, 1]), acknowledged(0, 1, 5), gets(0, 5, (0, 1), 1)];
    assert!(of(&both)[0].contains("never came to node 1"));
    for excuse in [Event::Stopped, Event::Excluded, Event::Gap(9)] {
        assert_eq!(of(&[&both[..], &[(1, excuse)]].concat()), [""; 0]);
    }
    assert_eq!(of(&[&both[..], &[orders(1, None)]].concat()), [""; 0], "its majority is gone for good");
    assert!(!of(&[&both[..], &[orders(1, None), orders(1, Some(0))]].concat()).is_empty());
}

#[test]
fn two_messages_that_are_acknowledged_at_one_position_are_reported() {
    let of = |story: &[(usize, Event)]| told(Acknowledged::of(topic()), story);
    let twice = [gets(0, 5, (0, 1), 1), acknowledged(0, 1, 5), acknowledged(1, 1, 5)];
    assert!(of(&twice)[0].contains("are acknowledged at 5"));
    assert!(of(&[acknowledged(0, 1, 5), gets(1, 5, (1, 1), 1)])[0].contains("where node 1 gets"));
    assert!(of(&[gets(1, 5, (1, 1), 1), acknowledged(0, 1, 5)])[0].contains("was delivered"));
}

#[test]
fn a_gap_in_an_ordered_topic_that_is_not_told_is_reported() {
    let start = [shows(0, 1, &[0, 1]), shows(1, 1, &[0, 1]), publishes(0, 1), publishes(0, 2)];
    let of = |story: &[(usize, Event)]| told(Fifo::ordered(topic()), &[&start[..], story].concat());
    assert!(of(&[gets(1, 2, (0, 2), 1)])[0].contains("without"));
    assert_eq!(of(&[(1, Event::Gap(9)), gets(1, 2, (0, 2), 1)]), [""; 0]);
    // Its sender misses some, and does not know what became of it.
    let lost = [(0, Event::Gap(9)), gets(1, 2, (0, 2), 1)];
    let doubted = Event::Doubted(Body { author: 0, life: 1, number: 1 });
    assert_eq!(of(&[&lost[..], &[(0, doubted)]].concat()), [""; 0]);
    assert!(of(&lost)[0].contains("without"));
}
