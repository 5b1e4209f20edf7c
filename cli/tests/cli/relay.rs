//! Groups at a relay: Mosquitto as the MQTT broker, `sealcast-relay` as the directory, and members who trust neither.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::relay::Relay;
use crate::common::{Home, Running};

fn hears(home: &Home, id: &str, url: &str, count: &str) -> Running {
    home.start(&["--id", id, "--url", url, "sub", "#", "-C", count, "-v"])
}

#[test]
fn a_group_at_a_relay_that_reads_nothing_outlives_its_processes_and_the_relay_s() {
    let home = Home::new("relay");
    home.good(&["ca", "init", "exchange"]);
    for member in ["ann", "bob", "carol"] {
        home.good(&["ca", "issue", member]);
    }
    let mut relay = Relay::start(&home);
    let url = format!("{}&wait=60s", relay.url("mls", "exchange"));
    let mut ann = hears(&home, "ann", &url, "2");
    ann.line_within("1 member", TIMEOUT).expect("she founds the group");
    home.good(&["--id", "bob", "--url", &url, "pub", "market/eurusd", "between us"]);
    home.good(&["--id", "bob", "--url", &url, "pub", "--ordered", "market/eurusd", "in its place"]);
    let (exit, heard) = ann.end();
    assert!(exit == 0 && heard.contains("between us") && heard.contains("in its place"), "{heard}");

    // She goes on where she was, while the directory is away; who is new waits for it.
    let mut ann = hears(&home, "ann", &url, "2");
    ann.line_within("2 members", TIMEOUT).expect("they are members still");
    relay.kill();
    relay.serve();
    home.good(&["--id", "bob", "--url", &url, "pub", "market/eurusd", "once more"]);
    home.good(&["--id", "carol", "--url", &url, "pub", "market/eurusd", "me too"]);
    let (exit, heard) = ann.end();
    assert!(exit == 0 && heard.contains("once more") && heard.contains("me too"), "{heard}");

    // Nothing of it stands there in clear.
    relay.kill();
    for path in files(&relay.data()) {
        let bytes = fs::read(&path).expect("it can be read");
        for word in ["exchange", "market", "between us", "carol"] {
            let found = bytes.windows(word.len()).any(|it| it == word.as_bytes());
            assert!(!found, "{word} stands in {}", path.display());
        }
    }
}

#[test]
fn what_is_wrong_with_a_relay_is_said() {
    let home = Home::new("relay-wrong");
    home.good(&["ca", "init", "exchange"]);
    home.good(&["ca", "issue", "ann"]);
    let relay = Relay::start(&home);
    let ran = |url: &str| {
        let ran = home.run(&["--id", "ann", "--url", url, "pub", "t", "x"]);
        assert_ne!(ran.exit, 0, "{url}: {}", ran.stdout);
        ran.stderr
    };
    // The key of another relay.
    let url = format!("{}&wait=3s", relay.url("mls", "exchange"));
    let mut other = url.clone();
    let at = other.find("relay=scrl1").expect("it names its key") + 20;
    let changed = if &other[at..=at] == "q" { "p" } else { "q" };
    other.replace_range(at..=at, changed);
    let said = ran(&other);
    assert!(said.contains("relay"), "{said}");
    // Nobody there.
    let gone = url.replace(&format!(":{}/v1", relay.port()), ":9/v1");
    let said = ran(&gone);
    assert!(said.contains("directory"), "{said}");
    let said = ran("mqtt://127.0.0.1/sealcast?keys=mls");
    assert!(said.contains("directory=") && said.contains("hint"), "{said}");
}

fn files(top: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(top).expect("it can be read").map(|entry| entry.expect("it can be read").path());
    entries.flat_map(|it| if it.is_dir() { files(&it) } else { vec![it] }).collect()
}

/// Machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(120);
