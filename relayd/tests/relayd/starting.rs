//! How the program starts, does not start, and ends.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use sealcast_relay::follower::Outcome;

use crate::member::Member;
use crate::process::{Process, command, end, nobody};

#[test]
fn a_relay_keeps_its_key_prints_a_url_and_ends_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("relay");
    let relay = Process::start(&data);
    let key = relay.relay();
    let url = relay.link("url").to_owned();
    let mqtt = relay.link("mqtt");
    assert_eq!(url, format!("{mqtt}?keys=mls&group=GROUP&directory=http://{}/v1&relay={key}", relay.at()));
    let (status, took, said) = relay.stop();
    assert!(status.success() && took < Duration::from_secs(2), "{status} {took:?} {said}");
    assert!(said.contains("\"text\":\"ending\""), "{said}");
    assert_eq!(Process::start(&data).relay(), key);
}

#[test]
fn a_second_process_is_refused_and_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("relay");
    let relay = Process::start(&data);
    let (code, said) = end(command(&data, nobody(), &[]));
    assert!(code == Some(3) && said.contains("a relay runs in") && said.contains("\"hint\":\"stop it first"), "{said}");
    assert_eq!(Member::new(&relay, 1).append(b"it goes on"), Some(Outcome::Won(1)));
}

#[test]
fn what_is_wrong_is_one_line_with_a_code_and_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("relay");
    drop(Process::start(&data));
    let run = |arguments: &[&str]| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_sealcast-relay"));
        run.args(["run", "--mqtt", "mqtt://127.0.0.1:1", "--data"]).arg(&data).args(arguments);
        end(run)
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let wrong = |arguments: &[&str], code: i32, what: &str| {
        let (ended, said) = run(arguments);
        let last = said.lines().last().unwrap_or_default();
        assert!(ended == Some(code) && last.contains(what) && last.contains("; hint: "), "{ended:?} {said}");
    };
    wrong(&["--listen", &port], 4, "error[E0404]: cannot listen at 127.0.0.1:");
    wrong(&["--listen", "127.0.0.1:0", "--metrics", &port], 4, "--metrics names another address");
    wrong(&["--listen", "0.0.0.0:0"], 2, "error[E0201]: without TLS the directory serves this machine alone");
    let free = ["--listen", "127.0.0.1:0"];
    fs::write(data.join("format"), "sealcast-relay 7\n").unwrap();
    wrong(&free, 3, "error[E0305]");
    assert!(run(&free).1.contains("format 7, this one knows 1; hint: start the version that wrote it"));
    fs::write(data.join("format"), "sealcast-relay 1\n").unwrap();
    let key = data.join("receipt.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    wrong(&free, 3, "error[E0303]");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "nonsense").unwrap();
    wrong(&free, 3, "error[E0305]");
    fs::remove_file(&key).unwrap();
    wrong(&free, 3, "error[E0301]");

    // What clap says has a form of its own.
    for (arguments, what) in [
        (["--mqtt", "ssl://broker"], "begins with mqtt:// or mqtts://"),
        (["--mqtt", "mqtt://ann:secret@broker"], "--mqtt-password-file"),
        (["--prefix", "a/#"], "a prefix has letters"),
        (["--tls-cert", "a.pem"], "--tls-key"),
    ] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_sealcast-relay"));
        run.args(["run", "--data"]).arg(&data).args(arguments);
        if arguments[0] != "--mqtt" {
            run.args(["--mqtt", "mqtt://127.0.0.1:1"]);
        }
        let (code, said) = end(run);
        assert!(code == Some(2) && said.contains(what), "{code:?} {said}");
    }
}
