//! A key distribution centre, as its administrator and its principals see it.

use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use rustix::process::Signal;
use sealcast::config::KeptPrincipal;
use sealcast_crypto::leighton_micali::LongTerm;
use sealcast_crypto::secret::Secret;
use sealcast_kdc::server::{framed, unframed};
use sealcast_keys::center::query::{Answer, Query, Refusal};
use serde_json::Value;

use crate::common::{Home, Running, free_port};

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

/// Starts a centre on a free port, and waits until it listens; where it does.
fn run(home: &Home, more: &[&str]) -> (Running, String) {
    run_on(home, "127.0.0.1:0", more)
}

fn run_on(home: &Home, listen: &str, more: &[&str]) -> (Running, String) {
    let mut running = home.start(&[&["kdc", "run", "--listen", listen], more].concat());
    let line = running.line_with("listening ").expect("it listens");
    let address = line.split_whitespace().nth(1).expect("an address").to_owned();
    (running, address)
}

fn mode(home: &Home, path: &str) -> u32 {
    fs::metadata(home.path().join(path)).expect("it is there").mode() & 0o777
}

fn passphrase(home: &Home, name: &str, text: &str) {
    let path = home.path().join(name);
    fs::write(&path, text).expect("the folder can be written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
}

/// Asks a centre as a principal whose file lies in the home.
fn news(home: &Home, file: &str, at: &str) -> Answer {
    let who = KeptPrincipal::read(&home.path().join(file), None).expect("a principal").principal;
    let (me, nonce) = (who.registration.hash(), [7; 16]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(at).expect("an address");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket.send(&framed(&Query::News(0).write(&me, &nonce, &who.long_term))).expect("it is sent");
    let mut buffer = [0; 2000];
    let length = socket.recv(&mut buffer).expect("an answer");
    let answer = Answer::read(unframed(&buffer[..length]).expect("a frame")).expect("an answer");
    assert_eq!((answer.asker, answer.nonce), (me, nonce));
    answer.check(&who.long_term).expect("the centre's")
}

/// Of a group elsewhere.
const URL: &str = "udpm://239.1.1.1:7000?keys=center&kdc=10.0.0.1:7680";

#[test]
fn who_is_registered_is_listed_until_it_is_revoked_and_then_too() {
    let home = Home::new("kdc");
    let none = home.run(&["kdc", "ls"]);
    assert!(none.exit == 3 && none.stderr.contains("sealcast: hint: sealcast kdc register"), "{}", none.stderr);
    let said = home.good(&["kdc", "register", "leader", "--group", "ward3", "--lead", "--evict", "#"]);
    assert!(said.contains("leader.principal") && said.contains("ward3: both #   evict #   lead"), "{said}");
    assert_eq!(["leader.principal", "home/kdc/secret", "home/kdc/rows.redb"].map(|it| mode(&home, it)), [0o600; 3]);
    assert_eq!(mode(&home, "home/kdc"), 0o700);
    let made =
        home.good(&["kdc", "register", "robot7", "--group", "ward3", "--pub", "pose/robot7", "--ttl", "1d", "--json"]);
    let made = &json(&made)[0];
    assert_eq!(made["rights"], serde_json::json!(["urn:sealcast:ward3:pub:pose/robot7"]));
    assert_eq!(made["url"], "udpm://239.255.76.67:7667?ttl=0&keys=center&group=ward3&kdc=127.0.0.1:7680");
    home.good(&["kdc", "register", "x", "--group", "g", "--both", "a/#", "--url", URL, "-o", "x.file"]);
    let file = fs::read_to_string(home.path().join("x.file")).unwrap();
    assert!(file.contains(&format!("url = \"{URL}\"")) && file.contains("SC-SECRET-1"), "{file}");

    let twice = home.run(&["kdc", "register", "robot7", "--group", "ward3", "-o", "other"]);
    assert_eq!((twice.exit, home.path().join("other").exists()), (3, false));
    assert!(twice.stderr.contains("error[E0302]: 'robot7' is registered already"), "{}", twice.stderr);
    assert!(twice.stderr.contains("hint: another name; or first: sealcast kdc revoke robot7"), "{}", twice.stderr);
    let there = home.run(&["kdc", "register", "new", "--group", "ward3", "-o", "x.file"]);
    assert!(there.exit == 3 && there.stderr.contains("E0302") && !there.stderr.contains("--force"), "{}", there.stderr);

    let said = home.good(&["kdc", "revoke", "robot7", "--reason", "lost laptop"]);
    assert!(said.contains("revoked   robot7") && said.contains("revocation #1"), "{said}");
    let unknown = home.run(&["kdc", "revoke", "nobody"]);
    assert!(unknown.exit == 2 && unknown.stderr.contains("'nobody' is not registered"), "{}", unknown.stderr);
    let table = home.good(&["kdc", "ls"]);
    let line = |name: &str| table.lines().find(|it| it.starts_with(name)).expect("it is listed").to_owned();
    assert!(line("leader").ends_with("good") && line("robot7").ends_with(": lost laptop"), "{table}");
    let all = json(&home.good(&["kdc", "ls", "--json"]));
    assert_eq!(all.iter().map(|it| it["name"].as_str().unwrap()).collect::<Vec<_>>(), ["leader", "robot7", "x"]);
    assert_eq!(all[1]["hash"], made["hash"]);
    assert_eq!((&all[1]["revoked"]["revocation"], &all[1]["revoked"]["by"]), (&1.into(), &"administrator".into()));
    assert_eq!(all[0]["revoked"], Value::Null);
    home.good(&["kdc", "register", "robot7", "--group", "ward3", "-o", "robot7.again"]);
}

#[test]
fn a_principal_joins_with_its_file() {
    let home = Home::new("kdc-join");
    home.good(&["kdc", "register", "robot7", "--group", "ward3"]);
    let said = home.good(&["join", "robot7.principal"]);
    assert!(said.contains("context   ward3  udpm://239.255.76.67:7667?ttl=0&keys=center"), "{said}");
    assert_eq!(mode(&home, "home/principals/robot7.toml"), 0o600);
    let contexts = fs::read_to_string(home.path().join("home/contexts.toml")).unwrap();
    assert!(contexts.contains("selected = \"ward3\"") && contexts.contains("id = \"robot7\""), "{contexts}");
    home.good(&["join", "robot7.principal"]);

    // A renewed registration replaces the old one; another centre's does not.
    home.good(&["kdc", "revoke", "robot7"]);
    home.good(&["kdc", "register", "robot7", "--group", "ward3", "-o", "renewed"]);
    let told = json(&home.good(&["join", "renewed", "--json", "--url", "udpm://239.255.76.67:7700?keys=center"]));
    assert_eq!(told[0]["url"], "udpm://239.255.76.67:7700?keys=center");
    home.good(&["kdc", "register", "robot7", "--group", "ward3", "--dir", "other", "-o", "others"]);
    for old in ["robot7.principal", "others"] {
        let refused = home.run(&["join", old]);
        assert!(refused.exit == 3 && refused.stderr.contains("E0302"), "{old}: {}", refused.stderr);
    }
    fs::set_permissions(home.path().join("renewed"), Permissions::from_mode(0o644)).unwrap();
    let exposed = home.run(&["join", "renewed"]);
    assert!(exposed.exit == 3 && exposed.stderr.contains("hint: chmod 600"), "{}", exposed.stderr);
    let short = ["kdc", "register", "short", "--group", "ward3", "--ttl", "1s"];
    home.good(&short);
    std::thread::sleep(Duration::from_millis(2_100));
    let over = home.run(&["join", "short.principal"]);
    assert!(over.exit == 7 && over.stderr.contains("E0702"), "{}", over.stderr);
}

#[test]
fn a_sealed_file_opens_with_its_pass_phrase_alone() {
    let home = Home::new("kdc-sealed");
    passphrase(&home, "phrase", "correct horse\n");
    passphrase(&home, "wrong", "wrong horse\n");
    passphrase(&home, "empty", "\n");
    home.good(&["kdc", "register", "robot7", "--group", "ward3", "--passphrase-file", "phrase"]);
    let text = fs::read_to_string(home.path().join("robot7.principal")).unwrap();
    assert!(!text.contains("SC-SECRET-1") && text.contains("argon2id"), "{text}");
    let wrong = home.run(&["join", "robot7.principal", "--passphrase-file", "wrong"]);
    assert!(
        wrong.exit == 6 && wrong.stderr.contains("E0602") && wrong.stderr.contains("pass phrase"),
        "{}",
        wrong.stderr
    );
    assert!(!home.path().join("home/principals/robot7.toml").exists());
    let empty = home.run(&["join", "robot7.principal", "--passphrase-file", "empty"]);
    assert!(empty.exit == 3 && empty.stderr.contains("is empty"), "{}", empty.stderr);
    let said = home.good(&["join", "robot7.principal", "--passphrase-file", "phrase"]);
    assert!(said.contains("sealed by a pass phrase"), "{said}");
    let kept = fs::read_to_string(home.path().join("home/principals/robot7.toml")).unwrap();
    assert_eq!(kept, text, "it stays sealed");
    fs::set_permissions(home.path().join("phrase"), Permissions::from_mode(0o644)).unwrap();
    let exposed = home.run(&["join", "robot7.principal", "--passphrase-file", "phrase"]);
    assert!(exposed.exit == 3 && exposed.stderr.contains("E0303"), "{}", exposed.stderr);
}

#[test]
fn a_centre_that_runs_registers_revokes_and_ends_cleanly() {
    let home = Home::new("kdc-run");
    let (mut running, at) = run(&home, &[]);
    let twice = home.run(&["kdc", "run", "--listen", "127.0.0.1:0"]);
    assert!(twice.exit == 1 && twice.stderr.contains("E0112"), "{}", twice.stderr);
    let taken = home.run(&["kdc", "run", "--dir", "other", "--listen", &at]);
    assert!(taken.exit == 4 && taken.stderr.contains("E0404"), "{}", taken.stderr);

    let made = home.good(&["kdc", "register", "leader", "--group", "ward3", "--lead", "--json"]);
    assert!(json(&made)[0]["url"].as_str().unwrap().ends_with(&format!("&kdc={at}")), "{made}");
    assert_eq!(news(&home, "leader.principal", &at), Answer::Revoked(0, vec![]));
    let made = json(&home.good(&["kdc", "register", "robot7", "--group", "ward3", "--json"]))[0].clone();
    home.good(&["kdc", "revoke", "robot7"]);
    let Answer::Revoked(1, list) = news(&home, "leader.principal", &at) else { panic!() };
    assert_eq!(hex::encode(list[0].1.0), made["hash"].as_str().unwrap());
    assert_eq!(home.good(&["kdc", "ls"]).lines().count(), 3);

    // Killed in the middle of everything: nothing that was answered is lost.
    running.signal(Signal::KILL);
    running.end();
    let listed = home.good(&["kdc", "ls"]);
    assert!(listed.lines().count() == 3 && listed.contains("revoked"), "{listed}");
    let (mut running, at) = run(&home, &[]);
    assert!(matches!(news(&home, "leader.principal", &at), Answer::Revoked(1, _)));
    running.interrupt();
    let (exit, said) = running.end();
    assert!(exit == 130 && said.contains("! ended     1 answered   dropped: none"), "{exit}: {said}");
    assert!(!home.path().join("home/kdc/control.sock").exists());
}

#[test]
fn rule_c1_a_stand_by_answers_until_it_is_stale() {
    let home = Home::new("kdc-standby");
    home.good(&["kdc", "register", "leader", "--group", "ward3", "--lead"]);
    let (mut first, at) = run(&home, &[]);
    let options = ["--dir", "second", "--standby-of", &at, "--stale-after", "3s"];
    let fresh = home.run(&[&["kdc", "run"][..], &options].concat());
    assert!(fresh.exit == 3 && fresh.stderr.contains("has no file 'secret'"), "{}", fresh.stderr);
    assert!(fresh.stderr.contains("hint: mkdir -m 700 -p") && fresh.stderr.contains("scp -p"), "{}", fresh.stderr);
    assert!(!home.path().join("second/secret").exists(), "it made no secret of its own");
    let hasty = home.run(&["kdc", "run", "--standby-of", &at, "--stale-after", "1s"]);
    assert!(hasty.exit == 2 && hasty.stderr.contains("E0203"), "{}", hasty.stderr);
    let nowhere = home.run(&["kdc", "run", "--standby-of", "nowhere"]);
    assert!(nowhere.exit == 4 && nowhere.stderr.contains("E0404"), "{}", nowhere.stderr);

    fs::create_dir(home.path().join("second")).unwrap();
    fs::set_permissions(home.path().join("second"), Permissions::from_mode(0o700)).unwrap();
    // As scp -p does: the mode goes with it.
    fs::copy(home.path().join("home/kdc/secret"), home.path().join("second/secret")).unwrap();
    let (mut second, second_at) = run(&home, &options);
    second.line_with("! fresh").unwrap();
    assert_eq!(news(&home, "leader.principal", &second_at), Answer::Revoked(0, vec![]));
    let refused = home.run(&["kdc", "register", "robot7", "--group", "ward3", "--dir", "second"]);
    assert!(refused.exit == 3 && refused.stderr.contains("is a stand-by"), "{}", refused.stderr);
    assert!(!home.path().join("robot7.principal").exists());

    first.interrupt();
    assert_eq!(first.end().0, 130);
    second.line_with("! stale").unwrap();
    assert_eq!(news(&home, "leader.principal", &second_at), Answer::Refused(3, 0, Refusal::Stale));
    second.interrupt();
    assert_eq!(second.end().0, 130);

    let silent = home.run(&["kdc", "run", "--dir", "second"]);
    assert!(silent.exit == 3 && silent.stderr.contains("--promote"), "{}", silent.stderr);
    let (_second, at) = run(&home, &["--dir", "second", "--promote"]);
    assert_eq!(news(&home, "leader.principal", &at), Answer::Revoked(0, vec![]));
    home.good(&["kdc", "register", "robot7", "--group", "ward3", "--dir", "second"]);
}

/// A centre that answers each question, and knows nobody's keys.
fn liar() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let at = socket.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let Ok(Ok(query)) = unframed(&buffer[..length]).map(Query::read) else { continue };
            let wrong = LongTerm { exchange: Secret::from_bytes([1; 32]), authentication: Secret::from_bytes([2; 32]) };
            let answer = Answer::Done(0).write(&query.asker, &query.nonce, &wrong);
            _ = socket.send_to(&framed(&answer), from);
        }
    });
    at
}

