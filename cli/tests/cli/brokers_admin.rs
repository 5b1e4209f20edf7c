//! Administering brokers that run: a dealt key, two of three administrators, a policy, a revocation, settings read again.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::common::{Home, Running};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast::brokers::{load, save};
use sealcast::config::Overwrite;
use sealcast_broker::cluster_file::ClusterFile;
use sealcast_crypto::identity::Authority;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey};
use sealcast_wire::Utc;
use serde_json::Value;

/// As in `brokers.rs`: the brokers' program lies beside the one under test.
fn brokers_program() {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_sealcast")).with_file_name("sealcast-broker");
    if !beside.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "-q", "-p", "sealcast-brokerd-program"]).status();
        assert!(built.is_ok_and(|it| it.success()) && beside.is_file(), "sealcast-broker is built beside sealcast");
    }
}

/// What counts before a broker's `broker.toml` is handed on, and what its program says comes back.
#[test]
fn a_broker_is_run_with_what_the_command_line_says() {
    brokers_program();
    let home = Home::new("broker-run");
    let run = |options: &[&str]| home.run(&[&["brokers", "run", "nowhere"], options].concat());
    let all = ["--metrics", "127.0.0.1:9600", "--share-on", "write", "--block-size", "16", "--checked-together", "128"];
    let came = run(&[&all[..], &["--threads", "2", "--keep", "2d", "--solo", "-q"]].concat());
    let said = "error[E0301]: nowhere/cluster.toml: there is no such file; hint: 'sealcast brokers init' makes one";
    assert!(came.exit == 3 && came.stderr.trim_end().ends_with(said), "{}", came.stderr);
    // Each line begins with its date, RFC 3339 in UTC.
    let date = regex::Regex::new(r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$").expect("it is valid");
    let first = came.stderr.split(' ').next().unwrap_or_default();
    assert!(date.is_match(first), "{}", came.stderr);
    let came = run(&["--log-format", "json", "--keep", "100000 blocks"]);
    let line: Value = serde_json::from_str(came.stderr.trim_end()).expect("one object");
    assert!(line["at"].as_str().is_some_and(|at| date.is_match(at)), "{line}");
    assert_eq!((came.exit, line["code"].as_str()), (3, Some("E0301")), "{line}");
    // What it does not take, its own program says.
    assert!(run(&["--keep", "7 blocks"]).stderr.contains("at least '128 blocks'"));
    let came = run(&["--checked-together", "129"]);
    assert!(came.exit == 2 && came.stderr.contains("1..=128"), "{}", came.stderr);
}

#[test]
fn rule_e2_the_threshold_is_2f_plus_1_unless_the_papers_is_asked_for() {
    let home = Home::new("brokers-threshold");
    let expected = [("-n 4", 3), ("-n 7", 5), ("-n 4 --paper", 2), ("-n 7 --paper", 3)];
    for (number, (options, threshold)) in expected.into_iter().enumerate() {
        let made = home.typed(&format!("brokers init {options} --port 1 cluster-{number}"));
        assert_eq!(made.exit, 0, "{options}: {}", made.stderr);
        let file = load(&home.path().join(format!("cluster-{number}/cluster.toml"))).expect("init wrote it");
        assert_eq!(file.threshold, threshold, "{options}");
    }
}

/// Two hospitals and an insurer have a machine each: what leaves it is the authority's certificate, never its key.
#[test]
fn an_authority_of_another_machine_is_known_by_its_certificate() {
    let (home, insurer) = (Home::new("brokers-issuer"), Home::new("issuer-elsewhere"));
    insurer.good(&["ca", "init", "insurer"]);
    let said = insurer.run(&["ca", "export", "-o", "insurer.pem"]);
    assert!(said.exit == 0 && said.stdout.is_empty() && said.stderr.contains("scca1"), "{}", said.stderr);
    let text = std::fs::read_to_string(insurer.path().join("insurer.pem")).unwrap();
    assert!(text.contains("BEGIN CERTIFICATE") && !text.contains("secret"), "{text}");
    assert_eq!(insurer.good(&["ca", "export"]), text);
    let again = insurer.run(&["ca", "export", "-o", "insurer.pem"]);
    assert!(again.exit != 0 && again.stderr.contains("insurer.pem"), "{}", again.stderr);
    let object: Value = serde_json::from_str(&insurer.good(&["--json", "ca", "export", "-o", "again.pem"])).unwrap();
    assert_eq!(object["pem"], text);
    assert_eq!(std::fs::read_to_string(insurer.path().join("again.pem")).unwrap(), text, "for programs, too");

    home.good(&["ca", "init", "hospital"]);
    home.good(&["ca", "export", "-o", "hospital.pem"]);
    std::fs::write(home.path().join("insurer.pem"), text).unwrap();
    home.good(&["ca", "issue", "ann"]);
    let made = "--id ann brokers init -n 4 --port 1 --issuer hospital=hospital.pem --issuer insurer=insurer.pem ward";
    let made = home.typed(made);
    assert_eq!(made.exit, 0, "{}", made.stderr);
    let file = load(&home.path().join("ward/cluster.toml")).expect("init wrote it");
    assert_eq!(file.genesis.issuers.keys().collect::<Vec<_>>(), ["hospital", "insurer"]);
    // Who starts them with other things in mind is told that they are as they are.
    for (options, named) in [("-n 7", "-n"), ("--paper", "--paper"), ("--issuer shop=shop.pem", "--issuer")] {
        let up = home.typed(&format!("--id ann brokers up {options} ward"));
        assert!(up.exit == 3 && up.stderr.contains(&format!("{named} would not change it")), "{}", up.stderr);
    }
}

#[test]
fn rule_e11_a_cluster_file_is_its_authoritys_and_who_did_not_say_whose_is_warned() {
    let home = Home::new("brokers-authority");
    home.good(&["ca", "init", "exchange"]);
    home.good(&["ca", "issue", "ann"]);
    home.good(&["--id", "ann", "brokers", "init", "-n", "4", "--port", "1", "market"]);
    let path = home.path().join("market/cluster.toml");
    let signed = |file: &ClusterFile| file.endorsement.as_ref().map(|it| it.authority.fingerprint());
    let own = signed(&load(&path).unwrap()).expect("exchange signs it");
    let open = |options: &str| {
        let url = format!("quorum:market/cluster.toml?wait=100ms{options}");
        home.run(&["--id", "ann", "--url", &url, "brokers", "reg"])
    };
    for options in [String::new(), format!("&authority={own}")] {
        let came = open(&options);
        assert!(came.exit == 8 && !came.stderr.contains("warning"), "nobody runs: {}", came.stderr);
    }

    // Somebody makes brokers of his own under the same name, with the same issuer: any authority of his can sign it.
    let mut forged = load(&path).unwrap();
    forged.genesis.brokers =
        (1..5).map(|seed| OriginKey::from_seed(&Secret::from_bytes([seed; 32])).public_bytes()).collect();
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    let other = Authority::create("exchange", Algorithm::Ed25519, Utc(1_795_132_800), &mut rng).unwrap();
    forged.endorse(other.anchor().clone(), |it| other.secret().signing_key().sign(it));
    save(&path, &forged, Overwrite::Replace).unwrap();
    let refused = open(&format!("&authority={own}"));
    assert!(refused.exit == 3 && refused.stderr.contains("not to be trusted"), "{}", refused.stderr);
    let warned = open("");
    assert!(
        warned.stderr.contains(&format!("is signed by {}, not by your own", other.fingerprint())),
        "{}",
        warned.stderr
    );
    forged.endorsement = None;
    save(&path, &forged, Overwrite::Replace).unwrap();
    assert_eq!(open(&format!("&authority={own}")).exit, 3);
    assert!(open("").stderr.contains("is signed by no authority"));
}

/// Three administrators of whom two must sign, members ann and bob of an exchange, and four brokers with a dealt key.
fn market(name: &str) -> (Home, Running) {
    brokers_program();
    let home = Home::new(name);
    home.good(&["ca", "init", "exchange"]);
    for member in ["ann", "bob"] {
        home.good(&["ca", "issue", member, "--attr", "desk=fx"]);
    }
    let mut init: Vec<String> =
        ["brokers", "init", "-n", "4", "--name", "market", "--port", "0", "--dealer", "--quorum", "2", "market"]
            .map(str::to_owned)
            .to_vec();
    for administrator in ["una", "duo", "tre"] {
        home.good(&["id", "new", administrator]);
        init.extend(["--admin".to_owned(), home.good(&["id", "export", administrator]).trim().to_owned()]);
    }
    let made = home.good(&init.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(made.contains("administrators 2 of 3"), "{made}");
    // Somebody has put there what is no proof.
    let evidence = home.path().join("market/broker-1/evidence");
    std::fs::create_dir_all(&evidence).unwrap();
    std::fs::write(evidence.join("2-7-equivocated.json"), "{\"proof\": \"0123\"}").unwrap();
    let mut up = home.start(&["--id", "ann", "brokers", "up", "--name", "market", "market"]);
    let ready = up.line_within("context   market", Duration::from_secs(60));
    ready.expect("four brokers with a dealt key are ready at once");
    (home, up)
}

#[test]
fn administrators_rule_running_brokers_two_of_three() {
    let (home, mut up) = market("brokers-admin");
    // Broker 1 has a file against broker 2 that is no proof: nobody is convicted on its word.
    let status = home.run(&["brokers", "status", "--json"]);
    assert!(status.exit == 0 && !status.stdout.contains("equivocated"), "{}{}", status.stdout, status.stderr);
    assert!(status.stdout.contains("broker 1 keeps a file that proves nothing"), "{}", status.stdout);
    let status = status.stdout;
    assert_eq!(status.lines().filter(|line| line.contains("\"has_share\":true")).count(), 4, "{status}");

    // One administrator begins an act, anybody else's signature is none, and the second one carries it out.
    let rules = "[[rule]]\nact = \"publish\"\ntopic = \"market/#\"\nallow = \"exchange:desk = fx\"\n";
    let policy = format!("number = 1\n[issuers]\nexchange = [\"desk\"]\n{rules}");
    std::fs::write(home.path().join("policy.toml"), policy).unwrap();
    let begun = home.good(&["--id", "una", "policy", "set", "policy.toml", "--out", "act.toml"]);
    assert!(begun.contains("signed by 1 of 2"), "{begun}");
    let look = home.good(&["--id", "bob", "brokers", "sign", "act.toml", "--look"]);
    assert!(look.contains("a policy with 1 rule: ") && look.contains("signed by 1 of 2"), "anybody may look: {look}");
    assert!(look.contains("good      the signature of administrator"), "{look}");
    sign_beside_a_false_signature(&home);
    let nobody = home.run(&["--id", "bob", "brokers", "sign", "act.toml"]);
    assert!(nobody.exit == 5 && nobody.stderr.contains("not an administrator"), "{}{}", nobody.stdout, nobody.stderr);
    let twice = home.good(&["--id", "una", "brokers", "sign", "act.toml"]);
    assert!(twice.contains("signed by 1 of 2"), "the same one twice is one: {twice}");
    let done = home.good(&["--id", "duo", "brokers", "sign", "act.toml"]);
    assert!(done.contains("signed by 2 of 2") && done.contains("in force from block"), "{done}");
    let again = home.run(&["--id", "tre", "brokers", "sign", "act.toml"]);
    assert!(again.exit == 0 && again.stdout.contains("in force already"), "{}{}", again.stdout, again.stderr);
    let doctor = home.good(&["--id", "ann", "doctor"]);
    assert!(
        doctor.contains("market, 4 brokers of which 1 may lie") && doctor.contains("all 4 brokers answer"),
        "{doctor}"
    );
    home.good(&["--id", "ann", "pub", "market/eurusd", "1.0842"]);
    home.good(&["--id", "bob", "pub", "market/eurusd", "1.0843"]);
    a_refusal_outlives_closing(&home);

    // What is in force can be read by an administrator whom nobody registered and by clients, and is what was written.
    let written = home.good(&["policy", "show", "policy.toml"]);
    for who in ["tre", "ann"] {
        assert_eq!(home.good(&["--id", who, "policy", "show"]), written, "{who}");
    }
    home.good(&["id", "new", "stranger"]);
    let outsider = home.run(&["--id", "stranger", "policy", "show"]);
    assert_eq!(outsider.exit, 5, "{}{}", outsider.stdout, outsider.stderr);
    let why = ["--id", "bob", "policy", "why", "--topic", "market/eurusd", "--publish"];
    let why = home.good(&why);
    assert!(why.contains("exchange:desk=fx") && why.contains("rule 1 of policy 1"), "{why}");
    let rates = ["--json", "policy", "why", "--topic", "market/x", "--publish", "--attr", "exchange:desk=rates"];
    let why = home.run(&rates);
    let told: Value = serde_json::from_str(why.stdout.lines().next().expect("an object")).expect("an object");
    assert!(why.exit == 5 && told["allowed"] == false && told["conditions"][0]["rule"] == 1, "{}", why.stdout);

    // What brokers keep is given to whom they know, and is as good as it verifies.
    let listed = home.good(&["brokers", "evidence", "-o", "proofs"]);
    let nothing = "broker 1 keeps a file that proves nothing";
    assert!(listed.contains(nothing) && !listed.contains("equivocated"), "one broker's word convicts nobody: {listed}");
    let mut proofs = std::fs::read_dir(home.path().join("proofs")).unwrap().map(|it| it.unwrap().path());
    let proof = proofs.next().expect("broker 1 gave it");
    let verdict = home.run(&["brokers", "evidence", "verify", proof.to_str().unwrap()]);
    assert!(verdict.exit == 6 && verdict.stderr.contains("convicts nobody"), "{}{}", verdict.stdout, verdict.stderr);

    whom_nobody_knows(&home);

    // A revocation that has returned binds: 2f + 1 brokers have signed that they executed it.
    let list = home.good(&["ca", "ls", "exchange", "--json"]);
    let bob = list.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|it| it["name"] == "bob");
    let serial = bob.expect("bob has a certificate")["serial"].to_string().trim_matches('"').to_owned();
    let of = format!("exchange:{serial}");
    let begun = home.good(&["--id", "tre", "brokers", "revoke", "--serial", &of, "--out", "revoke.toml"]);
    assert!(begun.contains("signed by 1 of 2"), "{begun}");
    let news = rules.replace("market/#", "news/#");
    std::fs::write(home.path().join("policy.toml"), format!("number = 2\n[issuers]\nexchange = [\"desk\"]\n{news}"))
        .unwrap();
    home.good(&["--id", "una", "policy", "set", "policy.toml", "--out", "slow.toml"]);
    home.good(&["--id", "bob", "pub", "market/eurusd", "1.0844"]);
    let done = home.good(&["--id", "una", "--json", "brokers", "sign", "revoke.toml"]);
    let done: Value = serde_json::from_str(done.trim()).expect("an object");
    assert!(done["done"] == true && done["executed"].as_u64() >= Some(3), "{done}");
    let refused = home.run(&["--id", "bob", "pub", "market/eurusd", "1.0845"]);
    assert!(
        refused.exit == 7 && refused.stderr.contains("revoked our certificate"),
        "{}{}",
        refused.stdout,
        refused.stderr
    );
    home.good(&["--id", "ann", "pub", "market/eurusd", "1.0846"]);

    // Another act with its number was faster; and what is revoked is not revoked again.
    let slow = home.run(&["--id", "duo", "brokers", "sign", "slow.toml"]);
    let over = "act 2 is over: another act was executed under its number; the next act is 3";
    assert!(slow.exit == 2 && slow.stderr.contains(over), "{}{}", slow.stdout, slow.stderr);
    let twice = home.run(&["--id", "una", "brokers", "revoke", "--serial", &of]);
    assert!(
        twice.exit == 2 && twice.stderr.contains("of exchange is revoked already"),
        "{}{}",
        twice.stdout,
        twice.stderr
    );
    assert!(twice.stderr.contains("nothing is left to do"), "{}", twice.stderr);

    // Nobody is suspended, whom nobody accused.
    let futile = home.run(&["--id", "una", "brokers", "restore", "xyz"]);
    assert!(futile.stderr.contains("no client's key"), "{}", futile.stderr);

    // Settings are read again: what may change does, what may not says so, and a wrong file changes nothing.
    let settings = home.path().join("market/broker-1/broker.toml");
    std::fs::write(&settings, "share-on = \"write\"\nchecked-together = 16\nthreads = 2\n").unwrap();
    let said = home.good(&["brokers", "reload", "market/broker-1"]);
    assert!(said.contains("in force: share-on, checked-together   after a restart: threads"), "{said}");
    std::fs::write(&settings, "share-on = \"sometimes\"\n").unwrap();
    let wrong = home.run(&["brokers", "reload", "market/broker-1"]);
    assert!(
        wrong.exit == 3 && wrong.stderr.contains("broker.toml") && wrong.stderr.contains("sometimes"),
        "{}",
        wrong.stderr
    );
    std::fs::write(&settings, "share-on = \"write\"\nbatch-size = 16\n").unwrap();
    let said = home.good(&["brokers", "reload", "market"]);
    assert_eq!(said.matches("nothing changed").count(), 4, "{said}");
    home.good(&["--id", "ann", "pub", "market/eurusd", "1.0847"]);

    up.interrupt();
    let (exit, all) = up.end();
    assert_eq!(exit, 130, "{all}");
    let gone = home.run(&["brokers", "reload", "market/broker-1"]);
    assert!(gone.exit == 4 && gone.stderr.contains("no broker answers"), "{}", gone.stderr);
    let doctor = home.run(&["--id", "ann", "doctor"]);
    assert!(doctor.exit == 8 && doctor.stdout.contains("0 of 4 brokers answer, and 3 are needed"), "{}", doctor.stdout);
}

/// One bit of una's signature in `act.toml` is changed: whoever signs next is told whose it is, and signs all the same.
fn sign_beside_a_false_signature(home: &Home) {
    let text = std::fs::read_to_string(home.path().join("act.toml")).unwrap();
    let act = text.lines().find(|line| line.starts_with("act = ")).expect("it has one");
    let last = if act.ends_with("0\"") { "1" } else { "0" };
    let changed = format!("{}{last}\"", &act[..act.len() - 2]);
    std::fs::write(home.path().join("spoiled.toml"), text.replace(act, &changed)).unwrap();
    let whose =
        regex::Regex::new(r"the signature of administrator [012] \([0-9a-f]{16}…\) is false").expect("it is valid");
    let look = home.run(&["--id", "duo", "brokers", "sign", "spoiled.toml", "--look"]);
    assert!(look.exit == 6 && look.stdout.contains("signed by 0 of 2"), "{}{}", look.stdout, look.stderr);
    assert!(whose.is_match(&look.stderr), "{}", look.stderr);
    let signed = home.run(&["--id", "duo", "brokers", "sign", "spoiled.toml"]);
    assert!(signed.exit == 0 && whose.is_match(&signed.stderr), "{}{}", signed.stdout, signed.stderr);
    assert!(signed.stdout.contains("signed by 1 of 2"), "duo's alone: {}", signed.stdout);
    home.good(&["brokers", "sign", "spoiled.toml", "--look"]);
}

/// Who publishes without waiting for an outcome asks for it at the end, and the end is when the session is closed.
fn a_refusal_outlives_closing(home: &Home) {
    home.good(&["ca", "issue", "zed"]);
    let url = format!("quorum:{}?keys=plain", home.path().join("market/cluster.toml").display());
    let at = sealcast::config::Home::at(&home.path().join("home"));
    let zed = sealcast::open(&url).home(at).identity("zed").wait().expect("it opens");
    zed.ready().wait().expect("it begins");
    zed.publish("market/eurusd", "1.0844").wait().expect("it is queued");
    assert_eq!(zed.clone().close(), 0, "it is known what became of it");
    let refusal = zed.refusal().expect("zed has no desk").to_string();
    assert!(refusal.contains("policy does not let us publish"), "{refusal}");
    assert_eq!((zed.stats().published, zed.stats().refused), (1, 1));
}

/// An issuer whom nobody knows is refused; a certificate or client whom the brokers do not know is warned of.
fn whom_nobody_knows(home: &Home) {
    let revoke =
        |whom: &[&str]| home.run(&[&["--id", "una", "brokers", "revoke", "--out", "nobody.toml"], whom].concat());
    let nosuch = revoke(&["--serial", "nosuch:1"]);
    assert!(nosuch.exit == 2 && nosuch.stderr.contains("market has no issuer 'nosuch'"), "{}", nosuch.stderr);
    assert!(nosuch.stderr.contains("its issuers are exchange"), "{}", nosuch.stderr);
    let near = revoke(&["--serial", "exchnge:1"]);
    assert!(near.exit == 2 && near.stderr.contains("did you mean 'exchange'?"), "{}", near.stderr);
    assert!(!home.path().join("nobody.toml").exists());

    let unused = revoke(&["--serial", "exchange:99"]);
    let warning = "certificate 99 of exchange is used by no client of these brokers";
    assert!(unused.exit == 0 && unused.stderr.contains(warning), "{}{}", unused.stdout, unused.stderr);
    let client = "22".repeat(32);
    let never = revoke(&[&client]);
    let warning = format!("client {client} has never come to these brokers");
    assert!(never.exit == 0 && never.stderr.contains(&warning), "{}{}", never.stdout, never.stderr);
    let futile = home.run(&["--id", "una", "brokers", "restore", &client]);
    assert!(futile.exit == 2 && futile.stderr.contains("is not suspended"), "{}", futile.stderr);
}

#[test]
fn an_invite_names_the_brokers_wherever_it_is_opened() {
    let (home, carl) = (Home::new("invite-brokers"), Home::new("invite-carl"));
    home.good(&["ca", "init", "exchange"]);
    home.good(&["ca", "issue", "ann"]);
    home.good(&["--id", "ann", "brokers", "init", "-n", "4", "--port", "0", "--name", "market", "market"]);
    carl.good(&["id", "new", "carl"]);
    let key = carl.good(&["id", "export", "carl"]).trim().to_owned();
    let invite = ["--url", "quorum:market/cluster.toml", "invite", "--for", &key, "--as", "carl", "-o", "carl.invite"];
    let said: Value = serde_json::from_str(&home.good(&[&invite[..], &["--json"]].concat())).expect("an object");
    let cluster = home.path().join("market/cluster.toml");
    let id = load(&cluster).expect("init wrote it").cluster();
    let pin: String = id.0[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(said["url"], format!("quorum:{}?pin={pin}", cluster.display()), "{said}");

    // On carl's machine there is no such file yet.
    std::fs::rename(home.path().join("carl.invite"), carl.path().join("carl.invite")).unwrap();
    let moved = carl.path().join("cluster.toml");
    std::fs::rename(&cluster, carl.path().join("elsewhere.toml")).unwrap();
    let joined = carl.run(&["join", "carl.invite"]);
    assert!(joined.exit == 0 && joined.stderr.contains("is not there yet"), "{}{}", joined.stdout, joined.stderr);
    // Another cluster's file is not taken for it.
    home.good(&["--id", "ann", "brokers", "init", "-n", "4", "--port", "0", "--name", "market", "other"]);
    std::fs::copy(home.path().join("other/cluster.toml"), &moved).unwrap();
    let joined = carl.run(&["join", "carl.invite"]);
    assert!(joined.exit == 0 && joined.stderr.contains("is of another cluster"), "{}{}", joined.stdout, joined.stderr);
    // Beside the invite it is found, and the context works in every folder.
    std::fs::rename(carl.path().join("elsewhere.toml"), &moved).unwrap();
    let joined = carl.run(&["join", "carl.invite"]);
    assert!(joined.exit == 0 && !joined.stderr.contains("cluster file"), "{}{}", joined.stdout, joined.stderr);
    let url = format!("quorum:{}?pin={pin}", moved.display());
    assert!(joined.stdout.contains(&url), "{}", joined.stdout);
    assert!(carl.good(&["ctx", "ls"]).contains(&url));
}

#[test]
fn ports_that_others_hold_are_refused_when_brokers_are_made() {
    let home = Home::new("brokers-ports");
    home.good(&["ca", "init", "exchange"]);
    home.good(&["ca", "issue", "ann"]);
    let alone = home.typed("--id ann brokers init --quorum 3 --port 0 alone");
    assert!(alone.exit == 2 && alone.stderr.contains("--quorum 3: there is 1 administrator\n"), "{}", alone.stderr);
    home.good(&["--id", "ann", "brokers", "init", "--name", "one", "--port", "700", "home/state/clusters/one"]);
    let overlaps = home.typed("--id ann brokers init --port 800 two");
    let taken = "--port 800: 127.0.0.1:800 is taken by broker 0 of one, for the other brokers";
    assert!(overlaps.exit == 2 && overlaps.stderr.contains(taken), "{}", overlaps.stderr);
    assert!(overlaps.stderr.contains("--port 0 takes free ports") && !home.path().join("two").exists());

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    let in_use = home.typed(&format!("--id ann brokers init --port {} three", port - 100));
    let taken = format!("127.0.0.1:{port} is taken by a program that runs now");
    assert!(in_use.exit == 2 && in_use.stderr.contains(&taken), "{}", in_use.stderr);
}
