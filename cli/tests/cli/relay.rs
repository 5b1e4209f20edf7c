//! Groups at a relay: Mosquitto as the MQTT broker, `sealcast-relay` as the directory, and members who trust neither.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::common::relay::{ANYBODY, Mosquitto, Relay, program};
use crate::common::{Home, Running, free_port};

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
fn who_comes_back_to_a_relay_gets_what_was_ordered_meanwhile_and_nothing_twice() {
    let home = Home::new("relay-away");
    home.good(&["ca", "init", "exchange"]);
    for member in ["ann", "bob"] {
        home.good(&["ca", "issue", member]);
    }
    let mut relay = Relay::start(&home);
    let url = format!("{}&wait=60s", relay.url("mls", "exchange"));
    let mut ann = hears(&home, "ann", &url, "1");
    ann.line_within("1 member", TIMEOUT).expect("she founds the group");
    let mut bob = hears(&home, "bob", &url, "100");
    bob.line_within("2 members", TIMEOUT).expect("he is let in");
    // It goes out through the session that runs: the epoch stays.
    let orders = |what| home.good(&["--id", "bob", "--url", &url, "pub", "--ordered", "orders", what]);
    orders("first");
    let (exit, heard) = ann.end();
    assert!(exit == 0 && heard.contains("first"), "{heard}");
    orders("second");
    orders("third");
    let (exit, heard) = hears(&home, "ann", &url, "2").end();
    let has = |what: &str| heard.contains(what);
    assert!(exit == 0 && has("second") && has("third") && !has("first"), "{heard}");

    // What a process took from the log while it ran, and did not read, waits for the next one.
    let mut ann = hears(&home, "ann", &url, "1");
    ann.line_within("2 members", TIMEOUT).expect("she is back");
    ["one", "two", "three"].into_iter().for_each(|it| _ = orders(it));
    let (exit, heard) = ann.end();
    assert!(exit == 0 && heard.contains("one") && !heard.contains("two"), "{heard}");
    let (exit, heard) = hears(&home, "ann", &url, "2").end();
    let has = |what: &str| heard.contains(what);
    assert!(exit == 0 && has("two") && has("three") && !has("one"), "{heard}");

    // Killed, more than a second after it took something.
    let mut ann = hears(&home, "ann", &url, "100");
    ann.line_within("2 members", TIMEOUT).expect("she is back");
    orders("fourth");
    ann.line_within("fourth", TIMEOUT).expect("she hears it");
    std::thread::sleep(Duration::from_millis(1500));
    drop(ann);
    orders("fifth");
    let (exit, heard) = hears(&home, "ann", &url, "1").end();
    assert!(exit == 0 && heard.contains("fifth"), "{heard}");

    // With history that holds for all that is published, also by who is there for a moment alone.
    drop(bob);
    let url = format!("{url}&history=on");
    for what in ["sixth", "seventh"] {
        home.good(&["--id", "bob", "--url", &url, "pub", "orders", what]);
    }
    let mut ann = hears(&home, "ann", &url, "3");
    for what in ["sixth", "seventh"] {
        ann.line_within(what, TIMEOUT).expect("she gets it");
    }
    // A relay that is away is spoken of.
    relay.kill();
    ann.line_within("no messages come until", TIMEOUT).expect("she is told");
    relay.serve();
    ann.line_within("the relay works again", TIMEOUT).expect("she is told of its end");
    home.good(&["--id", "bob", "--url", &url, "pub", "orders", "eighth"]);
    let (exit, heard) = ann.end();
    assert!(exit == 0 && heard.contains("eighth"), "{heard}");
}

