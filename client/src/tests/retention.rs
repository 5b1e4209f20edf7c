//! Readers who come back to brokers that no longer keep all of it, or that keep it differently far back.

use sealcast_broker::operation::Publication;

use super::broker::{Behaviour, Broker, LIARS};
use super::world::{World, publication};
use super::{Output, fixture, publish_some, subscribe};

#[test]
fn rule_e9_who_comes_back_too_late_learns_what_is_lost_and_goes_on_with_the_oldest_that_is_kept() {
    for seed in 0..30 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        let [trader, _, first, _] = fixture(&mut world);
        subscribe(&mut world, &[trader]);
        publish_some(&mut world, first, &[trader], 4);
        let member = &mut world.members[trader];
        member.told.record = Some(member.quorum.record());
        member.told.subscribed.clear();
        world.restart(trader);
        // Nobody reads while more is published, and pruned.
        let read = world.members[trader].told.delivered.len();
        publish_some(&mut world, first, &[], 9);
        world.run(2_000_000);
        world.brokers.iter_mut().for_each(Broker::prune);
        let now = world.now();
        world.members[trader].quorum.subscribe(now, "#".parse().expect("an interest")).expect("there is room");
        publish_some(&mut world, first, &[], 5);
        world.until(60_000_000, |it| it.members[trader].told.delivered.len() >= read + 5);
        let told = &world.members[trader].told;
        let lost = told.others.iter().filter_map(|it| match it {
            Output::Lost { place, count, .. } => Some((*place, *count)),
            _ => None,
        });
        assert_eq!(lost.collect::<Vec<_>>(), [(4, 9)], "seed {seed}");
        let places: Vec<u64> = told.delivered.iter().map(|it| it.place).collect();
        assert_eq!(places, [0, 1, 2, 3, 13, 14, 15, 16, 17], "seed {seed}: places are what they were");
        assert_eq!(told.skipped, 0, "seed {seed}");
    }
}

/// A reader that has subscribed to everything and is away, so that it lacks what follows.
fn absent(world: &mut World) -> [usize; 2] {
    let [reader, _, writer, _] = fixture(world);
    subscribe(world, &[reader]);
    world.run(300_000);
    let member = &mut world.members[reader];
    member.told.record = Some(member.quorum.record());
    member.told.subscribed.clear();
    world.restart(reader);
    [reader, writer]
}

/// So many publications that anybody may read, executed by all.
fn publish_many(world: &mut World, writer: usize, topic: &str, count: usize) {
    for n in 0..count {
        let now = world.now();
        let it: Publication = publication(&[topic], &n.to_be_bytes());
        world.members[writer].quorum.publish(now, it).expect("there is room");
        if n % 64 == 63 {
            world.run(30_000);
        }
    }
    world.run(300_000);
}

/// The reader comes back: what it is told is lost, and which places it is given.
fn back(world: &mut World, reader: usize, places: u64) -> (u64, Vec<u64>) {
    let now = world.now();
    world.members[reader].quorum.subscribe(now, "#".parse().expect("an interest")).expect("there is room");
    let lost = |world: &World| {
        let all = world.members[reader].told.others.iter();
        all.filter_map(|it| if let Output::Lost { count, .. } = it { Some(*count) } else { None }).sum::<u64>()
    };
    world.until(60_000_000, |it| lost(it) + it.members[reader].told.delivered.len() as u64 >= places);
    (lost(world), world.members[reader].told.delivered.iter().map(|it| it.place).collect())
}

/// In the order of brokers, after how many tens of publications each pruned what was before.
fn kept_differently(seed: u64, tens: [usize; 4], each: usize, liar: Option<Behaviour>) -> (u64, Vec<u64>) {
    let mut world = World::new(seed, 1, liar.unwrap_or(Behaviour::Honest));
    let [reader, writer] = absent(&mut world);
    for ten in 0..10 {
        for (broker, tens) in tens.iter().enumerate() {
            if ten > 0 && *tens == ten {
                world.brokers[broker].prune();
            }
        }
        publish_many(&mut world, writer, "open", each);
    }
    back(&mut world, reader, 10 * each as u64)
}

