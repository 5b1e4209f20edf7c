//! A hundred seeds of every story of a group whose keys come from a centre, fifty of those that take long, and a planted fault
//! for each liar of them.

use sealcast_keys::center::misbehaving::Rule;
use sealcast_lab::scenarios::center::CenterRobots;
use sealcast_lab::scenarios::script::{Knobs, Step};
use sealcast_lab::scenarios::simulation::{self, Keep};
use sealcast_lab::scenarios::{CENTER_TWO_ORDERS, Scenario};

use crate::scenarios::{hold, played, scenarios};

scenarios! {
    center_formation = "center-formation",
    rule_a3_center_leave = "center-leave",
    rule_a4_center_evict = "center-evict",
    rule_c2_center_suspect = "center-suspect",
    center_rekey = "center-rekey",
    center_silent_member = "center-silent-member",
    rule_a6_center_dying_joiner = "center-dying-joiner",
    rule_g4_center_replayer = "center-replayer",
    rule_g1_center_forger = "center-forger",
    rule_b6_center_partition = "center-partition",
    center_life = "center-life",
    rule_a5_center_traffic_join = "center-traffic-join",
    rule_a5_center_traffic_rotate = "center-traffic-rotate",
    rule_a5_center_traffic_evict = "center-traffic-evict",
    rule_a5_center_traffic_leave = "center-traffic-leave",
    rule_b5_center_fifo_loss = "center-fifo-loss",
    rule_b5_center_fifo_deaf = "center-fifo-deaf",
    rule_b5_center_fifo_join = "center-fifo-join",
    rule_b5_center_fifo_leave = "center-fifo-leave",
    rule_b5_center_fifo_rotate = "center-fifo-rotate",
    rule_b5_center_fifo_evict = "center-fifo-evict",
    rule_b2_center_fifo_suspect = "center-fifo-suspect",
    rule_b6_center_fifo_partition = "center-fifo-partition",
    rule_b9_center_fifo_frozen = "center-fifo-frozen",
    rule_b4_center_order_join = "center-order-join",
    rule_b4_center_order_leave = "center-order-leave",
    rule_b4_center_order_evict = "center-order-evict",
    rule_b3_center_order_suspect = "center-order-suspect",
    lsgc_w6_center_order_forger = "center-order-forger",
    rule_g8_center_churn = "center-churn",
    rule_c2_center_usurper = "center-usurper",
    rule_c1_center_token_thief = "center-token-thief",
    rule_a9_center_acknowledger = "center-acknowledger",
    rule_a9_center_misjudger = "center-misjudger",
    rule_c1_center_revoked_leader = "center-revoked-leader",
    rule_c1_center_kdc_garbles = "center-kdc-garbles",
    rule_c1_center_kdc_refuses = "center-kdc-refuses",
    rule_c1_center_kdc_forgets = "center-kdc-forgets",
}

scenarios! { fifty;
    rule_c2_center_order_leader_killed = "center-order-leader-killed",
    rule_b3_center_order_stopped = "center-order-stopped",
    rule_b2_center_order_loss = "center-order-loss",
    rule_b2_center_order_deaf = "center-order-deaf",
    rule_b4_center_order_rotate = "center-order-rotate",
    rule_b1_center_order_split = "center-order-split",
    rule_g4_center_order_replayer = "center-order-replayer",
    rule_b3_center_order_frozen = "center-order-frozen",
}

/// The long ones, in parts; a hundred of each: `sealcast-lab sim SCENARIO --seeds 0..100`.
#[test]
fn rule_g7_center_lives_that_take_long() {
    played("center-fifo-life", 60);
    played("center-order-life", 60);
    played("center-order-churn", 10);
}

#[test]
fn rule_g7_center_restarts_that_take_long() {
    played("center-fifo-restart", 60);
    played("center-order-restart", 60);
    played("center-flooder", 10);
}

#[test]
fn rule_g7_center_changes_that_take_long() {
    played("center-order-partition", 100);
    played("center-order-kdc-lost", 20);
    played("center-order-double-failover", 40);
    played("center-order-fast-churn", 20);
    played("center-order-slow", 20);
}

/// More of these: `sealcast-lab sim center-order-stamp-forger --seeds 0..20`.
#[test]
fn rule_b8_center_insiders_who_lie_about_the_order() {
    played("center-order-acknowledger", 10);
    played("center-order-nak-flooder", 5);
    played("center-order-stamp-forger", 10);
    played("center-order-evicted-sequencer", 10);
}

/// Planted: stamps that are right for each half of the group and differ between them.
#[test]
fn rule_b8_a_leader_that_says_two_orders_is_reported() {
    let reports = |seed| CENTER_TWO_ORDERS.play(&CENTER_TWO_ORDERS.knobs, seed, Keep::default()).violations;
    let found: Vec<_> = (0..PLANTED_SEEDS).flat_map(reports).collect();
    for checker in ["one order", "same view"] {
        assert!(found.iter().any(|v| v.checker == checker), "{checker}: {found:?}");
    }
}

