//! Four brokers as processes, and people who publish and read through them.

mod common;

use std::time::Duration;

use common::{Home, Running, brokers_programs};
use serde_json::Value;

/// A home with an exchange, a trader of its desk fx, another one of its desk rates, and four brokers running.
fn market(name: &str) -> (Home, Running) {
    brokers_programs();
    let home = Home::new(name);
    home.good(&["ca", "init", "exchange"]);
    home.good(&["ca", "issue", "ann", "--attr", "desk=fx"]);
    home.good(&["ca", "issue", "bob", "--attr", "desk=rates"]);
    let mut up = home.start(&["--id", "ann", "brokers", "up", "-n", "4", "--name", "market", "--port", "0"]);
    let ready = up.line_within("context   market", Duration::from_secs(180));
    ready.expect("four brokers agree on their key");
    (home, up)
}

#[test]
fn a_sealed_publication_reaches_whom_its_publisher_allows_and_nobody_else() {
    let (home, mut up) = market("four-brokers");
    let said = home.good(&["pub", "market/eurusd", "1.0842", "--allow", "exchange:desk = fx", "--receipt", "r.json"]);
    assert!(said.starts_with("number 0  quorum ") && said.contains("sealed for exchange:desk = fx"), "{said}");

    let read = home.good(&["read", "market/eurusd"]);
    assert!(read.contains("#0 market/eurusd") && read.contains("1.0842"), "{read}");
    let refused = home.run(&["--id", "bob", "read", "market/eurusd"]);
    assert_eq!(refused.exit, 5, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("#0 market/eurusd  ⊥") && !refused.stdout.contains("1.0842"), "{}", refused.stdout);
    let latest = home.good(&["read", "market/eurusd", "--latest", "--linearizable", "--raw"]);
    assert_eq!(latest, "1.0842");

    // The receipt convinces whoever has the cluster file, and no other bytes do.
    assert!(home.good(&["receipt", "verify", "r.json"]).starts_with("good"));
    let path = home.path().join("r.json");
    let good: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let hex = good["receipt"].as_str().expect("it is text").to_owned();
    for at in [80, hex.len() / 2, hex.len() - 1] {
        let other = if hex.as_bytes()[at] == b'0' { "1" } else { "0" };
        let mut bad = good.clone();
        bad["receipt"] = format!("{}{other}{}", &hex[..at], &hex[at + 1..]).into();
        std::fs::write(home.path().join("bad.json"), bad.to_string()).unwrap();
        assert_eq!(home.run(&["receipt", "verify", "bad.json"]).exit, 6, "digit {at}");
    }

    // A subscription goes on where it was left.
    let mut sub = home.start(&["sub", "market/#", "-C", "1", "-W", "60s", "-v"]);
    sub.line_with("subscription").expect("it stands");
    home.good(&["pub", "market/gbpusd", "1.31", "--allow", "exchange:desk = fx"]);
    assert_eq!(sub.end().0, 0);
    home.good(&["pub", "market/gbpusd", "1.32", "--allow", "exchange:desk = fx"]);
    let again = home.good(&["sub", "market/#", "-C", "1", "-W", "60s"]);
    assert!(again.contains("1.32"), "{again}");

    // The one administrator puts a policy in force, and the next publication names it.
    let policy = "number = 1\n[[rule]]\nact = \"publish\"\ntopic = \"market/#\"\nallow = \"exchange:desk = fx\"\n";
    std::fs::write(home.path().join("policy.toml"), policy).unwrap();
    let set = home.good(&["policy", "set", "policy.toml"]);
    assert!(set.contains("in force from block"), "{set}");
    let denied = home.run(&["--id", "bob", "pub", "market/eurusd", "1.09"]);
    assert_eq!(denied.exit, 5, "{}{}", denied.stdout, denied.stderr);
    assert!(home.good(&["pub", "market/eurusd", "1.0843"]).starts_with("number 1"));

    let status = home.good(&["brokers", "status", "--json"]);
    let brokers: Vec<Value> =
        status.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
    assert_eq!(brokers.len(), 4);
    assert!(brokers.iter().all(|it| it["answers"] == true && it["policy"] == 1), "{status}");
    up.interrupt();
    let (exit, all) = up.end();
    assert_eq!(exit, 130, "{all}");
    assert!(!all.contains("was killed"), "{all}");
    let alone = home.run(&["brokers", "status", "--wait", "300ms"]);
    assert_eq!(alone.exit, 8, "{}{}", alone.stdout, alone.stderr);
}

#[test]
fn rule_e4_a_lying_broker_is_noticed_by_nobody_and_convicted() {
    brokers_programs();
    let home = Home::new("demo-brokers");
    let told = home.good(&["demo", "brokers", "--json"]);
    let steps: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
    assert_eq!(steps.len(), 12, "{told}");
    assert!(steps.iter().all(|it| it["holds"] == true), "{told}");
    let what = |step: usize| steps[step - 1]["what"].as_str().expect("it is told").to_owned();
    assert!(what(8).contains("which led, is killed") && what(9).contains("has caught up"), "{told}");
    assert!(what(10).contains("lies from now on") && what(11).contains("a false share with broker"), "{told}");
}
