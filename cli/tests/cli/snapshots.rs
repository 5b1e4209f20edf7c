//! Every command's help, output and errors, as a person sees them.
//!
//! `! ` marks lines of stderr. After a wanted change: `INSTA_UPDATE=always cargo test -p sealcast-cli`.

use crate::common::{Home, free_port};

fn snapshot(name: &str, lines: &[&str]) {
    let mut home = Home::new(name);
    for line in lines {
        home.type_line(line);
    }
    insta::assert_snapshot!(name, home.transcript());
}

#[test]
fn help_of_every_command() {
    let mut home = Home::new("help");
    home.type_line("--help");
    // From the completion script: it names every command, so that none can be forgotten here.
    for name in every_command(&home) {
        home.type_line(&format!("{name} --help"));
    }
    insta::assert_snapshot!("help", home.verbatim());
}

#[test]
fn mistakes_on_the_command_line() {
    snapshot(
        "mistakes",
        &[
            "",
            "publsh",
            "complet",
            "ctx ad",
            "ctx zzz",
            "ctx select",
            "ctx add x --jsn",
            "ctx add x y",
            "ctx ls --url",
            "ctx ls -q -v",
            "completion basj",
            "--color sometimes ctx ls",
            "--json ctx selct",
        ],
    );
}

#[test]
fn contexts() {
    snapshot(
        "ctx",
        &[
            "ctx ls",
            "ctx add ward",
            "ctx add ward --url 'udpm://239.255.76.67:7667?ttl=1'",
            "ctx add ward --url mem:",
            "ctx add ../x --url mem:",
            "ctx add lab --url 'udpm://239.1.2.3:7667?keys=plain' --id nobody --select",
            "ctx ls",
            "ctx ls --json",
            "ctx -",
            "ctx select -",
            "ctx select wrad",
            "ctx select somewhere",
            "ctx rm lab",
            "ctx -",
            "ctx ls",
        ],
    );
}

#[test]
fn centres() {
    snapshot(
        "kdc",
        &[
            "kdc ls",
            "kdc revoke robot7",
            "kdc register leader --group ward3 --lead --evict '#'",
            "kdc register leader --group ward3",
            "kdc register leader --group ward3 -o other.principal",
            "kdc register robot7",
            "kdc register ../robot7 --group ward3",
            "kdc register robot7 --group ward3 --pub 'pose/#/x'",
            "kdc register robot7 --group 'a&b'",
            "kdc register robot7 --group ward3 --ttl 0s",
            "kdc register robot7 --group ward3 --pub pose/robot7 --sub '#' --json",
            "kdc register robot8 --group ward3 --both 'pose/#' --url udpm://239.1.1.1:7000?keys=center&kdc=10.0.0.1:7680 -o -",
            "kdc revoke robot7 --reason 'lost laptop'",
            "kdc revoke robot8 --json",
            "kdc revoke nobody",
            "kdc ls",
            "kdc ls --json",
            "kdc run --dir second --standby-of 127.0.0.1:7680",
            "kdc run --standby-of 127.0.0.1:7680 --stale-after 1s",
            "join leader.principal",
            "join leader.principal --authority scca1x",
            "join robot7.principal --json",
            "ctx ls",
        ],
    );
}

/// The policy that docs/policies.md explains.
fn ward(home: &Home) -> (String, String) {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let block = |start: &str| {
        let block = page.split_once(start).and_then(|(_, rest)| rest.split_once("```\n"));
        block.expect("the page has this block").0.to_owned()
    };
    let (policy, session) = (block("```toml\n"), block("```console\n"));
    std::fs::write(home.path().join("ward.toml"), &policy).expect("the folder can be written");
    (policy, session)
}

#[test]
fn the_page_on_policies_shows_what_the_program_says() {
    let mut home = Home::new("policies-page");
    let (_, session) = ward(&home);
    for line in session.lines().filter_map(|l| l.strip_prefix("$ sealcast ")) {
        home.type_line(line);
    }
    let said: Vec<&str> = home.verbatim().lines().filter(|l| !l.starts_with("[exit")).collect();
    let said: Vec<&str> = said.iter().map(|l| l.strip_prefix("! ").unwrap_or(l)).collect();
    assert_eq!(said.join("\n").trim_end(), session.trim_end());
}

