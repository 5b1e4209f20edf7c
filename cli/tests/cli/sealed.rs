//! Sealed groups of real processes over loopback multicast: each user has a folder of its own.

use crate::common::{Home, Running, free_port};
use sealcast::control::Answer;

/// A user with a group of its own at a port of its own, and nothing running.
fn founder(name: &str) -> Home {
    let home = Home::new(name);
    let url = format!("udpm://239.255.76.67:{}?ttl=0&keys=contributory", free_port());
    home.good(&["init", "ward3", "--url", &url]);
    home
}

/// Another user, invited by the first one.
fn invited(by: &Home, name: &str, grant: &[&str]) -> Home {
    let home = Home::new(&format!("{}-{name}", by.path().file_name().unwrap().to_string_lossy()));
    let key = home.good(&["id", "new", name]);
    let file = home.path().join("invite");
    let to = file.to_str().unwrap();
    by.good(&[&["invite", "--for", key.trim(), "--as", name, "-o", to], grant].concat());
    home.good(&["join", to]);
    home
}

/// A subscriber that is a member of an epoch of so many.
fn subscriber(home: &Home, members: usize) -> Running {
    let mut sub = home.start(&["sub", "ward3/#", "-v"]);
    sub.line_with(&format!("{members} member")).unwrap();
    sub
}

/// What a `pub` says whose message no other member was there for.
const ONLY_HERE: &str = "sealcast: warning: nobody else is in ward3: only subscriptions of this identity got it\n";

#[test]
fn the_first_session_of_the_manual() {
    let home = founder("first");
    let mut sub = home.start(&["sub", "ward3/#"]);
    // The session's socket is there as soon as it has a key.
    let shown = home.until(&["group", "show"], "epoch 1");
    assert!(shown.contains("origin: signed"), "{shown}");
    let ran = home.run(&["pub", "ward3/vitals", "{\"hr\":72}"]);
    assert_eq!((ran.exit, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ONLY_HERE));
    let line = sub.line_with("#1").unwrap();
    assert!(line.starts_with("#1 ward3/vitals  from you@"), "{line}");
    assert!(line.contains("  epoch 1  9 B  +") && line.ends_with(" ms"), "{line}");
    sub.line_with("{\"hr\":72}").unwrap();
    sub.interrupt();
    assert_eq!(sub.end().0, 130);
    assert_eq!(home.run(&["group", "show"]).exit, 1, "nothing runs any more");
}

#[test]
fn what_is_published_while_a_subscriber_starts_reaches_it() {
    for _ in 0..3 {
        let home = founder("start");
        let mut sub = home.start(&["sub", "ward3/#", "-C", "1"]);
        let ran = home.run(&["pub", "ward3/vitals", "{\"hr\":72}"]);
        assert_eq!((ran.exit, ran.stderr.as_str()), (0, ONLY_HERE));
        sub.line_with("{\"hr\":72}").unwrap();
        assert_eq!(sub.end().0, 0);
    }
}

#[test]
fn several_pubs_of_one_identity_at_once_all_arrive() {
    let home = founder("pubs");
    let alice = invited(&home, "alice", &[]);
    let mut sub = alice.start(&["sub", "ward3/#", "-v", "-C", "4"]);
    sub.line_with("1 member").unwrap();
    let mut all: Vec<Running> = (0..4).map(|i| home.start(&["pub", "ward3/x", &format!("body {i}")])).collect();
    for one in &mut all {
        let (exit, said) = one.end();
        assert_eq!(exit, 0, "{said}");
    }
    let (exit, said) = sub.end();
    assert_eq!(exit, 0);
    assert!((0..4).all(|i| said.contains(&format!("body {i}"))), "{said}");
}

