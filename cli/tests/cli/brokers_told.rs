//! What readers and publishers are told over brokers: what lies in clear, what is missing, who lied, what was not found.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{Home, Running, brokers_programs};
use sealcast::brokers::{ClientKey, Purpose, load};
use sealcast::config::KeptIdentity;
use serde_json::Value;

/// The brokers of a folder, each a process of its own.
struct Brokers {
    home: Home,
    running: Vec<Option<Child>>,
}

impl Brokers {
    /// An exchange, a trader of its desk fx who administers, one of its desk rates, and so many brokers, running.
    fn of(name: &str, n: usize, options: &[&str]) -> Brokers {
        brokers_programs();
        let home = Home::new(name);
        home.good(&["ca", "init", "exchange"]);
        home.good(&["ca", "issue", "ann", "--attr", "desk=fx"]);
        home.good(&["ca", "issue", "bob", "--attr", "desk=rates"]);
        let count = n.to_string();
        home.good(&["--id", "ann", "brokers", "init", "-n", &count, "--port", "0", "--name", "market", "market"]);
        home.good(&["ctx", "add", "market", "--url", "quorum:market/cluster.toml?wait=20s"]);
        home.good(&["ctx", "select", "market"]);
        let mut brokers = Brokers { home, running: (0..n).map(|_| None).collect() };
        (0..n).for_each(|broker| brokers.start_as(["sealcast-broker", "run"], broker, options));
        brokers.all_with_key(n);
        brokers
    }

    fn start(&mut self, broker: usize) {
        self.start_as(["sealcast-broker", "run"], broker, &[]);
    }

    fn start_as(&mut self, [program, verb]: [&str; 2], broker: usize, options: &[&str]) {
        let program = Path::new(env!("CARGO_BIN_EXE_sealcast")).with_file_name(program);
        let mut command = Command::new(program);
        command.arg(verb).arg(self.folder(broker)).args(options);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.running[broker] = Some(child.expect("the broker starts"));
    }

    fn kill(&mut self, broker: usize) {
        if let Some(mut child) = self.running[broker].take() {
            child.kill().expect("it runs");
            child.wait().expect("it ended");
        }
    }

    fn folder(&self, broker: usize) -> std::path::PathBuf {
        self.home.path().join(format!("market/broker-{broker}"))
    }