/// A member that is not let in is told which of them it is: the centre's address, the principal's file, or its time.
#[test]
fn a_lying_a_silent_and_another_centre_are_told_apart() {
    let home = Home::new("kdc-bad");
    let (_running, at) = run(&home, &[]);
    let place = format!("udpm://239.255.76.67:{}?ttl=0&keys=center&group=ward3", free_port());
    let url = |kdc: &str| format!("{place}&kdc={kdc}&wait=2s");
    let good = url(&at);
    let register = ["--url", &good, "kdc", "register", "--group", "ward3", "--both", "#", "--x25519"];
    home.good(&[&register[..], &["leader", "--lead"]].concat());
    home.good(&[&register[..], &["robot7"]].concat());
    home.good(&["--url", &good, "kdc", "register", "robot8", "--group", "ward3", "--dir", "other"]);
    home.good(&["--url", &good, "kdc", "register", "short", "--group", "ward3", "--ttl", "6s"]);
    for name in ["leader", "robot7", "robot8", "short"] {
        home.good(&["join", &format!("{name}.principal")]);
    }
    let mut leader = home.start(&["--id", "leader", "--url", &good, "sub", "#", "-v"]);
    leader.line_with(": 1 member").expect("it leads");
    let late = |who: &str, kdc: &str| {
        let ran = home.run(&["--id", who, "--url", &url(kdc), "pub", "t", "x"]);
        assert!(ran.exit == 4 && ran.stderr.contains("no key of ward3 was agreed in 2"), "{who}: {}", ran.stderr);
        ran.stderr
    };
    let said = late("robot7", &liar());
    assert!(said.contains("prove nothing: is at kdc= the centre that made your principal file?"), "{said}");
    // A stand-by that has everything, and hears of the first centre no more.
    fs::create_dir(home.path().join("second")).unwrap();
    fs::set_permissions(home.path().join("second"), Permissions::from_mode(0o700)).unwrap();
    fs::copy(home.path().join("home/kdc/secret"), home.path().join("second/secret")).unwrap();
    let (mut second, _) = run(&home, &["--dir", "second", "--standby-of", &at]);
    second.line_with("! fresh").unwrap();
    second.interrupt();
    second.end();
    let (_second, stale) = run(&home, &["--dir", "second", "--standby-of", "127.0.0.1:9"]);
    let said = late("robot7", &stale);
    assert!(said.contains("is a stand-by that has not heard from the first one: start that one again"), "{said}");
    let said = late("robot7", "127.0.0.1:9");
    assert!(said.contains("does 'sealcast kdc run' listen at kdc=, not stale?"), "{said}");
    let said = late("robot8", &at);
    assert!(said.contains("did the centre of this group make your principal file?"), "{said}");
    // By the true centre it is let in, under keys that the centre cannot compute, as both registered.
    let mut robot = home.start(&["--id", "robot7", "--url", &good, "sub", "#", "-v"]);
    robot.line_with("2 members").expect("it is let in");
    let shown = home.good(&["--id", "robot7", "--url", &good, "group", "show"]);
    assert!(shown.contains("keys    center (Leighton-Micali, and X25519)"), "{shown}");
    robot.interrupt();
    robot.end();
    // Whose time is over is told so before anything else.
    std::thread::sleep(Duration::from_secs(2));
    let over = home.run(&["--id", "short", "--url", &good, "pub", "t", "x"]);
    assert!(over.exit == 7 && over.stderr.contains("E0702"), "{}", over.stderr);
    leader.interrupt();
    leader.end();
}

