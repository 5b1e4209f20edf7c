//! A broker of the relay's own: the real Mosquitto.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rumqttc::v5::mqttbytes::v5::{ConnectReturnCode, Packet};
use rumqttc::v5::{Client, Event, MqttOptions};
use rustix::process::{Pid, Signal, kill_process};
use sealcast_relay::follower::Outcome;

use crate::broker::subscribe;
use crate::member::Member;
use crate::process::{Process, TIMEOUT, end, until};

/// A command that runs a relay with a broker of its own at this address.
fn command(data: &Path, listen: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-relay"));
    command.args(["run", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.arg("--mqtt-listen").arg(listen.to_string()).args(arguments);
    command
}

/// A free port.
fn any() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// Where the broker listens.
fn mqtt_of(relay: &Process) -> SocketAddr {
    let at = relay.link("mqtt").strip_prefix("mqtt://").and_then(|it| it.strip_suffix("/sealcast"));
    at.expect("a URL").parse().expect("an address")
}

/// The process of a folder's broker.
fn broker_of(data: &Path) -> Option<Pid> {
    fs::read_to_string(data.join("mosquitto.pid")).ok()?.trim().parse().ok().and_then(Pid::from_raw)
}

/// The ports at which a process listens.
fn ports_of(pid: Pid) -> Vec<u16> {
    let links = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("it runs");
    let links = links.filter_map(|it| Some(fs::read_link(it.ok()?.path()).ok()?.to_string_lossy().into_owned()));
    let sockets: Vec<String> =
        links.filter_map(|it| Some(it.strip_prefix("socket:[")?.trim_end_matches(']').into())).collect();
    let all = ["tcp", "tcp6"].map(|it| fs::read_to_string(format!("/proc/net/{it}")).unwrap_or_default()).concat();
    let lines = all.lines().map(|it| it.split_whitespace().collect::<Vec<_>>());
    let listens =
        lines.filter(|it| it.get(3) == Some(&"0A") && it.get(9).is_some_and(|it| sockets.iter().any(|own| own == it)));
    listens.filter_map(|it| u16::from_str_radix(it[1].rsplit(':').next()?, 16).ok()).collect()
}

fn runs(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // One that has ended waits for its parent.
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Whether the broker lets in somebody of this name, whose password is `secret`.
fn is_let_in(at: SocketAddr, user: Option<&str>) -> bool {
    let mut options = MqttOptions::new("somebody", at.ip().to_string(), at.port());
    options.set_keep_alive(Duration::from_secs(5));
    user.into_iter().for_each(|it| _ = options.set_credentials(it, "secret"));
    let (_client, mut connection) = Client::new(options, 8);
    let first = connection.iter().find(|it| !matches!(it, Ok(Event::Outgoing(_))));
    matches!(first, Some(Ok(Event::Incoming(Packet::ConnAck(it)))) if it.code == ConnectReturnCode::Success)
}

/// What the log takes is heard at the broker.
fn is_heard(relay: &Process, at: SocketAddr, member: &mut Member, position: u64) {
    let hear = subscribe(at, "sealcast/#");
    assert_eq!(member.append(&position.to_be_bytes()), Some(Outcome::Won(position)));
    hear.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("it is announced: {}", relay.said()));
}

#[test]
fn a_relay_brings_its_broker_which_ends_with_it_and_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("relay");
    let relay = Process::run(command(&data, any(), &[]));
    let at = mqtt_of(&relay);
    let mut member = Member::new(&relay, 1);
    is_heard(&relay, at, &mut member, 1);
    let first = broker_of(&data).expect("its process");
    assert_eq!(ports_of(first), [at.port()], "and at no other port");
    kill_process(first, Signal::KILL).unwrap();
    until("it is started again", || broker_of(&data).is_some_and(|it| it != first && runs(it)));
    until("it listens", || std::net::TcpStream::connect(at).is_ok());
    assert!(relay.said().contains("the MQTT broker has ended: signal: 9 (SIGKILL)"), "{}", relay.said());
    is_heard(&relay, at, &mut member, 2);
    let second = broker_of(&data).expect("its process");
    let (status, took, said) = relay.stop();
    assert!(status.success() && took < Duration::from_secs(4), "{status} {took:?} {said}");
    assert!(!runs(second), "it has ended, too");
}

#[test]
fn a_relay_that_was_killed_starts_again_with_its_broker() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("relay");
    let relay = Process::run(command(&data, any(), &[]));
    let at = mqtt_of(&relay);
    let left = broker_of(&data).expect("its process");
    relay.kill();
    assert!(runs(left), "it goes on");
    let relay = Process::run(command(&data, at, &[]));
    assert!(!runs(left));
    is_heard(&relay, at, &mut Member::new(&relay, 1), 1);
    let (status, _, said) = relay.stop();
    assert!(status.success(), "{said}");
}

#[test]
fn a_broker_of_its_own_lets_in_those_with_passwords_if_there_are_some() {
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("users");
    let made = Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(&users).args(["ann", "secret"]).status();
    assert!(made.expect("Mosquitto is installed: make setup").success());
    let relay = Process::run(command(&dir.path().join("relay"), any(), &["--mqtt-users", users.to_str().unwrap()]));
    let at = mqtt_of(&relay);
    assert!(!is_let_in(at, None) && is_let_in(at, Some("ann")) && !is_let_in(at, Some("bob")));
    let made = Command::new("mosquitto_passwd").arg("-b").arg(&users).args(["bob", "secret"]).status();
    assert!(made.unwrap().success());
    kill_process(relay.pid(), Signal::HUP).unwrap();
    until("the users are read again", || is_let_in(at, Some("bob")));
    // The relay itself needs none.
    assert_eq!(Member::new(&relay, 1).append(b"1"), Some(Outcome::Won(1)));
    until("it is connected", || relay.said().contains("connected to the MQTT broker at "));
    relay.stop();
}

#[test]
fn what_is_wrong_with_a_broker_of_its_own_is_one_line_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("relay");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let wrong = |listen: &str, arguments: &[&str], code: i32, what: &str| {
        let (ended, said) = end(command(&data, listen.parse().unwrap(), arguments));
        let last = said.lines().last().unwrap_or_default();
        assert!(ended == Some(code) && last.contains(what) && last.contains("\"hint\":"), "{ended:?} {said}");
    };
    wrong(&taken.local_addr().unwrap().to_string(), &[], 4, "the port is in use");
    wrong("0.0.0.0:0", &[], 2, "without TLS and passwords the MQTT broker serves this machine alone");
    wrong("127.0.0.1:0", &["--mqtt-users", "/nowhere/users"], 3, "/nowhere/users");
    let clear = dir.path().join("clear");
    fs::write(&clear, "ann:secret\n").unwrap();
    wrong("127.0.0.1:0", &["--mqtt-users", clear.to_str().unwrap()], 3, "no users of Mosquitto with hashed passwords");
    let spaced = dir.path().join("a folder");
    let (ended, said) = end(command(&spaced, any(), &[]));
    assert!(ended == Some(2) && said.contains("E0203"), "{ended:?} {said}");
}
