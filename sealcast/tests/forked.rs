//! What a forked child may do with the sessions of its parent: nothing (G4).

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Ca, SOON, open, url};
use fork::{Fork, fork, waitpid_nohang};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast::brokers::{BATCH_OPERATIONS, Brokers, ClientKey, Opening, Outgoing};
use sealcast::session::TryPublishError;
use sealcast::url::Scheme;
use sealcast::{Code, Error, Session, Subscription};
use sealcast_broker::cluster_file::{Addresses, ClusterFile, Suite, VouchedKey};
use sealcast_broker::genesis::Genesis;
use sealcast_broker::operation::{Execute, Header};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::group::{Parameters, Ristretto255};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_crypto::tdh2::deal;

/// Forks; the child ends with the first check that fails, or with 0. It does not return into the tests' threads.
fn in_child(checks: impl FnOnce() -> Result<(), i32>) -> i32 {
    match fork().expect("the system forks") {
        Fork::Child => std::process::exit(checks().err().unwrap_or(0)),
        Fork::Parent(child) => {
            let deadline = Instant::now() + SOON;
            loop {
                if let Some(status) = waitpid_nohang(child).expect("our child") {
                    return if status & 0x7F == 0 { status >> 8 & 0xFF } else { -status };
                }
                assert!(Instant::now() < deadline, "the child hangs");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

fn is_forked<T>(came: Result<T, Error>, number: i32) -> Result<(), i32> {
    match came {
        Err(why) if why.code() == Code::Forked => Ok(()),
        _ => Err(number),
    }
}

fn refuses(session: Session, mut reads: Subscription) -> Result<(), i32> {
    is_forked(session.publish("t", b"from the child").wait(), 1)?;
    match session.try_publish("t", b"from the child") {
        Err(TryPublishError::Refused(why)) if why.code() == Code::Forked => {}
        _ => return Err(2),
    }
    is_forked(session.publish("t", b"in order").ordered().wait(), 3)?;
    is_forked(session.subscribe("#").wait(), 4)?;
    is_forked(reads.next_timeout(SOON), 5)?;
    is_forked(session.rotate().wait(), 6)?;
    is_forked(session.evict("bob", "the child says so").wait(), 7)?;
    is_forked(session.leave().wait(), 8)?;
    is_forked(session.ready().wait(), 9)?;
    drop(session.flush());
    drop(reads);
    session.close();
    Ok(())
}

fn next(sub: &mut Subscription) -> Vec<u8> {
    sub.next_timeout(SOON).expect("open").expect("delivered").payload().to_vec()
}

#[test]
fn rule_g4_a_session_in_a_forked_child_refuses_everything_before_a_byte_leaves() {
    for more in ["", "&origin=mac", "&batch=off"] {
        let mut ca = Ca::new();
        let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
        let url = url(more);
        let (a, b) = (open(&url, &alice), open(&url, &bob));
        let (at_a, mut at_b) = (a.subscribe("none").wait().unwrap(), b.subscribe("#").wait().unwrap());
        let deadline = Instant::now() + SOON;
        while [&a, &b].iter().any(|s| s.view().is_none_or(|view| view.members.len() < 2)) {
            assert!(Instant::now() < deadline, "not together");
            std::thread::sleep(Duration::from_millis(5));
        }
        a.publish("t", b"before").wait().unwrap();
        assert_eq!(next(&mut at_b), b"before");
        let (session, child) = (a.clone(), at_a);
        assert_eq!(in_child(move || refuses(session, child)), 0, "{more}");
        // What comes next comes from the parent, which is still a member, and nothing was sent under its counters.
        a.publish("t", b"after").wait().unwrap();
        assert_eq!(next(&mut at_b), b"after", "{more}");
        assert_eq!(b.view().map(|view| view.members.len()), Some(2));
        assert_eq!(b.stats().drops.of(sealcast_wire::Dropped::Replay), 0, "{more}");
    }
}

/// A client of brokers that are not there: what it refuses, it refuses by itself.
fn client_of_nobody() -> Brokers {
    let mut brokers: Vec<_> =
        (1..5_u8).map(|i| OriginKey::from_seed(&Secret::from_bytes([i; 32])).public_bytes()).collect();
    brokers.sort_unstable();
    let genesis = Genesis {
        name: "nobody".into(),
        brokers: brokers.iter().copied().collect(),
        quorum: 1,
        administrators: vec![Key::new(&brokers[0]).expect("a key")],
        issuers: BTreeMap::new(),
    };
    let cluster = genesis.cluster().0;
    let (key, _) = deal::<Ristretto255>(Parameters::new(&cluster, 2, 4), &mut ChaCha20Rng::seed_from_u64(1)).unwrap();
    let nowhere = || Addresses { gateway: "127.0.0.1:1".into(), order: "127.0.0.1:1".into() };
    let cluster = ClusterFile {
        genesis,
        addresses: (0..4).map(|_| nowhere()).collect(),
        threshold: 2,
        suite: Suite::Ristretto255,
        key: Some(VouchedKey { epoch: 0, key: key.encode(), signatures: BTreeMap::new() }),
        endorsement: None,
    };
    let opening = Opening {
        cluster: Arc::new(cluster),
        key: ClientKey::fresh().unwrap(),
        registrations: Vec::new(),
        keys: Scheme::Threshold,
        timeout: Duration::from_millis(50),
        batch_operations: BATCH_OPERATIONS,
        accuse: true,
    };
    Brokers::open(opening).unwrap()
}

#[test]
fn rule_g4_a_client_of_brokers_in_a_forked_child_seals_nothing() {
    let outgoing = Outgoing {
        headers: vec![Header { topic: "t".into(), value: None }],
        associated: Vec::new(),
        access: None,
        execute: Execute::Nothing,
        body: b"body".to_vec(),
    };
    let client = Arc::new(client_of_nobody());
    let (childs, publication) = (client.clone(), outgoing.clone());
    let checks = move || {
        is_forked(childs.begin(&publication).wait(), 1)?;
        is_forked(childs.publish(&publication).wait(), 2)?;
        is_forked(childs.ready().wait(), 3)?;
        is_forked(childs.status().wait(), 4)?;
        drop(childs);
        Ok(())
    };
    assert_eq!(in_child(checks), 0);
    let client = Arc::into_inner(client).expect("the child's is its own");
    assert_eq!(client.ready().wait().map(drop).unwrap_err().code(), Code::NoQuorum, "the parent goes on as before");
    assert_eq!(
        in_child(move || {
            // Ending it neither hangs for a thread that is not here nor says goodbye in the parent's name.
            client.close();
            Ok(())
        }),
        0
    );
}