#[test]
fn policies() {
    let mut home = Home::new("policy");
    let (good, _) = ward(&home);
    let files = [
        ("bad.toml", POLICY_WITH_MISTAKES),
        ("odd.toml", POLICY_HARDLY_MEANT),
        ("broken.toml", "number = = 1\n[[rule]\ntopic = \"x\n"),
        ("failing.toml", &good.replacen("expect = \"deny\"", "expect = \"allow\"", 2)),
        ("one.toml", "numbr = 1\n"),
        ("untested.toml", &good[..good.rfind("[[test]]").expect("there are tests")]),
        ("empty.toml", ""),
    ];
    for (name, text) in files {
        std::fs::write(home.path().join(name), text).expect("the folder can be written");
    }
    std::fs::write(home.path().join("picture.toml"), [0x89, b'P', 0xff]).expect("the folder can be written");
    home.good(&["ca", "init", "hospitalA"]);
    home.good(&["ca", "issue", "ann", "--attr", "role=dermatologist"]);
    home.good(&["id", "new", "bob"]);
    for line in [
        "policy lint ward.toml",
        "policy lint ward.toml --json",
        "policy lint bad.toml",
        "policy lint odd.toml",
        "policy lint odd.toml --strict",
        "policy lint broken.toml",
        "policy lint one.toml --json",
        "policy lint empty.toml",
        "policy lint nowhere.toml",
        "policy lint picture.toml",
        "policy lint .",
        "policy show bad.toml",
        "policy show one.toml",
        "policy show ward.toml --json",
        "policy test failing.toml",
        "policy test failing.toml --json",
        "policy test untested.toml",
        "policy test odd.toml",
        "policy why",
        "policy why ward.toml --topic records/derma/7 --as ann",
        "policy why ward.toml --topic records/derma/7 --as bob",
        "policy why ward.toml --topic records/derma/7 --as carol",
        "policy why ward.toml --topic records/derma/7 --topic claims/3 --attr hospitalA:role=nurse",
        "policy why ward.toml --topic records/7 --publish --attr hospitalA:rol=nurse",
        "policy why ward.toml --topic elsewhere",
        "policy why ward.toml --topic 'records/#' --as ann",
        "policy why ward.toml --topic claims/3 --as ann --json",
        "policy why ward.toml --as ann --expr 'hospitalA:ward = 3' --topic records/derma/7",
        "policy why ward.toml --expr 'hospitlA:ward = 3'",
        "policy why ward.toml --expr 'hospitalA:ward = 3' --publish",
        "policy why ward.toml --attr role=nurse",
        "policy why ward.toml --attr nurse",
        "policy why ward.toml --topic ''",
        "policy why --expr 'exchange:desk = fx and exchange:clearance >= 3' --attr exchange:clearance=high",
        "policy why --expr 'exchange:desk == fx'",
        "policy set ward.toml",
    ] {
        home.type_line(line);
    }
    insta::assert_snapshot!("policy", home.transcript());
}

