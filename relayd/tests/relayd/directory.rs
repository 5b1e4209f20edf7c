//! Members and the directory over HTTP and HTTPS.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sealcast_crypto::hash::sha256;
use sealcast_relay::follower::{Answer, Comparison, Outcome};
use sealcast_relay::ids::DeviceId;
use sealcast_relay::request::Blob;
use sealcast_wire::limits;

use crate::member::{Member, named};
use crate::process::{Process, ask, command, connect, end, nobody, post};

#[test]
fn rule_d1_two_members_found_append_conflict_and_read_over_http() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Process::run(command(&dir.path().join("relay"), nobody(), &["--metrics", "127.0.0.1:0"]));
    let (mut ann, mut bob) = (Member::new(&relay, 1), Member::new(&relay, 1));
    let info = ann.follower.info();
    assert!(matches!(ann.ask(&info), Answer::Info(it) if it.request_bytes as usize == limits::RELAY_REQUEST_BYTES_MAX));
    assert_eq!(ann.append(b"founded"), Some(Outcome::Won(1)));
    assert_eq!(bob.read().len(), 1);

    // Bob is faster.
    let (blob, device) = (Blob::new(b"tree".to_vec()), DeviceId([7; 32]));
    let call = bob.propose(b"of bob", vec![blob.clone()], vec![(device, b"welcome".to_vec())]);
    assert!(matches!(bob.ask(&call), Answer::Progress(it) if it.outcome == Some(Outcome::Won(2))));
    assert_eq!(ann.append(b"of ann"), Some(Outcome::Lost));
    assert_eq!((ann.follower.position(), ann.append(b"of ann again")), (2, Some(Outcome::Won(3))));
    let entries = bob.read();
    assert_eq!((entries.len(), &entries[0].bytes[..]), (1, &b"of ann again"[..]));
    let receipt = *ann.follower.receipt().unwrap();
    assert_eq!(bob.follower.exchange(&receipt), Ok(Comparison::Same));

    let call = ann.follower.blobs(vec![*blob.hash(), sha256(b"no such blob")]).unwrap();
    let Answer::Blobs(blobs) = ann.ask(&call) else { panic!("no blobs") };
    assert_eq!((blobs[0].1.as_deref(), &blobs[1].1), (Some(&b"tree"[..]), &None));
    let call = ann.follower.mail(device, 0, &named());
    assert!(matches!(ann.ask(&call), Answer::Mail { items, more: false } if items[0].bytes == b"welcome"));
    assert_eq!(ask(connect(relay.at()), "GET", "/healthz", b"").unwrap(), (200, b"ok\n".to_vec()));

    let figures = relay.figures();
    for line in ["requests_total{kind=\"append\"} 4", "refusals_total{reason=\"conflict\"} 1", "groups_founded_total 1"]
    {
        assert!(figures.contains(&format!("sealcast_relay_{line}\n")), "{line}: {figures}");
    }
    let (status, _, said) = relay.stop();
    assert!(status.success(), "{said}");
}

#[test]
fn rule_g6_many_groups_at_once_share_commits() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Process::run(command(&dir.path().join("relay"), nobody(), &["--metrics", "127.0.0.1:0"]));
    let (at, key) = (relay.at(), relay.relay());
    let members = (10..26).map(|seed| {
        std::thread::spawn(move || {
            let mut member = Member::at(at, key, seed);
            (1..=6).for_each(|n| assert_eq!(member.append(&[seed; 500]), Some(Outcome::Won(n))));
        })
    });
    members.collect::<Vec<_>>().into_iter().for_each(|it| it.join().unwrap());
    for seed in 10..26 {
        assert_eq!(Member::new(&relay, seed).read().len(), 6);
    }
    let figures = relay.figures();
    let figure = |name: &str| -> u64 {
        let line = figures.lines().find_map(|it| it.strip_prefix(&format!("sealcast_relay_{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {figures}")).parse().unwrap()
    };
    assert_eq!(figure("committed_requests_total"), 96);
    assert!(figure("commit_seconds_count") < 96, "{figures}");
}

fn https(at: std::net::SocketAddr, certificate: &rcgen::Certificate) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), connect(at))
}

#[test]
fn the_directory_speaks_tls_with_the_files_that_it_gets() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let made = |name: &str| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(at(&format!("{name}.pem")), made.cert.pem()).unwrap();
        fs::write(at(&format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
        made.cert
    };
    let (certificate, _) = (made("a"), made("b"));
    let run = |certificate: &Path, key: &Path| {
        let mut command = command(&at("relay"), nobody(), &[]);
        command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
        command
    };
    let relay = Process::run(run(&at("a.pem"), &at("a.key")));
    assert!(relay.link("url").contains("&directory=https://127.0.0.1:"), "{}", relay.link("url"));
    let (status, response) = ask(https(relay.at(), &certificate), "POST", "/v1", b"\x01\x01").unwrap();
    assert_eq!((status, &response[..2], &response[2..34]), (200, &[1, 1][..], &relay.relay().as_bytes()[..]));
    assert!(post(relay.at(), b"\x01\x01").is_err(), "without TLS there is no answer");
    drop(relay);

    for (certificate, key, code, what) in [
        ("a.pem", "b.key", 3, "error[E0305]: TLS cannot use"),
        ("a.key", "a.key", 3, "there is no certificate in it"),
        ("a.pem", "a.pem", 3, "there is no private key in it"),
        ("missing", "a.key", 3, "error[E0301]"),
    ] {
        let mut text = run(&at(certificate), &at(key));
        text.env("RUST_BACKTRACE", "0");
        let (ended, said) = end(text);
        let said = said.replace("\"code\":\"E0305\"", "error[E0305]: TLS cannot use").replace("E0301", "error[E0301]");
        assert!(ended == Some(code) && said.contains(what), "{certificate}, {key}: {ended:?} {said}");
    }
}