#[test]
fn rule_a7_a_lone_pub_joins_and_leaves_and_says_so() {
    let home = founder("lone");
    let alone = home.run(&["pub", "ward3/x", "hello"]);
    assert_eq!(alone.exit, 4, "{}", alone.stderr);
    assert!(alone.stderr.contains("sent 1 message to 0 others, left"), "{}", alone.stderr);
    assert!(alone.stderr.contains("error[E0405]: nobody else is in ward3"), "{}", alone.stderr);
    let meant = home.run(&["pub", "ward3/x", "hello", "--alone"]);
    assert_eq!(meant.exit, 0, "{}", meant.stderr);
    assert!(meant.stderr.contains("nobody else is in ward3: nobody got it"), "{}", meant.stderr);

    let alice = invited(&home, "alice", &[]);
    let mut sub = subscriber(&alice, 1);
    let ran = home.run(&["pub", "ward3/x", "hello"]);
    assert!(ran.stderr.contains("sent 1 message to 1 other, left"), "{}", ran.stderr);
    let line = sub.line_with("ward3/x").unwrap();
    assert!(line.contains("  from you@"), "{line}");
}

#[test]
fn an_invited_member_is_shown_heard_and_evicted() {
    let home = founder("evict");
    let alice = invited(&home, "alice", &["--sub", "#", "--attr", "role=nurse"]);
    let carol = invited(&home, "carol", &["--pub", "ward3/+", "--sub", "ward3/#"]);
    let mut mine = subscriber(&home, 1);
    let mut hers = subscriber(&alice, 2);
    let mut carols = subscriber(&carol, 3);
    mine.line_with("3 members").unwrap();
    hers.line_with("3 members").unwrap();

    let shown = home.good(&["group", "members"]);
    let row = |name: &str| shown.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{shown}")).to_owned();
    assert!(row("alice").contains("role=nurse") && row("alice").trim_end().ends_with("0 / 1"), "{shown}");
    assert!(row("carol").trim_end().ends_with("1 / 1"), "{shown}");
    let members: Vec<serde_json::Value> =
        home.good(&["group", "members", "--json"]).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(members.len(), 3);
    // Carol reads a compartment of her own; what lies outside of it she does not.
    let shown = home.good(&["group", "show"]);
    let row = |name: &str| {
        let line = shown.lines().skip_while(|l| !l.starts_with("COMPARTMENT")).find(|l| l.starts_with(name));
        line.unwrap_or_else(|| panic!("{shown}")).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("ward3/#")[..3], ["ward3/#", "ward3/#", "all"], "{shown}");
    assert_eq!(row("# ")[4], "carol", "alice and you read it, carol only writes: {shown}");
    let info: serde_json::Value = serde_json::from_str(&home.good(&["group", "show", "--json"])).unwrap();
    let readers = |i: usize| info["compartments"][i]["readers"].as_array().map_or(0, Vec::len);
    assert_eq!((readers(0), readers(1), info["compartments"][0]["signed"].as_bool()), (3, 2, Some(true)), "{info}");

    // Who may not publish is told so, with its code.
    let denied = alice.run(&["pub", "ward3/x", "no"]);
    assert_eq!(denied.exit, 5, "{}", denied.stderr);
    assert!(denied.stderr.contains("error[E0412]: alice may not publish on ward3/x"), "{}", denied.stderr);
    assert_eq!(alice.run(&["group", "evict", "carol"]).exit, 5);

    carol.good(&["pub", "ward3/x", "from carol"]);
    mine.line_with("from carol").unwrap();
    let said = home.good(&["group", "evict", "carol", "--reason", "lost laptop"]);
    assert!(said.starts_with("revoked certificate #3 · epoch "), "{said}");
    assert!(said.contains(" · 2/2 members on the new key after "), "{said}");
    let (exit, last) = carols.end();
    assert_eq!(exit, 7, "{last}");
    assert!(last.contains("error[E0701]") && last.contains("lost laptop"), "{last}");

    home.good(&["pub", "ward3/secret", "not for carol"]);
    hers.line_with("not for carol").unwrap();
    let again = carol.run(&["sub", "ward3/#", "-W", "2s"]);
    assert_eq!(again.exit, 7, "{}", again.stderr);
    assert!(!again.stdout.contains("not for carol"));
    let log = home.good(&["group", "log"]);
    assert!(log.contains("evicted  carol") && log.contains("lost laptop"), "{log}");
    // Members have names there, and nobody reads a hash.
    let hash = regex::Regex::new("[0-9a-f]{12}").unwrap();
    assert!(!hash.is_match(&log), "{log}");

    let left = alice.good(&["group", "leave"]);
    assert!(left.starts_with("left ward3"), "{left}");
    assert_eq!(hers.end().0, 0);
}