#[test]
fn brokers_that_do_not_run() {
    let mut home = Home::new("brokers");
    home.type_line("brokers init -n 5 market").type_line("brokers status");
    home.type_line("brokers init -n 4 --name market --port 1 market --paper");
    home.type_line("brokers init -n 4 --name market market");
    let path = home.path().join("market/cluster.toml");
    let good = std::fs::read_to_string(&path).expect("init wrote it");
    let folder = home.path().to_owned();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("the folder can be written");
    write("tampered.toml", &good.replacen("threshold = 2", "threshold = 3", 1));
    write("other.toml", &good.replacen("name = \"market\"", "name = \"markt\"", 1));
    write("broken.toml", &good.replacen("[administrators]", "[administrators", 1));
    write("r.json", "{\"receipt\": \"0123\"}");
    write("not.json", "receipt");
    write("policy.toml", "number = 1\n[[rule]]\ntopic = \"market/#\"\nallow = \"exchnge:desk = fx\"\n");
    let open = "number = 1\n[[rule]]\ntopic = \"market/#\"\nallow = \"market:desk = fx\"\n";
    write("open.toml", open);
    let rules = "[[rule]]\ntopic = \"market/#\"\nallow = \"market:dsek = fx\"\n";
    write("misspelt.toml", &format!("number = 1\n[issuers]\nmarket = [\"desk\"]\n{rules}"));
    write("act.toml", "cluster = \"00\"\nwhat = \"policy 1\"\nact = \"06\"\n");
    for line in [
        "brokers status --cluster tampered.toml",
        "brokers status --cluster other.toml",
        "brokers status --cluster broken.toml",
        "brokers status --cluster nowhere.toml",
        "--url 'quorum:market/cluster.toml?pin=0123456789abcdef' brokers status",
        "--url quorum:market/cluster.toml pub market/eurusd 1.0842 --allow 'desk = fx'",
        "--url quorum:market/cluster.toml pub market/eurusd 1.0842 --allow 'markt:desk = fx'",
        "--url mem: pub x y --allow 'a:b = c'",
        "--url mem: sub --list",
        "--url mem: pub x y --put a=b",
        "--url quorum:market/cluster.toml pub x y --put a",
        "--url quorum:market/cluster.toml pub x y --increment a=b",
        "--url quorum:market/cluster.toml pub x y --also a --also x",
        "--url quorum:market/cluster.toml pub x y --allow 'market:desk = fx' --put note=secret",
        "--url quorum:market/cluster.toml pub x y --allow 'market:desk = fx' --put note=secret --expect old",
        "--url quorum:market/cluster.toml pub x y --allow 'market:desk = fx' --increment count=2",
        "--url quorum:market/cluster.toml pub x y --put note=secret --clear",
        "--url quorum:market/cluster.toml pub 'market/#' 1",
        "--url quorum:market/cluster.toml pub 'records/a/x ' 1",
        "--url quorum:market/cluster.toml pub 'records/a\t/x' 1",
        "--url quorum:market/cluster.toml pub x y --also 'a/+=1'",
        "--url quorum:market/cluster.toml pub x y --receipt act.toml",
        "--url quorum:market/cluster.toml read x --receipt act.toml",
        "--url quorum:market/cluster.toml pub x y --force",
        "--url quorum:market/cluster.toml pub market/eurusd 1.0842 --safe",
        "--url quorum:market/cluster.toml sub '.*' --regex",
        "--url quorum:market/cluster.toml sub 'price = '",
        "--url quorum:market/cluster.toml sub 'news/#' 'price == 105'",
        "--url quorum:market/cluster.toml sub 'price = 105 and news/#/x'",
        "--url quorum:market/cluster.toml policy set policy.toml",
        "--url quorum:market/cluster.toml policy set open.toml",
        "--url quorum:market/cluster.toml policy set misspelt.toml",
        "policy show open.toml --cluster market/cluster.toml",
        "--url quorum:market/cluster.toml brokers sign act.toml",
        "brokers revoke xyz --cluster market/cluster.toml",
        "brokers revoke --serial 17 --cluster market/cluster.toml",
        "receipt verify r.json",
        "receipt verify r.json --cluster market/cluster.toml",
        "receipt verify not.json --cluster market/cluster.toml",
        "receipt verify nowhere.json --cluster market/cluster.toml",
        "ctx add market --url quorum:market/cluster.toml",
    ] {
        home.type_line(line);
    }
    insta::assert_snapshot!("brokers", home.transcript());
}

const POLICY_WITH_MISTAKES: &str = r#"numbr = 3
[issuers]
hospitalA = ["role", 3]
insurer = []
[[rule]]
topic = "records/#/x"
alow = "hospitalA:role = x"
[[rule]]
topic = "records/+"
allow = """
hospitalA:role = nurse
or role = x"""
[[rule]]
act = "write"
topic = "a"
allow = "hospitalA:rol = \"a b\" and hospitlA:role = y"
[[rule]]
allow = ""
[[rule]]
topic = "b/\u001b[31m"
allow = "hospitalA:role = nurse"
[[rule]]
topic = "a"
allow = "((((((((((((((((((hospitalA:role = x))))))))))))))))))"
[[test]]
topic = []
attr = ["role=nurse", "hospitalA:role", "x:y=z"]
expect = "yes"
[[test]]
attr = "x"
"#;

