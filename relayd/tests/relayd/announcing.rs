//! Announcements over MQTT, and what a relay records.

use std::fs;
use std::process::Command;

use rumqttc::v5::mqttbytes::QoS;
use sealcast_crypto::aead::{Key, Suite};
use sealcast_crypto::secret::Secret;
use sealcast_relay::follower::{Follower, Outcome};
use sealcast_relay::receipt::Announcement;

use crate::broker::{Broker, subscribe};
use crate::member::Member;
use crate::process::{Process, TIMEOUT, command, end, files, nobody, until};

#[test]
fn a_subscriber_hears_what_the_log_took_and_needs_not_ask() {
    let (dir, broker) = (tempfile::tempdir().unwrap(), Broker::start());
    let relay = Process::run(command(&dir.path().join("relay"), broker.address(), &["--prefix", "lab/sealcast"]));
    assert!(relay.link("url").starts_with(&format!("mqtt://{}/lab/sealcast?keys=mls&group=GROUP&", broker.address())));
    let hear = subscribe(broker.address(), "lab/#");
    let mut member = Member::new(&relay, 1);
    let mut listening = Follower::new(*member.follower.group(), relay.relay());
    for n in 1..=3 {
        assert_eq!(member.append(&[n]), Some(Outcome::Won(n.into())));
        let (topic, payload) = hear.recv_timeout(TIMEOUT).expect("it is announced");
        assert_eq!(topic, format!("lab/sealcast/{}/log", hex::encode(member.follower.group().0)));
        let progress = listening.hint(&payload).expect("an honest directory");
        assert_eq!(progress.entries.iter().map(|it| &it.bytes[..]).collect::<Vec<_>>(), [&[n][..]]);
    }
    assert!(broker.published().iter().all(|it| it.qos == QoS::AtLeastOnce && !it.retain));
}

/// The broker is a real Mosquitto with TLS: that of another relay.
#[test]
fn a_broker_that_runs_already_is_reached_by_tls_and_by_its_own_certificate_alone() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["cert.pem", "key.pem", "others.pem"].map(|it| dir.path().join(it));
    let [certificate, key, others] = paths.each_ref().map(|it| it.to_str().expect("a name in UTF-8"));
    let issue = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let issued = issue();
    fs::write(certificate, issued.cert.pem()).unwrap();
    fs::write(key, issued.signing_key.serialize_pem()).unwrap();
    fs::write(others, issue().cert.pem()).unwrap();
    let mut with_broker = Command::new(env!("CARGO_BIN_EXE_sealcast-relay"));
    with_broker.args(["run", "--json", "--listen", "127.0.0.1:0", "--mqtt-listen", "127.0.0.1:0"]);
    with_broker.args(["--tls-cert", certificate, "--tls-key", key, "--data"]).arg(dir.path().join("broker"));
    let broker = Process::run(with_broker);
    let url = broker.link("mqtt").strip_suffix("/sealcast").expect("a URL with a prefix");
    assert!(url.starts_with("mqtts://127.0.0.1:"), "{url}");

    let run = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-relay"));
        command.args(["run", "--json", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        command.args(["--mqtt", url, "--data"]).arg(dir.path().join(name)).args(arguments);
        command
    };
    let relay = Process::run(run("relay", &["--mqtt-ca", certificate]));
    assert!(relay.link("url").starts_with(&format!("{url}/sealcast?")), "members use TLS, too");
    assert_eq!(Member::new(&relay, 1).append(b"announced"), Some(Outcome::Won(1)));
    let counted = || relay.figures().contains("sealcast_relay_announcements_published_total 1\n");
    until("the broker took it", counted);
    for arguments in [&["--mqtt-ca", others][..], &[]] {
        let relay = Process::run(run("refusing", arguments));
        until("it says why", || relay.said().contains("invalid peer certificate"));
        assert!(relay.said().contains("--mqtt-ca names the certificates") && !relay.said().contains("connected to"));
    }
    let (code, said) = end(run("wrong", &["--mqtt-ca", key]));
    assert!(code == Some(3) && said.contains("there is no certificate in it"), "{code:?} {said}");
    let (code, said) = end(command(&dir.path().join("wrong"), nobody(), &["--mqtt-ca", certificate]));
    assert!(code == Some(2) && said.contains("say mqtts://"), "{code:?} {said}");
    // Its Mosquitto ends with it.
    assert!(broker.stop().0.success());
}

