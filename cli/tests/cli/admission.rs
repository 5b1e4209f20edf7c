//! Devices come into a group at a relay: founded, listed, admitted while they run and while they are off.

use std::time::Duration;

use crate::common::relay::Relay;
use crate::common::{Home, Ran, Running};

const GROUP: &str = "exchange";

fn members(names: &[&str]) -> Home {
    let home = Home::new("admission");
    home.good(&["ca", "init", GROUP]);
    for name in names {
        home.good(&["ca", "issue", name]);
    }
    home
}

/// `sealcast group …` as somebody.
fn group(home: &Home, url: &str, id: &str, arguments: &[&str]) -> Ran {
    home.run(&[&["--id", id, "--url", url, "group"], arguments].concat())
}

fn good(home: &Home, url: &str, id: &str, arguments: &[&str]) -> String {
    let ran = group(home, url, id, arguments);
    assert_eq!(ran.exit, 0, "{id}: group {}: {}{}", arguments.join(" "), ran.stdout, ran.stderr);
    ran.stdout
}

/// The error that it says, code and hint included.
fn refused(home: &Home, url: &str, id: &str, arguments: &[&str], code: &str) -> String {
    let ran = group(home, url, id, arguments);
    assert_ne!(ran.exit, 0, "{id}: group {}: {}", arguments.join(" "), ran.stdout);
    assert!(ran.stderr.contains(code) && ran.stderr.contains("hint"), "{code}: {}", ran.stderr);
    ran.stderr
}

fn waits(home: &Home, url: &str, id: &str) -> Running {
    let mut running = home.start(&["--id", id, "--url", url, "group", "join"]);
    running.line_within("waiting to be admitted", TIMEOUT).expect("it waits");
    running
}

#[test]
fn a_group_is_created_once_and_lets_in_those_who_wait_and_those_who_are_off() {
    let home = members(&["ann", "bob", "carol", "dora", "eve"]);
    let relay = Relay::start(&home);
    let url = format!("{}&wait=60s", relay.url("mls", GROUP));
    assert!(good(&home, &url, "ann", &["create"]).contains("created exchange as ann · epoch 1 · 1 member"));
    // Also while nobody of it runs.
    refused(&home, &url, "ann", &["create"], "E0311");
    refused(&home, &url, "bob", &["create"], "E0311");

    let mut ann = home.start(&["--id", "ann", "--url", &url, "sub", "#", "-v"]);
    ann.line_within("1 member", TIMEOUT).expect("she goes on where create ended");
    assert!(good(&home, &url, "ann", &["pending"]).is_empty());
    assert!(good(&home, &url, "ann", &["admit", "--all"]).is_empty());
    refused(&home, &url, "ann", &["admit", "nobody"], "E0203");
    refused(&home, &url, "ann", &["admit", "ann"], "E0312");

    // Two that wait, in one change of key.
    let (mut bob, mut carol) = (waits(&home, &url, "bob"), waits(&home, &url, "carol"));
    let listed = awaited(&home, &url, &["bob", "carol"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let admitted = good(&home, &url, "ann", &["admit", "--all", "--json"]);
    // Her new process took an epoch, and both together take one.
    assert!(admitted.contains("\"from\":2") && admitted.contains("\"to\":3"), "one commit: {admitted}");
    for running in [&mut bob, &mut carol] {
        let (exit, said) = running.end();
        assert!(exit == 0 && said.contains("joined exchange"), "{said}");
    }

    // One that never ran cannot be, and one that is off can be.
    let never = refused(&home, &url, "ann", &["admit", "eve"], "E0407");
    assert!(never.contains("eve"), "{never}");
    let off = refused(&home, &url, "dora", &["join", "--timeout", "3s"], "E0403");
    assert!(off.contains("group admit dora"), "{off}");
    let admitted = good(&home, &url, "ann", &["admit", "dora"]);
    assert!(admitted.contains("admitted dora") && admitted.contains("4 members"), "{admitted}");
    home.good(&["--id", "ann", "--url", &url, "pub", "--ordered", "market/eurusd", "before dora ran"]);
    // She comes in though nobody else runs any more.
    ann.interrupt();
    assert_eq!(ann.end().0, 130);
    let joined = good(&home, &url, "dora", &["join", "--timeout", "60s"]);
    assert!(joined.contains("joined exchange as dora") && joined.contains("4 members"), "{joined}");

    let mut dora = home.start(&["--id", "dora", "--url", &url, "sub", "#", "-C", "1", "-v"]);
    dora.line_within("4 members", TIMEOUT).expect("she is in");
    home.good(&["--id", "bob", "--url", &url, "pub", "--ordered", "market/eurusd", "hello dora"]);
    let (exit, heard) = dora.end();
    assert!(exit == 0 && heard.contains("dora"), "{heard}");
}

#[test]
fn devices_of_a_name_leave_together_and_come_in_externally_only_if_they_say_so() {
    let home = members(&["bob"]);
    home.good(&["ca", "issue", "ann", "--evict", "#"]);
    let relay = Relay::start(&home);
    let url = format!("{}&wait=60s", relay.url("mls", GROUP));
    // A second device of Bob's, with a certificate of its own.
    home.good(&["id", "new", "bob-phone"]);
    let key = home.good(&["id", "show", "bob-phone", "--json"]);
    let key = key.split('"').find(|it| it.starts_with("scpub1")).expect("it shows its key").to_owned();
    let invite = home.good(&["--url", &url, "invite", "--for", &key, "--as", "bob", "-o", "-"]);
    std::fs::write(home.path().join("bob.invite"), invite).expect("the folder can be written");
    home.good(&["--id", "bob-phone", "join", "bob.invite"]);
    good(&home, &url, "ann", &["create"]);
    let mut ann = home.start(&["--id", "ann", "--url", &url, "sub", "#", "-v"]);
    ann.line_within("1 member", TIMEOUT).expect("she is in");
    for device in ["bob", "bob-phone"] {
        let joined = good(&home, &url, device, &["join", "--external"]);
        assert!(joined.contains("joined exchange as bob"), "{joined}");
    }
    refused(&home, &url, "ann", &["evict", "bob"], "E0203");
    let gone = good(&home, &url, "ann", &["evict", "bob", "--all-devices"]);
    assert!(gone.contains("evicted 2 devices of bob") && gone.contains("epoch 4 → 5"), "{gone}");
    assert!(good(&home, &url, "ann", &["members"]).lines().count() == 2, "a heading, and ann");

    // Without an evict right of hers, the authority on this machine does it.
    let home = members(&["ann", "bob"]);
    let relay = Relay::start(&home);
    let url = format!("{}&wait=60s", relay.url("mls", GROUP));
    good(&home, &url, "ann", &["create"]);
    let mut ann = home.start(&["--id", "ann", "--url", &url, "sub", "#", "-v"]);
    ann.line_within("1 member", TIMEOUT).expect("she is in");
    good(&home, &url, "bob", &["join", "--external"]);
    let gone = good(&home, &url, "ann", &["evict", "bob", "--all-devices"]);
    assert!(gone.contains("evicted 1 device of bob"), "{gone}");
}

/// What `group pending --json` says once these are listed.
fn awaited(home: &Home, url: &str, names: &[&str]) -> String {
    let begun = std::time::Instant::now();
    loop {
        let listed = good(home, url, "ann", &["pending", "--json"]);
        if names.iter().all(|it| listed.contains(&format!("\"{it}\""))) {
            return listed;
        }
        assert!(begun.elapsed() < TIMEOUT, "{listed}");
    }
}

/// Machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(120);