/// More members than show each other MACs: each signs what it says of the order. A hundred, some minutes each:
/// `sealcast-lab sim center-order-large --seeds 1..3`.
#[test]
fn rule_a3_rule_b3_center_order_large() {
    played("center-order-large", 10);
    hold("center-order-large", |knobs| Knobs { members: 66, ..knobs }, &[1]);
}

/// Seeds in which members that came back, at once, while the centre was away or beside those who stayed without a leader, began
/// a second order with the next to come.
#[test]
fn rule_b1_center_leaders_that_come_back_begin_no_second_order() {
    hold("center-order-restart", |knobs| knobs, &[11, 12, 13, 23]);
    hold("center-order-kdc-lost", |knobs| knobs, &[33, 35, 39]);
    hold("center-order-life", |knobs| knobs, &[4, 8, 14]);
}

/// Plays a story with members that a planted fault changes, until one of these checkers reports.
fn planted(name: &str, change: impl Fn(CenterRobots) -> CenterRobots, checkers: &[&str]) {
    let scenario = Scenario::find(name).expect("a scenario of that name");
    let robots = change(CenterRobots::new(scenario.knobs.members));
    let reports =
        |seed| simulation::play(&robots, &scenario.script(&scenario.knobs, seed), seed, Keep::default()).violations;
    let found: Vec<_> = (0..PLANTED_SEEDS).flat_map(reports).collect();
    assert!(found.iter().any(|v| checkers.contains(&v.checker)), "{name}: {found:?}");
}

#[test]
fn rule_c2_a_usurper_that_the_centre_lets_lead_is_reported() {
    planted("center-usurper", CenterRobots::all_registered, &["leaders"]);
}

#[test]
fn rule_c1_a_thief_whose_tags_nobody_checks_is_reported() {
    planted("center-token-thief", |robots| robots.lacking(&[Rule::Tags]), &["never", "convergence"]);
}

#[test]
fn acknowledgements_whose_tags_nobody_checks_are_reported() {
    planted("center-acknowledger", |robots| robots.lacking(&[Rule::Tags]), &["convergence"]);
}

#[test]
fn rule_c1_a_centre_that_is_believed_without_its_key_is_reported() {
    planted("center-kdc-garbles", |robots| robots.lacking(&[Rule::Answers]), &["convergence", "exclusion"]);
}

#[test]
fn rule_c1_revocations_that_members_forget_are_reported() {
    planted("center-kdc-forgets", |robots| robots.lacking(&[Rule::Revocations]), &["never"]);
}

#[test]
fn rule_a9_a_leader_that_waits_for_whoever_misjudges_is_reported() {
    planted("center-misjudger", |robots| robots.lacking(&[Rule::Ends]), &["convergence"]);
}

/// Nobody asks the centre whether its leader is revoked, and nobody remembers that one is.
#[test]
fn rule_c1_a_revoked_leader_that_is_followed_is_reported() {
    let follow = |robots: CenterRobots| robots.of_leaders().lacking(&[Rule::Check, Rule::Revocations]);
    planted("center-revoked-leader", follow, &["never", "deaf"]);
}

/// Without the centre's return, those whom a false one kept out never come back.
#[test]
fn a_centre_that_goes_on_refusing_is_reported() {
    let scenario = Scenario::find("center-kdc-refuses").expect("a scenario of that name");
    let mut script = scenario.script(&scenario.knobs, 1);
    script.steps.retain(|step| !matches!(step, Step::Honest(_)));
    let report = simulation::play(&CenterRobots::new(scenario.knobs.members), &script, 1, Keep::default());
    assert!(report.violations.iter().any(|v| v.checker == "convergence"), "{:?}", report.violations);
}

/// A group none of whom may lead forms no other view when its leaders are gone.
#[test]
fn a_group_that_nobody_leads_on_is_reported() {
    let scenario = Scenario::find("center-order-double-failover").expect("a scenario of that name");
    let mut script = scenario.script(&scenario.knobs, 1);
    let dies = script.steps.iter().position(|step| matches!(step, Step::Crash(1))).expect("the stand-by dies");
    script.steps.splice(dies..dies, (2..scenario.knobs.members).map(Step::Crash));
    let robots = CenterRobots::new(scenario.knobs.members).ordering(true).of_leaders();
    let report = simulation::play(&robots, &script, 1, Keep::default());
    assert!(report.violations.iter().any(|v| v.checker == "convergence"), "{:?}", report.violations);
}

/// Seeds in which a planted fault must show.
const PLANTED_SEEDS: u64 = 8;