#[test]
fn rule_a10_a_revocation_bites_a_live_member() {
    let home = founder("revoke");
    let carol = invited(&home, "carol", &[]);
    let mut mine = subscriber(&home, 1);
    let mut carols = subscriber(&carol, 2);
    let ran = home.run(&["ca", "revoke", "carol"]);
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("told the running session of ward3"), "{}", ran.stderr);
    assert_eq!(carols.end().0, 7);
    mine.line_with("1 member -carol").unwrap();
}

#[test]
fn rule_a10_a_revocation_reaches_a_group_through_any_member() {
    let home = founder("learn");
    let (alice, carol) = (invited(&home, "alice", &[]), invited(&home, "carol", &[]));
    let mut hers = subscriber(&alice, 1);
    let mut carols = subscriber(&carol, 2);
    hers.line_with("2 members").unwrap();
    // The authority's machine is not in the group: the list comes to alice as a file.
    home.good(&["ca", "revoke", "carol"]);
    let list = alice.path().join("ward.crl");
    home.good(&["ca", "crl", "-o", list.to_str().unwrap()]);
    let said = alice.good(&["id", "learn", list.to_str().unwrap()]);
    assert_eq!(said, "revocation list learned by alice, and by the session of ward3\n");
    assert_eq!(carols.end().0, 7);
    hers.line_with("1 member -carol").unwrap();
    let elsewhere = Home::new("learn-elsewhere");
    elsewhere.good(&["init", "other"]);
    assert_eq!(elsewhere.run(&["id", "learn", list.to_str().unwrap()]).exit, 6);
}

#[test]
fn a_key_is_rotated_on_demand_and_nothing_is_lost() {
    let home = founder("rotate");
    let alice = invited(&home, "alice", &[]);
    let mut mine = subscriber(&home, 1);
    let mut hers = subscriber(&alice, 2);
    mine.line_with("2 members").unwrap();
    let said = home.good(&["group", "rotate", "--json"]);
    let change: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(change["to"].as_u64() > change["from"].as_u64(), "{said}");
    assert_eq!((&change["on_new_key"], &change["members"]), (&2.into(), &2.into()));
    alice.good(&["pub", "ward3/after", "still here"]);
    mine.line_with("still here").unwrap();
    hers.line_with("still here").unwrap();
}

#[test]
fn one_identity_runs_once_and_serves_others_of_its_user() {
    let home = founder("once");
    let mut mine = subscriber(&home, 1);
    let mut second = home.start(&["-v", "sub", "ward3/vitals", "ward3/other", "-C", "3", "-W", "60s", "--json"]);
    second.line_with("through the running session").expect("the first one's");
    let mut third = home.start(&["-v", "sub", "ward3/#"]);
    third.line_with("through the running session").expect("the first one's");
    // Until they are heard: how they listen is not seen from outside.
    let mut said = 0;
    let heard = loop {
        home.good(&["pub", "ward3/vitals", &format!("{{\"hr\":{said}}}")]);
        said += 1;
        let exit = second.line_within("ward3/vitals", std::time::Duration::from_secs(1));
        if let Ok(line) = exit {
            break line;
        }
        assert!(said < 60, "nothing is heard");
    };
    assert!(heard.contains("\"topic\":\"ward3/vitals\"") && heard.contains("hr"), "{heard}");
    ["x", "y"].iter().for_each(|body| _ = home.good(&["pub", "ward3/other", body]));
    let refused = home.run(&["pub", "ward3/other", "--ordered", "x"]);
    assert!(refused.exit != 0 && refused.stderr.contains("multicast does not give --ordered"), "{}", refused.stderr);
    let (exit, all) = second.end();
    assert_eq!(exit, 0, "{all}");
    mine.interrupt();
    mine.end();
    third.line_with("has ended; joining").expect("it goes on by itself");
    third.line_with("1 member").expect("it is the member now");
    home.good(&["pub", "ward3/vitals", "still read"]);
    third.line_with("still read").expect("it reads on");
}