#[test]
fn a_newcomer_comes_into_a_group_of_one_that_is_off() {
    let home = Home::new("relay-off");
    home.good(&["ca", "init", "exchange"]);
    for member in ["ann", "bob"] {
        home.good(&["ca", "issue", member]);
    }
    let relay = Relay::start(&home);
    let url = format!("{}&wait=20s", relay.url("mls", "exchange"));
    let mut ann = hears(&home, "ann", &url, "1");
    ann.line_within("1 member", TIMEOUT).expect("she founds the group");
    // The way in is posted a moment later.
    std::thread::sleep(Duration::from_secs(1));
    drop(ann);
    home.good(&["--id", "bob", "--url", &url, "pub", "--alone", "--ordered", "orders", "early"]);
    let (exit, heard) = hears(&home, "ann", &url, "1").end();
    assert!(exit == 0 && heard.contains("early"), "{heard}");
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

#[test]
fn a_relay_that_signed_two_logs_is_convicted_and_refused_until_its_user_wants_it_back() {
    let home = Home::new("relay-fork");
    home.good(&["ca", "init", "exchange"]);
    for member in ["ann", "bob", "carol"] {
        home.good(&["ca", "issue", member]);
    }
    let mut relay = Relay::start(&home);
    let url = format!("{}&wait=60s", relay.url("mls", "exchange"));
    assert_eq!(home.good(&["relay", "evidence"]), "");
    let mut ann = hears(&home, "ann", &url, "9");
    ann.line_within("1 member", TIMEOUT).expect("she founds the group");
    let says = |id: &str, what: &str| {
        home.good(&["--id", id, "--url", &url, "pub", "market/eurusd", what]);
    };
    says("bob", "one");
    says("carol", "two");
    relay.kill();
    let copy = relay.copy();
    relay.serve();
    says("bob", "three");
    ann.line_within("three", TIMEOUT).expect("she has it");
    // The folder of before comes back, and the log grows anew with somebody who saw nothing of the rest.
    relay.kill();
    relay.put_back(&copy);
    relay.serve();
    // What became of it she need not learn: she is alone once the others know.
    let alone = |what: &str| home.run(&["--id", "carol", "--url", &url, "pub", "--alone", "market/eurusd", what]);
    alone("four");
    let (exit, said) = ann.end();
    assert!(exit == 8 && said.contains("error[E0801]: the relay scrl1") && said.contains("hint:"), "{exit}: {said}");
    assert!(said.contains("sealcast relay evidence") && said.contains("rm "), "{said}");

    let kept: Value = serde_json::from_str(&home.good(&["relay", "evidence", "--json"])).expect("one is kept");
    let path = kept["path"].as_str().expect("it lies somewhere").to_owned();
    let name = path.rsplit('/').next().expect("it has a name");
    assert!(kept["verified"] == true && home.good(&["relay", "evidence"]).contains(name), "{kept}");
    let key = kept["proves"]["relay"].as_str().expect("it names the relay").to_owned();
    let told = home.good(&["relay", "evidence", "verify", &path]);
    assert!(told.starts_with(&format!("convicted  the relay {key}")), "{told}");
    home.good(&["relay", "evidence", "verify", &path, "--relay", &key]);
    home.good(&["--url", &url, "--id", "ann", "relay", "evidence", "verify", &path]);

    // One bit of a signature; another relay; what is no proof at all.
    let text = fs::read_to_string(&path).expect("it can be read");
    let file = home.path().join("changed.json");
    let changed = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        fs::write(&file, text.replace(from, to)).expect("it is written");
        let ran = home.run(&["relay", "evidence", "verify", "changed.json"]);
        assert!(ran.stderr.contains("hint:"), "{}", ran.stderr);
        ran.exit
    };
    let (digits, of) = ("\"evidence\": \"", |at: usize| text[at..].chars().next().expect("a digit"));
    let begin = text.find(digits).expect("it has evidence") + digits.len();
    let at = begin + 2 * (1 + 32 + 8 + 32);
    let flipped = format!("{}{}", if of(at) == '0' { '1' } else { '0' }, &text[at + 1..at + 20]);
    assert_eq!(changed(&text[at..at + 20], &flipped), 6);
    assert_eq!(changed(&key, OTHER_KEY), 6);
    assert_eq!(changed("evidence\":", "nothing\":"), 3);
    assert_eq!(changed("{", "["), 3);
    let ran = home.run(&["relay", "evidence", "verify", &path, "--relay", OTHER_KEY]);
    assert!(ran.exit == 6 && ran.stderr.contains("E0601"), "{}", ran.stderr);

    // Nobody of this user goes there again, whatever the command.
    for (id, command) in [("ann", "sub #"), ("bob", "pub t x"), ("ann", "relay check"), ("ann", "doctor")] {
        let words: Vec<&str> = ["--id", id, "--url", &url].into_iter().chain(command.split(' ')).collect();
        let ran = home.run(&words);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(ran.exit == 8 && said.contains("E0801") && said.contains(name), "{command}: {said}");
    }
    // Another key is another relay, and a proof is its user's to delete.
    let other =
        home.run(&["--id", "bob", "--url", &url.replace(&key, OTHER_KEY).replace("60s", "2s"), "pub", "t", "x"]);
    assert!(other.exit == 6 && other.stderr.contains("E0603"), "{}", other.stderr);
    for path in files(&home.path().join("home/state/relays")) {
        fs::remove_file(path).expect("it can be deleted");
    }
    let ran = alone("five");
    assert!(!ran.stderr.contains("E0801"), "{}", ran.stderr);
}