#[test]
fn rule_e9_a_place_that_f_plus_1_brokers_keep_is_not_lost_whatever_the_others_keep() {
    let all = |tens: std::ops::Range<u64>| tens.collect::<Vec<u64>>();
    // Two keep all, whichever of the four; the others begin where the two do not, each elsewhere.
    for tens in [[5, 9, 0, 0], [0, 0, 5, 9], [9, 0, 0, 5], [0, 5, 9, 0]] {
        for seed in 0..4 {
            assert_eq!(kept_differently(seed, tens, 4, None), (0, all(0..40)), "seed {seed}: {tens:?}");
        }
    }
    // Only one keeps all: what a second one has is read from the two.
    for tens in [[0, 3, 6, 9], [9, 6, 3, 0], [3, 9, 0, 6]] {
        for seed in 0..4 {
            assert_eq!(kept_differently(seed, tens, 4, None), (12, all(12..40)), "seed {seed}: {tens:?}");
        }
    }
}

#[test]
fn rule_e9_who_keeps_differently_by_more_than_a_page_is_followed_page_by_page() {
    // A page is 128 publications here, and no two brokers begin within one of each other.
    let places: Vec<u64> = (600..2000).collect();
    for (seed, tens) in [[0, 3, 6, 9], [9, 6, 3, 0], [3, 9, 0, 6]].into_iter().enumerate() {
        let (lost, found) = kept_differently(seed as u64, tens, 200, None);
        assert_eq!((lost, found.first(), found.len()), (600, Some(&600), 1400), "{tens:?}");
        assert!(found == places, "{tens:?}: in order");
    }
}

#[test]
fn rule_e1_a_liar_among_those_who_keep_differently_makes_nobody_wait_and_nothing_up() {
    for seed in 0..6 {
        for liar in LIARS {
            for tens in [[0, 0, 3, 6], [6, 3, 0, 0], [0, 3, 6, 9]] {
                let (lost, places) = kept_differently(seed, tens, 4, Some(liar));
                // All that is told is told in order and once; how much is lost hangs on who lies.
                assert_eq!(places, (lost..40).collect::<Vec<u64>>(), "seed {seed}: {liar:?} among {tens:?}");
            }
        }
    }
}

#[test]
fn a_reader_for_whom_nothing_came_does_not_look_through_the_past_at_each_return() {
    for seed in 0..10 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        let [reader, _, writer, _] = fixture(&mut world);
        let rare = || "rare".parse().expect("an interest");
        let now = world.now();
        world.members[reader].quorum.subscribe(now, rare()).expect("there is room");
        assert!(world.until(20_000_000, |it| it.members[reader].told.subscribed.len() == 1));
        publish_many(&mut world, writer, "open", 40);
        let looked = next_sn(&world);
        // It ends and comes back while others publish, so that brokers welcome it at different blocks.
        let member = &mut world.members[reader];
        member.told.record = Some(member.quorum.record());
        world.restart(reader);
        let now = world.now();
        world.members[reader].quorum.subscribe(now, rare()).expect("there is room");
        publish_many(&mut world, writer, "open", 40);
        let line = world.members[reader].quorum.lines.values().next().expect("it stands");
        assert!(line.taken.1.0 == 0 && line.taken.1.1 >= looked, "seed {seed}: {:?} and not {looked}", line.taken);
    }
}

#[test]
fn a_reader_that_is_interrupted_while_it_looks_goes_on_where_it_has_come_to() {
    let mut world = World::new(1, 1, Behaviour::Honest);
    let [reader, _, writer, _] = fixture(&mut world);
    let rare = || "rare".parse().expect("an interest");
    let now = world.now();
    world.members[reader].quorum.subscribe(now, rare()).expect("there is room");
    assert!(world.until(20_000_000, |it| it.members[reader].told.subscribed.len() == 1));
    let member = &mut world.members[reader];
    member.told.record = Some(member.quorum.record());
    world.restart(reader);
    publish_many(&mut world, writer, "open", 2000);
    publish_many(&mut world, writer, "rare", 1);
    let mut before = (0, 0);
    let mut returns = 0;
    while world.members[reader].told.delivered.is_empty() {
        let now = world.now();
        world.members[reader].quorum.subscribe(now, rare()).expect("there is room");
        // Time for some of its pages.
        world.run(45_000);
        let member = &mut world.members[reader];
        member.told.record = Some(member.quorum.record());
        let line = member.quorum.lines.values().next().expect("it stands");
        assert!(line.taken.1 >= before, "it never goes back");
        before = line.taken.1;
        returns += 1;
        assert!(returns < 60, "it came no further than {before:?}");
        world.restart(reader);
    }
    assert!(returns > 1, "it was interrupted");
}

fn next_sn(world: &World) -> u64 {
    world.brokers.iter().map(|it| it.state.next_sn()).min().expect("there are brokers")
}