const POLICY_HARDLY_MEANT: &str = r##"number = 1
[[rule]]
topic = "a/#"
allow = "h:role = nurse and h:role != nurse or h:x > 3"
[[rule]]
topic = "a/b"
allow = "h:role = doctor or h:role = doctor and h:x = 3"
[[rule]]
topic = "a/b"
allow = "h:role = doctor or h:role = doctor and h:x = 3"
[[rule]]
topic = "#"
allow = "h:x < 2 and not h:y = z"
[[rule]]
topic = "b/+"
allow = "h:x > 5"
[[rule]]
topic = "b/c"
allow = "h:y = z"
"##;

/// `ctx`, `ctx add`, …: all commands, as the bash completion knows them.
fn every_command(home: &Home) -> Vec<String> {
    let script = home.good(&["completion", "bash"]);
    let case = script.lines().map(str::trim).filter_map(|l| l.strip_suffix(')')).filter_map(|l| l.split_once(','));
    let named = case.filter(|(above, _)| above.starts_with("sealcast") && !above.contains("help"));
    let full = |(above, name): (&str, &str)| {
        let above = above.trim_start_matches("sealcast").replace("__subcmd__", " ").replace("__", " ");
        format!("{above} {name}").trim().to_owned()
    };
    let mut all: Vec<String> = named.map(full).filter(|n| !n.ends_with("help") && !n.ends_with("lab")).collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn a_group_of_ones_own() {
    snapshot(
        "init",
        &[
            "init ward3",
            "init ward3",
            "init ../x",
            "init attr",
            "init ward5 --as you@elsewhere --json",
            "ctx ls",
            "id ls",
            "ca ls",
            "ca ls ward5",
            "init ward7 --url 'udpm://10.0.0.1:7667'",
        ],
    );
}

#[test]
fn identities() {
    let mut home = Home::new("id");
    home.type_line("id show").type_line("id ls").type_line("id new alice").type_line("id new alice");
    home.type_line("id show").type_line("id export").type_line("id export --certificate").type_line("id needs-renewal");
    home.type_line("id new ../../bob").type_line("id show alcie").type_line("id new --json bob --algorithm p256");
    home.type_line("id show").type_line("id ls --json").type_line("id ls");
    let exposed = home.path().join("home/id/bob");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&exposed, open).expect("the file is there");
    home.type_line("id show bob").type_line("id ls");
    insta::assert_snapshot!("id", home.transcript());
}

#[test]
fn an_authority() {
    let mut home = Home::new("ca");
    for line in [
        "ca issue x",
        "ca init ward3",
        "ca init ward3",
        "ca issue robot7 --pub pose/robot7 --sub '#' --attr role=robot",
        "ca issue nurse --attr role",
        "ca issue nurse --sub 'a/#/b'",
        "id show robot7",
        "id needs-renewal robot7",
        "id needs-renewal robot7 --within 100d",
    ] {
        home.type_line(line);
    }
    let key = home.good(&["id", "new", "carol"]);
    home.word("KEY", &key);
    for line in [
        "ca issue carol --for $KEY --sub 'ward3/#' -o carol.pem",
        "ca issue carol --for $KEY --sub 'ward3/#' -o carol.pem",
        "ca issue carol --for scpub1nonsense",
        "ca inspect carol.pem",
        "ca inspect --json carol.pem",
        "ca inspect",
        "ca ls ward3",
        "ca revoke carl",
        "ca revoke 9",
        "ca revoke carol",
        "ca revoke carol",
        "ca revoke 1 --json",
        "id show robot7",
        "ca ls ward3 --json",
        "ca crl -o ward.crl",
        "ca inspect ward.crl",
        "ca policy",
        "ca policy missing.toml",
    ] {
        home.type_line(line);
    }
    let policy =
        "max_crl_age = \"7d\"\non_stale = \"stop\"\n[[compartment]]\nname = \"orders\"\npatterns = [\"orders/#\"]\n";
    let wrong = "max_crl_age = \"soon\"\non_stale = \"panic\"\n[[compartment]]\nname = \"a\"\npatterns = [\"#/b\"]\n";
    for (name, text) in [("good.toml", policy), ("wrong.toml", wrong), ("broken.toml", "compartment = 1 2\n")] {
        std::fs::write(home.path().join(name), text).expect("the folder can be written");
        home.type_line(&format!("ca policy {name}"));
    }
    home.type_line("ca policy").type_line("ca policy --json").type_line("ca ls --ca ward").type_line("ca ls ward");
    insta::assert_snapshot!("ca", home.transcript());
}

