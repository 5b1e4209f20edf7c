//! Four brokers as processes, and people who publish and read through them.

use std::fs::File;
use std::time::{Duration, Instant};

use crate::common::{Home, Running, brokers_programs};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast::brokers::{Brokers, ClientKey, Opening, Outgoing, Purpose, load, registration};
use sealcast::config::{Home as Folders, KeptIdentity};
use sealcast::url::Scheme;
use sealcast_broker::operation::{Body, Execute, Header, Operation, Publication};
use sealcast_crypto::group::Ristretto255;
use sealcast_crypto::tdh2::PublicKey;
use serde_json::Value;

/// A home with an exchange, a trader of its desk fx, another one of its desk rates, and four brokers running.
pub(crate) fn market(name: &str) -> (Home, Running) {
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

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_sealed_publication_reaches_whom_its_publisher_allows_and_nobody_else() {
    let (home, mut up) = market("four-brokers");
    let said = home.good(&["pub", "market/eurusd", "1.0842", "--allow", "exchange:desk = fx", "--receipt", "r.json"]);
    assert!(said.starts_with("number 0  signed by ") && said.contains("sealed for exchange:desk = fx"), "{said}");

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

    // What it shows beside the proof has to say the same.
    for (place, other) in [("/published/at", "2020-01-01T00:00:00Z"), ("/published/allow", "all"), ("/name", "other")] {
        let mut bad = good.clone();
        *bad.pointer_mut(place).expect("it is shown") = other.into();
        std::fs::write(home.path().join("bad.json"), bad.to_string()).unwrap();
        let said = home.run(&["receipt", "verify", "bad.json"]);
        let name = place[1..].replace('/', ".");
        assert!(said.exit == 6 && said.stderr.contains(&format!("shows as {name}")), "{}", said.stderr);
    }
    let mut bad = good.clone();
    bad["published"]["topics"][0]["topic"] = "market/gold".into();
    bad["executed"] = serde_json::json!({ "first": 7 });
    for name in ["executed", "published.topics.topic"] {
        std::fs::write(home.path().join("bad.json"), bad.to_string()).unwrap();
        let said = home.run(&["receipt", "verify", "bad.json"]);
        assert!(said.exit == 6 && said.stderr.contains(&format!("shows as {name}")), "{}", said.stderr);
        bad.as_object_mut().expect("it is one").remove("executed");
    }
    let alone =
        serde_json::json!({ "cluster": good["cluster"], "receipt": good["receipt"], "note": "of another version" });
    std::fs::write(home.path().join("bad.json"), alone.to_string()).unwrap();
    assert!(home.good(&["receipt", "verify", "bad.json"]).starts_with("good"));
    // Nor does a receipt need its publisher: whoever may read a publication can have one, and nobody else.
    home.good(&["ca", "issue", "cat", "--attr", "desk=fx"]);
    home.good(&["--id", "cat", "read", "market/eurusd", "--latest", "--receipt", "c.json"]);
    let shown = home.good(&["--json", "receipt", "verify", "c.json"]);
    let shown: Value = serde_json::from_str(&shown).expect("an object");
    assert_eq!(shown["published"]["id"], good["published"]["id"], "{shown}");
    let denied = home.run(&["--id", "bob", "read", "market/eurusd", "--latest", "--receipt", "b.json"]);
    assert!(denied.exit == 5 && !home.path().join("b.json").exists(), "{}", denied.stderr);

    // A subscription goes on where it was left.
    let mut sub = home.start(&["sub", "market/#", "-C", "1", "-W", "60s", "-v"]);
    sub.line_with("subscription").expect("it stands");
    home.good(&["pub", "market/gbpusd", "1.31", "--allow", "exchange:desk = fx"]);
    assert_eq!(sub.end().0, 0);
    home.good(&["pub", "market/gbpusd", "1.32", "--allow", "exchange:desk = fx"]);
    let again = home.good(&["sub", "market/#", "-C", "1", "-W", "60s"]);
    assert!(again.contains("1.32"), "{again}");

    // By value, and by several topics at once.
    let wanted = ["sub", "price = 105 or price = 106 and region = eu", "news/#", "-C", "2", "-W", "60s", "-v"];
    let mut sub = home.start(&wanted);
    sub.line_with("subscription").expect("it stands");
    home.good(&["pub", "price", "too cheap", "--value", "104"]);
    home.good(&["pub", "price", "of no region", "--value", "106"]);
    home.good(&["pub", "price", "as wanted", "--value", "105"]);
    home.good(&["pub", "news/bank", "rates rise"]);
    let (exit, said) = sub.end();
    assert!(exit == 0 && said.contains("as wanted") && said.contains("rates rise"), "{said}");
    assert!(!said.contains("cheap") && !said.contains("no region"), "{said}");

    // What stands is shown with what waits there, and ended; what was ended begins anew.
    home.good(&["pub", "news/bank", "rates fall"]);
    let list = home.good(&["sub", "--list"]);
    let line = list.lines().find(|it| it.contains("news/#")).unwrap_or_else(|| panic!("it is listed: {list}"));
    assert!(line.ends_with("price = 105 or price = 106 and region = eu or news/#"), "{list}");
    assert!(list.contains("market/#"), "{list}");
    home.until(&["sub", "--list", "--json"], "\"waiting\":1}");
    let whole = "price = 105 or price = 106 and region = eu or news/#";
    assert!(home.good(&["sub", "--end", whole]).starts_with("ended subscription"));
    assert!(!home.good(&["sub", "--list"]).contains("news/#"));
    let again = home.run(&["sub", "--end", "news/#"]);
    assert!(again.exit == 2 && again.stderr.contains("sub --list"), "{}{}", again.stdout, again.stderr);
    let begun = home.good(&["sub", whole, "-W", "1s"]);
    assert!(!begun.contains("rates fall"), "nothing was kept for it: {begun}");

    // What others advertise comes beside publications, and without a subscription to whoever wants it.
    let mut sub = home.start(&["sub", "news/#", "--advertisements", "-C", "2", "-W", "60s", "-v"]);
    sub.line_with("subscription").expect("it stands");
    let mut only = home.start(&["--id", "bob", "sub", "--advertisements", "-C", "1", "-W", "60s", "-v", "--json"]);
    only.line_with("advertisements of market").expect("it is registered");
    home.good(&["brokers", "advertise", "market/# or price = 105", "quotes, each second"]);
    home.good(&["pub", "news/bank", "rates rest"]);
    let (exit, said) = sub.end();
    assert!(exit == 0 && said.contains("advertised market/# or price = 105  from "), "{said}");
    assert!(said.contains("quotes, each second") && said.contains("rates rest"), "{said}");
    let (exit, said) = only.end();
    let object = said.lines().find_map(|it| serde_json::from_str::<Value>(it).ok()).unwrap_or_default();
    assert!(exit == 0 && object["advertisement"] == "quotes, each second", "{said}");
    assert_eq!(object["scope"], "market/# or price = 105", "{said}");

    // Several topics, text that brokers may read, and values that they keep.
    let mut sub = home.start(&["sub", "price = 9 and region = eu", "-C", "1", "-W", "60s", "-v"]);
    sub.line_with("subscription").expect("it stands");
    let mut by_region = home.start(&["sub", "region = eu", "-C", "1", "-W", "60s", "-v", "--json"]);
    by_region.line_with("subscription").expect("it stands");
    home.good(&["pub", "price", "nowhere", "--value", "9"]);
    let told = ["--also", "region=eu", "--also", "all", "--associated", "for desk 3", "--increment", "count=5"];
    let sum = home.good(&[&["pub", "price", "there", "--value", "9"][..], &told[..]].concat());
    assert!(sum.contains("sum 5"), "{sum}");
    let (exit, said) = sub.end();
    assert!(exit == 0 && said.contains("with for desk 3") && said.contains("there"), "{said}");
    assert!(!said.contains("nowhere"), "{said}");
    // It is shown under the topic that was asked for, with its place under each.
    let (exit, said) = by_region.end();
    let object = said.lines().find_map(|it| serde_json::from_str::<Value>(it).ok()).unwrap_or_default();
    assert!(exit == 0 && object["topic"] == "region" && object["sequence"] == 0, "{said}");
    let topics: Vec<_> = object["places"].as_array().into_iter().flatten().map(|it| it["topic"].clone()).collect();
    assert_eq!(topics, ["price", "region", "all"], "{said}");
    assert!(home.good(&["read", "all"]).contains("there"));
    home.good(&["pub", "price", "more", "--increment", "count=-7"]);
    assert_eq!(home.good(&["read", "price", "--key", "count", "--linearizable"]), "-2\n");
    home.good(&["pub", "price", "open", "--put", "state=open", "--expect-none"]);
    let twice = home.run(&["pub", "price", "open", "--put", "state=shut", "--expect", "closed"]);
    assert!(twice.exit == 2 && twice.stderr.contains("not what was expected"), "{}", twice.stderr);
    home.good(&["pub", "price", "shut", "--put", "state=shut", "--expect", "open"]);
    assert_eq!(home.good(&["read", "price", "--key", "state", "--linearizable"]), "shut\n");
    let value = home.good(&["read", "price", "--key", "nothing", "--json"]);
    assert!(value.contains("\"set\":false"), "{value}");

    // Lines that have come meanwhile are sealed together: all of one publication are at one place, in their order.
    let lines: String = (0..100).map(|n| format!("tick {n}\n")).collect();
    std::fs::write(home.path().join("ticks"), &lines).unwrap();
    let mut publish = home.command(&["pub", "ticks", "-l", "--together", "64", "--json"]);
    let came = publish.stdin(File::open(home.path().join("ticks")).unwrap()).output().expect("it runs");
    let said: Vec<Value> =
        String::from_utf8_lossy(&came.stdout).lines().map(|it| serde_json::from_str(it).expect("an object")).collect();
    let messages: u64 = said.iter().filter_map(|it| it["messages"].as_u64()).sum();
    assert!(messages == 100 && said.len() < 50, "{said:?}");
    assert_eq!(home.good(&["read", "ticks", "--raw"]), lines.replace('\n', ""));
    let apart = home.run(&["pub", "ticks", "one", "--together", "2"]);
    assert!(apart.exit == 2 && apart.stderr.contains("--together"), "{}", apart.stderr);
    let counted = home.run(&["pub", "ticks", "-l", "--together", "64", "--increment", "count"]);
    assert!(counted.exit == 2 && counted.stderr.contains("--increment"), "once or for each line? {}", counted.stderr);

    // What lies elsewhere is not taken for what was published.
    let mut sub = home.start(&["sub", "file/#", "-C", "1", "-W", "60s", "-v"]);
    sub.line_with("subscription").expect("it stands");
    publish_digest(&home, "ann");
    let digest = format!("sha256 {} of 1000 bytes that lie elsewhere", "ab".repeat(32));
    let (exit, said) = sub.end();
    assert!(exit == 0 && said.contains(&digest), "{said}");
    assert!(home.good(&["read", "file/a"]).contains(&digest));
    let read: Value = serde_json::from_str(&home.good(&["read", "file/a", "--json"])).expect("an object");
    assert!(read["payloads"][0]["digest"] == "ab".repeat(32) && read["payloads"][0]["bytes"] == 1000, "{read}");

    // Who only reads is told when its certificate ends; below.
    home.good(&["ca", "issue", "eve", "--attr", "desk=fx", "--valid", "15s"]);
    let mut short = home.start(&["--id", "eve", "sub", "market/#", "-v"]);
    short.line_with("subscription").expect("it stands");

    // The one administrator puts a policy in force, and the next publication names it.
    let rules = "[[rule]]\nact = \"publish\"\ntopic = \"market/#\"\nallow = \"exchange:desk = fx\"\n";
    let policy = format!("number = 1\n[issuers]\nexchange = [\"desk\"]\n{rules}");
    std::fs::write(home.path().join("policy.toml"), policy).unwrap();
    let set = home.good(&["policy", "set", "policy.toml"]);
    assert!(set.contains("in force from block"), "{set}");
    let denied = home.run(&["--id", "bob", "pub", "market/eurusd", "1.09"]);
    assert_eq!(denied.exit, 5, "{}{}", denied.stdout, denied.stderr);
    assert!(home.good(&["pub", "market/eurusd", "1.0843"]).starts_with("number 1"));
    // A condition that names what nobody has been heard of is published, with a word about it.
    let misspelt = home.run(&["pub", "market/usdjpy", "155", "--allow", "exchange:dsek = fx"]);
    assert!(misspelt.exit == 0 && misspelt.stderr.contains("did you mean exchange:desk?"), "{}", misspelt.stderr);
    let known = home.run(&["pub", "market/usdjpy", "155", "--allow", "exchange:desk = rates"]);
    assert!(known.exit == 0 && !known.stderr.contains("--allow"), "{}", known.stderr);

    let status = home.good(&["brokers", "status", "--json"]);
    let brokers: Vec<Value> =
        status.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
    assert_eq!(brokers.len(), 4);
    assert!(brokers.iter().all(|it| it["answers"] == true && it["policy"] == 1), "{status}");
    assert!(brokers.iter().all(|it| it["oldest_block"] == 1 && it["oldest_publication"] == 0), "{status}");
    let descriptors = |it: &Value| (it["descriptors_used"].as_u64(), it["descriptors_allowed"].as_u64());
    let few = |it: &Value| matches!(descriptors(it), (Some(used), Some(allowed)) if used > 8 && used < allowed);
    assert!(brokers.iter().all(few), "{status}");
    let (exit, said) = short.end();
    assert!(exit == 7 && said.contains("the time of our certificate is over"), "{said}");
    let late = home.run(&["--id", "eve", "pub", "market/eurusd", "1.1"]);
    assert!(late.exit == 7 && late.stderr.contains("the time of our certificate is over"), "{}", late.stderr);
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
    assert!(what(10).contains("lies from now on") && what(11).contains("'s signature, which convinces"), "{told}");
}

#[test]
fn rule_e3_what_several_issuers_say_of_one_reader_opens_what_needs_all_of_them() {
    brokers_programs();
    let home = Home::new("several-issuers");
    home.good(&["ca", "init", "exchange"]);
    home.good(&["ca", "issue", "ann", "--attr", "desk=fx"]);
    home.good(&["ca", "issue", "bob", "--attr", "desk=fx"]);
    home.good(&["ca", "init", "insurer"]);
    // The bank has no X.509; neither has cat, who knows nobody else.
    home.good(&["id", "new", "bank"]);
    home.good(&["id", "new", "cat"]);
    let key = |name: &str| home.good(&["id", "export", name]).trim().to_owned();
    let bank = format!("bank={}", key("bank"));
    let made = ["--name", "market", "--port", "0", "--issuer", "exchange", "--issuer", "insurer", "--issuer", &bank];
    let mut up = home.start(&[&["--id", "ann", "brokers", "up"][..], &made].concat());
    up.line_within("context   market", Duration::from_secs(180)).expect("four brokers agree on their key");

    let needs = "exchange:desk = fx and insurer:level >= 3 and bank:rating = a";
    home.good(&["--id", "bob", "pub", "market/secret", "for few", "--allow", needs]);
    assert_eq!(home.run(&["--id", "ann", "read", "market/secret"]).exit, 5);
    let ann = key("ann");
    let level = ["--ca", "insurer", "--for", &ann, "--attr", "level=3", "-o", "level.pem"];
    home.good(&[&["ca", "issue", "ann"][..], &level].concat());
    let rating = ["--issuer", "bank", "--for", &ann, "--attr", "rating=a", "-o", "rating.pem"];
    home.good(&[&["--id", "bank", "brokers", "claim"][..], &rating].concat());
    let not_hers = home.run(&["--id", "bob", "brokers", "reg", "--with", "level.pem"]);
    assert!(not_hers.exit == 5 && not_hers.stderr.contains("another key than that of bob"), "{}", not_hers.stderr);
    let said = home.good(&["--id", "ann", "brokers", "reg", "--with", "level.pem", "--with", "rating.pem"]);
    assert!(said.contains("insurer   level=3   #") && said.contains("bank   rating=a   #0x"), "{said}");
    assert!(home.good(&["--id", "ann", "id", "show"]).contains("rating=a"));

    // Known so from now on, whatever client of hers asks; nobody else is.
    assert!(home.good(&["--id", "ann", "read", "market/secret"]).contains("for few"));
    assert_eq!(home.run(&["--id", "bob", "read", "market/secret"]).exit, 5);
    let mut sub = home.start(&["--id", "ann", "sub", "market/#", "-C", "1", "-W", "60s", "-v"]);
    sub.line_with("subscription").expect("it stands");
    home.good(&["--id", "bob", "pub", "market/secret", "for the same", "--allow", needs]);
    let (exit, heard) = sub.end();
    assert!(exit == 0 && heard.contains("for the same"), "{heard}");

    // A claim alone lets somebody in, and is taken back like a certificate.
    let cat = key("cat");
    let rating = ["--issuer", "bank", "--for", &cat, "--attr", "rating=b", "-o", "cat.pem", "--json"];
    let claim = home.good(&[&["--id", "bank", "brokers", "claim"][..], &rating].concat());
    let claim: Value = serde_json::from_str(&claim).expect("an object");
    let outsider = home.run(&["--id", "cat", "pub", "market/cat", "hello"]);
    assert_eq!(outsider.exit, 5, "{}{}", outsider.stdout, outsider.stderr);
    home.good(&["--id", "cat", "brokers", "reg", "--with", "cat.pem"]);
    home.good(&["--id", "cat", "pub", "market/cat", "hello"]);
    let serial = format!("bank:{}", claim["serial"].as_str().expect("it has one"));
    home.good(&["--id", "ann", "brokers", "revoke", "--serial", &serial]);
    let revoked = home.run(&["--id", "cat", "pub", "market/cat", "again"]);
    assert_eq!(revoked.exit, 7, "{}{}", revoked.stdout, revoked.stderr);

    let shown = home.good(&["--id", "cat", "id", "show"]);
    assert!(shown.contains("also        bank   rating=b   #0x"), "{shown}");
    let gone = home.run(&["--id", "cat", "brokers", "reg", "--without", &serial]);
    assert_eq!(gone.exit, 5, "nobody vouches for it: {}{}", gone.stdout, gone.stderr);
    assert!(!home.good(&["--id", "cat", "id", "show"]).contains("rating=b"));

    // What is for other brokers, or no such thing at all.
    let elsewhere = ["--issuer", "nobody", "--for", &ann, "-o", "elsewhere.pem"];
    home.good(&[&["--id", "bank", "brokers", "claim"][..], &elsewhere].concat());
    let unknown = home.run(&["--id", "ann", "brokers", "reg", "--with", "elsewhere.pem"]);
    assert!(unknown.exit != 0 && unknown.stderr.contains("bank, exchange, insurer"), "{}", unknown.stderr);
    std::fs::write(home.path().join("nothing.pem"), "nothing").unwrap();
    let nothing = home.run(&["--id", "ann", "brokers", "reg", "--with", "nothing.pem"]);
    assert!(nothing.exit != 0 && nothing.stderr.contains("neither a certificate nor a claim"), "{}", nothing.stderr);
    up.interrupt();
    let (exit, all) = up.end();
    assert_eq!(exit, 130, "{all}");
}

/// A client of the brokers with the identity of `who`, as programs have one.
fn client(home: &Home, who: &str) -> Brokers {
    let folders = Folders::at(&home.path().join("home"));
    let identity =
        KeptIdentity::load(&folders, who).and_then(|it| it.identity()).unwrap().expect("it has a certificate");
    let cluster = load(&folders.state().join("clusters/market/cluster.toml")).unwrap();
    let key = ClientKey::of(&folders, &cluster.cluster(), &identity.certificate().hash, Purpose::Call).unwrap();
    let registrations = registration(&cluster, &identity, &key.client(), false).into_iter().collect();
    let (keys, timeout, batch_operations, accuse) = (Scheme::Threshold, TIMEOUT, 1, false);
    let cluster = std::sync::Arc::new(cluster);
    Brokers::open(Opening { cluster, key, registrations, keys, timeout, batch_operations, accuse }).unwrap()
}

/// Publishes at file/a that a thousand bytes lie elsewhere.
fn publish_digest(home: &Home, who: &str) {
    let brokers = client(home, who);
    let order_status = brokers.registered().wait().unwrap();
    let (policy, epoch, body) =
        (order_status.policy, order_status.epoch, Body::Digest { size: 1000, hash: [0xab; 32] });
    let headers = vec![Header { topic: "file/a".into(), value: None }];
    let (associated, access, execute) = (Vec::new(), None, Execute::Nothing);
    let publication = Publication { headers, associated, access, execute, policy, epoch, body };
    brokers.submit(&Operation::Publish(Box::new(publication))).wait().unwrap();
    brokers.close();
}

/// Publishes at market/eurusd, as `who`, what every broker finds well-formed and nobody opens; the client's key in hex.
fn seal_falsely(home: &Home, who: &str) -> String {
    let (brokers, timeout) = (client(home, who), TIMEOUT);
    let client = brokers.client();
    let headers = vec![Header { topic: "market/eurusd".into(), value: None }];
    let (associated, access, execute) = (Vec::new(), None, Execute::Nothing);
    let outgoing = Outgoing {
        headers: headers.clone(),
        associated: associated.clone(),
        access: access.clone(),
        execute: execute.clone(),
        body: b"1.0841".to_vec(),
    };
    let number = brokers.publish(&outgoing).wait().unwrap().number + 1;
    let order_status = brokers.ready().wait().unwrap();
    let (policy, epoch, body) = (order_status.policy, order_status.epoch, Body::Plain(Vec::new()));
    let publication = Publication { headers, associated, access, execute, policy, epoch, body };
    let threshold =
        PublicKey::<Ristretto255>::decode(&brokers.key(timeout).wait().unwrap().key).expect("the brokers' key");
    let mut rng = ChaCha20Rng::seed_from_u64(number);
    let ciphertext = threshold.encrypt_falsely(&publication.label(&client, number), 32, &mut rng).encode();
    let sealed = Publication { body: Body::Sealed(ciphertext), ..publication };
    let (_, numbered) = brokers.submit(&Operation::Publish(Box::new(sealed))).wait().unwrap();
    assert_eq!(numbered, number, "it is sealed for the number that it has");
    brokers.close();
    client.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn rule_e4_who_seals_what_opens_to_nothing_is_suspended_by_its_readers_until_administrators_restore_it() {
    let (home, mut up) = market("suspended");
    home.good(&["ca", "issue", "mal", "--attr", "desk=fx"]);
    let mut sub = home.start(&["sub", "market/#", "-C", "3", "-W", "60s", "-v"]);
    sub.line_with("subscription").expect("it stands");
    let client = seal_falsely(&home, "mal");
    home.good(&["--id", "bob", "pub", "market/eurusd", "1.0843"]);
    // Whoever kills the reader now does not lose it.
    sub.line_with("evidence saved").expect("it is kept while the reader runs");
    home.good(&["--id", "bob", "pub", "market/eurusd", "1.0843"]);
    let (exit, said) = sub.end();
    assert_eq!(exit, 0, "what is false is passed over: {said}");
    assert!(said.contains("so that it opens to nothing") && said.contains("evidence saved"), "{said}");

    // The reader has brought it before the brokers, and no administrator did anything.
    let status = home.until(&["brokers", "status"], "suspended  client");
    assert!(status.contains(&client), "{status}");
    let refused = home.run(&["--id", "mal", "pub", "market/eurusd", "1.0844"]);
    assert_eq!(refused.exit, 7, "{}{}", refused.stdout, refused.stderr);
    let hint = "evidence keeps this client from publishing";
    assert!(refused.stderr.contains(hint) && refused.stderr.contains("brokers restore"), "{}", refused.stderr);
    home.good(&["--id", "bob", "pub", "market/eurusd", "1.0845"]);

    // Administrators lift it, and what is forgiven convicts nobody again.
    let restored = home.good(&["brokers", "restore", &client]);
    assert!(restored.contains("in force from block"), "{restored}");
    home.good(&["--id", "mal", "pub", "market/eurusd", "1.0846"]);
    let again = home.good(&["brokers", "evidence", "--submit"]);
    assert!(again.contains("unchanged") && !again.contains("suspended"), "{again}");

    // It convinces whoever has the cluster file, and changed it convicts nobody.
    home.good(&["brokers", "evidence", "-o", "proofs"]);
    let proofs = std::fs::read_dir(home.path().join("proofs")).unwrap().map(|it| it.unwrap().path());
    let proof = proofs.min().expect("the reader kept it");
    let verify = ["brokers", "evidence", "verify", proof.to_str().unwrap()];
    let verdict = home.good(&verify);
    assert!(verdict.starts_with(&format!("convicted  client {client}")), "{verdict}");
    let mut changed: Value = serde_json::from_str(&std::fs::read_to_string(&proof).unwrap()).unwrap();
    let record = changed["record"].as_str().expect("it is text").to_owned();
    let last = if record.ends_with('0') { "1" } else { "0" };
    changed["record"] = format!("{}{last}", &record[..record.len() - 1]).into();
    std::fs::write(&proof, changed.to_string()).unwrap();
    assert_eq!(home.run(&verify).exit, 6);

    // Who only reads once brings it too.
    seal_falsely(&home, "mal");
    let read = home.run(&["--id", "bob", "read", "market/eurusd", "--latest"]);
    assert!(read.stdout.contains("⊥") && read.stderr.contains("evidence saved"), "{}{}", read.stdout, read.stderr);
    let status = home.until(&["brokers", "status", "--json"], "\"suspended\"");
    assert!(status.contains(&client), "{status}");
    assert_eq!(home.run(&["--id", "mal", "pub", "market/eurusd", "1.0847"]).exit, 7);

    // So does a program's session, and its user can ask for the proof.
    home.good(&["brokers", "restore", &client]);
    let folders = Folders::at(&home.path().join("home"));
    let file = folders.state().join("clusters/market/cluster.toml");
    let session = sealcast::open(&format!("quorum:{}?keys=threshold", file.display())).home(folders).identity("bob");
    let session = session.wait().expect("it is opened");
    let _subscription = session.subscribe("market/#").wait().expect("it stands");
    seal_falsely(&home, "mal");
    let begun = Instant::now();
    let evidence = loop {
        match session.evidence().pop() {
            Some(it) => break it,
            None => assert!(begun.elapsed() < Duration::from_secs(60), "nothing was found"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(evidence.what.contains("so that it opens to nothing") && !evidence.record.is_empty(), "{evidence:?}");
    session.close();
    let status = home.until(&["brokers", "status", "--json"], "\"suspended\"");
    assert!(status.contains(&client), "{status}");
    up.interrupt();
    let (exit, all) = up.end();
    assert_eq!(exit, 130, "{all}");
}