    /// Waits until so many brokers run and know the key.
    fn all_with_key(&self, n: usize) {
        let end = std::time::Instant::now() + TIMEOUT;
        loop {
            let said = self.home.run(&["brokers", "status", "--json", "--wait", "1s"]).stdout;
            let with_key = said.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
            if with_key.filter(|it| it["key_age_s"].is_u64()).count() >= n {
                return;
            }
            assert!(std::time::Instant::now() < end, "no key: {said}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        (0..self.running.len()).for_each(|broker| self.kill(broker));
    }
}

fn sub(home: &Home, arguments: &[&str]) -> Running {
    let mut sub = home.start(&[&["--id", "bob", "sub"], arguments, &["-v"]].concat());
    sub.line_within("subscription", TIMEOUT).expect("it stands");
    sub
}

/// The longest that brokers under load take for anything here.
const TIMEOUT: Duration = Duration::from_secs(180);

#[test]
fn a_publisher_is_told_what_is_in_clear_and_which_rule_or_limit_is_against_it() {
    let brokers = Brokers::of("told-publisher", 1, &[]);
    let home = &brokers.home;
    let publish = |arguments: &[&str]| home.run(&[&["--id", "ann", "pub"], arguments].concat());

    // A value that the brokers keep is in clear whatever --allow says, and its publisher is told before and after.
    let allow = ["vault/x", "sealed text", "--allow", "exchange:desk = fx"];
    let refused = publish(&[&allow[..], &["--put", "note=TOPSECRET"]].concat());
    assert!(refused.exit == 2 && refused.stderr.contains("stores \"note\" in clear"), "{}", refused.stderr);
    let nothing = home.good(&["--id", "bob", "read", "vault/x", "--key", "note", "--json"]);
    assert!(nothing.contains("\"set\":false"), "nothing was stored: {nothing}");
    let stored = publish(&[&allow[..], &["--put", "note=TOPSECRET", "--clear"]].concat());
    let told = "sealed for exchange:desk = fx  value of note in clear, for all whom the policy lets read vault/x";
    assert!(stored.exit == 0 && stored.stdout.contains(told), "{}{}", stored.stdout, stored.stderr);
    assert_eq!(home.good(&["--id", "bob", "read", "vault/x", "--key", "note"]), "TOPSECRET\n", "as it was told");
    let counted = publish(&["vault/x", "y", "--increment", "count"]).stdout;
    assert!(counted.contains("sum 1  sealed  value of count in clear, for all whom"), "{counted}");

    // The limit that was hit, and what to do.
    std::fs::write(home.path().join("large"), vec![b'x'; 1 << 20]).unwrap();
    let large = publish(&["market/file", "-f", "large"]);
    assert_eq!(large.exit, 1, "{}{}", large.stdout, large.stderr);
    assert!(large.stderr.contains("the message has 1048576 bytes, and a publication holds 10483"), "{}", large.stderr);
    assert!(large.stderr.contains("hint: split -b 1000K FILE"), "{}", large.stderr);
    std::fs::write(home.path().join("part"), vec![b'x'; 1_024_000]).unwrap();
    assert_eq!(publish(&["market/file", "-f", "part"]).exit, 0, "the hint is true");
    let value = format!("note={}", "v".repeat(5000));
    let long = publish(&["market/file", "x", "--put", &value]);
    assert!(long.stderr.contains("has 5000 bytes of a value, and it may have 4096"), "{}", long.stderr);

    // A receipt is not overwritten, and what would have been published is not.
    let once = publish(&["market/r", "1", "--receipt", "r.json"]);
    assert_eq!(once.exit, 0, "{}", once.stderr);
    let first = std::fs::read(home.path().join("r.json")).unwrap();
    let again = publish(&["market/r", "2", "--receipt", "r.json"]);
    assert!(again.exit == 3 && again.stderr.contains("--force to overwrite it"), "{}", again.stderr);
    assert_eq!(std::fs::read(home.path().join("r.json")).unwrap(), first);
    assert!(publish(&["market/r", "2", "--receipt", "r.json", "--force"]).stdout.starts_with("number 1"));
    let read = ["--id", "ann", "read", "market/r", "--latest", "--receipt", "r.json"];
    assert!(home.run(&read).exit == 3 && home.run(&[&read[..], &["--force"]].concat()).exit == 0);

    // Topics that only look like others, or like patterns.
    assert!(publish(&["market/#", "1"]).stderr.contains("they are for patterns"));
    let pattern = home.run(&["--id", "ann", "read", "market/#"]);
    assert!(pattern.exit == 2 && pattern.stderr.contains("\"market/#\" is a pattern"), "{}", pattern.stderr);
    assert!(pattern.stderr.contains("hint: sealcast sub 'market/#'"), "{}", pattern.stderr);

    // By which rule of the policy somebody may not publish or read.
    let rule = |act: &str| format!("[[rule]]\nact = \"{act}\"\ntopic = \"market/#\"\nallow = \"exchange:desk = fx\"\n");
    let policy = format!("number = 1\n[issuers]\nexchange = [\"desk\"]\n{}{}", rule("publish"), rule("read"));
    std::fs::write(home.path().join("policy.toml"), policy).unwrap();
    home.good(&["--id", "ann", "policy", "set", "policy.toml"]);
    let denied = home.run(&["--id", "bob", "pub", "market/eurusd", "1.09"]);
    assert_eq!(denied.exit, 5, "{}{}", denied.stdout, denied.stderr);
    let by = "bob may not publish on market/eurusd: rule ";
    assert!(denied.stderr.contains(by) && denied.stderr.contains("needs exchange:desk = fx"), "{}", denied.stderr);
    let hint = "sealcast policy why --publish --topic market/eurusd";
    assert!(denied.stderr.contains(hint), "{}", denied.stderr);
    let typed = home.run(&["--id", "bob", "policy", "why", "--publish", "--topic", "market/eurusd"]);
    assert!(typed.exit == 5 && typed.stdout.contains("is denied"), "{}{}", typed.stdout, typed.stderr);
    let unread = home.run(&["--id", "bob", "read", "market/r"]);
    let by = "bob may read nothing of market/r: rule ";
    assert!(unread.exit == 5 && unread.stderr.contains(by), "{}", unread.stderr);
    assert!(unread.stderr.contains("hint: sealcast policy why --topic market/r"), "{}", unread.stderr);
    let own = home.run(&["--id", "bob", "read", "vault/x", "--limit", "1"]);
    assert!(own.exit == 5 && own.stderr.contains("its publisher allows others only"), "{}", own.stderr);
}

#[test]
fn a_topic_of_which_the_beginning_is_no_longer_kept_is_read_from_the_oldest_on() {
    let brokers = Brokers::of("told-pruned", 1, &["--keep=128 blocks"]);
    let home = &brokers.home;
    let fill = |topic: &str, lines: usize| {
        let text: String = (0..lines).map(|n| format!("{n}\n")).collect();
        std::fs::write(home.path().join("lines"), text).unwrap();
        let mut publish = home.command(&["--id", "ann", "pub", topic, "-l"]);
        let came = publish.stdin(std::fs::File::open(home.path().join("lines")).unwrap()).output().expect("it runs");
        assert!(came.status.success(), "{}", String::from_utf8_lossy(&came.stderr));
    };
    fill("old/gone", 3);
    fill("old/x", 300);
    // Pruning goes on behind what is published.
    let end = std::time::Instant::now() + TIMEOUT;
    let read = loop {
        let read = home.run(&["--id", "ann", "read", "old/x", "--limit", "1024", "--json"]);
        if !read.stdout.contains("\"number\":0,") {
            break read;
        }
        assert!(std::time::Instant::now() < end, "nothing is pruned");
        fill("old/x", 10);
    };
    assert_eq!(read.exit, 0, "{}", read.stderr);
    let numbers: Vec<u64> = read
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("an object")["number"].as_u64().expect("a number"))
        .collect();
    assert!(numbers[0] > 0 && numbers.windows(2).all(|two| two[0] + 1 == two[1]), "{numbers:?}");
    let told = format!("{} publications of old/x are no longer kept; number {0} is the oldest that is", numbers[0]);
    assert!(read.stderr.contains(&told), "{}", read.stderr);
    let later = numbers[0] + 5;
    let none = home.run(&["--id", "ann", "read", "old/x", "--from", &later.to_string(), "--limit", "1"]);
    assert!(none.exit == 0 && !none.stderr.contains("no longer kept"), "{}", none.stderr);
    let part = home.run(&["--id", "ann", "read", "old/x", "--from", "1", "--limit", "1"]);
    assert!(part.stderr.contains(&format!("{} publications of old/x", numbers[0] - 1)), "{}", part.stderr);

    // Of another topic nothing is left at all.
    for options in [&["--latest"][..], &[]] {
        let gone = home.run(&[&["--id", "ann", "read", "old/gone"], options].concat());
        assert_eq!((gone.exit, &*gone.stdout), (0, ""), "{}", gone.stderr);
        let told = "the brokers keep no publication of old/gone any more: 3 were published";
        assert!(gone.stderr.contains(told), "{}", gone.stderr);
    }
    // What stands behind is where it was.
    assert!(home.run(&["--id", "ann", "pub", "old/gone", "again"]).stdout.starts_with("number 3"));
}

#[test]
fn readers_and_publishers_are_told_which_brokers_have_no_share_and_a_revoked_reader_that_it_is() {
    let mut brokers = Brokers::of("told-shares", 4, &[]);
    let publish = |brokers: &Brokers, text: &str| brokers.home.run(&["--id", "ann", "pub", "market/eurusd", text]);
    assert_eq!(publish(&brokers, "first").exit, 0);
    let mut reader = sub(&brokers.home, &["market/#"]);
    let before = publish(&brokers, "second");
    assert!(before.exit == 0 && !before.stderr.contains("share"), "{}", before.stderr);
    reader.line_within("second", TIMEOUT).expect("it comes");

    // Broker 2 loses its share, and broker 3 is down: two shares are left, and three open anything.
    brokers.kill(2);
    brokers.kill(3);
    let (keys, away) = (brokers.folder(2).join("keys"), brokers.home.path().join("away"));
    std::fs::rename(&keys, &away).unwrap();
    brokers.start(2);
    let told = publish(&brokers, "third");
    assert_eq!(told.exit, 0, "{}{}", told.stdout, told.stderr);
    let none_from = "no share from broker 2 (it holds none), broker 3 (";
    assert!(told.stderr.contains("it needs shares of 3 brokers, and 2 can give theirs"), "{}", told.stderr);
    assert!(told.stderr.contains(none_from), "{}", told.stderr);
    let warning = reader.line_within("cannot be opened", TIMEOUT).expect("a running sub warns");
    assert!(warning.contains("2 of the 3 shares that it needs have come") && warning.contains(none_from), "{warning}");
    let url = "quorum:market/cluster.toml?wait=5s";
    let read = brokers.home.run(&["--id", "bob", "--url", url, "read", "market/eurusd", "--latest"]);
    assert_eq!(read.exit, 8, "{}{}", read.stdout, read.stderr);
    assert!(read.stderr.contains("error[E0802]") && read.stderr.contains(none_from), "{}", read.stderr);
    assert!(!read.stderr.contains("did not say the same") && !read.stderr.contains("alike"), "{}", read.stderr);

    // With its share back it is read, in its order.
    brokers.kill(2);
    let _ = std::fs::remove_dir_all(&keys);
    std::fs::rename(&away, &keys).unwrap();
    brokers.start(2);
    reader.line_within("third", TIMEOUT).expect("it opens when there are shares enough");

    // A reader that is revoked while it waits ends, and says why.
    let serial = "exchange:2";
    brokers.home.good(&["--id", "ann", "brokers", "revoke", "--serial", serial]);
    let refused = reader.line_within("error[E0701]", TIMEOUT).expect("it is told");
    assert!(refused.contains("nobody vouches for us at the brokers any more"), "{refused}");
    assert_eq!(reader.end().0, 7);
}

/// The key of the client that `sealcast sub` of bob is to the brokers.
fn client_of_bob(brokers: &Brokers) -> String {
    let home = sealcast::config::Home::at(&brokers.home.path().join("home"));
    let cluster = load(&brokers.home.path().join("market/cluster.toml")).expect("init wrote it").cluster();
    let identity = KeptIdentity::load(&home, "bob").and_then(|kept| kept.identity()).expect("it is kept");
    let certificate = identity.expect("bob has a certificate").certificate().hash;
    let (keys, _) = ClientKey::kept(&home, &cluster, &certificate, Purpose::Subscribe).expect("they are readable");
    keys[0].client().0.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_running_reader_whose_client_is_revoked_by_its_key_ends_and_says_so() {
    let brokers = Brokers::of("told-revoked", 1, &[]);
    sub(&brokers.home, &["market/#", "-W", "1s"]).end();
    let client = client_of_bob(&brokers);
    let mut reader = sub(&brokers.home, &["market/#"]);
    assert_eq!(brokers.home.run(&["--id", "ann", "pub", "market/eurusd", "first"]).exit, 0);
    reader.line_within("first", TIMEOUT).expect("it comes");
    brokers.home.good(&["--id", "ann", "brokers", "revoke", &client]);
    reader.line_within("error[E07", TIMEOUT).expect("it is told");
    assert_eq!(reader.end().0, 7);
}

#[test]
fn rule_e4_more_liars_than_may_be_are_told_of_and_evidence_is_kept_while_a_reader_runs() {
    let mut brokers = Brokers::of("told-liars", 4, &[]);
    let publish = |brokers: &Brokers, text: &str| brokers.home.run(&["--id", "ann", "pub", "market/eurusd", text]);
    let mut reader = sub(&brokers.home, &["market/#"]);

    // One liar: the reader goes on, and keeps what convicts it at once. With another one down, its share is of the first three.
    brokers.kill(3);
    brokers.start_as(["broker-testing", "lie"], 3, &[]);
    brokers.all_with_key(4);
    brokers.kill(2);
    assert_eq!(publish(&brokers, "among lies").exit, 0, "one may lie");
    let saved = reader.line_within("evidence saved", TIMEOUT).expect("the liar is caught");
    brokers.start(2);
    reader.line_within("among lies", TIMEOUT).expect("it opens when there are shares enough");
    assert!(saved.contains("warning"), "{saved}");
    let listed = brokers.home.good(&["--id", "bob", "brokers", "evidence"]);
    assert!(listed.contains("broker 3"), "it is there though the reader still runs: {listed}");
    assert_eq!(publish(&brokers, "still read").exit, 0);
    reader.line_within("still read", TIMEOUT).expect("one liar stops nobody");

    // Two: nothing that the brokers say can be relied on, and whoever notices says so instead of waiting or of ⊥.
    brokers.kill(2);
    brokers.start_as(["broker-testing", "lie"], 2, &[]);
    let end = std::time::Instant::now() + TIMEOUT;
    loop {
        let came = publish(&brokers, "among more lies");
        if came.exit == 8 && came.stderr.contains("error[E0801]") {
            assert!(came.stderr.contains("of 4 brokers at most 1 may lie"), "{}", came.stderr);
            break;
        }
        assert!(std::time::Instant::now() < end, "{}{}", came.stdout, came.stderr);
    }
    // Who has proofs against both is not told that its publisher allows others only.
    let saved = |came: &crate::common::Ran| came.stderr.matches("evidence saved").count();
    let mut proofs = 0;
    while proofs < 2 {
        let came = brokers.home.run(&["--id", "ann", "pub", "market/eurusd", "x", "--receipt", "r.json", "--force"]);
        proofs += saved(&came);
        assert!(std::time::Instant::now() < end, "nobody signs what convicts it: {}", came.stderr);
    }
    for _ in 0..4 {
        let read = brokers.home.run(&["--id", "ann", "read", "market/eurusd"]);
        assert!(!read.stderr.contains("E0415") && matches!(read.exit, 0 | 8), "{}{}", read.stdout, read.stderr);
        assert!(read.exit == 0 || !read.stdout.contains('⊥'), "{}", read.stdout);
    }
    let told = reader.line_within("error[E0801]", TIMEOUT).expect("the running reader says so, too");
    assert!(told.contains("told this client what no honest broker says"), "{told}");
    assert_eq!(reader.end().0, 8);
}