/// Looks at a relay, and for the same by `doctor`: exit code, and what `relay check` said.
fn looked_at(home: &Home, url: &str) -> (i32, String) {
    let check = home.run(&["--id", "ann", "--url", url, "relay", "check"]);
    let doctor = home.run(&["--id", "ann", "--url", url, "doctor"]);
    assert_eq!(check.exit, doctor.exit, "{}{}\n{}{}", check.stdout, check.stderr, doctor.stdout, doctor.stderr);
    let said = check.stdout + &check.stderr;
    for code in said.split("[E").skip(1).map(|it| format!("[E{}", &it[..5])) {
        assert!(doctor.stdout.contains(&code), "{code} in {}", doctor.stdout);
    }
    (check.exit, said)
}

#[test]
fn a_look_at_a_relay_names_what_is_wrong_with_broker_and_directory() {
    let home = Home::new("relay-check");
    home.good(&["ca", "init", "exchange"]);
    home.good(&["ca", "issue", "ann"]);
    let write = |name: &str, text: &str| fs::write(home.path().join(name), text).expect("the folder can be written");
    let at = |name: &str| home.path().join(name).display().to_string();
    for name in ["ours", "theirs"] {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("it is made");
        write(&format!("{name}.pem"), &made.cert.pem());
        write(&format!("{name}.key"), &made.signing_key.serialize_pem());
    }
    let relay = Relay::start(&home);
    let url = relay.url("mls", "exchange");

    let (exit, said) = looked_at(&home, &url);
    assert_eq!(exit, 0, "{said}");
    for part in
        ["came back after", "nobody has founded the group", "the pinned key scrl1", "its clock is", "who subscribes"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    home.good(&["--id", "ann", "--url", &url, "pub", "--alone", "t", "x"]);
    assert!(looked_at(&home, &url).1.contains("its log ends at "));
    let lines = home.good(&["--id", "ann", "--url", &url, "relay", "check", "--json"]);
    let lines: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).expect("an object a line")).collect();
    assert!(lines.iter().any(|it| it["check"] == "directory" && it["state"] == "good"), "{lines:?}");
    assert!(lines.iter().any(|it| it["sees"].is_string()), "{lines:?}");
    let plain = home.good(&["--url", &relay.url("plain", "x"), "relay", "check"]);
    assert!(plain.contains("all names, topics and payloads, too"), "{plain}");

    // A broker with users; one of them may not publish. One with TLS.
    let passwd = |user: &str, how: &str| {
        let made = Command::new("mosquitto_passwd").args(["-b", how, &at("users"), user, "right"]).status();
        assert!(made.is_ok_and(|it| it.success()), "mosquitto_passwd is part of mosquitto");
    };
    passwd("ann", "-c");
    passwd("reader", "-b");
    write("rights", "user ann\ntopic readwrite #\nuser reader\ntopic read #\n");
    write("right", "right\n");
    write("wrong", "wrong\n");
    let locked = format!("password_file {}\nacl_file {}\n", at("users"), at("rights"));
    let locked = Mosquitto::start(home.path(), free_port(), &locked);
    let files = format!("{ANYBODY}certfile {}\nkeyfile {}\n", at("ours.pem"), at("ours.key"));
    let secure = Mosquitto::start(home.path(), free_port(), &files);

    let port = |port: u16| url.replace(&format!(":{}/", relay.mqtt_port()), &format!(":{port}/"));
    let login = |user: &str, file: &str| format!("{}&user={user}&password-file={}", port(locked.port), at(file));
    let mqtts = |of: u16, ca: &str| format!("{}&ca={}", port(of).replace("mqtt:", "mqtts:"), at(ca));
    let directory = |at: u16, path: &str| url.replace(&format!(":{}/v1", relay.port()), &format!(":{at}{path}"));
    let junk = [b"HTTP/1.1 200 OK\r\ncontent-length: 2097152\r\n\r\n".to_vec(), vec![0x95; 2 << 20]].concat();
    let (talks_junk, answers_junk) = (answers(vec![0x95; 2 << 20]), answers(junk));
    let silent = answers(Vec::new());
    let known = url.split_once("relay=").expect("it names a key").1.to_owned();
    let mut wrong = Vec::new();
    for (url, exit, code, part) in [
        (login("ann", "right"), 0, "", "came back after"),
        (mqtts(secure.port, "ours.pem"), 0, "", "came back after"),
        (port(9), 4, "[E0401]", "connection refused"),
        (login("ann", "wrong"), 6, "[E0604]", "refuses user ann or its password"),
        (login("nobody", "right"), 6, "[E0604]", "refuses user nobody or its password"),
        (port(locked.port), 6, "[E0604]", "add &user=NAME&password-file=FILE"),
        (login("reader", "right"), 5, "[E0412]", "does not let this user publish"),
        (login("ann", "missing"), 3, "[E0301]", "missing does not exist"),
        (mqtts(relay.mqtt_port(), "ours.pem"), 4, "[E0401]", "want the port that has TLS"),
        (port(secure.port), 4, "[E0401]", "where it wants TLS, say mqtts:"),
        (mqtts(secure.port, "theirs.pem"), 6, "[E0603]", "its certificate does not count here"),
        (mqtts(secure.port, "right"), 3, "[E0305]", "ca= takes a file of certificates in PEM"),
        (port(talks_junk), 4, "[E0401]", "does it speak MQTT 5 there?"),
        (port(silent), 4, "[E0401]", "the MQTT broker"),
        (url.replace(&known, OTHER_KEY), 6, "[E0603]", "does not have the pinned key"),
        (directory(9, "/v1"), 4, "[E0401]", "connection refused"),
        (directory(relay.port(), "/v2"), 4, "[E0401]", "HTTP status 404"),
        (directory(talks_junk, "/v1"), 4, "[E0401]", "the directory"),
        (directory(answers_junk, "/v1"), 6, "[E0603]", "cannot be read"),
        (directory(silent, "/v1"), 4, "[E0401]", "the directory"),
        ("udpm://?keys=plain".to_owned(), 3, "[E0308]", "is no relay"),
    ] {
        let (ended, said) = match url.starts_with("mqtt") {
            true => looked_at(&home, &url),
            false => {
                let ran = home.run(&["--url", &url, "relay", "check"]);
                (ran.exit, ran.stderr)
            }
        };
        let is_notified = said.contains(code) && said.to_lowercase().contains(&part.to_lowercase());
        let has_hint = exit == 0 || said.contains("→ ") || said.contains("hint:");
        if ended != exit || !is_notified || !has_hint || said.matches("[E").count() > 1 {
            wrong.push(format!("{url}: exit {ended}, not {exit}, {code} '{part}':\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    // Who has the wrong password is told by what one does, too.
    let ran = home.run(&["--id", "ann", "--url", &format!("{}&wait=2s", login("ann", "wrong")), "pub", "t", "x"]);
    assert!(ran.exit == 6 && ran.stderr.contains("error[E0604]"), "{}", ran.stderr);

    // TLS to the directory, by the same certificates.
    let (cert, key) = (at("ours.pem"), at("ours.key"));
    let tls = Home::new("relay-tls");
    let relay = Relay::start_with(&tls, &["--tls-cert", &cert, "--tls-key", &key]);
    let url = relay.url("mls", "exchange");
    assert!(url.contains("directory=https://"), "{url}");
    assert_eq!(looked_at(&home, &format!("{url}&ca={cert}")).0, 0);
    let (exit, said) = looked_at(&home, &format!("{url}&ca={}", at("theirs.pem")));
    assert!(exit == 6 && said.contains("[E0603]") && said.contains("came back after"), "{exit} {said}");
}

#[test]
fn the_demonstration_of_a_relay_holds_each_claim() {
    program();
    let home = Home::new("demo-relay");
    let told = home.good(&["demo", "relay", "--json"]);
    let steps: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
    assert!(steps.len() == 16 && steps.iter().all(|it| it["holds"] == true), "{told}");
    let what = |step: usize| steps[step - 1]["what"].as_str().expect("it is told").to_owned();
    assert!(what(7).contains("no quote, topic or name") && what(13).contains("all 10 orders that it missed"), "{told}");
    assert!(what(15).contains("convict the relay by two signatures of its own"), "{told}");
}

/// A port of somebody who says this, whatever is asked, and ends the connection.
fn answers(what: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // The client may be gone.
            let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(&what));
            // A socket that is closed with bytes unread takes back what it sent.
            let _ = stream.shutdown(Shutdown::Write).and_then(|()| std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    port
}

fn files(top: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(top).expect("it can be read").map(|entry| entry.expect("it can be read").path());
    entries.flat_map(|it| if it.is_dir() { files(&it) } else { vec![it] }).collect()
}

/// Of a relay that nobody runs.
const OTHER_KEY: &str = "scrl132yw8ht5p8cetl2jmvknewjawt9xwzdlrk2pyxlnwjyqrdq0dawqvf0c05";
/// Machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(120);