/// A message that went through a running session, and that nobody got, is an error like one of a session of its own.
#[test]
fn rule_a7_a_pub_through_a_session_that_is_alone_says_who_got_it() {
    let home = founder("alone-through");
    let mut sub = home.start(&["sub", "ward3/vitals"]);
    home.until(&["group", "show"], "epoch 1");
    let nobody = home.run(&["pub", "ward3/other", "hello"]);
    assert_eq!(nobody.exit, 4, "{}", nobody.stderr);
    assert!(nobody.stderr.contains("error[E0405]: nobody else is in ward3: nobody got it"), "{}", nobody.stderr);
    let meant = home.run(&["pub", "ward3/other", "hello", "--alone"]);
    assert_eq!(meant.exit, 0, "{}", meant.stderr);
    assert!(meant.stderr.contains("nobody got it"), "{}", meant.stderr);
    let here = home.run(&["pub", "ward3/vitals", "hello"]);
    assert_eq!((here.exit, here.stderr.as_str()), (0, ONLY_HERE));
    sub.line_with("hello").unwrap();
    let alice = invited(&home, "alice", &[]);
    let _hers = subscriber(&alice, 2);
    let others = home.run(&["pub", "ward3/other", "hello"]);
    assert_eq!((others.exit, others.stderr.as_str()), (0, ""));
}

/// A one-shot `pub` that is killed while the group lets it in, and one after it: that one finds the group.
#[test]
fn rule_a6_a_pub_after_a_killed_one_reaches_the_group() {
    let home = founder("killed");
    let others: Vec<Home> = ["alice", "bob", "carol"].map(|name| invited(&home, name, &[])).into();
    let mut subs: Vec<Running> = (0..).zip(&others).map(|(i, one)| subscriber(one, i + 1)).collect();
    subs[0].line_with("3 members").unwrap();
    for after in [190, 200, 210] {
        let killed = home.start(&["pub", "ward3/x", "killed"]);
        std::thread::sleep(std::time::Duration::from_millis(after));
        drop(killed);
        let ran = home.run(&["pub", "ward3/x", &format!("after {after}")]);
        assert_eq!(ran.exit, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains("sent 1 message to 3 others, left"), "{}", ran.stderr);
        for sub in &mut subs {
            sub.line_with(&format!("after {after}")).unwrap();
        }
    }
}

/// A session that evicts, and whose process then ends before it says so.
struct Dies(sealcast::control::GroupInfo);

impl sealcast::control::Handler for Dies {
    fn handle(&self, request: sealcast::control::Request, _bytes: Vec<u8>) -> sealcast::Result<Answer> {
        match request {
            sealcast::control::Request::Show => Ok(Answer::Show(Box::new(self.0.clone()))),
            _ => Err(sealcast::Error::new(sealcast::Code::Closed, "the session ended before it answered")),
        }
    }

    fn subscribe(&self, _: &str, _: bool) -> sealcast::Result<sealcast::Subscription> {
        Err(sealcast::Error::new(sealcast::Code::Closed, "the session ended"))
    }
}