#[test]
fn rule_a11_an_invite_is_for_one_key_only() {
    let mut home = Home::new("invite");
    let other = Home::new("invite-other");
    let key = other.good(&["id", "new", "alice"]);
    home.type_line("invite --for x").type_line("join nowhere.invite").good(&["init", "ward3"]);
    home.word("KEY", &key);
    for line in [
        "invite",
        "invite --for x",
        "invite --for $KEY --as alice --sub 'ward3/#' --attr role=nurse",
        "invite --for $KEY --as alice",
        "invite --for $KEY --as alice --ttl 1d -o short.invite --json",
        "invite --for $KEY --ttl 0s -o over.invite",
        "invite --for $KEY --url 'udpm://239.255.76.67:7667?ttl=1' -o far.invite",
        "ca inspect alice.invite",
        "join alice.invite",
    ] {
        home.type_line(line);
    }
    insta::assert_snapshot!("invite", home.transcript());

    let mut other = other;
    for name in ["alice", "short"] {
        let from = home.path().join(format!("{name}.invite"));
        std::fs::copy(from, other.path().join(format!("{name}.invite"))).expect("it was written");
    }
    let text = std::fs::read_to_string(other.path().join("alice.invite")).expect("it was copied");
    let mut changed = text.clone();
    let other_letter = if &changed[400..401] == "A" { "B" } else { "A" };
    changed.replace_range(400..401, other_letter);
    std::fs::write(other.path().join("changed.invite"), changed).expect("the folder can be written");
    for line in [
        "join alice.invite --authority scca1x",
        "join changed.invite",
        "join alice.invite",
        "join alice.invite --json",
        "join short.invite",
        "id show",
        "ctx ls",
    ] {
        other.type_line(line);
    }
    insta::assert_snapshot!("join", other.transcript());
}

/// A URL of its own for each test: this machine only, and a port that nobody else uses.
fn url(port: u16) -> String {
    format!("udpm://239.255.76.67:{port}?ttl=0&keys=plain")
}

#[test]
fn messages_that_cannot_be_sent_or_received() {
    let mut home = Home::new("messages");
    home.word("URL", &url(free_port()));
    for line in [
        "pub a b",
        "sub a",
        "pub",
        "sub",
        "pub '' x --url $URL",
        "pub a -f missing.jpg --url $URL",
        "pub a b -l --url $URL",
        "sub a/#/b --url $URL",
        "sub a --format %x --url $URL",
        "sub a --raw --format %t --url $URL",
        "sub '(' --regex --url $URL",
        "sub a -C 1 -W 0.1 --url $URL",
        "sub a -W 0.1 --url $URL",
        "pub a b --url udpm://",
        "pub a b --url udpm:// --id nobody",
        "pub a b --ordered --url $URL",
        "group show",
        "group evict carol",
        "group log --id nobody",
    ] {
        home.type_line(line);
    }
    insta::assert_snapshot!("messages", home.transcript().replace(home.said("URL"), "$URL"));
}

#[test]
fn explain() {
    snapshot("explain", &["explain", "explain E0412", "explain 303 --json", "explain E9999"]);
}

#[test]
fn completion_scripts_name_every_command() {
    let home = Home::new("completion");
    for shell in ["bash", "zsh", "fish"] {
        let script = home.good(&["completion", shell]);
        for word in ["ctx", "explain", "select", "json"] {
            assert!(script.contains(word), "{shell} completes {word}");
        }
    }
}

#[test]
fn completion_works_in_bash() {
    let home = Home::new("bash");
    std::fs::write(home.path().join("script"), home.good(&["completion", "bash"])).expect("the folder can be written");
    let type_tab =
        "source ./script; COMP_WORDS=(sealcast gr); COMP_CWORD=1; _sealcast sealcast gr sealcast; echo ${COMPREPLY[@]}";
    let said = std::process::Command::new("bash").args(["-c", type_tab]).current_dir(home.path()).output();
    assert_eq!(String::from_utf8_lossy(&said.expect("bash is there").stdout).trim(), "group");
}

