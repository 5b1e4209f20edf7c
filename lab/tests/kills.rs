//! Real brokers killed under load: a short run of `sealcast lab kills brokers`.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// The programs that it starts are other packages': testing the workspace makes them, testing this package alone makes
/// them where they are missing.
fn programs() {
    let beside = |name: &str| PathBuf::from(env!("CARGO_BIN_EXE_sealcast-lab")).with_file_name(name);
    if !beside("sealcast").is_file() || !beside("sealcast-broker").is_file() {
        let mut cargo = Command::new(env!("CARGO"));
        let built = cargo.args(["build", "-q", "-p", "sealcast-cli", "-p", "sealcast-brokerd"]).status();
        assert!(built.is_ok_and(|it| it.success()), "sealcast and sealcast-broker are built beside sealcast-lab");
    }
}

#[test]
fn rule_e12_brokers_killed_under_load_lose_nothing_that_was_acknowledged() {
    programs();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-lab"));
    command.args(["kills", "brokers", "--kills", "6", "--all-every", "3", "--rate", "200", "--json"]);
    let ran = command.output().expect("the program starts");
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{told}");
    let seen: Value = serde_json::from_slice(&ran.stdout).expect("an object as JSON");
    let count = |what: &str| seen[what].as_u64().unwrap_or_default();
    assert_eq!((count("kills"), count("all"), &seen["holds"]), (6, 1, &Value::from(true)), "{seen}");
    assert!(count("acknowledged") > 0 && count("delivered") >= count("acknowledged"), "{seen}");
}
