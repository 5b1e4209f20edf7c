//! The models of `lab/models` that are checked exhaustively: the protocol holds, and each part of it is missed when it is left out.

use stateright::Checker as _;

#[path = "../../models/failover.rs"]
mod failover;

use failover::{Failover, Fault, checked};

const BOUNDS: Failover = Failover { terms: 4, messages: 2, crashes: 0, partition: false, fault: None };

#[test]
fn rule_b7_three_members_two_crashes_and_a_partition_lose_nothing_and_never_contradict() {
    checked(Failover { terms: 3, crashes: 2, partition: true, ..BOUNDS }).assert_properties();
}

/// One term more; a member that is never heard again is one that crashed, or one beyond a partition.
#[test]
fn rule_b7_four_terms_lose_nothing_and_never_contradict() {
    checked(BOUNDS).assert_properties();
}

/// Which properties are violated without a part of the protocol.
fn found(fault: Fault) -> Vec<&'static str> {
    let checker = checked(Failover { fault: Some(fault), ..BOUNDS });
    let mut found: Vec<&str> = checker.discoveries().into_keys().collect();
    found.retain(|it| !it.starts_with("a later") && !it.starts_with("one member"));
    found.sort_unstable();
    found
}

#[test]
fn rule_b7_a_member_that_is_not_fenced_is_found() {
    assert!(found(Fault::NoFence).contains(&"one primary"));
}

#[test]
fn rule_b7_a_minority_that_orders_is_found() {
    assert!(found(Fault::Minority).contains(&"one order"));
}

#[test]
fn rule_b7_an_older_terms_stamp_counted_as_held_is_found() {
    assert!(found(Fault::OldTermCounts).contains(&"nothing acknowledged lost"));
}