#[test]
fn a_full_disk_registers_nobody() {
    let home = Home::new("kdc-full-disk");
    home.good(&["kdc", "register", "leader", "--group", "ward3", "--lead"]);
    let full = home.run_on_a_full_disk(&["kdc", "register", "robot7", "--group", "ward3"]);
    assert!(full.exit == 1 && full.stderr.contains("sealcast: error[E01"), "{}: {}", full.exit, full.stderr);
    assert!(!home.path().join("robot7.principal").exists());
    assert!(!home.good(&["kdc", "ls"]).contains("robot7"), "what was not answered did not happen");
    home.good(&["kdc", "register", "robot7", "--group", "ward3"]);
}

/// A centre that can store nothing starts, follows and revokes nothing, and says what it could not write.
#[test]
fn a_full_disk_runs_no_centre_and_revokes_nobody() {
    let home = Home::new("kdc-full-disk-run");
    home.good(&["kdc", "register", "leader", "--group", "ward3", "--lead"]);
    fs::create_dir(home.path().join("second")).unwrap();
    fs::set_permissions(home.path().join("second"), Permissions::from_mode(0o700)).unwrap();
    fs::copy(home.path().join("home/kdc/secret"), home.path().join("second/secret")).unwrap();
    let stand_by = ["kdc", "run", "--listen", "127.0.0.1:0", "--dir", "second", "--standby-of", "127.0.0.1:9"];
    for (line, folder) in [
        (&["kdc", "run", "--listen", "127.0.0.1:0"][..], "home/kdc"),
        (&["kdc", "revoke", "leader"], "home/kdc"),
        (&["kdc", "run", "--listen", "127.0.0.1:0", "--dir", "new"], "new"),
        (&stand_by, "second"),
    ] {
        let full = home.run_on_a_full_disk(line);
        assert!(
            full.exit == 1 && full.stderr.contains("sealcast: error[E01"),
            "{line:?} {}: {}",
            full.exit,
            full.stderr
        );
        assert!(full.stdout.is_empty() && full.stderr.contains(folder), "{line:?}: {}{}", full.stdout, full.stderr);
    }
    assert!(!home.good(&["kdc", "ls"]).contains("revoked"), "what was not answered did not happen");
    home.good(&["kdc", "revoke", "leader"]);
}

