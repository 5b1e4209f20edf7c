//! Records that wait, with a scheme and a way that do what the test says.

use sealcast_keys as keys;
use sealcast_wire::{Change, Domain, Drops, Flush, Slot};

use super::super::tests::{BEST_EFFORT, NOW, Script, Story, Wire, drain, group_over, installed, view};
use super::*;

/// A datagram of this epoch, as far as its header tells.
fn datagram(counter: u32, bytes: usize) -> Vec<u8> {
    let epoch = EpochId { counter, hash: 0 };
    let mut datagram = vec![0; bytes];
    let counter_of_first = Header::counting(ORDERED) | 1;
    Header { domain: Domain(1), epoch, slot: Slot(0), flags: ORDERED, counter: counter_of_first }.write(&mut datagram);
    datagram
}

fn sent(index: u64, client: u8, datagram: Vec<u8>) -> Record {
    Record { index, from: Source::Client { key: [client; 32], epoch: EpochId::default() }, ours: None, datagram }
}

/// Two members, of which a change that is under way excludes one: records wait.
fn waiting() -> (Group<Script, Wire>, Story) {
    let (mut group, story) = group_over(BEST_EFFORT, vec![installed(1, 2, Change::Formed)], true);
    drain(&mut group);
    group.ordered.as_mut().expect("it places").by_order = true;
    group.keys.outputs.push_back(keys::Output::Prepare { view: view(2, 1, Change::Suspected), flush: Flush::Now });
    drain(&mut group);
    (group, story)
}

fn at(now: Now, more: Duration) -> Now {
    Now { monotonic: now.monotonic + more, utc: None }
}

const LONG: usize = 32 << 10;

#[test]
fn rule_g7_a_flood_while_the_key_changes_makes_the_order_wait_and_voids_nothing() {
    let (mut group, story) = waiting();
    let half = limits::ORDERED_BYTES_MAX / 2 / LONG;
    let told = |what: &str| lock(&story).iter().filter(|it| *it == what).count();
    for index in 0..half {
        assert_eq!(told("hold true"), 0);
        group.take_record(NOW, sent(index as u64, 3, datagram(1, LONG)));
    }
    assert_eq!((told("hold true"), told("hold false")), (1, 0));
    // What was under way still comes, and is not judged by how much it is.
    for index in half..half + 100 {
        group.take_record(NOW, sent(index as u64, 4, datagram(1, LONG)));
    }
    assert_eq!(group.ordered.as_ref().map(|it| it.waiting.len()), Some(half + 100));
    assert_eq!(group.drops(), &Drops::default());
    // The change is off: all of it passes, and the order goes on.
    group.keys.outputs.push_back(keys::Output::Abandoned);
    drain(&mut group);
    assert_eq!(group.ordered.as_ref().map(|it| it.waiting.len()), Some(0));
    assert_eq!((told("hold true"), told("hold false")), (1, 1));
}

#[test]
fn rule_g7_a_member_that_cannot_follow_leaves_visibly_instead_of_delivering_something_else() {
    let (mut group, _) = waiting();
    let full = limits::ORDERED_BYTES_MAX / LONG;
    for index in 0..full {
        group.take_record(NOW, sent(index as u64, 3, datagram(1, LONG)));
    }
    assert_eq!(group.excluded, None);
    group.take_record(NOW, sent(full as u64, 4, datagram(1, LONG)));
    assert_eq!(group.excluded, Some(Exclusion::Behind));
    assert!(drain(&mut group).iter().any(|it| it.contains("Behind")), "the application is told");
    group.take_record(NOW, sent(full as u64 + 1, 4, datagram(1, LONG)));
    assert_eq!(group.drops().of(Dropped::Queue), 2, "and nothing is delivered any more");
}

#[test]
fn rule_g8_made_up_epochs_of_one_client_make_the_others_wait_once() {
    let (mut group, _) = group_over(BEST_EFFORT, vec![installed(1, 2, Change::Formed)], true);
    drain(&mut group);
    let ordered = group.ordered.as_mut().expect("it places");
    ordered.insiders.insert([3; 32]);
    for index in 0..50 {
        group.take_record(NOW, sent(index, 3, datagram(7 + index as u32, 64)));
    }
    assert_eq!(group.ordered.as_ref().map(|it| it.waiting.len()), Some(50), "one of these keys may be on its way");
    group.handle_timeout(at(NOW, limits::EPOCH_OVERLAP));
    assert_eq!(group.ordered.as_ref().map(|it| it.waiting.len()), Some(0), "none was");
    group.take_record(at(NOW, limits::EPOCH_OVERLAP), sent(60, 3, datagram(99, 64)));
    assert_eq!(group.ordered.as_ref().map(|it| it.waiting.len()), Some(0));
    assert_eq!(group.drops().of(Dropped::NoKey), 51);
}

