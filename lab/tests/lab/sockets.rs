//! Scenarios over real sockets, each node in a network namespace of its own on one bridge: the stories of
//! the simulator, the same checkers, real time. More of them by `sealcast-lab sim SCENARIO --sockets`.

use std::process::{Command, Output};

use sealcast_lab::netns;
use serde_json::Value;

/// Runs a story with so many members; `None` where there are no namespaces.
fn run(test: &str, scenario: &str, members: usize, more: &[&str]) -> Option<Output> {
    if let Err(why) = netns::available() {
        sealcast_lab::skipped(test, &why);
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-lab"));
    command.args(["sim", scenario, "--sockets", "--seeds", "1..2", "--json", "--no-progress", "--nodes"]);
    Some(command.arg(members.to_string()).args(more).output().expect("the program starts"))
}

fn holds(test: &str, scenario: &str, members: usize) {
    let Some(run) = run(test, scenario, members, &[]) else { return };
    let told = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{told}");
    let summary: Value = serde_json::from_slice(&run.stdout).expect("a summary as JSON");
    let count = |what: &str| summary[what].as_u64().unwrap_or_default();
    assert_eq!((&summary["ground"], count("held")), (&Value::from("over sockets"), 1), "{told}");
    // Something really went over the bridge, and checkers saw it.
    assert!(count("views") >= members as u64 && count("datagrams") > 0 && count("delivered") > 0, "{told}");
}

macro_rules! over_sockets {
    ($($test:ident = $name:literal, $members:literal);* $(;)?) => {
        $( #[test] fn $test() { holds(stringify!($test), $name, $members); } )*
    };
}

over_sockets! {
    formation = "formation", 5;
    rule_a3_leave = "leave", 4;
    rule_a4_evict = "evict", 4;
    rule_a5_nothing_lost_at_a_rekey = "traffic-rotate", 4;
    rule_g4_replayer = "replayer", 4;
    rule_g1_forger = "forger", 4;
    rule_a6_dying_joiner = "dying-joiner", 4;
    silent_member = "silent-member", 4;
    rule_a9_equivocator = "equivocator", 5;
    rule_a5_evicted_insider = "evicted-insider", 4;
    rule_g7_flooder = "flooder", 3;
    rule_g7_flooder_inside = "flooder-inside", 3;
    rule_g2_claimed_number = "claimed-number", 4;
    rule_a6_captor = "captor", 5;
    rule_a4_evicted_captor = "evicted-captor", 5;
    rule_a9_splitter = "splitter", 4;
    rule_b6_captured = "captured", 4;
    rule_a9_twins = "twins", 4;
    rule_a9_wrong_publics = "wrong-publics", 4;
    rule_g8_churner = "churner", 4;
    rule_g2_climber = "climber", 4;
    rule_a5_nothing_lost_beside_a_visitor = "visitor", 4;
    rule_b5_fifo_rotate = "fifo-rotate", 4;
    rule_b4_order_rotate = "order-rotate", 4;
    center_formation = "center-formation", 4;
    rule_a3_center_leave = "center-leave", 4;
    rule_a4_center_evict = "center-evict", 4;
    rule_a5_center_nothing_lost_at_a_rekey = "center-traffic-rotate", 4;
}

/// Planted: on a network that loses a third, a story in which nothing may be lost does not hold.
#[test]
fn what_the_network_loses_is_reported() {
    let Some(run) = run("what_the_network_loses_is_reported", "traffic-rotate", 3, &["--loss", "0.3"]) else { return };
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && told.contains("no loss: "), "{told}");
    assert!(told.contains("again:  sealcast-lab sim traffic-rotate --seed 1 --sockets --nodes 3 --loss 0.3"), "{told}");
}

#[test]
fn a_story_whose_way_is_not_udp_says_so() {
    let Some(run) = run("a_story_whose_way_is_not_udp_says_so", "mock-threshold", 3, &[]) else { return };
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && told.contains("mock-threshold has no way over UDP"), "{told}");
}