#[test]
fn rule_g7_announcements_wait_for_a_broker_that_is_gone_and_shrink_for_a_small_one() {
    let dir = tempfile::tempdir().unwrap();
    let at = nobody();
    let relay = Process::run(command(&dir.path().join("relay"), at, &["--metrics", "127.0.0.1:0"]));
    let mut member = Member::new(&relay, 1);
    assert_eq!(member.append(b"nobody hears it yet"), Some(Outcome::Won(1)));
    until("it says so", || relay.said().contains("no connection to the MQTT broker"));
    let positions = |broker: &Broker| -> Vec<u64> {
        let announced = broker.published().into_iter().map(|it| Announcement::from_bytes(&it.payload).unwrap());
        announced.map(|it| it.receipt.position).collect()
    };
    let broker = Broker::start_at(at, None);
    until("it is announced later", || positions(&broker) == [1]);
    // One that was not acknowledged would come again.
    until("it is acknowledged", || relay.figures().contains("sealcast_relay_announcements_published_total 1\n"));
    drop(broker);
    assert_eq!(member.append(b"nobody hears it"), Some(Outcome::Won(2)));
    assert_eq!(member.append(&[7; 2000]), Some(Outcome::Won(3)));
    // It comes back, and takes short packets alone.
    let broker = Broker::start_at(at, Some(1000));
    until("both are announced", || positions(&broker) == [2, 3]);
    let last = Announcement::from_bytes(&broker.published()[1].payload).unwrap();
    assert_eq!(last.entry, None, "members read it");
    let counted = || relay.figures().contains("sealcast_relay_announcements_published_total 3\n");
    until("they are acknowledged", counted);
    assert!(relay.figures().contains("sealcast_relay_announcements_waiting 0\n"));
    let (status, _, said) = relay.stop();
    assert!(status.success(), "{said}");
}

#[test]
fn rule_d8_what_a_relay_records_and_announces_holds_no_name_topic_or_payload() {
    let (dir, broker) = (tempfile::tempdir().unwrap(), Broker::start());
    let data = dir.path().join("relay");
    let relay = Process::run(command(&data, broker.address(), &[]));
    let mut member = Member::new(&relay, 9);
    let plain = ["ann-of-the-fx-desk", "market/eurusd/secret-topic", "buy at 1.0842 and tell nobody"];
    let key = Key::new(Suite::Aes256Gcm, &Secret::from_bytes([4; 32]));
    let mut sealed = Vec::new();
    for (n, text) in plain.iter().enumerate() {
        let mut bytes = text.as_bytes().to_vec();
        bytes.extend_from_slice(&[0; 16]);
        key.seal(n as u64, b"", &mut bytes);
        member.append(&bytes);
        sealed.push(bytes);
    }
    until("all is announced", || broker.published().len() == plain.len());
    let topic = format!("sealcast/{}/log", hex::encode(member.follower.group().0));
    assert!(broker.published().iter().all(|it| it.topic == topic.as_bytes()));
    let said = relay.said();
    let (status, _, later) = relay.stop();
    assert!(status.success());
    let contents = files(&data).into_iter().map(|it| fs::read(it).unwrap());
    let recorded: Vec<u8> = contents.flatten().chain(broker.raw()).chain(said.bytes()).chain(later.bytes()).collect();
    let holds = |bytes: &[u8]| recorded.windows(bytes.len()).any(|it| it == bytes);
    assert!(sealed.iter().all(|it| holds(it)), "what is sealed is there");
    assert!(plain.iter().all(|it| !holds(it.as_bytes())));
    assert!(!later.contains(&hex::encode(member.follower.group().0)), "the log names no group");
}