#[test]
fn rule_g8_who_was_excluded_makes_nobody_wait_any_more() {
    let (mut group, _) = group_over(BEST_EFFORT, vec![installed(1, 2, Change::Formed)], true);
    drain(&mut group);
    group.ordered.as_mut().expect("it places").insiders.insert([3; 32]);
    group.keys.outputs.push_back(installed(2, 1, Change::Evicted));
    drain(&mut group);
    group.take_record(NOW, sent(1, 3, datagram(9, 64)));
    assert_eq!(group.ordered.as_ref().map(|it| it.waiting.len()), Some(0));
}

/// Two members in epoch 1, where a commit has a position.
fn with_commits() -> Group<Script, Wire> {
    let (mut group, _) = group_over(BEST_EFFORT, vec![installed(1, 2, Change::Formed)], true);
    drain(&mut group);
    let ordered = group.ordered.as_mut().expect("it places");
    ordered.keys = KeysIn::Commits;
    ordered.insiders.insert([3; 32]);
    group
}

fn ends_at(position: u64) -> keys::Output {
    keys::Output::Prepare { view: view(3, 2, Change::Rekeyed), flush: Flush::At(position) }
}

#[test]
fn rule_b4_an_epoch_that_is_known_late_ends_at_its_commit_all_the_same() {
    let mut group = with_commits();
    for index in [4, 6] {
        group.take_record(NOW, sent(index, 3, datagram(2, 64)));
    }
    group.keys.outputs.extend([installed(2, 2, Change::Joined), ends_at(5)]);
    drain(&mut group);
    assert_eq!(group.ordered.as_ref().map(|it| it.waiting.len()), Some(0));
    assert_eq!(group.drops().of(Dropped::OldKey), 1, "its author seals the later one again");
}

#[test]
fn what_a_run_before_delivered_does_not_come_again_and_the_scheme_learns_what_passed() {
    let (mut group, story) = group_over(BEST_EFFORT, vec![], true);
    group.ordered.as_mut().expect("it places").keys = KeysIn::Commits;
    let epoch = view(1, 2, Change::Formed).epoch;
    group.keys.outputs.push_back(keys::Output::DeliveredBefore { epoch, until: 7 });
    drain(&mut group);
    let passed = || lock(&story).iter().filter(|it| it.starts_with("passed")).cloned().collect::<Vec<_>>();
    for index in 5..8 {
        group.take_record(NOW, sent(index, 3, datagram(1, 100)));
    }
    assert_eq!((passed(), group.drops()), (vec![], &Drops::default()));
    // Of another epoch, or behind it.
    group.take_record(NOW, sent(7, 3, datagram(2, 100)));
    group.take_record(NOW, sent(8, 3, datagram(1, 100)));
    assert_eq!((passed(), group.untold()), (vec![], Some(8)), "nobody has read it");
    group.taken(NOW, Some(8));
    assert_eq!((passed(), group.untold()), (vec!["passed 7".to_owned()], Some(8)));
    group.taken(NOW, Some(12));
    group.taken(NOW, None);
    assert_eq!((passed(), group.untold()), (vec!["passed 7".to_owned(), "passed 8".to_owned()], None));
}

#[test]
fn rule_b4_a_record_before_a_commit_counts_however_long_another_one_kept_it_waiting() {
    let mut group = with_commits();
    group.take_record(NOW, sent(1, 3, datagram(9, 64)));
    group.take_record(NOW, sent(2, 4, datagram(1, 64)));
    group.keys.outputs.push_back(ends_at(3));
    drain(&mut group);
    group.handle_timeout(at(NOW, limits::EPOCH_OVERLAP));
    assert_eq!(group.ordered.as_ref().map(|it| it.waiting.len()), Some(0));
    assert_eq!((group.drops().of(Dropped::NoKey), group.drops().of(Dropped::OldKey)), (1, 0));
}

#[test]
fn what_was_superseded_before_it_had_a_position_is_sealed_again_in_the_order_of_its_author() {
    let (mut group, story) = group_over(BEST_EFFORT, vec![installed(1, 2, Change::Formed)], true);
    drain(&mut group);
    lock(&story).clear();
    let publish = |group: &mut Group<Script, Wire>, body: u8| {
        let guarantee = sealcast_wire::Guarantee::Ordered;
        group.publish(NOW, Publication { topic: "t", body: &[body], guarantee, sent_micros: None }).expect("taken")
    };
    let [first, second] = [1, 2].map(|body| publish(&mut group, body));
    let sent = || lock(&story).iter().filter(|it| it.starts_with("send")).cloned().collect::<Vec<_>>();
    assert_eq!(sent(), ["send [1]", "send [2]"]);
    // Both wait to be appended.
    drain(&mut group);
    let became =
        |token| sealcast_delivery::Output::Outcome(token, Outcome::Superseded(EpochId { counter: 2, hash: 0 }));
    group.delivery.outputs.push_back(became(first));
    assert_eq!((drain(&mut group), sent().len()), (vec![], 2), "it waits until the second one is back, too");
    publish(&mut group, 3);
    assert_eq!(sent().len(), 2, "as does what is published meanwhile");
    group.delivery.outputs.push_back(became(second));
    assert!(drain(&mut group).iter().all(|it| !it.contains("Outcome")), "nothing has become of them");
    assert_eq!(sent()[2..], ["send [1]", "send [2]", "send [3]"]);
}