#[test]
fn a_principal_is_given_no_url_that_it_could_not_join_by() {
    let home = Home::new("kdc-wrong-url");
    for (url, why) in [
        ("udpm://239.255.76.99:7699?ttl=0", "its keys come from no centre"),
        ("udpm://239.255.76.99:7699?keys=center&kdc=127.0.0.1:7680&group=ward4", "not a URL of the group ward3"),
    ] {
        let refused = home.run(&["--url", url, "kdc", "register", "desk", "--group", "ward3"]);
        assert!(refused.exit == 3 && refused.stderr.contains("E0308"), "{}", refused.stderr);
        assert!(
            refused.stderr.contains(why) && refused.stderr.contains("keys=center&group=ward3"),
            "{}",
            refused.stderr
        );
    }
    // Nobody was registered either: nothing was made.
    assert!(!home.run(&["kdc", "ls"]).stdout.contains("desk"));
}

#[test]
fn a_centre_that_nobody_can_reach_by_its_address_says_so() {
    let home = Home::new("kdc-url");
    let (mut running, _) = run_on(&home, "0.0.0.0:0", &[]);
    let refused = home.run(&["kdc", "register", "robot7", "--group", "ward3"]);
    assert!(refused.exit == 3 && refused.stderr.contains("E0307"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("hint: --url 'udpm://") && refused.stderr.contains("kdc=HOST:"),
        "{}",
        refused.stderr
    );
    assert!(!home.good(&["kdc", "ls"]).contains("robot7"));
    running.interrupt();
    assert_eq!(running.end().0, 130);
}

#[test]
fn rule_b2_a_conference_whose_leader_is_killed_loses_nothing_that_was_acknowledged() {
    let home = Home::new("demo-conference");
    let told = home.good(&["demo", "conference", "--json"]);
    let steps = json(&told);
    assert_eq!(steps.len(), 9, "{told}");
    assert!(steps.iter().all(|it| it["holds"] == true), "{told}");
    let what = |step: usize| steps[step - 1]["what"].as_str().expect("it is told").to_owned();
    assert!(what(5).contains("is killed with -9") && what(7).starts_with("one log of the shared state"), "{told}");
    assert!(what(8).contains("of ann's among them") && what(9).contains("0 dropped as no-key"), "{told}");
    let folder = what(1).split("files in ").nth(1).expect("it says where").to_owned();
    assert!(!std::path::Path::new(&folder).exists(), "{folder} stays behind");
}

#[test]
fn an_interrupted_conference_leaves_no_process_and_no_folder() {
    let home = Home::new("demo-conference-interrupted");
    let mut demo = home.start(&["demo", "conference"]);
    let said = demo.line_with("files in ").unwrap();
    let folder = said.split("files in ").nth(1).unwrap().to_owned();
    demo.line_with("cameras run").unwrap();
    demo.interrupt();
    let (exit, said) = demo.end();
    assert_eq!(exit, 130, "{said}");
    assert!(!std::path::Path::new(&folder).exists(), "{folder} stays behind");
    let port = said.split("centre at ").nth(1).and_then(|it| it.split(' ').next()).unwrap();
    assert!(UdpSocket::bind(port).is_ok(), "the centre at {port} stays behind");
}