#[test]
fn rule_a10_who_is_evicted_is_revoked_though_the_session_dies_meanwhile() {
    let home = founder("evictor-dies");
    let carol = invited(&home, "carol", &[]);
    let mut mine = subscriber(&home, 1);
    let _carols = subscriber(&carol, 2);
    mine.line_with("2 members").unwrap();
    let (socket, info) = socket(&home);
    mine.signal(rustix::process::Signal::KILL);
    mine.end();
    let _server = sealcast::control::Server::open(&socket, std::sync::Arc::new(Dies(info))).unwrap();
    let ran = home.run(&["group", "evict", "carol"]);
    assert_eq!(ran.exit, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("the session ended before it answered"), "{}", ran.stderr);
    let issued = home.good(&["ca", "ls", "ward3"]);
    let carols = issued.lines().find(|line| line.contains("carol")).unwrap();
    assert!(carols.contains("revoked"), "{issued}");
}

/// A second process that would be a member of its own is refused at once, where the first one does not end by itself.
#[test]
fn rule_a6_a_second_session_is_refused_without_waiting() {
    let home = founder("second");
    let mut mine = subscriber(&home, 1);
    let elsewhere = format!("udpm://239.255.76.67:{}?ttl=0&keys=contributory&group=ward3", free_port());
    for second in [&["-v", "sub", "#", "--url", &elsewhere][..], &["-v", "pub", "ward3/x", "x", "--url", &elsewhere]] {
        let ran = home.run(second);
        assert_eq!(ran.exit, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("error[E0112]"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("waiting for another process"), "{}", ran.stderr);
    }
    mine.interrupt();
    mine.end();
}

/// A session that has the identity, and tells of itself from the second time on that it is asked, or never.
struct Starts {
    info: Option<sealcast::control::GroupInfo>,
    asked: std::sync::atomic::AtomicU32,
}

impl sealcast::control::Handler for Starts {
    fn handle(&self, _request: sealcast::control::Request, _bytes: Vec<u8>) -> sealcast::Result<Answer> {
        let first = self.asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        let info = self.info.clone().filter(|_| !first);
        info.map(|info| Answer::Show(Box::new(info))).ok_or_else(sealcast::Error::closed)
    }

    fn subscribe(&self, _: &str, _: bool) -> sealcast::Result<sealcast::Subscription> {
        Err(sealcast::Error::closed())
    }
}

/// The socket of the identity's session that runs, and what it tells of itself.
fn socket(home: &Home) -> (std::path::PathBuf, sealcast::control::GroupInfo) {
    let kept = sealcast::config::Home::at(&home.path().join("home"));
    let info = sealcast::control::running(&kept).remove(0).show().unwrap();
    let socket = std::fs::read_dir(kept.runtime()).unwrap().map(|entry| entry.unwrap().path());
    (socket.into_iter().find(|path| path.extension().is_some_and(|it| it == "sock")).unwrap(), info)
}

/// The same of one that has ended.
fn ended(home: &Home) -> (std::path::PathBuf, sealcast::control::GroupInfo) {
    let mut mine = subscriber(home, 1);
    let its = socket(home);
    mine.interrupt();
    mine.end();
    its
}

/// One that gets the identity while ours looks for it: ours asks it again once it is refused, and waits for nothing.
#[test]
fn rule_a6_whoever_lost_the_race_for_an_identity_is_told_at_once() {
    let home = founder("raced");
    let (socket, info) = ended(&home);
    let other = std::sync::Arc::new(Starts { info: Some(info), asked: 0.into() });
    let _server = sealcast::control::Server::open(&socket, other.clone()).unwrap();
    let elsewhere = format!("udpm://239.255.76.67:{}?ttl=0&keys=contributory&group=ward3", free_port());
    let ran = home.run(&["-v", "sub", "#", "--url", &elsewhere]);
    assert_eq!(ran.exit, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("error[E0112]"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("waiting for another process"), "{}", ran.stderr);
    // Before it opened a session, when that was refused, and to say where the other one runs.
    assert_eq!(other.asked.load(std::sync::atomic::Ordering::Relaxed), 3);
}

/// One that ends while ours looks for it does not answer: it is waited for, and then ours has the identity.
#[test]
fn rule_a6_a_session_about_to_end_is_waited_for() {
    let home = founder("about-to-end");
    let (socket, _) = ended(&home);
    let other = std::sync::Arc::new(Starts { info: None, asked: 0.into() });
    let server = sealcast::control::Server::open(&socket, other).unwrap();
    let mut mine = home.start(&["sub", "ward3/#", "-v"]);
    mine.line_with("waiting for another process of this identity to end").unwrap();
    drop(server);
    mine.line_with("1 member").unwrap();
    mine.interrupt();
    mine.end();
}

/// Whoever compares an authority by eye compares 80 bits: 16 characters of 5.
#[test]
fn rule_a11_an_authority_is_compared_by_80_bits() {
    let home = Home::new("compared");
    let shown = [home.good(&["init", "ward3"]), home.good(&["ca", "ls"])];
    let key = home.path().join("key");
    let alice = Home::new("compared-alice");
    std::fs::write(&key, alice.good(&["id", "new", "alice"])).unwrap();
    let file = home.path().join("invite");
    let to = file.to_str().unwrap();
    home.good(&["invite", "--for", std::fs::read_to_string(&key).unwrap().trim(), "--as", "alice", "-o", to]);
    let joined = alice.run(&["join", to]);
    assert_eq!(joined.exit, 0, "{}", joined.stderr);
    let compared = regex::Regex::new("scca1([0-9a-z]+)…").unwrap();
    let of = |text: &str| compared.captures(text).unwrap_or_else(|| panic!("{text}"))[1].to_owned();
    let first = of(&shown[0]);
    assert_eq!(first.len(), 16, "{}", shown[0]);
    for text in [&shown[1], &joined.stderr] {
        assert_eq!(of(text), first, "{text}");
    }
    assert!(joined.stdout.contains(&format!("scca1{first}")), "all of it: {}", joined.stdout);
}

#[test]
fn a_pattern_that_is_not_granted_is_refused_before_joining() {
    let home = founder("denied");
    let alice = invited(&home, "alice", &["--sub", "ward3/vitals"]);
    let ran = alice.run(&["sub", "ward5/#"]);
    assert_eq!(ran.exit, 5);
    assert!(ran.stderr.contains("error[E0413]: alice may not subscribe to ward5/#"), "{}", ran.stderr);
}

#[test]
fn the_demonstration_holds_all_its_claims() {
    let home = Home::new("demo");
    let said = home.good(&["demo", "lan"]);
    assert_eq!(said.matches(" ✓ ").count(), 11, "{said}");
    assert!(said.contains("(we were evicted: lost)"), "{said}");
    let at = said.lines().next().and_then(|l| l.split(" in ").nth(1)).unwrap();
    assert!(!std::path::Path::new(at).exists(), "{at} stays behind");
}

#[test]
fn a_bench_prints_what_it_compares() {
    let home = Home::new("bench");
    for (arguments, kinds) in [
        (&["bench", "latency", "--count", "20", "--compare", "plain,sealed,signed", "--json"][..], 3),
        (&["bench", "throughput", "--time", "200ms", "--runs", "1", "--subs", "2", "--json"][..], 2),
        (&["bench", "join", "--members", "2", "--runs", "1", "--json"][..], 3),
        (&["bench", "rekey", "--members", "4", "--time", "1s", "--runs", "1", "--json"][..], 1),
    ] {
        let said = home.good(arguments);
        assert_eq!(said.lines().count(), kinds, "{said}");
        assert!(said.lines().all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()), "{said}");
        assert!(arguments[1] != "latency" || said.lines().all(|l| l.contains("\"cores\":\"one\"")), "{said}");
    }
}

#[test]
fn the_authority_evicts_where_no_member_has_the_right() {
    let home = Home::new("ca-evicts");
    let url = format!("udpm://239.255.76.67:{}?ttl=0", free_port());
    home.good(&["ca", "init", "ward3"]);
    home.good(&["ca", "issue", "a"]);
    home.good(&["ctx", "add", "ward3", "--url", &url, "--id", "a"]);
    let bob = invited(&home, "bob", &[]);
    let mut mine = subscriber(&home, 1);
    let mut bobs = subscriber(&bob, 2);
    mine.line_with("2 members").unwrap();
    assert_eq!(bob.run(&["group", "evict", "a"]).exit, 5, "bob has neither the right nor the authority");
    let said = home.good(&["group", "evict", "bob", "--reason", "test"]);
    assert!(said.starts_with("revoked certificate #2 · epoch "), "{said}");
    assert_eq!(bobs.end().0, 7);
    mine.line_with("1 member -bob").unwrap();
    assert!(home.good(&["ca", "ls", "ward3"]).contains("revoked"));
}

#[test]
fn a_pipe_of_lines_goes_through_the_running_session() {
    let home = founder("lines");
    let mut sub = home.start(&["sub", "ward3/#", "--format", "%i %s %p", "-v", "-C", "3"]);
    sub.line_with("epoch 1").unwrap();
    let lines = home.path().join("lines");
    std::fs::write(&lines, "one\ntwo\nthree\n").unwrap();
    let mut command = home.command(&["pub", "ward3/log", "-l", "--json"]);
    let output = command.stdin(std::fs::File::open(&lines).unwrap()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.matches("\"through\":\"session\"").count(), 3, "{said}");
    // The last one ends the subscriber, which answers it nevertheless.
    let (exit, heard) = sub.end();
    assert_eq!(exit, 0);
    let all: Vec<&str> = heard.lines().filter(|l| l.contains(" you@") && !l.starts_with('!')).collect();
    assert_eq!(all.len(), 3, "{heard}");
    assert!(all[0].starts_with("1 you@") && all[2].ends_with(" three"), "{heard}");
}

#[test]
fn an_interrupted_demonstration_leaves_nothing_behind() {
    let home = Home::new("demo-interrupted");
    let mut demo = home.start(&["demo"]);
    let said = demo.line_with("authority").unwrap();
    let at = said.split(" in ").nth(1).unwrap().to_owned();
    demo.line_with("agree").unwrap();
    demo.interrupt();
    let (exit, said) = demo.end();
    assert_eq!(exit, 130, "{said}");
    assert!(!std::path::Path::new(&at).exists(), "{at} stays behind");
}

#[test]
fn a_long_home_has_its_socket_all_the_same() {
    let home = founder("long");
    let long = home.path().join("x".repeat(90));
    std::fs::rename(home.path().join("home"), &long).unwrap();
    let start = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("SEALCAST_HOME", &long).env("TMPDIR", home.path());
        command
    };
    let mut sub = start(&["sub", "#", "-q"]).spawn().unwrap();
    let shown = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        start(&["group", "leave"]).output().unwrap().status.success()
    });
    assert!(shown);
    assert_eq!(sub.wait().unwrap().code(), Some(0));
}