#[test]
fn every_command_speaks_json() {
    let mut home = Home::new("json-everywhere");
    let plain = url(free_port());
    let key = home.good(&["id", "new", "alice"]);
    home.word("KEY", &key);
    home.word("URL", &plain);
    ward(&home);
    for line in [
        "policy lint ward.toml",
        "policy show ward.toml",
        "policy test ward.toml",
        "policy why ward.toml --topic elsewhere",
        "init ward3",
        "ctx add x --url $URL",
        "ctx ls",
        "ctx select x",
        "ctx -",
        "ctx rm x",
        "id new bob",
        "id ls",
        "id show bob",
        "id export bob",
        "id needs-renewal you --within 100d",
        "ca init ward5",
        "ca issue carol --ca ward3",
        "ca issue dave --ca ward3 --for $KEY",
        "ca ls",
        "ca ls ward3",
        "ca inspect --ca ward3",
        "ca revoke carol --ca ward3",
        "ca crl --ca ward3",
        "ca policy --ca ward3",
        "invite --for $KEY -o -",
        "pub a b --alone --url $URL",
        "explain",
        "completion fish",
        "man pages",
        "doctor --url $URL",
    ] {
        let ran = home.typed(&format!("{line} --json"));
        assert_eq!(ran.exit, 0, "{line}: {}", ran.stderr);
        assert!(!ran.stdout.is_empty(), "{line}");
        for object in ran.stdout.lines() {
            let read = serde_json::from_str::<serde_json::Value>(object);
            assert!(read.is_ok_and(|v| v.is_object()), "{line}: {object}");
        }
    }
}

#[test]
fn doctor_names_what_it_checked() {
    let home = Home::new("doctor");
    let url = url(free_port());
    let said = home.good(&["doctor", "--url", &url]);
    for check in ["context", "url", "keys", "route", "ttl", "buffers", "loop", "segments", "clock"] {
        assert!(said.lines().any(|l| l.split_whitespace().nth(1) == Some(check)), "{check} in {said}");
    }
    assert!(said.contains("8 datagrams sent as one came back"), "{said}");
    let off = home.good(&["doctor", "--url", &format!("{url}&gso=off")]);
    assert!(off.contains("sent one by one (gso is off)"), "{off}");
    let sealed = home.run(&["doctor", "--url", "udpm://"]);
    assert_eq!(sealed.exit, 3, "{}", sealed.stdout);
    assert!(sealed.stdout.contains("x   identity") && sealed.stdout.contains("→ sealcast init"), "{}", sealed.stdout);
}

#[test]
fn the_lab_is_started_beside_this_program() {
    let home = Home::new("lab");
    let copy = home.path().join("sealcast");
    // Other processes write what is run here: a file that is open for writing cannot be, and each test that starts a program
    // at that moment has it open, too.
    let shell = |what: &str, file: &std::path::Path| {
        let mut shell = std::process::Command::new("sh");
        let ended = shell.args(["-c", what, env!("CARGO_BIN_EXE_sealcast")]).arg(file).status();
        assert!(ended.is_ok_and(|it| it.success()), "the folder can be written");
    };
    shell("cp \"$0\" \"$1\"", &copy);
    let run = || {
        let mut command = std::process::Command::new(&copy);
        command.args(["lab", "run", "x", "--quick"]).env("PATH", "/nowhere").output().expect("the program starts")
    };
    let missing = run();
    assert_eq!(missing.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("error[E0301]"));
    let lab = home.path().join("sealcast-lab");
    shell("printf '#!/bin/sh\\necho \"$@\"\\nexit 9\\n' > \"$1\" && chmod 755 \"$1\"", &lab);
    let found = run();
    assert_eq!((found.status.code(), found.stdout.as_slice()), (Some(9), &b"run x --quick\n"[..]));
}

#[test]
fn data_to_a_closed_pipe_ends_quietly() {
    let home = Home::new("pipe");
    let mut child = home.command(&["explain"]).spawn().expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
