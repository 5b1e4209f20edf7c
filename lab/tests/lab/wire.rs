//! `docs/WIRE.md` holds (G9): a peer written from it reads the vectors, it names what the code hashes, and
//! the records that the key scheme's vectors seal are delivery's.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use sealcast::code::Code;
use sealcast::control::{
    Answer, Change, CompartmentInfo, GroupInfo, Handler, LogLine, MemberInfo, Request, Server, Strength,
};
use sealcast::error::Error;
use sealcast_delivery::multicast::frame::{Frame, Frames};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn rule_g9_a_peer_written_from_wire_md_reads_the_vectors() {
    let Some(read) = peer("read.py", root()) else { return };
    let said = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(read.status.success(), "{said}{}", String::from_utf8_lossy(&read.stderr));
    for what in [
        "rings of 3, 2, 1",
        "epoch 2 of 5",
        "signed: log/door",
        "VOUCH for 1",
        "R1 refused",
        "PROPOSE refused",
        "KC refused",
        "all of it is as",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
}

#[test]
fn rule_g9_a_peer_written_from_wire_md_judges_files_as_we_do() {
    let Some(read) = peer("files.py", root()) else { return };
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
}

#[test]
fn rule_g9_a_peer_written_from_wire_md_reads_a_centre_and_its_group() {
    let Some(read) = peer("center.py", root()) else { return };
    let said = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(read.status.success(), "{said}{}", String::from_utf8_lossy(&read.stderr));
    for what in [
        "GRANTED to alice",
        "REFUSED to carol: denied",
        "one-way epoch 3, 3 rings",
        "epoch 5, 2 rings",
        "signed: log/a",
        "all of it is as",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
}

/// Of each step one byte near its end: a tag, or what a tag binds.
#[test]
fn rule_g9_the_peer_notices_a_changed_byte_of_a_centre() {
    let text = std::fs::read_to_string(root().join("keys/vectors/center.json")).unwrap();
    let known: Value = serde_json::from_str(&text).unwrap();
    let folder = vectors();
    let file = folder.path().join("keys/vectors/center.json");
    for at in [1, 9, 25, 38, 43] {
        let mut vectors = known.clone();
        let datagram = vectors["steps"][at]["datagram"].as_str().unwrap().to_owned();
        let place = datagram.len() - 40;
        let other = if &datagram[place..=place] == "0" { "1" } else { "0" };
        vectors["steps"][at]["datagram"] =
            Value::from(format!("{}{other}{}", &datagram[..place], &datagram[place + 1..]));
        std::fs::write(&file, vectors.to_string()).unwrap();
        let Some(read) = peer("center.py", folder.path()) else { return };
        assert!(!read.status.success(), "step {at}: {}", String::from_utf8_lossy(&read.stdout));
    }
}

#[test]
fn rule_g9_the_peer_notices_a_changed_byte() {
    let folder = vectors();
    let file = folder.path().join("keys/vectors/contributory.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut vectors: Value = serde_json::from_str(&text).unwrap();
    let steps = vectors["stories"][0]["steps"].as_array_mut().unwrap();
    let r2 = steps.iter_mut().find(|s| s["message"] == "R2").unwrap();
    let datagram = r2["datagram"].as_str().unwrap().to_owned();
    let at = datagram.len() - 100;
    let other = if &datagram[at..=at] == "0" { "1" } else { "0" };
    r2["datagram"] = Value::from(format!("{}{other}{}", &datagram[..at], &datagram[at + 1..]));
    std::fs::write(&file, vectors.to_string()).unwrap();
    let Some(read) = peer("read.py", folder.path()) else { return };
    assert!(!read.status.success(), "{}", String::from_utf8_lossy(&read.stdout));
}

/// What is hashed under which label is the part of a format that one cannot see on the wire.
#[test]
fn rule_g9_wire_md_names_every_label() {
    let wire = std::fs::read_to_string(root().join("docs/WIRE.md")).unwrap();
    let mut labels = BTreeSet::new();
    for folder in ["crypto/src", "keys/src", "kdc/src", "delivery/src", "broker/src", "relay/src", "sealcast/src"] {
        for file in sources(&root().join(folder)) {
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let strings = code
                .lines()
                .filter(|l| !l.trim_start().starts_with("//"))
                .flat_map(|l| l.split('"').skip(1).step_by(2));
            labels.extend(strings.filter(|s| s.starts_with("sealcast/v1/") || s.starts_with("DB/")).map(str::to_owned));
        }
    }
    // Where a proof's nonce, a leader's token and the ephemeral keys of MLS come from is their maker's business.
    labels.remove("DB/nonce");
    labels.remove("sealcast/v1/center/token");
    labels.retain(|label| !label.ends_with(" ephemeral") && label != "sealcast/v1/mls stream");
    assert!(labels.len() > 20, "{labels:?}");
    let missing: Vec<&String> = labels.iter().filter(|l| !wire.contains(l.as_str())).collect();
    assert!(missing.is_empty(), "docs/WIRE.md does not say what is hashed as {missing:?}");
}

#[test]
fn rule_g9_what_the_vectors_seal_are_records_of_delivery() {
    let text = std::fs::read_to_string(root().join("keys/vectors/contributory.json")).unwrap();
    let vectors: Value = serde_json::from_str(&text).unwrap();
    let steps = vectors["stories"].as_array().unwrap().iter().flat_map(|s| s["steps"].as_array().unwrap());
    let mut kinds = BTreeSet::new();
    for step in steps.filter(|s| s["record"].is_string()) {
        let record = unhex(step["record"].as_str().unwrap());
        let signed = unhex(step["datagram"].as_str().unwrap())[19] == 1;
        // Of a signed record the first frame: what follows is its proof.
        let frames = Frames::of(&record).take(if signed { 1 } else { usize::MAX });
        for frame in frames {
            kinds.insert(match frame.unwrap() {
                Frame::Whole { head, .. } => (1, head.keys, head.sent_micros.is_some()),
                Frame::Piece { head, .. } => (2, head.keys, head.sent_micros.is_some()),
                Frame::Heartbeat { .. } => (3, false, false),
                Frame::Control { .. } => (4, false, false),
                Frame::After { .. } => (5, false, false),
                Frame::Stamps { .. } => (6, false, false),
                Frame::Heard { .. } => (7, false, false),
                Frame::Named { .. } => (8, false, false),
            });
        }
    }
    let all = [(1, false, false), (1, false, true), (1, true, false), (2, false, false), (3, false, false)];
    assert_eq!(kinds, BTreeSet::from(all));
}

/// Says what the vectors' session says.
struct Canned;

impl Handler for Canned {
    fn handle(&self, request: Request, bytes: Vec<u8>) -> sealcast::error::Result<Answer> {
        let member = MemberInfo {
            name: "robot1".into(),
            certificate: "ab".into(),
            serial: Some("2".into()),
            attributes: vec!["role=robot".into()],
            since_epoch: Some(1),
            publishes: vec!["pose/#".into()],
            subscribes: vec!["#".into()],
            me: true,
            ..MemberInfo::default()
        };
        let line = |at_micros, epoch, event: &str, what: &str| LogLine {
            at_micros,
            epoch,
            event: event.into(),
            what: what.into(),
        };
        match request {
            Request::Show => Ok(Answer::Show(Box::new(GroupInfo {
                group: "ward3".into(),
                url: "udpm://239.255.76.67:7667?ttl=1".into(),
                me: "robot1".into(),
                pid: 7,
                keys: "contributory".into(),
                cipher: "AES-256-GCM".into(),
                origin: "signed".into(),
                has_bootstrap_key: true,
                epoch: Some(3),
                epoch_hash: Some("0123456789abcdef".into()),
                age_ms: 12,
                members: vec![member],
                compartments: vec![CompartmentInfo {
                    name: "poses".into(),
                    patterns: vec!["pose/#".into()],
                    readers: vec![0],
                    writers_only: vec![],
                    signed: true,
                }],
                counters: [("published".to_owned(), 4)].into(),
                ..GroupInfo::default()
            }))),
            Request::Log => Ok(Answer::Log(vec![
                line(1_790_000_000_000_000, Some(1), "joined", "robot7"),
                line(1_790_000_000_000_001, None, "notice", "…"),
            ])),
            Request::Publish { topic, guarantee, bytes: n } => {
                assert_eq!((&*topic, n, &*bytes), ("ward3/vitals", 9, &br#"{"hr":72}"#[..]));
                assert_eq!(guarantee, Strength::Best);
                Ok(Answer::Published { number: Some(17), others: Some(2), here: true })
            }
            Request::Primary => Ok(Answer::Ordered { sequencer: "robot1".into() }),
            Request::Rotate => Ok(Answer::Changed(Change {
                from: 3,
                to: 4,
                on_new_key: 5,
                members: 5,
                elapsed_micros: 43_000,
                serial: None,
            })),
            Request::Evict { who, reason, all } => {
                assert_eq!((&*who, &*reason, all), ("carol", "lost laptop", false));
                Err(Error::new(Code::DeniedEvict, "no right to evict").with_hint("ask the authority"))
            }
            Request::Learn { object } => {
                assert_eq!(object, "30ff");
                Ok(Answer::Done)
            }
            Request::Pending => Ok(Answer::Pending(Vec::new())),
            Request::Admit { who } => Err(Error::new(Code::Missing, format!("nobody waits: {who:?}"))),
            Request::Leave => Ok(Answer::Done),
            Request::Subscribe { .. } => unreachable!("it is asked of the other method"),
        }
    }

    fn subscribe(&self, _: &str, _: bool) -> sealcast::error::Result<sealcast::Subscription> {
        Err(Error::new(Code::DeniedSubscribe, "no right"))
    }
}

#[test]
fn rule_g9_the_local_socket_speaks_the_lines_of_the_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sock");
    let server = Server::open(&path, Arc::new(Canned)).unwrap();
    let vectors: Value = serde_json::from_str(include_str!("../../../docs/vectors/control.json")).unwrap();
    let mut stream = BufReader::new(UnixStream::connect(&path).unwrap());
    for exchange in vectors["exchanges"].as_array().unwrap() {
        let (ask, expect) = (exchange["ask"].as_str().unwrap(), exchange["answer"].as_str().unwrap());
        stream.get_mut().write_all(ask.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        let value = |text: &str| {
            let mut value = serde_json::from_str::<Value>(text).unwrap();
            if let Some(message) = value.pointer_mut("/error/message") {
                *message = "for people".into();
            }
            value
        };
        assert_eq!(value(&answer), value(expect), "{ask}");
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "after what was not understood the connection ends");
    drop(server);
}

/// Runs the reading peer; `None` where there is no Python for it, which `make interop` cures.
fn peer(script: &str, on: &Path) -> Option<Output> {
    let named = std::env::var_os("SEALCAST_PYTHON").map(PathBuf::from);
    let python = named.clone().unwrap_or_else(|| "python3".into());
    let read = Command::new(&python).arg("-B").arg(root().join("docs/peer").join(script)).arg(on).output();
    let why = match read {
        Ok(read) if read.status.code() != Some(NO_CRYPTOGRAPHY) => return Some(read),
        Ok(read) => String::from_utf8_lossy(&read.stderr).trim().to_owned(),
        Err(why) => why.to_string(),
    };
    assert!(named.is_none(), "SEALCAST_PYTHON names {}: {why}", python.display());
    sealcast_lab::skipped("rule_g9", &format!("{}: {why}; or type `make interop`", python.display()));
    None
}

/// A copy of the vectors that goes away with it.
fn vectors() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in [
        "crypto/vectors/primitives.json",
        "delivery/vectors/records.json",
        "keys/vectors/contributory.json",
        "keys/vectors/center.json",
    ] {
        let to = folder.path().join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root().join(file), to).unwrap();
    }
    folder
}

/// Rust files that are not tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let is_test = |p: &Path| {
        p.file_stem().is_some_and(|s| ["tests", "vectors", "testing", "memo"].map(Into::into).contains(&s.to_owned()))
    };
    entries
        .filter(|p| !is_test(p))
        .flat_map(|p| if p.is_dir() { sources(&p) } else { vec![p] })
        .filter(|p| p.extension().is_some_and(|x| x == "rs"))
        .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("lab lies in the workspace")
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect()
}

/// What `read.py` exits with where the package `cryptography` is missing.
const NO_CRYPTOGRAPHY: i32 = 77;