/// `order=total`: commands that come, publish ordered and leave do so one after the other beside a reader, and so does the reader
/// itself once they are gone.
#[test]
fn rule_b1_a_command_publishes_ordered_beside_a_reader_and_leaves_it_able_to() {
    let home = Home::new("ordered");
    let place = format!("udpm://239.255.76.67:{}?ttl=0", free_port());
    home.good(&["init", "ward3", "--url", &format!("{place}&order=total")]);
    let alice = invited(&home, "alice", &[]);
    let mut sub = alice.start(&["sub", "ward3/#", "-v"]);
    sub.line_with("1 member").expect("it is there");
    for word in ["one", "two", "three", "four"] {
        let ran = home.run(&["pub", "ward3/log", "--ordered", word]);
        assert!(ran.exit == 0 && ran.stderr.contains("sent 1 message to 1 other"), "{word}: {}", ran.stderr);
        sub.line_with(word).expect("it has it");
    }
    let ran = alice.run(&["pub", "ward3/log", "--ordered", "five"]);
    assert!(ran.exit == 0, "{}", ran.stderr);
    sub.line_with("five").expect("its own, too");
    alice.until(&["group", "show"], "sequencer: alice");
    sub.interrupt();
    sub.end();
}

/// Who lost most of its group orders nothing, says so, and goes on by an operator's word alone.
#[test]
fn rule_b1_a_minority_orders_by_force_alone() {
    let home = Home::new("force");
    let place = format!("udpm://239.255.76.67:{}?ttl=0", free_port());
    home.good(&["init", "ward3", "--url", &format!("{place}&order=total")]);
    let (alice, bob) = (invited(&home, "alice", &[]), invited(&home, "bob", &[]));
    let mut mine = home.start(&["sub", "ward3/#", "-v"]);
    mine.line_with("1 member").expect("it is there");
    let others = [&alice, &bob].map(|it| it.start(&["sub", "ward3/#"]));
    mine.line_with("3 members").expect("they meet");
    home.until(&["group", "show"], "sequencer: ");
    let early = home.run(&["group", "primary", "--force"]);
    assert!(early.exit == 0 && early.stdout.contains("ordered here already"), "{}", early.stdout);
    others.iter().for_each(|it| it.signal(rustix::process::Signal::KILL));
    home.until(&["group", "show"], "nothing is ordered here");
    let refused = home.run(&["pub", "ward3/log", "--ordered", "one"]);
    assert!(refused.exit != 0 && refused.stderr.contains("E0805"), "{}", refused.stderr);
    let asked = home.run(&["group", "primary"]);
    assert!(asked.exit == 2 && asked.stderr.contains("--force"), "{}", asked.stderr);
    home.good(&["group", "primary", "--force"]);
    home.good(&["pub", "ward3/log", "--ordered", "two"]);
    mine.line_with("two").expect("it has it");
    home.until(&["group", "log"], "by force");
    mine.interrupt();
    mine.end();
}

