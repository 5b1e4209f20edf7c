//! Every command's help, output and errors, as a person sees them.
//!
//! `! ` marks lines of stderr. After a wanted change: `INSTA_UPDATE=always cargo test -p sealcast-cli`.

mod common;

use common::Home;

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
    let names = ["ctx", "ctx add", "ctx ls", "ctx select", "ctx rm", "ctx -", "explain", "completion"];
    for name in names {
        home.type_line(&format!("{name} --help"));
    }
    insta::assert_snapshot!("help", home.transcript());
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
fn data_to_a_closed_pipe_ends_quietly() {
    let home = Home::new("pipe");
    let mut child = home.command(&["explain"]).spawn().expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