/// `order=total`: what is published fifo is acknowledged when `pub` returns, by itself or through a running session.
#[test]
fn rule_b2_fifo_over_multicast_is_acknowledged_by_all() {
    let home = Home::new("fifo");
    let place = format!("udpm://239.255.76.67:{}?ttl=0", free_port());
    home.good(&["init", "ward3", "--url", &format!("{place}&order=total")]);
    let alice = invited(&home, "alice", &[]);
    let mut sub = subscriber(&alice, 1);
    alice.until(&["group", "show", "--json"], "nothing is ordered here: this member is not in the primary component");
    let ran = home.run(&["pub", "ward3/log", "--fifo", "one"]);
    assert!(ran.exit == 0 && ran.stderr.contains("sent 1 message to 1 other"), "{}", ran.stderr);
    sub.line_with("one").expect("it has it");
    let mut mine = home.start(&["sub", "ward3/#", "-v"]);
    mine.line_with("2 members").expect("they meet");
    home.good(&["pub", "ward3/log", "--fifo", "two"]);
    sub.line_with("two").expect("it has it");
    mine.line_with("two").expect("and so has its own");
    // A second start takes part in what runs, and is told that its own wish does not count.
    let mut second = home.start(&["--url", &place, "sub", "ward3/#"]);
    second.line_with("has order=total, which counts here, not order=best-effort").expect("it is told");
    second.interrupt();
    second.end();
    mine.interrupt();
    mine.end();
    // Who says nothing of an order is in no group with those who do, and is told why.
    let other = home.run(&["--url", &place, "pub", "ward3/log", "three"]);
    assert!(other.exit == 4 && other.stderr.contains("alice's URL says order=total"), "{}", other.stderr);
    alice.until(&["group", "log"], "ours order=total");
    let mut other = home.start(&["--url", &place, "sub", "ward3/#"]);
    other.line_with("alice's URL says order=total: yours must, too, to meet").expect("a reader is told, too");
    other.interrupt();
    other.end();
    sub.interrupt();
    sub.end();
}
